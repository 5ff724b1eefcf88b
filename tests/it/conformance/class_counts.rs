//! The counters of a class, beside more due tasks of other classes than are counted.

use taskqueue_store::Counted;

use super::fixture::{numbers, queue, sql_now, willing};
use crate::each_engine;

const fn exactly(count: i64) -> Counted {
    Counted { count, or_more: false }
}

each_engine! {
    fn due_and_quarantined_tasks_of_a_class_are_counted(db) {
        let mut ctx = willing(db);
        let ids: Vec<_> = (0..5).map(|_| queue(&mut ctx, "work")).collect();
        queue(&mut ctx, "other");
        let (in_an_hour, hour_ago) = (sql_now(db.engine, 3_600), sql_now(db.engine, -3_600));
        let set = |columns: &str, id| db.execute(&format!("UPDATE \"TaskQueue\" SET {columns} WHERE \"Id\" = {id}"));
        set(&format!("\"NextAttemptOn\" = {hour_ago}, \"ScheduledOn\" = {in_an_hour}"), ids[1]);
        set(&format!("\"ScheduledOn\" = {in_an_hour}"), ids[2]);
        set("\"QuarantinedOn\" = \"UpdatedOn\", \"LastStatus\" = 'failed'", ids[3]);
        set(&format!("\"NextAttemptOn\" = {in_an_hour}, \"LastStatus\" = 'failed', \"FailedRetries\" = 1"), ids[4]);
        let counts = ctx.store.count_tasks(Some("work")).unwrap();
        assert_eq!((counts.due, counts.quarantined), (exactly(2), exactly(1)));
        let waiting_secs = counts.oldest_due_secs.unwrap();
        assert!((3_600..3_900).contains(&waiting_secs), "the retried task waits longest, since its retry: {waiting_secs}");
        assert_eq!(ctx.store.count_tasks(Some("other")).unwrap().quarantined, exactly(0));

        // Of more due tasks than are counted, only the first are looked at, and the counter says so.
        db.execute(&format!(
            "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"ScheduledOn\") SELECT 'many', {hour_ago} FROM {}",
            numbers(db.engine, 50_000)
        ));
        let counts = ctx.store.count_tasks(Some("work")).unwrap();
        assert_eq!(counts.due, Counted { count: 1, or_more: true });
        assert!(counts.oldest_due_secs.is_some_and(|secs| secs >= waiting_secs));
        assert_eq!(ctx.store.count_tasks(Some("many")).unwrap().due, Counted { count: 10_000, or_more: true });
    }
}
