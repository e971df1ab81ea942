//! The worker: registers, sends heartbeats, takes requests and asks for more while it has capacity.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use foldhash::quality::RandomState;
use serde::Serialize;
use smallvec::SmallVec;

use super::credit::Credit;
use super::layout::{REQUEST_CLIENT, SERVICE};
use super::{
    Body, Layout, MessageType, Role, Settings, Width, decode, encode_header, encode_register, encode_reply,
    encode_request,
};
use crate::dialling::{Dialling, Link};
use crate::{
    Backlog, Connection, DecodeError, DropCounts, Dropped, ErrorKind, Event, Frames, Incoming, Latencies, Lifecycle,
    Machine, Nanos, Open, Origin, Output, SendId, SocketEvent, SocketKind, SocketOptions, Unsent, Verdict, Weight,
    cost,
};

/// How many messages the transport is offered at a time; the rest stays in the machine, for a new connection if need
/// be.
const WINDOW: usize = 64;

/// The service of leaving workers, which no client requests. DCP has no message for leaving, but a worker that
/// registers again gives up its former service at once (DCP-15): once the broker confirms, no more requests come. All
/// workers share this name, so that a broker has only one more to remember.
pub const LEAVING: &[u8] = b"trunkline.leaving";

#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// The service it offers.
    pub service: Bytes,
    /// Where brokers listen. One is dialled at a time; the next if it cannot be reached, is gone or falls silent. A
    /// DEALER with several connections would spread messages that belong on one.
    pub connect: Vec<String>,
    pub options: SocketOptions,
    /// Requests handled at a time.
    pub concurrency: usize,
    /// How often to send a heartbeat.
    pub heartbeat_interval: Duration,
    /// Intervals after which a broker that owes an answer is considered gone.
    pub liveness: u32,
    /// The first delay before dialling a silent broker again; each further one is twice as long.
    pub reconnect_after: Duration,
    /// The longest such delay.
    pub reconnect_at_most: Duration,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            service: Bytes::new(),
            connect: vec![],
            options: SocketOptions::default(),
            concurrency: 1,
            heartbeat_interval: Duration::from_millis(2500),
            liveness: 3,
            reconnect_after: Duration::from_millis(100),
            reconnect_at_most: Duration::from_secs(10),
        }
    }
}

/// The worker's only socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Back;

/// The number of a request, assigned by the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// What the user of a worker may request. Jobs that have ended are ignored.
#[derive(Clone, Debug)]
pub enum WorkerVerb {
    /// The result of a job.
    Reply { job: JobId, data: Vec<Bytes> },
    /// A job failed: its client receives these parts, often none.
    Fail { job: JobId, data: Vec<Bytes> },
    /// Another service continues a job.
    Forward {
        job: JobId,
        /// The other service.
        service: Bytes,
        data: Vec<Bytes>,
    },
    /// A job will not be answered.
    Abandon(JobId),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerEvent {
    /// A request to handle.
    Request {
        job: JobId,
        /// The message, bit for bit.
        frames: Frames,
        /// Its layout.
        body: Body,
    },
    /// The reply to a request that was sent on its connection.
    Reply {
        /// The message, bit for bit.
        frames: Frames,
        /// Its layout.
        body: Body,
    },
    /// A job will not be answered.
    Abandoned(JobId),
    /// The broker has confirmed the service.
    Registered,
    /// The broker has owed an answer for too long, and is dialled again.
    Lost,
    /// A message that is not valid.
    Dropped(Dropped),
    /// What became of a connection.
    Connection(Connection),
}

impl Event for WorkerEvent {
    #[inline]
    fn weight(&self) -> Weight {
        match self {
            Self::Request { frames, .. } | Self::Reply { frames, .. } => Weight::Lossless(cost(frames)),
            Self::Dropped(dropped) => dropped.weight(),
            Self::Abandoned(_) | Self::Registered | Self::Lost | Self::Connection(_) => Weight::Notice(0),
        }
    }

    #[inline]
    fn origin(&mut self) -> Option<&mut Origin> {
        if let Self::Dropped(dropped) = self { Some(&mut dropped.origin) } else { None }
    }
}

/// Counters of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkerStats {
    /// Messages received, valid or not.
    pub received: u64,
    /// Messages the transport has taken.
    pub sent: u64,
    /// Invalid messages, by kind.
    pub dropped: DropCounts,
    /// Bytes of all frames received.
    pub bytes: u64,
    /// Requests received.
    pub requests: u64,
    /// Replies, those of failed jobs as well.
    pub replies: u64,
    /// Requests forwarded.
    pub forwards: u64,
    /// Jobs that failed or were abandoned.
    pub failed: u64,
    /// Requests in progress.
    pub held: u64,
    /// The time from passing on a request to its reply.
    pub latency: Latencies,
}

/// What a reply needs of its request.
#[derive(Debug)]
struct Job {
    client: Bytes,
    metadata: SmallVec<[Bytes; 2]>,
    since: Nanos,
}

impl Job {
    fn of(now: Nanos, frames: &Frames, body: &Body) -> Self {
        let client = frames.get(REQUEST_CLIENT).cloned().unwrap_or_default();
        Self { client, metadata: frames[body.metadata.clone()].iter().cloned().collect(), since: now }
    }
}

/// The worker of DCP.
#[derive(Debug)]
pub struct Worker {
    settings: WorkerSettings,
    state: Lifecycle,
    /// Whether the broker has confirmed that it sends nothing more.
    is_free: bool,
    link: Link,
    dialling: Dialling,
    /// When to try the next endpoint, unless this one connects before.
    patience: Option<Nanos>,
    /// Whether this connection has registered: the broker may send requests.
    is_known: bool,
    /// Whether the broker still counts abandoned jobs as in progress.
    forsaken: bool,
    credit: Credit,
    jobs: HashMap<JobId, Job, RandomState>,
    next_job: u64,
    /// Requests beyond the concurrency, in order.
    waiting: VecDeque<(Frames, Body)>,
    queue: VecDeque<Frames>,
    in_flight: VecDeque<(SendId, Frames)>,
    /// Bytes of the queue and of messages offered to the transport.
    queued_bytes: usize,
    next_send: u64,
    /// When a heartbeat is due.
    heartbeat_at: Nanos,
    /// Since when the broker owes an answer.
    unanswered: Option<Nanos>,
    outputs: VecDeque<Output<Back>>,
    events: VecDeque<WorkerEvent>,
    stats: WorkerStats,
}

impl Worker {
    /// A worker that opens its socket and registers at once. The seed spreads the reconnects of many workers.
    pub fn new(now: Nanos, settings: WorkerSettings, seed: [u8; 32]) -> Self {
        let heartbeat = settings.heartbeat_interval;
        let (first, longest) = (settings.reconnect_after, settings.reconnect_at_most);
        let dialling = Dialling::new(settings.connect.clone(), first, longest, seed);
        let open = Output::Open(Box::new(Open {
            socket: Back,
            kind: SocketKind::Dealer,
            bind: vec![],
            connect: dialling.current().into_iter().collect(),
            options: SocketOptions {
                immediate: true,
                heartbeat: Some((heartbeat, heartbeat * settings.liveness)),
                ..settings.options.clone()
            },
        }));
        let mut worker = Self {
            credit: Credit::new(settings.concurrency),
            dialling,
            settings,
            state: Lifecycle::Open,
            is_free: false,
            link: Link::Up,
            patience: None,
            is_known: false,
            forsaken: false,
            jobs: HashMap::default(),
            next_job: 0,
            waiting: VecDeque::new(),
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            queued_bytes: 0,
            next_send: 0,
            heartbeat_at: now,
            unanswered: None,
            outputs: VecDeque::from([open]),
            events: VecDeque::new(),
            stats: WorkerStats::default(),
        };
        worker.await_connection(now, heartbeat);
        worker.register(now);
        worker
    }

    fn held(&self) -> usize {
        self.jobs.len() + self.waiting.len()
    }

    /// A registration is sent before anything else; after a leaving worker's, nothing asks for more work.
    fn register(&mut self, now: Nanos) {
        self.queue.retain(|frames| !is_of(frames, &[MessageType::Register, MessageType::Ping, MessageType::Pong]));
        let service = if self.state.is_open() { self.settings.service.clone() } else { Bytes::from_static(LEAVING) };
        self.queue.push_front(encode_register(service));
        self.queued_bytes =
            self.queue.iter().chain(self.in_flight.iter().map(|(_, frames)| frames)).map(|frames| cost(frames)).sum();
        self.forsaken = false;
        self.credit.register();
        self.spoke(now);
    }

    /// Registers again, after all replies: this shows the broker that no request is in progress any more (DCP-15).
    fn begin_anew(&mut self, now: Nanos) {
        self.forsaken = false;
        self.credit.register();
        self.push(now, encode_register(self.settings.service.clone()));
    }

    fn push(&mut self, now: Nanos, frames: Frames) {
        self.queued_bytes += cost(&frames);
        self.queue.push_back(frames);
        self.spoke(now);
    }

    fn ping(&mut self, now: Nanos) {
        self.credit.ping(now);
        self.push(now, encode_header(MessageType::Ping, Width::One));
    }

    /// A tenth of the interval is left for transmission.
    fn spoke(&mut self, now: Nanos) {
        self.heartbeat_at = now + self.settings.heartbeat_interval * 9 / 10;
    }

    fn on_request(&mut self, now: Nanos, frames: Frames, body: Body) {
        self.stats.requests += 1;
        if frames[SERVICE] == LEAVING {
            // No work is done under this name; a client that requests it gets an empty reply.
            self.stats.failed += 1;
            let Job { client, metadata, .. } = Job::of(now, &frames, &body);
            self.push(now, encode_reply(client, &metadata, &[]));
            return;
        }
        self.waiting.push_back((frames, body));
        let wants_more = self.credit.take(now, self.held());
        if wants_more && self.state.is_open() {
            self.ping(now);
        }
        self.hand_out(now);
        self.give_back(now);
    }

    fn hand_out(&mut self, now: Nanos) {
        while self.jobs.len() < self.settings.concurrency
            && let Some((frames, body)) = self.waiting.pop_front()
        {
            let job = JobId(self.next_job);
            self.next_job += 1;
            self.jobs.insert(job, Job::of(now, &frames, &body));
            self.events.push_back(WorkerEvent::Request { job, frames, body });
        }
    }

    /// A leaving worker forwards the requests it has no capacity for.
    fn give_back(&mut self, now: Nanos) {
        if self.state.is_draining() {
            while let Some((frames, body)) = self.waiting.pop_front() {
                self.forward(now, Job::of(now, &frames, &body), frames[SERVICE].clone(), &frames[body.data()]);
            }
        }
    }

    fn on_registered(&mut self, service: &[u8]) {
        if self.state.is_draining() {
            self.is_free |= service == LEAVING;
        } else {
            self.events.push_back(WorkerEvent::Registered);
        }
    }

    fn reply(&mut self, now: Nanos, job: JobId, data: &[Bytes]) -> bool {
        let Some(Job { client, metadata, since }) = self.jobs.remove(&job) else { return false };
        self.stats.replies += 1;
        self.stats.latency.add(now - since);
        self.credit.grant(now);
        self.push(now, encode_reply(client, &metadata, data));
        true
    }

    fn forward(&mut self, now: Nanos, job: Job, service: Bytes, data: &[Bytes]) {
        self.stats.forwards += 1;
        self.credit.grant(now);
        self.push(now, encode_request(service, Some(job.client), &job.metadata, data));
    }

    /// A job will not be answered: it frees a slot, but the broker cannot know.
    fn abandon(&mut self, now: Nanos) {
        self.forsaken = true;
        if !self.state.is_open() || self.link != Link::Up || self.held() >= self.settings.concurrency {
            return;
        }
        if self.held() == 0 && self.credit.is_spent() {
            self.begin_anew(now);
        } else {
            self.ping(now);
        }
    }

    fn silence_limit(&self) -> Duration {
        self.settings.heartbeat_interval * self.settings.liveness
    }

    /// Drops an endpoint, to dial it again or the next one.
    fn hang_up(&mut self, now: Nanos) {
        self.unanswered = None;
        self.patience = None;
        self.is_known = false;
        let (link, output) = self.dialling.hang_up(now, Back);
        self.link = link;
        self.outputs.extend(output);
    }

    fn dial(&mut self, now: Nanos) {
        self.link = Link::Up;
        self.outputs.extend(self.dialling.dial(Back));
        self.await_connection(now, self.settings.heartbeat_interval);
        self.register(now);
    }

    /// The only endpoint is dialled for as long as it takes.
    fn await_connection(&mut self, now: Nanos, patience: Duration) {
        self.patience = self.dialling.has_others().then(|| now + patience);
    }

    /// Removes a message that the transport has taken or refused.
    fn settle(&mut self, send: SendId) -> Option<Frames> {
        let at = self.in_flight.iter().position(|(id, _)| *id == send)?;
        let (_, frames) = self.in_flight.remove(at)?;
        self.queued_bytes -= cost(&frames);
        Some(frames)
    }

    fn close_if_done(&mut self, now: Nanos) {
        if !self.state.is_draining() {
            return;
        }
        // A lost last heartbeat does no harm.
        let mut unsent = self.queue.iter().chain(self.in_flight.iter().map(|(_, frames)| frames));
        let is_owed = unsent.any(|frames| is_of(frames, &[MessageType::Reply, MessageType::Request]));
        let is_left_alone = self.is_free || !self.is_known;
        let is_done = self.held() == 0 && !is_owed && is_left_alone;
        if let Some(linger) = self.state.close(now, is_done) {
            self.outputs.push_back(Output::Close { socket: Back, linger });
        }
    }

    fn drop(&mut self, error: DecodeError, frames: Frames) -> ErrorKind {
        let dropped = Dropped::new(error, Origin::default(), frames);
        dropped.count(&mut self.stats.dropped);
        self.events.push_back(WorkerEvent::Dropped(dropped));
        error.kind
    }
}

impl Machine for Worker {
    type Socket = Back;
    type Event = WorkerEvent;
    type Verb = WorkerVerb;
    type Stats = WorkerStats;

    fn handle_message(&mut self, now: Nanos, incoming: Incoming<Back>) -> Verdict {
        let frames = incoming.frames;
        self.stats.received += 1;
        self.stats.bytes += crate::nbytes(&frames);
        self.unanswered = None;
        self.dialling.reset();
        match decode(&frames, Settings { role: Some(Role::Worker), compat_dagbox: false }) {
            Ok(Layout::Register) => self.on_registered(&frames[SERVICE]),
            Ok(Layout::Pong) => self.credit.pong(now),
            Ok(Layout::Reconnect) => self.register(now),
            Ok(Layout::Request(Body { client: None, .. })) => {
                let error = DecodeError { kind: ErrorKind::MissingClient, frame: REQUEST_CLIENT, offset: 0 };
                return self.drop(error, frames).into();
            }
            Ok(Layout::Request(body)) => self.on_request(now, frames, body),
            Ok(Layout::Reply(body)) => self.events.push_back(WorkerEvent::Reply { frames, body }),
            // The codec rejects pings for a worker.
            Ok(Layout::Ping) => {}
            Err(error) => return self.drop(error, frames).into(),
        }
        self.close_if_done(now);
        Verdict::default()
    }

    fn handle_socket(&mut self, now: Nanos, _socket: Back, event: SocketEvent) {
        if let Some(connection) = event.connection() {
            self.events.push_back(WorkerEvent::Connection(connection));
        }
        match event {
            SocketEvent::Bound(_)
            | SocketEvent::OpenFailed { .. }
            | SocketEvent::HandshakeFailed { .. }
            | SocketEvent::Server(_)
            | SocketEvent::Unreachable { .. } => {}
            SocketEvent::Connected(_) => {
                self.patience = None;
                // The new connection has another address at the broker.
                if self.link == Link::Lost {
                    self.link = Link::Up;
                    self.register(now);
                }
            }
            SocketEvent::Disconnected(_) => {
                self.unanswered = None;
                self.is_known = false;
                if self.link == Link::Up {
                    self.link = Link::Lost;
                    self.await_connection(now, self.settings.reconnect_after);
                }
            }
            SocketEvent::Sent(send) => {
                if let Some(frames) = self.settle(send) {
                    self.stats.sent += 1;
                    self.is_known |= is_of(&frames, &[MessageType::Register]);
                    if is_of(&frames, &[MessageType::Register, MessageType::Ping]) {
                        self.unanswered.get_or_insert(now);
                    }
                }
            }
            SocketEvent::Unsent(send, unsent) => {
                let frames = self.settle(send);
                let again = frames.filter(|frames| is_of(frames, &[MessageType::Reply, MessageType::Request]));
                if let Some(frames) = again.filter(|_| unsent != Unsent::PeerFull) {
                    self.queued_bytes += cost(&frames);
                    self.queue.push_back(frames);
                }
            }
            SocketEvent::Closed => self.state = Lifecycle::Closed,
        }
        self.close_if_done(now);
    }

    fn handle_timeout(&mut self, now: Nanos) {
        if self.link.until().is_some_and(|until| now >= until) {
            self.dial(now);
        }
        if self.unanswered.is_some_and(|since| now >= since + self.silence_limit()) {
            self.events.push_back(WorkerEvent::Lost);
            self.hang_up(now);
        } else if self.patience.is_some_and(|until| now >= until) {
            self.hang_up(now);
        }
        if now >= self.heartbeat_at {
            self.spoke(now);
            // A message still unsent serves as a heartbeat.
            if self.link == Link::Up && self.queue.is_empty() && self.in_flight.is_empty() {
                if self.forsaken && self.held() == 0 && self.state.is_open() {
                    self.begin_anew(now);
                } else if self.state.is_open() && self.held() < self.settings.concurrency {
                    self.ping(now);
                } else {
                    self.push(now, encode_header(MessageType::Pong, Width::One));
                }
            }
        }
        self.close_if_done(now);
    }

    fn handle_verb(&mut self, now: Nanos, verb: WorkerVerb) {
        match verb {
            WorkerVerb::Reply { job, data } => {
                self.reply(now, job, &data);
            }
            WorkerVerb::Fail { job, data } => self.stats.failed += u64::from(self.reply(now, job, &data)),
            WorkerVerb::Forward { job, service, data } => {
                if let Some(job) = self.jobs.remove(&job) {
                    self.forward(now, job, service, &data);
                }
            }
            WorkerVerb::Abandon(job) => {
                if self.jobs.remove(&job).is_some() {
                    self.stats.failed += 1;
                    self.events.push_back(WorkerEvent::Abandoned(job));
                    self.abandon(now);
                }
            }
        }
        self.hand_out(now);
        self.close_if_done(now);
    }

    /// Leaves its service, and handles the requests that arrive until the broker confirms.
    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        if self.state.drain(now, grace) {
            self.register(now);
            self.give_back(now);
        }
        self.close_if_done(now);
    }

    fn poll_output(&mut self) -> Option<Output<Back>> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        let is_closing = self.state.is_closing();
        if self.link != Link::Up || self.in_flight.len() >= WINDOW || is_closing {
            return None;
        }
        let frames = self.queue.pop_front()?;
        self.next_send += 1;
        let send = SendId(self.next_send);
        self.in_flight.push_back((send, frames.clone()));
        Some(Output::Send { id: Some(send), socket: Back, to: None, frames: frames.into(), until: None })
    }

    fn poll_event(&mut self) -> Option<WorkerEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        if self.state.is_closing() {
            return None;
        }
        let silent = self.unanswered.map(|since| since + self.silence_limit());
        [Some(self.heartbeat_at), silent, self.patience, self.link.until(), self.state.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    fn backlog(&self) -> Backlog {
        Backlog { messages: self.queue.len() + self.in_flight.len(), bytes: self.queued_bytes }
    }

    fn progress(&self) -> u64 {
        self.stats.received
    }

    fn stats(&self) -> WorkerStats {
        WorkerStats { held: self.held() as u64, ..self.stats.clone() }
    }

    fn is_closed(&self) -> bool {
        self.state.is_closed()
    }
}

fn is_of(frames: &Frames, types: &[MessageType]) -> bool {
    MessageType::from_frame(&frames[super::layout::TYPE], false).is_some_and(|found| types.contains(&found))
}
