//! The fault suite: breaks the program in every listed way, and checks after each trial that nothing was lost, duplicated or
//! left behind. `tests/faults` calls it; docs/reliability.md has the results.
//!
//! A campaign runs trials on a [`stage::Stage`]; [`oracle`] checks their records; `bugs` proves the oracle with seeded bugs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]
#![allow(clippy::disallowed_methods, reason = "the suite starts the program, and reads the addresses of its servers")]

mod audit;
mod bugs;
mod campaign;
mod claimants_alone;
mod claimants_beside;
mod command;
mod crossed;
mod crowd;
#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../it/support/database.rs"]
mod database;
mod failover;
mod forged_rows;
mod full_disk;
mod handlers;
mod host;
mod hosts;
mod kill_label;
mod kill_syscall;
mod lanes;
mod leftovers;
mod load;
mod lost_commit;
mod options;
mod oracle;
#[allow(dead_code, reason = "a toolbox of the integration tests")]
#[path = "../it/support/own_server.rs"]
mod own_server;
mod pid_reuse;
#[path = "../it/support/proxy.rs"]
mod proxy;
mod racing_migrations;
mod records;
mod recovery;
mod report;
mod rng;
mod server_restart;
mod source_labels;
mod stage;
#[path = "../it/support/standby.rs"]
mod standby;
mod stopped;
mod storm;
mod strace;
mod syscall_errors;
#[path = "../it/support/wait.rs"]
mod wait;
mod workers;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use self::campaign::Campaign;
use self::database::EngineUnderTest;
use self::lanes::Lanes;
use self::options::Options;
use self::report::Line;

/// Every campaign, in the order in which they run: the longest first, so that none is left running alone.
const CAMPAIGNS: &[&Campaign] = &[
    &kill_label::CAMPAIGN,
    &hosts::CAMPAIGN,
    &kill_syscall::CAMPAIGN,
    &syscall_errors::CAMPAIGN,
    &crossed::CAMPAIGN,
    &storm::CAMPAIGN,
    &workers::CAMPAIGN,
    &pid_reuse::CAMPAIGN,
    &forged_rows::CAMPAIGN,
    &claimants_alone::CAMPAIGN,
    &racing_migrations::CAMPAIGN,
    &full_disk::CAMPAIGN,
    &stopped::CAMPAIGN,
    &lost_commit::CAMPAIGN,
    &server_restart::CAMPAIGN,
    &failover::CAMPAIGN,
    &recovery::CAMPAIGN,
];

fn main() -> ExitCode {
    let mut options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    if options.list {
        for campaign in CAMPAIGNS {
            let engines: Vec<&str> = campaign.engines.iter().map(|engine| engine.name()).collect();
            println!("{:<16} {} ({})", campaign.name, campaign.what, engines.join(", "));
        }
        for bug in bugs::names() {
            println!("{bug}");
        }
        return ExitCode::SUCCESS;
    }
    // A copy, so that a build meanwhile cannot change the tested program.
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("taskqueue");
    std::fs::copy(&options.program, &program).unwrap();
    options.program = program;
    // The message of a panicking trial is part of the report.
    std::panic::set_hook(Box::new(|_| ()));
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
    let lines = run_campaigns(&options, &bar);
    let verdicts = bugs::hunt(CAMPAIGNS, &options, &bar);
    bar.finish_and_clear();
    report::print(&lines, &verdicts, options.seed);
    let is_well = lines.iter().all(|line| line.tally.violations.is_empty())
        && verdicts.iter().all(|verdict| verdict.caught_by.is_some());
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The time limit of `--quick` for all campaigns together; the rest of its three minutes is for what overruns it.
const QUICK_LIMIT: Duration = Duration::from_secs(90);
/// How many campaigns run at the same time, each on its own engine: a trial mostly waits.
const LANES: usize = 2;

/// A campaign on one engine.
type Unit = (&'static Campaign, EngineUnderTest);

fn run_campaigns(options: &Options, bar: &ProgressBar) -> Vec<Line> {
    let wanted = CAMPAIGNS.iter().filter(|campaign| options.wants(campaign.name));
    let units: Vec<Unit> = wanted
        .flat_map(|campaign| campaign.engines.iter().map(move |engine| (*campaign, *engine)))
        .filter(|(_, engine)| options.engines().any(|wanted| wanted == *engine))
        .collect();
    let (started, lanes) = (Instant::now(), Lanes::new(units.clone()));
    let lines: Mutex<Vec<Line>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some(((campaign, engine), left)) = lanes.next() {
                    let line = run_unit(campaign, engine, &limited(options, started, left), bar);
                    lanes.end(engine);
                    lines.lock().unwrap().push(line);
                }
            });
        }
    });
    let mut lines = lines.into_inner().unwrap();
    lines.sort_by_key(|line| {
        units.iter().position(|(campaign, engine)| (campaign.name, engine.name()) == (line.campaign, line.engine))
    });
    lines
}

/// Returns the options of a unit when this many are left, with it: on a slow machine each campaign is shortened, and none is
/// left out.
fn limited(options: &Options, started: Instant, left: usize) -> Options {
    let mut options = options.clone();
    if options.is_quick() {
        let time = QUICK_LIMIT.saturating_sub(started.elapsed());
        let share = 2 * time * u32::try_from(LANES).unwrap() / u32::try_from(left).unwrap();
        options.until = Some(Instant::now() + share.max(Duration::from_secs(3)));
    }
    options
}

fn run_unit(campaign: &'static Campaign, engine: EngineUnderTest, options: &Options, bar: &ProgressBar) -> Line {
    let tally = campaign::run(campaign, engine, options, bar);
    // The run may take an hour, so it reports its progress, and keeps its results if it is stopped.
    let (faults, violations, secs) = (tally.faults, tally.violations.len(), tally.took.as_secs());
    let so_far = format!("{} {}: {faults} trials, {violations} violations, {secs} s", campaign.name, engine.name());
    bar.suspend(|| eprintln!("{so_far}"));
    Line { campaign: campaign.name, engine: engine.name(), tally }
}
