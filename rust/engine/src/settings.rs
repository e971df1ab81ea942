//! Where a role records, and why it did not start.

use std::fmt;

use crate::recording::Recording;
use crate::transport::TransportError;

/// Where a role's traffic is recorded.
pub struct Capture {
    /// The recording that it is added to.
    pub recording: Recording,
    /// Whether the recording ends with the role.
    pub is_owner: bool,
    /// The framing of its rows.
    pub framing: trunkline_wire::Framing,
    /// What happens when it cannot keep up.
    pub overflow: CaptureOverflow,
}

/// What a role does when its capture cannot keep up, or fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureOverflow {
    /// Goes on, and counts the rows that are lost.
    #[default]
    Count,
    /// Stops reading until there is room; goes on, and counts, when the capture fails.
    Block,
    /// Stops reading until there is room; ends when the capture fails.
    End,
}

/// Why a role did not start.
#[derive(Debug)]
pub enum StartError {
    /// The transport could not be set up.
    Transport(TransportError),
    /// An endpoint could not be bound or connected; empty when the socket itself could not be opened.
    Open { endpoint: String, error: TransportError },
    /// The operating system gave no thread or descriptor.
    System(std::io::Error),
    /// A bug: the engine's thread panicked, with these words.
    Panicked(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(error) => error.fmt(f),
            Self::Open { endpoint, error } if endpoint.is_empty() => error.fmt(f),
            Self::Open { endpoint, error } => write!(f, "{endpoint}: {error}"),
            Self::System(error) => error.fmt(f),
            Self::Panicked(words) => write!(f, "the engine's thread panicked: {words}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<std::io::Error> for StartError {
    fn from(error: std::io::Error) -> Self {
        Self::System(error)
    }
}
