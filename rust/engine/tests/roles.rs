//! The same tests of the engine over all transports; what a transport cannot do is skipped by name.

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use arrow_array::Array;
use arrow_array::cast::AsArray;
use bytes::Bytes;
use common::{
    Ask, Echo, Need, PATIENCE, Reported, Tested, cdtp, close, context, frame, is_unreachable, messages, number,
    read_until, start, start_in,
};
use trunkline_engine::libzmq::LibzmqTransport;
use trunkline_engine::zeromq::ZeromqTransport;
use trunkline_engine::zmtp::ZmtpTransport;
use trunkline_engine::{
    Apart, Bounds, Capture, CaptureOverflow, End, Handle, Hold as _, Offered, Queued, Recording, Running as _,
    Settings, StartError, Together, TransportError,
};
use trunkline_wire::cdtp::{
    BatchBounds, Receiver, ReceiverEvent, ReceiverSettings, Sender, SenderSettings, SenderVerb, Settings as Decoding,
    Variant,
};
use trunkline_wire::zap::{Allowed, Rule, ZapEvent, z85};
use trunkline_wire::{Curve, Framing, Machine, SocketEvent, SocketOptions};

const ANY: &str = "tcp://127.0.0.1:*";

/// Runs each test over each transport.
macro_rules! over_all {
    ($($(#[$attribute:meta])* $name:ident)*) => {
        mod libzmq {
            $(#[test] $(#[$attribute])* fn $name() { super::$name::<super::LibzmqTransport>(); })*
        }
        mod zeromq {
            $(#[test] $(#[$attribute])* fn $name() { super::$name::<super::ZeromqTransport>(); })*
        }
        mod zmtp {
            $(#[test] $(#[$attribute])* fn $name() { super::$name::<super::ZmtpTransport>(); })*
        }
    };
}

over_all! {
    echoes_in_order
    opens_and_closes_sockets_at_run_time
    tells_of_connections
    tells_of_unreachable_peers
    a_machine_that_panics_ends_its_role_alone
    counters_are_read_without_the_engine
    stops_reading_when_the_user_does
    keeps_large_frames_whole
    keeps_frames_of_all_sizes_in_order
    runs_two_machines
    fails_to_start_where_it_cannot_listen
    sends_and_receives_cdtp
    counts_what_a_closed_sender_could_not_send
    records_what_it_receives
    several_add_to_one_recording
    rows_say_what_the_machine_alone_knows
    refuses_what_the_transport_lacks
    a_full_peer_costs_only_itself
    deaf_peers_have_one_bound_together
    lets_in_whom_the_authenticator_knows
}

/// Whether the transport lacks what a test is about; prints it if so.
fn skips<T: Tested>(need: Need) -> bool {
    let lacks = T::LACKS.contains(&need);
    if lacks {
        // A line in the test's output is the point.
        #[allow(clippy::print_stdout)]
        {
            println!("skipped: {} has no {need:?}", std::any::type_name::<T>());
        }
    }
    lacks
}

fn echo_server<T: Tested>() -> (Handle<Echo>, String) {
    let server = start::<T, _>(Echo::server(ANY, SocketOptions { mandatory: true, ..SocketOptions::default() }));
    let endpoint = server.endpoints().remove(0);
    (server, endpoint)
}

fn offer_all<M: Machine + Send + 'static>(handle: &Handle<M>, verbs: impl Iterator<Item = M::Verb>) {
    for mut verb in verbs {
        loop {
            match handle.offer(verb, 8) {
                Offered::Taken => break,
                Offered::Full(back) => verb = back,
                Offered::Over(_) => panic!("the role is over: {:?}", handle.end()),
            }
            handle.changes().wait(|| handle.has_room(), Some(Duration::from_millis(100)));
        }
    }
}

fn echoes_in_order<T: Tested>() {
    let (server, endpoint) = echo_server::<T>();
    let client = start::<T, _>(Echo::client(&endpoint, SocketOptions::default()));
    offer_all(&client, (0..5000).map(number));
    let events = read_until(&client, |events| messages(events) == 5000);
    let numbers: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Reported::Message(frames) => {
                Some(u64::from_be_bytes(frames[0][..].try_into().expect("as the test made it")))
            }
            Reported::Socket(..) => None,
        })
        .collect();
    assert!(numbers.iter().copied().eq(0..5000));
    assert_eq!(server.stats().machine, 5000);
    close(&client);
    close(&server);
    assert_eq!(server.end(), Some(End::Closed));
}

fn opens_and_closes_sockets_at_run_time<T: Tested>() {
    let (server, _) = echo_server::<T>();
    server.ask(Ask::Listen(1, ANY.to_owned()));
    let bound =
        |events: &[Reported]| events.iter().any(|event| matches!(event, Reported::Socket(1, SocketEvent::Bound(_))));
    read_until(&server, bound);
    let second = server.endpoints().remove(1);
    let client = start::<T, _>(Echo::client(&second, SocketOptions::default()));
    client.ask(number(1));
    read_until(&client, |events| messages(events) == 1);
    server.ask(Ask::Close(1));
    read_until(&server, |events| events.contains(&Reported::Socket(1, SocketEvent::Closed)));
    close(&client);
    close(&server);
}

fn a_machine_that_panics_ends_its_role_alone<T: Tested>() {
    let server = start::<T, _>(Echo::server(ANY, SocketOptions::default()));
    let endpoint = server.endpoints().remove(0);
    let client = start::<T, _>(Echo::client(&endpoint, SocketOptions::default()));
    client.ask(number(1));
    read_until(&client, |events| messages(events) == 1);
    server.ask(Ask::Panic);
    let end = Instant::now() + PATIENCE;
    while !server.is_over() && Instant::now() < end {
        server.changes().wait(|| server.is_over(), Some(PATIENCE));
    }
    assert_eq!(server.end(), Some(End::Panicked("on purpose".to_owned())));
    server.join();
    assert_eq!(server.offer(Ask::Panic, 0), Offered::Over(Ask::Panic));
    // A machine that may be broken is never read.
    assert_eq!(server.stats().machine, 0);
    let again = start::<T, _>(Echo::server(&endpoint, SocketOptions::default()));
    assert_eq!(again.endpoints(), [endpoint.as_str()]);
    close(&client);
    close(&again);
}

/// Counters while the engine sleeps, while it works, and from many threads at once: each is consistent and none waits.
fn counters_are_read_without_the_engine<T: Tested>() {
    let (server, endpoint) = echo_server::<T>();
    let client = start::<T, _>(Echo::client(&endpoint, SocketOptions::default()));
    std::thread::scope(|scope| {
        let lookers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < 5000 {
                        let now = server.stats().machine;
                        assert!(now >= last, "{now} after {last}");
                        last = now;
                    }
                })
            })
            .collect();
        offer_all(&client, (0..5000).map(number));
        read_until(&client, |events| messages(events) == 5000);
        assert_eq!(client.stats().machine, 5000);
        for looker in lookers {
            looker.join().expect("counters never go back");
        }
    });
    close(&client);
    close(&server);
    assert_eq!(server.stats().machine, 5000);
}

fn tells_of_connections<T: Tested>() {
    let (server, endpoint) = echo_server::<T>();
    let client = start::<T, _>(Echo::client(&endpoint, SocketOptions::default()));
    let connected =
        |events: &[Reported]| events.iter().any(|e| matches!(e, Reported::Socket(0, SocketEvent::Connected(_))));
    read_until(&client, connected);
    read_until(&server, connected);
    close(&client);
    let gone =
        |events: &[Reported]| events.iter().any(|e| matches!(e, Reported::Socket(0, SocketEvent::Disconnected(_))));
    read_until(&server, gone);
    close(&server);
}

fn keeps_frames_of_all_sizes_in_order<T: Tested>() {
    let (server, endpoint) = echo_server::<T>();
    let client = start::<T, _>(Echo::client(&endpoint, SocketOptions::default()));
    let sizes = [5000, 1, 0, 1023, 1024, 40, 100_000, 0];
    let sent: Vec<_> = (0u8..).zip(sizes).map(|(number, size)| Bytes::from(vec![number; size])).collect();
    // Small frames share blocks of memory: many times the size of one.
    let times = 200;
    offer_all(&client, (0..times).map(|_| Ask::Send { to: None, frames: sent.clone(), id: None }));
    let events = read_until(&client, |events| messages(events) == times);
    let came = events.iter().filter(|event| matches!(event, Reported::Message(_)));
    assert!(came.into_iter().all(|event| *event == Reported::Message(sent.clone())));
    close(&client);
    close(&server);
}

fn tells_of_unreachable_peers<T: Tested>() {
    let (server, _) = echo_server::<T>();
    server.ask(Ask::Send { to: Some(Bytes::from_static(b"nobody")), frames: frame(1), id: Some(9) });
    read_until(&server, |events| events.iter().any(|event| is_unreachable(event, 9)));
    assert_eq!(server.stats().unroutable, 1);
    close(&server);
}

fn stops_reading_when_the_user_does<T: Tested>() {
    let bounds = Bounds { messages: 100, bytes: 1 << 20 };
    let options = SocketOptions { receive_hwm: Some(10), send_hwm: Some(10), ..SocketOptions::default() };
    let settings = Settings { bounds, ..Settings::default() };
    let server = Echo::server(ANY, options.clone()).listener();
    let server = start_in::<T, _>(server, context(), settings);
    let endpoint = server.endpoints().remove(0);
    let client = start::<T, _>(Echo::client(&endpoint, options));
    offer_all(&client, (0..20_000).map(number));
    server.await_progress(100);
    let end = Instant::now() + PATIENCE;
    while server.progress() < 100 {
        assert!(Instant::now() < end);
        server.changes().wait(|| server.progress() >= 100, Some(Duration::from_millis(100)));
    }
    // The engine has answered: it does nothing more without a reader.
    let queued = server.stats().queued.messages;
    assert_eq!(server.stats().queued.messages, queued);
    assert!(queued <= 100, "{queued} messages wait");
    let events = read_until(&server, |events| messages(events) == 20_000);
    assert_eq!(messages(&events), 20_000);
    close(&client);
    close(&server);
}

fn keeps_large_frames_whole<T: Tested>() {
    let (server, endpoint) = echo_server::<T>();
    let client = start::<T, _>(Echo::client(&endpoint, SocketOptions::default()));
    let sizes = [0, 1, 1023, 1024, 1025, 1 << 20];
    for size in sizes {
        client.ask(Ask::Send { to: None, frames: frame(size), id: None });
    }
    let events = read_until(&client, |events| messages(events) == sizes.len());
    let back = events.into_iter().filter_map(|event| match event {
        Reported::Message(frames) => Some(frames),
        Reported::Socket(..) => None,
    });
    assert!(back.eq(sizes.map(frame)));
    close(&client);
    close(&server);
}

fn runs_two_machines<T: Tested>() {
    let one = Echo::server(ANY, SocketOptions::default());
    let other = Echo::server(ANY, SocketOptions::default());
    let both = start::<T, _>(Together::new(one, Some(other), Apart));
    for endpoint in both.endpoints() {
        let client = start::<T, _>(Echo::client(&endpoint, SocketOptions::default()));
        client.ask(number(1));
        read_until(&client, |events| messages(events) == 1);
        close(&client);
    }
    assert_eq!(both.stats().machine, (1, 1));
    close(&both);
}

fn fails_to_start_where_it_cannot_listen<T: Tested>() {
    let (server, endpoint) = echo_server::<T>();
    let again = Echo::server(&endpoint, SocketOptions::default());
    let error = Handle::start(again, || T::make(context()), Queued, Settings::default()).err();
    assert!(matches!(error, Some(StartError::Open { endpoint: failed, .. }) if failed == endpoint));
    close(&server);
}

fn receiver(bind: &str, limit: Option<u64>) -> Receiver {
    Receiver::new(ReceiverSettings {
        bind: vec![bind.to_owned()],
        connect: vec![],
        finds: false,
        options: SocketOptions::default(),
        decode: Decoding::default(),
        deliver: true,
        limit,
    })
}

fn sender(connect: &str) -> Sender {
    Sender::new(SenderSettings {
        name: "Det".to_owned(),
        variant: Variant::S,
        bind: vec![],
        connect: vec![connect.to_owned()],
        options: SocketOptions { send_hwm: Some(100), ..SocketOptions::default() },
        batch: BatchBounds::default(),
    })
}

fn raw(count: u32) -> impl Iterator<Item = SenderVerb> {
    (0..count).map(|sequence| SenderVerb::Raw(cdtp(sequence)))
}

fn sends_and_receives_cdtp<T: Tested>() {
    let receiver = start::<T, _>(receiver(ANY, None));
    let sender = start::<T, _>(sender(&receiver.endpoints().remove(0)));
    offer_all(&sender, raw(20_000));
    let good = |event: &&ReceiverEvent| matches!(event, ReceiverEvent::Message { .. });
    let events = read_until(&receiver, |events| events.iter().filter(good).count() == 20_000);
    for (sequence, event) in (0u32..).zip(events.iter().filter(good)) {
        let ReceiverEvent::Message { frames, .. } = event else { unreachable!("filtered") };
        assert_eq!(*frames, cdtp(sequence));
    }
    close(&sender);
    assert_eq!(sender.stats().machine.sent, 20_000);
    assert_eq!(sender.stats().machine.queued, 0);
    close(&receiver);
}

// req: CDTP-19
fn counts_what_a_closed_sender_could_not_send<T: Tested>() {
    // Nothing listens at the discard port of this host.
    let sender = start::<T, _>(sender("tcp://127.0.0.1:9"));
    offer_all(&sender, raw(300));
    sender.close(Duration::from_millis(50));
    sender.join();
    assert_eq!(sender.stats().machine.queued, 300);
    assert_eq!(sender.stats().machine.sent, 0);
}

/// Settings of a role that records everything in this directory.
fn recording(directory: &Path, framing: Framing) -> Settings {
    let recording =
        Recording::open(directory, trunkline_capture::Settings::default()).expect("nobody else writes there");
    let capture = Capture { recording, is_owner: true, framing, overflow: CaptureOverflow::End };
    Settings { capture: Some(capture), ..Settings::default() }
}

fn records_what_it_receives<T: Tested>() {
    let directory = tempfile::tempdir().expect("as the test made it");
    let settings = recording(directory.path(), Framing::Cdtp);
    let receiver = start_in::<T, _>(receiver(ANY, Some(1000)), context(), settings);
    let sender = start::<T, _>(sender(&receiver.endpoints().remove(0)));
    offer_all(&sender, raw(1000));
    receiver.await_progress(1000);
    let end = Instant::now() + PATIENCE;
    while receiver.progress() < 1000 {
        assert!(Instant::now() < end);
        receiver.changes().wait(|| receiver.progress() >= 1000, Some(Duration::from_millis(100)));
    }
    let ticket = receiver.flush(false);
    while !receiver.flushed(ticket) {
        assert!(Instant::now() < end);
        receiver.changes().wait(|| receiver.flushed(ticket), Some(Duration::from_millis(100)));
    }
    assert_eq!(receiver.stats().capture.map(|capture| capture.durable), Some(1000));
    close(&sender);
    close(&receiver);
    assert_eq!(receiver.stats().capture.map(|capture| capture.segments), Some(1));
}

fn several_add_to_one_recording<T: Tested>() {
    let directory = tempfile::tempdir().expect("as the test made it");
    let settings = recording(directory.path(), Framing::Cdtp);
    let capture = settings.capture.as_ref().expect("as the test made it");
    let shared = Capture { recording: capture.recording.clone(), is_owner: false, ..*capture };
    let shared = Settings { capture: Some(shared), ..Settings::default() };
    let owner = start_in::<T, _>(receiver(ANY, Some(2000)), context(), settings);
    let guest = start_in::<T, _>(receiver(ANY, Some(2000)), context(), shared);
    let senders = [&owner, &guest].map(|role| start::<T, _>(sender(&role.endpoints()[0])));
    for sender in &senders {
        offer_all(sender, raw(500));
    }
    let wait = |role: &Handle<Receiver>, ready: &dyn Fn() -> bool| {
        let end = Instant::now() + PATIENCE;
        while !ready() {
            assert!(Instant::now() < end);
            role.changes().wait(ready, Some(Duration::from_millis(100)));
        }
    };
    for role in [&owner, &guest] {
        role.await_progress(500);
        wait(role, &|| role.progress() >= 500);
    }
    let ticket = guest.flush(false);
    wait(&guest, &|| guest.flushed(ticket));
    assert_eq!(guest.stats().capture.map(|capture| capture.durable), Some(1000));
    close(&owner);
    // The recording ends with its owner: the directory is free, and what the guest still receives is lost.
    let rows = trunkline_capture::Capture::open(directory.path()).expect("a capture").info().expect("rows");
    assert_eq!((rows.messages, rows.segments), (1000, 1));
    Recording::open(directory.path(), trunkline_capture::Settings::default()).expect("nobody writes there");
    offer_all(&senders[1], raw(10));
    guest.await_progress(510);
    wait(&guest, &|| guest.progress() >= 510);
    let ticket = guest.flush(true);
    wait(&guest, &|| guest.flushed(ticket));
    assert_eq!((guest.stats().capture_lost, guest.stats().capture.is_none()), (10, true));
    close(&guest);
    for sender in &senders {
        close(sender);
    }
}

fn rows_say_what_the_machine_alone_knows<T: Tested>() {
    let directory = tempfile::tempdir().expect("as the test made it");
    let settings = recording(directory.path(), Framing::Dcp);
    let options = SocketOptions { mandatory: true, ..SocketOptions::default() };
    let server = start_in::<T, _>(Echo::server(ANY, options), context(), settings);
    let client = start::<T, _>(Echo::client(&server.endpoints()[0], SocketOptions::default()));
    let several = |last: &'static [u8]| vec![Bytes::new(), Bytes::from_static(b"x"), Bytes::from_static(last)];
    for frames in [vec![Bytes::from_static(b"x")], several(b"news"), several(b"\xff")] {
        client.ask(Ask::Send { to: None, frames, id: None });
    }
    read_until(&client, |events| messages(events) == 3);
    close(&client);
    close(&server);
    let capture = trunkline_capture::Capture::open(directory.path()).expect("a capture");
    let mut seen = vec![];
    for batch in capture.batches().expect("batches") {
        let batch = batch.expect("a batch");
        let text = |name: &str, row: usize| {
            let column = batch[name].as_string::<i32>();
            column.is_valid(row).then(|| column.value(row).to_owned())
        };
        seen.extend(
            (0..batch.num_rows()).map(|row| (text("direction", row), text("protocol", row), text("topic", row))),
        );
    }
    let row = |way: &str, protocol: &str, topic: Option<&str>| {
        (Some(way.to_owned()), Some(protocol.to_owned()), topic.map(str::to_owned))
    };
    for way in ["in", "out"] {
        // What is no text is no topic: only the frames can hold it.
        let expected = [row(way, "dcp", None), row(way, "mc0", Some("news")), row(way, "mc0", None)];
        let of_way: Vec<_> = seen.iter().filter(|(seen, ..)| seen.as_deref() == Some(way)).cloned().collect();
        assert_eq!(of_way, expected);
    }
}

fn refuses_what_the_transport_lacks<T: Tested>() {
    if !skips::<T>(Need::Curve) {
        return;
    }
    let options = SocketOptions { curve: Some(Curve::Server { secret: [1; 32].into() }), ..SocketOptions::default() };
    let error = Handle::start(Echo::server(ANY, options), || T::make(context()), Queued, Settings::default()).err();
    assert!(matches!(error, Some(StartError::Open { error: TransportError::Unsupported("CURVE"), .. })));
}

/// A slow peer costs the others nothing: its messages have their own outbox.
fn a_full_peer_costs_only_itself<T: Tested>() {
    if skips::<T>(Need::RefusalOfFullPeers) {
        return;
    }
    let options =
        SocketOptions { mandatory: true, send_hwm: Some(10), receive_hwm: Some(10), ..SocketOptions::default() };
    let server = start::<T, _>(Echo::server(ANY, options.clone()));
    let endpoint = server.endpoints().remove(0);
    let named = |name: &'static [u8]| {
        let routing_id = Some(Bytes::from_static(name));
        SocketOptions { routing_id, mandatory: false, ..options.clone() }
    };
    // Its queue holds one message, so after a few it stops reading.
    let settings = Settings { bounds: Bounds { messages: 1, bytes: 1 << 20 }, ..Settings::default() };
    let slow = start_in::<T, _>(Echo::client(&endpoint, named(b"slow")), context(), settings);
    let quick = start::<T, _>(Echo::client(&endpoint, named(b"quick")));
    slow.ask(number(0));
    quick.ask(number(0));
    read_until(&quick, |events| messages(events) == 1);
    read_until(&slow, |events| messages(events) == 1);
    let to_slow = Some(Bytes::from_static(b"slow"));
    for _ in 0..1000 {
        server.ask(Ask::Send { to: to_slow.clone(), frames: frame(64 << 10), id: None });
    }
    offer_all(&quick, (0..1000).map(number));
    read_until(&quick, |events| messages(events) == 1000);
    // What is beyond 16 MiB for one peer is dropped, newest first; the rest arrives once the peer reads again.
    let dropped = usize::try_from(server.stats().peer_full).expect("as the test made it");
    assert!((1..1000).contains(&dropped), "{dropped} messages were dropped");
    read_until(&slow, |events| messages(events) == 1000 - dropped);
    for handle in [&slow, &quick, &server] {
        close(handle);
    }
}

/// All outboxes together have a limit: the fullest loses first, and every message is accounted for.
fn deaf_peers_have_one_bound_together<T: Tested>() {
    const BUDGET: usize = 12 << 20;
    const EACH: usize = 64 << 10;
    if skips::<T>(Need::RefusalOfFullPeers) {
        return;
    }
    let options =
        SocketOptions { mandatory: true, send_hwm: Some(10), receive_hwm: Some(10), ..SocketOptions::default() };
    let settings = Settings { outbox_bytes: BUDGET, ..Settings::default() };
    let server = start_in::<T, _>(Echo::server(ANY, options.clone()), context(), settings);
    let endpoint = server.endpoints().remove(0);
    let names: Vec<_> = (0..5).map(|at| Bytes::from(format!("deaf-{at}"))).collect();
    let deaf: Vec<_> = names
        .iter()
        .map(|name| {
            let options = SocketOptions { routing_id: Some(name.clone()), mandatory: false, ..options.clone() };
            let settings = Settings { bounds: Bounds { messages: 1, bytes: 1 << 20 }, ..Settings::default() };
            let client = start_in::<T, _>(Echo::client(&endpoint, options), context(), settings);
            client.ask(number(0));
            read_until(&client, |events| messages(events) == 1);
            client
        })
        .collect();
    // The first gets fifty times what the others get: only it has lost messages in the end.
    let counts = [2000, 40, 40, 40, 40];
    for (name, count) in names.iter().zip(counts) {
        for _ in 0..count {
            server.ask(Ask::Send { to: Some(name.clone()), frames: frame(EACH), id: None });
        }
    }
    let dropped = || usize::try_from(server.stats().peer_full).expect("as the test made it");
    let end = Instant::now() + PATIENCE;
    // Besides what is pending here, the transport and the system hold some at either end.
    while dropped() < 1500 {
        assert!(Instant::now() < end, "{} were dropped", dropped());
        std::thread::sleep(Duration::from_millis(5));
    }
    for (client, count) in deaf.iter().zip(counts).skip(1) {
        read_until(client, |events| messages(events) == count);
    }
    read_until(&deaf[0], |events| messages(events) == counts[0] - dropped());
    for handle in deaf.iter().chain([&server]) {
        close(handle);
    }
}

/// The keys of a client and a server, made by pyzmq.
fn keys(z85: &str) -> [u8; 32] {
    const LETTERS: &str = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
    let mut key = [0; 32];
    for (chunk, bytes) in z85.as_bytes().chunks(5).zip(key.chunks_mut(4)) {
        let digit = |letter: &u8| LETTERS.find(*letter as char).expect("as the test made it") as u64;
        let value = chunk.iter().fold(0, |value, letter| value * 85 + digit(letter));
        bytes.copy_from_slice(&u32::try_from(value).expect("as the test made it").to_be_bytes());
    }
    key
}

fn lets_in_whom_the_authenticator_knows<T: Tested + 'static>() {
    if skips::<T>(Need::Curve) {
        return;
    }
    let server_public = keys("rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7");
    let server_secret = keys("JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6");
    let client_public = keys("Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID");
    let client_secret = keys("D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs");
    let client_curve = Curve::Client { public: client_public, secret: client_secret.into(), server: server_public };
    let knows = |key: [u8; 32]| {
        let (transport, guard) = T::guarded(Rule::Listed(Allowed::from([(key, "client".to_owned())])));
        let options =
            SocketOptions { curve: Some(Curve::Server { secret: server_secret.into() }), ..SocketOptions::default() };
        let server = Handle::start(Echo::server(ANY, options), transport, Queued, Settings::default());
        (server.expect("the role starts"), guard)
    };
    let options = SocketOptions { curve: Some(client_curve), ..SocketOptions::default() };

    let (server, guard) = knows(client_public);
    let client = start::<T, _>(Echo::client(&server.endpoints()[0], options.clone()));
    client.ask(number(1));
    read_until(&client, |events| messages(events) == 1);
    assert_eq!(guard.refused(), 0);
    close(&client);
    close(&server);
    guard.end();

    let (server, guard) = knows([7; 32]);
    let client = start::<T, _>(Echo::client(&server.endpoints()[0], options.clone()));
    client.ask(number(1));
    read_until(&server, |events| {
        events.iter().any(|event| matches!(event, Reported::Socket(_, SocketEvent::HandshakeFailed { .. })))
    });
    let refused = read_until(guard.handle(), |refused| !refused.is_empty());
    assert!(matches!(&refused[0], ZapEvent::Refused(client) if client.key == z85(&client_public)));
    assert!(guard.refused() > 0);

    close(&client);

    guard.allow(Allowed::from([(client_public, "client".to_owned())]));
    let client = start::<T, _>(Echo::client(&server.endpoints()[0], options));
    client.ask(number(1));
    read_until(&client, |events| messages(events) == 1);
    close(&client);
    close(&server);
    guard.end();
}
