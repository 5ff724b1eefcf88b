//! Where the last look for due tasks has left off. A server keeps the index entries of tasks that are no longer due until it has
//! cleaned up, and cannot clean up while anybody holds an old snapshot: who looks for one task after the other need not walk
//! over all of them each time.

use std::time::{Duration, Instant};

use crate::base::sql::Moment;

/// What became due before, or was passed over because somebody held it, is found within this time.
const VALID: Duration = Duration::from_secs(2);

/// A place in the order of due tasks before which there was nothing a moment ago.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct LowWater(Option<(Moment, Instant)>);

impl LowWater {
    /// From where to look; the beginning, where that has not been done for a while.
    pub(super) fn place(self) -> Option<Moment> {
        self.0.filter(|(_, until)| Instant::now() < *until).map(|(place, _)| place)
    }

    /// A look from there, or from the beginning if `None`, has come to the task that was due then.
    pub(super) fn rise(&mut self, from: Option<Moment>, reached: Moment) {
        let until = match (from, self.0) {
            (Some(_), Some((_, until))) => until,
            _ => Instant::now() + VALID,
        };
        self.0 = Some((reached, until));
    }

    /// Nothing is known any more.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_from_the_last_place_does_not_delay_one_from_the_beginning() {
        let (first, second) = (Moment::beginning(), Moment::from(chrono::DateTime::UNIX_EPOCH));
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
