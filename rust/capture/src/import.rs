//! Imports of rows, all or none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use crate::files;
use crate::layout::need_room;
use crate::local::{LocalDisk, make_directory};
use crate::lock::Lock;
use crate::store::Store;
use crate::{CaptureError, Progress, Row, Settings, Writer};

/// An import into a capture: its segments are written aside, and moved in when all are there.
///
/// Dropped without [`commit`](Self::commit) it leaves no row behind.
pub struct Import {
    /// `None` once there is nothing left to undo.
    writer: Option<Writer>,
    woken: Receiver<()>,
    store: Store,
    directory: PathBuf,
    is_new: bool,
    lock: Option<Lock>,
}

impl Import {
    /// Locks a capture, created if absent, for an import.
    pub fn open(directory: &Path, settings: Settings) -> Result<Self, CaptureError> {
        need_room(directory)?;
        let is_new = !directory.exists();
        let writing = |error| CaptureError::writing(directory, error);
        make_directory(directory, settings.access).map_err(writing)?;
        let lock = Lock::acquire(directory, settings.access)?;
        clear(directory)?;
        let disk = LocalDisk::open(directory, settings.access).map_err(writing)?;
        let (store, _) = Store::open(Arc::new(disk), directory, &|| true)?;
        let (wake, woken) = sync_channel(1);
        let aside = directory.join(files::IMPORT);
        store.begin_aside(&aside)?;
        let writer = Writer::open(&aside, settings, move || {
            // One pending wake is enough.
            let _ = wake.try_send(());
        })?;
        Ok(Self { writer: Some(writer), woken, store, directory: directory.to_owned(), is_new, lock: Some(lock) })
    }

    /// Adds a message, waiting for the disk if necessary.
    pub fn append<F: AsRef<[u8]>>(&mut self, row: &Row<'_, F>) -> Result<(), CaptureError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        while !writer.has_room() {
            if let Some(failure) = writer.progress().failure {
                return Err(failure);
            }
            // The writer keeps its end as long as it lives.
            let _ = self.woken.recv();
        }
        writer.append(row);
        Ok(())
    }

    /// Moves the rows in: from here on they are durable and visible.
    pub fn commit(mut self) -> Result<Progress, CaptureError> {
        let Some(writer) = self.writer.take() else { return Ok(Progress::default()) };
        let progress = writer.close()?;
        self.store.adopt(&self.directory.join(files::IMPORT))?;
        self.is_new = false;
        clear(&self.directory)?;
        if let Some(lock) = self.lock.take() {
            lock.release()?;
        }
        Ok(progress)
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        let Some(lock) = self.lock.take() else { return };
        drop(self.writer.take());
        // What cannot be removed now is removed at the next start.
        let _ = clear(&self.directory);
        if self.is_new {
            let _ = fs::remove_dir_all(self.directory.join(files::META));
            let _ = fs::remove_file(self.directory.join(files::LOCK));
            let _ = fs::remove_dir(&self.directory);
        }
        let _ = lock.release();
    }
}

/// Removes what an unfinished import left. Needs the lock.
pub(crate) fn clear(directory: &Path) -> Result<(), CaptureError> {
    let aside = directory.join(files::IMPORT);
    match fs::remove_dir_all(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CaptureError::writing(&aside, error)),
        _ => Ok(()),
    }
}

/// A row of ten bytes.
#[cfg(test)]
pub(crate) fn row(received_at_ns: i64) -> Row<'static, &'static [u8]> {
    Row {
        received_at_ns,
        framing: trunkline_wire::Framing::Cdtp,
        endpoint: None,
        peer: None,
        direction: crate::Direction::In,
        topic: None,
        reply_to: None,
        frames: &[b"header", b"body"],
        error: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capture, CaptureErrorKind};

    fn import(directory: &Path, rows: i64) -> Import {
        let settings = Settings { segment_bytes: 100, ..Settings::default() };
        let mut import = Import::open(directory, settings).unwrap();
        for at in 0..rows {
            import.append(&row(at)).unwrap();
        }
        import
    }

    #[test]
    fn all_rows_come_in_and_numbers_go_on() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("new");
        for run in 1..=2 {
            assert_eq!(import(&directory, 25).commit().unwrap().durable, 25);
            let capture = Capture::open(&directory).unwrap();
            let info = capture.info().unwrap();
            assert_eq!((info.messages, info.segments), (25 * run, 3 * run));
            let seqs: Vec<i64> = capture
                .batches()
                .unwrap()
                .flat_map(|batch| {
                    use arrow_array::cast::AsArray as _;
                    batch.unwrap()["seq"].as_primitive::<arrow_array::types::Int64Type>().values().to_vec()
                })
                .collect();
            assert!(seqs.iter().zip(0..).all(|(seq, expected)| *seq == expected), "{seqs:?}");
        }
        assert!(!directory.join(files::IMPORT).exists());
    }

    #[test]
    fn a_dropped_import_leaves_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("new");
        drop(import(&directory, 25));
        assert!(!directory.exists());
        import(&directory, 25).commit().unwrap();
        drop(import(&directory, 30));
        assert_eq!(Capture::open(&directory).unwrap().info().unwrap().messages, 25);
        assert!(!directory.join(files::IMPORT).exists());
    }

    #[test]
    fn a_killed_import_is_cleared_by_the_next_writer() {
        let scratch = tempfile::tempdir().unwrap();
        import(scratch.path(), 10).commit().unwrap();
        let aside = scratch.path().join(files::IMPORT);
        fs::create_dir(&aside).unwrap();
        fs::write(aside.join(files::segment(1)), "left").unwrap();
        Writer::open(scratch.path(), Settings::default(), || {}).unwrap().close().unwrap();
        assert!(!aside.exists());
    }

    #[test]
    fn an_import_has_the_capture_to_itself() {
        let scratch = tempfile::tempdir().unwrap();
        let import = import(scratch.path(), 1);
        let refused = Writer::open(scratch.path(), Settings::default(), || {}).err().unwrap();
        assert_eq!(refused.kind(), CaptureErrorKind::Locked);
        drop(import);
    }
}
