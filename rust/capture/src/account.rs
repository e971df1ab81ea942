use std::path::Path;

use arrow_array::RecordBatch;
use trunkline_wire::cdtp::RunBook;

use crate::CaptureError;

/// What is kept beside the segments of a capture about its messages together.
///
/// It gets all rows in order, and is written down with each segment: what ended by then and what is too large to be
/// repeated, neither of which a later file repeats, and the state of the rest.
pub(crate) trait Account: Send {
    /// Takes in the rows of a batch, which may be of the journal or of a segment.
    fn record(&mut self, segment: u64, first_seq: u64, batch: &RecordBatch);

    /// About how many bytes are in memory until they are written down.
    fn unwritten_bytes(&self) -> usize;

    /// Forgets what no later file repeats, once it has been written down.
    fn forget_written(&mut self);

    /// The segments, from one on, in which something begins that is not over, each once for every such thing.
    fn open_segments(&self, from: u64) -> Vec<u64>;

    /// How often it stopped following something, since there was too much.
    fn let_go(&self) -> u64;

    /// What to write down beside a segment.
    fn to_lines(&self) -> Vec<u8>;

    /// Goes on from such a file; gives whether it holds something that no later one repeats.
    fn go_on_from(&mut self, path: &Path, lines: &[u8]) -> Result<bool, CaptureError>;

    fn copy(&self) -> Box<dyn Account>;
}

/// The account of captures: for CDTP its runs, for other protocols nothing.
pub(crate) fn new() -> Box<dyn Account> {
    Box::new(RunBook::default())
}
