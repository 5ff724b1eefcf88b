//! The trace context and the correlation id: from the environment of the caller to the handler, and on to the tasks that it queues.

use serde_json::{Value, json};

use super::{ECHO, count_tasks, detail, printed, task, write};
use crate::each_engine;
use crate::support::TestDb;
use crate::support::cli::Cli;

const PROGRAM: &str = env!("CARGO_BIN_EXE_taskqueue");
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const OF_RUNNER: &str = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-00";
const SPAN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-cccccccccccccccc-01";
const SHOW: &str = "env | grep -E '^(TRACEPARENT|TASKQUEUE_CORRELATION_ID)=' | sort";

fn traced(db: &TestDb, trace: &str, correlation: &str) -> Cli {
    db.cli().env("TRACEPARENT", trace).env("TASKQUEUE_CORRELATION_ID", correlation)
}

fn meta(db: &TestDb, id: &str) -> Value {
    task(db, id)["meta"].clone()
}

/// Returns the variables that the handler of this task got.
fn shown(db: &TestDb, id: &str) -> String {
    printed(&detail(db, id), "stdout").lines().filter(|line| line.contains('=')).collect::<Vec<_>>().join(" ")
}

fn both(trace: &str, correlation: &str) -> String {
    format!("TASKQUEUE_CORRELATION_ID={correlation} TRACEPARENT={trace}")
}

each_engine! {
    fn the_trace_of_the_caller_reaches_the_handler_and_its_tasks(db) {
        let script = write(db, "order.sh", format!(
            "{SHOW}\ntaskqueue() {{ {PROGRAM} \"$@\"; }}\ntaskqueue queue child\n\
             TRACEPARENT={SPAN} taskqueue queue child --correlation other\n\
             printf '{{\"class\":\"child\"}}\\n' | TRACEPARENT={SPAN} taskqueue queue --batch -\n\
             (unset TRACEPARENT TASKQUEUE_CORRELATION_ID; taskqueue queue child)"
        ));
        db.configure(&format!(
            "[exec]\nenabled = true\n[class.order]\nargv = [\"/bin/sh\", {script:?}]\nmay_queue = [\"child\"]\n\
             pass_env = [\"TRACEPARENT\"]\n[class.child]\nargv = [\"/bin/sh\", \"-c\", \"{SHOW}\"]\n\
             [class.set]\nargv = [\"/bin/sh\", \"-c\", \"{SHOW}\"]\nenv = {{ TRACEPARENT = \"own\" }}\n"
        ));
        traced(db, TRACE, "order 17").run(&["queue", "order"]).ok();
        assert_eq!(meta(db, "1"), json!({"correlation": "order 17", "traceparent": TRACE}));
        assert!(db.cli().run(&["status", "1"]).ok().contains(TRACE));
        traced(db, OF_RUNNER, "runner").run(&["tick"]).ok();
        assert_eq!(shown(db, "1"), both(TRACE, "order 17"));
        // A worker claims in another way than `tick`, which has handled the children already.
        db.cli().run(&["retry", "2-5", "--yes"]).ok();
        traced(db, OF_RUNNER, "runner").run(&["work", "--idle-exit", "0s", "--slots", "2"]).ok();
        for (id, wanted) in [("2", both(TRACE, "order 17")), ("3", both(SPAN, "other")), ("4", both(SPAN, "order 17")), ("5", String::new())] {
            assert_eq!((shown(db, id), task(db, id)["parent_id"].clone()), (wanted, json!(1)), "task {id}");
        }
        // A task without a trace gets that of the runner only by pass_env; env of a class or of `exec` is meant for the program.
        let own = [
            db.cli().run(&["queue", "order"]).ok(),
            traced(db, TRACE, "a").run(&["queue", "set"]).ok(),
            traced(db, TRACE, "a").run(&["exec", "--env", "TRACEPARENT=mine", "--shell", SHOW]).ok(),
            traced(db, TRACE, "a").run(&["exec", "--correlation", "b", "--shell", SHOW]).ok(),
        ];
        traced(db, OF_RUNNER, "runner").run(&["tick"]).ok();
        assert_eq!(own.map(|id| shown(db, &id)), [
            format!("TRACEPARENT={OF_RUNNER}"), both("own", "a"), both("mine", "a"), both(TRACE, "b"),
        ]);
    }

    fn what_a_task_keeps_of_a_trace_depends_on_its_options(db) {
        db.configure(ECHO);
        let queue = |cli: Cli, words: &[&str]| meta(db, &cli.run(&[&["queue", "echo"], words].concat()).ok());
        // As the standard demands, an invalid trace context is no error.
        for bad in ["", "00", &TRACE.to_uppercase(), &format!("{TRACE}-"), "ü"] {
            assert_eq!(queue(db.cli().env("TRACEPARENT", bad), &[]), json!({}), "{bad}");
        }
        assert_eq!(queue(traced(db, "x", ""), &["--correlation", "c"]), json!({"correlation": "c"}));
        assert_eq!(queue(traced(db, TRACE, "c"), &["--meta", "traceparent=x", "--meta", "a=b"]),
            json!({"a": "b", "correlation": "c", "traceparent": "x"}));
        // The tasks of a schedule are no part of the work that started it.
        assert_eq!(queue(traced(db, TRACE, "c"), &["--every", "1h"]), json!({}));
        assert_eq!(queue(traced(db, TRACE, "c"), &["--every", "1h", "--correlation", "d"]), json!({"correlation": "d"}));
        let lines = ["", ",\"correlation\":\"own\"", ",\"meta\":{\"traceparent\":7}", ",\"every\":\"1h\""]
            .map(|more| format!("{{\"class\":\"echo\"{more}}}")).join("\n");
        let ids = traced(db, TRACE, "").stdin(lines).run(&["queue", "--batch", "-", "--correlation", "all"]).ok();
        let kept: Vec<Value> = ids.lines().map(|id| meta(db, id)).collect();
        assert_eq!(kept, [
            json!({"correlation": "all", "traceparent": TRACE}), json!({"correlation": "own", "traceparent": TRACE}),
            json!({"correlation": "all", "traceparent": 7}), json!({}),
        ]);
        let selected = db.cli().run(&["status", "meta.correlation=all", "--json"]).json();
        assert_eq!(selected["tasks"].as_array().unwrap().len(), 2);
        let count = count_tasks(db);
        let refused = db.cli().env("TASKQUEUE_CORRELATION_ID", "a\tb").run(&["queue", "echo"]).fails(2);
        assert!(refused.starts_with("error: TASKQUEUE_CORRELATION_ID: the correlation id has the character"), "{refused}");
        for bad in ["", " a", "ü", &"x".repeat(191)] {
            assert!(db.cli().run(&["queue", "echo", "--correlation", bad]).fails(2).contains("correlation id"), "{bad}");
        }
        assert_eq!(count_tasks(db), count);
    }
}
