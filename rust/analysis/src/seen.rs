//! The first and the last moment something was seen.

use serde::{Deserialize, Serialize};

/// The first and the last moment something was seen.
///
/// If it was never seen, the first moment is after the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen(i64, i64);

impl Default for Seen {
    fn default() -> Self {
        Self(i64::MAX, i64::MIN)
    }
}

impl Seen {
    pub(crate) fn add(&mut self, at_ns: i64) {
        self.merge(Self(at_ns, at_ns));
    }

    pub(crate) fn merge(&mut self, other: Self) {
        *self = Self(self.0.min(other.0), self.1.max(other.1));
    }

    pub(crate) fn first(self) -> Option<i64> {
        (self.0 <= self.1).then_some(self.0)
    }

    pub(crate) fn last(self) -> Option<i64> {
        (self.0 <= self.1).then_some(self.1)
    }
}
