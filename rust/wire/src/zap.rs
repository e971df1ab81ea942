//! ZAP 1.0: which CURVE clients a context lets in.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use smallvec::smallvec;

use crate::{
    ErrorKind, Event, Frames, Incoming, Machine, Nanos, Open, Output, SocketEvent, SocketKind, SocketOptions, Weight,
};

/// Where a context's sockets ask.
const ENDPOINT: &str = "inproc://zeromq.zap.01";

const VERSION: &[u8] = b"1.0";

/// A CURVE public key.
pub type Key = [u8; 32];

/// The authenticator's only socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Zap;

/// What an authenticator tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Where the client came from.
    pub address: String,
    /// Its key in Z85; empty when it had none.
    pub key: String,
}

impl Event for Refused {
    fn weight(&self) -> Weight {
        Weight::Notice(self.address.len() + self.key.len())
    }
}

/// Answers the questions of the sockets of its context.
#[derive(Debug)]
pub struct Authenticator {
    allowed: HashSet<Key>,
    outputs: VecDeque<Output<Zap>>,
    events: VecDeque<Refused>,
    refused: u64,
    closed: bool,
}

impl Authenticator {
    /// An authenticator that lets in the holders of these keys.
    pub fn new(allowed: HashSet<Key>) -> Self {
        let open = Output::Open(Open {
            socket: Zap,
            kind: SocketKind::Rep,
            bind: vec![ENDPOINT.to_owned()],
            connect: vec![],
            options: SocketOptions::default(),
        });
        Self { allowed, outputs: VecDeque::from([open]), events: VecDeque::new(), refused: 0, closed: false }
    }

    fn answer(&mut self, request: &Frames) -> Option<Frames> {
        let [version, id, _domain, address, _identity, mechanism, credentials @ ..] = &request[..] else { return None };
        let key = credentials.first().and_then(|key| Key::try_from(&key[..]).ok());
        let is_known = key.is_some_and(|key| self.allowed.contains(&key));
        let name = key.map(|key| z85(&key)).unwrap_or_default();
        let (status, text, user_id) = if version == VERSION && mechanism == &b"CURVE"[..] && is_known {
            ("200", "OK", Bytes::from(name))
        } else {
            self.refused += 1;
            let address = String::from_utf8_lossy(address).into_owned();
            self.events.push_back(Refused { address, key: name });
            ("400", "this key is not let in", Bytes::new())
        };
        Some(smallvec![
            Bytes::from_static(VERSION),
            id.clone(),
            Bytes::from_static(status.as_bytes()),
            Bytes::from_static(text.as_bytes()),
            user_id,
            Bytes::new(),
        ])
    }
}

impl Machine for Authenticator {
    type Socket = Zap;
    type Event = Refused;
    /// The keys to let in from now on.
    type Verb = HashSet<Key>;
    /// How many were refused.
    type Stats = u64;

    fn handle_message(&mut self, _now: Nanos, incoming: Incoming<Zap>) -> Option<ErrorKind> {
        // A REP socket must answer; libzmq itself asks, so a request that is none does not occur.
        let frames = self.answer(&incoming.frames).unwrap_or_else(|| smallvec![Bytes::new()]);
        self.outputs.push_back(Output::Send { id: None, socket: Zap, to: None, frames, until: None });
        None
    }

    fn handle_socket(&mut self, _now: Nanos, _socket: Zap, event: SocketEvent) {
        if event == SocketEvent::Closed {
            self.closed = true;
        }
    }

    fn handle_timeout(&mut self, _now: Nanos) {}

    fn handle_verb(&mut self, _now: Nanos, allowed: HashSet<Key>) {
        self.allowed = allowed;
    }

    fn handle_close(&mut self, _now: Nanos, _grace: Duration) {
        self.outputs.push_back(Output::Close { socket: Zap, linger: Duration::ZERO });
    }

    fn poll_output(&mut self) -> Option<Output<Zap>> {
        self.outputs.pop_front()
    }

    fn poll_event(&mut self) -> Option<Refused> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        None
    }

    fn stats(&self) -> u64 {
        self.refused
    }

    fn is_closed(&self) -> bool {
        self.closed
    }
}

/// A key in the letters of ZeroMQ's RFC 32.
pub fn z85(key: &Key) -> String {
    const LETTERS: &[u8; 85] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
    let mut text = String::with_capacity(40);
    for chunk in key.chunks_exact(4) {
        let value = chunk.iter().fold(0u32, |value, byte| value << 8 | u32::from(*byte));
        for place in [85 * 85 * 85 * 85, 85 * 85 * 85, 85 * 85, 85, 1] {
            text.push(LETTERS[(value / place % 85) as usize].into());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(key: Key) -> Incoming<Zap> {
        let frames = [&b"1.0"[..], b"7", b"", b"127.0.0.1", b"", b"CURVE", &key].map(Bytes::copy_from_slice);
        Incoming { socket: Zap, peer: None, user_id: None, frames: frames.into_iter().collect() }
    }

    fn status(zap: &mut Authenticator, key: Key) -> Bytes {
        zap.handle_message(Nanos(0), request(key));
        loop {
            match zap.poll_output() {
                Some(Output::Send { frames, .. }) => return frames[2].clone(),
                Some(_) => {}
                None => panic!("no answer"),
            }
        }
    }

    #[test]
    fn lets_in_who_is_known_and_no_one_else() {
        let mut zap = Authenticator::new(HashSet::from([[1; 32]]));
        assert_eq!(status(&mut zap, [1; 32]), "200");
        assert_eq!(status(&mut zap, [2; 32]), "400");
        assert_eq!(zap.poll_event().map(|refused| refused.key), Some(z85(&[2; 32])));
        zap.handle_verb(Nanos(0), HashSet::from([[2; 32]]));
        assert_eq!(status(&mut zap, [1; 32]), "400");
        assert_eq!(status(&mut zap, [2; 32]), "200");
        assert_eq!(zap.stats(), 2);
    }

    #[test]
    fn spells_keys_as_zeromq_does() {
        // The test vector of RFC 32, four times over.
        let word = [0x86, 0x4f, 0xd2, 0x6f, 0xb5, 0x59, 0xf7, 0x5b];
        let key: Vec<u8> = word.repeat(4);
        assert_eq!(z85(&key.try_into().unwrap()), "HelloWorld".repeat(4));
    }
}
