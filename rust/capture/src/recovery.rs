//! Recovers a capture whose writer was killed.

use std::path::Path;
use std::sync::Arc;

use crate::layout::need_capture;
use crate::local::LocalDisk;
use crate::lock::Lock;
use crate::store::{Recovery, Store};
use crate::{Access, CaptureError, import, verify};

/// Publishes what a killed writer left in a capture's journal, unless a writer is running there, and compares all
/// segments with their checksums. It fails once `goes_on` returns false, but the rows are published.
pub fn recover(directory: &Path, goes_on: &dyn Fn() -> bool) -> Result<Recovery, CaptureError> {
    let access = Access::of(directory);
    let disk = LocalDisk::open(directory, access).map_err(|error| CaptureError::reading(directory, error))?;
    need_capture(&disk, directory)?;
    let disk = Arc::new(disk);
    let lock = Lock::acquire(directory, access)?;
    import::clear(directory)?;
    let (_, mut recovery) = Store::open(Arc::clone(&disk) as _, directory, goes_on)?;
    recovery.damaged = verify::damaged(&*disk, directory, goes_on)?;
    lock.release()?;
    Ok(recovery)
}
