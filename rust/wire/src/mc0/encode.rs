//! Writing messages. Parts are shared with the caller, not copied.

use bytes::Bytes;

use super::Verb;
use crate::Frames;

/// The header that requests an answer, and is repeated in it.
pub const ID: &[u8] = b"ID";
/// The header with the topic of a message.
pub const TOPIC: &[u8] = b"TOPIC";
/// The header with the version a connector supports.
pub const VERSION: &[u8] = b"VERSION";
/// The header with how long a connector may be silent, in milliseconds.
pub const TTL: &[u8] = b"TTL";
/// The header with the text of an error.
pub const MESSAGE: &[u8] = b"MESSAGE";

/// How keys of custom headers begin (MC0-10).
pub const OWN: &[u8] = b"X-";

/// A key and a value.
pub type Header = (Bytes, Bytes);

/// A message with the leading empty frame (MC0-07). No key may be empty. The empty frame after the headers is omitted
/// if nothing follows it, except for verbs with a body.
pub fn encode(verb: Verb, headers: impl IntoIterator<Item = Header>, positional: &[Bytes]) -> Frames {
    let headers = headers.into_iter();
    let mut frames = Frames::with_capacity(3 + 2 * headers.size_hint().0 + positional.len());
    frames.push(Bytes::new());
    frames.push(Bytes::from_static(verb.name().as_bytes()));
    for (key, value) in headers {
        frames.push(key);
        frames.push(value);
    }
    if !positional.is_empty() || matches!(verb, Verb::Put | Verb::Message) {
        frames.push(Bytes::new());
        frames.extend(positional.iter().cloned());
    }
    frames
}
