//! Queues by the fingerprints of their names, which mostly hold one or two values in all.

use std::collections::{HashMap, VecDeque};

use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};

/// Up to so many values are searched one by one.
const FEW: usize = 8;

/// Queues by a number; an empty one is not kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Queues<T> {
    /// The first values, each with the fingerprint of its queue.
    few: Vec<(u128, T)>,
    /// Values beyond these.
    many: HashMap<u128, VecDeque<T>, RandomState>,
    len: usize,
}

impl<T> Default for Queues<T> {
    fn default() -> Self {
        Self { few: Vec::new(), many: HashMap::default(), len: 0 }
    }
}

impl<T: Copy> Queues<T> {
    /// The number of values in all of them.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, key: u128, value: T) {
        self.len += 1;
        if self.few.len() < FEW && !self.many.contains_key(&key) {
            self.few.push((key, value));
        } else {
            self.many.entry(key).or_default().push_back(value);
        }
    }

    /// The first of a queue.
    pub(crate) fn first(&self, key: u128) -> Option<T> {
        let few = self.few.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
        few.or_else(|| self.many.get(&key)?.front().copied())
    }

    /// Takes out the first of a queue.
    pub(crate) fn pop(&mut self, key: u128) -> Option<T> {
        let value = self.popped(key);
        self.len = self.len.saturating_sub(usize::from(value.is_some()));
        value
    }

    fn popped(&mut self, key: u128) -> Option<T> {
        if let Some(at) = self.few.iter().position(|(known, _)| *known == key) {
            return Some(self.few.remove(at).1);
        }
        let queue = self.many.get_mut(&key)?;
        let value = queue.pop_front();
        if queue.is_empty() {
            self.many.remove(&key);
        }
        value
    }

    /// The values in any queue.
    pub(crate) fn all(&self) -> impl Iterator<Item = T> {
        self.few.iter().map(|(_, value)| *value).chain(self.many.values().flatten().copied())
    }

    /// Keeps those for which something holds.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.few.retain(|(_, value)| keep(value));
        self.many.retain(|_, queue| {
            queue.retain(&mut keep);
            !queue.is_empty()
        });
        self.len = self.few.len() + self.many.values().map(VecDeque::len).sum::<usize>();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_empty()
    }
}
