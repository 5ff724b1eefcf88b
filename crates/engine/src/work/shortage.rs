//! Limits how many handlers a worker runs at once after it lacked a process, memory or a descriptor for one. The limit is the
//! number of handlers that were running then. After a pause it allows one more; if that fails, the next pause is longer.

use std::time::Duration;

use taskqueue_host::clock::Moment;

/// The first and the longest pause before one more handler is allowed.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Shortage {
    current: Option<CurrentShortage>,
}

#[derive(Debug)]
struct CurrentShortage {
    /// How many slots may execute a run.
    slots: usize,
    pause: Duration,
    until: Moment,
    /// Whether one more slot was allowed since the last failure.
    is_trial: bool,
}

impl Shortage {
    /// Records that a handler could not be started while this many others were running.
    pub(super) fn occurred(&mut self, running: usize) {
        let (slots, pause) = match &self.current {
            None => (running, FIRST_PAUSE),
            Some(current) if current.is_trial => (running, (current.pause * 2).min(LONGEST_PAUSE)),
            // Several starts at the same time count as one shortage.
            Some(current) => (running.min(current.slots), current.pause),
        };
        self.current = Some(CurrentShortage { slots, pause, until: Moment::after(pause), is_trial: false });
    }

    /// Returns how many of these slots may execute a run now.
    pub(super) fn allowed(&self, slots: usize) -> usize {
        self.current.as_ref().map_or(slots, |current| current.slots.min(slots))
    }

    pub(super) const fn is_over(&self) -> bool {
        self.current.is_none()
    }

    /// Allows one more slot if the pause has passed. Returns whether it did.
    pub(super) fn relax(&mut self, slots: usize) -> bool {
        let Some(current) = self.current.as_mut().filter(|current| current.until.has_passed()) else { return false };
        if current.is_trial {
            current.pause = FIRST_PAUSE;
        }
        current.slots += 1;
        current.is_trial = true;
        current.until = Moment::after(current.pause);
        if current.slots >= slots {
            self.current = None;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn let_pause_pass(shortage: &mut Shortage) {
        if let Some(current) = &mut shortage.current {
            current.until = Moment::now();
        }
    }

    #[test]
    fn a_shortage_leaves_as_many_slots_as_were_running_and_ends_slowly() {
        let mut shortage = Shortage::default();
        assert_eq!((shortage.allowed(8), shortage.relax(8)), (8, false));
        shortage.occurred(5);
        shortage.occurred(4);
        assert_eq!((shortage.allowed(8), shortage.relax(8)), (4, false));
        for allowed in 5..=8 {
            let_pause_pass(&mut shortage);
            assert!(shortage.relax(8));
            assert_eq!(shortage.allowed(8), allowed);
        }
        assert!(shortage.is_over());
    }

    #[test]
    fn a_shortage_that_goes_on_is_tried_less_and_less_often() {
        let mut shortage = Shortage::default();
        let pause = |shortage: &Shortage| shortage.current.as_ref().map(|current| current.pause);
        shortage.occurred(0);
        assert_eq!((shortage.allowed(8), pause(&shortage)), (0, Some(FIRST_PAUSE)));
        for _ in 0..10 {
            let_pause_pass(&mut shortage);
            assert!(shortage.relax(8));
            shortage.occurred(0);
        }
        assert_eq!((shortage.allowed(8), pause(&shortage)), (0, Some(LONGEST_PAUSE)));
        let_pause_pass(&mut shortage);
        shortage.relax(8);
        let_pause_pass(&mut shortage);
        shortage.relax(8);
        assert_eq!((shortage.allowed(8), pause(&shortage)), (2, Some(FIRST_PAUSE)));
    }
}
