//! Messages as JSON: an object, its content as base64.

use std::borrow::Cow;
use std::fmt;

use base64_simd::STANDARD;
use bytes::Bytes;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::body::{Body, Form};
use super::draft::Draft;
use super::fields::{Field, Holds};
use super::message::{Kind, Message, Rejected};
use super::values::{FieldValues, Value};
use super::{BytesEncoding, Content, Settings, plain};
use crate::{ErrorKind, Fault};

pub(super) fn decode(body: &[u8], kind: Kind, settings: Settings) -> Result<Message<'_>, Rejected<'_>> {
    match decode_plain(body, kind, settings) {
        Some(message) => Ok(message),
        None => decode_any(body, kind, settings),
    }
}

/// Reads a body in the common form.
pub(super) fn decode_plain(body: &[u8], kind: Kind, settings: Settings) -> Option<Message<'_>> {
    let mut draft = Draft::new(kind);
    plain::read(body, kind, &mut draft, |quoted| match settings.bytes_encoding {
        // Base64 has no characters that need escapes.
        BytesEncoding::Base64 => base64(quoted).map(Content::from),
        BytesEncoding::Latin1 => plain::text(quoted).and_then(latin1).map(Content::from),
    })?;
    draft.fault(settings.strict).is_none().then(|| draft.message())
}

/// Reads any body, or reports its fault.
pub(super) fn decode_any<'a>(body: &'a [u8], kind: Kind, settings: Settings) -> Result<Message<'a>, Rejected<'a>> {
    let bad = |kind_of_fault, offset| Rejected {
        fault: Fault { kind: kind_of_fault, offset },
        field: None,
        remains: Box::new(Message { kind, timeout_ms: -1, ..Message::default() }),
    };
    let text = str::from_utf8(body).map_err(|error| bad(ErrorKind::BadUtf8, error.valid_up_to()))?;
    let top: Top<'a> = serde_json::from_str(text).map_err(|error| bad(ErrorKind::BadJson, place(text, &error)))?;
    let Some(found) = top.0 else {
        let start = text.len() - text.trim_start().len();
        return Err(bad(ErrorKind::NotAnObject, start));
    };
    let draft = found.draft(kind, settings.strict, |text| bytes(text, settings.bytes_encoding));
    match draft.fault(settings.strict) {
        None => Ok(draft.message()),
        Some((kind, field)) => Err(Rejected {
            fault: Fault { kind, offset: offset(text, field) },
            field: Some(field.name()),
            remains: draft.remains(),
        }),
    }
}

pub(super) fn encode<'a>(message: &'a Message<'_>, encoding: BytesEncoding) -> Body<'a> {
    let mut body = Body::new(Form::Base64);
    for entry in message.kind.entries() {
        let field = entry.field;
        match entry.holds {
            Holds::Time | Holds::Timeout | Holds::Status => {
                begin(body.around(), field);
                write(body.around(), &message.number(field));
            }
            Holds::Content => {
                if let Some(content) = &message.content {
                    begin(body.around(), field);
                    body.around().extend_from_slice(b"{\"bytes\":");
                    match encoding {
                        BytesEncoding::Base64 => {
                            body.around().push(b'"');
                            body.add_content(content);
                            body.around().push(b'"');
                        }
                        BytesEncoding::Latin1 => {
                            let text: String = content.iter().copied().map(char::from).collect();
                            write(body.around(), &text);
                        }
                    }
                    body.around().push(b'}');
                }
            }
            Holds::Text => {
                let text = message.text(field);
                if !(text.is_empty() && entry.is_left_out()) {
                    begin(body.around(), field);
                    write(body.around(), text);
                }
            }
        }
    }
    body.around().push(b'}');
    body
}

fn begin(body: &mut Vec<u8>, field: Field) {
    body.push(if body.is_empty() { b'{' } else { b',' });
    body.push(b'"');
    body.extend_from_slice(field.name().as_bytes());
    body.extend_from_slice(b"\":");
}

fn write(body: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    serde_json::to_writer(body, value).expect("texts and numbers have a form, and a Vec takes it");
}

fn base64(text: &[u8]) -> Option<Bytes> {
    STANDARD.decode_to_vec(text).ok().map(Bytes::from)
}

fn latin1(text: &str) -> Option<Bytes> {
    text.chars().map(|char| u8::try_from(u32::from(char)).ok()).collect()
}

/// Decodes bytes.
fn bytes(text: &str, encoding: BytesEncoding) -> Option<Bytes> {
    match encoding {
        BytesEncoding::Base64 => base64(text.as_bytes()),
        BytesEncoding::Latin1 => latin1(text),
    }
}

/// Where a text stops being valid JSON.
fn place(text: &str, error: &serde_json::Error) -> usize {
    if error.is_eof() {
        return text.len();
    }
    let before: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    (before + error.column().saturating_sub(1)).min(text.len())
}

/// Where the value of a field is; the end if it is missing.
fn offset(text: &str, field: Field) -> usize {
    let raw: Result<Raws<'_>, _> = serde_json::from_str(text);
    let found = raw.ok().and_then(|raws| raws.0.into_iter().rev().find(|(name, _)| name == field.name()));
    found.map_or(text.len(), |(_, raw)| raw.get().as_ptr() as usize - text.as_ptr() as usize)
}

/// The members of an object, undecoded.
struct Raws<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Raws<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Raws<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raws<'de>, A::Error> {
                let mut members = vec![];
                while let Some(Name(name)) = map.next_key()? {
                    members.push((name, map.next_value()?));
                }
                Ok(Raws(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// A name, copied only if it has escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// A body: an object, or `None` for any other value.
struct Top<'a>(Option<FieldValues<'a>>);

impl<'de> Deserialize<'de> for Top<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Body;

        macro_rules! no_object {
            ($($visit:ident: $type:ty,)*) => {
                $(fn $visit<E>(self, _: $type) -> Result<Self::Value, E> {
                    Ok(Top(None))
                })*
            };
        }

        impl<'de> Visitor<'de> for Body {
            type Value = Top<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            no_object! { visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str, }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Top(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
                while sequence.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Top(None))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut found = FieldValues::default();
                while let Some(Name(name)) = map.next_key()? {
                    match Field::named(&name) {
                        // The last of several with one name counts, as in most JSON parsers.
                        Some(field) => found.set(field, map.next_value()?),
                        None => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(Top(Some(found)))
            }
        }

        deserializer.deserialize_any(Body)
    }
}

impl<'de> Deserialize<'de> for Value<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Value<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Value::Null)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(Value::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
                Ok(Value::Other)
            }

            fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
                Ok(Value::Number(number))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(i64::try_from(number).map_or(Value::Other, Value::Number))
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Value::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Value::Text(Cow::Owned(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
                while sequence.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Value::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut held = Value::Other;
                while let Some(Name(name)) = map.next_key()? {
                    if name == "bytes" {
                        held = match map.next_value()? {
                            Value::Text(text) => Value::Bytes(text),
                            Value::Absent | Value::Null | Value::Number(_) | Value::Bytes(_) | Value::Other => {
                                Value::Other
                            }
                        };
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(held)
            }
        }

        deserializer.deserialize_any(Any)
    }
}
