//! What a login of the web server may do.

use std::fmt;
use std::str::FromStr;

/// What a login may do; each scope includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// See tasks with their data, logs, runners, schedules and events.
    Read,
    /// Queue tasks of classes, but none of the class `exec`.
    Queue,
    /// Claim runs of any class, and end them.
    Work,
    /// Retry, cancel, pause, resume and run schedules.
    Operate,
    /// Queue also tasks of the class `exec`, whose data names a program to run.
    Admin,
}

impl Scope {
    /// Every scope, the least first.
    pub const ALL: [Self; 5] = [Self::Read, Self::Queue, Self::Work, Self::Operate, Self::Admin];

    /// Returns the word of the scope.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Queue => "queue",
            Self::Work => "work",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.map(Self::as_str).join(", ");
        Self::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or(format!("the scopes are {known}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_includes_those_before_it_and_is_read_from_its_word() {
        assert!(Scope::ALL.is_sorted());
        for scope in Scope::ALL {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
        assert!("root".parse::<Scope>().is_err());
    }
}
