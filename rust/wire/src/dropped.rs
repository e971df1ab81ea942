//! Messages that came to nothing, as every machine tells of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::{DecodeError, DropKind, Frames, Verdict, Weight, cost};

/// A message that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Why.
    pub reason: DropReason,
    /// The message, bit for bit; empty where it came back from the transport.
    pub frames: Frames,
    /// Who sent it, or, where it came back from the transport, who was to have it.
    pub origin: Origin,
}

/// A peer, and the message of it that an event is about, as far as both are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Its routing id (ROUTER), address (UDP) or subject (NATS).
    pub peer: Option<Bytes>,
    /// The user it is: by its key, or as it has logged in.
    pub user: Option<Bytes>,
    /// Where it connected from, as `tcp://127.0.0.1:37492`. The driver adds this and all below to what a message brings about.
    pub address: Option<Box<str>>,
    /// The endpoint the message arrived at, if it was the only one of its socket.
    pub endpoint: Option<Arc<str>>,
    /// The number of the message's row, if it was recorded.
    pub seq: Option<u64>,
}

impl Origin {
    /// A peer, and its user where it has one.
    pub fn new(peer: Bytes, user: Option<Bytes>) -> Self {
        Self { peer: Some(peer), user, ..Self::default() }
    }
}

impl From<Option<Bytes>> for Origin {
    fn from(peer: Option<Bytes>) -> Self {
        Self { peer, ..Self::default() }
    }
}

/// Why a message was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It is none.
    Malformed(DecodeError),
    /// It is good, but went nowhere.
    Undelivered(DropKind),
}

/// Messages that were dropped, by the slug of their kind.
pub type DropCounts = BTreeMap<&'static str, u64>;

impl Dropped {
    /// A message that came to nothing somewhere.
    pub fn new(reason: impl Into<DropReason>, origin: impl Into<Origin>, frames: Frames) -> Self {
        Self { reason: reason.into(), frames, origin: origin.into() }
    }

    /// Counts it.
    pub fn count(&self, counts: &mut DropCounts) {
        *counts.entry(self.reason.slug()).or_default() += 1;
    }

    /// How it counts against the queue to the user.
    pub fn weight(&self) -> Weight {
        Weight::Notice(cost(&self.frames))
    }
}

impl DropReason {
    /// The slug of the kind.
    pub const fn slug(&self) -> &'static str {
        match self {
            Self::Malformed(error) => error.kind.slug(),
            Self::Undelivered(kind) => kind.slug(),
        }
    }

    /// What is wrong with its bytes, if anything.
    pub const fn error(&self) -> Option<DecodeError> {
        match self {
            Self::Malformed(error) => Some(*error),
            Self::Undelivered(_) => None,
        }
    }
}

impl From<DecodeError> for DropReason {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(error)
    }
}

impl From<DropKind> for DropReason {
    fn from(kind: DropKind) -> Self {
        Self::Undelivered(kind)
    }
}

impl From<DecodeError> for Verdict {
    fn from(error: DecodeError) -> Self {
        error.kind.into()
    }
}
