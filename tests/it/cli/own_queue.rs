//! The queue of a handler: commands that its runner executes for it.

use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde_json::{Value, json};

use super::{count_tasks, detail, is_alive, printed, process, signal, task, wait_for_file, write};
use crate::each_engine;
use crate::support::{EngineUnderTest, TestDb, db, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_taskqueue");

/// The class `order`, whose shell script calls the program, and classes that it may and may not queue.
fn configure(db: &TestDb, script: &str) {
    let script = write(db, "order.sh", format!("taskqueue() {{ {PROGRAM} \"$@\"; }}\n{script}"));
    db.configure(&format!(
        "[class.order]\nargv = [\"/bin/sh\", {script:?}]\nmay_queue = [\"child.*\", \"report\"]\n\
         [class.\"child.*\"]\nargv = [\"/bin/true\"]\n[class.report]\nargv = [\"/bin/true\"]\n\
         [class.other]\nargv = [\"/bin/true\"]\n"
    ));
}

/// Returns the lines that the handler printed. It must have succeeded.
fn lines_of(db: &TestDb, script: &str) -> Vec<String> {
    configure(db, script);
    let after = process(db, "order", "{}");
    assert_eq!(after["task"]["status"], "success", "{after}");
    printed(&after, "stdout").lines().map(str::to_owned).collect()
}

/// Returns the directory below /proc of the command with these arguments that a runner executes.
fn command_with(arguments: &str) -> Option<PathBuf> {
    let mut directories = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let is_it = |directory: &PathBuf| {
        let line = std::fs::read(directory.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").trim_end() == format!("/proc/self/exe {arguments}")
    };
    directories.find(is_it)
}

each_engine! {
    fn a_handler_queues_children_of_the_classes_that_it_may_queue(db) {
        let script = "taskqueue queue child.a '{\"n\":1}'\n\
            echo '{\"n\":2}' | taskqueue queue report - --priority 7\n\
            printf '{\"class\":\"child.b\"}\\n{\"class\":\"order\",\"in\":\"1h\"}\\n' | taskqueue queue --batch -";
        assert_eq!(lines_of(db, script), ["2", "3", "4", "5"]);
        let (first, second) = (task(db, "2"), task(db, "3"));
        assert_eq!((&first["parent_id"], &first["queued_by"], &first["data"]), (&json!(1), &json!("task 1"), &json!({"n": 1})));
        assert_eq!((&second["parent_id"], &second["priority"], &second["data"]), (&json!(1), &json!(7), &json!({"n": 2})));
        assert_eq!(task(db, "1")["parent_id"], Value::Null);
        assert!(db.cli().run(&["status", "5"]).ok().contains("  parent       1\n"));
        assert_eq!(db.cli().run(&["tick"]).ok(), "");
        assert_eq!(task(db, "4")["status"], "success");
    }

    fn a_handler_queues_nothing_of_a_class_that_it_may_not_queue(db) {
        let script = "exec 2>&1\ntaskqueue queue other; echo $?\n\
            printf '{\"class\":\"child.b\"}\\n{\"class\":\"other\"}\\n' | taskqueue queue --batch - ; echo $?\n\
            taskqueue queue exec '{\"argv\":[\"/bin/true\"]}'; echo $?\n\
            taskqueue queue child.a --unique k --on-conflict replace; echo $?";
        let printed = lines_of(db, script).join("\n");
        assert_eq!(printed.matches("may_queue of [class.\"order\"] does not allow it").count(), 3, "{printed}");
        assert!(printed.contains("error: a handler may not replace a task"), "{printed}");
        assert_eq!(printed.lines().filter(|line| *line == "2").count(), 4, "{printed}");
        assert_eq!(count_tasks(db), 1);
    }

    fn a_handler_names_no_other_author_of_its_children(db) {
        let script = "exec 2>&1\ntaskqueue queue child.a --by root; echo $?\n\
            printf '{\"class\":\"child.a\"}\\n{\"class\":\"child.a\",\"by\":\"root\"}\\n' | taskqueue queue --batch -; echo $?\n\
            printf '{\"class\":\"child.a\",\"by\":\"task 1\"}\\n' | taskqueue queue --batch -; echo $?";
        let printed = lines_of(db, script).join("\n");
        assert!(printed.contains("error: line 2: \"by\" may only be \"task 1\" here, which is the default"), "{printed}");
        assert_eq!(printed.lines().filter(|line| line.len() == 1).collect::<Vec<_>>(), ["2", "2", "2", "0"], "{printed}");
        assert_eq!((count_tasks(db), &task(db, "2")["queued_by"]), (2, &json!("task 1")));
    }

    fn a_command_line_of_exec_queues_a_task_of_every_class(db) {
        // A pattern that matches the name does not count.
        db.configure("[exec]\nenabled = true\n[class.\"*\"]\nargv = [\"/bin/true\"]\n");
        let ended = db.cli().run(&["exec", "--run", "--", PROGRAM, "queue", "other"]);
        assert_eq!((ended.code, ended.stdout.contains('2')), (Some(0), true), "{ended:?}");
        assert_eq!(task(db, "2")["parent_id"], 1);
    }

    fn a_handler_under_another_user_queues_and_sees_no_password(db) {
        if !geteuid().is_root() {
            return;
        }
        std::fs::set_permissions(db.home(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let script = "taskqueue queue child.a\n\
            taskqueue events --task 1 --follow >/dev/null &\n\
            { cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; ps -eo args; env; ls -R \"$HOME\"; } 2>/dev/null | tr '\\0' '\\n'\n\
            echo \"told by name: $(env | grep -c TASKQUEUE_DATABASE_URL)\"";
        configure(db, script);
        let config = std::fs::read_to_string(db.home().join(".config/taskqueue/config.toml")).unwrap();
        let config: String = config.lines().filter(|line| !line.starts_with("user =")).collect::<Vec<_>>().join("\n");
        db.configure_exactly(&format!("user = \"nobody\"\n{config}"));
        let after = process(db, "order", "{}");
        assert_eq!(after["task"]["status"], "success", "{after}");
        let seen = printed(&after, "stdout");
        assert!(seen.starts_with("2\n") && seen.contains("TASKQUEUE_RUN_TOKEN="), "{seen}");
        // The handler may see processes of other tests with this variable, so the address is checked too.
        assert!(!seen.contains(db.url_text()) && seen.contains("told by name: 0"), "{seen}");
        assert_eq!(task(db, "2")["parent_id"], 1);
    }

    fn a_handler_reads_and_changes_its_own_task_and_its_children_alone(db) {
        let strangers = "for id in 2 99 last class=other parent=2 '3 2'; do\n\
            for verb in status wait cancel 'edit --priority 5'; do taskqueue $verb $id; echo $?; done; done\n\
            taskqueue events --task 2; echo $?; taskqueue events; echo $?; taskqueue status; echo $?";
        configure(db, &format!(
            "taskqueue queue child.a --tag account-17; taskqueue queue child.b\n\
             taskqueue cancel 3 --reason withdrawn; taskqueue edit 4 --priority 5\n\
             taskqueue status --json 1; taskqueue status --json parent=1; taskqueue events --json --task 3\n\
             exec 2>&1\n{strangers}"));
        let parent = db.cli().run(&["queue", "order"]).ok();
        assert_eq!((parent.trim(), db.cli().run(&["queue", "other", "--in", "1h"]).ok().trim()), ("1", "2"));
        assert_eq!(db.cli().run(&["tick"]).ok(), "");
        let after = detail(db, "1");
        let text = printed(&after, "stdout");
        let (own, refused) = text.split_once("error: ").unwrap();
        let json: Vec<Value> = own.lines().filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&json[0]["task"]["id"], &json[0]["task"]["status"]), (&json!(1), &json!("processing")));
        assert!(own.contains("\"withdrawn\""), "{own}");
        assert_eq!(refused.lines().filter(|line| *line == "2").count(), 27, "{refused}");
        assert_eq!(refused.lines().filter(|line| line.len() == 1).count(), 27, "{refused}");
        assert_eq!((&task(db, "3")["status"], &task(db, "4")["priority"]), (&json!("cancelled"), &json!(5)));
        assert_eq!((&task(db, "2")["status"], &task(db, "2")["priority"]), (&json!("scheduled"), &json!(0)));
        assert_eq!((&task(db, "3")["tag"], &task(db, "4")["tag"]), (&json!("account-17"), &Value::Null));
        let events = db.cli().run(&["events", "--task", "3"]).ok();
        assert!(events.contains("task 1"), "the event does not name the task: {events}");
    }

    fn a_handler_cannot_wait_for_a_prerequisite_that_is_not_its_child(db) {
        configure(db, "exec 2>&1\n\
            for id in 2 99; do for option in after after-any; do taskqueue queue child.a --$option $id; echo $?; done\n\
            printf '{\"class\":\"child.a\",\"after\":['$id']}\\n' | taskqueue queue --batch -; echo $?; echo --; done\n\
            taskqueue queue child.a; taskqueue queue child.b --after 3 --after-any 1");
        let parent = db.cli().run(&["queue", "order"]).ok();
        assert_eq!((parent.trim(), db.cli().run(&["queue", "other", "--in", "1h"]).ok().trim()), ("1", "2"));
        assert_eq!(db.cli().run(&["tick"]).ok(), "");
        let after = detail(db, "1");
        let text = printed(&after, "stdout");
        let parts: Vec<&str> = text.split("--\n").collect();
        assert_eq!(parts[0], parts[1].replace("task 99", "task 2"));
        assert_eq!(parts[0].matches("there is no task 2 to wait for").count(), 3, "{text}");
        assert_eq!(parts[0].lines().filter(|line| *line == "2").count(), 3, "{text}");
        assert_eq!((parts[2], count_tasks(db)), ("3\n4\n", 4));
    }

    fn a_handler_does_not_wait_for_a_task_of_others_that_has_its_key(db) {
        let script = "exec 2>&1\n\
            taskqueue queue child.a --unique k --wait; echo $?; taskqueue queue child.a --json --unique k --wait; echo $?\n\
            taskqueue queue child.a --unique k --on-conflict fail; echo $?\n\
            printf '{\"class\":\"child.a\",\"unique\":\"k\",\"name\":\"a\"}\\n{\"class\":\"child.a\",\"after\":[\"a\"]}\\n' |\n\
            taskqueue queue --batch -; echo $?; echo --\n\
            taskqueue queue child.a --unique k; echo $?";
        configure(db, script);
        let config = std::fs::read_to_string(db.home().join(".config/taskqueue/config.toml")).unwrap();
        db.configure_exactly(&config.replace("argv = [\"/bin/true\"]", "argv = [\"/bin/echo\", \"secret\"]"));
        db.cli().run(&["queue", "child.a", "--unique", "k", "--unique-for", "1h"]).ok();
        assert_eq!(db.cli().run(&["tick"]).ok(), "");
        assert!(detail(db, "1").to_string().contains("secret"), "the output is captured");
        let after = process(db, "order", "{}");
        let text = printed(&after, "stdout");
        let (refused, queued) = text.split_once("--\n").unwrap();
        let words = "error: another task has the key \"k\" already; a handler can wait only for its own task and its children";
        assert!(refused.contains(words) && refused.contains("--unique \"KEY-$TASKQUEUE_TASK_ID\""), "{text}");
        assert_eq!(refused.matches("another task has the key").count(), 3, "{text}");
        assert!(refused.contains("error: line 2: there is no task 1 to wait for"), "{text}");
        for shown in ["secret", "success", "task 1 has", "\"id\""] {
            assert!(!refused.contains(shown), "{shown}: {text}");
        }
        assert_eq!(refused.lines().filter(|line| line.len() == 1).collect::<Vec<_>>(), ["2", "2", "1", "2"], "{text}");
        // Without a wait it gets the id, as every caller does.
        assert!(queued.starts_with("1\n") && queued.ends_with("\n0\n"), "{text}");
        assert_eq!(count_tasks(db), 2);
    }

    fn a_handler_waits_for_its_own_child_that_has_its_key(db) {
        configure(db, "taskqueue queue child.a --unique k --unique-for 1h\ntaskqueue queue child.a --unique k --wait; echo $?");
        let config = std::fs::read_to_string(db.home().join(".config/taskqueue/config.toml")).unwrap();
        db.configure_exactly(&config.replace("argv = [\"/bin/true\"]", "argv = [\"/bin/echo\", \"of the child\"]"));
        db.cli().run(&["queue", "order"]).ok();
        db.cli().run(&["work", "--slots", "2", "--idle-exit", "0s"]).ok();
        assert_eq!(printed(&detail(db, "1"), "stdout"), "2\nof the child\n0\n");
        assert_eq!(count_tasks(db), 2, "the second command queued another child");
    }

    fn a_handler_waits_for_its_child_and_reads_its_results(db) {
        configure(db, "id=$(taskqueue queue child.a)\ntaskqueue wait $id --timeout 60s\ntaskqueue status --json $id");
        db.cli().run(&["queue", "order"]).ok();
        db.cli().run(&["work", "--slots", "2", "--idle-exit", "0s"]).ok();
        let after = detail(db, "1");
        assert_eq!(after["task"]["status"], "success", "{after}");
        let last = printed(&after, "stdout").lines().last().unwrap();
        let child: Value = serde_json::from_str(last).unwrap();
        assert_eq!(child["task"]["status"], "success");
    }

    fn the_runner_of_a_handler_opens_no_file_and_no_other_store_for_it(db) {
        let file = write(db, "data.json", "{}");
        let file = file.display();
        let script = format!("exec 2>&1\n\
            taskqueue queue child.a @{file}; echo $?; taskqueue queue --batch {file}; echo $?\n\
            taskqueue edit 1 --data @{file}; echo $?; taskqueue queue child.a --by root; echo $?\n\
            taskqueue queue child.a --run; echo $?; taskqueue status --token x; echo $?\n\
            taskqueue status --runners; echo $?; taskqueue cancel 1 --dependants; echo $?");
        let printed = lines_of(db, &script);
        assert_eq!(printed.iter().filter(|line| *line == "2").count(), 8, "{printed:?}");
        assert_eq!(printed.iter().filter(|line| line.starts_with("error: inside a handler, @FILE and --batch FILE")).count(), 3, "{printed:?}");
        assert_eq!(count_tasks(db), 1);
    }

    fn a_command_ends_with_the_process_inside_the_handler_that_called_it(db) {
        // The command is found by its arguments, because other tests run at the same time.
        let timeout = format!("{}{}s", std::process::id(), db.engine as u8);
        let listed = format!("ps -eo args | grep '^/proc/self/exe wait 1 --timeout {timeout}'");
        let script = format!("{PROGRAM} wait 1 --timeout {timeout} & caller=$!\n\
            until {listed} >/dev/null; do sleep 0.05; done\n\
            kill -9 $caller\n\
            while {listed} >/dev/null; do sleep 0.05; done\necho gone");
        assert_eq!(lines_of(db, &script), ["gone"]);
    }

    fn a_command_has_no_address_of_the_database_in_its_environment(db) {
        if !geteuid().is_root() {
            return;
        }
        let arguments = format!("wait 1 --timeout 8{}{}s", std::process::id(), db.engine as u8);
        configure(db, &format!("taskqueue {arguments}"));
        db.cli().run(&["queue", "order"]).ok();
        let runner = db.cli().spawn(&["tick"]);
        wait_until("the runner starts the command", || command_with(&arguments).is_some());
        // Root may read the environment with which it was started.
        let environment = std::fs::read(command_with(&arguments).unwrap().join("environ")).unwrap();
        signal(&runner, rustix::process::Signal::KILL);
        drop(crate::support::cli::finish(runner));
        wait_until("the command ends", || command_with(&arguments).is_none());
        let environment = String::from_utf8_lossy(&environment).into_owned();
        assert!(environment.contains("TASKQUEUE_ON_BEHALF_OF="), "{environment}");
        assert!(!environment.contains("TASKQUEUE_DATABASE_URL=") && !environment.contains(db.url_text()), "{environment}");
    }

    fn a_command_reads_the_standard_input_of_its_caller(db) {
        let script = "printf '{\"n\":1}' | { taskqueue status 1 >/dev/null; cat; }; echo\n\
            head -c 200000 /dev/zero | tr '\\0' ' ' | { cat; echo '{\"n\":2}'; } | taskqueue queue child.a -\n\
            taskqueue queue child.b - </dev/null; echo $?";
        assert_eq!(lines_of(db, script), ["{\"n\":1}", "2", "2"]);
        assert_eq!(task(db, "2")["data"], json!({"n": 2}));
    }

    fn a_command_ends_when_its_runner_is_killed(db) {
        let arguments = format!("wait 1 --timeout 9{}{}s", std::process::id(), db.engine as u8);
        configure(db, &format!("echo $PPID >runner\n{PROGRAM} {arguments}"));
        let config = std::fs::read_to_string(db.home().join(".config/taskqueue/config.toml")).unwrap();
        let config = config.replace("may_queue", &format!("cwd = {:?}\nmay_queue", db.home()));
        db.configure_exactly(&config);
        db.cli().run(&["queue", "order"]).ok();
        let runner = db.cli().spawn(&["tick"]);
        let pid = wait_for_file(db, "runner");
        assert_eq!(pid, runner.id().to_string());
        wait_until("the runner starts the command", || command_with(&arguments).is_some());
        signal(&runner, rustix::process::Signal::KILL);
        wait_until("the command ends", || command_with(&arguments).is_none());
        wait_until("the runner has ended", || !is_alive(&pid));
        drop(crate::support::cli::finish(runner));
    }

    fn a_command_inside_a_run_never_uses_a_store_that_does_not_have_the_run(db) {
        let inside = || db.cli().without_env("TASKQUEUE_DATABASE_URL").env("TASKQUEUE_RUN_TOKEN", "1-2");
        let refused = inside().run(&["queue", "--any-class", "child"]).fails(69);
        assert!(refused.contains("is not the store of the run in which this command was called"), "{refused}");
        assert!(!db.home().join(".local").exists());
        // The default store exists, but does not have this run.
        db.cli().without_env("TASKQUEUE_DATABASE_URL").run(&["queue", "--any-class", "work"]).ok();
        for verb in [&["queue", "--any-class", "child"][..], &["status"], &["cancel", "1"]] {
            let refused = inside().run(verb).fails(69);
            assert!(refused.contains("is not the store of the run"), "{refused}");
        }
        // A claimant may call the program while it works.
        let claim = db.cli().without_env("TASKQUEUE_DATABASE_URL").run(&["worker", "claim", "--claimant", "bot"]).json();
        let token = claim["token"].as_str().unwrap();
        assert_eq!(inside().env("TASKQUEUE_RUN_TOKEN", token).run(&["queue", "--any-class", "child"]).ok().trim(), "2");
        // A store that is named explicitly is used.
        assert_eq!(db.cli().env("TASKQUEUE_RUN_TOKEN", "1-2").run(&["queue", "--any-class", "child"]).ok().trim(), "1");
    }

    fn a_command_for_a_run_that_has_ended_does_nothing(db) {
        db.configure("[class.order]\nargv = [\"/bin/true\"]\n");
        assert_eq!(process(db, "order", "{}")["task"]["status"], "success");
        let token = db.text("SELECT \"Token\" AS value FROM \"TaskQueueRuns\"").unwrap_or_else(|| "none".to_owned());
        let late = db.cli().env("TASKQUEUE_ON_BEHALF_OF", &token).run(&["queue", "order"]).fails(2);
        assert!(late.contains("the run of this handler has ended"), "{late}");
        assert_eq!(count_tasks(db), 1);
    }

    fn children_keep_their_parents_where_they_are_imported(db) {
        let ids = lines_of(db, "taskqueue queue child.a; taskqueue queue child.b");
        assert_eq!(ids, ["2", "3"]);
        let all = db.cli().run(&["export", "1", "3"]).ok();
        db.cli().stdin(all).run(&["import", "-"]).ok();
        // Tasks 4 and 5 are copies of 1 and 3.
        assert_eq!(task(db, "5")["parent_id"], 4);
        let child = db.cli().run(&["export", "3"]).ok();
        db.cli().stdin(child).run(&["import", "-"]).ok();
        assert_eq!(task(db, "6")["parent_id"], Value::Null, "its parent was not imported");
        let selected = db.cli().run(&["status", "--json", "parent=1"]).ok();
        assert!(selected.contains("\"id\":2") && selected.contains("\"id\":3") && !selected.contains("\"id\":5"), "{selected}");
    }
}

/// A handler that uses a helper, started for each run and as a coprocess, queues a child and waits for it.
fn queues_by_helper(interpreter: &str, name: &str, script: &str) {
    db::on(EngineUnderTest::Sqlite, |db| {
        let helpers = Path::new(env!("REPOSITORY_DIR")).join("contrib/handlers");
        let path = write(db, name, script.replace("HELPERS", &helpers.display().to_string()));
        let bin = Path::new(PROGRAM).parent().unwrap().display().to_string();
        let class = |class: &str, protocol: &str| {
            format!(
                "[class.{class}]\nargv = [\"/usr/bin/env\", \"{interpreter}\", {path:?}]\nmay_queue = [\"child\"]\n{protocol}\
                 env = {{ PATH = \"{bin}:/usr/local/bin:/usr/bin:/bin\" }}\n"
            )
        };
        let (once, kept) = (class("once", ""), class("kept", "protocol = \"coprocess\"\n"));
        db.configure(&format!("{once}{kept}[class.child]\nargv = [\"/bin/true\"]\n"));
        for (class, child) in [("once", 2), ("kept", 4)] {
            let after = process(db, class, "{\"n\":7}");
            assert_eq!(after["task"]["status"], "success", "{after}");
            assert_eq!(after["runs"][0]["results"], json!(child), "{after}");
            let child = task(db, &child.to_string());
            assert_eq!((&child["parent_id"], &child["data"]), (&after["task"]["id"], &json!({"n": 7})));
            assert!(after["runs"][0]["error_code"] == "", "{after}");
        }
        let other = process(db, "kept", "null");
        assert_eq!(other["runs"][0]["error_code"], "taskqueue", "{other}");
        assert!(other["runs"][0]["error_message"].as_str().unwrap().contains("does not allow it"), "{other}");
    });
}

#[test]
fn a_handler_in_python_queues_a_child_by_the_helper() {
    queues_by_helper(
        "python3",
        "h.py",
        "import sys; sys.path.insert(0, 'HELPERS')\nfrom taskqueue_handler import serve\n\
         serve(lambda task: task.queue('child', task.data) if task.data else task.queue('other'))\n",
    );
}

#[test]
fn a_handler_in_php_queues_a_child_by_the_helper() {
    queues_by_helper(
        "php",
        "h.php",
        "<?php require 'HELPERS/TaskqueueHandler.php';\n\
         Taskqueue\\serve(fn($task) => $task->data ? $task->queue('child', $task->data) : $task->queue('other'));\n",
    );
}

#[test]
fn a_handler_in_node_queues_a_child_by_the_helper() {
    queues_by_helper(
        "node",
        "h.js",
        "require('HELPERS/taskqueue-handler.js').serve((task) => task.data ? task.queue('child', task.data) : task.queue('other'));\n",
    );
}

/// A program that a coprocess starts for a run reports for that run.
#[test]
fn a_program_that_a_coprocess_starts_reports_for_its_run() {
    db::on(EngineUnderTest::Sqlite, |db| {
        let helpers = Path::new(env!("REPOSITORY_DIR")).join("contrib/handlers");
        let path = write(
            db,
            "h.py",
            format!(
                "import sys; sys.path.insert(0, {:?})\nfrom taskqueue_handler import serve\n\
                 serve(lambda task: task.taskqueue('report', 'progress', '40', 'half') or None)\n",
                helpers.display().to_string()
            ),
        );
        let bin = Path::new(PROGRAM).parent().unwrap().display().to_string();
        db.configure(&format!(
            "[class.kept]\nargv = [\"/usr/bin/env\", \"python3\", {path:?}]\nprotocol = \"coprocess\"\n\
             env = {{ PATH = \"{bin}:/usr/bin:/bin\" }}\n"
        ));
        let after = process(db, "kept", "{}");
        assert_eq!(
            (&after["runs"][0]["progress_message"], &after["task"]["status"]),
            (&json!("half"), &json!("success"))
        );
    });
}
