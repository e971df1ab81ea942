//! Load for the benches of brokers: clients and workers of one service, on raw sockets.
//!
//! `service dcp|proxy|mdp FRONT BACK WORKERS CREDIT CLIENTS WINDOW COUNT BYTES [SERVER_KEY]`; `TRUNKLINE_LIBZMQ` names the
//! library. Clients dial FRONT and workers BACK. WINDOW requests are on their way at one time, of all clients together. Prints requests a
//! second, and the latencies in microseconds: median, 99th percentile, longest.

mod zmq;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use zmq::{DEALER, Zmq};

const SERVICE: &[u8] = b"bench";
const PROTOCOL: &[u8] = b"DGBX\x01";
const REGISTER: &[u8] = b"\x01";
const PING: &[u8] = b"\x02";
const PONG: &[u8] = b"\x03";
const REQUEST: &[u8] = b"\x04";
const REPLY: &[u8] = b"\x05";

/// MDP/0.2 as majortomo speaks it: a worker has one request at a time.
mod mdp {
    pub(crate) const CLIENT: &[u8] = b"MDPC02";
    pub(crate) const WORKER: &[u8] = b"MDPW02";
    pub(crate) const READY: &[u8] = b"\x01";
    pub(crate) const REQUEST: &[u8] = b"\x02";
    pub(crate) const FINAL: &[u8] = b"\x04";
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Dcp,
    /// DCP's requests, which come back as they are.
    Proxy,
    Mdp,
}

impl Protocol {
    fn register(self, zmq: &Zmq, at: usize) {
        match self {
            Self::Dcp => zmq.send(at, &[b"", PROTOCOL, REGISTER, SERVICE]),
            Self::Mdp => zmq.send(at, &[b"", mdp::WORKER, mdp::READY, SERVICE]),
            Self::Proxy => {}
        }
    }

    fn ask(self, zmq: &Zmq, at: usize, number: &[u8], data: &[u8]) {
        match self {
            Self::Dcp | Self::Proxy => {
                zmq.send(at, &[b"", PROTOCOL, REQUEST, SERVICE, b"", number, b"", data]);
            }
            Self::Mdp => zmq.send(at, &[b"", mdp::CLIENT, mdp::REQUEST, SERVICE, number, data]),
        }
    }

    /// The frame of a reply that holds the number of its request.
    fn number(self) -> usize {
        match self {
            Self::Dcp | Self::Proxy => 5,
            Self::Mdp => 3,
        }
    }
}

/// How long a thread waits before it checks whether all is over.
const GLANCE: Duration = Duration::from_millis(100);

fn dealers(endpoint: &str, count: usize, server_key: Option<&str>) -> Zmq {
    let mut zmq = Zmq::new();
    for _ in 0..count {
        let socket = zmq.open(DEALER, server_key);
        zmq.connect(socket, endpoint);
    }
    zmq
}

/// What a worker knows of the requests it is due: a grant made while another is unused counts for nothing, and is not
/// reported (DCP-33).
struct Grants {
    made: VecDeque<Instant>,
    unused: u32,
    pings: VecDeque<Instant>,
    round_trip: Duration,
}

impl Grants {
    fn new() -> Self {
        Self {
            made: VecDeque::from([Instant::now()]),
            unused: 1,
            pings: VecDeque::new(),
            round_trip: Duration::from_millis(50),
        }
    }

    fn make(&mut self, now: Instant) {
        self.made.push_back(now);
        self.unused += 1;
    }

    fn due(&mut self, now: Instant) -> u32 {
        while self.made.front().is_some_and(|made| now - *made > 2 * self.round_trip) {
            self.made.pop_front();
        }
        self.unused.min(1 + u32::try_from(self.made.len()).unwrap_or(u32::MAX))
    }
}

/// Workers that answer at once, and ask for up to `credit` requests at one time.
fn work(protocol: Protocol, mut zmq: Zmq, credit: u32, over: &AtomicBool) {
    let mut grants: Vec<_> = (0..zmq.sockets()).map(|_| Grants::new()).collect();
    for at in 0..zmq.sockets() {
        protocol.register(&zmq, at);
    }
    while !over.load(Ordering::Relaxed) {
        zmq.wait(GLANCE);
        for (at, grants) in grants.iter_mut().enumerate() {
            while zmq.is_readable(at) && zmq.receive(at, false) {
                match protocol {
                    Protocol::Dcp => {}
                    Protocol::Proxy => {
                        zmq.answer(at, &[], 0);
                        continue;
                    }
                    Protocol::Mdp => {
                        if zmq.frame(2) == mdp::REQUEST {
                            zmq.answer(at, &[b"", mdp::WORKER, mdp::FINAL], 3);
                        }
                        continue;
                    }
                }
                let now = Instant::now();
                if zmq.frame(2) == PONG {
                    grants.round_trip = grants.pings.pop_front().map_or(grants.round_trip, |sent| now - sent);
                }
                if zmq.frame(2) != REQUEST {
                    continue;
                }
                grants.unused = grants.unused.saturating_sub(1);
                zmq.answer(at, &[b"", PROTOCOL, REPLY], 4);
                grants.make(now);
                if grants.due(now) < credit {
                    grants.make(now);
                    grants.pings.push_back(now);
                    zmq.send(at, &[b"", PROTOCOL, PING]);
                }
            }
        }
    }
    zmq.close(Duration::ZERO);
}

#[allow(clippy::print_stdout)] // the result
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [protocol, front, back, rest @ ..] = &arguments[..] else { panic!("see the top of this file") };
    let numbers: Vec<usize> = rest.iter().map_while(|number| number.parse().ok()).collect();
    let [workers, credit, clients, window, count, bytes] = numbers[..] else { panic!("see the top of this file") };
    let server_key = rest.get(6).map(String::as_str);
    let protocol = match protocol.as_str() {
        "dcp" => Protocol::Dcp,
        "mdp" => Protocol::Mdp,
        _ => Protocol::Proxy,
    };
    let over = Arc::new(AtomicBool::new(false));
    let credit = u32::try_from(credit).expect("a small number");
    let working = thread::spawn({
        let (over, back, key) = (Arc::clone(&over), back.clone(), server_key.map(str::to_owned));
        move || work(protocol, dealers(&back, workers, key.as_deref()), credit, &over)
    });

    let mut zmq = dealers(front, clients, server_key);
    let data = vec![0x55; bytes];
    // The first tenth warms up.
    let warm = count / 10;
    let (mut sent, mut replies, mut start) = (0, 0, Instant::now());
    let mut sent_at = vec![start; count];
    let mut latencies = Vec::with_capacity(count);
    while replies < count {
        while sent < count && sent - replies < window {
            sent_at[sent] = Instant::now();
            protocol.ask(&zmq, sent % clients, &sent.to_be_bytes(), &data);
            sent += 1;
        }
        zmq.wait(GLANCE);
        for at in 0..clients {
            while zmq.is_readable(at) && zmq.receive(at, false) {
                let number =
                    usize::from_be_bytes(zmq.frame(protocol.number()).try_into().expect("the number of a request"));
                replies += 1;
                if replies == warm {
                    start = Instant::now();
                } else if replies > warm {
                    latencies.push(sent_at[number].elapsed());
                }
            }
        }
    }
    let wall = start.elapsed().as_secs_f64();
    over.store(true, Ordering::Relaxed);
    working.join().expect("the workers end");
    latencies.sort_unstable();
    let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100].as_secs_f64() * 1e6;
    #[allow(clippy::cast_precision_loss)] // not that many
    let rate = (count - warm) as f64 / wall;
    println!("{rate:.0} {:.1} {:.1} {:.1}", at(50), at(99), at(100));
    zmq.close(Duration::ZERO);
}
