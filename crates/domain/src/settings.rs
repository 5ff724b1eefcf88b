//! The settings on which all hosts must agree: rows of TaskQueueSettings, each with its range.

use std::fmt;

use serde::Serialize;

use crate::limits::lease::LeaseTimes;
use crate::run::retention::{Keep, Retention};

/// A setting of the whole queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setting {
    /// The highest number of live runners, on all hosts together.
    RunnerLimit,
    /// Seconds without an end or a report after which a run times out, unless its task or class states a timeout.
    RunTimeout,
    /// Failed attempts after which a task without MaxRetries is exhausted.
    MaxRetries,
    /// The highest allowed number of failed attempts of any task.
    MaxRetriesCap,
    /// Seconds before the first retry of a failed task; doubled for each further retry.
    RetryDelay,
    /// The longest wait before a retry, in seconds.
    RetryDelayMax,
    /// Crashes of a task, without a success between them, after which it is quarantined.
    CrashLimit,
    /// Expired claims of a task by one claimant after which the claimant counts as having rejected the task.
    ClaimTimeoutLimit,
    /// Seconds for which a class is held on a host after its handler could not be started. Also the seconds for which a task is
    /// held back from a claimant whose claim expired.
    HoldTime,
    /// Seconds after which a lease that is not renewed expires.
    LeaseTime,
    /// Seconds between two renewals.
    LeaseRenewal,
    /// Seconds before the end of its lease at which a runner stops its work.
    LeaseMargin,
    /// The largest task data, in bytes.
    MaxDataBytes,
    /// Seconds by which a planned time may be late if its schedule does not catch up.
    ScheduleGrace,
    /// Whether every change of a status records an event.
    AuditTransitions,
    /// Days for which tasks that succeeded are kept.
    KeepSuccess,
    /// Days for which cancelled and expired tasks are kept.
    KeepCancelled,
    /// Days for which exhausted and quarantined tasks are kept.
    KeepFailed,
    /// Days for which captured output is kept.
    KeepOutputs,
    /// Days for which the results of ended runs are kept.
    KeepResults,
    /// Days for which ended runners, and events without a task, are kept.
    KeepRunners,
    /// How many tasks that succeeded are kept.
    MaxSuccess,
    /// How many cancelled tasks are kept, and how many expired ones.
    MaxCancelled,
    /// How many exhausted and quarantined tasks are kept.
    MaxFailed,
}

/// Invalid settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadSetting {
    /// A value outside its range.
    OutOfRange {
        /// The setting.
        setting: Setting,
        /// The value given.
        given: String,
    },
    /// Values that contradict each other, in words.
    Contradiction(String),
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { setting, given } => {
                let (low, high) = setting.range();
                write!(f, "\"{given}\" is not a value for {setting}: write a whole number from {low} to {high}")
            }
            Self::Contradiction(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for BadSetting {}

impl Setting {
    /// Every setting, in listing order.
    pub const ALL: [Self; 24] = [
        Self::RunnerLimit,
        Self::RunTimeout,
        Self::MaxRetries,
        Self::MaxRetriesCap,
        Self::RetryDelay,
        Self::RetryDelayMax,
        Self::CrashLimit,
        Self::ClaimTimeoutLimit,
        Self::HoldTime,
        Self::LeaseTime,
        Self::LeaseRenewal,
        Self::LeaseMargin,
        Self::MaxDataBytes,
        Self::ScheduleGrace,
        Self::AuditTransitions,
        Self::KeepSuccess,
        Self::KeepCancelled,
        Self::KeepFailed,
        Self::KeepOutputs,
        Self::KeepResults,
        Self::KeepRunners,
        Self::MaxSuccess,
        Self::MaxCancelled,
        Self::MaxFailed,
    ];

    /// Returns the value of the column Name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RunnerLimit => "TaskQueueRunnerLimit",
            Self::RunTimeout => "TaskQueueRunTimeout",
            Self::MaxRetries => "TaskQueueMaxRetries",
            Self::MaxRetriesCap => "TaskQueueMaxRetriesCap",
            Self::RetryDelay => "TaskQueueRetryDelay",
            Self::RetryDelayMax => "TaskQueueRetryDelayMax",
            Self::CrashLimit => "TaskQueueCrashLimit",
            Self::ClaimTimeoutLimit => "TaskQueueClaimTimeoutLimit",
            Self::HoldTime => "TaskQueueHoldTime",
            Self::LeaseTime => "TaskQueueLeaseTime",
            Self::LeaseRenewal => "TaskQueueLeaseRenewal",
            Self::LeaseMargin => "TaskQueueLeaseMargin",
            Self::MaxDataBytes => "TaskQueueMaxDataBytes",
            Self::ScheduleGrace => "TaskQueueScheduleGrace",
            Self::AuditTransitions => "TaskQueueAuditTransitions",
            Self::KeepSuccess => "TaskQueueKeepSuccess",
            Self::KeepCancelled => "TaskQueueKeepCancelled",
            Self::KeepFailed => "TaskQueueKeepFailed",
            Self::KeepOutputs => "TaskQueueKeepOutputs",
            Self::KeepResults => "TaskQueueKeepResults",
            Self::KeepRunners => "TaskQueueKeepRunners",
            Self::MaxSuccess => "TaskQueueMaxSuccess",
            Self::MaxCancelled => "TaskQueueMaxCancelled",
            Self::MaxFailed => "TaskQueueMaxFailed",
        }
    }

    /// Returns its purpose, in one line.
    #[must_use]
    pub const fn purpose(self) -> &'static str {
        match self {
            Self::RunnerLimit => "slots of live runners, on all hosts together",
            Self::RunTimeout => "seconds without end or report after which a run times out",
            Self::MaxRetries => "failed attempts before a task is exhausted, unless the task sets a number",
            Self::MaxRetriesCap => "most failed attempts before a task is exhausted, even if the task sets more",
            Self::RetryDelay => "seconds before the first retry, doubled for each further one",
            Self::RetryDelayMax => "longest wait before a retry, in seconds",
            Self::CrashLimit => "crashes of a task without a success in between before it is quarantined",
            Self::ClaimTimeoutLimit => {
                "timeouts of a claimant with a task before the claimant counts as having rejected it"
            }
            Self::HoldTime => {
                "seconds for which a class is held on a host where its handler cannot start, and a task is held back from a late claimant"
            }
            Self::LeaseTime => "seconds without a renewal after which a runner has lost its runs",
            Self::LeaseRenewal => "seconds between two renewals of a runner's lease",
            Self::LeaseMargin => "seconds before the end of its lease at which a runner gives up its runs",
            Self::MaxDataBytes => "largest task data, in bytes",
            Self::KeepSuccess => "days for which tasks that succeeded are kept, 0 forever",
            Self::KeepCancelled => "days for which cancelled and expired tasks are kept, 0 forever",
            Self::KeepFailed => "days for which exhausted and quarantined tasks are kept, 0 forever",
            Self::KeepOutputs => "days for which outputs are kept, 0 as long as their task",
            Self::KeepResults => "days for which results are kept, 0 as long as their task",
            Self::KeepRunners => "days for which ended runners and events of no task are kept, 0 forever",
            Self::MaxSuccess => "tasks that succeeded that are kept, 0 any number",
            Self::MaxCancelled => "cancelled tasks that are kept, and as many expired ones, 0 any number",
            Self::MaxFailed => "exhausted and quarantined tasks that are kept, 0 any number",
            Self::ScheduleGrace => "seconds by which a schedule that does not catch up may be late",
            Self::AuditTransitions => "1 records an event for every change of a status, 0 does not",
        }
    }

    /// Returns its value in a new store.
    #[must_use]
    pub const fn default_value(self) -> i64 {
        match self {
            Self::RunnerLimit => 8,
            Self::RunTimeout => 86_400,
            Self::MaxRetries => 5,
            Self::MaxRetriesCap => 1_000_000,
            Self::RetryDelay => 10,
            Self::RetryDelayMax => 3_600,
            Self::CrashLimit | Self::ClaimTimeoutLimit => 3,
            Self::HoldTime => 300,
            Self::LeaseTime => 90,
            Self::LeaseRenewal => 20,
            Self::LeaseMargin => 15,
            Self::MaxDataBytes => 1_048_576,
            Self::ScheduleGrace => 900,
            Self::AuditTransitions => 0,
            Self::KeepSuccess | Self::KeepCancelled | Self::KeepResults | Self::KeepRunners => 30,
            Self::KeepFailed => 90,
            Self::KeepOutputs => 14,
            Self::MaxSuccess | Self::MaxCancelled | Self::MaxFailed => 0,
        }
    }

    /// Returns the lowest and the highest value.
    #[must_use]
    pub const fn range(self) -> (i64, i64) {
        match self {
            Self::RunnerLimit => (1, 10_000),
            Self::RunTimeout => (1, 31_536_000),
            Self::MaxRetries | Self::MaxRetriesCap => (1, 1_000_000),
            Self::RetryDelay => (0, 86_400),
            Self::RetryDelayMax => (0, 2_592_000),
            Self::CrashLimit | Self::ClaimTimeoutLimit => (1, 1_000_000),
            Self::HoldTime => (1, 86_400),
            Self::LeaseTime => (5, 86_400),
            Self::LeaseRenewal => (1, 3_600),
            Self::LeaseMargin => (1, 3_600),
            Self::MaxDataBytes => (2, 8_388_608),
            Self::ScheduleGrace => (0, 604_800),
            Self::AuditTransitions => (0, 1),
            Self::KeepSuccess
            | Self::KeepCancelled
            | Self::KeepFailed
            | Self::KeepOutputs
            | Self::KeepResults
            | Self::KeepRunners => (0, 36_500),
            Self::MaxSuccess | Self::MaxCancelled | Self::MaxFailed => (0, 1_000_000_000),
        }
    }

    /// Returns the setting with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.name() == name)
    }

    /// Parses a value.
    ///
    /// # Errors
    /// The text is not a whole number in the range; no setting can be empty.
    pub fn value(self, text: &str) -> Result<i64, BadSetting> {
        let (low, high) = self.range();
        match text.trim().parse::<i64>() {
            Ok(value) if (low..=high).contains(&value) => Ok(value),
            _ => Err(BadSetting::OutOfRange { setting: self, given: text.to_owned() }),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The current settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// [`Setting::RunnerLimit`]
    pub runner_limit: i32,
    /// [`Setting::RunTimeout`]
    pub run_timeout_secs: i64,
    /// [`Setting::MaxRetries`]
    pub max_retries: i32,
    /// [`Setting::MaxRetriesCap`]
    pub max_retries_cap: i32,
    /// [`Setting::RetryDelay`] and [`Setting::RetryDelayMax`]
    #[serde(skip)]
    pub backoff: crate::run::backoff::Backoff,
    /// [`Setting::CrashLimit`]
    pub crash_limit: i32,
    /// [`Setting::ClaimTimeoutLimit`]
    pub claim_timeout_limit: i32,
    /// [`Setting::HoldTime`]
    pub hold_secs: i64,
    /// [`Setting::LeaseTime`], [`Setting::LeaseRenewal`] and [`Setting::LeaseMargin`]
    #[serde(skip)]
    pub lease: LeaseTimes,
    /// [`Setting::MaxDataBytes`]
    pub max_data_bytes: usize,
    /// [`Setting::ScheduleGrace`]
    pub schedule_grace_secs: i64,
    /// Retention settings.
    pub retention: Retention,
    /// [`Setting::AuditTransitions`]
    #[serde(skip)]
    pub audits_transitions: bool,
}

impl Settings {
    /// Returns how many attempts of a task with this MaxRetries may fail.
    #[must_use]
    pub fn allowed_retries(&self, max_retries: Option<i32>) -> i32 {
        max_retries.unwrap_or(self.max_retries).min(self.max_retries_cap)
    }

    /// Reads the rows of the store; a missing row counts as its default.
    ///
    /// # Errors
    /// A value is outside its range, or values contradict each other: they were not written by `taskqueue setting`.
    pub fn from_rows(rows: &[(String, String)]) -> Result<Self, BadSetting> {
        let get = |setting: Setting| {
            let row = rows.iter().find(|(name, _)| name == setting.name());
            row.map_or(Ok(setting.default_value()), |(_, text)| setting.value(text))
        };
        let narrow = |value: i64| i32::try_from(value).unwrap_or(i32::MAX);
        let lease = LeaseTimes {
            lease_secs: get(Setting::LeaseTime)?,
            renewal_secs: get(Setting::LeaseRenewal)?,
            margin_secs: get(Setting::LeaseMargin)?,
        };
        lease.check().map_err(BadSetting::Contradiction)?;
        Ok(Self {
            runner_limit: narrow(get(Setting::RunnerLimit)?),
            run_timeout_secs: get(Setting::RunTimeout)?,
            max_retries: narrow(get(Setting::MaxRetries)?),
            max_retries_cap: narrow(get(Setting::MaxRetriesCap)?),
            backoff: {
                // A first wait above the longest wait is cut to the longest wait.
                let max_secs = get(Setting::RetryDelayMax)?;
                crate::run::backoff::Backoff::Exponential {
                    base_secs: get(Setting::RetryDelay)?.min(max_secs),
                    max_secs,
                }
            },
            crash_limit: narrow(get(Setting::CrashLimit)?),
            claim_timeout_limit: narrow(get(Setting::ClaimTimeoutLimit)?),
            hold_secs: get(Setting::HoldTime)?,
            lease,
            max_data_bytes: usize::try_from(get(Setting::MaxDataBytes)?).unwrap_or(usize::MAX),
            schedule_grace_secs: get(Setting::ScheduleGrace)?,
            retention: Retention {
                success: Keep { days: get(Setting::KeepSuccess)?, most: get(Setting::MaxSuccess)? },
                cancelled: Keep { days: get(Setting::KeepCancelled)?, most: get(Setting::MaxCancelled)? },
                failed: Keep { days: get(Setting::KeepFailed)?, most: get(Setting::MaxFailed)? },
                outputs: Keep { days: get(Setting::KeepOutputs)?, most: 0 },
                results: Keep { days: get(Setting::KeepResults)?, most: 0 },
                runners: Keep { days: get(Setting::KeepRunners)?, most: 0 },
            },
            audits_transitions: get(Setting::AuditTransitions)? != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_wait_is_never_longer_than_the_longest() {
        let row = |setting: Setting, value: &str| (setting.name().to_owned(), value.to_owned());
        let settings = Settings::from_rows(&[row(Setting::RetryDelay, "7200"), row(Setting::RetryDelayMax, "60")]);
        let backoff = settings.unwrap().backoff;
        // Outcomes store the text of a backoff, so it must parse.
        assert_eq!(backoff.to_string().parse(), Ok(backoff));
    }

    #[test]
    fn the_scheme_has_eight_runners_a_day_of_time_and_five_retries() {
        let settings = Settings::from_rows(&[]).unwrap();
        assert_eq!((settings.runner_limit, settings.run_timeout_secs, settings.max_retries), (8, 86_400, 5));
    }

    #[test]
    fn every_default_lies_in_its_range() {
        for setting in Setting::ALL {
            let (low, high) = setting.range();
            assert!((low..=high).contains(&setting.default_value()), "{setting}");
            assert_eq!(Setting::parse(setting.name()), Some(setting));
        }
    }

    #[test]
    fn the_system_wide_timeout_cannot_be_empty() {
        for bad in ["", " ", "0", "-1", "1.5", "1e3", "x", "99999999999999999999"] {
            let error = Setting::RunTimeout.value(bad).unwrap_err();
            assert!(error.to_string().contains("1 to 31536000"), "{error}");
        }
    }
}
