//! Any columns of frames, cut anywhere and with any counts beside them: what is decoded agrees with the codec. The first
//! three bytes of a message say how it begins, where it is cut and what is null, and how many frames it has; each frame
//! begins with its length, or with which of a few it is.
#![no_main]

use std::{collections::HashSet, sync::Arc};

use arrow_array::{
    Array, ArrayRef, BinaryArray, Int64Array, RecordBatch,
    builder::{BinaryBuilder, ListBuilder},
    cast::AsArray,
    types::{Int32Type, Int64Type},
};
use libfuzzer_sys::fuzz_target;
use trunkline_columns::{ColumnError, Mode, Parts, Rows, decode_rows, decode_structs, mc0::Options};
use trunkline_wire::mc0::{Mc0, Settings, Verb, decode};

/// More messages in a batch say nothing new.
const MESSAGES: usize = 16;

/// What is seldom hit upon.
const KEYS: [&[u8]; 8] = [b"ID", b"TOPIC", b"VERSION", b"TTL", b"MESSAGE", b"X-a", b"X-\xff", b"0.3"];

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
            let verb = Verb::ALL[usize::from(how >> 2) % Verb::ALL.len()];
            frames.extend((how & 0x40 == 0).then(Vec::new));
            frames.push(verb.name().into());
        }
        for _ in 0..count % 12 {
            let length = byte(input)?;
            if let Some(key) = KEYS.get(usize::from(length >> 4)) {
                frames.push(key.to_vec());
                continue;
            }
            let length = usize::from(length % 16).min(input.len());
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
    let settings = Settings::default();
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
        let text = |name| value(&batch, name, row).map(|column| column.as_string::<i32>().value(row).to_owned());
        let error = decoded.as_ref().and_then(|one| one.as_ref().err()).map(|error| error.kind.slug());
        assert_eq!(text("error").as_deref(), error);
        let layout = decoded.as_ref().and_then(|one| one.as_ref().ok());
        assert_eq!(text("verb").as_deref(), layout.map(|layout| layout.verb.name()));
        let frames = frames.as_deref().unwrap_or_default();
        let lossy = |at: usize| String::from_utf8_lossy(frames[at]).into_owned();
        assert_eq!(text("id"), layout.and_then(|layout| layout.id).map(lossy));
        let topics = layout.filter(|layout| matches!(layout.verb, Verb::Sub | Verb::Unsub));
        let found = value(&batch, "topics", row).map(|column| column.as_list::<i32>().value(row));
        assert_eq!(found.is_some(), topics.is_some());
        for (layout, found) in topics.into_iter().zip(&found) {
            let found: Vec<_> = found.as_string::<i32>().iter().flatten().collect();
            assert_eq!(found, (layout.body..frames.len()).map(lossy).collect::<Vec<_>>());
        }
        // A name is there once, whatever it was made of.
        let headers = value(&batch, "headers", row).map(|column| column.as_map().value(row));
        assert_eq!(headers.is_some(), layout.is_some());
        for (layout, headers) in layout.into_iter().zip(&headers) {
            let names: Vec<_> = headers.column(0).as_string::<i32>().iter().flatten().map(str::to_owned).collect();
            let own = layout.keys().filter(|key| frames[*key].starts_with(b"X-")).map(lossy);
            assert_eq!(names.iter().cloned().collect::<HashSet<_>>(), own.collect());
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        }
        let puts = layout.filter(|layout| matches!(layout.verb, Verb::Put | Verb::Message));
        assert_eq!(text("topic"), puts.and_then(|layout| layout.topic).map(lossy));
        // There is never less of a body than is here, whatever the counts say.
        let body = puts.map(|layout| &frames[layout.positional()]);
        let body_frames = value(&batch, "body_frames", row).map(|column| column.as_primitive::<Int32Type>().value(row));
        let body_bytes = value(&batch, "body_bytes", row).map(|column| column.as_primitive::<Int64Type>().value(row));
        if let (Some(body), Some(frames)) = (body, body_frames) {
            assert!(usize::try_from(frames).is_ok_and(|frames| frames >= body.len()));
        }
        if let (Some(body), Some(bytes)) = (body, body_bytes) {
            assert!(usize::try_from(bytes).is_ok_and(|bytes| bytes >= body.iter().map(|frame| frame.len()).sum()));
        }
    }

    let structs = decode_structs::<Mc0>(&options(Mode::Permissive), &parts).expect("small");
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
    decode_rows::<Mc0>(options.clone(), parts.clone())?.next().expect("a batch")
}
