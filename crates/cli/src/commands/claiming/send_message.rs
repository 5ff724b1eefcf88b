//! `taskqueue report message --task` and `--class`: sends a message to the handlers of tasks.

use crate::error::{DONE, NOT_FOUND};
use crate::output::Out;
use crate::output::clean::clean_line;
use crate::session::Session;
use crate::views::unknown_class::{WarnOf, warn_of_unknown_class};
use taskqueue_domain::run::message::Message;
use taskqueue_domain::task::choosing::selection::ClassFilter;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::change::messages::{SentMessage, send_to_class, send_to_task};
use taskqueue_views::human;

/// The receiver of a message.
pub(crate) enum To {
    /// The current attempt of this task, and with `is_kept` later ones.
    Task { id: TaskId, is_kept: bool },
    /// All runs in progress of these classes.
    Class(ClassFilter),
}

pub(crate) fn run(session: Session, to: &To, message: &Message, out: &mut Out) -> anyhow::Result<u8> {
    let mut ctx = session.open()?;
    match to {
        To::Task { id, is_kept } => {
            let sent = send_to_task(&mut ctx, *id, message, *is_kept)?;
            show(&sent, true, out)?;
        }
        To::Class(class) => {
            let sent = send_to_class(&mut ctx, class, message)?;
            if sent.is_empty() {
                warn_of_unknown_class(&mut ctx, class.as_str(), WarnOf::LikelyMistake, out)?;
                out.say(&format!("no run of class {} is in progress", clean_line(class.as_str())));
                return Ok(NOT_FOUND);
            }
            for sent in &sent {
                show(sent, false, out)?;
            }
            out.say(&format!("sent to {}", human::plural(sent.len(), "run")));
        }
    }
    Ok(DONE)
}

fn show(sent: &SentMessage, is_alone: bool, out: &mut Out) -> anyhow::Result<()> {
    if out.is_json() {
        return out.json(sent);
    }
    let later = if sent.is_kept { ", and to later attempts" } else { "" };
    let claimant = sent.claimant.as_ref().map(|name| format!(" of claimant {}", clean_line(name)));
    let words = match sent.run_id {
        Some(run) => format!("task {}: sent to run {run}{}{later}", sent.task_id, claimant.unwrap_or_default()),
        None => format!("task {}: kept for the next attempt", sent.task_id),
    };
    if is_alone {
        out.say(&words);
    } else {
        out.say_verbose(&words);
    }
    Ok(())
}
