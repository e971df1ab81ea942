//! Times, for percentiles.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Up to so many different ones are kept exactly.
const EXACT: usize = 1024;

/// The others keep so many bits, which is to 0.05 %.
const BITS: u32 = 11;

/// How often each time was seen. If there are many different ones, they are rounded down by less than 0.05 % of their
/// value.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Latencies {
    counts: BTreeMap<i64, u64>,
    is_rounded: bool,
}

impl Latencies {
    pub(crate) fn add(&mut self, ns: i64) {
        let ns = if self.is_rounded { rounded(ns) } else { ns };
        let count = self.counts.entry(ns).or_default();
        *count = count.saturating_add(1);
        if self.counts.len() > EXACT {
            self.round();
        }
    }

    /// Adds the counts of another.
    pub(crate) fn merge(&mut self, other: Self) {
        if self.is_rounded != other.is_rounded {
            self.round();
        }
        let is_rounded = self.is_rounded;
        for (ns, count) in other.counts {
            let sum = self.counts.entry(if is_rounded { rounded(ns) } else { ns }).or_default();
            *sum = sum.saturating_add(count);
        }
        if self.counts.len() > EXACT {
            self.round();
        }
    }

    /// About how many bytes they take.
    pub(crate) fn weight(&self) -> usize {
        self.counts.len() * size_of::<(i64, u64)>()
    }

    fn round(&mut self) {
        if !self.is_rounded {
            self.is_rounded = true;
            for (ns, count) in std::mem::take(&mut self.counts) {
                let sum = self.counts.entry(rounded(ns)).or_default();
                *sum = sum.saturating_add(count);
            }
        }
    }

    /// The smallest time that this share of all do not exceed.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of counts
    pub(crate) fn percentile(&self, share: f64) -> Option<i64> {
        let total = self.counts.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        let wanted = (share * total as f64).ceil() as u64;
        let mut seen = 0_u64;
        self.counts.iter().find_map(|(ns, count)| {
            seen = seen.saturating_add(*count);
            (seen >= wanted).then_some(*ns)
        })
    }
}

const fn rounded(ns: i64) -> i64 {
    let bits = u64::BITS - ns.unsigned_abs().leading_zeros();
    let drop = bits.saturating_sub(BITS);
    ns >> drop << drop
}
