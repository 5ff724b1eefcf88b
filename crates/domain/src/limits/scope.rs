//! What a login of the web server may do.

use crate::text::words::words;

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

// The least first.
words! {
    /// Returns the word of the scope.
    Scope { Read = "read", Queue = "queue", Work = "work", Operate = "operate", Admin = "admin" }
    else |text| format!("the scopes are {}", Self::ALL.map(Self::as_str).join(", "))
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
