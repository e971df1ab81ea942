//! The traffic of mc0 topics, in time windows.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
};

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use serde_bytes::{ByteBuf, Bytes};
use trunkline_columns::ColumnError;

use crate::{
    budget::Budget,
    fold::Fold,
    latencies::Latencies,
    ordered::Limits,
    passing::{Message, NEEDS, Passing, SeenBy, messages},
    table::{Cell, Columns, Kind},
};

/// How many topics in windows are counted, and how many bytes their names, peers and times may take.
const GROUPS: usize = 1 << 20;
const GROUPS_BYTES: usize = 256 << 20;

/// About what a peer takes besides its name.
const PEER_BYTES: usize = 64;

/// The part of the budget that is freed at once: one in this many.
const SPARED: usize = 16;

/// Counts messages that pass through topics.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Topics {
    window_us: i64,
    #[serde(skip)]
    limits: Limits,
    groups: BTreeMap<Of, Group>,
    bytes: usize,
    /// Windows that start here or before are over: no new one begins.
    over_us: i64,
    /// The counts of groups that were dropped.
    left: VecDeque<(Of, Group)>,
    passing: Passing<Of>,
    evicted: u64,
    #[serde(default)]
    left_out: u64,
}

/// The window's start in microseconds, the role that saw it, and the topic.
type Of = (i64, SeenBy, String);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Group {
    puts: i64,
    deliveries: i64,
    bytes: i64,
    publishers: BTreeSet<ByteBuf>,
    subscribers: BTreeSet<ByteBuf>,
    /// How many bytes these take.
    peers: usize,
    latencies: Latencies,
    /// Whether something of it was let go.
    #[serde(default)]
    is_evicted: bool,
}

impl Group {
    /// About how many bytes it takes.
    fn weight(&self, of: &Of) -> usize {
        size_of::<(Of, Self)>() + of.2.len() + self.peers + self.latencies.weight()
    }
}

impl Fold for Topics {
    const NAME: &'static str = "topics";
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
        ("evicted", Kind::Flag),
    ];
    const KEY: &'static [&'static str] = &["window", "seen_by", "topic"];

    fn ingest(&mut self, batch: &RecordBatch) -> Result<(), ColumnError> {
        messages(batch, |message| {
            let of = (self.window(message.at_ns), message.seen_by, message.topic.to_owned());
            let group = if message.is_chosen { self.count(of, message) } else { None };
            let Self { passing, groups, bytes, .. } = self;
            passing.pass(message, group, &mut |group, latency_ns| time(groups, bytes, &group, latency_ns));
            self.evict();
        })
    }

    fn emit(&mut self, is_end: bool) -> Option<Vec<Cell>> {
        if is_end {
            let Self { passing, groups, bytes, .. } = self;
            passing.finish(&mut |group, latency_ns| time(groups, bytes, &group, latency_ns));
        }
        let left = self.left.pop_front();
        let (of, group) = left.or_else(|| if is_end { self.groups.pop_first() } else { None })?;
        Some(self.cells(of, &group))
    }

    fn forget(&mut self, before_ns: i64) {
        self.over_us = self.over_us.max(before_ns.div_euclid(1000).saturating_sub(self.window_us));
        let stay = self.groups.split_off(&(self.over_us.saturating_add(1), SeenBy::Connector, String::new()));
        for (of, group) in mem::replace(&mut self.groups, stay) {
            self.bytes = self.bytes.saturating_sub(group.weight(&of));
        }
    }

    fn resize(&mut self, budget: Budget) {
        self.limits = Limits::of(budget, GROUPS, GROUPS_BYTES);
        self.passing.resize(budget);
    }

    fn evicted(&self) -> u64 {
        self.evicted
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }
}

impl Topics {
    /// With windows of so many microseconds.
    pub(crate) fn within(budget: Budget, window_us: i64) -> Self {
        Self {
            window_us: window_us.max(1),
            limits: Limits::of(budget, GROUPS, GROUPS_BYTES),
            groups: BTreeMap::new(),
            bytes: 0,
            over_us: i64::MIN,
            left: VecDeque::new(),
            passing: Passing::within(budget),
            evicted: 0,
            left_out: 0,
        }
    }

    fn window(&self, at_ns: i64) -> i64 {
        let micros = at_ns.div_euclid(1000);
        micros.saturating_sub(micros.rem_euclid(self.window_us.max(1)))
    }

    /// Counts a message in its group, and gives that; None if its window is over.
    fn count(&mut self, of: Of, message: &Message<'_>) -> Option<Of> {
        let Message { is_put, size, peer, .. } = *message;
        if !self.groups.contains_key(&of) {
            if of.0 <= self.over_us {
                self.left_out = self.left_out.saturating_add(1);
                return None;
            }
            self.bytes = self.bytes.saturating_add(Group::default().weight(&of));
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
            let weight = peer.len() + PEER_BYTES;
            if group.peers.saturating_add(weight) > self.limits.bytes {
                self.evicted = self.evicted.saturating_add(u64::from(!group.is_evicted));
                group.is_evicted = true;
            } else {
                group.peers = group.peers.saturating_add(weight);
                self.bytes = self.bytes.saturating_add(weight);
                peers.insert(ByteBuf::from(peer));
            }
        }
        Some(of)
    }

    /// Ends the oldest windows if there are more than may be kept.
    fn evict(&mut self) {
        let Limits { count, bytes } = self.limits;
        if self.groups.len() <= count && (self.bytes <= bytes || self.groups.len() <= 1) {
            return;
        }
        // Several at once: each time, their pending deliveries are searched for.
        let mut left = BTreeMap::new();
        while self.groups.len() > count - count / SPARED || self.bytes > bytes - bytes / SPARED {
            let Some((of, mut group)) = self.groups.pop_first() else { break };
            self.bytes = self.bytes.saturating_sub(group.weight(&of));
            self.over_us = self.over_us.max(of.0);
            self.evicted = self.evicted.saturating_add(u64::from(!group.is_evicted));
            group.is_evicted = true;
            left.insert(of, group);
        }
        self.passing.clone().finish(&mut |group, latency_ns| time(&mut left, &mut 0, &group, latency_ns));
        self.left.extend(left);
    }

    fn cells(&self, (start, seen_by, topic): Of, group: &Group) -> Vec<Cell> {
        let at_middleware = seen_by == SeenBy::Middleware;
        let peers = [group.publishers.len(), group.subscribers.len()];
        let peers = peers.map(|count| at_middleware.then(|| i64::try_from(count).unwrap_or(i64::MAX)).into());
        let percentiles = [0.5, 0.99].map(|share| group.latencies.percentile(share).into());
        let counts = [group.puts, group.deliveries, group.bytes].map(Cell::Number);
        let window = Cell::Window(start, start.saturating_add(self.window_us));
        let of = [window, Cell::Word(seen_by.name()), Cell::Text(topic)];
        of.into_iter().chain(counts).chain(peers).chain(percentiles).chain([Cell::Flag(group.is_evicted)]).collect()
    }
}

fn time(groups: &mut BTreeMap<Of, Group>, bytes: &mut usize, group: &Of, latency_ns: i64) {
    if let Some(group) = groups.get_mut(group) {
        let before = group.latencies.weight();
        group.latencies.add(latency_ns);
        *bytes = bytes.saturating_add(group.latencies.weight()).saturating_sub(before);
    }
}
