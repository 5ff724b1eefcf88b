//! Misbehaving handlers: too much output, none, invalid output, closed descriptors, processes left behind.

use serde_json::json;

use super::{detail, is_alive, printed, process, shell_class, wait_for_file, write};
use crate::each_engine;
use crate::support::EngineUnderTest;
use crate::support::db::on;

each_engine! {
    fn output_beyond_the_limit_keeps_its_beginning_and_its_end(db) {
        let script = "echo first; head -c 100000 /dev/zero | tr '\\0' x; echo last; echo short >&2";
        db.configure(&format!("{}output_limit_bytes = 1000\n", shell_class(db, "work", script)));
        let after = process(db, "work", "{}");
        let text = printed(&after, "stdout");
        assert!(text.starts_with("first\nxxx") && text.ends_with("xxxlast\n"), "{text}");
        assert!(text.contains("\n… 99011 bytes left out …\n") && text.len() < 1_100, "{text}");
        let stdout = &after["runs"][0]["outputs"].as_array().unwrap().iter().find(|output| output["stream"] == "stdout").unwrap().clone();
        assert_eq!((&stdout["total_bytes"], &stdout["is_lossy"]), (&json!(100_011), &json!(true)));
        assert_eq!(printed(&after, "stderr"), "short\n");
    }

    fn binary_rubbish_is_stored_as_text_and_is_no_failure(db) {
        db.configure(&shell_class(db, "work", "head -c 50000 /dev/urandom; head -c 50000 /dev/urandom >&2; head -c 50000 /dev/urandom >&3; exit 1"));
        let after = process(db, "work", "{}");
        assert_eq!((&after["task"]["status"], &after["runs"][0]["error_code"]), (&json!("failed"), &json!("exit:1")));
        assert_eq!(after["runs"][0]["outputs"].as_array().unwrap().len(), 2);
        db.configure(&shell_class(db, "work", "printf 'a\\000b\\377c'; printf 'bad\\000ness' >&2; exit 1"));
        let after = process(db, "work", "{}");
        assert_eq!(printed(&after, "stdout"), "a\u{2400}b\u{fffd}c");
        assert_eq!(after["runs"][0]["error_message"], "bad\u{2400}ness");
        db.cli().run(&["status", "2"]).ok();
    }

    fn an_unknown_key_of_an_event_is_named_once_with_the_nearest_known_one(db) {
        let events = "echo '{\"results\":{\"n\":1}}' >&3; echo '{\"results\":2}' >&3; echo '{\"progress\":4,\"error\":{\"mesage\":\"x\"}}' >&3";
        db.configure(&shell_class(db, "work", events));
        let id = db.cli().run(&["queue", "work"]).ok();
        let slip = "unknown keys in events: \"results\" (did you mean \"result\"?), \"error.mesage\" (did you mean \"error.message\"?)";
        for (runs, runner) in [(1, &["tick"][..]), (2, &["work", "--idle-exit", "0s"])] {
            let ended = db.cli().run(runner);
            assert_eq!((ended.code, ended.stderr), (Some(0), format!("warning: class work: {slip}; ignored\n")));
            let shown = db.cli().run(&["status", &id]).ok();
            assert_eq!(shown.split_whitespace().collect::<Vec<_>>().join(" ").matches(slip).count(), runs, "{shown}");
            let after = detail(db, &id);
            assert!(after["runs"][0]["decision"].as_str().unwrap().ends_with(slip), "{after}");
            assert_eq!(after["runs"][0]["results"], json!(null));
            db.cli().run(&["retry", &id]).ok();
        }
    }

    fn an_unknown_key_of_a_coprocess_is_named_too(db) {
        let script = "import json, sys\nprint(json.dumps({'type': 'hello', 'version': 1}), flush=True)\n\
            for line in sys.stdin:\n run = json.loads(line)\n \
            if run['type'] == 'run': print(json.dumps({'type': 'done', 'id': run['id'], 'results': 1}), flush=True)\n";
        let path = write(db, "kept.py", script);
        db.configure(&format!("[class.kept]\nargv = [\"/usr/bin/env\", \"python3\", {path:?}]\nprotocol = \"coprocess\"\n"));
        db.cli().run(&["queue", "kept"]).ok();
        let ended = db.cli().run(&["tick"]);
        let expected = "warning: class kept: unknown key in an event: \"results\" (did you mean \"result\"?); ignored\n";
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), expected));
    }

    fn an_unknown_key_of_a_hello_is_named_once_per_coprocess(db) {
        let script = "import json, sys\nprint(json.dumps({'type': 'hello', 'version': 1, 'max_inflight': 2}), flush=True)\n\
            for line in sys.stdin:\n run = json.loads(line)\n \
            if run['type'] == 'run': print(json.dumps({'type': 'done', 'id': run['id']}), flush=True)\n";
        let path = write(db, "kept.py", script);
        db.configure(&format!("[class.kept]\nargv = [\"/usr/bin/env\", \"python3\", {path:?}]\nprotocol = \"coprocess\"\n"));
        db.cli().run(&["queue", "kept"]).ok();
        db.cli().run(&["queue", "kept"]).ok();
        let ended = db.cli().run(&["tick"]);
        let slip = "unknown key in an event: \"hello.max_inflight\" (did you mean \"hello.max_in_flight\"?)";
        assert_eq!((ended.code, ended.stderr), (Some(0), format!("warning: class kept: {slip}; ignored\n")));
        let decided = |task: &str| detail(db, task)["runs"][0]["decision"].as_str().unwrap().to_owned();
        assert!(decided("1").ends_with(slip) && !decided("2").contains("unknown key"), "{} {}", decided("1"), decided("2"));
    }

    fn a_handler_that_never_reads_its_input_is_no_trouble(db) {
        db.configure(&shell_class(db, "work", "exit 0"));
        let data = format!("\"{}\"", "x".repeat((1 << 20) - 2));
        let id = db.cli().stdin(data).run(&["queue", "work", "-"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(detail(db, &id)["task"]["status"], "success");
    }

    fn a_handler_that_closes_its_descriptors_still_ends_as_it_ends(db) {
        db.configure(&shell_class(db, "work", "exec 0<&- 1>&- 2>&- 3>&-; sleep 0.2; exit 5"));
        let after = process(db, "work", "{}");
        assert_eq!((&after["runs"][0]["error_code"], &after["runs"][0]["outputs"]), (&json!("exit:5"), &json!([])));
    }

    fn no_grandchild_of_a_success_lives_on_in_its_group(db) {
        let script = format!("cd {}; sleep 1000 & echo $! > one; (trap '' TERM; sleep 1000 & echo $! > two; wait) & until test -s two; do sleep 0.01; done", db.home().display());
        db.configure(&format!("{}kill_grace_secs = 1\n", shell_class(db, "work", &script)));
        assert_eq!(process(db, "work", "{}")["task"]["status"], "success");
        for name in ["one", "two"] {
            assert!(!is_alive(&wait_for_file(db, name)), "{name}");
        }
    }

    fn no_grandchild_of_a_failure_lives_on_even_in_a_session_of_its_own(db) {
        let script = format!("cd {}; setsid sh -c 'trap \"\" TERM; echo $$ > away; while :; do sleep 0.05; done' & until test -s away; do sleep 0.01; done; exit 1", db.home().display());
        db.configure(&format!("{}kill_grace_secs = 1\n", shell_class(db, "work", &script)));
        assert_eq!(process(db, "work", "{}")["task"]["status"], "failed");
        assert!(!is_alive(&wait_for_file(db, "away")));
    }

    fn a_daemon_left_by_a_success_ends_with_it_even_without_the_token(db) {
        let script = format!("cd {}; setsid env -i /bin/sh -c 'echo $$ > daemon; exec /bin/sleep 1000' & until test -s daemon; do sleep 0.01; done; echo done", db.home().display());
        db.configure(&shell_class(db, "work", &script));
        let after = process(db, "work", "{}");
        assert!(!is_alive(&wait_for_file(db, "daemon")));
        assert_eq!((&after["task"]["status"], printed(&after, "stdout")), (&json!("success"), "done\n"));
    }

    fn a_result_that_not_every_engine_can_store_does_not_leave_the_run_open(db) {
        let results = [
            "\"\\ud800\"".to_owned(), "\"a\\u0000b\"".to_owned(), "1e999".to_owned(), format!("{}{}", "[".repeat(200), "]".repeat(200)),
        ];
        for result in results {
            db.configure(&shell_class(db, "work", &format!("cat > /dev/null; printf '%s\\n' '{{\"result\":{result}}}' >&3; sleep 0.6; echo '{{\"progress\":50}}' >&3; exit 65")));
            let after = process(db, "work", "{}");
            let run = &after["runs"][0];
            assert_eq!((&run["status"], &run["error_code"]), (&json!("error"), &json!("exit:65")), "{result}");
            assert_eq!(run["percents_completed"], 50, "{result}");
            assert_eq!(after["task"]["status"], "failed");
        }
    }
}

#[test]
fn a_gigabyte_of_output_is_counted_and_not_kept() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(&shell_class(db, "work", "head -c 1G /dev/zero"));
        let after = process(db, "work", "{}");
        let output = &after["runs"][0]["outputs"][0];
        assert_eq!((&after["task"]["status"], &output["total_bytes"]), (&json!("success"), &json!(1_i64 << 30)));
        // NUL is stored as a character of three bytes.
        assert!(output["content"].as_str().unwrap().len() < 3 * (128 << 10) + 100);
    });
}
