//! mc0: a bus of topics. What of it is known so far is how captures hold it.

use crate::{DecodeError, ErrorKind, Protocol, Split};

/// mc0 as a framing: a verb, pairs of a key and a value up to an empty key, and a body.
#[derive(Clone, Copy, Debug)]
pub struct Mc0;

impl Protocol for Mc0 {
    const NAME: &'static str = "mc0";
    const KINDS: &'static [ErrorKind] = &[];
    type Settings = ();
    type Layout = ();

    fn split(frames: &[impl AsRef<[u8]>]) -> Split {
        let is_empty = |at: usize| frames.get(at).is_some_and(|frame| frame.as_ref().is_empty());
        let split = Split::after(usize::from(is_empty(0)), frames.len());
        let keys = || (split.payload.start..frames.len()).step_by(2).take_while(|key| !is_empty(*key));
        let topic = keys().find(|key| frames[*key].as_ref() == b"TOPIC").map(|key| key + 1);
        let end = split.payload.start + 2 * keys().count();
        let body = if is_empty(end) { end + 1 } else { frames.len() };
        Split { body, topic: topic.filter(|topic| *topic < frames.len()), ..split }
    }

    fn decode(_: &[impl AsRef<[u8]>], (): &()) -> Result<(), DecodeError> {
        Ok(())
    }
}
