//! Any text as a layout, and any bytes as payloads of it: rows are what each is alone, the modes agree, and what is
//! not asked for changes nothing.
#![no_main]

use std::sync::Arc;

use arrow_array::{
    Array, BinaryArray, RecordBatch,
    builder::{BinaryBuilder, ListBuilder},
    cast::AsArray,
};
use libfuzzer_sys::fuzz_target;
use trunkline_columns::{ColumnError, Layout, Mode, Parts, Payload, Tags, Types, cdtp::Options, decode_rows};
use trunkline_wire::cdtp::Cdtp;

/// A header of S whose tag `dtype` is `<u2`.
const HEADER: &[u8] = b"\xa5CDTP\x01\xa1d\xd7\xff\x00\x00\x00\x14\x00\x00\x00\x01\x81\xa5dtype\xa3<u2";

/// Layouts that text hardly becomes.
const KNOWN: [&str; 6] = [
    "n u8, a u16be[n], s (k i8, t u8[k], e (x f16, y bool)[2])[]",
    "n u8; m u8, s (z u8, b bytes[n])[m], name utf8[3], tail utf8; …",
    "msgpack: a bigint, b string, c json, * variant",
    "json: a double, b boolean, * json",
    "dtype",
    r#"avro: {"type": "record", "name": "r", "fields": [
        {"name": "a", "type": "long"}, {"name": "b", "type": ["null", "string"]},
        {"name": "c", "type": {"type": "array", "items": {"type": "record", "name": "s", "fields": [
            {"name": "x", "type": "float"}, {"name": "y", "type": {"type": "map", "values": "int"}}]}}},
        {"name": "d", "type": ["s", "null"]}, {"name": "e", "type": {"type": "enum", "name": "f", "symbols": ["A", "B"]}}]}"#,
];

/// Rows whose columns take more without a value are not decoded here.
const WIDE: usize = 1 << 16;

fuzz_target!(|input: &[u8]| {
    let Some((&plan, input)) = input.split_first() else { return };
    let mut parts = input.split(|byte| *byte == b'\n');
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let text = KNOWN.get(usize::from(plan)).map_or(text.as_str(), |known| *known);
    let Ok(layout) = Layout::parse(text) else { return };
    assert_eq!(Layout::parse(&layout.to_string()).expect("its own text"), layout);
    if layout.size().is_some_and(|size| size > WIDE) || text.contains("0000") {
        return;
    }
    let messages: Vec<Vec<&[u8]>> = parts.map(|message| message.split(|byte| *byte == b'\r').collect()).collect();
    let all = rows(&layout, Mode::Permissive, &messages).expect("small");
    assert_eq!(all.num_rows(), messages.len());
    let spark = rows(&layout.clone().with_types(Types::Spark), Mode::Permissive, &messages).expect("small");
    assert_eq!(spark.num_columns(), all.num_columns());
    let errors = all.column_by_name("error").expect("a column").as_string::<i32>();
    let dropped = rows(&layout, Mode::DropMalformed, &messages).expect("small");
    let malformed =
        errors.iter().flatten().filter(|error| error.starts_with("payload_") || *error == "missing_payload");
    assert_eq!(dropped.num_rows() + malformed.count(), messages.len());
    for (row, message) in messages.iter().enumerate() {
        let alone = rows(&layout, Mode::Permissive, std::slice::from_ref(message)).expect("small");
        for (one, whole) in alone.columns().iter().zip(all.columns()) {
            assert_eq!(one.is_null(0), whole.is_null(row));
            assert_eq!(one.to_data(), whole.slice(row, 1).to_data());
        }
    }
    for column in layout.columns().iter() {
        let only = layout.only(|name| name == column.name());
        let batch = rows(&only, Mode::Permissive, &messages).expect("small");
        let [one, whole] = [&batch, &all].map(|batch| batch.column_by_name(column.name()).expect("a column").to_data());
        assert_eq!(one, whole);
    }
});

fn rows(layout: &Layout, mode: Mode, messages: &[Vec<&[u8]>]) -> Result<RecordBatch, ColumnError> {
    let mut payload = ListBuilder::new(BinaryBuilder::new());
    for frames in messages {
        frames.iter().for_each(|frame| payload.values().append_value(frame));
        payload.append(true);
    }
    let header: BinaryArray = messages.iter().map(|_| Some(HEADER)).collect();
    let parts = Parts { header: Some(Arc::new(header)), payload: Some(Arc::new(payload.finish())), ..Parts::default() };
    let options = Options { tags: Tags::NONE, mode, payload: Payload::Layout(layout.clone()), ..Options::default() };
    Ok(decode_rows::<Cdtp>(options, parts)?.next().expect("a batch")?.columns)
}
