//! What both roles are set up with, and what they count.

use super::subject::{Subjects, is_token, told};
use super::{Kind, Message, Rejected, Settings, decode_shared, encode};
use crate::{
    DropCounts, DropKind, DropReason, ErrorKind, Fault, Frames, Incoming, Latencies, Output, SocketKind, SocketOptions,
};
use bytes::Bytes;

/// How a role takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The service it is a replica of.
    pub instance: String,
    /// Which one.
    pub replica: String,
    /// How subjects are made.
    pub subjects: Subjects,
    /// How bodies are written.
    pub body: Settings,
    /// How much later than its time a message may come, for clocks that differ.
    pub clock_skew_ms: i64,
    /// Whether the replicas of a service share the events that they hand out.
    pub shares_events: bool,
    /// Whether a replica's own events are handed out to it.
    pub includes_own: bool,
    /// The largest body that is sent.
    pub max_payload: usize,
    /// Unix time at the machine's time 0, whenever it is made; see [`Clock`].
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
    /// The first name that is no token of a subject (CDT-11).
    pub fn bad_name(&self) -> Option<(&'static str, &str)> {
        let names =
            [("instance", &self.instance), ("replica_id", &self.replica), ("protocol_token", &self.subjects.protocol)];
        names.into_iter().find(|(_, name)| !is_token(name)).map(|(which, name)| (which, name.as_str()))
    }

    /// What a message is: its subject is the peer, its frames are the reply subject, NATS's header block and the body.
    pub(super) fn kind<S>(incoming: &Incoming<S>) -> Result<Kind, DropReason> {
        if incoming.frames.len() != 3 {
            return Err(Fault { kind: ErrorKind::BadFrameCount, offset: 0 }.in_frame(incoming.frames.len()).into());
        }
        let subject = str::from_utf8(incoming.peer.as_deref().unwrap_or_default()).ok();
        subject.and_then(|subject| told(subject).kind).ok_or_else(|| DropKind::UnknownType.into())
    }

    /// The service that sent an event.
    pub(super) fn originator<S>(incoming: &Incoming<S>) -> Option<Box<str>> {
        let subject = str::from_utf8(incoming.peer.as_deref().unwrap_or_default()).ok()?;
        told(subject).originator.map(Box::from)
    }

    /// Reads an answer or an event whose time is not over.
    pub(super) fn read(&self, unix_ms: i64, kind: Kind, body: &Bytes) -> Result<Message<'static>, DropReason> {
        let read = decode_shared(body, kind, &self.body).map_err(|Rejected { fault, .. }| fault.in_frame(2))?;
        if read.is_expired(unix_ms, self.clock_skew_ms) {
            return Err(DropKind::Expired.into());
        }
        Ok(read.into_owned())
    }

    /// What a message is sent as.
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

    /// Subscribes to some subjects, with the others of a group or alone.
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

    /// The subjects of some kinds to this replica alone.
    pub(super) fn own(&self, kinds: &[Kind]) -> Vec<String> {
        kinds.iter().map(|kind| self.subjects.replica(&self.replica, *kind)).collect()
    }
}

/// What Unix time it is, which others' messages go by; clocks are set, and machines do not look at any.
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
    /// Messages taken in.
    pub received: u64,
    /// Messages given to the connection.
    pub sent: u64,
    /// Messages that came to nothing, by kind.
    pub dropped: DropCounts,
    /// The bytes of all messages taken in, good or bad, with their NATS headers.
    pub bytes: u64,
    /// Requests for a configuration that were answered, whatever the answer.
    pub pulls: u64,
    /// Configurations that were handed in by sources, whatever the answer.
    pub pushes: u64,
    /// Requests that were answered with 404.
    pub not_found: u64,
    /// Events of others that were taken in.
    pub events: u64,
    /// From when a request came to the store's answer to it, or to the end of its time.
    pub latency: Latencies,
}

/// Counters of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SourceStats {
    /// Messages taken in.
    pub received: u64,
    /// Messages given to the connection.
    pub sent: u64,
    /// Messages that came to nothing, by kind.
    pub dropped: DropCounts,
    /// The bytes of all messages taken in, good or bad, with their NATS headers.
    pub bytes: u64,
    /// Pulls that were begun.
    pub pulls: u64,
    /// Pushes that were begun.
    pub pushes: u64,
    /// Requests that were sent again.
    pub retries: u64,
    /// Events of others that were taken in.
    pub events: u64,
    /// Pulls and pushes that wait for an answer.
    pub waiting: u64,
    /// From a pull or push to its answer, with all attempts.
    pub latency: Latencies,
}
