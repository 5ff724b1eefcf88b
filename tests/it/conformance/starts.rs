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

    fn runs_that_never_started_do_not_end_the_reading_or_repeat_it(db) {
        let mut ctx = willing(db);
        let now = ctx.now().unwrap();
        insert_run(db, 1, now, Some(now));
        for part in 1..=12 {
            insert_run(db, part * 5_000, now, None);
        }
        db.execute("UPDATE \"TaskQueueRuns\" SET \"Status\" = 'cancelled', \"FinishedOn\" = \"CreatedOn\" WHERE \"Id\" > 1");
        let mut starts = Starts::default();
        let (readings, count) = read(&mut starts, &mut ctx, now);
        assert_eq!(count, Some(1));
        assert!(readings <= 3, "{readings}");
    }

    fn starts_of_runs_that_waited_for_days_are_counted(db) {
        let mut ctx = willing(db);
        let now = ctx.now().unwrap();
        let long_ago = now - TimeDelta::days(3);
        insert_run(db, 1, long_ago, Some(long_ago));
        for part in 1..=3 {
            insert_run(db, part * 5_000, long_ago, Some(now));
        }
        insert_run(db, 20_000, now, None);
        let mut starts = Starts::default();
        assert_eq!(read(&mut starts, &mut ctx, now).1, Some(3));
    }

    fn parts_in_which_runs_start_all_the_time_do_not_hide_the_others(db) {
        let mut ctx = willing(db);
        let now = ctx.now().unwrap();
        let start = |part: i64, place: i64, on: DateTime<Utc>| {
            let on = on.format("%F %T%.6f");
            db.execute(&format!(
                "UPDATE \"TaskQueueRuns\" SET \"Status\" = 'success', \"StartedOn\" = '{on}', \"FinishedOn\" = '{on}' WHERE \"Id\" = {}",
                part * 5_000 + place
            ));
        };
        for part in 1..=12 {
            (0..20).for_each(|place| insert_run(db, part * 5_000 + place, now, None));
        }
        let mut starts = Starts::default();
        assert_eq!(read(&mut starts, &mut ctx, now).1, Some(0));
        let earlier = DateTime::from_timestamp(now.timestamp().div_euclid(60) * 60 - 600, 0).unwrap();
        start(12, 0, earlier);
        let is_seen = (0..20).any(|round| {
            (1..=11).for_each(|part| start(part, round, now));
            read(&mut starts, &mut ctx, now + TimeDelta::seconds(5 * (round + 1)));
            starts.count(earlier, earlier + TimeDelta::minutes(1)) == Some(1)
        });
        assert!(is_seen);
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
