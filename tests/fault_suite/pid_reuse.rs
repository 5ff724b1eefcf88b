//! Runners and handlers die, and innocent processes get their PIDs, also of other users: no process may be signalled, and the
//! runs are rescued. In a separate PID namespace, in which the next PID can be chosen.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::campaign::{Campaign, Job};
use super::host::{self, Host, Plan};
use super::options::ENGINES;
use super::rng::Rng;
use super::stage::Stage;

pub const CAMPAIGN: Campaign = Campaign {
    name: "pid-reuse",
    what: "the PIDs of dead runners and handlers are given to innocent processes",
    engines: &ENGINES,
    run,
};

/// Runners that die in one trial.
const AT_ONCE: usize = 3;
const NOBODY: &str = "65534";

/// Arguments: a folder, a user or nothing, an unused PID, then the PIDs. The kernel counts start times in hundredths of a
/// second. The script waits for the next one, because otherwise two processes would be the same one.
const INNOCENTS: &str = r#"
folder=$1 user=$2 high=$3; shift 3
for pid; do while [ -e /proc/$pid ]; do sleep 0.002; done; done
read then rest </proc/uptime; now=$then
while [ $now = $then ]; do read now rest </proc/uptime; done
record='for s in HUP INT QUIT USR1 USR2 TERM CONT TSTP; do trap "echo $s >>$1/heard-$$" $s; done
: >$1/ready-$$; while :; do read x <>"$1/never"; done'
for pid; do
    tries=0
    while :; do
        echo $((pid - 1)) >/proc/sys/kernel/ns_last_pid
        if [ -n "$user" ]; then
            setsid setpriv --reuid=$user --regid=$user --clear-groups sh -c "$record" sh "$folder" </dev/null >/dev/null 2>&1 &
        else
            setsid sh -c "$record" sh "$folder" </dev/null >/dev/null 2>&1 &
        fi
        [ $! = $pid ] && break
        kill -9 $!; wait $! 2>/dev/null
        tries=$((tries + 1)); [ $tries -lt 200 ] || { echo "PID $pid cannot be had" >&2; exit 1; }
    done
done
for pid; do until [ -e "$folder/ready-$pid" ]; do sleep 0.002; done; done
echo $high >/proc/sys/kernel/ns_last_pid
"#;

/// Prints which of the PIDs are no longer innocents, and ends the others.
const ENQUIRE: &str = r#"
folder=$1; shift
for pid; do
    if read number name state rest </proc/$pid/stat && [ "$name $state" = "(sh) S" ]; then
        kill -9 $pid
        while [ -e /proc/$pid ]; do sleep 0.002; done
    else
        echo "the innocent $pid is dead: $name $state"
    fi
    [ ! -e $folder/heard-$pid ] || echo "the innocent $pid was signalled: $(cat $folder/heard-$pid)"
    rm -f $folder/*-$pid
done
"#;

fn run(job: &Job<'_>) {
    let Some(mut stage) = job.stage() else { return job.note("no server".to_owned()) };
    let host = match Host::start(&Plan { name: "reuse", number: 1, ..Plan::default() }) {
        Ok(host) => host,
        Err(why) => return job.impossible(&why),
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let made = "mkfifo $1/never && chmod 666 $1/never";
    assert!(host.script(made, &[folder.path().display().to_string()]).status.success());
    let mut high = 150_000;
    for trial in job.trials(1, 64) {
        stage.prefix.replace(host.prefix());
        let mut rng = job.rng(trial);
        high += 400;
        let is_fit = job.trial(trial, &mut stage, |stage| {
            job.count(reuse(stage, &host, &mut rng, &folder.path().display().to_string(), high));
        });
        if !is_fit {
            stage = job.stage().unwrap();
        }
    }
}

/// Returns how many PIDs were given to innocents.
fn reuse(stage: &Stage, host: &Host, rng: &mut Rng, folder: &str, high: usize) -> usize {
    for _ in 0..AT_ONCE {
        stage.queue("hang-once");
    }
    assert!(stage.command(&["create-runs"]).run().is_ok());
    let mut running: Vec<_> = (0..AT_ONCE).map(|_| stage.command(&["process-run"]).spawn()).collect();
    let (runners, handlers) = wait_for_handlers(stage, AT_ONCE);
    stage.broken.borrow_mut().extend(runners.iter().map(|pid| pid.parse::<i64>().unwrap()));
    for runner in &mut running {
        host::signal(host::inside(runner).expect("a runner has ended"), Signal::KILL);
    }
    running.into_iter().for_each(|runner| drop(runner.wait()));

    let mut reused = Vec::new();
    for (runner, handler) in runners.iter().zip(&handlers) {
        match rng.below(3) {
            0 => reused.push(runner.clone()),
            1 => reused.push(handler.clone()),
            _ => reused.extend([runner.clone(), handler.clone()]),
        }
    }
    let user = if host::is_root() && rng.below(2) == 0 { NOBODY } else { "" };
    let head = [folder.to_owned(), user.to_owned(), high.to_string()];
    let started = host.script(INNOCENTS, &[&head[..], &reused].concat());
    assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    for args in [&["process-run"][..], &["create-runs"]] {
        assert!(stage.command(args).run().is_ok());
    }
    let enquiry = host.script(ENQUIRE, &[&head[..1], &reused].concat());
    let said = String::from_utf8_lossy(&enquiry.stdout);
    assert!(said.is_empty() && enquiry.status.success(), "{said}{}", String::from_utf8_lossy(&enquiry.stderr));
    let rescued = stage.texts("SELECT \"ErrorCode\" AS value FROM \"TaskQueueRuns\" ORDER BY \"Id\" DESC LIMIT 6");
    assert_eq!(rescued.iter().filter(|code| *code == "runner-died").count(), AT_ONCE, "{rescued:?}");
    reused.len()
}

/// Returns the PIDs of the runners and of the handlers, when this many handlers are running and recorded.
pub fn wait_for_handlers(stage: &Stage, count: usize) -> (Vec<String>, Vec<String>) {
    let started = Instant::now();
    loop {
        let column = |name: &str| {
            let cast = if stage.url().starts_with("mysql") { "CHAR" } else { "TEXT" };
            stage.texts(&format!(
                "SELECT CAST(\"{name}\" AS {cast}) AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'processing' \
                 AND \"HandlerProcessId\" IS NOT NULL ORDER BY \"Id\""
            ))
        };
        let (runners, handlers) = (column("ProcessId"), column("HandlerProcessId"));
        if runners.len() == count && handlers.len() == count {
            return (runners, handlers);
        }
        assert!(started.elapsed() < Duration::from_secs(60), "no {count} handlers are at work: {runners:?}");
        std::thread::sleep(Duration::from_millis(3));
    }
}
