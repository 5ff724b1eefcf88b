//! The database's server as the program sees it: what stands between can go away and come back, and can lose a COMMIT or
//! the answer to it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::TestDb;

/// What gets lost when the connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// COMMIT never arrives.
    Commit,
    /// The server commits, and the client never learns of it.
    Answer,
}

#[derive(Default)]
struct State {
    is_down: AtomicBool,
    is_silent: AtomicBool,
    refused: AtomicUsize,
    accepted: AtomicUsize,
    /// COMMITs until the one that is met by `lost`; 0 when none is to be.
    commits_left: AtomicUsize,
    lost: Mutex<Option<Lost>>,
    /// Whether the server goes away with what is lost.
    stops_then: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

/// A proxy before the server.
pub struct Server {
    pub url: String,
    state: Arc<State>,
}

impl Server {
    pub fn before(db: &TestDb) -> Self {
        let (login, place) = db.url_text().rsplit_once('@').unwrap();
        let (address, database) = place.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // What is encrypted cannot be read here.
        let plain = if db.is_mysql_like() { "?ssl_mode=disabled" } else { "?sslmode=disable" };
        let url = format!("{login}@{}/{database}{plain}", listener.local_addr().unwrap());
        let server = Self { url, state: Arc::default() };
        let (state, address) = (server.state.clone(), address.to_owned());
        // Ends with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                serve(&state, client.unwrap(), &address);
            }
        });
        server
    }

    pub fn stop(&self) {
        self.state.is_down.store(true, Ordering::SeqCst);
        for stream in self.state.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn start(&self) {
        self.state.is_down.store(false, Ordering::SeqCst);
    }

    /// From now on nothing comes through in either direction, and no connection ends, until it speaks again.
    pub fn fall_silent(&self, is_silent: bool) {
        self.state.is_silent.store(is_silent, Ordering::SeqCst);
    }

    /// Connections that were refused.
    pub fn refused(&self) -> usize {
        self.state.refused.load(Ordering::Relaxed)
    }

    /// Connections that were let through.
    pub fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::Relaxed)
    }

    /// Loses the COMMIT with this number from now on, the first being 1, and the connection with it.
    pub fn lose(&self, number: usize, lost: Lost) {
        *self.state.lost.lock().unwrap() = Some(lost);
        self.state.commits_left.store(number, Ordering::SeqCst);
    }

    /// Loses the answer to the COMMIT with this number, and is away from then on.
    pub fn stop_after_commit(&self, number: usize) {
        self.state.stops_then.store(true, Ordering::SeqCst);
        self.lose(number, Lost::Answer);
    }

    /// Loses no COMMIT any more. Whether one was lost.
    pub fn has_lost(&self) -> bool {
        self.state.commits_left.swap(0, Ordering::SeqCst);
        self.state.lost.lock().unwrap().take().is_none()
    }
}

impl State {
    fn wait_while_silent(&self) {
        while self.is_silent.load(Ordering::SeqCst) {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    /// What happens to these bytes of a client, which may be a COMMIT.
    fn fate_of(&self, bytes: &[u8]) -> Option<Lost> {
        let is_commit = bytes.strip_suffix(b"\0").unwrap_or(bytes).ends_with(b"COMMIT") || has_receipt(bytes);
        let count_down = |left: usize| left.checked_sub(1);
        let left = is_commit
            .then(|| self.commits_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count_down).ok())
            .flatten();
        let fate = if left == Some(1) { self.lost.lock().unwrap().take() } else { None };
        if fate.is_some() && self.stops_then.swap(false, Ordering::SeqCst) {
            self.is_down.store(true, Ordering::SeqCst);
        }
        fate
    }
}

/// A single task is queued by one statement, which is a transaction by itself: the receipt among its values begins with this.
fn has_receipt(bytes: &[u8]) -> bool {
    bytes.windows(5).any(|window| window == b"once:")
}

fn serve(state: &Arc<State>, client: TcpStream, address: &str) {
    if state.is_down.load(Ordering::SeqCst) {
        state.refused.fetch_add(1, Ordering::Relaxed);
        return;
    }
    state.accepted.fetch_add(1, Ordering::Relaxed);
    let upstream = TcpStream::connect(address).unwrap();
    state.open.lock().unwrap().extend([client.try_clone().unwrap(), upstream.try_clone().unwrap()]);
    let is_answer_lost = Arc::new(AtomicBool::new(false));
    let (answers_lost, requests_state) = (is_answer_lost.clone(), state.clone());
    let (from_client, to_server) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
    std::thread::spawn(move || {
        forward(from_client, to_server, |bytes| {
            requests_state.wait_while_silent();
            let fate = requests_state.fate_of(bytes);
            is_answer_lost.fetch_or(fate.is_some(), Ordering::SeqCst);
            fate != Some(Lost::Commit)
        });
    });
    let state = Arc::clone(state);
    std::thread::spawn(move || {
        forward(upstream, client, |_| {
            state.wait_while_silent();
            !answers_lost.load(Ordering::SeqCst)
        });
    });
}

/// Copies bytes until one side ends, or these bytes may not pass.
fn forward(mut from: TcpStream, mut to: TcpStream, may_pass: impl Fn(&[u8]) -> bool) {
    from.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !may_pass(&bytes[..count]) || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
