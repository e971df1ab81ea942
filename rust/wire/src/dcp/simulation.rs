//! Broker, workers and clients under a clock that is a number, over a network that is a queue: it delays, loses, doubles
//! and reorders what it is told to, and its peers crash and come back.
//!
//! Nothing in it is random but by its seed: the same calls give the same events.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::{
    Asking, Back, Broker, BrokerEvent, BrokerSettings, Client, ClientEvent, ClientSettings, ClientVerb, Front, Worker,
    WorkerEvent, WorkerSettings, Working, WorkingEvent, WorkingVerb,
};
use crate::{Frames, Incoming, Machine, Nanos, Output, SendId, SocketEvent, Unsent, Verdict};

/// The broker's endpoint.
pub const ENDPOINT: &str = "simulated";

/// What the network does to messages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Network {
    /// How long each takes.
    pub latency: Duration,
    /// How much longer it may take.
    pub jitter: Duration,
    /// The share of them that is lost, from 0 to 1.
    pub loss: f64,
    /// The share of them that arrives twice.
    pub duplication: f64,
    /// Whether they may overtake each other on one connection.
    pub reorder: bool,
}

/// One of those that take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub usize);

/// What a node is, and how it is set up.
#[derive(Clone, Debug)]
pub enum Part {
    /// The broker; the one put in first is connected to.
    Broker(BrokerSettings),
    /// A worker.
    Worker(WorkerSettings),
    /// A client.
    Client(ClientSettings),
    /// A DEALER that sends what it is given, and is told what it is sent.
    Peer,
}

/// What a simulation tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// By a broker.
    Broker(Node, BrokerEvent),
    /// By a worker.
    Worker(Node, WorkerEvent),
    /// By a client, or by a worker that asks.
    Client(Node, ClientEvent),
    /// A message to a peer.
    Peer(Node, Frames),
    /// The time has come that [`Simulation::wake`] was asked for.
    Woken(u64),
}

impl Told {
    /// Who tells it.
    pub fn node(&self) -> Option<Node> {
        match self {
            Self::Broker(node, _) | Self::Worker(node, _) | Self::Client(node, _) | Self::Peer(node, _) => Some(*node),
            Self::Woken(_) => None,
        }
    }
}

/// A simulation took more steps than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endless {
    /// The seed that leads here.
    pub seed: u64,
    /// How many steps were taken.
    pub steps: u64,
}

impl fmt::Display for Endless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: no end after {} steps", self.seed, self.steps)
    }
}

impl std::error::Error for Endless {}

#[derive(Debug)]
enum Role {
    Broker(Box<Broker>),
    Worker(Box<Working>),
    Client(Box<Client>),
    Peer(VecDeque<Frames>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Up,
    /// It crashed.
    Down,
    /// It came to its own end.
    Over,
}

/// What a role wants of its socket.
enum Wish {
    Send { id: Option<SendId>, to: Option<Bytes>, frames: Frames, until: Option<Nanos> },
    Withdraw(SendId),
    Dial,
    HangUp,
    Close,
}

struct Letter {
    id: Option<SendId>,
    frames: Frames,
    until: Option<Nanos>,
}

struct Member {
    part: Part,
    role: Role,
    life: Life,
    dials: bool,
    /// The routing id of its connection, as long as that lasts.
    address: Option<Bytes>,
    /// What waits for a connection.
    letters: VecDeque<Letter>,
    /// When the last message to it, and the last one from it, arrives.
    last: [Nanos; 2],
}

/// Something that happens at its time.
enum Happens {
    /// A message comes to the end of the connection with this routing id.
    Arrives {
        at_broker: bool,
        address: Bytes,
        frames: Frames,
    },
    /// The end of that connection.
    Ends(Bytes),
    Wakes(u64),
}

/// A broker, its peers and all that is between them.
pub struct Simulation {
    seed: u64,
    random: u64,
    now: Nanos,
    network: Network,
    members: Vec<Member>,
    /// Who holds which connection.
    addresses: HashMap<Bytes, Node>,
    births: u64,
    agenda: BTreeMap<(Nanos, u64), Happens>,
    entries: u64,
    steps: u64,
    limit: u64,
    told: VecDeque<Told>,
}

impl Simulation {
    /// An empty one, which takes so many steps at most.
    pub fn new(seed: u64, network: Network, limit: u64) -> Self {
        Self {
            seed,
            // Xorshift stays at 0, and needs a while to leave small numbers.
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            now: Nanos(0),
            network,
            members: vec![],
            addresses: HashMap::new(),
            births: 0,
            agenda: BTreeMap::new(),
            entries: 0,
            steps: 0,
            limit,
            told: VecDeque::new(),
        }
    }

    /// The seed it was made with.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Has messages sent from now on treated like this.
    pub fn set_network(&mut self, network: Network) {
        self.network = network;
    }

    /// Puts somebody in.
    pub fn add(&mut self, part: Part) -> Node {
        let role = self.born(&part);
        self.members.push(Member {
            part,
            role,
            life: Life::Up,
            dials: false,
            address: None,
            letters: VecDeque::new(),
            last: [self.now; 2],
        });
        let node = Node(self.members.len() - 1);
        self.members[node.0].dials = matches!(self.members[node.0].role, Role::Peer(_));
        self.settle();
        node
    }

    /// Takes somebody out without a word: its connections end, and what was on its way with them. What it has not told
    /// yet it never will.
    pub fn crash(&mut self, node: Node) {
        if self.members[node.0].life == Life::Up {
            self.members[node.0].life = Life::Down;
            self.told.retain(|told| told.node() != Some(node));
            self.leave(node);
            self.settle();
        }
    }

    /// Puts who crashed or ended back in, knowing nothing of its former life.
    pub fn restart(&mut self, node: Node) {
        self.crash(node);
        self.leave(node);
        let role = self.born(&self.members[node.0].part.clone());
        let member = &mut self.members[node.0];
        member.dials = matches!(role, Role::Peer(_));
        member.role = role;
        member.life = Life::Up;
        self.settle();
    }

    /// Asks for an orderly end within `grace`.
    pub fn close(&mut self, node: Node, grace: Duration) {
        let now = self.now;
        match &mut self.members[node.0].role {
            Role::Broker(broker) => broker.handle_close(now, grace),
            Role::Worker(worker) => worker.handle_close(now, grace),
            Role::Client(client) => client.handle_close(now, grace),
            Role::Peer(_) => self.crash(node),
        }
        self.settle();
    }

    /// Whether it neither crashed nor ended.
    pub fn is_up(&self, node: Node) -> bool {
        self.members[node.0].life == Life::Up
    }

    /// The routing id the broker knows it by, while it is connected.
    pub fn address(&self, node: Node) -> Option<&Bytes> {
        self.members[node.0].address.as_ref()
    }

    /// The broker's machine, if it is one.
    pub fn broker(&self, node: Node) -> Option<&Broker> {
        if let Role::Broker(broker) = &self.members[node.0].role { Some(broker) } else { None }
    }

    /// The worker's machine, if it is one.
    pub fn worker(&self, node: Node) -> Option<&Working> {
        if let Role::Worker(worker) = &self.members[node.0].role { Some(worker) } else { None }
    }

    /// The client's machine, if it is one.
    pub fn client(&self, node: Node) -> Option<&Client> {
        if let Role::Client(client) = &self.members[node.0].role { Some(client) } else { None }
    }

    /// What the user of a worker asks for. Nobody hears it while it is down.
    pub fn ask_worker(&mut self, node: Node, verb: WorkingVerb<ClientVerb>) {
        let member = &mut self.members[node.0];
        if let Role::Worker(worker) = &mut member.role
            && member.life == Life::Up
        {
            worker.handle_verb(self.now, verb);
        }
        self.settle();
    }

    /// What the user of a client asks for. Nobody hears it while it is down.
    pub fn ask_client(&mut self, node: Node, verb: ClientVerb) {
        let member = &mut self.members[node.0];
        if let Role::Client(client) = &mut member.role
            && member.life == Life::Up
        {
            client.handle_verb(self.now, verb);
        }
        self.settle();
    }

    /// Has a peer send these frames.
    pub fn send(&mut self, node: Node, frames: Frames) {
        let member = &mut self.members[node.0];
        if let Role::Peer(queue) = &mut member.role
            && member.life == Life::Up
        {
            queue.push_back(frames);
        }
        self.settle();
    }

    /// Tells this number after so long.
    pub fn wake(&mut self, after: Duration, token: u64) {
        self.plan(self.now + after, Happens::Wakes(token));
    }

    /// Lets the next thing happen that is due by then; false when nothing is, and it is then.
    ///
    /// # Errors
    /// When it takes more steps than it may.
    pub fn step(&mut self, until: Nanos) -> Result<bool, Endless> {
        let Some(next) = self.next().filter(|next| *next <= until) else {
            if until != Nanos(u64::MAX) {
                self.now = self.now.max(until);
            }
            return Ok(false);
        };
        if self.steps == self.limit {
            return Err(Endless { seed: self.seed, steps: self.steps });
        }
        self.steps += 1;
        self.now = self.now.max(next);
        self.happen();
        Ok(true)
    }

    /// Lets things happen until there is something to tell; false when nothing more is due by then, and it is then.
    ///
    /// # Errors
    /// When it takes more steps than it may.
    pub fn run(&mut self, until: Nanos) -> Result<bool, Endless> {
        while self.told.is_empty() {
            if !self.step(until)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The next thing there is to tell.
    pub fn poll_told(&mut self) -> Option<Told> {
        self.told.pop_front()
    }

    fn born(&mut self, part: &Part) -> Role {
        let mut seed = [0; 32];
        seed.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&self.random().to_be_bytes()));
        match part.clone() {
            Part::Broker(settings) => Role::Broker(Box::new(Broker::new(settings))),
            Part::Worker(settings) => {
                let settings = WorkerSettings { connect: vec![ENDPOINT.to_owned()], ..settings };
                let worker = Worker::new(self.now, settings, seed);
                let asks = ClientSettings { timeout: Duration::MAX, ..ClientSettings::default() };
                Role::Worker(Box::new(Working::new(worker, Client::new(asks, seed))))
            }
            Part::Client(settings) => Role::Client(Box::new(Client::new(settings, seed))),
            Part::Peer => Role::Peer(VecDeque::new()),
        }
    }

    /// When anything happens next.
    fn next(&self) -> Option<Nanos> {
        let up = self.members.iter().filter(|member| member.life == Life::Up);
        let timeouts = up.filter_map(Member::poll_timeout).min();
        let planned = self.agenda.first_key_value().map(|((at, _), _)| *at);
        // What is due at the end of time never is.
        [timeouts, planned].into_iter().flatten().min().filter(|next| *next != Nanos(u64::MAX))
    }

    fn happen(&mut self) {
        let now = self.now;
        if let Some(entry) = self.agenda.first_entry()
            && entry.key().0 <= now
        {
            match entry.remove() {
                Happens::Arrives { at_broker, address, frames } => self.arrive(at_broker, &address, frames),
                Happens::Ends(address) => self.end(&address),
                Happens::Wakes(token) => self.told.push_back(Told::Woken(token)),
            }
        } else {
            for member in self.members.iter_mut().filter(|member| member.life == Life::Up) {
                if member.poll_timeout().is_some_and(|at| at <= now) {
                    member.handle_timeout(now);
                }
            }
        }
        self.settle();
    }

    fn arrive(&mut self, at_broker: bool, address: &Bytes, frames: Frames) {
        // A connection ends with its peer, and what was on its way with it.
        let Some(&node) = self.addresses.get(address) else { return };
        let now = self.now;
        if !at_broker {
            if self.members[node.0].life != Life::Up {
                return;
            }
            if let Role::Peer(_) = self.members[node.0].role {
                self.told.push_back(Told::Peer(node, frames));
            } else {
                self.members[node.0].handle_message(now, None, frames);
            }
        } else if let Some(broker) = self.find_broker() {
            self.members[broker.0].handle_message(now, Some(address.clone()), frames);
        }
    }

    /// The broker, while it is up.
    fn find_broker(&self) -> Option<Node> {
        let is_broker = |member: &Member| matches!(member.role, Role::Broker(_)) && member.life == Life::Up;
        self.members.iter().position(is_broker).map(Node)
    }

    /// Carries out what everybody wants, until nobody wants anything.
    fn settle(&mut self) {
        let mut is_busy = true;
        while is_busy {
            is_busy = self.connect();
            for number in 0..self.members.len() {
                if self.members[number].life != Life::Up {
                    continue;
                }
                while let Some(wish) = self.members[number].poll_output(self.now) {
                    is_busy = true;
                    self.fulfil(Node(number), wish);
                }
                while let Some(told) = self.members[number].poll_event(Node(number)) {
                    self.told.push_back(told);
                }
            }
        }
    }

    fn fulfil(&mut self, node: Node, wish: Wish) {
        let now = self.now;
        match wish {
            Wish::Send { id, to: Some(to), frames, .. } => {
                let is_there = self.addresses.contains_key(&to);
                if is_there {
                    self.post(false, &to, &frames);
                }
                if let Some(id) = id {
                    let unsent = SocketEvent::Unsent(id, Unsent::Unreachable);
                    let event = if is_there { SocketEvent::Sent(id) } else { unsent };
                    self.members[node.0].handle_socket(now, event);
                }
            }
            Wish::Send { id, to: None, frames, until } => {
                self.members[node.0].letters.push_back(Letter { id, frames, until });
                self.empty(node);
            }
            Wish::Withdraw(id) => {
                let letters = &mut self.members[node.0].letters;
                if let Some(at) = letters.iter().position(|letter| letter.id == Some(id)) {
                    letters.remove(at);
                    self.members[node.0].handle_socket(now, SocketEvent::Unsent(id, Unsent::Expired));
                }
            }
            Wish::Dial => self.members[node.0].dials = true,
            Wish::HangUp => {
                self.members[node.0].dials = false;
                self.disconnect(node);
            }
            Wish::Close => {
                self.members[node.0].life = Life::Over;
                self.members[node.0].handle_socket(now, SocketEvent::Closed);
                while let Some(told) = self.members[node.0].poll_event(node) {
                    self.told.push_back(told);
                }
                self.linger(node);
            }
        }
    }

    /// Connects who dials to a broker that is there; whether there was anybody.
    fn connect(&mut self) -> bool {
        let Some(broker) = self.find_broker() else { return false };
        let now = self.now;
        let mut some = false;
        for number in 0..self.members.len() {
            let member = &self.members[number];
            if member.life != Life::Up || !member.dials || member.address.is_some() || number == broker.0 {
                continue;
            }
            some = true;
            self.births += 1;
            let address = Bytes::from(format!("{}-{}", member.role.name(), self.births));
            self.addresses.insert(address.clone(), Node(number));
            self.members[number].address = Some(address);
            self.members[number].last = [now; 2];
            self.members[broker.0].handle_socket(now, SocketEvent::Connected(ENDPOINT.to_owned()));
            self.members[number].handle_socket(now, SocketEvent::Connected(ENDPOINT.to_owned()));
            self.empty(Node(number));
        }
        some
    }

    /// Sends what waits for a connection, if there is one.
    fn empty(&mut self, node: Node) {
        let Some(address) = self.members[node.0].address.clone() else { return };
        while let Some(Letter { id, frames, .. }) = self.members[node.0].letters.pop_front() {
            self.post(true, &address, &frames);
            if let Some(id) = id {
                self.members[node.0].handle_socket(self.now, SocketEvent::Sent(id));
            }
        }
    }

    /// Ends a node's connection, if it has one, as the broker sees it.
    fn disconnect(&mut self, node: Node) {
        let Some(address) = self.members[node.0].address.take() else { return };
        self.addresses.remove(&address);
        if let Some(broker) = self.find_broker() {
            self.members[broker.0].handle_socket(self.now, SocketEvent::Disconnected(ENDPOINT.to_owned()));
        }
    }

    /// Ends all connections of who is gone.
    fn leave(&mut self, node: Node) {
        self.members[node.0].letters.clear();
        for address in self.connections(node) {
            self.end(&address);
        }
    }

    /// Ends all connections of who has ended, once what it sent has arrived.
    fn linger(&mut self, node: Node) {
        let at_broker = !matches!(self.members[node.0].role, Role::Broker(_));
        for address in self.connections(node) {
            let last = self.addresses.get(&address).map(|node| self.members[node.0].last[usize::from(at_broker)]);
            self.plan(last.unwrap_or_default().max(self.now), Happens::Ends(address));
        }
    }

    /// The connections of a node; all are the broker's.
    fn connections(&self, node: Node) -> Vec<Bytes> {
        match &self.members[node.0].role {
            Role::Broker(_) => self.members.iter().filter_map(|member| member.address.clone()).collect(),
            Role::Worker(_) | Role::Client(_) | Role::Peer(_) => self.members[node.0].address.iter().cloned().collect(),
        }
    }

    /// Ends a connection, as both sides see it who are still there.
    fn end(&mut self, address: &Bytes) {
        let Some(&node) = self.addresses.get(address) else { return };
        self.disconnect(node);
        if self.members[node.0].life == Life::Up {
            self.members[node.0].handle_socket(self.now, SocketEvent::Disconnected(ENDPOINT.to_owned()));
        }
    }

    fn post(&mut self, at_broker: bool, address: &Bytes, frames: &Frames) {
        let Some(&node) = self.addresses.get(address) else { return };
        let Network { latency, jitter, loss, duplication, reorder } = self.network;
        let copies = match (self.fraction() < loss, self.fraction() < duplication) {
            (true, _) => 0,
            (false, true) => 2,
            (false, false) => 1,
        };
        for _ in 0..copies {
            let mut at = self.now + latency + jitter.mul_f64(self.fraction());
            let last = &mut self.members[node.0].last[usize::from(at_broker)];
            if !reorder {
                at = at.max(*last);
            }
            *last = at.max(*last);
            self.plan(at, Happens::Arrives { at_broker, address: address.clone(), frames: frames.clone() });
        }
    }

    fn plan(&mut self, at: Nanos, happens: Happens) {
        self.entries += 1;
        self.agenda.insert((at, self.entries), happens);
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// From 0 to less than 1.
    fn fraction(&mut self) -> f64 {
        f64::from((self.random() >> 32) as u32) / (f64::from(u32::MAX) + 1.0)
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("seed", &self.seed).field("now", &self.now).finish_non_exhaustive()
    }
}

impl Role {
    fn name(&self) -> &'static str {
        match self {
            Self::Broker(_) => "broker",
            Self::Worker(_) => "worker",
            Self::Client(_) => "client",
            Self::Peer(_) => "peer",
        }
    }
}

impl Member {
    fn handle_message(&mut self, now: Nanos, peer: Option<Bytes>, frames: Frames) {
        let user_id = None;
        match &mut self.role {
            Role::Broker(broker) => broker.handle_message(now, Incoming { socket: Front, peer, user_id, frames }),
            Role::Worker(worker) => worker.handle_message(now, Incoming { socket: Back, peer, user_id, frames }),
            Role::Client(client) => client.handle_message(now, Incoming { socket: Asking, peer, user_id, frames }),
            Role::Peer(_) => Verdict::default(),
        };
    }

    fn handle_socket(&mut self, now: Nanos, event: SocketEvent) {
        match &mut self.role {
            Role::Broker(broker) => broker.handle_socket(now, Front, event),
            Role::Worker(worker) => worker.handle_socket(now, Back, event),
            Role::Client(client) => client.handle_socket(now, Asking, event),
            Role::Peer(_) => {}
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        while let Some(at) = self.letters.iter().position(|letter| letter.until.is_some_and(|until| until <= now)) {
            if let Some(Letter { id: Some(id), .. }) = self.letters.remove(at) {
                self.handle_socket(now, SocketEvent::Unsent(id, Unsent::Expired));
            }
        }
        match &mut self.role {
            Role::Broker(broker) => broker.handle_timeout(now),
            Role::Worker(worker) => worker.handle_timeout(now),
            Role::Client(client) => client.handle_timeout(now),
            Role::Peer(_) => {}
        }
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        let machine = match &self.role {
            Role::Broker(broker) => broker.poll_timeout(),
            Role::Worker(worker) => worker.poll_timeout(),
            Role::Client(client) => client.poll_timeout(),
            Role::Peer(_) => None,
        };
        self.letters.iter().filter_map(|letter| letter.until).chain(machine).min()
    }

    fn poll_output(&mut self, now: Nanos) -> Option<Wish> {
        match &mut self.role {
            Role::Broker(broker) => broker.poll_output_owned(now).map(Wish::of),
            Role::Worker(worker) => worker.poll_output_owned(now).map(Wish::of),
            Role::Client(client) => client.poll_output_owned(now).map(Wish::of),
            Role::Peer(queue) => queue.pop_front().map(|frames| Wish::Send { id: None, to: None, frames, until: None }),
        }
    }

    fn poll_event(&mut self, node: Node) -> Option<Told> {
        match &mut self.role {
            Role::Broker(broker) => broker.poll_event().map(|event| Told::Broker(node, event)),
            Role::Worker(worker) => worker.poll_event().map(|event| match event {
                WorkingEvent::Work(event) => Told::Worker(node, event),
                WorkingEvent::Call(event) => Told::Client(node, event),
            }),
            Role::Client(client) => client.poll_event().map(|event| Told::Client(node, event)),
            Role::Peer(_) => None,
        }
    }
}

impl Wish {
    fn of<S>(output: Output<S>) -> Self {
        match output {
            Output::Send { id, to, frames, until, .. } => Self::Send { id, to, frames, until },
            Output::Lend { .. } => unreachable!("what is polled for as owned is not lent"),
            Output::Withdraw { id, .. } => Self::Withdraw(id),
            Output::Open(_) | Output::Connect { .. } => Self::Dial,
            Output::Disconnect { .. } => Self::HangUp,
            Output::Close { .. } => Self::Close,
        }
    }
}
