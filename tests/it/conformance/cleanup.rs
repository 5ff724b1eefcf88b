//! `create-runs` queries once what it must clean up. A kind of rows missing in this query would stay forever.

use taskqueue_domain::run::retention::Retention;
use taskqueue_store::{CleanupNeeds, Store};

use super::fixture::{create, willing};
use crate::each_engine;

const OLD: &str = "'2020-01-01 00:00:00.000000'";
const PRUNABLE: CleanupNeeds = CleanupNeeds {
    pauses: false,
    notices: false,
    expired: false,
    prunable: true,
    receipts: false,
    schedules: false,
    configured_schedules: false,
    missed_ends: false,
};

fn retention(store: &mut Store) -> Retention {
    store.settings().unwrap().retention
}

fn needs(store: &mut Store) -> CleanupNeeds {
    let retention = retention(store);
    store.cleanup_needs(&retention).unwrap()
}

/// Inserts a finished run with this id and end.
fn run(id: i64, ended_on: &str, more: &str, values: &str) -> String {
    format!(
        "INSERT INTO \"TaskQueueRuns\" (\"Id\", \"TaskQueueId\", \"TaskClass\", \"Status\", \"FinishedOn\"{more})
         VALUES ({id}, {id}, 'work', 'success', {ended_on}{values})"
    )
}

fn output(run_id: i64) -> String {
    format!(
        "INSERT INTO \"TaskQueueRunOutputs\" (\"RunId\", \"Stream\", \"Content\", \"TotalBytes\") VALUES ({run_id}, 'stdout', 'x', 1)"
    )
}

each_engine! {
    fn what_there_is_to_clean_up_is_seen_of_each_kind_of_rows(db) {
        let task = |status: &str, more: &str, values: &str| format!(
            "INSERT INTO \"TaskQueue\" (\"TaskClass\", \"LastStatus\", \"ScheduledOn\", \"UpdatedOn\"{more})
             VALUES ('work', '{status}', {OLD}, {OLD}{values})"
        );
        let exhausted = (", \"MaxRetries\", \"FailedRetries\"", ", 1, 1");
        let none = CleanupNeeds::default();
        let cases: Vec<(&str, Vec<String>, CleanupNeeds)> = vec![
            ("nothing", vec![], none),
            ("a pause that ended", vec![
                format!("INSERT INTO \"TaskQueuePauses\" (\"Scope\", \"Until\") VALUES ('all', {OLD})"),
            ], CleanupNeeds { pauses: true, ..none }),
            ("a notice", vec![
                "INSERT INTO \"TaskQueueNotices\" (\"Kind\") VALUES ('stuck')".to_owned(),
            ], CleanupNeeds { notices: true, ..none }),
            ("a task that has expired", vec![
                task("scheduled", ", \"StartBefore\"", &format!(", {OLD}")),
            ], CleanupNeeds { expired: true, ..none }),
            ("a task that has not expired yet", vec![
                task("scheduled", ", \"StartBefore\"", ", '2100-01-01 00:00:00'"),
            ], none),
            ("expired", vec![task("expired", ", \"StartBefore\"", &format!(", {OLD}"))], PRUNABLE),
            ("success", vec![task("success", "", "")], PRUNABLE),
            ("cancelled", vec![task("cancelled", "", "")], PRUNABLE),
            ("failed", vec![task("failed", exhausted.0, exhausted.1)], PRUNABLE),
            ("timeout", vec![task("timeout", exhausted.0, exhausted.1)], PRUNABLE),
            ("failed, with a retry left", vec![task("failed", "", "")], none),
            ("a task that stated how long", vec![task("success", ", \"Keep\"", ", 60")], PRUNABLE),
            ("a task to be kept without end", vec![task("success", ", \"Keep\"", ", 0")], none),
            ("an output of a run that is gone", vec![output(1)], PRUNABLE),
            ("an output of an old run", vec![run(1, OLD, "", ""), output(1)], PRUNABLE),
            ("results", vec![run(1, OLD, ", \"Results\"", ", '{}'")], PRUNABLE),
            ("a runner", vec![
                format!("INSERT INTO \"TaskQueueRunners\" (\"ProcessId\", \"FinishedOn\") VALUES (1, {OLD})"),
            ], PRUNABLE),
            ("an event of no task", vec![
                format!("INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"OccurredOn\") VALUES ('tested', {OLD})"),
            ], PRUNABLE),
            ("an event of a task", vec![
                format!("INSERT INTO \"TaskQueueEvents\" (\"Kind\", \"TaskQueueId\", \"OccurredOn\") VALUES ('tested', 1, {OLD})"),
            ], none),
            ("a receipt", vec![
                format!("INSERT INTO \"TaskQueueReceipts\" (\"Token\", \"WrittenOn\") VALUES ('receipt', {OLD})"),
            ], CleanupNeeds { receipts: true, ..none }),
            ("a receipt that may be needed", vec![
                "INSERT INTO \"TaskQueueReceipts\" (\"Token\") VALUES ('receipt')".to_owned(),
            ], none),
            ("a schedule", vec![
                task("scheduled", ", \"Recurrence\"", ", '@daily'"),
            ], CleanupNeeds { schedules: true, ..none }),
        ];
        let tables = ["TaskQueue", "TaskQueueRuns", "TaskQueueRunOutputs", "TaskQueueRunners", "TaskQueueEvents", "TaskQueuePauses",
            "TaskQueueNotices", "TaskQueueReceipts"];
        let empty = tables.map(|table| format!("DELETE FROM \"{table}\"")).join("; ");
        let (mut store, mut raw) = (db.store(), db.raw());
        for (name, rows, expected) in cases {
            rows.iter().for_each(|row| raw.execute(row));
            assert_eq!(needs(&mut store), expected, "{name}");
            raw.execute(&empty);
        }
    }

    fn outputs_of_the_oldest_run_are_kept_as_long_as_it_is_young(db) {
        let now = "CURRENT_TIMESTAMP";
        for row in [run(1, now, "", ""), output(1), run(2, OLD, "", ""), output(2)] {
            db.execute(&row);
        }
        let mut store = db.store();
        assert_eq!(needs(&mut store), CleanupNeeds::default(), "ids and times grow together");
        // A run that is in progress for long must not hide later ones.
        db.execute(
            "UPDATE \"TaskQueueRuns\" SET \"Status\" = 'processing', \"FinishedOn\" = NULL, \"StartedOn\" = CURRENT_TIMESTAMP,
                \"Token\" = 'a-token-of-sixteen', \"LeaseExpiresOn\" = '2100-01-01 00:00:00' WHERE \"Id\" = 1",
        );
        assert_eq!(needs(&mut store), PRUNABLE);
        assert_eq!(create(&mut willing(db)).pruned.outputs, 1);
    }

    fn a_number_to_be_kept_is_looked_after_whatever_the_ages_are(db) {
        let mut store = db.store();
        let mut retention = retention(&mut store);
        retention.failed.most = 1;
        assert_eq!(store.cleanup_needs(&retention).unwrap(), PRUNABLE);
    }
}
