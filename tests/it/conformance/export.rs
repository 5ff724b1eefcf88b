//! An export while another connection changes what it reads.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Once;

use diesel::connection::{InstrumentationEvent, set_default_instrumentation};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_engine::Context;
use taskqueue_engine::queueing::transfer::{export_all, export_selected};

use super::fixture::{create, drain, queue, willing};
use crate::each_server;
use crate::races::tools::wait_blocked;
use crate::support::db::{Raw, on};
use crate::support::{EngineUnderTest, TestDb};

/// Part of a statement, and what to do before it.
type Before = (&'static str, Box<dyn FnOnce()>);

thread_local! {
    static BEFORE: RefCell<Option<Before>> = const { RefCell::new(None) };
}

/// Does this once, when a connection of this thread to SQLite that is opened later begins a statement with these words.
fn before(words: &'static str, act: impl FnOnce() + 'static) {
    static SEEN: Once = Once::new();
    SEEN.call_once(|| set_default_instrumentation(|| Some(Box::new(begins))).unwrap());
    BEFORE.set(Some((words, Box::new(act))));
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that Diesel calls")]
fn begins(event: InstrumentationEvent<'_>) {
    let InstrumentationEvent::StartQuery { query, .. } = event else { return };
    let is_it = |(words, _): &mut Before| query.to_string().replace('`', "").contains(*words);
    if let Some((_, act)) = BEFORE.with_borrow_mut(|before| before.take_if(is_it)) {
        act();
    }
}

/// Exports all tasks or these, and returns their lines.
fn export(ctx: &mut Context, ids: Option<&[TaskId]>) -> Vec<serde_json::Value> {
    let mut lines = Vec::new();
    let mut hear = |line: String| {
        lines.push(serde_json::from_str(&line).unwrap());
        Ok(ControlFlow::Continue(()))
    };
    match ids {
        Some(ids) => export_selected(ctx, ids, &mut hear).unwrap(),
        None => export_all(ctx, &mut hear).unwrap(),
    };
    lines[1..lines.len() - 1].to_vec()
}

/// Queues a task with a run, and blocks readers of the runs.
fn lock_runs(db: &TestDb, ctx: &mut Context) -> (TaskId, Raw) {
    let id = queue(ctx, "work");
    create(ctx);
    let mut other = db.raw();
    other.execute(match db.engine {
        EngineUnderTest::Postgres => "BEGIN; LOCK TABLE \"TaskQueueRuns\" IN ACCESS EXCLUSIVE MODE",
        _ => "LOCK TABLES \"TaskQueueRuns\" WRITE",
    });
    (id, other)
}

#[test]
fn an_export_goes_on_when_a_whole_page_is_deleted_meanwhile() {
    on(EngineUnderTest::Sqlite, |db| {
        let rows = vec!["('work')"; 501].join(", ");
        db.execute(&format!("INSERT INTO \"TaskQueue\" (\"TaskClass\") VALUES {rows}"));
        let mut other = db.raw();
        before("TaskData", move || other.execute("DELETE FROM \"TaskQueue\" WHERE \"Id\" <= 500"));
        assert_eq!(export(&mut willing(db), None).len(), 501);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\""), 1);
    });
}

#[test]
fn an_exported_task_has_the_status_of_its_last_run() {
    on(EngineUnderTest::Sqlite, |db| {
        for is_selected in [false, true] {
            let mut other = willing(db);
            let id = queue(&mut other, "work");
            create(&mut other);
            before("FROM TaskQueueRuns", move || assert_eq!(drain(&mut other).succeeded, 1));
            let lines = export(&mut willing(db), is_selected.then_some(&[id]));
            let whole = lines.last().unwrap();
            let statuses = (&whole["task"]["last_status"], &whole["runs"][0]["run"]["status"]);
            assert_eq!(statuses, (&"scheduled".into(), &"scheduled".into()));
            assert_eq!(drain(&mut willing(db)).succeeded, 0);
        }
    });
}

each_server! {
    fn an_exported_task_and_its_runs_are_of_the_same_moment(db) {
        for is_selected in [false, true] {
            let mut ctx = willing(db);
            let (id, mut other) = lock_runs(db, &mut ctx);
            let lines = std::thread::scope(|scope| {
                let exporter = scope.spawn(|| export(&mut ctx, is_selected.then_some(&[id])));
                wait_blocked(db);
                db.execute("UPDATE \"TaskQueue\" SET \"Priority\" = 7");
                other.execute("UPDATE \"TaskQueueRuns\" SET \"Priority\" = 7");
                other.execute(if db.is_mysql_like() { "UNLOCK TABLES" } else { "COMMIT" });
                exporter.join().unwrap()
            });
            let whole = lines.last().unwrap();
            assert_eq!((&whole["task"]["priority"], &whole["runs"][0]["run"]["priority"]), (&0.into(), &0.into()));
            assert_eq!(export(&mut ctx, None).last().unwrap()["runs"][0]["run"]["priority"], 7);
        }
    }
}
