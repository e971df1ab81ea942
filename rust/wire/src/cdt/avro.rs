//! Messages as binary Avro, by the schemas published with the specification.

use super::body::{Body, Form};
use super::draft::Draft;
use super::fields::{Field, Holds};
use super::message::{Kind, Message, Rejected};
use super::{Content, Settings, utf8};
use crate::{ErrorKind, Fault};

pub(super) fn decode(body: &[u8], kind: Kind, settings: Settings) -> Result<Message<'_>, Rejected<'_>> {
    let mut reader = Reader { left: body, end: body.len(), fault: Fault { kind: ErrorKind::BadAvro, offset: 0 } };
    let mut draft = Draft::new(kind);
    let mut starts = [body.len(); Field::COUNT];
    let fault = match fields(&mut reader, &mut draft, &mut starts, kind) {
        None => (reader.fault, None),
        Some(()) if !reader.left.is_empty() => (Fault { kind: ErrorKind::TrailingBytes, offset: reader.at() }, None),
        Some(()) => match draft.fault(settings.strict) {
            None => return Ok(draft.message()),
            Some((kind, field)) => (Fault { kind, offset: starts[field as usize] }, Some(field.name())),
        },
    };
    Err(Rejected { fault: fault.0, field: fault.1, remains: draft.remains() })
}

/// Reads the fields of a body into a draft; on failure the reader has the fault.
fn fields<'a>(
    reader: &mut Reader<'a>,
    draft: &mut Draft<'a>,
    starts: &mut [usize; Field::COUNT],
    kind: Kind,
) -> Option<()> {
    for entry in kind.entries().iter().filter(|entry| entry.in_avro) {
        let start = reader.at();
        starts[entry.field as usize] = start;
        match entry.holds {
            Holds::Time => match reader.long()? {
                // The schemas of events write -1 for a missing time.
                -1 if kind.is_event() => {}
                ms => draft.number(*entry, ms),
            },
            Holds::Timeout => draft.number(*entry, reader.long()?),
            Holds::Status => match reader.long()? {
                code if i32::try_from(code).is_ok() => draft.number(*entry, code),
                _ => return reader.bad(start),
            },
            Holds::Content => match reader.long()? {
                0 => {}
                1 => draft.content(*entry, Some(Content::Part(reader.bytes()?))),
                _ => return reader.bad(start),
            },
            Holds::Text => draft.text(*entry, reader.text()?),
        }
    }
    Some(())
}

pub(super) fn encode<'a>(message: &'a Message<'_>) -> Body<'a> {
    let mut body = Body::new(Form::Plain);
    for entry in message.kind.entries().iter().filter(|entry| entry.in_avro) {
        let field = entry.field;
        match entry.holds {
            Holds::Time | Holds::Timeout | Holds::Status => long(body.around(), message.number(field)),
            Holds::Content => match &message.content {
                None => long(body.around(), 0),
                Some(content) => {
                    long(body.around(), 1);
                    length(body.around(), content);
                    body.add_content(content);
                }
            },
            Holds::Text => {
                let text = message.text(field).as_bytes();
                length(body.around(), text);
                body.around().extend_from_slice(text);
            }
        }
    }
    body
}

/// Avro's zigzag encoding: seven bits per byte, the lowest first.
fn long(body: &mut Vec<u8>, value: i64) {
    let mut left = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while left > 0x7f {
        body.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    body.push((left & 0x7f) as u8);
}

fn length(body: &mut Vec<u8>, bytes: &[u8]) {
    long(body, i64::try_from(bytes.len()).unwrap_or(i64::MAX));
}

/// The number that a zigzag encodes.
const fn signed(zigzag: u64) -> i64 {
    (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed()
}

/// A body to read. The fault is kept here rather than in results, which keeps reading valid bodies fast.
struct Reader<'a> {
    left: &'a [u8],
    /// The length of the body.
    end: usize,
    fault: Fault,
}

impl<'a> Reader<'a> {
    fn at(&self) -> usize {
        self.end - self.left.len()
    }

    fn bad<T>(&mut self, offset: usize) -> Option<T> {
        self.fault = Fault { kind: ErrorKind::BadAvro, offset };
        None
    }

    /// Most numbers take one byte.
    #[inline]
    fn long(&mut self) -> Option<i64> {
        match self.left {
            [byte @ ..0x80, left @ ..] => {
                self.left = left;
                Some(signed((*byte).into()))
            }
            _ => self.longer(),
        }
    }

    fn longer(&mut self) -> Option<i64> {
        let mut value = 0_u64;
        for (place, byte) in self.left.iter().enumerate() {
            // The tenth byte has room for one bit.
            if place == 9 && *byte > 1 {
                return self.bad(self.at());
            }
            value |= u64::from(byte & 0x7f) << (7 * place);
            if *byte < 0x80 {
                self.left = &self.left[place + 1..];
                return Some(signed(value));
            }
        }
        self.bad(self.end)
    }

    #[inline]
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let start = self.at();
        let Ok(length) = usize::try_from(self.long()?) else { return self.bad(start) };
        let Some((bytes, left)) = self.left.split_at_checked(length) else { return self.bad(self.end) };
        self.left = left;
        Some(bytes)
    }

    #[inline]
    fn text(&mut self) -> Option<&'a str> {
        let bytes = self.bytes()?;
        let wrong = match utf8(bytes) {
            Ok(text) => return Some(text),
            Err(error) => error.valid_up_to(),
        };
        let start = self.at() - bytes.len();
        self.fault = Fault { kind: ErrorKind::BadUtf8, offset: start + wrong };
        None
    }
}
