//! From when until when something was seen.

use serde::{Deserialize, Serialize};

/// From when until when something was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen(Option<(i64, i64)>);

impl Seen {
    pub(crate) fn add(&mut self, at_ns: i64) {
        self.merge(Self(Some((at_ns, at_ns))));
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.0 = match (self.0, other.0) {
            (Some((first, last)), Some((other_first, other_last))) => {
                Some((first.min(other_first), last.max(other_last)))
            }
            (mine, theirs) => mine.or(theirs),
        };
    }

    pub(crate) fn first(self) -> Option<i64> {
        self.0.map(|(first, _)| first)
    }

    pub(crate) fn last(self) -> Option<i64> {
        self.0.map(|(_, last)| last)
    }
}
