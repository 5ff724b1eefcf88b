//! Data and results that the server shows to no login: those of the classes that `hide_data` of the configuration names. Every
//! answer of the database passes here, so a new page or route cannot forget it. A worker gets the data of the runs that it claims.

use chrono::{DateTime, Utc};
use serde_json::Value;

use taskqueue_domain::settings::Setting;
use taskqueue_domain::task::choosing::class_patterns::ClassPatterns;
use taskqueue_domain::task::ids::TaskId;
use taskqueue_domain::task::records::{Run, RunOutput, Runner, Task};
use taskqueue_engine::change::classes::ClassState;
use taskqueue_engine::change::limits::LimitLine;
use taskqueue_engine::change::schedules::{Schedule, ScheduleDetail};
use taskqueue_engine::change::selected::TaskAnswer;
use taskqueue_engine::claiming::claim::Offer;
use taskqueue_engine::claiming::claimants::{Renewed, Resolved};
use taskqueue_engine::inspect::diagnosis::explain::{Explanation, FirstOfClass, QueueExplanation};
use taskqueue_engine::inspect::doctor::Trouble;
use taskqueue_engine::inspect::events::{Event, EventFilter, PassedPage};
use taskqueue_engine::inspect::failures::Failures;
use taskqueue_engine::inspect::status::Reason;
use taskqueue_engine::inspect::status::{
    ClassLine, ClassTimes, Overview, RunnerLine, SelectionPage, TaskDetail, TaskLine,
};
use taskqueue_engine::queueing::queue::QueuedLine;

/// Replaces hidden data and results: a JSON string.
const HIDDEN: &str = "\"(hidden)\"";
const HIDDEN_WORD: &str = "(hidden)";

/// What the database answers to a request.
pub(crate) trait Answered {
    /// Replaces the data and results of tasks of these classes.
    fn hide(&mut self, classes: &ClassPatterns);
}

impl Answered for Task {
    fn hide(&mut self, classes: &ClassPatterns) {
        if classes.contain(self.class.as_str()) {
            HIDDEN.clone_into(&mut self.data);
            self.unreadable.iter_mut().for_each(|column| HIDDEN_WORD.clone_into(&mut column.found));
        }
    }
}

/// Data that cannot be read is part of the reason.
fn hide_reason(class: &str, reason: &mut Reason, classes: &ClassPatterns) {
    if let Reason::Unreadable { found, .. } = reason
        && classes.contain(class)
    {
        HIDDEN_WORD.clone_into(found);
    }
}

/// An event does not know the class of its task, so these values are hidden of all classes.
impl Answered for Event {
    fn hide(&mut self, _: &ClassPatterns) {
        let Ok(mut details) = serde_json::from_str::<Value>(&self.details) else { return };
        let before = details.pointer_mut("/before/TaskData").filter(|_| self.kind == "edited");
        if let Some(data) = before {
            *data = HIDDEN_WORD.into();
        } else if let Some(results) = details.get_mut("results").filter(|_| self.kind == "late-result") {
            *results = HIDDEN_WORD.into();
        } else if let Some(found) = details.pointer_mut("/unreadable/found") {
            *found = HIDDEN_WORD.into();
        } else if let Some(line) = details.get_mut("first").filter(|_| self.kind == "unreadable-line") {
            *line = HIDDEN_WORD.into();
        } else {
            return;
        }
        self.details = details.to_string();
    }
}

impl Answered for TaskAnswer {
    fn hide(&mut self, classes: &ClassPatterns) {
        self.current.iter_mut().for_each(|task| task.hide(classes));
    }
}

impl Answered for Schedule {
    fn hide(&mut self, classes: &ClassPatterns) {
        if classes.contain(&self.class) {
            HIDDEN.clone_into(&mut self.data);
        }
    }
}

impl Answered for Run {
    fn hide(&mut self, classes: &ClassPatterns) {
        if classes.contain(self.class.as_str()) && self.results.is_some() {
            self.results = Some(HIDDEN.to_owned());
        }
    }
}

impl Answered for TaskLine {
    fn hide(&mut self, classes: &ClassPatterns) {
        hide_reason(self.task.class.as_str(), &mut self.reason, classes);
        self.task.hide(classes);
        self.last_run.hide(classes);
    }
}

impl Answered for TaskDetail {
    fn hide(&mut self, classes: &ClassPatterns) {
        hide_reason(self.task.class.as_str(), &mut self.reason, classes);
        self.task.hide(classes);
        self.events.hide(classes);
        self.runs.hide(classes);
    }
}

impl Answered for Explanation {
    fn hide(&mut self, classes: &ClassPatterns) {
        for reason in self.conditions.iter_mut().filter_map(|condition| condition.why.as_mut()) {
            hide_reason(self.task.class.as_str(), reason, classes);
        }
        for blocker in &mut self.blockers {
            hide_reason(&blocker.class, &mut blocker.why, classes);
        }
        self.task.hide(classes);
        self.last_run.hide(classes);
        self.attempts.hide(classes);
    }
}

impl Answered for QueueExplanation {
    fn hide(&mut self, classes: &ClassPatterns) {
        for FirstOfClass { class, why, .. } in &mut self.first {
            why.iter_mut().for_each(|reason| hide_reason(class, reason, classes));
        }
    }
}

/// The problem does not know the class of its task, so this is hidden of all classes.
impl Answered for Trouble {
    fn hide(&mut self, classes: &ClassPatterns) {
        match self {
            Self::Unreadable { found, .. } => HIDDEN_WORD.clone_into(found),
            Self::NothingRuns { class, why, .. } => hide_reason(class, why, classes),
            _ => {}
        }
    }
}

impl<T: Answered> Answered for Vec<T> {
    fn hide(&mut self, classes: &ClassPatterns) {
        self.iter_mut().for_each(|each| each.hide(classes));
    }
}

impl<T: Answered> Answered for Option<T> {
    fn hide(&mut self, classes: &ClassPatterns) {
        self.iter_mut().for_each(|each| each.hide(classes));
    }
}

macro_rules! answered_tuples {
    ($(($($kind:ident . $place:tt),+)),+ $(,)?) => {
        $(impl<$($kind: Answered),+> Answered for ($($kind,)+) {
            fn hide(&mut self, classes: &ClassPatterns) {
                $(self.$place.hide(classes);)+
            }
        })+
    };
}

answered_tuples!((A.0, B.1), (A.0, B.1, C.2), (A.0, B.1, C.2, D.3));

/// Types of which these fields alone have something to hide.
macro_rules! hidden_in {
    ($($kind:ty { $($field:ident),+ }),+ $(,)?) => {
        $(impl $crate::querying::hidden::Answered for $kind {
            fn hide(&mut self, classes: &taskqueue_domain::task::choosing::class_patterns::ClassPatterns) {
                $($crate::querying::hidden::Answered::hide(&mut self.$field, classes);)+
            }
        })+
    };
}
pub(crate) use hidden_in;

hidden_in!(Overview { lines }, PassedPage { events }, ScheduleDetail { schedule, tasks }, SelectionPage { lines });

/// Types without data of tasks, and without results.
macro_rules! nothing_to_hide {
    ($($kind:ty),+ $(,)?) => {
        $(impl $crate::querying::hidden::Answered for $kind {
            fn hide(&mut self, _: &taskqueue_domain::task::choosing::class_patterns::ClassPatterns) {}
        })+
    };
}
pub(crate) use nothing_to_hide;

nothing_to_hide!(
    bool,
    ClassLine,
    ClassState,
    ClassTimes,
    DateTime<Utc>,
    EventFilter,
    Failures,
    i64,
    LimitLine,
    Offer,
    QueuedLine,
    Renewed,
    Resolved,
    RunOutput,
    Runner,
    RunnerLine,
    (Setting, String),
    TaskId
);
