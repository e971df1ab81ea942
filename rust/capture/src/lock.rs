use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::files;
use crate::local::{open_lock, open_locked};
use crate::settings::Access;
use crate::{CaptureError, CaptureErrorKind};

/// How often, and how long apart, a lock is tried: a reader that looks for the holder has it for a moment.
const TRIES: u32 = 5;
const BETWEEN: Duration = Duration::from_millis(2);

/// The digits of any process and of any inode, and a space between them.
const HOLDER_BYTES: u64 = 41;

/// The right to write a capture. The system releases it when the process ends, however it ends.
///
/// It locks the directory itself, so that removing the file unlocks nothing; and the file, which names the holder, and
/// which earlier versions lock. The file stays.
#[derive(Debug)]
pub(crate) struct Lock {
    /// `None` if directories cannot be locked.
    directory: Option<File>,
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Locks an existing directory, or gives the process that has locked it.
    pub(crate) fn acquire(directory: &Path, access: Access) -> Result<Self, CaptureError> {
        let path = directory.join(files::LOCK);
        let (place, mut file) =
            open_lock(directory, files::LOCK, access).map_err(|error| CaptureError::writing(&path, error))?;
        let place = match place.map(|place| place.try_lock().map(|()| place)).transpose() {
            Ok(place) => place,
            Err(TryLockError::WouldBlock) => return Err(locked(directory, &mut file)),
            // Some network file systems lock only files.
            Err(TryLockError::Error(_)) => None,
        };
        match patiently(|| file.try_lock()) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked(directory, &mut file)),
            Err(TryLockError::Error(error)) => return Err(CaptureError::writing(&path, error)),
        }
        let mut lock = Self { directory: place, file, path };
        let process = std::process::id();
        let holder = inode(&lock.file).map_or_else(|| process.to_string(), |inode| format!("{process} {inode}"));
        lock.name_holder(&holder)?;
        Ok(lock)
    }

    /// Unlocks the directory.
    pub(crate) fn release(mut self) -> Result<(), CaptureError> {
        self.name_holder("")?;
        // Explicitly, since a child of this process may hold the same open file.
        let unlocked = self.directory.as_ref().map_or(Ok(()), File::unlock).and_then(|()| self.file.unlock());
        unlocked.map_err(|error| CaptureError::writing(&self.path, error))
    }

    fn name_holder(&mut self, holder: &str) -> Result<(), CaptureError> {
        let written = (|| {
            self.file.set_len(0)?;
            self.file.rewind()?;
            self.file.write_all(holder.as_bytes())
        })();
        // The name is only informative: a full disk must not prevent reading.
        match written.map_err(|error| CaptureError::writing(&self.path, error)) {
            Err(error) if error.kind() != CaptureErrorKind::Full => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether a directory was locked by a writer, and is not any more.
pub(crate) fn is_released(directory: &Path) -> bool {
    // Each way of not knowing is no.
    let Ok(mut file) = open_locked(directory, files::LOCK) else { return false };
    match holder(&mut file) {
        Ok(holder) if holder.is_empty() => true,
        // One that was killed is still named. The lock is released at once, and a writer that begins tries again. A
        // copy of the file is locked by no one, though the writer that it names may go on where it was copied from.
        Ok(holder) => {
            let noted = holder.split_once(' ').map(|(_, inode)| inode.parse().ok());
            noted.is_none_or(|noted| noted == inode(&file)) && file.try_lock_shared().is_ok()
        }
        Err(_) => false,
    }
}

/// The process that is named as the holder, and the inode of the file it locked.
fn holder(file: &mut File) -> io::Result<String> {
    let mut holder = String::new();
    file.take(HOLDER_BYTES).read_to_string(&mut holder)?;
    Ok(holder)
}

#[cfg(unix)]
fn inode(file: &File) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    file.metadata().ok().map(|metadata| metadata.ino())
}

#[cfg(not(unix))]
const fn inode(_: &File) -> Option<u64> {
    None
}

fn patiently(mut lock: impl FnMut() -> Result<(), TryLockError>) -> Result<(), TryLockError> {
    for _ in 1..TRIES {
        match lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(BETWEEN),
            done => return done,
        }
    }
    lock()
}

fn locked(directory: &Path, file: &mut File) -> CaptureError {
    let holder = holder(file).unwrap_or_default();
    let what = match holder.split(' ').next().and_then(|process| process.parse::<u32>().ok()) {
        Some(process) => format!("is being written by process {process}"),
        None => "is being written by another process".into(),
    };
    CaptureError::new(CaptureErrorKind::Locked, directory, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let lock = Lock::acquire(directory.path(), Access::Umask).unwrap();
        let refused = Lock::acquire(directory.path(), Access::Umask).unwrap_err();
        assert_eq!(refused.kind(), CaptureErrorKind::Locked);
        assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
        assert!(!is_released(directory.path()));
        lock.release().unwrap();
        assert!(is_released(directory.path()));
        let again = Lock::acquire(directory.path(), Access::Umask).unwrap();
        // As if its process had been killed.
        drop(again);
        assert!(is_released(directory.path()));
        Lock::acquire(directory.path(), Access::Umask).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn a_copy_does_not_end_what_its_writer_goes_on_with() {
        let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let lock = Lock::acquire(directory.path(), Access::Umask).unwrap();
        std::fs::copy(directory.path().join(files::LOCK), other.path().join(files::LOCK)).unwrap();
        assert!(!is_released(other.path()));
        lock.release().unwrap();
        std::fs::copy(directory.path().join(files::LOCK), other.path().join(files::LOCK)).unwrap();
        assert!(is_released(other.path()));
    }

    #[test]
    #[cfg(unix)]
    fn removing_the_file_does_not_release_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let lock = Lock::acquire(directory.path(), Access::Umask).unwrap();
        std::fs::remove_file(directory.path().join(files::LOCK)).unwrap();
        let refused = Lock::acquire(directory.path(), Access::Umask).unwrap_err();
        assert_eq!(refused.kind(), CaptureErrorKind::Locked);
        drop(lock);
        Lock::acquire(directory.path(), Access::Umask).unwrap();
    }
}
