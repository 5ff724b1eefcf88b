//! The HTTP server of `taskqueue work` for monitoring.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::Signal;

use super::{ECHO, shell_class, signal};
use crate::races::outage::Outage;
use crate::races::stage::{Stage, column, shorten_leases, statuses, wait_dead};
use crate::support::cli::finish;
use crate::support::db::on;
use crate::support::exposition::Exposition;
use crate::support::own_server::OwnServer;
use crate::support::{Cli, EngineUnderTest, TestDb, wait_until};
use crate::{each_engine, each_server};

/// Returns a port that is free at every address and below those that the kernel gives to clients. A client of another test
/// could otherwise occupy it for a server that listens at all addresses.
fn port_that_no_client_gets() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(12_000);
    loop {
        let port = NEXT.fetch_add(1, Ordering::Relaxed);
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// A worker with a metrics address, and its messages.
pub(super) struct Worker {
    child: Child,
    said: Receiver<String>,
    pub(super) address: String,
}

impl Worker {
    #[track_caller]
    pub(super) fn start(db: &TestDb, arguments: &[&str]) -> Self {
        Self::start_as(&db.cli(), arguments)
    }

    #[track_caller]
    pub(super) fn start_as(cli: &Cli, arguments: &[&str]) -> Self {
        let mut child = cli.spawn(&[&["work", "-v", "--slots", "2"], arguments].concat());
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, said) = channel();
        // Reads to the end, because a full pipe would block the worker.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| drop(sender.send(line))));
        let mut worker = Self { child, said, address: String::new() };
        worker.address = worker.next_address();
        worker
    }

    /// Returns the next address in its messages.
    #[track_caller]
    fn next_address(&self) -> String {
        loop {
            let line = self.said.recv_timeout(Duration::from_secs(60)).unwrap();
            if let Some(address) = line.strip_prefix("metrics at ") {
                return address.to_owned();
            }
        }
    }

    fn metrics(&self) -> Exposition {
        let (status, body) = get(&self.address, "/metrics").unwrap();
        assert_eq!(status, 200, "{body}");
        Exposition::parse(&body)
    }

    fn health(&self) -> (u16, String) {
        get(&self.address, "/healthz").unwrap()
    }

    pub(super) fn end(self) {
        signal(&self.child, Signal::TERM);
        assert_eq!(finish(self.child).code, Some(0));
    }
}

fn connect(address: &str) -> std::io::Result<Box<dyn Stream>> {
    Ok(match address.strip_prefix("unix:") {
        Some(path) => Box::new(UnixStream::connect(path)?),
        None => Box::new(TcpStream::connect(address)?),
    })
}

trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// Returns the status and the body.
fn ask(address: &str, request: &str) -> std::io::Result<(u16, String)> {
    let mut stream = connect(address)?;
    stream.write_all(request.as_bytes())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{reply:?}"));
    let status = head.strip_prefix("HTTP/1.1 ").unwrap()[..3].parse().unwrap();
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    Ok((status, body.to_owned()))
}

pub(super) fn get(address: &str, path: &str) -> std::io::Result<(u16, String)> {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"))
}

each_engine! {
    fn a_worker_counts_what_it_does_and_tells_it_while_it_works(db) {
        db.configure(&format!("{ECHO}{}", shell_class(db, "bad", "exit 65")));
        let worker = Worker::start(db, &["--metrics", "127.0.0.1:0"]);
        // A client that sends no request blocks no other client.
        let _silent = connect(&worker.address).unwrap();
        let lines = ["{\"class\":\"echo\"}\n".repeat(20), "{\"class\":\"bad\"}\n".repeat(3)].concat();
        db.cli().stdin(lines).run(&["queue", "--batch", "-"]).ok();
        let ended = |found: &Exposition| -> f64 {
            let counted = found.values.iter().filter(|(key, _)| key.starts_with("taskqueue_worker_runs_ended_total{"));
            counted.filter(|(key, _)| !key.contains("\"released\"")).map(|(_, value)| value).sum()
        };
        wait_until("all have ended", || ended(&worker.metrics()) >= 23.0);
        let found = worker.metrics();
        for (key, value) in [
            ("runs_ended_total{class=\"echo\",outcome=\"success\"}", 20.0),
            ("runs_ended_total{class=\"bad\",outcome=\"error\"}", 3.0),
            ("run_duration_seconds_count{class=\"echo\"}", 20.0),
            ("run_duration_seconds_count{class=\"bad\"}", 3.0),
            ("run_wait_seconds_count{class=\"bad\"}", 3.0),
            ("slots", 2.0),
            ("database_up", 1.0),
        ] {
            assert_eq!(found.value(&format!("taskqueue_worker_{key}")), value, "{key}: {:#?}", found.values);
        }
        assert!(found.value("taskqueue_worker_runs_claimed_total{class=\"echo\"}") >= 20.0);
        assert!(found.value("taskqueue_worker_commit_duration_seconds_count") >= 1.0);
        assert!(found.value("taskqueue_worker_handler_cpu_seconds_total{class=\"bad\"}") >= 0.0);
        assert!(found.value("taskqueue_worker_resident_memory_bytes") > 1_000_000.0);
        assert!(found.value("taskqueue_worker_start_time_seconds") > 1_700_000_000.0);
        assert_eq!(found.value("taskqueue_up"), 1.0);
        assert_eq!(worker.health(), (200, "ok\n".to_owned()));
        // The numbers of the store are cached for a few seconds.
        wait_until("the store shows them", || worker.metrics().values.get("taskqueue_recently_over_tasks{status=\"success\"}") == Some(&20.0));
        assert_eq!(worker.metrics().value("taskqueue_runner_slots"), 2.0);
        for (request, status) in [
            ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
            ("GET /metrics HTTP/1.1\r\nHost: rebound.example\r\n\r\n", 421),
            ("POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 405),
            ("nonsense\r\n\r\n", 400),
        ] {
            assert_eq!(ask(&worker.address, request).unwrap().0, status, "{request}");
        }
        let address = worker.address.clone();
        worker.end();
        assert!(connect(&address).is_err());
    }

    fn a_reload_moves_the_metrics_address_and_keeps_the_old_one_on_failure(db) {
        let place = |name: &str| format!("unix:{}", db.home().join(name).display());
        let configure = |address: &str| db.configure(&format!("metrics = \"{address}\"\n{ECHO}"));
        configure(&place("one.sock"));
        let worker = Worker::start(db, &[]);
        assert_eq!((worker.address.as_str(), worker.health().0), (place("one.sock").as_str(), 200));
        configure(&place("two.sock"));
        signal(&worker.child, Signal::HUP);
        assert_eq!(worker.next_address(), place("two.sock"));
        wait_until("the old one is left", || connect(&place("one.sock")).is_err());
        assert_eq!(get(&place("two.sock"), "/healthz").unwrap().0, 200);
        let _others = UnixListener::bind(db.home().join("three.sock")).unwrap();
        configure(&place("three.sock"));
        signal(&worker.child, Signal::HUP);
        let warning = format!("warning: cannot listen at {} for metrics, nothing changes: ", place("three.sock"));
        wait_until("it prints the warning", || worker.said.try_recv().is_ok_and(|line| line.starts_with(&warning)));
        assert_eq!(get(&place("two.sock"), "/healthz").unwrap().0, 200);
        worker.end();
        assert!(!db.home().join("two.sock").exists() && db.home().join("three.sock").exists());
    }

    fn a_release_delayed_by_an_outage_counts_once_when_it_is_recorded(db) {
        shorten_leases(db);
        let stage = Stage::new(db, false);
        let mut outage = Outage::of(db);
        db.cli().run(&["queue", "stage"]).ok();
        let cli = db.cli().env("TASKQUEUE_DATABASE_URL", outage.url());
        let worker = Worker::start_as(&cli, &["--metrics", "127.0.0.1:0"]);
        let handler = stage.actor("handler");
        wait_until("the handler is recorded", || column(db, "HandlerIdentity") == Some(handler.to_string()));
        outage.begin(db);
        // Because its lease could not be renewed.
        wait_dead("the handler", &handler);
        outage.end();
        let ended = |outcome: &str| {
            let key = format!("taskqueue_worker_runs_ended_total{{class=\"stage\",outcome=\"{outcome}\"}}");
            worker.metrics().values.get(&key).copied()
        };
        wait_until("the released run is counted", || ended("released") == Some(1.0));
        let _go = stage.go();
        wait_until("the next run is counted", || ended("success") == Some(1.0));
        assert_eq!(ended("released"), Some(1.0));
        assert_eq!(worker.metrics().value("taskqueue_worker_runs_claimed_total{class=\"stage\"}"), 2.0);
        assert_eq!(statuses(db), ["released", "success"]);
        worker.end();
    }

    fn the_host_of_the_address_can_change_without_its_port(db) {
        let configure = |address: &str| db.configure(&format!("metrics = \"{address}\"\n{ECHO}"));
        let port = port_that_no_client_gets();
        let at = |host: &str| format!("{host}:{port}");
        configure(&at("127.0.7.1"));
        let worker = Worker::start(db, &[]);
        let answers = |host: &str| get(&at(host), "/healthz").is_ok();
        for host in ["127.0.7.2", "0.0.0.0", "127.0.7.1"] {
            configure(&at(host));
            signal(&worker.child, Signal::HUP);
            assert_eq!(worker.next_address(), at(host));
            for asked in ["127.0.7.1", "127.0.7.2"] {
                if [asked, "0.0.0.0"].contains(&host) {
                    assert!(answers(asked), "{asked} of {host}");
                } else {
                    wait_until("it is nowhere else", || connect(&at(asked)).is_err());
                }
            }
        }
        // For every other host it must close its own address, and returns to it.
        let _others = TcpListener::bind(at("127.0.7.2")).unwrap();
        configure(&at("0.0.0.0"));
        signal(&worker.child, Signal::HUP);
        let warning = format!("warning: cannot listen at {} for metrics, nothing changes: ", at("0.0.0.0"));
        wait_until("it prints the warning", || worker.said.try_recv().is_ok_and(|line| line.starts_with(&warning)));
        assert!(answers("127.0.7.1"));
        worker.end();
    }
}

each_server! {
    fn a_worker_without_its_database_reports_it_and_serves_its_own_numbers(db) {
        let own = OwnServer::start(db.engine);
        let db = &TestDb::on_server(db.engine, &own.url, "watched");
        db.configure(ECHO);
        let worker = Worker::start(db, &["--metrics", "127.0.0.1:0"]);
        wait_until("it is healthy", || worker.health().0 == 200);
        own.halt();
        wait_until("it says so", || worker.health() == (503, "the database is unavailable\n".to_owned()));
        wait_until("so do its numbers", || {
            let found = worker.metrics();
            found.value("taskqueue_up") == 0.0 && found.value("taskqueue_worker_database_up") == 0.0
        });
        assert_eq!(worker.metrics().value("taskqueue_worker_slots"), 2.0);
        own.again();
        wait_until("it is healthy again", || worker.health().0 == 200);
        assert_eq!(worker.metrics().value("taskqueue_worker_database_up"), 1.0);
        worker.end();
    }
}

#[test]
fn a_taken_address_ends_a_worker_at_its_start_and_an_open_one_warns() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let socket = db.home().join("socket");
        let _listening = UnixListener::bind(&socket).unwrap();
        let file = super::write(db, "file", "mine");
        for address in [address, format!("unix:{}", socket.display()), format!("unix:{}", file.display())] {
            let stderr = db.cli().run(&["work", "--idle-exit", "0s", "--metrics", &address]).fails(1);
            let (error, hint) = super::error_and_hint(&stderr);
            let expected = format!("error: cannot listen at {address} for metrics: Address already in use");
            assert!(error.starts_with(&expected) && hint.contains("another worker"), "{error}");
        }
        assert_eq!((std::fs::read_to_string(&file).unwrap().as_str(), socket.exists()), ("mine", true));
        assert_eq!(db.cli().run(&["work", "--metrics", "somewhere"]).code, Some(2));
        let ended = db.cli().run(&["work", "--idle-exit", "0s", "--metrics", "0.0.0.0:0"]);
        assert!(ended.stderr.starts_with("warning: anyone who can reach 0.0.0.0:"), "{ended:?}");
        // The socket of a process that has exited.
        drop(UnixListener::bind(db.home().join("stale")).unwrap());
        let stale = format!("unix:{}", db.home().join("stale").display());
        assert_eq!(db.cli().run(&["work", "--idle-exit", "0s", "--metrics", &stale]).ok(), "");
    });
}

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("REPOSITORY_DIR")).join(name)).unwrap()
}

/// Returns every name of a metric in a text.
fn names(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("taskqueue_")).map(str::to_owned).collect()
}

#[test]
fn the_metrics_of_dashboard_alerts_and_page_exist_and_the_page_has_all() {
    on(EngineUnderTest::Sqlite, |db| {
        db.configure(ECHO);
        let worker = Worker::start(db, &["--metrics", "127.0.0.1:0"]);
        wait_until("the numbers of the store are served", || worker.metrics().types.len() > 20);
        let types = worker.metrics().types;
        worker.end();
        let dashboard: serde_json::Value = serde_json::from_str(&read("contrib/grafana/taskqueue.json")).unwrap();
        assert_eq!(dashboard["templating"]["list"][0]["type"], "datasource");
        assert!(dashboard["panels"].as_array().unwrap().len() >= 10);
        for file in ["contrib/grafana/taskqueue.json", "contrib/prometheus/alerts.yml"] {
            let names = names(&read(file));
            assert!(names.len() >= 10, "{file}: {names:?}");
            for name in names {
                let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
                let is_histogram =
                    family.is_some_and(|family| types.get(family).is_some_and(|kind| kind == "histogram"));
                assert!(is_histogram || types.contains_key(&name), "{file}: {name}");
            }
        }
        let page = read("docs/metrics.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `taskqueue_"));
        let documented: BTreeMap<String, String> = rows
            .map(|row| {
                let cells: Vec<&str> = row.split('|').map(str::trim).collect();
                (format!("taskqueue_{}", cells[0].trim_end_matches('`')), cells[1].to_owned())
            })
            .collect();
        assert_eq!(documented, types);
    });
}
