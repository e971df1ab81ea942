//! The user's handle of a role in a simulation.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use trunkline_wire::simulation::{Node, Simulation};
use trunkline_wire::{Event, Machine, Nanos, Weight};

use crate::handle::{Hold, Running};
use crate::shared::{Bounds, End, Offered, Snapshot};
use crate::signal::Signal;
use crate::sink::Sink;
use crate::trouble::Trouble;

/// The machines of a simulation, the network between them and the clock.
pub type World = Mutex<Simulation>;

/// A role in a simulation, whatever its machine.
pub trait Member: Send + Sync {
    /// Its number in the simulation.
    fn node(&self) -> Node;

    /// Moves the machine's next event to those to deliver.
    fn fetch(&self, simulation: &mut Simulation);

    /// Hands the oldest event that was fetched to the user.
    fn deliver(&self);

    /// Ends it without notice; what it has received and not handed out is lost.
    fn crash(&self);

    /// Starts it again, without its former state.
    fn restart(&self);
}

/// A role in a simulation: a verb is carried out at once, and events come when the clock advances.
///
/// It has no thread, no capture, and no bounds of what waits for the user.
pub struct Simulated<M: Machine> {
    name: String,
    world: Arc<World>,
    node: Node,
    sink: Mutex<Box<dyn Sink<M>>>,
    bounds: Bounds,
    inbox: Mutex<Inbox<M::Event>>,
    lives: AtomicU64,
    flushes: AtomicU64,
    closing: AtomicBool,
    /// Nothing waits for it: the clock is advanced instead.
    signal: Signal,
}

struct Inbox<E> {
    /// Not delivered yet.
    fetched: VecDeque<E>,
    /// Notices are read before messages, as none may wait for the other's reader.
    notices: VecDeque<E>,
    messages: VecDeque<E>,
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in a machine ends the test that simulates it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M: Machine + Send + 'static> Simulated<M> {
    /// Adds a role to a simulation, by this name among its peers; the machine is made at the start and at each restart,
    /// from the time and a seed. It takes verbs while it holds less than `bounds`.
    ///
    /// # Errors
    /// When the operating system gives no descriptor.
    pub fn start(
        world: &Arc<World>,
        (peer, name): (&'static str, &str),
        make: impl Fn(Nanos, [u8; 32]) -> M + Send + 'static,
        sink: impl Sink<M>,
        bounds: Bounds,
    ) -> std::io::Result<Self> {
        let signal = Signal::new()?;
        let node = lock(world).add(peer, make);
        Ok(Self {
            name: name.to_owned(),
            world: Arc::clone(world),
            node,
            sink: Mutex::new(Box::new(sink)),
            bounds,
            inbox: Mutex::new(Inbox { fetched: VecDeque::new(), notices: VecDeque::new(), messages: VecDeque::new() }),
            lives: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            signal,
        })
    }

    /// Its address at the peer that it dialled first, while it is connected.
    pub fn address(&self) -> Option<Bytes> {
        lock(&self.world).address(self.node).cloned()
    }

    /// What its machine says; the last of it once the role is over.
    fn machine<T: Default>(&self, look: impl FnOnce(&M) -> T) -> T {
        lock(&self.world).machine::<M>(self.node).map(look).unwrap_or_default()
    }
}

impl<M: Machine + Send + 'static> Member for Simulated<M> {
    fn node(&self) -> Node {
        self.node
    }

    fn fetch(&self, simulation: &mut Simulation) {
        lock(&self.inbox).fetched.extend(simulation.event::<M>(self.node));
    }

    fn deliver(&self) {
        let Some(event) = lock(&self.inbox).fetched.pop_front() else { return };
        let Some(event) = lock(&self.sink).take(event) else { return };
        let mut inbox = lock(&self.inbox);
        match event.weight() {
            Weight::Notice(_) => inbox.notices.push_back(event),
            Weight::Lossless(_) => inbox.messages.push_back(event),
        }
    }

    fn crash(&self) {
        lock(&self.world).crash(self.node);
        lock(&self.inbox).messages.clear();
        lock(&self.sink).lose();
    }

    fn restart(&self) {
        self.crash();
        self.closing.store(false, Ordering::SeqCst);
        self.lives.fetch_add(1, Ordering::SeqCst);
        lock(&self.world).restart(self.node);
    }
}

impl<M: Machine + Send + 'static> Hold<M> for Simulated<M> {
    /// One event at a time, so that none leaves with a crash.
    fn read(&self, events: &mut VecDeque<M::Event>) -> bool {
        let is_over = self.is_over();
        let mut inbox = lock(&self.inbox);
        let event = inbox.notices.pop_front().or_else(|| inbox.messages.pop_front());
        let is_any = event.is_some();
        events.extend(event);
        is_any || !is_over
    }

    fn bursts(&self) -> usize {
        let inbox = lock(&self.inbox);
        inbox.notices.len() + inbox.messages.len()
    }

    fn has_notice(&self) -> bool {
        !lock(&self.inbox).notices.is_empty()
    }

    fn life(&self) -> u64 {
        self.lives.load(Ordering::SeqCst)
    }

    fn read_trouble(&self) -> Option<Trouble> {
        None
    }

    fn post(&self, verb: M::Verb, _bytes: usize) -> Offered<M::Verb> {
        if self.is_over() {
            Offered::Over(verb)
        } else if self.has_room() {
            self.ask(verb);
            Offered::Taken
        } else {
            Offered::Full(verb)
        }
    }

    fn ask(&self, verb: M::Verb) {
        lock(&self.world).ask::<M>(self.node, verb);
    }

    fn wake(&self) {}

    fn stats(&self) -> Snapshot<M::Stats> {
        Snapshot { machine: self.machine(M::stats), ..Snapshot::default() }
    }
}

impl<M: Machine + Send + 'static> Running for Simulated<M> {
    fn name(&self) -> &str {
        &self.name
    }

    fn close(&self, grace: Duration) {
        self.closing.store(true, Ordering::SeqCst);
        lock(&self.world).close(self.node, grace);
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    fn flush(&self, _publish: bool) -> u64 {
        self.flushes.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn flushed(&self, _ticket: u64) -> bool {
        true
    }

    fn progress(&self) -> u64 {
        self.machine(M::progress)
    }

    fn await_progress(&self, _count: u64) {}

    fn has_room(&self) -> bool {
        self.bounds.hold(self.machine(M::backlog))
    }

    fn is_drained(&self) -> bool {
        self.machine(M::backlog).messages == 0
    }

    fn has_events(&self) -> bool {
        self.bursts() > 0
    }

    fn is_over(&self) -> bool {
        !lock(&self.world).is_up(self.node)
    }

    fn end(&self) -> Option<End> {
        self.is_over().then_some(End::Closed)
    }

    fn is_unsent(&self) -> bool {
        false
    }

    fn endpoints(&self) -> Vec<String> {
        lock(&self.world).endpoints(self.node)
    }

    fn events(&self) -> &Signal {
        &self.signal
    }

    fn changes(&self) -> &Signal {
        &self.signal
    }

    fn grace(&self) -> Duration {
        Duration::ZERO
    }

    fn is_ours(&self) -> bool {
        true
    }

    /// The role is over: nothing answers its calls any more.
    fn join(&self) {
        lock(&self.sink).lose();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use trunkline_wire::CallId;
    use trunkline_wire::dcp::{Client, ClientSettings, ClientVerb, Outcome};
    use trunkline_wire::simulation::Network;

    use super::*;
    use crate::replies::{Answering, Replies, Slot};

    fn request(call: CallId) -> ClientVerb {
        let (service, data) = (Bytes::from_static(b"a"), vec![Bytes::new()]);
        ClientVerb::Request { call, service, metadata: vec![], data, timeout: None, retries: 0 }
    }

    #[test]
    fn a_crash_ends_calls_and_a_restart_takes_more() {
        let world = Arc::new(Mutex::new(Simulation::new(1, Network::default(), 100)));
        let replies = Arc::new(Replies::new(Bounds::default()).expect("there are descriptors"));
        let make = |_, seed| Client::new(ClientSettings::default(), seed);
        let sink = Answering::new(Arc::clone(&replies));
        let name = ("client", "trunkline-dcp-client");
        let client = Simulated::start(&world, name, make, sink, Bounds::UNLIMITED).expect("a descriptor");
        let slot = Arc::new(Slot::default());
        replies.expect(CallId(0), Some(Arc::clone(&slot)));
        assert!(matches!(client.offer(request(CallId(0)), 0), Offered::Taken));
        assert_eq!((client.stats().machine.in_flight, client.life(), client.end()), (1, 0, None));
        client.crash();
        assert_eq!(slot.wait(Duration::ZERO), Some(Outcome::Unanswered));
        assert_eq!(client.end(), Some(End::Closed));
        assert!(matches!(client.offer(request(CallId(1)), 0), Offered::Over(_)));
        client.restart();
        assert!(replies.expect(CallId(1), None));
        assert!(matches!(client.offer(request(CallId(1)), 0), Offered::Taken));
        assert_eq!((client.stats().machine.in_flight, client.life()), (1, 1));
        assert!(replies.is_empty());
    }
}
