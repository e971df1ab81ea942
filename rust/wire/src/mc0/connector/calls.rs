//! The calls of a connector, and the IDs that match answers to them.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use bytes::Bytes;

use super::outgoing::MessageNumber;
use crate::{CallId, Nanos};

/// What a call requests, as far as its answer needs that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Subscribe(Vec<Bytes>),
    Unsubscribe(Vec<Bytes>),
    Put(Bytes),
    Ping,
}

impl Kind {
    /// The topic, if there is just one.
    pub(super) fn topic(&self) -> Option<Bytes> {
        match self {
            Self::Subscribe(topics) | Self::Unsubscribe(topics) if topics.len() == 1 => topics.first().cloned(),
            Self::Put(topic) => Some(topic.clone()),
            Self::Subscribe(_) | Self::Unsubscribe(_) | Self::Ping => None,
        }
    }
}

/// A pending call.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) kind: Kind,
    pub(super) place: MessageNumber,
    /// When the transport last took it; before that, when it was made.
    pub(super) since: Nanos,
    due: Option<Nanos>,
}

#[derive(Debug)]
pub(super) struct Calls {
    /// The prefix of this connector's IDs, which distinguishes them from others'.
    prefix: String,
    open: HashMap<CallId, Call>,
    deadlines: BTreeSet<(Nanos, CallId)>,
}

impl Calls {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        let mut prefix = seed[..8].iter().fold(String::new(), |prefix, byte| prefix + &format!("{byte:02x}"));
        prefix.push('-');
        Self { prefix, open: HashMap::new(), deadlines: BTreeSet::new() }
    }

    /// The ID of a call: 33 letters at most.
    pub(super) fn header(&self, id: CallId) -> Bytes {
        let mut header = String::with_capacity(self.prefix.len() + 16);
        header.push_str(&self.prefix);
        // Writing to a string never fails.
        let _ = write!(header, "{:x}", id.0);
        header.into()
    }

    /// The call that has this ID.
    pub(super) fn of(&self, header: &[u8]) -> Option<CallId> {
        let number = str::from_utf8(header.strip_prefix(self.prefix.as_bytes())?).ok()?;
        let id = CallId(u64::from_str_radix(number, 16).ok()?);
        (self.header(id) == header).then_some(id)
    }

    pub(super) fn has(&self, id: CallId) -> bool {
        self.open.contains_key(&id)
    }

    pub(super) fn get_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.open.get_mut(&id)
    }

    pub(super) fn insert(&mut self, now: Nanos, id: CallId, kind: Kind, place: MessageNumber, due: Option<Nanos>) {
        self.deadlines.extend(due.map(|due| (due, id)));
        self.open.insert(id, Call { kind, place, since: now, due });
    }

    pub(super) fn remove(&mut self, id: CallId) -> Option<Call> {
        let call = self.open.remove(&id)?;
        if let Some(due) = call.due {
            self.deadlines.remove(&(due, id));
        }
        Some(call)
    }

    /// The next call that has timed out.
    pub(super) fn overdue(&self, now: Nanos) -> Option<CallId> {
        self.deadlines.first().filter(|(due, _)| *due <= now).map(|(_, id)| *id)
    }

    pub(super) fn poll_timeout(&self) -> Option<Nanos> {
        self.deadlines.first().map(|(due, _)| *due)
    }

    /// Whether a pending subscription contains this topic.
    pub(super) fn subscribes(&self, topic: &Bytes) -> bool {
        self.open.values().any(|call| matches!(&call.kind, Kind::Subscribe(topics) if topics.contains(topic)))
    }

    /// Every call there is, the lowest first.
    pub(super) fn all(&self) -> Vec<CallId> {
        let mut all: Vec<_> = self.open.keys().copied().collect();
        all.sort_unstable();
        all
    }
}
