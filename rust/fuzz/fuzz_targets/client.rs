//! A client of DCP, at any time and in any order.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::{Calls, Input, drive, messages};
use trunkline_wire::Frames;
use trunkline_wire::CallId;
use trunkline_wire::dcp::{Client, ClientSettings, ClientVerb};

#[derive(Default)]
struct Any {
    calls: u64,
}

impl Calls<Client> for Any {
    fn message(&mut self, input: &mut Input<'_>) -> Option<(Option<Bytes>, Frames)> {
        messages::dcp(input).map(|frames| (None, frames))
    }

    fn verb(&mut self, input: &mut Input<'_>) -> Option<ClientVerb> {
        if input.byte()? & 3 == 0 {
            return Some(ClientVerb::Cancel(CallId(u64::from(input.byte()?))));
        }
        self.calls += 1;
        Some(ClientVerb::Request {
            call: CallId(self.calls),
            service: messages::service(input)?,
            metadata: input.several(|input| Some(Bytes::copy_from_slice(&[input.byte()?])))?,
            data: input.several(Input::bytes)?,
            timeout: if input.byte()? & 1 == 0 { None } else { Some(input.time()?) },
            retries: u32::try_from(input.number()?).unwrap_or(u32::MAX),
        })
    }
}

fuzz_target!(|input: &[u8]| {
    let settings =
        ClientSettings { connect: vec!["tcp://127.0.0.1:1".to_owned()], ..ClientSettings::default() };
    drive(Client::new(settings, [7; 32]), Any::default(), input);
});
