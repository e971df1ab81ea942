//! One peer: its link and its connection.

use std::sync::Arc;

use bytes::Bytes;
use trunkline_wire::Nanos;
use trunkline_zmtp::Connection;
use trunkline_zmtp::patterns::{ConnectionId, PipeId};

use crate::reactor::LinkId;

/// How far a peer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its handshake is in progress.
    Shaking,
    /// Messages come and go.
    Ready,
    /// It belongs to no socket: pending data is written, and the link ends when the peer ends it, when the peer's
    /// system has it all, or at this time.
    Leaving(Nanos),
}

/// A peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link: LinkId,
    pub(super) socket: usize,
    pub(super) connection: Connection,
    pub(super) stage: Stage,
    /// Our endpoint, at which it is connected.
    pub(super) endpoint: Arc<str>,
    /// The socket's pipe to it, if it was dialled.
    pub(super) pipe: Option<PipeId>,
    /// Its routing id at a ROUTER.
    pub(super) routing_id: Option<Bytes>,
    /// The user it was admitted as.
    pub(super) user: Option<Bytes>,
    /// Whether it is listed to be written to.
    pub(super) is_dirty: bool,
    /// Its pending bytes, as last counted.
    pub(super) counted: usize,
    /// Bytes held of an incomplete message, as last counted, and since when there is one.
    pub(super) unfinished: usize,
    pub(super) unfinished_since: Nanos,
    /// Whether it is listed for the next pass.
    pub(super) is_again: bool,
}

impl Peer {
    /// The number by which a socket knows it.
    pub(super) fn id(&self) -> ConnectionId {
        ConnectionId(self.link.number())
    }

    /// Lists it to be written to before the next wait.
    pub(super) fn write_soon(&mut self, dirty: &mut Vec<LinkId>) {
        if !std::mem::replace(&mut self.is_dirty, true) {
            dirty.push(self.link);
        }
    }

    /// Lists it for the next pass.
    pub(super) fn hear_again(&mut self, again: &mut Vec<LinkId>) {
        if !std::mem::replace(&mut self.is_again, true) {
            again.push(self.link);
        }
    }

    /// Counts its pending bytes with those of all.
    pub(super) fn count(&mut self, all: &mut usize) {
        let waiting = self.connection.backlog().bytes;
        *all = *all - std::mem::replace(&mut self.counted, waiting) + waiting;
    }

    /// Counts its bytes of an incomplete message with those of all.
    pub(super) fn count_unfinished(&mut self, now: Nanos, all: &mut usize) {
        let unfinished = self.connection.unfinished();
        if self.unfinished == 0 {
            self.unfinished_since = now;
        }
        *all = *all - std::mem::replace(&mut self.unfinished, unfinished) + unfinished;
    }

    /// How fast its incomplete message comes, in bytes a second.
    pub(super) fn pace(&self, now: Nanos) -> u128 {
        let took = (now - self.unfinished_since).as_nanos().max(1);
        self.unfinished as u128 * 1_000_000_000 / took
    }
}
