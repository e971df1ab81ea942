//! Data connections that have shown their lease, and what waits for each (MTL-30 … MTL-58).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use foldhash::quality::RandomState;

use super::realm::Content;
use super::sessions::Address;
use crate::mtl::heartbeat::Heartbeat;
use crate::slab::{Slab, Slot};
use crate::{Frames, Nanos, Parcel, SendId, cost};

/// What the transport is asked to take for one reader at a time; the rest waits here, or in its queue.
const BATCH: usize = 64;

/// Bytes after which a batch ends too.
const BATCH_BYTES: usize = 64 << 10;

/// What may wait for one reader of what all readers have.
const READER_MESSAGES: usize = 10_000;
const READER_BYTES: usize = 16 << 20;

/// Answers and heartbeats that may wait for one connection.
const WORDS: usize = 10_000;

/// Connections whose lease ended that are told so when they ask.
const GONE: usize = 10_000;

/// What a lease allows (MTL-23 … MTL-26).
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) session: Slot,
    pub(super) reads: bool,
    pub(super) virtual_host: usize,
    pub(super) profile: usize,
    /// In order; empty: any.
    pub(super) resources: Vec<String>,
    /// The first of them as it stands in the rows of a capture.
    pub(super) topic: Option<Bytes>,
    pub(super) is_confirmed: bool,
    /// Contents that a reader may have been given and not settled; where nothing is confirmed, those that it may be given
    /// until it has dismissed all it has summoned.
    pub(super) window: usize,
}

impl Terms {
    pub(super) fn covers(&self, resource: &str) -> bool {
        self.resources.is_empty() || self.resources.binary_search_by(|leased| leased.as_str().cmp(resource)).is_ok()
    }
}

/// A content that a reader has not settled.
#[derive(Debug)]
pub(super) struct InHand {
    pub(super) resource: Slot,
    pub(super) content: Content,
}

/// Something to send.
#[derive(Debug)]
struct Outgoing {
    frames: Parcel,
    /// The content it is, and of which resource.
    content: Option<(u64, Slot)>,
}

/// What became of a send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    pub(super) flow: Slot,
    /// The content it was, and of which resource.
    pub(super) content: Option<(u64, Slot)>,
}

/// A data connection.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub(super) struct Flow {
    pub(super) address: Address,
    serial: u32,
    pub(super) terms: Terms,
    pub(super) heartbeat: Heartbeat,
    /// When to look at it again.
    pub(super) due: Nanos,
    outgoing: VecDeque<Outgoing>,
    bytes: usize,
    /// How many of them are no contents.
    words: usize,
    /// What the transport was asked to take and has not decided on.
    offered: VecDeque<Option<(u64, Slot)>>,
    offered_bytes: usize,
    is_ready: bool,
    /// Whether contents were lost since the transport took one.
    pub(super) is_losing: bool,
    /// The sequence of the last content to a reader, or from a writer.
    pub(super) last: u64,
    /// What a reader has summoned.
    pub(super) summoned: BTreeSet<Slot>,
    /// Those of them in whose ring it does not stand: it had no room when it was its turn.
    pub(super) passed: BTreeSet<Slot>,
    /// Whether it waits to stand there again.
    pub(super) is_woken: bool,
    /// The resource that it was given a content of last.
    pub(super) turn: Slot,
    /// Contents that a reader of queues was given since it had summoned nothing.
    pub(super) taken: usize,
    /// What a reader of a queue has not settled.
    pub(super) in_hand: BTreeMap<u64, InHand>,
    /// Contents of a writer that are being stored.
    pub(super) pending: VecDeque<u64>,
    /// Contents of a writer to confirm.
    pub(super) to_confirm: Vec<u64>,
    /// Whether any content of a writer was rejected.
    pub(super) has_rejected: bool,
}

impl Flow {
    /// Whether a reader may have another content of a queue.
    pub(super) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// How many contents of queues a reader may have now.
    pub(super) fn room(&self) -> usize {
        // Nothing says that a content has arrived that nobody confirms.
        let open = if self.terms.is_confirmed { self.in_hand.len() } else { self.taken };
        let most = if self.bytes < BATCH_BYTES { BATCH.saturating_sub(self.outgoing.len()) } else { 0 };
        self.terms.window.saturating_sub(open).min(most)
    }
}

/// The data connections.
#[derive(Debug)]
pub(super) struct Flows {
    all: Slab<Flow>,
    by_address: HashMap<Address, Slot, RandomState>,
    ready: VecDeque<Slot>,
    /// Those that take none of what they are answered.
    pub(super) unread: Vec<Slot>,
    serial: u32,
    /// What waits for all of them, and how much of it may before each has its fair share.
    bytes: usize,
    budget: usize,
    /// How much of it, and of what the transport has not decided on.
    waiting: usize,
    /// Those whose lease ended, oldest first; one may stand there twice.
    gone: VecDeque<Address>,
    is_gone: HashMap<Address, u32, RandomState>,
}

impl Flows {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            all: Slab::new(),
            by_address: HashMap::default(),
            ready: VecDeque::new(),
            unread: vec![],
            serial: 0,
            bytes: 0,
            budget,
            waiting: 0,
            gone: VecDeque::new(),
            is_gone: HashMap::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Flow> {
        self.all.iter()
    }

    pub(super) fn slots(&self) -> Vec<Slot> {
        self.by_address.values().copied().collect()
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Flow> {
        self.all.get(slot)
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Flow> {
        self.all.get_mut(slot)
    }

    pub(super) fn at(&self, address: &Address) -> Option<Slot> {
        self.by_address.get(address).copied()
    }

    pub(super) fn insert(&mut self, address: Address, terms: Terms, heartbeat: Heartbeat) -> Slot {
        // Zero is of no connection: what is sent to those without one has it.
        self.serial = self.serial.wrapping_add(1).max(1);
        self.was_told(&address);
        let due = heartbeat.due();
        let slot = self.all.insert(Flow {
            address: address.clone(),
            serial: self.serial,
            terms,
            heartbeat,
            due,
            outgoing: VecDeque::new(),
            bytes: 0,
            words: 0,
            offered: VecDeque::new(),
            offered_bytes: 0,
            is_ready: false,
            is_losing: false,
            last: 0,
            summoned: BTreeSet::new(),
            passed: BTreeSet::new(),
            is_woken: false,
            turn: Slot::default(),
            taken: 0,
            in_hand: BTreeMap::new(),
            pending: VecDeque::new(),
            to_confirm: vec![],
            has_rejected: false,
        });
        self.by_address.insert(address, slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Flow> {
        let flow = self.all.remove(slot)?;
        self.by_address.remove(&flow.address);
        self.bytes -= flow.bytes;
        self.waiting -= flow.outgoing.len() + flow.offered.len();
        *self.is_gone.entry(flow.address.clone()).or_default() += 1;
        self.gone.push_back(flow.address.clone());
        if self.gone.len() > GONE
            && let Some(oldest) = self.gone.pop_front()
            && let Some(count) = self.is_gone.get_mut(&oldest)
        {
            *count -= 1;
            if *count == 0 {
                self.is_gone.remove(&oldest);
            }
        }
        Some(flow)
    }

    /// Whether the lease of this connection ended and it was not told; it is now.
    pub(super) fn was_told(&mut self, address: &Address) -> bool {
        if self.is_gone.remove(address).is_none() {
            return false;
        }
        self.gone.retain(|gone| gone != address);
        true
    }

    /// Has something sent, after all that waits.
    pub(super) fn send(&mut self, slot: Slot, frames: Frames) {
        self.push(slot, Outgoing { frames: frames.into(), content: None });
    }

    /// Has a content of a resource sent.
    pub(super) fn deliver(&mut self, slot: Slot, sequence: u64, resource: Slot, frames: Parcel) {
        self.push(slot, Outgoing { frames, content: Some((sequence, resource)) });
    }

    /// Whether there is room for a content that all readers have.
    pub(super) fn has_room(&self, slot: Slot) -> bool {
        let Some(flow) = self.all.get(slot) else { return false };
        flow.outgoing.len() < READER_MESSAGES && (flow.bytes <= self.share() || flow.outgoing.is_empty())
    }

    /// What may wait for one.
    fn share(&self) -> usize {
        let fair = if self.bytes > self.budget { self.budget / self.all.len().max(1) } else { READER_BYTES };
        fair.min(READER_BYTES)
    }

    fn push(&mut self, slot: Slot, outgoing: Outgoing) {
        let share = self.share();
        let Some(flow) = self.all.get_mut(slot) else { return };
        let cost = cost(&outgoing.frames);
        if outgoing.content.is_none() {
            flow.words += 1;
            if flow.words > WORDS || flow.words * cost > share {
                self.unread.push(slot);
            }
        }
        flow.bytes += cost;
        self.bytes += cost;
        self.waiting += 1;
        flow.outgoing.push_back(outgoing);
        if flow.offered.is_empty() && !std::mem::replace(&mut flow.is_ready, true) {
            self.ready.push_back(slot);
        }
    }

    /// The next send for the transport to take.
    pub(super) fn offer(&mut self) -> Option<(SendId, &Address, Parcel)> {
        loop {
            let slot = *self.ready.front()?;
            let has_room = |flow: &mut Flow| {
                !flow.outgoing.is_empty() && flow.offered.len() < BATCH && flow.offered_bytes < BATCH_BYTES
            };
            if !self.all.get_mut(slot).is_some_and(has_room) {
                self.ready.pop_front();
                if let Some(flow) = self.all.get_mut(slot) {
                    flow.is_ready = false;
                }
                continue;
            }
            let flow = self.all.get_mut(slot)?;
            let outgoing = flow.outgoing.pop_front()?;
            let cost = cost(&outgoing.frames);
            flow.words -= usize::from(outgoing.content.is_none());
            flow.bytes -= cost;
            self.bytes -= cost;
            flow.offered_bytes += cost;
            flow.offered.push_back(outgoing.content);
            let id = SendId(u64::from(flow.serial) << 32 | u64::from(slot));
            return Some((id, &flow.address, outgoing.frames));
        }
    }

    /// The transport has decided on a send; they are decided on in their order.
    pub(super) fn settle(&mut self, id: SendId) -> Option<Settled> {
        let [serial, slot] =
            [id.0 >> 32, id.0 & u64::from(u32::MAX)].map(|half| u32::try_from(half).unwrap_or(u32::MAX));
        let flow = self.all.get_mut(slot).filter(|flow| flow.serial == serial)?;
        let content = flow.offered.pop_front()?;
        self.waiting -= 1;
        if flow.offered.is_empty() {
            flow.offered_bytes = 0;
            if !flow.outgoing.is_empty() && !std::mem::replace(&mut flow.is_ready, true) {
                self.ready.push_back(slot);
            }
        }
        Some(Settled { flow: slot, content })
    }

    /// Takes out what waits of a resource; contents of queues are in hand as well.
    pub(super) fn forget(&mut self, slot: Slot, resource: Slot) {
        let Some(flow) = self.all.get_mut(slot) else { return };
        let (before, count) = (flow.bytes, flow.outgoing.len());
        flow.outgoing.retain(|outgoing| outgoing.content.is_none_or(|(_, of)| of != resource));
        flow.bytes = flow.outgoing.iter().map(|outgoing| cost(&outgoing.frames)).sum();
        self.bytes -= before - flow.bytes;
        self.waiting -= count - flow.outgoing.len();
    }

    /// Whether nothing waits for the transport.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting == 0
    }
}
