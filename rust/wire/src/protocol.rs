//! The definition of a protocol: its name, how its messages are split, which of them are valid, and the faults of
//! others.

use std::ops::Range;

use crate::{DecodeError, ErrorKind, Framing};

/// The positions of the parts of a message.
///
/// `envelope`, `header` and `payload` follow each other without a gap: together they are the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The frames before the header, often none.
    pub envelope: Range<usize>,
    /// The frame with the protocol's header, if the message has one.
    pub header: Option<usize>,
    /// The frames after it.
    pub payload: Range<usize>,
    /// The first frame of the payload that is never decoded; the number of frames if all are decoded.
    pub body: usize,
    /// The frame with the topic, if its position shows that.
    pub topic: Option<usize>,
}

impl Split {
    /// An envelope of this many frames, a header if there is one more, and a payload that is decoded.
    pub(crate) fn after(envelope: usize, frames: usize) -> Self {
        let header = (envelope < frames).then_some(envelope);
        let payload = envelope + usize::from(header.is_some());
        Self { envelope: 0..envelope, header, payload: payload..frames, body: frames, topic: None }
    }

    /// The same with a payload that is not decoded.
    pub(crate) const fn opaque(self) -> Self {
        Self { body: self.payload.start, ..self }
    }

    /// How many frames of the payload precede its body.
    pub const fn head(&self) -> usize {
        self.body - self.payload.start
    }
}

/// The frames up to the first empty one, which ends an envelope; none without it.
pub(crate) fn up_to_empty(frames: &[impl AsRef<[u8]>]) -> usize {
    frames.iter().position(|frame| frame.as_ref().is_empty()).map_or(0, |empty| empty + 1)
}

/// A message is invalid, but may be valid with other settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownSubject;

/// A framing of a protocol, represented by a type without values.
pub trait Protocol: 'static {
    /// Its stable name, also in the rows of a capture.
    const NAME: &'static str;
    /// Whether messages go one way without answers, so that recorded ones can be replayed.
    const ONE_WAY: bool = false;
    /// The kinds of faults of invalid messages.
    const KINDS: &'static [ErrorKind];
    /// Which messages are valid; the default follows the specification.
    type Settings: Default;
    /// A valid message.
    type Layout;

    /// Splits a message by the positions of its frames. Total: any frames have a split. The routing id of a ROUTER's
    /// peer is not part of `frames`.
    ///
    /// A message that some reader may refuse has no body, as captures then keep all its frames.
    fn split(frames: &[impl AsRef<[u8]>]) -> Split;

    /// Which sender, service, topic or resource a message names. Without one every reader finds none in its frames,
    /// whatever its settings.
    ///
    /// # Errors
    /// If some settings may find one.
    fn subject<'a>(_frames: &[&'a [u8]]) -> Result<Option<&'a [u8]>, UnknownSubject> {
        Ok(None)
    }

    /// Decodes the frames of one message.
    fn decode(frames: &[impl AsRef<[u8]>], settings: &Self::Settings) -> Result<Self::Layout, DecodeError>;
}

/// Defines values for the framings, for use where a framing is known at run time only.
macro_rules! framings {
    ($($(#[doc = $doc:literal])* $name:ident: $framing:ty,)*) => {
        /// A framing as a value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Framing {
            $($(#[doc = $doc])* $name,)*
        }

        impl Framing {
            /// Every framing, in the order of the enum.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// [`Protocol::NAME`].
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => <$framing as $crate::Protocol>::NAME,)*
                }
            }

            /// [`Protocol::ONE_WAY`].
            pub const fn is_one_way(self) -> bool {
                match self {
                    $(Self::$name => <$framing as $crate::Protocol>::ONE_WAY,)*
                }
            }

            /// [`Protocol::split`].
            #[inline]
            pub fn split(self, frames: &[impl AsRef<[u8]>]) -> $crate::Split {
                match self {
                    $(Self::$name => <$framing as $crate::Protocol>::split(frames),)*
                }
            }

            /// [`Protocol::subject`].
            ///
            /// # Errors
            /// As it says.
            #[inline]
            pub fn subject<'a>(self, frames: &[&'a [u8]]) -> Result<Option<&'a [u8]>, $crate::UnknownSubject> {
                match self {
                    $(Self::$name => <$framing as $crate::Protocol>::subject(frames),)*
                }
            }

            /// The fault of frames by the specification, if any.
            pub fn fault(self, frames: &[impl AsRef<[u8]>]) -> Option<$crate::DecodeError> {
                match self {
                    $(Self::$name => <$framing as $crate::Protocol>::decode(frames, &Default::default()).err(),)*
                }
            }
        }
    };
}
pub(crate) use framings;

impl Framing {
    /// The framing of this name; the first if there are several.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|framing| framing.name() == name)
    }

    /// The framing of these frames among those of the same name, which MTL's two flows share.
    #[must_use]
    pub fn of(self, frames: &[impl AsRef<[u8]>]) -> Self {
        if !matches!(self, Self::MtlControl | Self::MtlData) {
            self
        } else if crate::mtl::is_data(frames) {
            Self::MtlData
        } else {
            Self::MtlControl
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The length of the envelope, the position of the header, the length of the payload and of its decoded part, and
    /// the position of the topic.
    type Parts = (usize, Option<usize>, usize, usize, Option<usize>);

    fn parts(framing: Framing, frames: &[&[u8]]) -> Parts {
        let split = framing.split(frames);
        (split.envelope.len(), split.header, split.payload.len(), split.head(), split.topic)
    }

    #[test]
    fn table() {
        use Framing::{Cdt, Cdtp, Dcp, Mc0, MtlControl, MtlData};
        let rows: &[(Framing, &[&[u8]], Parts)] = &[
            (Cdtp, &[], (0, None, 0, 0, None)),
            (Cdtp, &[b"h"], (0, Some(0), 0, 0, None)),
            (Cdtp, &[b"", b"a", b"b"], (0, Some(0), 2, 0, None)),
            (Dcp, &[b""], (1, None, 0, 0, None)),
            (Dcp, &[b"", b"DGBX\x01", b"\x01", b"echo"], (1, Some(1), 2, 2, Some(3))),
            (Dcp, &[b"", b"DGBX\x01", b"\x04", b"echo", b"", b"", b"x"], (1, Some(1), 5, 4, Some(3))),
            (Dcp, &[b"", b"DGBX\x01", b"\x04", b"echo", b"", b"m", b"", b"x", b""], (1, Some(1), 7, 5, Some(3))),
            (Dcp, &[b"", b"DGBX\x01", b"\x04", b"", b"c", b"", b"", b""], (1, Some(1), 6, 5, Some(3))),
            (Dcp, &[b"", b"DGBX\x01", b"\x04\0\0\0", b"echo"], (1, Some(1), 2, 2, Some(3))),
            (Dcp, &[b"", b"DGBX\x01", b"\x04\0\0\0", b"echo", b"", b"", b"x"], (1, Some(1), 5, 5, Some(3))),
            (Dcp, &[b"", b"DGBX\x02", b"\x04", b"echo", b"", b"", b"x"], (1, Some(1), 5, 5, Some(3))),
            (Dcp, &[b"hop", b"", b"DGBX\x01", b"\x04", b"echo", b"", b"", b"x"], (2, Some(2), 5, 5, Some(4))),
            (Dcp, &[b"", b"DGBX\x01", b"\x05", b"client", b"", b""], (1, Some(1), 4, 4, None)),
            (Dcp, &[b"", b"DGBX\x01", b"\x05", b"client", b"", b"", b"x"], (1, Some(1), 5, 4, None)),
            (Dcp, &[b"", b"DGBX\x01", b"\x05", b"", b"", b"", b"x"], (1, Some(1), 5, 5, None)),
            (Dcp, &[b"", b"DGBX\x01", b"\x04"], (1, Some(1), 1, 1, None)),
            (Dcp, &[b"hop", b"", b"DGBX\x01", b"\x02"], (2, Some(2), 1, 1, None)),
            (Dcp, &[b"no", b"delimiter"], (0, Some(0), 1, 1, None)),
            (Mc0, &[b"SUB", b"TOPIC", b"t"], (0, Some(0), 2, 2, Some(2))),
            (Mc0, &[b"", b"PUT", b"X-A", b"TOPIC", b"TOPIC", b"t", b"", b"body"], (1, Some(1), 6, 5, Some(5))),
            (Mc0, &[b"SUB", b"", b"TOPIC", b"t"], (0, Some(0), 3, 3, None)),
            (Mc0, &[b"MESSAGE", b"TOPIC", b"a", b"TOPIC", b"b", b""], (0, Some(0), 5, 5, Some(4))),
            (Mc0, &[b"PUT", b"X-A", b"t", b"", b"body"], (0, Some(0), 4, 4, None)),
            (Mc0, &[b"PUT", b"TOPIC"], (0, Some(0), 1, 1, None)),
            (MtlControl, &[b"", b"Connection.Open", b"{}"], (1, Some(1), 1, 1, None)),
            (MtlControl, &[b"id", b"", b"Connection.Open", b"{}"], (2, Some(2), 1, 1, None)),
            (MtlControl, &[b"200", b"{}"], (0, Some(0), 1, 1, None)),
            (MtlData, &[b"\x01", b""], (0, Some(0), 1, 1, None)),
            (MtlData, &[b"\x08", b""], (0, Some(0), 1, 0, None)),
            (MtlData, &[b"\x02\0\0\0\0\0\0\0\x01", b"200"], (0, Some(0), 1, 1, None)),
            (MtlData, &[b"\x05\0\0\0\0\0\0\0\x01\0\0\0\0\0", b"body"], (0, Some(0), 1, 0, None)),
            (Cdt, &[b"body"], (0, None, 1, 1, None)),
            (Cdt, &[b"NATS/1.0\r\n\r\n", b"body"], (1, None, 1, 1, None)),
        ];
        for (framing, frames, expected) in rows {
            assert_eq!(parts(*framing, frames), *expected, "{framing:?} {frames:?}");
        }
    }

    #[test]
    fn a_name_leads_to_its_framing() {
        for framing in Framing::ALL {
            assert_eq!(Framing::named(framing.name()).map(Framing::name), Some(framing.name()));
        }
        assert_eq!(Framing::named("CDTP"), None);
    }

    proptest! {
        #[test]
        fn parts_are_the_message(
            framing in prop::sample::select(Framing::ALL),
            frames in prop::collection::vec(prop_oneof![
                Just(vec![]), Just(b"TOPIC".to_vec()), Just(vec![4]), Just(b"DGBX\x01".to_vec()),
                prop::collection::vec(any::<u8>(), 0..9)
            ], 0..12),
        ) {
            let split = framing.split(&frames);
            let joined: Vec<usize> = split.envelope.clone().chain(split.header).chain(split.payload.clone()).collect();
            prop_assert_eq!(joined, (0..frames.len()).collect::<Vec<_>>());
            prop_assert!(split.topic.is_none_or(|topic| split.payload.contains(&topic)));
            prop_assert!((split.payload.start..=split.payload.end).contains(&split.body));
        }
    }
}
