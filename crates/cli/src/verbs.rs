//! The verbs: their names and arguments. Only the verb on the command line is described to clap: describing all of them takes
//! longer than anything else before the first statement.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, FromArgMatches as _, Subcommand};

use super::{Cli, GlobalArgs};
use crate::commands::changing::{cancel, edit, prune, retry, transfer};
use crate::commands::claiming::{report, worker};
use crate::commands::inspecting::{events, explain, failures, logs, runners, status, top, wait};
use crate::commands::operating::{check, doctor, limits, metrics, pauses, web};
use crate::commands::queueing::{exec, queue, schedule};
use crate::commands::running::{create_runs, process_run, tick, work};
use crate::commands::setup::{classes, completions, db, init, man, settings};
use crate::error::DONE;
use crate::output::Out;
use crate::session::Session;

macro_rules! verbs {
    ($($name:literal => $verb:ident($arguments:ty) $(=> $run:path)?),+ $(,)?) => {
        /// A verb with its arguments.
        #[derive(Debug, Subcommand)]
        pub(super) enum Command {
            $(#[command(name = $name)] $verb($arguments),)+
        }

        impl Command {
            pub(super) fn run(&self, session: Session, out: &mut Out) -> anyhow::Result<u8> {
                match self {
                    $($(Self::$verb(args) => $run(session, args, out),)?)+
                    // They need no session.
                    Self::Init(_) | Self::Completions(_) | Self::Man(_) => Ok(DONE),
                }
            }
        }

        /// The name of each verb, and the function that adds its arguments.
        const VERBS: &[(&str, fn(clap::Command) -> clap::Command)] =
            &[$(($name, <$arguments as Args>::augment_args)),+];
    };
}

verbs! {
    "init" => Init(init::InitArgs),
    "queue" => Queue(queue::QueueArgs) => queue::run,
    "exec" => Exec(exec::ExecArgs) => exec::run,
    "create-runs" => CreateRuns(create_runs::CreateRunsArgs) => create_runs::run,
    "process-run" => ProcessRun(process_run::ProcessRunArgs) => process_run::run,
    "tick" => Tick(tick::TickArgs) => tick::run,
    "work" => Work(work::WorkArgs) => work::run,
    "status" => Status(status::StatusArgs) => status::run,
    "top" => Top(top::TopArgs) => top::run,
    "explain" => Explain(explain::ExplainArgs) => explain::run,
    "failures" => Failures(failures::FailuresArgs) => failures::run,
    "logs" => Logs(logs::LogsArgs) => logs::run,
    "wait" => Wait(wait::WaitArgs) => wait::run,
    "check" => Check(check::CheckArgs) => check::run,
    "metrics" => Metrics(metrics::MetricsArgs) => metrics::run,
    "web" => Web(web::WebArgs) => web::run,
    "doctor" => Doctor(doctor::DoctorArgs) => doctor::run,
    "runner" => Runners(runners::RunnersArgs) => runners::run,
    "pause" => Pause(pauses::PauseArgs) => pauses::pause,
    "drain" => Drain(pauses::DrainArgs) => pauses::drain,
    "stop" => Stop(pauses::StopArgs) => pauses::stop,
    "resume" => Resume(pauses::ResumeArgs) => pauses::resume,
    "limit" => Limits(limits::LimitsArgs) => limits::run,
    "events" => Events(events::EventsArgs) => events::run,
    "db" => Db(db::DbArgs) => db::run,
    "retry" => Retry(retry::RetryArgs) => retry::run,
    "schedule" => Schedule(schedule::ScheduleArgs) => schedule::run,
    "cancel" => Cancel(cancel::CancelArgs) => cancel::run,
    "edit" => Edit(edit::EditArgs) => edit::run,
    "prune" => Prune(prune::PruneArgs) => prune::run,
    "export" => Export(transfer::ExportArgs) => transfer::run_export,
    "import" => Import(transfer::ImportArgs) => transfer::run_import,
    "setting" => Settings(settings::SettingsArgs) => settings::run,
    "class" => Classes(classes::ClassesArgs) => classes::run,
    "worker" => Worker(worker::WorkerArgs) => worker::run,
    "report" => Report(report::ReportArgs) => report::run_by_database,
    "completions" => Completions(completions::CompletionsArgs),
    "man" => Man(man::ManArgs),
}

/// A parsed command line, also as clap represents it.
pub(super) type Parsed = (Cli, ArgMatches);

/// Parses a command line. Errors and help come from `whole`, the description of all verbs.
pub(super) fn parse(
    arguments: &[OsString],
    name: &'static str,
    whole: impl FnOnce() -> clap::Command,
) -> Result<Parsed, clap::Error> {
    match parse_by(called(arguments, name), arguments) {
        // The version is the same for all verbs.
        Err(error) if error.kind() != ErrorKind::DisplayVersion => parse_by(whole(), arguments),
        parsed => parsed,
    }
}

fn parse_by(command: clap::Command, arguments: &[OsString]) -> Result<Parsed, clap::Error> {
    let matches = command.try_get_matches_from(arguments)?;
    Ok((Cli::from_arg_matches(&matches)?, matches))
}

/// Describes only the first verb among these words. If that word was the value of an option, parsing fails: the verb is
/// missing, or another one is unknown.
fn called(arguments: &[OsString], name: &'static str) -> clap::Command {
    let root = GlobalArgs::augment_args(clap::Command::new(name)).version(env!("CARGO_PKG_VERSION"));
    let named = |word: &OsString| VERBS.iter().find(|(verb, _)| word == verb);
    match arguments.iter().skip(1).find_map(named) {
        Some((verb, add_arguments)) => root.subcommand(add_arguments(clap::Command::new(*verb))),
        None => root,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    /// Parses a line. Returns also whether all verbs had to be described.
    fn parsed(line: &str) -> (Result<Parsed, clap::Error>, bool) {
        let mut was_asked = false;
        let whole = || {
            was_asked = true;
            Cli::command()
        };
        let parsed = parse(&words(line), "taskqueue", whole);
        (parsed, was_asked)
    }

    #[test]
    fn a_called_verb_has_the_arguments_that_it_has_among_all() {
        let all = Cli::command();
        assert_eq!(all.get_subcommands().count(), VERBS.len());
        for verb in all.get_subcommands() {
            let alone = called(&words(&format!("taskqueue --json {}", verb.get_name())), "taskqueue");
            assert_eq!(alone.get_subcommands().count(), 1);
            let alone = alone.get_subcommands().next().unwrap().clone();
            assert_eq!(alone.get_name(), verb.get_name());
            let [alone, verb] = [alone, verb.clone()].map(|mut verb| verb.render_long_help().to_string());
            assert_eq!(alone, verb);
        }
    }

    #[test]
    fn a_right_command_line_needs_the_description_of_its_verb_alone() {
        for line in
            ["taskqueue queue a 1", "taskqueue --json -v status 1", "taskqueue --config queue status", "taskqueue -V"]
        {
            let (parsed, was_asked) = parsed(line);
            let is_right = parsed.map_or_else(|error| error.kind() == ErrorKind::DisplayVersion, |_| true);
            assert!(is_right, "{line}");
            assert_eq!(was_asked, line.contains("--config queue"), "{line}");
        }
    }

    #[test]
    fn what_is_wrong_and_every_help_comes_from_the_description_of_all_verbs() {
        for line in [
            "taskqueue",
            "taskqueue --json",
            "taskqueue --help",
            "taskqueue queue --help",
            "taskqueue stauts",
            "taskqueue --database status",
            "taskqueue status queue --bogus",
            "taskqueue queue --prioritty 1 a",
        ] {
            let (parsed, was_asked) = parsed(line);
            let expected = Cli::command().try_get_matches_from(words(line)).unwrap_err();
            assert!(was_asked, "{line}");
            assert_eq!(parsed.unwrap_err().to_string(), expected.to_string(), "{line}");
        }
    }

    #[test]
    fn a_verb_finds_the_same_however_it_was_described() {
        let line = words("taskqueue --color never queue mail.send 1 --json --priority 3");
        let whole = parse_by(Cli::command(), &line).unwrap();
        let alone = parse_by(called(&line, "taskqueue"), &line).unwrap();
        assert_eq!(format!("{:?}", alone.0), format!("{:?}", whole.0));
        assert_eq!(alone.1.subcommand_name(), whole.1.subcommand_name());
    }
}
