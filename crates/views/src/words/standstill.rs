//! Messages about due or waiting work that is not processed, and remedies.

use chrono::{DateTime, TimeDelta, Utc};

use crate::human::{count, distance, plural};
use crate::words::hung::{cancel_hung, silent_words};
use crate::words::pause_words::{pause_words, resume_command};
use taskqueue_engine::inspect::diagnosis::standstill::{Standstill, StandstillCause};

/// Formats a standstill: `3 due tasks and 2 waiting runs are not processed: everything paused 5m00s ago by ann`.
pub fn standstill_words(standstill: &Standstill, now: DateTime<Utc>) -> String {
    let why = match &standstill.cause {
        StandstillCause::Paused { pause } => pause_words(pause, now),
        StandstillCause::NoRunner { oldest_secs, usual_secs } => {
            let usual = usual_secs.map_or_else(String::new, |secs| {
                format!(", usually one runs every {}", distance(TimeDelta::seconds(secs)))
            });
            format!("no runner has run for {}{usual}", distance(TimeDelta::seconds(*oldest_secs)))
        }
        StandstillCause::SlotsTaken { slots, since, limit, hung } => {
            let verb = if *slots == 1 { "has" } else { "have" };
            let (slots, taken) = (plural(*slots, "runner slot"), distance(now - *since));
            let limit = limit.map_or_else(String::new, |limit| format!(", and TaskQueueRunnerLimit is {limit}"));
            let hung = if hung.is_empty() { String::new() } else { format!("; {}", silent_words(hung)) };
            format!("{slots} {verb} been processing the same runs for {taken}{limit}{hung}")
        }
    };
    format!("{} not processed: {why}", affected(standstill))
}

fn affected(standstill: &Standstill) -> String {
    let is_one = standstill.tasks() == 1 && !standstill.due.or_more && !standstill.waiting.or_more;
    let due = if standstill.due.count == 1 { "due task" } else { "due tasks" };
    let waiting = if standstill.waiting.count == 1 { "waiting run" } else { "waiting runs" };
    let parts = [(standstill.due, due), (standstill.waiting, waiting)].into_iter();
    let parts = parts.filter(|(number, _)| number.count > 0);
    let words: Vec<String> = parts.map(|(number, noun)| format!("{} {noun}", count(number))).collect();
    format!("{} {}", words.join(" and "), if is_one { "is" } else { "are" })
}

/// Returns a command that helps, or shows more.
pub fn standstill_remedy(standstill: &Standstill) -> String {
    match &standstill.cause {
        StandstillCause::Paused { pause } => resume_command(&pause.scope),
        StandstillCause::NoRunner { .. } => "taskqueue tick".to_owned(),
        StandstillCause::SlotsTaken { hung, .. } => cancel_hung(hung),
    }
}
