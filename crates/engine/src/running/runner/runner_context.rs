//! What all runs of one runner share, for every thread that executes runs. Does not use the database.

use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;
use crate::error::EngineResult;
use crate::handler::handlers::Handlers;
use crate::me::Me;
use crate::outbox::outcomes::prepared;
use crate::running::runner::lease::{Holding, Leases};
use crate::running::runner::stopping::Stopping;
use taskqueue_domain::settings::Settings;
use taskqueue_domain::task::choosing::class_set::ClassSet;
use taskqueue_domain::task::ids::RunnerId;
use taskqueue_domain::task::records::ClaimedRun;
use taskqueue_host::clock::Moment;
use taskqueue_host::files::spool::Spool;
use taskqueue_process::children::command_requests::CommandRequests;
use taskqueue_store::{Claim, RunEnd, RunRef};

/// After timeout and grace, how long to wait before a runner counts as unable to end its handler.
const SILENCE_MARGIN: Duration = Duration::from_secs(30);

/// The policy for executing a run, from its claim to its end. After a reload, later runs get a new policy.
pub(crate) struct RunPolicy {
    pub(crate) handlers: Arc<Handlers>,
    pub(crate) settings: Settings,
}

impl RunPolicy {
    pub(crate) fn new(ctx: &Context, settings: Settings) -> Arc<Self> {
        Arc::new(Self { handlers: Arc::clone(&ctx.handlers), settings })
    }

    /// Returns how long this run may last.
    pub(crate) fn limits_of(&self, run: &ClaimedRun) -> RunLimits {
        RunLimits {
            timeout_secs: self.handlers.timeout_secs(Some(&run.class), run.task_timeout_secs, &self.settings),
            kill_grace: self.handlers.kill_grace(Some(&run.class)),
        }
    }
}

/// How long a run may last, by its task, its class or the settings.
#[derive(Clone, Copy)]
pub(crate) struct RunLimits {
    /// How long its handler may be silent.
    pub(crate) timeout_secs: i64,
    /// How long its handler may continue after it was asked to end.
    pub(crate) kill_grace: Duration,
}

impl RunLimits {
    /// Returns the longest silence of a handler whose runner works correctly.
    fn silence(self) -> Duration {
        let timeout = Duration::from_secs(u64::try_from(self.timeout_secs).unwrap_or(0));
        timeout.saturating_add(self.kill_grace).saturating_add(SILENCE_MARGIN)
    }
}

/// Shared by all slots of a runner.
pub(crate) struct RunnerContext {
    /// This process.
    pub(crate) me: Me,
    /// The identity by which others recognise this process.
    pub(crate) identity: &'static str,
    /// The row of this runner.
    pub(crate) runner_id: RunnerId,
    /// The leases of the runs.
    pub(crate) leases: Arc<Leases>,
    /// Whether it was asked to stop.
    pub(crate) stopping: Stopping,
    /// The address of the store, without its password.
    pub(crate) database: String,
    /// Where outcomes are kept until the database has them.
    pub(crate) spool: Option<Spool>,
    /// Executes the commands that handlers request.
    pub(crate) requests: Option<Arc<CommandRequests>>,
}

impl RunnerContext {
    pub(crate) fn new(
        ctx: &Context,
        runner_id: RunnerId,
        leases: &Arc<Leases>,
        stopping: Stopping,
    ) -> EngineResult<Arc<Self>> {
        Ok(Arc::new(Self {
            me: ctx.me.clone(),
            identity: ctx.me.identity()?,
            runner_id,
            leases: Arc::clone(leases),
            stopping,
            database: ctx.store.url().identity().to_owned(),
            spool: ctx.spool.clone(),
            requests: ctx.requests.clone(),
        }))
    }

    /// Returns a claim by this runner of runs of these classes.
    pub(crate) fn claim<'b>(&'b self, policy: &RunPolicy, classes: ClassSet<'b>) -> Claim<'b> {
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
    pub(crate) fn hold(&self, policy: &RunPolicy, asked_at: Moment, runs: &[ClaimedRun]) {
        let holdings = runs.iter().map(|run| Holding {
            run: RunRef { id: run.run_id, token: run.token.clone() },
            class: &run.class,
            silence: policy.limits_of(run).silence(),
        });
        self.leases.hold(asked_at, holdings);
    }

    /// Returns a function that writes this end to the spool, for the next process on this host to send.
    pub(crate) fn prepared(&self, run: &ClaimedRun, end: RunEnd) -> impl Fn() + Send + use<> {
        prepared(self.spool.as_ref(), &self.database, run, end)
    }
}
