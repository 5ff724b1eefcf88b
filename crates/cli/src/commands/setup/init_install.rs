//! The last step of `taskqueue init`: what starts taskqueue every minute, or all the time.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;

use crate::error::CliError;
use taskqueue_engine::{ToolAnswer, call_tool};

/// What starts taskqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Starter {
    /// A line in your crontab: `tick` every minute
    Cron,
    /// A systemd timer of your user: `tick` every minute
    UserTimer,
    /// A systemd service: `work` all the time. Prints the commands, which need root
    Service,
}

/// What was installed.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Installed {
    /// The files that were written.
    files: Vec<PathBuf>,
    /// Commands that remain to be run.
    pub(crate) commands: Vec<String>,
    /// What was done, for people.
    #[serde(skip)]
    pub(crate) words: Vec<String>,
}

/// How `tick` and `work` are called, quoted for a shell.
pub(crate) struct Call {
    /// `/usr/local/bin/taskqueue`, after the variable it needs.
    pub(crate) program: String,
    /// ` --config FILE`, or nothing.
    pub(crate) option: String,
    /// The user who calls it.
    pub(crate) user: String,
    /// The directory of the user's configurations: that of this program, and `~/.config`.
    pub(crate) config_homes: [PathBuf; 2],
}

impl Call {
    /// Returns the line for a crontab.
    pub(crate) fn cron_line(&self) -> String {
        // In a crontab, a percent sign ends the command.
        format!("* * * * * {} tick", self.command().replace('%', "\\%"))
    }

    fn command(&self) -> String {
        format!("{}{}", self.program, self.option)
    }
}

/// Installs it, or with `is_trial` only says what it would do. What is there already is kept, and a second call changes nothing.
pub(crate) fn install(starter: Starter, call: &Call, is_trial: bool) -> anyhow::Result<Installed> {
    match starter {
        Starter::Cron if is_trial => Ok(said(format!("would add to the crontab: {}", call.cron_line()))),
        Starter::UserTimer if is_trial => {
            let names = user_units(call).map(|(path, _)| format!("would write {}", path.display()));
            Ok(Installed { words: names.to_vec(), ..Installed::default() })
        }
        Starter::Cron => add_cron_line(&call.cron_line()),
        Starter::UserTimer => write_user_timer(call),
        Starter::Service => Ok(Installed { commands: service_commands(call), ..Installed::default() }),
    }
}

fn said(words: String) -> Installed {
    Installed { words: vec![words], ..Installed::default() }
}

fn crontab(args: &[&str], input: &str) -> anyhow::Result<ToolAnswer> {
    let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
    call_tool("crontab", &args, input).map_err(|error| {
        let hint = "install cron, or run `taskqueue init --install user-timer`";
        CliError::failed(format!("the program crontab cannot be run: {error}")).with_hint(hint).into()
    })
}

fn add_cron_line(line: &str) -> anyhow::Result<Installed> {
    let listed = crontab(&["-l"], "")?;
    // Every implementation exits with 1 and these words if the user has no crontab yet. After any other error, its lines are
    // unknown and must not be replaced.
    if !listed.is_success && !listed.stderr.contains("no crontab") {
        return Err(refused("crontab -l", &listed, line));
    }
    let mut text = if listed.is_success { listed.stdout } else { String::new() };
    if text.lines().any(|other| other.trim() == line) {
        return Ok(said(format!("the crontab has this line already: {line}")));
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
    text.push('\n');
    let written = crontab(&["-"], &text)?;
    if !written.is_success {
        return Err(refused("crontab -", &written, line));
    }
    Ok(said(format!("added to the crontab: {line}")))
}

fn refused(command: &str, answer: &ToolAnswer, line: &str) -> anyhow::Error {
    let why = answer.stderr.trim();
    CliError::failed(format!("`{command}` failed: {why}"))
        .with_hint(format!("add the line with `crontab -e`: {line}"))
        .into()
}

/// Returns where the manager of the user finds units: below `$XDG_CONFIG_HOME` only if it was started with this variable.
fn unit_directory(call: &Call) -> PathBuf {
    let [own, usual] = call.config_homes.each_ref().map(|home| home.join("systemd/user"));
    let is_read = || {
        let shown = systemctl(&["--user", "show", "--property=UnitPath", "--value"]);
        shown.is_some_and(|directories| directories.split_whitespace().any(|directory| Path::new(directory) == own))
    };
    if own != usual && is_read() { own } else { usual }
}

/// Returns the units of the user, each with its path.
fn user_units(call: &Call) -> [(PathBuf, String); 2] {
    let directory = unit_directory(call);
    let service = format!(
        "[Unit]\nDescription=Process the tasks that are due\n\n[Service]\nType=oneshot\nExecStart={} tick --max-time 55s\n\
         KillMode=mixed\nTimeoutStopSec=90\nSuccessExitStatus=130\n",
        in_unit(&call.command())
    );
    let timer = "[Unit]\nDescription=Process the tasks that are due, every minute\n\n[Timer]\nOnCalendar=minutely\n\
                 AccuracySec=1s\n\n[Install]\nWantedBy=timers.target\n";
    [(directory.join("taskqueue-tick.service"), service), (directory.join("taskqueue-tick.timer"), timer.to_owned())]
}

fn write_user_timer(call: &Call) -> anyhow::Result<Installed> {
    let units = user_units(call);
    for (path, text) in &units {
        let directory = path.parent().unwrap_or(path);
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        refuse_other_content(path, text)?;
    }
    let mut installed = Installed::default();
    for (path, text) in units {
        let words = match write_new(&path, &text)? {
            true => format!("wrote {}", path.display()),
            false => format!("{} exists already, with the same content", path.display()),
        };
        installed.words.push(words);
        installed.files.push(path);
    }
    let commands = [&["--user", "daemon-reload"][..], &["--user", "enable", "--now", "taskqueue-tick.timer"]];
    if !is_user_manager_running() || !commands.iter().all(|args| systemctl(args).is_some()) {
        installed.commands = commands.iter().map(|args| format!("systemctl {}", args.join(" "))).collect();
    }
    // Without this, the manager of the user ends with the last session.
    installed.commands.push(format!("loginctl enable-linger {}", call.user));
    Ok(installed)
}

/// Checks both units before one of them is written.
fn refuse_other_content(path: &Path, text: &str) -> Result<(), CliError> {
    match fs::read_to_string(path) {
        Ok(found) if found != text => {
            Err(CliError::failed(format!("{} exists already, with other content", path.display()))
                .with_hint("remove it, or edit it; no unit was changed"))
        }
        _ => Ok(()),
    }
}

/// Writes a file unless it exists already. Returns true if it was written.
fn write_new(path: &Path, text: &str) -> anyhow::Result<bool> {
    match fs::read_to_string(path) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
            Ok(true)
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn is_user_manager_running() -> bool {
    systemctl(&["--user", "show-environment"]).is_some()
}

/// Returns what it prints; `None` if it fails.
fn systemctl(args: &[&str]) -> Option<String> {
    let args: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
    call_tool("systemctl", &args, "").ok().filter(|answer| answer.is_success).map(|answer| answer.stdout)
}

/// Escapes the characters that have a meaning in a unit.
fn in_unit(command: &str) -> String {
    command.replace('%', "%%").replace('$', "$$")
}

fn service_commands(call: &Call) -> Vec<String> {
    let unit = format!(
        "[Unit]\nDescription=Process tasks as they become due\nAfter=network-online.target\nWants=network-online.target\n\n\
         [Service]\nType=notify\nTimeoutStartSec=infinity\nExecStart={} work\nExecReload=/bin/kill -HUP $MAINPID\nUser={}\n\
         WatchdogSec=3min\nRestart=always\nRestartSec=5s\nRestartPreventExitStatus=2\nKillMode=mixed\nTimeoutStopSec=90\nDelegate=yes\n\n\
         [Install]\nWantedBy=multi-user.target",
        in_unit(&call.command()),
        call.user
    );
    let path = "/etc/systemd/system/taskqueue-work.service";
    vec![
        format!("sudo tee {path} >/dev/null <<'END'\n{unit}\nEND"),
        "sudo systemctl daemon-reload".to_owned(),
        "sudo systemctl enable --now taskqueue-work.service".to_owned(),
    ]
}
