//! Prints tasks that will not be retried on standard error.

use std::sync::Arc;

use crate::output::Out;
use taskqueue_domain::monitoring::notice::{Digest, Notice, NoticeKind};
use taskqueue_domain::text::error_words::error_words;
use taskqueue_engine::FailurePrinter;

/// How many characters of an error message a line has.
const MESSAGE_CHARS: usize = 300;

/// Prints one warning per task, and how many more there are.
pub(crate) fn failure_printer(out: &Out) -> FailurePrinter {
    let warn = out.warning_printer();
    Arc::new(move |digest: &Digest| lines(digest).iter().for_each(|line| warn(line)))
}

fn lines(digest: &Digest) -> Vec<String> {
    let mut lines: Vec<String> = digest.notices.iter().map(line).collect();
    let hidden = digest.count.saturating_sub(digest.notices.len());
    if hidden > 0 {
        lines.push(format!("and {hidden} more; `taskqueue failures` shows them"));
    }
    lines
}

fn line(notice: &Notice) -> String {
    let task = notice.task_id.map(|id| id.to_string()).unwrap_or_default();
    let is_quarantined = notice.kind == NoticeKind::Quarantined.as_str();
    let what = if is_quarantined { "is quarantined and will not be retried" } else { "failed and will not be retried" };
    let message: String = match notice.error_message.char_indices().nth(MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &notice.error_message[..end]),
        None => notice.error_message.clone(),
    };
    let failed = error_words(what, &error_words(&notice.error_code, &message));
    format!("task {task} of class {} {failed}; `taskqueue status {task}` has the details", notice.class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use taskqueue_domain::task::ids::TaskId;

    fn notice(task: i64) -> Notice {
        Notice {
            occurred_on: chrono::DateTime::UNIX_EPOCH,
            kind: "exhausted".to_owned(),
            task_id: Some(TaskId(task)),
            run_id: None,
            class: "mail".to_owned(),
            host: "web1".to_owned(),
            error_code: "exit:1".to_owned(),
            error_message: "ü".repeat(1_000),
        }
    }

    #[test]
    fn a_thousand_failures_are_fifty_short_lines_and_a_count() {
        let notices: Vec<Notice> = (1..=1_000).map(notice).collect();
        let lines = lines(&Digest::of(&notices).unwrap());
        assert_eq!(lines.len(), 51);
        assert!(
            lines[0].starts_with("task 1 of class mail failed and will not be retried: exit:1: üüü"),
            "{}",
            lines[0]
        );
        assert!(lines.iter().all(|line| line.chars().count() < 450));
        assert_eq!(lines[50], "and 950 more; `taskqueue failures` shows them");
    }
}
