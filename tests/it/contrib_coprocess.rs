//! One file of contrib handles the runs of two classes, one started for each run, the other as a coprocess. The tables show no
//! difference.

use std::path::Path;

use serde_json::{Value, json};

use crate::each_engine;
use crate::support::{EngineUnderTest, TestDb, db};

/// Configures the classes `once` and `kept` with the same file.
fn configure(db: &TestDb, interpreter: &str, script: &str) {
    let script = Path::new(env!("REPOSITORY_DIR")).join("contrib/handlers").join(script);
    let class = |name: &str| format!("[class.{name}]\nargv = [\"/usr/bin/env\", \"{interpreter}\", {script:?}]\n");
    db.configure(&format!("{}{}protocol = \"coprocess\"\n", class("once"), class("kept")));
}

/// Returns the content of the tables about the first attempt at a task, except times and processes.
fn story(db: &TestDb, id: &str) -> Value {
    let all = db.cli().run(&["status", "--json", id]).json();
    let (task, run) = (&all["task"], &all["runs"][0]);
    let of = |row: &Value, keys: &[&str]| keys.iter().map(|key| row[*key].clone()).collect::<Vec<_>>();
    json!([
        of(task, &["status", "failed_retries", "is_exhausted", "attempts"]),
        of(
            run,
            &["status", "results", "error_code", "error_message", "decision", "progress_message", "percents_completed"]
        ),
    ])
}

fn both_ways(db: &TestDb, interpreter: &str, script: &str) {
    configure(db, interpreter, script);
    let file = db.home().join("hällo \"world\".txt");
    std::fs::write(&file, "hello\n").unwrap();
    let data = [
        json!({ "file": file }).to_string(),
        "{}".to_owned(),
        "{\"file\":\"/nonexistent\"}".to_owned(),
        "7".to_owned(),
    ];
    let queue = |class: &str| data.each_ref().map(|data| db.cli().run(&["queue", class, data]).ok());
    let (once, kept) = (queue("once"), queue("kept"));
    // Not a tick, which may take so long that a failed task is retried.
    db.cli().run(&["create-runs"]).ok();
    assert_eq!(db.cli().run(&["process-run", "--drain"]).ok(), "");

    let sum = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
    let first = story(db, &kept[0]);
    assert_eq!((&first[0][0], &first[1][1]), (&"success".into(), &json!({"bytes": 6, "sha256": sum})), "{first}");
    assert_eq!((&story(db, &kept[1])[0][2], &story(db, &kept[2])[0][2]), (&true.into(), &false.into()));
    for (once, kept) in once.iter().zip(&kept) {
        assert_eq!(story(db, once), story(db, kept), "{interpreter}");
    }
    let processes = |class: &str| {
        let runs =
            "\"TaskQueueRuns\" WHERE \"TaskQueueId\" IN (SELECT \"Id\" FROM \"TaskQueue\" WHERE \"TaskClass\" = ";
        db.number(&format!("SELECT COUNT(DISTINCT \"HandlerIdentity\") AS value FROM {runs}'{class}')"))
    };
    assert_eq!((processes("once"), processes("kept")), (4, 1));
}

each_engine! {
    fn the_same_handler_in_python_runs_one_shot_and_as_a_coprocess(db) {
        both_ways(db, "python3", "digest.py");
    }
}

each_engine! {
    fn the_handler_in_python_works_for_all_slots_of_a_worker(db) {
        configure(db, "python3", "digest.py");
        let file = db.home().join("file");
        std::fs::write(&file, "hello\n").unwrap();
        let line = json!({ "class": "kept", "data": { "file": file } }).to_string();
        db.cli().stdin(format!("{line}\n").repeat(40)).run(&["queue", "--batch", "-"]).ok();
        db.cli().run(&["work", "--slots", "4", "--idle-exit", "0s"]).ok();
        let count = |what: &str| db.number(&format!("SELECT COUNT({what}) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'success'"));
        let processes = count("DISTINCT \"HandlerIdentity\"");
        assert_eq!(count("*"), 40);
        assert!((1..=4).contains(&processes), "{processes}");
    }
}

#[test]
fn the_same_handler_in_php_runs_one_shot_and_as_a_coprocess() {
    db::on(EngineUnderTest::Sqlite, |db| both_ways(db, "php", "digest.php"));
}

#[test]
fn the_same_handler_in_node_runs_one_shot_and_as_a_coprocess() {
    db::on(EngineUnderTest::Sqlite, |db| both_ways(db, "node", "digest.js"));
}

#[test]
fn the_helpers_add_metadata_in_every_language_and_both_ways() {
    let helpers = Path::new(env!("REPOSITORY_DIR")).join("contrib/handlers");
    let helpers = helpers.display();
    let python = format!(
        "import sys; sys.path.insert(0, '{helpers}'); from taskqueue_handler import serve\n\
         def handle(task): task.meta(order=17, old=None)\nserve(handle)"
    );
    let php = format!(
        "<?php require '{helpers}/TaskqueueHandler.php'; Taskqueue\\serve(function ($task) {{ $task->meta(['order' => 17, 'old' => null]); }});"
    );
    let node = format!(
        "require('{helpers}/taskqueue-handler.js').serve((task) => {{ task.meta({{ order: 17, old: null }}); }});"
    );
    db::on(EngineUnderTest::Sqlite, |db| {
        for (interpreter, name, script) in [("python3", "h.py", python), ("php", "h.php", php), ("node", "h.js", node)]
        {
            let path = db.home().join(name);
            std::fs::write(&path, script).unwrap();
            let argv = format!("argv = [\"/usr/bin/env\", \"{interpreter}\", {path:?}]");
            db.configure(&format!("[class.kept]\n{argv}\nprotocol = \"coprocess\"\n[class.once]\n{argv}\n"));
            for class in ["kept", "once"] {
                let id = db.cli().run(&["queue", class, "--meta", "old=x", "--meta", "a=b"]).ok();
                db.cli().run(&["tick"]).ok();
                let after = db.cli().run(&["status", "--json", &id]).json();
                assert_eq!(
                    after["task"]["meta"],
                    serde_json::json!({"a": "b", "order": 17}),
                    "{name} {class}: {after}"
                );
            }
        }
    });
}

/// Output of a handler and of the programs that it starts, and what they read, does not disturb the protocol.
#[test]
fn a_handler_that_prints_and_starts_programs_keeps_the_protocol_intact() {
    let helpers = Path::new(env!("REPOSITORY_DIR")).join("contrib/handlers");
    let helpers = helpers.display();
    let python = format!(
        "import subprocess, sys; sys.path.insert(0, '{helpers}'); from taskqueue_handler import serve\n\
         def handle(task):\n print('printed'); return subprocess.run(['cat']).returncode + subprocess.call(['echo', 'x'])\n\
         serve(handle)"
    );
    let php = format!(
        "<?php require '{helpers}/TaskqueueHandler.php'; Taskqueue\\serve(function ($task) {{ echo \"printed\\n\"; \
         passthru('cat', $code); return $code; }});"
    );
    let node = format!(
        "require('{helpers}/taskqueue-handler.js').serve(() => {{ console.log('printed'); process.stdout.write('more\\n'); \
         return require('node:child_process').spawnSync('echo', ['x']).status; }});"
    );
    db::on(EngineUnderTest::Sqlite, |db| {
        for (interpreter, name, script) in [("python3", "h.py", python), ("php", "h.php", php), ("node", "h.js", node)]
        {
            let path = db.home().join(name);
            std::fs::write(&path, script).unwrap();
            let argv = format!("argv = [\"/usr/bin/env\", \"{interpreter}\", {path:?}]");
            db.configure(&format!("[class.kept]\n{argv}\nprotocol = \"coprocess\"\n"));
            let ids = [(); 3].map(|()| db.cli().run(&["queue", "kept"]).ok());
            db.cli().run(&["tick"]).ok();
            for id in ids {
                let after = db.cli().run(&["status", "--json", &id]).json();
                assert_eq!(
                    (&after["task"]["status"], &after["runs"][0]["results"]),
                    (&"success".into(), &0.into()),
                    "{after}"
                );
                assert!(after["runs"][0]["outputs"][0]["content"].as_str().unwrap().contains("printed"), "{after}");
            }
        }
    });
}

const PYTHON: &str = "import signal, sys, time\nsys.path.insert(0, LIB)\nfrom taskqueue_handler import serve\n\
    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
    def handle(task):\n assert task.stop_reason() is None and not task.is_cancelled()\n open(READY, 'w').write('on\\n')\n \
    while task.stop_reason() is None: time.sleep(0.02)\n return task.stop_reason()\nserve(handle, cancel=True)\n";
const PHP: &str = "<?php\nrequire LIB . '/TaskqueueHandler.php';\npcntl_signal(SIGTERM, SIG_IGN);\n\
    Taskqueue\\serve(function ($task) {\n assert($task->stopReason() === null);\n file_put_contents(READY, \"on\\n\");\n \
    while ($task->stopReason() === null) { usleep(20000); }\n return $task->stopReason();\n}, cancel: true);\n";
const NODE: &str = "const fs = require('node:fs');\nconst { serve } = require(LIB + '/taskqueue-handler.js');\n\
    process.on('SIGTERM', () => {});\nserve(async (task) => {\n if (task.stopReason !== undefined) throw new Error('early');\n \
    fs.writeFileSync(READY, 'on\\n');\n while (task.stopReason === undefined) await new Promise((done) => setTimeout(done, 20));\n \
    return task.stopReason;\n}, { cancel: true });\n";

/// Cancels a run of the script, started for the run and as a coprocess, and returns the reason that it received.
fn reasons(db: &TestDb, interpreter: &str, script: &str) -> Vec<Value> {
    let library = Path::new(env!("REPOSITORY_DIR")).join("contrib/handlers");
    let ready = db.home().join("ready");
    let text = script.replace("LIB", &format!("{library:?}")).replace("READY", &format!("{ready:?}"));
    let path = crate::cli::write(db, "handler", text);
    let argv = format!("argv = [\"/usr/bin/env\", \"{interpreter}\", {path:?}]\n");
    db.configure(&format!("[class.once]\n{argv}[class.kept]\n{argv}protocol = \"coprocess\"\n"));
    let reason = |class: &str| {
        let id = db.cli().run(&["queue", class]).ok();
        let runner = db.cli().spawn(&["tick"]);
        crate::support::wait_until("the handler has begun", || ready.exists());
        db.cli().run(&["cancel", &id]).ok();
        crate::support::cli::finish(runner).ok();
        std::fs::remove_file(&ready).unwrap();
        db.cli().run(&["status", "--json", &id]).json()["runs"][0]["results"].clone()
    };
    vec![reason("once"), reason("kept")]
}

fn expect_reasons(interpreter: &str, script: &str) {
    db::on(EngineUnderTest::Sqlite, |db| {
        assert_eq!(reasons(db, interpreter, script), [json!("cancel"), json!("cancel")]);
    });
}

#[test]
fn the_helper_in_python_returns_why_the_handler_is_to_end() {
    expect_reasons("python3", PYTHON);
}

#[test]
fn the_helper_in_php_returns_why_the_handler_is_to_end() {
    expect_reasons("php", PHP);
}

#[test]
fn the_helper_in_node_returns_why_the_handler_is_to_end() {
    expect_reasons("node", NODE);
}

#[test]
fn the_helper_in_shell_prints_why_the_script_is_to_end() {
    db::on(EngineUnderTest::Sqlite, |db| {
        let helper = Path::new(env!("REPOSITORY_DIR")).join("contrib/handlers/taskqueue-handler.sh");
        let ready = db.home().join("ready");
        let script = format!(
            ". {}; trap 'taskqueue_stop_reason; exit 3' TERM; echo on >{}; sleep 1000 & wait",
            helper.display(),
            ready.display()
        );
        db.configure(&crate::cli::shell_class(db, "work", &script));
        let id = db.cli().run(&["queue", "work"]).ok();
        let runner = db.cli().spawn(&["tick"]);
        crate::support::wait_until("the handler has begun", || ready.exists());
        db.cli().run(&["cancel", &id]).ok();
        crate::support::cli::finish(runner).ok();
        assert_eq!(db.cli().run(&["logs", &id]).ok(), "cancel");
    });
}
