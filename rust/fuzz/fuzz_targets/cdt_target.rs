//! A target of CDT, at any time and in any order.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::messages::{cdt, cdt_part};
use trunkline_fuzz::{Calls, Input, drive};
use trunkline_wire::cdt::{Answer, Config, Target, TargetEvent, TargetSettings, TargetVerb};
use trunkline_wire::question::Token;
use trunkline_wire::Frames;

#[derive(Default)]
struct Any {
    asked: Vec<Token>,
}

fn config(input: &mut Input<'_>) -> Option<Config> {
    Some(Config {
        config_id: input.pick(&["v", "w", ""])?.to_owned(),
        content_type: "t".to_owned(),
        content: input.bytes()?,
    })
}

impl Calls<Target> for Any {
    fn message(&mut self, input: &mut Input<'_>) -> Option<(Option<Bytes>, Frames)> {
        cdt(input, &[])
    }

    fn verb(&mut self, input: &mut Input<'_>) -> Option<TargetVerb> {
        Some(match input.byte()? % 4 {
            0 => TargetVerb::Announce {
                app_version_name: "a".to_owned(),
                endpoint_id: "e".to_owned(),
                config: config(input)?,
            },
            _ => {
                let token = input.pick(&self.asked).unwrap_or(Token(u64::from(input.byte()?)));
                let answer = match input.byte()? % 5 {
                    0 => Answer::Found(config(input)?),
                    1 => Answer::Stored { config: config(input)?, is_new: input.byte()? & 1 == 0 },
                    2 => Answer::Missing,
                    3 => Answer::Conflict,
                    _ => Answer::Failed { status: u16::from(input.byte()?), reason: "no".to_owned() },
                };
                TargetVerb::Answer(token, answer)
            }
        })
    }

    fn told(&mut self, event: TargetEvent) {
        if let TargetEvent::Get { token, .. } | TargetEvent::Put { token, .. } = event {
            self.asked.push(token);
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let (Some((how, part)), Some(patience)) = (cdt_part(&mut input), input.time()) else { return };
    let settings = TargetSettings { part, shares_requests: how & 4 != 0, includes_content: how & 8 != 0, patience };
    drive(Target::new(settings), Any::default(), input.0);
});
