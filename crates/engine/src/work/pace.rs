//! How long a worker gathers outcomes, how far ahead of its slots it claims, and how long it pauses when there is nothing to
//! claim.

use std::time::Duration;

use taskqueue_host::random::spread;

/// The shortest and the longest time to gather outcomes before they are written, while the slots have work.
const SHORTEST_GATHER: Duration = Duration::from_millis(8);
const LONGEST_GATHER: Duration = Duration::from_millis(24);
/// Outcomes are gathered for this many times the duration of a write: the slots use the processors meanwhile.
const GATHERS_PER_WRITE: f64 = 4.0;
/// How long the slots should have work at least while the coordinator is busy.
const AHEAD: Duration = Duration::from_millis(20);
/// More runs would not be faster, and no other runner can execute them while they wait here.
const MOST_AHEAD: usize = 2_000;
/// The weight of the newest value in a mean.
const WEIGHT: f64 = 0.1;

/// The shortest and the longest pause between two polls that found nothing.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// With notifications, polling only finds work for which none is sent.
const LONGEST_PAUSE_LISTENING: Duration = Duration::from_secs(1);

/// Means of the durations of runs and writes, weighted towards the newest.
#[derive(Debug, Default)]
pub(super) struct Pace {
    run_secs: Option<f64>,
    write_secs: Option<f64>,
}

fn mean(of_before: Option<f64>, newest: f64) -> f64 {
    of_before.map_or(newest, |mean| mean + (newest - mean) * WEIGHT)
}

impl Pace {
    /// Adds the duration of a run.
    pub(super) fn ran(&mut self, took: Duration) {
        let secs = took.as_secs_f64();
        // One long run among many short ones counts fully at once, because the runs behind it wait for long.
        let is_far_longer = self.run_secs.is_some_and(|mean| secs > mean * 10.0);
        self.run_secs = Some(if is_far_longer { secs } else { mean(self.run_secs, secs) });
    }

    /// Adds the duration of a write of outcomes with a claim.
    pub(super) fn wrote(&mut self, took: Duration) {
        // The duration of an outage must not distort the mean.
        let secs = took.min(LONGEST_GATHER).as_secs_f64();
        self.write_secs = Some(mean(self.write_secs, secs));
    }

    fn write(&self) -> Duration {
        Duration::from_secs_f64(self.write_secs.unwrap_or(0.0))
    }

    /// Returns how long to gather outcomes while the slots have work.
    pub(super) fn gather(&self) -> Duration {
        self.write().mul_f64(GATHERS_PER_WRITE).clamp(SHORTEST_GATHER, LONGEST_GATHER)
    }

    /// Returns how many runs this many slots start while outcomes are gathered and written twice; 0 if nothing is known, or if
    /// runs are long.
    pub(super) fn look_ahead(&self, slots: usize) -> usize {
        let Some(run_secs) = self.run_secs else { return 0 };
        let ahead = ((self.gather() + self.write()) * 2).max(AHEAD);
        #[expect(clippy::cast_precision_loss, reason = "a number of slots")]
        let begun = slots as f64 * ahead.as_secs_f64() / run_secs.max(1e-9);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cut to the range")]
        let begun = begun.min(MOST_AHEAD as f64) as usize;
        begun
    }
}

/// The pause before the next poll.
#[derive(Debug)]
pub(super) struct IdlePause {
    next: Duration,
    longest: Duration,
}

impl IdlePause {
    pub(super) const fn while_listening() -> Self {
        Self { next: FIRST_PAUSE, longest: LONGEST_PAUSE_LISTENING }
    }

    pub(super) const fn while_polling() -> Self {
        Self { next: FIRST_PAUSE, longest: LONGEST_PAUSE }
    }

    /// Returns half to all of the pause, so that waiting workers do not poll at the same time, and makes the next one longer.
    pub(super) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 3 / 2).min(self.longest);
        pause / 2 + (pause / 2).mul_f64(f64::from(spread()) / f64::from(u16::MAX))
    }

    /// Resets the pause, because there was work.
    pub(super) fn reset(&mut self) {
        self.next = FIRST_PAUSE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_ahead(took: Duration, slots: usize) -> usize {
        let mut pace = Pace::default();
        pace.ran(took);
        pace.look_ahead(slots)
    }

    #[test]
    fn short_runs_are_claimed_far_ahead_and_long_ones_not_at_all() {
        assert_eq!(Pace::default().look_ahead(8), 0);
        assert_eq!(look_ahead(Duration::from_secs(1), 8), 0);
        assert_eq!(look_ahead(Duration::from_millis(2), 8), 80);
        assert_eq!(look_ahead(Duration::ZERO, 1), MOST_AHEAD);
    }

    #[test]
    fn one_long_run_is_believed_at_once() {
        let mut pace = Pace::default();
        pace.ran(Duration::from_millis(1));
        pace.ran(Duration::from_secs(10));
        assert_eq!(pace.look_ahead(8), 0);
    }

    #[test]
    fn slow_writes_lengthen_the_gathering_of_ends_and_the_look_ahead() {
        let mut pace = Pace::default();
        pace.ran(Duration::from_millis(10));
        pace.wrote(Duration::from_millis(1));
        assert_eq!((pace.gather(), pace.look_ahead(8)), (SHORTEST_GATHER, 16));
        for _ in 0..100 {
            pace.wrote(Duration::from_secs(60));
        }
        assert_eq!((pace.gather(), pace.look_ahead(8)), (LONGEST_GATHER, 76));
    }

    #[test]
    fn pauses_grow_to_their_longest_and_start_again() {
        let mut pause = IdlePause::while_polling();
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
