//! Replaces a capture by another.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::layout::is_capture;
use crate::local::exchange;
use crate::lock::Lock;
use crate::{Access, CaptureError};

/// The temporary place of the replaced capture, beside the new one, on file systems that cannot exchange names.
const REPLACED: &str = "replaced";

/// Refuses a capture that is being written.
pub fn need_unlocked(directory: &Path) -> Result<(), CaptureError> {
    Lock::acquire(directory, Access::of(directory))?.release()
}

/// Moves a capture to a target. A capture there is removed, and must not be written meanwhile.
///
/// If the file system can exchange names, one of the two is there at any moment; on others a killed call may leave the
/// old one beside the new one, for [`put_back`] to find.
pub fn replace(made: &Path, target: &Path) -> Result<(), CaptureError> {
    let writing = |error| CaptureError::writing(target, error);
    if !is_capture(target) {
        return fs::rename(made, target).map_err(writing);
    }
    let lock = Lock::acquire(target, Access::of(target))?;
    let replaced = swap(made, target).map_err(writing)?;
    // Before the lock is released: a writer that has opened it meanwhile must not begin in what is removed. What cannot
    // be removed does no harm.
    let _ = fs::remove_dir_all(replaced);
    lock.release()
}

/// Restores the name of a capture that a killed [`replace`] left aside, if it did.
pub fn put_back(aside: &Path, target: &Path) -> Result<(), CaptureError> {
    let replaced = aside.join(REPLACED);
    if target.exists() || !replaced.exists() {
        return Ok(());
    }
    fs::rename(replaced, target).map_err(|error| CaptureError::writing(target, error))
}

/// Replaces a directory by another, and gives the path of the replaced one.
fn swap(made: &Path, target: &Path) -> io::Result<PathBuf> {
    if exchange(made, target).is_ok() {
        return Ok(made.to_owned());
    }
    let replaced = made.with_file_name(REPLACED);
    fs::rename(target, &replaced)?;
    fs::rename(made, target).inspect_err(|_| {
        let _ = fs::rename(&replaced, target);
    })?;
    Ok(replaced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::row;
    use crate::{Capture, CaptureErrorKind, Import, Settings, Writer};

    fn made(directory: &Path, rows: i64) {
        let mut import = Import::open(directory, Settings::default()).unwrap();
        for at in 0..rows {
            import.append(&row(at)).unwrap();
        }
        import.commit().unwrap();
    }

    fn messages(directory: &Path) -> u64 {
        Capture::open(directory).unwrap().info().unwrap().messages
    }

    #[test]
    fn one_takes_the_place_of_another_or_of_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let (new, target) = (scratch.path().join("new"), scratch.path().join("target"));
        for rows in [2, 3] {
            made(&new, rows);
            replace(&new, &target).unwrap();
            assert_eq!(messages(&target), u64::try_from(rows).unwrap());
            assert!(!new.exists());
        }
    }

    #[test]
    fn one_that_is_written_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let (new, target) = (scratch.path().join("new"), scratch.path().join("target"));
        made(&new, 2);
        let writer = Writer::open(&target, Settings::default(), || {}).unwrap();
        assert_eq!(need_unlocked(&target).unwrap_err().kind(), CaptureErrorKind::Locked);
        assert_eq!(replace(&new, &target).unwrap_err().kind(), CaptureErrorKind::Locked);
        writer.close().unwrap();
        need_unlocked(&target).unwrap();
        replace(&new, &target).unwrap();
        assert_eq!(messages(&target), 2);
    }

    #[test]
    fn what_was_put_aside_is_put_back() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("target");
        put_back(scratch.path(), &target).unwrap();
        assert!(!target.exists());
        made(&scratch.path().join(REPLACED), 2);
        put_back(scratch.path(), &target).unwrap();
        assert_eq!(messages(&target), 2);
        made(&scratch.path().join(REPLACED), 3);
        put_back(scratch.path(), &target).unwrap();
        assert_eq!(messages(&target), 2);
    }
}
