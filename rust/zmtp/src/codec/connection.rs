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
use super::greeting::{self, BEGINNING, GREETING, Greeting, SECOND, Version};
use super::heartbeat::{Due, Timers};
use super::inbox::Inbox;
use super::metadata::{self, Metadata};
use super::outbox::Outbox;
use crate::curve::{Cipher, OVERHEAD, Opened};
use crate::mechanism::{Mechanism, Shown};
use crate::reason::{Failure, Fault, Reason};
use crate::{Settings, Side, SocketType};

/// The most bytes reserved before they come: for a command of an unknown peer, and for a frame of an admitted one.
const STRANGER: usize = 4 << 10;
const PEER: usize = 32 << 10;

/// Frames of an incomplete message that are smaller than this, and slices of something larger, are copied.
const SETTLED: usize = 256 << 10;

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client of CURVE has proven that it has this key: [`allow`](Connection::allow) admits it,
    /// [`deny`](Connection::deny) refuses it. Its handshake time goes on, and its data is not read until then.
    Authenticate(Key),
    /// The handshake is over: messages can be sent and received.
    Ready(Ready),
    /// A whole message.
    Message(Frames),
    /// It is over. Pending data may give the peer the reason: it is written once, as far as possible without waiting,
    /// and then the connection is closed.
    Failed(Failure),
}

/// The peer of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    pub socket_type: SocketType,
    /// The routing id it claims; empty if we may choose one.
    pub identity: Bytes,
    /// Its properties.
    pub metadata: Metadata,
    /// The minor version of ZMTP 3 that both sides know.
    pub minor: u8,
    /// The key that a client of CURVE has proven to have.
    pub key: Option<Key>,
    /// The user it was admitted as.
    pub user: Option<Bytes>,
}

#[derive(Debug)]
enum Phase {
    Greeting,
    /// A peer of ZMTP 2.0 is to send its routing id.
    Second(SocketType),
    Handshake(Box<Mechanism>),
    /// The decision about the peer is pending.
    Deciding(Box<(Mechanism, Ready)>),
    Traffic(Option<Box<Cipher>>),
    Over,
}

/// One connection, of either side: RFC 37, "Overall Behavior".
///
/// **After each call that changes it, [`poll_event`](Self::poll_event) is called until there is none, pending data is
/// written, and the driver waits for the socket or for [`poll_timeout`](Self::poll_timeout).** A driver that wants no
/// messages now stops polling, and reads no more before it polls again.
#[derive(Debug)]
pub struct Connection {
    settings: Arc<Settings>,
    side: Side,
    phase: Phase,
    inbox: Inbox,
    outbox: Outbox,
    timers: Timers,
    /// The incomplete message, and its bytes.
    partial: Frames,
    partial_bytes: u64,
    /// How many of its frames have memory of their own.
    settled: usize,
    /// The messages before it.
    messages: u64,
    minor: u8,
    /// When a PING came that is not answered yet, the last one, and its context.
    asked: Option<(Nanos, Bytes)>,
    /// Whether only the beginning of the greeting is written: the rest depends on the peer's version.
    is_begun: bool,
    events: VecDeque<Event>,
}

impl Connection {
    /// A connection that was just made.
    pub fn new(settings: Arc<Settings>, side: Side, now: Nanos) -> Self {
        let mut outbox = Outbox::default();
        let greeting = greeting::write(settings.security.mechanism(), settings.security.is_server());
        // With security there is no other version to speak.
        let is_begun = !settings.security.is_curve();
        outbox.put(if is_begun { &greeting[..BEGINNING] } else { &greeting });
        Self {
            phase: Phase::Greeting,
            side,
            inbox: Inbox::new(STRANGER),
            outbox,
            timers: Timers::new(now, settings.limits.handshake_time, settings.heartbeat),
            partial: Frames::new(),
            partial_bytes: 0,
            settled: 0,
            messages: 0,
            minor: 0,
            asked: None,
            is_begun,
            events: VecDeque::new(),
            settings,
        }
    }

    /// Takes what was read from the peer. Frames that are whole in it become slices of it.
    pub fn receive(&mut self, now: Nanos, bytes: Bytes) {
        if self.is_over() || bytes.is_empty() {
            return;
        }
        self.timers.hear(now);
        let room = self.settings.limits.handshake_bytes;
        if matches!(self.phase, Phase::Deciding(_)) && self.inbox.rest().len() + bytes.len() > room {
            return self.refuse(Reason::HandshakeTooLarge);
        }
        // An incomplete frame would keep all the memory that was read with it.
        let is_short = !matches!(self.phase, Phase::Traffic(_));
        self.inbox.push(if is_short { Bytes::copy_from_slice(&bytes) } else { bytes });
    }

    /// Where to read the rest of a long frame to, so that it is never moved: no more than there is room for, which is
    /// no more than the frame lacks. Call [`handle_landed`](Self::handle_landed) then. `None` when any buffer will do.
    pub fn landing(&mut self) -> Option<Limit<&mut BytesMut>> {
        self.inbox.landing()
    }

    /// Reports that data was read to where [`landing`](Self::landing) pointed.
    pub fn handle_landed(&mut self, now: Nanos) {
        if !self.is_over() {
            self.timers.hear(now);
        }
    }

    /// Reports that the peer sends no more.
    pub fn handle_eof(&mut self) {
        let reason = match self.phase {
            Phase::Greeting | Phase::Second(_) | Phase::Handshake(_) | Phase::Deciding(_) => Reason::HandshakeCut,
            Phase::Traffic(_) if self.inbox.is_cut() || !self.partial.is_empty() => Reason::MessageCut,
            Phase::Traffic(_) | Phase::Over => Reason::HungUp,
        };
        self.refuse(reason);
    }

    /// The next event, until there is none.
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
                Phase::Second(socket_type) => self.second(socket_type),
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

    /// When to call [`handle_timeout`](Self::handle_timeout) next.
    pub fn poll_timeout(&self) -> Option<Nanos> {
        if self.is_over() { None } else { self.timers.poll_timeout() }
    }

    /// Handles the timers that are due. Earlier calls are harmless.
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

    /// Reports that reading from the peer is paused or resumed: silence does not count in a pause.
    pub fn handle_reading(&mut self, now: Nanos, is_reading: bool) {
        self.timers.set_reading(now, is_reading);
    }

    /// When a PING came that is not answered yet.
    pub fn asked_since(&self) -> Option<Nanos> {
        self.asked.as_ref().map(|(since, _)| *since)
    }

    /// Answers the last PING, unless the answer to the one before is still pending. A peer that has closed would lose
    /// what it sent and is not read yet: the owner waits until it has read as far as it can.
    pub fn answer_ping(&mut self) {
        if self.outbox.has_room_for_pong()
            && let Some((_, context)) = self.asked.take_if(|_| matches!(self.phase, Phase::Traffic(_)))
        {
            self.put_command(&command::write("PONG", &context).freeze());
            self.outbox.end_pong();
        }
    }

    /// Sends a whole message. False, and nothing is sent, before the connection is ready, after it is over, or without
    /// frames.
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

    /// Refuses that client.
    pub fn deny(&mut self) {
        if matches!(self.phase, Phase::Deciding(_)) {
            self.refuse(Reason::Denied);
        }
    }

    /// Gives the connection up, for a reason of its owner.
    pub fn refuse(&mut self, reason: Reason) {
        self.fail(reason.into());
    }

    /// Whether it is over; pending data is still written, see [`Event::Failed`].
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// What to write next, in pieces; there may be more once that is written.
    pub fn chunks(&mut self) -> impl Iterator<Item = &[u8]> {
        self.seal_due();
        self.outbox.chunks()
    }

    /// Fills `slices` with what to write next; gives their number. There may be more once that is written.
    pub fn slices<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        self.seal_due();
        self.outbox.slices(slices)
    }

    fn seal_due(&mut self) {
        if let Phase::Traffic(Some(cipher)) = &mut self.phase {
            cipher.seal_due(&mut self.outbox);
        }
    }

    /// Reports that so many pending bytes were written.
    ///
    /// # Panics
    /// When fewer are pending.
    pub fn handle_written(&mut self, count: usize) {
        self.outbox.advance(count);
    }

    /// The pending messages, each until its last byte is written, and all pending bytes.
    pub fn backlog(&self) -> Backlog {
        self.outbox.backlog()
    }

    /// The bytes held of an incomplete message: each frame costs something, even an empty one.
    pub fn unfinished(&self) -> usize {
        let whole = usize::try_from(self.partial_bytes).unwrap_or(usize::MAX);
        let opening = self.cipher().and_then(Cipher::opening).unwrap_or_default();
        self.inbox.unfinished() + whole + opening + self.partial.len() * FRAME_COST
    }

    /// Whether [`poll_event`](Self::poll_event) has more to do, though it gave no event: it decrypts a long frame in
    /// steps.
    pub fn is_opening(&self) -> bool {
        self.cipher().is_some_and(|cipher| cipher.opening().is_some())
    }

    /// Whether there may be more to write, though there is nothing now: a long frame is encrypted in steps.
    pub fn is_sealing(&self) -> bool {
        self.outbox.has_room_ahead() && self.cipher().is_some_and(Cipher::is_sealing)
    }

    /// The memory of the pending bytes that no other connection shares.
    pub fn held(&self) -> usize {
        self.outbox.held()
    }

    fn cipher(&self) -> Option<&Cipher> {
        if let Phase::Traffic(Some(cipher)) = &self.phase { Some(cipher) } else { None }
    }

    /// The number of the incomplete message.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Refuses the client that [`Event::Authenticate`] asked about, as there was no decision in time.
    pub fn defer(&mut self) {
        if matches!(self.phase, Phase::Deciding(_)) {
            self.refuse(Reason::Undecided);
        }
    }

    /// Frees unused memory: a peer may not be written to again soon.
    pub fn shrink(&mut self) {
        self.outbox.shrink();
    }

    fn fail(&mut self, Fault(reason, detail): Fault) {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Over => return,
            Phase::Handshake(mut mechanism) => self.send_reason(&mut mechanism, reason),
            Phase::Deciding(mut asked) => self.send_reason(&mut asked.0, reason),
            Phase::Greeting | Phase::Second(_) => {}
            // The rest of a message that was begun is of no use. Nor is the rest of our handshake: a peer that has not seen
            // it keeps what it would send, and dials again.
            Phase::Traffic(_) => self.outbox.clear(),
        }
        let offset = self.inbox.begin();
        self.events.push_back(Event::Failed(Failure { reason, offset, detail }));
        self.inbox.clear();
        self.partial.clear();
    }

    /// A peer retries after a connection closed without an ERROR, but not after an ERROR: RFC 37, "Error Handling".
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
        let Settings { security, socket_type, identity, .. } = &*self.settings;
        // Before anything may be wrong with the peer's: it is to know what is wrong with ours.
        if self.is_begun
            && let Some(version) = greeting::version(self.inbox.rest())
        {
            self.is_begun = false;
            match version {
                Version::Third => self.outbox.put(&greeting::write(security.mechanism(), false)[BEGINNING..]),
                Version::Second => {
                    self.outbox.put(&greeting::second(*socket_type));
                    self.outbox.put_message(std::slice::from_ref(identity));
                }
            }
        }
        match greeting::read(self.inbox.rest(), security.mechanism(), security.is_server())? {
            None => return Ok(false),
            Some(Greeting::Second(theirs)) => {
                self.inbox.skip(SECOND);
                self.phase = Phase::Second(theirs);
                return Ok(true);
            }
            Some(Greeting::Third { minor, .. }) => {
                self.inbox.skip(GREETING);
                self.minor = minor;
            }
        }
        let mut mechanism = Mechanism::new(security, self.side);
        mechanism.begin(&self.ours(), &mut self.outbox)?;
        self.phase = Phase::Handshake(Box::new(mechanism));
        Ok(true)
    }

    /// The rest of the handshake with a peer of ZMTP 2.0, RFC 15: its routing id, as a message.
    fn second(&mut self, theirs: SocketType) -> Result<bool, Fault> {
        let most = self.settings.limits.handshake_bytes as u64;
        let admits = |head: Head, at: u64| match head {
            Head { is_command: true, .. } | Head { more: true, .. } => Err(Reason::BadFlags.into()),
            Head { len, .. } if len > most.saturating_sub(at) => Err(Reason::HandshakeTooLarge.into()),
            Head { .. } => Ok(()),
        };
        let Some((_, identity)) = self.inbox.frame(admits)? else { return Ok(false) };
        let identity = metadata::peer(self.settings.socket_type, theirs, &identity)?;
        let metadata = Metadata::default();
        let ready = Ready { socket_type: theirs, identity, metadata, minor: 0, key: None, user: None };
        self.admit(None, ready);
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
        self.admit(mechanism.cipher(), ready);
    }

    fn admit(&mut self, cipher: Option<Cipher>, ready: Ready) {
        self.phase = Phase::Traffic(cipher.map(Box::new));
        self.inbox.set_eager(PEER);
        // PING came with ZMTP 3.1; older peers hang up on unknown commands. libzmq 4.2 to 4.3.2 know it but claim 3.0:
        // those get PINGs once they have sent one.
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
            if let Some(cipher) = cipher.as_deref_mut().filter(|cipher| cipher.opening().is_some()) {
                let Some(opened) = cipher.go_on()? else { return Ok(None) };
                if let Some(frames) = self.take_opened(opened)? {
                    return Ok(Some(frames));
                }
                continue;
            }
            let is_secret = cipher.is_some();
            let admits = |head: Head, _| {
                if is_secret {
                    // An encrypted frame shows its kind only when it is open.
                    let is_large = head.len > room.max(commands).saturating_add(OVERHEAD as u64);
                    return if is_large { Err(Reason::MessageTooLarge.into()) } else { Ok(()) };
                }
                admits(head, has_room, room, commands)
            };
            let Some((head, body)) = self.inbox.frame(admits)? else {
                self.settle();
                return Ok(None);
            };
            let frames = match cipher {
                None => self.take(head, body)?,
                Some(cipher) => match cipher.open(body)? {
                    Some(opened) => self.take_opened(opened)?,
                    None => continue,
                },
            };
            if frames.is_some() {
                return Ok(frames);
            }
        }
    }

    /// Takes a frame that was encrypted, if there is room for it.
    fn take_opened(&mut self, opened: Opened) -> Result<Option<Frames>, Fault> {
        let Opened { is_command, more, body } = opened;
        let limits = &self.settings.limits;
        let room = limits.frame_bytes.min(limits.message_bytes.saturating_sub(self.partial_bytes));
        let head = Head { is_command, more, len: body.len() as u64 };
        admits(head, self.partial.len() < limits.message_frames, room, limits.handshake_bytes as u64)?;
        self.take(head, body)
    }

    /// Takes a frame; gives the message that it ends.
    #[inline]
    fn take(&mut self, head: Head, body: Bytes) -> Result<Option<Frames>, Fault> {
        if head.is_command {
            return self.command(&body).map(|()| None);
        }
        self.partial.push(body);
        if head.more {
            self.partial_bytes += head.len;
            return Ok(None);
        }
        (self.partial_bytes, self.settled) = (0, 0);
        self.messages += 1;
        Ok(Some(std::mem::take(&mut self.partial)))
    }

    /// Copies the frames of an incomplete message out of what was read. A slice keeps all that was read with it, from
    /// any peer: each of 10,000 frames of a byte could keep 256 KiB, in a message that never ends.
    fn settle(&mut self) {
        for frame in &mut self.partial[self.settled..] {
            if frame.len() < SETTLED && !frame.is_unique() {
                *frame = Bytes::copy_from_slice(frame);
            }
        }
        self.settled = self.partial.len();
    }

    fn command(&mut self, body: &[u8]) -> Result<(), Fault> {
        match Command::read(body)? {
            Command::Ping(ttl, context) => {
                self.timers.hear_ping();
                // What follows it is a sign of life already, however it was read.
                if self.inbox.rest().is_empty() {
                    self.timers.set_ttl(ttl);
                }
                self.asked = Some((self.timers.heard(), Bytes::copy_from_slice(context)));
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

/// Whether to take a frame, by its head: if there is room for another frame of a message, for `room` more bytes of it,
/// and for `commands` bytes of a command.
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
