//! Messages as columns of frames, cut anywhere and with any counts beside them, and what all decoding of them has in common.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryArray, Int64Array, RecordBatch,
    builder::{BinaryBuilder, ListBuilder},
};
use trunkline_columns::{ColumnError, Mode, Parts, Rows, Table, decode_rows, decode_structs, encode_structs};

use crate::Input;

/// More messages in a batch say nothing new.
pub const MESSAGES: usize = 16;

/// A message as the columns have it.
#[derive(Default)]
pub struct Row {
    envelope: Option<Vec<Vec<u8>>>,
    header: Option<Vec<u8>>,
    payload: Option<Vec<Vec<u8>>>,
    n_frames: Option<i64>,
    n_bytes: Option<i64>,
}

impl Row {
    /// The next message. Its first three bytes say how it begins, where it is cut and what is null, and how many frames it
    /// has then.
    pub fn read(
        input: &mut Input<'_>,
        begin: impl FnOnce(u8) -> Vec<Vec<u8>>,
        frame: impl Fn(&mut Input<'_>) -> Option<Vec<u8>>,
    ) -> Option<Self> {
        let (how, cut, count) = (input.byte()?, input.byte()?, input.byte()?);
        // Mostly it begins as a message does: random bytes seldom would.
        let mut frames = if how & 0x80 == 0 { begin(how) } else { vec![] };
        for _ in 0..count % 12 {
            frames.push(frame(input)?);
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

    /// How many frames it is said to have.
    pub fn n_frames(&self) -> Option<i64> {
        self.n_frames
    }

    /// Its frames, unless everything is null.
    pub fn frames(&self) -> Option<Vec<&[u8]>> {
        let is_there = self.envelope.is_some() || self.header.is_some() || self.payload.is_some();
        let frames = self.envelope.iter().flatten().chain(&self.header).chain(self.payload.iter().flatten());
        is_there.then(|| frames.map(Vec::as_slice).collect())
    }
}

/// A frame of so many bytes modulo 16, or of what is left.
pub fn frame(input: &mut Input<'_>, length: u8) -> Vec<u8> {
    let (frame, rest) = input.0.split_at(usize::from(length % 16).min(input.0.len()));
    input.0 = rest;
    frame.to_vec()
}

/// The columns of messages, with those counts that the plan says.
pub fn parts(messages: &[Row], plan: u8) -> Parts {
    let numbers = |of: fn(&Row) -> Option<i64>| Arc::new(messages.iter().map(of).collect::<Int64Array>()) as ArrayRef;
    Parts {
        envelope: Some(lists(messages.iter().map(|message| message.envelope.as_deref()))),
        header: Some(Arc::new(messages.iter().map(|message| message.header.as_deref()).collect::<BinaryArray>())),
        payload: Some(lists(messages.iter().map(|message| message.payload.as_deref()))),
        n_frames: (plan & 4 == 0).then(|| numbers(|message| message.n_frames)),
        n_bytes: (plan & 8 == 0).then(|| numbers(|message| message.n_bytes)),
        ..Parts::default()
    }
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
pub fn value<'a>(batch: &'a RecordBatch, name: &str, row: usize) -> Option<&'a ArrayRef> {
    batch.column_by_name(name).filter(|column| column.is_valid(row))
}

/// All rows: so little input makes one batch of them.
pub fn table<T: Table>(options: T::Options, parts: &Parts) -> Result<Rows, ColumnError> {
    decode_rows::<T>(options, parts.clone())?.next().expect("a batch")
}

/// Structs say what rows do, and the other modes keep what there is nothing wrong with: the messages of these places.
pub fn modes_agree<T: Table>(
    options: impl Fn(Mode) -> T::Options,
    parts: &Parts,
    messages: &[Row],
    batch: &RecordBatch,
    kept: &[u32],
) {
    let structs = decode_structs::<T>(&options(Mode::Permissive), parts).expect("small");
    // Whatever was read can be written, or it is said what it lacks.
    let _ = encode_structs::<T>(&options(Mode::Permissive), &structs);
    assert_eq!(structs.columns(), batch.columns());
    for (row, message) in messages.iter().enumerate() {
        assert_eq!(structs.is_null(row), message.frames().is_none());
    }
    let good = table::<T>(options(Mode::DropMalformed), parts).expect("small");
    assert_eq!(good.source.values(), kept);
    assert_eq!(table::<T>(options(Mode::FailFast), parts).is_ok(), kept.len() == messages.len());
}
