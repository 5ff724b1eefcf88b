//! kill -9 at every system call of the commands that change something, on SQLite, where every step of the store is a system
//! call of the program. Both threads of the program are covered separately: the main thread and the lease thread.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

use super::campaign::{Campaign, Job};
use super::database::EngineUnderTest;
use super::kill_label::scenarios::Scenario;
use super::records::{Call, Fate};
use super::stage::Stage;
use super::strace;

pub const CAMPAIGN: Campaign = Campaign {
    name: "kill-syscall",
    what: "kill -9 at every system call of queue, create-runs, process-run and migrate",
    engines: &[EngineUnderTest::Sqlite],
    run,
};

const COMMANDS: [&str; 7] = ["queue", "create", "rescue", "left-over", "process", LEASES, "migrate"];
/// The thread of process-run that renews the leases and saves the reports of the handler.
const LEASES: &str = "leases";
/// How often a kill is tried: some calls are made only by runs that wait, or as often as there are processes on the machine.
const TRIES: usize = 12;
const QUICK: usize = 32;

/// The k-th call of this name by the main thread of a command.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    command: &'static str,
    call: String,
    k: usize,
}

/// The places that all workers have tried, and whether the command died there.
static TRIED: Mutex<BTreeMap<Place, bool>> = Mutex::new(BTreeMap::new());
static PLACES: OnceLock<Vec<Place>> = OnceLock::new();

fn run(job: &Job<'_>) {
    let mut stage = job.stage().unwrap();
    let places = PLACES.get_or_init(|| COMMANDS.iter().flat_map(|command| places(&mut stage, command)).collect());
    let offset = usize::try_from(job.options.seed % 1_000).unwrap();
    for trial in job.trials(QUICK, places.len()) {
        let at = if job.options.all { trial } else { trial * places.len() / QUICK + offset };
        let place = &places[at % places.len()];
        let is_fit = job.trial(trial, &mut stage, |stage| {
            let died = (0..TRIES).any(|_| kill(stage, place).fate == Fate::Killed(None));
            job.count(usize::from(died));
            TRIED.lock().unwrap().insert(place.clone(), died);
        });
        if !is_fit {
            job.note(format!("{place:?}"));
            stage = job.stage().unwrap();
        }
    }
    if job.is_last_worker() {
        report(job);
    }
}

/// Returns every call of a command, and a few more: runs that wait may make more or fewer calls.
fn places(stage: &mut Stage, command: &'static str) -> Vec<Place> {
    let all = |(call, count): (String, usize)| (1..=count + 1).map(move |k| Place { command, call: call.clone(), k });
    counts(stage, command).into_iter().flat_map(all).collect()
}

/// Returns how often a command makes each call.
fn counts(stage: &mut Stage, command: &'static str) -> BTreeMap<String, usize> {
    stage.begin_trial();
    let counts = if command == LEASES {
        strace::count_in_lease_thread(stage, Scenario::named("report").command(stage))
    } else if command == "migrate" {
        let empty = Stage::without_tables(stage.engine, &stage.program).unwrap();
        strace::count(&empty, empty.command(&["db", "migrate"]))
    } else {
        strace::count(stage, Scenario::named(command).command(stage))
    };
    stage.settle();
    counts
}

fn kill(stage: &Stage, place: &Place) -> Call {
    if place.command == LEASES {
        return strace::kill_in_lease_thread(Scenario::named("report").command(stage), &place.call, place.k);
    }
    if place.command != "migrate" {
        return strace::kill_at(Scenario::named(place.command).command(stage), &place.call, place.k).run();
    }
    let mut empty = Stage::without_tables(stage.engine, &stage.program).unwrap();
    let call = strace::kill_at(empty.command(&["db", "migrate"]), &place.call, place.k).run();
    let again = empty.command(&["db", "migrate"]).run();
    assert!(again.is_ok(), "after a migration that was killed at {place:?}: {again:?}");
    empty.prepare_tables();
    empty.begin_trial();
    empty.queue("note");
    empty.settle();
    let found = empty.check();
    assert!(found.is_empty(), "after a migration that was killed at {place:?}: {found:?}");
    call
}

/// A place without a kill was not covered, even if the command died at a later call of the same name.
fn report(job: &Job<'_>) {
    let tried = TRIED.lock().unwrap();
    let mut stage = job.stage().unwrap();
    for command in COMMANDS {
        let of_command = || tried.iter().filter(|(place, _)| place.command == command);
        let died = of_command().filter(|(_, died)| **died).count();
        job.note(format!("{command} {died} calls"));
        let is_passed =
            |place: &Place| of_command().any(|(later, died)| *died && later.call == place.call && later.k > place.k);
        let missed: Vec<&Place> =
            of_command().filter(|(place, died)| !**died && is_passed(place)).map(|(place, _)| place).collect();
        // A scan of all processes makes more calls while the machine has more of them: only calls that are reached now must
        // have been covered.
        let now = if missed.is_empty() { BTreeMap::new() } else { counts(&mut stage, command) };
        let missed: Vec<String> = missed
            .into_iter()
            .filter(|missed| now.get(&missed.call).is_some_and(|count| missed.k <= *count))
            .map(|missed| format!("{} {}", missed.call, missed.k))
            .collect();
        if !missed.is_empty() {
            job.violated(0, &[format!("{command} was not killed at {missed:?}")]);
        }
    }
}
