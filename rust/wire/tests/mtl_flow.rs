//! A client's data connection of MTL, without a network; the test sets the clock.
#![allow(clippy::unwrap_used)] // a surprise fails the test

use std::time::Duration;

use bytes::Bytes;
use trunkline_wire::mtl::Pings;
use trunkline_wire::mtl::data::{self, Kind};
use trunkline_wire::mtl::flow::{
    Asked, Denial, Flow, FlowEvent, FlowOutcome, FlowSettings, FlowSocket, FlowVerb, Grant,
};
use trunkline_wire::question::Token;
use trunkline_wire::{
    CallId, Frames, Incoming, Machine as _, Nanos, Output, SendId, SocketEvent, SocketKind, SocketOptions, Unsent,
};

const SECOND: Duration = Duration::from_secs(1);
const EMPTY_TABLE: [u8; 4] = [0; 4];
/// How a client marks a content that may have been delivered before.
const MARKED: &[u8] = b"\0\0\0\x0e\x0bredeliveredt\x01";

/// A data connection; the test is its server.
struct Bench {
    flow: Flow,
    now: Nanos,
    socket: FlowSocket,
    is_open: bool,
    calls: u64,
    said: Vec<Frames>,
    events: Vec<FlowEvent>,
    /// While the transport takes nothing: what it was offered.
    deaf: Option<Vec<SendId>>,
}

fn settings(reads: bool, is_confirmed: bool) -> FlowSettings {
    FlowSettings {
        reads,
        resources: vec!["jobs".to_owned(), "logs".to_owned()],
        is_confirmed,
        window: 3,
        grant: grant(1),
        options: SocketOptions::default(),
        timeout: 5 * SECOND,
        pings: Pings::default(),
        shows_secrets: false,
    }
}

fn grant(number: u32) -> Grant {
    Grant { endpoint: format!("tcp://127.0.0.1:{number}"), lease: format!("lease {number}") }
}

fn body(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

impl Bench {
    fn showing(settings: FlowSettings) -> Self {
        let flow = Flow::new(Nanos(0), settings);
        let socket = FlowSocket(u32::MAX);
        let (said, events) = (vec![], vec![]);
        let mut bench = Self { flow, now: Nanos(0), socket, is_open: false, calls: 0, said, events, deaf: None };
        bench.drain();
        bench
    }

    /// A connection whose lease is accepted.
    fn up(settings: FlowSettings) -> Self {
        let mut bench = Self::showing(settings);
        assert_eq!(bench.said(), [data::lease(1, "lease 1")]);
        bench.take(data::response(1, 200));
        bench
    }

    fn reader() -> Self {
        Self::up(settings(true, true))
    }

    fn writer() -> Self {
        Self::up(settings(false, true))
    }

    fn drain(&mut self) {
        loop {
            let mut taken = vec![];
            while let Some(output) = self.flow.poll_output() {
                match output {
                    Output::Open(open) => {
                        assert_eq!(open.kind, SocketKind::Dealer);
                        assert!(!self.is_open, "one at a time");
                        (self.socket, self.is_open) = (open.socket, true);
                    }
                    Output::Send { id, socket, frames, .. } => {
                        assert!(self.is_open && socket == self.socket);
                        if let Some(deaf) = &mut self.deaf {
                            deaf.extend(id);
                            continue;
                        }
                        self.said.push(frames.into());
                        taken.extend(id);
                    }
                    Output::Close { socket, .. } => {
                        self.is_open = false;
                        self.flow.handle_socket(self.now, socket, SocketEvent::Closed);
                    }
                    Output::Connect { .. } | Output::Disconnect { .. } | Output::Withdraw { .. } => {}
                }
            }
            self.events.extend(std::iter::from_fn(|| self.flow.poll_event()));
            if taken.is_empty() {
                return;
            }
            for id in taken {
                self.flow.handle_socket(self.now, self.socket, SocketEvent::Sent(id));
            }
        }
    }

    fn said(&mut self) -> Vec<Frames> {
        std::mem::take(&mut self.said)
    }

    fn take(&mut self, frames: Frames) {
        let incoming = Incoming { socket: self.socket, peer: None, user_id: None, host: None, frames };
        self.flow.handle_message(self.now, incoming);
        self.drain();
    }

    fn verb(&mut self, verb: FlowVerb) {
        self.flow.handle_verb(self.now, verb);
        self.drain();
    }

    fn call(&mut self, asked: Asked, resource: &str) -> CallId {
        self.calls += 1;
        let call = CallId(self.calls);
        self.verb(FlowVerb::Call { call, asked, resource: resource.to_owned(), timeout: None });
        call
    }

    fn send(&mut self, text: &str) {
        let properties = Bytes::from_static(&EMPTY_TABLE);
        self.verb(FlowVerb::Send { resource: "jobs".to_owned(), properties, body: body(text) });
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.flow.poll_timeout().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            self.flow.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
    }

    fn events(&mut self) -> Vec<FlowEvent> {
        std::mem::take(&mut self.events)
    }

    /// The request for a new lease.
    fn wanted(&mut self) -> Token {
        let wanted = self.events.iter().position(|event| matches!(event, FlowEvent::Wanted(_))).unwrap();
        let FlowEvent::Wanted(token) = self.events.remove(wanted) else { unreachable!() };
        token
    }

    fn disconnect(&mut self) {
        let gone = SocketEvent::Disconnected("tcp://127.0.0.1:1".into());
        self.flow.handle_socket(self.now, self.socket, gone);
        self.drain();
    }

    /// Grants a new lease, which is redeemed.
    fn grant(&mut self, number: u32) -> u64 {
        self.pass(SECOND);
        let token = self.wanted();
        self.verb(FlowVerb::Granted(token, grant(number)));
        let said = self.said();
        let sequence = data::decode(&said[0]).unwrap().sequence;
        assert_eq!(said, [data::lease(sequence, &format!("lease {number}"))]);
        sequence
    }

    /// Loses the connection and gets another.
    fn again(&mut self, number: u32) {
        self.disconnect();
        assert_eq!(self.events(), [gone(), FlowEvent::Lost]);
        let sequence = self.grant(number);
        self.take(data::response(sequence, 200));
    }

    fn content(&mut self, sequence: u64) {
        self.take(data::content(sequence, "jobs", &EMPTY_TABLE, body("x")));
    }

    fn confirm(&mut self, sequence: u64, multiple: bool) {
        self.verb(FlowVerb::Confirm { connection: self.socket.0, sequence, multiple });
    }

    fn reject(&mut self, sequence: u64, multiple: bool, recycle: bool) {
        self.verb(FlowVerb::Reject { connection: self.socket.0, sequence, multiple, recycle });
    }

    /// Summons a resource, and answers.
    fn summon(&mut self, resource: &str) {
        let call = self.call(Asked::Summon, resource);
        let said = self.said();
        self.take(data::response(data::decode(&said[0]).unwrap().sequence, 200));
        assert_eq!(self.events(), [FlowEvent::Ended(call, FlowOutcome::Done)]);
    }

    /// The kinds and names of the messages sent, without sequences.
    fn kinds(&mut self) -> Vec<(Kind, String)> {
        let named = self.said().into_iter().map(|frames| {
            let layout = data::decode(&frames).unwrap();
            (layout.kind, String::from_utf8(frames[0][layout.name].to_vec()).unwrap())
        });
        named.collect()
    }
}

fn gone() -> FlowEvent {
    let event = SocketEvent::Disconnected("tcp://127.0.0.1:1".into());
    FlowEvent::Connection(event.connection().unwrap())
}

// req: MTL-34, MTL-35
#[test]
fn the_lease_is_shown_first_and_all_else_waits_for_its_answer() {
    let mut bench = Bench::showing(settings(false, true));
    let call = bench.call(Asked::Open, "");
    bench.send("a");
    assert_eq!(bench.said(), [data::lease(1, "lease 1")]);
    bench.take(data::response(1, 200));
    assert_eq!(bench.events(), [FlowEvent::Ended(call, FlowOutcome::Done)]);
    assert_eq!(bench.said(), [data::content(2, "jobs", &EMPTY_TABLE, body("a"))]);
    let call = bench.call(Asked::Open, "");
    assert_eq!(bench.events(), [FlowEvent::Ended(call, FlowOutcome::Done)]);
}

// req: MTL-35
#[test]
fn a_lease_that_is_refused_is_said_and_another_is_wanted() {
    let mut bench = Bench::showing(settings(true, true));
    let call = bench.call(Asked::Open, "");
    bench.said();
    bench.take(data::response(1, 403));
    assert_eq!(bench.events(), [FlowEvent::Ended(call, FlowOutcome::Refused(403))]);
    let sequence = bench.grant(2);
    bench.take(data::response(sequence, 200));
    assert_eq!(bench.events(), [FlowEvent::Found]);
    assert_eq!(bench.flow.stats().reconnects, 0, "it was never there");
}

// req: MTL-35, MTL-58
#[test]
fn a_lease_that_is_not_answered_is_given_up_and_waits_grow() {
    let mut bench = Bench::showing(settings(true, true));
    bench.pass(5 * SECOND);
    assert!(bench.events().is_empty() && !bench.is_open);
    let mut waits = vec![];
    for _ in 0..10 {
        let before = bench.now;
        while bench.events.is_empty() {
            let at = bench.flow.poll_timeout().unwrap();
            bench.pass(at - bench.now);
        }
        waits.push(bench.now - before);
        let token = bench.wanted();
        bench.verb(FlowVerb::Denied(token, Denial::Later));
    }
    let expected: Vec<_> = (0..10).map(|at| Duration::from_millis(100 << at).min(8 * SECOND)).collect();
    assert_eq!(waits, expected);
}

#[test]
fn all_calls_end_where_there_will_be_no_lease() {
    let mut bench = Bench::reader();
    bench.disconnect();
    bench.events();
    let summon = bench.call(Asked::Summon, "jobs");
    bench.pass(SECOND);
    let token = bench.wanted();
    bench.verb(FlowVerb::Denied(token, Denial::Never("not allowed".to_owned())));
    let lost = FlowOutcome::Lost("not allowed".to_owned());
    assert_eq!(bench.events(), [FlowEvent::Ended(summon, lost), FlowEvent::Failed("not allowed".to_owned())]);
    let late = bench.call(Asked::Summon, "jobs");
    assert!(matches!(bench.events().as_slice(), [FlowEvent::Ended(call, FlowOutcome::Lost(_))] if *call == late));
    // A second answer to the same request has no effect.
    bench.verb(FlowVerb::Granted(token, grant(3)));
    bench.pass(3600 * SECOND);
    assert!(bench.said().is_empty() && bench.events().is_empty());
}

// req: MTL-36
#[test]
fn commands_do_not_wait_and_are_answered_in_any_order() {
    let mut bench = Bench::reader();
    let [jobs, logs] = ["jobs", "logs"].map(|resource| bench.call(Asked::Summon, resource));
    assert_eq!(bench.said(), [data::summon(2, "jobs"), data::summon(3, "logs")]);
    bench.take(data::response(3, 400));
    bench.take(data::response(2, 200));
    let ended = [(logs, FlowOutcome::Refused(400)), (jobs, FlowOutcome::Done)];
    assert_eq!(bench.events(), ended.map(|(call, outcome)| FlowEvent::Ended(call, outcome)));
    bench.take(data::response(3, 200));
    bench.take(data::response(99, 200));
    assert!(bench.events().is_empty());
}

// req: MTL-37, MTL-38, MTL-41, MTL-42
#[test]
fn what_the_protocol_forbids_is_not_sent() {
    let forbidden = |bench: &mut Bench, asked, resource: &str| {
        let call = bench.call(asked, resource);
        let events = bench.events();
        matches!(events.as_slice(), [FlowEvent::Ended(ended, FlowOutcome::Forbidden(_))] if *ended == call)
            && bench.said().is_empty()
    };
    let mut bench = Bench::reader();
    assert!(forbidden(&mut bench, Asked::Summon, "nothing"));
    assert!(forbidden(&mut bench, Asked::Dismiss, "jobs"));
    bench.summon("jobs");
    assert!(forbidden(&mut bench, Asked::Summon, "jobs"));
    bench.call(Asked::Dismiss, "jobs");
    assert_eq!(bench.said(), [data::dismiss(3, "jobs")]);
    assert!(forbidden(&mut bench, Asked::Dismiss, "jobs"));
    let mut bench = Bench::writer();
    assert!(forbidden(&mut bench, Asked::Summon, "jobs"));
}

// req: MTL-36, MTL-38, MTL-42
#[test]
fn what_is_summoned_while_it_is_dismissed_is_summoned() {
    for in_order in [true, false] {
        let mut bench = Bench::reader();
        bench.summon("jobs");
        bench.call(Asked::Dismiss, "jobs");
        bench.call(Asked::Summon, "jobs");
        assert_eq!(bench.said(), [data::dismiss(3, "jobs"), data::summon(4, "jobs")]);
        for sequence in if in_order { [3, 4] } else { [4, 3] } {
            bench.take(data::response(sequence, 200));
        }
        bench.events();
        bench.again(2);
        assert_eq!(bench.kinds(), [(Kind::Summon, "jobs".to_owned())]);
    }
}

// req: MTL-36, MTL-42
#[test]
fn a_connection_that_is_lost_takes_what_was_asked_last() {
    // The order of the table of commands depends on the sequences.
    for before in 0..8 {
        let mut bench = Bench::reader();
        for _ in 0..before {
            bench.summon("logs");
            bench.call(Asked::Dismiss, "logs");
            let said = bench.said();
            bench.take(data::response(data::decode(&said[0]).unwrap().sequence, 200));
            bench.events();
        }
        bench.summon("jobs");
        bench.call(Asked::Dismiss, "jobs");
        let jobs = bench.call(Asked::Summon, "jobs");
        let summoned = bench.call(Asked::Summon, "logs");
        let dismissed = bench.call(Asked::Dismiss, "logs");
        bench.said();
        bench.events();
        bench.disconnect();
        let done = |call| FlowEvent::Ended(call, FlowOutcome::Done);
        let events = bench.events();
        assert!(events.contains(&done(summoned)) && events.contains(&done(dismissed)), "{events:?}");
        let sequence = bench.grant(2);
        bench.take(data::response(sequence, 200));
        assert_eq!(bench.said(), [data::summon(sequence + 1, "jobs")]);
        bench.take(data::response(sequence + 1, 200));
        assert_eq!(bench.events(), [FlowEvent::Found, done(jobs)]);
    }
}

// req: MTL-37, MTL-58
#[test]
fn what_is_summoned_is_summoned_again() {
    let mut bench = Bench::showing(settings(true, true));
    let jobs = bench.call(Asked::Summon, "jobs");
    assert_eq!(bench.said(), [data::lease(1, "lease 1")]);
    bench.take(data::response(1, 200));
    assert_eq!(bench.said(), [data::summon(2, "jobs")]);
    bench.take(data::response(2, 200));
    assert_eq!(bench.events(), [FlowEvent::Ended(jobs, FlowOutcome::Done)]);
    bench.again(2);
    assert_eq!(bench.said(), [data::summon(4, "jobs")]);
    bench.take(data::response(4, 400));
    // No call is pending this time, but the user waits for contents.
    let refused = FlowEvent::Refused { resource: "jobs".to_owned(), status: 400 };
    assert_eq!(bench.events(), [FlowEvent::Found, refused]);
    bench.again(3);
    assert!(bench.said().is_empty());
}

// req: MTL-36
#[test]
fn a_summons_whose_caller_went_away_is_told_of_when_it_is_refused() {
    let mut bench = Bench::reader();
    let call = bench.call(Asked::Summon, "jobs");
    bench.verb(FlowVerb::Cancel(call));
    bench.take(data::response(2, 400));
    assert_eq!(bench.events(), [FlowEvent::Refused { resource: "jobs".to_owned(), status: 400 }]);
}

// req: MTL-02, MTL-36
#[test]
fn a_command_that_is_not_answered_times_out() {
    let mut bench = Bench::reader();
    let call = bench.call(Asked::Summon, "jobs");
    for _ in 0..5 {
        bench.pass(SECOND);
        bench.take(data::pong());
    }
    assert_eq!(bench.events(), [FlowEvent::Ended(call, FlowOutcome::TimedOut)]);
}

// req: MTL-58
#[test]
fn a_reader_dismisses_while_it_is_away() {
    let mut bench = Bench::reader();
    bench.summon("jobs");
    bench.summon("logs");
    bench.disconnect();
    bench.events();
    let [away, summoned] =
        [(Asked::Dismiss, "jobs"), (Asked::Dismiss, "logs")].map(|(asked, name)| bench.call(asked, name));
    let done = |call| FlowEvent::Ended(call, FlowOutcome::Done);
    assert_eq!(bench.events(), [done(away), done(summoned)]);
    let call = bench.call(Asked::Summon, "logs");
    let sequence = bench.grant(2);
    bench.take(data::response(sequence, 200));
    assert_eq!(bench.said(), [data::summon(sequence + 1, "logs")]);
    bench.take(data::response(sequence + 1, 200));
    assert_eq!(bench.events(), [FlowEvent::Found, done(call)]);
}

// req: MTL-45, MTL-51
#[test]
fn a_writer_has_no_more_open_than_its_window() {
    let mut bench = Bench::writer();
    for text in ["a", "b", "c", "d", "e"] {
        bench.send(text);
    }
    let content = |sequence, text: &str| data::content(sequence, "jobs", &EMPTY_TABLE, body(text));
    assert_eq!(bench.said(), [content(2, "a"), content(3, "b"), content(4, "c")]);
    assert_eq!(bench.flow.backlog().messages, 5);
    bench.take(data::confirm(3, false));
    assert_eq!(bench.said(), [content(5, "d")]);
    bench.take(data::confirm(4, true));
    assert_eq!(bench.said(), [content(6, "e")]);
    bench.take(data::reject(5, false, false));
    bench.take(data::response(6, 400));
    let stats = bench.flow.stats();
    assert_eq!((stats.confirmed, stats.rejected, stats.unconfirmed), (3, 2, 0));
    assert_eq!(*stats.rejects, [4, 5]);
    // What is settled, or never was sent, is not settled again.
    for frames in
        [data::confirm(6, true), data::confirm(u64::MAX, true), data::reject(2, false, true), data::response(6, 400)]
    {
        bench.take(frames);
    }
    let stats = bench.flow.stats();
    assert_eq!((stats.confirmed, stats.rejected), (3, 2));
}

// req: MTL-58
#[test]
fn contents_that_were_not_confirmed_go_again_and_say_so() {
    let mut bench = Bench::writer();
    for text in ["a", "b", "c", "d"] {
        bench.send(text);
    }
    bench.take(data::confirm(2, false));
    bench.said();
    bench.again(2);
    let again = |sequence, text: &str| data::content(sequence, "jobs", MARKED, body(text));
    assert_eq!(bench.said(), [again(7, "b"), again(8, "c"), again(9, "d")]);
    // An answer to a content of the previous connection has no effect.
    bench.take(data::confirm(3, false));
    assert_eq!(bench.flow.stats().confirmed, 1);
    bench.take(data::confirm(9, true));
    let stats = bench.flow.stats();
    assert_eq!((stats.confirmed, stats.unconfirmed, stats.at_risk, stats.reconnects), (4, 0, 0, 1));
}

// req: MTL-50, MTL-58
#[test]
fn contents_that_nobody_confirms_are_at_risk_until_a_pong_follows_them() {
    let mut bench = Bench::up(settings(false, false));
    for text in ["a", "b"] {
        bench.send(text);
    }
    assert_eq!(bench.said().len(), 2);
    bench.pass(Duration::from_millis(2500));
    assert_eq!(bench.said(), [data::ping()]);
    bench.send("c");
    bench.said();
    bench.take(data::pong());
    bench.again(2);
    assert_eq!(bench.flow.stats().at_risk, 1);
    // It may have arrived, so it is not sent again.
    assert!(bench.kinds().is_empty());
}

// req: MTL-58
#[test]
fn a_pong_proves_what_went_before_its_ping() {
    let mut bench = Bench::up(settings(false, false));
    bench.pass(Duration::from_millis(2500));
    bench.send("a");
    bench.pass(Duration::from_millis(2500));
    assert_eq!(bench.said().iter().filter(|frames| **frames == data::ping()).count(), 2);
    // It answers the first.
    bench.take(data::pong());
    bench.disconnect();
    assert_eq!(bench.flow.stats().at_risk, 1);
}

// req: MTL-50
#[test]
fn a_writer_that_closes_hears_of_refusals_first() {
    let mut bench = Bench::up(settings(false, false));
    bench.send("a");
    bench.said();
    bench.flow.handle_close(bench.now, Duration::from_secs(5));
    bench.drain();
    assert_eq!(bench.said(), [data::ping()]);
    assert!(!bench.flow.is_closed());
    assert_eq!(bench.flow.backlog().messages, 1);
    bench.take(data::response(2, 400));
    bench.take(data::pong());
    assert!(bench.flow.is_closed());
    let stats = bench.flow.stats();
    assert_eq!((stats.rejected, stats.unconfirmed, stats.at_risk), (1, 0, 0));
}

// req: MTL-50
#[test]
fn a_flush_ends_with_the_pong_after_the_last_content() {
    let mut bench = Bench::up(settings(false, false));
    bench.verb(FlowVerb::Flush);
    assert!(bench.said().is_empty(), "nothing is to be shown");
    // An earlier Ping proves nothing of contents sent after it.
    bench.pass(Duration::from_millis(2500));
    assert_eq!(bench.said(), [data::ping()]);
    bench.send("a");
    bench.verb(FlowVerb::Flush);
    assert_eq!(bench.said().last(), Some(&data::ping()));
    bench.take(data::pong());
    assert_eq!(bench.flow.backlog().messages, 1);
    bench.take(data::pong());
    assert_eq!(bench.flow.backlog().messages, 0);
    bench.send("b");
    assert_eq!(bench.said().len(), 1, "a flush ends");
    bench.flow.handle_close(bench.now, Duration::ZERO);
    bench.drain();
    assert_eq!(bench.flow.stats().at_risk, 1);
}

// req: MTL-50
#[test]
fn what_the_transport_did_not_take_is_not_at_risk_and_goes_again() {
    let mut bench = Bench::up(settings(false, false));
    bench.deaf = Some(vec![]);
    for text in ["a", "b"] {
        bench.send(text);
    }
    let [first, second] = bench.deaf.take().unwrap().try_into().unwrap();
    bench.flow.handle_socket(bench.now, bench.socket, SocketEvent::Sent(first));
    bench.flow.handle_socket(bench.now, bench.socket, SocketEvent::Unsent(second, Unsent::Closed));
    bench.drain();
    assert_eq!(bench.events(), [FlowEvent::Lost]);
    let sequence = bench.grant(2);
    bench.take(data::response(sequence, 200));
    assert_eq!(bench.said(), [data::content(sequence + 1, "jobs", &EMPTY_TABLE, body("b"))]);
    assert_eq!(bench.flow.stats().at_risk, 1);
}

// req: MTL-56, MTL-57
#[test]
fn pings_are_answered_and_said_in_silence() {
    let mut bench = Bench::reader();
    bench.take(data::ping());
    assert_eq!(bench.said(), [data::pong()]);
    for _ in 0..4 {
        bench.pass(Duration::from_millis(2500));
        assert_eq!(bench.said(), [data::ping()]);
        bench.take(data::pong());
    }
    // A peer that sends messages need not ping.
    let mut bench = Bench::writer();
    for _ in 0..10 {
        bench.pass(SECOND);
        bench.send("x");
        let sequence = data::decode(&bench.said()[0]).unwrap().sequence;
        bench.take(data::confirm(sequence, false));
    }
}

// req: MTL-58
#[test]
fn a_server_that_is_silent_is_gone() {
    let mut bench = Bench::reader();
    bench.pass(Duration::from_millis(7400));
    assert!(bench.events().is_empty());
    bench.pass(Duration::from_millis(100));
    assert_eq!(bench.events(), [FlowEvent::Lost]);
    // While contents stay unread, silence means nothing.
    let mut bench = Bench::reader();
    bench.flow.handle_pressure(bench.now, true);
    bench.pass(3600 * SECOND);
    assert!(bench.events().is_empty());
}

// req: MTL-15, MTL-58
#[test]
fn a_server_that_has_let_go_of_the_lease_is_shown_another() {
    let mut bench = Bench::reader();
    bench.take(data::response(0, 404));
    assert!(bench.events().is_empty());
    bench.take(data::response(0, 403));
    assert_eq!(bench.events(), [FlowEvent::Lost]);
    let sequence = bench.grant(2);
    bench.take(data::response(sequence, 200));
    assert_eq!(bench.events(), [FlowEvent::Found]);
}

// req: MTL-15, MTL-36, MTL-58
#[test]
fn what_only_a_lease_lacks_for_is_asked_again_with_another() {
    let mut bench = Bench::writer();
    bench.send("a");
    bench.send("b");
    bench.take(data::confirm(2, false));
    bench.said();
    // A refusal of a settled or unknown content does not concern the lease.
    bench.take(data::response(2, 403));
    bench.take(data::response(99, 403));
    assert!(bench.events().is_empty());
    bench.take(data::response(3, 403));
    assert_eq!(bench.events(), [FlowEvent::Lost]);
    let sequence = bench.grant(2);
    bench.take(data::response(sequence, 200));
    assert_eq!(bench.said(), [data::content(sequence + 1, "jobs", MARKED, body("b"))]);
    assert_eq!((bench.flow.stats().rejected, bench.flow.stats().reconnects), (0, 1));

    for dismisses in [false, true] {
        let mut bench = Bench::reader();
        bench.summon("logs");
        let call = if dismisses { bench.call(Asked::Dismiss, "logs") } else { bench.call(Asked::Summon, "jobs") };
        let refused = data::decode(&bench.said()[0]).unwrap().sequence;
        bench.take(data::response(refused, 403));
        let done = FlowEvent::Ended(call, FlowOutcome::Done);
        let expected = if dismisses { vec![FlowEvent::Lost, done.clone()] } else { vec![FlowEvent::Lost] };
        assert_eq!(bench.events(), expected);
        let sequence = bench.grant(2);
        bench.take(data::response(sequence, 200));
        if dismisses {
            assert!(bench.said().is_empty());
        } else {
            assert_eq!(bench.said(), [data::summon(sequence + 1, "jobs"), data::summon(sequence + 2, "logs")]);
            bench.take(data::response(sequence + 1, 200));
            assert_eq!(bench.events(), [FlowEvent::Found, done]);
        }
    }
}

// req: MTL-35, MTL-58
#[test]
fn a_lease_that_never_holds_is_asked_for_less_and_less() {
    let mut bench = Bench::reader();
    bench.summon("jobs");
    bench.disconnect();
    let mut waits = vec![];
    for number in 2..6 {
        let before = bench.now;
        bench.events();
        while bench.events.is_empty() {
            let at = bench.flow.poll_timeout().unwrap();
            bench.pass(at - bench.now);
        }
        waits.push(bench.now - before);
        let token = bench.wanted();
        bench.verb(FlowVerb::Granted(token, grant(number)));
        let lease = data::decode(&bench.said()[0]).unwrap().sequence;
        bench.take(data::response(lease, 200));
        let summon = data::decode(&bench.said()[0]).unwrap().sequence;
        bench.take(data::response(summon, 403));
    }
    assert_eq!(waits, [100, 200, 400, 800].map(Duration::from_millis));
}

// req: MTL-50
#[test]
fn a_refusal_of_what_nobody_confirms_is_a_rejection() {
    let mut bench = Bench::up(settings(false, false));
    bench.send("a");
    bench.take(data::response(2, 403));
    assert_eq!(bench.events(), [FlowEvent::Rejected(1)]);
    assert_eq!(*bench.flow.stats().rejects, [1]);
}

// req: MTL-42
#[test]
fn a_dismissal_that_is_refused_leaves_nothing_summoned() {
    let mut bench = Bench::reader();
    bench.summon("jobs");
    let call = bench.call(Asked::Dismiss, "jobs");
    let dismissed = data::decode(&bench.said()[0]).unwrap().sequence;
    bench.take(data::response(dismissed, 400));
    assert_eq!(bench.events(), [FlowEvent::Ended(call, FlowOutcome::Refused(400))]);
    bench.summon("jobs");
}

// req: MTL-51, MTL-53
#[test]
fn confirms_are_gathered_as_far_as_they_go() {
    let mut bench = Bench::reader();
    for sequence in 1..=6 {
        bench.content(sequence);
    }
    for sequence in [1, 2, 3] {
        let (connection, multiple) = (bench.socket.0, false);
        bench.flow.handle_verb(bench.now, FlowVerb::Confirm { connection, sequence, multiple });
    }
    bench.drain();
    assert_eq!(bench.said(), [data::confirm(3, true)]);
    bench.confirm(5, false);
    assert_eq!(bench.said(), [data::confirm(5, false)]);
    bench.reject(4, false, true);
    assert_eq!(bench.said(), [data::reject(4, false, true)]);
    bench.confirm(6, true);
    assert_eq!(bench.said(), [data::confirm(6, false)]);
    // A second confirmation or rejection has no effect.
    bench.confirm(6, true);
    bench.reject(6, true, false);
    assert!(bench.said().is_empty());
    let stats = bench.flow.stats();
    assert_eq!((stats.contents, stats.confirmed, stats.rejected, stats.unconfirmed), (6, 5, 1, 0));
}

// req: MTL-51
#[test]
fn the_last_sequence_there_is_can_be_confirmed_with_all_before_it() {
    let mut bench = Bench::reader();
    bench.content(1);
    bench.content(u64::MAX);
    bench.confirm(u64::MAX, true);
    assert_eq!(bench.said(), [data::confirm(u64::MAX, true)]);
    assert_eq!(bench.flow.stats().unconfirmed, 0);
}

// req: MTL-53
#[test]
fn a_rejection_of_many_spares_what_was_confirmed() {
    let mut bench = Bench::reader();
    for sequence in 1..=4 {
        bench.content(sequence);
    }
    let connection = bench.socket.0;
    let (sequence, multiple) = (2, false);
    bench.flow.handle_verb(bench.now, FlowVerb::Confirm { connection, sequence, multiple });
    bench.reject(3, true, false);
    assert_eq!(bench.said(), [data::confirm(2, false), data::reject(1, false, false), data::reject(3, false, false)]);
    bench.confirm(4, false);
    assert_eq!(bench.said(), [data::confirm(4, false)]);
}

// req: MTL-52, MTL-55, MTL-58
#[test]
fn what_came_on_a_connection_before_is_not_confirmed_on_this_one() {
    let mut bench = Bench::reader();
    bench.content(1);
    bench.events();
    let before = bench.socket.0;
    bench.again(2);
    bench.content(1);
    for multiple in [false, true] {
        bench.verb(FlowVerb::Confirm { connection: before, sequence: 1, multiple });
        bench.verb(FlowVerb::Reject { connection: before, sequence: 1, multiple, recycle: true });
    }
    assert!(bench.said().is_empty());
    bench.confirm(1, false);
    assert_eq!(bench.said(), [data::confirm(1, false)]);
}

// req: MTL-61
#[test]
fn what_a_client_is_never_sent_is_dropped() {
    let mut bench = Bench::reader();
    let never = [
        data::lease(1, "x"),
        data::summon(1, "jobs"),
        data::dismiss(1, "jobs"),
        data::confirm(1, true),
        data::reject(1, true, true),
    ];
    for frames in never {
        bench.take(frames);
    }
    bench.take([Bytes::from_static(b"\x0a"), Bytes::new()].into_iter().collect());
    assert!(bench.said().is_empty());
    assert_eq!(bench.flow.stats().dropped.values().sum::<u64>(), 6);
    let mut bench = Bench::writer();
    bench.content(1);
    assert_eq!(bench.flow.stats().dropped.values().sum::<u64>(), 1);
}

// req: MTL-54, MTL-58
#[test]
fn closing_a_reader_gives_back_what_it_has_in_hand() {
    let mut bench = Bench::reader();
    bench.summon("jobs");
    for sequence in 1..=3 {
        bench.content(sequence);
    }
    bench.said();
    let (connection, sequence, multiple) = (bench.socket.0, 2, false);
    bench.flow.handle_verb(bench.now, FlowVerb::Confirm { connection, sequence, multiple });
    bench.flow.handle_close(bench.now, 5 * SECOND);
    bench.drain();
    // The confirmation is sent at once; the rest is returned once nothing more can arrive.
    assert_eq!(bench.said(), [data::dismiss(3, "jobs"), data::confirm(2, false)]);
    // Contents in flight arrive before the answer.
    bench.content(4);
    assert!(!bench.flow.is_closed());
    bench.take(data::response(3, 200));
    assert_eq!(bench.said(), [data::reject(4, true, true)]);
    assert!(bench.flow.is_closed());
}

// req: MTL-54
#[test]
fn closing_a_reader_rejects_what_it_has_looked_at_one_by_one() {
    let mut bench = Bench::reader();
    bench.summon("jobs");
    for sequence in 1..=4 {
        bench.content(sequence);
    }
    bench.said();
    let connection = bench.socket.0;
    bench.flow.handle_verb(bench.now, FlowVerb::Confirm { connection, sequence: 1, multiple: false });
    bench.flow.handle_verb(bench.now, FlowVerb::Seen { connection, sequence: 2 });
    bench.flow.handle_close(bench.now, 5 * SECOND);
    bench.drain();
    assert_eq!(bench.said(), [data::dismiss(3, "jobs"), data::confirm(1, false), data::reject(2, false, true)]);
    bench.take(data::response(3, 200));
    assert_eq!(bench.said(), [data::reject(4, true, true)]);
}

// req: MTL-54, MTL-58
#[test]
fn closing_a_reader_takes_a_second_where_nobody_answers() {
    let mut bench = Bench::reader();
    bench.summon("jobs");
    bench.content(1);
    bench.said();
    bench.flow.handle_close(bench.now, 5 * SECOND);
    bench.drain();
    assert_eq!(bench.said(), [data::dismiss(3, "jobs")]);
    assert_eq!(bench.flow.poll_timeout(), Some(bench.now + SECOND));
    bench.pass(SECOND);
    assert_eq!(bench.said(), [data::reject(1, true, true)]);
    assert!(bench.flow.is_closed());
    // Without grace it takes no time.
    let mut bench = Bench::reader();
    bench.summon("jobs");
    bench.content(1);
    bench.said();
    bench.flow.handle_close(bench.now, Duration::ZERO);
    bench.drain();
    assert_eq!(bench.said(), [data::dismiss(3, "jobs"), data::reject(1, true, true)]);
    assert!(bench.flow.is_closed());
}

#[test]
fn closing_a_writer_waits_for_its_contents() {
    let mut bench = Bench::writer();
    bench.send("a");
    bench.flow.handle_close(bench.now, 60 * SECOND);
    bench.drain();
    assert!(!bench.flow.is_closed());
    bench.said();
    // Even across a lost connection.
    bench.disconnect();
    let sequence = bench.grant(2);
    bench.take(data::response(sequence, 200));
    assert_eq!(bench.said(), [data::content(sequence + 1, "jobs", MARKED, body("a"))]);
    bench.take(data::confirm(sequence + 1, false));
    assert!(bench.flow.is_closed());

    let mut bench = Bench::writer();
    bench.send("a");
    bench.flow.handle_close(bench.now, SECOND);
    bench.drain();
    bench.pass(SECOND);
    assert!(bench.flow.is_closed());
}
