use super::FIRST_OF_CONTROL;
use super::control::{Command, Reply, command, reply};
use super::data::{self, Layout};
use crate::{DecodeError, ErrorKind, Protocol, Split, UnknownSubject, protocol::up_to_empty};

const NAME: &str = "mtl";

/// A valid message of either flow.
#[derive(Clone, Debug, PartialEq)]
pub enum Spoken {
    Command(Command),
    Reply(Reply),
    /// The header of data.
    Data(Layout),
}

/// Reads a message of either flow, without its envelope.
///
/// # Errors
/// If the frames are not a message.
pub fn decode(frames: &[impl AsRef<[u8]>]) -> Result<Spoken, DecodeError> {
    if is_data(frames) { data::decode(frames).map(Spoken::Data) } else { control(frames, 0) }
}

/// Whether two frames begin as no name or status does.
pub(crate) fn is_data(frames: &[impl AsRef<[u8]>]) -> bool {
    matches!(frames, [first, _] if first.as_ref().first().is_none_or(|byte| *byte < FIRST_OF_CONTROL))
}

/// Reads a command or a reply; its first frame is frame `at` of the message.
fn control(frames: &[impl AsRef<[u8]>], at: usize) -> Result<Spoken, DecodeError> {
    let [first, body] = &frames[at..] else {
        let frame = frames.len().min(at + 2);
        return Err(DecodeError { kind: ErrorKind::BadFrameCount, frame, offset: 0 });
    };
    let (first, body) = (first.as_ref(), body.as_ref());
    if !first.is_empty() && first.iter().all(u8::is_ascii_digit) {
        return reply(first, body, at).map(Spoken::Reply);
    }
    let command = command(first, body, at)?;
    if command.parts().is_none() {
        return Err(DecodeError { kind: ErrorKind::BadCommand, frame: at, offset: first.len() });
    }
    Ok(Spoken::Command(command))
}

/// The frames before a command or reply: up to the first empty one (MTL-05), none where there are just the two.
pub(super) fn envelope(frames: &[impl AsRef<[u8]>]) -> usize {
    match frames {
        [first, _] if !first.as_ref().is_empty() => 0,
        _ => up_to_empty(frames),
    }
}

/// The commands and replies of MTL as a framing: an envelope that ends in an empty frame, a command or status, JSON.
#[derive(Clone, Copy, Debug)]
pub struct Control;

impl Protocol for Control {
    const NAME: &'static str = NAME;
    const KINDS: &'static [ErrorKind] =
        &[ErrorKind::BadFrameCount, ErrorKind::BadCommand, ErrorKind::BadStatus, ErrorKind::BadJson];
    type Settings = ();
    type Layout = Spoken;

    fn split(frames: &[impl AsRef<[u8]>]) -> Split {
        Split::after(envelope(frames), frames.len())
    }

    fn decode(frames: &[impl AsRef<[u8]>], (): &()) -> Result<Spoken, DecodeError> {
        control(frames, envelope(frames))
    }
}

/// The data flow of MTL as a framing: a header and a body.
#[derive(Clone, Copy, Debug)]
pub struct Data;

impl Protocol for Data {
    const NAME: &'static str = NAME;
    const KINDS: &'static [ErrorKind] = &[
        ErrorKind::BadFrameCount,
        ErrorKind::EmptyHeader,
        ErrorKind::UnknownType,
        ErrorKind::Truncated,
        ErrorKind::TrailingBytes,
        ErrorKind::BadShortString,
        ErrorKind::BadBoolean,
        ErrorKind::BadFieldTable,
        ErrorKind::BadStatus,
    ];
    type Settings = ();
    type Layout = Layout;

    /// The row shows the status, which is in the body of a response, so the body is read.
    fn split(frames: &[impl AsRef<[u8]>]) -> Split {
        let split = Split::after(0, frames.len());
        match data::decode(frames) {
            Ok(layout) if layout.kind != data::Kind::Response => split.opaque(),
            _ => split,
        }
    }

    fn subject<'a>(frames: &[&'a [u8]]) -> Result<Option<&'a [u8]>, UnknownSubject> {
        let layout = data::decode(frames).ok().filter(|layout| layout.kind.names_resource());
        Ok(layout.and_then(|layout| frames.first()?.get(layout.name)))
    }

    #[inline]
    fn decode(frames: &[impl AsRef<[u8]>], (): &()) -> Result<Layout, DecodeError> {
        data::decode(frames)
    }
}

/// Both flows as one framing, as captures have them, with an envelope or without.
#[derive(Clone, Copy, Debug)]
pub struct Mtl;

impl Protocol for Mtl {
    const NAME: &'static str = NAME;
    const KINDS: &'static [ErrorKind] = &[
        ErrorKind::BadFrameCount,
        ErrorKind::BadCommand,
        ErrorKind::BadStatus,
        ErrorKind::BadJson,
        ErrorKind::EmptyHeader,
        ErrorKind::UnknownType,
        ErrorKind::Truncated,
        ErrorKind::TrailingBytes,
        ErrorKind::BadShortString,
        ErrorKind::BadBoolean,
        ErrorKind::BadFieldTable,
    ];
    type Settings = ();
    type Layout = Spoken;

    fn split(frames: &[impl AsRef<[u8]>]) -> Split {
        if is_data(frames) { Data::split(frames) } else { Control::split(frames) }
    }

    fn subject<'a>(frames: &[&'a [u8]]) -> Result<Option<&'a [u8]>, UnknownSubject> {
        if is_data(frames) { Data::subject(frames) } else { Control::subject(frames) }
    }

    #[inline]
    fn decode(frames: &[impl AsRef<[u8]>], (): &()) -> Result<Spoken, DecodeError> {
        if is_data(frames) { data::decode(frames).map(Spoken::Data) } else { Control::decode(frames, &()) }
    }
}
