//! The topics of mc0, and refusals.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
};

use arrow_array::RecordBatch;
use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use serde_bytes::{ByteBuf, Bytes};
use trunkline_columns::ColumnError;

use super::{
    OWN, Scope, Section,
    names::{Names, by_name, coloured, common_role, cut, cut_bytes, within},
    series::{Clock, Merge, Series, Times},
};
use crate::{
    divide::{Choice, Key},
    passing::{self, Message, Passing, SeenBy, messages},
    rows::{Chosen, binary, bytes_at, numbers, text, text_at},
    seen::Seen,
};

/// How many topics and how many refusals are listed.
const TOPICS: usize = 200;
const REFUSALS: usize = 100;

/// How many peers of one topic are counted separately.
const PEERS: usize = 100_000;

/// Counts what passes through topics.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Mc0 {
    passing: Passing<ByteBuf>,
    /// By the topic's name and, in the last byte, the role that saw its messages.
    topics: Names<Topic>,
    left_out: bool,
    refusals: HashMap<RefusedOf, Refusal, RandomState>,
    refused: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Topic {
    puts: u64,
    deliveries: u64,
    bytes: i64,
    publishers: BTreeSet<ByteBuf>,
    subscribers: BTreeSet<ByteBuf>,
    seen: Seen,
    times: Times,
    rates: Series,
}

/// The text of errors, and the peer they were sent to.
type RefusedOf = (Option<String>, Option<ByteBuf>);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Refusal {
    errors: u64,
    seen: Seen,
}

#[derive(Serialize)]
pub(super) struct Found {
    topics: Vec<Row>,
    topic_count: usize,
    beyond: u64,
    left_out: bool,
    puts: u64,
    deliveries: u64,
    rates: Vec<(i32, Series)>,
    latencies: Vec<(i32, Series)>,
    refusals: Vec<Refused>,
    refused: u64,
}

/// A topic, or others together.
#[derive(Serialize)]
struct Row {
    topic: Option<String>,
    seen_by: Option<&'static str>,
    puts: u64,
    deliveries: u64,
    bytes: i64,
    publishers: Option<usize>,
    subscribers: Option<usize>,
    first_received_at_ns: Option<i64>,
    last_received_at_ns: Option<i64>,
    p50_ns: Option<i64>,
    p99_ns: Option<i64>,
    max_ns: Option<i64>,
    others: usize,
}

/// Errors of one text to one peer, or others together.
#[derive(Serialize)]
struct Refused {
    text: Option<String>,
    peer: Option<ByteBuf>,
    errors: u64,
    first_received_at_ns: Option<i64>,
    last_received_at_ns: Option<i64>,
    others: usize,
}

impl Merge for Topic {
    fn merge(&mut self, other: Self) {
        self.puts = self.puts.saturating_add(other.puts);
        self.deliveries = self.deliveries.saturating_add(other.deliveries);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.publishers.extend(other.publishers);
        self.subscribers.extend(other.subscribers);
        self.seen.merge(other.seen);
        self.times.merge(other.times);
        self.rates.merge(&other.rates);
    }

    fn halve(&mut self) {
        self.rates.halve();
    }
}

impl Section for Mc0 {
    const PROTOCOL: &'static str = "mc0";
    const KEY: Key = &[&[Choice::always("topic")]];
    const NEEDS: &'static [&'static [&'static str]] = &[passing::NEEDS, &["text"]];
    const VERSION: u16 = 4;
    type Found = Found;

    fn record(&mut self, batch: &RecordBatch, chosen: &Chosen, scope: &Scope) -> Result<(), ColumnError> {
        let Self { passing, topics, left_out, .. } = self;
        messages(batch, |message| {
            let is_left_out = !scope.has_own && message.topic.starts_with(OWN);
            *left_out |= message.is_chosen && is_left_out;
            let name = (message.is_chosen && !is_left_out).then(|| {
                let mut name = cut(message.topic).as_bytes().to_vec();
                name.push(message.seen_by as u8);
                topics.of(&name).add(message, &scope.clock);
                ByteBuf::from(name)
            });
            passing.pass(message, name, &mut |name, latency_ns| topics.of(&name).times.add(latency_ns));
        })?;
        self.refuse(batch, chosen)
    }

    fn finish(&mut self, _scope: &Scope) {
        let Self { passing, topics, .. } = self;
        passing.finish(&mut |name, latency_ns| topics.of(&name).times.add(latency_ns));
    }

    fn merge(&mut self, other: Self) {
        self.topics.merge(other.topics);
        self.left_out |= other.left_out;
        self.refused = self.refused.saturating_add(other.refused);
        for (of, refusal) in other.refusals {
            if let Some(mine) = within(&mut self.refusals, of) {
                mine.errors = mine.errors.saturating_add(refusal.errors);
                mine.seen.merge(refusal.seen);
            }
        }
    }

    fn halve(&mut self) {
        self.topics.halve();
    }

    fn evaluate(&self, _scope: &Scope, _buckets: i32) -> Found {
        let sorted = self.topics.sorted(Topic::messages, by_name);
        let every = || sorted.iter().map(|(_, topic)| *topic).chain([self.topics.rest()]);
        let sum = |count: fn(&Topic) -> u64| self.topics.all().map(count).fold(0, u64::saturating_add);
        let mut refusals: Vec<_> = self.refusals.iter().collect();
        refusals.sort_unstable_by_key(|(of, refusal)| (Reverse(refusal.errors), *of));
        let mut topics: Vec<_> = sorted.iter().take(TOPICS).map(|(name, topic)| topic.named(name)).collect();
        if let Some((others, sum)) = self.topics.others(&sorted, TOPICS) {
            let role = common_role(sorted.iter().skip(TOPICS).map(|(name, _)| *name));
            topics.push(Row { others, ..sum.row(None, role) });
        }
        Found {
            topics,
            topic_count: self.topics.len(),
            beyond: self.topics.beyond(),
            left_out: self.left_out,
            puts: sum(|topic| topic.puts),
            deliveries: sum(|topic| topic.deliveries),
            rates: coloured(every().map(|topic| &topic.rates)),
            latencies: coloured(every().map(|topic| topic.times.classes())),
            refusals: self.rows_of(&refusals),
            refused: self.refused,
        }
    }
}

impl Mc0 {
    /// The first refusals, and the others together; all that were too many to be told apart are among these.
    fn rows_of(&self, refusals: &[(&RefusedOf, &Refusal)]) -> Vec<Refused> {
        let (listed, others) = refusals.split_at(refusals.len().min(REFUSALS));
        let mut rows: Vec<_> = listed.iter().map(|(of, refusal)| refusal.row(of)).collect();
        if !others.is_empty() {
            let mut seen = Seen::default();
            for (_, refusal) in others {
                seen.merge(refusal.seen);
            }
            let errors = rows.iter().fold(self.refused, |left, row| left.saturating_sub(row.errors));
            let all = Refusal { errors, seen }.row(&(None, None));
            rows.push(Refused { others: others.len(), ..all });
        }
        rows
    }

    /// Counts the errors that a middleware sent or a connector received.
    fn refuse(&mut self, batch: &RecordBatch, chosen: &Chosen) -> Result<(), ColumnError> {
        let (verbs, texts, direction) = (text(batch, "verb")?, text(batch, "text")?, text(batch, "direction")?);
        let (peers, at_ns) = (binary(batch, "peer")?, numbers(batch, "received_at_ns")?);
        for row in 0..batch.num_rows() {
            let peer = bytes_at(&peers, row);
            let is_refused = text_at(&verbs, row) == Some("ERROR")
                && (text_at(&direction, row) == Some("out")) == peer.is_some()
                && chosen.has(row);
            if is_refused {
                self.refused += 1;
                let of =
                    (text_at(&texts, row).map(|text| cut(text).to_owned()), peer.map(cut_bytes).map(ByteBuf::from));
                if let Some(refusal) = within(&mut self.refusals, of) {
                    refusal.errors += 1;
                    refusal.seen.add(at_ns.value(row));
                }
            }
        }
        Ok(())
    }
}

impl Topic {
    const fn messages(&self) -> u64 {
        self.puts.saturating_add(self.deliveries)
    }

    fn add(&mut self, message: &Message<'_>, clock: &Clock) {
        let (count, peers) = if message.is_put {
            (&mut self.puts, &mut self.publishers)
        } else {
            (&mut self.deliveries, &mut self.subscribers)
        };
        *count += 1;
        if let Some(peer) = message.peer
            && peers.len() < PEERS
            && !peers.contains(Bytes::new(peer))
        {
            peers.insert(ByteBuf::from(peer));
        }
        self.seen.add(message.at_ns);
        if message.is_put || message.seen_by == SeenBy::Connector {
            self.bytes = self.bytes.saturating_add(message.size);
            self.rates.add(clock.bucket(message.at_ns), 1);
        }
    }

    fn named(&self, name: &[u8]) -> Row {
        let (role, topic) = name.split_last().unwrap_or((&0, &[]));
        self.row(Some(String::from_utf8_lossy(topic).into_owned()), Some(*role))
    }

    fn row(&self, topic: Option<String>, role: Option<u8>) -> Row {
        let is_middleware = |role| role == SeenBy::Middleware as u8;
        // A connector has one peer.
        let has_peers = role.is_none_or(is_middleware);
        let [p50_ns, p99_ns] = self.times.percentiles([0.5, 0.99]);
        Row {
            topic,
            seen_by: role.map(|role| if is_middleware(role) { SeenBy::Middleware } else { SeenBy::Connector }.name()),
            puts: self.puts,
            deliveries: self.deliveries,
            bytes: self.bytes,
            publishers: has_peers.then_some(self.publishers.len()),
            subscribers: has_peers.then_some(self.subscribers.len()),
            first_received_at_ns: self.seen.first(),
            last_received_at_ns: self.seen.last(),
            p50_ns,
            p99_ns,
            max_ns: self.times.max_ns(),
            others: 0,
        }
    }
}

impl Refusal {
    fn row(&self, (text, peer): &RefusedOf) -> Refused {
        Refused {
            text: text.clone(),
            peer: peer.clone(),
            errors: self.errors,
            first_received_at_ns: self.seen.first(),
            last_received_at_ns: self.seen.last(),
            others: 0,
        }
    }
}
