//! Rows written by SQL that name existing, missing and impossible processes: no process is signalled, no run stays open
//! forever, and nothing reaches a terminal uncleaned.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Stdio};

use super::campaign::{Campaign, Job, panic_text};
use super::database::EngineUnderTest;
use super::host::is_root;
use super::options::ENGINES;
use super::own_server::open_directory;
use super::rng::Rng;
use super::stage::Stage;
use super::wait::wait_until;

pub const CAMPAIGN: Campaign = Campaign {
    name: "forged-rows",
    what: "runs and runners that name PID 0, 1, innocents, nonsense, control characters; a handler that meddles",
    engines: &ENGINES,
    run,
};

/// Forged runs in one trial.
const ROWS: usize = 24;
/// Escape sequences, a bell, a line break, C1 controls, and characters that change the direction of text.
const NASTY: &str = "\u{1b}[31m\u{7}\r\nx\u{9b}2J\u{202e}\u{2066}\u{1b}]0;t\u{7}";

fn run(job: &Job<'_>) {
    for trial in job.trials(2, 30) {
        let Some(stage) = job.stage() else { return job.note("no server".to_owned()) };
        let mut rng = job.rng(trial);
        let forged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| forge(&stage, &mut rng)));
        job.count(*forged.as_ref().unwrap_or(&0));
        let found = forged.err().map(|panic| panic_text(&*panic));
        job.judge(trial, &stage, &found.into_iter().collect::<Vec<_>>());
    }
}

/// Returns how many rows were forged.
fn forge(stage: &Stage, rng: &mut Rng) -> usize {
    let folder = open_directory("innocents-");
    let mut innocents = vec![Innocent::start(folder.path(), "own", None)];
    if is_root() {
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        innocents.push(Innocent::start(folder.path(), "other", Some(65_534)));
    }
    for number in 0..ROWS {
        let (runner, runner_pid) = identity(rng, &innocents, true);
        let (handler, handler_pid) = identity(rng, &innocents, false);
        insert_run(stage, number, (&runner, runner_pid), (&handler, handler_pid));
        insert_runner(stage, &runner, runner_pid);
    }
    stage.execute("UPDATE \"TaskQueueSettings\" SET \"Value\" = '1000' WHERE \"Name\" = 'TaskQueueRunnerLimit'");
    insert_bad_class(stage);
    let honest = stage.queue("note");
    stage.queue("meddle");
    // While the leases are valid, and after that.
    for is_over in [false, true] {
        if is_over {
            let past = "'2020-01-01 00:00:00.000000'";
            stage.execute(&format!(
                "UPDATE \"TaskQueueRuns\" SET \"LeaseExpiresOn\" = {past} WHERE \"Status\" = 'processing'"
            ));
            stage.execute(&format!(
                "UPDATE \"TaskQueueRunners\" SET \"HeartbeatOn\" = {past} WHERE \"FinishedOn\" IS NULL"
            ));
        }
        for args in [&["create-runs"][..], &["process-run"], &["create-runs", "--json"], &["tick"]] {
            let call = stage.command(args).run();
            assert!(call.is_ok(), "{call:?}");
            is_clean(&call.stderr, args);
            is_clean(&call.stdout, args);
        }
        let id = honest.to_string();
        for args in [
            &["status"][..],
            &["status", "--json"],
            &["status", "1"],
            &["status", "2", "--json"],
            &["status", &id],
            &["class"],
        ] {
            let call = stage.command(args).run();
            assert!(call.is_ok(), "{call:?}");
            is_clean(&call.stdout, args);
            is_clean(&call.stderr, args);
        }
        for innocent in &mut innocents {
            innocent.is_unharmed();
        }
    }
    assert_eq!(
        stage.texts(&format!("SELECT \"LastStatus\" AS value FROM \"TaskQueue\" WHERE \"Id\" = {honest}")),
        ["success"]
    );
    assert_eq!(
        stage.number(
            "SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"TaskClass\" = 'a;id' AND \"QuarantinedOn\" IS NULL"
        ),
        0,
        "an invalid class name was not set aside"
    );
    assert_eq!(
        stage.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"ParentId\" IS NOT NULL"),
        0,
        "a handler has queued a task of a class that it may not queue"
    );
    let stuck =
        stage.texts("SELECT \"HandlerIdentity\" AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'processing'");
    // A handler that claims to be PID 1 can never be ended: it is reported each time, and blocks no other run.
    let init = identity_of(1);
    assert!(stuck.iter().all(|handler| *handler == init), "stuck runs: {stuck:?}");
    let open = stage.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL");
    let alive =
        innocents.iter().map(|innocent| identity_of(innocent.pid())).chain([init, identity_of(std::process::id())]);
    let alive: Vec<String> = alive.map(|identity| format!("'{identity}'")).collect();
    let excused = stage.number(&format!(
        "SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL AND \"ProcessIdentity\" IN ({})",
        alive.join(", ")
    ));
    assert_eq!(open, excused, "dead runners are still registered");
    ROWS * 2
}

/// Inserts a task with a class that no table accepts, as in a damaged store. On the servers that would need another table.
fn insert_bad_class(stage: &Stage) {
    if stage.engine == EngineUnderTest::Sqlite {
        stage.execute(
            "PRAGMA ignore_check_constraints = ON;
             INSERT INTO \"TaskQueue\" (\"TaskClass\", \"ScheduledOn\") VALUES ('a;id', '2020-01-01 00:00:00');
             PRAGMA ignore_check_constraints = OFF;",
        );
    }
}

/// Returns an identity, and a PID that may differ from it.
fn identity(rng: &mut Rng, innocents: &[Innocent], is_runner: bool) -> (String, i64) {
    let innocent = rng.pick(innocents);
    let real = identity_of(innocent.pid());
    let (head, ticks) = real.rsplit_once(':').unwrap();
    let ticks: u64 = ticks.parse().unwrap();
    let (view, pid) = head.rsplit_once(':').unwrap();
    let (boot, namespace) = view.rsplit_once(':').unwrap();
    let text = match rng.below(16) {
        // A living runner may be named as a runner; a living handler would correctly be ended.
        0 if is_runner => real.clone(),
        0 | 1 => format!("{head}:{}", ticks - 1),
        2 => identity_of(1),
        3 if is_runner => identity_of(std::process::id()),
        3 => format!("{view}:{}:{}", std::process::id(), 1),
        4 => format!("{view}:0:{ticks}"),
        5 => format!("{view}:-{pid}:{ticks}"),
        6 => format!("{view}:-1:1"),
        7 => format!("{view}:{}:1", i64::MAX),
        8 => format!("{boot}:{}:{pid}:{ticks}", namespace.parse::<u64>().unwrap() + 1),
        9 => format!("00000000-0000-4000-8000-000000000000:{namespace}:{pid}:{ticks}"),
        10 => NASTY.to_owned(),
        11 => format!("{head}:{}", "9".repeat(60)),
        12 => String::new(),
        13 => format!("{real}:0"),
        14 => format!("{view}:+{pid}:{ticks}"),
        _ => format!("{view}:{}:{ticks}", i32::MAX),
    };
    let pids =
        [0, 1, -1, innocent.pid().into(), -i64::from(innocent.pid()), i64::MAX, i64::MIN, std::process::id().into()];
    (text, *rng.pick(&pids))
}

fn insert_run(stage: &Stage, number: usize, runner: (&str, i64), handler: (&str, i64)) {
    let text = |text: &str| text_literal(stage, text);
    stage.execute(&format!(
        "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\", \"LastStatus\", \"QueuedById\") VALUES ('note', '{{}}', 'processing', {})",
        text(NASTY)
    ));
    stage.execute(&format!(
        "INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\", \"Status\", \"StartedOn\", \"Token\", \"LeaseExpiresOn\", \
         \"ProcessId\", \"ProcessIdentity\", \"HandlerProcessId\", \"HandlerIdentity\", \"Host\", \"ProgressMessage\") \
         SELECT MAX(\"Id\"), 'note', 'processing', '2020-01-01 00:00:00.000000', 'forged-{number}', '2199-01-01 00:00:00.000000', \
         {}, {}, {}, {}, {}, {} FROM \"TaskQueue\"",
        runner.1,
        text(runner.0),
        handler.1,
        text(handler.0),
        text(&format!("h{NASTY}")),
        text(NASTY),
    ));
}

fn insert_runner(stage: &Stage, identity: &str, pid: i64) {
    stage.execute(&format!(
        "INSERT INTO \"TaskQueueRunners\" (\"ProcessId\", \"Host\", \"ProcessIdentity\", \"Slots\") VALUES ({pid}, {}, {}, 1)",
        text_literal(stage, NASTY),
        text_literal(stage, identity),
    ));
}

fn text_literal(stage: &Stage, text: &str) -> String {
    match stage.engine {
        EngineUnderTest::Mariadb | EngineUnderTest::Mysql => {
            let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
            format!("CONVERT(UNHEX('{hex}') USING utf8mb4)")
        }
        _ => format!("'{text}'"),
    }
}

fn is_clean(text: &str, args: &[&str]) {
    let is_bad =
        |c: char| c.is_control() && c != '\n' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    assert!(!text.contains(is_bad), "{args:?} prints control characters: {text:?}");
}

/// Formats an identity like the program.
fn identity_of(pid: u32) -> String {
    use std::os::unix::fs::MetadataExt as _;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let namespace = std::fs::metadata("/proc/self/ns/pid").unwrap().ino();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let ticks = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
    format!("{}:{namespace}:{pid}:{ticks}", boot.trim())
}

/// A process that records every signal that can be caught.
struct Innocent {
    child: Child,
    heard: std::path::PathBuf,
}

impl Innocent {
    fn start(folder: &std::path::Path, name: &str, user: Option<u32>) -> Self {
        let (heard, ready, never) = (
            folder.join(format!("{name}-heard")),
            folder.join(format!("{name}-ready")),
            folder.join(format!("{name}-never")),
        );
        let script = "mkfifo \"$3\"; for s in HUP INT QUIT USR1 USR2 TERM CONT TSTP; do trap \"echo $s >>'$1'\" $s; done; : >\"$2\"; while :; do read x <>\"$3\"; done";
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", script, "sh"]).args([&heard, &ready, &never]).process_group(0);
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("an innocent process has set its traps", || ready.exists());
        Self { child, heard }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn is_unharmed(&mut self) {
        assert!(self.child.try_wait().unwrap().is_none(), "an innocent process was killed");
        assert!(!self.heard.exists(), "an innocent process was signalled: {:?}", std::fs::read_to_string(&self.heard));
    }
}

impl Drop for Innocent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
