//! The state shared by an engine's thread and its user's threads.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use trunkline_capture::Progress;
use trunkline_wire::{Backlog, Event, Machine, Weight};
use trunkline_zmtp::Tally;

use crate::signal::Signal;
use crate::tap::Tap;
use crate::trouble::Trouble;

/// Unread notices that are kept for a slow user; more are counted and lost.
pub(crate) const NOTICES: usize = 65_536;

/// Bytes of frames that unread notices may hold.
pub(crate) const NOTICE_BYTES: usize = 64 << 20;

/// Bursts are merged up to this many events; a reader takes one at a time.
const BURST: usize = 512;

/// How much may wait between an engine and its user, either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub messages: usize,
    /// Bytes of their frames; one larger message is taken when nothing else is queued.
    pub bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { messages: 100_000, bytes: 256 << 20 }
    }
}

impl Bounds {
    pub const UNLIMITED: Self = Self { messages: usize::MAX, bytes: usize::MAX };

    pub(crate) fn hold(self, backlog: Backlog) -> bool {
        backlog.messages < self.messages && (backlog.bytes < self.bytes || backlog.messages == 0)
    }

    fn half_empty(self, backlog: Backlog) -> bool {
        backlog.messages <= self.messages / 2 && backlog.bytes <= self.bytes / 2
    }
}

/// Why a role is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Closed,
    /// Its ZeroMQ context was terminated.
    Terminated,
    /// Its transport failed for good.
    Transport(String),
    /// Its capture could not be written.
    Capture(String),
    /// A bug: the engine's thread panicked, with these words.
    Panicked(String),
}

/// The outcome of handing over a verb.
#[derive(Debug, PartialEq, Eq)]
pub enum Offered<V> {
    /// The engine has it.
    Taken,
    /// There is no room now.
    Full(V),
    /// The role is over.
    Over(V),
}

/// A request to the engine itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// End in an orderly way, within the grace.
    Close(Duration),
    /// Make the capture safe on disk; `publish` closes the segment too.
    Flush { ticket: u64, publish: bool },
}

/// Events that are handed over together, never one by one.
struct Burst<E> {
    events: Vec<E>,
    lossless: Backlog,
    notices: Backlog,
}

pub(crate) struct Inbox<E> {
    bursts: VecDeque<Burst<E>>,
    /// The memory of a burst that was read.
    spare: Vec<E>,
    queued: Backlog,
    /// Events that a reader has taken and may not have handed out yet.
    taken: Backlog,
    notices: Backlog,
    lost_notices: u64,
}

impl<E> Default for Inbox<E> {
    fn default() -> Self {
        Self {
            bursts: VecDeque::new(),
            spare: vec![],
            queued: Backlog::default(),
            taken: Backlog::default(),
            notices: Backlog::default(),
            lost_notices: 0,
        }
    }
}

impl<E: Event> Inbox<E> {
    /// Takes a burst in, and leaves memory for the next.
    fn push(&mut self, events: &mut Vec<E>) {
        let (mut lossless, mut notices) = (Backlog::default(), Backlog::default());
        for event in events.iter() {
            match event.weight() {
                Weight::Lossless(bytes) => lossless = sum(lossless, Backlog { messages: 1, bytes }),
                Weight::Notice(bytes) => notices = sum(notices, Backlog { messages: 1, bytes }),
            }
        }
        let waiting = sum(self.notices, notices);
        if waiting.messages > NOTICES || waiting.bytes > NOTICE_BYTES {
            notices = self.thin_out(events);
        }
        if events.is_empty() {
            return;
        }
        self.queued = sum(self.queued, lossless);
        self.notices = sum(self.notices, notices);
        match self.bursts.back_mut() {
            Some(last) if last.events.len() + events.len() <= BURST => {
                last.events.append(events);
                last.lossless = sum(last.lossless, lossless);
                last.notices = sum(last.notices, notices);
            }
            _ => {
                let events = mem::replace(events, mem::take(&mut self.spare));
                self.bursts.push_back(Burst { events, lossless, notices });
            }
        }
    }

    /// Drops the notices there is no room for; gives the weight of the others.
    fn thin_out(&mut self, events: &mut Vec<E>) -> Backlog {
        let mut kept = Backlog::default();
        events.retain(|event| {
            let Weight::Notice(bytes) = event.weight() else { return true };
            let more = sum(kept, Backlog { messages: 1, bytes });
            let waiting = sum(self.notices, more);
            let fits = waiting.messages <= NOTICES && waiting.bytes <= NOTICE_BYTES;
            if fits {
                kept = more;
            } else {
                self.lost_notices += 1;
            }
            fits
        });
        kept
    }

    /// Takes the oldest burst. `events` is empty, and its memory is used again.
    fn pop(&mut self, events: &mut VecDeque<E>) {
        self.taken = Backlog::default();
        let Some(burst) = self.bursts.pop_front() else { return };
        self.queued = less(self.queued, burst.lossless);
        self.notices = less(self.notices, burst.notices);
        self.taken = burst.lossless;
        self.spare = mem::replace(events, burst.events.into()).into();
    }
}

pub(crate) struct Outbox<V> {
    pub(crate) verbs: Vec<V>,
    pub(crate) orders: Vec<Order>,
    /// Verbs and orders handed over so far.
    handed: u64,
    /// What is queued here, and what the machine still holds.
    pending: Backlog,
    backlog: Backlog,
    /// Whether the transport has something that the system has not.
    has_unsent: bool,
    /// Set while a user that found no room may wait for some.
    is_wanted: bool,
}

impl<V> Outbox<V> {
    fn waiting(&self) -> Backlog {
        sum(self.backlog, self.pending)
    }

    fn is_drained(&self) -> bool {
        self.waiting().messages == 0 && !self.has_unsent
    }
}

/// How many of the verbs and orders the machine has had, and how many threads wait for more.
#[derive(Debug, Default)]
struct Settled {
    handed: u64,
    waiting: usize,
}

/// The state between an engine's thread and its user's threads.
pub(crate) struct Shared<M: Machine> {
    /// The limits of what waits for the engine, and of what waits for the user; whether events beyond those are dropped.
    pub(crate) bounds: Bounds,
    pub(crate) unread: Bounds,
    pub(crate) sheds: bool,
    inbox: Mutex<Inbox<M::Event>>,
    outbox: Mutex<Outbox<M::Verb>>,
    /// Where counters are read while the engine runs, and their last values.
    core: Mutex<Weak<parking_lot::Mutex<Core<M>>>>,
    snapshot: Mutex<Snapshot<M::Stats>>,
    settled: Mutex<Settled>,
    settling: Condvar,
    /// The last flush that is done.
    pub(crate) flushed: AtomicU64,
    endpoints: Mutex<Vec<String>>,
    troubles: Mutex<VecDeque<Trouble>>,
    has_troubles: AtomicBool,
    end: Mutex<Option<End>>,
    over: AtomicBool,
    /// Set at the end if the transport was given up with pending messages.
    pub(crate) unsent: AtomicBool,
    /// Set while a full inbox keeps the engine from reading.
    pub(crate) pressed: AtomicBool,
    /// What the machine has taken in, and the number that a user waits for.
    pub(crate) progress: AtomicU64,
    pub(crate) awaited: AtomicU64,
    /// Wakes the readers of events.
    pub(crate) events: Signal,
    /// Wakes threads that wait for anything else: room, a flush, the end.
    pub(crate) user: Signal,
    /// Wakes the engine.
    pub(crate) engine: Signal,
}

/// The machine and the engine's counters.
pub(crate) struct Core<M> {
    pub(crate) machine: M,
    pub(crate) tap: Option<Tap>,
    /// Sends refused because a peer's outbox was full.
    pub(crate) peer_full: u64,
    /// Sends to peers that are not there.
    pub(crate) unroutable: u64,
    /// Events that the user's queue had no room for.
    pub(crate) queue_full: u64,
    /// Peers there was no room for.
    pub(crate) turned_away: u64,
    /// Connections that were given up.
    pub(crate) failures: Tally,
}

impl<M: Machine> Core<M> {
    pub(crate) fn snapshot(&self) -> Snapshot<M::Stats> {
        Snapshot {
            machine: self.machine.stats(),
            capture: self.tap.as_ref().and_then(Tap::progress),
            capture_lost: self.tap.as_ref().map_or(0, |tap| tap.lost),
            peer_full: self.peer_full,
            unroutable: self.unroutable,
            queue_full: self.queue_full,
            turned_away: self.turned_away,
            failures: self.failures.clone(),
            ..Snapshot::default()
        }
    }
}

/// How long a reader of counters waits for a busy engine: a round takes far less.
const GLANCE: Duration = Duration::from_millis(100);

/// Counters of a role at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot<S> {
    /// The machine's.
    pub machine: S,
    /// The capture's, where there is one.
    pub capture: Option<Progress>,
    /// Rows a capture that could not keep up has lost.
    pub capture_lost: u64,
    /// Sends refused because a peer's outbox was full.
    pub peer_full: u64,
    /// Sends to peers that are not connected.
    pub unroutable: u64,
    /// Events that the user's queue had no room for, where they may be dropped.
    pub queue_full: u64,
    /// Connections refused for want of room.
    pub turned_away: u64,
    /// Connections that were given up, by reason, if the transport knows it.
    pub failures: Tally,
    /// Events that wait for the user.
    pub queued: Backlog,
    /// Notices the user was too slow for.
    pub lost_notices: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under the lock leaves counters and queues consistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The value in a forked child, where the thread that would release a lock does not exist.
fn remembered<T: Clone + Default>(mutex: &Mutex<T>) -> T {
    match mutex.try_lock() {
        Ok(value) => value.clone(),
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().clone(),
        Err(TryLockError::WouldBlock) => T::default(),
    }
}

impl<M: Machine> Shared<M> {
    pub(crate) fn new(bounds: Bounds, sheds: Option<Bounds>) -> std::io::Result<Self> {
        Ok(Self {
            bounds,
            unread: sheds.unwrap_or(bounds),
            sheds: sheds.is_some(),
            inbox: Mutex::default(),
            outbox: Mutex::new(Outbox {
                verbs: vec![],
                orders: vec![],
                handed: 0,
                pending: Backlog::default(),
                backlog: Backlog::default(),
                has_unsent: false,
                is_wanted: false,
            }),
            core: Mutex::default(),
            snapshot: Mutex::default(),
            settled: Mutex::default(),
            settling: Condvar::new(),
            flushed: AtomicU64::new(0),
            endpoints: Mutex::new(vec![]),
            troubles: Mutex::default(),
            has_troubles: AtomicBool::new(false),
            end: Mutex::new(None),
            over: AtomicBool::new(false),
            unsent: AtomicBool::new(false),
            pressed: AtomicBool::new(false),
            progress: AtomicU64::new(0),
            awaited: AtomicU64::new(u64::MAX),
            events: Signal::new()?,
            user: Signal::new()?,
            engine: Signal::new()?,
        })
    }

    // The engine's side.

    /// Hands a burst of events to the user; gives the room left.
    pub(crate) fn publish(&self, burst: &mut Vec<M::Event>) -> Backlog {
        let mut inbox = lock(&self.inbox);
        inbox.push(burst);
        self.room_in(&inbox)
    }

    /// The room left for events.
    pub(crate) fn room(&self) -> Backlog {
        self.room_in(&lock(&self.inbox))
    }

    fn room_in(&self, inbox: &Inbox<M::Event>) -> Backlog {
        // Where events may be dropped, those that a reader has taken are with the user.
        let waiting = if self.sheds { inbox.queued } else { waiting(inbox) };
        if !self.unread.hold(waiting) {
            self.pressed.store(true, Ordering::SeqCst);
            return Backlog::default();
        }
        Backlog {
            messages: self.unread.messages - waiting.messages,
            bytes: self.unread.bytes.saturating_sub(waiting.bytes).max(1),
        }
    }

    /// Gives how many have been handed over so far, these included: [`settle`](Self::settle) is called with it.
    pub(crate) fn take_outbox(&self, verbs: &mut Vec<M::Verb>, orders: &mut Vec<Order>) -> u64 {
        let mut outbox = lock(&self.outbox);
        mem::swap(&mut outbox.verbs, verbs);
        mem::swap(&mut outbox.orders, orders);
        outbox.backlog.messages += outbox.pending.messages;
        outbox.backlog.bytes += outbox.pending.bytes;
        outbox.pending = Backlog::default();
        outbox.handed
    }

    /// Reports that the machine has had so many verbs and orders.
    pub(crate) fn settle(&self, handed: u64) {
        let is_awaited = {
            let mut settled = lock(&self.settled);
            settled.handed = handed;
            settled.waiting > 0
        };
        // No system call where no thread waits.
        if is_awaited {
            self.settling.notify_all();
        }
    }

    pub(crate) fn is_outbox_empty(&self) -> bool {
        let outbox = lock(&self.outbox);
        outbox.verbs.is_empty() && outbox.orders.is_empty()
    }

    /// Reports what the machine still holds, and whether the transport does. True when there is plenty of room for a
    /// user that found none, or nothing is left.
    pub(crate) fn set_backlog(&self, backlog: Backlog, has_unsent: bool) -> bool {
        let mut outbox = lock(&self.outbox);
        let was_drained = outbox.is_drained();
        (outbox.backlog, outbox.has_unsent) = (backlog, has_unsent);
        let is_relieved = outbox.is_wanted && self.bounds.half_empty(outbox.waiting());
        outbox.is_wanted &= !is_relieved;
        is_relieved || (!was_drained && outbox.is_drained())
    }

    /// Sets where counters are read: nowhere once the engine is over.
    pub(crate) fn show(&self, core: Option<&Arc<parking_lot::Mutex<Core<M>>>>) {
        *lock(&self.core) = core.map(Arc::downgrade).unwrap_or_default();
    }

    /// Shows these counters from now on: the engine is ending, or has ended.
    pub(crate) fn remember(&self, snapshot: Snapshot<M::Stats>) {
        let mut last = lock(&self.snapshot);
        self.show(None);
        *last = snapshot;
    }

    pub(crate) fn set_endpoints(&self, endpoints: Vec<String>) {
        *lock(&self.endpoints) = endpoints;
    }

    pub(crate) fn trouble(&self, trouble: Trouble) {
        lock(&self.troubles).push_back(trouble);
        self.has_troubles.store(true, Ordering::SeqCst);
        self.events.notify();
    }

    pub(crate) fn finish(&self, end: End) {
        lock(&self.end).get_or_insert(end);
        self.over.store(true, Ordering::SeqCst);
        self.settle(u64::MAX);
        self.events.latch();
        self.user.latch();
    }

    // The user's side.

    /// Moves the first burst to `events`, which the user has emptied. False when the role is over and nothing is left.
    pub(crate) fn read(&self, events: &mut VecDeque<M::Event>) -> bool {
        let over = self.over.load(Ordering::SeqCst);
        let relieved = {
            let mut inbox = lock(&self.inbox);
            inbox.pop(events);
            self.unread.half_empty(waiting(&inbox))
        };
        if relieved && self.pressed.swap(false, Ordering::SeqCst) {
            self.engine.notify();
        }
        !(over && events.is_empty())
    }

    pub(crate) fn bursts(&self) -> usize {
        lock(&self.inbox).bursts.len()
    }

    pub(crate) fn has_events(&self) -> bool {
        self.has_troubles.load(Ordering::SeqCst) || !lock(&self.inbox).bursts.is_empty()
    }

    pub(crate) fn read_trouble(&self) -> Option<Trouble> {
        if !self.has_troubles.load(Ordering::SeqCst) {
            return None;
        }
        let mut troubles = lock(&self.troubles);
        let trouble = troubles.pop_front();
        self.has_troubles.store(!troubles.is_empty(), Ordering::SeqCst);
        trouble
    }

    pub(crate) fn post(&self, verb: M::Verb, bytes: usize) -> Offered<M::Verb> {
        if self.over.load(Ordering::SeqCst) {
            return Offered::Over(verb);
        }
        {
            let mut outbox = lock(&self.outbox);
            if !self.bounds.hold(outbox.waiting()) {
                outbox.is_wanted = true;
                return Offered::Full(verb);
            }
            outbox.verbs.push(verb);
            outbox.handed += 1;
            outbox.pending.messages += 1;
            outbox.pending.bytes += bytes;
        }
        Offered::Taken
    }

    /// Hands over a verb that is no message and so never waits for room.
    pub(crate) fn ask(&self, verb: M::Verb) {
        {
            let mut outbox = lock(&self.outbox);
            outbox.verbs.push(verb);
            outbox.handed += 1;
        }
        self.engine.notify();
    }

    pub(crate) fn order(&self, order: Order) {
        {
            let mut outbox = lock(&self.outbox);
            outbox.orders.push(order);
            outbox.handed += 1;
        }
        self.engine.notify();
    }

    pub(crate) fn has_room(&self) -> bool {
        let mut outbox = lock(&self.outbox);
        let has_room = self.bounds.hold(outbox.waiting());
        outbox.is_wanted |= !has_room;
        has_room
    }

    pub(crate) fn is_drained(&self) -> bool {
        lock(&self.outbox).is_drained()
    }

    /// Counters as they are now; those of a role that is over, as they were at its end. What was handed over before
    /// counts: an engine that is awake takes it in within a round.
    pub(crate) fn counters(&self) -> Snapshot<M::Stats> {
        let handed = lock(&self.outbox).handed;
        let core = lock(&self.core).upgrade();
        // One time for both waits.
        let until = Instant::now() + GLANCE;
        if core.is_some() {
            let mut settled = lock(&self.settled);
            settled.waiting += 1;
            let waited = self.settling.wait_timeout_while(settled, GLANCE, |settled| settled.handed < handed);
            waited.unwrap_or_else(PoisonError::into_inner).0.waiting -= 1;
        }
        let now = core.as_ref().and_then(|core| core.try_lock_until(until)).map(|core| core.snapshot());
        let mut counters = {
            let mut last = lock(&self.snapshot);
            // Unless the engine has shown its last counters meanwhile.
            if let Some(now) = now.filter(|_| lock(&self.core).strong_count() > 0) {
                *last = now;
            }
            last.clone()
        };
        let inbox = lock(&self.inbox);
        (counters.queued, counters.lost_notices) = (inbox.queued, inbox.lost_notices);
        counters
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        lock(&self.endpoints).clone()
    }

    /// The endpoints at the time of the fork, for a child: none if a thread of the parent was using them.
    pub(crate) fn remembered_endpoints(&self) -> Vec<String> {
        remembered(&self.endpoints)
    }

    /// The counters at the time of the fork, for a child; the last ones read if the engine was working.
    pub(crate) fn remembered_counters(&self) -> Snapshot<M::Stats> {
        let core = remembered(&self.core).upgrade();
        let then = core.as_ref().and_then(|core| core.try_lock()).map(|core| core.snapshot());
        then.unwrap_or_else(|| remembered(&self.snapshot))
    }

    pub(crate) fn end(&self) -> Option<End> {
        lock(&self.end).clone()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

fn waiting<E>(inbox: &Inbox<E>) -> Backlog {
    sum(inbox.queued, inbox.taken)
}

pub(crate) fn sum(one: Backlog, other: Backlog) -> Backlog {
    Backlog { messages: one.messages + other.messages, bytes: one.bytes + other.bytes }
}

fn less(one: Backlog, other: Backlog) -> Backlog {
    Backlog { messages: one.messages - other.messages, bytes: one.bytes - other.bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    struct Notice(Weight);

    impl Event for Notice {
        fn weight(&self) -> Weight {
            self.0
        }
    }

    #[test]
    fn loses_the_notices_there_is_no_room_for_and_nothing_else() {
        let mut inbox = Inbox::default();
        inbox.push(&mut (0..NOTICES).map(|_| Notice(Weight::Notice(0))).collect());
        inbox.push(&mut vec![Notice(Weight::Notice(0))]);
        inbox.push(&mut vec![Notice(Weight::Notice(0)), Notice(Weight::Lossless(7))]);
        assert_eq!((inbox.notices.messages, inbox.lost_notices), (NOTICES, 2));
        assert_eq!(inbox.queued, Backlog { messages: 1, bytes: 7 });
        let mut events = VecDeque::new();
        inbox.pop(&mut events);
        assert_eq!(events.drain(..).count(), NOTICES);
        inbox.pop(&mut events);
        assert_eq!(events, [Notice(Weight::Lossless(7))]);
        assert_eq!((inbox.queued, inbox.taken), (Backlog::default(), Backlog { messages: 1, bytes: 7 }));
    }

    #[test]
    fn puts_small_bursts_together() {
        let mut inbox = Inbox::default();
        for bytes in 0..=BURST {
            inbox.push(&mut vec![Notice(Weight::Lossless(bytes))]);
        }
        let mut events = VecDeque::new();
        inbox.pop(&mut events);
        assert_eq!(events.len(), BURST);
        assert_eq!(inbox.queued, Backlog { messages: 1, bytes: BURST });
    }
}
