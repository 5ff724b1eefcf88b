//! Which process of a class takes a run, and when another one is started. The thread in `keeper` reads the output of a process.

use std::sync::Arc;
use std::thread;

use super::keeper;
use super::member::{Member, Order};
use super::pool::{Pool, PoolState};
use super::protocol::WireId;
use super::ticket::Ticket;
use taskqueue_domain::run::ending::Ending;
use taskqueue_host::net::waker::Waker;
use taskqueue_process::identities::identity::ProcessIdentity;

/// The result of looking for a process for a run.
pub(super) enum Place {
    /// This process has the run now.
    Given { member: u64, identity: Arc<ProcessIdentity> },
    /// No process yet: the ticket is called when something has changed.
    Wait,
    /// A process could not be started during the wait.
    Failed(Ending),
    /// This pool was retired because its class was reconfigured.
    Closed,
}

impl Pool {
    /// Gives the run to a process, or makes sure that one is being started. `seen` is the number of failed starts when the wait
    /// began.
    pub(super) fn place(self: &Arc<Self>, id: WireId, message: &[u8], ticket: &Arc<Ticket>, seen: u64) -> Place {
        let mut state = self.state();
        state.waiting.retain(|other| !Arc::ptr_eq(other, ticket));
        if state.is_closed {
            return Place::Closed;
        }
        if let Some(ending) = state.failure.clone().filter(|_| state.failures != seen) {
            return Place::Failed(ending);
        }
        self.retire_the_old(&mut state);
        // Prefers the process with the least room: runs that share a process cost less, and the others can stay idle.
        let fullest = state.members.iter_mut().filter(|member| member.room() > 0).min_by_key(|member| member.room());
        if let Some((member, identity)) =
            fullest.and_then(|member| member.identity.clone().map(|found| (member, found)))
        {
            member.give(id, message, ticket);
            if self.handler.config.max_runs.is_some_and(|most| member.given >= most) {
                member.order(Order::Retire);
            }
            return Place::Given { member: member.number, identity };
        }
        let starting = state
            .members
            .iter()
            .filter(|member| member.hello.is_none() && member.order == Order::Serve && !member.is_leaving)
            .count();
        let expected = starting.saturating_mul(state.capacity.unwrap_or(usize::MAX));
        if state.waiting.len() >= expected
            && let Err(ending) = self.start(&mut state)
        {
            return Place::Failed(ending);
        }
        state.waiting.push(Arc::clone(ticket));
        Place::Wait
    }

    fn retire_the_old(&self, state: &mut PoolState) {
        let Some(max_age) = self.handler.config.max_age else { return };
        for member in &mut state.members {
            if member.is_old(max_age) {
                member.order(Order::Retire);
            }
        }
    }

    fn start(self: &Arc<Self>, state: &mut PoolState) -> Result<(), Ending> {
        let no_room =
            |error: std::io::Error| Ending::NoRoom(format!("could not start {}: {error}", self.handler.program()));
        let waker = Arc::new(Waker::new().map_err(no_room)?);
        let number = state.next_number;
        let (pool, ours) = (Arc::clone(self), Arc::clone(&waker));
        let keeper = thread::Builder::new()
            .name("coprocess".to_owned())
            .spawn(move || keeper::keep(&pool, number, &ours))
            .map_err(no_room)?;
        state.next_number += 1;
        state.members.push(Member::new(number, waker));
        state.keepers.retain(|keeper| !keeper.is_finished());
        state.keepers.push(keeper);
        Ok(())
    }
}
