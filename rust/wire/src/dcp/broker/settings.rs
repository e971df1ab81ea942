//! How a broker is set up, what it tells and what it counts.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::{Connection, DropCounts, Dropped, Event, Latencies, Origin, SocketOptions, Weight};

/// How a broker is set up.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // each a choice of its own
pub struct BrokerSettings {
    /// Endpoints to listen on, all of one socket: an address is known on its socket only (DCP-03).
    pub bind: Vec<String>,
    /// What is set on the socket.
    pub options: SocketOptions,
    /// Requests that may wait for one service.
    pub max_queue: usize,
    /// Bytes that may wait for all services together, with what it takes to keep them.
    pub max_queue_bytes: usize,
    /// How long a request may wait.
    pub queue_ttl: Duration,
    /// Which request goes when a queue is full.
    pub overflow: Overflow,
    /// How often a worker is to be heard.
    pub heartbeat_interval: Duration,
    /// Intervals of silence after which a worker is gone.
    pub liveness: u32,
    /// Whether requests of a dead worker go back to the front of their queues.
    pub requeue: bool,
    /// Whether a ping of a busy worker asks for one more request.
    pub busy_ping_grants: bool,
    /// Requests a worker may have in hand, however often it asks.
    pub max_held: usize,
    /// Whose client addresses are believed.
    pub client_address: ClientAddress,
    /// Services that may be registered; `None` allows all.
    pub services: Option<HashSet<Bytes>>,
    /// Speak to the original implementation as well.
    pub compat_dagbox: bool,
    /// Offer a service of the broker's own that says how it is.
    pub status: bool,
}

impl Default for BrokerSettings {
    fn default() -> Self {
        Self {
            bind: vec![],
            options: SocketOptions::default(),
            max_queue: 10_000,
            max_queue_bytes: 256 << 20,
            queue_ttl: Duration::from_secs(60),
            overflow: Overflow::RejectNewest,
            heartbeat_interval: Duration::from_millis(2500),
            liveness: 3,
            requeue: false,
            busy_ping_grants: true,
            max_held: 1024,
            client_address: ClientAddress::Any,
            services: None,
            compat_dagbox: false,
            status: true,
        }
    }
}

/// Which request goes when a queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The one that came last.
    RejectNewest,
    /// The ones that have waited longest.
    DropOldest,
}

/// Whose client addresses are believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAddress {
    /// Everybody's, as the spec has it.
    Any,
    /// Those of workers; the address of anybody else is put in place of what it says, and it cannot reply.
    WorkersOnly,
}

/// What a broker tells its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerEvent {
    /// A worker registered, or changed its service.
    Registered {
        /// The worker.
        worker: Origin,
        /// The service.
        service: Bytes,
    },
    /// A worker may not offer this service.
    Refused {
        /// The worker.
        worker: Origin,
        /// The service.
        service: Bytes,
    },
    /// A worker is gone.
    Gone {
        /// The worker.
        worker: Origin,
        /// The service.
        service: Bytes,
        /// Requests lost with it.
        lost: u64,
    },
    /// A message was dropped.
    Dropped(Dropped),
    /// What became of a connection.
    Connection(Connection),
}

impl Event for BrokerEvent {
    fn weight(&self) -> Weight {
        Weight::Notice(match self {
            Self::Dropped(dropped) => return dropped.weight(),
            Self::Registered { service, .. } | Self::Refused { service, .. } | Self::Gone { service, .. } => {
                service.len()
            }
            Self::Connection(_) => 0,
        })
    }

    #[inline]
    fn origin(&mut self) -> Option<&mut Origin> {
        match self {
            Self::Registered { worker, .. } | Self::Refused { worker, .. } | Self::Gone { worker, .. } => Some(worker),
            Self::Dropped(dropped) => Some(&mut dropped.origin),
            Self::Connection(_) => None,
        }
    }
}

/// Counters of a broker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BrokerStats {
    /// Whole messages off the socket.
    pub received: u64,
    /// Messages the transport was given and has not given back.
    pub sent: u64,
    /// Dropped messages, by kind.
    pub dropped: DropCounts,
    /// The bytes of all frames received, good or bad.
    pub bytes: u64,
    /// Peers connected now.
    pub peers: u64,
    /// Requests that wait.
    pub queued: u64,
    /// Requests lost with dead workers.
    pub lost: u64,
    /// From when a request came to the reply of its worker.
    pub latency: Latencies,
    /// By service: the first thousand, names cut at 200 bytes.
    pub services: Vec<ServiceStats>,
}

/// Counters of one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServiceStats {
    /// Its name.
    pub service: Bytes,
    /// Requests that wait.
    pub queued: u64,
    /// Workers that offer it.
    pub workers: u64,
    /// Workers that wait for a request.
    pub free: u64,
    /// Requests that came in.
    pub requests: u64,
    /// Requests that were replied to.
    pub replies: u64,
    /// Requests that waited for too long.
    pub expired: u64,
}
