//! Latencies, counted in buckets.

use std::time::Duration;

use serde::Serialize;

/// The upper bound of each bucket but the last, in nanoseconds: three per decade, from ten microseconds to a hundred
/// seconds.
pub const LATENCY_BOUNDS_NS: [u64; 22] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    25_000_000_000,
    50_000_000_000,
    100_000_000_000,
];

/// A histogram of times. Counting one takes constant time and no memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latencies {
    /// How many times are in each bucket: at most its bound, above the one before; the last bucket has no bound.
    pub counts: [u64; LATENCY_BOUNDS_NS.len() + 1],
    /// The sum of all times, in nanoseconds.
    pub sum_ns: u64,
}

impl Latencies {
    /// Counts one time.
    #[inline]
    pub fn add(&mut self, time: Duration) {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counts[LATENCY_BOUNDS_NS.partition_point(|bound| *bound < time_ns)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(time_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_in_the_first_bucket_that_is_long_enough() {
        let mut latencies = Latencies::default();
        for time_ns in [0, 10_000, 10_001, 25_000, 100_000_000_000, 100_000_000_001] {
            latencies.add(Duration::from_nanos(time_ns));
        }
        let last = LATENCY_BOUNDS_NS.len();
        assert_eq!((latencies.counts[0], latencies.counts[1]), (2, 2));
        assert_eq!((latencies.counts[last - 1], latencies.counts[last]), (1, 1));
        assert_eq!(latencies.counts.iter().sum::<u64>(), 6);
        assert_eq!(latencies.sum_ns, 200_000_045_002);
    }

    #[test]
    fn times_beyond_all_bounds_do_not_overflow() {
        let mut latencies = Latencies::default();
        latencies.add(Duration::MAX);
        latencies.add(Duration::MAX);
        assert_eq!((latencies.counts[LATENCY_BOUNDS_NS.len()], latencies.sum_ns), (2, u64::MAX));
    }

    #[test]
    fn bounds_grow() {
        assert!(LATENCY_BOUNDS_NS.is_sorted_by(|one, next| one < next));
    }
}
