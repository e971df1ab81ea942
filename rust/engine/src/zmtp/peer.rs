//! One peer: its link, and what is spoken on it.

use std::sync::Arc;

use bytes::Bytes;
use trunkline_wire::Nanos;
use trunkline_zmtp::Connection;
use trunkline_zmtp::patterns::{ConnectionId, PipeId};

use crate::reactor::LinkId;

/// How far a peer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its handshake goes on.
    Shaking,
    /// Messages come and go.
    Ready,
    /// No socket has it any more: what is pending is written, and the link ends when the peer ends it, when the peer's system
    /// has it all, or at this time.
    Leaving(Nanos),
}

/// A peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) link: LinkId,
    pub(super) socket: usize,
    pub(super) connection: Connection,
    pub(super) stage: Stage,
    /// Ours, at which it is connected.
    pub(super) endpoint: Arc<str>,
    /// The way to it that the socket knows, where it was dialled.
    pub(super) pipe: Option<PipeId>,
    /// The routing id it goes by at a ROUTER.
    pub(super) routing_id: Option<Bytes>,
    /// The user it was admitted as.
    pub(super) user: Option<Bytes>,
    /// Whether something waits to be written, and is going to be.
    pub(super) is_dirty: bool,
    /// What waits to be written, as it was counted last.
    pub(super) counted: usize,
    /// What has come of a message that is not whole, as it was counted last, and since when there is such a message.
    pub(super) unfinished: usize,
    pub(super) unfinished_since: Nanos,
    /// Whether it is to be heard again in the next pass.
    pub(super) is_again: bool,
}

impl Peer {
    /// The number by which a socket knows it.
    pub(super) fn id(&self) -> ConnectionId {
        ConnectionId(self.link.number())
    }

    /// Is written to before the next wait.
    pub(super) fn write_soon(&mut self, dirty: &mut Vec<LinkId>) {
        if !std::mem::replace(&mut self.is_dirty, true) {
            dirty.push(self.link);
        }
    }

    /// Is heard again in the next pass.
    pub(super) fn hear_again(&mut self, again: &mut Vec<LinkId>) {
        if !std::mem::replace(&mut self.is_again, true) {
            again.push(self.link);
        }
    }

    /// Counts what waits to be written with what waits for all.
    pub(super) fn count(&mut self, all: &mut usize) {
        let waiting = self.connection.backlog().bytes;
        *all = *all - std::mem::replace(&mut self.counted, waiting) + waiting;
    }

    /// Counts what has come of a message that is not whole with that of all.
    pub(super) fn count_unfinished(&mut self, now: Nanos, all: &mut usize) {
        let unfinished = self.connection.unfinished();
        if self.unfinished == 0 {
            self.unfinished_since = now;
        }
        *all = *all - std::mem::replace(&mut self.unfinished, unfinished) + unfinished;
    }

    /// How fast the message comes that is not whole, in bytes a second.
    pub(super) fn pace(&self, now: Nanos) -> u128 {
        let took = (now - self.unfinished_since).as_nanos().max(1);
        self.unfinished as u128 * 1_000_000_000 / took
    }
}
