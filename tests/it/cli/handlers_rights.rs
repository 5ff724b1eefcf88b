//! The user and the limits of a handler, as configured.

use std::os::unix::fs::PermissionsExt as _;

use rustix::process::geteuid;
use serde_json::{Value, json};

use super::untrusted_files::as_nobody;
use super::{ECHO, detail, is_alive, printed, process, shell_class, wait_for_file, write};
use crate::each_engine;
use crate::support::{EngineUnderTest, TestDb};

/// Allows another user to read the home of the test.
fn open_home(db: &TestDb) {
    std::fs::set_permissions(db.home(), std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn uid_of(user: &str) -> String {
    let output = std::process::Command::new("id").args(["-u", user]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn held(after: &Value) -> (&Value, &Value) {
    (&after["runs"][0]["status"], &after["task"]["attempts"])
}

each_engine! {
    fn a_handler_over_a_limit_is_told_so_and_its_class_goes_on(db) {
        db.configure(&format!("{}limits = {{ cpu_secs = 1 }}\n", shell_class(db, "work", "while :; do :; done")));
        let after = process(db, "work", "{}");
        let run = &after["runs"][0];
        assert_eq!((&run["error_code"], &run["error_message"]), (&json!("signal:24"), &json!("over its limit of 1 seconds of processor time")));
        assert_eq!((&run["decision"], &after["task"]["status"]), (&json!("signal 24: retry"), &json!("failed")));
    }

    fn a_handler_that_something_kills_says_that_it_may_have_been_the_kernel(db) {
        db.configure(&shell_class(db, "work", "echo working >&2; kill -9 $$"));
        let after = process(db, "work", "{}");
        assert_eq!(after["runs"][0]["error_code"], "signal:9");
        assert!(after["runs"][0]["error_message"].as_str().unwrap().contains("perhaps the kernel was out of memory"));
    }

    fn signals_and_descriptors_of_a_handler_are_those_of_a_fresh_process(db) {
        let script = "grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -s '\\t' ' '; for fd in /proc/self/fd/*; do readlink $fd; done; yes 2>&3 | head -n 1";
        db.configure(&shell_class(db, "work", script));
        let after = process(db, "work", "{}");
        let text = printed(&after, "stdout");
        let lines: Vec<&str> = text.lines().collect();
        // Signals 32 and 33 are the C library's own.
        for line in &lines[..2] {
            let mask = u64::from_str_radix(line.split(' ').nth(1).unwrap(), 16).unwrap();
            assert_eq!(mask & !(3 << 31), 0, "{line}");
        }
        assert!(!text.contains("socket:") && !text.contains("tasks.db"), "{text}");
        assert_eq!(lines.last(), Some(&"y"), "SIGPIPE ended the writer: {text}");
        assert_eq!(after["task"]["status"], "success");
    }

    fn a_class_runs_as_its_user_with_its_home_and_nothing_of_roots(db) {
        if !geteuid().is_root() {
            return;
        }
        open_home(db);
        let class = shell_class(db, "work", "id -un; id -gn; echo $USER $LOGNAME $HOME $SHELL; cat; echo '{\"progress\":7}' >/dev/fd/3; umask");
        db.configure_exactly(&format!("{class}user = \"daemon\"\numask = \"022\"\n"));
        let after = process(db, "work", "[1]");
        assert_eq!(printed(&after, "stdout"), "daemon\ndaemon\ndaemon daemon /usr/sbin /bin/sh\n[1]0022\n", "{after}");
    }

    fn a_handler_gets_no_more_rights_from_a_setuid_program_unless_allowed(db) {
        if !geteuid().is_root() {
            return;
        }
        open_home(db);
        let program = db.home().join("id");
        std::fs::copy("/usr/bin/id", &program).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
        let script = format!("{} -u; umask; ulimit -c; ulimit -Hc", program.display());
        let class = shell_class(db, "work", &script);
        let nobody = uid_of("nobody");
        for (allowed, expected) in [("", nobody.as_str()), ("no_new_privileges = false\n", "0")] {
            db.configure_exactly(&format!("{class}user = \"nobody\"\n{allowed}"));
            let after = process(db, "work", "{}");
            assert_eq!(printed(&after, "stdout"), format!("{expected}\n0077\n0\n0\n"), "{after}");
        }
    }

    fn a_program_that_everybody_may_write_is_not_started(db) {
        let program = write(db, "open", "#!/bin/sh\n");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o757)).unwrap();
        db.configure(&format!("[class.work]\nargv = [\"{}\"]\n", program.display()));
        let after = process(db, "work", "{}");
        assert_eq!(held(&after), (&json!("released"), &json!(0)));
        assert!(after["runs"][0]["error_message"].as_str().unwrap().contains("can be written by everybody"));
    }

    fn a_user_that_there_is_not_holds_the_class_and_the_check_says_so(db) {
        db.configure_exactly("[class.work]\nargv = [\"/bin/true\"]\nuser = \"no-such-user\"\n");
        let after = process(db, "work", "{}");
        assert_eq!(held(&after), (&json!("released"), &json!(0)));
        let message = "there is no user \"no-such-user\" on this machine";
        assert_eq!(after["runs"][0]["error_message"], format!("could not start: {message}"));
        let ended = db.cli().run(&["class", "check"]);
        assert_eq!(ended.code, Some(78));
        assert!(ended.stdout.contains(message), "{}", ended.stdout);
    }

    fn root_runs_nothing_for_others_unless_it_is_said_whom_it_runs_as(db) {
        if !geteuid().is_root() {
            return;
        }
        db.configure_exactly(&format!("{ECHO}[exec]\nenabled = true\n"));
        let after = process(db, "echo", "{}");
        let id = db.cli().run(&["exec", "--", "id", "-un"]).ok();
        let _ = db.cli().run(&["tick"]);
        let exec = detail(db, &id);
        let check = db.cli().run(&["class", "check"]);
        if db.engine == EngineUnderTest::Sqlite {
            assert_eq!((&after["task"]["status"], &exec["task"]["status"]), (&json!("success"), &json!("success")));
            assert_eq!(check.code, Some(0), "{check:?}");
            return;
        }
        for (detail, place) in [(&after, "in [class.\"echo\"] or at the top of the file"), (&exec, "user = \"NAME\" at the top of the file")] {
            assert_eq!(held(detail), (&json!("released"), &json!(0)), "{detail}");
            let message = detail["runs"][0]["error_message"].as_str().unwrap();
            assert!(message.contains("this runner is root") && message.ends_with(place), "{message}");
            assert!(check.stdout.contains(place), "{}", check.stdout);
        }
        assert_eq!(check.code, Some(78));
        db.configure_exactly(&format!("user = \"root\"\n{ECHO}[exec]\nenabled = true\n"));
        assert_eq!(db.cli().run(&["class", "check"]).code, Some(0));
        for class in ["echo", "exec"] {
            let _ = db.cli().run(&["class", "release", class]).code;
        }
        let _ = db.cli().run(&["tick"]).code;
        assert_eq!((&detail(db, "1")["task"]["status"], printed(&detail(db, &id), "stdout")), (&json!("success"), "root\n"));
    }

    fn processes_of_another_user_left_by_a_dead_runner_end_before_the_rescue(db) {
        if !geteuid().is_root() {
            return;
        }
        open_home(db);
        let into = db.home().join("for-all");
        std::fs::create_dir(&into).unwrap();
        std::fs::set_permissions(&into, std::fs::Permissions::from_mode(0o777)).unwrap();
        let script = format!("cd {}; setsid sh -c 'echo $$ > left.new; mv left.new left; exec sleep 1000' & sleep 1000", into.display());
        db.configure_exactly(&format!("{}user = \"nobody\"\n", shell_class(db, "work", &script)));
        let id = db.cli().run(&["queue", "work"]).ok();
        let mut runner = db.cli().spawn(&["tick"]);
        let left = wait_for_file(db, "for-all/left");
        runner.kill().unwrap();
        runner.wait().unwrap();
        assert!(is_alive(&left));
        db.cli().run(&["create-runs"]).ok();
        assert!(!is_alive(&left));
        assert_eq!(detail(db, &id)["runs"][1]["status"], "timeout");
    }
}

#[test]
fn a_runner_that_is_not_root_runs_as_itself_and_as_nobody_else() {
    if !geteuid().is_root() {
        return;
    }
    crate::support::db::on(EngineUnderTest::Sqlite, |db| {
        db.configure_exactly(&format!(
            "{}[class.own]\nargv = [\"/usr/bin/id\", \"-un\"]\nuser = \"nobody\"\n[class.other]\nargv = [\"/bin/true\"]\nuser = \"daemon\"\n",
            shell_class(db, "plain", "id -un")
        ));
        write(db, "nothing", "");
        let as_nobody = |args: &[&str]| as_nobody(db, args);
        let detail = |id: &str| as_nobody(&["status", "--json", id]).json();
        if as_nobody(&["--version"]).code != Some(0) {
            eprintln!("skipped: another user cannot reach the program");
            return;
        }
        for class in ["plain", "own", "other"] {
            let _ = as_nobody(&["queue", class]).ok();
        }
        let _ = as_nobody(&["create-runs"]);
        let _ = as_nobody(&["process-run", "--drain"]);
        assert_eq!(printed(&detail("1"), "stdout"), "nobody\n");
        assert_eq!(printed(&detail("2"), "stdout"), "nobody\n");
        let other = detail("3");
        assert_eq!(held(&other), (&json!("released"), &json!(0)));
        assert_eq!(
            other["runs"][0]["error_message"],
            "could not start: it must run as \"daemon\", but this runner is \"nobody\", not root"
        );
    });
}
