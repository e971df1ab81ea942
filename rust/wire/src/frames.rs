//! The frames of one message, and what they cost whoever keeps them.

use bytes::Bytes;
use smallvec::SmallVec;

/// The frames of one message, in order. Most messages of the protocols have up to three.
pub type Frames = SmallVec<[Bytes; 3]>;

/// The most frames a message may have.
pub const MAX_FRAMES: usize = 10_000;

/// What a frame costs besides its bytes, wherever it waits: empty frames are not free.
pub const FRAME_COST: usize = 64;

/// What keeping these frames costs, in bytes. Every queue, outbox and batch counts with this.
pub fn cost(frames: &[impl AsRef<[u8]>]) -> usize {
    frames.iter().map(|frame| frame.as_ref().len() + FRAME_COST).sum()
}
