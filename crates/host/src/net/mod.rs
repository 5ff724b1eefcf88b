//! Sockets, waits for descriptors, and the server of the metrics endpoint.

pub mod direct;
pub mod http;
pub mod listener;
pub mod patience;
pub mod sockets;
pub mod waker;
