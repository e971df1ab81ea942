//! The last columns of protocols that keep all frames of an invalid message: the error, and the frames.

use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Field};

use crate::{
    Asked, ColumnError, Mode,
    output::{BytesLists, Slugs, list_type},
};

/// The columns `error` and, where rows are kept, `_corrupt_record`, being built.
#[derive(Debug)]
pub(crate) struct Faults {
    error: Slugs,
    corrupt_record: Option<BytesLists>,
}

impl Faults {
    pub(crate) fn new(mode: Mode, asked: &Asked) -> Self {
        let corrupt_record = || BytesLists::asked(asked.has("_corrupt_record"));
        let error = Slugs::asked(asked.has("error"));
        Self { error, corrupt_record: (mode == Mode::Permissive).then(corrupt_record) }
    }

    pub(crate) fn fields(mode: Mode) -> impl Iterator<Item = Field> {
        let corrupt_record = Field::new("_corrupt_record", list_type(DataType::Binary), true);
        let kept = (mode == Mode::Permissive).then_some(corrupt_record);
        [Field::new("error", DataType::Utf8, true)].into_iter().chain(kept)
    }

    /// The bytes they take.
    pub(crate) fn bytes(&self) -> usize {
        self.error.bytes() + self.corrupt_record.as_ref().map_or(0, BytesLists::bytes)
    }

    #[inline]
    pub(crate) fn push(&mut self, error: Option<&'static str>, frames: Option<&[&[u8]]>) -> Result<(), ColumnError> {
        self.error.push(error);
        match (&mut self.corrupt_record, frames) {
            (Some(column), Some(frames)) => column.push(frames.iter().copied()),
            (Some(column), None) => column.push_null(),
            (None, _) => Ok(()),
        }
    }

    pub(crate) fn finish(&mut self) -> Result<impl Iterator<Item = ArrayRef> + use<>, ColumnError> {
        let error: ArrayRef = Arc::new(self.error.finish()?);
        let corrupt_record = self.corrupt_record.as_mut().map(BytesLists::finish).transpose()?;
        Ok([error].into_iter().chain(corrupt_record))
    }
}
