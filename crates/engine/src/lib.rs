//! The use cases, one file each. They make the decisions, the store checks the transitions, and `handler` runs the handlers.
//! This crate is independent of the command line, and prints nothing.

#[macro_use]
extern crate taskqueue_host;

mod announcing;
pub mod change;
pub mod claiming;
pub mod config;
mod context;
mod end_statements;
mod error;
pub mod handler;
pub mod inspect;
mod me;
pub mod outbox;
pub mod queueing;
pub mod running;
pub mod upkeep;
pub mod work;

pub use self::context::{Context, FailurePrinter, others_can_queue};
pub use self::end_statements::{announce_slow_answer, end_statements_on};
pub use self::error::{EngineError, EngineResult, NotRecorded};
pub use self::me::Me;
pub use crate::handler::handlers::{ClassesInUse, Handlers};
pub use taskqueue_host::files::file_checks::create_private_dir;
pub use taskqueue_host::files::replace_file::replace_file;
pub use taskqueue_host::machine::closed_output::{output_has_no_reader, output_was_closed};
pub use taskqueue_host::machine::host::user_name as own_user_name;
pub use taskqueue_host::machine::journal::Journal;
pub use taskqueue_process::children::child::{Stream, prepare_process};
pub use taskqueue_process::identities::cgroup::{enter_own_group, why_no_own_group};
pub use taskqueue_process::signals::reload_signal::ReloadSignal;
pub use taskqueue_process::signals::stop_signals::{StopHandle, StopSignals};
pub use taskqueue_process::signals::supervisor::Supervisor;
pub use taskqueue_process::signals::suspend::Suspension;
pub use taskqueue_process::spawning::hiding::hide_process;
/// Calls a program of the operating system.
pub use taskqueue_process::tools::{ToolAnswer, call_tool};
#[cfg(feature = "sqlite")]
pub use taskqueue_store::keep_sqlite_logs;
pub use taskqueue_store::{
    ConnectFailure, ConnectWait, DatabaseError, DatabaseUrl, Engine, Pooler, StoreError, host_without_tls,
    print_notices_with,
};
