//! Sessions: who has opened a connection, and the progress of each login (MTL-06, MTL-11 … MTL-20).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use bytes::Bytes;
use foldhash::quality::RandomState;

use super::ServerSocket;
use super::settings::{Answer, User};
use crate::question::Token;
use crate::slab::{Slab, Slot};
use crate::{Frames, Nanos, Origin, Pattern};

/// Sessions at most; beyond this the one silent for longest ends.
const SESSIONS: usize = 100_000;

/// Sessions that have never logged in: their number, their total memory, and how long each may be silent.
const STRANGERS: usize = 10_000;
const STRANGER_BYTES: usize = 16 << 20;
const STRANGER_IDLE: Duration = Duration::from_secs(60);

/// The memory a session takes beside its address and the state of its login: an estimate.
const KEEPING: usize = 1024;

/// Steps of one login (MTL-18).
pub(super) const STEPS: u32 = 16;

/// Logins in a row that fail without a delay.
const FREE: u32 = 5;

/// The first delay; each further one is twice as long.
const DELAY: Duration = Duration::from_millis(250);

/// The longest delay.
const LONGEST: Duration = Duration::from_secs(8);

/// After this time without a failure, the count starts again.
const FORGET: Duration = Duration::from_secs(60);

/// Users and peers whose failures are kept.
const REMEMBERED: usize = 10_000;

/// Answers held back per delay, and in all.
const HELD: u32 = 4;
const ALL_HELD: usize = 1024;

/// Where a message came from.
pub(super) type Address = (ServerSocket, Bytes);

/// The client to reply to.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) address: Address,
    /// The frames up to the first empty one (MTL-05).
    pub(super) envelope: Frames,
}

/// What a user may do.
#[derive(Clone, Debug, Default)]
pub(super) struct Rights {
    read: Option<Vec<Pattern>>,
    write: Option<Vec<Pattern>>,
}

impl Rights {
    fn of(user: &User) -> Self {
        let patterns = |texts: &Option<Vec<String>>| {
            let texts = texts.as_ref()?;
            Some(texts.iter().map(|text| Pattern::new(text.as_bytes())).collect())
        };
        Self { read: patterns(&user.read), write: patterns(&user.write) }
    }

    pub(super) fn may_read(&self, resource: &str) -> bool {
        allows(self.read.as_deref(), resource)
    }

    pub(super) fn may_write(&self, resource: &str) -> bool {
        allows(self.write.as_deref(), resource)
    }
}

fn allows(patterns: Option<&[Pattern]>, resource: &str) -> bool {
    patterns.is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(resource.as_bytes())))
}

/// What is known of a client beside its routing id, which any client can claim once its owner is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Caller {
    /// The name the client has proved by its key.
    pub(super) user_id: Option<Bytes>,
    /// Its host, if the transport knows it.
    pub(super) host: Option<Box<str>>,
}

/// A login in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange {
    pub(super) mechanism: String,
    pub(super) state: Bytes,
    pub(super) steps: u32,
}

/// A session: the state of a client's control connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) address: Address,
    pub(super) origin: Caller,
    pub(super) virtual_host: usize,
    /// The user, once logged in.
    pub(super) user: Option<User>,
    /// The user of the last login.
    pub(super) before: Option<String>,
    pub(super) rights: Rights,
    exchange: Option<Exchange>,
    /// The pending step of a login; its answer may be delayed.
    pub(super) asked: Option<Token>,
    pub(super) profile: Option<usize>,
    /// Its unused leases.
    pub(super) leases: BTreeSet<String>,
    /// Its data connections.
    pub(super) flows: BTreeSet<Slot>,
    active: Nanos,
    /// How many bytes it counts for among those that have never logged in.
    weighed: usize,
}

impl Session {
    /// Its user: by its login, else by its key.
    pub(super) fn user(&self) -> Option<Bytes> {
        let name = self.before.as_ref().filter(|name| !name.is_empty());
        name.map(|name| Bytes::copy_from_slice(name.as_bytes())).or_else(|| self.origin.user_id.clone())
    }

    /// The client, for events.
    pub(super) fn client(&self) -> Origin {
        // The port is known only while a message is handled.
        let address = self.origin.host.as_ref().map(|host| format!("tcp://{host}").into());
        Origin { address, ..Origin::new(self.address.1.clone(), self.user()) }
    }
}

/// The sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    all: Slab<Session>,
    by_address: HashMap<Address, Slot, RandomState>,
    /// Those without a data connection, by when they were last active.
    idle: BTreeSet<(Nanos, Slot)>,
    /// Those that have never logged in, likewise, and their memory.
    strangers: BTreeSet<(Nanos, Slot)>,
    stranger_bytes: usize,
}

impl Sessions {
    pub(super) fn new() -> Self {
        Self {
            all: Slab::new(),
            by_address: HashMap::default(),
            idle: BTreeSet::new(),
            strangers: BTreeSet::new(),
            stranger_bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, slot: Slot) -> &Session {
        &self.all[slot]
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> &mut Session {
        &mut self.all[slot]
    }

    /// The session of this address, key and host, which counts as active now.
    pub(super) fn heard(&mut self, now: Nanos, address: &Address, origin: &Caller) -> Option<Slot> {
        let slot = self.of_peer(address, origin)?;
        self.touch(now, slot);
        Some(slot)
    }

    /// The session of this address, key and host: another peer may have the address now.
    pub(super) fn of_peer(&self, address: &Address, origin: &Caller) -> Option<Slot> {
        self.at(address).filter(|slot| self.all[*slot].origin == *origin)
    }

    /// The session of this address, with any key or host.
    pub(super) fn at(&self, address: &Address) -> Option<Slot> {
        self.by_address.get(address).copied()
    }

    /// Begins a session.
    pub(super) fn open(&mut self, now: Nanos, address: Address, origin: Caller, virtual_host: usize) -> Slot {
        let slot = self.all.insert(Session {
            address: address.clone(),
            origin,
            virtual_host,
            user: None,
            before: None,
            rights: Rights::default(),
            exchange: None,
            asked: None,
            profile: None,
            leases: BTreeSet::new(),
            flows: BTreeSet::new(),
            active: now,
            weighed: 0,
        });
        self.by_address.insert(address, slot);
        self.list(slot);
        slot
    }

    /// A session to end for a new one: of all, or of those that have never logged in.
    pub(super) fn excess(&self) -> Option<Slot> {
        let (of_all, of_strangers) = (self.all.len() >= SESSIONS, self.strangers.len() >= STRANGERS);
        let stranger =
            self.strangers.first().filter(|_| of_all || of_strangers || self.stranger_bytes > STRANGER_BYTES);
        stranger.or_else(|| self.idle.first().filter(|_| of_all)).map(|(_, slot)| *slot)
    }

    /// Makes a session end when it is silent, unless a data connection keeps it.
    fn list(&mut self, slot: Slot) {
        let session = &self.all[slot];
        if !session.flows.is_empty() {
            return;
        }
        let at = (session.active, slot);
        if session.before.is_some() {
            self.idle.insert(at)
        } else {
            self.strangers.insert(at)
        };
        self.weigh(slot);
    }

    fn unlist(&mut self, slot: Slot) {
        let at = (self.all[slot].active, slot);
        self.idle.remove(&at);
        self.strangers.remove(&at);
    }

    fn weigh(&mut self, slot: Slot) {
        let session = &mut self.all[slot];
        let state = session.exchange.as_ref().map_or(0, |exchange| exchange.state.len());
        let weight = if session.before.is_none() { KEEPING + session.address.1.len() + state } else { 0 };
        self.stranger_bytes += weight;
        self.stranger_bytes -= std::mem::replace(&mut session.weighed, weight);
    }

    /// Sets the step of a login.
    pub(super) fn set_exchange(&mut self, slot: Slot, exchange: Exchange) {
        self.all[slot].exchange = Some(exchange);
        self.weigh(slot);
    }

    /// Ends a login in progress. Returns its state.
    pub(super) fn take_exchange(&mut self, slot: Slot) -> Option<Exchange> {
        let exchange = self.all[slot].exchange.take();
        self.weigh(slot);
        exchange
    }

    /// Ends a session; the caller ends what depends on it.
    pub(super) fn close(&mut self, slot: Slot) -> Option<Session> {
        self.all.get(slot)?;
        self.unlist(slot);
        let session = self.all.remove(slot)?;
        self.stranger_bytes -= session.weighed;
        if self.by_address.get(&session.address) == Some(&slot) {
            self.by_address.remove(&session.address);
        }
        Some(session)
    }

    /// Detaches a session from its address, which another client has now; its data connections go on.
    pub(super) fn disown(&mut self, slot: Slot) {
        self.by_address.remove(&self.all[slot].address);
    }

    pub(super) fn touch(&mut self, now: Nanos, slot: Slot) {
        self.unlist(slot);
        self.all[slot].active = now;
        self.list(slot);
    }

    pub(super) fn add_flow(&mut self, slot: Slot, flow: Slot) {
        self.unlist(slot);
        self.all[slot].flows.insert(flow);
    }

    pub(super) fn remove_flow(&mut self, now: Nanos, slot: Slot, flow: Slot) {
        let Some(session) = self.all.get_mut(slot) else { return };
        if session.flows.remove(&flow) && session.flows.is_empty() {
            session.active = now;
            self.list(slot);
        }
    }

    /// Logs a user in. Returns whether it is another user than before.
    pub(super) fn welcome(&mut self, slot: Slot, user: User) -> bool {
        self.unlist(slot);
        let session = &mut self.all[slot];
        let before = session.before.replace(user.name.clone());
        session.rights = Rights::of(&user);
        let is_another = before.is_some_and(|before| before != user.name);
        session.user = Some(user);
        self.list(slot);
        is_another
    }

    /// The sessions of these users, detached ones included.
    pub(super) fn of(&self, users: &[String]) -> Vec<Slot> {
        let is_one = |slot: &Slot| self.all[*slot].before.as_ref().is_some_and(|name| users.contains(name));
        self.all.slots().filter(is_one).collect()
    }

    /// The sessions of clients that have proved one of these names by a key.
    pub(super) fn proved(&self, names: &HashSet<Bytes>) -> Vec<Slot> {
        let is_one = |slot: &Slot| self.all[*slot].origin.user_id.as_ref().is_some_and(|name| names.contains(name));
        self.all.slots().filter(is_one).collect()
    }

    /// A session that has been silent for too long.
    pub(super) fn expired(&self, now: Nanos, idle: Duration) -> Option<Slot> {
        let is_late = |at: &&(Nanos, Slot), idle| at.0 + idle <= now;
        let stranger = self.strangers.first().filter(|at| is_late(at, idle.min(STRANGER_IDLE)));
        stranger.or_else(|| self.idle.first().filter(|at| is_late(at, idle))).map(|(_, slot)| *slot)
    }

    pub(super) fn poll_timeout(&self, idle: Duration) -> Option<Nanos> {
        let stranger = self.strangers.first().map(|(active, _)| *active + idle.min(STRANGER_IDLE));
        stranger.into_iter().chain(self.idle.first().map(|(active, _)| *active + idle)).min()
    }
}

/// What a failed login is counted against.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) enum Culprit<'a> {
    /// A user, tried from one host.
    User(&'a str, Option<&'a str>),
    /// A connection.
    Peer(&'a Address, Option<&'a str>),
}

/// Failures of one culprit.
#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    count: u32,
    last: Nanos,
    /// Until when answers are delayed.
    until: Nanos,
    /// How many are.
    held: u32,
}

/// A step of a login whose answer is delayed.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) token: Token,
    pub(super) asker: Asker,
    pub(super) exchange: Exchange,
    pub(super) answer: Answer,
    culprits: Vec<u64>,
}

/// Counts failed logins and delays answers, correct ones too: otherwise a guess without a quick answer would be known
/// to be wrong.
#[derive(Debug, Default)]
pub(super) struct Delays {
    /// By their hashes: names and addresses come from the network.
    failures: HashMap<u64, Failures, RandomState>,
    oldest: BTreeSet<(Nanos, u64)>,
    waiting: BTreeMap<(Nanos, u64), Held>,
    next: u64,
    hasher: RandomState,
}

impl Delays {
    fn key(&self, culprit: &Culprit<'_>) -> u64 {
        self.hasher.hash_one(culprit)
    }

    /// Counts a failure.
    pub(super) fn failed(&mut self, now: Nanos, culprits: &[Culprit<'_>]) {
        for culprit in culprits {
            let key = self.key(culprit);
            self.count(now, key);
        }
    }

    fn count(&mut self, now: Nanos, key: u64) {
        let mut failures = self.failures.get(&key).copied().unwrap_or_default();
        self.oldest.remove(&(failures.last, key));
        failures.count = if failures.last + FORGET <= now { 1 } else { failures.count.saturating_add(1) };
        failures.last = now;
        let doublings = failures.count.saturating_sub(FREE);
        // Once no more answers may be delayed, further failures do not extend the delay.
        if doublings > 0 && failures.held < HELD {
            failures.until = now + (DELAY * (1 << (doublings - 1).min(10))).min(LONGEST);
        }
        self.failures.insert(key, failures);
        self.oldest.insert((now, key));
        if self.oldest.len() > REMEMBERED
            && let Some((_, oldest)) = self.oldest.pop_first()
        {
            self.failures.remove(&oldest);
        }
    }

    /// Until when an answer to these is delayed, if it is.
    pub(super) fn until(&self, now: Nanos, culprits: &[Culprit<'_>]) -> Option<Nanos> {
        let until = culprits.iter().filter_map(|culprit| Some(self.failures.get(&self.key(culprit))?.until));
        until.max().filter(|until| *until > now)
    }

    /// Whether an answer to this one is delayed.
    pub(super) fn holds(&self, culprit: &Culprit<'_>) -> bool {
        self.failures.get(&self.key(culprit)).is_some_and(|failures| failures.held > 0)
    }

    /// Whether one more answer may be delayed.
    pub(super) fn has_room(&self, culprits: &[Culprit<'_>]) -> bool {
        let is_full = |culprit| self.failures.get(&self.key(culprit)).is_some_and(|failures| failures.held >= HELD);
        self.waiting.len() < ALL_HELD && !culprits.iter().any(is_full)
    }

    /// Delays the answer to a step.
    pub(super) fn hold(
        &mut self,
        until: Nanos,
        culprits: &[Culprit<'_>],
        token: Token,
        (asker, exchange, answer): (Asker, Exchange, Answer),
    ) {
        let culprits: Vec<_> = culprits.iter().map(|culprit| self.key(culprit)).collect();
        for key in &culprits {
            if let Some(failures) = self.failures.get_mut(key) {
                failures.held += 1;
            }
        }
        self.waiting.insert((until, self.next), Held { token, asker, exchange, answer, culprits });
        self.next += 1;
    }

    /// An answer whose delay is over.
    pub(super) fn due(&mut self, now: Nanos) -> Option<Held> {
        let held = self.waiting.first_entry().filter(|entry| entry.key().0 <= now)?.remove();
        for key in &held.culprits {
            if let Some(failures) = self.failures.get_mut(key) {
                failures.held = failures.held.saturating_sub(1);
            }
        }
        Some(held)
    }

    pub(super) fn poll_timeout(&self) -> Option<Nanos> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }
}
