//! How much memory and time a peer may take.

use std::time::Duration;

use trunkline_wire::{Backlog, MAX_FRAMES};

/// The limits of every peer; each one ends a connection with its own [`Reason`](crate::Reason).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The time from the connection to the end of its handshake.
    pub handshake_time: Duration,
    /// The bytes of a peer up to the end of its handshake; and the most of a command after that.
    pub handshake_bytes: usize,
    /// The bytes of one frame of a message: refused at its head.
    pub frame_bytes: u64,
    /// The bytes of one message, all frames together: refused at the head of the frame that passes them.
    pub message_bytes: u64,
    /// The frames of one message: refused at the head of the first that is too many.
    pub message_frames: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake_time: Duration::from_secs(10),
            handshake_bytes: 64 << 10,
            frame_bytes: 1 << 30,
            message_bytes: (1 << 30) + ENVELOPE,
            message_frames: MAX_FRAMES,
        }
    }
}

/// What a message may have besides a frame of the largest size.
const ENVELOPE: u64 = 64 << 10;

impl Limits {
    /// With frames of this size, and messages of little more.
    #[must_use]
    pub fn with_frames_of(self, bytes: u64) -> Self {
        Self { frame_bytes: bytes, message_bytes: bytes.saturating_add(ENVELOPE), ..self }
    }
}

/// How much may be pending for a peer before it is full: by messages or by bytes, whichever comes first. One message
/// always may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HighWater {
    pub messages: usize,
    /// Their bytes.
    pub bytes: usize,
}

impl HighWater {
    /// Whether another message may be pending.
    pub const fn admits(&self, waiting: Backlog) -> bool {
        waiting.messages == 0 || (waiting.messages < self.messages && waiting.bytes < self.bytes)
    }
}

impl Default for HighWater {
    /// As many messages as libzmq has by default, and 16 MiB.
    fn default() -> Self {
        Self { messages: 1000, bytes: 16 << 20 }
    }
}
