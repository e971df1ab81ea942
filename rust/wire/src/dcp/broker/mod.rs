//! The broker: queues requests by service, and passes them to workers.

mod board;
mod settings;

pub use settings::{BrokerEvent, BrokerSettings, BrokerStats, ClientAddress, Overflow, ServiceStats};

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use bytes::Bytes;

use self::board::{Board, IDLE_SERVICES, Left};
use super::layout::{REQUEST_CLIENT, SERVICE, TYPE};
use super::{Body, LEAVING, Layout, MessageType, Role, Settings, Width, decode, encode_header};
use crate::slab::{Slab, Slot};
use crate::status::{STATUS, Status};
use crate::{
    DropKind, DropReason, Dropped, Frames, Incoming, Lifecycle, Machine, NAME_BYTES, Nanos, Open, Origin, Output,
    Parcel, SendId, SocketEvent, SocketKind, SocketOptions, Unsent, Verdict,
};

/// Former workers to remember, and peers with wide types.
const REMEMBERED: usize = 65_536;

/// Marks the id of a reply's send.
const REPLY: u64 = 1 << 63;

/// The broker's only socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Front;

/// A broker takes no commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokerVerb {}

/// The broker of DCP.
#[derive(Debug)]
pub struct Broker {
    settings: BrokerSettings,
    decode: Settings,
    state: Lifecycle,
    board: Board,
    /// The clients of replies that the transport has not taken yet.
    replies: Slab<Bytes>,
    /// Former workers by address and user: their late replies are accepted.
    former: Latest<(Bytes, Option<Bytes>)>,
    /// Peers whose last message had a type of four bytes.
    wide: Latest<Bytes>,
    stats: BrokerStats,
    status: Status,
    outputs: VecDeque<Output<Front>>,
    events: VecDeque<BrokerEvent>,
}

impl Broker {
    /// A broker that opens its socket at once.
    pub fn new(settings: BrokerSettings) -> Self {
        let open = Output::Open(Box::new(Open {
            socket: Front,
            kind: SocketKind::Router,
            bind: settings.bind.clone(),
            connect: vec![],
            options: SocketOptions { mandatory: true, ..settings.options.clone() },
        }));
        Self {
            decode: Settings { role: Some(Role::Broker), compat_dagbox: settings.compat_dagbox },
            settings,
            state: Lifecycle::Open,
            board: Board::new(),
            replies: Slab::new(),
            former: Latest::default(),
            wide: Latest::default(),
            stats: BrokerStats::default(),
            status: Status::default(),
            outputs: VecDeque::from([open]),
            events: VecDeque::new(),
        }
    }

    fn on_register(&mut self, now: Nanos, peer: &Bytes, user: Option<&Bytes>, frames: Frames) {
        let name = &frames[SERVICE];
        let is_allowed = |allowed: &HashSet<Bytes>| allowed.contains(name) || name == LEAVING;
        if !self.board.has_room_for_name(name, self.settings.max_queue_bytes) {
            return self.drop(DropKind::QueueFull, Origin::new(peer.clone(), user.cloned()), frames);
        }
        let is_own = self.settings.status && name == STATUS;
        if is_own || !self.settings.services.as_ref().is_none_or(is_allowed) {
            self.events.push_back(BrokerEvent::Refused {
                worker: Origin::new(peer.clone(), user.cloned()),
                service: name.clone(),
            });
            return;
        }
        self.events.push_back(BrokerEvent::Registered {
            worker: Origin::new(peer.clone(), user.cloned()),
            service: name.clone(),
        });
        let service = self.board.service(name);
        let is_again = self.board.worker(peer).is_some_and(|worker| self.board.service_of(worker) == service);
        let worker = self.board.register(now, peer, user, service);
        if is_again {
            // It starts anew: its sent requests are not in progress any more; unsent ones go back to the queue.
            let left = self.board.relieve(now + self.settings.queue_ttl, worker, |is_sent| !is_sent);
            self.go_on_without(now, left);
        }
        self.send(peer.clone(), frames);
        self.free(now, worker);
    }

    fn on_ping(&mut self, now: Nanos, peer: &Bytes, worker: Option<Slot>) {
        let Some(worker) = worker else { return self.send_header(peer, MessageType::Reconnect) };
        self.send_header(peer, MessageType::Pong);
        if self.settings.busy_ping_grants || !self.board.has_held(worker) {
            self.free(now, worker);
        }
    }

    fn on_request(&mut self, now: Nanos, sender: Origin, worker: Option<Slot>, mut frames: Frames, body: &Body) {
        let peer = sender.peer.clone().unwrap_or_default();
        let mut forwards = false;
        let mut metadata_end = body.metadata.end;
        match body.client {
            None => {
                frames.insert(REQUEST_CLIENT, peer.clone());
                metadata_end += 1;
            }
            Some(client) if worker.is_some() => forwards = frames[client] != peer,
            Some(client) if self.settings.client_address == ClientAddress::WorkersOnly => {
                frames[client] = peer.clone();
            }
            Some(_) => {}
        }
        let key = self.board.digest(&frames[REQUEST_CLIENT..metadata_end]);
        if let Some(worker) = worker.filter(|_| forwards) {
            if let Some((service, _)) = self.board.finish(worker, key) {
                self.board.tidy(service);
            }
            self.free(now, worker);
        }
        if self.settings.status && frames[SERVICE] == STATUS {
            return self.tell_status(now, &frames, metadata_end);
        }
        self.admit(now, sender, frames, key);
    }

    /// Answers a request for the broker's status service.
    fn tell_status(&mut self, now: Nanos, request: &Frames, metadata_end: usize) {
        let mut status = std::mem::take(&mut self.status);
        let names = |stats: &BrokerStats| stats.services.iter().map(|service| service.service.clone()).collect();
        let text = status.at(now, || self.stats(), ("services", "service"), names);
        self.status = status;
        let mut reply = encode_header(MessageType::Reply, Width::One);
        // The client, the metadata to echo, and the empty frame before the data.
        reply.extend(request[REQUEST_CLIENT..=metadata_end].iter().cloned());
        reply.push(text);
        self.deliver(request[REQUEST_CLIENT].clone(), reply);
    }

    /// Whether a peer that is not a worker may reply: always, or only if it was one, as `client_address` says.
    fn may_reply(&self, peer: &Bytes, user: Option<&Bytes>) -> bool {
        self.settings.client_address == ClientAddress::Any || self.former.contains(&(peer.clone(), user.cloned()))
    }

    fn on_reply(&mut self, now: Nanos, peer: &Bytes, worker: Option<Slot>, frames: Frames, body: &Body) {
        let client = body.client.unwrap_or(SERVICE);
        let key = self.board.digest(&frames[client..body.metadata.end]);
        self.deliver(frames[client].clone(), frames);
        match worker {
            Some(worker) => {
                if let Some((service, since)) = self.board.finish(worker, key) {
                    self.stats.latency.add(now - since);
                    self.board.service_mut(service).replies += 1;
                    self.board.tidy(service);
                }
                self.free(now, worker);
            }
            None => self.send_header(peer, MessageType::Reconnect),
        }
    }

    /// Sends a new request to a free worker, queues it, or drops it.
    fn admit(&mut self, now: Nanos, sender: Origin, frames: Frames, key: u64) {
        let service = self.board.service(&frames[SERVICE]);
        let is_open = self.state.is_open();
        let entry = self.board.service_mut(service);
        entry.requests += 1;
        let worker = entry.free.first().filter(|_| is_open && entry.queue.is_empty());
        let is_kept = worker.is_none() || self.settings.requeue;
        let cost = Board::cost_of(&frames);
        if is_kept && !self.make_room(service, cost, worker.is_none()) {
            self.drop(DropKind::QueueFull, sender, frames);
            self.board.tidy(service);
            return;
        }
        // The sender of a forwarded request is not its client, whose user is unknown here.
        let user = sender.user.filter(|_| sender.peer.as_ref() == frames.get(REQUEST_CLIENT));
        let request = self.board.add(now..now + self.settings.queue_ttl, service, frames, user, cost, key);
        match worker {
            Some(worker) => {
                let send = self.board.give(request, worker);
                self.send_request(send, request, worker);
            }
            None => self.board.queue(request),
        }
    }

    /// Makes room for a request of this cost. Returns whether there is.
    fn make_room(&mut self, service: Slot, cost: usize, is_queued: bool) -> bool {
        if cost > self.settings.max_queue_bytes {
            return false;
        }
        loop {
            let queue = &self.board.service_mut(service).queue;
            let (length, oldest) = (queue.len(), queue.first());
            let is_long = is_queued && length >= self.settings.max_queue;
            if !is_long && self.board.cost() + cost <= self.settings.max_queue_bytes {
                return true;
            }
            match oldest.filter(|_| self.settings.overflow == Overflow::DropOldest) {
                Some(oldest) => self.drop_queued(oldest, DropKind::QueueFull),
                None => return false,
            }
        }
    }

    /// Makes a worker free, and sends it a queued request.
    fn free(&mut self, now: Nanos, worker: Slot) {
        if let Some(service) = self.board.free(worker, self.settings.max_held) {
            self.dispatch(now, service);
        }
    }

    /// Sends queued requests to free workers, the oldest of both first.
    fn dispatch(&mut self, now: Nanos, service: Slot) {
        if !self.state.is_open() {
            return;
        }
        loop {
            let entry = self.board.service_mut(service);
            let (Some(request), Some(worker)) = (entry.queue.first(), entry.free.first()) else { return };
            if self.board.is_due(now, request) {
                self.expire(request);
            } else {
                let send = self.board.give_queued(request, worker);
                self.send_request(send, request, worker);
            }
        }
    }

    fn forget(&mut self, now: Nanos, worker: Slot, is_unreachable: bool) {
        let requeue = self.settings.requeue;
        let due = now + self.settings.queue_ttl;
        // Another worker gets what was never sent; a sent request may have been handled already.
        let (gone, left) = self.board.forget(due, worker, |is_sent| requeue || (is_unreachable && !is_sent));
        let service = self.board.service_mut(gone.service).name.clone();
        if self.settings.client_address == ClientAddress::WorkersOnly {
            self.former.insert((Bytes::copy_from_slice(&gone.address), gone.user.clone()));
        }
        let worker = Origin::new(gone.address, gone.user);
        self.events.push_back(BrokerEvent::Gone { worker, service, lost: left.lost });
        self.go_on_without(now, left);
    }

    /// Updates the services that have lost requests of a worker.
    fn go_on_without(&mut self, now: Nanos, left: Left) {
        self.stats.lost += left.lost;
        for service in left.touched {
            self.dispatch(now, service);
            self.board.tidy(service);
        }
    }

    fn expire(&mut self, request: Slot) {
        let service = self.board.request_service(request);
        self.board.service_mut(service).expired += 1;
        self.drop_queued(request, DropKind::QueueExpired);
    }

    fn drop_queued(&mut self, request: Slot, kind: DropKind) {
        let (frames, user) = self.board.drop_queued(request).into_parts();
        let client = Origin { peer: frames.get(REQUEST_CLIENT).cloned(), user, ..Origin::default() };
        self.drop(kind, client, frames);
    }

    fn drop(&mut self, reason: impl Into<DropReason>, origin: impl Into<Origin>, frames: Frames) {
        let dropped = Dropped::new(reason, origin, frames);
        dropped.count(&mut self.stats.dropped);
        self.events.push_back(BrokerEvent::Dropped(dropped));
    }

    fn send_request(&mut self, send: SendId, request: Slot, worker: Slot) {
        let to = self.board.address(worker).clone();
        if let Some(frame) = self.rewritten(MessageType::Request, &to)
            && let Some(frames) = self.board.frames_mut(request)
        {
            frames[TYPE] = frame;
        }
        self.stats.sent += 1;
        // Its frames are added when the transport asks for it.
        let (id, to, frames) = (Some(send), Some(to), Parcel::default());
        self.outputs.push_back(Output::Send { id, socket: Front, to, frames, until: None });
    }

    fn deliver(&mut self, client: Bytes, mut frames: Frames) {
        let id = SendId(REPLY | u64::from(self.replies.insert(client.clone())));
        if let Some(frame) = self.rewritten(MessageType::Reply, &client) {
            frames[TYPE] = frame;
        }
        self.stats.sent += 1;
        let to = Some(client);
        let frames = frames.into();
        self.outputs.push_back(Output::Send { id: Some(id), socket: Front, to, frames, until: None });
    }

    fn send_header(&mut self, to: &Bytes, message_type: MessageType) {
        self.send(to.clone(), encode_header(message_type, self.width(to)));
    }

    fn send(&mut self, to: Bytes, frames: Frames) {
        self.stats.sent += 1;
        let frames = frames.into();
        self.outputs.push_back(Output::Send { id: None, socket: Front, to: Some(to), frames, until: None });
    }

    /// The type frame in the width of its receiver, which may differ from the sender's (DCP-11).
    fn rewritten(&self, message_type: MessageType, to: &Bytes) -> Option<Bytes> {
        self.settings.compat_dagbox.then(|| message_type.frame(self.width(to)))
    }

    fn width(&self, peer: &Bytes) -> Width {
        if self.settings.compat_dagbox && self.wide.contains(peer) { Width::Four } else { Width::One }
    }

    fn on_unsent(&mut self, now: Nanos, send: SendId, unsent: Unsent) {
        self.stats.sent = self.stats.sent.saturating_sub(1);
        if send.0 & REPLY != 0 {
            let kind = if unsent == Unsent::PeerFull { DropKind::PeerFull } else { DropKind::Unroutable };
            let client = self.reply_of(send);
            self.drop(kind, client, Frames::new());
            return;
        }
        let Some((request, worker)) = self.board.sending(send) else { return };
        if unsent == Unsent::Unreachable {
            self.forget(now, worker, true);
        } else {
            // The worker does not read; it will ask again when it does.
            let service = self.board.request_service(request);
            self.board.give_back(now + self.settings.queue_ttl, request);
            self.dispatch(now, service);
        }
    }

    fn reply_of(&mut self, send: SendId) -> Option<Bytes> {
        Slot::try_from(send.0 & !REPLY).ok().and_then(|slot| self.replies.remove(slot))
    }

    fn silence_limit(&self) -> Duration {
        self.settings.heartbeat_interval * self.settings.liveness
    }

    fn close_if_done(&mut self, now: Nanos) {
        if let Some(linger) = self.state.close(now, self.board.held() == 0) {
            self.outputs.push_back(Output::Close { socket: Front, linger });
        }
    }
}

impl Machine for Broker {
    type Socket = Front;
    type Event = BrokerEvent;
    type Verb = BrokerVerb;
    type Stats = BrokerStats;

    fn handle_message(&mut self, now: Nanos, incoming: Incoming<Front>) -> Verdict {
        let Incoming { frames, peer, user_id: user, .. } = incoming;
        let peer = peer.unwrap_or_default();
        self.stats.received += 1;
        self.stats.bytes += crate::nbytes(&frames);
        let mut worker = self.board.worker(&peer);
        if let Some(other) = worker.filter(|worker| self.board.user(*worker) != user.as_ref()) {
            // Another key has this address now: the worker registered there is gone.
            self.forget(now, other, false);
            worker = None;
        }
        if let Some(worker) = worker {
            self.board.hear(now, worker);
        }
        let layout = match decode(&frames, self.decode) {
            Ok(layout) => layout,
            Err(error) => {
                self.drop(error, Origin::new(peer, user), frames);
                return error.into();
            }
        };
        if self.settings.compat_dagbox {
            match frames[TYPE].len() {
                1 => self.wide.remove(&peer),
                _ => self.wide.insert(Bytes::copy_from_slice(&peer)),
            }
        }
        match layout {
            Layout::Register => self.on_register(now, &peer, user.as_ref(), frames),
            Layout::Ping => self.on_ping(now, &peer, worker),
            Layout::Pong if worker.is_none() => self.send_header(&peer, MessageType::Reconnect),
            // The codec rejects reconnects for a broker.
            Layout::Pong | Layout::Reconnect => {}
            Layout::Request(body) => self.on_request(now, Origin::new(peer, user), worker, frames, &body),
            Layout::Reply(_) if worker.is_none() && !self.may_reply(&peer, user.as_ref()) => {
                self.drop(DropKind::Spoofed, Origin::new(peer, user), frames);
            }
            Layout::Reply(body) => self.on_reply(now, &peer, worker, frames, &body),
        }
        self.close_if_done(now);
        Verdict::default()
    }

    fn handle_socket(&mut self, now: Nanos, _socket: Front, event: SocketEvent) {
        if let Some(connection) = event.connection() {
            self.events.push_back(BrokerEvent::Connection(connection));
        }
        match event {
            SocketEvent::Bound(_)
            | SocketEvent::OpenFailed { .. }
            | SocketEvent::HandshakeFailed { .. }
            | SocketEvent::Server(_)
            | SocketEvent::Unreachable { .. } => {}
            SocketEvent::Connected(_) => self.stats.peers += 1,
            SocketEvent::Disconnected(_) => self.stats.peers = self.stats.peers.saturating_sub(1),
            SocketEvent::Sent(send) if send.0 & REPLY != 0 => {
                self.reply_of(send);
            }
            SocketEvent::Sent(send) => {
                if let Some((request, _)) = self.board.sending(send) {
                    self.board.sent(request, self.settings.requeue);
                }
            }
            SocketEvent::Unsent(send, unsent) => self.on_unsent(now, send, unsent),
            SocketEvent::Closed => self.state = Lifecycle::Closed,
        }
        self.close_if_done(now);
    }

    fn handle_timeout(&mut self, now: Nanos) {
        while let Some((worker, seen)) = self.board.most_silent()
            && seen + self.silence_limit() <= now
        {
            self.forget(now, worker, false);
        }
        while let Some((request, due)) = self.board.oldest()
            && due <= now
        {
            let service = self.board.request_service(request);
            self.expire(request);
            self.board.tidy(service);
        }
        self.close_if_done(now);
    }

    fn handle_verb(&mut self, _now: Nanos, verb: BrokerVerb) {
        match verb {}
    }

    /// Waits for the replies to requests in progress; queued ones stay queued, and are counted.
    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        self.state.drain(now, grace);
        self.close_if_done(now);
    }

    fn poll_output(&mut self) -> Option<Output<Front>> {
        loop {
            let mut output = self.outputs.pop_front()?;
            if let Output::Send { id: Some(send), frames, .. } = &mut output
                && send.0 & REPLY == 0
            {
                let Some((request, _)) = self.board.sending(*send) else {
                    // Its worker is gone, or has lost it since.
                    self.stats.sent = self.stats.sent.saturating_sub(1);
                    continue;
                };
                *frames = self.board.parcel(request);
            }
            return Some(output);
        }
    }

    fn poll_event(&mut self) -> Option<BrokerEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        let silent = self.board.most_silent().map(|(_, seen)| seen + self.silence_limit());
        let expired = self.board.oldest().map(|(_, due)| due);
        if self.state.is_closing() {
            return None;
        }
        [silent, expired, self.state.poll_timeout()].into_iter().flatten().min()
    }

    fn progress(&self) -> u64 {
        self.stats.received
    }

    fn stats(&self) -> BrokerStats {
        let named = self.board.services().filter(|service| service.name != LEAVING);
        let services = named.take(IDLE_SERVICES).map(|service| ServiceStats {
            service: service.name.slice(..service.name.len().min(NAME_BYTES)),
            queued: service.queue.len() as u64,
            workers: service.workers as u64,
            free: service.free.len() as u64,
            requests: service.requests,
            replies: service.replies,
            expired: service.expired,
        });
        BrokerStats { queued: self.board.queued() as u64, services: services.collect(), ..self.stats.clone() }
    }

    fn is_closed(&self) -> bool {
        self.state.is_closed()
    }
}

/// The last items added; the oldest is dropped beyond a limit.
#[derive(Debug)]
struct Latest<T> {
    all: HashSet<T>,
    order: VecDeque<T>,
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self { all: HashSet::new(), order: VecDeque::new() }
    }
}

impl<T: Clone + Eq + Hash> Latest<T> {
    fn contains(&self, one: &T) -> bool {
        self.all.contains(one)
    }

    fn insert(&mut self, one: T) {
        if !self.all.insert(one.clone()) {
            return;
        }
        self.order.push_back(one);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
    }

    /// Its position in the order stays, and may make a later entry expire early.
    fn remove(&mut self, one: &T) {
        self.all.remove(one);
    }
}
