//! The recorder: it hears all messages of a deployment, and counts them.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Settings, fault};
use crate::{
    Connection, DropCounts, Event, Incoming, Lifecycle, Machine, Nanos, Open, Output, SocketEvent, SocketKind,
    SocketOptions, Verdict, Weight,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecorderSettings {
    /// The prefix of all subjects.
    pub prefix: String,
    /// The encoding of bodies.
    pub body: Settings,
    /// The number of messages after which it reads no more.
    pub limit: Option<u64>,
}

/// Counters of a recorder.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RecorderStats {
    /// Messages received, valid or not.
    pub received: u64,
    /// Malformed ones, by kind.
    pub errors: DropCounts,
    /// Bytes of all bodies.
    pub bytes: u64,
}

/// What became of its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecorderEvent(pub Connection);

impl Event for RecorderEvent {
    fn weight(&self) -> Weight {
        Weight::Notice(0)
    }
}

/// The recorder of CDT.
#[derive(Debug)]
pub struct Recorder {
    settings: RecorderSettings,
    state: Lifecycle,
    outputs: VecDeque<Output<()>>,
    events: VecDeque<RecorderEvent>,
    stats: RecorderStats,
}

impl Recorder {
    /// A recorder that subscribes at once.
    pub fn new(settings: RecorderSettings) -> Self {
        let open = Open {
            socket: (),
            kind: SocketKind::Nats,
            bind: vec![format!("{}.>", settings.prefix)],
            connect: vec![],
            options: SocketOptions::default(),
        };
        Self {
            settings,
            state: Lifecycle::Open,
            outputs: VecDeque::from([Output::Open(Box::new(open))]),
            events: VecDeque::new(),
            stats: RecorderStats::default(),
        }
    }
}

impl Machine for Recorder {
    type Socket = ();
    type Event = RecorderEvent;
    type Verb = std::convert::Infallible;
    type Stats = RecorderStats;

    fn handle_message(&mut self, _now: Nanos, incoming: Incoming<()>) -> Verdict {
        let body = incoming.frames.last().map_or(&[][..], |body| body);
        self.stats.received += 1;
        self.stats.bytes += body.len() as u64;
        let subject = str::from_utf8(incoming.peer.as_deref().unwrap_or_default()).unwrap_or_default();
        let Some(fault) = fault(subject, body, &self.settings.body) else { return Verdict::default() };
        *self.stats.errors.entry(fault.kind.slug()).or_default() += 1;
        fault.kind.into()
    }

    fn handle_socket(&mut self, _now: Nanos, (): (), event: SocketEvent) {
        self.events.extend(event.connection().map(RecorderEvent));
        if event == SocketEvent::Closed {
            self.state = Lifecycle::Closed;
        }
    }

    fn handle_timeout(&mut self, _now: Nanos) {}

    fn handle_verb(&mut self, _now: Nanos, verb: Self::Verb) {
        match verb {}
    }

    /// There is nothing to wait for.
    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        self.state.drain(now, grace);
        if self.state.close(now, true).is_some() {
            self.outputs.push_back(Output::Close { socket: (), linger: Duration::ZERO });
        }
    }

    fn poll_output(&mut self) -> Option<Output<()>> {
        self.outputs.pop_front()
    }

    fn poll_event(&mut self) -> Option<RecorderEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        None
    }

    fn reads(&self, (): ()) -> bool {
        self.settings.limit.is_none_or(|limit| self.stats.received < limit)
    }

    fn progress(&self) -> u64 {
        self.stats.received
    }

    fn stats(&self) -> RecorderStats {
        self.stats.clone()
    }

    fn is_closed(&self) -> bool {
        self.state.is_closed()
    }
}
