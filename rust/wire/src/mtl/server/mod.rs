//! The server: admits clients, leases data connections, and passes contents from writers to readers.

mod control;
mod data;
mod flows;
mod queue;
mod realm;
mod sessions;
mod settings;
mod store;

pub use self::settings::{
    Access, Answer, Bounds, Entropy, LeaseEnd, Login, Profile, Question, ResourceStats, Routing, ServerEvent,
    ServerSettings, ServerStats, ServerVerb, User,
};
pub use self::store::{Batch, Op, Restored, StoredContent};

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use foldhash::quality::RandomState;

use self::control::says;
use self::data::Unanswered;
use self::flows::{Flows, Terms};
use self::realm::{Content, Queue, QueuePosition, Realm};
use self::sessions::{Address, Asker, Caller, Delays, Sessions};
use self::store::Journal;
use super::control::Reply;
use super::heartbeat::Beat;
use super::{FIRST_OF_CONTROL, data as wire, redacted};
use crate::question::Questions;
use crate::slab::Slot;
use crate::throttle::Throttle;
use crate::{
    Curve, DropKind, DropReason, Dropped, Frames, Framing, Incoming, Label, Lifecycle, Machine, Nanos, Open, Origin,
    Output, SendId, SocketEvent, SocketKind, SocketOptions, Unsent, Verdict, shortened,
};

/// Resources that are listed among the counters.
const LISTED: usize = 1000;

/// Pending questions at most, and how long each may be.
const QUESTIONS: usize = 1024;
const THINKING: Duration = Duration::from_secs(30);

/// Bytes of JSON that a peer may have parsed at once, and every second.
const JSON_BYTES: u32 = 4 << 20;

/// How long after a failed batch its essential changes are stored again.
const RETRY: Duration = Duration::from_secs(1);

/// The id of all sends to connections without a lease; all other ids are greater.
const REPLY: SendId = SendId(0);

/// The sockets of a server, one for each endpoint it listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerSocket {
    /// For commands, and for data if no other endpoint is.
    Control(usize),
    /// For data only.
    Data(usize),
}

/// A queue as stored: its virtual host and profile, its name, its bounds, and its creator.
type Described = ((usize, usize), String, Bounds, Option<String>);

/// What depends on a question.
#[derive(Debug)]
enum Hanging {
    /// A step of a login.
    Login { asker: Asker, mechanism: String, steps: u32 },
    /// A custom command, and its bytes.
    Command { asker: Asker, bytes: usize },
}

/// What depends on a batch that is being stored.
#[derive(Debug)]
enum Kept {
    Content(QueuePosition),
    Created {
        asker: Asker,
        resource: Slot,
        queue: u64,
    },
    /// Contents or a queue to be removed, and the reply once they are.
    Gone(Asker, Reply),
}

/// The server of MTL.
#[derive(Debug)]
pub struct Server {
    settings: ServerSettings,
    state: Lifecycle,
    /// Where its sockets listen, by number.
    control: Vec<Option<String>>,
    data: Vec<Option<String>>,
    /// How many are open.
    sockets: usize,
    /// The time of the current call.
    now: Nanos,
    is_pressed: bool,
    sessions: Sessions,
    delays: Delays,
    /// Revoked names of keys; they may still have connections.
    barred: HashSet<Bytes>,
    questions: Questions<Hanging>,
    /// The bytes of the commands among them.
    commands_bytes: usize,
    /// How much JSON of each peer was parsed recently.
    parsing: Throttle,
    leases: HashMap<String, Terms>,
    /// How many names of resources all leases have, used or not.
    leased_names: usize,
    lease_due: VecDeque<(Nanos, String)>,
    flows: Flows,
    flow_due: BTreeSet<(Nanos, Slot)>,
    realm: Realm,
    next_queue: u64,
    /// Resources with contents to deliver.
    dirty: VecDeque<Slot>,
    /// Readers that may have room again, to rejoin their resources.
    to_wake: VecDeque<Slot>,
    /// When to look for expired contents of queues.
    expiries: BTreeSet<(Nanos, Slot)>,
    expiring: HashMap<Slot, Nanos>,
    /// Writers with contents to confirm.
    to_confirm: Vec<Slot>,
    journal: Journal<Kept>,
    /// Contents that are neither stored nor settled.
    unanswered: HashMap<QueuePosition, Unanswered, RandomState>,
    /// Resources whose first content is delivered only once it is stored.
    behind: Vec<Slot>,
    retry_at: Option<Nanos>,
    stats: ServerStats,
    outputs: VecDeque<Output<ServerSocket>>,
    events: VecDeque<ServerEvent>,
}

impl Server {
    /// A server that opens its sockets at once.
    pub fn new(mut settings: ServerSettings) -> Self {
        let open = |socket, endpoint: &String| {
            Output::Open(Box::new(Open {
                socket,
                kind: SocketKind::Router,
                bind: vec![endpoint.clone()],
                connect: vec![],
                options: SocketOptions { mandatory: true, hosts: true, ..settings.options.clone() },
            }))
        };
        let control = settings.bind.iter().enumerate().map(|(at, endpoint)| open(ServerSocket::Control(at), endpoint));
        let data = settings.data_bind.iter().enumerate().map(|(at, endpoint)| open(ServerSocket::Data(at), endpoint));
        let outputs = control.chain(data).collect();
        let restored = settings.durable.take();
        let mut server = Self {
            state: Lifecycle::Open,
            control: vec![None; settings.bind.len()],
            data: vec![None; settings.data_bind.len()],
            sockets: settings.bind.len() + settings.data_bind.len(),
            now: Nanos(0),
            is_pressed: false,
            sessions: Sessions::new(),
            delays: Delays::default(),
            barred: HashSet::new(),
            questions: Questions::new(QUESTIONS, THINKING),
            commands_bytes: 0,
            parsing: Throttle::new(JSON_BYTES, JSON_BYTES),
            leases: HashMap::new(),
            leased_names: 0,
            lease_due: VecDeque::new(),
            flows: Flows::new(settings.outbox_bytes),
            flow_due: BTreeSet::new(),
            realm: Realm::new(settings.virtual_hosts.len(), settings.profiles.len()),
            next_queue: 1,
            dirty: VecDeque::new(),
            to_wake: VecDeque::new(),
            expiries: BTreeSet::new(),
            expiring: HashMap::new(),
            to_confirm: vec![],
            journal: Journal::new(restored.is_some()),
            unanswered: HashMap::default(),
            behind: vec![],
            retry_at: None,
            stats: ServerStats::default(),
            outputs,
            events: VecDeque::new(),
            settings,
        };
        server.restore(restored.unwrap_or_default());
        server.furnish();
        server
    }

    /// Restores what was stored; queues of a missing host or profile stay in the store.
    fn restore(&mut self, restored: Restored) {
        let mut slots = HashMap::new();
        let (mut queues, mut contents) = (0, 0);
        for (number, description) in restored.queues {
            self.next_queue = self.next_queue.max(number + 1);
            if let Some((scope, name, bounds, maker)) = self.described(&description) {
                let queue = Queue::new(number, bounds);
                slots.insert(number, self.realm.insert(scope, &name, Routing::Queue, queue, maker));
            } else {
                queues += 1;
            }
        }
        for stored in restored.contents {
            let Some(slot) = slots.get(&stored.queue) else {
                contents += 1;
                continue;
            };
            let expires = stored
                .expires_at_ms
                .map(|at| Nanos(0) + Duration::from_millis(at.saturating_sub(self.settings.epoch_ms)));
            let content = Content {
                position: stored.position,
                properties: stored.properties,
                body: stored.body,
                // How long it was queued before is unknown.
                since: Nanos(0),
                expires,
                attempts: stored.attempts,
                // The last server may have delivered it, and crashed before it recorded that.
                is_redelivered: stored.attempts > 0 || !restored.was_clean,
                last: None,
            };
            if let Some(resource) = self.realm.get_mut(*slot) {
                resource.queue.admit(&content);
            }
            self.settle_in(*slot, content);
        }
        if queues > 0 {
            self.events.push_back(ServerEvent::NotRestored { queues, contents });
        }
    }

    fn described(&self, description: &[u8]) -> Option<Described> {
        let said: super::control::Json = serde_json::from_slice(description).ok()?;
        let text = |name: &str| said.get(name)?.as_str();
        let virtual_host =
            self.settings.virtual_hosts.iter().position(|host| Some(host.as_str()) == text("virtual-host"))?;
        let profile =
            self.settings.profiles.iter().position(|profile| {
                Some(profile.name.as_str()) == text("profile") && profile.routing == Routing::Queue
            })?;
        let bounds = queue::bounds(&said, &Bounds { ttl: None, ..Bounds::default() }).ok()?;
        let maker = text("maker").map(str::to_owned);
        Some(((virtual_host, profile), text("name")?.to_owned(), bounds, maker))
    }

    /// Creates the configured resources.
    fn furnish(&mut self) {
        for virtual_host in 0..self.settings.virtual_hosts.len() {
            for at in 0..self.settings.profiles.len() {
                let Profile { routing, resources, .. } = self.settings.profiles[at].clone();
                for name in resources {
                    match self.realm.find(virtual_host, at, &name) {
                        None if routing == Routing::Fanout => {
                            let queue = Queue::new(0, Bounds::default());
                            self.realm.insert((virtual_host, at), &name, routing, queue, None);
                        }
                        None => {
                            let bounds = self.settings.bounds.clone();
                            let slot = self.add_queue((virtual_host, at), &name, bounds, None);
                            self.define(slot);
                        }
                        Some(slot) => self.rebound(slot),
                    }
                }
            }
        }
    }

    /// A restored queue gets the configured bounds.
    fn rebound(&mut self, slot: Slot) {
        let bounds = self.settings.bounds.clone();
        let Some(resource) = self.realm.get_mut(slot).filter(|resource| resource.routing == Routing::Queue) else {
            return;
        };
        if resource.queue.bounds != bounds {
            resource.queue.bounds = bounds;
            self.define(slot);
        }
    }

    fn define(&mut self, slot: Slot) {
        if let Some((_, op)) = self.definition(slot) {
            self.journal.insist(op);
        }
    }

    /// Milliseconds since 1970.
    fn wall(&self, at: Nanos) -> u64 {
        self.settings.epoch_ms.saturating_add(at.0 / 1_000_000)
    }

    /// Whether this socket is protected from eavesdroppers.
    fn is_private(&self, socket: ServerSocket) -> bool {
        if matches!(self.settings.options.curve, Some(Curve::Server { .. })) {
            return true;
        }
        let endpoint = self.given(socket);
        endpoint.starts_with("ipc://") || endpoint.starts_with("inproc://")
    }

    /// The configured endpoint of a socket.
    fn given(&self, socket: ServerSocket) -> &str {
        match socket {
            ServerSocket::Control(at) => &self.settings.bind[at],
            ServerSocket::Data(at) => &self.settings.data_bind[at],
        }
    }

    /// The endpoint for data of a client on this socket: the same, or one of the same transport.
    fn data_endpoint(&self, socket: ServerSocket) -> Option<String> {
        let (ServerSocket::Control(at) | ServerSocket::Data(at)) = socket;
        let ours = self.control.get(at).cloned().flatten();
        if self.settings.data_bind.is_empty() {
            return ours;
        }
        let scheme = |endpoint: &str| endpoint.split("://").next().map(str::to_owned);
        let wanted = ours.as_deref().and_then(scheme);
        let bound = self.data.iter().flatten();
        bound.clone().find(|endpoint| scheme(endpoint) == wanted).or_else(|| bound.clone().next()).cloned()
    }

    fn is_data(&self, socket: ServerSocket, frames: &[Bytes]) -> bool {
        match (socket, frames) {
            (ServerSocket::Data(_), _) => true,
            // The envelope of a command ends in an empty frame (MTL-05), and headers are never empty (MTL-31).
            (ServerSocket::Control(_), [first, _]) => self.settings.data_bind.is_empty() && !first.is_empty(),
            (ServerSocket::Control(_), _) => false,
        }
    }

    /// The sender at this address, for events.
    fn client(&self, address: &Address, caller: Caller) -> Origin {
        if let Some(flow) = self.flows.at(address) {
            return self.flow_client(flow);
        }
        let session = self.sessions.of_peer(address, &caller);
        let user = session.map_or(caller.user_id, |session| self.sessions.get(session).user());
        Origin::new(address.1.clone(), user)
    }

    /// The client of a data connection, for events.
    fn flow_client(&self, slot: Slot) -> Origin {
        let flow = self.flows.get(slot);
        flow.map(|flow| Origin::new(flow.address.1.clone(), self.sessions.get(flow.terms.session).user()))
            .unwrap_or_default()
    }

    fn drop(&mut self, reason: DropReason, origin: Origin, frames: Frames) {
        let dropped = Dropped::new(reason, origin, frames);
        dropped.count(&mut self.stats.dropped);
        self.events.push_back(ServerEvent::Dropped(dropped));
    }

    /// Counts a dropped content, and reports the first of a burst; `flow` is the data connection it came from or was
    /// for.
    fn lose(&mut self, kind: DropKind, flow: Option<Slot>, is_first: bool) {
        if is_first {
            let origin = flow.map(|flow| self.flow_client(flow)).unwrap_or_default();
            self.drop(kind.into(), origin, Frames::new());
        } else {
            *self.stats.dropped.entry(kind.slug()).or_default() += 1;
        }
    }

    /// Ends a session, its leases and its data connections.
    fn end_session(&mut self, now: Nanos, slot: Slot) {
        self.revoke_leases(now, slot);
        self.sessions.close(slot);
    }

    /// Ends sessions beyond the limit.
    fn end_excess(&mut self, now: Nanos) {
        while let Some(excess) = self.sessions.excess() {
            self.end_session(now, excess);
        }
    }

    /// Ends the leases of a session, used or not.
    fn revoke_leases(&mut self, now: Nanos, slot: Slot) {
        let session = self.sessions.get_mut(slot);
        let flows = session.flows.clone();
        for lease in std::mem::take(&mut session.leases) {
            self.withdraw(&lease);
        }
        for flow in flows {
            self.end_flow(now, flow, LeaseEnd::Revoked);
        }
    }

    /// Takes back an unused lease.
    fn withdraw(&mut self, lease: &str) -> Option<Terms> {
        let terms = self.leases.remove(lease)?;
        self.leased_names -= terms.resources.len();
        Some(terms)
    }

    fn revoke(&mut self, now: Nanos, users: &[String], leases: bool) {
        for slot in self.sessions.of(users) {
            if leases {
                self.revoke_leases(now, slot);
            }
            self.sessions.get_mut(slot).user = None;
        }
    }

    /// Ends all use of the sockets by clients that have proved one of these names by a key.
    fn bar(&mut self, now: Nanos, users: Vec<String>) {
        self.barred = users.into_iter().map(Bytes::from).collect();
        for slot in self.sessions.proved(&self.barred) {
            self.end_session(now, slot);
        }
    }

    fn on_stored(&mut self, kept: Vec<Kept>, is_stored: bool) {
        for slot in std::mem::take(&mut self.behind) {
            self.stir(slot);
        }
        for kept in kept {
            match kept {
                Kept::Content(place) => self.on_written(place, is_stored),
                Kept::Created { asker, resource, queue } => {
                    let is_there = self.realm.get(resource).is_some_and(|found| found.queue.number == queue);
                    if !is_stored && is_there {
                        self.remove_queue(resource);
                    }
                    self.reply(&asker, &if is_stored { control::ok() } else { says(507, "it cannot be stored") });
                }
                Kept::Gone(asker, reply) => {
                    self.reply(&asker, &if is_stored { reply } else { says(507, "it cannot be stored yet") });
                }
            }
        }
    }

    fn on_settled(&mut self, now: Nanos, settled: flows::Settled, unsent: Option<Unsent>) {
        let flows::Settled { flow: slot, content } = settled;
        let Some(flow) = self.flows.get_mut(slot) else { return };
        if unsent.is_none() {
            flow.heartbeat.spoke(now);
            flow.is_losing = false;
        }
        let is_confirmed = flow.terms.is_confirmed;
        if unsent == Some(Unsent::Unreachable) {
            return self.end_flow(now, slot, LeaseEnd::Gone);
        }
        let Some((sequence, resource)) = content else {
            return self.wake(slot);
        };
        if unsent.is_none() {
            if let Some(resource) = self.realm.get_mut(resource) {
                resource.stats.out += 1;
            }
            // Without confirmations, its delivery settles it.
            let done =
                self.flows.get_mut(slot).filter(|_| !is_confirmed).and_then(|flow| flow.unsettled.remove(&sequence));
            if let Some(done) = done {
                self.arrive(done.resource, &done.content);
            }
        } else if let Some(unsettled) = self.flows.get_mut(slot).and_then(|flow| flow.unsettled.remove(&sequence)) {
            if let Some(flow) = self.flows.get_mut(slot) {
                flow.taken = flow.taken.saturating_sub(1);
            }
            self.give_back(slot, unsettled);
        } else {
            self.lose(DropKind::PeerFull, Some(slot), true);
        }
        self.wake(slot);
    }

    fn beat(&mut self, now: Nanos) {
        while let Some(&(at, slot)) = self.flow_due.first()
            && at <= now
        {
            self.flow_due.pop_first();
            let Some(flow) = self.flows.get_mut(slot) else { continue };
            if self.is_pressed {
                // While we do not read, silence means nothing.
                flow.heartbeat.heard();
            }
            let beat = flow.heartbeat.beat(now);
            flow.due = flow.heartbeat.due();
            self.flow_due.insert((flow.due, slot));
            match beat {
                Beat::Nothing => {}
                Beat::Ping => self.flows.send(slot, wire::ping()),
                Beat::Dead => self.end_flow(now, slot, LeaseEnd::Silent),
            }
        }
    }

    fn is_done(&self) -> bool {
        self.flows.is_idle() && self.to_confirm.is_empty() && self.journal.is_idle()
    }

    fn close_if_done(&mut self, now: Nanos) {
        if !self.state.is_draining() {
            return;
        }
        let is_done = self.is_done();
        let Some(linger) = self.state.close(now, is_done) else { return };
        let sockets = (0..self.control.len()).map(ServerSocket::Control);
        for socket in sockets.chain((0..self.data.len()).map(ServerSocket::Data)) {
            self.outputs.push_back(Output::Close { socket, linger });
        }
    }

    /// The row of a message of the data flow names its resource.
    fn label_of(&self, flow: Option<Slot>, frames: &[Bytes], layout: &wire::Layout) -> Label {
        let is_named = matches!(layout.kind, wire::Kind::Summon | wire::Kind::Dismiss | wire::Kind::Content);
        let topic = if is_named && !layout.name.is_empty() {
            Some(frames[0].slice(layout.name.clone()))
        } else if layout.kind == wire::Kind::Content {
            flow.and_then(|slot| self.flows.get(slot)).and_then(|flow| flow.terms.topic.clone())
        } else {
            None
        };
        Label { framing: Some(Framing::MtlData), topic }
    }
}

fn plain_label(is_data: bool) -> Label {
    let framing = if is_data { Framing::MtlData } else { Framing::MtlControl };
    Label { framing: Some(framing), ..Label::default() }
}

impl Machine for Server {
    type Socket = ServerSocket;
    type Event = ServerEvent;
    type Verb = ServerVerb;
    type Stats = ServerStats;

    fn handle_message(&mut self, now: Nanos, incoming: Incoming<ServerSocket>) -> Verdict {
        let Incoming { socket, peer: Some(peer), user_id, host, frames } = incoming else { return Verdict::default() };
        self.now = now;
        self.stats.received += 1;
        self.stats.bytes += crate::nbytes(&frames);
        let is_data = self.is_data(socket, &frames);
        let mut label = plain_label(is_data);
        let (address, caller) = ((socket, peer), Caller { user_id, host });
        let taken = if is_data {
            let flow = self.flows.at(&address);
            if let Some(flow) = flow.and_then(|slot| self.flows.get_mut(slot)) {
                flow.heartbeat.heard();
            }
            wire::decode(&frames).map(|layout| {
                label = self.label_of(flow, &frames, &layout);
                self.on_data(now, (&address, flow), caller.user_id.as_ref(), &frames, &layout);
            })
        } else {
            // A copy: it may be part of a larger buffer.
            self.on_control(now, (socket, Bytes::copy_from_slice(&address.1)), caller.clone(), &frames)
        };
        match taken {
            Ok(()) => Verdict { error: None, label },
            Err(error) => {
                let client = self.client(&address, caller);
                self.drop(error.into(), client, frames);
                Verdict { error: Some(error.kind), label }
            }
        }
    }

    fn handle_socket(&mut self, now: Nanos, socket: ServerSocket, event: SocketEvent) {
        self.now = now;
        self.events.extend(event.connection().map(ServerEvent::Connection));
        match event {
            SocketEvent::Bound(endpoint) => match socket {
                ServerSocket::Control(at) => self.control[at] = Some(endpoint),
                ServerSocket::Data(at) => self.data[at] = Some(endpoint),
            },
            SocketEvent::Connected(_) => self.stats.peers += 1,
            SocketEvent::Disconnected(_) => self.stats.peers = self.stats.peers.saturating_sub(1),
            // A message left unsent at the end changes nothing.
            SocketEvent::OpenFailed { .. }
            | SocketEvent::HandshakeFailed { .. }
            | SocketEvent::Server(_)
            | SocketEvent::Unreachable { .. }
            | SocketEvent::Unsent(_, Unsent::Closed) => {}
            SocketEvent::Sent(id) => {
                self.stats.sent += 1;
                if let Some(settled) = self.flows.settle(id) {
                    self.on_settled(now, settled, None);
                }
            }
            SocketEvent::Unsent(REPLY, unsent) => {
                let kind = if unsent == Unsent::PeerFull { DropKind::PeerFull } else { DropKind::Unroutable };
                self.lose(kind, None, true);
            }
            SocketEvent::Unsent(id, unsent) => {
                if let Some(settled) = self.flows.settle(id) {
                    self.on_settled(now, settled, Some(unsent));
                }
            }
            SocketEvent::Closed => {
                self.sockets = self.sockets.saturating_sub(1);
                if self.sockets == 0 {
                    self.state = Lifecycle::Closed;
                }
            }
        }
        self.close_if_done(now);
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.now = now;
        while let Some((token, hanging)) = self.questions.expired(now) {
            self.settle_question(now, token, hanging, Answer::Failed);
        }
        while let Some(held) = self.delays.due(now) {
            self.release(now, held);
        }
        while self.lease_due.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, lease)) = self.lease_due.pop_front()
        {
            if let Some(terms) = self.withdraw(&lease) {
                self.sessions.get_mut(terms.session).leases.remove(&lease);
            }
        }
        while let Some(session) = self.sessions.expired(now, self.settings.session_idle) {
            self.end_session(now, session);
        }
        self.expire(now);
        self.beat(now);
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.journal.retry();
        }
        self.close_if_done(now);
    }

    fn handle_verb(&mut self, now: Nanos, verb: ServerVerb) {
        self.now = now;
        match verb {
            ServerVerb::Answer(token, answer) => self.on_answer(now, token, answer),
            ServerVerb::Stored(through) => {
                let kept = self.journal.stored(through);
                self.on_stored(kept, true);
            }
            ServerVerb::Unstored(number, reason) => {
                let kept = self.journal.unstored(number);
                self.on_stored(kept, false);
                self.retry_at = Some(now + RETRY).filter(|_| self.journal.has_failed());
                self.events.push_back(ServerEvent::StoreFailed(reason));
            }
            ServerVerb::Revoke { users, leases } => self.revoke(now, &users, leases),
            ServerVerb::Bar(users) => self.bar(now, users),
        }
        self.close_if_done(now);
    }

    /// Accepts nothing new; waits until all is stored and the transport has taken what is queued for clients.
    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        self.now = now;
        if self.state.drain(now, grace) {
            // Nothing is delivered from now on, so these numbers are final.
            self.keep_attempts();
        }
        self.close_if_done(now);
    }

    fn handle_pressure(&mut self, _now: Nanos, pressed: bool) {
        self.is_pressed = pressed;
    }

    fn poll_output(&mut self) -> Option<Output<ServerSocket>> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if self.state.is_closing() {
            return None;
        }
        for slot in std::mem::take(&mut self.to_confirm) {
            self.confirm_to(slot);
        }
        for slot in std::mem::take(&mut self.flows.unread) {
            self.end_flow(self.now, slot, LeaseEnd::Unread);
        }
        // A draining server delivers nothing.
        if self.state.is_open() {
            self.hand_out();
        }
        let (id, (socket, to), frames) = self.flows.offer()?;
        let (socket, to) = (*socket, Some(to.clone()));
        Some(Output::Send { id: Some(id), socket, to, frames, until: None })
    }

    fn label(&self, socket: ServerSocket, to: Option<&Bytes>, frames: &[Bytes]) -> Label {
        let is_data = matches!(frames, [first, _] if first.first().is_some_and(|byte| *byte < FIRST_OF_CONTROL));
        match (to, wire::decode(frames)) {
            (Some(to), Ok(layout)) if is_data => self.label_of(self.flows.at(&(socket, to.clone())), frames, &layout),
            _ => plain_label(is_data),
        }
    }

    fn shown(&self, _socket: ServerSocket, frames: &[Bytes]) -> Option<Frames> {
        if self.settings.shows_secrets { None } else { redacted(frames) }
    }

    fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front().or_else(|| self.journal.batch().map(ServerEvent::Store))
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        if self.state.is_closing() {
            return None;
        }
        let all = [
            self.questions.poll_timeout(),
            self.delays.poll_timeout(),
            self.lease_due.front().map(|(at, _)| *at),
            self.sessions.poll_timeout(self.settings.session_idle),
            self.expiries.first().map(|(at, _)| *at),
            self.flow_due.first().map(|(at, _)| *at),
            self.retry_at,
            self.state.poll_timeout(),
        ];
        all.into_iter().flatten().min()
    }

    fn reads(&self, _socket: ServerSocket) -> bool {
        self.state.is_open()
    }

    fn progress(&self) -> u64 {
        self.stats.received
    }

    fn stats(&self) -> ServerStats {
        let resources = self.realm.iter().take(LISTED).map(|(_, resource)| {
            let name = |name: &str| String::from_utf8_lossy(&shortened(name.as_bytes())).into_owned();
            ResourceStats {
                virtual_host: name(&self.settings.virtual_hosts[resource.virtual_host]),
                profile: name(&self.settings.profiles[resource.profile].name),
                resource: name(&resource.name),
                queued: resource.queue.count,
                queued_bytes: resource.queue.bytes,
                readers: resource.summons,
                writers: self.realm.writers(resource),
                ..resource.stats.clone()
            }
        });
        ServerStats {
            sessions: self.sessions.len() as u64,
            leases: self.flows.len() as u64,
            resources: resources.collect(),
            endpoints: self.control.iter().flatten().cloned().collect(),
            data_endpoints: if self.data.is_empty() { &self.control } else { &self.data }
                .iter()
                .flatten()
                .cloned()
                .collect(),
            ..self.stats.clone()
        }
    }

    fn is_closed(&self) -> bool {
        self.state.is_closed()
    }
}
