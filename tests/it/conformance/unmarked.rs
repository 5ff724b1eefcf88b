//! A batch start writes no row of a task. Everything that reads a task still sees that it is in progress, and no second run of
//! it is created.

use taskqueue_domain::run::status::{Stored, TaskStatus};
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::choosing::class_set::ClassSet;
use taskqueue_domain::task::choosing::selection::{PageStart, Selection};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_engine::Context;
use taskqueue_store::{
    CancelAnswer, EndResult, NewEvent, NewStart, NextWork, Origin, RenewalRequest, RestartAnswer, Store, TaskFilter,
};

use super::fixture::{
    claim_by_nobody, create, ending, last_run, numbers, queue, queue_with_run, reference, task, willing,
};
use crate::each_engine;
use crate::support::TestDb;

fn start_due(store: &mut Store, round: &str, count: usize) -> Vec<ClaimedRun> {
    let tokens: Vec<String> = (0..count).map(|n| format!("{round}-{n:05}-token-of-an-unmarked-run")).collect();
    store.claim_runs(&claim_by_nobody(&|_| true), &tokens).unwrap().runs
}

/// Starts a task whose row does not show it.
fn started(ctx: &mut Context) -> ClaimedRun {
    let id = queue(ctx, "work");
    let run = start_due(&mut ctx.store, &format!("s{id}"), 1).remove(0);
    assert_eq!(run.task_id, id);
    run
}

fn columns(db: &TestDb, id: TaskId) -> (Option<String>, i64) {
    let status = db.text(&format!("SELECT \"LastStatus\" AS value FROM \"TaskQueue\" WHERE \"Id\" = {id}"));
    let known =
        format!("SELECT COUNT(*) AS value FROM \"TaskQueue\" WHERE \"Id\" = {id} AND \"CurrentRunId\" IS NOT NULL");
    (status, db.number(&known))
}

fn event(kind: &'static str) -> NewEvent {
    NewEvent {
        kind,
        task_id: None,
        run_id: None,
        actor: String::new(),
        host: String::new(),
        details: serde_json::json!({}),
    }
}

fn selected(ctx: &mut Context, text: &str) -> Vec<TaskId> {
    ctx.store.select_tasks(&Selection::parse(&[text]).unwrap()).unwrap()
}

/// Returns the tasks of all pages.
fn paged(ctx: &mut Context, selection: &Selection, mut start: PageStart, limit: i64) -> Vec<TaskId> {
    let mut all = Vec::new();
    loop {
        let page = ctx.store.select_page(selection, start, limit).unwrap();
        assert!(page.len() <= usize::try_from(limit).unwrap());
        let Some(last) = page.last() else { return all };
        start = start.continued(*last);
        all.extend(page.into_iter().map(|place| place.id));
    }
}

fn renew(ctx: &mut Context, run: &ClaimedRun) {
    let origin = Origin { actor: String::new(), host: String::new() };
    let due = [reference(run)];
    let request = RenewalRequest {
        runner_id: taskqueue_domain::task::ids::RunnerId(1),
        due: &due,
        fresh: &[],
        lease_secs: 90,
        boot_ms: || 0,
        origin: &origin,
    };
    assert!(ctx.store.renew_leases(&request).unwrap().lost.is_empty());
}

each_engine! {
    fn a_start_of_many_writes_no_row_of_a_task_and_each_is_seen_as_processed(db) {
        let mut ctx = willing(db);
        let id = queue(&mut ctx, "work");
        let queued = task(db, id);
        let run = start_due(&mut ctx.store, "a", 1).remove(0);
        assert_eq!(columns(db, id), (Some("scheduled".to_owned()), 0));
        let seen = task(db, id);
        assert_eq!((seen.status, seen.current_run_id), (Stored::Known(TaskStatus::Processing), Some(run.run_id)));
        assert_eq!(seen.updated_on, queued.updated_on, "its row is as it was");
    }

    fn counters_lists_and_selections_know_a_started_task(db) {
        let mut ctx = willing(db);
        let (run, waiting) = (started(&mut ctx), queue(&mut ctx, "work"));
        for class in [None, Some("work")] {
            let counts = ctx.store.count_tasks(class).unwrap();
            let numbers = [counts.processing, counts.scheduled, counts.due].map(|counted| counted.count);
            assert_eq!(numbers, [1, 1, 1], "{class:?}");
        }
        let list = |ctx: &mut Context, status| -> Vec<TaskId> {
            let filter = TaskFilter { statuses: vec![status], limit: 10, ..TaskFilter::default() };
            ctx.store.list_tasks(&filter).unwrap().tasks.iter().map(|(task, _)| task.id).collect()
        };
        assert_eq!(list(&mut ctx, TaskStatus::Processing), [run.task_id]);
        assert_eq!(list(&mut ctx, TaskStatus::Scheduled), [waiting]);
        assert_eq!(selected(&mut ctx, "status=processing"), [run.task_id]);
        for text in ["status=scheduled", "status=due", "status=waiting"] {
            assert_eq!(selected(&mut ctx, text), [waiting], "{text}");
        }
        let both = Selection::parse(&["status=processing", &run.task_id.to_string()]).unwrap();
        assert_eq!(ctx.store.select_tasks(&both).unwrap(), [run.task_id]);
        let other = Selection::parse(&["status=processing", &waiting.to_string()]).unwrap();
        assert_eq!(ctx.store.select_tasks(&other).unwrap(), []);
        assert_eq!(ctx.store.list_first_due(5).unwrap().iter().map(|task| task.id).collect::<Vec<_>>(), [waiting]);
        let backlog = { let now = ctx.store.now().unwrap(); ctx.store.count_backlog(now).unwrap() };
        assert_eq!(backlog.due.count, 1);
    }

    fn pages_of_a_selection_have_its_tasks_in_both_orders(db) {
        let mut ctx = willing(db);
        for _ in 0..9 {
            queue(&mut ctx, "work");
        }
        assert_eq!(start_due(&mut ctx.store, "p", 4).len(), 4);
        for (text, count) in [("status=processing", 4), ("status=scheduled", 5), ("1-9", 9), ("status=running 2-3", 2)] {
            let selection = Selection::parse(&text.split(' ').collect::<Vec<_>>()).unwrap();
            let mut ids = ctx.store.select_tasks(&selection).unwrap();
            assert_eq!(ids.len(), count, "{text}");
            assert_eq!(paged(&mut ctx, &selection, PageStart::OLDEST, 2), ids, "{text}");
            ids.reverse();
            assert_eq!(paged(&mut ctx, &selection, PageStart::NEWEST, 2), ids, "{text}");
        }
    }

    fn a_page_is_not_shortened_by_a_retry_in_progress(db) {
        let mut ctx = willing(db);
        for _ in 0..6 {
            queue(&mut ctx, "work");
        }
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'failed', \"Attempts\" = 1, \"FailedRetries\" = 1, \"MaxRetries\" = 3");
        db.execute(
            "INSERT INTO \"TaskQueueRuns\"
             (\"TaskQueueId\", \"TaskClass\", \"Status\", \"StartedOn\", \"FinishedOn\", \"Token\", \"ErrorCode\", \"ErrorMessage\")
             SELECT \"Id\", \"TaskClass\", 'error', \"QueuedOn\", \"QueuedOn\", 'x', 'exit:75', 'x' FROM \"TaskQueue\"",
        );
        assert_eq!(start_due(&mut ctx.store, "r", 2).len(), 2);
        for text in ["error=exit:75", "status=failed", "class=work error=exit:75"] {
            let selection = Selection::parse(&text.split(' ').collect::<Vec<_>>()).unwrap();
            assert_eq!(ctx.store.select_page(&selection, PageStart::OLDEST, 3).unwrap().len(), 3, "{text}");
            assert_eq!(paged(&mut ctx, &selection, PageStart::NEWEST, 3).len(), 4, "{text}");
        }
    }

    fn pages_by_data_go_on_where_a_part_of_the_rows_ends(db) {
        let mut ctx = willing(db);
        db.execute(&format!(
            "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"TaskData\") SELECT 'work', '17' FROM {}",
            numbers(db.engine, 10_000)
        ));
        let selection = Selection::parse(&["data~17"]).unwrap();
        let mut ids = ctx.store.select_tasks(&selection).unwrap();
        assert_eq!(ids.len(), 10_000);
        assert_eq!(paged(&mut ctx, &selection, PageStart::OLDEST, 6_000), ids);
        ids.reverse();
        assert_eq!(paged(&mut ctx, &selection, PageStart::NEWEST, 6_000), ids);
    }

    fn a_started_task_gets_no_second_run_r2(db) {
        let mut ctx = willing(db);
        let run = started(&mut ctx);
        assert_eq!(create(&mut ctx).created, 0);
        assert!(!ctx.store.has_due_task().unwrap());
        assert!(start_due(&mut ctx.store, "again", 3).is_empty());
        assert_eq!(ctx.store.poll_for_work("one", &ClassSet::any(&|_| true)).unwrap(), NextWork::Nothing);
        assert_eq!(ctx.store.open_run_of(run.task_id).unwrap(), Some(run.run_id));
        assert_eq!(columns(db, run.task_id), (Some("scheduled".to_owned()), 0), "its runner marks it");
        let runs = format!("SELECT COUNT(*) AS value FROM \"TaskQueueRuns\" WHERE \"TaskQueueId\" = {}", run.task_id);
        assert_eq!(db.number(&runs), 1);
    }

    fn the_first_renewal_of_its_lease_marks_a_started_task(db) {
        let mut ctx = willing(db);
        let run = started(&mut ctx);
        renew(&mut ctx, &run);
        assert_eq!(columns(db, run.task_id), (Some("processing".to_owned()), 1));
        // Later writes by SQL are kept (rule R9).
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'scheduled' WHERE \"Id\" = {}", run.task_id));
        renew(&mut ctx, &run);
        assert_eq!(columns(db, run.task_id).0.as_deref(), Some("scheduled"));
    }

    fn each_end_of_a_started_task_is_that_of_one_that_is_marked(db) {
        let mut ctx = willing(db);
        let ends = [RunEvent::Succeed, RunEvent::Fail, RunEvent::TimeOut, RunEvent::Cancel, RunEvent::Release];
        for event in ends {
            let unmarked = started(&mut ctx);
            queue_with_run(&mut ctx, "work");
            let marked = start_due(&mut ctx.store, &format!("m{event:?}"), 1).remove(0);
            assert_eq!(columns(db, marked.task_id).0.as_deref(), Some("processing"));
            let facts: Vec<_> = [unmarked, marked].iter().map(|run| {
                let end = ending(event);
                assert_eq!(ctx.store.end_run(&reference(run), &end).unwrap(), EndResult::Recorded, "{event:?}");
                let task = task(db, run.task_id);
                (task.status, task.attempts, task.failed_retries, task.crashes, task.current_run_id)
            }).collect();
            assert_eq!(facts[0], facts[1], "{event:?}");
            db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled'");
        }
    }

    fn a_started_task_is_asked_to_end_and_has_no_new_start(db) {
        let mut ctx = willing(db);
        let run = started(&mut ctx);
        let start = NewStart { event: event("retried"), data: None };
        let answers = ctx.store.restart_tasks(&[(run.task_id, 0)], &[], &start).unwrap();
        assert_eq!(answers, [RestartAnswer::Refused { status: "processing".to_owned(), has_open_run: true }]);
        let answer = ctx.store.cancel_tasks(&[run.task_id], "enough", &event("")).unwrap().remove(0);
        assert!(matches!(answer, CancelAnswer::Requested { run_id, .. } if run_id == run.run_id), "{answer:?}");
        assert_eq!(ctx.store.end_run(&reference(&run), &ending(RunEvent::Fail)).unwrap(), EndResult::Cancelled);
        assert_eq!(task(db, run.task_id).status, Stored::Known(TaskStatus::Cancelled));
    }

    fn what_a_hand_has_settled_stays_so_after_an_unmarked_start_r9(db) {
        let mut ctx = willing(db);
        for end in [RunEvent::Succeed, RunEvent::Fail] {
            let run = started(&mut ctx);
            db.execute(&format!("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"Id\" = {}", run.task_id));
            let ends = [(reference(&run), &ending(end))];
            ctx.store.end_runs(&ends, &mut |_, ended| assert_eq!(ended, EndResult::Recorded)).unwrap();
            assert_eq!(task(db, run.task_id).status, Stored::Known(TaskStatus::Cancelled), "{end:?}");
        }
    }

    fn who_waits_for_a_started_task_sees_that_it_is_processed(db) {
        let mut ctx = willing(db);
        let run = started(&mut ctx);
        let waiting = queue(&mut ctx, "later");
        db.execute(&format!(
            "INSERT INTO \"TaskQueueDependencies\" (\"TaskId\", \"DependsOnId\") VALUES ({waiting}, {})", run.task_id
        ));
        let linked = ctx.store.list_prerequisites(waiting, false, 5).unwrap();
        assert_eq!(linked[0].status, Some(Stored::Known(TaskStatus::Processing)));
    }

    fn a_task_that_is_retried_at_this_moment_is_no_failure(db) {
        let mut ctx = willing(db);
        let run = started(&mut ctx);
        assert_eq!(ctx.store.end_run(&reference(&run), &ending(RunEvent::Fail)).unwrap(), EndResult::Recorded);
        db.execute("UPDATE \"TaskQueue\" SET \"NextAttemptOn\" = '2020-01-01 00:00:00'");
        assert_eq!(ctx.store.count_tasks(None).unwrap().failed.count, 1);
        assert_eq!(start_due(&mut ctx.store, "again", 1).len(), 1);
        let counts = ctx.store.count_tasks(None).unwrap();
        assert_eq!((counts.failed.count, counts.processing.count), (0, 1));
        assert_eq!(selected(&mut ctx, "status=failed"), []);
    }

    fn a_task_with_a_key_or_a_schedule_is_marked_when_it_starts(db) {
        let mut ctx = willing(db);
        let (keyed, recurring, plain) = (queue(&mut ctx, "work"), queue(&mut ctx, "work"), queue(&mut ctx, "work"));
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"UniqueKey\" = 'k' WHERE \"Id\" = {keyed}"));
        db.execute(&format!(
            "UPDATE \"TaskQueue\" SET \"Recurrence\" = '0 0 1 1 *', \"PlannedOn\" = \"ScheduledOn\" WHERE \"Id\" = {recurring}"
        ));
        assert_eq!(start_due(&mut ctx.store, "a", 5).len(), 3);
        let known = [keyed, recurring, plain].map(|id| columns(db, id));
        let marked = (Some("processing".to_owned()), 1);
        assert_eq!(known, [marked.clone(), marked, (Some("scheduled".to_owned()), 0)]);
        assert!([keyed, recurring, plain].iter().all(|id| last_run(db, *id).status.to_string() == "processing"));
    }
}
