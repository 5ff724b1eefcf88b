//! What a running `taskqueue work` reloads: its configuration at HUP, and the settings of the store.

use std::io::{BufRead as _, BufReader};
use std::process::Child;

use rustix::process::Signal;

use super::settings::forge_setting;
use super::{ECHO, detail, is_alive, printed, shell_class, signal, task, wait_for_file, write};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{Cli, TestDb, wait_until};

const TAKEN: &str = "the configuration was reloaded";

/// A worker and its messages.
struct Worker {
    child: Child,
    said: Box<dyn Iterator<Item = String>>,
}

impl Worker {
    fn start(db: &TestDb, arguments: &[&str]) -> Self {
        Self::start_by(db, &db.cli(), arguments)
    }

    /// Starts a worker and waits until it is registered: then it handles signals.
    fn start_by(db: &TestDb, cli: &Cli, arguments: &[&str]) -> Self {
        let mut child = cli.spawn(&[&["work"], arguments].concat());
        let live = "SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL";
        wait_until("the worker is registered", || db.number(live) == 1);
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, said: Box::new(lines.map(Result::unwrap)) }
    }

    /// Reloads its configuration, and returns its message about that.
    #[track_caller]
    fn reload(&mut self) -> String {
        signal(&self.child, Signal::HUP);
        self.said.next().unwrap()
    }

    /// Ends it, and returns its other messages.
    #[track_caller]
    fn end(self) -> Vec<String> {
        signal(&self.child, Signal::TERM);
        let said = self.said.collect();
        assert_eq!(finish(self.child).code, Some(0), "{said:?}");
        said
    }
}

/// The worker prints no final failures.
const SILENT: &str = "[notify]\nstderr = false\n";

fn done(db: &TestDb, id: &str, status: &str) {
    wait_until(&format!("task {id} is {status}"), || task(db, id)["status"] == status);
}

/// Inserts a task as applications do, which needs no configuration.
fn insert(db: &TestDb, class: &str) {
    db.execute(&format!("INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES ('{class}')"));
}

each_engine! {
    fn new_runs_use_the_new_configuration_and_begun_runs_end_by_the_old(db) {
        let script = format!("cd {}; echo $V; echo $V > started-$V; until [ -e go ]; do sleep 0.01; done; exit 7", db.home().display());
        let slow = shell_class(db, "slow", &script);
        let hook = write(db, "hook.sh", format!("cd {}; echo told > hooked", db.home().display()));
        db.configure(&format!("{SILENT}{slow}env = {{ V = \"old\" }}\nexit = {{ success = [7] }}\n"));
        db.cli().run(&["queue", "slow"]).ok();
        let mut worker = Worker::start(db, &["--slots", "2"]);
        wait_for_file(db, "started-old");
        db.configure(&format!("{SILENT}[hooks]\nsuccess = [\"/bin/sh\", {hook:?}]\n{ECHO}{slow}env = {{ V = \"new\" }}\n"));
        assert_eq!(worker.reload(), TAKEN);
        // A new class and a new hook.
        db.cli().run(&["queue", "echo"]).ok();
        done(db, "2", "success");
        assert_eq!(wait_for_file(db, "hooked"), "told");
        db.cli().run(&["queue", "slow", "--max-retries", "1"]).ok();
        wait_for_file(db, "started-new");
        assert_eq!(task(db, "1")["status"], "processing");
        write(db, "go", "");
        // The meaning of this exit code has changed.
        done(db, "1", "success");
        done(db, "3", "failed");
        assert_eq!(printed(&detail(db, "1"), "stdout"), "old\n");
        assert_eq!(printed(&detail(db, "3"), "stdout"), "new\n");
        let runners = "SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL AND \"Slots\" = 2";
        assert_eq!((db.number(runners), db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRunners\"")), (1, 1));
        assert_eq!(worker.end(), Vec::<String>::new());
    }

    fn a_configuration_that_is_wrong_is_not_taken(db) {
        db.configure(ECHO);
        let mut worker = Worker::start(db, &[]);
        db.cli().run(&["queue", "echo"]).ok();
        done(db, "1", "success");
        db.configure("[class.other]\nargv = [\"/bin/cat\"]\nnonsense = 1\n");
        let said = worker.reload();
        let told = "warning: the new configuration was not applied, the old one remains: ";
        assert!(said.starts_with(told) && said.contains("unknown key `nonsense`"), "{said}");
        insert(db, "echo");
        wait_until("the old one stays", || db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success'") == 2);
        db.configure(&format!("spool = \"/tmp/elsewhere\"\nwork_slots = 5\n{ECHO}"));
        assert_eq!(worker.reload(), "warning: changes of spool and work_slots take effect at the next start");
        assert_eq!(worker.said.next().as_deref(), Some(TAKEN));
        assert_eq!(worker.end(), Vec::<String>::new());
    }

    fn a_configuration_that_came_through_a_pipe_stays(db) {
        db.configure(ECHO);
        let file = db.home().join(".config/taskqueue/config.toml");
        let given = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let mut worker = Worker::start_by(db, &db.cli().stdin(given), &["--config", "/dev/stdin"]);
        insert(db, "echo");
        done(db, "1", "success");
        let said = worker.reload();
        let told = "warning: the new configuration was not applied, the old one remains: ";
        assert!(said.starts_with(told) && said.contains("/dev/stdin: it is not a regular file"), "{said}");
        insert(db, "echo");
        done(db, "2", "success");
        assert_eq!(worker.end(), Vec::<String>::new());
    }

    fn a_reload_keeps_the_coprocesses_of_unchanged_classes_and_ends_others(db) {
        let script = write(db, "kept.py", "import json, os, sys\n\
            def say(**m): sys.stdout.write(json.dumps(m) + '\\n'); sys.stdout.flush()\n\
            say(type='hello', version=1)\n\
            for line in sys.stdin:\n m = json.loads(line)\n if m['type'] == 'run': say(type='done', id=m['id'], result=os.getpid())\n");
        let class = |name: &str, more: &str| {
            format!("[class.{name}]\nargv = [\"/usr/bin/env\", \"python3\", {script:?}]\nprotocol = \"coprocess\"\n{more}")
        };
        db.configure(&[class("same", ""), class("changed", ""), class("removed", "")].concat());
        let mut worker = Worker::start(db, &[]);
        let pid = |class: &str| {
            let id = db.cli().run(&["queue", class]).ok();
            done(db, &id, "success");
            detail(db, &id)["runs"][0]["results"].to_string()
        };
        let [same, changed, removed] = ["same", "changed", "removed"].map(pid);
        db.configure(&[class("same", ""), class("changed", "env = { V = \"2\" }\n")].concat());
        assert_eq!(worker.reload(), TAKEN);
        wait_until("the others end", || !is_alive(&changed) && !is_alive(&removed));
        insert(db, "removed");
        assert_eq!(pid("same"), same);
        assert_ne!(pid("changed"), changed);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"TaskClass\" = 'removed' AND \"LastStatus\" = 'scheduled'"), 1);
        assert_eq!(worker.end(), Vec::<String>::new());
        assert!(!is_alive(&same));
    }

    fn how_long_runs_may_go_on_after_a_signal_is_read_again(db) {
        let script = format!("cd {}; echo started > started; exec sleep 600", db.home().display());
        let slow = shell_class(db, "slow", &script);
        db.configure(&format!("stop_wait_secs = 30\n{slow}"));
        db.cli().run(&["queue", "slow"]).ok();
        let mut worker = Worker::start(db, &["--slots", "2"]);
        wait_for_file(db, "started");
        db.configure(&format!("stop_wait_secs = 0\n{slow}"));
        assert_eq!(worker.reload(), TAKEN);
        assert_eq!(worker.end(), Vec::<String>::new(), "there were other messages");
        assert_eq!(db.text("SELECT \"Status\" AS value FROM \"TaskQueueRuns\"").as_deref(), Some("released"));
    }

    fn a_reload_reads_the_settings_again_and_names_invalid_ones(db) {
        db.configure(&format!("{SILENT}{ECHO}{}", shell_class(db, "slow", "exec sleep 600")));
        let mut worker = Worker::start(db, &[]);
        db.cli().run(&["setting", "set", "TaskQueueRunTimeout", "1"]).ok();
        assert_eq!(worker.reload(), TAKEN);
        let id = db.cli().run(&["queue", "slow", "--max-retries", "1"]).ok();
        done(db, &id, "timeout");
        forge_setting(db, "TaskQueueRunTimeout", "soon");
        assert_eq!(worker.reload(), TAKEN);
        let said = worker.said.next().unwrap();
        assert_eq!(said, "warning: TaskQueueRunTimeout is \"soon\", not a whole number from 1 to 31536000; 86400 is used in its place");
        insert(db, "echo");
        wait_until("it goes on", || db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" = 'success'") == 1);
        assert_eq!(worker.end(), Vec::<String>::new());
    }

    fn settings_that_were_changed_are_noticed_without_a_word(db) {
        let script = "[ $(( $(date -d $TASKQUEUE_DEADLINE +%s) - $(date +%s) )) -lt 1000 ]";
        db.configure(&shell_class(db, "short", script));
        let worker = Worker::start(db, &[]);
        let is_short = || db.cli().run(&["queue", "short", "--max-retries", "1", "--wait"]).code == Some(0);
        assert!(!is_short());
        db.cli().run(&["setting", "set", "TaskQueueRunTimeout", "60"]).ok();
        wait_until("it is noticed", is_short);
        worker.end();
    }
}
