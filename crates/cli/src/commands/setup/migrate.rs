//! `taskqueue db migrate`

use clap::Args;

use crate::error::DONE;
use crate::output::Out;
use crate::output::progress::Progress;
use crate::output::table::{Field, Tone, render};
use crate::session::Session;
use taskqueue_engine::upkeep::migrate;
use taskqueue_views::words::trouble::cluster_words;

/// Create or update the tables of a database server
///
/// One process migrates at a time. A SQLite store does not need this: every command migrates it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  taskqueue db migrate --dry-run\n  taskqueue db migrate")]
pub(crate) struct MigrateArgs {
    /// Only show which migrations are applied and which are pending
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(session: &Session, args: &MigrateArgs, out: &mut Out) -> anyhow::Result<u8> {
    if args.dry_run {
        let migrations = if session.has_place() {
            migrate::list(&session.url, session.connect_wait())?
        } else {
            migrate::list_for_new(&session.url)?
        };
        if out.is_json() {
            for migration in &migrations {
                out.json(migration)?;
            }
            return Ok(DONE);
        }
        let rows = migrations.into_iter().map(|migration| {
            let state = if migration.applied {
                Field::toned("applied", Tone::Quiet)
            } else {
                Field::toned("pending", Tone::Waiting)
            };
            vec![state, migration.name.into()]
        });
        out.data(render(out, &["STATE", "MIGRATION"], rows.collect(), &[]))?;
        return Ok(DONE);
    }
    session.make_place()?;
    let progress = Progress::steps(out, "migrating");
    let report = migrate::run(&session.url, session.connect_wait(), &mut |begun| {
        progress.step(begun.done, begun.pending, begun.name.clone());
    });
    drop(progress);
    let report = report?;
    if let Some(nodes) = migrate::cluster_nodes(&session.url)? {
        out.warn(&cluster_words(nodes));
    }
    out.json_if_asked(&report)?;
    match report.newly_applied.as_slice() {
        [] => out.say("nothing to migrate"),
        applied => {
            for version in applied {
                out.say(&format!("applied {version}"));
            }
        }
    }
    Ok(DONE)
}
