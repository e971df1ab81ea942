//! The vectors of `tests/vectors/chirp`, which Python reads too, and the laws of the codec.
#![allow(clippy::unwrap_used)] // a vector that is not as described fails the test

mod written;

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use trunkline_wire::chirp::{Datagram, Id, Kind, LENGTH, Service, decode};
use written::{Vector, frames, unhex};

fn vectors() -> Vec<Vector> {
    written::vectors("chirp")
}

fn describe(datagram: &Datagram) -> Json {
    json!({
        "kind": datagram.kind.slug(),
        "group": datagram.group.to_string(),
        "host": datagram.host.to_string(),
        "service": format!("{:?}", datagram.service).to_lowercase(),
        "port": datagram.port,
    })
}

// req: CHIRP-01, CHIRP-02
#[test]
fn every_vector_decodes_as_described() {
    let vectors = vectors();
    assert!(vectors.len() > 40, "only {} vectors", vectors.len());
    for vector in &vectors {
        let seen = match decode(&frames(vector)) {
            Ok(datagram) => json!({"decoded": describe(&datagram)}),
            Err(e) => json!({"error": {"kind": e.kind.slug(), "frame": e.frame, "offset": e.offset}}),
        };
        let expected = match vector.get("decoded") {
            Some(decoded) => json!({"decoded": decoded}),
            None => json!({"error": vector["error"]}),
        };
        assert_eq!(seen, expected, "{}", vector["id"]);
    }
    let ids: BTreeSet<_> = vectors.iter().map(|vector| vector["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), vectors.len());
}

// req: CHIRP-01
#[test]
fn datagrams_are_written_as_they_were_read() {
    for vector in vectors().iter().filter(|vector| vector.contains_key("decoded")) {
        let frames = frames(vector);
        assert_eq!(decode(&frames).unwrap().encode(), frames[0][..], "{}", vector["id"]);
    }
}

// req: CHIRP-01, CHIRP-03
#[test]
fn writes_what_released_peers_write() {
    let offer = |host| Datagram { kind: Kind::Offer, group: Id::of("edda"), host, service: Service::Data, port: 23999 };
    let golden = |id: &str| unhex(&vectors().iter().find(|vector| vector["id"] == id).unwrap()["frames"][0]);
    let name = "RandomDataSender.s1";
    assert_eq!(offer(Id::of(name)).encode(), golden("golden-offer-of-release-0.5.1")[..]);
    assert_eq!(offer(Id::of_lower_case(name)).encode(), golden("golden-offer-of-release-1.0.2")[..]);
}

proptest! {
    // req: CHIRP-07
    #[test]
    fn any_bytes_are_judged(start in prop_oneof![Just(&b""[..]), Just(&b"CHIRP"[..]), Just(&b"CHIRP\x01\x02"[..])], rest in prop::collection::vec(any::<u8>(), 0..60)) {
        let bytes = [start, &rest].concat();
        match decode(&[&bytes]) {
            Ok(datagram) => prop_assert_eq!(&datagram.encode()[..], &bytes[..]),
            Err(error) => prop_assert!(error.frame == 0 && error.offset <= bytes.len()),
        }
    }

    // req: CHIRP-01
    #[test]
    fn whatever_is_written_is_read(kind in 0..3usize, group: [u8; 16], host: [u8; 16], service in 0..4usize, port in 1..=u16::MAX) {
        let datagram = Datagram { kind: Kind::ALL[kind], group: Id(group), host: Id(host), service: Service::ALL[service], port };
        let bytes = datagram.encode();
        prop_assert_eq!(decode(&[bytes]), Ok(datagram));
        for cut in 0..LENGTH {
            prop_assert!(decode(&[&bytes[..cut]]).is_err());
        }
    }
}
