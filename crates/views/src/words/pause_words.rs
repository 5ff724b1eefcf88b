//! A pause in words, and the command that ends it.

use chrono::{DateTime, Utc};

use crate::human::relative;
use crate::shell_word::shell_word;
use taskqueue_domain::limits::pause::{Pause, PauseMode, PauseScope};

/// Returns the command that ends this pause.
pub fn resume_command(scope: &PauseScope) -> String {
    match scope {
        PauseScope::All => "taskqueue resume --all".to_owned(),
        PauseScope::Class(name) => format!("taskqueue resume --class {}", shell_word(name)),
        PauseScope::Runner(name) => format!("taskqueue resume --runner {}", shell_word(name)),
    }
}

/// Returns who paused, and the reason.
pub fn by(pause: &Pause) -> String {
    if pause.host.is_empty() { pause.author.clone() } else { format!("{} on {}", pause.author, pause.host) }
}

/// Returns the participle of its mode; that of `pause` for a mode that this version does not know.
pub fn participle(pause: &Pause) -> &'static str {
    pause.mode.known().unwrap_or(&PauseMode::Pause).participle()
}

/// Formats a pause: `class mail.send paused 5m00s ago by ann on web1, ends in 1h55m: the mail server is down`.
pub fn pause_words(pause: &Pause, now: DateTime<Utc>) -> String {
    let (what, when) = (participle(pause), relative(pause.created_on, now));
    let mut words = format!("{} {what} {when} by {}", pause.scope, by(pause));
    if let Some(until) = pause.until {
        words.push_str(&format!(", ends {}", relative(until, now)));
    }
    if !pause.reason.is_empty() {
        words.push_str(&format!(": {}", pause.reason));
    }
    words
}
