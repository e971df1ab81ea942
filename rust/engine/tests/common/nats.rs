//! What the tests over NATS share.

use bytes::Bytes;
use trunkline_engine::nats::{NatsSettings, NatsTransport};
use trunkline_engine::{Bounds, Handle, Queued, Settings};
use trunkline_wire::SocketEvent;
use trunkline_wire::nats::ServerUrl;

use super::{Ask, Echo, Reported, read_until};

pub(crate) fn urls(addresses: &[String]) -> NatsSettings {
    NatsSettings::new(addresses.iter().map(|url| ServerUrl::read(url).expect("a URL").0).collect())
}

pub(crate) fn start_with(settings: NatsSettings, sockets: &[&[&str]], bounds: Bounds) -> Handle<Echo> {
    let settings_of_role = Settings { bounds, ..Settings::default() };
    Handle::start(Echo::subscriber(sockets), || NatsTransport::new(settings), Queued, settings_of_role)
        .expect("the role starts")
}

pub(crate) fn send(subject: &'static str, body: impl Into<Bytes>, id: Option<u64>) -> Ask {
    Ask::Send { to: Some(subject.into()), frames: vec![Bytes::new(), Bytes::new(), body.into()], id }
}

pub(crate) fn is(reported: &Reported, event: &SocketEvent) -> bool {
    matches!(reported, Reported::Socket(_, other) if other == event)
}

pub(crate) fn saw(handle: &Handle<Echo>, event: &SocketEvent) -> Vec<Reported> {
    read_until(handle, |events| events.iter().any(|reported| is(reported, event)))
}

pub(crate) fn bodies(events: &[Reported]) -> Vec<Bytes> {
    events
        .iter()
        .filter_map(|reported| if let Reported::Message(frames) = reported { frames.last().cloned() } else { None })
        .collect()
}
