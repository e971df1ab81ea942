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
    /// Who sent it, where that is known, or, where it came back from the transport, who was to have it.
    pub peer: Option<Bytes>,
    /// The message, bit for bit; empty where it came back from the transport.
    pub frames: Frames,
    /// Where it came in.
    pub place: Place,
}

/// Where a message came in, as far as whoever has the sockets tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The endpoint, if it was the only one of its socket.
    pub endpoint: Option<Arc<str>>,
    /// The number of its row, if it was recorded.
    pub seq: Option<u64>,
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
    pub fn new(reason: impl Into<DropReason>, peer: Option<Bytes>, frames: Frames) -> Self {
        Self { reason: reason.into(), peer, frames, place: Place::default() }
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
