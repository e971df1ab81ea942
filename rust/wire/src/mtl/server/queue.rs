//! What becomes of contents of queues, and the commands for queues.

use std::ops::Bound;
use std::time::Duration;

use serde_json::{Value, json};

use super::control::{Asked, Outcome, object, ok, resource_name, says, text};
use super::data::{Unanswered, Unstored};
use super::flows::{Flow, Unsettled};
use super::realm::{Content, Queue, QueuePosition};
use super::sessions::Rights;
use super::settings::{Bounds, Routing, ServerEvent};
use super::store::Op;
use super::{Kept, Server};
use crate::mtl::control::{Json, Reply};
use crate::mtl::{REDELIVERED, data, table};
use crate::slab::Slot;
use crate::{DropKind, Nanos};

/// The commands of the class, in lower case.
pub(super) const COMMANDS: [&str; 5] = ["queue.create", "queue.delete", "queue.purge", "queue.info", "queue.list"];

/// Names of queues in one reply at most, and their bytes.
const LISTED: usize = 1000;
const LISTED_BYTES: usize = 64 << 10;

/// The default suffix of a dead-letter queue.
const DEAD: &str = ".dead";

impl Server {
    /// Adds a resource to those with contents to deliver.
    pub(super) fn stir(&mut self, slot: Slot) {
        if let Some(resource) = self.realm.get_mut(slot)
            && !std::mem::replace(&mut resource.is_dirty, true)
        {
            self.dirty.push_back(slot);
        }
    }

    /// Puts a content into its queue.
    pub(super) fn settle_in(&mut self, slot: Slot, content: Content) {
        let Some(resource) = self.realm.get_mut(slot) else { return };
        resource.queue.put(content);
        self.watch(slot);
        self.stir(slot);
    }

    /// Schedules a check of a queue for when its first content expires.
    fn watch(&mut self, slot: Slot) {
        let first = self.realm.get(slot).and_then(|resource| resource.queue.first());
        let Some(at) = first.and_then(|content| content.expires) else { return };
        let armed = self.expiring.get(&slot).copied();
        if armed.is_none_or(|armed| at < armed) {
            self.expiring.insert(slot, at);
            self.expiries.extend([(at, slot)]);
            if let Some(armed) = armed {
                self.expiries.remove(&(armed, slot));
            }
        }
    }

    /// Drops expired contents.
    pub(super) fn expire(&mut self, now: Nanos) {
        while let Some(&(at, slot)) = self.expiries.first()
            && at <= now
        {
            self.expiries.pop_first();
            self.expiring.remove(&slot);
            while self.drop_expired(now, slot) {}
            self.watch(slot);
        }
    }

    /// Drops the first content if it has expired.
    fn drop_expired(&mut self, now: Nanos, slot: Slot) -> bool {
        let Some(resource) = self.realm.get_mut(slot) else { return false };
        if resource.queue.first().and_then(|content| content.expires).is_none_or(|expires| expires > now) {
            return false;
        }
        let Some(content) = resource.queue.take() else { return false };
        resource.stats.expired += 1;
        let is_first = resource.stats.expired == 1;
        self.settle_out(slot, &content);
        self.lose(DropKind::QueueExpired, None, is_first);
        true
    }

    /// A content was delivered, and is removed for good.
    pub(super) fn arrive(&mut self, slot: Slot, content: &Content) {
        self.stats.latency.add(self.now - content.since);
        self.settle_out(slot, content);
    }

    /// A content is removed for good.
    pub(super) fn settle_out(&mut self, slot: Slot, content: &Content) {
        let Some(place) = self.remove(slot, content) else { return };
        self.answer(place, true);
    }

    /// Removes a content from its queue and the store. Returns its place.
    fn remove(&mut self, slot: Slot, content: &Content) -> Option<QueuePosition> {
        let resource = self.realm.get_mut(slot)?;
        resource.queue.sub(content.cost());
        let place = (resource.queue.number, content.position);
        self.journal.insist(Op::Remove { queue: place.0, position: place.1 });
        Some(place)
    }

    /// Returns a content to its position, unless it was recycled too often.
    pub(super) fn give_back(&mut self, reader: Slot, unsettled: Unsettled) {
        let Unsettled { resource, mut content } = unsettled;
        if content.attempts > self.settings.max_recycle {
            let name = self.realm.get(resource).map(|found| found.name.clone());
            if !self.bury(resource, &content) {
                self.events.extend(name.map(ServerEvent::GivenUp));
            }
            return;
        }
        let Some(found) = self.realm.get_mut(resource) else { return };
        let place = (found.queue.number, content.position);
        if self.unanswered.get(&place).is_some_and(|unanswered| unanswered.state == Unstored::Failed) {
            found.queue.sub(content.cost());
            return self.answer(place, false);
        }
        content.is_redelivered = true;
        content.last = Some(reader);
        self.settle_in(resource, content);
    }

    /// Makes a content a dead letter. Returns whether there is a queue with room for it.
    pub(super) fn bury(&mut self, slot: Slot, content: &Content) -> bool {
        let Some(resource) = self.realm.get_mut(slot) else { return false };
        resource.stats.dead_lettered += 1;
        let own = || format!("{}{DEAD}", resource.name);
        let name = resource.queue.bounds.dead_letter.clone().unwrap_or_else(own);
        let (virtual_host, profile) = (resource.virtual_host, resource.profile);
        let target = self.realm.find(virtual_host, profile, &name).filter(|target| *target != slot);
        let is_moved = target.is_some_and(|target| self.move_to(target, content));
        let Some(place) = self.remove(slot, content) else { return is_moved };
        match self.unanswered.get_mut(&place) {
            // It is safe in either place: the changes are stored in order.
            Some(unanswered) if is_moved && unanswered.state == Unstored::Storing => {
                unanswered.state = Unstored::Buried;
            }
            Some(unanswered) => {
                let is_safe = unanswered.state == Unstored::Storing;
                self.answer(place, is_safe);
            }
            None => {}
        }
        is_moved
    }

    /// Moves a content to another queue. Returns whether that has room.
    fn move_to(&mut self, target: Slot, content: &Content) -> bool {
        let now = self.now;
        let Some(found) = self.realm.get_mut(target) else { return false };
        let queue = &mut found.queue;
        let moved = queue.made(now, content.properties.clone(), content.body.clone());
        if !queue.has_room(moved.cost()) {
            let is_first = !std::mem::replace(&mut found.is_full, true);
            self.lose(DropKind::DeadLetterFull, None, is_first);
            return false;
        }
        queue.admit(&moved);
        found.stats.taken += 1;
        let number = queue.number;
        let op = self.put(number, &moved);
        self.journal.insist(op);
        self.settle_in(target, moved);
        true
    }

    /// How a content that was never delivered is stored.
    pub(super) fn put(&self, queue: u64, content: &Content) -> Op {
        Op::Put {
            queue,
            position: content.position,
            attempts: 0,
            expires_at_ms: content.expires.map(|at| self.wall(at)),
            properties: content.properties.clone(),
            body: content.body.clone(),
        }
    }

    /// Stores how often contents were delivered, for the next start.
    pub(super) fn keep_attempts(&mut self) {
        let unsettled = self.flows.iter().flat_map(|flow| flow.unsettled.values());
        let unsettled = unsettled.map(|unsettled| (unsettled.resource, &unsettled.content));
        let returned =
            self.realm.iter().flat_map(|(slot, resource)| resource.queue.returned().map(move |it| (slot, it)));
        let ops: Vec<_> = unsettled
            .chain(returned)
            .filter_map(|(slot, content)| {
                let queue = self.realm.get(slot)?.queue.number;
                Some(Op::Attempts { queue, position: content.position, attempts: content.attempts })
            })
            .collect();
        for op in ops {
            self.journal.insist(op);
        }
    }

    /// A reader may have room again.
    pub(super) fn wake(&mut self, reader: Slot) {
        let Some(flow) = self.flows.get_mut(reader) else { return };
        if flow.has_room() && !flow.passed.is_empty() && !std::mem::replace(&mut flow.is_woken, true) {
            self.to_wake.push_back(reader);
        }
    }

    /// Lets a reader rejoin the rotation of as many resources as it has room for.
    fn rejoin(&mut self, reader: Slot) {
        let Some(flow) = self.flows.get_mut(reader) else { return };
        flow.is_woken = false;
        // Starts after the resource it was served last.
        let beyond = flow.passed.range((Bound::Excluded(flow.turn), Bound::Unbounded));
        let turns: Vec<_> = beyond.chain(flow.passed.range(..=flow.turn)).take(flow.room()).copied().collect();
        let mut is_next = true;
        for slot in turns {
            flow.passed.remove(&slot);
            let Some(resource) = self.realm.get_mut(slot) else { continue };
            resource.readers.push_back(reader);
            let is_dirty = std::mem::replace(&mut resource.is_dirty, true);
            if is_next && resource.queue.first().is_some() {
                // It goes first: the reader may have room for only one content.
                is_next = false;
                if is_dirty {
                    self.dirty.retain(|dirty| *dirty != slot);
                }
                self.dirty.push_front(slot);
            } else if !is_dirty {
                self.dirty.push_back(slot);
            }
        }
    }

    /// Delivers contents to the readers with room, one resource after the other.
    pub(super) fn hand_out(&mut self) {
        let mut woken = vec![];
        loop {
            while let Some(reader) = self.to_wake.pop_front() {
                self.rejoin(reader);
                woken.push(reader);
            }
            if let Some(slot) = self.dirty.pop_front() {
                if let Some(resource) = self.realm.get_mut(slot) {
                    resource.is_dirty = false;
                }
                if self.hand_out_one(slot) {
                    self.stir(slot);
                }
                continue;
            }
            // A reader that lost its turn to others may have room for its other resources.
            for reader in woken.drain(..) {
                self.wake(reader);
            }
            if self.to_wake.is_empty() {
                return;
            }
        }
    }

    fn hand_out_one(&mut self, slot: Slot) -> bool {
        while self.drop_expired(self.now, slot) {}
        let Some(resource) = self.realm.get_mut(slot) else { return false };
        if resource.routing == Routing::Fanout {
            return false;
        }
        let Some(first) = resource.queue.first() else { return false };
        if self.journal.is_behind() && self.unanswered.contains_key(&(resource.queue.number, first.position)) {
            self.behind.push(slot);
            return false;
        }
        let last = first.last;
        let mut passed = None;
        let reader = loop {
            let Some(reader) = resource.readers.pop_front() else { break passed };
            let Some(flow) = self.flows.get_mut(reader) else { continue };
            if !flow.has_room() {
                flow.passed.insert(slot);
            } else if last == Some(reader) && passed.is_none() {
                // The reader that returned it gets it again only if there is no other.
                passed = Some(reader);
            } else {
                break Some(reader);
            }
        };
        let Some(reader) = reader else { return false };
        resource.readers.extend(passed.filter(|passed| *passed != reader));
        let Some(mut content) = resource.queue.take() else { return false };
        let Some(flow) = self.flows.get_mut(reader) else { return false };
        content.attempts += 1;
        flow.last += 1;
        flow.turn = slot;
        flow.taken += 1;
        let sequence = flow.last;
        let marked;
        let properties = if content.is_redelivered {
            resource.stats.redelivered += 1;
            marked = table::with_flag(&content.properties, REDELIVERED);
            &marked
        } else {
            &content.properties
        };
        let frames = data::content(sequence, &resource.name, properties, content.body.clone());
        flow.unsettled.insert(sequence, Unsettled { resource: slot, content });
        self.flows.deliver(reader, sequence, slot, frames.into());
        let has_room = self.flows.get(reader).is_some_and(Flow::has_room);
        if has_room {
            resource.readers.push_back(reader);
        } else if let Some(flow) = self.flows.get_mut(reader) {
            flow.passed.insert(slot);
        }
        true
    }

    pub(super) fn on_queue_command(&mut self, asked: &Asked<'_>, profile: usize, name: &str) -> Result<Outcome, Reply> {
        let body = &asked.command.body;
        let session = self.sessions.get(asked.session);
        let virtual_host = session.virtual_host;
        let rights = session.rights.clone();
        if name == "queue.list" {
            return self.list(virtual_host, profile, &rights, body).map(Some);
        }
        if !COMMANDS.contains(&name) {
            return Err(says(501, "Not implemented"));
        }
        let queue = resource_name(text(body, "name")?)?;
        let may = rights.may_write(queue) || name == "queue.info" && rights.may_read(queue);
        if !may {
            return Err(says(403, "you may not do that with this queue"));
        }
        let found = self.realm.find(virtual_host, profile, queue);
        if name == "queue.create" {
            let bounds = bounds(body, &self.settings.bounds)?;
            within(&bounds, &self.settings.bounds)?;
            // Dead letters are written with the rights of the queue's creator.
            if bounds.dead_letter.as_ref().is_some_and(|name| !rights.may_write(name)) {
                return Err(says(403, "you may not write to the resource of its dead letters"));
            }
            return match found.and_then(|slot| self.realm.get(slot)) {
                Some(there) if there.queue.bounds == bounds => Ok(Some(ok())),
                Some(_) => Err(says(400, "there is such a queue with other bounds")),
                None => self.create(asked, profile, queue, bounds),
            };
        }
        let slot = found.ok_or_else(|| says(404, "there is no such queue"))?;
        match name {
            "queue.delete" => Ok(self.delete(asked, slot)),
            "queue.purge" => Ok(self.purge(asked, slot)),
            _ => Ok(Some(self.info(slot))),
        }
    }

    /// The names of queues, in order; as many as a reply holds.
    fn list(&self, virtual_host: usize, profile: usize, rights: &Rights, body: &Json) -> Result<Reply, Reply> {
        let after = body.get("after").map_or(Ok(""), |_| text(body, "after"))?;
        let limit =
            positive(body, "limit")?.map_or(LISTED, |limit| usize::try_from(limit).unwrap_or(LISTED).min(LISTED));
        let is_seen = |name: &&str| rights.may_read(name) || rights.may_write(name);
        let mut names = self.realm.after(virtual_host, profile, after).filter(is_seen).peekable();
        let (mut queues, mut bytes) = (vec![], 0);
        while let Some(name) = names.next_if(|name| queues.len() < limit && bytes + name.len() <= LISTED_BYTES) {
            bytes += name.len();
            queues.push(name);
        }
        let mut body = object(json!({ "status": "OK", "queues": queues }));
        if names.peek().is_some() {
            body.insert("more".to_owned(), true.into());
        }
        Ok(Reply { status: 200, body })
    }

    fn create(&mut self, asked: &Asked<'_>, profile: usize, name: &str, bounds: Bounds) -> Result<Outcome, Reply> {
        let session = self.sessions.get(asked.session);
        let (scope, maker) = ((session.virtual_host, profile), session.before.clone().unwrap_or_default());
        let (of_all, of_one) = (self.settings.max_queues, self.settings.max_user_queues);
        let too_many = if self.realm.made() >= of_all {
            Some(format!("there may be {of_all} queues, and there are"))
        } else if !maker.is_empty() && self.realm.made_by(&maker) >= of_one {
            Some(format!("a user may have {of_one} queues, and you have"))
        } else {
            None
        };
        if let Some(text) = too_many {
            *self.stats.dropped.entry(DropKind::TooManyQueues.slug()).or_default() += 1;
            return Err(says(429, &text));
        }
        let slot = self.add_queue(scope, name, bounds, Some(maker));
        if !self.journal.is_on() {
            return Ok(Some(ok()));
        }
        if let Some((queue, op)) = self.definition(slot) {
            self.journal.put(op, Kept::Created { asker: asked.asker.clone(), resource: slot, queue });
        }
        Ok(None)
    }

    /// Adds a queue with a new number.
    pub(super) fn add_queue(
        &mut self,
        scope: (usize, usize),
        name: &str,
        bounds: Bounds,
        maker: Option<String>,
    ) -> Slot {
        let number = self.next_queue;
        self.next_queue += 1;
        self.realm.insert(scope, name, Routing::Queue, Queue::new(number, bounds), maker)
    }

    /// The number of a queue, and its definition in the store.
    pub(super) fn definition(&self, slot: Slot) -> Option<(u64, Op)> {
        let resource = self.realm.get(slot)?;
        let queue = &resource.queue;
        let mut description = object(json!({
            "virtual-host": self.settings.virtual_hosts[resource.virtual_host],
            "profile": self.settings.profiles[resource.profile].name,
            "name": resource.name,
        }));
        description.extend(resource.maker.clone().map(|maker| ("maker".to_owned(), maker.into())));
        description.extend(said_bounds(&queue.bounds));
        let description = serde_json::to_vec(&description).expect("text and numbers can be written");
        Some((queue.number, Op::Define { queue: queue.number, description }))
    }

    fn delete(&mut self, asked: &Asked<'_>, slot: Slot) -> Outcome {
        let queue = self.remove_queue(slot)?;
        if !self.journal.is_on() {
            return Some(ok());
        }
        self.journal.insist(Op::Delete { queue });
        self.journal.wait(Kept::Gone(asked.asker.clone(), ok()));
        None
    }

    /// Removes a queue with all its contents, unsettled ones too. Returns its number.
    pub(super) fn remove_queue(&mut self, slot: Slot) -> Option<u64> {
        let resource = self.realm.remove(slot)?;
        if let Some(at) = self.expiring.remove(&slot) {
            self.expiries.remove(&(at, slot));
        }
        for reader in self.flows.slots() {
            self.flows.forget(reader, slot);
            if let Some(flow) = self.flows.get_mut(reader) {
                flow.summoned.remove(&slot);
                flow.passed.remove(&slot);
                let before = flow.unsettled.len();
                flow.unsettled.retain(|_, unsettled| unsettled.resource != slot);
                flow.taken = flow.taken.saturating_sub(before - flow.unsettled.len());
                self.wake(reader);
            }
        }
        let number = resource.queue.number;
        // Unsettled contents are no longer pending.
        let is_failed = |(place, unanswered): (&QueuePosition, &Unanswered)| {
            (place.0 == number && unanswered.state == Unstored::Failed).then_some(*place)
        };
        let mut failed: Vec<_> = self.unanswered.iter().filter_map(is_failed).collect();
        failed.sort_unstable();
        for place in failed {
            self.answer(place, false);
        }
        Some(number)
    }

    fn purge(&mut self, asked: &Asked<'_>, slot: Slot) -> Outcome {
        let waiting = self.realm.get(slot).map_or(0, |resource| resource.queue.waiting());
        for _ in 0..waiting {
            let Some(content) = self.realm.get_mut(slot).and_then(|resource| resource.queue.take()) else { break };
            self.settle_out(slot, &content);
        }
        let reply = Reply { status: 200, body: object(json!({ "status": "OK", "purged": waiting })) };
        if !self.journal.is_on() || waiting == 0 {
            return Some(reply);
        }
        self.journal.wait(Kept::Gone(asked.asker.clone(), reply));
        None
    }

    fn info(&self, slot: Slot) -> Reply {
        let Some(resource) = self.realm.get(slot) else { return says(404, "there is no such queue") };
        let queue = &resource.queue;
        let waiting = queue.waiting();
        let mut body = object(json!({
            "status": "OK",
            "name": resource.name,
            "messages": waiting,
            "bytes": queue.bytes,
            "unconfirmed": queue.count - waiting,
            "readers": resource.summons,
            "writers": self.realm.writers(resource),
        }));
        body.extend(said_bounds(&queue.bounds));
        Reply { status: 200, body }
    }
}

fn said_bounds(bounds: &Bounds) -> Json {
    let ttl = bounds.ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
    object(json!({
        "max-messages": bounds.max_messages,
        "max-bytes": bounds.max_bytes,
        "ttl-ms": ttl,
        "dead-letter": bounds.dead_letter,
    }))
}

/// The bounds in a command, with the server's for those left out.
pub(super) fn bounds(body: &Json, ours: &Bounds) -> Result<Bounds, Reply> {
    let dead_letter = match body.get("dead-letter") {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) => Some(resource_name(name)?.to_owned()),
        Some(_) => return Err(says(400, "\"dead-letter\" is no string")),
    };
    Ok(Bounds {
        max_messages: positive(body, "max-messages")?.unwrap_or(ours.max_messages),
        max_bytes: positive(body, "max-bytes")?.unwrap_or(ours.max_bytes),
        ttl: positive(body, "ttl-ms")?.map(Duration::from_millis).or(ours.ttl),
        dead_letter,
    })
}

/// A positive number, if the member exists.
fn positive(body: &Json, name: &str) -> Result<Option<u64>, Reply> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().filter(|number| *number > 0) {
            Some(number) => Ok(Some(number)),
            None => Err(says(400, &format!("{name:?} is no number from 1"))),
        },
    }
}

/// Refuses bounds beyond those of the server.
fn within(bounds: &Bounds, ours: &Bounds) -> Result<(), Reply> {
    let ttl = |bounds: &Bounds| bounds.ttl.map_or(u64::MAX, |ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
    let rows = [
        ("max-messages", bounds.max_messages, ours.max_messages),
        ("max-bytes", bounds.max_bytes, ours.max_bytes),
        ("ttl-ms", ttl(bounds), ttl(ours)),
    ];
    match rows.into_iter().find(|(_, asked, most)| asked > most) {
        Some((name, _, most)) => Err(says(400, &format!("{name:?} is {most} at most on this server"))),
        None => Ok(()),
    }
}
