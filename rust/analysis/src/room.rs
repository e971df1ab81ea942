//! How much a fold may keep.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// How much a fold may keep: all that a table may, or the share of one bucket of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Room(Option<NonZeroU32>);

impl Room {
    /// The room of one of so many buckets of a stream; of a whole table if None.
    pub(crate) const fn of(buckets: Option<NonZeroU32>) -> Self {
        Self(buckets)
    }

    /// Whether the stream has a next part, for which the state is kept.
    pub(crate) const fn is_streamed(self) -> bool {
        self.0.is_some()
    }

    /// The share of what a whole table may keep.
    pub(crate) fn share(self, of: usize) -> usize {
        let buckets = self.0.map_or(1, NonZeroU32::get);
        of.div_ceil(usize::try_from(buckets).unwrap_or(usize::MAX))
    }
}
