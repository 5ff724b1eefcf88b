//! Details of a connection that the client library of PostgreSQL has but Diesel does not pass on. These are the SQLSTATE of a
//! refusal, whose message is in the language of the server, and which server process answers.

use std::ffi::{CStr, CString};

use pq_sys::{
    ConnStatusType, PGVerbosity, PGconn, PQbackendPID, PQclear, PQconnectStart, PQerrorMessage, PQexec, PQfinish,
    PQgetvalue, PQntuples, PQreset, PQsetErrorVerbosity, PQstatus,
};

use crate::address::url::DatabaseUrl;
use crate::error::ConnectFailure;

/// Connects once more, and returns the meaning of the server's code.
pub(crate) fn ask(url: &DatabaseUrl) -> ConnectFailure {
    let Ok(address) = CString::new(url.address()) else { return ConnectFailure::Other };
    let attempt = ConnectAttempt::of(&address);
    attempt.map_or(ConnectFailure::Other, |attempt| attempt.failure())
}

/// Connects once more, and returns true if another process answers than the one that accepted the connection. A pooler reports a
/// made-up process.
///
/// # Errors
/// The message of the client library, if the connection fails.
pub(crate) fn is_pooled(url: &DatabaseUrl) -> Result<bool, String> {
    let address = CString::new(url.address()).map_err(|error| error.to_string())?;
    let attempt = ConnectAttempt::of(&address).ok_or("out of memory")?;
    attempt.is_pooled()
}

/// A separate connection. Closed when it is dropped.
struct ConnectAttempt(*mut PGconn);

#[expect(unsafe_code, reason = "Diesel cannot set how much a message of the server says")]
impl ConnectAttempt {
    fn of(address: &CStr) -> Option<Self> {
        // SAFETY: the address ends with a NUL and outlives the call. The result is null only if memory is exhausted.
        let conn = unsafe { PQconnectStart(address.as_ptr()) };
        if conn.is_null() {
            return None;
        }
        // SAFETY: the connection is not null and not shared. Nothing has been read from the server yet; `PQreset` connects again
        // with this verbosity and waits until that ends.
        unsafe {
            PQsetErrorVerbosity(conn, PGVerbosity::PQERRORS_SQLSTATE);
            PQreset(conn);
        }
        Some(Self(conn))
    }

    fn failure(&self) -> ConnectFailure {
        // SAFETY: the connection is not null, and the message, which ends with a NUL, is valid until the next call.
        let (status, message) = unsafe { (PQstatus(self.0), CStr::from_ptr(PQerrorMessage(self.0))) };
        if status == ConnStatusType::CONNECTION_OK {
            // The server accepts connections again.
            return ConnectFailure::NotReady;
        }
        by_code(&message.to_string_lossy())
    }

    fn is_pooled(&self) -> Result<bool, String> {
        // SAFETY: the connection is not null. The result is null or valid until it is cleared, and has a value if it has a row.
        // The messages end with a NUL, and are valid until the next call.
        unsafe {
            let result = PQexec(self.0, c"SELECT pg_backend_pid()".as_ptr());
            let answer = (PQntuples(result) == 1)
                .then(|| CStr::from_ptr(PQgetvalue(result, 0, 0)).to_string_lossy().into_owned());
            PQclear(result);
            match answer {
                Some(pid) => Ok(pid != PQbackendPID(self.0).to_string()),
                None => Err(CStr::from_ptr(PQerrorMessage(self.0)).to_string_lossy().into_owned()),
            }
        }
    }
}

#[expect(unsafe_code, reason = "the client library frees its own memory")]
impl Drop for ConnectAttempt {
    fn drop(&mut self) {
        // SAFETY: the connection is not null, and is not used after this.
        unsafe { PQfinish(self.0) }
    }
}

/// Classifies by the code, which ends the line of the host that sent it: `… failed: FATAL:  53300`.
fn by_code(message: &str) -> ConnectFailure {
    let has_code =
        |codes: &[&str]| message.lines().any(|line| codes.iter().any(|code| line.trim_end().ends_with(code)));
    if has_code(&[":  53300"]) {
        ConnectFailure::TooMany
    } else if has_code(&[":  57P01", ":  57P02", ":  57P03"]) {
        ConnectFailure::NotReady
    } else {
        ConnectFailure::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_read_whatever_the_language_of_the_server() {
        let failed = r#"connection to server at "127.0.0.1", port 5432 failed: "#;
        assert_eq!(by_code(&format!("{failed}ФАТАЛЬНО:  53300\n")), ConnectFailure::TooMany);
        assert_eq!(by_code(&format!("{failed}FATAL:  57P03\n{failed}FATAL:  28P01\n")), ConnectFailure::NotReady);
        assert_eq!(by_code(&format!("{failed}FATAL:  28P01\n")), ConnectFailure::Other);
    }
}
