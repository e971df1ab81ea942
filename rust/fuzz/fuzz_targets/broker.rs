//! A broker of DCP, at any time and in any order, with the messages of many peers.
#![no_main]

use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::{Calls, Input, drive, messages};
use trunkline_wire::Frames;
use trunkline_wire::dcp::{Broker, BrokerSettings, BrokerVerb, Overflow};

struct Any;

impl Calls<Broker> for Any {
    fn message(&mut self, input: &mut Input<'_>) -> Option<(Option<Bytes>, Frames)> {
        let peer = Bytes::copy_from_slice(&[input.byte()? & 7]);
        Some((Some(peer), messages::dcp(input)?))
    }

    /// There is nothing to ask a broker for.
    fn verb(&mut self, _input: &mut Input<'_>) -> Option<BrokerVerb> {
        None
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let (Some(how), Some(queue_ttl)) = (input.byte(), input.time()) else { return };
    let broker = Broker::new(BrokerSettings {
        bind: vec!["tcp://127.0.0.1:*".to_owned()],
        max_queue: 4,
        max_queue_bytes: 4096,
        queue_ttl,
        overflow: if how & 1 == 0 { Overflow::DropOldest } else { Overflow::RejectNewest },
        heartbeat_interval: Duration::from_millis(100),
        requeue: how & 2 == 0,
        busy_ping_grants: how & 4 == 0,
        ..BrokerSettings::default()
    });
    drive(broker, Any, input.0);
});
