//! The files in a capture's directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::Files;
use crate::files::{self, Listing, Span};
use crate::local::LocalDisk;
use crate::location::Location;
use crate::manifest::Manifest;
use crate::notes::{self, Sum};
use crate::sealed::unseal;
use crate::source::Source;
use crate::{Access, CaptureError, CaptureErrorKind};

/// The largest manifest.
const MANIFEST_BYTES: u64 = 1 << 20;

/// How often a capture is listed again while its segments are being merged.
const LIST_TRIES: usize = 3;

/// The largest file of notes.
pub(crate) const NOTES_BYTES: u64 = 256 << 20;

/// The files of a place that holds a capture.
pub(crate) fn look_for_capture(location: &Location) -> Result<Arc<dyn Files>, CaptureError> {
    let files = location.files()?;
    need_capture(&*files, location.root())?;
    Ok(files)
}

/// Refuses a directory without a capture.
pub(crate) fn need_capture(files: &dyn Files, directory: &Path) -> Result<(), CaptureError> {
    let names = files.list(directory).map_err(|error| CaptureError::reading(directory, error))?;
    if files::hold_capture(&names) {
        return Ok(());
    }
    let what = match files::foreign(&names) {
        Some(name) => format!("is not a capture: it contains {name}"),
        None => "contains no capture".to_owned(),
    };
    Err(CaptureError::new(CaptureErrorKind::Missing, directory, what))
}

/// Whether there is a capture.
pub fn is_capture(location: impl Into<Location>) -> bool {
    let location = location.into();
    // With a manifest the directory need not be listed, which may have a million names.
    let has_manifest =
        |files: &dyn Files| read_manifest(files, location.root()).is_ok_and(|manifest| manifest.is_some());
    location.files().is_ok_and(|files| has_manifest(&*files) || need_capture(&*files, location.root()).is_ok())
}

/// Refuses a directory that holds other files and no capture.
pub(crate) fn need_room(directory: &Path) -> Result<(), CaptureError> {
    // If the directory cannot be listed, it does not exist yet, or a later step reports the error.
    let names = names(directory).unwrap_or_default();
    match files::foreign(&names) {
        Some(name) if !files::hold_capture(&names) => {
            let what = format!("is not a capture: it contains {name}; choose an empty or a new directory");
            Err(CaptureError::new(CaptureErrorKind::Unwritable, directory, what))
        }
        _ => Ok(()),
    }
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    LocalDisk::open(directory, Access::Umask)?.list(directory)
}

/// The names in a capture.
pub(crate) fn list(disk: &dyn Files, directory: &Path) -> Result<Listing, CaptureError> {
    let mut tries = 0..LIST_TRIES;
    loop {
        let names = disk.list(directory).map_err(|error| CaptureError::reading(directory, error))?;
        let mut listing = Listing::new(names);
        let beside = list_if_there(disk, &directory.join(files::META))?;
        let has_batches = beside.iter().any(|name| name == files::BATCHES);
        // Listing takes time: a list made while segments are merged may have neither them nor the merged one, which has
        // notes by then. Notes on a merge that never finished stay until the next writer. Likewise a list made while a
        // batch is published may have some of its segments.
        let has = |span: &Span| listing.covering(*span).is_some();
        let mut is_whole = files::merged(beside).iter().all(has);
        if has_batches && let Some(manifest) = read_manifest(disk, directory)?.filter(|manifest| manifest.is_exact) {
            is_whole &= listing.end_at(manifest.next_segment);
        }
        if is_whole || tries.next().is_none() {
            return Ok(listing);
        }
    }
}

/// A capture's manifest, of this version or of an earlier one.
pub(crate) fn read_manifest(disk: &dyn Files, directory: &Path) -> Result<Option<Manifest>, CaptureError> {
    let sealed = directory.join(files::MANIFEST);
    if let Some(file) = read_if_there(disk, &sealed, MANIFEST_BYTES)? {
        return Manifest::from_json(&sealed, unseal(&sealed, &file)?).map(Some);
    }
    let plain = directory.join(files::PLAIN_MANIFEST);
    read_if_there(disk, &plain, MANIFEST_BYTES)?.map(|file| Manifest::from_json(&plain, &file)).transpose()
}

/// The text of a file of notes, of this version or of an earlier one, which merged nothing; and its name.
pub(crate) fn read_notes(disk: &dyn Files, directory: &Path, span: Span) -> Result<(PathBuf, Vec<u8>), CaptureError> {
    let sealed = directory.join(span.notes());
    match read(disk, &sealed, NOTES_BYTES) {
        Err(error) if error.kind() == CaptureErrorKind::Missing && !span.is_merged() => {
            let plain = directory.join(files::plain_notes(span.first));
            let lines = read(disk, &plain, NOTES_BYTES)?;
            Ok((plain, lines))
        }
        file => {
            let lines = unseal(&sealed, &file?)?.to_vec();
            Ok((sealed, lines))
        }
    }
}

/// The segments that have a file of notes, of this version or of an earlier one, in order.
pub(crate) fn list_notes(disk: &dyn Files, directory: &Path) -> Result<Vec<u64>, CaptureError> {
    let mut all = list_sealed_notes(disk, directory)?;
    all.extend(list_plain_notes(disk, directory)?);
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

pub(crate) fn list_sealed_notes(disk: &dyn Files, directory: &Path) -> Result<Vec<u64>, CaptureError> {
    list_if_there(disk, &directory.join(files::META)).map(|names| files::numbered(names, ".parquet"))
}

/// The merged segments that have a file of notes, in order.
pub(crate) fn list_merged_notes(disk: &dyn Files, directory: &Path) -> Result<Vec<Span>, CaptureError> {
    list_if_there(disk, &directory.join(files::META)).map(files::merged)
}

/// The last segments of files of checksums alone, in order.
pub(crate) fn list_sums(disk: &dyn Files, directory: &Path) -> Result<Vec<u64>, CaptureError> {
    list_if_there(disk, &directory.join(files::META)).map(|names| files::numbered(names, files::SUMS))
}

/// The checksums in such a file.
pub(crate) fn read_sums(disk: &dyn Files, directory: &Path, last: u64) -> Result<Vec<Sum>, CaptureError> {
    let path = directory.join(files::sums(last));
    let text = read(disk, &path, NOTES_BYTES)?;
    notes::from_text(&path, unseal(&path, &text)?).map(|(sums, _)| sums)
}

pub(crate) fn list_plain_notes(disk: &dyn Files, directory: &Path) -> Result<Vec<u64>, CaptureError> {
    list_if_there(disk, &directory.join(files::PLAIN_NOTES)).map(|names| files::numbered(names, ".jsonl"))
}

pub(crate) fn list_if_there(disk: &dyn Files, path: &Path) -> Result<Vec<String>, CaptureError> {
    match disk.list(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        names => names.map_err(|error| CaptureError::reading(path, error)),
    }
}

pub(crate) fn read_if_there(disk: &dyn Files, path: &Path, most: u64) -> Result<Option<Vec<u8>>, CaptureError> {
    match read(disk, path, most) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == CaptureErrorKind::Missing => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn read(disk: &dyn Files, path: &Path, most: u64) -> Result<Vec<u8>, CaptureError> {
    open(disk, path)?.read_all(most).map_err(|error| CaptureError::reading(path, error))
}

pub(crate) fn open(disk: &dyn Files, path: &Path) -> Result<Source, CaptureError> {
    disk.open(path).map_err(|error| CaptureError::reading(path, error))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Mutex;

    use super::*;

    /// Lists of a directory, one after the other, as they may look while segments are merged.
    struct Lists(Mutex<Cell<usize>>, Vec<Vec<String>>);

    impl Files for Lists {
        fn open(&self, _path: &Path) -> io::Result<Source> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
            if directory.ends_with(files::META) {
                return Ok(vec![Span { first: 0, last: 1 }.file()]);
            }
            let at = self.0.lock().unwrap();
            Ok(self.1[at.replace(at.get() + 1).min(self.1.len() - 1)].clone())
        }
    }

    #[test]
    fn a_list_made_in_the_middle_of_a_merge_is_made_again() {
        let [merged, later] = [Span { first: 0, last: 1 }, Span::one(2)];
        let names = |spans: &[Span]| spans.iter().copied().map(Span::file).collect::<Vec<_>>();
        let lists = Lists(Mutex::default(), vec![names(&[later]), names(&[merged, later])]);
        assert_eq!(list(&lists, Path::new("capture")).unwrap().segments, [merged, later]);
        // A segment that was deleted, or never finished, is not waited for.
        let lists = Lists(Mutex::default(), vec![names(&[later])]);
        assert_eq!(list(&lists, Path::new("capture")).unwrap().segments, [later]);
    }
}
