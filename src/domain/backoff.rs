//! How long a failed task waits before it is tried again.

use serde::{Deserialize, Serialize};

/// The longest wait before a retry, whoever asks for it, in seconds: a year. What is added to a time of the database can
/// then never leave the range that every engine stores.
pub const MAX_DELAY_SECS: i64 = 31_536_000;

/// The wait that a handler asked for, as the nearest one that is possible.
#[must_use]
pub fn possible_delay_secs(asked_secs: i64) -> i64 {
    asked_secs.clamp(0, MAX_DELAY_SECS)
}

/// Exponential: the first retry waits `base_secs`, each further one twice as long, never more than `max_secs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// Seconds before the first retry; 0 retries at the next `create-runs`.
    pub base_secs: i64,
    /// The longest wait, in seconds.
    pub max_secs: i64,
}

impl Backoff {
    /// Seconds to wait after `failed_retries` failures in a row (1 or more) of the task `task_id`.
    ///
    /// Up to a tenth is added, computed from the task and its failures: tasks that failed together do not come back
    /// together, and the same failure waits the same time wherever it is computed. Never more than [`MAX_DELAY_SECS`].
    #[must_use]
    pub fn delay_secs(self, failed_retries: i32, task_id: i64) -> i64 {
        let doublings = u32::try_from(failed_retries.saturating_sub(1)).unwrap_or(0).min(40);
        let exact = self.base_secs.saturating_mul(1_i64 << doublings).min(self.max_secs);
        let exact = possible_delay_secs(exact);
        possible_delay_secs(exact + exact / 10 * jitter_percent(task_id, failed_retries) / 100)
    }
}

/// 0 to 100, spread evenly over tasks and attempts (the finaliser of SplitMix64).
fn jitter_percent(task_id: i64, failed_retries: i32) -> i64 {
    let mut x = task_id.cast_unsigned() ^ (u64::from(failed_retries.cast_unsigned()) << 48);
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) % 101).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { base_secs: 10, max_secs: 3600 };

    #[test]
    fn each_failure_doubles_the_wait_up_to_the_longest() {
        for (failed, exact) in [(1, 10), (2, 20), (3, 40), (9, 2560), (10, 3600), (i32::MAX, 3600)] {
            let delay = BACKOFF.delay_secs(failed, 7);
            assert!((exact..=exact + exact / 10).contains(&delay), "{failed}: {delay}");
        }
    }

    #[test]
    fn no_wait_is_longer_than_a_year_or_negative() {
        let endless = Backoff { base_secs: i64::MAX, max_secs: i64::MAX };
        let negative = Backoff { base_secs: -5, max_secs: i64::MIN };
        for task_id in 0..50 {
            assert_eq!(endless.delay_secs(40, task_id), MAX_DELAY_SECS);
            assert_eq!(negative.delay_secs(3, task_id), 0);
        }
    }

    #[test]
    fn no_base_means_no_wait() {
        assert_eq!(Backoff { base_secs: 0, max_secs: 3600 }.delay_secs(5, 7), 0);
    }

    #[test]
    fn tasks_that_failed_together_come_back_apart() {
        let delays: std::collections::BTreeSet<_> = (0..100).map(|task| BACKOFF.delay_secs(9, task)).collect();
        assert!(delays.len() > 20, "{delays:?}");
    }
}
