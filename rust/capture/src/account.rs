use std::path::Path;

use arrow_array::RecordBatch;
use trunkline_wire::cdtp::RunBook;

use crate::CaptureError;

/// What is kept beside the segments of a capture of what its messages come to together.
///
/// It is told of all rows in their order, and written down with each segment: what came to its end by then and what is
/// too large to be said twice, neither of which a later file repeats, and how the rest stands.
pub(crate) trait Account: Send {
    /// Takes in the rows of a batch, which may be of the journal or of a segment.
    fn record(&mut self, segment: u64, first_seq: u64, batch: &RecordBatch);

    /// The bytes, roughly, of what is in memory until it is written down.
    fn unwritten_bytes(&self) -> usize;

    /// Forgets what no later file repeats, as it has been written down.
    fn forget_written(&mut self);

    /// The segments, from one on, in which something begins that is not over, each as often as something does.
    fn open_segments(&self, from: u64) -> Vec<u64>;

    /// How often it has lost sight of something, since there was too much.
    fn let_go(&self) -> u64;

    /// What to write down beside a segment.
    fn to_lines(&self) -> Vec<u8>;

    /// Goes on from what such a file says, and tells whether it says something that no later one repeats.
    fn go_on_from(&mut self, path: &Path, lines: &[u8]) -> Result<bool, CaptureError>;

    /// The same once more.
    fn copy(&self) -> Box<dyn Account>;
}

/// The account that captures keep: of the protocols there are, CDTP's of its runs.
pub(crate) fn new() -> Box<dyn Account> {
    Box::new(RunBook::default())
}
