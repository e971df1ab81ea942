//! CDT in captures.

use super::{Message, Settings, decode};
use crate::{DecodeError, ErrorKind, Protocol, Split};

/// CDT as a framing: the NATS header block, if any, and a body that is decoded.
#[derive(Clone, Copy, Debug)]
pub struct Cdt;

impl Protocol for Cdt {
    const NAME: &'static str = "cdt";
    const KINDS: &'static [ErrorKind] = &[
        ErrorKind::BadJson,
        ErrorKind::BadAvro,
        ErrorKind::BadUtf8,
        ErrorKind::NotAnObject,
        ErrorKind::MissingField,
        ErrorKind::BadType,
        ErrorKind::BadBase64,
        ErrorKind::BadTimeout,
        ErrorKind::TrailingBytes,
    ];
    type Settings = Settings;
    /// `None` if the kind of the message is unknown; only its subject has it.
    type Layout = Option<Message<'static>>;

    fn split(frames: &[impl AsRef<[u8]>]) -> Split {
        let envelope = usize::from(frames.len() > 1);
        Split { envelope: 0..envelope, header: None, payload: envelope..frames.len(), body: frames.len(), topic: None }
    }

    fn decode(frames: &[impl AsRef<[u8]>], settings: &Settings) -> Result<Option<Message<'static>>, DecodeError> {
        let Some(kind) = settings.kind else { return Ok(None) };
        let at = Self::split(frames).payload.start;
        let body = frames.get(at).map(AsRef::as_ref).unwrap_or_default();
        match decode(body, kind, settings) {
            Ok(message) => Ok(Some(message.into_owned())),
            Err(rejected) => Err(rejected.fault.in_frame(at)),
        }
    }
}
