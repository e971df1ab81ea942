//! Any columns of frames, cut anywhere and with any counts beside them: what is decoded agrees with the codec. The first
//! three bytes of a message say how it begins, where it is cut and what is null, and how many frames it has; each frame
//! begins with its length.
#![no_main]

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryArray, Int64Array, RecordBatch,
    builder::{BinaryBuilder, ListBuilder},
    cast::AsArray,
    types::{Int32Type, Int64Type},
};
use libfuzzer_sys::fuzz_target;
use trunkline_columns::{ColumnError, Mode, Parts, Rows, dcp::Options, decode_rows, decode_structs};
use trunkline_wire::dcp::{Dcp, Layout, Settings, decode};

/// More messages in a batch say nothing new.
const MESSAGES: usize = 16;

/// A message as the columns have it.
#[derive(Default)]
struct Message {
    envelope: Option<Vec<Vec<u8>>>,
    header: Option<Vec<u8>>,
    payload: Option<Vec<Vec<u8>>>,
    n_frames: Option<i64>,
    n_bytes: Option<i64>,
}

impl Message {
    fn read(input: &mut &[u8]) -> Option<Self> {
        let (how, cut, count) = (byte(input)?, byte(input)?, byte(input)?);
        let mut frames = vec![];
        // Mostly it begins as a message does: random bytes seldom would.
        if how & 0x80 == 0 {
            frames.extend([vec![], b"DGBX\x01".to_vec(), vec![1 + (how >> 4) % 6]]);
        }
        for _ in 0..count % 12 {
            let length = usize::from(byte(input)? % 16).min(input.len());
            let (frame, rest) = input.split_at(length);
            *input = rest;
            frames.push(frame.to_vec());
        }
        let counted = |bit, number: u8| match cut & bit {
            0 => None,
            _ if number == 0x7f => Some(i64::MAX),
            _ => Some(i64::from(number.cast_signed())),
        };
        let mut rest = frames.split_off(usize::from(how & 3).min(frames.len())).into_iter();
        let header = if cut & 1 == 0 { rest.next() } else { None };
        let payload: Vec<_> = rest.collect();
        Some(Self {
            envelope: Some(frames).filter(|frames| cut & 2 == 0 || !frames.is_empty()),
            header,
            payload: Some(payload).filter(|frames| cut & 4 == 0 || !frames.is_empty()),
            n_frames: counted(8, count),
            n_bytes: counted(16, how),
        })
    }

    /// Its frames, unless everything is null.
    fn frames(&self) -> Option<Vec<&[u8]>> {
        let is_there = self.envelope.is_some() || self.header.is_some() || self.payload.is_some();
        let frames = self.envelope.iter().flatten().chain(&self.header).chain(self.payload.iter().flatten());
        is_there.then(|| frames.map(Vec::as_slice).collect())
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = input;
    let Some(plan) = byte(&mut input) else { return };
    let settings = Settings { role: None, compat_dagbox: plan & 1 == 0 };
    let options = |mode| Options { settings, mode, payload: plan & 2 == 0 };
    let messages: Vec<_> = std::iter::from_fn(|| Message::read(&mut input)).take(MESSAGES).collect();
    let numbers =
        |of: fn(&Message) -> Option<i64>| Arc::new(messages.iter().map(of).collect::<Int64Array>()) as ArrayRef;
    let parts = Parts {
        envelope: Some(lists(messages.iter().map(|message| message.envelope.as_deref()))),
        header: Some(Arc::new(messages.iter().map(|message| message.header.as_deref()).collect::<BinaryArray>())),
        payload: Some(lists(messages.iter().map(|message| message.payload.as_deref()))),
        n_frames: (plan & 4 == 0).then(|| numbers(|message| message.n_frames)),
        n_bytes: (plan & 8 == 0).then(|| numbers(|message| message.n_bytes)),
    };

    let batch = table(&options(Mode::Permissive), &parts).expect("small").columns;
    assert_eq!(batch.num_rows(), messages.len());
    let mut kept = vec![];
    for (row, message) in messages.iter().enumerate() {
        let frames = message.frames();
        let decoded = frames.as_deref().map(|frames| decode(frames, settings));
        if !matches!(decoded, Some(Err(_))) {
            kept.push(u32::try_from(row).expect("few"));
        }
        let text = |name| value(&batch, name, row).map(|column| column.as_string::<i32>().value(row));
        let bytes = |name| value(&batch, name, row).map(|column| column.as_binary::<i32>().value(row));
        assert_eq!(text("error"), decoded.as_ref().and_then(|one| one.as_ref().err()).map(|error| error.kind.slug()));
        let layout = decoded.as_ref().and_then(|one| one.as_ref().ok());
        assert_eq!(text("type"), layout.map(|layout| layout.message_type().slug()));
        let frames = frames.as_deref().unwrap_or_default();
        assert_eq!(bytes("service"), layout.and_then(Layout::service).map(|at| frames[at]));
        let body = layout.and_then(Layout::body);
        assert_eq!(bytes("client"), body.and_then(|body| body.client).map(|at| frames[at]));
        // There is never less data than is here, whatever the counts say.
        let data = body.map(|body| &frames[body.data()]);
        let data_parts = value(&batch, "data_parts", row).map(|column| column.as_primitive::<Int32Type>().value(row));
        let data_bytes = value(&batch, "data_bytes", row).map(|column| column.as_primitive::<Int64Type>().value(row));
        if let (Some(data), Some(parts)) = (data, data_parts) {
            assert!(usize::try_from(parts).is_ok_and(|parts| parts >= data.len()));
        }
        if let (Some(data), Some(bytes)) = (data, data_bytes) {
            assert!(usize::try_from(bytes).is_ok_and(|bytes| bytes >= data.iter().map(|part| part.len()).sum()));
        }
    }

    let structs = decode_structs::<Dcp>(&options(Mode::Permissive), &parts).expect("small");
    assert_eq!(structs.columns(), batch.columns());
    for (row, message) in messages.iter().enumerate() {
        assert_eq!(structs.is_null(row), message.frames().is_none());
    }
    let good = table(&options(Mode::DropMalformed), &parts).expect("small");
    assert_eq!(good.source.values(), &kept[..]);
    assert_eq!(table(&options(Mode::FailFast), &parts).is_ok(), kept.len() == messages.len());
});

/// A byte and what comes after it.
fn byte(input: &mut &[u8]) -> Option<u8> {
    let (first, rest) = input.split_first()?;
    *input = rest;
    Some(*first)
}

fn lists<'a>(rows: impl Iterator<Item = Option<&'a [Vec<u8>]>>) -> ArrayRef {
    let mut column = ListBuilder::new(BinaryBuilder::new());
    for row in rows {
        row.into_iter().flatten().for_each(|frame| column.values().append_value(frame));
        column.append(row.is_some());
    }
    Arc::new(column.finish())
}

/// The column, where it is not null.
fn value<'a>(batch: &'a RecordBatch, name: &str, row: usize) -> Option<&'a ArrayRef> {
    batch.column_by_name(name).filter(|column| column.is_valid(row))
}

/// All rows: so little input makes one batch of them.
fn table(options: &Options, parts: &Parts) -> Result<Rows, ColumnError> {
    decode_rows::<Dcp>(options.clone(), parts.clone())?.next().expect("a batch")
}
