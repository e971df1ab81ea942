//! The vectors in `tests/vectors/mc0`, which Python reads too.
#![allow(clippy::unwrap_used)] // a vector that is not as described fails the test

mod written;

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use trunkline_wire::mc0::{Layout, Mc0, Settings, Verb, decode, encode, id};
use trunkline_wire::{Frames, Protocol as _};
use written::{Vector, frames, hex};

fn vectors() -> Vec<Vector> {
    written::vectors("mc0")
}

fn describe(layout: &Layout, frames: &Frames) -> Json {
    let one = |at: usize| json!(hex(&frames[at]));
    let parts = |parts: &[Bytes]| json!(parts.iter().map(|part| hex(part)).collect::<Vec<_>>());
    let positional = parts(&frames[layout.positional()]);
    let mut said = json!({
        "verb": layout.verb.name(),
        "leading_delimiter": layout.is_delimited(),
        "headers": layout.keys().map(|key| json!([one(key), one(key + 1)])).collect::<Vec<_>>(),
        "positional": positional,
    });
    if let Some(id) = layout.id {
        said["id"] = one(id);
    }
    match layout.verb {
        Verb::Connect => {
            if let Some(version) = layout.version {
                said["version"] = one(version);
            }
            if let Some(ttl) = layout.ttl {
                said["ttl_ms"] = json!(u64::try_from(ttl.as_millis()).unwrap());
            }
        }
        Verb::Put | Verb::Message => {
            said["topic"] = one(layout.topic.unwrap());
            said["body"] = positional;
        }
        Verb::Sub | Verb::Unsub => {
            if layout.body < frames.len() {
                said["topics"] = positional;
            }
        }
        Verb::Error => {
            if let Some(text) = layout.text {
                said["text"] = one(text);
            }
        }
        Verb::Disconnect | Verb::Noop | Verb::Ok => {}
    }
    said
}

#[test] // req: MC0-05, MC0-06, MC0-07, MC0-08, MC0-09, MC0-10, MC0-19, MC0-20, MC0-24, MC0-31, MC0-34
fn every_vector_decodes_as_described() {
    let vectors = vectors();
    assert!(vectors.len() > 120, "only {} vectors", vectors.len());
    for vector in &vectors {
        let frames = frames(vector);
        let seen = match decode(&frames, Settings::default()) {
            Ok(layout) => json!({"decoded": describe(&layout, &frames)}),
            Err(e) => json!({"error": {"kind": e.kind.slug(), "frame": e.frame, "offset": e.offset}}),
        };
        let expected = match vector.get("decoded") {
            Some(decoded) => json!({"decoded": decoded}),
            None => json!({"error": vector["error"]}),
        };
        assert_eq!(seen, expected, "{}", vector["id"]);
    }
}

// req: MC0-06, MC0-07, MC0-16, MC0-17, MC0-31
#[test]
fn canonical_vectors_are_written_as_they_were_read() {
    let vectors = vectors();
    let canonical: Vec<_> = vectors.iter().filter(|vector| vector.get("canonical") == Some(&json!(true))).collect();
    assert!(canonical.len() > 40, "only {} vectors", canonical.len());
    for vector in canonical {
        let frames = frames(vector);
        let layout = decode(&frames, Settings::default()).unwrap();
        let headers = layout.keys().map(|key| (frames[key].clone(), frames[key + 1].clone()));
        assert_eq!(encode(layout.verb, headers, &frames[layout.positional()]), frames, "{}", vector["id"]);
    }
}

#[test]
fn every_kind_of_mc0_has_a_vector_and_every_vector_its_own_id() {
    let vectors = vectors();
    let shown: BTreeSet<_> =
        vectors.iter().filter_map(|vector| vector.get("error")).map(|error| error["kind"].as_str().unwrap()).collect();
    let known: BTreeSet<_> = Mc0::KINDS.iter().map(|kind| kind.slug()).collect();
    assert_eq!(shown, known);
    let ids: BTreeSet<_> = vectors.iter().map(|vector| vector["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), vectors.len());
}

// req: MC0-24
#[test]
fn the_longest_ttl_is_a_setting() {
    let connect = |ttl: &'static str| [Bytes::from("CONNECT"), Bytes::from("TTL"), Bytes::from(ttl)];
    let a_second = Settings { max_ttl_ms: 1000 };
    assert!(decode(&connect("1000"), a_second).is_ok());
    assert!(decode(&connect("1001"), a_second).is_err());
    assert!(decode(&connect("18446744073709551615"), Settings { max_ttl_ms: u64::MAX }).is_ok());
}

// req: MC0-12
#[test]
fn the_id_of_a_bad_message_is_found_among_its_whole_pairs() {
    let found = |frames: &[&'static str]| {
        let frames: Vec<_> = frames.iter().map(|frame| Bytes::from(*frame)).collect();
        id(&frames).map(|at| frames[at].clone())
    };
    assert_eq!(found(&["", "PING", "ID", "7"]), Some(Bytes::from("7")));
    assert_eq!(found(&["PUT", "ID", "1", "ID", "2", "X"]), Some(Bytes::from("2")));
    assert_eq!(found(&["NOOP", "ID"]), None);
    assert_eq!(found(&["SUB", "", "ID", "7"]), None);
    assert_eq!(found(&["NOOP", "ID", ""]), Some(Bytes::new()));
    assert_eq!(found(&[]), None);
}

fn parts() -> impl Strategy<Value = Vec<Bytes>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4).prop_map(Bytes::from), 0..6)
}

fn a_key() -> impl Strategy<Value = Bytes> {
    prop_oneof![Just(&b"ID"[..]), Just(&b"TTL"[..]), Just(&b"X-A"[..])].prop_map(Bytes::from_static)
}

proptest! {
    // req: MC0-06, MC0-11
    #[test]
    fn whatever_is_written_is_read(verb in prop::sample::select(&Verb::ALL[..]), pairs in prop::collection::vec((a_key(), "[0-9]{1,3}".prop_map(Bytes::from)), 0..5), positional in parts()) {
        let mut headers = vec![("TOPIC".into(), "t".into()), ("ID".into(), "1".into())];
        headers.extend(pairs);
        let mut frames = encode(verb, headers.clone(), &positional);
        for is_delimited in [true, false] {
            let layout = decode(&frames, Settings::default()).unwrap();
            prop_assert_eq!((layout.verb, layout.is_delimited()), (verb, is_delimited));
            let read: Vec<_> = layout.keys().map(|key| (frames[key].clone(), frames[key + 1].clone())).collect();
            prop_assert_eq!(&read, &headers);
            prop_assert_eq!(&frames[layout.positional()], &positional[..]);
            prop_assert_eq!(layout.id, id(&frames));
            frames.remove(0);
        }
    }

    // req: MC0-34
    #[test]
    fn any_frames_are_judged(frames in prop::collection::vec(prop::sample::select(&["", "NOOP", "PUT", "CONNECT", "OK", "ID", "TOPIC", "TTL", "VERSION", "0.3", "x"][..]), 0..12)) {
        if let Err(error) = decode(&frames, Settings::default()) {
            prop_assert!(error.frame <= frames.len());
        }
    }
}
