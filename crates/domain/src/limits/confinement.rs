//! What a handler may do and use: its user and its limits. Plain values; the crate `process` applies them.

/// The rights and limits that a class gives its handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// The login name it runs as; `None` runs it as the user of the runner.
    pub user: Option<String>,
    /// Its resource limits.
    pub limits: Limits,
    /// The mode bits that are removed from new files.
    pub umask: u32,
    /// Whether it and its children are prevented from gaining rights by executing a program (sudo, setuid, capabilities).
    pub no_new_privileges: bool,
}

/// The umask of a class that sets none: other users cannot read what a handler writes.
pub const DEFAULT_UMASK: u32 = 0o077;

impl Default for Confinement {
    fn default() -> Self {
        Self { user: None, limits: Limits::default(), umask: DEFAULT_UMASK, no_new_privileges: true }
    }
}

/// Resource limits of each process of a handler; `None` keeps the limit of the runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Processor time of one process.
    pub cpu_secs: Option<u64>,
    /// Address space of one process.
    pub memory_bytes: Option<u64>,
    /// Descriptors of one process.
    pub open_files: Option<u64>,
    /// Processes and threads of the user, counting everything that the user runs.
    pub processes: Option<u64>,
    /// The size of a file it writes.
    pub file_size_bytes: Option<u64>,
}
