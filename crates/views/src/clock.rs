//! The difference between this host's clock and the database's.

use chrono::{DateTime, TimeDelta, Utc};

use crate::human::distance;
use taskqueue_engine::{Context, EngineResult};

/// The largest difference between two clocks that is not reported.
const CLOCK_TOLERANCE: TimeDelta = TimeDelta::seconds(5);

/// Returns the time of this host's clock, to compare it with the database's.
#[expect(clippy::disallowed_methods, reason = "this host's clock is what is asked about; nothing is decided by it")]
pub fn host_clock() -> DateTime<Utc> {
    Utc::now()
}

/// Returns how far this host's clock is ahead of the database's, if that could mislead a reader of times.
pub fn clock_ahead(ctx: &mut Context) -> EngineResult<Option<TimeDelta>> {
    let (before, database, after) = (host_clock(), ctx.now()?, host_clock());
    // Either clock may have been read last, so the time between the two reads does not count as a difference.
    let ahead = if database < before {
        before - database
    } else if database > after {
        after - database
    } else {
        TimeDelta::zero()
    };
    Ok((ahead.abs() > CLOCK_TOLERANCE).then_some(ahead))
}

/// Returns the note about the difference.
pub fn clock_words(ahead: TimeDelta) -> String {
    let (far, direction) = (distance(ahead), if ahead > TimeDelta::zero() { "ahead of" } else { "behind" });
    format!(
        "this host's clock is {far} {direction} the database's; taskqueue uses the database's, but cron, handlers and logs of \
         this host use this one"
    )
}
