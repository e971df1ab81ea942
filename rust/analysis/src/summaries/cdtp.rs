//! The messages of CDTP's senders.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use arrow_array::{Array, RecordBatch};
use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use trunkline_columns::ColumnError;
use trunkline_wire::cdtp::{Follower, MessageType};

use super::{
    Scope, Section,
    batches::{Batch, Batches, Shares},
    names::{COLOURS, Names, OTHERS, cut, within},
    series::{Kinds, Merge, Series},
};
use crate::{
    divide::{Choice, Key},
    fingerprint::fingerprint_of,
    fold::Fold,
    gaps::{Gaps, followed},
    rows::{Chosen, number_at, numbers, size_at, small, text, text_at},
    seen::Seen,
};

/// How many senders have their own row.
const SENDERS: usize = 200;

/// How many senders' sequence numbers are followed.
const FOLLOWED: usize = 1 << 17;

/// Counts messages.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Cdtp {
    followers: HashMap<u128, Follower, RandomState>,
    batches: Batches,
    senders: Names<Sender>,
    endpoints: HashMap<Option<String>, Endpoint, RandomState>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Sender {
    variants: BTreeSet<String>,
    messages: u64,
    bytes: u64,
    seen: Seen,
    missing: Option<u64>,
    rates: Series,
    volumes: Series,
    shares: Shares,
    sizes: Series,
    gaps: Series,
}

/// The senders at an endpoint, and invalid messages there that do not name their sender.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Endpoint {
    /// Up to two names: with two, the sender of invalid messages is unknown.
    senders: BTreeSet<String>,
    malformed: Kinds,
    bytes: u64,
}

#[derive(Serialize)]
pub(super) struct Found {
    senders: Vec<Row>,
    beyond: u64,
    rates: BTreeMap<i32, BTreeMap<i32, f64>>,
    volumes: BTreeMap<i32, BTreeMap<i32, f64>>,
    sizes: BTreeMap<i32, Series>,
    gaps: BTreeMap<i32, Series>,
}

#[derive(Clone, Default, Serialize)]
struct Row {
    sender: Option<String>,
    variants: BTreeSet<String>,
    messages: u64,
    bytes: u64,
    first_received_at_ns: Option<i64>,
    last_received_at_ns: Option<i64>,
    missing: Option<u64>,
    malformed: Kinds,
    others: usize,
}

impl Merge for Sender {
    fn merge(&mut self, other: Self) {
        self.variants.extend(other.variants);
        self.messages = self.messages.saturating_add(other.messages);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.seen.merge(other.seen);
        self.missing = sum(self.missing, other.missing);
        self.rates.merge(&other.rates);
        self.volumes.merge(&other.volumes);
        self.shares.merge(&other.shares);
        self.sizes.merge(&other.sizes);
        self.gaps.merge(&other.gaps);
    }

    fn halve(&mut self) {
        self.rates.halve();
        self.volumes.halve();
        self.shares.halve();
        self.gaps.halve();
    }
}

impl Section for Cdtp {
    const PROTOCOL: &'static str = "cdtp";
    const KEY: Key = &[&[Choice::always("capture_id")], &[Choice::always("sender")]];
    const NEEDS: &'static [&'static [&'static str]] = &[Gaps::NEEDS, &["variant", "payload_bytes"]];
    const VERSION: u16 = 4;
    type Found = Found;

    fn record(&mut self, batch: &RecordBatch, chosen: &Chosen, scope: &Scope) -> Result<(), ColumnError> {
        let [capture_id, endpoint, variants, names, errors, types] =
            ["capture_id", "endpoint", "variant", "sender", "error", "type"].map(|name| text(batch, name));
        let (capture_id, endpoint, variants) = (capture_id?, endpoint?, variants?);
        let (names, errors, types) = (names?, errors?, types?);
        let [seq, received_at_ns, n_bytes, payload_bytes, sequences] =
            ["seq", "received_at_ns", "n_bytes", "payload_bytes", "sequence"].map(|name| numbers(batch, name));
        let (seq, received_at_ns, n_bytes) = (seq?, received_at_ns?, n_bytes?);
        let (payload_bytes, sequences) = (payload_bytes?, sequences?);
        let records = small(batch, "record")?;
        let mut last = None;
        for row in (0..batch.num_rows()).filter(|row| chosen.has(*row)) {
            let at = text_at(&endpoint, row);
            // If only some records of a message are selected, the payloads count in place of all frames.
            let bytes = if scope.has_records {
                size_at(&payload_bytes, row)
            } else if records.is_null(row) || records.value(row) == 0 {
                size_at(&n_bytes, row)
            } else {
                0
            };
            let Some(variant) = text_at(&variants, row) else {
                if let Some(kind) = text_at(&errors, row) {
                    self.fail(at, kind, bytes);
                }
                continue;
            };
            let (name, at_ns) = (text_at(&names, row).unwrap_or_default(), received_at_ns.value(row));
            let source = (text_at(&capture_id, row), at, name);
            // Most messages have the same sender as the one before.
            let (whose, whence) = match last {
                Some((before, numbers)) if before == source => numbers,
                _ => {
                    self.send(at, cut(name));
                    let [capture, at, name] = [source.0, at, Some(name)].map(|part| part.map(str::as_bytes));
                    (fingerprint_of(&[capture, name]), fingerprint_of(&[capture, at, name]))
                }
            };
            last = Some((source, (whose, whence)));
            let name = cut(name).as_bytes();
            let number = followed(text_at(&types, row), records.value(row), number_at(&sequences, row));
            let number = number.filter(|_| scope.has_sequences);
            let missed = number.and_then(|number| self.follow(whose, number));
            let sender = self.senders.of(name);
            let bucket = scope.clock.bucket(at_ns);
            sender.messages += 1;
            sender.bytes = sender.bytes.saturating_add(bytes);
            sender.seen.add(at_ns);
            if !sender.variants.contains(variant) {
                sender.variants.insert(variant.to_owned());
            }
            if let Some(payload_bytes) = number_at(&payload_bytes, row) {
                let digits = u64::BITS - payload_bytes.max(0).unsigned_abs().leading_zeros();
                sender.sizes.add(i32::try_from(digits).unwrap_or_default(), 1);
            }
            if let Some(missed) = missed {
                sender.missing = sum(sender.missing, Some(missed));
                if missed > 0 {
                    sender.gaps.add(bucket, missed);
                }
            }
            if variant != "2" || scope.has_records {
                sender.rates.add(bucket, 1);
                sender.volumes.add(bucket, bytes);
            } else {
                let batch = Batch { seq: seq.value(row), at_ns, bytes: size_at(&n_bytes, row), records: 1 };
                let Self { senders, batches, .. } = self;
                batches.take(whence, name, batch, &mut |name, before_ns, batch| {
                    senders.of(name).shares.add(before_ns, batch, &scope.clock);
                });
            }
        }
        Ok(())
    }

    fn finish(&mut self, scope: &Scope) {
        let Self { senders, batches, .. } = self;
        batches.finish(&mut |name, before_ns, batch| senders.of(name).shares.add(before_ns, batch, &scope.clock));
        self.followers.clear();
    }

    fn merge(&mut self, other: Self) {
        self.senders.merge(other.senders);
        for (at, theirs) in other.endpoints {
            for name in &theirs.senders {
                self.send(at.as_deref(), name);
            }
            let Some(mine) = self.endpoint(at.as_deref()) else { continue };
            mine.bytes = mine.bytes.saturating_add(theirs.bytes);
            mine.malformed.merge(&theirs.malformed);
        }
    }

    fn halve(&mut self) {
        self.senders.halve();
    }

    fn evaluate(&self, _scope: &Scope, _buckets: i32) -> Found {
        let (mut malformed, mut unknown) = (HashMap::<&str, Row>::new(), None::<Row>);
        for endpoint in self.endpoints.values().filter(|endpoint| !endpoint.malformed.is_empty()) {
            let mut owners = endpoint.senders.iter();
            let row = match (owners.next(), owners.next()) {
                (Some(owner), None) => malformed.entry(owner).or_default(),
                _ => unknown.get_or_insert_default(),
            };
            row.bytes = row.bytes.saturating_add(endpoint.bytes);
            row.malformed.merge(&endpoint.malformed);
        }
        let row = |name: &[u8], sender: &Sender| {
            let name = String::from_utf8_lossy(name).into_owned();
            let mut row = malformed.get(name.as_str()).cloned().unwrap_or_default();
            row.add(sender);
            row.sender = Some(name);
            row
        };
        let mut sorted: Vec<_> = self.senders.named().map(|(name, sender)| (row(name, sender), sender)).collect();
        sorted.sort_by(|(one, _), (other, _)| {
            (Reverse(one.total()), &one.sender).cmp(&(Reverse(other.total()), &other.sender))
        });
        let mut found = Found {
            senders: Vec::new(),
            beyond: self.senders.beyond(),
            rates: BTreeMap::new(),
            volumes: BTreeMap::new(),
            sizes: BTreeMap::new(),
            gaps: BTreeMap::new(),
        };
        let mut others = Row { others: sorted.len().saturating_sub(SENDERS), ..Row::default() };
        for (at, (row, sender)) in sorted.into_iter().enumerate() {
            found.plot(if at < COLOURS { i32::try_from(at).unwrap_or(OTHERS) } else { OTHERS }, sender);
            if at < SENDERS {
                found.senders.push(row);
            } else {
                others.take(row);
            }
        }
        if self.senders.beyond() > 0 {
            found.plot(OTHERS, self.senders.rest());
            others.add(self.senders.rest());
        }
        found.senders.extend((others.others > 0).then_some(others));
        found.senders.extend(unknown);
        found
    }
}

impl Cdtp {
    /// How many numbers before that of a message were skipped.
    fn follow(&mut self, source: u128, (kind, sequence): (MessageType, u64)) -> Option<u64> {
        if self.followers.len() >= FOLLOWED && !self.followers.contains_key(&source) {
            return None;
        }
        Some(self.followers.entry(source).or_default().follow(kind, sequence))
    }

    fn endpoint(&mut self, at: Option<&str>) -> Option<&mut Endpoint> {
        within(&mut self.endpoints, at.map(str::to_owned))
    }

    /// A sender is seen at an endpoint.
    fn send(&mut self, at: Option<&str>, name: &str) {
        let Some(endpoint) = self.endpoint(at) else { return };
        if endpoint.senders.len() < 2 && !endpoint.senders.contains(name) {
            endpoint.senders.insert(name.to_owned());
        }
    }

    fn fail(&mut self, at: Option<&str>, kind: &str, bytes: u64) {
        let Some(endpoint) = self.endpoint(at) else { return };
        endpoint.bytes = endpoint.bytes.saturating_add(bytes);
        endpoint.malformed.add(kind, 1);
    }
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.map_or(other, |one| Some(one.saturating_add(other.unwrap_or_default())))
}

impl Row {
    /// All messages, invalid ones included.
    fn total(&self) -> u64 {
        self.messages.saturating_add(self.malformed.sum())
    }

    fn add(&mut self, sender: &Sender) {
        self.take(Self {
            variants: sender.variants.clone(),
            messages: sender.messages,
            bytes: sender.bytes,
            first_received_at_ns: sender.seen.first(),
            last_received_at_ns: sender.seen.last(),
            missing: sender.missing,
            ..Self::default()
        });
    }

    fn take(&mut self, other: Self) {
        self.variants.extend(other.variants);
        self.messages = self.messages.saturating_add(other.messages);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.first_received_at_ns = self.first_received_at_ns.into_iter().chain(other.first_received_at_ns).min();
        self.last_received_at_ns = self.last_received_at_ns.max(other.last_received_at_ns);
        self.missing = sum(self.missing, other.missing);
        self.malformed.merge(&other.malformed);
    }
}

impl Found {
    /// Adds the plotted series of a sender, in the colour of this index.
    #[allow(clippy::cast_precision_loss)] // counts to look at
    fn plot(&mut self, at: i32, sender: &Sender) {
        let add = |sums: &mut BTreeMap<i32, BTreeMap<i32, f64>>, bucket, count| {
            *sums.entry(at).or_default().entry(bucket).or_default() += count;
        };
        for (bucket, count) in sender.rates.iter() {
            add(&mut self.rates, bucket, count as f64);
        }
        for (bucket, count) in sender.volumes.iter() {
            add(&mut self.volumes, bucket, count as f64);
        }
        for (bucket, count) in sender.shares.records() {
            add(&mut self.rates, bucket, count);
        }
        for (bucket, count) in sender.shares.bytes() {
            add(&mut self.volumes, bucket, count);
        }
        for (sums, series) in [(&mut self.sizes, &sender.sizes), (&mut self.gaps, &sender.gaps)] {
            if !series.is_empty() {
                sums.entry(at).or_default().merge(series);
            }
        }
    }
}
