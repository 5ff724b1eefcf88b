//! The real side: executes the commands with the library, on a database whose tables are emptied before each sequence.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use chrono::{DateTime, TimeDelta, Utc};
use taskqueue::HandlerError;
use taskqueue_domain::limits::limit::{ClassLimit, KeyLimit, Rate};
use taskqueue_domain::limits::pause::{PauseMode, PauseScope};
use taskqueue_domain::run::backoff::Backoff;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::served::ServedClasses;
use taskqueue_domain::settings::Setting;
use taskqueue_domain::task::choosing::class_set::ClassSet;
use taskqueue_domain::task::choosing::task_choice::TaskChoice;
use taskqueue_domain::task::ids::{RunId, RunnerId, TaskId};
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_domain::task::task_change::ChangeRequest;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_domain::task::unique::{Arrival, QueuedTask};
use taskqueue_engine::change::edit::{Edit, edit_tasks};
use taskqueue_engine::change::pauses::{PauseRequest, pause, resume};
use taskqueue_engine::change::retry::{RetryOptions, retry_tasks};
use taskqueue_engine::change::selected::TaskAnswer;
use taskqueue_engine::change::{classes, limits, settings};
use taskqueue_engine::handler::registry::HandlerRegistry;
use taskqueue_engine::queueing::queue::{ClassCheck, queue_one};
use taskqueue_engine::{Context, EngineError};
use taskqueue_host::clock::Moment;
use taskqueue_process::identities::identity::ProcessIdentity;
use taskqueue_store::{
    CancelAnswer, Claim, Crash, EndCondition, EndResult, NewEvent, NewRunner, Origin, OutsideClaim, Registration,
    RenewalRequest, RunEnd, RunRef, RunReport, SpecificClaim, Store,
};

use super::commands::{CLASSES, Claimant, Command, Delay, End, Handled};
use super::reference::{Answer, CLAIM_TIMEOUT_LIMIT, CRASH_LIMIT, Model, When, Who};
use crate::conformance::fixture::{Handled as HandlerResult, add, create, dead_process, ending, process_one, sql_now};
use crate::support::db::Raw;
use crate::support::{EngineUnderTest, TestDb, wait_until};

const FAR_SECS: i64 = 86_400;
const LONG_AGO: &str = "'2020-01-01 00:00:00.000000'";

/// A store, the handler and tokens that the commands use, and the ids of its rows in the order of their creation.
pub struct Real<'a> {
    db: &'a TestDb,
    ctx: Context,
    raw: Raw,
    handled: Arc<Mutex<Handled>>,
    dead: ProcessIdentity,
    tasks: Vec<TaskId>,
    runs: Vec<RunId>,
    runners: Vec<RunnerId>,
    tokens: Vec<Option<String>>,
    claims: u32,
}

fn handle(handled: Handled) -> HandlerResult {
    let error = |retry, delay_secs| HandlerError { retry, ..HandlerError::retry_after(delay_secs, "E1", "no luck") };
    match handled {
        Handled::Succeed => Ok(()),
        Handled::Fail { retry, is_later } => Err(error(retry, if is_later { FAR_SECS } else { 0 })),
        Handled::Panic => panic!("requested by the model"),
    }
}

fn scope(class: Option<usize>) -> PauseScope {
    class.map_or(PauseScope::All, |class| PauseScope::Class(CLASSES[class].to_owned()))
}

impl<'a> Real<'a> {
    pub fn new(db: &'a TestDb) -> Self {
        let handled = Arc::new(Mutex::new(Handled::Succeed));
        let mut registry = HandlerRegistry::new();
        for class in CLASSES {
            let handled = Arc::clone(&handled);
            add(&mut registry, class, move |_| {
                let handled = *handled.lock().unwrap();
                handle(handled)
            });
        }
        let mut ctx = db.context(registry);
        // No configured delay passes during the test.
        settings::set(&mut ctx, Setting::RetryDelay, &FAR_SECS.to_string()).unwrap();
        settings::set(&mut ctx, Setting::CrashLimit, &CRASH_LIMIT.to_string()).unwrap();
        settings::set(&mut ctx, Setting::ClaimTimeoutLimit, &CLAIM_TIMEOUT_LIMIT.to_string()).unwrap();
        settings::set(&mut ctx, Setting::RetryDelayMax, &(2 * FAR_SECS).to_string()).unwrap();
        // Leases count when a server has been up for one lease, which is far longer than a sequence takes.
        for (setting, secs) in [(Setting::LeaseRenewal, "5"), (Setting::LeaseMargin, "5"), (Setting::LeaseTime, "30")] {
            settings::set(&mut ctx, setting, secs).unwrap();
        }
        wait_until("leases count", || ctx.store.leases_count(30).unwrap());
        Self {
            db,
            ctx,
            raw: db.raw(),
            handled,
            dead: dead_process(),
            tasks: Vec::new(),
            runs: Vec::new(),
            runners: Vec::new(),
            tokens: Vec::new(),
            claims: 0,
        }
    }

    /// Waits until the clock of SQLite has advanced by one millisecond, so that runs of two steps have different places in the
    /// line.
    fn wait_for_the_clock(&mut self) {
        if self.db.engine == EngineUnderTest::Sqlite {
            let before = self.ctx.now().unwrap();
            while self.ctx.now().unwrap() == before {}
        }
    }

    /// Empties the tables, which is much faster than a new database for each sequence.
    pub fn clear(&mut self) {
        for table in [
            "TaskQueueRunOutputs",
            "TaskQueueRuns",
            "TaskQueueDependencies",
            "TaskQueue",
            "TaskQueueRunners",
            "TaskQueueClassHolds",
            "TaskQueuePauses",
            "TaskQueueClassLimits",
            "TaskQueueStarts",
            "TaskQueueKeyLimits",
            "TaskQueueRejections",
        ] {
            self.raw.execute(&format!("DELETE FROM \"{table}\""));
        }
        let limit = Model::new().limit;
        settings::set(&mut self.ctx, Setting::RunnerLimit, &limit.to_string()).unwrap();
        (self.tasks, self.runs, self.runners, self.tokens) = Default::default();
    }

    /// Executes a command, and translates the answer to the numbers of the model.
    pub fn step(&mut self, command: &Command) -> Answer {
        self.wait_for_the_clock();
        match *command {
            Command::Queue { class, priority, max_retries, when } => {
                let request = TaskRequest {
                    priority: Some(priority.into()),
                    max_retries: Some(max_retries.into()),
                    scheduled_on: self.instant(when),
                    ..TaskRequest::default()
                };
                self.queue(class, request)
            }
            Command::QueueAfter { class, after } => {
                let after = after.map(|task| self.tasks[task]).to_vec();
                self.queue(class, TaskRequest { after, ..TaskRequest::default() })
            }
            Command::QueueSchedule { class } => {
                // No claim leaves a late task of it to others.
                let (every, catch_up) = (Some("0 0 29 2 *".to_owned()), Some("all".to_owned()));
                self.queue(class, TaskRequest { every, catch_up, max_retries: Some(2), ..TaskRequest::default() })
            }
            Command::QueueUnique { class, key, on_conflict } => {
                let priority = Some(1);
                let unique = Some(format!("k{key}"));
                self.queue(
                    class,
                    TaskRequest { priority, unique, on_conflict: Some(on_conflict), ..TaskRequest::default() },
                )
            }
            Command::QueueLimited { class, key, priority } => {
                let limit_key = Some(format!("l{key}"));
                let (priority, max_retries) = (Some(priority.into()), Some(3));
                self.queue(class, TaskRequest { limit_key, priority, max_retries, ..TaskRequest::default() })
            }
            Command::QueueBad { max_retries, priority } => {
                let request =
                    TaskRequest { max_retries: Some(max_retries), priority: Some(priority), ..TaskRequest::default() };
                self.queue(0, request)
            }
            Command::Insert { class } => self.sql(&format!(
                "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\") VALUES ('{}', '[1]')",
                CLASSES[class]
            )),
            Command::CreateRuns => self.create_runs(),
            Command::OpenRunOf { task } => {
                let open = self.ctx.store.open_run_of(self.tasks[task]).unwrap();
                self.look_up_ids();
                Answer::OpenRun(open.map(|id| self.number_of(id)))
            }
            Command::ClaimNext(claimant) => match self.claim(claimant, None) {
                SpecificClaim::Claimed(run) => self.claimed(&run),
                SpecificClaim::Refused { .. } | SpecificClaim::Obstructed { .. } => Answer::NothingToClaim,
            },
            Command::Start(claimant) => self.start(claimant),
            Command::ClaimRun { run, claimant } => match self.claim(claimant, Some(run)) {
                SpecificClaim::Claimed(run) => self.claimed(&run),
                SpecificClaim::Refused { status, class } => Answer::NotClaimed { status, class },
                SpecificClaim::Obstructed { .. } => Answer::Obstructed,
            },
            Command::ClaimOutside { by, claimant } => self.claim_outside(by, claimant),
            Command::Reject { run } => {
                let reference = self.reference(run);
                let condition = EndCondition::Rejected;
                let end = RunEnd { delay_secs: Some(0), condition, ..ending(RunEvent::Fail) };
                match self.ctx.store.end_run(&reference, &end).unwrap() {
                    EndResult::Recorded | EndResult::GivenUp => Answer::Recorded,
                    EndResult::Cancelled => Answer::RecordedAsCancelled,
                    EndResult::Lost { found } => Answer::Lost { found },
                }
            }
            Command::Heartbeat { run } => {
                let report = RunReport::default();
                Answer::IsOurs(self.ctx.store.renew_outside(&self.reference(run), &report, FAR_SECS).unwrap().is_some())
            }
            Command::EndRun { run, end } => self.end_run(&self.reference(run), &end),
            Command::EndWithWrongToken { run, end } => {
                self.end_run(&RunRef { id: self.runs[run], token: "forged".to_owned() }, &end)
            }
            Command::Report { run } => {
                let report = RunReport { percents_completed: Some(50), message: Some("half"), results: Some("[1]") };
                Answer::IsOurs(self.ctx.store.record_report(&self.reference(run), &report).unwrap())
            }
            Command::Process(handled) => self.process(handled),
            Command::Renew { runner, run } => {
                let (due, origin) = ([self.reference(run)], Origin::default());
                let renewal = self.ctx.store.renew_leases(&RenewalRequest {
                    runner_id: self.runners[runner],
                    due: &due,
                    fresh: &[],
                    lease_secs: FAR_SECS,
                    boot_ms: || Moment::now().millis(),
                    origin: &origin,
                });
                let renewal = renewal.unwrap();
                Answer::Renewed { is_registered: renewal.is_registered, is_lost: !renewal.lost.is_empty() }
            }
            Command::Register { who, slots } => self.register(who, slots),
            Command::FinishRunner { runner } => {
                Answer::Count(self.ctx.store.finish_runners(&[self.runners[runner]]).unwrap())
            }
            Command::SetLimit { limit } => match settings::set(&mut self.ctx, Setting::RunnerLimit, &limit.to_string())
            {
                Ok(_) => Answer::Done,
                Err(EngineError::Input(_)) => Answer::Refused,
                Err(error) => panic!("{error}"),
            },
            Command::ReleaseClass { class } => Answer::Count(classes::release(&mut self.ctx, CLASSES[class]).unwrap()),
            Command::LeaseOver { run } => {
                let id = self.runs[run];
                self.update("TaskQueueRuns", &format!("\"LeaseExpiresOn\" = {LONG_AGO}"), id.0)
            }
            Command::Silence { runner } => {
                let id = self.runners[runner];
                self.update(
                    "TaskQueueRunners",
                    &format!("\"HeartbeatOn\" = {LONG_AGO}, \"HeartbeatBootMs\" = NULL"),
                    id.0,
                )
            }
            Command::Pause { class } => {
                let (scope, mode) = (scope(class), PauseMode::Pause);
                pause(&mut self.ctx, PauseRequest { scope, mode, reason: String::new(), duration: None }).unwrap();
                Answer::Done
            }
            Command::Resume { class } => Answer::Count(usize::from(resume(&mut self.ctx, &scope(class)).unwrap())),
            Command::LimitClass { class, max_running, starts } => self.limit_class(class, max_running, starts),
            Command::LimitKey { key, max_running } => {
                let key = format!("l{key}");
                match max_running {
                    Some(max_running) => limits::set_key(&mut self.ctx, &KeyLimit { key, max_running }).unwrap(),
                    None => drop(limits::remove_key(&mut self.ctx, &key).unwrap()),
                }
                Answer::Done
            }
            Command::RetryTask { task } => {
                let mut is_retried = false;
                let mut hear = |answer: TaskAnswer| is_retried = answer.result.is_some();
                retry_tasks(&mut self.ctx, &[self.tasks[task]], &RetryOptions::default(), &mut hear).unwrap();
                if is_retried {
                    // The order of two current times is not defined in the model, which has no clock.
                    self.update_task(&format!("\"NextAttemptOn\" = NULL, \"ScheduledOn\" = {LONG_AGO}"), task);
                }
                Answer::Retried(is_retried)
            }
            Command::Cancel { task } => self.cancel(task),
            Command::Edit { task, priority, is_later } => {
                let when = self.instant(if is_later { When::Later } else { When::Past(0) });
                let change =
                    ChangeRequest { priority: Some(priority.into()), scheduled_on: when, ..ChangeRequest::default() };
                let edit = Edit { change, if_version: None };
                edit_tasks(&mut self.ctx, &[self.tasks[task]], &edit, &mut |_| {}).unwrap();
                Answer::Done
            }
            Command::CancelTask { task } => self.update_task("\"LastStatus\" = 'cancelled'", task),
            // The index refuses it if another task has its key.
            Command::GrantRetry { task } => {
                let id = self.tasks[task].0;
                let sql = format!(
                    "UPDATE \"TaskQueue\" SET \"RetryLimit\" = NULL, \"MaxRetries\" = \"FailedRetries\" + 1 WHERE \"Id\" = {id}"
                );
                if self.raw.try_execute(&sql).is_ok() { Answer::Done } else { Answer::Refused }
            }
            Command::MakeDue { task } => {
                self.update_task(&format!("\"NextAttemptOn\" = NULL, \"ScheduledOn\" = {LONG_AGO}"), task)
            }
        }
    }

    fn limit_class(&mut self, class: usize, max_running: Option<i32>, starts: Option<i32>) -> Answer {
        let class = CLASSES[class].to_owned();
        if max_running.is_none() && starts.is_none() {
            limits::remove(&mut self.ctx, &class).unwrap();
        } else {
            let rate = starts.map(|count| Rate { count, secs: 86_400 });
            limits::set(&mut self.ctx, &ClassLimit { class, max_running, rate }).unwrap();
        }
        Answer::Done
    }

    fn sql(&mut self, statement: &str) -> Answer {
        self.raw.execute(statement);
        Answer::Done
    }

    fn update(&mut self, table: &str, change: &str, id: i64) -> Answer {
        self.sql(&format!("UPDATE \"{table}\" SET {change} WHERE \"Id\" = {id}"))
    }

    fn update_task(&mut self, change: &str, task: usize) -> Answer {
        self.update("TaskQueue", change, self.tasks[task].0)
    }

    fn instant(&mut self, when: When) -> Option<DateTime<Utc>> {
        let in_2020 = DateTime::from_timestamp(1_577_836_800, 0).unwrap();
        match when {
            When::Past(secs) => Some(in_2020 + TimeDelta::seconds(secs.into())),
            When::Now => None,
            When::Later => Some(in_2020 + TimeDelta::days(365 * 1_000)),
        }
    }

    fn queue(&mut self, class: usize, request: TaskRequest) -> Answer {
        let request = TaskRequest { class: CLASSES[class].to_owned(), queued_by: "model".to_owned(), ..request };
        match queue_one(&mut self.ctx, request, ClassCheck::KnownHere) {
            // As after a retry.
            Ok((QueuedTask { id, arrival: Arrival::Replaced }, _)) => {
                self.update("TaskQueue", &format!("\"NextAttemptOn\" = NULL, \"ScheduledOn\" = {LONG_AGO}"), id.0)
            }
            Ok(_) => Answer::Done,
            Err(EngineError::Input(_) | EngineError::KeyTaken(_)) => Answer::Refused,
            Err(error) => panic!("{error}"),
        }
    }

    fn create_runs(&mut self) -> Answer {
        let report = create(&mut self.ctx);
        assert_eq!(report.rescue.stuck, Vec::<String>::new());
        let reason = |text: &str| {
            ["runner-died", "claimant-died", "lease-expired"].into_iter().find(|known| *known == text).unwrap()
        };
        let rescued: BTreeSet<_> =
            report.rescue.rescued.iter().map(|run| (self.number_of(run.run_id), reason(&run.reason))).collect();
        Answer::Created { rescued, finished_runners: report.finished_runners, created: report.created }
    }

    fn identity(&self, who: Who) -> ProcessIdentity {
        match who {
            Who::Alive => ProcessIdentity::own().unwrap(),
            Who::Dead => self.dead.clone(),
            Who::Elsewhere => {
                let boot_id = "00000000-0000-4000-8000-000000000000".to_owned();
                ProcessIdentity { boot_id, ..self.dead.clone() }
            }
        }
    }

    /// Claims a run; `Refused` also means that there was nothing to claim.
    fn claim(&mut self, claimant: Claimant, run: Option<usize>) -> SpecificClaim {
        let run = run.map(|run| self.runs[run]);
        let refused = SpecificClaim::Refused { status: String::new(), class: String::new() };
        self.with_claim(claimant, |store, claim, token| match run {
            Some(run) => store.claim_specific_run(run, claim, token).unwrap(),
            None => {
                let next = store.claim_next_run(claim, token).unwrap();
                next.map_or(refused, |run| SpecificClaim::Claimed(Box::new(run)))
            }
        })
    }

    fn start(&mut self, claimant: Claimant) -> Answer {
        // On a reused connection, the next claim begins where the last one ended for a while; on a new one it does not.
        let mut store = self.db.store();
        let mut started = self.with_claim(claimant, |_, claim, token| {
            store.claim_runs(claim, std::slice::from_ref(&token.to_owned())).unwrap().runs
        });
        self.look_up_ids();
        started.pop().map_or(Answer::NothingToClaim, |run| self.claimed(&run))
    }

    /// Claims with a token that is unique for this process, because a rescue ends processes by their token.
    fn with_claim<T>(&mut self, claimant: Claimant, act: impl FnOnce(&mut Store, &Claim<'_>, &str) -> T) -> T {
        self.claims += 1;
        let token = format!("model-{}-{}-{}", std::process::id(), self.db.engine.name(), self.claims);
        let identity = self.identity(claimant.who);
        let can = |class: &TaskClass| CLASSES.iter().zip(claimant.can).any(|(name, can)| can && class == *name);
        let claim = Claim {
            runner_id: RunnerId(1),
            runner_name: "one",
            process_id: identity.pid.into(),
            host: &self.ctx.me.host,
            process_identity: &identity.to_string(),
            classes: ClassSet::of(CLASSES, &can),
            lease_secs: FAR_SECS,
        };
        act(&mut self.ctx.store, &claim, &token)
    }

    fn claim_outside(&mut self, by: usize, claimant: Claimant) -> Answer {
        self.claims += 1;
        let secret = format!("model-{}-{}-{}", std::process::id(), self.db.engine.name(), self.claims);
        let identity = self.identity(claimant.who);
        let name = format!("c{by}");
        let host = self.ctx.me.host.clone();
        let can = |class: &TaskClass| CLASSES.iter().zip(claimant.can).any(|(name, can)| can && class == *name);
        let claim = OutsideClaim {
            claimant: &name,
            process: Some((identity.pid.into(), identity.to_string())),
            host: &host,
            classes: ClassSet::of(CLASSES, &can),
            choice: &TaskChoice::default(),
            secrets: &[secret],
            lease_secs: &|_, _| FAR_SECS,
            event: &|run| NewEvent {
                kind: "claimed",
                task_id: Some(run.task_id),
                run_id: Some(run.run_id),
                actor: name.clone(),
                host: host.clone(),
                details: serde_json::json!({}),
            },
        };
        let has_any = self.ctx.store.has_claimable_outside(&claim).unwrap();
        let claimed = self.ctx.store.claim_outside(&claim).unwrap();
        // There may have been only the run of a task that was cancelled meanwhile, which the claim ends.
        assert!(has_any || claimed.is_empty());
        claimed.first().map_or(Answer::NothingToClaim, |claimed| self.claimed(&claimed.run))
    }

    fn claimed(&mut self, claimed: &ClaimedRun) -> Answer {
        let run = self.number_of(claimed.run_id);
        self.tokens[run] = Some(claimed.token.clone());
        let task = self.tasks.iter().position(|id| *id == claimed.task_id).unwrap();
        Answer::Claimed { run, task, attempt: claimed.attempt, max_retries: claimed.max_retries.unwrap_or(5) }
    }

    fn number_of(&self, run: RunId) -> usize {
        self.runs.iter().position(|id| *id == run).unwrap_or_else(|| panic!("run {run} is unknown"))
    }

    fn reference(&self, run: usize) -> RunRef {
        // The token of a run that `process-run` claimed is unknown here.
        RunRef { id: self.runs[run], token: self.tokens[run].clone().unwrap_or_else(|| "unknown".to_owned()) }
    }

    fn end_run(&mut self, run: &RunRef, end: &End) -> Answer {
        let host = |is_here| if is_here { self.ctx.me.host.clone() } else { "elsewhere".to_owned() };
        let end = RunEnd {
            may_retry: end.may_retry,
            delay_secs: match end.delay {
                Delay::None => Some(0),
                Delay::Long => Some(FAR_SECS),
                Delay::Backoff => None,
            },
            backoff: Backoff::Exponential { base_secs: FAR_SECS, max_secs: 2 * FAR_SECS },
            crash: end.is_crash.then(|| Crash {
                limit: CRASH_LIMIT,
                actor: "model".to_owned(),
                host: self.ctx.me.host.clone(),
            }),
            hold: end.hold.map(|is_here| (host(is_here), FAR_SECS)),
            ..ending(end.event)
        };
        match self.ctx.store.end_run(run, &end).unwrap() {
            EndResult::Recorded | EndResult::GivenUp => Answer::Recorded,
            EndResult::Cancelled => Answer::RecordedAsCancelled,
            EndResult::Lost { found } => Answer::Lost { found },
        }
    }

    fn cancel(&mut self, task: usize) -> Answer {
        let event = NewEvent {
            kind: "cancelled",
            task_id: None,
            run_id: None,
            actor: "model".to_owned(),
            host: String::new(),
            details: serde_json::json!({}),
        };
        match self.ctx.store.cancel_tasks(&[self.tasks[task]], "a model", &event).unwrap().remove(0) {
            CancelAnswer::Cancelled => Answer::Cancelled,
            CancelAnswer::Requested { run_id, .. } => Answer::CancelRequested { run: self.number_of(run_id) },
            CancelAnswer::Refused { .. } => Answer::Refused,
            CancelAnswer::NoSuchTask => panic!("task {task} does not exist"),
        }
    }

    fn process(&mut self, handled: Handled) -> Answer {
        *self.handled.lock().unwrap() = handled;
        let report = process_one(&mut self.ctx);
        match report.limit_reached {
            Some((in_use, limit)) => Answer::LimitReached { in_use, limit },
            None => Answer::Processed { runs: report.processed, succeeded: report.succeeded },
        }
    }

    fn register(&mut self, who: Who, slots: i32) -> Answer {
        let identity = self.identity(who);
        let runner = NewRunner {
            process_id: identity.pid.into(),
            host: self.ctx.me.host.clone(),
            process_identity: identity.to_string(),
            slots,
            version: "model".to_owned(),
            name: String::new(),
            classes: ServedClasses::default(),
            boot_ms: || Moment::now().millis(),
        };
        match self.ctx.store.register_runner(&runner).unwrap() {
            Registration::Registered(_) => Answer::Registered,
            Registration::LimitReached { in_use, limit } => Answer::LimitReached { in_use, limit },
        }
    }

    /// Gives new rows the next numbers.
    fn look_up_ids(&mut self) {
        let mut ids = |table: &str| -> Vec<i64> {
            let found = self.raw.numbers(&format!("SELECT \"Id\" AS value FROM \"{table}\" ORDER BY \"Id\""));
            found.into_iter().flatten().collect()
        };
        self.tasks = ids("TaskQueue").into_iter().map(TaskId).collect();
        self.runs = ids("TaskQueueRuns").into_iter().map(RunId).collect();
        self.runners = ids("TaskQueueRunners").into_iter().map(RunnerId).collect();
        self.tokens.resize(self.runs.len(), None);
    }

    /// Returns the content of the tables, one line per row, in the format of [`state_of`].
    pub fn state(&mut self) -> Vec<String> {
        self.look_up_ids();
        let now = sql_now(self.db.engine, 0);
        // A batch start does not change the rows of the tasks.
        let run = "COALESCE(t.\"CurrentRunId\",
            (SELECT p.\"Id\" FROM \"TaskQueueRuns\" AS p WHERE p.\"OpenTaskId\" = t.\"Id\" AND p.\"Status\" = 'processing'), 0)";
        let is_marked = format!(
            "t.\"CurrentRunId\" IS NOT NULL OR t.\"LastStatus\" NOT IN ('scheduled', 'failed', 'timeout') OR {run} = 0"
        );
        let queries = [
            format!(
                "SELECT CONCAT('task ', CASE WHEN {is_marked} THEN \"LastStatus\" ELSE 'processing' END, ' ', \"Priority\", ' ',
                     \"FailedRetries\", '/', COALESCE(\"MaxRetries\", 5), ' crashed ', \"Crashes\",
                     CASE WHEN \"QuarantinedOn\" IS NULL THEN '' ELSE ' quarantined' END,
                     ' ', \"Attempts\", ' run ', (SELECT COUNT(*) FROM \"TaskQueueRuns\" AS r WHERE r.\"Id\" <= {run}),
                     ' waits for ', \"WaitingFor\",
                     CASE WHEN \"DueOn\" <= {now} AND ({is_marked}) THEN ' due' ELSE '' END) AS value
                 FROM \"TaskQueue\" AS t ORDER BY \"Id\""
            ),
            "SELECT CONCAT('run of ', (SELECT COUNT(*) FROM \"TaskQueue\" AS t WHERE t.\"Id\" <= r.\"TaskQueueId\"),
                 ' ', \"TaskClass\", ' ', \"Priority\", ' ', \"Attempt\", ' ', \"Status\", ' ', \"ErrorCode\",
                 CASE WHEN \"OpenTaskId\" IS NULL THEN '' ELSE ' open' END,
                 CASE WHEN \"HeldKey\" IS NULL THEN '' ELSE ' slot' END,
                 CASE WHEN \"CancelRequestedOn\" IS NULL THEN '' ELSE ' unwanted' END,
                 CASE WHEN \"LeaseExpiresOn\" IS NULL THEN '' ELSE ' leased' END,
                 CASE WHEN \"Claimant\" IS NULL THEN '' ELSE CONCAT(' by ', \"Claimant\") END) AS value
             FROM \"TaskQueueRuns\" AS r ORDER BY \"Id\""
                .to_owned(),
            "SELECT CONCAT('runner ', \"Slots\", CASE WHEN \"FinishedOn\" IS NULL THEN '' ELSE ' finished' END) AS value
             FROM \"TaskQueueRunners\" ORDER BY \"Id\""
                .to_owned(),
            "SELECT CONCAT('task ', (SELECT COUNT(*) FROM \"TaskQueue\" AS t WHERE t.\"Id\" <= x.\"TaskId\"), ' not for ', \"Claimant\",
             ' ', \"Timeouts\", CASE WHEN \"HeldUntil\" IS NULL THEN ' final' ELSE '' END) AS value
             FROM \"TaskQueueRejections\" AS x ORDER BY \"TaskId\", \"Claimant\""
                .to_owned(),
        ];
        queries.iter().flat_map(|sql| self.raw.texts(sql)).flatten().collect()
    }
}
