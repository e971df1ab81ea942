//! A REQ sends one request after the other, and takes the reply only from the peer that got it.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use trunkline_wire::Frames;
use trunkline_zmtp::HighWater;
use trunkline_zmtp::patterns::{Answer, ConnectionId, Placed, Req};

#[derive(Clone, Debug)]
enum Operation {
    Connect(u64),
    Disconnect(u64),
    Ask,
    Hear { from: u64, has_delimiter: bool },
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        (0u64..3).prop_map(Operation::Connect),
        (0u64..3).prop_map(Operation::Disconnect),
        Just(Operation::Ask),
        (0u64..3, any::<bool>()).prop_map(|(from, has_delimiter)| Operation::Hear { from, has_delimiter }),
    ]
}

fn frames(frames: &[&'static [u8]]) -> Frames {
    frames.iter().map(|frame| Bytes::from_static(frame)).collect()
}

proptest! {
    #[test]
    fn does_what_its_model_does(operations in vec(operation(), 0..200)) {
        let mut req = Req::new(HighWater::default(), true);
        let (mut peers, mut asked, mut strays) = (vec![], None, 0);
        for operation in operations {
            match operation {
                Operation::Connect(number) if !peers.contains(&number) => {
                    req.connected(ConnectionId(number), None);
                    peers.push(number);
                }
                Operation::Disconnect(number) if peers.contains(&number) => {
                    peers.retain(|peer| *peer != number);
                    let is_lost = asked == Some(number);
                    prop_assert_eq!(req.disconnected(ConnectionId(number)), is_lost);
                    asked = asked.filter(|_| !is_lost);
                }
                Operation::Connect(_) | Operation::Disconnect(_) => {}
                Operation::Ask => {
                    let (placed, request) = req.place(&frames(&[b"a"]));
                    prop_assert_eq!(request, frames(&[b"", b"a"]));
                    match placed {
                        Placed::Now(ConnectionId(number)) => {
                            prop_assert!(asked.is_none() && peers.contains(&number));
                            asked = Some(number);
                        }
                        Placed::Full | Placed::Barred | Placed::Pending => prop_assert!(asked.is_some() || peers.is_empty()),
                    }
                }
                Operation::Hear { from, has_delimiter } => {
                    let message = if has_delimiter { frames(&[b"", b"b"]) } else { frames(&[b"b"]) };
                    let answer = req.receive(ConnectionId(from), message);
                    if has_delimiter && asked == Some(from) {
                        asked = None;
                        prop_assert_eq!(answer, Answer::Reply(frames(&[b"b"])));
                    } else {
                        strays += 1;
                        prop_assert_eq!(answer, Answer::Stray);
                    }
                }
            }
            prop_assert_eq!((req.is_writable(), req.strays()), (asked.is_none() && !peers.is_empty(), strays));
        }
    }
}
