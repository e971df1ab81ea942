//! The head of a frame: RFC 37, "Framing".

use bytes::BufMut;

use crate::reason::{Fault, Reason};

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// The longest head.
pub(crate) const HEAD: usize = 9;

/// The head of a frame of less than 256 bytes.
const SHORT: usize = 2;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Whether it is a command rather than a part of a message.
    pub(crate) is_command: bool,
    /// Whether the message goes on.
    pub(crate) more: bool,
    /// The bytes that follow.
    pub(crate) len: u64,
}

impl Head {
    /// Reads a head, and gives its own length; `None` while it is incomplete.
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, Fault> {
        let Some(&flags) = bytes.first() else { return Ok(None) };
        let (is_command, more) = (flags & COMMAND != 0, flags & MORE != 0);
        if flags > MORE | LONG | COMMAND || is_command && more {
            return Err(Reason::BadFlags.into());
        }
        if flags & LONG == 0 {
            return Ok(bytes.get(1).map(|len| (Self { is_command, more, len: u64::from(*len) }, SHORT)));
        }
        let Some(len) = bytes.get(1..HEAD) else { return Ok(None) };
        let len = u64::from_be_bytes(len.try_into().expect("eight bytes"));
        if len >= 1 << 63 {
            return Err(Reason::BadLength.into());
        }
        Ok(Some((Self { is_command, more, len }, HEAD)))
    }

    /// The length of a head with these flags.
    pub(crate) fn size(flags: u8) -> usize {
        if flags & LONG == 0 { SHORT } else { HEAD }
    }

    /// Its own length.
    pub(crate) fn len(self) -> usize {
        if u8::try_from(self.len).is_ok() { SHORT } else { HEAD }
    }

    /// Writes the shortest head.
    #[inline]
    pub(crate) fn write(self, out: &mut impl BufMut) {
        let flags = u8::from(self.more) | if self.is_command { COMMAND } else { 0 };
        if let Ok(len) = u8::try_from(self.len) {
            out.put_slice(&[flags, len]);
        } else {
            let mut head = [flags | LONG; HEAD];
            head[1..].copy_from_slice(&self.len.to_be_bytes());
            out.put_slice(&head);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;

    #[test]
    fn is_read_as_written() {
        for len in [0, 1, 255, 256, 65_535, 65_536, (1 << 63) - 1] {
            for (is_command, more) in [(false, false), (false, true), (true, false)] {
                let head = Head { is_command, more, len };
                let mut bytes = BytesMut::new();
                head.write(&mut bytes);
                assert_eq!(bytes.len(), if len < 256 { 2 } else { HEAD });
                assert_eq!(bytes.len(), Head::size(bytes[0]));
                assert_eq!(Head::read(&bytes), Ok(Some((head, bytes.len()))));
                assert!((0..bytes.len()).all(|cut| Head::read(&bytes[..cut]) == Ok(None)));
            }
        }
    }

    #[test]
    fn short_frames_may_have_long_heads() {
        let head = Head { is_command: false, more: false, len: 1 };
        assert_eq!(Head::read(b"\x02\0\0\0\0\0\0\0\x01"), Ok(Some((head, HEAD))));
    }

    #[test]
    fn reserved_flags_and_lengths_are_refused() {
        for flags in [5, 7, 8, 16, 0x80, 0xff] {
            assert_eq!(Head::read(&[flags]), Err(Reason::BadFlags.into()));
        }
        assert_eq!(Head::read(b"\x02\x80\0\0\0\0\0\0\0"), Err(Reason::BadLength.into()));
    }
}
