//! Runs the program like a caller, and records the result.

use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::records::{Call, Fate};
use super::stage::Stage;

/// The time limit of a command, after which it counts as hanging.
const LIMIT: Duration = Duration::from_secs(120);

/// A command line that is being built.
pub struct Command<'a> {
    stage: &'a Stage,
    args: Vec<String>,
    prefix: Vec<String>,
    env: Vec<(String, String)>,
    stdin: String,
    queues: Option<(String, usize)>,
    fault: Option<String>,
    answers: Vec<i32>,
}

/// A command that was started.
pub struct Running<'a> {
    stage: &'a Stage,
    pub child: Child,
    call: Call,
    fault: Option<String>,
    has_ended: bool,
}

impl Call {
    pub fn is_ok(&self) -> bool {
        self.fate == Fate::Exited(0)
    }
}

impl<'a> Command<'a> {
    pub fn new(stage: &'a Stage, args: &[&str]) -> Self {
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        let (prefix, env) = (stage.prefix.borrow().clone(), stage.env.borrow().clone());
        Self { stage, args, prefix, env, stdin: String::new(), queues: None, fault: None, answers: Vec::new() }
    }

    /// Runs this command line under another program, such as strace.
    pub fn under(mut self, prefix: &[&str]) -> Self {
        self.prefix = prefix.iter().map(|&word| word.to_owned()).collect();
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn stdin(mut self, text: String) -> Self {
        self.stdin = text;
        self
    }

    /// Declares that it queues this many tasks, whose data contain this text.
    pub fn queues(mut self, marker: &str, count: usize) -> Self {
        self.queues = Some((marker.to_owned(), count));
        self
    }

    /// Allows it to end with one of these statuses, for example because its task no longer exists.
    pub fn may_answer(mut self, answers: &[i32]) -> Self {
        self.answers = answers.to_vec();
        self
    }

    /// Kills, stops or delays it: `label=ACTION@HIT`.
    pub fn fault(mut self, fault: &str) -> Self {
        self.fault = Some(fault.to_owned());
        self
    }

    /// Appends every step that it reaches to this file.
    pub fn log(self, path: &std::path::Path) -> Self {
        self.env("TASKQUEUE_FAULT_LOG", &path.display().to_string())
    }

    pub fn spawn(self) -> Running<'a> {
        let program = self.stage.program.clone();
        let mut words: Vec<PathBuf> = self.prefix.iter().map(PathBuf::from).collect();
        words.push(program);
        let mut command = std::process::Command::new(&words[0]);
        command
            .args(&words[1..])
            .args(&self.args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.stage.home())
            .env("LANG", "C.UTF-8")
            .env("TASKQUEUE_DATABASE_URL", self.stage.url())
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.stage.home())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(fault) = &self.fault {
            command.env("TASKQUEUE_FAULT", fault);
        }
        let began = Instant::now();
        let mut child = command.spawn().unwrap();
        // A program that ends before it has read its input is no failure.
        let _ = child.stdin.take().unwrap().write_all(self.stdin.as_bytes());
        let call = Call {
            args: self.args,
            pid: i64::from(child.id()),
            fate: Fate::Killed(None),
            began,
            ended: began,
            answers: self.answers,
            queues: self.queues,
            ids: Vec::new(),
            stdout: String::new(),
            stderr: String::new(),
        };
        Running { stage: self.stage, child, call, fault: self.fault, has_ended: false }
    }

    /// Runs it until it ends.
    pub fn run(self) -> Call {
        self.spawn().wait()
    }
}

impl Running<'_> {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Continues it after a stop.
    pub fn go_on(&self) {
        let pid = rustix::process::Pid::from_raw(self.pid()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
    }

    /// Waits until it has stopped itself; false if it ended instead.
    pub fn wait_until_stopped(&mut self) -> bool {
        loop {
            if state_of(self.pid()) == Some('T') {
                return true;
            }
            if self.has_exited(Duration::from_millis(1)) {
                return false;
            }
        }
    }

    /// Returns true if it ends within this time; it still has to be waited for.
    pub fn has_exited(&mut self, within: Duration) -> bool {
        let started = Instant::now();
        loop {
            // It stays a zombie until it is waited for, so that its PID cannot be reused.
            if matches!(state_of(self.pid()), Some('Z') | None) {
                return true;
            }
            if started.elapsed() >= within {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for its end and records it; if it hangs, it is killed, and the trial fails.
    pub fn wait(mut self) -> Call {
        let started = Instant::now();
        let mut pause = Duration::from_micros(200);
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if started.elapsed() > LIMIT {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("{:?} did not end within {} seconds", self.call.args, LIMIT.as_secs());
            }
            std::thread::sleep(pause);
            pause = (pause * 3 / 2).min(Duration::from_millis(5));
        };
        self.has_ended = true;
        self.call.ended = Instant::now();
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let _ = self.child.stdout.take().unwrap().read_to_string(&mut stdout);
        let _ = self.child.stderr.take().unwrap().read_to_string(&mut stderr);
        self.call.fate = match (status.code(), status.signal()) {
            (Some(code), _) => Fate::Exited(code),
            // Another signal was not sent by the suite: the program has crashed.
            (None, Some(9)) => {
                Fate::Killed(self.fault.as_deref().and_then(|fault| fault.split('=').next()).map(str::to_owned))
            }
            (None, signal) => panic!("{:?} ended by signal {signal:?}: {stderr}", self.call.args),
        };
        self.call.ids = stdout.lines().filter_map(|line| line.parse().ok()).collect();
        self.call.stdout = stdout;
        // The standard library assumes that a pipe is never reset; only our injection does that.
        let is_own_fault = self.stage.may_fail.get() && stderr.contains("the CLOEXEC pipe failed");
        assert!(is_own_fault || !stderr.contains("panicked"), "{:?}: {stderr}", self.call.args);
        self.call.stderr = stderr;
        self.stage.calls.borrow_mut().push(self.call.clone());
        self.call.clone()
    }
}

impl Drop for Running<'_> {
    /// A trial that panics leaves no process behind, stopped or running.
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Returns the state of a process as /proc shows it.
pub fn state_of(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}
