use super::{Layout, Settings, decode};
use crate::{DecodeError, ErrorKind, Protocol, Split, UnknownSubject, protocol::up_to_empty};

/// DCP as a framing: an envelope that ends in an empty frame, the protocol frame, the type and its content.
#[derive(Clone, Copy, Debug)]
pub struct Dcp;

impl Protocol for Dcp {
    const NAME: &'static str = "dcp";
    const KINDS: &'static [ErrorKind] = &[
        ErrorKind::TooManyFrames,
        ErrorKind::BadDelimiter,
        ErrorKind::BadProtocol,
        ErrorKind::UnsupportedVersion,
        ErrorKind::BadType,
        ErrorKind::UnexpectedType,
        ErrorKind::BadFrameCount,
        ErrorKind::MissingClient,
        ErrorKind::MissingDelimiter,
    ];
    type Settings = Settings;
    type Layout = Layout;

    fn split(frames: &[impl AsRef<[u8]>]) -> Split {
        let split = Split::after(up_to_empty(frames), frames.len());
        let topic = service(frames, split.payload.start);
        // The parts of the data. A message that only some readers accept, such as the wide types of DCP-11, has none.
        let layout = decode(frames, Settings::default()).ok();
        let body = layout.and_then(|layout| Some(layout.body()?.data().start)).unwrap_or(frames.len());
        Split { body, topic, ..split }
    }

    fn subject<'a>(frames: &[&'a [u8]]) -> Result<Option<&'a [u8]>, UnknownSubject> {
        match service(frames, Split::after(up_to_empty(frames), frames.len()).payload.start) {
            Some(at) => Ok(Some(frames[at])),
            None => decode(frames, Settings::default()).map(|_| None).map_err(|_| UnknownSubject),
        }
    }

    #[inline]
    fn decode(frames: &[impl AsRef<[u8]>], settings: &Settings) -> Result<Layout, DecodeError> {
        decode(frames, *settings)
    }
}

/// The service follows the type frame of a registration (1) or request (4). A type is one byte, or four in the
/// little-endian form of the oldest peers.
fn service(frames: &[impl AsRef<[u8]>], payload: usize) -> Option<usize> {
    let kind = frames.get(payload)?.as_ref();
    let names_service = matches!(kind, [1 | 4] | [1 | 4, 0, 0, 0]);
    (names_service && payload + 1 < frames.len()).then_some(payload + 1)
}
