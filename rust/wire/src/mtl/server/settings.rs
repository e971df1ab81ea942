//! The settings, verbs, events and counters of a server.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::store::{Batch, Restored};
use crate::mtl::Pings;
use crate::mtl::control::{Json, Reply};
use crate::question::Token;
use crate::{Connection, DropCounts, Dropped, Event, Latencies, Origin, SocketOptions, Weight, cost};

/// A source of secrets.
pub type Entropy = Box<dyn FnMut() -> [u8; 16] + Send>;

pub struct ServerSettings {
    /// Endpoints to listen on, a socket each.
    pub bind: Vec<String>,
    /// Endpoints for data, a socket each; without any, data comes to the others.
    pub data_bind: Vec<String>,
    /// Options of each socket.
    pub options: SocketOptions,
    /// The logins that are accepted; `None` if no login is required (MTL-13).
    pub access: Option<Access>,
    pub virtual_hosts: Vec<String>,
    pub profiles: Vec<Profile>,
    /// The default bounds of queues.
    pub bounds: Bounds,
    /// Queues that clients may create: all clients together, and each user.
    pub max_queues: u64,
    /// See `max_queues`.
    pub max_user_queues: u64,
    /// How many times a content may be recycled before it becomes a dead letter.
    pub max_recycle: u32,
    /// Heartbeats of data connections.
    pub pings: Pings,
    /// How long a session without a data connection is kept.
    pub session_idle: Duration,
    /// How long a lease may stay unused.
    pub lease_idle: Duration,
    /// How many bytes may wait for all readers together.
    pub outbox_bytes: usize,
    /// Whether contents are stored, and those stored before.
    pub durable: Option<Restored>,
    /// The driver's time zero, in milliseconds since 1970.
    pub epoch_ms: u64,
    /// Whether a capture contains passwords and leases.
    pub shows_secrets: bool,
    /// Where leases come from: 128 bits each.
    pub entropy: Entropy,
}

impl std::fmt::Debug for ServerSettings {
    /// Omits the source of secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerSettings")
            .field("bind", &self.bind)
            .field("profiles", &self.profiles)
            .finish_non_exhaustive()
    }
}

/// Which mechanisms are offered (MTL-14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Users have passwords: SCRAM-SHA-256, and PLAIN on private transports.
    pub passwords: bool,
    /// Users have keys: EXTERNAL for clients that have proved one.
    pub external: bool,
    pub anonymous: bool,
}

/// How contents are routed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Each goes to one reader.
    Queue,
    /// Each goes to all readers.
    Fanout,
}

/// A profile (MTL-22).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name; its case does not matter.
    pub name: String,
    /// How contents are routed.
    pub routing: Routing,
    /// Resources created at the start, in each virtual host.
    pub resources: Vec<String>,
    /// Whether clients may create and delete queues: the class `Queue`.
    pub managed: bool,
    /// Commands that the user of the server answers, in lower case.
    pub commands: BTreeSet<String>,
}

/// What a queue may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Contents, including those delivered but unconfirmed.
    pub max_messages: u64,
    /// Their bytes, including the overhead of keeping them.
    pub max_bytes: u64,
    /// How long a content may wait.
    pub ttl: Option<Duration>,
    /// The dead-letter queue; `None` for the name of the queue and `.dead`.
    pub dead_letter: Option<String>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { max_messages: 100_000, max_bytes: 256 << 20, ttl: None, dead_letter: None }
    }
}

/// What the user of a server may request.
#[derive(Clone, Debug)]
pub enum ServerVerb {
    /// The answer to a question; has no effect if it is too late.
    Answer(Token, Answer),
    /// All batches up to this one are stored.
    Stored(u64),
    /// A batch could not be stored, nor any part of it.
    Unstored(u64, String),
    /// Make sessions of these users authenticate again; with `leases` their data connections end too.
    Revoke {
        /// Their names.
        users: Vec<String>,
        /// Whether the leases end.
        leases: bool,
    },
    /// Replace the set of names, proved by keys, that are no longer admitted; their sessions and data connections
    /// end.
    Bar(Vec<String>),
}

/// What a server cannot decide by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// A step of a login (MTL-16, MTL-17).
    Login(Login),
    /// A command of a custom profile.
    Command {
        profile: String,
        /// The command, as received.
        name: String,
        /// The arguments.
        body: Json,
        /// The user, if known.
        user: Option<String>,
        virtual_host: String,
    },
}

/// A step of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The registered name of the mechanism.
    pub mechanism: String,
    /// The response of the client.
    pub response: Bytes,
    /// The state returned with the previous challenge; empty at the first step.
    pub state: Bytes,
    /// Whether the connection is protected from eavesdroppers.
    pub is_private: bool,
    /// The name the client has proved by its key.
    pub user_id: Option<Bytes>,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The login continues (MTL-17).
    Challenge {
        /// The challenge to send.
        challenge: Bytes,
        /// The state to pass with its next step.
        state: Bytes,
        /// The user whose password the client has proved to know, if any.
        proven: Option<String>,
    },
    /// The login has succeeded.
    Welcome(User),
    /// The login has failed; with the name that was tried, if any.
    Refused(Option<String>),
    /// The reply to a command.
    Reply(Reply),
    /// The question could not be answered.
    Failed,
}

/// An authenticated user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// Patterns of the resources that the user may read; `None` for all.
    pub read: Option<Vec<String>>,
    /// Patterns of the resources that the user may write to; `None` for all.
    pub write: Option<Vec<String>>,
}

/// Why a lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEnd {
    /// It answered no Ping (MTL-58).
    Silent,
    /// It cannot be reached.
    Gone,
    /// Its user lost the permission, or opened a new session.
    Revoked,
    /// It does not read its answers.
    Unread,
}

impl LeaseEnd {
    /// Its stable name.
    pub const fn slug(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Gone => "gone",
            Self::Revoked => "revoked",
            Self::Unread => "unread",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum ServerEvent {
    /// A question; an answer is expected soon.
    Asked(Token, Question),
    /// A batch to store atomically.
    Store(Batch),
    /// A batch could not be stored.
    StoreFailed(String),
    /// Stored queues are of a virtual host or a profile that this server does not have.
    NotRestored {
        /// How many.
        queues: usize,
        contents: usize,
    },
    /// A client has logged in.
    LoggedIn {
        /// The client; without a user if no login was required.
        client: Origin,
    },
    /// A client has failed to log in.
    Refused {
        client: Origin,
        /// The name it tried, if any.
        user: Option<String>,
    },
    /// A data connection has redeemed its lease.
    Leased {
        /// The data connection; its user is that of its session.
        client: Origin,
        /// Whether it reads; else it writes.
        reads: bool,
    },
    /// The lease of a data connection has ended.
    LeaseEnded {
        /// The data connection.
        client: Origin,
        why: LeaseEnd,
    },
    /// A content of this resource was recycled too often, and its dead-letter resource cannot take it.
    GivenUp(String),
    /// A message was dropped. Of those that a queue or a reader has no room for, only the first of a burst is reported.
    Dropped(Dropped),
    /// What became of a connection.
    Connection(Connection),
}

impl Event for ServerEvent {
    fn weight(&self) -> Weight {
        match self {
            Self::Asked(_, Question::Login(login)) => Weight::Notice(login.response.len() + login.state.len()),
            Self::Store(batch) => Weight::Lossless(batch.bytes()),
            Self::Dropped(Dropped { frames, .. }) => Weight::Notice(cost(frames)),
            Self::Asked(_, Question::Command { .. })
            | Self::StoreFailed(_)
            | Self::NotRestored { .. }
            | Self::LoggedIn { .. }
            | Self::Refused { .. }
            | Self::Leased { .. }
            | Self::LeaseEnded { .. }
            | Self::GivenUp(_)
            | Self::Connection(_) => Weight::Notice(0),
        }
    }

    #[inline]
    fn origin(&mut self) -> Option<&mut Origin> {
        match self {
            Self::LoggedIn { client }
            | Self::Refused { client, .. }
            | Self::Leased { client, .. }
            | Self::LeaseEnded { client, .. } => Some(client),
            Self::Dropped(dropped) => Some(&mut dropped.origin),
            Self::Asked(..)
            | Self::Store(_)
            | Self::StoreFailed(_)
            | Self::NotRestored { .. }
            | Self::GivenUp(_)
            | Self::Connection(_) => None,
        }
    }
}

/// Counters of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServerStats {
    /// Messages received.
    pub received: u64,
    /// Messages the transport has taken.
    pub sent: u64,
    /// Dropped messages, by kind.
    pub dropped: DropCounts,
    /// Bytes of all frames received.
    pub bytes: u64,
    /// Peers connected now.
    pub peers: u64,
    /// Sessions that are open.
    pub sessions: u64,
    /// Data connections with a redeemed lease.
    pub leases: u64,
    /// Logins that failed.
    pub refused: u64,
    /// The time from queueing a content to its confirmation by a reader; without confirmations, until the transport
    /// took it.
    pub latency: Latencies,
    /// By resource: the first thousand, names cut at 200 bytes.
    pub resources: Vec<ResourceStats>,
    /// The endpoints for commands.
    #[serde(skip)]
    pub endpoints: Vec<String>,
    /// The endpoints for data; the same, unless there are separate ones.
    #[serde(skip)]
    pub data_endpoints: Vec<String>,
}

/// Counters of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ResourceStats {
    pub virtual_host: String,
    pub profile: String,
    pub resource: String,
    /// Contents in the queue, including those delivered but unconfirmed.
    pub queued: u64,
    /// Their bytes, including overhead.
    pub queued_bytes: u64,
    /// Readers that have summoned it.
    pub readers: u64,
    /// Data connections that may write to it.
    pub writers: u64,
    /// Contents accepted.
    #[serde(rename = "in")]
    pub taken: u64,
    /// Contents handed to the transport, counted per reader.
    pub out: u64,
    /// Contents that readers confirmed.
    pub confirmed: u64,
    /// Contents that readers rejected.
    pub rejected: u64,
    /// Contents delivered again.
    pub redelivered: u64,
    /// Contents that became dead letters.
    pub dead_lettered: u64,
    /// Contents that expired in the queue.
    pub expired: u64,
}
