//! CHIRP: hosts of a group announce and discover each other's services over UDP.

mod beacon;
mod datagram;

pub use beacon::{Beacon, BeaconEvent, BeaconSettings, BeaconStats, BeaconVerb, Cast, News, PORT, ServiceAddress, Udp};
pub use datagram::{Datagram, Id, Kind, LENGTH, Service, decode};
