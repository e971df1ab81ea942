//! Messages as binary Avro, by the schemas of the time of the specification.

use std::borrow::Cow;

use bytes::Bytes;

use super::Settings;
use super::message::{Field, Found, Holds, Kind, Message, Rejected, Value};
use crate::{ErrorKind, Fault};

/// Reads a body.
pub(super) fn decode(body: &[u8], kind: Kind, settings: Settings) -> Result<Message<'_>, Rejected<'_>> {
    let mut reader = Reader { body, at: 0 };
    let mut found = Found::default();
    let mut starts = [body.len(); Field::COUNT];
    let read = fields(&mut reader, &mut found, &mut starts, kind);
    let whole = found.clone();
    let rejected = |fault, field| Rejected { fault, field, remains: whole.clone().remains(kind) };
    read.map_err(|fault| rejected(fault, None))?;
    if reader.at < body.len() {
        return Err(rejected(Fault { kind: ErrorKind::TrailingBytes, offset: reader.at }, None));
    }
    let message = found.message(kind, settings.strict, |_| None);
    message.map_err(|(kind_of_fault, field)| {
        rejected(Fault { kind: kind_of_fault, offset: starts[field as usize] }, Some(field.name()))
    })
}

fn fields<'a>(
    reader: &mut Reader<'a>,
    found: &mut Found<'a>,
    starts: &mut [usize; Field::COUNT],
    kind: Kind,
) -> Result<(), Fault> {
    for entry in kind.entries().iter().filter(|entry| entry.in_avro) {
        let field = entry.field;
        starts[field as usize] = reader.at;
        let value = match field.holds() {
            Holds::Time => match reader.long()? {
                // The schemas of events have it for none.
                -1 if kind.is_event() => Value::Absent,
                ms => Value::Number(ms),
            },
            Holds::Timeout => Value::Number(reader.long()?),
            Holds::Status => {
                let start = reader.at;
                let code = reader.long()?;
                i32::try_from(code).map_err(|_| Fault { kind: ErrorKind::BadAvro, offset: start })?;
                Value::Number(code)
            }
            Holds::Content => {
                let start = reader.at;
                match reader.long()? {
                    0 => Value::Null,
                    1 => Value::Raw(reader.bytes()?),
                    _ => return Err(Fault { kind: ErrorKind::BadAvro, offset: start }),
                }
            }
            Holds::Text => Value::Text(Cow::Borrowed(reader.text()?)),
        };
        found.set(field, value);
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
