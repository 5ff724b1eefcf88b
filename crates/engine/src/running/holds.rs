//! Which classes are held on this host, because their program is broken here.

use std::collections::HashSet;
use std::time::Duration;

use crate::{Context, EngineResult, Handlers};
use taskqueue_domain::task::task_class::TaskClass;
use taskqueue_host::clock::Moment;

/// For how long it is believed which classes are held.
const BELIEVED_FOR: Duration = Duration::from_secs(1);

/// The classes that are held on this host, as the database said a moment ago.
pub(crate) struct Holds {
    classes: HashSet<String>,
    read_at: Moment,
}

impl Holds {
    /// They are read when they are first asked for.
    pub(crate) fn new() -> Self {
        Self { classes: HashSet::new(), read_at: Moment::now() }
    }

    /// Reads them, where that is too long ago.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn refresh(&mut self, ctx: &mut Context) -> EngineResult<()> {
        if self.read_at.has_passed() {
            let holds = ctx.store.list_class_holds()?.into_iter();
            self.classes = holds.filter(|hold| hold.host == ctx.me.host).map(|hold| hold.class).collect();
            self.read_at = Moment::after(BELIEVED_FOR);
        }
        Ok(())
    }

    /// They have changed.
    pub(crate) fn forget(&mut self) {
        self.read_at = Moment::now();
    }

    /// Whether a runner with these handlers may begin runs of this class now.
    pub(crate) fn allow(&self, handlers: &Handlers, class: &TaskClass) -> bool {
        handlers.find(class).is_some() && !self.classes.contains(class.as_str())
    }
}
