//! The frames of one message, and what it costs to keep them.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

/// The frames of one message, in order. Most messages of the protocols have up to three.
pub type Frames = SmallVec<[Bytes; 3]>;

/// The frames of an outgoing message: its own, or shared by all receivers.
#[derive(Clone, Debug)]
pub enum Parcel {
    Own(Frames),
    /// Shared frames, from this one on.
    Shared(Arc<Frames>, usize),
}

impl Deref for Parcel {
    type Target = [Bytes];

    #[inline]
    fn deref(&self) -> &[Bytes] {
        match self {
            Self::Own(frames) => frames,
            Self::Shared(frames, from) => &frames[*from..],
        }
    }
}

impl Default for Parcel {
    fn default() -> Self {
        Self::Own(Frames::new())
    }
}

impl From<Frames> for Parcel {
    fn from(frames: Frames) -> Self {
        Self::Own(frames)
    }
}

impl From<Parcel> for Frames {
    fn from(parcel: Parcel) -> Self {
        match parcel {
            Parcel::Own(frames) => frames,
            Parcel::Shared(frames, from) => frames[from..].iter().cloned().collect(),
        }
    }
}

impl PartialEq for Parcel {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Parcel {}

/// The most bytes of a message that an answer repeats: a peer that does not read its answers makes others keep them.
pub const ECHO_BYTES: usize = 16 << 10;

/// The most frames a message may have.
pub const MAX_FRAMES: usize = 10_000;

/// The overhead of a frame, wherever it is queued: empty frames are not free.
pub const FRAME_COST: usize = 64;

/// The bytes of these frames.
#[inline]
pub fn nbytes(frames: &[impl AsRef<[u8]>]) -> u64 {
    frames.iter().map(|frame| frame.as_ref().len() as u64).sum()
}

/// What keeping these frames costs, in bytes. Every queue, outbox and batch counts with this.
#[inline]
pub fn cost(frames: &[impl AsRef<[u8]>]) -> usize {
    frames.iter().map(|frame| frame.as_ref().len() + FRAME_COST).sum()
}
