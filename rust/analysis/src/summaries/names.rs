//! Counts by name, where names come from the network.

use std::{cmp::Ordering, collections::HashMap, hash::Hash};

use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use serde_bytes::{ByteBuf, Bytes};

use super::series::{Merge, Series};

/// The most distinct names; the rest are counted together.
pub const NAMES_MAX: usize = 100_000;

/// How many plotted names have their own colour; one more is for all others.
pub const COLOURS: usize = 7;

/// The index of all others together.
pub const OTHERS: i32 = -1;

/// The length at which names are cut.
const NAME: usize = 200;

/// Counts by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Names<T> {
    found: HashMap<ByteBuf, T, RandomState>,
    /// The counts of other names, once there were too many.
    rest: T,
    /// How often such a name came.
    beyond: u64,
}

impl<T: Merge> Names<T> {
    /// The counts of a name.
    pub(crate) fn of(&mut self, name: &[u8]) -> &mut T {
        if !self.found.contains_key(Bytes::new(name)) {
            if self.found.len() >= NAMES_MAX {
                self.beyond = self.beyond.saturating_add(1);
                return &mut self.rest;
            }
            self.found.insert(ByteBuf::from(name), T::default());
        }
        // It was inserted above.
        self.found.get_mut(Bytes::new(name)).unwrap_or(&mut self.rest)
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (name, counts) in other.found {
            self.of(&name).merge(counts);
        }
        self.rest.merge(other.rest);
        self.beyond = self.beyond.saturating_add(other.beyond);
    }

    pub(crate) fn halve(&mut self) {
        self.all_mut().for_each(T::halve);
    }

    /// The number of names; those beyond the limit are not known.
    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }

    /// How often a name beyond the limit came.
    pub(crate) const fn beyond(&self) -> u64 {
        self.beyond
    }

    /// All counts, the rest included.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.found.values().chain([&self.rest])
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.found.values_mut().chain([&mut self.rest])
    }

    pub(crate) fn named(&self) -> impl Iterator<Item = (&[u8], &T)> {
        self.found.iter().map(|(name, counts)| (name.as_slice(), counts))
    }

    pub(crate) const fn rest(&self) -> &T {
        &self.rest
    }

    /// How many of the sorted names come after the first so many, and their counts together with the rest.
    pub(crate) fn others(&self, sorted: &[(&[u8], &T)], listed: usize) -> Option<(usize, T)>
    where
        T: Clone,
    {
        let others = sorted.get(listed..).filter(|others| !others.is_empty())?;
        let mut sum = self.rest.clone();
        for (_, counts) in others {
            sum.merge((*counts).clone());
        }
        Some((others.len(), sum))
    }

    /// All names: those with the highest counts first, else in the order of the names.
    pub(crate) fn sorted(&self, most: impl Fn(&T) -> u64, order: fn(&[u8], &[u8]) -> Ordering) -> Vec<(&[u8], &T)> {
        let mut sorted: Vec<_> = self.named().collect();
        sorted.sort_unstable_by(|(name, one), (other_name, other)| {
            most(other).cmp(&most(one)).then_with(|| order(name, other_name))
        });
        sorted
    }
}

/// The counts of a key, which is new where there is room for one more.
pub(crate) fn within<K: Eq + Hash, T: Default>(counts: &mut HashMap<K, T, RandomState>, key: K) -> Option<&mut T> {
    (counts.len() < NAMES_MAX || counts.contains_key(&key)).then(|| counts.entry(key).or_default())
}

/// The series with their own colour, and the others together.
pub(crate) fn coloured<'a>(series: impl Iterator<Item = &'a Series>) -> Vec<(i32, Series)> {
    let mut found: Vec<(i32, Series)> = Vec::new();
    let mut others = Series::default();
    for (at, series) in series.enumerate() {
        match i32::try_from(at) {
            Ok(place) if at < COLOURS => {
                if !series.is_empty() {
                    found.push((place, series.clone()));
                }
            }
            _ => others.merge(series),
        }
    }
    if !others.is_empty() {
        found.push((OTHERS, others));
    }
    found
}

/// The role that saw all these names, which is the last byte of each; none if there are several.
pub(crate) fn common_role<'a>(mut names: impl Iterator<Item = &'a [u8]>) -> Option<u8> {
    let first = names.next()?.last().copied();
    first.filter(|_| names.all(|name| name.last().copied() == first))
}

/// By name, and then by the role that saw it, which is the last byte.
pub(crate) fn by_name(one: &[u8], other: &[u8]) -> Ordering {
    fn parts(name: &[u8]) -> Option<(&[u8], &u8)> {
        name.split_last().map(|(role, name)| (name, role))
    }
    parts(one).cmp(&parts(other))
}

/// A name, cut to its limit.
pub(crate) fn cut(text: &str) -> &str {
    text.char_indices().nth(NAME).map_or(text, |(at, _)| text.get(..at).unwrap_or(text))
}

/// The same for bytes.
pub(crate) fn cut_bytes(bytes: &[u8]) -> &[u8] {
    bytes.get(..NAME).unwrap_or(bytes)
}
