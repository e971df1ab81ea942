//! The settings, events and counters of a broker.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::{Connection, DropCounts, Dropped, Event, Latencies, Origin, SocketOptions, Weight};

#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // each a choice of its own
pub struct BrokerSettings {
    /// Endpoints to listen on, all of one socket: an address is valid on its own socket only (DCP-03).
    pub bind: Vec<String>,
    pub options: SocketOptions,
    /// Requests that may be queued for one service.
    pub max_queue: usize,
    /// Bytes that may be kept for all services together, including overhead.
    pub max_queue_bytes: usize,
    /// How long a request may be queued.
    pub queue_ttl: Duration,
    /// Which request is dropped when a queue is full.
    pub overflow: Overflow,
    /// How often a worker must send something.
    pub heartbeat_interval: Duration,
    /// Silent intervals after which a worker is considered gone.
    pub liveness: u32,
    /// Whether requests of a dead worker go back to the front of their queues.
    pub requeue: bool,
    /// Whether a ping of a busy worker asks for one more request.
    pub busy_ping_grants: bool,
    /// Requests a worker may have in progress, however often it asks.
    pub max_held: usize,
    /// Which client addresses are trusted.
    pub client_address: ClientAddress,
    /// Services that may be registered; `None` allows all.
    pub services: Option<HashSet<Bytes>>,
    /// Accept the original implementation's types as well.
    pub compat_dagbox: bool,
    /// Offer a service with the broker's status.
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

/// Which request is dropped when a queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The new one.
    RejectNewest,
    /// The oldest ones.
    DropOldest,
}

/// Which client addresses are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAddress {
    /// Those of every peer, as in the spec.
    Any,
    /// Those of workers; any other peer's is replaced by its own address, and it cannot reply.
    WorkersOnly,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerEvent {
    /// A worker registered, or changed its service.
    Registered { worker: Origin, service: Bytes },
    /// A worker may not offer this service.
    Refused { worker: Origin, service: Bytes },
    /// A worker is gone.
    Gone {
        worker: Origin,
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
    /// Messages received, valid or not.
    pub received: u64,
    /// Messages the transport was given and has not given back.
    pub sent: u64,
    /// Dropped messages, by kind.
    pub dropped: DropCounts,
    /// Bytes of all frames received.
    pub bytes: u64,
    /// Peers connected now.
    pub peers: u64,
    pub queued: u64,
    /// Requests lost with dead workers.
    pub lost: u64,
    /// The time from receiving a request to its worker's reply.
    pub latency: Latencies,
    /// By service: the first thousand, names cut at 200 bytes.
    pub services: Vec<ServiceStats>,
}

/// Counters of one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServiceStats {
    pub service: Bytes,
    pub queued: u64,
    /// Workers that offer it.
    pub workers: u64,
    /// Free workers.
    pub free: u64,
    /// Requests received.
    pub requests: u64,
    /// Requests with a reply.
    pub replies: u64,
    /// Requests that expired in the queue.
    pub expired: u64,
}
