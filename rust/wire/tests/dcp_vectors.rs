//! The vectors in `tests/vectors/dcp`, which Python reads too.
#![allow(clippy::unwrap_used)] // a vector that is not as described fails the test

mod written;

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use trunkline_wire::dcp::{
    Dcp, Layout, MessageType, Role, Settings, Width, decode, encode_header, encode_register, encode_reply,
    encode_request,
};
use trunkline_wire::{Frames, Protocol as _};
use written::{Vector, frames, hex};

fn vectors() -> Vec<Vector> {
    written::vectors("dcp")
}

fn settings(vector: &Vector) -> Settings {
    let given = vector.get("settings").unwrap_or(&Json::Null);
    let role = given["role"].as_str().map(|role| match role {
        "broker" => Role::Broker,
        "worker" => Role::Worker,
        _ => Role::Client,
    });
    Settings { role, compat_dagbox: given["compat_dagbox"].as_bool().unwrap_or(false) }
}

fn describe(layout: &Layout, frames: &Frames) -> Json {
    let mut said = json!({"type": layout.message_type().slug()});
    if let Some(service) = layout.service() {
        said["service"] = json!(hex(&frames[service]));
    }
    if let Some(body) = layout.body() {
        let parts = |parts: &[Bytes]| json!(parts.iter().map(|part| hex(part)).collect::<Vec<_>>());
        said["client"] = json!(body.client.map(|client| hex(&frames[client])));
        said["metadata"] = parts(&frames[body.metadata.clone()]);
        said["data"] = parts(&frames[body.data()]);
    }
    said
}

fn reencode(layout: &Layout, frames: &Frames) -> Frames {
    let body = layout.body();
    let client = body.and_then(|body| body.client).map(|client| frames[client].clone());
    let metadata = body.map_or(&[][..], |body| &frames[body.metadata.clone()]);
    let data = body.map_or(&[][..], |body| &frames[body.data()]);
    match layout {
        Layout::Register => encode_register(frames[3].clone()),
        Layout::Request(_) => encode_request(frames[3].clone(), client, metadata, data),
        Layout::Reply(_) => encode_reply(client.unwrap(), metadata, data),
        Layout::Ping | Layout::Pong | Layout::Reconnect => encode_header(layout.message_type(), Width::One),
    }
}

#[test]
fn every_vector_decodes_as_described() {
    let vectors = vectors();
    assert!(vectors.len() > 80, "only {} vectors", vectors.len());
    for vector in &vectors {
        let frames = frames(vector);
        let seen = match decode(&frames, settings(vector)) {
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

// req: DCP-08, DCP-18, DCP-26
#[test]
fn canonical_vectors_are_written_as_they_were_read() {
    for vector in vectors().iter().filter(|vector| vector.get("canonical") == Some(&json!(true))) {
        let frames = frames(vector);
        let layout = decode(&frames, settings(vector)).unwrap();
        assert_eq!(reencode(&layout, &frames), frames, "{}", vector["id"]);
    }
}

#[test]
fn every_kind_of_dcp_has_a_vector_and_every_vector_its_own_id() {
    let vectors = vectors();
    let shown: BTreeSet<_> =
        vectors.iter().filter_map(|vector| vector.get("error")).map(|error| error["kind"].as_str().unwrap()).collect();
    let known: BTreeSet<_> = Dcp::KINDS.iter().map(|kind| kind.slug()).collect();
    assert_eq!(shown, known);
    let ids: BTreeSet<_> = vectors.iter().map(|vector| vector["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), vectors.len());
}

// req: DCP-13
#[test]
fn a_service_may_have_a_name_of_any_length() {
    let service = Bytes::from(vec![0xff; 1 << 20]);
    let frames = encode_register(service.clone());
    assert_eq!(decode(&frames, Settings::default()), Ok(Layout::Register));
    // The frame is the caller's, not a copy.
    assert_eq!(frames[3].as_ptr(), service.as_ptr());
}

// req: DCP-11
#[test]
fn types_have_one_byte_or_the_four_of_the_original() {
    for message_type in MessageType::ALL {
        for (width, wide) in [(Width::One, false), (Width::One, true), (Width::Four, true)] {
            assert_eq!(MessageType::from_frame(&message_type.frame(width), wide), Some(message_type));
        }
        assert_eq!(MessageType::from_frame(&message_type.frame(Width::Four), false), None);
    }
}

fn parts(empty: bool) -> impl Strategy<Value = Vec<Bytes>> {
    let least = usize::from(!empty);
    prop::collection::vec(prop::collection::vec(any::<u8>(), least..4).prop_map(Bytes::from), 0..6)
}

proptest! {
    // req: DCP-22, DCP-25
    #[test]
    fn whatever_is_written_is_read(service: Vec<u8>, client in prop::option::of("[a-z]{1,3}"), metadata in parts(false), data in parts(true)) {
        let client = client.map(Bytes::from);
        let frames = encode_request(service.into(), client.clone(), &metadata, &data);
        let Ok(Layout::Request(body)) = decode(&frames, Settings::default()) else { panic!("no request") };
        prop_assert_eq!(body.client.map(|at| frames[at].clone()), client.clone());
        prop_assert_eq!(&frames[body.metadata.clone()], &metadata[..]);
        prop_assert_eq!(&frames[body.data()], &data[..]);
        if let Some(client) = client {
            let frames = encode_reply(client, &metadata, &data);
            let Ok(Layout::Reply(body)) = decode(&frames, Settings::default()) else { panic!("no reply") };
            prop_assert_eq!(&frames[body.metadata.clone()], &metadata[..]);
            prop_assert_eq!(&frames[body.data()], &data[..]);
        }
    }

    // req: DCP-44
    #[test]
    fn any_frames_are_judged(frames in prop::collection::vec(prop_oneof![Just(vec![]), Just(b"DGBX\x01".to_vec()), prop::collection::vec(0u8..8, 1..3)], 0..10), compat_dagbox: bool) {
        let settings = Settings { role: None, compat_dagbox };
        if let Err(error) = decode(&frames, settings) {
            prop_assert!(error.frame <= frames.len());
        }
    }
}
