//! The client of DCP, whose replies go straight to who waits for them.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trunkline_wire::dcp::{Asking, Body, CallId, Client, ClientEvent, ClientStats, ClientVerb};
use trunkline_wire::{Backlog, Frames, Incoming, Machine, Nanos, Output, SocketEvent, Verdict, cost};

use crate::shared::Bounds;
use crate::signal::Signal;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With a reply.
    Reply {
        /// The message, bit for bit.
        frames: Frames,
        /// Where everything is in it; the metadata are the user's.
        body: Body,
    },
    /// No attempt was replied to in time.
    TimedOut,
    /// The client closed first.
    Unanswered,
}

impl Outcome {
    fn size(&self) -> usize {
        match self {
            Self::Reply { frames, .. } => cost(frames),
            Self::TimedOut | Self::Unanswered => 0,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic leaves behind is whole: every change is one assignment.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where one thread waits for the outcome of one call.
#[derive(Debug, Default)]
pub struct Slot {
    outcome: Mutex<Option<Outcome>>,
    filled: Condvar,
}

impl Slot {
    /// Waits for the outcome, for so long at most; takes it.
    pub fn wait(&self, timeout: Duration) -> Option<Outcome> {
        let outcome = lock(&self.outcome);
        let waited = self.filled.wait_timeout_while(outcome, timeout, |outcome| outcome.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }

    fn fill(&self, outcome: Outcome) {
        *lock(&self.outcome) = Some(outcome);
        self.filled.notify_one();
    }
}

/// Outcomes of calls that no thread waits for by itself, until someone takes them all.
#[derive(Debug)]
pub struct Outcomes {
    queue: Mutex<Queue>,
    bounds: Bounds,
    pressed: AtomicBool,
    /// Wakes whoever takes them.
    pub signal: Signal,
}

#[derive(Debug, Default)]
struct Queue {
    all: Vec<(CallId, Outcome)>,
    bytes: usize,
}

impl Outcomes {
    /// None yet. Beyond the bounds the client reads no more.
    ///
    /// # Errors
    /// When the operating system gives no descriptor.
    pub fn new(bounds: Bounds) -> std::io::Result<Self> {
        Ok(Self { queue: Mutex::default(), bounds, pressed: AtomicBool::new(false), signal: Signal::new()? })
    }

    /// All there are, and whether the client is to be told that there is room again.
    pub fn take(&self) -> (Vec<(CallId, Outcome)>, bool) {
        let Queue { all, .. } = mem::take(&mut *lock(&self.queue));
        (all, self.pressed.swap(false, Ordering::SeqCst))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        lock(&self.queue).all.is_empty()
    }

    fn push(&self, call: CallId, outcome: Outcome) {
        let mut queue = lock(&self.queue);
        queue.bytes += outcome.size();
        queue.all.push((call, outcome));
        if queue.all.len() >= self.bounds.messages || queue.bytes >= self.bounds.bytes {
            self.pressed.store(true, Ordering::SeqCst);
        }
        drop(queue);
        self.signal.notify();
    }
}

/// What the user of a client may ask for.
#[derive(Debug)]
pub enum CallVerb {
    /// Do a call. Its outcome goes to the slot, or to the others where there is none.
    Call {
        /// Its number.
        call: CallId,
        /// The request.
        request: ClientVerb,
        /// Who waits for it.
        slot: Option<Arc<Slot>>,
    },
    /// Nobody waits for a call any more.
    Cancel(CallId),
    /// There is room for outcomes again.
    Relieved,
}

/// A client that hands each outcome to whoever waits for it, on the engine's own thread.
#[derive(Debug)]
pub struct Calls {
    client: Client,
    waiting: HashMap<CallId, Option<Arc<Slot>>>,
    outcomes: Arc<Outcomes>,
}

impl Calls {
    /// Puts a client in front of who waits.
    pub fn new(client: Client, outcomes: Arc<Outcomes>) -> Self {
        Self { client, waiting: HashMap::new(), outcomes }
    }

    fn end(&mut self, call: CallId, outcome: Outcome) {
        match self.waiting.remove(&call) {
            Some(Some(slot)) => slot.fill(outcome),
            Some(None) => self.outcomes.push(call, outcome),
            None => {}
        }
    }
}

impl Machine for Calls {
    type Socket = Asking;
    type Event = ClientEvent;
    type Verb = CallVerb;
    type Stats = ClientStats;

    fn handle_message(&mut self, now: Nanos, incoming: Incoming<Asking>) -> Verdict {
        self.client.handle_message(now, incoming)
    }

    fn handle_socket(&mut self, now: Nanos, socket: Asking, event: SocketEvent) {
        self.client.handle_socket(now, socket, event);
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.client.handle_timeout(now);
    }

    fn handle_verb(&mut self, now: Nanos, verb: CallVerb) {
        match verb {
            CallVerb::Call { call, request, slot } => {
                self.waiting.insert(call, slot);
                self.client.handle_verb(now, request);
            }
            CallVerb::Cancel(call) => {
                self.waiting.remove(&call);
                self.client.handle_verb(now, ClientVerb::Cancel(call));
            }
            CallVerb::Relieved => {}
        }
    }

    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        self.client.handle_close(now, grace);
    }

    fn poll_output(&mut self) -> Option<Output<Asking>> {
        self.client.poll_output()
    }

    fn poll_event(&mut self) -> Option<ClientEvent> {
        loop {
            match self.client.poll_event()? {
                ClientEvent::Reply { call, frames, body } => self.end(call, Outcome::Reply { frames, body }),
                ClientEvent::TimedOut(call) => self.end(call, Outcome::TimedOut),
                ClientEvent::Unanswered(call) => self.end(call, Outcome::Unanswered),
                notice @ (ClientEvent::Dropped { .. } | ClientEvent::Connection(_)) => return Some(notice),
            }
        }
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.client.poll_timeout()
    }

    fn reads(&self, _socket: Asking) -> bool {
        !self.outcomes.pressed.load(Ordering::SeqCst)
    }

    fn backlog(&self) -> Backlog {
        self.client.backlog()
    }

    fn progress(&self) -> u64 {
        self.client.progress()
    }

    fn stats(&self) -> ClientStats {
        self.client.stats()
    }

    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

impl Drop for Calls {
    /// However the engine ended, nobody waits for ever.
    fn drop(&mut self) {
        for (call, slot) in mem::take(&mut self.waiting) {
            match slot {
                Some(slot) => slot.fill(Outcome::Unanswered),
                None => self.outcomes.push(call, Outcome::Unanswered),
            }
        }
        self.outcomes.signal.latch();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use trunkline_wire::dcp::{ClientSettings, encode_reply};
    use trunkline_wire::{Output, SendId};

    use super::*;

    const NOW: Nanos = Nanos(0);

    fn calls(bounds: Bounds) -> (Calls, Arc<Outcomes>) {
        let outcomes = Arc::new(Outcomes::new(bounds).expect("there are descriptors"));
        let client = Client::new(ClientSettings::default(), [7; 32]);
        (Calls::new(client, Arc::clone(&outcomes)), outcomes)
    }

    fn call(calls: &mut Calls, number: u64, slot: Option<&Arc<Slot>>, timeout: Duration) {
        let call = CallId(number);
        let request = ClientVerb::Request {
            call,
            service: Bytes::from_static(b"echo"),
            metadata: vec![],
            data: vec![],
            timeout: Some(timeout),
            retries: 0,
        };
        calls.handle_verb(NOW, CallVerb::Call { call, request, slot: slot.cloned() });
    }

    /// Sends what is to be sent, and answers it.
    fn answer(calls: &mut Calls) {
        while let Some(output) = calls.poll_output() {
            let Output::Send { frames, .. } = output else { continue };
            let frames = encode_reply(Bytes::from_static(b"C"), &frames[5..6], &[]);
            calls.handle_message(NOW, Incoming { socket: Asking, peer: None, user_id: None, frames });
        }
        assert_eq!(calls.poll_event(), None);
    }

    #[test]
    fn an_outcome_goes_to_who_waits_for_it() {
        let (mut calls, outcomes) = calls(Bounds::default());
        let slot = Arc::new(Slot::default());
        call(&mut calls, 0, Some(&slot), Duration::MAX);
        call(&mut calls, 1, None, Duration::MAX);
        assert_eq!(slot.wait(Duration::ZERO), None);
        answer(&mut calls);
        assert!(matches!(slot.wait(Duration::ZERO), Some(Outcome::Reply { .. })));
        assert!(matches!(&outcomes.take().0[..], [(CallId(1), Outcome::Reply { .. })]));
        assert!(outcomes.is_empty());
    }

    #[test]
    fn one_that_is_cancelled_goes_to_nobody() {
        let (mut calls, outcomes) = calls(Bounds::default());
        call(&mut calls, 0, None, Duration::MAX);
        calls.handle_verb(NOW, CallVerb::Cancel(CallId(0)));
        answer(&mut calls);
        drop(calls);
        assert!(outcomes.is_empty());
    }

    #[test]
    fn outcomes_nobody_takes_stop_the_reading() {
        let (mut calls, outcomes) = calls(Bounds { messages: 2, bytes: usize::MAX });
        call(&mut calls, 0, None, Duration::ZERO);
        call(&mut calls, 1, None, Duration::ZERO);
        assert!(calls.reads(Asking));
        calls.handle_timeout(NOW);
        assert_eq!(calls.poll_event(), None);
        assert!(!calls.reads(Asking));
        assert_eq!(outcomes.take(), (vec![(CallId(0), Outcome::TimedOut), (CallId(1), Outcome::TimedOut)], true));
        assert!(calls.reads(Asking));
    }

    #[test]
    fn nobody_waits_for_what_has_ended() {
        let (mut calls, outcomes) = calls(Bounds::default());
        let slot = Arc::new(Slot::default());
        call(&mut calls, 0, Some(&slot), Duration::MAX);
        call(&mut calls, 1, None, Duration::MAX);
        calls.handle_socket(NOW, Asking, SocketEvent::Sent(SendId(0)));
        drop(calls);
        assert_eq!(slot.wait(Duration::ZERO), Some(Outcome::Unanswered));
        assert_eq!(outcomes.take().0, [(CallId(1), Outcome::Unanswered)]);
    }
}
