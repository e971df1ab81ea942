//! Which worker offers which service, which requests are queued, and which are in progress. Every step takes constant
//! time.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use foldhash::quality::RandomState;

use crate::dcp::list::{Links, List};
use crate::slab::{Slab, Slot};
use crate::{Frames, NAME_BYTES, Nanos, Parcel, SendId, cost};

/// Unused services kept for their counters; names come from the network, so that memory must have a bound.
pub(super) const IDLE_SERVICES: usize = 1000;

/// The overhead of keeping a request: an estimate that also bounds many small ones.
const KEEPING: usize = 256;

#[derive(Debug)]
pub(super) struct Service {
    pub(super) name: Bytes,
    /// Queued requests, in order.
    pub(super) queue: List,
    /// Free workers, in order.
    pub(super) free: List,
    pub(super) workers: usize,
    /// Requests in progress.
    held: usize,
    pub(super) requests: u64,
    pub(super) replies: u64,
    pub(super) expired: u64,
}

impl Service {
    const fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.workers == 0 && self.held == 0
    }
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) address: Bytes,
    /// The name it has proved by its key.
    pub(super) user: Option<Bytes>,
    pub(super) service: Slot,
    is_free: bool,
    /// Requests in progress, in the order they were sent.
    held: List,
    seen: Nanos,
}

#[derive(Debug)]
pub(super) struct Request {
    /// The message, for as long as it may have to be sent (again); shared with the transport.
    frames: Option<Arc<Frames>>,
    /// The name its client has proved by its key.
    user: Option<Bytes>,
    service: Slot,
    /// A digest of the client's address and the metadata.
    key: u64,
    cost: usize,
    /// When it was received.
    since: Nanos,
    due: Nanos,
    with: Option<With>,
}

impl Request {
    /// The message, if it is still kept, and its client's user.
    pub(super) fn into_parts(self) -> (Frames, Option<Bytes>) {
        (self.frames.map(Arc::unwrap_or_clone).unwrap_or_default(), self.user)
    }
}

/// The worker of a request, and whether it was sent there.
#[derive(Debug)]
struct With {
    worker: Slot,
    send: SendId,
    is_sent: bool,
}

/// What became of a worker's requests in progress.
#[derive(Debug, Default)]
pub(super) struct Left {
    pub(super) lost: u64,
    /// The services whose queues have changed.
    pub(super) touched: Vec<Slot>,
}

#[derive(Debug)]
pub(super) struct Board {
    services: Slab<Service>,
    /// The bytes of all names.
    name_bytes: usize,
    by_name: HashMap<Bytes, Slot, RandomState>,
    workers: Slab<Worker>,
    by_address: HashMap<Bytes, Slot, RandomState>,
    digests: RandomState,
    requests: Slab<Request>,
    /// Requests, queued or in progress.
    order: Links,
    /// Queued requests, in the order they expire.
    ages: Links,
    oldest: List,
    /// Free workers.
    idle: Links,
    /// Workers, the one silent for longest first.
    silence: Links,
    silent: List,
    /// The cost of all kept frames.
    cost: usize,
    held: usize,
    serial: u32,
}

impl Board {
    pub(super) fn new() -> Self {
        Self {
            services: Slab::new(),
            name_bytes: 0,
            by_name: HashMap::default(),
            workers: Slab::new(),
            by_address: HashMap::default(),
            digests: RandomState::default(),
            requests: Slab::new(),
            order: Links::new(),
            ages: Links::new(),
            oldest: List::new(),
            idle: Links::new(),
            silence: Links::new(),
            silent: List::new(),
            cost: 0,
            held: 0,
            serial: 0,
        }
    }

    pub(super) fn services(&self) -> impl Iterator<Item = &Service> {
        self.services.iter()
    }

    pub(super) fn worker(&self, address: &Bytes) -> Option<Slot> {
        self.by_address.get(address).copied()
    }

    pub(super) const fn queued(&self) -> usize {
        self.oldest.len()
    }

    /// How many requests are in progress.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// The cost of all kept frames.
    pub(super) const fn cost(&self) -> usize {
        self.cost
    }

    // Services.

    /// Whether a service may have this name: those of all services, which last as long as their workers, have so many
    /// bytes together.
    pub(super) fn has_room_for_name(&self, name: &Bytes, most: usize) -> bool {
        name.len() <= NAME_BYTES || self.by_name.contains_key(name) || self.name_bytes + name.len() <= most
    }

    pub(super) fn service(&mut self, name: &Bytes) -> Slot {
        if let Some(&slot) = self.by_name.get(name) {
            return slot;
        }
        // A copy: the bytes may be part of a larger buffer.
        let name = Bytes::copy_from_slice(name);
        let slot = self.services.insert(Service {
            name: name.clone(),
            queue: List::new(),
            free: List::new(),
            workers: 0,
            held: 0,
            requests: 0,
            replies: 0,
            expired: 0,
        });
        self.name_bytes += name.len();
        self.by_name.insert(name, slot);
        slot
    }

    pub(super) fn service_mut(&mut self, service: Slot) -> &mut Service {
        &mut self.services[service]
    }

    /// Removes an unused service, if there are too many or its counters are not worth keeping.
    pub(super) fn tidy(&mut self, service: Slot) {
        let is_crowded = self.services.len() > IDLE_SERVICES;
        let is_dear = |entry: &Service| is_crowded || entry.requests == 0 || entry.name.len() > NAME_BYTES;
        if self.services.get_mut(service).is_some_and(|entry| entry.is_idle() && is_dear(entry))
            && let Some(gone) = self.services.remove(service)
        {
            self.name_bytes -= gone.name.len();
            self.by_name.remove(&gone.name);
        }
    }

    // Workers.

    /// Registers a worker for a service, not as free yet.
    pub(super) fn register(&mut self, now: Nanos, address: &Bytes, user: Option<&Bytes>, service: Slot) -> Slot {
        self.services[service].workers += 1;
        if let Some(worker) = self.worker(address) {
            self.unfree(worker);
            let before = std::mem::replace(&mut self.workers[worker].service, service);
            self.services[before].workers -= 1;
            self.tidy(before);
            return worker;
        }
        // Copies: both may be part of a larger buffer.
        let address = Bytes::copy_from_slice(address);
        let worker = self.workers.insert(Worker {
            address: address.clone(),
            user: user.map(|user| Bytes::copy_from_slice(user)),
            service,
            is_free: false,
            held: List::new(),
            seen: now,
        });
        self.by_address.insert(address, worker);
        self.silence.push_back(&mut self.silent, worker);
        worker
    }

    /// The name that a worker has proved by its key.
    pub(super) fn user(&self, worker: Slot) -> Option<&Bytes> {
        self.workers[worker].user.as_ref()
    }

    /// Records that a worker has sent something.
    pub(super) fn hear(&mut self, now: Nanos, worker: Slot) {
        self.workers[worker].seen = now;
        self.silence.remove(&mut self.silent, worker);
        self.silence.push_back(&mut self.silent, worker);
    }

    /// The worker silent for longest, and when it last sent something.
    pub(super) fn most_silent(&self) -> Option<(Slot, Nanos)> {
        self.silent.first().map(|worker| (worker, self.workers[worker].seen))
    }

    /// Makes a worker free, unless it is already or has as many requests as it may. Returns its service if so.
    pub(super) fn free(&mut self, worker: Slot, max_held: usize) -> Option<Slot> {
        let entry = &mut self.workers[worker];
        if entry.is_free || entry.held.len() >= max_held {
            return None;
        }
        entry.is_free = true;
        let service = entry.service;
        self.idle.push_back(&mut self.services[service].free, worker);
        Some(service)
    }

    pub(super) fn service_of(&self, worker: Slot) -> Slot {
        self.workers[worker].service
    }

    pub(super) fn has_held(&self, worker: Slot) -> bool {
        !self.workers[worker].held.is_empty()
    }

    fn unfree(&mut self, worker: Slot) {
        let entry = &mut self.workers[worker];
        if entry.is_free {
            entry.is_free = false;
            self.idle.remove(&mut self.services[entry.service].free, worker);
        }
    }

    /// Takes all requests from a worker. `returns` decides, by whether a request was sent, if it goes back to the front
    /// of its queue; otherwise it is lost.
    pub(super) fn relieve(&mut self, due: Nanos, worker: Slot, returns: impl Fn(bool) -> bool) -> Left {
        let mut left = Left::default();
        // From the last to the first, so that the oldest ends up in front.
        while let Some(request) = self.workers[worker].held.last() {
            let is_sent = self.requests[request].with.as_ref().is_some_and(|with| with.is_sent);
            let service = self.requests[request].service;
            if returns(is_sent) {
                self.give_back(due, request);
            } else {
                self.end(request);
                left.lost += 1;
            }
            left.touched.push(service);
        }
        left.touched.push(self.workers[worker].service);
        left.touched.sort_unstable();
        left.touched.dedup();
        left
    }

    /// Removes a worker, and takes its requests as `relieve` does.
    pub(super) fn forget(&mut self, due: Nanos, worker: Slot, returns: impl Fn(bool) -> bool) -> (Worker, Left) {
        self.unfree(worker);
        let left = self.relieve(due, worker, returns);
        self.silence.remove(&mut self.silent, worker);
        let gone = self.workers.remove(worker).expect("a worker in use");
        self.by_address.remove(&gone.address);
        self.services[gone.service].workers -= 1;
        (gone, left)
    }

    // Requests.

    /// A digest of a client's address, its delimiter and the metadata, which a request and its reply share.
    pub(super) fn digest(&self, frames: &[Bytes]) -> u64 {
        self.digests.hash_one(frames)
    }

    /// What keeping these frames costs.
    pub(super) fn cost_of(frames: &Frames) -> usize {
        cost(frames) + KEEPING
    }

    /// Adds a request of this cost, valid from its arrival until it expires; it is neither queued nor assigned yet.
    pub(super) fn add(
        &mut self,
        life: Range<Nanos>,
        service: Slot,
        frames: Frames,
        user: Option<Bytes>,
        cost: usize,
        key: u64,
    ) -> Slot {
        self.cost += cost;
        let (frames, since, due) = (Some(Arc::new(frames)), life.start, life.end);
        self.requests.insert(Request { frames, user, service, key, cost, since, due, with: None })
    }

    pub(super) fn queue(&mut self, request: Slot) {
        let service = self.requests[request].service;
        self.order.push_back(&mut self.services[service].queue, request);
        self.ages.push_back(&mut self.oldest, request);
    }

    /// The request that expires first, and when.
    pub(super) fn oldest(&self) -> Option<(Slot, Nanos)> {
        self.oldest.first().map(|request| (request, self.requests[request].due))
    }

    pub(super) fn request_service(&self, request: Slot) -> Slot {
        self.requests[request].service
    }

    pub(super) fn is_due(&self, now: Nanos, request: Slot) -> bool {
        self.requests[request].due <= now
    }

    fn unqueue(&mut self, request: Slot) {
        self.order.remove(&mut self.services[self.requests[request].service].queue, request);
        self.ages.remove(&mut self.oldest, request);
    }

    /// Removes a queued request.
    pub(super) fn drop_queued(&mut self, request: Slot) -> Request {
        self.unqueue(request);
        let gone = self.requests.remove(request).expect("a request in use");
        self.cost -= gone.cost;
        gone
    }

    /// Assigns the first queued request to a free worker.
    pub(super) fn give_queued(&mut self, request: Slot, worker: Slot) -> SendId {
        self.unqueue(request);
        self.give(request, worker)
    }

    /// Assigns a request to a free worker.
    pub(super) fn give(&mut self, request: Slot, worker: Slot) -> SendId {
        self.unfree(worker);
        self.serial = self.serial.wrapping_add(1) & (u32::MAX >> 1);
        let send = SendId(u64::from(self.serial) << 32 | u64::from(request));
        let entry = &mut self.requests[request];
        entry.with = Some(With { worker, send, is_sent: false });
        self.services[entry.service].held += 1;
        self.order.push_back(&mut self.workers[worker].held, request);
        self.held += 1;
        send
    }

    pub(super) fn address(&self, worker: Slot) -> &Bytes {
        &self.workers[worker].address
    }

    /// The message to send.
    pub(super) fn parcel(&self, request: Slot) -> Parcel {
        let frames = self.requests[request].frames.clone();
        frames.map_or_else(Parcel::default, |frames| Parcel::Shared(frames, 0))
    }

    /// The message, to be changed before it is sent.
    pub(super) fn frames_mut(&mut self, request: Slot) -> Option<&mut Frames> {
        self.requests[request].frames.as_mut().map(Arc::make_mut)
    }

    /// The request of a send that is still with a worker, and the worker.
    pub(super) fn sending(&self, send: SendId) -> Option<(Slot, Slot)> {
        let request = Slot::try_from(send.0 & u64::from(u32::MAX)).ok()?;
        let with = self.requests.get(request)?.with.as_ref()?;
        (with.send == send).then_some((request, with.worker))
    }

    /// Records that the transport took a request; its frames are dropped unless `keep`.
    pub(super) fn sent(&mut self, request: Slot, keep: bool) {
        let entry = &mut self.requests[request];
        if let Some(with) = &mut entry.with {
            with.is_sent = true;
        }
        if !keep {
            entry.frames = None;
            self.cost -= std::mem::take(&mut entry.cost);
        }
    }

    /// Returns a worker's request to the front of its queue.
    pub(super) fn give_back(&mut self, due: Nanos, request: Slot) {
        self.take(request);
        let entry = &mut self.requests[request];
        entry.due = due;
        self.order.push_front(&mut self.services[entry.service].queue, request);
        self.ages.push_back(&mut self.oldest, request);
    }

    /// Ends a worker's oldest request with this digest. Returns its service, and when it was received.
    pub(super) fn finish(&mut self, worker: Slot, key: u64) -> Option<(Slot, Nanos)> {
        let held = std::iter::successors(self.workers[worker].held.first(), |request| self.order.after(*request));
        let request = held.into_iter().find(|request| self.requests[*request].key == key)?;
        let since = self.requests[request].since;
        Some((self.end(request), since))
    }

    /// Takes a request from its worker.
    fn take(&mut self, request: Slot) {
        let entry = &mut self.requests[request];
        if let Some(With { worker, .. }) = entry.with.take() {
            self.order.remove(&mut self.workers[worker].held, request);
            self.services[entry.service].held -= 1;
            self.held -= 1;
        }
    }

    fn end(&mut self, request: Slot) -> Slot {
        self.take(request);
        let gone = self.requests.remove(request).expect("a request in use");
        self.cost -= gone.cost;
        gone.service
    }
}
