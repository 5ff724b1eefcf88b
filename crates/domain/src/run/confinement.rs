//! What a handler may do and use: whose rights it has, its limits. Plain values; the crate `process` applies them.

/// What a class says about the rights of its handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// The login name it runs as; `None` is whoever the runner is.
    pub user: Option<String>,
    /// What it may use at most.
    pub limits: Limits,
    /// The mode bits that its new files do not get.
    pub umask: u32,
    /// Whether neither it nor what it starts can gain rights by executing a program (sudo, setuid, capabilities).
    pub no_new_privileges: bool,
}

/// The umask of a class that names none: what a handler writes is nobody else's business.
pub const DEFAULT_UMASK: u32 = 0o077;

impl Default for Confinement {
    fn default() -> Self {
        Self { user: None, limits: Limits::default(), umask: DEFAULT_UMASK, no_new_privileges: true }
    }
}

/// What each process of a handler may use at most; `None` leaves what the runner itself is limited to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Processor time of one process.
    pub cpu_secs: Option<u64>,
    /// Address space of one process.
    pub memory_bytes: Option<u64>,
    /// Descriptors of one process.
    pub open_files: Option<u64>,
    /// Processes and threads of the user, all its handlers and everything else together.
    pub processes: Option<u64>,
    /// The size of a file that it writes.
    pub file_size_bytes: Option<u64>,
}
