//! What the fields of a JSON body hold, whatever that is.

use std::borrow::Cow;

use bytes::Bytes;

use super::Content;
use super::draft::Draft;
use super::fields::{Field, Holds};
use super::message::Kind;
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

    /// The message that it is, or what is wrong with it. `content` says what stands for bytes.
    pub(super) fn draft(
        self,
        kind: Kind,
        is_strict: bool,
        content: impl Fn(&str) -> Option<Bytes>,
    ) -> Draft<'a, Cow<'a, str>> {
        let (mut draft, mut found) = (Draft::new(kind), self.0);
        for entry in kind.entries() {
            let content = |text: Cow<'_, str>| content(&text).map(Content::from);
            match std::mem::take(&mut found[entry.field as usize]) {
                Value::Text(text) if entry.holds == Holds::Content && !is_strict => {
                    draft.content(*entry, content(text));
                }
                Value::Text(text) => draft.text(*entry, text),
                Value::Number(number) => draft.number(*entry, number),
                Value::Bytes(text) => draft.content(*entry, content(text)),
                Value::Other => draft.wrong(ErrorKind::BadType, entry.field),
                Value::Null if entry.holds == Holds::Timeout => draft.saw(entry.field),
                Value::Absent | Value::Null if entry.is_needed(kind, is_strict) => {
                    draft.wrong(ErrorKind::MissingField, entry.field);
                }
                Value::Absent | Value::Null => {}
            }
        }
        draft
    }
}
