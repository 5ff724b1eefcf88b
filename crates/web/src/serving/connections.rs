//! How many connections are served at the same time, in all and of one client.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::logins::proxy_users::Peer;
use crate::logins::shares::{Part, Shares};

/// How many connections are served at the same time; further ones wait.
pub(crate) const CONNECTIONS: usize = 1_000;
/// How many of them one client may have; further ones are closed. Larger than the number of streams of a login, so that a login
/// with too many gets an answer.
const CONNECTIONS_OF_CLIENT: usize = 900;

/// The connections that are served.
pub(crate) struct Connections {
    free: Arc<Semaphore>,
    of_clients: Shares<Peer>,
}

impl Connections {
    pub(crate) fn new() -> Self {
        Self { free: Arc::new(Semaphore::new(CONNECTIONS)), of_clients: Shares::of_size(CONNECTIONS_OF_CLIENT) }
    }

    /// Waits until a connection can be served.
    pub(crate) async fn place(&self) -> io::Result<OwnedSemaphorePermit> {
        Arc::clone(&self.free).acquire_owned().await.map_err(io::Error::other)
    }

    /// Gives the place to this client. Returns `None` if it has its share.
    pub(crate) fn of_client(&self, free: OwnedSemaphorePermit, peer: Peer) -> Option<Place> {
        Some(Place { _share: self.of_clients.take(&client(peer))?, _free: free })
    }
}

/// The place of one connection, until it is dropped.
pub(crate) struct Place {
    _share: Part<Peer>,
    _free: OwnedSemaphorePermit,
}

/// Returns the client that can have this address: with IPv6 it has a whole network of 64 bits.
fn client(peer: Peer) -> Peer {
    match peer {
        Peer::Address(IpAddr::V6(address)) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            Peer::Address(IpAddr::V6(Ipv6Addr::from_bits(network)))
        }
        Peer::Address(IpAddr::V4(_)) | Peer::User(_) => peer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_one_ipv6_network_are_one_client() {
        let client_at = |address: &str| client(Peer::Address(address.parse().expect("an address")));
        assert_eq!(client_at("2001:db8::1"), client_at("2001:db8::2:3"));
        assert_ne!(client_at("2001:db8::1"), client_at("2001:db8:0:1::1"));
        assert_ne!(client_at("192.0.2.1"), client_at("192.0.2.2"));
    }
}
