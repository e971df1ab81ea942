//! How much columns and values hold, and why one is not written.

use std::ops::RangeInclusive;

use trunkline_wire::Fault;

/// The years 1 to 9999, in seconds: what Spark calls a TIMESTAMP, and Python can make a `datetime` of.
pub(crate) const SECONDS: RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// More bytes a column cannot have: Arrow's offsets have 31 bits.
pub(crate) const MAX_BYTES: usize = i32::MAX as usize;

/// Why a value is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwritten {
    /// It is none.
    Fault(Fault),
    /// It takes more bytes than it may.
    TooLarge,
}

impl From<Fault> for Unwritten {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
