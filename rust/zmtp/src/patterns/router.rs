//! Messages to the peers they address: ROUTER, of RFC 28.

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};
use foldhash::quality::RandomState;
use trunkline_wire::Backlog;

use super::holders::Holders;
use super::{ConnectionId, Holder, wire_bytes};
use crate::{HighWater, Reason};

/// Routing ids remembered while their holders are not connected: what a role keeps for a holder must not go to another.
const REMEMBERED: usize = 1 << 16;

/// A peer that was admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Its routing id from now on: the one it claims, or a new one if it claims none or one of another holder.
    pub routing_id: Bytes,
    /// The connection that had it, to be closed with [`Reason::HandedOver`].
    pub replaced: Option<ConnectionId>,
}

/// The route of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routed {
    /// To this connection.
    To(ConnectionId),
    /// Nowhere, since the socket is not mandatory: it was counted.
    Dropped(Unsent),
}

/// Why a message cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// The peer's limit of pending messages is reached.
    Full,
    /// No connection has this routing id.
    Unreachable,
}

/// What a ROUTER refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterCounts {
    /// Connections that claimed a routing id that was taken.
    pub taken: u64,
    /// Connections that lost their routing id to another of the same holder.
    pub handed_over: u64,
    /// Messages dropped because their peer was full.
    pub full: u64,
    /// Messages dropped because their peer was not connected.
    pub unreachable: u64,
}

#[derive(Debug)]
struct Peer {
    connection: ConnectionId,
    holder: Holder,
    backlog: Backlog,
    /// The bytes that were pending for it when a message was refused.
    refused: Option<usize>,
}

/// Knows peers by their routing ids, and each by its connection.
#[derive(Debug)]
pub struct Router {
    high_water: HighWater,
    mandatory: bool,
    handover: bool,
    peers: HashMap<Bytes, Peer, RandomState>,
    ids: HashMap<ConnectionId, Bytes, RandomState>,
    holders: Holders,
    /// The number in the next routing id that is given out.
    next: u32,
    counts: RouterCounts,
    /// Peers that refused a message, and have room again or are gone.
    drained: Vec<Bytes>,
}

impl Router {
    /// Without peers. With `mandatory` a message that cannot be sent is an error; with `handover` a routing id goes to
    /// the latest connection of its holder. Routing ids that are given out count from `first`.
    pub fn new(high_water: HighWater, mandatory: bool, handover: bool, first: u32) -> Self {
        Self {
            high_water,
            mandatory,
            handover,
            peers: HashMap::default(),
            ids: HashMap::default(),
            holders: Holders::new(REMEMBERED),
            next: first,
            counts: RouterCounts::default(),
            drained: vec![],
        }
    }

    /// A connection is ready: admits it under the routing id that it claims or is given, or refuses it.
    ///
    /// # Errors
    /// Where another holder has the id: the connection must be closed with this reason.
    pub fn connected(&mut self, connection: ConnectionId, identity: Bytes, holder: Holder) -> Result<Admitted, Reason> {
        if let Some(before) = self.peers.get(&identity).filter(|_| !identity.is_empty())
            && !(self.handover && before.holder == holder)
        {
            self.counts.taken += 1;
            return Err(Reason::IdentityTaken);
        }
        let replaced = self.peers.get(&identity).map(|before| before.connection);
        if let Some(before) = replaced {
            self.disconnected(before);
            self.counts.handed_over += 1;
        }
        let is_its_own = !identity.is_empty() && self.holders.claim(&identity, &holder);
        let routing_id = if is_its_own { identity } else { self.unused() };
        self.ids.insert(connection, routing_id.clone());
        self.peers.insert(routing_id.clone(), Peer { connection, holder, backlog: Backlog::default(), refused: None });
        Ok(Admitted { routing_id, replaced })
    }

    /// A connection is gone. Gives the routing id that it had, if any.
    pub fn disconnected(&mut self, connection: ConnectionId) -> Option<Bytes> {
        let id = self.ids.remove(&connection)?;
        if self.peers.remove(&id).is_some_and(|peer| peer.refused.is_some()) {
            self.drained.push(id.clone());
        }
        self.holders.leave(&id);
        Some(id)
    }

    /// The routing id of a connection.
    pub fn routing_id(&self, connection: ConnectionId) -> Option<&Bytes> {
        self.ids.get(&connection)
    }

    /// The connection that has a routing id now.
    pub fn connection(&self, routing_id: &[u8]) -> Option<ConnectionId> {
        self.peers.get(routing_id).map(|peer| peer.connection)
    }

    /// The backlog of the peer with a routing id.
    pub fn backlog(&self, routing_id: &[u8]) -> Backlog {
        self.peers.get(routing_id).map(|peer| peer.backlog).unwrap_or_default()
    }

    /// Finds the connection for a message to a routing id.
    ///
    /// # Errors
    /// Where it cannot be sent, if the socket is mandatory.
    pub fn route(&mut self, to: &[u8], frames: &[Bytes]) -> Result<Routed, Unsent> {
        let peer = self.peers.get_mut(to);
        let unsent = match peer {
            Some(peer) if self.high_water.admits(peer.backlog) => {
                peer.backlog.messages += 1;
                peer.backlog.bytes += wire_bytes(frames);
                return Ok(Routed::To(peer.connection));
            }
            Some(_) => Unsent::Full,
            None => Unsent::Unreachable,
        };
        if self.mandatory {
            return Err(unsent);
        }
        match unsent {
            Unsent::Full => self.counts.full += 1,
            Unsent::Unreachable => self.counts.unreachable += 1,
        }
        Ok(Routed::Dropped(unsent))
    }

    /// Reports the backlog of a connection.
    pub fn handle_backlog(&mut self, connection: ConnectionId, backlog: Backlog) {
        let Some(id) = self.ids.get(&connection) else { return };
        let Some(peer) = self.peers.get_mut(id) else { return };
        peer.backlog = backlog;
        // Half of it: else a peer that takes single messages would be reported for each.
        if peer.refused.is_some_and(|refused| backlog.bytes <= refused / 2) {
            peer.refused = None;
            self.drained.push(id.clone());
        }
    }

    /// A message to this peer was refused: [`poll_drained`](Self::poll_drained) reports it once there is room.
    pub fn handle_refused(&mut self, to: &[u8]) {
        if let Some(peer) = self.peers.get_mut(to) {
            peer.refused.get_or_insert(peer.backlog.bytes);
        }
    }

    /// There may be room for a message to this peer that was not routed.
    pub fn handle_room(&mut self, to: Bytes) {
        self.drained.push(to);
    }

    /// The next peer that refused a message, and has room again or is gone.
    pub fn poll_drained(&mut self) -> Option<Bytes> {
        self.drained.pop()
    }

    /// Whether there is such a peer.
    pub fn has_drained(&self) -> bool {
        !self.drained.is_empty()
    }

    /// The number of peers.
    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    /// What was refused.
    pub fn counts(&self) -> RouterCounts {
        self.counts
    }

    /// An unused routing id that no peer can claim, as it begins with a zero byte.
    fn unused(&mut self) -> Bytes {
        loop {
            let mut id = BytesMut::with_capacity(5);
            id.put_u8(0);
            id.put_u32(self.next);
            self.next = self.next.wrapping_add(1);
            if !self.peers.contains_key(&id[..]) {
                return id.freeze();
            }
        }
    }
}
