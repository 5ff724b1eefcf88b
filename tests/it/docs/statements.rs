//! docs/sql.md: each statement has the effect of its verb, and does nothing if the verb refuses.

use serde_json::Value;
use taskqueue::Message;
use taskqueue_domain::limits::pause::{PauseMode, PauseScope};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::task_change::ChangeRequest;
use taskqueue_engine::Context;
use taskqueue_engine::change::edit::{Edit, edit_tasks};
use taskqueue_engine::change::messages::send_to_task;
use taskqueue_engine::change::pauses::{PauseRequest, pause};
use taskqueue_engine::change::retry::{RetryOptions, retry_tasks};
use taskqueue_store::{MESSAGE_TO_TASK, Store};

use super::blocks_of_data::{execute_as_written, is_for, try_as_written};
use super::{Block, blocks, read};
use crate::conformance::fixture::{claim, willing};
use crate::races::tools::wait_blocked;
use crate::support::{EngineUnderTest, TestDb, wait_until};
use crate::{each_engine, test_on};

const PAGE: &str = "docs/sql.md";

/// Returns the blocks of a section for this engine.
fn section(db: &TestDb, heading: &str) -> Vec<Block> {
    let text = read(PAGE);
    let mut is_inside = false;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if let Some(title) = line.strip_prefix("## ") {
            is_inside = title == heading;
        } else if is_inside {
            lines.push(number + 1);
        }
    }
    let found: Vec<Block> =
        blocks(PAGE).into_iter().filter(|block| lines.contains(&block.line) && is_for(db, block)).collect();
    assert!(!found.is_empty(), "{PAGE} has no SQL under {heading}");
    found
}

/// Inserts the equal tasks 17 and 18, with or without a waiting run, and nothing else.
fn twins(db: &TestDb, status: &str, run: Option<&str>) {
    for table in ["TaskQueue", "TaskQueueRuns", "TaskQueueEvents"] {
        db.execute(&format!("DELETE FROM \"{table}\""));
    }
    for id in [17, 18] {
        db.execute(&format!(
            "INSERT INTO \"TaskQueue\" (\"Id\", \"TaskClass\", \"LastStatus\", \"MaxRetries\", \"FailedRetries\", \"Crashes\",
                \"QuarantinedOn\", \"ScheduledOn\", \"NextAttemptOn\", \"UpdatedOn\")
             VALUES ({id}, 'mail.send', '{status}', 3, 3, 2, '2020-01-01 00:00:00', '2020-01-01 00:00:00', '2020-01-01 00:00:00', '2020-01-01 00:00:00')"
        ));
        if let Some(of_run) = run {
            insert_run(db, id, of_run);
        }
    }
}

/// Inserts an open run with the id of its task.
fn insert_run(db: &TestDb, id: i64, status: &str) {
    db.execute(&format!(
        "INSERT INTO \"TaskQueueRuns\" (\"Id\", \"TaskQueueId\", \"TaskClass\", \"Status\", \"StartedOn\", \"Token\", \"LeaseExpiresOn\", \"UpdatedOn\")
         VALUES ({id}, {id}, 'mail.send', '{status}', '2020-01-01 00:00:00', '{id}-token', '2199-01-01 00:00:00', '2020-01-01 00:00:00')"
    ));
    db.execute(&format!("UPDATE \"TaskQueue\" SET \"CurrentRunId\" = {id} WHERE \"Id\" = {id}"));
}

/// Returns what a statement may have changed; for times only whether they are new.
fn left(db: &TestDb, id: i64) -> Vec<Option<String>> {
    let number = |column: &str| format!("CAST(\"{column}\" AS char(40))");
    let is_new = |column: &str| format!("CASE WHEN \"{column}\" > '2021-01-01' THEN 'new' ELSE 'old' END");
    let of_task = [
        "\"LastStatus\"".to_owned(),
        "\"TaskData\"".to_owned(),
        number("FailedRetries"),
        number("Crashes"),
        number("Priority"),
        "CASE WHEN \"CurrentRunId\" IS NULL THEN 'none' ELSE 'open' END".to_owned(),
        "CASE WHEN \"QuarantinedOn\" IS NULL THEN 'free' ELSE 'quarantined' END".to_owned(),
        is_new("ScheduledOn"),
        "CASE WHEN \"RetryLimit\" IS NULL THEN 'free' ELSE 'limited' END".to_owned(),
        "CASE WHEN \"NextAttemptOn\" IS NULL THEN 'none' WHEN \"NextAttemptOn\" > '2021-01-01' THEN 'new' ELSE 'old' END".to_owned(),
        is_new("UpdatedOn"),
    ];
    let of_run = [number("Priority"), is_new("UpdatedOn")];
    let mut raw = db.raw();
    let mut cells: Vec<Option<String>> = Vec::new();
    for (table, expressions) in [("TaskQueue", &of_task[..]), ("TaskQueueRuns", &of_run[..])] {
        for expression in expressions {
            cells.extend(raw.texts(&format!("SELECT {expression} AS value FROM \"{table}\" WHERE \"Id\" = {id}")));
        }
    }
    for column in ["Kind", "Details"] {
        let of_events = format!("SELECT \"{column}\" AS value FROM \"TaskQueueEvents\" WHERE \"TaskQueueId\" = {id}");
        cells.extend(raw.texts(&of_events));
    }
    cells
}

fn details(db: &TestDb, kind: &str) -> Vec<Value> {
    let sql = format!("SELECT \"Details\" AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = '{kind}' ORDER BY \"Id\"");
    db.raw().texts(&sql).into_iter().map(|text| serde_json::from_str(&text.unwrap()).unwrap()).collect()
}

type Verb = fn(&mut Context);

/// For each status, without a run, with a waiting run and with one in progress: the blocks do to 17 what the verb does to 18.
fn do_what(db: &TestDb, blocks: &[Block], verb: Verb) {
    let mut ctx = willing(db);
    for status in ["scheduled", "processing", "success", "failed", "timeout", "cancelled", "expired"] {
        for run in [None, Some("scheduled"), Some("processing")] {
            twins(db, status, run);
            blocks.iter().for_each(|block| execute_as_written(db, block));
            verb(&mut ctx);
            assert_eq!(left(db, 17), left(db, 18), "{}: {status}, {run:?}", blocks[0].place());
        }
    }
}

each_engine! {
    fn retry_in_sql_does_and_refuses_what_the_verb_does_and_refuses(db) {
        let blocks: [Block; 2] = section(db, "Retry").try_into().ok().unwrap();
        do_what(db, &blocks, |ctx| retry_tasks(ctx, &[TaskId(18)], &RetryOptions::default(), &mut |_| {}).unwrap());
        // Another live task has its key.
        for (block, status) in blocks.iter().zip(["failed", "success"]) {
            twins(db, status, None);
            db.execute("UPDATE \"TaskQueue\" SET \"UniqueKey\" = 'k', \"QuarantinedOn\" = NULL WHERE \"Id\" = 17");
            db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"UniqueKey\") VALUES ('mail.send', 'k')");
            let before = left(db, 17);
            assert!(try_as_written(db, block).is_err());
            assert_eq!(left(db, 17), before);
        }
    }

    fn what_failed_of_a_class_is_retried_in_sql_and_nothing_else(db) {
        db.execute("INSERT INTO \"TaskQueue\" (\"Id\", \"TaskClass\", \"LastStatus\", \"MaxRetries\", \"FailedRetries\", \"UniqueKey\") VALUES
            (21, 'mail.send', 'failed', 2, 2, NULL), (22, 'mail.send', 'timeout', 1, 1, NULL), (23, 'mail.send', 'failed', 5, 1, NULL),
            (24, 'other', 'failed', 1, 1, NULL), (25, 'mail.send', 'failed', 1, 1, 'k'), (26, 'mail.send', 'success', 1, 0, NULL),
            (27, 'mail.send', 'failed', 1, 1, NULL)");
        insert_run(db, 27, "scheduled");
        db.execute("UPDATE \"TaskQueue\" SET \"QuarantinedOn\" = '2020-01-01 00:00:00', \"Crashes\" = 3 WHERE \"Id\" = 22");
        for block in section(db, "Retry all failed tasks of a class") {
            execute_as_written(db, &block);
            execute_as_written(db, &block);
        }
        let events = "SELECT \"TaskQueueId\" AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'retried' ORDER BY \"TaskQueueId\"";
        assert_eq!(db.raw().numbers(events), [Some(21), Some(22)]);
        let due = "SELECT \"Id\" AS value FROM \"TaskQueue\" WHERE \"DueOn\" IS NOT NULL AND \"FailedRetries\" = 0 ORDER BY \"Id\"";
        assert_eq!(db.raw().numbers(due), [Some(21), Some(22)]);
    }

    fn an_edit_in_sql_is_refused_when_somebody_else_was_faster(db) {
        let [edit, priority]: [Block; 2] = section(db, "Editing").try_into().ok().unwrap();
        twins(db, "scheduled", None);
        let zone = if db.engine == EngineUnderTest::Postgres { "+00" } else { "" };
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"UpdatedOn\" = '2025-01-31 10:00:00.000000{zone}' WHERE \"Id\" = 17"));
        let version = db.store().get_task(TaskId(17)).unwrap().updated_on;
        let data = || db.text("SELECT \"TaskData\" AS value FROM \"TaskQueue\" WHERE \"Id\" = 17").unwrap();
        execute_as_written(db, &edit);
        assert_eq!(data(), "{\"to\":\"bob\"}");
        assert!(db.store().get_task(TaskId(17)).unwrap().updated_on > version);
        let mut ctx = willing(db);
        let change = |data: &str, if_version| {
            Edit { change: ChangeRequest { data: Some(data.to_owned()), ..ChangeRequest::default() }, if_version }
        };
        let mut refused = 0;
        edit_tasks(&mut ctx, &[TaskId(17)], &change("1", Some(version.into())), &mut |answer| refused += usize::from(answer.result.is_none())).unwrap();
        assert_eq!((refused, data()), (1, "{\"to\":\"bob\"}".to_owned()), "the program sees that it was changed");
        edit_tasks(&mut ctx, &[TaskId(17)], &change("2", None), &mut |_| {}).unwrap();
        execute_as_written(db, &edit);
        assert_eq!(data(), "2", "and so does the statement");
        let [written, kept] = details(db, "edited").try_into().unwrap();
        assert_eq!(written, serde_json::json!({ "columns": ["TaskData"] }));
        assert_eq!(kept, serde_json::json!({ "columns": ["TaskData"], "before": { "TaskData": "{\"to\":\"bob\"}" } }));
        for run in [None, Some("scheduled"), Some("processing")] {
            twins(db, "failed", run);
            execute_as_written(db, &priority);
            let change = ChangeRequest { priority: Some(5), ..ChangeRequest::default() };
            edit_tasks(&mut ctx, &[TaskId(18)], &Edit { change, if_version: None }, &mut |_| {}).unwrap();
            db.execute("DELETE FROM \"TaskQueueEvents\"");
            assert_eq!(left(db, 17), left(db, 18), "{run:?}");
        }
    }

    fn a_cancel_in_sql_ends_what_waits_and_tells_who_processes(db) {
        let cancel = section(db, "Cancelling").remove(0);
        let mut listening = Store::connect_listening(&db.url()).unwrap();
        twins(db, "failed", None);
        db.execute("DELETE FROM \"TaskQueue\" WHERE \"Id\" = 18");
        insert_run(db, 17, "scheduled");
        execute_as_written(db, &cancel);
        assert!(claim(&mut db.store()).is_none());
        assert_eq!(db.text("SELECT \"Status\" AS value FROM \"TaskQueueRuns\"").as_deref(), Some("cancelled"));
        twins(db, "processing", Some("processing"));
        let _ = listening.was_notified_of_cancel().unwrap();
        execute_as_written(db, &cancel);
        assert_eq!(left(db, 17)[0].as_deref(), Some("processing"), "it was not left to its runner");
        let asked = db.raw().numbers("SELECT \"Id\" AS value FROM \"TaskQueueRuns\" WHERE \"CancelRequestedOn\" IS NOT NULL AND \"CancelReason\" = 'withdrawn'");
        assert_eq!(asked, [Some(17)]);
        if db.engine == EngineUnderTest::Postgres {
            wait_until("the listener is notified", || listening.was_notified_of_cancel().unwrap());
        }
    }

    fn a_message_in_sql_leaves_what_the_verb_leaves(db) {
        let [to_run, kept]: [Block; 2] = section(db, "Messages to tasks").try_into().ok().unwrap();
        let mut ctx = willing(db);
        for run in [None, Some("scheduled")] {
            twins(db, "scheduled", run);
            execute_as_written(db, &to_run);
            assert_eq!(details(db, MESSAGE_TO_TASK), Vec::<Value>::new(), "{run:?}");
        }
        twins(db, "processing", Some("processing"));
        let mut listening = Store::connect_listening(&db.url()).unwrap();
        let _ = listening.was_notified_of_cancel().unwrap();
        execute_as_written(db, &to_run);
        if db.engine == EngineUnderTest::Postgres {
            wait_until("the runner is notified", || listening.was_notified_of_cancel().unwrap());
        }
        execute_as_written(db, &kept);
        for (name, data, is_kept) in [("priority", "{\"lane\":\"fast\"}", false), ("skip", "[17,18]", true)] {
            let message = Message { name: name.to_owned(), data: data.to_owned() };
            send_to_task(&mut ctx, TaskId(18), &message, is_kept).unwrap();
        }
        assert_eq!(left(db, 17), left(db, 18));
        let runs = |task: i64| db.raw().numbers(&format!("SELECT \"RunId\" AS value FROM \"TaskQueueEvents\" WHERE \"TaskQueueId\" = {task} ORDER BY \"Id\""));
        assert_eq!((runs(17), runs(18)), (vec![Some(17), None], vec![Some(18), None]));
    }

    fn a_pause_in_sql_is_that_of_the_program_until_it_is_taken_back(db) {
        let [set, take_back]: [Block; 2] = section(db, "Pausing").try_into().ok().unwrap();
        let mut ctx = willing(db);
        let request = || PauseRequest {
            scope: PauseScope::Class("mail.*".to_owned()),
            mode: PauseMode::Pause,
            reason: "no mail server".to_owned(),
            duration: Some(std::time::Duration::from_secs(7_200)),
        };
        pause(&mut ctx, request()).unwrap();
        let of_verb = ctx.store.list_pauses().unwrap().remove(0);
        execute_as_written(db, &set);
        execute_as_written(db, &set);
        let mut pauses = ctx.store.list_pauses().unwrap();
        let of_sql = pauses.remove(0);
        assert!(pauses.is_empty());
        assert_eq!((&of_sql.scope, &of_sql.mode, &of_sql.reason, of_sql.author.as_str()), (&of_verb.scope, &of_verb.mode, &of_verb.reason, "ann"));
        assert!(of_sql.created_on >= of_verb.created_on && of_sql.until >= of_verb.until);
        let kept = details(db, "paused");
        assert_eq!((kept.len(), &kept[1]), (3, &kept[0]));
        twins(db, "scheduled", None);
        insert_run(db, 17, "scheduled");
        assert!(claim(&mut db.store()).is_none());
        execute_as_written(db, &take_back);
        execute_as_written(db, &take_back);
        assert_eq!(details(db, "resumed"), [serde_json::json!({ "scope": "class", "name": "mail.*" })]);
        assert!(claim(&mut db.store()).is_some());
    }

    fn a_limit_in_sql_takes_the_place_of_an_earlier_one(db) {
        db.cli().run(&["limit", "set", "mail.send", "--running", "9"]).ok();
        execute_as_written(db, &section(db, "Limits").remove(0));
        let of_sql = db.store().list_class_limits().unwrap();
        db.cli().run(&["limit", "set", "mail.send", "--running", "2", "--rate", "100/1m"]).ok();
        assert_eq!(of_sql, db.store().list_class_limits().unwrap());
    }

    fn silent_runs_tokens_and_who_works_on_a_task_are_found_in_sql(db) {
        let [silent, of_token, who]: [Block; 3] = section(db, "Finding runs and tasks").try_into().ok().unwrap();
        let table = |block: &Block| format!("({}) AS found", block.text.trim().trim_end_matches(';'));
        twins(db, "processing", None);
        insert_run(db, 17, "processing");
        let row = |column: &str, block: &Block| format!("SELECT \"{column}\" AS value FROM {}", table(block));
        assert_eq!(db.raw().numbers(&row("TaskQueueId", &silent)), [Some(17)]);
        assert_eq!(db.text(&row("Claimant", &who)), None);
        db.execute("DELETE FROM \"TaskQueueRuns\"");
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'scheduled', \"CurrentRunId\" = NULL, \"FailedRetries\" = 0, \"QuarantinedOn\" = NULL");
        let run: Value = db.cli().run(&["worker", "claim", "--claimant", "bot"]).json();
        assert_eq!(run["task_id"], 17);
        assert_eq!(db.raw().numbers(&row("TaskQueueId", &silent)), []);
        assert_eq!(db.text(&row("Claimant", &who)).as_deref(), Some("bot"));
        let (token, run_id) = (run["token"].as_str().unwrap(), run["run_id"].to_string());
        let mine = Block { text: of_token.text.replace("40-c0ffee", token).replace("= 40", &format!("= {run_id}")), ..of_token };
        let running = |block: &Block| format!("SELECT COUNT(*) AS value FROM {} WHERE \"IsRunning\"", table(block));
        assert_eq!(db.raw().numbers(&row("TaskQueueId", &mine)), [Some(17)]);
        assert_eq!(db.number(&running(&mine)), 1);
        db.cli().run(&["worker", "resolve", &run_id, "--token", token]).ok();
        assert_eq!(db.raw().numbers(&row("TaskQueueId", &mine)), [Some(17)]);
        assert_eq!(db.number(&running(&mine)), 0);
    }
}

/// Starts task 17 as `work` does, without a change to its row, and executes the block before the start is committed.
fn execute_during_start(db: &TestDb, block: &Block) {
    let mut start = db.raw();
    start.execute("BEGIN; SELECT 1 FROM \"TaskQueue\" WHERE \"Id\" = 17 FOR UPDATE");
    start.execute(
        "INSERT INTO \"TaskQueueRuns\" (\"Id\", \"TaskQueueId\", \"TaskClass\", \"Status\", \"StartedOn\", \"Token\", \"LeaseExpiresOn\")
         VALUES (17, 17, 'mail.send', 'processing', '2020-01-01 00:00:00', '17-token', '2199-01-01 00:00:00')",
    );
    std::thread::scope(|scope| {
        let late = scope.spawn(|| execute_as_written(db, block));
        wait_blocked(db);
        start.execute("COMMIT");
        late.join().unwrap();
    });
}

test_on! { [postgres Postgres] a_cancel_in_sql_leaves_a_task_whose_start_is_being_committed db {
    let mut cancels = vec![section(db, "Cancelling").remove(0)];
    cancels.extend(blocks("docs/schema.md").into_iter().filter(|block| is_for(db, block) && block.text.contains("CancelRequestedOn")));
    assert_eq!(cancels.len(), 2);
    for cancel in cancels {
        twins(db, "scheduled", None);
        execute_during_start(db, &cancel);
        assert_eq!(left(db, 17)[0].as_deref(), Some("scheduled"), "{}", cancel.place());
        let asked = db.raw().numbers("SELECT \"Id\" AS value FROM \"TaskQueueRuns\" WHERE \"CancelRequestedOn\" IS NOT NULL");
        assert_eq!(asked, [Some(17)], "{}", cancel.place());
    }
} }

test_on! { [postgres Postgres] a_retry_in_sql_leaves_a_task_whose_start_is_being_committed db {
    for (block, status) in section(db, "Retry").iter().zip(["failed", "cancelled"]) {
        twins(db, status, None);
        let before = left(db, 18);
        execute_during_start(db, block);
        db.execute("DELETE FROM \"TaskQueueRuns\"");
        assert_eq!(left(db, 17), before, "{status}");
    }
} }
