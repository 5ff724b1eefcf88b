//! `taskqueue create-runs`

use clap::Args;

use crate::commands::changing::prune::pruned_words;
use crate::commands::queueing::schedule_file::applied_words;
use crate::error::DONE;
use crate::output::Out;
use crate::session::Session;
use crate::views::final_failures::failure_printer;
use taskqueue_engine::Context;
use taskqueue_engine::upkeep::create_runs::{CreateRunsReport, create_runs, list_passed_tasks};
use taskqueue_engine::upkeep::rescue::Rescued;
use taskqueue_views::human;

/// Rescue runs, end expired tasks, and create runs for due tasks
///
/// Run it from cron every few minutes; overlapping calls are safe. It prints nothing if there was nothing to do. With -v it also
/// explains why tasks whose time has come got no run. It prints one warning for each task that will not be retried, unless a host
/// has `[notify]` in its configuration.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  taskqueue create-runs\n  taskqueue create-runs -v")]
pub(crate) struct CreateRunsArgs {}

/// How many tasks `-v` explains at most.
const EXPLAINED: i64 = 100;

pub(crate) fn run(session: Session, _args: &CreateRunsArgs, out: &mut Out) -> anyhow::Result<u8> {
    let mut ctx = session.open_or_make()?;
    ctx.print_failures_with(failure_printer(out));
    let report = create_runs(&mut ctx, &mut |_| {})?;
    out.json_if_asked(&report)?;
    say_report(&report, out);
    if out.is_verbose() {
        say_passed(&mut ctx, out)?;
    }
    Ok(DONE)
}

pub(crate) fn say_report(report: &CreateRunsReport, out: &mut Out) {
    if report.sent_outcomes > 0 {
        let outcomes = human::plural(report.sent_outcomes, "outcome");
        out.say(&format!("recorded {outcomes} that a dead runner of this host had saved on the local disk"));
    }
    for rescued in &report.rescue.rescued {
        let ended = ended_words(rescued);
        let what = if rescued.is_cancelled { "is cancelled" } else { "timed out" };
        out.say(&format!("run {} (task {}) {what}: {}{ended}", rescued.run_id, rescued.task_id, rescued.message));
    }
    if report.finished_runners > 0 {
        out.say(&format!("{} marked finished", human::plural(report.finished_runners, "dead runner")));
    }
    if report.expired > 0 {
        out.say(&format!("{} expired", human::plural(report.expired, "task")));
    }
    if report.replaced > 0 {
        let replaced = human::plural(report.replaced, "task");
        out.say(&format!("{replaced} cancelled, because the next time of the schedule has come"));
    }
    for schedule in report.configured.iter().filter(|schedule| schedule.problem.is_none()) {
        out.say(&applied_words(schedule, false));
    }
    say_schedules(report, out);
    warn_of_report(report, out);
    if report.created > 0 {
        out.say(&format!("{} created", human::plural(report.created, "run")));
    }
    if let Some(words) = pruned_words(&report.pruned) {
        out.say(&words);
    }
}

/// Returns which processes were ended before the rescue.
fn ended_words(rescued: &Rescued) -> String {
    let (claimant, others) = match &rescued.claimant {
        Some(claimant) if rescued.claimant_ended => {
            (format!("; claimant {claimant} ended after TERM"), rescued.ended_processes.saturating_sub(1))
        }
        _ => (String::new(), rescued.ended_processes),
    };
    // A claimant has no handler, but may have started processes for the run.
    let whose = if rescued.claimant.is_some() { "run" } else { "handler" };
    match others {
        0 => claimant,
        1 => format!("{claimant}; 1 process of its {whose} was terminated"),
        count => format!("{claimant}; {count} processes of its {whose} were terminated"),
    }
}

fn say_schedules(report: &CreateRunsReport, out: &mut Out) {
    let schedules = report.schedules;
    if schedules.planned > 0 {
        let skipped = match schedules.skipped {
            0 => String::new(),
            count if schedules.skipped_or_more => format!(", skipped {count} or more that had passed"),
            count => format!(", skipped {count} that had passed"),
        };
        out.say(&format!("planned {}{skipped}", human::plural(schedules.planned, "scheduled time")));
    }
}

/// Prints warnings about problems that need an operator, even with little output, because a broken schedule is reported only
/// once.
pub(crate) fn warn_of_report(report: &CreateRunsReport, out: &mut Out) {
    for stuck in &report.rescue.stuck {
        out.warn(&format!("{stuck}; the next create-runs tries again"));
    }
    if report.schedules.broken > 0 {
        let broken = human::plural(report.schedules.broken, "schedule");
        out.warn(&format!("{broken} cannot be read; `taskqueue schedule list` shows the problem"));
    }
    for schedule in report.configured.iter().filter(|schedule| schedule.problem.is_some()) {
        out.warn(&format!("schedule {}", applied_words(schedule, false)));
    }
    for problem in report.notify_problem.iter().chain(&report.hook_problem) {
        out.warn(problem);
    }
}

fn say_passed(ctx: &mut Context, out: &mut Out) -> anyhow::Result<()> {
    for passed in list_passed_tasks(ctx, EXPLAINED)? {
        out.say_verbose(&format!("task {} ({}) gets no run: {}", passed.task_id, passed.class, passed.reason));
    }
    Ok(())
}
