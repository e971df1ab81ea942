//! What the frames of a message are, by position.

use std::ops::{Range, RangeFrom};

use bytes::Bytes;

/// The frame that ends the address.
pub(super) const DELIMITER: usize = 0;
/// The frame that names the protocol and its version.
pub(super) const PROTOCOL: usize = 1;
/// The frame that tells the type.
pub(super) const TYPE: usize = 2;
/// The frames of a header, as a DEALER sees them.
pub(super) const HEADER: usize = 3;
/// The service of a registration or request.
pub(super) const SERVICE: usize = 3;
/// The client's address in a request that has one.
pub(super) const REQUEST_CLIENT: usize = 4;
/// The client's address in a reply.
pub(super) const REPLY_CLIENT: usize = 3;

/// Every type as the original's four bytes; the first of them is the type of the spec.
static TYPES: [[u8; 4]; 6] =
    [[0x01, 0, 0, 0], [0x02, 0, 0, 0], [0x03, 0, 0, 0], [0x04, 0, 0, 0], [0x05, 0, 0, 0], [0x06, 0, 0, 0]];

/// The type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageType {
    /// A worker offers a service; the broker confirms with the same message.
    Register,
    /// A worker lives, and asks for work.
    Ping,
    /// The broker lives, or a worker that wants no work.
    Pong,
    /// A client wants something of a service.
    Request,
    /// What a worker answers.
    Reply,
    /// The broker does not know this worker.
    Reconnect,
}

impl MessageType {
    /// Every type, in the order of their numbers.
    pub const ALL: [Self; 6] = [Self::Register, Self::Ping, Self::Pong, Self::Request, Self::Reply, Self::Reconnect];

    /// The type whose frame this is, in the one byte of the spec or, where `wide`, the four of the original.
    pub fn from_frame(frame: &[u8], wide: bool) -> Option<Self> {
        let [number, rest @ ..] = frame else { return None };
        let fits = rest.is_empty() || (wide && rest == [0; 3]);
        let index = usize::from(number.checked_sub(1)?);
        Self::ALL.get(index).copied().filter(|_| fits)
    }

    /// The type frame.
    pub fn frame(self, width: Width) -> Bytes {
        Bytes::from_static(&TYPES[self as usize][..width as usize])
    }

    /// The name of the type.
    pub const fn slug(self) -> &'static str {
        match self {
            Self::Register => "register",
            Self::Ping => "ping",
            Self::Pong => "pong",
            Self::Request => "request",
            Self::Reply => "reply",
            Self::Reconnect => "reconnect",
        }
    }
}

/// The width of a type frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Width {
    /// The spec's.
    #[default]
    One = 1,
    /// The original implementation's.
    Four = 4,
}

/// Who reads a message: each role is sent some types only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Sent everything but reconnects.
    Broker,
    /// Sent everything but pings.
    Worker,
    /// Sent replies.
    Client,
}

impl Role {
    /// Whether this role may be sent such messages.
    pub const fn takes(self, message_type: MessageType) -> bool {
        match self {
            Self::Broker => !matches!(message_type, MessageType::Reconnect),
            Self::Worker => !matches!(message_type, MessageType::Ping),
            Self::Client => matches!(message_type, MessageType::Reply),
        }
    }
}

/// Which frames are messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Whose messages they are; `None` takes every type.
    pub role: Option<Role>,
    /// Take types of four bytes as well, as the original implementation writes them (DCP-11).
    pub compat_dagbox: bool,
}

/// A good message: what its frames are. A service is always the fourth frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// A registration.
    Register,
    /// A heartbeat that asks for work.
    Ping,
    /// A heartbeat that asks for nothing.
    Pong,
    /// A request.
    Request(Body),
    /// A reply.
    Reply(Body),
    /// A call to register again.
    Reconnect,
}

impl Layout {
    /// The type of the message.
    pub const fn message_type(&self) -> MessageType {
        match self {
            Self::Register => MessageType::Register,
            Self::Ping => MessageType::Ping,
            Self::Pong => MessageType::Pong,
            Self::Request(_) => MessageType::Request,
            Self::Reply(_) => MessageType::Reply,
            Self::Reconnect => MessageType::Reconnect,
        }
    }

    /// The frame that names the service, where the message has one.
    pub const fn service(&self) -> Option<usize> {
        match self {
            Self::Register | Self::Request(_) => Some(SERVICE),
            Self::Ping | Self::Pong | Self::Reply(_) | Self::Reconnect => None,
        }
    }

    /// What follows the header and the service of a request or reply.
    pub const fn body(&self) -> Option<&Body> {
        match self {
            Self::Request(body) | Self::Reply(body) => Some(body),
            Self::Register | Self::Ping | Self::Pong | Self::Reconnect => None,
        }
    }
}

/// Where the parts of a request or reply are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The frame with the client's address; a request may lack it.
    pub client: Option<usize>,
    /// The frames of the metadata.
    pub metadata: Range<usize>,
}

impl Body {
    /// The frames of the data.
    pub const fn data(&self) -> RangeFrom<usize> {
        self.metadata.end + 1..
    }
}
