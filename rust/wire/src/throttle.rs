//! Limits what each peer may use: an amount at once, and an amount per second.

use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::quality::RandomState;

use crate::Nanos;

/// Buckets that peers share, as the number of peers is unlimited.
const BUCKETS: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    since: Nanos,
    had: u32,
}

/// What peers have used recently, by the hashes of their addresses.
#[derive(Debug)]
pub(crate) struct Throttle {
    burst: u32,
    per_second: u32,
    buckets: Box<[Bucket; BUCKETS]>,
    hasher: RandomState,
}

impl Throttle {
    pub(crate) fn new(burst: u32, per_second: u32) -> Self {
        let buckets = Box::new([Bucket { since: Nanos(0), had: 0 }; BUCKETS]);
        Self { burst, per_second, buckets, hasher: RandomState::default() }
    }

    /// Whether this peer may use this much more, which then counts as used.
    pub(crate) fn allows(&mut self, now: Nanos, address: &[u8], amount: u32) -> bool {
        let hash = usize::try_from(self.hasher.hash_one(address) % BUCKETS as u64).unwrap_or_default();
        let bucket = &mut self.buckets[hash];
        let seconds = u32::try_from((now - bucket.since).as_secs()).unwrap_or(u32::MAX);
        if seconds > 0 {
            bucket.had = bucket.had.saturating_sub(seconds.saturating_mul(self.per_second));
            bucket.since = bucket.since + Duration::from_secs(seconds.into());
        }
        let allows = bucket.had.saturating_add(amount) <= self.burst;
        bucket.had += if allows { amount } else { 0 };
        allows
    }
}
