//! PHP, the origin of the scheme: the sample application, the interface and its dispatcher, and the end of a handler.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::each_engine;
use crate::support::{EngineUnderTest, TestDb, db};

const PROGRAM: &str = env!("CARGO_BIN_EXE_taskqueue");

fn repository(path: &str) -> PathBuf {
    Path::new(env!("REPOSITORY_DIR")).join(path)
}

/// Returns a PATH with the directory of the program before those of every handler.
fn path_variable() -> String {
    format!("{}:/usr/local/bin:/usr/bin:/bin", Path::new(PROGRAM).parent().unwrap().display())
}

fn detail(db: &TestDb, id: &str) -> Value {
    db.cli().run(&["status", "--json", id]).json()
}

/// Returns the commands in the README of the sample application, in order.
fn commands_of_the_readme() -> Vec<String> {
    let readme = std::fs::read_to_string(repository("examples/php/README.md")).unwrap();
    let (_, rest) = readme.split_once("```sh\n").unwrap();
    rest.split_once("```").unwrap().0.lines().map(str::to_owned).collect()
}

/// Copies the sample application, with its files of contrib beside it.
fn install_sample(db: &TestDb) -> PathBuf {
    let app = db.home().join("examples/php");
    std::fs::create_dir_all(app.join("src/Tasks")).unwrap();
    std::fs::create_dir_all(db.home().join("contrib/handlers")).unwrap();
    for file in ["contrib/handlers/run-task.php", "contrib/handlers/TaskqueueHandler.php", "examples/php/run-task.php"]
        .into_iter()
        .chain(["examples/php/composer.json", "examples/php/config.toml"])
    {
        std::fs::copy(repository(file), db.home().join(file)).unwrap();
    }
    for task in ["CountWords", "PlaceOrder", "SendMail"] {
        let file = format!("examples/php/src/Tasks/{task}.php");
        std::fs::copy(repository(&file), db.home().join(&file)).unwrap();
    }
    app
}

/// Runs a command of the README there, like its reader. Returns both outputs.
fn sh(db: &TestDb, app: &Path, command: &str) -> (bool, String) {
    let output = Command::new("/bin/sh")
        .args(["-c", command])
        .current_dir(app)
        .env_clear()
        .envs([("HOME", db.home().to_str().unwrap()), ("PATH", &path_variable()), ("COMPOSER_ALLOW_SUPERUSER", "1")])
        .env("TASKQUEUE_DATABASE_URL", db.url_text())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.success(), text)
}

each_engine! {
    fn the_sample_application_in_php_runs_from_its_readme(db) {
        let app = install_sample(db);
        let commands = commands_of_the_readme();
        assert_eq!(commands.len(), 5);
        for (at, command) in commands.iter().enumerate() {
            let (succeeded, text) = sh(db, &app, command);
            assert!(succeeded, "{command}: {text}");
            if at == 1 {
                // Handlers find the program of this test in their PATH, and run as this user on a server too.
                let config = db.home().join(".config/taskqueue/config.toml");
                let toml = std::fs::read_to_string(&config).unwrap();
                let user = if rustix::process::geteuid().is_root() { "user = \"root\"\n" } else { "" };
                std::fs::write(&config, format!("{user}{toml}env = {{ PATH = \"{}\" }}\n", path_variable())).unwrap();
            }
        }
        let (counted, ordered, mailed) = (detail(db, "1"), detail(db, "2"), detail(db, "3"));
        assert_eq!((&counted["task"]["status"], &counted["runs"][0]["results"]), (&json!("success"), &json!({"words": 6})), "{counted}");
        assert_eq!((&ordered["task"]["status"], &ordered["runs"][0]["results"]), (&json!("success"), &json!({"order": 17, "mail": 3})), "{ordered}");
        let run = &mailed["runs"][0];
        assert_eq!((&run["error_code"], &run["error_message"]), (&json!("552"), &json!("the mailbox of full@example.org is full")), "{mailed}");
        assert_eq!(mailed["task"]["parent_id"], 2);
        let (succeeded, text) = sh(db, &app, r"taskqueue queue 'App\Tasks\SendMial'");
        assert!(!succeeded && text.contains(r"the class App\Tasks\SendMial does not exist: /usr/bin/php exited with 1: there is no PHP class"), "{text}");
        // Another host may have the class; there it fails once, without a retry.
        let id = db.cli().run(&["queue", "--any-class", r"App\Tasks\SendMial"]).ok();
        db.cli().run(&["tick"]).ok();
        let unknown = detail(db, &id);
        assert_eq!((&unknown["runs"][0]["error_code"], &unknown["task"]["is_exhausted"]), (&json!("no-such-class"), &json!(true)), "{unknown}");
    }
}

/// A handler in this language, started for each run, that exits in the middle.
fn ends_in_the_middle(db: &TestDb, name: &str, argv: &str, script: &str, code: &str) {
    let path = db.home().join(name);
    let helpers = repository("contrib/handlers");
    std::fs::write(&path, script.replace("HELPERS", &helpers.display().to_string())).unwrap();
    db.configure(&format!("[class.once]\nargv = [{argv}, {path:?}]\n"));
    // With a retry, an earlier task could be first.
    let id = db.cli().run(&["queue", "once", "--max-retries", "1"]).ok();
    db.cli().run(&["create-runs"]).ok();
    db.cli().run(&["process-run"]).ok();
    let after = detail(db, &id);
    assert_eq!(
        (&after["task"]["status"], &after["runs"][0]["error_code"]),
        (&json!("failed"), &json!(code)),
        "{name}: {after}"
    );
}

#[test]
fn a_handler_that_calls_exit_in_the_middle_has_failed_in_every_language() {
    db::on(EngineUnderTest::Sqlite, |db| {
        let php = |body: &str| {
            format!("<?php require 'HELPERS/TaskqueueHandler.php'; Taskqueue\\serve(function ($task) {{ {body} }});")
        };
        let python = |body: &str| {
            format!(
                "import sys; sys.path.insert(0, 'HELPERS')\nfrom taskqueue_handler import serve\ndef handle(task):\n    {body}\nserve(handle)\n"
            )
        };
        let node = |body: &str| format!("require('HELPERS/taskqueue-handler.js').serve(async () => {{ {body} }});");
        let shell =
            |body: &str| format!(". HELPERS/taskqueue-handler.sh\nwork() {{ {body}; }}\ntaskqueue_serve work\n");
        let (p, y, n, s) =
            ("\"/usr/bin/php\"", "\"/usr/bin/env\", \"python3\"", "\"/usr/bin/env\", \"node\"", "\"/bin/sh\"");
        for (name, argv, script, code) in [
            ("exit.php", p, php("exit;"), "exit"),
            ("fatal.php", p, php("ini_set('memory_limit', '8M'); str_repeat('x', 99999999);"), "fatal"),
            ("code.php", p, php("throw new RuntimeException('full', 552);"), "552"),
            ("class.php", p, php("throw new RuntimeException('full');"), "RuntimeException"),
            ("exit.py", y, python("sys.exit()"), "exit"),
            ("exit.js", n, node("process.exit()"), "exit"),
            ("never.js", n, node("await new Promise(() => {})"), "exit"),
            ("exit.sh", s, shell("exit 0"), "exit"),
            // An exit code says more than that there was an exit.
            ("three.sh", s, shell("exit 3"), "exit:3"),
            ("false.sh", s, format!("set -e\n{}", shell("(exit 4); true")), "exit:4"),
            ("three.py", y, python("sys.exit(3)"), "exit:3"),
            ("three.js", n, node("process.exit(3)"), "exit:3"),
            ("timer.js", n, node("setTimeout(() => { throw new Error() }); await new Promise(() => {})"), "exit:1"),
            ("fail.sh", s, shell("taskqueue_fail no-printer 'no printer'"), "no-printer"),
        ] {
            ends_in_the_middle(db, name, argv, &script, code);
        }
        let path = db.home().join("well.sh");
        std::fs::write(
            &path,
            shell("taskqueue_result 1").replace("HELPERS", &repository("contrib/handlers").display().to_string()),
        )
        .unwrap();
        db.configure(&format!("[class.well]\nargv = [\"/bin/sh\", {path:?}]\n"));
        let id = db.cli().run(&["queue", "well"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(detail(db, &id)["task"]["status"], "success");
    });
}

#[test]
fn the_program_that_knows_the_classes_is_asked_once_for_a_batch() {
    db::on(EngineUnderTest::Sqlite, |db| {
        let asked = db.home().join("asked");
        let script = db.home().join("exists.sh");
        std::fs::write(
            &script,
            format!(
                "echo \"$1\" >>{}\ncase $1 in *.good) ;; *) echo no such class >&2; exit 1 ;; esac\n",
                asked.display()
            ),
        )
        .unwrap();
        db.configure(&format!(
            "[class.\"a.*\"]\nargv = [\"/bin/true\"]\nexists = [\"/bin/sh\", {script:?}, \"{{class}}\"]\n"
        ));
        db.cli().stdin("{\"class\":\"a.good\"}\n".repeat(20)).run(&["queue", "--batch", "-"]).ok();
        assert_eq!(std::fs::read_to_string(&asked).unwrap(), "a.good\n");
        let refused =
            db.cli().stdin("{\"class\":\"a.good\"}\n{\"class\":\"a.bad\"}\n").run(&["queue", "--batch", "-"]).fails(2);
        assert!(
            refused.contains("line 2: the class a.bad does not exist: /bin/sh exited with 1: no such class"),
            "{refused}"
        );
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 20);
        // If the program cannot check the class, the reason is reported and nothing is queued.
        db.configure("[class.\"a.*\"]\nargv = [\"/bin/true\"]\nexists = [\"/no/such/program\"]\n");
        let refused = db.cli().run(&["queue", "a.good"]).fails(2);
        assert!(refused.contains("could not start /no/such/program"), "{refused}");
    });
}
