//! Parsers for files and addresses: the configuration, the spool, the address of the database.

use std::path::Path;

use super::text;
use taskqueue_engine::config::file::from_text;
use taskqueue_engine::outbox::outcomes::Outcome;
use taskqueue_host::files::spool::{records_of, whole_lines};
use taskqueue_store::DatabaseUrl;

/// The configuration: accepted input can be executed, and an error message has one line.
pub fn config(input: &[u8]) {
    match from_text(Path::new("taskqueue.toml"), text(input)) {
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        Ok(config) => {
            for class in config.classes.by_name() {
                assert!(class.command.argv.first().is_some_and(|program| program.starts_with('/')));
                assert!(class.timeout.is_none_or(|timeout| timeout.as_secs() >= 1));
                if let Ok(name) = class.name.parse() {
                    let found = config.classes.find(&name).map(|found| &found.name);
                    assert_eq!(found, Some(&class.name), "a name finds its own class");
                }
            }
        }
    }
}

/// Addresses: a password in them is never shown, whatever surrounds it. The two parts of the input become the user and what
/// follows the host.
pub fn database_url(input: &[u8]) {
    const SECRET: &str = "s3cr3t";
    let text = text(input);
    shown(text);
    let (user, rest) = text.split_once('\0').unwrap_or(("u", text));
    let user: String = user.chars().filter(|c| c.is_alphanumeric()).collect();
    let name: String = rest.chars().filter(|c| c.is_alphanumeric()).collect();
    if [rest, &user, &name].iter().any(|part| part.contains(SECRET)) {
        return;
    }
    for scheme in ["postgres", "mysql", "mariadb"] {
        let address = format!("{scheme}://{user}:{SECRET}@host/{rest}");
        assert!(!shown(&address).contains(SECRET), "{}", shown(&address));
        if let Ok(url) = DatabaseUrl::parse(&address) {
            let message = url.without_secrets(&format!("cannot connect to {address} with {SECRET}"));
            assert!(!message.contains(SECRET), "{message}");
        }
    }
    for address in [
        format!("postgres://{user}@host/d?{name}=1&password={SECRET}"),
        format!("postgres://{user}@host/{rest}?password={SECRET}"),
        format!("postgres://{user}@host/{rest}?scram_client_key={SECRET}"),
        format!("postgres://{user}:{name}@{SECRET}@host/{rest}"),
    ] {
        // A path with a `?` makes the rest the value of another name.
        if !rest.contains('?') {
            assert!(!shown(&address).contains(SECRET), "{}", shown(&address));
        }
    }
}

/// Returns everything that is ever shown of an address, or its error.
fn shown(address: &str) -> String {
    match DatabaseUrl::parse(address) {
        Ok(url) => format!("{url} {url:?}"),
        Err(error) => format!("{error} {error:?}"),
    }
}

/// A spool file: wherever its writer died, all complete records are read, and nothing else.
pub fn spool(input: &[u8]) {
    let whole = records_of(whole_lines(input));
    let cut = records_of(whole_lines(&input[..input.len() / 2]));
    assert!(cut.len() <= whole.len());
    assert_eq!(cut, whole[..cut.len()]);
    assert!(whole.iter().all(|record| !record.contains('\n')));
    let mut longer = whole_lines(input).to_vec();
    longer.extend_from_slice(b"{\"next\":1}\nhalf");
    let mut expected = whole;
    expected.push("{\"next\":1}".to_owned());
    assert_eq!(records_of(whole_lines(&longer)), expected);
    expected.iter().for_each(|record| outcome(record.as_bytes()));
}

/// An outcome in the spool: writing it again gives what was read.
pub fn outcome(input: &[u8]) {
    let Ok(outcome) = serde_json::from_str::<Outcome>(text(input)) else { return };
    let written = serde_json::to_string(&outcome).expect("JSON");
    assert!(!written.contains('\n'), "a record is a line");
    let again: Outcome = serde_json::from_str(&written).expect("what we wrote");
    assert_eq!(serde_json::to_string(&again).expect("JSON"), written);
}
