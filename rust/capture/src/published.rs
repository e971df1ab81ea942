//! Which segments of a capture are published, and how far it has come.

use std::path::Path;

use crate::disk::Files;
use crate::files::{self, Span};
use crate::layout::{list, look_for_capture, open, read_manifest};
use crate::place::Place;
use crate::segment::SegmentSummary;
use crate::{CaptureError, CaptureErrorKind};

/// How far a capture has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The capture's id; `None` before its first row.
    pub capture_id: Option<String>,
    /// The number of the segment after the last published one.
    pub next_segment: u64,
}

impl Position {
    /// How far a capture has come. Takes as long for a million segments as for one, unless its manifest is missing.
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
        // A writer that was killed may have published one without writing that down.
        while open(&*files, &directory.join(files::segment(next_segment))).is_ok() {
            next_segment += 1;
        }
        Ok(Self { capture_id: Some(manifest.capture_id), next_segment })
    }
}

/// The published segments of a capture, in order: the numbers of the first and the last that are in a file.
pub fn published(place: impl Into<Place>) -> Result<Vec<(u64, u64)>, CaptureError> {
    let place = place.into();
    let segments = list(&*place.files()?, place.root())?.segments;
    if segments.is_empty() {
        // Then it is to be told from what is none.
        look_for_capture(&place)?;
    }
    Ok(segments.into_iter().map(|span| (span.first, span.last)).collect())
}

/// Those of the segments of a capture that are there, from one on and before another, as [`published`] has them; of a
/// merged one, what lies between. The capture is only listed if one is not there as it was published.
pub fn existing(place: impl Into<Place>, first: u64, end: u64) -> Result<Vec<(u64, u64)>, CaptureError> {
    let place = place.into();
    let (files, directory) = (place.files()?, place.root());
    let mut there = Vec::new();
    for number in first..end {
        if !is_there(&*files, directory, number)? {
            let spans = list(&*files, directory)?.segments.into_iter().filter(|span| span.last >= number);
            let spans = spans.take_while(|span| span.first < end);
            there.extend(spans.map(|span| (span.first.max(number), span.last.min(end - 1))));
            break;
        }
        there.push((number, number));
    }
    Ok(there)
}

fn is_there(files: &dyn Files, directory: &Path, number: u64) -> Result<bool, CaptureError> {
    match open(files, &directory.join(files::segment(number))) {
        Err(error) if error.kind() == CaptureErrorKind::Missing => Ok(false),
        // What cannot be opened is there, and is an error to whoever reads it.
        _ => Ok(true),
    }
}

/// The bytes of the files of segments, those of a merged one shared among them; 0 for what is not there.
pub fn sizes(place: impl Into<Place>, numbers: &[u64]) -> Result<Vec<u64>, CaptureError> {
    let place = place.into();
    let (files, directory) = (place.files()?, place.root());
    let size = |span: Span| match files.open(&directory.join(span.file())) {
        Ok(file) => file.bytes() / span.count(),
        Err(_) => 0,
    };
    let mut listing = None;
    let mut size_of = |number: u64| {
        let alone = size(Span::one(number));
        if alone > 0 {
            return Ok(alone);
        }
        let listing = match &listing {
            Some(listing) => listing,
            None => listing.insert(list(&*files, directory)?),
        };
        Ok(listing.covering(Span::one(number)).map_or(0, size))
    };
    numbers.iter().map(|number| size_of(*number)).collect()
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
        let there = |first, end| existing(scratch.path(), first, end).unwrap();
        assert_eq!(published(scratch.path()).unwrap(), [(0, 0), (1, 1), (2, 2), (3, 6), (8, 8), (9, 9)]);
        assert_eq!(there(0, 2), [(0, 0), (1, 1)]);
        assert_eq!(there(1, 6), [(1, 1), (2, 2), (3, 5)]);
        assert_eq!(there(4, 20), [(4, 6), (8, 8), (9, 9)]);
        assert_eq!(there(7, 8), []);
        assert_eq!(sizes(scratch.path(), &[0, 3, 6, 7, 9]).unwrap(), [10, 100, 100, 0, 10]);
    }
}
