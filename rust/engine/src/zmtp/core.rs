//! Everything that happens on the connections of one role.

use std::collections::HashMap;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes};
use foldhash::fast::RandomState;
use trunkline_wire::{Nanos, Remote, SocketEvent, SocketKind, SocketOptions};
use trunkline_zmtp::curve::Crypto;
use trunkline_zmtp::patterns::{ConnectionId, Dial};
use trunkline_zmtp::{Connection, Event, Failure, Ready, Reason, Side, Tally};

use super::ZmtpSettings;
use super::admission::Admission;
use super::options::choose;
use super::peer::{Peer, Stage};
use super::socket::{Dialled, Socket, Way};
use crate::reactor::{DialId, Link, LinkId, ListenerId, News, Place, Reactor, Read, copied, failed};
use crate::transport::{Interest, Received, Taken, TransportError};

/// Pieces that are written with one call.
const PIECES: usize = 64;

/// How long a peer to which all was written may take to end its side: what it has not read yet would be lost with a link
/// that is torn down.
const PARTING: Duration = Duration::from_millis(50);

/// Events of a peer that is not read by the role's user before others have their turn.
const PUMPED: usize = 64;

/// Reads without a message before others have their turn.
const READS: usize = 32;

/// How long a peer that has something to say is not held to be silent.
const UNREAD: Duration = Duration::from_millis(20);

/// Peers that may each keep the memory that they were last written from.
const FEW: usize = 256;

/// How long a peer may take what waits for it when its endpoint is disconnected.
const HANGING_UP: Duration = Duration::from_secs(5);

/// The connections of one role, and its sockets.
pub(super) struct Core {
    reactor: Reactor,
    /// Those that were closed are not there any more.
    sockets: Vec<Option<Socket>>,
    /// By the numbers of their links.
    peers: Vec<Option<Peer>>,
    listeners: HashMap<ListenerId, usize, RandomState>,
    dials: HashMap<DialId, usize, RandomState>,
    /// Peers to which something is to be written.
    dirty: Vec<LinkId>,
    /// Peers that may have more to say than they were let.
    again: Vec<LinkId>,
    /// Peers that leave.
    leaving: usize,
    /// What waits to be written to all peers, in bytes, and how much of it may.
    waiting: usize,
    waiting_limit: usize,
    /// Connections that were given up, but not those that their peers ended.
    failures: Tally,
    now: Nanos,
    crypto: Option<Arc<dyn Crypto>>,
    admission: Option<Arc<Admission>>,
}

impl Core {
    pub(super) fn new(settings: ZmtpSettings) -> Result<Self, TransportError> {
        let ZmtpSettings { max_connections, max_connections_per_host, outbox_bytes, crypto, admission } = settings;
        let reactor = Reactor::new(max_connections, max_connections_per_host)?;
        if let Some(admission) = &admission {
            admission.wake_by(reactor.waker());
        }
        Ok(Self {
            now: reactor.now(),
            reactor,
            sockets: vec![],
            peers: vec![],
            listeners: HashMap::default(),
            dials: HashMap::default(),
            dirty: vec![],
            again: vec![],
            leaving: 0,
            waiting: 0,
            // What waits elsewhere has the other half.
            waiting_limit: outbox_bytes / 2,
            failures: Tally::default(),
            crypto,
            admission,
        })
    }

    pub(super) fn turned_away(&self) -> u64 {
        self.reactor.turned_away()
    }

    pub(super) fn failures(&self) -> &Tally {
        &self.failures
    }

    /// What waits to be written to all peers, in bytes.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn open(&mut self, kind: SocketKind, options: &SocketOptions) -> Result<usize, TransportError> {
        let chosen = choose(kind, options, self.crypto.as_ref())?;
        self.sockets.push(Some(Socket::new(kind, chosen, options.hosts)));
        Ok(self.sockets.len() - 1)
    }

    pub(super) fn bind(&mut self, at: usize, endpoint: &str) -> Result<String, TransportError> {
        let Some(socket) = self.sockets.get_mut(at).and_then(Option::as_mut) else {
            return Err(TransportError::Terminated);
        };
        let place = Place::to_listen(endpoint, socket.chosen.ipv6).map_err(|error| failed(&error))?;
        let (id, real) = self.reactor.listen(&place, socket.chosen.stream)?;
        socket.bound.push((Arc::from(real.as_str()), id));
        self.listeners.insert(id, at);
        Ok(real)
    }

    pub(super) fn connect(&mut self, at: usize, endpoint: &str) -> Result<(), TransportError> {
        let Some(socket) = self.sockets.get_mut(at).and_then(Option::as_mut) else {
            return Err(TransportError::Terminated);
        };
        let place = Place::to_dial(endpoint).map_err(|error| failed(&error))?;
        let id = self.reactor.dial(place, socket.chosen.stream, socket.chosen.backoff);
        let lane = socket.dial();
        socket.dialled.push(Dialled { endpoint: Arc::from(endpoint), id, lane });
        self.dials.insert(id, at);
        Ok(())
    }

    pub(super) fn disconnect(&mut self, at: usize, endpoint: &str) -> Result<(), TransportError> {
        let unknown = || failed(&nix::errno::Errno::ENOENT.into());
        let socket = self.sockets.get_mut(at).and_then(Option::as_mut).ok_or(TransportError::Terminated)?;
        if let Some(found) = socket.bound.iter().position(|(bound, _)| **bound == *endpoint) {
            let (_, id) = socket.bound.swap_remove(found);
            self.listeners.remove(&id);
            self.reactor.unlisten(id);
            return Ok(());
        }
        let found = socket.dialled.iter().position(|dialled| *dialled.endpoint == *endpoint).ok_or_else(unknown)?;
        let Dialled { id, lane, .. } = socket.dialled.swap_remove(found);
        self.dials.remove(&id);
        let link = self.reactor.hang_up(id);
        if let Some(lane) = lane {
            socket.hang_up(lane);
        }
        if let Some(link) = link {
            self.part(link, HANGING_UP);
        }
        Ok(())
    }

    /// The next that has happened to a socket.
    pub(super) fn poll_monitor(&mut self, at: usize) -> Option<SocketEvent> {
        self.sockets.get_mut(at)?.as_mut()?.events.pop_front()
    }

    /// Where the peer is whose message was received last.
    pub(super) fn address(&self, at: usize) -> Option<Box<str>> {
        let link = self.sockets.get(at)?.as_ref()?.last?;
        self.reactor.link(link)?.address.as_deref().map(Into::into)
    }

    /// Notes what a socket can do; whether that is anything.
    pub(super) fn ready(&mut self, interest: &mut Interest<'_, super::Socket>) -> bool {
        let Some(socket) = self.sockets.get_mut(interest.socket.0).and_then(Option::as_mut) else { return false };
        interest.readable = interest.read && socket.turns.first().is_some();
        interest.writable = interest.write && socket.is_writable();
        interest.monitored = !socket.events.is_empty();
        interest.readable || interest.writable || interest.monitored
    }

    /// A socket is read from now on, or not: silence is not held against a peer that is not.
    pub(super) fn set_reading(&mut self, at: usize, is_reading: bool) {
        let Some(socket) = self.sockets.get_mut(at).and_then(Option::as_mut) else { return };
        if !socket.receives() || std::mem::replace(&mut socket.is_reading, is_reading) == is_reading {
            return;
        }
        for peer in self.peers.iter_mut().flatten().filter(|peer| peer.socket == at && peer.stage == Stage::Ready) {
            peer.connection.handle_reading(self.now, is_reading);
            self.reactor.set_timer(peer.link, peer.connection.poll_timeout());
        }
    }

    /// The next message of a socket.
    #[inline]
    pub(super) fn receive(&mut self, at: usize) -> Option<Received> {
        // A message that comes and comes is not waited for.
        let mut reads = 0;
        while reads < READS {
            let socket = self.sockets.get_mut(at)?.as_mut()?;
            let id = socket.turns.first()?;
            let link = LinkId::of(id.0);
            let Some(peer) = find(&mut self.peers, link) else {
                socket.turns.leave(id);
                continue;
            };
            match peer.connection.poll_event() {
                Some(Event::Message(mut frames)) => {
                    if self.reactor.is_scarce() {
                        copied(&mut frames);
                    }
                    let host = if socket.hosts { self.reactor.link(link).and_then(|link| link.host) } else { None };
                    if let Some(received) = socket.received(peer, host, frames) {
                        return Some(received);
                    }
                }
                Some(event) => self.handle(link, event),
                None => {
                    let read = self.read(link);
                    reads += 1;
                    let Some(Some(socket)) = self.sockets.get_mut(at) else { return None };
                    match read {
                        // Whose turn is over gives what it has read in its next.
                        Some(bytes) => socket.turns.took(bytes),
                        None => {
                            socket.turns.leave(id);
                            self.settle(link);
                        }
                    }
                }
            }
        }
        None
    }

    /// Takes a message for a peer, or leaves it.
    #[inline]
    pub(super) fn send(&mut self, at: usize, to: Option<&Bytes>, frames: &[Bytes]) -> Taken {
        loop {
            let Some(socket) = self.sockets.get_mut(at).and_then(Option::as_mut) else { return Taken::Unreachable };
            let is_tight = self.waiting >= self.waiting_limit;
            match socket.way(to, frames, is_tight) {
                Way::Now(peer, request) => {
                    let is_sent = self.put(peer, request.as_deref().unwrap_or(frames));
                    return if is_sent { Taken::Yes } else { Taken::Unreachable };
                }
                Way::Done(taken) => return taken,
                Way::Full(peer) => {
                    let link = peer.map(|peer| LinkId::of(peer.0));
                    match link.and_then(|link| find(&mut self.peers, link)) {
                        Some(peer) if peer.is_dirty => {
                            let link = peer.link;
                            self.flush_peer(link);
                        }
                        None if link.is_none() && !self.dirty.is_empty() => self.flush(),
                        _ => return Taken::Full,
                    }
                }
            }
        }
    }

    /// One pass: waits, and takes in what has come up.
    pub(super) fn turn(
        &mut self,
        others: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<bool, TransportError> {
        let closing = self.sockets.iter().flatten().filter_map(|socket| socket.closing).min();
        let closing = closing.map(|until| until.saturating_duration_since(Instant::now()));
        let now = (!self.again.is_empty()).then_some(Duration::ZERO);
        let is_other = self.reactor.wait(others, timeout.into_iter().chain(closing).chain(now).min())?;
        self.now = self.reactor.now();
        for link in std::mem::take(&mut self.again) {
            self.pump(link);
        }
        while let Some(news) = self.reactor.poll_news() {
            self.take(news);
        }
        self.decide();
        self.settle_closing();
        Ok(is_other)
    }

    fn take(&mut self, news: News) {
        match news {
            News::Accepted(listener, link) => {
                let at = self.listeners.get(&listener).copied();
                let Some((at, Some(socket))) = at.and_then(|at| Some((at, self.sockets.get(at)?.as_ref()))) else {
                    return self.reactor.close(link, false);
                };
                let endpoint = socket.bound_at(listener);
                self.begin(at, link, Side::Accepted, endpoint, None);
            }
            News::Dialled(dial, link) => {
                let at = self.dials.get(&dial).copied();
                let Some((at, Some(socket))) = at.and_then(|at| Some((at, self.sockets.get(at)?.as_ref()))) else {
                    return self.reactor.close(link, false);
                };
                let Some(dialled) = socket.dialled.iter().find(|dialled| dialled.id == dial) else { return };
                let (endpoint, lane) = (Arc::clone(&dialled.endpoint), dialled.lane);
                self.begin(at, link, Side::Dialled, endpoint, lane);
            }
            News::TurnedAway(listener, reason) => {
                let at = self.listeners.get(&listener).copied();
                if let Some(Some(socket)) = at.and_then(|at| self.sockets.get_mut(at)) {
                    let endpoint = socket.bound_at(listener);
                    socket.turn_away(&endpoint, reason);
                }
            }
            News::Readable(link) => self.pump(link),
            News::Writable(link) => {
                if find(&mut self.peers, link).is_some() {
                    self.flush_peer(link);
                }
            }
            News::Due(link) => self.due(link),
        }
    }

    /// A link is there: its handshake begins.
    fn begin(&mut self, at: usize, link: LinkId, side: Side, endpoint: Arc<str>, lane: Option<Dial>) {
        let Some(socket) = self.sockets.get(at).and_then(Option::as_ref) else { return };
        let connection = Connection::new(Arc::clone(&socket.chosen.settings), side, self.now);
        let peer = Peer {
            link,
            socket: at,
            connection,
            stage: Stage::Shaking,
            endpoint,
            lane,
            routing_id: None,
            user: None,
            is_dirty: false,
            counted: 0,
        };
        let index = link.index();
        if self.peers.len() <= index {
            self.peers.resize_with(index + 1, || None);
        }
        self.peers[index] = Some(peer);
        self.settle(link);
        if self.reactor.link(link).is_some_and(Link::is_readable) {
            self.pump(link);
        }
    }

    /// Lets a peer say what it has to say to the transport itself; what it has for the user waits for that.
    fn pump(&mut self, link: LinkId) {
        for _ in 0..PUMPED {
            let Some(peer) = find(&mut self.peers, link) else { return };
            let (id, at, stage) = (peer.id(), peer.socket, peer.stage);
            let mut socket = self.sockets.get_mut(at).and_then(Option::as_mut);
            if stage == Stage::Leaving {
                match self.reactor.read(link) {
                    Read::Some(_) => continue,
                    Read::Nothing => return,
                    Read::End => return self.forget(link),
                }
            }
            if stage == Stage::Ready
                && let Some(socket) = socket.as_mut().filter(|socket| socket.receives() && socket.closing.is_none())
            {
                socket.turns.enter(id);
                return;
            }
            match peer.connection.poll_event() {
                // Nobody receives here.
                Some(Event::Message(_)) => {}
                Some(event) => self.handle(link, event),
                None if self.read(link).is_some() => {}
                None => return self.settle(link),
            }
        }
        self.again.push(link);
        self.settle(link);
    }

    /// Reads once: how many bytes. `None` where there is nothing for now.
    #[inline]
    fn read(&mut self, link: LinkId) -> Option<usize> {
        let peer = find(&mut self.peers, link)?;
        if !self.reactor.link(link).is_some_and(Link::is_readable) {
            return None;
        }
        if let Some(mut landing) = peer.connection.landing() {
            let room = landing.remaining_mut();
            let read = self.reactor.read_to(link, &mut landing);
            let bytes = room - landing.remaining_mut();
            match read {
                Read::Some(()) => peer.connection.handle_landed(self.now),
                Read::Nothing => return None,
                Read::End => peer.connection.handle_eof(),
            }
            return Some(bytes);
        }
        match self.reactor.read(link) {
            Read::Some(bytes) => {
                let len = bytes.len();
                peer.connection.receive(self.now, bytes);
                Some(len)
            }
            Read::Nothing => None,
            Read::End => {
                peer.connection.handle_eof();
                Some(0)
            }
        }
    }

    fn due(&mut self, link: LinkId) {
        let Some(peer) = find(&mut self.peers, link) else { return };
        let is_unread = self.reactor.link(link).is_some_and(Link::is_readable);
        match peer.stage {
            Stage::Leaving => self.forget(link),
            Stage::Ready if is_unread => self.reactor.set_timer(link, Some(self.now + UNREAD)),
            Stage::Shaking | Stage::Ready => {
                peer.connection.handle_timeout(self.now);
                if peer.connection.is_over() {
                    self.drain(link);
                } else {
                    self.settle(link);
                }
            }
        }
    }

    /// Sees a connection that is over to its end.
    fn drain(&mut self, link: LinkId) {
        while let Some(peer) = find(&mut self.peers, link) {
            match peer.connection.poll_event() {
                Some(event @ Event::Failed(_)) => return self.handle(link, event),
                Some(_) => {}
                None => return,
            }
        }
    }

    fn handle(&mut self, link: LinkId, event: Event) {
        match event {
            Event::Authenticate(key) => {
                let host = self.reactor.link(link).and_then(|link| link.host);
                match (&self.admission, find(&mut self.peers, link)) {
                    (Some(admission), _) => admission.ask(link.number(), host, &key),
                    (None, Some(peer)) => peer.connection.allow(None),
                    (None, None) => {}
                }
            }
            Event::Ready(ready) => self.admit(link, &ready),
            Event::Failed(failure) => self.fail(link, &failure),
            Event::Message(_) => {}
        }
    }

    /// Takes what was decided about clients.
    fn decide(&mut self) {
        let Some(admission) = self.admission.clone() else { return };
        while let Some((number, user)) = admission.poll() {
            let link = LinkId::of(number);
            let Some(peer) = find(&mut self.peers, link) else { continue };
            match user {
                Some(user) => peer.connection.allow(Some(user)),
                None => peer.connection.deny(),
            }
            self.pump(link);
        }
    }

    fn admit(&mut self, link: LinkId, ready: &Ready) {
        let Some(peer) = find(&mut self.peers, link) else { return };
        let at = peer.socket;
        let Some(socket) = self.sockets.get_mut(at).and_then(Option::as_mut) else { return };
        let host = self.reactor.link(link).and_then(|link| link.host);
        let admitted = match socket.admit(peer.id(), peer.lane, ready, host) {
            Ok(admitted) => admitted,
            Err(reason) => return peer.connection.refuse(reason),
        };
        peer.stage = Stage::Ready;
        peer.user.clone_from(&ready.user);
        peer.connection.handle_reading(self.now, socket.is_reading);
        let address = self.reactor.link(link).and_then(|link| link.address.as_deref().map(str::to_owned));
        socket.events.push_back(SocketEvent::Connected(Remote { endpoint: peer.endpoint.to_string(), address }));
        self.reactor.succeeded(link);
        if let Some(admitted) = admitted {
            peer.routing_id = Some(admitted.routing_id);
            if let Some(before) = admitted.replaced.map(|before| LinkId::of(before.0))
                && let Some(peer) = find(&mut self.peers, before)
            {
                peer.connection.refuse(Reason::HandedOver);
                self.drain(before);
            }
        }
        self.unload(at);
    }

    fn fail(&mut self, link: LinkId, failure: &Failure) {
        // It may tell the peer why.
        self.flush_peer(link);
        let address = self.reactor.link(link).and_then(|link| link.address.as_deref().map(str::to_owned));
        let Some(peer) = self.peers.get_mut(link.index()).and_then(Option::take) else { return };
        self.waiting -= peer.counted;
        let is_dialled = self.reactor.link(link).is_some_and(Link::is_dialled);
        self.reactor.close(link, is_final(failure.reason));
        let Some(socket) = self.sockets.get_mut(peer.socket).and_then(Option::as_mut) else { return };
        socket.disconnected(peer.id());
        let endpoint = peer.endpoint.to_string();
        let is_end = peer.stage == Stage::Ready && matches!(failure.reason, Reason::HungUp | Reason::MessageCut);
        if !is_end {
            let words = refusal(failure, is_dialled, socket.chosen.settings.security.is_curve());
            let reason = address.as_ref().map_or_else(|| words.clone(), |address| format!("{address}: {words}"));
            let endpoint = endpoint.clone();
            socket.events.push_back(SocketEvent::HandshakeFailed { endpoint, reason });
            self.failures.count(failure.reason);
        }
        if peer.stage == Stage::Ready {
            socket.events.push_back(SocketEvent::Disconnected(Remote { endpoint, address }));
        }
    }

    /// Sends a message on a connection.
    #[inline]
    fn put(&mut self, id: ConnectionId, frames: &[Bytes]) -> bool {
        let link = LinkId::of(id.0);
        let Some(peer) = find(&mut self.peers, link) else { return false };
        let is_sent = peer.connection.send(frames);
        peer.count(&mut self.waiting);
        if !std::mem::replace(&mut peer.is_dirty, true) {
            self.dirty.push(link);
        }
        is_sent
    }

    /// After something has happened on a connection: what it has to say is to be written, and it may have another time-out.
    fn settle(&mut self, link: LinkId) {
        let Some(peer) = find(&mut self.peers, link) else { return };
        if peer.connection.backlog().bytes > 0 && !std::mem::replace(&mut peer.is_dirty, true) {
            self.dirty.push(link);
        }
        self.reactor.set_timer(link, peer.connection.poll_timeout());
    }

    /// Writes what waits for peers.
    pub(super) fn flush(&mut self) {
        while let Some(link) = self.dirty.pop() {
            self.flush_peer(link);
        }
    }

    /// Writes what waits for a peer, as far as the system takes it.
    fn flush_peer(&mut self, link: LinkId) {
        let Some(peer) = find(&mut self.peers, link) else { return };
        peer.is_dirty = false;
        while self.reactor.link(link).is_some_and(Link::is_writable) {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = peer.connection.slices(&mut pieces);
            if count == 0 {
                break;
            }
            // Where nobody is left to read it, the end of the link tells so as well.
            let Some(written) = self.reactor.write(link, &pieces[..count]) else { break };
            peer.connection.handle_written(written);
        }
        peer.count(&mut self.waiting);
        let (backlog, stage, at) = (peer.connection.backlog(), peer.stage, peer.socket);
        match stage {
            Stage::Shaking => {}
            Stage::Leaving => {
                if backlog.bytes == 0 {
                    self.reactor.end_writing(link);
                    self.reactor.set_timer(link, Some(self.reactor.now() + PARTING));
                }
            }
            Stage::Ready => {
                let id = peer.id();
                if backlog.bytes == 0 && self.reactor.len() > FEW {
                    peer.connection.shrink();
                }
                if let Some(Some(socket)) = self.sockets.get_mut(at) {
                    socket.handle_backlog(id, backlog);
                }
                self.unload(at);
            }
        }
    }

    /// Sends messages that were held, as far as they may go now.
    fn unload(&mut self, at: usize) {
        while let Some(Some(socket)) = self.sockets.get_mut(at)
            && let Some((peer, frames)) = socket.poll_send()
        {
            self.put(peer, &frames);
        }
    }

    /// Closes a socket, which may go on sending for so long.
    pub(super) fn close(&mut self, at: usize, linger: Duration) {
        let Some(socket) = self.sockets.get_mut(at).and_then(Option::as_mut) else { return };
        for (_, id) in socket.bound.drain(..) {
            self.listeners.remove(&id);
            self.reactor.unlisten(id);
        }
        socket.closing = Some(Instant::now() + linger);
        self.flush();
        self.settle_closing();
    }

    /// Ends the closed sockets that have nothing left to send, or no time.
    fn settle_closing(&mut self) {
        for at in 0..self.sockets.len() {
            let Some(socket) = self.sockets[at].as_mut() else { continue };
            let Some(until) = socket.closing else { continue };
            let now = Instant::now();
            if socket.holds() && now < until {
                continue;
            }
            for Dialled { id, .. } in std::mem::take(&mut socket.dialled) {
                self.dials.remove(&id);
                self.reactor.hang_up(id);
            }
            self.sockets[at] = None;
            let links: Vec<_> =
                self.peers.iter().flatten().filter(|peer| peer.socket == at).map(|peer| peer.link).collect();
            for link in links {
                self.part(link, until.saturating_duration_since(now));
            }
        }
    }

    /// Lets a peer go: what waits for it is written if that takes no longer than this.
    fn part(&mut self, link: LinkId, linger: Duration) {
        let Some(peer) = find(&mut self.peers, link) else { return self.reactor.close(link, false) };
        if peer.stage == Stage::Leaving {
            return;
        }
        let (id, stage, at) = (peer.id(), peer.stage, peer.socket);
        if let Some(Some(socket)) = self.sockets.get_mut(at) {
            let held = socket.disconnected(id);
            if stage == Stage::Ready {
                let address = self.reactor.link(link).and_then(|link| link.address.as_deref().map(str::to_owned));
                let remote = Remote { endpoint: peer.endpoint.to_string(), address };
                socket.events.push_back(SocketEvent::Disconnected(remote));
            }
            for frames in held {
                // One that is not ready has nothing held.
                let _ = peer.connection.send(&frames);
            }
        }
        if stage != Stage::Ready || linger.is_zero() {
            return self.forget(link);
        }
        peer.stage = Stage::Leaving;
        self.leaving += 1;
        self.reactor.set_timer(link, Some(self.reactor.now() + linger));
        self.flush_peer(link);
        if self.reactor.link(link).is_some_and(Link::is_readable) {
            self.pump(link);
        }
    }

    /// Ends the link of a peer that has left.
    fn forget(&mut self, link: LinkId) {
        if let Some(peer) = self.peers.get_mut(link.index()).and_then(Option::take) {
            self.waiting -= peer.counted;
            self.leaving -= usize::from(peer.stage == Stage::Leaving);
        }
        self.reactor.close(link, false);
    }

    /// Whether there is anything left to do once all sockets are closed.
    pub(super) fn lingers(&self) -> bool {
        self.leaving > 0 || self.sockets.iter().any(Option::is_some)
    }

    /// Does it.
    pub(super) fn linger(mut self) {
        while self.lingers() && self.turn(&[], None).is_ok() {
            self.flush();
        }
    }
}

#[inline]
fn find(peers: &mut [Option<Peer>], link: LinkId) -> Option<&mut Peer> {
    peers.get_mut(link.index())?.as_mut().filter(|peer| peer.link == link)
}

/// Whether a peer that ended so is not likely to be another soon.
fn is_final(reason: Reason) -> bool {
    !matches!(
        reason,
        Reason::HungUp
            | Reason::HandshakeCut
            | Reason::MessageCut
            | Reason::HandshakeTimeout
            | Reason::HeartbeatTimeout
            | Reason::TtlExpired
            | Reason::HandedOver
    )
}

/// Why there is no connection, and what to look at.
fn refusal(failure: &Failure, is_dialled: bool, is_curve: bool) -> String {
    match failure.reason {
        Reason::HandshakeCut if is_dialled && is_curve => {
            "the peer disconnected during the handshake: is the server key \
            the one of this server, is it encrypted, and does it take another connection?"
                .to_owned()
        }
        Reason::HandshakeCut => "the peer disconnected during the handshake: is only one side encrypted, or are there \
            too many connections?"
            .to_owned(),
        Reason::OtherMechanism => format!("{failure}: is only one side encrypted?"),
        Reason::BadHello | Reason::BadInitiate => format!("the keys of the two sides do not fit together: {failure}"),
        Reason::Denied => "its key is not allowed".to_owned(),
        Reason::Refused if is_dialled && failure.detail.as_deref() == Some("400") => {
            "the peer does not allow this key".to_owned()
        }
        _ => failure.to_string(),
    }
}
