//! Sums that do not depend on the order of what is added: exact, and rounded once at the end.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// A sum of doubles, as doubles that do not overlap, the smallest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Exact(Vec<f64>);

impl Exact {
    pub(super) fn add(&mut self, value: f64) {
        let (mut value, mut kept) = (value, 0);
        for at in 0..self.0.len() {
            let mut part = self.0[at];
            if value.abs() < part.abs() {
                std::mem::swap(&mut value, &mut part);
            }
            let high = value + part;
            let low = part - (high - value);
            if low != 0.0 {
                self.0[kept] = low;
                kept += 1;
            }
            value = high;
        }
        self.0.truncate(kept);
        self.0.push(value);
    }

    /// Adds a product.
    pub(super) fn add_product(&mut self, one: f64, other: f64) {
        let (high, low) = product(one, other);
        self.add(high);
        if low != 0.0 {
            self.add(low);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|part| self.add(*part));
    }

    /// The nearest double.
    pub(super) fn value(&self) -> f64 {
        let mut parts = self.0.iter().rev();
        let Some(mut high) = parts.next().copied() else { return 0.0 };
        let mut low = 0.0;
        for part in parts.by_ref() {
            let before = high;
            high = before + part;
            low = part - (high - before);
            if low != 0.0 {
                break;
            }
        }
        // Half of the last bit rounds as what is smaller says.
        if let Some(rest) = parts.next()
            && ((low < 0.0 && *rest < 0.0) || (low > 0.0 && *rest > 0.0))
        {
            let twice = low * 2.0;
            let rounded = high + twice;
            if twice.to_bits() == (rounded - high).to_bits() {
                high = rounded;
            }
        }
        high
    }
}

/// A product, and what rounding it has left out.
fn product(one: f64, other: f64) -> (f64, f64) {
    let high = one * other;
    let ((a, b), (c, d)) = (split(one), split(other));
    (high, ((a * c - high) + a * d + b * c) + b * d)
}

/// Both halves of a double's digits.
fn split(value: f64) -> (f64, f64) {
    let scaled = 134_217_729.0 * value;
    let high = scaled - (scaled - value);
    (high, value - high)
}

/// The sums from which come a mean and a standard deviation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Moments {
    pub(super) count: u64,
    sum: Exact,
    squares: Exact,
    /// The largest magnitude.
    largest: f64,
}

/// Doubles whose squares are added up to this often without rounding.
const SMALL: f64 = 2_097_152.0;
const CHUNK: usize = 2048;

/// Beyond these the square of a double, or a half of it, has no exact double.
const SQUARED: RangeInclusive<f64> = 1e-140..=1e140;

impl Moments {
    /// Adds values, all of them finite.
    pub(super) fn extend(&mut self, values: &[f64]) {
        for chunk in values.chunks(CHUNK) {
            self.count += chunk.len() as u64;
            self.largest = chunk.iter().fold(self.largest, |largest, value| largest.max(value.abs()));
            if chunk.iter().all(|value| value.abs() <= SMALL && value.fract() == 0.0) {
                self.sum.add(chunk.iter().sum());
                self.squares.add(chunk.iter().map(|value| value * value).sum());
            } else {
                for value in chunk.iter().filter(|value| value.abs() <= *SQUARED.end()) {
                    self.sum.add(*value);
                    self.squares.add_product(*value, *value);
                }
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.largest = self.largest.max(other.largest);
        self.sum.merge(&other.sum);
        self.squares.merge(&other.squares);
    }

    /// None without values, or where one is too large.
    #[allow(clippy::cast_precision_loss)] // fewer than 2^53
    pub(super) fn mean(&self) -> Option<f64> {
        (self.count > 0 && self.largest <= *SQUARED.end()).then(|| self.sum.value() / self.count as f64)
    }

    /// The standard deviation of the population; none without values, where one is too large, or where all are too small.
    #[allow(clippy::cast_precision_loss)] // as above
    pub(super) fn deviation(&self) -> Option<f64> {
        let count = self.count as f64;
        let mut variance = Exact::default();
        self.squares.0.iter().for_each(|part| variance.add_product(count, *part));
        for (at, one) in self.sum.0.iter().enumerate() {
            for (other_at, other) in self.sum.0.iter().enumerate().skip(at) {
                variance.add_product(if other_at == at { -one } else { -2.0 * one }, *other);
            }
        }
        let is_exact = self.largest == 0.0 || SQUARED.contains(&self.largest);
        (self.count > 0 && is_exact).then(|| variance.value().max(0.0).sqrt() / count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_sum_is_rounded_once() {
        let mut sum = Exact::default();
        for value in [1e16, 1.0, -1e16, 1e-30, 1.0] {
            sum.add(value);
        }
        assert_eq!(sum.value().to_bits(), 2.0_f64.to_bits());
        let mut moments = Moments::default();
        moments.extend(&[1e18, 1e18 + 1024.0]);
        assert_eq!(moments.deviation(), Some(512.0));
    }

    #[test]
    fn what_has_no_exact_square_has_no_deviation() {
        for (values, mean, deviation) in [
            ([1e150, 1.0], None, None),
            ([1e-150, 3e-150], Some(2e-150), None),
            ([1e-150, 2.0], Some(1.0), Some(1.0)),
            ([0.0, 0.0], Some(0.0), Some(0.0)),
        ] {
            let mut moments = Moments::default();
            moments.extend(&values);
            assert_eq!((moments.mean(), moments.deviation()), (mean, deviation), "{values:?}");
        }
    }

    proptest! {
        #[test]
        fn no_order_changes_anything(values in prop::collection::vec(-1e12..1e12_f64, 1..40), cut in 0..40_usize) {
            let mut all = Moments::default();
            all.extend(&values);
            let (one, other) = values.split_at(cut.min(values.len()));
            let mut merged = Moments::default();
            merged.extend(&other.iter().rev().copied().collect::<Vec<_>>());
            let mut first = Moments::default();
            first.extend(one);
            merged.merge(&first);
            prop_assert_eq!(all.mean().map(f64::to_bits), merged.mean().map(f64::to_bits));
            prop_assert_eq!(all.deviation().map(f64::to_bits), merged.deviation().map(f64::to_bits));
        }
    }
}
