//! A data connection of a client of MTL, at any time and in any order.
#![no_main]

use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::{Calls, Input, drive, messages};
use trunkline_wire::mtl::Pings;
use trunkline_wire::mtl::data;
use trunkline_wire::mtl::flow::{Asked, Denial, Flow, FlowEvent, FlowSettings, FlowVerb, Grant};
use trunkline_wire::question::Token;
use trunkline_wire::{CallId, Frames, Nanos};

#[derive(Default)]
struct Any {
    calls: u64,
    ended: Vec<CallId>,
    asked: Vec<Token>,
}

impl Calls<Flow> for Any {
    fn message(&mut self, input: &mut Input<'_>) -> Option<(Option<Bytes>, Frames)> {
        let frames = match input.byte()? % 3 {
            // What answers the first commands there are.
            0 => data::response(u64::from(input.byte()? & 15), input.pick(&[200, 200, 200, 400, 403])?),
            1 => data::confirm(u64::from(input.byte()? & 15), input.byte()? & 1 == 0),
            _ => messages::mtl(input, |_| Some(String::new()))?,
        };
        Some((None, frames))
    }

    fn verb(&mut self, input: &mut Input<'_>) -> Option<FlowVerb> {
        let connection = |input: &mut Input<'_>| Some(u32::from(input.byte()? & 3));
        Some(match input.byte()? % 8 {
            0 if input.byte()? == 0 => FlowVerb::Flush,
            0 => FlowVerb::Cancel(CallId(u64::from(input.byte()?))),
            1 | 2 => FlowVerb::Send {
                resource: messages::resource(input)?.to_owned(),
                properties: Bytes::from_static(&[0; 4]),
                body: input.bytes()?,
            },
            3 => FlowVerb::Confirm {
                connection: connection(input)?,
                sequence: input.number()?,
                multiple: input.byte()? & 1 == 0,
            },
            4 => FlowVerb::Reject {
                connection: connection(input)?,
                sequence: input.number()?,
                multiple: input.byte()? & 1 == 0,
                recycle: input.byte()? & 1 == 0,
            },
            5 => {
                let token = input.pick(&self.asked)?;
                let denials = [Denial::Later, Denial::Never("no".to_owned())];
                match input.byte()? % 4 {
                    0 => FlowVerb::Denied(token, input.pick(&denials)?),
                    _ => FlowVerb::Granted(
                        token,
                        Grant { endpoint: "tcp://127.0.0.1:2".to_owned(), lease: "y".to_owned() },
                    ),
                }
            }
            _ => {
                let asked = input.pick(&[Asked::Open, Asked::Summon, Asked::Summon, Asked::Dismiss])?;
                let resource = messages::resource(input)?.to_owned();
                let timeout = if input.byte()? & 1 == 0 { None } else { Some(input.time()?) };
                self.calls += 1;
                FlowVerb::Call { call: CallId(self.calls), asked, resource, timeout }
            }
        })
    }

    fn told(&mut self, event: FlowEvent) {
        match event {
            FlowEvent::Ended(call, _) => {
                assert!(!self.ended.contains(&call), "a call ends once");
                self.ended.push(call);
            }
            FlowEvent::Wanted(token) => self.asked.push(token),
            _ => {}
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let (Some(how), Some(timeout)) = (input.byte(), input.number()) else { return };
    let settings = FlowSettings {
        reads: how & 1 == 0,
        resources: ["jobs", "logs"].into_iter().take(usize::from(how >> 1 & 3)).map(str::to_owned).collect(),
        is_confirmed: how & 8 == 0,
        window: 1 + usize::from(how >> 4 & 3),
        grant: Grant { endpoint: "tcp://127.0.0.1:1".to_owned(), lease: "x".to_owned() },
        options: Default::default(),
        timeout: Duration::from_millis(timeout),
        pings: Pings { interval: Duration::from_millis(2500), liveness: u32::from(how >> 6) },
        shows_secrets: false,
    };
    drive(Flow::new(Nanos(0), settings), Any::default(), input.0);
});
