//! A connector while its middleware crashes, freezes and comes back: submitted messages arrive at least once, put ones
//! at most once, and subscriptions are restored.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use trunkline_wire::mc0::{
    Asked, Connector, ConnectorEvent, ConnectorSettings, ConnectorVerb, Outcome, Put, Settings, Verb, decode, encode,
};
use trunkline_wire::simulation::{Bare, Network, Node, Notice, Received, Simulation};
use trunkline_wire::{CallId, Frames, Machine as _, SocketKind};

const MILLISECOND: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_secs(1);
const BUS: &str = "tcp://bus:1";

#[derive(Clone, Copy, Debug)]
enum Step {
    Put,
    Submit,
    Subscribe(u8),
    Unsubscribe(u8),
    Crash,
    Restart,
    /// It stops, or resumes with all that has queued up.
    Freeze(bool),
    Pass(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Put),
        4 => Just(Step::Submit),
        2 => (0u8..4).prop_map(Step::Subscribe),
        1 => (0u8..4).prop_map(Step::Unsubscribe),
        1 => Just(Step::Crash),
        2 => Just(Step::Restart),
        1 => any::<bool>().prop_map(Step::Freeze),
        4 => (0u16..3000).prop_map(Step::Pass),
    ]
}

/// A connector, and a middleware of the test that confirms everything.
struct World {
    simulation: Simulation,
    bus: Node,
    connector: Node,
    is_frozen: bool,
    unread: Vec<(Bytes, Frames)>,
    /// The connections that sent CONNECT, with their subscriptions.
    clients: BTreeMap<Bytes, BTreeSet<Bytes>>,
    /// How often each body arrived.
    arrived: BTreeMap<Bytes, usize>,
    outcomes: BTreeMap<CallId, Outcome>,
    numbers: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let network = Network { latency: 5 * MILLISECOND, jitter: 5 * MILLISECOND, ..Network::default() };
        let mut simulation = Simulation::new(seed, network, 1_000_000);
        let bus = simulation.add("bus", |_, _| Bare::new(SocketKind::Router, vec![BUS.to_owned()], vec![]));
        let connector = simulation.add("connector", |now, seed| {
            let settings =
                ConnectorSettings { connect: vec![BUS.to_owned()], ttl: Some(TTL), ..ConnectorSettings::default() };
            Connector::new(now, settings, seed)
        });
        let (clients, arrived, outcomes) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { simulation, bus, connector, is_frozen: false, unread: vec![], clients, arrived, outcomes, numbers: 0 }
    }

    fn body(&mut self) -> (u64, Put) {
        self.numbers += 1;
        let body = vec![Bytes::from(self.numbers.to_string())];
        (self.numbers, Put { topic: Bytes::from_static(b"runs"), headers: vec![], body })
    }

    fn call(&mut self, asked: Asked) -> CallId {
        self.numbers += 1;
        self.call_as(CallId(self.numbers), asked)
    }

    fn call_as(&mut self, call: CallId, asked: Asked) -> CallId {
        self.simulation.ask::<Connector>(self.connector, ConnectorVerb::Call { call, asked, timeout: None });
        call
    }

    fn pass(&mut self, time: Duration) {
        let end = self.simulation.now() + time;
        while self.simulation.run(end).expect("an end") {
            while let Some(notice) = self.simulation.poll_notice() {
                self.hear(notice);
            }
        }
    }

    fn hear(&mut self, notice: Notice) {
        let Notice::Event(node) = notice else { return };
        if node == self.connector {
            if let Some(ConnectorEvent::Ended(call, outcome)) = self.simulation.event::<Connector>(node) {
                assert_eq!(self.outcomes.insert(call, outcome), None, "{call:?} ended twice");
            }
        } else if let Some(Received { peer: Some(peer), frames }) = self.simulation.event::<Bare>(node) {
            self.unread.push((peer, frames));
            self.read();
        }
    }

    fn read(&mut self) {
        if !self.is_frozen {
            for (peer, frames) in std::mem::take(&mut self.unread) {
                self.answer(peer, &frames);
            }
        }
    }

    fn freeze(&mut self, is_frozen: bool) {
        self.is_frozen = is_frozen;
        self.read();
    }

    fn restart(&mut self) {
        self.unread.clear();
        self.simulation.restart(self.bus);
    }

    fn answer(&mut self, peer: Bytes, frames: &Frames) {
        let layout = decode(frames, Settings::default()).expect("a message");
        let positional = frames[layout.positional()].to_vec();
        if layout.verb == Verb::Connect {
            self.clients.insert(peer.clone(), BTreeSet::new());
        }
        let topics = self.clients.get_mut(&peer).expect("CONNECT is the first message of a connection");
        match layout.verb {
            Verb::Sub => topics.extend(positional),
            Verb::Unsub => topics.retain(|topic| !positional.contains(topic)),
            Verb::Put => *self.arrived.entry(positional[0].clone()).or_default() += 1,
            Verb::Connect | Verb::Disconnect | Verb::Noop | Verb::Message | Verb::Ok | Verb::Error => {}
        }
        let reply = match layout.id {
            Some(id) => encode(Verb::Ok, [(Bytes::from_static(b"ID"), frames[id].clone())], &[]),
            // A sign of life.
            None => encode(Verb::Noop, [], &[]),
        };
        self.simulation.ask::<Bare>(self.bus, (Some(peer), reply));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    // req: MC0-12, MC0-26, MC0-28
    #[test]
    fn what_is_submitted_arrives_and_what_is_put_is_not_doubled(seed: u64, steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new(seed);
        let (mut puts, mut submitted, mut wanted) = (vec![], vec![], BTreeSet::new());
        let topic = |number: u8| Bytes::from(vec![b'a' + number]);
        for step in steps {
            match step {
                Step::Put => {
                    let (number, put) = world.body();
                    puts.push(number);
                    world.simulation.ask::<Connector>(world.connector, ConnectorVerb::Put(put));
                }
                Step::Submit => {
                    let (number, put) = world.body();
                    submitted.push(world.call_as(CallId(number), Asked::Put(put)));
                }
                Step::Subscribe(number) => {
                    wanted.insert(topic(number));
                    world.call(Asked::Subscribe(vec![topic(number)]));
                }
                Step::Unsubscribe(number) => {
                    wanted.remove(&topic(number));
                    world.call(Asked::Unsubscribe(vec![topic(number)]));
                }
                Step::Crash => {
                    world.unread.clear();
                    world.simulation.crash(world.bus);
                }
                Step::Restart => world.restart(),
                Step::Freeze(is_frozen) => world.freeze(is_frozen),
                Step::Pass(milliseconds) => world.pass(u32::from(milliseconds) * MILLISECOND),
            }
        }
        // All faults have ended, a while ago.
        world.freeze(false);
        world.restart();
        world.pass(30 * TTL);
        let connector = world.simulation.machine::<Connector>(world.connector);
        prop_assert_eq!(connector.map(|connector| connector.backlog().messages), Some(0));
        for call in submitted {
            prop_assert_eq!(world.outcomes.get(&call), Some(&Outcome::Done));
            prop_assert!(world.arrived.contains_key(&Bytes::from(call.0.to_string())));
        }
        for put in puts {
            prop_assert!(world.arrived.get(&Bytes::from(put.to_string())).copied().unwrap_or_default() <= 1);
        }
        let now = world.simulation.address(world.connector).cloned().expect("a connection");
        prop_assert_eq!(world.clients.get(&now), Some(&wanted));
    }
}
