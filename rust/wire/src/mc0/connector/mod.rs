//! The connector: subscribes, puts, and reconnects to a middleware that is gone or silent.

mod calls;
mod outgoing;
mod settings;
mod verbs;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use self::calls::{Calls, Kind};
use self::outgoing::{MessageNumber, Outgoing, What};
pub use self::settings::{ConnectorSettings, ConnectorStats};
pub use self::verbs::{Asked, ConnectorEvent, ConnectorVerb, Outcome, Put};
use super::{Header, Layout, Settings, TTL, VERSION, Verb, decode, encode};
use crate::dialling::{Dialling, Link};
use crate::{
    Backlog, CallId, DropKind, DropReason, Dropped, ErrorKind, Frames, Incoming, Lifecycle, MAX_FRAMES, Machine, Nanos,
    Open, Origin, Output, SocketEvent, SocketKind, SocketOptions, Verdict,
};

/// The version we support (MC0-20).
const OURS: &[u8] = b"0.3";

/// How the ERROR begins by which a middleware drops a connector that does not read.
const DISCONNECTED: &[u8] = b"disconnected:";

/// The NOOP that a closing connector sends after an unconfirmed message; its user never sees it.
const LAST: CallId = CallId(u64::MAX);

/// The connector's only socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bus;

/// The connector of mc0.
#[derive(Debug)]
pub struct Connector {
    settings: ConnectorSettings,
    state: Lifecycle,
    link: Link,
    dialling: Dialling,
    /// When to try the next endpoint, unless this one connects before.
    patience: Option<Nanos>,
    /// The CONNECT of this connection.
    greeting: Option<MessageNumber>,
    /// Whether the transport has taken it, so that there is a connection.
    is_begun: bool,
    /// When the middleware last sent something, or when the CONNECT was sent.
    heard: Option<Nanos>,
    /// Whether reading is paused: silence means nothing then.
    is_pressed: bool,
    /// Whether the middleware of a socket that the user supplied is silent.
    is_lost: bool,
    /// When a NOOP is due.
    noop_at: Option<Nanos>,
    /// The last unconfirmed message on this connection, until a later one is answered.
    unproved: Option<MessageNumber>,
    /// Confirmed subscriptions.
    topics: BTreeSet<Bytes>,
    calls: Calls,
    outgoing: Outgoing,
    outputs: VecDeque<Output<Bus>>,
    events: VecDeque<ConnectorEvent>,
    stats: ConnectorStats,
}

impl Connector {
    /// A connector that opens its socket at once. The seed makes its IDs unique, and spreads the reconnects of many
    /// connectors.
    pub fn new(now: Nanos, mut settings: ConnectorSettings, seed: [u8; 32]) -> Self {
        // The TTL is sent in milliseconds, and zero means none (MC0-24).
        settings.ttl = settings.ttl.filter(|ttl| ttl.as_millis() > 0);
        let (first, longest) = (settings.reconnect_after, settings.reconnect_at_most);
        let dialling = Dialling::new(settings.connect.clone(), first, longest, seed);
        let open = Output::Open(Box::new(Open {
            socket: Bus,
            kind: SocketKind::Dealer,
            bind: vec![],
            connect: dialling.current().into_iter().collect(),
            options: SocketOptions { immediate: true, ..settings.options.clone() },
        }));
        let mut connector = Self {
            dialling,
            settings,
            state: Lifecycle::Open,
            link: Link::Up,
            patience: None,
            greeting: None,
            is_begun: false,
            heard: None,
            is_pressed: false,
            is_lost: false,
            noop_at: None,
            unproved: None,
            topics: BTreeSet::new(),
            calls: Calls::new(seed),
            outgoing: Outgoing::default(),
            outputs: VecDeque::from([open]),
            events: VecDeque::new(),
            stats: ConnectorStats::default(),
        };
        connector.begin(now);
        connector
    }

    fn message(&self, verb: Verb, headers: impl IntoIterator<Item = Header>, positional: &[Bytes]) -> Frames {
        let mut frames = encode(verb, headers, positional);
        if !self.settings.leading_delimiter {
            frames.remove(0);
        }
        frames
    }

    /// Begins a connection: CONNECT and subscriptions go before anything else.
    fn begin(&mut self, now: Nanos) {
        self.link = Link::Up;
        let ttl = self.settings.ttl.map(|ttl| (Bytes::from_static(TTL), ttl.as_millis().to_string().into()));
        let version = (Bytes::from_static(VERSION), Bytes::from_static(OURS));
        let connect = self.message(Verb::Connect, [version].into_iter().chain(ttl), &[]);
        self.greeting = Some(self.outgoing.greet(connect));
        let topics: Vec<_> = self.topics.iter().cloned().collect();
        // Beside the topics a message has the verb and two empty frames.
        for some in topics.chunks(MAX_FRAMES - 3) {
            let subscribe = self.message(Verb::Sub, [], some);
            self.outgoing.greet(subscribe);
        }
        // The only endpoint is dialled for as long as it takes.
        self.patience = self.dialling.has_others().then(|| now + self.settings.patience);
    }

    /// Drops a connection.
    fn lose(&mut self, then: Link) {
        self.stats.reconnects += u64::from(self.is_begun);
        self.is_begun = false;
        self.unproved = None;
        if !self.state.is_open() {
            self.give_up(LAST);
        }
        (self.link, self.greeting, self.heard, self.noop_at, self.patience) = (then, None, None, None, None);
        for id in self.outgoing.renew() {
            self.outputs.push_back(Output::Withdraw { socket: Bus, id });
        }
    }

    fn hang_up(&mut self, now: Nanos) {
        let (link, output) = self.dialling.hang_up(now, Bus);
        self.lose(link);
        self.outputs.extend(output);
    }

    fn dial(&mut self, now: Nanos) {
        self.outputs.extend(self.dialling.dial(Bus));
        self.begin(now);
    }

    /// When a silent middleware is considered gone (MC0-26).
    fn silent_at(&self) -> Option<Nanos> {
        let (ttl, heard) = (self.settings.ttl?, self.heard.filter(|_| !self.is_pressed)?);
        Some(heard + ttl.saturating_mul(21) / 20)
    }

    fn on_silence(&mut self, now: Nanos) {
        self.hang_up(now);
        self.events.push_back(ConnectorEvent::Silent);
        // A socket that the user supplied cannot be dialled again here.
        if self.dialling.is_empty() && !self.is_lost {
            self.is_lost = true;
            self.events.push_back(ConnectorEvent::Lost);
            for id in self.calls.all() {
                self.give_up(id);
                self.events.push_back(ConnectorEvent::Ended(id, Outcome::Lost));
            }
        }
    }

    /// Postpones the next NOOP (MC0-25).
    fn spoke(&mut self, now: Nanos) {
        self.noop_at = self.settings.ttl.filter(|_| self.is_begun).map(|ttl| now + ttl.saturating_mul(19) / 20);
    }

    fn on_sent(&mut self, now: Nanos, place: MessageNumber, what: What) {
        if self.greeting == Some(place) {
            self.greeting = None;
            self.is_begun = true;
            self.heard = Some(now);
        }
        self.stats.sent += 1;
        self.spoke(now);
        match what {
            What::Greeting | What::Plain => {}
            What::Call(id) => {
                if let Some(call) = self.calls.get_mut(id) {
                    call.since = now;
                }
            }
            What::Forgotten(topics) => self.unsubscribe(topics),
        }
    }

    /// Ends a call that is answered, if it is still pending.
    fn answered(&mut self, id: &[u8]) -> Option<(CallId, calls::Call)> {
        let id = self.calls.of(id)?;
        let place = self.calls.get_mut(id)?.place;
        if !self.outgoing.may_be_there(place) {
            return None;
        }
        self.outgoing.forget(place, vec![]);
        self.unproved = self.unproved.filter(|put| *put > place);
        self.calls.remove(id).map(|call| (id, call))
    }

    fn on_ok(&mut self, now: Nanos, id: &[u8]) {
        let Some((id, call)) = self.answered(id) else { return };
        let mut outcome = Outcome::Done;
        match call.kind {
            Kind::Subscribe(topics) => self.topics.extend(topics),
            Kind::Unsubscribe(topics) => self.disown(&topics),
            Kind::Put(_) => {
                self.stats.confirmed += 1;
                self.stats.latency.add(now - call.since);
            }
            Kind::Ping => outcome = Outcome::Alive(now - call.since),
        }
        self.events.push_back(ConnectorEvent::Ended(id, outcome));
    }

    /// Later connections do not subscribe to these.
    fn disown(&mut self, topics: &[Bytes]) {
        for topic in topics {
            self.topics.remove(topic);
        }
    }

    fn on_error(&mut self, now: Nanos, frames: Frames, layout: Layout) {
        self.stats.errors += 1;
        if let Some(id) = layout.id {
            if let Some((id, call)) = self.answered(&frames[id]) {
                let text = layout.text.map(|at| frames[at].clone()).unwrap_or_default();
                let refused = Outcome::Refused { topic: call.kind.topic(), text };
                self.events.push_back(ConnectorEvent::Ended(id, refused));
            }
            return;
        }
        let begins = |with: &[u8]| layout.text.is_some_and(|at| frames[at].starts_with(with));
        let is_forgotten = begins(DISCONNECTED);
        if begins(ErrorKind::BadTtl.slug().as_bytes()) {
            // Only our CONNECT has a TTL: it was refused, so the middleware need not send anything.
            self.heard = None;
        }
        self.events.push_back(ConnectorEvent::Error { frames, layout });
        if is_forgotten && self.link == Link::Up {
            self.hang_up(now);
        }
    }

    fn drop(&mut self, reason: DropReason, frames: Frames) {
        let dropped = Dropped::new(reason, Origin::default(), frames);
        dropped.count(&mut self.stats.dropped);
        self.events.push_back(ConnectorEvent::Dropped(dropped));
    }

    fn close_if_done(&mut self, now: Nanos) {
        let is_done = self.outgoing.held().messages == 0;
        let Some(linger) = self.state.close(now, is_done) else { return };
        for id in self.calls.all() {
            self.calls.remove(id);
            self.events.push_back(ConnectorEvent::Ended(id, Outcome::Unanswered));
        }
        self.outgoing.clear();
        if self.link == Link::Up && self.is_begun {
            let frames = self.message(Verb::Disconnect, [], &[]);
            self.outputs.push_back(Output::Send {
                id: None,
                socket: Bus,
                to: None,
                frames: frames.into(),
                until: None,
            });
        }
        self.outputs.push_back(Output::Close { socket: Bus, linger });
        // Nothing that happens later has any effect.
        (self.link, self.is_begun) = (Link::Lost, false);
        (self.heard, self.patience, self.noop_at) = (None, None, None);
    }
}

impl Machine for Connector {
    type Socket = Bus;
    type Event = ConnectorEvent;
    type Verb = ConnectorVerb;
    type Stats = ConnectorStats;

    /// A connector answers no message.
    fn handle_message(&mut self, now: Nanos, incoming: Incoming<Bus>) -> Verdict {
        let frames = incoming.frames;
        self.stats.received += 1;
        self.stats.bytes += crate::nbytes(&frames);
        self.heard = self.heard.map(|_| now);
        if std::mem::take(&mut self.is_lost) {
            self.events.push_back(ConnectorEvent::Found);
        }
        self.dialling.reset();
        let layout = match decode(&frames, Settings { max_ttl_ms: u64::MAX }) {
            Ok(layout) => layout,
            Err(error) => {
                self.drop(error.into(), frames);
                return error.into();
            }
        };
        match layout.verb {
            Verb::Message => {
                self.stats.messages += 1;
                self.events.push_back(ConnectorEvent::Message { frames, layout });
            }
            // The codec rejects an OK without one.
            Verb::Ok => self.on_ok(now, layout.id.map(|id| &frames[id][..]).unwrap_or_default()),
            Verb::Error => self.on_error(now, frames, layout),
            Verb::Noop => {}
            Verb::Connect | Verb::Disconnect | Verb::Sub | Verb::Unsub | Verb::Put => {
                self.drop(DropKind::UnexpectedVerb.into(), frames);
            }
        }
        self.close_if_done(now);
        Verdict::default()
    }

    fn handle_socket(&mut self, now: Nanos, _socket: Bus, event: SocketEvent) {
        if let Some(connection) = event.connection() {
            self.events.push_back(ConnectorEvent::Connection(connection));
        }
        match event {
            SocketEvent::Bound(_)
            | SocketEvent::OpenFailed { .. }
            | SocketEvent::HandshakeFailed { .. }
            | SocketEvent::Server(_)
            | SocketEvent::Unreachable { .. } => {}
            SocketEvent::Connected(_) => {
                self.patience = None;
                if self.link == Link::Lost {
                    self.begin(now);
                }
            }
            // A connection that never began cannot be lost, and one that we dropped is lost already.
            SocketEvent::Disconnected(_) if !self.is_begun => {}
            SocketEvent::Disconnected(_) if self.dialling.is_empty() => self.lose(Link::Lost),
            SocketEvent::Disconnected(_) => self.hang_up(now),
            SocketEvent::Sent(send) => {
                if let Some(what) = self.outgoing.settle(send, None) {
                    self.on_sent(now, send.0, what);
                }
            }
            SocketEvent::Unsent(send, unsent) => {
                self.outgoing.settle(send, Some(unsent));
            }
            SocketEvent::Closed => self.state = Lifecycle::Closed,
        }
        self.close_if_done(now);
    }

    fn handle_timeout(&mut self, now: Nanos) {
        while let Some(id) = self.calls.overdue(now) {
            self.give_up(id);
            self.events.push_back(ConnectorEvent::Ended(id, Outcome::TimedOut));
        }
        if self.link.until().is_some_and(|until| now >= until) {
            self.dial(now);
        }
        if self.silent_at().is_some_and(|at| now >= at) {
            self.on_silence(now);
        } else if self.patience.is_some_and(|at| now >= at) {
            self.hang_up(now);
        }
        if self.noop_at.is_some_and(|at| now >= at) {
            self.spoke(now);
            // A message still unsent serves as a NOOP.
            if self.outgoing.is_idle() {
                let noop = self.message(Verb::Noop, [], &[]);
                self.outgoing.greet(noop);
            }
        }
        self.close_if_done(now);
    }

    fn handle_verb(&mut self, now: Nanos, verb: ConnectorVerb) {
        match verb {
            ConnectorVerb::Call { call, .. } if !self.state.is_open() => {
                self.events.push_back(ConnectorEvent::Ended(call, Outcome::Unanswered));
            }
            ConnectorVerb::Call { call, .. } if self.is_lost => {
                self.events.push_back(ConnectorEvent::Ended(call, Outcome::Lost));
            }
            ConnectorVerb::Call { call, asked, timeout } => self.ask(now, call, asked, timeout),
            ConnectorVerb::Put(put) if self.state.is_open() => {
                self.stats.put += 1;
                let frames = self.put(None, put);
                self.unproved = Some(self.outgoing.push(What::Plain, frames));
            }
            ConnectorVerb::Put(_) => {}
            ConnectorVerb::Cancel(call) => self.give_up(call),
        }
        self.close_if_done(now);
    }

    /// Waits at most `grace` until calls are answered and the transport has taken the rest, and disconnects.
    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        if self.state.drain(now, grace) && self.link == Link::Up && self.unproved.is_some() {
            // An error about an unconfirmed message comes before the answer to this.
            self.ask(now, LAST, Asked::Ping, None);
        }
        self.close_if_done(now);
    }

    fn handle_pressure(&mut self, now: Nanos, pressed: bool) {
        self.is_pressed = pressed;
        self.heard = self.heard.map(|_| now);
    }

    fn poll_output(&mut self) -> Option<Output<Bus>> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if self.link != Link::Up || self.state.is_closing() {
            return None;
        }
        let (id, frames) = self.outgoing.offer()?;
        Some(Output::Send { id: Some(id), socket: Bus, to: None, frames: frames.into(), until: None })
    }

    fn poll_event(&mut self) -> Option<ConnectorEvent> {
        let event = self.events.pop_front()?;
        if matches!(event, ConnectorEvent::Ended(LAST, _)) { self.poll_event() } else { Some(event) }
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        if self.state.is_closing() {
            return None;
        }
        let calls = self.calls.poll_timeout();
        let all = [self.link.until(), calls, self.silent_at(), self.patience, self.noop_at, self.state.poll_timeout()];
        all.into_iter().flatten().min()
    }

    fn backlog(&self) -> Backlog {
        self.outgoing.held()
    }

    fn progress(&self) -> u64 {
        self.stats.messages
    }

    fn stats(&self) -> ConnectorStats {
        let Backlog { messages, bytes } = self.outgoing.held();
        ConnectorStats { queued: messages as u64, queued_bytes: bytes as u64, ..self.stats.clone() }
    }

    fn is_closed(&self) -> bool {
        self.state.is_closed()
    }
}
