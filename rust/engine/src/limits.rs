//! How many connections a role admits, and how long a silent one is kept, for all transports.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use nix::sys::resource::{Resource, getrlimit};
use trunkline_wire::network;

/// Descriptors that stay free for the rest of the process: its captures must go on.
const KEPT_BACK: u64 = 64;

/// TCP probes an idle peer: a host that lost its power would otherwise keep its routing id forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keepalive {
    /// After this long.
    pub(crate) idle: Duration,
    /// The peer is lost after so many probes without an answer.
    pub(crate) probes: u32,
    /// Between two of them.
    pub(crate) interval: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(30), probes: 3, interval: Duration::from_secs(10) }
    }
}

/// Reports a repeated event once, until it has not happened for a second.
#[derive(Debug, Default)]
pub(crate) struct Repeats(Option<Instant>);

impl Repeats {
    const PAUSE: Duration = Duration::from_secs(1);

    /// It has happened: whether to report it.
    pub(crate) fn is_news(&mut self) -> bool {
        self.0.replace(Instant::now()).is_none_or(|last| last.elapsed() >= Self::PAUSE)
    }
}

/// The limits on the connections of a role.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    connections: Option<usize>,
    by_host: Option<usize>,
    count: usize,
    hosts: HashMap<IpAddr, usize, RandomState>,
    turned_away: u64,
}

impl Limits {
    /// Limits of all connections and of those of one host.
    pub(crate) fn new(connections: Option<usize>, by_host: Option<usize>) -> Self {
        Self { connections, by_host, count: 0, hosts: HashMap::default(), turned_away: 0 }
    }

    /// How many connections were refused.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away
    }

    /// Admits the connection with this descriptor, or gives the reason of the refusal.
    pub(crate) fn enter(&mut self, descriptor: RawFd, host: Option<IpAddr>) -> Result<(), String> {
        let host = host.map(network::host);
        let of_host = host.and_then(|host| self.hosts.get(&host)).copied().unwrap_or_default();
        let reason = match (self.connections, self.by_host, last_descriptor()) {
            (Some(limit), ..) if self.count >= limit => {
                format!("the limit of {limit} connections, max_connections, is reached")
            }
            (_, Some(limit), _) if of_host >= limit => {
                format!("the limit of {limit} connections of one host, max_connections_per_host, is reached")
            }
            (.., Some(last)) if u64::try_from(descriptor).is_ok_and(|number| number > last) => {
                format!("the process may have {} open files and needs the last of them itself", last + KEPT_BACK)
            }
            _ => {
                self.count += 1;
                if let Some(host) = host {
                    *self.hosts.entry(host).or_default() += 1;
                }
                return Ok(());
            }
        };
        self.turned_away += 1;
        Err(reason)
    }

    /// An admitted connection has ended.
    pub(crate) fn leave(&mut self, host: Option<IpAddr>) {
        self.count -= 1;
        let Some(host) = host.map(network::host) else { return };
        if let Some(count) = self.hosts.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                self.hosts.remove(&host);
            }
        }
    }
}

/// The highest number that a descriptor of a connection may have. The system gives out the lowest free number, so the
/// number of a new one shows how many are left.
fn last_descriptor() -> Option<u64> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    // With few descriptors a quarter of them is enough.
    Some(limit - KEPT_BACK.min(limit / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_host_share_its_limit() {
        let mut limits = Limits::new(None, Some(2));
        let address = |last: u8| Some(format!("fd00:1::{last}").parse().expect("an address"));
        assert_eq!((1..=5).filter(|last| limits.enter(3, address(*last)).is_ok()).count(), 2);
        assert!(limits.enter(3, Some("fd00:1:0:1::1".parse().expect("an address"))).is_ok());
        limits.leave(address(1));
        assert!(limits.enter(3, address(9)).is_ok());
        assert_eq!(limits.turned_away(), 3);
    }
}
