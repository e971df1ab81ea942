//! What has to be stored, and what depends on it.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::FRAME_COST;

/// A change of the store. A queue has a number, a content a position in it; neither is used twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A queue is new or redefined.
    Define {
        /// Its number.
        queue: u64,
        /// Its description, in the server's own format.
        description: Vec<u8>,
    },
    /// A queue is removed, with its contents.
    Delete {
        /// Its number.
        queue: u64,
    },
    /// A content is added.
    Put {
        queue: u64,
        position: u64,
        /// How often it was delivered.
        attempts: u32,
        /// When it expires, in milliseconds since 1970.
        expires_at_ms: Option<u64>,
        /// Its field table.
        properties: Bytes,
        body: Bytes,
    },
    /// How often a content was delivered. No effect if it is gone.
    Attempts {
        queue: u64,
        position: u64,
        /// How often.
        attempts: u32,
    },
    /// A content is removed.
    Remove { queue: u64, position: u64 },
}

/// Changes that are stored together, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its number: batches are stored in this order.
    pub number: u64,
    /// The changes.
    pub ops: Vec<Op>,
}

impl Batch {
    /// The memory it takes.
    pub fn bytes(&self) -> usize {
        self.ops.iter().map(Op::bytes).sum()
    }
}

impl Op {
    fn queue(&self) -> u64 {
        let (Self::Define { queue, .. }
        | Self::Delete { queue }
        | Self::Put { queue, .. }
        | Self::Attempts { queue, .. }
        | Self::Remove { queue, .. }) = self;
        *queue
    }

    /// The queue and the position of its content.
    pub fn place(&self) -> Option<(u64, u64)> {
        match self {
            Self::Put { queue, position, .. }
            | Self::Attempts { queue, position, .. }
            | Self::Remove { queue, position } => Some((*queue, *position)),
            Self::Define { .. } | Self::Delete { .. } => None,
        }
    }

    /// Whether this change cancels an earlier one.
    fn undoes(&self, earlier: &Self) -> bool {
        match (self, earlier) {
            (Self::Delete { queue }, _) => *queue == earlier.queue(),
            (Self::Remove { .. }, Self::Put { .. }) => self.place() == earlier.place(),
            _ => false,
        }
    }

    /// The memory it takes.
    pub fn bytes(&self) -> usize {
        FRAME_COST
            + match self {
                Self::Define { description, .. } => description.len(),
                Self::Put { properties, body, .. } => properties.len() + body.len(),
                Self::Delete { .. } | Self::Attempts { .. } | Self::Remove { .. } => 0,
            }
    }
}

/// A content restored from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredContent {
    pub queue: u64,
    pub position: u64,
    /// How often it was delivered, as far as stored.
    pub attempts: u32,
    /// When it expires, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
    /// Its field table.
    pub properties: Bytes,
    pub body: Bytes,
}

/// The content of the store, in the order of positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Numbers and descriptions of queues.
    pub queues: Vec<(u64, Vec<u8>)>,
    pub contents: Vec<StoredContent>,
    /// Whether the last server was closed in order.
    pub was_clean: bool,
}

/// How many bytes the store may lag behind before readers wait for it: contents settled meanwhile stay in memory until
/// the store catches up.
const AHEAD: usize = 256 << 20;

/// Batches that are being stored, each with what depends on it.
#[derive(Debug)]
pub(super) struct Journal<T> {
    is_on: bool,
    ops: Vec<Op>,
    /// The number of the next batch.
    number: u64,
    /// The costs of batches that are being stored.
    costs: VecDeque<(u64, usize)>,
    cost: usize,
    waiting: VecDeque<(u64, T)>,
    /// Essential changes in batches that are being stored.
    insisted: VecDeque<(u64, Op)>,
    /// Essential changes of failed batches.
    later: Vec<Op>,
}

impl<T> Journal<T> {
    pub(super) fn new(is_on: bool) -> Self {
        let (costs, waiting, insisted) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self { is_on, ops: vec![], number: 1, costs, cost: 0, waiting, insisted, later: vec![] }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether all is stored.
    pub(super) fn is_idle(&self) -> bool {
        self.ops.is_empty() && self.waiting.is_empty() && self.insisted.is_empty() && self.later.is_empty()
    }

    /// Stores an essential change, on which nothing depends; retries until it is stored.
    pub(super) fn insist(&mut self, op: Op) {
        if self.is_on {
            self.later.retain(|earlier| !op.undoes(earlier));
            self.insisted.push_back((self.number, op.clone()));
            self.ops.push(op);
        }
    }

    /// Stores a change, on which `what` depends.
    pub(super) fn put(&mut self, op: Op, what: T) {
        self.ops.push(op);
        self.wait(what);
    }

    /// Makes `what` depend on the next batch.
    pub(super) fn wait(&mut self, what: T) {
        self.waiting.push_back((self.number, what));
    }

    /// The next batch.
    pub(super) fn batch(&mut self) -> Option<Batch> {
        if self.ops.is_empty() {
            return None;
        }
        let batch = Batch { number: self.number, ops: std::mem::take(&mut self.ops) };
        self.number += 1;
        let cost = batch.bytes();
        self.costs.push_back((batch.number, cost));
        self.cost += cost;
        Some(batch)
    }

    /// Whether the store lags too far behind for more contents.
    pub(super) fn is_behind(&self) -> bool {
        self.cost > AHEAD
    }

    /// The batches up to this one are stored or have failed.
    fn settle(&mut self, through: u64) {
        let count = self.costs.partition_point(|(number, _)| *number <= through);
        self.cost -= self.costs.drain(..count).map(|(_, cost)| cost).sum::<usize>();
    }

    /// Takes what depends on the batches up to this one, which are stored.
    pub(super) fn stored(&mut self, through: u64) -> Vec<T> {
        self.settle(through);
        let count = self.insisted.partition_point(|(number, _)| *number <= through);
        self.insisted.drain(..count);
        let count = self.waiting.partition_point(|(number, _)| *number <= through);
        self.waiting.drain(..count).map(|(_, what)| what).collect()
    }

    /// Takes what depends on this batch, which has failed. Those before it are stored.
    pub(super) fn unstored(&mut self, number: u64) -> Vec<T> {
        self.settle(number);
        let (from, to) = (
            self.insisted.partition_point(|(of, _)| *of < number),
            self.insisted.partition_point(|(of, _)| *of <= number),
        );
        let failed: Vec<_> = self.insisted.drain(from..to).map(|(_, op)| op).collect();
        // A later change may be stored before this one is tried again.
        let is_undone = |op: &Op| self.insisted.range(from..).any(|(_, newer)| newer.undoes(op));
        self.later.extend(failed.into_iter().filter(|op| !is_undone(op)));
        let (from, to) = (
            self.waiting.partition_point(|(of, _)| *of < number),
            self.waiting.partition_point(|(of, _)| *of <= number),
        );
        self.waiting.drain(from..to).map(|(_, what)| what).collect()
    }

    /// Whether there are changes to try again.
    pub(super) fn has_failed(&self) -> bool {
        !self.later.is_empty()
    }

    /// Tries failed changes again.
    pub(super) fn retry(&mut self) {
        for op in std::mem::take(&mut self.later) {
            self.insist(op);
        }
    }
}
