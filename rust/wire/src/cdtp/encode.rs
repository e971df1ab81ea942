//! Writing messages, always in the fewest bytes.

use super::{MessageType, Variant};
use crate::msgpack::{Oversize, Timestamp, write_array, write_binary, write_string, write_timestamp, write_unsigned};

/// The most bytes of a CDTP2 message that are neither names, tags nor blocks: of its start, of a record, of a block.
const START_BYTES: usize = 17;
const RECORD_BYTES: usize = 15;
const BLOCK_BYTES: usize = 5;

/// Appends a header to `out`; fields that the variant lacks are left out. `tags` is an encoded MessagePack map.
///
/// A CDTP2 header ends before its records, which [`encode_batch`] writes. A BOR or EOR has one payload frame, a
/// MessagePack map.
pub fn encode_header(
    out: &mut Vec<u8>,
    variant: Variant,
    sender: &str,
    timestamp: Timestamp,
    message_type: MessageType,
    sequence: u64,
    tags: &[u8],
) -> Result<(), Oversize> {
    write_start(out, variant, sender)?;
    if matches!(variant, Variant::S | Variant::A) {
        write_timestamp(out, timestamp);
    }
    if variant != Variant::S {
        write_unsigned(out, message_type.number());
    }
    if matches!(variant, Variant::A | Variant::B) {
        write_unsigned(out, sequence);
    }
    if variant != Variant::Two {
        out.extend_from_slice(tags);
    }
    Ok(())
}

/// A CDTP2 message. A record is its sequence number, its tags as an encoded MessagePack map, and the blocks of its
/// payload. A BOR or EOR has two records without payload: the user's tags, then the run's map as tags.
pub fn encode_batch<B: AsRef<[u8]>>(
    sender: &str,
    message_type: MessageType,
    records: &[(u64, &[u8], &[B])],
) -> Result<Vec<u8>, Oversize> {
    let records_bytes: usize = records.iter().map(|(_, tags, blocks)| record_bytes(tags, blocks)).sum();
    let mut out = Vec::with_capacity(START_BYTES + sender.len() + records_bytes);
    write_start(&mut out, Variant::Two, sender)?;
    write_unsigned(&mut out, message_type.number());
    write_array(&mut out, records.len())?;
    for (sequence, tags, blocks) in records {
        write_array(&mut out, 3)?;
        write_unsigned(&mut out, *sequence);
        out.extend_from_slice(tags);
        write_array(&mut out, blocks.len())?;
        for block in *blocks {
            write_binary(&mut out, block.as_ref())?;
        }
    }
    Ok(out)
}

/// The most bytes that a record of a CDTP2 message takes.
pub(super) fn record_bytes<B: AsRef<[u8]>>(tags: &[u8], blocks: &[B]) -> usize {
    RECORD_BYTES + tags.len() + blocks.iter().map(|block| BLOCK_BYTES + block.as_ref().len()).sum::<usize>()
}

fn write_start(out: &mut Vec<u8>, variant: Variant, sender: &str) -> Result<(), Oversize> {
    out.extend_from_slice(&[0xa5, b'C', b'D', b'T', b'P', variant.version()]);
    write_string(out, sender)
}
