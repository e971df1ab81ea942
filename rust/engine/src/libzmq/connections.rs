//! The connections of libzmq's listening sockets: their admission and the addresses of their peers.

use std::collections::HashMap;
use std::ffi::c_int;
use std::net::IpAddr;

use nix::sys::socket::{Shutdown, SockaddrIn, SockaddrIn6, SockaddrStorage, getpeername, getsockname, shutdown};

use crate::limits::Limits;

/// The connections that were admitted.
#[derive(Debug, Default)]
pub struct Connections {
    limits: Limits,
    /// By descriptor, with the peer's address if it is known.
    admitted: HashMap<c_int, Option<String>>,
}

impl Connections {
    /// Limits of all connections and of those of one host; the last descriptors of the process stay free.
    pub fn new(limit: Option<usize>, by_host: Option<usize>) -> Self {
        Self { limits: Limits::new(limit, by_host), ..Self::default() }
    }

    /// How many connections were refused.
    pub(super) fn turned_away(&self) -> u64 {
        self.limits.turned_away()
    }

    /// Admits a connection, or closes it and gives the reason.
    pub(super) fn admit(&mut self, connection: c_int, endpoint: &str) -> Option<String> {
        let address = address(connection);
        match self.limits.enter(connection, address.as_deref().and_then(host)) {
            Ok(()) => {
                if let Some(before) = self.admitted.insert(connection, address) {
                    // Its end was never announced, and its number was given to another.
                    self.limits.leave(before.as_deref().and_then(host));
                }
                None
            }
            Err(reason) => {
                turn_away(connection, endpoint);
                Some(reason)
            }
        }
    }

    /// The address of a connection's peer.
    pub(super) fn address(&self, connection: c_int) -> Option<String> {
        self.admitted.get(&connection).cloned().flatten()
    }

    /// A connection has ended: gives its peer's address.
    pub(super) fn leave(&mut self, connection: c_int) -> Option<String> {
        let address = self.admitted.remove(&connection)?;
        self.limits.leave(address.as_deref().and_then(host));
        address
    }
}

/// The host of an address, as libzmq writes it.
pub(super) fn host_of(address: &str) -> &str {
    let host = address.trim_start_matches("tcp://").rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']'])
}

fn host(address: &str) -> Option<IpAddr> {
    // An IPv4 host is the same host at a socket of IPv6.
    host_of(address).parse().ok().map(|host: IpAddr| host.to_canonical())
}

/// The address a peer dialled from. None if the peer is gone, or dialled over the file system.
pub(super) fn address(connection: c_int) -> Option<String> {
    let name = getpeername::<SockaddrStorage>(connection).ok()?;
    let four = name.as_sockaddr_in().map(|name| format!("tcp://{name}"));
    four.or_else(|| name.as_sockaddr_in6().map(|name| format!("tcp://{name}")))
}

/// Hangs up. libzmq owns the connection: it sees the peer hang up, and closes.
fn turn_away(connection: c_int, endpoint: &str) {
    let Ok(name) = getsockname::<SockaddrStorage>(connection) else { return };
    // The number may belong to another connection now: hang up only on one accepted at this endpoint.
    let port = name.as_sockaddr_in().map(SockaddrIn::port).or_else(|| name.as_sockaddr_in6().map(SockaddrIn6::port));
    let is_ours = port.map_or_else(
        || endpoint.starts_with("ipc:") && name.as_unix_addr().is_some(),
        |port| endpoint.rsplit_once(':').is_some_and(|(_, bound)| bound == port.to_string()),
    );
    if is_ours {
        // A peer that is already gone counts as refused too.
        let _ = shutdown(connection, Shutdown::Both);
    }
}
