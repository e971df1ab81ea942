//! The data flow: a binary header and a body.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use smallvec::smallvec;

use super::{printable, status, table};
use crate::{DecodeError, ErrorKind, Fault, Frames};

/// The type of a data message; the number is its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A client redeems its lease (MTL-34).
    Lease = 1,
    /// The answer of a server (MTL-35).
    Response = 2,
    /// A client requests the contents of a resource (MTL-37).
    Summon = 3,
    /// A client requests no more of them (MTL-41).
    Dismiss = 4,
    /// A content for a resource, or from it (MTL-45, MTL-47).
    Content = 5,
    /// Contents are confirmed (MTL-51).
    Confirm = 6,
    /// Contents are rejected (MTL-53).
    Reject = 7,
    /// A sign of life is requested (MTL-56).
    Ping = 8,
    /// The sign of life.
    Pong = 9,
}

impl Kind {
    /// Every kind, by number.
    pub const ALL: [Self; 9] = [
        Self::Lease,
        Self::Response,
        Self::Summon,
        Self::Dismiss,
        Self::Content,
        Self::Confirm,
        Self::Reject,
        Self::Ping,
        Self::Pong,
    ];

    /// The kind of this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Whether a message of this kind names a resource.
    pub const fn names_resource(self) -> bool {
        matches!(self, Self::Summon | Self::Dismiss | Self::Content)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Response => "response",
            Self::Summon => "summon",
            Self::Dismiss => "dismiss",
            Self::Content => "content",
            Self::Confirm => "confirm",
            Self::Reject => "reject",
            Self::Ping => "ping",
            Self::Pong => "pong",
        }
    }
}

/// A valid data message. Ranges are within the header; fields that a type does not have are empty, zero or false.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub kind: Kind,
    /// The number of the command or content.
    pub sequence: u64,
    /// The lease or the resource.
    pub name: Range<usize>,
    /// The properties, with their length.
    pub table: Range<usize>,
    /// Whether it covers all contents up to the sequence.
    pub multiple: bool,
    /// Whether rejected contents are to be delivered again.
    pub recycle: bool,
    /// The status of a response, from 200 to 599.
    pub status: u16,
}

/// Reads a data message.
///
/// # Errors
/// If the frames are not one.
#[inline]
pub fn decode(frames: &[impl AsRef<[u8]>]) -> Result<Layout, DecodeError> {
    let [header, body] = frames else {
        return Err(DecodeError { kind: ErrorKind::BadFrameCount, frame: frames.len().min(2), offset: 0 });
    };
    let mut layout = read(header.as_ref()).map_err(|fault| fault.in_frame(0))?;
    if layout.kind == Kind::Response {
        let bad = Fault { kind: ErrorKind::BadStatus, offset: 0 };
        layout.status = status(body.as_ref()).ok_or_else(|| bad.in_frame(1))?;
    }
    Ok(layout)
}

fn read(header: &[u8]) -> Result<Layout, Fault> {
    let Some(number) = header.first() else { return Err(Fault { kind: ErrorKind::EmptyHeader, offset: 0 }) };
    let unknown = Fault { kind: ErrorKind::UnknownType, offset: 0 };
    let kind = Kind::from_number(*number).ok_or(unknown)?;
    let mut fields = Fields { header, at: 1 };
    let mut layout = Layout { kind, sequence: 0, name: 0..0, table: 0..0, multiple: false, recycle: false, status: 0 };
    if !matches!(kind, Kind::Ping | Kind::Pong) {
        layout.sequence = fields.integer()?;
    }
    match kind {
        Kind::Lease | Kind::Summon | Kind::Dismiss => layout.name = fields.short_string()?,
        Kind::Content => {
            layout.name = fields.short_string()?;
            layout.table = fields.table()?;
        }
        Kind::Confirm => layout.multiple = fields.boolean()?,
        Kind::Reject => {
            layout.multiple = fields.boolean()?;
            layout.recycle = fields.boolean()?;
        }
        Kind::Response | Kind::Ping | Kind::Pong => {}
    }
    if fields.at < header.len() {
        return Err(Fault { kind: ErrorKind::TrailingBytes, offset: fields.at });
    }
    Ok(layout)
}

/// Reads fields in their order (MTL-59).
struct Fields<'a> {
    header: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let truncated = Fault { kind: ErrorKind::Truncated, offset: self.header.len() };
        let taken = self.header.get(self.at..).and_then(|rest| rest.get(..count)).ok_or(truncated)?;
        self.at += count;
        Ok(taken)
    }

    fn integer(&mut self) -> Result<u64, Fault> {
        let bytes = self.take(8)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn boolean(&mut self) -> Result<bool, Fault> {
        let offset = self.at;
        match self.take(1)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Fault { kind: ErrorKind::BadBoolean, offset }),
        }
    }

    fn short_string(&mut self) -> Result<Range<usize>, Fault> {
        let length = usize::from(self.take(1)?[0]);
        let start = self.at;
        let text = self.take(length)?;
        printable(text).map_err(|at| Fault { kind: ErrorKind::BadShortString, offset: start + at })?;
        Ok(start..self.at)
    }

    fn table(&mut self) -> Result<Range<usize>, Fault> {
        let start = self.at;
        let length = self.take(4)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte));
        self.take(length)?;
        table::check(&self.header[start..self.at])
            .map_err(|fault| Fault { kind: fault.kind, offset: start + fault.offset })?;
        Ok(start..self.at)
    }
}

/// A header of a kind and a sequence, with room for `room` more bytes.
fn header(kind: Kind, sequence: u64, room: usize) -> BytesMut {
    let mut header = BytesMut::with_capacity(9 + room);
    header.put_u8(kind as u8);
    header.put_u64(sequence);
    header
}

fn named(kind: Kind, sequence: u64, name: &str, room: usize) -> BytesMut {
    let mut header = header(kind, sequence, 1 + name.len() + room);
    header.put_u8(u8::try_from(name.len()).expect("a name of up to 255 bytes"));
    header.put_slice(name.as_bytes());
    header
}

fn bare(header: BytesMut) -> Frames {
    Frames::from_iter([header.freeze(), Bytes::new()])
}

/// The frames of a Lease.
///
/// # Panics
/// When the lease has more than 255 bytes.
pub fn lease(sequence: u64, lease: &str) -> Frames {
    bare(named(Kind::Lease, sequence, lease, 0))
}

/// The frames of a Response.
pub fn response(sequence: u64, status: u16) -> Frames {
    Frames::from_iter([header(Kind::Response, sequence, 0).freeze(), Bytes::from(status.to_string())])
}

/// The frames of a Summon.
///
/// # Panics
/// When the name has more than 255 bytes.
pub fn summon(sequence: u64, resource: &str) -> Frames {
    bare(named(Kind::Summon, sequence, resource, 0))
}

/// The frames of a Dismiss.
///
/// # Panics
/// When the name has more than 255 bytes.
pub fn dismiss(sequence: u64, resource: &str) -> Frames {
    bare(named(Kind::Dismiss, sequence, resource, 0))
}

/// The frames of a Content; `properties` is a field table with its length.
///
/// # Panics
/// When the name has more than 255 bytes.
#[inline]
pub fn content(sequence: u64, resource: &str, properties: &[u8], body: Bytes) -> Frames {
    let mut header = named(Kind::Content, sequence, resource, properties.len());
    header.put_slice(properties);
    smallvec![header.freeze(), body]
}

/// The frames of a Confirm.
pub fn confirm(sequence: u64, multiple: bool) -> Frames {
    let mut header = header(Kind::Confirm, sequence, 1);
    header.put_u8(multiple.into());
    bare(header)
}

/// The frames of a Reject.
pub fn reject(sequence: u64, multiple: bool, recycle: bool) -> Frames {
    let mut header = header(Kind::Reject, sequence, 2);
    header.put_u8(multiple.into());
    header.put_u8(recycle.into());
    bare(header)
}

/// The frames of a Ping.
pub fn ping() -> Frames {
    Frames::from_iter([Bytes::from_static(&[Kind::Ping as u8]), Bytes::new()])
}

/// The frames of a Pong.
pub fn pong() -> Frames {
    Frames::from_iter([Bytes::from_static(&[Kind::Pong as u8]), Bytes::new()])
}
