//! The peers, their queues, and when each TTL is due.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use foldhash::quality::RandomState;

use super::Overflow;
use super::outgoing::Outgoing;
use super::topics::Subscriptions;
use crate::slab::{Slab, Slot};
use crate::{Nanos, Origin};

/// How many messages the transport is offered for one peer at a time; the rest stays here, subject to the limits.
const BATCH: u32 = 64;

/// How many bytes end a batch, too.
const BATCH_BYTES: usize = 64 << 10;

/// How many slots are searched for one client.
const LOOKED_AT: usize = 64;

/// What a peer is to the middleware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not a client; messages are queued for it.
    Stranger,
    /// It has subscriptions, or had until just now.
    Subscriber,
    /// It sent CONNECT.
    Connected,
}

/// A client, or a peer with queued messages.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) address: Bytes,
    /// The name it has proved by its key.
    pub(super) user: Option<Bytes>,
    /// Whether its latest message began with an empty frame (MC0-07).
    pub(super) is_delimited: bool,
    pub(super) standing: Standing,
    ttl: Option<Duration>,
    heard: Nanos,
    spoke: Nanos,
    /// When to check it again, if it has a TTL.
    due: Option<Nanos>,
    pub(super) subscriptions: Subscriptions,
    queue: VecDeque<Arc<Outgoing>>,
    queue_bytes: usize,
    /// How many messages the transport was offered, and has neither taken nor refused.
    offered: u32,
    /// Bytes of the batch.
    offered_bytes: usize,
    /// Whether it is queued for its next batch.
    is_ready: bool,
    /// Whether its queue is to be checked against the limits.
    is_touched: bool,
    /// The bytes it is listed with among the peers that do not read.
    weighed: usize,
    /// Messages lost since the transport last took one for it.
    lost: u64,
}

impl Peer {
    pub(super) fn is_client(&self) -> bool {
        self.standing != Standing::Stranger
    }

    /// Its origin, for events.
    pub(super) fn origin(&self) -> Origin {
        Origin::new(self.address.clone(), self.user.clone())
    }

    /// Topics that it is subscribed to, `most` at most.
    pub(super) fn topics(&self, most: usize) -> Vec<Slot> {
        self.subscriptions.keys().take(most).copied().collect()
    }

    /// Whether the transport has taken all its messages.
    fn is_served(&self) -> bool {
        self.queue.is_empty() && self.offered == 0
    }

    /// What its TTL requires now, and when to check again.
    fn duty(&self, now: Nanos) -> Option<(Duty, Nanos)> {
        let ttl = self.ttl?;
        let (absent, quiet) = (self.heard + ttl * 21 / 20, ttl * 19 / 20);
        if absent <= now {
            return Some((Duty::Forget, now));
        }
        // Queued messages serve as a NOOP.
        let since = if self.is_served() { self.spoke } else { now };
        let is_due = since + quiet <= now;
        let next = if is_due { now + quiet } else { since + quiet };
        Some((if is_due { Duty::Greet } else { Duty::Nothing }, next.min(absent)))
    }
}

/// What the TTL of a peer requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// To forget it: it was silent for too long (MC0-21).
    Forget,
    /// To send it a NOOP: nothing was sent for long (MC0-22).
    Greet,
    Nothing,
}

/// The limits of queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) overflow: Overflow,
    pub(super) client_messages: usize,
    pub(super) client_bytes: usize,
    pub(super) bytes: usize,
}

/// A queue over its limits.
pub(super) enum Excess {
    /// This many of its messages were dropped.
    Lost(Slot, u64),
    /// The client has to be disconnected.
    Disconnect(Slot),
}

/// All peers that are kept.
#[derive(Debug)]
pub(super) struct Peers {
    all: Slab<Peer>,
    by_address: HashMap<Bytes, Slot, RandomState>,
    due: BTreeSet<(Nanos, Slot)>,
    ready: VecDeque<Slot>,
    touched: Vec<Slot>,
    /// Peers that do not read, by the bytes queued for them.
    by_bytes: BTreeSet<(usize, Slot)>,
    /// How many messages are queued or offered to the transport.
    pub(super) waiting: usize,
    /// The bytes of all queued messages, each counted once.
    held: usize,
    /// The client that was checked last for being gone.
    sought: Slot,
}

impl Peers {
    pub(super) fn new() -> Self {
        Self {
            all: Slab::new(),
            by_address: HashMap::default(),
            due: BTreeSet::new(),
            ready: VecDeque::new(),
            touched: vec![],
            by_bytes: BTreeSet::new(),
            waiting: 0,
            held: 0,
            sought: 0,
        }
    }

    pub(super) fn get(&self, peer: Slot) -> &Peer {
        &self.all[peer]
    }

    pub(super) fn get_mut(&mut self, peer: Slot) -> &mut Peer {
        &mut self.all[peer]
    }

    /// The next client in turn that may be gone, if nothing is queued for it.
    pub(super) fn seek(&mut self) -> Option<Slot> {
        self.sought = self.all.after(self.sought, LOOKED_AT)?;
        let peer = &self.all[self.sought];
        (peer.is_client() && peer.is_served()).then_some(self.sought)
    }

    /// The origin of a kept peer.
    pub(super) fn origin(&self, peer: Slot) -> Option<Origin> {
        self.all.get(peer).map(Peer::origin)
    }

    pub(super) fn clients(&self) -> impl Iterator<Item = Slot> {
        let slots = self.by_address.values().copied();
        slots.filter(|peer| self.all[*peer].is_client())
    }

    /// The peer at this address, if it is kept; it has just sent something.
    pub(super) fn heard(&mut self, now: Nanos, address: &Bytes, is_delimited: bool) -> Option<Slot> {
        let slot = *self.by_address.get(address)?;
        let peer = &mut self.all[slot];
        peer.heard = now;
        peer.is_delimited = is_delimited;
        Some(slot)
    }

    pub(super) fn insert(&mut self, now: Nanos, address: &Bytes, user: Option<&Bytes>, is_delimited: bool) -> Slot {
        // Copies: both may be part of a larger buffer.
        let address = Bytes::copy_from_slice(address);
        let slot = self.all.insert(Peer {
            address: address.clone(),
            user: user.map(|user| Bytes::copy_from_slice(user)),
            is_delimited,
            standing: Standing::Stranger,
            ttl: None,
            heard: now,
            spoke: now,
            due: None,
            subscriptions: Subscriptions::default(),
            queue: VecDeque::new(),
            queue_bytes: 0,
            offered: 0,
            offered_bytes: 0,
            is_ready: false,
            is_touched: false,
            weighed: 0,
            lost: 0,
        });
        self.by_address.insert(address, slot);
        slot
    }

    /// Sets the TTL of a peer.
    pub(super) fn set_ttl(&mut self, now: Nanos, slot: Slot, ttl: Option<Duration>) {
        let peer = &mut self.all[slot];
        peer.ttl = ttl;
        peer.spoke = now;
        let next = peer.duty(now).map(|(_, next)| next);
        self.schedule(slot, next);
    }

    /// Removes the TTL of a peer.
    pub(super) fn stop(&mut self, slot: Slot) {
        self.all[slot].ttl = None;
        self.schedule(slot, None);
    }

    /// The next peer whose TTL requires something.
    pub(super) fn due(&mut self, now: Nanos) -> Option<(Slot, Duty)> {
        let &(at, slot) = self.due.first()?;
        if at > now {
            return None;
        }
        let (duty, next) = self.all[slot].duty(now)?;
        self.schedule(slot, Some(next));
        Some((slot, duty))
    }

    pub(super) fn poll_timeout(&self) -> Option<Nanos> {
        self.due.first().map(|(at, _)| *at)
    }

    fn schedule(&mut self, slot: Slot, next: Option<Nanos>) {
        let peer = &mut self.all[slot];
        if let Some(before) = std::mem::replace(&mut peer.due, next) {
            self.due.remove(&(before, slot));
        }
        self.due.extend(next.map(|next| (next, slot)));
    }

    /// Queues a message.
    pub(super) fn send(&mut self, slot: Slot, outgoing: &Arc<Outgoing>) {
        if Arc::strong_count(outgoing) == 1 {
            self.held += outgoing.cost;
        }
        let peer = &mut self.all[slot];
        peer.queue_bytes += outgoing.cost;
        peer.queue.push_back(Arc::clone(outgoing));
        self.waiting += 1;
        if peer.offered == 0 {
            self.make_ready(slot);
        } else {
            self.touch(slot);
        }
    }

    fn make_ready(&mut self, slot: Slot) {
        if !std::mem::replace(&mut self.all[slot].is_ready, true) {
            self.ready.push_back(slot);
        }
    }

    fn touch(&mut self, slot: Slot) {
        if !std::mem::replace(&mut self.all[slot].is_touched, true) {
            self.touched.push(slot);
        }
    }

    /// The next message for the transport.
    pub(super) fn offer(&mut self) -> Option<(Slot, Arc<Outgoing>)> {
        while let Some(&slot) = self.ready.front() {
            let peer = &mut self.all[slot];
            let has_room = peer.offered < BATCH && peer.offered_bytes < BATCH_BYTES;
            if let Some(outgoing) = has_room.then(|| peer.queue.pop_front()).flatten() {
                peer.offered += 1;
                peer.offered_bytes += outgoing.cost;
                peer.queue_bytes -= outgoing.cost;
                self.release(&outgoing);
                return Some((slot, outgoing));
            }
            peer.is_ready = false;
            self.ready.pop_front();
            if self.all[slot].queue.is_empty() {
                self.tidy(slot);
            } else {
                self.touch(slot);
            }
        }
        None
    }

    /// A message left a queue: its last copy counts no more.
    fn release(&mut self, outgoing: &Arc<Outgoing>) {
        if Arc::strong_count(outgoing) == 1 {
            self.held -= outgoing.cost;
        }
    }

    /// The transport has taken or refused a message for this peer. Returns whether one was offered.
    pub(super) fn settle(&mut self, now: Nanos, slot: Slot, is_sent: bool) -> bool {
        let Some(peer) = self.all.get_mut(slot).filter(|peer| peer.offered > 0) else { return false };
        peer.offered -= 1;
        self.waiting -= 1;
        if is_sent {
            peer.spoke = now;
            peer.lost = 0;
        }
        if peer.offered == 0 {
            peer.offered_bytes = 0;
            if peer.queue.is_empty() {
                self.tidy(slot);
            } else {
                self.make_ready(slot);
            }
        }
        true
    }

    /// The next queue over its limits, once the transport has taken all it can.
    pub(super) fn excess(&mut self, bounds: &Bounds) -> Option<Excess> {
        while let Some(slot) = self.touched.pop() {
            self.all[slot].is_touched = false;
            let mut lost = 0;
            while self.is_over(slot, bounds) {
                if bounds.overflow == Overflow::Disconnect && self.all[slot].is_client() {
                    return Some(Excess::Disconnect(slot));
                }
                self.lose(slot, bounds.overflow);
                lost += 1;
            }
            self.weigh(slot);
            self.tidy(slot);
            if lost > 0 {
                return Some(Excess::Lost(slot, lost));
            }
        }
        let slot = loop {
            let (_, slot) = self.by_bytes.last().copied().filter(|_| self.held > bounds.bytes)?;
            if self.all[slot].weighed == self.all[slot].queue_bytes {
                break slot;
            }
            // It has read since it was listed.
            self.weigh(slot);
        };
        if bounds.overflow == Overflow::Disconnect && self.all[slot].is_client() {
            return Some(Excess::Disconnect(slot));
        }
        self.lose(slot, bounds.overflow);
        self.weigh(slot);
        Some(Excess::Lost(slot, 1))
    }

    /// Counts messages lost for a peer. Returns whether they are the first since the transport last took one for it.
    pub(super) fn begins_to_lose(&mut self, slot: Slot, count: u64) -> bool {
        let lost = &mut self.all[slot].lost;
        *lost += count;
        *lost == count
    }

    fn is_over(&self, slot: Slot, bounds: &Bounds) -> bool {
        let peer = &self.all[slot];
        let waiting = peer.queue.len();
        waiting > bounds.client_messages || (waiting > 1 && peer.queue_bytes > bounds.client_bytes)
    }

    fn lose(&mut self, slot: Slot, overflow: Overflow) {
        let peer = &mut self.all[slot];
        let lost = match overflow {
            Overflow::DropOldest => peer.queue.pop_front(),
            Overflow::DropNewest | Overflow::Disconnect => peer.queue.pop_back(),
        };
        if let Some(outgoing) = lost {
            peer.queue_bytes -= outgoing.cost;
            self.waiting -= 1;
            self.release(&outgoing);
        }
    }

    /// Drops what is queued for a peer. Returns how many messages.
    pub(super) fn clear(&mut self, slot: Slot) -> u64 {
        let mut lost = 0;
        while !self.all[slot].queue.is_empty() {
            self.lose(slot, Overflow::DropNewest);
            lost += 1;
        }
        self.weigh(slot);
        lost
    }

    fn weigh(&mut self, slot: Slot) {
        let peer = &mut self.all[slot];
        let before = std::mem::replace(&mut peer.weighed, peer.queue_bytes);
        if before > 0 {
            self.by_bytes.remove(&(before, slot));
        }
        if self.all[slot].weighed > 0 {
            self.by_bytes.insert((self.all[slot].weighed, slot));
        }
    }

    /// Removes a peer that need not be kept.
    pub(super) fn tidy(&mut self, slot: Slot) {
        let Some(peer) = self.all.get(slot) else { return };
        if peer.is_client() || !peer.subscriptions.is_empty() || !peer.is_served() || peer.is_ready || peer.is_touched {
            return;
        }
        self.weigh(slot);
        self.schedule(slot, None);
        if let Some(peer) = self.all.remove(slot)
            && self.by_address.get(&peer.address) == Some(&slot)
        {
            self.by_address.remove(&peer.address);
        }
    }

    /// Detaches a peer from its address, which another may use now; its queue stays.
    pub(super) fn disown(&mut self, slot: Slot) {
        let address = self.all[slot].address.clone();
        if self.by_address.get(&address) == Some(&slot) {
            self.by_address.remove(&address);
        }
    }
}
