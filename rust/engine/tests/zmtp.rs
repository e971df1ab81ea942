//! How much our own transport holds for unknown peers, and how it disconnects them.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the peer is written by hand

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::Bytes;
use common::{Echo, PATIENCE, Reported, close, frame, messages, number, read_until, settings};
use trunkline_engine::zmtp::{ZmtpSettings, ZmtpTransport};
use trunkline_engine::{Handle, Hold as _, Queued, Running as _, Settings};
use trunkline_wire::{SocketEvent, SocketOptions};
use trunkline_zmtp::Reason;

const ANY: &str = "tcp://127.0.0.1:*";

/// The greeting and READY of a socket of this type: RFC 37.
fn handshake(kind: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    (bytes[0], bytes[9], bytes[10], bytes[11]) = (0xff, 0x7f, 3, 1);
    bytes[12..16].copy_from_slice(b"NULL");
    let length = u8::try_from(kind.len()).expect("it is short");
    let ready = [b"\x05READY\x0bSocket-Type\0\0\0", &[length][..], kind.as_bytes()].concat();
    bytes.extend([4, u8::try_from(ready.len()).expect("it is short")]);
    bytes.extend(ready);
    bytes
}

/// A connection whose bytes are written by hand.
fn stranger(endpoint: &str) -> TcpStream {
    let mut stream = TcpStream::connect(endpoint.trim_start_matches("tcp://")).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(&handshake("DEALER")).expect("it reads");
    let mut greeting = [0; 64];
    stream.read_exact(&mut greeting).expect("it answers");
    stream
}

fn serve(settings: ZmtpSettings) -> (Handle<Echo>, String) {
    let echo = Echo::server(ANY, SocketOptions { mandatory: true, ..SocketOptions::default() });
    let server = Handle::start(echo, || ZmtpTransport::new(settings), Queued, Settings::default());
    let server = server.expect("the role starts");
    let endpoint = server.endpoints().remove(0);
    (server, endpoint)
}

/// The head of a frame of so many bytes, of a message that goes on.
fn head(bytes: u64) -> Vec<u8> {
    [&[3][..], &bytes.to_be_bytes()].concat()
}

#[test]
fn a_large_message_that_comes_along_outlives_those_that_were_begun_and_left() {
    const EACH: usize = 600 << 10;
    let (server, endpoint) = serve(ZmtpSettings { inbox_bytes: 2 << 20, ..settings() });
    let mut strangers: Vec<_> = (0..3).map(|_| stranger(&endpoint)).collect();
    for stranger in &mut strangers {
        stranger.write_all(&head(1 << 20)).expect("it reads");
        stranger.write_all(&vec![0; EACH]).expect("it reads");
    }
    let mut fourth = stranger(&endpoint);
    fourth.write_all(&head(1 << 20)).expect("it reads");
    fourth.write_all(&vec![0; 1 << 20]).expect("it reads");
    fourth.write_all(b"\0\x01x").expect("it reads");
    // It is echoed: in two frames, the first as long as it was.
    let mut echoed = vec![0; 1 << 20];
    fourth.read_exact(&mut echoed).expect("it is answered");
    assert!(server.stats().failures.of(Reason::Crowded) >= 1);
    close(&server);
}

#[test]
fn frames_without_bytes_cost_something_until_their_message_is_whole() {
    let (server, endpoint) = serve(ZmtpSettings { inbox_bytes: 1 << 20, ..settings() });
    let mut strangers: Vec<_> = (0..4).map(|_| stranger(&endpoint)).collect();
    for stranger in &mut strangers {
        let _ = stranger.write_all(&[1, 0].repeat(9000));
    }
    read_until(&server, |events| {
        events.iter().any(|event| matches!(event, Reported::Socket(_, SocketEvent::HandshakeFailed { .. })))
    });
    assert!(server.stats().failures.of(Reason::Crowded) >= 1);
    close(&server);
}

#[test]
fn empty_messages_of_many_leave_others_their_turn() {
    const FLOODS: usize = 8;
    let (server, endpoint) = serve(settings());
    let mut flooding: Vec<_> = (0..FLOODS).map(|_| stranger(&endpoint)).collect();
    let floods: Vec<_> = flooding
        .drain(..)
        .map(|mut stranger| std::thread::spawn(move || while stranger.write_all(&[0; 1 << 12]).is_ok() {}))
        .collect();
    let client = common::start::<ZmtpTransport, _>(Echo::client(&endpoint, SocketOptions::default()));
    let mut passed = vec![];
    for at in 0..9 {
        let before = server.stats().machine;
        client.ask(number(at));
        read_until(&client, |events| messages(events) == 1);
        passed.push(server.stats().machine - before);
    }
    // A turn of each, and what was read and is queued for the user: not all that fits in the buffers of all.
    passed.sort_unstable();
    assert!(passed[4] < 100_000, "{passed:?} messages went before each");
    for handle in [&client, &server] {
        close(handle);
    }
    for flood in floods {
        flood.join().expect("it was hung up on");
    }
}

#[test]
fn a_peer_that_floods_and_never_hangs_up_keeps_no_role_from_its_end() {
    let (server, endpoint) = serve(settings());
    let mut flooding = stranger(&endpoint);
    let flood = std::thread::spawn(move || {
        let message = [&[0, 200][..], &[7; 200]].concat().repeat(500);
        // Until the connection is closed.
        while flooding.write_all(&message).is_ok() {}
    });
    let flooded = |_: &[Reported]| server.stats().machine > 1000;
    read_until(&server, flooded);
    let began = std::time::Instant::now();
    close(&server);
    assert!(began.elapsed() < PATIENCE / 4, "{:?}", began.elapsed());
    flood.join().expect("it was hung up on");
}

#[test]
fn what_is_held_for_an_endpoint_survives_its_connections() {
    let options = SocketOptions { send_hwm: Some(50_000), ..SocketOptions::default() };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("tcp://{}", listener.local_addr().expect("bound"));
    let client = common::start::<ZmtpTransport, _>(Echo::client(&endpoint, options));
    let large: Vec<Bytes> = frame(4096);
    for _ in 0..2000 {
        client.ask(common::Ask::Send { to: None, frames: large.clone(), id: None });
    }
    // The first peer reads little, and is gone.
    let (mut first, _) = listener.accept().expect("it dials");
    first.write_all(&handshake("ROUTER")).expect("it reads");
    let mut some = vec![0; 300 << 10];
    first.read_exact(&mut some).expect("it writes");
    drop(first);
    // The next gets all that was not written to the first: all but what the system holds and one window.
    let (mut second, _) = listener.accept().expect("it dials again");
    second.write_all(&handshake("ROUTER")).expect("it reads");
    second.set_read_timeout(Some(std::time::Duration::from_millis(500))).expect("a socket");
    let mut bytes = 0;
    let mut buffer = vec![0; 1 << 20];
    while let Ok(count @ 1..) = second.read(&mut buffer) {
        bytes += count;
    }
    let lost = 2000 - bytes / (4096 + 9) - some.len() / (4096 + 9);
    assert!(lost * 4096 < 8 << 20, "{lost} messages");
    assert!(bytes > 0);
    client.close(std::time::Duration::ZERO);
    client.join();
}
