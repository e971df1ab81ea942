//! Every call of a writer or reader to the system, so that tests can stop, fail or lose any of them, and so that what is
//! only read need not be on a disk.

use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

use crate::source::Source;

/// A file being written.
pub(crate) trait DiskFile: Write + Send {
    /// Makes what was written survive a power failure. After an error nothing about the file is known.
    fn sync(&mut self) -> io::Result<()>;
}

/// What a reader needs of where a capture is. What is in a capture may be anybody's: links are not followed, and what is
/// no regular file is not opened; both are [`io::ErrorKind::InvalidData`].
pub(crate) trait Files: Send + Sync {
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Source>;
    /// The names in a directory.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;
}

/// What a writer and its recovery need of a file system.
pub(crate) trait Disk: Files {
    /// Creates a file, in the place of one that was there.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Replaces `to` by `from` in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The bytes of a file, and when it was last written to.
    fn size_and_time(&self, path: &Path) -> io::Result<(u64, SystemTime)>;
    /// Creates a directory, unless it is there.
    fn create_directory(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory with nothing in it.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in a directory survive a power failure.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;
    /// The bytes an unprivileged writer has left; `None` where the system does not say.
    fn free_bytes(&self, directory: &Path) -> Option<u64>;
}
