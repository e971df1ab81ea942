//! Every system call of a writer or reader, so that tests can stop, fail or lose any of them, and so that what is only
//! read need not be on a disk.

use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

use crate::source::Source;

/// A file being written.
pub(crate) trait DiskFile: Write + Send {
    /// Makes what was written survive a power failure. After an error the state of the file is unknown.
    fn sync(&mut self) -> io::Result<()>;
}

/// The calls of a reader. The contents of a capture are not trusted: links are not followed, and only regular files are
/// opened; anything else is [`io::ErrorKind::InvalidData`].
pub(crate) trait Files: Send + Sync {
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Source>;
    /// The bytes of a file.
    fn size(&self, path: &Path) -> io::Result<u64> {
        self.open(path).map(|file| file.bytes())
    }
    /// Whether each call is a request, several of which are answered in the time of one.
    fn is_far(&self) -> bool {
        false
    }
    /// The names in a directory.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;
}

/// The calls of a writer and its recovery.
pub(crate) trait Disk: Files {
    /// Creates a file, replacing one that exists.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Replaces `to` by `from` in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The bytes of a file, and when it was last written to.
    fn size_and_time(&self, path: &Path) -> io::Result<(u64, SystemTime)>;
    /// Creates a directory, if it does not exist.
    fn create_directory(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in a directory survive a power failure.
    fn sync_directory(&self, directory: &Path) -> io::Result<()>;
    /// The free bytes of an unprivileged writer; `None` if the system does not report them.
    fn free_bytes(&self, directory: &Path) -> Option<u64>;
}
