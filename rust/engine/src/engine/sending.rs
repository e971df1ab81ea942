//! How the engine sends: peer by peer, with retries where a peer was full.

use bytes::Bytes;
use trunkline_capture::Direction;
use trunkline_wire::{Machine, Nanos, Parcel, SendId, SocketEvent, Unsent, Verdict};

use super::{Engine, Slot};
use crate::outbox::{Pending, To};
use crate::shared::End;
use crate::sink::Sink;
use crate::transport::{Confirmation, Taken, Transport, TransportError};

/// Sends offered to one full peer before the others have their turn.
const RETRIES: usize = 64;

/// A message to send, but for its frames.
#[derive(Clone, Copy)]
pub(super) struct Envelope<'a> {
    pub(super) id: Option<SendId>,
    pub(super) to: Option<&'a Bytes>,
    pub(super) until: Option<Nanos>,
}

impl<I, S> Slot<I, S> {
    /// Gives the transport a message, unless other sends to this peer are pending.
    fn offer<T: Transport<Socket = S>>(
        &mut self,
        transport: &mut T,
        to: Option<&Bytes>,
        frames: &[Bytes],
        id: Option<SendId>,
    ) -> Result<Taken, TransportError> {
        if self.outboxes.holds(to) { Ok(Taken::Full) } else { self.hand_over(transport, to, frames, id) }
    }

    fn hand_over<T: Transport<Socket = S>>(
        &mut self,
        transport: &mut T,
        to: Option<&Bytes>,
        frames: &[Bytes],
        id: Option<SendId>,
    ) -> Result<Taken, TransportError> {
        match id {
            None => transport.send(&mut self.socket, to, frames),
            Some(_) => transport.send_confirmed(&mut self.socket, to, frames),
        }
    }
}

impl<M: Machine, T: Transport, S: Sink<M>> Engine<M, T, S> {
    pub(super) fn retry(&mut self) -> Result<(), End> {
        for at in 0..self.slots.len() {
            let now = self.now();
            let Some(slot) = self.slots.get_mut(at) else { continue };
            while let Some(peer) = self.transport.poll_drained(&mut slot.socket) {
                slot.outboxes.handle_drained(now, peer);
            }
            if slot.outboxes.is_empty() {
                continue;
            }
            let expired = slot.outboxes.expire(now);
            let due = slot.outboxes.due(now, slot.writable);
            for pending in expired {
                self.unsent(now, at, pending.id, Unsent::Expired);
            }
            for to in due {
                self.retry_peer(now, at, &to)?;
            }
            self.drain(now);
        }
        Ok(())
    }

    fn retry_peer(&mut self, now: Nanos, at: usize, to: &To) -> Result<(), End> {
        for _ in 0..RETRIES {
            let Some(slot) = self.slots.get_mut(at) else { break };
            let Some(pending) = slot.outboxes.front(to) else { break };
            let (frames, id) = (pending.frames.clone(), pending.id);
            match slot.hand_over(&mut self.transport, to.0.as_ref(), &frames, id) {
                Ok(Taken::Full) => {
                    slot.writable = false;
                    slot.outboxes.postpone(now, to);
                    return Ok(());
                }
                result => {
                    let id = slot.outboxes.pop(to).and_then(|pending| pending.id);
                    self.settle(now, at, id, to.0.as_ref(), &frames, &result)?;
                }
            }
        }
        Ok(())
    }

    /// Sends what is for one peer in one go: a transport that is woken once sends more with each call.
    pub(super) fn post(&mut self, now: Nanos) {
        let (mut outgoing, mut sorted) = (std::mem::take(&mut self.outgoing), std::mem::take(&mut self.sorted));
        let keys = outgoing.iter().map(|output| output.peer().map_or(0, |peer| tail(peer)));
        sorted.extend(keys.zip(0..));
        sorted.sort_unstable();
        for (_, at) in sorted.drain(..) {
            self.act(now, &mut outgoing[at]);
        }
        outgoing.clear();
        (self.outgoing, self.sorted) = (outgoing, sorted);
    }

    /// Sends a message, or keeps its frames until it can be sent.
    pub(super) fn send(&mut self, now: Nanos, at: usize, envelope: Envelope<'_>, frames: &mut Parcel) {
        let result = self.slots[at].offer(&mut self.transport, envelope.to, frames, envelope.id);
        self.posted(now, at, envelope, frames, &result);
    }

    /// Gives up a pending send; what the transport has taken cannot be withdrawn.
    pub(super) fn withdraw(&mut self, now: Nanos, socket: M::Socket, id: SendId) {
        if let Some(at) = self.find(socket)
            && self.slots[at].outboxes.withdraw(id)
        {
            self.unsent(now, at, Some(id), Unsent::Expired);
        }
    }

    fn posted(
        &mut self,
        now: Nanos,
        at: usize,
        envelope: Envelope<'_>,
        frames: &mut Parcel,
        result: &Result<Taken, TransportError>,
    ) {
        let Envelope { id, to, until } = envelope;
        if *result == Ok(Taken::Full) {
            let slot = &mut self.slots[at];
            slot.writable = false;
            let pending = Pending { id, frames: std::mem::take(frames), until };
            match slot.outboxes.push(now, &To(to.cloned()), pending) {
                Ok(()) => self.bound_outboxes(now),
                Err(reason) => self.unsent(now, at, id, reason),
            }
            return;
        }
        // The next receive reports that the transport is gone.
        let _ = self.settle(now, at, id, to, frames, result);
    }

    /// Reports what became of unconfirmed sends.
    pub(super) fn confirm(&mut self) {
        let now = self.now();
        for at in 0..self.slots.len() {
            while let Some(slot) = self.slots.get_mut(at)
                && let Some(Confirmation { number, has_arrived }) = self.transport.poll_confirmed(&mut slot.socket)
            {
                while let Some(slot) = self.slots.get_mut(at)
                    && let Some((_, id)) = slot.unconfirmed.front().copied().filter(|(of, _)| *of <= number)
                {
                    slot.unconfirmed.pop_front();
                    if has_arrived {
                        self.core.machine.handle_socket(now, slot.id, SocketEvent::Sent(id));
                    } else {
                        self.unsent(now, at, Some(id), Unsent::Unreachable);
                    }
                }
                self.drain(now);
            }
        }
    }

    /// Limits the pending bytes of all peers together: the fullest peer loses first.
    fn bound_outboxes(&mut self, now: Nanos) {
        let taken = self.transport.waiting();
        while taken + self.slots.iter().map(|slot| slot.outboxes.bytes()).sum::<usize>() > self.outbox_bytes {
            let most = self.slots.iter().map(|slot| slot.outboxes.most());
            let fullest = most.enumerate().filter_map(|(at, most)| Some((most?, at))).max();
            let Some((_, at)) = fullest else { return };
            let lost = self.slots[at].outboxes.pop_most();
            self.unsent(now, at, lost.and_then(|lost| lost.id), Unsent::PeerFull);
        }
    }

    fn settle(
        &mut self,
        now: Nanos,
        at: usize,
        id: Option<SendId>,
        to: Option<&Bytes>,
        frames: &[Bytes],
        result: &Result<Taken, TransportError>,
    ) -> Result<(), End> {
        match result {
            Ok(taken @ (Taken::Yes | Taken::Unconfirmed(_))) => {
                let slot = &mut self.slots[at];
                let core = &mut *self.core;
                if let Some(tap) = &mut core.tap {
                    let verdict = Verdict { error: None, label: core.machine.label(slot.id, to, frames) };
                    let shown = core.machine.shown(slot.id, frames);
                    let frames = shown.as_deref().unwrap_or(frames);
                    tap.record(Direction::Out, slot.endpoint.as_deref(), to, frames, &verdict);
                }
                match (id, taken) {
                    (None, _) => {}
                    (Some(id), Taken::Unconfirmed(number)) => slot.unconfirmed.push_back((*number, id)),
                    (Some(id), _) => self.core.machine.handle_socket(now, slot.id, SocketEvent::Sent(id)),
                }
            }
            Err(TransportError::Terminated) => {
                self.unsent(now, at, id, Unsent::Closed);
                return Err(End::Terminated);
            }
            // No such peer, or the message itself is refused, for example for a bad address.
            Ok(Taken::Full | Taken::Unreachable)
            | Err(
                TransportError::Unsupported(_) | TransportError::WrongSocket { .. } | TransportError::Failed { .. },
            ) => {
                self.unsent(now, at, id, Unsent::Unreachable);
            }
        }
        Ok(())
    }

    fn unsent(&mut self, now: Nanos, at: usize, id: Option<SendId>, reason: Unsent) {
        match reason {
            Unsent::PeerFull => self.core.peer_full += 1,
            Unsent::Unreachable => self.core.unroutable += 1,
            Unsent::Expired | Unsent::Closed => {}
        }
        if let (Some(id), Some(slot)) = (id, self.slots.get(at)) {
            self.core.machine.handle_socket(now, slot.id, SocketEvent::Unsent(id, reason));
        }
    }
}

/// Distinguishes most peers: the end of a routing id, or all of one that libzmq gave.
fn tail(peer: &[u8]) -> u64 {
    let mut tail = [0; 8];
    for (to, from) in tail.iter_mut().zip(peer.iter().rev()) {
        *to = *from;
    }
    u64::from_ne_bytes(tail)
}
