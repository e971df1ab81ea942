//! Middleware and connectors of mc0 in simulations, with faults of the network and crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use trunkline_wire::mc0::{
    Asked, Connector, ConnectorEvent, ConnectorSettings, ConnectorVerb, Middleware, MiddlewareEvent,
    MiddlewareSettings, Outcome, Put,
};
use trunkline_wire::simulation::{Network, Node, Notice, Simulation};
use trunkline_wire::{CallId, Machine as _};

/// More steps than any of these tests needs.
const STEPS: u64 = 400_000;

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(2);

/// A scheduled event.
#[derive(Clone, Copy, Debug)]
enum Plan {
    /// A publisher puts its next number, confirmed or not.
    Put(usize, bool),
    Subscribe(usize),
    Unsubscribe(usize),
    Crash,
    /// A subscriber crashes, and restarts.
    Fall(usize),
    /// The latency from now on.
    Slow(Duration),
}

/// A simulation, and what its users do in it.
struct World {
    seed: u64,
    simulation: Simulation,
    middleware: Node,
    publishers: Vec<Node>,
    subscribers: Vec<Node>,
    plans: BTreeMap<u64, Plan>,
    tokens: u64,
    calls: u64,
    /// The next number of each publisher.
    numbers: Vec<u64>,
    /// The calls, and which have succeeded.
    asked: BTreeMap<(Node, u64), (Plan, u64)>,
    ended: BTreeSet<(Node, u64)>,
    /// The numbers that a subscriber received from a publisher, in order.
    got: BTreeMap<(usize, usize), Vec<u64>>,
    /// The first number of each publisher that a subscriber must receive: the first not put before its confirmation.
    from: BTreeMap<usize, Vec<u64>>,
    /// The last such number, once it has left.
    until: BTreeMap<usize, Vec<u64>>,
}

impl World {
    fn new(seed: u64, publishers: usize, subscribers: usize, network: Network) -> Self {
        let mut simulation = Simulation::new(seed, network, STEPS);
        let endpoint = || vec!["tcp://bus:1".to_owned()];
        let middleware = simulation.add("middleware", move |_, _| {
            Middleware::new(MiddlewareSettings { bind: endpoint(), ..MiddlewareSettings::default() })
        });
        let connector = move |now, seed| {
            let settings = ConnectorSettings { connect: endpoint(), ttl: Some(TTL), ..ConnectorSettings::default() };
            Connector::new(now, settings, seed)
        };
        let subscribers = (0..subscribers).map(|_| simulation.add("subscriber", connector)).collect();
        let publishers: Vec<_> = (0..publishers).map(|_| simulation.add("publisher", connector)).collect();
        Self {
            seed,
            simulation,
            middleware,
            numbers: vec![0; publishers.len()],
            publishers,
            subscribers,
            plans: BTreeMap::new(),
            tokens: 0,
            calls: 0,
            asked: BTreeMap::new(),
            ended: BTreeSet::new(),
            got: BTreeMap::new(),
            from: BTreeMap::new(),
            until: BTreeMap::new(),
        }
    }

    fn plan(&mut self, after: Duration, plan: Plan) {
        self.tokens += 1;
        self.plans.insert(self.tokens, plan);
        self.simulation.wake(after, self.tokens);
    }

    fn call(&mut self, node: Node, plan: Plan, number: u64, asked: Asked, timeout: Option<Duration>) {
        self.calls += 1;
        self.asked.insert((node, self.calls), (plan, number));
        self.simulation.ask::<Connector>(node, ConnectorVerb::Call { call: CallId(self.calls), asked, timeout });
    }

    fn happen(&mut self, plan: Plan) {
        let topic = || Bytes::from("t");
        match plan {
            Plan::Put(publisher, is_confirmed) => {
                let number = self.numbers[publisher];
                self.numbers[publisher] += 1;
                let body = vec![Bytes::from(format!("{publisher} {number}"))];
                let put = Put { topic: topic(), headers: vec![], body };
                let node = self.publishers[publisher];
                if is_confirmed {
                    self.call(node, plan, number, Asked::Put(put), None);
                } else {
                    self.simulation.ask::<Connector>(node, ConnectorVerb::Put(put));
                }
            }
            Plan::Subscribe(subscriber) => {
                self.call(self.subscribers[subscriber], plan, 0, Asked::Subscribe(vec![topic()]), None);
            }
            Plan::Unsubscribe(subscriber) => {
                self.call(self.subscribers[subscriber], plan, 0, Asked::Unsubscribe(vec![topic()]), None);
            }
            Plan::Crash => {
                self.simulation.crash(self.middleware);
                self.simulation.restart(self.middleware);
            }
            Plan::Fall(subscriber) => {
                let node = self.subscribers[subscriber];
                self.simulation.restart(node);
                self.asked.retain(|(asker, _), _| *asker != node);
                self.got.retain(|(whose, _), _| *whose != subscriber);
                self.from.remove(&subscriber);
            }
            Plan::Slow(latency) => self.simulation.set_network(Network { latency, ..Network::default() }),
        }
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
        if node == self.middleware {
            if let Some(MiddlewareEvent::Dropped(dropped)) = self.simulation.event::<Middleware>(node) {
                // No member sends invalid messages or reads too slowly.
                assert_eq!(dropped.reason.slug(), "unroutable", "seed {}", self.seed);
            }
            return;
        }
        match self.simulation.event::<Connector>(node) {
            Some(ConnectorEvent::Message { frames, .. }) => {
                let said = String::from_utf8_lossy(frames.last().expect("a body")).into_owned();
                let numbers: Vec<u64> = said.split(' ').map(|number| number.parse().expect("a number")).collect();
                let [publisher, number] = numbers[..] else { panic!("{said}") };
                let subscriber = self.subscribers.iter().position(|one| *one == node).expect("a subscriber");
                let publisher = usize::try_from(publisher).expect("few");
                self.got.entry((subscriber, publisher)).or_default().push(number);
            }
            Some(ConnectorEvent::Ended(CallId(call), outcome)) => self.on_ended(node, call, &outcome),
            Some(event @ (ConnectorEvent::Dropped(_) | ConnectorEvent::Error { .. })) => {
                panic!("seed {}: {event:?}", self.seed)
            }
            _ => {}
        }
    }

    fn on_ended(&mut self, node: Node, call: u64, outcome: &Outcome) {
        assert_eq!(*outcome, Outcome::Done, "seed {}", self.seed);
        let Some((plan, _)) = self.asked.get(&(node, call)) else { return };
        assert!(self.ended.insert((node, call)), "seed {}: it ended twice", self.seed);
        if let Plan::Subscribe(subscriber) = plan {
            self.from.insert(*subscriber, self.numbers.clone());
        } else if let Plan::Unsubscribe(subscriber) = plan {
            self.until.insert(*subscriber, self.numbers.clone());
        }
    }

    fn run(&mut self, time: Duration) {
        let until = self.simulation.now() + time;
        loop {
            while let Some(notice) = self.simulation.poll_notice() {
                self.on(notice);
            }
            let more = self.simulation.step(until).unwrap_or_else(|endless| panic!("seed {}: {endless:?}", self.seed));
            if !more && self.simulation.now() >= until {
                break;
            }
        }
        while let Some(notice) = self.simulation.poll_notice() {
            self.on(notice);
        }
    }

    /// Checks that every call has succeeded.
    fn all_done(&self) {
        for key in self.asked.keys() {
            assert!(self.ended.contains(key), "seed {}: {key:?} {:?}", self.seed, self.asked[key]);
        }
    }

    fn of(&self, subscriber: usize, publisher: usize) -> &[u64] {
        self.got.get(&(subscriber, publisher)).map_or(&[], |got| got)
    }
}

fn jittery() -> Network {
    Network { latency: Duration::from_micros(100), jitter: Duration::from_millis(5), ..Network::default() }
}

/// Many puts within this time, from all publishers.
fn puts(world: &mut World, seed: u64, count: u64, within: Duration, is_confirmed: bool) {
    for number in 0..count {
        let mixed = (seed ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let publisher = usize::try_from(mixed % world.publishers.len() as u64).expect("few");
        let share = u32::try_from(mixed >> 48).expect("sixteen bits");
        world.plan(within * share / (1 << 16), Plan::Put(publisher, is_confirmed));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    // req: MC0-30, MC0-33
    #[test]
    fn each_subscriber_has_all_of_its_time_once_and_in_order(seed in 1u64.., publishers in 1usize..4, subscribers in 1usize..5, is_confirmed: bool) {
        let mut world = World::new(seed, publishers, subscribers, jittery());
        puts(&mut world, seed, 200, SECOND * 4, is_confirmed);
        for subscriber in 0..subscribers {
            world.plan(SECOND * u32::try_from(subscriber).unwrap() / 2, Plan::Subscribe(subscriber));
        }
        world.plan(SECOND * 3, Plan::Unsubscribe(0));
        world.run(SECOND * 20);
        world.all_done();
        for subscriber in 0..subscribers {
            for publisher in 0..publishers {
                let got = world.of(subscriber, publisher);
                prop_assert!(got.windows(2).all(|pair| pair[1] == pair[0] + 1), "{got:?}");
                let from = world.from[&subscriber][publisher];
                let all = world.numbers[publisher];
                let until = world.until.get(&subscriber).map_or(all, |until| until[publisher]);
                if subscriber == 0 {
                    // Messages in flight when it left may have arrived or not; later ones have not.
                    prop_assert!(got.iter().all(|number| *number < until));
                } else if from < all {
                    prop_assert_eq!(got.last(), Some(&(all - 1)));
                    prop_assert!(got[0] <= from);
                }
            }
        }
    }

    // req: MC0-25, MC0-26
    #[test]
    fn what_was_submitted_reaches_the_next_middleware(seed in 1u64.., crashes in 1u32..4) {
        let mut world = World::new(seed, 2, 2, jittery());
        for subscriber in 0..2 {
            world.plan(Duration::ZERO, Plan::Subscribe(subscriber));
        }
        puts(&mut world, seed, 200, SECOND * 4, true);
        for crash in 0..crashes {
            world.plan(Duration::from_millis(500 + 900 * u64::from(crash)), Plan::Crash);
        }
        world.plan(SECOND * 2, Plan::Fall(1));
        world.run(SECOND * 30);
        world.all_done();
        // All members are up again, and new messages arrive.
        world.plan(Duration::ZERO, Plan::Subscribe(1));
        world.run(SECOND * 5);
        let before: Vec<_> = world.numbers.clone();
        puts(&mut world, seed, 50, SECOND, false);
        world.run(SECOND * 5);
        for subscriber in 0..2 {
            for (publisher, before) in before.iter().enumerate() {
                let got = world.of(subscriber, publisher);
                let late: Vec<_> = got.iter().copied().filter(|number| number >= before).collect();
                let expected: Vec<_> = (*before..world.numbers[publisher]).collect();
                prop_assert_eq!(late, expected, "seed {}", seed);
            }
        }
        let lost: u64 = world.publishers.iter().map(|node| world.simulation.machine::<Connector>(*node).unwrap().stats().reconnects).sum();
        prop_assert!(lost >= 2);
    }

    // req: MC0-21, MC0-26
    #[test]
    fn a_silence_is_noticed_at_both_ends_and_overcome(seed in 1u64.., silence_ms in 100u64..8_000) {
        let mut world = World::new(seed, 1, 1, Network::default());
        world.plan(Duration::ZERO, Plan::Subscribe(0));
        world.plan(SECOND, Plan::Slow(Duration::from_millis(silence_ms)));
        world.plan(SECOND + Duration::from_millis(silence_ms), Plan::Slow(Duration::from_micros(100)));
        puts(&mut world, seed, 100, SECOND * 12, true);
        world.run(SECOND * 60);
        world.all_done();
        let before = world.numbers[0];
        puts(&mut world, seed, 20, SECOND, false);
        world.run(SECOND * 10);
        let got: BTreeSet<_> = world.of(0, 0).iter().copied().collect();
        prop_assert!((before..world.numbers[0]).all(|number| got.contains(&number)), "{got:?}");
        let reconnects = world.simulation.machine::<Connector>(world.subscribers[0]).unwrap().stats().reconnects;
        // The last NOOP before the silence may have been sent a while ago.
        prop_assert!(reconnects > 0 || silence_ms < 2_100, "{reconnects}");
        prop_assert!(reconnects == 0 || silence_ms >= 150, "{reconnects}");
    }
}

// req: MC0-22, MC0-25
#[test]
fn who_has_nothing_to_say_stays_connected() {
    let mut world = World::new(7, 1, 3, Network::default());
    for subscriber in 0..3 {
        world.plan(Duration::ZERO, Plan::Subscribe(subscriber));
    }
    world.run(SECOND * 600);
    let middleware = world.simulation.machine::<Middleware>(world.middleware).unwrap().stats();
    assert_eq!((middleware.clients, middleware.subscriptions), (4, 3));
    for node in &world.subscribers {
        assert_eq!(world.simulation.machine::<Connector>(*node).unwrap().stats().reconnects, 0);
    }
    // A NOOP each way per TTL, and little else.
    assert!(middleware.received < 4 * 330, "{}", middleware.received);
}
