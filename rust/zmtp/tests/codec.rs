//! Connections without security: what they read and write, and what unknown peers may do to them.

mod common;

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use common::{connection, events, frames, messages, plain, read, reason, talk, written};
use proptest::collection::vec;
use proptest::prelude::*;
use trunkline_wire::{Backlog, Frames, Nanos};
use trunkline_zmtp::{Connection, Event, Heartbeat, Limits, Reason, Settings, Side, SocketType};

/// What a DEALER writes up to the end of its handshake.
fn handshake(identity: &[u8]) -> Vec<u8> {
    let settings = Settings::new(SocketType::Dealer, Bytes::copy_from_slice(identity));
    let mut dealer = connection(&settings, Side::Dialled);
    let mut router = plain(SocketType::Router, Side::Accepted);
    let mut bytes = vec![];
    loop {
        let more = written(&mut dealer);
        if more.is_empty() {
            return bytes;
        }
        bytes.extend(&more);
        read(&mut router, &more, &[64]);
        read(&mut dealer, &written(&mut router), &[64]);
    }
}

fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    if body.len() < 256 {
        bytes.put_u8(flags);
        bytes.put_u8(u8::try_from(body.len()).expect("it is short"));
    } else {
        bytes.put_u8(flags | 2);
        bytes.put_u64(body.len() as u64);
    }
    bytes.put_slice(body);
    bytes.to_vec()
}

/// A ROUTER that has shaken hands with a DEALER.
fn router(limits: Limits) -> Connection {
    let settings = Settings { limits, ..Settings::new(SocketType::Router, Bytes::new()) };
    let mut router = connection(&settings, Side::Accepted);
    assert_eq!(read(&mut router, &handshake(b"me"), &[4096]).len(), 1);
    written(&mut router);
    router
}

/// The reason for which a ROUTER gives up a peer that sends this after the handshake.
fn refused(limits: Limits, bytes: &[u8]) -> Option<Reason> {
    let mut router = router(limits);
    let events = read(&mut router, bytes, &[7, 4096]);
    assert_eq!(router.is_over(), reason(&events).is_some());
    reason(&events)
}

#[test]
fn the_greeting_and_ready_are_those_of_the_rfc() {
    let bytes = handshake(b"");
    let greeting = [&b"\xff\0\0\0\0\0\0\0\0\x7f\x03\x01NULL"[..], &[0; 48]].concat();
    assert_eq!(&bytes[..64], greeting);
    assert_eq!(&bytes[64..], b"\x04\x29\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0");
    let mut push = plain(SocketType::Push, Side::Accepted);
    read(&mut push, &greeting, &[64]);
    assert_eq!(written(&mut push).len(), 64, "who was dialled waits");
}

#[test]
fn peers_of_zmtp_2_are_spoken_to() {
    let settings = Settings::new(SocketType::Router, Bytes::from_static(b"us"));
    let mut router = connection(&settings, Side::Accepted);
    assert_eq!(written(&mut router), b"\xff\0\0\0\0\0\0\0\0\x7f\x03"[..]);
    let greeting = b"\xff\0\0\0\0\0\0\0\x01\x7f\x01\x05";
    assert_eq!(read(&mut router, greeting, &[5]), []);
    assert_eq!(written(&mut router), b"\x06\0\x02us"[..]);
    let [Event::Ready(dealer)] = &read(&mut router, b"\0\x02me", &[1])[..] else { panic!("it is ready") };
    assert_eq!((dealer.socket_type, &dealer.identity[..], dealer.minor), (SocketType::Dealer, &b"me"[..], 0));
    assert_eq!(messages(&read(&mut router, b"\x01\0\0\x01x", &[3])), [frames(&[b"", b"x"])]);
    assert!(router.send(&frames(&[b"", b"y"])));
    assert_eq!(written(&mut router), b"\x01\0\0\x01y"[..]);
    for (bytes, expected) in [
        (&b"\x01"[..], Reason::BadSocketType),
        (b"\x08\0\0", Reason::BadSocketType),
        (b"\x05\x01\0", Reason::BadFlags),
        (b"\x05\x04\0", Reason::BadFlags),
        (b"\x05\0\x02\0a", Reason::BadIdentity),
    ] {
        let mut router = plain(SocketType::Router, Side::Accepted);
        let events = read(&mut router, &[&greeting[..11], bytes].concat(), &[4]);
        assert_eq!(reason(&events), Some(expected), "{bytes:?}");
    }
}

#[test]
fn peers_introduce_themselves() {
    let settings = Settings::new(SocketType::Dealer, Bytes::from_static(b"me"));
    let mut dealer = connection(&settings, Side::Dialled);
    let mut router = plain(SocketType::Router, Side::Accepted);
    assert!(!dealer.send(&frames(&[b"early"])));
    let [at_dealer, at_router] = talk(&mut dealer, &mut router);
    let ([Event::Ready(router_is)], [Event::Ready(dealer_is)]) = (&at_dealer[..], &at_router[..]) else {
        panic!("{at_dealer:?} {at_router:?}");
    };
    assert_eq!((dealer_is.socket_type, &dealer_is.identity[..], dealer_is.minor), (SocketType::Dealer, &b"me"[..], 1));
    assert_eq!((router_is.socket_type, router_is.identity.len()), (SocketType::Router, 0));
    assert!(dealer.send(&frames(&[b"", b"hello"])));
    assert!(!dealer.send(&[]));
    assert_eq!(dealer.backlog().messages, 1);
    assert_eq!(talk(&mut dealer, &mut router)[1], [Event::Message(frames(&[b"", b"hello"]))]);
    assert_eq!(dealer.backlog(), Backlog::default());
}

#[test]
fn frames_are_slices_of_what_was_read() {
    let mut router = router(Limits::default());
    let bytes = Bytes::from([frame(1, &[1; 100]), frame(0, &vec![2; 70_000])].concat());
    router.receive(Nanos(1), bytes.clone());
    let message = &messages(&events(&mut router))[0];
    let range = bytes.as_ptr_range();
    assert!(message.iter().all(|frame| range.contains(&frame.as_ptr())));
}

#[test]
fn long_frames_stay_where_they_were_read_to() {
    let mut router = router(Limits::default());
    let body = vec![7; 3 << 20];
    let bytes = frame(0, &body);
    assert!(router.landing().is_none());
    router.receive(Nanos(1), Bytes::copy_from_slice(&bytes[..1000]));
    assert_eq!(events(&mut router), []);
    let (mut at, mut rooms) = (1000, 0);
    while let Some(mut landing) = router.landing() {
        let room = landing.remaining_mut();
        assert!(room <= bytes.len() - at);
        landing.put_slice(&bytes[at..at + room]);
        router.handle_landed(Nanos(1));
        (at, rooms) = (at + room, rooms + 1);
    }
    assert_eq!((at, events(&mut router)), (bytes.len(), vec![Event::Message(frames(&[&body]))]));
    // Bytes that have not come are not reserved: the room grew with those that came.
    assert!(rooms > 1);
}

#[test]
fn a_message_that_does_not_end_holds_nothing_else() {
    let mut router = router(Limits::default());
    let bytes = Bytes::from([frame(1, b"a"), frame(4, &[&b"\x05LATER"[..], &vec![0; 60_000]].concat())].concat());
    router.receive(Nanos(1), bytes.clone());
    assert_eq!(events(&mut router), []);
    assert!(bytes.is_unique());
    for rest in [&[0, 3, 1][..], &[0], &[0, 0]] {
        let mut router = self::router(Limits::default());
        let bytes = Bytes::copy_from_slice(rest);
        router.receive(Nanos(1), bytes.clone());
        events(&mut router);
        assert!(bytes.is_unique(), "{rest:?}");
    }
    assert_eq!(messages(&read(&mut router, &frame(0, b"b"), &[9])), [frames(&[b"a", b"b"])]);
}

#[test]
fn every_size_goes_there_and_back() {
    let sizes = [0, 1, 2, 254, 255, 256, 257, 4095, 4096, 4097, 65_535, 65_536, 65_537, 1 << 20, (20 << 20) + 1];
    let all: Frames = sizes.iter().map(|size| Bytes::from(vec![5; *size])).collect();
    let mut dealer = plain(SocketType::Dealer, Side::Dialled);
    let mut router = plain(SocketType::Router, Side::Accepted);
    talk(&mut dealer, &mut router);
    for frame in &all {
        assert!(dealer.send(std::slice::from_ref(frame)) && router.send(&[Bytes::new(), frame.clone()]));
    }
    assert!(dealer.send(&all));
    let bytes = written(&mut dealer);
    let got = messages(&read(&mut router, &bytes, &[65_536, 65_535]));
    assert!(got[..all.len()].iter().zip(&all).all(|(got, frame)| got[..] == [frame.clone()]));
    assert!(got[all.len()..] == [all.clone()]);
    let back = messages(&talk(&mut dealer, &mut router)[0]);
    assert!(
        back.iter().zip(&all).all(|(got, frame)| got[..] == [Bytes::new(), frame.clone()]) && back.len() == all.len()
    );
}

#[test]
fn pings_are_answered_with_their_context() {
    let mut router = router(Limits::default());
    // Even within a message, where libzmq puts its own.
    let bytes = [frame(1, b"a"), frame(4, b"\x04PING\0\x0acontext"), frame(0, b"b")].concat();
    assert_eq!(messages(&read(&mut router, &bytes, &[1])), [frames(&[b"a", b"b"])]);
    assert_eq!(written(&mut router), &b"\x04\x0c\x04PONGcontext"[..]);
    assert_eq!(router.poll_timeout(), None, "what follows is a sign of life");
    read(&mut router, &frame(4, b"\x04PING\0\x0a"), &[4096]);
    assert_eq!(router.poll_timeout(), Some(Nanos(1_000_000_001)));
    router.handle_timeout(Nanos(1_000_000_001));
    assert_eq!(reason(&events(&mut router)), Some(Reason::TtlExpired));
}

#[test]
fn a_peer_that_says_nothing_is_asked_and_given_up() {
    let second = Duration::from_secs(1);
    let heartbeat = Heartbeat { interval: second, timeout: Some(second), ttl: Some(second * 3) };
    let settings = Settings { heartbeat: Some(heartbeat), ..Settings::new(SocketType::Router, Bytes::new()) };
    for (minor, pings) in [(0, false), (1, true)] {
        let mut bytes = handshake(b"");
        bytes[11] = minor;
        let mut router = connection(&settings, Side::Accepted);
        read(&mut router, &bytes, &[64]);
        written(&mut router);
        assert_eq!(router.poll_timeout().is_some(), pings);
        router.handle_timeout(Nanos(0) + second * 2);
        assert_eq!(written(&mut router), if pings { &b"\x04\x07\x04PING\0\x1e"[..] } else { b"" });
        router.handle_timeout(Nanos(0) + second * 3);
        assert_eq!(reason(&events(&mut router)), pings.then_some(Reason::HeartbeatTimeout));
    }
}

#[test]
fn a_peer_of_zmtp_3_0_that_asks_is_asked_as_well() {
    let second = Duration::from_secs(1);
    let heartbeat = Heartbeat { interval: second, timeout: Some(second), ttl: None };
    let settings = Settings { heartbeat: Some(heartbeat), ..Settings::new(SocketType::Router, Bytes::new()) };
    let mut bytes = handshake(b"");
    bytes[11] = 0;
    let mut router = connection(&settings, Side::Accepted);
    read(&mut router, &bytes, &[64]);
    read(&mut router, &frame(4, b"\x04PING\0\0"), &[64]);
    written(&mut router);
    router.handle_timeout(Nanos(0) + second * 2);
    assert_eq!(written(&mut router), b"\x04\x07\x04PING\0\0"[..]);
    router.handle_timeout(Nanos(0) + second * 3);
    assert_eq!(reason(&events(&mut router)), Some(Reason::HeartbeatTimeout));
}

#[test]
fn strangers_have_ten_seconds() {
    let mut router = plain(SocketType::Router, Side::Accepted);
    let ten = Nanos(0) + Duration::from_secs(10);
    assert_eq!(router.poll_timeout(), Some(ten));
    // However busy they are.
    read(&mut router, &handshake(b"")[..80], &[1]);
    router.handle_timeout(Nanos(ten.0 - 1));
    assert!(!router.is_over());
    router.handle_timeout(ten);
    let events = events(&mut router);
    assert_eq!(reason(&events), Some(Reason::HandshakeTimeout));
    assert_eq!(router.poll_timeout(), None);
    let Some(Event::Failed(failure)) = events.last() else { panic!("{events:?}") };
    assert_eq!(failure.to_string(), "ZMTP: the handshake took too long (byte 64)");
}

#[test]
fn strangers_have_64_kib_and_none_is_reserved() {
    for (size, is_good) in [((64 << 10) - 64 - 9, true), ((64 << 10) - 64 - 8, false), (1 << 40, false)] {
        let mut router = plain(SocketType::Router, Side::Accepted);
        let head = [&handshake(b"")[..64], b"\x06", &u64::to_be_bytes(size)].concat();
        let events = read(&mut router, &head, &[4096]);
        let expected = (!is_good).then_some(Reason::HandshakeTooLarge);
        assert_eq!(reason(&events), expected);
        // That is all the room reserved for it.
        assert_eq!(router.landing().map(|landing| landing.remaining_mut()), is_good.then_some(4096));
    }
}

#[test]
fn other_sockets_are_told_that_they_do_not_suit() {
    let mut push = plain(SocketType::Push, Side::Dialled);
    let mut router = plain(SocketType::Router, Side::Accepted);
    let [at_push, at_router] = talk(&mut push, &mut router);
    assert_eq!((reason(&at_push), reason(&at_router)), (Some(Reason::Refused), Some(Reason::BadSocketType)));
    let Some(Event::Failed(failure)) = at_push.last() else { panic!("{at_push:?}") };
    assert_eq!(failure.detail.as_deref(), Some("bad_socket_type"));
}

#[test]
fn a_handshake_is_one_ready() {
    let greeting = &handshake(b"")[..64];
    for (frame, expected) in [
        (frame(0, b"hello"), Reason::UnexpectedMessage),
        (frame(4, b"\x04PING\0\0"), Reason::UnexpectedCommand),
        (frame(4, b""), Reason::BadCommand),
        (frame(4, b"\x05READY\x01"), Reason::BadMetadata),
        (frame(4, b"\x05READY"), Reason::BadSocketType),
        (frame(4, b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\x01\0"), Reason::BadIdentity),
        (frame(4, b"\x05ERROR\x03400"), Reason::Refused),
        (frame(5, b""), Reason::BadFlags),
    ] {
        let mut router = plain(SocketType::Router, Side::Accepted);
        let events = read(&mut router, &[greeting, &frame].concat(), &[3]);
        assert_eq!(reason(&events), Some(expected));
    }
}

#[test]
fn a_message_is_bounded_while_it_comes() {
    let limits = || Limits { message_bytes: 1000, message_frames: 3, ..Limits::default() };
    let long = |len: u64| [&b"\x02"[..], &len.to_be_bytes()].concat();
    for (bytes, expected) in [
        (frame(0, &[0; 1000]), None),
        (long(1001), Some(Reason::MessageTooLarge)),
        (long(1 << 40), Some(Reason::MessageTooLarge)),
        (long((1 << 63) - 1), Some(Reason::MessageTooLarge)),
        (long(1 << 63), Some(Reason::BadLength)),
        ([frame(1, &[0; 500]), frame(0, &[0; 500])].concat(), None),
        ([frame(1, &[0; 500]), frame(1, &[0; 400]), b"\0\x65".to_vec()].concat(), Some(Reason::MessageTooLarge)),
        ([frame(1, b""), frame(1, b""), frame(0, b""), frame(1, b""), frame(1, b""), frame(1, b"")].concat(), None),
        ([frame(1, b""), frame(1, b""), frame(1, b""), b"\0\0".to_vec()].concat(), Some(Reason::TooManyFrames)),
        ([&b"\x06"[..], &((64 << 10) + 1u64).to_be_bytes()].concat(), Some(Reason::CommandTooLarge)),
        (frame(4, b"\x09SUBSCRIBE"), Some(Reason::Subscription)),
        (frame(4, b"\x05ERROR\x02no"), Some(Reason::Refused)),
        (frame(4, b"\x07UNKNOWN data"), None),
    ] {
        assert_eq!(refused(limits(), &bytes), expected);
    }
}

#[test]
fn what_waits_for_who_is_given_up_is_let_go() {
    let mut router = router(Limits::default());
    assert!(router.send(&frames(&[&vec![0; 100_000]])));
    router.refuse(Reason::HandedOver);
    assert_eq!(reason(&events(&mut router)), Some(Reason::HandedOver));
    assert_eq!(router.backlog(), Backlog::default());
    assert!(!router.send(&frames(&[b"late"])));
    router.receive(Nanos(2), Bytes::from_static(b"\0\0"));
    router.refuse(Reason::HungUp);
    assert_eq!(events(&mut router), []);
}

#[test]
fn a_handshake_is_not_finished_for_who_is_given_up() {
    let mut router = plain(SocketType::Router, Side::Accepted);
    assert_eq!(written(&mut router).len(), 11);
    assert_eq!(read(&mut router, &handshake(b"me"), &[4096]).len(), 1);
    router.refuse(Reason::IdentityTaken);
    assert_eq!(written(&mut router), b""[..]);
}

#[test]
fn an_end_says_where_it_was() {
    for (bytes, expected) in
        [(&b""[..], Reason::HungUp), (b"\x01\x01a", Reason::MessageCut), (b"\x01", Reason::MessageCut)]
    {
        let mut router = router(Limits::default());
        read(&mut router, bytes, &[2]);
        router.handle_eof();
        assert_eq!(reason(&events(&mut router)), Some(expected));
    }
    let mut router = plain(SocketType::Router, Side::Accepted);
    router.handle_eof();
    assert_eq!(reason(&events(&mut router)), Some(Reason::HandshakeCut));
}

/// Something a peer may send after its handshake, valid or not.
fn saying() -> impl Strategy<Value = Vec<u8>> {
    let body = prop_oneof![
        vec(any::<u8>(), 0..40),
        (0usize..70_000).prop_map(|len| vec![3; len]),
        prop::sample::select(vec![254usize, 255, 256, 257, 16_384, 65_536]).prop_map(|len| vec![9; len]),
    ];
    prop_oneof![
        12 => (prop::bool::ANY, body).prop_map(|(more, body)| frame(more.into(), &body)),
        2 => (any::<u16>(), 0usize..18).prop_map(|(ttl, context)| {
            frame(4, &[&b"\x04PING"[..], &ttl.to_be_bytes(), &vec![b'c'; context]].concat())
        }),
        1 => vec(any::<u8>(), 0..12).prop_map(|body| frame(4, &body)),
        1 => vec(any::<u8>(), 0..12),
    ]
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    vec(prop_oneof![1usize..12, 1usize..70_000, Just(65_536)], 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 300 }))]

    #[test]
    fn cuts_make_no_difference(
        identity in vec(1u8.., 0..20),
        keep in 0usize..400,
        sayings in vec(saying(), 0..12),
        sizes in sizes(),
    ) {
        let mut bytes = handshake(&identity);
        bytes.truncate(keep);
        bytes.extend(sayings.concat());
        let limits = Limits { message_bytes: 100_000, message_frames: 6, ..Limits::default() };
        let settings = Settings { limits, ..Settings::new(SocketType::Router, Bytes::new()) };
        let [mut whole, mut cut] = [(); 2].map(|()| connection(&settings, Side::Accepted));
        prop_assert!(read(&mut whole, &bytes, &[bytes.len()]) == read(&mut cut, &bytes, &sizes));
        prop_assert!(written(&mut whole) == written(&mut cut));
        prop_assert_eq!(whole.poll_timeout(), cut.poll_timeout());
        whole.handle_eof();
        cut.handle_eof();
        prop_assert_eq!(events(&mut whole), events(&mut cut));
    }

    #[test]
    fn junk_is_refused_or_waited_for(
        prefix in 0usize..100,
        changes in vec((0usize..110, any::<u8>()), 0..4),
        junk in vec(any::<u8>(), 0..300),
        sizes in sizes(),
    ) {
        let mut bytes = handshake(b"junk");
        bytes.truncate(prefix);
        bytes.extend(junk);
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        let mut router = plain(SocketType::Router, Side::Accepted);
        let happened = read(&mut router, &bytes, &sizes);
        let failures = happened.iter().filter(|event| matches!(event, Event::Failed(_))).count();
        prop_assert_eq!(failures, usize::from(router.is_over()));
        router.handle_timeout(Nanos(u64::MAX));
        let is_ready = happened.iter().any(|event| matches!(event, Event::Ready(_)));
        prop_assert!(is_ready || router.is_over());
    }

    #[test]
    fn what_is_sent_is_received(
        sent in vec(vec(prop_oneof![0usize..300, 4000usize..5000, 65_000usize..66_000], 1..5), 0..8),
        sizes in sizes(),
        steps in sizes(),
    ) {
        let mut dealer = plain(SocketType::Dealer, Side::Dialled);
        let mut router = plain(SocketType::Router, Side::Accepted);
        talk(&mut dealer, &mut router);
        let body = |(at, len): (usize, &usize)| Bytes::from(vec![u8::try_from(at).unwrap(); *len]);
        let sent: Vec<Frames> = sent.iter().map(|sizes| sizes.iter().enumerate().map(body).collect()).collect();
        for message in &sent {
            prop_assert!(dealer.send(message));
        }
        let (mut bytes, mut step) = (vec![], steps.iter().cycle());
        while dealer.backlog().bytes > 0 {
            let next: Vec<u8> = dealer.chunks().flatten().take(*step.next().unwrap()).copied().collect();
            dealer.handle_written(next.len());
            bytes.extend(next);
        }
        prop_assert_eq!(dealer.backlog().messages, 0);
        prop_assert!(messages(&read(&mut router, &bytes, &sizes)) == sent);
    }
}
