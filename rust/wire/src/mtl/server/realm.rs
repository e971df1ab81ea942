//! Resources and their contents.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;

use bytes::Bytes;
use foldhash::quality::RandomState;

use super::flows::Terms;
use super::settings::{Bounds, ResourceStats, Routing};
use crate::slab::{Slab, Slot};
use crate::{FRAME_COST, Nanos};

/// The number of a queue, and a position in it.
pub(super) type QueuePosition = (u64, u64);

/// A content of a queue.
#[derive(Clone, Debug)]
pub(super) struct Content {
    /// Its place in the order of its queue.
    pub(super) position: u64,
    /// Its field table.
    pub(super) properties: Bytes,
    pub(super) body: Bytes,
    /// When it was accepted.
    pub(super) since: Nanos,
    pub(super) expires: Option<Nanos>,
    /// How often it was delivered.
    pub(super) attempts: u32,
    pub(super) is_redelivered: bool,
    /// The reader that had it last.
    pub(super) last: Option<Slot>,
}

impl Content {
    /// The memory it takes.
    pub(super) fn cost(&self) -> u64 {
        (self.properties.len() + self.body.len() + 2 * FRAME_COST) as u64
    }
}

/// A resource.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) virtual_host: usize,
    pub(super) profile: usize,
    pub(super) name: String,
    pub(super) routing: Routing,
    /// The readers that summon it: all of a fanout, or those of a queue with room at their last turn.
    pub(super) readers: VecDeque<Slot>,
    /// How many readers summon it.
    pub(super) summons: u64,
    pub(super) queue: Queue,
    /// The user who created it; empty if no login is required.
    pub(super) maker: Option<String>,
    pub(super) stats: ResourceStats,
    /// Whether it is queued for delivery.
    pub(super) is_dirty: bool,
    /// Whether contents were refused since one was last accepted.
    pub(super) is_full: bool,
}

/// The contents of a queue, in their order.
#[derive(Debug)]
pub(super) struct Queue {
    /// Its number in the store.
    pub(super) number: u64,
    pub(super) bounds: Bounds,
    /// Those never delivered; their positions follow all others.
    fresh: VecDeque<Content>,
    /// Those that were returned.
    returned: BTreeMap<u64, Content>,
    next: u64,
    /// How many contents there are, queued or unsettled.
    pub(super) count: u64,
    /// The memory they take.
    pub(super) bytes: u64,
}

impl Queue {
    pub(super) fn new(number: u64, bounds: Bounds) -> Self {
        let (fresh, returned) = (VecDeque::new(), BTreeMap::new());
        Self { number, bounds, fresh, returned, next: 1, count: 0, bytes: 0 }
    }

    /// Whether there is room for one more of this size.
    pub(super) fn has_room(&self, cost: u64) -> bool {
        self.count < self.bounds.max_messages && (self.bytes + cost <= self.bounds.max_bytes || self.count == 0)
    }

    /// A new content for the end of the queue.
    pub(super) fn made(&self, now: Nanos, properties: Bytes, body: Bytes) -> Content {
        let expires = self.bounds.ttl.map(|ttl| now + ttl);
        let position = self.next;
        Content { position, properties, body, since: now, expires, attempts: 0, is_redelivered: false, last: None }
    }

    /// Accepts a content: the next position follows it.
    pub(super) fn admit(&mut self, content: &Content) {
        self.next = self.next.max(content.position + 1);
        self.add(content.cost());
    }

    /// Counts a content.
    fn add(&mut self, cost: u64) {
        self.count += 1;
        self.bytes += cost;
    }

    /// Counts a content no more.
    pub(super) fn sub(&mut self, cost: u64) {
        self.count -= 1;
        self.bytes -= cost;
    }

    /// Puts a content at its position.
    pub(super) fn put(&mut self, content: Content) {
        if content.attempts == 0 && self.fresh.back().is_none_or(|last| last.position < content.position) {
            self.fresh.push_back(content);
        } else {
            self.returned.insert(content.position, content);
        }
    }

    /// The first content.
    pub(super) fn first(&self) -> Option<&Content> {
        match (self.returned.first_key_value(), self.fresh.front()) {
            (Some((position, content)), fresh) if fresh.is_none_or(|fresh| *position < fresh.position) => Some(content),
            (_, fresh) => fresh,
        }
    }

    /// Takes the first content; it stays counted.
    pub(super) fn take(&mut self) -> Option<Content> {
        let position = self.first()?.position;
        self.returned.remove(&position).or_else(|| self.fresh.pop_front())
    }

    /// Takes a queued content for good, if it is there.
    pub(super) fn withdraw(&mut self, position: u64) -> bool {
        let fresh = self.fresh.binary_search_by_key(&position, |content| content.position).ok();
        let found = self.returned.remove(&position).or_else(|| self.fresh.remove(fresh?));
        if let Some(content) = &found {
            self.sub(content.cost());
        }
        found.is_some()
    }

    /// Queued contents that were delivered before.
    pub(super) fn returned(&self) -> impl Iterator<Item = &Content> {
        self.returned.values().filter(|content| content.attempts > 0)
    }

    /// How many contents are queued.
    pub(super) fn waiting(&self) -> u64 {
        (self.fresh.len() + self.returned.len()) as u64
    }
}

/// The resources of one virtual host and profile.
#[derive(Debug, Default)]
struct Group {
    names: BTreeMap<String, Slot>,
    /// Data connections that may write: to any resource, and to named ones.
    any_writers: u64,
    writers: HashMap<String, u64, RandomState>,
}

/// All resources, by virtual host and profile.
#[derive(Debug)]
pub(super) struct Realm {
    all: Slab<Resource>,
    /// In one list: all profiles of the first host, then those of the second, and so on.
    groups: Vec<Group>,
    profiles: usize,
    /// How many queues each user has created, and all users together.
    by_maker: HashMap<String, u64, RandomState>,
    made: u64,
}

impl Realm {
    pub(super) fn new(virtual_hosts: usize, profiles: usize) -> Self {
        let groups = (0..virtual_hosts * profiles).map(|_| Group::default()).collect();
        Self { all: Slab::new(), groups, profiles, by_maker: HashMap::default(), made: 0 }
    }

    fn group(&self, virtual_host: usize, profile: usize) -> &Group {
        &self.groups[virtual_host * self.profiles + profile]
    }

    fn group_mut(&mut self, virtual_host: usize, profile: usize) -> &mut Group {
        &mut self.groups[virtual_host * self.profiles + profile]
    }

    pub(super) fn find(&self, virtual_host: usize, profile: usize, name: &str) -> Option<Slot> {
        self.group(virtual_host, profile).names.get(name).copied()
    }

    /// The only resource, if there is just one.
    pub(super) fn only(&self, virtual_host: usize, profile: usize) -> Option<Slot> {
        let names = &self.group(virtual_host, profile).names;
        names.values().next().copied().filter(|_| names.len() == 1)
    }

    /// The names that follow this one, in order.
    pub(super) fn after(&self, virtual_host: usize, profile: usize, name: &str) -> impl Iterator<Item = &str> {
        let names = &self.group(virtual_host, profile).names;
        names.range::<str, _>((Bound::Excluded(name), Bound::Unbounded)).map(|(name, _)| name.as_str())
    }

    /// Adds a resource; `maker` is the client that created it, if one did.
    pub(super) fn insert(
        &mut self,
        (virtual_host, profile): (usize, usize),
        name: &str,
        routing: Routing,
        queue: Queue,
        maker: Option<String>,
    ) -> Slot {
        if let Some(maker) = &maker {
            *self.by_maker.entry(maker.clone()).or_default() += 1;
            self.made += 1;
        }
        let slot = self.all.insert(Resource {
            virtual_host,
            profile,
            name: name.to_owned(),
            routing,
            readers: VecDeque::new(),
            summons: 0,
            queue,
            maker,
            stats: ResourceStats::default(),
            is_dirty: false,
            is_full: false,
        });
        self.group_mut(virtual_host, profile).names.insert(name.to_owned(), slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Resource> {
        let resource = self.all.remove(slot)?;
        self.group_mut(resource.virtual_host, resource.profile).names.remove(&resource.name);
        if let Some(maker) = &resource.maker {
            self.made -= 1;
            take_one(&mut self.by_maker, maker);
        }
        Some(resource)
    }

    /// How many queues clients have created.
    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// How many queues this user has created.
    pub(super) fn made_by(&self, user: &str) -> u64 {
        self.by_maker.get(user).copied().unwrap_or_default()
    }

    /// Counts a data connection that may write.
    pub(super) fn add_writer(&mut self, terms: &Terms) {
        let group = self.group_mut(terms.virtual_host, terms.profile);
        group.any_writers += u64::from(terms.resources.is_empty());
        for name in &terms.resources {
            *group.writers.entry(name.clone()).or_default() += 1;
        }
    }

    /// Counts a data connection that may write no more.
    pub(super) fn remove_writer(&mut self, terms: &Terms) {
        let group = self.group_mut(terms.virtual_host, terms.profile);
        group.any_writers -= u64::from(terms.resources.is_empty());
        for name in &terms.resources {
            take_one(&mut group.writers, name);
        }
    }

    /// Data connections that may write to a resource.
    pub(super) fn writers(&self, resource: &Resource) -> u64 {
        let group = self.group(resource.virtual_host, resource.profile);
        group.any_writers + group.writers.get(&resource.name).copied().unwrap_or_default()
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Resource> {
        self.all.get(slot)
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Resource> {
        self.all.get_mut(slot)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &Resource)> {
        self.all.slots().map(|slot| (slot, &self.all[slot]))
    }
}

/// Decrements a count; removes it at zero.
fn take_one(counts: &mut HashMap<String, u64, RandomState>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}
