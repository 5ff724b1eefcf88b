//! Contains no code. With its feature `bundled`, Cargo builds OpenSSL from source, for the bundled clients of servers.
