//! `taskqueue events`: stored and new events, messages of handlers, the audit of transitions.

use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;

use rustix::process::Signal;
use serde_json::{Value, json};
use taskqueue_engine::StopSignals;
use taskqueue_engine::inspect::events::{EventFilter, Follower, follow};
use taskqueue_engine::{EngineError, EngineResult};

use super::{ECHO, shell_class, signal};
use crate::conformance::fixture::{context, process_one, queue_with_run, willing};
use crate::races::tools::begin_write;
use crate::support::cli::finish;
use crate::support::{EngineUnderTest, TestDb};
use crate::{each_engine, each_server};

fn events(db: &TestDb, args: &[&str]) -> Vec<Value> {
    let text = db.cli().run(&[&["events", "--json"], args].concat()).ok();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kinds(db: &TestDb, args: &[&str]) -> Vec<String> {
    events(db, args).iter().map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

fn insert(kind: &str) -> String {
    format!("INSERT INTO \"TaskQueueEvents\" (\"Kind\") VALUES ('{kind}')")
}

each_engine! {
    fn what_operators_did_is_listed_oldest_first_with_who_and_where(db) {
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "3"]).ok();
        db.cli().run(&["pause", "--all", "--reason", "upgrade"]).ok();
        db.cli().run(&["resume", "--all"]).ok();
        let all = events(db, &[]);
        let changed = &all[0];
        assert_eq!(changed["details"], json!({ "name": "TaskQueueRunnerLimit", "from": "8", "to": "3" }));
        assert!(changed["actor"].as_str().is_some_and(|actor| !actor.is_empty()) && changed["host"].is_string());
        assert_eq!(kinds(db, &[]), ["setting-changed", "paused", "resumed"]);
        assert_eq!(all[1]["details"]["reason"], "upgrade");
        assert_eq!(kinds(db, &["-n", "1"]), ["resumed"]);
        assert_eq!(kinds(db, &["--kind", "paused", "--kind", "setting-changed"]), ["setting-changed", "paused"]);
        let text = db.cli().run(&["events"]).ok();
        assert!(text.lines().count() == 3 && text.contains("   paused   ") && text.contains("upgrade"), "{text}");
    }

    fn events_are_chosen_by_task_and_by_time(db) {
        db.configure(ECHO);
        db.execute("INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"TaskQueueId\", \"OccurredOn\") VALUES
            ('a', 7, '2020-01-01 00:00:00'), ('b', 8, '2020-01-02 00:00:00')");
        db.execute(&insert("c"));
        assert_eq!(kinds(db, &["--task", "7"]), ["a"]);
        assert_eq!(kinds(db, &["--since", "1h"]), ["c"]);
        assert_eq!(kinds(db, &["--since", "2020-01-02T00:00:00Z"]), ["b", "c"]);
        // A pruned task has other events left, but none of this kind or time.
        assert_eq!(kinds(db, &["--task", "7", "--kind", "paused"]), Vec::<String>::new());
        assert_eq!(kinds(db, &["--task", "7", "--since", "1h"]), Vec::<String>::new());
        assert!(db.cli().run(&["events", "--task", "9"]).fails(3).contains("there is no task 9"));
        db.cli().run(&["queue", "echo"]).ok();
        assert_eq!(kinds(db, &["--task", "1"]), Vec::<String>::new());
        let stderr = db.cli().run(&["events", "--kind", "retryd"]).fails(2);
        assert!(stderr.contains("retryd") && stderr.contains("retried") && stderr.contains("late-result"), "{stderr}");
        let stderr = db.cli().run(&["events", "--since", "someday"]).fails(2);
        assert!(stderr.contains("--since: ") && stderr.contains("\"30m ago\"") && !stderr.contains("+30m"), "{stderr}");
        assert_eq!(kinds(db, &["--since", "1h ago"]), ["c"]);
    }

    fn events_are_chosen_by_user_and_a_cut_list_says_so(db) {
        for (actor, kind) in [("ann", "retried"), ("bob", "retried"), ("ann", "edited")] {
            db.execute(&format!(
                "INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"Actor\") VALUES ('{kind}', '{actor}')"
            ));
        }
        assert_eq!(kinds(db, &["--by", "ann"]), ["retried", "edited"]);
        assert_eq!(kinds(db, &["--by", "ann", "-n", "1"]), ["edited"]);
        assert!(kinds(db, &["--by", "nobody"]).is_empty());
        let cut = db.cli().run(&["events", "-n", "2", "-v"]).stderr;
        assert!(cut.contains("There are earlier events; -n shows more."), "{cut}");
    }

    fn events_are_chosen_by_run(db) {
        let script = format!("{} report message page $TASKQUEUE_RUN_ID; exit 1", env!("CARGO_BIN_EXE_taskqueue"));
        db.configure(&format!("{}backoff = \"fixed:0s\"\n", shell_class(db, "talk", &script)));
        for _ in 0..2 {
            db.cli().run(&["queue", "talk", "--max-retries", "2"]).ok();
        }
        db.cli().run(&["pause", "--class", "talk"]).ok();
        db.cli().run(&["resume", "--class", "talk"]).ok();
        for _ in 0..2 {
            db.cli().run(&["create-runs"]).ok();
            db.cli().run(&["process-run", "--drain"]).ok();
        }
        // Ids may have gaps.
        let runs = db.raw().numbers("SELECT \"Id\" AS value FROM \"TaskQueueRuns\" ORDER BY \"Id\"");
        assert_eq!(runs.len(), 4);
        for (run, (task, end)) in runs.iter().flatten().zip([(1, "retry"), (2, "retry"), (1, "failed")]) {
            let run = run.to_string();
            let of_run = events(db, &["--run", &run]);
            assert_eq!(kinds(db, &["--run", &run]), ["message", end]);
            assert_eq!((&of_run[0]["task_id"], of_run[0]["details"]["data"].to_string()), (&json!(task), run.clone()));
            assert_eq!(events(db, &["--run", &run, "--task", &task.to_string()]), of_run);
        }
        let third = runs[2].unwrap().to_string();
        assert_eq!(kinds(db, &["--run", &third, "--task", "2"]), Vec::<String>::new());
        assert_eq!(kinds(db, &["--run", &third, "--kind", "paused"]), Vec::<String>::new());
        assert!(db.cli().run(&["events", "--run", "9999"]).fails(3).contains("there is no run 9999"));
        // The remaining event of a pruned run.
        db.execute("INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"TaskQueueId\", \"RunId\") VALUES ('a', 2, 9998)");
        assert_eq!(kinds(db, &["--run", "9998", "--task", "2"]), ["a"]);
        assert_eq!(kinds(db, &["--run", "9998", "--task", "2", "--kind", "paused"]), Vec::<String>::new());
    }

    fn who_follows_sees_what_comes_until_a_signal(db) {
        db.cli().run(&["pause", "--class", "before"]).ok();
        let mut following = db.cli().spawn(&["events", "--follow", "--json", "--kind", "paused"]);
        let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
        let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
        assert_eq!(next()["details"]["name"], "before");
        for class in ["one", "two"] {
            db.cli().run(&["pause", "--class", class]).ok();
            db.cli().run(&["resume", "--class", class]).ok();
            assert_eq!(next()["details"]["name"], class);
        }
        signal(&following, Signal::TERM);
        assert_eq!(finish(following).code, Some(130));
    }

    fn an_event_that_is_committed_late_is_seen_all_the_same_and_none_twice(db) {
        let mut ctx = willing(db);
        db.execute(&insert("first"));
        let mut follower = Follower::from_now(&mut ctx, EventFilter::default()).unwrap();
        let mut seen = |ctx: &mut taskqueue_engine::Context| -> Vec<String> {
            follower.next(ctx).unwrap().into_iter().map(|event| event.kind).collect()
        };
        // SQLite allows only one writing transaction.
        let mut slow = (db.engine != EngineUnderTest::Sqlite).then(|| db.raw());
        if let Some(slow) = &mut slow {
            begin_write(slow);
            slow.execute(&insert("slow"));
        }
        db.execute(&insert("quick"));
        assert_eq!(seen(&mut ctx), ["quick"]);
        if let Some(slow) = &mut slow {
            slow.execute("COMMIT");
            assert_eq!(seen(&mut ctx), ["slow"]);
        }
        assert_eq!(seen(&mut ctx), Vec::<String>::new());
        db.execute(&insert("last"));
        assert_eq!(seen(&mut ctx), ["last"]);
    }

    fn late_events_are_seen_in_wide_and_in_many_narrow_gaps_in_order_of_id(db) {
        let with_ids = |ids: &[i64]| {
            let rows: Vec<String> = ids.iter().map(|id| format!("({id}, 'any')")).collect();
            db.execute(&format!("INSERT INTO \"TaskQueueEvents\" (\"Id\", \"Kind\") VALUES {}", rows.join(", ")));
        };
        let mut ctx = willing(db);
        with_ids(&[1]);
        let mut follower = Follower::from_now(&mut ctx, EventFilter::default()).unwrap();
        let mut seen = |ctx: &mut taskqueue_engine::Context| -> Vec<i64> {
            follower.next(ctx).unwrap().into_iter().map(|event| event.id).collect()
        };
        // Every second id of the first thousands is missing, and then two wide ranges.
        let early: Vec<i64> = (1..=700).map(|number| 2 * number + 1).chain([5_000, 9_000]).collect();
        with_ids(&early);
        assert_eq!(seen(&mut ctx), early);
        let late = [2, 4, 600, 1_400, 1_402, 1_403, 3_000, 4_999, 5_001, 8_999];
        with_ids(&[late[6], late[0], late[8]]);
        assert_eq!(seen(&mut ctx), [2, 3_000, 5_001]);
        let rest: Vec<i64> = late.into_iter().filter(|id| ![2, 3_000, 5_001].contains(id)).collect();
        with_ids(&rest);
        assert_eq!(seen(&mut ctx), rest);
        assert_eq!(seen(&mut ctx), Vec::<i64>::new());
    }

    fn a_program_on_the_library_listens_to_messages_of_handlers(db) {
        let mut ctx = context(db, "work", |run| run.emit("greeting", &json!({ "to": "Ann" })));
        let filter = EventFilter { kinds: vec!["message".to_owned()], ..EventFilter::default() };
        let mut follower = Follower::from_now(&mut ctx, filter).unwrap();
        let (task_id, run_id) = queue_with_run(&mut ctx, "work");
        process_one(&mut ctx);
        let mut heard = Vec::new();
        follow(&mut ctx, &mut follower, &StopSignals::install().unwrap(), &mut |event| {
            heard.push((event.task_id, event.run_id, event.details.clone()));
            EngineResult::<_>::Ok(ControlFlow::Break(()))
        })
        .map_err(|error: EngineError| error)
        .unwrap();
        assert_eq!(heard, [(Some(task_id), Some(run_id), json!({ "name": "greeting", "data": { "to": "Ann" } }).to_string())]);
    }

    fn handlers_send_messages_by_descriptor_and_by_command(db) {
        let program = env!("CARGO_BIN_EXE_taskqueue");
        let script = format!(
            "echo '{{\"event\":\"page\",\"data\":{{\"n\":1.50}}}}' >&3\n{program} report message page '{{\"n\":2}}' && {program} report message done\n\
             {program} report message '' 1; [ $? = 2 ] && {program} report message x '{{'; [ $? = 2 ]"
        );
        db.configure(&shell_class(db, "talk", &script));
        db.cli().run(&["queue", "talk", "--run"]).ok();
        let all = events(db, &["--kind", "message"]);
        let said: Vec<&Value> = all.iter().map(|event| &event["details"]).collect();
        assert_eq!(said, [&json!({"name":"page","data":{"n":1.5}}), &json!({"name":"page","data":{"n":2}}), &json!({"name":"done","data":null})]);
        assert_eq!((&all[0]["task_id"], &all[0]["run_id"]), (&json!(1), &json!(1)));
        assert!(db.cli().run(&["report", "message", "x"]).fails(2).contains("only inside a handler"));
    }

    fn messages_that_come_faster_than_they_are_kept_are_counted(db) {
        let script = "seq 1 20000 | sed 's/.*/{\"event\":\"page\",\"data\":&}/' >&3";
        db.configure(&shell_class(db, "flood", script));
        db.cli().run(&["queue", "flood", "--run"]).ok();
        let kept = db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'message'");
        let dropped: i64 = events(db, &["--kind", "messages-dropped", "-n", "100000"]).iter().map(|event| event["details"]["count"].as_i64().unwrap()).sum();
        assert_eq!(kept + dropped, 20_000, "{kept} kept, {dropped} dropped");
        let last = events(db, &["--kind", "message", "-n", "1"]);
        assert_eq!(last[0]["details"]["data"], 20_000, "the last messages were dropped");
    }

    fn events_tell_retry_and_failed_apart_and_keep_no_success(db) {
        let bad = "[class.bad]\nargv = [\"/bin/false\"]\nbackoff = \"fixed:0s\"\n[class.hopeless]\nargv = [\"/bin/sh\", \"-c\", \"exit 64\"]\n";
        let slow = "[class.slow]\nargv = [\"/bin/sleep\", \"100\"]\n";
        db.configure(&format!("{ECHO}{bad}{slow}"));
        db.cli().run(&["queue", "bad", "--max-retries", "2"]).ok();
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["queue", "hopeless"]).ok();
        db.cli().run(&["queue", "slow", "--timeout", "1s", "--max-retries", "1"]).ok();
        for _ in 0..2 {
            db.cli().run(&["tick"]).ok();
        }
        for (task, expected) in [("1", vec!["retry", "failed"]), ("2", vec![]), ("3", vec!["failed"]), ("4", vec!["failed"])] {
            assert_eq!(kinds(db, &["--task", task]), expected, "task {task}");
        }
        let of_first = events(db, &["--task", "1"]);
        let details = |place: usize, field: &str| of_first[place]["details"][field].clone();
        assert_eq!((details(0, "failed_retries"), details(0, "decision")), (1.into(), "exit 1: retry (default rule)".into()));
        assert_eq!((details(1, "failed_retries"), details(1, "decision")), (2.into(), "exit 1: not retried (default rule)".into()));
        assert_eq!(events(db, &["--task", "4"])[0]["details"]["status"], "timeout");
        // The runs show it already.
        assert!(!db.cli().run(&["status", "1"]).ok().contains("event "));
    }

    fn every_transition_is_kept_when_the_setting_is_on_and_none_otherwise(db) {
        let transitions = ["--kind", "task-queued", "--kind", "run-created", "--kind", "run-started", "--kind", "run-ended"];
        db.configure(&format!("{ECHO}[class.bad]\nargv = [\"/bin/false\"]\n"));
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["tick"]).ok();
        assert_eq!(kinds(db, &transitions), Vec::<String>::new());
        db.cli().run(&["setting", "set", "TaskQueueAuditTransitions", "1"]).ok();
        db.cli().stdin("{\"class\":\"echo\"}\n{\"class\":\"bad\"}\n").run(&["queue", "--batch", "-"]).ok();
        db.cli().run(&["tick"]).ok();
        let all = events(db, &transitions);
        let of = |task: i64| -> Vec<&str> {
            all.iter().filter(|event| event["task_id"] == task).map(|event| event["kind"].as_str().unwrap()).collect()
        };
        for task in [2, 3] {
            assert_eq!(of(task), ["task-queued", "run-created", "run-started", "run-ended"]);
        }
        let ended: Vec<&Value> = all.iter().filter(|event| event["kind"] == "run-ended").map(|event| &event["details"]).collect();
        assert_eq!((&ended[0]["status"], &ended[1]["status"], &ended[1]["error_code"]), (&json!("success"), &json!("error"), &json!("exit:1")));
        assert_eq!((&ended[0]["outcome"], &ended[1]["outcome"]), (&json!("success"), &json!("retry")));
        assert!(all.iter().all(|event| event["actor"].as_str().is_some_and(|actor| !actor.is_empty())), "{all:?}");
        // `queue --run` creates and claims it.
        db.cli().run(&["queue", "echo", "--run"]).ok();
        assert_eq!(kinds(db, &["--task", "4"]), ["task-queued", "run-created", "run-started", "run-ended"]);
    }

    fn what_is_imported_brings_its_events_along_and_was_not_created_here(db) {
        let audit = |value: &str| {
            db.cli().run(&["setting", "set", "TaskQueueAuditTransitions", value]).ok();
        };
        let import_again = |id: &str| {
            let exported = db.cli().run(&["export", id]).ok();
            db.cli().stdin(exported).run(&["import"]).ok();
            db.cli().run(&["create-runs"]).ok();
        };
        db.configure(ECHO);
        audit("1");
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["tick"]).ok();
        import_again("1");
        assert_eq!(kinds(db, &["--task", "2"]), ["task-queued", "run-created", "run-started", "run-ended"]);
        // Without stored transitions, the audit reports none.
        audit("0");
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["tick"]).ok();
        audit("1");
        import_again("3");
        assert_eq!(kinds(db, &["--task", "4"]), Vec::<String>::new());
        // A waiting task gets a new run, which is created here.
        db.cli().run(&["queue", "echo"]).ok();
        db.cli().run(&["create-runs"]).ok();
        import_again("5");
        let created: Vec<Value> = events(db, &["--task", "6", "--kind", "run-created"]).iter().map(|event| event["run_id"].clone()).collect();
        let run_id = db.number("SELECT \"Id\" AS value FROM \"TaskQueueRuns\" WHERE \"TaskQueueId\" = 6");
        assert_eq!(created, [Value::Null, json!(run_id)]);
    }

    fn transitions_that_a_schedule_causes_are_kept_like_those_of_people(db) {
        let plan = |id: i64, year: u32| {
            db.execute(&format!(
                "UPDATE \"TaskQueue\" SET \"PlannedOn\" = '{year}-02-29 00:00:00', \"ScheduledOn\" = '{year}-02-29 00:00:00' WHERE \"Id\" = {id}"
            ));
        };
        let of = |id: i64| kinds(db, &["--task", &id.to_string()]);
        let actor_of = |id: i64| events(db, &["--kind", "task-queued", "--task", &id.to_string()])[0]["actor"].clone();
        db.configure(ECHO);
        db.cli().run(&["setting", "set", "TaskQueueAuditTransitions", "1"]).ok();
        db.cli().run(&["queue", "echo", "--every", "0 0 29 2 *", "--catch-up", "all"]).ok();
        db.cli().run(&["create-runs"]).ok();
        plan(1, 2016);
        db.cli().run(&["tick"]).ok();
        // The next task of the schedule, after one task for each time that has passed.
        let last = db.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueue\"");
        assert!(last >= 4);
        for id in 1..last {
            assert_eq!(of(id), ["task-queued", "run-created", "run-started", "run-ended"], "{id}");
        }
        assert_eq!(of(last), ["task-queued"]);
        assert_eq!(actor_of(last), "");
        // The transitions of a task that ended without a run.
        db.cli().run(&["cancel", &last.to_string()]).ok();
        db.cli().run(&["create-runs"]).ok();
        assert_eq!(of(last + 1), ["task-queued"]);
        assert_ne!(actor_of(last + 1), "");
        plan(last + 1, 2012);
        db.cli().run(&["create-runs"]).ok();
        db.cli().run(&["schedule", "pause", "1"]).ok();
        assert_eq!(of(last + 1), ["task-queued", "run-created", "run-ended", "schedule-paused"]);
        let ended = &events(db, &["--kind", "run-ended", "--task", &(last + 1).to_string()])[0]["details"];
        assert_eq!((&ended["status"], &ended["decision"]), (&json!("released"), &json!("its schedule was changed")));
    }
}

each_server! {
    fn thousands_of_events_held_back_by_one_transaction_are_all_seen_once(db) {
        const HELD: usize = 3_000;
        let mut ctx = willing(db);
        db.execute(&insert("first"));
        let mut slow = db.raw();
        begin_write(&mut slow);
        slow.execute(&format!("INSERT INTO \"TaskQueueEvents\" (\"Kind\") VALUES {}", vec!["('slow')"; HELD].join(", ")));
        db.execute(&insert("before"));
        // A follower that starts during the open transactions sees these events too.
        let mut follower = Follower::from_now(&mut ctx, EventFilter::default()).unwrap();
        db.execute(&insert("quick"));
        let mut seen = |ctx: &mut taskqueue_engine::Context| -> Vec<(i64, String)> {
            follower.next(ctx).unwrap().into_iter().map(|event| (event.id, event.kind)).collect()
        };
        let kinds = |events: &[(i64, String)]| -> Vec<String> { events.iter().map(|(_, kind)| kind.clone()).collect() };
        assert_eq!(kinds(&seen(&mut ctx)), ["quick"]);
        assert_eq!(kinds(&seen(&mut ctx)), Vec::<String>::new());
        slow.execute("COMMIT");
        let late = seen(&mut ctx);
        assert_eq!(kinds(&late), vec!["slow"; HELD]);
        assert!(late.is_sorted_by_key(|(id, _)| *id));
        db.execute(&insert("last"));
        assert_eq!(kinds(&seen(&mut ctx)), ["last"]);
    }
}
