//! How long it takes from the call of `taskqueue cancel` to the TERM in the handler, on each engine. The handler is this very
//! program, which notes the time in the signal's own wake-up.
//!
//! `cargo bench --profile dev --bench cancel [-- --trials 15] [--engine postgres]`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]
#![allow(clippy::disallowed_methods, reason = "a benchmark starts the program and reads the addresses of its servers")]

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/it/support/database.rs"]
mod database;

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use taskqueue_engine::DatabaseUrl;
use taskqueue_store::Store;

use self::database::{Database, EngineUnderTest};

const HANDLER: &str = "__handler";
const ENGINES: [EngineUnderTest; 4] =
    [EngineUnderTest::Sqlite, EngineUnderTest::Postgres, EngineUnderTest::Mariadb, EngineUnderTest::Mysql];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|argument| argument == HANDLER) {
        return handle(Path::new(&arguments[2]));
    }
    let option = |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1)).cloned();
    let trials: u64 = option("--trials").map_or(15, |text| text.parse().expect("--trials takes a number"));
    let only = option("--engine");
    println!("| Engine | median | 9 of 10 | longest | `taskqueue --version` |\n|---|---|---|---|---|");
    for engine in ENGINES.into_iter().filter(|engine| only.as_deref().is_none_or(|name| name == engine.name())) {
        // Not /tmp: it may be memory, and a commit has to reach the disk.
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let Some(database) = Database::create(engine, home.path(), &format!("tq_cancel_{}", std::process::id())) else {
            eprintln!("{}: no server; eval \"$(tests/servers start)\"", engine.name());
            continue;
        };
        Store::connect(&DatabaseUrl::parse(database.url()).unwrap()).unwrap().migrate().unwrap();
        let place = Place { home: home.path(), url: database.url() };
        place.configure();
        let start = median((0..trials).map(|_| place.time_of(&["--version"])).collect());
        let mut times: Vec<Duration> = (0..trials).map(|trial| place.cancel_one(trial)).collect();
        times.sort();
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        let at = |share: usize| ms(times[(times.len() * share / 10).min(times.len() - 1)]);
        println!("| {} | {} | {} | {} | {} |", engine.name(), at(5), at(9), at(10), ms(start));
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Since boot, in nanoseconds: the same clock for all processes.
fn now_nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// Says that it has begun, waits for TERM, and notes when that came.
fn handle(directory: &Path) {
    let (mut reader, writer) = UnixStream::pair().unwrap();
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGTERM, writer).unwrap();
    std::fs::write(directory.join("begun"), "").unwrap();
    reader.read_exact(&mut [0]).unwrap();
    let term_at = now_nanos();
    std::fs::write(directory.join("term.new"), term_at.to_string()).unwrap();
    std::fs::rename(directory.join("term.new"), directory.join("term")).unwrap();
}

struct Place<'a> {
    home: &'a Path,
    url: &'a str,
}

impl Place<'_> {
    fn configure(&self) {
        let own = std::env::current_exe().unwrap();
        let user = if rustix::process::geteuid().is_root() { "user = \"root\"\n" } else { "" };
        let toml = format!("{user}[class.wait]\nargv = [{own:?}, {HANDLER:?}, {:?}]\n", self.home);
        std::fs::write(self.home.join("config.toml"), toml).unwrap();
    }

    fn start(&self, args: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_taskqueue"))
            .args(args)
            .env("TASKQUEUE_DATABASE_URL", self.url)
            .env("TASKQUEUE_CONFIG", self.home.join("config.toml"))
            .env("HOME", self.home)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn run(&self, args: &[&str]) {
        assert!(self.start(args).wait().unwrap().success(), "{args:?}");
    }

    fn time_of(&self, args: &[&str]) -> Duration {
        let started = Instant::now();
        self.run(args);
        started.elapsed()
    }

    fn wait_for(&self, name: &str) {
        let (path, started) = (self.home.join(name), Instant::now());
        while !path.exists() {
            assert!(started.elapsed() < Duration::from_secs(60), "no {name}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn cancel_one(&self, trial: u64) -> Duration {
        for name in ["begun", "term"] {
            let _ = std::fs::remove_file(self.home.join(name));
        }
        self.run(&["queue", "wait"]);
        self.run(&["create-runs"]);
        let mut runner = self.start(&["process-run"]);
        self.wait_for("begun");
        // At another point between two looks each time.
        std::thread::sleep(Duration::from_millis(700 + trial * 37 % 500));
        let called_at = now_nanos();
        self.run(&["cancel", "last"]);
        self.wait_for("term");
        assert!(runner.wait().unwrap().success());
        let term_at: u64 = std::fs::read_to_string(self.home.join("term")).unwrap().parse().unwrap();
        Duration::from_nanos(term_at - called_at)
    }
}
