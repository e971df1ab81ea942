//! A connector of mc0, at any time and in any order.
#![no_main]

use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::{Calls, Input, drive};
use trunkline_wire::mc0::{Asked, Connector, ConnectorEvent, ConnectorSettings, ConnectorVerb, Put, Verb, encode};
use trunkline_wire::{CallId, Frames, Nanos};

#[derive(Default)]
struct Any {
    calls: u64,
    ended: Vec<CallId>,
}

fn topic(input: &mut Input<'_>) -> Option<Bytes> {
    input.pick(&[&b"a"[..], b"b", b"c", b""]).map(Bytes::from_static)
}

impl Any {
    /// The ID of a call of a connector whose seed is all 7, made or not.
    fn id(&self, input: &mut Input<'_>) -> Option<Bytes> {
        let number = u64::from(input.byte()?) % (self.calls + 2);
        Some(format!("0707070707070707-{number:x}").into())
    }
}

impl Calls<Connector> for Any {
    fn message(&mut self, input: &mut Input<'_>) -> Option<(Option<Bytes>, Frames)> {
        let verbs = [Verb::Ok, Verb::Ok, Verb::Error, Verb::Message, Verb::Noop, Verb::Put, Verb::Sub];
        let verb = input.pick(&verbs)?;
        let mut headers = vec![];
        if verb == Verb::Ok || input.byte()? & 1 == 0 {
            headers.push((Bytes::from_static(b"ID"), self.id(input)?));
        }
        match verb {
            Verb::Error => {
                let texts = [&b"no"[..], b"disconnected: you do not read", b""];
                headers.push((Bytes::from_static(b"MESSAGE"), Bytes::from_static(input.pick(&texts)?)));
            }
            Verb::Message | Verb::Put => headers.push((Bytes::from_static(b"TOPIC"), topic(input)?)),
            _ => {}
        }
        let mut frames = encode(verb, headers, &input.several(Input::bytes)?);
        if input.byte()? == 0xff {
            frames.truncate(usize::from(input.byte()?) % frames.len());
        }
        Some((None, frames))
    }

    fn verb(&mut self, input: &mut Input<'_>) -> Option<ConnectorVerb> {
        let put = |input: &mut Input<'_>| {
            Some(Put { topic: topic(input)?, headers: vec![], body: input.several(Input::bytes)? })
        };
        let asked = match input.byte()? % 6 {
            0 => return put(input).map(ConnectorVerb::Put),
            1 => return Some(ConnectorVerb::Cancel(CallId(u64::from(input.byte()?)))),
            2 => Asked::Subscribe(input.several(topic)?),
            3 => Asked::Unsubscribe(input.several(topic)?),
            4 => Asked::Put(put(input)?),
            _ => Asked::Ping,
        };
        let timeout = if input.byte()? & 1 == 0 { None } else { Some(input.time()?) };
        self.calls += 1;
        Some(ConnectorVerb::Call { call: CallId(self.calls), asked, timeout })
    }

    fn told(&mut self, event: ConnectorEvent) {
        if let ConnectorEvent::Ended(call, _) = event {
            assert!(!self.ended.contains(&call), "a call ends once");
            self.ended.push(call);
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let (Some(how), Some(ttl)) = (input.byte(), input.number()) else { return };
    let settings = ConnectorSettings {
        // None: the socket is the user's.
        connect: (0..how % 3).map(|port| format!("tcp://127.0.0.1:{}", port + 1)).collect(),
        ttl: (how & 4 == 0).then(|| Duration::from_millis(ttl)),
        leading_delimiter: how & 8 == 0,
        ..ConnectorSettings::default()
    };
    drive(Connector::new(Nanos(0), settings, [7; 32]), Any::default(), input.0);
});
