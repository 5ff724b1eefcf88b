//! Reads facts from /proc/PID: state, parent, process group, session, times, thread names, and one environment entry.
//!
//! A process that is over or hidden from this one shows nothing. Any other error is returned: without descriptors or memory, every
//! process would look as if it were over.
//!
//! A PID may be reused between two reads. A caller that acts on the answer must hold a pidfd opened before the read, and check
//! afterwards that the process is still alive (`signalling`).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::io::{Errno, pread, read, retry_on_intr};

/// The kernel's flag PF_EXITING.
const EXITING: u64 = 4;

/// The needed fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The state letter: R, S, D, T, Z, X and others.
    pub state: u8,
    /// 0 if its parent is outside this PID namespace.
    pub parent: i32,
    /// 0 if the leader of the group is outside this PID namespace.
    pub group: i32,
    /// 0 if the leader of the session is outside this PID namespace, as in a container that another program entered.
    pub session: i32,
    /// Whether the main thread is exiting: it has no children any more, or soon will not have, whatever its state.
    pub is_ending: bool,
    /// Processor time used by all its threads, in clock ticks.
    pub cpu_ticks: u64,
    /// Clock ticks between boot and the start of the process; not wall-clock time, which can be set.
    pub start_ticks: u64,
}

impl Stat {
    /// Returns true if the main thread has ended; other threads of the process may still run.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// A file of this process in /proc that is read repeatedly: opening it costs more than reading it.
struct ProcFile {
    file: OnceLock<(u32, File)>,
}

impl ProcFile {
    const fn new() -> Self {
        Self { file: OnceLock::new() }
    }

    /// Calls `act` with the file. A process forked from the one that opened it opens its own.
    fn with<T>(&self, path: impl Fn(u32) -> String, act: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        let pid = std::process::id();
        let opened = match self.file.get() {
            Some((owner, file)) if *owner == pid => return act(file),
            _ => File::open(path(pid))?,
        };
        let answer = act(&opened);
        let _ = self.file.set((pid, opened));
        answer
    }
}

/// Returns true if this process can be seen in /proc.
#[must_use]
pub fn is_proc_mounted() -> bool {
    Path::new("/proc/self").exists()
}

/// Returns `None` if the error says that a process or group is over, or that this process may not look at it.
///
/// # Errors
/// Any other error: it says nothing about the process.
pub fn if_shown<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    match answer {
        Ok(shown) => Ok(Some(shown)),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::SRCH | Errno::ACCESS | Errno::PERM) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Same as [`read_stat`]; `None` if the process is over or hidden.
pub fn find_stat(pid: i32) -> io::Result<Option<Stat>> {
    if_shown(read_stat(pid))
}

/// Reads and parses `/proc/PID/stat`.
pub fn read_stat(pid: i32) -> io::Result<Stat> {
    let path = format!("/proc/{pid}/stat");
    stat_in(&File::open(&path)?, &path)
}

/// Reads the stat of this process. `getsid` and `getpgrp` would do, but their safe wrappers do not expect the 0 of a leader in
/// another PID namespace.
pub fn read_own_stat() -> io::Result<Stat> {
    static KEPT: ProcFile = ProcFile::new();
    let path = "/proc/self/stat";
    KEPT.with(|_| path.to_owned(), |file| stat_in(file, path))
}

/// Returns the children of the main thread: those it started, and those the kernel reparented to this process while that thread
/// lived. May miss some if children are reaped during the read.
pub fn children_of_main_thread() -> io::Result<Vec<i32>> {
    static KEPT: ProcFile = ProcFile::new();
    // Not available everywhere: it is a kernel option.
    KEPT.with(|pid| format!("/proc/self/task/{pid}/children"), |file| parse_children(&whole(file)?))
}

fn whole(file: &File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut chunk = [0_u8; 4096];
    loop {
        let place = u64::try_from(text.len()).unwrap_or(u64::MAX);
        match retry_on_intr(|| pread(file, &mut chunk[..], place))? {
            0 => return Ok(text),
            count => text.extend_from_slice(&chunk[..count]),
        }
    }
}

fn parse_children(list: &[u8]) -> io::Result<Vec<i32>> {
    let list = std::str::from_utf8(list).map_err(io::Error::other)?;
    list.split_ascii_whitespace().map(|pid| pid.parse().map_err(io::Error::other)).collect()
}

fn stat_in(file: &File, path: &str) -> io::Result<Stat> {
    let mut text = [0_u8; 1024];
    // One read: the kernel generates the line at once, and the needed fields are far from its end.
    let length = retry_on_intr(|| pread(file, &mut text[..], 0))?;
    parse_stat(&text[..length])
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{path} is not as expected")))
}

/// Parses the line. The program name in field 2 may contain spaces and parentheses, so fields are counted from the last `)`.
pub fn parse_stat(text: &[u8]) -> Option<Stat> {
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let mut fields = text.get(close + 1..)?.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    fn number<T: std::str::FromStr>(field: &[u8]) -> Option<T> {
        std::str::from_utf8(field).ok()?.parse().ok()
    }
    let state = *fields.next()?.first()?;
    let parent = number(fields.next()?)?;
    let group = number(fields.next()?)?;
    let session = number(fields.next()?)?;
    let flags: u64 = number(fields.nth(2)?)?;
    let user_ticks: u64 = number(fields.nth(4)?)?;
    let system_ticks: u64 = number(fields.next()?)?;
    let start_ticks = number(fields.nth(6)?)?;
    let cpu_ticks = user_ticks.saturating_add(system_ticks);
    Some(Stat { state, parent, group, session, is_ending: flags & EXITING != 0, cpu_ticks, start_ticks })
}

/// The error of a read of an environment that its process has unmapped.
const UNMAPPED: Errno = Errno::IO;

/// What the initial environment of a process says about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// It has the entry.
    Yes,
    /// It does not, or it cannot be read: another user's, a kernel thread's, an ended process's.
    No,
    /// The process is just executing a program, whose environment can be read only later.
    NotYet,
}

/// Returns whether the initial environment of the process has exactly this `NAME=value` entry.
pub fn environment_shows(pid: i32, entry: &[u8]) -> io::Result<Shown> {
    let mut matcher = EntryMatcher::new(entry);
    let shown = read_environment(pid, |chunk| matcher.push(chunk))?;
    Ok(if shown == Shown::No && matcher.end() { Shown::Yes } else { shown })
}

/// Passes on the initial environment of the process in chunks until `push` returns true, which is then the answer.
fn read_environment(pid: i32, mut push: impl FnMut(&[u8]) -> bool) -> io::Result<Shown> {
    let main = PathBuf::from(format!("/proc/{pid}/environ"));
    let mut earlier_end = None;
    loop {
        let is_empty = match read_chunks(&main, &mut push)? {
            Some(shown @ (Shown::Yes | Shown::No)) => return Ok(shown),
            shown => shown.is_some(),
        };
        let Some(stat) = if_shown(fs::read(format!("/proc/{pid}/stat")))? else { return Ok(Shown::No) };
        match (parse_memory(&stat), earlier_end) {
            _ if parse_stat(&stat).is_some_and(|stat| stat.is_ending) => break,
            // A file that was opened before the process executed a program stays empty.
            (Some((1.., end @ 1..)), None) if is_empty => earlier_end = Some(end),
            (Some((1.., end)), _) if is_empty && earlier_end != Some(end) => return Ok(Shown::NotYet),
            // Hidden, a kernel thread's, or unmapped.
            _ => return Ok(Shown::No),
        }
    }
    // The main thread has no memory any more: only the other threads show the environment.
    for file in of_threads(pid, "environ")? {
        if let Some(shown @ (Shown::Yes | Shown::No)) = read_chunks(&file, &mut push)? {
            return Ok(shown);
        }
    }
    Ok(Shown::No)
}

/// Same as [`read_environment`], of one file. Returns `None` if it is hidden or its thread is over, `NotYet` if it is empty.
fn read_chunks(path: &Path, push: &mut impl FnMut(&[u8]) -> bool) -> io::Result<Option<Shown>> {
    let Some(file) = if_shown(File::open(path))? else { return Ok(None) };
    let mut chunk = [0_u8; 8192];
    let mut shown = Shown::NotYet;
    loop {
        match retry_on_intr(|| read(&file, &mut chunk[..])) {
            Ok(0) => return Ok(Some(shown)),
            Ok(count) if push(&chunk[..count]) => return Ok(Some(Shown::Yes)),
            Ok(_) => shown = Shown::No,
            Err(UNMAPPED) => return Ok(Some(Shown::No)),
            Err(error) => return if_shown(Err(error.into())),
        }
    }
}

/// Returns the size of the memory and the end of the environment in it, as in `/proc/PID/stat`. Between the replacement of the
/// memory and the end of `execve`, there is no environment yet.
fn parse_memory(stat: &[u8]) -> Option<(u64, u64)> {
    let close = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = std::str::from_utf8(stat.get(close + 1..)?).ok()?.split_ascii_whitespace();
    Some((fields.nth(20)?.parse().ok()?, fields.nth(27)?.parse().ok()?))
}

/// No environment is kept beyond this limit; by default, the kernel allows no more for arguments and environment together.
const LONGEST_ENVIRONMENT_BYTES: usize = 8 << 20;

/// Returns the first entry of this name in the initial environment of the process, as `NAME=value`. Returns `None` also if the
/// environment is hidden.
pub fn environment_entry(pid: i32, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut environment = Vec::new();
    read_environment(pid, |chunk| {
        environment.extend_from_slice(chunk);
        environment.len() >= LONGEST_ENVIRONMENT_BYTES
    })?;
    let mut entries = environment.split(|byte| *byte == 0);
    Ok(entries.find(|entry| entry.strip_prefix(name).is_some_and(|rest| rest.starts_with(b"="))).map(<[u8]>::to_vec))
}

/// Returns true if no program that this process executes can gain rights; `None` if that is hidden.
pub fn has_no_new_privileges(pid: i32) -> io::Result<Option<bool>> {
    // Bytes: the name in it need not be UTF-8, and the kernel cuts it amid a character.
    let Some(status) = if_shown(fs::read(format!("/proc/{pid}/status")))? else { return Ok(None) };
    let mut lines = status.split(|byte| *byte == b'\n');
    Ok(lines.find_map(|line| line.strip_prefix(b"NoNewPrivs:")).map(|value| value.trim_ascii() == b"1"))
}

/// Returns true if a thread of this process has this name.
pub fn has_thread_named(pid: i32, name: &str) -> io::Result<bool> {
    for comm in of_threads(pid, "comm")? {
        if if_shown(fs::read(comm))?.is_some_and(|found| found.trim_ascii_end() == name.as_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the path of this file of each thread; none if the process is over or hidden.
fn of_threads(pid: i32, name: &str) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for thread in if_shown(fs::read_dir(format!("/proc/{pid}/task")))?.into_iter().flatten() {
        files.extend(if_shown(thread)?.map(|thread| thread.path().join(name)));
    }
    Ok(files)
}

/// Finds one NUL-delimited entry in a stream of chunks without keeping the stream.
pub struct EntryMatcher<'a> {
    entry: &'a [u8],
    matched: usize,
    failed: bool,
}

impl<'a> EntryMatcher<'a> {
    /// Returns a matcher for this entry.
    #[must_use]
    pub const fn new(entry: &'a [u8]) -> Self {
        Self { entry, matched: 0, failed: false }
    }

    /// Adds the next bytes. Returns true if they complete the entry.
    pub fn push(&mut self, chunk: &[u8]) -> bool {
        for byte in chunk {
            if *byte == 0 {
                if self.end() {
                    return true;
                }
                (self.matched, self.failed) = (0, false);
            } else if !self.failed {
                if self.entry.get(self.matched) == Some(byte) {
                    self.matched += 1;
                } else {
                    self.failed = true;
                }
            }
        }
        false
    }

    /// Returns true if the last entry, which lacks a NUL, matches.
    #[must_use]
    pub fn end(&self) -> bool {
        !self.failed && !self.entry.is_empty() && self.matched == self.entry.len()
    }
}

/// Returns every process of this PID namespace except PID 1 and this process: those two must never be signalled.
pub fn other_processes() -> io::Result<impl Iterator<Item = i32>> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let names = fs::read_dir("/proc")?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    Ok(names
        .into_iter()
        .filter_map(|name| name.to_str()?.parse::<i32>().ok())
        .filter(move |pid| *pid > 1 && *pid != own))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_program_name_with_parentheses_does_not_shift_the_fields() {
        let text = b"77 (a) R 1 (b) S 5 66 55 0 -1 4 1 2 3 4 50 60 7 8 20 0 1 0 987654 1 2 3";
        let stat = parse_stat(text).unwrap();
        let (cpu_ticks, start_ticks) = (110, 987_654);
        let expected = Stat { state: b'S', parent: 5, group: 66, session: 55, is_ending: true, cpu_ticks, start_ticks };
        assert_eq!(stat, expected);
    }

    #[test]
    fn a_cut_or_empty_stat_is_refused() {
        assert_eq!(parse_stat(b""), None);
        assert_eq!(parse_stat(b"77 (a"), None);
        assert_eq!(parse_stat(b"77 (a) S 1 2 3"), None);
    }

    #[test]
    fn our_own_stat_is_read() {
        let stat = read_own_stat().unwrap();
        assert!(!stat.has_ended());
        assert!(stat.start_ticks > 0);
        let inherited = ["-c", "import os; print(os.getpgid(0), os.getsid(0))"];
        let printed = Command::new("python3").args(inherited).output().unwrap().stdout;
        assert_eq!(String::from_utf8(printed).unwrap().trim(), format!("{} {}", stat.group, stat.session));
    }

    #[test]
    fn only_a_whole_entry_matches_even_across_chunks() {
        let found = |stream: &[u8], size: usize| {
            let mut matcher = EntryMatcher::new(b"T=abc");
            stream.chunks(size).any(|chunk| matcher.push(chunk)) || matcher.end()
        };
        for size in 1..12 {
            assert!(found(b"A=1\0T=abc\0B=2\0", size));
            assert!(found(b"A=1\0T=abc", size));
            assert!(!found(b"A=1\0T=abcd\0", size));
            assert!(!found(b"XT=abc\0T=ab\0", size));
            assert!(!found(b"", size));
        }
        assert!(!EntryMatcher::new(b"").end());
    }

    #[test]
    fn the_list_of_children_is_read_whole_or_not_at_all() {
        assert_eq!(parse_children(b"").unwrap(), [0; 0]);
        assert_eq!(parse_children(b"12 34 ").unwrap(), [12, 34]);
        assert!(parse_children(b"12 x ").is_err() && parse_children(b"\xff").is_err());
        children_of_main_thread().unwrap();
    }

    #[test]
    fn only_a_process_amid_an_exec_has_memory_and_no_environment() {
        let stat =
            |memory: u64, end: u64| format!("7 (a) b) R{} {memory}{} {end} 0\n", " 1".repeat(19), " 2".repeat(27));
        for (memory, end) in [(0, 0), (4096, 0), (4096, 77)] {
            assert_eq!(parse_memory(stat(memory, end).as_bytes()), Some((memory, end)));
        }
        assert_eq!(parse_memory(b"7 (a) R 1 2 3"), None);
        let own = fs::read("/proc/self/stat").unwrap();
        assert!(parse_memory(&own).is_some_and(|(memory, end)| memory > 1_000_000 && end > 0));
    }

    #[test]
    fn the_rights_of_a_process_whose_name_is_not_utf8_are_read() {
        let script = "printf 'l\\303' > /proc/$$/comm; echo; read line";
        let mut child = Command::new("sh");
        let mut child = child.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert_eq!(fs::read(format!("/proc/{pid}/comm")).unwrap(), b"l\xc3\n");
        let own = has_no_new_privileges(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert_eq!(has_no_new_privileges(pid).unwrap(), Some(own.unwrap()));
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn an_unmapped_environment_is_not_taken_for_one_amid_an_exec() {
        let script = "import ctypes, mmap, os\n\
                      stat = open('/proc/self/stat').read().rsplit(')', 1)[1].split()\n\
                      start, end = int(stat[47]) // mmap.PAGESIZE * mmap.PAGESIZE, int(stat[48])\n\
                      ctypes.CDLL(None).munmap(ctypes.c_void_p(start), ctypes.c_size_t(end - start))\n\
                      os.write(1, b'x'), os.read(0, 1), os._exit(0)";
        // The argument fills the page before the environment, on which the rest of the stack would be.
        let mut child = Command::new("python3");
        let child = child.args(["-c", script, &"x".repeat(100_000)]).env("A", "b");
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        assert_eq!(environment_shows(i32::try_from(child.id()).unwrap(), b"A=b").unwrap(), Shown::No);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn only_a_process_that_is_over_or_hidden_shows_nothing() {
        for errno in [Errno::NOENT, Errno::SRCH, Errno::ACCESS, Errno::PERM] {
            assert_eq!(if_shown::<()>(Err(errno.into())).unwrap(), None, "{errno}");
        }
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO] {
            assert!(if_shown::<()>(Err(errno.into())).is_err(), "{errno}");
        }
        assert_eq!(environment_shows(i32::MAX, b"A=b").unwrap(), Shown::No);
        assert_eq!((find_stat(i32::MAX).unwrap(), has_thread_named(i32::MAX, "x").unwrap()), (None, false));
    }

    #[test]
    fn neither_pid_one_nor_ourselves_are_listed() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(other_processes().unwrap().all(|pid| pid > 1 && pid != own));
    }
}
