//! What may come up with a capture.

use trunkline_capture::LowSpace;

/// What the user of a capture should know while it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The disk has little room left.
    LowSpace(LowSpace),
    /// Rows are lost from now on, since the disk cannot keep up.
    Losing,
    /// The rows of an open run are deleted, since what is kept leaves no room for them.
    RunsLetGo,
    /// Senders come whose runs cannot be followed beside the others'.
    RunsUnfollowed,
    /// The capture has ended; the role goes on without.
    Failed(String),
}
