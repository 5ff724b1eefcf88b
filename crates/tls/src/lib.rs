//! OpenSSL, for the clients of servers. With the feature `bundled`, Cargo builds it from source.

/// Must be called before a client of a server uses OpenSSL. Otherwise OpenSSL cleans up when the process exits, and crashes it if a
/// thread that has used it ends at that moment. Its `init` leaves that out. Does nothing without the feature `bundled`.
pub fn init() {
    #[cfg(feature = "bundled")]
    openssl_sys::init();
}
