//! Reading, one object after another, judging each by its first byte before anything behind it.

use std::str;

use super::{
    MAX_DEPTH, TIMESTAMP_CODE, Timestamp,
    head::{Head, Length, Width},
};
use crate::error::{ErrorKind, Fault};

/// One object; the members of a map or an array follow it and are read by themselves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Nothing.
    Nil,
    /// True or false.
    Boolean(bool),
    /// An integer of at most `i64::MAX`.
    Signed(i64),
    /// An integer above `i64::MAX`.
    Unsigned(u64),
    /// A number of single precision.
    F32(f32),
    /// A number of double precision.
    F64(f64),
    /// Text.
    String(&'a str),
    /// Bytes.
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

/// A place in borrowed bytes, and what to call a byte that begins no object there.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
    malformed: ErrorKind,
}

impl<'a> Reader<'a> {
    /// Starts at the first of `bytes`. A byte that begins no object is reported as `malformed`, which protocols name
    /// differently.
    #[inline]
    pub const fn new(bytes: &'a [u8], malformed: ErrorKind) -> Self {
        Self { bytes, position: 0, malformed }
    }

    /// How many bytes have been read.
    #[inline]
    pub const fn position(&self) -> usize {
        self.position
    }

    /// The bytes not read yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.position..]
    }

    /// How the next object begins, or `None` at the end.
    #[inline]
    pub fn peek(&self) -> Option<Head> {
        self.bytes.get(self.position).map(|&byte| Head::of(byte))
    }

    /// Reads one object, or the head of a map or array.
    #[inline]
    pub fn value(&mut self) -> Result<Value<'a>, Fault> {
        let start = self.position;
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
            Head::String(length) => Value::String(self.text(length)?),
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

    /// Passes one object and all inside it, checking every byte. `depth` is the number of maps and arrays it lies in.
    #[inline]
    pub fn skip(&mut self, depth: usize) -> Result<(), Fault> {
        if depth >= MAX_DEPTH && matches!(self.peek(), Some(Head::Map(_) | Head::Array(_))) {
            return Err(Fault { kind: ErrorKind::TooDeep, offset: self.position });
        }
        match self.value()? {
            Value::Array(length) => self.skip_members(length.into(), depth + 1),
            Value::Map(length) => self.skip_members(2 * u64::from(length), depth + 1),
            Value::Nil
            | Value::Boolean(_)
            | Value::Signed(_)
            | Value::Unsigned(_)
            | Value::F32(_)
            | Value::F64(_)
            | Value::String(_)
            | Value::Binary(_)
            | Value::Timestamp(_)
            | Value::Ext(..) => Ok(()),
        }
    }

    /// Not inlined into itself, so that passing a scalar stays short.
    #[inline(never)]
    fn skip_members(&mut self, members: u64, depth: usize) -> Result<(), Fault> {
        (0..members).try_for_each(|_| self.skip(depth))
    }

    /// Reads a string; anything else is `other`.
    #[inline]
    pub fn string(&mut self, other: ErrorKind) -> Result<&'a str, Fault> {
        let start = self.position;
        let Head::String(length) = self.head()? else { return Err(Fault { kind: other, offset: start }) };
        self.text(length)
    }

    /// Reads the bytes of a string, be they UTF-8 or not; anything else is `other`.
    #[inline]
    pub fn string_bytes(&mut self, other: ErrorKind) -> Result<&'a [u8], Fault> {
        let start = self.position;
        let Head::String(length) = self.head()? else { return Err(Fault { kind: other, offset: start }) };
        self.bytes_of(length)
    }

    /// Reads a binary; anything else is `other`.
    #[inline]
    pub fn binary(&mut self, other: ErrorKind) -> Result<&'a [u8], Fault> {
        let start = self.position;
        let Head::Binary(length) = self.head()? else { return Err(Fault { kind: other, offset: start }) };
        self.bytes_of(length)
    }

    /// Reads an integer that is not negative, however it is written; anything else is `other`.
    #[inline]
    pub fn unsigned(&mut self, other: ErrorKind) -> Result<u64, Fault> {
        let start = self.position;
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
        let start = self.position;
        let Head::Ext(length) = self.head()? else { return Err(Fault { kind: other, offset: start }) };
        let (length, TIMESTAMP_CODE) = self.ext_head(length)? else { return Err(Fault { kind: other, offset: start }) };
        self.timestamp_body(start, length)
    }

    /// Reads the head of a map, the number of its pairs; anything else is `other`.
    #[inline]
    pub fn map(&mut self, other: ErrorKind) -> Result<u32, Fault> {
        let start = self.position;
        let Head::Map(length) = self.head()? else { return Err(Fault { kind: other, offset: start }) };
        self.length(length)
    }

    /// Reads the head of an array, the number of its members; anything else is `other`.
    #[inline]
    pub fn array(&mut self, other: ErrorKind) -> Result<u32, Fault> {
        let start = self.position;
        let Head::Array(length) = self.head()? else { return Err(Fault { kind: other, offset: start }) };
        self.length(length)
    }
}

/// The parts of an object.
impl<'a> Reader<'a> {
    const fn truncated(&self) -> Fault {
        Fault { kind: ErrorKind::Truncated, offset: self.bytes.len() }
    }

    #[inline]
    fn head(&mut self) -> Result<Head, Fault> {
        let head = self.peek().ok_or_else(|| self.truncated())?;
        self.position += 1;
        Ok(head)
    }

    #[inline]
    fn take(&mut self, length: u32) -> Result<&'a [u8], Fault> {
        let length = usize::try_from(length).map_err(|_| self.truncated())?;
        let (taken, _) = self.rest().split_at_checked(length).ok_or_else(|| self.truncated())?;
        self.position += length;
        Ok(taken)
    }

    #[inline]
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let chunk = *self.rest().first_chunk().ok_or_else(|| self.truncated())?;
        self.position += N;
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

    #[inline]
    fn text(&mut self, length: Length) -> Result<&'a str, Fault> {
        let bytes = self.bytes_of(length)?;
        let start = self.position - bytes.len();
        str::from_utf8(bytes).map_err(|e| Fault { kind: ErrorKind::BadUtf8, offset: start + e.valid_up_to() })
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

#[cfg(test)]
mod tests {
    use super::*;

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
