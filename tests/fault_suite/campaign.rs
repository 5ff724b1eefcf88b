//! Campaigns, and how their trials are distributed to workers and counted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::database::EngineUnderTest;
use super::options::Options;
use super::rng::Rng;
use super::stage::Stage;

/// A kind of fault. To add one: a file with a `CAMPAIGN` of this type, and a line in `main.rs`.
pub struct Campaign {
    pub name: &'static str,
    /// One line for `--list`.
    pub what: &'static str,
    pub engines: &'static [EngineUnderTest],
    /// Runs the trials of one worker on one engine.
    pub run: fn(&Job<'_>),
}

/// The share of one worker in a campaign on one engine.
pub struct Job<'a> {
    pub campaign: &'a Campaign,
    pub engine: EngineUnderTest,
    pub options: &'a Options,
    pub worker: usize,
    pub workers: usize,
    tally: &'a Mutex<Tally>,
    stop: &'a AtomicBool,
    ended: &'a AtomicUsize,
    bar: &'a ProgressBar,
}

/// The results of a campaign on one engine.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Faults that were really injected.
    pub faults: usize,
    pub violations: Vec<String>,
    /// Notes of the campaign, such as its coverage.
    pub notes: Vec<String>,
    pub took: Duration,
    pub was_run: bool,
}

impl Job<'_> {
    /// Returns the numbers of the trials of this worker, out of a total; ends early after a violation if one is enough.
    pub fn trials(&self, quick: usize, all: usize) -> impl Iterator<Item = usize> + '_ {
        self.share(quick, all, self.worker, self.workers)
    }

    /// Like `trials`, for a campaign whose trials must not overlap: all for the first worker.
    pub fn trials_of_one_worker(&self, quick: usize, all: usize) -> impl Iterator<Item = usize> + '_ {
        self.share(quick, all, 0, 1)
    }

    /// Like `trials`, for a given number of workers.
    pub fn share(&self, quick: usize, all: usize, worker: usize, workers: usize) -> impl Iterator<Item = usize> + '_ {
        let total = self.options.trials.unwrap_or(if self.options.all { all } else { quick });
        let range = self.options.trial.map_or(0..total, |only| only..only + 1);
        let is_ours = move |trial: &usize| self.options.trial.is_some() || trial % workers == worker;
        // On a slow machine a sample is small, but never empty.
        range.filter(is_ours).enumerate().take_while(|(made, _)| *made == 0 || !self.is_over()).map(|(_, trial)| trial)
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.options.until.is_some_and(|until| Instant::now() > until)
    }

    /// Returns true if all other workers have ended.
    pub fn is_last_worker(&self) -> bool {
        self.ended.fetch_add(1, Ordering::SeqCst) + 1 == self.workers
    }

    /// Returns the random choices of a trial; the same for the same seed.
    pub fn rng(&self, trial: usize) -> Rng {
        Rng::new(self.options.seed, &[self.campaign.name, self.engine.name(), &trial.to_string()])
    }

    /// Creates a new stage; without one, the campaign ends here.
    pub fn stage(&self) -> Option<Stage> {
        let stage = Stage::new(self.engine, &self.options.program)?;
        self.prepare(&stage);
        Some(stage)
    }

    /// Sets what depends on the seed: most campaigns store transitions every second time, to test both ways. With stored
    /// transitions there are no batch operations, so campaigns that test these store none.
    pub fn prepare(&self, stage: &Stage) {
        if ["kill-label", "workers"].contains(&self.campaign.name) || self.options.is_plain {
            return;
        }
        let mut rng = Rng::new(self.options.seed, &["transitions", self.campaign.name, self.engine.name()]);
        if self.options.is_hunt || rng.below(2) == 0 {
            stage.keep_transitions();
        }
    }

    /// Runs a trial on a stage: `work` breaks something, then all work is completed, then the oracle checks. Returns whether
    /// the stage may be used for the next trial.
    pub fn trial(&self, trial: usize, stage: &mut Stage, work: impl FnOnce(&mut Stage)) -> bool {
        let done = catch_unwind(AssertUnwindSafe(|| {
            stage.begin_trial();
            work(stage);
            stage.settle();
            stage.check()
        }));
        let found = done.unwrap_or_else(|panic| vec![format!("the trial could not be made: {}", panic_text(&*panic))]);
        self.judge(trial, stage, &found)
    }

    /// Ends a trial with the violations found in it. Returns whether the stage may be used for the next trial.
    pub fn judge(&self, trial: usize, stage: &Stage, found: &[String]) -> bool {
        self.bar.inc(1);
        if found.is_empty() {
            return true;
        }
        let is_first = self.violated(trial, found);
        if is_first {
            let directory = self.kept();
            let _ = catch_unwind(AssertUnwindSafe(|| stage.keep(&directory, found)));
            self.say(&format!("  its store is kept in {}", directory.display()));
        }
        false
    }

    /// Records violations that need no store. Returns whether they are the first of this campaign.
    pub fn violated(&self, trial: usize, found: &[String]) -> bool {
        let mut tally = self.tally.lock().unwrap();
        let is_first = tally.violations.is_empty();
        tally.violations.extend(found.iter().cloned());
        if self.options.first {
            self.stop.store(true, Ordering::Relaxed);
        }
        if self.options.is_hunt {
            return false;
        }
        let (name, engine, seed) = (self.campaign.name, self.engine.name(), self.options.seed);
        self.say(&format!("{name} {engine}: trial {trial}: repeat it with --only {name} --engine {engine} --seed {seed} --trial {trial}{}", if self.options.all { " --all" } else { "" }));
        for what in found.iter().take(5) {
            self.say(&format!("  {what}"));
        }
        is_first
    }

    /// Records that a planned fault was not injected: for the correct program this is as bad as a violation, but it does not
    /// detect a seeded bug.
    pub fn missed(&self, trial: usize, what: String) {
        if self.options.is_hunt {
            self.note(what);
        } else {
            self.violated(trial, &[what]);
        }
    }

    fn say(&self, line: &str) {
        self.bar.suspend(|| eprintln!("{line}"));
    }

    /// Records that a fault was really injected.
    pub fn count(&self, faults: usize) {
        self.tally.lock().unwrap().faults += faults;
    }

    pub fn note(&self, note: String) {
        let mut tally = self.tally.lock().unwrap();
        if !tally.notes.contains(&note) {
            tally.notes.push(note);
        }
    }

    /// Records that this machine does not allow the campaign. Only a sample may skip it.
    pub fn impossible(&self, why: &str) {
        let said = format!("not possible here: {why}");
        if self.options.all && self.worker == 0 {
            self.violated(0, &[said]);
        } else {
            self.note(said);
        }
    }

    fn kept(&self) -> PathBuf {
        let name = format!("taskqueue-faults-{}-{}-{}", std::process::id(), self.campaign.name, self.engine.name());
        std::env::temp_dir().join(name)
    }
}

pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}

/// Runs a campaign on one engine with all workers.
pub fn run(campaign: &Campaign, engine: EngineUnderTest, options: &Options, bar: &ProgressBar) -> Tally {
    let (tally, stop, ended) = (Mutex::new(Tally::default()), AtomicBool::new(false), AtomicUsize::new(0));
    let started = Instant::now();
    bar.set_message(format!("{} {}", campaign.name, engine.name()));
    let workers = if options.trial.is_some() { 1 } else { options.workers };
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let job =
                Job { campaign, engine, options, worker, workers, tally: &tally, stop: &stop, ended: &ended, bar };
            scope.spawn(move || {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (campaign.run)(&job))) {
                    // All workers have the same problem.
                    if job.stop.swap(true, Ordering::SeqCst) {
                        return;
                    }
                    job.violated(0, &[format!("the campaign broke off: {}", panic_text(&*panic))]);
                }
            });
        }
    });
    let mut tally = tally.into_inner().unwrap();
    tally.took = started.elapsed();
    tally.was_run = true;
    tally
}
