//! The smallest broker of DCP: one service, workers that grant by replies and pings; no limit, no heartbeat, no record
//! of a worker's requests. It shows the least cost of a broker on libzmq.
//!
//! `least_broker ENDPOINT`; `TRUNKLINE_LIBZMQ` names the library.

mod zmq;

use std::collections::VecDeque;
use std::time::Duration;

use smallvec::SmallVec;
use zmq::{ROUTER, Zmq};

const PROTOCOL: &[u8] = b"DGBX\x01";
const REGISTER: u8 = 1;
const PING: u8 = 2;
const PONG: &[u8] = b"\x03";
const REQUEST: u8 = 4;
const REPLY: u8 = 5;

/// A request without its envelope: frames behind the protocol's name, the client's address among them.
struct Request {
    bytes: Vec<u8>,
    ends: SmallVec<[usize; 8]>,
}

impl Request {
    /// The request in the last message received.
    fn of(zmq: &Zmq) -> Self {
        let (mut bytes, mut ends) = (Vec::with_capacity(128), SmallVec::new());
        for frame in
            [zmq.frame(3), zmq.frame(4), zmq.frame(0)].into_iter().chain((5..zmq.frames()).map(|n| zmq.frame(n)))
        {
            bytes.extend_from_slice(frame);
            ends.push(bytes.len());
        }
        Self { bytes, ends }
    }

    fn send(&self, zmq: &Zmq, worker: &[u8]) {
        let mut frames: SmallVec<[&[u8]; 12]> = SmallVec::from_slice(&[worker, b"", PROTOCOL]);
        let mut start = 0;
        for &end in &self.ends {
            frames.push(&self.bytes[start..end]);
            start = end;
        }
        zmq.send(0, &frames);
    }
}

fn main() {
    let endpoint = std::env::args().nth(1).expect("an endpoint");
    let mut zmq = Zmq::new();
    zmq.open(ROUTER, None);
    zmq.bind(0, &endpoint);
    let (mut waiting, mut free) = (VecDeque::<Request>::new(), VecDeque::<Vec<u8>>::new());
    loop {
        zmq.wait(Duration::from_secs(1));
        while zmq.receive(0, false) {
            match *zmq.frame(3) {
                [REQUEST] => match free.pop_front() {
                    Some(worker) => Request::of(&zmq).send(&zmq, &worker),
                    None => waiting.push_back(Request::of(&zmq)),
                },
                [kind @ (REGISTER | PING | REPLY)] => {
                    let worker = zmq.frame(0).to_vec();
                    match kind {
                        REPLY => {
                            let frames = (1..zmq.frames()).map(|number| zmq.frame(number));
                            let reply: SmallVec<[&[u8]; 12]> = [zmq.frame(4)].into_iter().chain(frames).collect();
                            zmq.send(0, &reply);
                        }
                        PING => zmq.send(0, &[&worker, b"", PROTOCOL, PONG]),
                        _ => zmq.send(0, &[&worker, b"", PROTOCOL, zmq.frame(3), zmq.frame(4)]),
                    }
                    if !free.contains(&worker) {
                        match waiting.pop_front() {
                            Some(request) => request.send(&zmq, &worker),
                            None => free.push_back(worker),
                        }
                    }
                }
                _ => {}
            }
        }
    }
}
