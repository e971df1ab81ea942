//! The interface between a protocol and the owner of its sockets.
//!
//! **Every mutation is followed by a complete drain of [`Machine::poll_output`] and [`Machine::poll_event`]; then the
//! driver waits for a socket or for [`Machine::poll_timeout`].** A driver may hand over several messages before it
//! drains the outputs. It carries them out in order for each peer, and reports what became of each.

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
/// No input from a peer makes a method fail or panic: what cannot be used becomes an event.
pub trait Machine {
    /// The machine's own name for each of its sockets.
    type Socket: Copy + Eq + Hash + fmt::Debug + Send + 'static;
    /// Events for the user.
    type Event: Event;
    /// Requests of the user.
    type Verb: Send + 'static;
    /// Counters, as the user sees them.
    type Stats: Clone + Default + Send + 'static;

    /// Handles one whole message. Returns what it was.
    fn handle_message(&mut self, now: Nanos, incoming: Incoming<Self::Socket>) -> Verdict;

    /// Handles an event of a socket.
    fn handle_socket(&mut self, now: Nanos, socket: Self::Socket, event: SocketEvent);

    /// Does all that is due. Early calls are harmless.
    fn handle_timeout(&mut self, now: Nanos);

    /// Handles a request of the user.
    fn handle_verb(&mut self, now: Nanos, verb: Self::Verb);

    /// Starts an orderly end that takes at most `grace`, after which [`is_closed`](Self::is_closed) is true. A further
    /// call may shorten it; a driver waits no longer than its last `grace`.
    fn handle_close(&mut self, now: Nanos, grace: Duration);

    /// The next output, until there is none.
    #[must_use]
    fn poll_output(&mut self) -> Option<Output<Self::Socket>>;

    /// What the row of an outgoing message needs beyond its frames.
    fn label(&self, _socket: Self::Socket, _to: Option<&Bytes>, _frames: &[Bytes]) -> Label {
        Label::default()
    }

    /// What a recording contains in place of a message with secrets.
    fn shown(&self, _socket: Self::Socket, _frames: &[Bytes]) -> Option<Frames> {
        None
    }

    /// The next event for the user, until there is none.
    #[must_use]
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When to call [`handle_timeout`](Self::handle_timeout) next.
    fn poll_timeout(&self) -> Option<Nanos>;

    /// The current Unix time, in milliseconds: clocks are adjusted. A driver gives it before messages.
    fn handle_clock(&mut self, _now: Nanos, _unix_ms: i64) {}

    /// Messages stay unread from now on because the user or the disk is slow, or are read again.
    fn handle_pressure(&mut self, _now: Nanos, _pressed: bool) {}

    /// Whether to read messages of this socket now.
    fn reads(&self, _socket: Self::Socket) -> bool {
        true
    }

    /// How much of its verbs the machine still holds: count and bytes.
    fn backlog(&self) -> Backlog {
        Backlog::default()
    }

    /// Messages received since the start, for users to wait for.
    fn progress(&self) -> u64 {
        0
    }

    /// The current counters.
    fn stats(&self) -> Self::Stats;

    /// Whether the orderly end is over and every socket closed.
    fn is_closed(&self) -> bool;
}

/// How an event counts against the queue between the driver and the user.
pub trait Event: Send + 'static {
    /// The event's class and size in bytes.
    fn weight(&self) -> Weight;

    /// The peer and message it reports, if any.
    #[inline]
    fn origin(&mut self) -> Option<&mut Origin> {
        None
    }

    /// What is reported in place of this event, if it may be dropped when the queue is full.
    fn shed() -> Option<Self>
    where
        Self: Sized,
    {
        None
    }
}

/// What happens to an event if the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Never dropped: a full queue stops the reading of sockets.
    Lossless(usize),
    /// Dropped, and counted, if the user does not keep up.
    Notice(usize),
}

/// An amount of queued work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// The number of messages.
    pub messages: usize,
    /// The bytes of their frames.
    pub bytes: usize,
}

/// One whole received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming<S> {
    /// The socket it arrived on.
    pub socket: S,
    /// The sender's routing id (ROUTER) or address (UDP).
    pub peer: Option<Bytes>,
    /// The sender, as authenticated.
    pub user_id: Option<Bytes>,
    /// The host it was sent from, if available: see [`SocketOptions::hosts`].
    pub host: Option<Box<str>>,
    /// The frames, without routing id.
    pub frames: Frames,
}

/// What only the machine knows of a message, for its row in a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// Its framing, if the role has several.
    pub framing: Option<Framing>,
    /// Its topic, if its frames do not contain it.
    pub topic: Option<Bytes>,
}

/// What a received message was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why its bytes are not a valid message.
    pub error: Option<ErrorKind>,
    /// Further fields of its row.
    pub label: Label,
}

impl From<ErrorKind> for Verdict {
    fn from(error: ErrorKind) -> Self {
        Self { error: Some(error), label: Label::default() }
    }
}

/// The machine's number of a send whose result it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SendId(pub u64);

/// What happened to a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketEvent {
    /// It listens, on this resolved endpoint.
    Bound(String),
    /// It could not be opened, bound or connected.
    OpenFailed {
        /// The endpoint in question; empty when the socket itself failed.
        endpoint: String,
        /// The transport's reason.
        reason: String,
    },
    /// A peer has connected and completed the handshake.
    Connected(Remote),
    /// A peer has disconnected.
    Disconnected(Remote),
    /// A peer was refused, or refused us.
    HandshakeFailed {
        /// Our endpoint.
        endpoint: String,
        /// The transport's reason.
        reason: String,
    },
    /// An endpoint that is dialled cannot be reached; reported once until it has been, though it is tried again.
    Unreachable {
        endpoint: String,
        /// The system's reason.
        reason: String,
    },
    /// A server in between says something; the connection goes on.
    Server(ServerNotice),
    /// The transport took a send.
    Sent(SendId),
    /// The transport has given up a send.
    Unsent(SendId, Unsent),
    /// The socket is closed.
    Closed,
}

impl SocketEvent {
    /// The connection event it amounts to, if any.
    #[inline]
    #[must_use]
    pub fn connection(&self) -> Option<Connection> {
        match self {
            Self::Connected(remote) => Some(Connection::Made(remote.clone())),
            Self::Disconnected(remote) => Some(Connection::Lost(remote.clone())),
            Self::OpenFailed { endpoint, reason } | Self::HandshakeFailed { endpoint, reason } => {
                Some(Connection::Failed { endpoint: endpoint.clone(), reason: reason.clone() })
            }
            Self::Unreachable { endpoint, reason } => {
                Some(Connection::Unreachable { endpoint: endpoint.clone(), reason: reason.clone() })
            }
            Self::Server(notice) => Some(Connection::Server(notice.clone())),
            Self::Bound(_) | Self::Sent(_) | Self::Unsent(..) | Self::Closed => None,
        }
    }
}

/// What a transport learns of a server between the peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerNotice {
    /// The login is over: what comes from now on comes from this server.
    Used(String),
    /// The connection to the server is lost.
    Left,
    /// It refuses the login, or is not trusted: trying again is no use until that changes.
    Denied { endpoint: String, reason: String },
    /// It forbids a subject, in these words.
    Forbidden(String),
    /// The largest body that it takes, in bytes.
    MaxPayload(usize),
    /// A message is not sent, for this reason.
    Unsent(String),
}

/// The other end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// The endpoint of the connection: the one that was dialled, or ours.
    pub endpoint: String,
    /// The address of a peer that dialled us, if the transport knows.
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

/// What became of a connection, as every role reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// A peer is connected.
    Made(Remote),
    /// A connected peer is gone.
    Lost(Remote),
    /// An endpoint could not be used, or a peer was refused.
    Failed {
        /// The endpoint; empty when the socket itself failed.
        endpoint: String,
        /// The reason, in words.
        reason: String,
    },
    /// An endpoint that is dialled cannot be reached for now.
    Unreachable {
        endpoint: String,
        /// The system's reason.
        reason: String,
    },
    /// A server in between says something.
    Server(ServerNotice),
}

/// Why a send was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// No such peer.
    Unreachable,
    /// The peer's outbox is full.
    PeerFull,
    /// It was not taken before its deadline, or was withdrawn.
    Expired,
    /// The socket was closed first.
    Closed,
}

/// What to do on a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<S> {
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
    /// Give up a send that the transport has not taken yet: [`Unsent::Expired`] follows. One that it has taken is sent.
    Withdraw { socket: S, id: SendId },
    /// Open a socket; boxed, as it is much larger than a send.
    Open(Box<Open<S>>),
    /// Connect an open socket to one more endpoint.
    Connect { socket: S, endpoint: String },
    /// Disconnect a socket from an endpoint.
    Disconnect { socket: S, endpoint: String },
    /// Close a socket; [`SocketEvent::Closed`] follows.
    Close {
        socket: S,
        /// How long the transport may continue to send what it has taken.
        linger: Duration,
    },
}

impl<S> Output<S> {
    /// The same output with another name for its socket.
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

    /// The receiver of a message: a routing id or address.
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
    /// Options to set before.
    pub options: SocketOptions,
}

/// The ZeroMQ pattern of a socket, or another transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SocketKind {
    Dealer,
    /// NATS subscriptions, not a ZeroMQ pattern. It binds subjects, each followed by a space and its queue group, if
    /// any; `peer` and `to` are subjects. A message is the reply subject, the header block and the body, each of which
    /// may be empty.
    Nats,
    Pull,
    Push,
    Req,
    Router,
    /// The engine's own datagrams, not a ZeroMQ pattern. `peer` and `to` are addresses, as `192.0.2.1:7123`. Messages
    /// to a multicast group go to every network of this host, and those to 255.255.255.255 to every network's broadcast
    /// address; `@` and an address of this host after it limit this to that address's network.
    Udp,
}

/// Options of a socket, set before it is bound or connected; `None` keeps the transport's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each is an option of its own
pub struct SocketOptions {
    /// Messages the transport may queue for sending, per peer.
    pub send_hwm: Option<u32>,
    /// Received messages the transport may queue, per peer.
    pub receive_hwm: Option<u32>,
    /// The largest frame accepted from a peer.
    pub max_message_bytes: Option<u64>,
    /// The most frames of a message accepted from a peer.
    pub max_message_frames: Option<usize>,
    /// The time a peer has for its handshake.
    pub handshake_timeout: Option<Duration>,
    /// The bytes it has for the handshake, and for a command.
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
    /// Report the host of messages in an envelope, which ends in an empty frame. Such messages are rare; streams do not
    /// pay for it.
    pub hosts: bool,
    /// The multicast group that UDP receives, besides datagrams to this host.
    pub multicast: Option<Multicast>,
    /// Options by the transport's own number.
    pub extra: Vec<(i32, OptionValue)>,
}

/// A multicast group, on all networks of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multicast {
    /// Its address.
    pub group: Ipv4Addr,
    /// How many routers a datagram to it may pass.
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
    /// The listening side; every client key is checked by ZAP.
    Server { secret: Zeroizing<[u8; 32]> },
    /// The dialling side.
    Client {
        public: [u8; 32],
        secret: Zeroizing<[u8; 32]>,
        /// The key that the server must prove.
        server: [u8; 32],
    },
}

impl fmt::Debug for Curve {
    /// Omits the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server { .. } => "Curve::Server",
            Self::Client { .. } => "Curve::Client",
        })
    }
}
