//! The records of CDTP2 messages, which carry many at a time, spread over the time in which they were gathered.

use std::collections::HashMap;

use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};

use super::series::{Clock, Series};

/// So many units are one: shares are exact in units, so their sum is the same in any order.
const UNITS: u64 = 1 << 20;

/// A message more buckets earlier does not count as the previous one.
const FAR: i32 = 1 << 12;

/// How many sources are followed.
const SOURCES: usize = 1 << 17;

/// The current message of each source: of a sender at an endpoint.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Batches(HashMap<u128, Source, RandomState>);

#[derive(Debug, Serialize, Deserialize)]
struct Source {
    sender: Vec<u8>,
    /// When the previous message came.
    before_ns: Option<i64>,
    now: Batch,
}

/// A message and its number of records.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Batch {
    pub(crate) seq: i64,
    pub(crate) at_ns: i64,
    pub(crate) bytes: u64,
    pub(crate) records: u64,
}

/// What came in each bucket, in units.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Shares {
    records: Series,
    bytes: Series,
}

impl Batches {
    /// A record comes; `spread` is called with complete messages, and the time of the one before.
    pub(crate) fn take(
        &mut self,
        source: u128,
        sender: &[u8],
        record: Batch,
        spread: &mut impl FnMut(&[u8], Option<i64>, Batch),
    ) {
        if let Some(known) = self.0.get_mut(&source) {
            if known.now.seq == record.seq {
                known.now.records += record.records;
            } else {
                spread(&known.sender, known.before_ns, known.now);
                known.before_ns = Some(known.now.at_ns);
                known.now = record;
            }
        } else if self.0.len() < SOURCES {
            self.0.insert(source, Source { sender: sender.to_vec(), before_ns: None, now: record });
        } else {
            spread(sender, None, record);
        }
    }

    /// Nothing more comes.
    pub(crate) fn finish(&mut self, spread: &mut impl FnMut(&[u8], Option<i64>, Batch)) {
        for (_, Source { sender, before_ns, now }) in self.0.drain() {
            spread(&sender, before_ns, now);
        }
    }
}

impl Shares {
    /// Counts a message's records evenly from its source's previous message to this one: a steady source looks steady
    /// at any scale, even if it sends rarely.
    pub(crate) fn add(&mut self, before_ns: Option<i64>, batch: Batch, clock: &Clock) {
        let Batch { at_ns, records, .. } = batch;
        let is_near = |before_ns: i64| before_ns < at_ns && clock.bucket(at_ns) - clock.bucket(before_ns) < FAR;
        let begin = before_ns.filter(|before_ns| records > 1 && is_near(*before_ns)).unwrap_or(at_ns);
        let (first, last) = (clock.bucket(begin), clock.bucket(at_ns));
        let length = at_ns.abs_diff(begin);
        let mut before = [0; 2];
        for bucket in first..=last {
            let passed = clock.opens(bucket).saturating_add(clock.bucket_ns).clamp(begin, at_ns).abs_diff(begin);
            // All up to the end of this bucket; what rounding loses in one is in the next.
            let so_far = [records, batch.bytes].map(|count| {
                let units = u128::from(count) * u128::from(UNITS);
                let share = (units * u128::from(passed)).checked_div(length.into()).unwrap_or(units);
                u64::try_from(share).unwrap_or(u64::MAX)
            });
            self.records.add(bucket, so_far[0] - before[0]);
            self.bytes.add(bucket, so_far[1] - before[1]);
            before = so_far;
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.records.merge(&other.records);
        self.bytes.merge(&other.bytes);
    }

    pub(crate) fn halve(&mut self) {
        self.records.halve();
        self.bytes.halve();
    }

    /// The number of records in each bucket.
    pub(crate) fn records(&self) -> impl Iterator<Item = (i32, f64)> {
        whole(&self.records)
    }

    /// The number of bytes in each bucket.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = (i32, f64)> {
        whole(&self.bytes)
    }
}

#[allow(clippy::cast_precision_loss)] // counts to look at
fn whole(units: &Series) -> impl Iterator<Item = (i32, f64)> {
    units.iter().map(|(bucket, units)| (bucket, units as f64 / UNITS as f64))
}
