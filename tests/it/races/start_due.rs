//! Workers that start due tasks at the same time, with each other and with single claims.

use std::collections::HashSet;

use taskqueue_domain::run::status::{Stored, TaskStatus};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_store::{ManyClaimed, Store};

use super::tools::{begin_write, many_at_once, wait_blocked};
use crate::conformance::fixture::{claim_by_nobody, create, queue, willing};
use crate::support::database::Raw;
use crate::support::{TestDb, wait_until};
use crate::{each_engine, test_on};

const AT_ONCE: usize = 8;
/// Twice what all take with their first claim.
const TASKS: usize = 80;

/// Starts everything, a few at a time.
fn start_all(store: &mut Store, number: usize) -> Vec<ClaimedRun> {
    let mut started = Vec::new();
    for round in 0.. {
        let tokens: Vec<String> =
            (0..5).map(|place| format!("{number:03}-{round:05}-{place}-token-of-a-worker")).collect();
        let ManyClaimed { runs, needs_runs, .. } = store.claim_runs(&claim_by_nobody(&|_| true), &tokens).unwrap();
        assert!(!needs_runs);
        if runs.is_empty() {
            return started;
        }
        started.extend(runs);
    }
    started
}

/// Claims everything one by one, alone under the lock.
fn claim_all(store: &mut Store, number: usize) -> Vec<ClaimedRun> {
    let claimed = |round| {
        store.claim_next_run(&claim_by_nobody(&|_| true), &format!("{number:03}-{round:05}-token-of-one")).unwrap()
    };
    (0..).map_while(claimed).collect()
}

fn all_different(started: &[ClaimedRun]) -> usize {
    let tasks: HashSet<i64> = started.iter().map(|run| run.task_id.0).collect();
    let runs: HashSet<i64> = started.iter().map(|run| run.run_id.0).collect();
    let tokens: HashSet<&str> = started.iter().map(|run| run.token.as_str()).collect();
    assert_eq!((tasks.len(), runs.len(), tokens.len()), (started.len(), started.len(), started.len()));
    tasks.len()
}

/// Takes these of PostgreSQL's four lanes, as claims in progress do.
fn take_lanes(db: &TestDb, names: &str) -> Raw {
    let mut holder = db.raw();
    begin_write(&mut holder);
    holder.execute(&format!("SELECT 1 FROM \"TaskQueueLocks\" WHERE \"Name\" IN ({names}) FOR UPDATE"));
    holder
}

/// Claims at most this many due tasks.
fn claim_up_to(store: &mut Store, count: usize) -> ManyClaimed {
    let tokens: Vec<String> = (0..count).map(|place| format!("{place:03}-token-of-one-of-many")).collect();
    store.claim_runs(&claim_by_nobody(&|_| true), &tokens).unwrap()
}

/// Calls `act` while a claim has created the run of this task and has not committed yet, and `meanwhile` while `act` waits for it.
fn beside_an_uncommitted_start(db: &TestDb, id: TaskId, act: impl FnOnce(&mut Store) + Send, meanwhile: impl FnOnce()) {
    let mut earlier = db.raw();
    let mut store = db.store();
    begin_write(&mut earlier);
    earlier.execute(&format!(
        "INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\", \"Status\", \"StartedOn\", \"Token\", \"LeaseExpiresOn\")
         VALUES ({id}, 'work', 'processing', '2020-01-01 00:00:00', 'of-the-earlier-one', '2199-01-01 00:00:00')"
    ));
    std::thread::scope(|scope| {
        let later = scope.spawn(move || act(&mut store));
        wait_blocked(db);
        meanwhile();
        earlier.execute("COMMIT");
        later.join().unwrap();
    });
}

// Only on PostgreSQL: the other engines have no lanes.
test_on! { [postgres Postgres] a_worker_that_finds_every_lane_taken_claims_once_one_is_free db {
    let mut ctx = willing(db);
    queue(&mut ctx, "work");
    let three = take_lanes(db, "'claim-2', 'claim-3', 'claim-4'");
    assert_eq!(start_all(&mut ctx.store, 1).len(), 1);
    drop(three);
    queue(&mut ctx, "work");
    let four = take_lanes(db, "'claim-1', 'claim-2', 'claim-3', 'claim-4'");
    let crowded = claim_up_to(&mut ctx.store, 1);
    assert!(crowded.is_crowded && crowded.runs.is_empty() && !crowded.needs_runs);
    drop(four);
    // The server takes a moment to notice that a client has disconnected.
    let mut started = Vec::new();
    wait_until("a lane is free", || {
        started = start_all(&mut ctx.store, 2);
        !started.is_empty()
    });
    assert_eq!(started.len(), 1);
} }

test_on! { [postgres Postgres] large_claims_share_one_lane_and_small_ones_have_the_others db {
    let mut ctx = willing(db);
    queue(&mut ctx, "work");
    let _first = take_lanes(db, "'claim-1'");
    assert!(claim_up_to(&mut ctx.store, 500).is_crowded);
    assert_eq!(claim_up_to(&mut ctx.store, 1).runs.len(), 1);
} }

test_on! { [postgres Postgres] a_small_claim_leaves_the_lane_of_large_ones_free_if_it_can db {
    let mut ctx = willing(db);
    let id = queue(&mut ctx, "work");
    let mut large = db.store();
    // The small claim holds its lane while it waits for the run that another transaction has created.
    beside_an_uncommitted_start(
        db,
        id,
        |store| assert_eq!(claim_up_to(store, 1).runs, []),
        || assert!(!claim_up_to(&mut large, 500).is_crowded),
    );
} }

test_on! { [postgres Postgres] workers_claim_due_tasks_when_the_rows_of_the_lanes_are_deleted db {
    let mut ctx = willing(db);
    queue(&mut ctx, "work");
    db.execute("DELETE FROM \"TaskQueueLocks\" WHERE \"Name\" LIKE 'claim-%'");
    assert_eq!(start_all(&mut ctx.store, 1).len(), 1);
    queue(&mut ctx, "work");
    assert_eq!(claim_up_to(&mut ctx.store, 500).runs.len(), 1);
} }

each_engine! {
    fn workers_that_start_due_tasks_at_once_share_them_and_leave_none_r2(db) {
        let mut ctx = willing(db);
        for _ in 0..TASKS {
            queue(&mut ctx, "work");
        }
        let started: Vec<ClaimedRun> = many_at_once(db, AT_ONCE, start_all).into_iter().flatten().collect();
        // A worker that found only tasks of others had to poll again, and every task belonged to some worker.
        assert_eq!(all_different(&started), TASKS);
        let open = "SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'processing'";
        assert_eq!(db.number(open), TASKS as i64);
        assert_eq!(ctx.store.count_tasks(None).unwrap().processing.count, TASKS as i64);
    }

    fn workers_that_start_due_tasks_and_runners_that_claim_share_the_tasks(db) {
        let mut ctx = willing(db);
        for _ in 0..TASKS / 2 {
            queue(&mut ctx, "work");
        }
        create(&mut ctx);
        for _ in 0..TASKS / 2 {
            queue(&mut ctx, "work");
        }
        let each = |store: &mut Store, number: usize| {
            if number.is_multiple_of(2) { start_all(store, number) } else { claim_all(store, number) }
        };
        let started: Vec<ClaimedRun> = many_at_once(db, AT_ONCE, each).into_iter().flatten().collect();
        assert_eq!(all_different(&started), TASKS);
    }

    fn of_two_claims_of_one_ready_task_the_later_one_takes_nothing_r2(db) {
        let mut ctx = willing(db);
        let id = queue(&mut ctx, "work");
        beside_an_uncommitted_start(db, id, |store| assert_eq!(start_all(store, 1), []), || {});
        assert_eq!(ctx.store.get_task(id).unwrap().status, Stored::Known(TaskStatus::Processing));
    }

    fn a_task_that_starts_while_runs_are_created_gets_no_second_one_r2(db) {
        let mut ctx = willing(db);
        let (id, other) = (queue(&mut ctx, "work"), queue(&mut ctx, "work"));
        beside_an_uncommitted_start(db, id, |store| { store.create_missing_runs(&mut |_| {}).unwrap(); }, || {});
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\""), 2);
        assert!(ctx.store.open_run_of(other).unwrap().is_some());
    }
}
