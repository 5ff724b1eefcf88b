//! Shared by the tests of this folder: task classes as closures, runs executed step by step, time moved by SQL.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use taskqueue::{ActiveRun, HandlerError, TaskHandler};
use taskqueue_domain::limits::lease::LeaseTimes;
use taskqueue_domain::run::backoff::Backoff;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::choosing::class_set::ClassSet;
use taskqueue_domain::task::ids::{RunId, RunnerId, TaskId};
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_domain::task::records::{ClaimedRun, Run, Task};
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_engine::Context;
use taskqueue_engine::handler::registry::HandlerRegistry;
use taskqueue_engine::queueing::queue::{ClassCheck, queue_task};
use taskqueue_engine::running::process_run::{ProcessOptions, ProcessReport, process_runs};
use taskqueue_engine::running::run_listener::{RunListener, RunOutcome};
use taskqueue_engine::upkeep::create_runs::{CreateRunsReport, create_runs};
use taskqueue_process::identities::identity::{Liveness, ProcessIdentity};
use taskqueue_process::signals::stop_signals::StopSignals;
use taskqueue_store::{Claim, PruneRule, PruneWindow, RunEnd, RunRef, Store};

use crate::support::db::Raw;
use crate::support::{EngineUnderTest, TestDb};

/// The lease of a new store.
pub const LEASE: LeaseTimes = LeaseTimes { lease_secs: 90, renewal_secs: 20, margin_secs: 15 };

/// The result of a handler.
pub type Handled = Result<(), HandlerError>;

struct Act<F>(F);

impl<F: Fn(&mut ActiveRun<'_>) -> Handled + Send + Sync> TaskHandler for Act<F> {
    fn process_task_queue_run(&self, run: &mut ActiveRun<'_>) -> Handled {
        (self.0)(run)
    }
}

/// Adds a class that is handled by a closure.
pub fn add(
    registry: &mut HandlerRegistry,
    name: &str,
    act: impl Fn(&mut ActiveRun<'_>) -> Handled + Send + Sync + 'static,
) {
    registry.register(name, Act(act));
}

/// Returns a context with one class.
pub fn context(
    db: &TestDb,
    name: &str,
    act: impl Fn(&mut ActiveRun<'_>) -> Handled + Send + Sync + 'static,
) -> Context {
    let mut registry = HandlerRegistry::new();
    add(&mut registry, name, act);
    db.context(registry)
}

/// Returns a context whose class `work` does nothing and succeeds.
pub fn willing(db: &TestDb) -> Context {
    context(db, "work", |_| Ok(()))
}

/// Returns a context whose class `work` fails with code `E1` and message `no luck`.
pub fn failing(db: &TestDb) -> Context {
    context(db, "work", |_| Err(HandlerError::new("E1", "no luck")))
}

/// Returns a function that opens connections inside a handler, which outlives the borrow of the database.
pub fn connector(db: &TestDb) -> impl Fn() -> Raw + Send + Sync + 'static {
    let (engine, url) = (db.engine, db.url_text().to_owned());
    move || Raw::connect(engine, &url)
}

/// Returns a request for a task without data.
pub fn request(class: &str) -> TaskRequest {
    TaskRequest { class: class.to_owned(), queued_by: "tester".to_owned(), ..TaskRequest::default() }
}

/// Queues a task without data.
pub fn queue(ctx: &mut Context, class: &str) -> TaskId {
    queue_task(ctx, request(class), ClassCheck::AnyName).unwrap()
}

/// Queues a task and creates its run.
pub fn queue_with_run(ctx: &mut Context, class: &str) -> (TaskId, RunId) {
    let task_id = queue(ctx, class);
    (task_id, ctx.store.open_run_of(task_id).unwrap().unwrap())
}

pub fn create(ctx: &mut Context) -> CreateRunsReport {
    create_runs(ctx, &mut |_| {}).unwrap()
}

/// Ignores all notifications.
pub struct Deaf;

impl RunListener for Deaf {
    fn stopping(&mut self, _runs: &[RunId], _wait: Duration) {}
    fn ended(&mut self, _run: &ClaimedRun, _outcome: &RunOutcome) {}
}

pub fn process(ctx: &mut Context, options: &ProcessOptions) -> ProcessReport {
    process_runs(ctx, options, &StopSignals::install().unwrap(), &mut Deaf).unwrap()
}

/// The scheme's event OnProcessTaskRun: processes at most one run.
pub fn process_one(ctx: &mut Context) -> ProcessReport {
    process(ctx, &ProcessOptions::default())
}

pub fn drain(ctx: &mut Context) -> ProcessReport {
    process(ctx, &ProcessOptions { drain: true, ..ProcessOptions::default() })
}

pub fn task(db: &TestDb, id: TaskId) -> Task {
    db.store().get_task(id).unwrap()
}

/// Returns the newest run of a task.
pub fn last_run(db: &TestDb, id: TaskId) -> Run {
    db.store().list_runs_of_task(id, 1).unwrap().remove(0)
}

/// Queues a task of class `work` and processes it; returns it with its run.
pub fn work_once(db: &TestDb, ctx: &mut Context) -> (Task, Run) {
    let id = queue(ctx, "work");
    create(ctx);
    assert_eq!(process_one(ctx).processed, 1);
    (task(db, id), last_run(db, id))
}

/// Moves a task's time into the past, as if its backoff had passed.
pub fn make_due(db: &TestDb, id: TaskId) {
    db.execute(&format!(
        "UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = NULL, \"ScheduledOn\" = '2020-01-01 00:00:00' WHERE \"Id\" = {id}"
    ));
}

/// Moves the planned time of a task to a year.
pub fn plan(db: &TestDb, id: TaskId, year: u32) {
    db.execute(&format!(
        "UPDATE \"TaskQueue\" SET \"PlannedOn\" = '{year}-02-29 00:00:00.000000', \"ScheduledOn\" = '{year}-02-29 00:00:00.000000'
         WHERE \"Id\" = {id}"
    ));
}

/// Returns the time of the engine's clock plus this many seconds, as SQL.
pub fn sql_now(engine: EngineUnderTest, plus_secs: i64) -> String {
    match engine {
        EngineUnderTest::Sqlite => format!("strftime('%Y-%m-%d %H:%M:%f000', 'now', '{plus_secs} seconds')"),
        EngineUnderTest::Postgres => format!("(clock_timestamp() + interval '{plus_secs} seconds')"),
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
            format!("(UTC_TIMESTAMP(6) + INTERVAL {plus_secs} SECOND)")
        }
    }
}

/// The numbers `i` from 1 to `many`, a multiple of 10,000 up to 100,000, as a table of SQL.
pub fn numbers(engine: EngineUnderTest, many: u32) -> String {
    match engine {
        EngineUnderTest::Sqlite | EngineUnderTest::Postgres => format!(
            "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {many}) SELECT i FROM n) AS numbers"
        ),
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
            let digit = "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5
                UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)";
            format!(
                "(SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d + 1 AS i
                  FROM {digit} AS a, {digit} AS b, {digit} AS c, {digit} AS e, {digit} AS f WHERE f.d < {}) AS numbers",
                many / 10_000
            )
        }
    }
}

/// Claims the first run of any class for a process with this identity.
pub fn claim_as(store: &mut Store, identity: &ProcessIdentity) -> Option<ClaimedRun> {
    claim_of(store, identity, &|_| true)
}

/// Claims the first run of these classes for a process with this identity.
pub fn claim_of(
    store: &mut Store,
    identity: &ProcessIdentity,
    is_runnable: &dyn Fn(&TaskClass) -> bool,
) -> Option<ClaimedRun> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Unique for this process: processes are ended by their token, and other tests may run at the same time. The first twelve
    // characters are the name of a thread.
    let token = format!("{:07}{:05}token", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let claim = Claim {
        runner_id: RunnerId(1),
        runner_name: "one",
        process_id: i64::from(identity.pid),
        host: "here",
        process_identity: &identity.to_string(),
        classes: ClassSet::any(is_runnable),
        lease_secs: 1_000,
    };
    store.claim_next_run(&claim, &token).unwrap()
}

/// Claims the first run of any class for this process.
pub fn claim(store: &mut Store) -> Option<ClaimedRun> {
    claim_as(store, &ProcessIdentity::own().unwrap())
}

pub fn reference(run: &ClaimedRun) -> RunRef {
    RunRef { id: run.run_id, token: run.token.clone() }
}

/// Returns an end without options.
pub fn ending(event: RunEvent) -> RunEnd {
    let has_failed = matches!(event, RunEvent::Fail | RunEvent::TimeOut);
    let (code, message) = if has_failed { ("E1", "no luck") } else { ("", "") };
    RunEnd {
        backoff: Backoff::Exponential { base_secs: 60, max_secs: 600 },
        ..RunEnd::of(event, code, message, "decided by a test")
    }
}

/// Returns the identity of a process that has ended.
pub fn dead_process() -> ProcessIdentity {
    let mut child = Command::new("/bin/true").stdin(Stdio::null()).spawn().unwrap();
    let identity = ProcessIdentity::of_pid(i32::try_from(child.id()).unwrap()).unwrap().unwrap();
    child.wait().unwrap();
    assert_eq!(identity.liveness(), Liveness::Dead);
    identity
}

/// Inserts a runner by SQL, as a process with this identity would register.
pub fn insert_runner(db: &TestDb, identity: &ProcessIdentity, slots: i32) {
    db.execute(&format!(
        "INSERT INTO \"TaskQueueRunners\" (\"ProcessId\", \"ProcessIdentity\", \"Slots\") VALUES ({}, '{identity}', {slots})",
        identity.pid
    ));
}

/// Returns the first part of the tasks that the rule covers by their age.
pub fn old_tasks(ctx: &mut Context, rule: &PruneRule) -> PruneWindow {
    let until = ctx.store.last_old_task(rule).unwrap().unwrap();
    ctx.store.find_prunable_tasks(rule, None, until).unwrap()
}

/// Returns a claim by a runner without a process.
pub fn claim_by_nobody(is_runnable: &dyn Fn(&TaskClass) -> bool) -> Claim<'_> {
    Claim {
        runner_id: RunnerId(1),
        runner_name: "one",
        process_id: 1,
        host: "here",
        process_identity: "nobody",
        classes: ClassSet::any(is_runnable),
        lease_secs: 1_000,
    }
}

/// Allows the session to write statuses that only a newer version knows.
pub fn allow_unknown_statuses(db: &TestDb) -> Raw {
    let mut raw = db.raw();
    match db.engine {
        EngineUnderTest::Sqlite => raw.execute("PRAGMA ignore_check_constraints = ON"),
        EngineUnderTest::Postgres | EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
            let ended = "A run is finished if and only if it has FinishedOn";
            let (of_task, of_run) = if db.engine == EngineUnderTest::Postgres {
                ("DOMAIN \"TaskQueueTaskStatus\"", "DOMAIN \"TaskQueueRunStatus\"")
            } else {
                ("TABLE \"TaskQueue\"", "TABLE \"TaskQueueRuns\"")
            };
            raw.execute(&format!("ALTER {of_task} DROP CONSTRAINT \"LastStatus is known\""));
            raw.execute(&format!("ALTER {of_run} DROP CONSTRAINT \"Status is known\""));
            raw.execute(&format!("ALTER TABLE \"TaskQueueRuns\" DROP CONSTRAINT \"{ended}\""));
        }
    }
    raw
}
