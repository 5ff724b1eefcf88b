//! The classes held on this host, because their program is broken here.

use std::collections::HashSet;
use std::time::Duration;

use crate::context::Context;
use crate::error::EngineResult;
use crate::handler::handlers::Handlers;
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_host::clock::Moment;

/// How long the list of held classes is cached.
const BELIEVED_FOR: Duration = Duration::from_secs(1);

/// A cached list of the classes held on this host.
pub(crate) struct Holds {
    classes: HashSet<String>,
    read_at: Moment,
}

impl Holds {
    /// Creates an empty cache, which is filled at the first `refresh`.
    pub(crate) fn new() -> Self {
        Self { classes: HashSet::new(), read_at: Moment::now() }
    }

    /// Reads the list again if the cache has expired.
    ///
    /// # Errors
    /// Returns an error if the database fails.
    pub(crate) fn refresh(&mut self, ctx: &mut Context) -> EngineResult<()> {
        if self.read_at.has_passed() {
            let holds = ctx.store.list_class_holds()?.into_iter();
            self.classes = holds.filter(|hold| hold.host == ctx.me.host).map(|hold| hold.class).collect();
            self.read_at = Moment::after(BELIEVED_FOR);
        }
        Ok(())
    }

    /// Invalidates the cache.
    pub(crate) fn forget(&mut self) {
        self.read_at = Moment::now();
    }

    /// Returns true if a runner with these handlers may start runs of this class now.
    pub(crate) fn allow(&self, handlers: &Handlers, class: &TaskClass) -> bool {
        handlers.find(class).is_some() && !self.classes.contains(class.as_str())
    }
}
