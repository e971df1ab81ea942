//! The backlog of a resource of MTL over time: what came, what has left, and the age of the oldest of the rest.

use std::collections::{BTreeMap, HashMap, HashSet};

use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};

use super::series::{Clock, Series};

/// The parts of a bucket in which what came is counted.
const PARTS: i64 = 64;

/// How many connections of one resource are counted separately that have settled nothing so far.
const UNSETTLED: usize = 4096;

/// What came and left.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Waiting {
    came: BTreeMap<i64, Came>,
    left: Series,
    /// What went out on connections that may never settle anything: if so, it left when it went.
    went: HashMap<u128, Series, RandomState>,
}

/// What came within a part of a bucket.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Came {
    count: u64,
    first_ns: i64,
    last_ns: i64,
}

/// The backlog at the end of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Level {
    /// Its number of contents.
    pub(crate) depth: u64,
    /// The age of its oldest, in seconds.
    pub(crate) age_s: f64,
}

impl Waiting {
    pub(crate) fn come(&mut self, at_ns: i64, clock: &Clock) {
        let within = at_ns.saturating_sub(clock.first_ns).max(0);
        // Wide buckets have parts of whole nanoseconds, narrow ones fewer parts.
        let part = (clock.bucket_ns / PARTS).max(1);
        let at = (within / clock.bucket_ns) * PARTS + (within % clock.bucket_ns / part).min(PARTS - 1);
        self.add(at, Came { count: 1, first_ns: at_ns, last_ns: at_ns });
    }

    fn add(&mut self, at: i64, more: Came) {
        let came = self.came.entry(at).or_insert(Came { count: 0, ..more });
        came.first_ns = came.first_ns.min(more.first_ns);
        came.last_ns = came.last_ns.max(more.last_ns);
        came.count = came.count.saturating_add(more.count);
    }

    pub(crate) fn leave(&mut self, at_ns: i64, clock: &Clock) {
        self.left.add(clock.bucket(at_ns), 1);
    }

    /// A content went out on a connection that has settled nothing so far.
    pub(crate) fn go(&mut self, connection: u128, at_ns: i64, clock: &Clock) {
        let key = if self.went.len() < UNSETTLED || self.went.contains_key(&connection) { connection } else { 0 };
        self.went.entry(key).or_default().add(clock.bucket(at_ns), 1);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (at, came) in other.came {
            self.add(at, came);
        }
        self.left.merge(&other.left);
        for (connection, series) in other.went {
            self.went.entry(connection).or_default().merge(&series);
        }
    }

    pub(crate) fn halve(&mut self) {
        self.left.halve();
        self.went.values_mut().for_each(Series::halve);
        for (at, came) in std::mem::take(&mut self.came) {
            let (bucket, part) = (at.div_euclid(PARTS), at.rem_euclid(PARTS));
            self.add(bucket.div_euclid(2) * PARTS + i64::midpoint(bucket.rem_euclid(2) * PARTS, part), came);
        }
    }

    /// The backlog at the end of each of the first buckets. What came first counts as leaving first.
    pub(crate) fn levels(&self, settling: &HashSet<u128, RandomState>, clock: &Clock, buckets: i32) -> Vec<Level> {
        let mut left = self.left.clone();
        for (connection, series) in &self.went {
            if !settling.contains(connection) {
                left.merge(series);
            }
        }
        let (mut came_so_far, mut left_so_far) = (0_u64, 0_u64);
        let (mut came, mut oldest) = (self.came.iter().peekable(), Oldest::new(&self.came));
        let mut levels = Vec::new();
        for bucket in 0..buckets {
            let end = (i64::from(bucket) + 1) * PARTS;
            let is_last = bucket + 1 == buckets;
            while let Some((_, found)) = came.next_if(|(at, _)| **at < end || is_last) {
                came_so_far = came_so_far.saturating_add(found.count);
            }
            left_so_far = left_so_far.saturating_add(left.at(bucket, buckets));
            let depth = came_so_far.saturating_sub(left_so_far);
            let closes = clock.opens(bucket + 1);
            let age_s =
                if depth == 0 { 0.0 } else { seconds(closes.saturating_sub(oldest.after(left_so_far, closes))) };
            levels.push(Level { depth, age_s });
        }
        levels
    }
}

/// What came, in its order.
struct Oldest<'a> {
    came: std::collections::btree_map::Values<'a, i64, Came>,
    now: Option<&'a Came>,
    before: u64,
}

impl<'a> Oldest<'a> {
    fn new(came: &'a BTreeMap<i64, Came>) -> Self {
        let mut came = came.values();
        Self { now: came.next(), came, before: 0 }
    }

    /// When the oldest came that remains after so many have left, an increasing number; `end` if there is none.
    fn after(&mut self, left: u64, end: i64) -> i64 {
        while let Some(now) = self.now {
            if left < self.before.saturating_add(now.count) {
                return now.at(left.saturating_sub(self.before));
            }
            self.before = self.before.saturating_add(now.count);
            self.now = self.came.next();
        }
        end
    }
}

impl Came {
    /// When the one of this number came, as if all came evenly.
    fn at(&self, number: u64) -> i64 {
        let between = i128::from(self.last_ns.saturating_sub(self.first_ns)) * i128::from(number);
        let steps = i128::from(self.count.saturating_sub(1).max(1));
        self.first_ns.saturating_add(i64::try_from(between / steps).unwrap_or_default())
    }
}

#[allow(clippy::cast_precision_loss)] // a time to look at
fn seconds(ns: i64) -> f64 {
    ns.max(0) as f64 / 1e9
}
