//! The way back: columns as `decode_structs` gives them, into the frames of messages.

pub(crate) mod struct_fields;
pub(crate) mod value;

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::{DataType, Field, Fields};
use bytes::Bytes;
use trunkline_wire::Frames;

pub use struct_fields::StructFields;

use crate::{
    ColumnError, Table,
    output::{Bytes as Binaries, BytesLists, Nulls, list_type},
};

pub trait Writer {
    /// The frames of the message in a row, and whether those of its payload are included; None if there are no columns
    /// to write it from. An error names the field that is wrong, and how.
    fn write(&self, row: usize) -> Result<Option<(Frames, bool)>, String>;
}

/// The fields of the structs that [`encode_structs`] gives: frames as a capture splits them.
pub fn frames_fields() -> Fields {
    Fields::from(vec![
        Field::new("envelope", list_type(DataType::Binary), true),
        Field::new("header", DataType::Binary, true),
        Field::new("payload", list_type(DataType::Binary), true),
    ])
}

/// Encodes a struct for each message. An invalid message becomes its frames, as far as they were kept; else the struct
/// is null.
pub fn encode_structs<T: Table>(options: &T::Options, structs: &StructArray) -> Result<StructArray, ColumnError> {
    let given = StructFields::of(structs);
    let writer = T::writer(options, given)?;
    let (errors, corrupt) = (given.texts("error")?, given.corrupt()?);
    let (mut envelopes, mut headers, mut payloads) =
        (BytesLists::default(), Binaries::default(), BytesLists::default());
    let mut nulls = Nulls::default();
    for row in 0..structs.len() {
        let written = if structs.is_null(row) {
            None
        } else if let Some(frames) = corrupt.at(row) {
            let frames: Frames = frames.into_iter().map(Bytes::copy_from_slice).collect();
            // For messages that have a header only that may have been kept.
            let are_all = corrupt.are_all || T::split(&frames).header.is_none();
            Some((frames, are_all))
        } else if errors.at(row).is_some() {
            // A column could not hold its value.
            None
        } else {
            written::<T>(options, &*writer, row).map_err(|reason| ColumnError::Input(format!("row {row}: {reason}")))?
        };
        nulls.push(row, written.is_some());
        let (frames, has_payload) = written.unwrap_or_default();
        let split = T::split(&frames);
        envelopes.push(frames[split.envelope].iter().map(AsRef::as_ref))?;
        headers.push(split.header.map(|at| &*frames[at]))?;
        if has_payload {
            payloads.push(frames[split.payload].iter().map(AsRef::as_ref))?;
        } else {
            payloads.push_null()?;
        }
    }
    let columns: Vec<ArrayRef> = vec![envelopes.finish()?, Arc::new(headers.finish()?), payloads.finish()?];
    Ok(StructArray::try_new(frames_fields(), columns, nulls.finish(structs.len()))?)
}

/// The frames of the message in a row, if they make a message.
fn written<T: Table>(options: &T::Options, writer: &dyn Writer, row: usize) -> Result<Option<(Frames, bool)>, String> {
    let written = writer.write(row)?;
    if let Some((frames, true)) = &written
        && let Err(error) = T::decode(frames, T::settings(options))
    {
        return Err(format!("this is no message of {}: {} in frame {}", T::NAME, error.kind.slug(), error.frame));
    }
    Ok(written)
}
