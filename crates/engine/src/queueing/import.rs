//! `import`: inserts the tasks of an export, all or none. It reads the input once, line by line, and reports the first bad line
//! at once. It then reads the copy on the local disk again, and inserts it in parts.

use std::collections::HashMap;
use std::io::BufRead;

use super::queue_batch::{bad_line, not_spooled};
use super::transfer::{FirstLine, LastLine, VERSION};
use crate::StoreError;
use crate::context::Context;
use crate::error::{EngineError, EngineResult};
use taskqueue_domain::run::status::TaskStatus;
use taskqueue_domain::run::transition::status_before;
use taskqueue_domain::task::dependencies::{find_circle, id_circle_words};
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::task_class::{EXEC_CLASS, TaskClass};
use taskqueue_domain::text::parse_words::json_line_problem;
use taskqueue_host::files::spooled_lines::{BoundedLines, SpooledLines};
pub use taskqueue_store::Imported;
use taskqueue_store::{Event, EventFilter, OpenDependency, TransferredTask};

/// The longest line: a task with all its runs and their outputs.
const LONGEST_LINE_BYTES: usize = 256 << 20;
/// The largest part: how many tasks are in memory at once, and how many bytes of text.
const PART: usize = 500;
const PART_BYTES: usize = 16 << 20;
/// Larger ids would leave too few for later tasks. In an empty store, ids up to this one are kept.
const LARGEST_ID: i64 = 1 << 53;

/// What an import may do.
#[derive(Clone, Copy, Debug, Default)]
pub struct ImportOptions {
    /// Import tasks of the class `exec`, which run the programs that their data names.
    pub allows_exec: bool,
    /// Import an export that this store contains already.
    pub again: bool,
}

/// The newest events of imports that are compared.
const COMPARED: i64 = 1_000;

/// Inserts all tasks of an export, or none, and stores an event about it. `imported` is called with the number of tasks
/// inserted so far and the total.
///
/// # Errors
/// Returns [`EngineError::ImportedBefore`] if the same export was imported and `again` is false, [`EngineError::Input`] with the number of the first bad line, or an error if the database fails.
pub fn import(
    ctx: &mut Context,
    input: &mut dyn BufRead,
    options: ImportOptions,
    imported: &mut dyn FnMut(usize, usize),
) -> EngineResult<Imported> {
    let Export { mut spooled, tasks, digest } = read(input, options.allows_exec)?;
    if !options.again {
        refuse_known(ctx, &digest)?;
    }
    let known: KnownTasks = tasks.iter().map(|task| (task.id, task.end)).collect();
    let waiting = settled(&tasks, &known).map_err(EngineError::Input)?;
    refuse_circle(&tasks, &waiting).map_err(EngineError::Input)?;
    drop(waiting);
    let total = tasks.len();
    let event = ctx.operator_event("imported", serde_json::json!({ "digest": digest }));
    let mut each_part = |insert: &mut dyn FnMut(Vec<TransferredTask>) -> Result<(), StoreError>| {
        each_part(&mut spooled, &known, insert)
    };
    let imported = ctx.store.import_tasks(&mut each_part, &event, &mut |count| imported(count, total));
    let imported = imported.map_err(|error| match error {
        StoreError::NotImported { index, problem } => {
            let number = tasks.get(index).map(|task| task.line).unwrap_or_default();
            EngineError::Input(format!("line {number}: {problem}"))
        }
        other => other.into(),
    })?;
    fault_point!("import.committed");
    Ok(imported)
}

/// What must be known of all tasks before the first one is inserted.
struct Summary {
    line: usize,
    id: i64,
    end: End,
    waits_for: Vec<OpenDependency>,
}

/// Whether a task of the export is finished.
#[derive(Clone, Copy)]
struct End {
    has_succeeded: bool,
    is_settled: bool,
}

/// The tasks of the export by their ids.
type KnownTasks = HashMap<i64, End>;

/// Returns true if the export contains the prerequisite and the task has to wait for it.
fn is_open(known: &KnownTasks, awaited: &OpenDependency) -> bool {
    known.get(&awaited.depends_on).is_some_and(|end| !end.has_succeeded && (awaited.needs_success || !end.is_settled))
}

fn at(number: usize, problem: impl std::fmt::Display) -> EngineError {
    EngineError::Input(format!("line {number}: {problem}"))
}

/// The tasks of an export.
struct Export {
    /// The lines with tasks, to be read again.
    spooled: SpooledLines,
    tasks: Vec<Summary>,
    /// The same for two exports with the same tasks, and for hardly any others.
    digest: String,
}

/// Refuses an export that was imported before. An export without tasks adds nothing.
fn refuse_known(ctx: &mut Context, digest: &str) -> EngineResult<()> {
    let filter = EventFilter { kinds: vec!["imported".to_owned()], ..EventFilter::default() };
    let events = ctx.store.list_events(&filter, COMPARED)?;
    let is_it = |event: &Event| {
        let details: Option<serde_json::Value> = event.details_as().ok();
        details.is_some_and(|details| details["digest"] == digest && details["tasks"] != 0)
    };
    match events.into_iter().rev().find(is_it) {
        Some(event) => Err(EngineError::ImportedBefore { on: event.occurred_on, by: event.actor }),
        None => Ok(()),
    }
}

/// Adds a line to a digest (64-bit FNV-1a). It recognizes repetitions, and protects against nothing.
fn digested(digest: u64, line: &str) -> u64 {
    line.bytes().chain([b'\n']).fold(digest, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Checks all lines, and stores those with tasks to be read again.
fn read(input: &mut dyn BufRead, allows_exec: bool) -> EngineResult<Export> {
    let not_an_export = || {
        EngineError::Input(
            "line 1: this is not an export of taskqueue, which begins with {\"taskqueue_export\":1}".to_owned(),
        )
    };
    let mut lines = BoundedLines::new(input, LONGEST_LINE_BYTES);
    let (mut spooled, mut tasks) = (SpooledLines::default(), Vec::new());
    let (mut has_begun, mut has_ended) = (false, false);
    let mut digest = 0xcbf2_9ce4_8422_2325;
    while let Some((number, line)) = lines.next_line().map_err(bad_line)? {
        if line.trim().is_empty() {
            continue;
        }
        if has_ended {
            return Err(at(number, "the file continues after the end of the export; import each export separately"));
        }
        if !has_begun {
            let first: FirstLine = serde_json::from_str(line).map_err(|_| not_an_export())?;
            if first.taskqueue_export != VERSION {
                return Err(at(
                    number,
                    format!("the export has version {}; this program reads version {VERSION}", first.taskqueue_export),
                ));
            }
            has_begun = true;
        } else if let Ok(last) = serde_json::from_str::<LastLine>(line) {
            let (here, there) = (tasks.len(), last.end_of_export);
            if here != there {
                return Err(at(number, format!("{there} tasks were exported, but the file contains {here}")));
            }
            has_ended = true;
        } else {
            tasks.push(checked(line, number, allows_exec)?);
            digest = digested(digest, line);
            spooled.push(line).map_err(|error| not_spooled(&error))?;
        }
    }
    match (has_begun, has_ended) {
        (false, _) => Err(not_an_export()),
        (true, false) => Err(EngineError::Input("the export was cut off: its last line is missing".to_owned())),
        (true, true) => Ok(Export { spooled, tasks, digest: format!("{digest:016x}") }),
    }
}

fn checked(line: &str, number: usize, allows_exec: bool) -> EngineResult<Summary> {
    if line.starts_with("{\"unreadable\":") {
        return Err(at(
            number,
            "this task could not be read when it was exported; repair it in its store and export it again, or leave it out",
        ));
    }
    let whole = parse(line).map_err(|problem| at(number, problem))?;
    whole.class().parse::<TaskClass>().map_err(|problem| at(number, problem))?;
    if whole.class() == EXEC_CLASS && !allows_exec {
        return Err(EngineError::ImportsExec { line: number, id: whole.id() });
    }
    if let Some(id) = whole.ids().find(|id| !(1..=LARGEST_ID).contains(id)) {
        return Err(at(number, format!("{id} is not an id of a task or a run: ids are 1 to {LARGEST_ID}")));
    }
    Ok(Summary {
        line: number,
        id: whole.id(),
        end: End { has_succeeded: whole.status() == TaskStatus::Success.as_str(), is_settled: whole.is_settled() },
        waits_for: whole.waits_for().collect(),
    })
}

fn parse(line: &str) -> Result<TransferredTask, String> {
    let mut whole: TransferredTask = serde_json::from_str(line).map_err(|error| json_line_problem(&error))?;
    bring_to_rest(&mut whole);
    Ok(whole)
}

fn each_part(
    spooled: &mut SpooledLines,
    known: &KnownTasks,
    insert: &mut dyn FnMut(Vec<TransferredTask>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut lines = spooled.lines().map_err(|error| StoreError::NotReadAgain(error.to_string()))?;
    let (mut part, mut bytes) = (Vec::new(), 0);
    while let Some((_, line)) = lines.next_line().map_err(|bad| StoreError::NotReadAgain(bad.problem))? {
        bytes += line.len();
        let mut whole = parse(line).map_err(StoreError::NotReadAgain)?;
        for awaited in whole.waits_for().collect::<Vec<_>>() {
            if !is_open(known, &awaited) {
                whole.satisfy(awaited.depends_on);
            }
        }
        whole.count_prerequisites();
        part.push(whole);
        if part.len() >= PART || bytes > PART_BYTES {
            insert(std::mem::take(&mut part))?;
            bytes = 0;
        }
    }
    if part.is_empty() { Ok(()) } else { insert(part) }
}

/// Returns the tasks for which each task still waits. Satisfied dependencies do not count, even if a dependent task was exported
/// before that. A finished task may wait for one that is not in the export; any other task would then wait forever,
/// which is an error.
fn settled(tasks: &[Summary], known: &KnownTasks) -> Result<Vec<Vec<i64>>, String> {
    let mut waiting = Vec::with_capacity(tasks.len());
    for task in tasks {
        if let Some(awaited) = task.waits_for.iter().find(|awaited| !known.contains_key(&awaited.depends_on))
            && !task.end.is_settled
        {
            return Err(format!(
                "task {} waits for task {}, which is not in the export; `export --prerequisites` adds it",
                task.id, awaited.depends_on
            ));
        }
        let open = task.waits_for.iter().filter(|awaited| is_open(known, awaited));
        waiting.push(open.map(|awaited| awaited.depends_on).collect());
    }
    Ok(waiting)
}

/// Refuses circular dependencies, which rows written by SQL can have.
fn refuse_circle(tasks: &[Summary], waiting: &[Vec<i64>]) -> Result<(), String> {
    let place_of: HashMap<i64, usize> = tasks.iter().enumerate().map(|(place, task)| (task.id, place)).collect();
    let places = |awaited: &Vec<i64>| awaited.iter().filter_map(|id| place_of.get(id).copied()).collect();
    let Some(circle) = find_circle(&waiting.iter().map(places).collect::<Vec<_>>()) else { return Ok(()) };
    let circle: Vec<TaskId> = circle.iter().map(|place| TaskId(tasks[*place].id)).collect();
    Err(format!("these tasks would wait for each other forever: {}", id_circle_words(&circle)))
}

/// Resets open runs, because no process here executes them: waiting runs are created anew, and runs in progress are released.
fn bring_to_rest(whole: &mut TransferredTask) {
    whole.end_open_runs("imported while it was processed");
    if whole.status() == TaskStatus::Processing.as_str() {
        let before = whole.run_statuses().flatten().find_map(status_before);
        whole.set_status(before.unwrap_or(TaskStatus::Scheduled));
    }
}
