//! The vectors in `tests/vectors/cdtp`, which Python reads too.
#![allow(clippy::unwrap_used)] // a vector that is not as described fails the test

mod written;

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::{Value as Json, json};
use trunkline_wire::{
    ErrorKind, Protocol,
    cdtp::{Accept, Cdtp, Head, Layout, MessageType, Settings, Variant, decode, encode_batch, encode_header},
    msgpack::{Reader, Timestamp, Value},
};
use written::{Vector, frames, hex};

fn vectors() -> Vec<Vector> {
    written::vectors("cdtp")
}

fn settings(vector: &Vector) -> Settings {
    let mut settings = Settings::default();
    let given = vector.get("settings").unwrap_or(&Json::Null);
    if let Some(accept) = given["accept"].as_array() {
        settings.accept = accept.iter().map(|slug| slug.as_str().unwrap().parse::<Variant>().unwrap()).collect();
        assert_ne!(settings.accept, Accept::ALL);
    }
    if let Some(strict) = given["strict"].as_bool() {
        settings.strict = strict;
    }
    settings
}

fn float(value: f64) -> Json {
    let special = !value.is_finite() || (value == 0.0 && value.is_sign_negative());
    if special { json!(format!("{value:?}").to_lowercase()) } else { json!(value) }
}

fn pairs(reader: &mut Reader<'_>, pairs: u32) -> Vec<Json> {
    (0..pairs).map(|_| json!([object(reader), object(reader)])).collect()
}

fn object(reader: &mut Reader<'_>) -> Json {
    match reader.value().unwrap() {
        Value::Nil => Json::Null,
        Value::Boolean(value) => json!(value),
        Value::Signed(value) => json!(value),
        Value::Unsigned(value) => json!(value),
        Value::F32(value) => json!({"f32": float(value.into())}),
        Value::F64(value) => json!({"f64": float(value)}),
        Value::String(value) => json!(value),
        Value::Binary(value) => json!({"bin": hex(value)}),
        Value::Array(length) => (0..length).map(|_| object(reader)).collect(),
        Value::Map(length) => json!({"map": pairs(reader, length)}),
        Value::Timestamp(value) => json!({"timestamp": [value.seconds(), value.nanoseconds()]}),
        Value::Ext(code, body) => json!({"ext": [code, hex(body)]}),
    }
}

fn tags(bytes: &[u8]) -> Vec<Json> {
    let mut reader = Reader::new(bytes, ErrorKind::BadHeader);
    let length = reader.map(ErrorKind::BadHeader).unwrap();
    let tags = pairs(&mut reader, length);
    assert!(reader.rest().is_empty());
    tags
}

fn describe(layout: &Layout, frames: &[Bytes]) -> Json {
    let header = &frames[0];
    let sender = str::from_utf8(&header[layout.sender()]).unwrap();
    match layout {
        Layout::Single(head) => json!({
            "variant": head.variant.slug(),
            "sender": sender,
            "timestamp": head.timestamp.map(|value| json!([value.seconds(), value.nanoseconds()])),
            "type": head.message_type.map(MessageType::slug),
            "sequence": head.sequence,
            "tags": tags(&header[head.tags.clone()]),
            "duplicate_keys": head.duplicate_keys,
            "trailing": head.trailing,
        }),
        Layout::Batch(batch) => {
            let record = |record: &trunkline_wire::cdtp::Record| {
                let blocks: Vec<_> = record.blocks(header).map(|block| hex(&header[block])).collect();
                assert_eq!(record.blocks as usize, blocks.len());
                assert_eq!(record.block_bytes, blocks.iter().map(|block| block.len() / 2).sum::<usize>());
                json!({
                    "sequence": record.sequence,
                    "tags": tags(&header[record.tags.clone()]),
                    "payload": blocks,
                    "duplicate_keys": record.duplicate_keys,
                })
            };
            json!({
                "variant": layout.variant().slug(),
                "sender": sender,
                "type": batch.message_type.slug(),
                "records": batch.records.iter().map(record).collect::<Vec<_>>(),
                "trailing": batch.trailing,
            })
        }
    }
}

fn reencode(layout: &Layout, frames: &[Bytes]) -> Vec<u8> {
    let header = &frames[0];
    let sender = str::from_utf8(&header[layout.sender()]).unwrap();
    match layout {
        Layout::Single(head) => {
            let Head { variant, timestamp, message_type, sequence, .. } = *head;
            let mut out = Vec::new();
            let timestamp = timestamp.unwrap_or_default();
            let message_type = message_type.unwrap_or(MessageType::Dat);
            let tags = &header[head.tags.clone()];
            encode_header(&mut out, variant, sender, timestamp, message_type, sequence.unwrap_or(0), tags).unwrap();
            out
        }
        Layout::Batch(batch) => {
            let blocks: Vec<Vec<&[u8]>> = batch
                .records
                .iter()
                .map(|record| record.blocks(header).map(|block| &header[block]).collect())
                .collect();
            let records: Vec<_> = batch
                .records
                .iter()
                .zip(&blocks)
                .map(|(record, blocks)| (record.sequence, &header[record.tags.clone()], blocks.as_slice()))
                .collect();
            encode_batch(sender, batch.message_type, &records).unwrap()
        }
    }
}

#[test] // req: CDTP-01 CDTP-02 CDTP-03 CDTP-04 CDTP-05 CDTP-07 CDTP-08 CDTP-09 CDTP-10 CDTP-11 CDTP-12 CDTP-13 CDTP-14 CDTP-22
fn every_vector_decodes_as_described() {
    let vectors = vectors();
    assert!(vectors.len() > 150, "only {} vectors", vectors.len());
    for vector in &vectors {
        let frames = frames(vector);
        let decoded = decode(&frames, &settings(vector));
        let seen = match &decoded {
            Ok(layout) => json!({"decoded": describe(layout, &frames)}),
            Err(e) => json!({"error": {"kind": e.kind.slug(), "frame": e.frame, "offset": e.offset}}),
        };
        let expected = match vector.get("decoded") {
            Some(decoded) => json!({"decoded": decoded}),
            None => json!({"error": vector["error"]}),
        };
        assert_eq!(seen, expected, "{}", vector["id"]);
    }
}

/// The tags are copied, as other code writes them, so that only the rest can differ.
#[test] // req: CDTP-03 CDTP-05 CDTP-23
fn canonical_vectors_are_written_as_they_were_read() {
    for vector in vectors().iter().filter(|vector| vector.get("canonical") == Some(&json!(true))) {
        let frames = frames(vector);
        let layout = decode(&frames, &settings(vector)).unwrap();
        assert_eq!(hex(&reencode(&layout, &frames)), hex(&frames[0]), "{}", vector["id"]);
    }
}

#[test]
fn every_error_kind_has_a_vector_and_every_vector_its_own_id() {
    let vectors = vectors();
    let slug = |vector: &Vector| vector.get("error").map(|error| error["kind"].as_str().unwrap().to_owned());
    let shown: BTreeSet<_> = ["cdt", "cdtp", "chirp", "dcp", "mc0", "mtl"]
        .into_iter()
        .flat_map(written::vectors)
        .filter_map(|vector| slug(&vector))
        .collect();
    let known: BTreeSet<_> = ErrorKind::ALL.iter().map(|kind| kind.slug().to_owned()).collect();
    assert_eq!(shown, known);
    let of_cdtp: BTreeSet<_> = Cdtp::KINDS.iter().map(|kind| kind.slug().to_owned()).collect();
    assert_eq!(vectors.iter().filter_map(slug).collect::<BTreeSet<_>>(), of_cdtp);
    let ids: BTreeSet<_> = vectors.iter().map(|vector| vector["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), vectors.len());
}

#[test] // req: CDTP-01 CDTP-04 CDTP-14
fn great_names_and_many_frames() {
    let name = "n".repeat(64 << 10);
    let mut header = Vec::new();
    let timestamp = Timestamp::new(1, 1).unwrap();
    encode_header(&mut header, Variant::S, &name, timestamp, MessageType::Dat, 0, &[0x80]).unwrap();
    let mut frames = vec![Vec::new(); 10_000];
    frames[0].clone_from(&header);
    let layout = decode(&frames, &Settings::default()).unwrap();
    assert_eq!(&header[layout.sender()], name.as_bytes());
}
