//! The client's control connection: one command at a time, and logins whenever the server wants one (MTL-01 … MTL-29).

mod settings;

pub use self::settings::{
    ClientAnswer, ClientEvent, ClientSettings, ClientSocket, ClientStats, ClientVerb, LoginStep, Outcome,
};

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

use super::control::{Command, Json, Reply};
use super::retries::Retries;
use super::{Spoken, decode, redacted};
use crate::question::{Questions, Token};
use crate::{
    Backlog, CallId, Calling, DecodeError, Dropped, ErrorKind, Event, Frames, Incoming, Lifecycle, Machine, Nanos,
    Open, Origin, Output, SocketEvent, SocketKind, Verdict, Weight,
};

/// What a server replies to a client without a session.
const OPEN_FIRST: &str = "Open first";
const SELECT_FIRST: &str = "Select a profile first";

/// How often a command is sent again because its session had ended.
const AGAIN: u32 = 3;

/// The minimum time of a step of a session: without one it would be restarted endlessly.
const MOMENT: Duration = Duration::from_millis(1);

/// How far the session has come.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was sent on this socket.
    Fresh,
    /// The server wants a login by one of these mechanisms.
    Stranger(Vec<String>),
    /// A login is in progress, with this challenge.
    Challenged(Bytes),
    /// No profile is selected.
    Ready,
    /// The session is open.
    Inside,
}

/// A pending request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Open,
    Authorize,
    Profile,
    Command(CallId),
}

/// A request in flight.
#[derive(Debug)]
struct Flight {
    step: Step,
    until: Nanos,
}

/// A pending call.
#[derive(Debug)]
struct Call {
    /// `None` to open a session only.
    command: Option<Command>,
    /// How long it may take in total.
    time: Duration,
    until: Nanos,
    again: u32,
}

/// The control connection of an MTL client.
#[derive(Debug)]
pub struct Client {
    settings: ClientSettings,
    state: Lifecycle,
    /// The number of the current socket.
    socket: u32,
    endpoint: usize,
    /// When that socket will be opened, if it is not open yet.
    opens: Option<Nanos>,
    retries: Retries,
    /// Whether the server has sent anything on this socket.
    is_heard: bool,
    phase: Phase,
    flight: Option<Flight>,
    /// The pending question about a login.
    asking: Option<Token>,
    questions: Questions<()>,
    calls: BTreeMap<CallId, Call>,
    /// Calls that were not sent yet, in their order.
    waiting: VecDeque<CallId>,
    mechanism: String,
    /// Whether the server has proved what the mechanism requires.
    is_proved: bool,
    stats: ClientStats,
    outputs: VecDeque<Output<ClientSocket>>,
    events: VecDeque<ClientEvent>,
}

impl Client {
    /// A client that opens its socket at once, but sends nothing before the first call.
    pub fn new(settings: ClientSettings) -> Self {
        let mut client = Self {
            questions: Questions::new(1, settings.timeout),
            settings,
            state: Lifecycle::Open,
            socket: 0,
            endpoint: 0,
            opens: None,
            retries: Retries::default(),
            is_heard: false,
            phase: Phase::Fresh,
            flight: None,
            asking: None,
            calls: BTreeMap::new(),
            waiting: VecDeque::new(),
            mechanism: String::new(),
            is_proved: false,
            stats: ClientStats::default(),
            outputs: VecDeque::new(),
            events: VecDeque::new(),
        };
        client.open_socket();
        client
    }

    fn open_socket(&mut self) {
        self.opens = None;
        self.outputs.push_back(Output::Open(Box::new(Open {
            socket: ClientSocket(self.socket),
            kind: SocketKind::Req,
            bind: vec![],
            connect: self.settings.connect.get(self.endpoint).cloned().into_iter().collect(),
            options: self.settings.options.clone(),
        })));
    }

    /// Replaces the socket: the old one's reply may come too late, for another command (MTL-02).
    fn renew(&mut self) {
        self.leave_socket();
        self.open_socket();
    }

    /// The connection is lost: replaces the socket, after a delay if the server had sent nothing on it.
    fn connect_again(&mut self, now: Nanos) {
        let is_heard = self.is_heard;
        self.leave_socket();
        if is_heard {
            self.open_socket();
        } else {
            self.opens = Some(now + self.retries.wait());
        }
    }

    fn leave_socket(&mut self) {
        if self.opens.is_none() {
            self.outputs.push_back(Output::Close { socket: ClientSocket(self.socket), linger: Duration::ZERO });
        }
        self.socket = self.socket.wrapping_add(1);
        self.endpoint = (self.endpoint + 1) % self.settings.connect.len().max(1);
        self.stats.reconnects += 1;
        (self.phase, self.flight, self.asking, self.is_heard) = (Phase::Fresh, None, None, false);
    }

    /// Sends the next request, if none is in flight and a call is pending.
    fn advance(&mut self, now: Nanos) {
        while self.flight.is_none() && self.asking.is_none() && self.opens.is_none() && !self.state.is_closing() {
            let Some(&call) = self.waiting.front() else { return };
            match self.phase.clone() {
                Phase::Fresh => {
                    let body = json!({
                        "protocol": { "name": "MTL", "version": 1 },
                        "virtual-host": self.settings.virtual_host,
                    });
                    self.say(now, Step::Open, "Connection.Open", &body);
                }
                Phase::Stranger(mechanisms) => self.ask(now, LoginStep::Begin { mechanisms }),
                Phase::Challenged(challenge) => {
                    let mechanism = self.mechanism.clone();
                    self.ask(now, LoginStep::Challenge { mechanism, challenge });
                }
                Phase::Ready => {
                    let body = json!({ "profile": self.settings.profile });
                    self.say(now, Step::Profile, "Connection.Profile", &body);
                }
                Phase::Inside => {
                    self.waiting.pop_front();
                    let Some(command) = self.calls.get(&call).map(|call| call.command.clone()) else { continue };
                    match command {
                        None => self.end(call, Outcome::Entered),
                        Some(command) => self.send(now, Step::Command(call), &command),
                    }
                }
            }
        }
    }

    fn say(&mut self, now: Nanos, step: Step, name: &str, body: &Value) {
        let body = body.as_object().cloned().unwrap_or_default();
        self.send(now, step, &Command { name: name.to_owned(), body });
    }

    fn send(&mut self, now: Nanos, step: Step, command: &Command) {
        let until = match &step {
            Step::Command(call) => self.calls.get(call).map(|call| call.until),
            Step::Open => Some(now + self.share()),
            Step::Authorize | Step::Profile => None,
        };
        let until = until.unwrap_or_else(|| now + self.settings.timeout.max(MOMENT));
        match &step {
            Step::Open => self.stats.logs_in = false,
            Step::Authorize => self.stats.logs_in = true,
            Step::Profile | Step::Command(_) => {}
        }
        self.flight = Some(Flight { step, until });
        self.stats.sent += 1;
        self.outputs.push_back(Output::Send {
            id: None,
            socket: ClientSocket(self.socket),
            to: None,
            frames: command.frames().into(),
            until: None,
        });
    }

    /// How long an endpoint may take to answer: each of several gets its share before the first call times out.
    fn share(&self) -> Duration {
        let first = self.waiting.front().and_then(|call| self.calls.get(call));
        let time = match (first, u32::try_from(self.settings.connect.len())) {
            (Some(call), Ok(endpoints @ 2..)) => call.time.min(self.settings.timeout) / endpoints,
            _ => self.settings.timeout,
        };
        time.max(MOMENT)
    }

    fn ask(&mut self, now: Nanos, step: LoginStep) {
        if let Ok(token) = self.questions.ask(now, ()) {
            self.asking = Some(token);
            let is_private = self.settings.options.curve.is_some()
                || self.settings.connect.get(self.endpoint).is_some_and(|endpoint| !endpoint.starts_with("tcp://"));
            self.events.push_back(ClientEvent::Asked { token, step, is_private });
        }
    }

    fn end(&mut self, call: CallId, outcome: Outcome) {
        if self.calls.remove(&call).is_some() {
            self.waiting.retain(|waiting| *waiting != call);
            self.events.push_back(ClientEvent::Ended(call, outcome));
        }
    }

    /// The session cannot be opened: the first pending call learns why, and the next one tries again.
    fn fail(&mut self, outcome: Outcome) {
        if let Some(&call) = self.waiting.front() {
            self.end(call, outcome);
        }
    }

    fn on_reply(&mut self, reply: Reply) {
        (self.is_heard, self.retries) = (true, Retries::default());
        let Some(Flight { step, .. }) = self.flight.take() else { return };
        match step {
            Step::Open => match reply.status {
                201 => self.phase = Phase::Ready,
                401 => self.phase = Phase::Stranger(mechanisms(&reply.body)),
                _ => self.fail(Outcome::Reply(reply)),
            },
            Step::Authorize => match (reply.status, reply.body.get("challenge").and_then(Value::as_str)) {
                (201, _) if self.is_proved => self.phase = Phase::Ready,
                (201, _) => {
                    self.phase = Phase::Fresh;
                    self.fail(Outcome::NoLogin(
                        "the server did not prove that it knows the password".to_owned(),
                        vec![],
                    ));
                }
                (402, Some(challenge)) => match STANDARD.decode(challenge) {
                    Ok(challenge) => self.phase = Phase::Challenged(challenge.into()),
                    Err(_) => self.fail(Outcome::Reply(reply)),
                },
                (401, _) => {
                    self.phase = Phase::Stranger(mechanisms(&reply.body));
                    self.fail(Outcome::Unauthenticated(mechanisms(&reply.body)));
                }
                _ => self.fail_or_begin_anew(reply),
            },
            Step::Profile => match reply.status {
                200 => self.phase = Phase::Inside,
                401 => {
                    self.phase = Phase::Stranger(mechanisms(&reply.body));
                    if !self.again(self.waiting.front().copied()) {
                        self.fail(Outcome::Unauthenticated(mechanisms(&reply.body)));
                    }
                }
                _ => self.fail_or_begin_anew(reply),
            },
            Step::Command(call) => self.on_command_reply(call, reply),
        }
    }

    fn fail_or_begin_anew(&mut self, reply: Reply) {
        let is_new = is_said(&reply, OPEN_FIRST) && self.again(self.waiting.front().copied());
        self.phase = if is_new { Phase::Fresh } else { self.phase.clone() };
        if !is_new {
            self.fail(Outcome::Reply(reply));
        }
    }

    /// Counts that a call has to be sent again. Returns whether it may.
    fn again(&mut self, call: Option<CallId>) -> bool {
        let Some(call) = call.and_then(|call| self.calls.get_mut(&call)) else { return false };
        call.again += 1;
        call.again <= AGAIN
    }

    fn on_command_reply(&mut self, call: CallId, reply: Reply) {
        let phase = match reply.status {
            401 => Phase::Stranger(mechanisms(&reply.body)),
            400 if is_said(&reply, OPEN_FIRST) => Phase::Fresh,
            400 if is_said(&reply, SELECT_FIRST) => Phase::Ready,
            _ => return self.end(call, Outcome::Reply(reply)),
        };
        self.phase = phase;
        if self.again(Some(call)) {
            self.waiting.push_front(call);
        } else if reply.status == 401 {
            self.end(call, Outcome::Unauthenticated(mechanisms(&reply.body)));
        } else {
            self.end(call, Outcome::Reply(reply));
        }
    }

    /// The pending reply is invalid.
    fn on_garbage(&mut self, error: DecodeError) {
        let flight = self.flight.take();
        match flight.map(|flight| flight.step) {
            Some(Step::Command(call)) => self.end(call, Outcome::Garbled(error)),
            Some(Step::Open | Step::Authorize | Step::Profile) => self.fail(Outcome::Garbled(error)),
            None => {}
        }
    }

    fn on_login(&mut self, now: Nanos, token: Token, answer: ClientAnswer) {
        if self.questions.answered(token).is_none() || self.asking != Some(token) {
            return;
        }
        self.asking = None;
        match answer {
            ClientAnswer::Respond { mechanism, response, is_done } => {
                let body = json!({ "mechanism": mechanism, "response": STANDARD.encode(response) });
                self.mechanism = mechanism;
                self.is_proved = is_done;
                self.say(now, Step::Authorize, "Connection.Authorize", &body);
            }
            ClientAnswer::GiveUp(reason) => {
                // A login in progress is not continued.
                let offered = match std::mem::replace(&mut self.phase, Phase::Fresh) {
                    Phase::Stranger(mechanisms) => mechanisms,
                    Phase::Fresh | Phase::Challenged(_) | Phase::Ready | Phase::Inside => vec![],
                };
                self.fail(Outcome::NoLogin(reason, offered));
            }
        }
    }

    fn close_if_done(&mut self, now: Nanos) {
        let Some(linger) = self.state.close(now, self.calls.is_empty()) else { return };
        for call in self.calls.keys().copied().collect::<Vec<_>>() {
            self.end(call, Outcome::Unanswered);
        }
        if self.opens.take().is_some() {
            self.state = Lifecycle::Closed;
        } else {
            self.outputs.push_back(Output::Close { socket: ClientSocket(self.socket), linger });
        }
    }
}

fn mechanisms(body: &Json) -> Vec<String> {
    let list = body.get("mechanisms").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn is_said(reply: &Reply, text: &str) -> bool {
    reply.status == 400 && reply.body.get("status").and_then(Value::as_str) == Some(text)
}

impl Machine for Client {
    type Socket = ClientSocket;
    type Event = ClientEvent;
    type Verb = ClientVerb;
    type Stats = ClientStats;

    fn handle_message(&mut self, now: Nanos, incoming: Incoming<ClientSocket>) -> Verdict {
        let Incoming { socket, frames, .. } = incoming;
        self.stats.received += 1;
        self.stats.bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        if socket != ClientSocket(self.socket) {
            return Verdict::default();
        }
        let read = decode(&frames).and_then(|spoken| match spoken {
            Spoken::Reply(reply) => Ok(reply),
            Spoken::Command(_) | Spoken::Data(_) => {
                Err(DecodeError { kind: ErrorKind::BadStatus, frame: 0, offset: 0 })
            }
        });
        let error = read.as_ref().err().map(|error| error.kind);
        match read {
            Ok(reply) => self.on_reply(reply),
            Err(error) => {
                let dropped = Dropped::new(error, Origin::default(), frames);
                dropped.count(&mut self.stats.dropped);
                self.events.push_back(ClientEvent::Dropped(dropped));
                self.on_garbage(error);
            }
        }
        self.advance(now);
        self.close_if_done(now);
        Verdict { error, ..Verdict::default() }
    }

    fn handle_socket(&mut self, now: Nanos, socket: ClientSocket, event: SocketEvent) {
        self.events.extend(event.connection().map(ClientEvent::Connection));
        match event {
            SocketEvent::Disconnected(_) if socket == ClientSocket(self.socket) && !self.state.is_closing() => {
                // A REQ never receives the reply to a request of a lost connection.
                if let Some(flight) = self.flight.take() {
                    if let Step::Command(call) = flight.step {
                        self.end(call, Outcome::Lost);
                    }
                    self.connect_again(now);
                }
            }
            SocketEvent::Closed if self.state.is_closing() && socket == ClientSocket(self.socket) => {
                self.state = Lifecycle::Closed;
            }
            SocketEvent::Bound(_)
            | SocketEvent::OpenFailed { .. }
            | SocketEvent::Connected(_)
            | SocketEvent::Disconnected(_)
            | SocketEvent::HandshakeFailed { .. }
            | SocketEvent::Server(_)
            | SocketEvent::Unreachable { .. }
            | SocketEvent::Sent(_)
            | SocketEvent::Unsent(..)
            | SocketEvent::Closed => {}
        }
        self.close_if_done(now);
    }

    fn handle_timeout(&mut self, now: Nanos) {
        while self.questions.expired(now).is_some() {
            self.asking = None;
            self.phase = Phase::Fresh;
            self.fail(Outcome::TimedOut);
        }
        if self.flight.as_ref().is_some_and(|flight| flight.until <= now) {
            self.renew();
        }
        if self.opens.is_some_and(|opens| opens <= now) {
            self.open_socket();
        }
        let late: Vec<_> = self.calls.iter().filter(|(_, call)| call.until <= now).map(|(id, _)| *id).collect();
        for call in late {
            self.end(call, Outcome::TimedOut);
        }
        self.advance(now);
        self.close_if_done(now);
    }

    fn handle_verb(&mut self, now: Nanos, verb: ClientVerb) {
        match verb {
            ClientVerb::Call { call, .. } if !self.state.is_open() => {
                self.events.push_back(ClientEvent::Ended(call, Outcome::Unanswered));
            }
            ClientVerb::Call { call, command, timeout } => {
                let time = timeout.unwrap_or(self.settings.timeout);
                self.calls.insert(call, Call { command, time, until: now + time, again: 0 });
                self.waiting.push_back(call);
            }
            ClientVerb::Cancel(call) => {
                self.calls.remove(&call);
                self.waiting.retain(|waiting| *waiting != call);
                if self.flight.as_ref().is_some_and(|flight| flight.step == Step::Command(call)) {
                    // The next call does not wait for the reply to a cancelled one.
                    self.renew();
                }
            }
            ClientVerb::Answer(token, answer) => self.on_login(now, token, answer),
        }
        self.advance(now);
        self.close_if_done(now);
    }

    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        self.state.drain(now, grace);
        self.close_if_done(now);
    }

    fn poll_output(&mut self) -> Option<Output<ClientSocket>> {
        self.outputs.pop_front()
    }

    fn shown(&self, _socket: ClientSocket, frames: &[Bytes]) -> Option<Frames> {
        if self.settings.shows_secrets { None } else { redacted(frames) }
    }

    fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        if self.state.is_closing() {
            return None;
        }
        let calls = self.calls.values().map(|call| call.until).min();
        let flight = self.flight.as_ref().map(|flight| flight.until);
        let times = [calls, flight, self.opens, self.questions.poll_timeout(), self.state.poll_timeout()];
        times.into_iter().flatten().min()
    }

    fn backlog(&self) -> Backlog {
        Backlog { messages: self.calls.len(), bytes: 0 }
    }

    fn progress(&self) -> u64 {
        self.stats.received
    }

    fn stats(&self) -> ClientStats {
        let endpoint = self.settings.connect.get(self.endpoint).cloned().unwrap_or_default();
        ClientStats { endpoint, ..self.stats.clone() }
    }

    fn is_closed(&self) -> bool {
        self.state.is_closed()
    }
}

impl Event for ClientEvent {
    fn weight(&self) -> Weight {
        match self {
            Self::Ended(_, outcome) => Weight::Lossless(Client::cost(outcome)),
            Self::Dropped(dropped) => dropped.weight(),
            Self::Asked { .. } | Self::Connection(_) => Weight::Notice(0),
        }
    }

    #[inline]
    fn origin(&mut self) -> Option<&mut Origin> {
        if let Self::Dropped(dropped) = self { Some(&mut dropped.origin) } else { None }
    }
}

impl Calling for Client {
    type Outcome = Outcome;

    fn outcome(event: ClientEvent) -> Result<(CallId, Outcome), ClientEvent> {
        match event {
            ClientEvent::Ended(call, outcome) => Ok((call, outcome)),
            ClientEvent::Asked { .. } | ClientEvent::Dropped(_) | ClientEvent::Connection(_) => Err(event),
        }
    }

    fn unanswered() -> Outcome {
        Outcome::Unanswered
    }

    fn cost(outcome: &Outcome) -> usize {
        match outcome {
            // The size of its text estimates its memory.
            Outcome::Reply(reply) => reply.frames().iter().map(Bytes::len).sum(),
            Outcome::Entered
            | Outcome::Unauthenticated(_)
            | Outcome::NoLogin(..)
            | Outcome::Garbled(_)
            | Outcome::TimedOut
            | Outcome::Lost
            | Outcome::Unanswered => 0,
        }
    }
}
