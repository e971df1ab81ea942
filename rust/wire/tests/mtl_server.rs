//! The server of MTL, without a network; the test sets the clock.
#![allow(clippy::unwrap_used)] // a surprise fails the test

mod mtl;

use std::time::Duration;

use bytes::Bytes;
use mtl::{Bench, CONTROL, EMPTY_TABLE, durable, settings, user, with_users};
use serde_json::json;
use trunkline_wire::mtl::data;
use trunkline_wire::mtl::server::{
    Access, Answer, Bounds, LeaseEnd, Op, Question, Restored, ServerEvent, ServerSettings, ServerSocket, ServerVerb,
    StoredContent, User,
};
use trunkline_wire::{
    Curve, ErrorKind, Frames, Framing, Incoming, Latencies, Machine as _, SocketEvent, SocketOptions, Unsent,
};

fn frames(parts: &[&[u8]]) -> Frames {
    parts.iter().map(|part| Bytes::copy_from_slice(part)).collect()
}

fn open() -> serde_json::Value {
    json!({"protocol": {"name": "MTL", "version": 1}, "virtual-host": "/"})
}

// req: MTL-01, MTL-05, MTL-07, MTL-08, MTL-12, MTL-13
#[test]
fn opening_answers_once_in_the_envelope_it_came_in() {
    let mut bench = Bench::open();
    for envelope in [&[&b""[..]][..], &[b"\0\0\0\x01", b""]] {
        let mut request = frames(envelope);
        request.extend(frames(&[b"Connection.Open", open().to_string().as_bytes()]));
        let verdict = bench.take(CONTROL, "ada", None, request);
        assert_eq!((verdict.error, verdict.label.framing), (None, Some(Framing::MtlControl)));
        let said = bench.said("ada");
        assert_eq!(said.len(), 1);
        assert_eq!(said[0][..envelope.len()], frames(envelope)[..]);
        assert_eq!(&said[0][envelope.len()..][0][..], b"201");
        let body: serde_json::Value = serde_json::from_slice(&said[0][envelope.len() + 1]).unwrap();
        assert_eq!(body, json!({"status": "Ready", "profiles": ["test", "queue", "own"]}));
    }
    assert_eq!(bench.server.stats().sessions, 1);
    bench.pass(Duration::from_secs(2));
    assert!(bench.said("ada").is_empty());
}

// req: MTL-10, MTL-12
#[test]
fn each_wrong_field_of_open_has_its_code() {
    let mut bench = Bench::open();
    let with = |pointer: &str, value: serde_json::Value| {
        let mut body = open();
        *body.pointer_mut(pointer).unwrap() = value;
        body
    };
    let rows = [
        (with("/protocol/name", json!("AMQP")), 400),
        (with("/protocol/name", json!(5)), 400),
        (with("/protocol/version", json!(2)), 501),
        (with("/protocol/version", json!(18_446_744_073_709_551_616.0_f64)), 501),
        (with("/protocol/version", json!(1.5)), 400),
        (with("/protocol/version", json!(0)), 400),
        (with("/protocol/version", json!("1")), 400),
        (with("/protocol", json!("MTL")), 400),
        (with("/virtual-host", json!("nowhere")), 404),
        (with("/virtual-host", json!(null)), 400),
        (json!({"protocol": {"name": "MTL", "version": 1}}), 400),
        (json!({"protocol": {"name": "MTL", "version": 1, "x": 1}, "virtual-host": "other", "more": [{}]}), 201),
    ];
    for (body, code) in rows {
        assert_eq!(bench.status("ada", "connection.OPEN", &body), code, "{body}");
    }
}

// req: MTL-09, MTL-11, MTL-20, MTL-21, MTL-22, MTL-24
#[test]
fn what_comes_too_early_or_is_not_known_says_so() {
    let mut bench = Bench::open();
    for name in ["Connection.Profile", "Connection.Reader", "Foo.Bar", "Connection.Authorize"] {
        let (status, body) = bench.ask("ada", name, &json!({}));
        assert_eq!((status, body["status"].as_str()), (400, Some("Open first")), "{name}");
    }
    assert_eq!(bench.status("ada", "CONNECTION.open", &open()), 201);
    for name in ["Connection.Reader", "Connection.Writer", "Queue.Info"] {
        let (status, body) = bench.ask("ada", name, &json!({"name": "jobs"}));
        assert_eq!((status, body["status"].as_str()), (400, Some("Select a profile first")), "{name}");
    }
    assert_eq!(bench.status("ada", "Connection.Profile", &json!({"profile": "nothing"})), 400);
    assert_eq!(bench.status("ada", "Connection.Profile", &json!({})), 400);
    assert_eq!(bench.status("ada", "Connection.Profile", &json!({"profile": "TEST"})), 200);
    for name in ["Foo.Bar", "Connection.Close", "Queue.Info", "Open", "Bank.Transfer"] {
        assert_eq!(bench.status("ada", name, &json!({"name": "jobs"})), 501, "{name}");
    }
    // A second Open starts anew.
    assert_eq!(bench.status("ada", "Connection.Open", &open()), 201);
    assert_eq!(bench.status("ada", "Connection.Reader", &json!({})), 400);
}

// req: MTL-23, MTL-25, MTL-26, MTL-27, MTL-29
#[test]
fn a_lease_is_given_for_what_there_is() {
    let mut bench = Bench::open();
    bench.enter("ada", "queue");
    let rows = [
        (json!({}), 202),
        (json!({"resources": []}), 202),
        (json!({"resources": ["jobs", "logs", "jobs"], "confirm": "full"}), 202),
        (json!({"resources": ["nothing"]}), 404),
        (json!({"resources": 5}), 400),
        (json!({"resources": [5]}), 400),
        (json!({"resources": ["a\nb"]}), 400),
        (json!({"confirm": "maybe"}), 400),
        (json!({"confirm": null}), 400),
        (json!({"window": 0}), 400),
        (json!({"window": 100_001}), 400),
        (json!({"window": 100_000}), 202),
    ];
    for (body, code) in rows {
        assert_eq!(bench.status("ada", "Connection.Reader", &body), code, "{body}");
    }
    let (_, one) = bench.ask("ada", "Connection.Writer", &json!({"resources": ["jobs"]}));
    let (_, other) = bench.ask("ada", "Connection.Writer", &json!({"resources": ["jobs"]}));
    assert_eq!((&one["port"], &one["status"], one.get("endpoint")), (&json!(7001), &json!("Data Lease"), None));
    assert_ne!(one["lease"], other["lease"]);
    assert_eq!(one["lease"].as_str().unwrap().len(), 32);
    bench.enter("bob", "test");
    assert_eq!(bench.status("bob", "Connection.Reader", &json!({"confirm": "full"})), 501);
    assert_eq!(bench.status("bob", "Connection.Reader", &json!({"resources": ["resource"]})), 202);
}

// req: MTL-26
#[test]
fn the_lease_of_a_writer_says_how_large_a_frame_may_be() {
    let options = SocketOptions { max_message_bytes: Some(1000), ..SocketOptions::default() };
    let mut bench = Bench::new(ServerSettings { options, ..settings() });
    bench.enter("ada", "queue");
    let (_, writer) = bench.ask("ada", "Connection.Writer", &json!({}));
    assert_eq!(writer["max-message-bytes"], 1000);
    let (_, reader) = bench.ask("ada", "Connection.Reader", &json!({}));
    assert_eq!(reader.get("max-message-bytes"), None);
}

// req: MTL-26
#[test]
fn an_endpoint_that_has_no_port_is_named() {
    let bind = vec!["ipc:///tmp/mtl".to_owned()];
    let mut bench = Bench::new(ServerSettings { bind, ..settings() });
    bench.socket(CONTROL, SocketEvent::Bound("ipc:///tmp/mtl".to_owned()));
    bench.enter("ada", "queue");
    let (_, body) = bench.ask("ada", "Connection.Reader", &json!({}));
    assert_eq!((&body["port"], &body["endpoint"]), (&json!(0), &json!("ipc:///tmp/mtl")));
}

// req: MTL-26, MTL-31
#[test]
fn who_came_by_no_host_is_told_the_whole_endpoint() {
    let bind = vec!["ipc:///tmp/mtl".to_owned()];
    let data_bind = vec!["tcp://*:*".to_owned()];
    for (bound, expected) in [
        ("tcp://0.0.0.0:7100", "tcp://127.0.0.1:7100"),
        ("tcp://[::]:7100", "tcp://[::1]:7100"),
        ("tcp://10.0.0.1:7100", "tcp://10.0.0.1:7100"),
    ] {
        let mut bench = Bench::new(ServerSettings { bind: bind.clone(), data_bind: data_bind.clone(), ..settings() });
        bench.socket(CONTROL, SocketEvent::Bound("ipc:///tmp/mtl".to_owned()));
        bench.socket(ServerSocket::Data(0), SocketEvent::Bound(bound.to_owned()));
        bench.enter("ada", "queue");
        let (_, body) = bench.ask("ada", "Connection.Reader", &json!({}));
        assert_eq!((&body["port"], &body["endpoint"]), (&json!(7100), &json!(expected)));
    }
}

// req: MTL-28
#[test]
fn what_is_ill_formed_is_dropped_in_silence() {
    let mut bench = Bench::open();
    let rows: &[(&[&[u8]], ErrorKind)] = &[
        (&[b"", b"Connection.Open"], ErrorKind::BadFrameCount),
        (&[b"", b"Connection.Open", b"{}", b"{}"], ErrorKind::BadFrameCount),
        (&[b"Connection.Open", b"{}", b"x"], ErrorKind::BadFrameCount),
        (&[b""], ErrorKind::BadFrameCount),
        (&[b"", b"Connection.Open", b"{"], ErrorKind::BadJson),
        (&[b"", b"Connection.Open", b"[]"], ErrorKind::BadJson),
        (&[b"", b"Connection.Open", b"NaN"], ErrorKind::BadJson),
        (&[b"", b"Connection.Open", b"{\"a\": 1e999}"], ErrorKind::BadJson),
        (&[b"", b"Connection.Open", b"{\"a\": \"\\ud800\"}"], ErrorKind::BadJson),
        (&[b"", b"Connection.Open", b"\xff"], ErrorKind::BadJson),
        (&[b"", b"Connection.\x01", b"{}"], ErrorKind::BadCommand),
        (&[b"", b"", b"{}"], ErrorKind::BadCommand),
    ];
    for (parts, kind) in rows {
        let verdict = bench.take(CONTROL, "ada", None, frames(parts));
        assert_eq!(verdict.error, Some(*kind), "{parts:?}");
    }
    let deep = format!("{{\"a\": {}{}}}", "[".repeat(8_000), "]".repeat(8_000));
    assert_eq!(bench.send_control("ada", None, "Connection.Open", &deep).error, Some(ErrorKind::BadJson));
    assert!(bench.said("ada").is_empty());
    assert_eq!(bench.server.stats().dropped.values().sum::<u64>(), rows.len() as u64 + 1);
    assert_eq!(bench.status("ada", "Connection.Open", &open()), 201);
}

// req: MTL-30, MTL-31, MTL-34, MTL-35, MTL-56
#[test]
fn a_connection_shows_its_lease_first_and_once() {
    let mut bench = Bench::open();
    bench.enter("ada", "queue");
    let lease = bench.lease("ada", "Reader", &json!({"resources": ["jobs"]}));
    assert_eq!(bench.data("r1", data::summon(7, "jobs")), [data::response(7, 403)]);
    assert_eq!(bench.data("r1", data::content(8, "jobs", &EMPTY_TABLE, Bytes::new())), [data::response(8, 403)]);
    assert!(bench.data("r1", data::confirm(1, true)).is_empty());
    assert_eq!(bench.data("r1", data::ping()), [data::pong()]);
    assert_eq!(bench.data("r1", data::lease(9, "0000")), [data::response(9, 403)]);
    assert_eq!(bench.data("r1", data::lease(u64::MAX, &lease)), [data::response(u64::MAX, 200)]);
    assert_eq!(bench.data("r2", data::lease(1, &lease)), [data::response(1, 403)]);
    let second = bench.lease("ada", "Reader", &json!({}));
    assert_eq!(bench.data("r1", data::lease(2, &second)), [data::response(2, 403)]);
    assert_eq!(bench.data("r1", data::summon(3, "jobs")), [data::response(3, 200)]);
    let late = bench.lease("ada", "Reader", &json!({}));
    bench.pass(Duration::from_secs(30));
    assert_eq!(bench.data("r3", data::lease(1, &late)), [data::response(1, 403)]);
}

// req: MTL-31
#[test]
fn data_may_have_a_socket_of_its_own() {
    let mut bench = Bench::new(ServerSettings { data_bind: vec!["tcp://127.0.0.1:*".to_owned()], ..settings() });
    bench.enter("ada", "queue");
    let (_, body) = bench.ask("ada", "Connection.Writer", &json!({"resources": ["jobs"]}));
    assert_eq!(body["port"], 7100);
    let lease = data::lease(1, body["lease"].as_str().unwrap());
    assert_eq!(bench.take(CONTROL, "w", None, lease.clone()).error, Some(ErrorKind::BadFrameCount));
    bench.take(ServerSocket::Data(0), "w", None, lease);
    assert_eq!(bench.said("w"), [data::response(1, 200)]);
    assert_eq!(
        bench.take(ServerSocket::Data(0), "w", None, frames(&[b"\xff", b""])).error,
        Some(ErrorKind::UnknownType)
    );
}

// req: MTL-32, MTL-33, MTL-61
#[test]
fn ill_formed_data_is_dropped() {
    let mut bench = Bench::open();
    bench.writer("w", &["jobs"], "none");
    let rows: &[(&[&[u8]], ErrorKind)] = &[
        (&[b"\x0a", b""], ErrorKind::UnknownType),
        (&[b"\x03\0", b""], ErrorKind::Truncated),
        (&[b"\x08\0", b""], ErrorKind::TrailingBytes),
        (&[b"\x06\0\0\0\0\0\0\0\x01\x02", b""], ErrorKind::BadBoolean),
        (&[b"\x03\0\0\0\0\0\0\0\x01\x01\x07", b""], ErrorKind::BadShortString),
        (&[b"\x05\0\0\0\0\0\0\0\x01\0\0\0\0\x01z", b""], ErrorKind::BadFieldTable),
    ];
    for (parts, kind) in rows {
        assert_eq!(bench.take(CONTROL, "w", None, frames(parts)).error, Some(*kind), "{parts:?}");
    }
    assert!(bench.said("w").is_empty());
    assert_eq!(bench.data("w", frames(&[b"\x08", b"ignored"])), [data::pong()]);
}

// req: MTL-37, MTL-38, MTL-39, MTL-41, MTL-42, MTL-43
#[test]
fn summons_and_dismissals_take_turns() {
    let mut bench = Bench::open();
    bench.connect("r", "queue", "Reader", &json!({"resources": ["jobs"]}));
    bench.connect("any", "queue", "Reader", &json!({}));
    bench.writer("w", &["jobs"], "none");
    let rows = [
        ("r", data::dismiss(2, "jobs"), 400),
        ("r", data::summon(3, "logs"), 400),
        ("r", data::summon(4, "jobs"), 200),
        ("r", data::summon(5, "jobs"), 400),
        ("r", data::dismiss(6, "logs"), 400),
        ("r", data::dismiss(7, "jobs"), 200),
        ("r", data::dismiss(8, "jobs"), 400),
        ("r", data::summon(9, "jobs"), 200),
        ("any", data::summon(2, "logs"), 200),
        ("any", data::summon(3, "nothing"), 400),
        ("w", data::summon(4, "jobs"), 400),
    ];
    for (peer, command, status) in rows {
        let sequence = data::decode(&command).unwrap().sequence;
        assert_eq!(bench.data(peer, command), [data::response(sequence, status)], "{peer} {sequence}");
    }
}

// req: MTL-45, MTL-46, MTL-61
#[test]
fn contents_that_are_refused_say_so_by_their_confirmation() {
    for (confirm, refused) in [
        ("none", data::response as fn(u64, u16) -> Frames),
        ("full", |sequence, _| data::reject(sequence, false, false)),
    ] {
        let mut bench = Bench::open();
        bench.writer("w", &["jobs", "logs"], confirm);
        let content = |sequence, resource| data::content(sequence, resource, &EMPTY_TABLE, Bytes::new());
        assert_eq!(bench.data("w", content(0, "jobs")), [data::response(0, 400)]);
        assert_eq!(bench.data("w", content(2, "")), [refused(2, 400)]);
        assert_eq!(bench.data("w", content(3, "ledger")), [refused(3, 403)]);
        let good = bench.data("w", content(10, "logs"));
        assert_eq!(good, if confirm == "full" { vec![data::confirm(10, false)] } else { vec![] });
        assert_eq!(bench.data("w", content(10, "logs")), [data::response(10, 400)]);
        assert_eq!(bench.data("w", content(9, "logs")), [data::response(9, 400)]);
        bench.enter("boss", "queue");
        assert_eq!(bench.status("boss", "Queue.Delete", &json!({"name": "logs"})), 200);
        assert_eq!(bench.data("w", content(11, "logs")), [refused(11, 404)]);
        bench.connect("r", "queue", "Reader", &json!({"resources": ["jobs"], "confirm": confirm}));
        assert_eq!(bench.data("r", content(1, "jobs")), [refused(1, 400)]);
    }
}

// req: MTL-40, MTL-47, MTL-48, MTL-49
#[test]
fn contents_go_from_a_writer_to_a_reader() {
    let mut bench = Bench::open();
    bench.writer("w", &["jobs"], "none");
    bench.write("w", 5, &["a", "b"]);
    bench.connect("r", "queue", "Reader", &json!({"resources": ["jobs", "logs"], "confirm": "none"}));
    let table = b"\0\0\0\x05\x01nU\0\x07";
    let said = bench.data("r", data::summon(2, "jobs"));
    let expected =
        |sequence, body: &'static [u8]| data::content(sequence, "jobs", &EMPTY_TABLE, Bytes::from_static(body));
    assert_eq!(said, [data::response(2, 200), expected(1, b"a"), expected(2, b"b")]);
    bench.take(CONTROL, "w", None, data::content(7, "jobs", table, Bytes::from_static(b"c")));
    assert_eq!(bench.said("r"), [data::content(3, "jobs", table, Bytes::from_static(b"c"))]);
    assert_eq!(bench.info("jobs")["messages"], 0);
}

// req: MTL-44
#[test]
fn nothing_comes_after_a_dismissal() {
    let mut bench = Bench::open();
    bench.reader("r", "jobs", "none", 1000);
    bench.writer("w", &["jobs"], "none");
    bench.write("w", 1, &["a"]);
    assert_eq!(bench.bodies("r"), ["a"]);
    assert_eq!(bench.data("r", data::dismiss(3, "jobs")), [data::response(3, 200)]);
    bench.write("w", 2, &["b", "c"]);
    assert!(bench.said("r").is_empty());
    assert_eq!(bench.data("r", data::summon(4, "jobs")).len(), 3);
}

// req: MTL-50, MTL-51, MTL-52
#[test]
fn a_window_is_kept_and_confirms_open_it() {
    let mut bench = Bench::open();
    bench.reader("r", "jobs", "full", 3);
    bench.writer("w", &["jobs"], "full");
    bench.write("w", 1, &["a", "b", "c", "d", "e", "f", "g"]);
    assert_eq!(bench.bodies("r"), ["a", "b", "c"]);
    // None of these has any effect.
    for confirm in
        [data::confirm(0, true), data::confirm(4, false), data::confirm(u64::MAX, true), data::reject(9, false, true)]
    {
        assert!(bench.data("r", confirm).is_empty());
    }
    bench.take(CONTROL, "r", None, data::confirm(2, false));
    assert_eq!(bench.contents("r"), [(4, "d".to_owned(), false)]);
    assert!(bench.data("r", data::confirm(2, false)).is_empty());
    bench.take(CONTROL, "r", None, data::confirm(4, true));
    assert_eq!(bench.bodies("r"), ["e", "f", "g"]);
    let info = bench.info("jobs");
    assert_eq!(
        (&info["messages"], &info["unconfirmed"], &info["readers"], &info["writers"]),
        (&json!(0), &json!(3), &json!(1), &json!(1))
    );
    bench.take(CONTROL, "r", None, data::confirm(7, true));
    assert_eq!(bench.info("jobs")["unconfirmed"], 0);
    let stats = bench.server.stats();
    let jobs =
        stats.resources.iter().find(|resource| resource.resource == "jobs" && resource.virtual_host == "/").unwrap();
    assert_eq!((jobs.taken, jobs.out, jobs.confirmed, jobs.queued, jobs.queued_bytes), (7, 7, 7, 0, 0));
}

// req: MTL-51
#[test]
fn writers_are_confirmed_at_once_until_one_is_rejected() {
    let bounds = Bounds { max_messages: 3, ..Default::default() };
    let mut bench = Bench::new(ServerSettings { bounds, ..settings() });
    bench.writer("w", &["jobs"], "full");
    bench.write("w", 1, &["a", "b", "c", "d", "e"]);
    let said = bench.said("w");
    let expected = [
        data::confirm(1, false),
        data::confirm(2, false),
        data::confirm(3, false),
        data::reject(4, false, false),
        data::reject(5, false, false),
    ];
    assert_eq!(said, expected);
    assert_eq!(bench.server.stats().dropped["queue_full"], 2);
    let notices = bench.events.iter().filter(|event| matches!(event, ServerEvent::Dropped(_))).count();
    assert_eq!(notices, 1);
}

// req: MTL-53, MTL-54, MTL-55
#[test]
fn what_comes_back_goes_to_its_place_and_another_reader_first() {
    let mut bench = Bench::open();
    bench.reader("r1", "jobs", "full", 2);
    bench.writer("w", &["jobs"], "none");
    bench.write("w", 1, &["a", "b", "c", "d"]);
    assert_eq!(bench.bodies("r1"), ["a", "b"]);
    bench.reader("r2", "jobs", "full", 2);
    assert_eq!(bench.bodies("r2"), ["c", "d"]);
    bench.take(CONTROL, "r2", None, data::confirm(1, false));
    bench.take(CONTROL, "r1", None, data::reject(2, true, true));
    assert_eq!(bench.contents("r2"), [(3, "a".to_owned(), true)]);
    // No other reader has room.
    assert_eq!(bench.contents("r1"), [(3, "b".to_owned(), true)]);
    bench.take(CONTROL, "r1", None, data::reject(3, false, false));
    bench.take(CONTROL, "r2", None, data::confirm(9, true));
    bench.take(CONTROL, "r2", None, data::confirm(3, true));
    assert_eq!(bench.info("jobs")["unconfirmed"], 0);
}

// req: MTL-54
#[test]
fn after_so_many_deliveries_it_is_a_dead_letter() {
    let mut bench = Bench::open();
    bench.enter("boss", "queue");
    assert_eq!(bench.status("boss", "Queue.Create", &json!({"name": "jobs.dead"})), 200);
    bench.reader("r", "jobs", "full", 1);
    bench.writer("w", &["jobs"], "none");
    bench.write("w", 1, &["bad"]);
    for attempt in 1..=6 {
        assert_eq!(bench.contents("r"), [(attempt, "bad".to_owned(), attempt > 1)]);
        bench.take(CONTROL, "r", None, data::reject(attempt, false, true));
    }
    assert!(bench.said("r").is_empty());
    assert_eq!(
        (bench.info("jobs")["messages"].clone(), bench.info("jobs.dead")["messages"].clone()),
        (json!(0), json!(1))
    );
    bench.write("w", 2, &["worse"]);
    bench.said("r");
    bench.take(CONTROL, "r", None, data::reject(7, false, false));
    assert_eq!(bench.info("jobs.dead")["messages"], 2);
    let jobs = bench.server.stats().resources.into_iter().find(|resource| resource.resource == "jobs").unwrap();
    assert_eq!((jobs.dead_lettered, jobs.redelivered, jobs.rejected), (2, 5, 7));
}

#[test]
fn a_content_takes_from_its_queue_to_its_confirmation_with_all_that_came_between() {
    let mut bench = Bench::open();
    bench.writer("w", &["jobs"], "none");
    bench.write("w", 1, &["a", "b", "c"]);
    bench.pass(Duration::from_secs(1));
    bench.reader("r", "jobs", "full", 3);
    bench.pass(Duration::from_secs(1));
    // Neither returned contents nor dead letters count as delivered.
    bench.take(CONTROL, "r", None, data::reject(1, false, true));
    bench.take(CONTROL, "r", None, data::reject(2, false, false));
    assert_eq!(bench.server.stats().latency, Latencies::default());
    bench.take(CONTROL, "r", None, data::confirm(3, false));
    bench.pass(Duration::from_secs(1));
    bench.take(CONTROL, "r", None, data::confirm(4, false));
    let mut expected = Latencies::default();
    expected.add(Duration::from_secs(2));
    expected.add(Duration::from_secs(3));
    assert_eq!(bench.server.stats().latency, expected);
}

#[test]
fn where_nothing_is_confirmed_a_content_takes_until_the_transport_has_it() {
    let mut bench = Bench::open();
    bench.reader("r", "jobs", "none", 10);
    bench.deafen("r");
    bench.writer("w", &["jobs"], "none");
    bench.write("w", 1, &["a"]);
    bench.pass(Duration::from_secs(1));
    bench.undeafen("r", None);
    let mut expected = Latencies::default();
    expected.add(Duration::from_secs(1));
    assert_eq!(bench.server.stats().latency, expected);
}

// req: MTL-54
#[test]
fn what_a_reader_has_dismissed_it_gives_back_unread() {
    let mut bench = Bench::open();
    bench.reader("r", "jobs", "full", 2);
    bench.writer("w", &["jobs"], "none");
    bench.write("w", 1, &["a", "b"]);
    let bodies = |bench: &mut Bench| {
        let is_content = |frames: &Frames| data::decode(frames).unwrap().kind == data::Kind::Content;
        bench.said("r").iter().filter(|frames| is_content(frames)).map(|frames| frames[1].clone()).collect::<Vec<_>>()
    };
    for time in 1..=20 {
        let last = 2 * time;
        assert_eq!(bodies(&mut bench), ["a", "b"]);
        bench.take(CONTROL, "r", None, data::dismiss(last, "jobs"));
        bench.take(CONTROL, "r", None, data::reject(last, true, true));
        bench.said("r");
        bench.take(CONTROL, "r", None, data::summon(last + 1, "jobs"));
    }
    let given_up = |bench: &Bench| {
        bench.events.iter().filter(|event| matches!(event, ServerEvent::GivenUp(name) if name == "jobs")).count()
    };
    assert_eq!(given_up(&bench), 0);
    // Of a summoned resource, returned contents count as looked at, as do those rejected one by one; a lost content is
    // reported.
    for time in 21..=25 {
        assert_eq!(bodies(&mut bench), ["a", "b"]);
        bench.take(CONTROL, "r", None, data::reject(2 * time, true, true));
    }
    assert_eq!(bodies(&mut bench), ["a", "b"]);
    bench.take(CONTROL, "r", None, data::dismiss(60, "jobs"));
    bench.said("r");
    for sequence in [51, 52] {
        bench.take(CONTROL, "r", None, data::reject(sequence, false, true));
    }
    assert!(bodies(&mut bench).is_empty());
    assert_eq!(given_up(&bench), 2);
}

// req: MTL-57, MTL-58
#[test]
fn a_reader_that_is_silent_gives_back_what_it_has() {
    let mut bench = Bench::open();
    bench.reader("r1", "jobs", "full", 10);
    bench.writer("w", &["jobs"], "none");
    bench.write("w", 1, &["a", "b"]);
    assert_eq!(bench.bodies("r1"), ["a", "b"]);
    bench.pass(Duration::from_millis(2500));
    assert_eq!(bench.said("r1"), [data::ping()]);
    bench.take(CONTROL, "r1", None, data::pong());
    for _ in 0..3 {
        bench.pass(Duration::from_millis(2500));
        bench.take(CONTROL, "w", None, data::pong());
    }
    assert_eq!(bench.said("r1"), [data::ping(), data::ping()]);
    assert!(
        bench
            .events
            .iter()
            .any(|event| matches!(event, ServerEvent::LeaseEnded { why: LeaseEnd::Silent, client } if client.peer.as_deref() == Some(b"r1")))
    );
    assert_eq!(bench.server.stats().leases, 1);
    bench.reader("r2", "jobs", "full", 10);
    assert_eq!(bench.contents("r2"), [(1, "a".to_owned(), true), (2, "b".to_owned(), true)]);
    // A connection that comes back learns once that its lease is gone.
    assert_eq!(bench.data("r1", data::ping()), [data::pong(), data::response(0, 403)]);
    assert_eq!(bench.data("r1", data::ping()), [data::pong()]);
}

#[test] // req: MTL-44, MTL-58
fn who_reads_none_of_his_answers_has_no_lease_for_long() {
    let ended = |bench: &Bench, name: &str| {
        let unread = |event: &ServerEvent| matches!(event, ServerEvent::LeaseEnded { why: LeaseEnd::Unread, client } if client.peer.as_deref() == Some(name.as_bytes()));
        bench.events.iter().filter(|event| unread(event)).count()
    };
    let mut bench = Bench::open();
    bench.reader("r", "jobs", "full", 10);
    bench.writer("w", &["jobs"], "full");
    bench.write("w", 1, &["a"]);
    bench.deafen("r");
    bench.deafen("w");
    // As many as may be queued, and one that the transport was offered.
    let most = 10_001;
    for number in 0..most {
        bench.take(CONTROL, "r", None, data::ping());
        bench.take(CONTROL, "w", None, data::content(number + 2, "logs", &EMPTY_TABLE, Bytes::new()));
    }
    assert_eq!((bench.server.stats().leases, ended(&bench, "r"), ended(&bench, "w")), (2, 0, 0));
    bench.take(CONTROL, "r", None, data::ping());
    bench.take(CONTROL, "w", None, data::content(most + 2, "logs", &EMPTY_TABLE, Bytes::new()));
    assert_eq!((bench.server.stats().leases, ended(&bench, "r"), ended(&bench, "w")), (0, 1, 1));
    // Its unsettled content is available to others.
    bench.reader("other", "jobs", "full", 10);
    assert_eq!(bench.contents("other"), [(1, "a".to_owned(), true)]);
    // Both learn of it once they read.
    for name in ["r", "w"] {
        bench.undeafen(name, None);
        bench.said(name);
        assert_eq!(bench.data(name, data::ping()), [data::pong(), data::response(0, 403)]);
    }
}

#[test]
fn answers_that_many_leave_unread_have_a_fair_share_of_the_room_there_is() {
    let mut bench = Bench::new(ServerSettings { outbox_bytes: 1 << 20, ..settings() });
    let names: Vec<_> = (0..20).map(|number| format!("w{number}")).collect();
    for name in &names {
        bench.writer(name, &["jobs"], "none");
        bench.deafen(name);
    }
    for _ in 0..5000 {
        for name in &names {
            bench.take(CONTROL, name, None, data::ping());
        }
    }
    assert!(bench.server.stats().leases < 20);
    // A connection that reads receives its answers.
    bench.writer("reads", &["jobs"], "none");
    assert_eq!(bench.data("reads", data::ping()), [data::pong()]);
}

#[test] // req: MTL-58
fn a_reader_that_cannot_be_reached_is_gone_at_once() {
    let mut bench = Bench::open();
    bench.reader("r1", "jobs", "full", 10);
    bench.gone.push("r1".into());
    bench.writer("w", &["jobs"], "none");
    bench.write("w", 1, &["a"]);
    assert_eq!(bench.server.stats().leases, 1);
    bench.reader("r2", "jobs", "none", 10);
    assert_eq!(bench.contents("r2"), [(1, "a".to_owned(), true)]);
}

// req: MTL-62
#[test]
fn the_test_profile_fans_out() {
    let mut bench = Bench::open();
    for reader in ["r1", "r2", "r3"] {
        bench.connect(reader, "test", "Reader", &json!({"resources": ["resource"]}));
        assert_eq!(bench.data(reader, data::summon(2, "resource")), [data::response(2, 200)]);
    }
    for writer in ["w1", "w2", "w3"] {
        bench.connect(writer, "test", "Writer", &json!({}));
        bench.write(writer, 1, &[writer, writer]);
    }
    for reader in ["r1", "r2", "r3"] {
        assert_eq!(bench.bodies(reader), ["w1", "w1", "w2", "w2", "w3", "w3"]);
    }
}

#[test]
fn a_reader_that_does_not_read_loses_what_all_have() {
    let mut bench = Bench::open();
    for reader in ["r1", "r2"] {
        bench.connect(reader, "test", "Reader", &json!({}));
        bench.data(reader, data::summon(2, "resource"));
    }
    bench.connect("w", "test", "Writer", &json!({}));
    bench.deafen("r1");
    for sequence in 1..=11_000 {
        bench.take(CONTROL, "w", None, data::content(sequence, "", &EMPTY_TABLE, Bytes::from_static(b"x")));
    }
    assert_eq!(bench.bodies("r2").len(), 11_000);
    let lost = bench.server.stats().dropped["peer_full"];
    assert!((900..=1000).contains(&lost), "{lost}");
    bench.undeafen("r1", None);
    assert_eq!(bench.bodies("r1").len() as u64 + 1, 11_000 - lost);
}

#[test]
fn what_the_transport_gives_back_of_a_queue_is_not_lost() {
    let mut bench = Bench::open();
    bench.reader("r1", "jobs", "none", 10);
    bench.deafen("r1");
    bench.writer("w", &["jobs"], "none");
    bench.write("w", 1, &["a", "b"]);
    bench.undeafen("r1", Some(Unsent::PeerFull));
    assert_eq!(bench.contents("r1"), [(2, "b".to_owned(), false), (3, "a".to_owned(), true)]);
    assert_eq!(bench.info("jobs")["unconfirmed"], 0);
}

#[test]
fn readers_have_their_turns_and_their_windows() {
    let mut bench = Bench::open();
    bench.reader("r1", "jobs", "full", 2);
    bench.reader("r2", "jobs", "full", 10);
    bench.writer("w", &["jobs"], "none");
    bench.write("w", 1, &["a", "b", "c", "d", "e", "f"]);
    assert_eq!(
        (bench.bodies("r1"), bench.bodies("r2")),
        (vec!["a".into(), "c".into()], vec!["b".into(), "d".into(), "e".into(), "f".into()])
    );
}

#[test]
fn a_reader_of_one_at_a_time_has_of_each_resource_in_turn() {
    let mut bench = Bench::open();
    bench.connect("r", "queue", "Reader", &json!({"confirm": "full", "window": 1}));
    bench.connect("w", "queue", "Writer", &json!({}));
    let mut sequence = 0;
    let mut write = |bench: &mut Bench, resource: &str| {
        sequence += 1;
        let body = Bytes::copy_from_slice(resource.as_bytes());
        bench.take(CONTROL, "w", None, data::content(sequence, resource, &EMPTY_TABLE, body));
    };
    for resource in ["jobs", "jobs", "jobs", "logs", "logs"] {
        write(&mut bench, resource);
    }
    for (sequence, resource) in [(2, "jobs"), (3, "logs")] {
        bench.take(CONTROL, "r", None, data::summon(sequence, resource));
    }
    let mut had = vec![];
    for sequence in 1..=5 {
        let said = bench.said("r");
        had.extend(said.iter().filter(|frames| frames[1].len() == 4).map(|frames| frames[1].clone()));
        // Contents received meanwhile, even before the confirmation, do not change the turns.
        let frames = data::content(100 + sequence, "jobs", &EMPTY_TABLE, Bytes::from_static(b"jobs"));
        for (peer, frames) in [("w", frames), ("r", data::confirm(sequence, false))] {
            let peer = Some(Bytes::from_static(peer.as_bytes()));
            let incoming = Incoming { socket: CONTROL, peer, user_id: None, host: None, frames };
            bench.server.handle_message(bench.now, incoming);
        }
        bench.drain();
    }
    assert_eq!(had, ["jobs", "logs", "jobs", "logs", "jobs"]);
}

// req: MTL-50
#[test]
fn where_nothing_is_confirmed_a_window_is_what_a_reader_gets_until_it_dismisses_all() {
    let mut bench = Bench::open();
    bench.connect("r", "queue", "Reader", &json!({"confirm": "none", "window": 2}));
    bench.connect("w", "queue", "Writer", &json!({"resources": ["jobs"]}));
    bench.write("w", 1, &["a", "b", "c", "d", "e", "f"]);
    bench.take(CONTROL, "r", None, data::summon(2, "jobs"));
    bench.take(CONTROL, "r", None, data::summon(3, "logs"));
    let bodies = |bench: &mut Bench| -> Vec<Bytes> {
        bench.said("r").iter().map(|frames| frames[1].clone()).filter(|body| body.len() == 1).collect()
    };
    assert_eq!(bodies(&mut bench), ["a", "b"]);
    bench.take(CONTROL, "r", None, data::dismiss(4, "logs"));
    bench.take(CONTROL, "r", None, data::summon(5, "logs"));
    assert!(bodies(&mut bench).is_empty());
    for resource in ["logs", "jobs"] {
        bench.take(CONTROL, "r", None, data::dismiss(6, resource));
    }
    bench.take(CONTROL, "r", None, data::summon(7, "jobs"));
    assert_eq!(bodies(&mut bench), ["c", "d"]);
    assert_eq!(bench.info("jobs")["messages"], 2);
    // A content that the transport refused does not count.
    bench.reader("other", "jobs", "none", 2);
    bench.said("other");
    bench.write("w", 10, &["g"]);
    assert!(bodies(&mut bench).is_empty());
}

// req: MTL-50
#[test]
fn what_the_transport_gives_back_is_not_of_the_window() {
    let mut bench = Bench::open();
    bench.reader("r", "jobs", "none", 1);
    bench.deafen("r");
    bench.writer("w", &["jobs"], "none");
    bench.write("w", 1, &["a", "b"]);
    bench.undeafen("r", Some(Unsent::PeerFull));
    assert_eq!(bench.bodies("r"), ["a"]);
    assert_eq!(bench.info("jobs")["messages"], 1);
}

#[test]
fn contents_wait_no_longer_than_they_may() {
    let ttl = Some(Duration::from_secs(10));
    let bounds = Bounds { ttl, ..Default::default() };
    let mut bench = Bench::new(ServerSettings { bounds, ..settings() });
    bench.writer("w", &["jobs"], "none");
    bench.write("w", 1, &["a"]);
    bench.pass(Duration::from_secs(5));
    bench.write("w", 2, &["b"]);
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.info("jobs")["messages"], 1);
    assert_eq!(bench.server.stats().dropped["queue_expired"], 1);
    bench.reader("r", "jobs", "none", 5);
    assert_eq!(bench.bodies("r"), ["b"]);
}

#[test]
fn queues_are_made_and_deleted_by_command() {
    let mut bench = Bench::open();
    bench.enter("boss", "queue");
    let bounds = json!({"name": "new", "max-messages": 5, "ttl-ms": 1000, "dead-letter": "jobs"});
    assert_eq!(bench.status("boss", "Queue.Create", &bounds), 200);
    assert_eq!(bench.status("boss", "queue.create", &bounds), 200);
    assert_eq!(bench.status("boss", "Queue.Create", &json!({"name": "new"})), 400);
    for bad in [
        json!({}),
        json!({"name": ""}),
        json!({"name": "x", "max-messages": -1}),
        json!({"name": "x", "dead-letter": 1}),
    ] {
        assert_eq!(bench.status("boss", "Queue.Create", &bad), 400, "{bad}");
    }
    let (_, info) = bench.ask("boss", "Queue.Info", &json!({"name": "new"}));
    assert_eq!(
        info,
        json!({"status": "OK", "name": "new", "messages": 0, "bytes": 0, "unconfirmed": 0, "readers": 0,
        "writers": 0, "max-messages": 5, "max-bytes": 256 << 20, "ttl-ms": 1000, "dead-letter": "jobs"})
    );
    assert_eq!(bench.ask("boss", "Queue.List", &json!({})).1["queues"], json!(["jobs", "logs", "new"]));
    bench.reader("r", "new", "full", 2);
    bench.writer("w", &["new"], "none");
    bench.write("w", 1, &["a", "b", "c", "d"]);
    assert_eq!(bench.bodies("r"), ["a", "b"]);
    assert_eq!(bench.ask("boss", "Queue.Purge", &json!({"name": "new"})).1["purged"], 2);
    assert_eq!(bench.status("boss", "Queue.Delete", &json!({"name": "new"})), 200);
    for name in ["Queue.Delete", "Queue.Info", "Queue.Purge"] {
        assert_eq!(bench.status("boss", name, &json!({"name": "new"})), 404);
    }
    assert!(bench.data("r", data::confirm(2, true)).is_empty());
    assert_eq!(bench.data("r", data::summon(9, "new")), [data::response(9, 400)]);
    // Another host has its own queues.
    let other = json!({"protocol": {"name": "MTL", "version": 1}, "virtual-host": "other"});
    assert_eq!(bench.status("stranger", "Connection.Open", &other), 201);
    assert_eq!(bench.status("stranger", "Connection.Profile", &json!({"profile": "queue"})), 200);
    assert_eq!(bench.ask("stranger", "Queue.List", &json!({})).1["queues"], json!(["jobs", "logs"]));
}

#[test]
fn commands_of_a_profile_of_ones_own_are_asked() {
    let mut bench = Bench::open();
    bench.enter("ada", "own");
    bench.send_control("ada", None, "BANK.Transfer", "{\"amount\": 5}");
    let (token, question) = bench.question();
    let Question::Command { profile, name, body, user: None, virtual_host } = question else { panic!("{question:?}") };
    assert_eq!(
        (profile.as_str(), name.as_str(), virtual_host.as_str(), body["amount"].as_u64()),
        ("own", "BANK.Transfer", "/", Some(5))
    );
    let reply = trunkline_wire::mtl::control::Reply { status: 200, body: body.clone() };
    bench.verb(ServerVerb::Answer(
        token,
        Answer::Reply(trunkline_wire::mtl::control::Reply {
            body: json!({"status": "OK", "left": 3}).as_object().unwrap().clone(),
            ..reply
        }),
    ));
    assert_eq!(bench.reply("ada").1["left"], 3);
    bench.send_control("ada", None, "Bank.Transfer", "{}");
    bench.answer(Answer::Failed);
    assert_eq!(bench.reply("ada").0, 500);
    bench.send_control("ada", None, "Bank.Transfer", "{}");
    bench.pass(Duration::from_secs(30));
    assert_eq!(bench.reply("ada").0, 500);
}

fn authorize(mechanism: &str, response: &str) -> serde_json::Value {
    json!({"mechanism": mechanism, "response": response})
}

// req: MTL-14, MTL-15, MTL-16, MTL-17, MTL-18, MTL-19, MTL-20
#[test]
fn a_login_goes_step_by_step() {
    let mut bench = Bench::new(with_users());
    let (status, body) = bench.ask("ada", "Connection.Open", &open());
    assert_eq!((status, body), (401, json!({"status": "Unauthorized", "mechanisms": ["SCRAM-SHA-256"]})));
    assert_eq!(bench.status("ada", "Connection.Profile", &json!({"profile": "queue"})), 401);
    assert_eq!(bench.status("ada", "Connection.Authorize", &authorize("SCRAM-SHA-256", "?")), 400);
    assert_eq!(bench.status("ada", "Connection.Authorize", &json!({"mechanism": "SCRAM-SHA-256"})), 400);
    for unknown in ["PLAIN", "MAGIC"] {
        assert_eq!(
            bench.ask("ada", "Connection.Authorize", &authorize(unknown, "")).1["mechanisms"],
            json!(["SCRAM-SHA-256"])
        );
    }
    bench.send_control("ada", None, "Connection.Authorize", &authorize("scram-sha-256", "Zmlyc3Q=").to_string());
    let (token, question) = bench.question();
    let Question::Login(login) = question else { panic!("{question:?}") };
    assert_eq!(
        (login.mechanism.as_str(), &login.response[..], &login.state[..], login.is_private),
        ("SCRAM-SHA-256", &b"first"[..], &b""[..], false)
    );
    assert_eq!(bench.status("ada", "Connection.Authorize", &authorize("SCRAM-SHA-256", "")), 400);
    bench.verb(ServerVerb::Answer(
        token,
        Answer::Challenge { challenge: "more".into(), state: "kept".into(), proven: None },
    ));
    assert_eq!(
        bench.reply("ada"),
        (402, json!({"status": "Challenged", "mechanism": "SCRAM-SHA-256", "challenge": "bW9yZQ=="}))
    );
    bench.send_control("ada", None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
    let (token, question) = bench.question();
    assert!(matches!(question, Question::Login(login) if login.state == "kept"));
    bench.verb(ServerVerb::Answer(token, Answer::Welcome(user("ada"))));
    assert_eq!(bench.reply("ada").0, 201);
    assert_eq!(bench.status("ada", "Connection.Profile", &json!({"profile": "queue"})), 200);
    // The server may require a login at any time: leases stay.
    let lease = bench.lease("ada", "Writer", &json!({"resources": ["jobs"]}));
    assert_eq!(bench.data("w", data::lease(1, &lease)), [data::response(1, 200)]);
    bench.verb(ServerVerb::Revoke { users: vec!["ada".to_owned()], leases: false });
    assert_eq!(bench.status("ada", "Queue.List", &json!({})), 401);
    bench.send_control("ada", None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
    bench.answer(Answer::Welcome(user("ada")));
    assert_eq!(bench.reply("ada").0, 201);
    assert_eq!(bench.status("ada", "Queue.List", &json!({})), 200);
    assert_eq!(bench.data("w", data::ping()), [data::pong()]);
    assert_eq!(bench.server.stats().leases, 1);
    // Another user starts anew.
    bench.verb(ServerVerb::Revoke { users: vec!["ada".to_owned()], leases: false });
    bench.send_control("ada", None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
    bench.answer(Answer::Welcome(user("bob")));
    assert_eq!(bench.reply("ada").0, 201);
    assert_eq!(bench.status("ada", "Queue.List", &json!({})), 400);
    assert_eq!(bench.data("w", data::ping()), [data::pong(), data::response(0, 403)]);
}

// req: MTL-28
#[test]
fn a_command_has_a_mebibyte_at_most_and_much_less_before_the_login() {
    let mut bench = Bench::open();
    let body = |bytes: usize| format!("{{\"a\": \"{}\"}}", "x".repeat(bytes - 9));
    // A longer command is not parsed, and is answered like a shorter one.
    let open = "this command has up to 16384 bytes of JSON";
    for (name, status) in [("A.B", "Open first"), ("connection.OPEN", open)] {
        bench.send_control("ada", None, name, &"[".repeat((16 << 10) + 1));
        let (code, said) = bench.reply("ada");
        assert_eq!((code, said["status"].as_str()), (400, Some(status)));
    }
    let mut strict = Bench::new(with_users());
    strict.ask("ada", "Connection.Open", &self::open());
    strict.send_control("ada", None, "A.B", &"[".repeat((16 << 10) + 1));
    assert_eq!(strict.reply("ada").0, 401);
    bench.enter("ada", "queue");
    for (bytes, code, status) in
        [(1 << 20, 501, "Not implemented"), ((1 << 20) + 1, 400, "a command has up to 1048576 bytes of JSON")]
    {
        bench.send_control("ada", None, "A.B", &body(bytes));
        let (said, reply) = bench.reply("ada");
        assert_eq!((said, reply["status"].as_str()), (code, Some(status)));
    }
    assert!(bench.server.stats().dropped.is_empty());
}

#[test]
fn a_peer_has_so_much_parsed_a_second() {
    let mut bench = Bench::open();
    for peer in ["ada", "eve"] {
        bench.enter(peer, "queue");
    }
    let large = json!({"name": "jobs", "x": "x".repeat(1_000_000)});
    for code in [200, 200, 200, 200, 503, 503] {
        assert_eq!(bench.status("eve", "Queue.Info", &large), code);
    }
    // Small ones are parsed all the same, and other peers are not limited.
    assert_eq!(bench.status("eve", "Queue.Info", &json!({"name": "jobs"})), 200);
    assert_eq!(bench.status("ada", "Queue.Info", &large), 200);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.status("eve", "Queue.Info", &large), 200);
}

#[test]
fn an_envelope_is_short() {
    let mut bench = Bench::open();
    for (bytes, replies) in [(16 << 10, 1), ((16 << 10) + 1, 0)] {
        let body = open().to_string();
        let frames = frames(&[&vec![b'e'; bytes], b"", b"Connection.Open", body.as_bytes()]);
        bench.take(CONTROL, "ada", None, frames);
        assert_eq!(bench.said("ada").len(), replies);
    }
    assert_eq!(bench.server.stats().dropped["echo_too_long"], 1);
}

#[test]
fn commands_that_wait_for_their_replies_are_bounded_by_their_bytes() {
    let mut bench = Bench::open();
    let body = format!("{{\"a\": \"{}\"}}", "x".repeat(1_000_000));
    for number in 0..20 {
        let peer = format!("ada{number}");
        bench.enter(&peer, "own");
        bench.send_control(&peer, None, "Bank.Transfer", &body);
        if number > 15 {
            assert_eq!(bench.reply(&peer).0, 503, "{number}");
        }
    }
    bench.answer(Answer::Failed);
    assert_eq!(bench.reply("ada0").0, 500);
    bench.send_control("ada19", None, "Bank.Transfer", &body);
    assert!(bench.said("ada19").is_empty());
}

// req: MTL-01
#[test]
fn each_request_of_many_at_once_has_its_reply() {
    let mut bench = Bench::new(with_users());
    assert_eq!(bench.status("ada", "Connection.Open", &open()), 401);
    bench.send_control("ada", None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
    let (token, _) = bench.question();
    assert_eq!(bench.status("ada", "Connection.Open", &open()), 401);
    bench.verb(ServerVerb::Answer(token, Answer::Welcome(user("ada"))));
    let (status, body) = bench.reply("ada");
    assert_eq!((status, body["status"].as_str()), (400, Some("Opened anew since")));
    // The login that came too late has no effect.
    assert_eq!(bench.status("ada", "Queue.List", &json!({})), 401);
}

#[test]
fn replies_are_counted_and_those_that_reach_no_peer_too() {
    let mut bench = Bench::open();
    bench.enter("ada", "queue");
    assert_eq!(bench.server.stats().sent, 2);
    bench.gone.push("ada".into());
    bench.send_control("ada", None, "Queue.List", "{}");
    assert_eq!((bench.server.stats().sent, bench.server.stats().dropped["unroutable"]), (2, 1));
}

// req: MTL-14, MTL-15
#[test]
fn a_key_that_is_good_no_more_is_worth_nothing_on_a_connection_it_made() {
    for access in [None, with_users().access] {
        let mut bench = Bench::new(ServerSettings { access, ..settings() });
        let ask = |bench: &mut Bench, user, name: &str, body: &serde_json::Value| {
            bench.send_control(user, Some(user), name, &body.to_string());
            bench.said(user).iter().map(|reply| String::from_utf8(reply[1].to_vec()).unwrap()).collect::<String>()
        };
        for user in ["ada", "bob"] {
            ask(&mut bench, user, "Connection.Open", &open());
            if access.is_some() {
                ask(&mut bench, user, "Connection.Authorize", &authorize("SCRAM-SHA-256", ""));
                bench.answer(Answer::Welcome(self::user("bob")));
                bench.said(user);
            }
            assert_eq!(ask(&mut bench, user, "Connection.Profile", &json!({"profile": "queue"})), "200");
        }
        bench.send_control("ada", Some("ada"), "Connection.Writer", "{}");
        let lease = bench.reply("ada").1["lease"].as_str().unwrap().to_owned();
        bench.take(CONTROL, "w", Some("ada"), data::lease(1, &lease));
        assert_eq!(bench.said("w"), [data::response(1, 200)]);
        bench.verb(ServerVerb::Bar(vec!["ada".to_owned()]));
        assert_eq!(ask(&mut bench, "ada", "Queue.List", &json!({})), "401");
        assert_eq!(ask(&mut bench, "ada", "Connection.Open", &open()), "401");
        assert_eq!(ask(&mut bench, "bob", "Queue.List", &json!({})), "200");
        bench.take(CONTROL, "w", Some("ada"), data::ping());
        assert_eq!(bench.said("w"), [data::pong(), data::response(0, 403)]);
        // Once the name is admitted again, it starts anew.
        bench.verb(ServerVerb::Bar(vec![]));
        assert_eq!(ask(&mut bench, "ada", "Queue.List", &json!({})), "400");
        assert_eq!(ask(&mut bench, "ada", "Connection.Open", &open()), if access.is_none() { "201" } else { "401" });
    }
}

// req: MTL-18
#[test]
fn a_login_has_sixteen_steps_at_most() {
    let mut bench = Bench::new(with_users());
    bench.ask("ada", "Connection.Open", &open());
    for _ in 0..16 {
        bench.send_control("ada", None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
        bench.answer(Answer::Challenge { challenge: Bytes::new(), state: Bytes::new(), proven: None });
        assert_eq!(bench.reply("ada").0, 402);
    }
    assert_eq!(bench.status("ada", "Connection.Authorize", &authorize("SCRAM-SHA-256", "")), 401);
    // The next one is a first step.
    bench.send_control("ada", None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
    bench.answer(Answer::Welcome(user("ada")));
    assert_eq!(bench.reply("ada").0, 201);
}

// req: MTL-19
#[test]
fn failures_slow_down_and_nobody_else() {
    let mut bench = Bench::new(with_users());
    bench.ask("eve", "Connection.Open", &open());
    let attempt = |bench: &mut Bench, peer: &str, answer| {
        bench.send_control(peer, None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
        bench.answer(answer);
    };
    for _ in 0..5 {
        attempt(&mut bench, "eve", Answer::Refused(Some("ada".to_owned())));
        assert_eq!(bench.reply("eve").0, 401);
    }
    attempt(&mut bench, "eve", Answer::Refused(Some("ada".to_owned())));
    assert!(bench.said("eve").is_empty());
    bench.host = Some("10.0.0.1".into());
    bench.ask("ada", "Connection.Open", &open());
    attempt(&mut bench, "ada", Answer::Welcome(user("ada")));
    assert_eq!(bench.reply("ada").0, 201);
    bench.host = None;
    bench.pass(Duration::from_millis(249));
    assert!(bench.said("eve").is_empty());
    assert_eq!(bench.status("eve", "Connection.Authorize", &authorize("SCRAM-SHA-256", "")), 400);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.reply("eve").0, 401);
    for doublings in 1..8 {
        attempt(&mut bench, "eve", Answer::Refused(None));
        let delay = (250 << doublings).min(8000);
        bench.pass(Duration::from_millis(delay - 1));
        assert!(bench.said("eve").is_empty(), "{doublings}");
        bench.pass(Duration::from_millis(1));
        assert_eq!(bench.reply("eve").0, 401);
    }
    bench.pass(Duration::from_secs(60));
    bench.ask("eve", "Connection.Open", &open());
    attempt(&mut bench, "eve", Answer::Refused(None));
    assert_eq!(bench.reply("eve").0, 401);
    assert_eq!(bench.server.stats().refused, 14);
}

// req: MTL-16, MTL-17, MTL-19
#[test]
fn a_login_ends_with_a_401() {
    let mut bench = Bench::new(with_users());
    bench.ask("ada", "Connection.Open", &open());
    let mut first = |name: &str, body: &serde_json::Value, code| {
        bench.send_control("ada", None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
        bench.answer(Answer::Challenge { challenge: "more".into(), state: "kept".into(), proven: None });
        assert_eq!(bench.reply("ada").0, 402);
        assert_eq!(bench.status("ada", name, body), code, "{name} {body}");
        bench.send_control("ada", None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
        let (token, question) = bench.question();
        assert!(matches!(question, Question::Login(login) if login.state.is_empty()), "{name} {body}");
        bench.verb(ServerVerb::Answer(token, Answer::Failed));
        assert_eq!(bench.reply("ada").0, 503);
    };
    first("Connection.Authorize", &authorize("X-OTHER", ""), 401);
    first("Connection.Authorize", &authorize("SCRAM-SHA-256", "?"), 400);
    first("Connection.Profile", &json!({"profile": "queue"}), 401);
}

// req: MTL-14
#[test]
fn what_is_on_offer_depends_on_the_transport() {
    let access = Some(Access { passwords: true, external: true, anonymous: true });
    let options = SocketOptions { curve: Some(Curve::Server { secret: [1; 32].into() }), ..SocketOptions::default() };
    let mut bench = Bench::new(ServerSettings { access, options, ..settings() });
    bench.send_control("ada", Some("ada"), "Connection.Open", &open().to_string());
    assert_eq!(bench.reply("ada").1["mechanisms"], json!(["SCRAM-SHA-256", "EXTERNAL", "PLAIN", "ANONYMOUS"]));
    let mut bench = Bench::new(ServerSettings { access, ..settings() });
    assert_eq!(bench.ask("ada", "Connection.Open", &open()).1["mechanisms"], json!(["SCRAM-SHA-256", "ANONYMOUS"]));
    let mut bench = Bench::new(ServerSettings { access, bind: vec!["ipc:///tmp/x".to_owned()], ..settings() });
    assert_eq!(
        bench.ask("ada", "Connection.Open", &open()).1["mechanisms"],
        json!(["SCRAM-SHA-256", "PLAIN", "ANONYMOUS"])
    );
}

#[test] // req: MTL-06
fn a_session_is_of_one_host() {
    let mut bench = Bench::new(with_users());
    bench.host = Some("10.0.0.1".into());
    bench.ask("ada", "Connection.Open", &open());
    bench.send_control("ada", None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
    bench.answer(Answer::Welcome(user("ada")));
    assert_eq!(bench.reply("ada").0, 201);
    bench.host = Some("10.0.0.2".into());
    assert_eq!(bench.ask("ada", "Connection.Profile", &json!({"profile": "queue"})).1["status"], "Open first");
    bench.host = Some("10.0.0.1".into());
    assert_eq!(bench.status("ada", "Connection.Profile", &json!({"profile": "queue"})), 200);
}

// req: MTL-19
#[test]
fn failures_are_counted_by_user_and_host() {
    let mut bench = Bench::new(with_users());
    bench.host = Some("10.0.0.2".into());
    let attempt = |bench: &mut Bench, peer: &str, answer: Answer| {
        bench.ask(peer, "Connection.Open", &open());
        bench.send_control(peer, None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
        bench.answer(answer);
        bench.said(peer).len()
    };
    let wrong = |user: &str| Answer::Refused(Some(user.to_owned()));
    // Each time on another connection.
    for number in 0..5 {
        assert_eq!(attempt(&mut bench, &format!("eve{number}"), wrong("ada")), 1);
    }
    assert_eq!(attempt(&mut bench, "eve5", wrong("ada")), 0);
    // Neither another user on that host nor that user on another host is delayed, whatever the answer.
    assert_eq!(attempt(&mut bench, "bob", wrong("bob")), 1);
    assert_eq!(attempt(&mut bench, "bob2", Answer::Welcome(user("bob"))), 1);
    bench.host = Some("10.0.0.3".into());
    assert_eq!(attempt(&mut bench, "ada", wrong("ada")), 1);
    assert_eq!(attempt(&mut bench, "ada2", Answer::Welcome(user("ada"))), 1);
}

// req: MTL-19
#[test]
fn a_guess_that_does_not_wait_is_answered_no_sooner() {
    let proven = || Answer::Challenge { challenge: "v".into(), state: "s".into(), proven: Some("ada".to_owned()) };
    let mut bench = Bench::new(with_users());
    let guess = |bench: &mut Bench, peer: &str, answer: Answer| {
        bench.ask(peer, "Connection.Open", &open());
        bench.send_control(peer, None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
        bench.answer(answer);
    };
    for number in 0..6 {
        guess(&mut bench, &format!("eve{number}"), Answer::Refused(Some("ada".to_owned())));
    }
    assert!(bench.said("eve5").is_empty());
    // The correct one is delayed like the others, and has no effect meanwhile.
    guess(&mut bench, "eve6", proven());
    guess(&mut bench, "eve7", Answer::Welcome(user("ada")));
    assert!(bench.said("eve6").is_empty() && bench.said("eve7").is_empty());
    assert_eq!(bench.status("eve7", "Queue.List", &json!({})), 401);
    // On the same connection, neither a new session nor more than a few requests help.
    assert_eq!(bench.status("eve5", "Connection.Open", &open()), 401);
    assert_eq!(bench.status("eve5", "Connection.Authorize", &authorize("SCRAM-SHA-256", "")), 400);
    for number in 8..20 {
        let peer = format!("eve{number}");
        guess(&mut bench, &peer, if number % 2 == 0 { proven() } else { Answer::Refused(Some("ada".to_owned())) });
        if number > 8 {
            assert_eq!(bench.reply(&peer).0, 503, "{number}");
        }
    }
    bench.pass(Duration::from_millis(250));
    assert_eq!(bench.reply("eve5").1["status"], "Opened anew since");
    assert_eq!([bench.reply("eve6").0, bench.reply("eve7").0], [402, 201]);
    assert_eq!(bench.server.stats().refused, 12);
}

#[test] // req: MTL-06
fn a_session_is_its_keys_and_not_its_address() {
    let mut bench = Bench::open();
    bench.send_control("ada", Some("ada"), "Connection.Open", &open().to_string());
    assert_eq!(bench.reply("ada").0, 201);
    bench.send_control("ada", Some("eve"), "Connection.Profile", "{\"profile\": \"test\"}");
    assert_eq!(bench.reply("ada").1["status"], "Open first");
    bench.send_control("ada", Some("ada"), "Connection.Profile", "{\"profile\": \"queue\"}");
    assert_eq!(bench.reply("ada").0, 200);
    bench.send_control("ada", Some("ada"), "Connection.Writer", "{\"resources\": [\"jobs\"]}");
    let lease = bench.reply("ada").1["lease"].as_str().unwrap().to_owned();
    bench.take(CONTROL, "w", Some("eve"), data::lease(1, &lease));
    assert_eq!(bench.said("w"), [data::response(1, 403)]);
}

#[test] // req: MTL-15
fn who_lost_his_address_to_another_loses_his_lease_with_his_rights() {
    let mut bench = Bench::new(with_users());
    bench.send_control("ada", Some("key"), "Connection.Open", &open().to_string());
    bench.send_control("ada", Some("key"), "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
    bench.answer(Answer::Welcome(user("ada")));
    bench.send_control("ada", Some("key"), "Connection.Profile", "{\"profile\": \"queue\"}");
    bench.said("ada");
    bench.send_control("ada", Some("key"), "Connection.Writer", "{\"resources\": [\"jobs\"]}");
    let lease = bench.reply("ada").1["lease"].as_str().unwrap().to_owned();
    bench.take(CONTROL, "w", Some("key"), data::lease(1, &lease));
    assert_eq!(bench.said("w"), [data::response(1, 200)]);
    bench.send_control("ada", Some("eve"), "Connection.Open", &open().to_string());
    assert_eq!((bench.server.stats().sessions, bench.server.stats().leases), (2, 1));
    bench.verb(ServerVerb::Revoke { users: vec!["ada".to_owned()], leases: true });
    assert_eq!(bench.server.stats().leases, 0);
}

// req: MTL-06
#[test]
fn sessions_end_when_they_are_idle() {
    let mut bench = Bench::open();
    bench.enter("ada", "queue");
    bench.writer("w", &["jobs"], "none");
    assert_eq!(bench.server.stats().sessions, 2);
    for _ in 0..1440 {
        bench.pass(Duration::from_millis(2500));
        bench.take(CONTROL, "w", None, data::pong());
    }
    // A session with a data connection is not idle.
    assert_eq!(bench.server.stats().sessions, 1);
    assert_eq!(bench.ask("ada", "Queue.List", &json!({})).1["status"], "Open first");
    assert_eq!(bench.status("w-control", "Queue.List", &json!({})), 200);
}

// req: MTL-06
#[test]
fn sessions_without_a_login_are_few_and_short() {
    let mut bench = Bench::new(with_users());
    for number in 0..11_000 {
        bench.pass(Duration::from_millis(1));
        bench.ask(&format!("eve{number}"), "Connection.Open", &open());
    }
    assert_eq!(bench.server.stats().sessions, 10_000);
    let step = |bench: &mut Bench, peer: &str, bytes: usize| {
        bench.send_control(peer, None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
        bench.answer(Answer::Challenge { challenge: Bytes::new(), state: vec![0; bytes].into(), proven: None });
        bench.reply(peer).0
    };
    for number in 10_000..11_000 {
        assert_eq!(step(&mut bench, &format!("eve{number}"), 10_000), 402);
    }
    // 16 MiB, at a KiB each and the state of its login.
    assert!(bench.server.stats().sessions < 7_000, "{}", bench.server.stats().sessions);
    bench.ask("ada", "Connection.Open", &open());
    bench.send_control("ada", None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
    bench.answer(Answer::Welcome(user("ada")));
    assert_eq!(bench.reply("ada").0, 201);
    bench.pass(Duration::from_secs(60));
    assert_eq!(bench.server.stats().sessions, 1);
    assert_eq!(bench.status("ada", "Connection.Profile", &json!({"profile": "queue"})), 200);
}

#[test]
fn a_queue_has_no_more_than_the_server_allows() {
    let bounds = Bounds { max_messages: 10, max_bytes: 1000, ttl: Some(Duration::from_secs(1)), dead_letter: None };
    let mut bench = Bench::new(ServerSettings { bounds, ..settings() });
    bench.enter("boss", "queue");
    for (name, most) in [("max-messages", 10), ("max-bytes", 1000), ("ttl-ms", 1000)] {
        let body = |value: u64| json!({"name": name, name: value});
        let (code, said) = bench.ask("boss", "Queue.Create", &body(most + 1));
        assert_eq!(
            (code, said["status"].as_str()),
            (400, Some(&*format!("\"{name}\" is {most} at most on this server")))
        );
        assert_eq!(bench.status("boss", "Queue.Create", &body(most)), 200);
    }
}

#[test]
fn there_are_so_many_queues_of_a_user_and_in_all() {
    let mut bench = Bench::new(ServerSettings { max_queues: 5, max_user_queues: 3, ..with_users() });
    for name in ["ada", "bob"] {
        bench.ask(name, "Connection.Open", &open());
        bench.send_control(name, None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
        bench.answer(Answer::Welcome(user(name)));
        bench.reply(name);
        bench.ask(name, "Connection.Profile", &json!({"profile": "queue"}));
    }
    let create = |bench: &mut Bench, peer: &str, name: &str| {
        let (code, body) = bench.ask(peer, "Queue.Create", &json!({ "name": name }));
        (code, body["status"].as_str().unwrap().to_owned())
    };
    let ok = (200, "OK".to_owned());
    for name in ["a1", "a2", "a3", "a1"] {
        assert_eq!(create(&mut bench, "ada", name), ok);
    }
    let (of_one, of_all) = ("a user may have 3 queues, and you have", "there may be 5 queues, and there are");
    assert_eq!(create(&mut bench, "ada", "a4"), (429, of_one.to_owned()));
    assert_eq!([create(&mut bench, "bob", "b1"), create(&mut bench, "bob", "b2")], [ok.clone(), ok.clone()]);
    assert_eq!(create(&mut bench, "bob", "b3"), (429, of_all.to_owned()));
    // A queue counts for the user that created it.
    assert_eq!(bench.status("bob", "Queue.Delete", &json!({"name": "a1"})), 200);
    assert_eq!([create(&mut bench, "ada", "a4"), create(&mut bench, "bob", "b3")], [ok, (429, of_all.to_owned())]);
    assert_eq!(bench.server.stats().dropped["too_many_queues"], 3);
}

#[test]
fn queues_are_listed_a_page_at_a_time() {
    let mut bench = Bench::open();
    bench.enter("boss", "queue");
    for number in 0..1500 {
        assert_eq!(bench.status("boss", "Queue.Create", &json!({"name": format!("q{number:04}")})), 200);
    }
    let page = |bench: &mut Bench, body: serde_json::Value| {
        let (code, said) = bench.ask("boss", "Queue.List", &body);
        let names: Vec<String> = serde_json::from_value(said["queues"].clone()).unwrap_or_default();
        let ends = [names.first(), names.last()].map(|name| name.cloned().unwrap_or_default());
        (code, names.len(), ends, said["more"].as_bool())
    };
    let ends = |first: &str, last: &str| [first.to_owned(), last.to_owned()];
    let first = page(&mut bench, json!({}));
    assert_eq!(first, (200, 1000, ends("jobs", "q0997"), Some(true)));
    assert_eq!(page(&mut bench, json!({"limit": 5000})), first);
    assert_eq!(page(&mut bench, json!({"after": "q0997"})), (200, 502, ends("q0998", "q1499"), None));
    assert_eq!(page(&mut bench, json!({"after": "jobs", "limit": 2})), (200, 2, ends("logs", "q0000"), Some(true)));
    assert_eq!(page(&mut bench, json!({"after": "q1499"})), (200, 0, ends("", ""), None));
    for bad in [json!({"limit": 0}), json!({"limit": "5"}), json!({"after": 5})] {
        assert_eq!(page(&mut bench, bad).0, 400);
    }
    // A reply has 64 KiB of names.
    for number in 0..400 {
        let name = format!("z{number:03}{}", "z".repeat(246));
        assert_eq!(bench.status("boss", "Queue.Create", &json!({ "name": name })), 200);
    }
    assert_eq!(page(&mut bench, json!({"after": "q1499"})).1, (64 << 10) / 250);
}

#[test]
fn users_do_what_their_patterns_allow() {
    let mut bench = Bench::new(with_users());
    bench.ask("ada", "Connection.Open", &open());
    bench.send_control("ada", None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
    let limited = User { name: "ada".to_owned(), read: Some(vec!["job*".to_owned()]), write: Some(vec![]) };
    bench.answer(Answer::Welcome(limited));
    bench.reply("ada");
    bench.ask("ada", "Connection.Profile", &json!({"profile": "queue"}));
    assert_eq!(bench.status("ada", "Connection.Reader", &json!({"resources": ["logs"]})), 403);
    assert_eq!(bench.status("ada", "Connection.Writer", &json!({"resources": ["jobs"]})), 403);
    assert_eq!(bench.ask("ada", "Queue.List", &json!({})).1["queues"], json!(["jobs"]));
    assert_eq!(bench.status("ada", "Queue.Info", &json!({"name": "jobs"})), 200);
    for name in ["Queue.Purge", "Queue.Delete", "Queue.Create"] {
        assert_eq!(bench.status("ada", name, &json!({"name": "jobs"})), 403);
    }
    let lease = bench.lease("ada", "Reader", &json!({}));
    assert_eq!(bench.data("r", data::lease(1, &lease)), [data::response(1, 200)]);
    assert_eq!(bench.data("r", data::summon(2, "logs")), [data::response(2, 400)]);
    assert_eq!(bench.data("r", data::summon(3, "jobs")), [data::response(3, 200)]);
    let lease = bench.lease("ada", "Writer", &json!({}));
    assert_eq!(bench.data("w", data::lease(1, &lease)), [data::response(1, 200)]);
    assert_eq!(bench.data("w", data::content(1, "jobs", &EMPTY_TABLE, Bytes::new())), [data::response(1, 403)]);
    bench.verb(ServerVerb::Revoke { users: vec!["ada".to_owned()], leases: true });
    assert_eq!(bench.server.stats().leases, 0);
}

#[test]
fn dead_letters_go_where_their_maker_may_write() {
    let mut bench = Bench::new(with_users());
    bench.ask("bob", "Connection.Open", &open());
    bench.send_control("bob", None, "Connection.Authorize", &authorize("SCRAM-SHA-256", "").to_string());
    bench.answer(Answer::Welcome(User { write: Some(vec!["jobs*".to_owned()]), ..user("bob") }));
    bench.reply("bob");
    bench.ask("bob", "Connection.Profile", &json!({"profile": "queue"}));
    for (dead_letter, code) in [("logs", 403), ("jobs", 200), ("logs", 403)] {
        let body = json!({"name": "jobs2", "dead-letter": dead_letter});
        assert_eq!(bench.status("bob", "Queue.Create", &body), code, "{dead_letter}");
    }
    assert_eq!(bench.info_of("bob", "jobs2")["dead-letter"], "jobs");
}

/// A durable server whose queues are stored, with a writer "w" and a reader "r" with this window.
fn storing(window: u64) -> Bench {
    let mut bench = Bench::new(durable(Restored::default()));
    bench.verb(ServerVerb::Stored(1));
    bench.reader("r", "jobs", "full", window);
    bench.writer("w", &["jobs"], "full");
    bench
}

fn put(queue: u64, position: u64, body: &'static str) -> Op {
    Op::Put {
        queue,
        position,
        attempts: 0,
        expires_at_ms: None,
        properties: Bytes::copy_from_slice(&EMPTY_TABLE),
        body: Bytes::from_static(body.as_bytes()),
    }
}

#[test]
fn what_is_durable_is_confirmed_when_it_is_stored() {
    let mut bench = Bench::new(durable(Restored::default()));
    let defined = bench.batches.remove(0);
    assert_eq!((defined.number, defined.ops.len()), (1, 6));
    bench.verb(ServerVerb::Stored(1));
    bench.reader("r", "jobs", "full", 5);
    bench.writer("w", &["jobs"], "full");
    bench.write("w", 1, &["a", "b"]);
    assert_eq!(
        bench.batches.iter().map(|batch| batch.ops.clone()).collect::<Vec<_>>(),
        [[put(1, 1, "a")], [put(1, 2, "b")]]
    );
    assert!(bench.said("w").is_empty());
    assert_eq!(bench.bodies("r"), ["a", "b"]);
    bench.verb(ServerVerb::Stored(3));
    assert_eq!(bench.said("w"), [data::confirm(2, true)]);
    bench.batches.clear();
    bench.take(CONTROL, "r", None, data::confirm(2, true));
    assert_eq!(bench.batches[0].ops, [Op::Remove { queue: 1, position: 1 }, Op::Remove { queue: 1, position: 2 }]);
}

#[test]
fn what_cannot_be_stored_is_rejected_and_what_is_gone_stays_gone() {
    let mut bench = storing(1);
    bench.write("w", 1, &["a"]);
    bench.verb(ServerVerb::Stored(2));
    bench.said("w");
    bench.write("w", 2, &["b"]);
    bench.take(CONTROL, "r", None, data::dismiss(2, "jobs"));
    bench.take(CONTROL, "r", None, data::confirm(1, true));
    bench.batches.clear();
    bench.verb(ServerVerb::Unstored(3, "no space left on device".to_owned()));
    bench.verb(ServerVerb::Unstored(4, "no space left on device".to_owned()));
    assert_eq!(bench.said("w"), [data::reject(2, false, false)]);
    assert!(bench.events.iter().any(|event| matches!(event, ServerEvent::StoreFailed(why) if why.contains("space"))));
    assert!(bench.batches.is_empty());
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.batches[0].ops, [Op::Remove { queue: 1, position: 1 }]);
    assert_eq!(bench.said("r")[1..], [data::response(2, 200)]);
    assert_eq!((&bench.info("jobs")["unconfirmed"], &bench.info("jobs")["messages"]), (&json!(0), &json!(0)));
}

/// A server with one reader that holds "a", "b" and "c" before they fail to be stored.
fn unstored() -> Bench {
    let mut bench = storing(5);
    bench.write("w", 1, &["a", "b", "c"]);
    assert_eq!(bench.bodies("r"), ["a", "b", "c"]);
    bench.batches.clear();
    for number in 2..5 {
        bench.verb(ServerVerb::Unstored(number, "no space left on device".to_owned()));
    }
    assert!(bench.said("w").is_empty());
    bench
}

#[test]
fn a_reader_decides_on_what_cannot_be_stored() {
    let mut bench = unstored();
    bench.take(CONTROL, "r", None, data::confirm(1, false));
    assert_eq!(bench.said("w"), [data::confirm(1, false)]);
    bench.take(CONTROL, "r", None, data::reject(2, false, true));
    bench.take(CONTROL, "r", None, data::reject(3, false, false));
    assert_eq!(bench.said("w"), [data::reject(2, false, false), data::reject(3, false, false)]);
    assert!(bench.said("r").is_empty());
    let jobs = bench.info("jobs");
    assert_eq!((&jobs["unconfirmed"], &jobs["messages"], &jobs["bytes"]), (&json!(0), &json!(0), &json!(0)));
}

#[test]
fn a_queue_that_is_deleted_leaves_no_writer_without_an_answer() {
    let mut bench = unstored();
    bench.enter("boss", "queue");
    bench.send_control("boss", None, "Queue.Delete", "{\"name\": \"jobs\"}");
    assert_eq!(bench.said("w"), [1, 2, 3].map(|sequence| data::reject(sequence, false, false)));
}

#[test]
fn a_writer_is_answered_as_soon_as_a_reader_is_done() {
    let mut bench = storing(5);
    bench.write("w", 1, &["a", "b"]);
    bench.take(CONTROL, "r", None, data::confirm(1, false));
    assert_eq!(bench.said("w"), [data::confirm(1, false)]);
    bench.verb(ServerVerb::Stored(3));
    assert_eq!(bench.said("w"), [data::confirm(2, false)]);
}

#[test]
fn readers_wait_for_a_store_that_lags_far_behind() {
    let mut bench = storing(100);
    let body = Bytes::from(vec![0; 60 << 20]);
    for sequence in 1..=8 {
        bench.take(CONTROL, "w", None, data::content(sequence, "", &EMPTY_TABLE, body.clone()));
        bench.take(CONTROL, "r", None, data::confirm(sequence, false));
    }
    // Settled contents stay in memory until the store catches up.
    assert_eq!(bench.said("r").len(), 5);
    assert_eq!(bench.info("jobs")["messages"], 3);
    bench.verb(ServerVerb::Stored(8));
    assert_eq!(bench.said("r").len(), 3);
}

#[test]
fn a_server_that_starts_again_has_what_was_stored() {
    let mut bench = Bench::new(durable(Restored::default()));
    bench.verb(ServerVerb::Stored(1));
    bench.enter("boss", "queue");
    bench.send_control("boss", None, "Queue.Create", "{\"name\": \"new\", \"max-messages\": 7}");
    assert!(bench.said("boss").is_empty());
    bench.verb(ServerVerb::Stored(2));
    assert_eq!(bench.reply("boss").0, 200);
    let queues: Vec<_> = bench
        .batches
        .iter()
        .flat_map(|batch| &batch.ops)
        .map(|op| {
            let Op::Define { queue, description } = op else { panic!("{op:?}") };
            (*queue, description.clone())
        })
        .collect();
    let stored = |queue, position, body: &'static str| StoredContent {
        queue,
        position,
        attempts: 0,
        expires_at_ms: None,
        properties: Bytes::copy_from_slice(&EMPTY_TABLE),
        body: Bytes::from_static(body.as_bytes()),
    };
    let contents = vec![stored(7, 3, "x"), stored(1, 8, "a"), stored(1, 9, "b")];
    for was_clean in [true, false] {
        let restored = Restored { queues: queues.clone(), contents: contents.clone(), was_clean };
        let mut bench = Bench::new(durable(restored));
        assert!(bench.batches.is_empty(), "{:?}", bench.batches);
        assert_eq!(bench.info("new")["max-messages"], 7);
        bench.reader("r", "jobs", "none", 5);
        assert_eq!(bench.contents("r"), [(1, "a".to_owned(), !was_clean), (2, "b".to_owned(), !was_clean)]);
        bench.writer("w", &["jobs"], "none");
        bench.batches.clear();
        bench.write("w", 1, &["c"]);
        assert_eq!(bench.batches[0].ops, [put(1, 10, "c")]);
    }
    let left = queues.len();
    let mut settings = durable(Restored { queues, contents, was_clean: true });
    settings.virtual_hosts = vec!["none".to_owned()];
    let bench = Bench::new(settings);
    let logged =
        |event: &ServerEvent| matches!(event, ServerEvent::NotRestored { queues, contents: 3 } if *queues == left);
    assert!(bench.events.iter().any(logged), "{left} of {:?}", bench.events);
}

#[test]
fn an_orderly_end_waits_for_the_store() {
    let mut bench = Bench::new(durable(Restored::default()));
    bench.verb(ServerVerb::Stored(1));
    bench.writer("w", &["jobs"], "full");
    bench.write("w", 1, &["a"]);
    bench.server.handle_close(bench.now, Duration::from_secs(5));
    bench.pass(Duration::from_secs(1));
    assert!(bench.said("w").is_empty());
    bench.verb(ServerVerb::Stored(2));
    assert_eq!(bench.said("w"), [data::confirm(1, false)]);
    bench.socket(CONTROL, SocketEvent::Closed);
    assert!(bench.server.is_closed());
}

#[test]
fn an_orderly_end_keeps_how_often_contents_were_delivered() {
    let mut bench = storing(2);
    bench.write("w", 1, &["a", "b", "c"]);
    bench.verb(ServerVerb::Stored(4));
    // The first was returned and delivered again, the second is unsettled, the third was never delivered.
    bench.take(CONTROL, "r", None, data::reject(1, false, true));
    bench.batches.clear();
    bench.server.handle_close(bench.now, Duration::from_secs(5));
    bench.drain();
    let attempts = |position, attempts| Op::Attempts { queue: 1, position, attempts };
    let kept: Vec<_> = bench.batches.iter().flat_map(|batch| batch.ops.clone()).collect();
    assert_eq!(kept, [attempts(2, 1), attempts(1, 2)]);
    assert!(!bench.server.is_closed());
}

#[test]
fn a_purge_is_answered_once_it_is_stored() {
    let mut bench = storing(1);
    bench.write("w", 1, &["a", "b", "c"]);
    bench.verb(ServerVerb::Stored(4));
    bench.enter("boss", "queue");
    bench.send_control("boss", None, "Queue.Purge", "{\"name\": \"jobs\"}");
    assert!(bench.said("boss").is_empty());
    bench.verb(ServerVerb::Stored(5));
    assert_eq!(bench.reply("boss"), (200, json!({"status": "OK", "purged": 2})));
    // An empty purge is answered at once.
    assert_eq!(bench.ask("boss", "Queue.Purge", &json!({"name": "jobs"})).1["purged"], 0);
    bench.write("w", 4, &["d"]);
    bench.verb(ServerVerb::Stored(6));
    bench.send_control("boss", None, "Queue.Purge", "{\"name\": \"jobs\"}");
    bench.verb(ServerVerb::Unstored(7, "no space".to_owned()));
    assert_eq!(bench.reply("boss").0, 507);
}

#[test]
fn many_leases_are_not_kept() {
    let mut bench = Bench::open();
    bench.enter("ada", "queue");
    for _ in 0..1000 {
        assert_eq!(bench.status("ada", "Connection.Reader", &json!({})), 202);
    }
    assert_eq!(bench.status("ada", "Connection.Reader", &json!({})), 503);
    bench.pass(Duration::from_secs(30));
    assert_eq!(bench.status("ada", "Connection.Reader", &json!({})), 202);
}

#[test]
fn leases_name_so_many_resources() {
    let mut bench = Bench::open();
    bench.enter("ada", "queue");
    let names: Vec<_> = (0..1000).map(|number| format!("q{number}")).collect();
    for name in &names {
        assert_eq!(bench.status("ada", "Queue.Create", &json!({ "name": name })), 200);
    }
    let mut more = names.clone();
    more.push("jobs".to_owned());
    assert_eq!(bench.status("ada", "Connection.Writer", &json!({ "resources": more })), 400);
    // 200,000 in all; a used lease counts too, until it ends.
    let all = json!({ "resources": names });
    let lease = bench.lease("ada", "Writer", &all);
    assert_eq!(bench.data("w", data::lease(1, &lease)), [data::response(1, 200)]);
    for number in 1..200 {
        bench.pass(Duration::from_millis(1));
        assert_eq!(bench.status("ada", "Connection.Writer", &all), 202, "{number}");
    }
    assert_eq!(bench.status("ada", "Connection.Writer", &json!({"resources": ["jobs"]})), 503);
    assert_eq!(bench.info_of("ada", "q7")["writers"], 1);
    bench.pass(Duration::from_secs(31));
    assert_eq!(bench.info_of("ada", "q7")["writers"], 0);
    bench.lease("ada", "Writer", &json!({"resources": ["jobs"]}));
}

#[test]
fn what_is_gone_before_it_could_be_stored_is_not_stored() {
    let mut bench = Bench::new(durable(Restored::default()));
    bench.verb(ServerVerb::Stored(1));
    bench.enter("boss", "queue");
    bench.send_control("boss", None, "Queue.Create", "{\"name\": \"jobs.dead\"}");
    bench.verb(ServerVerb::Stored(2));
    assert_eq!(bench.reply("boss").0, 200);
    bench.reader("r", "jobs", "full", 5);
    bench.reader("d", "jobs.dead", "full", 5);
    bench.writer("w", &["jobs"], "full");
    bench.write("w", 1, &["a", "b"]);
    bench.verb(ServerVerb::Stored(4));
    bench.take(CONTROL, "r", None, data::reject(1, false, false));
    bench.take(CONTROL, "d", None, data::confirm(1, false));
    bench.take(CONTROL, "r", None, data::reject(2, false, false));
    bench.send_control("boss", None, "Queue.Delete", "{\"name\": \"jobs.dead\"}");
    bench.batches.clear();
    // The first dead letter was confirmed, and the second was deleted with its queue, before either was stored.
    bench.verb(ServerVerb::Unstored(5, "no space".to_owned()));
    bench.verb(ServerVerb::Stored(6));
    bench.verb(ServerVerb::Unstored(7, "no space".to_owned()));
    bench.verb(ServerVerb::Stored(8));
    assert_eq!(bench.reply("boss").0, 200);
    bench.pass(Duration::from_secs(1));
    let retried: Vec<_> = bench.batches.iter().flat_map(|batch| batch.ops.clone()).collect();
    assert_eq!(retried, [Op::Remove { queue: 1, position: 1 }, Op::Remove { queue: 1, position: 2 }]);
}

#[test]
fn a_deletion_that_could_not_be_stored_is_tried_again() {
    let mut bench = Bench::new(durable(Restored::default()));
    bench.verb(ServerVerb::Stored(1));
    bench.enter("boss", "queue");
    bench.send_control("boss", None, "Queue.Delete", "{\"name\": \"jobs\"}");
    bench.batches.clear();
    bench.verb(ServerVerb::Unstored(2, "no space".to_owned()));
    assert_eq!(bench.reply("boss").0, 507);
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.batches[0].ops, [Op::Delete { queue: 1 }]);
}

#[test]
fn a_reader_of_one_at_a_time_has_all_there_is_in_many_queues() {
    let mut bench = Bench::open();
    bench.enter("boss", "queue");
    bench.writer("w", &[], "none");
    bench.connect("r", "queue", "Reader", &json!({"confirm": "full", "window": 1}));
    bench.connect("other", "queue", "Reader", &json!({"confirm": "full", "window": 1}));
    let names: Vec<_> = (0..2000).map(|number| format!("q{number:04}")).collect();
    for (number, name) in (2..).zip(&names) {
        assert_eq!(bench.status("boss", "Queue.Create", &json!({ "name": name })), 200);
        assert_eq!(bench.data("r", data::summon(number, name)), [data::response(number, 200)]);
    }
    let mut sequence = 0;
    let mut write = |bench: &mut Bench, name: &str| {
        sequence += 1;
        bench.data("w", data::content(sequence, name, &EMPTY_TABLE, Bytes::copy_from_slice(name.as_bytes())));
    };
    for name in &names {
        write(&mut bench, name);
    }
    // One after the other; the reader is in one rotation at a time.
    let mut had = vec![];
    for number in 1..=1000 {
        had.extend(bench.bodies("r"));
        bench.take(CONTROL, "r", None, data::confirm(number, false));
    }
    assert_eq!(had, names[..1000]);
    // What another reader takes does not delay it: it receives contents of other queues.
    bench.take(CONTROL, "other", None, data::summon(2, &names[1001]));
    assert_eq!(bench.bodies("r"), [&*names[1000]]);
    bench.said("other");
    bench.take(CONTROL, "r", None, data::confirm(1001, false));
    assert_eq!(bench.bodies("r"), [&*names[1002]]);
    for name in [&names[0], &names[5]] {
        write(&mut bench, name);
    }
    for number in 1002..=2000 {
        bench.take(CONTROL, "r", None, data::confirm(number, false));
    }
    assert_eq!(bench.bodies("r").last(), Some(&names[5]));
}
