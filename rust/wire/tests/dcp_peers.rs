//! The worker and the client of DCP, message by message.

use std::time::Duration;

use bytes::Bytes;
use trunkline_wire::dcp::{
    Asking, Back, Client, ClientEvent, ClientSettings, ClientVerb, JobId, LEAVING, MessageType, Outcome, Width, Worker,
    WorkerEvent, WorkerSettings, WorkerVerb, Working, WorkingEvent, WorkingVerb, encode_header, encode_register,
    encode_reply, encode_request,
};
use trunkline_wire::{CallId, Frames, Incoming, Machine, Nanos, Output, SendId, SocketEvent, SocketKind, Unsent};

const MILLISECOND: Duration = Duration::from_millis(1);
const INTERVAL: Duration = Duration::from_millis(2500);

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn name(frames: &Frames) -> &'static str {
    MessageType::from_frame(&frames[2], false).map_or("?", MessageType::slug)
}

/// A worker, a clock, and a transport that takes everything at once unless `takes` is false.
struct Bench {
    worker: Worker,
    now: Nanos,
    takes: bool,
    open: Vec<SendId>,
    dials: Vec<&'static str>,
    endpoints: Vec<String>,
    events: Vec<WorkerEvent>,
}

impl Bench {
    fn new(concurrency: usize) -> Self {
        Self::of(concurrency, &["tcp://broker:1"])
    }

    fn of(concurrency: usize, connect: &[&str]) -> Self {
        let settings = WorkerSettings {
            service: bytes("a"),
            connect: connect.iter().map(|endpoint| (*endpoint).to_owned()).collect(),
            concurrency,
            ..WorkerSettings::default()
        };
        let mut worker = Worker::new(Nanos(0), settings, [7; 32]);
        let Some(Output::Open(open)) = worker.poll_output() else { panic!("no socket") };
        assert_eq!((open.kind, open.options.immediate), (SocketKind::Dealer, true));
        assert_eq!(open.options.heartbeat, Some((INTERVAL, INTERVAL * 3)));
        assert_eq!(open.connect, &connect[..1]);
        Self { worker, now: Nanos(0), takes: true, open: vec![], dials: vec![], endpoints: vec![], events: vec![] }
    }

    /// The messages sent now.
    fn sent(&mut self) -> Vec<Frames> {
        let mut all = vec![];
        while let Some(output) = self.worker.poll_output() {
            match output {
                Output::Send { id: Some(id), frames, .. } => {
                    all.push(frames.into());
                    if self.takes {
                        self.worker.handle_socket(self.now, Back, SocketEvent::Sent(id));
                    } else {
                        self.open.push(id);
                    }
                }
                Output::Connect { endpoint, .. } => {
                    self.dials.push("connect");
                    self.endpoints.push(endpoint);
                }
                Output::Disconnect { .. } => self.dials.push("disconnect"),
                Output::Close { .. } => self.dials.push("close"),
                Output::Send { .. } | Output::Withdraw { .. } | Output::Open(_) => {
                    panic!("unexpected")
                }
            }
        }
        self.events.extend(std::iter::from_fn(|| self.worker.poll_event()));
        all
    }

    fn names(&mut self) -> Vec<&'static str> {
        self.sent().iter().map(name).collect()
    }

    fn receive(&mut self, frames: Frames) {
        self.worker.handle_message(self.now, Incoming { socket: Back, peer: None, user_id: None, host: None, frames });
    }

    fn request(&mut self, id: &str) {
        self.receive(encode_request(bytes("a"), Some(bytes("c")), &[bytes(id)], &[bytes("x")]));
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.worker.handle_timeout(self.now);
    }

    fn verb(&mut self, verb: WorkerVerb) {
        self.worker.handle_verb(self.now, verb);
    }

    fn event(&mut self, event: SocketEvent) {
        self.worker.handle_socket(self.now, Back, event);
    }

    fn jobs(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, WorkerEvent::Request { .. })).count()
    }
}

// req: DCP-05, DCP-12
#[test]
fn a_worker_registers_before_anything_else() {
    let mut bench = Bench::new(1);
    assert_eq!(bench.sent(), [encode_register(bytes("a"))]);
    bench.receive(encode_register(bytes("a")));
    bench.sent();
    assert_eq!(bench.events, [WorkerEvent::Registered]);
}

// req: DCP-23
#[test]
fn a_reply_bears_the_metadata_of_its_request_even_where_the_job_failed() {
    let mut bench = Bench::new(1);
    bench.sent();
    let metadata = [bytes("m"), bytes("\0")];
    for (number, data) in [(0, vec![bytes(""), bytes("y")]), (1, vec![])] {
        bench.receive(encode_request(bytes("a"), Some(bytes("c")), &metadata, &[bytes("x")]));
        let job = JobId(number);
        bench.verb(if data.is_empty() {
            WorkerVerb::Fail { job, data: data.clone() }
        } else {
            WorkerVerb::Reply { job, data: data.clone() }
        });
        assert_eq!(bench.sent(), [encode_reply(bytes("c"), &metadata, &data)]);
        // A second reply has no effect.
        bench.verb(WorkerVerb::Reply { job, data });
        assert_eq!(bench.sent(), [] as [Frames; 0]);
    }
    let stats = bench.worker.stats();
    assert_eq!((stats.requests, stats.replies, stats.failed, stats.held), (2, 2, 1, 0));
}

// req: DCP-34
#[test]
fn a_forward_bears_the_client_and_the_metadata() {
    let mut bench = Bench::new(1);
    bench.sent();
    bench.request("1");
    bench.verb(WorkerVerb::Forward { job: JobId(0), service: bytes("b"), data: vec![bytes("z")] });
    assert_eq!(bench.sent(), [encode_request(bytes("b"), Some(bytes("c")), &[bytes("1")], &[bytes("z")])]);
    assert_eq!(bench.worker.stats().forwards, 1);
}

/// A worker that sends requests, with its messages and events since the last check.
struct Both(Working, Vec<Frames>, Vec<WorkingEvent>);

impl Both {
    fn new() -> Self {
        let settings =
            WorkerSettings { service: bytes("a"), connect: vec!["tcp://broker:1".into()], ..WorkerSettings::default() };
        let client = Client::new(ClientSettings::default(), [7; 32]);
        let mut both = Self(Working::new(Worker::new(Nanos(0), settings, [7; 32]), client), vec![], vec![]);
        both.look();
        both
    }

    fn look(&mut self) -> (Vec<Frames>, Vec<WorkingEvent>) {
        while let Some(output) = self.0.poll_output() {
            if let Output::Send { id: Some(id), frames, .. } = output {
                self.1.push(frames.into());
                self.0.handle_socket(Nanos(0), Back, SocketEvent::Sent(id));
            }
        }
        self.2.extend(std::iter::from_fn(|| self.0.poll_event()));
        (std::mem::take(&mut self.1), std::mem::take(&mut self.2))
    }

    fn receive(&mut self, frames: Frames) {
        self.0.handle_message(Nanos(0), Incoming { socket: Back, peer: None, user_id: None, host: None, frames });
    }

    /// Sends a request. Returns its correlation id.
    fn ask(&mut self, call: u64) -> Bytes {
        self.0.handle_verb(
            Nanos(0),
            WorkingVerb::Call(ClientVerb::Request {
                call: CallId(call),
                service: bytes("b"),
                metadata: vec![bytes("m")],
                data: vec![bytes("x")],
                timeout: None,
                retries: 0,
            }),
        );
        let (sent, _) = self.look();
        let id = sent[0][5].clone();
        assert_eq!(sent, [encode_request(bytes("b"), None, &[id.clone(), bytes("m")], &[bytes("x")])]);
        id
    }
}

// req: DCP-17, DCP-35
#[test]
fn a_worker_may_ask_as_well() {
    let mut both = Both::new();
    both.receive(encode_request(bytes("a"), Some(bytes("c")), &[bytes("1")], &[]));
    both.look();
    let id = both.ask(0);
    both.receive(encode_reply(bytes("w"), &[id, bytes("m")], &[bytes("y")]));
    let (sent, events) = both.look();
    assert_eq!(sent.len(), 0);
    let [WorkingEvent::Call(ClientEvent::Ended(CallId(0), Outcome::Reply { frames, body }))] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((&frames[body.metadata.clone()], &frames[body.data()]), (&[bytes("m")][..], &[bytes("y")][..]));
    assert_eq!((both.0.stats().worker.held, both.0.stats().client.in_flight), (1, 0));
}

// req: DCP-30, DCP-35
#[test]
fn what_a_worker_asks_ends_with_its_time_or_with_the_worker() {
    let mut both = Both::new();
    let id = both.ask(0);
    both.ask(1);
    both.0.handle_verb(Nanos(0), WorkingVerb::Call(ClientVerb::Cancel(CallId(1))));
    both.0.handle_timeout(Nanos(0) + Duration::from_secs(5));
    assert!(both.look().1.contains(&WorkingEvent::Call(ClientEvent::Ended(CallId(0), Outcome::TimedOut))));
    both.receive(encode_reply(bytes("w"), &[id, bytes("m")], &[]));
    assert_eq!(both.look().1, []);
    assert_eq!(both.0.stats().client.late, 1);
    both.ask(2);
    both.0.handle_close(Nanos(0), Duration::ZERO);
    assert_eq!(both.look().1, [WorkingEvent::Call(ClientEvent::Ended(CallId(2), Outcome::Unanswered))]);
}

// req: DCP-33
#[test]
fn a_worker_asks_while_it_has_hands_free() {
    let mut bench = Bench::new(3);
    bench.sent();
    let mut asked = 0;
    for id in ["1", "2", "3", "4"] {
        bench.request(id);
        asked += bench.names().iter().filter(|name| **name == "ping").count();
    }
    // The fourth waits for a free slot.
    assert_eq!((asked, bench.jobs(), bench.worker.stats().held), (2, 3, 4));
    bench.verb(WorkerVerb::Reply { job: JobId(1), data: vec![] });
    bench.sent();
    assert_eq!(bench.jobs(), 4);
}

// req: DCP-37
#[test]
fn an_idle_worker_pings_and_a_full_one_keeps_alive_without_asking() {
    let mut bench = Bench::new(1);
    assert_eq!(bench.names(), ["register"]);
    bench.pass(INTERVAL * 9 / 10);
    assert_eq!(bench.names(), ["ping"]);
    bench.receive(encode_header(MessageType::Pong, Width::One));
    bench.request("1");
    for _ in 0..20 {
        bench.pass(INTERVAL * 9 / 10);
        assert_eq!(bench.names(), ["pong"]);
    }
    // A pong is not answered, so silence means nothing.
    assert!(bench.dials.is_empty());
    bench.verb(WorkerVerb::Reply { job: JobId(0), data: vec![] });
    assert_eq!(bench.names(), ["reply"]);
    bench.pass(INTERVAL * 8 / 10);
    assert_eq!(bench.names(), [] as [&str; 0]);
}

// req: DCP-41
#[test]
fn a_worker_told_to_reconnect_registers_and_finishes_its_job() {
    let mut bench = Bench::new(1);
    bench.sent();
    bench.request("1");
    bench.receive(encode_header(MessageType::Reconnect, Width::One));
    assert_eq!(bench.names(), ["register"]);
    bench.verb(WorkerVerb::Reply { job: JobId(0), data: vec![] });
    assert_eq!(bench.names(), ["reply"]);
}

// req: DCP-42
#[test]
fn a_broker_that_owes_an_answer_is_dialled_again() {
    let mut bench = Bench::new(1);
    assert_eq!(bench.names(), ["register"]);
    let mut waits = vec![];
    for _ in 0..4 {
        bench.pass(INTERVAL * 3);
        assert_eq!(bench.names(), [] as [&str; 0]);
        assert_eq!(bench.dials, ["disconnect"]);
        let until = bench.worker.poll_timeout().expect("it dials again");
        waits.push(until - bench.now);
        bench.pass(until - bench.now);
        assert_eq!(bench.names(), ["register"]);
        assert_eq!(bench.dials, ["disconnect", "connect"]);
        bench.dials.clear();
    }
    for (wait, most) in waits.iter().zip([100, 200, 400, 800]) {
        assert!((MILLISECOND * most / 2..=MILLISECOND * most).contains(wait), "{wait:?} of {most} ms");
    }
}

// req: DCP-42
#[test]
fn brokers_are_dialled_one_at_a_time() {
    let (first, second) = ("tcp://broker:1", "tcp://broker:2");
    let mut bench = Bench::of(1, &[first, second]);
    // The first cannot be reached; the second can, disconnects, and is back at once.
    bench.pass(INTERVAL * 9 / 10);
    bench.names();
    assert!(bench.dials.is_empty());
    bench.pass(INTERVAL / 10);
    bench.names();
    bench.pass(MILLISECOND * 100);
    assert_eq!(bench.names(), ["register"]);
    bench.event(SocketEvent::Connected(second.into()));
    assert_eq!(
        (bench.dials.split_off(0), bench.endpoints.as_slice()),
        (vec!["disconnect", "connect"], &[second.into()][..])
    );
    bench.event(SocketEvent::Disconnected(second.into()));
    bench.event(SocketEvent::Connected(second.into()));
    bench.receive(encode_register(bytes("a")));
    bench.pass(INTERVAL);
    bench.receive(encode_header(MessageType::Pong, Width::One));
    bench.names();
    assert!(bench.dials.is_empty());
    // It is gone for longer than a reconnect takes, and falls silent.
    bench.event(SocketEvent::Disconnected(second.into()));
    bench.pass(MILLISECOND * 100);
    bench.pass(MILLISECOND * 100);
    assert_eq!(bench.names(), ["register"]);
    bench.event(SocketEvent::Connected(first.into()));
    bench.pass(INTERVAL * 3);
    bench.pass(INTERVAL);
    bench.names();
    assert_eq!(bench.dials, ["disconnect", "connect", "disconnect", "connect"]);
    assert_eq!(bench.endpoints, [second, first, second]);
    assert_eq!(bench.events.iter().filter(|event| **event == WorkerEvent::Lost).count(), 1);
}

// req: DCP-42
#[test]
fn what_the_transport_did_not_take_goes_over_the_next_connection() {
    let mut bench = Bench::new(1);
    bench.sent();
    bench.request("1");
    bench.takes = false;
    bench.verb(WorkerVerb::Reply { job: JobId(0), data: vec![] });
    assert_eq!(bench.names(), ["reply"]);
    bench.event(SocketEvent::Disconnected("tcp://broker:1".into()));
    let open = bench.open.remove(0);
    bench.event(SocketEvent::Unsent(open, Unsent::Closed));
    // Without a connection nothing is sent, however long it takes.
    bench.pass(INTERVAL * 10);
    assert_eq!(bench.names(), [] as [&str; 0]);
    bench.takes = true;
    assert_eq!(bench.worker.backlog().messages, 1);
    bench.event(SocketEvent::Connected("tcp://broker:1".into()));
    assert_eq!(bench.names(), ["register", "reply"]);
    assert_eq!((bench.worker.backlog().messages, bench.worker.backlog().bytes), (0, 0));
}

fn leaving() -> Frames {
    encode_register(Bytes::from_static(LEAVING))
}

// req: DCP-15
#[test]
fn a_stopping_worker_leaves_its_service_before_its_last_replies() {
    let mut bench = Bench::new(1);
    bench.sent();
    bench.request("1");
    bench.worker.handle_close(bench.now, INTERVAL);
    assert_eq!(bench.sent(), [leaving()]);
    // A request without a free slot is forwarded to another worker.
    bench.request("2");
    assert_eq!(bench.sent(), [encode_request(bytes("a"), Some(bytes("c")), &[bytes("2")], &[bytes("x")])]);
    bench.verb(WorkerVerb::Reply { job: JobId(0), data: vec![] });
    assert_eq!(bench.names(), ["reply"]);
    // Until the broker confirms, more requests may come, and are handled.
    bench.receive(encode_register(bytes("a")));
    bench.request("3");
    bench.receive(leaving());
    assert_eq!((bench.names(), bench.jobs()), (vec![], 2));
    assert!(bench.dials.is_empty());
    bench.verb(WorkerVerb::Reply { job: JobId(1), data: vec![] });
    assert_eq!(bench.names(), ["reply"]);
    assert_eq!(bench.dials, ["close"]);
    bench.event(SocketEvent::Closed);
    assert!(bench.worker.is_closed());
}

// req: DCP-15
#[test]
fn a_stopping_worker_with_nothing_in_hand_waits_for_the_broker_to_know_or_for_its_time() {
    for is_confirmed in [true, false] {
        let mut bench = Bench::new(2);
        bench.sent();
        bench.worker.handle_close(bench.now, INTERVAL);
        assert_eq!(bench.sent(), [leaving()]);
        assert!(bench.dials.is_empty());
        if is_confirmed {
            bench.receive(leaving());
        } else {
            bench.pass(INTERVAL / 2);
            bench.names();
            assert!(bench.dials.is_empty());
            bench.pass(INTERVAL / 2);
        }
        bench.names();
        assert_eq!(bench.dials, ["close"], "confirmed: {is_confirmed}");
    }
}

// req: DCP-15, DCP-41
#[test]
fn a_stopping_worker_gives_back_what_it_had_no_hand_for() {
    let mut bench = Bench::new(1);
    bench.sent();
    bench.request("1");
    bench.request("2");
    bench.worker.handle_close(bench.now, INTERVAL);
    assert_eq!(bench.names(), ["register", "request"]);
    // A reconnect makes it register as leaving again.
    bench.receive(encode_header(MessageType::Reconnect, Width::One));
    assert_eq!(bench.sent(), [leaving()]);
    bench.receive(leaving());
    bench.event(SocketEvent::Disconnected("tcp://broker:1".into()));
    bench.verb(WorkerVerb::Reply { job: JobId(0), data: vec![] });
    assert_eq!(bench.names(), [] as [&str; 0]);
    bench.event(SocketEvent::Connected("tcp://broker:1".into()));
    assert_eq!(bench.names(), ["register", "reply"]);
    assert_eq!(bench.dials, ["close"]);
}

#[test]
fn a_stopping_worker_does_not_wait_for_a_broker_that_does_not_know_it() {
    let mut bench = Bench::new(1);
    bench.takes = false;
    bench.names();
    bench.worker.handle_close(bench.now, INTERVAL);
    bench.names();
    assert_eq!(bench.dials, ["close"]);
    let mut bench = Bench::new(1);
    bench.sent();
    bench.event(SocketEvent::Disconnected("tcp://broker:1".into()));
    bench.worker.handle_close(bench.now, INTERVAL);
    bench.names();
    assert_eq!(bench.dials, ["close"]);
}

#[test]
fn a_request_for_the_reserved_service_has_an_empty_reply() {
    let mut bench = Bench::new(1);
    bench.sent();
    bench.request("1");
    bench.worker.handle_close(bench.now, INTERVAL);
    bench.sent();
    bench.receive(encode_request(Bytes::from_static(LEAVING), Some(bytes("d")), &[bytes("m")], &[bytes("x")]));
    assert_eq!(bench.sent(), [encode_reply(bytes("d"), &[bytes("m")], &[])]);
    assert_eq!((bench.jobs(), bench.worker.stats().failed), (1, 1));
}

#[test]
fn an_abandoned_job_frees_its_place() {
    let mut bench = Bench::new(1);
    bench.sent();
    bench.request("1");
    bench.request("2");
    bench.sent();
    bench.verb(WorkerVerb::Abandon(JobId(0)));
    assert_eq!(bench.names(), [] as [&str; 0]);
    assert_eq!((bench.jobs(), bench.worker.stats().held, bench.worker.stats().failed), (2, 1, 1));
}

// req: DCP-15, DCP-33
#[test]
fn a_broker_hears_of_an_abandoned_job_by_the_next_registration() {
    let mut bench = Bench::new(1);
    bench.sent();
    bench.request("1");
    bench.sent();
    bench.verb(WorkerVerb::Abandon(JobId(0)));
    assert_eq!(bench.sent(), [encode_register(bytes("a"))]);
    // Another request is asked for at once; the broker learns of the abandoned one when none is in progress or granted.
    let mut bench = Bench::new(2);
    bench.sent();
    bench.request("1");
    bench.request("2");
    bench.sent();
    bench.verb(WorkerVerb::Abandon(JobId(0)));
    assert_eq!(bench.names(), ["ping"]);
    bench.verb(WorkerVerb::Reply { job: JobId(1), data: vec![] });
    assert_eq!(bench.names(), ["reply"]);
    bench.pass(INTERVAL * 9 / 10);
    assert_eq!(bench.names(), ["register"]);
    bench.pass(INTERVAL * 9 / 10);
    assert_eq!(bench.names(), ["ping"]);
}

fn client() -> Client {
    let settings = ClientSettings { connect: vec!["tcp://broker:1".into()], ..ClientSettings::default() };
    let mut client = Client::new(settings, [3; 32]);
    assert!(
        matches!(client.poll_output(), Some(Output::Open(open)) if open.kind == SocketKind::Dealer && open.options.immediate)
    );
    client
}

fn ask(client: &mut Client, now: Nanos, call: u64, retries: u32) {
    client.handle_verb(
        now,
        ClientVerb::Request {
            call: CallId(call),
            service: bytes("a"),
            metadata: vec![bytes("m")],
            data: vec![bytes("x")],
            timeout: Some(MILLISECOND * 100),
            retries,
        },
    );
}

fn sends(client: &mut Client) -> Vec<(SendId, Frames)> {
    let all = std::iter::from_fn(|| client.poll_output());
    all.filter_map(|output| match output {
        Output::Send { id, frames, .. } => id.map(|id| (id, frames.into())),
        Output::Withdraw { .. }
        | Output::Open(_)
        | Output::Connect { .. }
        | Output::Disconnect { .. }
        | Output::Close { .. } => None,
    })
    .collect()
}

/// The reply to a request, as its client receives it.
fn reply_to(request: &Frames) -> Incoming<Asking> {
    let frames = encode_reply(bytes("c"), &request[5..7], &[bytes("y")]);
    Incoming { socket: Asking, peer: None, user_id: None, host: None, frames }
}

fn at(milliseconds: u32) -> Nanos {
    Nanos(0) + MILLISECOND * milliseconds
}

fn outcomes(client: &mut Client) -> Vec<ClientEvent> {
    std::iter::from_fn(|| client.poll_event()).collect()
}

// req: DCP-05, DCP-28
#[test]
fn a_thousand_replies_find_their_calls_in_any_order() {
    let mut client = client();
    let mut requests = vec![];
    for call in 0..1000 {
        ask(&mut client, at(0), call, 0);
        for (id, frames) in sends(&mut client) {
            client.handle_socket(at(0), Asking, SocketEvent::Sent(id));
            requests.push(frames);
        }
    }
    assert_eq!(client.stats().in_flight, 1000);
    for step in 0..1000 {
        let number = step * 7919 % 1000;
        client.handle_message(at(1), reply_to(&requests[number]));
        let [ClientEvent::Ended(call, Outcome::Reply { frames, body })] = &outcomes(&mut client)[..] else {
            panic!("no reply")
        };
        assert_eq!(call.0, number as u64);
        assert_eq!(frames[body.metadata.clone()], [bytes("m")]);
        assert_eq!(frames[body.data()], [bytes("y")]);
    }
}

// req: DCP-30
#[test]
fn a_call_is_tried_again_where_asked_to_and_late_replies_are_ignored() {
    let mut client = client();
    ask(&mut client, at(0), 1, 2);
    let mut attempts = vec![];
    for attempt in 0..3 {
        let [(id, frames)] = &sends(&mut client)[..] else { panic!("attempt {attempt} is not sent") };
        client.handle_socket(at(attempt * 100), Asking, SocketEvent::Sent(*id));
        attempts.push(frames.clone());
        assert_eq!(client.poll_timeout(), Some(at(attempt * 100 + 100)));
        if attempt < 2 {
            client.handle_timeout(at(attempt * 100 + 100));
        }
    }
    assert!(attempts.iter().all(|attempt| *attempt == attempts[0]));
    client.handle_message(at(250), reply_to(&attempts[0]));
    client.handle_message(at(260), reply_to(&attempts[0]));
    client.handle_timeout(at(1000));
    assert!(matches!(&outcomes(&mut client)[..], [ClientEvent::Ended(_, Outcome::Reply { .. })]));
    let stats = client.stats();
    assert_eq!((stats.retries, stats.late, stats.timeouts, stats.in_flight), (2, 1, 0, 0));
}

/// Once the transport has given these back, nothing is left to send.
fn nothing_is_left(mut client: Client, now: Nanos, unsent: impl IntoIterator<Item = SendId>) {
    for id in unsent {
        client.handle_socket(now, Asking, SocketEvent::Unsent(id, Unsent::Expired));
    }
    assert!(sends(&mut client).is_empty());
    assert_eq!((client.backlog().messages, client.backlog().bytes), (0, 0));
}

// req: DCP-30
#[test]
fn a_cancelled_call_is_taken_back_from_the_transport() {
    let mut client = client();
    for call in 0..200 {
        ask(&mut client, at(0), call, 0);
    }
    let open = sends(&mut client);
    assert!(open.len() < 200);
    for call in 0..200 {
        client.handle_verb(at(1), ClientVerb::Cancel(CallId(call)));
    }
    let outputs = std::iter::from_fn(|| client.poll_output());
    let taken_back = |output| if let Output::Withdraw { id, .. } = output { Some(id) } else { None };
    let back: Vec<_> = outputs.map(|output| taken_back(output).expect("nothing else")).collect();
    assert_eq!(back, open.iter().map(|(id, _)| *id).collect::<Vec<_>>());
    nothing_is_left(client, at(2), back);
}

// req: DCP-30
#[test]
fn a_call_that_timed_out_unsent_is_never_sent() {
    let mut client = client();
    for call in 0..200 {
        ask(&mut client, at(0), call, 0);
    }
    let open = sends(&mut client);
    assert!(open.len() < 200);
    client.handle_timeout(at(100));
    assert_eq!(outcomes(&mut client).len(), 200);
    nothing_is_left(client, at(100), open.into_iter().map(|(id, _)| id));
}

// req: DCP-30
#[test]
fn an_attempt_the_transport_gave_back_is_made_again() {
    let mut client = client();
    ask(&mut client, at(0), 1, 1);
    let open = sends(&mut client);
    client.handle_socket(at(100), Asking, SocketEvent::Unsent(open[0].0, Unsent::Expired));
    let again = sends(&mut client);
    assert_eq!(again.len(), 1);
    client.handle_socket(at(110), Asking, SocketEvent::Sent(again[0].0));
    client.handle_timeout(at(200));
    assert_eq!(outcomes(&mut client), [ClientEvent::Ended(CallId(1), Outcome::TimedOut)]);
}

// req: DCP-36
#[test]
fn an_idle_client_says_nothing() {
    let mut client = client();
    assert_eq!(client.poll_timeout(), None);
    client.handle_timeout(Nanos(0) + INTERVAL * 100);
    assert!(sends(&mut client).is_empty());
}

#[test]
fn a_closing_client_waits_and_then_says_what_has_no_reply() {
    let mut client = client();
    ask(&mut client, at(0), 1, 0);
    ask(&mut client, at(0), 2, 0);
    let open = sends(&mut client);
    client.handle_close(at(0), MILLISECOND * 50);
    client.handle_message(at(10), reply_to(&open[0].1));
    client.handle_timeout(at(50));
    let events = outcomes(&mut client);
    assert!(matches!(
        &events[..],
        [ClientEvent::Ended(_, Outcome::Reply { .. }), ClientEvent::Ended(CallId(2), Outcome::Unanswered)]
    ));
    assert!(matches!(client.poll_output(), Some(Output::Close { .. })));
    client.handle_socket(at(50), Asking, SocketEvent::Closed);
    assert!(client.is_closed());
}

/// Attempts with a timeout of zero are made one after the other, not all at once.
#[test] // req: DCP-30
fn attempts_without_time_leave_the_client_time() {
    let mut client = client();
    client.handle_verb(
        Nanos(0),
        ClientVerb::Request {
            call: CallId(1),
            service: bytes("a"),
            metadata: vec![],
            data: vec![],
            timeout: Some(Duration::ZERO),
            retries: u32::MAX,
        },
    );
    client.handle_timeout(Nanos(0));
    assert_eq!(client.stats().retries, 1);
    assert_eq!(client.poll_timeout(), Some(Nanos(0) + MILLISECOND));
    client.handle_close(Nanos(0), Duration::ZERO);
    assert_eq!(client.poll_timeout(), None);
}
