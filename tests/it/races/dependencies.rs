//! Prerequisites that succeed while a dependent task is queued, or at the same time as others: no dependent task is forgotten,
//! and no success is counted twice.

use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::new_task::{NewTask, TaskRequest};
use taskqueue_store::{EndResult, PruneVerdict, RunEnd, RunRef, Store};

use super::lose::at_once;
use super::tools::{begin_write, wait_blocked};
use crate::conformance::fixture::{claim, ending, queue_with_run, reference, request, willing};
use crate::each_engine;
use crate::support::{EngineUnderTest, TestDb};

/// Enough rounds to see both orders.
const ROUNDS: usize = 10;

fn after(ids: &[TaskId]) -> NewTask {
    let settings = Settings::from_rows(&[]).0;
    TaskRequest { after: ids.to_vec(), ..request("work") }.validate(&settings).unwrap()
}

fn insert(store: &mut Store, tasks: &[NewTask]) -> Vec<TaskId> {
    store.insert_tasks(tasks, &mut |_| {}).unwrap().into_iter().map(|queued| queued.id).collect()
}

/// Returns tasks with runs in progress.
fn claimed(db: &TestDb, count: usize) -> Vec<(TaskId, RunRef)> {
    let mut ctx = willing(db);
    let ids: Vec<TaskId> = (0..count).map(|_| queue_with_run(&mut ctx, "work").0).collect();
    ids.into_iter().map(|id| (id, reference(&claim(&mut ctx.store).unwrap()))).collect()
}

fn succeed(store: &mut Store, run: &RunRef) {
    assert_eq!(store.end_run(run, &ending(RunEvent::Succeed)).unwrap(), EndResult::Recorded);
}

/// Returns how many tasks are still waiting, by their counter or by a dependency.
fn waiting(db: &TestDb) -> i64 {
    let tasks = db.number("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"WaitingFor\" <> 0");
    tasks + db.number("SELECT COUNT(*) AS value FROM \"TaskQueueDependencies\" WHERE \"IsSatisfied\" = false")
}

each_engine! {
    fn a_prerequisite_that_succeeds_while_a_dependant_is_queued_counts_for_it(db) {
        let prerequisites = claimed(db, ROUNDS);
        for (id, run) in &prerequisites {
            let task = after(&[*id]);
            at_once(db, |store| succeed(store, run), |store| insert(store, std::slice::from_ref(&task)));
            assert_eq!(waiting(db), 0);
        }
    }

    fn a_dependant_queued_while_a_batch_of_runs_ends_is_not_forgotten(db) {
        let runs = claimed(db, 2);
        let id = runs[1].0;
        let mut raw = db.raw();
        begin_write(&mut raw);
        let of_id = format!("SELECT 1 FROM \"TaskQueue\" WHERE \"Id\" = {id}");
        match db.engine {
            EngineUnderTest::Sqlite => {}
            EngineUnderTest::Postgres => raw.execute(&format!("{of_id} FOR SHARE")),
            EngineUnderTest::Mariadb | EngineUnderTest::Mysql => raw.execute(&format!("{of_id} LOCK IN SHARE MODE")),
        }
        raw.execute("INSERT INTO \"TaskQueue\" (\"Id\", \"TaskClass\", \"WaitingFor\") VALUES (4711, 'work', 1)");
        raw.execute(&format!("INSERT INTO \"TaskQueueDependencies\" (\"TaskId\", \"DependsOnId\") VALUES (4711, {id})"));
        let success = ending(RunEvent::Succeed);
        let ends: Vec<(RunRef, &RunEnd)> = runs.iter().map(|(_, run)| (run.clone(), &success)).collect();
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| {
                let mut answers = Vec::new();
                db.store().end_runs(&ends, &mut |_, answer| answers.push(answer)).unwrap();
                answers
            });
            wait_blocked(db);
            raw.execute("COMMIT");
            assert_eq!(ended.join().unwrap(), [EndResult::Recorded, EndResult::Recorded]);
        });
        assert_eq!(waiting(db), 0);
    }

    fn a_prerequisite_that_fails_while_a_dependant_is_queued_counts_for_it(db) {
        let prerequisites = claimed(db, ROUNDS);
        let failure = RunEnd { may_retry: false, ..ending(RunEvent::Fail) };
        for (id, run) in &prerequisites {
            let task = NewTask { after_any: after(&[*id]).after, ..after(&[]) };
            at_once(
                db,
                |store| assert_ne!(store.end_run(run, &failure).unwrap(), EndResult::Recorded),
                |store| insert(store, std::slice::from_ref(&task)),
            );
            assert_eq!(waiting(db), 0);
        }
    }

    fn prerequisites_that_succeed_at_once_each_count_once_for_a_dependant(db) {
        let mut store = db.store();
        for _ in 0..5 {
            let runs = claimed(db, 2);
            let both: Vec<NewTask> = std::iter::repeat_n(after(&[runs[0].0, runs[1].0]), 40).collect();
            insert(&mut store, &both);
            assert_eq!(waiting(db), 40 + 80);
            at_once(db, |store| succeed(store, &runs[0].1), |store| succeed(store, &runs[1].1));
            assert_eq!(waiting(db), 0);
        }
    }

    fn a_task_pruned_while_a_dependant_is_queued_stays_or_goes_without_one(db) {
        let mut store = db.store();
        for _ in 0..ROUNDS {
            let id = insert(&mut store, &[after(&[])])[0];
            db.execute(&format!("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"Id\" = {id}"));
            let task = after(&[id]);
            let (verdicts, queued) = at_once(
                db,
                |store| store.prune_named_tasks(&[id], None).unwrap(),
                |store| store.insert_tasks(std::slice::from_ref(&task), &mut |_| {}),
            );
            let is_there = db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Id\" = {id}")) == 1;
            assert_eq!((verdicts == [PruneVerdict::Goes], queued.is_ok()), (!is_there, is_there), "{verdicts:?}");
        }
    }

    fn many_who_queue_behind_the_same_tasks_do_not_hinder_each_other(db) {
        let runs = claimed(db, 3);
        let ids: Vec<TaskId> = runs.iter().map(|(id, _)| *id).collect();
        let tasks = [after(&ids), after(&ids[..2]), after(&ids[1..])];
        for _ in 0..ROUNDS {
            at_once(db, |store| insert(store, &tasks), |store| insert(store, &tasks));
        }
        for (_, run) in &runs {
            succeed(&mut db.store(), run);
        }
        assert_eq!(waiting(db), 0);
    }

    fn whoever_queues_behind_a_task_waits_for_the_end_that_is_being_written(db) {
        let mut raw = db.raw();
        let runs = claimed(db, 1);
        let task = after(&[runs[0].0]);
        begin_write(&mut raw);
        raw.execute(&format!("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'success' WHERE \"Id\" = {}", runs[0].0));
        std::thread::scope(|scope| {
            let queued = scope.spawn(|| insert(&mut db.store(), std::slice::from_ref(&task)));
            wait_blocked(db);
            raw.execute("COMMIT");
            assert_eq!(db.store().get_task(queued.join().unwrap()[0]).unwrap().waiting_for, 0);
        });
    }
}
