//! Things in the order in which they began, until they are settled: how many may wait, and which leave early.

use std::{collections::VecDeque, mem};

use serde::{Deserialize, Serialize};

use crate::room::Room;

/// The number of a thing, in the order in which they began.
pub(crate) type Id = u64;

/// The limits of what may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// How many things.
    pub(crate) count: usize,
    /// How many bytes they may take.
    pub(crate) bytes: usize,
}

impl Limits {
    /// The limits of a whole table.
    const WHOLE: Self = Self { count: 1 << 20, bytes: 256 << 20 };

    /// The share that `room` has of these limits.
    pub(crate) fn of(room: Room, count: usize, bytes: usize) -> Self {
        Self { count: room.share(count), bytes: room.share(bytes) }
    }
}

/// What takes memory.
pub(crate) trait Weigh {
    /// About how many bytes it takes.
    fn weight(&self) -> usize;
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Slot<T> {
    id: Id,
    thing: T,
    weight: usize,
    is_settled: bool,
}

/// Things in the order in which they began. They leave in that order, once they and all before them are settled, or in
/// any order once they are; the oldest leaves early beyond the limits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ordered<T> {
    /// The number of the next one.
    next: Id,
    slots: VecDeque<Slot<T>>,
    bytes: usize,
    limits: Limits,
    /// Whether settled ones wait for those before them.
    in_order: bool,
    /// How many settled ones are still here.
    settled: usize,
    /// Those that leave before their turn.
    leaving: VecDeque<T>,
    /// How many left before they were settled, to make room for others.
    let_go: u64,
}

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self::new(Limits::WHOLE, true)
    }
}

impl<T> Ordered<T> {
    /// Empty, with these limits.
    pub(crate) fn new(limits: Limits, in_order: bool) -> Self {
        let slots = VecDeque::new();
        Self { next: 0, slots, bytes: 0, limits, in_order, settled: 0, leaving: VecDeque::new(), let_go: 0 }
    }

    /// Empty; in a stream settled things need not wait for all before them.
    pub(crate) fn in_room(room: Room) -> Self {
        Self::new(Limits::of(room, Limits::WHOLE.count, Limits::WHOLE.bytes), !room.is_streamed())
    }

    /// The same, in order in any room.
    pub(crate) fn in_order(self) -> Self {
        Self { in_order: true, ..self }
    }

    /// How many left before they were settled.
    pub(crate) const fn let_go(&self) -> u64 {
        self.let_go
    }

    /// The index of a thing.
    fn place(&self, id: Id) -> Option<usize> {
        let first = self.slots.front()?.id;
        let at = usize::try_from(id.checked_sub(first)?).ok()?;
        // It is at this index, unless some have left before their turn.
        if self.slots.get(at).is_some_and(|slot| slot.id == id) {
            return Some(at);
        }
        if self.in_order { None } else { self.slots.binary_search_by_key(&id, |slot| slot.id).ok() }
    }

    /// An unsettled thing.
    pub(crate) fn get(&mut self, id: Id) -> Option<&mut T> {
        let slot = self.place(id).and_then(|at| self.slots.get_mut(at))?;
        (!slot.is_settled).then_some(&mut slot.thing)
    }

    /// A thing is complete: it may leave.
    pub(crate) fn settle(&mut self, id: Id) {
        if let Some(slot) = self.place(id).and_then(|at| self.slots.get_mut(at)) {
            self.settled = self.settled.saturating_add(usize::from(!slot.is_settled));
            slot.is_settled = true;
        }
    }

    /// Settles those for which `is_over` holds; gives their number.
    pub(crate) fn settle_those(&mut self, mut is_over: impl FnMut(&mut T) -> bool) -> usize {
        let mut over = 0;
        for slot in self.slots.iter_mut().filter(|slot| !slot.is_settled) {
            slot.is_settled = is_over(&mut slot.thing);
            over += usize::from(slot.is_settled);
        }
        self.settled = self.settled.saturating_add(over);
        over
    }

    /// A thing takes so many more bytes.
    pub(crate) fn grow(&mut self, id: Id, by: usize) {
        if let Some(slot) = self.place(id).and_then(|at| self.slots.get_mut(at)) {
            slot.weight = slot.weight.saturating_add(by);
            self.bytes = self.bytes.saturating_add(by);
        }
    }

    /// The next that leaves, if any may.
    pub(crate) fn leave(&mut self) -> Option<T> {
        if !self.in_order && self.settled > 0 {
            self.sweep();
        }
        if let Some(thing) = self.leaving.pop_front() {
            return Some(thing);
        }
        let is_settled = self.slots.front()?.is_settled;
        if !is_settled && self.slots.len() <= self.limits.count && self.bytes <= self.limits.bytes {
            return None;
        }
        self.let_go = self.let_go.saturating_add(u64::from(!is_settled));
        self.pop()
    }

    /// The next that leaves, settled or not: nothing more comes.
    pub(crate) fn end(&mut self) -> Option<T> {
        self.leaving.pop_front().or_else(|| self.pop())
    }

    /// Takes out all that are settled.
    fn sweep(&mut self) {
        self.settled = 0;
        for slot in mem::take(&mut self.slots) {
            if slot.is_settled {
                self.bytes = self.bytes.saturating_sub(slot.weight);
                self.leaving.push_back(slot.thing);
            } else {
                self.slots.push_back(slot);
            }
        }
    }

    fn pop(&mut self) -> Option<T> {
        let slot = self.slots.pop_front()?;
        self.settled = self.settled.saturating_sub(usize::from(slot.is_settled));
        self.bytes = self.bytes.saturating_sub(slot.weight);
        Some(slot.thing)
    }
}

impl<T: Weigh> Ordered<T> {
    /// One begins.
    pub(crate) fn begin(&mut self, thing: T) -> Id {
        let weight = thing.weight();
        let id = self.next;
        self.next = id.wrapping_add(1);
        self.bytes = self.bytes.saturating_add(weight);
        self.slots.push_back(Slot { id, thing, weight, is_settled: false });
        id
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
        fn things_leave_in_order_and_few_enough_wait(
            steps in prop::collection::vec((any::<bool>(), 0..40_u64, 0..30_usize), 0..200),
            count in 1..20_usize,
            bytes in 1..300_usize,
        ) {
            let mut ordered = Ordered::new(Limits { count, bytes }, true);
            let (mut begun, mut left, mut settled) = (0, Vec::new(), Vec::new());
            for (begins, which, more) in steps {
                if begins {
                    prop_assert_eq!(ordered.begin(begun), begun);
                    begun += 1;
                } else {
                    ordered.grow(which, more);
                    if ordered.get(which).is_some() {
                        settled.push(which);
                    }
                    ordered.settle(which);
                    prop_assert!(ordered.get(which).is_none());
                }
                left.extend(std::iter::from_fn(|| ordered.leave()));
                prop_assert!(ordered.slots.len() <= count);
                prop_assert!(ordered.bytes <= bytes);
            }
            let unsettled = left.iter().filter(|id| !settled.contains(id)).count();
            prop_assert_eq!(ordered.let_go(), unsettled as u64);
            left.extend(std::iter::from_fn(|| ordered.end()));
            prop_assert_eq!(left, (0..begun).collect::<Vec<_>>());
            prop_assert_eq!(ordered.bytes, 0);
        }
    }
    proptest! {
        #[test]
        fn of_a_stream_things_leave_once_they_are_settled(
            steps in prop::collection::vec((any::<bool>(), 0..40_u64), 0..200),
            count in 1..20_usize,
        ) {
            let mut ordered = Ordered::new(Limits { count, bytes: usize::MAX }, false);
            let (mut begun, mut left, mut settled) = (0, Vec::new(), Vec::new());
            for (begins, which) in steps {
                if begins {
                    prop_assert_eq!(ordered.begin(begun), begun);
                    begun += 1;
                } else if ordered.get(which).is_some() {
                    settled.push(which);
                    ordered.settle(which);
                    prop_assert!(ordered.get(which).is_none());
                }
                left.extend(std::iter::from_fn(|| ordered.leave()));
                prop_assert!(ordered.slots.len() <= count);
                prop_assert!(settled.iter().all(|id| left.contains(id)));
                let waiting = (0..begun).filter(|id| ordered.get(*id).is_some()).count();
                prop_assert_eq!(waiting, ordered.slots.len());
            }
            prop_assert_eq!(ordered.let_go(), (left.len() - settled.len()) as u64);
            left.extend(std::iter::from_fn(|| ordered.end()));
            left.sort_unstable();
            prop_assert_eq!(left, (0..begun).collect::<Vec<_>>());
            prop_assert_eq!(ordered.bytes, 0);
        }
    }
}
