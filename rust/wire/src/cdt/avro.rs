//! Messages as binary Avro, by the schemas of the time of the specification.

use bytes::Bytes;

use super::Settings;
use super::draft::Draft;
use super::message::{Field, Holds, Kind, Message, Rejected};
use crate::{ErrorKind, Fault};

/// Reads a body; `share` keeps what is content.
pub(super) fn decode(
    body: &[u8],
    kind: Kind,
    settings: Settings,
    share: impl Fn(&[u8]) -> Bytes,
) -> Result<Message<'_>, Rejected<'_>> {
    let mut reader = Reader { body, at: 0 };
    let mut draft = Draft::new(kind);
    let mut starts = [body.len(); Field::COUNT];
    let fault = match fields(&mut reader, &mut draft, &mut starts, kind, share) {
        Err(fault) => (fault, None),
        Ok(()) if reader.at < body.len() => (Fault { kind: ErrorKind::TrailingBytes, offset: reader.at }, None),
        Ok(()) => match draft.fault(settings.strict) {
            None => return Ok(draft.message()),
            Some((kind, field)) => (Fault { kind, offset: starts[field as usize] }, Some(field.name())),
        },
    };
    Err(Rejected { fault: fault.0, field: fault.1, remains: draft.remains() })
}

fn fields<'a>(
    reader: &mut Reader<'a>,
    draft: &mut Draft<'a>,
    starts: &mut [usize; Field::COUNT],
    kind: Kind,
    share: impl Fn(&[u8]) -> Bytes,
) -> Result<(), Fault> {
    for entry in kind.entries().iter().filter(|entry| entry.in_avro) {
        let start = reader.at;
        starts[entry.field as usize] = start;
        let bad = Fault { kind: ErrorKind::BadAvro, offset: start };
        match entry.field.holds() {
            Holds::Time => match reader.long()? {
                // The schemas of events have it for none.
                -1 if kind.is_event() => {}
                ms => draft.number(*entry, ms),
            },
            Holds::Timeout => draft.number(*entry, reader.long()?),
            Holds::Status => match reader.long()? {
                code if i32::try_from(code).is_ok() => draft.number(*entry, code),
                _ => return Err(bad),
            },
            Holds::Content => match reader.long()? {
                0 => {}
                1 => draft.content(*entry, Some(share(reader.bytes()?))),
                _ => return Err(bad),
            },
            Holds::Text => draft.text(*entry, reader.text()?),
        }
    }
    Ok(())
}

/// Writes a body.
pub(super) fn encode(message: &Message<'_>) -> Vec<u8> {
    let content = message.content.as_ref().map_or(0, Bytes::len);
    let mut body = Vec::with_capacity(320 + content);
    for entry in message.kind.entries().iter().filter(|entry| entry.in_avro) {
        let field = entry.field;
        match field.holds() {
            Holds::Time | Holds::Timeout | Holds::Status => long(&mut body, message.number(field)),
            Holds::Content => match &message.content {
                None => long(&mut body, 0),
                Some(content) => {
                    long(&mut body, 1);
                    bytes(&mut body, content);
                }
            },
            Holds::Text => bytes(&mut body, message.text(field).as_bytes()),
        }
    }
    body
}

/// The zigzag of Avro: seven bits a byte, the lowest first.
fn long(body: &mut Vec<u8>, value: i64) {
    let mut left = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while left > 0x7f {
        body.push((left & 0x7f) as u8 | 0x80);
        left >>= 7;
    }
    body.push((left & 0x7f) as u8);
}

fn bytes(body: &mut Vec<u8>, bytes: &[u8]) {
    long(body, i64::try_from(bytes.len()).unwrap_or(i64::MAX));
    body.extend_from_slice(bytes);
}

struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn long(&mut self) -> Result<i64, Fault> {
        let start = self.at;
        let bad = Fault { kind: ErrorKind::BadAvro, offset: start };
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = *self.body.get(self.at).ok_or(Fault { offset: self.body.len(), ..bad })?;
            self.at += 1;
            // The tenth byte has room for one bit.
            if shift == 63 && byte > 1 {
                return Err(bad);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
            }
        }
        Err(bad)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Fault> {
        let start = self.at;
        let length = usize::try_from(self.long()?).map_err(|_| Fault { kind: ErrorKind::BadAvro, offset: start })?;
        let left = &self.body[self.at..];
        let bytes = left.get(..length).ok_or(Fault { kind: ErrorKind::BadAvro, offset: self.body.len() })?;
        self.at += length;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<&'a str, Fault> {
        let bytes = self.bytes()?;
        let start = self.at - bytes.len();
        str::from_utf8(bytes).map_err(|error| Fault { kind: ErrorKind::BadUtf8, offset: start + error.valid_up_to() })
    }
}
