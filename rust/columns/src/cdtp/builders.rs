//! A row for each message, or for each record of a CDTP2 message; or a struct for each header.

use std::{iter, sync::Arc};

use arrow_array::{ArrayRef, Int32Array};
use arrow_schema::{DataType, Field, Fields};
use trunkline_wire::cdtp::{Batch, Cdtp, Head, Layout, MessageType};

use super::{
    Options,
    body::{self, Body, Content, Payload},
    first, frames, header,
    message::{self, Messages, Start},
    payload_bytes,
};
use crate::{
    Asked, Builder, ColumnError, Message,
    limits::MAX_BYTES,
    output::{Lists, list_type},
    payload::Fault,
    table::Mismatches,
    tags::TagMap,
};

/// The columns of rows, being built: `record`, which is the position in a CDTP2 message, and those of the message.
#[derive(Debug)]
pub struct Rows {
    /// How many rows come before those in `records`: each is a message of one row.
    single: usize,
    records: Vec<i32>,
    messages: Messages,
}

impl Builder<Cdtp> for Rows {
    fn fields(options: &Options) -> Fields {
        let record = Arc::new(Field::new("record", DataType::Int32, true));
        iter::once(record).chain(message::fields(options).iter().cloned()).collect()
    }

    fn new(options: &Options, asked: &Asked) -> Self {
        Self { single: 0, records: Vec::new(), messages: Messages::new(options, asked) }
    }

    #[inline]
    fn rows(layout: &Layout) -> Option<usize> {
        let Layout::Batch(batch) = layout else { return Some(1) };
        // Every record repeats the sender.
        let count = batch.records.len();
        (count <= MAX_BYTES / batch.sender.len().max(1)).then_some(count)
    }

    #[inline]
    fn weight(message: &Message<'_>, layout: &Layout, position: usize) -> (usize, usize) {
        match layout {
            Layout::Single(_) => (message.weight, 1),
            Layout::Batch(batch) => (record_weight(batch, position), 1),
        }
    }

    fn bytes(&self) -> usize {
        size_of::<i32>() * (self.single + self.records.len()) + self.messages.bytes()
    }

    fn mismatches(&self) -> Mismatches {
        self.messages.mismatches()
    }

    fn check(&mut self, message: &Message<'_>, layout: &Layout, position: usize) -> Result<(), Fault> {
        let content = match layout {
            Layout::Single(head) => single(message, head),
            Layout::Batch(batch) => {
                let is_data = is_data(Some(batch.message_type));
                Content::of_record(&batch.records[position], header(message), is_data)
            }
        };
        self.messages.check(content)
    }

    #[allow(clippy::inline_always)] // the values of a message are large, and would be copied at each call
    #[inline(always)]
    fn push(&mut self, message: &Message<'_>, layout: &Layout, position: usize) -> Result<(), ColumnError> {
        match layout {
            Layout::Single(head) => {
                self.push_position(0);
                let start = Start::of(layout, header(message));
                self.messages.push(message.row, start, single(message, head), None)
            }
            Layout::Batch(batch) => self.push_record(message, layout, batch, position),
        }
    }

    fn push_error(&mut self, kind: &'static str, frames: Option<&[&[u8]]>) -> Result<(), ColumnError> {
        self.push_position(0);
        self.messages.push_error(kind, frames.map(first))
    }

    fn push_null(&mut self) -> Result<(), ColumnError> {
        self.push_position(0);
        self.messages.push_null()
    }

    fn finish(mut self, _: &Options) -> Result<Vec<ArrayRef>, ColumnError> {
        let records = iter::repeat_n(0, self.single).chain(self.records).collect::<Vec<_>>();
        let record: ArrayRef = Arc::new(Int32Array::from(records));
        Ok(iter::once(record).chain(self.messages.finish()?).collect())
    }
}

impl Rows {
    #[inline]
    fn push_position(&mut self, position: i32) {
        if position == 0 && self.records.is_empty() {
            self.single += 1;
        } else {
            self.records.push(position);
        }
    }

    #[inline(never)] // it would slow down what is done for nearly all rows
    fn push_record(
        &mut self,
        message: &Message<'_>,
        layout: &Layout,
        batch: &Batch,
        position: usize,
    ) -> Result<(), ColumnError> {
        let header = header(message);
        self.push_position(i32::try_from(position).map_err(|_| ColumnError::TooLarge)?);
        let content = Content::of_record(&batch.records[position], header, is_data(Some(batch.message_type)));
        self.messages.push(message.row, Start::of(layout, header), content, None)
    }
}

#[inline(never)] // as above
fn record_weight(batch: &Batch, position: usize) -> usize {
    let record = &batch.records[position];
    batch.sender.len() + record.end - record.tags.start
}

/// The fields of structs, being built: those of the header, and the `records` of a CDTP2 message, with what differs
/// from record to record; the payload counts outside are for all of them.
#[derive(Debug)]
pub struct Structs {
    messages: Messages,
    records: Body,
    lists: Lists,
    /// The number of records.
    count: usize,
}

impl Builder<Cdtp> for Structs {
    fn fields(options: &Options) -> Fields {
        let records = list_type(DataType::Struct(body::fields(options)));
        let records = Arc::new(Field::new("records", records, true));
        message::fields(options).iter().cloned().chain(iter::once(records)).collect()
    }

    fn new(options: &Options, asked: &Asked) -> Self {
        Self {
            messages: Messages::new(options, asked),
            records: Body::new(options, asked),
            lists: Lists::default(),
            count: 0,
        }
    }

    #[inline]
    fn weight(message: &Message<'_>, layout: &Layout, _: usize) -> (usize, usize) {
        (message.weight, layout.messages().max(1))
    }

    fn bytes(&self) -> usize {
        self.messages.bytes() + self.records.bytes() + self.lists.bytes()
    }

    fn check(&mut self, message: &Message<'_>, layout: &Layout, _: usize) -> Result<(), Fault> {
        match layout {
            Layout::Single(head) => self.messages.check(single(message, head)),
            Layout::Batch(batch) => {
                let is_data = is_data(Some(batch.message_type));
                let content = |record| Content::of_record(record, header(message), is_data);
                batch.records.iter().try_for_each(|record| self.records.check(content(record)))
            }
        }
    }

    #[inline]
    fn push(&mut self, message: &Message<'_>, layout: &Layout, _: usize) -> Result<(), ColumnError> {
        let header = header(message);
        let start = Start::of(layout, header);
        match layout {
            Layout::Single(head) => {
                self.lists.push(None)?;
                self.messages.push(message.row, start, single(message, head), None)
            }
            Layout::Batch(batch) => {
                let mut exceeds = None;
                for record in &batch.records {
                    let content = Content::of_record(record, header, is_data(Some(batch.message_type)));
                    let record = self.records.push(message.row, content)?;
                    exceeds = exceeds.or(record);
                }
                self.count += batch.records.len();
                self.lists.push(Some(self.count))?;
                self.messages.push(message.row, start, totals(batch), exceeds)
            }
        }
    }

    fn push_error(&mut self, kind: &'static str, frames: Option<&[&[u8]]>) -> Result<(), ColumnError> {
        self.lists.push(None)?;
        self.messages.push_error(kind, frames.map(first))
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

/// Whether messages of this type have data: those of S have no type.
fn is_data(message_type: Option<MessageType>) -> bool {
    matches!(message_type, None | Some(MessageType::Dat))
}

/// The values of a CDTP1 message after its start.
#[allow(clippy::inline_always)] // as above
#[inline(always)]
fn single<'a>(message: &Message<'a>, head: &Head) -> Content<'a> {
    Content {
        sequence: head.sequence,
        tags: Some(TagMap::of(header(message), &head.tags, head.duplicate_keys)),
        payload_frames: frames(message).map(|frames| frames.saturating_sub(1)),
        payload_bytes: payload_bytes(message),
        payload: message.has_payload.then(|| Payload::Frames(&message.frames[1..])),
        is_data: is_data(head.message_type) && message.sizes().0 == message.frames.len(),
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
