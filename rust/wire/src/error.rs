//! What can be wrong with the bytes of a message.

use std::{error::Error, fmt};

/// Declares [`ErrorKind`] so that a kind, its slug and what it means cannot part.
macro_rules! error_kinds {
    ($($name:ident $slug:literal $meaning:literal,)*) => {
        /// Why bytes are not a message: a closed list, part of the interface.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ErrorKind {
            $(#[doc = $meaning] $name,)*
        }

        impl ErrorKind {
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
    };
}

error_kinds! {
    MissingPayload "missing_payload" "no frames, or a header that must have a payload frame has none",
    BadPayloadCount "bad_payload_count" "not the number of payload frames this type of message has",
    BadHeader "bad_header" "not the row of MessagePack objects a header is",
    BadProtocol "bad_protocol" "another protocol, or none",
    UnsupportedVersion "unsupported_version" "a version or variant nobody asked for, such as CDTP2 where only CDTP1 is accepted",
    BadUtf8 "bad_utf8" "a string that is not UTF-8",
    BadTimestamp "bad_timestamp" "not a MessagePack timestamp",
    BadType "bad_type" "not the number of a message type",
    BadSequence "bad_sequence" "a sequence number that is not an unsigned integer",
    BadMapKey "bad_map_key" "a tag whose name is not a string",
    TooDeep "too_deep" "more than 32 maps and arrays inside each other",
    TrailingBytes "trailing_bytes" "bytes after the end of the header",
    Truncated "truncated" "the bytes end too early",
    BadRecord "bad_record" "a record that is not a sequence number, tags and blocks of bytes",
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.slug())
    }
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
        for kind in ErrorKind::ALL {
            let camel: String = kind.slug().split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect();
            assert_eq!(camel, format!("{kind:?}"));
        }
    }

    #[test]
    fn an_error_says_where_and_why() {
        let error = Fault { kind: ErrorKind::UnsupportedVersion, offset: 3 }.in_frame(0);
        let text = error.to_string();
        assert!(text.starts_with("unsupported_version in frame 0 at byte 3: "), "{text}");
        assert!(text.contains("CDTP2"), "{text}");
    }
}
