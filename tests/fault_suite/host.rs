//! A separate host, as far as its processes can tell: PID, mount and UTS namespaces, another boot id, and optionally a network.
//! All of it ends with the thread that created it, however that ends.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::command::Running;

/// The first process: prepares what other processes read, then waits for orphans.
const INIT: &str = r#"
set -e
hostname "$1"
[ ! -e "$3" ] || mount --bind "$3" /proc/sys/kernel/random/boot_id
for each in 100000 7000; do
    ! echo $(($2 * each)) 2>/dev/null >/proc/sys/kernel/ns_last_pid || break
done
eval "$4"
echo ready
exec >/dev/null 2>&1
while :; do sleep 1000000 & wait; done
"#;

pub struct Host {
    unshare: Child,
    /// The PID of its first process in our namespace.
    pub init: i32,
    has_network: bool,
}

/// The parameters of a host.
#[derive(Default)]
pub struct Plan<'a> {
    pub name: &'a str,
    /// Hosts with different numbers have different PIDs.
    pub number: usize,
    pub has_network: bool,
    /// A file with the boot id that it shows.
    pub boot_id: Option<&'a Path>,
    /// Shell commands of the first process.
    pub prepare: &'a str,
}

impl Host {
    /// Starts the host; the error is why this machine does not allow it.
    pub fn start(plan: &Plan<'_>) -> Result<Self, String> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare"]);
        if !is_root() {
            command.arg("--map-root-user");
        }
        if plan.has_network {
            command.arg("--net");
        }
        command.args(["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--uts", "sh", "-c", INIT, "sh"]);
        command.arg(plan.name).arg(plan.number.to_string()).arg(plan.boot_id.unwrap_or(Path::new("/nowhere")));
        command.arg(plan.prepare).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut unshare = command.spawn().map_err(|error| format!("setpriv: {error}"))?;
        let mut said = String::new();
        let _ = BufReader::new(unshare.stdout.take().unwrap()).read_line(&mut said);
        let mut host = Self { init: 0, unshare, has_network: plan.has_network };
        if said.trim() != "ready" {
            let mut stderr = String::new();
            let _ = host.unshare.stderr.take().unwrap().read_to_string(&mut stderr);
            return Err(format!("no namespaces of our own: {}", stderr.trim()));
        }
        host.init = child_of(host.pid()).ok_or("the kernel does not tell the children of a process")?;
        Ok(host)
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.unshare.id()).unwrap()
    }

    /// Returns the prefix that runs a command inside.
    pub fn prefix(&self) -> Vec<String> {
        let target = self.init.to_string();
        let mut words = vec!["nsenter", "--target", &target, "--pid", "--mount", "--uts"];
        if !is_root() {
            words.extend(["--user", "--preserve-credentials"]);
        }
        if self.has_network {
            words.push("--net");
        }
        words.into_iter().map(str::to_owned).collect()
    }

    /// Runs a shell script inside.
    pub fn script(&self, script: &str, args: &[String]) -> Output {
        let prefix = self.prefix();
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).args(["sh", "-c", script, "sh"]).args(args).stdin(Stdio::null()).output().unwrap()
    }

    /// Simulates a power failure.
    pub fn kill(&mut self) {
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        // The first process dies with `unshare`, and all others with the first process.
        while Path::new(&format!("/proc/{}/exe", self.init)).exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the program that a command with the prefix of a host runs, by its PID in our namespace; `None` if it has ended.
pub fn inside(running: &Running<'_>) -> Option<i32> {
    let started = Instant::now();
    loop {
        match child_of(running.pid()) {
            None if started.elapsed() < Duration::from_secs(5) => std::thread::sleep(Duration::from_millis(1)),
            found => return found,
        }
    }
}

fn child_of(pid: i32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Sends a signal to a process that is known to be ours.
pub fn signal(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}
