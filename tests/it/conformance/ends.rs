//! How many tasks finished in a span of time.

use chrono::TimeDelta;
use taskqueue_engine::inspect::ends::{Ends, count_ends};

use super::fixture::*;
use crate::each_engine;
use crate::support::TestDb;

/// Inserts a task with this status that ended so many seconds ago.
fn ended(db: &TestDb, status: &str, secs_ago: i64, columns: &str, values: &str) {
    let on = sql_now(db.engine, -secs_ago);
    db.execute(&format!(
        "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"UpdatedOn\"{columns}) VALUES ('work', '{status}', {on}{values})"
    ));
}

each_engine! {
    fn ended_tasks_are_counted_by_their_end_in_the_span_of_their_end(db) {
        let mut ctx = willing(db);
        let exhausted = (", \"FailedRetries\", \"MaxRetries\"", ", 3, 3");
        for secs_ago in [90, 91, 150] {
            ended(db, "success", secs_ago, "", "");
        }
        ended(db, "success", 92, ", \"Keep\"", ", 600");
        ended(db, "failed", 90, exhausted.0, exhausted.1);
        ended(db, "timeout", 90, exhausted.0, exhausted.1);
        ended(db, "failed", 90, ", \"QuarantinedOn\"", ", '2020-01-01 00:00:00.000000'");
        ended(db, "cancelled", 90, "", "");
        ended(db, "expired", 90, "", "");
        // These have not ended: retries are left, and a schedule has no next task yet.
        ended(db, "failed", 90, ", \"FailedRetries\", \"MaxRetries\"", ", 1, 3");
        ended(db, "scheduled", 90, "", "");
        ended(db, "success", 90, ", \"Recurrence\", \"PlannedOn\"", ", '@hourly', '2020-01-01 00:00:00.000000'");
        // Its key is kept until later.
        ended(db, "success", 90, ", \"UniqueKey\", \"UniqueUntil\"", &format!(", 'k', {}", sql_now(db.engine, -30)));
        let now = ctx.now().unwrap();
        let mut within = |from: i64, until: i64| {
            count_ends(&mut ctx, now - TimeDelta::seconds(from), now - TimeDelta::seconds(until)).unwrap()
        };
        assert_eq!(within(120, 60), Ends { success: 3, failed: 3, others: 2 });
        assert_eq!(within(180, 120), Ends { success: 1, ..Ends::default() });
        assert_eq!(within(60, 0), Ends { success: 1, ..Ends::default() });
        assert_eq!(within(3_600, 180), Ends::default());
    }

    fn a_span_has_its_beginning_and_not_its_end(db) {
        let mut ctx = willing(db);
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"UpdatedOn\") VALUES ('work', 'success', '2026-01-01 10:00:00.000000')");
        let on = "2026-01-01T10:00:00Z".parse().unwrap();
        let minute = TimeDelta::minutes(1);
        assert_eq!(count_ends(&mut ctx, on, on + minute).unwrap().success, 1);
        assert_eq!(count_ends(&mut ctx, on - minute, on).unwrap().all(), 0);
    }
}
