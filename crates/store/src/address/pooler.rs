//! What is known of a pooler between this program and PostgreSQL, by the address.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Whether the sessions of the server are shared with other clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooler {
    /// The address declares no pooler, and none was found.
    NotFound,
    /// A connection was found that does not end at the server.
    Found,
    /// The address declares that there is no pooler: `pooler=none`.
    None,
    /// The address declares a pooler that keeps a session for each client: `pooler=session`.
    Session,
    /// The address declares a pooler that shares sessions between transactions: `pooler=transaction`.
    Transaction,
}

impl Pooler {
    const ALL: [Self; 5] = [Self::NotFound, Self::Found, Self::None, Self::Session, Self::Transaction];

    /// Returns true if two transactions of a connection may run in different sessions.
    #[must_use]
    pub const fn shares_sessions(self) -> bool {
        matches!(self, Self::Found | Self::Transaction)
    }

    /// Returns the word used in JSON and in addresses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::Found => "found",
            Self::None => "none",
            Self::Session => "session",
            Self::Transaction => "transaction",
        }
    }
}

/// What is known about a pooler at one address, shared by all connections to it.
#[derive(Clone, Debug)]
pub(crate) struct KnownPooler(Arc<PoolerState>);

#[derive(Debug)]
struct PoolerState {
    pooler: AtomicU8,
    /// Whether a second connection has shown that there is no pooler, although the server sees another socket because of address
    /// translation.
    is_direct: AtomicBool,
}

impl KnownPooler {
    /// Returns what the address declares.
    pub(crate) fn declared(option: Option<&str>) -> Self {
        let pooler = match option {
            Some("none") => Pooler::None,
            Some("session") => Pooler::Session,
            Some("transaction") => Pooler::Transaction,
            _ => Pooler::NotFound,
        };
        Self(Arc::new(PoolerState { pooler: AtomicU8::new(pooler as u8), is_direct: AtomicBool::new(false) }))
    }

    pub(crate) fn pooler(&self) -> Pooler {
        Pooler::ALL.get(usize::from(self.0.pooler.load(Ordering::Relaxed))).copied().unwrap_or(Pooler::NotFound)
    }

    pub(crate) fn is_to_be_found(&self) -> bool {
        self.pooler() == Pooler::NotFound && !self.0.is_direct.load(Ordering::Relaxed)
    }

    pub(crate) fn note(&self, is_pooled: bool) {
        if is_pooled {
            self.0.pooler.store(Pooler::Found as u8, Ordering::Relaxed);
        } else {
            self.0.is_direct.store(true, Ordering::Relaxed);
        }
    }
}

/// Addresses are equal regardless of what was found behind them.
impl PartialEq for KnownPooler {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for KnownPooler {}
