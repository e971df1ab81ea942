//! The data flow: leases, summons, contents, and their confirmations and rejections (MTL-30 … MTL-58).

use std::sync::Arc;

use bytes::Bytes;

use super::flows::Terms;
use super::realm::QueuePosition;
use super::sessions::Address;
use super::settings::{LeaseEnd, Routing, ServerEvent};
use super::{REPLY, Server};
use crate::mtl::data::{self, Kind, Layout};
use crate::mtl::heartbeat::Heartbeat;
use crate::slab::Slot;
use crate::{DropKind, Frames, Nanos, Origin, Output, Parcel};

/// The writer to answer once a content is safe: stored, or settled by a reader.
#[derive(Debug)]
pub(super) struct Unanswered {
    resource: Slot,
    writer: Slot,
    address: Address,
    sequence: u64,
    /// Where the content is that is neither stored nor settled.
    pub(super) state: Unstored,
}

/// Where an unstored content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unstored {
    /// In its queue or with a reader, and being stored.
    Storing,
    /// With a reader that received it before it could not be stored.
    Failed,
    /// Among the dead letters, under another position.
    Buried,
}

impl Server {
    /// Handles a valid message of the data flow, from a connection with or without a lease.
    pub(super) fn on_data(
        &mut self,
        now: Nanos,
        (address, flow): (&Address, Option<Slot>),
        user_id: Option<&Bytes>,
        frames: &Frames,
        layout: &Layout,
    ) {
        let name = || std::str::from_utf8(&frames[0][layout.name.clone()]).unwrap_or_default();
        let sequence = layout.sequence;
        let Some(flow) = flow else {
            match layout.kind {
                Kind::Lease => self.redeem(now, address, user_id, sequence, name()),
                Kind::Ping => {
                    self.send(address, data::pong());
                    if self.flows.take_gone(address) {
                        self.send(address, data::response(0, 403));
                    }
                }
                Kind::Summon | Kind::Dismiss | Kind::Content => self.send(address, data::response(sequence, 403)),
                Kind::Response | Kind::Confirm | Kind::Reject | Kind::Pong => {}
            }
            return;
        };
        match layout.kind {
            Kind::Lease => self.flows.send(flow, data::response(sequence, 403)),
            Kind::Summon => {
                let status = if self.summon(flow, name()) { 200 } else { 400 };
                self.flows.send(flow, data::response(sequence, status));
            }
            Kind::Dismiss => {
                let status = if self.dismiss(flow, name()) { 200 } else { 400 };
                self.flows.send(flow, data::response(sequence, status));
            }
            Kind::Content => self.on_content(now, flow, frames, layout),
            Kind::Confirm => self.on_confirm(flow, layout),
            Kind::Reject => self.on_reject(flow, layout),
            Kind::Ping => self.flows.send(flow, data::pong()),
            Kind::Response | Kind::Pong => {}
        }
    }

    /// Sends to a connection that has no lease.
    pub(super) fn send(&mut self, (socket, to): &Address, frames: Frames) {
        let (socket, to, frames) = (*socket, Some(to.clone()), Parcel::Own(frames));
        self.outputs.push_back(Output::Send { id: Some(REPLY), socket, to, frames, until: None });
    }

    fn redeem(&mut self, now: Nanos, address: &Address, user_id: Option<&Bytes>, sequence: u64, lease: &str) {
        let Some(terms) = self.leases.remove(lease) else {
            self.send(address, data::response(sequence, 403));
            return;
        };
        let session = self.sessions.get_mut(terms.session);
        session.leases.remove(lease);
        if session.origin.user_id.as_ref() != user_id {
            self.leased_names -= terms.resources.len();
            self.send(address, data::response(sequence, 403));
            return;
        }
        let (slot, reads) = (terms.session, terms.reads);
        let client = Origin::new(address.1.clone(), session.user());
        self.events.push_back(ServerEvent::Leased { client, reads });
        // A copy: it may be part of a larger buffer.
        let address = (address.0, Bytes::copy_from_slice(&address.1));
        if !terms.reads {
            self.realm.add_writer(&terms);
        }
        let flow = self.flows.insert(address, terms, Heartbeat::new(now, self.settings.pings));
        self.sessions.add_flow(slot, flow);
        if let Some(due) = self.flows.get(flow).map(|flow| flow.due) {
            self.flow_due.insert((due, flow));
        }
        self.flows.send(flow, data::response(sequence, 200));
    }

    fn summon(&mut self, slot: Slot, name: &str) -> bool {
        let Some(flow) = self.flows.get(slot) else { return false };
        let Terms { virtual_host, profile, reads, session, .. } = flow.terms;
        let may = reads && flow.terms.covers(name) && self.sessions.get(session).rights.may_read(name);
        let Some(resource) = self.realm.find(virtual_host, profile, name).filter(|_| may) else { return false };
        if flow.summoned.contains(&resource) {
            return false;
        }
        let (Some(flow), Some(found)) = (self.flows.get_mut(slot), self.realm.get_mut(resource)) else { return false };
        flow.summoned.insert(resource);
        found.readers.push_back(slot);
        found.summons += 1;
        self.stir(resource);
        true
    }

    fn dismiss(&mut self, slot: Slot, name: &str) -> bool {
        let Some(flow) = self.flows.get(slot) else { return false };
        let Terms { virtual_host, profile, .. } = flow.terms;
        let Some(resource) = self.realm.find(virtual_host, profile, name) else { return false };
        let Some(flow) = self.flows.get_mut(slot) else { return false };
        if !flow.summoned.remove(&resource) {
            return false;
        }
        flow.passed.remove(&resource);
        if flow.summoned.is_empty() {
            flow.taken = 0;
        }
        self.leave(slot, resource);
        true
    }

    /// Removes a reader that no longer summons a resource.
    pub(super) fn leave(&mut self, slot: Slot, resource: Slot) {
        if let Some(found) = self.realm.get_mut(resource) {
            found.readers.retain(|reader| *reader != slot);
            found.summons -= 1;
        }
    }

    fn on_content(&mut self, now: Nanos, slot: Slot, frames: &Frames, layout: &Layout) {
        let sequence = layout.sequence;
        let Some(flow) = self.flows.get_mut(slot) else { return };
        if flow.terms.reads {
            return self.refuse(slot, sequence, 400);
        }
        if sequence <= flow.last {
            return self.flows.send(slot, data::response(sequence, 400));
        }
        flow.last = sequence;
        let terms = &flow.terms;
        let (virtual_host, profile, session) = (terms.virtual_host, terms.profile, terms.session);
        let header = &frames[0];
        let name = std::str::from_utf8(&header[layout.name.clone()]).unwrap_or_default();
        let found = if name.is_empty() {
            match terms.resources.as_slice() {
                [one] => self.realm.find(virtual_host, profile, one).ok_or(404),
                [] => self.realm.only(virtual_host, profile).ok_or(400),
                _ => Err(400),
            }
        } else if terms.covers(name) {
            self.realm.find(virtual_host, profile, name).ok_or(404)
        } else {
            Err(403)
        };
        let rights = &self.sessions.get(session).rights;
        let may = |slot: &Slot| self.realm.get(*slot).is_some_and(|resource| rights.may_write(&resource.name));
        let resource = match found.and_then(|slot| if may(&slot) { Ok(slot) } else { Err(403) }) {
            Ok(resource) => resource,
            Err(status) => return self.refuse(slot, sequence, status),
        };
        let (properties, body) = (header.slice(layout.table.clone()), frames[1].clone());
        match self.settings.profiles[profile].routing {
            Routing::Fanout => self.fan_out(resource, &properties, &body),
            Routing::Queue => self.enqueue(now, slot, resource, sequence, properties, body),
        }
    }

    /// Refuses a content: by a Reject if contents are confirmed, else by a Response.
    pub(super) fn refuse(&mut self, slot: Slot, sequence: u64, status: u16) {
        let Some(flow) = self.flows.get_mut(slot) else { return };
        if !flow.terms.is_confirmed {
            return self.flows.send(slot, data::response(sequence, status));
        }
        // Earlier accepted contents are confirmed first: later ones are confirmed one by one.
        self.confirm_to(slot);
        if let Some(flow) = self.flows.get_mut(slot) {
            flow.has_rejected = true;
        }
        self.flows.send(slot, data::reject(sequence, false, false));
    }

    /// Sends a content to every reader (MTL-62).
    fn fan_out(&mut self, resource: Slot, properties: &Bytes, body: &Bytes) {
        let Some(found) = self.realm.get_mut(resource) else { return };
        found.stats.taken += 1;
        let mut lost = vec![];
        // Readers with the same sequence share its frames.
        let (is_shared, mut made) = (found.readers.len() > 1, (0, Parcel::default()));
        for reader in &found.readers {
            if !self.flows.has_room(*reader) {
                lost.push(*reader);
                continue;
            }
            let Some(flow) = self.flows.get_mut(*reader) else { continue };
            flow.last += 1;
            let sequence = flow.last;
            if made.0 != sequence {
                let frames = data::content(sequence, &found.name, properties, body.clone());
                made = (sequence, if is_shared { Parcel::Shared(Arc::new(frames), 0) } else { frames.into() });
            }
            let frames = if is_shared { made.1.clone() } else { std::mem::take(&mut made.1) };
            self.flows.deliver(*reader, sequence, resource, frames);
        }
        for reader in lost {
            let Some(flow) = self.flows.get_mut(reader) else { continue };
            let is_first = !std::mem::replace(&mut flow.is_losing, true);
            self.lose(DropKind::PeerFull, Some(reader), is_first);
        }
    }

    fn enqueue(&mut self, now: Nanos, slot: Slot, resource: Slot, sequence: u64, properties: Bytes, body: Bytes) {
        let Some(found) = self.realm.get_mut(resource) else { return };
        let queue = &mut found.queue;
        let content = queue.made(now, properties, body);
        if !queue.has_room(content.cost()) {
            let is_first = !std::mem::replace(&mut found.is_full, true);
            self.lose(DropKind::QueueFull, Some(slot), is_first);
            return self.refuse(slot, sequence, 429);
        }
        found.is_full = false;
        found.stats.taken += 1;
        queue.admit(&content);
        let Some(flow) = self.flows.get_mut(slot) else { return };
        if !self.journal.is_on() {
            self.is_safe(slot, sequence);
            self.settle_in(resource, content);
            return;
        }
        flow.pending.push_back(sequence);
        let (queue, address) = (queue.number, flow.address.clone());
        let place = (queue, content.position);
        let op = self.put(queue, &content);
        let state = Unstored::Storing;
        self.unanswered.insert(place, Unanswered { resource, writer: slot, address, sequence, state });
        self.journal.put(op, super::Kept::Content(place));
        // Readers need not wait for the disk: a content that is settled before it is stored is never written.
        self.settle_in(resource, content);
    }

    /// A content is stored, or could not be.
    pub(super) fn on_written(&mut self, place: QueuePosition, is_stored: bool) {
        let Some(unanswered) = self.unanswered.get_mut(&place) else { return };
        if !is_stored && unanswered.state == Unstored::Storing {
            let found = self.realm.get_mut(unanswered.resource).filter(|found| found.queue.number == place.0);
            // The queue may be gone by now, and a reader may hold the content: then the reader settles it.
            if let Some(found) = found
                && !found.queue.withdraw(place.1)
            {
                unanswered.state = Unstored::Failed;
                return;
            }
        }
        self.answer(place, is_stored);
    }

    /// Reports to a writer what became of its content, unless that is known.
    pub(super) fn answer(&mut self, place: QueuePosition, is_safe: bool) {
        let Some(unanswered) = self.unanswered.remove(&place) else { return };
        let Unanswered { writer, address, sequence, .. } = unanswered;
        let Some(flow) = self.flows.get_mut(writer).filter(|flow| flow.address == address) else { return };
        if let Some(at) = flow.pending.iter().position(|pending| *pending == sequence) {
            flow.pending.remove(at);
        }
        if is_safe {
            self.is_safe(writer, sequence);
        } else {
            self.refuse(writer, sequence, 507);
        }
    }

    /// Queues the confirmation of a writer's content, to be sent with others.
    fn is_safe(&mut self, slot: Slot, sequence: u64) {
        let Some(flow) = self.flows.get_mut(slot).filter(|flow| flow.terms.is_confirmed) else { return };
        if flow.to_confirm.is_empty() {
            self.to_confirm.push(slot);
        }
        flow.to_confirm.push(sequence);
    }

    /// Sends a writer its queued confirmations.
    pub(super) fn confirm_to(&mut self, slot: Slot) {
        let Some(flow) = self.flows.get_mut(slot) else { return };
        let mut ready = std::mem::take(&mut flow.to_confirm);
        ready.sort_unstable();
        // One confirmation covers all up to a content, unless an earlier one is pending or was rejected.
        let at_once = match flow.pending.front() {
            _ if flow.has_rejected => 0,
            Some(open) => ready.partition_point(|sequence| sequence < open),
            None => ready.len(),
        };
        let (some, others) = ready.split_at(at_once);
        if let Some(last) = some.last() {
            self.flows.send(slot, data::confirm(*last, some.len() > 1));
        }
        for sequence in others {
            self.flows.send(slot, data::confirm(*sequence, false));
        }
    }

    /// The contents that a reader's Confirm or Reject settles; empty if there are none.
    fn settled_by(&mut self, slot: Slot, layout: &Layout) -> Vec<super::flows::Unsettled> {
        let Some(flow) = self.flows.get_mut(slot) else { return vec![] };
        if !flow.terms.reads || !flow.terms.is_confirmed || layout.sequence > flow.last {
            return vec![];
        }
        if !layout.multiple {
            return flow.unsettled.remove(&layout.sequence).into_iter().collect();
        }
        let later = flow.unsettled.split_off(&(layout.sequence.saturating_add(1)));
        std::mem::replace(&mut flow.unsettled, later).into_values().collect()
    }

    fn on_confirm(&mut self, slot: Slot, layout: &Layout) {
        for unsettled in self.settled_by(slot, layout) {
            if let Some(resource) = self.realm.get_mut(unsettled.resource) {
                resource.stats.confirmed += 1;
            }
            self.arrive(unsettled.resource, &unsettled.content);
        }
        self.wake(slot);
    }

    fn on_reject(&mut self, slot: Slot, layout: &Layout) {
        // The last one first: each returns in front of those that came after it.
        for mut unsettled in self.settled_by(slot, layout).into_iter().rev() {
            if let Some(resource) = self.realm.get_mut(unsettled.resource) {
                resource.stats.rejected += 1;
            }
            if layout.recycle {
                // Returning all contents of a dismissed resource does not count as an attempt: the reader has not
                // looked at them.
                let is_summoned =
                    |slot| self.flows.get(slot).is_some_and(|flow| flow.summoned.contains(&unsettled.resource));
                if layout.multiple && !is_summoned(slot) {
                    unsettled.content.attempts = unsettled.content.attempts.saturating_sub(1);
                }
                self.give_back(slot, unsettled);
            } else {
                self.bury(unsettled.resource, &unsettled.content);
            }
        }
        self.wake(slot);
    }

    /// Ends a data connection; its unsettled contents return to their queues.
    pub(super) fn end_flow(&mut self, now: Nanos, slot: Slot, why: LeaseEnd) {
        let client = self.flow_client(slot);
        let Some(mut flow) = self.flows.remove(slot) else { return };
        self.sessions.remove_flow(now, flow.terms.session, slot);
        self.flow_due.remove(&(flow.due, slot));
        self.leased_names -= flow.terms.resources.len();
        if !flow.terms.reads {
            self.realm.remove_writer(&flow.terms);
        }
        for resource in std::mem::take(&mut flow.summoned) {
            self.leave(slot, resource);
        }
        for unsettled in std::mem::take(&mut flow.unsettled).into_values().rev() {
            self.give_back(slot, unsettled);
        }
        self.events.push_back(ServerEvent::LeaseEnded { client, why });
    }
}
