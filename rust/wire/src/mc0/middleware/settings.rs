//! How a middleware is set up, what it tells and what it counts.

use bytes::Bytes;
use serde::Serialize;

use crate::mc0::{Policy, Settings};
use crate::{Connection, DropCounts, Dropped, Event, Origin, SocketOptions, Weight};

/// How a middleware is set up.
#[derive(Clone, Debug)]
pub struct MiddlewareSettings {
    /// Endpoints to listen on, all of one socket.
    pub bind: Vec<String>,
    /// What is set on the socket.
    pub options: SocketOptions,
    /// Which messages are good.
    pub decode: Settings,
    /// Who may do what; `None` allows everything.
    pub policy: Option<Policy>,
    /// What goes when the queue of a client is full.
    pub overflow: Overflow,
    /// Messages that may wait for one client.
    pub client_queue_messages: usize,
    /// Bytes that may wait for one client, with what it takes to keep them.
    pub client_queue_bytes: usize,
    /// Bytes that may wait for all clients together; a message that waits for several counts once.
    pub queue_bytes: usize,
    /// Topics that may have subscribers.
    pub max_topics: usize,
    /// Tell the subscribers of a topic of the middleware's own how it is.
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

/// What goes when the queue of a client is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// What came last.
    DropNewest,
    /// What has waited longest.
    DropOldest,
    /// The client: it is forgotten, and told so.
    Disconnect,
}

/// What the user of a middleware may ask for.
#[derive(Clone, Debug)]
pub enum MiddlewareVerb {
    /// From now on these may do that; `None` allows everything.
    Enforce(Option<Policy>),
}

/// Why a client is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// It said so.
    Left,
    /// It was silent for longer than its TTL.
    Silent,
    /// Its connection is gone.
    Gone,
    /// It did not read, and the queue of such a client is not kept.
    Full,
    /// Somebody else has its address now.
    Replaced,
}

impl Farewell {
    /// The name programs go by.
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

/// What a middleware tells its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MiddlewareEvent {
    /// A peer said CONNECT, or subscribed, for the first time.
    Joined {
        /// The client.
        client: Origin,
    },
    /// A client is forgotten.
    Forgotten {
        /// The client.
        client: Origin,
        /// Why.
        why: Farewell,
    },
    /// A client lost subscriptions to a change of the policy.
    Curtailed {
        /// The client.
        client: Origin,
        /// How many.
        subscriptions: u64,
    },
    /// A message was dropped. Of those that a client's queue has no room for, the first of a burst is told.
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
    /// Whole messages off the socket.
    pub received: u64,
    /// Messages the transport has taken, of all verbs.
    pub sent: u64,
    /// Messages that came to nothing, by kind.
    pub dropped: DropCounts,
    /// Bytes of all frames received.
    pub bytes: u64,
    /// Peers connected now.
    pub peers: u64,
    /// Peers that said CONNECT or are subscribed.
    pub clients: u64,
    /// Subscriptions of all clients.
    pub subscriptions: u64,
    /// MESSAGEs the transport has taken.
    pub messages: u64,
    /// Messages of all verbs that wait for clients to read.
    pub queued: u64,
    /// By topic that has subscribers: the first thousand, names cut at 200 bytes.
    pub topics: Vec<TopicStats>,
}

/// Counters of one topic, since it has subscribers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TopicStats {
    /// Its name.
    pub topic: Bytes,
    /// Its subscribers.
    pub subscribers: u64,
    /// Messages put.
    pub puts: u64,
    /// Messages passed on, one a subscriber.
    pub messages: u64,
    /// Bytes of the bodies put.
    pub bytes: u64,
}
