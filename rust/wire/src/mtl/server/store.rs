//! What is to be stored, and what is waited for.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::FRAME_COST;

/// A change of what is stored. A queue has a number, a content a position in it; neither is used twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// There is such a queue, or it is another now.
    Define {
        /// Its number.
        queue: u64,
        /// What it is, in words of the server's own.
        description: Vec<u8>,
    },
    /// A queue is gone, with its contents.
    Delete {
        /// Its number.
        queue: u64,
    },
    /// A content is there.
    Put {
        /// Its queue.
        queue: u64,
        /// Its position.
        position: u64,
        /// How often it was delivered.
        attempts: u32,
        /// When it is too old, in milliseconds since 1970.
        expires_at_ms: Option<u64>,
        /// Its field table.
        properties: Bytes,
        /// Itself.
        body: Bytes,
    },
    /// A content was delivered so often. Nothing changes where it is not there.
    Attempts {
        /// Its queue.
        queue: u64,
        /// Its position.
        position: u64,
        /// How often.
        attempts: u32,
    },
    /// A content is gone.
    Remove {
        /// Its queue.
        queue: u64,
        /// Its position.
        position: u64,
    },
}

/// Changes that are made together, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its number: they are made in this order.
    pub number: u64,
    /// The changes.
    pub ops: Vec<Op>,
}

impl Batch {
    /// What it takes to keep it.
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

    /// The queue and the position of the content that it is about.
    pub fn place(&self) -> Option<(u64, u64)> {
        match self {
            Self::Put { queue, position, .. }
            | Self::Attempts { queue, position, .. }
            | Self::Remove { queue, position } => Some((*queue, *position)),
            Self::Define { .. } | Self::Delete { .. } => None,
        }
    }

    /// Whether nothing is left of an earlier change once this one is made.
    fn undoes(&self, earlier: &Self) -> bool {
        match (self, earlier) {
            (Self::Delete { queue }, _) => *queue == earlier.queue(),
            (Self::Remove { .. }, Self::Put { .. }) => self.place() == earlier.place(),
            _ => false,
        }
    }

    /// What it takes to keep it.
    pub fn bytes(&self) -> usize {
        FRAME_COST
            + match self {
                Self::Define { description, .. } => description.len(),
                Self::Put { properties, body, .. } => properties.len() + body.len(),
                Self::Delete { .. } | Self::Attempts { .. } | Self::Remove { .. } => 0,
            }
    }
}

/// A content that was stored before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredContent {
    /// Its queue.
    pub queue: u64,
    /// Its position.
    pub position: u64,
    /// How often it was delivered, as far as that was stored.
    pub attempts: u32,
    /// When it is too old, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
    /// Its field table.
    pub properties: Bytes,
    /// Itself.
    pub body: Bytes,
}

/// What was stored before, in the order of positions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Numbers and descriptions of queues.
    pub queues: Vec<(u64, Vec<u8>)>,
    /// Their contents.
    pub contents: Vec<StoredContent>,
    /// Whether the server before came to an orderly end.
    pub was_clean: bool,
}

/// What may be on its way to the store before readers wait for it: contents that they are done with meanwhile stay in
/// memory until the store comes to them.
const AHEAD: usize = 256 << 20;

/// Batches that are being stored, each with what hangs on it.
#[derive(Debug)]
pub(super) struct Journal<T> {
    is_on: bool,
    ops: Vec<Op>,
    /// The number of the batch that is being gathered.
    number: u64,
    /// What the batches cost that are being stored.
    costs: VecDeque<(u64, usize)>,
    cost: usize,
    waiting: VecDeque<(u64, T)>,
    /// What batches have to store sooner or later that are being stored.
    insisted: VecDeque<(u64, Op)>,
    /// What batches have to store that failed.
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

    /// Has a change stored that nobody waits for; it is tried until it is.
    pub(super) fn insist(&mut self, op: Op) {
        if self.is_on {
            self.later.retain(|earlier| !op.undoes(earlier));
            self.insisted.push_back((self.number, op.clone()));
            self.ops.push(op);
        }
    }

    /// Has changes stored together, with what hangs on them.
    pub(super) fn put(&mut self, op: Op, what: T) {
        self.ops.push(op);
        self.wait(what);
    }

    /// Has something hang on the batch that is being gathered.
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

    /// Whether the store lags so far that no more is to be held for it.
    pub(super) fn is_behind(&self) -> bool {
        self.cost > AHEAD
    }

    /// The fate of the batches up to this one is known.
    fn settle(&mut self, through: u64) {
        let count = self.costs.partition_point(|(number, _)| *number <= through);
        self.cost -= self.costs.drain(..count).map(|(_, cost)| cost).sum::<usize>();
    }

    /// What hangs on the batches up to this one, which are stored.
    pub(super) fn stored(&mut self, through: u64) -> Vec<T> {
        self.settle(through);
        let count = self.insisted.partition_point(|(number, _)| *number <= through);
        self.insisted.drain(..count);
        let count = self.waiting.partition_point(|(number, _)| *number <= through);
        self.waiting.drain(..count).map(|(_, what)| what).collect()
    }

    /// What hangs on this batch, which is not stored. Those before it are.
    pub(super) fn unstored(&mut self, number: u64) -> Vec<T> {
        self.settle(number);
        let (from, to) = (
            self.insisted.partition_point(|(of, _)| *of < number),
            self.insisted.partition_point(|(of, _)| *of <= number),
        );
        let failed: Vec<_> = self.insisted.drain(from..to).map(|(_, op)| op).collect();
        // What comes after it may be stored before it is tried again.
        let is_undone = |op: &Op| self.insisted.range(from..).any(|(_, newer)| newer.undoes(op));
        self.later.extend(failed.into_iter().filter(|op| !is_undone(op)));
        let (from, to) = (
            self.waiting.partition_point(|(of, _)| *of < number),
            self.waiting.partition_point(|(of, _)| *of <= number),
        );
        self.waiting.drain(from..to).map(|(_, what)| what).collect()
    }

    /// Whether there is anything to try again.
    pub(super) fn has_failed(&self) -> bool {
        !self.later.is_empty()
    }

    /// Has what failed tried again.
    pub(super) fn retry(&mut self) {
        for op in std::mem::take(&mut self.later) {
            self.insist(op);
        }
    }
}
