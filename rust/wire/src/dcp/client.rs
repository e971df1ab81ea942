//! The client: many requests at a time; each ends in one reply or one time-out.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use foldhash::quality::RandomState;
use serde::Serialize;

use super::{Body, Layout, Role, Settings, decode, encode_request};
use crate::{
    Backlog, CallId, Calling, Connection, DropCounts, Dropped, Event, Frames, Incoming, Latencies, Lifecycle, Machine,
    Nanos, Open, Origin, Output, SendId, SocketEvent, SocketKind, SocketOptions, Unsent, Verdict, Weight, cost,
};

/// The minimum time between two attempts: a timeout of zero must not cause billions of attempts at once.
const BREATH: Duration = Duration::from_millis(1);

/// How many messages the transport is offered at a time; the rest stays in the machine, where it can time out unsent.
const WINDOW: usize = 64;

#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Where the broker listens.
    pub connect: Vec<String>,
    pub options: SocketOptions,
    /// The default timeout of an attempt.
    pub timeout: Duration,
    /// How often the transport checks for a broker that is gone; the client itself sends no heartbeats.
    pub heartbeat_interval: Duration,
    /// Silent intervals after which the transport considers the broker gone.
    pub liveness: u32,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            connect: vec![],
            options: SocketOptions::default(),
            timeout: Duration::from_secs(5),
            heartbeat_interval: Duration::from_millis(2500),
            liveness: 3,
        }
    }
}

/// The client's only socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Asking;

/// What the user of a client may request.
#[derive(Clone, Debug)]
pub enum ClientVerb {
    /// Send a request to a service.
    Request {
        /// The number of the call.
        call: CallId,
        service: Bytes,
        /// Parts that are echoed in the reply; none of them is empty.
        metadata: Vec<Bytes>,
        data: Vec<Bytes>,
        /// How long an attempt may take.
        timeout: Option<Duration>,
        /// Further attempts after the first.
        retries: u32,
    },
    /// Stop waiting for a call; it is not sent any more.
    Cancel(CallId),
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With a reply.
    Reply {
        /// The message, bit for bit.
        frames: Frames,
        /// Its layout; the metadata are the user's.
        body: Body,
    },
    /// No attempt had a reply in time.
    TimedOut,
    /// The client was closed before the reply arrived.
    Unanswered,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// A call has ended.
    Ended(CallId, Outcome),
    /// A message that is not a reply.
    Dropped(Dropped),
    /// What became of a connection.
    Connection(Connection),
}

impl Event for ClientEvent {
    #[inline]
    fn weight(&self) -> Weight {
        match self {
            Self::Ended(_, outcome) => Weight::Lossless(Client::cost(outcome)),
            Self::Dropped(dropped) => dropped.weight(),
            Self::Connection(_) => Weight::Notice(0),
        }
    }

    #[inline]
    fn origin(&mut self) -> Option<&mut Origin> {
        if let Self::Dropped(dropped) = self { Some(&mut dropped.origin) } else { None }
    }
}

/// Counters of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClientStats {
    /// Calls.
    pub requests: u64,
    /// Calls with a reply.
    pub replies: u64,
    /// Calls that timed out for good.
    pub timeouts: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Replies for which no call was pending.
    pub late: u64,
    /// Calls that have not ended.
    pub in_flight: u64,
    /// Invalid messages, by kind.
    pub dropped: DropCounts,
    /// The time from a call to its reply, over all attempts.
    pub latency: Latencies,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Queued,
    /// The transport was offered it.
    Offered,
    Gone,
}

#[derive(Debug)]
struct Call {
    /// The message, for as long as it may have to be sent (again).
    frames: Frames,
    bytes: usize,
    place: Stage,
    since: Nanos,
    due: Nanos,
    timeout: Duration,
    retries: u32,
}

/// The client of DCP.
#[derive(Debug)]
pub struct Client {
    settings: ClientSettings,
    state: Lifecycle,
    /// The first half of every correlation id: it distinguishes replies to our calls from others.
    prefix: [u8; 8],
    calls: HashMap<CallId, Call, RandomState>,
    /// Calls to send, the lowest first.
    queue: BTreeSet<CallId>,
    deadlines: BTreeSet<(Nanos, CallId)>,
    /// How many messages the transport was offered, and has neither taken nor refused.
    offered: usize,
    waiting_bytes: usize,
    outputs: VecDeque<Output<Asking>>,
    events: VecDeque<ClientEvent>,
    stats: ClientStats,
}

impl Client {
    /// A client that opens its socket at once. The seed makes its correlation ids unique.
    pub fn new(settings: ClientSettings, seed: [u8; 32]) -> Self {
        let heartbeat = settings.heartbeat_interval;
        let open = Output::Open(Box::new(Open {
            socket: Asking,
            kind: SocketKind::Dealer,
            bind: vec![],
            connect: settings.connect.clone(),
            options: SocketOptions {
                immediate: true,
                heartbeat: Some((heartbeat, heartbeat * settings.liveness)),
                ..settings.options.clone()
            },
        }));
        let mut prefix = [0; 8];
        prefix.copy_from_slice(&seed[..8]);
        Self {
            settings,
            state: Lifecycle::Open,
            prefix,
            calls: HashMap::default(),
            queue: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            offered: 0,
            waiting_bytes: 0,
            outputs: VecDeque::from([open]),
            events: VecDeque::new(),
            stats: ClientStats::default(),
        }
    }

    fn correlation(&self, call: CallId) -> Bytes {
        let mut id = BytesMut::with_capacity(16);
        id.put_slice(&self.prefix);
        id.put_u64(call.0);
        id.freeze()
    }

    /// The call whose reply has this first part of metadata.
    fn call_of(&self, id: &[u8]) -> Option<CallId> {
        let number = id.strip_prefix(&self.prefix)?;
        Some(CallId(u64::from_be_bytes(number.try_into().ok()?)))
    }

    fn end(&mut self, id: CallId) -> Option<Call> {
        let call = self.calls.remove(&id)?;
        self.deadlines.remove(&(call.due, id));
        if call.place != Stage::Gone {
            self.waiting_bytes -= call.bytes;
        }
        self.queue.remove(&id);
        Some(call)
    }

    fn on_reply(&mut self, now: Nanos, frames: Frames, mut body: Body) {
        let call = frames[body.metadata.clone()].first().and_then(|id| self.call_of(id));
        let Some((call, ended)) = call.and_then(|call| Some((call, self.end(call)?))) else {
            self.stats.late += 1;
            return;
        };
        self.stats.replies += 1;
        self.stats.latency.add(now - ended.since);
        body.metadata.start += 1;
        self.events.push_back(ClientEvent::Ended(call, Outcome::Reply { frames, body }));
    }

    fn on_timeouts(&mut self, now: Nanos) {
        while let Some(&(due, id)) = self.deadlines.first()
            && due <= now
        {
            self.deadlines.pop_first();
            let Some(call) = self.calls.get_mut(&id) else { continue };
            if call.retries == 0 || !self.state.is_open() {
                self.end(id);
                self.stats.timeouts += 1;
                self.events.push_back(ClientEvent::Ended(id, Outcome::TimedOut));
                continue;
            }
            call.retries -= 1;
            call.due = now + call.timeout.max(BREATH);
            self.stats.retries += 1;
            self.deadlines.insert((call.due, id));
            // A message still unsent serves this attempt too.
            if call.place == Stage::Gone {
                call.place = Stage::Queued;
                self.waiting_bytes += call.bytes;
                self.queue.insert(id);
            }
        }
    }

    fn settle(&mut self, send: SendId, unsent: Option<Unsent>) {
        self.offered = self.offered.saturating_sub(1);
        let id = CallId(send.0);
        let Some(call) = self.calls.get_mut(&id).filter(|call| call.place == Stage::Offered) else { return };
        if unsent == Some(Unsent::Expired) {
            call.place = Stage::Queued;
            self.queue.insert(id);
            return;
        }
        call.place = Stage::Gone;
        self.waiting_bytes -= call.bytes;
        if call.retries == 0 {
            call.frames = Frames::new();
        }
    }

    fn close_if_done(&mut self, now: Nanos) {
        if self.state.close(now, self.calls.is_empty()).is_some() {
            self.queue.clear();
            self.waiting_bytes = 0;
            self.deadlines.clear();
            let mut left: Vec<_> = self.calls.drain().map(|(id, _)| id).collect();
            left.sort_unstable();
            self.events.extend(left.into_iter().map(|id| ClientEvent::Ended(id, Outcome::Unanswered)));
            self.outputs.push_back(Output::Close { socket: Asking, linger: Duration::ZERO });
        }
    }
}

impl Machine for Client {
    type Socket = Asking;
    type Event = ClientEvent;
    type Verb = ClientVerb;
    type Stats = ClientStats;

    fn handle_message(&mut self, now: Nanos, incoming: Incoming<Asking>) -> Verdict {
        let frames = incoming.frames;
        match decode(&frames, Settings { role: Some(Role::Client), compat_dagbox: false }) {
            Ok(Layout::Reply(body)) => self.on_reply(now, frames, body),
            // The codec rejects every other type for a client.
            Ok(Layout::Register | Layout::Ping | Layout::Pong | Layout::Request(_) | Layout::Reconnect) => {}
            Err(error) => {
                let dropped = Dropped::new(error, Origin::default(), frames);
                dropped.count(&mut self.stats.dropped);
                self.events.push_back(ClientEvent::Dropped(dropped));
                return error.into();
            }
        }
        self.close_if_done(now);
        Verdict::default()
    }

    fn handle_socket(&mut self, now: Nanos, _socket: Asking, event: SocketEvent) {
        if let Some(connection) = event.connection() {
            self.events.push_back(ClientEvent::Connection(connection));
        }
        match event {
            SocketEvent::Bound(_)
            | SocketEvent::Connected(_)
            | SocketEvent::Disconnected(_)
            | SocketEvent::OpenFailed { .. }
            | SocketEvent::HandshakeFailed { .. }
            | SocketEvent::Server(_)
            | SocketEvent::Unreachable { .. } => {}
            SocketEvent::Sent(send) => self.settle(send, None),
            SocketEvent::Unsent(send, unsent) => {
                // An expired call may have another attempt.
                self.on_timeouts(now);
                self.settle(send, Some(unsent));
            }
            SocketEvent::Closed => self.state = Lifecycle::Closed,
        }
        self.close_if_done(now);
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.on_timeouts(now);
        self.close_if_done(now);
    }

    fn handle_verb(&mut self, now: Nanos, verb: ClientVerb) {
        match verb {
            ClientVerb::Request { call, .. } if !self.state.is_open() => {
                self.events.push_back(ClientEvent::Ended(call, Outcome::Unanswered));
            }
            ClientVerb::Request { call: id, service, mut metadata, data, timeout, retries } => {
                if self.calls.contains_key(&id) {
                    return;
                }
                metadata.insert(0, self.correlation(id));
                let frames = encode_request(service, None, &metadata, &data);
                let timeout = timeout.unwrap_or(self.settings.timeout);
                let (due, bytes) = (now + timeout, cost(&frames));
                self.stats.requests += 1;
                self.waiting_bytes += bytes;
                self.queue.insert(id);
                self.deadlines.insert((due, id));
                let place = Stage::Queued;
                self.calls.insert(id, Call { frames, bytes, place, since: now, due, timeout, retries });
            }
            ClientVerb::Cancel(call) => {
                if self.end(call).is_some_and(|call| call.place == Stage::Offered) {
                    self.outputs.push_back(Output::Withdraw { socket: Asking, id: SendId(call.0) });
                }
            }
        }
        self.close_if_done(now);
    }

    /// Waits at most `grace` for the replies to pending calls.
    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        self.state.drain(now, grace);
        self.close_if_done(now);
    }

    fn poll_output(&mut self) -> Option<Output<Asking>> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if self.offered >= WINDOW {
            return None;
        }
        let id = self.queue.pop_first()?;
        let call = self.calls.get_mut(&id)?;
        call.place = Stage::Offered;
        self.offered += 1;
        let frames = call.frames.clone().into();
        Some(Output::Send { id: Some(SendId(id.0)), socket: Asking, to: None, frames, until: Some(call.due) })
    }

    fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        if self.state.is_closing() {
            return None;
        }
        let due = self.deadlines.first().map(|(due, _)| *due);
        [due, self.state.poll_timeout()].into_iter().flatten().min()
    }

    fn backlog(&self) -> Backlog {
        Backlog { messages: self.queue.len() + self.offered, bytes: self.waiting_bytes }
    }

    fn progress(&self) -> u64 {
        self.stats.replies
    }

    fn stats(&self) -> ClientStats {
        ClientStats { in_flight: self.calls.len() as u64, ..self.stats.clone() }
    }

    fn is_closed(&self) -> bool {
        self.state.is_closed()
    }
}

impl Calling for Client {
    type Outcome = Outcome;

    fn outcome(event: ClientEvent) -> Result<(CallId, Outcome), ClientEvent> {
        match event {
            ClientEvent::Ended(call, outcome) => Ok((call, outcome)),
            ClientEvent::Dropped(_) | ClientEvent::Connection(_) => Err(event),
        }
    }

    fn unanswered() -> Outcome {
        Outcome::Unanswered
    }

    fn cost(outcome: &Outcome) -> usize {
        match outcome {
            Outcome::Reply { frames, .. } => cost(frames),
            Outcome::TimedOut | Outcome::Unanswered => 0,
        }
    }
}
