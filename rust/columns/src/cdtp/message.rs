//! The columns of a message.

use std::sync::Arc;

use arrow_array::{
    ArrayRef,
    types::{Int64Type, TimestampMicrosecondType},
};
use arrow_schema::{DataType, Field, Fields};
use trunkline_wire::{
    cdtp::{Layout, MessageType, Variant},
    msgpack::Timestamp,
};

use super::{
    Options,
    body::{self, Body, Content},
};
use crate::{
    Asked, ColumnError, ColumnKind, Mode,
    options::{UTC, timestamp_type},
    output::{Bytes, Numbers, Slugs},
    payload::Fault,
    table::Mismatches,
    tags::micros,
};

pub(super) fn fields(options: &Options) -> Fields {
    let mut fields: Vec<_> = [
        Field::new("variant", DataType::Utf8, true),
        Field::new("sender", DataType::Utf8, true),
        Field::new("timestamp_ns", DataType::Int64, true),
        Field::new("timestamp", timestamp_type(), true),
        Field::new("type", DataType::Utf8, true),
    ]
    .map(Arc::new)
    .into();
    fields.extend(body::fields(options).iter().cloned());
    fields.push(Arc::new(Field::new("error", DataType::Utf8, true)));
    if options.mode == Mode::Permissive {
        fields.push(Arc::new(Field::new("_corrupt_record", DataType::Binary, true)));
    }
    fields.into()
}

/// The values of a header that all its records share.
#[derive(Clone, Copy)]
pub(super) struct Start<'a> {
    variant: Variant,
    sender: &'a [u8],
    timestamp: Option<&'a Timestamp>,
    message_type: Option<MessageType>,
}

impl<'a> Start<'a> {
    #[inline]
    pub(super) fn of(layout: &'a Layout, header: &'a [u8]) -> Self {
        let (timestamp, message_type) = match layout {
            Layout::Single(head) => (head.timestamp.as_ref(), head.message_type),
            Layout::Batch(batch) => (None, Some(batch.message_type)),
        };
        Self { variant: layout.variant(), sender: &header[layout.sender()], timestamp, message_type }
    }
}

/// The columns, being built.
#[derive(Debug)]
pub(super) struct Messages {
    variant: Slugs,
    sender: Bytes,
    timestamp_ns: Numbers<Int64Type>,
    timestamp: Numbers<TimestampMicrosecondType>,
    message_type: Slugs,
    body: Body,
    error: Slugs,
    corrupt_record: Option<Bytes>,
}

impl Messages {
    pub(super) fn new(options: &Options, asked: &Asked) -> Self {
        Self {
            variant: Slugs::asked(asked.has("variant")),
            sender: Bytes::asked(asked.has("sender")),
            timestamp_ns: Numbers::asked(asked.has("timestamp_ns")),
            timestamp: Numbers::asked(asked.has("timestamp")),
            message_type: Slugs::asked(asked.has("type")),
            body: Body::new(options, asked),
            error: Slugs::asked(asked.has("error")),
            corrupt_record: (options.mode == Mode::Permissive).then(|| Bytes::asked(asked.has("_corrupt_record"))),
        }
    }

    /// Appends a valid message. `exceeds` is what is already known not to fit.
    #[inline]
    pub(super) fn push(
        &mut self,
        row: usize,
        start: Start<'_>,
        content: Content<'_>,
        exceeds: Option<&'static str>,
    ) -> Result<(), ColumnError> {
        let timestamp_ns = start.timestamp.and_then(|timestamp| timestamp.to_nanos());
        let timestamp_exceeds =
            (timestamp_ns.is_none() && start.timestamp.is_some()).then_some(ColumnKind::TimestampExceedsBigint.slug());
        self.variant.push(Some(start.variant.slug()));
        self.sender.push(Some(start.sender))?;
        self.timestamp_ns.push(timestamp_ns);
        self.timestamp.push(start.timestamp.copied().and_then(micros));
        self.message_type.push(start.message_type.map(MessageType::slug));
        let body_exceeds = self.body.push(row, content)?;
        self.end(timestamp_exceeds.or(exceeds).or(body_exceeds), None)
    }

    /// Whether a payload is of the layout asked for.
    pub(super) fn check(&mut self, content: Content<'_>) -> Result<(), Fault> {
        self.body.check(content)
    }

    /// Appends an error, and its header.
    pub(super) fn push_error(&mut self, kind: &'static str, header: Option<&[u8]>) -> Result<(), ColumnError> {
        self.skip()?;
        self.end(Some(kind), header)
    }

    pub(super) fn push_null(&mut self) -> Result<(), ColumnError> {
        self.skip()?;
        self.end(None, None)
    }

    fn skip(&mut self) -> Result<(), ColumnError> {
        self.variant.push(None);
        self.sender.push(None)?;
        self.timestamp_ns.push(None);
        self.timestamp.push(None);
        self.message_type.push(None);
        self.body.push_null()
    }

    #[inline]
    fn end(&mut self, error: Option<&'static str>, corrupt_record: Option<&[u8]>) -> Result<(), ColumnError> {
        self.error.push(error);
        if let Some(column) = &mut self.corrupt_record {
            column.push(corrupt_record)?;
        }
        Ok(())
    }

    /// The bytes they take.
    pub(super) fn mismatches(&self) -> Mismatches {
        self.body.mismatches()
    }

    pub(super) fn bytes(&self) -> usize {
        let slugs = [&self.variant, &self.message_type, &self.error].map(Slugs::bytes);
        slugs.into_iter().sum::<usize>()
            + self.sender.bytes()
            + self.timestamp_ns.bytes()
            + self.timestamp.bytes()
            + self.body.bytes()
            + self.corrupt_record.as_ref().map_or(0, Bytes::bytes)
    }

    pub(super) fn finish(&mut self) -> Result<Vec<ArrayRef>, ColumnError> {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.variant.finish()?),
            Arc::new(self.sender.finish_text()?),
            Arc::new(self.timestamp_ns.finish()?),
            Arc::new(self.timestamp.finish()?.with_timezone(UTC)),
            Arc::new(self.message_type.finish()?),
        ];
        columns.extend(self.body.finish()?);
        columns.push(Arc::new(self.error.finish()?));
        if let Some(column) = &mut self.corrupt_record {
            columns.push(Arc::new(column.finish()?));
        }
        Ok(columns)
    }
}
