//! Whichever connections come and go, a message of a DEALER or PUSH is sent once, reported as lost, or pending; and in
//! its order.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use trunkline_wire::{Backlog, Frames};
use trunkline_zmtp::HighWater;
use trunkline_zmtp::patterns::{ConnectionId, Distributor, PipeId, Placed};

const MOST: HighWater = HighWater { messages: 4, bytes: 200_000 };

#[derive(Clone, Debug)]
enum Operation {
    Accept,
    Dial,
    Connect(usize),
    Disconnect(usize),
    HangUp(usize),
    Place(usize),
    Drain(usize),
    Send,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        1 => Just(Operation::Accept),
        1 => Just(Operation::Dial),
        2 => (0usize..6).prop_map(Operation::Connect),
        1 => (0usize..12).prop_map(Operation::Disconnect),
        1 => (0usize..6).prop_map(Operation::HangUp),
        8 => prop_oneof![0usize..100, 60_000usize..90_000].prop_map(Operation::Place),
        3 => (0usize..12).prop_map(Operation::Drain),
        4 => Just(Operation::Send),
    ]
}

/// A message that holds its number.
fn message(number: usize, size: usize) -> Frames {
    [Bytes::copy_from_slice(&number.to_be_bytes()), Bytes::from(vec![0; size])].into_iter().collect()
}

fn number(frames: &Frames) -> usize {
    usize::from_be_bytes(frames[0][..].try_into().expect("a number"))
}

proptest! {
    #[test]
    fn nothing_is_lost_without_a_word(immediate: bool, operations in vec(operation(), 0..150)) {
        let mut push = Distributor::new(MOST, immediate);
        let (mut dials, mut connections): (Vec<PipeId>, Vec<ConnectionId>) = (vec![], vec![]);
        let mut waiting: BTreeMap<ConnectionId, Vec<usize>> = BTreeMap::new();
        let (mut placed, mut pending) = (0, BTreeSet::new());
        let sent = |waiting: &mut BTreeMap<ConnectionId, Vec<usize>>, connection, number| {
            let Some(numbers) = waiting.get_mut(&connection) else { return false };
            numbers.push(number);
            numbers.is_sorted() && numbers.len() <= MOST.messages
        };
        for operation in operations {
            match operation {
                Operation::Accept | Operation::Connect(_) => {
                    let dial = if let Operation::Connect(at) = operation { dials.get(at).copied() } else { None };
                    let connection = ConnectionId(connections.len() as u64);
                    connections.push(connection);
                    push.connected(connection, dial);
                    waiting.insert(connection, vec![]);
                }
                Operation::Dial => dials.push(push.dial()),
                Operation::Disconnect(at) => {
                    let Some(connection) = connections.get(at) else { continue };
                    waiting.remove(connection);
                    for lost in push.disconnected(*connection) {
                        prop_assert!(pending.remove(&number(&lost)));
                    }
                }
                Operation::HangUp(at) => {
                    let Some(dial) = dials.get(at) else { continue };
                    for lost in push.hang_up(*dial) {
                        prop_assert!(pending.remove(&number(&lost)));
                    }
                }
                Operation::Place(size) => {
                    let is_writable = push.is_writable();
                    let placing = push.place(&message(placed, size), |_| true);
                    prop_assert_eq!(is_writable, placing != Placed::Full);
                    match placing {
                        Placed::Now(connection) => prop_assert!(sent(&mut waiting, connection, placed)),
                        Placed::Pending => prop_assert!(pending.insert(placed)),
                        Placed::Full | Placed::Barred => {}
                    }
                    placed += 1;
                }
                Operation::Drain(at) => {
                    let Some(connection) = connections.get(at) else { continue };
                    if let Some(numbers) = waiting.get_mut(connection) {
                        numbers.clear();
                    }
                    push.handle_backlog(*connection, Backlog::default());
                }
                Operation::Send => {
                    if let Some((connection, frames)) = push.poll_send() {
                        prop_assert!(pending.remove(&number(&frames)));
                        prop_assert!(sent(&mut waiting, connection, number(&frames)));
                    }
                }
            }
            prop_assert_eq!(push.pending().messages, pending.len());
        }
        // A connected peer that reads gets all that is pending for it.
        for connection in &connections {
            push.handle_backlog(*connection, Backlog::default());
        }
        while let Some((connection, frames)) = push.poll_send() {
            prop_assert!(pending.remove(&number(&frames)));
            push.handle_backlog(connection, Backlog::default());
        }
        prop_assert_eq!(push.pending().messages, pending.len());
    }
}
