//! Anything to both sides of CURVE, with boxes that a fuzzer can make: a client and a server, whose bytes are changed, kept
//! back and played again.
#![no_main]

use std::sync::Arc;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_wire::Nanos;
use trunkline_zmtp::curve::{ClientKeys, Count, Crypto, KeyPair, Pieces, Prefix, Secret, ServerKeys, Tag};
use trunkline_zmtp::{Connection, Event, Security, Settings, Side, SocketType};

/// Keys are their own public ones, a shared one is the sum of both, and a tag is the sum of everything.
#[derive(Debug)]
struct Toy;

impl Crypto for Toy {
    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(1);
    }

    fn public_key(&self, secret: &Secret) -> [u8; 32] {
        *secret.bytes()
    }

    fn shared_key(&self, public: &[u8; 32], secret: &Secret) -> Option<Secret> {
        let mut shared = *public;
        shared.iter_mut().zip(secret.bytes()).for_each(|(one, other)| *one = one.wrapping_add(*other));
        (*public != [0; 32]).then(|| Secret::new(&shared))
    }

    fn derive(&self, shared: &Secret, prefix: &Prefix) -> Secret {
        let mut key = *shared.bytes();
        key.iter_mut().zip(prefix).for_each(|(one, other)| *one = one.wrapping_add(*other));
        Secret::new(&key)
    }

    fn seal(&self, key: &Secret, count: Count, text: &mut [u8]) -> Tag {
        let all = key.bytes().iter().chain(&count).chain(&*text);
        [all.fold(0u8, |sum, byte| sum.wrapping_add(*byte)); 16]
    }

    fn open(&self, key: &Secret, count: Count, text: &mut [u8], tag: &Tag) -> bool {
        // Sixteen bytes that are to be one: the fuzzer guesses it.
        self.seal(key, count, text)[0] == tag[0]
    }

    fn pieces(&self, key: &Secret, count: Count) -> Box<dyn Pieces> {
        Box::new(Sum(self.seal(key, count, &mut [])[0]))
    }
}

#[derive(Debug)]
struct Sum(u8);

impl Pieces for Sum {
    fn apply(&mut self, _piece: &mut [u8]) {}

    fn cover(&mut self, piece: &[u8]) {
        self.0 = piece.iter().fold(self.0, |sum, byte| sum.wrapping_add(*byte));
    }

    fn tag(&mut self) -> Tag {
        [self.0; 16]
    }
}

fn keys(byte: u8) -> KeyPair {
    KeyPair { public: [byte; 32], secret: Secret::new(&[byte; 32]) }
}

fn sides() -> [Connection; 2] {
    let client = Security::CurveClient(Arc::new(ClientKeys { crypto: Arc::new(Toy), keys: keys(7), server: [9; 32] }));
    let server = Security::CurveServer(Arc::new(ServerKeys { crypto: Arc::new(Toy), keys: keys(9) }));
    let side = |security, socket, side| {
        let settings = Settings { security, ..Settings::new(socket, Bytes::new()) };
        Connection::new(Arc::new(settings), side, Nanos(0))
    };
    [side(client, SocketType::Dealer, Side::Dialled), side(server, SocketType::Router, Side::Accepted)]
}

fuzz_target!(|input: &[u8]| {
    let mut sides = sides();
    let mut last: [Vec<u8>; 2] = Default::default();
    let mut input = input.iter().copied();
    while let (Some(what), Some(at), Some(byte)) = (input.next(), input.next(), input.next()) {
        let from = usize::from(what & 1);
        sides[from].answer_ping();
        let mut bytes: Vec<u8> = sides[from].chunks().flatten().copied().collect();
        sides[from].handle_written(bytes.len());
        match what >> 1 & 7 {
            0 => bytes.clone_from(&last[from]),
            1 => bytes.truncate(at.into()),
            2 => {
                if let Some(place) = bytes.get_mut(usize::from(at)) {
                    *place = byte;
                }
            }
            3 => bytes.extend(input.by_ref().take(at.into())),
            4 => _ = sides[from].send(&[Bytes::from(vec![byte; at.into()]), Bytes::new()]),
            5 => sides[from].handle_timeout(Nanos(u64::from(at) << 32)),
            6 => sides[from].deny(),
            _ => {}
        }
        last[from].clone_from(&bytes);
        sides[1 - from].receive(Nanos(u64::from(byte)), bytes.into());
        let mut is_over = false;
        while let Some(event) = sides[1 - from].poll_event() {
            assert!(!is_over, "something happens after the end");
            match event {
                Event::Authenticate(_) if at & 1 == 0 => sides[1 - from].allow(None),
                Event::Failed(_) => is_over = true,
                Event::Authenticate(_) | Event::Message(_) | Event::Ready(_) => {}
            }
        }
        assert!(is_over <= sides[1 - from].is_over());
    }
});
