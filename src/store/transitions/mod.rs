//! Every change of a status, as compare-and-set: a write says from which status (and with which token) it starts and
//! must touch one row. Task and run change in one transaction (rule R4). Which changes exist is the domain's matter.

mod claim;
mod create;
mod end;
mod recur;
mod retry;
mod schedule;

pub use self::claim::{Claim, SpecificClaim};
pub use self::end::{Crash, EndCondition, Ended, RunEnd};
pub use self::recur::{Advanced, Author};
pub use self::retry::RetryAnswer;
pub use self::schedule::{ScheduleAnswer, ScheduleChange};
