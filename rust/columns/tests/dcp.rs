//! DCP messages as columns, on frames put together by hand.
#![allow(clippy::unwrap_used)] // a test fails where something is not as it says

use std::{slice, sync::Arc};

use arrow_array::{
    Array, ArrayRef, BinaryArray, Int32Array, Int64Array, LargeBinaryArray, RecordBatch, StructArray,
    builder::{BinaryBuilder, BinaryViewBuilder, LargeListBuilder, ListBuilder},
    cast::AsArray,
    types::{Int32Type, Int64Type},
};
use arrow_schema::Fields;
use proptest::prelude::*;
use trunkline_columns::{ColumnError, Mode, Parts, Payload, PlanError, Rows, dcp::Options, ddl};
use trunkline_wire::{
    ErrorKind,
    dcp::{Dcp, Layout, Role, Settings, decode},
};

fn decode_rows(options: &Options, parts: &Parts) -> Result<Rows, ColumnError> {
    let mut batches = trunkline_columns::decode_rows::<Dcp>(options.clone(), parts.clone())?;
    let rows = batches.next().unwrap();
    assert!(batches.next().is_none());
    rows
}

fn decode_structs(options: &Options, parts: &Parts) -> Result<StructArray, ColumnError> {
    trunkline_columns::decode_structs::<Dcp>(options, parts)
}

fn row_fields(options: &Options) -> Fields {
    trunkline_columns::row_fields::<Dcp>(options)
}

fn struct_fields(options: &Options) -> Result<Fields, PlanError> {
    trunkline_columns::struct_fields::<Dcp>(options)
}

type Message = Vec<Vec<u8>>;

fn message(frames: &[&[u8]]) -> Message {
    frames.iter().map(|frame| frame.to_vec()).collect()
}

const H: &[u8] = b"DGBX\x01";

/// The envelope, the header and the payload of a message.
type Split<'a> = (&'a [Vec<u8>], Option<&'a Vec<u8>>, &'a [Vec<u8>]);

/// Splits as a capture does: up to and with the first empty frame, one frame, the rest.
fn split(message: &Message) -> Split<'_> {
    let envelope = message.iter().position(Vec::is_empty).map_or(0, |at| at + 1);
    let payload = message.len().min(envelope + 1);
    (&message[..envelope], message.get(envelope), &message[payload..])
}

fn list<'a>(rows: impl IntoIterator<Item = Option<&'a [Vec<u8>]>>) -> ArrayRef {
    let mut column = ListBuilder::new(BinaryBuilder::new());
    for row in rows {
        row.into_iter().flatten().for_each(|frame| column.values().append_value(frame));
        column.append(row.is_some());
    }
    Arc::new(column.finish())
}

fn parts(messages: &[Option<Message>]) -> Parts {
    let split: Vec<_> = messages.iter().map(|message| message.as_ref().map(split)).collect();
    Parts {
        envelope: Some(list(split.iter().map(|parts| parts.map(|(envelope, ..)| envelope)))),
        header: Some(Arc::new(
            split.iter().map(|parts| parts.and_then(|(_, header, _)| header)).collect::<BinaryArray>(),
        )),
        payload: Some(list(split.iter().map(|parts| parts.map(|(.., payload)| payload)))),
        ..Parts::default()
    }
}

fn parts_of(messages: &[&[&[u8]]]) -> Parts {
    parts(&messages.iter().map(|frames| Some(message(frames))).collect::<Vec<_>>())
}

fn rows(options: &Options, input: &Parts) -> RecordBatch {
    let rows = decode_rows(options, input).unwrap();
    assert_eq!(rows.columns.schema().fields(), &row_fields(options));
    assert_eq!(rows.source.len(), rows.columns.num_rows());
    rows.columns
}

fn strings<'a>(batch: &'a RecordBatch, name: &str) -> Vec<Option<&'a str>> {
    batch.column_by_name(name).unwrap().as_string::<i32>().iter().collect()
}

fn binaries<'a>(batch: &'a RecordBatch, name: &str) -> Vec<Option<&'a [u8]>> {
    batch.column_by_name(name).unwrap().as_binary::<i32>().iter().collect()
}

fn lists(batch: &RecordBatch, name: &str) -> Vec<Option<Message>> {
    let column = batch.column_by_name(name).unwrap().as_list::<i32>();
    let frames = |row: ArrayRef| row.as_binary::<i32>().iter().map(|frame| frame.unwrap().to_vec()).collect();
    column.iter().map(|row| row.map(frames)).collect()
}

fn sizes(batch: &RecordBatch) -> Vec<Option<(i32, i64)>> {
    let frames = batch.column_by_name("data_parts").unwrap().as_primitive::<Int32Type>();
    let bytes = batch.column_by_name("data_bytes").unwrap().as_primitive::<Int64Type>();
    frames.iter().zip(bytes).map(|(frames, bytes)| frames.zip(bytes)).collect()
}

const WITH_DATA: Options = Options {
    settings: Settings { role: None, compat_dagbox: false },
    mode: Mode::Permissive,
    payload: Payload::Frames,
};

/// A message of every type.
fn all_types() -> Parts {
    parts_of(&[
        &[b"", H, b"\x01", b"echo"],
        &[b"", H, b"\x02"],
        &[b"", H, b"\x03"],
        &[b"", H, b"\x04", b"echo", b"", b"", b"abc", b"", b"d"],
        &[b"", H, b"\x04", b"", b"me\xff", b"", b"m", b"n", b""],
        &[b"", H, b"\x05", b"me\xff", b"", b"m", b"", b"xy"],
        &[b"", H, b"\x06"],
    ])
}

// req: DCP-18, DCP-22, DCP-25, DCP-26
#[test]
fn every_message_gives_a_row_of_what_it_says() {
    let batch = rows(&WITH_DATA, &all_types());
    let types = ["register", "ping", "pong", "request", "request", "reply", "reconnect"];
    assert_eq!(strings(&batch, "type"), types.map(Some));
    let services: [Option<&[u8]>; 7] = [Some(b"echo"), None, None, Some(b"echo"), Some(b""), None, None];
    assert_eq!(binaries(&batch, "service"), services);
    let clients: [Option<&[u8]>; 7] = [None, None, None, None, Some(b"me\xff"), Some(b"me\xff"), None];
    assert_eq!(binaries(&batch, "client"), clients);
    let parts = |parts: &[&[u8]]| Some(message(parts));
    assert_eq!(lists(&batch, "metadata"), [None, None, None, parts(&[]), parts(&[b"m", b"n"]), parts(&[b"m"]), None]);
    assert_eq!(
        lists(&batch, "data"),
        [None, None, None, parts(&[b"abc", b"", b"d"]), parts(&[]), parts(&[b"xy"]), None]
    );
    assert_eq!(sizes(&batch), [None, None, None, Some((3, 4)), Some((0, 0)), Some((1, 2)), None]);
    assert_eq!(strings(&batch, "error"), [None; 7]);
    assert_eq!(batch.column_by_name("_corrupt_record").unwrap().null_count(), 7);
}

/// A request without data.
const REQUEST: &[&[u8]] = &[b"", H, b"\x04", b"s", b"", b""];

#[test]
fn data_that_is_left_out_is_counted() {
    let input = Parts {
        n_frames: Some(Arc::new(Int32Array::from(vec![Some(9), None, Some(3), Some(-1)]))),
        n_bytes: Some(Arc::new(Int64Array::from(vec![Some(100), Some(14), Some(i64::MAX), None]))),
        ..parts_of(&[REQUEST; 4])
    };
    let batch = rows(&Options::default(), &input);
    assert_eq!(sizes(&batch), [Some((3, 93)), Some((0, 7)), Some((0, i64::MAX - 7)), Some((0, 0))]);
    assert_eq!(strings(&batch, "error"), [None; 4]);
}

#[test]
fn what_is_no_message_is_kept_refused_or_left_out() {
    let good = message(&[b"", H, b"\x02"]);
    let bad = message(&[b"hop", b"", b"DGBX\x01", b"\x04", b"s", b"", b"", b"data"]);
    let input = parts(&[Some(good), Some(bad.clone()), None, Some(vec![]), Some(vec![b"one".to_vec()])]);
    let options = |mode| Options { mode, ..WITH_DATA };

    let batch = rows(&options(Mode::Permissive), &input);
    let errors = [None, Some("bad_delimiter"), None, Some("bad_frame_count"), Some("bad_delimiter")];
    assert_eq!(strings(&batch, "error"), errors);
    assert_eq!(strings(&batch, "type"), [Some("ping"), None, None, None, None]);
    let corrupt = [None, Some(bad), None, Some(vec![]), Some(vec![b"one".to_vec()])];
    assert_eq!(lists(&batch, "_corrupt_record"), corrupt);

    let error = decode_rows(&options(Mode::FailFast), &input).unwrap_err();
    assert_eq!(error.slug(), Some("bad_delimiter"));
    assert!(error.to_string().starts_with("row 1 of the batch: bad_delimiter in frame 0 at byte 0"), "{error}");
    assert_eq!(decode_structs(&options(Mode::FailFast), &input).unwrap_err().slug(), Some("bad_delimiter"));

    let decoded = decode_rows(&options(Mode::DropMalformed), &input).unwrap();
    assert_eq!(decoded.source.values(), &[0, 2]);
    assert_eq!(strings(&decoded.columns, "type"), [Some("ping"), None]);
    assert!(decoded.columns.column_by_name("_corrupt_record").is_none());
}

// req: DCP-11
#[test]
fn settings_reach_the_decoder() {
    let input = parts_of(&[&[b"", H, b"\x02\0\0\0"], &[b"", H, b"\x02"]]);
    assert_eq!(strings(&rows(&Options::default(), &input), "error"), [Some("bad_type"), None]);
    let settings = Settings { role: Some(Role::Client), compat_dagbox: true };
    let batch = rows(&Options { settings, ..Options::default() }, &input);
    assert_eq!(strings(&batch, "error"), [Some("unexpected_type"); 2]);
}

#[test]
fn structs_have_the_fields_of_rows_and_are_null_where_nothing_is() {
    let input = parts(&[Some(message(&[b"", H, b"\x02"])), None, Some(message(&[b"", H]))]);
    let structs = decode_structs(&WITH_DATA, &input).unwrap();
    assert_eq!(structs.fields(), &struct_fields(&WITH_DATA).unwrap());
    assert_eq!([0, 1, 2].map(|row| structs.is_null(row)), [false, true, false]);
    assert_eq!(unwrapped(&structs), rows(&WITH_DATA, &input));
    let options = Options { mode: Mode::DropMalformed, ..WITH_DATA };
    assert_eq!(struct_fields(&options), Err(PlanError::DropInFunction));
    assert!(matches!(decode_structs(&options, &input), Err(ColumnError::Input(_))));
}

fn unwrapped(structs: &StructArray) -> RecordBatch {
    RecordBatch::from(StructArray::new(structs.fields().clone(), structs.columns().to_vec(), None))
}

#[test]
fn columns_of_any_width_and_offset_are_read() {
    let input = all_types();
    let expected = rows(&WITH_DATA, &input).slice(2, 4);
    let [envelope, header, payload_lists] =
        [input.envelope, input.header, input.payload].map(|column| column.unwrap().slice(2, 4));
    let header: ArrayRef = Arc::new(header.as_binary::<i32>().iter().collect::<LargeBinaryArray>());
    let mut payload = LargeListBuilder::new(BinaryViewBuilder::new());
    for row in payload_lists.as_list::<i32>().iter().flatten() {
        row.as_binary::<i32>().iter().flatten().for_each(|frame| payload.values().append_value(frame));
        payload.append(true);
    }
    let payload: ArrayRef = Arc::new(payload.finish());
    let sliced = Parts { envelope: Some(envelope), header: Some(header), payload: Some(payload), ..Parts::default() };
    assert_eq!(rows(&WITH_DATA, &sliced), expected);
}

#[test]
fn columns_that_cannot_be_are_refused() {
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let good = parts_of(&[&[b"", H, b"\x02"]]);
    for (input, reason) in [
        (Parts { header: Some(Arc::clone(&numbers)), ..good.clone() }, "header is Int32"),
        (Parts { envelope: good.header.clone(), ..good.clone() }, "envelope is Binary"),
        (Parts { payload: Some(Arc::clone(&numbers)), ..good.clone() }, "payload is Int32"),
        (Parts { payload: None, ..good.clone() }, "no column payload"),
        (Parts { n_frames: good.header.clone(), ..good.clone() }, "n_frames is Binary"),
        (
            Parts { envelope: good.envelope.as_ref().map(|column| column.slice(0, 0)), ..good.clone() },
            "envelope has 0 rows",
        ),
    ] {
        let error = decode_rows(&Options::default(), &input).unwrap_err();
        assert!(error.to_string().starts_with(reason), "{error}");
    }
}

#[test]
fn the_schema_is_written_in_the_words_of_spark() {
    assert_eq!(
        ddl(&row_fields(&WITH_DATA)),
        "`type` STRING, `service` BINARY, `client` BINARY, `metadata` ARRAY<BINARY>, `data_parts` INT, \
         `data_bytes` BIGINT, `data` ARRAY<BINARY>, `error` STRING, `_corrupt_record` ARRAY<BINARY>"
    );
    assert_eq!(rows(&WITH_DATA, &parts(&[])).num_rows(), 0);
}

/// Frames that often are a message, or nearly.
fn frames() -> impl Strategy<Value = Message> {
    let word = prop_oneof![
        4 => Just(vec![]),
        1 => Just(H.to_vec()),
        4 => (0_u8..8).prop_map(|number| vec![number]),
        1 => (0_u8..8).prop_map(|number| vec![number, 0, 0, 0]),
        3 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    let any_words = prop::collection::vec(word, 0..10);
    (any::<[bool; 4]>(), any_words).prop_map(|([starts, one, two, three], mut words)| {
        if starts {
            words.splice(0..0, [vec![], H.to_vec(), vec![if one { 4 } else { 5 }]]);
        }
        if two {
            words.insert(words.len().min(4), b"client".to_vec());
        }
        if three {
            words.extend([vec![], vec![], b"data".to_vec()]);
        }
        words
    })
}

proptest! {
    #[test]
    fn a_batch_says_what_each_message_alone_says(
        messages in prop::collection::vec(prop::option::weighted(0.9, frames()), 0..12),
        compat_dagbox in any::<bool>(),
    ) {
        let settings = Settings { role: None, compat_dagbox };
        let options = |mode| Options { settings, mode, payload: Payload::Frames };
        let input = parts(&messages);
        let batch = rows(&options(Mode::Permissive), &input);
        prop_assert_eq!(batch.num_rows(), messages.len());
        for (row, message) in messages.iter().enumerate() {
            let alone = rows(&options(Mode::Permissive), &parts(slice::from_ref(message)));
            prop_assert_eq!(&alone, &batch.slice(row, 1));
            check(&alone, message.as_ref(), settings)?;
        }
        prop_assert_eq!(&unwrapped(&decode_structs(&options(Mode::Permissive), &input).unwrap()), &batch);

        let is_bad = |message: &Option<Message>| message.as_ref().is_some_and(|frames| decode(frames, settings).is_err());
        let kept = decode_rows(&options(Mode::DropMalformed), &input).unwrap();
        let good: Vec<_> = (0_u32..).zip(&messages).filter(|(_, each)| !is_bad(each)).map(|(row, _)| row).collect();
        prop_assert_eq!(kept.source.values(), &good[..]);
        prop_assert_eq!(decode_rows(&options(Mode::FailFast), &input).is_err(), messages.iter().any(is_bad));
    }
}

/// Compares a row with the codec.
fn check(row: &RecordBatch, message: Option<&Message>, settings: Settings) -> Result<(), TestCaseError> {
    let decoded = message.map(|frames| decode(frames, settings));
    let good = decoded.as_ref().and_then(|decoded| decoded.as_ref().ok());
    let body = good.and_then(Layout::body);
    let frame = |at: usize| message.map(|frames| &frames[at][..]);
    prop_assert_eq!(strings(row, "type")[0], good.map(|layout| layout.message_type().slug()));
    prop_assert_eq!(binaries(row, "service")[0], good.and_then(Layout::service).and_then(frame));
    prop_assert_eq!(binaries(row, "client")[0], body.and_then(|body| body.client).and_then(frame));
    let metadata = body.zip(message).map(|(body, frames)| frames[body.metadata.clone()].to_vec());
    prop_assert_eq!(&lists(row, "metadata")[0], &metadata);
    let data = body.zip(message).map(|(body, frames)| frames[body.data()].to_vec());
    let bytes = |data: &Message| data.iter().map(Vec::len).sum::<usize>();
    let counts = data.as_ref().map(|data| (data.len().try_into().unwrap(), bytes(data).try_into().unwrap()));
    prop_assert_eq!(sizes(row)[0], counts);
    prop_assert_eq!(&lists(row, "data")[0], &data);
    let error = decoded.as_ref().and_then(|decoded| decoded.as_ref().err()).map(|error| error.kind);
    prop_assert_eq!(strings(row, "error")[0], error.map(ErrorKind::slug));
    prop_assert_eq!(&lists(row, "_corrupt_record")[0], &message.filter(|_| error.is_some()).cloned());
    Ok(())
}
