//! What all runs of one runner have in common, for every thread that executes some. Knows no database.

use std::sync::Arc;

use super::handlers::Handlers;
use super::lease::LeaseKeeper;
use super::outcomes::prepared;
use super::stopping::Stopping;
use super::{Context, Me};
use crate::domain::records::ClaimedRun;
use crate::domain::settings::Settings;
use crate::os::spool::Spool;
use crate::store::{Crash, RunEnd};

/// Shared by the slots of a runner.
pub(super) struct Workplace<'a> {
    pub(super) handlers: Arc<Handlers>,
    /// This process.
    pub(super) me: Me,
    /// The settings as they stood when it began.
    pub(super) settings: &'a Settings,
    /// Holds the runs.
    pub(super) leases: &'a LeaseKeeper,
    /// Whether it was told to stop.
    pub(super) stopping: &'a Stopping<'a>,
    /// The address of the store, without its password.
    pub(super) database: String,
    /// Where outcomes wait for the database.
    pub(super) spool: Option<Spool>,
}

impl<'a> Workplace<'a> {
    pub(super) fn new(
        ctx: &Context,
        settings: &'a Settings,
        leases: &'a LeaseKeeper,
        stopping: &'a Stopping<'a>,
    ) -> Self {
        Self {
            handlers: Arc::clone(&ctx.handlers),
            me: ctx.me.clone(),
            settings,
            leases,
            stopping,
            database: ctx.store.url().to_string(),
            spool: ctx.spool.clone(),
        }
    }

    /// Puts this end on the disk, for the next process of this host to send, when it is called.
    pub(super) fn prepared(&self, run: &ClaimedRun, end: RunEnd) -> impl Fn() + Send + use<> {
        prepared(self.spool.as_ref(), &self.database, run, end)
    }

    /// A crash of a run of this class, noted by this process.
    pub(super) fn crash(&self, class: &str) -> Crash {
        crash_noted_by(&self.me, &self.handlers, class, self.settings)
    }
}

/// A crash of a run of this class, noted by this process.
pub(super) fn crash_noted_by(me: &Me, handlers: &Handlers, class: &str, settings: &Settings) -> Crash {
    Crash { limit: handlers.crash_limit(class, settings), actor: me.user.clone(), host: me.host.clone() }
}
