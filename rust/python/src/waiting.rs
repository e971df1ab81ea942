//! Verbs that wait for room in the engine's queue.

use trunkline_engine::{Hold, Offered};
use trunkline_wire::Machine;

/// A verb until it is handed over, and its size.
pub(crate) struct Waiting<V> {
    verb: Option<V>,
    bytes: usize,
}

impl<V> Waiting<V> {
    pub(crate) fn new(verb: V, bytes: usize) -> Self {
        Self { verb: Some(verb), bytes }
    }

    /// Hands it over; false when there is no room, or the role is over.
    #[inline]
    pub(crate) fn give<M: Machine<Verb = V>>(&mut self, handle: &dyn Hold<M>) -> bool {
        let Some(verb) = self.verb.take() else { return true };
        match handle.offer(verb, self.bytes) {
            Offered::Taken => true,
            Offered::Full(verb) | Offered::Over(verb) => {
                self.verb = Some(verb);
                false
            }
        }
    }
}
