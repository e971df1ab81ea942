//! What the user of a role reads, in the thread that reads it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use trunkline_engine::{Handle, Trouble};
use trunkline_wire::Machine;

/// Events taken from an engine and not handed out yet.
pub(crate) struct Reader<M: Machine> {
    pub(crate) handle: Arc<Handle<M>>,
    taken: Mutex<Taken<M::Event>>,
}

struct Taken<E> {
    events: VecDeque<E>,
    over: bool,
}

/// One look at what has come in: it ends where that ends, however fast more comes.
#[derive(Default)]
pub(crate) struct Look {
    /// How many bursts may still be read, from the first read on.
    left: Option<usize>,
}

/// What there is to hand out.
pub(crate) enum Next<E> {
    Event(E),
    /// Something has come up with the capture.
    Trouble(Trouble),
    /// Not in this look.
    Nothing,
    /// And there never will be: the role is over.
    Over,
}

impl<M: Machine + Send + 'static> Reader<M> {
    pub(crate) fn new(handle: Arc<Handle<M>>) -> Self {
        Self { handle, taken: Mutex::new(Taken { events: VecDeque::new(), over: false }) }
    }

    #[inline]
    pub(crate) fn next(&self, look: &mut Look) -> Next<M::Event> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(event) = taken.events.pop_front() {
                return Next::Event(event);
            }
            // Not only when there is nothing else: a reader that is never idle is to hear of it too.
            if let Some(trouble) = self.handle.read_trouble() {
                return Next::Trouble(trouble);
            }
            if taken.over {
                return Next::Over;
            }
            // One read at least, for it also says whether the role is over.
            let left = look.left.get_or_insert_with(|| self.handle.bursts().max(1));
            if *left == 0 {
                return Next::Nothing;
            }
            *left -= 1;
            taken.over = !self.handle.read(&mut taken.events);
            if taken.events.is_empty() {
                return if taken.over { Next::Over } else { Next::Nothing };
            }
        }
    }

    /// How many of the events that are taken and not handed out are such.
    pub(crate) fn count(&self, is_such: impl Fn(&M::Event) -> bool) -> usize {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.events.iter().filter(|event| is_such(event)).count()
    }
}
