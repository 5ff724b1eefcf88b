//! `taskqueue man`

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Command, ValueHint};

use crate::error::DONE;
use crate::manual::{page, pages};
use crate::no_page;
use crate::output::Out;
use taskqueue_views::human;

/// Print a manual page, or write all of them
///
/// `man -l -` displays the page. The page of a topic has the text of `help TOPIC`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue man queue | man -l -\n  taskqueue man selections | man -l -\n  taskqueue man --directory ~/man"
)]
pub(crate) struct ManArgs {
    /// Command (queue), command and action (schedule edit), or topic [default: the program itself]
    #[arg(value_name = "COMMAND", conflicts_with = "directory")]
    verb: Vec<String>,
    /// Write all pages to this directory, and create it if it does not exist
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    directory: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs, command: Command, out: &mut Out) -> anyhow::Result<u8> {
    if let Some(directory) = &args.directory {
        return write_all(directory, command, out);
    }
    let Some(found) = page(command.clone(), &args.verb)? else {
        bail!(no_page(&args.verb.join(" "), &command));
    };
    out.json_or(&serde_json::json!({ "page": found.name, "text": found.text }), found.text.trim_end())?;
    Ok(DONE)
}

fn write_all(directory: &Path, command: Command, out: &mut Out) -> anyhow::Result<u8> {
    std::fs::create_dir_all(directory)
        .with_context(|| format!("cannot create the directory {}", directory.display()))?;
    let pages = pages(command)?;
    for page in &pages {
        let path = directory.join(&page.name);
        std::fs::write(&path, &page.text).with_context(|| format!("cannot write {}", path.display()))?;
        out.json_if_asked(&serde_json::json!({ "page": page.name, "file": path.display().to_string() }))?;
    }
    out.say(&format!("wrote {} to {}", human::plural(pages.len(), "page"), directory.display()));
    Ok(DONE)
}
