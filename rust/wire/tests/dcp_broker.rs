//! The broker of DCP, message by message.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use trunkline_wire::dcp::{
    Broker, BrokerEvent, BrokerSettings, ClientAddress, Front, LEAVING, MessageType, Overflow, Width, encode_header,
    encode_register, encode_reply, encode_request,
};
use trunkline_wire::{
    DropKind, DropReason, Dropped, ErrorKind, Frames, Incoming, Machine, Nanos, Origin, Output, SendId, SocketEvent,
    SocketKind, Unsent,
};

const SECOND: Duration = Duration::from_secs(1);

fn origin(peer: &str, user: Option<&str>) -> Origin {
    Origin::new(bytes(peer), user.map(bytes))
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// A message that a broker sent: the receiver, and the frames as text.
type Sent = (String, String);

/// A broker, a clock, and a transport that takes everything at once unless `takes` is false.
struct Bench {
    broker: Broker,
    now: Nanos,
    takes: bool,
    open: Vec<(SendId, String)>,
    out: Vec<Sent>,
    frames: Vec<Frames>,
    events: Vec<BrokerEvent>,
}

impl Bench {
    fn new(settings: BrokerSettings) -> Self {
        let mut broker = Broker::new(settings);
        assert!(
            matches!(broker.poll_output(), Some(Output::Open(open)) if open.kind == SocketKind::Router && open.options.mandatory)
        );
        Self { broker, now: Nanos(0), takes: true, open: vec![], out: vec![], frames: vec![], events: vec![] }
    }

    fn drain(&mut self) {
        while let Some(output) = self.broker.poll_output() {
            let Output::Send { id, to: Some(to), frames, .. } = output else { continue };
            let to = String::from_utf8_lossy(&to).into_owned();
            let text: Vec<_> = frames[2..].iter().map(|frame| String::from_utf8_lossy(frame).into_owned()).collect();
            let name = MessageType::from_frame(&frames[2], true).map_or("?", MessageType::slug);
            self.out.push((to.clone(), format!("{name} {}", text[1..].join("·")).trim_end().to_owned()));
            self.frames.push(frames.into());
            if let Some(id) = id {
                if self.takes {
                    self.broker.handle_socket(self.now, Front, SocketEvent::Sent(id));
                } else {
                    self.open.push((id, to));
                }
            }
        }
        self.events.extend(std::iter::from_fn(|| self.broker.poll_event()));
    }

    fn receive(&mut self, peer: &str, frames: Frames) -> Option<ErrorKind> {
        self.receive_of(None, peer, frames)
    }

    fn receive_of(&mut self, user: Option<&str>, peer: &str, frames: Frames) -> Option<ErrorKind> {
        let kind = self.broker.handle_message(
            self.now,
            Incoming { socket: Front, peer: Some(bytes(peer)), user_id: user.map(bytes), host: None, frames },
        );
        self.drain();
        kind.error
    }

    fn register(&mut self, worker: &str, service: &str) {
        self.receive(worker, encode_register(bytes(service)));
    }

    fn header(&mut self, peer: &str, message_type: MessageType) {
        self.receive(peer, encode_header(message_type, Width::One));
    }

    fn ask(&mut self, client: &str, service: &str, id: &str) {
        self.receive(client, encode_request(bytes(service), None, &[bytes(id)], &[bytes("x")]));
    }

    fn forward(&mut self, worker: &str, service: &str, client: &str, id: &str) {
        self.receive(worker, encode_request(bytes(service), Some(bytes(client)), &[bytes(id)], &[bytes("x")]));
    }

    fn reply(&mut self, worker: &str, client: &str, id: &str) {
        self.receive(worker, encode_reply(bytes(client), &[bytes(id)], &[bytes("y")]));
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.broker.handle_timeout(self.now);
        self.drain();
    }

    /// The messages sent since the last call.
    fn sent(&mut self) -> Vec<Sent> {
        self.frames.clear();
        std::mem::take(&mut self.out)
    }

    fn dropped(&self, slug: &str) -> u64 {
        self.broker.stats().dropped.get(slug).copied().unwrap_or(0)
    }
}

fn bench() -> Bench {
    Bench::new(BrokerSettings::default())
}

fn sends(all: &[(&str, &str)]) -> Vec<Sent> {
    all.iter().map(|(to, what)| ((*to).to_owned(), (*what).to_owned())).collect()
}

// req: DCP-06, DCP-09, DCP-14, DCP-21, DCP-27
#[test]
fn a_request_goes_to_a_worker_and_its_reply_to_the_client() {
    let mut bench = bench();
    bench.register("w", "echo");
    assert_eq!(bench.sent(), sends(&[("w", "register echo")]));
    bench.ask("c", "echo", "1");
    assert_eq!(bench.sent(), sends(&[("w", "request echo·c··1··x")]));
    bench.reply("w", "c", "1");
    assert_eq!(bench.sent(), sends(&[("c", "reply c··1··y")]));
    let stats = bench.broker.stats();
    assert_eq!((stats.received, stats.sent, stats.queued, stats.lost), (3, 3, 0, 0));
    let service = &stats.services[0];
    assert_eq!((service.requests, service.replies, service.workers, service.free), (1, 1, 1, 1));
}

// req: DCP-14
#[test]
fn a_refused_service_is_met_with_silence() {
    let mut bench =
        Bench::new(BrokerSettings { services: Some(HashSet::from([bytes("echo")])), ..BrokerSettings::default() });
    bench.register("w", "other");
    assert_eq!(bench.sent(), []);
    assert!(matches!(&bench.events[..], [BrokerEvent::Refused { .. }]));
    bench.register("w", "echo");
    assert_eq!(bench.sent().len(), 1);
}

// req: DCP-15
#[test]
fn registering_again_replaces_the_service_and_frees() {
    let mut bench = bench();
    bench.register("w", "a");
    bench.ask("c", "a", "1");
    bench.register("w", "a");
    bench.ask("c", "a", "2");
    bench.register("w", "b");
    bench.sent();
    bench.ask("c", "a", "3");
    assert_eq!(bench.sent(), []);
    bench.ask("c", "b", "4");
    assert_eq!(bench.sent(), sends(&[("w", "request b·c··4··x")]));
    // Another worker of the old service takes the queued request.
    bench.register("v", "a");
    assert_eq!(bench.sent(), sends(&[("v", "register a"), ("v", "request a·c··3··x")]));
    // The late reply to the first request still reaches its client.
    bench.reply("w", "c", "1");
    assert_eq!(bench.sent(), sends(&[("c", "reply c··1··y")]));
}

// req: DCP-19
#[test]
fn services_are_equal_byte_by_byte() {
    let mut bench = bench();
    for (worker, service) in [("1", "a"), ("2", "a\0"), ("3", "A"), ("4", "")] {
        bench.register(worker, service);
    }
    for (worker, service) in [("1", "a"), ("2", "a\0"), ("3", "A"), ("4", "")] {
        bench.sent();
        bench.ask("c", service, "1");
        assert_eq!(bench.sent()[0].0, worker);
    }
}

// req: DCP-20
#[test]
fn a_client_part_that_is_there_stays() {
    let mut bench = bench();
    bench.register("w", "a");
    bench.sent();
    bench.forward("c", "a", "other", "1");
    assert_eq!(bench.sent(), sends(&[("w", "request a·other··1··x")]));
}

// req: DCP-20
#[test]
fn where_only_workers_are_believed_nobody_speaks_for_others() {
    let settings = BrokerSettings { client_address: ClientAddress::WorkersOnly, ..BrokerSettings::default() };
    let mut bench = Bench::new(settings);
    bench.register("w", "a");
    bench.sent();
    bench.forward("c", "a", "other", "1");
    assert_eq!(bench.sent(), sends(&[("w", "request a·c··1··x")]));
    bench.reply("evil", "c", "1");
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.dropped("spoofed"), 1);
    // A former worker may still reply.
    bench.pass(SECOND * 8);
    bench.reply("w", "c", "1");
    assert_eq!(bench.sent(), sends(&[("c", "reply c··1··y"), ("w", "reconnect")]));
}

// req: DCP-13, DCP-14
#[test]
fn names_have_any_number_of_bytes() {
    let mut bench = Bench::new(BrokerSettings { max_queue_bytes: 4 << 20, ..BrokerSettings::default() });
    let [long, other, third] = ["x", "y", "z"].map(|letter| letter.repeat(3 << 20));
    bench.register("w", &long);
    assert_eq!(bench.sent(), sends(&[("w", &format!("register {long}"))]));
    bench.register("v", &other);
    assert_eq!((bench.sent(), bench.dropped("queue_full")), (vec![], 1));
    bench.register("w", "short");
    bench.register("v", &third);
    assert_eq!((bench.sent().len(), bench.dropped("queue_full")), (2, 1));
}

#[test]
fn a_worker_is_its_key_and_not_its_address() {
    let mut bench =
        Bench::new(BrokerSettings { client_address: ClientAddress::WorkersOnly, ..BrokerSettings::default() });
    bench.receive_of(Some("ada"), "w", encode_register(bytes("pay")));
    bench.ask("c", "pay", "1");
    assert_eq!(bench.sent(), sends(&[("w", "register pay"), ("w", "request pay·c··1··x")]));
    // Another key at that address is neither the worker nor the former one.
    let reply = || encode_reply(bytes("c"), &[bytes("1")], &[bytes("forged")]);
    bench.receive_of(Some("mallory"), "w", reply());
    bench.ask("c", "pay", "2");
    assert_eq!((bench.sent(), bench.dropped("spoofed")), (vec![], 1));
    assert!(
        matches!(&bench.events[..], [BrokerEvent::Registered { .. }, BrokerEvent::Gone { worker, lost: 1, .. }, BrokerEvent::Dropped(_)] if *worker == origin("w", Some("ada")))
    );
    bench.receive_of(Some("mallory"), "w", encode_header(MessageType::Ping, Width::One));
    assert_eq!(bench.sent(), sends(&[("w", "reconnect")]));
    // The former worker may still have the answer.
    bench.receive_of(Some("ada"), "w", encode_reply(bytes("c"), &[bytes("1")], &[bytes("y")]));
    assert_eq!(bench.sent(), sends(&[("c", "reply c··1··y"), ("w", "reconnect")]));
}

// req: DCP-22, DCP-25
#[test]
fn parts_pass_bit_by_bit_and_uncopied() {
    let mut bench = bench();
    bench.register("w", "a");
    for count in [0u8, 1, 5, 100] {
        let metadata: Vec<_> = (1..=count).map(|byte| Bytes::from(vec![byte; 2000])).collect();
        let data: Vec<_> = [&b""[..], b"a", b"", b"b", b""].into_iter().map(Bytes::copy_from_slice).collect();
        bench.sent();
        bench.receive("c", encode_request(bytes("a"), None, &metadata, &data));
        let expected = encode_request(bytes("a"), Some(bytes("c")), &metadata, &data);
        assert_eq!(bench.frames, [expected]);
        assert!(bench.frames[0][6..].iter().zip(&metadata).all(|(sent, given)| sent.as_ptr() == given.as_ptr()));
        bench.sent();
        bench.receive("w", encode_reply(bytes("c"), &metadata, &data));
        assert_eq!(bench.frames, [encode_reply(bytes("c"), &metadata, &data)]);
    }
    assert_eq!(bench.broker.stats().services[0].replies, 4);
}

// req: DCP-29
#[test]
fn requests_wait_in_order_for_a_worker_to_come() {
    let mut bench = bench();
    for id in ["1", "2", "3"] {
        bench.ask("c", "a", id);
    }
    assert_eq!(bench.broker.stats().queued, 3);
    bench.register("w", "a");
    bench.reply("w", "c", "1");
    bench.reply("w", "c", "2");
    let requests: Vec<_> = bench.sent().into_iter().filter(|(_, what)| what.starts_with("request")).collect();
    let expected = ["1", "2", "3"].map(|id| ("w".to_owned(), format!("request a·c··{id}··x")));
    assert_eq!(requests, expected);
}

// req: DCP-29
#[test]
fn a_full_queue_rejects_the_newest_or_drops_the_oldest() {
    for (overflow, left) in [(Overflow::RejectNewest, "1"), (Overflow::DropOldest, "3")] {
        let mut bench = Bench::new(BrokerSettings { max_queue: 2, overflow, ..BrokerSettings::default() });
        for id in ["1", "2", "3", "4"] {
            bench.ask("c", "a", id);
        }
        assert_eq!((bench.dropped("queue_full"), bench.broker.stats().queued), (2, 2));
        // Another service has its own queue.
        bench.ask("c", "b", "5");
        assert_eq!(bench.broker.stats().queued, 3);
        bench.register("w", "a");
        assert_eq!(bench.sent()[1].1, format!("request a·c··{left}··x"));
    }
}

// req: DCP-29
#[test]
fn the_bytes_of_all_queues_are_bounded() {
    for overflow in [Overflow::RejectNewest, Overflow::DropOldest] {
        let mut bench = Bench::new(BrokerSettings { max_queue_bytes: 10_000, overflow, ..BrokerSettings::default() });
        for number in 0..100 {
            bench.ask("c", &number.to_string(), "1");
            bench.ask("c", "a", "1");
        }
        let queued = bench.broker.stats().queued;
        assert!((5..20).contains(&queued), "{queued} requests wait");
        assert_eq!(bench.dropped("queue_full"), 200 - queued);
        // A request above the limit of all queues drops no other.
        bench.receive("c", encode_request(bytes("a"), None, &[], &[Bytes::from(vec![0; 10_000])]));
        assert_eq!(bench.broker.stats().queued, queued);
    }
}

// req: DCP-29
#[test]
fn who_waits_too_long_is_dropped() {
    let mut bench = bench();
    bench.receive_of(Some("ada"), "c", encode_request(bytes("a"), None, &[bytes("1")], &[bytes("x")]));
    bench.pass(SECOND * 59);
    bench.ask("c", "a", "2");
    assert_eq!(bench.broker.poll_timeout(), Some(Nanos(0) + SECOND * 60));
    bench.pass(SECOND);
    assert_eq!((bench.dropped("queue_expired"), bench.broker.stats().services[0].expired), (1, 1));
    let is_named =
        |event: &BrokerEvent| matches!(event, BrokerEvent::Dropped(drop) if drop.origin == origin("c", Some("ada")));
    assert!(bench.events.iter().any(is_named));
    bench.register("w", "a");
    assert_eq!(bench.sent()[1].1, "request a·c··2··x");
}

// req: DCP-32
#[test]
fn a_worker_gets_one_request_at_a_time_and_the_longest_free_comes_first() {
    let mut bench = bench();
    bench.register("v", "a");
    bench.register("w", "a");
    bench.sent();
    for id in 0..10 {
        bench.ask("c", "a", &id.to_string());
    }
    assert_eq!(bench.sent(), sends(&[("v", "request a·c··0··x"), ("w", "request a·c··1··x")]));
    bench.reply("w", "c", "1");
    assert_eq!(bench.sent(), sends(&[("c", "reply c··1··y"), ("w", "request a·c··2··x")]));
}

// req: DCP-33, DCP-38
#[test]
fn a_ping_of_a_busy_worker_asks_for_one_more() {
    let mut bench = bench();
    bench.register("w", "a");
    for id in 0..6 {
        bench.ask("c", "a", &id.to_string());
    }
    bench.sent();
    bench.header("w", MessageType::Ping);
    assert_eq!(bench.sent(), sends(&[("w", "pong"), ("w", "request a·c··1··x")]));
    bench.header("w", MessageType::Pong);
    assert_eq!(bench.sent(), []);
}

// req: DCP-33
#[test]
fn grants_do_not_pile_up() {
    let mut bench = bench();
    bench.register("w", "a");
    bench.ask("c", "a", "0");
    for _ in 0..3 {
        bench.header("w", MessageType::Ping);
    }
    bench.sent();
    for id in 1..6 {
        bench.ask("c", "a", &id.to_string());
    }
    assert_eq!(bench.sent(), sends(&[("w", "request a·c··1··x")]));
}

// req: DCP-33
#[test]
fn busy_pings_may_grant_nothing() {
    let mut bench = Bench::new(BrokerSettings { busy_ping_grants: false, ..BrokerSettings::default() });
    bench.register("w", "a");
    bench.ask("c", "a", "0");
    bench.ask("c", "a", "1");
    bench.sent();
    bench.header("w", MessageType::Ping);
    assert_eq!(bench.sent(), sends(&[("w", "pong")]));
}

// req: DCP-33
#[test]
fn a_worker_that_only_asks_is_given_so_much_and_no_more() {
    let mut bench = Bench::new(BrokerSettings { max_held: 8, ..BrokerSettings::default() });
    bench.register("w", "a");
    for id in 0..20 {
        bench.ask("c", "a", &id.to_string());
        bench.header("w", MessageType::Ping);
    }
    assert_eq!(bench.sent().iter().filter(|(_, what)| what.starts_with("request")).count(), 8);
    bench.reply("w", "c", "5");
    assert_eq!(bench.sent()[1].1, "request a·c··8··x");
}

// req: DCP-15, DCP-33
#[test]
fn who_registers_again_has_nothing_in_hand() {
    let mut bench = Bench::new(BrokerSettings { max_held: 4, busy_ping_grants: false, ..BrokerSettings::default() });
    bench.register("w", "a");
    for id in 0..20 {
        bench.ask("c", "a", &id.to_string());
        bench.sent();
        bench.header("w", MessageType::Ping);
        assert_eq!(bench.sent(), sends(&[("w", "pong")]), "it is busy");
        bench.register("w", "a");
    }
    let stats = bench.broker.stats();
    assert_eq!((stats.lost, stats.services[0].requests, stats.services[0].free), (20, 20, 1));
    // A reply to a request given up is still delivered.
    bench.ask("c", "a", "20");
    bench.register("w", "a");
    bench.sent();
    bench.reply("w", "c", "20");
    assert_eq!(bench.sent(), sends(&[("c", "reply c··20··y")]));
    bench.broker.handle_close(bench.now, SECOND);
    assert!(matches!(bench.broker.poll_output(), Some(Output::Close { .. })));
}

// req: DCP-33, DCP-42
#[test]
fn a_worker_with_nothing_in_hand_is_free_when_it_pings() {
    let mut bench = Bench::new(BrokerSettings { busy_ping_grants: false, ..BrokerSettings::default() });
    bench.register("w", "a");
    bench.takes = false;
    bench.ask("c", "a", "1");
    let (send, _) = bench.open.remove(0);
    bench.broker.handle_socket(bench.now, Front, SocketEvent::Unsent(send, Unsent::PeerFull));
    bench.sent();
    bench.header("w", MessageType::Ping);
    assert_eq!(bench.sent(), sends(&[("w", "pong"), ("w", "request a·c··1··x")]));
}

// req: DCP-34
#[test]
fn a_forward_frees_and_the_reply_goes_to_the_first_client() {
    let mut bench = bench();
    bench.register("v", "a");
    bench.register("w", "b");
    bench.ask("c", "a", "1");
    bench.ask("c", "a", "2");
    bench.sent();
    bench.forward("v", "b", "c", "1");
    assert_eq!(bench.sent(), sends(&[("v", "request a·c··2··x"), ("w", "request b·c··1··x")]));
    bench.reply("w", "c", "1");
    assert_eq!(bench.sent(), sends(&[("c", "reply c··1··y")]));
}

// req: DCP-07, DCP-17, DCP-35
#[test]
fn a_request_of_a_workers_own_does_not_free_it() {
    let mut bench = bench();
    bench.register("v", "a");
    bench.register("w", "b");
    bench.ask("c", "a", "1");
    bench.ask("c", "a", "2");
    bench.sent();
    bench.ask("v", "b", "sub");
    assert_eq!(bench.sent(), sends(&[("w", "request b·v··sub··x")]));
    bench.forward("v", "b", "v", "sub2");
    assert_eq!(bench.sent(), []);
    bench.reply("w", "v", "sub");
    assert_eq!(bench.sent(), sends(&[("v", "reply v··sub··y"), ("w", "request b·v··sub2··x")]));
    bench.reply("v", "c", "1");
    assert_eq!(bench.sent(), sends(&[("c", "reply c··1··y"), ("v", "request a·c··2··x")]));
}

// req: DCP-36, DCP-40
#[test]
fn heartbeats_of_strangers_are_answered_by_a_reconnect() {
    let mut bench = bench();
    bench.header("c", MessageType::Ping);
    bench.header("c", MessageType::Pong);
    assert_eq!(bench.sent(), sends(&[("c", "reconnect"), ("c", "reconnect")]));
}

// req: DCP-10, DCP-11, DCP-16, DCP-39
#[test]
fn what_is_no_message_is_counted_and_told() {
    let mut bench = bench();
    let mut frames = encode_header(MessageType::Ping, Width::One);
    frames[1] = Bytes::from_static(b"DGBX\x02");
    assert_eq!(bench.receive("c", frames.clone()), Some(ErrorKind::UnsupportedVersion));
    let is_reported = |event: &BrokerEvent| {
        matches!(event, BrokerEvent::Dropped(Dropped { reason: DropReason::Malformed(error), frames: reported, .. })
            if error.frame == 1 && *reported == frames)
    };
    assert!(bench.events.iter().any(is_reported));
    let reconnect = encode_header(MessageType::Reconnect, Width::One);
    assert_eq!(bench.receive("c", reconnect), Some(ErrorKind::UnexpectedType));
    assert_eq!(bench.receive("c", encode_header(MessageType::Ping, Width::Four)), Some(ErrorKind::BadType));
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.broker.stats().dropped.values().sum::<u64>(), 3);
}

#[test]
fn a_broker_says_how_it_is_to_those_who_ask() {
    let mut bench = bench();
    bench.register("w", "echo");
    bench.sent();
    bench.ask("c", "trunkline.status", "m");
    let reply = bench.frames[0].clone();
    assert_eq!(&reply[2..6], [MessageType::Reply.frame(Width::One), bytes("c"), bytes(""), bytes("m")]);
    let said: serde_json::Value = serde_json::from_slice(reply.last().unwrap()).unwrap();
    assert_eq!(said["services"][0]["service"], "echo");
    assert_eq!(said["services"][0]["workers"], 1);
    assert_eq!(said["services"].as_array().unwrap().len(), 1);
    // No worker may offer it.
    bench.register("x", "trunkline.status");
    assert!(matches!(bench.events.last(), Some(BrokerEvent::Refused { .. })));
    let mut silent = Bench::new(BrokerSettings { status: false, ..BrokerSettings::default() });
    silent.ask("c", "trunkline.status", "m");
    assert_eq!(silent.sent(), []);
    assert_eq!(silent.broker.stats().queued, 1);
}

// req: DCP-11
#[test]
fn everybody_is_sent_the_width_it_used_last() {
    let mut bench = Bench::new(BrokerSettings { compat_dagbox: true, ..BrokerSettings::default() });
    let mut register = encode_register(bytes("a"));
    register[2] = MessageType::Register.frame(Width::Four);
    bench.receive("w", register.clone());
    assert_eq!(bench.frames, [register]);
    bench.sent();
    bench.ask("c", "a", "1");
    assert_eq!(bench.frames[0][2].len(), 4);
    bench.sent();
    bench.reply("w", "c", "1");
    assert_eq!(bench.frames[0][2].len(), 1);
    bench.sent();
    bench.header("w", MessageType::Ping);
    assert_eq!(bench.frames[0][2].len(), 1);
}

// req: DCP-42
#[test]
fn a_silent_worker_is_given_up_even_when_busy() {
    let mut bench = bench();
    bench.register("v", "a");
    bench.register("w", "a");
    bench.ask("c", "a", "1");
    bench.pass(SECOND * 5);
    // Any message counts as a sign of life, even an invalid one.
    bench.receive("w", Frames::new());
    bench.sent();
    bench.pass(SECOND * 5 / 2);
    assert_eq!(bench.broker.stats().lost, 1);
    assert!(
        bench
            .events
            .iter()
            .any(|event| matches!(event, BrokerEvent::Gone { worker, lost: 1, .. } if *worker == origin("v", None)))
    );
    bench.ask("c", "a", "2");
    assert_eq!(bench.sent(), sends(&[("w", "request a·c··2··x")]));
    bench.reply("v", "c", "1");
    assert_eq!(bench.sent(), sends(&[("c", "reply c··1··y"), ("v", "reconnect")]));
}

// req: DCP-42
#[test]
fn requests_of_a_dead_worker_go_to_the_front_where_asked_for() {
    let mut bench = Bench::new(BrokerSettings { requeue: true, ..BrokerSettings::default() });
    bench.register("v", "a");
    for id in ["1", "2", "3"] {
        bench.ask("c", "a", id);
    }
    bench.header("v", MessageType::Ping);
    bench.pass(SECOND * 8);
    bench.sent();
    bench.register("w", "a");
    for id in ["1", "2", "3"] {
        assert_eq!(bench.sent().last().map(|(_, what)| what.clone()), Some(format!("request a·c··{id}··x")));
        bench.reply("w", "c", id);
    }
    assert_eq!(bench.broker.stats().lost, 0);
}

// req: DCP-42
#[test]
fn what_cannot_reach_a_worker_goes_to_the_next() {
    let mut bench = bench();
    bench.takes = false;
    bench.register("v", "a");
    bench.register("w", "a");
    bench.ask("c", "a", "1");
    bench.ask("c", "a", "2");
    bench.sent();
    let (first, to) = bench.open[0].clone();
    assert_eq!(to, "v");
    bench.broker.handle_socket(bench.now, Front, SocketEvent::Unsent(first, Unsent::Unreachable));
    bench.drain();
    assert_eq!(bench.broker.stats().queued, 1);
    assert_eq!((bench.broker.stats().services[0].workers, bench.broker.stats().lost), (1, 0));
    bench.reply("w", "c", "2");
    assert_eq!(bench.sent()[1], ("w".to_owned(), "request a·c··1··x".to_owned()));
}

// req: DCP-27
#[test]
fn a_reply_to_nobody_is_counted() {
    let mut bench = bench();
    bench.takes = false;
    for (unsent, slug) in [(Unsent::Unreachable, "unroutable"), (Unsent::PeerFull, "peer_full")] {
        bench.reply("w", "gone", "1");
        let (id, _) = bench.open.remove(0);
        bench.broker.handle_socket(bench.now, Front, SocketEvent::Unsent(id, unsent));
        bench.drain();
        assert_eq!(bench.dropped(slug), 1);
    }
    let is_reported = |event: &BrokerEvent| matches!(event, BrokerEvent::Dropped(Dropped { reason: DropReason::Undelivered(DropKind::Unroutable), origin: client, .. }) if *client == origin("gone", None));
    assert!(bench.events.iter().any(is_reported));
}

#[test]
fn a_stopping_broker_waits_for_what_is_in_hand() {
    let mut bench = bench();
    bench.register("w", "a");
    bench.ask("c", "a", "1");
    bench.ask("c", "a", "2");
    bench.broker.handle_close(bench.now, SECOND);
    bench.sent();
    bench.broker.handle_message(
        bench.now,
        Incoming {
            socket: Front,
            peer: Some(bytes("w")),
            user_id: None,
            host: None,
            frames: encode_reply(bytes("c"), &[bytes("1")], &[]),
        },
    );
    assert!(matches!(bench.broker.poll_output(), Some(Output::Send { to: Some(to), .. }) if to == "c"));
    assert!(matches!(bench.broker.poll_output(), Some(Output::Close { linger: SECOND, .. })));
    bench.broker.handle_socket(bench.now, Front, SocketEvent::Closed);
    assert!(bench.broker.is_closed());
    assert_eq!(bench.broker.stats().queued, 1);
}

// req: DCP-15
#[test]
fn a_worker_that_leaves_is_confirmed_gets_nothing_more_and_leaves_no_name_behind() {
    let allowed = HashSet::from([bytes("a")]);
    let mut bench = Bench::new(BrokerSettings { services: Some(allowed), ..BrokerSettings::default() });
    let leaving = String::from_utf8_lossy(LEAVING).into_owned();
    bench.register("w", "a");
    bench.ask("c", "a", "1");
    bench.ask("c", "a", "2");
    bench.sent();
    bench.register("w", &leaving);
    bench.reply("w", "c", "1");
    let echo = format!("register {leaving}");
    assert_eq!(bench.sent(), sends(&[("w", &echo), ("c", "reply c··1··y")]));
    bench.register("v", "a");
    assert_eq!(bench.sent()[1], ("v".into(), "request a·c··2··x".into()));
    bench.pass(SECOND * 5);
    bench.header("v", MessageType::Ping);
    bench.pass(SECOND * 5);
    assert_eq!(bench.broker.stats().lost, 0);
    let services = bench.broker.stats().services;
    assert_eq!(services.iter().map(|service| service.service.clone()).collect::<Vec<_>>(), [bytes("a")]);
}

#[test]
fn names_from_the_network_do_not_grow_the_broker() {
    let mut bench = Bench::new(BrokerSettings { max_queue_bytes: 10_000, ..BrokerSettings::default() });
    for number in 0..5000 {
        bench.register("w", &number.to_string());
        bench.ask("c", &format!("{number:0300}"), "1");
    }
    let services = bench.broker.stats().services;
    assert!(services.len() <= 1000);
    assert!(services.iter().all(|service| service.service.len() <= 200));
    // Services with long names are not kept for their counters.
    bench.pass(SECOND * 60);
    assert_eq!(bench.broker.stats().services, []);
}

/// Valid messages with a few frames changed, from a thousand peers.
// req: DCP-44
#[test]
fn mutated_messages_leave_the_broker_up_and_small() {
    let mut bench =
        Bench::new(BrokerSettings { max_queue: 100, max_queue_bytes: 100_000, ..BrokerSettings::default() });
    let mut random = 88_172_645_463_325_252_u64;
    let mut below = move |limit: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % limit as u64).unwrap_or(0)
    };
    for _ in 0..100_000 {
        let (peer, service) = (format!("p{}", below(1000)), bytes(&format!("s{}", below(50))));
        let client = bytes(&format!("p{}", below(1000)));
        let mut frames = match below(6) {
            0 => encode_register(service),
            1 => encode_header(MessageType::ALL[below(6)], Width::One),
            2 | 3 => encode_request(service, Some(client).filter(|_| below(2) == 0), &[bytes("1")], &[bytes("x")]),
            _ => encode_reply(client, &[bytes("1")], &[bytes("x")]),
        };
        match below(8) {
            0 => frames.truncate(below(frames.len() + 1)),
            1 => frames.insert(below(frames.len() + 1), Bytes::new()),
            2 => {
                let at = below(frames.len());
                frames[at] = Bytes::from(vec![u8::try_from(below(256)).unwrap_or(0); below(4)]);
            }
            3 => {
                frames.remove(below(frames.len()));
            }
            _ => {}
        }
        bench.takes = below(4) > 0;
        bench.receive(&peer, frames);
        if let Some((id, _)) = bench.open.pop() {
            let unsent = [Unsent::Unreachable, Unsent::PeerFull, Unsent::Expired][below(3)];
            bench.broker.handle_socket(bench.now, Front, SocketEvent::Unsent(id, unsent));
        }
        if below(20) == 0 {
            bench.pass(Duration::from_millis(below(200) as u64));
        }
        bench.sent();
        bench.events.clear();
    }
    let stats = bench.broker.stats();
    assert_eq!(stats.received, 100_000);
    assert!(stats.queued < 100_000 / 256, "{} requests wait", stats.queued);
    // A well-behaved pair is still served.
    bench.takes = true;
    bench.register("w", "good");
    bench.sent();
    bench.ask("c", "good", "1");
    assert_eq!(bench.sent(), sends(&[("w", "request good·c··1··x")]));
}

proptest! {
    /// Any peer sends anything at any time; every request is accounted for.
    // req: DCP-32, DCP-44
    #[test]
    fn every_request_is_somewhere(steps in prop::collection::vec((0u8..10, 0u8..4, 0u8..3, 0u8..4), 1..400), requeue: bool, drop_oldest: bool) {
        let overflow = if drop_oldest { Overflow::DropOldest } else { Overflow::RejectNewest };
        let mut bench = Bench::new(BrokerSettings { requeue, overflow, max_queue: 5, max_held: 4, ..BrokerSettings::default() });
        let (mut asked, mut forwards) = (0, 0);
        // What each worker may still receive: several grants without a request count as one.
        let mut may_take = [false; 4];
        for (step, peer, service, id) in steps {
            let name = ["p", "q", "r", "s"][usize::from(peer)];
            let (service, id) = (["a", "b", "c"][usize::from(service)], id.to_string());
            let workers: u64 = bench.broker.stats().services.iter().map(|service| service.workers).sum();
            may_take[usize::from(peer)] |= matches!(step, 0..=3);
            match step {
                0 => bench.register(name, service),
                1 => bench.header(name, MessageType::Ping),
                2 => bench.reply(name, "x", &id),
                3 => { asked += 1; forwards += 1; bench.forward(name, service, "x", &id) }
                4..=6 => { asked += 1; bench.ask(name, service, &id) }
                7 => bench.header(name, MessageType::Pong),
                8 => { bench.receive(name, Frames::from_vec(vec![Bytes::new(), bytes(service)])); }
                _ => bench.pass(Duration::from_millis(400 * u64::from(peer))),
            }
            prop_assert!(workers <= 4);
            for (to, what) in bench.sent() {
                if what.starts_with("request") {
                    let to = ["p", "q", "r", "s"].iter().position(|name| *name == to);
                    prop_assert!(to.is_some_and(|to| std::mem::take(&mut may_take[to])), "nobody asked");
                }
            }
            let stats = bench.broker.stats();
            prop_assert!(stats.services.iter().map(|service| service.queued).sum::<u64>() == stats.queued);
            let requests: u64 = stats.services.iter().map(|service| service.requests).sum();
            prop_assert_eq!(requests, asked);
        }
        // All workers fall silent, and all queued requests expire.
        bench.pass(SECOND * 100);
        bench.pass(SECOND * 100);
        let stats = bench.broker.stats();
        let replies: u64 = stats.services.iter().map(|service| service.replies).sum();
        let (full, expired) = (bench.dropped("queue_full"), bench.dropped("queue_expired"));
        // A forwarded request has ended for its worker, and counts as a new one.
        let passed_on = asked - (replies + full + expired + stats.lost);
        prop_assert!(stats.queued == 0 && passed_on <= forwards);
        prop_assert_eq!(bench.broker.poll_timeout(), None);
    }
}
