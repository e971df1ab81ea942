//! Things in the order in which they began, until they are settled: how many may wait, and what becomes of the rest.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The number of a thing, in the order in which they began.
pub(crate) type Id = u64;

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// How many things.
    pub(crate) count: usize,
    /// How many bytes they may take.
    pub(crate) bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { count: 1 << 20, bytes: 256 << 20 }
    }
}

/// What takes memory.
pub(crate) trait Weigh {
    /// About how many bytes it takes.
    fn weight(&self) -> usize;
}

#[derive(Debug, Serialize, Deserialize)]
struct Slot<T> {
    thing: T,
    weight: usize,
    is_settled: bool,
}

/// Things in the order in which they began. They leave in that order, once they and all before them are settled; the oldest
/// leaves early where more wait than may.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ordered<T> {
    /// The number of the first one here.
    first: Id,
    slots: VecDeque<Slot<T>>,
    bytes: usize,
    limits: Limits,
    /// How many left before they were settled, to make way for others.
    let_go: u64,
}

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl<T> Ordered<T> {
    /// Nothing, of which no more than this may wait.
    pub(crate) const fn new(limits: Limits) -> Self {
        Self { first: 0, slots: VecDeque::new(), bytes: 0, limits, let_go: 0 }
    }

    /// How many left before they were settled.
    pub(crate) const fn let_go(&self) -> u64 {
        self.let_go
    }

    /// One that is not settled.
    pub(crate) fn get(&mut self, id: Id) -> Option<&mut T> {
        let slot = self.slots.get_mut(usize::try_from(id.checked_sub(self.first)?).ok()?)?;
        (!slot.is_settled).then_some(&mut slot.thing)
    }

    /// Nothing more can come of one: it may leave.
    pub(crate) fn settle(&mut self, id: Id) {
        let at = id.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(slot) = at.and_then(|at| self.slots.get_mut(at)) {
            slot.is_settled = true;
        }
    }

    /// One takes so many more bytes.
    pub(crate) fn grow(&mut self, id: Id, by: usize) {
        let at = id.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(slot) = at.and_then(|at| self.slots.get_mut(at)) {
            slot.weight = slot.weight.saturating_add(by);
            self.bytes = self.bytes.saturating_add(by);
        }
    }

    /// The next that leaves, if any may.
    pub(crate) fn leave(&mut self) -> Option<T> {
        let is_settled = self.slots.front()?.is_settled;
        if !is_settled && self.slots.len() <= self.limits.count && self.bytes <= self.limits.bytes {
            return None;
        }
        self.let_go += u64::from(!is_settled);
        self.pop()
    }

    /// The next that leaves, settled or not: nothing more comes.
    pub(crate) fn end(&mut self) -> Option<T> {
        self.pop()
    }

    fn pop(&mut self) -> Option<T> {
        let slot = self.slots.pop_front()?;
        self.first = self.first.wrapping_add(1);
        self.bytes = self.bytes.saturating_sub(slot.weight);
        Some(slot.thing)
    }
}

impl<T: Weigh> Ordered<T> {
    /// One begins.
    pub(crate) fn begin(&mut self, thing: T) -> Id {
        let weight = thing.weight();
        self.bytes = self.bytes.saturating_add(weight);
        self.slots.push_back(Slot { thing, weight, is_settled: false });
        self.first.wrapping_add(self.slots.len() as u64 - 1)
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
            let mut ordered = Ordered::new(Limits { count, bytes });
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
}
