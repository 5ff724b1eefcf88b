//! PostgreSQL caches the plan of a prepared statement. A plan made while the tables are empty must also work for full ones.

use taskqueue_domain::run::transition::RunEvent;
use taskqueue_store::{RunEnd, Store};

use super::fixture::{claim_by_nobody, queue, reference, willing};
use crate::support::{TestDb, wait_until};
use crate::test_on;

const RUNS: usize = 20;
/// The number of rows, which a plan that scans a whole table or index would read.
const ROWS: i64 = 5_000;

/// Starts due tasks and ends their runs with the statements of a worker.
fn work(store: &mut Store, round: usize) {
    let tokens: Vec<String> = (0..RUNS).map(|number| format!("{round:02}-{number:04}-token-of-a-plan")).collect();
    let claimed = store.claim_runs(&claim_by_nobody(&|_| true), &tokens).unwrap().runs;
    let end = RunEnd::of(RunEvent::Succeed, "", "", "exit 0");
    let ends: Vec<_> = claimed.iter().map(|run| (reference(run), &end)).collect();
    let mut ended = 0;
    store.end_runs(&ends, &mut |_, _| ended += 1).unwrap();
    assert_eq!((claimed.len(), ended), (RUNS, RUNS));
}

fn queue_many(db: &TestDb) {
    let mut ctx = willing(db);
    for _ in 0..RUNS {
        queue(&mut ctx, "work");
    }
}

/// Inserts finished tasks, future tasks, and tasks in progress elsewhere, each with its run.
fn fill(db: &TestDb) {
    for (status, due, run) in [
        ("success", "now()", Some("'success', now(), 'gone', NULL")),
        ("scheduled", "now() + interval '1 day'", None),
        ("processing", "now()", Some("'processing', NULL, 'held', now() + interval '1 day'")),
    ] {
        db.raw().execute(&format!(
            "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"ScheduledOn\", \"QueuedById\")
             SELECT 'work', '{status}', {due}, 'filled' FROM generate_series(1, {ROWS})"
        ));
        let Some(run) = run else { continue };
        db.raw().execute(&format!(
            "INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\", \"StartedOn\", \"Status\", \"FinishedOn\", \"Token\", \"LeaseExpiresOn\")
             SELECT \"Id\", \"TaskClass\", now(), {run} FROM \"TaskQueue\" WHERE \"QueuedById\" = 'filled' AND \"LastStatus\" = '{status}'"
        ));
    }
    db.raw().execute("ANALYZE \"TaskQueue\"; ANALYZE \"TaskQueueRuns\"");
}

/// Returns how many rows and index entries of both tables were read so far by sessions that have ended.
fn reads(db: &TestDb) -> i64 {
    db.number(
        "SELECT CAST((SELECT SUM(seq_tup_read) FROM pg_stat_user_tables WHERE relname IN ('TaskQueue', 'TaskQueueRuns'))
             + (SELECT SUM(idx_tup_read) FROM pg_stat_user_indexes WHERE relname IN ('TaskQueue', 'TaskQueueRuns')) AS bigint) AS value",
    )
}

/// Returns how many rows of TaskQueue were inserted and updated so far by sessions that have ended.
fn writes(db: &TestDb) -> (i64, i64) {
    let count = |column: &str| {
        db.number(&format!(
            "SELECT CAST({column} AS bigint) AS value FROM pg_stat_user_tables WHERE relname = 'TaskQueue'"
        ))
    };
    (count("n_tup_ins"), count("n_tup_upd"))
}

test_on! { [postgres Postgres] a_plan_made_for_an_empty_store_reads_no_full_one_whole db {
    let mut store = db.store();
    // A connection that was used rarely has no cached plan.
    for _ in 0..100 {
        store.now().unwrap();
    }
    queue_many(db);
    work(&mut store, 0);
    fill(db);
    queue_many(db);
    let runs = i64::try_from(RUNS).unwrap();
    // A session reports its counters when it ends.
    wait_until("the others have ended", || writes(db).0 == 3 * ROWS + 2 * runs);
    let before = reads(db);
    work(&mut store, 1);
    drop(store);
    wait_until("the worker has ended", || writes(db).1 >= 2 * runs);
    let read = reads(db) - before;
    assert!(read < ROWS, "{read} rows and index entries for {RUNS} tasks");
} }
