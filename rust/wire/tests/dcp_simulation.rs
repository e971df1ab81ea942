//! Broker, workers and clients of DCP in simulations, with faults of the network and crashes.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use trunkline_wire::dcp::{
    Broker, BrokerEvent, BrokerSettings, BrokerStats, Client, ClientEvent, ClientSettings, ClientVerb, JobId, Outcome,
    Worker, WorkerEvent, WorkerSettings, WorkerVerb, Working, WorkingEvent, WorkingVerb,
};
use trunkline_wire::simulation::{Network, Node, Notice, Simulation};
use trunkline_wire::{CallId, Dropped, Frames, Machine, Nanos};

/// More steps than any of these tests needs.
const STEPS: u64 = 200_000;

const MILLISECOND: Duration = Duration::from_millis(1);

/// What the network does to messages, in percent.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    lose: u32,
    double: u32,
    reorder: bool,
}

impl Faults {
    fn network(self) -> Network {
        Network {
            latency: Duration::from_micros(100),
            jitter: Duration::from_millis(5),
            loss: f64::from(self.lose) / 100.0,
            duplication: f64::from(self.double) / 100.0,
            reorder: self.reorder,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Who {
    Broker,
    Worker(usize),
}

/// A scheduled event.
enum Plan {
    Done {
        worker: Node,
        life: u32,
        job: JobId,
        frames: Frames,
    },
    Asks {
        client: Node,
        call: u64,
        retries: u32,
    },
    Crashes(Who),
    /// A worker is closed, and another one takes its place.
    Stops(usize),
    Starts(usize),
}

/// A simulation, and what its users do in it.
struct World {
    seed: u64,
    random: u64,
    simulation: Simulation,
    broker: Node,
    workers: Vec<Node>,
    clients: Vec<Node>,
    /// How often each has crashed.
    lives: HashMap<Node, u32>,
    stopping: HashSet<usize>,
    plans: HashMap<u64, Plan>,
    tokens: u64,
    /// How each call ended, and how often.
    replies: HashMap<(Node, u64), u32>,
    timeouts: HashMap<(Node, u64), u32>,
    most_held: u64,
}

impl World {
    fn new(seed: u64, workers: usize, clients: usize, concurrency: usize, faults: Faults, requeue: bool) -> Self {
        let mut simulation = Simulation::new(seed, faults.network(), STEPS);
        let endpoint = || vec!["tcp://broker:1".to_owned()];
        let broker = simulation.add("broker", move |_, _| {
            Broker::new(BrokerSettings { bind: endpoint(), requeue, ..BrokerSettings::default() })
        });
        let worker = |number| {
            let service = Bytes::from(["a", "b"][number % 2]);
            let settings = WorkerSettings { service, connect: endpoint(), concurrency, ..WorkerSettings::default() };
            move |now, seed| {
                let client = Client::new(ClientSettings::default(), seed);
                Working::new(Worker::new(now, settings.clone(), seed), client)
            }
        };
        let client =
            move |_, seed| Client::new(ClientSettings { connect: endpoint(), ..ClientSettings::default() }, seed);
        let workers = (0..workers).map(|number| simulation.add("worker", worker(number))).collect();
        let clients = (0..clients).map(|_| simulation.add("client", client)).collect();
        Self {
            seed,
            random: seed | 1,
            simulation,
            broker,
            workers,
            clients,
            lives: HashMap::new(),
            stopping: HashSet::new(),
            plans: HashMap::new(),
            tokens: 0,
            replies: HashMap::new(),
            timeouts: HashMap::new(),
            most_held: 0,
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    fn plan(&mut self, after: Duration, plan: Plan) {
        self.tokens += 1;
        self.plans.insert(self.tokens, plan);
        self.simulation.wake(after, self.tokens);
    }

    fn life(&self, node: Node) -> u32 {
        self.lives.get(&node).copied().unwrap_or_default()
    }

    fn stats(&self) -> BrokerStats {
        self.simulation.machine::<Broker>(self.broker).expect("it is the broker").stats()
    }

    fn on(&mut self, notice: Notice) {
        let node = match notice {
            Notice::Woken(token) => {
                if let Some(plan) = self.plans.remove(&token) {
                    self.happen(plan);
                }
                return;
            }
            Notice::Event(node) => node,
        };
        if node == self.broker {
            if let Some(BrokerEvent::Dropped(Dropped { reason, .. })) = self.simulation.event::<Broker>(node) {
                // No member sends invalid messages.
                assert!(matches!(reason.slug(), "unroutable" | "queue_expired"), "seed {}: {reason:?}", self.seed);
            }
        } else if self.workers.contains(&node) {
            match self.simulation.event::<Working>(node) {
                Some(WorkingEvent::Work(WorkerEvent::Request { job, frames, .. })) => {
                    let held = self.simulation.machine::<Working>(node).expect("it is a worker").stats().worker.held;
                    self.most_held = self.most_held.max(held);
                    let (life, after) = (self.life(node), Duration::from_micros(self.below(20_000)));
                    self.plan(after, Plan::Done { worker: node, life, job, frames });
                }
                Some(event @ WorkingEvent::Work(WorkerEvent::Dropped(_))) => {
                    panic!("seed {}: {event:?}", self.seed)
                }
                _ => {}
            }
        } else {
            self.on_client(node);
        }
    }

    fn on_client(&mut self, client: Node) {
        match self.simulation.event::<Client>(client).expect("it has an event") {
            ClientEvent::Ended(call, Outcome::Reply { frames, body }) => {
                let expected = [Bytes::from(call.0.to_string())];
                assert_eq!(frames[body.data()], expected, "seed {}", self.seed);
                assert_eq!(frames[body.metadata], expected, "seed {}", self.seed);
                *self.replies.entry((client, call.0)).or_default() += 1;
            }
            ClientEvent::Ended(call, Outcome::TimedOut) => *self.timeouts.entry((client, call.0)).or_default() += 1,
            event @ (ClientEvent::Dropped(_) | ClientEvent::Ended(_, Outcome::Unanswered)) => {
                panic!("seed {}: {event:?}", self.seed)
            }
            ClientEvent::Connection(_) => {}
        }
    }

    fn happen(&mut self, plan: Plan) {
        match plan {
            Plan::Done { worker, life, job, frames } => {
                if self.life(worker) != life {
                    return;
                }
                let data: Vec<_> = frames.last().cloned().into_iter().collect();
                // Some jobs of `a` are finished by `b`.
                let is_shared = self.workers.len() > 1 && self.workers.iter().step_by(2).any(|one| *one == worker);
                let verb = if is_shared && self.below(5) == 0 {
                    WorkerVerb::Forward { job, service: Bytes::from("b"), data }
                } else {
                    WorkerVerb::Reply { job, data }
                };
                self.simulation.ask::<Working>(worker, WorkingVerb::Work(verb));
            }
            Plan::Asks { client, call, retries } => {
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
                self.simulation.ask::<Client>(client, verb);
            }
            Plan::Crashes(who) => {
                let node = match who {
                    Who::Broker => self.broker,
                    Who::Worker(number) => self.workers[number],
                };
                *self.lives.entry(node).or_default() += 1;
                self.simulation.restart(node);
            }
            Plan::Stops(number) => {
                if self.stopping.insert(number) {
                    self.simulation.close(self.workers[number], MILLISECOND * 10_000);
                    self.plan(MILLISECOND * 100, Plan::Starts(number));
                }
            }
            Plan::Starts(number) => {
                let node = self.workers[number];
                self.stopping.remove(&number);
                assert!(!self.simulation.is_up(node), "seed {}: it has not ended in time", self.seed);
                *self.lives.entry(node).or_default() += 1;
                self.simulation.restart(node);
            }
        }
    }

    /// Each client makes this many calls within a second; runs until all have ended.
    fn run(&mut self, asks: u64, retries: u32) {
        for client in self.clients.clone() {
            for call in 0..asks {
                let after = Duration::from_micros(self.below(1_000_000));
                self.plan(after, Plan::Asks { client, call, retries });
            }
        }
        let calls = self.clients.len() * usize::try_from(asks).unwrap_or(0);
        while self.replies.len() + self.timeouts.len() < calls || self.has_plans() {
            if let Err(error) = self.simulation.run(Nanos(u64::MAX)) {
                panic!("{error}");
            }
            while let Some(notice) = self.simulation.poll_notice() {
                self.on(notice);
            }
        }
        self.check(calls);
    }

    fn has_plans(&self) -> bool {
        self.plans.values().any(|plan| !matches!(plan, Plan::Done { .. }))
    }

    /// Checks that every call ended once, in a reply or a time-out.
    fn check(&self, calls: usize) {
        let seed = self.seed;
        assert_eq!(self.replies.len() + self.timeouts.len(), calls, "seed {seed}");
        assert!(self.replies.values().chain(self.timeouts.values()).all(|times| *times == 1), "seed {seed}");
        assert!(self.replies.keys().all(|call| !self.timeouts.contains_key(call)), "seed {seed}");
        for client in &self.clients {
            let machine = self.simulation.machine::<Client>(*client).expect("it is a client");
            assert_eq!(machine.stats().in_flight, 0, "seed {seed}");
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
        world.plan(MILLISECOND * 500, Plan::Crashes(Who::Broker));
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
        assert!(
            world.simulation.now() < Nanos(0) + MILLISECOND * 3600,
            "{:?} at concurrency {concurrency}",
            world.simulation
        );
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
    fn whatever_happens_every_call_ends_once(seed: u64, lose in 0u32..30, double in 0u32..30, reorder: bool, requeue: bool, concurrency in 1usize..5, crashes in prop::collection::vec((0u32..8000, 0usize..5), 0..6)) {
        let mut world = World::new(seed, 4, 3, concurrency, Faults { lose, double, reorder }, requeue);
        for (at, who) in crashes {
            let who = if who == 4 { Who::Broker } else { Who::Worker(who) };
            world.plan(MILLISECOND * at, Plan::Crashes(who));
        }
        world.run(50, 2);
    }

    // req: DCP-15
    #[test]
    fn workers_that_stop_lose_nothing(seed: u64, workers in 1usize..6, concurrency in 1usize..5, stops in prop::collection::vec((0u32..1000, 0usize..6), 1..8)) {
        let mut world = World::new(seed, workers, 3, concurrency, Faults::default(), false);
        for (at, who) in stops {
            world.plan(MILLISECOND * at, Plan::Stops(who % workers));
        }
        world.run(50, 0);
        prop_assert_eq!(world.timeouts.len(), 0);
        prop_assert_eq!(world.stats().lost, 0);
    }

    // req: DCP-42
    #[test]
    fn with_requeue_a_crash_of_a_worker_loses_nothing(seed: u64, crashes in prop::collection::vec((0u32..1000, 0usize..4), 1..4)) {
        let mut world = World::new(seed, 4, 3, 2, Faults::default(), true);
        for (at, who) in crashes {
            world.plan(MILLISECOND * at, Plan::Crashes(Who::Worker(who)));
        }
        world.run(50, 5);
        prop_assert_eq!(world.timeouts.len(), 0);
        prop_assert_eq!(world.stats().lost, 0);
    }
}
