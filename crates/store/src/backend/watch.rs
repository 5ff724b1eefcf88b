//! Watches connections to servers: a statement that is not answered in time ends with its connection.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use diesel::connection::{Connection, InstrumentationEvent};

use crate::address::url::DatabaseUrl;
use taskqueue_host::net::patience::WatchedConnection;
use taskqueue_host::net::sockets::{self, Peer};

/// Only one thread connects at a time, so that its socket is the only new one. A turn ends after this time: a server that does
/// not answer keeps a thread waiting, and other threads must not wait for it.
const TURN_LIMIT: Duration = Duration::from_millis(500);
const TURN_PAUSE: Duration = Duration::from_millis(2);

/// When the current turn began.
static TURN: Mutex<Option<Instant>> = Mutex::new(None);

struct ConnectTurn {
    began: Instant,
}

impl ConnectTurn {
    fn take() -> Self {
        loop {
            let began = Instant::now();
            let mut turn = lock();
            if turn.is_none_or(|other| other.elapsed() >= TURN_LIMIT) {
                *turn = Some(began);
                return Self { began };
            }
            drop(turn);
            sleep(TURN_PAUSE);
        }
    }
}

impl Drop for ConnectTurn {
    fn drop(&mut self) {
        lock().take_if(|began| *began == self.began);
    }
}

fn lock() -> MutexGuard<'static, Option<Instant>> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection that is about to be opened.
pub(super) struct Connecting {
    known: BTreeSet<u64>,
    turn: ConnectTurn,
}

impl Connecting {
    /// Must be called before the client library connects.
    pub(super) fn begin() -> Self {
        let turn = ConnectTurn::take();
        Self { known: sockets::connected_sockets(), turn }
    }

    /// Watches the new connection. Best effort: a socket that cannot be distinguished from others is not watched. `own_port`
    /// returns the client port as the server sees it.
    pub(super) fn watch<C: Connection>(
        self,
        conn: &mut C,
        url: &DatabaseUrl,
        is_of_client: impl Fn(&Peer) -> bool,
        own_port: impl FnOnce(&mut C) -> Option<i32>,
    ) {
        let mut new = sockets::new_ones(&self.known, is_of_client);
        drop(self.turn);
        if new.len() > 1 {
            let port = own_port(conn);
            new.retain(|socket| port.is_some() && socket.own_port().map(i32::from) == port);
        }
        if let [socket] = &new[..]
            && let Ok(socket) = socket.duplicate()
        {
            let watched = WatchedConnection::new(socket, url.patience().clone());
            conn.set_instrumentation(move |event: InstrumentationEvent<'_>| match event {
                InstrumentationEvent::StartQuery { .. } => watched.begin(),
                InstrumentationEvent::FinishQuery { .. } => watched.end(),
                _ => {}
            });
        }
    }
}
