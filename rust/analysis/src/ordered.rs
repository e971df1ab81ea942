//! Items in the order in which they began, until they are complete: how many may wait, and which are evicted.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::budget::{Budget, WHOLE};

/// The number of an item, in the order in which they began.
pub(crate) type Id = u64;

/// The limits of what may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// How many items.
    pub(crate) count: usize,
    /// How many bytes they may take.
    pub(crate) bytes: usize,
}

impl Default for Limits {
    /// The limits of a whole table.
    fn default() -> Self {
        Self { count: 1 << 20, bytes: WHOLE }
    }
}

impl Limits {
    /// The share that `budget` has of these limits.
    pub(crate) fn of(budget: Budget, count: usize, bytes: usize) -> Self {
        Self { count: budget.share(count), bytes: budget.share(bytes) }
    }
}

/// What takes memory.
pub(crate) trait Weigh {
    /// About how many bytes it takes.
    fn weight(&self) -> usize;

    /// It leaves before it is complete, to keep within the limits.
    fn evict(&mut self) {}
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Slot<T> {
    id: Id,
    item: T,
    weight: usize,
    is_complete: bool,
}

/// Items in the order in which they began. They are emitted in that order, once they and all before them are complete, or in
/// any order once they are; the oldest leaves early beyond the limits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ordered<T> {
    /// The number of the next one.
    next: Id,
    slots: VecDeque<Slot<T>>,
    bytes: usize,
    #[serde(skip)]
    limits: Limits,
    /// Whether complete ones wait for those before them.
    in_order: bool,
    /// How many complete ones are still here.
    complete: usize,
    /// Complete items that need not wait for their turn.
    ready: VecDeque<T>,
    /// How many were emitted before they were complete, to keep within the limits.
    evicted: u64,
    /// Of those up to here that are gone, some may have left before they were complete.
    #[serde(default)]
    lost_to: Option<Id>,
}

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self::new(Limits::default(), true)
    }
}

impl<T> Ordered<T> {
    /// Empty, with these limits.
    pub(crate) fn new(limits: Limits, in_order: bool) -> Self {
        let slots = VecDeque::new();
        Self {
            next: 0,
            slots,
            bytes: 0,
            limits,
            in_order,
            complete: 0,
            ready: VecDeque::new(),
            evicted: 0,
            lost_to: None,
        }
    }

    /// Empty; in a stream complete items need not wait for all before them.
    pub(crate) fn within(budget: Budget) -> Self {
        let mut ordered = Self::new(Limits::default(), !budget.is_streamed());
        ordered.resize(budget);
        ordered
    }

    /// Takes on the limits of another budget.
    pub(crate) fn resize(&mut self, budget: Budget) {
        let Limits { count, bytes } = Limits::default();
        self.limits = Limits::of(budget, count, bytes);
    }

    /// The same, emitted in order within any budget.
    pub(crate) fn in_order(self) -> Self {
        Self { in_order: true, ..self }
    }

    /// The same, emitted once they are complete.
    pub(crate) fn in_any_order(self) -> Self {
        Self { in_order: false, ..self }
    }

    /// How many were emitted before they were complete.
    pub(crate) const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Whether an item has left, and may not have been complete.
    pub(crate) fn may_be_lost(&self, id: Id) -> bool {
        self.lost_to.is_some_and(|last| id <= last) && self.index_of(id).is_none()
    }

    /// The index of an item.
    fn index_of(&self, id: Id) -> Option<usize> {
        let first = self.slots.front()?.id;
        let at = usize::try_from(id.checked_sub(first)?).ok()?;
        // It is at this index, unless some have left before their turn.
        if self.slots.get(at).is_some_and(|slot| slot.id == id) {
            return Some(at);
        }
        if self.in_order { None } else { self.slots.binary_search_by_key(&id, |slot| slot.id).ok() }
    }

    /// An incomplete item.
    pub(crate) fn get(&mut self, id: Id) -> Option<&mut T> {
        let slot = self.index_of(id).and_then(|at| self.slots.get_mut(at))?;
        (!slot.is_complete).then_some(&mut slot.item)
    }

    /// The first incomplete item from this number on.
    pub(crate) fn next_incomplete(&mut self, from: Id) -> Option<(Id, &mut T)> {
        let first = self.slots.partition_point(|slot| slot.id < from);
        let slot = self.slots.range_mut(first..).find(|slot| !slot.is_complete)?;
        Some((slot.id, &mut slot.item))
    }

    /// The complete items that are still here.
    pub(crate) fn complete_items(&self) -> impl Iterator<Item = (Id, &T)> {
        self.slots.iter().filter(|slot| slot.is_complete).map(|slot| (slot.id, &slot.item))
    }

    /// An item is complete: it may be emitted.
    pub(crate) fn complete(&mut self, id: Id) {
        if let Some(slot) = self.index_of(id).and_then(|at| self.slots.get_mut(at)) {
            self.complete = self.complete.saturating_add(usize::from(!slot.is_complete));
            slot.is_complete = true;
        }
    }

    /// Completes the items for which `is_over` holds; gives their number.
    pub(crate) fn complete_where(&mut self, mut is_over: impl FnMut(&mut T) -> bool) -> usize {
        let mut over = 0;
        for slot in self.slots.iter_mut().filter(|slot| !slot.is_complete) {
            slot.is_complete = is_over(&mut slot.item);
            if slot.is_complete {
                self.lost_to = self.lost_to.max(Some(slot.id));
            }
            over += usize::from(slot.is_complete);
        }
        self.complete = self.complete.saturating_add(over);
        over
    }

    /// An item takes so many more bytes.
    pub(crate) fn grow(&mut self, id: Id, by: usize) {
        if let Some(slot) = self.index_of(id).and_then(|at| self.slots.get_mut(at)) {
            slot.weight = slot.weight.saturating_add(by);
            self.bytes = self.bytes.saturating_add(by);
        }
    }

    /// The next item, complete or not: nothing more comes.
    pub(crate) fn drain(&mut self) -> Option<T> {
        self.ready.pop_front().or_else(|| self.pop())
    }

    /// Takes out all that are complete. Mostly they are the oldest, so that those after them need not move.
    fn sweep(&mut self) {
        let mut before = Vec::new();
        while self.complete > 0
            && let Some(slot) = self.slots.pop_front()
        {
            if slot.is_complete {
                self.complete -= 1;
                self.bytes = self.bytes.saturating_sub(slot.weight);
                self.ready.push_back(slot.item);
            } else {
                before.push(slot);
            }
        }
        for slot in before.into_iter().rev() {
            self.slots.push_front(slot);
        }
    }

    fn pop(&mut self) -> Option<T> {
        let slot = self.slots.pop_front()?;
        self.complete = self.complete.saturating_sub(usize::from(slot.is_complete));
        self.bytes = self.bytes.saturating_sub(slot.weight);
        Some(slot.item)
    }
}

impl<T: Weigh> Ordered<T> {
    /// One begins.
    pub(crate) fn begin(&mut self, item: T) -> Id {
        let weight = item.weight();
        let id = self.next;
        self.next = id.wrapping_add(1);
        self.bytes = self.bytes.saturating_add(weight);
        self.slots.push_back(Slot { id, item, weight, is_complete: false });
        id
    }

    /// The next complete item, or the oldest beyond the limits.
    pub(crate) fn emit(&mut self) -> Option<T> {
        if !self.in_order && self.complete > 0 {
            self.sweep();
        }
        if let Some(item) = self.ready.pop_front() {
            return Some(item);
        }
        let (count, oldest) = (self.slots.len(), self.slots.front_mut()?);
        if !oldest.is_complete {
            if count <= self.limits.count && self.bytes <= self.limits.bytes {
                return None;
            }
            oldest.item.evict();
            self.lost_to = self.lost_to.max(Some(oldest.id));
            self.evicted = self.evicted.saturating_add(1);
        }
        self.pop()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Weigh for u64 {
        fn weight(&self) -> usize {
            10
        }
    }

    proptest! {
        #[test]
        fn items_are_emitted_in_order_and_few_enough_wait(
            steps in prop::collection::vec((any::<bool>(), 0..40_u64, 0..30_usize), 0..200),
            count in 1..20_usize,
            bytes in 1..300_usize,
        ) {
            let mut ordered = Ordered::new(Limits { count, bytes }, true);
            let (mut begun, mut left, mut complete) = (0, Vec::new(), Vec::new());
            for (begins, which, more) in steps {
                if begins {
                    prop_assert_eq!(ordered.begin(begun), begun);
                    begun += 1;
                } else {
                    ordered.grow(which, more);
                    if ordered.get(which).is_some() {
                        complete.push(which);
                    }
                    ordered.complete(which);
                    prop_assert!(ordered.get(which).is_none());
                }
                left.extend(std::iter::from_fn(|| ordered.emit()));
                prop_assert!(ordered.slots.len() <= count);
                prop_assert!(ordered.bytes <= bytes);
            }
            let incomplete = left.iter().filter(|id| !complete.contains(id)).count();
            prop_assert_eq!(ordered.evicted(), incomplete as u64);
            left.extend(std::iter::from_fn(|| ordered.drain()));
            prop_assert_eq!(left, (0..begun).collect::<Vec<_>>());
            prop_assert_eq!(ordered.bytes, 0);
        }
    }
    proptest! {
        #[test]
        fn of_a_stream_items_are_emitted_once_they_are_complete(
            steps in prop::collection::vec((any::<bool>(), 0..40_u64), 0..200),
            count in 1..20_usize,
        ) {
            let mut ordered = Ordered::new(Limits { count, bytes: usize::MAX }, false);
            let (mut begun, mut left, mut complete) = (0, Vec::new(), Vec::new());
            for (begins, which) in steps {
                if begins {
                    prop_assert_eq!(ordered.begin(begun), begun);
                    begun += 1;
                } else if ordered.get(which).is_some() {
                    complete.push(which);
                    ordered.complete(which);
                    prop_assert!(ordered.get(which).is_none());
                }
                left.extend(std::iter::from_fn(|| ordered.emit()));
                prop_assert!(ordered.slots.len() <= count);
                prop_assert!(complete.iter().all(|id| left.contains(id)));
                let waiting = (0..begun).filter(|id| ordered.get(*id).is_some()).count();
                prop_assert_eq!(waiting, ordered.slots.len());
            }
            prop_assert_eq!(ordered.evicted(), (left.len() - complete.len()) as u64);
            left.extend(std::iter::from_fn(|| ordered.drain()));
            left.sort_unstable();
            prop_assert_eq!(left, (0..begun).collect::<Vec<_>>());
            prop_assert_eq!(ordered.bytes, 0);
        }
    }
}
