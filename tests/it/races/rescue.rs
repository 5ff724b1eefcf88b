//! A slow rescue, and what it must not touch meanwhile (rules R3 and R7).

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use taskqueue_domain::run::status::RunStatus;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_engine::upkeep::create_runs::create_runs;
use taskqueue_process::identities::identity::{Liveness, ProcessIdentity};
use taskqueue_process::identities::survivors::thread_name;

use super::stage::end_lease;
use crate::conformance::fixture::{claim_as, dead_process, ending, queue_with_run, reference, willing};
use crate::each_engine;
use crate::support::{EngineUnderTest, TestDb, wait_until};

/// Starts a shell in its own process group, with the token of a run if one is given.
fn shell(script: &str, token: Option<&str>) -> Child {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.env_remove("TASKQUEUE_RUN_TOKEN").envs(token.map(|token| ("TASKQUEUE_RUN_TOKEN", token)));
    command.spawn().unwrap()
}

fn identity(child: &Child) -> ProcessIdentity {
    ProcessIdentity::of_pid(child.id().try_into().unwrap()).unwrap().unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Claims a run for a process that is dead now.
fn claimed_by_the_dead(db: &TestDb) -> (TaskId, ClaimedRun) {
    let mut ctx = willing(db);
    let (task_id, _) = queue_with_run(&mut ctx, "work");
    (task_id, claim_as(&mut ctx.store, &dead_process()).unwrap())
}

/// The survivor of a run delays the rescue until a second run has succeeded. A process that the second run left running must
/// then be alive, unless ending the run took as long as the returned time.
fn end_while_a_rescue_waits(db: &TestDb, round: usize) -> Duration {
    let (_, first) = claimed_by_the_dead(db);
    let (second_task, second) = claimed_by_the_dead(db);
    let [ready, asked, go] = ["ready", "asked", "go"].map(|name| db.home().join(format!("{name}.{round}")));
    let script = format!(
        "trap ': > {}' TERM; : > {}; until test -e {}; do sleep 0.02; done",
        asked.display(),
        ready.display(),
        go.display()
    );
    let mut survivor = shell(&script, Some(&first.token));
    let daemon = shell("exec sleep 600", Some(&second.token));
    wait_until("the survivor has set its trap", || ready.exists());
    let mut store = db.store();
    let (report, took) = thread::scope(|scope| {
        let rescue = scope.spawn(|| create_runs(&mut willing(db), &mut |_| {}).unwrap());
        wait_until("the rescue has begun with the first run", || asked.exists());
        let started = fs::metadata(&asked).unwrap().modified().unwrap();
        store.end_run(&reference(&second), &ending(RunEvent::Succeed)).unwrap();
        let took = started.elapsed().unwrap_or_default();
        fs::write(&go, "").unwrap();
        survivor.wait().unwrap();
        (rescue.join().unwrap(), took)
    });
    let liveness = identity(&daemon).liveness();
    end(daemon);
    if took >= Duration::from_secs(1) {
        return took;
    }
    assert_eq!(liveness, Liveness::Alive);
    let rescued: Vec<_> = report.rescue.rescued.iter().map(|run| run.run_id).collect();
    assert_eq!((rescued, report.rescue.stuck.len()), (vec![first.run_id], 0));
    assert!(store.get_run(second.run_id).unwrap().status.is(RunStatus::Success));
    assert_eq!(store.get_task(second_task).unwrap().attempts, 1);
    took
}

/// Makes the tables refuse a timeout of the runs of this task, and later accept it again.
fn refuse_timeouts(db: &TestDb, task: TaskId, refuses: bool) {
    let allowed = format!("\"TaskQueueId\" <> {task} OR \"Status\" <> 'timeout'");
    let statements = match (db.engine, refuses) {
        // It cannot add a check to a table.
        (EngineUnderTest::Sqlite, true) => format!(
            "CREATE TABLE refused (n INTEGER CHECK (n = 0)); CREATE TRIGGER refusing BEFORE UPDATE ON \"TaskQueueRuns\" \
             WHEN NOT ({}) BEGIN INSERT INTO refused VALUES (1); END",
            allowed.replace('"', "").replace("TaskQueueId", "NEW.TaskQueueId").replace("Status", "NEW.Status")
        ),
        (EngineUnderTest::Sqlite, false) => "DROP TRIGGER refusing; DROP TABLE refused".to_owned(),
        (_, true) => format!("ALTER TABLE \"TaskQueueRuns\" ADD CONSTRAINT refusing CHECK ({allowed})"),
        (_, false) => "ALTER TABLE \"TaskQueueRuns\" DROP CONSTRAINT refusing".to_owned(),
    };
    db.execute(&statements);
}

each_engine! {
    fn a_run_whose_timeout_the_tables_refuse_keeps_no_other_from_its_rescue(db) {
        let (stubborn, _) = claimed_by_the_dead(db);
        let _ = claimed_by_the_dead(db);
        refuse_timeouts(db, stubborn, true);
        let ended = db.cli().run(&["create-runs"]);
        assert!(ended.stderr.contains("run 1: "), "{ended:?}");
        let of = |task: i64| db.text(&format!("SELECT \"Status\" AS value FROM \"TaskQueueRuns\" WHERE \"TaskQueueId\" = {task} ORDER BY \"Id\""));
        assert_eq!((of(1), of(2)), (Some("processing".to_owned()), Some("timeout".to_owned())));
        refuse_timeouts(db, stubborn, false);
        db.cli().run(&["create-runs"]).ok();
        assert_eq!(of(1), Some("timeout".to_owned()));
    }

    fn processes_left_by_a_success_survive_a_rescue_that_listed_its_run(db) {
        // The survivor of the first run has two seconds. If ending the second run took longer, the rescue may have reached it.
        let is_in_time = (0..20).any(|round| end_while_a_rescue_waits(db, round) < Duration::from_secs(1));
        assert!(is_in_time, "no end within a second");
    }

    fn a_runner_that_handles_the_run_itself_is_ended_without_its_pipeline(db) {
        let mut ctx = willing(db);
        queue_with_run(&mut ctx, "work");
        // Like an interactive shell starts a pipeline: the first program leads the group of all.
        let pid_file = db.home().join("tee");
        let begin = db.home().join("begin");
        let script = "sleep 600 & echo $! > PIDS; until test -s BEGIN; do sleep 0.02; done; exec \"$(cat BEGIN)\" 600";
        let script = script.replace("PIDS", pid_file.to_str().unwrap()).replace("BEGIN", begin.to_str().unwrap());
        let mut runner = shell(&script, None);
        let pid = || fs::read_to_string(&pid_file).unwrap_or_default().trim().parse().ok();
        wait_until("both have started", || pid().is_some());
        let tee = ProcessIdentity::of_pid(pid().unwrap()).unwrap().unwrap();
        let run = claim_as(&mut ctx.store, &identity(&runner)).unwrap();
        let recorded = identity(&runner).to_string();
        assert!(ctx.store.record_handler(&reference(&run), i64::from(runner.id()), &recorded).unwrap());
        end_lease(db);
        // A row alone does not cause a kill.
        let report = create_runs(&mut willing(db), &mut |_| {}).unwrap().rescue;
        assert_eq!((report.rescued.len(), report.rescued[0].ended_processes), (1, 0));
        assert!(runner.try_wait().unwrap().is_none());
        let mut ctx = willing(db);
        queue_with_run(&mut ctx, "work");
        let run = claim_as(&mut ctx.store, &identity(&runner)).unwrap();
        assert!(ctx.store.record_handler(&reference(&run), i64::from(runner.id()), &recorded).unwrap());
        end_lease(db);
        // A process with the thread name that only a runner sets is killed: here the program itself.
        let named = db.home().join(thread_name(&run.token));
        std::os::unix::fs::symlink("/bin/sleep", &named).unwrap();
        fs::write(db.home().join("begin.new"), named.to_str().unwrap()).unwrap();
        fs::rename(db.home().join("begin.new"), &begin).unwrap();
        let comm = format!("/proc/{}/comm", runner.id());
        wait_until("it has the name", || fs::read_to_string(&comm).unwrap().trim_end() == thread_name(&run.token));
        let rescue = thread::scope(|scope| {
            let rescue = scope.spawn(|| create_runs(&mut willing(db), &mut |_| {}).unwrap().rescue);
            runner.wait().unwrap();
            rescue.join().unwrap()
        });
        assert_eq!((rescue.rescued.len(), rescue.rescued[0].ended_processes), (1, 1));
        assert!(ctx.store.get_run(run.run_id).unwrap().status.is(RunStatus::Timeout));
        assert_eq!(tee.liveness(), Liveness::Alive);
        assert!(Command::new("kill").arg(tee.pid.to_string()).status().unwrap().success());
    }
}
