//! kill -9 during a handler, PIDs that another process has by then, and rows with wrong values (rules R4, R7, section 6 of the
//! design).

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use taskqueue_engine::handler::registry::HandlerRegistry;
use taskqueue_engine::upkeep::create_runs::create_runs;
use taskqueue_process::identities::identity::{Liveness, ProcessIdentity};
use taskqueue_process::identities::survivors::thread_name;

use super::stage::{Stage, column, end_lease, is_root, start_runner, statuses, task, wait_dead};
use super::tools::make_fifo;
use crate::conformance::fixture::dead_process;
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{TestDb, wait_until};

/// Kills its process when the test ends, also on failure.
struct Innocent(Child);

impl Innocent {
    /// Starts it in a separate group, like a handler; it records every signal that can be caught.
    fn start(db: &TestDb) -> Self {
        let heard = db.home().join("heard");
        let (fifo, ready) = (db.home().join("never"), db.home().join("ready"));
        make_fifo(&fifo);
        let script = format!(
            "for s in TERM HUP INT QUIT USR1 USR2 CONT; do trap \"echo $s >> '{}'\" $s; done; : > '{}'; while :; do read x < '{}'; done",
            heard.display(),
            ready.display(),
            fifo.display()
        );
        let child = Command::new("/bin/sh")
            .args(["-c", &script])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("the innocent process has set its traps", || ready.exists());
        Self(child)
    }

    fn identity(&self) -> ProcessIdentity {
        ProcessIdentity::of_pid(self.0.id().try_into().unwrap()).unwrap().unwrap()
    }

    #[track_caller]
    fn is_unharmed(&mut self, db: &TestDb) {
        assert!(self.0.try_wait().unwrap().is_none(), "an innocent process was killed");
        assert!(!db.home().join("heard").exists(), "an innocent process was signalled");
    }
}

impl Drop for Innocent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

each_engine! {
    fn without_a_backoff_the_second_lost_runner_makes_a_task_wait(db) {
        let stage = Stage::new(db, false);
        let config = db.home().join(".config/taskqueue/config.toml");
        let stated = fs::read_to_string(&config).unwrap();
        fs::write(&config, stated.replace("backoff = \"fixed:0s\"\n", "")).unwrap();
        let id = db.cli().run(&["queue", "stage"]).ok();
        for crashes in 1..=2 {
            stage.forget();
            let _ = db.cli().run(&["create-runs"]).ok();
            let (mut runner, handler) = start_runner(db, &stage);
            runner.kill().unwrap();
            runner.wait().unwrap();
            wait_dead("the handler, by its parent's death,", &handler);
            let _ = db.cli().run(&["create-runs"]).ok();
            let after = db.cli().run(&["status", "--json", &id]).json();
            assert_eq!(after["task"]["crashes"], crashes);
            assert_eq!(after["task"]["next_attempt_on"].is_null(), crashes == 1, "{after}");
        }
        assert_eq!(statuses(db), ["timeout", "timeout"]);
    }

    fn a_killed_runner_costs_one_retry_and_the_next_tick_runs_the_task_again(db) {
        let stage = Stage::new(db, false);
        let id = db.cli().run(&["queue", "stage"]).ok();
        let _ = db.cli().run(&["create-runs"]).ok();
        let (mut runner, handler) = start_runner(db, &stage);
        assert_eq!(task(db), ("processing".to_owned(), 0, 0));
        runner.kill().unwrap();
        runner.wait().unwrap();
        wait_dead("the handler, by its parent's death,", &handler);

        let ended = db.cli().run(&["create-runs", "--json"]).json();
        assert_eq!(ended["rescued"][0]["reason"], "runner-died");
        assert_eq!(ended["finished_runners"], 1);
        assert_eq!(column(db, "ErrorCode").as_deref(), Some(""), "the next run is there already");
        assert_eq!(statuses(db), ["timeout", "scheduled"]);
        assert_eq!(task(db), ("timeout".to_owned(), 1, 1));
        assert_eq!(stage.done(), "");

        let _go = stage.go();
        assert_eq!(db.cli().run(&["tick"]).ok(), "");
        assert_eq!(statuses(db), ["timeout", "success"]);
        assert_eq!(task(db), ("success".to_owned(), 0, 2));
        assert_eq!(stage.done(), "handler\n");
        let status = db.cli().run(&["status", "--json", &id]).json();
        let first = status["runs"].as_array().unwrap().iter().find(|run| run["status"] == "timeout").unwrap();
        assert_eq!(first["error_code"], "runner-died");
        assert!(!first["error_message"].as_str().unwrap().is_empty());
        assert!(first["cpu_secs"].is_null() && first["peak_memory_bytes"].is_null(), "{first}");
    }

    fn processes_outside_the_handler_group_ignoring_term_end_before_the_run(db) {
        let stage = Stage::new(db, true);
        let _ = db.cli().run(&["queue", "stage"]).ok();
        let _ = db.cli().run(&["create-runs"]).ok();
        let (mut runner, handler) = start_runner(db, &stage);
        let (session, daemon) = (stage.actor("session"), stage.actor("daemon"));
        runner.kill().unwrap();
        runner.wait().unwrap();
        wait_dead("the handler, by its parent's death,", &handler);
        assert_eq!(session.liveness(), Liveness::Alive, "it ended before the rescue");
        assert_eq!(daemon.liveness(), Liveness::Alive, "it ended before the rescue");

        let ended = db.cli().run(&["create-runs", "--json"]).json();
        assert_eq!(ended["rescued"][0]["ended_processes"], 2);
        assert_eq!(session.liveness(), Liveness::Dead);
        assert_eq!(daemon.liveness(), Liveness::Dead);
        assert_eq!(statuses(db), ["timeout", "scheduled"]);
        assert_eq!(task(db), ("timeout".to_owned(), 1, 1));

        stage.forget();
        let _go = stage.go();
        let _ = db.cli().run(&["tick"]).ok();
        assert_eq!(statuses(db), ["timeout", "success"]);
        assert!(!stage.done().is_empty());
    }

    fn a_runner_that_is_a_zombie_counts_as_dead(db) {
        let stage = Stage::with_run(db);
        let (mut runner, handler) = start_runner(db, &stage);
        runner.kill().unwrap();
        let stat = format!("/proc/{}/stat", runner.id());
        wait_until("the runner is a zombie", || fs::read_to_string(&stat).unwrap().contains(") Z "));
        let _ = db.cli().run(&["create-runs"]).ok();
        assert_eq!(handler.liveness(), Liveness::Dead);
        assert_eq!(statuses(db), ["timeout", "scheduled"]);
        assert!(fs::read_to_string(&stat).unwrap().contains(") Z "), "its parent has waited for it");
        runner.wait().unwrap();
    }

    fn an_innocent_process_with_reused_pids_of_runner_and_handler_survives(db) {
        let stage = Stage::with_run(db);
        let (mut runner, handler) = start_runner(db, &stage);
        runner.kill().unwrap();
        runner.wait().unwrap();
        wait_dead("the handler", &handler);
        let mut innocent = Innocent::start(db);
        // As if its PID had been the runner's and the handler's before.
        let earlier = ProcessIdentity { start_ticks: innocent.identity().start_ticks - 1, ..innocent.identity() };
        for table in ["TaskQueueRuns", "TaskQueueRunners"] {
            db.execute(&format!("UPDATE \"{table}\" SET \"ProcessId\" = {}, \"ProcessIdentity\" = '{earlier}'", earlier.pid));
        }
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"HandlerProcessId\" = {}, \"HandlerIdentity\" = '{earlier}'", earlier.pid));
        let ended = db.cli().run(&["create-runs", "--json"]).json();
        assert_eq!(ended["rescued"][0]["reason"], "runner-died");
        assert_eq!(ended["rescued"][0]["ended_processes"], 0);
        assert_eq!(ended["finished_runners"], 1);
        innocent.is_unharmed(db);
        assert_eq!(statuses(db), ["timeout", "scheduled"]);
        assert_eq!(task(db), ("timeout".to_owned(), 1, 1));
    }

    fn a_process_that_really_got_the_pid_of_a_dead_runner_survives(db) {
        let stage = Stage::with_run(db);
        // A separate PID namespace, in which the next PID can be chosen. The kernel counts start times in hundredths of a
        // second. The script waits for the next tick, because otherwise the runner and the other process would be the same
        // process. create-runs itself gets an unused PID.
        let script = r#"
            "$1" process-run & runner=$!
            until [ -e "$2/handler" ]; do :; done
            kill -9 $runner; wait $runner 2>/dev/null
            read then rest < /proc/uptime; now=$then
            while [ $now = $then ]; do read now rest < /proc/uptime; done
            while :; do
                echo $((runner - 1)) > /proc/sys/kernel/ns_last_pid
                sleep 1000 & innocent=$!
                [ $innocent = $runner ] && break
                kill $innocent; wait $innocent
            done
            echo 1000 > /proc/sys/kernel/ns_last_pid
            "$1" create-runs || exit 1
            kill -0 $innocent && grep -q sleep /proc/$innocent/comm && grep -q '(sleep) S' /proc/$innocent/stat &&
                echo "unharmed $runner"
            kill -9 $innocent
        "#;
        let stage_directory = stage.directory.to_str().unwrap();
        let unshare = if is_root() { "-pf" } else { "-Urpf" };
        let cli = db.cli().program(Path::new("/usr/bin/unshare"));
        let ended = cli.run(&[unshare, "--mount-proc", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_taskqueue"), stage_directory]);
        let said = ended.ok();
        let pid = said.strip_prefix("unharmed ").unwrap_or_else(|| panic!("{said}"));
        assert_eq!(statuses(db), ["timeout", "scheduled"]);
        assert_eq!(db.number("SELECT \"ProcessId\" AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'timeout'").to_string(), pid);
        assert_eq!(task(db), ("timeout".to_owned(), 1, 1));
    }

    fn rows_that_lie_about_a_process_cause_no_signal_and_wait_for_the_lease(db) {
        let _ = Stage::new(db, false);
        let mut innocent = Innocent::start(db);
        let real = innocent.identity();
        let first = ProcessIdentity::of_pid(1).unwrap().unwrap();
        let head = format!("{}:{}", real.boot_id, real.pid_namespace);
        let lies: Vec<(i64, String)> = vec![
            (0, format!("{head}:0:0")),
            (1, first.to_string()),
            (-i64::from(real.pid), format!("{head}:-{}:{}", real.pid, real.start_ticks)),
            (-1, format!("{head}:-1:1")),
            (i64::MAX, format!("{head}:{}:1", i64::MAX)),
            (i64::MIN, "\u{1F525}".repeat(40)),
            (i64::from(real.pid), String::new()),
            (i64::from(real.pid), ":::".to_owned()),
            (i64::from(real.pid), format!("{head}:{}:{}:0", real.pid, real.start_ticks)),
            (i64::from(real.pid), format!("{head}:+{}:{}", real.pid, real.start_ticks)),
            (i64::from(real.pid), format!("{head}:{}:{}", real.pid, "9".repeat(60))),
            (i64::from(real.pid), format!("{}:{}:1", "0".repeat(36), real.pid)),
        ];
        for (pid, identity) in &lies {
            insert_processing(db, *pid, identity);
        }
        let waiting = vec!["processing".to_owned(); lies.len()];
        let ended = db.cli().run(&["create-runs"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        assert_eq!(statuses(db), waiting);
        innocent.is_unharmed(db);

        end_lease(db);
        let ended = db.cli().run(&["create-runs"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(!ended.stderr.contains("panicked"), "{ended:?}");
        innocent.is_unharmed(db);
        assert!(!statuses(db).iter().any(|status| status == "processing"), "a wrong row is no evidence, and blocks none");
    }

    fn a_row_that_names_a_living_process_exactly_has_nobody_signalled(db) {
        let _ = Stage::new(db, false);
        let mut innocent = Innocent::start(db);
        let dead = {
            let mut child = Command::new("true").spawn().unwrap();
            let identity = ProcessIdentity::of_pid(child.id().try_into().unwrap()).unwrap().unwrap();
            child.wait().unwrap();
            identity
        };
        // A handler would lead a session; this process does not.
        for identity in [innocent.identity(), ProcessIdentity::of_pid(1).unwrap().unwrap()] {
            insert_processing(db, dead.pid.into(), &dead.to_string());
            db.execute(&format!(
                "UPDATE \"TaskQueueRuns\" SET \"HandlerProcessId\" = {}, \"HandlerIdentity\" = '{identity}' WHERE \"HandlerIdentity\" = '{dead}'",
                identity.pid
            ));
        }
        let ended = db.cli().run(&["create-runs", "--json"]).json();
        assert_eq!(ended["rescued"].as_array().unwrap().len(), 2);
        assert_eq!(ended["rescued"][0]["ended_processes"], 0);
        innocent.is_unharmed(db);
        // A session leader could be the handler: it is not killed, its run stays open, and a notice reports that.
        let (mut leader, identity) = session_leader();
        let pid = identity.pid;
        insert_processing(db, dead.pid.into(), &dead.to_string());
        db.execute(&format!(
            "UPDATE \"TaskQueueRuns\" SET \"HandlerProcessId\" = {pid}, \"HandlerIdentity\" = '{identity}' WHERE \"HandlerIdentity\" = '{dead}' AND \"Status\" = 'processing'"
        ));
        let ended = db.cli().run(&["create-runs"]);
        assert!(ended.stderr.contains(&format!("process {pid} is recorded as the handler")), "{ended:?}");
        assert_eq!(identity.liveness(), Liveness::Alive);
        assert_eq!(statuses(db).iter().filter(|status| *status == "processing").count(), 1);
        kill_leader(&mut leader, &identity);
        let _ = db.cli().run(&["create-runs"]).ok();
        assert!(!statuses(db).iter().any(|status| status == "processing"));
    }

    fn a_notice_is_sent_when_a_rescue_gives_up_and_the_run_is_rescued_later(db) {
        let log = db.home().join("notices.log");
        db.configure(&format!("[notify]\nlog = {log:?}\nevery_secs = 3600\n"));
        let told = || -> Vec<serde_json::Value> {
            let text = fs::read_to_string(&log).unwrap_or_default();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let dead = dead_process();
        let (mut leader, identity) = session_leader();
        insert_processing(db, dead.pid.into(), &dead.to_string());
        db.execute(&format!(
            "UPDATE \"TaskQueueRuns\" SET \"HandlerProcessId\" = {}, \"HandlerIdentity\" = '{identity}'",
            identity.pid
        ));
        // The second and the third attempt leave one notice, for which it is too early.
        for _ in 0..3 {
            assert_eq!(db.cli().run(&["create-runs"]).code, Some(0));
            assert_eq!(statuses(db), ["processing"]);
        }
        let notices = told();
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert_eq!((&notices[0]["kind"], &notices[0]["class"], &notices[0]["error_code"]), (&"stuck".into(), &"stage".into(), &"not-ended".into()));
        assert!(notices[0]["error_message"].as_str().unwrap().contains(&format!("process {} is recorded as the handler", identity.pid)), "{notices:?}");
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueNotices\" WHERE \"Kind\" = 'stuck'"), 1);
        kill_leader(&mut leader, &identity);
        let _ = db.cli().run(&["create-runs"]).ok();
        assert_eq!(statuses(db), ["timeout", "scheduled"]);
    }

    fn a_process_never_signals_itself_however_well_a_row_describes_it(db) {
        let own = ProcessIdentity::own().unwrap();
        insert_processing(db, own.pid.into(), &own.to_string());
        let mut ctx = db.context(HandlerRegistry::new());
        let report = create_runs(&mut ctx, &mut |_| {}).unwrap();
        assert_eq!((report.rescue.rescued.len(), report.rescue.stuck.len()), (0, 0), "this process is alive");
        end_lease(db);
        let report = create_runs(&mut ctx, &mut |_| {}).unwrap();
        assert_eq!((report.rescue.rescued.len(), report.rescue.stuck.len()), (1, 0), "a row alone is no evidence");
        // A thread of this process has the token of the run in its name: only killing this process could end it.
        let token = "0123456789abcdef0123456789abcdef";
        insert_processing(db, own.pid.into(), &own.to_string());
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"Token\" = '{token}' WHERE \"Status\" = 'processing'"));
        end_lease(db);
        let (go, waits) = std::sync::mpsc::channel::<()>();
        let named = std::thread::Builder::new().name(thread_name(token)).spawn(move || waits.recv()).unwrap();
        let comm = |entry: std::io::Result<fs::DirEntry>| fs::read_to_string(entry.unwrap().path().join("comm"));
        wait_until("the thread has its name", || {
            fs::read_dir("/proc/self/task").unwrap().any(|entry| comm(entry).is_ok_and(|name| name.trim_end() == thread_name(token)))
        });
        let report = create_runs(&mut ctx, &mut |_| {}).unwrap();
        assert_eq!((report.rescue.rescued.len(), report.rescue.stuck.len()), (0, 1));
        drop(go);
        let _ = named.join().unwrap();
    }

    fn a_run_of_another_host_is_rescued_by_its_lease_alone(db) {
        let _ = Stage::new(db, false);
        let mut innocent = Innocent::start(db);
        let here = innocent.identity();
        let elsewhere = [
            ProcessIdentity { boot_id: "00000000-0000-4000-8000-000000000000".to_owned(), ..here.clone() },
            ProcessIdentity { pid_namespace: here.pid_namespace + 1, ..here.clone() },
            // A PID without a process: it still belongs to the other host.
            ProcessIdentity { pid_namespace: here.pid_namespace + 1, pid: i32::MAX, ..here },
        ];
        for identity in &elsewhere {
            insert_processing(db, identity.pid.into(), &identity.to_string());
        }
        let _ = db.cli().run(&["create-runs"]).ok();
        assert_eq!(statuses(db), vec!["processing"; 3]);
        end_lease(db);
        let ended = db.cli().run(&["create-runs", "--json"]).json();
        let rescued = ended["rescued"].as_array().unwrap();
        assert_eq!(rescued.len(), 3);
        assert!(rescued.iter().all(|run| run["reason"] == "lease-expired" && run["ended_processes"] == 0));
        assert_eq!(statuses(db)[..3], ["timeout", "timeout", "timeout"]);
        innocent.is_unharmed(db);
    }

    fn dead_runners_give_up_their_slots_at_the_next_registration(db) {
        db.configure("[class.ok]\nargv = [\"/bin/true\"]\n");
        let mut dead = Command::new("/bin/true").stdin(Stdio::piped()).spawn().unwrap();
        let identity = ProcessIdentity::of_pid(dead.id().try_into().unwrap()).unwrap().unwrap();
        dead.wait().unwrap();
        let _ = db.cli().run(&["queue", "ok"]).ok();
        let _ = db.cli().run(&["create-runs"]).ok();
        for _ in 0..8 {
            insert_runner(db, &identity);
        }
        let _ = db.cli().run(&["process-run"]).ok();
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL"), 0);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\""), 9);
        assert_eq!(statuses(db), ["success"]);
        // Nor do they stay if there is no work.
        insert_runner(db, &identity);
        let _ = db.cli().run(&["process-run"]).ok();
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL"), 0);

        // Live runners keep their slots.
        let innocent = Innocent::start(db);
        for _ in 0..8 {
            insert_runner(db, &innocent.identity());
        }
        let _ = db.cli().run(&["queue", "ok"]).ok();
        let _ = db.cli().run(&["create-runs"]).ok();
        let ended = db.cli().run(&["process-run", "--drain"]);
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(0), "", ""));
        assert_eq!(statuses(db), ["success", "scheduled"]);
        db.execute(&format!(
            "UPDATE \"TaskQueueRunners\" SET \"ProcessIdentity\" = '{identity}' WHERE \"Id\" = (SELECT \"m\" FROM (SELECT MAX(\"Id\") AS \"m\" FROM \"TaskQueueRunners\") AS \"newest\")"
        ));
        let _ = db.cli().run(&["process-run", "--drain"]).ok();
        assert_eq!(statuses(db), ["success", "success"]);
    }

    fn a_living_runner_keeps_its_run_whatever_create_runs_does(db) {
        let stage = Stage::with_run(db);
        let (runner, handler) = start_runner(db, &stage);
        for _ in 0..3 {
            let ended = db.cli().run(&["create-runs"]);
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
        }
        assert_eq!(handler.liveness(), Liveness::Alive);
        let _go = stage.go();
        let _ = finish(runner).ok();
        assert_eq!(statuses(db), ["success"]);
    }
}

/// Starts a process that leads a session, like a handler, and its parent.
fn session_leader() -> (Child, ProcessIdentity) {
    let mut command = Command::new("setsid");
    let waiting = command.args(["--wait", "sleep", "1000"]).process_group(0).stdin(Stdio::null()).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", waiting.id());
    wait_until("it has a session of its own", || {
        fs::read_to_string(&children).is_ok_and(|pids| !pids.trim().is_empty())
    });
    let pid: i32 = fs::read_to_string(&children).unwrap().trim().parse().unwrap();
    wait_until("it sleeps", || fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n"));
    (waiting, ProcessIdentity::of_pid(pid).unwrap().unwrap())
}

fn kill_leader(waiting: &mut Child, leader: &ProcessIdentity) {
    let pid = rustix::process::Pid::from_raw(leader.pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    waiting.wait().unwrap();
}

/// Inserts a run that is in progress according to its row, with a valid lease.
fn insert_processing(db: &TestDb, pid: i64, identity: &str) {
    db.execute(
        "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\", \"LastStatus\") VALUES ('stage', '{}', 'processing')",
    );
    db.execute(&format!(
        "INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\", \"Status\", \"StartedOn\", \"Token\", \"LeaseExpiresOn\", \
             \"ProcessId\", \"ProcessIdentity\", \"HandlerProcessId\", \"HandlerIdentity\") \
         SELECT MAX(\"Id\"), 'stage', 'processing', '2020-01-01 00:00:00.000000', {token}, '2199-01-01 00:00:00.000000', \
             {pid}, '{identity}', {pid}, '{identity}' FROM \"TaskQueue\"",
        token = if db.is_mysql_like() {
            "CONCAT('forged-', MAX(\"Id\"))".to_owned()
        } else {
            "'forged-' || MAX(\"Id\")".to_owned()
        },
    ));
}

fn insert_runner(db: &TestDb, identity: &ProcessIdentity) {
    db.execute(&format!(
        "INSERT INTO \"TaskQueueRunners\" (\"ProcessId\", \"ProcessIdentity\") VALUES ({}, '{identity}')",
        identity.pid
    ));
}
