//! The statements of limit keys and their slots.

use super::by_id;
use super::rows::analyze;
use crate::conformance::explain::is_read_from;
use crate::support::TestDb;

pub(super) fn check(db: &TestDb) {
    // store::rules::key_slots::last_place_of_holders, if many runs have a slot.
    is_read_from(
        db,
        "TaskQueueRunsWaiting",
        1,
        "SELECT \"LinedUpOn\" FROM \"TaskQueueRuns\" WHERE \"WaitingOrder\" = 0
         ORDER BY \"WaitingOrder\" DESC, \"LinedUpOn\" DESC, \"Id\" DESC LIMIT 1",
    );
    // store::rules::key_slots: the next key with waiting runs, the first of them, and the runs with a slot.
    db.execute("UPDATE \"TaskQueueRuns\" SET \"LimitKey\" = CASE WHEN \"Id\" % 2 = 0 THEN 'one' ELSE 'two' END, \"HasKeySlot\" = (\"Id\" % 5000 = 2)
         WHERE \"Status\" = 'scheduled'");
    analyze(db, "TaskQueueRuns");
    is_read_from(
        db,
        "TaskQueueRunsWaitingKey",
        50,
        "SELECT \"WaitingKey\" FROM \"TaskQueueRuns\" WHERE \"WaitingKey\" > 'one'
         ORDER BY \"WaitingKey\", \"ClaimOrder\", \"Id\" LIMIT 1",
    );
    is_read_from(
        db,
        "TaskQueueRunsWaitingKey",
        50,
        "SELECT \"Id\" FROM \"TaskQueueRuns\" WHERE \"WaitingKey\" = 'one'
         ORDER BY \"WaitingKey\", \"ClaimOrder\", \"Id\" LIMIT 2",
    );
    is_read_from(
        db,
        "TaskQueueRunsHeldKey",
        50,
        "SELECT \"HeldKey\", COUNT(*) FROM \"TaskQueueRuns\" WHERE \"HeldKey\" IN ('one', 'three') GROUP BY \"HeldKey\"",
    );
    is_read_from(
        db,
        "TaskQueueRunsHeldKey",
        50,
        "SELECT \"Id\" FROM \"TaskQueueRuns\" WHERE \"HeldKey\" = 'one' AND \"Status\" = 'scheduled'
         ORDER BY \"HeldKey\" DESC, \"ClaimOrder\" DESC, \"Id\" DESC LIMIT 2",
    );
    // store::rules::key_slots::list_key_holders
    is_read_from(
        db,
        "TaskQueueRunsHeldKey",
        50,
        "SELECT \"TaskQueueId\" FROM \"TaskQueueRuns\" WHERE \"HeldKey\" = 'one'
         ORDER BY \"HeldKey\", \"ClaimOrder\", \"Id\" LIMIT 5",
    );
    // store::rules::key_slots::last_place_of_holders
    is_read_from(
        db,
        "TaskQueueRunsHeldKey",
        201,
        "SELECT \"ClaimOrder\", \"Status\", \"LinedUpOn\" FROM \"TaskQueueRuns\" WHERE \"HeldKey\" IS NOT NULL
         ORDER BY \"HeldKey\", \"ClaimOrder\", \"Id\" LIMIT 201",
    );
    // store::rules::key_slots::give_new_runs_slots: reads only the runs that were just created.
    let newest = db.number("SELECT MAX(\"Id\") AS value FROM \"TaskQueueRuns\"") - 20;
    is_read_from(
        db,
        &by_id(db, "TaskQueueRuns"),
        50,
        &format!(
            "SELECT \"WaitingKey\" FROM \"TaskQueueRuns\" WHERE \"Id\" > {newest} AND \"WaitingKey\" IS NOT NULL ORDER BY \"Id\""
        ),
    );
}
