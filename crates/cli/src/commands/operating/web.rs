//! `taskqueue web`

use std::path::PathBuf;
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
use taskqueue_host::machine::own_memory;
use taskqueue_host::net::listener::SocketListener;
use taskqueue_web::{Certificate, Https, WebOptions, new_token, serve};

/// Serve the queue as web pages, and its commands over HTTP
///
/// Accepts connections from this host only, unless you pass --listen. On a terminal, prints a token to log in with, which is valid
/// until the server ends. Other people and programs log in with tokens of their own: see `taskqueue web token`. `GET /api/v1`
/// lists the addresses of all pages and of the HTTP interface. If systemd passes a socket (socket activation), it is used instead of --listen.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  taskqueue web\n  taskqueue web --behind-proxy --host queue.example.org\n  taskqueue web --host tq.example.org --tls-cert cert.pem --tls-key key.pem\n  taskqueue web token add ann --may operate",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct WebArgs {
    #[command(subcommand)]
    verb: Option<WebVerb>,
    /// Listen here: 127.0.0.1:8321, or unix:/run/taskqueue/web.sock
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8321")]
    listen: ListenAddress,
    /// Also accept requests for this host name; append its port if that is neither the default one nor that of --listen; may be given
    /// more than once
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// A proxy on this host or in a trusted network provides HTTPS
    #[arg(long, requires = "host")]
    behind_proxy: bool,
    /// Serve HTTPS with this PEM file: the certificate, then its issuers; read again when it changes
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "host"], conflicts_with = "behind_proxy")]
    tls_cert: Option<PathBuf>,
    /// The private key of --tls-cert, in PEM, without a passphrase
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Limit the requests of each login: COUNT within TIME
    #[arg(long, value_name = "COUNT/TIME", default_value = "1000/1s")]
    rate: Rate,
    /// Refuse every change, whatever a login may do
    #[arg(long)]
    read_only: bool,
}

#[derive(Debug, Subcommand)]
enum WebVerb {
    /// Manage the tokens of people and programs that may log in
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
    let https = https_of(args, &listen, out)?;
    let own = if out.has_messages_on_terminal() { Some(new_token()?) } else { None };
    let configuration = configuration_of(&session, own.as_deref(), out);
    if !configuration.has_logins() {
        return Err(CliError::usage(
            "no login is possible: the configuration has no token, and one is printed only on a terminal",
        )
        .with_hint("`taskqueue web token add ann --may operate` adds one; then start `taskqueue web` again")
        .into());
    }
    own_memory::keep_little();
    let stop = Arc::new(session.stop_at_once()?);
    let context = if args.read_only { session.open_to_follow(out)? } else { session.open_to_serve(out)? };
    let options = WebOptions {
        listen: listen.clone(),
        hosts: args.host.clone(),
        https,
        is_read_only: args.read_only,
        rate: args.rate,
    };
    let mut ready = |address: &ListenAddress| {
        let place = match address {
            ListenAddress::Internet(address) => match (&args.tls_cert, args.host.first()) {
                (Some(_), Some(name)) if address.port() == 443 || has_port(name) => format!("https://{name}/"),
                (Some(_), Some(name)) => format!("https://{name}:{}/", address.port()),
                _ => format!("http://{address}/"),
            },
            ListenAddress::File(_) => address.to_string(),
        };
        out.say(&format!("the page is at {place}; Ctrl-C stops it"));
        if let Some(token) = &own {
            out.say(&format!("log in with this token, valid until the server ends: {token}"));
        }
    };
    serve(context, options, configuration, passed, stop, &mut ready)
        .with_context(|| format!("cannot serve at {listen}"))
        .map_err(|error| CliError::failed(format!("{error:#}")).with_hint("taskqueue web --listen 127.0.0.1:0"))?;
    Ok(DONE)
}

/// Returns true for `queue.example.org:8321`.
fn has_port(name: &str) -> bool {
    name.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns how HTTPS is provided. Without it, an address that other hosts can reach is refused.
fn https_of(args: &WebArgs, listen: &ListenAddress, out: &Out) -> Result<Https, CliError> {
    let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) else {
        return match (args.behind_proxy, listen.is_open()) {
            (true, _) => Ok(Https::Proxy),
            (false, false) => Ok(Https::Off),
            (false, true) => Err(CliError::usage(format!("{listen} can be reached from other hosts; HTTPS is required"))
                .with_hint("--host NAME --tls-cert FILE --tls-key FILE serves HTTPS; --behind-proxy --host NAME leaves it to a proxy")),
        };
    };
    if matches!(listen, ListenAddress::File(_)) {
        return Err(CliError::usage(format!("{listen} is for a proxy on this host, which provides HTTPS"))
            .with_hint("--behind-proxy instead of --tls-cert and --tls-key"));
    }
    let certificate = Certificate::read(certificate, key, Box::new(out.warning_printer()))
        .map_err(|problem| CliError::configuration(problem).with_hint("taskqueue web --help"))?;
    Ok(Https::Server(Arc::new(certificate)))
}
