//! How often each text comes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How many different texts are counted, how many are listed, and after how many characters they are cut.
const TEXTS: usize = 10_000;
const LISTED: usize = 20;
const LENGTH: usize = 100;

/// How often each text comes, as long as there are not too many: which these would be depends on the order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Texts {
    Counted(BTreeMap<String, u64>),
    TooMany,
}

impl Default for Texts {
    fn default() -> Self {
        Self::Counted(BTreeMap::new())
    }
}

impl Texts {
    /// Counts a text, of which what is too long is cut.
    pub(super) fn add(&mut self, text: &str) {
        let cut = text.char_indices().nth(LENGTH).map(|(at, _)| format!("{}…", &text[..at]));
        self.count(cut.as_deref().unwrap_or(text), 1);
    }

    fn count(&mut self, text: &str, count: u64) {
        let Self::Counted(counts) = self else { return };
        if let Some(counted) = counts.get_mut(text) {
            *counted += count;
        } else if counts.len() < TEXTS {
            counts.insert(text.to_owned(), count);
        } else {
            *self = Self::TooMany;
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        match other {
            Self::Counted(counts) => counts.iter().for_each(|(text, count)| self.count(text, *count)),
            Self::TooMany => *self = Self::TooMany,
        }
    }

    pub(super) fn are_none(&self) -> bool {
        self.different() == Some(0)
    }

    pub(super) fn different(&self) -> Option<usize> {
        if let Self::Counted(counts) = self { Some(counts.len()) } else { None }
    }

    /// The most frequent ones; none if they are too many.
    pub(super) fn most_frequent(&self) -> Vec<(&str, u64)> {
        let Self::Counted(counts) = self else { return Vec::new() };
        let mut counts: Vec<_> = counts.iter().map(|(text, count)| (text.as_str(), *count)).collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts.truncate(LISTED);
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_have_no_counts_in_any_order() {
        let counted = |range: std::ops::Range<usize>| {
            let mut texts = Texts::default();
            range.for_each(|number| texts.add(&number.to_string()));
            texts
        };
        let (few, others) = (counted(0..6_000), counted(4_000..10_001));
        for (one, other) in [(&few, &others), (&others, &few)] {
            let mut merged = one.clone();
            merged.merge(other);
            assert_eq!((merged.different(), merged.most_frequent().len()), (None, 0));
            assert!(!merged.are_none());
        }
        let mut fit = few;
        fit.merge(&counted(4_000..10_000));
        assert_eq!(fit.different(), Some(10_000));
        assert_eq!(fit.most_frequent().len(), LISTED);
        assert_eq!(fit.most_frequent()[0], ("4000", 2));
    }

    #[test]
    fn a_long_text_is_cut_where_it_shows() {
        let mut texts = Texts::default();
        texts.add(&"é".repeat(100));
        texts.add(&"é".repeat(101));
        texts.add(&"é".repeat(102));
        let cut = format!("{}…", "é".repeat(100));
        assert_eq!(texts.most_frequent(), [(cut.as_str(), 2), (&cut[..200], 1)]);
    }
}
