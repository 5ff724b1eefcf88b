//! What all runs of one runner have in common, for every thread that executes some. Knows no database.

use std::sync::Arc;
use std::time::Duration;

use super::handlers::Handlers;
use super::lease::{Holding, Leases};
use super::outcomes::prepared;
use super::stopping::Stopping;
use super::{Context, EngineResult, Me};
use crate::domain::class_set::ClassSet;
use crate::domain::ids::RunnerId;
use crate::domain::records::ClaimedRun;
use crate::domain::settings::Settings;
use crate::domain::task_class::TaskClass;
use crate::machine::clock::Moment;
use crate::machine::spool::Spool;
use crate::process::command_requests::CommandRequests;
use crate::store::{Claim, Crash, RunEnd, RunRef};

/// Beyond timeout and grace, before a runner that should have ended a handler is taken for unable to.
const SILENCE_MARGIN: Duration = Duration::from_secs(30);

/// What a run is executed by, from its claim to its end. Whoever reads the configuration or the settings anew has a new policy for
/// the runs that it claims from then on.
pub(super) struct RunPolicy {
    pub(super) handlers: Arc<Handlers>,
    pub(super) settings: Settings,
}

impl RunPolicy {
    pub(super) fn new(ctx: &Context, settings: Settings) -> Arc<Self> {
        Arc::new(Self { handlers: Arc::clone(&ctx.handlers), settings })
    }

    /// How long this run may last.
    pub(super) fn limits_of(&self, run: &ClaimedRun) -> RunLimits {
        RunLimits {
            timeout_secs: self.handlers.timeout_secs(Some(&run.class), run.task_timeout_secs, &self.settings),
            kill_grace: self.handlers.kill_grace(Some(&run.class)),
        }
    }

    /// A crash of a run of this class, noted by this process.
    pub(super) fn crash(&self, me: &Me, class: &TaskClass) -> Crash {
        crash_noted_by(me, &self.handlers, Some(class), &self.settings)
    }
}

/// How long a run may last, by its task, its class or the settings.
#[derive(Clone, Copy)]
pub(super) struct RunLimits {
    /// How long its handler may be silent.
    pub(super) timeout_secs: i64,
    /// How long its handler may go on once it is asked to end.
    pub(super) kill_grace: Duration,
}

impl RunLimits {
    /// How long its handler can be silent while its runner does what it should.
    fn silence(self) -> Duration {
        let timeout = Duration::from_secs(u64::try_from(self.timeout_secs).unwrap_or(0));
        timeout.saturating_add(self.kill_grace).saturating_add(SILENCE_MARGIN)
    }
}

/// Shared by the slots of a runner.
pub(super) struct RunnerContext {
    /// This process.
    pub(super) me: Me,
    /// By which others recognise it.
    pub(super) identity: &'static str,
    /// The row of this runner.
    pub(super) runner_id: RunnerId,
    /// Holds the runs.
    pub(super) leases: Leases,
    /// Whether it was told to stop.
    pub(super) stopping: Stopping,
    /// The address of the store, without its password.
    pub(super) database: String,
    /// Where outcomes wait for the database.
    pub(super) spool: Option<Spool>,
    /// What executes the commands that handlers ask for.
    pub(super) requests: Option<Arc<CommandRequests>>,
}

impl RunnerContext {
    pub(super) fn new(
        ctx: &Context,
        runner_id: RunnerId,
        leases: &Leases,
        stopping: Stopping,
    ) -> EngineResult<Arc<Self>> {
        Ok(Arc::new(Self {
            me: ctx.me.clone(),
            identity: ctx.me.identity()?,
            runner_id,
            leases: leases.clone(),
            stopping,
            database: ctx.store.url().to_string(),
            spool: ctx.spool.clone(),
            requests: ctx.requests.clone(),
        }))
    }

    /// A claim by this runner of runs of these classes.
    pub(super) fn claim<'b>(&'b self, policy: &RunPolicy, classes: ClassSet<'b>) -> Claim<'b> {
        Claim {
            runner_id: self.runner_id,
            runner_name: &self.me.runner_name,
            process_id: self.me.process_id,
            host: &self.me.host,
            process_identity: self.identity,
            classes,
            lease_secs: policy.settings.lease.lease_secs,
        }
    }

    /// Keeps the leases of these runs, which were claimed by a call made at `asked_at`.
    pub(super) fn hold(&self, policy: &RunPolicy, asked_at: Moment, runs: &[ClaimedRun]) {
        let holdings = runs.iter().map(|run| Holding {
            run: RunRef { id: run.run_id, token: run.token.clone() },
            class: &run.class,
            silence: policy.limits_of(run).silence(),
        });
        self.leases.hold(asked_at, holdings);
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
