//! How a client is set up, what it is asked for, what it tells and what it counts.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use crate::mtl::control::{Command, Reply};
use crate::question::Token;
use crate::{CallId, Connection, DecodeError, DropCounts, Dropped, SocketOptions};

/// How a client is set up.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Where the server listens; another endpoint is tried when one does not answer.
    pub connect: Vec<String>,
    /// What is set on the socket.
    pub options: SocketOptions,
    /// The virtual host.
    pub virtual_host: String,
    /// The profile.
    pub profile: String,
    /// How long a command may take, where a call does not say.
    pub timeout: Duration,
    /// Whether a recording has passwords and leases in it.
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

/// The client's sockets, of which there is one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientSocket(pub u32);

/// What the user of a client may ask for.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientVerb {
    /// Say a command, in a session that comes about where it is none.
    Call {
        /// The number of the call.
        call: CallId,
        /// The command; nothing where the session is all that is wanted.
        command: Option<Command>,
        /// How long it may take.
        timeout: Option<Duration>,
    },
    /// Wait for a call no more.
    Cancel(CallId),
    /// What to say in a login.
    Answer(Token, ClientAnswer),
}

/// What a login is to go on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginStep {
    /// Any of these mechanisms (MTL-14).
    Begin {
        /// Their names.
        mechanisms: Vec<String>,
    },
    /// An answer to this (MTL-17).
    Challenge {
        /// The mechanism it is of.
        mechanism: String,
        /// What the server says.
        challenge: Bytes,
    },
}

/// How a login goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAnswer {
    /// With this.
    Respond {
        /// The mechanism.
        mechanism: String,
        /// What to say.
        response: Bytes,
        /// Whether the server may end the login now: it has proved all that it has to.
        is_done: bool,
    },
    /// Not at all, for this reason.
    GiveUp(String),
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// There is a session, as was wanted.
    Entered,
    /// With a reply, of whatever status.
    Reply(Reply),
    /// The server lets us in by none of these.
    Unauthenticated(Vec<String>),
    /// We do not log in, for this reason, by any of these.
    NoLogin(String, Vec<String>),
    /// The reply is none.
    Garbled(DecodeError),
    /// There was no reply in time.
    TimedOut,
    /// The connection went before the reply came.
    Lost,
    /// The client closed before the reply came.
    Unanswered,
}

/// What a client tells its user.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientEvent {
    /// A call has ended.
    Ended(CallId, Outcome),
    /// What to say in a login.
    Asked {
        /// The number of the question.
        token: Token,
        /// What the login has come to.
        step: LoginStep,
        /// Whether nobody else can read along.
        is_private: bool,
    },
    /// Bytes that are no reply.
    Dropped(Dropped),
    /// What became of a connection.
    Connection(Connection),
}

/// Counters of a client's control connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClientStats {
    /// Replies off the socket, and what was none.
    pub received: u64,
    /// Commands sent.
    pub sent: u64,
    /// Messages that came to nothing, by kind.
    pub dropped: DropCounts,
    /// Bytes of all frames received.
    pub bytes: u64,
    /// Connections begun anew.
    pub reconnects: u64,
    /// The endpoint it is connected to.
    #[serde(skip)]
    pub endpoint: String,
    /// Whether the session that was begun last has come to a login.
    #[serde(skip)]
    pub logs_in: bool,
}
