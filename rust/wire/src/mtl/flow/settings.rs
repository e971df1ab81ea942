//! The settings, verbs, events and counters of a client's data connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::mtl::Pings;
use crate::mtl::data::Layout;
use crate::question::Token;
use crate::{CallId, Connection, DropCounts, Dropped, Event, Frames, Latencies, Origin, SocketOptions, Weight, cost};

/// A lease, and where to redeem it (MTL-26).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Where the server listens for data.
    pub endpoint: String,
    pub lease: String,
}

/// The settings of a data connection.
#[derive(Clone, Debug)]
pub struct FlowSettings {
    /// Whether it reads; else it writes.
    pub reads: bool,
    /// The resources of its lease; empty is any.
    pub resources: Vec<String>,
    /// Whether contents are confirmed (MTL-50).
    pub is_confirmed: bool,
    /// How many contents may be unconfirmed at a time.
    pub window: usize,
    /// Its first lease.
    pub grant: Grant,
    pub options: SocketOptions,
    /// How long an answer may take.
    pub timeout: Duration,
    /// Heartbeats.
    pub pings: Pings,
    /// Whether a capture contains leases.
    pub shows_secrets: bool,
}

/// The sockets of a data connection, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowSocket(pub u32);

/// What a call requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// To redeem the lease.
    Open,
    /// To summon a resource (MTL-37).
    Summon,
    /// To dismiss it (MTL-41).
    Dismiss,
}

/// What the user of a data connection may request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowVerb {
    /// A call, which is answered.
    Call {
        /// The number of the call.
        call: CallId,
        /// What it requests.
        asked: Asked,
        resource: String,
        /// How long it may take.
        timeout: Option<Duration>,
    },
    /// Stop waiting for a call.
    Cancel(CallId),
    /// Send a content (MTL-45).
    Send {
        /// The resource; empty if the lease has one only.
        resource: String,
        /// The properties, a field table.
        properties: Bytes,
        body: Bytes,
    },
    /// Count unconfirmed contents as pending until the server has answered a Ping that follows them.
    Flush,
    /// Confirm a content, or all up to it (MTL-51).
    Confirm {
        /// The connection it came on.
        connection: u32,
        sequence: u64,
        /// Whether it covers all earlier ones.
        multiple: bool,
    },
    /// Reject a content, or all up to it (MTL-53).
    Reject {
        /// The connection it came on.
        connection: u32,
        sequence: u64,
        /// Whether it covers all earlier ones.
        multiple: bool,
        /// Whether it is to be delivered again.
        recycle: bool,
    },
    /// The reader is about to be closed: its user has taken the contents up to this one.
    Seen {
        /// The connection it came on.
        connection: u32,
        sequence: u64,
    },
    /// A new lease was granted.
    Granted(Token, Grant),
    /// No new lease was granted.
    Denied(Token, Denial),
}

/// Why no lease was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// No answer: the lease is requested again.
    Later,
    /// It was refused for good, for this reason.
    Never(String),
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowOutcome {
    /// It succeeded.
    Done,
    /// With another status than 200.
    Refused(u16),
    /// It is not allowed, for this reason; nothing was sent.
    Forbidden(&'static str),
    /// There was no answer in time.
    TimedOut,
    /// The lease has ended, for this reason.
    Lost(String),
    /// The connection was closed before the answer arrived.
    Unanswered,
}

/// The events of a data connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowEvent {
    /// A call has ended.
    Ended(CallId, FlowOutcome),
    /// A new lease is needed.
    Wanted(Token),
    /// A content was received.
    Content {
        /// The number of the connection it came on.
        connection: u32,
        /// The message, bit for bit.
        frames: Frames,
        layout: Layout,
        /// The only resource of the lease, which a content need not name.
        only: Option<Arc<str>>,
    },
    /// The server refused to summon a resource again on a new connection.
    Refused {
        resource: String,
        /// The status of the refusal.
        status: u16,
    },
    /// No new lease will be granted, for this reason.
    Failed(String),
    /// The server rejected so many contents.
    Rejected(u64),
    /// The connection is lost, and will be re-established.
    Lost,
    /// The connection is re-established.
    Found,
    /// An invalid message, or one that a client must not be sent.
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
            | Self::Rejected(_)
            | Self::Lost
            | Self::Found
            | Self::Connection(_) => Weight::Notice(0),
        }
    }

    #[inline]
    fn origin(&mut self) -> Option<&mut Origin> {
        if let Self::Dropped(dropped) = self { Some(&mut dropped.origin) } else { None }
    }
}

/// Counters of a data connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowStats {
    /// Messages received.
    pub received: u64,
    /// Messages the transport has taken.
    pub sent: u64,
    /// Dropped messages, by kind.
    pub dropped: DropCounts,
    /// Bytes of all frames received.
    pub bytes: u64,
    /// Contents received, or accepted for sending.
    pub contents: u64,
    /// Contents that were confirmed.
    pub confirmed: u64,
    /// Contents that were rejected.
    pub rejected: u64,
    /// Contents neither confirmed nor rejected yet.
    pub unconfirmed: u64,
    /// Contents that were sent unconfirmed on a connection that was lost before anything showed that they arrived.
    pub at_risk: u64,
    /// Connections re-established.
    pub reconnects: u64,
    /// The time from accepting a content to its confirmation or rejection.
    pub latency: Latencies,
    /// The numbers of rejected contents, in the order they were sent: the last hundred thousand.
    #[serde(skip)]
    pub rejects: Arc<VecDeque<u64>>,
    /// The times from sending a content until it was confirmed or rejected: those of the last ten thousand.
    #[serde(skip)]
    pub times: Arc<VecDeque<Duration>>,
}
