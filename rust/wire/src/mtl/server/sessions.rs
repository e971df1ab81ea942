//! Who has opened a connection, and how far each has come (MTL-06, MTL-11 … MTL-20).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use foldhash::quality::RandomState;

use super::ServerSocket;
use super::settings::User;
use crate::mtl::control::Reply;
use crate::question::Token;
use crate::slab::{Slab, Slot};
use crate::{Frames, Nanos, Pattern};

/// Sessions that are kept; beyond it the one goes that has said nothing for longest.
const SESSIONS: usize = 100_000;

/// Steps of one login (MTL-18).
pub(super) const STEPS: u32 = 16;

/// Logins in a row that fail without a delay.
const FREE: u32 = 5;

/// The first delay; each is twice the one before.
const DELAY: Duration = Duration::from_millis(250);

/// The longest delay.
const LONGEST: Duration = Duration::from_secs(8);

/// After so long without a failure the next one is a first one.
const FORGET: Duration = Duration::from_secs(60);

/// Names, peers and hosts that failures are remembered of.
const REMEMBERED: usize = 10_000;

/// Where a message came from.
pub(super) type Address = (ServerSocket, Bytes);

/// Whom to reply to.
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

/// Who has sent something, beside his address: that anybody can claim once its owner has gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin {
    /// The name the client has proved by its key.
    pub(super) user_id: Option<Bytes>,
    /// The host it is on, where the transport tells.
    pub(super) host: Option<Box<str>>,
}

/// A login under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange {
    pub(super) mechanism: String,
    pub(super) state: Bytes,
    pub(super) steps: u32,
}

/// A session: what a client has said on its control connection.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) address: Address,
    pub(super) origin: Origin,
    pub(super) virtual_host: usize,
    /// Who it is, once it has authenticated.
    pub(super) user: Option<User>,
    /// Who it was when it last had.
    pub(super) before: Option<String>,
    pub(super) rights: Rights,
    pub(super) exchange: Option<Exchange>,
    /// The step of a login that has no answer yet.
    pub(super) asked: Option<Token>,
    /// Whether the reply to a login that failed is delayed.
    pub(super) is_delayed: bool,
    pub(super) profile: Option<usize>,
    /// Leases it has not used.
    pub(super) leases: BTreeSet<String>,
    /// Its data connections.
    pub(super) flows: BTreeSet<Slot>,
    active: Nanos,
}

/// The sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    all: Slab<Session>,
    by_address: HashMap<Address, Slot, RandomState>,
    /// Those without a data connection, by when they last said something.
    idle: BTreeSet<(Nanos, Slot)>,
}

impl Sessions {
    pub(super) fn new() -> Self {
        Self { all: Slab::new(), by_address: HashMap::default(), idle: BTreeSet::new() }
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

    /// The session of this address, of the same key and host; it has said something just now.
    pub(super) fn heard(&mut self, now: Nanos, address: &Address, origin: &Origin) -> Option<Slot> {
        let slot = *self.by_address.get(address)?;
        // Whoever has the address now is not who opened the session.
        if self.all[slot].origin != *origin {
            return None;
        }
        self.touch(now, slot);
        Some(slot)
    }

    /// The session of this address, whoever is there.
    pub(super) fn at(&self, address: &Address) -> Option<Slot> {
        self.by_address.get(address).copied()
    }

    /// Begins a session. Gives the one that is to end for it, if there are too many.
    pub(super) fn open(
        &mut self,
        now: Nanos,
        address: Address,
        origin: Origin,
        virtual_host: usize,
    ) -> (Slot, Option<Slot>) {
        let excess = if self.all.len() >= SESSIONS { self.idle.first().map(|(_, slot)| *slot) } else { None };
        let slot = self.all.insert(Session {
            address: address.clone(),
            origin,
            virtual_host,
            user: None,
            before: None,
            rights: Rights::default(),
            exchange: None,
            asked: None,
            is_delayed: false,
            profile: None,
            leases: BTreeSet::new(),
            flows: BTreeSet::new(),
            active: now,
        });
        self.by_address.insert(address, slot);
        self.idle.insert((now, slot));
        (slot, excess)
    }

    /// Ends a session; what hangs on it is the caller's to end.
    pub(super) fn close(&mut self, slot: Slot) -> Option<Session> {
        let session = self.all.remove(slot)?;
        self.idle.remove(&(session.active, slot));
        if self.by_address.get(&session.address) == Some(&slot) {
            self.by_address.remove(&session.address);
        }
        Some(session)
    }

    /// Has nobody at its address any more: another is there now. What it has goes on until it ends.
    pub(super) fn disown(&mut self, slot: Slot) {
        self.by_address.remove(&self.all[slot].address);
    }

    pub(super) fn touch(&mut self, now: Nanos, slot: Slot) {
        let session = &mut self.all[slot];
        self.idle.remove(&(session.active, slot));
        session.active = now;
        if session.flows.is_empty() {
            self.idle.insert((now, slot));
        }
    }

    pub(super) fn add_flow(&mut self, slot: Slot, flow: Slot) {
        let session = &mut self.all[slot];
        session.flows.insert(flow);
        self.idle.remove(&(session.active, slot));
    }

    pub(super) fn remove_flow(&mut self, now: Nanos, slot: Slot, flow: Slot) {
        let Some(session) = self.all.get_mut(slot) else { return };
        if session.flows.remove(&flow) && session.flows.is_empty() {
            session.active = now;
            self.idle.insert((now, slot));
        }
    }

    /// Who somebody is from now on. Whether it is somebody else than before.
    pub(super) fn welcome(&mut self, slot: Slot, user: User) -> bool {
        let session = &mut self.all[slot];
        let before = session.before.replace(user.name.clone());
        session.rights = Rights::of(&user);
        let is_another = before.is_some_and(|before| before != user.name);
        session.user = Some(user);
        is_another
    }

    /// The sessions of these users, those too that have lost their address to another.
    pub(super) fn of(&self, users: &[String]) -> Vec<Slot> {
        let is_one = |slot: &Slot| self.all[*slot].before.as_ref().is_some_and(|name| users.contains(name));
        self.all.slots().filter(is_one).collect()
    }

    /// The sessions of those who have proved one of these names by a key.
    pub(super) fn proved(&self, names: &HashSet<Bytes>) -> Vec<Slot> {
        let is_one = |slot: &Slot| self.all[*slot].origin.user_id.as_ref().is_some_and(|name| names.contains(name));
        self.all.slots().filter(is_one).collect()
    }

    /// A session that has been silent for so long.
    pub(super) fn expired(&self, now: Nanos, idle: Duration) -> Option<Slot> {
        self.idle.first().filter(|(active, _)| *active + idle <= now).map(|(_, slot)| *slot)
    }

    pub(super) fn poll_timeout(&self, idle: Duration) -> Option<Nanos> {
        self.idle.first().map(|(active, _)| *active + idle)
    }
}

/// Whom a failure counts for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Culprit {
    User(String),
    Peer(Bytes),
    Host(Box<str>),
}

/// How often logins failed, and the replies that wait for it.
#[derive(Debug, Default)]
pub(super) struct Delays {
    failures: HashMap<Culprit, (u32, Nanos), RandomState>,
    oldest: BTreeSet<(Nanos, Culprit)>,
    waiting: BTreeMap<(Nanos, u64), (Asker, Reply)>,
    next: u64,
}

impl Delays {
    /// Counts a failure; how long the reply to it waits.
    pub(super) fn failed(&mut self, now: Nanos, culprits: impl IntoIterator<Item = Culprit>) -> Duration {
        culprits.into_iter().map(|culprit| self.count(now, culprit)).max().unwrap_or_default()
    }

    fn count(&mut self, now: Nanos, culprit: Culprit) -> Duration {
        let (count, last) = self.failures.get(&culprit).copied().unwrap_or_default();
        self.oldest.remove(&(last, culprit.clone()));
        let count = if last + FORGET <= now { 1 } else { count.saturating_add(1) };
        self.failures.insert(culprit.clone(), (count, now));
        self.oldest.insert((now, culprit));
        if self.oldest.len() > REMEMBERED
            && let Some((_, culprit)) = self.oldest.pop_first()
        {
            self.failures.remove(&culprit);
        }
        let doublings = count.saturating_sub(FREE);
        if doublings == 0 { Duration::ZERO } else { (DELAY * (1 << (doublings - 1).min(10))).min(LONGEST) }
    }

    /// Has a reply wait.
    pub(super) fn delay(&mut self, until: Nanos, asker: Asker, reply: Reply) {
        self.waiting.insert((until, self.next), (asker, reply));
        self.next += 1;
    }

    /// A reply that has waited long enough.
    pub(super) fn due(&mut self, now: Nanos) -> Option<(Asker, Reply)> {
        let first = self.waiting.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }

    pub(super) fn poll_timeout(&self) -> Option<Nanos> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }
}
