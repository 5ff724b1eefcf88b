//! `taskqueue web token`

use clap::{Args, Subcommand};
use serde_json::json;

use crate::commands::setup::class_edit::unwritable;
use crate::error::{CliError, DONE, NOT_FOUND};
use crate::output::Out;
use crate::output::listing::{ListKind, ListOptions, Listing};
use crate::output::table::render;
use crate::session::Session;
use taskqueue_domain::limits::scope::Scope;
use taskqueue_engine::config::{
    WebToken, check_token_name, text_to_edit, token_classes, with_token, without_token, write_edited,
};
use taskqueue_views::clock::host_clock;
use taskqueue_views::human::relative;
use taskqueue_views::shell_word::shell_word;
use taskqueue_web::{digest, new_token};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    verb: Option<TokenVerb>,
    #[command(flatten)]
    list: ListOptions,
}

#[derive(Debug, Subcommand)]
enum TokenVerb {
    /// List the tokens: what they may do, and when each was used last on this host
    List(ListOptions),
    /// Add a new token to the configuration, and print it once
    Add(AddArgs),
    /// Remove a token from the configuration
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
struct AddArgs {
    /// Name of the login, as events show it
    name: String,
    /// What the login may do: read, queue, work, operate or admin; each includes those before it
    #[arg(long, value_name = "SCOPE")]
    may: Scope,
    /// Limit the login to this class, a name or a pattern; only for the scopes queue and work; may be given more than once
    #[arg(long, value_name = "CLASS")]
    class: Vec<String>,
    /// Replace a token of this name
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    /// Name of the login
    name: String,
}

const TOKENS: ListKind = ListKind { columns: &["name", "may", "classes", "last_used_on"], ids: &["name"] };

pub(crate) fn run(session: &Session, args: &TokenArgs, out: &mut Out) -> anyhow::Result<u8> {
    match &args.verb {
        None => list(session, &args.list, out),
        Some(TokenVerb::List(options)) => list(session, options, out),
        Some(TokenVerb::Add(args)) => add(session, args, out),
        Some(TokenVerb::Remove(args)) => remove(session, args, out),
    }
}

fn list(session: &Session, options: &ListOptions, out: &mut Out) -> anyhow::Result<u8> {
    let (tokens, uses) = (&session.config.web_tokens, session.token_uses());
    let last_use = |token: &WebToken| uses.as_ref().and_then(|uses| uses.last(&token.sha256));
    let record = |(name, token): (&String, &WebToken)| {
        let classes: Option<Vec<&str>> = token.classes.as_ref().map(|classes| classes.patterns().collect());
        json!({ "name": name, "may": token.may.as_str(), "classes": classes, "last_used_on": last_use(token) })
    };
    let records: Vec<_> = tokens.iter().map(record).collect();
    if let Some(mut listing) = Listing::of(options, &TOKENS, out)? {
        return listing.print(&records, out).map(|()| DONE);
    }
    if out.is_json() {
        out.json(&json!({ "schema": "taskqueue.web-tokens/1", "tokens": records }))?;
    } else if tokens.is_empty() {
        out.data("No tokens. Add one: taskqueue web token add NAME --may read")?;
    } else {
        let row = |(name, token): (&String, &WebToken)| {
            let classes = token.classes.as_ref().map_or_else(|| "all".to_owned(), ToString::to_string);
            let used = last_use(token).map_or_else(|| "not here".to_owned(), |on| relative(on, host_clock()));
            vec![name.as_str().into(), token.may.as_str().into(), classes.into(), used.into()]
        };
        out.data(render(out, &["NAME", "MAY", "CLASSES", "LAST USED"], tokens.iter().map(row).collect(), &[]))?;
    }
    Ok(DONE)
}

fn add(session: &Session, args: &AddArgs, out: &mut Out) -> anyhow::Result<u8> {
    check_token_name(&args.name).map_err(|why| CliError::usage(format!("\"{}\": {why}", args.name)))?;
    let path = &session.config.path;
    if session.config.web_tokens.contains_key(&args.name) && !args.force {
        return Err(CliError::failed(format!("there is a token of {} already, in {}", args.name, path.display()))
            .with_hint("--force replaces it; the old one is then invalid")
            .into());
    }
    let classes = token_classes(args.may, &args.class).map_err(CliError::usage)?;
    let token = new_token()?;
    let entry = WebToken { sha256: digest(&token), may: args.may, classes };
    let edited = with_token(path, &text_to_edit(path)?, &args.name, &entry)?;
    write_edited(path, &edited.text).map_err(|error| unwritable(path, &error))?;
    forget_use(session, &args.name);
    if out.is_json() {
        out.json(
            &json!({ "schema": "taskqueue.web-token/1", "name": args.name, "may": args.may.as_str(), "token": token }),
        )?;
    } else {
        out.say(&format!("this token is shown once; {} has only its digest:", path.display()));
        out.data(token)?;
    }
    Ok(DONE)
}

fn remove(session: &Session, args: &RemoveArgs, out: &mut Out) -> anyhow::Result<u8> {
    let path = &session.config.path;
    let Some(edited) = without_token(path, &text_to_edit(path)?, &args.name)? else {
        out.say(&format!("{} has no token {}", path.display(), shell_word(&args.name)));
        return Ok(NOT_FOUND);
    };
    write_edited(path, &edited.text).map_err(|error| unwritable(path, &error))?;
    forget_use(session, &args.name);
    out.json_if_asked(&json!({ "schema": "taskqueue.web-token/1", "name": args.name, "removed": true }))?;
    out.say(&format!("removed the token of {}", args.name));
    Ok(DONE)
}

/// Removes the note when the former token of this name was used last.
fn forget_use(session: &Session, name: &str) {
    if let (Some(token), Some(uses)) = (session.config.web_tokens.get(name), session.token_uses()) {
        uses.forget(&token.sha256);
    }
}
