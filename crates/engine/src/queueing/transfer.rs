//! `export`: writes tasks with their runs, outputs and events as newline-delimited JSON. `import` reads it, also into another
//! engine. The first line has the format version, and the last one the number of tasks, so that a truncated file is refused.

use std::collections::HashSet;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_store::ExportedTask;

/// The format version that this program writes and reads.
pub(crate) const VERSION: u32 = 1;

/// How many tasks are read at once.
const PORTION: usize = 500;

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// How many tasks.
    pub tasks: usize,
    /// Requested tasks that do not exist.
    pub missing: Vec<TaskId>,
    /// Tasks that wait for a task that is not exported, each with that task. An import refuses them.
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

/// Called with each line of JSON; returns whether to continue.
pub type OnLine<'a> = &'a mut dyn FnMut(String) -> EngineResult<ControlFlow<()>>;

/// Passes a header, every task and a footer to `line` until it stops. Each task is as it was when its page was read; later
/// changes may be missing.
///
/// # Errors
/// Returns an error if the database or `line` fails.
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

/// Like [`export_all`], for these tasks only, in the order of their ids.
///
/// # Errors
/// Returns an error if the database or `line` fails.
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
            exported.tasks += 1;
            match whole {
                ExportedTask::Whole(whole) if !whole.is_settled() => {
                    exported.in_vain.extend(whole.waits_for().map(|awaited| (id, TaskId(awaited.depends_on))));
                }
                ExportedTask::Whole(_) | ExportedTask::Unreadable { .. } => {}
            }
        }
        exported.missing.extend(portion.iter().copied().filter(|id| !here.contains(id)));
    }
    exported.in_vain.retain(|(_, awaited)| !here.contains(awaited));
    exported.in_vain.dedup_by_key(|(id, _)| *id);
    line(to_json(&LastLine { end_of_export: exported.tasks })?).map(drop)?;
    Ok(exported)
}

/// Returns these tasks and all tasks that they wait for, directly or indirectly.
///
/// # Errors
/// Returns an error if the database fails.
pub fn with_prerequisites(ctx: &mut Context, mut ids: Vec<TaskId>) -> EngineResult<Vec<TaskId>> {
    ids.extend(ctx.store.list_all_prerequisites(&ids)?);
    Ok(ids)
}

fn to_json<T: Serialize>(value: &T) -> EngineResult<String> {
    serde_json::to_string(value).map_err(|error| EngineError::Input(error.to_string()))
}
