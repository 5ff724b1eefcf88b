//! The messages of machine-oriented verbs on standard error: as text, as JSON, and in the systemd journal with the priority and
//! the fields to search by.

use std::io;
use std::os::fd::AsFd as _;

use chrono::{DateTime, SecondsFormat, Utc};
use clap::ValueEnum;
use serde_json::{Map, Value};

use super::lines::write_line;
use taskqueue_domain::task::ids::RunnerId;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_domain::text::outside_text::{clean_json, clean_line};
use taskqueue_engine::Journal;
use taskqueue_engine::config::{BadVariable, JournalEnvironment};

/// How a line of standard error is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines of text
    Text,
    /// A JSON object per line
    Json,
}

/// The importance of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Priority {
    Error,
    Warning,
    Info,
}

impl Priority {
    /// Returns the number of syslog.
    const fn number(self) -> &'static str {
        match self {
            Self::Error => "3",
            Self::Warning => "4",
            Self::Info => "6",
        }
    }

    /// Returns the line with its importance as a prefix, for text output.
    pub(super) fn before(self, text: &str) -> String {
        match self {
            Self::Info => text.to_owned(),
            Self::Error | Self::Warning => format!("{}: {text}", self.word()),
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// Where the lines go, and the fields that they have.
pub(super) struct Log {
    format: LogFormat,
    journal: Option<Journal>,
    runner_id: Option<RunnerId>,
    /// Task, run, class and attempt.
    run: Option<[String; 4]>,
}

const RUN_FIELDS: [(&str, &str); 4] = [
    ("task_id", "TASKQUEUE_TASK_ID"),
    ("run_id", "TASKQUEUE_RUN_ID"),
    ("class", "TASKQUEUE_CLASS"),
    ("attempt", "TASKQUEUE_ATTEMPT"),
];

impl Log {
    pub(super) fn new(format: LogFormat) -> Result<Self, BadVariable> {
        let environment = JournalEnvironment::own()?;
        let journal = environment.and_then(|known| Journal::behind(io::stderr().as_fd(), &known.stream, &known.socket));
        Ok(Self { format, journal, runner_id: None, run: None })
    }

    pub(super) const fn format(&self) -> LogFormat {
        self.format
    }

    pub(super) fn of_runner(&mut self, runner_id: RunnerId) {
        self.runner_id = Some(runner_id);
    }

    pub(super) fn about(&mut self, run: Option<&ClaimedRun>) {
        self.run = run.map(|run| {
            [run.task_id.to_string(), run.run_id.to_string(), clean_line(&run.class), run.attempt.to_string()]
        });
    }

    /// Writes a line.
    pub(super) fn tell(&self, priority: Priority, text: &str) {
        let text = clean_line(text);
        let line = match self.format {
            LogFormat::Json => self.json(priority, &text),
            LogFormat::Text if self.journal.as_ref().is_some_and(|journal| self.send(journal, priority, &text)) => {
                return;
            }
            LogFormat::Text => priority.before(&text),
        };
        // The journal parses such a number as the priority of the line.
        let number = self.journal.as_ref().map(|_| format!("<{}>", priority.number())).unwrap_or_default();
        // If standard error is closed, the message is lost.
        let _ = write_line(&mut io::stderr(), &format!("{number}{line}"));
    }

    fn json(&self, priority: Priority, text: &str) -> String {
        let mut object = Map::new();
        object.insert("time".to_owned(), own_clock().to_rfc3339_opts(SecondsFormat::Millis, true).into());
        object.insert("level".to_owned(), priority.word().into());
        object.insert("message".to_owned(), text.into());
        for ((name, _), value) in RUN_FIELDS.iter().zip(self.run.iter().flatten()) {
            let number = if *name == "class" { None } else { value.parse::<i64>().ok() };
            object.insert((*name).to_owned(), number.map_or_else(|| value.as_str().into(), Value::from));
        }
        if let Some(runner_id) = self.runner_id {
            object.insert("runner_id".to_owned(), runner_id.0.into());
        }
        clean_json(&Value::Object(object).to_string())
    }

    /// Sends a line to the journal. Returns whether it was accepted.
    fn send(&self, journal: &Journal, priority: Priority, text: &str) -> bool {
        let runner = self.runner_id.map(|runner_id| runner_id.to_string());
        let mut fields = vec![("MESSAGE", text), ("PRIORITY", priority.number()), ("SYSLOG_IDENTIFIER", crate::NAME)];
        fields
            .extend(RUN_FIELDS.iter().zip(self.run.iter().flatten()).map(|((_, name), value)| (*name, value.as_str())));
        fields.extend(runner.as_deref().map(|runner| ("TASKQUEUE_RUNNER_ID", runner)));
        journal.send(&fields).is_ok()
    }
}

/// Returns the time of a line, only to sort lines; no decision depends on it.
#[expect(clippy::disallowed_methods, reason = "lines are stamped by the clock of the machine that writes them")]
fn own_clock() -> DateTime<Utc> {
    Utc::now()
}
