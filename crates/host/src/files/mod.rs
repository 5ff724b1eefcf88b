//! Files: permissions, locks, watches, and files that survive a crash.

pub mod append_file;
pub mod disk;
pub mod file_checks;
pub mod file_watch;
pub mod lines;
pub mod lock;
pub mod lock_holders;
pub mod replace_file;
pub mod scripts;
pub mod spool;
pub mod spooled_lines;
pub mod trusted_path;
