//! A row for each message, a CDTP2 message one for each record; or a struct for each header.

use std::{iter, sync::Arc};

use arrow_array::{ArrayRef, Int32Array};
use arrow_schema::{DataType, Field, Fields};
use trunkline_wire::{
    ErrorKind,
    cdtp::{Batch, Cdtp, Head, Layout},
};

use super::{
    Options,
    body::{self, Body, Content, Payload},
    frames, header,
    message::{self, Messages, Start},
    payload_bytes,
};
use crate::{
    Builder, ColumnError, Message,
    output::{Lists, list_type},
    tags::TagMap,
};

/// The columns of rows, being built: `record`, which is the position in a CDTP2 message, and what the message says.
#[derive(Debug)]
pub struct Rows {
    record: Vec<i32>,
    messages: Messages,
}

impl Builder<Cdtp> for Rows {
    fn fields(options: &Options) -> Fields {
        let record = Arc::new(Field::new("record", DataType::Int32, true));
        iter::once(record).chain(message::fields(options).iter().cloned()).collect()
    }

    fn new(options: &Options) -> Self {
        Self { record: Vec::new(), messages: Messages::new(options) }
    }

    #[inline]
    fn push(&mut self, message: &Message<'_>, layout: &Layout) -> Result<usize, ColumnError> {
        let header = header(message);
        let start = Start::of(layout, header);
        match layout {
            Layout::Single(head) => {
                self.record.push(0);
                self.messages.push(message.row, start, single(message, head), None)?;
                Ok(1)
            }
            Layout::Batch(batch) => {
                for (position, record) in batch.records.iter().enumerate() {
                    self.record.push(i32::try_from(position).map_err(|_| ColumnError::TooLarge)?);
                    self.messages.push(message.row, start, Content::of_record(record, header), None)?;
                }
                Ok(batch.records.len())
            }
        }
    }

    fn push_error(&mut self, message: &Message<'_>, kind: ErrorKind) -> Result<(), ColumnError> {
        self.record.push(0);
        self.messages.push_error(header(message), kind)
    }

    fn push_null(&mut self) -> Result<(), ColumnError> {
        self.record.push(0);
        self.messages.push_null()
    }

    fn finish(mut self, _: &Options) -> Result<Vec<ArrayRef>, ColumnError> {
        let record: ArrayRef = Arc::new(Int32Array::from(self.record));
        Ok(iter::once(record).chain(self.messages.finish()?).collect())
    }
}

/// The fields of structs, being built: what the header says, and the `records` of a CDTP2 message, in which is what
/// differs from record to record; the payload counts beside are of all of them.
#[derive(Debug)]
pub struct Structs {
    messages: Messages,
    records: Body,
    lists: Lists,
    /// How many records there are.
    count: usize,
}

impl Builder<Cdtp> for Structs {
    fn fields(options: &Options) -> Fields {
        let records = list_type(DataType::Struct(body::fields(options)));
        let records = Arc::new(Field::new("records", records, true));
        message::fields(options).iter().cloned().chain(iter::once(records)).collect()
    }

    fn new(options: &Options) -> Self {
        Self { messages: Messages::new(options), records: Body::new(options), lists: Lists::default(), count: 0 }
    }

    #[inline]
    fn push(&mut self, message: &Message<'_>, layout: &Layout) -> Result<usize, ColumnError> {
        let header = header(message);
        let start = Start::of(layout, header);
        match layout {
            Layout::Single(head) => {
                self.lists.push(None)?;
                self.messages.push(message.row, start, single(message, head), None)?;
            }
            Layout::Batch(batch) => {
                let mut exceeds = None;
                for record in &batch.records {
                    let record = self.records.push(message.row, Content::of_record(record, header))?;
                    exceeds = exceeds.or(record);
                }
                self.count += batch.records.len();
                self.lists.push(Some(self.count))?;
                self.messages.push(message.row, start, totals(batch), exceeds)?;
            }
        }
        Ok(1)
    }

    fn push_error(&mut self, message: &Message<'_>, kind: ErrorKind) -> Result<(), ColumnError> {
        self.lists.push(None)?;
        self.messages.push_error(header(message), kind)
    }

    fn push_null(&mut self) -> Result<(), ColumnError> {
        self.lists.push(None)?;
        self.messages.push_null()
    }

    fn finish(mut self, options: &Options) -> Result<Vec<ArrayRef>, ColumnError> {
        let records = self.records.finish_struct(options, self.count)?;
        let records = self.lists.finish(records)?;
        Ok(self.messages.finish()?.into_iter().chain(iter::once(records)).collect())
    }
}

/// What a CDTP1 message says beyond its start.
#[inline]
fn single<'a>(message: &Message<'a>, head: &Head) -> Content<'a> {
    Content {
        sequence: head.sequence,
        tags: Some(TagMap::of(header(message), &head.tags, head.duplicate_keys)),
        payload_frames: frames(message).map(|frames| frames.saturating_sub(1)),
        payload_bytes: payload_bytes(message),
        payload: message.has_payload.then(|| Payload::Frames(&message.frames[1..])),
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
