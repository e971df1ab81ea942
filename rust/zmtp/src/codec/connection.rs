//! One connection.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use bytes::buf::Limit;
use bytes::{Bytes, BytesMut};
use trunkline_wire::{Backlog, Frames, Nanos};

use super::command::{self, Command};
use super::frame::Head;
use super::greeting::{self, GREETING, Greeting};
use super::heartbeat::{Due, Timers};
use super::inbox::Inbox;
use super::metadata::{self, Metadata};
use super::outbox::Outbox;
use crate::mechanism::Mechanism;
use crate::reason::{Failure, Fault, Reason};
use crate::{Settings, Side, SocketType};

/// What a command of a stranger may have reserved before it comes, and a frame of a peer.
const STRANGER: usize = 4 << 10;
const PEER: usize = 1 << 20;

/// What happens on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is over: messages may be sent, and come.
    Ready(Ready),
    /// A whole message.
    Message(Frames),
    /// It is over. What waits to be written may tell the peer why: it is written once, as far as that can be done at once,
    /// and then the connection is closed.
    Failed(Failure),
}

/// The peer of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The type of its socket.
    pub socket_type: SocketType,
    /// The routing id it claims; empty where it leaves that to us.
    pub identity: Bytes,
    /// All it tells of itself.
    pub metadata: Metadata,
    /// The minor version of ZMTP 3 that both sides know.
    pub minor: u8,
}

#[derive(Debug)]
enum Phase {
    Greeting,
    Handshake,
    Traffic,
    Over,
}

/// One connection, of either side: RFC 37, "Overall Behavior".
///
/// **After each call that changes it, [`poll_event`](Self::poll_event) is called until there is none, what waits is
/// written, and the driver waits for the socket or for [`poll_timeout`](Self::poll_timeout).** A driver that does not want
/// messages now polls no further, and reads no further before it has.
#[derive(Debug)]
pub struct Connection {
    settings: Arc<Settings>,
    phase: Phase,
    mechanism: Mechanism,
    inbox: Inbox,
    outbox: Outbox,
    timers: Timers,
    /// The message on its way, and its bytes.
    partial: Frames,
    partial_bytes: u64,
    minor: u8,
    events: VecDeque<Event>,
}

impl Connection {
    /// A connection that was just made.
    pub fn new(settings: Arc<Settings>, side: Side, now: Nanos) -> Self {
        let mut outbox = Outbox::default();
        outbox.put(&greeting::write(settings.security.mechanism(), settings.security.is_server()));
        Self {
            phase: Phase::Greeting,
            mechanism: Mechanism::new(&settings.security, side),
            inbox: Inbox::new(STRANGER),
            outbox,
            timers: Timers::new(now, settings.limits.handshake_time, settings.heartbeat),
            partial: Frames::new(),
            partial_bytes: 0,
            minor: 0,
            events: VecDeque::new(),
            settings,
        }
    }

    /// Takes what was read from the peer. Frames that are whole in it are slices of it.
    pub fn receive(&mut self, now: Nanos, bytes: Bytes) {
        if self.is_over() || bytes.is_empty() {
            return;
        }
        self.timers.hear(now);
        self.inbox.push(bytes);
    }

    /// Where to read the rest of a long frame to, so that it is never moved: no more than there is room for, which is no
    /// more than the frame lacks. [`handle_landed`](Self::handle_landed) is told then. `None` when any buffer will do.
    pub fn landing(&mut self) -> Option<Limit<&mut BytesMut>> {
        self.inbox.landing()
    }

    /// Learns that something was read to where [`landing`](Self::landing) said.
    pub fn handle_landed(&mut self, now: Nanos) {
        if !self.is_over() {
            self.timers.hear(now);
        }
    }

    /// Learns that the peer sends no more.
    pub fn handle_eof(&mut self) {
        let reason = match self.phase {
            Phase::Greeting | Phase::Handshake => Reason::HandshakeCut,
            Phase::Traffic if self.inbox.is_cut() || !self.partial.is_empty() => Reason::MessageCut,
            Phase::Traffic | Phase::Over => Reason::HungUp,
        };
        self.refuse(reason);
    }

    /// The next thing that happened, until there is none.
    #[inline]
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let polled = match self.phase {
                Phase::Traffic => match self.message() {
                    Ok(Some(frames)) => return Some(Event::Message(frames)),
                    Ok(None) => return None,
                    Err(fault) => Err(fault),
                },
                Phase::Greeting => self.greeting(),
                Phase::Handshake => self.handshake(),
                Phase::Over => return None,
            };
            match polled {
                Ok(true) => {}
                Ok(false) => return None,
                Err(fault) => self.fail(fault),
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called next.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        if self.is_over() { None } else { self.timers.poll_timeout() }
    }

    /// Acts on whatever is due. Calls before the time are harmless.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if self.is_over() {
            return;
        }
        match self.timers.handle_timeout(now) {
            Due::Nothing => {}
            Due::Ping => {
                let ttl = self.settings.heartbeat.map_or(0, |heartbeat| heartbeat.tenths());
                self.outbox.put_command(&command::write("PING", &ttl.to_be_bytes()));
            }
            Due::Over(reason) => self.refuse(reason),
        }
    }

    /// Learns that the peer is not read for now, or is read again: its silence is not held against it meanwhile.
    pub fn handle_reading(&mut self, now: Nanos, is_reading: bool) {
        self.timers.set_reading(now, is_reading);
    }

    /// Sends a message, as a whole. False, and nothing is sent, before the connection is ready and after it is over, and
    /// for a message without frames, which is none.
    #[inline]
    #[must_use]
    pub fn send(&mut self, frames: &[Bytes]) -> bool {
        let (Phase::Traffic, Some((last, others))) = (&self.phase, frames.split_last()) else { return false };
        for frame in others {
            self.outbox.put_frame(true, frame);
        }
        self.outbox.put_frame(false, last);
        self.outbox.end_message();
        true
    }

    /// Gives the connection up, for a reason of whoever owns it.
    pub fn refuse(&mut self, reason: Reason) {
        self.fail(reason.into());
    }

    /// Whether it is over; what waits is written still, see [`Event::Failed`].
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// What waits to be written, in pieces.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.outbox.chunks()
    }

    /// Fills `slices` with what waits to be written; gives how many.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.outbox.slices(slices)
    }

    /// Learns that so many bytes of what waits were written.
    ///
    /// # Panics
    /// When fewer wait.
    pub fn handle_written(&mut self, count: usize) {
        self.outbox.advance(count);
    }

    /// The messages that wait to be written, each until its last byte is, and the bytes of all that waits.
    pub fn backlog(&self) -> Backlog {
        self.outbox.backlog()
    }

    fn fail(&mut self, Fault(reason, detail): Fault) {
        match self.phase {
            Phase::Over => return,
            // To close without a word says that it is worth another try; these will not be better.
            Phase::Handshake if is_final(reason) => self.mechanism.refuse(reason, &mut self.outbox),
            Phase::Greeting | Phase::Handshake => {}
            // Nobody waits for the rest of a message that was begun.
            Phase::Traffic => self.outbox.clear(),
        }
        self.phase = Phase::Over;
        let offset = self.inbox.begin();
        self.events.push_back(Event::Failed(Failure { reason, offset, detail }));
        self.inbox.clear();
        self.partial.clear();
    }

    fn ours(&self) -> BytesMut {
        metadata::write(self.settings.socket_type, &self.settings.identity)
    }

    fn greeting(&mut self) -> Result<bool, Fault> {
        let security = &self.settings.security;
        let read = greeting::read(self.inbox.rest(), security.mechanism(), security.is_server())?;
        let Some(Greeting { minor, .. }) = read else { return Ok(false) };
        self.inbox.skip(GREETING);
        self.minor = minor;
        self.phase = Phase::Handshake;
        let ours = self.ours();
        self.mechanism.begin(&ours, &mut self.outbox);
        Ok(true)
    }

    fn handshake(&mut self) -> Result<bool, Fault> {
        let most = self.settings.limits.handshake_bytes as u64;
        let admits = |head: Head, at: u64| {
            if !head.is_command {
                Err(Reason::UnexpectedMessage.into())
            } else if head.len > most.saturating_sub(at) {
                Err(Reason::HandshakeTooLarge.into())
            } else {
                Ok(())
            }
        };
        let Some((_, body)) = self.inbox.frame(admits)? else { return Ok(false) };
        if let Some(metadata) = self.mechanism.handle(&body)? {
            let (socket_type, identity) = metadata.peer(self.settings.socket_type)?;
            let minor = self.minor;
            self.finish(Ready { socket_type, identity, metadata, minor });
        }
        Ok(true)
    }

    fn finish(&mut self, ready: Ready) {
        let ours = self.ours();
        self.mechanism.accept(&ours, &mut self.outbox);
        self.phase = Phase::Traffic;
        self.inbox.set_eager(PEER);
        // PING came with ZMTP 3.1; older peers hang up on what they do not know.
        self.timers.begin(self.timers.heard(), self.minor >= 1);
        self.events.push_back(Event::Ready(ready));
    }

    #[inline]
    fn message(&mut self) -> Result<Option<Frames>, Fault> {
        loop {
            let limits = &self.settings.limits;
            let (count, bytes) = (self.partial.len(), self.partial_bytes);
            let admits = |head: Head, _| {
                if head.is_command {
                    let is_large = head.len > limits.handshake_bytes as u64;
                    if is_large { Err(Reason::CommandTooLarge.into()) } else { Ok(()) }
                } else if count >= limits.message_frames {
                    Err(Reason::TooManyFrames.into())
                } else if head.len > limits.message_bytes.saturating_sub(bytes) {
                    Err(Reason::MessageTooLarge.into())
                } else {
                    Ok(())
                }
            };
            let Some((head, body)) = self.inbox.frame(admits)? else { return Ok(None) };
            if head.is_command {
                self.command(&body)?;
                continue;
            }
            self.partial.push(body);
            if !head.more {
                self.partial_bytes = 0;
                return Ok(Some(std::mem::take(&mut self.partial)));
            }
            self.partial_bytes += head.len;
        }
    }

    fn command(&mut self, body: &[u8]) -> Result<(), Fault> {
        match Command::read(body)? {
            Command::Ping(ttl, context) => {
                // What follows it is a sign of life already, whether it was read together with it or later.
                if self.inbox.rest().is_empty() {
                    self.timers.set_ttl(ttl);
                }
                if self.outbox.has_room_for_pong() {
                    self.outbox.put_command(&command::write("PONG", context));
                    self.outbox.end_pong();
                }
            }
            Command::Alive => {}
        }
        Ok(())
    }
}

/// Whether a peer that comes again as it is will be refused again: RFC 37, "Error Handling".
fn is_final(reason: Reason) -> bool {
    matches!(reason, Reason::BadIdentity | Reason::BadMetadata | Reason::BadSocketType | Reason::Denied)
}
