//! `taskqueue web`

use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::web_configuration::configuration_of;
use super::web_token::{self, TokenArgs};
use crate::error::{CliError, DONE};
use crate::output::Out;
use crate::session::Session;
use taskqueue_domain::limits::limit::Rate;
use taskqueue_domain::monitoring::listen_address::ListenAddress;
use taskqueue_engine::StopSignals;
use taskqueue_host::net::listener::SocketListener;
use taskqueue_web::{WebOptions, new_token, serve};

/// Serve a page to look at the queue, and its verbs over HTTP
///
/// Listens on this host alone unless --listen says otherwise. In a terminal, prints a token to log in with, which is valid until the
/// server ends. Other people and programs log in with tokens of their own: see `taskqueue web token`. `GET /api/v1`
/// lists the addresses of the HTTP interface. A socket that systemd passes (socket activation) is used instead of --listen.
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
    /// Limit the requests of each login: COUNT within TIME
    #[arg(long, value_name = "COUNT/TIME", default_value = "1000/1s")]
    rate: Rate,
    /// Refuse every change, whatever a login may do
    #[arg(long)]
    read_only: bool,
}

#[derive(Debug, Subcommand)]
enum WebVerb {
    /// Manage who may log in
    Token(TokenArgs),
}

pub(crate) fn run(session: Session, args: &WebArgs, out: &mut Out) -> anyhow::Result<u8> {
    match &args.verb {
        None => start(session, args, out),
        Some(WebVerb::Token(args)) => web_token::run(&session, args, out),
    }
}

fn start(session: Session, args: &WebArgs, out: &mut Out) -> anyhow::Result<u8> {
    let passed = SocketListener::inherited()
        .map_err(|error| CliError::failed(format!("the socket of the service manager cannot be used: {error}")))?;
    let (passed, listen) = passed.map_or_else(|| (None, args.listen.clone()), |(socket, at)| (Some(socket), at));
    if listen.is_open() && !args.behind_proxy {
        return Err(CliError::usage(format!("{listen} can be reached from other hosts, and this server has no HTTPS"))
            .with_hint("taskqueue web --listen 127.0.0.1:8321, with a proxy before it; --behind-proxy --host NAME allows other addresses")
            .into());
    }
    let own = if out.has_messages_on_terminal() { Some(new_token()?) } else { None };
    let configuration = configuration_of(&session, own.as_deref(), out);
    if !configuration.has_logins() {
        return Err(CliError::usage(
            "no login is possible: the configuration has no token, and this is no terminal to show one",
        )
        .with_hint("`taskqueue web token add ann --may operate` makes one; then start `taskqueue web` again")
        .into());
    }
    let stop = Arc::new(StopSignals::install()?);
    session.end_statements_on(&stop, std::time::Duration::ZERO);
    let context = session.open_to_follow(out)?;
    let options = WebOptions {
        listen: listen.clone(),
        hosts: args.host.clone(),
        is_behind_proxy: args.behind_proxy,
        is_read_only: args.read_only,
        rate: args.rate,
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
    serve(context, options, configuration, passed, stop, &mut ready)
        .with_context(|| format!("cannot serve at {listen}"))
        .map_err(|error| CliError::failed(format!("{error:#}")).with_hint("taskqueue web --listen 127.0.0.1:0"))?;
    Ok(DONE)
}
