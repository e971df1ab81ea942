//! Errors that end a call, and reasons that only empty a cell.

use std::{error::Error, fmt};

use arrow_schema::ArrowError;
use trunkline_wire::DecodeError;

use crate::payload::Fault;

/// Why a valid message has an empty cell: the column cannot hold its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnKind {
    /// A sequence number above 2^63 − 1.
    SequenceExceedsBigint,
    /// A timestamp outside the years 1677 to 2262, the range of nanoseconds in 64 bits.
    TimestampExceedsBigint,
    /// Tags that take more than the 16 MiB of a VARIANT.
    TagsExceedVariant,
    /// Properties that take more than the 16 MiB of a VARIANT.
    PropertiesExceedVariant,
    /// A payload, or what its fields leave of it, that takes more than the 16 MiB of a VARIANT.
    PayloadExceedsVariant,
    /// A message of more than the 2 GiB of a column, or whose rows repeat more than that: all cells are empty.
    MessageTooLarge,
}

impl ColumnKind {
    pub const ALL: [Self; 6] = [
        Self::SequenceExceedsBigint,
        Self::TimestampExceedsBigint,
        Self::TagsExceedVariant,
        Self::PropertiesExceedVariant,
        Self::PayloadExceedsVariant,
        Self::MessageTooLarge,
    ];

    /// The stable name for programs.
    pub const fn slug(self) -> &'static str {
        match self {
            Self::SequenceExceedsBigint => "sequence_exceeds_bigint",
            Self::TimestampExceedsBigint => "timestamp_exceeds_bigint",
            Self::TagsExceedVariant => "tags_exceed_variant",
            Self::PropertiesExceedVariant => "properties_exceed_variant",
            Self::PayloadExceedsVariant => "payload_exceeds_variant",
            Self::MessageTooLarge => "message_too_large",
        }
    }
}

/// Why there are no columns.
#[derive(Debug)]
pub enum ColumnError {
    /// A header is invalid, and the mode does not allow that.
    Decode {
        /// Its row in the batch.
        row: usize,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// A tag, or another named value, does not have the requested type, and the mode does not allow that.
    TagType {
        /// The row of its message in the batch.
        row: usize,
        /// Its name.
        tag: String,
        /// The frame of the message that its value is in.
        frame: usize,
        /// Where in the frame its value is.
        offset: usize,
    },
    /// A payload is not of the layout asked for, and the mode does not allow that.
    Payload {
        /// The row of its message in the batch.
        row: usize,
        /// What is wrong with it, in which frame of the message.
        fault: Fault,
    },
    /// No column can hold a message, and the mode does not allow that.
    MessageTooLarge {
        /// Its row in the batch.
        row: usize,
    },
    /// The columns of the input do not fit together, or have unsupported types.
    Input(String),
    /// More bytes in one column than Arrow's 32-bit offsets count.
    TooLarge,
    Arrow(ArrowError),
}

impl ColumnError {
    /// The stable name of a failure that the mode FAILFAST asked for.
    pub const fn slug(&self) -> Option<&'static str> {
        match self {
            Self::Decode { error, .. } => Some(error.kind.slug()),
            Self::TagType { .. } => Some("tag_type"),
            Self::Payload { fault, .. } => Some(fault.kind.slug()),
            Self::MessageTooLarge { .. } => Some(ColumnKind::MessageTooLarge.slug()),
            Self::Input(_) | Self::TooLarge | Self::Arrow(_) => None,
        }
    }
}

impl ColumnError {
    /// With a value of a payload where it is in the message.
    pub(crate) fn at(mut self, place: impl FnOnce(usize, usize) -> (usize, usize)) -> Self {
        if let Self::TagType { frame, offset, .. } = &mut self {
            (*frame, *offset) = place(*frame, *offset);
        }
        self
    }
}

impl fmt::Display for ColumnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode { row, error } => write!(f, "row {row} of the batch: {error}"),
            Self::TagType { row, tag, frame, offset } => write!(
                f,
                "row {row} of the batch: tag_type in frame {frame} at byte {offset}: {tag:?} is not of the type asked for"
            ),
            Self::Payload { row, fault: Fault { kind, frame, offset } } => {
                write!(f, "row {row} of the batch: {kind} in frame {frame} at byte {offset}: {}", kind.meaning())
            }
            Self::MessageTooLarge { row } => write!(
                f,
                "row {row} of the batch: message_too_large: the message takes more than the 2 GiB that a column may have"
            ),
            Self::Input(reason) => f.write_str(reason),
            Self::TooLarge => f.write_str("a column would have more than 2 GiB"),
            Self::Arrow(error) => error.fmt(f),
        }
    }
}

impl Error for ColumnError {}

impl From<ArrowError> for ColumnError {
    fn from(error: ArrowError) -> Self {
        Self::Arrow(error)
    }
}
