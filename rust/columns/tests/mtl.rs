//! MTL messages as columns, on frames put together by hand.
#![allow(clippy::unwrap_used)] // a test fails where something is not as it says

use std::{slice, sync::Arc};

use arrow_array::{
    Array, ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray, StructArray,
    builder::{BinaryBuilder, ListBuilder},
    cast::AsArray,
    types::{Decimal128Type, Int64Type},
};
use bytes::Bytes;
use parquet_variant::Variant;
use proptest::prelude::*;
use trunkline_columns::{Mode, Parts, Payload, PlanError, Rows, Tags, ddl, mtl::Options, row_fields, struct_fields};
use trunkline_wire::{
    ErrorKind, Protocol,
    mtl::{Mtl, Spoken, data, table::Writer},
};

type Message = Vec<Vec<u8>>;

fn list<'a>(rows: impl IntoIterator<Item = Option<&'a [Vec<u8>]>>) -> ArrayRef {
    let mut column = ListBuilder::new(BinaryBuilder::new());
    for row in rows {
        row.into_iter().flatten().for_each(|frame| column.values().append_value(frame));
        column.append(row.is_some());
    }
    Arc::new(column.finish())
}

/// The columns of a capture without the bodies of contents.
fn parts(messages: &[Option<Message>]) -> Parts {
    let split: Vec<_> =
        messages.iter().map(|message| message.as_ref().map(|frames| (frames, Mtl::split(frames)))).collect();
    let split = || split.iter().map(Option::as_ref);
    let bytes = |frames: &Message| frames.iter().map(Vec::len).sum::<usize>().try_into().unwrap();
    let header = split().map(|row| row.and_then(|(frames, split)| split.header.map(|at| &frames[at])));
    let count =
        |number: fn(&Message) -> i64| split().map(|row| row.map(|(frames, _)| number(frames))).collect::<Int64Array>();
    Parts {
        envelope: Some(list(split().map(|row| row.map(|(frames, split)| &frames[split.envelope.clone()])))),
        header: Some(Arc::new(header.collect::<BinaryArray>())),
        payload: Some(list(split().map(|row| row.map(|(frames, split)| &frames[split.payload.start..split.body])))),
        n_frames: Some(Arc::new(count(|frames| frames.len().try_into().unwrap()))),
        n_bytes: Some(Arc::new(split().map(|row| row.map(|(frames, _)| bytes(frames))).collect::<Int64Array>())),
        topic: Some(Arc::new(split().map(|row| row.map(|_| "lanes")).collect::<StringArray>())),
        protocol: None,
    }
}

fn decode(options: &Options, parts: &Parts) -> Rows {
    let mut batches = trunkline_columns::decode_rows::<Mtl>(options.clone(), parts.clone()).unwrap();
    let rows = batches.next().unwrap().unwrap();
    assert!(batches.next().is_none());
    assert_eq!(rows.columns.schema().fields(), &row_fields::<Mtl>(options));
    rows
}

fn rows(options: &Options, messages: &[Option<Message>]) -> RecordBatch {
    decode(options, &parts(messages)).columns
}

fn message(frames: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Message {
    frames.into_iter().map(|frame| frame.as_ref().to_vec()).collect()
}

fn strings<'a>(batch: &'a RecordBatch, name: &str) -> Vec<Option<&'a str>> {
    batch.column_by_name(name).unwrap().as_string::<i32>().iter().collect()
}

fn variant(batch: &RecordBatch, name: &str, check: impl FnOnce(Variant<'_, '_>)) {
    let column = batch.column_by_name(name).unwrap().as_struct();
    let [value, metadata] = ["value", "metadata"].map(|part| column.column_by_name(part).unwrap().as_binary::<i32>());
    check(Variant::try_new(metadata.value(0), value.value(0)).unwrap());
}

// req: MTL-60
#[test]
#[allow(clippy::wildcard_enum_match_arm)] // a variant may be of many types
fn a_decimal_takes_as_few_bytes_as_have_its_places() {
    let decimals = [(0, 5), (9, -999_999_999), (0, i32::MIN), (10, 1), (18, 1), (19, -1), (38, i32::MAX), (39, 5)];
    let mut table = Writer::new();
    for (at, (places, digits)) in decimals.iter().enumerate() {
        table.name(&at.to_string()).unwrap();
        table.decimal(*places, *digits);
    }
    let frames = data::content(1, "", &table.finish().unwrap(), Bytes::new());
    variant(&rows(&Options::default(), &[Some(message(&frames))]), "properties", |found| {
        let found = found.as_object().unwrap().clone();
        for (at, (places, digits)) in decimals.iter().enumerate() {
            let value = match found.get(&at.to_string()).unwrap() {
                Variant::Decimal4(value) => {
                    assert!(*places <= 9 && digits.unsigned_abs() < 1_000_000_000);
                    (value.scale(), value.integer().into())
                }
                Variant::Decimal8(value) => (value.scale(), value.integer().into()),
                Variant::Decimal16(value) => (value.scale(), value.integer()),
                Variant::Double(value) => {
                    assert_eq!((*places, value), (39, 5e-39));
                    continue;
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(value, (*places, i128::from(*digits)));
        }
    });
}

#[test]
fn json_says_what_a_decimal_and_a_time_are() {
    let mut table = Writer::new();
    let decimals =
        [(0, 5), (2, 1250), (2, -5), (3, 1000), (1, 0), (4, i32::MIN), (40, 5), (38, 1), (2, -100)].into_iter();
    for (at, (places, digits)) in decimals.enumerate() {
        table.name(&at.to_string()).unwrap();
        table.decimal(places, digits);
    }
    for (name, seconds) in [("t", 0), ("u", 253_402_300_799), ("v", 253_402_300_800), ("w", u64::MAX)] {
        table.name(name).unwrap();
        table.time(seconds);
    }
    let frames = data::content(1, "", &table.finish().unwrap(), Bytes::new());
    let options =
        Options { properties: Tags::new(vec![], Some("json".parse().unwrap())).unwrap(), ..Options::default() };
    let batch = rows(&options, &[Some(message(&frames))]);
    assert_eq!(
        strings(&batch, "properties"),
        [Some(concat!(
            r#"{"0":5,"1":12.5,"2":-0.05,"3":1,"4":0,"5":-214748.3648,"6":5e-40,"7":0."#,
            "00000000000000000000000000000000000001",
            r#","8":-1,"t":"1970-01-01 00:00:00+00:00","u":"9999-12-31 23:59:59+00:00","v":253402300800,"#,
            r#""w":18446744073709551615}"#
        ))]
    );
}

#[test]
fn the_schema_is_written_in_the_words_of_spark() {
    let typed = vec![("run".to_owned(), "bigint".parse().unwrap())];
    let options = Options {
        properties: Tags::new(typed, Some("variant".parse().unwrap())).unwrap(),
        json: Tags::NONE,
        payload: Payload::Frames,
        ..Options::default()
    };
    assert_eq!(
        ddl(&row_fields::<Mtl>(&options)),
        "`flow` STRING, `name` STRING, `status` INT, `type` STRING, `sequence` DECIMAL(20,0), `resource` STRING, \
         `lease_hash` STRING, `multiple` BOOLEAN, `recycle` BOOLEAN, `property_run` BIGINT, `properties` VARIANT, \
         `body_bytes` BIGINT, `body` BINARY, `error` STRING, `_corrupt_record` ARRAY<BINARY>"
    );
    assert_eq!(rows(&options, &[]).num_rows(), 0);
    let dropping = Options { mode: Mode::DropMalformed, ..options };
    assert_eq!(struct_fields::<Mtl>(&dropping), Err(PlanError::DropInFunction));
}

/// Frames that often are a message, or nearly.
fn frames() -> impl Strategy<Value = Message> {
    let body = prop::collection::vec(any::<u8>(), 0..6);
    let sequence = prop_oneof![Just(1), Just(u64::MAX), any::<u64>()];
    let data = (sequence, any::<bool>(), prop::sample::select(vec!["", "jobs"]), body.clone(), 0..8_u8).prop_map(
        |(sequence, flag, name, body, kind)| {
            let frames = match kind {
                0 => data::lease(sequence, name),
                1 => data::response(sequence, 404),
                2 => data::summon(sequence, name),
                3 => data::confirm(sequence, flag),
                4 => data::reject(sequence, flag, !flag),
                5 => data::ping(),
                _ => data::content(sequence, name, b"\0\0\0\x04\x01at\x01", body.into()),
            };
            message(&frames)
        },
    );
    let name = prop::sample::select(vec!["Queue.Info", "202", "20", "Queue", ""]);
    let json = prop::sample::select(vec!["{}", r#"{"lease": "abc", "n": [1, {}]}"#, "[]", "{"]);
    let control = (name, json, 0..3_usize).prop_map(|(name, json, envelope)| {
        let before = [&b""[..], b"id"].into_iter().take(envelope).rev().map(<[u8]>::to_vec);
        before.chain(message([name, json])).collect::<Message>()
    });
    prop_oneof![3 => data, 2 => control, 1 => prop::collection::vec(body, 0..4)]
}

fn unwrapped(structs: &StructArray) -> RecordBatch {
    RecordBatch::from(StructArray::new(structs.fields().clone(), structs.columns().to_vec(), None))
}

proptest! {
    // req: MTL-31, MTL-32
    #[test]
    fn a_batch_says_what_each_message_alone_says(
        messages in prop::collection::vec(prop::option::weighted(0.9, frames()), 0..12),
    ) {
        let options = |mode| Options { mode, ..Options::default() };
        let input = parts(&messages);
        let batch = rows(&options(Mode::Permissive), &messages);
        prop_assert_eq!(batch.num_rows(), messages.len());
        for (row, message) in messages.iter().enumerate() {
            let alone = rows(&options(Mode::Permissive), slice::from_ref(message));
            prop_assert_eq!(&alone, &batch.slice(row, 1));
            check(&alone, message.as_ref())?;
        }
        let structs = trunkline_columns::decode_structs::<Mtl>(&options(Mode::Permissive), &input).unwrap();
        prop_assert_eq!(&unwrapped(&structs), &batch);

        let is_bad = |message: &Option<Message>| {
            message.as_ref().is_some_and(|frames| !frames.is_empty() && Mtl::decode(frames, &()).is_err())
        };
        let kept = decode(&options(Mode::DropMalformed), &input);
        // An empty message still has an envelope, without frames.
        let is_kept = |message: &Option<Message>| !is_bad(message) && message.as_ref().is_none_or(|frames| !frames.is_empty());
        let good: Vec<_> = (0_u32..).zip(&messages).filter(|(_, each)| is_kept(each)).map(|(row, _)| row).collect();
        prop_assert_eq!(kept.source.values(), &good[..]);
    }
}

/// Compares a row with the codec, which sees the whole message.
fn check(row: &RecordBatch, message: Option<&Message>) -> Result<(), TestCaseError> {
    let decoded = message.map(|frames| Mtl::decode(frames, &()));
    let error = decoded.as_ref().and_then(|decoded| decoded.as_ref().err()).map(|error| error.kind);
    prop_assert_eq!(strings(row, "error")[0], error.map(ErrorKind::slug));
    let Some(Ok(said)) = decoded else { return Ok(()) };
    let is_data = matches!(said, Spoken::Data(_));
    prop_assert_eq!(strings(row, "flow")[0], Some(if is_data { "data" } else { "control" }));
    prop_assert_eq!(row.column_by_name("json").unwrap().is_valid(0), !is_data);
    let Spoken::Data(layout) = said else { return Ok(()) };
    let is_content = layout.kind == data::Kind::Content;
    prop_assert_eq!(strings(row, "type")[0], Some(layout.kind.name()));
    let sequence = row.column_by_name("sequence").unwrap().as_primitive::<Decimal128Type>();
    prop_assert_eq!(sequence.iter().next().unwrap().unwrap_or(0), i128::from(layout.sequence));
    let bytes = row.column_by_name("body_bytes").unwrap().as_primitive::<Int64Type>().iter().next().unwrap();
    let body = message.filter(|_| is_content).map(|frames| i64::try_from(frames[1].len()).unwrap());
    prop_assert_eq!(bytes, body);
    if is_content {
        let name = std::str::from_utf8(&message.unwrap()[0][layout.name]).unwrap();
        prop_assert_eq!(strings(row, "resource")[0], Some(if name.is_empty() { "lanes" } else { name }));
    }
    Ok(())
}
