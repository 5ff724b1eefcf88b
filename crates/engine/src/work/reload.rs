//! What a worker reads again while it runs: its configuration after a signal, and the settings of the store from time to time.
//! Started runs keep their policy.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::listener::WorkListener;
use super::options::{Reconfiguration, WorkOptions};
use crate::context::Context;
use crate::error::EngineResult;
use crate::handler::handlers::Handlers;
use crate::running::runner::runner_context::RunPolicy;
use taskqueue_domain::settings::Settings;
use taskqueue_host::clock::Moment;

/// The pause between two reads of the settings of the store.
const SETTINGS_EVERY: Duration = Duration::from_secs(10);

/// Applies a new configuration, if there is one. Returns whether there was.
pub(super) fn reconfigure(ctx: &mut Context, options: &mut WorkOptions, listener: &mut dyn WorkListener) -> bool {
    let Some(Reconfiguration { classes, announcements, stop_wait }) = listener.reconfiguration() else {
        return false;
    };
    ctx.use_classes(classes);
    ctx.announcements = announcements;
    options.stop_wait = stop_wait;
    listener.reconfigured();
    true
}

/// The policy for newly claimed runs.
pub(super) struct CurrentPolicy {
    pub(super) policy: Arc<RunPolicy>,
    settings_at: Moment,
    /// Earlier policies that runs may still use.
    former: Vec<Weak<RunPolicy>>,
}

impl CurrentPolicy {
    pub(super) fn new(policy: Arc<RunPolicy>) -> Self {
        Self { policy, settings_at: Moment::after(SETTINGS_EVERY), former: Vec::new() }
    }

    pub(super) fn handlers(&self) -> &Handlers {
        &self.policy.handlers
    }

    /// Uses new handlers, and reads the settings soon.
    pub(super) fn take_handlers(&mut self, ctx: &Context) {
        self.settings_at = Moment::now();
        self.take(RunPolicy::new(ctx, self.policy.settings.clone()));
    }

    /// Reads the settings from time to time. Returns whether they have changed.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub(super) fn read_settings(&mut self, ctx: &mut Context) -> EngineResult<bool> {
        if !self.settings_at.has_passed() {
            return Ok(false);
        }
        let settings = ctx.store.settings()?;
        self.settings_at = Moment::after(SETTINGS_EVERY);
        // The lease times cannot change after registration.
        let settings = Settings { lease: self.policy.settings.lease, ..settings };
        let has_changed = settings != self.policy.settings;
        if has_changed {
            self.take(RunPolicy::new(ctx, settings));
        }
        Ok(has_changed)
    }

    fn take(&mut self, policy: Arc<RunPolicy>) {
        let former = std::mem::replace(&mut self.policy, policy);
        self.former.push(Arc::downgrade(&former));
    }

    /// When no run uses an earlier policy any more, ends the coprocesses that were started for its last runs.
    pub(super) fn forget_former(&mut self) {
        if !self.former.is_empty() && self.former.iter().all(|policy| policy.strong_count() == 0) {
            self.former.clear();
            self.handlers().retire_coprocesses();
        }
    }
}
