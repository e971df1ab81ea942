//! What can be wrong with the bytes of a message, and what becomes of good ones that go nowhere.

use std::{error::Error, fmt};

/// Declares a list of kinds so that a kind, its slug and what it means cannot part.
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

            /// The stable name programs go by.
            pub const fn slug(self) -> &'static str {
                match self {
                    $(Self::$name => $slug,)*
                }
            }

            /// What it means, for people.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
                }
            }
        }

        impl fmt::Display for $list {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.slug())
            }
        }
    };
}

kinds! {
    /// Why bytes are not a message: a closed list, part of the interface.
    ErrorKind:
    MissingPayload "missing_payload" "no frames, or a header that must have a payload frame has none",
    TooManyFrames "too_many_frames" "more than 10,000 frames",
    BadPayloadCount "bad_payload_count" "not the number of payload frames this type of message has",
    BadHeader "bad_header" "not the row of MessagePack objects a header is",
    BadProtocol "bad_protocol" "another protocol, or none",
    UnsupportedVersion "unsupported_version" "a version or variant that is not accepted",
    BadUtf8 "bad_utf8" "a string that is not UTF-8",
    BadTimestamp "bad_timestamp" "not a MessagePack timestamp",
    BadType "bad_type" "not the number of a message type, or a field of another type than it has",
    BadSequence "bad_sequence" "a sequence number that is not an unsigned integer",
    BadMapKey "bad_map_key" "a tag whose name is not a string",
    TooDeep "too_deep" "more than 32 maps and arrays inside each other",
    TrailingBytes "trailing_bytes" "bytes after the end of the header or datagram",
    Truncated "truncated" "the bytes end too early",
    BadRecord "bad_record" "a record that is not a sequence number, tags and blocks of bytes",
    BadDelimiter "bad_delimiter" "not the empty frame that ends the address",
    UnexpectedType "unexpected_type" "a type of message that this role is never sent",
    BadFrameCount "bad_frame_count" "not the number of frames this type of message has",
    MissingClient "missing_client" "a reply without the client's address",
    MissingDelimiter "missing_delimiter" "no empty frame where the client's address or the metadata ends",
    BadService "bad_service" "not the number of a service",
    BadPort "bad_port" "an offer of port 0, which nobody can connect to",
    MissingVerb "missing_verb" "no frames, or an empty one where the verb stands",
    UnknownVerb "unknown_verb" "not one of the nine verbs, which are in capitals",
    OddHeaders "odd_headers" "a header without a value",
    BadTtl "bad_ttl" "a TTL that is not a number of milliseconds, or a longer one than is allowed",
    MissingTopic "missing_topic" "no TOPIC where the verb needs one",
    MissingId "missing_id" "an OK without the ID of what it confirms",
    BadCommand "bad_command" "not the printable name of a class and a method",
    BadStatus "bad_status" "not three digits from 200 to 599",
    BadJson "bad_json" "not JSON, or not an object that every parser takes",
    EmptyHeader "empty_header" "an empty frame where the header stands",
    UnknownType "unknown_type" "not one of the nine types of data",
    BadShortString "bad_short_string" "a name that is not printable UTF-8",
    BadBoolean "bad_boolean" "neither 0 nor 1",
    BadAvro "bad_avro" "not the binary Avro of the schema",
    NotAnObject "not_an_object" "JSON, but no object",
    MissingField "missing_field" "without a field that it must have, or with an empty one",
    BadBase64 "bad_base64" "bytes in another form than they must have",
    BadTimeout "bad_timeout" "a timeout below -1",
    BadFieldTable "bad_field_table" "not a field table, or one with a name twice or 17 levels",
}

kinds! {
    /// Why a good message went nowhere: a closed list, part of the interface.
    DropKind:
    QueueFull "queue_full" "the queue of the service holds no more",
    QueueExpired "queue_expired" "it waited in a queue for too long",
    Unroutable "unroutable" "no peer has this address any more",
    PeerFull "peer_full" "the receiver does not read",
    Spoofed "spoofed" "a reply from a peer that was never a worker",
    TableFull "table_full" "more services are offered than are remembered",
    Forbidden "forbidden" "the policy does not allow it",
    UnexpectedVerb "unexpected_verb" "a verb that this role is never sent",
    TooManyTopics "too_many_topics" "more topics than are allowed would have subscribers",
    BadTopic "bad_topic" "a topic of more than 64 KiB",
    Expired "expired" "its time was over",
    NoReplyTo "no_reply_to" "a request that says nowhere to answer to",
    Late "late" "an answer that came twice, or after its time",
    UnknownCorrelation "unknown_correlation" "an answer that nobody waits for",
    OwnEvent "own_event" "an event of this replica itself",
    UnknownType "unknown_type" "an event that is none of configurations",
    DeadLetterFull "dead_letter_full" "the resource for dead letters holds no more",
}

/// These bytes are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecodeError {
    /// What is wrong.
    pub kind: ErrorKind,
    /// The frame it is in, or the first one missing or too many.
    pub frame: usize,
    /// Where in that frame: the first byte of the object at fault, the first byte that is no UTF-8, the first byte too
    /// many, or the length of the frame where more was expected.
    pub offset: usize,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, frame, offset } = self;
        write!(f, "{kind} in frame {frame} at byte {offset}: {}", kind.meaning())
    }
}

impl Error for DecodeError {}

/// A [`DecodeError`] whose frame is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// What is wrong.
    pub kind: ErrorKind,
    /// Where in the frame, as in [`DecodeError::offset`].
    pub offset: usize,
}

impl Fault {
    /// The same fault, with the frame it is in.
    pub const fn in_frame(self, frame: usize) -> DecodeError {
        DecodeError { kind: self.kind, frame, offset: self.offset }
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
    fn an_error_says_where_and_why() {
        let error = Fault { kind: ErrorKind::UnsupportedVersion, offset: 3 }.in_frame(0);
        let text = error.to_string();
        assert!(text.starts_with("unsupported_version in frame 0 at byte 3: "), "{text}");
        assert!(text.contains("not accepted"), "{text}");
    }
}
