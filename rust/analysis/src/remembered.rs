//! Values by fingerprint, of which the oldest are forgotten.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    marker::PhantomData,
};

use foldhash::quality::RandomState;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};

/// Values by fingerprint. A state has them oldest first, so that their order is none of its own.
#[derive(Clone, Debug)]
pub(crate) struct Remembered<T> {
    values: HashMap<u128, T, RandomState>,
    /// The fingerprints, oldest first.
    order: VecDeque<u128>,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self { values: HashMap::default(), order: VecDeque::new() }
    }
}

impl<T> Remembered<T> {
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn contains(&self, key: u128) -> bool {
        self.values.contains_key(&key)
    }

    pub(crate) fn get_mut(&mut self, key: u128) -> Option<&mut T> {
        self.values.get_mut(&key)
    }

    /// Forgets the oldest.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.values.remove(&self.order.pop_front()?)
    }

    /// Takes on the order of a state that has one.
    pub(crate) fn reorder(&mut self, mut order: VecDeque<u128>) {
        order.retain(|key| self.values.contains_key(key));
        if order.len() == self.values.len() {
            self.order = order;
        }
    }
}

impl<T: Default> Remembered<T> {
    /// The value of a fingerprint, a new one if there is none.
    pub(crate) fn get_or_default(&mut self, key: u128) -> &mut T {
        self.values.entry(key).or_insert_with(|| {
            self.order.push_back(key);
            T::default()
        })
    }
}

impl<T: Serialize> Serialize for Remembered<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.values.len()))?;
        for key in &self.order {
            if let Some(value) = self.values.get(key) {
                map.serialize_entry(key, value)?;
            }
        }
        map.end()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Remembered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries(PhantomData))
    }
}

struct Entries<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
    type Value = Remembered<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of fingerprints")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut remembered = Remembered::default();
        while let Some((key, value)) = map.next_entry()? {
            if remembered.values.insert(key, value).is_none() {
                remembered.order.push_back(key);
            }
        }
        Ok(remembered)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_oldest_goes_first_and_states_keep_the_order(keys in prop::collection::vec(0..20_u128, 0..60), most in 1..8_usize) {
            let (mut remembered, mut expected) = (Remembered::<u64>::default(), Vec::<(u128, u64)>::new());
            for key in keys {
                if !remembered.contains(key) {
                    expected.push((key, 0));
                }
                *remembered.get_or_default(key) += 1;
                expected.iter_mut().filter(|(known, _)| *known == key).for_each(|(_, count)| *count += 1);
                if remembered.len() > most {
                    prop_assert_eq!(remembered.pop(), Some(expected.remove(0).1));
                }
                let state = rmp_serde::to_vec(&remembered).unwrap();
                remembered = rmp_serde::from_slice(&state).unwrap();
            }
            prop_assert_eq!(remembered.len(), expected.len());
            prop_assert_eq!(Vec::from(remembered.order.clone()), expected.iter().map(|(key, _)| *key).collect::<Vec<_>>());
            remembered.reorder(expected.iter().rev().map(|(key, _)| *key).collect());
            for (_, count) in expected.into_iter().rev() {
                prop_assert_eq!(remembered.pop(), Some(count));
            }
        }
    }
}
