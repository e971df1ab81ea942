//! Payloads as columns: layouts, and the bytes they describe.
#![allow(clippy::unwrap_used, clippy::float_cmp)] // a test fails where something is not as it says; what is copied is equal

use std::{fmt::Write as _, sync::Arc};

use arrow_array::{
    Array, ArrayRef, BinaryArray, RecordBatch,
    builder::{BinaryBuilder, ListBuilder},
    cast::AsArray,
    types::{
        Decimal128Type, Float16Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
        UInt32Type, UInt64Type,
    },
};
use arrow_schema::DataType;
use proptest::prelude::*;
use trunkline_columns::{
    ColumnError, Fault, FixedType, Layout, Mode, Parts, Payload, PayloadKind, RestType, Rows, Tags, Types, Value,
    cdtp::Options, ddl,
};
use trunkline_wire::cdtp::Cdtp;

/// A header of S, of the sender `d`, without tags.
const HEADER: &[u8] = b"\xa5CDTP\x01\xa1d\xd7\xff\x00\x00\x00\x14\x00\x00\x00\x01";

fn layout(text: &str) -> Layout {
    Layout::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn options(layout: Layout, mode: Mode) -> Options {
    Options { tags: Tags::NONE, mode, payload: Payload::Layout(layout), ..Options::default() }
}

/// Messages of these frames, with tags as hexadecimal MessagePack.
fn tagged(messages: &[&[&[u8]]], tags: &[u8]) -> Parts {
    let header = [HEADER, tags].concat();
    let headers: BinaryArray = messages.iter().map(|_| Some(header.as_slice())).collect();
    let mut payload = ListBuilder::new(BinaryBuilder::new());
    for frames in messages {
        frames.iter().for_each(|frame| payload.values().append_value(frame));
        payload.append(true);
    }
    Parts { header: Some(Arc::new(headers)), payload: Some(Arc::new(payload.finish())), ..Parts::default() }
}

fn parts(messages: &[&[&[u8]]]) -> Parts {
    tagged(messages, b"\x80")
}

fn decode(layout: Layout, mode: Mode, parts: Parts) -> Result<Rows, ColumnError> {
    let options = options(layout, mode);
    let rows = trunkline_columns::decode_rows::<Cdtp>(options.clone(), parts)?.next().unwrap()?;
    assert_eq!(rows.columns.schema().fields(), &trunkline_columns::row_fields::<Cdtp>(&options));
    Ok(rows)
}

/// The rows of messages with one frame each.
fn rows(text: &str, frames: &[&[u8]]) -> RecordBatch {
    let messages: Vec<[&[u8]; 1]> = frames.iter().map(|frame| [*frame]).collect();
    let messages: Vec<&[&[u8]]> = messages.iter().map(<[_; 1]>::as_slice).collect();
    decode(layout(text), Mode::Permissive, parts(&messages)).unwrap().columns
}

fn column(batch: &RecordBatch, name: &str) -> ArrayRef {
    batch.column_by_name(name).unwrap_or_else(|| panic!("{:?}", batch.schema())).clone()
}

fn errors(batch: &RecordBatch) -> Vec<Option<String>> {
    column(batch, "error").as_string::<i32>().iter().map(|error| error.map(str::to_owned)).collect()
}

/// What is wrong with one frame.
fn fault(text: &str, frames: &[&[u8]]) -> (PayloadKind, usize, usize) {
    let kept = decode(layout(text), Mode::Permissive, parts(&[frames])).unwrap().columns;
    let error = decode(layout(text), Mode::FailFast, parts(&[frames])).unwrap_err();
    let ColumnError::Payload { row: 0, fault: Fault { kind, frame, offset } } = error else { panic!("{error}") };
    assert_eq!(errors(&kept), [Some(kind.slug().to_owned())]);
    for column in kept.columns().iter().zip(kept.schema().fields()).filter_map(|(column, field)| {
        (field.name().starts_with("payload_") && !["payload_frames", "payload_bytes"].contains(&field.name().as_str()))
            .then_some(column)
    }) {
        assert!(column.is_null(0), "{text}");
    }
    assert_eq!(decode(layout(text), Mode::DropMalformed, parts(&[frames])).unwrap().columns.num_rows(), 0);
    (kind, frame, offset)
}

#[test]
fn a_layout_is_written_in_one_way() {
    for (text, written) in [
        ("adc u16[]", "adc u16[]"),
        (" t  u64 ,\n adc\tu16be [ 256 ]", "t u64, adc u16be[256]"),
        ("n u8, adc i32[n]", "n u8, adc i32[n]"),
        ("hits (channel u16, charge f32)[]", "hits (channel u16, charge f32)[]"),
        ("a u8; b f64[]; ...", "a u8; b f64[]; …"),
        ("pad[4], `a b` bool, x pad, `pad` u8", "pad[4], `a b` bool, pad"),
        ("name utf8[8], rest bytes", "name utf8[8], rest bytes"),
        ("n u8, name utf8[n], rest bytes[]", "n u8, name utf8[n], rest bytes"),
        ("keys bytes[4][2]", "keys bytes[4][2]"),
        ("msgpack: run bigint, `my gain` double, * variant", "msgpack: run bigint, `my gain` double, * variant"),
        ("msgpack: variant", "msgpack: variant"),
        ("json : a int , * json", "json: a bigint, * json"),
        ("utf8", "utf8"),
        ("dtype", "dtype"),
        ("utf8 u8", "utf8 u8"),
        (
            r#"avro: {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}"#,
            r#"avro: {"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}"#,
        ),
    ] {
        if text.contains("x pad,") {
            // What is left of a frame is its last field.
            assert!(Layout::parse(text).is_err());
            continue;
        }
        assert_eq!(layout(text).to_string(), written);
        assert_eq!(layout(written), layout(text));
    }
}

#[test]
fn errors_name_the_place_and_what_was_expected() {
    for (text, place, reason) in [
        ("", (1, 1), "expected the name of a field, not the end"),
        ("adc", (1, 4), "expected a type such as u16"),
        ("adc u17", (1, 5), "not 'u17'"),
        ("a u8,\n  b ]", (2, 5), "expected a type such as u16"),
        ("a u8 b u8", (1, 6), "expected ',', ';' or the end, not 'b'"),
        ("a u8[], b u8", (1, 7), "expected ';' or the end"),
        ("a u8[0]", (1, 6), "expected a number from 1 to 536870912, not '0'"),
        ("a u8[99999999999999999999]", (1, 6), "expected a number from 1"),
        ("a u8[n]", (1, 6), "an integer field before, not 'n'"),
        ("n f32, a u8[n]", (1, 13), "an integer field before, not 'n'"),
        ("a u8[2", (1, 7), "expected ']', not the end"),
        ("a (b u8", (1, 8), "expected ',' or ')', not the end"),
        ("a (b u8[])[]", (1, 8), "expected a count such as [8] or [n] within a struct"),
        ("a (b bytes)", (1, 11), "expected a count such as [8] or [n] within a struct"),
        ("n u8, a (b u8[n])[]", (1, 18), "must take a byte at least"),
        ("a (pad[4])[]", (1, 3), "needs a field that is a column"),
        ("pad[4]", (1, 7), "needs a field that is a column"),
        ("a u8, A u16", (1, 7), "equal to 'a' but for case"),
        ("a (x u8, X u8)", (1, 10), "equal to 'x' but for case"),
        ("frames u8", (1, 1), "payload_frames is a column of CDTP"),
        ("a u8; `Bytes` u8", (1, 7), "payload_bytes is a column of CDTP"),
        ("a u8; … b", (1, 9), "expected the end, not 'b'"),
        ("`a u8", (1, 1), "a backtick is not closed"),
        ("`` u8", (1, 1), "expected the name of a field"),
        ("yaml: a", (1, 1), "expected msgpack, json or avro before ':', not 'yaml'"),
        ("msgpack: a money", (1, 12), "expected a type: bigint"),
        ("msgpack: a int, * int", (1, 19), "expected variant or json"),
        ("msgpack: rest int, * variant", (1, 20), "equal to 'rest' but for case"),
        ("json: a int b int", (1, 13), "expected ',', not 'b'"),
        ("msgpack: frames int", (1, 10), "payload_frames is a column of CDTP"),
        ("avro: {", (1, 7), "not the JSON of a schema"),
        ("a u8[536870911], b u8[2]", (1, 25), "512 MiB"),
    ] {
        let error = Layout::parse(text).expect_err(text);
        assert_eq!((error.line, error.column), place, "{text}: {error}");
        assert!(error.reason.contains(reason), "{text}: {error}");
    }
}

#[test]
fn structs_are_nested_eight_deep_at_most() {
    let nested = |depth: usize| format!("a {}u8{}", "(a ".repeat(depth), ")".repeat(depth));
    assert!(Layout::parse(&nested(8)).is_ok());
    assert!(Layout::parse(&nested(9)).unwrap_err().reason.contains("more than 8 deep"));
    assert!(Layout::parse(&nested(100_000)).is_err());
    let batch = rows(&nested(8), &[b"\x07"]);
    assert_eq!(errors(&batch), [None]);
}

#[test]
fn every_number_in_both_orders() {
    let text = "a i8, b i16, c i32, d i64, e u8, f u16, g u32, h u64, i f16, j f32, k f64, l bool";
    let both = [text.to_owned(), text.replace(',', "be,") + "be"];
    for (text, is_big) in both.iter().zip([false, true]) {
        let mut frame = Vec::new();
        let mut put = |bytes: &[u8]| {
            let bytes = bytes.iter().copied();
            if is_big { frame.extend(bytes.rev()) } else { frame.extend(bytes) }
        };
        put(&(-1_i8).to_le_bytes());
        put(&(-2_i16).to_le_bytes());
        put(&(-3_i32).to_le_bytes());
        put(&(-4_i64).to_le_bytes());
        put(&200_u8.to_le_bytes());
        put(&60_000_u16.to_le_bytes());
        put(&4_000_000_000_u32.to_le_bytes());
        put(&u64::MAX.to_le_bytes());
        put(&0x3e00_u16.to_le_bytes());
        put(&2.5_f32.to_le_bytes());
        put(&(-0.1_f64).to_le_bytes());
        put(&[7]);
        let batch = rows(text, &[&frame, &frame]);
        assert_eq!(errors(&batch), [None, None]);
        assert_eq!(column(&batch, "payload_b").as_primitive::<Int16Type>().values(), &[-2, -2]);
        assert_eq!(column(&batch, "payload_c").as_primitive::<Int32Type>().values(), &[-3, -3]);
        assert_eq!(column(&batch, "payload_d").as_primitive::<Int64Type>().values(), &[-4, -4]);
        assert_eq!(column(&batch, "payload_e").as_primitive::<UInt8Type>().values(), &[200, 200]);
        assert_eq!(column(&batch, "payload_f").as_primitive::<UInt16Type>().values(), &[60_000, 60_000]);
        assert_eq!(column(&batch, "payload_g").as_primitive::<UInt32Type>().value(1), 4_000_000_000);
        assert_eq!(column(&batch, "payload_h").as_primitive::<UInt64Type>().value(0), u64::MAX);
        assert_eq!(column(&batch, "payload_i").as_primitive::<Float16Type>().value(0).to_f32(), 1.5);
        assert_eq!(column(&batch, "payload_j").as_primitive::<Float32Type>().values(), &[2.5, 2.5]);
        assert_eq!(column(&batch, "payload_k").as_primitive::<Float64Type>().values(), &[-0.1, -0.1]);
        assert!(column(&batch, "payload_l").as_boolean().value(0));
        assert_eq!(layout(text).size(), Some(45));
    }
}

#[test]
fn lists_are_what_is_left_or_what_a_count_says() {
    let batch = rows("adc u16[]", &[b"\x01\x00\x02\x00", b"", b"\x03\x00"]);
    let adc = column(&batch, "payload_adc");
    let adc = adc.as_list::<i32>();
    assert_eq!(adc.value_offsets(), &[0, 2, 2, 3]);
    assert_eq!(adc.values().as_primitive::<UInt16Type>().values(), &[1, 2, 3]);

    let batch = rows("n u8, adc u16be[n], tail u8[2]", &[b"\x01\x00\x05\x08\x09", b"\x00\x06\x07"]);
    let adc = column(&batch, "payload_adc");
    assert_eq!(adc.as_list::<i32>().value(0).as_primitive::<UInt16Type>().values(), &[5]);
    assert_eq!(adc.as_list::<i32>().value_length(1), 0);
    let tail = column(&batch, "payload_tail");
    assert_eq!(*tail.data_type(), *layout("tail u8[2]").columns()[0].data_type());
    assert_eq!(tail.as_fixed_size_list().values().as_primitive::<UInt8Type>().values(), &[8, 9, 6, 7]);
}

#[test]
fn structs_of_fixed_and_of_varied_size() {
    let hit = |channel: u16, charge: f32| [&channel.to_le_bytes()[..], b"\xff", &charge.to_le_bytes()].concat();
    let frame = [hit(1, 0.5), hit(2, 1.5)].concat();
    let batch = rows("hits (channel u16, pad[1], charge f32)[]", &[&frame, b""]);
    let hits = column(&batch, "payload_hits");
    let hits = hits.as_list::<i32>();
    assert_eq!(hits.value_offsets(), &[0, 2, 2]);
    let values = hits.values().as_struct();
    assert_eq!(values.column(0).as_primitive::<UInt16Type>().values(), &[1, 2]);
    assert_eq!(values.column(1).as_primitive::<Float32Type>().values(), &[0.5, 1.5]);

    // Each with its own count, in a list of what a field before says.
    let text = "n u8, traces (id u8, m u8, adc u16[m])[n], end u8";
    let batch = rows(text, &[b"\x02\x0a\x01\x05\x00\x0b\x02\x06\x00\x07\x00\x63", b"\x00\x64"]);
    assert_eq!(errors(&batch), [None, None]);
    let traces = column(&batch, "payload_traces");
    let traces = traces.as_list::<i32>();
    assert_eq!(traces.value_offsets(), &[0, 2, 2]);
    let values = traces.values().as_struct();
    assert_eq!(values.column(0).as_primitive::<UInt8Type>().values(), &[10, 11]);
    let adc = values.column(2).as_list::<i32>();
    assert_eq!(adc.value_offsets(), &[0, 1, 3]);
    assert_eq!(adc.values().as_primitive::<UInt16Type>().values(), &[5, 6, 7]);
    assert_eq!(column(&batch, "payload_end").as_primitive::<UInt8Type>().values(), &[99, 100]);

    // Fixed numbers of those, and structs that are no array.
    let text = "both (m u8, s u8[m])[2], at (k u8, name utf8[k])";
    let batch = rows(text, &[b"\x00\x01\x09\x02hi", b"\x00"]);
    assert_eq!(errors(&batch), [None, Some("payload_short".to_owned())]);
    let both = column(&batch, "payload_both");
    assert!(both.is_null(1));
    let items = both.as_fixed_size_list().value(0);
    assert_eq!(items.as_struct().column(1).as_list::<i32>().value_offsets()[..3], [0, 0, 1]);
    let at = column(&batch, "payload_at");
    assert_eq!(at.as_struct().column(1).as_string::<i32>().value(0), "hi");
    assert!(at.is_null(1));
}

#[test]
fn fixed_arrays_within_structs() {
    let batch = rows(
        "p (a u8, xy (x i16, y i16)[2])[]",
        &[b"\x01\x02\x00\x03\x00\x04\x00\x05\x00\x06\x07\x00\x08\x00\x09\x00\x0a\x00"],
    );
    let values = column(&batch, "payload_p");
    let values = values.as_list::<i32>().values().as_struct();
    assert_eq!(values.column(0).as_primitive::<UInt8Type>().values(), &[1, 6]);
    let xy = values.column(1).as_fixed_size_list().values().as_struct();
    assert_eq!(xy.column(0).as_primitive::<Int16Type>().values(), &[2, 4, 7, 9]);
    assert_eq!(xy.column(1).as_primitive::<Int16Type>().values(), &[3, 5, 8, 10]);
}

#[test]
fn bytes_and_text() {
    let batch = rows("id bytes[2], name utf8[4], rest utf8", &[b"\x01\x02ab\0\0caf\xc3\xa9", b"\x03\x04abcd"]);
    assert_eq!(column(&batch, "payload_id").as_fixed_size_binary().value(1), b"\x03\x04");
    assert_eq!(*column(&batch, "payload_id").data_type(), DataType::FixedSizeBinary(2));
    assert_eq!(column(&batch, "payload_name").as_string::<i32>().value(0), "ab");
    assert_eq!(column(&batch, "payload_name").as_string::<i32>().value(1), "abcd");
    assert_eq!(column(&batch, "payload_rest").as_string::<i32>().value(0), "café");
    assert_eq!(column(&batch, "payload_rest").as_string::<i32>().value(1), "");
    assert_eq!(fault("name utf8[2], n u8", &[b"a\xff\x00"]), (PayloadKind::Text, 1, 1));
    assert_eq!(fault("a u8, rest utf8", &[b"aab\xff"]), (PayloadKind::Text, 1, 3));
    assert_eq!(fault("x (s utf8[2], n u8)[]", &[b"ab\x01\xc3(\x01"]), (PayloadKind::Text, 1, 3));
    assert_eq!(fault("utf8", &[b"ok\xff"]), (PayloadKind::Text, 1, 2));
    let batch = rows("utf8", &[b"on", b""]);
    assert_eq!(column(&batch, "payload_value").as_string::<i32>().value(0), "on");
}

#[test]
fn frame_after_frame() {
    let both = |text: &str, frames: &[&[u8]]| decode(layout(text), Mode::Permissive, parts(&[frames])).unwrap().columns;
    let batch = both("n u8; adc u16[n]", &[b"\x01", b"\x05\x00"]);
    assert_eq!(column(&batch, "payload_adc").as_list::<i32>().value(0).as_primitive::<UInt16Type>().values(), &[5]);
    assert_eq!(errors(&both("n u8; …", &[b"\x01", b"x", b"y"])), [None]);
    assert_eq!(fault("n u8; m u8", &[b"\x01"]), (PayloadKind::Frames, 2, 0));
    assert_eq!(fault("n u8", &[b"\x01", b"\x01"]), (PayloadKind::Frames, 2, 0));
    assert_eq!(fault("n u8; m u8", &[b"\x01", b""]), (PayloadKind::Short, 2, 0));
    assert_eq!(fault("msgpack: variant", &[b"\x01", b"\x01"]), (PayloadKind::Frames, 2, 0));
}

#[test]
fn counts_that_lie_are_refused_before_anything_is_reserved() {
    for count in ["u64", "u64be", "i64", "u32", "i8"] {
        let text = format!("n {count}, adc u64[n]");
        let frame = [&[0xff; 8][..layout(&format!("n {count}")).size().unwrap()], &[0; 64]].concat();
        assert_eq!(fault(&text, &[&frame]).0, PayloadKind::Short, "{text}");
        let text = format!("n {count}, s (k u8, t u8[k])[n]");
        assert_eq!(fault(&text, &[&frame]).0, PayloadKind::Short, "{text}");
        let text = format!("n {count}, b bytes[n]");
        assert_eq!(fault(&text, &[&frame]).0, PayloadKind::Short, "{text}");
    }
    assert_eq!(fault("n u8, adc u16[n]", &[b"\x02\x01\x00\x02"]), (PayloadKind::Short, 1, 1));
    assert_eq!(fault("n u8, adc u16[n]", &[b"\x01\x01\x00\x02"]), (PayloadKind::Long, 1, 3));
    assert_eq!(fault("adc u16[]", &[b"\x01\x00\x02"]), (PayloadKind::Long, 1, 2));
    assert_eq!(fault("a u32", &[b"\x01"]), (PayloadKind::Short, 1, 0));
    assert_eq!(fault("a u8", &[b"\x01\x02"]), (PayloadKind::Long, 1, 1));
}

#[test]
fn ten_thousand_fields() {
    let mut text = String::new();
    for field in 0..10_000 {
        let _ = write!(text, "{}f{field} u16", if field == 0 { "" } else { ", " });
    }
    let frame: Vec<u8> = (0..10_000_u16).flat_map(u16::to_le_bytes).collect();
    let batch = rows(&text, &[&frame, b"short"]);
    assert_eq!(column(&batch, "payload_f9999").as_primitive::<UInt16Type>().value(0), 9_999);
    assert!(column(&batch, "payload_f0").is_null(1));
}

#[test]
fn what_is_not_asked_for_is_not_decoded_but_checked() {
    let text = "t u64, adc u16[100], name utf8[2], n u8, more u8[n]";
    let mut frame = vec![0; 8 + 200];
    frame[8] = 9;
    frame.extend(b"ok\x02\x05\x06");
    let only = |names: &[&str], frame: &[u8]| {
        let layout = layout(text).only(|name| names.contains(&name));
        decode(layout, Mode::Permissive, parts(&[&[frame]])).unwrap().columns
    };
    let all = rows(text, &[&frame]);
    for name in ["payload_t", "payload_adc", "payload_name", "payload_n", "payload_more"] {
        let batch = only(&[name], &frame);
        assert_eq!(column(&batch, name).as_ref(), column(&all, name).as_ref());
        assert_eq!(batch.num_columns(), all.num_columns() - 4);
    }
    let batch = only(&[], b"x");
    assert_eq!(errors(&batch), [Some("payload_short".to_owned())]);
}

#[test]
fn spark_has_other_types() {
    let text = "a u8, b u16, c u32, d u64, e f16, f i8, g bytes[2], h u16[2], i (x u8, y u64)[]";
    let layout = layout(text).with_types(Types::Spark);
    assert_eq!(
        ddl(&layout.columns()),
        "`payload_a` SMALLINT, `payload_b` INT, `payload_c` BIGINT, `payload_d` DECIMAL(20,0), `payload_e` FLOAT, \
         `payload_f` TINYINT, `payload_g` BINARY, `payload_h` ARRAY<INT>, \
         `payload_i` ARRAY<STRUCT<`x`: SMALLINT, `y`: DECIMAL(20,0)>>"
    );
    let frame = [
        &[255][..],
        &u16::MAX.to_le_bytes(),
        &u32::MAX.to_le_bytes(),
        &u64::MAX.to_le_bytes(),
        &0x3e00_u16.to_le_bytes(),
        &[0xff],
        b"ab",
        &[1, 0, 0xff, 0xff],
        &[7],
        &u64::MAX.to_le_bytes(),
    ]
    .concat();
    let batch = decode(layout, Mode::Permissive, parts(&[&[&frame], &[b""]])).unwrap().columns;
    assert_eq!(column(&batch, "payload_a").as_primitive::<Int16Type>().value(0), 255);
    assert_eq!(column(&batch, "payload_c").as_primitive::<Int64Type>().value(0), i64::from(u32::MAX));
    assert_eq!(column(&batch, "payload_d").as_primitive::<Decimal128Type>().value(0), i128::from(u64::MAX));
    assert_eq!(column(&batch, "payload_e").as_primitive::<Float32Type>().value(0), 1.5);
    assert_eq!(
        column(&batch, "payload_h").as_list::<i32>().value(0).as_primitive::<Int32Type>().values(),
        &[1, 65_535]
    );
    let items = column(&batch, "payload_i").as_list::<i32>().value(0);
    assert_eq!(items.as_struct().column(1).as_primitive::<Decimal128Type>().value(0), i128::from(u64::MAX));
    assert!(column(&batch, "payload_h").is_null(1));
    assert_eq!(errors(&batch), [None, Some("payload_short".to_owned())]);
}

#[test]
fn msgpack_and_json_have_the_fields_that_tags_have() {
    // {"run": 7, "gain": 1.5, "more": [1]}
    let packed = b"\x83\xa3run\x07\xa4gain\xca\x3f\xc0\x00\x00\xa4more\x91\x01";
    let batch = rows("msgpack: gain double, run bigint, * json", &[packed, b"\x80"]);
    assert_eq!(column(&batch, "payload_run").as_primitive::<Int64Type>().value(0), 7);
    assert_eq!(column(&batch, "payload_gain").as_primitive::<Float64Type>().value(0), 1.5);
    assert_eq!(column(&batch, "payload_rest").as_string::<i32>().value(0), r#"{"more":[1]}"#);
    assert!(column(&batch, "payload_run").is_null(1));
    assert_eq!(column(&batch, "payload_rest").as_string::<i32>().value(1), "{}");

    let json = br#" {"run": 7, "gain": 1.5, "more": [1]} "#;
    let batch = rows("json: gain double, run bigint, * json", &[json]);
    assert_eq!(column(&batch, "payload_run").as_primitive::<Int64Type>().value(0), 7);
    assert_eq!(column(&batch, "payload_rest").as_string::<i32>().value(0), r#"{"more":[1]}"#);

    for (text, frame) in [("msgpack: json", &b"\x93\x01\xa1a\xc0"[..]), ("json: json", br#"[1, "a", null]"#)] {
        let batch = rows(text, &[frame]);
        assert_eq!(column(&batch, "payload_value").as_string::<i32>().value(0), r#"[1,"a",null]"#);
    }
    let batch = rows("msgpack: variant", &[packed, b"\xc0"]);
    assert_eq!(errors(&batch), [None, None]);
    assert!(column(&batch, "payload_value").is_valid(1));

    let typed = decode(layout("msgpack: run string"), Mode::Permissive, parts(&[&[packed]])).unwrap();
    assert_eq!(typed.mismatches.get("run"), Some(&1));
    let strict = decode(layout("msgpack: run string"), Mode::FailFast, parts(&[&[packed]]));
    assert!(matches!(strict, Err(ColumnError::TagType { .. })));
}

#[test]
fn what_is_no_object_of_msgpack_or_json() {
    for frame in
        [&b""[..], b"\x81", b"\x81\x01\x02", b"\x07", b"\x80\x80", b"\x81\xa1\xff\x01", b"\xdf\xff\xff\xff\xff"]
    {
        assert_eq!(fault("msgpack: run bigint", &[frame]).0, PayloadKind::MsgPack, "{frame:?}");
    }
    assert_eq!(fault("msgpack: variant", &[b"\x80\x07"]), (PayloadKind::MsgPack, 1, 1));
    assert_eq!(fault("msgpack: variant", &[&vec![0x91; 100_000]]).0, PayloadKind::MsgPack);
    for frame in [&b""[..], b"{", b"[]", b"{} x", b"{\"a\": \"\xff\"}", b"nan"] {
        assert_eq!(fault("json: run bigint", &[frame]).0, PayloadKind::Json, "{frame:?}");
    }
    assert_eq!(fault("json: variant", &[b"[1] 2"]), (PayloadKind::Json, 1, 4));
    assert_eq!(fault("json: variant", &[&vec![b'['; 100_000]]).0, PayloadKind::Json);
    let bomb = [b"[".as_slice(), &b"[],".repeat(1_000_001), b"[]]"].concat();
    assert_eq!(fault("json: variant", &[&bomb]).0, PayloadKind::Json);
}

const SCHEMA: &str = r#"avro: {"type": "record", "name": "a.Event", "fields": [
    {"name": "id", "type": "long"},
    {"name": "gain", "type": ["null", "double"]},
    {"name": "on", "type": "boolean"},
    {"name": "name", "type": "string"},
    {"name": "raw", "type": {"type": "fixed", "name": "Two", "size": 2}},
    {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}},
    {"name": "hits", "type": {"type": "array", "items": {"type": "record", "name": "Hit", "fields": [
        {"name": "channel", "type": "int"}, {"name": "charge", "type": ["float", "null"]}]}}},
    {"name": "limits", "type": {"type": "map", "values": "int"}},
    {"name": "best", "type": ["null", "Hit"]},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
]}"#;

#[test]
fn records_of_avro() {
    let frame = [
        &b"\x0d"[..],
        b"\x02\x00\x00\x00\x00\x00\x00\xf8\x3f",
        b"\x01",
        b"\x06abc",
        b"\x08\x09",
        b"\x02",
        // A block with its size, and one without.
        b"\x01\x0e\x02\x00\x00\x00\x20\x40",
        b"\x02\x04\x02\x00",
        b"\x02\x02x\x14\x00",
        b"\x02\x06\x02",
        b"\x02",
        b"\x02",
    ]
    .concat();
    let batch = rows(SCHEMA, &[&frame, b"\x0d"]);
    assert_eq!(errors(&batch), [None, Some("payload_avro".to_owned())]);
    assert_eq!(column(&batch, "payload_id").as_primitive::<Int64Type>().value(0), -7);
    assert_eq!(column(&batch, "payload_gain").as_primitive::<Float64Type>().value(0), 1.5);
    assert!(column(&batch, "payload_on").as_boolean().value(0));
    assert_eq!(column(&batch, "payload_name").as_string::<i32>().value(0), "abc");
    assert_eq!(column(&batch, "payload_raw").as_binary::<i32>().value(0), b"\x08\x09");
    assert_eq!(column(&batch, "payload_colour").as_string::<i32>().value(0), "GREEN");
    let hits = column(&batch, "payload_hits");
    let hits = hits.as_list::<i32>();
    assert_eq!(hits.value_offsets(), &[0, 2, 2]);
    assert_eq!(hits.values().as_struct().column(0).as_primitive::<Int32Type>().values(), &[1, 2]);
    assert_eq!(hits.values().as_struct().column(1).as_primitive::<Float32Type>().value(0), 2.5);
    assert!(hits.values().as_struct().column(1).is_null(1));
    let limits = column(&batch, "payload_limits");
    assert_eq!(limits.as_map().keys().as_string::<i32>().value(0), "x");
    assert_eq!(limits.as_map().values().as_primitive::<Int32Type>().value(0), 10);
    let best = column(&batch, "payload_best");
    assert_eq!(best.as_struct().column(0).as_primitive::<Int32Type>().value(0), 3);
    assert!(best.is_null(1));
    assert_eq!(
        column(&batch, "payload_at").as_primitive::<arrow_array::types::TimestampMicrosecondType>().value(0),
        1_000
    );
    assert_eq!(fault(SCHEMA, &[&[frame.as_slice(), b"\0"].concat()]), (PayloadKind::Avro, 1, frame.len()));
    for cut in 0..frame.len() {
        assert_eq!(fault(SCHEMA, &[&frame[..cut]]).0, PayloadKind::Avro);
    }
}

#[test]
fn avro_that_lies_and_schemas_without_columns() {
    let array = |items: &str| {
        format!(
            r#"avro: {{"type": "record", "name": "r", "fields": [{{"name": "a", "type": {{"type": "array", "items": {items}}}}}]}}"#
        )
    };
    // 2^63 items, once with the size of their block.
    for frame in
        [&b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..], b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", b"\x02"]
    {
        assert_eq!(fault(&array("\"int\""), &[frame]).0, PayloadKind::Avro);
    }
    for (text, reason) in [
        (array("\"null\""), "must take a byte at least"),
        (array(r#"{"type": "record", "name": "e", "fields": [{"name": "x", "type": "null"}]}"#), "a byte at least"),
        (array("[\"int\", \"string\"]"), "a union of null and one type"),
        (array("\"r\""), "r contains itself"),
        (array("\"other\""), "unknown type \"other\""),
        ("avro: \"int\"".to_owned(), "must be of a record"),
        (r#"avro: {"type": "record", "name": "r", "fields": []}"#.to_owned(), "has no fields"),
    ] {
        let error = Layout::parse(&text).expect_err(&text);
        assert!(error.reason.contains(reason), "{error}");
    }
    // Names that double what they stand for.
    let mut fields =
        r#"{"name": "f0", "type": {"type": "record", "name": "r0", "fields": [{"name": "x", "type": "int"}]}}"#
            .to_owned();
    for level in 1..40 {
        let before = level - 1;
        let _ = write!(
            fields,
            r#", {{"name": "f{level}", "type": {{"type": "record", "name": "r{level}", "fields": [
            {{"name": "a", "type": "r{before}"}}, {{"name": "b", "type": "r{before}"}}]}}}}"#
        );
    }
    let bomb = format!(r#"avro: {{"type": "record", "name": "top", "fields": [{fields}]}}"#);
    assert!(Layout::parse(&bomb).unwrap_err().reason.contains("more than 100000 types"));
}

#[test]
fn each_message_says_its_dtype() {
    let said = |name: &str, frame: &[u8]| {
        let tags = [&b"\x81\xa5dtype"[..], &[0xa0 | u8::try_from(name.len()).unwrap()], name.as_bytes()].concat();
        decode(layout("dtype"), Mode::Permissive, tagged(&[&[frame]], &tags)).unwrap()
    };
    for (name, frame, values) in [
        ("<u2", &b"\x01\x00\xff\xff"[..], vec![Some(1.0), Some(65_535.0)]),
        (">u2", b"\x01\x00", vec![Some(256.0)]),
        ("uint16", b"\x01\x00", vec![Some(1.0)]),
        ("float32", b"\x00\x00\x20\x40", vec![Some(2.5)]),
        ("|b1", b"\x00\x07", vec![Some(0.0), Some(1.0)]),
        ("float16", b"\x00\x3e\x01\x00", vec![Some(1.5), Some(5.960_464_477_539_063e-8)]),
        (
            "int64",
            &[(1_i64 << 53).to_le_bytes(), i64::MIN.to_le_bytes()].concat(),
            vec![Some(9_007_199_254_740_992.0), None],
        ),
        ("(2,2)i1", b"\x01\x02\xff\x04", vec![Some(1.0), Some(2.0), Some(-1.0), Some(4.0)]),
        ("f8", b"", vec![]),
    ] {
        let rows = said(name, frame);
        assert_eq!(errors(&rows.columns), [None], "{name}");
        let lists = column(&rows.columns, "payload_value");
        let value = lists.as_list::<i32>().value(0);
        assert_eq!(value.as_primitive::<Float64Type>().iter().collect::<Vec<_>>(), values, "{name}");
        let nulls = values.iter().filter(|value| value.is_none()).count() as u64;
        assert_eq!(rows.mismatches.get("payload_value").copied().unwrap_or(0), nulls);
    }
    for (name, frame) in [("<u2", &b"\x01"[..]), ("datetime64", b""), ("u3", b""), ("", b"")] {
        assert_eq!(errors(&said(name, frame).columns), [Some("payload_dtype".to_owned())], "{name}");
    }
    assert_eq!(fault("dtype", &[b"\x01\x00"]), (PayloadKind::Dtype, 1, 0));
    let dcp = trunkline_columns::PROTOCOLS.iter().find(|protocol| protocol.name() == "dcp").unwrap();
    let refused = dcp.decoder(vec![("payload", Value::Payload(Payload::Layout(layout("dtype"))))]).err().unwrap();
    assert!(refused.to_string().contains("which DCP messages do not have"), "{refused}");
}

#[test]
fn only_data_is_of_a_layout() {
    // Of the variant A: BOR, whose payload is a map.
    let header: Vec<u8> = [HEADER, b"\x01\x00\x80"].concat();
    let headers: BinaryArray = [Some(header.as_slice())].into_iter().collect();
    let mut payload = ListBuilder::new(BinaryBuilder::new());
    payload.values().append_value(b"\x80");
    payload.append(true);
    let parts =
        Parts { header: Some(Arc::new(headers)), payload: Some(Arc::new(payload.finish())), ..Parts::default() };
    for mode in [Mode::Permissive, Mode::FailFast, Mode::DropMalformed] {
        let batch = decode(layout("adc u16[3]"), mode, parts.clone()).unwrap().columns;
        assert_eq!(errors(&batch), [None]);
        assert!(column(&batch, "payload_adc").is_null(0));
    }
    // A header that is wrong, and a message without a frame, go first.
    let batch = decode(layout("adc u16"), Mode::Permissive, tagged(&[&[]], b"\x80")).unwrap().columns;
    assert_eq!(errors(&batch), [Some("missing_payload".to_owned())]);
}

#[test]
fn wide_rows_without_a_value_are_split_too() {
    // A null takes 64 MiB here.
    let wide = layout("a u8[67108864]");
    let nulls: BinaryArray = std::iter::repeat_n(None::<&[u8]>, 8).collect();
    let parts = Parts { header: Some(Arc::new(nulls)), ..Parts::default() };
    let batches = trunkline_columns::decode_rows::<Cdtp>(options(wide, Mode::Permissive), parts).unwrap();
    let rows: Vec<usize> = batches.map(|rows| rows.unwrap().columns.num_rows()).collect();
    assert_eq!(rows.iter().sum::<usize>(), 8);
    assert!(rows.len() >= 4, "{rows:?}");
}

#[test]
fn fields_of_fixed_size_are_told_to_numpy() {
    let fields = layout("a u16be, pad[2], p (x f32)[3], s utf8[4]").fixed_fields().unwrap();
    assert_eq!(
        fields.iter().map(|field| field.name.as_deref()).collect::<Vec<_>>(),
        [Some("a"), None, Some("p"), Some("s")]
    );
    assert_eq!(fields[0].of, FixedType::Number("u16be".to_owned()));
    assert_eq!(fields[2].repeat, Some(3));
    assert_eq!(layout("a u16[]").fixed_fields(), None);
    assert_eq!(layout("a u16; b u16").size(), Some(4));
    assert_eq!(layout("a u16; …").size(), None);
    assert_eq!(layout("utf8").size(), None);
    let _ = RestType::Json;
}

proptest! {
    #[test]
    fn any_text_is_a_layout_or_an_error(text in "(a|b|`c`|u16|be|utf8|pad|\\(|\\)|\\[|\\]|,|;|…|n|3| |msgpack|:|\\*|variant|bytes){0,24}", frame: Vec<u8>) {
        if let Ok(layout) = Layout::parse(&text) {
            prop_assert_eq!(&Layout::parse(&layout.to_string()).unwrap(), &layout);
            let _ = decode(layout, Mode::Permissive, parts(&[&[&frame]])).unwrap();
        }
    }

    #[test]
    fn any_bytes_are_of_a_layout_or_an_error(frames in prop::collection::vec(prop::collection::vec(0..4_u8, 0..40), 1..6)) {
        for text in [
            "n u8, a u16be[n], s (k i8, t u8[k], e (x f16, y bool)[2])[]",
            "n u8, m u8, s (z u8, b bytes[n])[m], tail utf8",
            SCHEMA,
        ] {
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            let batch = rows(text, &frames);
            let all: Vec<_> = errors(&batch);
            for (row, frame) in frames.iter().enumerate() {
                let alone = rows(text, &[frame]);
                prop_assert_eq!(&errors(&alone)[0], &all[row]);
                for (column, whole) in alone.columns().iter().zip(batch.columns()) {
                    prop_assert_eq!(column.to_data(), whole.slice(row, 1).to_data());
                }
            }
        }
    }
}
