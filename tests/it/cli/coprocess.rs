//! Classes with coprocesses: the rows of their runs, and what is left after a crash.

use rustix::process::Signal;
use serde_json::{Value, json};
use taskqueue_process::identities::identity::{Liveness, ProcessIdentity};

use super::unreadable::insert_unreadable;
use super::{detail, is_alive, printed, process, wait_for_file, write};
use crate::each_engine;
use crate::races::stage::{end_lease, statuses};
use crate::races::tools::freeze;
use crate::support::{EngineUnderTest, TestDb, wait_until};

const PRELUDE: &str = "import json, os, subprocess, sys, time\n\
    def say(**m): sys.stdout.write(json.dumps(m) + '\\n'); sys.stdout.flush()\n\
    def runs():\n for line in sys.stdin:\n  m = json.loads(line)\n  if m['type'] == 'run': yield m\n\
    def done(run, result=None): say(type='done', id=run['id'], result=result)\n";
const HELLO: &str = "say(type='hello', version=1)\n";

/// Returns the table of a class whose program is this script.
pub(super) fn kept(db: &TestDb, class: &str, script: &str) -> String {
    let path = write(db, &format!("{}.py", class.trim_matches('"')), format!("{PRELUDE}{script}"));
    format!("[class.{class}]\nargv = [\"/usr/bin/env\", \"python3\", {path:?}]\nprotocol = \"coprocess\"\n")
}

/// Writes its PID and that of another process that left its session to a file, and then works forever.
fn endless(db: &TestDb) -> String {
    let pids = db.home().join("pids");
    let script = format!(
        "{HELLO}for run in runs():\n child = subprocess.Popen(['setsid', 'sleep', '600'])\n \
         open({pids:?}, 'w').write(f'{{os.getpid()}} {{child.pid}}\\n')\n while True: time.sleep(600)\n"
    );
    kept(db, "kept", &script)
}

fn identity(pid: &str) -> ProcessIdentity {
    ProcessIdentity::of_pid(pid.parse().unwrap()).unwrap().unwrap()
}

/// Starts a run; returns its runner and the two processes of its coprocess.
fn start(db: &TestDb) -> (std::process::Child, [ProcessIdentity; 2]) {
    db.configure(&format!("{}kill_grace_secs = 0\nbackoff = \"fixed:0s\"\n", endless(db)));
    db.cli().run(&["queue", "kept"]).ok();
    db.cli().run(&["create-runs"]).ok();
    let runner = db.cli().spawn(&["process-run"]);
    let pids = wait_for_file(db, "pids");
    let (coprocess, child) = pids.split_once(' ').unwrap();
    let both = [identity(coprocess), identity(child)];
    let recorded = "SELECT \"HandlerIdentity\" AS value FROM \"TaskQueueRuns\"";
    wait_until("the coprocess is recorded", || db.text(recorded) == Some(both[0].to_string()));
    (runner, both)
}

fn result(detail: &Value) -> &Value {
    assert_eq!(detail["task"]["status"], "success", "{detail}");
    &detail["runs"][0]["results"]
}

each_engine! {
    fn data_and_class_names_reach_a_coprocess_as_messages_alone(db) {
        let script = format!("{HELLO}for run in runs(): done(run, [open('/proc/self/cmdline').read().split(chr(0))[:-1], run['class'], run['data']])\n");
        let class = kept(db, "\"work.*\"", &script);
        db.configure(&class);
        let data = json!("{class} $(id) --help\n{\"type\":\"drain\"}\u{2028}\u{1b}[2J");
        let id = db.cli().run(&["queue", "work.-la", &data.to_string()]).ok();
        let framed = |end: &str| {
            if db.is_mysql_like() { format!("CONCAT({end}(10), \"TaskData\", {end}(10))") } else { format!("{end}(10) || \"TaskData\" || {end}(10)") }
        };
        let framed = framed(if db.engine == EngineUnderTest::Postgres { "chr" } else { "char" });
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"TaskData\" = {framed}"));
        db.cli().run(&["tick"]).ok();
        let after = detail(db, &id);
        let [command, class, sent] = [0, 1, 2].map(|place| &result(&after)[place]);
        assert_eq!((class, sent), (&json!("work.-la"), &data));
        assert_eq!(command, &json!(["python3", db.home().join("work.*.py")]));
    }

    fn a_coprocess_gets_no_row_that_cannot_be_read(db) {
        db.configure(&kept(db, "echo", &format!("{HELLO}for run in runs(): done(run, 1)\n")));
        insert_unreadable(db);
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["tick"]).ok();
        let bad = detail(db, "1");
        assert_eq!((&bad["task"]["status"], &bad["runs"][0]["error_code"]), (&json!("failed"), &json!("unreadable")), "{bad}");
        assert_eq!(result(&detail(db, "2")), &json!(1));
    }

    fn one_process_works_for_all_runs_of_a_runner_and_ends_with_it(db) {
        db.configure(&kept(db, "kept", &format!("{HELLO}for run in runs(): done(run, os.getpid())\n")));
        let ids = [(); 5].map(|()| db.cli().run(&["queue", "kept"]).ok());
        assert_eq!(db.cli().run(&["tick"]).ok(), "");
        let details = ids.map(|id| detail(db, &id));
        let pid = result(&details[0]).to_string();
        for after in &details {
            assert_eq!(result(after).to_string(), pid);
            let run = &after["runs"][0];
            assert_eq!((run["decision"].as_str(), run["error_code"].as_str()), (Some("exit 0: success (default rule)"), Some("")));
            assert_eq!(run["handler_process_id"].to_string(), pid);
        }
        assert!(!is_alive(&pid));
        assert_ne!(result(&process(db, "kept", "1")).to_string(), pid, "another runner has another one");
    }

    fn what_a_coprocess_says_of_a_run_is_kept_with_that_run(db) {
        let script = format!("{HELLO}for run in runs():\n sys.stderr.write('said on the way\\n'); sys.stderr.flush()\n \
            say(type='progress', id=run['id'], progress=40, message='page 4')\n \
            say(type='fail', id=run['id'], exit=run['data'], error={{'code': 'smtp', 'message': 'busy'}}, result=[1])\n");
        db.configure(&kept(db, "kept", &script));
        for (exit, exhausted, status) in [("75", false, "failed"), ("65", true, "failed"), ("99", false, "scheduled")] {
            let id = db.cli().run(&["queue", "kept", exit]).ok();
            db.cli().run(&["create-runs"]).ok();
            db.cli().run(&["process-run", "--drain"]).ok();
            let after = detail(db, &id);
            let run = &after["runs"][0];
            assert_eq!((&after["task"]["status"], &after["task"]["is_exhausted"]), (&status.into(), &exhausted.into()), "{after}");
            assert_eq!((&run["error_code"], &run["error_message"]), (&"smtp".into(), &"busy".into()));
            assert_eq!((&run["percents_completed"], &run["progress_message"]), (&40.into(), &"page 4".into()));
            assert_eq!((&run["results"], printed(&after, "stderr")), (&json!([1]), "said on the way\n"));
            if status == "scheduled" {
                db.cli().run(&["cancel", &id]).ok();
            }
        }
    }

    fn a_coprocess_that_dies_is_replaced_and_fails_its_run_like_a_program(db) {
        let script = format!("{HELLO}for run in runs():\n if run['data'] == 'die': os.kill(os.getpid(), 11)\n \
            if run['data'] == 'leave': os._exit(0)\n done(run)\n");
        db.configure(&kept(db, "kept", &script));
        let ids = ["\"die\"", "1", "\"leave\"", "2"].map(|data| db.cli().run(&["queue", "kept", data]).ok());
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["process-run", "--drain"]).ok();
        let [died, _, left, _] = ids.each_ref().map(|id| detail(db, id));
        assert_eq!((&died["runs"][0]["error_code"], &died["task"]["crashes"]), (&"signal:11".into(), &1.into()), "{died}");
        assert_eq!((&left["runs"][0]["error_code"], &left["task"]["crashes"]), (&"no-answer".into(), &0.into()), "{left}");
        for id in [&ids[1], &ids[3]] {
            result(&detail(db, id));
        }
    }

    fn a_program_that_says_no_hello_holds_its_class(db) {
        db.configure(&kept(db, "kept", "sys.stderr.write('no such module\\n'); sys.exit(1)\n"));
        let after = process(db, "kept", "1");
        assert_eq!((&after["task"]["status"], &after["task"]["attempts"]), (&"scheduled".into(), &0.into()));
        let message = after["runs"][0]["error_message"].as_str().unwrap();
        assert!(message.contains("it ended with exit code 1 before its hello: no such module"), "{message}");
        let classes = db.cli().run(&["class"]).ok();
        assert!(classes.contains("coprocess") && classes.contains("held on "), "{classes}");
        let json: Value = serde_json::from_str(db.cli().run(&["class", "--json"]).ok().lines().next().unwrap()).unwrap();
        assert_eq!(json["kind"], "coprocess");
    }

    fn a_run_in_a_coprocess_is_cancelled_and_times_out_as_any_other(db) {
        let ready = db.home().join("ready");
        let script = format!("say(type='hello', version=1, capabilities=['cancel'])\nfor line in sys.stdin:\n m = json.loads(line)\n \
            if m['type'] == 'run': open({ready:?}, 'w').write('x\\n')\n \
            if m['type'] == 'cancel': say(type='fail', id=m['id'], result=[os.getpid(), m['reason']])\n");
        db.configure(&kept(db, "kept", &script));
        let id = db.cli().run(&["queue", "kept"]).ok();
        db.cli().run(&["queue", "kept", "--timeout", "1s"]).ok();
        db.cli().run(&["create-runs"]).ok();
        let runner = db.cli().spawn(&["process-run", "--drain"]);
        wait_for_file(db, "ready");
        db.cli().run(&["cancel", &id, "--reason", "not needed"]).ok();
        let _ = crate::support::cli::finish(runner);
        let (cancelled, late) = (detail(db, "1"), detail(db, "2"));
        assert_eq!((&cancelled["task"]["status"], &cancelled["runs"][0]["error_message"]), (&"cancelled".into(), &"not needed".into()));
        assert_eq!((&late["task"]["status"], &late["runs"][0]["results"][1]), (&"timeout".into(), &"timeout".into()), "{late}");
        assert_eq!(cancelled["runs"][0]["results"][1], "cancel");
        assert_eq!(cancelled["runs"][0]["results"][0], late["runs"][0]["results"][0], "another process took the run");
    }

    fn what_a_coprocess_of_a_dead_runner_leaves_is_ended_before_its_run_is(db) {
        let (mut runner, [coprocess, child]) = start(db);
        runner.kill().unwrap();
        runner.wait().unwrap();
        wait_until("the coprocess is dead, by its parent's death", || coprocess.liveness() == Liveness::Dead);
        assert_eq!(child.liveness(), Liveness::Alive, "it ended before the rescue");
        let ended = db.cli().run(&["create-runs", "--json"]).json();
        assert_eq!((&ended["rescued"][0]["reason"], &ended["rescued"][0]["ended_processes"]), (&"runner-died".into(), &1.into()));
        assert_eq!(child.liveness(), Liveness::Dead);
        assert_eq!(statuses(db), ["timeout", "scheduled"]);
    }

    fn a_coprocess_of_a_runner_stopped_past_its_lease_is_ended_before_its_run(db) {
        let (mut runner, [coprocess, child]) = start(db);
        freeze(db, &runner);
        end_lease(db);
        let ended = db.cli().run(&["create-runs", "--json"]).json();
        assert_eq!((&ended["rescued"][0]["reason"], &ended["rescued"][0]["ended_processes"]), (&"lease-expired".into(), &2.into()));
        assert_eq!((coprocess.liveness(), child.liveness()), (Liveness::Dead, Liveness::Dead));
        assert_eq!(statuses(db), ["timeout", "scheduled"]);
        runner.kill().unwrap();
        runner.wait().unwrap();
    }

    fn a_row_that_names_the_coprocess_of_another_runner_ends_nothing(db) {
        let (mut runner, both) = start(db);
        let forged = ProcessIdentity { start_ticks: 7, ..ProcessIdentity::own().unwrap() };
        db.execute(&format!("UPDATE \"TaskQueueRuns\" SET \"ProcessIdentity\" = '{forged}'"));
        db.cli().run(&["create-runs"]).ok();
        assert!(both.iter().all(|process| process.liveness() == Liveness::Alive));
        runner.kill().unwrap();
        runner.wait().unwrap();
        for process in both {
            let _ = taskqueue_process::identities::signalling::ProcessHandle::open(&process).unwrap().map(|handle| handle.signal(Signal::KILL));
        }
    }
}
