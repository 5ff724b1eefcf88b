//! How runs reach the program of a class: the program is started for each run, or kept running (docs/coprocess.md).

use std::time::Duration;

use super::checks::{MAX_LIMIT_BYTES, in_range};
use taskqueue_domain::task::new_task::MAX_TIMEOUT_SECS;

const ONE_SHOT: &str = "one-shot";
const COPROCESS: &str = "coprocess";
const DEFAULT_START_TIMEOUT_SECS: u64 = 30;
const MAX_START_TIMEOUT_SECS: i64 = 3_600;
const MAX_RUNS: i64 = 1_000_000_000;
/// Hardly any program starts with less memory, so that each process would be replaced after every run.
const MIN_RSS_BYTES: i64 = 1 << 20;

/// The keys of a class that say it.
pub(super) struct ProtocolKeys<'a> {
    pub(super) protocol: Option<&'a str>,
    pub(super) start_timeout_secs: Option<i64>,
    pub(super) max_runs: Option<i64>,
    pub(super) max_age_secs: Option<i64>,
    pub(super) max_rss_bytes: Option<i64>,
}

impl ProtocolKeys<'_> {
    /// Returns the first key that only a coprocess has.
    fn key_of_coprocess(&self) -> Option<&'static str> {
        let all = [
            ("start_timeout_secs", self.start_timeout_secs),
            ("max_runs", self.max_runs),
            ("max_age_secs", self.max_age_secs),
            ("max_rss_bytes", self.max_rss_bytes),
        ];
        all.into_iter().find_map(|(key, value)| value.map(|_| key))
    }
}

/// How runs reach the program of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The program is started for each run.
    #[default]
    OneShot,
    /// The program is kept running and receives runs as messages.
    Coprocess(CoprocessConfig),
}

/// How long a coprocess is kept running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoprocessConfig {
    /// The longest time from its start to its `hello`.
    pub start_timeout: Duration,
    /// The number of runs after which it is replaced.
    pub max_runs: Option<u64>,
    /// The age at which it is replaced.
    pub max_age: Option<Duration>,
    /// The resident memory of its main process, checked after each run, at which it is replaced.
    pub max_rss_bytes: Option<u64>,
}

impl Protocol {
    /// Builds it from the keys of a class.
    ///
    /// # Errors
    /// Returns which key is wrong.
    pub(super) fn of(keys: &ProtocolKeys<'_>) -> Result<Self, String> {
        match keys.protocol {
            None | Some(ONE_SHOT) => match keys.key_of_coprocess() {
                Some(key) => Err(format!("{key} is for a program that is kept running: protocol = \"{COPROCESS}\"")),
                None => Ok(Self::OneShot),
            },
            Some(COPROCESS) => CoprocessConfig::of(keys).map(Self::Coprocess),
            Some(other) => Err(format!("protocol is \"{other}\"; it must be \"{ONE_SHOT}\" or \"{COPROCESS}\"")),
        }
    }

    /// Returns the name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OneShot => ONE_SHOT,
            Self::Coprocess(_) => COPROCESS,
        }
    }
}

impl CoprocessConfig {
    fn of(keys: &ProtocolKeys<'_>) -> Result<Self, String> {
        let number = |key, value, low, high| Ok::<_, String>(in_range(key, value, low, high)?.map(i64::unsigned_abs));
        let start_timeout = number("start_timeout_secs", keys.start_timeout_secs, 1, MAX_START_TIMEOUT_SECS)?;
        Ok(Self {
            start_timeout: Duration::from_secs(start_timeout.unwrap_or(DEFAULT_START_TIMEOUT_SECS)),
            max_runs: number("max_runs", keys.max_runs, 1, MAX_RUNS)?,
            max_age: number("max_age_secs", keys.max_age_secs, 1, MAX_TIMEOUT_SECS)?.map(Duration::from_secs),
            max_rss_bytes: number("max_rss_bytes", keys.max_rss_bytes, MIN_RSS_BYTES, MAX_LIMIT_BYTES)?,
        })
    }
}
