//! Two machines as one role, or one that may have another beside it.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use trunkline_wire::{Backlog, Event, Frames, Incoming, Label, Machine, Nanos, Output, SocketEvent, Verdict, Weight};

/// One of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Either<A, B> {
    First(A),
    Second(B),
}

impl<A: Event, B: Event> Event for Either<A, B> {
    fn weight(&self) -> Weight {
        match self {
            Self::First(event) => event.weight(),
            Self::Second(event) => event.weight(),
        }
    }
}

/// Connects two machines: it takes each event first and may use the other's verbs.
pub trait Glue<A: Machine, B: Machine>: Send + 'static {
    /// The events of the user.
    type Event: Event;

    /// Takes an event of the first; gives the user's event that it becomes.
    fn handle_first(&mut self, now: Nanos, event: A::Event, second: Option<&mut B>) -> Option<Self::Event>;

    /// Takes an event of the second; gives the user's event that it becomes.
    fn handle_second(&mut self, now: Nanos, event: B::Event, first: &mut A) -> Option<Self::Event>;
}

/// Glue that does not connect them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Apart;

impl<A: Machine, B: Machine> Glue<A, B> for Apart {
    type Event = Either<A::Event, B::Event>;

    fn handle_first(&mut self, _now: Nanos, event: A::Event, _second: Option<&mut B>) -> Option<Self::Event> {
        Some(Either::First(event))
    }

    fn handle_second(&mut self, _now: Nanos, event: B::Event, _first: &mut A) -> Option<Self::Event> {
        Some(Either::Second(event))
    }
}

/// Two machines on one engine, or the first alone. The backlog and progress of the role are the first's, and when the
/// first has ended the second is closed.
pub struct Together<A: Machine, B: Machine, G: Glue<A, B>> {
    first: A,
    second: Option<B>,
    glue: G,
    events: VecDeque<G::Event>,
    /// Set while the first ends.
    closing: Option<Duration>,
}

impl<A: Machine, B: Machine, G: Glue<A, B>> Together<A, B, G> {
    /// Puts two machines together.
    pub fn new(first: A, second: Option<B>, glue: G) -> Self {
        Self { first, second, glue, events: VecDeque::new(), closing: None }
    }

    /// Shows the glue every event. Where the first is alone, its events cause nothing.
    #[inline]
    fn settle(&mut self, now: Nanos) {
        if self.second.is_some() {
            self.settle_both(now);
        }
    }

    /// The glue may cause more events.
    fn settle_both(&mut self, now: Nanos) {
        let Some(second) = &mut self.second else { return };
        if self.closing.is_some() && self.first.is_closed() {
            second.handle_close(now, self.closing.take().unwrap_or_default());
        }
        loop {
            if let Some(event) = self.first.poll_event() {
                let told = self.glue.handle_first(now, event, Some(second));
                self.events.extend(told);
            } else if let Some(event) = second.poll_event() {
                let told = self.glue.handle_second(now, event, &mut self.first);
                self.events.extend(told);
            } else {
                return;
            }
        }
    }
}

impl<A: Machine, B: Machine, G: Glue<A, B>> Machine for Together<A, B, G> {
    type Socket = Either<A::Socket, B::Socket>;
    type Event = G::Event;
    type Verb = Either<A::Verb, B::Verb>;
    type Stats = (A::Stats, B::Stats);

    #[allow(clippy::inline_always)] // a message is large, and would be copied at each call
    #[inline(always)]
    fn handle_message(&mut self, now: Nanos, incoming: Incoming<Self::Socket>) -> Verdict {
        let Incoming { socket, peer, user_id, host, frames } = incoming;
        let verdict = match socket {
            Either::First(socket) => self.first.handle_message(now, Incoming { socket, peer, user_id, host, frames }),
            Either::Second(socket) => self.second.as_mut().map_or_else(Verdict::default, |second| {
                second.handle_message(now, Incoming { socket, peer, user_id, host, frames })
            }),
        };
        self.settle(now);
        verdict
    }

    #[inline]
    fn handle_socket(&mut self, now: Nanos, socket: Self::Socket, event: SocketEvent) {
        match socket {
            Either::First(socket) => self.first.handle_socket(now, socket, event),
            Either::Second(socket) => {
                if let Some(second) = &mut self.second {
                    second.handle_socket(now, socket, event);
                }
            }
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.first.handle_timeout(now);
        if let Some(second) = &mut self.second {
            second.handle_timeout(now);
        }
        self.settle(now);
    }

    fn handle_verb(&mut self, now: Nanos, verb: Self::Verb) {
        match verb {
            Either::First(verb) => self.first.handle_verb(now, verb),
            Either::Second(verb) => {
                if let Some(second) = &mut self.second {
                    second.handle_verb(now, verb);
                }
            }
        }
        self.settle(now);
    }

    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        self.first.handle_close(now, grace);
        self.closing = Some(grace);
        self.settle(now);
    }

    fn handle_pressure(&mut self, now: Nanos, pressed: bool) {
        self.first.handle_pressure(now, pressed);
        if let Some(second) = &mut self.second {
            second.handle_pressure(now, pressed);
        }
        self.settle(now);
    }

    #[inline]
    fn poll_output(&mut self) -> Option<Output<Self::Socket>> {
        // The second's sockets come first: a beacon listens before there is anything to announce.
        if let Some(second) = &mut self.second
            && let Some(output) = second.poll_output()
        {
            return Some(output.on(Either::Second));
        }
        self.first.poll_output().map(|output| output.on(Either::First))
    }

    fn label(&self, socket: Self::Socket, to: Option<&Bytes>, frames: &[Bytes]) -> Label {
        match socket {
            Either::First(socket) => self.first.label(socket, to, frames),
            Either::Second(socket) => {
                self.second.as_ref().map_or_else(Label::default, |second| second.label(socket, to, frames))
            }
        }
    }

    fn shown(&self, socket: Self::Socket, frames: &[Bytes]) -> Option<Frames> {
        match socket {
            Either::First(socket) => self.first.shown(socket, frames),
            Either::Second(socket) => self.second.as_ref().and_then(|second| second.shown(socket, frames)),
        }
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Self::Event> {
        if self.second.is_none() {
            while let Some(event) = self.first.poll_event() {
                if let Some(told) = self.glue.handle_first(Nanos::default(), event, None) {
                    return Some(told);
                }
            }
        }
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.first.poll_timeout().into_iter().chain(self.second.as_ref().and_then(Machine::poll_timeout)).min()
    }

    fn reads(&self, socket: Self::Socket) -> bool {
        match socket {
            Either::First(socket) => self.first.reads(socket),
            Either::Second(socket) => self.second.as_ref().is_some_and(|second| second.reads(socket)),
        }
    }

    fn backlog(&self) -> Backlog {
        self.first.backlog()
    }

    fn progress(&self) -> u64 {
        self.first.progress()
    }

    fn stats(&self) -> Self::Stats {
        (self.first.stats(), self.second.as_ref().map(Machine::stats).unwrap_or_default())
    }

    fn is_closed(&self) -> bool {
        self.first.is_closed() && self.second.as_ref().is_none_or(Machine::is_closed)
    }
}
