//! A source of CDT, at any time and in any order.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::messages::{cdt, cdt_part};
use trunkline_fuzz::{Calls, Input, drive};
use trunkline_wire::cdt::{Confirm, Pull, Push, Source, SourceEvent, SourceSettings, SourceVerb};
use trunkline_wire::{CallId, Frames};

#[derive(Default)]
struct Any {
    calls: u64,
    ended: Vec<CallId>,
}

impl Calls<Source> for Any {
    fn message(&mut self, input: &mut Input<'_>) -> Option<(Option<Bytes>, Frames)> {
        // The correlation ids of a source whose seed is all 7.
        let known: Vec<String> =
            (0..self.calls.min(8) + 2).map(|number| format!("07070707-0707-0707-0000-{number:012x}")).collect();
        cdt(input, &known)
    }

    fn verb(&mut self, input: &mut Input<'_>) -> Option<SourceVerb> {
        let (app_version_name, endpoint_id) = ("a".to_owned(), input.pick(&["e", "f"])?.to_owned());
        let timeout = if input.byte()? & 1 == 0 { None } else { Some(input.time()?) };
        self.calls += 1;
        let call = CallId(self.calls);
        Some(match input.byte()? % 7 {
            0 | 1 => {
                let retries = u32::from(input.byte()? % 4);
                SourceVerb::Pull(call, Pull { app_version_name, endpoint_id, timeout, retries, ..Pull::default() })
            }
            2 | 3 => {
                let confirm = input.pick(&[Confirm::Sent, Confirm::Stored, Confirm::Applied])?;
                let content = Some(input.bytes()?);
                SourceVerb::Push(
                    call,
                    Push { app_version_name, endpoint_id, timeout, confirm, content, ..Push::default() },
                )
            }
            4 => SourceVerb::Report { call, app_version_name, endpoint_id, config_id: "v".to_owned() },
            5 => SourceVerb::Cancel(CallId(u64::from(input.byte()?))),
            _ => SourceVerb::Watch(call, app_version_name, endpoint_id),
        })
    }

    fn told(&mut self, event: SourceEvent) {
        if let SourceEvent::Ended(call, _) = event {
            assert!(!self.ended.contains(&call), "a call ends once");
            self.ended.push(call);
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let (Some((_, part)), Some(resync)) = (cdt_part(&mut input), input.time()) else { return };
    let settings = SourceSettings { part, target: "cdp".to_owned(), resync, ..SourceSettings::default() };
    drive(Source::new(settings, [7; 32]), Any::default(), input.0);
});
