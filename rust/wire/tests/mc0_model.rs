//! The middleware compared with a small model of a bus of topics.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use proptest::prelude::*;
use trunkline_wire::mc0::{Front, Middleware, MiddlewareSettings, Verb, decode};
use trunkline_wire::{Frames, Incoming, Machine as _, Nanos, Output, SendId, SocketEvent, Unsent};

const PEERS: u8 = 5;
const TOPICS: u8 = 4;

/// A step. Peers and topics are numbers.
#[derive(Clone, Debug)]
enum Step {
    Subscribe(u8, Vec<u8>),
    Unsubscribe(u8, Vec<u8>),
    Put(u8, u8),
    Disconnect(u8),
    /// Its connection ends with the next message for it, and it comes back with the same address.
    Vanish(u8),
    /// It stops reading, or reads again.
    Turn(u8),
    /// The transport takes what it can.
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    let topics = || prop::collection::vec(0..TOPICS, 0..3);
    prop_oneof![
        3 => (0..PEERS, topics()).prop_map(|(peer, topics)| Step::Subscribe(peer, topics)),
        2 => (0..PEERS, topics()).prop_map(|(peer, topics)| Step::Unsubscribe(peer, topics)),
        8 => (0..PEERS, 0..TOPICS).prop_map(|(peer, topic)| Step::Put(peer, topic)),
        1 => (0..PEERS).prop_map(Step::Disconnect),
        1 => (0..PEERS).prop_map(Step::Vanish),
        2 => (0..PEERS).prop_map(Step::Turn),
        4 => Just(Step::Drain),
    ]
}

fn name(number: u8) -> Bytes {
    Bytes::from(vec![b'a' + number])
}

/// The middleware with its transport, and what the model expects.
struct World {
    machine: Middleware,
    subscriptions: BTreeMap<u8, BTreeSet<u8>>,
    /// What each still has to receive: the numbers of messages, and of confirmations.
    expected: BTreeMap<u8, VecDeque<String>>,
    deaf: BTreeSet<u8>,
    waiting: BTreeMap<u8, VecDeque<(SendId, String)>>,
    vanishing: BTreeSet<u8>,
    next: u32,
}

impl World {
    fn new() -> Self {
        let mut machine = Middleware::new(MiddlewareSettings::default());
        assert!(matches!(machine.poll_output(), Some(Output::Open(_))));
        Self {
            machine,
            subscriptions: BTreeMap::new(),
            expected: BTreeMap::new(),
            deaf: BTreeSet::new(),
            waiting: BTreeMap::new(),
            vanishing: BTreeSet::new(),
            next: 0,
        }
    }

    fn say(&mut self, peer: u8, verb: &'static str, headers: &[(&'static str, String)], rest: Vec<Bytes>) {
        let mut frames: Frames = [Bytes::new(), Bytes::from(verb)].into_iter().collect();
        for (key, value) in headers {
            frames.extend([Bytes::from(*key), Bytes::from(value.clone())]);
        }
        frames.push(Bytes::new());
        frames.extend(rest);
        self.machine.handle_message(
            Nanos(0),
            Incoming { socket: Front, peer: Some(name(peer)), user_id: None, host: None, frames },
        );
    }

    fn expect(&mut self, peer: u8, what: String) {
        self.expected.entry(peer).or_default().push_back(what);
    }

    fn step(&mut self, step: Step) {
        self.next += 1;
        let number = self.next.to_string();
        let id = ("ID", number.clone());
        let names = |topics: &[u8]| topics.iter().map(|topic| name(*topic)).collect::<Vec<_>>();
        match step {
            Step::Subscribe(peer, topics) => {
                self.say(peer, "SUB", &[id], names(&topics));
                self.subscriptions.entry(peer).or_default().extend(topics);
                self.expect(peer, format!("OK {number}"));
            }
            Step::Unsubscribe(peer, topics) => {
                self.say(peer, "UNSUB", &[id], names(&topics));
                self.subscriptions.entry(peer).or_default().retain(|topic| !topics.contains(topic));
                self.expect(peer, format!("OK {number}"));
            }
            Step::Put(peer, topic) => {
                let topic_name = String::from_utf8_lossy(&name(topic)).into_owned();
                self.say(peer, "PUT", &[("TOPIC", topic_name), id], vec![Bytes::from(number.clone())]);
                let subscribed = self.subscriptions.iter().filter(|(_, topics)| topics.contains(&topic));
                let receivers: Vec<_> = subscribed.map(|(peer, _)| *peer).collect();
                for receiver in receivers {
                    self.expect(receiver, number.clone());
                }
                self.expect(peer, format!("OK {number}"));
            }
            Step::Disconnect(peer) => {
                self.say(peer, "DISCONNECT", &[id], vec![]);
                self.subscriptions.remove(&peer);
                self.expect(peer, format!("OK {number}"));
            }
            Step::Vanish(peer) => {
                self.drain();
                self.vanishing.insert(peer);
                self.say(peer, "NOOP", &[id], vec![]);
                self.drain();
                self.vanishing.remove(&peer);
                for (send, _) in self.waiting.remove(&peer).unwrap_or_default() {
                    self.machine.handle_socket(Nanos(0), Front, SocketEvent::Unsent(send, Unsent::Unreachable));
                }
                self.drain();
                // Nothing of its former connection is left.
                self.subscriptions.remove(&peer);
                self.expected.remove(&peer);
            }
            Step::Turn(peer) => {
                if self.deaf.remove(&peer) {
                    for (send, what) in self.waiting.remove(&peer).unwrap_or_default() {
                        self.read(peer, &what);
                        self.machine.handle_socket(Nanos(0), Front, SocketEvent::Sent(send));
                    }
                } else {
                    self.deaf.insert(peer);
                }
            }
            Step::Drain => self.drain(),
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            let Output::Send { id: Some(send), to: Some(to), frames, .. } = output else { panic!("{output:?}") };
            let peer = to[0] - b'a';
            let layout = decode(&frames, trunkline_wire::mc0::Settings::default()).expect("a good message");
            let word = |at: usize| String::from_utf8_lossy(&frames[at]).into_owned();
            let what = if layout.verb == Verb::Message {
                word(layout.body)
            } else {
                assert_eq!(layout.verb, Verb::Ok);
                format!("OK {}", layout.id.map(word).unwrap_or_default())
            };
            if self.vanishing.contains(&peer) {
                self.machine.handle_socket(Nanos(0), Front, SocketEvent::Unsent(send, Unsent::Unreachable));
            } else if self.deaf.contains(&peer) {
                self.waiting.entry(peer).or_default().push_back((send, what));
            } else {
                self.read(peer, &what);
                self.machine.handle_socket(Nanos(0), Front, SocketEvent::Sent(send));
            }
        }
    }

    fn read(&mut self, peer: u8, what: &str) {
        let expected = self.expected.entry(peer).or_default().pop_front();
        assert_eq!(expected.as_deref(), Some(what), "peer {peer}");
    }

    fn end(&mut self) {
        for peer in std::mem::take(&mut self.deaf) {
            self.deaf.insert(peer);
            self.step(Step::Turn(peer));
        }
        self.drain();
        self.expected.retain(|_, left| !left.is_empty());
        assert!(self.expected.is_empty(), "{:?}", self.expected);
        let stats = self.machine.stats();
        let subscriptions: usize = self.subscriptions.values().map(BTreeSet::len).sum();
        assert_eq!((stats.subscriptions, stats.queued), (subscriptions as u64, 0));
        let clients = self.subscriptions.values().filter(|topics| !topics.is_empty()).count();
        assert_eq!(stats.clients, clients as u64);
    }
}

proptest! {
    // req: MC0-12, MC0-13, MC0-27, MC0-28, MC0-29, MC0-30, MC0-33
    #[test]
    fn each_has_what_is_put_to_its_topics_in_order_and_nothing_else(steps in prop::collection::vec(step(), 0..80)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.end();
    }
}
