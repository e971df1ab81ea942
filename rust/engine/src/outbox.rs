//! Sends that a transport did not take at once.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use foldhash::quality::RandomState;
use trunkline_wire::{Nanos, Parcel, SendId, Unsent, cost};

/// Pending messages of one peer of a ROUTER; beyond it the newest is dropped.
const PEER_MESSAGES: usize = 10_000;
const PEER_BYTES: usize = 16 << 20;

/// Pending bytes of all peers of a role together, by default.
pub(crate) const OUTBOX_BYTES: usize = 256 << 20;

/// The first wait before a full peer is retried, doubled each time, where the transport does not report when it drains.
const FIRST_RETRY: Duration = Duration::from_millis(1);
const LAST_RETRY: Duration = Duration::from_millis(50);

/// Where a send goes: to a routing id, or to any peer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct To(pub(crate) Option<Bytes>);

/// A pending send.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) id: Option<SendId>,
    pub(crate) frames: Parcel,
    pub(crate) until: Option<Nanos>,
}

#[derive(Debug)]
struct Peer {
    queue: VecDeque<Pending>,
    bytes: usize,
    /// No send of the queue is given up before this.
    first_limit: Option<Nanos>,
    /// When to retry; where this is none, only after the transport reports that the peer has drained.
    retry_at: Option<Nanos>,
    retry: Duration,
}

impl Peer {
    fn keep(&mut self, pending: Pending) {
        self.first_limit = self.first_limit.into_iter().chain(pending.until).min();
        self.queue.push_back(pending);
    }
}

/// The pending sends: a queue for each peer of a ROUTER, one queue on other sockets.
#[derive(Debug, Default)]
pub(crate) struct Outboxes {
    peers: HashMap<To, Peer, RandomState>,
    /// The peers of a ROUTER by their pending bytes.
    by_bytes: BTreeSet<(usize, To)>,
    /// The pending bytes of all of them.
    bytes: usize,
    /// Whether the transport reports when a peer has drained.
    reports_drained: bool,
}

impl Outboxes {
    /// Without sends. `reports_drained`: the transport reports when a peer has drained.
    pub(crate) fn new(reports_drained: bool) -> Self {
        Self { reports_drained, ..Self::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    pub(crate) fn holds(&self, to: Option<&Bytes>) -> bool {
        !self.peers.is_empty() && self.peers.contains_key(&To(to.cloned()))
    }

    /// Whether a send to any peer waits until the socket is writable.
    pub(crate) fn wants_writable(&self) -> bool {
        self.peers.contains_key(&To(None))
    }

    /// The pending bytes of the peers of a ROUTER.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The pending bytes of the peer that has the most, if that is more than a single send.
    pub(crate) fn most(&self) -> Option<usize> {
        let (bytes, to) = self.by_bytes.last()?;
        let is_one = self.peers.get(to).is_some_and(|peer| peer.queue.len() == 1);
        (!is_one || self.by_bytes.len() > 1).then_some(*bytes)
    }

    /// Takes out the newest send to the peer that has the most.
    pub(crate) fn pop_most(&mut self) -> Option<Pending> {
        let (_, to) = self.by_bytes.last()?.clone();
        self.change(&to, |peer| peer.queue.pop_back().into_iter().collect()).pop()
    }

    /// Changes a queue by `change`, which gives what it took out; forgets a peer without pending sends.
    fn change(&mut self, to: &To, change: impl FnOnce(&mut Peer) -> Vec<Pending>) -> Vec<Pending> {
        let Some(peer) = self.peers.get_mut(to) else { return vec![] };
        let before = peer.bytes;
        let gone = change(peer);
        peer.bytes -= gone.iter().map(|pending| cost(&pending.frames)).sum::<usize>();
        let now = peer.bytes;
        if peer.queue.is_empty() {
            self.peers.remove(to);
        }
        self.weigh(to, before, now);
        gone
    }

    fn weigh(&mut self, to: &To, before: usize, now: usize) {
        if to.0.is_none() || before == now {
            return;
        }
        self.bytes = self.bytes - before + now;
        self.by_bytes.remove(&(before, to.clone()));
        if now > 0 {
            self.by_bytes.insert((now, to.clone()));
        }
    }

    /// Queues a send, or gives the reason why not.
    pub(crate) fn push(&mut self, now: Nanos, to: &To, pending: Pending) -> Result<(), Unsent> {
        let bounded = to.0.is_some();
        let retry_at = (!self.reports_drained).then(|| now + FIRST_RETRY);
        let peer = self.peers.entry(to.clone()).or_insert_with(|| Peer {
            queue: VecDeque::new(),
            bytes: 0,
            first_limit: None,
            retry_at,
            retry: FIRST_RETRY,
        });
        let (before, size) = (peer.bytes, cost(&pending.frames));
        let full = peer.queue.len() >= PEER_MESSAGES || before + size > PEER_BYTES;
        if bounded && full && !peer.queue.is_empty() {
            return Err(Unsent::PeerFull);
        }
        peer.bytes += size;
        peer.keep(pending);
        self.weigh(to, before, before + size);
        Ok(())
    }

    /// When to retry a peer, or to give up a send.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let retries = self.peers.iter().filter(|(to, _)| to.0.is_some()).filter_map(|(_, peer)| peer.retry_at);
        let limits = self.peers.values().filter_map(|peer| peer.first_limit);
        retries.chain(limits).min()
    }

    /// Takes out the sends past their deadline.
    pub(crate) fn expire(&mut self, now: Nanos) -> Vec<Pending> {
        let is_late = |limit: Option<Nanos>| limit.is_some_and(|limit| limit <= now);
        let late = self.peers.iter().filter(|(_, peer)| is_late(peer.first_limit)).map(|(to, _)| to.clone());
        let late: Vec<_> = late.collect();
        let expire = |peer: &mut Peer| {
            peer.first_limit = None;
            let (gone, kept) =
                std::mem::take(&mut peer.queue).into_iter().partition::<Vec<_>, _>(|pending| is_late(pending.until));
            for pending in kept {
                peer.keep(pending);
            }
            gone
        };
        late.iter().flat_map(|to| self.change(to, expire)).collect()
    }

    /// Takes out one send; false if it is not queued.
    pub(crate) fn withdraw(&mut self, id: SendId) -> bool {
        let find = |peer: &Peer| peer.queue.iter().position(|pending| pending.id == Some(id));
        let found = self.peers.iter().find_map(|(to, peer)| find(peer).map(|at| (to.clone(), at)));
        let Some((to, at)) = found else { return false };
        self.change(&to, |peer| peer.queue.remove(at).into_iter().collect());
        true
    }

    /// The peers to retry now.
    pub(crate) fn due(&self, now: Nanos, writable: bool) -> Vec<To> {
        let is_due = |(to, peer): &(&To, &Peer)| {
            if to.0.is_some() { peer.retry_at.is_some_and(|at| at <= now) } else { writable }
        };
        self.peers.iter().filter(is_due).map(|(to, _)| to.clone()).collect()
    }

    pub(crate) fn front(&self, to: &To) -> Option<&Pending> {
        self.peers.get(to)?.queue.front()
    }

    /// Takes out a peer's first send, which is settled.
    pub(crate) fn pop(&mut self, to: &To) -> Option<Pending> {
        let settle = |peer: &mut Peer| {
            peer.retry = FIRST_RETRY;
            peer.queue.pop_front().into_iter().collect()
        };
        self.change(to, settle).pop()
    }

    /// The peer has room again, or is gone.
    pub(crate) fn handle_drained(&mut self, now: Nanos, peer: Bytes) {
        if let Some(peer) = self.peers.get_mut(&To(Some(peer))) {
            peer.retry_at = Some(now);
        }
    }

    /// The peer is still full.
    pub(crate) fn postpone(&mut self, now: Nanos, to: &To) {
        if let Some(peer) = self.peers.get_mut(to) {
            peer.retry_at = (!self.reports_drained).then(|| now + peer.retry);
            peer.retry = (peer.retry * 2).min(LAST_RETRY);
        }
    }

    pub(crate) fn clear(&mut self) -> impl Iterator<Item = Pending> + use<> {
        self.by_bytes.clear();
        self.bytes = 0;
        std::mem::take(&mut self.peers).into_values().flat_map(|peer| peer.queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(peer: u8) -> To {
        To(Some(Bytes::copy_from_slice(&[peer])))
    }

    fn pending(id: u64, bytes: usize) -> Pending {
        Pending {
            id: Some(SendId(id)),
            frames: trunkline_wire::Frames::from_iter([Bytes::from(vec![0; bytes])]).into(),
            until: None,
        }
    }

    fn id(pending: Option<Pending>) -> Option<u64> {
        pending.and_then(|pending| pending.id).map(|id| id.0)
    }

    #[test]
    fn the_fullest_loses_its_newest_first() {
        let mut outboxes = Outboxes::default();
        for (peer, number) in [(1, 3), (2, 5), (3, 4)] {
            for at in 0..number {
                outboxes.push(Nanos(0), &to(peer), pending(u64::from(peer) * 10 + at, 1000)).expect("room");
            }
        }
        let each = 1000 + trunkline_wire::FRAME_COST;
        assert_eq!((outboxes.bytes(), outboxes.most()), (12 * each, Some(5 * each)));
        assert_eq!(id(outboxes.pop_most()), Some(24));
        // Of two peers with as much, either may lose.
        assert_eq!((id(outboxes.pop_most()), id(outboxes.pop_most())), (Some(33), Some(23)));
        assert_eq!((outboxes.bytes(), outboxes.most()), (9 * each, Some(3 * each)));
        assert_eq!(id(outboxes.pop(&to(2))), Some(20));
        assert!(outboxes.withdraw(SendId(30)));
        assert_eq!((outboxes.bytes(), outboxes.most()), (7 * each, Some(3 * each)));
        assert_eq!(id(outboxes.pop_most()), Some(12));
    }

    #[test]
    fn a_single_send_is_never_too_large() {
        let mut outboxes = Outboxes::default();
        outboxes.push(Nanos(0), &to(1), pending(1, 1 << 20)).expect("room");
        assert_eq!(outboxes.most(), None);
        outboxes.push(Nanos(0), &to(2), pending(2, 1)).expect("room");
        assert!(outboxes.most().is_some());
        assert_eq!(outboxes.clear().count(), 2);
        assert_eq!((outboxes.bytes(), outboxes.most()), (0, None));
    }
}
