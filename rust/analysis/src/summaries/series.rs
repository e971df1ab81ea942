//! Counts by time, and by class of durations.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::latencies::Latencies;

/// The buckets of time: of equal width, from a first moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// When the first bucket begins, in nanoseconds since 1970.
    pub first_ns: i64,
    /// How wide each is, in nanoseconds.
    pub bucket_ns: i64,
}

impl Clock {
    /// The bucket of a moment.
    pub(crate) fn bucket(&self, at_ns: i64) -> i32 {
        narrow(at_ns.saturating_sub(self.first_ns).div_euclid(self.bucket_ns.max(1)))
    }

    /// When a bucket begins.
    pub(crate) fn opens(&self, bucket: i32) -> i64 {
        i64::from(bucket).saturating_mul(self.bucket_ns).saturating_add(self.first_ns)
    }
}

/// More buckets than anything is divided into.
const MOST: i64 = 1 << 30;

fn narrow(number: i64) -> i32 {
    i32::try_from(number.clamp(-MOST, MOST)).unwrap_or_default()
}

/// Counts by bucket or class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Series(BTreeMap<i32, u64>);

impl Series {
    pub(crate) fn add(&mut self, at: i32, count: u64) {
        let sum = self.0.entry(at).or_default();
        *sum = sum.saturating_add(count);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(at, count)| self.add(*at, *count));
    }

    /// Makes one bucket of every two.
    pub(crate) fn halve(&mut self) {
        let counts = std::mem::take(&mut self.0);
        for (at, count) in counts {
            self.add(at.div_euclid(2), count);
        }
    }

    /// The count of a bucket of so many; those outside belong to the first or the last.
    pub(crate) fn at(&self, bucket: i32, buckets: i32) -> u64 {
        let from = if bucket == 0 { i32::MIN } else { bucket };
        let to = if bucket + 1 == buckets { i32::MAX } else { bucket };
        self.0.range(from..=to).fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (i32, u64)> {
        self.0.iter().map(|(at, count)| (*at, *count))
    }
}

/// Classes in a decade of durations: 1, 2 and 5 of a unit each begin one.
pub const DECADE: u8 = 10;

/// The class of a duration: n is from 10^(n/10) nanoseconds to the next one. Shorter ones, as two clocks may give, are
/// in the first.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // at most 190
fn class(latency_ns: i64) -> i32 {
    ((latency_ns.max(1) as f64).log10() * f64::from(DECADE)).floor() as i32
}

/// Counts that can be merged with others of their kind, in any order.
pub(crate) trait Merge: Default {
    /// Adds the counts of another.
    fn merge(&mut self, other: Self);

    /// Merges every two buckets of time.
    fn halve(&mut self);
}

/// Durations: percentiles, the longest, and their distribution.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Times {
    latencies: Latencies,
    max_ns: Option<i64>,
    classes: Series,
}

impl Times {
    pub(crate) fn add(&mut self, took_ns: i64) {
        self.latencies.add(took_ns);
        self.max_ns = self.max_ns.max(Some(took_ns));
        self.classes.add(class(took_ns), 1);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.latencies.merge(other.latencies);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.classes.merge(&other.classes);
    }

    /// The durations that these shares of all do not exceed.
    pub(crate) fn percentiles<const N: usize>(&self, shares: [f64; N]) -> [Option<i64>; N] {
        shares.map(|share| self.latencies.percentile(share))
    }

    pub(crate) const fn max_ns(&self) -> Option<i64> {
        self.max_ns
    }

    /// The number in each class.
    pub(crate) const fn classes(&self) -> &Series {
        &self.classes
    }
}

/// Counts by kind of error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kinds(BTreeMap<String, u64>);

impl Kinds {
    pub(crate) fn add(&mut self, kind: &str, count: u64) {
        if let Some(sum) = self.0.get_mut(kind) {
            *sum = sum.saturating_add(count);
        } else {
            self.0.insert(kind.to_owned(), count);
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(kind, count)| self.add(kind, *count));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}
