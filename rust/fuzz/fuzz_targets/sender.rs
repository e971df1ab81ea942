//! A sender of CDTP, at any time and in any order.
#![no_main]

use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::{Calls, Input, drive, messages};
use trunkline_wire::cdtp::{BatchBounds, Sender, SenderSettings, SenderVerb, Variant};
use trunkline_wire::{Frames, SocketOptions};

struct Any;

impl Calls<Sender> for Any {
    fn message(&mut self, input: &mut Input<'_>) -> Option<(Option<Bytes>, Frames)> {
        messages::cdtp(input).map(|frames| (None, frames))
    }

    fn verb(&mut self, input: &mut Input<'_>) -> Option<SenderVerb> {
        let timestamp = messages::timestamp(input)?;
        let map = Bytes::from_static(b"\x80");
        Some(match input.byte()? % 5 {
            0 => SenderVerb::Data { timestamp, tags: map, payload: input.several(Input::bytes)?.into() },
            1 => SenderVerb::BeginRun { timestamp, config: map },
            2 => SenderVerb::EndRun { timestamp, metadata: map },
            3 => SenderVerb::Raw(messages::cdtp(input)?),
            _ => SenderVerb::Flush,
        })
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let Some(variant) = input.pick(&[Variant::S, Variant::A, Variant::B, Variant::Two]) else { return };
    let sender = Sender::new(SenderSettings {
        name: "Det".to_owned(),
        variant,
        bind: vec!["tcp://127.0.0.1:*".to_owned()],
        connect: vec![],
        options: SocketOptions { send_hwm: Some(2), ..SocketOptions::default() },
        batch: BatchBounds { bytes: 64, time: Duration::from_millis(500) },
    });
    drive(sender, Any, input.0);
});
