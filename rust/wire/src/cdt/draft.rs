//! A message that is put together field by field, without a detour.

use std::borrow::Cow;

use bytes::Bytes;

use super::message::{Entry, Field, Holds, Kind, Message};
use crate::ErrorKind;

/// What has been read of a message, and the first thing that is wrong with it.
pub(super) struct Draft<'a> {
    message: Message<'a>,
    /// A bit for each field that was there.
    seen: u16,
    fault: Option<(ErrorKind, Field)>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(kind: Kind) -> Self {
        let message = Message { kind, timeout_ms: -1, timestamp_ms: -1, ..Message::default() };
        Self { message, seen: 0, fault: None }
    }

    pub(super) const fn has(&self, field: Field) -> bool {
        self.seen & (1 << field as u16) != 0
    }

    fn saw(&mut self, field: Field) {
        self.seen |= 1 << field as u16;
    }

    fn wrong(&mut self, kind: ErrorKind, field: Field) {
        self.fault.get_or_insert((kind, field));
    }

    pub(super) fn text(&mut self, entry: Entry, text: &'a str) {
        let field = entry.field;
        match self.message.text_mut(field) {
            Some(_) if text.is_empty() && entry.is_filled() => self.wrong(ErrorKind::MissingField, field),
            Some(held) => *held = Cow::Borrowed(text),
            None => self.wrong(ErrorKind::BadType, field),
        }
        self.saw(field);
    }

    pub(super) fn number(&mut self, entry: Entry, number: i64) {
        let field = entry.field;
        match field.holds() {
            // An event may have its time twice; the first name is the one that schemas have.
            Holds::Time if number >= 0 && field == Field::EventTimestamp && self.has(Field::Timestamp) => {}
            Holds::Time if number >= 0 => self.message.timestamp_ms = number,
            Holds::Timeout if number >= -1 => self.message.timeout_ms = number,
            Holds::Timeout => self.wrong(ErrorKind::BadTimeout, field),
            Holds::Status => match i32::try_from(number) {
                Ok(code) => self.message.status_code = code,
                Err(_) => self.wrong(ErrorKind::BadType, field),
            },
            Holds::Time | Holds::Text | Holds::Content => self.wrong(ErrorKind::BadType, field),
        }
        self.saw(field);
    }

    pub(super) fn content(&mut self, entry: Entry, content: Option<Bytes>) {
        match (entry.field.holds(), content) {
            (Holds::Content, Some(content)) => self.message.content = Some(content),
            (Holds::Content, None) => self.wrong(ErrorKind::BadBase64, entry.field),
            (Holds::Text | Holds::Time | Holds::Timeout | Holds::Status, _) => {
                self.wrong(ErrorKind::BadType, entry.field);
            }
        }
        self.saw(entry.field);
    }

    /// What is wrong with it, if anything is.
    pub(super) fn fault(&self, is_strict: bool) -> Option<(ErrorKind, Field)> {
        let kind = self.message.kind;
        let missing = || {
            let mut needed = kind.entries().iter().filter(|entry| entry.is_needed(kind, is_strict));
            let missing = needed.find(|entry| !self.has(entry.field)).map(|entry| entry.field);
            missing.or_else(|| (self.message.timestamp_ms < 0).then_some(Field::Timestamp))
        };
        self.fault.or_else(|| missing().map(|field| (ErrorKind::MissingField, field)))
    }

    /// The message that nothing is wrong with.
    pub(super) fn message(self) -> Message<'a> {
        self.message
    }

    /// The texts that are there.
    pub(super) fn remains(self) -> Box<Message<'a>> {
        let status_code = 0;
        Box::new(Message { timestamp_ms: 0, timeout_ms: -1, status_code, content: None, ..self.message })
    }
}
