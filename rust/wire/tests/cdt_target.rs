//! What a target does by itself: what it subscribes to, what is too late, and what its store leaves unanswered.

use std::iter;
use std::time::Duration;

use bytes::Bytes;
use trunkline_wire::cdt::{Answer, Config, Listening, Part, Target, TargetEvent, TargetSettings, TargetVerb};
use trunkline_wire::question::Token;
use trunkline_wire::{DropKind, Frames, Incoming, Latencies, Machine, Nanos, Output, SocketEvent, SocketKind};

const MS: u64 = 1_000_000;

const SUBJECT: &[u8] = b"kaa.v1.service.cdp.cmx2cdp.ConfigRequest";

fn part() -> Part {
    Part { instance: "cdp".to_owned(), replica: "r1".to_owned(), ..Part::default() }
}

fn outputs(target: &mut Target) -> Vec<Output<Listening>> {
    iter::from_fn(|| target.poll_output()).collect()
}

/// A target that has opened its sockets.
fn target(settings: TargetSettings) -> Target {
    let mut target = Target::new(settings);
    outputs(&mut target);
    target
}

/// Hands it a request of the time 0, with this timeout in milliseconds.
fn ask(target: &mut Target, now: Nanos, timeout: i32) {
    let body = format!(
        r#"{{"correlationId": "c", "timestamp": 1000000, "timeout": {timeout}, "endpointMessageId": "m",
             "appVersionName": "a", "endpointId": "e"}}"#
    );
    let frames: Frames = [Bytes::from_static(b"_INBOX.1"), Bytes::new(), Bytes::from(body)].into_iter().collect();
    let peer = Some(Bytes::from_static(SUBJECT));
    target.handle_message(now, Incoming { socket: Listening::Service, peer, user_id: None, host: None, frames });
}

/// The only message that it sends: to whom, and its body.
fn sent(target: &mut Target) -> (Bytes, serde_json::Value) {
    match &outputs(target)[..] {
        [Output::Send { to: Some(to), frames, .. }] => (to.clone(), serde_json::from_slice(&frames[2]).expect("JSON")),
        others => panic!("{others:?}"),
    }
}

/// How many answers it has counted, and their times together.
fn latency(target: &Target) -> (u64, Duration) {
    let Latencies { counts, sum_ns } = target.stats().latency;
    (counts.iter().sum(), Duration::from_nanos(sum_ns))
}

// req: CDT-05, CDT-06, CDT-08, CDT-09, CDT-10
#[test]
fn it_subscribes_to_what_it_serves() {
    let events = "kaa.v1.events.*.endpoint.config.*";
    for (shares_requests, shares_events) in [(false, false), (false, true), (true, false), (true, true)] {
        let part = Part { shares_events, ..part() };
        let mut target = Target::new(TargetSettings { part, shares_requests, ..TargetSettings::default() });
        let group = if shares_requests { " cdp" } else { "" };
        let service = ["ConfigRequest", "ConfigPush"].map(|kind| format!("kaa.v1.service.cdp.cmx2cdp.{kind}{group}"));
        let replica = ["ConfigRequest", "ConfigPush"].map(|kind| format!("kaa.v1.replica.r1.cmx2cdp.{kind}"));
        let mut expected = vec![vec![events.to_owned()], replica.to_vec(), service.to_vec()];
        expected.extend(shares_events.then(|| vec![format!("{events} cdp")]));
        let opened = outputs(&mut target).into_iter().map(|output| {
            let Output::Open(open) = output else { panic!("it only opens sockets") };
            assert_eq!(open.kind, SocketKind::Nats);
            open.bind
        });
        assert_eq!(opened.collect::<Vec<_>>(), expected);
    }
}

// req: CDT-03, CDT-13, CDT-22, CDT-32
#[test]
fn a_request_is_answered_until_its_time_is_over() {
    let mut target = target(TargetSettings { part: part(), ..TargetSettings::default() });
    target.handle_clock(Nanos(0), 1_000_000);
    ask(&mut target, Nanos(50 * MS), 50);
    ask(&mut target, Nanos(51 * MS), 50);
    let Some(TargetEvent::Get { token, correlation_id, .. }) = target.poll_event() else { panic!("no question") };
    let Some(TargetEvent::Dropped(dropped)) = target.poll_event() else { panic!("it was not dropped") };
    assert_eq!((correlation_id.as_str(), dropped.reason), ("c", DropKind::Expired.into()));
    let config = Config { config_id: "v".to_owned(), content_type: "t".to_owned(), content: Bytes::from_static(b"x") };
    target.handle_verb(Nanos(60 * MS), TargetVerb::Answer(token, Answer::Found(config)));
    // A second answer to the same question has no effect.
    target.handle_verb(Nanos(60 * MS), TargetVerb::Answer(token, Answer::Missing));
    let (to, body) = sent(&mut target);
    assert_eq!(to, "_INBOX.1");
    assert_eq!(
        (&body["statusCode"], &body["configId"], &body["timestamp"]),
        (&200.into(), &"v".into(), &1_000_060.into())
    );
    assert_eq!(latency(&target), (1, Duration::from_millis(10)));
}

#[test]
fn a_store_that_does_not_answer_is_given_up() {
    let patience = Duration::from_millis(500);
    let mut target = target(TargetSettings { part: part(), patience, ..TargetSettings::default() });
    ask(&mut target, Nanos(0), -1);
    assert!(matches!(target.poll_event(), Some(TargetEvent::Get { token: Token(0), .. })));
    assert_eq!(target.poll_timeout(), Some(Nanos(500 * MS)));
    target.handle_timeout(Nanos(500 * MS));
    assert_eq!(sent(&mut target).1["statusCode"], 500);
    assert_eq!(latency(&target), (1, patience));
    target.handle_close(Nanos(600 * MS), Duration::from_secs(1));
    for output in outputs(&mut target) {
        let Output::Close { socket, .. } = output else { panic!("{output:?}") };
        target.handle_socket(Nanos(600 * MS), socket, SocketEvent::Closed);
    }
    assert!(target.is_closed());
}
