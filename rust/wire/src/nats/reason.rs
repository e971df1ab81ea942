//! Why a connection to a server is given up.

use std::{error::Error, fmt};

crate::kinds! {
    /// Why a connection to a NATS server is given up: a closed list.
    Reason:
    NotNats "not_nats" "it does not speak NATS",
    BadInfo "bad_info" "it sent an INFO that is no object of what a server says of itself",
    TooLong "too_long" "it sent a message or a line that is longer than any of a NATS server",
    BadLine "bad_line" "it sent a line that no NATS server sends",
    BadMessage "bad_message" "it sent a message without its end",
    Unexpected "unexpected" "it sent a message before the login was over",
    Flooded "flooded" "it sends PINGs and does not read their answers",
    Unencrypted "unencrypted" "the server does not encrypt: set up TLS there, or leave out tls and tls://",
    Untrusted "untrusted" "its certificate is not trusted",
    BadTls "bad_tls" "encryption has failed",
    Denied "denied" "it refused the login",
    Ended "ended" "it ended the connection",
    HandshakeTimeout "handshake_timeout" "it did not answer in time",
    Silent "silent" "the NATS server does not answer pings",
    HandshakeCut "handshake_cut" "it hung up before the login was over",
    HungUp "hung_up" "the NATS server closed the connection",
}

/// A connection that is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub reason: Reason,
    /// The offset in the server's bytes: the beginning of the last message or line handled.
    pub offset: u64,
    /// The server's own words, or other details.
    pub detail: Option<Box<str>>,
}

impl Failure {
    /// Whether it is about trust between client and server, so that trying again is no use until one of them changes.
    pub fn is_final(&self) -> bool {
        matches!(self.reason, Reason::Denied | Reason::Unencrypted | Reason::Untrusted)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.reason, &self.detail) {
            // The server's words say all.
            (Reason::Denied | Reason::Ended, Some(detail)) if !detail.is_empty() => f.write_str(detail),
            (reason, None) => f.write_str(reason.meaning()),
            (reason, Some(detail)) => write!(f, "{}: {detail}", reason.meaning()),
        }
    }
}

impl Error for Failure {}
