//! Events of a capture that its user should know.

use trunkline_capture::LowSpace;

/// What the user of a capture should know while it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The disk has little room left.
    LowSpace(LowSpace),
    /// Rows are lost from now on, since the disk cannot keep up.
    Losing,
    /// So many segments were deleted, by the limits on kept data, and so many of them had not been copied elsewhere.
    Deleted(u64, u64),
    /// The rows of an open run are deleted, since the limit on kept data leaves no room for them.
    RunsLetGo,
    /// There are more senders than runs can be followed.
    RunsUnfollowed,
    /// The capture has ended; the role goes on without.
    Failed(String),
}
