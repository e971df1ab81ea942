//! The limits of columns and values, and why one is not written.

use std::ops::RangeInclusive;

use trunkline_wire::Fault;

/// The years 1 to 9999, in seconds: the range of Spark's TIMESTAMP and of Python's `datetime`.
pub(crate) const SECONDS: RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// The most bytes of a column: Arrow's offsets have 31 bits.
pub(crate) const MAX_BYTES: usize = i32::MAX as usize;

/// Why a value is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwritten {
    /// It is invalid.
    Fault(Fault),
    /// It is larger than allowed.
    TooLarge,
}

impl From<Fault> for Unwritten {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
