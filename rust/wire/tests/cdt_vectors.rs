//! The vectors in `tests/vectors/cdt`, which Python reads too, and the laws of the codec.
#![allow(clippy::unwrap_used)] // a vector that is not as described fails the test

mod written;

use std::borrow::Cow;
use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use trunkline_wire::cdt::{BytesEncoding, Cdt, Codec, Kind, Message, Settings, decode, encode};
use trunkline_wire::{ErrorKind, Protocol as _};
use written::{Vector, frames, hex};

fn settings(vector: &Vector) -> Settings {
    let given = |name: &str| vector.get("settings").and_then(|settings| settings.get(name));
    Settings {
        codec: if given("codec").is_some() { Codec::Avro } else { Codec::Json },
        bytes_encoding: if given("bytes_encoding").is_some() { BytesEncoding::Latin1 } else { BytesEncoding::Base64 },
        strict: given("strict").is_none(),
        kind: Kind::named(vector["type"].as_str().unwrap()),
    }
}

fn describe(message: &Message<'_>) -> Json {
    let mut said = json!({"timestamp_ms": message.timestamp_ms, "timeout_ms": message.timeout_ms});
    if message.kind.has_status() {
        said["status_code"] = json!(message.status_code);
    }
    for (name, text) in [
        ("correlation_id", &message.correlation_id),
        ("endpoint_message_id", &message.endpoint_message_id),
        ("app_version_name", &message.app_version_name),
        ("endpoint_id", &message.endpoint_id),
        ("config_id", &message.config_id),
        ("content_type", &message.content_type),
        ("reason_phrase", &message.reason_phrase),
        ("originator_replica_id", &message.originator_replica_id),
    ] {
        if !text.is_empty() {
            said[name] = json!(text);
        }
    }
    if let Some(content) = &message.content {
        said["content"] = json!(hex(content));
    }
    said
}

// req: CDT-12, CDT-13, CDT-14, CDT-18, CDT-20, CDT-29, CDT-43, CDT-45, CDT-48
#[test]
fn every_vector_decodes_as_described() {
    let vectors = written::vectors("cdt");
    assert!(vectors.len() > 140, "only {} vectors", vectors.len());
    for vector in &vectors {
        let frames = frames(vector);
        let settings = settings(vector);
        let seen = match Cdt::decode(&frames, &settings) {
            Ok(message) => json!({"decoded": describe(&message.unwrap())}),
            Err(e) => json!({"error": {"kind": e.kind.slug(), "frame": e.frame, "offset": e.offset}}),
        };
        let expected = match vector.get("decoded") {
            Some(decoded) => {
                // An empty text counts as missing.
                let filled = decoded.as_object().unwrap().iter().filter(|(_, value)| **value != json!(""));
                let mut filled: serde_json::Map<_, _> =
                    filled.map(|(name, value)| (name.clone(), value.clone())).collect();
                if decoded.get("content") == Some(&json!("")) {
                    filled.insert("content".to_owned(), json!(""));
                }
                json!({"decoded": filled})
            }
            None => json!({"error": vector["error"]}),
        };
        assert_eq!(seen, expected, "{}", vector["id"]);
        if vector.contains_key("canonical") {
            let message = decode(&frames[0], settings.kind.unwrap(), &settings).unwrap();
            assert_eq!(hex(&encode(&message, &settings)), hex(&frames[0]), "{}", vector["id"]);
        }
    }
}

#[test]
fn every_kind_of_error_has_a_vector_and_no_other() {
    let vectors = written::vectors("cdt");
    let shown: BTreeSet<_> =
        vectors.iter().filter_map(|vector| vector.get("error")).map(|error| error["kind"].as_str().unwrap()).collect();
    let declared: BTreeSet<_> = Cdt::KINDS.iter().copied().map(ErrorKind::slug).collect();
    assert_eq!(shown, declared);
    let ids: BTreeSet<_> = vectors.iter().map(|vector| vector["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), vectors.len());
}

prop_compose! {
    fn message()(
        kind in prop::sample::select(Kind::ALL),
        texts in prop::collection::vec("[a-zé\"\\\\\n\u{1f680}]{1,12}", 8),
        (timestamp_ms, timeout_ms) in (0..=i64::MAX, -1..=i64::MAX),
        status_code in any::<i32>(),
        content in prop::option::of(prop::collection::vec(any::<u8>(), 0..70)),
    ) -> Message<'static> {
        let text = |at: usize| Cow::Owned(String::clone(&texts[at]));
        let mut message = Message {
            kind,
            correlation_id: text(0),
            timestamp_ms,
            timeout_ms,
            app_version_name: text(1),
            endpoint_id: text(2),
            config_id: text(3),
            ..Message::default()
        };
        if kind.is_event() {
            message.originator_replica_id = text(4);
        } else {
            message.endpoint_message_id = text(5);
        }
        if kind.has_status() {
            message.status_code = status_code;
            message.reason_phrase = text(6);
        }
        if kind.has_content() {
            message.content_type = text(7);
            message.content = content.map(|content| Bytes::from(content).into());
        }
        message
    }
}

proptest! {
    // req: CDT-28
    #[test]
    fn whatever_is_written_is_read(message in message(), latin1: bool) {
        let bytes_encoding = if latin1 { BytesEncoding::Latin1 } else { BytesEncoding::Base64 };
        let json = Settings { bytes_encoding, ..Settings::default() };
        let body = encode(&message, &json);
        prop_assert_eq!(decode(&body, message.kind, &json).unwrap(), message.clone());
        let avro = Settings { codec: Codec::Avro, ..json };
        let mut expected = message;
        if expected.kind == Kind::ConfigNewAvailable {
            // The schema has neither field.
            (expected.content_type, expected.content) = (Cow::default(), None);
        }
        let body = encode(&expected, &avro);
        prop_assert_eq!(decode(&body, expected.kind, &avro).unwrap(), expected);
    }

    // req: CDT-50
    #[test]
    fn no_bytes_do_any_harm(
        kind in prop::sample::select(Kind::ALL), avro: bool, body in prop::collection::vec(any::<u8>(), 0..300)
    ) {
        let codec = if avro { Codec::Avro } else { Codec::Json };
        if let Err(rejected) = decode(&body, kind, &Settings { codec, ..Settings::default() }) {
            prop_assert!(rejected.fault.offset <= body.len());
        }
    }

    // req: CDT-50
    #[test]
    fn a_byte_that_is_another_is_told_where_it_is_or_is_read(
        message in message(), avro: bool, at: prop::sample::Index, byte: u8
    ) {
        let codec = if avro { Codec::Avro } else { Codec::Json };
        let settings = Settings { codec, ..Settings::default() };
        let mut body = encode(&message, &settings);
        let at = at.index(body.len());
        body[at] = byte;
        match decode(&body, message.kind, &settings) {
            Ok(read) => {
                let again = encode(&read, &settings);
                prop_assert_eq!(decode(&again, message.kind, &settings).unwrap(), read.clone());
            }
            Err(rejected) => prop_assert!(rejected.fault.offset <= body.len()),
        }
    }
}
