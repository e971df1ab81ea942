//! A client of MTL as far as commands go, at any time and in any order.
#![no_main]

use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::{Calls, Input, drive};
use trunkline_wire::mtl::client::{Client, ClientAnswer, ClientEvent, ClientSettings, ClientVerb};
use trunkline_wire::mtl::control::{Command, Json};
use trunkline_wire::question::Token;
use trunkline_wire::{CallId, Frames};

const REPLIES: &[(&str, &str)] = &[
    ("201", r#"{"status":"Ready","profiles":["queue"]}"#),
    ("200", r#"{"status":"OK"}"#),
    ("401", r#"{"status":"Unauthorized","mechanisms":["SCRAM-SHA-256",5]}"#),
    ("401", "{}"),
    ("402", r#"{"status":"Challenged","mechanism":"PLAIN","challenge":"eA=="}"#),
    ("402", r#"{"challenge":"?"}"#),
    ("400", r#"{"status":"Open first"}"#),
    ("400", r#"{"status":"Select a profile first"}"#),
    ("400", r#"{"status":"no"}"#),
    ("501", r#"{"status":5}"#),
    ("202", r#"{"port":5,"lease":"x"}"#),
    ("Connection.Open", "{}"),
    ("999", "{}"),
    ("200", "NaN"),
];

#[derive(Default)]
struct Any {
    calls: u64,
    ended: Vec<CallId>,
    asked: Vec<Token>,
}

impl Calls<Client> for Any {
    fn message(&mut self, input: &mut Input<'_>) -> Option<(Option<Bytes>, Frames)> {
        let (code, body) = input.pick(REPLIES)?;
        let mut frames: Frames = [code, body].map(|part| Bytes::from_static(part.as_bytes())).into_iter().collect();
        if input.byte()? == 0xff {
            frames.pop();
        }
        Some((None, frames))
    }

    fn verb(&mut self, input: &mut Input<'_>) -> Option<ClientVerb> {
        Some(match input.byte()? % 6 {
            0 | 1 => {
                let answers = [
                    ClientAnswer::GiveUp("no".to_owned()),
                    ClientAnswer::Respond { mechanism: "PLAIN".to_owned(), response: Bytes::new(), is_done: true },
                    ClientAnswer::Respond { mechanism: "X".to_owned(), response: Bytes::new(), is_done: false },
                ];
                ClientVerb::Answer(input.pick(&self.asked)?, input.pick(&answers)?)
            }
            2 => ClientVerb::Cancel(CallId(u64::from(input.byte()?))),
            how => {
                let command = (how > 3).then(|| Command { name: "Queue.List".to_owned(), body: Json::new() });
                let timeout = if input.byte()? & 1 == 0 { None } else { Some(input.time()?) };
                self.calls += 1;
                ClientVerb::Call { call: CallId(self.calls), command, timeout }
            }
        })
    }

    fn told(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Ended(call, _) => {
                assert!(!self.ended.contains(&call), "a call ends once");
                self.ended.push(call);
            }
            ClientEvent::Asked { token, .. } => self.asked.push(token),
            ClientEvent::Dropped(_) | ClientEvent::Connection(_) => {}
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let (Some(how), Some(timeout)) = (input.byte(), input.number()) else { return };
    let settings = ClientSettings {
        connect: (0..how % 3).map(|port| format!("tcp://127.0.0.1:{}", port + 1)).collect(),
        timeout: Duration::from_millis(timeout),
        ..ClientSettings::default()
    };
    drive(Client::new(settings), Any::default(), input.0);
});
