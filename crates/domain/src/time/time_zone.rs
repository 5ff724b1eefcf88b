//! Time zones by name, for chrono. The rules are compiled into the program, so that hosts that share a store agree on planned
//! times, and hosts without a zone database know the zones too.

use std::sync::OnceLock;

use chrono::{Datelike as _, FixedOffset, LocalResult, NaiveDate, NaiveDateTime, NaiveTime, Timelike as _};
use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone as Rules, TimeZoneDatabase};

/// A zone with its clock changes.
#[derive(Clone, Debug)]
pub struct Zone(Rules);

/// The offset of a zone from UTC at some moment.
#[derive(Clone, Debug)]
pub struct ZoneOffset {
    zone: Zone,
    fixed: FixedOffset,
}

impl Zone {
    /// Returns the zone of this name (`Europe/Berlin`, `UTC`), ignoring case; `None` if it does not exist.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        static BUILT_IN: OnceLock<TimeZoneDatabase> = OnceLock::new();
        let rules = BUILT_IN.get_or_init(TimeZoneDatabase::bundled).get(name).ok()?;
        (!rules.is_unknown()).then_some(Self(rules))
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    fn offset(&self, offset: Offset) -> Option<ZoneOffset> {
        Some(ZoneOffset { zone: self.clone(), fixed: FixedOffset::east_opt(offset.seconds())? })
    }

    fn at_wall_time(&self, local: &NaiveDateTime) -> Option<LocalResult<ZoneOffset>> {
        let ambiguous = self.0.to_ambiguous_timestamp(civil(local)?);
        Some(match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { offset } => LocalResult::Single(self.offset(offset)?),
            AmbiguousOffset::Fold { before, after } => {
                LocalResult::Ambiguous(self.offset(before)?, self.offset(after)?)
            }
            AmbiguousOffset::Gap { .. } => LocalResult::None,
        })
    }
}

/// Returns `None` outside the years -9999 to 9999.
fn civil(wall: &NaiveDateTime) -> Option<jiff::civil::DateTime> {
    let year = i16::try_from(wall.year()).ok()?;
    // None is above 59.
    let parts = [wall.month(), wall.day(), wall.hour(), wall.minute(), wall.second()];
    let [month, day, hour, minute, second] = parts.map(|part| part as i8);
    jiff::civil::DateTime::new(year, month, day, hour, minute, second, 0).ok()
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Zone {}

impl chrono::Offset for ZoneOffset {
    fn fix(&self) -> FixedOffset {
        self.fixed
    }
}

impl chrono::TimeZone for Zone {
    type Offset = ZoneOffset;

    fn from_offset(offset: &ZoneOffset) -> Self {
        offset.zone.clone()
    }

    fn offset_from_local_date(&self, local: &NaiveDate) -> LocalResult<ZoneOffset> {
        self.offset_from_local_datetime(&local.and_time(NaiveTime::MIN))
    }

    fn offset_from_local_datetime(&self, local: &NaiveDateTime) -> LocalResult<ZoneOffset> {
        self.at_wall_time(local).unwrap_or(LocalResult::None)
    }

    fn offset_from_utc_date(&self, utc: &NaiveDate) -> ZoneOffset {
        self.offset_from_utc_datetime(&utc.and_time(NaiveTime::MIN))
    }

    /// Returns the offset of UTC for years beyond the rules.
    fn offset_from_utc_datetime(&self, utc: &NaiveDateTime) -> ZoneOffset {
        let timestamp = Timestamp::from_second(utc.and_utc().timestamp()).ok();
        let offset = timestamp.and_then(|timestamp| self.offset(self.0.to_offset(timestamp)));
        offset.unwrap_or_else(|| ZoneOffset { zone: self.clone(), fixed: chrono::Offset::fix(&chrono::Utc) })
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeZone as _, Utc};

    use super::*;

    fn berlin() -> Zone {
        Zone::named("Europe/Berlin").unwrap()
    }

    fn wall(text: &str) -> LocalResult<DateTime<Utc>> {
        berlin().from_local_datetime(&text.parse().unwrap()).map(|instant| instant.to_utc())
    }

    #[test]
    fn zones_are_known_by_their_names_in_any_case() {
        assert_eq!(Zone::named("europe/berlin").unwrap().name(), "Europe/Berlin");
        assert_eq!(Zone::named("UTC").unwrap().name(), "UTC");
        assert_eq!(Zone::named("Europe/Berlin"), Zone::named("EUROPE/BERLIN"));
        for name in ["", "Berlin", "Europe", "+01:00", "Etc/Unknown", "../etc/passwd"] {
            assert_eq!(Zone::named(name), None, "{name}");
        }
    }

    #[test]
    fn a_wall_clock_leaves_an_hour_out_and_has_another_one_twice() {
        let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        assert_eq!(wall("2026-01-15T12:00:00"), LocalResult::Single(at("2026-01-15T11:00:00Z")));
        assert_eq!(wall("2026-07-15T12:00:00"), LocalResult::Single(at("2026-07-15T10:00:00Z")));
        assert_eq!(wall("2026-03-29T02:30:00"), LocalResult::None);
        let twice = LocalResult::Ambiguous(at("2026-10-25T00:30:00Z"), at("2026-10-25T01:30:00Z"));
        assert_eq!(wall("2026-10-25T02:30:00"), twice);
        assert_eq!(wall("9999-12-31T23:59:59").single(), Some(at("9999-12-31T22:59:59Z")));
        assert_eq!(wall("+12000-01-01T00:00:00"), LocalResult::None);
    }

    #[test]
    fn an_instant_is_shown_as_the_wall_clock_has_it() {
        let shown =
            |text: &str| text.parse::<DateTime<Utc>>().unwrap().with_timezone(&berlin()).naive_local().to_string();
        assert_eq!(shown("2026-03-29T00:59:59Z"), "2026-03-29 01:59:59");
        assert_eq!(shown("2026-03-29T01:00:00Z"), "2026-03-29 03:00:00");
        assert_eq!(shown("2026-03-29T01:00:00.123456Z"), "2026-03-29 03:00:00.123456");
    }
}
