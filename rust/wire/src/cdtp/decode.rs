//! Reading messages. Every byte is checked in order, so that the first of two faults is reported; the number of frames
//! comes last.

use std::ops::Range;

use smallvec::SmallVec;

use super::{Batch, Head, Layout, MessageType, Record, Settings, Variant};
use crate::{
    MAX_FRAMES,
    error::{DecodeError, ErrorKind, Fault},
    msgpack::{self, Reader},
};

/// The tags are at depth zero, their content at depth one.
const IN_TAGS: usize = 1;

/// The fewest bytes a record can have: array, sequence number, tags, payload.
const SMALLEST_RECORD: usize = 4;

/// The most records to allocate in advance: a message may claim any number.
const MANY_RECORDS: usize = 4096;

/// Decodes the frames of one message.
pub fn decode(frames: &[impl AsRef<[u8]>], settings: &Settings) -> Result<Layout, DecodeError> {
    let Some(header) = frames.first() else {
        return Err(DecodeError { kind: ErrorKind::MissingPayload, frame: 0, offset: 0 });
    };
    decode_header(header.as_ref(), Some(frames.len()), settings)
}

/// Decodes the header frame of a message of `frames` frames; `None` leaves their number unchecked.
#[inline]
pub fn decode_header(header: &[u8], frames: Option<usize>, settings: &Settings) -> Result<Layout, DecodeError> {
    let layout = layout(header, *settings).map_err(|fault| fault.in_frame(0))?;
    if let Some(frames) = frames {
        check_frames(&layout, frames)?;
    }
    Ok(layout)
}

/// The sender of a header, whatever follows.
#[inline]
pub(super) fn sender(header: &[u8]) -> Option<Range<usize>> {
    let mut reader = Reader::new(header, ErrorKind::BadHeader);
    version(&mut reader, Settings::default()).ok()?;
    text(&mut reader).ok()
}

#[inline]
fn layout(header: &[u8], settings: Settings) -> Result<Layout, Fault> {
    let mut reader = Reader::new(header, ErrorKind::BadHeader);
    let version = version(&mut reader, settings)?;
    let sender = text(&mut reader)?;
    if version == Variant::Two.version() {
        batch(&mut reader, sender, settings).map(Layout::Batch)
    } else {
        single(&mut reader, sender, settings).map(Layout::Single)
    }
}

/// The version byte of the first object, which releases write as a short string; other forms are valid.
#[inline]
fn version(reader: &mut Reader<'_>, settings: Settings) -> Result<u8, Fault> {
    let id = match reader.peek() {
        Some(msgpack::Head::Binary(_)) => reader.binary(ErrorKind::BadHeader)?,
        _ => reader.string_bytes(ErrorKind::BadHeader)?,
    };
    // The fault is in the first object.
    let fault = |kind| Err(Fault { kind, offset: 0 });
    let Some((b"CDTP", &[version])) = id.split_first_chunk() else { return fault(ErrorKind::BadProtocol) };
    if settings.accept.contains_version(version) { Ok(version) } else { fault(ErrorKind::UnsupportedVersion) }
}

/// CDTP1 after the sender: the third object, and the kind of the fourth, distinguish the variants.
#[inline]
fn single(reader: &mut Reader<'_>, sender: Range<usize>, settings: Settings) -> Result<Head, Fault> {
    let third = reader.position();
    let (variant, timestamp) = if reader.peek().is_some_and(msgpack::Head::is_integer) {
        let mut ahead = reader.clone();
        ahead.skip(0)?;
        // Some senders write a plain integer as the timestamp.
        if matches!(ahead.peek(), Some(msgpack::Head::Map(_))) {
            return Err(Fault { kind: ErrorKind::BadTimestamp, offset: third });
        }
        (Variant::B, None)
    } else {
        let timestamp = reader.timestamp(ErrorKind::BadHeader)?;
        match reader.peek() {
            Some(msgpack::Head::Map(_)) => (Variant::S, Some(timestamp)),
            Some(head) if head.is_integer() => (Variant::A, Some(timestamp)),
            Some(_) => return Err(Fault { kind: ErrorKind::BadHeader, offset: reader.position() }),
            None => return Err(Fault { kind: ErrorKind::Truncated, offset: reader.position() }),
        }
    };
    if !settings.accept.contains(variant) {
        return Err(Fault { kind: ErrorKind::UnsupportedVersion, offset: third });
    }
    let (message_type, sequence) = match variant {
        Variant::S => (None, None),
        Variant::A | Variant::B | Variant::Two => {
            (Some(message_type(reader)?), Some(reader.unsigned(ErrorKind::BadSequence)?))
        }
    };
    let (tags, duplicate_keys) = tags(reader)?;
    let trailing = trailing(reader, settings)?;
    Ok(Head { variant, sender, timestamp, message_type, sequence, tags, duplicate_keys, trailing })
}

/// CDTP2 after the sender.
#[inline(never)]
fn batch(reader: &mut Reader<'_>, sender: Range<usize>, settings: Settings) -> Result<Batch, Fault> {
    if !reader.peek().is_none_or(msgpack::Head::is_integer) {
        return Err(Fault { kind: ErrorKind::BadHeader, offset: reader.position() });
    }
    let message_type = message_type(reader)?;
    let claimed = reader.array(ErrorKind::BadHeader)?;
    let possible = (reader.rest().len() / SMALLEST_RECORD).min(MANY_RECORDS);
    let mut records = Vec::with_capacity(possible.min(usize::try_from(claimed).unwrap_or(possible)));
    for _ in 0..claimed {
        records.push(record(reader)?);
    }
    let trailing = trailing(reader, settings)?;
    Ok(Batch { sender, message_type, records, trailing })
}

fn record(reader: &mut Reader<'_>) -> Result<Record, Fault> {
    let start = reader.position();
    if reader.array(ErrorKind::BadRecord)? != 3 {
        return Err(Fault { kind: ErrorKind::BadRecord, offset: start });
    }
    let sequence = reader.unsigned(ErrorKind::BadSequence)?;
    let (tags, duplicates) = tags(reader)?;
    let blocks = reader.array(ErrorKind::BadRecord)?;
    let mut block_bytes = 0;
    for _ in 0..blocks {
        block_bytes += reader.binary(ErrorKind::BadRecord)?.len();
    }
    let duplicate_keys = u32::try_from(duplicates).unwrap_or(u32::MAX);
    Ok(Record { sequence, tags, end: reader.position(), duplicate_keys, blocks, block_bytes })
}

#[inline]
fn text(reader: &mut Reader<'_>) -> Result<Range<usize>, Fault> {
    let length = reader.string_checked(ErrorKind::BadHeader)?.len();
    let end = reader.position();
    Ok(end - length..end)
}

#[inline]
fn message_type(reader: &mut Reader<'_>) -> Result<MessageType, Fault> {
    let bad = Fault { kind: ErrorKind::BadType, offset: reader.position() };
    MessageType::from_number(reader.unsigned(ErrorKind::BadType)?).ok_or(bad)
}

/// Skips the tags, and counts those whose name occurs again.
#[inline]
fn tags(reader: &mut Reader<'_>) -> Result<(Range<usize>, usize), Fault> {
    let start = reader.position();
    let before = reader.clone();
    let pairs = reader.map(ErrorKind::BadHeader)?;
    let mut names = Sieve::default();
    for _ in 0..pairs {
        names.add(reader.string_checked(ErrorKind::BadMapKey)?);
        reader.skip(IN_TAGS)?;
    }
    let duplicates = if names.all_differ() { 0 } else { duplicates(before)? };
    Ok((start..reader.position(), duplicates))
}

/// Whether these bytes are exactly a map that could be the tags of a message.
pub fn is_map(bytes: &[u8]) -> bool {
    let mut reader = Reader::new(bytes, ErrorKind::BadHeader);
    tags(&mut reader).is_ok() && reader.rest().is_empty()
}

/// Distinguishes most names by a few bits of each. If those are equal, whole names are compared.
#[derive(Default)]
struct Sieve {
    seen: u64,
    again: u64,
}

impl Sieve {
    #[inline]
    fn add(&mut self, name: &[u8]) {
        let bits = match name {
            [first, .., last] => usize::from(*first) ^ usize::from(*last) << 2 ^ name.len() << 4,
            [only] => usize::from(*only),
            [] => 0,
        };
        let bit = 1 << (bits % 64);
        self.again |= self.seen & bit;
        self.seen |= bit;
    }

    const fn all_differ(&self) -> bool {
        self.again == 0
    }
}

/// How many names are equal to a later one, in tags that were checked before.
#[cold]
fn duplicates(mut reader: Reader<'_>) -> Result<usize, Fault> {
    let pairs = reader.map(ErrorKind::BadHeader)?;
    let mut names = SmallVec::<[&[u8]; 32]>::new();
    for _ in 0..pairs {
        names.push(reader.string_bytes(ErrorKind::BadMapKey)?);
        reader.pass()?;
    }
    names.sort_unstable();
    Ok(names.windows(2).filter(|pair| pair[0] == pair[1]).count())
}

#[inline]
fn trailing(reader: &Reader<'_>, settings: Settings) -> Result<usize, Fault> {
    match reader.rest().len() {
        trailing if trailing > 0 && settings.strict => {
            Err(Fault { kind: ErrorKind::TrailingBytes, offset: reader.position() })
        }
        trailing => Ok(trailing),
    }
}

/// S has a payload; the BOR and EOR of A and B have a payload of one frame; CDTP2 has everything in its header.
#[inline]
fn check_frames(layout: &Layout, frames: usize) -> Result<(), DecodeError> {
    let at = |kind, frame| Err(DecodeError { kind, frame, offset: 0 });
    match layout {
        _ if frames == 0 => at(ErrorKind::MissingPayload, 0),
        Layout::Single(Head { variant: Variant::S, .. }) if frames < 2 => at(ErrorKind::MissingPayload, 1),
        Layout::Single(Head { message_type: Some(MessageType::Bor | MessageType::Eor), .. }) if frames != 2 => {
            at(ErrorKind::BadPayloadCount, frames.min(2))
        }
        Layout::Batch(_) if frames > 1 => at(ErrorKind::BadPayloadCount, 1),
        Layout::Single(_) if frames > MAX_FRAMES => at(ErrorKind::TooManyFrames, MAX_FRAMES),
        Layout::Single(_) | Layout::Batch(_) => Ok(()),
    }
}
