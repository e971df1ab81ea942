//! Data connections that have redeemed their lease, and what is queued for each (MTL-30 … MTL-58).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use foldhash::quality::RandomState;

use super::realm::Content;
use super::sessions::Address;
use crate::mtl::heartbeat::Heartbeat;
use crate::slab::{Slab, Slot};
use crate::{Frames, Nanos, Parcel, SendId, cost};

/// How many messages the transport is offered for one reader at a time; the rest stays here, or in its queue.
const BATCH: usize = 64;

/// How many bytes end a batch, too.
const BATCH_BYTES: usize = 64 << 10;

/// The longest backlog of one reader of a fanout.
const READER_MESSAGES: usize = 10_000;
const READER_BYTES: usize = 16 << 20;

/// Answers and heartbeats that may be queued for one connection.
const WORDS: usize = 10_000;

/// Connections without a lease that are kept, to report its end when they send something.
const GONE: usize = 10_000;

/// What a lease allows (MTL-23 … MTL-26).
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) session: Slot,
    pub(super) reads: bool,
    pub(super) virtual_host: usize,
    pub(super) profile: usize,
    /// In order; empty for any.
    pub(super) resources: Vec<String>,
    /// The first of them, as a capture shows it.
    pub(super) topic: Option<Bytes>,
    pub(super) is_confirmed: bool,
    /// The unsettled contents that a reader may have; without confirmations, those it may receive until it has
    /// dismissed all resources.
    pub(super) window: usize,
}

impl Terms {
    pub(super) fn covers(&self, resource: &str) -> bool {
        self.resources.is_empty() || self.resources.binary_search_by(|leased| leased.as_str().cmp(resource)).is_ok()
    }
}

/// A content that its reader has not settled.
#[derive(Debug)]
pub(super) struct Unsettled {
    pub(super) resource: Slot,
    pub(super) content: Content,
}

/// A queued send.
#[derive(Debug)]
struct Outgoing {
    frames: Parcel,
    /// The content it carries, and its resource.
    content: Option<(u64, Slot)>,
}

/// A completed send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settled {
    pub(super) flow: Slot,
    /// The content it carried, and its resource.
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
    /// When to check it again.
    pub(super) due: Nanos,
    outgoing: VecDeque<Outgoing>,
    bytes: usize,
    /// How many of them carry no content.
    words: usize,
    /// What the transport was offered, and has neither taken nor refused.
    offered: VecDeque<Option<(u64, Slot)>>,
    offered_bytes: usize,
    is_ready: bool,
    /// Whether contents were lost since the transport last took one.
    pub(super) is_losing: bool,
    /// The sequence of the last content, sent to a reader or received from a writer.
    pub(super) last: u64,
    /// What a reader summons.
    pub(super) summoned: BTreeSet<Slot>,
    /// Those of them whose rotation it has left: it had no room at its turn.
    pub(super) passed: BTreeSet<Slot>,
    /// Whether it is queued to rejoin them.
    pub(super) is_woken: bool,
    /// The resource of the last content it received.
    pub(super) turn: Slot,
    /// Contents of queues that a reader has received since it last summoned nothing.
    pub(super) taken: usize,
    /// Contents of queues that a reader has not settled.
    pub(super) unsettled: BTreeMap<u64, Unsettled>,
    /// A writer's contents that are being stored.
    pub(super) pending: VecDeque<u64>,
    /// A writer's contents to confirm.
    pub(super) to_confirm: Vec<u64>,
    /// Whether any of a writer's contents was rejected.
    pub(super) has_rejected: bool,
}

impl Flow {
    /// Whether a reader may receive another content of a queue.
    pub(super) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// How many contents of queues a reader may receive now.
    pub(super) fn room(&self) -> usize {
        // Without confirmations nothing shows that a content has arrived.
        let open = if self.terms.is_confirmed { self.unsettled.len() } else { self.taken };
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
    /// Those that do not read their answers.
    pub(super) unread: Vec<Slot>,
    serial: u32,
    /// The bytes queued for all of them, and the budget above which each is limited to its fair share.
    bytes: usize,
    budget: usize,
    /// How many messages are queued or offered to the transport.
    waiting: usize,
    /// Connections whose lease ended, oldest first; one may occur twice.
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
        // Zero marks sends to connections without a lease.
        self.serial = self.serial.wrapping_add(1).max(1);
        self.take_gone(&address);
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
            unsettled: BTreeMap::new(),
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

    /// Whether the lease of this connection ended unreported; it counts as reported now.
    pub(super) fn take_gone(&mut self, address: &Address) -> bool {
        if self.is_gone.remove(address).is_none() {
            return false;
        }
        self.gone.retain(|gone| gone != address);
        true
    }

    /// Queues a message.
    pub(super) fn send(&mut self, slot: Slot, frames: Frames) {
        self.push(slot, Outgoing { frames: frames.into(), content: None });
    }

    /// Queues a content of a resource.
    pub(super) fn deliver(&mut self, slot: Slot, sequence: u64, resource: Slot, frames: Parcel) {
        self.push(slot, Outgoing { frames, content: Some((sequence, resource)) });
    }

    /// Whether there is room for a content of a fanout.
    pub(super) fn has_room(&self, slot: Slot) -> bool {
        let Some(flow) = self.all.get(slot) else { return false };
        flow.outgoing.len() < READER_MESSAGES && (flow.bytes <= self.share() || flow.outgoing.is_empty())
    }

    /// How many bytes may be queued for one connection.
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

    /// The next message for the transport.
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

    /// The transport has taken or refused a message; it does so in order.
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

    /// Removes the queued contents of a resource; those of queues count as unsettled too.
    pub(super) fn forget(&mut self, slot: Slot, resource: Slot) {
        let Some(flow) = self.all.get_mut(slot) else { return };
        let (before, count) = (flow.bytes, flow.outgoing.len());
        flow.outgoing.retain(|outgoing| outgoing.content.is_none_or(|(_, of)| of != resource));
        flow.bytes = flow.outgoing.iter().map(|outgoing| cost(&outgoing.frames)).sum();
        self.bytes -= before - flow.bytes;
        self.waiting -= count - flow.outgoing.len();
    }

    /// Whether nothing is queued for the transport.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting == 0
    }
}
