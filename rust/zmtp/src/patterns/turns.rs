//! Fair queueing of the connections to read, of RFC 28 and RFC 30.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::ConnectionId;

/// The bytes of a turn.
const TURN: usize = 64 << 10;

/// The most turns that a connection pauses after a large message.
const DEBT: usize = 16;

/// The connections with data to read, in the order of their turns. Turns count bytes, not messages: a sender of large
/// messages gets no more than one of small ones.
#[derive(Debug, Default)]
pub struct Turns {
    line: VecDeque<ConnectionId>,
    /// What each in the line has taken beyond its turns.
    debts: HashMap<ConnectionId, usize, RandomState>,
    /// What is left of the turn of the first.
    left: usize,
}

impl Turns {
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of connections with data to read.
    pub fn len(&self) -> usize {
        self.line.len()
    }

    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// A connection may have something to read.
    pub fn enter(&mut self, connection: ConnectionId) {
        if let Entry::Vacant(debt) = self.debts.entry(connection) {
            debt.insert(0);
            self.line.push_back(connection);
        }
    }

    /// The connection to read, until it [took](Self::took) so much that its turn is over, or [leaves](Self::leave).
    pub fn first(&mut self) -> Option<ConnectionId> {
        while self.left == 0 {
            let first = *self.line.front()?;
            let debt = self.debts.get_mut(&first)?;
            if *debt >= TURN && self.line.len() > 1 {
                *debt -= TURN;
                self.line.rotate_left(1);
            } else {
                self.left = TURN.saturating_sub(*debt).max(1);
                *debt = 0;
            }
        }
        self.line.front().copied()
    }

    /// The connection to read took so many bytes.
    pub fn took(&mut self, bytes: usize) {
        if self.left == 0 {
            return; // No turn has begun.
        }
        let over = bytes.saturating_sub(self.left);
        self.left = self.left.saturating_sub(bytes);
        if self.left == 0
            && let Some(first) = self.line.pop_front()
        {
            self.debts.insert(first, over.min(TURN * DEBT));
            self.line.push_back(first);
        }
    }

    /// A connection has nothing to read, or is gone.
    pub fn leave(&mut self, connection: ConnectionId) {
        if self.debts.remove(&connection).is_none() {
            return;
        }
        if self.line.front() == Some(&connection) {
            self.line.pop_front();
            self.left = 0;
        } else {
            self.line.retain(|other| *other != connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(count: u64) -> Turns {
        let mut turns = Turns::new();
        (0..count).for_each(|number| turns.enter(ConnectionId(number)));
        turns
    }

    /// Reads one message of its size after the other; gives the connection of each.
    fn read(turns: &mut Turns, count: usize, size: impl Fn(u64) -> usize) -> Vec<u64> {
        let mut once = || {
            let ConnectionId(number) = turns.first()?;
            turns.took(size(number));
            Some(number)
        };
        std::iter::from_fn(&mut once).take(count).collect()
    }

    #[test]
    fn each_has_its_turn() {
        assert_eq!(read(&mut turns(3), 7, |_| TURN), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(read(&mut turns(2), 6, |_| TURN / 2), [0, 0, 1, 1, 0, 0]);
        assert_eq!(read(&mut turns(0), 6, |_| 1), [0; 0]);
    }

    #[test]
    fn bytes_count_and_not_messages() {
        let size = |number| if number == 0 { 4 * TURN } else { TURN / 10 };
        let read = read(&mut turns(2), 10_000, size);
        let bytes = |wanted| read.iter().filter(|number| **number == wanted).map(|number| size(*number)).sum::<usize>();
        assert!(bytes(0).abs_diff(bytes(1)) <= 5 * TURN, "{} {}", bytes(0), bytes(1));
    }

    #[test]
    fn who_is_alone_sits_nothing_out() {
        let mut turns = turns(2);
        assert_eq!(read(&mut turns, 1, |_| 1 << 30), [0]);
        assert_eq!(read(&mut turns, DEBT, |_| TURN), [1; DEBT]);
        turns.enter(ConnectionId(0));
        turns.leave(ConnectionId(1));
        assert_eq!(read(&mut turns, 3, |_| 1 << 30), [0, 0, 0]);
    }

    #[test]
    fn who_leaves_has_no_turn() {
        let mut turns = turns(4);
        turns.took(0);
        assert_eq!(turns.first(), Some(ConnectionId(0)));
        turns.leave(ConnectionId(0));
        turns.leave(ConnectionId(2));
        turns.leave(ConnectionId(9));
        assert_eq!(read(&mut turns, 4, |_| TURN), [1, 3, 1, 3]);
    }
}
