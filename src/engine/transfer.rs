//! `export` and `import`: tasks with their runs, outputs and events as newline-delimited JSON, also between engines. The
//! first line says what it is, the last one how many tasks there were: a file that was cut off is refused.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{Context, EngineError, EngineResult};
use crate::domain::status::{RunStatus, TaskStatus};
pub use crate::store::Imported;
use crate::store::TransferredTask;

/// The version that this program writes and reads.
const VERSION: u32 = 1;

/// Which tasks are exported; nothing means all.
#[derive(Clone, Debug, Default)]
pub struct ExportRequest {
    /// With one of these ids.
    pub ids: Vec<i64>,
    /// Of this class.
    pub class: Option<String>,
    /// In one of these statuses.
    pub statuses: Vec<TaskStatus>,
}

impl ExportRequest {
    fn wants(&self, whole: &TransferredTask) -> bool {
        (self.ids.is_empty() || self.ids.contains(&whole.id()))
            && self.class.as_ref().is_none_or(|class| class == whole.class())
            && (self.statuses.is_empty() || self.statuses.iter().any(|status| status.as_str() == whole.status()))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FirstLine {
    taskqueue_export: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LastLine {
    end_of_export: usize,
}

/// Hands every task that is wanted to `line`, as a line of JSON, between a first and a last one. Returns how many. A task is
/// as it was when its page was read: what changes meanwhile may be in it or not.
///
/// # Errors
/// The database's, and those of `line`.
pub fn export(
    ctx: &mut Context,
    request: &ExportRequest,
    line: &mut dyn FnMut(String) -> EngineResult<()>,
) -> EngineResult<usize> {
    line(to_json(&FirstLine { taskqueue_export: VERSION })?)?;
    let (mut count, mut after) = (0, 0);
    loop {
        let page = ctx.store.export_page(after)?;
        let Some(last) = page.last() else { break };
        after = last.id();
        for whole in page.iter().filter(|whole| request.wants(whole)) {
            line(to_json(whole)?)?;
            count += 1;
        }
    }
    line(to_json(&LastLine { end_of_export: count })?)?;
    Ok(count)
}

fn to_json<T: Serialize>(value: &T) -> EngineResult<String> {
    serde_json::to_string(value).map_err(|error| EngineError::Input(error.to_string()))
}

/// Inserts all tasks of an export, or none. `imported` hears how many are in the transaction so far, and of how many.
///
/// # Errors
/// [`EngineError::Input`] with the number of the first bad line, or the database's.
pub fn import(ctx: &mut Context, text: &str, imported: &mut dyn FnMut(usize, usize)) -> EngineResult<Imported> {
    let tasks = read(text).map_err(EngineError::Input)?;
    let total = tasks.len();
    let imported = ctx.store.import_tasks(&tasks, &mut |count| imported(count, total))?;
    fault_point!("import.committed");
    Ok(imported)
}

fn read(text: &str) -> Result<Vec<TransferredTask>, String> {
    let not_an_export =
        || "line 1: this is no export of taskqueue, which begins with {\"taskqueue_export\":1}".to_owned();
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, first) = lines.next().ok_or_else(not_an_export)?;
    let first: FirstLine = serde_json::from_str(first).map_err(|_| not_an_export())?;
    if first.taskqueue_export != VERSION {
        return Err(format!("line 1: version {} of an export; this program reads {VERSION}", first.taskqueue_export));
    }
    let mut tasks = Vec::new();
    for (index, line) in lines {
        if let Ok(last) = serde_json::from_str::<LastLine>(line) {
            let (here, there) = (tasks.len(), last.end_of_export);
            if here != there {
                return Err(format!("line {}: {there} tasks were exported, and here are {here}", index + 1));
            }
            return nobody_waits_in_vain(&tasks).map(|()| tasks);
        }
        let mut whole: TransferredTask =
            serde_json::from_str(line).map_err(|error| format!("line {}: {error}", index + 1))?;
        bring_to_rest(&mut whole);
        tasks.push(whole);
    }
    Err("the export was cut off: its last line is missing".to_owned())
}

/// A task that waits for one that is not in the export would wait for ever.
fn nobody_waits_in_vain(tasks: &[TransferredTask]) -> Result<(), String> {
    let here: HashSet<i64> = tasks.iter().map(TransferredTask::id).collect();
    for whole in tasks {
        if let Some(missing) = whole.waits_for().find(|id| !here.contains(id)) {
            return Err(format!("task {} waits for task {missing}, which is not in the export", whole.id()));
        }
    }
    Ok(())
}

/// Nobody here works on it: what waited gets a new run, what was processed is given back.
fn bring_to_rest(whole: &mut TransferredTask) {
    whole.end_open_runs("imported while it was processed");
    if whole.status() == TaskStatus::Processing.as_str() {
        let before = whole.run_statuses().flatten().find_map(|status| match status {
            RunStatus::Success => Some(TaskStatus::Success),
            RunStatus::Error => Some(TaskStatus::Failed),
            RunStatus::Timeout => Some(TaskStatus::Timeout),
            RunStatus::Cancelled => Some(TaskStatus::Cancelled),
            RunStatus::Scheduled | RunStatus::Processing | RunStatus::Released => None,
        });
        whole.set_status(before.unwrap_or(TaskStatus::Scheduled));
    }
}
