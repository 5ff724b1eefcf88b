//! Tasks of every kind, and users who change them while they are processed.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::claimants_beside;
use super::crowd::Crowd;
use super::records::Pause;
use super::rng::Rng;
use super::stage::Stage;
use super::storm::brief_lines;

/// Tasks besides those of the class `brief`: class, number, and other keys of their lines.
const OTHERS: [(&str, usize, &str); 7] = [
    // First of all, unless they are blocked.
    ("note", 8, r#","priority":9"#),
    ("paced", 10, ""),
    ("report", 3, r#","in":"1s""#),
    ("give-back", 2, r#","priority":-1"#),
    ("kept", 12, r#","priority":2"#),
    ("several", 12, ""),
    ("fail", 2, r#","max_retries":2"#),
];
/// The times of a schedule after the trial: years ahead.
const NEVER: &str = "0 0 29 2 *";

pub struct Load<'a> {
    stage: &'a Stage,
    /// Unique for this load.
    marker: String,
    briefs: Vec<i64>,
    failing: Vec<i64>,
    schedule: String,
}

impl<'a> Load<'a> {
    /// Queues this many tasks of the class `brief`, and the others.
    pub fn queue(stage: &'a Stage, briefs: usize) -> Self {
        let marker = stage.marker();
        let call =
            stage.command(&["queue", "--batch", "-"]).stdin(brief_lines(&marker, briefs)).queues(&marker, briefs).run();
        let mut failing = Vec::new();
        for (class, count, more) in OTHERS {
            let marker = stage.marker();
            let line = format!("{{\"class\":\"{class}\",\"data\":{{\"m\":\"{marker}\"}}{more}}}\n");
            let batch = stage.command(&["queue", "--batch", "-"]).stdin(line.repeat(count));
            failing = batch.queues(&marker, count).run().ids;
        }
        let schedule = stage.queue_with("report", &["--every", "* * * * * *", "--catch-up", "all"]).to_string();
        Self { stage, marker, briefs: call.ids, failing, schedule }
    }

    /// Makes a change of a user or of a claimant.
    pub fn change(&self, crowd: &mut Crowd<'a>, number: usize, rng: &mut Rng) {
        let stage = self.stage;
        let at = rng.below(self.briefs.len());
        let (any, first) = (self.briefs[at].to_string(), self.briefs[at - at % 10].to_string());
        // No task waits for this one.
        let alone = self.briefs[at - at % 10 + 1].to_string();
        let failing = rng.pick(&self.failing).to_string();
        let gone = [1, 3];
        match rng.below(9) {
            0..=2 => crowd.start(claimants_beside::acting(stage, &[], number)),
            3 => crowd.start(stage.command(&["cancel", &alone]).may_answer(&gone)),
            4 => crowd.start(stage.command(&["cancel", &first, "--dependants", "--yes"]).may_answer(&gone)),
            5 => crowd.start(stage.command(&["edit", &any, "--priority", "7"]).may_answer(&gone)),
            6 => crowd.start(stage.command(&["retry", &failing]).may_answer(&gone)),
            7 => crowd.start(self.unique("return", number)),
            _ => crowd.start(self.unique("replace", number).may_answer(&[1])),
        }
    }

    /// Uses one of two keys.
    fn unique(&self, on_conflict: &str, number: usize) -> super::command::Command<'a> {
        let marker = self.stage.marker();
        let (data, key) = (format!("{{\"m\":\"{marker}\"}}"), format!("{}{}", self.marker, number % 2));
        self.stage.command(&["queue", "slow", &data, "--unique", &key, "--on-conflict", on_conflict])
    }

    /// Ends what would otherwise never be completed.
    pub fn end(&self) {
        let call = self.stage.command(&["schedule", "edit", &self.schedule, "--every", NEVER]).run();
        assert!(call.is_ok(), "{call:?}");
    }
}

/// Returns the microseconds since 1970, on the clock that the databases of this machine read.
fn micros_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_micros()).unwrap()
}

/// A pause, recorded for the oracle.
pub struct Paused<'a> {
    stage: &'a Stage,
    what: Vec<String>,
    from: Instant,
    from_micros: i64,
}

impl<'a> Paused<'a> {
    /// Begins a pause with this command: `pause --class CLASS`, `drain --all`.
    pub fn begin(stage: &'a Stage, args: &[&str]) -> Self {
        let call = stage.command(args).run();
        assert!(call.is_ok(), "{call:?}");
        let what = args[1..].iter().map(|&word| word.to_owned()).collect();
        Self { stage, what, from: Instant::now(), from_micros: micros_now() }
    }

    pub fn end(self) {
        let class = self.what.get(1).cloned();
        let micros = self.from_micros..=micros_now();
        self.stage.pauses.borrow_mut().push(Pause { class, from: self.from, until: Instant::now(), micros });
        let what: Vec<&str> = self.what.iter().map(String::as_str).collect();
        let call = self.stage.command(&[&["resume"], &what[..]].concat()).run();
        assert!(call.is_ok(), "{call:?}");
    }
}
