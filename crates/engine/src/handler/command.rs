//! Runs a task with a program: what the program receives, and how its output is interpreted.
//!
//! There is no shell, and no data of a task becomes part of a command line or an environment: data goes to standard input. The
//! only replacement in an argument is `{class}`, and the characters of a class name were checked.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Duration;

use super::events::{Said, parse_event};
use super::{Reporter, RunContext};
use taskqueue_domain::limits::confinement::Confinement;
use taskqueue_domain::run::decision::decide;
use taskqueue_domain::run::ending::Ending;
use taskqueue_domain::run::exit_rules::ExitRules;
use taskqueue_domain::run::stop_reason::StopReason;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::run::usage::Usage;
use taskqueue_host::files::file_checks::{ProgramProblem, check_program, recently_checked};
use taskqueue_host::files::trusted_path::Untrusted;
use taskqueue_host::machine::account::{Credentials, RunAs, UserProblem, has_rights_of_root, recently_run_as, run_as};
use taskqueue_host::machine::host::Account;
use taskqueue_process::children::child::{
    Captured, ChildSpec, Control, Finished, IsReport, Observer, Stream, Supervision, is_lack_of_resources, rehearse,
    supervise,
};
use taskqueue_process::children::event_socket::EventSocket;
use taskqueue_process::identities::identity::ProcessIdentity;
use taskqueue_process::identities::survivors::end_survivors;
use taskqueue_process::spawning::rights::Rights;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const TOKEN_VARIABLE: &str = "TASKQUEUE_RUN_TOKEN";

/// Returns the environment entry by which the processes of a run are found (`survivors`).
#[must_use]
pub fn marker(token: &str) -> String {
    format!("{TOKEN_VARIABLE}={token}")
}

/// Where the command line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandSource {
    /// From the configuration: `{class}` is replaced, and standard input has the data.
    Configuration,
    /// From the data of an `exec` task: taken literally, and standard input is empty.
    TaskData,
}

/// A program that handles a task class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandHandler {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Where `argv` comes from.
    pub source: CommandSource,
    /// The working directory; `None` keeps that of the runner.
    pub cwd: Option<PathBuf>,
    /// Added to the clean environment; TASKQUEUE_* variables cannot be replaced.
    pub env: Vec<(String, String)>,
    /// Variables passed on from the runner's environment if they are set.
    pub pass_env: Vec<String>,
    /// User, privileges and limits of its processes.
    pub confinement: Confinement,
    /// The time from TERM to KILL.
    pub kill_grace: Duration,
    /// How many bytes of each output are captured.
    pub output_limit_bytes: usize,
}

/// Callbacks of the runner while a program runs; each must return soon.
pub trait CommandObserver: Reporter {
    /// Called when the program has started. Its identity is stored, so that others can find it if this process dies.
    fn started(&mut self, _handler: &ProcessIdentity) {}
    /// Called with every byte of its output.
    fn output(&mut self, _stream: Stream, _bytes: &[u8]) {}
    /// Called with the output captured so far, to save it where others can read it meanwhile.
    fn output_so_far(&mut self, _stream: Stream, _so_far: Captured) {}
    /// Returns whether a reader follows the output now.
    fn is_followed(&self) -> bool {
        false
    }
    /// Called at least every 500 ms: renews the lease, and returns whether the program must end.
    fn idle(&mut self) -> Control;
}

/// Passes on the output of a program as it comes, and ignores its reports.
pub struct Printer<'a>(pub &'a mut dyn FnMut(Stream, &[u8]));

impl Reporter for Printer<'_> {}

impl CommandObserver for Printer<'_> {
    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        (self.0)(stream, bytes);
    }

    fn idle(&mut self) -> Control {
        Control::Continue
    }
}

/// How a program ended and what it reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerEnd {
    /// How its main process ended.
    pub ending: Ending,
    /// What it reported.
    pub said: Said,
    /// Why some of its processes may still be running. If set, the task must not run again yet.
    pub unended: Option<String>,
    /// The captured standard output.
    pub stdout: Captured,
    /// The captured standard error.
    pub stderr: Captured,
    /// What its processes used, if measured.
    pub usage: Option<Usage>,
}

impl HandlerEnd {
    /// Returns the end of a program that reported nothing.
    pub(super) fn of(ending: Ending) -> Self {
        let Finished { ending, stdout, stderr, usage } = Finished::not_started(ending);
        Self { ending, said: Said::default(), unended: None, stdout, stderr, usage }
    }
}

impl CommandHandler {
    /// Runs the program for one run until it and all its descendants have ended. After any end that these rules do not make a
    /// success, its processes are also searched for by their token, so that a retry never runs beside them.
    pub fn run(
        &self,
        rules: &ExitRules,
        run: &RunContext,
        alarms: &[BorrowedFd<'_>],
        socket: Option<&EventSocket>,
        observer: &mut dyn CommandObserver,
    ) -> HandlerEnd {
        let stdin = match self.source {
            CommandSource::Configuration => run.data.as_bytes(),
            CommandSource::TaskData => b"",
        };
        let limits = Supervision {
            timeout: Some(Duration::from_secs(u64::try_from(run.timeout_secs).unwrap_or(0))),
            kill_grace: self.kill_grace,
            output_limit_bytes: self.output_limit_bytes,
        };
        let mut listener = EventListener { observer, said: Said::default() };
        let finished = match self.child_spec(run, socket.map(EventSocket::name)) {
            Ok(spec) => {
                let socket = socket.map(|socket| (socket, run.token.as_str()));
                supervise(&spec, stdin, &limits, alarms, socket, &mut listener)
            }
            Err(ending) => Finished::not_started(ending),
        };
        let decision = decide(&finished.ending, listener.said.error.as_ref(), "", rules, run.timeout_secs);
        let unended = match &finished.ending {
            _ if decision.event == RunEvent::Succeed => None,
            Ending::CouldNotStart(_) | Ending::NoRoom(_) | Ending::Misconfigured(_) => None,
            _ => end_survivors(&marker(&run.token), None, self.kill_grace.min(Duration::from_secs(2)))
                .err()
                .map(|error| error.to_string()),
        };
        let Finished { ending, stdout, stderr, usage } = finished;
        HandlerEnd { ending, said: listener.said, unended, stdout, stderr, usage }
    }

    /// Returns what to start for this run. `socket_name` is where the handler sends its events.
    ///
    /// # Errors
    /// Returns what is wrong with the configuration: no program or one that another user can change, an invalid name of a variable,
    /// or an unknown user.
    pub fn child_spec(&self, run: &RunContext, socket_name: Option<&str>) -> Result<ChildSpec, Ending> {
        let mut argv = self.argv.iter().map(|argument| match self.source {
            CommandSource::Configuration => OsString::from(argument.replace("{class}", &run.class)),
            CommandSource::TaskData => OsString::from(argument),
        });
        let no_program = || Ending::CouldNotStart("could not start: no program is configured".to_owned());
        let program = argv.next().filter(|program| !program.is_empty()).ok_or_else(no_program)?;
        let user = recently_run_as(self.confinement.user.as_deref());
        let RunAs { account, credentials } = user.map_err(|problem| ending_of(&problem))?;
        let spec = ChildSpec {
            program: program.into(),
            args: argv.collect(),
            env: self.environment(run, account, socket_name).map_err(Ending::CouldNotStart)?,
            cwd: self.cwd.clone(),
            rights: self.rights(credentials),
            marker: marker(&run.token).into(),
        };
        self.check_files(&spec)?;
        Ok(spec)
    }

    /// Refuses a program that another user can change. A user who is not root may name any program in the data of a task.
    fn check_files(&self, spec: &ChildSpec) -> Result<(), Ending> {
        let runs_as_root = has_rights_of_root(spec.rights.credentials.as_ref());
        if self.source == CommandSource::TaskData && !runs_as_root {
            return Ok(());
        }
        // All of them: the start tries the next one if the kernel refuses one that passes the check.
        spec.program_files().iter().try_for_each(|file| {
            let Err(problem) = recently_checked(file, runs_as_root) else { return Ok(()) };
            let text = || format!("could not start {}: {problem}", spec.program.display());
            match &problem {
                ProgramProblem::Untrusted(Untrusted::Unreadable { error, .. }) if is_lack_of_resources(error) => {
                    Err(Ending::NoRoom(text()))
                }
                problem if problem.forbids_start(runs_as_root) => Err(Ending::CouldNotStart(text())),
                _ => Ok(()),
            }
        })
    }

    fn rights(&self, credentials: Option<Credentials>) -> Rights {
        let Confinement { limits, umask, no_new_privileges, .. } = self.confinement;
        Rights { credentials, limits, umask, no_new_privileges }
    }

    /// Returns why no run could be started now: the user, the program as far as it is configured, the directory or the limits.
    /// Starts nothing.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let RunAs { credentials, .. } = match run_as(self.confinement.user.as_deref()) {
            Ok(run_as) => run_as,
            Err(problem) => return Some(wrong_user(&problem)),
        };
        let program = PathBuf::from(self.argv.first()?);
        if let Err(problem) = check_program(&program, has_rights_of_root(credentials.as_ref())) {
            return Some(problem.to_string());
        }
        let spec = ChildSpec {
            program,
            args: Vec::new(),
            env: Vec::new(),
            cwd: self.cwd.clone(),
            rights: self.rights(credentials),
            marker: OsString::new(),
        };
        match rehearse(&spec) {
            Err(Ending::CouldNotStart(why) | Ending::Misconfigured(why) | Ending::NoRoom(why)) => Some(why),
            Ok(()) | Err(_) => None,
        }
    }

    /// Builds the environment. Later entries win. The variables of the run come last, because its processes are found by its
    /// token.
    fn environment(
        &self,
        run: &RunContext,
        account: Account,
        socket_name: Option<&str>,
    ) -> Result<Vec<(OsString, OsString)>, String> {
        #[expect(clippy::disallowed_methods, reason = "TZ, HOME and pass_env are by definition the runner's own")]
        let ours = |name: &str| std::env::var_os(name);
        let is_ours = self.confinement.user.is_none();
        let home =
            account.home.map(OsString::from).or_else(|| ours("HOME").filter(|_| is_ours)).unwrap_or_else(|| "/".into());
        let mut all: Vec<(&str, OsString)> = vec![
            ("PATH", PATH.into()),
            ("HOME", home),
            ("USER", account.name.as_str().into()),
            ("LOGNAME", account.name.as_str().into()),
            ("LANG", "C.UTF-8".into()),
            ("SHELL", "/bin/sh".into()),
        ];
        all.extend(ours("TZ").map(|zone| ("TZ", zone)));
        all.extend(self.pass_env.iter().filter_map(|name| Some((name.as_str(), ours(name)?))));
        // After pass_env: the runner's own trace context is not that of the task. Before env, which is configured for the program.
        all.extend(run.trace.variables().map(|(name, value)| (name, value.into())));
        all.extend(self.env.iter().map(|(name, value)| (name.as_str(), value.into())));
        if let Some((name, _)) = all.iter().find(|(name, _)| !is_variable_name(name)) {
            return Err(format!("could not start: {name:?} is not a name for an environment variable"));
        }
        all.extend([
            ("TASKQUEUE_TASK_ID", run.task_id.to_string().into()),
            ("TASKQUEUE_RUN_ID", run.run_id.to_string().into()),
            ("TASKQUEUE_ATTEMPT", run.attempt.to_string().into()),
            ("TASKQUEUE_MAX_RETRIES", run.max_retries.to_string().into()),
            ("TASKQUEUE_CLASS", run.class.as_str().into()),
            (TOKEN_VARIABLE, run.token.as_str().into()),
            ("TASKQUEUE_DEADLINE", run.deadline.as_str().into()),
            ("TASKQUEUE_PLANNED_ON", run.planned_on.as_str().into()),
            ("TASKQUEUE_EVENTS_FD", "3".into()),
            ("TASKQUEUE_STOP_REASON_FD", "4".into()),
        ]);
        all.extend(socket_name.map(|name| ("TASKQUEUE_EVENTS_SOCKET", name.into())));
        // With a duplicate name, each program would choose which value it reads.
        let last: HashMap<&str, usize> = all.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect();
        let kept = all.iter().enumerate().filter(|(at, (name, _))| last.get(name) == Some(at));
        Ok(kept.map(|(_, (name, value))| (OsString::from(name), value.clone())).collect())
    }
}

/// Returns how a run ends whose user cannot be used. If the runner lacks descriptors or memory, the class is not at fault.
fn ending_of(problem: &UserProblem) -> Ending {
    match problem {
        UserProblem::Unanswered { error, .. } if is_lack_of_resources(error) => Ending::NoRoom(wrong_user(problem)),
        _ => Ending::Misconfigured(wrong_user(problem)),
    }
}

fn wrong_user(problem: &UserProblem) -> String {
    format!("could not start: {problem}")
}

/// Returns true for a name that the kernel accepts. A NUL in a value is refused when the program is started.
pub(super) fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

/// Turns event lines into reports.
struct EventListener<'a> {
    observer: &'a mut dyn CommandObserver,
    said: Said,
}

impl Observer for EventListener<'_> {
    fn started(&mut self, handler: &ProcessIdentity) {
        self.observer.started(handler);
    }

    fn output(&mut self, stream: Stream, bytes: &[u8]) {
        self.observer.output(stream, bytes);
    }

    fn output_so_far(&mut self, stream: Stream, so_far: Captured) {
        self.observer.output_so_far(stream, so_far);
    }

    fn is_followed(&self) -> bool {
        self.observer.is_followed()
    }

    fn event_line(&mut self, line: &[u8]) -> IsReport {
        let Some(event) = parse_event(line) else {
            self.said.note_unread(line);
            return IsReport::No;
        };
        let is_report = event.is_report();
        self.said.hear(event, self.observer);
        if is_report { IsReport::Yes } else { IsReport::No }
    }

    fn idle(&mut self) -> Control {
        self.observer.idle()
    }

    fn stop_reason(&self) -> StopReason {
        self.observer.stop_reason().unwrap_or(StopReason::Shutdown)
    }
}

#[cfg(test)]
mod tests;
