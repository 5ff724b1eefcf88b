//! The ids that a follower of events has passed over: those of transactions that are not committed yet, or never will be.
//! Kept as ranges: one transaction may hold back many thousands.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::os::clock::Moment;

/// How long an id that is missing is looked for: longer than the largest batch takes.
const WAIT: Duration = Duration::from_secs(3_600);
/// Ranges that are looked for at once; the oldest are given up beyond that.
const MOST: usize = 1_000;

/// Ids that are missing.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    by_first_id: BTreeMap<i64, Gap>,
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    last_id: i64,
    until: Moment,
}

impl Gaps {
    /// All ids between these two are missing from now on.
    pub(super) fn open_between(&mut self, before: i64, after: i64) {
        self.insert(before + 1, Gap { last_id: after - 1, until: Moment::after(WAIT) });
    }

    /// This id is not missing any more.
    pub(super) fn close(&mut self, id: i64) {
        let around = self.by_first_id.range(..=id).next_back().filter(|(_, gap)| gap.last_id >= id);
        let Some((&first_id, &gap)) = around else { return };
        self.by_first_id.remove(&first_id);
        self.insert(first_id, Gap { last_id: id - 1, ..gap });
        self.insert(id + 1, gap);
    }

    fn insert(&mut self, first_id: i64, gap: Gap) {
        if first_id > gap.last_id {
            return;
        }
        self.by_first_id.insert(first_id, gap);
        if self.by_first_id.len() > MOST {
            self.by_first_id.pop_first();
        }
    }

    /// Looks no longer for what has been missing for too long.
    pub(super) fn give_up_old(&mut self) {
        let now = Moment::now();
        self.by_first_id.retain(|_, gap| gap.until > now);
    }

    /// The first and the last id of each, in their order.
    pub(super) fn ranges(&self) -> Vec<(i64, i64)> {
        self.by_first_id.iter().map(|(first_id, gap)| (*first_id, gap.last_id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(before: i64, after: i64) -> Gaps {
        let mut gaps = Gaps::default();
        gaps.open_between(before, after);
        gaps
    }

    #[test]
    fn ids_that_follow_each_other_leave_no_gap() {
        assert!(between(7, 8).ranges().is_empty());
        assert_eq!(between(7, 9).ranges(), [(8, 8)]);
    }

    #[test]
    fn a_huge_gap_is_one_range_and_loses_what_is_seen_wherever_that_lies() {
        let mut gaps = between(0, 1_000_000_001);
        assert_eq!(gaps.ranges(), [(1, 1_000_000_000)]);
        for seen in [1, 500, 501, 1_000_000_000, 77_000_000_000, 0] {
            gaps.close(seen);
        }
        assert_eq!(gaps.ranges(), [(2, 499), (502, 999_999_999)]);
        gaps.close(500);
        assert_eq!(gaps.ranges(), [(2, 499), (502, 999_999_999)], "it is not missing");
        for seen in 2..500 {
            gaps.close(seen);
        }
        assert_eq!(gaps.ranges(), [(502, 999_999_999)]);
    }

    #[test]
    fn of_too_many_gaps_the_newest_are_looked_for() {
        let mut gaps = Gaps::default();
        let most = i64::try_from(MOST).unwrap_or_default();
        for number in 0..most + 10 {
            gaps.open_between(2 * number, 2 * number + 2);
        }
        let ranges = gaps.ranges();
        assert_eq!((ranges.len(), ranges.first()), (MOST, Some(&(21, 21))));
        gaps.close(25);
        assert_eq!(gaps.ranges().len(), MOST - 1);
    }

    #[test]
    fn a_gap_is_looked_for_until_its_time_is_over_and_so_is_what_is_left_of_it() {
        let mut gaps = between(0, 10);
        gaps.open_between(10, 20);
        let later = Moment::after(WAIT.saturating_mul(2));
        for (first_id, gap) in &mut gaps.by_first_id {
            gap.until = if *first_id == 1 { Moment::now() } else { later };
        }
        gaps.close(5);
        gaps.close(15);
        gaps.give_up_old();
        assert_eq!(gaps.ranges(), [(11, 14), (16, 19)]);
    }
}
