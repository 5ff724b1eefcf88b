//! Tasks that expire at the same time as they are claimed: they start before their time, or not at all.

use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::task::ids::TaskId;

use super::lose::{ROUNDS, at_once, claim_with, queue};
use super::tools::many_at_once;
use crate::conformance::fixture::{claim_by_nobody, sql_now};
use crate::each_engine;
use crate::support::wait_until;

each_engine! {
    fn an_expired_task_is_ended_once_by_all_who_find_it(db) {
        let mut store = db.store();
        for round in 1..=ROUNDS {
            queue(db, 1);
            let id = TaskId(i64::try_from(round).unwrap());
            store.create_missing_runs(&mut |_| {}).unwrap();
            db.execute("UPDATE \"TaskQueue\" SET \"StartBefore\" = '2020-01-01 00:00:00'");
            let token = format!("token{round}");
            let (claimed, _) =
                at_once(db, |store| claim_with(store, &token, &|_| true), |store| store.end_expired_tasks().unwrap());
            assert_eq!(claimed, None);
            let task = store.get_task(id).unwrap();
            assert!(task.status.is(TaskStatus::Expired) && task.current_run_id.is_none() && task.attempts == 0, "{task:?}");
        }
        let ended = db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"Kind\" = 'expired'");
        assert_eq!(usize::try_from(ended).unwrap(), ROUNDS);
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"StartedOn\" IS NOT NULL"), 0);
    }

    fn tasks_start_before_their_time_or_not_at_all_whatever_claims_them(db) {
        const TASKS: usize = 60;
        queue(db, TASKS);
        // They expire while they are claimed.
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"StartBefore\" = {} WHERE \"Id\" % 2 = 0", sql_now(db.engine, 1)));
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"StartBefore\" = {} WHERE \"Id\" % 4 = 0", sql_now(db.engine, 0)));
        many_at_once(db, 4, |store, number| match number {
            0 => {
                store.create_missing_runs(&mut |_| {}).unwrap();
                store.end_expired_tasks().unwrap();
            }
            1 => (0..).map_while(|round| claim_with(store, &format!("one{round}"), &|_| true)).for_each(drop),
            _ => for round in 0..10 {
                let tokens: Vec<String> = (0..5).map(|place| format!("{number}-{round}-{place}-worker")).collect();
                store.claim_runs(&claim_by_nobody(&|_| true), &tokens).unwrap();
            },
        });
        // Whatever was not claimed in time ends.
        let open = "SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LiveStartBefore\" IS NOT NULL
                    AND NOT EXISTS (SELECT 1 FROM \"TaskQueueRuns\" AS r WHERE r.\"RunningClass\" IS NOT NULL AND r.\"TaskQueueId\" = \"TaskQueue\".\"Id\")";
        wait_until("they have expired", || {
            db.store().end_expired_tasks().unwrap();
            db.number(open) == 0
        });
        // A claim that began before the time may write its start some milliseconds later.
        let late = match db.engine {
            crate::support::EngineUnderTest::Sqlite => "strftime('%Y-%m-%d %H:%M:%f000', t.\"StartBefore\", '1 second')",
            _ => "t.\"StartBefore\" + interval '1' second",
        };
        let started_late = format!(
            "SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" AS r JOIN \"TaskQueue\" AS t ON t.\"Id\" = r.\"TaskQueueId\" WHERE r.\"StartedOn\" >= {late}"
        );
        assert_eq!(db.number(&started_late), 0);
        let both = "SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" = 'expired' AND \"Attempts\" > 0";
        assert_eq!(db.number(both), 0);
        assert!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"LastStatus\" = 'expired'") >= 10);
    }
}
