//! A server of a test's own, for tests that break it: the shared ones are left alone.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::db::{EngineUnderTest, TestDb};

/// Stopped, and its data removed, when it is dropped.
pub struct OwnServer {
    engine: EngineUnderTest,
    directory: TempDir,
}

impl OwnServer {
    pub fn start(engine: EngineUnderTest) -> Self {
        let server = Self { engine, directory: open_directory() };
        server.tell("start");
        server
    }

    /// A migrated database on it.
    pub fn database(&self, name: &str) -> TestDb {
        let env = std::fs::read_to_string(self.place().join("env")).unwrap();
        TestDb::on_server(self.engine, env.split('\'').nth(1).unwrap(), name)
    }

    /// Stops it as an administrator would.
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

    fn place(&self) -> std::path::PathBuf {
        self.directory.path().join("servers")
    }

    fn tell(&self, verb: &str) {
        let output = self.command(verb).arg(self.engine.name()).output().unwrap();
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn command(&self, verb: &str) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers");
        let mut command = Command::new(script);
        command.arg(verb).arg(self.place()).stdin(Stdio::null());
        command
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let _ = self.command("stop").output();
    }
}

/// A directory through which the servers' own user may pass.
pub fn open_directory() -> TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o755)).tempdir().unwrap()
}
