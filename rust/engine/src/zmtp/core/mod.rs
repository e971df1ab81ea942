//! All connections of one role.

mod events;
mod leaving;
mod refusal;

use std::collections::HashMap;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use foldhash::fast::RandomState;
use slab::Slab;
use trunkline_wire::{FRAME_COST, Nanos, Remote, SocketEvent, SocketKind, SocketOptions};
use trunkline_zmtp::curve::Crypto;
use trunkline_zmtp::patterns::ConnectionId;
use trunkline_zmtp::{Event, Tally};

use crate::reactor::{Address, DialId, Link, LinkId, ListenerId, Reactor, copied, failed};
use crate::transport::{Interest, Received, Taken, TransportError};
use crate::zmtp::ZmtpSettings;
use crate::zmtp::admission::Admission;
use crate::zmtp::options::choose;
use crate::zmtp::peer::{Peer, Stage};
use crate::zmtp::socket::{Dialled, Socket, Way};

/// Pieces written with one call.
const PIECES: usize = 64;

/// How long a peer may take to end its side after all was written, and then how often its system is checked: closing
/// the link would lose what is still to be sent.
const PARTING: Duration = Duration::from_millis(50);

/// What may be pending for each peer even if too much is pending for all.
const SHARE: usize = 64 << 10;

/// Reads without a message before others have their turn.
const READS: usize = 32;

/// Peers that may each keep the memory of their last write.
const FEW: usize = 256;

/// How long a peer may take its pending data when its endpoint is disconnected.
const HANGING_UP: Duration = Duration::from_secs(5);

/// The connections of one role, and its sockets.
pub(in crate::zmtp) struct Core {
    reactor: Reactor,
    sockets: Slab<Socket>,
    /// By the numbers of their links.
    peers: Vec<Option<Peer>>,
    listeners: HashMap<ListenerId, usize, RandomState>,
    dials: HashMap<DialId, usize, RandomState>,
    /// Peers with something to write.
    dirty: Vec<LinkId>,
    /// Peers that may have more to handle than their turn allowed.
    again: Vec<LinkId>,
    /// The number of peers that are leaving.
    leaving: usize,
    /// Whether something was given up that should have been sent before the end.
    is_unsent: bool,
    /// Bytes pending for all peers.
    waiting: usize,
    /// How much may be pending for all peers, here and in the engine's outboxes, and so for one.
    outbox_bytes: usize,
    /// Bytes held of incomplete messages of all peers, and their limit.
    unfinished: usize,
    unfinished_limit: usize,
    /// Connections that were given up, except those that their peers ended.
    failures: Tally,
    now: Nanos,
    crypto: Option<Arc<dyn Crypto>>,
    admission: Option<Arc<Admission>>,
}

impl Core {
    pub(in crate::zmtp) fn new(settings: ZmtpSettings) -> Result<Self, TransportError> {
        let ZmtpSettings { max_connections, max_connections_per_host, outbox_bytes, inbox_bytes, crypto, admission } =
            settings;
        let reactor = Reactor::new(max_connections, max_connections_per_host)?;
        if let Some(admission) = &admission {
            admission.wake_by(reactor.waker());
        }
        Ok(Self {
            now: reactor.now(),
            reactor,
            sockets: Slab::new(),
            peers: vec![],
            listeners: HashMap::default(),
            dials: HashMap::default(),
            dirty: vec![],
            again: vec![],
            leaving: 0,
            is_unsent: false,
            waiting: 0,
            outbox_bytes,
            unfinished: 0,
            unfinished_limit: inbox_bytes,
            failures: Tally::default(),
            crypto,
            admission,
        })
    }

    pub(in crate::zmtp) fn turned_away(&self) -> u64 {
        self.reactor.turned_away()
    }

    pub(in crate::zmtp) fn failures(&self) -> &Tally {
        &self.failures
    }

    /// Bytes pending for all peers.
    pub(in crate::zmtp) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(in crate::zmtp) fn open(&mut self, kind: SocketKind, options: &SocketOptions) -> Result<usize, TransportError> {
        let mut chosen = choose(kind, options, self.crypto.as_ref())?;
        chosen.high_water.bytes = chosen.high_water.bytes.min(self.outbox_bytes);
        Ok(self.sockets.insert(Socket::new(kind, chosen, options.hosts, self.outbox_bytes)))
    }

    pub(in crate::zmtp) fn bind(&mut self, at: usize, endpoint: &str) -> Result<String, TransportError> {
        let Some(socket) = self.sockets.get_mut(at) else {
            return Err(TransportError::Terminated);
        };
        let address = Address::to_listen(endpoint, socket.chosen.stream.ipv6).map_err(|error| failed(&error))?;
        let (id, real) = self.reactor.listen(&address, socket.chosen.stream)?;
        socket.bound.push((Arc::from(real.as_str()), id));
        self.listeners.insert(id, at);
        Ok(real)
    }

    pub(in crate::zmtp) fn connect(&mut self, at: usize, endpoint: &str) -> Result<(), TransportError> {
        let Some(socket) = self.sockets.get_mut(at) else {
            return Err(TransportError::Terminated);
        };
        let address = Address::to_dial(endpoint).map_err(|error| failed(&error))?;
        let id = self.reactor.dial(address, socket.chosen.stream, socket.chosen.backoff);
        let pipe = socket.dial();
        socket.dialled.push(Dialled { endpoint: Arc::from(endpoint), id, pipe });
        self.dials.insert(id, at);
        Ok(())
    }

    pub(in crate::zmtp) fn disconnect(&mut self, at: usize, endpoint: &str) -> Result<(), TransportError> {
        let unknown = || failed(&nix::errno::Errno::ENOENT.into());
        let socket = self.sockets.get_mut(at).ok_or(TransportError::Terminated)?;
        if let Some(found) = socket.bound.iter().position(|(bound, _)| **bound == *endpoint) {
            let (_, id) = socket.bound.swap_remove(found);
            self.listeners.remove(&id);
            self.reactor.unlisten(id);
            return Ok(());
        }
        let found = socket.dialled.iter().position(|dialled| *dialled.endpoint == *endpoint).ok_or_else(unknown)?;
        let Dialled { id, pipe, .. } = socket.dialled.swap_remove(found);
        self.dials.remove(&id);
        let link = self.reactor.hang_up(id);
        if let Some(pipe) = pipe {
            socket.hang_up(pipe);
        }
        if let Some(link) = link {
            self.part(link, HANGING_UP);
        }
        Ok(())
    }

    /// The next event of a socket's connections.
    pub(in crate::zmtp) fn poll_monitor(&mut self, at: usize) -> Option<SocketEvent> {
        self.sockets.get_mut(at)?.events.pop_front()
    }

    /// The address of the last message's sender.
    pub(in crate::zmtp) fn address(&self, at: usize) -> Option<Box<str>> {
        let link = self.sockets.get(at)?.last?;
        self.reactor.link(link)?.address.as_deref().map(Into::into)
    }

    /// Notes what a socket can do; gives whether that is anything.
    pub(in crate::zmtp) fn ready(&mut self, interest: &mut Interest<'_, crate::zmtp::Socket>) -> bool {
        let Some(socket) = self.sockets.get_mut(interest.socket.0) else { return false };
        interest.readable = interest.read && socket.turns.first().is_some();
        interest.writable = interest.write && socket.is_writable();
        interest.monitored = !socket.events.is_empty();
        interest.readable || interest.writable || interest.monitored || socket.has_drained()
    }

    /// Starts or pauses the reading of a socket. Its peers learn that when they are due: there may be many of them.
    pub(in crate::zmtp) fn set_reading(&mut self, at: usize, is_reading: bool) {
        if let Some(socket) = self.sockets.get_mut(at).filter(|socket| socket.receives()) {
            socket.is_reading = is_reading;
        }
    }

    /// The next message of a socket.
    #[inline]
    pub(in crate::zmtp) fn receive(&mut self, at: usize) -> Option<Received> {
        // A long message is not waited for.
        let mut reads = 0;
        while reads < READS {
            let socket = self.sockets.get_mut(at)?;
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
                    socket.turns.took(frames.len() * FRAME_COST);
                    let host = if socket.hosts { self.reactor.link(link).and_then(|link| link.host) } else { None };
                    if let Some(received) = socket.received(peer, host, frames) {
                        return Some(received);
                    }
                }
                Some(event) => self.handle(link, event),
                None => {
                    // A PONG is sent however much is still to come.
                    self.mark(link);
                    let read = self.read(link);
                    reads += 1;
                    let socket = self.sockets.get_mut(at)?;
                    if let Some(bytes) = read {
                        // A peer whose turn is over gives what it has read in its next turn.
                        socket.turns.took(bytes);
                    } else {
                        socket.turns.leave(id);
                        self.settle(link);
                    }
                }
            }
        }
        None
    }

    /// Takes a message for a peer, or refuses it.
    #[inline]
    pub(in crate::zmtp) fn send(&mut self, at: usize, to: Option<&Bytes>, frames: &[Bytes]) -> Taken {
        loop {
            let Some(socket) = self.sockets.get_mut(at) else { return Taken::Unreachable };
            // The engine's outboxes have the other half.
            let limit = self.outbox_bytes / 2;
            let share = (self.waiting >= limit).then(|| SHARE.max(limit / self.reactor.len().max(1)));
            match socket.way(to, frames, share) {
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
                        _ => {
                            if let Some(socket) = self.sockets.get_mut(at) {
                                socket.handle_refused(to);
                            }
                            return Taken::Full;
                        }
                    }
                }
            }
        }
    }

    /// The next peer of a socket that refused a message, and has room again or is gone.
    pub(in crate::zmtp) fn poll_drained(&mut self, at: usize) -> Option<Bytes> {
        self.sockets.get_mut(at)?.poll_drained()
    }

    /// One pass: waits, and handles the events.
    pub(in crate::zmtp) fn turn(
        &mut self,
        others: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<bool, TransportError> {
        let closing = self.sockets.iter().filter_map(|(_, socket)| socket.closing).min();
        let closing = closing.map(|until| until.saturating_duration_since(Instant::now()));
        let now = (!self.again.is_empty()).then_some(Duration::ZERO);
        let is_other = self.reactor.wait(others, timeout.into_iter().chain(closing).chain(now).min())?;
        self.now = self.reactor.now();
        for link in std::mem::take(&mut self.again) {
            if let Some(peer) = find(&mut self.peers, link) {
                peer.is_again = false;
            }
            self.pump(link);
        }
        while let Some(event) = self.reactor.poll_event() {
            self.take(event);
        }
        self.decide();
        Ok(is_other)
    }

    /// Sends a message on a connection.
    #[inline]
    fn put(&mut self, id: ConnectionId, frames: &[Bytes]) -> bool {
        let link = LinkId::of(id.0);
        let Some(peer) = find(&mut self.peers, link) else { return false };
        let is_sent = peer.connection.send(frames);
        peer.count(&mut self.waiting);
        peer.write_soon(&mut self.dirty);
        is_sent
    }

    /// Removes a peer, and subtracts what it holds from the counts.
    fn remove(&mut self, link: LinkId) -> Option<Peer> {
        let peer = self.peers.get_mut(link.index())?.take()?;
        self.waiting -= peer.counted;
        self.unfinished -= peer.unfinished;
        self.leaving -= usize::from(matches!(peer.stage, Stage::Leaving(_)));
        Some(peer)
    }

    /// Writes a connection's data soon, and counts what it holds.
    fn mark(&mut self, link: LinkId) {
        let Some(peer) = find(&mut self.peers, link) else { return };
        peer.count_unfinished(self.now, &mut self.unfinished);
        if peer.connection.backlog().bytes > 0 {
            peer.write_soon(&mut self.dirty);
        }
    }

    /// After an event of a connection: writes its data soon, and renews its time-out.
    fn settle(&mut self, link: LinkId) {
        self.mark(link);
        let Some(peer) = find(&mut self.peers, link) else { return };
        self.reactor.set_timer(link, peer.connection.poll_timeout());
    }

    /// Writes pending data of peers, which may be the last of a closed socket.
    pub(in crate::zmtp) fn flush(&mut self) {
        while let Some(link) = self.dirty.pop() {
            self.flush_peer(link);
        }
        self.settle_closing();
    }

    /// Writes a peer's pending data, as far as the system takes it.
    fn flush_peer(&mut self, link: LinkId) {
        let Some(peer) = find(&mut self.peers, link) else { return };
        peer.is_dirty = false;
        while self.reactor.link(link).is_some_and(Link::is_writable) {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = peer.connection.slices(&mut pieces);
            if count == 0 {
                break;
            }
            // If the peer has closed the link, its end is reported as well.
            let Some(written) = self.reactor.write(link, &pieces[..count]) else { break };
            peer.connection.handle_written(written);
        }
        peer.count(&mut self.waiting);
        let (backlog, stage, at) = (peer.connection.backlog(), peer.stage, peer.socket);
        match stage {
            Stage::Shaking => {}
            Stage::Leaving(until) => {
                if backlog.bytes == 0 {
                    self.reactor.end_writing(link);
                    self.reactor.set_timer(link, Some(until.min(self.reactor.now() + PARTING)));
                }
            }
            Stage::Ready => {
                let id = peer.id();
                if backlog.bytes == 0 && self.reactor.len() > FEW {
                    peer.connection.shrink();
                }
                if let Some(socket) = self.sockets.get_mut(at) {
                    socket.handle_backlog(id, backlog);
                }
                self.unload(at);
            }
        }
    }

    /// Sends pending messages, as far as there is room now.
    fn unload(&mut self, at: usize) {
        while let Some(socket) = self.sockets.get_mut(at)
            && let Some((peer, frames)) = socket.poll_send()
        {
            self.put(peer, &frames);
        }
    }
}

/// The peer of a connection, as events name it.
fn remote(reactor: &Reactor, peer: &Peer) -> Remote {
    let address = reactor.link(peer.link).and_then(|link| link.address.as_deref().map(str::to_owned));
    Remote { endpoint: peer.endpoint.to_string(), address }
}

#[inline]
fn find(peers: &mut [Option<Peer>], link: LinkId) -> Option<&mut Peer> {
    peers.get_mut(link.index())?.as_mut().filter(|peer| peer.link == link)
}
