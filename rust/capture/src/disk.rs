//! Every system call of a writer, so that tests can stop, fail or lose any of them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::SystemTime;

/// A file being written.
pub(crate) trait DiskFile: Write + Send {
    /// Makes what was written survive a power failure. After an error nothing about the file is known.
    fn sync(&mut self) -> io::Result<()>;
}

/// What a writer and its recovery need of a file system.
pub(crate) trait Disk: Send + Sync {
    /// Creates a file, empty even if it was there.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file for reading from its start.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>>;
    /// Replaces `to` by `from` in one step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// The names in a directory.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;
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

/// The file system of the machine.
pub(crate) struct LocalDisk;

impl DiskFile for File {
    fn sync(&mut self) -> io::Result<()> {
        // The size of a file that grew is part of what `sync_data` writes.
        self.sync_data()
    }
}

impl Disk for LocalDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().write(true).create(true).truncate(true).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(directory)? {
            // A name that is no UTF-8 is none of ours.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn size_and_time(&self, path: &Path) -> io::Result<(u64, SystemTime)> {
        let metadata = fs::metadata(path)?;
        Ok((metadata.len(), metadata.modified()?))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    #[cfg(unix)]
    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }

    #[cfg(not(unix))]
    fn sync_directory(&self, _directory: &Path) -> io::Result<()> {
        Ok(())
    }

    #[cfg(unix)]
    fn free_bytes(&self, directory: &Path) -> Option<u64> {
        let space = nix::sys::statvfs::statvfs(directory).ok()?;
        // The types of both differ between platforms.
        #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
        Some(u64::from(space.blocks_available()).saturating_mul(space.fragment_size() as u64))
    }

    #[cfg(not(unix))]
    fn free_bytes(&self, _directory: &Path) -> Option<u64> {
        None
    }
}
