//! CHIRP and discovery over real sockets and all transports; the peers are plain UDP sockets.

mod common;

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use common::{Tested, cdtp, close, read_until, start};
use socket2::{Domain, Socket, Type};
use trunkline_engine::libzmq::LibzmqTransport;
use trunkline_engine::zeromq::ZeromqTransport;
use trunkline_engine::zmtp::ZmtpTransport;
use trunkline_engine::{Announcing, Finding, Hold as _, Running as _, Together};
use trunkline_wire::SocketOptions;
use trunkline_wire::cdtp::{
    BatchBounds, Receiver, ReceiverEvent, ReceiverSettings, Sender, SenderSettings, SenderVerb, Settings as Decoding,
    Variant,
};
use trunkline_wire::chirp::{
    Beacon, BeaconEvent, BeaconSettings, BeaconVerb, Cast, Datagram, Id, Kind, News, Service, ServiceAddress, decode,
};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 192, 7, 123);

/// Runs each test over each transport.
macro_rules! over_all {
    ($($name:ident)*) => {
        mod libzmq {
            $(#[test] fn $name() { super::$name::<super::LibzmqTransport>(); })*
        }
        mod zeromq {
            $(#[test] fn $name() { super::$name::<super::ZeromqTransport>(); })*
        }
        mod zmtp {
            $(#[test] fn $name() { super::$name::<super::ZmtpTransport>(); })*
        }
    };
}

over_all! {
    a_beacon_hears_and_is_heard
    a_receiver_finds_a_sender_and_lets_go_of_it
    tells_one_network_alone
}

/// A plain socket that shares its port with the beacons under test.
fn peer() -> (UdpSocket, u16) {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("a shared port");
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    socket.set_reuse_port(true).expect("a shared port");
    socket.bind(&std::net::SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into()).expect("a port");
    socket.join_multicast_v4(&GROUP, &Ipv4Addr::LOCALHOST).expect("the loopback network");
    socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).expect("the loopback network");
    socket.set_read_timeout(Some(common::PATIENCE)).expect("a time-out");
    let socket: UdpSocket = socket.into();
    let port = socket.local_addr().expect("a port").port();
    (socket, port)
}

fn hear(peer: &UdpSocket, kind: Kind) -> Datagram {
    let mut buffer = [0; 100];
    loop {
        let length = peer.recv(&mut buffer).expect("something is heard");
        if let Ok(datagram) = decode(&[&buffer[..length]])
            && datagram.kind == kind
        {
            return datagram;
        }
    }
}

fn beacon(name: Option<&str>, port: u16) -> Beacon {
    let settings = BeaconSettings {
        group: "lab".to_owned(),
        name: name.map(str::to_owned),
        cast: Cast::Multicast,
        lower_case: true,
        names: vec![],
        only_names: false,
        port,
    };
    Beacon::new(settings, [u8::try_from(port % 251).expect("small"); 32])
}

// req: CHIRP-04, CHIRP-05
fn a_beacon_hears_and_is_heard<T: Tested>() {
    let (peer, port) = peer();
    let one = start::<T, _>(beacon(Some("one"), port));
    let other = start::<T, _>(beacon(Some("other"), port));
    one.ask(BeaconVerb::Offer(Service::Data, ServiceAddress { port: 4000, address: None }));
    assert_eq!(hear(&peer, Kind::Offer).host, Id::of("one"));
    let is = |event: &BeaconEvent, kind| matches!(event, BeaconEvent::News(news) if news.kind == kind);
    let events = read_until(&other, |events| events.iter().any(|event| is(event, Kind::Offer)));
    let Some(BeaconEvent::News(News { host, endpoint, .. })) = events.last() else { unreachable!("just found") };
    assert_eq!((*host, endpoint.as_deref()), (Id::of("one"), Some("tcp://127.0.0.1:4000")));
    close(&one);
    assert_eq!(hear(&peer, Kind::Depart).port, 4000);
    read_until(&other, |events| events.iter().any(|event| is(event, Kind::Depart)));
    close(&other);
}

fn sender(port: u16, bind: &str) -> Together<Sender, Beacon, Announcing> {
    let sender = Sender::new(SenderSettings {
        name: "Det".to_owned(),
        variant: Variant::S,
        bind: vec![bind.to_owned()],
        connect: vec![],
        options: SocketOptions::default(),
        batch: BatchBounds::default(),
    });
    Together::new(sender, Some(beacon(Some("Det"), port)), Announcing::default())
}

fn receiver(port: u16) -> Together<Receiver, Beacon, Finding> {
    let receiver = Receiver::new(ReceiverSettings {
        bind: vec![],
        connect: vec![],
        finds: true,
        options: SocketOptions::default(),
        decode: Decoding::default(),
        deliver: true,
        limit: None,
    });
    let mut beacon = beacon(None, port);
    beacon.request(Service::Data);
    Together::new(receiver, Some(beacon), Finding)
}

// req: CDTP-15, CDTP-16
fn a_receiver_finds_a_sender_and_lets_go_of_it<T: Tested>() {
    let (peer, port) = peer();
    let sender = start::<T, _>(sender(port, "tcp://127.0.0.1:*"));
    for sequence in 0..1000 {
        sender.ask(trunkline_engine::Either::First(SenderVerb::Raw(cdtp(sequence))));
    }
    let offered = hear(&peer, Kind::Offer);
    let receiver = start::<T, _>(receiver(port));
    let good = |event: &&ReceiverEvent| matches!(event, ReceiverEvent::Message { .. });
    let events = read_until(&receiver, |events| events.iter().filter(good).count() == 1000);
    let endpoint = format!("tcp://127.0.0.1:{}", offered.port);
    assert!(matches!(&events[0], ReceiverEvent::Found(found) if *found == endpoint));
    assert_eq!(receiver.endpoints(), [endpoint]);
    close(&sender);
    assert_eq!(hear(&peer, Kind::Depart).port, offered.port);
    let departed = |event: &ReceiverEvent| matches!(event, ReceiverEvent::Departed(_));
    read_until(&receiver, |events| events.iter().any(departed));
    let end = std::time::Instant::now() + common::PATIENCE;
    while !receiver.endpoints().is_empty() {
        assert!(std::time::Instant::now() < end);
        receiver.changes().wait(|| receiver.endpoints().is_empty(), Some(Duration::from_millis(20)));
    }
    close(&receiver);
}

/// What listens on one network is announced only there.
fn tells_one_network_alone<T: Tested>() {
    let (peer, port) = peer();
    let sender = start::<T, _>(sender(port, "tcp://127.0.0.1:*"));
    let offered = hear(&peer, Kind::Offer);
    close(&sender);
    assert_eq!(hear(&peer, Kind::Depart), Datagram { kind: Kind::Depart, ..offered });
    // Nothing came twice: the next datagram is the one sent now.
    peer.send_to(&Datagram { kind: Kind::Offer, port: 1, ..offered }.encode(), (GROUP, port)).expect("sent");
    assert_eq!(hear(&peer, Kind::Offer).port, 1);
}
