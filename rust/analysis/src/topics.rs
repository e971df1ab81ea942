//! The traffic of mc0 topics, in time windows.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use serde_bytes::{ByteBuf, Bytes};
use trunkline_columns::ColumnError;

use crate::{
    fold::Fold,
    latencies::Latencies,
    passing::{Message, NEEDS, Passing, SeenBy, messages},
    table::{Cell, Columns, Kind},
};

/// How many topics in windows are counted, and how many bytes their names and peers may take.
const GROUPS: usize = 1 << 20;
const GROUPS_BYTES: usize = 256 << 20;

/// Counts what passes through topics.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Topics {
    window_us: i64,
    groups: BTreeMap<Of, Group>,
    bytes: usize,
    passing: Passing<Of>,
    let_go: u64,
}

/// The window's start in microseconds, who saw it, and the topic.
type Of = (i64, SeenBy, String);

#[derive(Debug, Default, Serialize, Deserialize)]
struct Group {
    puts: i64,
    deliveries: i64,
    bytes: i64,
    publishers: BTreeSet<ByteBuf>,
    subscribers: BTreeSet<ByteBuf>,
    latencies: Latencies,
}

impl Default for Topics {
    fn default() -> Self {
        Self::new(60_000_000)
    }
}

impl Fold for Topics {
    const NAME: &'static str = "topics";
    const VERSION: u16 = 1;
    const PROTOCOL: &'static str = "mc0";
    const NEEDS: &'static [&'static str] = NEEDS;
    const COLUMNS: Columns = &[
        ("window", Kind::Window),
        ("seen_by", Kind::Text),
        ("topic", Kind::Text),
        ("puts", Kind::Number),
        ("deliveries", Kind::Number),
        ("bytes", Kind::Number),
        ("publishers", Kind::Number),
        ("subscribers", Kind::Number),
        ("p50_ns", Kind::Number),
        ("p99_ns", Kind::Number),
    ];

    fn take_in(&mut self, batch: &RecordBatch) -> Result<(), ColumnError> {
        messages(batch, |message| {
            let of = (self.window(message.at_ns), message.seen_by, message.topic.to_owned());
            let group = if message.is_chosen { self.count(of, message) } else { None };
            let Self { passing, groups, .. } = self;
            passing.pass(message, group, &mut |group, latency_ns| time(groups, &group, latency_ns));
        })
    }

    fn next(&mut self, is_end: bool) -> Option<Vec<Cell>> {
        if !is_end {
            return None;
        }
        let Self { passing, groups, .. } = self;
        passing.finish(&mut |group, latency_ns| time(groups, &group, latency_ns));
        let ((start, seen_by, topic), group) = self.groups.pop_first()?;
        let at_middleware = seen_by == SeenBy::Middleware;
        let peers = [group.publishers.len(), group.subscribers.len()];
        let peers = peers.map(|count| at_middleware.then(|| i64::try_from(count).unwrap_or(i64::MAX)).into());
        let percentiles = [0.5, 0.99].map(|share| group.latencies.percentile(share).into());
        let counts = [group.puts, group.deliveries, group.bytes].map(Cell::Number);
        let window = Cell::Window(start, start.saturating_add(self.window_us));
        let of = [window, Cell::Word(seen_by.name()), Cell::Text(topic)];
        Some(of.into_iter().chain(counts).chain(peers).chain(percentiles).collect())
    }

    fn let_go(&self) -> u64 {
        self.let_go
    }
}

impl Topics {
    /// With windows of so many microseconds.
    pub(crate) fn new(window_us: i64) -> Self {
        Self { window_us: window_us.max(1), groups: BTreeMap::new(), bytes: 0, passing: Passing::default(), let_go: 0 }
    }

    fn window(&self, at_ns: i64) -> i64 {
        let micros = at_ns.div_euclid(1000);
        micros - micros.rem_euclid(self.window_us)
    }

    /// Counts a message in its group, and gives that; None where there are too many.
    fn count(&mut self, of: Of, message: &Message<'_>) -> Option<Of> {
        let Message { is_put, size, peer, .. } = *message;
        if !self.groups.contains_key(&of) {
            let weight = size_of::<(Of, Group)>() + of.2.len();
            if self.groups.len() >= GROUPS || self.bytes + weight > GROUPS_BYTES {
                self.let_go += 1;
                return None;
            }
            self.bytes += weight;
        }
        let group = self.groups.entry(of.clone()).or_default();
        let (count, peers) = if is_put {
            (&mut group.puts, &mut group.publishers)
        } else {
            (&mut group.deliveries, &mut group.subscribers)
        };
        *count = count.saturating_add(1);
        if is_put || peer.is_none() {
            group.bytes = group.bytes.saturating_add(size);
        }
        if let Some(peer) = peer
            && !peers.contains(Bytes::new(peer))
        {
            if self.bytes + peer.len() > GROUPS_BYTES {
                self.let_go += 1;
            } else {
                self.bytes += peer.len() + 64;
                peers.insert(ByteBuf::from(peer));
            }
        }
        Some(of)
    }
}

fn time(groups: &mut BTreeMap<Of, Group>, group: &Of, latency_ns: i64) {
    if let Some(group) = groups.get_mut(group) {
        group.latencies.add(latency_ns);
    }
}
