//! Runs and runners of the model.

use super::*;

impl Model {
    /// Returns the first claimable run, after ending earlier runs whose tasks were cancelled.
    pub(super) fn next_claimable(&mut self, can: [bool; 3]) -> Option<usize> {
        while let Some(run) = self.first_of(can, |_| true) {
            if !self.is_cancelled(run) {
                return Some(run);
            }
            self.end_waiting(run);
        }
        None
    }

    /// Like `next_claimable`, for this claimant, which may not claim tasks that it has rejected or was late with.
    pub(super) fn next_offered(&mut self, can: [bool; 3], by: usize) -> Option<usize> {
        while let Some(run) = self.first_of(can, |run| !self.rejections.contains_key(&(self.runs[*run].task, by))) {
            if !self.is_cancelled(run) {
                return Some(run);
            }
            self.end_waiting(run);
        }
        None
    }

    /// Starts the first claimable run; if none waits, or all waiting runs have ended instead, the first due task without a run.
    pub(super) fn start(&mut self, claimant: Claimant) -> Answer {
        if let Some(run) = self.next_claimable(claimant.can) {
            return self.claim(run, claimant.who);
        }
        let due: Vec<usize> = (0..self.tasks.len()).filter(|task| self.is_due(*task)).collect();
        let first = due.iter().copied().min_by_key(|task| (self.tasks[*task].when, *task));
        let has_priority = due.iter().any(|task| self.tasks[*task].priority != 0);
        let Some(task) = first.filter(|task| !has_priority && self.may_start(*task, claimant.can)) else {
            return Answer::NothingToClaim;
        };
        self.create_run(task);
        self.claim(self.runs.len() - 1, claimant.who)
    }

    /// Returns true if the task may start without waiting behind runs.
    fn may_start(&self, task: usize, can: [bool; 3]) -> bool {
        let Task { class, limit_key, .. } = self.tasks[task];
        let is_free = !self.pauses.contains(&None) && !self.pauses.contains(&Some(class));
        can[class] && limit_key.is_none() && is_free && self.class_limits[class] == (None, None)
    }

    fn is_cancelled(&self, run: usize) -> bool {
        self.tasks[self.runs[run].task].status == "cancelled"
    }

    pub(super) fn create_runs(&mut self) -> Answer {
        let rescued = self.rescue();
        let finished_runners = self.finish_dead_runners();
        for task in 0..self.tasks.len() {
            self.follow(task);
        }
        let mut due: Vec<usize> = (0..self.tasks.len()).filter(|task| self.is_due(*task)).collect();
        due.sort_by_key(|task| (self.tasks[*task].when, *task));
        let first_new = self.runs.len();
        for task in &due {
            self.create_run(*task);
        }
        [0, 1].into_iter().for_each(|key| self.fit_key(key, Some(first_new)));
        Answer::Created { rescued, finished_runners, created: due.len() }
    }

    /// Rescues only runs of dead processes, and runs whose lease has expired.
    pub(super) fn rescue(&mut self) -> BTreeSet<(usize, &'static str)> {
        let mut rescued = BTreeSet::new();
        let processing = self.processing_runs();
        let of_runners = |holder: Option<Who>| {
            let is_of_it = |run: &&usize| self.runs[**run].holder == holder && self.runs[**run].claimant.is_none();
            processing.iter().filter(is_of_it).count()
        };
        let had_several = [Who::Alive, Who::Dead].map(|who| of_runners(Some(who)) > 1);
        for run in processing {
            let is_outside = self.runs[run].claimant.is_some();
            let reason = match &self.runs[run] {
                Run { holder: Some(Who::Dead), .. } if is_outside => "claimant-died",
                Run { holder: Some(Who::Dead), .. } => "runner-died",
                Run { is_lease_over: true, .. } => "lease-expired",
                _ => continue,
            };
            // A late claimant has not crashed, nor has a run that was lost with others or with its host.
            let is_crash = match self.runs[run].holder {
                _ if is_outside => reason == "claimant-died",
                Some(Who::Alive) => !had_several[0],
                Some(Who::Dead) => !had_several[1],
                _ => false,
            };
            let end = End { event: RunEvent::TimeOut, may_retry: true, is_crash, delay: Delay::None, hold: None };
            let as_cancelled = self.end(run, &end, reason);
            if let (Some(by), "lease-expired", false) = (self.runs[run].claimant, reason, as_cancelled) {
                self.hold_back(run, by);
            }
            rescued.insert((run, reason));
        }
        rescued
    }

    fn hold_back(&mut self, run: usize, by: usize) {
        let rejection = self.rejections.entry((self.runs[run].task, by)).or_default();
        rejection.timeouts += 1;
        rejection.is_final |= rejection.timeouts >= CLAIM_TIMEOUT_LIMIT;
    }

    /// Returns true if a pause or a limit blocks claims of this class.
    pub(super) fn is_obstructed(&self, class: usize) -> bool {
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

    fn place_with_slot(&self, run: usize, first_new: Option<usize>) -> (usize, usize) {
        let own = self.runs[run].place;
        let waits = |other: &&Run| {
            other.has_key_slot && other.status == "scheduled" && other.priority == self.runs[run].priority
        };
        match self.runs.iter().filter(waits).map(|other| other.place).max() {
            Some(last) if own <= last && first_new.is_none_or(|new| run < new) => (last.0, last.1 + 1),
            _ => own,
        }
    }

    /// Gives slots to as many open runs as allowed: the first waiting runs in order get one, and the last ones lose theirs. Runs
    /// from the first new one on keep their place in the line; others go behind the runs of keys that wait to be claimed.
    pub(super) fn fit_key(&mut self, key: u8, first_new: Option<usize>) {
        let mut waiting: Vec<usize> = self.scheduled_with(key, false).collect();
        waiting.sort_by_key(|run| (-self.runs[*run].priority, *run));
        let room = self.key_limits[usize::from(key)] - self.held_slots(key);
        waiting.truncate(usize::try_from(room).unwrap_or(0));
        let places = waiting.iter().map(|run| self.place_with_slot(*run, first_new)).collect::<Vec<_>>();
        for (run, place) in waiting.into_iter().zip(places) {
            (self.runs[run].has_key_slot, self.runs[run].place) = (true, place);
        }
        while self.held_slots(key) > self.key_limits[usize::from(key)] {
            let waiting = self.scheduled_with(key, true).max_by_key(|run| (-self.runs[*run].priority, *run));
            let Some(last) = waiting else { return };
            self.runs[last].has_key_slot = false;
        }
    }

    fn held_slots(&self, key: u8) -> i32 {
        let is_open = |run: &&Run| matches!(run.status, "scheduled" | "processing");
        let holders = self.runs.iter().filter(is_open).filter(|run| run.has_key_slot);
        i32::try_from(holders.filter(|run| self.tasks[run.task].limit_key == Some(key)).count()).unwrap()
    }

    fn scheduled_with(&self, key: u8, has_slot: bool) -> impl Iterator<Item = usize> {
        (0..self.runs.len()).filter(move |run| {
            let run = &self.runs[*run];
            run.status == "scheduled" && run.has_key_slot == has_slot && self.tasks[run.task].limit_key == Some(key)
        })
    }

    fn waits_for_key(&self, run: usize) -> Option<u8> {
        self.tasks[self.runs[run].task].limit_key.filter(|_| !self.runs[run].has_key_slot)
    }

    /// Rule R6.
    pub(super) fn first_of(&self, can: [bool; 3], is_offered: impl Fn(&usize) -> bool) -> Option<usize> {
        (0..self.runs.len())
            .filter(|run| self.runs[*run].status == "scheduled" && can[self.class_of(*run)])
            .filter(is_offered)
            .filter(|run| self.waits_for_key(*run).is_none())
            .filter(|run| !self.is_obstructed(self.class_of(*run)))
            .min_by_key(|run| (-self.runs[*run].priority, self.runs[*run].place, *run))
    }

    pub(super) fn class_of(&self, run: usize) -> usize {
        self.tasks[self.runs[run].task].class
    }

    pub(super) fn claim(&mut self, index: usize, who: Who) -> Answer {
        let run = &mut self.runs[index];
        (run.status, run.holder) = ("processing", Some(who));
        let task = &mut self.tasks[run.task];
        task.status = "processing";
        Answer::Claimed { run: index, task: run.task, attempt: run.attempt, max_retries: task.max_retries }
    }

    pub(super) fn claim_run(&mut self, run: usize, claimant: Claimant) -> Answer {
        let class = self.class_of(run);
        if self.runs[run].status == "scheduled" && claimant.can[class] {
            if self.is_obstructed(class) {
                return Answer::Obstructed;
            }
            if let Some(key) = self.waits_for_key(run) {
                if self.held_slots(key) >= self.key_limits[usize::from(key)] {
                    return Answer::Obstructed;
                }
                self.runs[run].has_key_slot = true;
            }
            if !self.is_cancelled(run) {
                return self.claim(run, claimant.who);
            }
            self.end_waiting(run);
        }
        Answer::NotClaimed { status: self.runs[run].status.to_owned(), class: CLASSES[class].to_owned() }
    }

    pub(super) fn end_if_processing(&mut self, run: usize, end: &End) -> Answer {
        if self.runs[run].status != "processing" {
            return Answer::Lost { found: self.runs[run].status.to_owned() };
        }
        let has_failed = matches!(end.event, RunEvent::Fail | RunEvent::TimeOut);
        let as_cancelled = self.end(run, end, if has_failed { "E1" } else { "" });
        if as_cancelled { Answer::RecordedAsCancelled } else { Answer::Recorded }
    }

    /// Rules R3 and R4. Returns whether it was cancelled instead.
    pub(super) fn end(&mut self, index: usize, end: &End, error_code: &'static str) -> bool {
        let is_instead = self.runs[index].is_unwanted && !matches!(end.event, RunEvent::Succeed | RunEvent::Cancel);
        let end = &if is_instead { End { event: RunEvent::Cancel, ..*end } } else { *end };
        let (of_run, of_task) = match end.event {
            RunEvent::Succeed => ("success", "success"),
            RunEvent::Fail => ("error", "failed"),
            RunEvent::TimeOut => ("timeout", "timeout"),
            RunEvent::Cancel => ("cancelled", "cancelled"),
            RunEvent::Expire => unreachable!("no task of the model expires"),
            RunEvent::Release => ("released", self.status_before(self.runs[index].task)),
            RunEvent::Claim => unreachable!("a claim does not end a run"),
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
        // create-runs notices what was changed in the tables.
        if is_its_end {
            self.follow(number);
        }
        if let Some(key) = self.tasks[number].limit_key.filter(|_| self.runs[index].has_key_slot) {
            self.fit_key(key, None);
        }
        is_instead
    }

    /// Returns the status of the last attempt that counted, if it failed.
    pub(super) fn status_before(&self, task: usize) -> &'static str {
        let ended = |run: &Run| match run.status {
            "success" | "cancelled" => Some("scheduled"),
            "error" => Some("failed"),
            "timeout" => Some("timeout"),
            _ => None,
        };
        self.runs.iter().rev().filter(|run| run.task == task).find_map(ended).unwrap_or("scheduled")
    }

    pub(super) fn renew(&mut self, runner: usize, run: usize) -> Answer {
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
    pub(super) fn register(&mut self, who: Who, slots: i32) -> Answer {
        let in_use = self.slots_in_use();
        if in_use + slots > self.limit {
            return Answer::LimitReached { in_use: i64::from(in_use), limit: i64::from(self.limit) };
        }
        self.runners.push(Runner { who, slots, is_silent: false, is_finished: false });
        Answer::Registered
    }

    pub(super) fn finish(&mut self, runner: usize) -> bool {
        !std::mem::replace(&mut self.runners[runner].is_finished, true)
    }

    pub(super) fn finish_dead_runners(&mut self) -> usize {
        let is_over = |runner: &Runner| match runner.who {
            Who::Dead => true,
            Who::Elsewhere => runner.is_silent,
            Who::Alive => false,
        };
        (0..self.runners.len()).filter(|runner| is_over(&self.runners[*runner]) && self.finish(*runner)).count()
    }

    pub(super) fn process(&mut self, handled: Handled) -> Answer {
        self.finish_dead_runners();
        let can = [0, 1, 2].map(|class| !self.holds.contains(&(class, true)));
        if self.first_of(can, |_| true).is_none() {
            return Answer::Processed { runs: 0, succeeded: 0 };
        }
        let registered = self.register(Who::Alive, 1);
        if registered != Answer::Registered {
            return registered;
        }
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
