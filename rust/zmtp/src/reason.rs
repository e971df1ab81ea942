//! Why a connection is given up.

use std::{error::Error, fmt};

trunkline_wire::kinds! {
    /// Why a connection is given up: a closed list, part of the interface.
    Reason:
    NotZmtp "not_zmtp" "what it speaks is not ZMTP",
    Zmtp1 "zmtp_1" "it speaks ZMTP 1",
    Zmtp2 "zmtp_2" "it speaks ZMTP 2",
    BadMechanism "bad_mechanism" "its security mechanism is none that is known here",
    OtherMechanism "other_mechanism" "it offers another security mechanism than this end requires",
    SameRole "same_role" "both sides are the server of the security handshake",
    BadFlags "bad_flags" "a frame with reserved flags, or a command that is said to go on",
    BadLength "bad_length" "a frame of 2^63 bytes or more",
    HandshakeTooLarge "handshake_too_large" "more bytes than a handshake may have",
    HandshakeTimeout "handshake_timeout" "the handshake took too long",
    MessageTooLarge "message_too_large" "a message of more bytes than allowed",
    TooManyFrames "too_many_frames" "a message of more frames than allowed",
    CommandTooLarge "command_too_large" "a command of more bytes than allowed",
    BadCommand "bad_command" "a command without a name, or one that is cut short",
    UnexpectedCommand "unexpected_command" "a command that must not be sent now",
    UnexpectedMessage "unexpected_message" "a message before the end of the handshake",
    Subscription "subscription" "a subscription, which no socket here has a use for",
    BadMetadata "bad_metadata" "metadata that is no list of names and values, or says something twice",
    BadSocketType "bad_socket_type" "a socket that does not go with this one, or does not say what it is",
    BadIdentity "bad_identity" "a routing id that begins with a zero byte or is longer than 255",
    BadPing "bad_ping" "a PING or PONG that is not built as one",
    BadHello "bad_hello" "a CURVE HELLO that is not built as one, or was made for another server",
    BadWelcome "bad_welcome" "a CURVE WELCOME that is not built as one, or comes from another server",
    BadInitiate "bad_initiate" "a CURVE INITIATE that is not built as one, or is not of this handshake",
    BadReady "bad_ready" "a CURVE READY that is not built as one",
    BadMessage "bad_message" "a CURVE MESSAGE that is not built as one, or something that is not encrypted",
    BadNonce "bad_nonce" "a CURVE nonce that was used before",
    Denied "denied" "its key is not allowed",
    Undecided "undecided" "its key was not decided about in time: it may come again",
    Refused "refused" "the peer refused the connection",
    Revoked "revoked" "its key is no longer allowed",
    IdentityTaken "identity_taken" "its routing id is another connection's",
    HandedOver "handed_over" "another connection took over its routing id",
    HeartbeatTimeout "heartbeat_timeout" "nothing was heard of it for too long",
    TtlExpired "ttl_expired" "nothing was heard of it for as long as it said itself",
    Unreachable "unreachable" "its endpoint cannot be reached; counted once until it has been",
    Silent "silent" "its system has not answered for too long",
    HandshakeCut "handshake_cut" "it hung up before the end of the handshake",
    MessageCut "message_cut" "it hung up within a message",
    HungUp "hung_up" "it hung up",
    Crowded "crowded" "messages that have not come in whole take too much memory, and its own comes the most slowly",
    Unread "unread" "what is pending for all peers takes too much memory, and it reads its own the most slowly",
}

/// A connection that is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub reason: Reason,
    /// The offset in the peer's bytes: the beginning of the last frame handled, or of the greeting.
    pub offset: u64,
    /// Details, if they add something: a mechanism, a type of socket, the peer's own words.
    pub detail: Option<Box<str>>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZMTP: {}", self.reason.meaning())?;
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        write!(f, " (byte {})", self.offset)
    }
}

impl Error for Failure {}

/// What is wrong with the last bytes read; the connection adds their offset.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) Reason, pub(crate) Option<Box<str>>);

impl Fault {
    /// With the peer's bytes, of which only printable ones are shown.
    pub(crate) fn with(reason: Reason, words: &[u8]) -> Self {
        const WORDS: usize = 255;
        let shown = |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '?' };
        Self(reason, Some(words.iter().take(WORDS).map(shown).collect()))
    }
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Self {
        Self(reason, None)
    }
}

/// How many connections were given up, by reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally([u64; Reason::ALL.len()]);

impl Tally {
    pub fn count(&mut self, reason: Reason) {
        self.0[reason as usize] += 1;
    }

    /// The count of this reason.
    pub fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    /// The reasons that occurred, each with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.iter().copied().zip(self.0).filter(|(_, count)| *count > 0)
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self([0; Reason::ALL.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_told_apart() {
        let slugs: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.slug()).collect();
        assert_eq!(slugs.len(), Reason::ALL.len());
    }

    #[test]
    fn a_failure_says_what_and_where() {
        let Fault(reason, detail) = Fault::with(Reason::BadMechanism, b"PLA\x1bIN");
        let failure = Failure { reason, offset: 12, detail };
        let text = "ZMTP: its security mechanism is none that is known here: PLA?IN (byte 12)";
        assert_eq!(failure.to_string(), text);
    }

    #[test]
    fn reasons_are_counted() {
        let mut tally = Tally::default();
        tally.count(Reason::Zmtp2);
        tally.count(Reason::HungUp);
        tally.count(Reason::Zmtp2);
        assert_eq!(tally.iter().collect::<Vec<_>>(), [(Reason::Zmtp2, 2), (Reason::HungUp, 1)]);
        assert_eq!(tally.of(Reason::NotZmtp), 0);
    }
}
