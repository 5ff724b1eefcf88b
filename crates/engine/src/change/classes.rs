//! `class`: which classes this host can execute, their problems, and their holds.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::config::Protocol;
use crate::context::Context;
use crate::error::EngineResult;
use taskqueue_domain::task::task_class::EXEC_CLASS;
use taskqueue_host::files::file_checks::check_program;
use taskqueue_host::files::scripts::missing_script;
use taskqueue_store::ClassHold;

/// The largest number of task classes read from the store.
const TASK_CLASSES: usize = 1_000;

/// A class as `class` shows it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClassState {
    /// Name, or pattern.
    pub name: String,
    /// `command`, `coprocess`, `rust`, `built-in`, or `none` for a class that has tasks and no handler here.
    pub kind: &'static str,
    /// The command line of a configured class.
    pub argv: Vec<String>,
    /// In seconds; `None` uses the system-wide setting.
    pub timeout_secs: Option<u64>,
    /// Why it cannot be executed.
    pub problem: Option<String>,
    /// The script that it passes to an interpreter, if that does not exist on this host. The class can be executed, but its runs
    /// probably fail.
    pub missing_script: Option<PathBuf>,
    /// Where it is held, and why.
    pub holds: Vec<ClassHold>,
}

/// Returns every class that is configured, built in, or has tasks.
///
/// # Errors
/// Returns an error if the database fails.
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
            argv: class.command.argv.clone(),
            timeout_secs: class.timeout.map(|timeout| timeout.as_secs()),
            problem: ctx.handlers.problem_of(class),
            missing_script: missing_script(&class.command.argv),
            holds: Vec::new(),
        })
        .collect();
    classes.extend(ctx.handlers.rust_names().map(|name| other(name, "rust", None)));
    if ctx.handlers.is_exec_enabled() {
        classes.push(other(EXEC_CLASS, "built-in", ctx.handlers.problem_of_exec()));
    }
    for name in ctx.store.list_task_classes("", TASK_CLASSES)? {
        if ctx.handlers.find_named(&name).is_none() {
            classes.push(other(
                &name,
                "none",
                Some("it has tasks, but no handler is configured on this host".to_owned()),
            ));
        }
    }
    for hold in holds {
        match classes.iter_mut().find(|class| class.name == hold.class) {
            Some(class) => class.holds.push(hold),
            // A class that only a pattern matches has no line yet.
            None => classes.push(ClassState { holds: vec![hold.clone()], ..other(&hold.class, "command", None) }),
        }
    }
    Ok(classes)
}

/// Returns why this program could handle no class, if so, whatever user its handlers run as.
#[must_use]
pub fn problem_of_program(program: &Path) -> Option<String> {
    check_program(program, false).err().map(|problem| problem.to_string())
}

/// Returns the known names most similar to a class without a handler here and without tasks; `None` for a known class or a
/// pattern.
///
/// # Errors
/// Returns an error if the database fails.
pub fn nearest_if_unknown(ctx: &mut Context, class: &str) -> EngineResult<Option<Vec<String>>> {
    if class.contains(['*', '?']) || ctx.handlers.find_named(class).is_some() {
        return Ok(None);
    }
    let with_tasks = ctx.store.list_task_classes("", TASK_CLASSES)?;
    // If there are more classes than were read, it is unknown whether one is missing.
    let is_unknown = with_tasks.len() < TASK_CLASSES && !with_tasks.iter().any(|name| name == class);
    Ok(is_unknown.then(|| ctx.handlers.nearest_names(class)))
}

fn other(name: &str, kind: &'static str, problem: Option<String>) -> ClassState {
    ClassState { name: name.to_owned(), kind, problem, ..ClassState::default() }
}

/// Ends the holds of a class. Returns how many it had.
///
/// # Errors
/// Returns an error if the database fails.
pub fn release(ctx: &mut Context, class: &str) -> EngineResult<usize> {
    let event = ctx.operator_event("class-released", serde_json::json!({ "class": class }));
    let released = ctx.store.release_class(class, &event)?;
    fault_point!("classes.released");
    Ok(released)
}
