//! The commands that are killed, each with the rows that it needs to have work.

use std::path::Path;

use super::claimants::{Word, speak};

use crate::command::Command;
use crate::handlers;
use crate::records::{Call, Fate};
use crate::stage::Stage;

pub struct Scenario {
    pub name: &'static str,
    /// The rows that must exist before.
    needs: &'static [Need],
    args: Args,
}

enum Need {
    /// A due task of this class.
    Task(&'static str),
    /// A due task of this class with two that wait for it.
    Awaited(&'static str),
    /// Its run.
    Runs,
    /// A runner that was killed at this step while it executed a task of this class.
    Killed(&'static str, &'static str),
    /// A task that failed without a retry and was not reported.
    Exhausted,
    /// A held class.
    Hold,
    /// A schedule without a planned time.
    Schedule,
    /// A schedule whose first task is overdue and has its run. Its next planned time is years ahead.
    OverdueSchedule,
    /// A schedule whose tasks replace each other. Its first task waits with its run, and a later time has passed.
    ReplacingSchedule,
    /// A schedule of the configuration.
    ConfiguredSchedule,
    /// A pause of a class without tasks, expired or not.
    Pause { is_over: bool },
    /// A limit of a class without tasks.
    Limit,
    /// A limit of a key that no task has.
    KeyLimit,
    /// Two due tasks with one limit key.
    Keyed,
    /// A task that succeeded long ago.
    Old,
    /// A receipt that is no longer needed.
    OldReceipt,
    /// A renewal every second.
    QuickLease,
    /// Stored transitions, in this scenario only.
    Transitions,
}

enum Args {
    Plain(&'static [&'static str]),
    Queue,
    QueueBatch,
    /// After another task.
    QueueAfter,
    /// With a key that a waiting task with a run has; the value is what to do then.
    Unique(&'static str),
    /// Lines that wait for each other and for another task.
    QueueNames,
    Exec,
    /// Retries a task that has just failed, and one that has succeeded.
    Retry,
    /// Pauses the newest schedule.
    Pause,
    /// With the id of a new task.
    ToNewTask(&'static [&'static str]),
    /// An export with one waiting task.
    Import,
    /// Inside a handler: the fault hits the command that the handler calls.
    InHandler,
    /// By a claimant, whose process dies afterwards.
    Claimant(Word),
    /// In another, empty database.
    Migrate,
}

/// Returns an export with one waiting task. No other export has the marker: a repeated import is refused.
fn export(marker: &str) -> String {
    let task = serde_json::json!({
        "id": 1, "task_class": "note", "task_data": "{}", "queued_by_id": marker,
        "queued_on": "2026-01-01T00:00:00Z", "scheduled_on": "2026-01-01T00:00:00Z", "updated_on": "2026-01-01T00:00:00Z",
        "last_status": "scheduled", "max_retries": 1000, "failed_retries": 0, "attempts": 0, "crashes": 0,
        "priority": 0, "timeout_secs": null, "waiting_for": 0, "backoff": null, "quarantined_on": null,
        "recurrence": null, "time_zone": "UTC", "catch_up": "latest", "schedule_id": null, "planned_on": null,
        "schedule_status": "active",
    });
    format!("{{\"taskqueue_export\":1}}\n{{\"task\":{task}}}\n{{\"end_of_export\":1}}\n")
}

const DRAIN: Args = Args::Plain(&["process-run", "--drain"]);

const WORK: Args = Args::Plain(&["work", "--slots", "2", "--idle-exit", "0s"]);

/// Outcomes are written without a claim, because the worker has done enough.
const WORK_ENOUGH: Args = Args::Plain(&["work", "--slots", "2", "--max-runs", "2", "--idle-exit", "0s"]);

const fn scenario(name: &'static str, needs: &'static [Need], args: Args) -> Scenario {
    Scenario { name, needs, args }
}

pub const SCENARIOS: &[Scenario] = &[
    scenario("queue", &[], Args::Queue),
    scenario("batch", &[], Args::QueueBatch),
    scenario("after", &[], Args::QueueAfter),
    scenario("names", &[], Args::QueueNames),
    scenario("unique", &[], Args::Unique("return")),
    scenario("replace", &[], Args::Unique("replace")),
    scenario("exec", &[], Args::Exec),
    scenario("create", &[Need::Task("note"), Need::Task("note"), Need::OldReceipt], Args::Plain(&["create-runs"])),
    scenario("rescue", &[Need::Killed("note", "claim.committed")], Args::Plain(&["create-runs"])),
    scenario("rescue-family", &[Need::Killed("family", "execute.handler_started")], Args::Plain(&["create-runs"])),
    scenario("left-over", &[Need::Killed("note", "spool.synced")], Args::Plain(&["create-runs"])),
    scenario("left-over-of-process", &[Need::Killed("note", "outcome.sent"), Need::Task("note"), Need::Runs], DRAIN),
    scenario("process", &[Need::Task("note"), Need::Runs], Args::Plain(&["process-run"])),
    scenario("drain", &[Need::Task("note"), Need::Task("brief"), Need::Runs], DRAIN),
    scenario("satisfy", &[Need::Awaited("note"), Need::Awaited("give-back"), Need::Runs], Args::Plain(&["tick"])),
    scenario("fail", &[Need::Task("fail"), Need::Runs], DRAIN),
    scenario("give-back", &[Need::Task("give-back"), Need::Runs], DRAIN),
    scenario("report", &[Need::Task("report"), Need::Runs], DRAIN),
    scenario("kept", &[Need::Task("kept"), Need::Task("kept"), Need::Runs], DRAIN),
    scenario("several", &[Need::Task("several"), Need::Task("several"), Need::Runs], DRAIN),
    scenario(
        "work-several",
        &[Need::Task("several"), Need::Task("kept"), Need::Task("several"), Need::Runs, Need::Task("kept")],
        WORK,
    ),
    scenario("rescue-kept", &[Need::Killed("kept", "coprocess.heard")], Args::Plain(&["create-runs"])),
    scenario("family", &[Need::Task("family"), Need::Runs], DRAIN),
    scenario(
        "work",
        &[Need::Task("note"), Need::Task("brief"), Need::Runs, Need::Task("note"), Need::Task("fail")],
        WORK,
    ),
    scenario("work-enough", &[Need::Task("note"), Need::Task("brief")], WORK_ENOUGH),
    scenario("work-transitions", &[Need::Transitions, Need::Task("note"), Need::Task("brief"), Need::Runs], WORK),
    scenario("work-keyed", &[Need::Keyed, Need::Runs], WORK),
    scenario("work-family", &[Need::Task("family"), Need::Task("give-back"), Need::Runs], WORK),
    scenario("long", &[Need::QuickLease, Need::Task("long"), Need::Runs], DRAIN),
    scenario("tell", &[Need::Task("tell"), Need::Runs], Args::InHandler),
    scenario("retry", &[], Args::Retry),
    scenario("cancel", &[], Args::ToNewTask(&["cancel"])),
    scenario(
        "cancel-all",
        &[Need::Task("note"), Need::Runs, Need::Task("note")],
        Args::Plain(&["cancel", "--yes", "status=waiting"]),
    ),
    scenario("unwanted", &[Need::Task("unwanted"), Need::Runs], DRAIN),
    scenario("edit", &[], Args::ToNewTask(&["edit", "--priority", "0"])),
    scenario("notify", &[Need::Exhausted], Args::Plain(&["create-runs"])),
    scenario("schedule-begins", &[Need::Schedule], Args::Plain(&["create-runs"])),
    scenario("schedule-goes-on", &[Need::OverdueSchedule], DRAIN),
    scenario("schedule-replaces", &[Need::ReplacingSchedule], Args::Plain(&["create-runs"])),
    scenario("schedule-configured", &[Need::ConfiguredSchedule], Args::Plain(&["schedule", "apply"])),
    scenario("schedule-pauses", &[Need::OverdueSchedule], Args::Pause),
    scenario("import", &[], Args::Import),
    scenario("prune", &[Need::Old], Args::Plain(&["prune"])),
    scenario("prune-selected", &[Need::Old], Args::Plain(&["prune", "--yes", "by=long-ago"])),
    scenario("settings", &[], Args::Plain(&["setting", "set", "TaskQueueRunTimeout", "86400"])),
    scenario("classes", &[Need::Hold], Args::Plain(&["class", "release", "held"])),
    scenario("pause", &[], Args::Plain(&["pause", "--class", "held", "--reason", "a test", "--for", "1h"])),
    scenario("resume", &[Need::Pause { is_over: false }], Args::Plain(&["resume", "--class", "held"])),
    scenario("pause-over", &[Need::Pause { is_over: true }], Args::Plain(&["create-runs"])),
    scenario("limit", &[], Args::Plain(&["limit", "set", "held", "--running", "1", "--rate", "5/1m"])),
    scenario("limit-remove", &[Need::Limit], Args::Plain(&["limit", "remove", "held"])),
    scenario("limit-key", &[], Args::Plain(&["limit", "set", "--key", "free", "--running", "2"])),
    scenario("limit-key-remove", &[Need::KeyLimit], Args::Plain(&["limit", "remove", "--key", "free"])),
    scenario("keyed-create", &[Need::Keyed], Args::Plain(&["create-runs"])),
    scenario("keyed-drain", &[Need::Keyed, Need::Runs], DRAIN),
    scenario("claim", &[Need::Task("note")], Args::Claimant(Word::Claim)),
    scenario("heartbeat", &[Need::Task("note")], Args::Claimant(Word::Heartbeat)),
    scenario("claimant-message", &[Need::Task("note")], Args::Claimant(Word::Message)),
    scenario("resolve", &[Need::Task("note")], Args::Claimant(Word::Resolve)),
    scenario("reject", &[Need::Task("note"), Need::Task("brief")], Args::Claimant(Word::Release)),
    scenario("take-back", &[Need::Task("note")], Args::Claimant(Word::TakeBack)),
    scenario("migrate", &[], Args::Migrate),
];

impl Scenario {
    /// Creates the needed rows and runs its command, with a fault or with a log of the steps that it reaches.
    pub fn run(&self, stage: &Stage, fault: Option<&str>, log: Option<&Path>) -> Call {
        match self.args {
            Args::InHandler => {
                self.make_needs(stage);
                run_in_handler(stage, fault, log)
            }
            Args::Claimant(word) => {
                self.make_needs(stage);
                speak(stage, word, |command| finish(command, fault, log))
            }
            Args::Migrate => migrate(stage, fault, log),
            _ => finish(self.command(stage), fault, log).run(),
        }
    }

    /// Creates the needed rows and returns its command, which must not run inside a handler.
    pub fn command<'a>(&self, stage: &'a Stage) -> Command<'a> {
        self.make_needs(stage);
        match self.args {
            Args::Plain(args) => stage.command(args),
            Args::Queue => {
                let marker = stage.marker();
                stage.command(&["queue", "note", &format!("{{\"m\":\"{marker}\"}}")]).queues(&marker, 1)
            }
            Args::QueueBatch => {
                let marker = stage.marker();
                let line = format!("{{\"class\":\"brief\",\"data\":{{\"m\":\"{marker}\"}}}}\n");
                stage.command(&["queue", "--batch", "-"]).stdin(line.repeat(3)).queues(&marker, 3)
            }
            Args::QueueAfter => {
                let (first, marker) = (stage.queue("note").to_string(), stage.marker());
                let data = format!("{{\"m\":\"{marker}\"}}");
                stage.command(&["queue", "note", &data, "--after", &first]).queues(&marker, 1)
            }
            Args::Unique(on_conflict) => {
                let marker = stage.marker();
                // Either task that exists in the end has the marker.
                let queue = |more: &str| {
                    let data = format!("{{\"m\":\"{marker}\"{more}}}");
                    stage.command(&["queue", "brief", &data, "--unique", &marker, "--on-conflict", on_conflict])
                };
                queue("").queues(&marker, 1).run();
                clean(stage, &["create-runs"]);
                queue(",\"again\":true")
            }
            Args::QueueNames => {
                let (first, marker) = (stage.queue("brief"), stage.marker());
                let line = |name: &str, after: &str| {
                    format!(
                        "{{\"class\":\"brief\",\"data\":{{\"m\":\"{marker}\"}},\"name\":\"{name}\",\"after\":[{after}]}}\n"
                    )
                };
                let lines = [line("c", "\"a\", \"b\""), line("a", &first.to_string()), line("b", "\"a\"")];
                stage.command(&["queue", "--batch", "-"]).stdin(lines.concat()).queues(&marker, 3)
            }
            Args::Exec => {
                let [program, option, script] = handlers::exec_arguments(stage.home());
                let marker = stage.marker();
                stage.command(&["exec", "--", &program, &option, &script, &marker]).queues(&marker, 1)
            }
            Args::Retry => {
                let [failed, done] = ["fail", "note"].map(|class| stage.queue(class).to_string());
                // Its failures may need a tick each.
                stage.settle();
                stage.command(&["retry", &failed, &done])
            }
            Args::Pause => {
                let id = stage.number("SELECT MAX(\"ScheduleId\") AS value FROM \"TaskQueue\"").to_string();
                stage.command(&["schedule", "pause", &id])
            }
            Args::ToNewTask(args) => {
                let id = stage.queue("note").to_string();
                stage.command(&[args, &[id.as_str()]].concat())
            }
            Args::Import => stage.command(&["import"]).stdin(export(&stage.marker())),
            Args::InHandler => stage.command(&["process-run", "--drain"]),
            Args::Claimant(_) => stage.command(&["status"]),
            Args::Migrate => stage.command(&["db", "migrate"]),
        }
    }

    fn make_needs(&self, stage: &Stage) {
        stage.set_transitions(false);
        for need in self.needs {
            need.make(stage);
        }
    }

    pub fn named(name: &str) -> &'static Self {
        SCENARIOS.iter().find(|scenario| scenario.name == name).unwrap()
    }
}

fn finish<'a>(mut command: Command<'a>, fault: Option<&str>, log: Option<&Path>) -> Command<'a> {
    if let Some(fault) = fault {
        command = command.fault(fault);
    }
    match log {
        Some(log) => command.log(log),
        None => command,
    }
}

impl Need {
    fn make(&self, stage: &Stage) {
        match self {
            Self::Task(class) => drop(stage.queue(class)),
            Self::Awaited(class) => {
                let first = stage.queue(class).to_string();
                for _ in 0..2 {
                    stage.queue_with("brief", &["--after", &first]);
                }
            }
            Self::Runs => clean(stage, &["create-runs"]),
            Self::Killed(class, label) => {
                stage.queue(class);
                clean(stage, &["create-runs"]);
                // Not every earlier run: the step is that of the first run of the drain.
                stage.command(&["process-run", "--drain"]).fault(&format!("{label}=kill")).run();
            }
            Self::Exhausted => {
                // A process that was killed while it sent notices blocks others from sending for two minutes.
                stage.execute("UPDATE \"TaskQueueTimers\" SET \"NextOn\" = '2020-01-01 00:00:00.000000'");
                stage.queue("fail");
                for _ in 0..2 {
                    clean(stage, &["create-runs"]);
                    clean(stage, &["process-run", "--drain"]);
                }
            }
            Self::Schedule => begin_schedule(stage, "NULL"),
            Self::OverdueSchedule => {
                begin_schedule(stage, "'2024-02-29 00:00:00.000000'");
                clean(stage, &["create-runs"]);
            }
            Self::ReplacingSchedule => {
                stage.execute(
                    "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"MaxRetries\", \"Recurrence\", \"Overlap\", \"PlannedOn\", \"ScheduledOn\") \
                     VALUES ('note', 1000, '0 0 29 2 *', 'replace', '2020-02-29 00:00:00.000000', '2020-02-29 00:00:00.000000')",
                );
                clean(stage, &["create-runs"]);
            }
            Self::ConfiguredSchedule => configure_schedule(stage),
            Self::Old => stage.execute(
                "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"ScheduledOn\", \"UpdatedOn\", \"QueuedById\") VALUES \
                 ('note', 'success', '2020-01-01 00:00:00.000000', '2020-01-01 00:00:00.000000', 'long-ago')",
            ),
            Self::OldReceipt => stage.execute(
                "DELETE FROM \"TaskQueueReceipts\"; INSERT INTO \"TaskQueueReceipts\" (\"Token\", \"WrittenOn\") \
                 VALUES ('long-ago', '2020-01-01 00:00:00.000000')",
            ),
            Self::Hold => hold(stage),
            Self::Pause { is_over } => pause(stage, *is_over),
            Self::Limit => clean(stage, &["limit", "set", "held", "--running", "1"]),
            Self::KeyLimit => clean(stage, &["limit", "set", "--key", "free", "--running", "2"]),
            Self::Keyed => {
                for _ in 0..2 {
                    stage.queue_with("brief", &["--limit-key", "shared"]);
                }
            }
            Self::Transitions => stage.set_transitions(true),
            Self::QuickLease => clean(stage, &["setting", "set", "TaskQueueLeaseRenewal", "1"]),
        }
    }
}

fn clean(stage: &Stage, args: &[&str]) {
    let call = stage.command(args).run();
    assert!(call.is_ok(), "{call:?}");
}

/// Inserts a schedule like an application, for the 29ths of February from the given one on.
fn begin_schedule(stage: &Stage, planned_on: &str) {
    stage.execute(&format!(
        "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"MaxRetries\", \"Recurrence\", \"CatchUp\", \"PlannedOn\") \
         VALUES ('note', 1000, '0 0 29 2 *', 'all', {planned_on})"
    ));
}

/// Writes a file with a schedule.
fn configure_schedule(stage: &Stage) {
    let parts = stage.home().join(".config/taskqueue/conf.d");
    let file = parts.join("schedule.toml");
    std::fs::create_dir_all(parts).unwrap();
    std::fs::write(&file, "[schedule.leap]\nclass = \"note\"\nevery = \"0 0 29 2 *\"\nmax_retries = 1000\n").unwrap();
}

fn hold(stage: &Stage) {
    stage.execute(
        "DELETE FROM \"TaskQueueClassHolds\"; INSERT INTO \"TaskQueueClassHolds\" (\"TaskClass\", \"Host\", \"Reason\", \"HeldOn\", \"HeldUntil\") \
         VALUES ('held', 'here', 'for a test', '2020-01-01 00:00:00.000000', '2199-01-01 00:00:00.000000')",
    );
}

fn pause(stage: &Stage, is_over: bool) {
    let until = if is_over { "'2020-01-01 00:00:00.000000'" } else { "NULL" };
    stage.execute(&format!(
        "DELETE FROM \"TaskQueuePauses\"; INSERT INTO \"TaskQueuePauses\" (\"Scope\", \"Name\", \"Until\") VALUES ('class', 'held', {until})"
    ));
}

/// Runs a handler that reads the fault from a file and reports how its commands ended: 137 after a kill.
fn run_in_handler(stage: &Stage, fault: Option<&str>, log: Option<&Path>) -> Call {
    let file = handlers::fault_file(stage.home());
    let (told, reached) = (file.with_extension("told"), file.with_extension("log"));
    let _ = std::fs::remove_file(&told);
    let _ = std::fs::remove_file(&reached);
    std::fs::write(&file, format!("{}\n", fault.unwrap_or_default())).unwrap();
    let mut call = stage.command(&["process-run", "--drain"]).run();
    std::fs::write(&file, "\n").unwrap();
    if let Some(log) = log {
        std::fs::copy(&reached, log).unwrap();
    }
    let told = std::fs::read_to_string(told).unwrap_or_default();
    if told.split_whitespace().any(|code| code == "137") {
        call.fate = Fate::Killed(fault.map(str::to_owned));
    }
    call
}

/// Kills a migration: the next one completes it, whatever state it has left, and the store works.
fn migrate(outer: &Stage, fault: Option<&str>, log: Option<&Path>) -> Call {
    let mut stage = Stage::without_tables(outer.engine, &outer.program).unwrap();
    let call = finish(stage.command(&["db", "migrate"]), fault, log).run();
    clean(&stage, &["db", "migrate"]);
    stage.prepare_tables();
    stage.begin_trial();
    stage.queue("note");
    stage.settle();
    let found = stage.check();
    assert!(found.is_empty(), "after {call:?}: {found:?}");
    call
}
