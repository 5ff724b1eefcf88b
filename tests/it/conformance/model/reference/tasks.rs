//! Tasks of the model before a run of them is claimed.

use super::*;

impl Model {
    pub(super) fn add_task(&mut self, class: usize, priority: i32, max_retries: i32, when: When) -> Answer {
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
            limit_key: None,
        });
        Answer::Done
    }

    /// Returns true if the task may still change on its own. The waiting run of a cancelled task is not executed.
    pub(super) fn is_live(task: &Task) -> bool {
        let is_tried_again = matches!(task.status, "failed" | "timeout") && task.failed_retries < task.max_retries;
        task.open_run.is_some() && task.status != "cancelled"
            || task.status == "processing"
            || !task.is_quarantined && (task.status == "scheduled" || is_tried_again)
    }

    pub(super) fn is_key_taken(&self, task: usize) -> bool {
        let class = self.tasks[task].class;
        self.tasks[task].key.is_some_and(|key| self.holder(class, key, Some(task)).is_some())
    }

    /// Returns the live task with this key, except `but`.
    pub(super) fn holder(&self, class: usize, key: u8, but: Option<usize>) -> Option<usize> {
        (0..self.tasks.len()).find(|number| {
            let task = &self.tasks[*number];
            Some(*number) != but && task.class == class && task.key == Some(key) && Self::is_live(task)
        })
    }

    pub(super) fn queue_unique(&mut self, class: usize, key: u8, on_conflict: OnConflict) -> Answer {
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

    pub(super) fn replace(&mut self, holder: usize) -> Answer {
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

    pub(super) fn create_run(&mut self, task: usize) {
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
            has_key_slot: false,
            place: (self.commands, 0),
        });
    }

    pub(super) fn cancel(&mut self, task: usize) -> Answer {
        let answer = self.cancel_one(task);
        self.pass_slot_on(task);
        answer
    }

    fn cancel_one(&mut self, task: usize) -> Answer {
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

    /// A waiting run has the priority of its task; other runs keep theirs.
    pub(super) fn edit(&mut self, task: usize, priority: i32, is_later: bool) -> Answer {
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
        self.pass_slot_on(task);
        Answer::Done
    }

    pub(super) fn end_waiting(&mut self, run: usize) {
        self.end(run, &CANCELLED, "cancelled");
    }

    /// Checks the slots of the task's key after any end of its run, and of no other key.
    fn pass_slot_on(&mut self, task: usize) {
        if let Some(key) = self.tasks[task].limit_key {
            self.fit_key(key, None);
        }
    }
}
