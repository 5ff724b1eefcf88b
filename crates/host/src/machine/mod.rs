//! This host, its users and this process.

pub mod account;
pub mod closed_output;
pub mod descriptors;
pub mod host;
pub mod journal;
pub mod own_memory;
pub mod proc_files;
pub mod thread_names;
