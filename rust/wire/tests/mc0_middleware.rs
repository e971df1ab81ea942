//! The middleware, driven by hand.
#![allow(clippy::unwrap_used)] // a surprise fails the test

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use trunkline_wire::mc0::{
    Clients, Entry, Farewell, Front, Middleware, MiddlewareEvent, MiddlewareSettings, MiddlewareVerb, Overflow, Policy,
    Settings,
};
use trunkline_wire::{
    Backlog, DropKind, DropReason, Frames, Incoming, MAX_FRAMES, Machine as _, Nanos, Origin, Output, Pattern, SendId,
    SocketEvent, SocketKind, Unsent,
};

/// A middleware and its peers.
struct Bus {
    machine: Middleware,
    now: Nanos,
    /// Peers that do not read, and the messages offered to them.
    deaf: BTreeSet<&'static str>,
    held: Vec<(SendId, String)>,
}

fn message(words: &[&str]) -> Frames {
    words.iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect()
}

impl Bus {
    fn new(settings: MiddlewareSettings) -> Self {
        let mut machine = Middleware::new(settings);
        let opened = machine.poll_output();
        assert!(
            matches!(opened, Some(Output::Open(open)) if open.kind == SocketKind::Router && open.options.mandatory)
        );
        Self { machine, now: Nanos(0), deaf: BTreeSet::new(), held: vec![] }
    }

    fn say_as(&mut self, peer: &str, user: Option<&str>, frames: Frames) {
        let user_id = user.map(|user| Bytes::copy_from_slice(user.as_bytes()));
        let peer = Some(Bytes::copy_from_slice(peer.as_bytes()));
        self.machine.handle_message(self.now, Incoming { socket: Front, peer, user_id, host: None, frames });
    }

    /// Sends a message. Returns what it causes, as `peer: frames`.
    fn say(&mut self, peer: &str, words: &[&str]) -> Vec<String> {
        self.say_as(peer, None, message(words));
        self.drain()
    }

    fn drain(&mut self) -> Vec<String> {
        let mut sent = vec![];
        while let Some(output) = self.machine.poll_output() {
            let Output::Send { id: Some(id), to: Some(to), frames, .. } = output else { continue };
            let to = String::from_utf8(to.to_vec()).unwrap();
            if self.deaf.iter().any(|deaf| *deaf == to) {
                self.held.push((id, to));
                continue;
            }
            let words: Vec<_> = frames.iter().map(|frame| String::from_utf8_lossy(frame)).collect();
            sent.push(format!("{to}: {}", words.join("·")));
            self.machine.handle_socket(self.now, Front, SocketEvent::Sent(id));
        }
        sent
    }

    /// A peer reads again.
    fn hear(&mut self, peer: &'static str) -> Vec<String> {
        self.deaf.remove(peer);
        let (theirs, others) = std::mem::take(&mut self.held).into_iter().partition(|(_, to)| to == peer);
        self.held = others;
        for (id, _) in theirs {
            self.machine.handle_socket(self.now, Front, SocketEvent::Sent(id));
        }
        self.drain()
    }

    fn wait(&mut self, milliseconds: u64) -> Vec<String> {
        let end = self.now + Duration::from_millis(milliseconds);
        let mut sent = vec![];
        while let Some(at) = self.machine.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.machine.handle_timeout(self.now);
            sent.extend(self.drain());
        }
        self.now = end;
        sent
    }

    fn events(&mut self) -> Vec<MiddlewareEvent> {
        std::iter::from_fn(|| self.machine.poll_event()).collect()
    }

    fn forgotten(&mut self) -> Vec<Farewell> {
        let why = |event| if let MiddlewareEvent::Forgotten { why, .. } = event { Some(why) } else { None };
        self.events().into_iter().filter_map(why).collect()
    }

    fn dropped(&self, kind: &str) -> u64 {
        self.machine.stats().dropped.get(kind).copied().unwrap_or_default()
    }
}

fn bus() -> Bus {
    Bus::new(MiddlewareSettings::default())
}

fn queue(overflow: Overflow, messages: usize) -> Bus {
    Bus::new(MiddlewareSettings { overflow, client_queue_messages: messages, ..MiddlewareSettings::default() })
}

const NONE: [&str; 0] = [];

// req: MC0-08, MC0-09, MC0-14, MC0-28, MC0-29, MC0-30, MC0-31, MC0-32
#[test]
fn what_is_put_goes_to_the_subscribers_of_its_topic_once() {
    let mut bus = bus();
    assert_eq!(bus.say("a", &["SUB", "", "t", "u", "t"]), NONE);
    assert_eq!(bus.say("a", &["SUB", "", "t"]), NONE);
    assert_eq!(bus.say("b", &["SUB", "", ""]), NONE);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "t", "", "body"]), ["a: MESSAGE·TOPIC·t··body"]);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "t"]), ["a: MESSAGE·TOPIC·t·"]);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "u", "", "1", "", "3"]), ["a: MESSAGE·TOPIC·u··1··3"]);
    assert_eq!(bus.say("a", &["PUT", "TOPIC", "", "", "x"]), ["b: MESSAGE·TOPIC···x"]);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "nobody", "", "x"]), NONE);
    assert_eq!(bus.say("a", &["UNSUB", "", "t", "unknown"]), NONE);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "t", "", "x"]), NONE);
    let stats = bus.machine.stats();
    assert_eq!((stats.clients, stats.subscriptions, stats.topics.len(), stats.messages), (2, 2, 2, 4));
    assert_eq!(stats.received, 10);
}

// req: MC0-10, MC0-11, MC0-31
#[test]
fn headers_travel_in_their_order_but_for_the_id() {
    let mut bus = bus();
    bus.say("a", &["", "SUB", "", "t"]);
    let put = ["PUT", "X-B", "1", "ID", "9", "FOO", "2", "TOPIC", "s", "X-B", "3", "TOPIC", "t", "", "body"];
    assert_eq!(bus.say("p", &put), ["a: ·MESSAGE·TOPIC·t·X-B·1·FOO·2·X-B·3··body", "p: OK·ID·9"]);
}

// req: MC0-07
#[test]
fn each_is_answered_in_its_style() {
    let mut bus = bus();
    assert_eq!(bus.say("a", &["SUB", "ID", "1", "", "t"]), ["a: OK·ID·1"]);
    assert_eq!(bus.say("a", &["", "NOOP", "ID", "2"]), ["a: ·OK·ID·2"]);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "t", "", "x"]), ["a: ·MESSAGE·TOPIC·t··x"]);
    bus.say("a", &["NOOP"]);
    assert_eq!(bus.say("p", &["", "PUT", "TOPIC", "t", "", "x"]), ["a: MESSAGE·TOPIC·t··x"]);
    assert_eq!(
        bus.say("q", &["", "PING"]),
        ["q: ·ERROR·MESSAGE·unknown_verb in frame 1 at byte 0: not one of the nine verbs, in capitals"]
    );
}

// req: MC0-12, MC0-13, MC0-16, MC0-17, MC0-18, MC0-27, MC0-28, MC0-29, MC0-34
#[test]
fn what_has_an_id_has_one_answer() {
    let mut bus = bus();
    for (words, is_taken) in [
        (&["CONNECT", "ID", "x"][..], true),
        (&["SUB", "ID", "x"], true),
        (&["SUB", "ID", "x", "", "t"], true),
        (&["UNSUB", "ID", "x", "", "t", "u"], true),
        (&["PUT", "ID", "x", "TOPIC", "nobody", ""], true),
        (&["NOOP", "ID", "x"], true),
        (&["DISCONNECT", "ID", "x"], true),
        (&["CONNECT", "ID", "x", "VERSION", "1.0"], false),
        (&["CONNECT", "ID", "x", "TTL", "-1"], false),
        (&["PUT", "ID", "x", "", "body"], false),
        (&["PING", "ID", "x"], false),
        (&["put", "ID", "x"], false),
        (&["NOOP", "ID", "y", "ID", "x", "FOO"], false),
        (&["MESSAGE", "ID", "x", "TOPIC", "t", ""], false),
    ] {
        for _ in 0..2 {
            let said = bus.say("a", words);
            let (start, end) = if is_taken { ("a: OK·ID·x", "") } else { ("a: ERROR·MESSAGE·", "·ID·x") };
            assert!(said.len() == 1 && said[0].starts_with(start) && said[0].ends_with(end), "{words:?}: {said:?}");
        }
    }
    // An ID may be empty, but a key without a value is none.
    assert_eq!(bus.say("a", &["NOOP", "ID", ""]), ["a: OK·ID·"]);
    assert!(bus.say("a", &["NOOP", "ID"])[0].starts_with("a: ERROR·MESSAGE·odd_headers"));
    assert_eq!(bus.machine.stats().queued, 0);
}

// req: MC0-12, MC0-14
#[test]
fn an_answer_is_never_answered() {
    let mut bus = bus();
    for words in [&["OK", "ID", "x"][..], &["OK"], &["ERROR", "MESSAGE", "t", "ID", "x"], &["", "ERROR", "MESSAGE"]] {
        assert_eq!(bus.say("a", words), NONE);
    }
    assert_eq!((bus.dropped("unexpected_verb"), bus.dropped("missing_id"), bus.dropped("odd_headers")), (2, 1, 1));
}

// req: MC0-15, MC0-34
#[test]
fn errors_that_nobody_asked_for_come_at_a_rate() {
    let mut bus = bus();
    let errors = |bus: &mut Bus| (0..1000).map(|_| bus.say("a", &["PING"]).len()).sum::<usize>();
    assert_eq!(errors(&mut bus), 200);
    bus.now = bus.now + Duration::from_secs(1);
    assert_eq!(errors(&mut bus), 100);
    // Errors with an ID are not limited.
    assert_eq!((0..1000).map(|_| bus.say("a", &["PING", "ID", "x"]).len()).sum::<usize>(), 1000);
    assert_eq!(bus.dropped("unknown_verb"), 3000);
}

// req: MC0-19, MC0-20, MC0-24
#[test]
fn connect_takes_its_parameters_in_any_order() {
    let mut bus = bus();
    for version in [None, Some("0"), Some("0.1"), Some("0.2"), Some("0.3"), Some("0.")] {
        for ttl in [None, Some("0"), Some("00300"), Some("86400000")] {
            let mut pairs = vec![("ID", "x")];
            pairs.extend(version.map(|version| ("VERSION", version)));
            pairs.extend(ttl.map(|ttl| ("TTL", ttl)));
            for _ in 0..pairs.len() {
                pairs.rotate_left(1);
                let words: Vec<_> =
                    ["CONNECT"].into_iter().chain(pairs.iter().flat_map(|(key, value)| [*key, *value])).collect();
                assert_eq!(bus.say("a", &words), ["a: OK·ID·x"], "{words:?}");
            }
        }
    }
    for ttl in ["-1", "abc", "", "+1", "1.5", "1e3", " 1", "86400001", "99999999999999999999999"] {
        assert!(bus.say("b", &["CONNECT", "TTL", ttl])[0].contains("bad_ttl"), "{ttl}");
    }
    for version in ["1.0", "", "00", "v0.3", "0,3"] {
        assert!(bus.say("b", &["CONNECT", "VERSION", version])[0].contains("unsupported_version"), "{version}");
    }
    assert_eq!(bus.machine.stats().clients, 1);
}

// req: MC0-21, MC0-23
#[test]
fn who_is_silent_for_longer_than_its_ttl_is_forgotten() {
    let mut bus = bus();
    bus.say("a", &["CONNECT", "TTL", "1000"]);
    bus.say("a", &["SUB", "", "t"]);
    bus.say("b", &["CONNECT"]);
    bus.say("b", &["SUB", "", "t"]);
    bus.wait(1049);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "t", "", "1"]), ["a: MESSAGE·TOPIC·t··1", "b: MESSAGE·TOPIC·t··1"]);
    // Invalid messages are signs of life too.
    bus.say("a", &["PING"]);
    bus.wait(1049);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "t", "", "2"]).len(), 2);
    bus.wait(1);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "t", "", "3"]), ["b: MESSAGE·TOPIC·t··3"]);
    assert_eq!(bus.forgotten(), [Farewell::Silent]);
    // Its connection still works.
    assert_eq!(bus.say("a", &["NOOP", "ID", "x"]), ["a: OK·ID·x"]);
    bus.say("a", &["SUB", "", "t"]);
    bus.wait(100_000);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "t", "", "4"]).len(), 2);
}

// req: MC0-22, MC0-24
#[test]
fn who_is_sent_nothing_for_its_ttl_is_greeted() {
    let mut bus = bus();
    bus.say("a", &["CONNECT", "TTL", "1000"]);
    bus.say("z", &["CONNECT", "TTL", "0"]);
    bus.say("a", &["SUB", "", "t"]);
    assert_eq!(bus.wait(949), NONE);
    assert_eq!(bus.wait(1), ["a: NOOP"]);
    bus.say("a", &["NOOP"]);
    bus.wait(500);
    bus.say("p", &["PUT", "TOPIC", "t", "", "busy"]);
    bus.say("a", &["", "NOOP"]);
    assert_eq!(bus.wait(949), NONE);
    assert_eq!(bus.wait(1), ["a: ·NOOP"]);
    bus.say("a", &["NOOP"]);
    // With a message queued, no NOOP is added.
    bus.deaf.insert("a");
    bus.say("p", &["PUT", "TOPIC", "t", "", "unread"]);
    bus.wait(900);
    bus.say("a", &["NOOP"]);
    bus.wait(900);
    bus.say("a", &["NOOP"]);
    assert_eq!(bus.machine.stats().queued, 1);
    bus.hear("a");
    assert_eq!(bus.wait(949), NONE);
    bus.say("a", &["NOOP"]);
    assert_eq!(bus.wait(1), ["a: NOOP"]);
}

// req: MC0-19, MC0-24
#[test]
fn a_second_connect_says_all_anew() {
    let mut bus = bus();
    bus.say("a", &["CONNECT", "TTL", "1000"]);
    bus.say("a", &["SUB", "", "t"]);
    assert!(bus.say("a", &["CONNECT", "TTL", "x"])[0].contains("bad_ttl"));
    bus.wait(1100);
    assert_eq!(bus.forgotten(), [Farewell::Silent]);
    bus.say("a", &["CONNECT", "TTL", "1000"]);
    bus.say("a", &["SUB", "", "t"]);
    bus.say("a", &["CONNECT"]);
    assert_eq!(bus.wait(100_000), NONE);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "t", "", "x"]).len(), 1);
}

// req: MC0-27
#[test]
fn disconnect_ends_everything() {
    let mut bus = bus();
    bus.say("a", &["CONNECT", "TTL", "1000"]);
    bus.say("a", &["SUB", "", "t", "u"]);
    bus.say("b", &["SUB", "", "t"]);
    assert_eq!(bus.say("a", &["DISCONNECT", "ID", "x"]), ["a: OK·ID·x"]);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "t", "", "x"]), ["b: MESSAGE·TOPIC·t··x"]);
    assert_eq!(bus.wait(10_000), NONE);
    assert_eq!(bus.forgotten(), [Farewell::Left]);
    bus.say("a", &["SUB", "", "u"]);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "u", "", "x"]), ["a: MESSAGE·TOPIC·u··x"]);
    let stats = bus.machine.stats();
    assert_eq!((stats.clients, stats.subscriptions), (2, 2));
}

// req: MC0-29
#[test]
fn nothing_follows_the_confirmation_of_an_unsub() {
    let mut bus = bus();
    bus.say("a", &["SUB", "", "t"]);
    bus.say_as("p", None, message(&["PUT", "TOPIC", "t", "", "1"]));
    bus.say_as("a", None, message(&["UNSUB", "ID", "x", "", "t"]));
    bus.say_as("p", None, message(&["PUT", "TOPIC", "t", "", "2"]));
    assert_eq!(bus.drain(), ["a: MESSAGE·TOPIC·t··1", "a: OK·ID·x"]);
    assert_eq!(bus.forgotten(), [Farewell::Left]);
}

#[test]
fn a_new_subscriber_of_the_status_gets_it_at_once() {
    let mut bus = bus();
    bus.say("s", &["SUB", "ID", "1", "", "runs"]);
    let said = bus.say("c", &["SUB", "ID", "2", "", "trunkline.status"]);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("OK"), "{said:?}");
    assert!(said[1].contains("MESSAGE") && said[1].contains(r#""topic":"runs""#), "{said:?}");
    assert!(said[1].contains(r#""subscriptions":2"#), "{said:?}");
    let mut silent = Bus::new(MiddlewareSettings { status: false, ..MiddlewareSettings::default() });
    assert_eq!(silent.say("c", &["SUB", "ID", "2", "", "trunkline.status"]).len(), 1);
}

// req: MC0-33
#[test]
fn topics_match_exactly_and_order_holds() {
    let mut bus = bus();
    bus.say("a", &["SUB", "", "a"]);
    for topic in ["ab", "a ", "A", "", "*"] {
        assert_eq!(bus.say("p", &["PUT", "TOPIC", topic, "", "x"]), NONE, "{topic:?}");
    }
    for number in 0..10_000 {
        bus.say_as("p", None, message(&["PUT", "TOPIC", "a", "", &number.to_string()]));
    }
    let expected: Vec<_> = (0..10_000).map(|number| format!("a: MESSAGE·TOPIC·a··{number}")).collect();
    assert_eq!(bus.drain(), expected);
    assert_eq!(bus.dropped("peer_full"), 0);
}

#[test]
fn a_burst_is_no_reason_to_lose_anything() {
    let mut bus = queue(Overflow::Disconnect, 10);
    bus.say("a", &["SUB", "", "t"]);
    for number in 0..500 {
        bus.say_as("p", None, message(&["PUT", "TOPIC", "t", "", &number.to_string()]));
    }
    assert_eq!(bus.drain().len(), 500);
}

/// What a subscriber with a queue of 70 receives in the end after it did not read 100 messages; the transport has one.
fn unread(overflow: Overflow) -> (Bus, Vec<String>) {
    let mut bus = queue(overflow, 70);
    bus.say("a", &["SUB", "", "t"]);
    bus.say("b", &["SUB", "", "t"]);
    bus.deaf.insert("a");
    for number in 0..100 {
        let said = bus.say("p", &["PUT", "TOPIC", "t", "", &number.to_string()]);
        assert_eq!(said, [format!("b: MESSAGE·TOPIC·t··{number}")]);
    }
    // The transport was offered the first.
    assert_eq!(bus.held.len(), 1);
    let said = bus.hear("a");
    (bus, said)
}

#[test]
fn a_full_queue_drops_the_newest() {
    let (bus, said) = unread(Overflow::DropNewest);
    let expected: Vec<_> = (1..71).map(|number| format!("a: MESSAGE·TOPIC·t··{number}")).collect();
    assert_eq!(said, expected);
    assert_eq!(bus.dropped("peer_full"), 29);
}

#[test]
fn a_full_queue_drops_the_oldest() {
    let (bus, said) = unread(Overflow::DropOldest);
    let expected: Vec<_> = (30..100).map(|number| format!("a: MESSAGE·TOPIC·t··{number}")).collect();
    assert_eq!(said, expected);
    assert_eq!(bus.dropped("peer_full"), 29);
}

#[test]
fn a_full_queue_ends_the_client() {
    let (mut bus, said) = unread(Overflow::Disconnect);
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with("a: ERROR·MESSAGE·disconnected:"), "{said:?}");
    assert_eq!(bus.dropped("peer_full"), 71);
    assert_eq!(bus.forgotten(), [Farewell::Full]);
    bus.say("a", &["SUB", "", "t"]);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "t", "", "x"]).len(), 2);
}

#[test]
fn queues_are_bounded_in_bytes_and_a_large_message_is_taken() {
    let settings = MiddlewareSettings { client_queue_bytes: 10_000, ..MiddlewareSettings::default() };
    let mut bus = Bus::new(settings);
    bus.say("a", &["SUB", "", "t"]);
    bus.deaf.insert("a");
    let large = "x".repeat(20_000);
    for _ in 0..4 {
        bus.say("p", &["PUT", "TOPIC", "t", "", &large]);
    }
    assert_eq!((bus.machine.stats().queued, bus.dropped("peer_full")), (2, 2));
    // Empty frames are not free.
    let mut bus = Bus::new(MiddlewareSettings { client_queue_bytes: 100_000, ..MiddlewareSettings::default() });
    bus.say("a", &["SUB", "", "t"]);
    bus.deaf.insert("a");
    let mut words = vec!["PUT", "TOPIC", "t"];
    words.resize(1000, "");
    for _ in 0..10 {
        bus.say("p", &words);
    }
    assert_eq!((bus.machine.stats().queued, bus.dropped("peer_full")), (2, 8));
}

#[test]
fn all_queues_together_are_bounded_and_a_message_counts_once() {
    let names = ["a", "b", "c", "d"];
    let mut bus = Bus::new(MiddlewareSettings { queue_bytes: 100_000, ..MiddlewareSettings::default() });
    for name in names {
        bus.say(name, &["SUB", "", "t"]);
        bus.deaf.insert(name);
    }
    bus.say("d", &["SUB", "", "u"]);
    let body = "x".repeat(9_000);
    for _ in 0..10 {
        bus.say("p", &["PUT", "TOPIC", "t", "", &body]);
    }
    // Ten messages for four count as ten: the transport was offered the first of each.
    assert_eq!((bus.machine.stats().queued, bus.dropped("peer_full")), (40, 0));
    for _ in 0..10 {
        bus.say("p", &["PUT", "TOPIC", "u", "", &body]);
    }
    assert!(bus.machine.stats().queued <= 42, "{:?}", bus.machine.stats().queued);
    assert!(bus.dropped("peer_full") >= 8);
    for name in names {
        assert!(!bus.hear(name).is_empty());
    }
    assert_eq!(bus.machine.stats().queued, 0);
}

#[test]
fn a_peer_that_has_read_all_pays_for_no_other() {
    for overflow in [Overflow::DropNewest, Overflow::DropOldest, Overflow::Disconnect] {
        let settings = MiddlewareSettings { overflow, queue_bytes: 100_000, ..MiddlewareSettings::default() };
        let mut bus = Bus::new(settings);
        bus.say("a", &["SUB", "", "t"]);
        bus.say("b", &["SUB", "", "u"]);
        bus.say("c", &["SUB", "", "v"]);
        let body = "x".repeat(20_000);
        bus.deaf.insert("a");
        for _ in 0..5 {
            bus.say("p", &["PUT", "TOPIC", "t", "", &body]);
        }
        assert_eq!(bus.hear("a").len(), 4);
        // Each of these has less queued than that one.
        for number in 0..8 {
            let (name, topic) = if number % 2 == 0 { ("b", "u") } else { ("c", "v") };
            bus.deaf.insert(name);
            bus.say("p", &["PUT", "TOPIC", topic, "", &body]);
        }
        assert_eq!(bus.dropped("peer_full"), if overflow == Overflow::Disconnect { 3 } else { 2 }, "{overflow:?}");
        assert_eq!(bus.say("p", &["PUT", "TOPIC", "t", "", "x"]), ["a: MESSAGE·TOPIC·t··x"]);
        let expected: &[Farewell] = if overflow == Overflow::Disconnect { &[Farewell::Full] } else { &[] };
        assert_eq!(bus.forgotten(), expected);
    }
}

#[test]
fn answers_of_one_who_does_not_read_are_bounded_too() {
    for overflow in [Overflow::DropNewest, Overflow::DropOldest, Overflow::Disconnect] {
        let mut bus = queue(overflow, 50);
        bus.deaf.insert("a");
        for _ in 0..1000 {
            assert_eq!(bus.say("a", &["NOOP", "ID", "x"]), NONE);
        }
        assert_eq!((bus.machine.stats().queued, bus.dropped("peer_full")), (51, 949));
        assert_eq!(bus.hear("a").len(), 50);
        assert_eq!(bus.machine.stats().clients, 0);
    }
}

#[test]
fn an_undeliverable_message_forgets_the_client() {
    let mut bus = bus();
    bus.say("a", &["CONNECT", "TTL", "1000"]);
    bus.say("a", &["SUB", "", "t"]);
    bus.deaf.insert("a");
    for _ in 0..5 {
        bus.say("p", &["PUT", "TOPIC", "t", "", "x"]);
    }
    let (send, _) = bus.held.pop().unwrap();
    bus.machine.handle_socket(bus.now, Front, SocketEvent::Unsent(send, Unsent::Unreachable));
    assert_eq!(bus.forgotten(), [Farewell::Gone]);
    let stats = bus.machine.stats();
    assert_eq!((stats.clients, stats.subscriptions, stats.queued, stats.topics.len()), (0, 0, 0, 0));
    assert_eq!(bus.dropped("unroutable"), 5);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "t", "", "x"]), NONE);
}

#[test]
fn those_who_leave_in_silence_are_not_remembered_for_ever() {
    let mut bus = bus();
    let mut most = 0;
    for number in 0..20_000 {
        let connected = SocketEvent::Connected("tcp://127.0.0.1:1".into());
        bus.machine.handle_socket(bus.now, Front, connected);
        let (peer, topic) = (format!("gone-{number}"), number.to_string());
        bus.say(&peer, &["CONNECT", "TTL", "86400000"]);
        bus.say(&peer, &["SUB", "", &topic]);
        let gone = SocketEvent::Disconnected("tcp://127.0.0.1:1".into());
        bus.machine.handle_socket(bus.now, Front, gone);
        while let Some(output) = bus.machine.poll_output() {
            let Output::Send { id: Some(id), .. } = output else { continue };
            bus.machine.handle_socket(bus.now, Front, SocketEvent::Unsent(id, Unsent::Unreachable));
        }
        most = most.max(bus.machine.stats().clients);
    }
    assert!(most <= 1010, "{most}");
}

// req: MC0-23, MC0-24
#[test]
fn few_clients_without_a_ttl_are_never_greeted() {
    let mut bus = bus();
    for number in 0..900 {
        bus.say(&format!("here-{number}"), &["SUB", "", "t"]);
    }
    for _ in 0..2000 {
        bus.machine.handle_socket(bus.now, Front, SocketEvent::Disconnected("tcp://127.0.0.1:1".into()));
        assert_eq!(bus.drain(), NONE);
    }
}

#[test]
fn who_only_puts_is_not_remembered() {
    let mut bus = bus();
    for number in 0..1000 {
        let peer = format!("peer-{number}");
        assert_eq!(bus.say(&peer, &["PUT", "ID", "x", "TOPIC", "t", "", "x"]).len(), 1);
    }
    let said = format!("{:?}", bus.machine);
    assert!(!said.contains("peer-"), "{said}");
    assert_eq!(bus.machine.backlog(), Backlog::default());
}

#[test]
fn topics_are_limited() {
    let mut bus = Bus::new(MiddlewareSettings { max_topics: 3, ..MiddlewareSettings::default() });
    bus.say("a", &["SUB", "", "1", "2"]);
    assert!(bus.say("b", &["SUB", "ID", "x", "", "1", "3", "4"])[0].starts_with("b: ERROR"));
    assert_eq!((bus.dropped("too_many_topics"), bus.machine.stats().subscriptions), (1, 2));
    assert_eq!(bus.say("b", &["SUB", "ID", "x", "", "1", "3", "3"]), ["b: OK·ID·x"]);
    bus.say("a", &["UNSUB", "", "2"]);
    assert_eq!(bus.say("b", &["SUB", "ID", "x", "", "4"]), ["b: OK·ID·x"]);
    let long = "t".repeat((64 << 10) + 1);
    assert!(bus.say("b", &["SUB", "ID", "x", "", &long])[0].starts_with("b: ERROR"));
    assert!(bus.say("b", &["PUT", "ID", "x", "TOPIC", &long, ""])[0].starts_with("b: ERROR"));
    assert_eq!(bus.dropped("bad_topic"), 2);
}

#[test]
fn a_message_of_many_frames_is_passed_on_whole_or_refused() {
    let mut bus = bus();
    bus.say("a", &["", "SUB", "", "t"]);
    let mut words = vec!["", "PUT", "TOPIC", "t"];
    words.resize(MAX_FRAMES, "");
    assert_eq!(bus.say("p", &words)[0].matches('·').count(), MAX_FRAMES - 1);
    words.remove(0);
    words.push("");
    assert!(bus.say("p", &words)[0].contains("too_many_frames"));
    words.push("");
    assert!(bus.say("p", &words)[0].contains("too_many_frames"));
    assert_eq!(bus.dropped("too_many_frames"), 2);
}

fn policy(rows: &[(&str, &[&str], &[&str])]) -> Policy {
    let patterns = |texts: &[&str]| texts.iter().map(|text| Pattern::new(text.as_bytes())).collect();
    let entry = |(client, publish, subscribe): &(&str, &[&str], &[&str])| Entry {
        clients: if *client == "*" { Clients::All } else { Clients::Like(Pattern::new(client.as_bytes())) },
        publish: patterns(publish),
        subscribe: patterns(subscribe),
    };
    Policy(rows.iter().map(entry).collect())
}

#[test]
fn the_policy_says_who_may_do_what() {
    let allowed = policy(&[("daq*", &["runs.*"], &["*"]), ("*", &[], &["open"])]);
    let mut bus = Bus::new(MiddlewareSettings { policy: Some(allowed), ..MiddlewareSettings::default() });
    let mut say = |user, words: &[&str]| {
        bus.say_as(user, Some(user), message(words));
        bus.drain()
    };
    assert_eq!(say("daq1", &["SUB", "ID", "x", "", "a", "b"]), ["daq1: OK·ID·x"]);
    let refused = say("ops", &["SUB", "ID", "x", "", "open", "a", "b"]);
    assert!(refused[0].contains("\"a\"") && refused[0].ends_with("·ID·x"), "{refused:?}");
    assert_eq!(say("ops", &["SUB", "ID", "x", "", "open"]), ["ops: OK·ID·x"]);
    assert!(say("ops", &["PUT", "TOPIC", "a", "", "x"])[0].contains("\"a\""));
    assert!(say("daq1", &["PUT", "TOPIC", "a", "", "x"])[0].starts_with("daq1: ERROR"));
    assert_eq!(say("daq1", &["PUT", "ID", "x", "TOPIC", "runs.1", ""]), ["daq1: OK·ID·x"]);
    assert_eq!((bus.dropped("forbidden"), bus.machine.stats().subscriptions), (3, 3));
}

#[test]
fn a_change_of_the_policy_ends_subscriptions() {
    let mut bus = bus();
    for user in ["ops", "daq"] {
        bus.say_as(user, Some(user), message(&["SUB", "", "a", "b"]));
    }
    bus.machine
        .handle_verb(bus.now, MiddlewareVerb::Enforce(Some(policy(&[("daq", &["*"], &["*"]), ("*", &["*"], &["b"])]))));
    let said = bus.drain();
    assert!(said.len() == 1 && said[0].starts_with("ops: ERROR·MESSAGE·") && said[0].contains("\"a\""), "{said:?}");
    let ops = Origin::new(Bytes::from_static(b"ops"), Some(Bytes::from_static(b"ops")));
    let curtailed: Vec<_> =
        bus.events().into_iter().filter(|event| matches!(event, MiddlewareEvent::Curtailed { .. })).collect();
    assert_eq!(curtailed, [MiddlewareEvent::Curtailed { client: ops, subscriptions: 1 }]);
    bus.say_as("daq", Some("daq"), message(&["PUT", "TOPIC", "a", "", "x"]));
    assert_eq!(bus.drain(), ["daq: MESSAGE·TOPIC·a··x"]);
    bus.machine.handle_verb(bus.now, MiddlewareVerb::Enforce(Some(Policy::default())));
    assert_eq!(bus.drain().len(), 2);
    assert_eq!((bus.machine.stats().clients, bus.forgotten().len()), (0, 2));
    bus.machine.handle_verb(bus.now, MiddlewareVerb::Enforce(None));
    assert_eq!(bus.say("x", &["SUB", "ID", "1", "", "a"]), ["x: OK·ID·1"]);
}

#[test]
fn an_address_does_not_lend_what_another_user_may() {
    let allowed = policy(&[("daq", &[], &["secret"]), ("*", &["*"], &[])]);
    let mut bus = Bus::new(MiddlewareSettings { policy: Some(allowed), ..MiddlewareSettings::default() });
    bus.say_as("address", Some("daq"), message(&["SUB", "", "secret"]));
    bus.say_as("address", Some("ops"), message(&["NOOP"]));
    bus.say_as("p", None, message(&["PUT", "TOPIC", "secret", "", "x"]));
    assert_eq!(bus.drain(), NONE);
    assert_eq!(bus.forgotten(), [Farewell::Replaced]);
    let (mut bus, words) = (self::bus(), ["PUT", "TOPIC", "t", "", "x"]);
    bus.say_as("address", Some("daq"), message(&["SUB", "", "t"]));
    bus.deaf.insert("address");
    bus.say("p", &words);
    bus.say("p", &words);
    bus.say_as("address", None, message(&["SUB", "ID", "1", "", "t"]));
    assert_eq!(bus.dropped("unroutable"), 1);
    assert_eq!(bus.hear("address"), ["address: OK·ID·1"]);
}

#[test]
fn it_ends_when_those_who_read_have_all() {
    let mut bus = bus();
    bus.say("a", &["SUB", "", "t"]);
    bus.deaf.insert("a");
    bus.say("p", &["PUT", "TOPIC", "t", "", "1"]);
    bus.say("p", &["PUT", "TOPIC", "t", "", "2"]);
    bus.machine.handle_close(bus.now, Duration::from_secs(5));
    assert!(!bus.machine.reads(Front));
    bus.now = bus.now + Duration::from_secs(1);
    bus.deaf.remove("a");
    let (send, _) = bus.held.pop().unwrap();
    bus.machine.handle_socket(bus.now, Front, SocketEvent::Sent(send));
    let last = std::iter::from_fn(|| bus.machine.poll_output()).last();
    assert!(matches!(last, Some(Output::Send { .. })));
    bus.machine.handle_socket(bus.now, Front, SocketEvent::Sent(send));
    let close = Output::Close { socket: Front, linger: Duration::from_secs(4) };
    assert_eq!(bus.machine.poll_output(), Some(close));
    bus.machine.handle_socket(bus.now, Front, SocketEvent::Closed);
    assert!(bus.machine.is_closed());
}

#[test]
fn what_is_left_at_the_end_is_said() {
    let mut bus = bus();
    bus.say("a", &["SUB", "", "t"]);
    bus.deaf.insert("a");
    for _ in 0..3 {
        bus.say("p", &["PUT", "TOPIC", "t", "", "1"]);
    }
    bus.machine.handle_close(bus.now, Duration::from_secs(5));
    bus.wait(5000);
    let (send, _) = bus.held.pop().unwrap();
    bus.machine.handle_socket(bus.now, Front, SocketEvent::Unsent(send, Unsent::Closed));
    bus.machine.handle_socket(bus.now, Front, SocketEvent::Closed);
    assert!(bus.machine.is_closed());
    assert_eq!(bus.machine.stats().queued, 3);
}

#[test]
fn drops_are_reported_once_until_the_peer_reads() {
    let mut bus = queue(Overflow::DropNewest, 1);
    bus.say("a", &["SUB", "", "t"]);
    let notices = |bus: &mut Bus| {
        let is_full = |event: &MiddlewareEvent| {
            let MiddlewareEvent::Dropped(dropped) = event else { return false };
            dropped.reason == DropReason::Undelivered(DropKind::PeerFull)
        };
        bus.events().iter().filter(|event| is_full(event)).count()
    };
    for lost in [98, 196] {
        bus.deaf.insert("a");
        for _ in 0..100 {
            bus.say("p", &["PUT", "TOPIC", "t", "", "x"]);
        }
        assert_eq!((notices(&mut bus), bus.dropped("peer_full")), (1, lost));
        bus.hear("a");
    }
}

// req: MC0-24
#[test]
fn the_longest_ttl_is_a_setting() {
    let settings = MiddlewareSettings { decode: Settings { max_ttl_ms: 500 }, ..MiddlewareSettings::default() };
    let mut bus = Bus::new(settings);
    assert!(bus.say("a", &["CONNECT", "TTL", "501"])[0].contains("bad_ttl"));
    assert_eq!(bus.say("a", &["CONNECT", "ID", "x", "TTL", "500"]), ["a: OK·ID·x"]);
}

#[test]
fn a_client_of_many_subscriptions_that_leaves_lets_others_wait_for_few() {
    let mut bus = bus();
    let topics: Vec<_> = (0..9_000).map(|number| format!("t{number}")).collect();
    let mut words = vec!["SUB", ""];
    words.extend(topics.iter().map(String::as_str));
    for peer in ["many", "other"] {
        bus.say(peer, &words);
    }
    bus.say("many", &["CONNECT"]);
    assert_eq!(bus.machine.stats().subscriptions, 18_000);
    bus.say("many", &["DISCONNECT"]);
    assert_eq!((bus.machine.stats().subscriptions, bus.machine.stats().clients), (18_000, 1));
    assert_eq!(bus.forgotten(), [Farewell::Left]);
    // It receives nothing from then on; after its return it has only its new subscriptions.
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "t1", "", "x"]).len(), 1);
    bus.say("many", &["SUB", "", "new"]);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "t1", "", "x"]).len(), 1);
    assert_eq!(bus.say("p", &["PUT", "TOPIC", "new", "", "x"]).len(), 1);
    let mut steps = 0;
    while bus.machine.poll_timeout() == Some(Nanos(0)) {
        bus.machine.handle_timeout(bus.now);
        steps += 1;
    }
    assert_eq!((steps, bus.machine.stats().subscriptions, bus.machine.stats().clients), (9, 9_001, 2));
    assert_eq!(bus.say("many", &["UNSUB", "", "new"]), Vec::<String>::new());
    assert_eq!((bus.machine.stats().clients, bus.forgotten()), (1, vec![Farewell::Left]));
}

#[test]
fn an_id_has_any_number_of_bytes() {
    let long = "i".repeat(1 << 20);
    assert_eq!(bus().say("p", &["NOOP", "ID", &long]), [format!("p: OK·ID·{long}")]);
}
