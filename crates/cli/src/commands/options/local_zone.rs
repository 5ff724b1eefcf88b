//! The time zone of the person at the keyboard, by its name.

use taskqueue_domain::time::time_zone::Zone;

/// Returns the zone in TZ, else the zone of this machine; `None` if it has no name that taskqueue knows.
#[expect(clippy::disallowed_methods, reason = "the convention of every program that prints times, not configuration")]
pub(crate) fn local_zone() -> Option<String> {
    let variable = std::env::var("TZ").ok().filter(|name| !name.is_empty());
    let name = match variable {
        Some(name) => name.trim_start_matches(':').to_owned(),
        None => iana_time_zone::get_timezone().ok()?,
    };
    // The usual name of a server's zone.
    let name = if name == "Etc/UTC" { "UTC" } else { &name };
    Zone::named(name).map(|zone| zone.name().to_owned())
}
