//! The vectors in `tests/vectors/mtl`, which Python reads too.
#![allow(clippy::unwrap_used)] // a vector that is not as described fails the test

mod written;

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use trunkline_wire::mtl::control::{Command, Reply};
use trunkline_wire::mtl::data::{self, Kind, Layout};
use trunkline_wire::mtl::table::{self, Table, Value, Writer};
use trunkline_wire::mtl::{Control, Data, Spoken, decode};
use trunkline_wire::{ErrorKind, Frames, Protocol as _};
use written::{Vector, frames, hex};

fn vectors() -> Vec<Vector> {
    written::vectors("mtl")
}

fn float(value: f64) -> Json {
    let special = !value.is_finite() || (value == 0.0 && value.is_sign_negative());
    if special { json!(format!("{value:?}").to_lowercase()) } else { json!(value) }
}

fn fields(mut table: Table<'_>) -> Vec<Json> {
    std::iter::from_fn(|| table.next_field().unwrap()).map(|(name, value)| json!([name, described(value)])).collect()
}

fn described(value: Value<'_>) -> Json {
    match value {
        Value::Bool(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::Float(value) => json!({"f64": float(value)}),
        Value::Decimal(places, digits) => json!({"decimal": [places, digits]}),
        Value::Text(text) => std::str::from_utf8(text).map_or_else(|_| json!({"bin": hex(text)}), |text| json!(text)),
        Value::Bytes(bytes) => json!({"bin": hex(bytes)}),
        Value::Time(seconds) => json!({"time": seconds}),
        Value::Void => Json::Null,
        Value::Table(table) => json!({"map": fields(table)}),
        Value::Array(mut array) => std::iter::from_fn(|| array.next_value().unwrap()).map(described).collect(),
    }
}

fn describe(spoken: &Spoken, frames: &Frames) -> Json {
    let Layout { kind, sequence, name, table, multiple, recycle, status } = match spoken {
        Spoken::Command(command) => return json!({"name": command.name, "body": command.body}),
        Spoken::Reply(reply) => return json!({"status": reply.status, "body": reply.body}),
        Spoken::Data(layout) => layout.clone(),
    };
    let mut said = json!({"type": kind.name()});
    if !matches!(kind, Kind::Ping | Kind::Pong) {
        said["sequence"] = json!(sequence);
    }
    let name = std::str::from_utf8(&frames[0][name]).unwrap();
    match kind {
        Kind::Lease => said["lease"] = json!(name),
        Kind::Response => said["status"] = json!(status),
        Kind::Summon | Kind::Dismiss => said["resource"] = json!(name),
        Kind::Content => {
            said["resource"] = json!(name);
            said["properties"] = json!(fields(Table::new(&frames[0][table]).unwrap()));
            said["body"] = json!(hex(&frames[1]));
        }
        Kind::Confirm => said["multiple"] = json!(multiple),
        Kind::Reject => {
            said["multiple"] = json!(multiple);
            said["recycle"] = json!(recycle);
        }
        Kind::Ping | Kind::Pong => {}
    }
    said
}

// req: MTL-07, MTL-08, MTL-09, MTL-10, MTL-32, MTL-33, MTL-45, MTL-47, MTL-51, MTL-53, MTL-59, MTL-60
#[test]
fn every_vector_decodes_as_described() {
    let vectors = vectors();
    assert!(vectors.len() > 300, "only {} vectors", vectors.len());
    for vector in &vectors {
        let frames = frames(vector);
        let seen = match decode(&frames) {
            Ok(spoken) => json!({"decoded": describe(&spoken, &frames)}),
            Err(e) => json!({"error": {"kind": e.kind.slug(), "frame": e.frame, "offset": e.offset}}),
        };
        let expected = match vector.get("decoded") {
            Some(decoded) => json!({"decoded": decoded}),
            None => json!({"error": vector["error"]}),
        };
        assert_eq!(seen, expected, "{}", vector["id"]);
    }
}

/// Writes the fields anew, one by one.
fn rewritten(table: &[u8]) -> Bytes {
    fn fields(writer: &mut Writer, mut table: Table<'_>) {
        while let Some((name, value)) = table.next_field().unwrap() {
            writer.name(name).unwrap();
            one(writer, value);
        }
    }
    fn one(writer: &mut Writer, value: Value<'_>) {
        match value {
            Value::Bool(value) => writer.boolean(value),
            Value::Int(value) => writer.int(value),
            Value::Float(value) => writer.float(value),
            Value::Decimal(places, digits) => writer.decimal(places, digits),
            Value::Text(text) => writer.text(std::str::from_utf8(text).unwrap()).unwrap(),
            Value::Bytes(bytes) => writer.bytes(bytes).unwrap(),
            Value::Time(seconds) => writer.time(seconds),
            Value::Void => writer.void(),
            Value::Table(table) => {
                writer.table().unwrap();
                fields(writer, table);
                writer.end().unwrap();
            }
            Value::Array(mut array) => {
                writer.array().unwrap();
                while let Some(value) = array.next_value().unwrap() {
                    one(writer, value);
                }
                writer.end().unwrap();
            }
        }
    }
    let mut writer = Writer::new();
    fields(&mut writer, Table::new(table).unwrap());
    writer.finish().unwrap().into()
}

fn reencoded(spoken: &Spoken, frames: &Frames) -> Frames {
    let layout = match spoken {
        Spoken::Command(command) => return command.frames(),
        Spoken::Reply(reply) => return reply.frames(),
        Spoken::Data(layout) => layout,
    };
    let sequence = layout.sequence;
    let name = std::str::from_utf8(&frames[0][layout.name.clone()]).unwrap();
    match layout.kind {
        Kind::Lease => data::lease(sequence, name),
        Kind::Response => data::response(sequence, layout.status),
        Kind::Summon => data::summon(sequence, name),
        Kind::Dismiss => data::dismiss(sequence, name),
        Kind::Content => data::content(sequence, name, &rewritten(&frames[0][layout.table.clone()]), frames[1].clone()),
        Kind::Confirm => data::confirm(sequence, layout.multiple),
        Kind::Reject => data::reject(sequence, layout.multiple, layout.recycle),
        Kind::Ping => data::ping(),
        Kind::Pong => data::pong(),
    }
}

// req: MTL-07, MTL-08, MTL-33, MTL-59, MTL-60
#[test]
fn canonical_vectors_are_written_as_they_were_read() {
    let vectors = vectors();
    let canonical: Vec<_> = vectors.iter().filter(|vector| vector.get("canonical") == Some(&json!(true))).collect();
    assert!(canonical.len() > 80, "only {} vectors", canonical.len());
    for vector in canonical {
        let frames = frames(vector);
        assert_eq!(reencoded(&decode(&frames).unwrap(), &frames), frames, "{}", vector["id"]);
    }
}

#[test]
fn every_kind_of_mtl_has_a_vector_and_every_vector_its_own_id() {
    let vectors = vectors();
    let shown: BTreeSet<_> =
        vectors.iter().filter_map(|vector| vector.get("error")).map(|error| error["kind"].as_str().unwrap()).collect();
    let known: BTreeSet<_> = Control::KINDS.iter().chain(Data::KINDS).map(|kind| kind.slug()).collect();
    assert_eq!(shown, known);
    let ids: BTreeSet<_> = vectors.iter().map(|vector| vector["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), vectors.len());
}

// req: MTL-60
#[test]
fn a_table_is_all_of_its_bytes() {
    let fault = |bytes: &[u8]| table::check(bytes).map_err(|fault| (fault.kind, fault.offset));
    assert_eq!(fault(&[0; 4]), Ok(()));
    assert_eq!(fault(&[0; 5]), Err((ErrorKind::BadFieldTable, 4)));
    assert_eq!(fault(b"\0\0\0\x03\x01kVmore"), Err((ErrorKind::BadFieldTable, 7)));
    for bytes in [&b""[..], b"\0", b"\0\0\0", b"\0\0\0\x01", b"\xff\xff\xff\xff"] {
        assert!(fault(bytes).is_err(), "{bytes:?}");
    }
}

/// Any value.
#[derive(Clone, Debug)]
enum Any {
    Bool(bool),
    Int(i64),
    Float(f64),
    Decimal(u8, i32),
    Text(String),
    Bytes(Vec<u8>),
    Time(u64),
    Void,
    Table(Vec<(String, Self)>),
    Array(Vec<Self>),
}

fn a_value() -> impl Strategy<Value = Any> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Any::Bool),
        any::<i64>().prop_map(Any::Int),
        any::<i32>().prop_map(|value| Any::Int(value.into())),
        any::<f64>().prop_map(Any::Float),
        any::<(u8, i32)>().prop_map(|(places, digits)| Any::Decimal(places, digits)),
        ".{0,5}".prop_map(Any::Text),
        prop::collection::vec(any::<u8>(), 0..5).prop_map(Any::Bytes),
        any::<u64>().prop_map(Any::Time),
        Just(Any::Void),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            a_table(inner.clone(), 4).prop_map(Any::Table),
            prop::collection::vec(inner, 0..4).prop_map(Any::Array)
        ]
    })
}

fn a_table(value: impl Strategy<Value = Any>, most: usize) -> impl Strategy<Value = Vec<(String, Any)>> {
    prop::collection::btree_map(".{0,20}", value, 0..=most).prop_map(|fields| fields.into_iter().collect())
}

fn write(writer: &mut Writer, fields: &[(String, Any)]) {
    for (name, value) in fields {
        writer.name(name).unwrap();
        write_one(writer, value);
    }
}

fn write_one(writer: &mut Writer, value: &Any) {
    match value {
        Any::Bool(value) => writer.boolean(*value),
        Any::Int(value) => writer.int(*value),
        Any::Float(value) => writer.float(*value),
        Any::Decimal(places, digits) => writer.decimal(*places, *digits),
        Any::Text(text) => writer.text(text).unwrap(),
        Any::Bytes(bytes) => writer.bytes(bytes).unwrap(),
        Any::Time(seconds) => writer.time(*seconds),
        Any::Void => writer.void(),
        Any::Table(fields) => {
            writer.table().unwrap();
            write(writer, fields);
            writer.end().unwrap();
        }
        Any::Array(values) => {
            writer.array().unwrap();
            for value in values {
                write_one(writer, value);
            }
            writer.end().unwrap();
        }
    }
}

fn is_same(value: Value<'_>, written: &Any) -> bool {
    match (value, written) {
        (Value::Bool(value), Any::Bool(written)) => value == *written,
        (Value::Int(value), Any::Int(written)) => value == *written,
        (Value::Float(value), Any::Float(written)) => value.to_bits() == written.to_bits(),
        (Value::Decimal(places, digits), Any::Decimal(of, written)) => (places, digits) == (*of, *written),
        (Value::Text(text), Any::Text(written)) => text == written.as_bytes(),
        (Value::Bytes(bytes), Any::Bytes(written)) => bytes == written,
        (Value::Time(seconds), Any::Time(written)) => seconds == *written,
        (Value::Void, Any::Void) => true,
        (Value::Table(table), Any::Table(written)) => are_same(table, written),
        (Value::Array(mut array), Any::Array(written)) => {
            written.iter().all(|written| is_same(array.next_value().unwrap().unwrap(), written))
                && array.next_value().unwrap().is_none()
        }
        _ => false,
    }
}

fn are_same(mut table: Table<'_>, written: &[(String, Any)]) -> bool {
    let mut all = written.iter();
    all.all(|(name, written)| {
        let (field, value) = table.next_field().unwrap().unwrap();
        field == name && is_same(value, written)
    }) && table.next_field().unwrap().is_none()
}

/// Parts of tables, and what makes them invalid.
const PIECES: &[&[u8]] = &[b"\x01k", b"\x01j", b"F", b"A", b"\0\0\0\x07", b"\0\0\0\x01", b"V", b"t\x01", b"S", b"\0"];

proptest! {
    // req: MTL-33, MTL-59, MTL-60
    #[test]
    fn whatever_is_written_is_read(sequence: u64, resource in "[^\\x00-\\x1f\\x7f]{0,60}", fields in a_table(a_value(), 20), body: Vec<u8>, multiple: bool, recycle: bool, status in 200u16..600) {
        let mut writer = Writer::new();
        write(&mut writer, &fields);
        let properties = writer.finish().unwrap();
        let frames = data::content(sequence, &resource, &properties, body.clone().into());
        let layout = data::decode(&frames).unwrap();
        prop_assert_eq!((layout.kind, layout.sequence), (Kind::Content, sequence));
        prop_assert_eq!(&frames[0][layout.name], resource.as_bytes());
        prop_assert!(are_same(Table::new(&frames[0][layout.table]).unwrap(), &fields));
        prop_assert_eq!(&frames[1], &body);
        for (frames, kind) in [
            (data::lease(sequence, &resource), Kind::Lease),
            (data::summon(sequence, &resource), Kind::Summon),
            (data::dismiss(sequence, &resource), Kind::Dismiss),
        ] {
            let layout = data::decode(&frames).unwrap();
            prop_assert_eq!((layout.kind, layout.sequence), (kind, sequence));
            prop_assert_eq!(&frames[0][layout.name], resource.as_bytes());
        }
        let layout = data::decode(&data::reject(sequence, multiple, recycle)).unwrap();
        prop_assert_eq!((layout.kind, layout.sequence, layout.multiple, layout.recycle), (Kind::Reject, sequence, multiple, recycle));
        let layout = data::decode(&data::confirm(sequence, multiple)).unwrap();
        prop_assert_eq!((layout.kind, layout.sequence, layout.multiple), (Kind::Confirm, sequence, multiple));
        let layout = data::decode(&data::response(sequence, status)).unwrap();
        prop_assert_eq!((layout.kind, layout.sequence, layout.status), (Kind::Response, sequence, status));
    }

    // req: MTL-07, MTL-08
    #[test]
    fn commands_and_replies_that_are_written_are_read(name in "[A-Z][^\\x00-\\x1f\\x7f.]{0,9}\\.[^\\x00-\\x1f\\x7f]{1,9}", status in 200u16..600, text in ".{0,9}", number: f64, whole: i64) {
        let body = json!({"text": text, "number": number, "whole": whole, "inner": {"list": [null, true]}});
        let body = body.as_object().unwrap().clone();
        let command = Command { name, body: body.clone() };
        prop_assert_eq!(decode(&command.frames()), Ok(Spoken::Command(command)));
        let reply = Reply { status, body };
        prop_assert_eq!(decode(&reply.frames()), Ok(Spoken::Reply(reply)));
    }

    // req: MTL-33
    #[test]
    fn any_bytes_are_judged(kind in 0u8..12, header: Vec<u8>, body: Vec<u8>, more in prop::collection::vec(any::<Vec<u8>>(), 0..2)) {
        let mut frames = vec![[vec![kind], header].concat(), body];
        frames.extend(more);
        if let Err(error) = decode(&frames) {
            prop_assert!(error.frame <= frames.len());
            prop_assert!(error.offset <= frames.get(error.frame).map_or(0, Vec::len));
        }
        prop_assert_eq!(data::decode(&frames).is_ok(), Data::decode(&frames, &()).is_ok());
    }

    // req: MTL-60
    #[test]
    fn any_bytes_are_a_table_or_none(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..12)) {
        let inside = pieces.concat();
        let table = [&u32::try_from(inside.len()).unwrap().to_be_bytes()[..], &inside].concat();
        match table::check(&table) {
            Ok(()) => prop_assert!(table::check(&rewritten(&table)).is_ok()),
            Err(fault) => prop_assert!(fault.offset <= table.len()),
        }
    }
}
