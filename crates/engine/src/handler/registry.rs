//! The task classes that a program built on this library handles in Rust.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::TaskHandler;
use super::overrun::Overrun;
use taskqueue_domain::task::task_class::TaskClass;

/// Class names and their handlers. Names are compared exactly.
#[derive(Default)]
pub struct HandlerRegistry {
    handlers: BTreeMap<String, Arc<dyn TaskHandler>>,
    /// What happens to handlers that do not end in time.
    pub overrun: Overrun,
}

impl HandlerRegistry {
    /// Creates an empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long handlers may continue after they were asked to end.
    #[must_use]
    pub fn with_overrun_grace(mut self, grace: Duration) -> Self {
        self.overrun.grace = grace;
        self
    }

    /// Adds a class. Replaces and returns a handler that was registered under the same name.
    pub fn register(
        &mut self,
        class: impl Into<String>,
        handler: impl TaskHandler + 'static,
    ) -> Option<Arc<dyn TaskHandler>> {
        self.handlers.insert(class.into(), Arc::new(handler))
    }

    /// Returns the handler of a class.
    #[must_use]
    pub fn find(&self, class: &TaskClass) -> Option<&Arc<dyn TaskHandler>> {
        self.handlers.get(class.as_str())
    }

    /// Returns the class names in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.handlers.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ActiveRun, HandlerError};
    use super::*;

    struct Nothing;

    impl TaskHandler for Nothing {
        fn process_task_queue_run(&self, _run: &mut ActiveRun<'_>) -> Result<(), HandlerError> {
            Ok(())
        }
    }

    #[test]
    fn classes_are_found_by_their_exact_name() {
        let mut registry = HandlerRegistry::new();
        assert!(registry.register("b", Nothing).is_none());
        assert!(registry.register("a", Nothing).is_none());
        assert!(registry.register("a", Nothing).is_some());
        let find = |name: &str| registry.find(&name.parse().unwrap());
        assert!(find("a").is_some() && find("A").is_none());
        assert_eq!(registry.names().collect::<Vec<_>>(), ["a", "b"]);
    }
}
