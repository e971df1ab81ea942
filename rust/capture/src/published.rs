//! The published segments of a capture, and its position.

use std::path::Path;

use crate::disk::Files;
use crate::files::{self, Listing, Span};
use crate::layout::{list, look_for_capture, open, read_manifest};
use crate::place::Place;
use crate::segment::SegmentSummary;
use crate::{CaptureError, CaptureErrorKind};

/// The position of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The capture's id; `None` before its first row.
    pub capture_id: Option<String>,
    /// The number of the segment after the last published one.
    pub next_segment: u64,
}

impl Position {
    /// The position of a capture. Takes as long for a million segments as for one, unless its manifest is missing.
    pub fn of(place: impl Into<Place>) -> Result<Self, CaptureError> {
        let place = place.into();
        let (files, directory) = (place.files()?, place.root());
        let Some(manifest) = read_manifest(&*files, directory)? else {
            let files = look_for_capture(&place)?;
            let Some(last) = list(&*files, directory)?.segments.last().copied() else {
                return Ok(Self { capture_id: None, next_segment: 0 });
            };
            let path = directory.join(last.file());
            let capture_id = SegmentSummary::read(&path, &open(&*files, &path)?)?.capture_id;
            return Ok(Self { capture_id: Some(capture_id), next_segment: last.last + 1 });
        };
        let mut next_segment = manifest.next_segment;
        // A killed writer may have published one without updating the manifest.
        while open(&*files, &directory.join(files::segment(next_segment))).is_ok() {
            next_segment += 1;
        }
        Ok(Self { capture_id: Some(manifest.capture_id), next_segment })
    }
}

/// The published segments of a capture, in order: the numbers of the first and the last in each file.
pub fn published(place: impl Into<Place>) -> Result<Vec<(u64, u64)>, CaptureError> {
    let place = place.into();
    let segments = list(&*place.files()?, place.root())?.segments;
    if segments.is_empty() {
        // Then an empty capture must be distinguished from a missing one.
        look_for_capture(&place)?;
    }
    Ok(segments.into_iter().map(|span| (span.first, span.last)).collect())
}

/// The existing files of some segments of a capture, given and returned as by [`published`], in order; consecutive ones
/// in one file are returned as one. The capture is only listed if one of them does not exist as it is given.
pub fn existing(place: impl Into<Place>, wanted: &[(u64, u64)]) -> Result<Vec<(u64, u64)>, CaptureError> {
    let place = place.into();
    let (files, directory) = (place.files()?, place.root());
    let mut listing = None;
    let mut there: Vec<(u64, u64)> = Vec::new();
    for (first, last) in wanted.iter().copied() {
        let span = Span { first, last };
        if listing.is_none() && is_there(&*files, directory, span) {
            there.push((first, last));
            continue;
        }
        let Listing { segments, .. } = match &listing {
            Some(listing) => listing,
            None => listing.insert(list(&*files, directory)?),
        };
        let at = segments.partition_point(|segment| segment.last < first);
        for segment in segments[at..].iter().take_while(|segment| segment.first <= last) {
            let (begin, end) = (segment.first.max(first), segment.last.min(last));
            match there.last_mut() {
                Some((_, before)) if *before + 1 == begin && segment.contains(*before) => *before = end,
                _ => there.push((begin, end)),
            }
        }
    }
    Ok(there)
}

/// The contents of a file of a capture, by its name below; `None` if there is none.
pub fn read_file(place: impl Into<Place>, name: &str) -> Result<Option<Vec<u8>>, CaptureError> {
    let place = place.into();
    let path = place.root().join(name);
    match open(&*place.files()?, &path) {
        Err(error) if error.kind() == CaptureErrorKind::Missing => Ok(None),
        file => {
            let file = file?;
            file.read_all(file.bytes()).map(Some).map_err(|error| CaptureError::reading(&path, error))
        }
    }
}

fn is_there(files: &dyn Files, directory: &Path, span: Span) -> bool {
    match open(files, &directory.join(span.file())) {
        // A segment that cannot be opened exists; reading it is an error.
        Err(error) => error.kind() != CaptureErrorKind::Missing,
        Ok(_) => true,
    }
}

/// The bytes of the files of segments, those of a merged one shared among them; 0 for what does not exist.
pub fn sizes(place: impl Into<Place>, numbers: &[u64]) -> Result<Vec<u64>, CaptureError> {
    let place = place.into();
    let (files, directory) = (place.files()?, place.root());
    let bytes = |span: Span| files.open(&directory.join(span.file())).ok().map(|file| file.bytes() / span.count());
    let mut listing = None;
    let mut found = Vec::with_capacity(numbers.len());
    for number in numbers {
        let alone = Span::one(*number);
        let size = match (bytes(alone), &listing) {
            (Some(size), _) => Some(size),
            (None, Some(listing)) => Listing::covering(listing, alone).and_then(bytes),
            (None, None) => listing.insert(list(&*files, directory)?).covering(alone).and_then(bytes),
        };
        found.push(size.unwrap_or_default());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn segments_are_found_wherever_their_rows_are() {
        let scratch = tempfile::tempdir().unwrap();
        let name = |span: Span| scratch.path().join(span.file());
        for number in [0, 1, 2, 8, 9] {
            fs::write(name(Span::one(number)), [0; 10]).unwrap();
        }
        fs::write(name(Span { first: 3, last: 6 }), [0; 400]).unwrap();
        let there = |wanted: &[(u64, u64)]| existing(scratch.path(), wanted).unwrap();
        assert_eq!(published(scratch.path()).unwrap(), [(0, 0), (1, 1), (2, 2), (3, 6), (8, 8), (9, 9)]);
        assert_eq!(there(&[(0, 0), (2, 2), (3, 6)]), [(0, 0), (2, 2), (3, 6)]);
        assert_eq!(there(&[(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (8, 8)]), [(1, 1), (2, 2), (3, 5), (8, 8)]);
        assert_eq!(there(&[(0, 12)]), [(0, 0), (1, 1), (2, 2), (3, 6), (8, 8), (9, 9)]);
        assert_eq!(there(&[(4, 5), (7, 7), (9, 9)]), [(4, 5), (9, 9)]);
        assert_eq!(sizes(scratch.path(), &[0, 3, 6, 7, 9]).unwrap(), [10, 100, 100, 0, 10]);
    }
}
