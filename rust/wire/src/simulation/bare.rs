//! Sockets without a protocol, to connect to machines.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use crate::{
    Event, Frames, Incoming, Machine, Nanos, Open, Output, SocketEvent, SocketKind, SocketOptions, Verdict, Weight,
    cost,
};

/// A bare socket: it sends what it is given, and reports what it receives.
#[derive(Debug)]
pub struct Bare {
    outputs: VecDeque<Output<()>>,
    received: VecDeque<Received>,
    is_closed: bool,
}

impl Bare {
    /// A socket bound and connected to these endpoints.
    pub fn new(kind: SocketKind, bind: Vec<String>, connect: Vec<String>) -> Self {
        let open = Box::new(Open { socket: (), kind, bind, connect, options: SocketOptions::default() });
        Self { outputs: VecDeque::from([Output::Open(open)]), received: VecDeque::new(), is_closed: false }
    }
}

/// A message that a bare socket has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The sender, on a ROUTER.
    pub peer: Option<Bytes>,
    /// The message.
    pub frames: Frames,
}

impl Event for Received {
    fn weight(&self) -> Weight {
        Weight::Lossless(cost(&self.frames))
    }
}

impl Machine for Bare {
    type Socket = ();
    type Event = Received;
    /// The receiver, on a ROUTER, and the message.
    type Verb = (Option<Bytes>, Frames);
    type Stats = ();

    fn handle_message(&mut self, _now: Nanos, incoming: Incoming<()>) -> Verdict {
        self.received.push_back(Received { peer: incoming.peer, frames: incoming.frames });
        Verdict::default()
    }

    fn handle_socket(&mut self, _now: Nanos, (): (), event: SocketEvent) {
        self.is_closed |= event == SocketEvent::Closed;
    }

    fn handle_timeout(&mut self, _now: Nanos) {}

    fn handle_verb(&mut self, _now: Nanos, (to, frames): Self::Verb) {
        self.outputs.push_back(Output::Send { id: None, socket: (), to, frames: frames.into(), until: None });
    }

    fn handle_close(&mut self, _now: Nanos, grace: Duration) {
        self.outputs.push_back(Output::Close { socket: (), linger: grace });
    }

    fn poll_output(&mut self) -> Option<Output<()>> {
        self.outputs.pop_front()
    }

    fn poll_event(&mut self) -> Option<Received> {
        self.received.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        None
    }

    fn stats(&self) {}

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}
