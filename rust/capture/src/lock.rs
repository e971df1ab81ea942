use std::fs::{File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::files;
use crate::local::open_lock;
use crate::settings::Access;
use crate::{CaptureError, CaptureErrorKind};

/// The digits of any process.
const HOLDER_BYTES: u64 = 20;

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
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked(directory, &mut file)),
            Err(TryLockError::Error(error)) => return Err(CaptureError::writing(&path, error)),
        }
        let mut lock = Self { directory: place, file, path };
        lock.name_holder(&std::process::id().to_string())?;
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

fn locked(directory: &Path, file: &mut File) -> CaptureError {
    let mut holder = String::new();
    let what = match file.take(HOLDER_BYTES).read_to_string(&mut holder) {
        Ok(_) if !holder.is_empty() && holder.bytes().all(|digit| digit.is_ascii_digit()) => {
            format!("is being written by process {holder}")
        }
        _ => "is being written by another process".into(),
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
        lock.release().unwrap();
        let again = Lock::acquire(directory.path(), Access::Umask).unwrap();
        drop(again);
        Lock::acquire(directory.path(), Access::Umask).unwrap();
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
