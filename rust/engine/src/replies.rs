//! The outcomes of calls, which go straight to their callers.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::quality::RandomState;
use trunkline_wire::{CallId, Calling};

use crate::shared::Bounds;
use crate::signal::Signal;
use crate::sink::Sink;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves it consistent: every change is one assignment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where one thread waits for the outcome of one call.
#[derive(Debug)]
pub struct Slot<O> {
    outcome: Mutex<Option<O>>,
    filled: Condvar,
}

impl<O> Default for Slot<O> {
    fn default() -> Self {
        Self { outcome: Mutex::new(None), filled: Condvar::new() }
    }
}

impl<O> Slot<O> {
    /// Waits for the outcome, for so long at most; takes it.
    pub fn wait(&self, timeout: Duration) -> Option<O> {
        let outcome = lock(&self.outcome);
        let waited = self.filled.wait_timeout_while(outcome, timeout, |outcome| outcome.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }

    fn fill(&self, outcome: O) {
        *lock(&self.outcome) = Some(outcome);
        self.filled.notify_one();
    }
}

/// The calls of a role, from before they are handed to its engine until their outcome is taken.
#[derive(Debug)]
pub struct Replies<O> {
    state: Mutex<State<O>>,
    bounds: Bounds,
    pressed: AtomicBool,
    /// Wakes the reader of outcomes without a waiting thread of their own.
    pub signal: Signal,
}

#[derive(Debug)]
struct State<O> {
    /// The waiting thread of each call.
    waiting: HashMap<CallId, Option<Arc<Slot<O>>>, RandomState>,
    /// Outcomes without a waiting thread of their own, until they are all taken.
    ended: Vec<(CallId, O)>,
    bytes: usize,
    /// Set when nothing ends any more.
    over: bool,
}

impl<O> Replies<O> {
    /// Without calls. When more outcomes wait than the bounds allow, the role stops reading.
    ///
    /// # Errors
    /// When the operating system gives no descriptor.
    pub fn new(bounds: Bounds) -> std::io::Result<Self> {
        let state = State { waiting: HashMap::default(), ended: vec![], bytes: 0, over: false };
        Ok(Self { state: Mutex::new(state), bounds, pressed: AtomicBool::new(false), signal: Signal::new()? })
    }

    /// Expects the outcome of a call that is about to be handed over, in the slot or else among those to take. False if
    /// it would never come.
    pub fn expect(&self, call: CallId, slot: Option<Arc<Slot<O>>>) -> bool {
        let mut state = lock(&self.state);
        if !state.over {
            state.waiting.insert(call, slot);
        }
        !state.over
    }

    pub fn forget(&self, call: CallId) {
        lock(&self.state).waiting.remove(&call);
    }

    /// Takes all outcomes; gives also whether the engine must learn that there is room again.
    pub fn take(&self) -> (Vec<(CallId, O)>, bool) {
        let mut state = lock(&self.state);
        state.bytes = 0;
        (mem::take(&mut state.ended), self.pressed.swap(false, Ordering::SeqCst))
    }

    /// Whether there are none to take.
    pub fn is_empty(&self) -> bool {
        lock(&self.state).ended.is_empty()
    }

    fn end(&self, call: CallId, outcome: O, bytes: usize) {
        let mut state = lock(&self.state);
        match state.waiting.remove(&call) {
            Some(Some(slot)) => {
                drop(state);
                slot.fill(outcome);
            }
            Some(None) => {
                state.bytes += bytes;
                state.ended.push((call, outcome));
                if state.ended.len() >= self.bounds.messages || state.bytes >= self.bounds.bytes {
                    self.pressed.store(true, Ordering::SeqCst);
                }
                drop(state);
                self.signal.notify();
            }
            None => {}
        }
    }
}

/// Hands each outcome to the thread that expects it.
#[derive(Debug)]
pub struct Answering<M: Calling>(Arc<Replies<M::Outcome>>);

impl<M: Calling> Answering<M> {
    /// Hands them to those that `replies` expects.
    pub fn new(replies: Arc<Replies<M::Outcome>>) -> Self {
        Self(replies)
    }

    /// Ends every call unanswered.
    fn end_all(&self) {
        let waiting = mem::take(&mut lock(&self.0.state).waiting);
        let mut left = vec![];
        for (call, slot) in waiting {
            match slot {
                Some(slot) => slot.fill(M::unanswered()),
                None => left.push((call, M::unanswered())),
            }
        }
        // A map is in no order.
        left.sort_unstable_by_key(|(call, _)| *call);
        lock(&self.0.state).ended.append(&mut left);
    }
}

impl<M: Calling + 'static> Sink<M> for Answering<M> {
    fn take(&mut self, event: M::Event) -> Option<M::Event> {
        match M::outcome(event) {
            Ok((call, outcome)) => {
                let bytes = M::cost(&outcome);
                self.0.end(call, outcome, bytes);
                None
            }
            Err(event) => Some(event),
        }
    }

    fn has_room(&self) -> bool {
        !self.0.pressed.load(Ordering::SeqCst)
    }

    fn lose(&mut self) {
        self.end_all();
    }
}

impl<M: Calling> Drop for Answering<M> {
    /// However the engine ended, no thread waits forever.
    fn drop(&mut self) {
        lock(&self.0.state).over = true;
        self.end_all();
        self.0.signal.latch();
    }
}

#[cfg(test)]
mod tests {
    use trunkline_wire::dcp::{Client, ClientEvent, Outcome};
    use trunkline_wire::{Connection, DecodeError, Dropped, ErrorKind, Frames};

    use super::*;

    fn answering(bounds: Bounds) -> (Answering<Client>, Arc<Replies<Outcome>>) {
        let replies = Arc::new(Replies::new(bounds).expect("there are descriptors"));
        (Answering::new(Arc::clone(&replies)), replies)
    }

    fn timed_out(sink: &mut Answering<Client>, call: u64) {
        assert_eq!(sink.take(ClientEvent::Ended(CallId(call), Outcome::TimedOut)), None);
    }

    #[test]
    fn an_outcome_goes_to_who_waits_for_it() {
        let (mut sink, replies) = answering(Bounds::default());
        let slot = Arc::new(Slot::default());
        assert!(replies.expect(CallId(0), Some(Arc::clone(&slot))));
        assert!(replies.expect(CallId(1), None));
        assert_eq!(slot.wait(Duration::ZERO), None);
        timed_out(&mut sink, 0);
        timed_out(&mut sink, 1);
        assert_eq!(slot.wait(Duration::ZERO), Some(Outcome::TimedOut));
        assert_eq!(replies.take(), (vec![(CallId(1), Outcome::TimedOut)], false));
        assert!(replies.is_empty());
    }

    #[test]
    fn what_is_no_outcome_is_for_the_queue() {
        let (mut sink, _) = answering(Bounds::default());
        let lost = || ClientEvent::Connection(Connection::Lost("tcp://broker:1".into()));
        assert_eq!(sink.take(lost()), Some(lost()));
        let error = DecodeError { kind: ErrorKind::BadType, frame: 1, offset: 0 };
        let dropped = || ClientEvent::Dropped(Dropped::new(error, None, Frames::new()));
        assert_eq!(sink.take(dropped()), Some(dropped()));
    }

    #[test]
    fn one_that_is_forgotten_goes_to_nobody() {
        let (mut sink, replies) = answering(Bounds::default());
        replies.expect(CallId(0), None);
        replies.forget(CallId(0));
        timed_out(&mut sink, 0);
        drop(sink);
        assert!(replies.is_empty());
    }

    #[test]
    fn outcomes_nobody_takes_stop_the_reading() {
        let (mut sink, replies) = answering(Bounds { messages: 2, bytes: usize::MAX });
        for call in 0..2 {
            assert!(sink.has_room());
            replies.expect(CallId(call), None);
            timed_out(&mut sink, call);
        }
        assert!(!sink.has_room());
        assert_eq!(replies.take(), ([0, 1].map(|call| (CallId(call), Outcome::TimedOut)).to_vec(), true));
        assert!(sink.has_room());
    }

    #[test]
    fn nobody_waits_for_what_has_ended() {
        let (sink, replies) = answering(Bounds::default());
        let slot = Arc::new(Slot::default());
        replies.expect(CallId(0), Some(Arc::clone(&slot)));
        replies.expect(CallId(1), None);
        drop(sink);
        assert_eq!(slot.wait(Duration::ZERO), Some(Outcome::Unanswered));
        assert_eq!(replies.take().0, [(CallId(1), Outcome::Unanswered)]);
        assert!(!replies.expect(CallId(2), None), "its outcome would never come");
    }
}
