//! What the engine asks of an implementation of ZeroMQ or NATS.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use bytes::Bytes;
use trunkline_wire::{Backlog, Frames, SocketEvent, SocketKind, SocketOptions};
use trunkline_zmtp::Tally;

/// An implementation of ZeroMQ or NATS, owned and driven by one thread. No method waits but [`wait`](Self::wait).
pub trait Transport {
    type Socket;

    /// What the engine leaves to this transport.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Opens a socket and sets its options.
    fn open(&mut self, kind: SocketKind, options: &SocketOptions) -> Result<Self::Socket, TransportError>;

    /// Listens; gives the real endpoint if the port was left open.
    fn bind(&mut self, socket: &mut Self::Socket, endpoint: &str) -> Result<String, TransportError>;

    /// Where a socket that was handed over was last bound or connected.
    fn adopted_endpoint(&self, _socket: &Self::Socket) -> Option<String> {
        None
    }

    /// Dials, and redials whenever the connection is lost.
    fn connect(&mut self, socket: &mut Self::Socket, endpoint: &str) -> Result<(), TransportError>;

    /// Stops listening on an endpoint, or disconnects from it.
    fn disconnect(&mut self, socket: &mut Self::Socket, endpoint: &str) -> Result<(), TransportError>;

    /// The next whole message that has arrived, if any.
    fn receive(&mut self, socket: &mut Self::Socket) -> Result<Option<Received>, TransportError>;

    /// The address that the last message's sender connected from, as `tcp://127.0.0.1:37492`, if known.
    fn address(&self, _socket: &Self::Socket) -> Option<Box<str>> {
        None
    }

    /// Hands over one whole message, or leaves it untouched. `to` is the routing id a ROUTER sends to.
    fn send(
        &mut self,
        socket: &mut Self::Socket,
        to: Option<&Bytes>,
        frames: &[Bytes],
    ) -> Result<Taken, TransportError>;

    /// Hands over a message whose arrival is to be confirmed: where the transport can, it takes it as
    /// [`Taken::Unconfirmed`], and reports the arrival by [`poll_confirmed`](Self::poll_confirmed).
    fn send_confirmed(
        &mut self,
        socket: &mut Self::Socket,
        to: Option<&Bytes>,
        frames: &[Bytes],
    ) -> Result<Taken, TransportError> {
        self.send(socket, to, frames)
    }

    /// The next that became known of unconfirmed messages.
    fn poll_confirmed(&mut self, _socket: &mut Self::Socket) -> Option<Confirmation> {
        None
    }

    /// The next peer of a ROUTER that refused a message for want of room, and has room again or is gone, where the
    /// transport [reports it](Capabilities::reports_drained).
    fn poll_drained(&mut self, _socket: &mut Self::Socket) -> Option<Bytes> {
        None
    }

    /// Writes pending messages, as far as there is room: the first of a burst are in flight while the engine works on
    /// the rest.
    fn flush(&mut self) {}

    /// Connections refused for want of room.
    fn turned_away(&self) -> u64 {
        0
    }

    /// The connections that were given up, by reason, if known.
    fn failures(&self) -> Option<&Tally> {
        None
    }

    /// The memory of what was taken and is not sent yet, if known.
    fn waiting(&self) -> usize {
        0
    }

    /// What was taken and is not sent yet, if the transport takes all that it is given: the user waits for room in it.
    fn backlog(&self) -> Backlog {
        Backlog::default()
    }

    /// Whether there is anything that was taken and that the system has not, if known.
    fn has_unsent(&self) -> bool {
        false
    }

    /// The next connection that was made, lost or refused, if any.
    fn poll_monitor(&mut self, socket: &mut Self::Socket) -> Option<SocketEvent>;

    /// Waits until a socket can do what is asked, one of `others` is readable, or the time is up; notes which sockets
    /// can, or may. True if one of `others` was readable.
    fn wait(
        &mut self,
        sockets: &mut [Interest<'_, Self::Socket>],
        others: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<bool, TransportError>;

    /// Closes a socket; for `linger` it may go on sending what it has taken.
    fn close(&mut self, socket: Self::Socket, linger: Duration);

    /// Ends the transport once all its sockets are closed: gives the wait for that, to run on another thread.
    fn ending(self) -> Ending;
}

/// Returns when the system has all that closed sockets had taken to send, or their linger is over, and when their
/// endpoints are free again. Gives whether all was sent, if the transport knows.
pub type Ending = Box<dyn FnOnce() -> Option<bool> + Send>;

/// What a socket is waited for, and the outcome.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // it is a list of flags
pub struct Interest<'a, S> {
    pub socket: &'a mut S,
    /// Wait until there is a message.
    pub read: bool,
    /// Wait until a message can be sent.
    pub write: bool,
    /// There is a message.
    pub readable: bool,
    /// A message can be sent.
    pub writable: bool,
    /// A connection was made, lost or refused.
    pub monitored: bool,
}

/// One whole message from a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The sender's routing id, on a ROUTER.
    pub peer: Option<Bytes>,
    /// The sender's user id, from authentication.
    pub user_id: Option<Bytes>,
    /// The sender's host, if asked for.
    pub host: Option<Box<str>>,
    /// The frames, without routing id.
    pub frames: Frames,
}

/// The outcome of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The transport has it.
    Yes,
    /// The transport has it, and reports with this number, or a larger one, whether it has arrived.
    Unconfirmed(u64),
    /// Not now: retry when the socket is writable, or the peer has drained.
    Full,
    /// A ROUTER has no such peer.
    Unreachable,
}

/// What became of the messages that were taken with this number, or a smaller one, and were unconfirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmation {
    pub number: u64,
    /// Whether they have arrived; else that is unknown.
    pub has_arrived: bool,
}

/// A wait in whole milliseconds, as `poll` takes it: rounded up, so that it does not end early.
pub(crate) fn whole_ms(timeout: Option<Duration>) -> i32 {
    timeout.map_or(-1, |timeout| i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX))
}

/// What the engine leaves to a transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// It reports when a full peer has room again.
    pub reports_drained: bool,
    /// It writes when it is flushed or waits, and what is for one peer in one go.
    pub writes_on_flush: bool,
}

/// Why a transport did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportError {
    /// The context was terminated: every socket is lost.
    Terminated,
    /// It has no such feature; named.
    Unsupported(&'static str),
    /// A socket that was handed over is of another pattern than the role's.
    WrongSocket {
        /// What the role needs.
        needed: &'static str,
        /// What it was given.
        given: &'static str,
    },
    /// The transport's own error.
    Failed { errno: i32, reason: String },
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Terminated => f.write_str("the ZeroMQ context was terminated"),
            Self::Unsupported(what) => write!(f, "this transport has no {what}"),
            Self::WrongSocket { needed, given } => write!(f, "this role needs a {needed} socket, not a {given} one"),
            Self::Failed { reason, .. } => f.write_str(reason),
        }
    }
}

impl std::error::Error for TransportError {}
