//! The settings and counters of both roles.

use super::subject::{Subjects, is_token, parse};
use super::{Kind, Message, Rejected, Settings, decode_shared, encode};
use crate::{
    DropCounts, DropKind, DropReason, ErrorKind, Fault, Frames, Incoming, Latencies, Output, SocketKind, SocketOptions,
};
use bytes::Bytes;

/// The settings that both roles share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The service it is a replica of.
    pub instance: String,
    /// Its name among the replicas.
    pub replica: String,
    pub subjects: Subjects,
    /// The encoding of bodies.
    pub body: Settings,
    /// How long after its expiry a message is still accepted, as clocks differ.
    pub clock_skew_ms: i64,
    /// Whether the replicas of a service share the events received.
    pub shares_events: bool,
    /// Whether a replica receives its own events.
    pub includes_own: bool,
    /// The largest body that is sent.
    pub max_payload: usize,
    /// Unix time in milliseconds at the machine's time 0; see [`Clock`].
    pub unix_ms: i64,
}

impl Default for Part {
    fn default() -> Self {
        Self {
            instance: "trunkline".to_owned(),
            replica: "1".to_owned(),
            subjects: Subjects::default(),
            body: Settings::default(),
            clock_skew_ms: 0,
            shares_events: false,
            includes_own: false,
            max_payload: 1 << 20,
            unix_ms: 0,
        }
    }
}

impl Part {
    /// The first name that is not a valid token of a subject (CDT-11).
    pub fn bad_name(&self) -> Option<(&'static str, &str)> {
        let names =
            [("instance", &self.instance), ("replica_id", &self.replica), ("protocol_token", &self.subjects.protocol)];
        names.into_iter().find(|(_, name)| !is_token(name)).map(|(which, name)| (which, name.as_str()))
    }

    /// The kind of a message: its subject is the peer; its frames are the reply subject, the NATS header block and the
    /// body.
    pub(super) fn kind<S>(incoming: &Incoming<S>) -> Result<Kind, DropReason> {
        if incoming.frames.len() != 3 {
            return Err(Fault { kind: ErrorKind::BadFrameCount, offset: 0 }.in_frame(incoming.frames.len()).into());
        }
        let subject = str::from_utf8(incoming.peer.as_deref().unwrap_or_default()).ok();
        subject.and_then(|subject| parse(subject).kind).ok_or_else(|| DropKind::UnknownType.into())
    }

    /// The service that sent an event.
    pub(super) fn originator<S>(incoming: &Incoming<S>) -> Option<Box<str>> {
        let subject = str::from_utf8(incoming.peer.as_deref().unwrap_or_default()).ok()?;
        parse(subject).originator.map(Box::from)
    }

    /// Reads an answer or an event, unless it has expired.
    pub(super) fn read(&self, unix_ms: i64, kind: Kind, body: &Bytes) -> Result<Message<'static>, DropReason> {
        let read = decode_shared(body, kind, &self.body).map_err(|Rejected { fault, .. }| fault.in_frame(2))?;
        if read.is_expired(unix_ms, self.clock_skew_ms) {
            return Err(DropKind::Expired.into());
        }
        Ok(read.into_owned())
    }

    /// The frames of a message to send.
    pub(super) fn frames(&self, reply_to: Bytes, message: &Message<'_>) -> Frames {
        [reply_to, Bytes::new(), encode(message, &self.body).into()].into_iter().collect()
    }

    /// An event of ours (CDT-42).
    pub(super) fn event<S>(&self, socket: S, id: Option<crate::SendId>, event: &Message<'_>) -> Output<S> {
        let subject = self.subjects.event(&self.instance, event.kind);
        Output::Send {
            id,
            socket,
            to: Some(subject.into()),
            frames: self.frames(Bytes::new(), event).into(),
            until: None,
        }
    }

    /// Subscribes to subjects, in a queue group or alone.
    pub(super) fn open<S>(socket: S, subjects: impl IntoIterator<Item = String>, group: Option<&str>) -> Output<S> {
        let bind = |subject| group.map_or_else(|| String::clone(&subject), |group| format!("{subject} {group}"));
        Output::Open(Box::new(crate::Open {
            socket,
            kind: SocketKind::Nats,
            bind: subjects.into_iter().map(bind).collect(),
            connect: vec![],
            options: SocketOptions::default(),
        }))
    }

    /// The subjects of some kinds for this replica only.
    pub(super) fn own(&self, kinds: &[Kind]) -> Vec<String> {
        kinds.iter().map(|kind| self.subjects.replica(&self.replica, *kind)).collect()
    }
}

/// The current Unix time, for timestamps of other hosts; a machine has no clock, and clocks are adjusted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    unix_ms: i64,
    at: crate::Nanos,
}

impl Clock {
    pub(super) fn new(now: crate::Nanos, unix_ms: i64) -> Self {
        Self { unix_ms, at: now }
    }

    pub(super) fn unix_ms(self, now: crate::Nanos) -> i64 {
        let since = (now - self.at).as_millis();
        self.unix_ms.saturating_add(i64::try_from(since).unwrap_or(i64::MAX))
    }
}

/// Counters of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TargetStats {
    /// Messages received, valid or not.
    pub received: u64,
    /// Messages that the connection has taken.
    pub sent: u64,
    /// Dropped messages, by kind.
    pub dropped: DropCounts,
    /// Bytes of all messages received, with their NATS headers.
    pub bytes: u64,
    /// Requests for a configuration that were answered, with any status.
    pub pulls: u64,
    /// Pushes of configurations that were answered, with any status.
    pub pushes: u64,
    /// Requests that were answered with 404.
    pub not_found: u64,
    /// Events received from others.
    pub events: u64,
    /// The time from receiving a request to the store's answer, or until it expired.
    pub latency: Latencies,
}

/// Counters of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SourceStats {
    /// Messages received, valid or not.
    pub received: u64,
    /// Messages that the connection has taken.
    pub sent: u64,
    /// Dropped messages, by kind.
    pub dropped: DropCounts,
    /// Bytes of all messages received, with their NATS headers.
    pub bytes: u64,
    /// Pulls started.
    pub pulls: u64,
    /// Pushes started.
    pub pushes: u64,
    /// Requests that were sent again.
    pub retries: u64,
    /// Events received from others.
    pub events: u64,
    /// Pending pulls and pushes.
    pub waiting: u64,
    /// The time from a pull or push to its answer, over all attempts.
    pub latency: Latencies,
}
