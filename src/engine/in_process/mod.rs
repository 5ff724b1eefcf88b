//! Handlers in Rust: they run on threads of this process, beside the slot that watches them, so that the slot can give up on one
//! that does not end.

mod desk;
mod thread;

pub(super) use self::desk::{Desk, Turn};
pub(super) use self::thread::HandlerThread;
