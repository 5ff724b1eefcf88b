//! Rust handlers: each runs in one thread, and another thread watches it and gives up on it if it does not end.

mod desk;
mod thread;

pub(crate) use self::desk::{Desk, HandlerUpdate, run_at};
pub(crate) use self::thread::HandlerThread;
