//! The target: answers pulls, accepts pushes, and announces new configurations.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::settings::{Clock, Part, TargetStats};
use super::subject::answered_by;
use super::{Content, Kind, Message, Received, Rejected, decode_shared, encode};
use crate::question::{Questions, Token};
use crate::{
    Connection, DropKind, DropReason, Dropped, Event, Frames, Incoming, Lifecycle, Machine, Nanos, Origin, Output,
    SendId, ServerNotice, SocketEvent, Verdict, Weight,
};

/// Questions to the store that may be pending.
const MOST_QUESTIONS: usize = 65_536;

/// What a target subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Listening {
    /// Requests to the service, which its replicas share.
    Service,
    /// Requests to this replica.
    Replica,
    /// All events.
    Events,
    /// This replica's share of the events.
    SharedEvents,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSettings {
    /// The settings that both roles share.
    pub part: Part,
    /// Whether the replicas of the service share its requests (CDT-05, CDT-10).
    pub shares_requests: bool,
    /// Whether announcements contain the content, if it fits.
    pub includes_content: bool,
    /// How long the store may take to answer.
    pub patience: Duration,
}

impl Default for TargetSettings {
    fn default() -> Self {
        let patience = Duration::from_secs(10);
        Self { part: Part::default(), shares_requests: true, includes_content: false, patience }
    }
}

/// A configuration in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub config_id: String,
    pub content_type: String,
    pub content: Bytes,
}

/// The store's answer to a pull or push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The configuration was found.
    Found(Config),
    /// The configuration was stored.
    Stored {
        config: Config,
        /// Whether its id is new.
        is_new: bool,
    },
    /// There is no such configuration.
    Missing,
    /// There is another configuration with this id.
    Conflict,
    /// The store has failed.
    Failed {
        /// The HTTP status.
        status: u16,
        reason: String,
    },
}

/// What the user of a target may request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetVerb {
    /// The answer to a question.
    Answer(Token, Answer),
    /// Announce a configuration for an endpoint (CDT-38); ends in [`TargetEvent::Announced`]. To precede the answer to
    /// the push, it must be requested first (CDT-39).
    Announce {
        /// The version of the application.
        app_version_name: String,
        endpoint_id: String,
        config: Config,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetEvent {
    /// The store is asked for a configuration: the latest, or one by its id.
    Get {
        /// The number of the question.
        token: Token,
        /// The id for tracing.
        correlation_id: String,
        /// The version of the application.
        app_version_name: String,
        endpoint_id: String,
        /// The configuration; `None` is the latest.
        config_id: Option<String>,
    },
    /// The store is asked to keep a configuration, or to roll back to one.
    Put {
        /// The number of the question.
        token: Token,
        /// The id for tracing.
        correlation_id: String,
        /// The version of the application.
        app_version_name: String,
        endpoint_id: String,
        /// Its id; `None` to derive it from the content.
        config_id: Option<String>,
        content_type: String,
        /// The content; `None` to roll back.
        content: Option<Bytes>,
    },
    /// An announcement was sent, or could not be.
    Announced {
        /// The version of the application.
        app_version_name: String,
        endpoint_id: String,
        config_id: String,
        /// Whether it was sent.
        is_sent: bool,
    },
    /// An endpoint has applied a configuration.
    Updated {
        /// The version of the application.
        app_version_name: String,
        endpoint_id: String,
        config_id: String,
        /// When, as Unix time in milliseconds.
        timestamp_ms: i64,
    },
    /// An event was received.
    Event(Box<Received>),
    /// A message was dropped.
    Dropped(Dropped),
    /// What became of the connection.
    Connection(Connection),
}

impl Event for TargetEvent {
    fn weight(&self) -> Weight {
        match self {
            Self::Dropped(dropped) => dropped.weight(),
            Self::Connection(_) => Weight::Notice(0),
            Self::Put { content, .. } => Weight::Lossless(content.as_ref().map_or(0, Bytes::len)),
            Self::Event(read) => Weight::Lossless(read.body.len()),
            Self::Get { .. } | Self::Announced { .. } | Self::Updated { .. } => Weight::Lossless(0),
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

/// What an announcement is about: the version of the application, the endpoint, the configuration.
type About = (String, String, String);

/// A request whose answer the store owes.
#[derive(Debug)]
struct Asked {
    request: Message<'static>,
    /// Empty if no answer is wanted.
    reply_to: String,
    /// When it was received.
    since: Nanos,
}

/// The target of CDT.
#[derive(Debug)]
pub struct Target {
    settings: TargetSettings,
    state: Lifecycle,
    clock: Clock,
    questions: Questions<Asked>,
    announcing: HashMap<SendId, About>,
    sends: u64,
    open: Vec<Listening>,
    outputs: VecDeque<Output<Listening>>,
    events: VecDeque<TargetEvent>,
    stats: TargetStats,
}

/// The kinds of requests to a target.
const ASKED: [Kind; 2] = [Kind::ConfigRequest, Kind::ConfigPush];

impl Target {
    /// A target that subscribes at once.
    pub fn new(settings: TargetSettings) -> Self {
        let part = &settings.part;
        let service = ASKED.map(|kind| part.subjects.service(&part.instance, kind));
        let group = Some(part.instance.as_str());
        let mut outputs = VecDeque::from([
            Part::open(Listening::Events, [part.subjects.events()], None),
            Part::open(Listening::Replica, part.own(&ASKED), None),
            Part::open(Listening::Service, service, group.filter(|_| settings.shares_requests)),
        ]);
        let mut open = vec![Listening::Events, Listening::Replica, Listening::Service];
        if part.shares_events {
            outputs.push_back(Part::open(Listening::SharedEvents, [part.subjects.events()], group));
            open.push(Listening::SharedEvents);
        }
        Self {
            clock: Clock::new(Nanos(0), part.unix_ms),
            questions: Questions::new(MOST_QUESTIONS, settings.patience),
            settings,
            state: Lifecycle::Open,
            announcing: HashMap::new(),
            sends: 0,
            open,
            outputs,
            events: VecDeque::new(),
            stats: TargetStats::default(),
        }
    }

    /// Reports a dropped message. Returns its verdict.
    fn drop(&mut self, reason: DropReason, incoming: Incoming<Listening>) -> Verdict {
        let dropped = Dropped::new(reason, incoming.peer, incoming.frames);
        dropped.count(&mut self.stats.dropped);
        self.events.push_back(TargetEvent::Dropped(dropped));
        reason.error().map_or_else(Verdict::default, Verdict::from)
    }

    /// Answers with only a status.
    fn refuse(&mut self, now: Nanos, request: &Message<'_>, reply_to: &str, status: i32, reason: &str) {
        self.answer(now, request, reply_to, (status, reason), None);
    }

    /// Answers, if an answer is wanted. Errors have the requested id, and no type (CDT-24, CDT-25).
    fn answer(
        &mut self,
        now: Nanos,
        request: &Message<'_>,
        reply_to: &str,
        (status, reason): (i32, &str),
        config: Option<Config>,
    ) {
        if reply_to.is_empty() {
            return;
        }
        let kind = request.kind.answered_with();
        let mut response = Message {
            kind,
            correlation_id: Cow::Borrowed(&request.correlation_id),
            timestamp_ms: self.clock.unix_ms(now),
            timeout_ms: request.timeout_ms,
            endpoint_message_id: Cow::Borrowed(&request.endpoint_message_id),
            app_version_name: Cow::Borrowed(&request.app_version_name),
            endpoint_id: Cow::Borrowed(&request.endpoint_id),
            config_id: Cow::Borrowed(&request.config_id),
            status_code: status,
            reason_phrase: Cow::Borrowed(reason),
            ..Message::default()
        };
        if let Some(config) = config {
            response.config_id = Cow::Owned(config.config_id);
            if kind == Kind::ConfigResponse {
                response.content_type = Cow::Owned(config.content_type);
                response.content = Some(config.content.into());
            }
        }
        let part = &self.settings.part;
        let mut frames = part.frames(Bytes::new(), &response);
        if frames[2].len() > part.max_payload {
            // Otherwise the client would wait for an answer in vain (CDT-31).
            let too_large = Message {
                content_type: Cow::Borrowed(""),
                status_code: 413,
                reason_phrase: Cow::Borrowed("larger than a message may be"),
                content: None,
                ..response
            };
            frames = part.frames(Bytes::new(), &too_large);
            if frames[2].len() > part.max_payload {
                // Its fields are too long; the client needs only the correlation id (CDT-21).
                let bare = Message {
                    kind,
                    correlation_id: too_large.correlation_id,
                    timestamp_ms: too_large.timestamp_ms,
                    timeout_ms: too_large.timeout_ms,
                    status_code: too_large.status_code,
                    reason_phrase: too_large.reason_phrase,
                    ..Message::default()
                };
                frames = part.frames(Bytes::new(), &bare);
            }
        }
        let to = if kind == Kind::ConfigPushResponse { answered_by(reply_to, kind) } else { reply_to.to_owned() };
        self.outputs.push_back(Output::Send {
            id: None,
            socket: Listening::Service,
            to: Some(to.into()),
            frames: frames.into(),
            until: None,
        });
    }

    fn on_request(&mut self, now: Nanos, kind: Kind, incoming: Incoming<Listening>) -> Verdict {
        let (reply_to, body) = (text(&incoming.frames[0]), incoming.frames[2].clone());
        match decode_shared(&body, kind, &self.settings.part.body) {
            Ok(request) => {
                let request = request.into_owned();
                if request.is_expired(self.clock.unix_ms(now), self.settings.part.clock_skew_ms) {
                    self.drop(DropKind::Expired.into(), incoming)
                } else if kind == Kind::ConfigRequest && reply_to.is_empty() {
                    self.drop(DropKind::NoReplyTo.into(), incoming)
                } else {
                    self.ask(now, request, reply_to);
                    Verdict::default()
                }
            }
            Err(Rejected { fault, field, remains }) => {
                let reason = match field {
                    Some(field) => format!("{}: {field}", fault.kind),
                    None => fault.kind.to_string(),
                };
                self.refuse(now, &remains, &reply_to, 400, &reason);
                self.drop(fault.in_frame(2).into(), incoming)
            }
        }
    }

    /// Asks the store.
    fn ask(&mut self, now: Nanos, mut request: Message<'static>, reply_to: String) {
        let is_push = request.kind == Kind::ConfigPush;
        if !self.state.is_open() {
            self.count(&request, 503);
            return self.refuse(now, &request, &reply_to, 503, "this replica ends");
        }
        let content = request.content.take().map(Content::into_bytes);
        let named = || Some(request.config_id.to_string()).filter(|id| !id.is_empty());
        if is_push && content.is_none() && named().is_none() {
            self.count(&request, 400);
            return self.refuse(now, &request, &reply_to, 400, "missing_field: content or configId");
        }
        let (correlation_id, config_id) = (request.correlation_id.to_string(), named());
        let (app_version_name, endpoint_id) = request.endpoint();
        let content_type = request.content_type.to_string();
        match self.questions.ask(now, Asked { request, reply_to, since: now }) {
            Ok(token) if is_push => self.events.push_back(TargetEvent::Put {
                token,
                correlation_id,
                app_version_name,
                endpoint_id,
                config_id,
                content_type,
                content,
            }),
            Ok(token) => self.events.push_back(TargetEvent::Get {
                token,
                correlation_id,
                app_version_name,
                endpoint_id,
                config_id,
            }),
            Err(Asked { request, reply_to, .. }) => {
                self.count(&request, 503);
                self.refuse(now, &request, &reply_to, 503, "the store has too much to do");
            }
        }
    }

    fn count(&mut self, request: &Message<'_>, status: i32) {
        if request.kind == Kind::ConfigPush {
            self.stats.pushes += 1;
        } else {
            self.stats.pulls += 1;
            self.stats.not_found += u64::from(status == 404);
        }
    }

    fn on_answer(&mut self, now: Nanos, asked: &Asked, answer: Answer) {
        let Asked { request, reply_to, since } = asked;
        let (status, reason, config) = match answer {
            Answer::Found(config) => (200, Cow::Borrowed("OK"), Some(config)),
            Answer::Stored { config, is_new: true } => (201, "Created".into(), Some(config)),
            Answer::Stored { config, is_new: false } => (200, "OK".into(), Some(config)),
            Answer::Missing => (404, "Not Found".into(), None),
            Answer::Conflict => (409, "another configuration has this configId".into(), None),
            Answer::Failed { status, reason } => (i32::from(status), Cow::Owned(reason), None),
        };
        self.count(request, status);
        self.stats.latency.add(now - *since);
        self.answer(now, request, reply_to, (status, &reason), config);
    }

    fn announce(&mut self, now: Nanos, app: String, endpoint: String, config: &Config) {
        let part = &self.settings.part;
        let mut event = Message {
            kind: Kind::ConfigNewAvailable,
            correlation_id: Cow::Owned(format!("{}-{}", part.replica, self.sends)),
            timestamp_ms: self.clock.unix_ms(now),
            timeout_ms: -1,
            originator_replica_id: Cow::Borrowed(&part.replica),
            app_version_name: Cow::Borrowed(&app),
            endpoint_id: Cow::Borrowed(&endpoint),
            config_id: Cow::Borrowed(&config.config_id),
            ..Message::default()
        };
        if self.settings.includes_content {
            let with = Message {
                content_type: Cow::Borrowed(&config.content_type),
                content: Some(config.content.clone().into()),
                ..event.clone()
            };
            if encode(&with, &part.body).len() <= part.max_payload {
                event = with;
            }
        }
        let id = SendId(self.sends);
        self.sends += 1;
        let output = part.event(Listening::Events, Some(id), &event);
        self.outputs.push_back(output);
        self.announcing.insert(id, (app, endpoint, config.config_id.clone()));
    }

    fn announced(&mut self, (app_version_name, endpoint_id, config_id): About, is_sent: bool) {
        self.events.push_back(TargetEvent::Announced { app_version_name, endpoint_id, config_id, is_sent });
    }

    fn on_event(&mut self, now: Nanos, kind: Kind, incoming: Incoming<Listening>) -> Verdict {
        let body = incoming.frames[2].clone();
        let part = &self.settings.part;
        let event = match part.read(self.clock.unix_ms(now), kind, &body) {
            Ok(event) => event,
            Err(reason) => return self.drop(reason, incoming),
        };
        if incoming.socket == Listening::Events && kind == Kind::ConfigUpdated {
            self.events.push_back(TargetEvent::Updated {
                app_version_name: event.app_version_name.to_string(),
                endpoint_id: event.endpoint_id.to_string(),
                config_id: event.config_id.to_string(),
                timestamp_ms: event.timestamp_ms,
            });
        }
        if part.shares_events == (incoming.socket == Listening::Events) {
            return Verdict::default();
        }
        if event.originator_replica_id == part.replica && !part.includes_own {
            return self.drop(DropKind::OwnEvent.into(), incoming);
        }
        self.stats.events += 1;
        let read = Received { message: event, body, settings: part.body, originator: Part::originator(&incoming) };
        self.events.push_back(TargetEvent::Event(Box::new(read)));
        Verdict::default()
    }

    fn close_if_done(&mut self, now: Nanos) {
        let is_done = self.questions.is_empty() && self.announcing.is_empty();
        let Some(linger) = self.state.close(now, is_done) else { return };
        while let Some(asked) = self.questions.give_up() {
            self.count(&asked.request, 503);
            self.refuse(now, &asked.request, &asked.reply_to, 503, "this replica ends");
        }
        for (_, about) in std::mem::take(&mut self.announcing) {
            self.announced(about, false);
        }
        for socket in &self.open {
            self.outputs.push_back(Output::Close { socket: *socket, linger });
        }
        if self.open.is_empty() {
            self.state = Lifecycle::Closed;
        }
    }
}

/// The text of a subject; a reply subject that is not UTF-8 gets no answer.
fn text(frame: &Bytes) -> String {
    str::from_utf8(frame).unwrap_or_default().to_owned()
}

impl Machine for Target {
    type Socket = Listening;
    type Event = TargetEvent;
    type Verb = TargetVerb;
    type Stats = TargetStats;

    /// See [`Part::kind`] for its peer and its frames.
    fn handle_message(&mut self, now: Nanos, incoming: Incoming<Listening>) -> Verdict {
        self.stats.received += 1;
        self.stats.bytes += crate::nbytes(incoming.frames.get(1..).unwrap_or_default());
        let verdict = match Part::kind(&incoming) {
            Ok(kind) if ASKED.contains(&kind) => self.on_request(now, kind, incoming),
            Ok(kind) if kind.is_event() => self.on_event(now, kind, incoming),
            Ok(_) => self.drop(DropKind::UnknownType.into(), incoming),
            Err(reason) => self.drop(reason, incoming),
        };
        self.close_if_done(now);
        verdict
    }

    fn handle_socket(&mut self, now: Nanos, socket: Listening, event: SocketEvent) {
        if let Some(connection) = event.connection() {
            self.events.push_back(TargetEvent::Connection(connection));
        }
        match event {
            SocketEvent::Sent(id) | SocketEvent::Unsent(id, _) => {
                if let Some(about) = self.announcing.remove(&id) {
                    self.announced(about, matches!(event, SocketEvent::Sent(_)));
                }
            }
            SocketEvent::Server(ServerNotice::MaxPayload(bytes)) => self.settings.part.max_payload = bytes,
            SocketEvent::Closed => {
                self.open.retain(|open| *open != socket);
                if self.open.is_empty() && self.state.is_closing() {
                    self.state = Lifecycle::Closed;
                }
            }
            SocketEvent::Bound(_)
            | SocketEvent::OpenFailed { .. }
            | SocketEvent::Connected(_)
            | SocketEvent::Disconnected(_)
            | SocketEvent::HandshakeFailed { .. }
            | SocketEvent::Server(_)
            | SocketEvent::Unreachable { .. } => {}
        }
        self.close_if_done(now);
    }

    fn handle_timeout(&mut self, now: Nanos) {
        while let Some((_, asked)) = self.questions.expired(now) {
            let failed = Answer::Failed { status: 500, reason: "the store did not answer".to_owned() };
            self.on_answer(now, &asked, failed);
        }
        self.close_if_done(now);
    }

    fn handle_verb(&mut self, now: Nanos, verb: TargetVerb) {
        match verb {
            TargetVerb::Answer(token, answer) => {
                if let Some(asked) = self.questions.answered(token) {
                    self.on_answer(now, &asked, answer);
                }
            }
            TargetVerb::Announce { app_version_name, endpoint_id, config } if self.state.is_closing() => {
                self.announced((app_version_name, endpoint_id, config.config_id), false);
            }
            TargetVerb::Announce { app_version_name, endpoint_id, config } => {
                self.announce(now, app_version_name, endpoint_id, &config);
            }
        }
        self.close_if_done(now);
    }

    fn handle_clock(&mut self, now: Nanos, unix_ms: i64) {
        self.clock = Clock::new(now, unix_ms);
    }

    /// Waits at most `grace` for the store's pending answers; new requests are answered with 503.
    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        self.state.drain(now, grace);
        self.close_if_done(now);
    }

    fn poll_output(&mut self) -> Option<Output<Listening>> {
        let output = self.outputs.pop_front()?;
        self.stats.sent += u64::from(matches!(output, Output::Send { .. }));
        Some(output)
    }

    fn poll_event(&mut self) -> Option<TargetEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        [self.questions.poll_timeout(), self.state.poll_timeout()].into_iter().flatten().min()
    }

    fn progress(&self) -> u64 {
        self.stats.pulls + self.stats.pushes
    }

    fn stats(&self) -> TargetStats {
        self.stats.clone()
    }

    fn is_closed(&self) -> bool {
        self.state.is_closed()
    }
}
