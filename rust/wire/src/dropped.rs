//! Dropped messages, as every machine reports them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::{DecodeError, DropKind, Frames, Verdict, Weight, cost};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    pub reason: DropReason,
    /// The message, bit for bit; empty if the transport refused it.
    pub frames: Frames,
    /// Its sender or, if the transport refused it, its receiver.
    pub origin: Origin,
}

/// A peer and its message that caused an event, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Its routing id (ROUTER), address (UDP) or subject (NATS).
    pub peer: Option<Bytes>,
    /// Its user: by its key, or by its login.
    pub user: Option<Bytes>,
    /// Where it connected from, as `tcp://127.0.0.1:37492`. The driver adds this field and those below.
    pub address: Option<Box<str>>,
    /// The endpoint the message arrived at, if its socket has only one.
    pub endpoint: Option<Arc<str>>,
    /// The number of the message's row, if it was recorded.
    pub seq: Option<u64>,
}

impl Origin {
    /// A peer, and its user if known.
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
    /// It is invalid.
    Malformed(DecodeError),
    /// It is valid, but could not be delivered.
    Undelivered(DropKind),
}

/// Counts of dropped messages, by the slug of their kind.
pub type DropCounts = BTreeMap<&'static str, u64>;

impl Dropped {
    pub fn new(reason: impl Into<DropReason>, origin: impl Into<Origin>, frames: Frames) -> Self {
        Self { reason: reason.into(), frames, origin: origin.into() }
    }

    /// Adds it to the counts.
    pub fn count(&self, counts: &mut DropCounts) {
        *counts.entry(self.reason.slug()).or_default() += 1;
    }

    /// Its weight in the queue to the user.
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

    /// The fault of its bytes, if any.
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
