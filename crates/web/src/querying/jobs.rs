//! The jobs that wait for a thread: the oldest is the first. A user whose jobs already use their share of the threads waits for one
//! of these to end, and other users do not wait for it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How many jobs each user may have.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    pub(crate) running: usize,
    pub(crate) waiting: usize,
}

/// The jobs.
pub(crate) struct Jobs<J> {
    share: Share,
    /// This user has no share: its jobs are never refused, and wait for nothing but a thread.
    privileged: &'static str,
    state: Mutex<State<J>>,
    changed: Condvar,
}

struct State<J> {
    waiting: VecDeque<(String, J)>,
    running: HashMap<String, usize>,
    is_closed: bool,
}

impl<J> Jobs<J> {
    pub(crate) fn new(share: Share, privileged: &'static str) -> Self {
        let state = State { waiting: VecDeque::new(), running: HashMap::new(), is_closed: false };
        Self { share, privileged, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds a job; returns false if too many of this user wait.
    pub(crate) fn add(&self, user: &str, job: J) -> bool {
        let mut state = self.lock();
        let waiting = state.waiting.iter().filter(|(other, _)| other == user).count();
        if user != self.privileged && waiting >= self.share.waiting {
            return false;
        }
        state.waiting.push_back((user.to_owned(), job));
        drop(state);
        self.changed.notify_one();
        true
    }

    /// Waits for the next job that may run; `None` once the jobs are closed and none waits. The job runs until its turn is dropped.
    pub(crate) fn next(&self) -> Option<(Turn<'_, J>, J)> {
        let mut state = self.lock();
        loop {
            let may_run = |user: &str| {
                user == self.privileged || state.running.get(user).is_none_or(|count| *count < self.share.running)
            };
            let place = state.waiting.iter().position(|(user, _)| may_run(user));
            if let Some((user, job)) = place.and_then(|place| state.waiting.remove(place)) {
                *state.running.entry(user.clone()).or_default() += 1;
                return Some((Turn { jobs: self, user }, job));
            }
            if state.is_closed && state.waiting.is_empty() {
                self.changed.notify_all();
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Has the threads end after the jobs that wait.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that a job of this user uses.
pub(crate) struct Turn<'a, J> {
    jobs: &'a Jobs<J>,
    user: String,
}

/// The thread itself then takes the next job, so no other is woken.
impl<J> Drop for Turn<'_, J> {
    fn drop(&mut self) {
        let mut state = self.jobs.lock();
        if let Some(count) = state.running.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                state.running.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs() -> Jobs<u8> {
        Jobs::new(Share { running: 1, waiting: 2 }, "web")
    }

    fn take(jobs: &Jobs<u8>) -> (Turn<'_, u8>, u8) {
        jobs.next().unwrap_or_else(|| unreachable!("a job waits"))
    }

    #[test]
    fn a_user_with_its_share_of_threads_lets_others_pass() {
        let jobs = jobs();
        for (user, job) in [("ann", 1), ("ann", 2), ("bob", 3), ("web", 4), ("web", 5)] {
            assert!(jobs.add(user, job));
        }
        let (first, job) = take(&jobs);
        assert_eq!(job, 1);
        let others: Vec<(Turn<'_, u8>, u8)> = (0..3).map(|_| take(&jobs)).collect();
        assert_eq!(others.iter().map(|(_, job)| *job).collect::<Vec<_>>(), [3, 4, 5]);
        drop(first);
        assert_eq!(take(&jobs).1, 2);
    }

    #[test]
    fn a_user_with_too_many_waiting_jobs_is_refused_and_others_are_not() {
        let jobs = jobs();
        assert!(jobs.add("ann", 1) && jobs.add("ann", 2) && !jobs.add("ann", 3));
        assert!(jobs.add("bob", 4));
        assert!((0..9).all(|job| jobs.add("web", job)));
    }

    #[test]
    fn closed_jobs_are_done_before_the_threads_end() {
        let jobs = jobs();
        assert!(jobs.add("ann", 1) && jobs.add("ann", 2));
        jobs.close();
        let done = std::thread::scope(|scope| {
            let work = || std::iter::from_fn(|| jobs.next().map(|(_turn, job)| job)).count();
            let threads = [scope.spawn(work), scope.spawn(work)];
            threads.map(|thread| thread.join().unwrap_or_default()).iter().sum::<usize>()
        });
        assert_eq!(done, 2);
    }
}
