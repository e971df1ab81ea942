//! A server without a network: messages are handed to it at once, and those it sends are kept by address.
#![allow(dead_code, clippy::unwrap_used)] // each file of tests uses a part; a surprise fails it

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value as Json, json};
use trunkline_wire::mtl::Pings;
use trunkline_wire::mtl::data::{self, Kind};
use trunkline_wire::mtl::server::{
    Access, Answer, Batch, Bounds, Profile, Question, Restored, Routing, Server, ServerEvent, ServerSettings,
    ServerSocket, ServerVerb, User,
};
use trunkline_wire::{
    Frames, Incoming, Machine as _, Nanos, Output, SendId, SocketEvent, SocketOptions, Unsent, Verdict,
};

pub(crate) const EMPTY_TABLE: [u8; 4] = [0; 4];

pub(crate) fn profiles() -> Vec<Profile> {
    let profile = |name: &str, routing, resources: &[&str], managed| Profile {
        name: name.to_owned(),
        routing,
        resources: resources.iter().map(|name| (*name).to_owned()).collect(),
        managed,
        commands: ["bank.transfer".to_owned()].into_iter().filter(|_| name == "own").collect(),
    };
    vec![
        profile("test", Routing::Fanout, &["resource"], false),
        profile("queue", Routing::Queue, &["jobs", "logs"], true),
        profile("own", Routing::Queue, &["ledger"], false),
    ]
}

pub(crate) fn settings() -> ServerSettings {
    let mut number = 0u128;
    ServerSettings {
        bind: vec!["tcp://127.0.0.1:*".to_owned()],
        data_bind: vec![],
        options: SocketOptions::default(),
        access: None,
        virtual_hosts: vec!["/".to_owned(), "other".to_owned()],
        profiles: profiles(),
        bounds: Bounds::default(),
        max_queues: 10_000,
        max_user_queues: 1_000,
        max_recycle: 5,
        pings: Pings::default(),
        session_idle: Duration::from_secs(3600),
        lease_idle: Duration::from_secs(30),
        outbox_bytes: 256 << 20,
        durable: None,
        epoch_ms: 1_000_000,
        shows_secrets: false,
        entropy: Box::new(move || {
            number += 1;
            number.to_be_bytes()
        }),
    }
}

/// The server, and the messages it has sent.
pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) now: Nanos,
    said: BTreeMap<Bytes, VecDeque<Frames>>,
    pub(crate) events: VecDeque<ServerEvent>,
    /// Peers that do not read: what the transport was offered for each.
    deaf: BTreeMap<Bytes, Vec<SendId>>,
    /// The host that messages come from.
    pub(crate) host: Option<Box<str>>,
    /// Peers that cannot be reached.
    pub(crate) gone: Vec<Bytes>,
    pub(crate) batches: Vec<Batch>,
}

pub(crate) const CONTROL: ServerSocket = ServerSocket::Control(0);

impl Bench {
    pub(crate) fn new(settings: ServerSettings) -> Self {
        let data = settings.data_bind.len();
        let mut bench = Self {
            server: Server::new(settings),
            now: Nanos(0),
            said: BTreeMap::new(),
            events: VecDeque::new(),
            deaf: BTreeMap::new(),
            host: None,
            gone: vec![],
            batches: vec![],
        };
        bench.drain();
        bench.socket(CONTROL, SocketEvent::Bound("tcp://127.0.0.1:7001".to_owned()));
        for at in 0..data {
            bench.socket(ServerSocket::Data(at), SocketEvent::Bound(format!("tcp://127.0.0.1:{}", 7100 + at)));
        }
        bench
    }

    pub(crate) fn open() -> Self {
        Self::new(settings())
    }

    pub(crate) fn socket(&mut self, socket: ServerSocket, event: SocketEvent) {
        self.server.handle_socket(self.now, socket, event);
        self.drain();
    }

    pub(crate) fn drain(&mut self) {
        loop {
            let mut fates = vec![];
            while let Some(output) = self.server.poll_output() {
                let Output::Send { id, socket, to: Some(to), frames, .. } = output else { continue };
                if self.gone.contains(&to) {
                    fates.extend(id.map(|id| (socket, SocketEvent::Unsent(id, Unsent::Unreachable))));
                } else if let Some(taken) = self.deaf.get_mut(&to) {
                    taken.extend(id);
                } else {
                    self.said.entry(to).or_default().push_back(frames.into());
                    fates.extend(id.map(|id| (socket, SocketEvent::Sent(id))));
                }
            }
            while let Some(event) = self.server.poll_event() {
                if let ServerEvent::Store(batch) = event {
                    self.batches.push(batch);
                } else {
                    self.events.push_back(event);
                }
            }
            if fates.is_empty() {
                return;
            }
            for (socket, fate) in fates {
                self.server.handle_socket(self.now, socket, fate);
            }
        }
    }

    pub(crate) fn deafen(&mut self, peer: &str) {
        self.deaf.insert(Bytes::copy_from_slice(peer.as_bytes()), vec![]);
    }

    pub(crate) fn undeafen(&mut self, peer: &str, unsent: Option<Unsent>) {
        for id in self.deaf.remove(peer.as_bytes()).unwrap() {
            let event = unsent.map_or(SocketEvent::Sent(id), |why| SocketEvent::Unsent(id, why));
            self.server.handle_socket(self.now, CONTROL, event);
        }
        self.drain();
    }

    pub(crate) fn take(&mut self, socket: ServerSocket, peer: &str, user: Option<&str>, frames: Frames) -> Verdict {
        let peer = Some(Bytes::copy_from_slice(peer.as_bytes()));
        let user_id = user.map(|user| Bytes::copy_from_slice(user.as_bytes()));
        let host = self.host.clone();
        let verdict = self.server.handle_message(self.now, Incoming { socket, peer, user_id, host, frames });
        self.drain();
        verdict
    }

    pub(crate) fn verb(&mut self, verb: ServerVerb) {
        self.server.handle_verb(self.now, verb);
        self.drain();
    }

    /// Advances the time, and wakes the server when it asks.
    pub(crate) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.server.poll_timeout().filter(|at| *at <= until) {
            self.now = at.max(self.now);
            self.server.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
    }

    /// The messages sent to a peer since the last call.
    pub(crate) fn said(&mut self, peer: &str) -> Vec<Frames> {
        self.said.remove(peer.as_bytes()).unwrap_or_default().into()
    }

    pub(crate) fn send_control(&mut self, peer: &str, user: Option<&str>, name: &str, body: &str) -> Verdict {
        let frames = [Bytes::new(), Bytes::copy_from_slice(name.as_bytes()), Bytes::copy_from_slice(body.as_bytes())];
        self.take(CONTROL, peer, user, frames.into_iter().collect())
    }

    /// The reply that a peer has received.
    pub(crate) fn reply(&mut self, peer: &str) -> (u16, Json) {
        let said = self.said(peer);
        let [reply] = said.as_slice() else { panic!("{peer} has {} replies", said.len()) };
        assert_eq!(reply[0], Bytes::new());
        let body: Json = serde_json::from_slice(&reply[2]).unwrap();
        assert!(body["status"].is_string(), "{body}");
        (std::str::from_utf8(&reply[1]).unwrap().parse().unwrap(), body)
    }

    /// Sends a command. Returns the reply.
    pub(crate) fn ask(&mut self, peer: &str, name: &str, body: &Json) -> (u16, Json) {
        self.send_control(peer, None, name, &body.to_string());
        self.reply(peer)
    }

    pub(crate) fn status(&mut self, peer: &str, name: &str, body: &Json) -> u16 {
        self.ask(peer, name, body).0
    }

    /// Opens a session with a profile.
    pub(crate) fn enter(&mut self, peer: &str, profile: &str) {
        let open = json!({"protocol": {"name": "MTL", "version": 1}, "virtual-host": "/"});
        assert_eq!(self.status(peer, "Connection.Open", &open), 201);
        assert_eq!(self.status(peer, "Connection.Profile", &json!({"profile": profile})), 200);
    }

    /// Sends data. Returns what the peer has received since.
    pub(crate) fn data(&mut self, peer: &str, frames: Frames) -> Vec<Frames> {
        self.take(CONTROL, peer, None, frames);
        self.said(peer)
    }

    pub(crate) fn lease(&mut self, peer: &str, method: &str, body: &Json) -> String {
        let (status, body) = self.ask(peer, &format!("Connection.{method}"), body);
        assert_eq!(status, 202, "{body}");
        body["lease"].as_str().unwrap().to_owned()
    }

    /// Opens a data connection `data`, with a session of its own.
    pub(crate) fn connect(&mut self, data: &str, profile: &str, method: &str, body: &Json) {
        let control = format!("{data}-control");
        self.enter(&control, profile);
        let lease = self.lease(&control, method, body);
        assert_eq!(self.data(data, data::lease(1, &lease)), [data::response(1, 200)]);
    }

    pub(crate) fn writer(&mut self, data: &str, resources: &[&str], confirm: &str) {
        self.connect(data, "queue", "Writer", &json!({"resources": resources, "confirm": confirm}));
    }

    pub(crate) fn reader(&mut self, data: &str, resource: &str, confirm: &str, window: u64) {
        self.connect(data, "queue", "Reader", &json!({"resources": [resource], "confirm": confirm, "window": window}));
        self.take(CONTROL, data, None, data::summon(2, resource));
        let said = self.said(data);
        assert_eq!(said[0], data::response(2, 200));
        self.said.entry(Bytes::copy_from_slice(data.as_bytes())).or_default().extend(said.into_iter().skip(1));
    }

    /// Sends contents with these bodies, numbered from a sequence.
    pub(crate) fn write(&mut self, data: &str, from: u64, bodies: &[&str]) {
        for (at, body) in bodies.iter().enumerate() {
            let body = Bytes::copy_from_slice(body.as_bytes());
            self.take(CONTROL, data, None, data::content(from + at as u64, "", &EMPTY_TABLE, body));
        }
    }

    /// The contents that a reader has received: sequences, bodies, and whether each may have been delivered before.
    pub(crate) fn contents(&mut self, data: &str) -> Vec<(u64, String, bool)> {
        let said = self.said(data);
        let contents = said.iter().map(|frames| {
            let layout = data::decode(frames).unwrap();
            assert_eq!(layout.kind, Kind::Content, "{frames:?}");
            let is_marked = frames[0].windows(11).any(|some| some == b"redelivered");
            (layout.sequence, String::from_utf8(frames[1].to_vec()).unwrap(), is_marked)
        });
        contents.collect()
    }

    pub(crate) fn bodies(&mut self, data: &str) -> Vec<String> {
        self.contents(data).into_iter().map(|(_, body, _)| body).collect()
    }

    /// The last question.
    pub(crate) fn question(&mut self) -> (trunkline_wire::question::Token, Question) {
        let at = self.events.iter().position(|event| matches!(event, ServerEvent::Asked(..))).unwrap();
        let Some(ServerEvent::Asked(token, question)) = self.events.remove(at) else { unreachable!() };
        (token, question)
    }

    pub(crate) fn answer(&mut self, answer: Answer) {
        let (token, _) = self.question();
        self.verb(ServerVerb::Answer(token, answer));
    }

    pub(crate) fn info(&mut self, queue: &str) -> Json {
        self.enter("info", "queue");
        self.info_of("info", queue)
    }

    /// What a peer with a session can read about a queue.
    pub(crate) fn info_of(&mut self, peer: &str, queue: &str) -> Json {
        self.ask(peer, "Queue.Info", &json!({"name": queue})).1
    }
}

pub(crate) fn with_users() -> ServerSettings {
    let access = Some(Access { passwords: true, external: false, anonymous: false });
    ServerSettings { access, ..settings() }
}

pub(crate) fn durable(restored: Restored) -> ServerSettings {
    ServerSettings { durable: Some(restored), ..settings() }
}

pub(crate) fn user(name: &str) -> User {
    User { name: name.to_owned(), read: None, write: None }
}
