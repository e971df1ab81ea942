//! Histograms whose bins double their width as values come, so that one pass is enough.

use serde::{Deserialize, Serialize};

/// The most bins.
const BINS: i64 = 64;

/// The width of the narrowest bins is 2 to this power.
const NARROWEST: i32 = -1000;

/// The most digits of a bin's number: doubles have all of them.
const DIGITS: i32 = 52;

/// Bins of one width, a power of two, that begin at multiples of it. The width depends on the values, not on their order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Histogram {
    /// The width is 2 to this power.
    power: i32,
    /// The number of the first bin.
    first: i64,
    counts: Vec<u64>,
}

impl Histogram {
    /// Counts values, all of them finite; the bins of whole numbers are as wide as one at least.
    pub(super) fn extend(&mut self, values: &[f64], are_whole: bool) {
        for value in values {
            // Nothing is between whole numbers.
            let least = if are_whole { least(*value).max(0) } else { least(*value) };
            if self.counts.is_empty() {
                self.power = least;
            }
            self.widen(least);
            let bin = loop {
                let bin = bin(*value, self.power);
                if self.fits(bin, bin) {
                    break bin;
                }
                self.widen(self.power + 1);
            };
            self.reach(bin, bin);
            self.counts[index(bin - self.first)] += 1;
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        if other.counts.is_empty() {
            return;
        }
        if self.counts.is_empty() {
            *self = other.clone();
            return;
        }
        let mut other = other.clone();
        loop {
            let power = self.power.max(other.power);
            self.widen(power);
            other.widen(power);
            let last = other.first + length(&other.counts) - 1;
            if self.fits(other.first, last) {
                self.reach(other.first, last);
                for (bin, count) in (other.first..).zip(&other.counts) {
                    self.counts[index(bin - self.first)] += count;
                }
                return;
            }
            self.widen(power + 1);
        }
    }

    /// Merges bins until they are as wide as 2 to this power.
    fn widen(&mut self, power: i32) {
        while self.power < power {
            let first = self.first >> 1;
            let mut counts: Vec<u64> = Vec::with_capacity(self.counts.len());
            for (bin, count) in (self.first..).zip(&self.counts) {
                let at = index((bin >> 1) - first);
                counts.resize(counts.len().max(at + 1), 0);
                counts[at] += count;
            }
            (self.power, self.first, self.counts) = (self.power + 1, first, counts);
        }
    }

    fn fits(&self, first: i64, last: i64) -> bool {
        let (mut low, mut high) = (first, last);
        if !self.counts.is_empty() {
            low = low.min(self.first);
            high = high.max(self.first + length(&self.counts) - 1);
        }
        high.checked_sub(low).is_some_and(|span| span < BINS)
    }

    /// Adds empty bins, so that these are there.
    fn reach(&mut self, first: i64, last: i64) {
        if self.counts.is_empty() {
            self.first = first;
        }
        if first < self.first {
            let before = index(self.first - first);
            self.counts.splice(0..0, std::iter::repeat_n(0, before));
            self.first = first;
        }
        let wanted = index(last - self.first) + 1;
        self.counts.resize(self.counts.len().max(wanted), 0);
    }

    /// Where bins begin and end, and how many values each has.
    #[allow(clippy::cast_precision_loss)] // the numbers of bins have fewer digits
    pub(super) fn evaluate(&self) -> (Vec<f64>, Vec<u64>) {
        if self.counts.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let width = 2_f64.powi(self.power);
        let edges =
            (self.first..=self.first + length(&self.counts)).map(|bin| (bin as f64 * width).clamp(f64::MIN, f64::MAX));
        (edges.collect(), self.counts.clone())
    }
}

/// The narrowest width for which the bin of a value has a number.
fn least(value: f64) -> i32 {
    let exponent = i32::try_from(value.abs().to_bits() >> 52).unwrap_or(0) - 1023;
    (exponent - DIGITS + 1).max(NARROWEST)
}

#[allow(clippy::cast_possible_truncation)] // `least` has made sure that it fits
fn bin(value: f64, power: i32) -> i64 {
    (value / 2_f64.powi(power)).floor() as i64
}

fn length(counts: &[u64]) -> i64 {
    i64::try_from(counts.len()).unwrap_or(i64::MAX)
}

fn index(bin: i64) -> usize {
    usize::try_from(bin).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_counted_in_the_bins_they_are_in() {
        let mut histogram = Histogram::default();
        histogram.extend(&[0.0, 1.0, 2.5, 100.0, -3.0], false);
        let (edges, counts) = histogram.evaluate();
        assert_eq!(counts.iter().sum::<u64>(), 5);
        assert!(counts.len() <= 64);
        for value in [0.0, 1.0, 2.5, 100.0, -3.0] {
            let at = edges.iter().rposition(|edge| *edge <= value).expect("a bin");
            assert!(counts[at] > 0);
        }
    }

    proptest! {
        #[test]
        fn no_order_changes_anything(values in prop::collection::vec(prop::num::f64::NORMAL | prop::num::f64::ZERO, 1..40), cut in 0..40_usize) {
            let mut all = Histogram::default();
            all.extend(&values, false);
            let (one, other) = values.split_at(cut.min(values.len()));
            let mut merged = Histogram::default();
            merged.extend(&other.iter().rev().copied().collect::<Vec<_>>(), false);
            let mut first = Histogram::default();
            first.extend(one, false);
            merged.merge(&first);
            prop_assert_eq!(all.evaluate(), merged.evaluate());
        }
    }
}
