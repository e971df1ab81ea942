//! The first bytes of either side: RFC 37, "Formal Grammar" and "Version Negotiation", and RFC 15 for ZMTP 2.0.

use crate::SocketType;
use crate::reason::{Fault, Reason};

/// The bytes of a greeting; of its beginning, up to the major version; of one of ZMTP 2.0.
pub(crate) const GREETING: usize = 64;
pub(crate) const BEGINNING: usize = 11;
pub(crate) const SECOND: usize = 12;

const VERSION: [u8; 2] = [3, 1];
const MECHANISM: std::ops::Range<usize> = 12..32;
const AS_SERVER: usize = 32;

/// The mechanism without security.
const NULL: &str = "NULL";

/// Known mechanisms that are not supported.
const UNSPOKEN: [&[u8]; 2] = [b"GSSAPI", b"PLAIN"];

/// The version of a peer, as soon as it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// ZMTP 2.0, which knows neither security nor commands.
    Second,
    /// ZMTP 3.
    Third,
}

/// The contents of a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// Of ZMTP 2.0, by a socket of this type.
    Second(SocketType),
    /// Of ZMTP 3.
    Third {
        /// Its minor version, at most the latest we know.
        minor: u8,
        /// Whether its sender is the server of the security handshake.
        as_server: bool,
    },
}

/// The version of the peer whose greeting begins so.
pub(crate) fn version(bytes: &[u8]) -> Option<Version> {
    match *bytes.get(..BEGINNING)? {
        [0xff, .., 0x7f, 1 | 2] => Some(Version::Second),
        [0xff, .., 0x7f, 3..=u8::MAX] => Some(Version::Third),
        _ => None,
    }
}

/// What follows the beginning for a peer of ZMTP 2.0, which takes a later version for its own: the type of the socket.
pub(crate) fn second(socket: SocketType) -> [u8; 1] {
    [SECOND_TYPES.iter().find(|(_, known)| *known == socket).map_or(0, |(code, _)| *code)]
}

/// The types of sockets in ZMTP 2.0.
const SECOND_TYPES: [(u8, SocketType); 6] = [
    (3, SocketType::Req),
    (4, SocketType::Rep),
    (5, SocketType::Dealer),
    (6, SocketType::Router),
    (7, SocketType::Pull),
    (8, SocketType::Push),
];

/// The greeting of a side that has this mechanism.
pub(crate) fn write(mechanism: &str, as_server: bool) -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    (bytes[0], bytes[9]) = (0xff, 0x7f);
    bytes[10..12].copy_from_slice(&VERSION);
    bytes[MECHANISM.start..MECHANISM.start + mechanism.len()].copy_from_slice(mechanism.as_bytes());
    bytes[AS_SERVER] = as_server.into();
    bytes
}

/// Reads a greeting as far as it has come, and refuses it as early as possible; `None` while it may still be good.
pub(crate) fn read(bytes: &[u8], mechanism: &str, as_server: bool) -> Result<Option<Greeting>, Fault> {
    match bytes {
        // ZMTP 1 begins with an identity frame, which has a length and no flags.
        [1..=0xfe, flags, ..] if *flags == 0 => return Err(Reason::Zmtp1.into()),
        [1..=0xfe] | [] => return Ok(None),
        [0xff, ..] => {}
        [..] => return Err(Reason::NotZmtp.into()),
    }
    // The eight bytes between are padding; an identity of 255 bytes and more has its length there.
    match bytes.get(9) {
        Some(0x7f) | None => {}
        Some(last) if last & 1 == 0 => return Err(Reason::Zmtp1.into()),
        Some(_) => return Err(Reason::NotZmtp.into()),
    }
    match bytes.get(10) {
        Some(0) => return Err(Reason::NotZmtp.into()),
        Some(1 | 2) if mechanism == NULL => {
            let Some(code) = bytes.get(BEGINNING) else { return Ok(None) };
            let known = SECOND_TYPES.iter().find(|(known, _)| known == code);
            return known
                .map(|(_, socket)| Some(Greeting::Second(*socket)))
                .ok_or_else(|| Reason::BadSocketType.into());
        }
        // It has no encryption.
        Some(1 | 2) => return Err(Reason::Zmtp2.into()),
        Some(_) | None => {}
    }
    let Some(greeting) = bytes.get(..GREETING) else { return Ok(None) };
    let name = &greeting[MECHANISM];
    let name = &name[..name.iter().position(|byte| *byte == 0).unwrap_or(name.len())];
    if name != mechanism.as_bytes() {
        let is_spoken = matches!(name, b"NULL" | b"CURVE");
        let reason = if is_spoken { Reason::OtherMechanism } else { Reason::BadMechanism };
        let is_named = is_spoken || UNSPOKEN.contains(&name);
        return Err(if is_named { Fault::with(reason, name) } else { reason.into() });
    }
    let minor = if greeting[10] > VERSION[0] { VERSION[1] } else { greeting[11].min(VERSION[1]) };
    let is_server = greeting[AS_SERVER] == 1;
    // libzmq's servers do not claim the role: only a server that meets another server notices.
    if is_server && as_server {
        return Err(Reason::SameRole.into());
    }
    Ok(Some(Greeting::Third { minor, as_server: is_server }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8]) -> Option<Reason> {
        read(bytes, "NULL", false).err().map(|fault| fault.0)
    }

    #[test]
    fn every_type_has_a_number_in_zmtp_2() {
        let codes = SocketType::ALL.map(|socket| second(socket)[0]);
        assert_eq!(codes, [5, 7, 8, 4, 3, 6]);
    }

    #[test]
    fn is_read_as_written() {
        let bytes = write("CURVE", true);
        assert_eq!(read(&bytes, "CURVE", false), Ok(Some(Greeting::Third { minor: 1, as_server: true })));
        assert_eq!(read(&bytes, "CURVE", true), Err(Reason::SameRole.into()));
        assert!((0..GREETING).all(|cut| read(&bytes[..cut], "CURVE", true) == Ok(None)));
    }

    #[test]
    fn versions_are_negotiated() {
        let mut bytes = write("NULL", false);
        bytes[1..9].fill(7);
        for (version, minor) in [([3, 0], 0), ([3, 1], 1), ([3, 9], 1), ([4, 0], 1)] {
            bytes[10..12].copy_from_slice(&version);
            assert_eq!(read(&bytes, "NULL", false), Ok(Some(Greeting::Third { minor, as_server: false })));
        }
        bytes[10..12].copy_from_slice(&[1, 5]);
        assert_eq!((read(&bytes[..11], "NULL", false), version(&bytes[..10])), (Ok(None), None));
        assert_eq!(read(&bytes[..12], "NULL", false), Ok(Some(Greeting::Second(SocketType::Dealer))));
        assert_eq!(version(&bytes[..11]), Some(Version::Second));
        assert_eq!(read(&bytes[..11], "CURVE", false), Err(Reason::Zmtp2.into()));
        bytes[11] = 1;
        assert_eq!(refused(&bytes[..12]), Some(Reason::BadSocketType));
        bytes[9] = 0;
        assert_eq!(refused(&bytes[..10]), Some(Reason::Zmtp1));
        assert_eq!(refused(b"\x01\0"), Some(Reason::Zmtp1));
    }

    #[test]
    fn what_is_no_zmtp_is_refused_at_once() {
        for bytes in [&b"GET / HTTP/1.1"[..], b"\0", b"\x16\x03\x01", b"\xff\0\0\0\0\0\0\0\0\x01"] {
            assert_eq!(refused(bytes), Some(Reason::NotZmtp));
        }
    }

    #[test]
    fn mechanisms_are_not_bargained_over() {
        let refused = |mechanism| read(&write(mechanism, false), "CURVE", true);
        assert_eq!(refused("NULL"), Err(Fault::with(Reason::OtherMechanism, b"NULL")));
        assert_eq!(refused("PLAIN"), Err(Fault::with(Reason::BadMechanism, b"PLAIN")));
        assert_eq!(refused("GSSAPI"), Err(Fault::with(Reason::BadMechanism, b"GSSAPI")));
        assert_eq!(refused("CURVES"), Err(Reason::BadMechanism.into()));
    }
}
