//! What all connections of a socket have in common.

use std::sync::Arc;

use bytes::Bytes;

use crate::curve::{ClientKeys, ServerKeys};
use crate::{Heartbeat, Limits, SocketType};

/// The settings of a socket's connections.
#[derive(Clone, Debug)]
pub struct Settings {
    pub socket_type: SocketType,
    /// Its routing id at ROUTERs: RFC 37, "The Identity Property".
    pub identity: Bytes,
    /// The security that a peer must use: it is not negotiated.
    pub security: Security,
    /// How much memory and time a peer may take.
    pub limits: Limits,
    /// When to send PINGs, if at all.
    pub heartbeat: Option<Heartbeat>,
}

impl Settings {
    /// Whether the peer should hang up when we are silent for long.
    pub fn has_ttl(&self) -> bool {
        self.heartbeat.is_some_and(|heartbeat| heartbeat.ttl.is_some())
    }

    /// Those of a socket without security.
    ///
    /// # Panics
    /// When the routing id is longer than 255 bytes or begins with a zero byte, which no ROUTER takes.
    pub fn new(socket_type: SocketType, identity: Bytes) -> Self {
        assert!(identity.len() <= 255 && identity.first() != Some(&0), "no routing id of a peer's own");
        let (limits, heartbeat) = (Limits::default(), None);
        Self { socket_type, identity, security: Security::Null, limits, heartbeat }
    }
}

/// The security of a connection: RFC 37, "Authentication and Confidentiality".
#[derive(Clone, Debug)]
pub enum Security {
    /// None: any peer may connect, and anyone on the path may read.
    Null,
    /// RFC 25: the server proves that it has its key, and learns ours.
    CurveClient(Arc<ClientKeys>),
    /// RFC 25: [`Event::Authenticate`](crate::Event::Authenticate) asks for each client's admission.
    CurveServer(Arc<ServerKeys>),
}

impl Security {
    /// The name of the mechanism in the greeting.
    pub(crate) fn mechanism(&self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::CurveClient(_) | Self::CurveServer(_) => "CURVE",
        }
    }

    /// Whether it is CURVE.
    pub fn is_curve(&self) -> bool {
        !matches!(self, Self::Null)
    }

    /// Whether this side is the server of the handshake.
    pub(crate) fn is_server(&self) -> bool {
        matches!(self, Self::CurveServer(_))
    }
}

/// Which side of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Accepted,
    Dialled,
}
