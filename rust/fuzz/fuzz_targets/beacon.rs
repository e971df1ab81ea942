//! A beacon of CHIRP, at any time and in any order, among hosts that say anything.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::{Calls, Input, drive, messages};
use trunkline_wire::Frames;
use trunkline_wire::chirp::{Beacon, BeaconSettings, BeaconVerb, Cast, PORT, ServiceAddress};

struct Any;

impl Calls<Beacon> for Any {
    fn message(&mut self, input: &mut Input<'_>) -> Option<(Option<Bytes>, Frames)> {
        let peer = format!("127.0.0.{}:{}", input.byte()? % 4, input.number()? % 65536);
        Some((Some(Bytes::from(peer)), messages::chirp(input)?))
    }

    fn verb(&mut self, input: &mut Input<'_>) -> Option<BeaconVerb> {
        let service = messages::chirp_service(input)?;
        Some(match input.byte()? % 3 {
            0 => BeaconVerb::Offer(service, ServiceAddress { port: u16::from(input.byte()?) + 1, address: None }),
            1 => BeaconVerb::Request(service),
            _ => BeaconVerb::Depart(service),
        })
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let Some(how) = input.byte() else { return };
    let beacon = Beacon::new(
        BeaconSettings {
            group: messages::GROUP.to_owned(),
            name: (how & 1 == 0).then(|| "host".to_owned()),
            cast: if how & 2 == 0 { Cast::Multicast } else { Cast::Broadcast },
            lower_case: how & 4 == 0,
            names: vec!["a".to_owned(), "b".to_owned()],
            only_names: how & 8 == 0,
            port: PORT,
        },
        [how; 32],
    );
    drive(beacon, Any, input.0);
});
