//! The deliveries of each content, one after the other, and those that ended as dead letters.

use std::collections::{HashMap, VecDeque};

use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::{
    budget::Budget,
    contents::{Content, Fate},
    fingerprint::fingerprint,
    ordered::{Id, Ordered, Weigh},
    table::Cell,
};

/// The suffix of a resource for dead letters.
const DEAD: &str = ".dead";

/// How many different contents of a whole table are remembered, until they come again.
const REMEMBERED: usize = 1 << 20;

/// Distinguishes the deliveries of equal contents.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Deliveries {
    #[serde(skip)]
    budget: Budget,
    delivered: Ordered<Delivered>,
    known: HashMap<u128, Known, RandomState>,
    /// Their fingerprints, oldest first.
    order: VecDeque<u128>,
    evicted: u64,
    /// How many dead letters came when what they are of had left.
    #[serde(default)]
    left_out: u64,
}

/// What is known of equal contents, of one resource and direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Known {
    /// The number of the last delivery.
    attempts: i64,
    /// Rejected deliveries, one of which may become a dead letter.
    rejected: Vec<Id>,
}

/// One delivery of a content.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Delivered {
    pub(crate) content: Content,
    attempts: i64,
    is_dead: bool,
}

impl Weigh for Delivered {
    fn weight(&self) -> usize {
        self.content.weight() + 16
    }
}

impl Deliveries {
    pub(crate) fn within(budget: Budget) -> Self {
        Self { budget, delivered: Ordered::within(budget), ..Self::default() }
    }

    /// Takes on another budget.
    pub(crate) fn resize(&mut self, budget: Budget) {
        self.budget = budget;
        self.delivered.resize(budget);
    }

    /// Adds the next content, with what settled it.
    pub(crate) fn add(&mut self, content: Content) {
        let resource = content.resource.as_deref().unwrap_or_default();
        // Deliveries: sent by a server to readers, or received by a client.
        let is_delivered = content.is_out == content.peer.is_some();
        if let Some(of) = resource.strip_suffix(DEAD).filter(|_| is_delivered) {
            self.bury(key(&content, of), content.seq);
        }
        let key = key(&content, resource);
        if !self.known.contains_key(&key) {
            self.order.push_back(key);
            if self.order.len() > self.budget.share(REMEMBERED) {
                self.forget();
            }
        }
        let known = self.known.entry(key).or_default();
        known.attempts = if content.is_redelivered { known.attempts.saturating_add(1) } else { 1 };
        let attempts = known.attempts;
        let may_die = is_delivered
            && content.settled.is_some_and(|settled| matches!(settled.fate, Fate::Rejected | Fate::Recycled));
        let id = self.delivered.begin(Delivered { content, attempts, is_dead: false });
        if may_die {
            known.rejected.push(id);
        } else {
            self.delivered.complete(id);
        }
    }

    /// A dead letter is sent: pairs it with the latest rejected delivery before it that has none.
    fn bury(&mut self, key: u128, seq: i64) {
        let Self { delivered, known, left_out, .. } = self;
        let Some(known) = known.get_mut(&key) else { return };
        let rejected = known.rejected.len();
        known.rejected.retain(|id| delivered.get(*id).is_some());
        let gone = rejected > known.rejected.len();
        let is_before = |delivered: &mut Ordered<Delivered>, id: Id| {
            delivered.get(id).and_then(|delivered| delivered.content.settled).is_some_and(|settled| settled.seq < seq)
        };
        if let Some(at) = (0..known.rejected.len()).rev().find(|at| is_before(delivered, known.rejected[*at])) {
            let id = known.rejected.remove(at);
            if let Some(found) = delivered.get(id) {
                found.is_dead = true;
            }
            delivered.complete(id);
        } else if gone {
            *left_out = left_out.saturating_add(1);
        }
    }

    /// Forgets the oldest content: it is unknown when it comes again.
    fn forget(&mut self) {
        if let Some(known) = self.order.pop_front().and_then(|oldest| self.known.remove(&oldest)) {
            for id in known.rejected {
                self.evicted = self.evicted.saturating_add(u64::from(self.delivered.get(id).is_some()));
                self.delivered.complete(id);
            }
        }
    }

    /// Ends the wait for dead letters of deliveries that are older than this moment, which were emitted.
    pub(crate) fn expire(&mut self, before_ns: i64) {
        self.delivered.complete_where(|delivered| delivered.content.expire(before_ns));
    }

    /// The next delivery to emit.
    pub(crate) fn emit(&mut self, is_end: bool) -> Option<Delivered> {
        if is_end { self.delivered.drain() } else { self.delivered.emit() }
    }

    pub(crate) const fn evicted(&self) -> u64 {
        self.evicted.saturating_add(self.delivered.evicted())
    }

    pub(crate) const fn left_out(&self) -> u64 {
        self.left_out
    }
}

fn key(content: &Content, resource: &str) -> u128 {
    fingerprint(|hasher| {
        hasher.write_u128(content.fingerprint);
        hasher.write_u8(u8::from(content.is_out));
        hasher.write_usize(content.capture_id.len());
        hasher.write(content.capture_id.as_bytes());
        hasher.write(resource.as_bytes());
    })
}

impl Delivered {
    /// Its fate; None if it is open, or its dead letter is another content.
    pub(crate) fn fate(&self) -> Option<Fate> {
        self.content.settled.map(|settled| settled.fate).filter(|_| !self.is_dead)
    }

    /// Whether it ended as a dead letter.
    pub(crate) const fn is_dead(&self) -> bool {
        self.is_dead
    }

    pub(crate) fn latency_ns(&self) -> Option<i64> {
        self.content.settled.map(|settled| settled.at_ns.saturating_sub(self.content.at_ns))
    }

    pub(crate) fn cells(self) -> Vec<Cell> {
        let (latency, fate) = (self.latency_ns(), self.fate());
        let Self { content, attempts, is_dead } = self;
        let settled = content.settled;
        let fate = match fate {
            _ if is_dead => "dead_lettered",
            None if content.is_evicted => "evicted",
            None => "open",
            Some(Fate::Confirmed) => "confirmed",
            Some(Fate::Rejected) => "rejected",
            Some(Fate::Recycled) => "recycled",
            Some(Fate::Refused) => "refused",
        };
        vec![
            Cell::Text(content.capture_id),
            content.endpoint.into(),
            content.peer.map(ByteBuf::into_vec).into(),
            Cell::Word(if content.is_out { "out" } else { "in" }),
            content.resource.into(),
            content.sequence.map_or(Cell::Null, Cell::Decimal),
            content.body_bytes.into(),
            Cell::Flag(content.is_redelivered),
            Cell::Number(attempts),
            Cell::Word(fate),
            settled.and_then(|settled| settled.status).map(i64::from).into(),
            latency.into(),
            content.seq.into(),
            settled.map(|settled| settled.seq).into(),
            content.at_ns.into(),
            settled.map(|settled| settled.at_ns).into(),
        ]
    }
}
