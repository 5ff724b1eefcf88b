//! How far ahead of its slots a worker claims, and how long it pauses when there is nothing to claim.

use std::time::Duration;

use crate::os::random::spread;

/// For how long the slots have work while the coordinator is away: a transaction or two.
const AHEAD: Duration = Duration::from_millis(20);
/// More runs than these at once bring nothing, and are lost time for others should they wait.
const MOST_AHEAD: usize = 500;
/// The part of the newest run in the mean.
const WEIGHT: f64 = 0.1;

/// The pauses between two looks that found nothing grow from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Where news wake us, a look is for what nobody tells of.
const LONGEST_PAUSE_WITH_NEWS: Duration = Duration::from_secs(1);

/// How long runs take, the newest counting most.
#[derive(Debug, Default)]
pub(super) struct Durations {
    mean_secs: Option<f64>,
}

impl Durations {
    pub(super) fn add(&mut self, took: Duration) {
        let secs = took.as_secs_f64();
        self.mean_secs = Some(self.mean_secs.map_or(secs, |mean| {
            // One long run among many short ones is believed at once: what waits behind it waits for long.
            if secs > mean * 10.0 { secs } else { mean + (secs - mean) * WEIGHT }
        }));
    }

    /// How many runs so many slots begin while the coordinator is away; none where nothing is known, or where they are long.
    pub(super) fn look_ahead(&self, slots: usize) -> usize {
        let Some(mean_secs) = self.mean_secs else { return 0 };
        #[expect(clippy::cast_precision_loss, reason = "a number of slots")]
        let begun = slots as f64 * AHEAD.as_secs_f64() / mean_secs.max(1e-9);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cut to the range")]
        let begun = begun.min(MOST_AHEAD as f64) as usize;
        begun
    }
}

/// The pause before the next look.
#[derive(Debug)]
pub(super) struct Pause {
    next: Duration,
    longest: Duration,
}

impl Pause {
    pub(super) const fn with_news() -> Self {
        Self { next: FIRST_PAUSE, longest: LONGEST_PAUSE_WITH_NEWS }
    }

    pub(super) const fn without_news() -> Self {
        Self { next: FIRST_PAUSE, longest: LONGEST_PAUSE }
    }

    /// Half to all of the pause, so that those who wait do not ask all at once. The next one is longer.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 3 / 2).min(self.longest);
        pause / 2 + (pause / 2).mul_f64(f64::from(spread()) / f64::from(u16::MAX))
    }

    /// Something was there.
    pub(super) fn reset(&mut self) {
        self.next = FIRST_PAUSE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_ahead(took: Duration, slots: usize) -> usize {
        let mut durations = Durations::default();
        durations.add(took);
        durations.look_ahead(slots)
    }

    #[test]
    fn short_runs_are_claimed_far_ahead_and_long_ones_not_at_all() {
        assert_eq!(Durations::default().look_ahead(8), 0);
        assert_eq!(look_ahead(Duration::from_secs(1), 8), 0);
        assert_eq!(look_ahead(Duration::from_millis(2), 8), 80);
        assert_eq!(look_ahead(Duration::ZERO, 1), MOST_AHEAD);
    }

    #[test]
    fn one_long_run_is_believed_at_once() {
        let mut durations = Durations::default();
        durations.add(Duration::from_millis(1));
        durations.add(Duration::from_secs(10));
        assert_eq!(durations.look_ahead(8), 0);
    }

    #[test]
    fn pauses_grow_to_their_longest_and_start_again() {
        let mut pause = Pause::without_news();
        assert!(pause.next() <= FIRST_PAUSE);
        for _ in 0..100 {
            let _ = pause.next();
        }
        let longest = pause.next();
        assert!(longest >= LONGEST_PAUSE / 2 && longest <= LONGEST_PAUSE);
        pause.reset();
        assert!(pause.next() <= FIRST_PAUSE);
    }
}
