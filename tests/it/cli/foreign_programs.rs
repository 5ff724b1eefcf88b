//! Programs that another user owns or can change. Root starts none of them, whatever starts it: a class, a coprocess, `exec`, a
//! hook, a notice, `exists`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::Command;

use rustix::process::geteuid;
use serde_json::json;

use super::{count_tasks, detail, printed, shell_class};
use crate::each_engine;
use crate::support::TestDb;

const NOBODY: u32 = 65_534;
const REFUSED: &str = "runs as root, but another user can change it";

/// Creates a program in a directory of its own. It writes the file `started` into the home.
fn program(db: &TestDb, directory: &str) -> PathBuf {
    let directory = db.home().join(directory);
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
    let program = directory.join("program");
    fs::write(&program, format!("#!/bin/sh\necho started > '{}/started'\n", db.home().display())).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    program
}

/// Returns a program that another user owns, one that another group can write, and one below the directory of another user.
fn foreign_programs(db: &TestDb) -> [PathBuf; 3] {
    let [owned, of_group, below] = ["owned", "of-group", "below"].map(|name| program(db, name));
    chown(&owned, Some(NOBODY), None).unwrap();
    chown(&of_group, None, Some(NOBODY)).unwrap();
    fs::set_permissions(&of_group, Permissions::from_mode(0o775)).unwrap();
    chown(below.parent().unwrap(), Some(NOBODY), None).unwrap();
    [owned, of_group, below]
}

fn assert_not_started(db: &TestDb, what: &str) {
    assert!(!db.home().join("started").exists(), "{what}: the program was started");
}

/// Returns why the newest of `count` released runs was released.
fn why_released(db: &TestDb, count: i64) -> String {
    let released = "FROM \"TaskQueueRuns\" WHERE \"Status\" = 'released'";
    assert_eq!(db.number(&format!("SELECT COUNT(*) AS value {released}")), count);
    db.text(&format!("SELECT \"ErrorMessage\" AS value {released} ORDER BY \"Id\" DESC LIMIT 1")).unwrap()
}

each_engine! {
    fn no_verb_of_root_starts_a_program_that_another_user_can_change(db) {
        if !geteuid().is_root() {
            return;
        }
        let programs = foreign_programs(db);
        let classes = programs.iter().enumerate();
        db.configure(&classes.map(|(number, path)| format!("[class.\"p{number}.*\"]\nargv = [{path:?}]\n")).collect::<String>());
        let verbs: [&[&[&str]]; 3] = [&[&["tick"]], &[&["work", "--idle-exit", "0s"]], &[&["create-runs"], &["process-run", "--drain"]]];
        for (number, path) in programs.iter().enumerate() {
            let check = |what: &str| {
                assert_not_started(db, what);
                let why = why_released(db, count_tasks(db));
                assert!(why.starts_with(&format!("could not start {}: ", path.display())) && why.contains(REFUSED), "{what}: {why}");
            };
            for verb in verbs {
                db.cli().run(&["queue", &format!("p{number}.{}", verb[0][0])]).ok();
                for args in verb {
                    let _ = db.cli().run(args).code;
                }
                check(verb[0][0]);
            }
            let _ = db.cli().run(&["queue", &format!("p{number}.queue"), "--run"]).code;
            check("queue --run");
            let tested = db.cli().run(&["class", "test", &format!("p{number}.x")]);
            assert_not_started(db, "class test");
            assert!(tested.stdout.contains(REFUSED) || tested.stderr.contains(REFUSED), "{tested:?}");
        }
        assert_eq!(db.cli().run(&["class", "check"]).code, Some(78));
    }

    fn root_starts_no_foreign_program_as_a_coprocess_or_by_exec(db) {
        if !geteuid().is_root() {
            return;
        }
        let programs = foreign_programs(db);
        db.configure(&format!("[exec]\nenabled = true\n[class.kept]\nargv = [{:?}]\nprotocol = \"coprocess\"\n", programs[0]));
        db.cli().run(&["queue", "kept"]).ok();
        let _ = db.cli().run(&["tick"]).code;
        assert_not_started(db, "coprocess");
        let why = why_released(db, 1);
        assert!(why.contains(REFUSED), "{why}");
        let mut requests = programs.each_ref().map(|path| json!({ "argv": [path] })).to_vec();
        let directory = programs[0].parent().unwrap();
        requests.push(json!({ "argv": ["./program"], "cwd": directory }));
        requests.push(json!({ "argv": ["program"], "env": { "PATH": format!("/usr/bin:{}", directory.display()) } }));
        requests.push(json!({ "argv": ["program"], "cwd": directory, "env": { "PATH": ":/usr/bin" } }));
        for request in requests {
            let ended = db.cli().run(&["queue", "exec", &request.to_string(), "--run"]);
            assert_not_started(db, &request.to_string());
            assert_eq!(ended.code, Some(127), "{request}: {ended:?}");
            assert!(ended.stderr.contains(REFUSED), "{request}: {ended:?}");
        }
        db.cli().run(&["exec", "--run", "--", "true"]).ok();
    }

    fn root_starts_no_foreign_program_for_a_hook_a_notice_or_exists(db) {
        if !geteuid().is_root() {
            return;
        }
        for path in foreign_programs(db) {
            let argv = format!("[{path:?}]");
            let (good, bad) = (shell_class(db, "good", "exit 0"), shell_class(db, "bad", "exit 1"));
            db.configure(&format!(
                "[hooks]\nsuccess = {argv}\n[notify]\nargv = {argv}\nevery_secs = 0\n{good}{bad}[class.\"a.*\"]\nargv = [\"/bin/true\"]\nexists = {argv}\n"
            ));
            let refused = |what: &str, stderr: &str| {
                assert_not_started(db, what);
                assert!(stderr.contains(REFUSED), "{what}: {stderr}");
            };
            refused("exists", &db.cli().run(&["queue", "a.b"]).fails(2));
            let id = db.cli().run(&["queue", "good"]).ok();
            let ended = db.cli().run(&["tick"]);
            assert_eq!(detail(db, &id)["task"]["status"], "success", "{ended:?}");
            refused("hook", &ended.stderr);
            db.cli().run(&["queue", "bad", "--max-retries", "1"]).ok();
            let _ = db.cli().run(&["tick"]).code;
            refused("notice", &db.cli().run(&["create-runs"]).stderr);
        }
    }

    fn a_program_that_was_checked_for_its_own_user_is_refused_for_root(db) {
        if !geteuid().is_root() {
            return;
        }
        fs::set_permissions(db.home(), Permissions::from_mode(0o755)).unwrap();
        let program = db.home().join("id");
        // Copied by another process: no fork of this one has the file open for writing.
        assert!(Command::new("cp").arg("/usr/bin/id").arg(&program).status().unwrap().success());
        chown(&program, Some(NOBODY), None).unwrap();
        let class = |name: &str, user: &str| format!("[class.{name}]\nargv = [{program:?}, \"-un\"]\nuser = \"{user}\"\n");
        db.configure_exactly(&format!("{}{}", class("own", "nobody"), class("super", "root")));
        let own = db.cli().run(&["queue", "own", "--priority", "1000"]).ok();
        db.cli().run(&["queue", "super"]).ok();
        let _ = db.cli().run(&["tick"]).code;
        assert_eq!(printed(&detail(db, &own), "stdout"), "nobody\n");
        let why = why_released(db, 1);
        assert!(why.contains(REFUSED), "{why}");
    }
}
