//! Load for the benches of brokers: clients and workers of one service, on raw sockets.
//!
//! `service dcp|proxy FRONT BACK WORKERS CREDIT CLIENTS WINDOW COUNT BYTES`; `TRUNKLINE_LIBZMQ` names the library. Clients
//! dial FRONT and workers BACK. WINDOW requests are on their way at one time, of all clients together. Prints requests a
//! second, and the latencies in microseconds: median, 99th percentile, longest.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use smallvec::smallvec;
use trunkline_engine::libzmq::{Context, LibzmqTransport, load};
use trunkline_engine::{Interest, Received, Signal, Taken, Transport};
use trunkline_wire::{Frames, SocketKind, SocketOptions};

type Socket = <LibzmqTransport as Transport>::Socket;

const SERVICE: &[u8] = b"bench";
const PROTOCOL: &[u8] = b"DGBX\x01";
const REGISTER: &[u8] = b"\x01";
const PING: &[u8] = b"\x02";
const PONG: &[u8] = b"\x03";
const REQUEST: &[u8] = b"\x04";
const REPLY: &[u8] = b"\x05";

fn transport() -> LibzmqTransport {
    let library = std::env::var_os("TRUNKLINE_LIBZMQ").expect("TRUNKLINE_LIBZMQ is set");
    let zmq = load(&PathBuf::from(library)).expect("libzmq");
    LibzmqTransport::new(zmq, Context::private(zmq).expect("a context"), vec![]).expect("a transport")
}

fn dealers(transport: &mut LibzmqTransport, endpoint: &str, count: usize) -> Vec<Socket> {
    let open = |_| {
        let mut socket = transport.open(SocketKind::Dealer, &SocketOptions::default()).expect("a socket");
        transport.connect(&mut socket, endpoint).expect("connected");
        socket
    };
    (0..count).map(open).collect()
}

/// What each socket has, once there is something; nothing after a while without.
fn receive(transport: &mut LibzmqTransport, sockets: &mut [Socket], never: &Signal) -> Vec<(usize, Received)> {
    let mut received = vec![];
    for (at, socket) in sockets.iter_mut().enumerate() {
        while let Some(message) = transport.receive(socket).expect("received") {
            received.push((at, message));
        }
    }
    if received.is_empty() {
        let mut interests: Vec<_> = sockets
            .iter_mut()
            .map(|socket| Interest {
                socket,
                read: true,
                write: false,
                readable: false,
                writable: false,
                monitored: false,
            })
            .collect();
        transport.wait(&mut interests, &[never.as_fd()], Some(Duration::from_millis(100))).expect("waited");
    }
    received
}

fn send(transport: &mut LibzmqTransport, socket: &mut Socket, frames: &Frames) {
    while transport.send(socket, None, frames).expect("sent") != Taken::Yes {
        thread::yield_now();
    }
}

fn header(message_type: &'static [u8]) -> Frames {
    smallvec![Bytes::new(), Bytes::from_static(PROTOCOL), Bytes::from_static(message_type)]
}

/// What a worker knows of the requests it is due: a grant made while another is unused counts for nothing, and nobody
/// says so (DCP-33).
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
fn work(is_dcp: bool, endpoint: &str, count: usize, credit: u32, over: &AtomicBool) {
    let never = Signal::new().expect("a signal");
    let mut transport = transport();
    let mut sockets = dealers(&mut transport, endpoint, count);
    let mut grants: Vec<_> = (0..count).map(|_| Grants::new()).collect();
    if is_dcp {
        for socket in &mut sockets {
            let mut register = header(REGISTER);
            register.push(Bytes::from_static(SERVICE));
            send(&mut transport, socket, &register);
        }
    }
    while !over.load(Ordering::Relaxed) {
        for (at, Received { frames, .. }) in receive(&mut transport, &mut sockets, &never) {
            if !is_dcp {
                send(&mut transport, &mut sockets[at], &frames);
                continue;
            }
            let (grants, now) = (&mut grants[at], Instant::now());
            if frames[2] == PONG {
                grants.round_trip = grants.pings.pop_front().map_or(grants.round_trip, |sent| now - sent);
            }
            if frames[2] != REQUEST {
                continue;
            }
            grants.unused = grants.unused.saturating_sub(1);
            let mut reply = header(REPLY);
            reply.extend(frames.into_iter().skip(4));
            send(&mut transport, &mut sockets[at], &reply);
            grants.make(now);
            if grants.due(now) < credit {
                grants.make(now);
                grants.pings.push_back(now);
                send(&mut transport, &mut sockets[at], &header(PING));
            }
        }
    }
    for socket in sockets {
        transport.close(socket, Duration::ZERO);
    }
}

#[allow(clippy::print_stdout)] // the result
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [protocol, front, back, numbers @ ..] = &arguments[..] else { panic!("see the top of this file") };
    let numbers: Vec<usize> = numbers.iter().map(|number| number.parse().expect("a number")).collect();
    let [workers, credit, clients, window, count, bytes] = numbers[..] else { panic!("see the top of this file") };
    let (is_dcp, back) = (protocol == "dcp", back.clone());
    let over = Arc::new(AtomicBool::new(false));
    let credit = u32::try_from(credit).expect("a small number");
    let working = thread::spawn({
        let over = Arc::clone(&over);
        move || work(is_dcp, &back, workers, credit, &over)
    });

    let never = Signal::new().expect("a signal");
    let mut transport = transport();
    let mut sockets = dealers(&mut transport, front, clients);
    let data = Bytes::from(vec![0x55; bytes]);
    let request = |number: usize| {
        let mut frames = header(REQUEST);
        let number = Bytes::copy_from_slice(&number.to_be_bytes());
        frames.extend([Bytes::from_static(SERVICE), Bytes::new(), number, Bytes::new(), data.clone()]);
        frames
    };
    // The first tenth warms up.
    let warm = count / 10;
    let (mut sent, mut replies, mut start) = (0, 0, Instant::now());
    let mut sent_at = vec![start; count];
    let mut latencies = Vec::with_capacity(count);
    while replies < count {
        while sent < count && sent - replies < window {
            sent_at[sent] = Instant::now();
            send(&mut transport, &mut sockets[sent % clients], &request(sent));
            sent += 1;
        }
        for (_, Received { frames, .. }) in receive(&mut transport, &mut sockets, &never) {
            let number = usize::from_be_bytes(frames[5][..].try_into().expect("the number of a request"));
            replies += 1;
            if replies == warm {
                start = Instant::now();
            } else if replies > warm {
                latencies.push(sent_at[number].elapsed());
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
    for socket in sockets {
        transport.close(socket, Duration::ZERO);
    }
}
