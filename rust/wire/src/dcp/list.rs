//! Linked lists of slots, with removal from the middle in constant time.

use crate::slab::Slot;

const NONE: Slot = Slot::MAX;

/// The ends of a list; the rest is in [`Links`].
#[derive(Debug)]
pub(super) struct List {
    first: Slot,
    last: Slot,
    len: usize,
}

impl List {
    pub(super) const fn new() -> Self {
        Self { first: NONE, last: NONE, len: 0 }
    }

    pub(super) fn first(&self) -> Option<Slot> {
        Some(self.first).filter(|slot| *slot != NONE)
    }

    pub(super) fn last(&self) -> Option<Slot> {
        Some(self.last).filter(|slot| *slot != NONE)
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: Slot,
    after: Slot,
}

/// The neighbours of each slot, for any number of lists; a slot is in one list at most.
#[derive(Debug, Default)]
pub(super) struct Links(Vec<Link>);

impl Links {
    pub(super) const fn new() -> Self {
        Self(vec![])
    }

    pub(super) fn push_back(&mut self, list: &mut List, slot: Slot) {
        self.put(slot, Link { before: list.last, after: NONE });
        match list.last() {
            Some(end) => self.0[end as usize].after = slot,
            None => list.first = slot,
        }
        list.last = slot;
        list.len += 1;
    }

    pub(super) fn push_front(&mut self, list: &mut List, slot: Slot) {
        self.put(slot, Link { before: NONE, after: list.first });
        match list.first() {
            Some(end) => self.0[end as usize].before = slot,
            None => list.last = slot,
        }
        list.first = slot;
        list.len += 1;
    }

    /// Removes `slot` from `list`, which must contain it.
    pub(super) fn remove(&mut self, list: &mut List, slot: Slot) {
        let Link { before, after } = self.0[slot as usize];
        match before {
            NONE => list.first = after,
            _ => self.0[before as usize].after = after,
        }
        match after {
            NONE => list.last = before,
            _ => self.0[after as usize].before = before,
        }
        list.len -= 1;
    }

    /// The slot after `slot`.
    pub(super) fn after(&self, slot: Slot) -> Option<Slot> {
        Some(self.0[slot as usize].after).filter(|slot| *slot != NONE)
    }

    fn put(&mut self, slot: Slot, link: Link) {
        let index = slot as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, Link { before: NONE, after: NONE });
        }
        self.0[index] = link;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(links: &Links, list: &List) -> Vec<Slot> {
        let all: Vec<_> = std::iter::successors(list.first(), |slot| links.after(*slot)).collect();
        assert_eq!(all.len(), list.len());
        assert_eq!(all.last().copied(), list.last());
        all
    }

    #[test]
    fn one_leaves_from_anywhere() {
        let (mut links, mut list) = (Links::new(), List::new());
        for slot in [3, 1, 4, 5] {
            links.push_back(&mut list, slot);
        }
        links.push_front(&mut list, 9);
        assert_eq!(slots(&links, &list), [9, 3, 1, 4, 5]);
        for (slot, left) in [(1, &[9, 3, 4, 5][..]), (9, &[3, 4, 5]), (5, &[3, 4]), (3, &[4]), (4, &[])] {
            links.remove(&mut list, slot);
            assert_eq!(slots(&links, &list), left);
        }
        assert!(list.is_empty());
    }
}
