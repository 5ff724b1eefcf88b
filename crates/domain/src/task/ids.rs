//! Ids as separate types, so that a task's id cannot be passed as a run's id.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text.parse::<i64>() {
                    Ok(id) if id > 0 => Ok(Self(id)),
                    _ => Err(format!("\"{text}\" is not an id: a whole number from 1 on")),
                }
            }
        }
    };
}

id_type!(
    /// The id of a row of TaskQueue. Never reused.
    TaskId
);
id_type!(
    /// The id of a row of TaskQueueRuns. Never reused, and higher for every later attempt, so it serves as a fencing number.
    RunId
);
id_type!(
    /// The id of a row of TaskQueueRunners.
    RunnerId
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_whole_number_from_one_on() {
        assert_eq!("42".parse(), Ok(TaskId(42)));
        for bad in ["", "0", "-1", "1.5", "x", "99999999999999999999"] {
            assert!(bad.parse::<TaskId>().is_err(), "{bad}");
        }
    }
}
