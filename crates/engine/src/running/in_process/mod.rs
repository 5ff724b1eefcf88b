//! Handlers in Rust: each runs on a thread of this process, and another one watches it, so that a run whose handler does not end is
//! given up on.

mod desk;
mod thread;

pub(crate) use self::desk::{Desk, HandlerUpdate, run_at};
pub(crate) use self::thread::HandlerThread;
