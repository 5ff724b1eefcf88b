//! The database server as the program sees it: a proxy between them can go away and return, and can lose a COMMIT or the answer
//! to it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::TestDb;

/// What is lost when the connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The COMMIT never arrives.
    Commit,
    /// The server commits, but the client gets no answer.
    Answer,
}

#[derive(Default)]
struct State {
    is_down: AtomicBool,
    is_silent: AtomicBool,
    refused: AtomicUsize,
    accepted: AtomicUsize,
    /// How many COMMITs are left until the one that is lost; 0 if none is.
    commits_left: AtomicUsize,
    lost: Mutex<Option<Lost>>,
    /// Whether the server becomes unreachable then.
    stops_then: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

/// A proxy in front of the server.
pub struct Server {
    pub url: String,
    state: Arc<State>,
}

impl Server {
    pub fn before(db: &TestDb) -> Self {
        let (login, place) = db.url_text().rsplit_once('@').unwrap();
        let (address, database) = place.split_once('/').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Encrypted data could not be parsed here.
        let plain = if db.is_mysql_like() { "?ssl_mode=disabled" } else { "?sslmode=disable" };
        let url = format!("{login}@{}/{database}{plain}", listener.local_addr().unwrap());
        let server = Self { url, state: Arc::default() };
        let (state, address) = (server.state.clone(), address.to_owned());
        // Ends with the process of the test.
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

    /// Stops all data in both directions without ending a connection, or lets it continue.
    pub fn fall_silent(&self, is_silent: bool) {
        self.state.is_silent.store(is_silent, Ordering::SeqCst);
    }

    /// Returns how many connections were refused.
    pub fn refused(&self) -> usize {
        self.state.refused.load(Ordering::Relaxed)
    }

    /// Returns how many connections were accepted.
    pub fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::Relaxed)
    }

    /// Loses the COMMIT with this number, counted from now and from 1, and cuts the connection.
    pub fn lose(&self, number: usize, lost: Lost) {
        *self.state.lost.lock().unwrap() = Some(lost);
        self.state.commits_left.store(number, Ordering::SeqCst);
    }

    /// Loses the answer to the COMMIT with this number, and is unreachable from then on.
    pub fn stop_after_commit(&self, number: usize) {
        self.state.stops_then.store(true, Ordering::SeqCst);
        self.lose(number, Lost::Answer);
    }

    /// Loses no more COMMITs. Returns whether one was lost.
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

    /// Returns what happens to these bytes of a client, which may be a COMMIT.
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

/// Returns true if the bytes contain a receipt: one statement queues a single task and is a transaction, and its receipt begins
/// with this text.
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

/// Copies bytes until one side ends, or until bytes may not pass.
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
