//! What a source does about its server: what it forbids, confirms, and takes.

use std::iter;
use std::time::Duration;

use bytes::Bytes;
use trunkline_wire::cdt::subject::Subjects;
use trunkline_wire::cdt::{Confirm, Ended, Hearing, Part, Pull, Push, Source, SourceEvent, SourceSettings, SourceVerb};
use trunkline_wire::{CallId, Machine, Nanos, Output, SendId, ServerNotice, SocketEvent, Unsent};

const START: Nanos = Nanos(0);

fn source() -> Source {
    let mut source = Source::new(SourceSettings { target: "cdp".to_owned(), ..SourceSettings::default() }, [7; 32]);
    while source.poll_output().is_some() {}
    source
}

fn push(confirm: Confirm, timeout: Option<Duration>) -> Push {
    let (app_version_name, endpoint_id) = ("a".to_owned(), "e".to_owned());
    let content = Some(Bytes::from_static(b"{}"));
    Push { app_version_name, endpoint_id, content, confirm, timeout, ..Push::default() }
}

fn report(call: u64) -> SourceVerb {
    let [app_version_name, endpoint_id, config_id] = ["a", "e", "v"].map(str::to_owned);
    SourceVerb::Report { call: CallId(call), app_version_name, endpoint_id, config_id }
}

fn pull(call: u64) -> SourceVerb {
    let pull = Pull { app_version_name: "a".to_owned(), endpoint_id: "e".to_owned(), ..Pull::default() };
    SourceVerb::Pull(CallId(call), pull)
}

/// The calls that have ended.
fn ended(source: &mut Source) -> Vec<(u64, Ended)> {
    let events = iter::from_fn(|| source.poll_event());
    events
        .filter_map(|event| if let SourceEvent::Ended(CallId(call), how) = event { Some((call, how)) } else { None })
        .collect()
}

/// The number of the send that is to be confirmed.
fn sent(source: &mut Source) -> SendId {
    let outputs = iter::from_fn(|| source.poll_output());
    let ids = outputs.filter_map(|output| if let Output::Send { id, .. } = output { id } else { None });
    ids.last().expect("a send that is to be confirmed")
}

// req: CDT-02, CDT-08
#[test]
fn it_subscribes_to_its_answers_and_to_events() {
    let subjects = Subjects { prefix: "own.v2".to_owned(), protocol: "cdtp".to_owned() };
    let part = Part { instance: "cmx".to_owned(), replica: "r7".to_owned(), subjects, ..Part::default() };
    let mut source = Source::new(SourceSettings { part, ..SourceSettings::default() }, [7; 32]);
    let opened = iter::from_fn(|| source.poll_output()).map(|output| {
        let Output::Open(open) = output else { panic!("it only opens sockets") };
        open.bind
    });
    let answers = ["ConfigResponse", "ConfigPushResponse"].map(|kind| format!("own.v2.replica.r7.cdtp.{kind}"));
    assert_eq!(opened.collect::<Vec<_>>(), [answers.to_vec(), vec!["own.v2.events.*.endpoint.config.*".to_owned()]]);
}

// req: CDT-40
#[test]
fn what_the_server_forbids_ends_the_calls_of_that_kind_alone() {
    let mut source = source();
    source.handle_verb(START, pull(1));
    source.handle_verb(START, SourceVerb::Push(CallId(2), push(Confirm::Stored, None)));
    source.handle_verb(START, SourceVerb::Push(CallId(3), push(Confirm::Sent, None)));
    source.handle_verb(START, report(4));
    let forbid = |source: &mut Source, subject: &str| {
        let words = format!("Permissions Violation for Publish to \"{subject}\"");
        let notice = ServerNotice::Forbidden(words.clone());
        source.handle_socket(START, Hearing::Replies, SocketEvent::Server(notice));
        words
    };
    let words = forbid(&mut source, "kaa.v1.service.cdp.cmx2cdp.configpush");
    let forbidden = |words: &str| Ended::Forbidden(words.to_owned());
    assert_eq!(ended(&mut source), [(2, forbidden(&words)), (3, forbidden(&words))]);
    let words = forbid(&mut source, "kaa.v1.events.cmx.endpoint.config.ConfigUpdated");
    assert_eq!(ended(&mut source), [(4, forbidden(&words))]);
    // What its server says of them afterwards is nobody's.
    source.handle_socket(START, Hearing::Events, SocketEvent::Sent(SendId(3)));
    assert_eq!(ended(&mut source), []);
    assert_eq!(source.stats().waiting, 1);
}

#[test]
fn what_the_server_does_not_confirm_ends_in_time() {
    let mut source = source();
    let second = Duration::from_secs(1);
    source.handle_verb(START, SourceVerb::Push(CallId(1), push(Confirm::Sent, Some(second))));
    source.handle_verb(START, SourceVerb::Push(CallId(2), push(Confirm::Sent, Some(60 * second))));
    source.handle_verb(START, report(3));
    assert_eq!(source.poll_timeout(), Some(START + second));
    source.handle_timeout(START + second);
    assert_eq!(ended(&mut source), [(1, Ended::TimedOut)]);
    source.handle_timeout(START + 10 * second);
    assert_eq!(ended(&mut source), [(2, Ended::Unsent), (3, Ended::Unsent)]);
    assert_eq!(source.poll_timeout(), None);
}

#[test]
fn what_is_confirmed_or_lost_is_due_no_more() {
    let mut source = source();
    source.handle_verb(START, report(1));
    let id = sent(&mut source);
    source.handle_socket(START, Hearing::Events, SocketEvent::Sent(id));
    source.handle_verb(START, report(2));
    let id = sent(&mut source);
    source.handle_socket(START, Hearing::Events, SocketEvent::Unsent(id, Unsent::Unreachable));
    assert_eq!(ended(&mut source), [(1, Ended::Sent), (2, Ended::Unsent)]);
    assert_eq!(source.poll_timeout(), None);
}

#[test]
fn what_the_server_takes_is_the_limit() {
    let mut source = source();
    source.handle_socket(START, Hearing::Replies, SocketEvent::Server(ServerNotice::MaxPayload(10)));
    source.handle_verb(START, pull(1));
    assert_eq!(ended(&mut source), [(1, Ended::TooLarge)]);
}

// req: CDT-39
#[test]
fn a_push_that_is_not_applied_says_whether_it_is_stored() {
    let mut source = source();
    let second = Duration::from_secs(1);
    source.handle_verb(START, SourceVerb::Push(CallId(1), push(Confirm::Applied, Some(second))));
    source.handle_timeout(START + second);
    assert_eq!(ended(&mut source), [(1, Ended::Unapplied { is_stored: false })]);
}
