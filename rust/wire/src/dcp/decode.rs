//! Reading messages. Frames are checked in order, so that the first of two faults is reported; only their number is
//! checked before.

use super::layout::{DELIMITER, HEADER, PROTOCOL, REPLY_CLIENT, REQUEST_CLIENT, SERVICE, TYPE};
use super::{Body, Layout, MessageType, Settings};
use crate::MAX_FRAMES;
use crate::error::{DecodeError, ErrorKind};

const NAME: &[u8] = b"DGBX";
const VERSION: u8 = 1;

/// Decodes the frames of one message, without the routing id.
#[inline]
pub fn decode(frames: &[impl AsRef<[u8]>], settings: Settings) -> Result<Layout, DecodeError> {
    if frames.len() > MAX_FRAMES {
        return fault(ErrorKind::TooManyFrames, MAX_FRAMES, 0);
    }
    let message_type = header(frames, settings)?;
    match message_type {
        MessageType::Register => exactly(frames, SERVICE + 1).map(|()| Layout::Register),
        MessageType::Ping => exactly(frames, HEADER).map(|()| Layout::Ping),
        MessageType::Pong => exactly(frames, HEADER).map(|()| Layout::Pong),
        MessageType::Reconnect => exactly(frames, HEADER).map(|()| Layout::Reconnect),
        MessageType::Request => request(frames).map(Layout::Request),
        MessageType::Reply => reply(frames).map(Layout::Reply),
    }
}

const fn fault<T>(kind: ErrorKind, frame: usize, offset: usize) -> Result<T, DecodeError> {
    Err(DecodeError { kind, frame, offset })
}

fn header(frames: &[impl AsRef<[u8]>], settings: Settings) -> Result<MessageType, DecodeError> {
    let at = |frame: usize| match frames.get(frame) {
        Some(bytes) => Ok(bytes.as_ref()),
        None => fault(ErrorKind::BadFrameCount, frame, 0),
    };
    if !at(DELIMITER)?.is_empty() {
        return fault(ErrorKind::BadDelimiter, DELIMITER, 0);
    }
    match at(PROTOCOL)?.split_last() {
        Some((&VERSION, NAME)) => {}
        Some((_, NAME)) => return fault(ErrorKind::UnsupportedVersion, PROTOCOL, NAME.len()),
        _ => return fault(ErrorKind::BadProtocol, PROTOCOL, 0),
    }
    let Some(message_type) = MessageType::from_frame(at(TYPE)?, settings.compat_dagbox) else {
        return fault(ErrorKind::BadType, TYPE, 0);
    };
    if settings.role.is_some_and(|role| !role.takes(message_type)) {
        return fault(ErrorKind::UnexpectedType, TYPE, 0);
    }
    Ok(message_type)
}

fn exactly(frames: &[impl AsRef<[u8]>], count: usize) -> Result<(), DecodeError> {
    if frames.len() == count { Ok(()) } else { fault(ErrorKind::BadFrameCount, frames.len().min(count), 0) }
}

/// Two empty frames mean that the client's address is missing. The service may be empty, so it is not checked.
fn request(frames: &[impl AsRef<[u8]>]) -> Result<Body, DecodeError> {
    if frames.len() <= SERVICE {
        return fault(ErrorKind::BadFrameCount, SERVICE, 0);
    }
    let is_missing = frames.get(REQUEST_CLIENT).is_none_or(|frame| frame.as_ref().is_empty());
    if is_missing && frames.len() == MAX_FRAMES {
        // A broker inserts the client's address, and a worker must still accept the message.
        return fault(ErrorKind::TooManyFrames, MAX_FRAMES - 1, 0);
    }
    if is_missing { body(frames, None, REQUEST_CLIENT) } else { body(frames, Some(REQUEST_CLIENT), REQUEST_CLIENT + 1) }
}

fn reply(frames: &[impl AsRef<[u8]>]) -> Result<Body, DecodeError> {
    if frames.get(REPLY_CLIENT).is_none_or(|frame| frame.as_ref().is_empty()) {
        return fault(ErrorKind::MissingClient, REPLY_CLIENT, 0);
    }
    body(frames, Some(REPLY_CLIENT), REPLY_CLIENT + 1)
}

/// The rest of a message, from the delimiter of the client's address on.
fn body(frames: &[impl AsRef<[u8]>], client: Option<usize>, delimiter: usize) -> Result<Body, DecodeError> {
    if !frames.get(delimiter).is_some_and(|frame| frame.as_ref().is_empty()) {
        return fault(ErrorKind::MissingDelimiter, delimiter, 0);
    }
    let start = delimiter + 1;
    match frames[start..].iter().position(|frame| frame.as_ref().is_empty()) {
        Some(parts) => Ok(Body { client, metadata: start..start + parts }),
        None => fault(ErrorKind::MissingDelimiter, frames.len(), 0),
    }
}
