//! How many runs started in a minute: the line in the charts of the page Now.

use chrono::{DateTime, TimeDelta, Utc};
use taskqueue_engine::Context;
use taskqueue_engine::inspect::starts::Starts;

use super::fixture::willing;
use crate::each_engine;
use crate::support::TestDb;

/// A run with this id that was created then; started if `started` says when.
fn insert_run(db: &TestDb, id: i64, created: DateTime<Utc>, started: Option<DateTime<Utc>>) {
    let (created, started) = (created.format("%F %T%.6f"), started.map(|on| on.format("%F %T%.6f")));
    let (status, times) = match started {
        Some(on) => ("success", format!("'{on}', '{on}'")),
        None => ("scheduled", "NULL, NULL".to_owned()),
    };
    db.execute(&format!(
        "INSERT INTO \"TaskQueueRuns\" (\"Id\", \"TaskQueueId\", \"TaskClass\", \"CreatedOn\", \"Status\", \"StartedOn\", \"FinishedOn\") \
         VALUES ({id}, {id}, 'work', '{created}', '{status}', {times})"
    ));
}

/// Reads until there is no more. Returns how many readings that took, and the starts of the last day.
fn read(starts: &mut Starts, ctx: &mut Context, now: DateTime<Utc>) -> (usize, Option<i64>) {
    let since = now - TimeDelta::days(1);
    for readings in 1..100 {
        let found = starts.read_some(ctx, since, now).unwrap();
        let has_more = found.has_more;
        let _ = starts.keep(found, since);
        if !has_more {
            return (readings, starts.count(since, now + TimeDelta::minutes(1)));
        }
        assert_eq!(starts.count(since, now), None, "not all were read");
    }
    panic!("there is always more to read")
}

each_engine! {
    fn starts_are_counted_by_minute_whatever_the_ids_of_the_runs(db) {
        let mut ctx = willing(db);
        let now = ctx.now().unwrap();
        let mut starts = Starts::default();
        assert_eq!(read(&mut starts, &mut ctx, now), (1, Some(0)), "there is no run yet");
        let minutes_ago = |minutes| now - TimeDelta::minutes(minutes);
        // Two days ago, and so not read.
        insert_run(db, 1, minutes_ago(2_880), Some(minutes_ago(1)));
        insert_run(db, 5_001, minutes_ago(2_880), Some(minutes_ago(2_879)));
        for part in 2..14 {
            insert_run(db, part * 5_000, minutes_ago(part), Some(minutes_ago(part)));
            insert_run(db, part * 5_000 + 4_999, minutes_ago(part), Some(minutes_ago(part)));
        }
        insert_run(db, i64::from(i32::MAX), minutes_ago(20), Some(minutes_ago(20)));
        let mut starts = Starts::default();
        assert_eq!(read(&mut starts, &mut ctx, now), (2, Some(25)));
        let whole = |minutes| DateTime::from_timestamp(minutes_ago(minutes).timestamp().div_euclid(60) * 60, 0).unwrap();
        let counts = [21, 20, 14, 13, 2, 1].map(|minutes| starts.count(whole(minutes), whole(minutes - 1)));
        assert_eq!(counts, [Some(0), Some(1), Some(0), Some(2), Some(2), Some(0)]);
    }

    fn a_run_that_waited_when_it_was_read_is_counted_once_it_started(db) {
        let mut ctx = willing(db);
        let now = ctx.now().unwrap();
        let long_ago = now - TimeDelta::days(3);
        // The part of the first one is read although it is old, since the one after it has a run that waits.
        insert_run(db, 3, long_ago, None);
        insert_run(db, 5_003, long_ago, None);
        insert_run(db, 20_000, now, Some(now));
        let mut starts = Starts::default();
        assert_eq!(read(&mut starts, &mut ctx, now).1, Some(1));
        let on = now.format("%F %T%.6f");
        db.execute(&format!(
            "UPDATE \"TaskQueueRuns\" SET \"Status\" = 'success', \"StartedOn\" = '{on}', \"FinishedOn\" = '{on}' WHERE \"Status\" = 'scheduled'"
        ));
        assert_eq!(read(&mut starts, &mut ctx, now).1, Some(3));
        // What was counted stays, and is not counted again.
        db.execute("DELETE FROM \"TaskQueueRuns\" WHERE \"Id\" < 10000");
        assert_eq!(read(&mut starts, &mut ctx, now).1, Some(3));
        assert_eq!(read(&mut starts, &mut ctx, now + TimeDelta::days(2)).1, Some(0), "they are older than a day");
    }

    fn a_run_of_a_transaction_that_was_committed_late_is_counted(db) {
        let mut ctx = willing(db);
        let now = ctx.now().unwrap();
        insert_run(db, 4_990, now, Some(now));
        insert_run(db, 5_010, now, Some(now));
        let mut starts = Starts::default();
        assert_eq!(read(&mut starts, &mut ctx, now).1, Some(2));
        insert_run(db, 4_980, now, Some(now));
        assert_eq!(read(&mut starts, &mut ctx, now).1, Some(3));
        insert_run(db, 5_009, now, Some(now));
        insert_run(db, 5_011, now, Some(now));
        assert_eq!(read(&mut starts, &mut ctx, now + TimeDelta::minutes(10)).1, Some(5));
    }
}
