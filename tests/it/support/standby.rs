//! A PostgreSQL primary with a synchronous standby, both private to their user, with any number of failovers between them. No
//! acknowledged commit is lost: each COMMIT waits until the standby has it, so writers wait while there is no standby.
//!
//! ```text
//! let mut pair = Pair::start(&directory);   // an empty directory that others may pass through
//! connect(&pair.url());                     // both hosts, the user and the database are there
//! pair.fail_over();                         // a few seconds
//! ```
//!
//! Uses only std and the programs of PostgreSQL, so that other programs can include this file.

#![allow(dead_code, reason = "each program that includes it uses its own part")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The only user, a superuser.
const USER: &str = "taskqueue";
/// The time limit for any operation.
const LIMIT: Duration = Duration::from_secs(60);

/// The two servers. Both are stopped when it is dropped; the directory is left to the caller.
pub struct Pair {
    directory: PathBuf,
    programs: PathBuf,
    ports: [u16; 2],
    servers: [Option<Child>; 2],
    primary: usize,
}

impl Pair {
    /// Starts both in this directory, with an empty database. Returns when the standby is in sync.
    pub fn start(directory: &Path) -> Self {
        let [first, second] = free_ports();
        let mut pair = Self {
            directory: directory.join("pair"),
            programs: programs(),
            ports: [first, second],
            servers: [None, None],
            primary: 0,
        };
        fs::create_dir(&pair.directory).unwrap();
        fs::set_permissions(&pair.directory, fs::Permissions::from_mode(0o755)).unwrap();
        let password = pair.directory.join("password");
        fs::write(&password, USER).unwrap();
        if let Some(user) = server_user() {
            chown(&pair.directory, Some(user), None).unwrap();
            chown(&password, Some(user), None).unwrap();
        }
        pair.run("initdb", &["--no-sync", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"], |initdb| {
            initdb.args(["--username", USER]).arg("--pgdata").arg(pair.data(0));
            initdb.arg("--pwfile").arg(&password);
        });
        pair.launch(0);
        pair.wait("the primary answers", 0, "postgres", "SELECT 1");
        // Without a standby, nothing is committed unless this is set.
        pair.ask(0, "postgres", &format!("SET synchronous_commit = local; CREATE DATABASE {USER}")).unwrap();
        pair.add_standby();
        pair
    }

    /// Returns the address of both, in a fixed order.
    pub fn url(&self) -> String {
        let [first, second] = self.ports;
        format!("postgres://{USER}:{USER}@127.0.0.1:{first},127.0.0.1:{second}/{USER}")
    }

    /// Returns the address of the current standby only.
    pub fn standby_url(&self) -> String {
        format!("postgres://{USER}:{USER}@127.0.0.1:{}/{USER}", self.ports[1 - self.primary])
    }

    /// Kills the primary, promotes the standby, and starts a new standby in place of the old primary. Returns when the new
    /// standby is in sync, so that the next failover loses nothing either.
    pub fn fail_over(&mut self) {
        self.kill_primary();
        self.promote();
        self.add_standby();
    }

    /// The first part of a failover: from now on, nothing can be written.
    fn kill_primary(&mut self) {
        stop(&mut self.servers[self.primary]);
    }

    /// The second part: the standby accepts connections, and writers wait for a new standby.
    fn promote(&mut self) {
        self.primary = 1 - self.primary;
        assert_eq!(self.ask(self.primary, "postgres", "SELECT pg_promote(true, 60)").unwrap(), "t");
    }

    /// The last part.
    fn add_standby(&mut self) {
        let standby = 1 - self.primary;
        let _ = fs::remove_dir_all(self.data(standby));
        let port = self.ports[self.primary].to_string();
        let options =
            ["--host=127.0.0.1", "--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf", "--no-sync"];
        self.run("pg_basebackup", &options, |backup| {
            backup.args(["--port", &port, "--username", USER]).arg("--pgdata").arg(self.data(standby));
        });
        self.launch(standby);
        let in_step =
            "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')";
        self.wait("the standby is in step", self.primary, "postgres", in_step);
        // Otherwise it could become the primary before it has accepted any client.
        self.wait("the standby answers", standby, "postgres", "SELECT 1");
    }

    fn data(&self, server: usize) -> PathBuf {
        self.directory.join(format!("data{server}"))
    }

    fn launch(&mut self, server: usize) {
        let log = File::options().create(true).append(true).open(self.directory.join(format!("log{server}"))).unwrap();
        let mut postgres = self.command("postgres");
        postgres.arg("-D").arg(self.data(server)).args(["-p", &self.ports[server].to_string(), "-k", ""]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "max_connections=300",
            "synchronous_standby_names=*",
            // The writes of a killed process are kept; only a crash of the machine could lose them.
            "fsync=off",
            // Its shared memory is deleted with its data, however it ends.
            "dynamic_shared_memory_type=mmap",
            "wal_receiver_timeout=5s",
            "wal_retrieve_retry_interval=100ms",
        ] {
            postgres.args(["-c", setting]);
        }
        let output = log.try_clone().unwrap();
        self.servers[server] = Some(postgres.stdin(Stdio::null()).stdout(output).stderr(log).spawn().unwrap());
    }

    /// Returns a program of PostgreSQL, to be run as the user of the servers.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let path = self.programs.join(program.as_ref());
        let mut command = match server_user() {
            None => Command::new(path),
            Some(user) => {
                let mut command = Command::new("setpriv");
                let ids = [format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()];
                command.args(ids).arg(path);
                command
            }
        };
        // The caller's own settings must not select another server.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
            command.env_remove(name);
        }
        command.env("PGPASSWORD", USER).current_dir("/");
        command
    }

    fn run(&self, program: &str, options: &[&str], add: impl FnOnce(&mut Command)) {
        let mut command = self.command(program);
        command.args(options);
        add(&mut command);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Returns the first value of the answer of one of the servers.
    fn ask(&self, server: usize, database: &str, sql: &str) -> Result<String, String> {
        let port = self.ports[server].to_string();
        let mut psql = self.command("psql");
        psql.args(["-qXAtw", "-h", "127.0.0.1", "-p", &port, "-U", USER, "-d", database, "-v", "ON_ERROR_STOP=1"]);
        for statement in sql.split("; ") {
            psql.args(["-c", statement]);
        }
        let Output { status, stdout, stderr } = psql.output().map_err(|error| error.to_string())?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if status.success() { Ok(text(&stdout)) } else { Err(text(&stderr)) }
    }

    fn wait(&self, what: &str, server: usize, database: &str, sql: &str) {
        let started = Instant::now();
        loop {
            let answer = self.ask(server, database, sql);
            if answer.as_deref() == Ok("1") {
                return;
            }
            let log = || fs::read_to_string(self.directory.join(format!("log{server}"))).unwrap_or_default();
            assert!(started.elapsed() < LIMIT, "timed out waiting until {what}: {answer:?}\n{}", log());
            std::thread::sleep(Duration::from_millis(30));
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.servers.iter_mut().for_each(stop);
    }
}

/// Kills it; its children exit when they notice that.
fn stop(server: &mut Option<Child>) {
    if let Some(mut server) = server.take() {
        let _ = server.kill();
        let _ = server.wait();
    }
}

/// Returns the user for the servers: PostgreSQL refuses to run as root, so root runs it as nobody.
fn server_user() -> Option<u32> {
    (fs::metadata("/proc/self").unwrap().uid() == 0).then_some(65_534)
}

/// Returns the newest of Debian's versions, each in its own folder; otherwise what is in PATH.
fn programs() -> PathBuf {
    let version = |path: &PathBuf| path.file_name().and_then(OsStr::to_str).and_then(|name| name.parse::<u32>().ok());
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let newest = versions.filter(|path| path.join("bin/initdb").exists()).max_by_key(version);
    newest.map(|path| path.join("bin")).unwrap_or_default()
}

/// Returns ports below those that the kernel gives to clients, so that no connection takes one while its server is down.
fn free_ports() -> [u16; 2] {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
    let seed = u64::from(nanos / 1_000) + u64::from(std::process::id()) * 7_919;
    let mut ports = (seed..).map(|number| 20_000 + u16::try_from(number % 12_000).unwrap());
    let mut free = ports.by_ref().filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    [free.next().unwrap(), free.next().unwrap()]
}
