//! A minimal HTTP/1.1 server for monitoring: it answers a few paths and closes the connection. It is strict, with limits of size,
//! time and number. One thread serves all clients without blocking on a slow one. Earlier routes are answered first.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{Shutdown, shutdown};

use super::listener::{SocketFile, SocketListener, SocketStream};
use super::waker::Waker;
use crate::clock::{Moment, poll_wait};
use taskqueue_domain::monitoring::listen_address::ListenAddress;

/// The maximum number of clients, and of clients from one address. Each additional client closes the connection that has waited
/// longest, so that slow clients do not delay others.
const MOST_CLIENTS: usize = 32;
const MOST_OF_ADDRESS: usize = 8;
/// Clients that are accepted before the others are read again.
const MOST_AT_ONCE: usize = 64;
const LONGEST_REQUEST_BYTES: usize = 8 << 10;
/// The time for a request, counted from the connection, and again for its answer.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// The pause after a client could not be accepted, for example for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The answer to a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// 200, 503
    pub status: u16,
    /// Content-Type
    pub content_type: &'static str,
    /// The body.
    pub body: String,
}

/// A path, and the function that answers it.
pub type Route = (&'static str, Box<dyn Fn() -> HttpAnswer + Send>);

/// The routes, and who is answered.
struct Site {
    routes: Vec<Route>,
    /// Whether it listens at a loopback address. A web page could then make a browser send requests under a name of the page that
    /// resolves to this address (DNS rebinding). Therefore only requests for an address or for localhost are answered.
    is_local: bool,
}

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: ListenAddress,
    waker: Arc<Waker>,
    is_over: Arc<AtomicBool>,
    _file: Option<SocketFile>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Starts to listen at this address.
    ///
    /// # Errors
    /// `AddrInUse` if another process listens there; otherwise the error of the kernel.
    pub fn start(address: &ListenAddress, routes: Vec<Route>) -> io::Result<Self> {
        let listener = SocketListener::bind(address)?;
        let file = SocketFile::of(address);
        let (waker, is_over) = (Arc::new(Waker::new()?), Arc::<AtomicBool>::default());
        let mut server = Self {
            address: listener.address(address),
            waker: Arc::clone(&waker),
            is_over: Arc::clone(&is_over),
            _file: file,
            thread: None,
        };
        let site = Site {
            routes,
            is_local: matches!(server.address, ListenAddress::Internet(_)) && !server.address.is_open(),
        };
        let serve = move || serve(&listener, &site, &waker, &is_over);
        server.thread = Some(thread::Builder::new().name("http".to_owned()).spawn(serve)?);
        Ok(server)
    }

    /// Returns its address.
    #[must_use]
    pub const fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// Stops. The address is free when this returns, which may take as long as an answer.
    pub fn close(mut self) {
        let thread = self.thread.take();
        drop(self);
        // A thread that panicked does not listen either.
        let _ = thread.map(JoinHandle::join);
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.waker.wake();
    }
}

fn serve(listener: &SocketListener, site: &Site, waker: &Waker, is_over: &AtomicBool) {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        wait(listener, waker, &clients);
        if is_over.load(Ordering::Acquire) {
            // A program that another thread is starting has a copy of the socket until it is executed, so closing is not enough.
            let _ = shutdown(listener, Shutdown::Both);
            return;
        }
        for _ in 0..MOST_AT_ONCE {
            match listener.accept() {
                Ok((stream, from)) => {
                    make_room(&mut clients, from);
                    clients.push(Client::new(stream, from));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    thread::sleep(PAUSE);
                    break;
                }
            }
        }
        for client in &mut clients {
            client.receive();
        }
        answer(&mut clients, site);
        for client in &mut clients {
            client.send();
        }
        clients.retain(|client| !client.is_done && !client.until.has_passed());
    }
}

/// Removes the oldest client if one more from this address would be too many, from the address with the most clients. A client
/// that has sent nothing is removed before one whose request has begun.
fn make_room(clients: &mut Vec<Client>, from: Option<IpAddr>) {
    let count = |of: Option<IpAddr>| clients.iter().filter(|client| client.from == of).count();
    let crowded = if from.is_some() && count(from) >= MOST_OF_ADDRESS {
        from
    } else if clients.len() >= MOST_CLIENTS {
        clients.iter().map(|client| client.from).max_by_key(|of| count(*of)).flatten()
    } else {
        return;
    };
    let of_crowded = |client: &Client| client.from == crowded;
    let oldest = clients
        .iter()
        .position(|client| of_crowded(client) && client.request.is_empty())
        .or_else(|| clients.iter().position(of_crowded));
    if let Some(oldest) = oldest {
        clients.remove(oldest);
    }
}

/// Answers the complete requests, in the order of the routes.
fn answer(clients: &mut [Client], site: &Site) {
    let mut whole: Vec<&mut Client> = clients.iter_mut().filter(|client| client.is_whole()).collect();
    whole.sort_by_key(|client| client.place(&site.routes));
    for client in whole {
        client.reply = reply_to(&client.request, site).unwrap_or_default();
        client.until = Moment::after(TIME_LIMIT);
        client.send();
    }
}

/// Waits until something can be done, or the time of a client is up.
fn wait(listener: &SocketListener, waker: &Waker, clients: &[Client]) {
    let mut fds = vec![PollFd::new(waker, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
    for client in clients {
        let wanted = if client.reply.is_empty() { PollFlags::IN } else { PollFlags::OUT };
        fds.push(PollFd::from_borrowed_fd(client.stream.as_fd(), wanted));
    }
    let first = clients.iter().map(|client| client.until.remaining()).min();
    // An interrupted wait is just a short one.
    let _ = poll(&mut fds, Some(&poll_wait(first.unwrap_or(Duration::MAX))));
}

struct Client {
    stream: Box<dyn SocketStream>,
    from: Option<IpAddr>,
    until: Moment,
    request: Vec<u8>,
    /// Empty until the request is complete.
    reply: Vec<u8>,
    sent: usize,
    is_done: bool,
}

impl Client {
    fn new(stream: Box<dyn SocketStream>, from: Option<IpAddr>) -> Self {
        let until = Moment::after(TIME_LIMIT);
        Self { stream, from, until, request: Vec::new(), reply: Vec::new(), sent: 0, is_done: false }
    }

    /// Returns true if its request is complete or too long, and has no answer yet.
    fn is_whole(&self) -> bool {
        !self.is_done && self.reply.is_empty() && is_whole(&self.request)
    }

    /// Returns the index of its route: lower ones are answered first, and requests without a route at once.
    fn place(&self, routes: &[Route]) -> usize {
        let target = path_of(&self.request).ok().map(|(_, path, _)| path);
        target.and_then(|path| routes.iter().position(|(known, _)| *known == path)).unwrap_or(0)
    }

    /// Reads the available part of its request.
    fn receive(&mut self) {
        let mut chunk = [0_u8; 2048];
        while self.reply.is_empty() && !self.is_done && !is_whole(&self.request) {
            match self.stream.read(&mut chunk) {
                Ok(0) => self.is_done = true,
                Ok(count) => self.request.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.is_done = true,
            }
        }
    }

    /// Writes as much of its answer as the client accepts.
    fn send(&mut self) {
        if self.reply.is_empty() {
            return;
        }
        while !self.is_done {
            match self.stream.write(&self.reply[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    self.is_done = count == 0 || self.sent == self.reply.len();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.is_done = true,
            }
        }
        // Unread input would turn the close into a reset, and the answer would be lost.
        let _ = self.stream.read(&mut [0; LONGEST_REQUEST_BYTES]);
    }
}

/// Returns true if no more of a request is read: it has ended, or it is too long.
fn is_whole(request: &[u8]) -> bool {
    request.len() >= LONGEST_REQUEST_BYTES || request.windows(4).any(|bytes| bytes == b"\r\n\r\n")
}

/// Returns the complete reply to a complete request; `None` if the request is incomplete.
fn reply_to(request: &[u8], site: &Site) -> Option<Vec<u8>> {
    let end = request.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let refusal = |status| HttpAnswer { status, content_type: "text/plain; charset=utf-8", body: String::new() };
    let answer = match end {
        None if request.len() < LONGEST_REQUEST_BYTES => return None,
        Some(end) if end <= LONGEST_REQUEST_BYTES => match path_of(&request[..end + 4]) {
            Err(status) => refusal(status),
            Ok((.., host)) if site.is_local && !is_local_name(host) => refusal(421),
            Ok((method, path, _)) => match site.routes.iter().find(|(known, _)| *known == path) {
                None => refusal(404),
                Some(_) if method != "GET" => refusal(405),
                Some((_, answer)) => answer(),
            },
        },
        _ => refusal(431),
    };
    let HttpAnswer { status, content_type, body } = answer;
    let reason = reason(status);
    let body = if body.is_empty() { format!("{status} {reason}\n") } else { body };
    let allow = if status == 405 { "Allow: GET\r\n" } else { "" };
    let length = body.len();
    let reply = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n{body}"
    );
    Some(reply.into_bytes())
}

/// Returns true if the Host header is an address or localhost, with or without a port. HTTP/1.0 clients may omit it; browsers
/// send it.
fn is_local_name(host: &[u8]) -> bool {
    let host = std::str::from_utf8(host).unwrap_or("?").trim();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let is_address = inner.map_or(name.parse::<Ipv4Addr>().is_ok(), |inner| inner.parse::<Ipv6Addr>().is_ok());
    host.is_empty() || is_address || name.eq_ignore_ascii_case("localhost")
}

/// Returns method, path and host of a complete request, or the status with which it is rejected.
fn path_of(head: &[u8]) -> Result<(&str, &str, &[u8]), u16> {
    // The shortest line is `a:` and its end.
    let mut headers = [httparse::EMPTY_HEADER; LONGEST_REQUEST_BYTES / 4];
    let mut request = httparse::Request::new(&mut headers);
    let parsed = request.parse(head);
    // The parser also accepts leading empty lines, and lines that end without a carriage return.
    let is_lax = head[0].is_ascii_control() || head.windows(2).any(|two| two[0] != b'\r' && two[1] == b'\n');
    let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let (host, has_several) = (hosts.next().map(|header| header.value), hosts.next().is_some());
    match (parsed, request.method, request.path) {
        (Ok(_), Some(method), Some(target))
            if !is_lax && !has_several && target.starts_with('/') && (host.is_some() || request.version == Some(0)) =>
        {
            Ok((method, target.split('?').next().unwrap_or_default(), host.unwrap_or_default()))
        }
        (Err(httparse::Error::Version), ..) if names_a_version(head) => Err(505),
        _ => Err(400),
    }
}

/// Returns true if the first line has three words and the last one names a version; the parser has found that the version is
/// unknown.
fn names_a_version(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    words.len() == 3 && words[2].starts_with(b"HTTP/")
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        404 => "Not Found",
        405 => "Method Not Allowed",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Bad Request",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::{SocketAddr, TcpStream};

    use super::*;
    use crate::testing::eventually;

    fn routes() -> Vec<Route> {
        let answer: Box<dyn Fn() -> HttpAnswer + Send> =
            Box::new(|| HttpAnswer { status: 200, content_type: "text/plain", body: "fine\n".to_owned() });
        vec![("/it", answer)]
    }

    fn site(is_local: bool) -> Site {
        Site { routes: routes(), is_local }
    }

    fn status(request: &str) -> Option<String> {
        let reply = String::from_utf8(reply_to(request.as_bytes(), &site(false))?).unwrap();
        Some(reply.split(' ').nth(1).unwrap().to_owned())
    }

    #[test]
    fn a_request_is_answered_once_it_is_whole_and_only_if_it_is_right() {
        let host = "Host: a\r\n\r\n";
        let whole = format!("GET /it HTTP/1.1\r\n{host}");
        for cut in 0..whole.len() {
            assert_eq!(status(&whole[..cut]), None, "{cut}");
        }
        for (request, expected) in [
            (whole.clone(), "200"),
            (format!("GET /it?x=1 HTTP/1.1\r\nAccept: */*\r\n{host}"), "200"),
            ("GET /it HTTP/1.0\r\n\r\n".to_owned(), "200"),
            (format!("POST /it HTTP/1.1\r\n{host}"), "405"),
            (format!("HEAD /it HTTP/1.1\r\n{host}"), "405"),
            (format!("GET /other HTTP/1.1\r\n{host}"), "404"),
            (format!("POST /it/ HTTP/1.1\r\n{host}"), "404"),
            ("GET /it HTTP/1.1\r\n\r\n".to_owned(), "400"),
            (format!("GET it HTTP/1.1\r\n{host}"), "400"),
            (format!("GET  /it HTTP/1.1\r\n{host}"), "400"),
            (format!("GET /it HTTP/1.1\r\nno colon\r\n{host}"), "400"),
            (format!("GET /it HTTP/1.1\r\nA: b\r\n continued: x\r\n{host}"), "400"),
            (format!("GET /it HTTP/1.1\r\nA: b\nc\r\n{host}"), "400"),
            (format!("GET /it HTTP/1.1\nA: b\r\n{host}"), "400"),
            (format!("\r\nGET /it HTTP/1.1\r\n{host}"), "400"),
            ("\r\n\r\n".to_owned(), "400"),
            (format!("GET /it HTTP/1.1\r\n{}{host}", "a:\r\n".repeat(2_000)), "200"),
            (format!("GET /it HTTP/1.1\r\n{}{host}", "a:\r\n".repeat(2_050)), "431"),
            (format!("GET /it HTTP/2.0\r\n{host}"), "505"),
            (format!("GET /it SMTP\r\n{host}"), "400"),
            (format!("GET /it SMTP\r\nVia: a HTTP/2.0\r\n{host}"), "400"),
            (format!("GET /it  HTTP/1.1\r\n{host}"), "400"),
            (format!("GET /it x HTTP/1.1\r\n{host}"), "400"),
            (format!("GET /it HTTP/1.1\r\nA: {}\r\n{host}", "x".repeat(LONGEST_REQUEST_BYTES)), "431"),
            ("x".repeat(LONGEST_REQUEST_BYTES), "431"),
        ] {
            assert_eq!(status(&request).as_deref(), Some(expected), "{request}");
        }
        let reply = reply_to(whole.as_bytes(), &site(false)).unwrap();
        let expected =
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\nfine\n";
        assert_eq!(String::from_utf8(reply).unwrap(), expected);
    }

    #[test]
    fn on_loopback_only_an_address_or_localhost_is_asked_for() {
        let status = |host: &str| {
            let request = format!("GET /it HTTP/1.1\r\n{host}\r\n");
            String::from_utf8(reply_to(request.as_bytes(), &site(true)).unwrap()).unwrap()[9..12].to_owned()
        };
        let good =
            ["localhost", "LocalHost:9187", "127.0.0.1", "127.0.0.1:9187", "[::1]", "[::1]:9187", "10.0.0.7:1", ""];
        for name in good {
            assert_eq!(status(&format!("Host: {name}\r\n")), "200", "{name}");
        }
        for name in [
            "evil.example",
            "evil.example:9187",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "x@127.0.0.1",
            "[::1",
            "a:b",
            ":",
        ] {
            assert_eq!(status(&format!("Host: {name}\r\n")), "421", "{name}");
        }
        assert_eq!(status("Host: localhost\r\nHost: evil.example\r\n"), "400");
    }

    #[test]
    fn a_server_that_was_closed_has_left_its_address_to_the_next() {
        let mut address = "127.0.0.1:0".parse().unwrap();
        for _ in 0..3 {
            let server = HttpServer::start(&address, routes()).unwrap();
            address = server.address().clone();
            let ListenAddress::Internet(known) = address else { unreachable!("{address}") };
            // Also with a client that was just accepted, or is about to be.
            let _client = TcpStream::connect(known).unwrap();
            server.close();
        }
    }

    #[test]
    fn the_first_route_is_answered_before_requests_that_came_earlier() {
        let (order, seen) = std::sync::mpsc::channel();
        let route = |path: &'static str| -> Route {
            let order = order.clone();
            let answer = move || {
                let _ = order.send(path);
                HttpAnswer { status: 200, content_type: "text/plain", body: "fine\n".to_owned() }
            };
            (path, Box::new(answer))
        };
        let routes = vec![route("/probe"), route("/slow")];
        let client = |path: &str| {
            let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            let mut client = Client::new(Box::new(near), None);
            client.request = format!("GET {path} HTTP/1.0\r\n\r\n").into_bytes();
            client
        };
        let site = Site { routes, is_local: false };
        answer(&mut [client("/slow"), client("/slow"), client("/probe")], &site);
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["/probe", "/slow", "/slow"]);
    }

    #[test]
    fn one_address_has_a_few_places_and_its_newest_clients_have_them() {
        let client = |last: u8, number: u8| {
            let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
            let mut client = Client::new(Box::new(near), Some(IpAddr::from([10, 0, 0, last])));
            client.request = vec![number];
            client
        };
        let mut clients = Vec::new();
        for number in 0..100 {
            let last = if number % 10 == 0 { number } else { 1 };
            make_room(&mut clients, Some(IpAddr::from([10, 0, 0, last])));
            clients.push(client(last, number));
        }
        let numbers: Vec<u8> = clients.iter().map(|client| client.request[0]).collect();
        let others: Vec<u8> = (0..100).step_by(10).collect();
        assert_eq!(numbers.iter().filter(|number| *number % 10 == 0).copied().collect::<Vec<_>>(), others);
        let newest: Vec<u8> = numbers.into_iter().filter(|number| number % 10 != 0).collect();
        assert_eq!(newest, (92..100).collect::<Vec<u8>>());
    }

    #[test]
    fn silent_clients_delay_no_answer_and_a_dropped_server_stops_listening() {
        let server = HttpServer::start(&"127.0.0.1:0".parse().unwrap(), routes()).unwrap();
        let ListenAddress::Internet(address) = *server.address() else { return };
        let connect = || TcpStream::connect(address).unwrap();
        let silent: Vec<TcpStream> = (0..200).map(|_| connect()).collect();
        let ask = |address: SocketAddr| {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(b"GET /it HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let mut reply = String::new();
            client.read_to_string(&mut reply).unwrap();
            reply
        };
        let started = Moment::now();
        assert!(ask(address).ends_with("\r\n\r\nfine\n"));
        // Each request is answered in time; one after the other, they would have taken six times the limit.
        assert!(started.elapsed() < 6 * TIME_LIMIT);
        drop((server, silent));
        eventually(|| TcpStream::connect(address).is_err());
    }
}
