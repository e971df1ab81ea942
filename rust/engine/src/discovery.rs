//! Connects a role of CDTP to its beacon (CDTP-15, CDTP-16).

use std::net::Ipv4Addr;
use trunkline_wire::Machine;

use trunkline_wire::Nanos;
use trunkline_wire::cdtp::{Receiver, ReceiverEvent, ReceiverVerb, Sender, SenderEvent};
use trunkline_wire::chirp::{Beacon, BeaconEvent, BeaconVerb, Kind, News, Service, ServiceAddress};

use crate::together::Glue;

/// Lets a beacon announce where its sender listens: at one port, since a host announces a service once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Announcing {
    announced: bool,
}

impl Glue<Sender, Beacon> for Announcing {
    type Event = SenderEvent;

    fn handle_first(&mut self, now: Nanos, event: SenderEvent, second: Option<&mut Beacon>) -> Option<SenderEvent> {
        if let SenderEvent::Bound(endpoint) = &event
            && let Some(place) = place(endpoint)
            && let Some(beacon) = second
            && !self.announced
        {
            self.announced = true;
            beacon.handle_verb(now, BeaconVerb::Offer(Service::Data, place));
        }
        Some(event)
    }

    fn handle_second(&mut self, _now: Nanos, _event: BeaconEvent, _first: &mut Sender) -> Option<SenderEvent> {
        None
    }
}

fn place(endpoint: &str) -> Option<ServiceAddress> {
    let (address, port) = endpoint.strip_prefix("tcp://")?.rsplit_once(':')?;
    let address = address.parse().ok().filter(|address: &Ipv4Addr| !address.is_unspecified());
    Some(ServiceAddress { port: port.parse().ok()?, address })
}

/// Lets a receiver follow the senders its beacon hears of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Finding;

impl Glue<Receiver, Beacon> for Finding {
    type Event = ReceiverEvent;

    fn handle_first(
        &mut self,
        _now: Nanos,
        event: ReceiverEvent,
        _second: Option<&mut Beacon>,
    ) -> Option<ReceiverEvent> {
        Some(event)
    }

    fn handle_second(&mut self, now: Nanos, event: BeaconEvent, first: &mut Receiver) -> Option<ReceiverEvent> {
        if let BeaconEvent::News(News { kind, service: Service::Data, endpoint: Some(endpoint), .. }) = event {
            match kind {
                Kind::Offer => first.handle_verb(now, ReceiverVerb::Connect(endpoint)),
                Kind::Depart => first.handle_verb(now, ReceiverVerb::Release(endpoint)),
                Kind::Request => {}
            }
        }
        None
    }
}
