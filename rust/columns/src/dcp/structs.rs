//! A struct for each message: what a column function gives.

use arrow_array::StructArray;
use arrow_schema::Fields;
use trunkline_wire::dcp::decode;

use super::{
    Options,
    message::{Messages, row_fields},
};
use crate::{ColumnError, Mode, Parts, PlanError, output::Nulls};

/// The fields of the struct that [`decode_structs`] gives: those of a row.
pub fn struct_fields(options: &Options) -> Result<Fields, PlanError> {
    if options.mode == Mode::DropMalformed { Err(PlanError::DropInFunction) } else { Ok(row_fields(options)) }
}

/// Decodes a batch into a struct a message. Where all of its columns are null the struct is.
pub fn decode_structs(options: &Options, parts: &Parts) -> Result<StructArray, ColumnError> {
    let fields = struct_fields(options).map_err(|error| ColumnError::Input(error.to_string()))?;
    let inputs = parts.read()?;
    let mut frames = Vec::new();
    let mut messages = Messages::new(options);
    let mut nulls = Nulls::default();
    for row in 0..inputs.rows {
        let is_there = inputs.gather(row, &mut frames);
        nulls.push(row, is_there);
        if !is_there {
            messages.push_null()?;
            continue;
        }
        match decode(&frames, options.settings) {
            Ok(layout) => messages.push(&layout, &frames, inputs.sizes(row, &frames))?,
            Err(error) if options.mode == Mode::FailFast => return Err(ColumnError::Decode { row, error }),
            Err(error) => messages.push_error(&frames, error.kind)?,
        }
    }
    Ok(StructArray::try_new(fields, messages.finish()?, nulls.finish(inputs.rows))?)
}
