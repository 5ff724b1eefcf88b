//! `taskqueue metrics`

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde_json::json;

use crate::error::{CliError, DONE};
use crate::output::Out;
use crate::session::Session;
use taskqueue_engine::inspect::monitoring::metrics::look;
use taskqueue_engine::inspect::monitoring::metrics_text::text;
use taskqueue_engine::replace_file;

/// Print metrics of the store for Prometheus
///
/// With --textfile, writes them to a file for the textfile collector of node_exporter. If the database cannot be queried, the
/// output has `taskqueue_up 0` instead of its numbers, and the exit status shows why.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue metrics\n  taskqueue metrics --textfile /var/lib/prometheus/node-exporter/taskqueue.prom"
)]
pub(crate) struct MetricsArgs {
    /// Write the metrics to this file, as a whole or not at all, readable by every user
    #[arg(long, value_name = "PATH")]
    textfile: Option<PathBuf>,
}

pub(crate) fn run(session: Session, args: &MetricsArgs, out: &mut Out) -> anyhow::Result<u8> {
    let began = Instant::now();
    let looked = session.open_to_read(out).and_then(|mut ctx| Ok(look(&mut ctx)?));
    let text = text(looked.as_ref().ok(), began.elapsed(), None);
    match &args.textfile {
        Some(path) => write(path, &text, out)?,
        // With `--json`, the error of an unreachable database is printed as JSON too.
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
            .with_hint("it must be a regular file, in a directory where this user can create files")
    })?;
    if path.extension().is_none_or(|extension| extension != "prom") {
        out.warn("node_exporter reads only files whose names end in .prom");
    }
    Ok(())
}
