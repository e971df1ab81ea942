//! A disk that retries calls when the process has no free descriptor.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::disk::{Disk, DiskFile, Files};
use crate::source::Source;

/// Descriptors that are held in reserve.
const SPARES: usize = 4;

/// The longest that one call waits for a descriptor.
const PATIENCE: Duration = Duration::from_secs(60);

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

pub(crate) struct Patient<D> {
    disk: D,
    spares: Mutex<Vec<File>>,
    patience: Duration,
}

impl<D: Disk> Patient<D> {
    pub(crate) fn new(disk: D) -> Self {
        let patient = Self { disk, spares: Mutex::default(), patience: PATIENCE };
        patient.refill();
        patient
    }

    /// Retries a call that found no descriptor: first with a spare one, then for as long as it may take.
    fn patiently<T>(&self, call: impl Fn(&D) -> io::Result<T>) -> io::Result<T> {
        let end = Instant::now() + self.patience;
        let mut pause = FIRST_PAUSE;
        loop {
            match call(&self.disk) {
                Err(error) if is_want(&error) => {
                    if self.spares.lock().unwrap_or_else(PoisonError::into_inner).pop().is_some() {
                        continue;
                    }
                    if Instant::now() >= end {
                        return Err(error);
                    }
                    thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                result => {
                    self.refill();
                    return result;
                }
            }
        }
    }

    fn refill(&self) {
        let mut spares = self.spares.lock().unwrap_or_else(PoisonError::into_inner);
        while spares.len() < SPARES {
            let Ok(spare) = File::open(if cfg!(windows) { "NUL" } else { "/dev/null" }) else { return };
            spares.push(spare);
        }
    }
}

/// Whether the error means that the process, or the system, has no free descriptor.
fn is_want(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

impl<D: Disk> Files for Patient<D> {
    fn open(&self, path: &Path) -> io::Result<Source> {
        self.patiently(|disk| disk.open(path))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.patiently(|disk| disk.list(directory))
    }
}

impl<D: Disk> Disk for Patient<D> {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.patiently(|disk| disk.create(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.patiently(|disk| disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.patiently(|disk| disk.remove(path))
    }

    fn size_and_time(&self, path: &Path) -> io::Result<(u64, SystemTime)> {
        self.patiently(|disk| disk.size_and_time(path))
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.patiently(|disk| disk.create_directory(path))
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.patiently(|disk| disk.remove_directory(path))
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.patiently(|disk| disk.sync_directory(directory))
    }

    fn free_bytes(&self, directory: &Path) -> Option<u64> {
        self.disk.free_bytes(directory)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::faults::FaultyDisk;

    #[test]
    fn spares_are_used_first_and_got_back() {
        let patient = Patient::new(FaultyDisk::default());
        let spares = || patient.spares.lock().expect("nobody panicked").len();
        assert_eq!(spares(), SPARES);
        let calls = AtomicUsize::new(0);
        let made = patient.patiently(|_| match calls.fetch_add(1, Ordering::SeqCst) {
            0..6 => Err(io::Error::from_raw_os_error(libc::EMFILE)),
            _ => Ok(()),
        });
        assert!(made.is_ok(), "{SPARES} times by a spare one, and then it waits");
        assert_eq!(spares(), SPARES);
        let refused = patient.patiently(|_| Err::<(), _>(io::Error::from(io::ErrorKind::StorageFull)));
        assert_eq!(refused.expect_err("the disk is full").kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn there_is_an_end_to_it() {
        let patient = Patient { patience: Duration::from_millis(30), ..Patient::new(FaultyDisk::default()) };
        let never = patient.patiently(|_| Err::<(), _>(io::Error::from_raw_os_error(libc::ENFILE)));
        assert_eq!(never.expect_err("there never is one").raw_os_error(), Some(libc::ENFILE));
    }
}
