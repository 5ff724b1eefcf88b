//! `taskqueue metrics`

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde_json::json;

use crate::error::{CliError, DONE};
use crate::output::Out;
use crate::session::Session;
use taskqueue_engine::inspect::metrics::look;
use taskqueue_engine::inspect::metrics_text::text;
use taskqueue_engine::replace_file;

/// Print metrics of the store for Prometheus
///
/// With --textfile they are put into a file instead, as the textfile collector of node_exporter reads it. Where the database cannot
/// be asked there is `taskqueue_up 0` in place of its numbers, and the exit status says why.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue metrics\n  taskqueue metrics --textfile /var/lib/prometheus/node-exporter/taskqueue.prom"
)]
pub(crate) struct MetricsArgs {
    /// Put them into this file, whole or not at all, readable for everybody
    #[arg(long, value_name = "PATH")]
    textfile: Option<PathBuf>,
}

pub(crate) fn run(session: Session, args: &MetricsArgs, out: &mut Out) -> anyhow::Result<u8> {
    let began = Instant::now();
    let looked = session.open_to_read(out).and_then(|mut ctx| Ok(look(&mut ctx)?));
    let text = text(looked.as_ref().ok(), began.elapsed(), None);
    match &args.textfile {
        Some(path) => write(path, &text, out)?,
        // Whoever wants JSON reads the error of a database that is away as JSON, too.
        None if out.is_json() => {
            if let Ok(facts) = &looked {
                out.json(&json!({ "schema": "taskqueue.metrics/1", "metrics": facts }))?;
            }
        }
        None => out.data(text.trim_end())?,
    }
    looked.map(|_| DONE)
}

fn write(path: &Path, text: &str, out: &mut Out) -> Result<(), CliError> {
    replace_file(path, text).map_err(|error| {
        CliError::failed(format!("{} cannot be written: {error}", path.display()))
            .with_hint("it must be a file, and this user must be able to make another one beside it")
    })?;
    if path.extension().is_none_or(|extension| extension != "prom") {
        out.warn("node_exporter reads only files whose names end in .prom");
    }
    Ok(())
}
