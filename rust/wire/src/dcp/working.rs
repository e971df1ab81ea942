//! A worker that also sends requests, on one connection: the broker knows it by one address (DCP-35).

use std::collections::VecDeque;
use std::time::Duration;

use super::{
    Asking, Back, Client, ClientEvent, ClientStats, ClientVerb, Outcome, Worker, WorkerEvent, WorkerStats, WorkerVerb,
};
use crate::{
    Backlog, CallId, Calling, Event, Incoming, Machine, Nanos, Origin, Output, SendId, SocketEvent, Verdict, Weight,
};

/// Marks the id of a client's send.
const CALL: u64 = 1 << 63;

/// What the user of a worker that sends requests may request.
#[derive(Clone, Debug)]
pub enum WorkingVerb {
    /// As a worker.
    Work(WorkerVerb),
    /// As a client.
    Call(ClientVerb),
}

/// The events of a worker that sends requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkingEvent {
    /// An event of the worker, except for replies.
    Work(WorkerEvent),
    /// An event of the client.
    Call(ClientEvent),
}

impl Event for WorkingEvent {
    #[inline]
    fn weight(&self) -> Weight {
        match self {
            Self::Work(event) => event.weight(),
            Self::Call(event) => event.weight(),
        }
    }

    #[inline]
    fn origin(&mut self) -> Option<&mut Origin> {
        match self {
            Self::Work(event) => event.origin(),
            Self::Call(event) => event.origin(),
        }
    }
}

/// Counters of a worker that sends requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkingStats {
    /// Those of the worker.
    pub worker: WorkerStats,
    /// Those of the client.
    pub client: ClientStats,
}

/// A worker, and a client that uses its socket. The worker's messages are sent first.
#[derive(Debug)]
pub struct Working {
    worker: Worker,
    client: Client,
    now: Nanos,
    events: VecDeque<WorkingEvent>,
}

impl Working {
    pub fn new(worker: Worker, client: Client) -> Self {
        Self { worker, client, now: Nanos(0), events: VecDeque::new() }
    }

    /// Passes replies to the client.
    fn sort(&mut self) {
        while let Some(event) = self.worker.poll_event() {
            if let WorkerEvent::Reply { frames, .. } = event {
                // The worker's event becomes a message for the client.
                self.client.handle_message(
                    self.now,
                    Incoming { socket: Asking, peer: None, user_id: None, host: None, frames },
                );
            } else {
                self.events.push_back(WorkingEvent::Work(event));
            }
        }
    }

    fn poll_call(&mut self) -> Option<Output<Back>> {
        let ours = |SendId(number)| SendId(number | CALL);
        loop {
            match self.client.poll_output()? {
                Output::Send { id, frames, until, .. } => {
                    return Some(Output::Send { id: id.map(ours), socket: Back, to: None, frames, until });
                }
                Output::Withdraw { id, .. } => return Some(Output::Withdraw { socket: Back, id: ours(id) }),
                // The worker opens and closes the socket.
                Output::Open(_) | Output::Connect { .. } | Output::Disconnect { .. } | Output::Close { .. } => {}
            }
        }
    }
}

impl Machine for Working {
    type Socket = Back;
    type Event = WorkingEvent;
    type Verb = WorkingVerb;
    type Stats = WorkingStats;

    fn handle_message(&mut self, now: Nanos, incoming: Incoming<Back>) -> Verdict {
        self.now = now;
        let verdict = self.worker.handle_message(now, incoming);
        self.sort();
        verdict
    }

    fn handle_socket(&mut self, now: Nanos, socket: Back, event: SocketEvent) {
        self.now = now;
        if let SocketEvent::Sent(send) = event
            && let Some(call) = call_of(send)
        {
            self.client.handle_socket(now, Asking, SocketEvent::Sent(call));
        } else if let SocketEvent::Unsent(send, unsent) = event
            && let Some(call) = call_of(send)
        {
            self.client.handle_socket(now, Asking, SocketEvent::Unsent(call, unsent));
        } else {
            self.worker.handle_socket(now, socket, event);
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.now = now;
        self.worker.handle_timeout(now);
        self.client.handle_timeout(now);
    }

    fn handle_verb(&mut self, now: Nanos, verb: WorkingVerb) {
        self.now = now;
        match verb {
            WorkingVerb::Work(verb) => self.worker.handle_verb(now, verb),
            WorkingVerb::Call(verb) => self.client.handle_verb(now, verb),
        }
    }

    /// Closes as a worker does; pending calls end unanswered.
    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        self.now = now;
        self.worker.handle_close(now, grace);
    }

    fn handle_pressure(&mut self, now: Nanos, pressed: bool) {
        self.worker.handle_pressure(now, pressed);
    }

    fn reads(&self, socket: Back) -> bool {
        self.worker.reads(socket) && self.client.reads(Asking)
    }

    fn poll_output(&mut self) -> Option<Output<Back>> {
        match self.worker.poll_output() {
            Some(close @ Output::Close { .. }) => {
                self.client.handle_close(self.now, Duration::ZERO);
                Some(close)
            }
            None => self.poll_call(),
            output => output,
        }
    }

    fn poll_event(&mut self) -> Option<WorkingEvent> {
        let sorted = self.events.pop_front();
        let worked = sorted.or_else(|| self.worker.poll_event().map(WorkingEvent::Work));
        worked.or_else(|| self.client.poll_event().map(WorkingEvent::Call))
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        [self.worker.poll_timeout(), self.client.poll_timeout()].into_iter().flatten().min()
    }

    fn backlog(&self) -> Backlog {
        let (worker, client) = (self.worker.backlog(), self.client.backlog());
        Backlog { messages: worker.messages + client.messages, bytes: worker.bytes + client.bytes }
    }

    fn progress(&self) -> u64 {
        self.worker.progress()
    }

    fn stats(&self) -> WorkingStats {
        WorkingStats { worker: self.worker.stats(), client: self.client.stats() }
    }

    fn is_closed(&self) -> bool {
        self.worker.is_closed()
    }
}

impl Calling for Working {
    type Outcome = Outcome;

    fn outcome(event: WorkingEvent) -> Result<(CallId, Outcome), WorkingEvent> {
        match event {
            WorkingEvent::Call(event) => Client::outcome(event).map_err(WorkingEvent::Call),
            WorkingEvent::Work(_) => Err(event),
        }
    }

    fn unanswered() -> Outcome {
        Client::unanswered()
    }

    fn cost(outcome: &Outcome) -> usize {
        Client::cost(outcome)
    }
}

/// The client's id of a send, if it is the client's.
fn call_of(SendId(number): SendId) -> Option<SendId> {
    (number & CALL != 0).then_some(SendId(number & !CALL))
}
