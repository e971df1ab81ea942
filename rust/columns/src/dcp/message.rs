//! The columns of a message.

use std::sync::Arc;

use arrow_array::{
    ArrayRef,
    types::{Int32Type, Int64Type},
};
use arrow_schema::{DataType, Field, Fields};
use trunkline_wire::{ErrorKind, dcp::Layout};

use super::Options;
use crate::{
    ColumnError, Mode,
    output::{Bytes, BytesLists, Numbers, Slugs, list_type},
};

/// The columns of [`decode_rows`](super::decode_rows): what a message says, and what is wrong with one that is none.
pub fn row_fields(options: &Options) -> Fields {
    let frames = || list_type(DataType::Binary);
    let mut fields = vec![
        Field::new("type", DataType::Utf8, true),
        Field::new("service", DataType::Binary, true),
        Field::new("client", DataType::Binary, true),
        Field::new("metadata", frames(), true),
        Field::new("data_parts", DataType::Int32, true),
        Field::new("data_bytes", DataType::Int64, true),
    ];
    if options.data {
        fields.push(Field::new("data", frames(), true));
    }
    fields.push(Field::new("error", DataType::Utf8, true));
    if options.mode == Mode::Permissive {
        fields.push(Field::new("_corrupt_record", frames(), true));
    }
    fields.into()
}

/// The columns, being built.
pub(super) struct Messages {
    message_type: Slugs,
    service: Bytes,
    client: Bytes,
    metadata: BytesLists,
    data_parts: Numbers<Int32Type>,
    data_bytes: Numbers<Int64Type>,
    data: Option<BytesLists>,
    error: Slugs,
    corrupt_record: Option<BytesLists>,
    rows: usize,
}

impl Messages {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            message_type: Slugs::default(),
            service: Bytes::default(),
            client: Bytes::default(),
            metadata: BytesLists::default(),
            data_parts: Numbers::default(),
            data_bytes: Numbers::default(),
            data: options.data.then(BytesLists::default),
            error: Slugs::default(),
            corrupt_record: (options.mode == Mode::Permissive).then(BytesLists::default),
            rows: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.rows
    }

    /// Appends a good message, of so many frames and bytes in all.
    #[inline]
    pub(super) fn push(
        &mut self,
        layout: &Layout,
        frames: &[&[u8]],
        (n_frames, n_bytes): (usize, usize),
    ) -> Result<(), ColumnError> {
        self.message_type.push(Some(layout.message_type().slug()));
        self.service.push(layout.service().map(|service| frames[service]))?;
        let Some(body) = layout.body() else {
            self.skip_body()?;
            return self.end(None, None);
        };
        self.client.push(body.client.map(|client| frames[client]))?;
        self.metadata.push(frames[body.metadata.clone()].iter().copied())?;
        let start = body.data().start;
        let before: usize = frames[..start].iter().map(|frame| frame.len()).sum();
        self.data_parts.push(i32::try_from(n_frames - start).ok());
        self.data_bytes.push(i64::try_from(n_bytes - before).ok());
        if let Some(column) = &mut self.data {
            column.push(frames[start..].iter().copied())?;
        }
        self.end(None, None)
    }

    /// Appends frames that are no message.
    pub(super) fn push_error(&mut self, frames: &[&[u8]], kind: ErrorKind) -> Result<(), ColumnError> {
        self.skip()?;
        self.end(Some(kind.slug()), Some(frames))
    }

    /// Appends nothing.
    pub(super) fn push_null(&mut self) -> Result<(), ColumnError> {
        self.skip()?;
        self.end(None, None)
    }

    fn skip(&mut self) -> Result<(), ColumnError> {
        self.message_type.push(None);
        self.service.push(None)?;
        self.skip_body()
    }

    fn skip_body(&mut self) -> Result<(), ColumnError> {
        self.client.push(None)?;
        self.metadata.push_null()?;
        self.data_parts.push(None);
        self.data_bytes.push(None);
        self.data.as_mut().map_or(Ok(()), BytesLists::push_null)
    }

    #[inline]
    fn end(&mut self, error: Option<&'static str>, corrupt_record: Option<&[&[u8]]>) -> Result<(), ColumnError> {
        self.error.push(error);
        self.rows += 1;
        match (&mut self.corrupt_record, corrupt_record) {
            (Some(column), Some(frames)) => column.push(frames.iter().copied()),
            (Some(column), None) => column.push_null(),
            (None, _) => Ok(()),
        }
    }

    pub(super) fn finish(&mut self) -> Result<Vec<ArrayRef>, ColumnError> {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.message_type.finish()?),
            Arc::new(self.service.finish()?),
            Arc::new(self.client.finish()?),
            self.metadata.finish()?,
            Arc::new(self.data_parts.finish()?),
            Arc::new(self.data_bytes.finish()?),
        ];
        if let Some(column) = &mut self.data {
            columns.push(column.finish()?);
        }
        columns.push(Arc::new(self.error.finish()?));
        if let Some(column) = &mut self.corrupt_record {
            columns.push(column.finish()?);
        }
        Ok(columns)
    }
}
