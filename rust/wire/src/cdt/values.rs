//! The fields of a JSON body before their types are checked.

use std::borrow::Cow;

use bytes::Bytes;

use super::Content;
use super::draft::Draft;
use super::fields::{Field, Holds};
use super::message::Kind;
use crate::ErrorKind;

/// The value of a field.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Value<'a> {
    #[default]
    Absent,
    Null,
    Number(i64),
    Text(Cow<'a, str>),
    /// Encoded bytes.
    Bytes(Cow<'a, str>),
    /// A value that no field allows.
    Other,
}

/// The fields found in a body, still unchecked.
#[derive(Clone, Debug, Default)]
pub(super) struct FieldValues<'a>([Value<'a>; Field::COUNT]);

impl<'a> FieldValues<'a> {
    pub(super) fn set(&mut self, field: Field, value: Value<'a>) {
        self.0[field as usize] = value;
    }

    /// Checks the fields. `content` decodes bytes.
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
