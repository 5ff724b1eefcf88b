//! Random commands for a store: each one refers to tasks, runs and runners by their number in the model.

use proptest::prelude::*;
use proptest::sample::select;
use taskqueue_domain::run::transition::RunEvent;
use taskqueue_domain::task::unique::OnConflict;

use super::reference::{Model, When, Who};

/// The classes.
pub const CLASSES: [&str; 3] = ["a", "b", "c"];

/// The number of claimants.
pub const CLAIMANTS: usize = 2;

/// How long a task waits after its run: not at all, or longer than any test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    None,
    Long,
    /// By the backoff, which is long.
    Backoff,
}

/// A runner that claims, and the classes that it can execute.
#[derive(Clone, Copy, Debug)]
pub struct Claimant {
    pub who: Who,
    /// One flag for each class.
    pub can: [bool; 3],
}

/// How a claimed run is ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub event: RunEvent,
    pub may_retry: bool,
    pub is_crash: bool,
    pub delay: Delay,
    /// Whether the class is held, and whether on this host.
    pub hold: Option<bool>,
}

/// The result of a handler in this program.
#[derive(Clone, Copy, Debug)]
pub enum Handled {
    Succeed,
    Fail { retry: bool, is_later: bool },
    Panic,
}

/// One step.
#[derive(Clone, Copy, Debug)]
pub enum Command {
    Queue {
        class: usize,
        priority: i32,
        max_retries: i32,
        when: When,
    },
    /// Queues a task after two others, which may be the same.
    QueueAfter {
        class: usize,
        after: [usize; 2],
    },
    /// Queues a task with one of two unique keys of its class.
    QueueUnique {
        class: usize,
        key: u8,
        on_conflict: OnConflict,
    },
    /// Queues a task with one of two limit keys, which all classes share.
    QueueLimited {
        class: usize,
        key: u8,
        priority: i32,
    },
    /// Inserts a task with a plain INSERT of an application, with the required columns only.
    Insert {
        class: usize,
    },
    /// Queues the first task of a schedule whose planned times are years ahead. Only one at a time, so that it is known which
    /// task follows which.
    QueueSchedule {
        class: usize,
    },
    QueueBad {
        max_retries: i64,
        priority: i64,
    },
    CreateRuns,
    OpenRunOf {
        task: usize,
    },
    ClaimNext(Claimant),
    /// Starts runs like a worker, which starts a due task itself if no run waits.
    Start(Claimant),
    ClaimRun {
        run: usize,
        claimant: Claimant,
    },
    /// Claims for the claimant with this number, which is no runner.
    ClaimOutside {
        by: usize,
        claimant: Claimant,
    },
    /// Rejects a run that a claimant has or had.
    Reject {
        run: usize,
    },
    /// Also for a runner's run: then it is refused.
    Heartbeat {
        run: usize,
    },
    EndRun {
        run: usize,
        end: End,
    },
    EndWithWrongToken {
        run: usize,
        end: End,
    },
    Report {
        run: usize,
    },
    /// Runs a whole `process-run`, with its registration and its check of the holds.
    Process(Handled),
    LeaseOver {
        run: usize,
    },
    Renew {
        runner: usize,
        run: usize,
    },
    Register {
        who: Who,
        slots: i32,
    },
    FinishRunner {
        runner: usize,
    },
    Silence {
        runner: usize,
    },
    SetLimit {
        limit: i32,
    },
    ReleaseClass {
        class: usize,
    },
    /// Pauses a class or everything.
    Pause {
        class: Option<usize>,
    },
    Resume {
        class: Option<usize>,
    },
    /// Limits runs at once, and starts during the test; `None` means no limit.
    LimitClass {
        class: usize,
        max_running: Option<i32>,
        starts: Option<i32>,
    },
    /// Limits the runs at once with this limit key; `None` means one.
    LimitKey {
        key: u8,
        max_running: Option<i32>,
    },
    RetryTask {
        task: usize,
    },
    Cancel {
        task: usize,
    },
    Edit {
        task: usize,
        priority: i32,
        is_later: bool,
    },
    /// These commands are UPDATEs by SQL.
    CancelTask {
        task: usize,
    },
    GrantRetry {
        task: usize,
    },
    MakeDue {
        task: usize,
    },
}

fn class() -> impl Strategy<Value = usize> + Clone {
    0..CLASSES.len()
}

fn who() -> impl Strategy<Value = Who> + Clone {
    prop_oneof![3 => Just(Who::Alive), 1 => Just(Who::Elsewhere), 1 => Just(Who::Dead)]
}

fn claimant() -> impl Strategy<Value = Claimant> + Clone {
    let can = prop_oneof![3 => Just([true; 3]), 1 => any::<[bool; 3]>()];
    (who(), can).prop_map(|(who, can)| Claimant { who, can })
}

fn end() -> impl Strategy<Value = End> + Clone {
    let event = prop_oneof![
        2 => Just(RunEvent::Succeed),
        4 => Just(RunEvent::Fail),
        2 => Just(RunEvent::TimeOut),
        3 => Just(RunEvent::Release),
        1 => Just(RunEvent::Cancel),
    ];
    let delay = prop_oneof![3 => Just(Delay::None), 1 => Just(Delay::Long), 1 => Just(Delay::Backoff)];
    let hold = prop_oneof![2 => Just(None), 1 => any::<bool>().prop_map(Some)];
    let is_crash = prop::bool::weighted(0.4);
    (event, prop::bool::weighted(0.8), is_crash, delay, hold)
        .prop_map(|(event, may_retry, is_crash, delay, hold)| End { event, may_retry, is_crash, delay, hold })
}

fn handled() -> impl Strategy<Value = Handled> + Clone {
    let fail = (any::<bool>(), any::<bool>()).prop_map(|(retry, is_later)| Handled::Fail { retry, is_later });
    prop_oneof![2 => Just(Handled::Succeed), 2 => fail, 1 => Just(Handled::Panic)]
}

fn queue() -> impl Strategy<Value = Command> {
    let when = prop_oneof![
        3 => Just(When::Now),
        2 => (1_u32..100).prop_map(When::Past),
        1 => Just(When::Later),
    ];
    (class(), -1..=1_i32, 1..=3_i32, when).prop_map(|(class, priority, max_retries, when)| Command::Queue {
        class,
        priority,
        max_retries,
        when,
    })
}

/// Generates a class more often than everything: otherwise most tests would have a store in which everything is paused.
fn paused() -> impl Strategy<Value = Option<usize>> + Clone {
    prop_oneof![3 => class().prop_map(Some), 1 => Just(None)]
}

fn limit_class() -> impl Strategy<Value = Command> {
    let max_running = prop_oneof![1 => Just(None), 1 => (1..=2_i32).prop_map(Some)];
    let starts = prop_oneof![2 => Just(None), 1 => (1..=4_i32).prop_map(Some)];
    (class(), max_running, starts).prop_map(|(class, max_running, starts)| Command::LimitClass {
        class,
        max_running,
        starts,
    })
}

fn unique() -> impl Strategy<Value = Command> {
    let on_conflict = select(vec![OnConflict::Return, OnConflict::Replace, OnConflict::Fail]);
    (class(), 0..2_u8, on_conflict).prop_map(|(class, key, on_conflict)| Command::QueueUnique {
        class,
        key,
        on_conflict,
    })
}

fn limited() -> impl Strategy<Value = Command> {
    (class(), 0..2_u8, -1..=1_i32).prop_map(|(class, key, priority)| Command::QueueLimited { class, key, priority })
}

fn limit_key() -> impl Strategy<Value = Command> {
    let max_running = prop_oneof![1 => Just(None), 2 => (1..=3_i32).prop_map(Some)];
    (0..2_u8, max_running).prop_map(|(key, max_running)| Command::LimitKey { key, max_running })
}

type Choices = Vec<(u32, BoxedStrategy<Command>)>;

/// Generates any command that makes sense now.
pub fn any_command(model: &Model) -> BoxedStrategy<Command> {
    let mut choices: Choices = vec![
        (8, queue().boxed()),
        (2, class().prop_map(|class| Command::Insert { class }).boxed()),
        (4, unique().boxed()),
        (4, limited().boxed()),
        (2, limit_key().boxed()),
        (1, Just(Command::QueueBad { max_retries: 0, priority: 0 }).boxed()),
        (1, Just(Command::QueueBad { max_retries: 1, priority: 1_001 }).boxed()),
        (8, Just(Command::CreateRuns).boxed()),
        (8, claimant().prop_map(Command::ClaimNext).boxed()),
        (8, claimant().prop_map(Command::Start).boxed()),
        (6, (0..CLAIMANTS, claimant()).prop_map(|(by, claimant)| Command::ClaimOutside { by, claimant }).boxed()),
        (6, handled().prop_map(Command::Process).boxed()),
        (2, (who(), 1..=3_i32).prop_map(|(who, slots)| Command::Register { who, slots }).boxed()),
        (1, (0..=4_i32).prop_map(|limit| Command::SetLimit { limit }).boxed()),
        (1, class().prop_map(|class| Command::ReleaseClass { class }).boxed()),
        (1, paused().prop_map(|class| Command::Pause { class }).boxed()),
        (3, paused().prop_map(|class| Command::Resume { class }).boxed()),
        (2, limit_class().boxed()),
    ];
    if !model.has_schedule() {
        choices.push((4, class().prop_map(|class| Command::QueueSchedule { class }).boxed()));
    }
    add_for_tasks(&mut choices, model);
    add_for_runs(&mut choices, model);
    add_for_runners(&mut choices, model);
    prop::strategy::Union::new_weighted(choices).boxed()
}

fn add_for_tasks(choices: &mut Choices, model: &Model) {
    if !model.tasks.is_empty() {
        let task = 0..model.tasks.len();
        let after = (class(), task.clone(), task.clone());
        choices.push((4, after.prop_map(|(class, one, two)| Command::QueueAfter { class, after: [one, two] }).boxed()));
        choices.push((2, task.clone().prop_map(|task| Command::OpenRunOf { task }).boxed()));
        choices.push((1, task.clone().prop_map(|task| Command::CancelTask { task }).boxed()));
        choices.push((1, task.clone().prop_map(|task| Command::GrantRetry { task }).boxed()));
        choices.push((4, task.clone().prop_map(|task| Command::RetryTask { task }).boxed()));
        choices.push((3, task.clone().prop_map(|task| Command::Cancel { task }).boxed()));
        let edit = (task.clone(), -1..=1_i32, any::<bool>());
        let edit = edit.prop_map(|(task, priority, is_later)| Command::Edit { task, priority, is_later });
        choices.push((2, edit.boxed()));
        choices.push((3, task.prop_map(|task| Command::MakeDue { task }).boxed()));
    }
}

fn add_for_runs(choices: &mut Choices, model: &Model) {
    if !model.runs.is_empty() {
        let run = (0..model.runs.len(), claimant());
        choices.push((2, run.prop_map(|(run, claimant)| Command::ClaimRun { run, claimant }).boxed()));
    }
    let processing = model.processing_runs();
    if !processing.is_empty() {
        let run = (select(processing.clone()), end());
        choices.push((10, run.clone().prop_map(|(run, end)| Command::EndRun { run, end }).boxed()));
        choices.push((2, run.prop_map(|(run, end)| Command::EndWithWrongToken { run, end }).boxed()));
        choices.push((2, select(processing).prop_map(|run| Command::LeaseOver { run }).boxed()));
    }
    // Late reports for runs that were rescued or ended before.
    let claimed = model.claimed_runs();
    if !claimed.is_empty() {
        let run = (select(claimed.clone()), end());
        choices.push((2, run.prop_map(|(run, end)| Command::EndRun { run, end }).boxed()));
        choices.push((2, select(claimed.clone()).prop_map(|run| Command::Heartbeat { run }).boxed()));
        choices.push((1, select(claimed).prop_map(|run| Command::Report { run }).boxed()));
    }
    let outside = model.outside_runs();
    if !outside.is_empty() {
        choices.push((6, select(outside).prop_map(|run| Command::Reject { run }).boxed()));
    }
}

fn add_for_runners(choices: &mut Choices, model: &Model) {
    if model.runners.is_empty() {
        return;
    }
    let runner = 0..model.runners.len();
    choices.push((1, runner.clone().prop_map(|runner| Command::FinishRunner { runner }).boxed()));
    choices.push((1, runner.clone().prop_map(|runner| Command::Silence { runner }).boxed()));
    let claimed = model.claimed_runs();
    if !claimed.is_empty() {
        let renewed = (runner, select(claimed));
        choices.push((2, renewed.prop_map(|(runner, run)| Command::Renew { runner, run }).boxed()));
    }
}
