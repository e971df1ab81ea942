//! What the fields of a JSON body hold, whatever that is.

use std::borrow::Cow;

use bytes::Bytes;

use super::fields::{Field, Holds};
use super::message::{Kind, Message};
use crate::ErrorKind;

/// What a field was found to hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Value<'a> {
    #[default]
    Absent,
    Null,
    Number(i64),
    Text(Cow<'a, str>),
    /// What stands for bytes, as it is written.
    Bytes(Cow<'a, str>),
    /// Anything that no field holds.
    Other,
}

/// What was found of a message, before anything is said about it.
#[derive(Clone, Debug, Default)]
pub(super) struct Found<'a>([Value<'a>; Field::COUNT]);

impl<'a> Found<'a> {
    pub(super) fn set(&mut self, field: Field, value: Value<'a>) {
        self.0[field as usize] = value;
    }

    fn take(&mut self, field: Field) -> Value<'a> {
        std::mem::take(&mut self.0[field as usize])
    }

    /// The message, if it is one: else what is wrong with which field. `content` says what stands for bytes.
    pub(super) fn message(
        mut self,
        kind: Kind,
        is_strict: bool,
        content: impl Fn(&str) -> Option<Bytes>,
    ) -> Result<Message<'a>, (ErrorKind, Field)> {
        let mut message = Message { kind, timeout_ms: -1, timestamp_ms: -1, ..Message::default() };
        for entry in kind.entries() {
            let field = entry.field;
            let bad = |kind| Err((kind, field));
            match (entry.holds, self.take(field)) {
                (Holds::Text, Value::Text(text)) => {
                    if entry.is_filled() && text.is_empty() {
                        return bad(ErrorKind::MissingField);
                    }
                    if let Some(held) = message.text_mut(field) {
                        *held = text;
                    }
                }
                (Holds::Time, Value::Number(ms)) if ms >= 0 => {
                    // An event may have its time twice; the first name is the one that schemas have.
                    if message.timestamp_ms < 0 {
                        message.timestamp_ms = ms;
                    }
                }
                (Holds::Timeout, Value::Number(ms)) if ms >= -1 => message.timeout_ms = ms,
                (Holds::Timeout, Value::Number(_)) => return bad(ErrorKind::BadTimeout),
                (Holds::Timeout, Value::Null) => {}
                (Holds::Status, Value::Number(code)) if i32::try_from(code).is_ok() => {
                    message.status_code = i32::try_from(code).unwrap_or_default();
                }
                (Holds::Content, Value::Bytes(text)) => {
                    message.content = Some(content(&text).ok_or((ErrorKind::BadBase64, field))?.into());
                }
                (Holds::Content, Value::Text(text)) if !is_strict => {
                    message.content = Some(content(&text).ok_or((ErrorKind::BadBase64, field))?.into());
                }
                (_, Value::Absent | Value::Null) => {
                    if entry.is_needed(kind, is_strict) {
                        return bad(ErrorKind::MissingField);
                    }
                }
                (
                    Holds::Text | Holds::Time | Holds::Timeout | Holds::Status | Holds::Content,
                    Value::Number(_) | Value::Text(_) | Value::Bytes(_) | Value::Other,
                ) => return bad(ErrorKind::BadType),
            }
        }
        if message.timestamp_ms < 0 {
            return Err((ErrorKind::MissingField, Field::Timestamp));
        }
        Ok(message)
    }

    /// What can be read of a message that is none: the texts that are there.
    pub(super) fn remains(mut self, kind: Kind) -> Box<Message<'a>> {
        let mut message = Message { kind, timeout_ms: -1, ..Message::default() };
        for entry in kind.entries() {
            if let (Value::Text(text), Some(held)) = (self.take(entry.field), message.text_mut(entry.field)) {
                *held = text;
            }
        }
        Box::new(message)
    }
}
