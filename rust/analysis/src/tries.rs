//! The deliveries of each content, one after the other, and those that ended as dead letters.

use std::collections::{HashMap, VecDeque};

use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::{
    alike::number,
    contents::{Content, Fate},
    ordered::{Id, Ordered, Weigh},
    room::Room,
    table::Cell,
};

/// The suffix of a resource for dead letters.
const DEAD: &str = ".dead";

/// How many different contents of a whole table are remembered, until they come again.
const REMEMBERED: usize = 1 << 20;

/// Distinguishes the tries of equal contents.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tries {
    room: Room,
    tried: Ordered<Tried>,
    known: HashMap<u128, Known, RandomState>,
    /// The same in the order in which they came.
    order: VecDeque<u128>,
    let_go: u64,
}

/// What is known of equal contents, of one resource and direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Known {
    /// The number of the last try.
    attempts: i64,
    /// Rejected tries, one of which may become a dead letter.
    rejected: Vec<Id>,
}

/// One delivery of a content.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Tried {
    pub(crate) content: Content,
    attempts: i64,
    is_dead: bool,
}

impl Weigh for Tried {
    fn weight(&self) -> usize {
        self.content.weight() + 16
    }
}

impl Tries {
    pub(crate) fn in_room(room: Room) -> Self {
        Self { room, tried: Ordered::in_room(room), ..Self::default() }
    }

    /// Takes the next content, with what settled it.
    pub(crate) fn take(&mut self, content: Content) {
        let resource = content.resource.as_deref().unwrap_or_default();
        // Deliveries: sent by a server to readers, or received by a client.
        let is_delivered = content.is_out == content.peer.is_some();
        if let Some(of) = resource.strip_suffix(DEAD).filter(|_| is_delivered) {
            self.bury(key(&content, of), content.seq);
        }
        let key = key(&content, resource);
        if !self.known.contains_key(&key) {
            self.order.push_back(key);
            if self.order.len() > self.room.share(REMEMBERED) {
                self.forget();
            }
        }
        let known = self.known.entry(key).or_default();
        known.attempts = if content.is_redelivered { known.attempts.saturating_add(1) } else { 1 };
        let attempts = known.attempts;
        let may_die = is_delivered
            && content.settled.is_some_and(|settled| matches!(settled.fate, Fate::Rejected | Fate::Recycled));
        let id = self.tried.begin(Tried { content, attempts, is_dead: false });
        if may_die {
            known.rejected.push(id);
        } else {
            self.tried.settle(id);
        }
    }

    /// A dead letter is sent: pairs it with the latest rejected try before it that has none.
    fn bury(&mut self, key: u128, seq: i64) {
        let Self { tried, known, .. } = self;
        let Some(known) = known.get_mut(&key) else { return };
        known.rejected.retain(|id| tried.get(*id).is_some());
        let is_before = |tried: &mut Ordered<Tried>, id: Id| {
            tried.get(id).and_then(|tried| tried.content.settled).is_some_and(|settled| settled.seq < seq)
        };
        if let Some(at) = (0..known.rejected.len()).rev().find(|at| is_before(tried, known.rejected[*at])) {
            let id = known.rejected.remove(at);
            if let Some(found) = tried.get(id) {
                found.is_dead = true;
            }
            tried.settle(id);
        }
    }

    /// Forgets the oldest content: it is unknown when it comes again.
    fn forget(&mut self) {
        if let Some(known) = self.order.pop_front().and_then(|oldest| self.known.remove(&oldest)) {
            known.rejected.iter().for_each(|id| self.tried.settle(*id));
            self.let_go = self.let_go.saturating_add(1);
        }
    }

    /// Ends the wait for dead letters of what is older than this moment, which was given.
    pub(crate) fn let_older_go(&mut self, before_ns: i64) {
        self.tried.settle_those(|tried| tried.content.let_go_if_older(before_ns));
    }

    /// The next that leaves.
    pub(crate) fn next(&mut self, is_end: bool) -> Option<Tried> {
        if is_end { self.tried.end() } else { self.tried.leave() }
    }

    pub(crate) const fn let_go(&self) -> u64 {
        self.let_go.saturating_add(self.tried.let_go())
    }
}

fn key(content: &Content, resource: &str) -> u128 {
    number(|hasher| {
        hasher.write_u128(content.alike);
        hasher.write_u8(u8::from(content.is_out));
        hasher.write_usize(content.capture_id.len());
        hasher.write(content.capture_id.as_bytes());
        hasher.write(resource.as_bytes());
    })
}

impl Tried {
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
