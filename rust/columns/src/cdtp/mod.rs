//! CDTP headers as columns: a row for each message, or a struct for each header.

mod body;
mod message;
mod rows;
mod structs;

pub use rows::{decode_rows, row_fields};
pub use structs::{decode_structs, struct_fields};

use trunkline_wire::cdtp::{Head, Settings};

use self::body::{Content, Payload};
use crate::{
    Mode, Tags,
    input::{Frames, Inputs},
    tags::TagMap,
};

/// What is to be decoded, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which headers are messages.
    pub settings: Settings,
    /// What becomes of the others.
    pub mode: Mode,
    /// Which columns the tags become.
    pub tags: Tags,
    /// Whether there is a column of payloads. Those of CDTP1 come from [`Headers::payload`](crate::Headers::payload).
    pub payload: bool,
}

/// What a CDTP1 message says beyond its start.
#[inline]
fn single<'a>(inputs: &Inputs<'a>, row: usize, frames: Frames, header: &'a [u8], head: &Head) -> Content<'a> {
    Content {
        sequence: head.sequence,
        tags: Some(TagMap::of(header, &head.tags, head.duplicate_keys)),
        payload_frames: frames.frames.map(|frames| frames.saturating_sub(1)),
        payload_bytes: frames.payload_bytes,
        payload: inputs.payload(row).map(Payload::Frames),
    }
}
