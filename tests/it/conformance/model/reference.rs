//! The reference: tasks, runs and runners as rules R1 to R10 of the design want them, in plain vectors. It knows nothing of
//! the program's own rules, and no clock.

use std::collections::BTreeSet;

use taskqueue::domain::transition::RunEvent;
use taskqueue::domain::unique::OnConflict;

use super::commands::{CLASSES, Claimant, Command, Delay, End, Handled};

/// Crashes that quarantine a task: few, so that short sequences get there.
pub const CRASH_LIMIT: i32 = 2;

/// When a task is to be processed. What is earlier gets its run first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// So many seconds into 2020.
    Past(u32),
    /// When it was queued.
    Now,
    /// Not before the test is over.
    Later,
}

/// What can be found out about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Alive,
    Dead,
    /// On another machine: nobody here can tell.
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
    /// The tasks that have not succeeded since it was queued.
    pub waits_for: BTreeSet<usize>,
    /// Whether it is the newest of a schedule.
    pub recurs: bool,
    /// Unique among the live tasks of its class.
    pub key: Option<u8>,
}

#[derive(Clone, Debug)]
pub struct Run {
    pub task: usize,
    pub priority: i32,
    pub attempt: i32,
    pub status: &'static str,
    pub error_code: &'static str,
    /// Who claimed it, if anybody did.
    pub holder: Option<Who>,
    /// The number of the claimant, if it was no runner.
    pub claimant: Option<usize>,
    pub is_lease_over: bool,
    /// Somebody has asked for its end.
    pub is_unwanted: bool,
}

#[derive(Clone, Debug)]
pub struct Runner {
    pub who: Who,
    pub slots: i32,
    pub is_silent: bool,
    pub is_finished: bool,
}

/// What a command answers. Runs and the like by their number.
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

/// How a run ends that waits and is not wanted any more.
const CANCELLED: End =
    End { event: RunEvent::Cancel, may_retry: true, is_crash: false, delay: Delay::None, hold: None };

#[derive(Clone, Debug)]
pub struct Model {
    pub tasks: Vec<Task>,
    pub runs: Vec<Run>,
    pub runners: Vec<Runner>,
    /// Class, and whether it is held on this host or on another.
    pub holds: BTreeSet<(usize, bool)>,
    /// Task and claimant.
    pub rejections: BTreeSet<(usize, usize)>,
    pub limit: i32,
    /// Classes that are paused; `None` is all.
    pub pauses: BTreeSet<Option<usize>>,
    /// For each class: runs at once, starts.
    pub class_limits: [(Option<i32>, Option<i32>); 3],
}

impl Model {
    pub fn new() -> Self {
        Self {
            tasks: Vec::new(),
            runs: Vec::new(),
            runners: Vec::new(),
            holds: BTreeSet::new(),
            rejections: BTreeSet::new(),
            limit: 8,
            pauses: BTreeSet::new(),
            class_limits: [(None, None); 3],
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

    /// Another task follows the newest of a schedule when nothing happens to that any more.
    fn follow(&mut self, index: usize) {
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

    /// Whether a task gets a run now.
    pub fn is_due(&self, task: usize) -> bool {
        let task = &self.tasks[task];
        matches!(task.status, "scheduled" | "failed" | "timeout")
            && task.open_run.is_none()
            && task.failed_retries < task.max_retries
            && !task.is_quarantined
            && task.waits_for.is_empty()
            && task.when != When::Later
    }

    /// Whether all that the command names is there: a shorter sequence of commands may lack it.
    pub fn allows(&self, command: &Command) -> bool {
        use Command::{
            Cancel, CancelTask, ClaimRun, Edit, EndRun, EndWithWrongToken, FinishRunner, GrantRetry, Heartbeat,
            LeaseOver, MakeDue, OpenRunOf, QueueAfter, QueueSchedule, Reject, Renew, Report, Requeue, RetryTask,
            Silence,
        };
        let is_claimed = |run: usize| self.runs.get(run).is_some_and(|run| run.holder.is_some());
        match *command {
            OpenRunOf { task }
            | Cancel { task }
            | CancelTask { task }
            | Edit { task, .. }
            | Requeue { task }
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

    /// Does it, and says what the store must answer.
    pub fn step(&mut self, command: &Command) -> Answer {
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
                    self.create_run(task);
                }
                Answer::OpenRun(self.tasks[task].open_run)
            }
            Command::ClaimNext(claimant) => match self.next_claimable(claimant.can) {
                Some(run) => self.claim(run, claimant.who),
                None => Answer::NothingToClaim,
            },
            Command::ClaimRun { run, claimant } => self.claim_run(run, claimant),
            Command::ClaimOutside { by, claimant } => {
                let is_offered = |run: &usize| !self.rejections.contains(&(self.runs[*run].task, by));
                match self.first_of(claimant.can, is_offered) {
                    Some(run) => {
                        self.runs[run].claimant = Some(by);
                        self.claim(run, claimant.who)
                    }
                    None => Answer::NothingToClaim,
                }
            }
            Command::Reject { run } => {
                let end =
                    End { event: RunEvent::Fail, may_retry: true, is_crash: false, delay: Delay::None, hold: None };
                let answer = self.end_if_processing(run, &end);
                if let (Answer::Recorded | Answer::RecordedAsCancelled, Some(by)) = (&answer, self.runs[run].claimant) {
                    self.rejections.insert((self.runs[run].task, by));
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
            Command::RetryTask { task } => {
                let is_taken = self.is_key_taken(task);
                let task = &mut self.tasks[task];
                let may_retry = matches!(task.status, "failed" | "timeout") && task.open_run.is_none() && !is_taken;
                if may_retry {
                    (task.failed_retries, task.crashes, task.is_quarantined, task.when) = (0, 0, false, When::Past(0));
                }
                Answer::Retried(may_retry)
            }
            Command::Cancel { task } => self.cancel(task),
            Command::Requeue { task } => {
                let is_taken = self.is_key_taken(task);
                let task = &mut self.tasks[task];
                let is_over =
                    !matches!(task.status, "scheduled" | "processing") && task.open_run.is_none() && !is_taken;
                if is_over {
                    (task.status, task.when) = ("scheduled", When::Past(0));
                    (task.failed_retries, task.crashes, task.is_quarantined) = (0, 0, false);
                }
                Answer::Retried(is_over)
            }
            Command::Edit { task, priority, is_later } => self.edit(task, priority, is_later),
            // A run that waits ends instead of being claimed; one that is processed goes on.
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

    fn add_task(&mut self, class: usize, priority: i32, max_retries: i32, when: When) -> Answer {
        self.tasks.push(Task {
            class,
            priority,
            max_retries,
            failed_retries: 0,
            crashes: 0,
            is_quarantined: false,
            attempts: 0,
            status: "scheduled",
            when,
            open_run: None,
            waits_for: BTreeSet::new(),
            recurs: false,
            key: None,
        });
        Answer::Done
    }

    /// Nothing more happens to it by itself.
    fn is_live(task: &Task) -> bool {
        let is_tried_again = matches!(task.status, "failed" | "timeout") && task.failed_retries < task.max_retries;
        task.open_run.is_some()
            || task.status == "processing"
            || !task.is_quarantined && (task.status == "scheduled" || is_tried_again)
    }

    fn is_key_taken(&self, task: usize) -> bool {
        let class = self.tasks[task].class;
        self.tasks[task].key.is_some_and(|key| self.holder(class, key, Some(task)).is_some())
    }

    /// The live task with this key, but for one.
    fn holder(&self, class: usize, key: u8, but: Option<usize>) -> Option<usize> {
        (0..self.tasks.len()).find(|number| {
            let task = &self.tasks[*number];
            Some(*number) != but && task.class == class && task.key == Some(key) && Self::is_live(task)
        })
    }

    fn queue_unique(&mut self, class: usize, key: u8, on_conflict: OnConflict) -> Answer {
        let Some(holder) = self.holder(class, key, None) else {
            let answer = self.add_task(class, 1, 5, When::Now);
            if let Some(task) = self.tasks.last_mut() {
                task.key = Some(key);
            }
            return answer;
        };
        match on_conflict {
            OnConflict::Return => Answer::Done,
            OnConflict::Fail => Answer::Refused,
            OnConflict::Replace => self.replace(holder),
        }
    }

    fn replace(&mut self, holder: usize) -> Answer {
        let task = &self.tasks[holder];
        let is_waiting = matches!(task.status, "scheduled" | "failed" | "timeout")
            && !task.is_quarantined
            && task.failed_retries < task.max_retries;
        let is_processed = task.open_run.is_some_and(|run| self.runs[run].status == "processing");
        if !is_waiting || is_processed {
            return Answer::Refused;
        }
        if let Some(run) = self.tasks[holder].open_run.take() {
            (self.runs[run].status, self.runs[run].error_code) = ("released", "replaced");
        }
        let task = &mut self.tasks[holder];
        (task.priority, task.max_retries, task.failed_retries, task.crashes) = (1, 5, 0, 0);
        task.when = When::Past(0);
        Answer::Done
    }

    fn create_run(&mut self, task: usize) {
        self.tasks[task].open_run = Some(self.runs.len());
        self.runs.push(Run {
            task,
            priority: self.tasks[task].priority,
            attempt: self.tasks[task].attempts + 1,
            status: "scheduled",
            error_code: "",
            holder: None,
            claimant: None,
            is_lease_over: false,
            is_unwanted: false,
        });
    }

    fn cancel(&mut self, task: usize) -> Answer {
        if let Some(run) = self.tasks[task].open_run {
            if self.runs[run].status == "processing" {
                self.runs[run].is_unwanted = true;
                return Answer::CancelRequested { run };
            }
            self.end_waiting(run);
            if std::mem::replace(&mut self.tasks[task].status, "cancelled") != "cancelled" {
                self.follow(task);
            }
        } else if matches!(self.tasks[task].status, "success" | "cancelled") {
            return Answer::Refused;
        }
        self.tasks[task].status = "cancelled";
        Answer::Cancelled
    }

    /// A run that waits has the priority of its task; one that is or was processed keeps its own.
    fn edit(&mut self, task: usize, priority: i32, is_later: bool) -> Answer {
        self.tasks[task].priority = priority;
        self.tasks[task].when = if is_later { When::Later } else { When::Past(0) };
        if let Some(run) = self.tasks[task].open_run.filter(|run| self.runs[*run].status == "scheduled") {
            if is_later {
                let end =
                    End { event: RunEvent::Release, may_retry: true, is_crash: false, delay: Delay::None, hold: None };
                self.end(run, &end, "rescheduled");
            } else {
                self.runs[run].priority = priority;
            }
        }
        Answer::Done
    }

    fn end_waiting(&mut self, run: usize) {
        self.end(run, &CANCELLED, "cancelled");
    }

    /// The head of the queue, once all before it have ended whose tasks were cancelled.
    fn next_claimable(&mut self, can: [bool; 3]) -> Option<usize> {
        while let Some(run) = self.first_claimable(can) {
            if self.tasks[self.runs[run].task].status != "cancelled" {
                return Some(run);
            }
            self.end_waiting(run);
        }
        None
    }

    fn create_runs(&mut self) -> Answer {
        let rescued = self.rescue();
        let finished_runners = self.finish_dead_runners();
        for task in 0..self.tasks.len() {
            self.follow(task);
        }
        let mut due: Vec<usize> = (0..self.tasks.len()).filter(|task| self.is_due(*task)).collect();
        due.sort_by_key(|task| (self.tasks[*task].when, *task));
        for task in &due {
            self.create_run(*task);
        }
        Answer::Created { rescued, finished_runners, created: due.len() }
    }

    /// Only dead releases work; whoever has not renewed its lease has lost it.
    fn rescue(&mut self) -> BTreeSet<(usize, &'static str)> {
        let mut rescued = BTreeSet::new();
        for run in self.processing_runs() {
            let is_outside = self.runs[run].claimant.is_some();
            let reason = match &self.runs[run] {
                Run { holder: Some(Who::Dead), .. } if is_outside => "claimant-died",
                Run { holder: Some(Who::Dead), .. } => "runner-died",
                Run { is_lease_over: true, .. } => "lease-expired",
                _ => continue,
            };
            // A claimant that is late has not crashed.
            let is_crash = !is_outside || reason == "claimant-died";
            self.end(
                run,
                &End { event: RunEvent::TimeOut, may_retry: true, is_crash, delay: Delay::None, hold: None },
                reason,
            );
            rescued.insert((run, reason));
        }
        rescued
    }

    /// Whether a pause or a limit keeps runs of this class from being claimed.
    fn is_obstructed(&self, class: usize) -> bool {
        let of_class = |run: &&Run| self.tasks[run.task].class == class;
        let count = |is_counted: fn(&Run) -> bool| {
            i32::try_from(self.runs.iter().filter(of_class).filter(|run| is_counted(run)).count()).unwrap()
        };
        let (max_running, starts) = self.class_limits[class];
        self.pauses.contains(&None)
            || self.pauses.contains(&Some(class))
            || max_running.is_some_and(|max| count(|run| run.status == "processing") >= max)
            || starts.is_some_and(|starts| count(|run| run.holder.is_some()) >= starts)
    }

    /// Rule R6.
    fn first_claimable(&self, can: [bool; 3]) -> Option<usize> {
        self.first_of(can, |_| true)
    }

    fn first_of(&self, can: [bool; 3], is_offered: impl Fn(&usize) -> bool) -> Option<usize> {
        (0..self.runs.len())
            .filter(|run| self.runs[*run].status == "scheduled" && can[self.class_of(*run)])
            .filter(is_offered)
            .filter(|run| !self.is_obstructed(self.class_of(*run)))
            .min_by_key(|run| (-self.runs[*run].priority, *run))
    }

    fn class_of(&self, run: usize) -> usize {
        self.tasks[self.runs[run].task].class
    }

    fn claim(&mut self, index: usize, who: Who) -> Answer {
        let run = &mut self.runs[index];
        (run.status, run.holder) = ("processing", Some(who));
        let task = &mut self.tasks[run.task];
        task.status = "processing";
        Answer::Claimed { run: index, task: run.task, attempt: run.attempt, max_retries: task.max_retries }
    }

    fn claim_run(&mut self, run: usize, claimant: Claimant) -> Answer {
        let class = self.class_of(run);
        if self.runs[run].status == "scheduled" && claimant.can[class] {
            if self.is_obstructed(class) {
                return Answer::Obstructed;
            }
            if self.tasks[self.runs[run].task].status != "cancelled" {
                return self.claim(run, claimant.who);
            }
            self.end_waiting(run);
        }
        Answer::NotClaimed { status: self.runs[run].status.to_owned(), class: CLASSES[class].to_owned() }
    }

    fn end_if_processing(&mut self, run: usize, end: &End) -> Answer {
        if self.runs[run].status != "processing" {
            return Answer::Lost { found: self.runs[run].status.to_owned() };
        }
        let has_failed = matches!(end.event, RunEvent::Fail | RunEvent::TimeOut);
        let as_cancelled = self.end(run, end, if has_failed { "E1" } else { "" });
        if as_cancelled { Answer::RecordedAsCancelled } else { Answer::Recorded }
    }

    /// Rules R3 and R4. Whether it was cancelled instead.
    fn end(&mut self, index: usize, end: &End, error_code: &'static str) -> bool {
        let is_instead = self.runs[index].is_unwanted && !matches!(end.event, RunEvent::Succeed | RunEvent::Cancel);
        let end = &if is_instead { End { event: RunEvent::Cancel, ..*end } } else { *end };
        let (of_run, of_task) = match end.event {
            RunEvent::Succeed => ("success", "success"),
            RunEvent::Fail => ("error", "failed"),
            RunEvent::TimeOut => ("timeout", "timeout"),
            RunEvent::Cancel => ("cancelled", "cancelled"),
            RunEvent::Release => ("released", self.status_before(self.runs[index].task)),
            RunEvent::Claim => unreachable!("a claim is no end"),
        };
        let run = &mut self.runs[index];
        (run.status, run.error_code, run.is_lease_over) = (of_run, error_code, false);
        let number = run.task;
        let task = &mut self.tasks[number];
        task.open_run = None;
        let is_its_end = task.status == "processing";
        if is_its_end {
            task.status = of_task;
            if of_task == "success" {
                for other in &mut self.tasks {
                    other.waits_for.remove(&number);
                }
            }
        }
        let task = &mut self.tasks[number];
        let has_failed = matches!(end.event, RunEvent::Fail | RunEvent::TimeOut);
        if has_failed {
            let counted = task.failed_retries + 1;
            task.failed_retries = if end.may_retry { counted } else { counted.max(task.max_retries) };
        } else if end.event == RunEvent::Succeed {
            (task.failed_retries, task.crashes) = (0, 0);
        }
        if has_failed && end.is_crash {
            task.crashes += 1;
            task.is_quarantined |= task.crashes >= CRASH_LIMIT;
        }
        if end.event != RunEvent::Release {
            task.attempts += 1;
        }
        let waits = match end.delay {
            Delay::None => false,
            Delay::Long => has_failed || end.event == RunEvent::Release,
            Delay::Backoff => has_failed,
        };
        if waits {
            task.when = When::Later;
        }
        if let Some(is_here) = end.hold {
            self.holds.insert((task.class, is_here));
        }
        // Of what somebody has settled in the tables, create-runs finds it out.
        if is_its_end {
            self.follow(number);
        }
        is_instead
    }

    /// The status of the last attempt that counted, if that failed.
    fn status_before(&self, task: usize) -> &'static str {
        let ended = |run: &Run| match run.status {
            "success" | "cancelled" => Some("scheduled"),
            "error" => Some("failed"),
            "timeout" => Some("timeout"),
            _ => None,
        };
        self.runs.iter().rev().filter(|run| run.task == task).find_map(ended).unwrap_or("scheduled")
    }

    fn renew(&mut self, runner: usize, run: usize) -> Answer {
        let is_registered = !self.runners[runner].is_finished;
        if is_registered {
            self.runners[runner].is_silent = false;
        }
        let is_lost = self.runs[run].status != "processing";
        if !is_lost {
            self.runs[run].is_lease_over = false;
        }
        Answer::Renewed { is_registered, is_lost }
    }

    /// Rule R5.
    fn register(&mut self, who: Who, slots: i32) -> Answer {
        let in_use = self.slots_in_use();
        if in_use + slots > self.limit {
            return Answer::LimitReached { in_use: i64::from(in_use), limit: i64::from(self.limit) };
        }
        self.runners.push(Runner { who, slots, is_silent: false, is_finished: false });
        Answer::Registered
    }

    fn finish(&mut self, runner: usize) -> bool {
        !std::mem::replace(&mut self.runners[runner].is_finished, true)
    }

    fn finish_dead_runners(&mut self) -> usize {
        let is_over = |runner: &Runner| match runner.who {
            Who::Dead => true,
            Who::Elsewhere => runner.is_silent,
            Who::Alive => false,
        };
        (0..self.runners.len()).filter(|runner| is_over(&self.runners[*runner]) && self.finish(*runner)).count()
    }

    fn process(&mut self, handled: Handled) -> Answer {
        self.finish_dead_runners();
        let registered = self.register(Who::Alive, 1);
        if registered != Answer::Registered {
            return registered;
        }
        let can = [0, 1, 2].map(|class| !self.holds.contains(&(class, true)));
        let first = self.next_claimable(can);
        if let Some(run) = first {
            self.claim(run, Who::Alive);
            let (event, may_retry, is_later, code) = match handled {
                Handled::Succeed => (RunEvent::Succeed, true, false, ""),
                Handled::Fail { retry, is_later } => (RunEvent::Fail, retry, is_later, "E1"),
                Handled::Panic => (RunEvent::Fail, true, true, "panic"),
            };
            let delay = if is_later { Delay::Long } else { Delay::None };
            self.end(run, &End { event, may_retry, is_crash: false, delay, hold: None }, code);
        }
        if let Some(runner) = self.runners.last_mut() {
            runner.is_finished = true;
        }
        let is_success = first.is_some() && matches!(handled, Handled::Succeed);
        Answer::Processed { runs: u64::from(first.is_some()), succeeded: u64::from(is_success) }
    }
}
