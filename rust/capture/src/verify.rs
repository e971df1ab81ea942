//! Checks a capture against its own records.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use parquet::file::reader::Length as _;

use crate::columns::MESSAGE_BYTES_MAX;
use crate::disk::Files;
use crate::files::{self, Span};
use crate::guard::guarded;
use crate::journal::JournalReader;
use crate::layout::{
    self, list, list_merged_notes, list_notes, list_sums, look_for_capture, open, read_manifest, read_notes,
};
use crate::location::Location;
use crate::notes::{self, GoesOn, Sum};
use crate::runs::{self, RUN_TRIES};
use crate::scan::SegmentReader;
use crate::schema::schema;
use crate::source::Source;
use crate::{CaptureError, CaptureErrorKind, Selection};

/// The findings of [`verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    pub segments: u64,
    /// Rows that can be read, those of the journal too.
    pub messages: u64,
    /// Segments without a recorded checksum, as from earlier versions.
    pub unchecked: u64,
    /// The problems, in the order of the segments.
    pub problems: Vec<Problem>,
}

/// A problem of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// Reads all of a capture: each segment has the bytes that were published and can be read, its rows and segments are
/// numbered without gap or duplicate, and its metadata can be read. The oldest segments may have been deleted; a writer
/// may go on. It ends early, with the findings so far, once `goes_on` returns false.
pub fn verify(location: impl Into<Location>, goes_on: &dyn Fn() -> bool) -> Result<Verification, CaptureError> {
    let location = location.into();
    let (files, directory) = (look_for_capture(&location)?, location.root());
    let mut verifier = Verifier {
        disk: &*files,
        directory,
        goes_on,
        found: Verification::default(),
        capture_id: None,
        next_segment: None,
        next_seq: None,
    };
    // Before the segments are listed, whose number only grows.
    let manifest = read_manifest(&*files, directory);
    let manifest = verifier.keep(manifest).flatten();
    verifier.capture_id = manifest.as_ref().map(|manifest| manifest.capture_id.clone());
    let listing = list(&*files, directory)?;
    // After the list, so that every listed segment has its checksum.
    let sums = verifier.sums()?;
    for span in listing.segments.iter().copied().take_while(|_| goes_on()) {
        verifier.segment(span, sums.get(&span))?;
    }
    if let Some(number) = listing.journals.last().copied().filter(|last| !listing.has(*last)) {
        verifier.journal(number);
    }
    if let Some(manifest) = manifest {
        verifier.end(manifest.next_segment, manifest.next_seq);
    }
    Ok(verifier.found)
}

/// The segments whose bytes differ from the published ones.
pub(crate) fn damaged(disk: &dyn Files, directory: &Path, goes_on: GoesOn<'_>) -> Result<Vec<u64>, CaptureError> {
    let segments = list(disk, directory)?.segments;
    let sums = need_sums(disk, directory)?;
    let mut damaged = Vec::new();
    for span in segments {
        if let Some(noted) = sums.get(&span)
            && !is_as_noted(disk, directory, noted, goes_on)?
        {
            damaged.extend(span.first..=span.last);
        }
    }
    Ok(damaged)
}

/// Whether a segment has the bytes that were published.
pub(crate) fn is_as_noted(
    disk: &dyn Files,
    directory: &Path,
    noted: &Sum,
    goes_on: GoesOn<'_>,
) -> Result<bool, CaptureError> {
    let path = directory.join(noted.span.file());
    let file = open(disk, &path)?;
    // With another size it need not be summed, which takes long if it is large.
    if file.len() != noted.bytes {
        return Ok(false);
    }
    let sum = Sum::of(noted.span, &file, goes_on).map_err(|error| CaptureError::reading(&path, error))?;
    Ok(noted.is_of_same_bytes(&sum))
}

/// All spans with notes of their own: segments as they were published, and merged ones.
fn all_notes(disk: &dyn Files, directory: &Path) -> Result<Vec<Span>, CaptureError> {
    let mut all: Vec<Span> = list_notes(disk, directory)?.into_iter().map(Span::one).collect();
    all.extend(list_merged_notes(disk, directory)?);
    Ok(all)
}

/// The checksums in the notes on a segment, whose account can be read as well.
fn noted(disk: &dyn Files, directory: &Path, span: Span) -> Result<impl Iterator<Item = (Span, Sum)>, CaptureError> {
    let (path, text) = read_notes(disk, directory, span)?;
    let (sums, account) = notes::from_text(&path, &text)?;
    runs::from_lines(&path, account, &mut runs::Maps::new())?;
    Ok(sums.into_iter().map(|sum| (sum.span, sum)))
}

/// The recorded checksums of segments: the numbers of the first and the last in a file, its bytes and their CRC-32.
pub fn sums(location: impl Into<Location>) -> Result<Vec<(u64, u64, u64, u32)>, CaptureError> {
    let location = location.into();
    let sums = need_sums(&*look_for_capture(&location)?, location.root())?;
    Ok(sums.into_values().map(|Sum { span, bytes, crc, .. }| (span.first, span.last, bytes, crc)).collect())
}

/// The recorded checksums of segments, all of which can be read.
pub(crate) fn need_sums(disk: &dyn Files, directory: &Path) -> Result<BTreeMap<Span, Sum>, CaptureError> {
    let (sums, problems) = read_sums(disk, directory)?;
    problems.into_iter().next().map_or(Ok(sums), Err)
}

/// The recorded checksums of segments, read while writers may go on.
fn read_sums(disk: &dyn Files, directory: &Path) -> Result<(BTreeMap<Span, Sum>, Vec<CaptureError>), CaptureError> {
    let mut tries = 0..RUN_TRIES;
    loop {
        let mut sums = BTreeMap::new();
        let mut problems = Vec::new();
        for last in list_sums(disk, directory)? {
            match layout::read_sums(disk, directory, last) {
                Ok(noted) => sums.extend(noted.into_iter().map(|sum| (sum.span, sum))),
                Err(error) => problems.push(error),
            }
        }
        for notes in all_notes(disk, directory)? {
            match noted(disk, directory, notes) {
                Ok(noted) => sums.extend(noted),
                Err(error) => problems.push(error),
            }
        }
        let is_missing = |error: &CaptureError| error.kind() == CaptureErrorKind::Missing;
        // If one is gone, the writer has replaced it by a later one.
        if !problems.iter().any(is_missing) || tries.next().is_none() {
            return Ok((sums, problems));
        }
    }
}

/// What is wrong with the row numbers of these segments, the first of which should be `next_seq`, if known.
pub(crate) fn what_is_wrong(batch: &RecordBatch, span: Span, capture_id: &str, next_seq: Option<u64>) -> Vec<String> {
    let numbers = |name: &str| batch[name].as_primitive::<Int64Type>().values();
    let mut wrong = Vec::new();
    if let Some(other) = batch["capture_id"].as_string::<i32>().iter().flatten().find(|id| *id != capture_id) {
        wrong.push(format!("has rows of another capture, {other:?}"));
    }
    let is_other = |number: &&i64| !u64::try_from(**number).is_ok_and(|number| span.contains(number));
    if let Some(other) = numbers("segment").iter().find(is_other) {
        wrong.push(format!("has rows of segment {other}"));
    }
    let seqs = numbers("seq");
    let first = next_seq.and_then(|next| i64::try_from(next).ok()).or_else(|| seqs.first().copied());
    let expected = first.into_iter().flat_map(|first| first..);
    if let Some((seq, expected)) = seqs.iter().zip(expected).find(|(seq, expected)| *seq != expected) {
        let what = if expected < *seq { "gap in the rows" } else { "duplicate rows" };
        wrong.push(format!("{what}: seq {seq} where {expected} was expected"));
    }
    wrong
}

struct Verifier<'a> {
    disk: &'a dyn Files,
    directory: &'a Path,
    goes_on: GoesOn<'a>,
    found: Verification,
    capture_id: Option<String>,
    /// The next number, once there is one.
    next_segment: Option<u64>,
    /// Likewise; unknown after a segment that cannot be read.
    next_seq: Option<u64>,
}

impl Verifier<'_> {
    /// The value that was read, or nothing if the error becomes a problem.
    fn keep<T>(&mut self, read: Result<T, CaptureError>) -> Option<T> {
        read.map_err(|error| self.blame(error.path(), error.what())).ok()
    }

    fn blame(&mut self, path: &Path, what: impl Into<String>) {
        self.found.problems.push(Problem { path: path.to_owned(), what: what.into() });
    }

    /// The recorded checksums.
    fn sums(&mut self) -> Result<BTreeMap<Span, Sum>, CaptureError> {
        let (sums, problems) = read_sums(self.disk, self.directory)?;
        for error in problems {
            self.keep::<()>(Err(error));
        }
        Ok(sums)
    }

    fn segment(&mut self, span: Span, noted: Option<&Sum>) -> Result<(), CaptureError> {
        let path = self.directory.join(span.file());
        let file = match open(self.disk, &path) {
            Err(error) if error.kind() == CaptureErrorKind::Missing && self.is_gone(span)? => {
                (self.next_segment, self.next_seq) = (Some(span.last + 1), None);
                return Ok(());
            }
            file => file,
        };
        self.found.segments += 1;
        self.follow_segment(span);
        let file = self.keep(file);
        let read = file.and_then(|file| {
            match noted {
                // As above.
                Some(noted) if file.len() != noted.bytes => {
                    let what = format!("is not as it was published: {} bytes, expected {}", file.len(), noted.bytes);
                    self.blame(&path, what);
                }
                Some(noted) => {
                    let summed = Sum::of(span, &file, self.goes_on);
                    let summed = summed.map_err(|error| CaptureError::reading(&path, error));
                    let sum = self.keep(summed)?;
                    if !sum.is_of_same_bytes(noted) {
                        let what =
                            format!("is not as it was published: CRC {:08x}, expected {:08x}", sum.crc, noted.crc);
                        self.blame(&path, what);
                    }
                }
                None => self.found.unchecked += 1,
            }
            let read = self.rows(&path, span, &file);
            self.keep(read)
        });
        if read.is_none() {
            self.next_seq = None;
        }
        Ok(())
    }

    /// Whether a listed segment was removed properly since: deleted by the limits of its writer, or merged.
    fn is_gone(&self, span: Span) -> Result<bool, CaptureError> {
        let listing = list(self.disk, self.directory)?;
        let is_merged = listing.covering(span).is_some_and(|merged| merged != span);
        Ok(is_merged || listing.segments.first().is_some_and(|first| *first > span))
    }

    fn follow_segment(&mut self, span: Span) {
        if let Some(next) = self.next_segment
            && next < span.first
        {
            let path = self.directory.join(files::segment(next));
            let last = span.first - 1;
            self.blame(
                &path,
                if next == last { "is missing".to_owned() } else { format!("is missing, as are all up to {last}") },
            );
            self.next_seq = None;
        }
        self.next_segment = Some(span.last + 1);
    }

    fn rows(&mut self, path: &Path, span: Span, file: &Source) -> Result<(), CaptureError> {
        let mut segment =
            SegmentReader::new(path.to_owned(), file.clone(), schema(), &Selection::default(), MESSAGE_BYTES_MAX)?;
        while (self.goes_on)()
            && let Some(batch) = segment.batch()?
        {
            self.follow(path, span, &batch);
        }
        Ok(())
    }

    /// Follows the numbers of a batch; reports the first that is wrong, and goes on from the last one.
    fn follow(&mut self, path: &Path, span: Span, batch: &RecordBatch) {
        self.found.messages += batch.num_rows() as u64;
        let ids = batch["capture_id"].as_string::<i32>();
        let capture_id =
            self.capture_id.get_or_insert_with(|| ids.iter().flatten().next().unwrap_or_default().to_owned());
        for what in what_is_wrong(batch, span, capture_id, self.next_seq) {
            self.blame(path, what);
        }
        let seqs = batch["seq"].as_primitive::<Int64Type>().values();
        let next = seqs.last().and_then(|last| u64::try_from(last.checked_add(1)?).ok());
        self.next_seq = next.or(self.next_seq);
    }

    fn journal(&mut self, number: u64) {
        let path = self.directory.join(files::journal(number));
        let file = match open(self.disk, &path) {
            // Published since.
            Err(error) if error.kind() == CaptureErrorKind::Missing => return,
            file => file,
        };
        let read = file.and_then(|file| {
            let mut journal = JournalReader::new(path.clone(), file.reader())?;
            let span = Span::one(number);
            self.follow_segment(span);
            while let Some(batch) = journal.capture_batch()? {
                guarded(&path, || {
                    self.follow(&path, span, &batch);
                    Ok(())
                })?;
            }
            Ok(())
        });
        self.keep(read);
    }

    /// Compares the end of the rows with what the manifest held before.
    fn end(&mut self, next_segment: u64, next_seq: u64) {
        if self.next_segment.unwrap_or_default() < next_segment {
            self.next_segment = Some(self.next_segment.unwrap_or_default());
            self.follow_segment(Span::one(next_segment));
        } else if let Some(end) = self.next_seq.filter(|end| *end < next_seq) {
            let path = self.directory.join(files::MANIFEST);
            self.blame(&path, format!("records rows up to seq {}, but the last row is {}", next_seq - 1, end - 1));
        }
    }
}
