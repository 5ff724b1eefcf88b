//! The helpers of contrib/handlers pass on messages to a run, started for each run and as a coprocess.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::{detail, shell_class, write};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{EngineUnderTest, TestDb, db, wait_until};

/// Takes messages until `finish`; the result contains the names and data of the others.
const PYTHON: &str = "import sys\nsys.path.insert(0, LIB)\nfrom taskqueue_handler import serve\n\
    def handle(task):\n taken = []\n early = task.next_message()\n \
    if early: taken.append([early.name, early.data])\n \
    while (message := task.next_message(60)).name != 'finish': taken.append([message.name, message.data])\n \
    return taken\nserve(handle)\n";
const PHP: &str = "<?php\nrequire LIB . '/TaskqueueHandler.php';\nTaskqueue\\serve(function ($task) {\n $taken = [];\n \
    while (($message = $task->nextMessage(60))->name !== 'finish') { $taken[] = [$message->name, $message->data]; }\n \
    return $taken;\n});\n";
const NODE: &str = "const { serve } = require(LIB + '/taskqueue-handler.js');\nserve((task) => new Promise((done) => {\n \
    const taken = [];\n task.onMessage((name, data) => { if (name === 'finish') done(taken); else taken.push([name, data]); });\n}));\n";

fn handlers() -> PathBuf {
    Path::new(env!("REPOSITORY_DIR")).join("contrib/handlers")
}

/// Returns a PATH in which a class finds the program.
fn path_of_program() -> String {
    let directory = Path::new(env!("CARGO_BIN_EXE_taskqueue")).parent().unwrap();
    format!("env = {{ PATH = \"{}:{}\", PYTHONDONTWRITEBYTECODE = \"1\" }}\n", directory.display(), env!("PATH"))
}

/// Sends messages to a new task of the class, one of them before it is processed, and returns the detail of the task.
fn send_some(db: &TestDb, class: &str) -> Value {
    let id = db.cli().run(&["queue", class]).ok().trim().to_owned();
    db.cli().run(&["create-runs"]).ok();
    db.cli().run(&["report", "message", "--task", &id, "--keep", "skip", "[17]"]).ok();
    let runner = db.cli().spawn(&["process-run"]);
    wait_until("a run is in progress", || {
        db.cli().run(&["report", "message", "--task", &id, "page", "{\"n\":1}"]).code == Some(0)
    });
    db.cli().run(&["report", "message", "--class", class, "finish"]).ok();
    finish(runner).ok();
    detail(db, &id)
}

fn both_ways(db: &TestDb, interpreter: &str, script: &str) {
    let path = write(db, "handler", script.replace("LIB", &format!("{:?}", handlers())));
    let argv = format!("argv = [\"/usr/bin/env\", \"{interpreter}\", {path:?}]\n{}", path_of_program());
    db.configure(&format!("[class.once]\n{argv}[class.kept]\n{argv}protocol = \"coprocess\"\n"));
    for class in ["once", "kept"] {
        let after = send_some(db, class);
        assert_eq!(after["runs"][0]["results"], json!([["skip", [17]], ["page", {"n": 1}]]), "{class}: {after}");
    }
}

each_engine! {
    fn the_helper_in_python_hands_on_the_messages_to_its_run(db) {
        both_ways(db, "python3", PYTHON);
    }
}

#[test]
fn the_helper_in_php_hands_on_the_messages_to_its_run() {
    db::on(EngineUnderTest::Sqlite, |db| both_ways(db, "php", PHP));
}

#[test]
fn the_helper_in_node_hands_on_the_messages_to_its_run() {
    db::on(EngineUnderTest::Sqlite, |db| both_ways(db, "node", NODE));
}

#[test]
fn the_helper_in_shell_prints_the_messages_to_its_run() {
    db::on(EngineUnderTest::Sqlite, |db| {
        let script = format!(
            ". {}/taskqueue-handler.sh; taskqueue_messages | while read -r line; do printf '%s\\n' \"$line\"; \
             case $line in *'\"name\":\"finish\"'*) exit 0;; esac; done",
            handlers().display()
        );
        db.configure(&format!("{}{}", shell_class(db, "work", &script), path_of_program()));
        let after = send_some(db, "work");
        let text = crate::cli::printed(&after, "stdout");
        let names: Vec<Value> =
            text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["details"]["name"].clone()).collect();
        assert_eq!(names, ["skip", "page", "finish"], "{text}");
    });
}
