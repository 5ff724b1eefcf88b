//! `exists` of a class: a program that checks whether a class name that matches a pattern exists. `queue` runs it, so that a
//! typing error is found before every attempt fails.

use std::time::Duration;

use crate::announcing::outside_program::ProgramCall;
use crate::config::ClassConfig;
use crate::error::{EngineError, EngineResult};
use crate::handler::handlers::Handlers;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_host::machine::account::is_root;
use taskqueue_host::recent::Recent;

/// The timeout of the program; `queue` waits for it.
const LIMIT_SECS: i64 = 10;
/// Caches classes that exist for a minute, because a batch has many tasks of one class.
static EXISTING: Recent<(Vec<String>, TaskClass), ()> = Recent::within(Duration::from_secs(60));

/// Returns an error if the program of `exists` reports that there is no such class, or fails.
pub(crate) fn check_exists(handlers: &Handlers, configured: &ClassConfig, class: &TaskClass) -> EngineResult<()> {
    let Some(argv) = &configured.exists else { return Ok(()) };
    EXISTING.answer((argv.clone(), class.clone()), |_| {
        let mut command = handlers.command_of(configured).map_err(EngineError::Input)?.clone();
        command.argv.clone_from(argv);
        if !is_root() {
            // Only root can become another user; other users run the check with their own rights.
            command.confinement.user = None;
        }
        let call = ProgramCall {
            class: class.clone(),
            task_id: TaskId(0),
            run_id: RunId(0),
            input: "",
            limit_secs: LIMIT_SECS,
        };
        match call.run(&command)? {
            None => Ok(()),
            Some(why) => Err(EngineError::Input(format!("the class {class} does not exist: {why}"))),
        }
    })
}
