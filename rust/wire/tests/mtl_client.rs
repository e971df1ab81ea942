//! The client's control connection of MTL, without a network; the test sets the clock.
#![allow(clippy::unwrap_used)] // a surprise fails the test

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use trunkline_wire::mtl::client::{
    Client, ClientAnswer, ClientEvent, ClientSettings, ClientSocket, ClientVerb, LoginStep, Outcome,
};
use trunkline_wire::mtl::control::{Command, Reply, command};
use trunkline_wire::{CallId, ErrorKind, Frames, Incoming, Machine as _, Nanos, Output, SocketEvent, SocketKind};

const SECOND: Duration = Duration::from_secs(1);

/// A client; the test is its server.
struct Bench {
    client: Client,
    now: Nanos,
    /// The current socket.
    socket: ClientSocket,
    /// The endpoint it is connected to.
    endpoint: String,
    calls: u64,
    /// Commands sent and not checked yet.
    said: Vec<Command>,
    events: Vec<ClientEvent>,
}

impl Bench {
    fn new() -> Self {
        let connect = vec!["tcp://127.0.0.1:1".to_owned(), "tcp://127.0.0.1:2".to_owned()];
        let mut bench = Self {
            client: Client::new(ClientSettings { connect, ..ClientSettings::default() }),
            now: Nanos(0),
            socket: ClientSocket(u32::MAX),
            endpoint: String::new(),
            calls: 0,
            said: vec![],
            events: vec![],
        };
        bench.drain();
        bench
    }

    fn drain(&mut self) {
        while let Some(output) = self.client.poll_output() {
            match output {
                Output::Open(open) => {
                    assert_eq!(open.kind, SocketKind::Req);
                    self.socket = open.socket;
                    self.endpoint.clone_from(&open.connect[0]);
                }
                Output::Send { socket, frames, .. } => {
                    assert_eq!(socket, self.socket);
                    let frames: Frames = frames.into();
                    self.said.push(command(&frames[0], &frames[1], 0).unwrap());
                }
                Output::Close { socket, .. } => self.client.handle_socket(self.now, socket, SocketEvent::Closed),
                Output::Connect { .. } | Output::Disconnect { .. } | Output::Withdraw { .. } => {}
            }
        }
        self.events.extend(std::iter::from_fn(|| self.client.poll_event()));
    }

    fn call(&mut self, name: &str, timeout: Option<Duration>) -> CallId {
        self.calls += 1;
        let call = CallId(self.calls);
        let command = Some(Command { name: name.to_owned(), body: serde_json::Map::new() });
        self.client.handle_verb(self.now, ClientVerb::Call { call, command, timeout });
        self.drain();
        call
    }

    /// The one command sent since the last call.
    fn said(&mut self) -> String {
        let [command] = std::mem::take(&mut self.said).try_into().unwrap();
        command.name
    }

    fn take(&mut self, frames: &[&[u8]]) {
        let socket = self.socket;
        self.take_on(socket, frames);
    }

    fn take_on(&mut self, socket: ClientSocket, frames: &[&[u8]]) {
        let frames = frames.iter().map(|part| Bytes::copy_from_slice(part)).collect();
        self.client.handle_message(self.now, Incoming { socket, peer: None, user_id: None, host: None, frames });
        self.drain();
    }

    fn reply(&mut self, status: u16, body: &serde_json::Value) {
        self.take(&[status.to_string().as_bytes(), body.to_string().as_bytes()]);
    }

    fn says(&mut self, status: u16, text: &str) {
        self.reply(status, &json!({ "status": text }));
    }

    fn unauthorized(&mut self) {
        self.reply(401, &json!({"status": "Unauthorized", "mechanisms": ["PLAIN", "X"]}));
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.client.poll_timeout().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            self.client.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
    }

    fn answer(&mut self, answer: ClientAnswer) -> LoginStep {
        let asked = self.events.iter().position(|event| matches!(event, ClientEvent::Asked { .. })).unwrap();
        let ClientEvent::Asked { token, step, .. } = self.events.remove(asked) else { unreachable!() };
        self.client.handle_verb(self.now, ClientVerb::Answer(token, answer));
        self.drain();
        step
    }

    fn respond(&mut self, response: &'static [u8], is_done: bool) -> LoginStep {
        let response = Bytes::from_static(response);
        self.answer(ClientAnswer::Respond { mechanism: "X".to_owned(), response, is_done })
    }

    /// The calls that ended since the last call of this, with their outcomes.
    fn ended(&mut self) -> Vec<(CallId, Outcome)> {
        let events = std::mem::take(&mut self.events).into_iter();
        let ended = events.filter_map(|event| {
            let ClientEvent::Ended(call, outcome) = event else { return None };
            Some((call, outcome))
        });
        ended.collect()
    }

    /// Answers Open and Profile, up to the command.
    fn enter(&mut self) {
        assert_eq!(self.said(), "Connection.Open");
        self.reply(201, &json!({"status": "Ready", "profiles": ["queue"]}));
        self.select();
    }

    fn select(&mut self) {
        assert_eq!(self.said(), "Connection.Profile");
        self.says(200, "OK");
    }

    /// A client with an open session and no pending call.
    fn inside() -> Self {
        let mut bench = Self::new();
        bench.call("Queue.List", None);
        bench.enter();
        assert_eq!(bench.said(), "Queue.List");
        bench.says(200, "OK");
        assert_eq!(bench.ended().len(), 1);
        bench
    }
}

fn said(status: u16, text: &str) -> Outcome {
    let body = json!({ "status": text }).as_object().unwrap().clone();
    Outcome::Reply(Reply { status, body })
}

// req: MTL-01, MTL-11
#[test]
fn says_nothing_until_it_is_asked_and_one_thing_at_a_time() {
    let mut bench = Bench::new();
    bench.pass(3600 * SECOND);
    assert!(bench.said.is_empty());
    let [first, second] = ["Queue.List", "Queue.Info"].map(|name| bench.call(name, None));
    bench.enter();
    assert_eq!(bench.said(), "Queue.List");
    bench.says(200, "one");
    assert_eq!(bench.ended(), [(first, said(200, "one"))]);
    assert_eq!(bench.said(), "Queue.Info");
    bench.says(404, "two");
    assert_eq!(bench.ended(), [(second, said(404, "two"))]);
    bench.pass(3600 * SECOND);
    assert!(bench.said.is_empty() && bench.ended().is_empty());
}

// req: MTL-02
#[test]
fn a_server_that_does_not_answer_is_found_out_and_the_next_is_asked() {
    let mut bench = Bench::inside();
    let call = bench.call("Queue.List", Some(SECOND));
    let waits = bench.call("Queue.Info", None);
    assert_eq!(bench.said(), "Queue.List");
    let (before, endpoint) = (bench.socket, bench.endpoint.clone());
    bench.pass(SECOND);
    assert_eq!(bench.ended(), [(call, Outcome::TimedOut)]);
    assert!(bench.socket != before && bench.endpoint != endpoint, "{}", bench.endpoint);
    // The old request is answered now, and ignored.
    bench.take_on(before, &[b"200", b"{}"]);
    assert!(bench.ended().is_empty());
    bench.enter();
    assert_eq!(bench.said(), "Queue.Info");
    bench.says(200, "OK");
    assert_eq!(bench.ended(), [(waits, said(200, "OK"))]);
    assert_eq!(bench.client.stats().reconnects, 1);
}

// req: MTL-02
#[test]
fn a_session_that_does_not_come_about_is_tried_elsewhere_until_time_is_up() {
    let mut bench = Bench::new();
    let call = bench.call("Queue.List", Some(6 * SECOND));
    // Each endpoint has its share of the five seconds that a session may take.
    let endpoints: Vec<_> = (0..3)
        .map(|_| {
            assert_eq!(bench.said(), "Connection.Open");
            let endpoint = bench.endpoint.clone();
            bench.pass(Duration::from_millis(2500));
            endpoint
        })
        .collect();
    assert!(endpoints[0] != endpoints[1] && endpoints[0] == endpoints[2]);
    assert_eq!(bench.ended(), [(call, Outcome::TimedOut)]);
    assert!(bench.said.is_empty(), "no call waits for it");
}

// req: MTL-02
#[test]
fn a_call_of_little_time_comes_to_each_endpoint() {
    let mut bench = Bench::new();
    let call = bench.call("Queue.List", Some(SECOND));
    assert_eq!(bench.said(), "Connection.Open");
    bench.pass(SECOND / 2);
    assert_eq!(bench.endpoint, "tcp://127.0.0.1:2");
    bench.enter();
    assert_eq!(bench.said(), "Queue.List");
    bench.pass(SECOND / 4);
    bench.says(200, "OK");
    assert_eq!(bench.ended(), [(call, said(200, "OK"))]);
}

// req: MTL-16
#[test]
fn it_is_known_whether_it_was_the_login_that_took_too_long() {
    let mut bench = Bench::new();
    bench.call("Queue.List", None);
    assert_eq!(bench.said(), "Connection.Open");
    assert!(!bench.client.stats().logs_in);
    bench.unauthorized();
    bench.respond(b"secret", true);
    assert!(bench.client.stats().logs_in);
    bench.pass(5 * SECOND);
    assert!(bench.client.stats().logs_in);
    bench.call("Queue.List", None);
    assert!(!bench.client.stats().logs_in);
}

// req: MTL-02
#[test]
fn a_session_that_may_take_no_time_is_not_begun_without_end() {
    let settings = ClientSettings { timeout: Duration::ZERO, ..ClientSettings::default() };
    let mut client = Client::new(settings);
    let (call, timeout) = (CallId(1), Some(SECOND));
    client.handle_verb(Nanos(0), ClientVerb::Call { call, command: None, timeout });
    client.handle_timeout(Nanos(0));
    assert!(client.poll_timeout().unwrap() > Nanos(0));
}

// req: MTL-02
#[test]
fn what_is_asked_on_a_connection_that_is_lost_is_not_asked_again() {
    let mut bench = Bench::inside();
    let call = bench.call("Queue.Purge", None);
    assert_eq!(bench.said(), "Queue.Purge");
    bench.client.handle_socket(bench.now, bench.socket, SocketEvent::Disconnected("tcp://127.0.0.1:1".into()));
    bench.drain();
    assert_eq!(bench.ended(), [(call, Outcome::Lost)]);
    // With nothing in flight a lost connection ends no call, and Open is sent again on the new one.
    bench.client.handle_socket(bench.now, bench.socket, SocketEvent::Disconnected("tcp://127.0.0.1:2".into()));
    bench.drain();
    let call = bench.call("Queue.List", None);
    bench.enter();
    assert_eq!(bench.said(), "Queue.List");
    bench.says(200, "OK");
    assert_eq!(bench.ended(), [(call, said(200, "OK"))]);
}

#[test]
fn a_server_that_hangs_up_without_a_word_is_asked_less_and_less_often() {
    let mut bench = Bench::new();
    let call = bench.call("Queue.List", Some(Duration::from_secs(60)));
    let mut waits = vec![];
    for endpoint in ["tcp://127.0.0.1:1", "tcp://127.0.0.1:2", "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"] {
        assert_eq!(bench.endpoint, endpoint);
        assert_eq!(bench.said(), "Connection.Open");
        bench.client.handle_socket(bench.now, bench.socket, SocketEvent::Disconnected(endpoint.into()));
        bench.drain();
        assert!(bench.said.is_empty());
        let opens = bench.client.poll_timeout().unwrap();
        waits.push((opens - bench.now).as_millis());
        bench.now = opens;
        bench.client.handle_timeout(bench.now);
        bench.drain();
    }
    assert_eq!(waits, [100, 200, 400, 800]);
    // Once it has sent something, a lost connection is replaced at once.
    bench.enter();
    assert_eq!(bench.said(), "Queue.List");
    bench.client.handle_socket(bench.now, bench.socket, SocketEvent::Disconnected("tcp://127.0.0.1:1".into()));
    bench.drain();
    assert_eq!((bench.ended(), bench.endpoint.as_str()), (vec![(call, Outcome::Lost)], "tcp://127.0.0.1:2"));
}

#[test]
fn a_client_that_waits_before_it_connects_again_ends_when_it_is_closed() {
    let mut bench = Bench::new();
    let call = bench.call("Queue.List", None);
    bench.client.handle_socket(bench.now, bench.socket, SocketEvent::Disconnected("tcp://127.0.0.1:1".into()));
    bench.client.handle_close(bench.now, Duration::ZERO);
    bench.drain();
    assert!(bench.client.is_closed());
    assert_eq!(bench.ended(), [(call, Outcome::Unanswered)]);
}

// req: MTL-08
#[test]
fn a_reply_that_is_none_ends_the_call_and_not_the_client() {
    let rows: &[(&[&[u8]], ErrorKind)] = &[
        (&[b"200"], ErrorKind::BadFrameCount),
        (&[b"200", b"{}", b""], ErrorKind::BadFrameCount),
        (&[b"200", b"[]"], ErrorKind::BadJson),
        (&[b"199", b"{}"], ErrorKind::BadStatus),
        (&[b"Connection.Open", b"{}"], ErrorKind::BadStatus),
        (&[b"\x08", b""], ErrorKind::BadStatus),
        (&[b"", b""], ErrorKind::EmptyHeader),
    ];
    let mut bench = Bench::inside();
    for (frames, kind) in rows {
        let call = bench.call("Queue.List", None);
        assert_eq!(bench.said(), "Queue.List");
        bench.take(frames);
        let ended = bench.ended();
        let [(ended, Outcome::Garbled(error))] = ended.as_slice() else { panic!("{ended:?}") };
        assert_eq!((*ended, error.kind), (call, *kind));
    }
    assert_eq!(bench.client.stats().dropped.values().sum::<u64>(), rows.len() as u64);
    // In reply to Open it ends the call that waits for the session.
    let mut bench = Bench::new();
    let call = bench.call("Queue.List", None);
    bench.take(&[b"201", b"?"]);
    assert!(matches!(bench.ended().as_slice(), [(ended, Outcome::Garbled(_))] if *ended == call));
}

#[test]
fn a_reply_to_no_call_is_nothing() {
    let mut bench = Bench::inside();
    bench.says(200, "OK");
    bench.unauthorized();
    let call = bench.call("Queue.List", None);
    assert_eq!(bench.said(), "Queue.List");
    bench.says(200, "mine");
    assert_eq!(bench.ended(), [(call, said(200, "mine"))]);
}

// req: MTL-14, MTL-15, MTL-16, MTL-17, MTL-18
#[test]
fn logs_in_step_by_step_whenever_the_server_wants_it() {
    let mut bench = Bench::inside();
    let call = bench.call("Connection.Reader", None);
    assert_eq!(bench.said(), "Connection.Reader");
    bench.unauthorized();
    let step = bench.respond(b"", false);
    assert_eq!(step, LoginStep::Begin { mechanisms: vec!["PLAIN".to_owned(), "X".to_owned()] });
    for _ in 0..16 {
        let [command] = std::mem::take(&mut bench.said).try_into().unwrap();
        assert_eq!((command.name.as_str(), &command.body["mechanism"]), ("Connection.Authorize", &json!("X")));
        bench.reply(402, &json!({"status": "Challenged", "mechanism": "X", "challenge": "YQ=="}));
        let step = bench.respond(b"b", true);
        assert_eq!(step, LoginStep::Challenge { mechanism: "X".to_owned(), challenge: Bytes::from_static(b"a") });
    }
    let [command] = std::mem::take(&mut bench.said).try_into().unwrap();
    assert_eq!(command.body["response"], "Yg==");
    bench.reply(201, &json!({"status": "Ready"}));
    bench.select();
    assert_eq!(bench.said(), "Connection.Reader");
    bench.says(202, "Data Lease");
    assert_eq!(bench.ended(), [(call, said(202, "Data Lease"))]);
}

// req: MTL-15, MTL-17
#[test]
fn a_login_that_fails_says_why() {
    let offered = vec!["PLAIN".to_owned(), "X".to_owned()];
    let mut bench = Bench::new();
    let refused = bench.call("Queue.List", None);
    assert_eq!(bench.said(), "Connection.Open");
    bench.unauthorized();
    bench.respond(b"", true);
    bench.said();
    bench.unauthorized();
    assert_eq!(bench.ended(), [(refused, Outcome::Unauthenticated(offered.clone()))]);

    // The next one tries again, and gives up by itself.
    let given_up = bench.call("Queue.List", None);
    bench.answer(ClientAnswer::GiveUp("no password".to_owned()));
    assert_eq!(bench.ended(), [(given_up, Outcome::NoLogin("no password".to_owned(), offered))]);

    // A server that accepts us without proving itself is not trusted.
    let unproved = bench.call("Queue.List", None);
    assert_eq!(bench.said(), "Connection.Open");
    bench.unauthorized();
    bench.respond(b"", false);
    bench.said();
    bench.reply(201, &json!({"status": "Ready"}));
    assert!(matches!(bench.ended().as_slice(), [(call, Outcome::NoLogin(..))] if *call == unproved));

    // An invalid challenge.
    let garbled = bench.call("Queue.List", None);
    bench.said();
    bench.unauthorized();
    bench.respond(b"", false);
    bench.said();
    bench.reply(402, &json!({"status": "Challenged", "challenge": "?"}));
    assert!(matches!(bench.ended().as_slice(), [(call, Outcome::Reply(_))] if *call == garbled));
}

// req: MTL-15
#[test]
fn a_question_that_nobody_answers_ends_the_call() {
    let mut bench = Bench::new();
    let call = bench.call("Queue.List", Some(60 * SECOND));
    bench.said();
    bench.unauthorized();
    bench.pass(5 * SECOND);
    assert_eq!(bench.ended(), [(call, Outcome::TimedOut)]);
    let call = bench.call("Queue.List", None);
    bench.enter();
    bench.said();
    bench.says(200, "OK");
    assert_eq!(bench.ended(), [(call, said(200, "OK"))]);
}

// req: MTL-11, MTL-24
#[test]
fn a_session_that_the_server_has_lost_is_made_again() {
    let mut bench = Bench::inside();
    let call = bench.call("Queue.List", None);
    assert_eq!(bench.said(), "Queue.List");
    bench.says(400, "Open first");
    bench.enter();
    assert_eq!(bench.said(), "Queue.List");
    bench.says(400, "Select a profile first");
    bench.select();
    assert_eq!(bench.said(), "Queue.List");
    bench.says(200, "OK");
    assert_eq!(bench.ended(), [(call, said(200, "OK"))]);
    // Another text with the same status is an answer.
    let call = bench.call("Queue.List", None);
    bench.said();
    bench.says(400, "open first");
    assert_eq!(bench.ended(), [(call, said(400, "open first"))]);
}

// req: MTL-11
#[test]
fn a_command_is_said_again_three_times_at_most() {
    let mut bench = Bench::inside();
    let call = bench.call("Queue.List", None);
    for _ in 0..3 {
        assert_eq!(bench.said(), "Queue.List");
        bench.says(400, "Select a profile first");
        bench.select();
    }
    assert_eq!(bench.said(), "Queue.List");
    bench.says(400, "Select a profile first");
    assert_eq!(bench.ended(), [(call, said(400, "Select a profile first"))]);
    assert!(bench.said.is_empty());

    // A login that never suffices.
    let call = bench.call("Queue.List", None);
    bench.select();
    for turn in 0.. {
        assert!(turn < 10, "it does not give up");
        assert_eq!(bench.said(), "Queue.List");
        bench.unauthorized();
        if bench.events.iter().any(|event| matches!(event, ClientEvent::Ended(..))) {
            break;
        }
        bench.respond(b"", true);
        assert_eq!(bench.said(), "Connection.Authorize");
        bench.reply(201, &json!({"status": "Ready"}));
        bench.select();
    }
    assert!(matches!(bench.ended().as_slice(), [(ended, Outcome::Unauthenticated(_))] if *ended == call));
}

// req: MTL-15
#[test]
fn a_profile_for_which_no_login_is_enough_is_given_up() {
    let mut bench = Bench::new();
    let call = bench.call("Queue.List", Some(3600 * SECOND));
    assert_eq!(bench.said(), "Connection.Open");
    bench.unauthorized();
    for turn in 0.. {
        assert!(turn < 10, "it does not give up");
        bench.respond(b"", true);
        assert_eq!(bench.said(), "Connection.Authorize");
        bench.reply(201, &json!({"status": "Ready"}));
        assert_eq!(bench.said(), "Connection.Profile");
        bench.unauthorized();
        if bench.events.iter().any(|event| matches!(event, ClientEvent::Ended(..))) {
            break;
        }
    }
    assert!(matches!(bench.ended().as_slice(), [(ended, Outcome::Unauthenticated(_))] if *ended == call));
}

#[test]
fn what_is_cancelled_is_not_said_and_not_ended() {
    let mut bench = Bench::inside();
    let [first, second] = ["Queue.List", "Queue.Purge"].map(|name| bench.call(name, None));
    bench.client.handle_verb(bench.now, ClientVerb::Cancel(second));
    assert_eq!(bench.said(), "Queue.List");
    bench.client.handle_verb(bench.now, ClientVerb::Cancel(first));
    bench.says(200, "OK");
    assert!(bench.ended().is_empty() && bench.said.is_empty());
}

// req: MTL-02
#[test]
fn nobody_waits_for_the_reply_to_what_was_cancelled() {
    let mut bench = Bench::inside();
    let cancelled = bench.call("Queue.List", Some(3600 * SECOND));
    bench.said();
    bench.client.handle_verb(bench.now, ClientVerb::Cancel(cancelled));
    let next = bench.call("Queue.Info", None);
    bench.enter();
    assert_eq!(bench.said(), "Queue.Info");
    bench.says(200, "OK");
    assert_eq!(bench.ended(), [(next, said(200, "OK"))]);
    assert_eq!(bench.client.stats().reconnects, 1);
}

#[test]
fn closing_waits_for_what_is_under_way() {
    let mut bench = Bench::inside();
    let call = bench.call("Queue.List", None);
    bench.said();
    bench.client.handle_close(bench.now, SECOND);
    bench.drain();
    assert!(!bench.client.is_closed());
    let late = bench.call("Queue.Info", None);
    assert_eq!(bench.ended(), [(late, Outcome::Unanswered)]);
    bench.says(200, "OK");
    assert_eq!(bench.ended(), [(call, said(200, "OK"))]);
    assert!(bench.client.is_closed());

    let mut bench = Bench::inside();
    let call = bench.call("Queue.List", None);
    bench.client.handle_close(bench.now, SECOND);
    bench.drain();
    bench.pass(SECOND);
    assert_eq!(bench.ended(), [(call, Outcome::Unanswered)]);
    assert!(bench.client.is_closed());
}
