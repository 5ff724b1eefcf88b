//! `taskqueue db`: the database as a whole.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::HumanBytes;
use serde_json::json;

use crate::commands::setup::migrate;
use crate::error::{CliError, DONE, FAILED};
use crate::output::Out;
use crate::output::progress::Progress;
use crate::session::Session;
use taskqueue_engine::upkeep::backup::{DAMAGE_STEPS, Damage, copy_to, find_damage, unfinished};
use taskqueue_engine::{DatabaseUrl, Engine, StopSignals};
use taskqueue_views::human::plural;
use taskqueue_views::shell_word::shell_word;

/// Back up, check and migrate the database
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue db backup /var/backups/tasks.db\n  taskqueue db check\n  taskqueue db migrate"
)]
pub(crate) struct DbArgs {
    #[command(subcommand)]
    action: DbVerb,
}

#[derive(Debug, Subcommand)]
enum DbVerb {
    Migrate(migrate::MigrateArgs),
    Backup(BackupArgs),
    Check(CheckArgs),
}

/// Copy a SQLite store to a file, while others use it
///
/// The copy has the state of the moment when it began. The file appears only when the copy is complete and on the disk. For a
/// server, use its own tool; the error names the command.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue db backup /var/backups/tasks.db\n  taskqueue db backup --replace nightly.db"
)]
struct BackupArgs {
    /// The file of the backup
    file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    replace: bool,
}

/// Check the whole database for damage
///
/// Reads all rows, and on SQLite all pages and indexes, and checks that tasks, runs and prerequisites agree. The exit status is 1
/// if something is damaged. Changes nothing. On a large database this takes long.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  taskqueue db check\n  taskqueue db check --json")]
struct CheckArgs {}

pub(crate) fn run(session: Session, args: &DbArgs, out: &mut Out) -> anyhow::Result<u8> {
    match &args.action {
        DbVerb::Migrate(args) => migrate::run(&session, args, out),
        DbVerb::Backup(args) => backup(session, args, out),
        DbVerb::Check(_) => check(session, out),
    }
}

fn backup(session: Session, args: &BackupArgs, out: &mut Out) -> anyhow::Result<u8> {
    let shown = args.file.display().to_string();
    if session.url.engine() != Engine::Sqlite {
        return Err(CliError::usage("a database server is backed up with its own tools")
            .with_hint(dump_command(&session.url, &shown))
            .into());
    }
    if !args.replace && fs::symlink_metadata(&args.file).is_ok() {
        return Err(CliError::failed(format!("{shown} exists")).with_hint("--replace replaces it").into());
    }
    session.refuse_missing_store()?;
    let stop = StopSignals::install()?;
    let mut ctx = session.open_to_read(out)?;
    let progress = Progress::steps(out, "copying");
    progress.step(0, 1, shown.clone());
    let file = args.file.clone();
    let copied = stop.wait_for_work(Duration::ZERO, move || copy_to(&mut ctx, &file))?;
    drop(progress);
    let Some(copied) = copied else {
        // The thread may still be writing it.
        let _ = fs::remove_file(unfinished(&args.file));
        return Err(CliError::interrupted("stopped by a signal: no backup was made").into());
    };
    let size_bytes = copied?;
    out.json_if_asked(&json!({ "file": args.file, "size_bytes": size_bytes }))?;
    out.say(&format!("{shown}: {}", HumanBytes(size_bytes)));
    Ok(DONE)
}

/// Returns the command that backs up a server. It asks for the password, or reads it where the server's own tools look for it.
fn dump_command(url: &DatabaseUrl, file: &str) -> String {
    let (file, shown) = (shell_word(file), url.to_string());
    if url.engine() == Engine::Postgres {
        let without_password = shown.replacen(":***@", "@", 1);
        return format!("pg_dump --format=custom --file={file} --dbname={}", shell_word(&without_password));
    }
    let place = shown.split(['?', '#']).next().unwrap_or_default();
    let (server, name) = place.rsplit_once('/').unwrap_or_default();
    let (user, host) = server.rsplit_once('@').unwrap_or(("", server));
    let user = user.rsplit('/').next().and_then(|user| user.split(':').next()).unwrap_or_default();
    let host = host.rsplit('/').next().unwrap_or_default();
    let (host, port) = match host.rsplit_once(':').filter(|(_, port)| port.chars().all(|c| c.is_ascii_digit())) {
        Some((host, port)) => (host, format!(" --port={port}")),
        None => (host, String::new()),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let user = if user.is_empty() { String::new() } else { format!(" --user={} --password", shell_word(user)) };
    format!("mysqldump --single-transaction --host={}{port}{user} {} >{file}", shell_word(host), shell_word(name))
}

fn check(session: Session, out: &mut Out) -> anyhow::Result<u8> {
    session.refuse_missing_store()?;
    let mut ctx = session.open_to_read(out)?;
    let progress = Progress::steps(out, "checking");
    let found = find_damage(&mut ctx, &mut |step, name| progress.step(step, DAMAGE_STEPS, name.to_owned()));
    drop(progress);
    let found = found?;
    if out.is_json() {
        let problems: Vec<_> =
            found.iter().map(|it| json!({ "kind": kind(it), "message": damage_words(it) })).collect();
        out.json(&json!({ "problems": problems }))?;
    } else if !found.is_empty() {
        let lines: Vec<String> = found.iter().map(damage_words).collect();
        out.data(lines.join("\n"))?;
    }
    out.say(&match found.len() {
        0 => "no damage found".to_owned(),
        number => format!("{} found", plural(number, "problem")),
    });
    Ok(if found.is_empty() { DONE } else { FAILED })
}

const fn kind(damage: &Damage) -> &'static str {
    match damage {
        Damage::Unreadable { .. } => "unreadable",
        Damage::RunsWithoutTask { .. } => "runs_without_task",
        Damage::TasksWithoutRun { .. } => "tasks_without_run",
        Damage::WrongWaitingFor { .. } => "wrong_waiting_for",
    }
}

fn damage_words(damage: &Damage) -> String {
    match damage {
        Damage::Unreadable { message } => format!("the engine reports: {message}"),
        Damage::RunsWithoutTask { count, first } => {
            format!("{}, the first of task {first}", plural(*count, "open run without a task"))
        }
        Damage::TasksWithoutRun { count, first } => {
            format!("{}, the first is task {first}", plural(*count, "task whose CurrentRunId is not an open run of it"))
        }
        Damage::WrongWaitingFor { count, first } => format!(
            "{}, the first is task {first}",
            plural(*count, "task whose WaitingFor is not the number of its unfinished prerequisites")
        ),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_command_for_a_server_has_its_address_and_no_password() {
        for (url, command) in [
            ("postgres://ann:pw@h/d", "pg_dump --format=custom --file=f --dbname=postgres://ann@h/d"),
            (
                "mysql://ann:pw@h:3307/d",
                "mysqldump --single-transaction --host=h --port=3307 --user=ann --password d >f",
            ),
            ("mysql://ann@[::1]/d", "mysqldump --single-transaction --host=::1 --user=ann --password d >f"),
        ] {
            assert_eq!(dump_command(&DatabaseUrl::parse(url).unwrap(), "f"), command);
        }
    }
}
