//! A server of MTL, at any time and in any order, with the messages of many peers and a store that fails at times.
#![no_main]

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::{Calls, Input, drive, messages};
use trunkline_wire::Frames;
use trunkline_wire::mtl::Pings;
use trunkline_wire::mtl::control::{Json, Reply};
use trunkline_wire::mtl::server::{
    Access, Answer, Bounds, Profile, Restored, Routing, Server, ServerEvent, ServerSettings, ServerVerb, StoredContent,
    User,
};
use trunkline_wire::question::Token;

/// Commands with what they say, most of them good.
const COMMANDS: &[(&str, &str)] = &[
    ("Connection.Open", r#"{"protocol":{"name":"MTL","version":1},"virtual-host":"/"}"#),
    ("Connection.Open", r#"{"protocol":{"name":"MTL","version":1},"virtual-host":"/"}"#),
    ("Connection.Profile", r#"{"profile":"queue"}"#),
    ("Connection.Profile", r#"{"profile":"queue"}"#),
    ("Connection.Profile", r#"{"profile":"test"}"#),
    ("Connection.Authorize", r#"{"mechanism":"SCRAM-SHA-256","response":"eA=="}"#),
    ("Connection.Authorize", r#"{"mechanism":"ANONYMOUS","response":""}"#),
    ("Connection.Reader", r#"{"confirm":"full","window":2}"#),
    ("Connection.Reader", r#"{"resources":["jobs"],"confirm":"full"}"#),
    ("Connection.Reader", r#"{"resources":["jobs","logs"]}"#),
    ("Connection.Reader", r#"{}"#),
    ("Connection.Writer", r#"{"resources":["jobs"],"confirm":"full"}"#),
    ("Connection.Writer", r#"{"confirm":"full"}"#),
    ("Connection.Writer", r#"{}"#),
    ("Queue.Create", r#"{"name":"nothing","max-messages":2,"ttl-ms":18446744073709551615}"#),
    ("Queue.Create", r#"{"name":"jobs.dead","max-bytes":18446744073709551615,"ttl-ms":1}"#),
    ("Queue.Create", r#"{"name":"logs","dead-letter":"jobs"}"#),
    ("Queue.Delete", r#"{"name":"jobs"}"#),
    ("Queue.Delete", r#"{"name":"logs"}"#),
    ("Queue.Purge", r#"{"name":"jobs"}"#),
    ("Queue.Info", r#"{"name":"jobs"}"#),
    ("Queue.List", r#"{}"#),
    ("Bank.Transfer", r#"{}"#),
    ("Foo.Bar", r#"[]"#),
];

#[derive(Default)]
struct Any {
    /// Questions that were asked.
    asked: Vec<Token>,
    /// The last batch, and the last of which the fate was said.
    batch: u64,
    stored: u64,
}

impl Calls<Server> for Any {
    fn message(&mut self, input: &mut Input<'_>) -> Option<(Option<Bytes>, Frames)> {
        let peer = Bytes::copy_from_slice(&[input.byte()? & 3]);
        let frames = if input.byte()? & 1 == 0 {
            let (name, body) = input.pick(COMMANDS)?;
            [&b""[..], name.as_bytes(), body.as_bytes()].map(Bytes::from_static).into_iter().collect()
        } else {
            // Leases are numbers that count up.
            messages::mtl(input, |input| Some(format!("{:032x}", 1 + (input.byte()? & 15))))?
        };
        Some((Some(peer), frames))
    }

    fn verb(&mut self, input: &mut Input<'_>) -> Option<ServerVerb> {
        let user = User { name: "ada".to_owned(), read: None, write: Some(vec!["j*".to_owned()]) };
        Some(match input.byte()? % 7 {
            0 | 1 => {
                let answers = [
                    Answer::Challenge { challenge: Bytes::from_static(b"x"), state: Bytes::new(), proven: None },
                    Answer::Welcome(user),
                    Answer::Welcome(User::default()),
                    Answer::Refused(None),
                    Answer::Refused(Some("ada".to_owned())),
                    Answer::Reply(Reply { status: 200, body: Json::new() }),
                    Answer::Failed,
                ];
                ServerVerb::Answer(input.pick(&self.asked)?, input.pick(&answers)?)
            }
            2 | 3 => {
                self.stored = self.batch;
                ServerVerb::Stored(self.batch)
            }
            4 if self.stored < self.batch => {
                self.stored += 1;
                ServerVerb::Unstored(self.stored, "full".to_owned())
            }
            6 => ServerVerb::Bar(vec!["ada".to_owned()]),
            _ => ServerVerb::Revoke { users: vec!["ada".to_owned(), String::new()], leases: input.byte()? & 1 == 0 },
        })
    }

    fn told(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Asked(token, _) => self.asked.push(token),
            ServerEvent::Store(batch) => {
                assert_eq!(batch.number, self.batch + 1, "batches have their order");
                self.batch = batch.number;
            }
            _ => {}
        }
    }
}

fn profile(name: &str, routing: Routing, resources: &[&str], command: Option<&str>) -> Profile {
    Profile {
        name: name.to_owned(),
        routing,
        resources: resources.iter().map(|name| (*name).to_owned()).collect(),
        managed: routing == Routing::Queue,
        commands: command.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(),
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let (Some(how), Some(ttl), Some(epoch_ms), Some(expires)) =
        (input.byte(), input.number(), input.number(), input.number())
    else {
        return;
    };
    let description = br#"{"virtual-host":"/","profile":"queue","name":"logs","max-messages":3,"ttl-ms":1}"#.to_vec();
    let content = |position| StoredContent {
        queue: 7,
        position,
        attempts: 6 * u32::from(how & 1),
        expires_at_ms: Some(expires),
        properties: Bytes::from_static(&[0; 4]),
        body: Bytes::new(),
    };
    let restored =
        Restored { queues: vec![(7, description)], contents: vec![content(3), content(9)], was_clean: how & 2 == 0 };
    let mut number = 0u128;
    let server = Server::new(ServerSettings {
        bind: vec!["tcp://127.0.0.1:*".to_owned()],
        data_bind: if how & 4 == 0 { vec![] } else { vec!["tcp://127.0.0.1:*".to_owned()] },
        options: Default::default(),
        access: (how & 8 == 0).then_some(Access { passwords: true, external: false, anonymous: true }),
        virtual_hosts: vec!["/".to_owned()],
        profiles: vec![
            profile("queue", Routing::Queue, &["jobs"], Some("bank.transfer")),
            profile("test", Routing::Fanout, &["resource"], None),
        ],
        bounds: Bounds {
            max_messages: 4,
            max_bytes: 4096,
            ttl: (how & 16 == 0).then(|| Duration::from_millis(ttl)),
            dead_letter: None,
        },
        max_queues: 10_000,
        max_user_queues: 1_000,
        max_recycle: u32::from(how >> 6),
        pings: Pings::default(),
        session_idle: Duration::from_secs(3600),
        lease_idle: Duration::from_secs(30),
        outbox_bytes: 4096,
        durable: (how & 32 == 0).then_some(restored),
        epoch_ms,
        shows_secrets: false,
        entropy: Box::new(move || {
            number += 1;
            number.to_be_bytes()
        }),
    });
    drive(server, Any::default(), input.0);
});
