//! ZAP 1.0: which CURVE clients a context admits, by a list or by a question for each.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use bytes::Bytes;
use smallvec::smallvec;

use crate::network;
use crate::question::{Questions, Token};
use crate::{
    Event, Frames, Incoming, Machine, Nanos, Open, Output, SocketEvent, SocketKind, SocketOptions, Verdict, Weight,
};

/// Where a context's sockets send their requests.
const ENDPOINT: &str = "inproc://zeromq.zap.01";

const VERSION: &[u8] = b"1.0";

/// How long a client waits for a decision.
const THINKING: Duration = Duration::from_secs(5);

/// Clients to be decided on at a time: somewhat more than there are threads.
const AT_ONCE: usize = 8;

/// Clients that may be queued: from one address, and in all. Others are refused, and try again.
const SHARE: usize = 64;
const WAITING: usize = 1024;

/// A CURVE public key.
pub type Key = [u8; 32];

/// The admitted clients, each with its name: the User-Id of its messages.
pub type Allowed = HashMap<Key, String>;

/// The authenticator's only socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Zap;

/// A client that requests admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub address: String,
    /// Its key in Z85; empty if it has none.
    pub key: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZapEvent {
    /// A client was refused.
    Refused(Candidate),
    /// A client to decide on: [`ZapVerb::Answer`] is expected.
    Question(Token, Candidate),
}

impl Event for ZapEvent {
    fn weight(&self) -> Weight {
        match self {
            Self::Refused(Candidate { address, key }) => Weight::Notice(address.len() + key.len()),
            Self::Question(_, Candidate { address, key }) => Weight::Lossless(address.len() + key.len()),
        }
    }
}

/// The verbs of an authenticator.
#[derive(Clone, Debug)]
pub enum ZapVerb {
    /// Replace the list of admitted clients.
    Allow(Allowed),
    /// The answer to a question: the client's name if it is admitted.
    Answer(Token, Option<String>),
}

/// How admission is decided.
#[derive(Clone, Debug)]
pub enum Rule {
    /// Every client with a key is admitted, and has it as its name.
    AnyKey,
    Listed(Allowed),
    /// By a question for each client with a key.
    Asked,
}

/// A client awaiting its answer.
#[derive(Debug)]
struct Waiting {
    peer: Option<Bytes>,
    request: Bytes,
    candidate: Candidate,
}

/// The queued clients: each address has its own turn.
#[derive(Debug, Default)]
struct Lines {
    /// All of them in order of arrival, and until when each waits.
    all: BTreeMap<u64, (Nanos, Waiting)>,
    by_host: HashMap<IpAddr, BTreeSet<u64>>,
    turns: VecDeque<IpAddr>,
    next: u64,
}

impl Lines {
    /// Queues a client. Returns the one there is no room for, if any.
    fn push(&mut self, now: Nanos, waiting: Waiting) -> Option<Waiting> {
        let host = host(&waiting.candidate.address);
        let line = self.by_host.entry(host).or_default();
        if line.is_empty() {
            self.turns.push_back(host);
        }
        line.insert(self.next);
        let is_long = line.len() > SHARE;
        self.all.insert(self.next, (now + THINKING, waiting));
        self.next += 1;
        let longest = || self.by_host.iter().max_by_key(|(_, line)| line.len()).map(|(host, _)| *host);
        let fullest = if is_long { Some(host) } else { longest().filter(|_| self.all.len() > WAITING) };
        let oldest = *self.by_host.get(&fullest?)?.first()?;
        self.remove(oldest)
    }

    /// The next client: the latest of the address whose turn it is, as earlier ones may have given up.
    fn pop(&mut self) -> Option<Waiting> {
        let host = self.turns.pop_front()?;
        self.turns.push_back(host);
        let latest = *self.by_host.get(&host)?.last()?;
        self.remove(latest)
    }

    /// A client that has waited for too long.
    fn expired(&mut self, now: Nanos) -> Option<Waiting> {
        let (oldest, _) = self.all.first_key_value().filter(|(_, (due, _))| *due <= now)?;
        self.remove(*oldest)
    }

    fn remove(&mut self, number: u64) -> Option<Waiting> {
        let (_, waiting) = self.all.remove(&number)?;
        let host = host(&waiting.candidate.address);
        if let Some(line) = self.by_host.get_mut(&host) {
            line.remove(&number);
            if line.is_empty() {
                self.by_host.remove(&host);
                self.turns.retain(|turn| *turn != host);
            }
        }
        Some(waiting)
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.all.first_key_value().map(|(_, (due, _))| *due)
    }
}

/// The host of a client; clients without an address share one.
fn host(address: &str) -> IpAddr {
    network::host(address.parse().unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)))
}

/// Answers the requests of its context's sockets about each client.
#[derive(Debug)]
pub struct Authenticator {
    rule: Rule,
    asked: Questions<Waiting>,
    lines: Lines,
    outputs: VecDeque<Output<Zap>>,
    events: VecDeque<ZapEvent>,
    refused: u64,
    closed: bool,
}

impl Authenticator {
    /// An authenticator that opens its socket at once.
    pub fn new(rule: Rule) -> Self {
        // A REP would make each client wait for the one before.
        let open = Output::Open(Box::new(Open {
            socket: Zap,
            kind: SocketKind::Router,
            bind: vec![ENDPOINT.to_owned()],
            connect: vec![],
            options: SocketOptions::default(),
        }));
        Self {
            rule,
            asked: Questions::new(AT_ONCE, THINKING),
            lines: Lines::default(),
            outputs: VecDeque::from([open]),
            events: VecDeque::new(),
            refused: 0,
            closed: false,
        }
    }

    fn decide(&mut self, now: Nanos, peer: Option<Bytes>, frames: &Frames) {
        // Only libzmq itself sends requests, so that no other form occurs.
        let [_, version, request, _domain, address, _identity, mechanism, credentials @ ..] = &frames[..] else {
            return;
        };
        let is_curve = version == VERSION && mechanism == &b"CURVE"[..];
        let key = credentials.first().filter(|_| is_curve).and_then(|key| Key::try_from(&key[..]).ok());
        let candidate = Candidate {
            address: String::from_utf8_lossy(address).into_owned(),
            key: key.map(|key| z85(&key)).unwrap_or_default(),
        };
        let waiting = Waiting { peer, request: request.clone(), candidate };
        match (&self.rule, key) {
            (Rule::AnyKey, Some(_)) => {
                let name = waiting.candidate.key.clone();
                self.answer(waiting, Some(name));
            }
            (Rule::Listed(allowed), Some(key)) => {
                let name = allowed.get(&key).cloned();
                self.answer(waiting, name);
            }
            (Rule::Asked, Some(_)) => {
                if let Some(excess) = self.lines.push(now, waiting) {
                    self.turn_away(excess);
                }
                self.ask(now);
            }
            (_, None) => self.answer(waiting, None),
        }
    }

    /// Asks about queued clients, as many as may be decided on at a time.
    fn ask(&mut self, now: Nanos) {
        while self.asked.len() < AT_ONCE
            && let Some(waiting) = self.lines.pop()
        {
            let candidate = waiting.candidate.clone();
            if let Ok(token) = self.asked.ask(now, waiting) {
                self.events.push_back(ZapEvent::Question(token, candidate));
            }
        }
    }

    fn answer(&mut self, waiting: Waiting, name: Option<String>) {
        if let Some(name) = name {
            self.reply(&waiting, "200", "OK", name);
        } else {
            self.reply(&waiting, "400", "this key is not allowed", String::new());
            self.refuse(waiting);
        }
    }

    /// No decision was made: the client may try again.
    fn turn_away(&mut self, waiting: Waiting) {
        self.reply(&waiting, "300", "not decided yet", String::new());
        self.refuse(waiting);
    }

    fn refuse(&mut self, waiting: Waiting) {
        self.refused += 1;
        self.events.push_back(ZapEvent::Refused(waiting.candidate));
    }

    fn reply(&mut self, waiting: &Waiting, status: &'static str, text: &'static str, name: String) {
        let frames: Frames = smallvec![
            Bytes::new(),
            Bytes::from_static(VERSION),
            waiting.request.clone(),
            Bytes::from_static(status.as_bytes()),
            Bytes::from_static(text.as_bytes()),
            Bytes::from(name),
            Bytes::new(),
        ];
        let (to, frames) = (waiting.peer.clone(), frames.into());
        self.outputs.push_back(Output::Send { id: None, socket: Zap, to, frames, until: None });
    }
}

impl Machine for Authenticator {
    type Socket = Zap;
    type Event = ZapEvent;
    type Verb = ZapVerb;
    /// How many were refused.
    type Stats = u64;

    fn handle_message(&mut self, now: Nanos, incoming: Incoming<Zap>) -> Verdict {
        self.decide(now, incoming.peer, &incoming.frames);
        Verdict::default()
    }

    fn handle_socket(&mut self, _now: Nanos, _socket: Zap, event: SocketEvent) {
        if event == SocketEvent::Closed {
            self.closed = true;
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        while let Some(waiting) =
            self.asked.expired(now).map(|(_, waiting)| waiting).or_else(|| self.lines.expired(now))
        {
            self.turn_away(waiting);
        }
        self.ask(now);
    }

    fn handle_verb(&mut self, now: Nanos, verb: ZapVerb) {
        match verb {
            ZapVerb::Allow(allowed) => self.rule = Rule::Listed(allowed),
            ZapVerb::Answer(token, name) => {
                if let Some(waiting) = self.asked.answered(token) {
                    self.answer(waiting, name);
                }
                self.ask(now);
            }
        }
    }

    fn handle_close(&mut self, _now: Nanos, _grace: Duration) {
        self.outputs.push_back(Output::Close { socket: Zap, linger: Duration::ZERO });
    }

    fn poll_output(&mut self) -> Option<Output<Zap>> {
        self.outputs.pop_front()
    }

    fn poll_event(&mut self) -> Option<ZapEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.asked.poll_timeout().into_iter().chain(self.lines.poll_timeout()).min()
    }

    fn stats(&self) -> u64 {
        self.refused
    }

    fn is_closed(&self) -> bool {
        self.closed
    }
}

/// A key in Z85 (ZeroMQ's RFC 32).
pub fn z85(key: &Key) -> String {
    const LETTERS: &[u8; 85] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
    let mut text = String::with_capacity(40);
    for chunk in key.chunks_exact(4) {
        let value = chunk.iter().fold(0u32, |value, byte| value << 8 | u32::from(*byte));
        for place in [85 * 85 * 85 * 85, 85 * 85 * 85, 85 * 85, 85, 1] {
            text.push(LETTERS[(value / place % 85) as usize].into());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(zap: &mut Authenticator, peer: u8, key: Key) {
        ask_from(zap, "127.0.0.1", peer, key);
    }

    fn ask_from(zap: &mut Authenticator, address: &str, peer: u8, key: Key) {
        let frames = [&b""[..], b"1.0", b"7", b"", address.as_bytes(), b"", b"CURVE", &key].map(Bytes::copy_from_slice);
        let peer = Some(Bytes::copy_from_slice(&[peer]));
        let frames = frames.into_iter().collect();
        zap.handle_message(Nanos(0), Incoming { socket: Zap, peer, user_id: None, host: None, frames });
    }

    /// What it has answered: the peer, the status and the name.
    fn answers(zap: &mut Authenticator) -> Vec<(u8, String, String)> {
        let text = |frame: &Bytes| String::from_utf8_lossy(frame).into_owned();
        std::iter::from_fn(|| zap.poll_output())
            .filter_map(|output| {
                let Output::Send { to, frames, .. } = output else { return None };
                Some((to?[0], text(&frames[3]), text(&frames[5])))
            })
            .collect()
    }

    fn answer(peer: u8, status: &str, name: &str) -> (u8, String, String) {
        (peer, status.to_owned(), name.to_owned())
    }

    #[test]
    fn lets_in_who_is_listed_and_no_one_else() {
        let allow = |key: u8, name: &str| Allowed::from([([key; 32], name.to_owned())]);
        let mut zap = Authenticator::new(Rule::Listed(allow(1, "ada")));
        ask(&mut zap, 8, [1; 32]);
        ask(&mut zap, 9, [2; 32]);
        assert_eq!(answers(&mut zap), [answer(8, "200", "ada"), answer(9, "400", "")]);
        let refused = Candidate { address: "127.0.0.1".to_owned(), key: z85(&[2; 32]) };
        assert_eq!(zap.poll_event(), Some(ZapEvent::Refused(refused)));
        zap.handle_verb(Nanos(0), ZapVerb::Allow(allow(2, "bob")));
        ask(&mut zap, 8, [1; 32]);
        ask(&mut zap, 9, [2; 32]);
        assert_eq!(answers(&mut zap), [answer(8, "400", ""), answer(9, "200", "bob")]);
        assert_eq!(zap.stats(), 2);
    }

    #[test]
    fn asks_about_each_and_none_waits_for_another() {
        let mut zap = Authenticator::new(Rule::Asked);
        let mut tokens = vec![];
        for peer in 1..=3 {
            ask(&mut zap, peer, [peer; 32]);
            let Some(ZapEvent::Question(token, candidate)) = zap.poll_event() else { panic!("no question") };
            assert_eq!((candidate.key, candidate.address), (z85(&[peer; 32]), "127.0.0.1".to_owned()));
            tokens.push(token);
        }
        assert_eq!(answers(&mut zap), []);
        zap.handle_verb(Nanos(0), ZapVerb::Answer(tokens[2], Some("cy".to_owned())));
        zap.handle_verb(Nanos(0), ZapVerb::Answer(tokens[1], None));
        assert_eq!(answers(&mut zap), [answer(3, "200", "cy"), answer(2, "400", "")]);
        let due = zap.poll_timeout().expect("one waits");
        zap.handle_timeout(due);
        assert_eq!(answers(&mut zap), [answer(1, "300", "")]);
        // Too late.
        zap.handle_verb(due, ZapVerb::Answer(tokens[0], Some("al".to_owned())));
        assert_eq!((answers(&mut zap), zap.poll_timeout(), zap.stats()), (vec![], None, 2));
    }

    #[test]
    fn each_address_has_its_turns_and_its_share() {
        let mut zap = Authenticator::new(Rule::Asked);
        for number in 0..=AT_ONCE + SHARE {
            ask(&mut zap, u8::try_from(number).expect("few"), [5; 32]);
        }
        // The oldest queued client is refused.
        assert_eq!(answers(&mut zap), [answer(u8::try_from(AT_ONCE).expect("few"), "300", "")]);
        for (address, peer) in [("127.0.0.2", 200), ("2001:db8::1", 201), ("2001:db8::2", 202)] {
            ask_from(&mut zap, address, peer, [5; 32]);
        }
        assert_eq!(answers(&mut zap), []);
        let mut asked = vec![];
        while let Some(event) = zap.poll_event() {
            let ZapEvent::Question(token, candidate) = event else { continue };
            asked.push(candidate.address);
            zap.handle_verb(Nanos(0), ZapVerb::Answer(token, Some("ada".to_owned())));
            if asked.len() > AT_ONCE + 4 {
                break;
            }
        }
        let (first, network) = ("127.0.0.1", "2001:db8::2");
        assert_eq!(asked[AT_ONCE..], [first, "127.0.0.2", network, first, "2001:db8::1"]);
    }

    #[test]
    fn the_address_with_most_makes_room_for_others() {
        let mut zap = Authenticator::new(Rule::Asked);
        for number in 0..AT_ONCE + WAITING {
            let few = AT_ONCE + SHARE - 1;
            let address =
                if number < few { "127.0.0.1".to_owned() } else { format!("10.0.{}.{}", number / 250, number % 250) };
            ask_from(&mut zap, &address, u8::from(number < few), [5; 32]);
        }
        assert_eq!(answers(&mut zap), []);
        ask_from(&mut zap, "127.0.0.2", 3, [5; 32]);
        assert_eq!(answers(&mut zap), [answer(1, "300", "")]);
        zap.handle_timeout(Nanos(0) + THINKING);
        assert_eq!((answers(&mut zap).len(), zap.poll_timeout()), (AT_ONCE + WAITING, None));
    }

    #[test]
    fn spells_keys_as_zeromq_does() {
        // The test vector of RFC 32, four times.
        let word = [0x86, 0x4f, 0xd2, 0x6f, 0xb5, 0x59, 0xf7, 0x5b];
        let key: Vec<u8> = word.repeat(4);
        assert_eq!(z85(&key.try_into().unwrap()), "HelloWorld".repeat(4));
    }
}
