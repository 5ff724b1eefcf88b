//! Private servers that their user may break, unlike the shared ones. Used by the tests and by the fault suite.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::database::EngineUnderTest;

/// Stopped, and its data removed, when it is dropped. `tests/faults` stops servers that a killed suite has left.
pub struct OwnServer {
    engine: EngineUnderTest,
    directory: tempfile::TempDir,
    /// For `tests/servers`.
    environment: Option<(&'static str, String)>,
    pub url: String,
}

impl OwnServer {
    pub fn start(engine: EngineUnderTest) -> Self {
        Self::start_with(engine, None)
    }

    /// Starts a server that accepts this many connections and no more.
    pub fn with_max_connections(engine: EngineUnderTest, max_connections: u32) -> Self {
        Self::start_with(engine, Some(("TASKQUEUE_TEST_MAX_CONNECTIONS", max_connections.to_string())))
    }

    /// Starts a MariaDB that is the only node of a Galera cluster.
    pub fn galera() -> Self {
        Self::start_with(EngineUnderTest::Mariadb, Some(("TASKQUEUE_TEST_GALERA", "yes".to_owned())))
    }

    /// Starts a server with the certificate `cert.pem` and its key `key.pem` of this directory.
    pub fn with_certificate(engine: EngineUnderTest, directory: &Path) -> Self {
        Self::start_with(engine, Some(("TASKQUEUE_TEST_CERTIFICATE", directory.display().to_string())))
    }

    fn start_with(engine: EngineUnderTest, environment: Option<(&'static str, String)>) -> Self {
        let directory = open_directory("servers-");
        let mut server = Self { engine, directory, environment, url: String::new() };
        server.tell("start");
        let env = std::fs::read_to_string(server.place().join("env")).unwrap();
        server.url = env.split('\'').nth(1).unwrap().to_owned();
        server
    }

    /// Stops it like an administrator.
    pub fn halt(&self) {
        self.tell("halt");
    }

    pub fn kill(&self) {
        self.tell("kill");
    }

    /// Starts it again, on the same port with the same data.
    pub fn again(&self) {
        self.tell("again");
    }

    fn place(&self) -> PathBuf {
        self.directory.path().join("place")
    }

    fn tell(&self, verb: &str) {
        let output = self.command(verb).arg(self.engine.name()).output().unwrap();
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn command(&self, verb: &str) -> Command {
        let script = Path::new(env!("REPOSITORY_DIR")).join("tests/servers");
        let mut command = Command::new(script);
        command.arg(verb).arg(self.place()).stdin(Stdio::null()).envs(self.environment.clone());
        command
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let _ = self.command("stop").output();
    }
}

/// Creates a directory that the user of the servers may pass through.
pub fn open_directory(prefix: &str) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    tempfile::Builder::new().prefix(prefix).permissions(std::fs::Permissions::from_mode(0o755)).tempdir().unwrap()
}
