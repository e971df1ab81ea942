//! The CDTP roles without sockets: the clock is a number, the transport a queue.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use smallvec::smallvec;
use trunkline_wire::cdtp::{
    BatchBounds, Data, DataOut, Layout, MessageType, Receiver, ReceiverEvent, ReceiverSettings, ReceiverVerb, Sender,
    SenderEvent, SenderSettings, SenderVerb, Settings, Variant, decode, encode_header,
};
use trunkline_wire::msgpack::Timestamp;
use trunkline_wire::{
    Connection, Event, Frames, Incoming, Machine, Nanos, Output, SendId, SocketEvent, SocketOptions, Unsent, Verdict,
    Weight,
};

const MILLISECOND: u64 = 1_000_000;
const EMPTY_MAP: Bytes = Bytes::from_static(&[0x80]);

fn sender(variant: Variant) -> Sender {
    let mut sender = Sender::new(SenderSettings {
        name: "Det".into(),
        variant,
        bind: vec!["tcp://127.0.0.1:*".into()],
        connect: vec![],
        options: SocketOptions { send_hwm: Some(128), ..SocketOptions::default() },
        batch: BatchBounds { bytes: 200, time: Duration::from_millis(50) },
    });
    assert!(matches!(sender.poll_output(), Some(Output::Open(open)) if open.options.immediate));
    sender
}

fn receiver(limit: Option<u64>) -> Receiver {
    let mut receiver = Receiver::new(ReceiverSettings {
        bind: vec!["tcp://127.0.0.1:*".into()],
        connect: vec!["tcp://127.0.0.1:1".into()],
        finds: false,
        options: SocketOptions::default(),
        decode: Settings::default(),
        deliver: true,
        limit,
    });
    // One socket per endpoint, since a PULL cannot distinguish its peers.
    for expected in [Data(0), Data(1)] {
        assert!(matches!(receiver.poll_output(), Some(Output::Open(open)) if open.socket == expected));
    }
    receiver
}

fn data(payload: &'static [u8]) -> SenderVerb {
    SenderVerb::Data {
        timestamp: Timestamp::default(),
        tags: EMPTY_MAP,
        payload: smallvec![Bytes::from_static(payload)],
    }
}

fn sends(sender: &mut Sender) -> Vec<(SendId, Frames)> {
    let mut all = vec![];
    while let Some(Output::Send { id, frames, .. }) = sender.poll_output() {
        all.push((id.expect("a sender wants to know"), frames.into()));
    }
    all
}

fn incoming(frames: Frames) -> Incoming<Data> {
    Incoming { socket: Data(0), peer: None, user_id: None, host: None, frames }
}

fn events(receiver: &mut Receiver) -> usize {
    std::iter::from_fn(|| receiver.poll_event()).filter(|event| matches!(event, ReceiverEvent::Message { .. })).count()
}

/// A BOR (`+`) or EOR (`-`) with this id in its map, or a DAT (`.`), with the header of release 0.4 or of CDTP2.
fn of_a_run(variant: Variant, kind: char, id: &str) -> Frames {
    let message_type = match kind {
        '+' => MessageType::Bor,
        '-' => MessageType::Eor,
        _ => MessageType::Dat,
    };
    let map = if id.is_empty() { vec![0x80] } else { [&b"\x81\xa6run_id\xa2"[..], id.as_bytes()].concat() };
    let mut header = vec![];
    encode_header(&mut header, variant, "Det", Timestamp::default(), message_type, 1, b"\x80").expect("it is short");
    if variant == Variant::B {
        return smallvec![header.into(), map.into()];
    }
    // Two records: the user's tags, then the map.
    header.extend_from_slice(b"\x92\x93\x00\x80\x90\x93\x01");
    header.extend_from_slice(&map);
    header.push(0x90);
    smallvec![header.into()]
}

#[test]
fn runs_that_begin_and_end_are_reported_before_and_after_their_messages() {
    for variant in [Variant::B, Variant::Two] {
        let mut receiver = receiver(None);
        let mut order = String::new();
        let mut after = |receiver: &mut Receiver, kind, id| {
            receiver.handle_message(Nanos(0), incoming(of_a_run(variant, kind, id)));
            while let Some(event) = receiver.poll_event() {
                match event {
                    ReceiverEvent::Message { .. } => order.push('.'),
                    ReceiverEvent::Run { sender, id, ended } => {
                        assert_eq!(&*sender, b"Det");
                        order.push(if ended.is_some() { '-' } else { '+' });
                        order.push_str(&id);
                    }
                    ReceiverEvent::Dropped(_)
                    | ReceiverEvent::Found(_)
                    | ReceiverEvent::Departed(_)
                    | ReceiverEvent::Connection(_) => unreachable!("{event:?}"),
                }
            }
            receiver.stats().runs.remove("Det")
        };
        assert_eq!(after(&mut receiver, '.', ""), None);
        assert_eq!(after(&mut receiver, '+', "r1").as_deref(), Some("r1"));
        assert_eq!(after(&mut receiver, '.', "").as_deref(), Some("r1"));
        // An EOR without an id ends the open run; one without a BOR may name the run it ends.
        assert_eq!(after(&mut receiver, '-', ""), None);
        assert_eq!(after(&mut receiver, '-', "r2"), None);
        assert_eq!(after(&mut receiver, '+', "").as_deref(), Some(""));
        // The EOR of the previous run is lost.
        assert_eq!(after(&mut receiver, '+', "r4").as_deref(), Some("r4"));
        assert_eq!(order, ".+r1...-r1.-r2+.+r4.", "{variant:?}");
    }
}

// req: CDTP-18
#[test]
fn a_sender_gives_the_transport_few_messages_at_a_time() {
    let mut sender = sender(Variant::S);
    for _ in 0..1000 {
        sender.handle_verb(Nanos(0), data(b"x"));
    }
    let first = sends(&mut sender);
    assert!(first.len() <= 64, "{} sends are open", first.len());
    assert_eq!(sender.backlog().messages, 1000);
    for (id, _) in &first {
        sender.handle_socket(Nanos(0), DataOut, SocketEvent::Sent(*id));
    }
    assert_eq!(sender.backlog().messages, 1000 - first.len());
    assert_eq!(sends(&mut sender).len(), first.len());
}

// req: CDTP-18
#[test]
fn what_was_taken_is_at_risk_when_the_receiver_goes() {
    let mut sender = sender(Variant::S);
    sender.handle_socket(Nanos(0), DataOut, SocketEvent::Connected("a".into()));
    for _ in 0..500 {
        sender.handle_verb(Nanos(0), data(b"x"));
        for (id, _) in sends(&mut sender) {
            sender.handle_socket(Nanos(0), DataOut, SocketEvent::Sent(id));
        }
    }
    sender.handle_socket(Nanos(0), DataOut, SocketEvent::Disconnected("a".into()));
    // The transport holds no more than its high-water mark.
    assert_eq!(sender.stats().at_risk, 128);
    sender.handle_socket(Nanos(0), DataOut, SocketEvent::Disconnected("a".into()));
    assert_eq!(sender.stats().at_risk, 128);
}

// req: CDTP-19
#[test]
fn a_closing_sender_gives_up_at_its_time_and_not_before() {
    let mut sender = sender(Variant::B);
    for _ in 0..100 {
        sender.handle_verb(Nanos(0), data(b"x"));
    }
    let open = sends(&mut sender);
    sender.handle_close(Nanos(0), Duration::from_millis(50));
    assert_eq!(sender.poll_timeout(), Some(Nanos(50 * MILLISECOND)));
    sender.handle_timeout(Nanos(49 * MILLISECOND));
    assert!(sender.poll_output().is_none());
    sender.handle_timeout(Nanos(50 * MILLISECOND));
    assert!(matches!(sender.poll_output(), Some(Output::Close { linger: Duration::ZERO, .. })));
    for (id, _) in open {
        sender.handle_socket(Nanos(50 * MILLISECOND), DataOut, SocketEvent::Unsent(id, Unsent::Closed));
    }
    sender.handle_socket(Nanos(50 * MILLISECOND), DataOut, SocketEvent::Closed);
    assert!(sender.is_closed());
    // BOR, the data, EOR.
    assert_eq!(sender.stats().queued, 102);
}

// req: CDTP-21
#[test]
fn a_run_that_no_verb_has_ended_ends_as_interrupted() {
    let interrupted = b"\x82\xaecondition_code\x04\xa9condition\xabINTERRUPTED".as_slice();
    for (is_ended, metadata) in [(false, interrupted), (true, b"\x80".as_slice())] {
        let mut sender = sender(Variant::B);
        sender.handle_verb(Nanos(0), data(b"x"));
        if is_ended {
            let (timestamp, metadata) = (Timestamp::default(), Bytes::from_static(b"\x80"));
            sender.handle_verb(Nanos(0), SenderVerb::EndRun { timestamp, metadata });
        }
        sender.handle_close(Nanos(0), Duration::from_secs(1));
        let sent = sends(&mut sender);
        assert_eq!(sent.len(), 3);
        assert_eq!(sent[2].1[1], metadata);
    }
}

// req: CDTP-20
#[test]
fn a_second_receiver_is_told_once() {
    let mut sender = sender(Variant::S);
    for endpoint in ["a", "b", "c"] {
        sender.handle_socket(Nanos(0), DataOut, SocketEvent::Connected(endpoint.into()));
    }
    let shared = std::iter::from_fn(|| sender.poll_event()).filter(|event| matches!(event, SenderEvent::Shared(_)));
    assert_eq!(shared.count(), 1);
}

#[test]
fn a_receiver_reads_no_more_than_its_limit() {
    let mut receiver = receiver(Some(2));
    for _ in 0..2 {
        assert!(receiver.reads(Data(0)));
        receiver.handle_message(Nanos(0), incoming(smallvec![Bytes::from_static(b"bad")]));
    }
    assert!(!receiver.reads(Data(0)));
    receiver.handle_verb(Nanos(0), ReceiverVerb::Limit(None));
    assert!(receiver.reads(Data(0)));
}

#[test]
fn a_receiver_reads_no_more_once_it_has_messages_enough() {
    let mut receiver = receiver(None);
    receiver.set_message_limit(Some(2));
    let two = b"\xa5CDTP\x02\xa1D\x00\x92\x93\x01\x80\x90\x93\x02\x80\x90";
    for (message, reads_on) in [(b"bad".as_slice(), true), (b"\xa5CDTP\x02\xa1D\x00\x90", true), (two, false)] {
        receiver.handle_message(Nanos(0), incoming(smallvec![Bytes::from_static(message)]));
        assert_eq!(receiver.reads(Data(0)), reads_on, "{message:?}");
    }
    assert_eq!(receiver.stats().messages, 2);
}

#[test]
fn a_stopping_receiver_reads_until_it_is_quiet() {
    let mut receiver = receiver(None);
    receiver.handle_socket(Nanos(0), Data(0), SocketEvent::Connected("a".into()));
    receiver.handle_close(Nanos(0), Duration::from_secs(1));
    assert_eq!(receiver.poll_timeout(), Some(Nanos(250 * MILLISECOND)));
    receiver.handle_message(Nanos(200 * MILLISECOND), incoming(smallvec![Bytes::from_static(b"bad")]));
    assert_eq!(receiver.poll_timeout(), Some(Nanos(450 * MILLISECOND)));
    receiver.handle_timeout(Nanos(449 * MILLISECOND));
    assert!(receiver.reads(Data(0)));
    receiver.handle_timeout(Nanos(450 * MILLISECOND));
    for socket in [Data(0), Data(1)] {
        assert!(matches!(receiver.poll_output(), Some(Output::Close { socket: closed, .. }) if closed == socket));
        receiver.handle_socket(Nanos(450 * MILLISECOND), socket, SocketEvent::Closed);
    }
    assert!(receiver.is_closed());
}

#[test]
fn a_stopping_receiver_stops_at_its_time_however_loud_it_is() {
    let mut receiver = receiver(None);
    receiver.handle_socket(Nanos(0), Data(0), SocketEvent::Connected("a".into()));
    receiver.handle_close(Nanos(0), Duration::from_secs(1));
    for tick in 0..10 {
        let now = Nanos(tick * 100 * MILLISECOND);
        receiver.handle_timeout(now);
        receiver.handle_message(now, incoming(smallvec![Bytes::from_static(b"bad")]));
        assert!(receiver.poll_output().is_none());
    }
    receiver.handle_timeout(Nanos(1000 * MILLISECOND));
    assert!(matches!(receiver.poll_output(), Some(Output::Close { .. })));
}

fn finding() -> Receiver {
    let settings = ReceiverSettings {
        bind: vec![],
        connect: vec![],
        finds: true,
        options: SocketOptions::default(),
        decode: Settings::default(),
        deliver: true,
        limit: None,
    };
    let mut receiver = Receiver::new(settings);
    assert_eq!(receiver.poll_output(), None);
    receiver
}

/// Discovers a sender. Returns the socket for it.
fn find(receiver: &mut Receiver, endpoint: &str) -> Option<Data> {
    receiver.handle_verb(Nanos(0), ReceiverVerb::Connect(endpoint.to_owned()));
    match receiver.poll_output() {
        Some(Output::Open(open)) => Some(open.socket).filter(|_| open.connect == [endpoint]),
        other => {
            assert_eq!(other, None);
            None
        }
    }
}

fn release(receiver: &mut Receiver, now: u64, endpoint: &str) {
    receiver.handle_verb(Nanos(now), ReceiverVerb::Release(endpoint.to_owned()));
}

/// Advances the time. Returns the socket that was closed.
fn closed_at(receiver: &mut Receiver, now: u64) -> Option<Data> {
    receiver.handle_timeout(Nanos(now));
    let Some(Output::Close { socket, .. }) = receiver.poll_output() else { return None };
    receiver.handle_socket(Nanos(now), socket, SocketEvent::Closed);
    Some(socket)
}

// req: CDTP-16
#[test]
fn a_sender_is_dialled_once_and_each_time_it_comes_back() {
    let mut receiver = finding();
    assert_eq!(find(&mut receiver, "tcp://a:1"), Some(Data(0)));
    assert_eq!(find(&mut receiver, "tcp://a:1"), None);
    assert_eq!(find(&mut receiver, "tcp://a:2"), Some(Data(1)));
    release(&mut receiver, 0, "tcp://a:1");
    assert_eq!(closed_at(&mut receiver, 249 * MILLISECOND), None);
    assert_eq!(closed_at(&mut receiver, 250 * MILLISECOND), Some(Data(0)));
    // A number is never reused, so that events of the old socket are not taken for the new one's.
    assert_eq!(find(&mut receiver, "tcp://a:1"), Some(Data(2)));
    // A sender that is back before its socket is closed keeps it.
    release(&mut receiver, 0, "tcp://a:2");
    assert_eq!(find(&mut receiver, "tcp://a:2"), None);
    assert_eq!(closed_at(&mut receiver, 10_000 * MILLISECOND), None);
    release(&mut receiver, 0, "tcp://unknown:1");
    assert_eq!(receiver.poll_timeout(), None);
}

// req: CDTP-16
#[test]
fn a_departed_sender_is_read_until_it_is_quiet_or_its_time_is_up() {
    let mut receiver = finding();
    let bad = || smallvec![Bytes::from_static(b"bad")];
    find(&mut receiver, "tcp://a:1");
    find(&mut receiver, "tcp://a:2");
    release(&mut receiver, 0, "tcp://a:1");
    for tick in 1..10 {
        let now = tick * 100 * MILLISECOND;
        assert_eq!(closed_at(&mut receiver, now), None);
        // Messages from another sender do not extend the wait.
        let socket = if tick < 5 { Data(0) } else { Data(1) };
        receiver.handle_message(Nanos(now), Incoming { socket, ..incoming(bad()) });
        if tick == 4 {
            assert_eq!(receiver.poll_timeout(), Some(Nanos(650 * MILLISECOND)));
            assert_eq!(closed_at(&mut receiver, 650 * MILLISECOND), Some(Data(0)));
            break;
        }
    }
    release(&mut receiver, 0, "tcp://a:2");
    for tick in 0..10 {
        let now = tick * 100 * MILLISECOND;
        assert_eq!(closed_at(&mut receiver, now), None);
        receiver.handle_message(Nanos(now), Incoming { socket: Data(1), ..incoming(bad()) });
    }
    assert_eq!(closed_at(&mut receiver, 1000 * MILLISECOND), Some(Data(1)));
}

// req: CDTP-16, CDTP-18
#[test]
fn silence_of_a_departed_sender_counts_only_while_it_is_read() {
    for pause in [true, false] {
        let mut receiver = finding();
        find(&mut receiver, "tcp://a:1");
        release(&mut receiver, 0, "tcp://a:1");
        if pause {
            receiver.handle_pressure(Nanos(0), true);
        } else {
            receiver.handle_verb(Nanos(0), ReceiverVerb::Limit(Some(0)));
        }
        assert_eq!(receiver.poll_timeout(), None);
        assert_eq!(closed_at(&mut receiver, 60_000 * MILLISECOND), None);
        let now = 60_000 * MILLISECOND;
        if pause {
            receiver.handle_pressure(Nanos(now), false);
        } else {
            receiver.handle_verb(Nanos(now), ReceiverVerb::Limit(None));
        }
        assert_eq!(closed_at(&mut receiver, now + 249 * MILLISECOND), None);
        assert_eq!(closed_at(&mut receiver, now + 250 * MILLISECOND), Some(Data(0)));
    }
}

// req: CDTP-16
#[test]
fn offers_from_the_network_do_not_grow_the_sockets() {
    let mut receiver = finding();
    let dialled: Vec<_> = (0..256).filter_map(|port| find(&mut receiver, &format!("tcp://a:{port}"))).collect();
    assert_eq!(dialled.len(), 256);
    // Senders that never connected give way to others, the oldest first.
    receiver.handle_socket(Nanos(0), Data(0), SocketEvent::Connected("tcp://a:0".into()));
    receiver.handle_verb(Nanos(0), ReceiverVerb::Connect("tcp://b:1".to_owned()));
    assert_eq!(closed_at(&mut receiver, 0), Some(Data(1)));
    receiver.handle_socket(Nanos(0), Data(1), SocketEvent::Closed);
    for number in 2..=256 {
        receiver.handle_socket(Nanos(0), Data(number), SocketEvent::Connected("".into()));
    }
    while receiver.poll_event().is_some() {}
    // If all have connected, none gives way.
    assert_eq!(find(&mut receiver, "tcp://late:1"), None);
    assert!(matches!(receiver.poll_event(), Some(ReceiverEvent::Connection(Connection::Failed { .. }))));
    // An endpoint that cannot be opened makes room for another.
    let failed = SocketEvent::OpenFailed { endpoint: String::new(), reason: "too many".into() };
    receiver.handle_socket(Nanos(0), Data(7), failed);
    assert!(
        matches!(receiver.poll_event(), Some(ReceiverEvent::Connection(Connection::Failed { endpoint, .. })) if endpoint == "tcp://a:7")
    );
    assert_eq!(closed_at(&mut receiver, 0), Some(Data(7)));
    assert_eq!(find(&mut receiver, "tcp://a:7"), Some(Data(257)));
    receiver.handle_close(Nanos(0), Duration::ZERO);
    receiver.handle_verb(Nanos(0), ReceiverVerb::Connect("tcp://late:1".to_owned()));
    let closed = std::iter::from_fn(|| closed_at(&mut receiver, 0)).count();
    assert_eq!(closed, 256);
    assert!(receiver.is_closed());
}

#[test]
fn names_from_the_network_do_not_grow_the_statistics() {
    let mut receiver = receiver(None);
    for number in 0u32..2000 {
        let mut header = b"\xa5CDTP\x01\xd9\xff".to_vec();
        header.extend_from_slice(format!("{number:0255}").as_bytes());
        header.extend_from_slice(&[0, 1, 0x80]);
        receiver.handle_message(Nanos(0), incoming(smallvec![header.into()]));
    }
    let stats = receiver.stats();
    assert_eq!(stats.accepted, 2000);
    // The names share their first 200 bytes, but are counted separately.
    assert_eq!(stats.senders.len(), 1000);
    assert!(stats.senders.keys().all(|name| name.len() == 200));
    assert_eq!(stats.senders.values().map(|sender| sender.messages).sum::<u64>(), 1000);
}

// req: CDTP-18
#[test]
fn records_weigh_what_they_take() {
    let mut receiver = receiver(None);
    let mut header = b"\xa5CDTP\x02\xa3Det\x00\xdc\x03\xe8".to_vec();
    header.extend_from_slice(&b"\x93\x00\x80\x90".repeat(1000));
    let wire = header.len();
    receiver.handle_message(Nanos(0), incoming(smallvec![header.into()]));
    let Some(Weight::Lossless(bytes)) = receiver.poll_event().map(|event| event.weight()) else { panic!("no message") };
    assert!(bytes > 10 * wire, "{bytes}");
}

// req: CDTP-18
#[test]
fn a_sender_asked_once_more_to_end_waits_no_longer() {
    let mut sender = sender(Variant::B);
    sender.handle_verb(Nanos(0), data(b"x"));
    sender.handle_close(Nanos(0), Duration::from_secs(30));
    sender.handle_close(Nanos(0), Duration::from_secs(60));
    assert_eq!(sender.poll_timeout(), Some(Nanos(30_000 * MILLISECOND)));
    sender.handle_close(Nanos(1), Duration::ZERO);
    while !matches!(sender.poll_output(), Some(Output::Close { linger: Duration::ZERO, .. })) {}
    sender.handle_socket(Nanos(1), DataOut, SocketEvent::Closed);
    assert!(sender.is_closed());
    assert_eq!(sender.stats().queued, 3);
}

/// The pending wire messages: the type of each, and the numbers of its records.
fn batches(sender: &mut Sender) -> Vec<(MessageType, Vec<u64>)> {
    let layout = |frames: Frames| match decode(&frames, &Settings::default()) {
        Ok(Layout::Batch(batch)) => {
            (batch.message_type, batch.records.iter().map(|record| record.sequence).collect::<Vec<_>>())
        }
        other => panic!("{other:?}"),
    };
    sends(sender).into_iter().map(|(_, frames)| layout(frames)).collect()
}

fn end_run() -> SenderVerb {
    SenderVerb::EndRun { timestamp: Timestamp::default(), metadata: EMPTY_MAP }
}

// req: CDTP-22
#[test]
fn records_go_together_when_they_are_enough_or_old_enough() {
    let mut sender = sender(Variant::Two);
    sender.handle_verb(Nanos(0), data(b"first"));
    // The BOR is sent at once.
    assert_eq!(batches(&mut sender), [(MessageType::Bor, vec![0, 1])]);
    assert_eq!(sender.poll_timeout(), Some(Nanos(50 * MILLISECOND)));
    sender.handle_verb(Nanos(40 * MILLISECOND), data(b"second"));
    sender.handle_timeout(Nanos(49 * MILLISECOND));
    assert_eq!(batches(&mut sender), []);
    // The BOR has two records.
    assert_eq!((sender.stats().queued, sender.backlog().messages), (4, 4));
    sender.handle_timeout(Nanos(50 * MILLISECOND));
    assert_eq!(batches(&mut sender), [(MessageType::Dat, vec![1, 2])]);
    assert_eq!(sender.poll_timeout(), None);
    // Each takes up to 71 bytes: three would exceed 200.
    for _ in 0..5 {
        sender.handle_verb(Nanos(60 * MILLISECOND), data(&[7; 50]));
    }
    assert_eq!(batches(&mut sender), [(MessageType::Dat, vec![3, 4]), (MessageType::Dat, vec![5, 6])]);
    assert_eq!(sender.stats().queued, 9);
}

// req: CDTP-22
#[test]
fn nothing_overtakes_data_that_waits() {
    let mut sender = sender(Variant::Two);
    sender.handle_verb(Nanos(0), data(b"small"));
    sender.handle_verb(Nanos(0), data(&[7; 1000]));
    sender.handle_verb(Nanos(0), data(b"small"));
    sender.handle_verb(Nanos(0), end_run());
    sender.handle_verb(Nanos(0), data(b"small"));
    sender.handle_verb(Nanos(0), SenderVerb::Flush);
    sender.handle_verb(Nanos(0), data(b"small"));
    sender.handle_close(Nanos(0), Duration::from_secs(1));
    let (bor, dat, eor) = (MessageType::Bor, MessageType::Dat, MessageType::Eor);
    assert_eq!(
        batches(&mut sender),
        [
            (bor, vec![0, 1]),
            (dat, vec![1]),
            (dat, vec![2]),
            (dat, vec![3]),
            (eor, vec![0, 1]),
            (bor, vec![0, 1]),
            (dat, vec![1]),
            (dat, vec![2]),
            (eor, vec![0, 1]),
        ]
    );
}

// req: CDTP-22
#[test]
fn without_a_bound_no_data_waits() {
    for batch in [
        BatchBounds { bytes: 0, ..BatchBounds::default() },
        BatchBounds { time: Duration::ZERO, ..BatchBounds::default() },
    ] {
        let mut sender = Sender::new(SenderSettings {
            name: "Det".into(),
            variant: Variant::Two,
            bind: vec![],
            connect: vec![],
            options: SocketOptions::default(),
            batch,
        });
        assert!(sender.poll_output().is_some());
        for _ in 0..3 {
            sender.handle_verb(Nanos(0), data(b"x"));
        }
        assert_eq!(batches(&mut sender).len(), 4);
        assert_eq!(sender.poll_timeout(), None);
    }
}

proptest! {
    /// However data is combined, each record is sent once, in order and between BOR and EOR, and is counted.
    // req: CDTP-22
    #[test]
    fn batches_hold_every_record_once(steps in prop::collection::vec((0u8..6, 0usize..90), 1..100)) {
        static PAYLOAD: [u8; 90] = [7; 90];
        let (mut sender, mut receiver) = (sender(Variant::Two), receiver(None));
        let (mut now, mut asked, mut in_run) = (Nanos(0), 0, false);
        for (step, size) in steps {
            match step {
                0 => now = now + Duration::from_millis(20),
                1 if in_run => {
                    sender.handle_verb(now, end_run());
                    (asked, in_run) = (asked + 2, false);
                }
                _ => {
                    sender.handle_verb(now, data(&PAYLOAD[..size]));
                    (asked, in_run) = (asked + 1 + 2 * u64::from(!in_run), true);
                }
            }
            if sender.poll_timeout().is_some_and(|at| at <= now) {
                sender.handle_timeout(now);
            }
            prop_assert!(sender.poll_timeout().is_none_or(|at| at > now));
            for (id, frames) in sends(&mut sender) {
                prop_assert_eq!(receiver.handle_message(now, incoming(frames)), Verdict::default());
                sender.handle_socket(now, DataOut, SocketEvent::Sent(id));
            }
            prop_assert_eq!(sender.stats().sent + sender.stats().queued, asked);
        }
        sender.handle_verb(now, SenderVerb::Flush);
        for (id, frames) in sends(&mut sender) {
            prop_assert_eq!(receiver.handle_message(now, incoming(frames)), Verdict::default());
            sender.handle_socket(now, DataOut, SocketEvent::Sent(id));
        }
        prop_assert_eq!((sender.stats().sent, sender.backlog().bytes), (asked, 0));
        prop_assert_eq!(receiver.stats().senders.values().map(|sender| sender.messages).sum::<u64>(), asked);
        prop_assert!(receiver.stats().senders.values().all(|sender| sender.missed == 0));
    }

    /// Whatever the transport does, each message is sent once and in order, or is counted as unsent.
    // req: CDTP-18
    #[test]
    fn nothing_is_lost_between_a_sender_and_a_receiver(steps in prop::collection::vec(0u8..3, 1..200)) {
        let (mut sender, mut receiver) = (sender(Variant::B), receiver(None));
        let mut held: VecDeque<(SendId, Frames)> = VecDeque::new();
        let mut asked = 0;
        for step in steps {
            match step {
                0 => {
                    asked += 1;
                    sender.handle_verb(Nanos(0), data(b"x"));
                }
                1 => held.extend(sends(&mut sender)),
                _ => {
                    if let Some((id, frames)) = held.pop_front() {
                        prop_assert_eq!(receiver.handle_message(Nanos(0), incoming(frames)), Verdict::default());
                        sender.handle_socket(Nanos(0), DataOut, SocketEvent::Sent(id));
                    }
                }
            }
        }
        let begun = u64::from(asked > 0);
        prop_assert_eq!(sender.stats().sent + sender.stats().queued, asked + begun);
        prop_assert_eq!(receiver.stats().accepted, sender.stats().sent);
        prop_assert_eq!(events(&mut receiver) as u64, sender.stats().sent);
        prop_assert!(receiver.stats().senders.values().all(|sender| sender.missed == 0));
    }
}

/// Senders are counted separately though their names share a beginning; counters of missed numbers saturate.
#[test] // req: CDTP-21
fn counters_of_names_that_begin_alike_stop_at_their_limit() {
    let mut receiver = receiver(None);
    for end in ["a", "b"] {
        let name = "n".repeat(200) + end;
        for (message_type, sequence) in [(MessageType::Bor, 0), (MessageType::Dat, u64::MAX)].repeat(2) {
            let mut header = vec![];
            encode_header(&mut header, Variant::B, &name, Timestamp::default(), message_type, sequence, b"\x80")
                .expect("a short header");
            let frames = [header.into(), Bytes::from_static(b"\x80")].into_iter().collect();
            receiver
                .handle_message(Nanos(0), Incoming { socket: Data(0), peer: None, user_id: None, host: None, frames });
        }
    }
    let stats = receiver.stats();
    let counts: Vec<_> = stats.senders.values().map(|count| (count.messages, count.missed)).collect();
    assert_eq!(counts, [(4, u64::MAX), (4, u64::MAX)]);
}
