//! How many peers a role lets in.

use std::collections::HashMap;
use std::ffi::c_int;

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::{Shutdown, SockaddrIn, SockaddrIn6, SockaddrStorage, getpeername, getsockname, shutdown};

/// Descriptors that connections leave to the rest of the process: its captures have to go on.
const KEPT_BACK: u64 = 64;

/// The places that peers may take, a connection each.
///
/// Descriptors are given out from the lowest number up, so that the number of a new one tells how many there are left.
#[derive(Debug, Default)]
pub struct Places {
    limit: Option<usize>,
    by_host: Option<usize>,
    /// By descriptor, and where the peer is, where that can be said.
    taken: HashMap<c_int, Option<String>>,
    turned_away: u64,
}

impl Places {
    /// So many at most, and of one host, and never the last descriptors of the process.
    pub fn new(limit: Option<usize>, by_host: Option<usize>) -> Self {
        Self { limit, by_host, ..Self::default() }
    }

    /// Whether a host has as many as it may have.
    fn is_full(&self, host: &str, limit: usize) -> bool {
        let hosts = self.taken.values().flatten().map(|address| host_of(address));
        hosts.filter(|other| *other == host).count() >= limit
    }

    /// How many peers there was no place for.
    pub(super) fn turned_away(&self) -> u64 {
        self.turned_away
    }

    /// Gives a connection its place, or ends it and says why there is none.
    pub(super) fn take(&mut self, connection: c_int, endpoint: &str) -> Option<String> {
        let address = address(connection);
        let reason = match (self.limit, self.by_host.zip(address.as_deref().map(host_of))) {
            (Some(limit), _) if self.taken.len() >= limit => {
                format!("the limit of {limit} connections, max_connections, is reached")
            }
            (_, Some((limit, host))) if self.is_full(host, limit) => {
                format!("the limit of {limit} connections of one host, max_connections_per_host, is reached")
            }
            _ => match last_place() {
                Some(last) if u64::try_from(connection).is_ok_and(|number| number > last) => {
                    format!("the process may have {} open files and needs the last of them itself", last + KEPT_BACK)
                }
                _ => {
                    self.taken.insert(connection, address);
                    return None;
                }
            },
        };
        self.turned_away += 1;
        turn_away(connection, endpoint);
        Some(reason)
    }

    /// Where the peer is who has a place.
    pub(super) fn address(&self, connection: c_int) -> Option<String> {
        self.taken.get(&connection).cloned().flatten()
    }

    /// Takes a place back, and says whose it was.
    pub(super) fn leave(&mut self, connection: c_int) -> Option<String> {
        self.taken.remove(&connection).flatten()
    }
}

/// The host of an address, as libzmq writes it.
pub(super) fn host_of(address: &str) -> &str {
    let host = address.trim_start_matches("tcp://").rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']'])
}

/// The highest number that a descriptor of a connection may have.
fn last_place() -> Option<u64> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    // Where there are few, a quarter of them is enough.
    Some(limit - KEPT_BACK.min(limit / 4))
}

/// Where a peer dialled from. One that is gone again has none, nor has one on this machine's file system.
pub(super) fn address(connection: c_int) -> Option<String> {
    let name = getpeername::<SockaddrStorage>(connection).ok()?;
    let four = name.as_sockaddr_in().map(|name| format!("tcp://{name}"));
    four.or_else(|| name.as_sockaddr_in6().map(|name| format!("tcp://{name}")))
}

/// Hangs up. libzmq, whose connection it is, sees its peer do so and closes it.
fn turn_away(connection: c_int, endpoint: &str) {
    let Ok(name) = getsockname::<SockaddrStorage>(connection) else { return };
    // The number may be another's by now: only what listens here is hung up on.
    let port = name.as_sockaddr_in().map(SockaddrIn::port).or_else(|| name.as_sockaddr_in6().map(SockaddrIn6::port));
    let is_ours = port.map_or_else(
        || endpoint.starts_with("ipc:") && name.as_unix_addr().is_some(),
        |port| endpoint.rsplit_once(':').is_some_and(|(_, bound)| bound == port.to_string()),
    );
    if is_ours {
        // A peer that is gone already is turned away as well.
        let _ = shutdown(connection, Shutdown::Both);
    }
}
