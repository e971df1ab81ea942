//! The frames of a message, by position.

use std::ops::{Range, RangeFrom};

use bytes::Bytes;

/// The frame that ends the address.
pub(super) const DELIMITER: usize = 0;
/// The frame that names the protocol and its version.
pub(super) const PROTOCOL: usize = 1;
/// The frame of the type.
pub(super) const TYPE: usize = 2;
/// The frames of a header, as a DEALER sees them.
pub(super) const HEADER: usize = 3;
/// The service of a registration or request.
pub(super) const SERVICE: usize = 3;
/// The client's address in a request that has one.
pub(super) const REQUEST_CLIENT: usize = 4;
/// The client's address in a reply.
pub(super) const REPLY_CLIENT: usize = 3;

/// Every type in the four bytes of the original implementation; the first byte is the type of the spec.
static TYPES: [[u8; 4]; 6] =
    [[0x01, 0, 0, 0], [0x02, 0, 0, 0], [0x03, 0, 0, 0], [0x04, 0, 0, 0], [0x05, 0, 0, 0], [0x06, 0, 0, 0]];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageType {
    /// A worker offers a service; the broker confirms with the same message.
    Register,
    /// A worker is alive, and asks for work.
    Ping,
    /// The broker is alive, or a worker that asks for no work.
    Pong,
    /// A client requests something of a service.
    Request,
    /// A worker answers.
    Reply,
    /// The broker does not know this worker.
    Reconnect,
}

impl MessageType {
    /// Every type, in the order of their numbers.
    pub const ALL: [Self; 6] = [Self::Register, Self::Ping, Self::Pong, Self::Request, Self::Reply, Self::Reconnect];

    /// The type of a frame: one byte as in the spec or, if `wide`, four as in the original implementation.
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
    /// As in the spec.
    #[default]
    One = 1,
    /// As in the original implementation.
    Four = 4,
}

/// The reader of a message: each role may receive only some types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Receives everything but reconnects.
    Broker,
    /// Receives everything but pings.
    Worker,
    /// Receives replies.
    Client,
}

impl Role {
    /// Whether this role may receive such messages.
    pub const fn takes(self, message_type: MessageType) -> bool {
        match self {
            Self::Broker => !matches!(message_type, MessageType::Reconnect),
            Self::Worker => !matches!(message_type, MessageType::Ping),
            Self::Client => matches!(message_type, MessageType::Reply),
        }
    }
}

/// Which messages are valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The role of the reader; `None` accepts every type.
    pub role: Option<Role>,
    /// Accept types of four bytes too, as written by the original implementation (DCP-11).
    pub compat_dagbox: bool,
}

/// A valid message: the meaning of its frames. A service is always the fourth frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    Register,
    /// A heartbeat that asks for work.
    Ping,
    /// A heartbeat that asks for nothing.
    Pong,
    Request(Body),
    Reply(Body),
    /// A request to register again.
    Reconnect,
}

impl Layout {
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

    /// The frame that names the service, if the message has one.
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
