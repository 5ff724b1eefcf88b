//! Connections, and what every request passes: time limits, TLS, the name of the host, the login.

pub(crate) mod address;
pub(crate) mod body_limit;
pub(crate) mod connections;
pub(crate) mod encoding;
pub(crate) mod guard;
pub(crate) mod https;
pub(crate) mod problem;
pub(crate) mod serve;
