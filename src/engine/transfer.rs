//! `export` and `import`: tasks with their runs, outputs and events as newline-delimited JSON, also between engines. The
//! first line says what it is, the last one how many tasks there were: a file that was cut off is refused.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::{Context, EngineError, EngineResult, StoreError};
use crate::domain::dependencies::{find_circle, id_circle_words};
use crate::domain::ids::TaskId;
use crate::domain::parse_words::json_line_problem;
use crate::domain::status::TaskStatus;
use crate::domain::task_class::TaskClass;
use crate::domain::transition::status_before;
pub use crate::store::Imported;
use crate::store::TransferredTask;

/// The version that this program writes and reads.
const VERSION: u32 = 1;

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
struct FirstLine {
    taskqueue_export: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LastLine {
    end_of_export: usize,
}

/// Hears a line of JSON, and says whether it wants another one.
pub type HearLine<'a> = &'a mut dyn FnMut(String) -> EngineResult<ControlFlow<()>>;

/// Hands every task to `line`, between a first and a last line, as long as it wants more. A task is as it was when its page was
/// read: what changes meanwhile may be in it or not.
///
/// # Errors
/// The database's, and those of `line`.
pub fn export_all(ctx: &mut Context, line: HearLine<'_>) -> EngineResult<Exported> {
    let (mut exported, mut after) = (Exported::default(), 0);
    if line(to_json(&FirstLine { taskqueue_export: VERSION })?)?.is_break() {
        return Ok(exported);
    }
    loop {
        let page = ctx.store.export_page(after)?;
        let Some(last) = page.last() else { break };
        after = last.id();
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
pub fn export_selected(ctx: &mut Context, ids: &[TaskId], line: HearLine<'_>) -> EngineResult<Exported> {
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
            let id = TaskId(whole.id());
            here.insert(id);
            if !whole.is_settled() {
                exported.in_vain.extend(whole.waits_for().map(|awaited| (id, TaskId(awaited))));
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

/// Inserts all tasks of an export, or none, and keeps an event of it. `imported` hears how many are in the transaction so far, and of how many.
///
/// # Errors
/// [`EngineError::Input`] with the number of the first bad line, or the database's.
pub fn import(ctx: &mut Context, text: &str, imported: &mut dyn FnMut(usize, usize)) -> EngineResult<Imported> {
    let (tasks, numbers) = read(text).map_err(EngineError::Input)?;
    let total = tasks.len();
    let event = ctx.operator_event("imported", serde_json::json!({}));
    let imported = ctx.store.import_tasks(&tasks, &event, &mut |count| imported(count, total));
    let imported = imported.map_err(|error| match error {
        StoreError::NotImported { index, problem } => {
            let number = numbers.get(index).copied().unwrap_or_default();
            EngineError::Input(format!("line {number}: {problem}"))
        }
        other => other.into(),
    })?;
    fault_point!("import.committed");
    Ok(imported)
}

/// The tasks, and the numbers of their lines.
fn read(text: &str) -> Result<(Vec<TransferredTask>, Vec<usize>), String> {
    let not_an_export =
        || "line 1: this is no export of taskqueue, which begins with {\"taskqueue_export\":1}".to_owned();
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, first) = lines.next().ok_or_else(not_an_export)?;
    let first: FirstLine = serde_json::from_str(first).map_err(|_| not_an_export())?;
    if first.taskqueue_export != VERSION {
        return Err(format!("line 1: version {} of an export; this program reads {VERSION}", first.taskqueue_export));
    }
    let (mut tasks, mut numbers) = (Vec::new(), Vec::new());
    for (index, line) in lines {
        if let Ok(last) = serde_json::from_str::<LastLine>(line) {
            let (here, there) = (tasks.len(), last.end_of_export);
            if here != there {
                return Err(format!("line {}: {there} tasks were exported, and here are {here}", index + 1));
            }
            settle_dependencies(&mut tasks)?;
            refuse_circle(&tasks)?;
            return Ok((tasks, numbers));
        }
        let mut whole: TransferredTask =
            serde_json::from_str(line).map_err(|error| format!("line {}: {}", index + 1, json_line_problem(&error)))?;
        whole.class().parse::<TaskClass>().map_err(|problem| format!("line {}: {problem}", index + 1))?;
        bring_to_rest(&mut whole);
        tasks.push(whole);
        numbers.push(index + 1);
    }
    Err("the export was cut off: its last line is missing".to_owned())
}

/// Nobody waits for what has succeeded since its dependant was read, whole or in part. What is over waits for nothing that
/// stayed behind; another task would wait for it for ever.
fn settle_dependencies(tasks: &mut [TransferredTask]) -> Result<(), String> {
    let success = TaskStatus::Success.as_str();
    let has_succeeded: HashMap<i64, bool> = tasks.iter().map(|whole| (whole.id(), whole.status() == success)).collect();
    for whole in tasks {
        for awaited in whole.waits_for().collect::<Vec<_>>() {
            match has_succeeded.get(&awaited) {
                Some(false) => {}
                None if !whole.is_settled() => {
                    return Err(format!(
                        "task {} waits for task {awaited}, which is not in the export; `export --prerequisites` adds it",
                        whole.id()
                    ));
                }
                Some(true) | None => whole.satisfy(awaited),
            }
        }
        whole.count_prerequisites();
    }
    Ok(())
}

/// Rows that were written by SQL may wait for each other; here it can be seen.
fn refuse_circle(tasks: &[TransferredTask]) -> Result<(), String> {
    let place_of: HashMap<i64, usize> = tasks.iter().enumerate().map(|(place, whole)| (whole.id(), place)).collect();
    let places = |whole: &TransferredTask| whole.waits_for().filter_map(|id| place_of.get(&id).copied()).collect();
    let Some(circle) = find_circle(&tasks.iter().map(places).collect::<Vec<_>>()) else { return Ok(()) };
    let circle: Vec<TaskId> = circle.iter().map(|place| TaskId(tasks[*place].id())).collect();
    Err(format!("these tasks would wait for each other for ever: {}", id_circle_words(&circle)))
}

/// Nobody here works on it: what waited gets a new run, what was processed is given back.
fn bring_to_rest(whole: &mut TransferredTask) {
    whole.end_open_runs("imported while it was processed");
    if whole.status() == TaskStatus::Processing.as_str() {
        let before = whole.run_statuses().flatten().find_map(status_before);
        whole.set_status(before.unwrap_or(TaskStatus::Scheduled));
    }
}
