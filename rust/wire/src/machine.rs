//! The interface between a protocol and the owner of its sockets.
//!
//! **Every mutation is followed by a complete drain of [`Machine::poll_output`] and [`Machine::poll_event`]; then the
//! driver waits for a socket or for [`Machine::poll_timeout`].** A driver may hand over several messages before it drains
//! the outputs. It carries them out in their order for each peer, and tells on the way what became of each.

use std::fmt;
use std::hash::Hash;
use std::net::Ipv4Addr;
use std::ops::{Add, Sub};
use std::time::Duration;

use bytes::Bytes;
use zeroize::Zeroizing;

use crate::{ErrorKind, Frames, Framing, Origin, Parcel};

/// Monotonic nanoseconds since an origin of the driver's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Add<Duration> for Nanos {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Nanos {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A protocol role as a deterministic state machine.
///
/// Nothing a peer sends makes a method fail or panic: what cannot be used becomes an event.
pub trait Machine {
    /// The machine's own name for each of its sockets.
    type Socket: Copy + Eq + Hash + fmt::Debug + Send + 'static;
    /// What the user is told.
    type Event: Event;
    /// What the user asks for.
    type Verb: Send + 'static;
    /// Counters, as the user sees them.
    type Stats: Clone + Default + Send + 'static;

    /// Takes one whole message, and tells what it was.
    fn handle_message(&mut self, now: Nanos, incoming: Incoming<Self::Socket>) -> Verdict;

    /// Takes what happened to a socket.
    fn handle_socket(&mut self, now: Nanos, socket: Self::Socket, event: SocketEvent);

    /// Acts on whatever is due. Calls before the time are harmless.
    fn handle_timeout(&mut self, now: Nanos);

    /// Does what the user asked for.
    fn handle_verb(&mut self, now: Nanos, verb: Self::Verb);

    /// Begins an orderly end that takes at most `grace`: [`is_closed`](Self::is_closed) turns true at its end. Called once
    /// more it may end sooner; a driver waits no longer than it said last.
    fn handle_close(&mut self, now: Nanos, grace: Duration);

    /// The next thing to do on a socket, until there is none.
    #[must_use]
    fn poll_output(&mut self) -> Option<Output<Self::Socket>>;

    /// What the row of a message that goes out is to say, where its frames alone do not.
    fn label(&self, _socket: Self::Socket, _to: Option<&Bytes>, _frames: &[Bytes]) -> Label {
        Label::default()
    }

    /// What a recording is to have in place of a message that came or goes, where it tells what nobody else is to know.
    fn shown(&self, _socket: Self::Socket, _frames: &[Bytes]) -> Option<Frames> {
        None
    }

    /// The next thing to tell the user, until there is none.
    #[must_use]
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called next.
    fn poll_timeout(&self) -> Option<Nanos>;

    /// Learns that messages wait unread because the user or the disk is slow, or that they are read again.
    fn handle_pressure(&mut self, _now: Nanos, _pressed: bool) {}

    /// Whether messages of this socket are wanted now; the driver leaves them where they are otherwise.
    fn reads(&self, _socket: Self::Socket) -> bool {
        true
    }

    /// What the machine still holds of the verbs it was given: count and bytes.
    fn backlog(&self) -> Backlog {
        Backlog::default()
    }

    /// Messages taken in since the start: what a user can wait for.
    fn progress(&self) -> u64 {
        0
    }

    /// Counters at this moment.
    fn stats(&self) -> Self::Stats;

    /// Whether the orderly end is over, every socket closed.
    fn is_closed(&self) -> bool;
}

/// How an event counts against the queue between the driver and the user.
pub trait Event: Send + 'static {
    /// The event's class and size in bytes.
    fn weight(&self) -> Weight;

    /// The peer it tells of, and the message that brought it about, if it tells of any.
    #[inline]
    fn origin(&mut self) -> Option<&mut Origin> {
        None
    }
}

/// What a full queue does to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Never lost: a full queue stops the reading of sockets.
    Lossless(usize),
    /// Lost, and counted, when the user does not keep up.
    Notice(usize),
}

/// An amount of queued work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// How many.
    pub messages: usize,
    /// Their frames' bytes.
    pub bytes: usize,
}

/// One whole message that came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming<S> {
    /// The socket it came in on.
    pub socket: S,
    /// The sender's routing id (ROUTER) or address (UDP).
    pub peer: Option<Bytes>,
    /// What authentication found the sender to be.
    pub user_id: Option<Bytes>,
    /// The host it was sent from, where it is told: see [`SocketOptions::hosts`].
    pub host: Option<Box<str>>,
    /// The frames, without routing id.
    pub frames: Frames,
}

/// What the machine alone knows of a message, for its row in a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// Its framing, where the role has several; else it is the role's.
    pub framing: Option<Framing>,
    /// Its topic, where that does not stand in its frames.
    pub topic: Option<Bytes>,
}

/// What a message that came in was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why its bytes are no message of the protocol.
    pub error: Option<ErrorKind>,
    /// What else its row is to say.
    pub label: Label,
}

impl From<ErrorKind> for Verdict {
    fn from(error: ErrorKind) -> Self {
        Self { error: Some(error), label: Label::default() }
    }
}

/// The machine's own number of a send whose fate it wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SendId(pub u64);

/// What happened to a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketEvent {
    /// It listens, at this real endpoint.
    Bound(String),
    /// It could not be opened, bound or connected.
    OpenFailed {
        /// The endpoint in question; empty when the socket itself failed.
        endpoint: String,
        /// The transport's words for the reason.
        reason: String,
    },
    /// A peer is connected and has shaken hands.
    Connected(Remote),
    /// A connected peer is gone.
    Disconnected(Remote),
    /// A peer was refused, or refused us.
    HandshakeFailed {
        /// Our endpoint.
        endpoint: String,
        /// The transport's words for the reason.
        reason: String,
    },
    /// The transport took a send.
    Sent(SendId),
    /// The transport will not take a send any more.
    Unsent(SendId, Unsent),
    /// The socket is closed.
    Closed,
}

impl SocketEvent {
    /// What it means for a connection, if anything.
    #[inline]
    #[must_use]
    pub fn connection(&self) -> Option<Connection> {
        match self {
            Self::Connected(remote) => Some(Connection::Made(remote.clone())),
            Self::Disconnected(remote) => Some(Connection::Lost(remote.clone())),
            Self::OpenFailed { endpoint, reason } | Self::HandshakeFailed { endpoint, reason } => {
                Some(Connection::Failed { endpoint: endpoint.clone(), reason: reason.clone() })
            }
            Self::Bound(_) | Self::Sent(_) | Self::Unsent(..) | Self::Closed => None,
        }
    }
}

/// The other end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// The endpoint it is connected at: the one that was dialled, or ours.
    pub endpoint: String,
    /// Where one is that dialled us, if the transport knows.
    pub address: Option<String>,
}

impl From<String> for Remote {
    fn from(endpoint: String) -> Self {
        Self { endpoint, address: None }
    }
}

impl From<&str> for Remote {
    fn from(endpoint: &str) -> Self {
        endpoint.to_owned().into()
    }
}

/// What became of a connection, as every role tells its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// A peer is connected.
    Made(Remote),
    /// A peer that was connected is gone.
    Lost(Remote),
    /// An endpoint could not be used, or a peer was refused.
    Failed {
        /// The endpoint; empty when the socket itself failed.
        endpoint: String,
        /// The reason, in words.
        reason: String,
    },
}

/// Why a send was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// No such peer.
    Unreachable,
    /// The peer's outbox is full.
    PeerFull,
    /// It was not taken before its deadline, or is not wanted any more.
    Expired,
    /// The socket closed first.
    Closed,
}

/// What to do on a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<S> {
    /// Send one message.
    Send {
        /// Set when the machine wants a [`SocketEvent::Sent`] or [`SocketEvent::Unsent`].
        id: Option<SendId>,
        /// The socket to send on.
        socket: S,
        /// The routing id (ROUTER) or address (UDP) of the receiver.
        to: Option<Bytes>,
        /// The frames, without routing id.
        frames: Parcel,
        /// When to give up.
        until: Option<Nanos>,
    },
    /// Give up a send that the transport has not taken yet: [`Unsent::Expired`] follows. One that it has, goes.
    Withdraw {
        /// The socket.
        socket: S,
        /// The send.
        id: SendId,
    },
    /// Open a socket: aside, lest every send be moved as so large a thing.
    Open(Box<Open<S>>),
    /// Connect an open socket to one more endpoint.
    Connect {
        /// The socket.
        socket: S,
        /// The endpoint.
        endpoint: String,
    },
    /// Let go of an endpoint.
    Disconnect {
        /// The socket.
        socket: S,
        /// The endpoint.
        endpoint: String,
    },
    /// Close a socket; [`SocketEvent::Closed`] follows.
    Close {
        /// The socket.
        socket: S,
        /// How long the transport may go on sending what it has taken.
        linger: Duration,
    },
}

impl<S> Output<S> {
    /// The same on a socket of another name.
    #[inline]
    pub fn on<T>(self, name: impl FnOnce(S) -> T) -> Output<T> {
        match self {
            Self::Send { id, socket, to, frames, until } => {
                Output::Send { id, socket: name(socket), to, frames, until }
            }
            Self::Withdraw { socket, id } => Output::Withdraw { socket: name(socket), id },
            Self::Open(open) => {
                let Open { socket, kind, bind, connect, options } = *open;
                Output::Open(Box::new(Open { socket: name(socket), kind, bind, connect, options }))
            }
            Self::Connect { socket, endpoint } => Output::Connect { socket: name(socket), endpoint },
            Self::Disconnect { socket, endpoint } => Output::Disconnect { socket: name(socket), endpoint },
            Self::Close { socket, linger } => Output::Close { socket: name(socket), linger },
        }
    }

    /// Whom a message is for: a routing id or address.
    pub fn peer(&self) -> Option<&Bytes> {
        match self {
            Self::Send { to, .. } => to.as_ref(),
            Self::Withdraw { .. }
            | Self::Open(_)
            | Self::Connect { .. }
            | Self::Disconnect { .. }
            | Self::Close { .. } => None,
        }
    }
}

/// A socket to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open<S> {
    /// The machine's name for it.
    pub socket: S,
    /// The ZeroMQ pattern.
    pub kind: SocketKind,
    /// Endpoints to listen on.
    pub bind: Vec<String>,
    /// Endpoints to dial.
    pub connect: Vec<String>,
    /// Everything that is set before.
    pub options: SocketOptions,
}

/// The ZeroMQ pattern of a socket, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are ZeroMQ's own
pub enum SocketKind {
    Dealer,
    /// No pattern of ZeroMQ: subscriptions to NATS. What it binds are subjects, each with its queue group, if any, after a
    /// space; `peer` and `to` are subjects, and a message is the reply subject, the header block and the body, which are
    /// empty where there are none.
    Nats,
    Pull,
    Push,
    Req,
    Router,
    /// No pattern of ZeroMQ: the engine's own datagrams. `peer` and `to` are addresses, as `192.0.2.1:7123`. What is sent
    /// to a multicast group goes to every network of this host, and what is sent to 255.255.255.255 to the broadcast
    /// address of every network; to that of one address of this host alone with `@` and the address after it.
    Udp,
}

/// What is set on a socket before it is bound or connected; `None` keeps the transport's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is an option of its own
pub struct SocketOptions {
    /// Messages the transport may hold for sending, a peer.
    pub send_hwm: Option<u32>,
    /// Messages the transport may hold that were received, a peer.
    pub receive_hwm: Option<u32>,
    /// The largest frame taken from a peer.
    pub max_message_bytes: Option<u64>,
    /// The most frames of a message taken from a peer.
    pub max_message_frames: Option<usize>,
    /// The time a peer has for its handshake.
    pub handshake_timeout: Option<Duration>,
    /// The bytes it has for that, and for a command.
    pub max_handshake_bytes: Option<usize>,
    /// Queue for connected peers only.
    pub immediate: bool,
    /// A ROUTER reports peers it cannot reach.
    pub mandatory: bool,
    /// ZMTP heartbeats: interval and time-out.
    pub heartbeat: Option<(Duration, Duration)>,
    /// Our routing id.
    pub routing_id: Option<Bytes>,
    /// Encryption and authentication.
    pub curve: Option<Curve>,
    /// Messages in an envelope, which ends in an empty frame, tell the host they come from: they are rare beside those
    /// that stream, which pay nothing for it.
    pub hosts: bool,
    /// What UDP hears besides what is sent to this host.
    pub multicast: Option<Multicast>,
    /// Options by the transport's own number.
    pub extra: Vec<(i32, OptionValue)>,
}

/// A multicast group, on all networks of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multicast {
    /// Its address.
    pub group: Ipv4Addr,
    /// How many routers what is sent to it may pass.
    pub ttl: u8,
}

/// The value of a transport's own option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionValue {
    /// A number; the transport knows its width.
    Int(i64),
    /// A string or blob.
    Bytes(Bytes),
}

/// CURVE keys of one socket, 32 bytes each.
#[derive(Clone, PartialEq, Eq)]
pub enum Curve {
    /// The listening side; every client key is asked for over ZAP.
    Server {
        /// Its secret key.
        secret: Zeroizing<[u8; 32]>,
    },
    /// The dialling side.
    Client {
        /// Its public key.
        public: [u8; 32],
        /// Its secret key.
        secret: Zeroizing<[u8; 32]>,
        /// The key the server must prove to have.
        server: [u8; 32],
    },
}

impl fmt::Debug for Curve {
    /// Never shows a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server { .. } => "Curve::Server",
            Self::Client { .. } => "Curve::Client",
        })
    }
}
