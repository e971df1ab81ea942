use std::path::Path;

use arrow_array::RecordBatch;
use trunkline_wire::cdtp::RunBook;

use crate::CaptureError;

/// What is kept beside the segments of a capture of what its messages come to together.
///
/// It is told of all rows in their order, and written down with each segment: what is over by then, which no later file
/// repeats, and how the rest stands.
pub(crate) trait Account: Send {
    /// Takes in the rows of a batch, which may be of the journal or of a segment.
    fn record(&mut self, segment: u64, first_seq: u64, batch: &RecordBatch);

    /// How much is over, and in memory until it is written down.
    fn over(&self) -> usize;

    /// Forgets what is over, as it has been written down.
    fn forget_over(&mut self);

    /// The first segment that holds rows of what is not over.
    fn first_open_segment(&self) -> Option<u64>;

    /// What to write down beside a segment.
    fn to_file(&self, segment: u64) -> Vec<u8>;

    /// Goes on from what such a file says, and tells how much in it is over.
    fn go_on_from(&mut self, path: &Path, file: &[u8]) -> Result<usize, CaptureError>;

    /// The same once more.
    fn copy(&self) -> Box<dyn Account>;
}

/// The account that captures keep: of the protocols there are, CDTP's of its runs.
pub(crate) fn new() -> Box<dyn Account> {
    Box::new(RunBook::default())
}
