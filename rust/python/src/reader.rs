//! The reading side of a role, in the user's thread.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use trunkline_engine::{Hold, Trouble};
use trunkline_wire::Machine;

/// Events taken from an engine and not handed out yet.
pub(crate) struct Reader<M: Machine> {
    pub(crate) handle: Arc<dyn Hold<M>>,
    taken: Mutex<VecDeque<M::Event>>,
}

/// One look at what has come in: it has an end, however fast more comes.
#[derive(Default)]
pub(crate) struct Look {
    /// How many bursts may still be read, set at the first read.
    left: Option<usize>,
}

/// What to hand out.
pub(crate) enum Next<E> {
    Event(E),
    /// An event of the capture.
    Trouble(Trouble),
    /// Nothing in this look.
    Nothing,
    /// The role is over: nothing will come.
    Over,
}

impl<M: Machine + Send + 'static> Reader<M> {
    pub(crate) fn new(handle: Arc<dyn Hold<M>>) -> Self {
        Self { handle, taken: Mutex::default() }
    }

    #[inline]
    pub(crate) fn next(&self, look: &mut Look) -> Next<M::Event> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(event) = taken.pop_front() {
                return Next::Event(event);
            }
            // Also when there is something else: a reader that is never idle must get it too.
            if let Some(trouble) = self.handle.read_trouble() {
                return Next::Trouble(trouble);
            }
            // At least one read, since it also shows whether the role is over.
            let left = look.left.get_or_insert_with(|| self.handle.bursts().max(1));
            if *left == 0 {
                return Next::Nothing;
            }
            *left -= 1;
            if !self.handle.read(&mut taken) {
                return Next::Over;
            }
            if taken.is_empty() {
                return Next::Nothing;
            }
        }
    }

    /// How many of the events taken and not handed out match.
    pub(crate) fn count(&self, is_such: impl Fn(&M::Event) -> bool) -> usize {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.iter().filter(|event| is_such(event)).count()
    }
}
