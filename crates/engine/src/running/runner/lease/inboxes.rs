//! Delivers messages to the held runs. Only runs whose handlers listen cause queries.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::open_inbox::OpenInbox;
use super::shared::Leases;
use crate::handler::Inbox;
use taskqueue_domain::run::message::Message;
use taskqueue_domain::task::ids::{RunId, TaskId};
use taskqueue_host::clock::Moment;
use taskqueue_store::{Envelope, Store, StoreResult};

/// How long a transaction may take after it has inserted a message: the message gets its id before the commit.
const LONGEST_TRANSACTION: Duration = Duration::from_secs(60);

/// The id up to which all messages were read. It lags behind the newest id by the longest duration of a transaction.
pub(crate) struct Horizon {
    settled: i64,
    /// The newest id, and when it was read.
    newest: (i64, Moment),
}

impl Horizon {
    pub(crate) fn new() -> Self {
        Self { settled: 0, newest: (0, Moment::now()) }
    }

    fn note(&mut self, newest: i64) {
        let (id, since) = self.newest;
        if since.elapsed() >= LONGEST_TRANSACTION {
            self.settled = id;
            self.newest = (newest.max(id), Moment::now());
        }
    }
}

/// The runs whose handlers listen.
pub(crate) struct Listening {
    tasks: Vec<TaskId>,
    /// Those that were not queried yet.
    new_runs: HashSet<RunId>,
}

/// Delivers the messages that arrived since the last call.
pub(crate) fn deliver(store: &mut Store, leases: &Leases, horizon: &mut Horizon) -> StoreResult<()> {
    let Some(wanted) = leases.listening() else { return Ok(()) };
    let after = if wanted.new_runs.is_empty() { horizon.settled } else { 0 };
    let envelopes = store.list_envelopes(&wanted.tasks, after)?;
    let unseen = leases.unseen(&envelopes);
    let messages = if unseen.is_empty() { Vec::new() } else { store.load_messages(&unseen)? };
    leases.hand_over(&envelopes, &messages.into_iter().collect(), &wanted.new_runs);
    horizon.note(envelopes.last().map_or(0, |newest| newest.id));
    Ok(())
}

impl Leases {
    /// Returns the inbox of a run. The first call also triggers a query for its messages.
    pub(crate) fn open_inbox(&self, run_id: RunId, task_id: TaskId) -> Inbox {
        let mut state = self.lock();
        let Some(held) = state.runs.get_mut(&run_id) else { return Inbox::closed() };
        if let Some(open) = &held.inbox {
            return open.inbox.clone();
        }
        held.ask_from = Moment::now();
        let open = held.inbox.insert(OpenInbox::new(task_id));
        if held.cancel.reason().is_some() {
            open.inbox.close();
        }
        let inbox = open.inbox.clone();
        state.asks_now = true;
        self.waker.wake();
        inbox
    }

    fn listening(&self) -> Option<Listening> {
        let state = self.lock();
        let open = state.runs.iter().filter_map(|(id, held)| Some((*id, held.inbox.as_ref()?)));
        let (mut tasks, mut new_runs) = (Vec::new(), HashSet::new());
        for (run_id, open) in open {
            tasks.push(open.task_id);
            if open.is_new {
                new_runs.insert(run_id);
            }
        }
        (!tasks.is_empty()).then_some(Listening { tasks, new_runs })
    }

    fn unseen(&self, envelopes: &[Envelope]) -> Vec<i64> {
        let state = self.lock();
        let is_missed = |envelope: &&Envelope| {
            let misses = |(id, open): (&RunId, &OpenInbox)| open.misses(*id, envelope);
            state.runs.iter().filter_map(|(id, held)| Some((id, held.inbox.as_ref()?))).any(misses)
        };
        envelopes.iter().filter(is_missed).map(|envelope| envelope.id).collect()
    }

    /// Skips inboxes that were opened after the query, because it did not include their older messages.
    fn hand_over(&self, envelopes: &[Envelope], messages: &HashMap<i64, Message>, new_runs: &HashSet<RunId>) {
        let mut state = self.lock();
        for (run_id, held) in &mut state.runs {
            let Some(open) = held.inbox.as_mut().filter(|open| !open.is_new || new_runs.contains(run_id)) else {
                continue;
            };
            open.is_new = false;
            for envelope in envelopes {
                if open.misses(*run_id, envelope) {
                    open.seen.insert(envelope.id);
                    if let Some(message) = messages.get(&envelope.id) {
                        open.inbox.put(message.clone());
                    }
                }
            }
        }
    }
}
