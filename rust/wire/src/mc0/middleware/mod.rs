//! The middleware: delivers messages to the subscribers of their topics.

mod outgoing;
mod peers;
mod settings;
mod topics;

pub use settings::{
    Farewell, MiddlewareEvent, MiddlewareSettings, MiddlewareStats, MiddlewareVerb, Overflow, TopicStats,
};

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use self::outgoing::Outgoing;
use self::peers::{Bounds, Duty, Excess, Peers, Standing};
use self::topics::Topics;
use super::{Layout, Verb, decode, id};
use crate::slab::Slot;
use crate::status::{STATUS, Status};
use crate::throttle::Throttle;
use crate::{
    DecodeError, DropKind, DropReason, Dropped, ErrorKind, Frames, Incoming, Lifecycle, MAX_FRAMES, Machine, Nanos,
    Open, Origin, Output, SendId, SocketEvent, SocketKind, SocketOptions, Unsent, Verdict, shortened,
};

/// Topics that are listed among the counters.
const LISTED: usize = 1000;

/// How many clients there may be, beyond two per connection, before some are checked for being gone.
const GHOSTS: u64 = 1000;

/// How many clients are checked for each connection that ends: more than can be gone with it.
const ASKED: usize = 2;

/// Errors without an ID that a peer receives at most: at once, and per second.
const ERRORS: u32 = 200;
const ERRORS_PER_SECOND: u32 = 100;

/// Subscriptions that are ended in one step.
const AT_ONCE: usize = 1000;

/// The longest topic, in bytes.
const TOPIC_BYTES: usize = 64 << 10;

/// Marks the id of a MESSAGE's send.
const IS_MESSAGE: u64 = 1 << 63;

/// The middleware's only socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Front;

/// The middleware of mc0.
#[derive(Debug)]
pub struct Middleware {
    settings: MiddlewareSettings,
    bounds: Bounds,
    state: Lifecycle,
    peers: Peers,
    topics: Topics,
    throttle: Throttle,
    /// Former clients whose subscriptions are still to be ended.
    leaving: VecDeque<Slot>,
    stats: MiddlewareStats,
    status: Status,
    outputs: VecDeque<Output<Front>>,
    events: VecDeque<MiddlewareEvent>,
}

/// The sender of a message, and what an answer needs.
struct Sender {
    address: Bytes,
    user: Option<Bytes>,
    /// The peer, if it is kept.
    peer: Option<Slot>,
    id: Option<Bytes>,
    is_delimited: bool,
}

/// Why a message is refused.
type Refusal = (DropReason, String);

impl Middleware {
    /// A middleware that opens its socket at once.
    pub fn new(settings: MiddlewareSettings) -> Self {
        let open = Output::Open(Box::new(Open {
            socket: Front,
            kind: SocketKind::Router,
            bind: settings.bind.clone(),
            connect: vec![],
            options: SocketOptions { mandatory: true, ..settings.options.clone() },
        }));
        let bounds = Bounds {
            overflow: settings.overflow,
            client_messages: settings.client_queue_messages,
            client_bytes: settings.client_queue_bytes,
            bytes: settings.queue_bytes,
        };
        Self {
            settings,
            bounds,
            state: Lifecycle::Open,
            peers: Peers::new(),
            topics: Topics::new(),
            throttle: Throttle::new(ERRORS, ERRORS_PER_SECOND),
            leaving: VecDeque::new(),
            stats: MiddlewareStats::default(),
            status: Status::default(),
            outputs: VecDeque::from([open]),
            events: VecDeque::new(),
        }
    }

    fn take(&mut self, now: Nanos, sender: &mut Sender, frames: &Frames, layout: &Layout) -> Result<(), Refusal> {
        match layout.verb {
            Verb::Connect => {
                let peer = self.client(now, sender);
                self.peers.get_mut(peer).standing = Standing::Connected;
                self.peers.set_ttl(now, peer, layout.ttl.filter(|ttl| !ttl.is_zero()));
            }
            Verb::Disconnect => {
                self.confirm(now, sender);
                if let Some(peer) = sender.peer {
                    self.forget(peer, Farewell::Left);
                }
            }
            Verb::Sub => {
                let topics = &frames[layout.positional()];
                self.subscribe(now, sender, topics)?;
                self.confirm(now, sender);
                if self.settings.status && topics.iter().any(|topic| topic == STATUS) {
                    self.tell_status(now, sender);
                }
            }
            Verb::Unsub => {
                for topic in &frames[layout.positional()] {
                    if let Some((peer, topic)) = sender.peer.zip(self.topics.find(topic)) {
                        self.unsubscribe(peer, topic);
                    }
                }
                self.confirm(now, sender);
                self.leave_if_nothing(sender.peer);
            }
            Verb::Put => self.put(sender, frames, layout)?,
            Verb::Noop => {}
            Verb::Message | Verb::Ok | Verb::Error => {
                let text = format!("a middleware is never sent {}", layout.verb.name());
                return Err((DropKind::UnexpectedVerb.into(), text));
            }
        }
        self.confirm(now, sender);
        Ok(())
    }

    /// The sender as a client; it becomes one if it was none.
    fn client(&mut self, now: Nanos, sender: &mut Sender) -> Slot {
        let peer = self.remembered(now, sender);
        let entry = self.peers.get_mut(peer);
        if !entry.is_client() {
            entry.standing = Standing::Subscriber;
            self.stats.clients += 1;
            self.events.push_back(MiddlewareEvent::Joined { client: entry.origin() });
        }
        peer
    }

    /// The sender as a kept peer.
    fn remembered(&mut self, now: Nanos, sender: &mut Sender) -> Slot {
        let Sender { address, user, peer, is_delimited, .. } = sender;
        *peer.get_or_insert_with(|| self.peers.insert(now, address, user.as_ref(), *is_delimited))
    }

    fn subscribe(&mut self, now: Nanos, sender: &mut Sender, topics: &[Bytes]) -> Result<(), Refusal> {
        let user = sender.user.as_deref();
        let policy = self.settings.policy.as_ref();
        let mut new = HashSet::new();
        for topic in topics {
            check_topic(topic)?;
            if policy.is_some_and(|policy| !policy.may_subscribe(user, topic)) {
                return Err((DropKind::Forbidden.into(), format!("you may not subscribe to {}", shown(topic))));
            }
            if self.topics.find(topic).is_none() {
                new.insert(topic);
            }
        }
        if self.topics.len() + new.len() > self.settings.max_topics {
            let text =
                format!("there may be {} topics with subscribers, and these are too many", self.settings.max_topics);
            return Err((DropKind::TooManyTopics.into(), text));
        }
        if topics.is_empty() {
            return Ok(());
        }
        let peer = self.client(now, sender);
        for topic in topics {
            self.topics.subscribe(peer, &mut self.peers.get_mut(peer).subscriptions, topic);
        }
        Ok(())
    }

    /// Sends the middleware's status to a subscriber.
    fn tell_status(&mut self, now: Nanos, sender: &mut Sender) {
        let mut status = std::mem::take(&mut self.status);
        let names = |stats: &MiddlewareStats| stats.topics.iter().map(|topic| topic.topic.clone()).collect();
        let text = status.at(now, || self.stats(), ("topics", "topic"), names);
        self.status = status;
        let peer = self.client(now, sender);
        self.peers.send(peer, &Outgoing::own(STATUS, text));
    }

    fn unsubscribe(&mut self, peer: Slot, topic: Slot) {
        let Some(place) = self.peers.get_mut(peer).subscriptions.remove(&topic) else { return };
        if let Some(moved) = self.topics.unsubscribe(topic, place) {
            self.peers.get_mut(moved).subscriptions.insert(topic, place);
        }
    }

    fn put(&mut self, sender: &Sender, frames: &Frames, layout: &Layout) -> Result<(), Refusal> {
        let Some(topic) = layout.topic.map(|topic| &frames[topic]) else { return Ok(()) };
        check_topic(topic)?;
        let policy = self.settings.policy.as_ref();
        if policy.is_some_and(|policy| !policy.may_publish(sender.user.as_deref(), topic)) {
            return Err((DropKind::Forbidden.into(), format!("you may not put messages to {}", shown(topic))));
        }
        let Some(found) = self.topics.find(topic) else { return Ok(()) };
        let outgoing = Outgoing::message(frames, layout, topic);
        if outgoing.len() > MAX_FRAMES {
            // With the empty frames that its sender may omit, receivers would have to reject it.
            let error = DecodeError { kind: ErrorKind::TooManyFrames, frame: frames.len() - 1, offset: 0 };
            return Err((error.into(), error.to_string()));
        }
        let found = self.topics.get_mut(found);
        found.puts += 1;
        found.bytes += crate::nbytes(&frames[layout.positional()]);
        found.messages += found.subscribers.len() as u64;
        for subscriber in &found.subscribers {
            if self.peers.get(*subscriber).is_client() {
                self.peers.send(*subscriber, &outgoing);
            }
        }
        Ok(())
    }

    /// Answers a message with an ID (MC0-12), once, and before its sender may be forgotten.
    fn confirm(&mut self, now: Nanos, sender: &mut Sender) {
        if let Some(id) = sender.id.take() {
            let peer = self.remembered(now, sender);
            self.peers.send(peer, &Outgoing::ok(id, sender.is_delimited));
        }
    }

    /// Counts a refused message, and reports it to its sender.
    fn refuse(&mut self, now: Nanos, sender: &mut Sender, frames: Frames, (reason, text): Refusal) {
        let verb = frames.get(usize::from(sender.is_delimited)).and_then(|verb| Verb::from_frame(verb));
        // Two peers that answered each other's answers would never end.
        let is_answer = matches!(verb, Some(Verb::Ok | Verb::Error));
        if !is_answer && (sender.id.is_some() || self.throttle.allows(now, &sender.address, 1)) {
            let peer = self.remembered(now, sender);
            self.peers.send(peer, &Outgoing::error(text, sender.id.take(), Some(sender.is_delimited)));
        }
        self.drop(reason, Origin::new(sender.address.clone(), sender.user.clone()), frames);
    }

    fn drop(&mut self, reason: DropReason, origin: Origin, frames: Frames) {
        let dropped = Dropped::new(reason, origin, frames);
        dropped.count(&mut self.stats.dropped);
        self.events.push_back(MiddlewareEvent::Dropped(dropped));
    }

    /// Counts messages lost for a peer and reports one; if its queue is full, only the first since it last read.
    fn lost(&mut self, kind: DropKind, peer: Slot, count: u64) {
        if count == 0 {
            return;
        }
        let is_reported = kind != DropKind::PeerFull || self.peers.begins_to_lose(peer, count);
        *self.stats.dropped.entry(kind.slug()).or_default() += count - u64::from(is_reported);
        if is_reported {
            self.drop(kind.into(), self.peers.get(peer).origin(), Frames::new());
        }
    }

    /// Ends a client; what is queued for it stays.
    fn forget(&mut self, peer: Slot, why: Farewell) {
        let entry = self.peers.get_mut(peer);
        if std::mem::replace(&mut entry.standing, Standing::Stranger) != Standing::Stranger {
            self.stats.clients -= 1;
            self.events.push_back(MiddlewareEvent::Forgotten { client: entry.origin(), why });
        }
        self.peers.stop(peer);
        if self.peers.get(peer).subscriptions.len() > AT_ONCE {
            // A new peer at its address starts afresh.
            self.peers.disown(peer);
            self.leaving.push_back(peer);
        } else {
            self.unsubscribe_some(peer);
        }
    }

    /// Ends subscriptions of a former client, only so many that other work is not delayed. Returns whether all have
    /// ended.
    fn unsubscribe_some(&mut self, peer: Slot) -> bool {
        for topic in self.peers.get(peer).topics(AT_ONCE) {
            self.unsubscribe(peer, topic);
        }
        let is_done = self.peers.get(peer).subscriptions.is_empty();
        if is_done {
            self.peers.tidy(peer);
        }
        is_done
    }

    /// The same, and drops what is queued for it.
    fn forget_all(&mut self, peer: Slot, why: Farewell, kind: DropKind) {
        let lost = self.peers.clear(peer);
        self.lost(kind, peer, lost);
        self.forget(peer, why);
    }

    /// A client that never sent CONNECT ends with its last subscription.
    fn leave_if_nothing(&mut self, peer: Option<Slot>) {
        let is_nothing = |peer: &Slot| {
            let peer = self.peers.get(*peer);
            peer.standing == Standing::Subscriber && peer.subscriptions.is_empty()
        };
        if let Some(peer) = peer.filter(is_nothing) {
            self.forget(peer, Farewell::Left);
        }
    }

    fn enforce(&mut self, policy: Option<super::Policy>) {
        // Frequent reloads of an unchanged policy must not check every subscription each time.
        if self.settings.policy == policy {
            return;
        }
        self.settings.policy = policy;
        let Some(policy) = self.settings.policy.take() else { return };
        let clients: Vec<_> = self.peers.clients().collect();
        for slot in clients {
            let peer = self.peers.get(slot);
            let user = peer.user.as_deref();
            let is_lost = |topic: &Slot| !policy.may_subscribe(user, self.topics.name(*topic));
            let lost: Vec<_> = peer.subscriptions.keys().copied().filter(is_lost).collect();
            let Some(first) = lost.first() else { continue };
            let topic = shown(self.topics.name(*first));
            let text = format!("the policy has changed: {} of your subscriptions ended, one to {topic}", lost.len());
            let (client, subscriptions) = (peer.origin(), lost.len() as u64);
            self.events.push_back(MiddlewareEvent::Curtailed { client, subscriptions });
            self.peers.send(slot, &Outgoing::error(text, None, None));
            for topic in lost {
                self.unsubscribe(slot, topic);
            }
            self.leave_if_nothing(Some(slot));
        }
        self.settings.policy = Some(policy);
    }

    /// Applies the limits of queues, once the transport has taken all it can.
    fn bound(&mut self) {
        while let Some(excess) = self.peers.excess(&self.bounds) {
            match excess {
                Excess::Lost(peer, count) => self.lost(DropKind::PeerFull, peer, count),
                Excess::Disconnect(peer) => {
                    let lost = self.peers.clear(peer);
                    self.lost(DropKind::PeerFull, peer, lost);
                    let text = "disconnected: you do not read, and nothing is kept for you any more";
                    self.peers.send(peer, &Outgoing::error(text.to_owned(), None, None));
                    self.forget(peer, Farewell::Full);
                }
            }
        }
    }

    fn on_unsent(&mut self, now: Nanos, peer: Slot, unsent: Unsent) {
        let origin = self.peers.origin(peer).unwrap_or_default();
        if !self.peers.settle(now, peer, false) {
            return;
        }
        let kind = if unsent == Unsent::PeerFull { DropKind::PeerFull } else { DropKind::Unroutable };
        self.drop(kind.into(), origin, Frames::new());
        if unsent == Unsent::Unreachable && self.peers.origin(peer).is_some() {
            self.forget_all(peer, Farewell::Gone, DropKind::Unroutable);
        }
    }

    /// A closed connection does not name its client, and a client without TTL that is sent nothing would be kept for
    /// ever. If there are far more clients than connections, each in turn is sent a NOOP, which fails for those that
    /// are gone.
    fn seek_ghosts(&mut self) {
        if self.stats.clients > GHOSTS + 2 * self.stats.peers {
            for _ in 0..ASKED {
                if let Some(peer) = self.peers.seek() {
                    self.peers.send(peer, &Outgoing::noop());
                }
            }
        }
    }

    fn close_if_done(&mut self, now: Nanos) {
        if let Some(linger) = self.state.close(now, self.peers.waiting == 0) {
            self.outputs.push_back(Output::Close { socket: Front, linger });
        }
    }
}

impl Machine for Middleware {
    type Socket = Front;
    type Event = MiddlewareEvent;
    type Verb = MiddlewareVerb;
    type Stats = MiddlewareStats;

    fn handle_message(&mut self, now: Nanos, incoming: Incoming<Front>) -> Verdict {
        let Incoming { peer: Some(address), user_id: user, frames, .. } = incoming else { return Verdict::default() };
        self.stats.received += 1;
        self.stats.bytes += crate::nbytes(&frames);
        let is_delimited = frames.first().is_some_and(Bytes::is_empty);
        let mut peer = self.peers.heard(now, &address, is_delimited);
        if let Some(other) = peer.filter(|peer| self.peers.get(*peer).user != user) {
            // The peer at this address now is not the subscriber, and may not be allowed to read its messages.
            self.peers.disown(other);
            self.forget_all(other, Farewell::Replaced, DropKind::Unroutable);
            peer = None;
        }
        let decoded = decode(&frames, self.settings.decode);
        let id = decoded.map_or_else(|_| id(&frames), |layout| layout.id).map(|id| frames[id].clone());
        let mut sender = Sender { address, user, peer, id, is_delimited };
        match decoded {
            Ok(layout) => {
                if let Err(refusal) = self.take(now, &mut sender, &frames, &layout) {
                    self.refuse(now, &mut sender, frames, refusal);
                }
                Verdict::default()
            }
            Err(error) => {
                self.refuse(now, &mut sender, frames, (error.into(), error.to_string()));
                error.into()
            }
        }
    }

    fn handle_socket(&mut self, now: Nanos, _socket: Front, event: SocketEvent) {
        if let Some(connection) = event.connection() {
            self.events.push_back(MiddlewareEvent::Connection(connection));
        }
        let peer = |send: SendId| Slot::try_from(send.0 & !IS_MESSAGE).unwrap_or(Slot::MAX);
        match event {
            SocketEvent::Connected(_) => self.stats.peers += 1,
            SocketEvent::Disconnected(_) => {
                self.stats.peers = self.stats.peers.saturating_sub(1);
                self.seek_ghosts();
            }
            SocketEvent::Sent(send) => {
                if self.peers.settle(now, peer(send), true) {
                    self.stats.sent += 1;
                    self.stats.messages += u64::from(send.0 & IS_MESSAGE != 0);
                }
            }
            // A message left unsent at the end still counts as queued.
            SocketEvent::Unsent(_, Unsent::Closed)
            | SocketEvent::Bound(_)
            | SocketEvent::OpenFailed { .. }
            | SocketEvent::HandshakeFailed { .. }
            | SocketEvent::Server(_)
            | SocketEvent::Unreachable { .. } => {}
            SocketEvent::Unsent(send, unsent) => self.on_unsent(now, peer(send), unsent),
            SocketEvent::Closed => self.state = Lifecycle::Closed,
        }
        self.close_if_done(now);
    }

    fn handle_timeout(&mut self, now: Nanos) {
        while let Some((peer, duty)) = self.peers.due(now) {
            match duty {
                Duty::Forget => self.forget_all(peer, Farewell::Silent, DropKind::Unroutable),
                Duty::Greet => self.peers.send(peer, &Outgoing::noop()),
                Duty::Nothing => {}
            }
        }
        if let Some(peer) = self.leaving.front()
            && self.unsubscribe_some(*peer)
        {
            self.leaving.pop_front();
        }
        self.close_if_done(now);
    }

    fn handle_verb(&mut self, _now: Nanos, verb: MiddlewareVerb) {
        match verb {
            MiddlewareVerb::Enforce(policy) => self.enforce(policy),
        }
    }

    /// Delivers what it has accepted to the clients that read.
    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        self.state.drain(now, grace);
        self.close_if_done(now);
    }

    fn poll_output(&mut self) -> Option<Output<Front>> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if self.state.is_closing() {
            return None;
        }
        let offered = self.peers.offer().or_else(|| {
            self.bound();
            self.peers.offer()
        });
        let (peer, outgoing) = offered?;
        let kind = if outgoing.is_message { IS_MESSAGE } else { 0 };
        let peer_of = self.peers.get(peer);
        let (to, frames) = (Some(peer_of.address.clone()), outgoing.frames(peer_of.is_delimited));
        Some(Output::Send { id: Some(SendId(u64::from(peer) | kind)), socket: Front, to, frames, until: None })
    }

    fn poll_event(&mut self) -> Option<MiddlewareEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        if self.state.is_closing() {
            return None;
        }
        // The next part of their subscriptions ends after messages that have arrived meanwhile.
        let leaving = self.leaving.front().map(|_| Nanos(0));
        [leaving, self.peers.poll_timeout(), self.state.poll_timeout()].into_iter().flatten().min()
    }

    fn reads(&self, _socket: Front) -> bool {
        self.state.is_open()
    }

    fn progress(&self) -> u64 {
        self.stats.received
    }

    fn stats(&self) -> MiddlewareStats {
        MiddlewareStats {
            subscriptions: self.topics.subscriptions as u64,
            queued: self.peers.waiting as u64,
            topics: self.topics.stats(LISTED),
            ..self.stats.clone()
        }
    }

    fn is_closed(&self) -> bool {
        self.state.is_closed()
    }
}

fn check_topic(topic: &Bytes) -> Result<(), Refusal> {
    if topic.len() <= TOPIC_BYTES {
        return Ok(());
    }
    let text = format!("a topic has {TOPIC_BYTES} bytes at most, and this one {}", topic.len());
    Err((DropKind::BadTopic.into(), text))
}

/// A topic as shown in an error.
fn shown(topic: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(&shortened(topic)))
}
