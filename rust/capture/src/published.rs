//! The published segments of a capture, and its position.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::thread;

use crate::disk::Files;
use crate::files::{self, Listing, Span};
use crate::layout::{NOTES_BYTES, list, list_if_there, look_for_capture, open, read_manifest, read_notes, read_sums};
use crate::location::Location;
use crate::notes::{self, Sum};
use crate::segment::SegmentSummary;
use crate::selection::row_groups;
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
    pub fn of(location: impl Into<Location>) -> Result<Self, CaptureError> {
        let location = location.into();
        let (files, directory) = (location.files()?, location.root());
        let Some(manifest) = read_manifest(&*files, directory)? else {
            let files = look_for_capture(&location)?;
            let Some(last) = list(&*files, directory)?.segments.last().copied() else {
                return Ok(Self { capture_id: None, next_segment: 0 });
            };
            let path = directory.join(last.file());
            let capture_id = SegmentSummary::read(&path, &open(&*files, &path)?)?.capture_id;
            return Ok(Self { capture_id: Some(capture_id), next_segment: last.last + 1 });
        };
        let mut next_segment = manifest.next_segment;
        if manifest.is_exact {
            return Ok(Self { capture_id: Some(manifest.capture_id), next_segment });
        }
        // A killed writer may have published one without updating the manifest.
        while files.size(&directory.join(files::segment(next_segment))).is_ok() {
            next_segment += 1;
        }
        Ok(Self { capture_id: Some(manifest.capture_id), next_segment })
    }
}

/// The published segments of a capture, in order: the numbers of the first and the last in each file.
pub fn published(location: impl Into<Location>) -> Result<Vec<(u64, u64)>, CaptureError> {
    let location = location.into();
    let segments = list(&*location.files()?, location.root())?.segments;
    if segments.is_empty() {
        // Then an empty capture must be distinguished from a missing one.
        look_for_capture(&location)?;
    }
    Ok(segments.into_iter().map(|span| (span.first, span.last)).collect())
}

/// The existing files of some segments of a capture, given and returned as by [`published`], in order; consecutive ones
/// in one file are returned as one. The capture is only listed if one of them does not exist as it is given.
pub fn existing(location: impl Into<Location>, wanted: &[(u64, u64)]) -> Result<Vec<(u64, u64)>, CaptureError> {
    let location = location.into();
    let found = there(&*location.files()?, location.root(), wanted)?;
    Ok(found.into_iter().map(|(span, _)| (span.first, span.last)).collect())
}

/// Segments of a capture that exist, and the files with their rows.
fn there(files: &dyn Files, directory: &Path, wanted: &[(u64, u64)]) -> Result<Vec<(Span, Span)>, CaptureError> {
    let wanted: Vec<Span> = wanted.iter().map(|(first, last)| Span { first: *first, last: *last }).collect();
    let listing = if is_listed(files, &wanted) {
        let names = files.list(directory).map_err(|error| CaptureError::reading(directory, error))?;
        let listing = Listing::new(names);
        // Else some may be being merged just now.
        if wanted.iter().all(|span| listing.covering(*span).is_some()) { listing } else { list(files, directory)? }
    } else {
        let are_there = in_turn(files, &wanted, |span| is_there(files, directory, span));
        match wanted.iter().zip(&are_there).position(|(_, is_there)| !is_there) {
            None => return Ok(wanted.into_iter().map(|span| (span, span)).collect()),
            Some(_) => list(files, directory)?,
        }
    };
    let mut there: Vec<(Span, Span)> = Vec::new();
    for part in wanted.into_iter().flat_map(|span| listing.parts(span)) {
        let Some(file) = listing.covering(part) else { continue };
        match there.last_mut() {
            Some((before, same)) if *same == file && before.last + 1 == part.first => before.last = part.last,
            _ => there.push((part, file)),
        }
    }
    Ok(there)
}

/// A segment of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The numbers of the first and the last: a file may have several.
    pub first: u64,
    pub last: u64,
    /// The bytes of its file, or its share of them.
    pub bytes: u64,
    /// Its rows and the bytes of their frames, if that was noted; in a store they are estimated from those of others.
    pub counts: Option<(u64, u64)>,
}

/// The existing files of some segments of a capture, or of all, with their bytes; and with what up to `notes` files of
/// notes say of their rows, evenly spread if there are more. In a directory, the bytes of many are estimated. In a store, no
/// more files of notes are read than one for so many segments, and what others have is estimated.
pub fn segments(
    location: impl Into<Location>,
    wanted: Option<&[(u64, u64)]>,
    notes: usize,
) -> Result<Vec<Published>, CaptureError> {
    let location = location.into();
    let (files, directory) = (location.files()?, location.root());
    let files = &*files;
    let found = if let Some(wanted) = wanted {
        there(files, directory, wanted)?
    } else {
        let segments = list(files, directory)?.segments;
        if segments.is_empty() {
            look_for_capture(&location)?;
        }
        segments.into_iter().map(|span| (span, span)).collect()
    };
    let step = if files.is_far() { 1 } else { found.len().div_ceil(SIZED).max(1) };
    let asked: Vec<Span> = found.iter().step_by(step).map(|(_, file)| *file).collect();
    let each =
        in_turn(files, &asked, |file| files.size(&directory.join(file.file())).unwrap_or_default() / file.count());
    let known: HashMap<Span, u64> = asked.iter().copied().zip(each.iter().copied()).collect();
    let mean = each.iter().sum::<u64>() / (each.len() as u64).max(1);
    let most = if files.is_far() { notes.min(found.len().div_ceil(NOTED)) } else { notes };
    let counts = if most == 0 { HashMap::new() } else { noted(files, directory, &found, most) };
    let segment = |(span, file): (Span, Span)| Published {
        first: span.first,
        last: span.last,
        bytes: known.get(&file).copied().unwrap_or(mean) * span.count(),
        // Of a part of a file it is not known.
        counts: counts.get(&span).copied().flatten().filter(|_| span == file),
    };
    let mut found: Vec<Published> = found.into_iter().map(segment).collect();
    if files.is_far() {
        estimate(&mut found);
    }
    Ok(found)
}

/// Estimates what segments have of what others have, by their bytes.
fn estimate(segments: &mut [Published]) {
    let sum = |(bytes, rows, frame_bytes), segment: &Published| match segment.counts {
        Some(counts) => (bytes + segment.bytes, rows + counts.0, frame_bytes + counts.1),
        None => (bytes, rows, frame_bytes),
    };
    let (bytes, rows, frame_bytes) = segments.iter().fold((0, 0, 0), sum);
    if bytes == 0 {
        return;
    }
    let share = |of: u64, part: u64| u64::try_from(u128::from(of) * u128::from(part) / u128::from(bytes)).unwrap_or(of);
    for segment in segments {
        let counts = (share(rows, segment.bytes).max(1), share(frame_bytes, segment.bytes));
        segment.counts.get_or_insert(counts);
    }
}

/// The bytes of the files of segments, those of a merged one shared among them; 0 for what does not exist.
pub fn sizes(location: impl Into<Location>, numbers: &[u64]) -> Result<Vec<u64>, CaptureError> {
    let wanted: Vec<(u64, u64)> = numbers.iter().map(|number| (*number, *number)).collect();
    let mut found = vec![0; numbers.len()];
    for Published { first, last, bytes, .. } in segments(location, Some(&wanted), 0)? {
        let each = bytes / (last - first + 1);
        let ours = numbers.iter().zip(&mut found).filter(|(number, _)| (first..=last).contains(number));
        ours.for_each(|(_, size)| *size = each);
    }
    Ok(found)
}

/// The row groups of a segment: the numbers of the first and the last row of each. None if that cannot be told, as of
/// segments that were merged meanwhile, or are gone.
pub fn groups(location: impl Into<Location>, segment: (u64, u64), bytes: u64) -> Result<Vec<(i64, i64)>, CaptureError> {
    let (location, span) = (location.into(), Span { first: segment.0, last: segment.1 });
    let files = location.files_with([(span, bytes)].into_iter())?;
    let path = location.root().join(span.file());
    match open(&*files, &path).and_then(|file| row_groups(&path, &file)) {
        Err(error) if error.kind() == CaptureErrorKind::Missing => Ok(Vec::new()),
        groups => groups,
    }
}

/// In a directory with more segments than this, the bytes of so many are looked up.
const SIZED: usize = 4096;

/// How many requests to a store are under way at a time.
const REQUESTS: usize = 8;

/// For how many segments of a store a file of notes is read.
const NOTED: usize = 32;

/// The names that a store lists in one request.
const LISTED: u64 = 1000;

/// What is known of each of some segments, in order; of those in a store several are asked for at a time.
fn in_turn<T: Send + Clone + Default>(files: &dyn Files, spans: &[Span], ask: impl Fn(Span) -> T + Sync) -> Vec<T> {
    if !files.is_far() || spans.len() < 2 {
        return spans.iter().copied().map(ask).collect();
    }
    let mut answers = vec![T::default(); spans.len()];
    let each = spans.len().div_ceil(REQUESTS);
    thread::scope(|scope| {
        for (spans, answers) in spans.chunks(each).zip(answers.chunks_mut(each)) {
            scope.spawn(|| {
                for (span, answer) in spans.iter().zip(answers) {
                    *answer = ask(*span);
                }
            });
        }
    });
    answers
}

/// Whether listing a store takes fewer requests than asking for each of some segments.
fn is_listed(files: &dyn Files, wanted: &[Span]) -> bool {
    let last = wanted.last().map_or(0, |span| span.last);
    files.is_far() && wanted.len() as u64 > 2 + last / LISTED
}

fn is_there(files: &dyn Files, directory: &Path, span: Span) -> bool {
    // A segment that cannot be opened exists; reading it is an error.
    !matches!(files.size(&directory.join(span.file())), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// What up to `most` files of notes say of the rows of some segments.
fn noted(
    files: &dyn Files,
    directory: &Path,
    wanted: &[(Span, Span)],
    most: usize,
) -> HashMap<Span, Option<(u64, u64)>> {
    let said = |notes: Span| {
        let (path, text) = read_notes(files, directory, notes).ok()?;
        Some(notes::from_text(&path, &text).ok()?.0)
    };
    let counts =
        |read: Vec<Option<Vec<Sum>>>| read.into_iter().flatten().flatten().map(|sum| (sum.span, sum.counts)).collect();
    if !files.is_far() && wanted.len() <= most {
        // Without a list of all notes, if each has its own.
        let own: Option<Vec<_>> = wanted.iter().map(|(_, file)| said(*file).map(Some)).collect();
        if let Some(own) = own {
            return counts(own);
        }
    }
    let Ok(names) = list_if_there(files, &directory.join(files::META)) else { return HashMap::new() };
    let numbers = files::numbered(names.iter().cloned(), ".parquet");
    let sums = files::numbered(names.iter().cloned(), files::SUMS);
    let merged: HashSet<Span> = files::merged(names).into_iter().collect();
    // Notes that say nothing else are removed once later ones repeat them.
    let notes_on = |span: Span| {
        let later = numbers.get(numbers.partition_point(|number| *number < span.first)).copied().map(Span::one);
        if span.is_merged() { merged.get(&span).copied() } else { later }
    };
    let mut notes: Vec<Span> = wanted.iter().filter_map(|(_, file)| notes_on(*file)).collect();
    notes.dedup();
    let notes: Vec<Span> = notes.iter().step_by(notes.len().div_ceil(most).max(1)).copied().collect();
    let mut known: HashMap<_, _> = counts(in_turn(files, &notes, said));
    // Those that were published together have one file of checksums.
    let after = |span: Span| sums.get(sums.partition_point(|last| *last < span.last)).copied().map(Span::one);
    let unknown = wanted.iter().filter(|(_, file)| !known.contains_key(file)).filter_map(|(_, file)| after(*file));
    let mut together: Vec<Span> = unknown.collect();
    together.dedup();
    let together: Vec<Span> = together.iter().step_by(together.len().div_ceil(most).max(1)).copied().collect();
    known.extend(counts(in_turn(files, &together, |last| {
        read_sums(files, directory, last.last).ok().map(Some).unwrap_or_default()
    })));
    known
}

/// The contents of a manifest or of notes, by their name below the capture; `None` if there is no such file.
pub fn read_file(location: impl Into<Location>, name: &str) -> Result<Option<Vec<u8>>, CaptureError> {
    let location = location.into();
    let path = location.root().join(name);
    match open(&*location.files()?, &path) {
        Err(error) if error.kind() == CaptureErrorKind::Missing => Ok(None),
        file => {
            let file = file?;
            file.read_all(NOTES_BYTES).map(Some).map_err(|error| CaptureError::reading(&path, error))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{Capture, Import, Settings, compact};

    #[test]
    fn what_was_noted_of_segments_is_what_they_have() {
        let scratch = tempfile::tempdir().unwrap();
        let mut import = Import::open(scratch.path(), Settings { segment_bytes: 300, ..Settings::default() }).unwrap();
        (0..100).for_each(|at| import.append(&crate::import::row(at)).unwrap());
        import.commit().unwrap();
        let look = |notes| segments(scratch.path(), None, notes).unwrap();
        let of = |segment: &Published| {
            let info = Capture::of(scratch.path(), &[(segment.first, segment.last)]).unwrap().info().unwrap();
            Some((info.messages, info.bytes))
        };
        assert!(look(10).len() > 3);
        assert!(look(0).iter().all(|segment| segment.counts.is_none() && segment.bytes > 0));
        assert!(look(1000).iter().all(|segment| segment.counts == of(segment)));
        compact(scratch.path(), 1 << 20, &|| true).unwrap();
        let [merged] = look(1)[..] else { panic!() };
        assert_eq!(merged.counts, of(&merged));
        assert_eq!(merged.counts.unwrap().0, 100);
        let part = segments(scratch.path(), Some(&[(0, 1)]), 1).unwrap();
        assert_eq!((part[0].counts, part[0].bytes), (None, merged.bytes / (merged.last + 1) * 2));
    }

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
