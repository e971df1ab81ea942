//! Reading messages. Of several faults the first in this order is reported: the verb, the headers, what the verb
//! requires.

use std::time::Duration;

use super::{ID, Layout, MESSAGE, Settings, TOPIC, TTL, VERSION, Verb};
use crate::MAX_FRAMES;
use crate::error::{DecodeError, ErrorKind};

/// Decodes the frames of one message, without the routing id.
#[inline]
pub fn decode(frames: &[impl AsRef<[u8]>], settings: Settings) -> Result<Layout, DecodeError> {
    if frames.len() > MAX_FRAMES {
        return fault(ErrorKind::TooManyFrames, MAX_FRAMES, 0);
    }
    let at = usize::from(frames.first().is_some_and(|first| first.as_ref().is_empty()));
    let verb = frames.get(at).map(AsRef::as_ref).unwrap_or_default();
    if verb.is_empty() {
        return fault(ErrorKind::MissingVerb, at, 0);
    }
    let Some(verb) = Verb::from_frame(verb) else { return fault(ErrorKind::UnknownVerb, at, 0) };
    let mut layout =
        Layout { verb, at, pairs: 0, body: frames.len(), id: None, topic: None, version: None, text: None, ttl: None };
    let mut ttl = None;
    let mut key = at + 1;
    while let Some(name) = frames.get(key).map(AsRef::as_ref) {
        if name.is_empty() {
            layout.body = key + 1;
            break;
        }
        let value = key + 1;
        if value == frames.len() {
            return fault(ErrorKind::OddHeaders, value, 0);
        }
        match name {
            ID => layout.id = Some(value),
            TOPIC => layout.topic = Some(value),
            VERSION => layout.version = Some(value),
            MESSAGE => layout.text = Some(value),
            TTL => ttl = Some(value),
            _ => {}
        }
        layout.pairs += 1;
        key += 2;
    }
    match verb {
        Verb::Connect => {
            if let Some(at) = layout.version.filter(|at| !is_ours(frames[*at].as_ref())) {
                return fault(ErrorKind::UnsupportedVersion, at, 0);
            }
            if let Some(at) = ttl {
                match milliseconds(frames[at].as_ref(), settings.max_ttl_ms) {
                    Ok(milliseconds) => layout.ttl = Some(Duration::from_millis(milliseconds)),
                    Err(offset) => return fault(ErrorKind::BadTtl, at, offset),
                }
            }
        }
        Verb::Put | Verb::Message if layout.topic.is_none() => return fault(ErrorKind::MissingTopic, key, 0),
        Verb::Ok if layout.id.is_none() => return fault(ErrorKind::MissingId, key, 0),
        Verb::Disconnect
        | Verb::Sub
        | Verb::Unsub
        | Verb::Put
        | Verb::Noop
        | Verb::Message
        | Verb::Ok
        | Verb::Error => {}
    }
    Ok(layout)
}

/// The value of the last `ID` among the complete headers, even if the message is otherwise invalid.
pub fn id(frames: &[impl AsRef<[u8]>]) -> Option<usize> {
    let first = 1 + usize::from(frames.first().is_some_and(|first| first.as_ref().is_empty()));
    let keys = (first..frames.len()).step_by(2).take_while(|key| !frames[*key].as_ref().is_empty());
    let ids = keys.filter(|key| frames[*key].as_ref() == ID && key + 1 < frames.len());
    ids.last().map(|key| key + 1)
}

const fn fault<T>(kind: ErrorKind, frame: usize, offset: usize) -> Result<T, DecodeError> {
    Err(DecodeError { kind, frame, offset })
}

/// Every version below 1.0 is supported (MC0-20).
fn is_ours(version: &[u8]) -> bool {
    matches!(version, [b'0'] | [b'0', b'.', ..])
}

/// A number of digits only, or the position of the first fault.
fn milliseconds(value: &[u8], at_most: u64) -> Result<u64, usize> {
    if let Some(at) = value.iter().position(|byte| !byte.is_ascii_digit()) {
        return Err(at);
    }
    let number = value.iter().try_fold(0u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0')).filter(|number| *number <= at_most)
    });
    number.filter(|_| !value.is_empty()).ok_or(0)
}
