//! The source: pulls and pushes configurations, watches them, and reports which ones endpoints have applied.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::settings::{Clock, Part, SourceStats};
use super::watches::Watches;
use super::{Content, Kind, Message, Received};
use crate::{
    CallId, Calling, Connection, DropKind, DropReason, Dropped, Event, Frames, Incoming, Lifecycle, Machine, Nanos,
    Origin, Output, SendId, ServerNotice, SocketEvent, Verdict, Weight,
};

/// The shortest time-out that a message can express.
const SHORTEST: Duration = Duration::from_millis(1);

/// How long a server may take to confirm what it was sent.
const CONFIRMATION: Duration = Duration::from_secs(10);

/// What a source subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hearing {
    /// Answers to this replica.
    Replies,
    /// All events.
    Events,
    /// This replica's share of the events.
    SharedEvents,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSettings {
    /// The settings that both roles share.
    pub part: Part,
    /// The service it pulls from.
    pub target: String,
    /// How often a watch pulls without an event, as events may be lost.
    pub resync: Duration,
    /// How long a watch waits for an answer.
    pub patience: Duration,
    /// The first and the longest delay after a watch had no answer.
    pub backoff: (Duration, Duration),
}

impl Default for SourceSettings {
    fn default() -> Self {
        Self {
            part: Part::default(),
            target: String::new(),
            resync: Duration::from_secs(300),
            patience: Duration::from_secs(3),
            backoff: (Duration::from_millis(100), Duration::from_secs(5)),
        }
    }
}

/// What a push waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confirm {
    /// Nothing.
    Sent,
    /// The target has stored it.
    #[default]
    Stored,
    /// The endpoint has applied it.
    Applied,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pull {
    /// The version of the application.
    pub app_version_name: String,
    pub endpoint_id: String,
    /// The configuration; `None` is the latest (CDT-18).
    pub config_id: Option<String>,
    /// The endpoint's own message id; `None` for a generated one.
    pub endpoint_message_id: Option<String>,
    /// The timeout of each attempt; `None` for no limit.
    pub timeout: Option<Duration>,
    /// How often it is sent again.
    pub retries: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Push {
    /// The version of the application.
    pub app_version_name: String,
    pub endpoint_id: String,
    /// Its id; `None` to derive it from the content.
    pub config_id: Option<String>,
    pub content_type: String,
    /// The content; `None` to roll back to a stored configuration.
    pub content: Option<Bytes>,
    /// What it waits for.
    pub confirm: Confirm,
    /// The timeout in total; `None` for no limit.
    pub timeout: Option<Duration>,
}

/// What the user of a source may request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceVerb {
    Pull(CallId, Pull),
    Push(CallId, Push),
    /// Report that an endpoint has applied a configuration (CDT-40).
    Report {
        /// Ends in [`Ended::Sent`].
        call: CallId,
        /// The version of the application.
        app_version_name: String,
        endpoint_id: String,
        config_id: String,
    },
    /// Stop waiting for a call.
    Cancel(CallId),
    /// Watch the configuration of an endpoint.
    Watch(CallId, String, String),
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The target has answered.
    Answered(Box<Received>),
    /// The push or report was sent.
    Sent,
    /// The endpoint has applied this configuration.
    Applied(String),
    /// No target is subscribed.
    NoTarget,
    /// There was no answer in time.
    TimedOut,
    /// The endpoint has not applied it in time.
    Unapplied {
        /// Whether the target has said that it is stored.
        is_stored: bool,
    },
    /// It exceeds the largest body.
    TooLarge,
    /// It could not be sent.
    Unsent,
    /// The server forbids its subject, in these words.
    Forbidden(String),
    /// The source was closed before the answer arrived.
    Unanswered,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// A call has ended.
    Ended(CallId, Ended),
    /// A watch has found a new configuration.
    Changed(CallId, Box<Received>),
    /// An event was received.
    Event(Box<Received>),
    /// A message was dropped.
    Dropped(Dropped),
    /// What became of the connection.
    Connection(Connection),
}

impl Calling for Source {
    type Outcome = Ended;

    fn outcome(event: SourceEvent) -> Result<(CallId, Ended), SourceEvent> {
        if let SourceEvent::Ended(call, ended) = event { Ok((call, ended)) } else { Err(event) }
    }

    fn unanswered() -> Ended {
        Ended::Unanswered
    }

    fn cost(ended: &Ended) -> usize {
        if let Ended::Answered(read) = ended { read.body.len() } else { 0 }
    }
}

impl Event for SourceEvent {
    fn weight(&self) -> Weight {
        match self {
            Self::Dropped(dropped) => dropped.weight(),
            Self::Connection(_) => Weight::Notice(0),
            Self::Event(read) | Self::Changed(_, read) | Self::Ended(_, Ended::Answered(read)) => {
                Weight::Lossless(read.body.len())
            }
            Self::Ended(..) => Weight::Lossless(0),
        }
    }

    #[inline]
    fn origin(&mut self) -> Option<&mut Origin> {
        if let Self::Dropped(dropped) = self { Some(&mut dropped.origin) } else { None }
    }

    fn shed() -> Option<Self> {
        Some(Self::Dropped(Dropped::new(DropKind::QueueFull, None, Frames::new())))
    }
}

/// A call that waits until the server has its message.
#[derive(Debug)]
struct Sending {
    call: CallId,
    kind: Kind,
    due: Nanos,
    /// How it ends then.
    late: Ended,
}

/// The origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Call(CallId),
    /// The watch with this number.
    Watch(CallId),
}

/// A pending request.
#[derive(Debug)]
struct Pending {
    asker: Asker,
    request: Message<'static>,
    timeout: Option<Duration>,
    /// When it was requested.
    since: Nanos,
    due: Option<Nanos>,
    retries: u32,
    confirm: Confirm,
    /// Configurations that the endpoint has reported as applied since the push.
    applied: BTreeSet<String>,
    /// The configuration that the target has stored; the endpoint's report is pending.
    stored: Option<String>,
}

/// The subjects of requests of a kind, and of their answers.
#[derive(Debug)]
struct Route {
    to: Bytes,
    reply_to: Bytes,
}

impl Route {
    fn new(settings: &SourceSettings, kind: Kind) -> Self {
        let SourceSettings { part, target, .. } = settings;
        Self {
            to: part.subjects.service(target, kind).into(),
            reply_to: part.subjects.replica(&part.replica, kind.answered_with()).into(),
        }
    }
}

/// The source of CDT.
#[derive(Debug)]
pub struct Source {
    settings: SourceSettings,
    state: Lifecycle,
    clock: Clock,
    /// The prefix of this source's correlation ids, unique to it.
    mark: String,
    next: u64,
    /// The subjects of requests, and of their answers.
    routes: [Route; 2],
    pending: HashMap<u64, Pending>,
    by_call: HashMap<CallId, u64>,
    due: BTreeSet<(Nanos, u64)>,
    /// Pushes waiting for an endpoint.
    applying: HashMap<(String, String), Vec<u64>>,
    sending: BTreeMap<SendId, Sending>,
    watches: Watches,
    open: Vec<Hearing>,
    outputs: VecDeque<Output<Hearing>>,
    events: VecDeque<SourceEvent>,
    stats: SourceStats,
}

impl Source {
    /// A source that subscribes at once. The seed makes its correlation ids unique.
    pub fn new(settings: SourceSettings, seed: [u8; 32]) -> Self {
        let part = &settings.part;
        let replies = part.own(&[Kind::ConfigResponse, Kind::ConfigPushResponse]);
        let mut outputs = VecDeque::from([
            Part::open(Hearing::Replies, replies, None),
            Part::open(Hearing::Events, [part.subjects.events()], None),
        ]);
        let mut open = vec![Hearing::Replies, Hearing::Events];
        if part.shares_events {
            outputs.push_back(Part::open(Hearing::SharedEvents, [part.subjects.events()], Some(&part.instance)));
            open.push(Hearing::SharedEvents);
        }
        let mut mark = [0; 8];
        mark.copy_from_slice(&seed[..8]);
        let mark = u64::from_be_bytes(mark);
        Self {
            clock: Clock::new(Nanos(0), part.unix_ms),
            watches: Watches::new(settings.resync, settings.backoff),
            routes: [Kind::ConfigRequest, Kind::ConfigPush].map(|kind| Route::new(&settings, kind)),
            settings,
            state: Lifecycle::Open,
            // With the number of a request it looks like a UUID, as most correlation ids do.
            mark: format!("{:08x}-{:04x}-{:04x}-", mark >> 32, mark >> 16 & 0xffff, mark & 0xffff),
            next: 0,
            pending: HashMap::new(),
            by_call: HashMap::new(),
            due: BTreeSet::new(),
            applying: HashMap::new(),
            sending: BTreeMap::new(),
            open,
            outputs,
            events: VecDeque::new(),
            stats: SourceStats::default(),
        }
    }

    fn correlation(&self, number: u64) -> String {
        format!("{}{:04x}-{:012x}", self.mark, number >> 48, number & 0xffff_ffff_ffff)
    }

    /// The number of one of our requests, pending or not.
    fn number(&self, correlation: &str) -> Option<u64> {
        let (high, low) = correlation.strip_prefix(&self.mark)?.split_once('-')?;
        if (high.len(), low.len()) != (4, 12) {
            return None;
        }
        let number = hexadecimal(high)? << 48 | hexadecimal(low)?;
        (number < self.next).then_some(number)
    }

    /// Reports a dropped message. Returns its verdict.
    fn drop(&mut self, reason: DropReason, incoming: Incoming<Hearing>) -> Verdict {
        let dropped = Dropped::new(reason, incoming.peer, incoming.frames);
        dropped.count(&mut self.stats.dropped);
        self.events.push_back(SourceEvent::Dropped(dropped));
        reason.error().map_or_else(Verdict::default, Verdict::from)
    }

    /// Sends a request for the first time.
    fn begin(&mut self, now: Nanos, mut pending: Pending) {
        let number = self.next;
        self.next += 1;
        pending.since = now;
        pending.request.correlation_id = Cow::Owned(self.correlation(number));
        if pending.request.endpoint_message_id.is_empty() {
            pending.request.endpoint_message_id.clone_from(&pending.request.correlation_id);
        }
        let is_awaited = !(pending.request.kind == Kind::ConfigPush && pending.confirm == Confirm::Sent);
        if !self.send(now, number, &mut pending, is_awaited) {
            return self.end(pending.asker, Ended::TooLarge);
        }
        if !is_awaited {
            return;
        }
        if let Asker::Call(call) = pending.asker {
            self.by_call.insert(call, number);
        }
        if pending.confirm == Confirm::Applied {
            let endpoint = pending.request.endpoint();
            self.applying.entry(endpoint).or_default().push(number);
        }
        self.pending.insert(number, pending);
    }

    /// Sends a request, with the current time; false if it is too large.
    fn send(&mut self, now: Nanos, number: u64, pending: &mut Pending, is_awaited: bool) -> bool {
        let part = &self.settings.part;
        let kind = pending.request.kind;
        pending.request.timestamp_ms = self.clock.unix_ms(now);
        let reply_to =
            if is_awaited { self.routes[usize::from(kind == Kind::ConfigPush)].reply_to.clone() } else { Bytes::new() };
        let frames = part.frames(reply_to, &pending.request);
        if frames[2].len() > part.max_payload {
            return false;
        }
        let id = match pending.asker {
            Asker::Call(call) if !is_awaited => Some(self.expect(now, number, call, kind, pending.timeout)),
            Asker::Call(_) | Asker::Watch(_) => {
                pending.due = pending.timeout.map(|timeout| now + timeout);
                self.due.extend(pending.due.map(|due| (due, number)));
                None
            }
        };
        let route = &self.routes[usize::from(kind == Kind::ConfigPush)];
        self.outputs.push_back(Output::Send {
            id,
            socket: Hearing::Replies,
            to: Some(route.to.clone()),
            frames: frames.into(),
            until: None,
        });
        true
    }

    /// Expects that the server confirms a message.
    fn expect(&mut self, now: Nanos, number: u64, call: CallId, kind: Kind, timeout: Option<Duration>) -> SendId {
        let (after, late) = match timeout {
            Some(timeout) if timeout < CONFIRMATION => (timeout, Ended::TimedOut),
            _ => (CONFIRMATION, Ended::Unsent),
        };
        let due = now + after;
        self.due.insert((due, number));
        self.sending.insert(SendId(number), Sending { call, kind, due, late });
        SendId(number)
    }

    /// Ends a call that waits until the server has its message.
    fn sent(&mut self, id: SendId, ended: Ended) {
        let Some(sending) = self.sending.remove(&id) else { return };
        self.due.remove(&(sending.due, id.0));
        self.end(Asker::Call(sending.call), ended);
    }

    /// Ends the calls that the server forbids: it names a subject, in any case, and no message.
    fn forbid(&mut self, now: Nanos, words: &str) {
        let lower = words.to_ascii_lowercase();
        let is_meant = |kind: Kind| lower.contains(&kind.name().to_ascii_lowercase());
        let is_call = |one: &Pending| matches!(one.asker, Asker::Call(_)) && is_meant(one.request.kind);
        let mut numbers: Vec<_> =
            self.pending.iter().filter(|(_, one)| is_call(one)).map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        for number in numbers {
            self.finish(now, number, Ended::Forbidden(words.to_owned()));
        }
        let sending = self.sending.iter().filter(|(_, one)| is_meant(one.kind)).map(|(id, _)| *id);
        for id in sending.collect::<Vec<_>>() {
            self.sent(id, Ended::Forbidden(words.to_owned()));
        }
    }

    fn end(&mut self, asker: Asker, ended: Ended) {
        match asker {
            Asker::Call(call) => self.events.push_back(SourceEvent::Ended(call, ended)),
            Asker::Watch(_) => {}
        }
    }

    /// Removes a request.
    fn settle(&mut self, number: u64) -> Option<Pending> {
        let pending = self.pending.remove(&number)?;
        if let Some(due) = pending.due {
            self.due.remove(&(due, number));
        }
        if let Asker::Call(call) = pending.asker {
            self.by_call.remove(&call);
        }
        if pending.confirm == Confirm::Applied {
            let endpoint = pending.request.endpoint();
            if let Some(waiting) = self.applying.get_mut(&endpoint) {
                waiting.retain(|one| *one != number);
                if waiting.is_empty() {
                    self.applying.remove(&endpoint);
                }
            }
        }
        Some(pending)
    }

    /// Ends the request of a call or a watch.
    fn finish(&mut self, now: Nanos, number: u64, ended: Ended) {
        let Some(pending) = self.settle(number) else { return };
        if matches!(ended, Ended::Answered(_) | Ended::Applied(_)) {
            self.stats.latency.add(now - pending.since);
        }
        let Asker::Watch(watch) = pending.asker else { return self.end(pending.asker, ended) };
        let Ended::Answered(read) = ended else { return self.watches.failed(now, watch) };
        match read.message.status_code {
            200..300 => {
                if self.watches.found(now, watch, &read.message.config_id) {
                    self.events.push_back(SourceEvent::Changed(watch, read));
                }
            }
            // There is none yet; it will be announced.
            404 => self.watches.none(now, watch),
            _ => self.watches.failed(now, watch),
        }
    }

    fn on_reply(&mut self, now: Nanos, kind: Kind, incoming: Incoming<Hearing>) -> Verdict {
        let body = incoming.frames[2].clone();
        if body.is_empty() && is_no_responders(&incoming.frames[1]) {
            // It names no request: no target received any of the pending ones (CDT-35).
            let is_open = |one: &Pending| one.request.kind.answered_with() == kind && one.stored.is_none();
            let open = self.pending.iter().filter(|(_, one)| is_open(one));
            for number in open.map(|(number, _)| *number).collect::<Vec<_>>() {
                self.finish(now, number, Ended::NoTarget);
            }
            return Verdict::default();
        }
        let response = match self.settings.part.read(self.clock.unix_ms(now), kind, &body) {
            Ok(response) => response,
            Err(reason) => return self.drop(reason, incoming),
        };
        let number = self.number(&response.correlation_id);
        let is_open = number
            .and_then(|number| self.pending.get(&number))
            .is_some_and(|one| one.request.kind.answered_with() == kind && one.stored.is_none());
        match number {
            Some(number) if is_open => {
                self.on_answer(now, number, response, body);
                Verdict::default()
            }
            Some(_) => self.drop(DropKind::Late.into(), incoming),
            None => self.drop(DropKind::UnknownCorrelation.into(), incoming),
        }
    }

    fn on_answer(&mut self, now: Nanos, number: u64, response: Message<'static>, body: Bytes) {
        let settings = self.settings.part.body;
        let is_good = (200..300).contains(&response.status_code);
        if let Some(pending) = self.pending.get_mut(&number)
            && pending.confirm == Confirm::Applied
            && is_good
        {
            let config_id = response.config_id.into_owned();
            if !pending.applied.contains(&config_id) {
                pending.stored = Some(config_id);
                return;
            }
            return self.finish(now, number, Ended::Applied(config_id));
        }
        self.finish(
            now,
            number,
            Ended::Answered(Box::new(Received { message: response, body, settings, originator: None })),
        );
    }

    fn on_event(&mut self, now: Nanos, kind: Kind, incoming: Incoming<Hearing>) -> Verdict {
        let body = incoming.frames[2].clone();
        let part = &self.settings.part;
        let event = match part.read(self.clock.unix_ms(now), kind, &body) {
            Ok(event) => event,
            Err(reason) => return self.drop(reason, incoming),
        };
        if incoming.socket == Hearing::Events {
            let endpoint = event.endpoint();
            if kind == Kind::ConfigUpdated {
                self.on_applied(now, &endpoint, &event.config_id);
            } else {
                self.watches.announced(now, &endpoint, &event.config_id);
                self.look(now);
            }
        }
        let part = &self.settings.part;
        if part.shares_events == (incoming.socket == Hearing::Events) {
            return Verdict::default();
        }
        if event.originator_replica_id == part.replica && !part.includes_own {
            return self.drop(DropKind::OwnEvent.into(), incoming);
        }
        self.stats.events += 1;
        let read = Received { message: event, body, settings: part.body, originator: Part::originator(&incoming) };
        self.events.push_back(SourceEvent::Event(Box::new(read)));
        Verdict::default()
    }

    /// An endpoint has applied a configuration; this may be reported before the target confirms the push.
    fn on_applied(&mut self, now: Nanos, endpoint: &(String, String), config_id: &str) {
        for number in self.applying.get(endpoint).cloned().unwrap_or_default() {
            let Some(pending) = self.pending.get_mut(&number) else { continue };
            if pending.stored.as_deref() == Some(config_id) {
                self.finish(now, number, Ended::Applied(config_id.to_owned()));
            } else if pending.applied.len() < 64 {
                pending.applied.insert(config_id.to_owned());
            }
        }
    }

    /// Pulls for the watches that are due.
    fn look(&mut self, now: Nanos) {
        while let Some((watch, (app_version_name, endpoint_id))) = self.watches.due(now) {
            let pull = Pull { app_version_name, endpoint_id, timeout: Some(self.settings.patience), ..Pull::default() };
            self.begin(now, pending(Asker::Watch(watch), pull));
        }
    }

    fn report(&mut self, now: Nanos, call: CallId, app: &str, endpoint: &str, config_id: &str) {
        let number = self.next;
        self.next += 1;
        let correlation = self.correlation(number);
        let part = &self.settings.part;
        let event = Message {
            kind: Kind::ConfigUpdated,
            correlation_id: Cow::Owned(correlation),
            timestamp_ms: self.clock.unix_ms(now),
            timeout_ms: -1,
            originator_replica_id: Cow::Borrowed(&part.replica),
            app_version_name: Cow::Borrowed(app),
            endpoint_id: Cow::Borrowed(endpoint),
            config_id: Cow::Borrowed(config_id),
            ..Message::default()
        };
        let output = part.event(Hearing::Events, Some(SendId(number)), &event);
        self.expect(now, number, call, Kind::ConfigUpdated, None);
        self.outputs.push_back(output);
    }

    fn close_if_done(&mut self, now: Nanos) {
        if self.state.is_open() {
            return;
        }
        let is_done = self.pending.values().all(|one| matches!(one.asker, Asker::Watch(_))) && self.sending.is_empty();
        let Some(linger) = self.state.close(now, is_done) else { return };
        let open: Vec<u64> = self.pending.keys().copied().collect();
        for number in open {
            if let Some(pending) = self.settle(number) {
                self.end(pending.asker, Ended::Unanswered);
            }
        }
        for (_, sending) in std::mem::take(&mut self.sending) {
            self.end(Asker::Call(sending.call), Ended::Unanswered);
        }
        for socket in &self.open {
            self.outputs.push_back(Output::Close { socket: *socket, linger });
        }
    }
}

/// A number in the form that we write.
fn hexadecimal(digits: &str) -> Option<u64> {
    let is_ours = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    u64::from_str_radix(digits, 16).ok().filter(|_| is_ours)
}

/// Whether a header block reports that a request had no subscriber.
fn is_no_responders(block: &[u8]) -> bool {
    block.strip_prefix(b"NATS/1.0 ").is_some_and(|status| status.starts_with(b"503"))
}

fn pending(asker: Asker, pull: Pull) -> Pending {
    let request = Message {
        kind: Kind::ConfigRequest,
        timeout_ms: milliseconds(pull.timeout),
        endpoint_message_id: Cow::Owned(pull.endpoint_message_id.unwrap_or_default()),
        app_version_name: Cow::Owned(pull.app_version_name),
        endpoint_id: Cow::Owned(pull.endpoint_id),
        config_id: Cow::Owned(pull.config_id.unwrap_or_default()),
        ..Message::default()
    };
    Pending {
        asker,
        request,
        timeout: pull.timeout.map(|timeout| timeout.max(SHORTEST)),
        since: Nanos(0),
        due: None,
        retries: pull.retries,
        confirm: Confirm::Stored,
        applied: BTreeSet::new(),
        stored: None,
    }
}

/// A time-out in milliseconds, at least one: zero means no limit.
fn milliseconds(timeout: Option<Duration>) -> i64 {
    timeout.map_or(-1, |timeout| i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX).max(1))
}

impl Machine for Source {
    type Socket = Hearing;
    type Event = SourceEvent;
    type Verb = SourceVerb;
    type Stats = SourceStats;

    /// See [`Part::kind`] for its peer and its frames.
    fn handle_message(&mut self, now: Nanos, incoming: Incoming<Hearing>) -> Verdict {
        self.stats.received += 1;
        self.stats.bytes += crate::nbytes(incoming.frames.get(1..).unwrap_or_default());
        let verdict = match Part::kind(&incoming) {
            Ok(kind) if kind.has_status() => self.on_reply(now, kind, incoming),
            Ok(kind) if kind.is_event() => self.on_event(now, kind, incoming),
            Ok(_) => self.drop(DropKind::UnknownType.into(), incoming),
            Err(reason) => self.drop(reason, incoming),
        };
        self.close_if_done(now);
        verdict
    }

    fn handle_socket(&mut self, now: Nanos, socket: Hearing, event: SocketEvent) {
        if let Some(connection) = event.connection() {
            self.events.push_back(SourceEvent::Connection(connection));
        }
        match event {
            SocketEvent::Sent(id) | SocketEvent::Unsent(id, _) => {
                let is_sent = matches!(event, SocketEvent::Sent(_));
                self.sent(id, if is_sent { Ended::Sent } else { Ended::Unsent });
            }
            SocketEvent::Connected(_) => {
                // Events were missed while disconnected (CDT-49).
                self.watches.all(now);
                self.look(now);
            }
            SocketEvent::Server(ServerNotice::Forbidden(words)) => self.forbid(now, &words),
            SocketEvent::Server(ServerNotice::MaxPayload(bytes)) => self.settings.part.max_payload = bytes,
            SocketEvent::Closed => {
                self.open.retain(|open| *open != socket);
                if self.open.is_empty() && self.state.is_closing() {
                    self.state = Lifecycle::Closed;
                }
            }
            SocketEvent::Bound(_)
            | SocketEvent::OpenFailed { .. }
            | SocketEvent::Disconnected(_)
            | SocketEvent::HandshakeFailed { .. }
            | SocketEvent::Server(_)
            | SocketEvent::Unreachable { .. } => {}
        }
        self.close_if_done(now);
    }

    fn handle_timeout(&mut self, now: Nanos) {
        while let Some(&(due, number)) = self.due.first()
            && due <= now
        {
            self.due.remove(&(due, number));
            let Some(mut pending) = self.pending.remove(&number) else {
                if let Some(sending) = self.sending.remove(&SendId(number)) {
                    self.end(Asker::Call(sending.call), sending.late);
                }
                continue;
            };
            pending.due = None;
            if pending.retries > 0 {
                pending.retries -= 1;
                self.stats.retries += 1;
                self.send(now, number, &mut pending, true);
                self.pending.insert(number, pending);
            } else {
                let ended = match pending.confirm {
                    Confirm::Applied => Ended::Unapplied { is_stored: pending.stored.is_some() },
                    Confirm::Sent | Confirm::Stored => Ended::TimedOut,
                };
                self.pending.insert(number, pending);
                self.finish(now, number, ended);
            }
        }
        if self.state.is_open() {
            self.look(now);
        }
        self.close_if_done(now);
    }

    fn handle_verb(&mut self, now: Nanos, verb: SourceVerb) {
        let is_open = self.state.is_open();
        match verb {
            SourceVerb::Pull(call, _) | SourceVerb::Push(call, _) | SourceVerb::Report { call, .. } if !is_open => {
                self.end(Asker::Call(call), Ended::Unanswered);
            }
            SourceVerb::Pull(call, pull) => {
                self.stats.pulls += 1;
                self.begin(now, pending(Asker::Call(call), pull));
            }
            SourceVerb::Push(call, push) => {
                self.stats.pushes += 1;
                let Push { app_version_name, endpoint_id, config_id, content_type, content, confirm, timeout } = push;
                let pull = Pull { app_version_name, endpoint_id, config_id, timeout, ..Pull::default() };
                let mut asked = pending(Asker::Call(call), pull);
                asked.confirm = confirm;
                asked.request.kind = Kind::ConfigPush;
                asked.request.content_type = Cow::Owned(content_type);
                asked.request.content = content.map(Content::from);
                self.begin(now, asked);
            }
            SourceVerb::Report { call, app_version_name, endpoint_id, config_id } => {
                self.report(now, call, &app_version_name, &endpoint_id, &config_id);
            }
            SourceVerb::Cancel(call) => {
                if let Some(number) = self.by_call.get(&call).copied() {
                    self.settle(number);
                }
                self.sending.retain(|_, one| one.call != call);
                self.watches.remove(call);
            }
            SourceVerb::Watch(call, app_version_name, endpoint_id) => {
                if is_open {
                    self.watches.add(now, call, (app_version_name, endpoint_id));
                    self.look(now);
                }
            }
        }
        self.close_if_done(now);
    }

    fn handle_clock(&mut self, now: Nanos, unix_ms: i64) {
        self.clock = Clock::new(now, unix_ms);
    }

    /// Waits at most `grace` for the answers to pending requests.
    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        self.state.drain(now, grace);
        self.close_if_done(now);
    }

    fn poll_output(&mut self) -> Option<Output<Hearing>> {
        let output = self.outputs.pop_front()?;
        self.stats.sent += u64::from(matches!(output, Output::Send { .. }));
        Some(output)
    }

    fn poll_event(&mut self) -> Option<SourceEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        let watches = if self.state.is_open() { self.watches.poll_timeout() } else { None };
        let due = self.due.first().map(|(due, _)| *due);
        if self.state.is_closing() {
            None
        } else {
            [due, watches, self.state.poll_timeout()].into_iter().flatten().min()
        }
    }

    fn stats(&self) -> SourceStats {
        let waiting = self.pending.values().filter(|one| matches!(one.asker, Asker::Call(_))).count();
        SourceStats { waiting: waiting as u64, ..self.stats.clone() }
    }

    fn is_closed(&self) -> bool {
        self.state.is_closed()
    }
}
