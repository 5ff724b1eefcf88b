//! The hosts and the mode of TLS that the client library of PostgreSQL uses. It also reads them from the environment (`PGHOST`,
//! `PGHOSTADDR`, `PGSSLMODE`, `PGSERVICE`) and from the service file, which no address shows.

use std::ffi::{CStr, CString};
use std::{iter, ptr};

use pq_sys::{PQconnectStartParams, PQconninfo, PQconninfoFree, PQconninfoOption, PQfinish};

use crate::address::hosts::first_remote;
use crate::address::url::DatabaseUrl;

/// The modes that accept no connection without TLS.
const STRICT_MODES: [&str; 3] = ["require", "verify-ca", "verify-full"];

/// What the client library uses for an address.
#[derive(Default)]
struct Parameters {
    host: String,
    hostaddr: String,
    sslmode: String,
}

/// Returns a host on another machine that the client library may use without TLS.
pub(crate) fn host_without_tls(url: &DatabaseUrl) -> Option<String> {
    let used = Parameters::of(&CString::new(url.address()).ok()?);
    if STRICT_MODES.contains(&used.sslmode.as_str()) { None } else { used.remote_host() }
}

impl Parameters {
    /// Returns the first host that is not this machine. An address in `hostaddr` is used instead of the name at its position.
    fn remote_host(&self) -> Option<String> {
        let names = self.host.split(',');
        let used = if self.hostaddr.is_empty() {
            first_remote(names)
        } else {
            let positions = self.hostaddr.split(',').zip(names.chain(iter::repeat("")));
            first_remote(positions.map(|(address, name)| if address.is_empty() { name } else { address }))
        };
        used.map(str::to_owned)
    }

    fn set(&mut self, name: &[u8], value: String) {
        match name {
            b"host" => self.host = value,
            b"hostaddr" => self.hostaddr = value,
            b"sslmode" => self.sslmode = value,
            _ => {}
        }
    }
}

#[expect(unsafe_code, reason = "Diesel does not pass on what the client library uses")]
impl Parameters {
    /// Asks the client library, without a connection. All parameters are empty if it refuses the address.
    fn of(address: &CStr) -> Self {
        // No server has these attributes: the attempt ends after the parameters were collected, before it uses the network.
        let names = [c"dbname".as_ptr(), c"target_session_attrs".as_ptr(), ptr::null()];
        let values = [address.as_ptr(), c"none".as_ptr(), ptr::null()];
        // SAFETY: both arrays end with a null and have the same length; their texts end with a NUL and outlive the call. The
        // functions accept null, which means that memory is exhausted. The parameters are a copy, and each is freed once.
        unsafe {
            let conn = PQconnectStartParams(names.as_ptr(), values.as_ptr(), 1);
            let options = PQconninfo(conn);
            let found = Self::read(options);
            PQconninfoFree(options);
            PQfinish(conn);
            found
        }
    }

    /// # Safety
    /// `option` is null or the first element of a list of the client library.
    unsafe fn read(mut option: *const PQconninfoOption) -> Self {
        let mut found = Self::default();
        // SAFETY: the list ends with an element without a keyword. Keywords and values are null or end with a NUL.
        unsafe {
            while let Some(PQconninfoOption { keyword, val, .. }) = option.as_ref()
                && !keyword.is_null()
            {
                if !val.is_null() {
                    found.set(CStr::from_ptr(*keyword).to_bytes(), CStr::from_ptr(*val).to_string_lossy().into_owned());
                }
                option = option.add(1);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_library_names_the_hosts_and_the_mode_of_an_address() {
        let used = Parameters::of(c"postgres://u@h1:1,h2:2/d?hostaddr=,192.0.2.1&sslmode=disable");
        assert_eq!((&*used.host, &*used.hostaddr, &*used.sslmode), ("h1,h2", ",192.0.2.1", "disable"));
        let refused = Parameters::of(c"postgres://h/d?service=taskqueue-none");
        assert_eq!(refused.remote_host(), None);
    }

    #[test]
    fn an_address_replaces_the_name_at_its_position() {
        for (host, hostaddr, remote) in [
            ("localhost", "192.0.2.1", Some("192.0.2.1")),
            ("db", "127.0.0.1", None),
            ("db,localhost", ",127.0.0.1", Some("db")),
            ("localhost,db", "127.0.0.1,", Some("db")),
            ("", "::1,192.0.2.1", Some("192.0.2.1")),
            ("/run/postgresql", "", None),
            ("", "", None),
        ] {
            let used = Parameters { host: host.to_owned(), hostaddr: hostaddr.to_owned(), ..Parameters::default() };
            assert_eq!(used.remote_host().as_deref(), remote, "{host} {hostaddr}");
        }
    }
}
