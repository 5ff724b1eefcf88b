//! Ends what is left of a run whose runner is dead, before the run is released to another runner: at most one process tree works
//! for a task.
//!
//! A process belongs to the run in two cases. It shows the run's token, or it is in the session or process group of the recorded
//! handler while another member shows the token. A program shows the token in its environment, a handler inside its runner in the
//! name of a thread. A row is not proof, because it may have been forged to kill a process of another user; it only shows where
//! to search. No other process is signalled.
//!
//! A handler may have overwritten its environment (programs that set their process title do). If the recorded process is alive
//! and no process of its session shows the token, it cannot be distinguished from a forged row. It is then neither signalled nor
//! ignored, and the run stays as it is until an operator decides. Must not be called for a run whose runner may still be alive.

use std::io;
use std::time::Duration;

use super::identity::{Liveness, ProcessIdentity};
use crate::identities::signalling::{ProcessHandle, Signal, wait_all_gone};
use taskqueue_host::clock::Moment;
use taskqueue_host::machine::proc_files::{
    Shown, environment_entry, environment_shows, find_stat, has_thread_named, other_processes,
};

/// How long a killed process may take to disappear, and how long processes that keep forking are pursued.
const KILL_WAIT: Duration = Duration::from_secs(5);
const HUNT: Duration = Duration::from_secs(30);
/// The most pidfds opened by one scan, so that a fork bomb cannot use up the descriptors; the next scan continues.
const AT_ONCE: usize = 256;

/// How often, and after what time each, a search that finds only processes amid an `execve` looks again.
const MOST_EMPTY_LOOKS: u32 = 30;
const EXEC_WAIT: Duration = Duration::from_millis(3);

/// The handler as recorded on its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedHandler {
    /// Its main process.
    pub identity: ProcessIdentity,
    /// Whether it was started in its own session and process group, which then belong to the run. A handler inside the runner was
    /// not: its group is the group in which the runner was started, for example the pipeline of a shell.
    pub has_own_group: bool,
}

/// Returns the thread name by which a runner shows that one of its threads executes the run with this token. Other processes
/// cannot name its threads.
#[must_use]
pub fn thread_name(token: &str) -> String {
    let shown: String = token.chars().filter(char::is_ascii_alphanumeric).take(THREAD_NAME_TOKEN_CHARS).collect();
    format!("tq-{shown}")
}

/// The kernel keeps 15 characters.
const THREAD_NAME_TOKEN_CHARS: usize = 12;

/// The variable in which a coprocess, which works for many runs, names its runner.
const RUNNER_VARIABLE: &str = "TASKQUEUE_RUNNER";
/// The variable that distinguishes the processes of one handler from those of others.
const TOKEN_VARIABLE: &str = "TASKQUEUE_RUN_TOKEN";

/// Returns the environment entry by which coprocesses of this runner are found.
#[must_use]
pub fn runner_marker(runner: &ProcessIdentity) -> String {
    format!("{RUNNER_VARIABLE}={runner}")
}

/// Ends the coprocesses that may work for a run of this runner, together with all other runs they have. For a dead runner, these
/// are all its coprocesses, which should have died with it. For a live runner that lost its lease, it is the coprocess recorded
/// for the run, or all of them if none is recorded yet. A process that does not name the runner in its environment is never
/// signalled.
///
/// # Errors
/// As for [`end_survivors`].
pub fn end_coprocesses(
    runner: &ProcessIdentity,
    recorded: Option<&RecordedHandler>,
    grace: Duration,
) -> io::Result<usize> {
    if !runner.shares_view()? {
        return Ok(0);
    }
    let marker = runner_marker(runner);
    let (mut coprocess, mut one_marker) = (None, None);
    if let Some(handler) = recorded.filter(|handler| handler.has_own_group) {
        let pid = handler.identity.pid;
        if handler.identity.examine()? == Liveness::Alive && environment_shows(pid, marker.as_bytes())? == Shown::Yes {
            coprocess = Some(handler);
            one_marker = environment_entry(pid, TOKEN_VARIABLE.as_bytes())?;
        }
    }
    match (runner.examine()?, one_marker, recorded) {
        (Liveness::Dead, ..) => end_survivors(&marker, coprocess, grace),
        (_, Some(one_marker), _) => end_survivors(&String::from_utf8_lossy(&one_marker), coprocess, grace),
        (_, None, None) => end_survivors(&marker, None, grace),
        (_, None, Some(_)) => Ok(0),
    }
}

/// Ends every live process of a run: TERM, a wait of at most `grace`, KILL, repeated until a scan finds none. Returns how many it
/// ended; 0 if nothing survived. `marker` is a whole environment entry, `TASKQUEUE_RUN_TOKEN=…`; `recorded` is the handler, if
/// the run names one.
///
/// # Errors
/// /proc cannot be read, or some processes cannot be ended (the error names them). The run must then not be released.
pub fn end_survivors(marker: &str, recorded: Option<&RecordedHandler>, grace: Duration) -> io::Result<usize> {
    // An entry without a value would match every handler of every run.
    let token = marker.split_once('=').filter(|(name, token)| !name.is_empty() && !token.is_empty());
    let Some((_, token)) = token else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the marker of a run needs a name and a token"));
    };
    let is_local = recorded.map_or(Ok(false), |handler| handler.identity.shares_view())?;
    let recorded = recorded.filter(|handler| is_local && (!handler.has_own_group || is_possible(handler.identity.pid)));
    let thread_name = Some(thread_name(token)).filter(|name| name.len() == 3 + THREAD_NAME_TOKEN_CHARS);
    let mut search = Search { marker: marker.as_bytes(), thread_name, recorded, vouched: false, amid_exec: Vec::new() };
    let give_up = Moment::after(grace.saturating_add(HUNT));
    let mut ended = 0;
    let mut asked = false;
    let mut empty_looks = 0;
    loop {
        let earlier_amid_exec = std::mem::take(&mut search.amid_exec);
        let found = search.scan()?;
        if found.is_empty() {
            empty_looks += 1;
            // During a scan, a process may fork and end; if PIDs have wrapped around, its child may have a lower PID that the
            // scan had already passed.
            if empty_looks < 2 {
                continue;
            }
            // A process shows its environment a moment later. Not waited for longer: any user can make one that never does. One
            // that the look before did not find amid an `execve` has shown then that it is unrelated; in the second look it may be
            // new.
            let is_unclear = search.amid_exec.iter().any(|pid| empty_looks == 2 || earlier_amid_exec.contains(pid));
            if is_unclear && empty_looks < MOST_EMPTY_LOOKS {
                std::thread::sleep(EXEC_WAIT);
                continue;
            }
            return search.doubt()?.map_or(Ok(ended), Err);
        }
        empty_looks = 0;
        // Processes that appear after the first round were forked meanwhile by one that ignored the TERM.
        if !asked {
            asked = true;
            each(&found, ProcessHandle::ask_to_end);
            wait_all_gone(&found, grace);
        }
        each(&found, |process| process.signal(Signal::KILL));
        wait_all_gone(&found, KILL_WAIT);
        let remaining = found.iter().filter(|process| !process.has_ended()).map(ProcessHandle::pid).collect::<Vec<_>>();
        ended += found.len() - remaining.len();
        if !remaining.is_empty() || give_up.has_passed() {
            let message = format!("processes of the run could not be ended: {remaining:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
    }
}

/// Calls `action` for each live process. A signal that is not permitted does not stop the loop; the final error names processes
/// that remain.
fn each(processes: &[ProcessHandle], action: impl Fn(&ProcessHandle) -> io::Result<()>) {
    for process in processes.iter().filter(|process| !process.has_ended()) {
        let _ = action(process);
    }
}

/// Returns true unless it is PID 1 or this process: neither can be a handler of a dead runner. Either can be a runner.
fn is_possible(pid: i32) -> bool {
    pid > 1 && u32::try_from(pid) != Ok(std::process::id())
}

struct Search<'a> {
    marker: &'a [u8],
    /// `None` if the token is too short for a unique name.
    thread_name: Option<String>,
    recorded: Option<&'a RecordedHandler>,
    /// Whether the recorded session or group was found to belong to the run. Stays true while it has members, which reserve its
    /// number.
    vouched: bool,
    /// The processes that had no environment yet in the last scan.
    amid_exec: Vec<i32>,
}

impl Search<'_> {
    fn scan(&mut self) -> io::Result<Vec<ProcessHandle>> {
        let mut found = Vec::new();
        let mut others = Vec::new();
        for pid in other_processes()? {
            if found.len() == AT_ONCE {
                return Ok(found);
            }
            // Checked before and after opening: nearly all processes are unrelated and need no pidfd.
            let mut is_marked = |pid| {
                let shown = environment_shows(pid, self.marker)?;
                self.amid_exec.extend((shown == Shown::NotYet).then_some(pid));
                Ok(shown == Shown::Yes)
            };
            let process = if is_marked(pid)? { ProcessHandle::open_if(pid, is_marked)? } else { None };
            match process {
                Some(process) => {
                    if let Some(handler) = self.recorded.filter(|handler| handler.has_own_group) {
                        self.vouched |= is_member(pid, handler.identity.pid)?;
                    }
                    found.push(process);
                }
                None => others.push(pid),
            }
        }
        match self.recorded {
            Some(handler) if handler.has_own_group => self.add_group(&handler.identity, &others, &mut found)?,
            Some(handler) => self.add_runner(&handler.identity, &mut found)?,
            None => {}
        }
        Ok(found)
    }

    fn add_group(
        &mut self,
        leader: &ProcessIdentity,
        others: &[i32],
        found: &mut Vec<ProcessHandle>,
    ) -> io::Result<()> {
        // Its number was reused: the members of a group with that number do not belong to the run.
        if leader.examine()? == Liveness::Dead && is_taken(leader)? {
            self.vouched = false;
        }
        if self.vouched {
            for pid in others {
                if found.len() == AT_ONCE {
                    break;
                }
                if is_member(*pid, leader.pid)? {
                    found.extend(ProcessHandle::open_if(*pid, |pid| is_member(pid, leader.pid))?);
                }
            }
        }
        Ok(())
    }

    /// Adds a runner that handles the run itself and has lost it.
    fn add_runner(&self, runner: &ProcessIdentity, found: &mut Vec<ProcessHandle>) -> io::Result<()> {
        let is_found = found.iter().any(|process| process.pid() == runner.pid);
        if !is_found
            && let Some(name) = &self.thread_name
            && has_thread_named(runner.pid, name)?
        {
            found.extend(ProcessHandle::open(runner)?);
        }
        Ok(())
    }

    /// Returns why the run must not be released although none of its processes was found. The recorded process is alive, could be
    /// its handler, and does not show the token.
    fn doubt(&self) -> io::Result<Option<io::Error>> {
        let Some(handler) = self.recorded.filter(|handler| handler.has_own_group) else { return Ok(None) };
        let pid = handler.identity.pid;
        // Handlers are session leaders from the start, and other processes cannot make a process one.
        let is_leader = find_stat(pid)?.is_some_and(|stat| stat.session == pid);
        Ok((is_leader && handler.identity.examine()? == Liveness::Alive).then(|| {
            let message = format!(
                "process {pid} is recorded as the handler and is alive, but does not show the token of the run; \
                 end it if it is the handler"
            );
            io::Error::new(io::ErrorKind::PermissionDenied, message)
        }))
    }
}

/// Returns true if the process is in the session or the group with this number.
fn is_member(pid: i32, group: i32) -> io::Result<bool> {
    let stat = find_stat(pid)?;
    Ok(stat.is_some_and(|stat| stat.group == group || stat.session == group))
}

fn is_taken(dead: &ProcessIdentity) -> io::Result<bool> {
    Ok(find_stat(dead.pid)?.is_some_and(|stat| stat.start_ticks != dead.start_ticks))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use rustix::process::{Pid, Uid, geteuid, kill_process_group};
    use rustix::thread::set_thread_uid;

    use super::super::scarcity::{is_lack, with_room_for};
    use super::*;
    use taskqueue_host::machine::proc_files::read_stat;
    use taskqueue_host::testing::{eventually, run_again_inside};

    fn marker(name: &str) -> String {
        format!("TASKQUEUE_RUN_TOKEN={name}-{}", std::process::id())
    }

    fn command(script: &str, marker: Option<&str>) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env_remove("TASKQUEUE_RUN_TOKEN").process_group(0).stdout(Stdio::null());
        if let Some((name, value)) = marker.and_then(|marker| marker.split_once('=')) {
            command.env(name, value);
        }
        command
    }

    fn start(script: &str, marker: Option<&str>) -> Child {
        command(script, marker).spawn().unwrap()
    }

    fn recorded(identity: &ProcessIdentity, has_own_group: bool) -> RecordedHandler {
        RecordedHandler { identity: identity.clone(), has_own_group }
    }

    fn identity(child: &Child) -> ProcessIdentity {
        ProcessIdentity::of_pid(child.id().try_into().unwrap()).unwrap().unwrap()
    }

    fn count(marker: &str) -> usize {
        let is_marked = |pid: &i32| environment_shows(*pid, marker.as_bytes()).unwrap() == Shown::Yes;
        other_processes().unwrap().filter(is_marked).count()
    }

    #[test]
    fn processes_that_left_the_group_are_found_by_the_marker() {
        let marker = marker("escaped");
        let mut child = start("setsid sh -c 'sleep 600 & sleep 600' & exec sleep 600", Some(&marker));
        let mut innocent = start("exec sleep 600", Some(&format!("{marker}0")));
        eventually(|| count(&marker) == 4);
        let reaper = std::thread::spawn(move || child.wait());
        assert!(end_survivors(&marker, None, Duration::from_secs(5)).unwrap() >= 3);
        assert_eq!(count(&marker), 0);
        reaper.join().unwrap().unwrap();
        assert!(innocent.try_wait().unwrap().is_none(), "a longer token is another run");
        innocent.kill().unwrap();
        innocent.wait().unwrap();
    }

    #[test]
    fn a_survivor_that_ignores_term_and_is_stopped_is_killed() {
        let marker = marker("stubborn");
        let mut child = start("trap '' TERM; kill -STOP $$; while :; do sleep 600; done", Some(&marker));
        let pid = i32::try_from(child.id()).unwrap();
        eventually(|| read_stat(pid).unwrap().state == b'T');
        assert!(end_survivors(&marker, None, Duration::from_millis(50)).unwrap() >= 1);
        child.wait().unwrap();
    }

    /// It is alive, matches the row and leads its session: it could be the handler, but need not be.
    #[test]
    fn a_process_that_only_a_row_names_is_neither_signalled_nor_passed_over() {
        let mut command = Command::new("setsid");
        command.args(["--wait", "sh", "-c", "sleep 600 & echo $$; exec sleep 600"]);
        let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufRead::read_line(&mut BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        let leader = ProcessIdentity::of_pid(line.trim().parse().unwrap()).unwrap().unwrap();
        let members = || other_processes().unwrap().filter(|pid| is_member(*pid, leader.pid).unwrap()).count();
        eventually(|| members() == 2);
        let error = end_survivors(&marker("absent"), Some(&recorded(&leader, true)), Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains(&format!("process {} is recorded as the handler", leader.pid)), "{error}");
        assert_eq!(members(), 2);
        // As a handler inside a runner, of which no thread has the name.
        assert_eq!(end_survivors(&marker("absent"), Some(&recorded(&leader, false)), Duration::ZERO).unwrap(), 0);
        assert_eq!(members(), 2);
        kill_process_group(Pid::from_raw(leader.pid).unwrap(), Signal::KILL).unwrap();
        child.wait().unwrap();
    }

    /// Programs that set their process title overwrite their environment; their later children have it intact.
    #[test]
    fn a_marked_child_vouches_for_a_handler_without_a_marker() {
        let marker = marker("child");
        let (name, value) = marker.split_once('=').unwrap();
        let script = format!("{name}={value} sleep 600 & exec sleep 600");
        let mut child = start(&script, None);
        let leader = identity(&child);
        eventually(|| count(&marker) == 1 && read_stat(leader.pid).is_ok());
        assert_eq!(end_survivors(&marker, Some(&recorded(&leader, true)), Duration::from_secs(5)).unwrap(), 2);
        child.wait().unwrap();
    }

    #[test]
    fn a_runner_that_handles_the_run_itself_is_known_by_the_name_of_a_thread() {
        let token = format!("abcdef{:06}", std::process::id());
        let script = format!(
            "import ctypes,threading,time\ndef run():\n ctypes.CDLL(None).prctl(15, b'{}')\n time.sleep(600)\n\
             threading.Thread(target=run).start()",
            thread_name(&token)
        );
        let mut runner = Command::new("python3").args(["-c", &script]).process_group(0).spawn().unwrap();
        let leader = identity(&runner);
        eventually(|| has_thread_named(leader.pid, &thread_name(&token)).unwrap());
        let end = |token: &str| {
            end_survivors(
                &format!("TASKQUEUE_RUN_TOKEN={token}"),
                Some(&recorded(&leader, false)),
                Duration::from_secs(5),
            )
        };
        assert_eq!(end("abcdef").unwrap(), 0, "too short to be nobody else's");
        assert_eq!(end(&format!("x{token}")).unwrap(), 0);
        assert!(runner.try_wait().unwrap().is_none());
        assert_eq!(end(&token).unwrap(), 1);
        runner.wait().unwrap();
    }

    #[test]
    fn a_runner_whose_threads_cannot_be_read_is_not_overlooked() {
        let name = "identities::survivors::tests::a_runner_whose_threads_cannot_be_read_is_not_overlooked";
        if !run_again_inside(&["env"], name) {
            return;
        }
        let runner = ProcessIdentity::own().unwrap();
        let thread_name = Some(thread_name("abcdefabcdef"));
        let search = Search { marker: b"", thread_name, recorded: None, vouched: false, amid_exec: Vec::new() };
        search.add_runner(&runner, &mut Vec::new()).unwrap();
        assert!(is_lack(with_room_for(0, || search.add_runner(&runner, &mut Vec::new()))));
    }

    #[test]
    fn a_handler_inside_the_runner_vouches_for_no_group_made_by_another() {
        let marker = marker("pipeline");
        let mut runner = start("env -u TASKQUEUE_RUN_TOKEN sleep 600 & exec sleep 600", Some(&marker));
        let leader = identity(&runner);
        let others =
            || other_processes().unwrap().filter(|pid| *pid != leader.pid && is_member(*pid, leader.pid).unwrap());
        eventually(|| others().count() == 1 && count(&marker) == 1);
        let handler = recorded(&leader, false);
        assert_eq!(end_survivors(&marker, Some(&handler), Duration::from_secs(5)).unwrap(), 1);
        runner.wait().unwrap();
        assert_eq!(others().count(), 1, "what the runner was started beside");
        assert_eq!(end_survivors(&marker, Some(&handler), Duration::from_secs(5)).unwrap(), 0);
        let process = ProcessIdentity::of_pid(others().next().unwrap()).unwrap().unwrap();
        ProcessHandle::open(&process).unwrap().unwrap().signal(Signal::KILL).unwrap();
    }

    #[test]
    fn a_marked_member_vouches_for_the_group_of_a_dead_handler() {
        let marker = marker("member");
        let mut child = start("env -u TASKQUEUE_RUN_TOKEN sleep 600 & sleep 600 & exit", Some(&marker));
        let handler = recorded(&identity(&child), true);
        child.wait().unwrap();
        eventually(|| count(&marker) == 1);
        assert_eq!(end_survivors(&marker, Some(&handler), Duration::from_secs(5)).unwrap(), 2);
    }

    #[test]
    fn an_innocent_group_under_a_forged_identity_survives() {
        let mut innocent = start("sleep 600 & exec sleep 600", None);
        let real = identity(&innocent);
        eventually(|| other_processes().unwrap().filter(|pid| is_member(*pid, real.pid).unwrap()).count() == 2);
        let forged = ProcessIdentity { start_ticks: real.start_ticks + 1, ..real.clone() };
        let nobody = marker("nobody");
        assert_eq!(end_survivors(&nobody, Some(&recorded(&forged, true)), Duration::from_secs(5)).unwrap(), 0);
        for pid in [0, 1, i32::try_from(std::process::id()).unwrap()] {
            let forged = ProcessIdentity { pid, ..ProcessIdentity::own().unwrap() };
            assert_eq!(end_survivors(&nobody, Some(&recorded(&forged, true)), Duration::ZERO).unwrap_or(0), 0);
        }
        assert_eq!(
            end_survivors(&nobody, Some(&recorded(&real, true)), Duration::ZERO).unwrap(),
            0,
            "exact ticks are no proof"
        );
        assert!(innocent.try_wait().unwrap().is_none());
        kill_process_group(Pid::from_raw(real.pid).unwrap(), Signal::KILL).unwrap();
        innocent.wait().unwrap();
    }

    #[test]
    fn processes_that_keep_forking_are_ended_too() {
        let marker = marker("forking");
        let script = "trap '' TERM; f() { sleep 0.01; f & }; for i in 1 2 3 4; do f & done; sleep 600";
        let mut child = start(script, Some(&marker));
        eventually(|| count(&marker) >= 4);
        assert!(end_survivors(&marker, None, Duration::from_millis(20)).unwrap() >= 1);
        child.wait().unwrap();
        assert_eq!(count(&marker), 0);
    }

    /// While a program is executed, its process shows no environment.
    #[test]
    fn processes_that_execute_a_program_again_and_again_are_found() {
        let marker = marker("executing");
        let script = "exec sh -c \"$0\" \"$0\"";
        for _ in 0..20 {
            let mut children = [0; 4].map(|_| {
                let mut command = Command::new("sh");
                command.args(["-c", script, script]).env(TOKEN_VARIABLE, marker.split_once('=').unwrap().1);
                command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
            });
            let ended = end_survivors(&marker, None, Duration::ZERO);
            for child in &mut children {
                child.kill().and_then(|()| child.wait()).unwrap();
            }
            assert_eq!(ended.unwrap(), 4);
        }
    }

    /// A process whose main thread has ended shows its environment only through the other threads: the file of the main thread
    /// belongs to root, and is empty.
    #[test]
    fn a_process_whose_main_thread_has_ended_is_found_with_its_group() {
        let marker = marker("threads");
        let program = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(600,)).start(); \
                       ctypes.CDLL(None).pthread_exit(None)";
        let script = format!("env -u {TOKEN_VARIABLE} sleep 600 & exec python3 -c '{program}'");
        let mut command = command(&script, Some(&marker));
        let user = geteuid().is_root().then_some(65534);
        let mut child = user.into_iter().fold(&mut command, CommandExt::uid).spawn().unwrap();
        let handler = identity(&child);
        let (pid, entry) = (handler.pid, marker.clone().into_bytes());
        eventually(|| find_stat(pid).unwrap().unwrap().has_ended() && count(&marker) == 1);
        assert!(child.try_wait().unwrap().is_none());
        // A thread of its own, because it changes the user.
        let as_user = std::thread::spawn(move || {
            user.map_or(Ok(()), |user| set_thread_uid(Uid::from_raw(user))).unwrap();
            assert_eq!(environment_shows(pid, &entry).unwrap(), Shown::Yes);
            assert_eq!(environment_entry(pid, TOKEN_VARIABLE.as_bytes()).unwrap(), Some(entry));
        });
        as_user.join().unwrap();
        assert_eq!(end_survivors(&marker, Some(&recorded(&handler, true)), Duration::from_secs(5)).unwrap(), 2);
        child.wait().unwrap();
    }

    #[test]
    fn a_marker_without_a_token_is_refused() {
        for bad in ["", "TASKQUEUE_RUN_TOKEN", "TASKQUEUE_RUN_TOKEN=", "=x"] {
            assert!(end_survivors(bad, None, Duration::ZERO).is_err());
        }
    }
}
