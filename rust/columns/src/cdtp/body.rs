//! The columns shared by a message and a record.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, StructArray,
    types::{Int32Type, Int64Type},
};
use arrow_schema::{DataType, Field, Fields};
use trunkline_wire::cdtp::Record;

use super::Options;
use crate::{
    Asked, ColumnError, ColumnKind, Mode,
    output::{BytesLists, Numbers, list_type},
    payload::{Column, Fault, PayloadFrames},
    table::Mismatches,
    tags::{self, TagColumns, TagMap},
};

pub(super) fn fields(options: &Options) -> Fields {
    let mut fields = vec![Field::new("sequence", DataType::Int64, true)];
    fields.extend(tags::fields(&options.tags, "tag", "tags"));
    fields.push(Field::new("payload_frames", DataType::Int32, true));
    fields.push(Field::new("payload_bytes", DataType::Int64, true));
    let payload = options.payload.fields(|| Field::new("payload", list_type(DataType::Binary), true));
    fields.extend(payload.iter().map(|field| field.as_ref().clone()));
    fields.into()
}

/// The values of a row; `None` is null.
#[derive(Clone, Copy, Default)]
pub(super) struct Content<'a> {
    pub(super) sequence: Option<u64>,
    pub(super) tags: Option<TagMap<'a>>,
    pub(super) payload_frames: Option<usize>,
    pub(super) payload_bytes: Option<i64>,
    pub(super) payload: Option<Payload<'a>>,
    /// Whether the payload is data, and complete, so that it may be of a layout.
    pub(super) is_data: bool,
}

impl<'a> Content<'a> {
    pub(super) fn of_record(record: &'a Record, header: &'a [u8], is_data: bool) -> Self {
        Self {
            sequence: Some(record.sequence),
            tags: Some(TagMap::of(header, &record.tags, record.duplicate_keys as usize)),
            payload_frames: usize::try_from(record.blocks).ok(),
            payload_bytes: i64::try_from(record.block_bytes).ok(),
            payload: Some(Payload::Blocks(record, header)),
            is_data,
        }
    }
}

impl Content<'_> {
    /// Calls a function with the payload if it is data.
    #[inline]
    fn with_data<T>(&self, then: impl FnOnce(Option<PayloadFrames<'_>>) -> T) -> T {
        let tags = self.tags;
        match self.payload.filter(|_| self.is_data) {
            None => then(None),
            Some(Payload::Frames(frames)) => then(Some(PayloadFrames { frames, tags })),
            Some(Payload::Blocks(record, header)) => {
                let mut blocks = record.blocks(header).map(|block| &header[block]);
                // Mostly there is one, which needs no list.
                match (record.blocks, blocks.next()) {
                    (1, Some(block)) => then(Some(PayloadFrames { frames: &[block], tags })),
                    (_, first) => {
                        then(Some(PayloadFrames { frames: &first.into_iter().chain(blocks).collect::<Vec<_>>(), tags }))
                    }
                }
            }
        }
    }

    /// The frame of the message, and the byte of it, where this byte of a frame of the payload is.
    fn place(&self, frame: usize, offset: usize) -> (usize, usize) {
        match self.payload {
            Some(Payload::Blocks(record, header)) => {
                let start = record.blocks(header).nth(frame).map_or(record.end, |block| block.start);
                (0, start + offset)
            }
            Some(Payload::Frames(_)) | None => (frame + 1, offset),
        }
    }
}

/// The place of payloads.
#[derive(Clone, Copy)]
pub(super) enum Payload<'a> {
    /// In their own frames.
    Frames(&'a [&'a [u8]]),
    /// In a record of this header.
    Blocks(&'a Record, &'a [u8]),
}

/// The columns, being built.
#[derive(Debug)]
pub(super) struct Body {
    sequence: Numbers<Int64Type>,
    tags: TagColumns,
    payload_frames: Numbers<Int32Type>,
    payload_bytes: Numbers<Int64Type>,
    payload: Column<BytesLists>,
    strict: bool,
}

impl Body {
    pub(super) fn new(options: &Options, asked: &Asked) -> Self {
        Self {
            sequence: Numbers::asked(asked.has("sequence")),
            tags: TagColumns::asked((&options.tags, "tag", "tags"), ColumnKind::TagsExceedVariant, options.mode, asked),
            payload_frames: Numbers::asked(asked.has("payload_frames")),
            payload_bytes: Numbers::asked(asked.has("payload_bytes")),
            payload: Column::new(&options.payload, "payload", options.mode, asked),
            strict: options.mode == Mode::FailFast,
        }
    }

    /// Appends a row, and gives what a column cannot hold of it.
    #[allow(clippy::inline_always)] // the values of a message are large, and would be copied at each call
    #[inline(always)]
    pub(super) fn push(&mut self, row: usize, content: Content<'_>) -> Result<Option<&'static str>, ColumnError> {
        let sequence = content.sequence.and_then(|sequence| i64::try_from(sequence).ok());
        self.sequence.push(sequence);
        let exceeds = (sequence.is_none() && content.sequence.is_some()).then_some(ColumnKind::SequenceExceedsBigint);
        let tags_exceed = if let Some(tags) = content.tags {
            self.tags.push(row, tags, self.strict)?
        } else {
            self.tags.push_null()?;
            None
        };
        self.payload_frames.push(content.payload_frames.and_then(|frames| i32::try_from(frames).ok()));
        self.payload_bytes.push(content.payload_bytes);
        let fault = match &mut self.payload {
            Column::None => None,
            Column::Frames(column) => {
                push_payload(column, content.payload)?;
                None
            }
            Column::Layout(columns) => {
                let pushed = content.with_data(|payload| columns.push(row, payload));
                pushed.map_err(|error| error.at(|frame, offset| content.place(frame, offset)))?
            }
        };
        Ok(exceeds.or(tags_exceed).map(ColumnKind::slug).or(fault))
    }

    /// Whether the payload is of the layout asked for.
    pub(super) fn check(&mut self, content: Content<'_>) -> Result<(), Fault> {
        let Column::Layout(columns) = &mut self.payload else { return Ok(()) };
        let checked = content.with_data(|payload| payload.map_or(Ok(()), |payload| columns.check(payload)));
        checked.map_err(|fault| {
            let (frame, offset) = content.place(fault.frame, fault.offset);
            Fault { frame, offset, ..fault }
        })
    }

    /// Appends a row of nulls.
    pub(super) fn push_null(&mut self) -> Result<(), ColumnError> {
        self.sequence.push(None);
        self.tags.push_null()?;
        self.payload_frames.push(None);
        self.payload_bytes.push(None);
        self.payload.push_null()
    }

    /// The bytes they take.
    pub(super) fn mismatches(&self) -> Mismatches {
        let mut all = self.payload.mismatches();
        for (name, count) in self.tags.mismatches() {
            *all.entry(name.to_owned()).or_default() += count;
        }
        all
    }

    pub(super) fn bytes(&self) -> usize {
        self.sequence.bytes()
            + self.tags.bytes()
            + self.payload_frames.bytes()
            + self.payload_bytes.bytes()
            + self.payload.bytes()
    }

    pub(super) fn finish(&mut self) -> Result<Vec<ArrayRef>, ColumnError> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(self.sequence.finish()?)];
        columns.extend(self.tags.finish()?);
        columns.push(Arc::new(self.payload_frames.finish()?));
        columns.push(Arc::new(self.payload_bytes.finish()?));
        columns.extend(self.payload.finish()?);
        Ok(columns)
    }

    pub(super) fn finish_struct(&mut self, options: &Options, rows: usize) -> Result<ArrayRef, ColumnError> {
        let columns = self.finish()?;
        Ok(Arc::new(StructArray::try_new_with_length(fields(options), columns, None, rows)?))
    }
}

fn push_payload(column: &mut BytesLists, payload: Option<Payload<'_>>) -> Result<(), ColumnError> {
    match payload {
        Some(Payload::Frames(frames)) => column.push(frames.iter().copied()),
        Some(Payload::Blocks(record, header)) => column.push(record.blocks(header).map(|block| &header[block])),
        None => column.push_null(),
    }
}
