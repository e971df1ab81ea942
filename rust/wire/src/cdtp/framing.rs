use super::{Layout, Settings, decode};
use crate::{DecodeError, ErrorKind, Protocol, Split};

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

    #[inline]
    fn decode(frames: &[impl AsRef<[u8]>], settings: &Settings) -> Result<Layout, DecodeError> {
        decode(frames, settings)
    }
}
