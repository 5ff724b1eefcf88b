//! The verbs: their names and arguments. A command line is read by the verb that it names: to describe all of them takes longer
//! than anything else that happens before a statement.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Subcommand};

use super::commands::{
    cancel, check, claim, classes, completions, create_runs, doctor, edit, events, exec, explain, failures, heartbeat, init, limits, logs, man, metrics, migrate, pauses, process_run, prune, queue, release, report, requeue, resolve, retry, runners, schedule, settings, show, status, tick, top, transfer, wait, work,
};
use super::{Cli, GlobalArgs};

macro_rules! verbs {
    ($($name:literal => $verb:ident($arguments:ty)),+ $(,)?) => {
        /// A verb with its arguments.
        #[derive(Debug, Subcommand)]
        pub(super) enum Command {
            $(#[command(name = $name)] $verb($arguments),)+
        }

        /// The name of each verb, and what adds its arguments.
        const VERBS: &[(&str, fn(clap::Command) -> clap::Command)] =
            &[$(($name, <$arguments as Args>::augment_args)),+];
    };
}

verbs! {
    "init" => Init(init::InitArgs),
    "queue" => Queue(queue::QueueArgs),
    "exec" => Exec(exec::ExecArgs),
    "create-runs" => CreateRuns(create_runs::CreateRunsArgs),
    "process-run" => ProcessRun(process_run::ProcessRunArgs),
    "tick" => Tick(tick::TickArgs),
    "work" => Work(work::WorkArgs),
    "status" => Status(status::StatusArgs),
    "top" => Top(top::TopArgs),
    "show" => Show(show::ShowArgs),
    "explain" => Explain(explain::ExplainArgs),
    "failures" => Failures(failures::FailuresArgs),
    "logs" => Logs(logs::LogsArgs),
    "wait" => Wait(wait::WaitArgs),
    "check" => Check(check::CheckArgs),
    "metrics" => Metrics(metrics::MetricsArgs),
    "doctor" => Doctor(doctor::DoctorArgs),
    "runners" => Runners(runners::RunnersArgs),
    "pause" => Pause(pauses::PauseArgs),
    "drain" => Drain(pauses::DrainArgs),
    "stop" => Stop(pauses::StopArgs),
    "resume" => Resume(pauses::ResumeArgs),
    "limits" => Limits(limits::LimitsArgs),
    "events" => Events(events::EventsArgs),
    "migrate" => Migrate(migrate::MigrateArgs),
    "retry" => Retry(retry::RetryArgs),
    "schedule" => Schedule(schedule::ScheduleArgs),
    "requeue" => Requeue(requeue::RequeueArgs),
    "cancel" => Cancel(cancel::CancelArgs),
    "edit" => Edit(edit::EditArgs),
    "prune" => Prune(prune::PruneArgs),
    "export" => Export(transfer::ExportArgs),
    "import" => Import(transfer::ImportArgs),
    "settings" => Settings(settings::SettingsArgs),
    "classes" => Classes(classes::ClassesArgs),
    "claim" => Claim(claim::ClaimArgs),
    "heartbeat" => Heartbeat(heartbeat::HeartbeatArgs),
    "resolve" => Resolve(resolve::ResolveArgs),
    "release" => Release(release::ReleaseArgs),
    "progress" => Progress(report::ProgressArgs),
    "result" => Result(report::ResultArgs),
    "message" => Message(report::MessageArgs),
    "completions" => Completions(completions::CompletionsArgs),
    "man" => Man(man::ManArgs),
}

/// A command line that was read, also as clap has it.
pub(super) type Parsed = (Cli, ArgMatches);

/// Reads a command line. What is wrong with it, and every help, comes from `whole`, the description of all verbs.
pub(super) fn parse(
    arguments: &[OsString],
    name: &'static str,
    whole: impl FnOnce() -> clap::Command,
) -> Result<Parsed, clap::Error> {
    match parse_by(called(arguments, name), arguments) {
        // It is the same of all verbs.
        Err(error) if error.kind() != ErrorKind::DisplayVersion => parse_by(whole(), arguments),
        parsed => parsed,
    }
}

fn parse_by(command: clap::Command, arguments: &[OsString]) -> Result<Parsed, clap::Error> {
    let matches = command.try_get_matches_from(arguments)?;
    Ok((Cli::from_arg_matches(&matches)?, matches))
}

/// The description of the first verb among these words alone. If that word is the value of an option, the description fits no
/// command line: the verb is missing then, or another one is unknown.
fn called(arguments: &[OsString], name: &'static str) -> clap::Command {
    let root = GlobalArgs::augment_args(clap::Command::new(name)).version(env!("CARGO_PKG_VERSION"));
    let named = |word: &OsString| VERBS.iter().find(|(verb, _)| word == verb);
    match arguments.iter().skip(1).find_map(named) {
        Some((verb, add_arguments)) => root.subcommand(add_arguments(clap::Command::new(*verb))),
        None => root,
    }
}
