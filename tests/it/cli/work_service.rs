//! `taskqueue work` under a service manager that expects notifications, like systemd with `Type=notify`.

use std::io::Read as _;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{Builder, spawn};
use std::time::{Duration, Instant};

use rustix::pipe::fcntl_setpipe_size;
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use taskqueue_process::identities::identity::ProcessIdentity;

use super::{ECHO, detail, printed, shell_class, signal};
use crate::conformance::fixture::insert_runner;
use crate::support::cli::finish;
use crate::support::own_server::OwnServer;
use crate::support::{Cli, TestDb, wait_until};
use crate::{each_engine, each_server};

/// Collects the notifications of a worker.
struct Manager {
    socket: PathBuf,
    messages: Receiver<String>,
}

/// A text that no worker sends.
const END: &[u8] = b"end of the test";

impl Manager {
    /// Listens in a thread, because a worker waits until its notifications are read.
    fn listen(db: &TestDb) -> Self {
        let socket = db.home().join("notify");
        let listening = UnixDatagram::bind(&socket).unwrap();
        let (sender, messages) = channel();
        let hear = move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = listening.recv(&mut buffer) {
                let message = buffer[..count].to_vec();
                if message == END || sender.send(String::from_utf8(message).unwrap()).is_err() {
                    return;
                }
            }
        };
        Builder::new().name("manager".to_owned()).spawn(hear).unwrap();
        Self { socket, messages }
    }

    /// Returns the command line as this service manager starts it.
    fn cli(&self, cli: Cli) -> Cli {
        cli.env("NOTIFY_SOCKET", self.socket.to_str().unwrap())
    }

    #[track_caller]
    fn next(&self) -> String {
        self.messages.recv_timeout(Duration::from_secs(60)).unwrap()
    }

    /// Returns all notifications up to the first that matches.
    #[track_caller]
    fn until(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut heard = Vec::new();
        loop {
            let next = self.messages.recv_timeout(Duration::from_secs(60));
            heard.push(next.unwrap_or_else(|error| panic!("{error}; heard {heard:?}")));
            if heard.last().is_some_and(|last| is_wanted(last)) {
                return heard;
            }
        }
    }

    /// Returns the remaining notifications of a worker that has ended.
    fn rest(&self) -> Vec<String> {
        UnixDatagram::unbound().unwrap().send_to(END, &self.socket).unwrap();
        self.messages.iter().collect()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = UnixDatagram::unbound().and_then(|socket| socket.send_to(END, &self.socket));
    }
}

/// Returns true if HUP, INT and TERM each have a handler in this process.
fn caught_signals(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
    [Signal::HUP, Signal::INT, Signal::TERM].iter().all(|signal| caught & (1 << (signal.as_raw() - 1)) != 0)
}

/// Returns the microseconds of the clock that the service manager uses.
fn monotonic_usec() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

each_engine! {
    fn a_service_manager_hears_the_start_the_status_and_the_end_of_a_worker(db) {
        let manager = Manager::listen(db);
        let scripts = [shell_class(db, "bad", "exit 1"), shell_class(db, "look", "env")].concat();
        db.configure(&format!("{ECHO}{scripts}"));
        let child = manager.cli(db.cli()).env("WATCHDOG_PID", "1").env("WATCHDOG_USEC", "1000").spawn(&["work"]);
        assert_eq!(manager.next(), "READY=1\nSTATUS=working\n");
        for class in ["echo", "look", "bad"] {
            db.cli().run(&["queue", class, "--max-retries", "1"]).ok();
        }
        let heard = manager.until(|message| message == "STATUS=3 executed, 1 failed, 0 in progress\n");
        assert!(heard.iter().all(|message| message.starts_with("STATUS=") && message.contains(" executed, ")), "{heard:?}");
        signal(&child, Signal::TERM);
        assert_eq!((finish(child).code, manager.rest()), (Some(0), vec!["STOPPING=1\n".to_owned()]));
        let environment = detail(db, "2");
        let environment = printed(&environment, "stdout");
        assert!(environment.contains("TASKQUEUE_TASK_ID=2"), "{environment}");
        assert!(!environment.contains("NOTIFY_") && !environment.contains("WATCHDOG_"), "{environment}");
    }

    fn a_worker_is_ready_when_it_takes_signals_and_is_registered(db) {
        let manager = Manager::listen(db);
        db.configure(ECHO);
        let child = manager.cli(db.cli()).spawn(&["work", "-v"]);
        assert_eq!(manager.next(), "READY=1\nSTATUS=working\n");
        let live = "SELECT COUNT(*) AS value FROM \"TaskQueueRunners\" WHERE \"FinishedOn\" IS NULL";
        assert_eq!((caught_signals(&child), db.number(live)), (true, 1));
        signal(&child, Signal::HUP);
        manager.until(|message| message.starts_with("RELOADING=1\n"));
        signal(&child, Signal::TERM);
        let ended = finish(child);
        assert!(ended.code == Some(0) && ended.stderr.starts_with("working as runner 1\n"), "{ended:?}");
    }

    fn a_worker_that_waits_for_slots_says_so_and_is_not_ready(db) {
        let manager = Manager::listen(db);
        db.configure(ECHO);
        insert_runner(db, &ProcessIdentity::own().unwrap(), 2);
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "3"]).ok();
        let child = manager.cli(db.cli()).spawn(&["work", "--slots", "2"]);
        assert_eq!(manager.next(), "STATUS=waiting for slots: 2 of 3 in use\n");
        signal(&child, Signal::HUP);
        db.cli().run(&["setting", "set", "TaskQueueRunnerLimit", "4"]).ok();
        assert_eq!(manager.next(), "READY=1\nSTATUS=working\n");
        assert_eq!(manager.next(), "STATUS=0 executed, 0 failed, 0 in progress\n");
        signal(&child, Signal::TERM);
        assert_eq!((finish(child).code, manager.rest()), (Some(0), vec!["STOPPING=1\n".to_owned()]));
    }

    fn a_reload_reports_its_time_and_a_bad_configuration_in_the_status(db) {
        let manager = Manager::listen(db);
        db.configure(ECHO);
        let child = manager.cli(db.cli()).spawn(&["work"]);
        manager.until(|message| message.starts_with("STATUS=0 executed"));
        for (configuration, status) in [
            ("nonsense = 1\n", "0 executed, 0 failed, 0 in progress; the new configuration was not applied: "),
            (ECHO, "0 executed, 0 failed, 0 in progress\n"),
        ] {
            db.configure(configuration);
            let before = monotonic_usec();
            signal(&child, Signal::HUP);
            let reloading = manager.next();
            let said = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").and_then(|rest| rest.trim_end().parse().ok());
            assert!(said.is_some_and(|said: i64| (before..=monotonic_usec()).contains(&said)), "{reloading}");
            let ready = manager.next();
            assert!(ready.starts_with(&format!("READY=1\nSTATUS={status}")) && ready.lines().count() == 2, "{ready}");
        }
        signal(&child, Signal::TERM);
        assert_eq!((finish(child).code, manager.rest()), (Some(0), vec!["STOPPING=1\n".to_owned()]));
    }

    fn the_watchdog_hears_of_a_worker_that_turns_and_not_of_one_that_hangs(db) {
        let manager = Manager::listen(db);
        db.configure(ECHO);
        db.cli().stdin("{\"class\":\"echo\"}\n".repeat(200)).run(&["queue", "--batch", "-"]).ok();
        let cli = manager.cli(db.cli()).env("WATCHDOG_USEC", "200000");
        let is_beat = |message: &str| message == "WATCHDOG=1\n";
        // Its output is not read, so that it hangs in the end, with all of its slots free.
        let mut child = cli.spawn(&["work", "-v", "--slots", "1"]);
        let mut said = child.stderr.take().unwrap();
        let room = fcntl_setpipe_size(&said, 4096).unwrap();
        assert!(room < 200 * 50, "{room}");
        manager.until(|message| message.starts_with("READY=1"));
        let (started, silence) = (Instant::now(), Duration::from_secs(5));
        while !matches!(manager.messages.recv_timeout(silence), Err(RecvTimeoutError::Timeout)) {
            assert!(started.elapsed() < Duration::from_secs(120), "the worker hangs and still resets the watchdog");
        }
        let reading = spawn(move || said.read_to_end(&mut Vec::new()));
        for _ in 0..3 {
            manager.until(is_beat);
        }
        signal(&child, Signal::TERM);
        assert_eq!(finish(child).code, Some(0));
        reading.join().unwrap().unwrap();
    }
}

each_server! {
    fn a_worker_whose_database_is_away_does_not_hang(db) {
        let own = OwnServer::start(db.engine);
        let db = &TestDb::on_server(db.engine, &own.url, "away");
        let manager = Manager::listen(db);
        db.configure(ECHO);
        let child = manager.cli(db.cli()).env("WATCHDOG_USEC", "200000").spawn(&["work"]);
        manager.until(|message| message.starts_with("READY=1"));
        own.halt();
        // Long enough that it has noticed: it checks once a second.
        for _ in 0..30 {
            manager.until(|message| message == "WATCHDOG=1\n");
        }
        own.again();
        db.cli().run(&["queue", "echo"]).ok();
        wait_until("it works again", || detail(db, "1")["task"]["status"] == "success");
        signal(&child, Signal::TERM);
        assert_eq!(finish(child).code, Some(0));
    }
}
