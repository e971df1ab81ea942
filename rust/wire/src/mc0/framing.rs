use super::{Layout, Settings, Verb, decode};
use crate::{DecodeError, ErrorKind, Protocol, Split, UnknownSubject};

/// mc0 as a framing: a verb, headers up to an empty key, and positional frames.
#[derive(Clone, Copy, Debug)]
pub struct Mc0;

impl Protocol for Mc0 {
    const NAME: &'static str = "mc0";
    const KINDS: &'static [ErrorKind] = &[
        ErrorKind::TooManyFrames,
        ErrorKind::MissingVerb,
        ErrorKind::UnknownVerb,
        ErrorKind::OddHeaders,
        ErrorKind::UnsupportedVersion,
        ErrorKind::BadTtl,
        ErrorKind::MissingTopic,
        ErrorKind::MissingId,
    ];
    type Settings = Settings;
    type Layout = Layout;

    fn split(frames: &[impl AsRef<[u8]>]) -> Split {
        let split =
            Split::after(usize::from(frames.first().is_some_and(|first| first.as_ref().is_empty())), frames.len());
        let Ok(layout) = decode(frames, Settings::default()) else { return split };
        // The positional frames of a SUB are topics, which readers decode.
        let has_body = matches!(layout.verb, Verb::Put | Verb::Message);
        Split { body: if has_body { layout.body } else { frames.len() }, topic: layout.topic, ..split }
    }

    fn subject<'a>(frames: &[&'a [u8]]) -> Result<Option<&'a [u8]>, UnknownSubject> {
        let layout = decode(frames, Settings::default()).map_err(|_| UnknownSubject)?;
        Ok(layout.topic.map(|at| frames[at]))
    }

    #[inline]
    fn decode(frames: &[impl AsRef<[u8]>], settings: &Settings) -> Result<Layout, DecodeError> {
        decode(frames, *settings)
    }
}
