//! Notices of a role whose user reads messages: they have their own queue, so they do not wait for that user.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use trunkline_wire::{Event, Machine, Weight};

use crate::shared::{NOTICE_BYTES, NOTICES};
use crate::signal::Signal;
use crate::sink::Sink;
use crate::trouble::Trouble;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice<E> {
    /// An event of the machine.
    Event(E),
    /// An event of the capture.
    Trouble(Trouble),
}

/// The notices that are pending; a reader that does not keep up misses the newest.
#[derive(Debug)]
pub struct Notices<E> {
    ring: Mutex<Ring<E>>,
    /// Set while their reader keeps the engine from reading.
    pressed: AtomicBool,
    /// Wakes the thread that reports them.
    pub signal: Signal,
}

#[derive(Debug)]
struct Ring<E> {
    notices: VecDeque<Notice<E>>,
    bytes: usize,
}

impl<E> Notices<E> {
    /// Without notices.
    ///
    /// # Errors
    /// When the operating system gives no descriptor.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            ring: Mutex::new(Ring { notices: VecDeque::new(), bytes: 0 }),
            pressed: AtomicBool::new(false),
            signal: Signal::new()?,
        })
    }

    /// Takes all notices; gives also whether the engine must learn that there is room again.
    pub fn take(&self) -> (VecDeque<Notice<E>>, bool) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        ring.bytes = 0;
        (std::mem::take(&mut ring.notices), self.pressed.swap(false, Ordering::SeqCst))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).notices.is_empty()
    }

    fn push(&self, notice: Notice<E>, bytes: usize) {
        {
            let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            if ring.notices.len() >= NOTICES || ring.bytes + bytes > NOTICE_BYTES {
                return;
            }
            ring.bytes += bytes;
            ring.notices.push_back(notice);
            if ring.notices.len() > NOTICES / 2 || ring.bytes > NOTICE_BYTES / 2 {
                self.pressed.store(true, Ordering::SeqCst);
            }
        }
        self.signal.notify();
    }
}

/// Sets notices aside, and gives the rest to another sink.
#[derive(Debug)]
pub struct Aside<M: Machine, S> {
    notices: Arc<Notices<M::Event>>,
    /// Picks what is set aside, and gives its bytes.
    picks: fn(&M::Event) -> Option<usize>,
    /// Whether events of the capture are set aside too.
    has_trouble: bool,
    /// Whether messages stay unread while many are set aside: none of them may be missed.
    presses: bool,
    rest: S,
}

impl<M: Machine, S: Sink<M>> Aside<M, S> {
    /// Sets notices aside in `notices`.
    pub fn new(notices: Arc<Notices<M::Event>>, rest: S) -> Self {
        let picks = |event: &M::Event| match event.weight() {
            Weight::Notice(bytes) => Some(bytes),
            Weight::Lossless(_) => None,
        };
        Self { notices, picks, has_trouble: true, presses: false, rest }
    }

    /// Sets aside what `picks` picks, with its bytes; `rest` gets the others.
    pub fn picking(notices: Arc<Notices<M::Event>>, picks: fn(&M::Event) -> Option<usize>, rest: S) -> Self {
        Self { notices, picks, has_trouble: false, presses: false, rest }
    }

    /// The same, where reading pauses for what `picks` picks.
    pub fn pressing(notices: Arc<Notices<M::Event>>, picks: fn(&M::Event) -> Option<usize>, rest: S) -> Self {
        Self { notices, picks, has_trouble: false, presses: true, rest }
    }
}

impl<M: Machine + 'static, S: Sink<M>> Sink<M> for Aside<M, S> {
    fn take(&mut self, event: M::Event) -> Option<M::Event> {
        let event = self.rest.take(event)?;
        let Some(bytes) = (self.picks)(&event) else { return Some(event) };
        self.notices.push(Notice::Event(event), bytes);
        None
    }

    fn take_trouble(&mut self, trouble: Trouble) -> Option<Trouble> {
        if !self.has_trouble {
            return self.rest.take_trouble(trouble);
        }
        self.notices.push(Notice::Trouble(trouble), 0);
        None
    }

    fn has_room(&self) -> bool {
        self.rest.has_room() && !(self.presses && self.notices.pressed.load(Ordering::SeqCst))
    }

    fn lose(&mut self) {
        self.rest.lose();
    }
}

impl<M: Machine, S> Drop for Aside<M, S> {
    /// However the engine ended, no reader waits forever.
    fn drop(&mut self) {
        self.notices.signal.latch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Queued;
    use trunkline_wire::dcp::{Client, ClientEvent, Outcome};
    use trunkline_wire::{CallId, Connection};

    #[test]
    fn notices_are_set_aside_and_the_rest_is_not() {
        let notices = Arc::new(Notices::new().expect("a descriptor"));
        let mut sink = Aside::<Client, _>::new(Arc::clone(&notices), Queued);
        let message = ClientEvent::Ended(CallId(1), Outcome::TimedOut);
        let notice = ClientEvent::Connection(Connection::Made("tcp://bus:1".into()));
        assert_eq!(sink.take(message.clone()), Some(message));
        assert!(notices.is_empty());
        assert_eq!(sink.take(notice.clone()), None);
        assert_eq!(sink.take_trouble(Trouble::Losing), None);
        assert_eq!(notices.take().0, [Notice::Event(notice), Notice::Trouble(Trouble::Losing)]);
        assert!(notices.is_empty());
    }

    #[test]
    fn so_many_wait_at_most() {
        let notices = Notices::<ClientEvent>::new().expect("a descriptor");
        for bytes in [NOTICE_BYTES, 1] {
            notices.push(Notice::Trouble(Trouble::Losing), bytes);
        }
        assert_eq!(notices.take().0.len(), 1);
        for _ in 0..=NOTICES {
            notices.push(Notice::Trouble(Trouble::Losing), 0);
        }
        assert_eq!(notices.take().0.len(), NOTICES);
    }
}
