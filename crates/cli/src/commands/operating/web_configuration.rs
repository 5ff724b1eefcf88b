//! The configuration of `taskqueue web`: read at its start, and again while requests come.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::output::Out;
use crate::session::{Reloader, Session};
use taskqueue_domain::limits::scope::Scope;
use taskqueue_engine::config::{Config, TrustedProxy};
use taskqueue_engine::{ClassesInUse, own_user_name};
use taskqueue_host::machine::account::uid_of;
use taskqueue_views::shell_word::shell_word;
use taskqueue_web::{
    CurrentConfiguration, Login, Logins, Peer, ProxyUsers, TokenUses, WebConfiguration, digest, proxy_key,
};

/// Returns the configuration in effect. `own` is the token that the terminal shows.
pub(super) fn configuration_of(session: &Session, own: Option<&str>, out: &mut Out) -> CurrentConfiguration {
    let own = own.map(own_login);
    for proxy in session.config.web_users.iter().flat_map(|users| &users.proxies) {
        if let TrustedProxy::User(name) = proxy
            && peer(proxy).is_none()
        {
            out.warn(&format!(
                "trusted_proxies: there is no user {} on this host, so no proxy runs as it",
                shell_word(name)
            ));
        }
    }
    let (first, uses) = (web_configuration(session.configuration(), own.as_ref()), prepared_uses(session, out));
    let file = session.config.exists.then(|| session.config.path.clone());
    if file.as_ref().is_some_and(|path| !path.is_file()) {
        // A pipe is read once.
        return CurrentConfiguration::new(first, Arc::new(|| None), uses);
    }
    let warn = Box::new(out.warning_printer());
    let again = ReadAgain { reloader: session.reloader(), file, own, warn, last_problem: Mutex::default() };
    CurrentConfiguration::new(first, Arc::new(move || again.read()), uses)
}

/// Returns the login of the user who started the server. No login of the configuration can have its name.
fn own_login(token: &str) -> Login {
    let (name, sha256) = (format!("terminal:{}", own_user_name()), digest(token));
    Login { name, may: Scope::Operate, sha256, classes: None, is_configured: false }
}

fn web_configuration((config, classes): (Config, ClassesInUse), own: Option<&Login>) -> WebConfiguration {
    let mut logins = Logins::default();
    for (name, token) in config.web_tokens {
        let (may, sha256, classes) = (token.may, token.sha256, token.classes);
        logins.add(Login { name, may, sha256, classes, is_configured: true });
    }
    let mut proxy_users = ProxyUsers::default();
    if let Some(users) = config.web_users {
        for (name, user) in users.by_name {
            let (may, sha256, classes) = (user.may, proxy_key(&name), user.classes);
            logins.add(Login { name, may, sha256, classes, is_configured: false });
        }
        proxy_users = ProxyUsers { header: users.header, proxies: users.proxies.iter().filter_map(peer).collect() };
    }
    own.into_iter().for_each(|login| logins.add(login.clone()));
    WebConfiguration { logins, proxy_users, hidden_data: config.web_hidden_data, classes }
}

/// Returns whom the server sees when this proxy connects; `None` for a user whom this host does not know.
fn peer(proxy: &TrustedProxy) -> Option<Peer> {
    match proxy {
        TrustedProxy::Address(address) => Some(Peer::Address(*address)),
        TrustedProxy::User(name) => uid_of(name).map(Peer::User),
    }
}

/// Returns where the uses of tokens are noted; `None` with a warning if they cannot be.
fn prepared_uses(session: &Session, out: &mut Out) -> Option<TokenUses> {
    let uses = session.token_uses()?;
    if let Err(error) = uses.prepare() {
        out.warn(&format!("`taskqueue web token` will not show when a token was used last: {error}"));
        return None;
    }
    Some(uses)
}

/// Reads the configuration again.
struct ReadAgain {
    reloader: Reloader,
    /// The file at the start, if there was one.
    file: Option<PathBuf>,
    own: Option<Login>,
    warn: Box<dyn Fn(&str) + Send + Sync>,
    /// The problem of the last reading, which is printed once.
    last_problem: Mutex<Option<String>>,
}

impl ReadAgain {
    fn read(&self) -> Option<WebConfiguration> {
        let read = self.checked();
        self.print_new_problem(read.as_ref().err());
        read.ok().map(|read| web_configuration(read, self.own.as_ref()))
    }

    /// An editor may replace the file, or write it in place: without it, nothing would be hidden.
    fn checked(&self) -> Result<(Config, ClassesInUse), String> {
        let (config, classes) = self.reloader.configuration().map_err(|error| error.to_string())?;
        match &self.file {
            Some(file) if !config.exists || config.path != *file => Err(format!("{} is missing", file.display())),
            Some(file) if file.metadata().is_ok_and(|found| found.len() == 0) => {
                Err(format!("{} is empty", file.display()))
            }
            _ => Ok((config, classes)),
        }
    }

    fn print_new_problem(&self, problem: Option<&String>) {
        let mut last = self.last_problem.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(problem) = problem.filter(|problem| last.as_ref() != Some(problem)) {
            (self.warn)(&format!("the new configuration was not applied, the old one remains: {problem}"));
        }
        *last = problem.cloned();
    }
}
