//! `progress` and `result`: what a handler reports to the runner that started it.

use crate::error::{EngineError, EngineResult};
use taskqueue_domain::text::json::on_one_line;
use taskqueue_process::children::event_socket::send_event;

/// Sends one event, which is JSON text, to the runner's socket. Both socket and run token are in the handler's environment.
///
/// # Errors
/// Returns an error if the runner cannot be reached.
pub fn send(socket: &str, token: &str, event: &str) -> EngineResult<()> {
    fault_point!("report.before_send");
    send_event(socket, token, on_one_line(event).as_bytes())
        .map_err(|source| EngineError::Os { what: "the runner cannot be reached", source })?;
    fault_point!("report.sent");
    Ok(())
}
