//! The fields of messages, and which of them each kind requires.

use super::Kind;

/// What a field contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Text,
    /// A number of milliseconds that is not negative.
    Time,
    /// A number of milliseconds; -1 means no limit (CDT-33).
    Timeout,
    Status,
    Content,
}

/// Whether a field is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Required; an empty text counts as missing, as Avro schemas cannot leave a field out.
    Filled,
    /// Required, but may be empty.
    Present,
    /// Required in strict mode.
    Strict,
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

            /// What follows its name and a colon, if the JSON begins with those. The names are constants, so that each
            /// comparison has a known length.
            #[inline]
            pub(super) fn after(self, json: &[u8]) -> Option<&[u8]> {
                match self {
                    $(Self::$field => json.strip_prefix(concat!("\"", $name, "\":").as_bytes()),)*
                }
            }

            pub(super) fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$field),)*
                    _ => None,
                }
            }

            const fn holds(self) -> Holds {
                match self {
                    $(Self::$field => Holds::$holds,)*
                }
            }
        }
    };
}

impl Field {
    /// Its bit in the set of fields found.
    #[inline]
    pub(super) const fn bit(self) -> u16 {
        1 << self as u16
    }
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
    /// What the field contains, kept here to save a match on the field.
    pub(super) holds: Holds,
    need: Need,
    /// Whether Avro's schema has it.
    pub(super) in_avro: bool,
}

impl Entry {
    /// Whether an empty text is omitted.
    pub(super) const fn is_left_out(self) -> bool {
        matches!(self.need, Need::Optional)
    }

    /// Whether an empty text counts as missing.
    #[inline]
    pub(super) const fn is_filled(self) -> bool {
        matches!(self.need, Need::Filled)
    }

    /// Whether it is required.
    pub(super) const fn is_needed(self, kind: Kind, is_strict: bool) -> bool {
        match self.need {
            // Events may have their time under either name.
            Need::Present if matches!(self.field, Field::Timestamp) => !kind.is_event(),
            Need::Filled | Need::Present => true,
            Need::Strict => is_strict,
            Need::Optional => false,
        }
    }
}

const fn of(field: Field, need: Need) -> Entry {
    Entry { field, holds: field.holds(), need, in_avro: true }
}

const fn in_json(field: Field, need: Need) -> Entry {
    Entry { field, holds: field.holds(), need, in_avro: false }
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

/// The bits of the fields that a kind requires.
const fn bits(kind: Kind, is_strict: bool) -> u16 {
    let (mut bits, mut left) = (0, kind.entries());
    while let [entry, others @ ..] = left {
        if entry.is_needed(kind, is_strict) {
            bits |= entry.field.bit();
        }
        left = others;
    }
    bits
}

impl Kind {
    /// Its fields, in the order of the schemas.
    #[inline]
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

    /// The fields that are required.
    #[inline]
    pub(super) const fn needed(self, is_strict: bool) -> u16 {
        const NEEDED: [[u16; 2]; Kind::ALL.len()] = {
            let (mut all, mut at) = ([[0; 2]; Kind::ALL.len()], 0);
            while at < all.len() {
                let kind = Kind::ALL[at];
                all[kind as usize] = [bits(kind, false), bits(kind, true)];
                at += 1;
            }
            all
        };
        NEEDED[self as usize][is_strict as usize]
    }
}
