//! CHIRP: hosts of a group tell each other over UDP which services they offer, and where.

mod beacon;
mod datagram;

pub use beacon::{Beacon, BeaconEvent, BeaconSettings, BeaconStats, BeaconVerb, Cast, News, PORT, Place, Udp};
pub use datagram::{Datagram, Id, Kind, LENGTH, Service, decode};
