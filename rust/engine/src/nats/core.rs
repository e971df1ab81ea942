//! The connection of one role, as a transport.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use bytes::Bytes;
use nix::errno::Errno;
use trunkline_wire::nats::{Message, Servers, Unfit};
use trunkline_wire::{Backlog, Frames, Nanos, SocketEvent, SocketKind, SocketOptions};

use super::NatsSettings;
use super::link::Link;
use super::socket::{Held, Socket, Sockets, Subscriptions};
use crate::reactor::{self, Reactor, Read, SLAB, copied};
use crate::tls::{Tls, TlsError, Trust};
use crate::transport::{Capabilities, Confirmation, Ending, Interest, Received, Taken, Transport, TransportError};

/// Reads without a message before others have their turn.
const READS: usize = 32;

/// The connection of one role, and its sockets.
pub struct NatsTransport {
    pub(super) reactor: Reactor,
    pub(super) settings: NatsSettings,
    pub(super) servers: Servers,
    pub(super) link: Link,
    /// How servers are trusted, once that is read.
    pub(super) trust: Option<Trust>,
    pub(super) sockets: Sockets,
    pub(super) subscriptions: Subscriptions,
    /// What waits for a connection.
    pub(super) held: Held,
    /// The next message, and the socket that it is for: those behind it wait, so that all are received in order.
    pub(super) head: Option<(usize, Received)>,
    /// Whether the user of the role takes messages.
    is_reading: bool,
    /// Barriers that the server has not confirmed, the number of the next one, and whether it is wanted.
    barriers: VecDeque<u64>,
    pub(super) next_barrier: u64,
    pub(super) wants_barrier: bool,
    /// Why the last attempt to connect has failed, since there was a connection.
    pub(super) last_failure: Option<Box<str>>,
    /// The largest body, as it was last reported.
    pub(super) max_payload: Option<usize>,
    /// Until when the last socket may go on sending, once it is closed.
    closing: Option<Nanos>,
    pub(super) now: Nanos,
}

impl NatsTransport {
    /// A transport without sockets: it connects once there is one.
    ///
    /// # Errors
    /// When there is no server, the system gives no descriptor, or a file of TLS cannot be used.
    pub fn new(settings: NatsSettings) -> Result<Self, TransportError> {
        if settings.servers.is_empty() {
            return Err(TransportError::Failed {
                errno: Errno::EINVAL as i32,
                reason: "there is no server".to_owned(),
            });
        }
        let failed =
            |error: TlsError| TransportError::Failed { errno: Errno::EINVAL as i32, reason: error.to_string() };
        let trust = settings.tls.as_ref().map(Tls::load).transpose().map_err(failed)?;
        let reactor = Reactor::new(None, None)?;
        Ok(Self {
            now: reactor.now(),
            reactor,
            servers: Servers::new(settings.servers.clone()),
            settings,
            link: Link::None,
            trust,
            sockets: Sockets::new(),
            subscriptions: Subscriptions::default(),
            held: Held::default(),
            head: None,
            is_reading: true,
            barriers: VecDeque::new(),
            next_barrier: 1,
            wants_barrier: false,
            last_failure: None,
            max_payload: None,
            closing: None,
        })
    }

    /// Whether what comes is read: a server that does not read what is written is not read either.
    fn may_read(&mut self) -> bool {
        let (is_reading, most) = (self.is_reading && self.head.is_none(), self.settings.outbox_bytes);
        let is_ending = self.sockets.is_empty();
        self.link.open().is_some_and(|open| {
            !open.connection.is_ready() || is_ending || (is_reading && open.connection.pending() <= most)
        })
    }

    /// Whether there is something to be read now.
    fn is_readable(&mut self) -> bool {
        self.may_read()
            && self.link.open().is_some_and(|open| self.reactor.link(open.link).is_some_and(reactor::Link::is_readable))
    }

    /// Reads until there is a message, or nothing more.
    fn fill(&mut self) {
        for _ in 0..READS {
            // No message comes before the login is over.
            while let Some(open) = self.link.open()
                && (self.head.is_none() || !open.connection.is_ready())
                && let Some(event) = open.connection.poll_event(self.now)
            {
                self.handle(event);
            }
            if !self.is_readable() || !self.read() {
                return;
            }
        }
    }

    /// Reads once; false if nothing came.
    fn read(&mut self) -> bool {
        let Some(open) = self.link.open() else { return false };
        match self.reactor.read(open.link, SLAB) {
            Read::Some(bytes) => open.receive(bytes),
            Read::Nothing => return false,
            Read::End => open.connection.handle_eof(),
        }
        true
    }

    /// A message for a socket; `None` if its subscription has ended.
    pub(super) fn received(&mut self, message: Message) -> Option<(usize, Received)> {
        let at = self.subscriptions.socket(message.subscription)?;
        let Message { subject, reply_to, block, body, .. } = message;
        let mut parts = [subject, reply_to, block, body];
        if self.reactor.is_scarce() {
            copied(&mut parts);
        }
        let [subject, reply_to, block, body] = parts;
        let frames = Frames::from([reply_to, block, body]);
        Some((at, Received { peer: Some(subject), frames, ..Received::default() }))
    }

    /// Notes what sockets can do; gives whether that is anything.
    fn ready(&mut self, sockets: &mut [Interest<'_, usize>]) -> bool {
        let mut is_ready = self.is_readable();
        for interest in sockets {
            let Some(socket) = self.sockets.get(*interest.socket) else { continue };
            interest.readable = interest.read && self.head.as_ref().is_some_and(|(at, _)| at == interest.socket);
            interest.writable = true;
            interest.monitored = !socket.events.is_empty();
            is_ready |= interest.readable || interest.monitored || !socket.confirmations.is_empty();
        }
        is_ready
    }

    /// One pass: waits, and does what there is to do.
    fn turn(&mut self, others: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<bool, TransportError> {
        self.now = self.reactor.now();
        let due = self.due().into_iter().chain(self.closing).min().map(|due| due - self.now);
        let is_other = self.reactor.wait(others, timeout.into_iter().chain(due).min())?;
        self.now = self.reactor.now();
        while let Some(event) = self.reactor.poll_event() {
            self.take(event);
        }
        self.tick();
        let may_read = self.may_read();
        if let Some(open) = self.link.open() {
            open.connection.handle_reading(may_read);
        }
        self.fill();
        self.flush();
        Ok(is_other)
    }

    /// The server confirms a barrier.
    pub(super) fn reached_barrier(&mut self) {
        let Some(number) = self.barriers.pop_front() else { return };
        self.confirm(number);
        for (_, socket) in &mut self.sockets {
            socket.confirmations.push_back(Confirmation { number, has_arrived: true });
        }
    }

    /// The connection is lost: whether anything that was not confirmed has arrived is unknown.
    pub(super) fn lose_barriers(&mut self) {
        let is_any = std::mem::take(&mut self.wants_barrier) || !self.barriers.is_empty();
        self.barriers.clear();
        if is_any {
            let number = self.next_barrier;
            self.next_barrier += 1;
            for (_, socket) in &mut self.sockets {
                socket.confirmations.push_back(Confirmation { number, has_arrived: false });
            }
        }
    }

    /// Writes the wanted barrier.
    fn put_barrier(&mut self) {
        if self.wants_barrier
            && let Some(connection) = self.link.ready()
            && connection.barrier().is_ok()
        {
            self.barriers.push_back(self.next_barrier);
            self.next_barrier += 1;
            self.wants_barrier = false;
        }
    }

    /// Whether there is anything left to do once all sockets are closed.
    fn lingers(&mut self) -> bool {
        let is_unsent = self.has_unsent() || self.wants_barrier || !self.barriers.is_empty();
        let is_in_time = self.closing.is_some_and(|until| self.reactor.now() < until);
        is_unsent && is_in_time && self.link.ready().is_some()
    }
}

impl Transport for NatsTransport {
    /// The number of a socket.
    type Socket = usize;

    fn capabilities(&self) -> Capabilities {
        Capabilities { reports_drained: true, writes_on_flush: true }
    }

    fn waiting(&self) -> usize {
        let pending = if let Link::Open(open) = &self.link { open.connection.pending() } else { 0 };
        self.held.bytes() + pending
    }

    fn backlog(&self) -> Backlog {
        let bytes = self.waiting();
        // How many messages they are makes no difference.
        Backlog { messages: usize::from(bytes > 0), bytes }
    }

    fn has_unsent(&self) -> bool {
        self.waiting() > 0
    }

    fn open(&mut self, kind: SocketKind, _options: &SocketOptions) -> Result<usize, TransportError> {
        match kind {
            SocketKind::Nats => {
                self.closing = None;
                Ok(self.sockets.insert(Socket::default()))
            }
            SocketKind::Dealer
            | SocketKind::Pull
            | SocketKind::Push
            | SocketKind::Req
            | SocketKind::Router
            | SocketKind::Udp => Err(TransportError::Unsupported("ZeroMQ")),
        }
    }

    fn bind(&mut self, at: &mut usize, endpoint: &str) -> Result<String, TransportError> {
        let number = self.subscriptions.add(*at, endpoint).ok_or_else(|| refused(Unfit::Subject))?;
        if let Some(connection) = self.link.ready() {
            self.subscriptions.subscribe(number, connection);
        }
        Ok(endpoint.to_owned())
    }

    fn connect(&mut self, _at: &mut usize, _endpoint: &str) -> Result<(), TransportError> {
        Err(TransportError::Unsupported("sockets that dial: its servers are settings"))
    }

    fn disconnect(&mut self, _at: &mut usize, _endpoint: &str) -> Result<(), TransportError> {
        Err(TransportError::Unsupported("sockets that dial: its servers are settings"))
    }

    fn poll_monitor(&mut self, at: &mut usize) -> Option<SocketEvent> {
        self.sockets.get_mut(*at)?.events.pop_front()
    }

    #[inline]
    fn receive(&mut self, at: &mut usize) -> Result<Option<Received>, TransportError> {
        if self.head.is_none() {
            self.fill();
        }
        Ok(self.head.take_if(|(socket, _)| socket == at).map(|(_, received)| received))
    }

    #[inline]
    fn send(&mut self, _at: &mut usize, to: Option<&Bytes>, frames: &[Bytes]) -> Result<Taken, TransportError> {
        let ([reply_to, block, body], Some(subject)) = (frames, to) else { return Err(refused(Unfit::Subject)) };
        let reason = if let Some(connection) = self.link.ready() {
            match connection.publish(subject, reply_to, block, body) {
                Ok(()) => return Ok(Taken::Yes),
                Err(unfit) => unfit.to_string(),
            }
        } else if self.held.keep([subject, reply_to, block, body].map(Bytes::clone), self.settings.held_bytes) {
            return Ok(Taken::Yes);
        } else {
            "there is no connection, and no room for what waits for one".to_owned()
        };
        self.report_unsent(&reason);
        Ok(Taken::Unreachable)
    }

    /// What is held would be sent later, after its sender has learned that it is not.
    fn send_confirmed(
        &mut self,
        at: &mut usize,
        to: Option<&Bytes>,
        frames: &[Bytes],
    ) -> Result<Taken, TransportError> {
        if self.link.ready().is_none() {
            self.report_unsent("there is no connection to a NATS server");
            return Ok(Taken::Unreachable);
        }
        let taken = self.send(at, to, frames)?;
        if taken != Taken::Yes {
            return Ok(taken);
        }
        self.wants_barrier = true;
        Ok(Taken::Unconfirmed(self.next_barrier))
    }

    fn poll_confirmed(&mut self, at: &mut usize) -> Option<Confirmation> {
        self.sockets.get_mut(*at)?.confirmations.pop_front()
    }

    fn flush(&mut self) {
        self.put_barrier();
        let Some(open) = self.link.open() else { return };
        open.write(&mut self.reactor);
    }

    fn wait(
        &mut self,
        sockets: &mut [Interest<'_, usize>],
        others: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<bool, TransportError> {
        self.is_reading = sockets.iter().any(|interest| interest.read);
        self.flush();
        let is_ready = self.ready(sockets);
        let is_other = self.turn(others, if is_ready { Some(Duration::ZERO) } else { timeout })?;
        self.ready(sockets);
        Ok(is_other)
    }

    fn close(&mut self, at: usize, linger: Duration) {
        if self.sockets.try_remove(at).is_none() {
            return;
        }
        self.head.take_if(|(socket, _)| *socket == at);
        let left = self.subscriptions.leave(at);
        if let Some(connection) = self.link.ready() {
            for number in left {
                // It is ready.
                let _ = connection.unsubscribe(number);
            }
        }
        if self.sockets.is_empty() {
            // What was sent has arrived once the server says so.
            self.wants_barrier = self.link.ready().is_some();
            self.closing = Some(self.reactor.now() + linger);
        }
        self.flush();
    }

    fn ending(mut self) -> Ending {
        Box::new(move || {
            while self.lingers() {
                self.turn(&[], None).ok()?;
            }
            if let Some(open) = self.link.open() {
                self.reactor.close(open.link, false);
            }
            Some(!self.has_unsent() && !self.wants_barrier && self.barriers.is_empty())
        })
    }
}

fn refused(unfit: Unfit) -> TransportError {
    TransportError::Failed { errno: Errno::EINVAL as i32, reason: unfit.to_string() }
}
