//! mc0 messages as columns, on frames put together by hand.
#![allow(clippy::unwrap_used)] // a test fails where something is not as it says

use std::{collections::HashSet, slice, sync::Arc};

use arrow_array::{
    Array, ArrayRef, BinaryArray, Int32Array, Int64Array, LargeBinaryArray, RecordBatch, StructArray,
    builder::{BinaryBuilder, BinaryViewBuilder, LargeListBuilder, ListBuilder},
    cast::AsArray,
    types::{Int32Type, Int64Type},
};
use proptest::prelude::*;
use trunkline_columns::{
    ColumnError, Mode, Parts, Payload, PlanError, Rows, ddl, mc0::Options, row_fields, struct_fields,
};
use trunkline_wire::{
    ErrorKind, Protocol,
    mc0::{Layout, Mc0, Settings, Verb, decode},
};

fn decode_rows(options: &Options, parts: &Parts) -> Result<Rows, ColumnError> {
    let mut batches = trunkline_columns::decode_rows::<Mc0>(options.clone(), parts.clone())?;
    let rows = batches.next().unwrap();
    assert!(batches.next().is_none());
    rows
}

fn decode_structs(options: &Options, parts: &Parts) -> Result<StructArray, ColumnError> {
    trunkline_columns::decode_structs::<Mc0>(options, parts)
}

type Message = Vec<Vec<u8>>;

fn message(frames: &[&[u8]]) -> Message {
    frames.iter().map(|frame| frame.to_vec()).collect()
}

fn list<'a>(rows: impl IntoIterator<Item = Option<&'a [Vec<u8>]>>) -> ArrayRef {
    let mut column = ListBuilder::new(BinaryBuilder::new());
    for row in rows {
        row.into_iter().flatten().for_each(|frame| column.values().append_value(frame));
        column.append(row.is_some());
    }
    Arc::new(column.finish())
}

/// The columns of a capture.
fn parts(messages: &[Option<Message>]) -> Parts {
    let split: Vec<_> =
        messages.iter().map(|message| message.as_ref().map(|frames| (frames, Mc0::split(frames)))).collect();
    let split = || split.iter().map(Option::as_ref);
    Parts {
        envelope: Some(list(split().map(|row| row.map(|(frames, split)| &frames[split.envelope.clone()])))),
        header: Some(Arc::new(
            split()
                .map(|row| row.and_then(|(frames, split)| split.header.map(|at| &frames[at])))
                .collect::<BinaryArray>(),
        )),
        payload: Some(list(split().map(|row| row.map(|(frames, split)| &frames[split.payload.clone()])))),
        ..Parts::default()
    }
}

fn parts_of(messages: &[&[&[u8]]]) -> Parts {
    parts(&messages.iter().map(|frames| Some(message(frames))).collect::<Vec<_>>())
}

fn rows(options: &Options, input: &Parts) -> RecordBatch {
    let rows = decode_rows(options, input).unwrap();
    assert_eq!(rows.columns.schema().fields(), &row_fields::<Mc0>(options));
    assert_eq!(rows.source.len(), rows.columns.num_rows());
    rows.columns
}

fn strings<'a>(batch: &'a RecordBatch, name: &str) -> Vec<Option<&'a str>> {
    batch.column_by_name(name).unwrap().as_string::<i32>().iter().collect()
}

fn lists(batch: &RecordBatch, name: &str) -> Vec<Option<Message>> {
    let column = batch.column_by_name(name).unwrap().as_list::<i32>();
    let frames = |row: ArrayRef| row.as_binary::<i32>().iter().map(|frame| frame.unwrap().to_vec()).collect();
    column.iter().map(|row| row.map(frames)).collect()
}

fn topics(batch: &RecordBatch) -> Vec<Option<Vec<String>>> {
    let texts = |row: ArrayRef| row.as_string::<i32>().iter().map(|text| text.unwrap().to_owned()).collect();
    batch.column_by_name("topics").unwrap().as_list::<i32>().iter().map(|row| row.map(texts)).collect()
}

type Pairs = Vec<(String, String)>;

fn headers(batch: &RecordBatch) -> Vec<Option<Pairs>> {
    let pairs = |row: StructArray| {
        let [keys, values] = [0, 1].map(|column| row.column(column).as_string::<i32>().clone());
        keys.iter().zip(&values).map(|(key, value)| (key.unwrap().to_owned(), value.unwrap().to_owned())).collect()
    };
    batch.column_by_name("headers").unwrap().as_map().iter().map(|row| row.map(pairs)).collect()
}

fn sizes(batch: &RecordBatch) -> Vec<Option<(i32, i64)>> {
    let frames = batch.column_by_name("body_frames").unwrap().as_primitive::<Int32Type>();
    let bytes = batch.column_by_name("body_bytes").unwrap().as_primitive::<Int64Type>();
    frames.iter().zip(bytes).map(|(frames, bytes)| frames.zip(bytes)).collect()
}

fn ttls(batch: &RecordBatch) -> Vec<Option<i64>> {
    batch.column_by_name("ttl_ms").unwrap().as_primitive::<Int64Type>().iter().collect()
}

const WITH_BODY: Options =
    Options { settings: Settings { max_ttl_ms: 86_400_000 }, mode: Mode::Permissive, payload: Payload::Frames };

/// A message of every verb.
fn all_verbs() -> Parts {
    parts_of(&[
        &[b"", b"CONNECT", b"TTL", b"01000", b"VERSION", b"0.3", b"ID", b"1"],
        &[b"DISCONNECT"],
        &[b"", b"SUB", b"ID", b"2", b"", b"a", b"", b"b c"],
        &[b"UNSUB"],
        &[b"", b"PUT", b"TOPIC", b"a", b"X-One", b"1", b"ID", b"", b"", b"abc", b"", b"d"],
        &[b"NOOP", b"FOO", b"1"],
        &[b"MESSAGE", b"TOPIC", b"", b"X-One", b"1", b"FOO", b"", b"X-", b""],
        &[b"", b"OK", b"ID", b"2"],
        &[b"", b"ERROR", b"MESSAGE", b"no such thing", b"ID", b"3", b""],
    ])
}

// req: MC0-06, MC0-08, MC0-09
#[test]
fn every_message_gives_a_row_of_what_it_says() {
    let batch = rows(&WITH_BODY, &all_verbs());
    assert_eq!(strings(&batch, "verb"), Verb::ALL.map(|verb| Some(verb.name())));
    let texts = |rows: &[(usize, &'static str)]| {
        let mut column = [None; 9];
        for (row, text) in rows {
            column[*row] = Some(*text);
        }
        column
    };
    assert_eq!(strings(&batch, "topic"), texts(&[(4, "a"), (6, "")]));
    assert_eq!(topics(&batch)[2..4], [Some(vec!["a".to_owned(), String::new(), "b c".to_owned()]), Some(vec![])]);
    assert_eq!(topics(&batch).iter().flatten().count(), 2);
    let ids = [Some("1"), None, Some("2"), None, Some(""), None, None, Some("2"), Some("3")];
    assert_eq!(strings(&batch, "id"), ids);
    assert_eq!(strings(&batch, "version"), texts(&[(0, "0.3")]));
    assert_eq!(ttls(&batch), [Some(1000), None, None, None, None, None, None, None, None]);
    let pairs =
        |pairs: &[(&str, &str)]| Some(pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect());
    let mut own = vec![Some(Pairs::new()); 9];
    own[4] = pairs(&[("X-One", "1")]);
    own[6] = pairs(&[("X-One", "1"), ("X-", "")]);
    assert_eq!(headers(&batch), own);
    assert_eq!(strings(&batch, "text"), texts(&[(8, "no such thing")]));
    assert_eq!(lists(&batch, "body")[4], Some(message(&[b"abc", b"", b"d"])));
    assert_eq!(lists(&batch, "body")[6], Some(vec![]));
    let mut counts = [None; 9];
    (counts[4], counts[6]) = (Some((3, 4)), Some((0, 0)));
    assert_eq!(sizes(&batch), counts);
    assert_eq!(lists(&batch, "body").iter().flatten().count(), 2);
    assert_eq!(strings(&batch, "error"), [None; 9]);
    assert_eq!(batch.column_by_name("_corrupt_record").unwrap().null_count(), 9);
}

#[test]
fn what_a_verb_has_no_use_for_is_in_no_column() {
    let batch = rows(
        &WITH_BODY,
        &parts_of(&[
            &[b"NOOP", b"TOPIC", b"t", b"VERSION", b"9", b"TTL", b"x", b"MESSAGE", b"m", b"", b"positional"],
            &[b"CONNECT", b"TTL", b"0", b"", b"positional"],
        ]),
    );
    for name in ["topic", "version", "text"] {
        assert_eq!(strings(&batch, name), [None; 2], "{name}");
    }
    assert_eq!(ttls(&batch), [None, Some(0)]);
    assert_eq!((topics(&batch), sizes(&batch)), (vec![None; 2], vec![None; 2]));
}

// req: MC0-05
#[test]
fn what_is_no_text_is_replaced_and_the_last_of_equal_headers_stays() {
    let batch = rows(
        &WITH_BODY,
        &parts_of(&[
            &[
                b"PUT",
                b"TOPIC",
                b"t\xff\xe2\x82z",
                b"ID",
                b"\x80",
                b"X-a",
                b"1",
                b"X-b",
                b"\xff",
                b"X-a",
                b"2",
                b"",
                b"\xff",
            ],
            &[b"PUT", b"TOPIC", b"t", b"X-\xfe", b"1", b"X-\xff", b"2", b"x-a", b"3"],
            &[b"SUB", b"", b"\xff", "é".as_bytes()],
        ]),
    );
    assert_eq!(strings(&batch, "topic"), [Some("t\u{fffd}\u{fffd}z"), Some("t"), None]);
    assert_eq!(strings(&batch, "id"), [Some("\u{fffd}"), None, None]);
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(
        headers(&batch),
        [Some(vec![pair("X-b", "\u{fffd}"), pair("X-a", "2")]), Some(vec![pair("X-\u{fffd}", "2")]), Some(vec![]),]
    );
    assert_eq!(topics(&batch)[2], Some(vec!["\u{fffd}".to_owned(), "é".to_owned()]));
    assert_eq!(lists(&batch, "body")[0], Some(message(&[b"\xff"])));
}

// req: MC0-32
#[test]
fn a_body_that_is_left_out_is_counted() {
    let head: &[&[u8]] = &[b"", b"PUT", b"TOPIC", b"t", b""];
    let input = Parts {
        n_frames: Some(Arc::new(Int32Array::from(vec![Some(9), None, Some(3), Some(-1)]))),
        n_bytes: Some(Arc::new(Int64Array::from(vec![Some(100), Some(9), Some(i64::MAX), None]))),
        ..parts_of(&[head; 4])
    };
    let batch = rows(&Options::default(), &input);
    assert_eq!(sizes(&batch), [Some((4, 91)), Some((0, 0)), Some((0, i64::MAX - 9)), Some((0, 0))]);
    assert!(batch.column_by_name("body").is_none());
}

// req: MC0-20, MC0-24, MC0-34
#[test]
fn what_is_no_message_is_kept_refused_or_left_out() {
    let good = message(&[b"NOOP"]);
    let bad: &[(&[&[u8]], ErrorKind)] = &[
        (&[], ErrorKind::MissingVerb),
        (&[b"", b"PING"], ErrorKind::UnknownVerb),
        (&[b"NOOP", b"ID"], ErrorKind::OddHeaders),
        (&[b"CONNECT", b"VERSION", b"1.0"], ErrorKind::UnsupportedVersion),
        (&[b"CONNECT", b"TTL", b"-1"], ErrorKind::BadTtl),
        (&[b"PUT", b"", b"body"], ErrorKind::MissingTopic),
        (&[b"OK"], ErrorKind::MissingId),
    ];
    let mut messages = vec![Some(good), None];
    messages.extend(bad.iter().map(|(frames, _)| Some(message(frames))));
    let input = parts(&messages);
    let options = |mode| Options { mode, ..WITH_BODY };

    let batch = rows(&options(Mode::Permissive), &input);
    let errors: Vec<_> = [None, None].into_iter().chain(bad.iter().map(|(_, kind)| Some(kind.slug()))).collect();
    assert_eq!(strings(&batch, "error"), errors);
    assert_eq!(strings(&batch, "verb").iter().flatten().collect::<Vec<_>>(), [&"NOOP"]);
    assert_eq!(headers(&batch).iter().flatten().count(), 1);
    assert_eq!(lists(&batch, "_corrupt_record")[..2], [None, None]);
    assert_eq!(lists(&batch, "_corrupt_record")[2..], messages[2..]);

    let error = decode_rows(&options(Mode::FailFast), &input).unwrap_err();
    assert_eq!(error.slug(), Some("missing_verb"));
    assert!(error.to_string().starts_with("row 2 of the batch: missing_verb in frame 0 at byte 0"), "{error}");
    assert_eq!(decode_structs(&options(Mode::FailFast), &input).unwrap_err().slug(), Some("missing_verb"));

    let decoded = decode_rows(&options(Mode::DropMalformed), &input).unwrap();
    assert_eq!(decoded.source.values(), &[0, 1]);
    assert_eq!(strings(&decoded.columns, "verb"), [Some("NOOP"), None]);
    assert!(decoded.columns.column_by_name("_corrupt_record").is_none());
}

#[test]
fn structs_have_the_fields_of_rows_and_are_null_where_nothing_is() {
    let input = parts(&[Some(message(&[b"NOOP"])), None, Some(message(&[b"PUT"]))]);
    let structs = decode_structs(&WITH_BODY, &input).unwrap();
    assert_eq!(structs.fields(), &struct_fields::<Mc0>(&WITH_BODY).unwrap());
    assert_eq!([0, 1, 2].map(|row| structs.is_null(row)), [false, true, false]);
    assert_eq!(unwrapped(&structs), rows(&WITH_BODY, &input));
    let options = Options { mode: Mode::DropMalformed, ..WITH_BODY };
    assert_eq!(struct_fields::<Mc0>(&options), Err(PlanError::DropInFunction));
}

fn unwrapped(structs: &StructArray) -> RecordBatch {
    RecordBatch::from(StructArray::new(structs.fields().clone(), structs.columns().to_vec(), None))
}

#[test]
fn columns_of_any_width_and_offset_are_read() {
    let input = all_verbs();
    let expected = rows(&WITH_BODY, &input).slice(2, 5);
    let [envelope, header, payload_lists] =
        [input.envelope, input.header, input.payload].map(|column| column.unwrap().slice(2, 5));
    let header: ArrayRef = Arc::new(header.as_binary::<i32>().iter().collect::<LargeBinaryArray>());
    let mut payload = LargeListBuilder::new(BinaryViewBuilder::new());
    for row in payload_lists.as_list::<i32>().iter().flatten() {
        row.as_binary::<i32>().iter().flatten().for_each(|frame| payload.values().append_value(frame));
        payload.append(true);
    }
    let payload: ArrayRef = Arc::new(payload.finish());
    let sliced = Parts { envelope: Some(envelope), header: Some(header), payload: Some(payload), ..Parts::default() };
    assert_eq!(rows(&WITH_BODY, &sliced), expected);
}

#[test]
fn the_schema_is_written_in_the_words_of_spark() {
    assert_eq!(
        ddl(&row_fields::<Mc0>(&WITH_BODY)),
        "`verb` STRING, `topic` STRING, `topics` ARRAY<STRING>, `id` STRING, `version` STRING, `ttl_ms` BIGINT, \
         `headers` MAP<STRING, STRING>, `text` STRING, `body_frames` INT, `body_bytes` BIGINT, `body` ARRAY<BINARY>, \
         `error` STRING, `_corrupt_record` ARRAY<BINARY>"
    );
    assert_eq!(rows(&WITH_BODY, &parts(&[])).num_rows(), 0);
}

/// Frames that often are a message, or nearly.
fn frames() -> impl Strategy<Value = Message> {
    let verb = prop::sample::select(&Verb::ALL[..]).prop_map(|verb| verb.name().as_bytes().to_vec());
    let key = prop::sample::select(vec!["ID", "TOPIC", "VERSION", "TTL", "MESSAGE", "X-a", "X-b", "X-\u{7}"]);
    let value = prop_oneof![
        2 => prop::collection::vec(any::<u8>(), 0..4),
        1 => (0_u32..9).prop_map(|digit| digit.to_string().into_bytes()),
    ];
    let pair = (key, value.clone()).prop_map(|(key, value)| [key.as_bytes().to_vec(), value]);
    let pairs = prop::collection::vec(pair, 0..6);
    let body = prop::option::of(prop::collection::vec(value.clone(), 0..4));
    (any::<bool>(), prop_oneof![9 => verb, 1 => value.clone()], pairs, prop::option::weighted(0.1, value), body)
        .prop_map(|(is_delimited, verb, pairs, odd, body)| {
            let mut frames = if is_delimited { vec![vec![]] } else { vec![] };
            frames.push(verb);
            frames.extend(pairs.into_iter().flatten().chain(odd));
            frames.extend(body.into_iter().flat_map(|body| [vec![]].into_iter().chain(body)));
            frames
        })
}

proptest! {
    #[test]
    fn a_batch_says_what_each_message_alone_says(
        messages in prop::collection::vec(prop::option::weighted(0.9, frames()), 0..12),
    ) {
        let options = |mode| Options { mode, ..WITH_BODY };
        let input = parts(&messages);
        let batch = rows(&options(Mode::Permissive), &input);
        prop_assert_eq!(batch.num_rows(), messages.len());
        for (row, message) in messages.iter().enumerate() {
            let alone = rows(&options(Mode::Permissive), &parts(slice::from_ref(message)));
            prop_assert_eq!(&alone, &batch.slice(row, 1));
            check(&alone, message.as_ref())?;
        }
        prop_assert_eq!(&unwrapped(&decode_structs(&options(Mode::Permissive), &input).unwrap()), &batch);

        let is_bad =
            |message: &Option<Message>| message.as_ref().is_some_and(|frames| decode(frames, Settings::default()).is_err());
        let kept = decode_rows(&options(Mode::DropMalformed), &input).unwrap();
        let good: Vec<_> = (0_u32..).zip(&messages).filter(|(_, each)| !is_bad(each)).map(|(row, _)| row).collect();
        prop_assert_eq!(kept.source.values(), &good[..]);
        prop_assert_eq!(decode_rows(&options(Mode::FailFast), &input).is_err(), messages.iter().any(is_bad));
    }
}

/// Compares a row with the codec.
fn check(row: &RecordBatch, message: Option<&Message>) -> Result<(), TestCaseError> {
    let decoded = message.map(|frames| decode(frames, Settings::default()));
    let good = decoded.as_ref().and_then(|decoded| decoded.as_ref().ok());
    let text = |of: &[Verb], at: fn(&Layout) -> Option<usize>| {
        let at = good.filter(|layout| of.contains(&layout.verb)).and_then(at)?;
        Some(String::from_utf8_lossy(&message?[at]).into_owned())
    };
    prop_assert_eq!(strings(row, "verb")[0], good.map(|layout| layout.verb.name()));
    for (name, of, at) in [
        ("topic", &[Verb::Put, Verb::Message][..], (|layout| layout.topic) as fn(&Layout) -> Option<usize>),
        ("id", &Verb::ALL, |layout| layout.id),
        ("version", &[Verb::Connect], |layout| layout.version),
        ("text", &[Verb::Error], |layout| layout.text),
    ] {
        let said = text(of, at);
        prop_assert_eq!(strings(row, name)[0], said.as_deref());
    }
    let ttl = good.and_then(|layout| layout.ttl).map(|ttl| ttl.as_millis().try_into().unwrap());
    prop_assert_eq!(ttls(row)[0], ttl);
    let found = headers(row).remove(0);
    prop_assert_eq!(found.is_some(), good.is_some());
    for (layout, frames) in good.into_iter().zip(message) {
        let value = |key: usize| String::from_utf8_lossy(&frames[key + 1]).into_owned();
        let all: Vec<_> = layout.keys().filter(|key| frames[*key].starts_with(b"X-")).collect();
        for (name, found) in found.iter().flatten() {
            let last = all.iter().rfind(|key| frames[**key] == name.as_bytes()).unwrap();
            prop_assert_eq!(found, &value(*last));
        }
        let names: HashSet<_> = all.iter().map(|key| &frames[*key]).collect();
        prop_assert_eq!(found.as_ref().map(Vec::len), Some(names.len()));
    }
    let positional = |of: &[Verb]| {
        let layout = good.filter(|layout| of.contains(&layout.verb))?;
        Some(message?[layout.positional()].to_vec())
    };
    let texts = |frames: Message| frames.iter().map(|frame| String::from_utf8_lossy(frame).into_owned()).collect();
    prop_assert_eq!(topics(row).remove(0), positional(&[Verb::Sub, Verb::Unsub]).map(texts));
    let body = positional(&[Verb::Put, Verb::Message]);
    let bytes = |body: &Message| body.iter().map(Vec::len).sum::<usize>();
    let counts = body.as_ref().map(|body| (body.len().try_into().unwrap(), bytes(body).try_into().unwrap()));
    prop_assert_eq!(sizes(row)[0], counts);
    prop_assert_eq!(&lists(row, "body")[0], &body);
    let error = decoded.as_ref().and_then(|decoded| decoded.as_ref().err()).map(|error| error.kind);
    prop_assert_eq!(strings(row, "error")[0], error.map(ErrorKind::slug));
    prop_assert_eq!(&lists(row, "_corrupt_record")[0], &message.filter(|_| error.is_some()).cloned());
    Ok(())
}
