//! The same request again and again, by so many clients on a connection each; and the use case behind a page of tasks, without a
//! server. Both print the seconds.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use taskqueue_bench::{argument, by_threads, number};
use taskqueue_domain::task::choosing::selection::{PageStart, Selection};
use taskqueue_engine::inspect::status::select_page;
use taskqueue_engine::{Context, DatabaseUrl, Handlers};

const USAGE: &str = "bench_http requests HOST:PORT N CLIENTS <REQUEST | pages URL N THREADS LIMIT";

fn main() {
    let (calls, threads) = (number(3, USAGE), number(4, USAGE));
    match argument(1, USAGE).as_str() {
        "requests" => requests(&argument(2, USAGE), calls, threads),
        "pages" => pages(&argument(2, USAGE), calls, threads, number(5, USAGE)),
        verb => panic!("no verb {verb}; usage: {USAGE}"),
    }
}

fn requests(address: &str, calls: usize, clients: usize) {
    let mut request = Vec::new();
    std::io::stdin().read_to_end(&mut request).expect("a request on standard input");
    let connect = || {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("a socket");
        BufReader::new(stream)
    };
    by_threads(calls, clients, connect, |stream| {
        stream.get_mut().write_all(&request).expect("the request is sent");
        read_answer(stream);
    });
}

/// Reads an answer of known length, which must be a success.
fn read_answer(stream: &mut BufReader<TcpStream>) {
    let (mut head, mut length) = (String::new(), 0);
    while head.is_empty() || !head.ends_with("\r\n\r\n") {
        let line = head.len();
        assert!(stream.read_line(&mut head).expect("an answer") > 0, "the server closed the connection: {head}");
        if let Some((name, value)) = head.get(line..).and_then(|line| line.split_once(':'))
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().expect("a length");
        }
    }
    assert!(head.starts_with("HTTP/1.1 2"), "{head}");
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("a body");
}

fn pages(url: &str, calls: usize, threads: usize, limit: usize) {
    let url = DatabaseUrl::parse(url).expect("an address");
    let open = || Context::open(&url, Handlers::default()).expect("a store");
    by_threads(calls, threads, open, |ctx| {
        let limit = i64::try_from(limit).expect("a small number");
        let page = select_page(ctx, &Selection::default(), PageStart::NEWEST, limit).expect("a page");
        assert!(!page.lines.is_empty(), "there are tasks");
    });
}
