//! Drives a machine with any calls in any order: valid messages with numbers at their limits, verbs, time in leaps, and a
//! transport that takes sends, refuses them or never says.

pub mod captures;
pub mod messages;
pub mod rows;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use trunkline_wire::{Event, Frames, Incoming, Machine, Nanos, Output, SendId, SocketEvent, Unsent};

/// Numbers at which arithmetic fails, if anywhere.
const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    127,
    128,
    (1 << 16) - 1,
    (1 << 32) - 1,
    1 << 32,
    (1 << 62) - 1,
    (1 << 63) - 2,
    (1 << 63) - 1,
    1 << 63,
    (1 << 63) + 1,
    u64::MAX - 2,
    u64::MAX - 1,
    u64::MAX,
];

const LEAPS: [Duration; 8] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_millis(1),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(3600),
    Duration::from_secs(366 * 24 * 3600),
];

const GRACE: Duration = Duration::from_secs(1);

/// No machine has this much to do at one time.
const MANY: usize = 100_000;

/// What the fuzzer gives, taken from the front.
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    /// A byte, until there is none.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number below 256, or one at a limit.
    pub fn number(&mut self) -> Option<u64> {
        let byte = self.byte()?;
        Some(if byte & 0x80 == 0 { NUMBERS[usize::from(byte & 0x0f)] } else { u64::from(byte & 0x7f) })
    }

    /// A duration at a limit of some kind.
    pub fn time(&mut self) -> Option<Duration> {
        let byte = self.byte()?;
        Some(if byte & 0x80 == 0 { LEAPS[usize::from(byte & 0x07)] } else { Duration::from_nanos(self.number()?) })
    }

    /// One of a few.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let byte = usize::from(self.byte()?);
        from.get(byte % from.len().max(1)).cloned()
    }

    /// A few bytes, often none.
    pub fn bytes(&mut self) -> Option<Bytes> {
        let length = usize::from(self.byte()? % 8).min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(Bytes::copy_from_slice(bytes))
    }

    /// A few of what `one` gives.
    pub fn several<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.byte()? % 4;
        (0..count).map(|_| one(self)).collect()
    }
}

/// What may happen to a machine besides time.
pub trait Calls<M: Machine> {
    /// A message and the peer it is from.
    fn message(&mut self, input: &mut Input<'_>) -> Option<(Option<Bytes>, Frames)>;

    /// What the user asks for.
    fn verb(&mut self, input: &mut Input<'_>) -> Option<M::Verb>;

    /// What the user is told.
    fn told(&mut self, _event: M::Event) {}
}

struct World<'a, M: Machine, C> {
    machine: M,
    calls: C,
    now: Nanos,
    open: Vec<M::Socket>,
    /// Sends whose fate is not known.
    sent: VecDeque<(M::Socket, SendId)>,
    input: Input<'a>,
}

/// Does what the input says until it ends, then closes the machine.
pub fn drive<M: Machine, C: Calls<M>>(machine: M, calls: C, input: &[u8]) {
    let mut world =
        World { machine, calls, now: Nanos(0), open: vec![], sent: VecDeque::new(), input: Input(input) };
    world.drain();
    while world.step().is_some() {
        world.drain();
    }
    world.drain();
    world.end();
}

impl<M: Machine, C: Calls<M>> World<'_, M, C> {
    fn step(&mut self) -> Option<()> {
        match self.input.byte()? % 16 {
            0..=5 => {
                let socket = self.input.pick(&self.open)?;
                let (peer, frames) = self.calls.message(&mut self.input)?;
                self.machine.handle_message(self.now, Incoming { socket, peer, user_id: None, host: None, frames });
            }
            6..=8 => {
                let verb = self.calls.verb(&mut self.input)?;
                self.machine.handle_verb(self.now, verb);
            }
            9 | 10 => {
                let leap = self.input.time()?;
                // Centuries are enough, and so is their end.
                self.now = (self.now + leap).min(Nanos(u64::MAX / 4));
                self.act();
            }
            11 => self.settle(true)?,
            12 => self.settle(false)?,
            13 => {
                let socket = self.input.pick(&self.open)?;
                let endpoint = "tcp://127.0.0.1:1".to_owned();
                let event = match self.input.byte()? % 4 {
                    0 => SocketEvent::Connected(endpoint.into()),
                    1 => SocketEvent::Disconnected(endpoint.into()),
                    2 => SocketEvent::HandshakeFailed { endpoint, reason: "no".to_owned() },
                    _ => SocketEvent::OpenFailed { endpoint, reason: "no".to_owned() },
                };
                self.machine.handle_socket(self.now, socket, event);
            }
            14 => {
                let pressed = self.input.byte()? & 1 == 0;
                self.machine.handle_pressure(self.now, pressed);
                let _ = (self.machine.stats(), self.machine.backlog(), self.machine.progress());
            }
            _ => {
                // Seldom, since little is left to happen then.
                if self.input.byte()? == 0xff {
                    let grace = self.input.time()?;
                    self.machine.handle_close(self.now, grace);
                }
            }
        }
        Some(())
    }

    /// Lets due things be done, as often as they say that they are.
    fn act(&mut self) {
        for _ in 0..MANY {
            if self.machine.poll_timeout().is_none_or(|at| at > self.now) {
                return;
            }
            self.machine.handle_timeout(self.now);
            self.drain();
        }
        panic!("what is due is never done");
    }

    fn settle(&mut self, is_taken: bool) -> Option<()> {
        let at = usize::from(self.input.byte()?) % self.sent.len().max(1);
        let Some((socket, id)) = self.sent.remove(at) else { return Some(()) };
        let event = if is_taken {
            SocketEvent::Sent(id)
        } else {
            let why = [Unsent::Unreachable, Unsent::PeerFull, Unsent::Expired, Unsent::Closed];
            SocketEvent::Unsent(id, self.input.pick(&why)?)
        };
        self.machine.handle_socket(self.now, socket, event);
        Some(())
    }

    fn drain(&mut self) {
        for _ in 0..MANY {
            let Some(output) = self.machine.poll_output() else {
                while let Some(event) = self.machine.poll_event() {
                    let _ = event.weight();
                    self.calls.told(event);
                }
                return;
            };
            self.carry_out(output);
        }
        panic!("there is no end of what it wants");
    }

    fn carry_out(&mut self, output: Output<M::Socket>) {
        match output {
            Output::Open(open) => {
                self.open.push(open.socket);
                for endpoint in open.bind {
                    self.machine.handle_socket(self.now, open.socket, SocketEvent::Bound(endpoint));
                }
            }
            Output::Send { id: Some(id), socket, .. } => {
                if self.open.contains(&socket) {
                    self.sent.push_back((socket, id));
                } else {
                    self.machine.handle_socket(self.now, socket, SocketEvent::Unsent(id, Unsent::Closed));
                }
            }
            Output::Withdraw { socket, id } => {
                if let Some(at) = self.sent.iter().position(|sent| *sent == (socket, id)) {
                    self.sent.remove(at);
                    self.machine.handle_socket(self.now, socket, SocketEvent::Unsent(id, Unsent::Expired));
                }
            }
            Output::Close { socket, .. } => {
                self.open.retain(|open| *open != socket);
                let (gone, kept): (VecDeque<_>, _) = std::mem::take(&mut self.sent).into_iter().partition(|(at, _)| *at == socket);
                self.sent = kept;
                for (_, id) in gone {
                    self.machine.handle_socket(self.now, socket, SocketEvent::Unsent(id, Unsent::Closed));
                }
                self.machine.handle_socket(self.now, socket, SocketEvent::Closed);
            }
            Output::Send { id: None, .. } | Output::Connect { .. } | Output::Disconnect { .. } => {}
        }
    }

    /// Whatever has happened, a machine that is closed comes to its end in time.
    fn end(&mut self) {
        self.machine.handle_pressure(self.now, false);
        self.machine.handle_close(self.now, GRACE);
        self.drain();
        for _ in 0..100 {
            self.now = self.now + GRACE / 10;
            self.act();
        }
        assert!(self.machine.is_closed(), "it does not end");
        let _ = self.machine.stats();
    }
}
