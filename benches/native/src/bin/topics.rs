//! Load for the benches of buses: publishers and subscribers of one topic, on raw sockets.
//!
//! `topics mc0|mc0-wire|mtl|pubsub|contents|addressed|frames|nats|mqtt FRONT BACK PUBLISHERS SUBSCRIBERS WINDOW COUNT BYTES [SERVER_KEY]`; `TRUNKLINE_LIBZMQ` names
//! the library. Publishers dial FRONT and subscribers BACK. So many deliveries as WINDOW are on their way at one time, of
//! COUNT in all. Prints deliveries a second, and how long they took in microseconds: median, 99th percentile, longest.

mod mtl;
mod wire;
mod wires;
mod zmq;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use wires::Wires;
use zmq::{DEALER, PUB, SUB, Zmq};

const TOPIC: &[u8] = b"bench";

/// The only resource of MTL's test profile.
const RESOURCE: &str = "resource";

/// How long a thread waits before it checks whether all is over.
const GLANCE: Duration = Duration::from_millis(100);

/// The number of a message that only checks whether all subscribers are connected.
const PROBE: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Mc0,
    Mtl,
    /// MTL's contents over PUB and SUB.
    Contents,
    /// The same over DEALER.
    Addressed,
    /// The topic and the body over PUB and SUB.
    PubSub,
    /// As many frames as a PUT has, over PUB and SUB.
    Frames,
    Wire(wires::Protocol),
}

/// Connections of publishers, or of subscribers.
#[allow(clippy::large_enum_variant)] // there are two
enum Links {
    Zmq(Zmq),
    Wires(Wires),
}

impl Links {
    fn open(protocol: Protocol, endpoint: &str, count: usize, key: Option<&str>, subscribe: bool) -> Self {
        let Protocol::Wire(wire) = protocol else {
            let mut zmq = Zmq::new();
            for _ in 0..count {
                let kind = match (protocol, subscribe) {
                    (Protocol::PubSub | Protocol::Frames | Protocol::Contents, true) => SUB,
                    (Protocol::PubSub | Protocol::Frames | Protocol::Contents, false) => PUB,
                    _ => DEALER,
                };
                let socket = zmq.open(kind, key);
                if kind != DEALER {
                    zmq.unbounded(socket);
                }
                zmq.connect(socket, endpoint);
                match (protocol, subscribe) {
                    (Protocol::PubSub | Protocol::Frames, true) => zmq.subscribe(socket, TOPIC),
                    (Protocol::Contents, true) => zmq.subscribe(socket, &[mtl::CONTENT]),
                    (Protocol::Mc0, true) => zmq.send(socket, &[b"", b"SUB", b"", TOPIC]),
                    (Protocol::Mtl, _) => {
                        let kind = if subscribe { "Reader" } else { "Writer" };
                        let lease = mtl::lease(endpoint, key, "test", kind, RESOURCE, "none");
                        mtl::redeem(&mut zmq, socket, &lease, subscribe.then_some(RESOURCE));
                    }
                    _ => {}
                }
            }
            return Self::Zmq(zmq);
        };
        let mut wires = Wires::open(wire, endpoint, count);
        if subscribe {
            wires.subscribe(TOPIC);
        }
        Self::Wires(wires)
    }

    fn put(&mut self, protocol: Protocol, at: usize, number: u64, body: &[u8]) {
        match self {
            Self::Zmq(zmq) if matches!(protocol, Protocol::Mtl | Protocol::Contents | Protocol::Addressed) => {
                zmq.send(at, &[&mtl::content(number), body]);
            }
            Self::Zmq(zmq) if protocol == Protocol::PubSub => zmq.send(at, &[TOPIC, body]),
            Self::Zmq(zmq) if protocol == Protocol::Frames => zmq.send(at, &[TOPIC, b"", b"PUT", b"TOPIC", b"", body]),
            Self::Zmq(zmq) => zmq.send(at, &[b"", b"PUT", b"TOPIC", TOPIC, b"", body]),
            Self::Wires(wires) => wires.put(at, TOPIC, body),
        }
    }

    /// Flushes what was put.
    fn flush(&mut self) {
        if let Self::Wires(wires) = self {
            wires.flush();
        }
    }

    /// Receives messages, and gives the beginning of each body with the number of its receiver.
    fn hear(&mut self, mut heard: impl FnMut(usize, &[u8])) {
        match self {
            Self::Wires(wires) => wires.hear(GLANCE, heard),
            Self::Zmq(zmq) => {
                zmq.wait(GLANCE);
                for at in 0..zmq.sockets() {
                    while zmq.is_readable(at) && zmq.receive(at, false) {
                        match zmq.frame(zmq.frames() - 1) {
                            // A Ping of MTL.
                            [] => zmq.send(at, &[mtl::PONG, b""]),
                            body => heard(at, body),
                        }
                    }
                }
            }
        }
    }

    fn close(self) {
        if let Self::Zmq(zmq) = self {
            zmq.close(Duration::ZERO);
        }
    }
}

/// The state shared by the two threads.
struct Shared {
    delivered: AtomicUsize,
    is_ready: AtomicBool,
    origin: Instant,
}

fn nanos(origin: Instant) -> u64 {
    u64::try_from(origin.elapsed().as_nanos()).expect("not for centuries")
}

/// Counts deliveries until there are so many; gives how long each took after the first tenth, and all of these.
fn listen(
    mut links: Links,
    subscribers: usize,
    count: usize,
    shared: &Shared,
    publisher: &thread::Thread,
) -> (Duration, Vec<u64>) {
    let warm = count / 10;
    let mut there = vec![false; subscribers];
    let (mut missing, mut delivered) = (subscribers, 0);
    let mut start = Instant::now();
    let mut took = Vec::with_capacity(count);
    while delivered < count {
        links.hear(|at, body| {
            let number = u64::from_be_bytes(*body.first_chunk().expect("a number"));
            if number == PROBE {
                missing -= usize::from(!std::mem::replace(&mut there[at], true));
                return;
            }
            delivered += 1;
            if delivered == warm {
                start = Instant::now();
            } else if delivered > warm {
                took.push(nanos(shared.origin) - number);
            }
        });
        shared.delivered.store(delivered, Ordering::Release);
        if missing == 0 {
            shared.is_ready.store(true, Ordering::Release);
        }
        publisher.unpark();
    }
    let wall = start.elapsed();
    links.close();
    (wall, took)
}

#[allow(clippy::print_stdout)] // the result
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [protocol, front, back, rest @ ..] = &arguments[..] else { panic!("see the top of this file") };
    let numbers: Vec<usize> = rest.iter().map_while(|number| number.parse().ok()).collect();
    let [publishers, subscribers, window, count, bytes] = numbers[..] else { panic!("see the top of this file") };
    let key = rest.get(5).map(String::as_str);
    let protocol = match protocol.as_str() {
        "mc0" => Protocol::Mc0,
        "mtl" => Protocol::Mtl,
        "contents" => Protocol::Contents,
        "addressed" => Protocol::Addressed,
        "frames" => Protocol::Frames,
        "nats" => Protocol::Wire(wires::Protocol::Nats),
        "mqtt" => Protocol::Wire(wires::Protocol::Mqtt),
        "mc0-wire" => Protocol::Wire(wires::Protocol::Mc0),
        _ => Protocol::PubSub,
    };
    let shared =
        Arc::new(Shared { delivered: AtomicUsize::new(0), is_ready: AtomicBool::new(false), origin: Instant::now() });
    let hearing = thread::spawn({
        let (shared, publisher) = (Arc::clone(&shared), thread::current());
        let links = (back.clone(), key.map(str::to_owned));
        move || {
            let links = Links::open(protocol, &links.0, subscribers, links.1.as_deref(), true);
            listen(links, subscribers, count, &shared, &publisher)
        }
    });
    let mut links = Links::open(protocol, front, publishers, key, false);
    let mut body = vec![0x55; bytes];
    body[..8].copy_from_slice(&PROBE.to_be_bytes());
    let mut number = 0;
    while !shared.is_ready.load(Ordering::Acquire) {
        number += 1;
        (0..publishers).for_each(|at| links.put(protocol, at, number, &body));
        links.flush();
        thread::sleep(Duration::from_millis(20));
    }
    let (mut put, messages) = (0, count.div_ceil(subscribers));
    while put < messages {
        let delivered = shared.delivered.load(Ordering::Acquire);
        if put * subscribers >= delivered + window {
            links.flush();
            thread::park_timeout(GLANCE);
            continue;
        }
        body[..8].copy_from_slice(&nanos(shared.origin).to_be_bytes());
        number += 1;
        links.put(protocol, put % publishers, number, &body);
        put += 1;
    }
    links.flush();
    let (wall, mut took) = hearing.join().expect("the subscribers end");
    took.sort_unstable();
    #[allow(clippy::cast_precision_loss)] // not that many
    let at = |percent: usize| took[(took.len() - 1) * percent / 100] as f64 / 1e3;
    #[allow(clippy::cast_precision_loss)] // not that many
    let rate = took.len() as f64 / wall.as_secs_f64();
    println!("{rate:.0} {:.1} {:.1} {:.1}", at(50), at(99), at(100));
    links.close();
}
