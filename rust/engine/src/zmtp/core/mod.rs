//! All connections of one role, as a transport.

mod budget;
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
use trunkline_wire::{FRAME_COST, Frames, Nanos, Remote, SocketEvent, SocketKind, SocketOptions};
use trunkline_zmtp::curve::Crypto;
use trunkline_zmtp::patterns::ConnectionId;
use trunkline_zmtp::{Event, Reason, Tally};

use self::budget::Budget;
pub(in crate::zmtp) use self::budget::Share;
use crate::reactor::{Address, DialId, Link, LinkId, ListenerId, Reactor, copied, failed};
use crate::transport::{Capabilities, Ending, Interest, Received, Taken, Transport, TransportError};
use crate::zmtp::ZmtpSettings;
use crate::zmtp::admission::Admission;
use crate::zmtp::options::choose;
use crate::zmtp::peer::{Peer, Pending, Stage};
use crate::zmtp::socket::{Dialled, Socket, Way};

/// Pieces written with one call.
const PIECES: usize = 64;

/// How long a peer may take to end its side after all was written, and then how often its system is checked: closing
/// the link would lose what is still to be sent.
const PARTING: Duration = Duration::from_millis(50);

/// Bytes written to a peer before others have their turn.
const WRITES: usize = 8 << 20;

/// How often peers that read slowly are looked for, while messages wait for room.
const ROOM: Duration = Duration::from_secs(1);

/// Reads without a message before others have their turn.
const READS: usize = 32;

/// What decrypting a step of a long frame counts in a peer's turn.
const OPENED: usize = 1 << 20;

/// How long a PING is not answered while its peer has sent more, if the user of the role does not read all that comes.
const ASKED: Duration = Duration::from_secs(2);

/// How often it is looked whether the systems of peers answer, at most.
const WATCH: Duration = Duration::from_secs(10);

/// Peers whose long frames are encrypted, each by a step, before others have their turn.
const SEALING: usize = 16;

/// Peers that may each keep the memory of their last write.
const FEW: usize = 256;

/// How long a peer may take its pending data when its endpoint is disconnected.
const HANGING_UP: Duration = Duration::from_secs(5);

/// The connections of one role, and its sockets.
pub struct ZmtpTransport {
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
    /// What is pending for all peers, and its limit.
    pending: Pending,
    budget: Budget,
    /// The sockets that all peers together had no room for a message of, with the peers it was for; and how much was
    /// pending then.
    barred: Vec<(usize, Option<Bytes>)>,
    barred_at: usize,
    /// How much may be pending for one peer.
    outbox_bytes: usize,
    /// Bytes held of incomplete handshakes of all peers.
    shaking: usize,
    /// Bytes held of incomplete messages of all peers, and their limit.
    unfinished: usize,
    unfinished_limit: usize,
    /// Connections that were given up, except those that their peers ended.
    failures: Tally,
    now: Nanos,
    crypto: Option<Arc<dyn Crypto>>,
    admission: Option<Arc<Admission>>,
    /// The clients to be asked about again, and how many decisions about such are pending.
    again_to_ask: Vec<LinkId>,
    asked_again: usize,
    /// Peers whose systems may not have what was written, and when to look next.
    watched: Vec<LinkId>,
    watch_at: Nanos,
}

impl ZmtpTransport {
    /// A transport without sockets.
    ///
    /// # Errors
    /// When the system gives no descriptor.
    pub fn new(settings: ZmtpSettings) -> Result<Self, TransportError> {
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
            pending: Pending::default(),
            budget: Budget::new(outbox_bytes),
            barred: vec![],
            barred_at: 0,
            outbox_bytes,
            shaking: 0,
            unfinished: 0,
            unfinished_limit: inbox_bytes,
            failures: Tally::default(),
            crypto,
            admission,
            again_to_ask: vec![],
            asked_again: 0,
            watched: vec![],
            watch_at: Nanos(0),
        })
    }

    /// Notes what a socket can do; gives whether that is anything.
    fn ready(&mut self, interest: &mut Interest<'_, usize>) -> bool {
        let Some(socket) = self.sockets.get_mut(*interest.socket) else { return false };
        interest.readable = interest.read && socket.turns.first().is_some();
        interest.writable = interest.write && socket.is_writable();
        interest.monitored = !socket.events.is_empty();
        interest.readable || interest.writable || interest.monitored || socket.has_drained()
    }

    /// Starts or pauses the reading of a socket. Its peers learn that when they are due: there may be many of them.
    fn set_reading(&mut self, at: usize, is_reading: bool) {
        if let Some(socket) = self.sockets.get_mut(at).filter(|socket| socket.receives()) {
            socket.is_reading = is_reading;
            if !is_reading {
                socket.paused = Some(self.now);
            }
        }
    }

    /// One pass: waits, and handles the events.
    fn turn(&mut self, others: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<bool, TransportError> {
        let closing = self.sockets.iter().filter_map(|(_, socket)| socket.closing).min();
        let closing = closing.map(|until| until.saturating_duration_since(Instant::now()));
        let now = (!self.again.is_empty() || !self.dirty.is_empty()).then_some(Duration::ZERO);
        let room = (!self.barred.is_empty()).then_some(ROOM);
        let watch = (!self.watched.is_empty()).then(|| self.watch_at - self.now);
        let due = closing.into_iter().chain(now).chain(room).chain(watch);
        let is_other = self.reactor.wait(others, timeout.into_iter().chain(due).min())?;
        self.now = self.reactor.now();
        self.watch();
        for link in std::mem::take(&mut self.again) {
            if let Some(peer) = find(&mut self.peers, link) {
                peer.is_again = false;
                if peer.is_pending {
                    peer.write_soon(&mut self.dirty);
                }
            }
            self.pump(link);
        }
        while let Some(event) = self.reactor.poll_event() {
            self.take(event);
        }
        self.decide();
        Ok(is_other)
    }

    /// Answers a PING, if there is one. If the peer has closed, the system would answer the PONG by throwing away all
    /// that is not read yet, here and there. So it waits until everything `is_read`; or, in case this user is slow for
    /// good and the peer is there, for a while.
    fn answer(&mut self, link: LinkId, is_read: bool) {
        let Some(peer) = find(&mut self.peers, link) else { return };
        let Some(since) = peer.connection.asked_since() else { return };
        let paused = self.sockets.get(peer.socket).and_then(|socket| socket.paused);
        let is_late = self.now - since >= ASKED || paused.is_none_or(|paused| self.now - paused >= ASKED);
        if (is_read || is_late) && !self.reactor.link(link).is_some_and(Link::is_ended) {
            peer.connection.answer_ping();
            self.mark(link);
        }
    }

    /// Gives up peers whose systems have stopped answering, though something is on its way to them. TCP itself retries
    /// for a quarter of an hour, and probes a peer only while nothing is on its way.
    fn watch(&mut self) {
        if self.watched.is_empty() || self.now < self.watch_at {
            return;
        }
        let mut interval = WATCH;
        for link in std::mem::take(&mut self.watched) {
            let Some(peer) = find(&mut self.peers, link) else { continue };
            let state = self.reactor.link(link);
            peer.is_watched = state.is_some_and(|link| link.unacknowledged() > 0);
            let keepalive = self.sockets.get(peer.socket).and_then(|socket| socket.chosen.stream.keepalive);
            let Some(keepalive) = keepalive.filter(|_| peer.is_watched) else {
                peer.is_watched = false;
                continue;
            };
            interval = interval.min(keepalive.interval);
            self.watched.push(link);
            if state.is_some_and(|link| link.is_silent(keepalive.idle + keepalive.interval * keepalive.probes)) {
                peer.connection.refuse(Reason::Silent);
                self.drain(link);
            }
        }
        self.watch_at = self.now + interval;
    }

    /// Sends a message on a connection.
    #[inline]
    fn put(&mut self, id: ConnectionId, frames: &[Bytes]) -> bool {
        let link = LinkId::of(id.0);
        let Some(peer) = find(&mut self.peers, link) else { return false };
        let is_sent = peer.connection.send(self.budget.hold(frames, &mut Frames::new()));
        peer.count(self.now, &mut self.pending);
        peer.write_soon(&mut self.dirty);
        is_sent
    }

    /// Removes a peer, and subtracts what it holds from the counts.
    fn remove(&mut self, link: LinkId) -> Option<Peer> {
        let peer = self.peers.get_mut(link.index())?.take()?;
        self.pending.held -= peer.held;
        self.pending.peers -= usize::from(peer.is_pending);
        match peer.stage {
            Stage::Shaking => self.shaking -= peer.unfinished,
            Stage::Ready | Stage::Leaving(_) => self.unfinished -= peer.unfinished,
        }
        self.leaving -= usize::from(matches!(peer.stage, Stage::Leaving(_)));
        self.asked_again -= usize::from(peer.is_asked_again);
        Some(peer)
    }

    /// Writes a connection's data soon, and counts what it holds.
    fn mark(&mut self, link: LinkId) {
        let Some(peer) = find(&mut self.peers, link) else { return };
        let all = if peer.stage == Stage::Shaking { &mut self.shaking } else { &mut self.unfinished };
        peer.count_unfinished(self.now, all);
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

    /// Writes a peer's pending data, as far as the system takes it.
    fn flush_peer(&mut self, link: LinkId) {
        let Some(peer) = find(&mut self.peers, link) else { return };
        peer.is_dirty = false;
        let mut bytes = 0;
        while bytes < WRITES && self.reactor.link(link).is_some_and(Link::is_writable) {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = peer.connection.slices(&mut pieces);
            if count == 0 {
                break;
            }
            // If the peer has closed the link, its end is reported as well.
            let Some(written) = self.reactor.write(link, &pieces[..count]) else { break };
            peer.connection.handle_written(written);
            bytes += written;
        }
        peer.taken += bytes;
        if bytes > 0 && !std::mem::replace(&mut peer.is_watched, true) {
            self.watched.push(link);
        }
        peer.count(self.now, &mut self.pending);
        if bytes >= WRITES || peer.connection.is_sealing() {
            peer.hear_again(&mut self.again);
        }
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

impl Transport for ZmtpTransport {
    /// The number of a socket.
    type Socket = usize;

    fn capabilities(&self) -> Capabilities {
        Capabilities { reports_drained: true, writes_on_flush: true }
    }

    fn turned_away(&self) -> u64 {
        self.reactor.turned_away()
    }

    fn failures(&self) -> Option<&Tally> {
        Some(&self.failures)
    }

    fn waiting(&self) -> usize {
        let unplaced = self.sockets.iter().map(|(_, socket)| socket.pending().bytes).sum::<usize>();
        self.pending.held + self.budget.long_bytes() + unplaced
    }

    fn has_unsent(&self) -> bool {
        self.pending.peers > 0 || self.sockets.iter().any(|(_, socket)| socket.pending().messages > 0)
    }

    fn open(&mut self, kind: SocketKind, options: &SocketOptions) -> Result<usize, TransportError> {
        let mut chosen = choose(kind, options, self.crypto.as_ref())?;
        chosen.high_water.bytes = chosen.high_water.bytes.min(self.outbox_bytes);
        Ok(self.sockets.insert(Socket::new(kind, chosen, options.hosts)))
    }

    fn bind(&mut self, at: &mut usize, endpoint: &str) -> Result<String, TransportError> {
        let socket = self.sockets.get_mut(*at).ok_or(TransportError::Terminated)?;
        let address = Address::to_listen(endpoint, socket.chosen.stream.ipv6).map_err(|error| failed(&error))?;
        let (id, real) = self.reactor.listen(&address, socket.chosen.stream)?;
        socket.bound.push((Arc::from(real.as_str()), id));
        self.listeners.insert(id, *at);
        Ok(real)
    }

    fn connect(&mut self, at: &mut usize, endpoint: &str) -> Result<(), TransportError> {
        let socket = self.sockets.get_mut(*at).ok_or(TransportError::Terminated)?;
        let address = Address::to_dial(endpoint).map_err(|error| failed(&error))?;
        let id = self.reactor.dial(address, socket.chosen.stream, socket.chosen.backoff);
        let pipe = socket.dial();
        socket.dialled.push(Dialled { endpoint: Arc::from(endpoint), id, pipe });
        self.dials.insert(id, *at);
        Ok(())
    }

    fn disconnect(&mut self, at: &mut usize, endpoint: &str) -> Result<(), TransportError> {
        let unknown = || failed(&nix::errno::Errno::ENOENT.into());
        let socket = self.sockets.get_mut(*at).ok_or(TransportError::Terminated)?;
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

    fn poll_monitor(&mut self, at: &mut usize) -> Option<SocketEvent> {
        self.sockets.get_mut(*at)?.events.pop_front()
    }

    fn address(&self, at: &usize) -> Option<Box<str>> {
        let link = self.sockets.get(*at)?.last?;
        self.reactor.link(link)?.address.as_deref().map(Into::into)
    }

    #[inline]
    fn receive(&mut self, at: &mut usize) -> Result<Option<Received>, TransportError> {
        // A long message is not waited for.
        let mut reads = 0;
        while reads < READS
            && let Some(socket) = self.sockets.get_mut(*at)
            && let Some(id) = socket.turns.first()
        {
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
                        return Ok(Some(received));
                    }
                }
                Some(event) => self.handle(link, event),
                None if peer.connection.is_opening() => {
                    socket.turns.took(OPENED);
                    reads += 1;
                }
                None => {
                    self.mark(link);
                    let read = self.read(link);
                    self.answer(link, read.is_none());
                    reads += 1;
                    let Some(socket) = self.sockets.get_mut(*at) else { break };
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
        Ok(None)
    }

    #[inline]
    fn send(&mut self, at: &mut usize, to: Option<&Bytes>, frames: &[Bytes]) -> Result<Taken, TransportError> {
        let mut is_flushed = false;
        loop {
            let share = self.budget.admits(self.waiting(), self.reactor.len(), frames);
            let Some(socket) = self.sockets.get_mut(*at) else { return Ok(Taken::Unreachable) };
            match socket.way(to, frames, share) {
                Way::Now(peer, request) => {
                    let is_sent = self.put(peer, request.as_deref().unwrap_or(frames));
                    return Ok(if is_sent { Taken::Yes } else { Taken::Unreachable });
                }
                Way::Done(taken) => return Ok(taken),
                Way::Barred if is_flushed || self.dirty.is_empty() => {
                    if self.barred.is_empty() {
                        self.barred_at = self.waiting();
                    }
                    self.barred.push((*at, to.cloned()));
                    if let Some(socket) = self.sockets.get_mut(*at) {
                        socket.handle_barred();
                    }
                    return Ok(Taken::Full);
                }
                Way::Barred => {
                    self.flush();
                    is_flushed = true;
                }
                Way::Full(peer) => {
                    let link = peer.map(|peer| LinkId::of(peer.0));
                    match link.and_then(|link| find(&mut self.peers, link)) {
                        Some(peer) if peer.is_dirty => {
                            let link = peer.link;
                            self.flush_peer(link);
                        }
                        None if link.is_none() && !self.dirty.is_empty() => self.flush(),
                        _ => {
                            if let Some(socket) = self.sockets.get_mut(*at) {
                                socket.handle_refused(to);
                            }
                            return Ok(Taken::Full);
                        }
                    }
                }
            }
        }
    }

    fn poll_drained(&mut self, at: &mut usize) -> Option<Bytes> {
        self.sockets.get_mut(*at)?.poll_drained()
    }

    /// What is written may be the last of a closed socket.
    fn flush(&mut self) {
        let mut sealing = 0;
        while sealing < SEALING
            && let Some(link) = self.dirty.pop()
        {
            self.flush_peer(link);
            sealing += usize::from(find(&mut self.peers, link).is_some_and(|peer| peer.connection.is_sealing()));
        }
        self.settle_closing();
    }

    fn wait(
        &mut self,
        sockets: &mut [Interest<'_, usize>],
        others: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<bool, TransportError> {
        let mut is_ready = false;
        // What this makes room for is sent at once.
        self.flush();
        self.relieve();
        self.make_room();
        for interest in &mut *sockets {
            self.set_reading(*interest.socket, interest.read);
            is_ready |= self.ready(interest);
        }
        let is_other = self.turn(others, if is_ready { Some(Duration::ZERO) } else { timeout })?;
        for interest in sockets {
            self.ready(interest);
        }
        Ok(is_other)
    }

    fn close(&mut self, at: usize, linger: Duration) {
        let Some(socket) = self.sockets.get_mut(at) else { return };
        for (_, id) in socket.bound.drain(..) {
            self.listeners.remove(&id);
            self.reactor.unlisten(id);
        }
        socket.closing = Some(Instant::now() + linger);
        // The socket receives no more: what its peers sent before is handled here.
        for peer in self.peers.iter_mut().flatten().filter(|peer| peer.socket == at) {
            peer.hear_again(&mut self.again);
        }
        self.flush();
    }

    fn ending(mut self) -> Ending {
        Box::new(move || {
            while self.lingers() {
                self.turn(&[], None).ok()?;
                self.flush();
            }
            Some(!self.is_unsent)
        })
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
