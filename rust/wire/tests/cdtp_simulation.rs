//! Sender and receiver of CDTP, and beacons of CHIRP, in simulations.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use smallvec::smallvec;
use trunkline_wire::cdtp::{
    BatchBounds, Layout, Receiver, ReceiverEvent, ReceiverSettings, Sender, SenderSettings, SenderVerb, Settings,
    Variant,
};
use trunkline_wire::chirp::{Beacon, BeaconEvent, BeaconSettings, BeaconVerb, Cast, Kind, Service, ServiceAddress};
use trunkline_wire::msgpack::Timestamp;
use trunkline_wire::simulation::{Bare, Network, Node, Notice, Received, Simulation};
use trunkline_wire::{Nanos, SocketKind, SocketOptions};

const STEPS: u64 = 100_000;
const SECOND: Duration = Duration::from_secs(1);
const ENDPOINT: &str = "tcp://det:1";

fn sender() -> Sender {
    Sender::new(SenderSettings {
        name: "Det".to_owned(),
        variant: Variant::A,
        bind: vec![ENDPOINT.to_owned()],
        connect: vec![],
        options: SocketOptions::default(),
        batch: BatchBounds::default(),
    })
}

fn receiver() -> Receiver {
    Receiver::new(ReceiverSettings {
        bind: vec![],
        connect: vec![ENDPOINT.to_owned()],
        finds: false,
        options: SocketOptions::default(),
        decode: Settings::default(),
        deliver: true,
        limit: None,
    })
}

fn send(simulation: &mut Simulation, node: Node, payload: u8) {
    let payload = smallvec![Bytes::copy_from_slice(&[payload])];
    let (timestamp, tags) = (Timestamp::default(), Bytes::from_static(&[0x80]));
    simulation.ask::<Sender>(node, SenderVerb::Data { timestamp, tags, payload });
}

fn run(simulation: &mut Simulation, until: Nanos) {
    while simulation.step(until).expect("it ends") {}
}

/// The sequence numbers received, in order, including those of BOR and EOR.
fn came(simulation: &mut Simulation, node: Node) -> Vec<u64> {
    std::iter::from_fn(|| simulation.event::<Receiver>(node))
        .filter_map(|event| match event {
            ReceiverEvent::Message { layout: Layout::Single(head), .. } => head.sequence,
            ReceiverEvent::Message { .. }
            | ReceiverEvent::Dropped(_)
            | ReceiverEvent::Found(_)
            | ReceiverEvent::Departed(_)
            | ReceiverEvent::Connection(_)
            | ReceiverEvent::Run { .. } => None,
        })
        .collect()
}

// req: CDTP-15
#[test]
fn what_is_sent_before_anybody_listens_waits() {
    let mut simulation = Simulation::new(1, Network { latency: SECOND, ..Network::default() }, STEPS);
    let receiver = simulation.add("receiver", |_, _| receiver());
    let sender = simulation.add("sender", |_, _| sender());
    simulation.crash(receiver);
    for payload in 0..3 {
        send(&mut simulation, sender, payload);
    }
    run(&mut simulation, Nanos(0) + SECOND * 5);
    simulation.restart(receiver);
    run(&mut simulation, Nanos(0) + SECOND * 10);
    assert_eq!(came(&mut simulation, receiver), [0, 1, 2, 3]);
}

#[test]
fn one_that_wants_no_more_leaves_the_rest_where_it_is() {
    let mut simulation = Simulation::new(1, Network::default(), STEPS);
    let limited = || {
        let mut receiver = receiver();
        receiver.set_message_limit(Some(2));
        receiver
    };
    let receiver = simulation.add("receiver", move |_, _| limited());
    let sender = simulation.add("sender", |_, _| sender());
    for payload in 0..9 {
        send(&mut simulation, sender, payload);
    }
    run(&mut simulation, Nanos(0) + SECOND);
    assert_eq!(came(&mut simulation, receiver).len(), 2);
}

// req: CHIRP-05
#[test]
fn beacons_find_each_other_over_datagrams_that_are_lost() {
    let beacon = |name: &str| BeaconSettings {
        group: "lab".to_owned(),
        name: Some(name.to_owned()),
        cast: Cast::Multicast,
        lower_case: false,
        names: vec![],
        only_names: false,
        port: 7123,
    };
    let (offers, asks) = (beacon("a"), beacon("b"));
    let mut simulation = Simulation::new(3, Network { loss: 0.5, ..Network::default() }, STEPS);
    let offering = simulation.add("beacon", move |_, seed| Beacon::new(offers.clone(), seed));
    let asking = simulation.add("beacon", move |_, seed| {
        let mut beacon = Beacon::new(asks.clone(), seed);
        beacon.seek(Service::Data);
        beacon
    });
    simulation
        .ask::<Beacon>(offering, BeaconVerb::Offer(Service::Data, ServiceAddress { port: 40_000, address: None }));
    run(&mut simulation, Nanos(0) + SECOND * 300);
    let offers: Vec<_> = std::iter::from_fn(|| simulation.event::<Beacon>(asking))
        .filter_map(|event| match event {
            BeaconEvent::News(news) if news.kind == Kind::Offer => news.endpoint,
            BeaconEvent::News(_) | BeaconEvent::Dropped(_) => None,
        })
        .collect();
    assert_eq!(offers, ["tcp://10.0.0.1:40000"]);
}

#[test]
fn bare_sockets_talk_as_zeromq_has_them() {
    let mut simulation = Simulation::new(1, Network::default(), STEPS);
    let at = || vec![ENDPOINT.to_owned()];
    let router = simulation.add("router", move |_, _| Bare::new(SocketKind::Router, at(), vec![]));
    let req = simulation.add("req", move |_, _| Bare::new(SocketKind::Req, vec![], at()));
    simulation.ask::<Bare>(req, (None, smallvec![Bytes::from_static(b"ask")]));
    run(&mut simulation, Nanos(0) + SECOND);
    let Received { peer, frames } = simulation.event::<Bare>(router).expect("it was asked");
    assert_eq!(frames[..], [Bytes::new(), Bytes::from_static(b"ask")], "a REQ puts an empty frame before");
    assert_eq!(peer.as_ref(), simulation.address(req));
    simulation.ask::<Bare>(router, (peer, smallvec![Bytes::new(), Bytes::from_static(b"answer")]));
    run(&mut simulation, Nanos(0) + SECOND * 2);
    let answer = simulation.event::<Bare>(req).expect("it was answered");
    assert_eq!((answer.peer, &answer.frames[..]), (None, &[Bytes::from_static(b"answer")][..]));
    assert!(std::iter::from_fn(|| simulation.poll_notice()).all(|notice| matches!(notice, Notice::Event(_))));
    let second = simulation.add("router", move |_, _| Bare::new(SocketKind::Router, at(), vec![]));
    assert_eq!(simulation.endpoints(second), [""; 0], "the endpoint is taken");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    // req: CDTP-11
    #[test]
    fn what_comes_comes_once_and_in_order(seed: u64, count in 1u8..40, jitter in 0u64..50, crash in 0u64..100) {
        let network = Network { jitter: Duration::from_millis(jitter), ..Network::default() };
        let mut simulation = Simulation::new(seed, network, STEPS);
        let sender = simulation.add("sender", |_, _| sender());
        let receiver = simulation.add("receiver", |_, _| receiver());
        let mut seen = vec![];
        for payload in 0..count {
            send(&mut simulation, sender, payload);
            let next = simulation.now() + Duration::from_millis(5);
            run(&mut simulation, next);
            seen.extend(came(&mut simulation, receiver));
            if u64::from(payload) == crash {
                simulation.restart(receiver);
            }
        }
        let end = simulation.now() + SECOND;
        run(&mut simulation, end);
        seen.extend(came(&mut simulation, receiver));
        prop_assert!(seen.windows(2).all(|two| two[0] < two[1]), "{seen:?}");
        if crash >= u64::from(count) {
            let expected: Vec<_> = (0..=u64::from(count)).collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
