//! A capture held against what it says of itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use parquet::file::reader::Length as _;

use crate::columns::MESSAGE_BYTES_MAX;
use crate::disk::Disk;
use crate::files::{self, Listing};
use crate::guard::guarded;
use crate::journal::JournalReader;
use crate::layout::{list_notes, look_for_capture, open, read_manifest, read_notes};
use crate::notes::{self, GoesOn, Sum};
use crate::runs::{self, RUN_TRIES};
use crate::scan::SegmentReader;
use crate::schema::schema;
use crate::source::Source;
use crate::{CaptureError, CaptureErrorKind, Selection};

/// What [`verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Published segments.
    pub segments: u64,
    /// Rows that can be read, those of the journal too.
    pub messages: u64,
    /// Segments of which nobody has written down what their bytes are, as earlier versions did not.
    pub unchecked: u64,
    /// What is wrong, in the order of the segments.
    pub problems: Vec<Problem>,
}

/// Something that is wrong with a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// Reads all of a capture: each segment has the bytes that were published and can be read, its rows and segments are
/// numbered without gap or double, and what is known beside them can be read. The oldest segments may have been deleted; a
/// writer may go on. It ends early, with what was found so far, once `goes_on` says no.
pub fn verify(directory: &Path, goes_on: &dyn Fn() -> bool) -> Result<Verification, CaptureError> {
    let disk = look_for_capture(directory)?;
    let mut verifier = Verifier {
        disk: &*disk,
        directory,
        goes_on,
        found: Verification::default(),
        capture_id: None,
        next_segment: None,
        next_seq: None,
    };
    // Before the segments are listed, which only grow in number.
    let manifest = read_manifest(&*disk, directory);
    let manifest = verifier.keep(manifest).flatten();
    verifier.capture_id = manifest.as_ref().map(|manifest| manifest.capture_id.clone());
    let listing = verifier.listing()?;
    // After it, so that there are those of each segment that is listed.
    let sums = verifier.sums()?;
    for number in listing.segments.iter().copied().take_while(|_| goes_on()) {
        verifier.segment(number, sums.get(&number))?;
    }
    if let Some(number) = listing.journals.last().copied().filter(|last| listing.segments.binary_search(last).is_err())
    {
        verifier.journal(number);
    }
    if let Some(manifest) = manifest {
        verifier.end(manifest.next_segment, manifest.next_seq);
    }
    Ok(verifier.found)
}

/// The segments whose bytes are not those that were published.
pub(crate) fn damaged(disk: &dyn Disk, directory: &Path, goes_on: GoesOn<'_>) -> Result<Vec<u64>, CaptureError> {
    let names = disk.list(directory).map_err(|error| CaptureError::reading(directory, error))?;
    let segments = Listing::new(names).segments;
    let mut sums = BTreeMap::new();
    for number in list_notes(disk, directory)? {
        sums.extend(noted(disk, directory, number)?);
    }
    let is_damaged = |number: &u64| {
        let path = directory.join(files::segment(*number));
        let file = open(disk, &path)?;
        let Some(noted) = sums.get(number) else { return Ok(false) };
        // What has another size need not be summed, which takes long where it is large.
        if file.len() != noted.bytes {
            return Ok(true);
        }
        let sum = Sum::of(*number, &file, goes_on).map_err(|error| CaptureError::reading(&path, error))?;
        Ok(*noted != sum)
    };
    let mut damaged = Vec::new();
    for number in segments {
        if is_damaged(&number)? {
            damaged.push(number);
        }
    }
    Ok(damaged)
}

/// The sums in the notes on a segment, whose account can be read as well.
fn noted(disk: &dyn Disk, directory: &Path, number: u64) -> Result<impl Iterator<Item = (u64, Sum)>, CaptureError> {
    let (path, text) = read_notes(disk, directory, number)?;
    let (sums, account) = notes::from_text(&path, &text)?;
    runs::from_lines(&path, account, &mut runs::Maps::new())?;
    Ok(sums.into_iter().map(|sum| (sum.segment, sum)))
}

struct Verifier<'a> {
    disk: &'a dyn Disk,
    directory: &'a Path,
    goes_on: GoesOn<'a>,
    found: Verification,
    capture_id: Option<String>,
    /// The number that comes next, once there is one.
    next_segment: Option<u64>,
    /// Likewise; unknown after a segment that cannot be read.
    next_seq: Option<u64>,
}

impl Verifier<'_> {
    /// What was read, or nothing where that is a problem.
    fn keep<T>(&mut self, read: Result<T, CaptureError>) -> Option<T> {
        read.map_err(|error| self.blame(error.path(), error.what())).ok()
    }

    fn blame(&mut self, path: &Path, what: impl Into<String>) {
        self.found.problems.push(Problem { path: path.to_owned(), what: what.into() });
    }

    fn listing(&self) -> Result<Listing, CaptureError> {
        let names = self.disk.list(self.directory).map_err(|error| CaptureError::reading(self.directory, error))?;
        Ok(Listing::new(names))
    }

    /// The sums that are written down.
    fn sums(&mut self) -> Result<BTreeMap<u64, Sum>, CaptureError> {
        let mut tries = 0..RUN_TRIES;
        loop {
            let mut sums = BTreeMap::new();
            let mut problems = Vec::new();
            for number in list_notes(self.disk, self.directory)? {
                match noted(self.disk, self.directory, number) {
                    Ok(noted) => sums.extend(noted),
                    Err(error) => problems.push(error),
                }
            }
            let is_missing = |error: &CaptureError| error.kind() == CaptureErrorKind::Missing;
            // Where one is gone, the writer has put something later in its place.
            if !problems.iter().any(is_missing) || tries.next().is_none() {
                for error in problems {
                    self.keep::<()>(Err(error));
                }
                return Ok(sums);
            }
        }
    }

    fn segment(&mut self, number: u64, noted: Option<&Sum>) -> Result<(), CaptureError> {
        let path = self.directory.join(files::segment(number));
        let file = match open(self.disk, &path) {
            // Deleted since, as its writer was told to.
            Err(error)
                if error.kind() == CaptureErrorKind::Missing && self.listing()?.segments.first() > Some(&number) =>
            {
                (self.next_segment, self.next_seq) = (Some(number + 1), None);
                return Ok(());
            }
            file => file,
        };
        self.found.segments += 1;
        self.follow_segment(number);
        let file = self.keep(file);
        let read = file.and_then(|file| {
            match noted {
                // As above.
                Some(noted) if file.len() != noted.bytes => {
                    let what = format!("is not as it was published: {} bytes, expected {}", file.len(), noted.bytes);
                    self.blame(&path, what);
                }
                Some(noted) => {
                    let summed = Sum::of(number, &file, self.goes_on);
                    let summed = summed.map_err(|error| CaptureError::reading(&path, error));
                    let sum = self.keep(summed)?;
                    if sum != *noted {
                        let what =
                            format!("is not as it was published: CRC {:08x}, expected {:08x}", sum.crc, noted.crc);
                        self.blame(&path, what);
                    }
                }
                None => self.found.unchecked += 1,
            }
            let read = self.rows(&path, number, &file);
            self.keep(read)
        });
        if read.is_none() {
            self.next_seq = None;
        }
        Ok(())
    }

    fn follow_segment(&mut self, number: u64) {
        if let Some(next) = self.next_segment
            && next < number
        {
            let path = self.directory.join(files::segment(next));
            let last = number - 1;
            self.blame(
                &path,
                if next == last { "is missing".to_owned() } else { format!("is missing, as are all up to {last}") },
            );
            self.next_seq = None;
        }
        self.next_segment = Some(number + 1);
    }

    fn rows(&mut self, path: &Path, number: u64, file: &Source) -> Result<(), CaptureError> {
        let mut segment =
            SegmentReader::new(path.to_owned(), file.clone(), schema(), &Selection::default(), MESSAGE_BYTES_MAX)?;
        while (self.goes_on)()
            && let Some(batch) = segment.batch()?
        {
            self.follow(path, number, &batch);
        }
        Ok(())
    }

    /// Follows the numbers of a batch; the first that is wrong is told, and the last one is taken as it is.
    fn follow(&mut self, path: &Path, number: u64, batch: &RecordBatch) {
        self.found.messages += batch.num_rows() as u64;
        let ids = batch["capture_id"].as_string::<i32>();
        let capture_id =
            self.capture_id.get_or_insert_with(|| ids.iter().flatten().next().unwrap_or_default().to_owned());
        if let Some(other) = ids.iter().flatten().find(|id| id != capture_id) {
            let what = format!("has rows of another capture, {other:?}");
            self.blame(path, what);
        }
        let segments = batch["segment"].as_primitive::<Int64Type>().values();
        if let Some(other) = segments.iter().find(|other| u64::try_from(**other) != Ok(number)) {
            let what = format!("has rows of segment {other}");
            self.blame(path, what);
        }
        let seqs = batch["seq"].as_primitive::<Int64Type>().values();
        let first = self.next_seq.and_then(|next| i64::try_from(next).ok()).or_else(|| seqs.first().copied());
        let expected = first.into_iter().flat_map(|first| first..);
        if let Some((seq, expected)) = seqs.iter().zip(expected).find(|(seq, expected)| *seq != expected) {
            let what = if expected < *seq { "gap in the rows" } else { "duplicate rows" };
            self.blame(path, format!("{what}: seq {seq} where {expected} was expected"));
        }
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
            self.follow_segment(number);
            while let Some(batch) = journal.capture_batch()? {
                guarded(&path, || {
                    self.follow(&path, number, &batch);
                    Ok(())
                })?;
            }
            Ok(())
        });
        self.keep(read);
    }

    /// Holds where the rows end to what the manifest said before.
    fn end(&mut self, next_segment: u64, next_seq: u64) {
        if self.next_segment.unwrap_or_default() < next_segment {
            self.next_segment = Some(self.next_segment.unwrap_or_default());
            self.follow_segment(next_segment);
        } else if let Some(end) = self.next_seq.filter(|end| *end < next_seq) {
            let path = self.directory.join(files::MANIFEST);
            self.blame(&path, format!("records rows up to seq {}, but the last row is {}", next_seq - 1, end - 1));
        }
    }
}
