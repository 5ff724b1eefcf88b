//! The position at which the last scan for due tasks stopped. A server keeps the index entries of tasks that are no longer due
//! until cleanup, which old snapshots block. With this position, repeated scans for due tasks need not read all those entries
//! each time.

use std::time::{Duration, Instant};

use crate::base::sql::SqlMoment;

/// A task that became due before the position, or was skipped because it was locked, is found within this time.
const VALID: Duration = Duration::from_secs(2);

/// A position in the order of due tasks before which there was recently nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LowWater(Option<(SqlMoment, Instant)>);

impl LowWater {
    /// Returns the position from which to scan; the beginning if the position is too old.
    pub(crate) fn place(self) -> Option<SqlMoment> {
        self.0.filter(|(_, until)| Instant::now() < *until).map(|(place, _)| place)
    }

    /// Records that a scan from `from`, or from the beginning if `None`, has reached the task that was due at `reached`.
    pub(crate) fn rise(&mut self, from: Option<SqlMoment>, reached: SqlMoment) {
        let until = match (from, self.0) {
            (Some(_), Some((_, until))) => until,
            _ => Instant::now() + VALID,
        };
        self.0 = Some((reached, until));
    }

    /// Resets the position.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_from_the_last_place_does_not_delay_one_from_the_beginning() {
        let (first, second) = (SqlMoment::beginning(), SqlMoment::from(chrono::DateTime::UNIX_EPOCH));
        let mut low_water = LowWater::default();
        assert_eq!(low_water.place(), None);
        low_water.rise(None, first);
        let until = low_water.0.map(|(_, until)| until);
        low_water.rise(low_water.place(), second);
        assert_eq!((low_water.place(), low_water.0.map(|(_, until)| until)), (Some(second), until));
        low_water.0 = low_water.0.map(|(place, _)| (place, Instant::now()));
        assert_eq!(low_water.place(), None, "it is time to look from the beginning");
        low_water.rise(None, first);
        low_water.forget();
        assert_eq!(low_water.place(), None);
    }
}
