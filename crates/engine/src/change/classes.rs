//! `classes`: what can be executed here, what is wrong with it, and what is held.

use std::path::Path;

use serde::Serialize;

use crate::config::Protocol;
use crate::{Context, EngineResult};
use taskqueue_domain::task::task_class::EXEC_CLASS;
use taskqueue_host::files::file_checks::check_program;
use taskqueue_store::ClassHold;

/// Classes of tasks that are looked up in the store at the most.
const TASK_CLASSES: usize = 1_000;

/// A class as `classes` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct ClassState {
    /// Name, or pattern.
    pub name: String,
    /// `command`, `coprocess`, `rust`, `built-in`, or `none` for a class that has tasks and no handler here.
    pub kind: &'static str,
    /// Program and arguments of a configured class.
    pub argv: Vec<String>,
    /// Seconds; `None` takes the system-wide one.
    pub timeout_secs: Option<u64>,
    /// Why it cannot be executed.
    pub problem: Option<String>,
    /// Where and why it is held.
    pub holds: Vec<ClassHold>,
}

/// Every class that is configured, built in, or has tasks.
///
/// # Errors
/// The database's.
pub fn list(ctx: &mut Context) -> EngineResult<Vec<ClassState>> {
    let holds = ctx.store.list_class_holds()?;
    let mut classes: Vec<ClassState> = ctx
        .handlers
        .configured()
        .by_name()
        .into_iter()
        .map(|class| ClassState {
            name: class.name.clone(),
            kind: match class.protocol {
                Protocol::OneShot => "command",
                Protocol::Coprocess(_) => "coprocess",
            },
            argv: class.argv.clone(),
            timeout_secs: class.timeout.map(|timeout| timeout.as_secs()),
            problem: ctx.handlers.problem_of(class),
            holds: Vec::new(),
        })
        .collect();
    classes.extend(ctx.handlers.rust_names().map(|name| other(name, "rust", None)));
    if ctx.handlers.is_exec_enabled() {
        classes.push(other(EXEC_CLASS, "built-in", ctx.handlers.problem_of_exec()));
    }
    for name in ctx.store.list_task_classes(TASK_CLASSES)? {
        if ctx.handlers.find_named(&name).is_none() {
            classes.push(other(&name, "none", Some("it has tasks, and no handler is configured here".to_owned())));
        }
    }
    for hold in holds {
        match classes.iter_mut().find(|class| class.name == hold.class) {
            Some(class) => class.holds.push(hold),
            // A class that only a pattern knows has no line of its own yet.
            None => classes.push(ClassState { holds: vec![hold.clone()], ..other(&hold.class, "command", None) }),
        }
    }
    Ok(classes)
}

/// Why no class could be handled by this program, if so, whoever its handlers are to run as.
#[must_use]
pub fn problem_of_program(program: &Path) -> Option<String> {
    check_program(program, false).err().map(|problem| problem.to_string())
}

/// The known names nearest to a class that has no handler here and no tasks; `None` for one that is known, or a pattern.
///
/// # Errors
/// The database's.
pub fn nearest_if_unknown(ctx: &mut Context, class: &str) -> EngineResult<Option<Vec<String>>> {
    if class.contains(['*', '?']) || ctx.handlers.find_named(class).is_some() {
        return Ok(None);
    }
    let with_tasks = ctx.store.list_task_classes(TASK_CLASSES)?;
    // Of more classes than are looked up nobody can say that one is missing.
    let is_unknown = with_tasks.len() < TASK_CLASSES && !with_tasks.iter().any(|name| name == class);
    Ok(is_unknown.then(|| ctx.handlers.nearest_names(class)))
}

fn other(name: &str, kind: &'static str, problem: Option<String>) -> ClassState {
    ClassState { name: name.to_owned(), kind, argv: Vec::new(), timeout_secs: None, problem, holds: Vec::new() }
}

/// Ends the holds of a class. Returns how many there were.
///
/// # Errors
/// The database's.
pub fn release(ctx: &mut Context, class: &str) -> EngineResult<usize> {
    let event = ctx.operator_event("class-released", serde_json::json!({ "class": class }));
    let released = ctx.store.release_class(class, &event)?;
    fault_point!("classes.released");
    Ok(released)
}
