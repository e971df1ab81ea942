//! Connections with CURVE: both sides of the handshake, and what unknown peers may do to them.

mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::crypto::{Pure, keys};
use common::{connection, events, frames, messages, plain, read, reason, talk, written};
use proptest::collection::vec;
use proptest::prelude::*;
use trunkline_wire::{Frames, Nanos};
use trunkline_zmtp::curve::{ClientKeys, ServerKeys};
use trunkline_zmtp::{Connection, Event, Heartbeat, Limits, Reason, Security, Settings, Side, SocketType};

const CLIENT: u8 = 0xc1;
const SERVER: u8 = 0x51;

fn server_settings() -> Settings {
    let security = Security::CurveServer(Arc::new(ServerKeys { crypto: Arc::<Pure>::default(), keys: keys(SERVER) }));
    Settings { security, ..Settings::new(SocketType::Router, Bytes::new()) }
}

fn client_settings(socket: SocketType, server: u8) -> Settings {
    let crypto = Arc::<Pure>::default();
    let keys = ClientKeys { crypto, keys: keys(CLIENT), server: keys(server).public };
    let security = Security::CurveClient(Arc::new(keys));
    Settings { security, ..Settings::new(socket, Bytes::from_static(b"me")) }
}

fn server() -> Connection {
    connection(&server_settings(), Side::Accepted)
}

fn client() -> Connection {
    connection(&client_settings(SocketType::Dealer, SERVER), Side::Dialled)
}

/// A client and a server that have shaken hands.
fn pair(limits: &Limits) -> [Connection; 2] {
    let settings = Settings { limits: limits.clone(), ..server_settings() };
    let mut pair = [client(), connection(&settings, Side::Accepted)];
    let [client, server] = &mut pair;
    assert_eq!(talk(client, server), [vec![], vec![Event::Authenticate(keys(CLIENT).public)]]);
    server.allow(Some(Bytes::from_static(b"ada")));
    let [at_client, at_server] = talk(client, server);
    assert!(matches!((&at_client[..], &at_server[..]), ([Event::Ready(_)], [Event::Ready(_)])));
    pair
}

/// The commands of the vectors, by their names.
fn vectors() -> HashMap<&'static str, Vec<u8>> {
    let text = include_str!("vectors/curve.txt").lines().filter(|line| !line.starts_with('#'));
    let byte = |text: &[u8]| {
        let digit = |at: usize| u8::try_from(char::from(text[at]).to_digit(16).expect("hexadecimal")).expect("a digit");
        digit(0) << 4 | digit(1)
    };
    let read = |line: &'static str| {
        let (name, text) = line.split_once(' ')?;
        Some((name, text.as_bytes().chunks(2).map(byte).collect()))
    };
    text.filter_map(read).collect()
}

fn command(flags: u8, body: &[u8]) -> Vec<u8> {
    match u8::try_from(body.len()) {
        Ok(len) => [&[flags, len], body].concat(),
        Err(_) => [&[flags | 2], &(body.len() as u64).to_be_bytes()[..], body].concat(),
    }
}

#[test]
fn commands_are_those_that_libsodium_makes() {
    let vectors = vectors();
    let (mut client, mut server) = (client(), server());
    let greeting = written(&mut server);
    assert_eq!((&greeting[12..17], greeting[32]), (&b"CURVE"[..], 1));
    read(&mut server, &written(&mut client), &[64]);
    read(&mut client, &greeting, &[64]);
    let step = |from: &mut Connection, to: &mut Connection, name: &str, flags| {
        let bytes = written(from);
        assert!(bytes == command(flags, &vectors[name]), "{name}: {}", bytes.len());
        read(to, &bytes, &[7])
    };
    assert_eq!(vectors["hello"].len(), 200);
    step(&mut client, &mut server, "hello", 4);
    assert_eq!(vectors["welcome"].len(), 168);
    step(&mut server, &mut client, "welcome", 4);
    let asked = step(&mut client, &mut server, "initiate", 4);
    assert_eq!(asked, [Event::Authenticate(keys(CLIENT).public)]);
    assert!(written(&mut server).is_empty());
    server.allow(Some(Bytes::from_static(b"ada")));
    let ready = events(&mut server);
    let [Event::Ready(ready)] = &ready[..] else { panic!("{ready:?}") };
    assert_eq!((&ready.identity[..], ready.user.as_deref()), (&b"me"[..], Some(&b"ada"[..])));
    assert_eq!(ready.key, Some(keys(CLIENT).public));
    assert_eq!(step(&mut server, &mut client, "ready", 4).len(), 1);
    assert!(client.send(&frames(&[b"hello", b""])) && server.send(&frames(&[b"world"])));
    let bytes = written(&mut client);
    let first = command(0, &vectors["client_message"]);
    assert!(bytes.starts_with(&first));
    assert_eq!(messages(&read(&mut server, &bytes, &[3])), [frames(&[b"hello", b""])]);
    assert_eq!(messages(&step(&mut server, &mut client, "server_message", 0)), [frames(&[b"world"])]);
}

#[test]
fn every_size_goes_there_and_back() {
    let [mut client, mut server] = pair(&Limits::default());
    let sizes = [0, 1, 221, 222, 223, 255, 256, 4063, 4096, 16_384, 65_535, 65_536, (1 << 20) + 1];
    let all: Frames = sizes.iter().map(|size| Bytes::from(vec![5; *size])).collect();
    for frame in &all {
        assert!(client.send(std::slice::from_ref(frame)) && server.send(&[frame.clone(), Bytes::new()]));
    }
    assert!(client.send(&all));
    let bytes = written(&mut client);
    let got = messages(&read(&mut server, &bytes, &[65_536, 65_535]));
    assert!(got[..all.len()].iter().zip(&all).all(|(got, frame)| got[..] == [frame.clone()]));
    assert!(got[all.len()..] == [all.clone()]);
    let back = messages(&talk(&mut client, &mut server)[0]);
    assert!(
        back.len() == all.len() && back.iter().zip(&all).all(|(got, frame)| got[..] == [frame.clone(), Bytes::new()])
    );
}

#[test]
fn limits_hold_for_what_is_in_the_boxes() {
    let limits = Limits { message_bytes: 100_000, message_frames: 2, ..Limits::default() };
    for (message, expected) in [
        (vec![60_000, 40_000], None),
        (vec![60_000, 40_001], Some(Reason::MessageTooLarge)),
        (vec![100_000], None),
        (vec![100_001], Some(Reason::MessageTooLarge)),
        (vec![0, 0], None),
        (vec![0, 0, 0], Some(Reason::TooManyFrames)),
    ] {
        let [mut client, mut server] = pair(&limits);
        let message: Frames = message.into_iter().map(|len| Bytes::from(vec![1; len])).collect();
        assert!(client.send(&message));
        assert_eq!(reason(&talk(&mut client, &mut server)[1]), expected);
    }
    // At the head, if that is enough to know.
    let [_, mut server] = pair(&limits);
    let head = [&b"\x02"[..], &(100_034u64).to_be_bytes()].concat();
    assert_eq!(reason(&read(&mut server, &head, &[9])), Some(Reason::MessageTooLarge));
    let unlimited = Limits { message_bytes: u64::MAX, ..limits };
    let [_, mut server] = pair(&unlimited);
    assert_eq!(reason(&read(&mut server, &head, &[9])), None);
}

#[test]
fn what_waits_is_encrypted_a_little_ahead() {
    let [mut client, mut server] = pair(&Limits::default());
    let sizes = [10, 65536, 300, 0, 5000, 200_000, 4096, 1];
    let sent: Vec<_> = (0..80).map(|at| [Bytes::from(vec![at; sizes[usize::from(at) % sizes.len()]])]).collect();
    for message in &sent {
        assert!(client.send(message));
    }
    let waiting = client.backlog();
    assert_eq!(waiting.messages, sent.len());
    let (mut bytes, mut received) = (0, vec![]);
    while client.backlog().bytes > 0 {
        let some = client.chunks().collect::<Vec<_>>().concat();
        assert!(some.len() < 128 * 1024 + 201_000, "{} bytes were encrypted", some.len());
        // A slow peer takes a part of it.
        let some = &some[..some.len().min(70_000)];
        client.handle_written(some.len());
        bytes += some.len();
        received.extend(read(&mut server, some, &[9000]));
    }
    // Nothing is counted twice, or forgotten.
    assert_eq!(bytes, waiting.bytes);
    let expected: Vec<_> = sent.iter().map(|message| Event::Message(message.iter().cloned().collect())).collect();
    assert!(received == expected);
}

#[test]
fn heartbeats_are_encrypted() {
    let heartbeat =
        Some(Heartbeat { interval: Duration::from_secs(1), timeout: Some(Duration::from_secs(1)), ttl: None });
    let mut server = connection(&Settings { heartbeat, ..server_settings() }, Side::Accepted);
    let mut client = client();
    talk(&mut client, &mut server);
    server.allow(None);
    talk(&mut client, &mut server);
    let due = server.poll_timeout().expect("a PING is due");
    server.handle_timeout(due);
    let ping = written(&mut server);
    assert_eq!((ping.len(), &ping[2..10]), (2 + 33 + 7, &b"\x07MESSAGE"[..]));
    assert_eq!(read(&mut client, &ping, &[5]), []);
    let answer = written(&mut client);
    assert_eq!(answer.len(), 2 + 33 + 5);
    assert_eq!(read(&mut server, &answer, &[5]), []);
    server.handle_timeout(due + Duration::from_millis(999));
    assert!(!server.is_over());
}

#[test]
fn a_key_that_is_not_allowed_is_told() {
    let (mut client, mut server) = (client(), server());
    talk(&mut client, &mut server);
    server.deny();
    let [at_client, at_server] = talk(&mut client, &mut server);
    assert_eq!(reason(&at_server), Some(Reason::Denied));
    let Some(Event::Failed(failure)) = at_client.last() else { panic!("{at_client:?}") };
    assert_eq!((failure.reason, failure.detail.as_deref()), (Reason::Refused, Some("400")));
    server.allow(None);
    assert_eq!(events(&mut server), []);
}

#[test]
fn who_is_decided_about_waits_within_limits() {
    let (mut client, mut server) = (client(), server());
    talk(&mut client, &mut server);
    for _ in 0..16 {
        server.receive(Nanos(2), Bytes::from(vec![0; 4096]));
    }
    assert_eq!(events(&mut server), []);
    server.receive(Nanos(2), Bytes::from(vec![0; 1]));
    assert_eq!(reason(&events(&mut server)), Some(Reason::HandshakeTooLarge));
    let (mut client, mut server) = (self::client(), self::server());
    talk(&mut client, &mut server);
    server.handle_timeout(Nanos(0) + Duration::from_secs(10));
    assert_eq!(reason(&events(&mut server)), Some(Reason::HandshakeTimeout));
    assert!(written(&mut server).is_empty());
}

#[test]
fn sides_that_do_not_go_together_part() {
    let mut strangers = [
        // A client of another server, one without security, a server, and a socket of another pattern.
        (connection(&client_settings(SocketType::Dealer, 7), Side::Dialled), Reason::BadHello),
        (plain(SocketType::Dealer, Side::Dialled), Reason::OtherMechanism),
        (connection(&server_settings(), Side::Dialled), Reason::SameRole),
        (connection(&client_settings(SocketType::Push, SERVER), Side::Dialled), Reason::BadSocketType),
    ];
    for (stranger, expected) in &mut strangers {
        let mut server = server();
        assert_eq!(reason(&talk(stranger, &mut server)[1]), Some(*expected));
    }
    let [mut one, mut other] = [(); 2].map(|()| client());
    talk(&mut one, &mut other);
    // Neither is a server: each waits for a WELCOME.
    let reasons = [Reason::BadWelcome; 2].map(Some);
    let [mut one, mut other] = [(); 2].map(|()| client());
    assert_eq!(talk(&mut one, &mut other).map(|events| reason(&events)), reasons);
}

/// The reason for which a server refuses the bytes of a client after the handshake, changed by this.
fn server_reads(change: impl FnOnce(&mut Vec<u8>)) -> Option<Reason> {
    let [mut client, mut server] = pair(&Limits::default());
    assert!(client.send(&frames(&[b"one"])) && client.send(&frames(&[b"two"])));
    let mut bytes = written(&mut client).to_vec();
    change(&mut bytes);
    reason(&read(&mut server, &bytes, &[11]))
}

#[test]
fn what_is_not_of_the_peer_is_not_taken() {
    assert_eq!(server_reads(|_| {}), None);
    let half = 2 + 33 + 3;
    assert_eq!(server_reads(|bytes| bytes.extend_from_within(..half)), Some(Reason::BadNonce));
    assert_eq!(server_reads(|bytes| bytes.rotate_left(half)), Some(Reason::BadNonce));
    assert_eq!(server_reads(|bytes| bytes[20] ^= 1), Some(Reason::BadMessage));
    assert_eq!(server_reads(|bytes| bytes[17] ^= 0x10), Some(Reason::BadMessage));
    assert_eq!(server_reads(|bytes| bytes.splice(.., *b"\0\x05plain").for_each(drop)), Some(Reason::BadMessage));
    assert_eq!(
        server_reads(|bytes| bytes.splice(.., *b"\x04\x07\x04PING\0\0").for_each(drop)),
        Some(Reason::BadMessage)
    );
    assert_eq!(
        server_reads(|bytes| bytes.splice(.., *b"\x04\x0a\x05ERROR\x03400").for_each(drop)),
        Some(Reason::BadMessage)
    );
    // The messages of one side do not decrypt as those of the other.
    let [mut client, mut server] = pair(&Limits::default());
    assert!(client.send(&frames(&[b"echo"])) && client.send(&frames(&[b"echo"])));
    let bytes = written(&mut client);
    assert_eq!(reason(&read(&mut client, &bytes, &[64])), Some(Reason::BadMessage));
    assert_eq!(reason(&read(&mut server, &bytes, &[64])), None);
}

#[test]
fn a_handshake_is_not_played_again() {
    let (mut client, mut server) = (client(), server());
    let mut sent = vec![];
    for _ in 0..3 {
        let bytes = written(&mut client);
        sent.extend_from_slice(&bytes);
        read(&mut server, &bytes, &[64]);
        read(&mut client, &written(&mut server), &[64]);
    }
    // A server with other random bytes, as a real one has each time.
    let crypto = Pure::default();
    *crypto.0.lock().expect("nobody panicked") = 100;
    let security = Security::CurveServer(Arc::new(ServerKeys { crypto: Arc::new(crypto), keys: keys(SERVER) }));
    let mut again = connection(&Settings { security, ..server_settings() }, Side::Accepted);
    assert_eq!(reason(&read(&mut again, &sent, &[64])), Some(Reason::BadInitiate));
}

#[test]
fn commands_come_in_their_order() {
    let vectors = vectors();
    let greeting = written(&mut client());
    for (names, expected) in [
        (vec!["initiate"], Reason::BadHello),
        (vec!["hello", "hello"], Reason::BadInitiate),
        (vec!["client_message"], Reason::BadHello),
    ] {
        let mut bytes = greeting.to_vec();
        for name in names {
            bytes.extend(command(4, &vectors[name]));
        }
        assert_eq!(reason(&read(&mut server(), &bytes, &[64])), Some(expected));
    }
    let mut cut = vectors["hello"].clone();
    cut.pop();
    let bytes = [&greeting[..], &command(4, &cut)].concat();
    assert_eq!(reason(&read(&mut server(), &bytes, &[64])), Some(Reason::BadHello));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn cuts_and_changes_make_no_difference(
        sent in vec(vec(0usize..2000, 1..4), 0..5),
        change in prop::option::of((any::<prop::sample::Index>(), 1u8..)),
        sizes in vec(1usize..500, 1..5),
    ) {
        let [mut client, whole] = pair(&Limits::default());
        let [_, cut] = pair(&Limits::default());
        let sent: Vec<Frames> =
            sent.iter().map(|sizes| sizes.iter().map(|len| Bytes::from(vec![3; *len])).collect()).collect();
        for message in &sent {
            prop_assert!(client.send(message));
        }
        let mut bytes = written(&mut client).to_vec();
        let change = change.filter(|_| !bytes.is_empty());
        if let Some((at, change)) = &change {
            let at = at.index(bytes.len());
            bytes[at] ^= change;
        }
        let [whole, cut] = [(whole, vec![bytes.len()]), (cut, sizes)].map(|(mut server, sizes)| {
            let events = read(&mut server, &bytes, &sizes);
            (events, server.is_over())
        });
        prop_assert_eq!(&whole, &cut);
        let got = messages(&whole.0);
        prop_assert!(sent.starts_with(&got) && (change.is_some() || got.len() == sent.len()));
    }

    #[test]
    fn a_changed_handshake_lets_nobody_in(at in 64usize..700, change in 1u8..) {
        let (mut client, mut server) = (client(), server());
        let (mut seen, mut happened) = (0, vec![]);
        for _ in 0..4 {
            let mut bytes = written(&mut client).to_vec();
            if let Some(byte) = at.checked_sub(seen).and_then(|at| bytes.get_mut(at)) {
                *byte ^= change;
            }
            seen += bytes.len();
            happened.extend(read(&mut server, &bytes, &[64]));
            read(&mut client, &written(&mut server), &[64]);
        }
        let is_asked = happened.iter().any(|event| matches!(event, Event::Authenticate(_)));
        prop_assert_eq!(is_asked, at >= seen);
    }
}
