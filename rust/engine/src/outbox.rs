//! Sends that a transport did not take at once.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use trunkline_wire::{Frames, Nanos, SendId, Unsent};

/// What one peer of a ROUTER may have waiting; beyond it the newest is dropped.
const PEER_MESSAGES: usize = 10_000;
const PEER_BYTES: usize = 16 << 20;

/// A full peer is tried again after this long, twice as long each time: libzmq never says when it drains.
const FIRST_RETRY: Duration = Duration::from_millis(1);
const LAST_RETRY: Duration = Duration::from_millis(50);

/// Whom a send goes to: a routing id, or nobody in particular.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct To(pub(crate) Option<Bytes>);

/// A send that waits.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) id: Option<SendId>,
    pub(crate) frames: Frames,
    pub(crate) until: Option<Nanos>,
}

impl Pending {
    fn size(&self) -> usize {
        self.frames.iter().map(Bytes::len).sum()
    }
}

#[derive(Debug)]
struct Peer {
    queue: VecDeque<Pending>,
    bytes: usize,
    /// No send of the queue is to be given up before this.
    first_limit: Option<Nanos>,
    retry_at: Nanos,
    retry: Duration,
}

impl Peer {
    fn keep(&mut self, pending: Pending) {
        self.first_limit = self.first_limit.into_iter().chain(pending.until).min();
        self.queue.push_back(pending);
    }
}

/// The sends that wait, a queue for each peer of a ROUTER, one queue on other sockets.
#[derive(Debug, Default)]
pub(crate) struct Outboxes {
    peers: HashMap<To, Peer>,
}

impl Outboxes {
    pub(crate) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    pub(crate) fn holds(&self, to: Option<&Bytes>) -> bool {
        !self.peers.is_empty() && self.peers.contains_key(&To(to.cloned()))
    }

    /// Whether a send to nobody in particular waits for the socket to be writable.
    pub(crate) fn wants_writable(&self) -> bool {
        self.peers.contains_key(&To(None))
    }

    /// Queues a send, or says why not.
    pub(crate) fn push(&mut self, now: Nanos, to: To, pending: Pending) -> Result<(), Unsent> {
        let bounded = to.0.is_some();
        let peer = self.peers.entry(to).or_insert_with(|| Peer {
            queue: VecDeque::new(),
            bytes: 0,
            first_limit: None,
            retry_at: now + FIRST_RETRY,
            retry: FIRST_RETRY,
        });
        let size = pending.size();
        let full = peer.queue.len() >= PEER_MESSAGES || peer.bytes + size > PEER_BYTES;
        if bounded && full && !peer.queue.is_empty() {
            return Err(Unsent::PeerFull);
        }
        peer.bytes += size;
        peer.keep(pending);
        Ok(())
    }

    /// When a peer wants another try, or a send is given up.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let retries = self.peers.iter().filter(|(to, _)| to.0.is_some()).map(|(_, peer)| peer.retry_at);
        let limits = self.peers.values().filter_map(|peer| peer.first_limit);
        retries.chain(limits).min()
    }

    /// Takes out what is past its time.
    pub(crate) fn expire(&mut self, now: Nanos, mut expired: impl FnMut(Pending)) {
        for peer in self.peers.values_mut().filter(|peer| peer.first_limit.is_some_and(|limit| limit <= now)) {
            peer.first_limit = None;
            for pending in std::mem::take(&mut peer.queue) {
                if pending.until.is_some_and(|until| until <= now) {
                    peer.bytes -= pending.size();
                    expired(pending);
                } else {
                    peer.keep(pending);
                }
            }
        }
        self.peers.retain(|_, peer| !peer.queue.is_empty());
    }

    /// Takes out one send; false if it is not here.
    pub(crate) fn withdraw(&mut self, id: SendId) -> bool {
        let is_found = self.peers.values_mut().any(|peer| {
            let at = peer.queue.iter().position(|pending| pending.id == Some(id));
            let gone = at.and_then(|at| peer.queue.remove(at));
            peer.bytes -= gone.as_ref().map_or(0, Pending::size);
            gone.is_some()
        });
        self.peers.retain(|_, peer| !peer.queue.is_empty());
        is_found
    }

    /// The peers whose turn it is to be tried again.
    pub(crate) fn due(&self, now: Nanos, writable: bool) -> Vec<To> {
        let is_due = |(to, peer): &(&To, &Peer)| if to.0.is_some() { peer.retry_at <= now } else { writable };
        self.peers.iter().filter(is_due).map(|(to, _)| to.clone()).collect()
    }

    pub(crate) fn front(&self, to: &To) -> Option<&Pending> {
        self.peers.get(to)?.queue.front()
    }

    /// Takes out a peer's first send, which is settled.
    pub(crate) fn pop(&mut self, to: &To) -> Option<Pending> {
        let peer = self.peers.get_mut(to)?;
        let pending = peer.queue.pop_front()?;
        peer.bytes -= pending.size();
        peer.retry = FIRST_RETRY;
        if peer.queue.is_empty() {
            self.peers.remove(to);
        }
        Some(pending)
    }

    /// The peer is still full.
    pub(crate) fn postpone(&mut self, now: Nanos, to: &To) {
        if let Some(peer) = self.peers.get_mut(to) {
            peer.retry_at = now + peer.retry;
            peer.retry = (peer.retry * 2).min(LAST_RETRY);
        }
    }

    /// Takes out everything.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = Pending> + use<> {
        std::mem::take(&mut self.peers).into_values().flat_map(|peer| peer.queue)
    }
}
