//! A receiver of CDTP, at any time and in any order.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::{Calls, Input, drive, messages};
use trunkline_wire::cdtp::{Receiver, ReceiverSettings, ReceiverVerb, Settings};
use trunkline_wire::{Frames, SocketOptions};

struct Any;

impl Calls<Receiver> for Any {
    fn message(&mut self, input: &mut Input<'_>) -> Option<(Option<Bytes>, Frames)> {
        messages::cdtp(input).map(|frames| (None, frames))
    }

    fn verb(&mut self, input: &mut Input<'_>) -> Option<ReceiverVerb> {
        let endpoint = |input: &mut Input<'_>| Some(format!("tcp://127.0.0.1:{}", input.byte()? % 4 + 1));
        Some(match input.byte()? % 4 {
            0 => ReceiverVerb::Limit(Some(input.number()?)),
            1 => ReceiverVerb::Limit(None),
            2 => ReceiverVerb::Connect(endpoint(input)?),
            _ => ReceiverVerb::Release(endpoint(input)?),
        })
    }
}

fuzz_target!(|input: &[u8]| {
    let receiver = Receiver::new(ReceiverSettings {
        bind: vec!["tcp://127.0.0.1:*".to_owned()],
        connect: vec!["tcp://127.0.0.1:9".to_owned()],
        finds: true,
        options: SocketOptions::default(),
        decode: Settings::default(),
        deliver: true,
        limit: None,
    });
    drive(receiver, Any, input);
});
