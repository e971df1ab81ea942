//! Why a connection ended, in words that say what to check.

use trunkline_zmtp::{Failure, Reason};

/// Whether such an end is likely to repeat at the next attempt.
pub(super) fn is_final(reason: Reason) -> bool {
    !matches!(
        reason,
        Reason::HungUp
            | Reason::HandshakeCut
            | Reason::MessageCut
            | Reason::HandshakeTimeout
            | Reason::HeartbeatTimeout
            | Reason::TtlExpired
            | Reason::HandedOver
            | Reason::Undecided
            | Reason::Silent
            | Reason::Crowded
            | Reason::Unread
    )
}

/// Why a connection ended, and what to check.
#[allow(clippy::wildcard_enum_match_arm)] // the others describe themselves
pub(super) fn refusal(failure: &Failure, is_dialled: bool, is_curve: bool) -> String {
    match failure.reason {
        Reason::HandshakeCut if is_dialled && is_curve => {
            "the peer disconnected during the handshake: is the server key \
            the one of this server, is it encrypted, and does it take another connection?"
                .to_owned()
        }
        Reason::HandshakeCut => "the peer disconnected during the handshake: is only one side encrypted, or are there \
            too many connections?"
            .to_owned(),
        Reason::OtherMechanism => format!("{failure}: is only one side encrypted?"),
        Reason::BadHello | Reason::BadInitiate => format!("the keys of the two sides do not fit together: {failure}"),
        Reason::Denied => "its key is not allowed".to_owned(),
        Reason::Revoked => "its key is no longer allowed".to_owned(),
        Reason::Refused if is_dialled && failure.detail.as_deref() == Some("400") => {
            "the peer does not allow this key".to_owned()
        }
        _ => failure.to_string(),
    }
}
