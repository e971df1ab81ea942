//! How a server is set up, what it is asked for, what it tells and what it counts.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::store::{Batch, Restored};
use crate::mtl::Pings;
use crate::mtl::control::{Json, Reply};
use crate::question::Token;
use crate::{Connection, DropCounts, Dropped, Event, SocketOptions, Weight, cost};

/// Makes what nobody can guess.
pub type Entropy = Box<dyn FnMut() -> [u8; 16] + Send>;

/// How a server is set up.
pub struct ServerSettings {
    /// Endpoints to listen on, a socket each.
    pub bind: Vec<String>,
    /// Endpoints for data, a socket each; without any, data comes to the others.
    pub data_bind: Vec<String>,
    /// What is set on each socket.
    pub options: SocketOptions,
    /// Who is let in; `None` lets everybody in unasked (MTL-13).
    pub access: Option<Access>,
    /// The virtual hosts.
    pub virtual_hosts: Vec<String>,
    /// The profiles.
    pub profiles: Vec<Profile>,
    /// What queues hold that are not made with bounds of their own.
    pub bounds: Bounds,
    /// How often a content may come back before it is a dead letter.
    pub max_recycle: u32,
    /// Heartbeats of data connections.
    pub pings: Pings,
    /// How long a session without a data connection is kept.
    pub session_idle: Duration,
    /// How long a lease may be left unused.
    pub lease_idle: Duration,
    /// Bytes that may wait for all readers together.
    pub outbox_bytes: usize,
    /// Whether contents are stored, and what was before.
    pub durable: Option<Restored>,
    /// Milliseconds since 1970 at the time zero of the driver.
    pub epoch_ms: u64,
    /// Whether a recording has passwords and leases in it.
    pub shows_secrets: bool,
    /// Where leases come from: 128 bits each.
    pub entropy: Entropy,
}

impl std::fmt::Debug for ServerSettings {
    /// Shows no source of secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerSettings")
            .field("bind", &self.bind)
            .field("profiles", &self.profiles)
            .finish_non_exhaustive()
    }
}

/// Which mechanisms are on offer (MTL-14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Users have passwords: SCRAM-SHA-256, and PLAIN where the transport keeps a secret.
    pub passwords: bool,
    /// Users have keys: EXTERNAL for whoever has proved one.
    pub external: bool,
    /// ANONYMOUS.
    pub anonymous: bool,
}

/// What becomes of contents.
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
    /// What becomes of contents.
    pub routing: Routing,
    /// Resources that are there from the start, in each virtual host.
    pub resources: Vec<String>,
    /// Whether clients may make and delete queues: the class `Queue`.
    pub managed: bool,
    /// Commands that the user of the server answers, in lower case.
    pub commands: BTreeSet<String>,
}

/// What a queue may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Contents, those in the hands of readers too.
    pub max_messages: u64,
    /// Their bytes, with what it takes to keep them.
    pub max_bytes: u64,
    /// How long one may wait.
    pub ttl: Option<Duration>,
    /// Where those go that nobody wants; `None` is the name of the queue and `.dead`.
    pub dead_letter: Option<String>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { max_messages: 100_000, max_bytes: 256 << 20, ttl: None, dead_letter: None }
    }
}

/// What the user of a server may ask for.
#[derive(Clone, Debug)]
pub enum ServerVerb {
    /// The answer to a question; too late, nothing comes of it.
    Answer(Token, Answer),
    /// All batches up to this one are safe.
    Stored(u64),
    /// A batch could not be stored: nothing of it is.
    Unstored(u64, String),
    /// Sessions of these users have to authenticate again; with `leases` their data connections end too.
    Revoke {
        /// Their names.
        users: Vec<String>,
        /// Whether the leases end.
        leases: bool,
    },
    /// Whoever has proved one of these names by a key is let in no more, and what he has ends. They are all such names
    /// from now on.
    Bar(Vec<String>),
}

/// What a server cannot decide by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// A step of a login (MTL-16, MTL-17).
    Login(Login),
    /// A command of a profile of the user's own.
    Command {
        /// The profile.
        profile: String,
        /// The command, as it was written.
        name: String,
        /// What it says.
        body: Json,
        /// Who asks, where that is known.
        user: Option<String>,
        /// Where.
        virtual_host: String,
    },
}

/// A step of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The mechanism, as the registry writes it.
    pub mechanism: String,
    /// What the client says.
    pub response: Bytes,
    /// What the answer to the step before asked to keep; empty at the first.
    pub state: Bytes,
    /// Whether nobody else can read along.
    pub is_private: bool,
    /// The name the client has proved by its key.
    pub user_id: Option<Bytes>,
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The login goes on (MTL-17).
    Challenge {
        /// What to say to the client.
        challenge: Bytes,
        /// What to bring with its next step.
        state: Bytes,
    },
    /// The login is done.
    Welcome(User),
    /// The login has failed; the name that was tried, if it got as far.
    Refused(Option<String>),
    /// What to reply to a command.
    Reply(Reply),
    /// Whoever was to answer could not.
    Failed,
}

/// Who somebody is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// Patterns of the resources that may be read; `None` is all.
    pub read: Option<Vec<String>>,
    /// Patterns of the resources that may be written; `None` is all.
    pub write: Option<Vec<String>>,
}

/// Why a data connection has no lease any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEnd {
    /// It answered no Ping (MTL-58).
    Silent,
    /// It cannot be reached.
    Gone,
    /// Its user may not any more, or opened anew.
    Revoked,
    /// It takes none of what it is answered.
    Unread,
}

impl LeaseEnd {
    /// The name programs go by.
    pub const fn slug(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Gone => "gone",
            Self::Revoked => "revoked",
            Self::Unread => "unread",
        }
    }
}

/// What a server tells its user.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerEvent {
    /// A question; an answer is expected soon.
    Asked(Token, Question),
    /// What is to be stored, as a whole.
    Store(Batch),
    /// What was to be stored could not be.
    StoreFailed(String),
    /// A client has logged in.
    LoggedIn {
        /// Its address.
        peer: Bytes,
        /// Who it is; empty where nobody was asked.
        user: String,
    },
    /// A client has failed to log in.
    Refused {
        /// Its address.
        peer: Bytes,
        /// Who it said it was, if it got as far.
        user: Option<String>,
    },
    /// A data connection has shown its lease.
    Leased {
        /// Its address.
        peer: Bytes,
        /// Whether it reads; else it writes.
        reads: bool,
    },
    /// A data connection has no lease any more.
    LeaseEnded {
        /// Its address.
        peer: Bytes,
        /// Why.
        why: LeaseEnd,
    },
    /// A content of this resource was delivered as often as may be, and there is no place for it among the dead letters.
    GivenUp(String),
    /// A message was dropped. Of those that a queue or a reader has no room for, the first of a burst is told.
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
            | Self::LoggedIn { .. }
            | Self::Refused { .. }
            | Self::Leased { .. }
            | Self::LeaseEnded { .. }
            | Self::GivenUp(_)
            | Self::Connection(_) => Weight::Notice(0),
        }
    }

    #[inline]
    fn dropped(&mut self) -> Option<&mut Dropped> {
        if let Self::Dropped(dropped) = self { Some(dropped) } else { None }
    }
}

/// Counters of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServerStats {
    /// Whole messages off the sockets.
    pub received: u64,
    /// Messages the transport has taken.
    pub sent: u64,
    /// Messages that came to nothing, by kind.
    pub dropped: DropCounts,
    /// Bytes of all frames received.
    pub bytes: u64,
    /// Peers connected now.
    pub peers: u64,
    /// Sessions that are open.
    pub sessions: u64,
    /// Data connections that have shown their lease.
    pub leases: u64,
    /// Logins that failed.
    pub refused: u64,
    /// By resource: the first thousand, names cut at 200 bytes.
    pub resources: Vec<ResourceStats>,
    /// Where it listens for commands.
    #[serde(skip)]
    pub endpoints: Vec<String>,
    /// Where it listens for data: at the same endpoints, unless it has others for that.
    #[serde(skip)]
    pub data_endpoints: Vec<String>,
}

/// Counters of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ResourceStats {
    /// Its virtual host.
    pub virtual_host: String,
    /// Its profile.
    pub profile: String,
    /// Its name.
    pub resource: String,
    /// Contents that wait, those in the hands of readers too.
    pub queued: u64,
    /// What they take.
    pub queued_bytes: u64,
    /// Readers that have summoned it.
    pub readers: u64,
    /// Data connections that may write to it.
    pub writers: u64,
    /// Contents taken in.
    #[serde(rename = "in")]
    pub taken: u64,
    /// Contents the transport has taken for readers, one a reader.
    pub out: u64,
    /// Contents that readers confirmed.
    pub confirmed: u64,
    /// Contents that readers rejected.
    pub rejected: u64,
    /// Contents delivered once more.
    pub redelivered: u64,
    /// Contents that nobody wanted.
    pub dead_lettered: u64,
    /// Contents that waited for too long.
    pub expired: u64,
}
