//! Pruning during other work: nothing waits behind a waiting prune, and no process reports tasks that another one has deleted.

use taskqueue_domain::run::retention::Kept;
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_store::{PruneRule, PruneVerdict};

use super::schedules::exhausted;
use super::tools::{begin_write, wait_blocked};
use crate::conformance::fixture::{create, drain, old_tasks, queue, willing};
use crate::support::database::sessions;
use crate::support::{EngineUnderTest, TestDb, wait_until};
use crate::{each_engine, each_server, test_on};

/// Inserts runs that ended long ago, each with a result and an output.
fn ended_long_ago(db: &TestDb, count: usize) {
    let mut ctx = willing(db);
    for _ in 0..count {
        queue(&mut ctx, "work");
    }
    create(&mut ctx);
    drain(&mut ctx);
    db.execute("UPDATE \"TaskQueueRuns\" SET \"FinishedOn\" = '2020-01-01 00:00:00.000000', \"Results\" = '{}'");
    db.execute(
        "INSERT INTO \"TaskQueueRunOutputs\" (\"RunId\", \"Stream\", \"Content\", \"TotalBytes\") SELECT \"Id\", 'stdout', 'x', 1 FROM \"TaskQueueRuns\"",
    );
}

each_engine! {
    fn outputs_that_another_deletes_at_the_same_time_are_not_counted_twice(db) {
        ended_long_ago(db, 3);
        let mut other = db.raw();
        begin_write(&mut other);
        other.execute("DELETE FROM \"TaskQueueRunOutputs\" WHERE \"RunId\" = 2");
        std::thread::scope(|scope| {
            let pruned = scope.spawn(|| db.store().prune_outputs(60, None).unwrap());
            wait_blocked(db);
            other.execute("COMMIT");
            assert_eq!(pruned.join().unwrap(), 2);
        });
    }
}

// SQLite allows only one writing transaction.
each_server! {
    fn a_prune_passes_over_a_locked_task_and_a_later_one_deletes_it(db) {
        let mut ctx = willing(db);
        let rule = PruneRule::older_than(TaskStatus::Failed, 60);
        let in_use = PruneVerdict::Stays { status: "failed".to_owned(), why: Kept::InUse };
        for is_named in [false, true] {
            let (locked, free) = (exhausted(db, &mut ctx), exhausted(db, &mut ctx));
            let window = old_tasks(&mut ctx, &rule);
            let mut holder = db.raw();
            begin_write(&mut holder);
            // Like a client that queues a task that waits for it.
            let share = if db.engine == EngineUnderTest::Postgres { "FOR SHARE" } else { "LOCK IN SHARE MODE" };
            holder.execute(&format!("SELECT \"Id\" FROM \"TaskQueue\" WHERE \"Id\" = {locked} {share}"));
            if is_named {
                let verdicts = ctx.store.prune_named_tasks(&[locked, free], None).unwrap();
                assert_eq!(verdicts, [in_use.clone(), PruneVerdict::Goes]);
            } else {
                assert_eq!(ctx.store.prune_tasks(&rule, &window, None).unwrap(), 1);
            }
            holder.execute("ROLLBACK");
            assert_eq!(ctx.store.prune_named_tasks(&[locked, free], None).unwrap(), [PruneVerdict::Goes, PruneVerdict::NoSuchTask]);
        }
    }
}

// Only on these engines does a claim lock several tables, one after the other.
test_on! { [mariadb Mariadb, mysql Mysql] a_claim_that_waits_for_a_prune_of_results_holds_no_table_of_the_prune db {
    ended_long_ago(db, 1);
    let mut holder = db.raw();
    begin_write(&mut holder);
    holder.execute("UPDATE \"TaskQueueRuns\" SET \"Priority\" = \"Priority\" + 1 WHERE \"Id\" = 1");
    std::thread::scope(|scope| {
        let pruned = scope.spawn(|| db.store().prune_results(60, None).unwrap());
        wait_blocked(db);
        let claimed = scope.spawn(|| {
            // The first locks of a claim if transitions are stored.
            db.raw().execute("LOCK TABLES \"TaskQueueRuns\" WRITE, \"TaskQueue\" WRITE, \"TaskQueueEvents\" WRITE");
        });
        wait_until("the claim waits for a table", || {
            db.number(&format!(
                "SELECT COUNT(*) AS value FROM {} WHERE db = DATABASE() AND state = 'Waiting for table metadata lock'",
                sessions(db.engine)
            )) == 1
        });
        let mut raw = db.raw();
        raw.execute("SET lock_wait_timeout = 5");
        let kept = raw.try_execute("INSERT INTO \"TaskQueueEvents\" (\"Kind\") VALUES ('tested')");
        holder.execute("COMMIT");
        assert_eq!((pruned.join().unwrap(), claimed.join().is_ok()), (1, true));
        kept.unwrap();
    });
} }
