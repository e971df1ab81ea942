//! The smallest peer of MTL for a load.
#![allow(dead_code)] // no load needs all of it

use std::time::Duration;

use crate::zmq::{DEALER, Zmq};

pub(crate) const CONTENT: u8 = 5;
pub(crate) const CONFIRM: u8 = 6;
pub(crate) const PING: u8 = 8;

/// A Pong's header.
pub(crate) const PONG: &[u8] = b"\x09";

/// A lease of a resource: `kind` is `Reader` or `Writer`.
pub(crate) fn lease(
    endpoint: &str,
    server_key: Option<&str>,
    profile: &str,
    kind: &str,
    resource: &str,
    confirm: &str,
) -> String {
    let mut zmq = Zmq::new();
    let control = zmq.open(DEALER, server_key);
    zmq.connect(control, endpoint);
    let mut ask = |command: &str, body: String| {
        zmq.send(control, &[b"", command.as_bytes(), body.as_bytes()]);
        zmq.receive(control, true);
        assert!(zmq.frame(1).starts_with(b"2"), "{command}: {}", String::from_utf8_lossy(zmq.frame(2)));
        String::from_utf8_lossy(zmq.frame(2)).into_owned()
    };
    ask("Connection.Open", r#"{"protocol": {"name": "MTL", "version": 1}, "virtual-host": "/"}"#.to_owned());
    ask("Connection.Profile", format!(r#"{{"profile": "{profile}"}}"#));
    let said =
        ask(&format!("Connection.{kind}"), format!(r#"{{"resources": ["{resource}"], "confirm": "{confirm}"}}"#));
    let lease = said.split(r#""lease":"#).nth(1).and_then(|rest| rest.split('"').nth(1));
    let lease = lease.expect("a lease").to_owned();
    zmq.close(Duration::from_secs(1));
    lease
}

fn named(kind: u8, sequence: u64, name: &str) -> Vec<u8> {
    let length = u8::try_from(name.len()).expect("a short name");
    [&[kind][..], &sequence.to_be_bytes(), &[length], name.as_bytes()].concat()
}

/// Presents a lease, and summons a resource if there is one to summon.
pub(crate) fn redeem(zmq: &mut Zmq, at: usize, lease: &str, summon: Option<&str>) {
    for command in std::iter::once(named(1, 1, lease)).chain(summon.map(|name| named(3, 2, name))) {
        zmq.send(at, &[&command, b""]);
        zmq.receive(at, true);
        assert_eq!(zmq.frame(1), b"200", "the lease, or the summon");
    }
}

/// The header of a content to the only resource of a lease, without properties.
pub(crate) fn content(sequence: u64) -> [u8; 14] {
    let mut header = [0; 14];
    header[0] = CONTENT;
    header[1..9].copy_from_slice(&sequence.to_be_bytes());
    header
}

/// The header of a Confirm of all contents up to one.
pub(crate) fn confirm(sequence: u64) -> [u8; 10] {
    let mut header = [1; 10];
    header[0] = CONFIRM;
    header[1..9].copy_from_slice(&sequence.to_be_bytes());
    header
}

/// The sequence in a header.
pub(crate) fn sequence(header: &[u8]) -> u64 {
    u64::from_be_bytes(header[1..9].try_into().expect("a sequence"))
}
