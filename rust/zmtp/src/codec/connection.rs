//! One connection.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use bytes::buf::Limit;
use bytes::{Bytes, BytesMut};
use trunkline_wire::zap::Key;
use trunkline_wire::{Backlog, FRAME_COST, Frames, Nanos};

use super::command::{self, Command};
use super::frame::Head;
use super::greeting::{self, GREETING, Greeting};
use super::heartbeat::{Due, Timers};
use super::inbox::Inbox;
use super::metadata::{self, Metadata};
use super::outbox::Outbox;
use crate::curve::{Cipher, OVERHEAD, Opened};
use crate::mechanism::{Mechanism, Shown};
use crate::reason::{Failure, Fault, Reason};
use crate::{Settings, Side, SocketType};

/// What a command of a stranger may have reserved before it comes, and a frame of a peer.
const STRANGER: usize = 4 << 10;
const PEER: usize = 1 << 20;

/// Frames of a message on its way that are smaller than this are copied.
const SETTLED: usize = 16 << 10;

/// What happens on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client of CURVE has shown that it has this key: it is admitted by [`allow`](Connection::allow), or turned away by
    /// [`deny`](Connection::deny). The time of its handshake goes on, and nothing of it is looked at until then.
    Authenticate(Key),
    /// The handshake is over: messages may be sent, and come.
    Ready(Ready),
    /// A whole message.
    Message(Frames),
    /// It is over. What is pending may give the peer the reason: it is written once, as far as that can be done at once,
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
    /// Its properties.
    pub metadata: Metadata,
    /// The minor version of ZMTP 3 that both sides know.
    pub minor: u8,
    /// The key that a client of CURVE has shown to have.
    pub key: Option<Key>,
    /// The user it was admitted as.
    pub user: Option<Bytes>,
}

#[derive(Debug)]
enum Phase {
    Greeting,
    Handshake(Box<Mechanism>),
    /// Whether the peer is admitted is being decided.
    Deciding(Box<(Mechanism, Ready)>),
    Traffic(Option<Box<Cipher>>),
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
    side: Side,
    phase: Phase,
    inbox: Inbox,
    outbox: Outbox,
    timers: Timers,
    /// The message on its way, and its bytes.
    partial: Frames,
    partial_bytes: u64,
    /// How many of its frames hold nothing but themselves.
    settled: usize,
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
            side,
            inbox: Inbox::new(STRANGER),
            outbox,
            timers: Timers::new(now, settings.limits.handshake_time, settings.heartbeat),
            partial: Frames::new(),
            partial_bytes: 0,
            settled: 0,
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
        let room = self.settings.limits.handshake_bytes;
        if matches!(self.phase, Phase::Deciding(_)) && self.inbox.rest().len() + bytes.len() > room {
            return self.refuse(Reason::HandshakeTooLarge);
        }
        // What has not come in whole yet would hold all that was read with it.
        let is_short = !matches!(self.phase, Phase::Traffic(_));
        self.inbox.push(if is_short { Bytes::copy_from_slice(&bytes) } else { bytes });
    }

    /// Where to read the rest of a long frame to, so that it is never moved: no more than there is room for, which is no
    /// more than the frame lacks. [`handle_landed`](Self::handle_landed) is to be called then. `None` when any buffer will do.
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
            Phase::Greeting | Phase::Handshake(_) | Phase::Deciding(_) => Reason::HandshakeCut,
            Phase::Traffic(_) if self.inbox.is_cut() || !self.partial.is_empty() => Reason::MessageCut,
            Phase::Traffic(_) | Phase::Over => Reason::HungUp,
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
                Phase::Traffic(_) => match self.message() {
                    Ok(Some(frames)) => return Some(Event::Message(frames)),
                    Ok(None) => return None,
                    Err(fault) => Err(fault),
                },
                Phase::Greeting => self.greeting(),
                Phase::Handshake(_) => self.handshake(),
                Phase::Deciding(_) | Phase::Over => return None,
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
                self.put_command(&command::write("PING", &ttl.to_be_bytes()).freeze());
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
        let (Phase::Traffic(cipher), Some(last)) = (&mut self.phase, frames.len().checked_sub(1)) else { return false };
        match cipher {
            None => self.outbox.put_message(frames),
            Some(cipher) => {
                for (at, frame) in frames.iter().enumerate() {
                    cipher.send(&mut self.outbox, false, at < last, frame);
                }
            }
        }
        self.outbox.end_message();
        true
    }

    /// Admits the client that [`Event::Authenticate`] asked about, as this user.
    pub fn allow(&mut self, user: Option<Bytes>) {
        if matches!(self.phase, Phase::Deciding(_))
            && let Phase::Deciding(asked) = std::mem::replace(&mut self.phase, Phase::Over)
        {
            let (mechanism, ready) = *asked;
            self.finish(mechanism, Ready { user, ..ready });
        }
    }

    /// Turns that client away.
    pub fn deny(&mut self) {
        if matches!(self.phase, Phase::Deciding(_)) {
            self.refuse(Reason::Denied);
        }
    }

    /// Gives the connection up, for a reason of its owner.
    pub fn refuse(&mut self, reason: Reason) {
        self.fail(reason.into());
    }

    /// Whether it is over; what waits is written still, see [`Event::Failed`].
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// What is to be written next, in pieces; there may be more once that is.
    pub fn chunks(&mut self) -> impl Iterator<Item = &[u8]> {
        self.seal_due();
        self.outbox.chunks()
    }

    /// Fills `slices` with what is to be written next; gives how many. There may be more once that is.
    pub fn slices<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        self.seal_due();
        self.outbox.slices(slices)
    }

    fn seal_due(&mut self) {
        if let Phase::Traffic(Some(cipher)) = &mut self.phase {
            cipher.seal_due(&mut self.outbox);
        }
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

    /// What is kept of a message that has not come in whole, in bytes: each frame costs something, an empty one as well.
    pub fn unfinished(&self) -> usize {
        let whole = usize::try_from(self.partial_bytes).unwrap_or(usize::MAX);
        self.inbox.unfinished() + whole + self.partial.len() * FRAME_COST
    }

    /// Turns the client away that [`Event::Authenticate`] asked about, as there was no decision in time.
    pub fn defer(&mut self) {
        if matches!(self.phase, Phase::Deciding(_)) {
            self.refuse(Reason::Undecided);
        }
    }

    /// Lets go of memory that nothing is in, as a peer may not be written to again soon.
    pub fn shrink(&mut self) {
        self.outbox.shrink();
    }

    fn fail(&mut self, Fault(reason, detail): Fault) {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Over => return,
            Phase::Greeting => {}
            Phase::Handshake(mut mechanism) => self.send_reason(&mut mechanism, reason),
            Phase::Deciding(mut asked) => self.send_reason(&mut asked.0, reason),
            // The rest of a message that was begun is of no use.
            Phase::Traffic(_) => self.outbox.clear(),
        }
        let offset = self.inbox.begin();
        self.events.push_back(Event::Failed(Failure { reason, offset, detail }));
        self.inbox.clear();
        self.partial.clear();
    }

    /// A connection that is closed without an ERROR is worth another try; after an ERROR it is not: RFC 37, "Error
    /// Handling".
    fn send_reason(&mut self, mechanism: &mut Mechanism, reason: Reason) {
        let is_final =
            matches!(reason, Reason::BadIdentity | Reason::BadMetadata | Reason::BadSocketType | Reason::Denied);
        if is_final {
            mechanism.refuse(reason, &mut self.outbox);
        }
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
        let mut mechanism = Mechanism::new(security, self.side);
        mechanism.begin(&self.ours(), &mut self.outbox)?;
        self.phase = Phase::Handshake(Box::new(mechanism));
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
        let ours = self.ours();
        let Phase::Handshake(mechanism) = &mut self.phase else { return Ok(false) };
        let shown = mechanism.handle(&body, &ours, &mut self.outbox)?;
        let Some(Shown { metadata, key }) = shown else { return Ok(true) };
        let (socket_type, identity) = metadata.peer(self.settings.socket_type)?;
        let ready = Ready { socket_type, identity, metadata, minor: self.minor, key, user: None };
        let Phase::Handshake(mechanism) = std::mem::replace(&mut self.phase, Phase::Over) else { return Ok(false) };
        if let Some(key) = key {
            self.phase = Phase::Deciding(Box::new((*mechanism, ready)));
            self.events.push_back(Event::Authenticate(key));
        } else {
            self.finish(*mechanism, ready);
        }
        Ok(true)
    }

    fn finish(&mut self, mut mechanism: Mechanism, ready: Ready) {
        mechanism.accept(&self.ours(), &mut self.outbox);
        self.phase = Phase::Traffic(mechanism.cipher().map(Box::new));
        self.inbox.set_eager(PEER);
        // PING came with ZMTP 3.1; older peers hang up on what they do not know. libzmq 4.2 to 4.3.2 know it and say 3.0:
        // those are asked once they have asked themselves.
        self.timers.begin(self.timers.heard(), self.minor >= 1);
        self.events.push_back(Event::Ready(ready));
    }

    #[inline]
    fn message(&mut self) -> Result<Option<Frames>, Fault> {
        loop {
            let Phase::Traffic(cipher) = &mut self.phase else { return Ok(None) };
            let limits = &self.settings.limits;
            let has_room = self.partial.len() < limits.message_frames;
            let room = limits.frame_bytes.min(limits.message_bytes.saturating_sub(self.partial_bytes));
            let commands = limits.handshake_bytes as u64;
            let is_secret = cipher.is_some();
            let admits = |head: Head, _| {
                if is_secret {
                    // What it is shows when it is open.
                    let is_large = head.len > room.max(commands).saturating_add(OVERHEAD as u64);
                    return if is_large { Err(Reason::MessageTooLarge.into()) } else { Ok(()) };
                }
                admits(head, has_room, room, commands)
            };
            let Some((mut head, mut body)) = self.inbox.frame(admits)? else {
                self.settle();
                return Ok(None);
            };
            if let Some(cipher) = cipher {
                let Opened { is_command, more, body: opened } = cipher.open(body)?;
                (head, body) = (Head { is_command, more, len: opened.len() as u64 }, opened);
                self::admits(head, has_room, room, commands)?;
            }
            if head.is_command {
                self.command(&body)?;
                continue;
            }
            self.partial.push(body);
            if !head.more {
                (self.partial_bytes, self.settled) = (0, 0);
                return Ok(Some(std::mem::take(&mut self.partial)));
            }
            self.partial_bytes += head.len;
        }
    }

    /// Copies the small frames of a message that goes on in what is read next. A slice holds all that was read with it: a
    /// peer could have each of 10,000 frames of a byte hold 64 KiB, and never end the message.
    fn settle(&mut self) {
        for frame in &mut self.partial[self.settled..] {
            if frame.len() < SETTLED {
                *frame = Bytes::copy_from_slice(frame);
            }
        }
        self.settled = self.partial.len();
    }

    fn command(&mut self, body: &[u8]) -> Result<(), Fault> {
        match Command::read(body)? {
            Command::Ping(ttl, context) => {
                self.timers.hear_ping();
                // What follows it is a sign of life already, whether it was read together with it or later.
                if self.inbox.rest().is_empty() {
                    self.timers.set_ttl(ttl);
                }
                if self.outbox.has_room_for_pong() {
                    self.put_command(&command::write("PONG", context).freeze());
                    self.outbox.end_pong();
                }
            }
            Command::Alive => {}
        }
        Ok(())
    }

    fn put_command(&mut self, body: &Bytes) {
        if let Phase::Traffic(Some(cipher)) = &mut self.phase {
            cipher.send(&mut self.outbox, true, false, body);
        } else {
            self.outbox.put_command(body);
        }
    }
}

/// Whether a frame is taken, by its head: there is room for another frame of a message or not, for so many more bytes of it,
/// and for so many of a command.
#[inline]
fn admits(head: Head, has_room: bool, room: u64, commands: u64) -> Result<(), Fault> {
    let reason = if head.is_command {
        (head.len > commands).then_some(Reason::CommandTooLarge)
    } else if !has_room {
        Some(Reason::TooManyFrames)
    } else {
        (head.len > room).then_some(Reason::MessageTooLarge)
    };
    reason.map_or(Ok(()), |reason| Err(reason.into()))
}
