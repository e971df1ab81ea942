use super::{Layout, Settings, decode, decode::sender};
use crate::{DecodeError, ErrorKind, Protocol, Split, UnknownSubject};

/// CDTP as a framing: a header, and a payload that is the user's.
#[derive(Clone, Copy, Debug)]
pub struct Cdtp;

impl Protocol for Cdtp {
    const NAME: &'static str = "cdtp";
    const ONE_WAY: bool = true;
    const KINDS: &'static [ErrorKind] = &[
        ErrorKind::MissingPayload,
        ErrorKind::TooManyFrames,
        ErrorKind::BadPayloadCount,
        ErrorKind::BadHeader,
        ErrorKind::BadProtocol,
        ErrorKind::UnsupportedVersion,
        ErrorKind::BadUtf8,
        ErrorKind::BadTimestamp,
        ErrorKind::BadType,
        ErrorKind::BadSequence,
        ErrorKind::BadMapKey,
        ErrorKind::TooDeep,
        ErrorKind::TrailingBytes,
        ErrorKind::Truncated,
        ErrorKind::BadRecord,
    ];
    type Settings = Settings;
    type Layout = Layout;

    #[inline]
    fn split(frames: &[impl AsRef<[u8]>]) -> Split {
        Split::after(0, frames.len()).opaque()
    }

    /// Its sender, also of a header that is invalid after it.
    #[inline]
    fn subject<'a>(frames: &[&'a [u8]]) -> Result<Option<&'a [u8]>, UnknownSubject> {
        Ok(frames.first().and_then(|header| header.get(sender(header)?)))
    }

    #[inline]
    fn decode(frames: &[impl AsRef<[u8]>], settings: &Settings) -> Result<Layout, DecodeError> {
        decode(frames, settings)
    }
}
