//! CDTP headers as columns, on bytes packed by hand.
#![allow(clippy::unwrap_used, clippy::unnecessary_wraps)] // a test fails where something is not as it says; rows may be null

use std::{fmt::Write, iter, sync::Arc};

use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, Int32Array, Int64Array, LargeBinaryArray, RecordBatch, StructArray,
    builder::{BinaryBuilder, ListBuilder},
    cast::AsArray,
    types::{Float64Type, Int32Type, Int64Type, TimestampMicrosecondType},
};
use arrow_schema::{DataType, Fields};
use parquet_variant::{Variant, VariantMetadata};
use trunkline_columns::{
    BATCH_BYTES, ColumnError, Mode, Parts, Payload, PlanError, RestType, Rows, TagType, Tags, cdtp::Options, ddl,
};
use trunkline_wire::cdtp::{Accept, Cdtp, Settings};

/// `CDTP\x01`, then the sender `d`, then a timestamp of one second and five nanoseconds.
const S: &str = "a54344545001 a164 d7ff 0000001400000001";
const B: &str = "a54344545001 a164";
const TWO: &str = "a54344545002 a164";

fn batches(options: &Options, parts: &Parts) -> Vec<Rows> {
    trunkline_columns::decode_rows::<Cdtp>(options.clone(), parts.clone()).unwrap().map(Result::unwrap).collect()
}

/// All rows, of input that fits one batch.
fn decode_rows(options: &Options, parts: &Parts) -> Result<Rows, ColumnError> {
    let mut batches = trunkline_columns::decode_rows::<Cdtp>(options.clone(), parts.clone())?;
    let rows = batches.next().unwrap();
    assert!(batches.next().is_none());
    rows
}

fn decode_structs(options: &Options, parts: &Parts) -> Result<StructArray, ColumnError> {
    trunkline_columns::decode_structs::<Cdtp>(options, parts)
}

fn row_fields(options: &Options) -> Fields {
    trunkline_columns::row_fields::<Cdtp>(options)
}

fn struct_fields(options: &Options) -> Result<Fields, PlanError> {
    trunkline_columns::struct_fields::<Cdtp>(options)
}

fn unhex(hex: &str) -> Vec<u8> {
    let hex: String = hex.split_whitespace().collect();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn header(start: &str, rest: &str) -> Option<Vec<u8>> {
    Some(unhex(&format!("{start}{rest}")))
}

fn headers(rows: &[Option<Vec<u8>>]) -> Parts {
    let header: BinaryArray = rows.iter().map(Option::as_deref).collect();
    Parts { header: Some(Arc::new(header)), ..Parts::default() }
}

fn rows(options: &Options, input: &Parts) -> RecordBatch {
    let rows = decode_rows(options, input).unwrap();
    assert_eq!(rows.columns.schema().fields(), &row_fields(options));
    assert_eq!(rows.source.len(), rows.columns.num_rows());
    rows.columns
}

fn typed(tags: &[(&str, TagType)]) -> Options {
    let tags = tags.iter().map(|(name, tag_type)| ((*name).to_owned(), *tag_type)).collect();
    Options { tags: Tags::new(tags, None).unwrap(), ..Options::default() }
}

fn strings<'a>(batch: &'a RecordBatch, name: &str) -> Vec<Option<&'a str>> {
    batch.column_by_name(name).unwrap().as_string::<i32>().iter().collect()
}

fn bigints(batch: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().iter().collect()
}

fn ints(batch: &RecordBatch, name: &str) -> Vec<Option<i32>> {
    batch.column_by_name(name).unwrap().as_primitive::<Int32Type>().iter().collect()
}

fn micros(batch: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    batch.column_by_name(name).unwrap().as_primitive::<TimestampMicrosecondType>().iter().collect()
}

/// The variants of a column as text: validated whole by another implementation.
fn variants(column: &dyn Array) -> Vec<Option<String>> {
    let column = column.as_struct();
    let [value, metadata] = ["value", "metadata"].map(|name| column.column_by_name(name).unwrap().as_binary::<i32>());
    (0..column.len())
        .map(|row| {
            column.is_valid(row).then(|| {
                VariantMetadata::try_new(metadata.value(row)).unwrap();
                let mut out = String::new();
                show(&mut out, &Variant::try_new(metadata.value(row), value.value(row)).unwrap());
                out
            })
        })
        .collect()
}

#[allow(clippy::wildcard_enum_match_arm)] // all others fail visibly
fn show(out: &mut String, variant: &Variant<'_, '_>) {
    match variant {
        Variant::Object(object) => {
            out.push('{');
            for (name, value) in object.iter() {
                write!(out, "{name}:").unwrap();
                show(out, &value);
                out.push(' ');
            }
            out.push('}');
        }
        Variant::List(list) => {
            out.push('[');
            for value in list.iter() {
                show(out, &value);
                out.push(' ');
            }
            out.push(']');
        }
        scalar => write!(out, "{scalar:?}").unwrap(),
    }
}

fn tags_variant(hex: &str) -> String {
    let batch = rows(&Options::default(), &headers(&[header(S, hex)]));
    let tags = variants(batch.column_by_name("tags").unwrap());
    assert_eq!(strings(&batch, "error"), [None]);
    tags[0].clone().unwrap()
}

#[test] // req: CDTP-01 CDTP-12
fn every_header_gives_a_row_of_what_it_says() {
    let input = Parts {
        n_frames: Some(Arc::new(Int32Array::from(vec![3, 2, 1, 2]))),
        n_bytes: Some(Arc::new(Int64Array::from(vec![29, 18, 11, 100]))),
        ..headers(&[
            header(S, "80"),
            header("a54344545001 a165 d6ff 0000000201", "07 80"),
            header(B, "00 08 80"),
            header(B, "02 cc ff 80"),
        ])
    };
    let batch = rows(&Options { tags: Tags::NONE, ..Options::default() }, &input);
    assert_eq!(strings(&batch, "variant"), ["S", "A", "B", "B"].map(Some));
    assert_eq!(strings(&batch, "sender"), ["d", "e", "d", "d"].map(Some));
    assert_eq!(bigints(&batch, "timestamp_ns"), [Some(1_000_000_005), Some(2_000_000_000), None, None]);
    assert_eq!(micros(&batch, "timestamp"), [Some(1_000_000), Some(2_000_000), None, None]);
    assert_eq!(strings(&batch, "type"), [None, Some("BOR"), Some("DAT"), Some("EOR")]);
    assert_eq!(bigints(&batch, "sequence"), [None, Some(7), Some(8), Some(255)]);
    assert_eq!(ints(&batch, "record"), [0; 4].map(Some));
    assert_eq!(ints(&batch, "payload_frames"), [Some(2), Some(1), Some(0), Some(1)]);
    assert_eq!(bigints(&batch, "payload_bytes"), [Some(10), Some(1), Some(0), Some(88)]);
    assert_eq!(strings(&batch, "error"), [None; 4]);
    assert_eq!(batch.column_by_name("_corrupt_record").unwrap().null_count(), 4);
}

#[test] // req: CDTP-22
fn a_batch_gives_a_row_a_record() {
    let input = headers(&[
        header(S, "80"),
        header(TWO, "00 92 93 01 80 92 c401ff c400 93 02 80 90"),
        header(TWO, "00 90"),
        header(B, "00 01 80"),
    ]);
    let options = Options { tags: Tags::NONE, payload: Payload::Frames, ..Options::default() };
    let decoded = decode_rows(&options, &input).unwrap();
    assert_eq!(decoded.source.values(), &[0, 1, 1, 3]);
    let batch = decoded.columns;
    assert_eq!(ints(&batch, "record"), [0, 0, 1, 0].map(Some));
    assert_eq!(strings(&batch, "variant"), ["S", "2", "2", "B"].map(Some));
    assert_eq!(bigints(&batch, "sequence"), [None, Some(1), Some(2), Some(1)]);
    assert_eq!(ints(&batch, "payload_frames"), [None, Some(2), Some(0), None]);
    assert_eq!(bigints(&batch, "payload_bytes"), [None, Some(1), Some(0), None]);
    let payload = batch.column_by_name("payload").unwrap().as_list::<i32>();
    assert!(payload.is_null(0) && payload.is_null(3));
    let blocks: Vec<_> = payload.value(1).as_binary::<i32>().iter().map(Option::unwrap).map(<[u8]>::to_vec).collect();
    assert_eq!(blocks, [vec![0xff], vec![]]);
    assert_eq!(payload.value(2).len(), 0);
}

#[test]
fn a_bad_header_is_kept_refused_or_left_out() {
    let input = headers(&[header(S, "80"), header(S, "c0"), None, header(B, "00 01 80")]);
    let options = |mode| Options { mode, tags: Tags::NONE, ..Options::default() };

    let batch = rows(&options(Mode::Permissive), &input);
    assert_eq!(strings(&batch, "error"), [None, Some("bad_header"), None, None]);
    assert_eq!(strings(&batch, "variant"), [Some("S"), None, None, Some("B")]);
    let corrupt = batch.column_by_name("_corrupt_record").unwrap().as_binary::<i32>();
    assert_eq!(corrupt.iter().collect::<Vec<_>>(), [None, header(S, "c0").as_deref(), None, None]);

    let error = decode_rows(&options(Mode::FailFast), &input).unwrap_err();
    assert_eq!(error.slug(), Some("bad_header"));
    assert!(error.to_string().starts_with("row 1 of the batch: bad_header in frame 0 at byte 18"), "{error}");

    let decoded = decode_rows(&options(Mode::DropMalformed), &input).unwrap();
    assert_eq!(decoded.source.values(), &[0, 2, 3]);
    assert_eq!(strings(&decoded.columns, "variant"), [Some("S"), None, Some("B")]);
    assert!(decoded.columns.column_by_name("_corrupt_record").is_none());
}

#[test] // req: CDTP-01
fn frames_are_counted_where_their_number_is_known() {
    let rows_of = || headers(&[header(S, "80"), header(S, "80"), header(B, "01 00 80")]);
    let counted = Parts { n_frames: Some(Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]))), ..rows_of() };
    let batch = rows(&Options::default(), &counted);
    assert_eq!(strings(&batch, "error"), [Some("missing_payload"), None, Some("bad_payload_count")]);
    assert_eq!(ints(&batch, "payload_frames"), [None; 3]);
    assert_eq!(strings(&rows(&Options::default(), &rows_of()), "error"), [None; 3]);

    let mut payload = ListBuilder::new(BinaryBuilder::new());
    payload.append(true);
    payload.values().append_value(b"abc");
    payload.append(true);
    payload.append(false);
    let held = Parts { payload: Some(Arc::new(payload.finish())), ..rows_of() };
    let batch = rows(&Options { payload: Payload::Frames, ..Options::default() }, &held);
    assert_eq!(strings(&batch, "error"), [Some("missing_payload"), None, None]);
    assert_eq!(ints(&batch, "payload_frames"), [None, Some(1), None]);
    assert_eq!(bigints(&batch, "payload_bytes"), [None, Some(3), None]);
    let payload = batch.column_by_name("payload").unwrap().as_list::<i32>();
    assert!(payload.is_null(0) && payload.is_null(2));
    assert_eq!(payload.value(1).as_binary::<i32>().value(0), b"abc");
}

#[test]
fn settings_reach_the_decoder() {
    let input = headers(&[header(S, "80 00"), header(B, "00 01 80")]);
    let settings = Settings { accept: Accept::ALL, strict: false };
    assert_eq!(strings(&rows(&Options { settings, ..Options::default() }, &input), "error"), [None, None]);
    let accept = [trunkline_wire::cdtp::Variant::S].into_iter().collect();
    let settings = Settings { accept, strict: true };
    let batch = rows(&Options { settings, ..Options::default() }, &input);
    assert_eq!(strings(&batch, "error"), [Some("trailing_bytes"), Some("unsupported_version")]);
}

#[test]
fn what_bigint_cannot_hold_is_null_and_the_rest_stands() {
    let input = headers(&[
        header(B, "00 cf 7fffffffffffffff 80"),
        header(B, "00 cf 8000000000000000 80"),
        header("a54344545001 a164", "c70cff 00000000 00000003f5c0da00 80"),
        header("a54344545001 a164", "c70cff 00000000 7fffffffffffffff 80"),
        header("a54344545001 a164", "c70cff 000003e7 ffffffffffffffff 80"),
        header(TWO, "00 92 93 00 80 90 93 cf ffffffffffffffff 80 90"),
    ]);
    for mode in [Mode::Permissive, Mode::FailFast, Mode::DropMalformed] {
        let batch = rows(&Options { mode, ..Options::default() }, &input);
        let (sequence, timestamp) = (Some("sequence_exceeds_bigint"), Some("timestamp_exceeds_bigint"));
        assert_eq!(strings(&batch, "error"), [None, sequence, timestamp, timestamp, None, None, sequence]);
        assert_eq!(bigints(&batch, "sequence")[..2], [Some(i64::MAX), None]);
        assert_eq!(bigints(&batch, "sequence")[5..], [Some(0), None]);
        assert_eq!(bigints(&batch, "timestamp_ns")[2..5], [None, None, Some(-999_999_001)]);
        // Still a TIMESTAMP in the year 2508; rounded down before 1970.
        assert_eq!(micros(&batch, "timestamp")[2..5], [Some(17_007_958_528_000_000), None, Some(-1_000_000)]);
        assert_eq!(strings(&batch, "sender"), [Some("d"); 7]);
        if let Some(corrupt) = batch.column_by_name("_corrupt_record") {
            assert_eq!(corrupt.null_count(), 7);
        }
    }
}

#[test] // req: CDTP-07
fn tags_become_columns_of_their_type() {
    use TagType::{BigInt, Binary, Boolean, Double, String, Timestamp};
    let options =
        typed(&[("i", BigInt), ("d", Double), ("s", String), ("b", Boolean), ("x", Binary), ("t", Timestamp)]);
    let input = headers(&[
        header(S, "86 a169 cd0100 a164 cb3ff8000000000000 a173 a2c3a9 a162 c3 a178 c401ff a174 d7ff 00001f4000000001"),
        header(S, "86 a174 d6ff00000001 a178 c400 a162 c2 a173 a0 a164 ca3fc00000 a169 ff"),
        header(S, "82 a164 07 a169 c0"),
        header(S, "80"),
        header(S, "82 a164 cfffffffffffffffff a169 d3 8000000000000000"),
    ]);
    let batch = rows(&options, &input);
    assert_eq!(bigints(&batch, "tag_i"), [Some(256), Some(-1), None, None, Some(i64::MIN)]);
    let doubles: Vec<_> = batch.column_by_name("tag_d").unwrap().as_primitive::<Float64Type>().iter().collect();
    assert_eq!(doubles, [Some(1.5), Some(1.5), Some(7.0), None, Some(18_446_744_073_709_551_615.0)]);
    assert_eq!(strings(&batch, "tag_s"), [Some("é"), Some(""), None, None, None]);
    let booleans: Vec<_> = batch.column_by_name("tag_b").unwrap().as_boolean().iter().collect();
    assert_eq!(booleans, [Some(true), Some(false), None, None, None]);
    let binaries: Vec<_> = batch.column_by_name("tag_x").unwrap().as_binary::<i32>().iter().collect();
    assert_eq!(binaries, [Some(&[0xff][..]), Some(&[]), None, None, None]);
    assert_eq!(micros(&batch, "tag_t"), [Some(1_000_002), Some(1_000_000), None, None, None]);
    assert_eq!(strings(&batch, "error"), [None; 5]);
}

#[test] // req: CDTP-07
fn a_tag_of_any_type_becomes_json() {
    let options = Options { mode: Mode::FailFast, ..typed(&[("v", TagType::Json)]) };
    let values = ["07", "a2c3a9", "c3", "9201c0", "81a161 cb3ff8000000000000", "c401ff", "c0"];
    let tags = values.map(|value| header(S, &format!("82 a176 {value} a177 01")));
    let batch = rows(&options, &headers(&[&tags[..], &[header(S, "81 a177 01")]].concat()));
    let (number, text, list) = (Some("7"), Some("\"é\""), Some("[1,null]"));
    let expected = [number, text, Some("true"), list, Some("{\"a\":1.5}"), Some("\"/w==\""), None, None];
    assert_eq!(strings(&batch, "tag_v"), expected);
}

#[test] // req: CDTP-07
fn a_tag_of_another_type_is_null_or_fails() {
    use TagType::{BigInt, Boolean, Double, String};
    for (tag_type, value) in [
        (BigInt, "cb3ff0000000000000"),
        (BigInt, "cfffffffffffffffff"),
        (BigInt, "a131"),
        (BigInt, "9101"),
        (Double, "a131"),
        (String, "01"),
        (String, "c40131"),
        (Boolean, "01"),
        (Boolean, "810102"),
        (TagType::Binary, "a131"),
        (TagType::Timestamp, "01"),
        (TagType::Timestamp, "c70cff 00000000 7fffffffffffffff"),
        (BigInt, "d40501"),
    ] {
        let options = typed(&[("v", tag_type)]);
        let input = headers(&[header(S, &format!("81 a176 {value}"))]);
        let batch = rows(&options, &input);
        assert_eq!(batch.column_by_name("tag_v").unwrap().null_count(), 1, "{value}");
        assert_eq!(strings(&batch, "error"), [None]);
        let error = decode_rows(&Options { mode: Mode::FailFast, ..options.clone() }, &input).unwrap_err();
        assert_eq!(error.slug(), Some("tag_type"), "{value}");
        assert!(matches!(error, ColumnError::TagType { row: 0, offset: 21, .. }), "{error}");
    }
    for value in ["c0", "07"] {
        let options = Options { mode: Mode::FailFast, ..typed(&[("v", BigInt)]) };
        assert!(decode_rows(&options, &headers(&[header(S, &format!("81 a176 {value}"))])).is_ok());
    }
}

#[test] // req: CDTP-07
fn of_equal_names_the_last_counts() {
    let input = headers(&[header(S, "84 a176 01 a177 02 a176 a161 a176 03")]);
    let options = Options { mode: Mode::FailFast, ..typed(&[("v", TagType::BigInt)]) };
    assert_eq!(bigints(&rows(&options, &input), "tag_v"), [Some(3)]);
    assert_eq!(tags_variant("84 a176 a178 a177 02 a176 a161 a176 03"), "{v:Int8(3) w:Int8(2) }");
}

#[test] // req: CDTP-07
fn a_variant_holds_every_value() {
    assert_eq!(tags_variant("80"), "{}");
    assert_eq!(tags_variant("83 a162 c0 a161 c3 a163 c2"), "{a:BooleanTrue b:Null c:BooleanFalse }");
    assert_eq!(
        tags_variant("85 a161 7f a162 cd0100 a163 ce00010000 a164 cf7fffffffffffffff a165 e0"),
        "{a:Int8(127) b:Int16(256) c:Int32(65536) d:Int64(9223372036854775807) e:Int8(-32) }"
    );
    let decimal = tags_variant("81 a161 cfffffffffffffffff");
    assert!(decimal.contains("integer: 18446744073709551615, scale: 0"), "{decimal}");
    assert_eq!(tags_variant("82 a161 ca3fc00000 a162 cb3ff8000000000000"), "{a:Float(1.5) b:Double(1.5) }");
    assert_eq!(tags_variant("81 a161 c402ff00"), "{a:Binary(ff 00) }");
    assert_eq!(tags_variant("81 a161 a2c3a9"), "{a:ShortString(ShortString(\"é\")) }");
    let long = "61".repeat(64);
    assert_eq!(tags_variant(&format!("81 a161 d940{long}")), format!("{{a:String({:?}) }}", "a".repeat(64)));
    assert_eq!(tags_variant("81 a161 93 01 90 a0"), "{a:[Int8(1) [] ShortString(ShortString(\"\")) ] }");
    assert_eq!(tags_variant("81 a161 d7ff 0000001400000001"), "{a:Int32(1000000005) }");
    let late = tags_variant("81 a161 c70cff 00000001 00000003f5c0da00");
    assert!(late.contains("integer: 17007958528000000001, scale: 0"), "{late}");
    assert_eq!(tags_variant("81 a161 c70380010203"), "{a:{data:Binary(01 02 03) ext:Int8(-128) } }");
    assert_eq!(
        tags_variant("81 a161 82 01 02 a162 03"),
        "{a:[{key:Int8(1) value:Int8(2) } {key:ShortString(ShortString(\"b\")) value:Int8(3) } ] }"
    );
    assert_eq!(tags_variant("81 a161 82 a163 01 a162 80"), "{a:{b:{} c:Int8(1) } }");
}

#[test] // req: CDTP-07
fn a_variant_may_have_many_fields_members_and_bytes() {
    for count in [0x20, 0xff, 0x100, 0x101, 0x1_0001] {
        let mut hex = format!("df{count:08x}");
        let mut names: Vec<_> = (0..count).map(|number| format!("n{number}")).collect();
        for name in &names {
            write!(hex, "{:02x}", 0xa0 + name.len()).unwrap();
            name.bytes().for_each(|byte| write!(hex, "{byte:02x}").unwrap());
            hex.push_str("07");
        }
        names.sort();
        let expected: String = names.join(":Int8(7) ");
        assert_eq!(tags_variant(&hex), format!("{{{expected}:Int8(7) }}"), "{count} fields");
    }
    let members = tags_variant(&format!("81 a161 dc0100 {}", "01".repeat(256)));
    assert_eq!(members, format!("{{a:[{}] }}", "Int8(1) ".repeat(256)));
    let bytes = tags_variant(&format!("82 a161 c600010001 {} a162 01", "00".repeat(0x1_0001)));
    assert!(bytes.ends_with("b:Int8(1) }"));
}

#[test]
fn variants_of_many_rows_keep_to_themselves() {
    let input = headers(&[
        header(S, "82 a161 01 a162 02"),
        header(S, "82 a161 03 a162 04"),
        header(S, "81 a161 05"),
        header(S, "83 a162 06 a161 07 a163 08"),
        header(S, "c0"),
        header(S, "80"),
        header(S, "82 a161 81 a162 09 a162 0a"),
    ]);
    let batch = rows(&Options::default(), &input);
    let column = batch.column_by_name("tags").unwrap();
    let expected = [
        Some("{a:Int8(1) b:Int8(2) }"),
        Some("{a:Int8(3) b:Int8(4) }"),
        Some("{a:Int8(5) }"),
        Some("{a:Int8(7) b:Int8(6) c:Int8(8) }"),
        None,
        Some("{}"),
        Some("{a:{b:Int8(9) } b:Int8(10) }"),
    ];
    assert_eq!(variants(column), expected.map(|text| text.map(str::to_owned)));
    let DataType::Struct(fields) = column.data_type() else { panic!("not a struct") };
    assert!(!fields[0].is_nullable() && !fields[1].is_nullable());
    assert_eq!(fields[1].metadata()["variant"], "true");
    let metadata = column.as_struct().column_by_name("metadata").unwrap().as_binary::<i32>();
    assert_eq!(metadata.value(2), unhex("01 01 00 01 61"), "only the names of this row");
}

#[test]
fn variants_that_come_again_are_ordered_again() {
    let row = |value: u8| header(S, &format!("84 a162 {value:02x} a161 82 a162 01 a161 02 a162 03 a163 04"));
    let input = headers(&(0..4).map(row).collect::<Vec<_>>());
    let batch = rows(&Options::default(), &input);
    let expected = "{a:{a:Int8(2) b:Int8(1) } b:Int8(3) c:Int8(4) }".to_owned();
    assert_eq!(variants(batch.column_by_name("tags").unwrap()), vec![Some(expected); 4]);
}

#[test]
fn typed_tags_are_not_in_the_variant_of_the_others() {
    let tags = Tags::new(vec![("run".to_owned(), TagType::BigInt)], Some(RestType::Variant)).unwrap();
    let options = Options { tags, ..Options::default() };
    let batch = rows(&options, &headers(&[header(S, "82 a372756e 07 a161 01"), header(S, "81 a372756e a178")]));
    assert_eq!(bigints(&batch, "tag_run"), [Some(7), None]);
    assert_eq!(variants(batch.column_by_name("tags").unwrap()), ["{a:Int8(1) }", "{}"].map(|t| Some(t.to_owned())));
}

#[test]
fn tags_beyond_a_variant_are_null() {
    // The object and the binary take 14 bytes before its first byte.
    let bytes = (16 << 20) - 14;
    let mut row = unhex(S);
    row.extend(unhex("81 a161 c6"));
    row.extend(u32::try_from(bytes).unwrap().to_be_bytes());
    row.resize(row.len() + bytes, 0);
    let fits = rows(&Options::default(), &headers(&[Some(row.clone())]));
    assert_eq!(strings(&fits, "error"), [None]);
    let at = unhex(S).len() + 4;
    row[at..at + 4].copy_from_slice(&u32::try_from(bytes + 1).unwrap().to_be_bytes());
    row.push(0);
    let exceeds = rows(&Options::default(), &headers(&[Some(row)]));
    assert_eq!(strings(&exceeds, "error"), [Some("tags_exceed_variant")]);
    assert_eq!(exceeds.column_by_name("tags").unwrap().null_count(), 1);
    assert_eq!(strings(&exceeds, "sender"), [Some("d")]);
}

fn tags_json(hex: &str) -> String {
    let tags = Tags::new(vec![], Some(RestType::Json)).unwrap();
    let batch = rows(&Options { tags, ..Options::default() }, &headers(&[header(S, hex)]));
    assert_eq!(strings(&batch, "error"), [None]);
    strings(&batch, "tags")[0].unwrap().to_owned()
}

#[test] // req: CDTP-07
fn json_holds_every_value() {
    assert_eq!(tags_json("80"), "{}");
    assert_eq!(tags_json("83 a162 c0 a161 c3 a163 c2"), r#"{"b":null,"a":true,"c":false}"#);
    assert_eq!(
        tags_json("84 a161 e0 a162 cf0020000000000001 a163 d38000000000000000 a164 cfffffffffffffffff"),
        r#"{"a":-32,"b":9007199254740993,"c":-9223372036854775808,"d":18446744073709551615}"#
    );
    assert_eq!(
        tags_json("83 a161 ca3dcccccd a162 cb3fb999999999999a a163 cb7e37e43c8800759c"),
        r#"{"a":0.1,"b":0.1,"c":1e+300}"#
    );
    assert_eq!(
        tags_json("84 a161 ca7fc00000 a162 ca7f800000 a163 cbfff0000000000000 a164 cb7ff8000000000000"),
        r#"{"a":"NaN","b":"Infinity","c":"-Infinity","d":"NaN"}"#
    );
    assert_eq!(tags_json("82 a161 c402ff00 a162 c400"), r#"{"a":"/wA=","b":""}"#);
    assert_eq!(tags_json("81 a161 a4c3a9220a"), r#"{"a":"é\"\n"}"#);
    assert_eq!(tags_json("81 a122 93 01 90 81a16100"), r#"{"\"":[1,[],{"a":0}]}"#);
    assert_eq!(tags_json("81 a161 d7ff 0000001400000001"), r#"{"a":1000000005}"#);
    assert_eq!(tags_json("81 a161 c70cff 00000001 00000003f5c0da00"), r#"{"a":17007958528000000001}"#);
    assert_eq!(tags_json("81 a161 c70380010203"), r#"{"a":{"data":"AQID","ext":-128}}"#);
    assert_eq!(tags_json("81 a161 82 01 02 a162 03"), r#"{"a":[{"key":1,"value":2},{"key":"b","value":3}]}"#);
}

#[test] // req: CDTP-07
fn of_equal_names_json_has_the_last() {
    assert_eq!(tags_json("84 a176 a178 a177 02 a176 a161 a176 03"), r#"{"w":2,"v":3}"#);
    assert_eq!(tags_json("81 a161 82 a162 01 a162 82 a163 01 a163 02"), r#"{"a":{"b":{"c":2}}}"#);
}

#[test]
fn typed_tags_are_not_in_the_json_of_the_others() {
    let tags = Tags::new(vec![("run".to_owned(), TagType::BigInt)], Some(RestType::Json)).unwrap();
    let options = Options { tags, ..Options::default() };
    let input = [header(S, "82 a372756e 07 a161 01"), header(S, "c0"), header(S, "81 a372756e a178")];
    let batch = rows(&options, &headers(&input));
    assert_eq!(bigints(&batch, "tag_run"), [Some(7), None, None]);
    assert_eq!(strings(&batch, "tags"), [Some(r#"{"a":1}"#), None, Some("{}")]);
}

#[test]
fn tags_without_end_cost_a_few_times_their_bytes() {
    // Arrays of nil, of empty maps, and maps with keys that are no strings: of 6 MB each.
    let count = 6_000_000_u32;
    for (head, pair) in [("dd", vec![0xc0]), ("dd", vec![0x80]), ("df", vec![0x00, 0xc0])] {
        let mut row = unhex(&format!("{S} 82 a172 07 a161 {head}"));
        let members = count / u32::try_from(pair.len()).unwrap();
        row.extend(members.to_be_bytes());
        row.extend(pair.repeat(members as usize));
        let tags = Tags::new(vec![("r".to_owned(), TagType::BigInt)], Some(RestType::Variant)).unwrap();
        let batch = rows(&Options { tags, ..Options::default() }, &headers(&[Some(row)]));
        assert_eq!(strings(&batch, "error"), [Some("tags_exceed_variant")]);
        assert_eq!(bigints(&batch, "tag_r"), [Some(7)], "what was asked for by name is there");
    }
}

/// A CDTP2 message: a name of this length, and so many empty records.
fn records(name: usize, count: u32) -> Option<Vec<u8>> {
    let mut message = unhex("a54344545002 db");
    message.extend(u32::try_from(name).unwrap().to_be_bytes());
    message.resize(message.len() + name, b'x');
    message.extend([0x00, 0xdd]);
    message.extend(count.to_be_bytes());
    for number in 0..count {
        message.extend([0x93, 0xce]);
        message.extend(number.to_be_bytes());
        message.extend([0x80, 0x90]);
    }
    Some(message)
}

#[test]
fn a_batch_is_cut_by_bytes() {
    let mut long = unhex("a54344545001 db000f4240");
    long.resize(long.len() + 1_000_000, b'x');
    long.extend(unhex("d7ff 0000001400000001 80"));
    let mut input = vec![Some(long); 150];
    input.insert(70, None);
    let batches = batches(&Options::default(), &headers(&input));
    let sizes: Vec<_> = batches.iter().map(|rows| rows.columns.num_rows()).collect();
    assert_eq!(sizes.len(), 3, "{sizes:?}");
    assert_eq!(sizes.iter().sum::<usize>(), 151);
    for rows in &batches {
        assert!(rows.columns.get_array_memory_size() < 2 * BATCH_BYTES + 4_000_000);
    }
    let source: Vec<_> = batches.iter().flat_map(|rows| rows.source.values().to_vec()).collect();
    assert_eq!(source, (0..151).collect::<Vec<_>>());
}

#[test] // req: CDTP-10
fn the_records_of_one_message_are_cut_too() {
    let input = headers(&[header(S, "80"), records(300_000, 500), header(S, "80")]);
    let batches = batches(&Options::default(), &input);
    assert!(batches.len() > 2, "{}", batches.len());
    let column = |name: &str| batches.iter().flat_map(|rows| bigints(&rows.columns, name)).collect::<Vec<_>>();
    let sequence: Vec<_> = iter::once(None).chain((0..500).map(Some)).chain([None]).collect();
    assert_eq!(column("sequence"), sequence);
    let record: Vec<_> = batches.iter().flat_map(|rows| ints(&rows.columns, "record")).flatten().collect();
    assert_eq!(record, iter::once(0).chain(0..500).chain([0]).collect::<Vec<_>>());
    let source: Vec<_> = batches.iter().flat_map(|rows| rows.source.values().to_vec()).collect();
    assert_eq!(source, iter::once(0).chain(iter::repeat_n(1, 500)).chain([2]).collect::<Vec<_>>());
    for rows in &batches {
        assert!(rows.columns.get_array_memory_size() < 2 * BATCH_BYTES + 2_000_000);
    }
}

#[test]
fn a_message_whose_rows_no_column_holds_is_a_row_that_says_so() {
    let input = headers(&[header(S, "80"), records(32_000, 70_000), header(S, "c0")]);
    for mode in [Mode::Permissive, Mode::DropMalformed] {
        let batch = rows(&Options { mode, ..Options::default() }, &input);
        let expected = [None, Some("message_too_large"), Some("bad_header")];
        assert_eq!(strings(&batch, "error"), expected[..batch.num_rows()]);
        assert_eq!(strings(&batch, "sender")[1], None);
    }
    let error = decode_rows(&Options { mode: Mode::FailFast, ..Options::default() }, &input).unwrap_err();
    assert_eq!((error.slug(), error.to_string().contains("2 GiB")), (Some("message_too_large"), true));
    let records = structs(&Options::default(), &input);
    let records = records.column_by_name("records").unwrap().as_list::<i32>();
    assert_eq!(records.value_length(1), 70_000, "a struct says the name once");
}

#[test]
fn a_large_message_among_small_ones_stands() {
    let mut large = unhex(&format!("{S} 81 a161 c6"));
    let bytes = 150 << 20;
    large.extend(u32::try_from(bytes).unwrap().to_be_bytes());
    large.resize(large.len() + bytes, 7);
    let input = headers(&[header(S, "80"), Some(large), header(S, "80")]);
    let options = typed(&[("a", TagType::Binary)]);
    let batches = batches(&options, &input);
    let sizes: Vec<_> = batches.iter().map(|rows| rows.columns.num_rows()).collect();
    assert_eq!(sizes, [1, 1, 1]);
    assert_eq!(batches[1].columns.column_by_name("tag_a").unwrap().as_binary::<i32>().value(0).len(), bytes);
    let structs = structs(&options, &input);
    assert_eq!(structs.column_by_name("tag_a").unwrap().as_binary::<i32>().value(1).len(), bytes);
    assert_eq!(structs.column_by_name("error").unwrap().null_count(), 3);
}

fn structs(options: &Options, input: &Parts) -> StructArray {
    let structs = decode_structs(options, input).unwrap();
    assert_eq!(structs.fields(), &struct_fields(options).unwrap());
    structs
}

#[test] // req: CDTP-22
fn a_struct_holds_a_whole_header() {
    let input = headers(&[
        header(B, "00 05 81 a176 01"),
        None,
        header(S, "c0"),
        header(TWO, "00 92 93 01 81 a176 02 92 c401ff c400 93 02 80 91 c4020000"),
        header(TWO, "02 90"),
    ]);
    let structs = structs(&typed(&[("v", TagType::BigInt)]), &input);
    assert_eq!((0..5).map(|row| structs.is_null(row)).collect::<Vec<_>>(), [false, true, false, false, false]);
    let batch = RecordBatch::from(StructArray::new(structs.fields().clone(), structs.columns().to_vec(), None));
    assert_eq!(strings(&batch, "variant"), [Some("B"), None, None, Some("2"), Some("2")]);
    assert_eq!(bigints(&batch, "sequence"), [Some(5), None, None, None, None]);
    assert_eq!(bigints(&batch, "tag_v"), [Some(1), None, None, None, None]);
    assert_eq!(ints(&batch, "payload_frames"), [None, None, None, Some(3), Some(0)]);
    assert_eq!(bigints(&batch, "payload_bytes"), [None, None, None, Some(3), Some(0)]);
    assert_eq!(strings(&batch, "error"), [None, None, Some("bad_header"), None, None]);
    let records = batch.column_by_name("records").unwrap().as_list::<i32>();
    assert_eq!((0..5).map(|row| records.is_null(row)).collect::<Vec<_>>(), [true, true, true, false, false]);
    let records = RecordBatch::from(records.value(3).as_struct());
    assert_eq!(bigints(&records, "sequence"), [Some(1), Some(2)]);
    assert_eq!(bigints(&records, "tag_v"), [Some(2), None]);
    assert_eq!(ints(&records, "payload_frames"), [Some(2), Some(1)]);
}

#[test]
fn a_column_function_drops_nothing() {
    let options = Options { mode: Mode::DropMalformed, ..Options::default() };
    assert_eq!(struct_fields(&options), Err(PlanError::DropInFunction));
    assert!(matches!(decode_structs(&options, &headers(&[])), Err(ColumnError::Input(_))));
    let options = Options { mode: Mode::FailFast, ..Options::default() };
    let error = decode_structs(&options, &headers(&[header(S, "c0")])).unwrap_err();
    assert_eq!(error.slug(), Some("bad_header"));
}

#[test]
fn columns_of_any_width_and_offset_are_read() {
    let rows_in = [header(S, "80"), None, header(B, "00 01 80"), header(S, "c0"), header(B, "00 02 80")];
    let rows_in = rows_in.iter().map(Option::as_deref);
    let columns: [ArrayRef; 3] = [
        Arc::new(rows_in.clone().collect::<BinaryArray>()),
        Arc::new(rows_in.clone().collect::<LargeBinaryArray>()),
        Arc::new(rows_in.collect::<BinaryViewArray>()),
    ];
    let counts: ArrayRef = Arc::new(Int32Array::from(vec![9, 9, 1, 9, 2]));
    let expected = rows(
        &Options::default(),
        &Parts {
            n_frames: Some(counts.slice(1, 4)),
            ..headers(&[None, header(B, "00 01 80"), header(S, "c0"), header(B, "00 02 80")])
        },
    );
    for column in columns {
        let input = Parts { header: Some(column.slice(1, 4)), n_frames: Some(counts.slice(1, 4)), ..Parts::default() };
        assert_eq!(rows(&Options::default(), &input), expected);
    }
}

#[test]
fn columns_that_cannot_be_are_refused() {
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let good = headers(&[header(S, "80")]);
    for (input, reason) in [
        (Parts { header: Some(Arc::clone(&numbers)), ..good.clone() }, "header is Int32"),
        (Parts { n_frames: good.header.clone(), ..good.clone() }, "n_frames is Binary"),
        (Parts { payload: Some(Arc::clone(&numbers)), ..good.clone() }, "payload is Int32"),
        (Parts { n_bytes: Some(numbers.slice(0, 0)), ..good.clone() }, "n_bytes has 0 rows"),
        (Parts { header: None, ..good.clone() }, "no column header"),
    ] {
        let error = decode_rows(&Options::default(), &input).unwrap_err();
        assert!(error.to_string().starts_with(reason), "{error}");
    }
}

#[test]
fn no_rows_give_no_rows() {
    let batch = rows(&Options { payload: Payload::Frames, ..Options::default() }, &headers(&[]));
    assert_eq!(batch.num_rows(), 0);
    assert_eq!(structs(&Options::default(), &headers(&[])).len(), 0);
}

#[test]
fn the_schema_is_written_in_the_words_of_spark() {
    let tags = Tags::new(vec![("run".to_owned(), TagType::BigInt)], Some(RestType::Variant)).unwrap();
    let options = Options { tags, payload: Payload::Frames, ..Options::default() };
    assert_eq!(
        ddl(&row_fields(&options)),
        "`record` INT, `variant` STRING, `sender` STRING, `timestamp_ns` BIGINT, `timestamp` TIMESTAMP_LTZ, \
         `type` STRING, `sequence` BIGINT, `tag_run` BIGINT, `tags` VARIANT, `payload_frames` INT, \
         `payload_bytes` BIGINT, `payload` ARRAY<BINARY>, `error` STRING, `_corrupt_record` BINARY"
    );
    assert!(ddl(&struct_fields(&options).unwrap()).ends_with(
        "`records` ARRAY<STRUCT<`sequence`: BIGINT, `tag_run`: BIGINT, `tags`: VARIANT, `payload_frames`: INT, \
         `payload_bytes`: BIGINT, `payload`: ARRAY<BINARY>>>"
    ));
}
