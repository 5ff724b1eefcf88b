//! Pauses: what may not be claimed for a while, and what happens meanwhile to runs in progress.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};
use wildmatch::WildMatch;

use crate::run::status::{Stored, stored_status};
use crate::text::words::words;

/// The longest name of a runner, in characters.
pub const MAX_RUNNER_NAME_CHARS: usize = 190;

/// What is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseScope {
    /// Every class, on every host.
    All,
    /// The classes that match this name, in which `*` matches any text.
    Class(String),
    /// The runners with this name.
    Runner(String),
}

impl PauseScope {
    /// Returns the spelling in the column Scope.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Class(_) => "class",
            Self::Runner(_) => "runner",
        }
    }

    /// Returns the column Name; empty for all.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::All => "",
            Self::Class(name) | Self::Runner(name) => name,
        }
    }

    /// Reads the two columns. Returns `None` for a kind that this version does not know (rule R9: it covers nothing here).
    #[must_use]
    pub fn parse(kind: &str, name: String) -> Option<Self> {
        match kind {
            "all" => Some(Self::All),
            "class" => Some(Self::Class(name)),
            "runner" => Some(Self::Runner(name)),
            _ => None,
        }
    }

    /// Returns true if a runner of this name may not claim runs of this class.
    #[must_use]
    pub fn covers(&self, class: &str, runner: &str) -> bool {
        match self {
            Self::All => true,
            Self::Class(pattern) => WildMatch::new(pattern).matches(class),
            Self::Runner(_) => self.covers_runner(runner),
        }
    }

    /// Returns the prefix that is enough for a class to be covered; `None` if the pattern requires more.
    #[must_use]
    pub fn class_prefix(&self) -> Option<&str> {
        let Self::Class(pattern) = self else { return None };
        pattern.strip_suffix('*').filter(|prefix| !prefix.contains(['*', '?']))
    }

    /// Returns true if every run of a runner of this name is covered, whatever its class.
    #[must_use]
    pub fn covers_runner(&self, runner: &str) -> bool {
        match self {
            Self::All => true,
            Self::Class(_) => false,
            Self::Runner(name) => name == runner,
        }
    }
}

impl fmt::Display for PauseScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("everything"),
            Self::Class(name) => write!(f, "class {name}"),
            Self::Runner(name) => write!(f, "runner {name}"),
        }
    }
}

/// What happens to runners and runs in progress. No mode allows new claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseMode {
    /// Runs in progress continue.
    Pause,
    /// Runners exit when their run has ended.
    Drain,
    /// Runners stop as after a signal: they may finish the run in progress within a grace period, then release it.
    Stop,
}

words! {
    /// Returns the spelling in the column Mode.
    PauseMode { Pause = "pause", Drain = "drain", Stop = "stop" }
}

impl PauseMode {
    /// Returns the participle: `paused`, `drained`, `stopped`.
    #[must_use]
    pub const fn participle(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Drain => "drained",
            Self::Stop => "stopped",
        }
    }
}

stored_status!(PauseMode);

/// A row of TaskQueuePauses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pause {
    /// What is paused.
    #[serde(flatten, serialize_with = "scope_fields")]
    pub scope: PauseScope,
    /// What happens to runs in progress. A mode that this version does not know blocks claims and does nothing else.
    pub mode: Stored<PauseMode>,
    /// Why it was paused.
    pub reason: String,
    /// Who paused it.
    pub author: String,
    /// The host from which it was paused.
    pub host: String,
    /// When it was paused.
    pub created_on: DateTime<Utc>,
    /// When it expires.
    pub until: Option<DateTime<Utc>>,
}

impl Pause {
    /// Returns true if it has this mode.
    #[must_use]
    pub fn is(&self, mode: PauseMode) -> bool {
        self.mode == Stored::Known(mode)
    }
}

fn scope_fields<S: Serializer>(scope: &PauseScope, serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap as _;
    let mut map = serializer.serialize_map(Some(2))?;
    map.serialize_entry("scope", scope.kind())?;
    map.serialize_entry("name", scope.name())?;
    map.end()
}

/// Checks the name that an operator gives a runner.
///
/// # Errors
/// The name is empty, too long, or has invisible characters.
pub fn check_runner_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.chars().count() > MAX_RUNNER_NAME_CHARS {
        return Err(format!("the name of a runner must have 1 to {MAX_RUNNER_NAME_CHARS} characters"));
    }
    if name.chars().any(char::is_control) {
        return Err("the name of a runner cannot contain control characters".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_covers_what_it_names_and_nothing_else() {
        let class = PauseScope::Class("mail.*".to_owned());
        assert!(class.covers("mail.send", "one") && !class.covers("mai", "one") && !class.covers_runner("one"));
        let runner = PauseScope::Runner("one".to_owned());
        assert!(runner.covers("mail.send", "one") && !runner.covers("mail.send", "two") && runner.covers_runner("one"));
        assert!(PauseScope::All.covers("x", "y") && PauseScope::All.covers_runner("y"));
    }

    #[test]
    fn scopes_and_modes_are_read_as_they_are_written() {
        for scope in [PauseScope::All, PauseScope::Class("a".into()), PauseScope::Runner("b".into())] {
            assert_eq!(PauseScope::parse(scope.kind(), scope.name().to_owned()), Some(scope));
        }
        assert_eq!(PauseScope::parse("host", "x".to_owned()), None);
        for mode in PauseMode::ALL {
            assert_eq!(PauseMode::parse(mode.as_str()), Some(mode));
        }
    }

    #[test]
    fn names_of_runners_can_be_seen() {
        for bad in ["", "a\nb", "\u{1b}[1m", &"x".repeat(191)] {
            assert!(check_runner_name(bad).is_err(), "{bad:?}");
        }
        for good in ["mail-1", "worker@host:7", "Läufer 2"] {
            assert_eq!(check_runner_name(good), Ok(()));
        }
    }
}
