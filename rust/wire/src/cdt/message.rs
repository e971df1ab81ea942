//! The messages of CDT.

use std::borrow::Cow;

use bytes::Bytes;

use super::fields::Field;
use super::{Content, Settings};
use crate::Fault;

/// The kinds of messages, named like the last token of their subjects (CDT-01, CDT-02, CDT-07).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A request of a source for a configuration.
    #[default]
    ConfigRequest,
    /// The answer to it.
    ConfigResponse,
    /// The push of a configuration from a source to a target, an extension of this package.
    ConfigPush,
    /// The answer to it.
    ConfigPushResponse,
    /// A target's announcement of a new configuration.
    ConfigNewAvailable,
    /// A source's report that an endpoint has applied a configuration.
    ConfigUpdated,
}

impl Kind {
    pub const ALL: &[Self] = &[
        Self::ConfigRequest,
        Self::ConfigResponse,
        Self::ConfigPush,
        Self::ConfigPushResponse,
        Self::ConfigNewAvailable,
        Self::ConfigUpdated,
    ];

    /// Its name: the last token of its subjects.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConfigRequest => "ConfigRequest",
            Self::ConfigResponse => "ConfigResponse",
            Self::ConfigPush => "ConfigPush",
            Self::ConfigPushResponse => "ConfigPushResponse",
            Self::ConfigNewAvailable => "ConfigNewAvailable",
            Self::ConfigUpdated => "ConfigUpdated",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Whether it is an event.
    pub const fn is_event(self) -> bool {
        matches!(self, Self::ConfigNewAvailable | Self::ConfigUpdated)
    }

    /// The kind of the answer to a message of this kind.
    pub(super) const fn answered_with(self) -> Self {
        if matches!(self, Self::ConfigPush) { Self::ConfigPushResponse } else { Self::ConfigResponse }
    }

    /// Whether messages of this kind have a status.
    pub const fn has_status(self) -> bool {
        matches!(self, Self::ConfigResponse | Self::ConfigPushResponse)
    }

    /// Whether messages of this kind may contain a configuration.
    pub const fn has_content(self) -> bool {
        matches!(self, Self::ConfigResponse | Self::ConfigPush | Self::ConfigNewAvailable)
    }
}

/// A message of any kind. Fields that its kind does not have, or that are not given, are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message<'a> {
    pub kind: Kind,
    /// The id for tracing messages; an answer has that of its request (CDT-12, CDT-21).
    pub correlation_id: Cow<'a, str>,
    /// When the message was made: Unix time in milliseconds (CDT-13).
    pub timestamp_ms: i64,
    /// How long it is valid from then on, in milliseconds; -1 and 0 mean indefinitely (CDT-14, CDT-33).
    pub timeout_ms: i64,
    /// The id of the endpoint's own message (CDT-15).
    pub endpoint_message_id: Cow<'a, str>,
    /// The version of the application (CDT-16).
    pub app_version_name: Cow<'a, str>,
    /// The id of the endpoint (CDT-17).
    pub endpoint_id: Cow<'a, str>,
    /// The id of the configuration (CDT-18, CDT-25).
    pub config_id: Cow<'a, str>,
    /// The type of the content (CDT-24).
    pub content_type: Cow<'a, str>,
    /// An HTTP status (CDT-26).
    pub status_code: i32,
    /// The reason for the status (CDT-27).
    pub reason_phrase: Cow<'a, str>,
    /// The replica that sent an event (CDT-44).
    pub originator_replica_id: Cow<'a, str>,
    /// The configuration itself (CDT-28).
    pub content: Option<Content<'a>>,
}

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

impl Message<'_> {
    /// The same message, owning its fields.
    pub fn into_owned(self) -> Message<'static> {
        Message {
            kind: self.kind,
            correlation_id: owned(self.correlation_id),
            timestamp_ms: self.timestamp_ms,
            timeout_ms: self.timeout_ms,
            endpoint_message_id: owned(self.endpoint_message_id),
            app_version_name: owned(self.app_version_name),
            endpoint_id: owned(self.endpoint_id),
            config_id: owned(self.config_id),
            content_type: owned(self.content_type),
            status_code: self.status_code,
            reason_phrase: owned(self.reason_phrase),
            originator_replica_id: owned(self.originator_replica_id),
            content: self.content.map(|content| content.into_bytes().into()),
        }
    }

    /// Whether it has expired (CDT-32).
    pub fn is_expired(&self, unix_ms: i64, skew_ms: i64) -> bool {
        self.timeout_ms > 0 && unix_ms.saturating_sub(skew_ms) > self.timestamp_ms.saturating_add(self.timeout_ms)
    }

    /// The version of the application and the endpoint it concerns.
    pub(super) fn endpoint(&self) -> (String, String) {
        (self.app_version_name.to_string(), self.endpoint_id.to_string())
    }

    /// The text of a field.
    pub(super) fn text(&self, field: Field) -> &str {
        match field {
            Field::CorrelationId => &self.correlation_id,
            Field::OriginatorReplicaId => &self.originator_replica_id,
            Field::EndpointMessageId => &self.endpoint_message_id,
            Field::AppVersionName => &self.app_version_name,
            Field::EndpointId => &self.endpoint_id,
            Field::ContentType => &self.content_type,
            Field::ConfigId => &self.config_id,
            Field::ReasonPhrase => &self.reason_phrase,
            Field::Timestamp | Field::EventTimestamp | Field::Timeout | Field::StatusCode | Field::Content => "",
        }
    }

    /// The number of a field.
    pub(super) fn number(&self, field: Field) -> i64 {
        match field {
            Field::Timestamp | Field::EventTimestamp => self.timestamp_ms,
            Field::Timeout => self.timeout_ms,
            Field::StatusCode => i64::from(self.status_code),
            Field::CorrelationId
            | Field::OriginatorReplicaId
            | Field::EndpointMessageId
            | Field::AppVersionName
            | Field::EndpointId
            | Field::ContentType
            | Field::ConfigId
            | Field::ReasonPhrase
            | Field::Content => 0,
        }
    }
}

/// A message as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub message: Message<'static>,
    /// Its body, bit for bit.
    pub body: Bytes,
    /// The encoding of the body.
    pub settings: Settings,
    /// The service that sent it, from the subject of an event.
    pub originator: Option<Box<str>>,
}

/// The fault of a body, and the fields that could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected<'a> {
    /// The fault, and where it is.
    pub fault: Fault,
    /// The field at fault, if any.
    pub field: Option<&'static str>,
    /// The texts that could be read (CDT-31: the sender must be able to recognise the answer).
    pub remains: Box<Message<'a>>,
}
