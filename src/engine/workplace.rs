//! What all runs of one runner have in common, for every thread that executes some. Knows no database.

use std::sync::Arc;

use super::handlers::Handlers;
use super::lease::LeaseKeeper;
use super::outcomes::prepared;
use super::stopping::Stopping;
use super::{Context, EngineResult, Me};
use crate::domain::records::ClaimedRun;
use crate::domain::settings::Settings;
use crate::domain::task_class::TaskClass;
use crate::os::command_requests::CommandRequests;
use crate::os::spool::Spool;
use crate::store::{Crash, RunEnd};

/// What a run is executed by, from its claim to its end. Whoever reads the configuration or the settings anew has new terms for
/// the runs that it claims from then on.
pub(super) struct Terms {
    pub(super) handlers: Arc<Handlers>,
    pub(super) settings: Settings,
}

impl Terms {
    pub(super) fn new(ctx: &Context, settings: Settings) -> Arc<Self> {
        Arc::new(Self { handlers: Arc::clone(&ctx.handlers), settings })
    }

    /// A crash of a run of this class, noted by this process.
    pub(super) fn crash(&self, me: &Me, class: &TaskClass) -> Crash {
        crash_noted_by(me, &self.handlers, Some(class), &self.settings)
    }
}

/// Shared by the slots of a runner.
pub(super) struct Workplace<'a> {
    /// This process.
    pub(super) me: Me,
    /// By which others recognise it.
    pub(super) identity: &'static str,
    /// Holds the runs.
    pub(super) leases: &'a LeaseKeeper,
    /// Whether it was told to stop.
    pub(super) stopping: &'a Stopping<'a>,
    /// The address of the store, without its password.
    pub(super) database: String,
    /// Where outcomes wait for the database.
    pub(super) spool: Option<Spool>,
    /// What executes the commands that handlers ask for.
    pub(super) requests: Option<Arc<CommandRequests>>,
}

impl<'a> Workplace<'a> {
    pub(super) fn new(ctx: &Context, leases: &'a LeaseKeeper, stopping: &'a Stopping<'a>) -> EngineResult<Self> {
        Ok(Self {
            me: ctx.me.clone(),
            identity: ctx.me.identity()?,
            leases,
            stopping,
            database: ctx.store.url().to_string(),
            spool: ctx.spool.clone(),
            requests: ctx.requests.clone(),
        })
    }

    /// Puts this end on the disk, for the next process of this host to send, when it is called.
    pub(super) fn prepared(&self, run: &ClaimedRun, end: RunEnd) -> impl Fn() + Send + use<> {
        prepared(self.spool.as_ref(), &self.database, run, end)
    }
}

/// A crash of a run of this class, noted by this process.
pub(super) fn crash_noted_by(me: &Me, handlers: &Handlers, class: Option<&TaskClass>, settings: &Settings) -> Crash {
    Crash { limit: handlers.crash_limit(class, settings), actor: me.user.clone(), host: me.host.clone() }
}
