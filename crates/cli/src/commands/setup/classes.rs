//! `taskqueue class`

use std::path::Path;

use clap::{Args, Subcommand};

use crate::commands::options::reason::ReasonArgs;
use crate::commands::setup::class_edit::{self, AddArgs, RemoveArgs};
use crate::commands::setup::class_test::{self, TestArgs};
use crate::error::{CONFIG, DONE, NOT_FOUND};
use crate::output::Out;
use crate::output::listing::{ListKind, ListOptions, Listing, print_for_programs};
use crate::output::table::{Field, Tone, render};
use crate::session::Session;
use taskqueue_engine::change::classes::{self, ClassState};
use taskqueue_views::human;

/// List, configure and test task classes, and end their holds
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue class\n  taskqueue class add mail.send --timeout 5m -- /usr/local/bin/send-mail\n  taskqueue class test mail.send '{\"to\":\"ann\"}'\n  taskqueue class check\n  taskqueue class release mail.send"
)]
pub(crate) struct ClassesArgs {
    #[command(subcommand)]
    action: Option<ClassesVerb>,
    #[command(flatten)]
    list: ListOptions,
}

const CLASSES: ListKind = ListKind {
    columns: &["name", "kind", "timeout_secs", "problem", "missing_script", "holds", "argv"],
    ids: &["name"],
};

#[derive(Debug, Subcommand)]
enum ClassesVerb {
    /// List all classes that are configured, are built in or have tasks
    List(ListOptions),
    /// Check the program of each class
    ///
    /// It must exist, be executable, and not be writable by every user. If one is not, the exit status is 78.
    Check(ListOptions),
    /// Add a class to the configuration; its comments and other keys stay
    Add(AddArgs),
    /// Remove a class from the configuration
    Remove(RemoveArgs),
    /// Run the handler of a class once, without a store
    ///
    /// Prints its output, and the outcome that a runner would record. Records nothing.
    Test(TestArgs),
    /// End the hold on a class at once, on every host
    Release {
        /// Task class
        class: String,
        #[command(flatten)]
        reason: ReasonArgs,
    },
}

pub(crate) fn run(session: Session, args: &ClassesArgs, out: &mut Out) -> anyhow::Result<u8> {
    if !matches!(args.action, None | Some(ClassesVerb::List(_) | ClassesVerb::Check(_))) {
        args.list.refuse_without_list()?;
    }
    match &args.action {
        Some(ClassesVerb::Add(args)) => return class_edit::add(&session, args, out),
        Some(ClassesVerb::Remove(args)) => return class_edit::remove(&session, args, out),
        Some(ClassesVerb::Test(args)) => return class_test::run(session, args, out),
        _ => {}
    }
    let (path, exists) = (session.config.path.clone(), session.config.exists);
    if let Some(ClassesVerb::Release { class, reason }) = &args.action {
        let mut ctx = session.open()?;
        let is_released = ctx.because(reason.text(), |ctx| classes::release(ctx, class))? > 0;
        out.json_if_asked(&serde_json::json!({ "class": class, "released": is_released }))?;
        out.say(&format!("class \"{class}\" {}", if is_released { "is released" } else { "was not held" }));
        return Ok(if is_released { DONE } else { NOT_FOUND });
    }
    let options = match &args.action {
        Some(ClassesVerb::List(options) | ClassesVerb::Check(options)) => options.or(&args.list),
        _ => &args.list,
    };
    let listing = Listing::of(options, &CLASSES, out)?;
    // The configured classes are listed even before the store exists.
    let mut ctx = if session.is_file_missing() { session.open_empty()? } else { session.open_to_read(out)? };
    let all = classes::list(&mut ctx)?;
    let is_check = matches!(args.action, Some(ClassesVerb::Check(_)));
    let has_problem = all.iter().any(|class| class.problem.is_some());
    if !print_for_programs(listing, &all, out)? {
        let rows = all.iter().map(row).collect();
        out.data(render(out, &["CLASS", "KIND", "TIMEOUT", "STATE", "PROGRAM"], rows, &[2, 1]))?;
        if !is_check {
            tell_where(&path, exists, out);
        }
    }
    Ok(if is_check && has_problem { CONFIG } else { DONE })
}

/// Prints where classes are configured; unasked only if there are none yet.
fn tell_where(path: &Path, exists: bool, out: &mut Out) {
    let path = path.display();
    if exists {
        out.say_verbose(&format!("configured in {path}"));
    } else {
        out.say(&format!("no class is configured; `taskqueue class add CLASS -- PROGRAM` writes {path}"));
    }
}

fn row(class: &ClassState) -> Vec<Field> {
    let state = match (&class.problem, class.holds.first(), &class.missing_script) {
        (Some(problem), ..) => Field::toned(problem.as_str(), Tone::Bad),
        (None, Some(hold), _) => Field::toned(
            format!("held on {} until {}: {}", hold.host, human::instant(hold.held_until), hold.reason),
            Tone::Waiting,
        ),
        (None, None, Some(script)) => Field::toned(format!("{} does not exist", script.display()), Tone::Waiting),
        (None, None, None) => Field::toned("ok", Tone::Good),
    };
    let timeout = class.timeout_secs.map_or_else(|| "default".to_owned(), |secs| format!("{secs}s"));
    vec![class.name.as_str().into(), class.kind.into(), timeout.into(), state, class.argv.join(" ").into()]
}
