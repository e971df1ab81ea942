//! How a client's data connection is set up, what it is asked for, what it tells and what it counts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::mtl::Pings;
use crate::mtl::data::Layout;
use crate::question::Token;
use crate::{CallId, Connection, DropCounts, Dropped, Event, Frames, SocketOptions, Weight, cost};

/// A lease, and where to show it (MTL-26).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Where the server listens for data.
    pub endpoint: String,
    /// What opens it.
    pub lease: String,
}

/// How a data connection is set up.
#[derive(Clone, Debug)]
pub struct FlowSettings {
    /// Whether it reads; else it writes.
    pub reads: bool,
    /// The resources of its lease; empty is any.
    pub resources: Vec<String>,
    /// Whether contents are confirmed (MTL-50).
    pub is_confirmed: bool,
    /// Contents that may be neither confirmed nor rejected.
    pub window: usize,
    /// Its first lease.
    pub grant: Grant,
    /// What is set on its sockets.
    pub options: SocketOptions,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Heartbeats.
    pub pings: Pings,
    /// Whether a recording has leases in it.
    pub shows_secrets: bool,
}

/// The sockets of a data connection, of which there is one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowSocket(pub u32);

/// What is asked of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// That the lease is good.
    Open,
    /// Its contents (MTL-37).
    Summon,
    /// No more of them (MTL-41).
    Dismiss,
}

/// What the user of a data connection may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowVerb {
    /// Something that is answered.
    Call {
        /// The number of the call.
        call: CallId,
        /// What it asks.
        asked: Asked,
        /// Of which resource.
        resource: String,
        /// How long it may take.
        timeout: Option<Duration>,
    },
    /// Wait for a call no more.
    Cancel(CallId),
    /// Send a content (MTL-45).
    Send {
        /// Of this resource; empty where the lease has one.
        resource: String,
        /// With this field table.
        properties: Bytes,
        /// This.
        body: Bytes,
    },
    /// A content is safe, or all up to it are (MTL-51).
    Confirm {
        /// The connection it came on.
        connection: u32,
        /// Its sequence.
        sequence: u64,
        /// Whether all before it are meant.
        multiple: bool,
    },
    /// A content is not wanted, or none up to it is (MTL-53).
    Reject {
        /// The connection it came on.
        connection: u32,
        /// Its sequence.
        sequence: u64,
        /// Whether all before it are meant.
        multiple: bool,
        /// Whether it is to be sent again.
        recycle: bool,
    },
    /// Of the contents that came, the reader has looked at those up to this one: it is about to be closed.
    Seen {
        /// The connection it came on.
        connection: u32,
        /// Its sequence.
        sequence: u64,
    },
    /// There is another lease.
    Granted(Token, Grant),
    /// There is no other lease: for good, or so far.
    Denied(Token, Denial),
}

/// Why there is no lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// Nobody answers: it is asked for again.
    Later,
    /// There will be none, for this reason.
    Never(String),
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowOutcome {
    /// As it was asked.
    Done,
    /// With another status than 200.
    Refused(u16),
    /// What it asks is not allowed, for this reason; nothing was sent.
    Forbidden(&'static str),
    /// There was no answer in time.
    TimedOut,
    /// There is no lease any more, for this reason.
    Lost(String),
    /// The connection closed before the answer came.
    Unanswered,
}

/// What a data connection tells its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowEvent {
    /// A call has ended.
    Ended(CallId, FlowOutcome),
    /// Another lease is needed.
    Wanted(Token),
    /// A content has come.
    Content {
        /// The number of the connection it came on.
        connection: u32,
        /// The message, bit for bit.
        frames: Frames,
        /// What is where in it.
        layout: Layout,
        /// The only resource of the lease, which a content need not name.
        only: Option<Arc<str>>,
    },
    /// What was summoned before is not, on the connection that there is now.
    Refused {
        /// The resource.
        resource: String,
        /// What the server says.
        status: u16,
    },
    /// There will be no lease any more, for this reason.
    Failed(String),
    /// The connection is lost, and begun anew.
    Lost,
    /// It is there again.
    Found,
    /// Bytes that are no message, or a message that a client is never sent.
    Dropped(Dropped),
    /// What became of a connection.
    Connection(Connection),
}

impl Event for FlowEvent {
    fn weight(&self) -> Weight {
        match self {
            Self::Content { frames, .. } => Weight::Lossless(cost(frames)),
            Self::Ended(..) => Weight::Lossless(0),
            Self::Dropped(dropped) => dropped.weight(),
            Self::Wanted(_)
            | Self::Failed(_)
            | Self::Refused { .. }
            | Self::Lost
            | Self::Found
            | Self::Connection(_) => Weight::Notice(0),
        }
    }

    #[inline]
    fn dropped(&mut self) -> Option<&mut Dropped> {
        if let Self::Dropped(dropped) = self { Some(dropped) } else { None }
    }
}

/// Counters of a data connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowStats {
    /// Whole messages off the socket.
    pub received: u64,
    /// Messages the transport has taken.
    pub sent: u64,
    /// Messages that came to nothing, by kind.
    pub dropped: DropCounts,
    /// Bytes of all frames received.
    pub bytes: u64,
    /// Contents: received, or given to be sent.
    pub contents: u64,
    /// Contents that were confirmed.
    pub confirmed: u64,
    /// Contents that were rejected.
    pub rejected: u64,
    /// Contents that are neither.
    pub unconfirmed: u64,
    /// Contents that were sent unconfirmed on a connection that was lost before anything showed that they arrived.
    pub at_risk: u64,
    /// Connections begun anew.
    pub reconnects: u64,
    /// Which of all contents were rejected, by their order: the last hundred thousand.
    #[serde(skip)]
    pub rejects: Arc<VecDeque<u64>>,
    /// How long the last ten thousand took from when they were given until they were confirmed or rejected.
    #[serde(skip)]
    pub times: Arc<VecDeque<Duration>>,
}
