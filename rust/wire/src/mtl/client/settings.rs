//! The settings, verbs, events and counters of a client.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::mtl::control::{Command, Reply};
use crate::question::Token;
use crate::{CallId, Connection, DecodeError, DropCounts, Dropped, SocketOptions};

#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Where the server listens; another endpoint is tried when one does not answer.
    pub connect: Vec<String>,
    pub options: SocketOptions,
    pub virtual_host: String,
    pub profile: String,
    /// The default timeout of a command.
    pub timeout: Duration,
    /// Whether a capture contains passwords and leases.
    pub shows_secrets: bool,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            connect: vec![],
            options: SocketOptions::default(),
            virtual_host: "/".to_owned(),
            profile: "queue".to_owned(),
            timeout: Duration::from_secs(5),
            shows_secrets: false,
        }
    }
}

/// The client's sockets, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientSocket(pub u32);

/// What the user of a client may request.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientVerb {
    /// Send a command, in a session that is opened if there is none.
    Call {
        /// The number of the call.
        call: CallId,
        /// The command; `None` to open a session only.
        command: Option<Command>,
        /// How long it may take.
        timeout: Option<Duration>,
    },
    /// Stop waiting for a call.
    Cancel(CallId),
    /// The answer to a question about a login.
    Answer(Token, ClientAnswer),
}

/// A question about a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginStep {
    /// Begin it with one of these mechanisms (MTL-14).
    Begin {
        /// Their names.
        mechanisms: Vec<String>,
    },
    /// Answer this challenge (MTL-17).
    Challenge {
        mechanism: String,
        /// The challenge of the server.
        challenge: Bytes,
    },
}

/// The answer to a question about a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAnswer {
    /// Continue with a response.
    Respond {
        mechanism: String,
        response: Bytes,
        /// Whether the server may end the login now: it has proved what the mechanism asks of it.
        is_done: bool,
    },
    /// Give up, for this reason.
    GiveUp(String),
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The session is open, as requested.
    Entered,
    /// With a reply, of whatever status.
    Reply(Reply),
    /// The server refused the login; it offers these mechanisms.
    Unauthenticated(Vec<String>),
    /// The client gave up the login for this reason; the server offers these mechanisms.
    NoLogin(String, Vec<String>),
    /// The reply is invalid.
    Garbled(DecodeError),
    /// There was no reply in time.
    TimedOut,
    /// The connection was lost before the reply arrived.
    Lost,
    /// The client was closed before the reply arrived.
    Unanswered,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ClientEvent {
    /// A call has ended.
    Ended(CallId, Outcome),
    /// Asks how to continue a login.
    Asked {
        /// The number of the question.
        token: Token,
        /// The step of the login.
        step: LoginStep,
        /// Whether the connection is protected from eavesdroppers.
        is_private: bool,
    },
    /// An invalid reply.
    Dropped(Dropped),
    /// What became of a connection.
    Connection(Connection),
}

/// Counters of a client's control connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClientStats {
    /// Messages received, valid or not.
    pub received: u64,
    /// Commands sent.
    pub sent: u64,
    /// Dropped messages, by kind.
    pub dropped: DropCounts,
    /// Bytes of all frames received.
    pub bytes: u64,
    /// Connections re-established.
    pub reconnects: u64,
    /// The endpoint in use.
    #[serde(skip)]
    pub endpoint: String,
    /// Whether the current session has reached its login.
    #[serde(skip)]
    pub logs_in: bool,
}
