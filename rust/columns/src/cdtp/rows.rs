//! A row for each message: what a table of messages is made of.

use std::{iter, sync::Arc};

use arrow_array::{ArrayRef, Int32Array, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Fields, Schema};
use trunkline_wire::cdtp::{Layout, decode_header};

use super::{
    Options,
    body::Content,
    message::{self, Messages, Start},
    single,
};
use crate::{ColumnError, Headers, Mode, Rows, input::Inputs};

/// The columns of [`decode_rows`]: `record`, which is the position in a CDTP2 message, and what the message says.
pub fn row_fields(options: &Options) -> Fields {
    let record = Arc::new(Field::new("record", DataType::Int32, true));
    iter::once(record).chain(message::fields(options).iter().cloned()).collect()
}

/// Decodes a batch into a row a message: a CDTP2 message has as many as it has records. A null header is a row of nulls.
pub fn decode_rows(options: &Options, headers: &Headers) -> Result<Rows, ColumnError> {
    let inputs = headers.read()?;
    // Nearly every row is one message, which takes no more than this.
    let mut record = vec![0; inputs.rows];
    let mut source: Vec<_> = (0..u32::try_from(inputs.rows).map_err(|_| ColumnError::TooLarge)?).collect();
    let mut messages = Messages::new(options);
    let mut alike = true;
    for row in 0..inputs.rows {
        let before = messages.len();
        decode_row(options, &inputs, row, &mut messages)?;
        let made = messages.len() - before;
        if alike && made != 1 {
            alike = false;
            record.truncate(row);
            source.truncate(row);
        }
        if !alike {
            for position in 0..made {
                record.push(i32::try_from(position).map_err(|_| ColumnError::TooLarge)?);
                source.push(u32::try_from(row).map_err(|_| ColumnError::TooLarge)?);
            }
        }
    }
    let record: ArrayRef = Arc::new(Int32Array::from(record));
    let columns = iter::once(record).chain(messages.finish()?).collect();
    let schema = Arc::new(Schema::new(row_fields(options)));
    let count = RecordBatchOptions::new().with_row_count(Some(messages.len()));
    Ok(Rows { columns: RecordBatch::try_new_with_options(schema, columns, &count)?, source: source.into() })
}

fn decode_row(options: &Options, inputs: &Inputs<'_>, row: usize, messages: &mut Messages) -> Result<(), ColumnError> {
    let Some(header) = inputs.header.get(row) else { return messages.push_null() };
    let frames = inputs.frames(row, header);
    let layout = match decode_header(header, frames.frames, &options.settings) {
        Ok(layout) => layout,
        Err(error) => {
            return match options.mode {
                Mode::Permissive => messages.push_error(header, error.kind),
                Mode::FailFast => Err(ColumnError::Decode { row, error }),
                Mode::DropMalformed => Ok(()),
            };
        }
    };
    let start = Start::of(&layout, header);
    match &layout {
        Layout::Single(head) => messages.push(row, start, single(inputs, row, frames, header, head), None),
        Layout::Batch(batch) => batch
            .records
            .iter()
            .try_for_each(|record| messages.push(row, start, Content::of_record(record, header), None)),
    }
}
