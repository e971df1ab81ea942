//! A directory with a file of any bytes in it, and all that reads captures let at it: what they find, if anything, is an
//! error.

use std::fs;
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;
use trunkline_capture::{Capture, CaptureError, compact, recover, verify};

/// In memory, where there is such a place.
static DIRECTORY: LazyLock<Mutex<TempDir>> = LazyLock::new(|| {
    let memory = Path::new("/dev/shm");
    Mutex::new(if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.expect("a directory"))
});

/// An empty directory, until it is dropped.
pub fn directory() -> MutexGuard<'static, TempDir> {
    let directory = DIRECTORY.lock().unwrap_or_else(PoisonError::into_inner);
    for entry in fs::read_dir(directory.path()).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.expect("to be removed");
    }
    directory
}

/// Puts a file into a capture.
pub fn put(directory: &Path, name: &str, contents: &[u8]) {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    fs::write(path, contents).expect("a file");
}

/// Reads a capture in every way there is. What recovery makes of it is a capture in order.
pub fn read(directory: &Path) {
    let _ = rows(directory);
    let _ = Capture::open(directory).and_then(|capture| capture.info());
    let _ = Capture::open(directory).and_then(|capture| capture.runs());
    let _ = verify(directory, &|| true);
    if recover(directory, &|| true).is_ok() {
        let before = rows(directory).ok();
        recover(directory, &|| true).expect("once more");
        assert_eq!(rows(directory).ok(), before);
        let _ = compact(directory, u64::MAX, &|| true);
        assert_eq!(rows(directory).ok(), before);
    }
}

fn rows(directory: &Path) -> Result<usize, CaptureError> {
    Capture::open(directory)?.batches()?.map(|batch| batch.map(|batch| batch.num_rows())).sum()
}
