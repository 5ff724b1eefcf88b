//! `taskqueue report message --task` and `--class`: messages to running tasks.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::claimants::queue_and_claim;
use super::coprocess::kept;
use super::{detail, error_and_hint, printed, shell_class, signal};
use crate::each_engine;
use crate::support::cli::finish;
use crate::support::{TestDb, wait_until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_taskqueue");

/// A coprocess that takes messages to its run until it receives `finish`; its result contains the messages.
const TAKES_MESSAGES: &str = "say(type='hello', version=1)\n\
    for run in runs():\n say(type='listen', id=run['id'])\n taken = []\n \
    while True:\n  m = json.loads(sys.stdin.readline())\n  \
    if m['type'] != 'message' or m['id'] != run['id']: continue\n  \
    if m['name'] == 'finish': break\n  taken.append([m['name'], m['data']])\n \
    if run['data'] == {'fails': run['attempt']}: say(type='fail', id=run['id'], result=taken)\n \
    else: done(run, taken)\n";

/// Sends a message as soon as a run of task 1 is in progress.
fn send_once_in_progress(db: &TestDb, args: &[&str]) -> Value {
    let mut sent = Value::Null;
    wait_until("a run is in progress", || {
        let ended = db.cli().run(&[&["report", "message", "--json"], args].concat());
        sent = serde_json::from_str(&ended.stdout).unwrap_or_default();
        ended.code == Some(0)
    });
    sent
}

each_engine! {
    fn a_coprocess_that_listens_gets_the_messages_to_its_run(db) {
        db.configure(&format!("{}backoff = \"fixed:0s\"\n", kept(db, "talk", TAKES_MESSAGES)));
        db.cli().run(&["queue", "talk", "{\"fails\":1}"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["report", "message", "--task", "1", "--keep", "skip", "[17]"]).ok();
        for attempt in ["first", "second"] {
            let runner = db.cli().spawn(&["process-run"]);
            let sent = send_once_in_progress(db, &["--task", "1", "page", "{\"n\":\n1.5}"]);
            assert_eq!((&sent["task_id"], &sent["is_kept"], &sent["claimant"]), (&json!(1), &json!(false), &Value::Null));
            db.cli().run(&["report", "message", "--task", "1", "finish"]).ok();
            assert!(finish(runner).code.is_some_and(|code| code < 2));
            let after = detail(db, "1");
            assert_eq!(after["runs"][0]["id"], sent["run_id"]);
            // A kept message was sent before the runner queried for any.
            assert_eq!(after["runs"][0]["results"], json!([["skip", [17]], ["page", {"n": 1.5}]]), "{attempt}: {after}");
            db.cli().run(&["create-runs"]).ok();
        }
        assert_eq!(detail(db, "1")["task"]["status"], "success");
    }

    fn what_a_handler_reports_is_stored_and_shown_as_it_was_written(db) {
        let json = "{\"id\":123456789012345678901234567890, \"n\":1,\"n\":0.10000000000000000001}";
        let script = format!("{PROGRAM} report result '{json}' && {PROGRAM} report message page '{json}'");
        db.configure(&shell_class(db, "work", &script));
        db.cli().run(&["queue", "work", json]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(db.text("SELECT \"Results\" AS value FROM \"TaskQueueRuns\"").as_deref(), Some(json));
        let shown = db.cli().run(&["status", "1", "--json"]).ok();
        assert_eq!(shown.matches(json).count(), 3, "{shown:?}");
        let followed = db.cli().run(&["events", "--json", "--kind", "message"]).ok();
        assert!(followed.contains(json), "{followed:?}");
        for list in [
            "status -o json", "status -o jsonl --columns id,data", "status --runs -o jsonl", "events --kind message -o jsonl",
            "events --kind message -o csv", "status --columns data", "status -o csv --columns last_run.results",
        ] {
            let printed = db.cli().run(&list.split(' ').collect::<Vec<_>>()).ok();
            assert!(printed.replace("\"\"", "\"").contains(json), "{list}: {printed:?}");
        }
        // A report is one line, so line breaks between the parts of JSON become spaces.
        db.configure(&shell_class(db, "work", &format!("printf '[1,\\n2]' | {PROGRAM} report result -")));
        db.cli().run(&["queue", "work"]).ok();
        db.cli().run(&["tick"]).ok();
        let newest = "SELECT \"Results\" AS value FROM \"TaskQueueRuns\" WHERE \"TaskQueueId\" = 2";
        assert_eq!(db.text(newest).as_deref(), Some("[1, 2]"));
    }

    fn a_message_without_a_run_in_progress_is_refused_unless_it_is_kept(db) {
        db.configure("[class.idle]\nargv = [\"/bin/true\"]\n");
        db.cli().run(&["queue", "idle"]).ok();
        let (error, hint) = error_and_hint(&db.cli().run(&["report", "message", "--task", "1", "page"]).fails(1));
        assert!(error.contains("task 1 has the status scheduled: no attempt is in progress"), "{error}");
        assert!(hint.contains("--keep"), "{hint}");
        let refused = db.cli().run(&["report", "message", "--json", "--task", "1", "page"]);
        assert_eq!(refused.code, Some(1));
        assert!(refused.stderr.contains("\"not_in_progress\"") || refused.stdout.contains("\"not_in_progress\""), "{refused:?}");
        let kept: Value = db.cli().run(&["report", "message", "--json", "--task", "1", "--keep", "page", "7"]).json();
        assert_eq!(kept, json!({"task_id": 1, "run_id": null, "host": "", "claimant": null, "is_kept": true}));
        db.cli().run(&["tick"]).ok();
        let (error, hint) = error_and_hint(&db.cli().run(&["report", "message", "--task", "1", "--keep", "page"]).fails(1));
        assert!(error.contains("task 1 has the status success") && hint.contains("taskqueue retry 1"), "{error} {hint}");
        assert!(db.cli().run(&["report", "message", "--task", "9", "page"]).fails(3).contains("there is no task 9"));
        assert!(db.cli().run(&["report", "message", "--class", "idle", "page"]).fails(3).contains("no run of class idle is in progress"));
        for args in [&["--keep", "page"][..], &["--class", "idle", "--keep", "page"], &["--task", "1", "--class", "idle", "page"],
            &["--task", "1", "--token", "t", "page"], &["--task", "1", ""], &["--task", "1", "page", "{"]] {
            db.cli().run(&[&["report", "message"], args].concat()).fails(2);
        }
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'message-to-task'"), 1);
    }

    fn a_handler_that_runs_once_follows_the_messages_to_its_task(db) {
        let script = format!(
            "{PROGRAM} events --task $TASKQUEUE_TASK_ID --run $TASKQUEUE_RUN_ID --kind message-to-task --follow --json | \
             while read -r line; do printf '%s\\n' \"$line\"; case $line in *finish*) exit 0;; esac; done"
        );
        db.configure(&shell_class(db, "follow", &script));
        db.cli().run(&["queue", "follow"]).ok();
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["report", "message", "--task", "1", "--keep", "skip", "[17]"]).ok();
        let runner = db.cli().spawn(&["process-run"]);
        send_once_in_progress(db, &["--class", "f*", "page", "1"]);
        db.cli().run(&["report", "message", "--task", "1", "finish"]).ok();
        finish(runner).ok();
        let after = detail(db, "1");
        let lines: Vec<Value> = printed(&after, "stdout").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let names: Vec<&Value> = lines.iter().map(|line| &line["details"]["name"]).collect();
        assert_eq!(names, ["skip", "page", "finish"]);
        assert_eq!((&lines[0]["run_id"], &lines[1]["run_id"]), (&Value::Null, &after["runs"][0]["id"]));
    }

    fn a_handler_sends_messages_to_its_task_and_its_children_alone(db) {
        let script = format!(
            "exec 2>&1\nchild=$({PROGRAM} queue talk '{{}}')\n{PROGRAM} report message --task $child --keep hello \"$child\"; echo $?\n\
             {PROGRAM} report message --task $TASKQUEUE_TASK_ID own; echo $?\n\
             {PROGRAM} report message --task 1 stranger; echo $?\n{PROGRAM} report message --token x --task 2 x; echo $?\n\
             {PROGRAM} report message report '7'; echo $?"
        );
        db.configure(&format!("{}may_queue = [\"talk\"]\n[class.talk]\nargv = [\"/bin/true\"]\n", shell_class(db, "order", &script)));
        db.cli().run(&["queue", "talk", "--in", "1h"]).ok();
        db.cli().run(&["queue", "order", "--run"]).ok();
        let after = detail(db, "2");
        let text = printed(&after, "stdout");
        let codes: Vec<&str> = text.lines().filter(|line| line.len() == 1).collect();
        assert_eq!(codes, ["0", "0", "2", "2", "0"], "{text}");
        assert!(text.contains("task 1 is neither task 2 of this handler nor its child"), "{text}");
        let of = |task: &str| -> Vec<String> {
            let text = db.cli().run(&["events", "--json", "--task", task]).ok();
            let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            events.map(|event| format!("{} {} {}", event["kind"], event["actor"], event["details"])).collect()
        };
        assert_eq!(of("3"), ["\"message-to-task\" \"task 2\" {\"name\":\"hello\",\"data\":3}"]);
        assert_eq!(of("1"), Vec::<String>::new());
        assert_eq!(of("2").len(), 2);
    }

    fn a_claimant_reads_the_messages_to_its_run_from_the_events(db) {
        let held = queue_and_claim(db, &[]);
        let sent: Value = db.cli().run(&["report", "message", "--json", "--task", &held.task, "page", "1"]).json();
        assert_eq!((sent["run_id"].to_string(), &sent["claimant"]), (held.run.clone(), &json!("bot")));
        let said = db.cli().run(&["report", "message", "--task", &held.task, "page", "2"]);
        assert!(said.stderr.contains(&format!("sent to run {} of claimant bot", held.run)), "{said:?}");
        let events = db.cli().run(&["events", "--json", "--run", &held.run, "--kind", "message-to-task"]).ok();
        assert_eq!(events.lines().count(), 2, "{events}");
        // The kept message is for this attempt too.
        db.cli().run(&["report", "message", "--task", &held.task, "--keep", "skip"]).ok();
        db.cli().run(&["queue", "--any-class", "work"]).ok();
        db.cli().run(&["report", "message", "--task", "2", "--keep", "stray"]).ok();
        let events = db.cli().run(&["events", "--run", &held.run]).ok();
        assert_eq!((events.lines().count(), events.contains("skip")), (4, true), "{events}");
    }

    fn whoever_follows_without_the_past_sees_only_what_comes(db) {
        db.cli().run(&["pause", "--class", "before"]).ok();
        assert_eq!(db.cli().run(&["events", "-n", "0"]).ok(), "");
        let mut following = db.cli().spawn(&["events", "--follow", "-n", "0", "--json", "--kind", "paused", "--kind", "resumed"]);
        let lines = std::io::BufRead::lines(std::io::BufReader::new(following.stdout.take().unwrap()));
        let (sender, receiver) = std::sync::mpsc::channel();
        // Reads to the end: without a reader the command would end on its own.
        let reading = std::thread::spawn(move || lines.for_each(|line| drop(sender.send(line.unwrap()))));
        // It may not have started to follow when the first of these is sent.
        let mut first = None;
        wait_until("a message is received", || {
            db.cli().run(&["pause", "--class", "after"]).ok();
            first = receiver.try_recv().ok();
            first.is_some()
        });
        assert!(first.unwrap().contains("\"after\""));
        signal(&following, Signal::TERM);
        assert_eq!(finish(following).code, Some(130));
        reading.join().unwrap();
    }

    fn whoever_follows_ends_when_the_reader_of_its_output_has_gone(db) {
        let mut following = db.cli().spawn(&["events", "--follow"]);
        drop(following.stdout.take());
        assert_eq!(finish(following).code, Some(0));
    }
}
