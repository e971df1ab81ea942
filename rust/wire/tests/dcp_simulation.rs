//! Broker, workers and clients of DCP under a clock that is a number, over a network that is a queue: it delays, loses,
//! doubles and reorders what it is told to, and its peers crash.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use trunkline_wire::dcp::{
    Asking, Back, Broker, BrokerSettings, CallId, Client, ClientEvent, ClientSettings, ClientVerb, Front, JobId,
    Worker, WorkerEvent, WorkerSettings, WorkerVerb,
};
use trunkline_wire::{Frames, Incoming, Machine, Nanos, Output, SocketEvent, Unsent};

/// More steps than any of these worlds needs.
const STEPS: usize = 200_000;

const MILLISECOND: Duration = Duration::from_millis(1);

/// What the network does to messages, in percent.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    lose: u64,
    double: u64,
    reorder: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum To {
    Broker,
    Worker(usize),
    Client(usize),
}

/// Something that happens at its time.
enum Happens {
    Arrives { to: To, from: Bytes, frames: Frames },
    Done { worker: usize, born: u64, job: JobId, frames: Frames },
    Asks { client: usize, call: u64, retries: u32 },
    Crashes(To),
}

struct Node<M> {
    address: Bytes,
    /// Distinguishes a crashed one from who came in its place.
    born: u64,
    machine: M,
}

/// A broker, its peers and all that is between them.
struct World {
    seed: u64,
    random: u64,
    now: Nanos,
    faults: Faults,
    concurrency: usize,
    requeue: bool,
    births: u64,
    broker: Broker,
    workers: Vec<Node<Worker>>,
    clients: Vec<Node<Client>>,
    agenda: BTreeMap<(Nanos, u64), Happens>,
    entries: u64,
    /// When the last message from one to another arrives, where they stay in order.
    last: HashMap<(Bytes, To), Nanos>,
    /// How each call ended, and how often.
    replies: HashMap<(usize, u64), u32>,
    timeouts: HashMap<(usize, u64), u32>,
    most_held: u64,
}

impl World {
    fn new(seed: u64, workers: usize, clients: usize, concurrency: usize, faults: Faults, requeue: bool) -> Self {
        let mut world = Self {
            seed,
            random: seed | 1,
            now: Nanos(0),
            faults,
            concurrency,
            requeue,
            births: 0,
            broker: Self::broker(requeue),
            workers: vec![],
            clients: vec![],
            agenda: BTreeMap::new(),
            entries: 0,
            last: HashMap::new(),
            replies: HashMap::new(),
            timeouts: HashMap::new(),
            most_held: 0,
        };
        for number in 0..workers {
            let worker = world.worker(number);
            world.workers.push(worker);
        }
        for _ in 0..clients {
            let address = world.address("c");
            let machine = Client::new(ClientSettings::default(), [1; 32]);
            world.clients.push(Node { address, born: world.births, machine });
        }
        world
    }

    fn broker(requeue: bool) -> Broker {
        Broker::new(BrokerSettings { requeue, ..BrokerSettings::default() })
    }

    fn worker(&mut self, number: usize) -> Node<Worker> {
        let address = self.address("w");
        let settings = WorkerSettings {
            service: Bytes::from(["a", "b"][number % 2]),
            connect: vec!["broker".into()],
            concurrency: self.concurrency,
            ..WorkerSettings::default()
        };
        Node { address, born: self.births, machine: Worker::new(self.now, settings, [2; 32]) }
    }

    fn address(&mut self, of: &str) -> Bytes {
        self.births += 1;
        Bytes::from(format!("{of}{}", self.births))
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    fn plan(&mut self, after: Duration, happens: Happens) {
        self.entries += 1;
        self.agenda.insert((self.now + after, self.entries), happens);
    }

    fn post(&mut self, from: &Bytes, to: To, frames: &Frames) {
        let copies = match self.below(100) {
            dice if dice < self.faults.lose => 0,
            dice if dice < self.faults.lose + self.faults.double => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let mut at = self.now + Duration::from_micros(100 + self.below(5000));
            if !self.faults.reorder {
                let last = self.last.entry((from.clone(), to)).or_default();
                at = at.max(*last);
                *last = at;
            }
            self.plan(at - self.now, Happens::Arrives { to, from: from.clone(), frames: frames.clone() });
        }
    }

    /// Who has this address now.
    fn find(&self, address: &Bytes) -> Option<To> {
        let worker = self.workers.iter().position(|node| node.address == *address).map(To::Worker);
        worker.or_else(|| self.clients.iter().position(|node| node.address == *address).map(To::Client))
    }

    /// Carries out what the machines want, until they want nothing.
    fn settle(&mut self) {
        while let Some(output) = self.broker.poll_output() {
            let Output::Send { id, to: Some(to), frames, .. } = output else { continue };
            let found = self.find(&to);
            if let Some(to) = found {
                self.post(&Bytes::from_static(b"broker"), to, &frames);
            }
            if let Some(id) = id {
                let unsent = SocketEvent::Unsent(id, Unsent::Unreachable);
                self.broker.handle_socket(self.now, Front, found.map_or(unsent, |_| SocketEvent::Sent(id)));
            }
        }
        for number in 0..self.workers.len() {
            while let Some(output) = self.workers[number].machine.poll_output() {
                let Output::Send { id: Some(id), frames, .. } = output else { continue };
                let address = self.workers[number].address.clone();
                self.post(&address, To::Broker, &frames);
                self.workers[number].machine.handle_socket(self.now, Back, SocketEvent::Sent(id));
            }
            self.most_held = self.most_held.max(self.workers[number].machine.stats().held);
            while let Some(event) = self.workers[number].machine.poll_event() {
                if let WorkerEvent::Request { job, frames, .. } = event {
                    let (born, after) = (self.workers[number].born, Duration::from_micros(self.below(20_000)));
                    self.plan(after, Happens::Done { worker: number, born, job, frames });
                }
            }
        }
        for number in 0..self.clients.len() {
            while let Some(output) = self.clients[number].machine.poll_output() {
                let Output::Send { id: Some(id), frames, .. } = output else { continue };
                let address = self.clients[number].address.clone();
                self.post(&address, To::Broker, &frames);
                self.clients[number].machine.handle_socket(self.now, Asking, SocketEvent::Sent(id));
            }
            while let Some(event) = self.clients[number].machine.poll_event() {
                match event {
                    ClientEvent::Reply { call, frames, body } => {
                        let expected = [Bytes::from(call.0.to_string())];
                        assert_eq!(frames[body.data()], expected, "seed {}", self.seed);
                        assert_eq!(frames[body.metadata], expected, "seed {}", self.seed);
                        *self.replies.entry((number, call.0)).or_default() += 1;
                    }
                    ClientEvent::TimedOut(call) => *self.timeouts.entry((number, call.0)).or_default() += 1,
                    ClientEvent::Connected(_) | ClientEvent::Disconnected(_) | ClientEvent::Failed { .. } => {}
                    ClientEvent::Dropped { .. } | ClientEvent::Unanswered(_) => panic!("seed {}: {event:?}", self.seed),
                }
            }
        }
        while self.broker.poll_event().is_some() {}
    }

    /// To the next moment at which anything happens; false when nothing ever will but heartbeats.
    fn step(&mut self, calls: usize) -> bool {
        self.settle();
        if self.replies.len() + self.timeouts.len() == calls && !self.has_plans() {
            return false;
        }
        let machines = self.workers.iter().filter_map(|node| node.machine.poll_timeout());
        let machines = machines.chain(self.clients.iter().filter_map(|node| node.machine.poll_timeout()));
        let machines = machines.chain(self.broker.poll_timeout()).min();
        let planned = self.agenda.first_key_value().map(|((at, _), _)| *at);
        let Some(next) = machines.into_iter().chain(planned).min() else { return false };
        self.now = self.now.max(next);
        while let Some(entry) = self.agenda.first_entry()
            && entry.key().0 <= self.now
        {
            let happens = entry.remove();
            self.happen(happens);
            self.settle();
        }
        self.broker.handle_timeout(self.now);
        self.workers.iter_mut().for_each(|node| node.machine.handle_timeout(self.now));
        self.clients.iter_mut().for_each(|node| node.machine.handle_timeout(self.now));
        true
    }

    fn has_plans(&self) -> bool {
        self.agenda.values().any(|happens| matches!(happens, Happens::Asks { .. } | Happens::Crashes(_)))
    }

    fn happen(&mut self, happens: Happens) {
        let now = self.now;
        match happens {
            Happens::Arrives { to: To::Broker, from, frames } => {
                // A connection ends with its peer, and what was on its way with it.
                if self.find(&from).is_some() {
                    let incoming = Incoming { socket: Front, peer: Some(from), user_id: None, frames };
                    assert_eq!(self.broker.handle_message(now, incoming), None, "seed {}", self.seed);
                }
            }
            Happens::Arrives { to: To::Worker(number), frames, .. } => {
                let incoming = Incoming { socket: Back, peer: None, user_id: None, frames };
                self.workers[number].machine.handle_message(now, incoming);
            }
            Happens::Arrives { to: To::Client(number), frames, .. } => {
                let incoming = Incoming { socket: Asking, peer: None, user_id: None, frames };
                assert_eq!(self.clients[number].machine.handle_message(now, incoming), None, "seed {}", self.seed);
            }
            Happens::Done { worker, born, job, frames } => {
                if self.workers[worker].born != born {
                    return;
                }
                let data: Vec<_> = frames.last().cloned().into_iter().collect();
                // Some jobs of `a` are finished by `b`.
                let verb = if worker % 2 == 0 && self.workers.len() > 1 && self.below(5) == 0 {
                    WorkerVerb::Forward { job, service: Bytes::from("b"), data }
                } else {
                    WorkerVerb::Reply { job, data }
                };
                self.workers[worker].machine.handle_verb(now, verb);
            }
            Happens::Asks { client, call, retries } => {
                let text = Bytes::from(call.to_string());
                let service = if self.workers.len() > 1 && call.is_multiple_of(2) { "b" } else { "a" };
                let verb = ClientVerb::Request {
                    call: CallId(call),
                    service: Bytes::from(service),
                    metadata: vec![text.clone()],
                    data: vec![text],
                    timeout: None,
                    retries,
                };
                self.clients[client].machine.handle_verb(now, verb);
            }
            Happens::Crashes(To::Broker) => {
                self.broker = Self::broker(self.requeue);
                self.agenda.retain(|_, happens| !matches!(happens, Happens::Arrives { to: To::Broker, .. }));
            }
            Happens::Crashes(To::Worker(number)) => {
                self.agenda.retain(
                    |_, happens| !matches!(happens, Happens::Arrives { to: To::Worker(to), .. } if *to == number),
                );
                self.workers[number] = self.worker(number);
            }
            Happens::Crashes(To::Client(_)) => {}
        }
    }

    /// Lets every client ask so often within a second, and runs until all calls are over.
    fn run(&mut self, asks: u64, retries: u32) {
        for client in 0..self.clients.len() {
            for call in 0..asks {
                let after = Duration::from_micros(self.below(1_000_000));
                self.plan(after, Happens::Asks { client, call, retries });
            }
        }
        let calls = self.clients.len() * usize::try_from(asks).unwrap_or(0);
        for _ in 0..STEPS {
            if !self.step(calls) {
                self.check(calls);
                return;
            }
        }
        panic!("seed {}: no end after {STEPS} steps", self.seed);
    }

    /// Every call ended once, in a reply or a time-out.
    fn check(&self, calls: usize) {
        let seed = self.seed;
        assert_eq!(self.replies.len() + self.timeouts.len(), calls, "seed {seed}");
        assert!(self.replies.values().chain(self.timeouts.values()).all(|times| *times == 1), "seed {seed}");
        assert!(self.replies.keys().all(|call| !self.timeouts.contains_key(call)), "seed {seed}");
        for client in &self.clients {
            assert_eq!(client.machine.stats().in_flight, 0, "seed {seed}");
        }
    }
}

// req: DCP-01
#[test]
fn none_one_and_fifty_of_each() {
    for (workers, clients) in [(0, 1), (1, 0), (1, 1), (50, 50)] {
        let mut world = World::new(7, workers, clients, 2, Faults::default(), false);
        world.run(20, 0);
        assert_eq!(world.timeouts.len(), if workers == 0 { 20 } else { 0 });
    }
}

// req: DCP-31, DCP-42
#[test]
fn a_broker_that_comes_back_serves_those_who_try_again() {
    for seed in 1..20 {
        let mut world = World::new(seed, 4, 4, 1, Faults::default(), false);
        world.plan(MILLISECOND * 500, Happens::Crashes(To::Broker));
        world.run(100, 3);
        assert!(world.timeouts.is_empty(), "seed {seed}: {} calls timed out", world.timeouts.len());
    }
}

// req: DCP-33
#[test]
fn workers_are_kept_busy_and_hold_one_too_many_at_most() {
    for concurrency in [1, 2, 3, 8, 64] {
        let mut world = World::new(3, 2, 2, concurrency, Faults::default(), false);
        world.run(150 * concurrency as u64, 0);
        assert_eq!(world.timeouts.len(), 0);
        // The jobs of one worker take 1.8 s if it never waits.
        assert!(world.now < Nanos(0) + MILLISECOND * 3600, "{:?} at concurrency {concurrency}", world.now);
        let (held, limit) = (world.most_held, concurrency as u64);
        assert!(held <= limit + 1, "{held} requests held at concurrency {limit}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    // req: DCP-28, DCP-34
    #[test]
    fn without_faults_every_call_has_its_reply(seed: u64, workers in 1usize..6, clients in 1usize..6, concurrency in 1usize..5) {
        let mut world = World::new(seed, workers, clients, concurrency, Faults::default(), false);
        world.run(50, 0);
        prop_assert_eq!(world.timeouts.len(), 0);
    }

    // req: DCP-30, DCP-42, DCP-44
    #[test]
    fn whatever_happens_every_call_ends_once(seed: u64, lose in 0u64..30, double in 0u64..30, reorder: bool, requeue: bool, concurrency in 1usize..5, crashes in prop::collection::vec((0u32..8000, 0usize..5), 0..6)) {
        let mut world = World::new(seed, 4, 3, concurrency, Faults { lose, double, reorder }, requeue);
        for (at, who) in crashes {
            let who = if who == 4 { To::Broker } else { To::Worker(who) };
            world.plan(MILLISECOND * at, Happens::Crashes(who));
        }
        world.run(50, 2);
    }

    // req: DCP-42
    #[test]
    fn with_requeue_a_crash_of_a_worker_loses_nothing(seed: u64, crashes in prop::collection::vec((0u32..1000, 0usize..4), 1..4)) {
        let mut world = World::new(seed, 4, 3, 2, Faults::default(), true);
        for (at, who) in crashes {
            world.plan(MILLISECOND * at, Happens::Crashes(To::Worker(who)));
        }
        world.run(50, 5);
        prop_assert_eq!(world.timeouts.len(), 0);
        prop_assert_eq!(world.broker.stats().lost, 0);
    }
}
