//! `export`: tasks with their runs, outputs and events as newline-delimited JSON, which `import` reads, also into another engine. The
//! first line says what it is, the last one how many tasks there were: a file that was cut off is refused.

use std::collections::HashSet;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use crate::{Context, EngineError, EngineResult};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_store::ExportedTask;

/// The version that this program writes and reads.
pub(crate) const VERSION: u32 = 1;

/// Tasks that are read together.
const PORTION: usize = 500;

/// What an export has written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// How many tasks.
    pub tasks: usize,
    /// Tasks that were wanted and are not there.
    pub missing: Vec<TaskId>,
    /// Tasks that still wait for one that is not exported, and for which one: an import refuses them.
    pub in_vain: Vec<(TaskId, TaskId)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FirstLine {
    pub(crate) taskqueue_export: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LastLine {
    pub(crate) end_of_export: usize,
}

/// Hears a line of JSON, and says whether it wants another one.
pub type OnLine<'a> = &'a mut dyn FnMut(String) -> EngineResult<ControlFlow<()>>;

/// Hands every task to `line`, between a first and a last line, as long as it wants more. A task is as it was when its page was
/// read: what changes meanwhile may be in it or not.
///
/// # Errors
/// The database's, and those of `line`.
pub fn export_all(ctx: &mut Context, line: OnLine<'_>) -> EngineResult<Exported> {
    let (mut exported, mut after) = (Exported::default(), 0);
    if line(to_json(&FirstLine { taskqueue_export: VERSION })?)?.is_break() {
        return Ok(exported);
    }
    loop {
        let page = ctx.store.export_page(after)?;
        let Some(last) = page.last() else { break };
        after = last.id().0;
        for whole in &page {
            if line(to_json(whole)?)?.is_break() {
                return Ok(exported);
            }
            exported.tasks += 1;
        }
    }
    line(to_json(&LastLine { end_of_export: exported.tasks })?).map(drop)?;
    Ok(exported)
}

/// The same of these tasks alone, in the order of their ids.
///
/// # Errors
/// The database's, and those of `line`.
pub fn export_selected(ctx: &mut Context, ids: &[TaskId], line: OnLine<'_>) -> EngineResult<Exported> {
    let (mut exported, mut here) = (Exported::default(), HashSet::new());
    if line(to_json(&FirstLine { taskqueue_export: VERSION })?)?.is_break() {
        return Ok(exported);
    }
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    for portion in ids.chunks(PORTION) {
        for whole in ctx.store.export_tasks(portion)? {
            if line(to_json(&whole)?)?.is_break() {
                return Ok(exported);
            }
            let id = whole.id();
            here.insert(id);
            match whole {
                ExportedTask::Whole(whole) if !whole.is_settled() => {
                    exported.in_vain.extend(whole.waits_for().map(|awaited| (id, TaskId(awaited))));
                }
                ExportedTask::Whole(_) | ExportedTask::Unreadable { .. } => {}
            }
        }
        exported.missing.extend(portion.iter().copied().filter(|id| !here.contains(id)));
    }
    exported.tasks = here.len();
    exported.in_vain.retain(|(_, awaited)| !here.contains(awaited));
    exported.in_vain.dedup_by_key(|(id, _)| *id);
    line(to_json(&LastLine { end_of_export: exported.tasks })?).map(drop)?;
    Ok(exported)
}

/// These tasks, and all for which they still wait, or for which those wait.
///
/// # Errors
/// The database's.
pub fn with_prerequisites(ctx: &mut Context, mut ids: Vec<TaskId>) -> EngineResult<Vec<TaskId>> {
    ids.extend(ctx.store.list_all_prerequisites(&ids)?);
    Ok(ids)
}

fn to_json<T: Serialize>(value: &T) -> EngineResult<String> {
    serde_json::to_string(value).map_err(|error| EngineError::Input(error.to_string()))
}
