//! A row for each message: what a table of messages is made of.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::Schema;
use trunkline_wire::dcp::decode;

use super::{
    Options,
    message::{Messages, row_fields},
};
use crate::{ColumnError, Mode, Parts, Rows};

/// Decodes a batch into a row a message. Where all of its columns are null there is a row of nulls.
pub fn decode_rows(options: &Options, parts: &Parts) -> Result<Rows, ColumnError> {
    let inputs = parts.read()?;
    let mut source = Vec::with_capacity(inputs.rows);
    let mut frames = Vec::new();
    let mut messages = Messages::new(options);
    for row in 0..inputs.rows {
        if inputs.gather(row, &mut frames) {
            match decode(&frames, options.settings) {
                Ok(layout) => messages.push(&layout, &frames, inputs.sizes(row, &frames))?,
                Err(error) => match options.mode {
                    Mode::Permissive => messages.push_error(&frames, error.kind)?,
                    Mode::FailFast => return Err(ColumnError::Decode { row, error }),
                    Mode::DropMalformed => continue,
                },
            }
        } else {
            messages.push_null()?;
        }
        source.push(u32::try_from(row).map_err(|_| ColumnError::TooLarge)?);
    }
    let schema = Arc::new(Schema::new(row_fields(options)));
    let count = RecordBatchOptions::new().with_row_count(Some(messages.len()));
    let columns = RecordBatch::try_new_with_options(schema, messages.finish()?, &count)?;
    Ok(Rows { source: source.into(), columns })
}
