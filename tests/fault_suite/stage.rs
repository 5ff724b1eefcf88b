//! A store on one engine with its environment: audit triggers, a home with its configuration, the commands that were called,
//! the log of the handlers. Also completes all work and runs the oracle.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::audit;
use super::command::Command;
use super::database::{Database, EngineUnderTest, Raw};
use super::handlers;
use super::leftovers;
use super::oracle;
use super::records::{Call, Pause, Records};

/// Clean ticks after which everything must have finished.
const TICKS_TO_REST: usize = 8;
/// Runs of the class `brief` at once.
const BRIEF_AT_ONCE: i64 = 3;
/// Runs of the class `paced` that may start in a second.
const PACED_STARTS: i64 = 5;
/// Every runner of this program has one slot.
const OPEN_RUNNERS: &str = "SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL";

pub struct Stage {
    pub engine: EngineUnderTest,
    pub program: PathBuf,
    pub calls: RefCell<Vec<Call>>,
    /// See [`Records`]; both are for one trial.
    pub may_fail: Cell<bool>,
    pub expired: RefCell<Vec<i64>>,
    pub broken: RefCell<Vec<i64>>,
    pub outcomes_are_kept: Cell<bool>,
    pub may_overlap: RefCell<Vec<i64>>,
    stayed: RefCell<Vec<i64>>,
    pub pauses: RefCell<Vec<Pause>>,
    keeps_transitions: Cell<bool>,
    /// The prefix of every command, such as a command that enters another PID namespace; `under` replaces it.
    pub prefix: RefCell<Vec<String>>,
    /// Variables of every command.
    pub env: RefCell<Vec<(String, String)>>,
    /// For campaigns whose runs may be claimed by run id, out of order.
    pub is_order_free: bool,
    raw: RefCell<Raw>,
    begin: Marks,
    database: Database,
    home: tempfile::TempDir,
    /// Of other hosts, inside the home.
    other_homes: RefCell<Vec<PathBuf>>,
}

/// Where a trial began.
#[derive(Clone, Copy, Default)]
struct Marks {
    audit: i64,
    task: i64,
    run: i64,
    event: i64,
    effects: u64,
    slots: i64,
}

impl Stage {
    /// Creates a stage; `None` if the server of the engine is not available.
    pub fn new(engine: EngineUnderTest, program: &Path) -> Option<Self> {
        let stage = Self::without_tables(engine, program)?;
        let migrated = stage.command(&["db", "migrate"]).run();
        assert!(migrated.is_ok(), "{migrated:?}");
        stage.prepare_tables();
        Some(stage)
    }

    /// Creates a stage with an empty database, for campaigns about migrations, which call `prepare_tables` when there are
    /// tables.
    pub fn without_tables(engine: EngineUnderTest, program: &Path) -> Option<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let home = tempfile::tempdir().unwrap();
        let name = format!("tq_fault_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let database = Database::create(engine, home.path(), &name)?;
        Some(Self::around(engine, program, home, database))
    }

    /// Creates a stage with tables, on a server of the campaign.
    pub fn on_server(engine: EngineUnderTest, program: &Path, server: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("tq_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self::with_database(engine, program, tempfile::tempdir().unwrap(), Database::create_on(engine, server, &name))
    }

    /// Creates a stage with tables, in an existing database.
    pub fn with_database(engine: EngineUnderTest, program: &Path, home: tempfile::TempDir, database: Database) -> Self {
        let stage = Self::around(engine, program, home, database);
        let migrated = stage.command(&["db", "migrate"]).run();
        assert!(migrated.is_ok(), "{migrated:?}");
        stage.prepare_tables();
        stage
    }

    fn around(engine: EngineUnderTest, program: &Path, home: tempfile::TempDir, database: Database) -> Self {
        let config = home.path().join(".config/taskqueue");
        std::fs::create_dir_all(&config).unwrap();
        std::fs::write(config.join("config.toml"), handlers::configuration(home.path(), program, database.url()))
            .unwrap();
        std::fs::write(handlers::fault_file(home.path()), "\n").unwrap();
        let never = std::process::Command::new("mkfifo").arg(handlers::never_path(home.path())).status();
        assert!(never.unwrap().success());
        Self {
            engine,
            program: program.to_owned(),
            calls: RefCell::default(),
            may_fail: Cell::new(false),
            expired: RefCell::default(),
            broken: RefCell::default(),
            outcomes_are_kept: Cell::new(false),
            may_overlap: RefCell::default(),
            stayed: RefCell::default(),
            pauses: RefCell::default(),
            keeps_transitions: Cell::new(false),
            prefix: RefCell::default(),
            env: RefCell::default(),
            other_homes: RefCell::default(),
            is_order_free: false,
            raw: RefCell::new(database.raw()),
            begin: Marks::default(),
            database,
            home,
        }
    }

    /// Creates audit triggers, settings under which no retry waits, and a class with a limit.
    pub fn prepare_tables(&self) {
        let mut raw = self.raw.borrow_mut();
        audit::install(&mut raw, self.engine);
        for (name, value) in
            [("TaskQueueRetryDelay", 0), ("TaskQueueMaxRetries", 1_000), ("TaskQueueCrashLimit", 1_000_000)]
        {
            raw.execute(&format!("UPDATE \"TaskQueueSettings\" SET \"Value\" = '{value}' WHERE \"Name\" = '{name}'"));
        }
        raw.execute(&format!(
            "INSERT INTO \"TaskQueueClassLimits\" (\"TaskClass\", \"MaxRunning\", \"RateCount\", \"RateSecs\") VALUES \
             ('brief', {BRIEF_AT_ONCE}, NULL, NULL), ('paced', NULL, {PACED_STARTS}, 1)"
        ));
        if matches!(*raw, Raw::Sqlite(_)) {
            raw.execute("PRAGMA synchronous = OFF");
        }
    }

    /// Makes the program store every transition from here on, for the oracle to check. Before any command that makes one.
    pub fn keep_transitions(&self) {
        self.set_transitions(true);
        self.keeps_transitions.set(true);
    }

    /// Returns true if the oracle checks every transition.
    pub fn keeps_transitions(&self) -> bool {
        self.keeps_transitions.get()
    }

    /// Sets whether the program stores every transition; if the oracle checks them, they are stored in any case.
    pub fn set_transitions(&self, are_kept: bool) {
        let value = i32::from(are_kept || self.keeps_transitions.get());
        self.execute(&format!(
            "UPDATE \"TaskQueueSettings\" SET \"Value\" = '{value}' WHERE \"Name\" = 'TaskQueueAuditTransitions'"
        ));
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn url(&self) -> &str {
        self.database.url()
    }

    /// Creates the home of another host, with the same configuration.
    pub fn other_home(&self, name: &str) -> PathBuf {
        let home = self.home().join(name);
        let config = home.join(".config/taskqueue");
        std::fs::create_dir_all(&config).unwrap();
        std::fs::copy(self.home().join(".config/taskqueue/config.toml"), config.join("config.toml")).unwrap();
        let mut others = self.other_homes.borrow_mut();
        if !others.contains(&home) {
            others.push(home.clone());
        }
        home
    }

    /// Sets the shortest leases that the settings allow, or longer ones in the same proportion.
    pub fn shorten_leases(&self, lease_secs: u32) {
        for (name, value) in [("Renewal", 1), ("Margin", lease_secs / 4), ("Time", lease_secs)] {
            self.execute(&format!(
                "UPDATE \"TaskQueueSettings\" SET \"Value\" = '{value}' WHERE \"Name\" = 'TaskQueueLease{name}'"
            ));
        }
    }

    /// Reconnects after the server was down.
    pub fn reconnect(&self) {
        self.raw.replace(self.database.raw());
    }

    /// Returns the column `value` of every row, as text.
    pub fn texts(&self, sql: &str) -> Vec<String> {
        self.raw.borrow_mut().texts(sql).into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Opens another connection.
    pub fn connect(&self) -> Raw {
        self.database.raw()
    }

    pub fn execute(&self, sql: &str) {
        self.raw.borrow_mut().execute(sql);
    }

    /// Returns the first value of a query whose column is named `value`.
    pub fn number(&self, sql: &str) -> i64 {
        self.raw.borrow_mut().numbers(sql).into_iter().next().flatten().unwrap_or_default()
    }

    /// Returns the program with this store and this home.
    pub fn command<'a>(&'a self, args: &[&str]) -> Command<'a> {
        Command::new(self, args)
    }

    /// Queues a task of the class, without faults, and returns its id.
    pub fn queue(&self, class: &str) -> i64 {
        self.queue_with(class, if class == "fail" { &["--max-retries", "2"] } else { &[] })
    }

    /// Queues a task with these options.
    pub fn queue_with(&self, class: &str, options: &[&str]) -> i64 {
        let marker = self.marker();
        let data = format!("{{\"m\":\"{marker}\"}}");
        let call = self.command(&[&["queue", class, &data], options].concat()).queues(&marker, 1).run();
        *call.ids.first().unwrap_or_else(|| panic!("nothing was queued: {call:?}"))
    }

    /// Returns a text that no other task has in its data.
    pub fn marker(&self) -> String {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        format!("marker-{}.", COUNT.fetch_add(1, Ordering::Relaxed))
    }

    /// Ends the lease of every run in progress, as time would. Returns false if its row is locked by a command that was stopped
    /// during a transaction.
    pub fn end_leases(&self) -> bool {
        let mut raw = self.connect();
        let patience = match raw {
            Raw::Sqlite(_) => "PRAGMA busy_timeout = 200",
            Raw::Postgres(_) => "SET lock_timeout = '200ms'",
            Raw::Mysql(_) => "SET SESSION innodb_lock_wait_timeout = 1, SESSION lock_wait_timeout = 1",
        };
        raw.execute(patience);
        let ended = raw.try_execute(
            "UPDATE \"TaskQueueRuns\" SET \"LeaseExpiresOn\" = '2020-01-01 00:00:00.000000' WHERE \"Status\" = 'processing'",
        );
        // A LOCK TABLES … WRITE of MySQL also blocks readers.
        if ended.is_ok() {
            let runs = audit::runs(&mut raw, self.begin.run);
            let holders = runs.iter().filter(|run| run.status == "processing").map(|run| run.process_id);
            self.expired.borrow_mut().extend(holders);
        }
        ended.is_ok()
    }

    /// Begins a new trial; later records belong to it.
    pub fn begin_trial(&mut self) {
        self.calls.borrow_mut().clear();
        self.expired.borrow_mut().clear();
        self.broken.borrow_mut().clear();
        self.may_fail.set(false);
        self.outcomes_are_kept.set(false);
        self.may_overlap.borrow_mut().clear();
        self.stayed.borrow_mut().clear();
        self.pauses.borrow_mut().clear();
        let raw = self.raw.get_mut();
        self.begin = Marks {
            audit: audit::newest(raw, "FaultAudit", "At"),
            task: audit::newest(raw, "TaskQueue", "Id"),
            run: audit::newest(raw, "TaskQueueRuns", "Id"),
            event: audit::newest(raw, "TaskQueueEvents", "Id"),
            effects: std::fs::metadata(handlers::effects_path(self.home.path())).map_or(0, |file| file.len()),
            slots: raw.numbers(OPEN_RUNNERS)[0].unwrap_or(0),
        };
    }

    /// Runs clean ticks until nothing is open any more. The oracle reports what is still open then.
    pub fn settle(&self) {
        for _ in 0..TICKS_TO_REST {
            if self.tick_to_rest() {
                return;
            }
        }
    }

    /// Like `settle`, if something waits for the end of a lease or for a clock.
    pub fn settle_within(&self, limit: Duration) {
        let started = Instant::now();
        while !self.tick_to_rest() && started.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn tick_to_rest(&self) -> bool {
        // A class whose handler could not be started would wait for an operator.
        self.execute("DELETE FROM \"TaskQueueClassHolds\"");
        let newest = self.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueueRunners\"");
        let tick = self.command(&["tick"]).run();
        if !tick.is_ok() {
            return false;
        }
        // The next tick would consider it dead, so that the error would go unnoticed.
        let own = format!("{OPEN_RUNNERS} AND \"Id\" > {newest} AND \"ProcessId\" = {}", tick.pid);
        if self.number(&own) > 0 {
            self.stayed.borrow_mut().push(tick.pid);
        }
        self.is_at_rest()
    }

    /// Returns true if every task and every runner has finished.
    pub fn is_at_rest(&self) -> bool {
        let open = "SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" NOT IN ('success', 'cancelled') AND \"FailedRetries\" < COALESCE(\"RetryLimit\", \"MaxRetries\", 1000001)
            AND COALESCE(\"ScheduleHead\", '') <> 'paused' AND NOT (COALESCE(\"ScheduleHead\", '') = 'waiting' AND \"ScheduledOn\" > CURRENT_TIMESTAMP)";
        self.number(open) == 0 && self.number(OPEN_RUNNERS) == 0
    }

    /// Returns the records since the trial began.
    pub fn records(&self) -> Records {
        let mut raw = self.raw.borrow_mut();
        let runs = audit::runs(&mut raw, self.begin.run);
        let tokens: Vec<String> = runs.iter().map(|run| run.token.clone()).filter(|token| !token.is_empty()).collect();
        Records {
            calls: self.calls.borrow().clone(),
            effects: handlers::read(self.home(), self.begin.effects),
            audit: audit::changes(&mut raw, self.begin.audit),
            tasks: audit::tasks(&mut raw, self.begin.task),
            runs,
            keys: audit::keys(&mut raw, self.begin.task),
            dependencies: audit::dependencies(&mut raw, self.begin.task),
            open_runners: raw.numbers(OPEN_RUNNERS)[0].unwrap_or(0),
            class_limits: audit::class_limits(&mut raw),
            class_rates: audit::class_rates(&mut raw),
            pauses: self.pauses.borrow().clone(),
            transitions: self.keeps_transitions.get().then(|| audit::transitions(&mut raw, self.begin.event)),
            limit_keys: audit::limit_keys(&mut raw, self.begin.task),
            runner_limit: raw
                .texts("SELECT \"Value\" AS value FROM \"TaskQueueSettings\" WHERE \"Name\" = 'TaskQueueRunnerLimit'")
                [0]
            .as_ref()
            .map_or(0, |limit| limit.parse().unwrap()),
            slots_before: self.begin.slots,
            survivors: leftovers::processes(&tokens, &handlers::effects_path(self.home())),
            left_files: self.left_files(),
            late_runs: raw
                .numbers("SELECT \"RunId\" AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'late-result'")
                .into_iter()
                .flatten()
                .collect(),
            integrity: integrity(&mut raw),
            retried: audit::with_events(&mut raw, &["retried", "replaced"], self.begin.task),
            cancelled: audit::with_events(&mut raw, &["cancelled", "cancel-requested"], self.begin.task),
            failing_classes: vec!["fail".to_owned()],
            coprocess_classes: handlers::COPROCESSES.map(str::to_owned).to_vec(),
            may_fail: self.may_fail.get(),
            expired: self.expired.borrow().clone(),
            broken: self.broken.borrow().clone(),
            outcomes_are_kept: self.outcomes_are_kept.get(),
            may_overlap: self.may_overlap.borrow().clone(),
            stayed: self.stayed.borrow().clone(),
            told: self.told(&mut raw),
            is_order_free: self.is_order_free,
        }
    }

    /// Returns the reported tasks: in the file, or in a notice that was not sent yet.
    fn told(&self, raw: &mut Raw) -> Vec<i64> {
        let lines = std::fs::read_to_string(handlers::notices_path(self.home())).unwrap_or_default();
        let notices = lines.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let told = notices.filter_map(|notice| notice["task_id"].as_i64());
        let waiting = raw.numbers("SELECT \"TaskQueueId\" AS value FROM \"TaskQueueNotices\"");
        told.chain(waiting.into_iter().flatten()).collect()
    }

    fn left_files(&self) -> Vec<String> {
        let others = self.other_homes.borrow();
        std::iter::once(self.home()).chain(others.iter().map(PathBuf::as_path)).flat_map(leftovers::files).collect()
    }

    /// Returns the violations of the trial.
    pub fn check(&self) -> Vec<String> {
        oracle::violations(&self.records())
    }

    /// Saves the home, the store and the records of this trial in a directory.
    pub fn keep(&self, directory: &Path, violations: &[String]) {
        std::fs::create_dir_all(directory).unwrap();
        let copied = std::process::Command::new("cp").arg("-a").arg(self.home()).arg(directory.join("home")).status();
        assert!(copied.unwrap().success());
        std::fs::write(directory.join("records.txt"), format!("{:#?}\n", self.records())).unwrap();
        std::fs::write(directory.join("violations.txt"), violations.join("\n") + "\n").unwrap();
    }
}

/// Checks a SQLite file; servers check their own.
fn integrity(raw: &mut Raw) -> Vec<String> {
    if !matches!(raw, Raw::Sqlite(_)) {
        return Vec::new();
    }
    let answers = raw.texts("SELECT integrity_check AS value FROM pragma_integrity_check");
    answers.into_iter().flatten().filter(|answer| answer != "ok").collect()
}
