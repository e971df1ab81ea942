//! A ROUTER against a model of it that simply searches all its peers.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use trunkline_wire::Backlog;
use trunkline_zmtp::patterns::{Admitted, ConnectionId, Holder, Routed, Router, RouterCounts, Unsent};
use trunkline_zmtp::{HighWater, Reason};

const MOST: HighWater = HighWater { messages: 3, bytes: 1000 };

/// Near the largest number, where it wraps around.
const FIRST: u32 = u32::MAX - 2;

#[derive(Clone, Debug)]
enum Operation {
    Connect { identity: u8, user: Option<u8>, host: Option<u8> },
    Disconnect(usize),
    Send { to: usize, bytes: usize },
    SendTo(u8),
    Drain(usize, usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    let place = 0usize..40;
    prop_oneof![
        (0u8..6, prop::option::of(0u8..2), prop::option::of(0u8..2))
            .prop_map(|(identity, user, host)| Operation::Connect { identity, user, host }),
        place.clone().prop_map(Operation::Disconnect),
        (place.clone(), prop_oneof![0usize..10, 300usize..1100]).prop_map(|(to, bytes)| Operation::Send { to, bytes }),
        (0u8..7).prop_map(Operation::SendTo),
        (place, 0usize..4).prop_map(|(at, messages)| Operation::Drain(at, messages)),
    ]
}

struct Peer {
    connection: ConnectionId,
    id: Bytes,
    holder: Holder,
    backlog: Backlog,
    refused: Option<usize>,
}

#[derive(Default)]
struct Model {
    peers: Vec<Peer>,
    holders: Vec<(Bytes, Holder)>,
    counts: RouterCounts,
    drained: Vec<Bytes>,
}

impl Model {
    fn remove(&mut self, place: usize) -> Bytes {
        let Peer { id, refused, .. } = self.peers.remove(place);
        self.drained.extend(refused.map(|_| id.clone()));
        id
    }

    fn refused(&mut self, to: &[u8]) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.id == to) {
            peer.refused = peer.refused.or(Some(peer.backlog.bytes));
        }
    }

    fn route(&mut self, mandatory: bool, to: &[u8], size: usize) -> Result<Routed, Unsent> {
        let mut peers = self.peers.iter_mut();
        let unsent = match peers.find(|peer| peer.id == to) {
            None => Unsent::Unreachable,
            Some(Peer { connection, backlog, .. }) => {
                if backlog.messages == 0 || backlog.messages < MOST.messages && backlog.bytes < MOST.bytes {
                    backlog.messages += 1;
                    backlog.bytes += size + 9;
                    return Ok(Routed::To(*connection));
                }
                Unsent::Full
            }
        };
        if mandatory {
            return Err(unsent);
        }
        match unsent {
            Unsent::Full => self.counts.full += 1,
            Unsent::Unreachable => self.counts.unreachable += 1,
        }
        Ok(Routed::Dropped(unsent))
    }
}

fn bytes(number: u8) -> Bytes {
    if number == 0 { Bytes::new() } else { Bytes::from(vec![number; 3]) }
}

proptest! {
    #[test]
    fn does_what_its_model_does(mandatory: bool, handover: bool, operations in vec(operation(), 0..200)) {
        let mut router = Router::new(MOST, mandatory, handover, FIRST);
        let mut model = Model::default();
        // All connections so far, so that lookups of those that are gone are tested too.
        let mut known: Vec<(ConnectionId, Bytes)> = vec![];
        for (at, operation) in operations.into_iter().enumerate() {
            match operation {
                Operation::Connect { identity, user, host } => {
                    let connection = ConnectionId(at as u64);
                    let host = host.map(|host| [10, 0, 0, host].into());
                    let holder = Holder { user: user.map(bytes), host };
                    let given = router.connected(connection, bytes(identity), holder.clone());
                    let before = model.peers.iter().position(|peer| identity > 0 && peer.id == bytes(identity));
                    let replaced = before.map(|place| model.peers[place].connection);
                    if before.is_some_and(|place| {
                        !handover || model.peers[place].holder != holder
                    }) {
                        model.counts.taken += 1;
                        prop_assert_eq!(given, Err(Reason::IdentityTaken));
                        continue;
                    }
                    if let Some(place) = before {
                        model.counts.handed_over += 1;
                        model.remove(place);
                    }
                    let id = given.clone().expect("it is let in").routing_id;
                    prop_assert_eq!(given, Ok(Admitted { routing_id: id.clone(), replaced }));
                    let is_given = id[0] == 0 && id.len() == 5;
                    let first = model.holders.iter().find(|(id, _)| *id == bytes(identity)).map(|(_, first)| first);
                    prop_assert_eq!(is_given, identity == 0 || first.is_some_and(|first| *first != holder));
                    if identity > 0 && first.is_none() {
                        model.holders.push((bytes(identity), holder.clone()));
                    }
                    prop_assert!(is_given || id == bytes(identity));
                    prop_assert!(model.peers.iter().all(|peer| peer.id != id));
                    known.push((connection, id.clone()));
                    model.peers.push(Peer { connection, id, holder, backlog: Backlog::default(), refused: None });
                }
                Operation::Disconnect(place) => {
                    let Some((connection, _)) = known.get(place) else { continue };
                    let place = model.peers.iter().position(|peer| peer.connection == *connection);
                    let id = place.map(|place| model.remove(place));
                    prop_assert_eq!(router.disconnected(*connection), id);
                }
                Operation::Send { to, bytes } => {
                    let Some((_, id)) = known.get(to) else { continue };
                    let routed = router.route(id, &[Bytes::from(vec![0; bytes])]);
                    prop_assert_eq!(routed, model.route(mandatory, id, bytes));
                    if routed == Err(Unsent::Full) {
                        router.handle_refused(id);
                        model.refused(id);
                    }
                }
                Operation::SendTo(identity) => {
                    let routed = router.route(&bytes(identity), &[Bytes::new()]);
                    prop_assert_eq!(routed, model.route(mandatory, &bytes(identity), 0));
                }
                Operation::Drain(place, messages) => {
                    let Some((connection, _)) = known.get(place) else { continue };
                    let backlog = Backlog { messages, bytes: messages * 10 };
                    router.handle_backlog(*connection, backlog);
                    if let Some(peer) = model.peers.iter_mut().find(|peer| peer.connection == *connection) {
                        peer.backlog = backlog;
                        if peer.refused.is_some_and(|refused| backlog.bytes * 2 <= refused) {
                            peer.refused = None;
                            model.drained.push(peer.id.clone());
                        }
                    }
                }
            }
            prop_assert_eq!((router.len(), router.counts()), (model.peers.len(), model.counts));
            prop_assert_eq!(router.has_drained(), !model.drained.is_empty());
            while let Some(id) = router.poll_drained() {
                prop_assert_eq!(Some(id), model.drained.pop());
            }
            prop_assert!(model.drained.is_empty());
            prop_assert_eq!(router.is_empty(), model.peers.is_empty());
            for Peer { connection, id, .. } in &model.peers {
                prop_assert_eq!((router.connection(id), router.routing_id(*connection)), (Some(*connection), Some(id)));
            }
        }
    }
}
