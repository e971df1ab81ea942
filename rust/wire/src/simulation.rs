//! Machines under a simulated clock and network: messages can be delayed, lost, duplicated and reordered, and members
//! crash and restart.
//!
//! All randomness comes from the seed: the same calls give the same events.

mod bare;
mod erased;
mod network;

pub use bare::{Bare, Received};

use std::any::Any;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use self::erased::{AnyMachine, Numbered};
use crate::{Frames, Incoming, Machine, Nanos, Open, Output, SendId, SocketEvent, SocketKind, SocketOptions, Unsent};

/// What the network does to messages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Network {
    /// How long each takes.
    pub latency: Duration,
    /// How much longer it may take.
    pub jitter: Duration,
    /// The share that is lost, from 0 to 1.
    pub loss: f64,
    /// The share that arrives twice.
    pub duplication: f64,
    /// Whether messages of one connection may overtake each other.
    pub reorder: bool,
}

/// The number of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub usize);

/// The events of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A machine has an event: [`Simulation::event`] returns it.
    Event(Node),
    /// A time set by [`Simulation::wake`] has come.
    Woken(u64),
}

/// A simulation exceeded its limit of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endless {
    /// The seed that reproduces this.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Up,
    /// It crashed.
    Down,
    /// It has closed.
    Over,
}

/// Makes the machine of a member, at its start and at each restart.
type Make = Box<dyn Fn(Nanos, [u8; 32]) -> Box<dyn AnyMachine> + Send>;

struct Member {
    name: &'static str,
    make: Make,
    machine: Box<dyn AnyMachine>,
    life: Life,
    sockets: BTreeMap<usize, Socket>,
}

struct Socket {
    kind: SocketKind,
    bound: Vec<String>,
    dialled: Vec<String>,
    routing_id: Option<Bytes>,
    /// Messages waiting for a connection.
    outgoing: VecDeque<Outgoing>,
    /// Messages received, but not wanted yet.
    unread: VecDeque<(Option<Bytes>, Frames)>,
    /// Its connections, in the order they take turns.
    links: VecDeque<u64>,
}

struct Outgoing {
    id: Option<SendId>,
    frames: Frames,
    until: Option<Nanos>,
}

/// One end of a connection.
#[derive(Clone)]
struct End {
    node: Node,
    socket: usize,
    /// The address of the other end, as used here.
    peer: Bytes,
}

/// A connection: the dialling end, then the listening one.
struct Link {
    ends: [End; 2],
    endpoint: String,
    /// When the last message arrives at each end.
    last: [Nanos; 2],
}

/// Whether only one socket of this kind can have a name.
fn is_alone(kind: SocketKind) -> bool {
    !matches!(kind, SocketKind::Udp | SocketKind::Nats)
}

/// A scheduled event.
enum Happens {
    /// A message arrives at an end of a connection.
    Arrives {
        link: u64,
        end: usize,
        frames: Frames,
    },
    /// A datagram arrives at a socket.
    Datagram {
        to: Node,
        socket: usize,
        from: Bytes,
        frames: Frames,
    },
    /// The end of a connection.
    Ends(u64),
    Wakes(u64),
}

/// Machines, and the network between them.
pub struct Simulation {
    seed: u64,
    random: u64,
    now: Nanos,
    network: Network,
    members: Vec<Member>,
    links: BTreeMap<u64, Link>,
    /// The connections of sockets that send by name.
    routes: HashMap<(Node, usize, Bytes), u64>,
    births: u64,
    ports: u16,
    agenda: BTreeMap<(Nanos, u64), Happens>,
    entries: u64,
    steps: u64,
    limit: u64,
    notices: VecDeque<Notice>,
}

impl Simulation {
    /// An empty simulation, limited to this many steps.
    pub fn new(seed: u64, network: Network, limit: u64) -> Self {
        Self {
            seed,
            // Xorshift stays at 0, and takes a while to leave small numbers.
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            now: Nanos(0),
            network,
            members: vec![],
            links: BTreeMap::new(),
            routes: HashMap::new(),
            births: 0,
            ports: 0,
            agenda: BTreeMap::new(),
            entries: 0,
            steps: 0,
            limit,
            notices: VecDeque::new(),
        }
    }

    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Changes how messages are treated from now on.
    pub fn set_network(&mut self, network: Network) {
        self.network = network;
    }

    /// Adds a member; its machine is made from the time and a seed of its own.
    pub fn add<M: Machine + Send + 'static>(
        &mut self,
        name: &'static str,
        make: impl Fn(Nanos, [u8; 32]) -> M + Send + 'static,
    ) -> Node {
        let make: Make = Box::new(move |now, seed| Box::new(Numbered::new(make(now, seed))));
        let machine = make(self.now, self.seed_of_one());
        self.members.push(Member { name, make, machine, life: Life::Up, sockets: BTreeMap::new() });
        self.settle();
        Node(self.members.len() - 1)
    }

    /// Crashes a member: its connections end, messages in flight are lost, and so are events not taken yet.
    pub fn crash(&mut self, node: Node) {
        if self.members[node.0].life == Life::Up {
            self.members[node.0].life = Life::Down;
            self.notices.retain(|notice| *notice != Notice::Event(node));
            self.leave(node);
            self.settle();
        }
    }

    /// Restarts a member that crashed or closed, with a new machine.
    pub fn restart(&mut self, node: Node) {
        self.crash(node);
        self.leave(node);
        let (now, seed) = (self.now, self.seed_of_one());
        let member = &mut self.members[node.0];
        member.machine = (member.make)(now, seed);
        member.life = Life::Up;
        self.settle();
    }

    /// Starts an orderly end within `grace`.
    pub fn close(&mut self, node: Node, grace: Duration) {
        let now = self.now;
        self.members[node.0].machine.handle_close(now, grace);
        self.settle();
    }

    /// Whether it has neither crashed nor closed.
    pub fn is_up(&self, node: Node) -> bool {
        self.members[node.0].life == Life::Up
    }

    /// Its address at the other end of its first connection.
    pub fn address(&self, node: Node) -> Option<&Bytes> {
        self.links.values().find(|link| link.ends[0].node == node).map(|link| &link.ends[1].peer)
    }

    pub fn endpoints(&self, node: Node) -> Vec<String> {
        self.members[node.0].sockets.values().flat_map(|socket| socket.bound.clone()).collect()
    }

    /// Its machine, if it has this type.
    pub fn machine<M: Machine + 'static>(&self, node: Node) -> Option<&M> {
        let any: &dyn Any = &*self.members[node.0].machine;
        any.downcast_ref::<Numbered<M>>().map(|numbered| &numbered.machine)
    }

    fn numbered<M: Machine + 'static>(&mut self, node: Node) -> Option<&mut Numbered<M>> {
        let any: &mut dyn Any = &mut *self.members[node.0].machine;
        any.downcast_mut()
    }

    /// The next event of a machine of this type.
    pub fn event<M: Machine + 'static>(&mut self, node: Node) -> Option<M::Event> {
        self.numbered::<M>(node)?.take()
    }

    /// Gives a verb to a machine of this type, unless the member is down.
    pub fn ask<M: Machine + 'static>(&mut self, node: Node, verb: M::Verb) {
        let now = self.now;
        if self.is_up(node)
            && let Some(numbered) = self.numbered::<M>(node)
        {
            numbered.machine.handle_verb(now, verb);
        }
        self.settle();
    }

    /// Reports this number after a time.
    pub fn wake(&mut self, after: Duration, token: u64) {
        self.plan(self.now + after, Happens::Wakes(token));
    }

    /// Carries out the next event due by `until`; false if there is none, and then the time is `until`.
    ///
    /// # Errors
    /// If the limit of steps is exceeded.
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

    /// Runs until there is an event to report; false if there is none by `until`, and then the time is `until`.
    ///
    /// # Errors
    /// If the limit of steps is exceeded.
    pub fn run(&mut self, until: Nanos) -> Result<bool, Endless> {
        while self.notices.is_empty() {
            if !self.step(until)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The next event to report.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// When the next event is due.
    fn next(&self) -> Option<Nanos> {
        let up = self.members.iter().filter(|member| member.life == Life::Up);
        let timeouts = up.filter_map(Member::poll_timeout).min();
        let planned = self.agenda.first_key_value().map(|((at, _), _)| *at);
        // An event at the end of time never happens.
        [timeouts, planned].into_iter().flatten().min().filter(|next| *next != Nanos(u64::MAX))
    }

    fn happen(&mut self) {
        let now = self.now;
        if let Some(entry) = self.agenda.first_entry()
            && entry.key().0 <= now
        {
            match entry.remove() {
                Happens::Arrives { link, end, frames } => self.arrive(link, end, frames),
                Happens::Datagram { to, socket, from, frames } => self.unread(to, socket, Some(from), frames),
                Happens::Ends(link) => self.unlink(link, None),
                Happens::Wakes(token) => self.notices.push_back(Notice::Woken(token)),
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

    /// Delivers a message, unless its connection has ended.
    fn arrive(&mut self, link: u64, end: usize, mut frames: Frames) {
        let Some(Link { ends, .. }) = self.links.get(&link) else { return };
        let End { node, socket, peer } = ends[end].clone();
        let kind = self.members[node.0].sockets.get(&socket).map(|socket| socket.kind);
        if kind == Some(SocketKind::Req) && frames.first().is_some_and(Bytes::is_empty) {
            frames.remove(0);
        }
        self.unread(node, socket, (kind == Some(SocketKind::Router)).then_some(peer), frames);
    }

    fn unread(&mut self, node: Node, socket: usize, peer: Option<Bytes>, frames: Frames) {
        if self.is_up(node)
            && let Some(socket) = self.members[node.0].sockets.get_mut(&socket)
        {
            socket.unread.push_back((peer, frames));
        }
    }

    /// Carries out the outputs of all machines, until there are none.
    fn settle(&mut self) {
        let mut is_busy = true;
        while is_busy {
            is_busy = self.connect();
            for number in 0..self.members.len() {
                if self.members[number].life != Life::Up {
                    continue;
                }
                is_busy |= self.members[number].read(self.now);
                while let Some(output) = self.members[number].machine.poll_output() {
                    is_busy = true;
                    self.fulfil(Node(number), output);
                }
                self.gather(Node(number));
            }
        }
    }

    fn gather(&mut self, node: Node) {
        let news = self.members[node.0].machine.gather();
        self.notices.extend(std::iter::repeat_n(Notice::Event(node), news));
    }

    fn fulfil(&mut self, node: Node, output: Output<usize>) {
        let now = self.now;
        match output {
            Output::Open(open) => self.open(node, *open),
            Output::Send { id, socket, to, frames, until } => {
                let frames = frames.into();
                self.send(node, socket, to, Outgoing { id, frames, until });
            }
            Output::Withdraw { socket, id } => {
                let member = &mut self.members[node.0];
                let Some(outgoing) = member.sockets.get_mut(&socket).map(|socket| &mut socket.outgoing) else { return };
                if let Some(at) = outgoing.iter().position(|send| send.id == Some(id)) {
                    outgoing.remove(at);
                    member.machine.handle_socket(now, socket, SocketEvent::Unsent(id, Unsent::Expired));
                }
            }
            Output::Connect { socket, endpoint } => {
                if let Some(socket) = self.members[node.0].sockets.get_mut(&socket) {
                    socket.dialled.push(endpoint);
                }
            }
            Output::Disconnect { socket, endpoint } => {
                if let Some(socket) = self.members[node.0].sockets.get_mut(&socket) {
                    socket.dialled.retain(|dialled| *dialled != endpoint);
                    socket.bound.retain(|bound| *bound != endpoint);
                }
                for link in self.links_of(node, Some(socket), Some(&endpoint)) {
                    self.unlink(link, Some(node));
                }
            }
            Output::Close { socket, .. } => self.close_socket(node, socket),
        }
    }

    fn open(&mut self, node: Node, open: Open<usize>) {
        let Open { socket, kind, bind, connect, options } = open;
        let real: Vec<_> = bind.into_iter().map(|endpoint| self.real(node, endpoint)).collect();
        let (taken, bound): (Vec<_>, Vec<_>) =
            real.into_iter().partition(|endpoint| is_alone(kind) && self.listener(endpoint).is_some());
        let SocketOptions { routing_id, .. } = options;
        let (outgoing, unread, links) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let opened = Socket { kind, bound: bound.clone(), dialled: connect, routing_id, outgoing, unread, links };
        let member = &mut self.members[node.0];
        member.sockets.insert(socket, opened);
        for endpoint in bound {
            member.machine.handle_socket(self.now, socket, SocketEvent::Bound(endpoint));
        }
        for endpoint in taken {
            let reason = "address in use".to_owned();
            member.machine.handle_socket(self.now, socket, SocketEvent::OpenFailed { endpoint, reason });
        }
    }

    /// Resolves an endpoint without a host or port.
    fn real(&mut self, node: Node, endpoint: String) -> String {
        let Some((host, port)) = endpoint.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':')) else {
            return endpoint;
        };
        let host = if host == "*" || host == "0.0.0.0" { host_of(node) } else { host.to_owned() };
        let port = if port == "*" || port == "0" {
            self.ports += 1;
            (49_151 + self.ports).to_string()
        } else {
            port.to_owned()
        };
        format!("tcp://{host}:{port}")
    }

    /// Closes a socket. Its connections end once its messages have arrived.
    fn close_socket(&mut self, node: Node, socket: usize) {
        let now = self.now;
        for link in self.links_of(node, Some(socket), None) {
            let arrived = self.links.get(&link).map_or(now, |link| {
                let at = usize::from(link.ends[0].node == node && link.ends[0].socket == socket);
                link.last[at].max(now)
            });
            self.plan(arrived, Happens::Ends(link));
        }
        let member = &mut self.members[node.0];
        let Some(closed) = member.sockets.remove(&socket) else { return };
        for id in closed.outgoing.into_iter().filter_map(|send| send.id) {
            member.machine.handle_socket(now, socket, SocketEvent::Unsent(id, Unsent::Closed));
        }
        member.machine.handle_socket(now, socket, SocketEvent::Closed);
        if member.machine.is_closed() {
            member.life = Life::Over;
            self.gather(node);
        }
    }

    fn send(&mut self, node: Node, socket: usize, to: Option<Bytes>, outgoing: Outgoing) {
        let kind = self.members[node.0].sockets.get(&socket).map(|socket| socket.kind);
        let Outgoing { id, .. } = outgoing;
        let fate = match (kind, to) {
            (None, _) => Some(Unsent::Closed),
            (Some(SocketKind::Udp), to) => {
                self.cast(node, socket, to.as_deref().unwrap_or_default(), &outgoing.frames);
                None
            }
            (Some(SocketKind::Nats), to) => {
                self.publish(&to.unwrap_or_default(), &outgoing.frames);
                None
            }
            (Some(_), Some(to)) => match self.routes.get(&(node, socket, to)) {
                Some(&link) => {
                    self.post(link, node, &outgoing.frames);
                    None
                }
                None => Some(Unsent::Unreachable),
            },
            (Some(_), None) => {
                if let Some(socket) = self.members[node.0].sockets.get_mut(&socket) {
                    socket.outgoing.push_back(outgoing);
                }
                return self.empty(node, socket);
            }
        };
        if let Some(id) = id {
            let event = fate.map_or(SocketEvent::Sent(id), |fate| SocketEvent::Unsent(id, fate));
            self.members[node.0].machine.handle_socket(self.now, socket, event);
        }
    }

    fn plan(&mut self, at: Nanos, happens: Happens) {
        self.entries += 1;
        self.agenda.insert((at, self.entries), happens);
    }

    fn seed_of_one(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        seed.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&self.random().to_be_bytes()));
        seed
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// From 0 to below 1.
    fn fraction(&mut self) -> f64 {
        f64::from((self.random() >> 32) as u32) / (f64::from(u32::MAX) + 1.0)
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("seed", &self.seed).field("now", &self.now).finish_non_exhaustive()
    }
}

/// The address of a node's host.
fn host_of(node: Node) -> String {
    let [.., a, b] = (node.0 + 1).to_be_bytes();
    format!("10.0.{a}.{b}")
}

impl Member {
    /// Delivers received messages to sockets that want them. Returns whether there were any.
    fn read(&mut self, now: Nanos) -> bool {
        let mut is_any = false;
        for (at, socket) in &mut self.sockets {
            while !socket.unread.is_empty() && self.machine.reads(*at) {
                let Some((peer, frames)) = socket.unread.pop_front() else { break };
                is_any = true;
                self.machine.handle_message(now, Incoming { socket: *at, peer, user_id: None, host: None, frames });
            }
        }
        is_any
    }

    fn handle_timeout(&mut self, now: Nanos) {
        for (at, socket) in &mut self.sockets {
            let is_late = |send: &Outgoing| send.until.is_some_and(|until| until <= now);
            while let Some(late) = socket.outgoing.iter().position(is_late) {
                if let Some(Outgoing { id: Some(id), .. }) = socket.outgoing.remove(late) {
                    self.machine.handle_socket(now, *at, SocketEvent::Unsent(id, Unsent::Expired));
                }
            }
        }
        self.machine.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        let outgoing = self.sockets.values().flat_map(|socket| &socket.outgoing);
        outgoing.filter_map(|send| send.until).chain(self.machine.poll_timeout()).min()
    }
}
