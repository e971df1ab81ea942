//! A slab: values with a number each, which is reused once they are gone.

use std::ops::{Index, IndexMut};

/// A number in a [`Slab`].
pub(crate) type Slot = u32;

/// Its size is the most values there ever were at a time.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Option<T>>,
    vacant: Vec<Slot>,
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: vec![], vacant: vec![] }
    }

    pub(crate) fn insert(&mut self, value: T) -> Slot {
        if let Some(slot) = self.vacant.pop() {
            self.entries[slot as usize] = Some(value);
            return slot;
        }
        self.entries.push(Some(value));
        Slot::try_from(self.entries.len() - 1).expect("memory ends before numbers do")
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<T> {
        let value = self.entries.get_mut(slot as usize)?.take();
        if value.is_some() {
            self.vacant.push(slot);
        }
        value
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        self.entries.get(slot as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.entries.get_mut(slot as usize)?.as_mut()
    }

    /// The next used number, starting over at the end; checks at most this many.
    pub(crate) fn after(&self, slot: Slot, most: usize) -> Option<Slot> {
        let count = self.entries.len();
        let places = (1..=most.min(count)).map(|step| (slot as usize + step) % count);
        let used = places.filter(|place| self.entries[*place].is_some());
        used.map(|place| Slot::try_from(place).expect("it is a slot")).next()
    }

    pub(crate) const fn len(&self) -> usize {
        self.entries.len() - self.vacant.len()
    }

    /// Every number in use.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        let used = self.entries.iter().enumerate().filter(|(_, entry)| entry.is_some());
        used.map(|(place, _)| Slot::try_from(place).expect("it is a slot"))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().flatten()
    }
}

/// For slots whose value is known to be there.
impl<T> Index<Slot> for Slab<T> {
    type Output = T;

    fn index(&self, slot: Slot) -> &T {
        self.entries[slot as usize].as_ref().expect("a slot in use")
    }
}

impl<T> IndexMut<Slot> for Slab<T> {
    fn index_mut(&mut self, slot: Slot) -> &mut T {
        self.entries[slot as usize].as_mut().expect("a slot in use")
    }
}
