//! Events of links, and their effects.

use std::sync::Arc;
use std::time::Duration;

use bytes::BufMut;
use trunkline_wire::SocketEvent;
use trunkline_zmtp::patterns::PipeId;
use trunkline_zmtp::{Connection, Event, Failure, Ready, Reason, Side};

use super::refusal::{is_final, refusal};
use super::{Core, PARTING, find, remote};
use crate::reactor::{Link, LinkEvent, LinkId, ROOM, Read, SLAB};
use crate::zmtp::admission::Decision;
use crate::zmtp::peer::{Peer, Stage};

/// Events handled of a peer that the role's user does not read, before others have their turn.
const PUMPED: usize = 64;

/// What is read from all peers that have data, before it is handled: the more peers, the less from each.
const READ: usize = 32 << 20;

/// How long a peer with unread data is not considered silent.
const UNREAD: Duration = Duration::from_millis(20);

/// The same for a peer whose reading is paused.
const UNWANTED: Duration = Duration::from_secs(1);

impl Core {
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
            user: None,
            is_dirty: false,
            counted: 0,
            unfinished: 0,
            unfinished_since: self.now,
            is_again: false,
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
                None => {
                    self.mark(link);
                    if self.read(link).is_none() {
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
                if is_left {
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
    pub(in crate::zmtp) fn relieve(&mut self) {
        while self.unfinished > self.unfinished_limit {
            let begun = self.peers.iter().flatten().filter(|peer| peer.unfinished > 0).count();
            let (now, share) = (self.now, self.unfinished / (2 * begun.max(1)));
            let large = self.peers.iter_mut().flatten().filter(|peer| peer.unfinished > 0 && peer.unfinished >= share);
            let Some(peer) = large.min_by_key(|peer| peer.pace(now)) else { return };
            let link = peer.link;
            peer.connection.refuse(Reason::Crowded);
            self.drain(link);
        }
    }

    /// Completes the end of a connection.
    fn drain(&mut self, link: LinkId) {
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
            match decision {
                Decision::Allowed(user) => peer.connection.allow(Some(user)),
                Decision::Denied => peer.connection.deny(),
                Decision::Open => peer.connection.defer(),
            }
            self.pump(link);
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
