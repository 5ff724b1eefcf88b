//! The settings on which all hosts must agree: rows of TaskQueueSettings, each with its range.

use std::fmt;

use serde::Serialize;

use crate::limits::lease::LeaseTimes;
use crate::run::retention::{Keep, Retention};

/// Makes the type of the settings from a list: each with its value in a new store, its range and its purpose.
macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident: $default:literal in $low:literal..=$high:literal, $purpose:literal;)+) => {
        /// A setting of the whole queue.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Setting {
            $($(#[$doc])* $name,)+
        }

        impl Setting {
            /// Every setting, in listing order.
            pub const ALL: [Self; [$($default),+].len()] = [$(Self::$name),+];

            /// Returns the value of the column Name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => concat!("TaskQueue", stringify!($name)),)+
                }
            }

            /// Returns its purpose, in one line.
            #[must_use]
            pub const fn purpose(self) -> &'static str {
                match self {
                    $(Self::$name => $purpose,)+
                }
            }

            /// Returns its value in a new store.
            #[must_use]
            pub const fn default_value(self) -> i64 {
                match self {
                    $(Self::$name => $default,)+
                }
            }

            /// Returns the lowest and the highest value.
            #[must_use]
            pub const fn range(self) -> (i64, i64) {
                match self {
                    $(Self::$name => ($low, $high),)+
                }
            }
        }
    };
}

settings! {
    /// The highest number of slots of live runners, on all hosts together.
    RunnerLimit: 8 in 1..=10_000, "slots of live runners, on all hosts together";
    /// Seconds without an end or a report after which a run times out, unless its task or class states a timeout.
    RunTimeout: 86_400 in 1..=31_536_000, "seconds without end or report after which a run times out";
    /// Failed attempts after which a task without MaxRetries is exhausted.
    MaxRetries: 5 in 1..=1_000_000, "failed attempts before a task is exhausted, unless the task sets a number";
    /// The highest allowed number of failed attempts of any task.
    MaxRetriesCap: 1_000_000 in 1..=1_000_000,
        "most failed attempts before a task is exhausted, even if the task sets more";
    /// Seconds before the first retry of a failed task; doubled for each further retry.
    RetryDelay: 10 in 0..=86_400, "seconds before the first retry, doubled for each further one";
    /// The longest wait before a retry, in seconds.
    RetryDelayMax: 3_600 in 0..=2_592_000, "longest wait before a retry, in seconds";
    /// Crashes of a task, without a success between them, after which it is quarantined.
    CrashLimit: 3 in 1..=1_000_000, "crashes of a task without a success in between before it is quarantined";
    /// Expired claims of a task by one claimant after which the claimant counts as having rejected the task.
    ClaimTimeoutLimit: 3 in 1..=1_000_000,
        "timeouts of a claimant with the same task after which it counts as having rejected the task";
    /// Seconds for which a class is held on a host after its handler could not be started. Also the seconds for which a task is
    /// held back from a claimant whose claim expired.
    HoldTime: 300 in 1..=86_400,
        "seconds for which a class is held on a host where its handler cannot start; also for which a task is held \
         back from a claimant that timed out with it";
    /// Seconds after which a lease that is not renewed expires.
    LeaseTime: 90 in 5..=86_400, "seconds without a renewal after which a runner has lost its runs";
    /// Seconds between two renewals.
    LeaseRenewal: 20 in 1..=3_600, "seconds between two renewals of a runner's lease";
    /// Seconds before the end of its lease at which a runner stops its work.
    LeaseMargin: 15 in 1..=3_600, "seconds before the end of its lease at which a runner gives up its runs";
    /// The largest task data, in bytes.
    MaxDataBytes: 1_048_576 in 2..=8_388_608, "largest task data, in bytes";
    /// Seconds by which a planned time may be late if its schedule does not catch up.
    ScheduleGrace: 900 in 0..=604_800, "seconds by which a schedule that does not catch up may be late";
    /// Whether every change of a status records an event.
    AuditTransitions: 0 in 0..=1, "1 records an event for every change of a status, 0 does not";
    /// Days for which tasks that succeeded are kept.
    KeepSuccess: 30 in 0..=36_500, "days for which tasks that succeeded are kept, 0 forever";
    /// Days for which cancelled and expired tasks are kept.
    KeepCancelled: 30 in 0..=36_500, "days for which cancelled and expired tasks are kept, 0 forever";
    /// Days for which exhausted and quarantined tasks are kept.
    KeepFailed: 90 in 0..=36_500, "days for which exhausted and quarantined tasks are kept, 0 forever";
    /// Days for which captured output is kept.
    KeepOutputs: 14 in 0..=36_500, "days for which outputs are kept, 0 as long as their task";
    /// Days for which the results of ended runs are kept.
    KeepResults: 30 in 0..=36_500, "days for which results are kept, 0 as long as their task";
    /// Days for which ended runners, and events without a task, are kept.
    KeepRunners: 30 in 0..=36_500, "days for which ended runners and events of no task are kept, 0 forever";
    /// How many tasks that succeeded are kept.
    MaxSuccess: 0 in 0..=1_000_000_000, "number of successful tasks that are kept, 0 for no limit";
    /// How many cancelled tasks are kept, and how many expired ones.
    MaxCancelled: 0 in 0..=1_000_000_000, "number of cancelled tasks that are kept, and of expired ones, 0 for no limit";
    /// How many exhausted and quarantined tasks are kept.
    MaxFailed: 0 in 0..=1_000_000_000, "number of exhausted and quarantined tasks that are kept, 0 for no limit";
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
    /// Times of a lease that contradict each other.
    Contradiction {
        /// The times.
        lease: LeaseTimes,
        /// The contradiction, in words.
        why: String,
    },
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { setting, given } => {
                let (low, high) = setting.range();
                write!(f, "\"{given}\" is not a value for {setting}: write a whole number from {low} to {high}")
            }
            Self::Contradiction { why, .. } => f.write_str(why),
        }
    }
}

impl std::error::Error for BadSetting {}

impl BadSetting {
    /// Returns what is wrong with the stored rows, and what is used in their place.
    #[must_use]
    pub fn as_stored(&self) -> String {
        match self {
            Self::OutOfRange { setting, given } => {
                let ((low, high), used) = (setting.range(), setting.fallback());
                format!(
                    "{setting} is \"{given}\", not a whole number from {low} to {high}; {used} is used in its place"
                )
            }
            Self::Contradiction { lease, why } => {
                let LeaseTimes { renewal_secs, margin_secs, .. } = lease.fitted();
                format!("{why}; renewals every {renewal_secs} s and a margin of {margin_secs} s are used")
            }
        }
    }

    /// Returns the settings that are affected.
    #[must_use]
    pub fn settings(&self) -> Vec<Setting> {
        match self {
            Self::OutOfRange { setting, .. } => vec![*setting],
            Self::Contradiction { .. } => vec![Setting::LeaseTime, Setting::LeaseRenewal, Setting::LeaseMargin],
        }
    }
}

impl Setting {
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

    /// Returns what is used in the place of a stored value that is invalid: the default; for how long something is kept, forever.
    const fn fallback(self) -> i64 {
        match self {
            Self::KeepSuccess
            | Self::KeepCancelled
            | Self::KeepFailed
            | Self::KeepOutputs
            | Self::KeepResults
            | Self::KeepRunners => 0,
            _ => self.default_value(),
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

    /// Reads the rows of the store; a missing row counts as its default. Returns also what is wrong with the rows: an invalid value
    /// stops no work, something safe is used in its place.
    #[must_use]
    pub fn from_rows(rows: &[(String, String)]) -> (Self, Vec<BadSetting>) {
        let mut problems = Vec::new();
        let mut get = |setting: Setting| {
            let row = rows.iter().find(|(name, _)| name == setting.name());
            let value = row.map_or(Ok(setting.default_value()), |(_, text)| setting.value(text));
            value.unwrap_or_else(|problem| {
                problems.push(problem);
                setting.fallback()
            })
        };
        let narrow = |value: i64| i32::try_from(value).unwrap_or(i32::MAX);
        let lease = LeaseTimes {
            lease_secs: get(Setting::LeaseTime),
            renewal_secs: get(Setting::LeaseRenewal),
            margin_secs: get(Setting::LeaseMargin),
        };
        let mut settings = Self {
            runner_limit: narrow(get(Setting::RunnerLimit)),
            run_timeout_secs: get(Setting::RunTimeout),
            max_retries: narrow(get(Setting::MaxRetries)),
            max_retries_cap: narrow(get(Setting::MaxRetriesCap)),
            backoff: {
                // A first wait above the longest wait is cut to the longest wait.
                let max_secs = get(Setting::RetryDelayMax);
                crate::run::backoff::Backoff::Exponential {
                    base_secs: get(Setting::RetryDelay).min(max_secs),
                    max_secs,
                }
            },
            crash_limit: narrow(get(Setting::CrashLimit)),
            claim_timeout_limit: narrow(get(Setting::ClaimTimeoutLimit)),
            hold_secs: get(Setting::HoldTime),
            lease,
            max_data_bytes: usize::try_from(get(Setting::MaxDataBytes)).unwrap_or(usize::MAX),
            schedule_grace_secs: get(Setting::ScheduleGrace),
            retention: Retention {
                success: Keep { days: get(Setting::KeepSuccess), most: get(Setting::MaxSuccess) },
                cancelled: Keep { days: get(Setting::KeepCancelled), most: get(Setting::MaxCancelled) },
                failed: Keep { days: get(Setting::KeepFailed), most: get(Setting::MaxFailed) },
                outputs: Keep { days: get(Setting::KeepOutputs), most: 0 },
                results: Keep { days: get(Setting::KeepResults), most: 0 },
                runners: Keep { days: get(Setting::KeepRunners), most: 0 },
            },
            audits_transitions: get(Setting::AuditTransitions) != 0,
        };
        if let Err(why) = lease.check() {
            problems.push(BadSetting::Contradiction { lease, why });
            settings.lease = lease.fitted();
        }
        (settings, problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_wait_is_never_longer_than_the_longest() {
        let row = |setting: Setting, value: &str| (setting.name().to_owned(), value.to_owned());
        let rows = [row(Setting::RetryDelay, "7200"), row(Setting::RetryDelayMax, "60")];
        let backoff = Settings::from_rows(&rows).0.backoff;
        // Outcomes store the text of a backoff, so it must parse.
        assert_eq!(backoff.to_string().parse(), Ok(backoff));
    }

    #[test]
    fn the_scheme_has_eight_runners_a_day_of_time_and_five_retries() {
        let (settings, problems) = Settings::from_rows(&[]);
        assert_eq!(problems, []);
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
    fn invalid_rows_are_named_and_something_safe_is_used_in_their_place() {
        let rows = [("RunnerLimit", "many"), ("KeepSuccess", "-1"), ("MaxSuccess", ""), ("LeaseTime", "5")];
        let (settings, problems) =
            Settings::from_rows(&rows.map(|(name, value)| (format!("TaskQueue{name}"), value.to_owned())));
        assert_eq!(settings.runner_limit, 8);
        assert_eq!(settings.retention.success, Keep { days: 0, most: 0 });
        assert_eq!(settings.lease, LeaseTimes { lease_secs: 5, renewal_secs: 1, margin_secs: 1 });
        let words: Vec<String> = problems.iter().map(BadSetting::as_stored).collect();
        assert_eq!(
            words[0],
            "TaskQueueRunnerLimit is \"many\", not a whole number from 1 to 10000; 8 is used in its place"
        );
        assert_eq!(
            words[1],
            "TaskQueueKeepSuccess is \"-1\", not a whole number from 0 to 36500; 0 is used in its place"
        );
        assert!(words[3].starts_with("a lease of 5 seconds is too short"), "{words:?}");
        assert!(words[3].ends_with("it needs 87; renewals every 1 s and a margin of 1 s are used"), "{words:?}");
        assert_eq!(words.len(), 4);
    }

    #[test]
    fn the_system_wide_timeout_cannot_be_empty() {
        for bad in ["", " ", "0", "-1", "1.5", "1e3", "x", "99999999999999999999"] {
            let error = Setting::RunTimeout.value(bad).unwrap_err();
            assert!(error.to_string().contains("1 to 31536000"), "{error}");
        }
    }
}
