//! What the engine asks of a ZeroMQ implementation.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use bytes::Bytes;
use trunkline_wire::{Frames, SocketEvent, SocketKind, SocketOptions};
use trunkline_zmtp::Tally;

/// A ZeroMQ implementation, owned and driven by one thread. No method waits but [`wait`](Self::wait).
pub trait Transport {
    /// An open socket.
    type Socket;

    /// What this transport can do.
    fn capabilities(&self) -> Capabilities;

    /// Opens a socket and sets its options.
    fn open(&mut self, kind: SocketKind, options: &SocketOptions) -> Result<Self::Socket, TransportError>;

    /// Listens; gives the real endpoint, where the port was left open.
    fn bind(&mut self, socket: &mut Self::Socket, endpoint: &str) -> Result<String, TransportError>;

    /// Where a socket that was handed over was bound or connected last.
    fn adopted_endpoint(&self, _socket: &Self::Socket) -> Option<String> {
        None
    }

    /// Dials, and dials again whenever the connection is lost.
    fn connect(&mut self, socket: &mut Self::Socket, endpoint: &str) -> Result<(), TransportError>;

    /// Stops listening at, or lets go of, an endpoint.
    fn disconnect(&mut self, socket: &mut Self::Socket, endpoint: &str) -> Result<(), TransportError>;

    /// The next whole message that has arrived, if any.
    fn receive(&mut self, socket: &mut Self::Socket) -> Result<Option<Received>, TransportError>;

    /// Where the peer connected from whose message was received last, as `tcp://127.0.0.1:37492`, if that can be said.
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

    /// The next peer of a ROUTER that did not take a message for want of room, and has room again or is gone, where the
    /// transport [says so](Capabilities::reports_drained).
    fn poll_drained(&mut self, _socket: &mut Self::Socket) -> Option<Bytes> {
        None
    }

    /// Writes what waits for peers, as far as there is room: what comes of one burst is under way while the rest is worked on.
    fn flush(&mut self) {}

    /// How many peers were turned away since there was no room for another.
    fn turned_away(&self) -> u64 {
        0
    }

    /// The connections that were given up, by why, where it knows.
    fn failures(&self) -> Option<&Tally> {
        None
    }

    /// What it has taken and not sent yet, in bytes, where it knows.
    fn waiting(&self) -> usize {
        0
    }

    /// The next connection that came, went or was refused, if any.
    fn poll_monitor(&mut self, socket: &mut Self::Socket) -> Option<SocketEvent>;

    /// Waits until a socket can do what it is asked about, one of `others` is readable, or the time is up; notes which
    /// sockets can, or may. True where one of `others` was seen to be readable.
    fn wait(
        &mut self,
        sockets: &mut [Interest<'_, Self::Socket>],
        others: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<bool, TransportError>;

    /// Closes a socket; what it has taken to send it may go on sending for `linger`.
    fn close(&mut self, socket: Self::Socket, linger: Duration);

    /// Ends the transport once all its sockets are closed: gives what waits for that, on another thread.
    fn ending(&mut self) -> Ending;
}

/// Returns when all that closed sockets had taken to send is with the system, or their linger is over, and when what they
/// listened on is free again. Gives whether all was sent, where the transport knows.
pub type Ending = Box<dyn FnOnce() -> Option<bool> + Send>;

/// What a socket is waited for, and what came of it.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // a list of yes and no is what it is
pub struct Interest<'a, S> {
    /// The socket.
    pub socket: &'a mut S,
    /// Wait until there is a message.
    pub read: bool,
    /// Wait until a message can be sent.
    pub write: bool,
    /// There is a message.
    pub readable: bool,
    /// A message can be sent.
    pub writable: bool,
    /// A connection came, went or was refused.
    pub monitored: bool,
}

/// One whole message off a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The sender's routing id, on a ROUTER.
    pub peer: Option<Bytes>,
    /// What authentication found the sender to be.
    pub user_id: Option<Bytes>,
    /// The sender's host, where it is asked for.
    pub host: Option<Box<str>>,
    /// The frames, without routing id.
    pub frames: Frames,
}

/// What became of a message that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The transport has it.
    Yes,
    /// Not now: try again when the socket is writable, or the peer has drained.
    Full,
    /// A ROUTER knows no such peer.
    Unreachable,
}

/// A wait in whole milliseconds, as `poll` takes it: it must not end just before its time.
pub(crate) fn whole_ms(timeout: Option<Duration>) -> i32 {
    timeout.map_or(-1, |timeout| i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX))
}

/// What a transport can do beyond TCP and Unix sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // a list of yes and no is what it is
pub struct Capabilities {
    /// The transport's name.
    pub name: &'static str,
    /// CURVE encryption.
    pub curve: bool,
    /// Authentication by ZAP.
    pub zap: bool,
    /// Endpoints within the process.
    pub inproc: bool,
    /// A full peer refuses a send instead of making it wait.
    pub full_peer_refuses: bool,
    /// A send to a peer that is not there says so.
    pub reports_unreachable: bool,
    /// A lost connection is made again.
    pub reconnects: bool,
    /// It says when a full peer has room again.
    pub reports_drained: bool,
    /// It writes what it was given when it is flushed or waits, what is for one peer in one go.
    pub writes_on_flush: bool,
}

/// Why a transport did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportError {
    /// The context was terminated: every socket is lost.
    Terminated,
    /// It can do no such thing; named.
    Unsupported(&'static str),
    /// A socket that was handed over is of another pattern than the role's.
    WrongSocket {
        /// What the role needs.
        needed: &'static str,
        /// What it was given.
        given: &'static str,
    },
    /// The transport's own error.
    Failed {
        /// Its number.
        errno: i32,
        /// Its words.
        reason: String,
    },
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
