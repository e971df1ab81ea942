//! The settings, verbs, events and counters of a middleware.

use bytes::Bytes;
use serde::Serialize;

use crate::mc0::{Policy, Settings};
use crate::{Connection, DropCounts, Dropped, Event, Origin, SocketOptions, Weight};

#[derive(Clone, Debug)]
pub struct MiddlewareSettings {
    /// Endpoints to listen on, all of one socket.
    pub bind: Vec<String>,
    pub options: SocketOptions,
    /// Which messages are valid.
    pub decode: Settings,
    /// What each client may do; `None` allows everything.
    pub policy: Option<Policy>,
    /// What is dropped when the queue of a client is full.
    pub overflow: Overflow,
    /// Messages that may be queued for one client.
    pub client_queue_messages: usize,
    /// Bytes that may be queued for one client, including overhead.
    pub client_queue_bytes: usize,
    /// Bytes that may be queued for all clients together; a message queued for several counts once.
    pub queue_bytes: usize,
    /// Topics that may have subscribers.
    pub max_topics: usize,
    /// Publish the middleware's status on a topic of its own.
    pub status: bool,
}

impl Default for MiddlewareSettings {
    fn default() -> Self {
        Self {
            bind: vec![],
            options: SocketOptions::default(),
            decode: Settings::default(),
            policy: None,
            overflow: Overflow::DropNewest,
            client_queue_messages: 10_000,
            client_queue_bytes: 16 << 20,
            queue_bytes: 256 << 20,
            max_topics: 100_000,
            status: true,
        }
    }
}

/// What is dropped when the queue of a client is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The new message.
    DropNewest,
    /// The oldest messages.
    DropOldest,
    /// The client: it is forgotten and notified.
    Disconnect,
}

/// What the user of a middleware may request.
#[derive(Clone, Debug)]
pub enum MiddlewareVerb {
    /// Replace the policy; `None` allows everything.
    Enforce(Option<Policy>),
}

/// Why a client is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// It disconnected.
    Left,
    /// It was silent for longer than its TTL.
    Silent,
    /// Its connection is gone.
    Gone,
    /// It did not read, and its queue was full.
    Full,
    /// Another client has its address now.
    Replaced,
}

impl Farewell {
    /// Its stable name.
    pub const fn slug(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Silent => "silent",
            Self::Gone => "gone",
            Self::Full => "full",
            Self::Replaced => "replaced",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MiddlewareEvent {
    /// A peer sent CONNECT, or its first subscription.
    Joined { client: Origin },
    /// A client is forgotten.
    Forgotten { client: Origin, why: Farewell },
    /// A client lost subscriptions to a change of the policy.
    Curtailed {
        client: Origin,
        /// How many.
        subscriptions: u64,
    },
    /// A message was dropped. Of those that a client's queue has no room for, only the first of a burst is reported.
    Dropped(Dropped),
    /// What became of a connection.
    Connection(Connection),
}

impl Event for MiddlewareEvent {
    fn weight(&self) -> Weight {
        match self {
            Self::Dropped(dropped) => dropped.weight(),
            Self::Joined { .. } | Self::Forgotten { .. } | Self::Curtailed { .. } | Self::Connection(_) => {
                Weight::Notice(0)
            }
        }
    }

    #[inline]
    fn origin(&mut self) -> Option<&mut Origin> {
        match self {
            Self::Joined { client } | Self::Forgotten { client, .. } | Self::Curtailed { client, .. } => Some(client),
            Self::Dropped(dropped) => Some(&mut dropped.origin),
            Self::Connection(_) => None,
        }
    }
}

/// Counters of a middleware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MiddlewareStats {
    /// Messages received, valid or not.
    pub received: u64,
    /// Messages the transport has taken, of all verbs.
    pub sent: u64,
    /// Dropped messages, by kind.
    pub dropped: DropCounts,
    /// Bytes of all frames received.
    pub bytes: u64,
    /// Peers connected now.
    pub peers: u64,
    /// Peers that sent CONNECT or are subscribed.
    pub clients: u64,
    /// Subscriptions of all clients.
    pub subscriptions: u64,
    /// MESSAGEs the transport has taken.
    pub messages: u64,
    /// Messages of all verbs queued for clients.
    pub queued: u64,
    /// By topic with subscribers: the first thousand, names cut at 200 bytes.
    pub topics: Vec<TopicStats>,
}

/// Counters of one topic, for as long as it has subscribers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TopicStats {
    pub topic: Bytes,
    pub subscribers: u64,
    pub puts: u64,
    /// Messages delivered, counted per subscriber.
    pub messages: u64,
    /// Bytes of the bodies put.
    pub bytes: u64,
}
