//! How much a fold may keep.

use std::num::{NonZeroU32, NonZeroU64};

/// How many bytes a whole table may keep.
pub(crate) const WHOLE: usize = 256 << 20;

/// How much a fold may keep: all that a table may, or the share of one bucket of a stream. It is no part of a state: a
/// stream may go on with more memory, or less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Budget {
    bytes: Option<NonZeroU64>,
    buckets: Option<NonZeroU32>,
}

impl Budget {
    /// The budget of one of so many buckets of a stream, of a whole table if None: so many bytes, or else its share.
    pub(crate) const fn of(bytes: Option<NonZeroU64>, buckets: Option<NonZeroU32>) -> Self {
        Self { bytes, buckets }
    }

    /// Whether the stream has a next part, for which the state is kept.
    pub(crate) const fn is_streamed(self) -> bool {
        self.buckets.is_some()
    }

    /// The share of what a whole table may keep.
    pub(crate) fn share(self, of: usize) -> usize {
        let Some(bytes) = self.bytes else {
            let buckets = self.buckets.map_or(1, NonZeroU32::get);
            return of.div_ceil(usize::try_from(buckets).unwrap_or(usize::MAX));
        };
        let share = (of as u128).saturating_mul(bytes.get().into()).div_ceil(WHOLE as u128);
        usize::try_from(share).unwrap_or(usize::MAX)
    }
}
