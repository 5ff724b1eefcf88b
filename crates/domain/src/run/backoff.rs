//! How long a failed task waits before its retry, and the text form of that.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::time::when::parse_duration;

/// The longest wait before a retry, in seconds: a year. It also limits what handlers ask for, so that a time plus a wait stays
/// within the range of every engine.
pub const MAX_DELAY_SECS: i64 = 31_536_000;
/// The longest list of waits: its text must fit into the column Backoff.
const MAX_LIST_LENGTH: usize = 20;
const FORMS: &str = "write exponential:10s..1h, fixed:30s or list:10s,1m,10m";

/// Returns the nearest allowed wait to the one that a handler asked for.
#[must_use]
pub fn possible_delay_secs(asked_secs: i64) -> i64 {
    asked_secs.clamp(0, MAX_DELAY_SECS)
}

/// The waits before the retries of a task, in whole seconds. Text forms: `exponential:10s..1h`, `fixed:30s`, `list:10s,1m,10m`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Backoff {
    /// The first retry waits `base_secs`; each further retry waits twice as long, up to `max_secs`.
    Exponential {
        /// Seconds before the first retry; 0 retries at the next `create-runs`.
        base_secs: i64,
        /// The longest wait, in seconds.
        max_secs: i64,
    },
    /// Every retry waits this many seconds.
    Fixed(i64),
    /// The waits of the first retry, the second and so on, in seconds; the last one applies to all further retries.
    List(Vec<i64>),
}

impl Backoff {
    /// Returns the seconds to wait after `failed_retries` consecutive failures (1 or more) of the task `task_id`.
    ///
    /// Adds up to a tenth, computed from the task and its failures. Tasks that failed together are thus retried at different
    /// times, and every host computes the same wait for the same failure. Never more than [`MAX_DELAY_SECS`].
    #[must_use]
    pub fn delay_secs(&self, failed_retries: i32, task_id: i64) -> i64 {
        let earlier = failed_retries.saturating_sub(1);
        let exact = match self {
            Self::Exponential { base_secs, max_secs } => {
                let doublings = u32::try_from(earlier).unwrap_or(0).min(40);
                base_secs.saturating_mul(1_i64 << doublings).min(*max_secs)
            }
            Self::Fixed(secs) => *secs,
            Self::List(waits) => {
                let at = usize::try_from(earlier).unwrap_or(0).min(waits.len().saturating_sub(1));
                waits.get(at).copied().unwrap_or(0)
            }
        };
        let exact = possible_delay_secs(exact);
        possible_delay_secs(exact + exact / 10 * jitter_percent(task_id, failed_retries) / 100)
    }
}

/// In whole seconds, as stored in the column Backoff.
impl fmt::Display for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exponential { base_secs, max_secs } => write!(f, "exponential:{base_secs}s..{max_secs}s"),
            Self::Fixed(secs) => write!(f, "fixed:{secs}s"),
            Self::List(waits) => {
                let waits: Vec<String> = waits.iter().map(|secs| format!("{secs}s")).collect();
                write!(f, "list:{}", waits.join(","))
            }
        }
    }
}

impl From<Backoff> for String {
    fn from(backoff: Backoff) -> Self {
        backoff.to_string()
    }
}

impl TryFrom<String> for Backoff {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Backoff {
    type Err = String;

    /// # Errors
    /// Describes what is wrong and lists the valid forms.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |what: String| format!("\"{text}\" is not a backoff: {what}; {FORMS}");
        let (kind, waits) = text.trim().split_once(':').ok_or_else(|| wrong("it has no kind".to_owned()))?;
        match kind.trim() {
            "exponential" => {
                let (base, max) = waits.split_once("..").ok_or_else(|| wrong("it has no longest wait".to_owned()))?;
                let (base_secs, max_secs) = (wait_secs(base).map_err(wrong)?, wait_secs(max).map_err(wrong)?);
                if max_secs < base_secs {
                    return Err(wrong("its longest wait is shorter than its first".to_owned()));
                }
                Ok(Self::Exponential { base_secs, max_secs })
            }
            "fixed" => Ok(Self::Fixed(wait_secs(waits).map_err(wrong)?)),
            "list" => {
                let waits: Vec<i64> = waits.split(',').map(wait_secs).collect::<Result<_, _>>().map_err(wrong)?;
                if waits.len() > MAX_LIST_LENGTH {
                    return Err(wrong(format!("it has more than {MAX_LIST_LENGTH} waits")));
                }
                Ok(Self::List(waits))
            }
            other => Err(wrong(format!("there is no kind \"{other}\""))),
        }
    }
}

fn wait_secs(text: &str) -> Result<i64, String> {
    let duration = parse_duration(text.trim())?;
    if duration.subsec_nanos() != 0 {
        return Err(format!("\"{text}\" has a fraction of a second"));
    }
    i64::try_from(duration.as_secs())
        .ok()
        .filter(|secs| *secs <= MAX_DELAY_SECS)
        .ok_or_else(|| format!("\"{text}\" is longer than a year"))
}

/// Returns 0 to 100, spread evenly over tasks and attempts (the finaliser of SplitMix64).
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

    const BACKOFF: Backoff = Backoff::Exponential { base_secs: 10, max_secs: 3600 };

    #[track_caller]
    fn waits(backoff: &Backoff, failed: i32, exact: i64) {
        let delay = backoff.delay_secs(failed, 7);
        assert!((exact..=exact + exact / 10).contains(&delay), "{backoff} after {failed}: {delay}");
    }

    #[test]
    fn each_failure_doubles_the_wait_up_to_the_longest() {
        for (failed, exact) in [(1, 10), (2, 20), (3, 40), (9, 2560), (10, 3600), (i32::MAX, 3600)] {
            waits(&BACKOFF, failed, exact);
        }
    }

    #[test]
    fn a_fixed_wait_stays_and_a_list_goes_on_with_its_last() {
        for failed in [1, 2, i32::MAX] {
            waits(&Backoff::Fixed(300), failed, 300);
        }
        let list: Backoff = "list:10s,1m,10m".parse().unwrap();
        for (failed, exact) in [(0, 10), (1, 10), (2, 60), (3, 600), (4, 600), (i32::MAX, 600)] {
            waits(&list, failed, exact);
        }
        waits(&Backoff::List(Vec::new()), 1, 0);
    }

    #[test]
    fn no_wait_is_longer_than_a_year_or_negative() {
        let endless = Backoff::Exponential { base_secs: i64::MAX, max_secs: i64::MAX };
        let negative = Backoff::Exponential { base_secs: -5, max_secs: i64::MIN };
        for task_id in 0..50 {
            assert_eq!(endless.delay_secs(40, task_id), MAX_DELAY_SECS);
            assert_eq!(Backoff::Fixed(i64::MAX).delay_secs(1, task_id), MAX_DELAY_SECS);
            assert_eq!(negative.delay_secs(3, task_id), 0);
        }
    }

    #[test]
    fn no_base_means_no_wait() {
        assert_eq!(Backoff::Exponential { base_secs: 0, max_secs: 3600 }.delay_secs(5, 7), 0);
    }

    #[test]
    fn tasks_that_failed_together_come_back_apart() {
        let delays: std::collections::BTreeSet<_> = (0..100).map(|task| BACKOFF.delay_secs(9, task)).collect();
        assert!(delays.len() > 20, "{delays:?}");
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        for (text, kept) in [
            ("exponential:10s..1h", "exponential:10s..3600s"),
            (" fixed: 2m 30s ", "fixed:150s"),
            ("list:0s, 1m,1day", "list:0s,60s,86400s"),
        ] {
            let backoff: Backoff = text.parse().unwrap();
            assert_eq!(backoff.to_string(), kept);
            assert_eq!(kept.parse(), Ok(backoff));
        }
        let longest = format!("list:{}", vec![format!("{MAX_DELAY_SECS}s"); MAX_LIST_LENGTH].join(","));
        assert!(longest.parse::<Backoff>().unwrap().to_string().len() <= 250);
    }

    #[test]
    fn what_is_no_backoff_is_refused_with_the_reason_and_the_forms() {
        let too_long = format!("list:{}", vec!["1s"; MAX_LIST_LENGTH + 1].join(","));
        for (text, reason) in [
            ("", "no kind"),
            ("30s", "no kind"),
            ("linear:1s", "no kind \"linear\""),
            ("exponential:10s", "no longest wait"),
            ("exponential:1h..10s", "shorter than its first"),
            ("fixed:", "duration"),
            ("fixed:1500ms", "fraction"),
            ("fixed:400d", "longer than a year"),
            ("list:1s,,2s", "duration"),
            (too_long.as_str(), "more than 20"),
        ] {
            let error = text.parse::<Backoff>().unwrap_err();
            assert!(error.contains(reason) && error.contains("fixed:30s"), "{text}: {error}");
        }
    }
}
