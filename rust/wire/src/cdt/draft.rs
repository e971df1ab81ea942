//! A message that is built field by field.

use std::borrow::Cow;

use super::Content;
use super::fields::{Entry, Field, Holds};
use super::message::{Kind, Message};
use crate::ErrorKind;

/// The fields read of a message, and its first fault. `T` is the type of texts: borrowed from the body, or decoded
/// where the body has escapes.
pub(super) struct Draft<'a, T = &'a str> {
    kind: Kind,
    /// One slot per field, of any type, so that no look-up is needed.
    texts: [T; Field::COUNT],
    timestamp_ms: i64,
    timeout_ms: i64,
    status_code: i32,
    content: Option<Content<'a>>,
    /// A bit for each field that was found.
    seen: u16,
    fault: Option<(ErrorKind, Field)>,
}

impl<'a, T: AsRef<str> + Default + Into<Cow<'a, str>>> Draft<'a, T> {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            texts: std::array::from_fn(|_| T::default()),
            timestamp_ms: -1,
            timeout_ms: -1,
            status_code: 0,
            content: None,
            seen: 0,
            fault: None,
        }
    }

    pub(super) const fn has(&self, field: Field) -> bool {
        self.seen & field.bit() != 0
    }

    /// A field was found, or counts as found.
    pub(super) fn saw(&mut self, field: Field) {
        self.seen |= field.bit();
    }

    pub(super) fn wrong(&mut self, kind: ErrorKind, field: Field) {
        self.fault.get_or_insert((kind, field));
    }

    #[inline]
    pub(super) fn text(&mut self, entry: Entry, text: T) {
        let field = entry.field;
        if entry.holds != Holds::Text {
            self.wrong(ErrorKind::BadType, field);
        } else if text.as_ref().is_empty() && entry.is_filled() {
            self.wrong(ErrorKind::MissingField, field);
        } else {
            self.texts[field as usize] = text;
        }
        self.saw(field);
    }

    #[inline]
    pub(super) fn number(&mut self, entry: Entry, number: i64) {
        let field = entry.field;
        match entry.holds {
            // An event may have its time twice; the name of the schemas takes precedence.
            Holds::Time if number >= 0 && field == Field::EventTimestamp && self.has(Field::Timestamp) => {}
            Holds::Time if number >= 0 => self.timestamp_ms = number,
            Holds::Timeout if number >= -1 => self.timeout_ms = number,
            Holds::Timeout => self.wrong(ErrorKind::BadTimeout, field),
            Holds::Status => match i32::try_from(number) {
                Ok(code) => self.status_code = code,
                Err(_) => self.wrong(ErrorKind::BadType, field),
            },
            Holds::Time | Holds::Text | Holds::Content => self.wrong(ErrorKind::BadType, field),
        }
        self.saw(field);
    }

    #[inline]
    pub(super) fn content(&mut self, entry: Entry, content: Option<Content<'a>>) {
        match (entry.holds, content) {
            (Holds::Content, Some(content)) => self.content = Some(content),
            (Holds::Content, None) => self.wrong(ErrorKind::BadBase64, entry.field),
            (Holds::Text | Holds::Time | Holds::Timeout | Holds::Status, _) => {
                self.wrong(ErrorKind::BadType, entry.field);
            }
        }
        self.saw(entry.field);
    }

    /// Its first fault, if any.
    #[inline]
    pub(super) fn fault(&self, is_strict: bool) -> Option<(ErrorKind, Field)> {
        let needed = self.kind.needed(is_strict);
        if self.fault.is_none() && self.seen & needed == needed && self.timestamp_ms >= 0 {
            return None;
        }
        let missing = || {
            let mut fields = self.kind.entries().iter().map(|entry| entry.field);
            let missing = fields.find(|field| needed & !self.seen & field.bit() != 0);
            (ErrorKind::MissingField, missing.unwrap_or(Field::Timestamp))
        };
        Some(self.fault.unwrap_or_else(missing))
    }

    /// The message, which must have no fault.
    #[inline]
    pub(super) fn message(mut self) -> Message<'a> {
        let mut text = |field: Field| std::mem::take(&mut self.texts[field as usize]).into();
        Message {
            kind: self.kind,
            correlation_id: text(Field::CorrelationId),
            timestamp_ms: self.timestamp_ms,
            timeout_ms: self.timeout_ms,
            endpoint_message_id: text(Field::EndpointMessageId),
            app_version_name: text(Field::AppVersionName),
            endpoint_id: text(Field::EndpointId),
            config_id: text(Field::ConfigId),
            content_type: text(Field::ContentType),
            status_code: self.status_code,
            reason_phrase: text(Field::ReasonPhrase),
            originator_replica_id: text(Field::OriginatorReplicaId),
            content: self.content,
        }
    }

    /// The texts that were read.
    pub(super) fn remains(self) -> Box<Message<'a>> {
        let none = Self { timestamp_ms: 0, timeout_ms: -1, status_code: 0, content: None, ..self };
        Box::new(none.message())
    }
}
