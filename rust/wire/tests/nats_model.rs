//! A connection and a server of a few lines: what is asked for comes, in order, however it is cut on its way.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use trunkline_wire::Nanos;
use trunkline_wire::nats::{Connection, Event, Login, Message, Settings};

#[derive(Clone, Debug)]
enum Step {
    Subscribe(u64, &'static str),
    Unsubscribe(u64),
    Publish(&'static str, &'static str, Vec<u8>, Vec<u8>),
    Barrier,
    /// The server asks.
    Ping,
    /// So many bytes go each way.
    Carry(usize, usize),
}

/// What happens, in the words of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Message(u64, String, String, Vec<u8>, Vec<u8>),
    Forbidden(String),
    Reached(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let subject = prop_oneof![Just("a.b"), Just("a.c"), Just("b"), Just("secret.x")];
    let pattern = prop_oneof![Just("a.b"), Just("a.*"), Just("a.>"), Just(">"), Just("b"), Just("secret.x")];
    let reply_to = prop_oneof![Just(""), Just("r.1")];
    let bytes = || prop_oneof![Just(vec![]), vec(prop_oneof![Just(b'\r'), Just(b'\n'), any::<u8>()], 0..30)];
    prop_oneof![
        2 => (0_u64..4, pattern).prop_map(|(number, pattern)| Step::Subscribe(number, pattern)),
        1 => (0_u64..4).prop_map(Step::Unsubscribe),
        5 => (subject, reply_to, bytes(), bytes()).prop_map(|(to, reply, block, body)| Step::Publish(to, reply, block, body)),
        1 => vec(any::<u8>(), 4000..9000).prop_map(|body| Step::Publish("a.b", "", vec![], body)),
        1 => Just(Step::Barrier),
        1 => Just(Step::Ping),
        4 => (0_usize..400, 0_usize..400).prop_map(|(there, back)| Step::Carry(there, back)),
    ]
}

fn matches(pattern: &str, subject: &str) -> bool {
    let (mut wanted, mut given) = (pattern.split('.'), subject.split('.'));
    loop {
        match (wanted.next(), given.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some(wanted), Some(given)) if wanted == "*" || wanted == given => {}
            _ => return false,
        }
    }
}

/// Who hears what: the same for the model, which takes steps, and for the server, which takes bytes.
#[derive(Default)]
struct Interests(Vec<(u64, String)>);

impl Interests {
    /// Whether a subscription is allowed.
    fn subscribe(&mut self, number: u64, pattern: &str) -> bool {
        if pattern.starts_with("secret") {
            return false;
        }
        self.0.push((number, pattern.to_owned()));
        true
    }

    fn heard(&self, subject: &str) -> Vec<u64> {
        self.0.iter().filter(|(_, pattern)| matches(pattern, subject)).map(|(number, _)| *number).collect()
    }
}

fn forbidden(pattern: &str) -> String {
    format!("Permissions Violation for Subscription to \"{pattern}\"")
}

/// A server, which reads one line after the other.
#[derive(Default)]
struct Server {
    input: Vec<u8>,
    output: VecDeque<u8>,
    interests: Interests,
}

impl Server {
    fn take(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        while let Some(end) = self.input.windows(2).position(|two| two == b"\r\n") {
            let line = String::from_utf8(self.input[..end].to_vec()).expect("lines are text");
            let words: Vec<_> = line.split(' ').collect();
            let mut taken = end + 2;
            match words[..] {
                ["PING"] => self.output.extend(b"PONG\r\n"),
                ["CONNECT", ..] | ["PONG"] => {}
                ["SUB", pattern, number] => {
                    if !self.interests.subscribe(number.parse().expect("a number"), pattern) {
                        self.output.extend(format!("-ERR '{}'\r\n", forbidden(pattern)).bytes());
                    }
                }
                ["UNSUB", number] => self.interests.0.retain(|(other, _)| other.to_string() != number),
                [verb @ ("PUB" | "HPUB"), subject, .., size] => {
                    let size: usize = size.parse().expect("a size");
                    let Some(content) = self.input.get(taken..taken + size + 2) else { return };
                    assert!(content.ends_with(b"\r\n"));
                    let content = content.to_vec();
                    let rest = &line[verb.len() + subject.len() + 2..];
                    for number in self.interests.heard(subject) {
                        let verb = verb.replace("PUB", "MSG");
                        self.output.extend(format!("{verb} {subject} {number} {rest}\r\n").bytes());
                        self.output.extend(&content);
                    }
                    taken += content.len();
                }
                _ => panic!("a client says {line}"),
            }
            self.input.drain(..taken);
        }
    }
}

struct World {
    connection: Connection,
    server: Server,
    heard: Vec<Heard>,
}

impl World {
    fn carry(&mut self, there: usize, back: usize) {
        let mut slices = [IoSlice::new(&[]); 8];
        let count = self.connection.slices(&mut slices);
        let mut bytes: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
        bytes.truncate(there);
        self.connection.handle_written(bytes.len());
        self.server.take(&bytes);
        let back = back.min(self.server.output.len());
        self.connection.receive(self.server.output.drain(..back).collect());
        while let Some(event) = self.connection.poll_event(Nanos(0)) {
            self.heard.push(match event {
                Event::Message(Message { subscription, subject, reply_to, block, body }) => {
                    let [subject, reply_to] =
                        [subject, reply_to].map(|text| String::from_utf8(text.to_vec()).expect("text"));
                    Heard::Message(subscription, subject, reply_to, block.to_vec(), body.to_vec())
                }
                Event::Forbidden(words) => Heard::Forbidden(words.into()),
                Event::Reached(number) => Heard::Reached(number),
                Event::Ready => continue,
                Event::Encrypt | Event::Info | Event::Failed(_) => panic!("{event:?}"),
            });
        }
    }
}

proptest! {
    #[test]
    fn what_is_asked_for_comes_in_order(steps in vec(step(), 1..60)) {
        let connection = Connection::new(Arc::new(Settings::default()), Login::default(), Nanos(0));
        let mut world = World { connection, server: Server::default(), heard: vec![] };
        world.server.output.extend(b"INFO {\"headers\":true}\r\n");
        while !world.connection.is_ready() {
            world.carry(7, 7);
        }
        let (mut interests, mut expected, mut barriers) = (Interests::default(), vec![], 0);
        for step in steps {
            match step {
                Step::Subscribe(number, pattern) => {
                    world.connection.subscribe(number, pattern.as_bytes(), b"").unwrap();
                    if !interests.subscribe(number, pattern) {
                        expected.push(Heard::Forbidden(forbidden(pattern)));
                    }
                }
                Step::Unsubscribe(number) => {
                    world.connection.unsubscribe(number).unwrap();
                    interests.0.retain(|(other, _)| *other != number);
                }
                Step::Publish(subject, reply_to, block, body) => {
                    let (one, two) = (Bytes::from(block.clone()), Bytes::from(body.clone()));
                    world.connection.publish(subject.as_bytes(), reply_to.as_bytes(), &one, &two).unwrap();
                    expected.extend(interests.heard(subject).into_iter().map(|number| {
                        Heard::Message(number, subject.to_owned(), reply_to.to_owned(), block.clone(), body.clone())
                    }));
                }
                Step::Barrier => {
                    barriers += 1;
                    prop_assert_eq!(world.connection.barrier(), Ok(barriers));
                    expected.push(Heard::Reached(barriers));
                }
                Step::Ping => world.server.output.extend(b"PING\r\n"),
                Step::Carry(there, back) => world.carry(there, back),
            }
            prop_assert!(expected.starts_with(&world.heard));
        }
        while world.connection.pending() > 0 || !world.server.output.is_empty() {
            world.carry(usize::MAX, usize::MAX);
        }
        prop_assert_eq!(world.heard, expected);
    }
}
