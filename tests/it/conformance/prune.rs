//! Finished tasks are deleted after their retention period, and nothing else ever is.

use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::settings::Setting;
use taskqueue_domain::task::choosing::selection::Selection;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::new_task::TaskRequest;
use taskqueue_engine::Context;
use taskqueue_engine::change::settings;
use taskqueue_engine::queueing::queue::{ClassCheck, queue_task};
use taskqueue_engine::upkeep::prune::{PruneRequest, Pruned, count_prunable, prune, prune_selected};
use taskqueue_store::PruneRule;

use super::fixture::*;
use crate::each_engine;
use crate::support::TestDb;

/// Moves everything about these tasks into the past.
fn make_old(db: &TestDb, which: &str) {
    db.execute(&format!(
        "UPDATE \"TaskQueue\" SET \"ScheduledOn\" = '2020-01-01 00:00:00.000000', \"UpdatedOn\" = '2020-01-01 00:00:00.000000' WHERE {which}"
    ));
}

fn count(db: &TestDb, table: &str) -> i64 {
    db.number(&format!("SELECT COUNT(*) AS value FROM \"{table}\""))
}

/// Inserts successful tasks, each with a run, an output and an event.
fn finished(db: &TestDb, ctx: &mut Context, number: usize) {
    for _ in 0..number {
        queue(ctx, "work");
    }
    create(ctx);
    drain(ctx);
    db.execute(
        "INSERT INTO \"TaskQueueRunOutputs\" (\"RunId\", \"Stream\", \"Content\", \"TotalBytes\") SELECT \"Id\", 'stdout', 'x', 1 FROM \"TaskQueueRuns\"",
    );
    db.execute(
        "INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"TaskQueueId\") SELECT 'tested', \"Id\" FROM \"TaskQueue\"",
    );
}

each_engine! {
    fn a_finished_task_goes_with_all_that_belongs_to_it(db) {
        let mut ctx = willing(db);
        finished(db, &mut ctx, 3);
        assert_eq!(create(&mut ctx).pruned, Pruned::default());
        make_old(db, "\"Id\" <> 2");
        assert_eq!(create(&mut ctx).pruned, Pruned { tasks: 2, ..Pruned::default() });
        for table in ["TaskQueue", "TaskQueueRuns", "TaskQueueRunOutputs", "TaskQueueEvents"] {
            assert_eq!(count(db, table), 1, "{table}");
        }
        assert_eq!(task(db, TaskId(2)).status.to_string(), "success");
    }

    fn what_is_not_finished_is_never_pruned_however_old(db) {
        let mut ctx = willing(db);
        for _ in 0..7 {
            queue(&mut ctx, "work");
        }
        let rows = [
            (1, "\"LastStatus\" = 'scheduled', \"WaitingFor\" = 1"),
            (2, "\"LastStatus\" = 'failed', \"FailedRetries\" = 1, \"WaitingFor\" = 1"),
            (3, "\"LastStatus\" = 'processing', \"CurrentRunId\" = 77"),
            (4, "\"LastStatus\" = 'success', \"CurrentRunId\" = 78"),
            (5, "\"LastStatus\" = 'hibernating'"),
            (6, "\"LastStatus\" = 'success', \"Recurrence\" = 'nonsense', \"ScheduleStatus\" = 'broken'"),
            (7, "\"LastStatus\" = 'success'"),
        ];
        for (id, change) in rows {
            if id != 5 {
                db.execute(&format!("UPDATE \"TaskQueue\" SET {change} WHERE \"Id\" = {id}"));
            }
        }
        // An open run that its task does not refer to.
        db.execute("INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\") VALUES (7, 'work')");
        make_old(db, "\"Id\" <> 5");
        let request = PruneRequest { older_than_secs: Some(0), ..PruneRequest::default() };
        assert_eq!(prune(&mut ctx, &request, &mut |_| {}).unwrap().tasks, 0);
        assert_eq!(create(&mut ctx).pruned.tasks, 0);
        assert_eq!(count(db, "TaskQueue"), 7);
        // Exhausted, quarantined and cancelled tasks are finished.
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'timeout', \"MaxRetries\" = 5, \"FailedRetries\" = 5 WHERE \"Id\" = 1");
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'failed', \"FailedRetries\" = 1, \"QuarantinedOn\" = \"UpdatedOn\" WHERE \"Id\" = 2");
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled', \"CurrentRunId\" = NULL WHERE \"Id\" = 3");
        assert_eq!(create(&mut ctx).pruned.tasks, 3);
    }

    fn the_newest_are_kept_where_their_number_is_limited(db) {
        let mut ctx = willing(db);
        finished(db, &mut ctx, 5);
        settings::set(&mut ctx, Setting::MaxSuccess, "2").unwrap();
        assert_eq!(count_prunable(&mut ctx, &PruneRequest::default()).unwrap(), 3);
        assert_eq!(create(&mut ctx).pruned.tasks, 3);
        assert_eq!(db.raw().numbers("SELECT \"Id\" AS value FROM \"TaskQueue\" ORDER BY \"Id\""), [Some(4), Some(5)]);
        assert_eq!(create(&mut ctx).pruned.tasks, 0);
    }

    fn outputs_runners_and_events_of_no_task_go_by_their_own_age(db) {
        let mut ctx = willing(db);
        finished(db, &mut ctx, 3);
        db.execute("UPDATE \"TaskQueueRuns\" SET \"FinishedOn\" = '2020-01-01 00:00:00.000000' WHERE \"Id\" < 3");
        db.execute("UPDATE \"TaskQueueRunners\" SET \"FinishedOn\" = '2020-01-01 00:00:00.000000'");
        insert_runner(db, &dead_process(), 1);
        db.execute("INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"OccurredOn\") VALUES ('old', '2020-01-01 00:00:00.000000')");
        db.execute("INSERT INTO \"TaskQueueEvents\" (\"Kind\") VALUES ('new')");
        let runners = usize::try_from(count(db, "TaskQueueRunners") - 1).unwrap();
        assert_eq!(create(&mut ctx).pruned, Pruned { outputs: 2, runners, events: 1, ..Pruned::default() });
        assert_eq!((count(db, "TaskQueueRunOutputs"), count(db, "TaskQueueEvents")), (1, 4));
        assert_eq!(count(db, "TaskQueueRuns"), 3);
    }

    fn results_expire_by_the_end_of_their_run_and_all_else_about_it_stays(db) {
        let mut ctx = willing(db);
        settings::set(&mut ctx, Setting::KeepOutputs, "0").unwrap();
        finished(db, &mut ctx, 4);
        queue_with_run(&mut ctx, "work");
        let processing = claim(&mut ctx.store).unwrap().run_id.0;
        db.execute("UPDATE \"TaskQueueRuns\" SET \"Results\" = '[1]' WHERE \"Id\" <> 3");
        db.execute("UPDATE \"TaskQueueRuns\" SET \"FinishedOn\" = '2020-01-01 00:00:00.000000' WHERE \"Id\" < 4");
        let before = last_run(db, TaskId(1));
        assert_eq!(create(&mut ctx).pruned, Pruned { results: 2, ..Pruned::default() });
        let after = last_run(db, TaskId(1));
        let mut expected = before;
        (expected.results, expected.updated_on) = (None, after.updated_on);
        assert_eq!(after, expected);
        // The results of a recent run, and of one that has not ended.
        let left = "SELECT \"Id\" AS value FROM \"TaskQueueRuns\" WHERE \"Results\" IS NOT NULL ORDER BY \"Id\"";
        assert_eq!(db.raw().numbers(left), [Some(4), Some(processing)]);
        assert_eq!(create(&mut ctx).pruned, Pruned::default());
        db.execute("UPDATE \"TaskQueueRuns\" SET \"FinishedOn\" = '2020-01-01 00:00:00.000000' WHERE \"Id\" = 4");
        assert_eq!(db.cli().run(&["prune"]).stderr, "1 old result pruned\n");
        assert_eq!((count(db, "TaskQueueRuns"), count(db, "TaskQueueRunOutputs")), (5, 4));
    }

    fn more_results_than_a_part_expire_at_once(db) {
        let mut ctx = willing(db);
        let run = "(1, 'work', 'success', '2020-01-01 00:00:00.000000', '{}')";
        let runs = vec![run; 1_200].join(", ");
        db.execute(&format!("INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\", \"Status\", \"FinishedOn\", \"Results\") VALUES {runs}"));
        assert_eq!(create(&mut ctx).pruned.results, 1_200);
        assert_eq!(db.number("SELECT COUNT(\"Results\") AS value FROM \"TaskQueueRuns\""), 0);
    }

    fn a_limit_of_zero_keeps_everything_for_ever(db) {
        let mut ctx = willing(db);
        finished(db, &mut ctx, 2);
        make_old(db, "1 = 1");
        db.execute("UPDATE \"TaskQueueRuns\" SET \"FinishedOn\" = '2020-01-01 00:00:00.000000', \"Results\" = '{}'");
        for setting in [Setting::KeepSuccess, Setting::KeepOutputs, Setting::KeepResults] {
            settings::set(&mut ctx, setting, "0").unwrap();
        }
        assert_eq!(create(&mut ctx).pruned, Pruned::default());
        let request = PruneRequest { older_than_secs: Some(60), ..PruneRequest::default() };
        assert_eq!(prune(&mut ctx, &request, &mut |_| {}).unwrap().tasks, 2);
    }

    fn more_than_a_part_is_pruned_by_age_and_class_and_counted_before(db) {
        let mut ctx = willing(db);
        let tasks: Vec<String> = (0..1_300).map(|number| format!("('work{}', 'success')", number % 2)).collect();
        db.execute(&format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\") VALUES {}", tasks.join(", ")));
        make_old(db, "1 = 1");
        let of_class = PruneRequest {
            older_than_secs: Some(60),
            statuses: vec![TaskStatus::Success],
            class: Some("work1".to_owned()),
        };
        assert_eq!(count_prunable(&mut ctx, &of_class).unwrap(), 650);
        assert_eq!(prune(&mut ctx, &of_class, &mut |_| {}).unwrap().tasks, 650);
        let failed = PruneRequest { statuses: vec![TaskStatus::Failed], ..PruneRequest::default() };
        assert_eq!(prune(&mut ctx, &failed, &mut |_| {}).unwrap().tasks, 0);
        assert_eq!(count_prunable(&mut ctx, &PruneRequest::default()).unwrap(), 650);
        assert_eq!(create(&mut ctx).pruned.tasks, 650);
        assert_eq!(count(db, "TaskQueue"), 0);
    }

    fn the_past_of_a_schedule_is_pruned_and_the_schedule_goes_on(db) {
        let mut ctx = willing(db);
        let every = TaskRequest { every: Some("0 0 29 2 *".into()), catch_up: Some("all".into()), ..request("work") };
        let id = queue_task(&mut ctx, every, ClassCheck::AnyName).unwrap();
        db.execute(&format!(
            "UPDATE \"TaskQueue\" SET \"PlannedOn\" = '2024-02-29 00:00:00', \"ScheduledOn\" = '2024-02-29 00:00:00' WHERE \"Id\" = {id}"
        ));
        create(&mut ctx);
        assert_eq!(drain(&mut ctx).succeeded, 1);
        make_old(db, "\"Id\" = 1");
        assert_eq!(create(&mut ctx).pruned.tasks, 1);
        assert_eq!(taskqueue_engine::change::schedules::pause(&mut ctx, id).unwrap().task_id, TaskId(2));
    }

    fn a_task_for_which_others_wait_is_kept_and_so_is_what_has_been_satisfied(db) {
        let mut ctx = willing(db);
        let [failed, done] = [1, 2].map(|_| queue(&mut ctx, "work"));
        let after = TaskRequest { after: vec![failed, done], ..request("work") };
        let dependant = queue_task(&mut ctx, after, ClassCheck::AnyName).unwrap();
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'failed', \"MaxRetries\" = 5, \"FailedRetries\" = 5 WHERE \"Id\" = 1");
        create(&mut ctx);
        assert_eq!(drain(&mut ctx).succeeded, 1);
        make_old(db, "\"Id\" < 3");
        assert_eq!(count_prunable(&mut ctx, &PruneRequest::default()).unwrap(), 1);
        assert_eq!(create(&mut ctx).pruned.tasks, 1);
        assert_eq!((task(db, failed).id, task(db, dependant).waiting_for), (failed, 1));
        assert_eq!(count(db, "TaskQueueDependencies"), 1);
        // No task waits for it when the other one is deleted.
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"Id\" = 3");
        make_old(db, "\"Id\" = 3");
        assert_eq!(create(&mut ctx).pruned.tasks, 2);
        assert_eq!((count(db, "TaskQueue"), count(db, "TaskQueueDependencies")), (0, 0));
    }

    fn what_only_waits_for_each_other_goes_together(db) {
        let mut ctx = willing(db);
        let first = queue(&mut ctx, "work");
        let second = queue_task(&mut ctx, TaskRequest { after: vec![first], ..request("work") }, ClassCheck::AnyName).unwrap();
        let third = queue_task(&mut ctx, TaskRequest { after: vec![second], ..request("work") }, ClassCheck::AnyName).unwrap();
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled'");
        make_old(db, &format!("\"Id\" < {third}"));
        // The newest task stays, together with its prerequisites, direct and indirect.
        assert_eq!(create(&mut ctx).pruned.tasks, 0);
        make_old(db, "1 = 1");
        assert_eq!(create(&mut ctx).pruned.tasks, 3);
        assert_eq!((count(db, "TaskQueue"), count(db, "TaskQueueDependencies")), (0, 0));
    }

    fn a_selection_is_pruned_however_young_with_all_that_belongs_to_it(db) {
        let mut ctx = willing(db);
        finished(db, &mut ctx, 3);
        assert_eq!(db.cli().run(&["prune", "2"]).stderr, "task 2 is deleted\n");
        for table in ["TaskQueue", "TaskQueueRuns", "TaskQueueRunOutputs"] {
            assert_eq!(count(db, table), 2, "{table}");
        }
        assert_eq!(db.number("SELECT COUNT(*) AS value FROM \"TaskQueueEvents\" WHERE \"TaskQueueId\" IS NOT NULL"), 2);
        let asked = db.cli().run(&["prune", "status=success"]);
        assert_eq!(asked.code, Some(2), "{asked:?}");
        assert!(asked.stderr.contains("the selection matches 2 tasks; pass --yes to confirm"), "{asked:?}");
        let said = db.cli().run(&["prune", "--dry-run", "1-3"]);
        assert_eq!(said.stderr, "task 1 would be deleted\ntask 3 would be deleted\n2 tasks would be deleted\n");
        assert_eq!(count(db, "TaskQueue"), 2);
        let answers = db.cli().run(&["prune", "--json", "--yes", "class=work"]).ok();
        assert!(answers.lines().all(|line| line.contains("\"result\":\"pruned\"")), "{answers}");
        assert_eq!((count(db, "TaskQueue"), count(db, "TaskQueueRuns")), (0, 0));
        assert_eq!(db.cli().run(&["prune", "--yes", "1-3"]).code, Some(3));
        // A selection cannot be combined with these options.
        assert_eq!(db.cli().run(&["prune", "1-3", "--older-than", "1h"]).code, Some(2));
    }

    fn of_a_selection_what_is_not_finished_is_kept_and_the_reason_is_said(db) {
        let mut ctx = willing(db);
        for _ in 0..8 {
            queue(&mut ctx, "work");
        }
        let rows = [
            (2, "\"LastStatus\" = 'failed', \"FailedRetries\" = 1"),
            (3, "\"LastStatus\" = 'processing', \"CurrentRunId\" = 77"),
            (4, "\"LastStatus\" = 'success', \"Recurrence\" = 'nonsense', \"ScheduleStatus\" = 'broken'"),
            (5, "\"LastStatus\" = 'cancelled'"),
            (6, "\"LastStatus\" = 'timeout', \"MaxRetries\" = 5, \"FailedRetries\" = 5"),
            (7, "\"LastStatus\" = 'success'"),
        ];
        for (id, change) in rows {
            db.execute(&format!("UPDATE \"TaskQueue\" SET {change} WHERE \"Id\" = {id}"));
        }
        // An open run that its task does not refer to, and a task that another one waits for.
        db.execute("INSERT INTO \"TaskQueueRuns\" (\"TaskQueueId\", \"TaskClass\") VALUES (7, 'work')");
        db.execute("UPDATE \"TaskQueue\" SET \"WaitingFor\" = 1 WHERE \"Id\" = 8");
        db.execute("INSERT INTO \"TaskQueueDependencies\" (\"TaskId\", \"DependsOnId\") VALUES (8, 5)");
        let reasons = [
            "task 1 has the status scheduled; it has not finished",
            "task 2 has the status failed; it will be retried",
            "task 3 has the status processing; it has an open run",
            "task 4 has the status success; it is the newest task of its schedule",
            "task 5 has the status cancelled; other tasks wait for it",
            "task 6 would be deleted",
            "task 7 has the status success; it has an open run",
            "task 8 has the status scheduled; it has not finished",
            "1 task would be deleted",
        ];
        let said = db.cli().run(&["prune", "--dry-run", "class=work"]);
        assert_eq!((said.code, said.stderr.lines().collect::<Vec<_>>()), (Some(0), reasons.to_vec()));
        let said = db.cli().run(&["prune", "--yes", "class=work"]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.stderr.starts_with("1 task deleted\n"), "{said:?}");
        assert!(said.stderr.contains("2 tasks skipped: each has the status scheduled; it has not finished"), "{said:?}");
        assert!(said.stderr.contains("1 task skipped: it has the status cancelled; other tasks wait for it"), "{said:?}");
        assert_eq!((count(db, "TaskQueue"), count(db, "TaskQueueRuns")), (7, 1));
        let said = db.cli().run(&["prune", "5", "99"]);
        assert_eq!(said.code, Some(1), "{said:?}");
        assert_eq!(said.stderr, "warning: there is no task 99\nwarning: task 5 has the status cancelled; other tasks wait for it\n");
        // It is deleted together with the task that waits for it.
        db.execute("UPDATE \"TaskQueue\" SET \"LastStatus\" = 'cancelled' WHERE \"Id\" = 8");
        assert_eq!(db.cli().run(&["prune", "5", "8"]).stderr, "task 5 is deleted\ntask 8 is deleted\n");
    }

    fn a_selection_of_several_portions_goes_whole_whoever_waits_for_whom(db) {
        let mut ctx = willing(db);
        let tasks = ["('work', 'cancelled')"; 250];
        db.execute(&format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\") VALUES {}", tasks.join(", ")));
        // Each waits for the previous one, and no task waits for the last one.
        db.execute(
            "INSERT INTO \"TaskQueueDependencies\" (\"TaskId\", \"DependsOnId\")
             SELECT \"Id\", \"Id\" - 1 FROM \"TaskQueue\" WHERE \"Id\" > (SELECT MIN(\"Id\") FROM \"TaskQueue\")",
        );
        let all = ctx.store.select_tasks(&Selection::parse(&["class=work"]).unwrap()).unwrap();
        let mut deleted = 0;
        prune_selected(&mut ctx, &all, "class=work", &mut |answer| deleted += usize::from(answer.result.is_some())).unwrap();
        assert_eq!((deleted, count(db, "TaskQueue"), count(db, "TaskQueueDependencies")), (250, 0, 0));
    }

    fn a_key_that_is_taken_for_a_time_stays_taken_whatever_is_pruned(db) {
        let mut ctx = willing(db);
        for key in ["a", "b", "c"] {
            db.cli().run(&["queue", "--any-class", "work", "--unique", key, "--unique-for", "60d"]).ok();
        }
        queue(&mut ctx, "work");
        create(&mut ctx);
        drain(&mut ctx);
        make_old(db, "1 = 1");
        // The key of one is no longer kept.
        db.execute("UPDATE \"TaskQueue\" SET \"UniqueUntil\" = '2020-01-01 00:00:00.000000' WHERE \"Id\" = 2");
        let said = db.cli().run(&["prune", "--dry-run", "1-4"]);
        let first = "task 1 has the status success; it still holds its unique key\n";
        assert!(said.stderr.starts_with(first) && said.stderr.ends_with("2 tasks would be deleted\n"), "{said:?}");
        assert_eq!(count_prunable(&mut ctx, &PruneRequest::default()).unwrap(), 2);
        assert_eq!(create(&mut ctx).pruned.tasks, 2);
        let said = db.cli().run(&["prune", "--older-than", "0s", "--yes"]);
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
        let said = db.cli().run(&["prune", "1"]);
        assert_eq!((said.code, said.stderr.as_str()), (Some(1), &*format!("warning: {first}")));
        let again = db.cli().run(&["queue", "--any-class", "work", "--unique", "a"]);
        assert_eq!(again.stderr, "task 1 has the key \"a\" already; nothing was queued\n");
        // When their keys are no longer kept, they are deleted.
        db.execute("UPDATE \"TaskQueue\" SET \"UniqueUntil\" = '2020-01-01 00:00:00.000000'");
        assert_eq!(create(&mut ctx).pruned.tasks, 2);
    }

    fn what_kept_its_key_for_a_time_is_as_old_as_the_end_of_that(db) {
        let mut ctx = willing(db);
        queue(&mut ctx, "work");
        create(&mut ctx);
        drain(&mut ctx);
        make_old(db, "1 = 1");
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"UniqueUntil\" = {}", sql_now(db.engine, -3_600)));
        assert_eq!(create(&mut ctx).pruned.tasks, 0);
        assert_eq!(db.cli().run(&["prune", "--older-than", "2h", "--yes"]).fails(0), "");
        assert_eq!(db.cli().run(&["prune", "--older-than", "30m", "--yes"]).stderr, "1 finished task pruned\n");
    }

    fn the_number_that_is_kept_is_of_finished_tasks_that_keep_no_key(db) {
        let mut ctx = willing(db);
        finished(db, &mut ctx, 6);
        settings::set(&mut ctx, Setting::MaxSuccess, "1").unwrap();
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"UniqueUntil\" = {} WHERE \"Id\" > 4", sql_now(db.engine, 3_600)));
        db.execute("UPDATE \"TaskQueue\" SET \"CurrentRunId\" = 77 WHERE \"Id\" = 4");
        assert_eq!(count_prunable(&mut ctx, &PruneRequest::default()).unwrap(), 2);
        assert_eq!(create(&mut ctx).pruned.tasks, 2);
        let left = db.raw().numbers("SELECT \"Id\" AS value FROM \"TaskQueue\" ORDER BY \"Id\"");
        assert_eq!(left, [Some(3), Some(4), Some(5), Some(6)]);
    }

    fn what_gets_its_key_for_a_time_after_it_was_chosen_is_not_deleted(db) {
        let mut ctx = willing(db);
        db.cli().run(&["queue", "--any-class", "work", "--unique", "a"]).ok();
        create(&mut ctx);
        drain(&mut ctx);
        make_old(db, "1 = 1");
        let rule = PruneRule::older_than(TaskStatus::Success, 60);
        let window = old_tasks(&mut ctx, &rule);
        assert_eq!(window.count(true), 1);
        db.execute(&format!("UPDATE \"TaskQueue\" SET \"UniqueUntil\" = {}", sql_now(db.engine, 3_600)));
        assert_eq!(ctx.store.prune_tasks(&rule, &window, None).unwrap(), 0);
    }

    fn more_that_keep_their_keys_than_are_looked_at_hide_nothing_behind_them(db) {
        let mut ctx = willing(db);
        let until = sql_now(db.engine, 3_600);
        let rows: Vec<String> = (0..600).map(|number| format!("('work', 'success', 'key{number}', {until})")).collect();
        db.execute(&format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"UniqueKey\", \"UniqueUntil\") VALUES {}", rows.join(", ")));
        db.execute("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\") VALUES ('work', 'success')");
        make_old(db, "1 = 1");
        let rule = PruneRule::older_than(TaskStatus::Success, 60);
        let window = old_tasks(&mut ctx, &rule);
        assert_eq!((window.count(true), window.next), (1, None));
    }

    fn a_rate_stays_exact_whatever_is_pruned(db) {
        let mut ctx = willing(db);
        let starts = |class: &str| db.number(&format!("SELECT COUNT(*) AS value FROM \"TaskQueueStarts\" WHERE \"TaskClass\" = '{class}'"));
        // Without a rate nothing is stored. A new rate counts earlier starts.
        finished(db, &mut ctx, 1);
        assert_eq!(starts("work"), 0);
        db.cli().run(&["limit", "set", "work", "--rate", "2/1h"]).ok();
        db.cli().run(&["limit", "set", "other", "--rate", "1/1d"]).ok();
        assert_eq!(starts("work"), 1);
        queue(&mut ctx, "work");
        create(&mut ctx);
        drain(&mut ctx);
        queue(&mut ctx, "work");
        create(&mut ctx);
        make_old(db, "\"LastStatus\" = 'success'");
        assert_eq!(db.cli().run(&["prune", "1-2", "--yes"]).stderr, "2 tasks deleted\n");
        assert_eq!((starts("work"), starts("other"), count(db, "TaskQueue")), (2, 0, 1));
        assert!(claim(&mut ctx.store).is_none());
        // An expired start is removed with the next start.
        db.execute(&format!("UPDATE \"TaskQueueStarts\" SET \"StartedOn\" = {} WHERE \"RunId\" = 1", sql_now(db.engine, -4_000)));
        assert!(claim(&mut ctx.store).is_some());
        assert_eq!(db.raw().numbers("SELECT \"RunId\" AS value FROM \"TaskQueueStarts\""), [Some(2), Some(3)]);
        // Stored starts and the starts found for a new rate are the same.
        db.cli().run(&["limit", "set", "work", "--rate", "3/1h"]).ok();
        assert_eq!(starts("work"), 2);
        db.cli().run(&["limit", "set", "work", "--running", "3"]).ok();
        assert_eq!(starts("work"), 0);
    }

    fn a_task_that_was_cancelled_before_its_time_is_pruned_by_its_age(db) {
        let mut ctx = willing(db);
        for at in ["2031-01-01T00:00:00Z", "2098-01-01T00:00:00Z", "2098-01-01T00:00:00Z"] {
            db.cli().run(&["queue", "--any-class", "work", "--at", at]).ok();
        }
        db.cli().run(&["cancel", "1", "2"]).ok();
        assert_eq!(create(&mut ctx).pruned.tasks, 0);
        let long_ago = "\"UpdatedOn\" = '2020-01-01 00:00:00.000000'";
        db.execute(&format!("UPDATE \"TaskQueue\" SET {long_ago} WHERE \"Id\" <> 1"));
        assert_eq!(count_prunable(&mut ctx, &PruneRequest::default()).unwrap(), 1);
        assert_eq!(create(&mut ctx).pruned.tasks, 1);
        assert_eq!(db.raw().numbers("SELECT \"Id\" AS value FROM \"TaskQueue\" ORDER BY \"Id\""), [Some(1), Some(3)]);
        let of_class = ["prune", "--older-than", "1h", "--class", "work", "--yes"];
        assert_eq!(db.cli().run(&of_class).fails(0), "");
        db.execute(&format!("UPDATE \"TaskQueue\" SET {long_ago}"));
        assert_eq!(db.cli().run(&of_class).stderr, "1 finished task pruned\n");
    }

    fn tasks_of_a_class_in_one_whole_second_are_all_pruned(db) {
        let mut ctx = willing(db);
        let row = "('work', 'success', '2020-01-01 00:00:00', '2020-01-01 00:00:00')";
        let rows = vec![row; 1_200].join(", ");
        db.execute(&format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"ScheduledOn\", \"UpdatedOn\") VALUES {rows}"));
        let of_class = ["prune", "--older-than", "1h", "--class", "work", "--yes"];
        assert_eq!(db.cli().run(&of_class).stderr, "1200 finished tasks pruned\n");
        assert_eq!(create(&mut ctx).pruned.tasks, 0);
    }

    fn more_cancelled_future_tasks_than_a_part_are_pruned_by_age_and_number(db) {
        let mut ctx = willing(db);
        let far = "('work', 'cancelled', '2098-01-01 00:00:00.000000', '2020-01-01 00:00:00.000000')";
        let rows = vec![far; 1_200].join(", ");
        let insert = format!("INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"ScheduledOn\", \"UpdatedOn\") VALUES {rows}");
        db.execute(&insert);
        assert_eq!(create(&mut ctx).pruned.tasks, 1_200);
        db.execute(&insert);
        settings::set(&mut ctx, Setting::KeepCancelled, "0").unwrap();
        settings::set(&mut ctx, Setting::MaxCancelled, "100").unwrap();
        assert_eq!(create(&mut ctx).pruned.tasks, 1_100);
    }

    fn what_operators_prune_is_kept_as_an_event_and_what_expires_is_not(db) {
        let mut ctx = willing(db);
        finished(db, &mut ctx, 4);
        db.execute("UPDATE \"TaskQueue\" SET \"UpdatedOn\" = '2020-01-01 00:00:00.000000', \"ScheduledOn\" = '2020-01-01 00:00:00.000000' WHERE \"Id\" = 1");
        assert_eq!(create(&mut ctx).pruned.tasks, 1);
        assert_eq!(db.cli().run(&["events", "--kind", "pruned", "--json"]).ok(), "");
        assert_eq!(db.cli().run(&["prune", "2", "9"]).code, Some(1));
        assert_eq!(db.cli().run(&["prune", "class=none", "--yes"]).fails(0), "");
        db.cli().run(&["prune", "--older-than", "0s", "--status", "success", "--yes"]).ok();
        db.cli().run(&["prune"]).ok();
        let events = db.cli().run(&["events", "--kind", "pruned", "--json"]).ok();
        let events: Vec<serde_json::Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let details: Vec<&serde_json::Value> = events.iter().map(|event| &event["details"]).collect();
        assert_eq!(details, [
            &serde_json::json!({ "tasks": 1, "selection": "2 9" }),
            &serde_json::json!({
                "tasks": 2, "outputs": 0, "results": 0, "runners": 0, "events": 0,
                "older_than_secs": 0, "statuses": ["success"], "class": null
            }),
        ]);
        for event in &events {
            assert!(event["task_id"].is_null() && event["actor"].as_str().is_some_and(|actor| !actor.is_empty()), "{event}");
        }
    }

    fn a_prune_from_cron_succeeds_in_silence_when_there_is_nothing_to_prune(db) {
        let mut ctx = willing(db);
        finished(db, &mut ctx, 1);
        let (options, selection) = ("prune with options needs --yes", "prune needs --yes, because it cannot ask without a terminal");
        for (args, words) in [
            (&["--older-than", "7d"][..], options),
            (&["--class", "none"], options),
            (&["class=none"], selection),
            (&["older=7d"], selection),
        ] {
            // It would fail on the first night with something to delete, so it fails at once.
            let refused = db.cli().run(&[&["prune"][..], args].concat()).fails(2);
            assert!(refused.contains(words), "{refused}");
        }
        for args in [&["--older-than", "7d", "--yes"][..], &["class=none", "--yes"], &["older=7d", "--yes"], &[]] {
            let args = [&["prune"][..], args].concat();
            assert_eq!(db.cli().run(&args).fails(0), "", "{args:?}");
            let told = db.cli().run(&[&args[..], &["-v"]].concat());
            assert_eq!((told.code, told.stderr.as_str()), (Some(0), "nothing to prune\n"), "{args:?}");
        }
        assert_eq!(db.cli().run(&["prune", "--older-than", "7d", "--yes", "--json"]).json(), db.cli().run(&["prune", "--json"]).json());
        // A dry run prints only the total.
        for args in [&["--older-than", "7d"][..], &["class=none"], &[]] {
            let asked = [&["prune", "--dry-run"][..], args].concat();
            assert_eq!(db.cli().run(&asked).stderr, "0 tasks would be deleted\n", "{asked:?}");
        }
        // A named task that does not exist is an error, and so is a missing confirmation.
        for missing in ["4711", "4711-4712"] {
            assert_eq!(db.cli().run(&["prune", missing]).code, Some(3), "{missing}");
        }
        assert_eq!(db.cli().run(&["prune", "status=success"]).code, Some(2));
        // A task that is never deleted is reported, without an error.
        queue(&mut ctx, "work");
        let kept = db.cli().run(&["prune", "status=scheduled", "--yes"]);
        assert_eq!((kept.code, kept.stderr.as_str()), (Some(0), "0 tasks deleted\n1 task skipped: it has the status scheduled; it has not finished\n"));
        assert_eq!(count(db, "TaskQueue"), 2);
    }

    fn prune_says_what_it_would_do_and_wants_a_yes_for_what_nobody_has_set(db) {
        let mut ctx = willing(db);
        finished(db, &mut ctx, 2);
        let asked = db.cli().run(&["prune", "--older-than", "0s"]);
        assert_eq!(asked.code, Some(2), "{asked:?}");
        assert!(asked.stderr.contains("2 tasks would be deleted; nothing was"), "{asked:?}");
        assert_eq!(db.cli().run(&["prune", "--older-than", "0s", "--dry-run"]).stderr, "2 tasks would be deleted\n");
        assert_eq!(db.cli().run(&["prune"]).fails(0), "");
        assert_eq!(count(db, "TaskQueue"), 2);
        let done = db.cli().run(&["prune", "--older-than", "0s", "--status", "success", "--yes"]);
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), "2 finished tasks pruned\n"));
        assert_eq!(db.cli().run(&["prune", "--json"]).json()["tasks"], 0);
        make_old(db, "1 = 1");
    }
}
