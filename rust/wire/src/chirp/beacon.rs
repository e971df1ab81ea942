//! The only role: offers and requests services, and follows the offers of other hosts.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use smallvec::{SmallVec, smallvec};

use super::{Datagram, Id, Kind, Service, decode};
use crate::{
    DropCounts, DropKind, DropReason, Dropped, Event, Frames, Incoming, Lifecycle, Machine, Multicast, Nanos, Open,
    Origin, Output, SocketEvent, SocketKind, SocketOptions, Verdict, Weight,
};

/// The UDP port of CHIRP (CHIRP-04).
pub const PORT: u16 = 7123;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 192, 7, 123);
const TTL: u8 = 8;

/// Answers to a request are delayed at random, by less than 200 ms (CHIRP-05).
const JITTER_NANOS: u64 = 200_000_000;

/// Services of others to keep; they come from the network, so that memory must have a bound.
const SERVICES: usize = 1024;

/// Services of others at one address; more are considered forged.
const AT_AN_ADDRESS: usize = 16;

/// A request arrives once per network and per hash: copies within this time count as one.
const ECHO: Duration = Duration::from_millis(100);

/// Requests whose copies are recognised.
const ECHOES: usize = 64;

/// A host on several networks offers from several addresses at once. One that offers from a new address, and not from
/// the known one within this time before or after, has moved.
const MOVE: Duration = Duration::from_secs(1);

/// A datagram may be lost: requests are repeated, after twice the time each time.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The longest pause between two requests.
const ASK_AT_LEAST_EVERY: Duration = Duration::from_secs(60);

/// How a beacon sends offers and departures; requests are sent both ways (CHIRP-04).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cast {
    /// As releases from 0.5 receive them.
    #[default]
    Multicast,
    /// As releases up to 0.4 receive them.
    Broadcast,
}

#[derive(Clone, Debug)]
pub struct BeaconSettings {
    /// The group it belongs to.
    pub group: String,
    /// The host it represents; without a name it only listens and requests.
    pub name: Option<String>,
    /// How it announces.
    pub cast: Cast,
    /// Whether its announcements have hashes of lower-case names (CHIRP-03).
    pub lower_case: bool,
    /// Names of other hosts, to be recognised by their hashes.
    pub names: Vec<String>,
    /// Whether other hosts are ignored.
    pub only_names: bool,
    /// The UDP port.
    pub port: u16,
}

/// The beacon's only socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Udp;

/// Where a service of this host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceAddress {
    /// Its TCP port.
    pub port: u16,
    /// The only address of this host it can be reached at; only that network is notified then.
    pub address: Option<Ipv4Addr>,
}

/// What the user of a beacon may request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeaconVerb {
    /// Announce a service, and answer requests for it.
    Offer(Service, ServiceAddress),
    Request(Service),
    /// Withdraw an offer.
    Depart(Service),
}

/// An announcement or request of another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// A new offer, a request, or a departure.
    pub kind: Kind,
    pub host: Id,
    /// Its name, if the settings have it.
    pub name: Option<String>,
    pub service: Service,
    /// The endpoint of the service; `None` in a request.
    pub endpoint: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeaconEvent {
    /// News of another host in the group. A host that offers a service at a new port or address is reported as a
    /// departure and an offer.
    News(News),
    /// A datagram was dropped (CHIRP-07).
    Dropped(Dropped),
}

impl Event for BeaconEvent {
    fn weight(&self) -> Weight {
        match self {
            Self::News(news) => Weight::Notice(news.endpoint.as_ref().map_or(0, String::len)),
            Self::Dropped(dropped) => dropped.weight(),
        }
    }

    #[inline]
    fn origin(&mut self) -> Option<&mut Origin> {
        if let Self::Dropped(dropped) = self { Some(&mut dropped.origin) } else { None }
    }
}

/// Counters of a beacon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BeaconStats {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams of this host itself, of other groups, and of ignored hosts.
    pub ignored: u64,
    /// Dropped datagrams, by kind.
    pub dropped: DropCounts,
    /// Announcements and requests sent; each goes to every network.
    pub sent: u64,
    /// Services that other hosts offer now.
    pub services: u64,
}

/// A service of another host.
#[derive(Debug)]
struct Remote {
    address: Ipv4Addr,
    port: u16,
    /// When it was last offered from this address.
    heard: Nanos,
    /// Another address it was offered from, and when that replaces the old one.
    moving: Option<(Ipv4Addr, Nanos)>,
}

impl Remote {
    fn endpoint(&self) -> String {
        format!("tcp://{}:{}", self.address, self.port)
    }
}

/// The role of CHIRP.
#[derive(Debug)]
pub struct Beacon {
    settings: BeaconSettings,
    state: Lifecycle,
    /// The hashes of group and host that others may use: those of releases from 0.7, and those of earlier ones if
    /// different.
    forms: SmallVec<[(Id, Id); 2]>,
    names: HashMap<Id, String>,
    offers: BTreeMap<Service, ServiceAddress>,
    /// When to answer requests.
    answers: BTreeMap<Service, Nanos>,
    /// When to repeat a request, and how long to wait after that.
    sought: BTreeMap<Service, (Nanos, Duration)>,
    jitter: u64,
    remotes: HashMap<(Id, Service), Remote>,
    /// When to check for hosts that have moved; not later than the first of them.
    look_at: Option<Nanos>,
    echoes: VecDeque<(Id, Service, Nanos)>,
    outputs: VecDeque<Output<Udp>>,
    events: VecDeque<BeaconEvent>,
    stats: BeaconStats,
}

impl Beacon {
    /// A beacon that opens its socket at once. The seed spreads its answers, and identifies it if it has no name.
    pub fn new(settings: BeaconSettings, seed: [u8; 32]) -> Self {
        let mut anonymous = [0; 16];
        anonymous.copy_from_slice(&seed[..16]);
        let host = |hash: fn(&str) -> Id| settings.name.as_deref().map_or(Id(anonymous), hash);
        let mut forms = smallvec![
            (Id::of_lower_case(&settings.group), host(Id::of_lower_case)),
            (Id::of(&settings.group), host(Id::of)),
        ];
        forms.dedup();
        let names = settings
            .names
            .iter()
            .flat_map(|name| [Id::of(name), Id::of_lower_case(name)].map(|id| (id, name.clone())))
            .collect();
        let open = Output::Open(Box::new(Open {
            socket: Udp,
            kind: SocketKind::Udp,
            bind: vec![format!("udp://0.0.0.0:{}", settings.port)],
            connect: vec![],
            options: SocketOptions {
                multicast: Some(Multicast { group: GROUP, ttl: TTL }),
                ..SocketOptions::default()
            },
        }));
        Self {
            settings,
            state: Lifecycle::Open,
            forms,
            names,
            offers: BTreeMap::new(),
            answers: BTreeMap::new(),
            sought: BTreeMap::new(),
            jitter: seed.iter().fold(1, |jitter: u64, byte| jitter.rotate_left(7).wrapping_mul(31) ^ u64::from(*byte))
                | 1,
            remotes: HashMap::new(),
            look_at: None,
            echoes: VecDeque::new(),
            outputs: VecDeque::from([open]),
            events: VecDeque::new(),
            stats: BeaconStats::default(),
        }
    }

    /// Announces a service, and answers requests for it from now on.
    pub fn offer(&mut self, service: Service, place: ServiceAddress) {
        self.offers.insert(service, place);
        self.answers.remove(&service);
        self.announce(Kind::Offer, service, place);
    }

    /// Requests a service once.
    pub fn request(&mut self, service: Service) {
        for (group, host) in self.forms.clone() {
            for cast in [Cast::Multicast, Cast::Broadcast] {
                self.send(cast, None, &Datagram { kind: Kind::Request, group, host, service, port: 0 });
            }
        }
    }

    /// Requests a service repeatedly.
    pub fn seek(&mut self, service: Service) {
        self.sought.insert(service, (Nanos(0), ASK_AGAIN));
    }

    fn ask_again(&mut self, now: Nanos) {
        let mut due = vec![];
        for (service, (at, pause)) in &mut self.sought {
            if *at <= now {
                due.push(*service);
                *at = now + *pause;
                *pause = (*pause * 2).min(ASK_AT_LEAST_EVERY);
            }
        }
        for service in due {
            self.request(service);
        }
    }

    /// Withdraws an offer.
    pub fn depart(&mut self, service: Service) {
        self.answers.remove(&service);
        if let Some(place) = self.offers.remove(&service) {
            self.announce(Kind::Depart, service, place);
        }
    }

    fn announce(&mut self, kind: Kind, service: Service, ServiceAddress { port, address }: ServiceAddress) {
        let form = if self.settings.lower_case { self.forms.first() } else { self.forms.last() };
        if let Some(&(group, host)) = form {
            self.send(self.settings.cast, address, &Datagram { kind, group, host, service, port });
        }
    }

    fn send(&mut self, cast: Cast, from: Option<Ipv4Addr>, datagram: &Datagram) {
        let address = match cast {
            Cast::Multicast => GROUP,
            Cast::Broadcast => Ipv4Addr::BROADCAST,
        };
        let mut to = SocketAddrV4::new(address, self.settings.port).to_string();
        if let Some(from) = from {
            to = format!("{to}@{from}");
        }
        self.stats.sent += 1;
        self.outputs.push_back(Output::Send {
            id: None,
            socket: Udp,
            to: Some(to.into()),
            frames: Frames::from_iter([Bytes::copy_from_slice(&datagram.encode())]).into(),
            until: None,
        });
    }

    /// When to answer.
    fn soon(&mut self, now: Nanos) -> Nanos {
        self.jitter ^= self.jitter << 13;
        self.jitter ^= self.jitter >> 7;
        self.jitter ^= self.jitter << 17;
        now + Duration::from_nanos(self.jitter % JITTER_NANOS)
    }

    fn tell(&mut self, kind: Kind, host: Id, service: Service, endpoint: Option<String>) {
        let name = self.names.get(&host).cloned();
        self.events.push_back(BeaconEvent::News(News { kind, host, name, service, endpoint }));
    }

    fn drop(&mut self, reason: DropReason, frames: Frames, peer: Option<Bytes>) {
        let dropped = Dropped::new(reason, peer, frames);
        dropped.count(&mut self.stats.dropped);
        self.events.push_back(BeaconEvent::Dropped(dropped));
    }

    fn is_heard(&self, datagram: &Datagram) -> bool {
        let is_ours = self.forms.iter().any(|(group, _)| *group == datagram.group);
        let is_own = self.forms.iter().any(|(_, host)| *host == datagram.host);
        is_ours && !is_own && (!self.settings.only_names || self.names.contains_key(&datagram.host))
    }

    fn requested(&mut self, now: Nanos, host: Id, service: Service) {
        if self.offers.contains_key(&service) && !self.answers.contains_key(&service) {
            let at = self.soon(now);
            self.answers.insert(service, at);
        }
        self.echoes.retain(|(_, _, until)| *until > now);
        if self.echoes.iter().any(|(known, asked, _)| (*known, *asked) == (host, service)) {
            return;
        }
        if self.echoes.len() == ECHOES {
            self.echoes.pop_front();
        }
        self.echoes.push_back((host, service, now + ECHO));
        self.tell(Kind::Request, host, service, None);
    }

    /// Handles an offer; false if there is no room for it.
    fn offered(&mut self, now: Nanos, address: Ipv4Addr, datagram: &Datagram) -> bool {
        let Datagram { host, service, port, .. } = *datagram;
        let remote = Remote { address, port, heard: now, moving: None };
        let is_new = !self.remotes.contains_key(&(host, service));
        if is_new && self.remotes.values().filter(|known| known.address == address).count() >= AT_AN_ADDRESS {
            return false;
        }
        if is_new && self.remotes.len() == SERVICES {
            self.forget_the_most_silent();
        }
        match self.remotes.get_mut(&(host, service)) {
            Some(known) if known.port == port && known.address == address => *known = remote,
            Some(known) if known.port == port && now < known.heard + MOVE => {}
            Some(known) if known.port == port => {
                let (_, at) = *known.moving.get_or_insert((address, now + MOVE));
                self.look_at.get_or_insert(at);
            }
            Some(_) => self.replace(host, service, remote),
            None => {
                self.tell(Kind::Offer, host, service, Some(remote.endpoint()));
                self.remotes.insert((host, service), remote);
            }
        }
        true
    }

    /// Makes room for another service. This is not reported: a host that still offers the old one will announce it as
    /// new.
    fn forget_the_most_silent(&mut self) {
        let silent = self.remotes.iter().min_by_key(|(_, known)| known.heard).map(|(key, _)| *key);
        if let Some(silent) = silent {
            self.remotes.remove(&silent);
        }
    }

    fn replace(&mut self, host: Id, service: Service, remote: Remote) {
        let endpoint = remote.endpoint();
        if let Some(old) = self.remotes.insert((host, service), remote) {
            self.tell(Kind::Depart, host, service, Some(old.endpoint()));
        }
        self.tell(Kind::Offer, host, service, Some(endpoint));
    }

    /// A departure from another port concerns an offer that was replaced already.
    fn departed(&mut self, datagram: &Datagram) {
        let Datagram { host, service, port, .. } = *datagram;
        if self.remotes.get(&(host, service)).is_some_and(|known| known.port == port || port == 0)
            && let Some(known) = self.remotes.remove(&(host, service))
        {
            self.tell(Kind::Depart, host, service, Some(known.endpoint()));
        }
    }

    /// Updates the addresses of hosts that have moved.
    fn look(&mut self, now: Nanos) {
        if self.look_at.is_none_or(|at| at > now) {
            return;
        }
        let moving = self.remotes.iter().filter_map(|(key, known)| Some((*key, known.port, known.moving?)));
        let (due, later): (Vec<_>, Vec<_>) = moving.partition(|(_, _, (_, at))| *at <= now);
        self.look_at = later.iter().map(|(_, _, (_, at))| *at).min();
        for ((host, service), port, (address, _)) in due {
            self.replace(host, service, Remote { address, port, heard: now, moving: None });
        }
    }
}

impl Machine for Beacon {
    type Socket = Udp;
    type Event = BeaconEvent;
    type Verb = BeaconVerb;
    type Stats = BeaconStats;

    fn handle_message(&mut self, now: Nanos, incoming: Incoming<Udp>) -> Verdict {
        let Incoming { peer, frames, .. } = incoming;
        self.stats.received += 1;
        let datagram = match decode(&frames) {
            Ok(datagram) => datagram,
            Err(error) => {
                self.drop(error.into(), frames, peer);
                return error.into();
            }
        };
        let address = peer.as_deref().and_then(|peer| str::from_utf8(peer).ok()?.parse().ok());
        let address = address.map_or(Ipv4Addr::UNSPECIFIED, |address: SocketAddrV4| *address.ip());
        if !self.state.is_open() || !self.is_heard(&datagram) {
            self.stats.ignored += 1;
            return Verdict::default();
        }
        match datagram.kind {
            Kind::Request => self.requested(now, datagram.host, datagram.service),
            Kind::Offer => {
                if !self.offered(now, address, &datagram) {
                    self.drop(DropKind::TableFull.into(), frames, peer);
                }
            }
            Kind::Depart => self.departed(&datagram),
        }
        Verdict::default()
    }

    fn handle_socket(&mut self, _now: Nanos, _socket: Udp, event: SocketEvent) {
        if event == SocketEvent::Closed {
            self.state = Lifecycle::Closed;
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        if !self.state.is_open() {
            return;
        }
        self.look(now);
        self.ask_again(now);
        let due: Vec<_> = self.answers.iter().filter(|(_, at)| **at <= now).map(|(service, _)| *service).collect();
        for service in due {
            self.answers.remove(&service);
            if let Some(&place) = self.offers.get(&service) {
                self.announce(Kind::Offer, service, place);
            }
        }
    }

    fn handle_verb(&mut self, _now: Nanos, verb: BeaconVerb) {
        if !self.state.is_open() {
            return;
        }
        match verb {
            BeaconVerb::Offer(service, place) => self.offer(service, place),
            BeaconVerb::Request(service) => self.request(service),
            BeaconVerb::Depart(service) => self.depart(service),
        }
    }

    /// Withdraws every offer.
    fn handle_close(&mut self, _now: Nanos, _grace: Duration) {
        if self.state.is_open() {
            for service in Service::ALL {
                self.depart(service);
            }
            self.state = Lifecycle::Closing;
            self.outputs.push_back(Output::Close { socket: Udp, linger: Duration::ZERO });
        }
    }

    fn poll_output(&mut self) -> Option<Output<Udp>> {
        self.outputs.pop_front()
    }

    fn poll_event(&mut self) -> Option<BeaconEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        if !self.state.is_open() {
            return None;
        }
        let asks = self.sought.values().map(|(at, _)| *at);
        self.look_at.into_iter().chain(self.answers.values().copied()).chain(asks).min()
    }

    fn progress(&self) -> u64 {
        self.stats.received
    }

    fn stats(&self) -> BeaconStats {
        BeaconStats { services: self.remotes.len() as u64, ..self.stats.clone() }
    }

    fn is_closed(&self) -> bool {
        self.state.is_closed()
    }
}
