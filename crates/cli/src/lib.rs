//! The command line: parses options, prints reports, returns an exit status. One file per verb in `commands`; only `output`
//! prints. It uses the engine; only `fuzzing` uses the store.

#[macro_use]
extern crate taskqueue_host;

mod commands;
mod completion;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod in_handler;
mod manual;
pub(crate) mod naming;
pub(crate) mod output;
mod session;
mod top;
mod verbs;
mod views;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgMatches, Args, CommandFactory as _, Parser};

use self::commands::claiming::report;
use self::commands::setup::{completions, init, man};
use self::completion::Question;
use self::error::{CliError, DONE, USAGE};
use self::naming::{foreign_verbs, number_words, topics, verb_groups};
use self::output::Out;
use self::session::Session;
use self::verbs::Command;
use taskqueue_domain::text::nearest::nearest_names;
use taskqueue_engine::config::{HandlerEnvironment, take_address_of_runner};
use taskqueue_engine::handler::OverrunAction;
use taskqueue_engine::handler::registry::HandlerRegistry;
use taskqueue_engine::output_was_closed;
use taskqueue_engine::queueing::own_queue::end_with_parent;

/// The name of this program in help and messages.
const NAME: &str = "taskqueue";

/// A durable task queue for the command line, cron and any language
///
/// A task (what others call a job) is a row in a database. A task class names the program that handles it. Cron, a systemd
/// timer or a worker runs it. Every attempt is recorded as a row.
#[derive(Debug, Parser)]
#[command(
    name = NAME,
    version,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    infer_subcommands = false
)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

/// Options of every verb.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Database with the tasks: sqlite:///path, a path, postgres://user@host/db or mysql://user@host/db [env:
    /// TASKQUEUE_DATABASE_URL]
    #[arg(long, global = true, value_name = "URL", value_hint = clap::ValueHint::AnyPath)]
    database: Option<String>,
    /// Configuration file [env: TASKQUEUE_CONFIG] [default: ~/.config/taskqueue/config.toml, else /etc/taskqueue/config.toml]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON on standard output
    #[arg(long, global = true)]
    json: bool,
    /// Print more: messages on standard error, and all checks of `explain`
    #[arg(short, long, global = true)]
    verbose: bool,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: output::ColorChoice,
}

/// The command line of this program, or of one that adds its own task classes.
#[derive(Default)]
pub struct App {
    registry: HandlerRegistry,
    name: Option<&'static str>,
}

impl App {
    /// Creates the plain command line.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name in help and messages.
    #[must_use]
    pub fn named(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// Adds a task class that a Rust type handles.
    #[must_use]
    pub fn class(
        mut self,
        name: impl Into<String>,
        handler: impl taskqueue_engine::handler::TaskHandler + 'static,
    ) -> Self {
        self.registry.register(name, handler);
        self
    }

    /// Sets what happens when a handler does not end although it must: after its timeout, when the lease of its run has
    /// expired, or when the time to stop has passed. By default its thread is left behind.
    #[must_use]
    pub fn on_overrun(mut self, action: OverrunAction) -> Self {
        self.registry.overrun.action = action;
        self
    }

    /// Sets how long a handler may continue after it was asked to end; 10 seconds by default. `kill_grace_secs` of the class in
    /// the configuration takes precedence.
    #[must_use]
    pub fn overrun_grace(mut self, time: Duration) -> Self {
        self.registry.overrun.grace = time;
        self
    }

    /// Sets how many threads may be left behind before nothing more is claimed, 1 or more; by default one for each slot. `work`
    /// then ends with exit status 1, so that a service manager restarts it; `process-run` and `tick` have one slot and end.
    #[must_use]
    pub fn max_left_behind(mut self, threads: usize) -> Self {
        self.registry.overrun.most = Some(threads);
        self
    }

    /// Runs the verb in the arguments of this process, and returns the exit status. Call it from `main`, on the main thread:
    /// handlers are killed when the thread that started them ends.
    #[must_use]
    pub fn run(self) -> ExitCode {
        self.run_with(std::env::args_os())
    }

    fn command(&self) -> clap::Command {
        let after = format!(
            "`help COMMAND` explains a command, `help all` describes all of them.\n`help TOPIC` explains: {}",
            topics::list().collect::<Vec<_>>().join(", ")
        );
        let command = number_words::with_negative_numbers(Cli::command().after_help(after));
        self.named_command(verb_groups::compact(command, output::help_width()))
    }

    /// Returns the command whose help describes each verb.
    fn command_with_all_verbs(&self) -> clap::Command {
        self.named_command(verb_groups::grouped(Cli::command(), output::help_width()))
    }

    fn named_command(&self, command: clap::Command) -> clap::Command {
        match self.name {
            Some(name) => command.name(name).bin_name(name),
            None => command,
        }
    }

    fn run_with(self, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
        // First: until then, other processes of the user can read the environment.
        hide_from_handlers();
        let mut arguments: Vec<OsString> = arguments.into_iter().collect();
        if let Some(question) = Question::of(&arguments) {
            return print_answer(&question.answer(self.command(), self.registry.names().map(str::to_owned).collect()));
        }
        // Users try `help VERB` first. It is no verb, so that it is not listed among them.
        if arguments.get(1).is_some_and(|verb| verb == "help") {
            arguments.remove(1);
            let command = self.command();
            let word = arguments.get(1).map(|word| word.to_string_lossy()).filter(|word| !word.starts_with('-'));
            if word.as_deref() == Some("all") {
                return print_by_clap(DONE, || self.command_with_all_verbs().print_long_help());
            }
            if let Some(word) = word.filter(|word| command.find_subcommand(&**word).is_none()) {
                return match topics::topic(&word) {
                    Some(text) => print_topic(text),
                    None => print_error(&no_page(&word, &command), &arguments),
                };
            }
            arguments.push("--help".into());
        }
        let wants_json = wants_json(&arguments);
        let parsed = verbs::parse(&arguments, self.name.unwrap_or(NAME), || self.command());
        // The version and the help name no wrong word, and all verbs are described only where one may be wrong.
        let parsed = parsed.map_err(|error| match error.use_stderr() {
            true => number_words::with_plain_reason(foreign_verbs::with_our_word(error, &arguments, &self.command())),
            false => error,
        });
        let (cli, matches) = match parsed {
            Ok(cli) => cli,
            Err(error) if wants_json && error.use_stderr() => return print_error(&usage_error(&error), &arguments),
            // clap chooses standard output (help) or standard error (usage), and the exit status.
            Err(error) => return print_by_clap(u8::try_from(error.exit_code()).unwrap_or(USAGE), || error.print()),
        };
        let mut out = Out::new(cli.global.json, cli.global.verbose, cli.global.color);
        // Before other threads exist, because it changes how the process receives the ends of handlers.
        let _ = taskqueue_engine::prepare_process();
        taskqueue_engine::keep_sqlite_logs();
        match execute(cli, &matches, &arguments, self, &mut out) {
            Ok(code) => match out.lost() {
                Some(error) => {
                    out.error(&error);
                    ExitCode::from(if code == DONE { error.code } else { code })
                }
                None => ExitCode::from(code),
            },
            Err(error) => {
                let error = out.with_output_hint(CliError::from(error));
                out.error(&error);
                ExitCode::from(error.code)
            }
        }
    }
}

/// How long an interactive command retries a connection that the server refuses for now.
const CONNECT_WAIT_OF_PEOPLE: Duration = Duration::from_secs(10);
/// How long a command that cron starts retries such a connection.
const CONNECT_WAIT_OF_CRON: Duration = Duration::from_secs(60);

/// Hides the environment of this process: handlers of the same user could read the password of the database in it. Removing the
/// variable would not help, because the kernel shows the environment as it was at the start. Inside a handler nothing is hidden,
/// because its processes are found by the token in the environment.
fn hide_from_handlers() {
    if HandlerEnvironment::own().is_ok_and(|ours| ours.token.is_none()) {
        // If the kernel refuses, there is no other way, and the command is more important.
        let _ = taskqueue_engine::hide_process();
    }
}

/// Sends a command inside a handler to its runner if it uses the queue; otherwise executes it here.
fn execute(cli: Cli, matches: &ArgMatches, arguments: &[OsString], app: App, out: &mut Out) -> anyhow::Result<u8> {
    if let Some(code) = in_handler::execute_by_runner(&cli.global, matches, arguments)? {
        return Ok(code);
    }
    let HandlerEnvironment { on_behalf_of, runner_pid, .. } = HandlerEnvironment::own()?;
    if on_behalf_of.is_some() {
        in_handler::check(matches)?;
    }
    if let Some(runner) = runner_pid {
        end_with_parent(&runner)?;
        take_address_of_runner()
            .map_err(|error| CliError::unreachable(format!("the runner of this command cannot be reached: {error}")))?;
    }
    dispatch(cli.command, &cli.global, app, out)
}

fn dispatch(command: Command, global: &GlobalArgs, app: App, out: &mut Out) -> anyhow::Result<u8> {
    // Three of these run inside a handler, two print information about the program, and one creates the configuration: they
    // need no session.
    let command = match command {
        Command::Report(args) if !args.needs_database() => return report::run_in_handler(&args),
        Command::Completions(args) => return completions::run(&args, app.command().get_name(), out),
        Command::Man(args) => return man::run(&args, app.command(), out),
        Command::Init(args) => {
            return init::run(&args, global, |out| Session::prepare(global, app.registry, out), out);
        }
        other => other,
    };
    let session = Session::prepare(global, app.registry, out)?.waiting(usual_connect_wait(&command), out);
    let patience = session.url.patience().clone();
    // A service manager must see that a worker could not end cleanly.
    let is_worker = matches!(command, Command::Work(_));
    command
        .run(session, out)
        .map_err(|error| if patience.is_over() && !is_worker { error::interrupted_in_database(error) } else { error })
}

/// Returns how long this command retries a connection that the server refuses for now; `None`: without a limit.
const fn usual_connect_wait(command: &Command) -> Option<Duration> {
    match command {
        Command::Work(_) => None,
        Command::Tick(_) | Command::ProcessRun(_) | Command::CreateRuns(_) => Some(CONNECT_WAIT_OF_CRON),
        _ => Some(CONNECT_WAIT_OF_PEOPLE),
    }
}

/// Prints a completion. A shell that has closed the pipe is not an error.
fn print_answer(text: &str) -> ExitCode {
    if !text.is_empty() {
        let _ = Out::new(false, false, output::ColorChoice::Never).data(text);
    }
    ExitCode::from(DONE)
}

/// Returns whether JSON was requested, with `--json` or `--output`, before the options are parsed.
fn wants_json(arguments: &[OsString]) -> bool {
    let before_dashes: Vec<_> = arguments.iter().take_while(|argument| *argument != "--").collect();
    let is_form = |word: &OsString| word == "json" || word == "jsonl";
    let forms = ["--json", "--output=json", "--output=jsonl", "-ojson", "-ojsonl", "-o=json", "-o=jsonl"];
    before_dashes.iter().any(|word| forms.iter().any(|form| *word == form))
        || before_dashes.windows(2).any(|pair| (pair[0] == "--output" || pair[0] == "-o") && is_form(pair[1]))
}

fn print_error(error: &CliError, arguments: &[OsString]) -> ExitCode {
    Out::new(wants_json(arguments), false, output::ColorChoice::Never).error(error);
    ExitCode::from(error.code)
}

/// Returns the error for a word without help or a manual page.
fn no_page(word: &str, command: &clap::Command) -> CliError {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let known = verbs.map(|verb| verb.get_name().to_owned()).chain(topics::list().map(str::to_owned));
    let meant = match foreign_verbs::our_verb(word) {
        Some(ours) => format!("; did you mean \"{ours}\"?"),
        None => error::did_you_mean(&nearest_names(word, known)),
    };
    CliError::usage(format!("there is no command or topic \"{word}\"{meant}"))
        .with_hint("`taskqueue --help` lists both")
}

/// The width of help text if it is unknown, and the largest width.
const COLUMNS: u16 = 80;
const WIDEST: u16 = 100;

fn print_topic(page: &str) -> ExitCode {
    let mut out = Out::new(false, false, output::ColorChoice::Never);
    match out.data(manual::to_text(page, out.width().unwrap_or(COLUMNS).min(WIDEST))) {
        Ok(()) => ExitCode::from(DONE),
        Err(error) => print_error(&error.into(), &[]),
    }
}

/// Prints help or usage with clap, and returns `code`. A reader that closes the pipe early (`| head`) is not an error.
fn print_by_clap(code: u8, print: impl FnOnce() -> io::Result<()>) -> ExitCode {
    let is_closed = code == DONE && output_was_closed();
    let printed = if is_closed { Err(io::Error::other("it is closed")) } else { print() };
    match printed {
        // Usage has another status and goes to standard error: if that fails, nothing can be reported.
        Err(problem) if code == DONE && problem.kind() != io::ErrorKind::BrokenPipe => {
            print_error(&CliError::failed(format!("cannot write to standard output: {problem}")), &[])
        }
        _ => ExitCode::from(code),
    }
}

/// Returns the error for a command line that clap refuses: without the usage, and with a hint.
fn usage_error(error: &clap::Error) -> CliError {
    let hint = usage_tip(error).or_else(|| Some(format!("`{} --help` lists the options", called_command(error)?)));
    let message = CliError::usage(usage_words(error));
    if let Some(hint) = hint { message.with_hint(hint) } else { message }
}

/// Returns the command in the usage of a clap error: `taskqueue schedule list`.
fn called_command(error: &clap::Error) -> Option<String> {
    let usage = error.render().to_string();
    let usage = usage.lines().find_map(|line| line.strip_prefix("Usage: "))?.to_owned();
    let is_name =
        |word: &&str| word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-') && !word.starts_with('-');
    Some(usage.split(' ').take_while(is_name).collect::<Vec<_>>().join(" "))
}

/// Returns the message of a clap error without the usage.
fn usage_words(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    first.trim_start_matches("error: ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the suggestion of a clap error.
fn usage_tip(error: &clap::Error) -> Option<String> {
    let text = error.render().to_string();
    text.lines().find_map(|line| line.trim_start().strip_prefix("tip: ")).map(|tip| tip.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_example_of_a_help_is_broken_by_a_terminal_of_80_columns() {
        let command = Cli::command();
        let helps = command.get_subcommands().filter_map(clap::Command::get_after_help).map(ToString::to_string);
        let examples: Vec<String> =
            helps.flat_map(|help| help.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        assert!(examples.len() > 50, "{}", examples.len());
        assert_eq!(examples.iter().find(|line| line.chars().count() > 80), None);
    }
}
