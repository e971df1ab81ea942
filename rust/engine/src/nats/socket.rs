//! The subscriptions of a role, and what waits for a connection.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use slab::Slab;
use trunkline_wire::nats::{Connection, Head};
use trunkline_wire::{ServerNotice, SocketEvent, cost};

use crate::transport::Confirmation;

/// A socket: some subscriptions, and what is reported of them.
#[derive(Debug, Default)]
pub(super) struct Socket {
    pub(super) events: VecDeque<SocketEvent>,
    pub(super) confirmations: VecDeque<Confirmation>,
}

impl Socket {
    /// Reports that a message is not sent: once for those in a row.
    pub(super) fn report_unsent(&mut self, reason: &str) {
        let is_same =
            |last: &SocketEvent| matches!(last, SocketEvent::Server(ServerNotice::Unsent(last)) if last == reason);
        if !self.events.back().is_some_and(is_same) {
            self.events.push_back(SocketEvent::Server(ServerNotice::Unsent(reason.to_owned())));
        }
    }
}

/// The sockets of a role.
pub(super) type Sockets = Slab<Socket>;

/// A subject, and who hears it.
#[derive(Debug)]
struct Subscription {
    socket: usize,
    subject: Box<str>,
    /// The queue group; empty for none.
    queue: Box<str>,
}

/// The subscriptions of all sockets, by the numbers that the server has for them.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    all: BTreeMap<u64, Subscription>,
    last: u64,
}

impl Subscriptions {
    /// Adds one for a socket: a subject, and its queue group after a space, if any. `None` if they are none.
    pub(super) fn add(&mut self, socket: usize, endpoint: &str) -> Option<u64> {
        let (subject, queue) = endpoint.split_once(' ').unwrap_or((endpoint, ""));
        Head::new(subject.as_bytes(), queue.as_bytes(), 0)?;
        self.last += 1;
        self.all.insert(self.last, Subscription { socket, subject: subject.into(), queue: queue.into() });
        Some(self.last)
    }

    /// The socket that hears a subscription.
    #[inline]
    pub(super) fn socket(&self, number: u64) -> Option<usize> {
        self.all.get(&number).map(|subscription| subscription.socket)
    }

    /// Removes those of a socket, and gives their numbers.
    pub(super) fn leave(&mut self, socket: usize) -> Vec<u64> {
        let all = self.all.iter().filter(|(_, subscription)| subscription.socket == socket);
        let left: Vec<_> = all.map(|(number, _)| *number).collect();
        self.all.retain(|_, subscription| subscription.socket != socket);
        left
    }

    /// Subscribes to one of them, on a connection that is ready.
    pub(super) fn subscribe(&self, number: u64, connection: &mut Connection) {
        let Some(Subscription { subject, queue, .. }) = self.all.get(&number) else { return };
        // Its subject was checked as it was added.
        let _ = connection.subscribe(number, subject.as_bytes(), queue.as_bytes());
    }

    /// Subscribes to all of them.
    pub(super) fn subscribe_all(&self, connection: &mut Connection) {
        for number in self.all.keys() {
            self.subscribe(*number, connection);
        }
    }
}

/// A message to publish: its subject, reply subject, header block and body.
pub(super) type Publication = [Bytes; 4];

/// What is sent once there is a connection.
#[derive(Debug, Default)]
pub(super) struct Held {
    all: VecDeque<Publication>,
    bytes: usize,
}

impl Held {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a message; false if there is no room.
    pub(super) fn keep(&mut self, publication: Publication, limit: usize) -> bool {
        let bytes = self.bytes + cost(&publication);
        if bytes > limit {
            return false;
        }
        self.bytes = bytes;
        self.all.push_back(publication);
        true
    }

    /// Takes out everything.
    pub(super) fn take(&mut self) -> VecDeque<Publication> {
        self.bytes = 0;
        std::mem::take(&mut self.all)
    }
}
