//! Where the events of a machine go.

use trunkline_wire::Machine;

use crate::trouble::Trouble;

/// Takes events of a machine, on the engine's own thread, before the rest is queued for the user.
pub trait Sink<M: Machine>: Send + 'static {
    /// Takes an event, or gives it back for the queue.
    fn take(&mut self, event: M::Event) -> Option<M::Event>;

    /// Takes an event of the capture, or gives it back for the reader of events.
    fn take_trouble(&mut self, trouble: Trouble) -> Option<Trouble> {
        Some(trouble)
    }

    /// Whether there is room for what messages cause; else they stay unread.
    fn has_room(&self) -> bool;

    /// The machine is gone, and with it what it was to end: another may follow, in simulations.
    fn lose(&mut self) {}
}

/// Queues everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queued;

impl<M: Machine> Sink<M> for Queued {
    #[inline]
    fn take(&mut self, event: M::Event) -> Option<M::Event> {
        Some(event)
    }

    #[inline]
    fn has_room(&self) -> bool {
        true
    }
}
