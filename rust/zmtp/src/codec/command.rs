//! Commands: RFC 37, "Commands", "The NULL Security Mechanism" and "Connection Heartbeating".

use bytes::{BufMut, BytesMut};

use crate::reason::{Fault, Reason};

/// The longest context of a PING.
const CONTEXT: usize = 16;

/// The name of a command, and its data.
pub(crate) fn split(body: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let (length, rest) = body.split_first().ok_or(Reason::BadCommand)?;
    let split = rest.split_at_checked(usize::from(*length)).filter(|(name, _)| !name.is_empty());
    split.ok_or_else(|| Reason::BadCommand.into())
}

/// A command of this name and data.
pub(crate) fn write(name: &str, data: &[u8]) -> BytesMut {
    let mut body = BytesMut::with_capacity(1 + name.len() + data.len());
    body.put_u8(u8::try_from(name.len()).expect("a short name"));
    body.put_slice(name.as_bytes());
    body.put_slice(data);
    body
}

/// A command after the handshake.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command<'a> {
    /// The peer asks for a PONG, and gives a TTL and a context.
    Ping(u16, &'a [u8]),
    /// A command of a later version, or an answer to ours: it only shows that the peer is alive.
    Alive,
}

impl<'a> Command<'a> {
    /// Reads a command that comes after the handshake.
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Fault> {
        let (name, data) = split(body)?;
        match name {
            b"PING" => match data.split_first_chunk() {
                Some((ttl, context)) if context.len() <= CONTEXT => Ok(Self::Ping(u16::from_be_bytes(*ttl), context)),
                Some(_) | None => Err(Reason::BadPing.into()),
            },
            b"PONG" if data.len() > CONTEXT => Err(Reason::BadPing.into()),
            b"ERROR" => Err(error(data)),
            b"CANCEL" | b"JOIN" | b"LEAVE" | b"SUBSCRIBE" => Err(Fault::with(Reason::Subscription, name)),
            b"HELLO" | b"INITIATE" | b"READY" | b"WELCOME" => Err(Fault::with(Reason::UnexpectedCommand, name)),
            _ => Ok(Self::Alive),
        }
    }
}

/// The peer's refusal, with its words.
pub(crate) fn error(data: &[u8]) -> Fault {
    let words = data.split_first().and_then(|(length, words)| words.get(..usize::from(*length)));
    words.map_or_else(|| Reason::BadCommand.into(), |words| Fault::with(Reason::Refused, words))
}

/// Our refusal.
pub(crate) fn write_error(words: &str) -> BytesMut {
    let words = &words.as_bytes()[..words.len().min(255)];
    let mut data = vec![u8::try_from(words.len()).expect("as many bytes at most")];
    data.extend_from_slice(words);
    write("ERROR", &data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &[u8]) -> Option<Reason> {
        Command::read(body).err().map(|fault| fault.0)
    }

    #[test]
    fn pings_have_a_ttl_and_a_context() {
        assert_eq!(Command::read(b"\x04PING\x01\x02context"), Ok(Command::Ping(258, b"context")));
        assert_eq!(Command::read(b"\x04PING\0\0"), Ok(Command::Ping(0, b"")));
        assert_eq!(refused(b"\x04PING\0"), Some(Reason::BadPing));
        assert_eq!(refused(b"\x04PING\0\x000123456789abcdefg"), Some(Reason::BadPing));
        assert_eq!(refused(b"\x04PONG0123456789abcdefg"), Some(Reason::BadPing));
        assert_eq!(Command::read(b"\x04PONG0123456789abcdef"), Ok(Command::Alive));
    }

    #[test]
    fn unknown_commands_are_those_of_later_versions() {
        assert_eq!(Command::read(b"\x05LATER\xff"), Ok(Command::Alive));
        for (body, reason) in [
            (&b""[..], Reason::BadCommand),
            (b"\0", Reason::BadCommand),
            (b"\x05PING", Reason::BadCommand),
            (b"\x09SUBSCRIBEtopic", Reason::Subscription),
            (b"\x04JOINgroup", Reason::Subscription),
            (b"\x05READY", Reason::UnexpectedCommand),
            (b"\x05ERROR", Reason::BadCommand),
            (b"\x05ERROR\x04abc", Reason::BadCommand),
        ] {
            assert_eq!(refused(body), Some(reason));
        }
    }

    #[test]
    fn refusals_are_read_as_written() {
        assert_eq!(Command::read(&write_error("400")), Err(Fault::with(Reason::Refused, b"400")));
        assert_eq!(refused(&write_error(&"x".repeat(300))), Some(Reason::Refused));
    }
}
