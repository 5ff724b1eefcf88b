//! A proxy between the program and a server: refuses connections, cuts them at critical points, or delays the data of one side.
//! Knows enough of both protocols to recognise a COMMIT.
//!
//! Uses only std, so that other programs can include this file.

#![allow(dead_code, reason = "each program that includes it uses its own part")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a connection swallows all data before it is closed.
const HOLE: Duration = Duration::from_millis(400);
/// About how many requests the client sends until it is connected and has checked the tables.
const LOGIN_REQUESTS_POSTGRES: usize = 10;
const LOGIN_REQUESTS_MYSQL: usize = 21;

/// Where a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A COMMIT never arrives.
    BeforeCommit,
    /// The server commits, but the client gets no answer.
    AfterCommit,
    /// Half of a request arrives.
    InRequest,
    /// Half of an answer arrives.
    InAnswer,
    /// Half of a request arrives, during the login.
    InLogin,
    /// No data is passed on in either direction, and after a while the connection is closed.
    BlackHole,
}

/// The planned cut, and how many occasions remain until it.
#[derive(Clone, Copy, Debug)]
struct Plan {
    cut: Cut,
    left: usize,
}

#[derive(Default)]
struct State {
    login_requests: usize,
    plan: Mutex<Option<Plan>>,
    was_cut: AtomicBool,
    /// Whether the server becomes unreachable then.
    stops_then: AtomicBool,
    is_down: AtomicBool,
    refused: AtomicUsize,
    accepted: AtomicUsize,
    holds_requests: AtomicBool,
    holds_answers: AtomicBool,
    delay_micros: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

pub struct Proxy {
    /// The URL through the proxy, without encryption, which could not be parsed here.
    pub url: String,
    state: Arc<State>,
}

impl Proxy {
    /// Listens on this address, and forwards to the server of this URL. Ends with the process.
    pub fn start(listen: &str, url: &str) -> Self {
        let listener = TcpListener::bind((listen, 0)).unwrap();
        let is_mysql = url.starts_with("mysql");
        let (login_requests, plain) = if is_mysql {
            (LOGIN_REQUESTS_MYSQL, "?ssl_mode=disabled")
        } else {
            (LOGIN_REQUESTS_POSTGRES, "?sslmode=disable")
        };
        let state = Arc::new(State { login_requests, ..State::default() });
        let server = place(url).to_owned();
        let url = format!("{}{plain}", url.replacen(&server, &listener.local_addr().unwrap().to_string(), 1));
        let proxy = Self { url, state: Arc::clone(&state) };
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                serve(&state, client, &server);
            }
        });
        proxy
    }

    /// Cuts once, at the nth occasion from now on; the first is 1.
    pub fn plan(&self, cut: Cut, nth: usize) {
        self.state.was_cut.store(false, Ordering::SeqCst);
        *self.state.plan.lock().unwrap() = Some(Plan { cut, left: nth });
    }

    /// Loses the answer to the COMMIT with this number, and is unreachable from then on.
    pub fn stop_after_commit(&self, nth: usize) {
        self.state.stops_then.store(true, Ordering::SeqCst);
        self.plan(Cut::AfterCommit, nth);
    }

    /// Cuts no more. Returns whether it has.
    pub fn clear(&self) -> bool {
        *self.state.plan.lock().unwrap() = None;
        self.state.was_cut.load(Ordering::SeqCst)
    }

    /// Delays all data by this time.
    pub fn slow_down(&self, delay: Duration) {
        self.state.delay_micros.store(u64::try_from(delay.as_micros()).unwrap(), Ordering::Relaxed);
    }

    /// Holds back the data of the program, of the server, or of both; nothing is lost, as with TCP.
    pub fn hold(&self, requests: bool, answers: bool) {
        self.state.holds_requests.store(requests, Ordering::SeqCst);
        self.state.holds_answers.store(answers, Ordering::SeqCst);
    }

    /// Closes every connection, and refuses new ones.
    pub fn stop(&self) {
        self.state.is_down.store(true, Ordering::SeqCst);
        self.cut_all();
    }

    /// Accepts connections again.
    pub fn start_again(&self) {
        self.state.is_down.store(false, Ordering::SeqCst);
    }

    /// Returns how many connections were refused.
    pub fn refused(&self) -> usize {
        self.state.refused.load(Ordering::Relaxed)
    }

    /// Returns how many connections were accepted.
    pub fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::Relaxed)
    }

    /// Closes every connection.
    pub fn cut_all(&self) {
        for stream in self.state.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Returns `host:port` in a URL.
fn place(url: &str) -> &str {
    let (_, place) = url.rsplit_once('@').unwrap();
    place.split_once('/').map_or(place, |(place, _)| place)
}

/// The shared state of the two directions of a connection.
#[derive(Default)]
struct Link {
    /// How many requests the client has sent so far.
    requests: AtomicUsize,
    /// Whether the answer to the last request is lost, together with the connection.
    loses_answer: AtomicBool,
    is_hole: AtomicBool,
}

fn serve(state: &Arc<State>, client: TcpStream, server: &str) {
    if state.is_down.load(Ordering::SeqCst) {
        state.refused.fetch_add(1, Ordering::Relaxed);
        return;
    }
    state.accepted.fetch_add(1, Ordering::Relaxed);
    // If the server is down, the connection of the client is closed.
    let Ok(upstream) = TcpStream::connect(server) else { return };
    let mut open = state.open.lock().unwrap();
    open.retain(|stream| stream.peer_addr().is_ok());
    open.extend([client.try_clone().unwrap(), upstream.try_clone().unwrap()]);
    drop(open);
    let link = Arc::new(Link::default());
    let (requests_state, requests_link) = (Arc::clone(state), Arc::clone(&link));
    let (from, to) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
    std::thread::spawn(move || {
        forward(&requests_state, &requests_link, from, to, true);
    });
    let state = Arc::clone(state);
    std::thread::spawn(move || forward(&state, &link, upstream, client, false));
}

/// Copies bytes until one side ends or the plan cuts the connection.
fn forward(state: &State, link: &Link, mut from: TcpStream, mut to: TcpStream, is_request: bool) {
    let holds = if is_request { &state.holds_requests } else { &state.holds_answers };
    let mut bytes = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let all = &bytes[..count];
        std::thread::sleep(Duration::from_micros(state.delay_micros.load(Ordering::Relaxed)));
        while holds.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let said = link.requests.fetch_add(usize::from(is_request), Ordering::SeqCst);
        let is_login = said < state.login_requests;
        let through = match state.fate_of(all, is_request, is_login) {
            Some(Cut::BeforeCommit) => &[],
            Some(Cut::InRequest | Cut::InAnswer | Cut::InLogin) => &all[..count / 2],
            Some(Cut::BlackHole) => {
                link.is_hole.store(true, Ordering::SeqCst);
                &[]
            }
            Some(Cut::AfterCommit) => {
                link.loses_answer.store(true, Ordering::SeqCst);
                all
            }
            None if link.loses_answer.load(Ordering::SeqCst) && !is_request => &[],
            None => all,
        };
        if link.is_hole.load(Ordering::SeqCst) {
            std::thread::sleep(HOLE);
            break;
        }
        if to.write_all(through).is_err() || through.len() < count {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Returns true if the bytes contain a receipt: one statement queues a single task and is a transaction, and its receipt begins
/// with this text.
fn has_receipt(bytes: &[u8]) -> bool {
    bytes.windows(5).any(|window| window == b"once:")
}

impl State {
    /// Returns what happens to these bytes.
    fn fate_of(&self, bytes: &[u8], is_request: bool, is_login: bool) -> Option<Cut> {
        let mut plan = self.plan.lock().unwrap();
        let planned = plan.as_mut()?;
        let is_commit =
            is_request && (bytes.strip_suffix(b"\0").unwrap_or(bytes).ends_with(b"COMMIT") || has_receipt(bytes));
        let is_occasion = match planned.cut {
            Cut::BeforeCommit | Cut::AfterCommit => is_commit,
            Cut::InRequest | Cut::BlackHole => is_request && !is_login,
            Cut::InAnswer => !is_request && !is_login,
            Cut::InLogin => is_request && is_login,
        };
        planned.left -= usize::from(is_occasion);
        if planned.left > 0 {
            return None;
        }
        let cut = planned.cut;
        *plan = None;
        self.was_cut.store(true, Ordering::SeqCst);
        if self.stops_then.swap(false, Ordering::SeqCst) {
            self.is_down.store(true, Ordering::SeqCst);
        }
        Some(cut)
    }
}
