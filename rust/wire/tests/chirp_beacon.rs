//! The beacon without sockets: the clock is a number, datagrams are made by hand.
#![allow(clippy::unwrap_used)] // a surprise fails the test

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use smallvec::smallvec;
use trunkline_wire::chirp::{
    Beacon, BeaconEvent, BeaconSettings, BeaconVerb, Cast, Datagram, Id, Kind, News, Service, ServiceAddress, Udp,
    decode,
};
use trunkline_wire::{Incoming, Machine, Nanos, Output, SocketEvent, SocketKind};

const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLISECOND;
const MULTICAST: &str = "239.192.7.123:7123";
const BROADCAST: &str = "255.255.255.255:7123";

fn settings() -> BeaconSettings {
    BeaconSettings {
        group: "Lab".into(),
        name: Some("Detector.One".into()),
        cast: Cast::Multicast,
        lower_case: true,
        names: vec![],
        only_names: false,
        port: 7123,
    }
}

fn beacon(settings: BeaconSettings) -> Beacon {
    seeded(settings, [7; 32])
}

fn seeded(settings: BeaconSettings, seed: [u8; 32]) -> Beacon {
    let mut beacon = Beacon::new(settings, seed);
    let Some(Output::Open(open)) = beacon.poll_output() else { panic!("no socket") };
    assert_eq!((open.kind, &open.bind[..]), (SocketKind::Udp, &["udp://0.0.0.0:7123".to_owned()][..]));
    assert_eq!(open.options.multicast.map(|multicast| multicast.ttl), Some(8));
    beacon
}

fn offer(service: Service, port: u16) -> BeaconVerb {
    BeaconVerb::Offer(service, ServiceAddress { port, address: None })
}

/// The datagrams sent, each with its address.
fn sent(beacon: &mut Beacon) -> Vec<(String, Datagram)> {
    let sends = std::iter::from_fn(|| beacon.poll_output()).filter_map(|output| match output {
        Output::Send { to, frames, .. } => {
            Some((String::from_utf8(to.unwrap().to_vec()).unwrap(), decode(&frames).unwrap()))
        }
        Output::Withdraw { .. }
        | Output::Open(_)
        | Output::Connect { .. }
        | Output::Disconnect { .. }
        | Output::Close { .. } => None,
    });
    sends.collect()
}

fn from_other(kind: Kind, name: &str, port: u16) -> Datagram {
    Datagram { kind, group: Id::of("lab"), host: Id::of(name), service: Service::Data, port }
}

fn hear_from(beacon: &mut Beacon, now: u64, address: &str, datagram: &Datagram) {
    let frames = smallvec![Bytes::copy_from_slice(&datagram.encode())];
    let peer = Some(Bytes::copy_from_slice(address.as_bytes()));
    assert_eq!(
        beacon.handle_message(Nanos(now), Incoming { socket: Udp, peer, user_id: None, host: None, frames }).error,
        None
    );
}

fn hear(beacon: &mut Beacon, now: u64, datagram: &Datagram) {
    hear_from(beacon, now, "192.0.2.7:50000", datagram);
}

fn news(beacon: &mut Beacon) -> Vec<(Kind, Option<String>)> {
    let events = std::iter::from_fn(|| beacon.poll_event()).filter_map(|event| match event {
        BeaconEvent::News(News { kind, endpoint, .. }) => Some((kind, endpoint)),
        BeaconEvent::Dropped(_) => None,
    });
    events.collect()
}

#[allow(clippy::unnecessary_wraps)] // the type of a field of `News`
fn at(port: u16) -> Option<String> {
    Some(format!("tcp://192.0.2.7:{port}"))
}

// req: CHIRP-03, CHIRP-05
#[test]
fn offers_in_lower_case_unless_told_otherwise() {
    for (lower_case, group, host) in [(true, "lab", "detector.one"), (false, "Lab", "Detector.One")] {
        let mut beacon = beacon(BeaconSettings { lower_case, ..settings() });
        beacon.handle_verb(Nanos(0), offer(Service::Data, 4000));
        let (group, host) = (Id::of(group), Id::of(host));
        let expected = Datagram { kind: Kind::Offer, group, host, service: Service::Data, port: 4000 };
        assert_eq!(sent(&mut beacon), [(MULTICAST.to_owned(), expected)]);
    }
}

// req: CHIRP-04
#[test]
fn announces_one_way_and_asks_both_ways() {
    for (cast, announced) in [(Cast::Multicast, MULTICAST), (Cast::Broadcast, BROADCAST)] {
        let mut beacon = beacon(BeaconSettings { cast, ..settings() });
        beacon.handle_verb(Nanos(0), offer(Service::Control, 1));
        beacon.handle_verb(Nanos(0), BeaconVerb::Depart(Service::Control));
        let casts: Vec<_> = sent(&mut beacon).into_iter().map(|(to, datagram)| (to, datagram.kind)).collect();
        assert_eq!(casts, [(announced.to_owned(), Kind::Offer), (announced.to_owned(), Kind::Depart)]);
        beacon.handle_verb(Nanos(0), BeaconVerb::Request(Service::Data));
        let requests = sent(&mut beacon);
        let casts: BTreeSet<_> = requests.iter().map(|(to, datagram)| (to.as_str(), datagram.host)).collect();
        let expected = [MULTICAST, BROADCAST]
            .into_iter()
            .flat_map(|to| ["Detector.One", "detector.one"].map(|name| (to, Id::of(name))))
            .collect();
        assert_eq!(casts, expected);
        assert!(requests.iter().all(|(_, datagram)| datagram.kind == Kind::Request && datagram.port == 0));
    }
}

#[test]
fn tells_the_one_network_that_can_reach_the_service() {
    let mut beacon = beacon(settings());
    let place = ServiceAddress { port: 4000, address: Some([192, 0, 2, 2].into()) };
    beacon.handle_verb(Nanos(0), BeaconVerb::Offer(Service::Data, place));
    beacon.handle_close(Nanos(0), Duration::ZERO);
    let to: Vec<_> = sent(&mut beacon).into_iter().map(|(to, _)| to).collect();
    assert_eq!(to, ["239.192.7.123:7123@192.0.2.2"; 2]);
}

// req: CHIRP-03
#[test]
fn asks_once_where_both_hashes_are_one() {
    let lower = BeaconSettings { group: "lab".into(), name: Some("detector.one".into()), ..settings() };
    let mut beacon = beacon(lower);
    beacon.handle_verb(Nanos(0), BeaconVerb::Request(Service::Data));
    assert_eq!(sent(&mut beacon).len(), 2);
}

// req: CHIRP-05
#[test]
fn answers_within_200_ms_and_at_a_time_of_its_own() {
    let mut delays = BTreeSet::new();
    for seed in 0..=255 {
        let mut beacon = seeded(settings(), [seed; 32]);
        beacon.handle_verb(Nanos(0), offer(Service::Data, 4000));
        sent(&mut beacon);
        hear(&mut beacon, SECOND, &from_other(Kind::Request, "other", 0));
        assert!(sent(&mut beacon).is_empty());
        let Nanos(due) = beacon.poll_timeout().expect("an answer is due");
        assert!((SECOND..SECOND + 200 * MILLISECOND).contains(&due));
        delays.insert(due);
        beacon.handle_timeout(Nanos(due - 1));
        assert!(sent(&mut beacon).is_empty());
        beacon.handle_timeout(Nanos(due));
        let answers = sent(&mut beacon);
        assert_eq!(answers.len(), 1);
        assert_eq!((answers[0].1.kind, answers[0].1.port), (Kind::Offer, 4000));
        assert_eq!(beacon.poll_timeout(), None);
    }
    assert!(delays.len() > 200, "only {} different delays", delays.len());
    let spread = delays.last().unwrap() - delays.first().unwrap();
    assert!(spread > 150 * MILLISECOND, "all within {spread} ns");
}

// req: CHIRP-05
#[test]
fn many_requests_have_one_answer() {
    let mut beacon = beacon(settings());
    beacon.handle_verb(Nanos(0), offer(Service::Data, 4000));
    sent(&mut beacon);
    for number in 0..1000 {
        hear(&mut beacon, 0, &from_other(Kind::Request, &number.to_string(), 0));
    }
    beacon.handle_timeout(Nanos(SECOND));
    assert_eq!(sent(&mut beacon).len(), 1);
    // A service that is not offered is not answered for.
    hear(&mut beacon, SECOND, &Datagram { service: Service::Control, ..from_other(Kind::Request, "x", 0) });
    assert_eq!(beacon.poll_timeout(), None);
}

#[test]
fn copies_of_a_request_are_reported_once() {
    let mut beacon = beacon(settings());
    for now in [0, MILLISECOND, 99 * MILLISECOND, SECOND] {
        hear(&mut beacon, now, &from_other(Kind::Request, "other", 0));
    }
    assert_eq!(news(&mut beacon), [(Kind::Request, None), (Kind::Request, None)]);
}

// req: CHIRP-06
#[test]
fn an_offer_is_told_once_and_one_of_another_port_replaces_it() {
    let mut beacon = beacon(settings());
    for _ in 0..5 {
        hear(&mut beacon, 0, &from_other(Kind::Offer, "other", 1000));
    }
    assert_eq!(news(&mut beacon), [(Kind::Offer, at(1000))]);
    hear(&mut beacon, 0, &from_other(Kind::Offer, "other", 2000));
    assert_eq!(news(&mut beacon), [(Kind::Depart, at(1000)), (Kind::Offer, at(2000))]);
    // The departure of the old one arrives late.
    hear(&mut beacon, 0, &from_other(Kind::Depart, "other", 1000));
    assert_eq!(news(&mut beacon), []);
    hear(&mut beacon, 0, &from_other(Kind::Depart, "other", 2000));
    hear(&mut beacon, 0, &from_other(Kind::Depart, "other", 2000));
    assert_eq!(news(&mut beacon), [(Kind::Depart, at(2000))]);
    hear(&mut beacon, 0, &from_other(Kind::Offer, "other", 2000));
    assert_eq!(news(&mut beacon), [(Kind::Offer, at(2000))]);
}

// req: CHIRP-06
#[test]
fn own_beacons_other_groups_and_unknown_departures_are_ignored() {
    let mut beacon = beacon(settings());
    for own in ["Detector.One", "detector.one"] {
        hear(&mut beacon, 0, &from_other(Kind::Offer, own, 1));
        hear(&mut beacon, 0, &from_other(Kind::Request, own, 0));
    }
    hear(&mut beacon, 0, &Datagram { group: Id::of("LAB"), ..from_other(Kind::Offer, "other", 1) });
    hear(&mut beacon, 0, &from_other(Kind::Depart, "other", 1));
    assert_eq!(news(&mut beacon), []);
    let stats = beacon.stats();
    assert_eq!((stats.received, stats.ignored, stats.services), (6, 5, 0));
    assert!(stats.dropped.is_empty());
}

// req: CHIRP-03
#[test]
fn groups_and_names_match_by_either_hash() {
    let mut beacon = beacon(BeaconSettings { names: vec!["Sensor.Two".into()], only_names: true, ..settings() });
    for (port, (group, name)) in (1..).zip([("Lab", "Sensor.Two"), ("lab", "sensor.two")]) {
        hear(&mut beacon, 0, &Datagram { group: Id::of(group), ..from_other(Kind::Offer, name, port) });
        let Some(BeaconEvent::News(news)) = beacon.poll_event() else { panic!("not heard") };
        assert_eq!((news.host, news.name.as_deref()), (Id::of(name), Some("Sensor.Two")));
    }
    hear(&mut beacon, 0, &from_other(Kind::Offer, "SENSOR.TWO", 3));
    hear(&mut beacon, 0, &from_other(Kind::Offer, "sensor.three", 4));
    assert_eq!(beacon.poll_event(), None);
}

#[test]
fn a_host_on_two_networks_is_one_and_one_that_moved_is_followed() {
    let mut beacon = beacon(settings());
    let offer = from_other(Kind::Offer, "other", 1000);
    for now in [0, 3 * SECOND] {
        hear_from(&mut beacon, now, "127.0.0.1:7123", &offer);
        hear_from(&mut beacon, now, "192.0.2.7:7123", &offer);
        beacon.handle_timeout(Nanos(now + 2 * SECOND));
    }
    for now in [5 * SECOND, 10 * SECOND] {
        hear_from(&mut beacon, now, "192.0.2.7:7123", &offer);
        hear_from(&mut beacon, now, "127.0.0.1:7123", &offer);
        beacon.handle_timeout(Nanos(now + 2 * SECOND));
    }
    assert_eq!(news(&mut beacon), [(Kind::Offer, Some("tcp://127.0.0.1:1000".into()))]);
    hear_from(&mut beacon, 20 * SECOND, "192.0.2.7:7123", &offer);
    assert_eq!(beacon.poll_timeout(), Some(Nanos(21 * SECOND)));
    beacon.handle_timeout(Nanos(21 * SECOND));
    let moved = [(Kind::Depart, Some("tcp://127.0.0.1:1000".into())), (Kind::Offer, at(1000))];
    assert_eq!(news(&mut beacon), moved);
    assert_eq!(beacon.poll_timeout(), None);
}

// req: CHIRP-05
#[test]
fn closing_takes_every_offer_back() {
    let mut beacon = beacon(settings());
    for (service, port) in [(Service::Data, 4), (Service::Control, 1), (Service::Monitoring, 3)] {
        beacon.handle_verb(Nanos(0), offer(service, port));
    }
    beacon.handle_verb(Nanos(0), BeaconVerb::Depart(Service::Monitoring));
    sent(&mut beacon);
    beacon.handle_close(Nanos(0), Duration::ZERO);
    let mut departs = vec![];
    while let Some(output) = beacon.poll_output() {
        match output {
            Output::Send { frames, .. } => departs.push(decode(&frames).unwrap()),
            Output::Close { socket, .. } => beacon.handle_socket(Nanos(0), socket, SocketEvent::Closed),
            Output::Withdraw { .. } | Output::Open(_) | Output::Connect { .. } | Output::Disconnect { .. } => {
                panic!("{output:?}")
            }
        }
    }
    let departs: Vec<_> = departs.iter().map(|datagram| (datagram.kind, datagram.service, datagram.port)).collect();
    assert_eq!(departs, [(Kind::Depart, Service::Control, 1), (Kind::Depart, Service::Data, 4)]);
    assert!(beacon.is_closed());
}

#[test]
fn two_without_a_name_hear_each_other() {
    let anonymous = || BeaconSettings { name: None, ..settings() };
    let (mut one, mut other) = (seeded(anonymous(), [1; 32]), seeded(anonymous(), [2; 32]));
    one.handle_verb(Nanos(0), BeaconVerb::Request(Service::Data));
    for (_, datagram) in sent(&mut one) {
        hear(&mut one, 0, &datagram);
        hear(&mut other, 0, &datagram);
    }
    assert_eq!(news(&mut one), []);
    assert_eq!(news(&mut other), [(Kind::Request, None)]);
}

// req: CHIRP-07
#[test]
fn what_the_network_offers_does_not_grow_the_table() {
    let mut beacon = beacon(settings());
    for number in 0..5000u16 {
        let [high, low] = number.to_be_bytes();
        let address = format!("10.0.{high}.{low}:7123");
        hear_from(&mut beacon, number.into(), &address, &from_other(Kind::Offer, &number.to_string(), 1));
    }
    assert_eq!((beacon.stats().services, beacon.stats().dropped), (1024, [].into()));
    news(&mut beacon);
    // The services heard last are kept; a dropped one is reported again when it is announced.
    hear_from(&mut beacon, 5000, "10.0.19.135:7123", &from_other(Kind::Depart, "4999", 1));
    assert_eq!(news(&mut beacon), [(Kind::Depart, Some("tcp://10.0.19.135:1".to_owned()))]);
    hear_from(&mut beacon, 5001, "10.0.0.0:7123", &from_other(Kind::Offer, "0", 1));
    assert_eq!(news(&mut beacon), [(Kind::Offer, Some("tcp://10.0.0.0:1".to_owned()))]);
}

// req: CHIRP-07
#[test]
fn one_address_does_not_fill_the_table() {
    let mut beacon = beacon(settings());
    for number in 0..1000 {
        hear(&mut beacon, 0, &from_other(Kind::Offer, &number.to_string(), 1));
    }
    assert_eq!((beacon.stats().services, beacon.stats().dropped), (16, [("table_full", 984)].into()));
    news(&mut beacon);
    hear_from(&mut beacon, 0, "10.9.9.9:7123", &from_other(Kind::Offer, "real", 1));
    assert_eq!(news(&mut beacon), [(Kind::Offer, Some("tcp://10.9.9.9:1".to_owned()))]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A hundred times a thousand datagrams.
    // req: CHIRP-07
    #[test]
    fn any_datagram_is_without_effect(seed: [u8; 32], datagrams in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..64)), 1000)) {
        let mut beacon = seeded(settings(), seed);
        beacon.handle_verb(Nanos(0), offer(Service::Data, 4000));
        hear(&mut beacon, 0, &from_other(Kind::Offer, "other", 1000));
        news(&mut beacon);
        sent(&mut beacon);
        for (how, mut bytes) in datagrams {
            if how & 1 == 1 {
                bytes.splice(0..bytes.len().min(6), *b"CHIRP\x01");
            }
            let frames = smallvec![Bytes::from(bytes)];
            beacon.handle_message(Nanos(0), Incoming { socket: Udp, peer: None, user_id: None, host: None, frames });
        }
        let stats = beacon.stats();
        prop_assert_eq!((stats.received, stats.services), (1001, 1));
        prop_assert_eq!(stats.dropped.values().sum::<u64>() + stats.ignored, 1000);
        prop_assert_eq!(news(&mut beacon), vec![]);
        prop_assert_eq!(beacon.poll_timeout(), None);
        hear(&mut beacon, 0, &from_other(Kind::Request, "other", 0));
        beacon.handle_timeout(Nanos(SECOND));
        prop_assert_eq!(sent(&mut beacon).len(), 1);
    }
}

// req: CHIRP-05
#[test]
fn seeks_again_after_twice_the_time_up_to_a_minute() {
    let mut beacon = beacon(settings());
    beacon.seek(Service::Data);
    let mut asked = vec![];
    while asked.len() < 9 {
        let now = beacon.poll_timeout().expect("it goes on");
        beacon.handle_timeout(now);
        let requests = sent(&mut beacon);
        assert_eq!(requests.len(), 4, "both ways, with both hashes");
        assert!(requests.iter().all(|(_, datagram)| datagram.kind == Kind::Request));
        asked.push(now.0 / SECOND);
    }
    assert_eq!(asked, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
    beacon.handle_close(Nanos(200 * SECOND), Duration::ZERO);
    assert_eq!(beacon.poll_timeout(), None);
}
