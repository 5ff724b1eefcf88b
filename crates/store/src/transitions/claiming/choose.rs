//! Finds the first run among the tasks that a claimant has selected. Each criterion has its own index, so that other runs,
//! however many wait, are not read.

use diesel::prelude::*;

use crate::StoreResult;
use crate::base::connection::AnyConnection;
use crate::base::connection::MultiBackend;
use crate::base::schema::{task_queue, task_queue_runs};
use crate::journal::events::NewEvent;
use crate::reading::heads::{Head, HeadRow, head_of, rejection_by};
use crate::rules::limits::Obstacles;
use taskqueue_domain::run::status::Stored;
use taskqueue_domain::task::choosing::class_set::ClassSet;
use taskqueue_domain::task::choosing::task_choice::TaskChoice;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_domain::task::task_class::TaskClass;

/// A claimant, what it is offered, and for how long.
pub struct OutsideClaim<'a> {
    /// The name by which it is recorded.
    pub claimant: &'a str,
    /// PID and identity of its process, if it gave one of this host.
    pub process: Option<(i64, String)>,
    /// The host from which it claims.
    pub host: &'a str,
    /// The classes whose runs are offered.
    pub classes: ClassSet<'a>,
    /// Which tasks the claimant wants.
    pub choice: &'a TaskChoice,
    /// One for each run that may be claimed: the random part of its token, new for each claim.
    pub secrets: &'a [String],
    /// Seconds until any worker may take a run of this class whose task has this timeout, unless the lease is renewed.
    pub lease_secs: &'a dyn Fn(Option<&TaskClass>, Option<i32>) -> i64,
    /// The event of a claim, with its author.
    pub event: &'a dyn Fn(&ClaimedRun) -> NewEvent,
}

/// Returns the first waiting run that is selected and offered, and that neither a pause nor a limit blocks.
pub(crate) fn first_chosen(
    conn: &mut AnyConnection,
    claim: &OutsideClaim<'_>,
    obstacles: &mut Obstacles<'_>,
) -> StoreResult<Option<Head>> {
    for head in list_chosen(conn, claim)? {
        // A run whose class cannot be read is set aside, as by any claim.
        let Stored::Known(class) = &head.0 else { return Ok(Some(head)) };
        if claim.classes.contains(class) && obstacles.of_class(conn, class)?.is_none() {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

/// Lists the waiting runs of the task or key that a claim names, with its tag if it has one. They are few: a task has at most one
/// waiting run, a unique key one live task per class, and a limit key as many as its slots.
fn list_chosen(conn: &mut AnyConnection, claim: &OutsideClaim<'_>) -> QueryResult<Vec<Head>> {
    use task_queue_runs::dsl::{claim_class, claim_order, held_key, id, lined_up_on, open_task_id};
    let mut runs = task_queue_runs::table
        .inner_join(task_queue::table.on(task_queue::id.nullable().eq(open_task_id)))
        .select((claim_class, id, claim_order, lined_up_on))
        .into_boxed::<MultiBackend>()
        .filter(claim_class.is_not_null())
        .filter(rejection_by!(claim.claimant).is_null());
    if let Some(task) = claim.choice.task {
        runs = runs.filter(open_task_id.eq(task.0));
    }
    if let Some(key) = &claim.choice.unique_key {
        runs = runs.filter(task_queue::unique_key.eq(key));
    }
    if let Some(key) = &claim.choice.limit_key {
        runs = runs.filter(held_key.eq(key));
    }
    if let Some(tag) = &claim.choice.tag {
        // Not WaitingTag: SQLite would read all runs with the tag through that index.
        runs = runs.filter(task_queue_runs::tag.eq(tag));
    }
    let rows: Vec<HeadRow> = runs.load(conn)?;
    // Sorted here: these are few, but MySQL and MariaDB would create a temporary table.
    let mut heads: Vec<Head> = rows.into_iter().filter_map(head_of).collect();
    heads.sort_unstable_by_key(|(_, run_id, order, on)| (*order, *on, *run_id));
    Ok(heads)
}
