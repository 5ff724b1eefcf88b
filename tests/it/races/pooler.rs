//! PgBouncer in transaction mode between the program and PostgreSQL: an old version, and one that knows prepared statements.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use super::stage::statuses;
use crate::support::cli::finish;
use crate::support::database::Raw;
use crate::support::own_server::open_directory;
use crate::support::proxy::Proxy;
use crate::support::{Cli, EngineUnderTest, TestDb, db, wait_until};

const NOTE: &str = "[class.note]\nargv = [\"/bin/true\"]\n";
const POOL_SIZE: usize = 4;

/// Ended when it is dropped.
struct PgBouncer {
    process: Child,
    _directory: tempfile::TempDir,
    url: String,
}

impl PgBouncer {
    fn before(db: &TestDb, version: Version) -> Self {
        let directory = open_directory("pgbouncer-");
        let (name, host) = db.name_and_host();
        let (host, port) = host.split_once(':').unwrap();
        let listen_port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let path = directory.path().join("pgbouncer.ini");
        let ini = format!(
            "[databases]\n{name} = host={host} port={port} dbname={name} user=taskqueue password=taskqueue\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {listen_port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = {POOL_SIZE}\nmax_client_conn = 500\n"
        );
        std::fs::write(&path, ini).unwrap();
        let process = version.command(&path).spawn().expect("tests/install installs pgbouncer");
        let url = format!("postgres://taskqueue@127.0.0.1:{listen_port}/{name}");
        let bouncer = Self { process, _directory: directory, url };
        wait_until("PgBouncer answers", || std::net::TcpStream::connect(("127.0.0.1", listen_port)).is_ok());
        bouncer
    }

    fn cli(&self, db: &TestDb) -> Cli {
        db.cli().env("TASKQUEUE_DATABASE_URL", &self.url)
    }

    /// Returns what an application sees in each session of the pool: its settings, and remaining advisory locks.
    fn sessions(&self) -> Vec<Vec<Option<String>>> {
        let mut all: Vec<Raw> = (0..POOL_SIZE).map(|_| Raw::connect(EngineUnderTest::Postgres, &self.url)).collect();
        // A transaction has its own session.
        all.iter_mut().for_each(|raw| raw.execute("BEGIN"));
        // The pooler itself sets the two excluded names.
        let settings = "SELECT name || '=' || setting AS value FROM pg_settings WHERE source NOT IN ('default', 'override') \
            AND name NOT IN ('application_name', 'client_encoding') UNION ALL SELECT 'lock ' || objid FROM pg_locks WHERE locktype = 'advisory' \
            AND pid = pg_backend_pid() UNION ALL SELECT 'prepared ' || name FROM pg_prepared_statements \
            UNION ALL SELECT 'listens ' || pg_listening_channels() ORDER BY 1";
        let seen = all.iter_mut().map(|raw| raw.texts(settings)).collect();
        all.iter_mut().for_each(|raw| raw.execute("COMMIT"));
        seen
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Clone, Copy)]
enum Version {
    /// That of the system.
    Stable,
    /// That of the tree in which MySQL runs, which belongs to a newer system.
    Newest,
}

impl Version {
    fn command(self, ini: &Path) -> Command {
        let program = match self {
            Self::Stable => vec!["pgbouncer".to_owned()],
            Self::Newest => {
                let tree = std::env::var("TASKQUEUE_TEST_MYSQL_ROOT").expect("tests/run sets it");
                // The program needs the libraries of its own system, and so their loader.
                let machine = std::env::consts::ARCH;
                let loader =
                    if machine == "x86_64" { "lib64/ld-linux-x86-64.so.2" } else { "lib/ld-linux-aarch64.so.1" };
                let (loader, libraries) = (format!("{tree}/{loader}"), format!("{tree}/usr/lib/{machine}-linux-gnu"));
                vec![loader, "--library-path".to_owned(), libraries, format!("{tree}/usr/sbin/pgbouncer")]
            }
        };
        // PgBouncer refuses to run as root.
        let is_root = rustix::process::geteuid().is_root();
        let user: &[&str] = if is_root { &["--reuid=nobody", "--regid=nogroup", "--clear-groups"] } else { &[] };
        let sbin = "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin";
        let mut command = Command::new("setpriv");
        command.args(user).args(program).arg("-q").arg(ini).env("PATH", sbin);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }
}

/// Checks both versions, each before a database of its own.
fn through_each_version(check: impl Fn(&TestDb, &PgBouncer)) {
    for version in [Version::Stable, Version::Newest] {
        db::on(EngineUnderTest::Postgres, |db| check(db, &PgBouncer::before(db, version)));
    }
}

#[test]
fn no_verb_leaves_anything_in_the_sessions_of_a_pool() {
    through_each_version(|db, bouncer| {
        db.configure(NOTE);
        let before = bouncer.sessions();
        let cli = bouncer.cli(db);
        for args in [
            &["db", "migrate"][..],
            &["queue", "note"],
            &["queue", "note", "--unique", "k"],
            &["status"],
            &["create-runs"],
            &["process-run"],
            &["tick"],
            &["work", "--idle-exit", "0s"],
            &["wait", "1", "2"],
            &["setting"],
            &["setting", "set", "TaskQueueRunnerLimit", "9"],
            &["explain", "1"],
            &["runner"],
            &["events"],
            &["metrics"],
            &["check"],
            &["prune", "--older-than", "7d", "--yes"],
            &["export"],
            &["queue", "note", "--in", "1h", "--limit-key", "k", "--tag", "t"],
            &["edit", "3", "--priority", "5"],
            &["cancel", "3"],
            &["retry", "3"],
            &["queue", "note", "--every", "1h"],
            &["schedule"],
            &["schedule", "pause", "4"],
            &["schedule", "resume", "4"],
            &["pause", "--class", "note"],
            &["resume", "--class", "note"],
            &["limit", "set", "--key", "k", "--running", "2"],
            &["limit"],
            &["failures"],
            &["logs", "1"],
            &["class"],
            &["queue", "note", "--run"],
            &["queue", "note", "--after", "1"],
            &["worker", "claim", "--claimant", "me", "--class", "note"],
        ] {
            let ended = cli.run(args);
            assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
            assert_eq!(bouncer.sessions(), before, "{args:?}");
        }
        assert_eq!(statuses(db)[..2], ["success", "success"]);
    });
}

#[test]
fn tables_are_made_through_a_pool() {
    through_each_version(|db, bouncer| {
        db.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public");
        let before = bouncer.sessions();
        bouncer.cli(db).run(&["db", "migrate"]).ok();
        bouncer.cli(db).run(&["status"]).ok();
        assert_eq!(bouncer.sessions(), before);
    });
}

#[test]
fn many_clients_and_workers_share_a_pool_and_lose_nothing() {
    through_each_version(|db, bouncer| {
        db.configure(&format!("connect_wait_secs = 600\n{NOTE}"));
        let before = bouncer.sessions();
        let cli = bouncer.cli(db);
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| (0..10).for_each(|_| drop(cli.run(&["queue", "note"]).ok())));
            }
        });
        let workers: Vec<Child> = (0..4).map(|_| cli.spawn(&["work", "--slots", "2", "--idle-exit", "0s"])).collect();
        for ended in workers.into_iter().map(finish) {
            assert_eq!(ended.code, Some(0), "{ended:?}");
            assert!(!ended.stderr.contains("prepared statement"), "{ended:?}");
        }
        assert_eq!(statuses(db), vec!["success"; 160]);
        assert_eq!(bouncer.sessions(), before);
    });
}

#[test]
fn doctor_says_whether_a_pooler_was_found_or_declared() {
    through_each_version(|db, bouncer| {
        let pooler = |url: &str| {
            let ended = db.cli().env("TASKQUEUE_DATABASE_URL", url).run(&["--json", "doctor"]);
            serde_json::from_str::<serde_json::Value>(&ended.stdout).unwrap()["pooler"].clone()
        };
        let [direct, through] = [db.url_text(), &bouncer.url];
        assert_eq!(pooler(direct), "not-found");
        assert_eq!(pooler(through), "found");
        for declared in ["none", "session", "transaction"] {
            assert_eq!(pooler(&format!("{direct}?pooler={declared}")), declared);
        }
        let words = bouncer.cli(db).run(&["doctor"]).stdout;
        assert!(words.contains("A pooler was found between this host and the server"), "{words}");
        let unknown = db.cli().env("TASKQUEUE_DATABASE_URL", &format!("{direct}?pooler=statement"));
        let stderr = unknown.run(&["status"]).fails(78);
        assert!(stderr.contains("a pooler that is not one of none, session, transaction"), "{stderr}");
    });
}

#[test]
fn a_proxy_that_keeps_sessions_is_no_pooler() {
    db::on(EngineUnderTest::Postgres, |db| {
        let proxy = Proxy::start("127.0.0.1", db.url_text());
        let cli = db.cli().env("TASKQUEUE_DATABASE_URL", &proxy.url);
        let doctor: serde_json::Value = serde_json::from_str(&cli.run(&["--json", "doctor"]).stdout).unwrap();
        assert_eq!(doctor["pooler"], "not-found");
    });
}
