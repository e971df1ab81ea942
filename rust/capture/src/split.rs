use std::ops::Range;

use crate::Protocol;

/// Where the parts of a message stand among its frames.
///
/// `envelope`, `header` and `payload` follow one another without a gap, so the three together are the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The frames before the header, often none.
    pub envelope: Range<usize>,
    /// The one frame with the protocol's header, if the message has one.
    pub header: Option<usize>,
    /// What follows, to the last frame.
    pub payload: Range<usize>,
    /// The frame that holds the topic, where its place alone says so.
    pub topic: Option<usize>,
}

/// Splits a message by the position of its frames. Total: any frames of any protocol have a split.
///
/// The routing id of a ROUTER's peer is not part of `frames`.
pub fn split<F: AsRef<[u8]>>(protocol: Protocol, frames: &[F]) -> Split {
    let is_empty = |frame: &F| frame.as_ref().is_empty();
    let envelope = match protocol {
        Protocol::Cdtp | Protocol::MtlData => 0,
        Protocol::Mc0 => usize::from(frames.first().is_some_and(is_empty)),
        Protocol::Dcp | Protocol::MtlControl => frames.iter().position(is_empty).map_or(0, |empty| empty + 1),
        Protocol::Cdt => usize::from(frames.len() > 1),
    };
    let has_header = protocol != Protocol::Cdt && envelope < frames.len();
    let payload = envelope + usize::from(has_header);
    let topic = match protocol {
        Protocol::Dcp => dcp_service(frames, payload),
        Protocol::Mc0 => mc0_topic(frames, payload),
        Protocol::Cdt | Protocol::Cdtp | Protocol::MtlControl | Protocol::MtlData => None,
    };
    Split { envelope: 0..envelope, header: has_header.then_some(envelope), payload: payload..frames.len(), topic }
}

/// The service follows the type frame of a registration (1) and of a request (4), whose type is one byte, or four in
/// the little-endian form of the oldest peers.
fn dcp_service<F: AsRef<[u8]>>(frames: &[F], payload: usize) -> Option<usize> {
    let kind = frames.get(payload)?.as_ref();
    let names_service = matches!(kind, [1 | 4] | [1 | 4, 0, 0, 0]);
    (names_service && payload + 1 < frames.len()).then_some(payload + 1)
}

/// The value of the first `TOPIC` among the key and value pairs after the verb, which end at an empty key.
fn mc0_topic<F: AsRef<[u8]>>(frames: &[F], payload: usize) -> Option<usize> {
    let mut key = payload;
    while key + 1 < frames.len() && !frames[key].as_ref().is_empty() {
        if frames[key].as_ref() == b"TOPIC" {
            return Some(key + 1);
        }
        key += 2;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The envelope's length, the header's place, the payload's length, the topic's place.
    type Parts = (usize, Option<usize>, usize, Option<usize>);

    fn parts(protocol: Protocol, frames: &[&[u8]]) -> Parts {
        let split = split(protocol, frames);
        (split.envelope.len(), split.header, split.payload.len(), split.topic)
    }

    #[test]
    fn table() {
        use Protocol::{Cdt, Cdtp, Dcp, Mc0, MtlControl, MtlData};
        let rows: &[(Protocol, &[&[u8]], Parts)] = &[
            (Cdtp, &[], (0, None, 0, None)),
            (Cdtp, &[b"h"], (0, Some(0), 0, None)),
            (Cdtp, &[b"", b"a", b"b"], (0, Some(0), 2, None)),
            (Dcp, &[b""], (1, None, 0, None)),
            (Dcp, &[b"", b"DGBX\x01", b"\x01", b"echo"], (1, Some(1), 2, Some(3))),
            (Dcp, &[b"", b"DGBX\x01", b"\x04", b"echo", b"", b"", b"x"], (1, Some(1), 5, Some(3))),
            (Dcp, &[b"", b"DGBX\x01", b"\x04\0\0\0", b"echo"], (1, Some(1), 2, Some(3))),
            (Dcp, &[b"", b"DGBX\x01", b"\x05", b"client", b"", b""], (1, Some(1), 4, None)),
            (Dcp, &[b"", b"DGBX\x01", b"\x04"], (1, Some(1), 1, None)),
            (Dcp, &[b"hop", b"", b"DGBX\x01", b"\x02"], (2, Some(2), 1, None)),
            (Dcp, &[b"no", b"delimiter"], (0, Some(0), 1, None)),
            (Mc0, &[b"SUB", b"TOPIC", b"t"], (0, Some(0), 2, Some(2))),
            (Mc0, &[b"", b"PUT", b"X-A", b"TOPIC", b"TOPIC", b"t", b"", b"body"], (1, Some(1), 6, Some(5))),
            (Mc0, &[b"SUB", b"", b"TOPIC", b"t"], (0, Some(0), 3, None)),
            (Mc0, &[b"PUT", b"TOPIC"], (0, Some(0), 1, None)),
            (MtlControl, &[b"", b"Connection.Open", b"{}"], (1, Some(1), 1, None)),
            (MtlControl, &[b"id", b"", b"Connection.Open", b"{}"], (2, Some(2), 1, None)),
            (MtlControl, &[b"200", b"{}"], (0, Some(0), 1, None)),
            (MtlData, &[b"\x01", b""], (0, Some(0), 1, None)),
            (Cdt, &[b"body"], (0, None, 1, None)),
            (Cdt, &[b"NATS/1.0\r\n\r\n", b"body"], (1, None, 1, None)),
        ];
        for (protocol, frames, expected) in rows {
            assert_eq!(parts(*protocol, frames), *expected, "{protocol:?} {frames:?}");
        }
    }

    proptest! {
        #[test]
        fn parts_are_the_message(
            protocol in 0..Protocol::ALL.len(),
            frames in prop::collection::vec(prop_oneof![
                Just(vec![]), Just(b"TOPIC".to_vec()), Just(vec![4]), prop::collection::vec(any::<u8>(), 0..9)
            ], 0..12),
        ) {
            let split = split(Protocol::ALL[protocol], &frames);
            let joined: Vec<usize> = split.envelope.clone().chain(split.header).chain(split.payload.clone()).collect();
            prop_assert_eq!(joined, (0..frames.len()).collect::<Vec<_>>());
            prop_assert!(split.topic.is_none_or(|topic| split.payload.contains(&topic)));
        }
    }
}
