//! A struct for each header: what a column function gives.

use std::{iter, sync::Arc};

use arrow_array::{ArrayRef, StructArray};
use arrow_schema::{DataType, Field, Fields};
use trunkline_wire::cdtp::{Batch, Layout, decode_header};

use super::{
    Options,
    body::{self, Body, Content},
    message::{self, Messages, Start},
    single,
};
use crate::{
    ColumnError, ColumnKind, Headers, Mode, PlanError,
    input::Inputs,
    output::{Lists, Nulls, list_type},
};

/// The fields of the struct that [`decode_structs`] gives: what the header says, and the `records` of a CDTP2 message.
pub fn struct_fields(options: &Options) -> Result<Fields, PlanError> {
    if options.mode == Mode::DropMalformed {
        return Err(PlanError::DropInFunction);
    }
    let records = list_type(DataType::Struct(body::fields(options)));
    let records = Arc::new(Field::new("records", records, true));
    Ok(message::fields(options).iter().cloned().chain(iter::once(records)).collect())
}

/// Decodes a batch into a struct a header. A null header is a null struct; of CDTP2 what differs from record to record
/// is in `records`, and the payload counts are of all of them.
pub fn decode_structs(options: &Options, headers: &Headers) -> Result<StructArray, ColumnError> {
    let fields = struct_fields(options).map_err(|error| ColumnError::Input(error.to_string()))?;
    let inputs = headers.read()?;
    let mut structs = Structs {
        messages: Messages::new(options),
        records: Body::new(options),
        lists: Lists::default(),
        nulls: Nulls::default(),
        count: 0,
    };
    for row in 0..inputs.rows {
        structs.push(options, &inputs, row)?;
    }
    let records = structs.records.finish_struct(options, structs.count)?;
    let records: ArrayRef = structs.lists.finish(records)?;
    let columns = structs.messages.finish()?.into_iter().chain(iter::once(records)).collect();
    Ok(StructArray::try_new(fields, columns, structs.nulls.finish(inputs.rows))?)
}

struct Structs {
    messages: Messages,
    records: Body,
    lists: Lists,
    nulls: Nulls,
    /// How many records there are.
    count: usize,
}

impl Structs {
    fn push(&mut self, options: &Options, inputs: &Inputs<'_>, row: usize) -> Result<(), ColumnError> {
        let header = inputs.header.get(row);
        self.nulls.push(row, header.is_some());
        let Some(header) = header else {
            self.lists.push(None)?;
            return self.messages.push_null();
        };
        let frames = inputs.frames(row, header);
        let layout = match decode_header(header, frames.frames, &options.settings) {
            Ok(layout) => layout,
            Err(error) if options.mode == Mode::FailFast => return Err(ColumnError::Decode { row, error }),
            Err(error) => {
                self.lists.push(None)?;
                return self.messages.push_error(header, error.kind);
            }
        };
        let start = Start::of(&layout, header);
        match &layout {
            Layout::Single(head) => {
                self.lists.push(None)?;
                self.messages.push(row, start, single(inputs, row, frames, header, head), None)
            }
            Layout::Batch(batch) => {
                let exceeds = self.push_records(row, header, batch)?;
                self.messages.push(row, start, totals(batch), exceeds)
            }
        }
    }

    fn push_records(&mut self, row: usize, header: &[u8], batch: &Batch) -> Result<Option<ColumnKind>, ColumnError> {
        let mut first = None;
        for record in &batch.records {
            let exceeds = self.records.push(row, Content::of_record(record, header))?;
            first = first.or(exceeds);
        }
        self.count += batch.records.len();
        self.lists.push(Some(self.count))?;
        Ok(first)
    }
}

fn totals(batch: &Batch) -> Content<'_> {
    let blocks: u64 = batch.records.iter().map(|record| u64::from(record.blocks)).sum();
    let bytes: usize = batch.records.iter().map(|record| record.block_bytes).sum();
    Content {
        payload_frames: usize::try_from(blocks).ok(),
        payload_bytes: i64::try_from(bytes).ok(),
        ..Content::default()
    }
}
