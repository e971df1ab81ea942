//! Why the bytes of a message are invalid, and why a valid message is dropped.

use std::{error::Error, fmt};

/// Declares a list of kinds, each with its slug and meaning in one place.
#[macro_export]
macro_rules! kinds {
    ($(#[$doc:meta])* $list:ident: $($name:ident $slug:literal $meaning:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $list {
            $(#[doc = $meaning] $name,)*
        }

        impl $list {
            /// Every kind, in the order of the declaration.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its stable name.
            pub const fn slug(self) -> &'static str {
                match self {
                    $(Self::$name => $slug,)*
                }
            }

            /// Its meaning, in words.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
                }
            }
        }

        impl ::std::fmt::Display for $list {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.slug())
            }
        }
    };
}

kinds! {
    /// Why bytes are not a message: a closed list, part of the interface.
    ErrorKind:
    MissingPayload "missing_payload" "no frames, or no payload frame although the header requires one",
    TooManyFrames "too_many_frames" "more than 10,000 frames",
    BadPayloadCount "bad_payload_count" "wrong number of payload frames for this type of message",
    BadHeader "bad_header" "not the sequence of MessagePack objects that makes a header",
    BadProtocol "bad_protocol" "the identifier of another protocol, or none",
    UnsupportedVersion "unsupported_version" "a version or variant that is not accepted",
    BadUtf8 "bad_utf8" "a string that is not UTF-8",
    BadTimestamp "bad_timestamp" "not a MessagePack timestamp",
    BadType "bad_type" "an unknown message type, or a field of the wrong type",
    BadSequence "bad_sequence" "a sequence number that is not an unsigned integer",
    BadMapKey "bad_map_key" "a tag whose name is not a string",
    TooDeep "too_deep" "more than 32 maps and arrays inside each other",
    TrailingBytes "trailing_bytes" "bytes after the end of the header or datagram",
    Truncated "truncated" "the bytes end too early",
    BadRecord "bad_record" "a record that is not a sequence number, tags and blocks of bytes",
    BadDelimiter "bad_delimiter" "no empty frame at the end of the address",
    UnexpectedType "unexpected_type" "a type of message that this role must not be sent",
    BadFrameCount "bad_frame_count" "wrong number of frames for this type of message",
    MissingClient "missing_client" "a reply without the client's address",
    MissingDelimiter "missing_delimiter" "no empty frame at the end of the client's address or of the metadata",
    BadService "bad_service" "an unknown service number",
    BadPort "bad_port" "an offer of port 0, which cannot be connected to",
    MissingVerb "missing_verb" "no frames, or an empty one in place of the verb",
    UnknownVerb "unknown_verb" "not one of the nine verbs, in capitals",
    OddHeaders "odd_headers" "a header without a value",
    BadTtl "bad_ttl" "a TTL that is not a number of milliseconds, or is longer than allowed",
    MissingTopic "missing_topic" "no TOPIC although the verb requires one",
    MissingId "missing_id" "an OK without the ID of the message it confirms",
    BadCommand "bad_command" "not a printable Class.Method name",
    BadStatus "bad_status" "not three digits from 200 to 599",
    BadJson "bad_json" "not JSON, not an object that every parser accepts, or more than 1,000,000 values",
    EmptyHeader "empty_header" "an empty frame in place of the header",
    UnknownType "unknown_type" "not one of the nine data types",
    BadShortString "bad_short_string" "a name that is not printable UTF-8",
    BadBoolean "bad_boolean" "neither 0 nor 1",
    BadAvro "bad_avro" "not the binary Avro of the schema",
    NotAnObject "not_an_object" "JSON, but not an object",
    MissingField "missing_field" "a required field is missing or empty",
    BadBase64 "bad_base64" "bytes that are not in the required form",
    BadTimeout "bad_timeout" "a timeout below -1",
    BadFieldTable "bad_field_table" "not a field table, or one with a duplicate name, more than 16 levels or more than 1,000,000 values",
}

kinds! {
    /// Why a valid message was dropped: a closed list, part of the interface.
    DropKind:
    QueueFull "queue_full" "the queue of the service is full",
    QueueExpired "queue_expired" "it waited in a queue too long",
    Unroutable "unroutable" "no peer has this address any longer",
    PeerFull "peer_full" "the receiver does not read",
    Spoofed "spoofed" "a reply from a peer that was never a worker",
    TableFull "table_full" "more services are offered than can be remembered",
    Forbidden "forbidden" "not allowed by the policy",
    UnexpectedVerb "unexpected_verb" "a verb that this role must not be sent",
    TooManyTopics "too_many_topics" "more topics would have subscribers than allowed",
    BadTopic "bad_topic" "a topic of more than 64 KiB",
    Expired "expired" "it expired",
    NoReplyTo "no_reply_to" "a request without a subject to answer to",
    Late "late" "an answer that arrived twice or too late",
    UnknownCorrelation "unknown_correlation" "an answer to no pending request",
    OwnEvent "own_event" "an event sent by this replica itself",
    UnknownType "unknown_type" "an event that is not about configurations",
    DeadLetterFull "dead_letter_full" "the dead-letter resource is full",
    EchoTooLong "echo_too_long" "more than 16 KiB that the answer would have to repeat",
    TooManyQueues "too_many_queues" "a queue beyond those that its user, or all users, may have",
}

/// Why these bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecodeError {
    /// The kind of fault.
    pub kind: ErrorKind,
    /// The frame at fault, or the first one missing or too many.
    pub frame: usize,
    /// The position in that frame: the first byte of the object at fault, the first byte that is not UTF-8, the first
    /// byte too many, or the length of a frame that is too short.
    pub offset: usize,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, frame, offset } = self;
        write!(f, "{kind} in frame {frame} at byte {offset}: {}", kind.meaning())
    }
}

impl Error for DecodeError {}

/// A [`DecodeError`] before its frame is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The kind of fault.
    pub kind: ErrorKind,
    /// The position in the frame, as in [`DecodeError::offset`].
    pub offset: usize,
}

impl Fault {
    /// The same fault, with the frame it is in.
    pub const fn in_frame(self, frame: usize) -> DecodeError {
        DecodeError { kind: self.kind, frame, offset: self.offset }
    }
}

/// The system's text of an error, without the number that Rust adds.
pub fn system_words(error: &std::io::Error) -> String {
    let text = error.to_string();
    match error.raw_os_error() {
        Some(number) => text.replace(&format!(" (os error {number})"), ""),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_the_names_of_the_kinds_in_snake_case() {
        let errors = ErrorKind::ALL.iter().map(|kind| (kind.slug(), format!("{kind:?}")));
        let drops = DropKind::ALL.iter().map(|kind| (kind.slug(), format!("{kind:?}")));
        for (slug, name) in errors.chain(drops) {
            let camel: String = slug.split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
            assert_eq!(camel, name);
        }
    }

    #[test]
    fn what_the_system_says_has_no_number() {
        assert_eq!(system_words(&std::io::Error::from_raw_os_error(2)), "No such file or directory");
        assert_eq!(system_words(&std::io::Error::other("torn")), "torn");
    }

    #[test]
    fn an_error_says_where_and_why() {
        let error = Fault { kind: ErrorKind::UnsupportedVersion, offset: 3 }.in_frame(0);
        let text = error.to_string();
        assert!(text.starts_with("unsupported_version in frame 0 at byte 3: "), "{text}");
        assert!(text.contains("not accepted"), "{text}");
    }
}
