//! Events of links, and their effects.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use trunkline_wire::SocketEvent;
use trunkline_zmtp::patterns::PipeId;
use trunkline_zmtp::{Connection, Event, Failure, Ready, Reason, Side};

use super::refusal::{is_final, refusal};
use super::{PARTING, ZmtpTransport, find, remote};
use crate::reactor::{Link, LinkEvent, LinkId, ROOM, Read, SLAB};
use crate::transport::Transport as _;
use crate::zmtp::admission::{Admission, Decision};
use crate::zmtp::peer::{Peer, Stage};

/// Bytes of handshakes that have not come in whole, of all peers: beyond it the oldest is given up.
const SHAKING: usize = 16 << 20;

/// How long it is measured how fast a peer reads; one that would need so long for what is pending may be hung up on, to
/// make room for others.
const SLOW: Duration = Duration::from_secs(5);
const FINISHED: Duration = Duration::from_secs(60);

/// Clients that are asked about again at a time.
const ASKED_AGAIN: usize = 8;

/// Events handled of a peer that the role's user does not read, before others have their turn.
const PUMPED: usize = 64;

/// What is read from all peers that have data, before it is handled: the more peers, the less from each.
const READ: usize = 32 << 20;

/// How long a peer with unread data is not considered silent.
const UNREAD: Duration = Duration::from_millis(20);

/// The same for a peer whose reading is paused.
const UNWANTED: Duration = Duration::from_secs(1);

impl ZmtpTransport {
    pub(super) fn take(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Accepted(listener, link) => {
                let at = self.listeners.get(&listener).copied();
                let Some((at, socket)) = at.and_then(|at| Some((at, self.sockets.get(at)?))) else {
                    return self.reactor.close(link, false);
                };
                let endpoint = socket.bound_at(listener);
                self.begin(at, link, Side::Accepted, endpoint, None);
            }
            LinkEvent::Dialled(dial, link) => {
                let at = self.dials.get(&dial).copied();
                let Some((at, socket)) = at.and_then(|at| Some((at, self.sockets.get(at)?))) else {
                    return self.reactor.close(link, false);
                };
                let Some(dialled) = socket.dialled.iter().find(|dialled| dialled.id == dial) else {
                    return self.reactor.close(link, false);
                };
                let (endpoint, pipe) = (Arc::clone(&dialled.endpoint), dialled.pipe);
                self.begin(at, link, Side::Dialled, endpoint, pipe);
            }
            LinkEvent::Unreachable(dial, reason) => {
                let at = self.dials.get(&dial).copied();
                let Some(socket) = at.and_then(|at| self.sockets.get_mut(at)) else { return };
                let Some(dialled) = socket.dialled.iter().find(|dialled| dialled.id == dial) else { return };
                let endpoint = dialled.endpoint.to_string();
                socket.events.push_back(SocketEvent::Unreachable { endpoint, reason });
                self.failures.count(Reason::Unreachable);
            }
            LinkEvent::TurnedAway(listener, reason) => {
                let at = self.listeners.get(&listener).copied();
                if let Some(socket) = at.and_then(|at| self.sockets.get_mut(at)) {
                    let endpoint = socket.bound_at(listener);
                    socket.turn_away(&endpoint, reason);
                }
            }
            LinkEvent::Readable(link) => self.pump(link),
            LinkEvent::Writable(link) => {
                if find(&mut self.peers, link).is_some() {
                    self.flush_peer(link);
                }
            }
            LinkEvent::Due(link) => self.due(link),
        }
    }

    /// A link is connected: its handshake begins.
    fn begin(&mut self, at: usize, link: LinkId, side: Side, endpoint: Arc<str>, pipe: Option<PipeId>) {
        let Some(socket) = self.sockets.get(at) else { return };
        let connection = Connection::new(Arc::clone(&socket.chosen.settings), side, self.now);
        let peer = Peer {
            link,
            socket: at,
            connection,
            stage: Stage::Shaking,
            endpoint,
            pipe,
            routing_id: None,
            key: None,
            user: None,
            is_dirty: false,
            held: 0,
            is_pending: false,
            pending_since: self.now,
            taken: 0,
            unfinished: 0,
            unfinished_message: 0,
            unfinished_since: self.now,
            is_again: false,
            is_asked_again: false,
            is_watched: false,
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

    /// Handles what a peer has for the transport itself; what it has for the user stays queued.
    pub(super) fn pump(&mut self, link: LinkId) {
        for _ in 0..PUMPED {
            let Some(peer) = find(&mut self.peers, link) else { return };
            let (id, at, stage) = (peer.id(), peer.socket, peer.stage);
            let mut socket = self.sockets.get_mut(at);
            if matches!(stage, Stage::Leaving(_)) {
                match self.reactor.read(link, ROOM) {
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
                // This socket does not receive.
                Some(Event::Message(_)) => {}
                Some(event) => self.handle(link, event),
                None if peer.connection.is_opening() => {}
                None => {
                    self.mark(link);
                    let is_read = self.read(link).is_none();
                    self.answer(link, is_read);
                    if is_read {
                        return self.settle(link);
                    }
                }
            }
        }
        if let Some(peer) = find(&mut self.peers, link) {
            peer.hear_again(&mut self.again);
            // A peer that leaves keeps the deadline it was given.
            if !matches!(peer.stage, Stage::Leaving(_)) {
                self.settle(link);
            }
        }
    }

    /// Reads once and gives the bytes read. `None` if there is nothing now.
    #[inline]
    pub(super) fn read(&mut self, link: LinkId) -> Option<usize> {
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
        let in_line = self.sockets.get(peer.socket).map_or(1, |socket| socket.turns.len().max(1));
        match self.reactor.read(link, (READ / in_line).clamp(ROOM, SLAB)) {
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
        let socket = self.sockets.get(peer.socket);
        let is_reading = socket.is_some_and(|socket| socket.is_reading);
        match peer.stage {
            Stage::Leaving(until) => {
                // If the link were closed now, unread data would make the system throw away what it has not sent.
                let is_left = peer.connection.backlog().bytes > 0
                    || self.reactor.link(link).is_some_and(|link| link.unacknowledged() > 0);
                if is_left && self.now < until {
                    return self.reactor.set_timer(link, Some(until.min(self.now + PARTING)));
                }
                // What the system has may still arrive.
                if peer.connection.backlog().bytes > 0 {
                    self.give_up();
                }
                self.forget(link);
            }
            Stage::Ready if is_unread && is_reading => self.reactor.set_timer(link, Some(self.now + UNREAD)),
            // A PING would cost a peer that has already closed what it has sent and we have not read; one that limits
            // our own silence needs it.
            Stage::Ready if is_unread && !socket.is_some_and(|socket| socket.chosen.settings.has_ttl()) => {
                peer.connection.handle_reading(self.now, false);
                self.reactor.set_timer(link, Some(self.now + UNWANTED));
            }
            Stage::Shaking | Stage::Ready => {
                // A peer that is not read may be silent.
                peer.connection.handle_reading(self.now, is_reading || peer.stage == Stage::Shaking);
                peer.connection.handle_timeout(self.now);
                if peer.connection.is_over() {
                    self.drain(link);
                } else {
                    self.settle(link);
                }
            }
        }
    }

    /// While all peers together hold too much of incomplete messages, hangs up on the peer whose message comes most
    /// slowly, of those that hold their share of it: a large message that makes progress outlives any number that were
    /// begun and left.
    pub(super) fn relieve(&mut self) {
        // What was pending for a peer may come no more: those that are unknown do not cost known ones anything.
        while self.shaking > SHAKING {
            let shaking =
                self.peers.iter_mut().flatten().filter(|peer| peer.stage == Stage::Shaking && peer.unfinished > 0);
            let Some(peer) = shaking.min_by_key(|peer| peer.unfinished_since) else { break };
            let link = peer.link;
            peer.connection.refuse(Reason::Crowded);
            self.drain(link);
        }
        while self.unfinished > self.unfinished_limit {
            let is_begun = |peer: &&mut Peer| peer.stage != Stage::Shaking && peer.unfinished > 0;
            let begun = self.peers.iter_mut().flatten().filter(is_begun).count();
            let (now, share) = (self.now, self.unfinished / (2 * begun.max(1)));
            let large = self.peers.iter_mut().flatten().filter(is_begun).filter(|peer| peer.unfinished >= share);
            let Some(peer) = large.min_by_key(|peer| peer.pace(now)) else { return };
            let link = peer.link;
            peer.connection.refuse(Reason::Crowded);
            self.drain(link);
        }
    }

    /// Retries messages that all peers together had no room for, once there is some. While there is none, and a peer
    /// that takes all it gets would wait for those that do not, hangs up on the slowest of them.
    pub(super) fn make_room(&mut self) {
        if self.barred.is_empty() {
            return;
        }
        let held = self.waiting();
        if held == 0 || held + self.budget.step() <= self.barred_at {
            for (at, to) in std::mem::take(&mut self.barred) {
                if let Some(socket) = self.sockets.get_mut(at) {
                    socket.handle_room(to);
                }
            }
            return;
        }
        let starves = |(at, to): &(usize, Option<Bytes>)| self.sockets.get(*at).is_some_and(|s| s.starves(to.as_ref()));
        if !self.barred.iter().any(starves) {
            return;
        }
        let (now, share) = (self.now, self.budget.share(self.reactor.len()));
        let slow = self.peers.iter_mut().flatten().filter(|peer| peer.stage == Stage::Ready && peer.is_pending);
        let slow = slow.filter_map(|peer| {
            let pace = peer.reading_pace(now, SLOW)?;
            let bytes = peer.connection.backlog().bytes;
            (bytes > share && bytes as u128 > pace * u128::from(FINISHED.as_secs())).then_some((pace, peer))
        });
        if let Some((_, peer)) = slow.min_by_key(|(pace, _)| *pace) {
            let link = peer.link;
            peer.connection.refuse(Reason::Unread);
            self.drain(link);
        }
    }

    /// Completes the end of a connection.
    pub(super) fn drain(&mut self, link: LinkId) {
        while let Some(peer) = find(&mut self.peers, link) {
            match peer.connection.poll_event() {
                Some(event @ Event::Failed(_)) => return self.handle(link, event),
                Some(_) => {}
                None => return,
            }
        }
    }

    pub(super) fn handle(&mut self, link: LinkId, event: Event) {
        match event {
            Event::Authenticate(key) => {
                if let Some(peer) = find(&mut self.peers, link) {
                    peer.key = Some(key);
                }
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

    /// Takes the decisions about clients.
    pub(super) fn decide(&mut self) {
        let Some(admission) = self.admission.clone() else { return };
        while let Some((number, decision)) = admission.poll() {
            let link = LinkId::of(number);
            let Some(peer) = find(&mut self.peers, link) else { continue };
            if std::mem::take(&mut peer.is_asked_again) {
                self.asked_again -= 1;
                match decision {
                    Decision::Allowed(user) if peer.user.as_ref() == Some(&user) => {}
                    Decision::Open => {}
                    Decision::Allowed(_) | Decision::Denied => self.revoke(link),
                }
                continue;
            }
            // The list may have changed since.
            let is_listed = |key| admission.listed().is_none_or(|listed| listed.contains_key(key));
            match decision {
                Decision::Allowed(user) if peer.key.as_ref().is_some_and(is_listed) => {
                    peer.connection.allow(Some(user));
                }
                Decision::Allowed(_) | Decision::Denied => peer.connection.deny(),
                Decision::Open => peer.connection.defer(),
            }
            self.pump(link);
        }
        if admission.take_change() {
            self.decide_again(&admission);
        }
        while self.asked_again < ASKED_AGAIN
            && let Some(link) = self.again_to_ask.pop()
        {
            let host = self.reactor.link(link).and_then(|link| link.host);
            if let Some(peer) = find(&mut self.peers, link)
                && let Some(key) = peer.key
            {
                peer.is_asked_again = true;
                self.asked_again += 1;
                admission.ask(link.number(), host, &key);
            }
        }
    }

    /// Cuts off the clients that a new list does not have, or asks about each of them again.
    fn decide_again(&mut self, admission: &Admission) {
        let clients = self.peers.iter().flatten().filter(|peer| peer.stage == Stage::Ready && peer.key.is_some());
        let Some(listed) = admission.listed() else {
            self.again_to_ask = clients.filter(|peer| !peer.is_asked_again).map(|peer| peer.link).collect();
            return;
        };
        let is_user = |peer: &&Peer| {
            let user = peer.key.as_ref().and_then(|key| listed.get(key));
            user.map(String::as_bytes) == peer.user.as_deref()
        };
        let revoked: Vec<_> = clients.filter(|peer| !is_user(peer)).map(|peer| peer.link).collect();
        for link in revoked {
            self.revoke(link);
        }
    }

    /// Cuts off a client that is not allowed any more, at least not as the same user.
    fn revoke(&mut self, link: LinkId) {
        if let Some(peer) = find(&mut self.peers, link) {
            peer.connection.refuse(Reason::Revoked);
            self.drain(link);
        }
    }

    fn admit(&mut self, link: LinkId, ready: &Ready) {
        let Some(peer) = find(&mut self.peers, link) else { return };
        let at = peer.socket;
        let Some(socket) = self.sockets.get_mut(at) else { return };
        let host = self.reactor.link(link).and_then(|link| link.host);
        let admitted = match socket.admit(peer.id(), peer.pipe, ready, host) {
            Ok(admitted) => admitted,
            Err(reason) => return peer.connection.refuse(reason),
        };
        self.shaking -= std::mem::take(&mut peer.unfinished);
        peer.stage = Stage::Ready;
        peer.user.clone_from(&ready.user);
        peer.connection.handle_reading(self.now, socket.is_reading);
        socket.events.push_back(SocketEvent::Connected(remote(&self.reactor, peer)));
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
        self.settle(link);
        self.unload(at);
    }

    fn fail(&mut self, link: LinkId, failure: &Failure) {
        let Some(peer) = find(&mut self.peers, link) else { return };
        let id = peer.id();
        // Before anything else is written: pending messages are for the next connection.
        if let Some(socket) = self.sockets.get_mut(peer.socket) {
            socket.disconnected(id);
        }
        // It may hold the reason for the peer.
        self.flush_peer(link);
        let Some(peer) = self.remove(link) else { return };
        let remote = remote(&self.reactor, &peer);
        let is_dialled = self.reactor.link(link).is_some_and(Link::is_dialled);
        self.reactor.close(link, is_final(failure.reason));
        let Some(socket) = self.sockets.get_mut(peer.socket) else { return };
        let is_end = peer.stage == Stage::Ready && matches!(failure.reason, Reason::HungUp | Reason::MessageCut);
        if !is_end {
            let words = refusal(failure, is_dialled, socket.chosen.settings.security.is_curve());
            let reason = match &remote.address {
                Some(address) => format!("{address}: {words}"),
                None => words,
            };
            socket.events.push_back(SocketEvent::HandshakeFailed { endpoint: remote.endpoint.clone(), reason });
            self.failures.count(failure.reason);
        }
        if peer.stage == Stage::Ready {
            socket.events.push_back(SocketEvent::Disconnected(remote));
        }
    }
}
