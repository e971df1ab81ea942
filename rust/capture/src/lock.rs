use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::files;
use crate::{CaptureError, CaptureErrorKind};

/// The right to write a capture. The system takes it back when the process ends, however it ends.
///
/// The file stays: removing it would let two writers lock two files of the same name.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Locks an existing directory, or says which process has.
    pub(crate) fn acquire(directory: &Path) -> Result<Self, CaptureError> {
        let path = directory.join(files::LOCK);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| CaptureError::writing(&path, error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(locked(directory, &mut file)),
            Err(TryLockError::Error(error)) => return Err(CaptureError::writing(&path, error)),
        }
        let mut lock = Self { file, path };
        lock.name_holder(&std::process::id().to_string())?;
        Ok(lock)
    }

    /// Gives the directory free.
    pub(crate) fn release(mut self) -> Result<(), CaptureError> {
        self.name_holder("")?;
        // Explicitly, since a child of this process may hold the same open file.
        self.file.unlock().map_err(|error| CaptureError::writing(&self.path, error))
    }

    fn name_holder(&mut self, holder: &str) -> Result<(), CaptureError> {
        let written = (|| {
            self.file.set_len(0)?;
            self.file.rewind()?;
            self.file.write_all(holder.as_bytes())
        })();
        // The name is a courtesy: a full disk must not keep anyone from reading what is there.
        match written.map_err(|error| CaptureError::writing(&self.path, error)) {
            Err(error) if error.kind() != CaptureErrorKind::Full => Err(error),
            _ => Ok(()),
        }
    }
}

fn locked(directory: &Path, file: &mut File) -> CaptureError {
    let mut holder = String::new();
    let what = match file.read_to_string(&mut holder) {
        Ok(_) if !holder.is_empty() => format!("is being written by process {holder}"),
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
        let lock = Lock::acquire(directory.path()).unwrap();
        let refused = Lock::acquire(directory.path()).unwrap_err();
        assert_eq!(refused.kind(), CaptureErrorKind::Locked);
        assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
        lock.release().unwrap();
        let again = Lock::acquire(directory.path()).unwrap();
        drop(again);
        Lock::acquire(directory.path()).unwrap();
    }
}
