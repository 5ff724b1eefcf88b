//! Three hosts with their own PID, mount, UTS and network namespaces and boot ids, on which cron ticks and workers use one
//! store. Their links go down and up, answers or requests are delayed, connections are cut, and whole hosts die.

mod loss;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use self::loss::{Kind, Loss, report_recovery};
use super::campaign::{Campaign, Job};
use super::claimants_beside;
use super::crowd::Crowd;
use super::database::EngineUnderTest;
use super::handlers;
use super::host::{Host, Plan};
use super::proxy::Proxy;
use super::records::Fate;
use super::rng::Rng;
use super::stage::Stage;

pub const CAMPAIGN: Campaign = Campaign {
    name: "hosts",
    what: "three hosts whose network fails in parts and that die as a whole",
    engines: &[EngineUnderTest::Postgres, EngineUnderTest::Mariadb, EngineUnderTest::Mysql],
    run,
};

const HOSTS: usize = 3;
pub const LEASE_SECS: u32 = 8;
/// The duration of the faults.
const QUICK: Duration = Duration::from_secs(20);
const ALL: Duration = Duration::from_secs(210);
/// At first only the network of one host fails, so that the others take over its tasks.
const CALM: Duration = Duration::from_secs(15);
/// After repair and expiry of all leases, all work is completed within this time. Connections on which a client would wait
/// forever are cut when their link is repaired.
const TO_REST: Duration = Duration::from_secs(150);
/// The pause between two tasks whose handlers outlast a lease, each with a batch that workers claim ahead.
const VIGIL_PAUSE: Duration = Duration::from_secs(5);
const BATCH: usize = 16;
/// A worker that is blocked by others gives up in the end.
const WORK: &[&str] = &["work", "--slots", "2", "--idle-exit", "1s", "--max-time", "20s"];
/// How long a claimant keeps a run that died with its host. Longer than any processing here.
const TIMEOUT_SECS: u32 = 40;
/// How many commands of one host run at the same time.
const AT_ONCE: usize = 3;

fn run(job: &Job<'_>) {
    // The sample uses one engine.
    let turn = usize::try_from(job.options.seed % 3).unwrap();
    let is_turn = job.options.all || job.options.engine.is_some() || CAMPAIGN.engines[turn] == job.engine;
    if job.worker != 0 {
        return;
    }
    if !is_turn {
        return job.note("not in this sample".to_owned());
    }
    // A seeded bug must be detected soon.
    let (lasts, trials) = match (job.options.all, job.options.is_hunt) {
        (true, true) => (2 * QUICK, 3),
        (true, false) => (ALL, 1),
        (false, _) => (QUICK, 1),
    };
    for trial in job.trials_of_one_worker(1, trials) {
        let Some(mut stage) = job.stage() else { return job.note("no server".to_owned()) };
        stage.shorten_leases(LEASE_SECS);
        // A worker has two slots; this allows three runners of each host and those of the suite itself.
        for (name, value) in [("RunnerLimit", 21), ("RunTimeout", TIMEOUT_SECS)] {
            stage.execute(&format!(
                "UPDATE \"TaskQueueSettings\" SET \"Value\" = '{value}' WHERE \"Name\" = 'TaskQueue{name}'"
            ));
        }
        let machines: Result<Vec<Machine>, String> = (1..=HOSTS).map(|number| Machine::start(&stage, number)).collect();
        let mut machines = match machines {
            Ok(machines) => machines,
            Err(why) => return job.impossible(&why),
        };
        let mut rng = job.rng(trial);
        job.trial(trial, &mut stage, |stage| {
            stage.may_fail.set(true);
            stage.outcomes_are_kept.set(true);
            let losses = nemesis(job, stage, &mut machines, &mut rng, lasts);
            for loss in losses.iter().filter(|loss| loss.kind == Kind::Died) {
                stage.broken.borrow_mut().extend(loss.runners(stage));
            }
            come_to_rest(stage, &machines);
            report_recovery(job, stage, &losses);
        });
    }
}

/// A host with its link and its home.
struct Machine {
    number: usize,
    host: Option<Host>,
    proxy: Proxy,
    home: PathBuf,
    boot_id: PathBuf,
    link: String,
    /// When its faults are repaired.
    until: Option<Instant>,
    boots: usize,
}

impl Machine {
    fn start(stage: &Stage, number: usize) -> Result<Self, String> {
        let home = stage.other_home(&host_name(number));
        let mut machine = Self {
            number,
            host: None,
            // Created when the address of the link exists.
            proxy: Proxy::start("127.0.0.1", stage.url()),
            boot_id: stage.home().join(format!("boot-id-{number}")),
            home,
            link: format!("tq{}x{number}", std::process::id()),
            until: None,
            boots: 0,
        };
        machine.boot()?;
        machine.proxy = Proxy::start(&machine.gateway(), stage.url());
        Ok(machine)
    }

    fn name(&self) -> String {
        host_name(self.number)
    }

    /// Returns the address of our end of the link; the PID of the suite distinguishes two suites.
    fn gateway(&self) -> String {
        format!("10.{}.{}.1", 64 + std::process::id() % 128, self.number)
    }

    /// Boots the same host again, with another boot id, other PIDs, and the same disk.
    fn boot(&mut self) -> Result<(), String> {
        self.boots += 1;
        let boot_id = format!("{:08x}-0000-4000-8000-{:012x}", self.number, self.boots);
        std::fs::write(&self.boot_id, boot_id).unwrap();
        let plan = Plan {
            name: &self.name(),
            number: self.number + 3 * self.boots,
            has_network: true,
            boot_id: Some(&self.boot_id),
            prepare: "ip link set lo up",
        };
        let host = Host::start(&plan)?;
        let init = host.init.to_string();
        let (ours, gateway) = (&self.link, self.gateway());
        let theirs = format!("{}.2", gateway.rsplit_once('.').unwrap().0);
        ip(&["link", "add", ours, "type", "veth", "peer", "name", "eth0", "netns", &init])?;
        ip(&["address", "add", &format!("{gateway}/24"), "dev", ours])?;
        ip(&["link", "set", ours, "up"])?;
        let script = format!("ip address add {theirs}/24 dev eth0 && ip link set eth0 up");
        let output = host.script(&script, &[]);
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        self.host = Some(host);
        Ok(())
    }

    /// Simulates a power failure: its link disappears too.
    fn die(&mut self) {
        self.host = None;
        // The kernel takes some time to remove the other end.
        let _ = ip(&["link", "delete", &self.link]);
    }

    fn command<'a>(&self, stage: &'a Stage, args: &[&str]) -> super::command::Command<'a> {
        let prefix = self.host.as_ref().map(Host::prefix).unwrap_or_default();
        let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
        self.at_home(stage.command(args).under(&prefix))
    }

    /// Sets the home and the spool of this host.
    fn at_home<'a>(&self, command: super::command::Command<'a>) -> super::command::Command<'a> {
        command.env("HOME", &self.home.display().to_string()).env("TASKQUEUE_DATABASE_URL", &self.proxy.url)
    }

    /// Isolates it for more than two leases.
    fn isolate(&mut self) {
        ip(&["link", "set", &self.link, "down"]).unwrap();
        self.until = Some(Instant::now() + Duration::from_secs(18));
    }

    /// Repairs its network. A client that waits for a lost answer notices that.
    fn mend(&mut self) {
        self.until = None;
        self.proxy.hold(false, false);
        if self.host.is_some() {
            let _ = ip(&["link", "set", &self.link, "up"]);
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.host = None;
        let _ = ip(&["link", "delete", &self.link]);
    }
}

fn host_name(number: usize) -> String {
    format!("host-{number}")
}

fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(args).output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

fn nemesis(job: &Job<'_>, stage: &Stage, machines: &mut [Machine], rng: &mut Rng, lasts: Duration) -> Vec<Loss> {
    let started = Instant::now();
    let mut losses = Vec::new();
    let mut crowds: Vec<Crowd<'_>> = (0..=machines.len()).map(|_| Crowd::default()).collect();
    let (mut next_fault, mut next_call, mut next_vigil) = (Duration::from_secs(2), Duration::ZERO, Duration::ZERO);
    let (mut is_isolated, mut is_cut_off) = (false, false);
    while started.elapsed() < lasts {
        let nothing_restricts_claims = job.options.all && started.elapsed() < CALM;
        if nothing_restricts_claims && !is_isolated {
            is_isolated = isolate_a_vigil(stage, machines);
            job.count(usize::from(is_isolated));
        }
        if nothing_restricts_claims && !is_cut_off {
            let cut_off = cut_off_a_worker(stage, machines);
            is_cut_off = cut_off.is_some();
            job.count(usize::from(is_cut_off));
            losses.extend(cut_off);
        }
        crowds.iter_mut().for_each(Crowd::reap);
        if started.elapsed() >= next_call {
            next_call = started.elapsed() + Duration::from_millis(150 + rng.below(200) as u64);
            call(stage, machines, &mut crowds, rng);
        }
        if started.elapsed() >= next_vigil {
            next_vigil = started.elapsed() + VIGIL_PAUSE;
            let marker = stage.marker();
            let data = format!("{{\"m\":\"{marker}\"}}");
            crowds[HOSTS].start(stage.command(&["queue", "vigil", &data]).queues(&marker, 1));
            crowds[HOSTS].start(batch(stage));
        }
        for machine in machines.iter_mut().filter(|machine| machine.until.is_some_and(|until| until < Instant::now())) {
            if machine.host.is_none() {
                machine.boot().unwrap();
            }
            machine.mend();
        }
        if !nothing_restricts_claims && started.elapsed() >= next_fault {
            next_fault = started.elapsed() + Duration::from_millis(500 + rng.below(2_500) as u64);
            let at = rng.below(machines.len());
            if machines[at].until.is_none() {
                let loss = if losses.is_empty() && job.options.all {
                    // The table is locked, and the server does not notice that its client has disappeared.
                    lock_for_ever(stage, &machines[at], &mut crowds[at]);
                    Some(lose(&mut machines[at]))
                } else {
                    fault(&mut machines[at], rng)
                };
                losses.extend(loss);
                job.count(1);
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::write(handlers::hurry_path(stage.home()), "").unwrap();
    for machine in machines.iter_mut() {
        if machine.host.is_none() {
            machine.boot().unwrap();
        }
        machine.mend();
        // A client without a time limit, whose server never answers.
        machine.proxy.cut_all();
    }
    crowds.iter_mut().for_each(|crowd| drop(crowd.wait()));
    losses
}

/// Cuts off a host on which a handler works for longer than a lease, if there is one yet.
fn isolate_a_vigil(stage: &Stage, machines: &mut [Machine]) -> bool {
    let hosts = stage.texts(
        "SELECT \"Host\" AS value FROM \"TaskQueueRuns\" \
         WHERE \"TaskClass\" = 'vigil' AND \"StartedOn\" IS NOT NULL AND \"FinishedOn\" IS NULL",
    );
    let isolated = machines.iter_mut().find(|machine| hosts.contains(&machine.name()));
    let Some(machine) = isolated else { return false };
    machine.isolate();
    true
}

/// Cuts off a host whose worker has claimed more runs than it has slots, if there is one yet.
fn cut_off_a_worker(stage: &Stage, machines: &mut [Machine]) -> Option<Loss> {
    let hosts = stage.texts(
        "SELECT \"Host\" AS value FROM \"TaskQueueRuns\" WHERE \"Status\" = 'processing' AND \"Claimant\" IS NULL \
         GROUP BY \"Host\", \"RunnerId\" HAVING COUNT(*) > 4",
    );
    let is_one = |machine: &&mut Machine| machine.until.is_none() && hosts.contains(&machine.name());
    let machine = machines.iter_mut().find(is_one)?;
    machine.isolate();
    Some(Loss::new(machine.name(), Kind::CutOff))
}

/// Returns a command that queues short tasks for both kinds of coprocesses.
fn batch(stage: &Stage) -> super::command::Command<'_> {
    let marker = stage.marker();
    let line = |number: usize| {
        let class = if number.is_multiple_of(4) { "several" } else { "kept" };
        format!("{{\"class\":\"{class}\",\"data\":{{\"m\":\"{marker}\",\"n\":{number}}}}}\n")
    };
    stage.command(&["queue", "--batch", "-"]).stdin((0..BATCH).map(line).collect()).queues(&marker, BATCH)
}

/// Starts a claim that keeps its lock and never continues, as soon as it has the lock; without a run to claim it gets none.
fn lock_for_ever<'a>(stage: &'a Stage, machine: &Machine, crowd: &mut Crowd<'a>) {
    let log = machine.home.join("steps");
    let _ = std::fs::remove_file(&log);
    crowd.start(machine.command(stage, &["process-run"]).fault("claim.locked=sleep:600000").log(&log));
    let started = Instant::now();
    let is_locked = || std::fs::read_to_string(&log).is_ok_and(|steps| steps.contains("claim.locked"));
    while !is_locked() && started.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Acts like cron and users: ticks and workers on every host, new tasks and changes from a host or from a place without faults,
/// claimants on the hosts.
fn call<'a>(stage: &'a Stage, machines: &[Machine], crowds: &mut [Crowd<'a>], rng: &mut Rng) {
    let wish = Wish::any(stage, rng);
    let at = rng.below(crowds.len());
    let (last, of_hosts) = crowds.split_last_mut().unwrap();
    match machines.get(at).filter(|machine| machine.host.is_some()) {
        Some(machine) if of_hosts[at].len() < AT_ONCE => {
            of_hosts[at].start(wish.of(|args| machine.command(stage, args)));
        }
        _ if last.len() < AT_ONCE => last.start(wish.of(|args| stage.command(args))),
        _ => {}
    }
    for (machine, crowd) in machines.iter().zip(of_hosts) {
        let Some(host) = machine.host.as_ref().filter(|_| crowd.len() < AT_ONCE) else { continue };
        if rng.below(4) == 0 {
            let prefix = host.prefix();
            let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
            crowd.start(machine.at_home(claimants_beside::acting(stage, &prefix, rng.below(30))));
        } else {
            let args = *rng.pick(&[&["create-runs"][..], &["tick"], WORK]);
            crowd.start(machine.command(stage, args));
        }
    }
}

/// A command of a user.
struct Wish {
    args: Vec<String>,
    /// The data of the task that it queues.
    marker: Option<String>,
}

impl Wish {
    fn any(stage: &Stage, rng: &mut Rng) -> Self {
        let class = *rng.pick(&["note", "brief", "brief", "slow", "report", "paced", "kept", "several"]);
        let marker = stage.marker();
        let data = format!("{{\"m\":\"{marker}\"}}");
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let key = format!("key-{}", rng.below(3));
        // A task that may be cancelled is never a prerequisite.
        let after = queued(stage, "note", rng);
        let args = match (rng.below(10), queued(stage, "brief", rng)) {
            (0, Some(id)) => return Self { args: words(&["cancel", &id]), marker: None },
            (1, Some(id)) => return Self { args: words(&["edit", &id, "--priority", "1"]), marker: None },
            (2, _) => return Self { args: words(&["queue", "late", &data, "--unique", &key]), marker: None },
            (3, _) => words(&["queue", class, &data, "--priority", "2"]),
            (4, _) => words(&["queue", class, &data, "--in", "2s"]),
            (5 | 6, _) => words(&["queue", class, &data, "--limit-key", "shared"]),
            (7, _) if after.is_some() => words(&["queue", class, &data, "--after", &after.unwrap()]),
            _ => words(&["queue", class, &data]),
        };
        Self { args, marker: Some(marker) }
    }

    fn of<'a>(&self, command: impl FnOnce(&[&str]) -> super::command::Command<'a>) -> super::command::Command<'a> {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        match &self.marker {
            Some(marker) => command(&args).queues(marker, 1),
            None => command(&args),
        }
    }
}

/// Returns a task of this class whose id a caller received.
fn queued(stage: &Stage, class: &str, rng: &mut Rng) -> Option<String> {
    let calls = stage.calls.borrow();
    let is_one = |call: &&super::records::Call| {
        call.queues.is_some() && call.fate == Fate::Exited(0) && call.args.get(1).is_some_and(|word| word == class)
    };
    let ids: Vec<i64> = calls.iter().filter(is_one).flat_map(|call| call.ids.iter().copied()).collect();
    (!ids.is_empty()).then(|| rng.pick(&ids).to_string())
}

/// Injects a fault for 1 to 18 seconds, sometimes longer than a lease.
fn fault(machine: &mut Machine, rng: &mut Rng) -> Option<Loss> {
    machine.until = Some(Instant::now() + Duration::from_millis(1_000 + rng.below(17_000) as u64));
    match rng.below(8) {
        0..=2 => ip(&["link", "set", &machine.link, "down"]).unwrap(),
        3 => machine.proxy.hold(true, false),
        4 => machine.proxy.hold(false, true),
        5 => machine.proxy.cut_all(),
        6 => {
            ip(&["link", "set", &machine.link, "down"]).unwrap();
            machine.until = Some(Instant::now() + Duration::from_millis(200 + rng.below(800) as u64));
        }
        _ => return Some(lose(machine)),
    }
    None
}

/// The host dies with its runs. This sends no query, because the server may wait for this host.
fn lose(machine: &mut Machine) -> Loss {
    machine.die();
    machine.until = Some(Instant::now() + Duration::from_secs(10));
    Loss::new(machine.name(), Kind::Died)
}

/// Repairs every host: each sends the outcomes on its disk, then no run is open any more.
fn come_to_rest(stage: &Stage, machines: &[Machine]) {
    let started = Instant::now();
    loop {
        for machine in machines {
            machine.command(stage, &["tick"]).run();
        }
        if stage.is_at_rest() && stage.records().left_files.is_empty() || started.elapsed() > TO_REST {
            return;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}
