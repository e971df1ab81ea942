//! Reading, one object at a time; its first byte is checked before anything after it.

use std::str::{self, Utf8Error};

use super::{
    MAX_DEPTH, TIMESTAMP_CODE, Timestamp,
    head::{Head, Length, PLAIN, Width},
};
use crate::error::{ErrorKind, Fault};

/// One object; the members of a map or an array follow it and are read one by one. Text is a `str`, or its bytes if
/// UTF-8 need not be checked again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a, S = &'a str> {
    Nil,
    Boolean(bool),
    /// An integer of at most `i64::MAX`.
    Signed(i64),
    /// An integer above `i64::MAX`.
    Unsigned(u64),
    /// A number of single precision.
    F32(f32),
    /// A number of double precision.
    F64(f64),
    String(S),
    Binary(&'a [u8]),
    /// This many objects follow.
    Array(u32),
    /// This many pairs of a key and a value follow.
    Map(u32),
    /// An extension of type −1.
    Timestamp(Timestamp),
    /// An extension of any other type.
    Ext(i8, &'a [u8]),
}

impl<S> Value<'_, S> {
    /// How many objects follow that are part of it.
    #[inline]
    fn members(&self) -> u64 {
        match *self {
            Self::Array(length) => length.into(),
            Self::Map(pairs) => 2 * u64::from(pairs),
            Self::Nil
            | Self::Boolean(_)
            | Self::Signed(_)
            | Self::Unsigned(_)
            | Self::F32(_)
            | Self::F64(_)
            | Self::String(_)
            | Self::Binary(_)
            | Self::Timestamp(_)
            | Self::Ext(..) => 0,
        }
    }
}

/// A position in borrowed bytes, and the error kind for a byte that begins no object.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
    malformed: ErrorKind,
}

impl<'a> Reader<'a> {
    /// Starts at the first of `bytes`. A byte that begins no object is reported as `malformed`, which differs by
    /// protocol.
    #[inline]
    pub const fn new(bytes: &'a [u8], malformed: ErrorKind) -> Self {
        Self { rest: bytes, length: bytes.len(), malformed }
    }

    /// How many bytes have been read.
    #[inline]
    pub const fn position(&self) -> usize {
        self.length - self.rest.len()
    }

    /// The bytes not read yet.
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The head of the next object, or `None` at the end.
    #[inline]
    pub fn peek(&self) -> Option<Head> {
        self.rest.first().map(|&byte| Head::of(byte))
    }

    /// Reads one object, or the head of a map or array.
    #[inline]
    pub fn value(&mut self) -> Result<Value<'a>, Fault> {
        Ok(match self.value_bytes()? {
            Value::String(bytes) => Value::String(self.text(bytes)?),
            Value::Nil => Value::Nil,
            Value::Boolean(value) => Value::Boolean(value),
            Value::Signed(value) => Value::Signed(value),
            Value::Unsigned(value) => Value::Unsigned(value),
            Value::F32(value) => Value::F32(value),
            Value::F64(value) => Value::F64(value),
            Value::Binary(value) => Value::Binary(value),
            Value::Array(length) => Value::Array(length),
            Value::Map(length) => Value::Map(length),
            Value::Timestamp(value) => Value::Timestamp(value),
            Value::Ext(code, value) => Value::Ext(code, value),
        })
    }

    /// Reads one object, or the head of a map or array, without checking that text is UTF-8.
    #[inline]
    pub fn value_bytes(&mut self) -> Result<Value<'a, &'a [u8]>, Fault> {
        self.value_here()
    }

    /// The same, inlined, for callers that match on every kind of value.
    #[allow(clippy::inline_always)] // saves a third of the time to read and rewrite a value
    #[inline(always)]
    pub fn value_here(&mut self) -> Result<Value<'a, &'a [u8]>, Fault> {
        let start = self.position();
        Ok(match self.head()? {
            Head::Nil => Value::Nil,
            Head::Boolean(value) => Value::Boolean(value),
            Head::Small(value) => Value::Signed(value.into()),
            Head::Unsigned(width) => {
                let value = self.unsigned_of(width)?;
                i64::try_from(value).map_or(Value::Unsigned(value), Value::Signed)
            }
            Head::Signed(width) => Value::Signed(self.signed_of(width)?),
            Head::F32 => Value::F32(f32::from_be_bytes(self.chunk()?)),
            Head::F64 => Value::F64(f64::from_be_bytes(self.chunk()?)),
            Head::String(length) => Value::String(self.bytes_of(length)?),
            Head::Binary(length) => Value::Binary(self.bytes_of(length)?),
            Head::Array(length) => Value::Array(self.length(length)?),
            Head::Map(length) => Value::Map(self.length(length)?),
            Head::Ext(length) => match self.ext_head(length)? {
                (length, TIMESTAMP_CODE) => Value::Timestamp(self.timestamp_body(start, length)?),
                (length, code) => Value::Ext(code, self.take(length)?),
            },
            Head::Reserved => return Err(Fault { kind: self.malformed, offset: start }),
        })
    }

    /// Skips one object with its content, checking every byte. `depth` is how deep it is nested.
    #[inline]
    pub fn skip(&mut self, depth: usize) -> Result<(), Fault> {
        if self.pass_plain() {
            Ok(())
        } else if let Some(bytes) = self.short_string() {
            self.check_text(bytes)
        } else {
            self.skip_other(depth)
        }
    }

    /// Skips an object whose first byte determines its length. Most are.
    #[inline]
    fn pass_plain(&mut self) -> bool {
        let length = self.rest.first().map_or(0, |&byte| PLAIN[usize::from(byte)]);
        match self.rest.split_at_checked(length.into()) {
            Some((_, rest)) if length > 0 => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn skip_other(&mut self, depth: usize) -> Result<(), Fault> {
        if depth >= MAX_DEPTH && matches!(self.peek(), Some(Head::Map(_) | Head::Array(_))) {
            return Err(Fault { kind: ErrorKind::TooDeep, offset: self.position() });
        }
        let value = self.value_bytes()?;
        if let Value::String(bytes) = value {
            return self.check_text(bytes);
        }
        (0..value.members()).try_for_each(|_| self.skip(depth + 1))
    }

    /// Skips one object with its content that was checked before: reads only lengths.
    #[inline]
    pub fn pass(&mut self) -> Result<(), Fault> {
        if self.pass_plain() || self.short_string().is_some() { Ok(()) } else { self.pass_other() }
    }

    fn pass_other(&mut self) -> Result<(), Fault> {
        self.count().map(drop)
    }

    /// The same. Returns how many objects it consists of, itself included.
    pub fn count(&mut self) -> Result<u64, Fault> {
        let (mut pending, mut count) = (1_u64, 0);
        while pending > 0 {
            pending -= 1;
            count += 1;
            if self.pass_plain() {
                continue;
            }
            pending += self.value_bytes()?.members();
        }
        Ok(count)
    }

    /// Reads a string; anything else is `other`.
    #[inline]
    pub fn string(&mut self, other: ErrorKind) -> Result<&'a str, Fault> {
        let bytes = self.string_bytes(other)?;
        self.text(bytes)
    }

    /// Reads a string as bytes, checking that they are UTF-8; anything else is `other`.
    #[inline]
    pub fn string_checked(&mut self, other: ErrorKind) -> Result<&'a [u8], Fault> {
        let bytes = self.string_bytes(other)?;
        self.check_text(bytes)?;
        Ok(bytes)
    }

    /// Reads the bytes of a string without checking that they are UTF-8; anything else is `other`.
    #[inline]
    pub fn string_bytes(&mut self, other: ErrorKind) -> Result<&'a [u8], Fault> {
        match self.short_string() {
            Some(bytes) => Ok(bytes),
            None => self.other_string_bytes(other),
        }
    }

    /// The bytes of a string of up to 31 bytes in its shortest form, if that is next. Most strings are.
    #[inline]
    fn short_string(&mut self) -> Option<&'a [u8]> {
        let (&first @ 0xa0..=0xbf, rest) = self.rest.split_first()? else { return None };
        let (bytes, rest) = rest.split_at_checked((first & 0x1f).into())?;
        self.rest = rest;
        Some(bytes)
    }

    #[inline(never)]
    fn other_string_bytes(&mut self, other: ErrorKind) -> Result<&'a [u8], Fault> {
        let start = self.position();
        let Head::String(length) = self.head()? else { return Err(Fault { kind: other, offset: start }) };
        self.bytes_of(length)
    }

    /// Reads a binary; anything else is `other`.
    #[inline]
    pub fn binary(&mut self, other: ErrorKind) -> Result<&'a [u8], Fault> {
        let start = self.position();
        let Head::Binary(length) = self.head()? else { return Err(Fault { kind: other, offset: start }) };
        self.bytes_of(length)
    }

    /// Reads a non-negative integer of any width; anything else is `other`.
    #[inline]
    pub fn unsigned(&mut self, other: ErrorKind) -> Result<u64, Fault> {
        let start = self.position();
        let signed = match self.head()? {
            Head::Small(value) => value.into(),
            Head::Signed(width) => self.signed_of(width)?,
            Head::Unsigned(width) => return self.unsigned_of(width),
            Head::Nil
            | Head::Boolean(_)
            | Head::F32
            | Head::F64
            | Head::String(_)
            | Head::Binary(_)
            | Head::Array(_)
            | Head::Map(_)
            | Head::Ext(_)
            | Head::Reserved => return Err(Fault { kind: other, offset: start }),
        };
        u64::try_from(signed).map_err(|_| Fault { kind: other, offset: start })
    }

    /// Reads a timestamp; an extension of another type and anything else are `other`.
    #[inline]
    pub fn timestamp(&mut self, other: ErrorKind) -> Result<Timestamp, Fault> {
        let start = self.position();
        let Head::Ext(length) = self.head()? else { return Err(Fault { kind: other, offset: start }) };
        let (length, TIMESTAMP_CODE) = self.ext_head(length)? else { return Err(Fault { kind: other, offset: start }) };
        self.timestamp_body(start, length)
    }

    /// Reads the head of a map, the number of its pairs; anything else is `other`.
    #[inline]
    pub fn map(&mut self, other: ErrorKind) -> Result<u32, Fault> {
        let start = self.position();
        let Head::Map(length) = self.head()? else { return Err(Fault { kind: other, offset: start }) };
        self.length(length)
    }

    /// Reads the head of an array, the number of its members; anything else is `other`.
    #[inline]
    pub fn array(&mut self, other: ErrorKind) -> Result<u32, Fault> {
        let start = self.position();
        let Head::Array(length) = self.head()? else { return Err(Fault { kind: other, offset: start }) };
        self.length(length)
    }
}

/// The parts of an object.
impl<'a> Reader<'a> {
    const fn truncated(&self) -> Fault {
        Fault { kind: ErrorKind::Truncated, offset: self.length }
    }

    #[inline]
    fn head(&mut self) -> Result<Head, Fault> {
        let (&first, rest) = self.rest.split_first().ok_or_else(|| self.truncated())?;
        self.rest = rest;
        Ok(Head::of(first))
    }

    #[inline]
    fn take(&mut self, length: u32) -> Result<&'a [u8], Fault> {
        let length = usize::try_from(length).map_err(|_| self.truncated())?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.truncated())?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (&chunk, rest) = self.rest.split_first_chunk().ok_or_else(|| self.truncated())?;
        self.rest = rest;
        Ok(chunk)
    }

    #[inline]
    fn length(&mut self, length: Length) -> Result<u32, Fault> {
        Ok(match length {
            Length::Known(length) => length.into(),
            Length::One => u8::from_be_bytes(self.chunk()?).into(),
            Length::Two => u16::from_be_bytes(self.chunk()?).into(),
            Length::Four => u32::from_be_bytes(self.chunk()?),
        })
    }

    #[inline]
    fn unsigned_of(&mut self, width: Width) -> Result<u64, Fault> {
        Ok(match width {
            Width::One => u8::from_be_bytes(self.chunk()?).into(),
            Width::Two => u16::from_be_bytes(self.chunk()?).into(),
            Width::Four => u32::from_be_bytes(self.chunk()?).into(),
            Width::Eight => u64::from_be_bytes(self.chunk()?),
        })
    }

    #[inline]
    fn signed_of(&mut self, width: Width) -> Result<i64, Fault> {
        Ok(match width {
            Width::One => i8::from_be_bytes(self.chunk()?).into(),
            Width::Two => i16::from_be_bytes(self.chunk()?).into(),
            Width::Four => i32::from_be_bytes(self.chunk()?).into(),
            Width::Eight => i64::from_be_bytes(self.chunk()?),
        })
    }

    #[inline]
    fn bytes_of(&mut self, length: Length) -> Result<&'a [u8], Fault> {
        let length = self.length(length)?;
        self.take(length)
    }

    /// The text of bytes just read.
    #[inline]
    fn text(&self, bytes: &'a [u8]) -> Result<&'a str, Fault> {
        str::from_utf8(bytes).map_err(|e| self.no_text(bytes, e))
    }

    /// Checks text just read. Nearly all of it is ASCII and short, where `from_utf8` costs more than all else.
    #[inline]
    fn check_text(&self, bytes: &[u8]) -> Result<(), Fault> {
        if is_short_ascii(bytes) { Ok(()) } else { self.check_wide_text(bytes) }
    }

    #[inline(never)]
    fn check_wide_text(&self, bytes: &[u8]) -> Result<(), Fault> {
        str::from_utf8(bytes).map(|_| ()).map_err(|e| self.no_text(bytes, e))
    }

    #[cold]
    const fn no_text(&self, bytes: &[u8], error: Utf8Error) -> Fault {
        Fault { kind: ErrorKind::BadUtf8, offset: self.position() - bytes.len() + error.valid_up_to() }
    }

    /// The length and the type of an extension.
    #[inline]
    fn ext_head(&mut self, length: Length) -> Result<(u32, i8), Fault> {
        Ok((self.length(length)?, i8::from_be_bytes(self.chunk()?)))
    }

    #[inline]
    fn timestamp_body(&mut self, start: usize, length: u32) -> Result<Timestamp, Fault> {
        let bad = Fault { kind: ErrorKind::BadTimestamp, offset: start };
        if !matches!(length, 4 | 8 | 12) {
            return Err(bad);
        }
        Timestamp::from_ext(self.take(length)?).ok_or(bad)
    }
}

/// Whether these are up to 16 bytes of ASCII: the two ends, which overlap, are checked as two numbers.
#[inline]
fn is_short_ascii(bytes: &[u8]) -> bool {
    let all = match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(&first), Some(&last)) if bytes.len() <= 16 => u64::from_ne_bytes(first) | u64::from_ne_bytes(last),
        (Some(_), Some(_)) => return false,
        _ => match (bytes.first_chunk(), bytes.last_chunk()) {
            (Some(&first), Some(&last)) => u64::from(u32::from_ne_bytes(first) | u32::from_ne_bytes(last)),
            _ => u64::from(bytes.iter().fold(0, |all, byte| all | byte)),
        },
    };
    all & 0x8080_8080_8080_8080 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // req: CDTP-04
    fn short_ascii_is_told_from_all_else() {
        for length in 0..=17 {
            let mut bytes = vec![0x7f; length];
            assert_eq!(is_short_ascii(&bytes), length <= 16, "{length}");
            for at in 0..length {
                bytes[at] = 0x80;
                assert!(!is_short_ascii(&bytes), "{at} of {length}");
                bytes[at] = 0x00;
            }
        }
    }

    fn values(bytes: &[u8]) -> Result<Vec<Value<'_>>, Fault> {
        let mut reader = Reader::new(bytes, ErrorKind::BadHeader);
        let mut values = Vec::new();
        while reader.peek().is_some() {
            values.push(reader.value()?);
        }
        Ok(values)
    }

    #[test] // req: CDTP-07, CDTP-09
    fn every_width_gives_the_same_value() {
        let zeros: [&[u8]; 9] = [
            &[0x00],
            &[0xcc, 0],
            &[0xcd, 0, 0],
            &[0xce, 0, 0, 0, 0],
            &[0xcf, 0, 0, 0, 0, 0, 0, 0, 0],
            &[0xd0, 0],
            &[0xd1, 0, 0],
            &[0xd2, 0, 0, 0, 0],
            &[0xd3, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        for bytes in zeros {
            assert_eq!(values(bytes), Ok(vec![Value::Signed(0)]), "{bytes:02x?}");
            let mut reader = Reader::new(bytes, ErrorKind::BadHeader);
            assert_eq!(reader.unsigned(ErrorKind::BadSequence), Ok(0));
        }
        let strings: [&[u8]; 4] = [b"\xa1x", b"\xd9\x01x", b"\xda\x00\x01x", b"\xdb\x00\x00\x00\x01x"];
        for bytes in strings {
            assert_eq!(values(bytes), Ok(vec![Value::String("x")]), "{bytes:02x?}");
        }
        let binaries: [&[u8]; 3] = [b"\xc4\x01x", b"\xc5\x00\x01x", b"\xc6\x00\x00\x00\x01x"];
        for bytes in binaries {
            assert_eq!(values(bytes), Ok(vec![Value::Binary(b"x")]), "{bytes:02x?}");
        }
    }

    #[test] // req: CDTP-07
    fn integers_keep_their_limits() {
        assert_eq!(values(b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), Ok(vec![Value::Unsigned(u64::MAX)]));
        assert_eq!(values(b"\xcf\x80\0\0\0\0\0\0\0"), Ok(vec![Value::Unsigned(1 << 63)]));
        assert_eq!(values(b"\xcf\x7f\xff\xff\xff\xff\xff\xff\xff"), Ok(vec![Value::Signed(i64::MAX)]));
        assert_eq!(values(b"\xd3\x80\0\0\0\0\0\0\0"), Ok(vec![Value::Signed(i64::MIN)]));
        assert_eq!(values(b"\xe0\xff\x7f"), Ok(vec![Value::Signed(-32), Value::Signed(-1), Value::Signed(127)]));
    }

    #[test] // req: CDTP-11
    fn a_claimed_length_costs_nothing() {
        for bytes in
            [b"\xdf\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"]
        {
            let fault = Reader::new(bytes, ErrorKind::BadHeader).skip(0);
            assert_eq!(fault, Err(Fault { kind: ErrorKind::Truncated, offset: 5 }));
        }
    }

    #[test] // req: CDTP-07
    fn nesting_ends_at_the_limit() {
        let mut bytes = vec![0x91; MAX_DEPTH];
        bytes.push(0x05);
        assert_eq!(Reader::new(&bytes, ErrorKind::BadHeader).skip(0), Ok(()));
        bytes[MAX_DEPTH] = 0x80;
        let fault = Fault { kind: ErrorKind::TooDeep, offset: MAX_DEPTH };
        assert_eq!(Reader::new(&bytes, ErrorKind::BadHeader).skip(0), Err(fault));
        let bytes = vec![0x91; 1_000_000];
        assert_eq!(Reader::new(&bytes, ErrorKind::BadHeader).skip(0), Err(fault));
    }

    #[test]
    fn the_unused_byte_is_malformed() {
        assert_eq!(values(b"\x01\xc1"), Err(Fault { kind: ErrorKind::BadHeader, offset: 1 }));
    }

    #[test] // req: CDTP-05
    fn an_extension_of_type_minus_one_is_a_timestamp_or_a_fault() {
        assert_eq!(values(b"\xd4\x05\x01"), Ok(vec![Value::Ext(5, b"\x01")]));
        for bytes in [b"\xd4\xff\x01".as_slice(), b"\xd7\xff\xff\xff\xff\xff\0\0\0\0"] {
            assert_eq!(values(bytes), Err(Fault { kind: ErrorKind::BadTimestamp, offset: 0 }), "{bytes:02x?}");
        }
    }
}
