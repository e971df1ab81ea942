//! The smallest bus of mc0: topics, subscribers and their messages; no limit, no liveness, no counters. It shows the
//! least cost of a bus on a ROUTER of libzmq.
//!
//! `least_bus ENDPOINT`; `TRUNKLINE_LIBZMQ` names the library.

mod zmq;

use std::collections::HashMap;
use std::time::Duration;

use smallvec::SmallVec;
use zmq::{ROUTER, Zmq};

/// A message without its receiver's address: frames and their ends.
#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
    ends: SmallVec<[usize; 8]>,
}

impl Message {
    fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    fn send(&self, zmq: &Zmq, to: &[u8]) {
        let mut frames: SmallVec<[&[u8]; 9]> = SmallVec::from_slice(&[to]);
        let mut start = 0;
        for end in &self.ends {
            frames.push(&self.bytes[start..*end]);
            start = *end;
        }
        zmq.send(0, &frames);
    }
}

/// The value of a header of the last message received, and its first positional frame.
fn headers(zmq: &Zmq, key: &[u8]) -> (Option<usize>, usize) {
    let (mut at, mut value) = (3, None);
    while at + 1 < zmq.frames() && !zmq.frame(at).is_empty() {
        if zmq.frame(at) == key {
            value = Some(at + 1);
        }
        at += 2;
    }
    (value, at + 1)
}

#[allow(clippy::print_stdout)] // it reports that it runs
fn main() {
    let endpoint = std::env::args().nth(1).expect("see the top of this file");
    let mut zmq = Zmq::new();
    let router = zmq.open(ROUTER, None);
    // Else it drops what there is no room for.
    zmq.unbounded(router);
    println!("{}", zmq.bind(router, &endpoint));
    let mut topics: HashMap<Vec<u8>, Vec<Vec<u8>>> = HashMap::new();
    loop {
        zmq.wait(Duration::from_secs(1));
        while zmq.receive(router, false) {
            // Address, delimiter, verb.
            let peer = zmq.frame(0).to_vec();
            match zmq.frame(2) {
                b"SUB" => {
                    let (id, first) = headers(&zmq, b"ID");
                    for topic in first..zmq.frames() {
                        topics.entry(zmq.frame(topic).to_vec()).or_default().push(peer.clone());
                    }
                    if let Some(id) = id {
                        zmq.send(router, &[&peer, b"", b"OK", b"ID", zmq.frame(id)]);
                    }
                }
                b"PUT" => {
                    let (Some(topic), first) = headers(&zmq, b"TOPIC") else { continue };
                    let Some(subscribers) = topics.get(zmq.frame(topic)) else { continue };
                    let mut message = Message::default();
                    let head = [b"".as_slice(), b"MESSAGE", b"TOPIC", zmq.frame(topic), b""];
                    head.into_iter()
                        .chain((first..zmq.frames()).map(|at| zmq.frame(at)))
                        .for_each(|frame| message.push(frame));
                    for subscriber in subscribers {
                        message.send(&zmq, subscriber);
                    }
                }
                _ => {}
            }
        }
    }
}
