//! The event ids that a follower has skipped: their transactions are not committed yet, or never will be. They are stored as
//! ranges, because one transaction can hold back many thousands of ids.

use std::collections::BTreeMap;
use std::time::Duration;

use taskqueue_host::clock::Moment;
use taskqueue_store::is_narrow_range;

/// How long a missing id is checked: longer than the largest batch takes.
const WAIT: Duration = Duration::from_secs(3_600);
/// During this time every poll checks a missing id; most transactions have ended by then.
const FRESH: Duration = Duration::from_secs(60);
/// Later, an id is checked about this many times while its age doubles. So late ids are found a little later, and ids that
/// never appear cost little.
const LOOKS_PER_AGE: u32 = 20;
/// How many wide ranges one poll checks; the others wait for the next poll.
const WIDE_PER_LOOK: usize = 50;
/// The largest number of ranges; the oldest are dropped beyond it.
const MOST: usize = 1_000;

/// The missing ids.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    by_first_id: BTreeMap<i64, Gap>,
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    last_id: i64,
    until: Moment,
    /// When the range is checked next.
    next_look: Moment,
}

impl Gap {
    /// Returns for how long it has been missing.
    fn age(&self) -> Duration {
        WAIT.saturating_sub(self.until.remaining())
    }
}

impl Gaps {
    /// Marks all ids between these two as missing.
    pub(crate) fn open_between(&mut self, before: i64, after: i64) {
        let gap = Gap { last_id: after - 1, until: Moment::after(WAIT), next_look: Moment::now() };
        self.insert(before + 1, gap);
    }

    /// Marks an id as found.
    pub(crate) fn close(&mut self, id: i64) {
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

    /// Drops ranges that have been missing for too long.
    pub(crate) fn give_up_old(&mut self) {
        let now = Moment::now();
        self.by_first_id.retain(|_, gap| gap.until > now);
    }

    /// Returns the first and the last id of each range to check now, in order.
    pub(crate) fn next_ranges(&mut self) -> Vec<(i64, i64)> {
        let mut due: Vec<(i64, &mut Gap)> = self
            .by_first_id
            .iter_mut()
            .map(|(id, gap)| (*id, gap))
            .filter(|(_, gap)| gap.next_look.has_passed())
            .collect();
        // The longest-waiting range comes first, so that each one is checked eventually.
        due.sort_by_key(|(_, gap)| gap.next_look);
        let (mut ranges, mut wide) = (Vec::new(), 0);
        for (first_id, gap) in due {
            let range = (first_id, gap.last_id);
            if !is_narrow_range(range) {
                wide += 1;
                if wide > WIDE_PER_LOOK {
                    continue;
                }
            }
            let age = gap.age();
            gap.next_look = Moment::after(if age >= FRESH { age / LOOKS_PER_AGE } else { Duration::ZERO });
            ranges.push(range);
        }
        ranges.sort_unstable();
        ranges
    }

    /// Returns the first and the last id of each range, in order.
    pub(crate) fn ranges(&self) -> Vec<(i64, i64)> {
        self.by_first_id.iter().map(|(first_id, gap)| (*first_id, gap.last_id)).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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
    fn of_many_wide_gaps_a_look_asks_for_some_and_each_has_its_turn() {
        let mut gaps = Gaps::default();
        for number in 0..120 {
            gaps.open_between(1_000 * number, 1_000 * number + 100);
            gaps.open_between(1_000 * number + 500, 1_000 * number + 502);
        }
        let all = gaps.ranges();
        let mut wide_looks: Vec<Vec<(i64, i64)>> = Vec::new();
        for _ in 0..3 {
            let (narrow, wide): (Vec<_>, Vec<_>) =
                gaps.next_ranges().into_iter().partition(|range| is_narrow_range(*range));
            assert_eq!(narrow.len(), 120);
            wide_looks.push(wide);
        }
        assert!(wide_looks.iter().all(|wide| wide.len() == WIDE_PER_LOOK));
        assert_eq!(wide_looks[0][0], (1, 99), "the oldest first");
        let mut seen = wide_looks.concat();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all.len() - 120);
    }

    #[test]
    fn a_gap_and_what_is_left_of_it_are_looked_for_until_their_time_is_over() {
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

    #[test]
    fn a_gap_is_looked_for_each_time_while_it_is_fresh_and_less_often_then() {
        let mut gaps = between(0, 10);
        gaps.open_between(10, 20);
        let old = gaps.by_first_id.get_mut(&11).unwrap();
        old.until = Moment::after(WAIT / 2);
        assert_eq!(gaps.next_ranges(), [(1, 9), (11, 19)]);
        assert_eq!(gaps.next_ranges(), [(1, 9)]);
        gaps.close(15);
        assert_eq!(gaps.next_ranges(), [(1, 9)], "what is left of it is as old");
        let next_look = gaps.by_first_id[&16].next_look.remaining();
        assert!(
            next_look > WAIT / 2 / LOOKS_PER_AGE - Duration::from_secs(30) && next_look < WAIT / LOOKS_PER_AGE,
            "{next_look:?}"
        );
        gaps.by_first_id.get_mut(&16).unwrap().next_look = Moment::now();
        assert_eq!(gaps.next_ranges(), [(1, 9), (16, 19)]);
    }
}
