//! The parts of a decoded message as ranges and numbers, so that one decoder serves owned frames, borrowed buffers and
//! columns.

use std::ops::Range;

use super::{MessageType, Variant};
use crate::{
    error::ErrorKind,
    msgpack::{Reader, Timestamp},
};

/// A decoded message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// CDTP1: a header, the payload in the frames after it.
    Single(Head),
    /// CDTP2: records in one frame.
    Batch(Batch),
}

impl Layout {
    pub const fn variant(&self) -> Variant {
        match self {
            Self::Single(head) => head.variant,
            Self::Batch(_) => Variant::Two,
        }
    }

    /// Where in frame 0 the name of the sender is.
    pub fn sender(&self) -> Range<usize> {
        match self {
            Self::Single(Head { sender, .. }) | Self::Batch(Batch { sender, .. }) => sender.clone(),
        }
    }

    /// Its type; the header of the specification has none.
    pub const fn message_type(&self) -> Option<MessageType> {
        match self {
            Self::Single(head) => head.message_type,
            Self::Batch(batch) => Some(batch.message_type),
        }
    }

    /// How many messages it counts as: one per record.
    pub fn messages(&self) -> usize {
        match self {
            Self::Single(_) => 1,
            Self::Batch(batch) => batch.records.len(),
        }
    }

    /// The memory it takes beside the frames: small records take more than their bytes there.
    pub(super) const fn size(&self) -> usize {
        match self {
            Self::Single(_) => 0,
            Self::Batch(batch) => batch.records.len() * size_of::<Record>(),
        }
    }

    /// How many tags have a name that occurs again later in the same map.
    pub fn duplicate_keys(&self) -> usize {
        match self {
            Self::Single(head) => head.duplicate_keys,
            Self::Batch(batch) => batch.records.iter().map(|record| record.duplicate_keys as usize).sum(),
        }
    }
}

/// The header of a CDTP1 message. Ranges are of frame 0; the payload is the frames after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Which CDTP1 header.
    pub variant: Variant,
    /// The name of the sender, UTF-8 without its length.
    pub sender: Range<usize>,
    /// When it was sent; B has none.
    pub timestamp: Option<Timestamp>,
    /// Its type; S has none.
    pub message_type: Option<MessageType>,
    /// Its number in the run; S has none.
    pub sequence: Option<u64>,
    /// The tags, a MessagePack map whose keys are strings.
    pub tags: Range<usize>,
    /// How many tags have a name that occurs again later; the last one counts.
    pub duplicate_keys: usize,
    /// How many bytes follow the header.
    pub trailing: usize,
}

/// A CDTP2 message. Ranges are of its one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The name of the sender, UTF-8 without its length.
    pub sender: Range<usize>,
    /// The type of all its records.
    pub message_type: MessageType,
    /// The records, in order.
    pub records: Vec<Record>,
    /// How many bytes follow the records.
    pub trailing: usize,
}

/// A record of a CDTP2 message, kept small as there may be millions. Ranges are of the message's frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number in the run.
    pub sequence: u64,
    /// The tags, a MessagePack map whose keys are strings.
    pub tags: Range<usize>,
    /// Where the payload ends, a MessagePack array of binaries that begins where the tags end.
    pub end: usize,
    /// How many tags have a name that occurs again later; the last one counts.
    pub duplicate_keys: u32,
    /// How many blocks the payload has.
    pub blocks: u32,
    /// The total length of the blocks, in bytes.
    pub block_bytes: usize,
}

impl Record {
    /// The ranges of its blocks in `frame`, the one it was decoded from.
    pub fn blocks<'a>(&self, frame: &'a [u8]) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let start = self.tags.end;
        let mut reader = Reader::new(frame.get(start..self.end).unwrap_or_default(), ErrorKind::BadRecord);
        let blocks = reader.array(ErrorKind::BadRecord).unwrap_or(0);
        (0..blocks).map_while(move |_| {
            let block = reader.binary(ErrorKind::BadRecord).ok()?;
            let end = start + reader.position();
            Some(end - block.len()..end)
        })
    }
}
