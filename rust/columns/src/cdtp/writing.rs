//! Messages of CDTP.

use arrow_array::{Array, StructArray, cast::AsArray};
use bytes::Bytes;
use trunkline_wire::{
    Frames,
    cdtp::{MessageType, Variant, encode_batch, encode_header},
    msgpack::Timestamp,
};

use crate::{
    ColumnError,
    writing::{
        StructFields, Writer,
        struct_fields::{Lists, Members, Numbers, Texts},
        value::pack,
    },
};

pub(crate) struct Headers {
    variant: Texts,
    sender: Texts,
    timestamp_ns: Numbers,
    kind: Texts,
    sequence: Numbers,
    tags: Members,
    payload: Lists,
    payload_frames: Numbers,
    records: Option<arrow_array::ListArray>,
}

/// A record: its number, its tags as a map, the number of its blocks and their bytes.
struct Record {
    sequence: u64,
    tags: Vec<u8>,
    blocks: Vec<Vec<u8>>,
}

impl Headers {
    pub(crate) fn of(given: StructFields<'_>) -> Result<Self, ColumnError> {
        Ok(Self {
            variant: given.texts("variant")?,
            sender: given.texts("sender")?,
            timestamp_ns: given.numbers("timestamp_ns")?,
            kind: given.texts("type")?,
            sequence: given.numbers("sequence")?,
            tags: given.members("tags", "tag")?,
            payload: given.lists("payload")?,
            payload_frames: given.numbers("payload_frames")?,
            records: given.structs("records")?,
        })
    }

    fn kind(&self, row: usize) -> Result<MessageType, String> {
        let kind = self.kind.at(row).ok_or("type is missing")?;
        kind.parse().map_err(|()| format!("type: there is no {kind:?}"))
    }

    fn batch(&self, row: usize, sender: &str) -> Result<Vec<u8>, String> {
        let records = match self.records.as_ref().filter(|records| records.is_valid(row)) {
            Some(records) => of_list(&records.value(row))?,
            None => vec![self.alone(row)?],
        };
        let records: Vec<_> = records.iter().map(|record| (record.sequence, &*record.tags, &*record.blocks)).collect();
        encode_batch(sender, self.kind(row)?, &records).map_err(|error| error.to_string())
    }

    /// The record of a row that has only one.
    fn alone(&self, row: usize) -> Result<Record, String> {
        let blocks = blocks(&self.payload, &self.payload_frames, row)?;
        Ok(Record { sequence: number(self.sequence.at(row))?, tags: tags(&self.tags, row)?, blocks })
    }
}

impl Writer for Headers {
    fn write(&self, row: usize) -> Result<Option<(Frames, bool)>, String> {
        let Some(slug) = self.variant.at(row) else { return Err("variant is missing".to_owned()) };
        let variant = slug.parse().map_err(|()| format!("variant: there is no {slug:?}"))?;
        let sender = self.sender.at(row).ok_or("sender is missing")?;
        if variant == Variant::Two {
            let header = self.batch(row, sender)?;
            return Ok(Some((Frames::from_iter([Bytes::from(header)]), true)));
        }
        let nanos = self.timestamp_ns.at(row).map(i128::from);
        let is_timed = matches!(variant, Variant::S | Variant::A);
        let timestamp = nanos.and_then(Timestamp::from_nanos).or_else(|| (!is_timed).then_some(Timestamp::new(0, 0)?));
        let kind = if variant == Variant::S { MessageType::Dat } else { self.kind(row)? };
        let sequence = if variant == Variant::S { 0 } else { number(self.sequence.at(row))? };
        let mut header = Vec::new();
        encode_header(
            &mut header,
            variant,
            sender,
            timestamp.ok_or("timestamp_ns is missing")?,
            kind,
            sequence,
            &tags(&self.tags, row)?,
        )
        .map_err(|error| error.to_string())?;
        let mut frames = Frames::from_iter([Bytes::from(header)]);
        let payload = self.payload.at(row);
        let has_payload = payload.is_some() || self.payload_frames.at(row) == Some(0);
        frames.extend(payload.into_iter().flatten().map(Bytes::copy_from_slice));
        Ok(Some((frames, has_payload)))
    }
}

fn of_list(records: &dyn Array) -> Result<Vec<Record>, String> {
    let structs: &StructArray = records.as_struct();
    let given = StructFields::of(structs);
    let wrong = |error: ColumnError| error.to_string();
    let (sequences, members) =
        (given.numbers("sequence").map_err(wrong)?, given.members("tags", "tag").map_err(wrong)?);
    let (payload, frames) = (given.lists("payload").map_err(wrong)?, given.numbers("payload_frames").map_err(wrong)?);
    let record = |row| {
        let blocks = blocks(&payload, &frames, row)?;
        Ok(Record { sequence: number(sequences.at(row))?, tags: tags(&members, row)?, blocks })
    };
    (0..structs.len()).map(record).collect()
}

/// The blocks of a record.
fn blocks(payload: &Lists, count: &Numbers, row: usize) -> Result<Vec<Vec<u8>>, String> {
    match payload.at(row) {
        Some(payload) => Ok(payload.into_iter().map(<[u8]>::to_vec).collect()),
        None if count.at(row).unwrap_or_default() > 0 => Err("payload is missing: decode with it".to_owned()),
        None => Ok(Vec::new()),
    }
}

fn number(sequence: Option<i64>) -> Result<u64, String> {
    sequence
        .and_then(|sequence| u64::try_from(sequence).ok())
        .ok_or_else(|| "sequence is missing, or below 0".to_owned())
}

fn tags(members: &Members, row: usize) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    pack(&members.at(row)?, &mut out).map_err(|error| error.to_string())?;
    Ok(out)
}
