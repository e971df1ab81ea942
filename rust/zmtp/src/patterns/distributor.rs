//! Messages to any peer in turn: the outgoing half of DEALER (RFC 28) and PUSH (RFC 30).

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use foldhash::fast::RandomState;
use trunkline_wire::{Backlog, Frames, cost};

use super::{ConnectionId, wire_bytes};
use crate::HighWater;

/// How much a connection is given at a time: what it has when it breaks is lost.
const WINDOW: usize = 64 << 10;

/// The pipe of an endpoint that is dialled, and redialled whenever its connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PipeId(u64);

/// The outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It is to be sent on this connection now.
    Now(ConnectionId),
    /// It is pending, until [`poll_send`](Distributor::poll_send) gives it.
    Pending,
    /// It was not taken: all peers are full, or there is none.
    Full,
    /// It was not taken: of the peers with room for it, none may have it.
    Barred,
}

/// The way to one peer.
#[derive(Debug, Default)]
struct Pipe {
    connection: Option<ConnectionId>,
    is_dialled: bool,
    pending: VecDeque<Frames>,
    pending_bytes: usize,
    /// The backlog of the connection.
    backlog: Backlog,
    is_in_turn: bool,
}

impl Pipe {
    fn waiting(&self) -> Backlog {
        let (messages, bytes) = (self.backlog.messages + self.pending.len(), self.backlog.bytes + self.pending_bytes);
        Backlog { messages, bytes }
    }

    fn has_room(&self, most: HighWater, immediate: bool) -> bool {
        (self.connection.is_some() || !immediate) && most.admits(self.waiting())
    }

    fn next_connection(&self) -> Option<ConnectionId> {
        self.connection.filter(|_| !self.pending.is_empty() && self.backlog.bytes < WINDOW)
    }
}

/// Sends each message to the next peer that is not full. Messages for an endpoint that is dialled stay pending while it
/// has no connection; those for an accepted connection are lost with it.
#[derive(Debug)]
pub struct Distributor {
    high_water: HighWater,
    immediate: bool,
    pipes: HashMap<u64, Pipe, RandomState>,
    by_connection: HashMap<ConnectionId, u64, RandomState>,
    /// The pipes that have room, in turn; those that may send pending messages.
    line: VecDeque<u64>,
    unloading: VecDeque<u64>,
    /// What is pending, for all peers.
    pending: Backlog,
    next: u64,
}

impl Distributor {
    /// Without peers. With `immediate` messages are pending only for connected peers.
    pub fn new(high_water: HighWater, immediate: bool) -> Self {
        Self {
            high_water,
            immediate,
            pipes: HashMap::default(),
            by_connection: HashMap::default(),
            line: VecDeque::new(),
            unloading: VecDeque::new(),
            pending: Backlog::default(),
            next: 0,
        }
    }

    /// An endpoint is dialled from now on.
    pub fn dial(&mut self) -> PipeId {
        let key = self.add(Pipe { is_dialled: true, ..Pipe::default() });
        PipeId(key)
    }

    /// Stops dialling an endpoint: gives its pending messages, which are lost. Its connection, if it has one, goes on.
    pub fn hang_up(&mut self, PipeId(key): PipeId) -> Vec<Frames> {
        let Some(pipe) = self.pipes.get_mut(&key) else { return vec![] };
        pipe.is_dialled = false;
        if pipe.connection.is_some() { vec![] } else { self.remove(key) }
    }

    /// A connection is ready: an accepted one, or that of an endpoint.
    pub fn connected(&mut self, connection: ConnectionId, pipe: Option<PipeId>) {
        let key = pipe.map(|pipe| pipe.0).filter(|key| self.pipes.contains_key(key));
        let key = key.unwrap_or_else(|| self.add(Pipe::default()));
        if let Some(pipe) = self.pipes.get_mut(&key) {
            pipe.backlog = Backlog::default();
            if let Some(before) = pipe.connection.replace(connection) {
                self.by_connection.remove(&before);
            }
        }
        self.by_connection.insert(connection, key);
        self.settle(key);
    }

    /// A connection is gone: gives its pending messages, which are lost like those already given to it.
    pub fn disconnected(&mut self, connection: ConnectionId) -> Vec<Frames> {
        let Some(key) = self.by_connection.remove(&connection) else { return vec![] };
        let Some(pipe) = self.pipes.get_mut(&key) else { return vec![] };
        (pipe.connection, pipe.backlog) = (None, Backlog::default());
        if !pipe.is_dialled {
            return self.remove(key);
        }
        self.settle(key);
        vec![]
    }

    /// Reports the backlog of a connection.
    pub fn handle_backlog(&mut self, connection: ConnectionId, backlog: Backlog) {
        let Some(key) = self.by_connection.get(&connection).copied() else { return };
        if let Some(pipe) = self.pipes.get_mut(&key) {
            pipe.backlog = backlog;
        }
        self.settle(key);
    }

    /// Whether it would take a message.
    pub fn is_writable(&self) -> bool {
        !self.line.is_empty()
    }

    /// Whether a connection has nothing pending.
    pub fn has_idle(&self) -> bool {
        self.pipes.values().any(|pipe| pipe.connection.is_some() && pipe.waiting() == Backlog::default())
    }

    /// Takes a message for the next peer with room that may have it, by its backlog.
    #[inline]
    pub fn place(&mut self, frames: &[Bytes], may_have: impl Fn(Backlog) -> bool) -> Placed {
        let Some(first) = self.line.front() else { return Placed::Full };
        let may_have = |key: &u64| self.pipes.get(key).is_some_and(|pipe| may_have(pipe.waiting()));
        let at = if may_have(first) { Some(0) } else { self.line.iter().position(may_have) };
        let Some(key) = at.and_then(|at| self.line.remove(at)) else { return Placed::Barred };
        let Some(pipe) = self.pipes.get_mut(&key) else { return Placed::Barred };
        pipe.is_in_turn = false;
        let now = pipe.connection.filter(|_| pipe.pending.is_empty() && pipe.backlog.bytes < WINDOW);
        if now.is_some() {
            pipe.backlog.messages += 1;
            pipe.backlog.bytes += wire_bytes(frames);
        } else {
            let bytes = cost(frames);
            pipe.pending.push_back(frames.into());
            pipe.pending_bytes += bytes;
            self.pending.messages += 1;
            self.pending.bytes += bytes;
        }
        self.settle(key);
        now.map_or(Placed::Pending, Placed::Now)
    }

    /// The next pending message that can be sent now.
    pub fn poll_send(&mut self) -> Option<(ConnectionId, Frames)> {
        loop {
            let key = *self.unloading.front()?;
            let pipe = self.pipes.get_mut(&key);
            if let Some(pipe) = pipe
                && let Some(connection) = pipe.next_connection()
                && let Some(frames) = pipe.pending.pop_front()
            {
                let bytes = cost(&frames);
                pipe.pending_bytes -= bytes;
                self.pending.messages -= 1;
                self.pending.bytes -= bytes;
                pipe.backlog.messages += 1;
                pipe.backlog.bytes += wire_bytes(&frames);
                return Some((connection, frames));
            }
            self.unloading.pop_front();
            self.settle(key);
        }
    }

    /// What is pending, for all peers.
    pub fn pending(&self) -> Backlog {
        self.pending
    }

    fn add(&mut self, pipe: Pipe) -> u64 {
        let key = self.next;
        self.next += 1;
        self.pipes.insert(key, pipe);
        self.settle(key);
        key
    }

    fn remove(&mut self, key: u64) -> Vec<Frames> {
        self.line.retain(|other| *other != key);
        self.unloading.retain(|other| *other != key);
        let Some(pipe) = self.pipes.remove(&key) else { return vec![] };
        self.pending.messages -= pipe.pending.len();
        self.pending.bytes -= pipe.pending_bytes;
        pipe.pending.into()
    }

    /// Puts a pipe into the right queue.
    fn settle(&mut self, key: u64) {
        let Some(pipe) = self.pipes.get_mut(&key) else { return };
        if pipe.next_connection().is_some() && !self.unloading.contains(&key) {
            self.unloading.push_back(key);
        }
        let has_room = pipe.has_room(self.high_water, self.immediate);
        if has_room && !pipe.is_in_turn {
            self.line.push_back(key);
        } else if !has_room && pipe.is_in_turn {
            self.line.retain(|other| *other != key);
        }
        pipe.is_in_turn = has_room;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ConnectionId = ConnectionId(1);
    const TWO: ConnectionId = ConnectionId(2);

    fn distributor(messages: usize) -> Distributor {
        Distributor::new(HighWater { messages, bytes: 1 << 20 }, false)
    }

    fn message(bytes: usize) -> Frames {
        Frames::from_iter([Bytes::from(vec![7; bytes])])
    }

    #[test]
    fn peers_take_turns_and_full_ones_are_passed_over() {
        let mut push = distributor(3);
        assert_eq!(push.place(&message(1), |_| true), Placed::Full);
        push.connected(ONE, None);
        push.connected(TWO, None);
        let placed: Vec<_> = (0..4).map(|_| push.place(&message(1), |_| true)).collect();
        assert_eq!(placed, [ONE, TWO, ONE, TWO].map(Placed::Now));
        push.handle_backlog(TWO, Backlog { messages: 3, bytes: 30 });
        assert_eq!(
            [push.place(&message(1), |_| true), push.place(&message(1), |_| true)],
            [Placed::Now(ONE), Placed::Full]
        );
        assert!(!push.is_writable());
        push.handle_backlog(TWO, Backlog { messages: 2, bytes: 20 });
        assert_eq!(push.place(&message(1), |_| true), Placed::Now(TWO));
    }

    #[test]
    fn a_peer_is_full_by_bytes_as_well() {
        let mut push = distributor(1000);
        push.connected(ONE, None);
        assert_eq!(push.place(&message(2 << 20), |_| true), Placed::Now(ONE));
        assert_eq!(push.place(&message(1), |_| true), Placed::Full);
    }

    #[test]
    fn a_peer_that_may_not_have_a_message_is_passed_over() {
        let mut push = distributor(1000);
        push.connected(ONE, None);
        push.connected(TWO, None);
        push.handle_backlog(ONE, Backlog { messages: 1, bytes: 10 });
        let is_idle = |backlog: Backlog| backlog.messages == 0;
        assert_eq!(push.place(&message(1), is_idle), Placed::Now(TWO));
        assert_eq!(push.place(&message(1), is_idle), Placed::Barred);
        push.handle_backlog(ONE, Backlog::default());
        assert_eq!(push.place(&message(1), is_idle), Placed::Now(ONE));
        assert_eq!(push.pending(), Backlog::default());
    }

    #[test]
    fn what_is_for_an_endpoint_waits_for_its_connections() {
        let mut push = distributor(10);
        let dial = push.dial();
        assert_eq!([push.place(&message(1), |_| true), push.place(&message(2), |_| true)], [Placed::Pending; 2]);
        assert_eq!(push.poll_send(), None);
        push.connected(ONE, Some(dial));
        assert_eq!(push.poll_send(), Some((ONE, message(1))));
        assert_eq!(push.disconnected(ONE), Vec::<Frames>::new());
        assert_eq!(push.poll_send(), None);
        push.connected(TWO, Some(dial));
        assert_eq!((push.poll_send(), push.poll_send()), (Some((TWO, message(2))), None));
        assert_eq!(push.place(&message(3), |_| true), Placed::Now(TWO));
    }

    #[test]
    fn order_is_kept_and_little_is_given_to_a_connection_at_a_time() {
        let mut push = distributor(1000);
        push.connected(ONE, None);
        assert_eq!(push.place(&message(WINDOW), |_| true), Placed::Now(ONE));
        assert_eq!([push.place(&message(1), |_| true), push.place(&message(2), |_| true)], [Placed::Pending; 2]);
        assert_eq!(push.poll_send(), None);
        push.handle_backlog(ONE, Backlog::default());
        assert_eq!(push.place(&message(3), |_| true), Placed::Pending, "others wait before it");
        let sent: Vec<_> = std::iter::from_fn(|| push.poll_send()).map(|(_, frames)| frames[0].len()).collect();
        assert_eq!(sent, [1, 2, 3]);
        assert_eq!(push.pending(), Backlog::default());
    }

    #[test]
    fn what_is_for_a_connection_that_was_accepted_goes_with_it() {
        let mut push = distributor(1000);
        push.connected(ONE, None);
        push.handle_backlog(ONE, Backlog { messages: 1, bytes: WINDOW });
        assert_eq!(push.place(&message(9), |_| true), Placed::Pending);
        assert_eq!(push.disconnected(ONE), [message(9)]);
        assert_eq!((push.place(&message(1), |_| true), push.pending()), (Placed::Full, Backlog::default()));
    }

    #[test]
    fn with_immediate_only_connections_count() {
        let mut push = Distributor::new(HighWater::default(), true);
        let dial = push.dial();
        assert_eq!(push.place(&message(1), |_| true), Placed::Full);
        push.connected(ONE, Some(dial));
        assert_eq!(push.place(&message(1), |_| true), Placed::Now(ONE));
        push.disconnected(ONE);
        assert_eq!(push.place(&message(1), |_| true), Placed::Full);
    }

    #[test]
    fn an_endpoint_that_is_dialled_no_more_keeps_its_connection() {
        let mut push = distributor(10);
        let (one, two) = (push.dial(), push.dial());
        push.connected(ONE, Some(one));
        assert_eq!(
            [push.place(&message(1), |_| true), push.place(&message(2), |_| true)],
            [Placed::Now(ONE), Placed::Pending]
        );
        assert_eq!(push.hang_up(one), Vec::<Frames>::new());
        assert_eq!(push.hang_up(two), [message(2)]);
        assert_eq!(push.place(&message(3), |_| true), Placed::Now(ONE));
        push.disconnected(ONE);
        assert_eq!(push.place(&message(3), |_| true), Placed::Full);
    }
}
