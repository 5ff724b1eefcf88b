//! The reference: tasks, runs and runners in plain vectors, by the rules R1 to R10 (docs/architecture.md). It does not use the
//! program's own rules or a clock.

mod runs;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};

use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::unique::OnConflict;

use super::commands::{CLASSES, Claimant, Command, Delay, End, Handled};

/// How many crashes quarantine a task: few, so that short sequences reach it.
pub const CRASH_LIMIT: i32 = 2;
/// How many claims of a task a claimant may let expire before it may no longer claim it.
pub const CLAIM_TIMEOUT_LIMIT: i32 = 2;

/// When a task is planned. Earlier tasks get their run first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// This many seconds into 2020.
    Past(u32),
    /// When it was queued.
    Now,
    /// After the test.
    Later,
}

/// The state of a process, as far as it can be determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Alive,
    Dead,
    /// On another host: it cannot be checked from here.
    Elsewhere,
}

#[derive(Clone, Debug)]
pub struct Task {
    pub class: usize,
    pub priority: i32,
    pub max_retries: i32,
    pub failed_retries: i32,
    pub crashes: i32,
    pub is_quarantined: bool,
    pub attempts: i32,
    pub status: &'static str,
    pub when: When,
    pub open_run: Option<usize>,
    /// The prerequisites that have not succeeded.
    pub waits_for: BTreeSet<usize>,
    /// Whether it is the newest task of a schedule.
    pub recurs: bool,
    /// Its unique key in its class.
    pub key: Option<u8>,
    /// Its limit key, which limits the slots.
    pub limit_key: Option<u8>,
}

#[derive(Clone, Debug)]
pub struct Run {
    pub task: usize,
    pub priority: i32,
    pub attempt: i32,
    pub status: &'static str,
    pub error_code: &'static str,
    /// The process that claimed it, if any.
    pub holder: Option<Who>,
    /// The number of the claimant, if it was no runner.
    pub claimant: Option<usize>,
    pub is_lease_over: bool,
    /// Whether its end was requested.
    pub is_unwanted: bool,
    pub has_key_slot: bool,
    /// Its place in the line of claims: the command that created it, and how often it had to line up behind others since.
    pub place: (usize, usize),
}

#[derive(Clone, Debug)]
pub struct Runner {
    pub who: Who,
    pub slots: i32,
    pub is_silent: bool,
    pub is_finished: bool,
}

/// The answer to a command. Runs and tasks are given by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Refused,
    OpenRun(Option<usize>),
    Claimed {
        run: usize,
        task: usize,
        attempt: i32,
        max_retries: i32,
    },
    NothingToClaim,
    NotClaimed {
        status: String,
        class: String,
    },
    Obstructed,
    Recorded,
    /// Recorded, but as cancelled.
    RecordedAsCancelled,
    Cancelled,
    CancelRequested {
        run: usize,
    },
    Lost {
        found: String,
    },
    IsOurs(bool),
    Renewed {
        is_registered: bool,
        is_lost: bool,
    },
    Registered,
    LimitReached {
        in_use: i64,
        limit: i64,
    },
    Processed {
        runs: u64,
        succeeded: u64,
    },
    Count(usize),
    Retried(bool),
    Created {
        rescued: BTreeSet<(usize, &'static str)>,
        finished_runners: usize,
        created: usize,
    },
}

/// The end of a waiting run that is no longer needed.
const CANCELLED: End =
    End { event: RunEvent::Cancel, may_retry: true, is_crash: false, delay: Delay::None, hold: None };

/// Why a claimant may not claim a task.
#[derive(Clone, Debug, Default)]
pub struct Rejection {
    /// How often its lease expired.
    pub timeouts: i32,
    /// If false, it passes after the sequence.
    pub is_final: bool,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub tasks: Vec<Task>,
    pub runs: Vec<Run>,
    pub runners: Vec<Runner>,
    /// Held classes, each with whether it is held on this host.
    pub holds: BTreeSet<(usize, bool)>,
    /// For each task and claimant with a rejection or an expired lease.
    pub rejections: BTreeMap<(usize, usize), Rejection>,
    pub limit: i32,
    /// Paused classes; `None` means everything.
    pub pauses: BTreeSet<Option<usize>>,
    /// For each class: the limit of runs at once, and of starts.
    pub class_limits: [(Option<i32>, Option<i32>); 3],
    /// For each limit key: its slots.
    pub key_limits: [i32; 2],
    /// The commands so far: runs that one creates have one place, and are in order among themselves.
    pub commands: usize,
}

impl Model {
    pub fn new() -> Self {
        Self {
            tasks: Vec::new(),
            runs: Vec::new(),
            runners: Vec::new(),
            holds: BTreeSet::new(),
            rejections: BTreeMap::new(),
            limit: 8,
            pauses: BTreeSet::new(),
            class_limits: [(None, None); 3],
            key_limits: [1; 2],
            commands: 0,
        }
    }

    pub fn processing_runs(&self) -> Vec<usize> {
        (0..self.runs.len()).filter(|run| self.runs[*run].status == "processing").collect()
    }

    pub fn claimed_runs(&self) -> Vec<usize> {
        (0..self.runs.len()).filter(|run| self.runs[*run].holder.is_some()).collect()
    }

    pub fn outside_runs(&self) -> Vec<usize> {
        (0..self.runs.len()).filter(|run| self.runs[*run].claimant.is_some()).collect()
    }

    pub fn has_schedule(&self) -> bool {
        self.tasks.iter().any(|task| task.recurs)
    }

    /// Creates the next task of a schedule when its newest task has finished.
    pub(super) fn follow(&mut self, index: usize) {
        let task = &mut self.tasks[index];
        let is_exhausted = matches!(task.status, "failed" | "timeout") && task.failed_retries >= task.max_retries;
        let is_settled = matches!(task.status, "success" | "cancelled") || is_exhausted || task.is_quarantined;
        if !task.recurs || !is_settled || task.open_run.is_some() || task.status == "processing" {
            return;
        }
        task.recurs = false;
        let (class, priority, max_retries) = (task.class, task.priority, task.max_retries);
        self.add_task(class, priority, max_retries, When::Later);
        self.tasks.last_mut().unwrap().recurs = true;
    }

    pub fn slots_in_use(&self) -> i32 {
        self.runners.iter().filter(|runner| !runner.is_finished).map(|runner| runner.slots).sum()
    }

    /// Returns true if a task gets a run now.
    pub fn is_due(&self, task: usize) -> bool {
        let task = &self.tasks[task];
        matches!(task.status, "scheduled" | "failed" | "timeout")
            && task.open_run.is_none()
            && task.failed_retries < task.max_retries
            && !task.is_quarantined
            && task.waits_for.is_empty()
            && task.when != When::Later
    }

    /// Returns true if everything that the command refers to exists: in a shortened sequence it may not.
    pub fn allows(&self, command: &Command) -> bool {
        use Command::{
            Cancel, CancelTask, ClaimRun, Edit, EndRun, EndWithWrongToken, FinishRunner, GrantRetry, Heartbeat,
            LeaseOver, MakeDue, OpenRunOf, QueueAfter, QueueSchedule, Reject, Renew, Report, RetryTask, Silence,
        };
        let is_claimed = |run: usize| self.runs.get(run).is_some_and(|run| run.holder.is_some());
        match *command {
            OpenRunOf { task }
            | Cancel { task }
            | CancelTask { task }
            | Edit { task, .. }
            | GrantRetry { task }
            | MakeDue { task }
            | RetryTask { task } => task < self.tasks.len(),
            QueueAfter { after, .. } => after.iter().all(|task| *task < self.tasks.len()),
            ClaimRun { run, .. } => run < self.runs.len(),
            EndRun { run, .. } | EndWithWrongToken { run, .. } | Report { run } | Heartbeat { run } => is_claimed(run),
            Reject { run } => self.runs.get(run).is_some_and(|run| run.claimant.is_some()),
            LeaseOver { run } => self.runs.get(run).is_some_and(|run| run.status == "processing"),
            Renew { runner, run } => runner < self.runners.len() && is_claimed(run),
            FinishRunner { runner } | Silence { runner } => runner < self.runners.len(),
            QueueSchedule { .. } => !self.has_schedule(),
            _ => true,
        }
    }

    /// Executes a command, and returns the expected answer of the store.
    pub fn step(&mut self, command: &Command) -> Answer {
        self.commands += 1;
        match *command {
            Command::Queue { class, priority, max_retries, when } => self.add_task(class, priority, max_retries, when),
            Command::QueueAfter { class, after } => {
                let open = after.into_iter().filter(|task| self.tasks[*task].status != "success").collect();
                let answer = self.add_task(class, 0, 5, When::Now);
                if let Some(task) = self.tasks.last_mut() {
                    task.waits_for = open;
                }
                answer
            }
            Command::QueueUnique { class, key, on_conflict } => self.queue_unique(class, key, on_conflict),
            Command::QueueLimited { class, key, priority } => {
                let answer = self.add_task(class, priority, 3, When::Now);
                self.tasks.last_mut().unwrap().limit_key = Some(key);
                answer
            }
            Command::Insert { class } => self.add_task(class, 0, 5, When::Now),
            Command::QueueSchedule { class } => {
                self.add_task(class, 0, 2, When::Later);
                self.tasks.last_mut().unwrap().recurs = true;
                Answer::Done
            }
            Command::QueueBad { .. } => Answer::Refused,
            Command::CreateRuns => self.create_runs(),
            Command::OpenRunOf { task } => {
                if self.is_due(task) {
                    let first_new = self.runs.len();
                    self.create_run(task);
                    self.tasks[task].limit_key.into_iter().for_each(|key| self.fit_key(key, Some(first_new)));
                }
                Answer::OpenRun(self.tasks[task].open_run)
            }
            Command::ClaimNext(claimant) => match self.next_claimable(claimant.can) {
                Some(run) => self.claim(run, claimant.who),
                None => Answer::NothingToClaim,
            },
            Command::Start(claimant) => self.start(claimant),
            Command::ClaimRun { run, claimant } => self.claim_run(run, claimant),
            Command::ClaimOutside { by, claimant } => match self.next_offered(claimant.can, by) {
                Some(run) => {
                    self.runs[run].claimant = Some(by);
                    self.claim(run, claimant.who)
                }
                None => Answer::NothingToClaim,
            },
            Command::Reject { run } => {
                let end =
                    End { event: RunEvent::Fail, may_retry: true, is_crash: false, delay: Delay::None, hold: None };
                let answer = self.end_if_processing(run, &end);
                if let (Answer::Recorded | Answer::RecordedAsCancelled, Some(by)) = (&answer, self.runs[run].claimant) {
                    self.rejections.entry((self.runs[run].task, by)).or_default().is_final = true;
                }
                answer
            }
            Command::Heartbeat { run } => {
                let run = &mut self.runs[run];
                let is_theirs = run.status == "processing" && run.claimant.is_some();
                run.is_lease_over &= !is_theirs;
                Answer::IsOurs(is_theirs)
            }
            Command::EndRun { run, end } => self.end_if_processing(run, &end),
            Command::EndWithWrongToken { run, .. } => Answer::Lost { found: self.runs[run].status.to_owned() },
            Command::Report { run } => Answer::IsOurs(self.runs[run].status == "processing"),
            Command::Process(handled) => self.process(handled),
            Command::LeaseOver { run } => {
                self.runs[run].is_lease_over = true;
                Answer::Done
            }
            Command::Renew { runner, run } => self.renew(runner, run),
            Command::Register { who, slots } => self.register(who, slots),
            Command::FinishRunner { runner } => Answer::Count(usize::from(self.finish(runner))),
            Command::Silence { runner } => {
                self.runners[runner].is_silent = true;
                Answer::Done
            }
            Command::SetLimit { limit: 0 } => Answer::Refused,
            Command::SetLimit { limit } => {
                self.limit = limit;
                Answer::Done
            }
            Command::ReleaseClass { class } => {
                let before = self.holds.len();
                self.holds.retain(|(held, _)| *held != class);
                Answer::Count(before - self.holds.len())
            }
            Command::Pause { class } => {
                self.pauses.insert(class);
                Answer::Done
            }
            Command::Resume { class } => Answer::Count(usize::from(self.pauses.remove(&class))),
            Command::LimitClass { class, max_running, starts } => {
                self.class_limits[class] = (max_running, starts);
                Answer::Done
            }
            Command::LimitKey { key, max_running } => {
                self.key_limits[usize::from(key)] = max_running.unwrap_or(1);
                self.fit_key(key, None);
                Answer::Done
            }
            Command::RetryTask { task } => {
                let is_taken = self.is_key_taken(task);
                let task = &mut self.tasks[task];
                let is_over =
                    !matches!(task.status, "scheduled" | "processing") && task.open_run.is_none() && !is_taken;
                if is_over {
                    if !matches!(task.status, "failed" | "timeout") {
                        task.status = "scheduled";
                    }
                    (task.failed_retries, task.crashes, task.is_quarantined, task.when) = (0, 0, false, When::Past(0));
                }
                Answer::Retried(is_over)
            }
            Command::Cancel { task } => self.cancel(task),
            Command::Edit { task, priority, is_later } => self.edit(task, priority, is_later),
            // A waiting run ends when it would be claimed; a run in progress continues.
            Command::CancelTask { task } => {
                self.tasks[task].status = "cancelled";
                Answer::Done
            }
            Command::GrantRetry { task } => {
                let is_taken = self.is_key_taken(task);
                // It would be live again.
                if is_taken
                    && matches!(self.tasks[task].status, "failed" | "timeout")
                    && !self.tasks[task].is_quarantined
                {
                    return Answer::Refused;
                }
                self.tasks[task].max_retries = self.tasks[task].failed_retries + 1;
                Answer::Done
            }
            Command::MakeDue { task } => {
                self.tasks[task].when = When::Past(0);
                Answer::Done
            }
        }
    }
}
