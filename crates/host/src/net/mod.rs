//! Sockets, waits at descriptors, and the requests of a metrics endpoint.

pub mod direct;
pub mod http;
pub mod listener;
pub mod patience;
pub mod sockets;
pub mod waker;
