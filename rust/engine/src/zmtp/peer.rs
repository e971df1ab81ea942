//! One peer: its link and its connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use trunkline_wire::Nanos;
use trunkline_wire::zap::Key;
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

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // they are independent
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
    /// The key it has proven to have, and the user it was admitted as.
    pub(super) key: Option<Key>,
    pub(super) user: Option<Bytes>,
    /// Whether it is listed to be written to.
    pub(super) is_dirty: bool,
    /// The memory of its pending bytes, and whether there are any, as last counted; since when they are measured, and
    /// how many were written since then.
    pub(super) held: usize,
    pub(super) is_pending: bool,
    pub(super) pending_since: Nanos,
    pub(super) taken: usize,
    /// Bytes held of an incomplete message, or of its handshake, as last counted; the number of that message, and since
    /// when it comes.
    pub(super) unfinished: usize,
    pub(super) unfinished_message: u64,
    pub(super) unfinished_since: Nanos,
    /// Whether it is listed for the next pass.
    pub(super) is_again: bool,
    /// Whether another decision about it is pending.
    pub(super) is_asked_again: bool,
    /// Whether it is listed to be watched: its system may not have what was written.
    pub(super) is_watched: bool,
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
    pub(super) fn count(&mut self, now: Nanos, all: &mut Pending) {
        let (held, is_pending) = (self.connection.held(), self.connection.backlog().bytes > 0);
        all.held = all.held - std::mem::replace(&mut self.held, held) + held;
        if is_pending != std::mem::replace(&mut self.is_pending, is_pending) {
            all.peers = if is_pending { all.peers + 1 } else { all.peers - 1 };
            (self.pending_since, self.taken) = (now, 0);
        }
    }

    /// How fast it took what is pending for it, in bytes a second, once that was measured for so long.
    pub(super) fn reading_pace(&mut self, now: Nanos, least: Duration) -> Option<u128> {
        let took = now - self.pending_since;
        let pace = (took >= least).then(|| pace(self.taken, took))?;
        (self.pending_since, self.taken) = (now, 0);
        Some(pace)
    }

    /// Counts its bytes of an incomplete message with those of all at its stage.
    pub(super) fn count_unfinished(&mut self, now: Nanos, all: &mut usize) {
        let (unfinished, message) = (self.connection.unfinished(), self.connection.messages());
        if self.unfinished == 0 || self.unfinished_message != message {
            (self.unfinished_message, self.unfinished_since) = (message, now);
        }
        *all = *all - std::mem::replace(&mut self.unfinished, unfinished) + unfinished;
    }

    /// How fast its incomplete message comes, in bytes a second.
    pub(super) fn pace(&self, now: Nanos) -> u128 {
        pace(self.unfinished, now - self.unfinished_since)
    }
}

fn pace(bytes: usize, took: Duration) -> u128 {
    bytes as u128 * 1_000_000_000 / took.as_nanos().max(1)
}

/// What is pending for all peers.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The memory that each has alone.
    pub(super) held: usize,
    /// The peers that have anything pending.
    pub(super) peers: usize,
}
