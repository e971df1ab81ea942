//! Reads a capture: its segments, and the complete batches of its journal.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{RecordBatch, StringArray};
use arrow_schema::SchemaRef;
use trunkline_wire::cdtp::RunBook;

use crate::account::Account;
use crate::batches::{Batches, Gone};
use crate::clock::RowClock;
use crate::columns::MESSAGE_BYTES_MAX;
use crate::disk::Files;
use crate::files::{self, Span};
use crate::journal::JournalReader;
use crate::layout::{list, list_notes, look_for_capture, open, read_manifest, read_notes};
use crate::location::Location;
use crate::lock::is_released;
use crate::notes;
use crate::runs::{self, Maps, RUN_TRIES, find_maps};
use crate::scan::{record_segments, some_columns};
use crate::schema::schema;
use crate::segment::SegmentSummary;
use crate::selection::Selection;
use crate::source::Source;
use crate::{CaptureError, CaptureErrorKind, RunRecord, Runs};

/// The columns that counting needs.
const INFO_COLUMNS: [&str; 5] = ["received_at_ns", "protocol", "direction", "n_bytes", "error"];

/// A capture as it was when it was opened, while a writer may go on.
pub struct Capture {
    location: Location,
    files: Arc<dyn Files>,
    segments: Vec<Span>,
    journal: Option<(u64, PathBuf, Source)>,
    /// The numbers of its rows, if it has not all those of its segments.
    within: Option<RangeInclusive<i64>>,
    /// Which of the segments were gone, if that is no error.
    gone: Option<Gone>,
    /// The most bytes of a value.
    most: u64,
}

/// The counts of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// The capture's id; `None` for one without a row.
    pub capture_id: Option<String>,
    pub segments: u64,
    /// Rows, those of the journal too.
    pub messages: u64,
    /// Frame bytes of all rows.
    pub bytes: u64,
    /// The earliest receipt.
    pub first_received_at_ns: Option<i64>,
    /// The latest receipt.
    pub last_received_at_ns: Option<i64>,
    /// Rows by protocol.
    pub protocols: BTreeMap<String, u64>,
    /// Rows that do not decode, by error kind.
    pub errors: BTreeMap<String, u64>,
    /// Rows by direction.
    pub directions: BTreeMap<String, u64>,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture")
            .field("place", &self.location)
            .field("segments", &self.segments)
            .finish_non_exhaustive()
    }
}

impl Capture {
    /// Opens a capture for reading. Later rows of a writer are not seen.
    pub fn open(location: impl Into<Location>) -> Result<Self, CaptureError> {
        let location = location.into();
        let files = look_for_capture(&location)?;
        let directory = location.root();
        // The journal first: if it is published in between, its rows are found among the segments.
        let journal = loop {
            let Some(number) = list(&*files, directory)?.journals.last().copied() else { break None };
            let path = directory.join(files::journal(number));
            match open(&*files, &path) {
                Ok(file) => break Some((number, path, file)),
                Err(error) if error.kind() == CaptureErrorKind::Missing => {}
                Err(error) => return Err(error),
            }
        };
        let published = list(&*files, directory)?;
        let journal = journal.filter(|(number, ..)| !published.has(*number));
        Ok(Self {
            location,
            files,
            segments: published.segments,
            journal,
            within: None,
            gone: None,
            most: MESSAGE_BYTES_MAX,
        })
    }

    /// Some published segments of a capture, by the numbers of their first and last. Whether they exist shows when they
    /// are read.
    pub fn of(location: impl Into<Location>, segments: &[(u64, u64)]) -> Result<Self, CaptureError> {
        let location = location.into();
        let files = location.files()?;
        let segments = segments.iter().map(|(first, last)| Span { first: *first, last: *last }).collect();
        Ok(Self { location, files, segments, journal: None, within: None, gone: None, most: MESSAGE_BYTES_MAX })
    }

    /// The same of files whose bytes are known, without those that are gone once they are read, and with these rows alone.
    pub fn of_known(
        location: impl Into<Location>,
        segments: &[(u64, u64)],
        bytes: &[u64],
        within: Option<RangeInclusive<i64>>,
    ) -> Result<Self, CaptureError> {
        let location = location.into();
        let segments: Vec<Span> = segments.iter().map(|(first, last)| Span { first: *first, last: *last }).collect();
        let files = location.files_with(segments.iter().copied().zip(bytes.iter().copied()))?;
        Ok(Self {
            location,
            files,
            segments,
            journal: None,
            within,
            gone: Some(Gone::default()),
            most: MESSAGE_BYTES_MAX,
        })
    }

    /// The segments that were gone when they were to be read.
    pub fn gone(&self) -> Vec<(u64, u64)> {
        let gone = self.gone.as_ref().map(|gone| gone.lock().unwrap_or_else(PoisonError::into_inner).clone());
        gone.unwrap_or_default().into_iter().map(|span| (span.first, span.last)).collect()
    }

    /// The same with a limit: batches end with an error at a value of more bytes.
    #[must_use]
    pub fn limited(self, max_message_bytes: u64) -> Self {
        Self { most: max_message_bytes.min(MESSAGE_BYTES_MAX), ..self }
    }

    /// The numbers of the published segments, in order: of the first and the last in each file.
    pub fn segments(&self) -> Vec<(u64, u64)> {
        self.segments.iter().map(|span| (span.first, span.last)).collect()
    }

    /// The names of their files.
    pub fn files(&self) -> Vec<String> {
        self.segments.iter().copied().map(Span::file).collect()
    }

    /// The same in parts: each segment as its own capture, and the rows that are only in the journal.
    pub fn parts(&self) -> Vec<Self> {
        let part = |segments, journal| Self {
            location: self.location.clone(),
            files: Arc::clone(&self.files),
            segments,
            journal,
            within: self.within.clone(),
            gone: self.gone.clone(),
            most: self.most,
        };
        let segments = self.segments.iter().map(|segment| part(vec![*segment], None));
        segments.chain(self.journal.clone().map(|journal| part(Vec::new(), Some(journal)))).collect()
    }

    /// Every row with the columns of [`schema`], oldest first.
    pub fn batches(&self) -> Result<Batches, CaptureError> {
        self.select(Selection::default())
    }

    /// The rows of a selection with the columns of [`schema`], oldest first. If the statistics of a segment rule them
    /// out, its rows are not read.
    pub fn select(&self, selection: Selection) -> Result<Batches, CaptureError> {
        self.read(&schema(), selection)
    }

    /// The rows of a selection with some columns of [`schema`] and in its order, oldest first; other columns are only
    /// read if the selection needs them. Unknown names are ignored.
    pub fn columns(&self, names: &[impl AsRef<str>], selection: Selection) -> Result<Batches, CaptureError> {
        self.read(&some_columns(names), selection)
    }

    /// Counts the rows, reading only the columns needed.
    pub fn info(&self) -> Result<Info, CaptureError> {
        let mut info = Info { segments: self.segments.len() as u64, ..Info::default() };
        for batch in self.columns(&INFO_COLUMNS, Selection::default())? {
            info.add(&batch?);
        }
        info.capture_id = self.capture_id()?;
        Ok(info)
    }

    /// Each sender's runs, in the order they began, as of now: a writer may have gone on since this was opened. What is
    /// written down is read, and the rows after it are counted.
    pub fn runs(&self) -> Result<Runs, CaptureError> {
        let mut tries = 0..RUN_TRIES;
        loop {
            match Self::open(&self.location).and_then(|now| now.read_runs()) {
                // The writer has replaced the file by a later one.
                Err(error) if error.kind() == CaptureErrorKind::Missing && tries.next().is_some() => {}
                runs => return runs,
            }
        }
    }

    /// The same as of when this was opened; as of now, if what was there is not any more.
    pub fn runs_as_opened(&self) -> Result<Runs, CaptureError> {
        match self.read_runs() {
            Err(error) if error.kind() == CaptureErrorKind::Missing => self.runs(),
            runs => runs,
        }
    }

    /// Whether its recorder is known to have ended. In a store, and of a copy without its lock, it is not known.
    pub fn is_over(&self) -> bool {
        self.location.directory().is_some_and(is_released)
    }

    fn read_runs(&self) -> Result<Runs, CaptureError> {
        let (files, directory) = (&*self.files, self.location.root());
        // The notes on a segment are written before the segment, which may then never be written.
        let published = |number: &u64| self.journal.as_ref().is_none_or(|(journal, ..)| number < journal);
        let numbers = list_notes(files, directory)?;
        let (mut all, mut book, mut last) = (Vec::new(), RunBook::default(), None);
        let mut maps = Maps::new();
        for number in numbers.into_iter().filter(published) {
            let (path, text) = read_notes(files, directory, Span::one(number))?;
            let (_, lines) = notes::from_text(&path, &text)?;
            let (over, latest) = runs::from_lines(&path, lines, &mut maps)?;
            all.extend(over);
            (book, last) = (latest, Some(number));
        }
        let is_later = |number: u64| last.is_none_or(|last| number > last);
        for span in self.segments.iter().copied().filter(|span| is_later(span.last)) {
            let path = directory.join(span.file());
            record_segments(&mut book, span, last, &path, &open(files, &path)?)?;
        }
        if let Some((number, path, file)) = &self.journal
            && is_later(*number)
        {
            let mut journal = JournalReader::new(path.clone(), file.reader())?;
            let mut first_seq = journal.next_seq();
            while let Some(batch) = journal.batch()? {
                Account::record(&mut book, *number, first_seq, &batch.columns);
                first_seq = journal.next_seq();
            }
        }
        all.extend(book.closed().iter().map(|closed| (closed.sender.to_string(), closed.run.clone())));
        let capture_id = self.capture_id()?.unwrap_or_default();
        let record = |is_in_progress, (sender, mut run)| {
            find_maps(&mut run, &maps);
            RunRecord { capture_id: capture_id.clone(), sender, run, is_in_progress }
        };
        let mut runs: Vec<_> = all.into_iter().map(|over| record(false, over)).collect();
        let (is_over, now_ns) = (self.is_over(), RowClock::start().now_ns());
        let latest = book.latest().map(|(sender, run)| (sender.to_owned(), run.clone()));
        runs.extend(latest.map(|latest| record(!is_over && latest.1.may_go_on(now_ns), latest)));
        runs.sort_by_key(|record| record.run.first_seq);
        Ok(Runs { runs, unfollowed: book.unfollowed() })
    }

    fn capture_id(&self) -> Result<Option<String>, CaptureError> {
        if let Some(manifest) = read_manifest(&*self.files, self.location.root())? {
            return Ok(Some(manifest.capture_id));
        }
        let Some(span) = self.segments.last() else { return Ok(None) };
        let path = self.location.root().join(span.file());
        Ok(Some(SegmentSummary::read(&path, &open(&*self.files, &path)?)?.capture_id))
    }

    fn read(&self, wanted: &SchemaRef, mut selection: Selection) -> Result<Batches, CaptureError> {
        if let Some(within) = &self.within {
            selection.numbers = Some(within_of(within, selection.numbers));
        }
        let journal = match &self.journal {
            Some((_, path, file)) => Some(JournalReader::new(path.clone(), file.reader())?),
            None => None,
        };
        let (directory, files) = (self.location.root().to_owned(), Arc::clone(&self.files));
        let segments = self.segments.iter().copied();
        let batches = Batches::new(directory, files, wanted, selection, segments, journal, self.most);
        Ok(batches.without_gone(self.gone.clone()))
    }
}

/// The numbers of a selection, or all, as far as they are in a range.
fn within_of(range: &RangeInclusive<i64>, numbers: Option<Vec<RangeInclusive<i64>>>) -> Vec<RangeInclusive<i64>> {
    let Some(numbers) = numbers else { return vec![range.clone()] };
    let both = |some: &RangeInclusive<i64>| *some.start().max(range.start())..=*some.end().min(range.end());
    numbers.iter().map(both).collect()
}

impl Info {
    fn add(&mut self, batch: &RecordBatch) {
        let received = batch["received_at_ns"].as_primitive::<Int64Type>().values();
        self.first_received_at_ns = self.first_received_at_ns.into_iter().chain(received.iter().copied()).min();
        self.last_received_at_ns = self.last_received_at_ns.into_iter().chain(received.iter().copied()).max();
        self.messages += batch.num_rows() as u64;
        let n_bytes = batch["n_bytes"].as_primitive::<Int64Type>();
        let n_bytes = n_bytes.values().iter().filter_map(|n_bytes| u64::try_from(*n_bytes).ok());
        self.bytes = n_bytes.fold(self.bytes, u64::saturating_add);
        count(&mut self.protocols, batch["protocol"].as_string());
        count(&mut self.errors, batch["error"].as_string());
        count(&mut self.directions, batch["direction"].as_string());
    }
}

fn count(counts: &mut BTreeMap<String, u64>, names: &StringArray) {
    for name in names.iter().flatten() {
        match counts.get_mut(name) {
            Some(count) => *count += 1,
            None => {
                counts.insert(name.to_owned(), 1);
            }
        }
    }
}
