//! The program as a user runs it: with its own home and a clean environment.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Returns the path of a test's configuration.
fn config_path(home: &Path) -> PathBuf {
    home.join(".config/taskqueue/config.toml")
}

/// Writes the configuration of the user with this home. If the user is root, handlers run as root; otherwise nothing would run
/// on a server.
pub fn configure(home: &Path, toml: &str) {
    let user = if rustix::process::geteuid().is_root() { "user = \"root\"\n" } else { "" };
    configure_exactly(home, &format!("{user}{toml}"));
}

/// Writes exactly this text.
pub fn configure_exactly(home: &Path, toml: &str) {
    let path = config_path(home);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, toml).unwrap();
}

/// The result of a command.
#[must_use = "look at the exit status, the output or both"]
#[derive(Clone, Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    fn new(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Checks for exit status 0; returns standard output without its last newline.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout.trim_end().to_owned()
    }

    /// Checks for this exit status and an empty standard output; returns standard error.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        self.stderr
    }

    /// Parses standard output as one JSON value.
    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }
}

/// A command line that is being built.
#[derive(Clone, Debug)]
pub struct Cli {
    home: PathBuf,
    program: PathBuf,
    env: Vec<(String, OsString)>,
    stdin: Vec<u8>,
}

impl Cli {
    pub fn new(home: &Path) -> Self {
        Self {
            home: home.to_owned(),
            program: env!("CARGO_BIN_EXE_taskqueue").into(),
            env: Vec::new(),
            stdin: Vec::new(),
        }
    }

    /// Runs another program with the same command line.
    pub fn program(mut self, program: &Path) -> Self {
        self.program = program.to_owned();
        self
    }

    pub fn env(self, name: &str, value: &str) -> Self {
        self.raw_env(name, value.as_ref())
    }

    /// Sets a variable that need not be text.
    pub fn raw_env(mut self, name: &str, value: &OsStr) -> Self {
        self.env.retain(|(other, _)| other != name);
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn without_env(mut self, name: &str) -> Self {
        self.env.retain(|(other, _)| other != name);
        self
    }

    pub fn stdin(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.stdin = input.into();
        self
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &self.home)
            .env("LANG", "C.UTF-8")
            .env("TZ", "UTC")
            .envs(self.env.iter().cloned())
            .current_dir(&self.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Starts it; the caller must wait for it.
    pub fn spawn(&self, args: &[&str]) -> Child {
        let mut child = self.command(args).spawn().unwrap();
        // A program that ends before it has read its input is no failure.
        let _ = child.stdin.take().unwrap().write_all(&self.stdin);
        child
    }

    /// Starts it with this standard input; the caller must wait for it.
    pub fn spawn_with_input(&self, input: impl Into<Stdio>, args: &[&str]) -> Child {
        self.command(args).stdin(input).spawn().unwrap()
    }

    /// Runs it until it ends.
    pub fn run(&self, args: &[&str]) -> Ended {
        finish(self.spawn(args))
    }
}

/// Waits for the end of a started program.
pub fn finish(child: Child) -> Ended {
    Ended::new(&child.wait_with_output().unwrap())
}

/// Returns the verbs that the help of the program lists, under any heading.
pub fn listed_verbs(help: &str) -> Vec<&str> {
    let before_examples = help.split("\nExamples:").next().unwrap_or_default();
    let listed = before_examples.lines().filter_map(|line| line.strip_prefix("  "));
    let listed = listed.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    listed.filter_map(|line| line.split_whitespace().next()).collect()
}
