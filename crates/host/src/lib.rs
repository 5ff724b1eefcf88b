//! What the machine answers: clocks, files, locks, sockets, random numbers. Starts no process and knows no task.

#[macro_use]
mod fault_point;

pub mod account;
pub mod clock;
pub mod closed_output;
pub mod descriptors;
pub mod direct;
pub mod disk;
#[cfg(feature = "fault-points")]
pub mod fault;
pub mod file_checks;
pub mod file_watch;
pub mod heap;
pub mod host;
pub mod http;
pub mod journal;
pub mod lines;
pub mod listener;
pub mod lock;
pub mod lock_holders;
pub mod patience;
pub mod proc_files;
pub mod random;
pub mod recent;
pub mod replace_file;
pub mod sockets;
pub mod spool;
pub mod spooled_lines;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod thread_names;
pub mod trusted_path;
pub mod waker;
