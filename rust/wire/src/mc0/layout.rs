//! The frames of a message, by position.

use std::ops::RangeFrom;
use std::time::Duration;

/// The verb of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// A connector introduces itself.
    Connect,
    /// A connector leaves.
    Disconnect,
    /// A connector subscribes to topics.
    Sub,
    /// A connector unsubscribes.
    Unsub,
    /// A connector sends a message to all subscribers of a topic.
    Put,
    /// Either end is alive.
    Noop,
    /// The middleware delivers a message to a subscriber.
    Message,
    /// The middleware has carried out a request.
    Ok,
    /// The middleware has refused a request.
    Error,
}

impl Verb {
    /// Every verb, connectors' first.
    pub const ALL: [Self; 9] = [
        Self::Connect,
        Self::Disconnect,
        Self::Sub,
        Self::Unsub,
        Self::Put,
        Self::Noop,
        Self::Message,
        Self::Ok,
        Self::Error,
    ];

    /// The frame of the verb.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "CONNECT",
            Self::Disconnect => "DISCONNECT",
            Self::Sub => "SUB",
            Self::Unsub => "UNSUB",
            Self::Put => "PUT",
            Self::Noop => "NOOP",
            Self::Message => "MESSAGE",
            Self::Ok => "OK",
            Self::Error => "ERROR",
        }
    }

    /// The verb of a frame; verbs are case-sensitive (MC0-34).
    #[inline]
    pub fn from_frame(frame: &[u8]) -> Option<Self> {
        Some(match frame {
            b"CONNECT" => Self::Connect,
            b"DISCONNECT" => Self::Disconnect,
            b"SUB" => Self::Sub,
            b"UNSUB" => Self::Unsub,
            b"PUT" => Self::Put,
            b"NOOP" => Self::Noop,
            b"MESSAGE" => Self::Message,
            b"OK" => Self::Ok,
            b"ERROR" => Self::Error,
            _ => return None,
        })
    }
}

/// Which messages are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The longest TTL that a connector may request, in milliseconds (MC0-24).
    pub max_ttl_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { max_ttl_ms: 24 * 60 * 60 * 1000 }
    }
}

/// A valid message: the meaning of its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub verb: Verb,
    /// The frame of the verb: 1 after a leading empty frame (MC0-07), else 0.
    pub at: usize,
    /// The number of headers.
    pub pairs: usize,
    /// The first positional frame; the number of frames if there is none.
    pub body: usize,
    /// The value of the last `ID`.
    pub id: Option<usize>,
    /// The value of the last `TOPIC`.
    pub topic: Option<usize>,
    /// The value of the last `VERSION`.
    pub version: Option<usize>,
    /// The value of the last `MESSAGE`, an error's text.
    pub text: Option<usize>,
    /// The value of a CONNECT's last `TTL`; zero is none (MC0-24).
    pub ttl: Option<Duration>,
}

impl Layout {
    /// Whether it has the leading empty frame.
    pub const fn is_delimited(&self) -> bool {
        self.at == 1
    }

    /// The frames of the keys; the frame after each is its value.
    pub fn keys(&self) -> impl Iterator<Item = usize> + use<> {
        let first = self.at + 1;
        (0..self.pairs).map(move |pair| first + 2 * pair)
    }

    /// The positional frames: topics, or a body.
    pub const fn positional(&self) -> RangeFrom<usize> {
        self.body..
    }
}
