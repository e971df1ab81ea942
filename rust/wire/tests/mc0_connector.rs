//! The connector of mc0, message by message.

use std::time::Duration;

use bytes::Bytes;
use trunkline_wire::mc0::{
    Asked, Bus, Connector, ConnectorEvent, ConnectorSettings, ConnectorVerb, Outcome, Put, Verb, encode,
};
use trunkline_wire::{
    CallId, Calling as _, DropKind, ErrorKind, Frames, Incoming, Machine, Nanos, Output, SendId, SocketEvent,
    SocketKind, Unsent,
};

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(10);

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// A message in words: its frames after the delimiter, IDs as `#`.
fn said(frames: &[Bytes]) -> String {
    assert!(frames[0].is_empty(), "no delimiter");
    let mut words: Vec<_> = frames[1..].iter().map(|frame| String::from_utf8_lossy(frame).into_owned()).collect();
    if let Some(at) = words.iter().position(|word| word == "ID") {
        "#".clone_into(&mut words[at + 1]);
    }
    words.join("·")
}

/// A connector, a clock, and a transport that takes everything at once unless `takes` is false.
struct Bench {
    connector: Connector,
    now: Nanos,
    takes: bool,
    open: Vec<SendId>,
    /// Outputs other than sends.
    done: Vec<String>,
    /// The IDs of sent messages, the last one last.
    ids: Vec<Bytes>,
    events: Vec<ConnectorEvent>,
    calls: u64,
}

impl Bench {
    fn new() -> Self {
        Self::of(&["tcp://bus:1"], Some(TTL))
    }

    fn of(connect: &[&str], ttl: Option<Duration>) -> Self {
        let connect: Vec<_> = connect.iter().map(|endpoint| (*endpoint).to_owned()).collect();
        let settings = ConnectorSettings { connect: connect.clone(), ttl, ..ConnectorSettings::default() };
        let mut connector = Connector::new(Nanos(0), settings, [7; 32]);
        let Some(Output::Open(open)) = connector.poll_output() else { panic!("no socket") };
        assert_eq!((open.kind, open.options.immediate), (SocketKind::Dealer, true));
        assert_eq!(open.connect, connect.into_iter().take(1).collect::<Vec<_>>());
        let (open, done, ids, events) = (vec![], vec![], vec![], vec![]);
        Self { connector, now: Nanos(0), takes: true, open, done, ids, events, calls: 0 }
    }

    /// A connector that has sent its CONNECT.
    fn connected() -> Self {
        let mut bench = Self::new();
        assert_eq!(bench.sent(), ["CONNECT·VERSION·0.3·TTL·10000"]);
        bench
    }

    /// The messages sent now.
    fn sent(&mut self) -> Vec<String> {
        let mut all = vec![];
        while let Some(output) = self.connector.poll_output() {
            match output {
                Output::Send { id, frames, .. } => {
                    all.push(said(&frames));
                    if let Some(at) = frames.iter().position(|frame| frame == "ID") {
                        self.ids.push(frames[at + 1].clone());
                    }
                    match id {
                        Some(id) if self.takes => self.connector.handle_socket(self.now, Bus, SocketEvent::Sent(id)),
                        Some(id) => self.open.push(id),
                        None => {}
                    }
                }
                Output::Withdraw { id, .. } => {
                    if let Some(at) = self.open.iter().position(|open| *open == id) {
                        self.open.remove(at);
                        let event = SocketEvent::Unsent(id, Unsent::Expired);
                        self.connector.handle_socket(self.now, Bus, event);
                    }
                }
                Output::Connect { endpoint, .. } => self.done.push(format!("connect {endpoint}")),
                Output::Disconnect { endpoint, .. } => self.done.push(format!("disconnect {endpoint}")),
                Output::Close { linger, .. } => self.done.push(format!("close {}", linger.as_millis())),
                Output::Open(_) => panic!("unexpected"),
            }
        }
        self.events.extend(std::iter::from_fn(|| self.connector.poll_event()));
        all
    }

    /// The transport takes what it was offered.
    fn take(&mut self) -> Vec<String> {
        self.takes = true;
        for id in std::mem::take(&mut self.open) {
            self.connector.handle_socket(self.now, Bus, SocketEvent::Sent(id));
        }
        self.sent()
    }

    fn receive(&mut self, frames: Frames) {
        let verdict = self
            .connector
            .handle_message(self.now, Incoming { socket: Bus, peer: None, user_id: None, host: None, frames });
        assert_eq!(verdict.error, None);
        self.gather();
    }

    fn gather(&mut self) {
        self.events.extend(std::iter::from_fn(|| self.connector.poll_event()));
    }

    fn ok(&mut self, id: &Bytes) {
        self.receive(encode(Verb::Ok, [(bytes("ID"), id.clone())], &[]));
    }

    /// Confirms the last message.
    fn confirm(&mut self) {
        let id = self.ids.last().cloned().unwrap_or_default();
        self.ok(&id);
    }

    fn error(&mut self, text: &str, id: Option<&Bytes>) {
        let headers = [(bytes("MESSAGE"), bytes(text))];
        let id = id.map(|id| (bytes("ID"), id.clone()));
        self.receive(encode(Verb::Error, headers.into_iter().chain(id), &[]));
    }

    fn noop(&mut self) {
        self.receive(encode(Verb::Noop, [], &[]));
    }

    fn pass(&mut self, time: Duration) -> Vec<String> {
        self.now = self.now + time;
        self.connector.handle_timeout(self.now);
        self.sent()
    }

    /// Advances the time as a driver does, stopping at every timeout.
    fn pass_by_and_by(&mut self, time: Duration) -> Vec<(Nanos, String)> {
        let end = self.now + time;
        let mut all = vec![];
        while let Some(at) = self.connector.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.connector.handle_timeout(self.now);
            let sent = self.sent();
            all.extend(sent.into_iter().map(|said| (self.now, said)));
        }
        self.now = end;
        all
    }

    fn call(&mut self, asked: Asked, timeout: Option<Duration>) -> CallId {
        self.calls += 1;
        let call = CallId(self.calls);
        self.connector.handle_verb(self.now, ConnectorVerb::Call { call, asked, timeout });
        call
    }

    fn subscribe(&mut self, topics: &[&str]) -> CallId {
        self.call(Asked::Subscribe(topics.iter().map(|topic| bytes(topic)).collect()), None)
    }

    fn submit(&mut self, body: &str) -> CallId {
        self.call(Asked::Put(put(body)), None)
    }

    fn put(&mut self, body: &str) {
        self.connector.handle_verb(self.now, ConnectorVerb::Put(put(body)));
    }

    fn event(&mut self, event: SocketEvent) {
        self.connector.handle_socket(self.now, Bus, event);
        self.gather();
    }

    fn break_off(&mut self) -> Vec<String> {
        self.event(SocketEvent::Disconnected("tcp://bus:1".into()));
        self.sent()
    }

    fn outcome(&mut self, call: CallId) -> Option<Outcome> {
        self.gather();
        let ended = self.events.iter().filter_map(|event| Connector::outcome(event.clone()).ok());
        let mut outcomes = ended.filter(|(ended, _)| *ended == call).map(|(_, outcome)| outcome);
        let outcome = outcomes.next();
        assert_eq!(outcomes.next(), None, "ended twice");
        outcome
    }
}

fn put(body: &str) -> Put {
    Put { topic: bytes("runs"), headers: vec![], body: vec![bytes(body)] }
}

// req: MC0-20, MC0-23
#[test]
fn a_connector_says_who_it_is_before_anything_else() {
    let mut bench = Bench::new();
    bench.put("early");
    assert_eq!(bench.sent(), ["CONNECT·VERSION·0.3·TTL·10000", "PUT·TOPIC·runs··early"]);
    let mut silent = Bench::of(&["tcp://bus:1"], None);
    assert_eq!(silent.sent(), ["CONNECT·VERSION·0.3"]);
    assert_eq!(silent.connector.poll_timeout(), None);
    let mut none = Bench::of(&["tcp://bus:1"], Some(Duration::ZERO));
    assert_eq!(none.sent(), ["CONNECT·VERSION·0.3"]);
}

// req: MC0-07
#[test]
fn the_leading_delimiter_may_be_left_out() {
    let settings = ConnectorSettings { leading_delimiter: false, ..ConnectorSettings::default() };
    let mut connector = Connector::new(Nanos(0), settings, [7; 32]);
    connector.handle_verb(Nanos(0), ConnectorVerb::Put(put("x")));
    let outputs = std::iter::from_fn(|| connector.poll_output());
    let sent = outputs
        .filter_map(|output| if let Output::Send { frames, .. } = output { Some(frames.to_vec()) } else { None });
    let words = |words: &[&str]| words.iter().map(|word| bytes(word)).collect::<Vec<_>>();
    let expected = [words(&["CONNECT", "VERSION", "0.3"]), words(&["PUT", "TOPIC", "runs", "", "x"])];
    assert_eq!(sent.collect::<Vec<_>>(), expected);
}

// req: MC0-12, MC0-28, MC0-30
#[test]
fn calls_end_with_the_answer_that_bears_their_id() {
    let mut bench = Bench::connected();
    let calls = [bench.subscribe(&["a", "b"]), bench.submit("x"), bench.call(Asked::Ping, None)];
    assert_eq!(bench.sent(), ["SUB·ID·#··a·b", "PUT·ID·#·TOPIC·runs··x", "NOOP·ID·#"]);
    let ids = bench.ids.clone();
    assert!(ids.iter().all(|id| id.is_ascii() && id.len() <= 33));
    assert_eq!(bench.connector.backlog().messages, 3);
    // Their order does not matter.
    bench.now = bench.now + 3 * MILLISECOND;
    bench.ok(&ids[2]);
    assert_eq!(bench.outcome(calls[2]), Some(Outcome::Alive(3 * MILLISECOND)));
    bench.error("no", Some(&ids[1]));
    let refused = Outcome::Refused { topic: Some(bytes("runs")), text: bytes("no") };
    assert_eq!(bench.outcome(calls[1]), Some(refused));
    assert_eq!(bench.outcome(calls[0]), None);
    bench.ok(&ids[0]);
    assert_eq!(bench.outcome(calls[0]), Some(Outcome::Done));
    let stats = bench.connector.stats();
    assert_eq!((stats.put, stats.confirmed, stats.errors, stats.queued, stats.sent), (1, 0, 1, 0, 4));
    assert_eq!(stats.dropped.len(), 0);
}

// req: MC0-12
#[test]
fn answers_nobody_waits_for_are_ignored() {
    let mut bench = Bench::connected();
    bench.takes = false;
    let call = bench.submit("x");
    bench.sent();
    let id = bench.ids[0].clone();
    for other in ["", "1", "0707070707070707-", "0707070707070707-01", "0707070707070707-+1", "0707070707070707-2"] {
        assert_ne!(id, other);
        bench.ok(&bytes(other));
        bench.error("disconnected: not for us", Some(&bytes(other)));
    }
    assert_eq!(bench.outcome(call), None);
    // An offered message may have arrived before the transport reports it as sent.
    bench.ok(&id);
    assert_eq!(bench.outcome(call), Some(Outcome::Done));
    bench.ok(&id);
    bench.take();
    assert_eq!(bench.connector.stats().dropped.len(), 0);
    assert!(bench.done.is_empty());
}

// req: MC0-18, MC0-31
#[test]
fn a_connector_takes_messages_and_answers_nothing() {
    let mut bench = Bench::connected();
    let topic = (bytes("TOPIC"), bytes("runs"));
    let message = encode(Verb::Message, [topic.clone(), (bytes("X-A"), bytes("1"))], &[bytes("x")]);
    bench.receive(message.clone());
    assert_eq!(bench.connector.stats().bytes, "MESSAGETOPICrunsX-A1x".len() as u64);
    let Some(ConnectorEvent::Message { frames, layout }) = bench.events.pop() else { panic!("no message") };
    assert_eq!((&frames, &frames[layout.positional()]), (&message, &[bytes("x")][..]));
    bench.receive(encode(Verb::Noop, [(bytes("ID"), bytes("1"))], &[]));
    for verb in [Verb::Connect, Verb::Disconnect, Verb::Sub, Verb::Unsub, Verb::Put] {
        bench.receive(encode(verb, [topic.clone(), (bytes("ID"), bytes("1"))], &[]));
    }
    let bad =
        Incoming { socket: Bus, peer: None, user_id: None, host: None, frames: Frames::from_iter([bytes("PONG")]) };
    assert_eq!(bench.connector.handle_message(bench.now, bad).error, Some(ErrorKind::UnknownVerb));
    assert_eq!(bench.sent(), [""; 0]);
    let stats = bench.connector.stats();
    let dropped: Vec<_> = stats.dropped.into_iter().collect();
    assert_eq!(dropped, [("unexpected_verb", 5), ("unknown_verb", 1)]);
    assert_eq!((stats.received, stats.messages), (8, 1));
    let unexpected = bench.events.iter().filter(
        |event| matches!(event, ConnectorEvent::Dropped(dropped) if dropped.reason == DropKind::UnexpectedVerb.into()),
    );
    assert_eq!(unexpected.count(), 5);
}

// req: MC0-16
#[test]
fn errors_without_an_id_are_told() {
    let mut bench = Bench::connected();
    bench.error("forbidden", None);
    let Some(ConnectorEvent::Error { frames, layout }) = bench.events.pop() else { panic!("no event") };
    assert_eq!(frames[layout.text.unwrap_or_default()], "forbidden");
    assert_eq!(bench.connector.stats().errors, 1);
    assert!(bench.done.is_empty());
}

// req: MC0-25
#[test]
fn a_noop_follows_95_hundredths_of_a_ttl_of_silence() {
    let mut bench = Bench::connected();
    let noops = |bench: &mut Bench, time: Duration| {
        let mut all = vec![];
        for _ in 0..time.as_secs() {
            // The middleware is alive all the time.
            bench.noop();
            all.extend(bench.pass_by_and_by(SECOND));
        }
        all
    };
    let at = |seconds: f64| Nanos(0) + Duration::from_secs_f64(seconds);
    let expected: Vec<_> = [9.5, 19.0, 28.5].map(|seconds| (at(seconds), "NOOP".to_owned())).into();
    assert_eq!(noops(&mut bench, 30 * SECOND), expected);
    // Any other message postpones it.
    bench.put("x");
    assert_eq!(bench.sent().len(), 1);
    assert_eq!(noops(&mut bench, 9 * SECOND), []);
    assert_eq!(noops(&mut bench, SECOND), [(at(39.5), "NOOP".to_owned())]);
    // A message not taken yet serves as a NOOP.
    bench.takes = false;
    bench.put("y");
    assert_eq!(bench.sent().len(), 1);
    assert_eq!(noops(&mut bench, 20 * SECOND), []);
}

// req: MC0-26
#[test]
fn a_middleware_that_is_silent_for_105_hundredths_of_a_ttl_is_dialled_anew() {
    let mut bench = Bench::connected();
    bench.subscribe(&["a"]);
    bench.sent();
    bench.confirm();
    bench.now = bench.now + SECOND;
    bench.noop();
    bench.pass(Duration::from_nanos(10_499_999_999));
    assert!(bench.done.is_empty());
    assert_eq!(bench.pass(Duration::from_nanos(1)), [""; 0]);
    assert_eq!(bench.done, ["disconnect tcp://bus:1"]);
    assert!(bench.events.contains(&ConnectorEvent::Silent));
    assert_eq!(bench.connector.stats().reconnects, 1);
    assert_eq!(bench.pass(49 * MILLISECOND), [""; 0]);
    assert_eq!(bench.pass(51 * MILLISECOND), ["CONNECT·VERSION·0.3·TTL·10000", "SUB··a"]);
    assert_eq!(bench.done, ["disconnect tcp://bus:1", "connect tcp://bus:1"]);
    // Still silent: it dials again, after a longer delay.
    bench.pass(TTL * 105 / 100);
    assert_eq!(bench.pass(99 * MILLISECOND), [""; 0]);
    assert_eq!(bench.pass(101 * MILLISECOND).len(), 2);
    assert_eq!(bench.connector.stats().reconnects, 2);
}

// req: MC0-26
#[test]
fn silence_is_counted_from_the_connect_and_not_while_nothing_is_read() {
    let mut bench = Bench::new();
    bench.takes = false;
    bench.sent();
    assert_eq!(bench.connector.poll_timeout(), None);
    bench.pass(100 * TTL);
    assert!(bench.done.is_empty());
    bench.take();
    bench.connector.handle_pressure(bench.now, true);
    bench.pass_by_and_by(100 * TTL);
    assert!(bench.done.is_empty());
    bench.connector.handle_pressure(bench.now, false);
    bench.pass(TTL);
    assert!(bench.done.is_empty());
    bench.pass(TTL / 20);
    assert_eq!(bench.done, ["disconnect tcp://bus:1"]);
}

// req: MC0-23
#[test]
fn without_a_ttl_silence_is_nothing() {
    let mut bench = Bench::of(&["tcp://bus:1"], None);
    bench.sent();
    assert_eq!(bench.pass_by_and_by(10_000 * SECOND), []);
    assert!(bench.done.is_empty());
}

// req: MC0-24
#[test]
fn a_middleware_that_refuses_the_ttl_may_be_silent() {
    let mut bench = Bench::connected();
    bench.error("bad_ttl in frame 5: it is longer than is allowed", None);
    bench.pass_by_and_by(100 * TTL);
    assert!(bench.done.is_empty());
    assert!(matches!(bench.events[..], [ConnectorEvent::Error { .. }]));
}

// req: MC0-26
#[test]
fn a_new_connection_has_the_topics_then_what_is_not_confirmed_then_the_rest() {
    let mut bench = Bench::connected();
    bench.subscribe(&["b", "a"]);
    bench.sent();
    bench.confirm();
    let calls = [bench.submit("1"), bench.subscribe(&["c"]), bench.submit("2")];
    bench.put("once");
    assert_eq!(bench.sent().len(), 4);
    let ids = bench.ids[1..].to_vec();
    bench.ok(&ids[0]);
    bench.takes = false;
    bench.put("3");
    let late = bench.submit("4");
    assert_eq!(bench.sent().len(), 2);
    bench.ids.clear();
    assert_eq!(bench.break_off(), [""; 0]);
    bench.put("5");
    assert_eq!(bench.sent(), [""; 0]);
    assert_eq!(
        bench.pass(100 * MILLISECOND),
        [
            "CONNECT·VERSION·0.3·TTL·10000",
            "SUB··a·b",
            "SUB·ID·#··c",
            "PUT·ID·#·TOPIC·runs··2",
            "PUT·TOPIC·runs··3",
            "PUT·ID·#·TOPIC·runs··4",
            "PUT·TOPIC·runs··5",
        ]
    );
    // The IDs stay the same.
    assert_eq!(bench.ids[..2], ids[1..]);
    assert_eq!(bench.take(), [""; 0]);
    for id in bench.ids.clone() {
        bench.ok(&id);
    }
    for call in calls.into_iter().chain([late]) {
        assert_eq!(bench.outcome(call), Some(Outcome::Done));
    }
    let stats = bench.connector.stats();
    assert_eq!((stats.put, stats.confirmed, stats.queued, stats.queued_bytes, stats.reconnects), (6, 3, 0, 0, 1));
}

#[test]
fn what_the_transport_has_taken_into_a_connection_that_is_over_is_sent_again_if_it_is_a_call() {
    let mut bench = Bench::connected();
    bench.takes = false;
    bench.submit("call");
    bench.put("once");
    bench.sent();
    bench.event(SocketEvent::Disconnected("".into()));
    // The transport takes them before it sees that they are withdrawn.
    for id in std::mem::take(&mut bench.open) {
        bench.event(SocketEvent::Sent(id));
    }
    bench.takes = true;
    assert_eq!(bench.pass(100 * MILLISECOND)[1..], ["PUT·ID·#·TOPIC·runs··call"]);
}

#[test]
fn what_is_no_news_breaks_nothing() {
    let mut bench = Bench::new();
    bench.takes = false;
    bench.sent();
    // There is no connection yet; the transport continues to dial.
    bench.event(SocketEvent::Disconnected("tcp://bus:1".into()));
    assert!(bench.done.is_empty());
    bench.take();
    bench.break_off();
    bench.break_off();
    assert_eq!(bench.done, ["disconnect tcp://bus:1"]);
    bench.event(SocketEvent::Sent(SendId(999)));
    bench.event(SocketEvent::Unsent(SendId(999), Unsent::Expired));
    assert_eq!(bench.pass(100 * MILLISECOND).len(), 1);
}

// req: MC0-21
#[test]
fn a_connector_that_is_forgotten_for_not_reading_begins_anew() {
    let mut bench = Bench::connected();
    bench.subscribe(&["a"]);
    bench.sent();
    bench.confirm();
    bench.error("disconnected: the queue holds no more", None);
    bench.sent();
    assert_eq!(bench.done, ["disconnect tcp://bus:1"]);
    assert_eq!(bench.pass(100 * MILLISECOND), ["CONNECT·VERSION·0.3·TTL·10000", "SUB··a"]);
    assert!(matches!(bench.events.last(), Some(ConnectorEvent::Error { .. })));
}

#[test]
fn of_several_endpoints_the_next_is_dialled_when_one_cannot_be_reached() {
    let mut bench = Bench::of(&["tcp://bus:1", "tcp://bus:2"], Some(TTL));
    bench.takes = false;
    bench.sent();
    bench.pass(2499 * MILLISECOND);
    assert!(bench.done.is_empty());
    bench.pass(MILLISECOND);
    assert_eq!(bench.done, ["disconnect tcp://bus:1"]);
    assert_eq!(bench.pass(100 * MILLISECOND), ["CONNECT·VERSION·0.3·TTL·10000"]);
    assert_eq!(bench.done[1..], ["connect tcp://bus:2"]);
    bench.event(SocketEvent::Connected("tcp://bus:2".into()));
    bench.pass(TTL);
    assert_eq!(bench.done.len(), 2);
    // No connection was lost.
    assert_eq!(bench.connector.stats().reconnects, 0);
}

// req: MC0-26
#[test]
fn on_a_socket_of_the_user_connect_goes_again_once_it_is_connected_again() {
    let mut bench = Bench::of(&[], Some(TTL));
    bench.sent();
    bench.subscribe(&["a"]);
    bench.sent();
    bench.confirm();
    let call = bench.submit("1");
    bench.sent();
    bench.break_off();
    bench.put("2");
    assert_eq!(bench.pass_by_and_by(100 * TTL), []);
    bench.event(SocketEvent::Connected("tcp://bus:1".into()));
    let again = ["CONNECT·VERSION·0.3·TTL·10000", "SUB··a", "PUT·ID·#·TOPIC·runs··1", "PUT·TOPIC·runs··2"];
    assert_eq!(bench.sent(), again);
    assert!(bench.done.is_empty());
    assert_eq!(bench.outcome(call), None);
    assert_eq!(bench.connector.stats().reconnects, 1);
}

// req: MC0-26
#[test]
fn a_silent_middleware_on_a_socket_of_the_user_ends_calls_until_it_is_heard_of() {
    let mut bench = Bench::of(&[], Some(TTL));
    bench.sent();
    bench.subscribe(&["a"]);
    bench.sent();
    bench.confirm();
    let waiting = bench.submit("1");
    bench.sent();
    bench.pass(TTL * 105 / 100);
    assert_eq!(bench.outcome(waiting), Some(Outcome::Lost));
    let next = bench.call(Asked::Ping, None);
    assert_eq!(bench.outcome(next), Some(Outcome::Lost));
    assert_eq!(bench.pass(100 * MILLISECOND), ["CONNECT·VERSION·0.3·TTL·10000", "SUB··a"]);
    // It is reported once.
    bench.pass_by_and_by(5 * TTL);
    assert_eq!(bench.events.iter().filter(|event| **event == ConnectorEvent::Lost).count(), 1);
    bench.noop();
    assert_eq!(bench.events.last(), Some(&ConnectorEvent::Found));
    let heard = bench.call(Asked::Ping, None);
    bench.sent();
    bench.confirm();
    assert_eq!(bench.outcome(heard), Some(Outcome::Alive(Duration::ZERO)));
    assert!(bench.done.is_empty());
}

#[test]
fn a_call_that_times_out_is_not_sent_any_more() {
    let mut bench = Bench::connected();
    let sent = bench.call(Asked::Put(put("1")), Some(SECOND));
    bench.sent();
    bench.takes = false;
    let offered = bench.call(Asked::Put(put("2")), Some(SECOND));
    bench.sent();
    bench.break_off();
    let kept = bench.call(Asked::Put(put("3")), Some(SECOND));
    let cancelled = bench.submit("4");
    bench.connector.handle_verb(bench.now, ConnectorVerb::Cancel(cancelled));
    bench.connector.handle_verb(bench.now, ConnectorVerb::Cancel(cancelled));
    bench.now = bench.now + SECOND;
    bench.connector.handle_timeout(bench.now);
    for call in [sent, offered, kept] {
        assert_eq!(bench.outcome(call), Some(Outcome::TimedOut));
    }
    assert_eq!(bench.outcome(cancelled), None);
    bench.takes = true;
    assert_eq!(bench.sent(), ["CONNECT·VERSION·0.3·TTL·10000"]);
    // A late answer is no fault.
    bench.ok(&bench.ids[0].clone());
    assert_eq!(bench.connector.stats().queued, 0);
    assert_eq!(bench.connector.backlog(), trunkline_wire::Backlog::default());
}

// req: MC0-29
#[test]
fn a_subscription_that_times_out_is_taken_back_if_it_has_left() {
    let mut bench = Bench::connected();
    bench.subscribe(&["a"]);
    bench.sent();
    bench.confirm();
    let short = |bench: &mut Bench, topics: &[&str]| {
        let topics = topics.iter().map(|topic| bytes(topic)).collect();
        bench.call(Asked::Subscribe(topics), Some(SECOND));
    };
    short(&mut bench, &["a", "b", "c"]);
    bench.subscribe(&["c"]);
    assert_eq!(bench.sent().len(), 2);
    // Topics of other subscriptions stay.
    assert_eq!(bench.pass(SECOND), ["UNSUB··b"]);
    bench.takes = false;
    short(&mut bench, &["d"]);
    assert_eq!(bench.sent(), ["SUB·ID·#··d"]);
    assert_eq!(bench.pass(SECOND), [""; 0]);
    assert_eq!(bench.take(), [""; 0]);
    // The transport takes it although it was cancelled.
    bench.takes = false;
    short(&mut bench, &["e"]);
    bench.sent();
    bench.now = bench.now + SECOND;
    bench.connector.handle_timeout(bench.now);
    assert_eq!(bench.take(), ["UNSUB··e"]);
}

// req: MC0-29
#[test]
fn what_is_unsubscribed_is_not_restored() {
    let mut bench = Bench::connected();
    bench.subscribe(&["a", "b"]);
    bench.sent();
    bench.confirm();
    let call = bench.call(Asked::Unsubscribe(vec![bytes("a"), bytes("z")]), None);
    assert_eq!(bench.sent(), ["UNSUB·ID·#··a·z"]);
    bench.break_off();
    assert_eq!(bench.pass(100 * MILLISECOND), ["CONNECT·VERSION·0.3·TTL·10000", "SUB··b", "UNSUB·ID·#··a·z"]);
    bench.confirm();
    assert_eq!(bench.outcome(call), Some(Outcome::Done));
    bench.break_off();
    assert_eq!(bench.pass(200 * MILLISECOND)[1..], ["SUB··b"]);
}

#[test]
fn so_many_topics_are_restored_in_several_messages() {
    let mut bench = Bench::connected();
    for half in 0..2 {
        let topics = (0..6000).map(|topic| bytes(&format!("{half}-{topic}"))).collect();
        bench.call(Asked::Subscribe(topics), None);
        bench.sent();
        bench.confirm();
    }
    bench.break_off();
    let sent = bench.pass(100 * MILLISECOND);
    let frames: Vec<_> = sent.iter().map(|said| said.split('·').count() + 1).collect();
    assert_eq!(frames, [6, 10_000, 12_000 - 9_997 + 3]);
}

#[test]
fn the_transport_has_so_many_sends_at_a_time() {
    let mut bench = Bench::new();
    bench.takes = false;
    for number in 0..100 {
        bench.put(&number.to_string());
    }
    assert_eq!(bench.sent().len(), 64);
    assert_eq!(bench.connector.backlog().messages, 100);
    assert_eq!(bench.take().len(), 37);
    assert_eq!(bench.connector.backlog().messages, 0);
}

// req: MC0-27
#[test]
fn closing_waits_for_answers_and_then_leaves() {
    let mut bench = Bench::connected();
    let call = bench.submit("1");
    bench.sent();
    bench.connector.handle_close(bench.now, 5 * SECOND);
    let late = bench.submit("2");
    bench.put("3");
    assert_eq!(bench.outcome(late), Some(Outcome::Unanswered));
    assert_eq!(bench.pass(SECOND), [""; 0]);
    bench.confirm();
    assert_eq!(bench.sent(), ["DISCONNECT"]);
    assert_eq!(bench.done, ["close 4000"]);
    assert_eq!(bench.outcome(call), Some(Outcome::Done));
    bench.break_off();
    bench.pass(100 * TTL);
    assert_eq!(bench.done.len(), 1);
    assert!(!bench.connector.is_closed());
    bench.event(SocketEvent::Closed);
    assert!(bench.connector.is_closed());
}

// req: MC0-27
#[test]
fn closing_waits_for_errors_about_what_is_not_confirmed() {
    let mut bench = Bench::connected();
    bench.put("1");
    bench.sent();
    bench.connector.handle_close(bench.now, 5 * SECOND);
    assert_eq!(bench.sent(), ["NOOP·ID·#"]);
    bench.error("forbidden", None);
    assert!(!bench.events.is_empty(), "an error is reported");
    assert!(bench.sent().is_empty());
    bench.events.clear();
    bench.confirm();
    assert_eq!(bench.sent(), ["DISCONNECT"]);
    assert!(bench.events.is_empty(), "the NOOP was not asked for");
    assert_eq!(bench.connector.stats().errors, 1);
}

// req: MC0-27
#[test]
fn an_answer_to_something_later_is_as_good() {
    let mut bench = Bench::connected();
    bench.put("1");
    bench.submit("2");
    bench.sent();
    bench.confirm();
    bench.connector.handle_close(bench.now, 5 * SECOND);
    assert_eq!(bench.sent(), ["DISCONNECT"]);
    // Nothing sent on a lost connection can be answered either.
    let mut bench = Bench::connected();
    bench.put("1");
    bench.sent();
    bench.connector.handle_close(bench.now, 5 * SECOND);
    assert_eq!(bench.sent(), ["NOOP·ID·#"]);
    bench.break_off();
    assert!(!bench.done.is_empty(), "closed at once");
}

// req: MC0-27
#[test]
fn closing_takes_no_longer_than_it_may() {
    let mut bench = Bench::connected();
    let call = bench.submit("1");
    bench.sent();
    bench.connector.handle_close(bench.now, SECOND);
    assert_eq!(bench.pass(SECOND), ["DISCONNECT"]);
    assert_eq!(bench.done, ["close 0"]);
    assert_eq!(bench.outcome(call), Some(Outcome::Unanswered));
    // Without a connection no DISCONNECT is sent.
    let mut alone = Bench::new();
    alone.takes = false;
    alone.sent();
    alone.connector.handle_close(alone.now, SECOND);
    assert_eq!((alone.sent(), &alone.done[..]), (vec![], &["close 1000".to_owned()][..]));
    assert_eq!(alone.connector.poll_timeout(), None);
}

#[test]
fn one_that_closes_goes_on_dialling_for_what_it_has_in_hand() {
    let mut bench = Bench::connected();
    let call = bench.submit("1");
    bench.sent();
    bench.break_off();
    bench.connector.handle_close(bench.now, 5 * SECOND);
    assert_eq!(bench.pass(100 * MILLISECOND)[1..], ["PUT·ID·#·TOPIC·runs··1"]);
    bench.confirm();
    assert_eq!(bench.sent(), ["DISCONNECT"]);
    assert_eq!(bench.outcome(call), Some(Outcome::Done));
}
