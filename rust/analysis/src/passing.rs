//! Messages that pass through topics: which PUT each MESSAGE was.

use std::collections::{HashMap, VecDeque};

use arrow_array::RecordBatch;
use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use serde_bytes::{ByteBuf, Bytes};
use trunkline_columns::ColumnError;

use crate::{
    budget::Budget,
    fingerprint::{self, Fingerprints},
    rows::{Chosen, binary, bytes_at, number_at, numbers, text, text_at},
};

/// How many PUTs of a whole table may wait for their MESSAGEs, and how many MESSAGEs for the ones after them.
const PUTS: usize = 1 << 18;
const MESSAGES: usize = 1 << 20;
/// How many of one subscriber may wait.
const OF_SUBSCRIBER: usize = 1 << 12;

/// The columns by which headers and bodies are compared.
const COMPARED: [&str; 4] = ["headers", "body_frames", "body_bytes", "body"];

/// The columns it reads.
pub(crate) const NEEDS: &[&str] =
    &["capture_id", "received_at_ns", "direction", "peer", "verb", "topic", "headers", "body_frames", "body_bytes"];

/// The role that saw a message pass, in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum SeenBy {
    Connector,
    Middleware,
}

impl SeenBy {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connector => "connector",
            Self::Middleware => "middleware",
        }
    }
}

/// A PUT or a MESSAGE.
pub(crate) struct Message<'a> {
    pub(crate) topic: &'a str,
    pub(crate) at_ns: i64,
    pub(crate) is_put: bool,
    pub(crate) seen_by: SeenBy,
    pub(crate) size: i64,
    pub(crate) peer: Option<&'a [u8]>,
    pub(crate) is_chosen: bool,
    /// Shared by a PUT and its MESSAGEs.
    fingerprint: u128,
}

/// The messages of a batch that pass through topics.
pub(crate) fn messages(batch: &RecordBatch, mut take: impl FnMut(&Message<'_>)) -> Result<(), ColumnError> {
    let (capture_id, direction) = (text(batch, "capture_id")?, text(batch, "direction")?);
    let (verbs, topics, peers) = (text(batch, "verb")?, text(batch, "topic")?, binary(batch, "peer")?);
    let (received_at_ns, sizes) = (numbers(batch, "received_at_ns")?, numbers(batch, "body_bytes")?);
    let (chosen, fingerprints) = (Chosen::of(batch)?, Fingerprints::of(batch, |name| COMPARED.contains(&name)));
    for row in 0..batch.num_rows() {
        let is_put = match text_at(&verbs, row) {
            Some("PUT") => true,
            Some("MESSAGE") => false,
            _ => continue,
        };
        let peer = bytes_at(&peers, row);
        // A middleware receives PUTs and sends MESSAGEs, a connector does the reverse; other rows are ignored.
        if is_put != (peer.is_some() == (text_at(&direction, row) == Some("in"))) {
            continue;
        }
        let topic = text_at(&topics, row).unwrap_or_default();
        // Only at a middleware a PUT becomes MESSAGEs.
        let fingerprint = if peer.is_some() {
            let (cells, capture) = (fingerprints.at(row)?, text_at(&capture_id, row).unwrap_or_default());
            fingerprint::fingerprint(|hasher| {
                hasher.write_u128(cells);
                hasher.write_usize(capture.len());
                hasher.write(capture.as_bytes());
                hasher.write(topic.as_bytes());
            })
        } else {
            0
        };
        take(&Message {
            topic,
            at_ns: received_at_ns.value(row),
            is_put,
            seen_by: if peer.is_some() { SeenBy::Middleware } else { SeenBy::Connector },
            size: number_at(&sizes, row).unwrap_or_default(),
            peer,
            is_chosen: chosen.has(row),
            fingerprint,
        });
    }
    Ok(())
}

/// PUTs and MESSAGEs of a middleware, each with its group of counts: a `G`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Passing<G> {
    #[serde(skip)]
    budget: Budget,
    /// By the fingerprint that PUTs share with their MESSAGEs.
    passed: HashMap<u128, Passed<G>, RandomState>,
    /// The key of each PUT, oldest first.
    puts: VecDeque<u128>,
    messages: usize,
}

/// PUTs with one fingerprint, and the MESSAGEs that they became.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Passed<G> {
    /// The number of the first PUT that is kept, from 1, and when each came.
    first: u64,
    put_at_ns: VecDeque<i64>,
    /// The MESSAGEs of each subscriber that have no PUT yet.
    messages: HashMap<ByteBuf, VecDeque<Delivery<G>>, RandomState>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Delivery<G> {
    /// How many PUTs there were before it.
    puts: u64,
    at_ns: i64,
    group: Option<G>,
}

/// The group of a MESSAGE, and its latency.
type Timed<G> = (Option<G>, Option<i64>);

impl<G> Default for Passing<G> {
    fn default() -> Self {
        Self::within(Budget::default())
    }
}

impl<G> Passing<G> {
    pub(crate) fn within(budget: Budget) -> Self {
        Self { budget, passed: HashMap::default(), puts: VecDeque::new(), messages: 0 }
    }

    /// Takes on another budget.
    pub(crate) const fn resize(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// A PUT or MESSAGE passes through a middleware; `time` is called with the latencies of deliveries.
    pub(crate) fn pass(&mut self, message: &Message<'_>, group: Option<G>, time: &mut impl FnMut(G, i64)) {
        let Some(peer) = message.peer else { return };
        if message.is_put {
            let passed = self.passed.entry(message.fingerprint).or_default();
            passed.put_at_ns.push_back(message.at_ns);
            self.puts.push_back(message.fingerprint);
        } else if let Some(passed) = self.passed.get_mut(&message.fingerprint) {
            let puts = passed.first.saturating_add(passed.put_at_ns.len() as u64).saturating_sub(1);
            let messages = passed.messages.entry(ByteBuf::from(peer)).or_default();
            messages.push_back(Delivery { puts, at_ns: message.at_ns, group });
            self.messages = self.messages.saturating_add(1);
            if messages.len() > OF_SUBSCRIBER {
                let paired = passed.pair(peer);
                self.messages = self.messages.saturating_sub(paired.len());
                time_all(paired, time);
            }
        }
        while self.puts.len() > self.budget.share(PUTS) || self.messages > self.budget.share(MESSAGES) {
            let Some(oldest) = self.puts.pop_front() else { break };
            self.forget(oldest, time);
        }
    }

    /// Nothing more passes.
    pub(crate) fn finish(&mut self, time: &mut impl FnMut(G, i64)) {
        for (_, mut passed) in std::mem::take(&mut self.passed) {
            time_all(passed.pair_all(), time);
        }
        *self = Self::within(self.budget);
    }

    /// Forgets the oldest PUT of a fingerprint.
    fn forget(&mut self, fingerprint: u128, time: &mut impl FnMut(G, i64)) {
        let Some(passed) = self.passed.get_mut(&fingerprint) else { return };
        let paired = passed.pair_all();
        passed.put_at_ns.pop_front();
        passed.first = passed.first.saturating_add(1);
        if passed.put_at_ns.is_empty() {
            self.passed.remove(&fingerprint);
        }
        self.messages = self.messages.saturating_sub(paired.len());
        time_all(paired, time);
    }
}

fn time_all<G>(paired: Vec<Timed<G>>, time: &mut impl FnMut(G, i64)) {
    for (group, latency_ns) in paired {
        if let (Some(group), Some(latency_ns)) = (group, latency_ns) {
            time(group, latency_ns);
        }
    }
}

impl<G> Default for Passed<G> {
    fn default() -> Self {
        Self { first: 1, put_at_ns: VecDeque::new(), messages: HashMap::default() }
    }
}

impl<G> Passed<G> {
    /// Pairs all MESSAGEs with their PUTs.
    fn pair_all(&mut self) -> Vec<Timed<G>> {
        let peers: Vec<_> = self.messages.keys().cloned().collect();
        peers.iter().flat_map(|peer| self.pair(peer)).collect()
    }

    /// Pairs the MESSAGEs of a subscriber with their PUTs: from the last one backwards, each takes the latest that is left.
    fn pair(&mut self, peer: &[u8]) -> Vec<Timed<G>> {
        let messages = self.messages.remove(Bytes::new(peer)).unwrap_or_default();
        let mut left = u64::MAX;
        let mut paired = Vec::with_capacity(messages.len());
        for Delivery { puts, at_ns, group } in messages.into_iter().rev() {
            let put = puts.min(left);
            left = put.saturating_sub(1);
            let at = put.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
            let put_at_ns = at.and_then(|at| self.put_at_ns.get(at));
            paired.push((group, put_at_ns.map(|put_at_ns| at_ns.saturating_sub(*put_at_ns))));
        }
        paired
    }
}
