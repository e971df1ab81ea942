//! Any datagrams at any time, to a beacon that offers. The first two bytes of each say how long it is and when it comes.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use trunkline_wire::chirp::{Beacon, BeaconSettings, BeaconVerb, Cast, LENGTH, ServiceAddress, Service, Udp, decode};
use trunkline_wire::{Frames, Incoming, Machine, Nanos, Output, SocketEvent};

/// The table's bound, and the most that one datagram can make a beacon say.
const SERVICES: u64 = 1024;
const EVENTS: usize = 2;

fuzz_target!(|input: &[u8]| {
    let mut beacon = Beacon::new(
        BeaconSettings {
            group: "lab".into(),
            name: Some("Detector.one".into()),
            cast: Cast::Multicast,
            lower_case: true,
            names: vec!["Viewer".into()],
            only_names: false,
            port: 7123,
        },
        [7; 32],
    );
    beacon.handle_verb(Nanos(0), BeaconVerb::Offer(Service::Data, ServiceAddress { port: 1, address: None }));
    drain(&mut beacon);

    let (mut now, mut rest, mut count) = (Nanos(0), input, 0);
    while let [length, pause, tail @ ..] = rest {
        let (datagram, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        count += 1;
        now = now + Duration::from_millis(u64::from(*pause) * 8);
        if beacon.poll_timeout().is_some_and(|at| at <= now) {
            beacon.handle_timeout(now);
            assert!(beacon.poll_timeout().is_none_or(|at| at > now), "what is due is done");
        }
        let frames = Frames::from_iter([datagram.to_vec().into()]);
        let peer = Some(format!("192.0.2.{pause}:7123").into());
        let error = beacon.handle_message(now, Incoming { socket: Udp, peer, user_id: None, host: None, frames }).error;
        match decode(&[datagram]) {
            Ok(read) => assert_eq!(read.encode(), *datagram),
            Err(fault) => {
                assert_eq!(error, Some(fault.kind));
                assert!(fault.offset <= datagram.len().min(LENGTH));
            }
        }
        drain(&mut beacon);
    }
    let stats = beacon.stats();
    assert_eq!(stats.received, count);
    assert!(stats.services <= SERVICES.min(count));
    assert!(stats.sent <= 1 + count, "one answer a question at most");

    beacon.handle_close(now, Duration::ZERO);
    assert!(drain(&mut beacon));
    beacon.handle_socket(now, Udp, SocketEvent::Closed);
    assert!(beacon.is_closed());
});

/// Takes what the beacon wants and says; true when its last wish was to close.
fn drain(beacon: &mut Beacon) -> bool {
    let last = std::iter::from_fn(|| beacon.poll_output()).last();
    // A timeout may move every host it knows.
    let events = std::iter::from_fn(|| beacon.poll_event()).count();
    assert!(events <= EVENTS * (1 + SERVICES as usize));
    matches!(last, Some(Output::Close { .. }))
}
