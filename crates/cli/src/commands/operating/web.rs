//! `taskqueue web`

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::error::{CliError, DONE, NOT_FOUND};
use crate::output::Out;
use crate::output::listing::{ListKind, ListOptions, Listing};
use crate::output::table::render;
use crate::session::Session;
use taskqueue_domain::limits::scope::Scope;
use taskqueue_domain::monitoring::listen_address::ListenAddress;
use taskqueue_engine::StopSignals;
use taskqueue_engine::config::{WebToken, check_token_name, text_to_edit, with_token, without_token, write_edited};
use taskqueue_views::shell_word::shell_word;
use taskqueue_web::{Login, Logins, WebOptions, digest, new_token, serve};

/// Serve a page to look at the queue, and its verbs over HTTP
///
/// Listens on this host alone unless --listen says otherwise. In a terminal, prints a token to log in with, which is valid until the
/// server ends. Other people and programs log in with tokens of their own: see `taskqueue web token`. `GET /api/v1`
/// lists the addresses of the HTTP interface.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue web\n  taskqueue web --behind-proxy --host queue.example.org\n  taskqueue web token add ann --may operate",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct WebArgs {
    #[command(subcommand)]
    verb: Option<WebVerb>,
    /// Listen here: 127.0.0.1:8321, or unix:/run/taskqueue/web.sock
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8321")]
    listen: ListenAddress,
    /// Also answer to this name, with its port unless that is the usual one: queue.example.org; may be given more than once
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// A proxy on this host or in a trusted network speaks HTTPS with the browsers; needed to listen beyond this host
    #[arg(long, requires = "host")]
    behind_proxy: bool,
    /// Refuse every change, whatever a login may do
    #[arg(long)]
    read_only: bool,
}

#[derive(Debug, Subcommand)]
enum WebVerb {
    /// Manage who may log in
    Token(TokenArgs),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
struct TokenArgs {
    #[command(subcommand)]
    verb: Option<TokenVerb>,
    #[command(flatten)]
    list: ListOptions,
}

#[derive(Debug, Subcommand)]
enum TokenVerb {
    /// List the names of the tokens, and what they may do
    List(ListOptions),
    /// Write a new token into the configuration, and print it once
    Add(AddArgs),
    /// Remove a token from the configuration
    Remove(RemoveArgs),
}

#[derive(Debug, Args)]
struct AddArgs {
    /// Whose token it is; events show it
    name: String,
    /// What it may do, each including the ones before: read, queue, work, operate, admin
    #[arg(long, value_name = "SCOPE")]
    may: Scope,
    /// Replace a token of this name
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
struct RemoveArgs {
    /// Whose token it is
    name: String,
}

const TOKENS: ListKind = ListKind { columns: &["name", "may"], ids: &["name"] };

pub(crate) fn run(session: Session, args: &WebArgs, out: &mut Out) -> anyhow::Result<u8> {
    match &args.verb {
        None => start(session, args, out),
        Some(WebVerb::Token(token)) => match &token.verb {
            None => list(&session, &token.list, out),
            Some(TokenVerb::List(options)) => list(&session, options, out),
            Some(TokenVerb::Add(args)) => add(&session, args, out),
            Some(TokenVerb::Remove(args)) => remove(&session, args, out),
        },
    }
}

fn start(session: Session, args: &WebArgs, out: &mut Out) -> anyhow::Result<u8> {
    if args.listen.is_open() && !args.behind_proxy {
        return Err(CliError::usage(format!("{} can be reached from other hosts, and this server has no HTTPS", args.listen))
            .with_hint("taskqueue web --listen 127.0.0.1:8321, with a proxy before it; --behind-proxy --host NAME allows other addresses")
            .into());
    }
    let mut logins = Logins::default();
    for (name, token) in &session.config.web_tokens {
        logins.add(token.sha256.clone(), Login { name: name.clone(), may: token.may });
    }
    let own = if out.has_messages_on_terminal() { Some(new_token()?) } else { None };
    if let Some(token) = &own {
        logins.add(digest(token), Login { name: taskqueue_engine::own_user_name(), may: Scope::Operate });
    }
    if logins.is_empty() {
        return Err(CliError::usage(
            "no login is possible: the configuration has no token, and this is no terminal to show one",
        )
        .with_hint("taskqueue web token add ann --may operate")
        .into());
    }
    let stop = Arc::new(StopSignals::install()?);
    session.end_statements_on(&stop, std::time::Duration::ZERO);
    let context = session.open_to_follow(out)?;
    let options = WebOptions {
        listen: args.listen.clone(),
        hosts: args.host.clone(),
        is_behind_proxy: args.behind_proxy,
        is_read_only: args.read_only,
        logins,
    };
    let mut ready = |address: &ListenAddress| {
        let place = match address {
            ListenAddress::Internet(address) => format!("http://{address}/"),
            ListenAddress::File(_) => address.to_string(),
        };
        out.say(&format!("the page is at {place}; Ctrl-C stops it"));
        if let Some(token) = &own {
            out.say(&format!("log in with this token, valid until then: {token}"));
        }
    };
    serve(context, options, stop, &mut ready)
        .with_context(|| format!("cannot serve at {}", args.listen))
        .map_err(|error| CliError::failed(format!("{error:#}")).with_hint("taskqueue web --listen 127.0.0.1:0"))?;
    Ok(DONE)
}

fn list(session: &Session, options: &ListOptions, out: &mut Out) -> anyhow::Result<u8> {
    let tokens = &session.config.web_tokens;
    let records: Vec<_> =
        tokens.iter().map(|(name, token)| json!({ "name": name, "may": token.may.as_str() })).collect();
    if let Some(mut listing) = Listing::of(options, &TOKENS, out)? {
        return listing.print(&records, out).map(|()| DONE);
    }
    if out.is_json() {
        out.json(&json!({ "schema": "taskqueue.web-tokens/1", "tokens": records }))?;
    } else if tokens.is_empty() {
        out.data("No tokens. Add one: taskqueue web token add NAME --may read")?;
    } else {
        let rows = tokens.iter().map(|(name, token)| vec![name.as_str().into(), token.may.as_str().into()]).collect();
        out.data(render(out, &["NAME", "MAY"], rows, &[]))?;
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
    let token = new_token()?;
    let edited =
        with_token(path, &text_to_edit(path)?, &args.name, &WebToken { sha256: digest(&token), may: args.may })?;
    write_edited(path, &edited.text).map_err(|error| unwritable(path, &error))?;
    if out.is_json() {
        out.json(
            &json!({ "schema": "taskqueue.web-token/1", "name": args.name, "may": args.may.as_str(), "token": token }),
        )?;
    } else {
        out.say(&format!(
            "this token is shown once; {} has only its digest. A server that runs knows it after a restart:",
            path.display()
        ));
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
    if out.is_json() {
        out.json(&json!({ "schema": "taskqueue.web-token/1", "name": args.name, "removed": true }))?;
    } else {
        out.say(&format!("removed the token of {}; a server that runs knows it until it is restarted", args.name));
    }
    Ok(DONE)
}

fn unwritable(path: &Path, error: &std::io::Error) -> CliError {
    CliError::failed(format!("{} cannot be written: {error}", path.display()))
        .with_hint("run this as the user who owns the file, or name another one with --config FILE")
}
