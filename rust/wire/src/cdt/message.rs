//! What the messages of CDT hold, and what of it each kind must have.

use std::borrow::Cow;

use bytes::Bytes;

use super::Settings;
use crate::Fault;

/// The kinds of messages, named as the last token of their subjects is (CDT-01, CDT-02, CDT-07).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A source asks for a configuration.
    #[default]
    ConfigRequest,
    /// The answer to it.
    ConfigResponse,
    /// A source hands a configuration to a target: an extension of ours.
    ConfigPush,
    /// The answer to it.
    ConfigPushResponse,
    /// A target has a new configuration.
    ConfigNewAvailable,
    /// An endpoint has taken a configuration on.
    ConfigUpdated,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Text,
    /// A number of milliseconds that is not negative.
    Time,
    /// A number of milliseconds; -1 is for ever (CDT-33).
    Timeout,
    Status,
    Content,
}

/// Whether a field must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// It must, and an empty text is none: schemas of Avro have no other way to leave one out.
    Filled,
    /// It must, and may be empty.
    Present,
    /// It must where senders are taken at their word.
    Strict,
    /// It need not.
    Optional,
}

macro_rules! fields {
    ($($field:ident $name:literal $holds:ident,)*) => {
        /// The fields of all kinds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Field {
            $($field,)*
        }

        impl Field {
            pub(super) const COUNT: usize = [$($name,)*].len();

            /// Its name in JSON and Avro.
            pub(super) const fn name(self) -> &'static str {
                match self {
                    $(Self::$field => $name,)*
                }
            }

            /// Its name as JSON has it.
            pub(super) const fn quoted(self) -> &'static str {
                match self {
                    $(Self::$field => concat!("\"", $name, "\""),)*
                }
            }

            pub(super) fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$field),)*
                    _ => None,
                }
            }

            pub(super) const fn holds(self) -> Holds {
                match self {
                    $(Self::$field => Holds::$holds,)*
                }
            }
        }
    };
}

fields! {
    CorrelationId "correlationId" Text,
    Timestamp "timestamp" Time,
    EventTimestamp "eventTimestamp" Time,
    Timeout "timeout" Timeout,
    OriginatorReplicaId "originatorReplicaId" Text,
    EndpointMessageId "endpointMessageId" Text,
    AppVersionName "appVersionName" Text,
    EndpointId "endpointId" Text,
    ContentType "contentType" Text,
    ConfigId "configId" Text,
    StatusCode "statusCode" Status,
    ReasonPhrase "reasonPhrase" Text,
    Content "content" Content,
}

/// A field of a kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) field: Field,
    need: Need,
    /// Whether Avro's schema has it.
    pub(super) in_avro: bool,
}

impl Entry {
    /// Whether an empty text is not written.
    pub(super) const fn is_left_out(self) -> bool {
        matches!(self.need, Need::Optional)
    }

    /// Whether an empty text is none.
    pub(super) const fn is_filled(self) -> bool {
        matches!(self.need, Need::Filled)
    }

    /// Whether it must be there.
    pub(super) const fn is_needed(self, kind: Kind, is_strict: bool) -> bool {
        match self.need {
            // Events have their time by one name or the other.
            Need::Present if matches!(self.field, Field::Timestamp) => !kind.is_event(),
            Need::Filled | Need::Present => true,
            Need::Strict => is_strict,
            Need::Optional => false,
        }
    }
}

const fn of(field: Field, need: Need) -> Entry {
    Entry { field, need, in_avro: true }
}

const fn in_json(field: Field, need: Need) -> Entry {
    Entry { field, need, in_avro: false }
}

const REQUEST: &[Entry] = &[
    of(Field::CorrelationId, Need::Filled),
    of(Field::Timestamp, Need::Present),
    of(Field::Timeout, Need::Strict),
    of(Field::EndpointMessageId, Need::Filled),
    of(Field::AppVersionName, Need::Filled),
    of(Field::EndpointId, Need::Filled),
    of(Field::ConfigId, Need::Optional),
];

const RESPONSE: &[Entry] = &[
    of(Field::CorrelationId, Need::Present),
    of(Field::Timestamp, Need::Present),
    of(Field::Timeout, Need::Strict),
    of(Field::EndpointMessageId, Need::Present),
    of(Field::AppVersionName, Need::Present),
    of(Field::EndpointId, Need::Present),
    of(Field::ContentType, Need::Present),
    of(Field::ConfigId, Need::Present),
    of(Field::StatusCode, Need::Present),
    of(Field::ReasonPhrase, Need::Optional),
    of(Field::Content, Need::Optional),
];

const PUSH: &[Entry] = &[
    of(Field::CorrelationId, Need::Filled),
    of(Field::Timestamp, Need::Present),
    of(Field::Timeout, Need::Strict),
    of(Field::EndpointMessageId, Need::Filled),
    of(Field::AppVersionName, Need::Filled),
    of(Field::EndpointId, Need::Filled),
    of(Field::ContentType, Need::Optional),
    of(Field::ConfigId, Need::Optional),
    of(Field::Content, Need::Optional),
];

const PUSH_RESPONSE: &[Entry] = &[
    of(Field::CorrelationId, Need::Present),
    of(Field::Timestamp, Need::Present),
    of(Field::Timeout, Need::Strict),
    of(Field::EndpointMessageId, Need::Present),
    of(Field::AppVersionName, Need::Present),
    of(Field::EndpointId, Need::Present),
    of(Field::ConfigId, Need::Present),
    of(Field::StatusCode, Need::Present),
    of(Field::ReasonPhrase, Need::Optional),
];

const NEW_AVAILABLE: &[Entry] = &[
    of(Field::CorrelationId, Need::Filled),
    of(Field::Timestamp, Need::Present),
    in_json(Field::EventTimestamp, Need::Optional),
    of(Field::Timeout, Need::Optional),
    of(Field::OriginatorReplicaId, Need::Optional),
    of(Field::AppVersionName, Need::Filled),
    of(Field::EndpointId, Need::Filled),
    of(Field::ConfigId, Need::Filled),
    in_json(Field::ContentType, Need::Optional),
    in_json(Field::Content, Need::Optional),
];

const UPDATED: &[Entry] = &[
    of(Field::CorrelationId, Need::Filled),
    of(Field::Timestamp, Need::Present),
    in_json(Field::EventTimestamp, Need::Optional),
    of(Field::Timeout, Need::Optional),
    of(Field::OriginatorReplicaId, Need::Optional),
    of(Field::AppVersionName, Need::Filled),
    of(Field::EndpointId, Need::Filled),
    of(Field::ConfigId, Need::Filled),
];

impl Kind {
    /// Every kind.
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

    /// Whether it is told to all.
    pub const fn is_event(self) -> bool {
        matches!(self, Self::ConfigNewAvailable | Self::ConfigUpdated)
    }

    /// What answers a message of this kind.
    pub(super) const fn answered_with(self) -> Self {
        if matches!(self, Self::ConfigPush) { Self::ConfigPushResponse } else { Self::ConfigResponse }
    }

    pub(super) const fn entries(self) -> &'static [Entry] {
        match self {
            Self::ConfigRequest => REQUEST,
            Self::ConfigResponse => RESPONSE,
            Self::ConfigPush => PUSH,
            Self::ConfigPushResponse => PUSH_RESPONSE,
            Self::ConfigNewAvailable => NEW_AVAILABLE,
            Self::ConfigUpdated => UPDATED,
        }
    }

    /// Whether messages of this kind have a status.
    pub const fn has_status(self) -> bool {
        matches!(self, Self::ConfigResponse | Self::ConfigPushResponse)
    }

    /// Whether messages of this kind may hold a configuration.
    pub const fn has_content(self) -> bool {
        matches!(self, Self::ConfigResponse | Self::ConfigPush | Self::ConfigNewAvailable)
    }
}

/// A message of any kind. What its kind does not have, or it leaves out, is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message<'a> {
    /// What it is.
    pub kind: Kind,
    /// What those who trace messages go by, and what an answer has of its request (CDT-12, CDT-21).
    pub correlation_id: Cow<'a, str>,
    /// When it was made: Unix time in milliseconds (CDT-13).
    pub timestamp_ms: i64,
    /// How long it holds from then on; -1 and 0 are for ever (CDT-14, CDT-33).
    pub timeout_ms: i64,
    /// What the endpoint asked with (CDT-15).
    pub endpoint_message_id: Cow<'a, str>,
    /// The version of the application (CDT-16).
    pub app_version_name: Cow<'a, str>,
    /// The endpoint (CDT-17).
    pub endpoint_id: Cow<'a, str>,
    /// The configuration (CDT-18, CDT-25).
    pub config_id: Cow<'a, str>,
    /// Of what type the content is (CDT-24).
    pub content_type: Cow<'a, str>,
    /// What HTTP would say (CDT-26).
    pub status_code: i32,
    /// The same in words (CDT-27).
    pub reason_phrase: Cow<'a, str>,
    /// Which replica tells an event (CDT-44).
    pub originator_replica_id: Cow<'a, str>,
    /// The configuration itself (CDT-28).
    pub content: Option<Bytes>,
}

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

impl<'a> Message<'a> {
    /// The same, for as long as one likes.
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
            content: self.content,
        }
    }

    /// Whether its time is over (CDT-32).
    pub fn is_expired(&self, unix_ms: i64, skew_ms: i64) -> bool {
        self.timeout_ms > 0 && unix_ms.saturating_sub(skew_ms) > self.timestamp_ms.saturating_add(self.timeout_ms)
    }

    /// Whom it is about: the version of the application, and the endpoint.
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

    pub(super) fn text_mut(&mut self, field: Field) -> Option<&mut Cow<'a, str>> {
        match field {
            Field::CorrelationId => Some(&mut self.correlation_id),
            Field::OriginatorReplicaId => Some(&mut self.originator_replica_id),
            Field::EndpointMessageId => Some(&mut self.endpoint_message_id),
            Field::AppVersionName => Some(&mut self.app_version_name),
            Field::EndpointId => Some(&mut self.endpoint_id),
            Field::ContentType => Some(&mut self.content_type),
            Field::ConfigId => Some(&mut self.config_id),
            Field::ReasonPhrase => Some(&mut self.reason_phrase),
            Field::Timestamp | Field::EventTimestamp | Field::Timeout | Field::StatusCode | Field::Content => None,
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

/// A message as it came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// What it says.
    pub message: Message<'static>,
    /// Its body, bit for bit.
    pub body: Bytes,
    /// How that is written.
    pub settings: Settings,
}

/// What is wrong with a body, and what could be read of it all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected<'a> {
    /// What, and where.
    pub fault: Fault,
    /// The field it is about, if it is one.
    pub field: Option<&'static str>,
    /// The texts that are there (CDT-31: who sent it is to recognise the answer).
    pub remains: Box<Message<'a>>,
}
