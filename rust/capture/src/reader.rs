//! A capture read back: its segments, and the whole batches of its journal.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use arrow_array::{Array as _, BinaryArray, ListArray, RecordBatch, StringArray};
use arrow_schema::{ArrowError, SchemaRef};
use trunkline_wire::cdtp::RunBook;

use crate::account::Account;
use crate::columns::MESSAGE_BYTES_MAX;
use crate::files::{self};
use crate::journal::JournalReader;
use crate::layout::{list, list_notes, look_for_capture, open, read_manifest, read_notes};
use crate::local::LocalDisk;
use crate::notes;
use crate::runs::{self, Maps, RUN_TRIES, find_maps};
use crate::scan::{SegmentReader, check_values, record_segment, some_columns, with_schema};
use crate::schema::schema;
use crate::segment::SegmentSummary;
use crate::selection::Selection;
use crate::source::{Source, SourceReader};
use crate::{Access, CaptureError, CaptureErrorKind, RunRecord, Runs};

/// What a capture is counted from.
const INFO_COLUMNS: [&str; 5] = ["received_at_ns", "protocol", "direction", "n_bytes", "error"];

/// A capture as it was when it was opened, while a writer may go on.
#[derive(Debug)]
pub struct Capture {
    directory: PathBuf,
    disk: Arc<LocalDisk>,
    segments: Vec<PathBuf>,
    journal: Option<(u64, PathBuf, Source)>,
    /// What a value may have in bytes.
    most: u64,
}

/// What a capture holds, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// The capture's id; `None` for one without a row.
    pub capture_id: Option<String>,
    /// Published segments.
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

impl Capture {
    /// Opens a capture for reading. What a writer adds later is not seen.
    pub fn open(directory: &Path) -> Result<Self, CaptureError> {
        let disk = look_for_capture(directory)?;
        // The journal first: what it holds may be published in between, and is then among the segments.
        let journal = loop {
            let Some(number) = list(&disk, directory)?.journals.last().copied() else { break None };
            let path = directory.join(files::journal(number));
            match open(&*disk, &path) {
                Ok(file) => break Some((number, path, file)),
                Err(error) if error.kind() == CaptureErrorKind::Missing => {}
                Err(error) => return Err(error),
            }
        };
        let published = list(&disk, directory)?.segments;
        let journal = journal.filter(|(number, ..)| published.binary_search(number).is_err());
        let segments = published.into_iter().map(|number| directory.join(files::segment(number))).collect();
        Ok(Self { directory: directory.to_owned(), disk, segments, journal, most: MESSAGE_BYTES_MAX })
    }

    /// Some published segments of a capture, by their numbers. Whether they are there shows when they are read.
    pub fn of(directory: &Path, segments: &[u64]) -> Result<Self, CaptureError> {
        let disk =
            LocalDisk::open(directory, Access::Umask).map_err(|error| CaptureError::reading(directory, error))?;
        let segments = segments.iter().map(|number| directory.join(files::segment(*number))).collect();
        Ok(Self {
            directory: directory.to_owned(),
            disk: Arc::new(disk),
            segments,
            journal: None,
            most: MESSAGE_BYTES_MAX,
        })
    }

    /// The same, whose batches end with an error at a value of more bytes.
    #[must_use]
    pub fn limited(self, max_message_bytes: u64) -> Self {
        Self { most: max_message_bytes.min(MESSAGE_BYTES_MAX), ..self }
    }

    /// The published segments, in order.
    pub fn segments(&self) -> &[PathBuf] {
        &self.segments
    }

    /// The same in parts: each segment as a capture of its own, and what is only in the journal.
    pub fn parts(&self) -> Vec<Self> {
        let part = |segments, journal| Self {
            directory: self.directory.clone(),
            disk: Arc::clone(&self.disk),
            segments,
            journal,
            most: self.most,
        };
        let segments = self.segments.iter().map(|segment| part(vec![segment.clone()], None));
        segments.chain(self.journal.clone().map(|journal| part(Vec::new(), Some(journal)))).collect()
    }

    /// Every row with the columns of [`schema`], oldest first.
    pub fn batches(&self) -> Result<Batches, CaptureError> {
        self.select(Selection::default())
    }

    /// The rows of a selection with the columns of [`schema`], oldest first. Where the statistics of a segment say that
    /// it has none, its rows are not read.
    pub fn select(&self, selection: Selection) -> Result<Batches, CaptureError> {
        self.read(&schema(), selection)
    }

    /// The rows of a selection with some columns of [`schema`] and in its order, oldest first; other columns are not
    /// read but where they decide. Names it does not have are passed over.
    pub fn columns(&self, names: &[impl AsRef<str>], selection: Selection) -> Result<Batches, CaptureError> {
        self.read(&some_columns(names), selection)
    }

    /// Counts the rows, reading just the columns it takes.
    pub fn info(&self) -> Result<Info, CaptureError> {
        let mut info = Info { segments: self.segments.len() as u64, ..Info::default() };
        for batch in self.columns(&INFO_COLUMNS, Selection::default())? {
            info.add(&batch?);
        }
        info.capture_id = self.capture_id()?;
        Ok(info)
    }

    /// What came of each sender's runs, in the order they began, as of now: a writer may have gone on since this was
    /// opened. What is written down is read, and the rows after it are counted.
    pub fn runs(&self) -> Result<Runs, CaptureError> {
        let mut tries = 0..RUN_TRIES;
        loop {
            match Self::open(&self.directory).and_then(|now| now.read_runs()) {
                // The writer has put something later in its place.
                Err(error) if error.kind() == CaptureErrorKind::Missing && tries.next().is_some() => {}
                runs => return runs,
            }
        }
    }

    fn read_runs(&self) -> Result<Runs, CaptureError> {
        let journal_number = self.journal.as_ref().map(|(number, ..)| *number);
        let files = list_notes(&*self.disk, &self.directory)?;
        let published = list(&self.disk, &self.directory)?.segments;
        let is_unpublished = |number| Some(number) == journal_number && published.binary_search(&number).is_err();
        let (mut all, mut book, mut last) = (Vec::new(), RunBook::default(), None);
        let mut maps = Maps::new();
        // The file of a segment comes before the segment, and what the segment is to hold may not.
        for number in files.into_iter().filter(|number| !is_unpublished(*number)) {
            let (path, text) = read_notes(&*self.disk, &self.directory, number)?;
            let (_, lines) = notes::from_text(&path, &text)?;
            let (over, latest) = runs::from_lines(&path, lines, &mut maps)?;
            all.extend(over);
            (book, last) = (latest, Some(number));
        }
        let is_later = |number: &u64| last.is_none_or(|last| *number > last);
        for number in published.iter().copied().filter(is_later) {
            let path = self.directory.join(files::segment(number));
            record_segment(&mut book, number, &path, &open(&*self.disk, &path)?)?;
        }
        if let Some((number, path, file)) = &self.journal
            && is_later(number)
            && is_unpublished(*number)
        {
            let mut journal = JournalReader::new(path.clone(), file.reader())?;
            let mut first_seq = journal.next_seq();
            while let Some(batch) = journal.batch()? {
                Account::record(&mut book, *number, first_seq, &batch.columns);
                first_seq = journal.next_seq();
            }
        }
        all.extend(book.closed().iter().map(|closed| (closed.sender.to_string(), closed.run.clone())));
        all.extend(book.latest().map(|(sender, run)| (sender.to_owned(), run.clone())));
        all.sort_by_key(|(_, run)| run.first_seq);
        let capture_id = self.capture_id()?.unwrap_or_default();
        let record = |(sender, mut run)| {
            find_maps(&mut run, &maps);
            RunRecord { capture_id: capture_id.clone(), sender, run }
        };
        Ok(Runs { runs: all.into_iter().map(record).collect(), unfollowed: book.unfollowed() })
    }

    fn capture_id(&self) -> Result<Option<String>, CaptureError> {
        if let Some(manifest) = read_manifest(&*self.disk, &self.directory)? {
            return Ok(Some(manifest.capture_id));
        }
        let Some(path) = self.segments.last() else { return Ok(None) };
        Ok(Some(SegmentSummary::read(path, &open(&*self.disk, path)?)?.capture_id))
    }

    fn read(&self, wanted: &SchemaRef, selection: Selection) -> Result<Batches, CaptureError> {
        let journal = match &self.journal {
            Some((_, path, file)) => Some(JournalReader::new(path.clone(), file.reader())?),
            None => None,
        };
        let mut names: Vec<&str> = wanted.fields().iter().map(|field| field.name().as_str()).collect();
        for name in selection.columns() {
            names.push(name);
        }
        Ok(Batches {
            read: some_columns(&names),
            wanted: Arc::clone(wanted),
            selection,
            directory: self.directory.clone(),
            disk: Arc::clone(&self.disk),
            segments: self.segments.clone().into_iter(),
            segment: None,
            journal,
            most: self.most,
        })
    }
}

/// How far a capture has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The capture's id; `None` before its first row.
    pub capture_id: Option<String>,
    /// The number of the segment after the last published one.
    pub next_segment: u64,
}

impl Position {
    /// How far the capture in a directory has come. Takes as long for a million segments as for one, unless its manifest is
    /// missing.
    pub fn of(directory: &Path) -> Result<Self, CaptureError> {
        let missing = |error| CaptureError::reading(directory, error);
        let disk = LocalDisk::open(directory, Access::Umask).map_err(missing)?;
        let Some(manifest) = read_manifest(&disk, directory)? else {
            // One that is about to begin has nothing else yet.
            if !directory.join(files::META).is_dir() {
                look_for_capture(directory)?;
            }
            let segments = list(&disk, directory)?.segments;
            let capture_id = Capture::of(directory, &segments)?.capture_id()?;
            return Ok(Self { capture_id, next_segment: segments.last().map_or(0, |last| last + 1) });
        };
        let mut next_segment = manifest.next_segment;
        // A writer that was killed may have published one without writing that down.
        while open(&disk, &directory.join(files::segment(next_segment))).is_ok() {
            next_segment += 1;
        }
        Ok(Self { capture_id: Some(manifest.capture_id), next_segment })
    }
}

/// The numbers of the published segments of the capture in a directory, in order.
pub fn published(directory: &Path) -> Result<Vec<u64>, CaptureError> {
    let disk = LocalDisk::open(directory, Access::Umask).map_err(|error| CaptureError::reading(directory, error))?;
    let segments = list(&disk, directory)?.segments;
    if segments.is_empty() {
        // Then it is to be told from what is none.
        look_for_capture(directory)?;
    }
    Ok(segments)
}

/// The batches of a capture, oldest first. Ends after the first error.
pub struct Batches {
    /// The columns wanted.
    wanted: SchemaRef,
    /// The columns read: those, and those that decide.
    read: SchemaRef,
    selection: Selection,
    directory: PathBuf,
    disk: Arc<LocalDisk>,
    segments: vec::IntoIter<PathBuf>,
    segment: Option<SegmentReader>,
    journal: Option<JournalReader<BufReader<SourceReader>>>,
    most: u64,
}

impl Batches {
    /// The columns of every batch.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.wanted)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, CaptureError> {
        loop {
            if let Some(segment) = &mut self.segment {
                match segment.batch()? {
                    Some(batch) => return Ok(Some(batch)),
                    None => self.segment = None,
                }
            }
            if let Some(path) = self.segments.next() {
                let file = open(&*self.disk, &path)?;
                self.segment =
                    Some(SegmentReader::new(path, file, Arc::clone(&self.read), &self.selection, self.most)?);
            } else {
                let Some(journal) = &mut self.journal else { return Ok(None) };
                let Some(batch) = journal.capture_batch()? else { return Ok(None) };
                let batch = with_schema(journal.path(), &batch, &self.read)?;
                check_values(journal.path(), &batch, self.most)?;
                return Ok(Some(batch));
            }
        }
    }

    /// The rows wanted of a batch, with the columns wanted.
    fn wanted_of(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let rows = self.selection.rows(batch);
        let names = self.wanted.fields().iter().map(|field| batch.schema_ref().index_of(field.name()));
        let batch = batch.project(&names.collect::<Result<Vec<_>, _>>()?)?;
        rows.map_or(Ok(batch.clone()), |rows| arrow_select::filter::filter_record_batch(&batch, &rows))
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = loop {
            match self.next_batch().transpose()? {
                Ok(batch) => match self.wanted_of(&batch) {
                    Ok(wanted) if wanted.num_rows() == 0 && batch.num_rows() > 0 => {}
                    Ok(wanted) => break Some(Ok(wanted)),
                    Err(error) => break Some(Err(CaptureError::columns(&self.directory, &error))),
                },
                Err(error) => break Some(Err(error)),
            }
        };
        if matches!(batch, Some(Err(_))) {
            *self = Self {
                wanted: Arc::clone(&self.wanted),
                read: Arc::clone(&self.read),
                selection: Selection::default(),
                directory: self.directory.clone(),
                disk: Arc::clone(&self.disk),
                segments: Vec::new().into_iter(),
                segment: None,
                journal: None,
                most: self.most,
            };
        }
        batch
    }
}

/// The messages of a batch's rows.
#[derive(Debug)]
pub struct Rows<'a> {
    protocol: &'a StringArray,
    error: &'a StringArray,
    topic: &'a StringArray,
    envelope: &'a ListArray,
    header: &'a BinaryArray,
    payload: &'a ListArray,
}

impl<'a> Rows<'a> {
    /// Looks at a batch with the columns of [`schema`].
    pub fn new(batch: &'a RecordBatch) -> Self {
        Self {
            protocol: batch["protocol"].as_string(),
            error: batch["error"].as_string(),
            topic: batch["topic"].as_string(),
            envelope: batch["envelope"].as_list(),
            header: batch["header"].as_binary(),
            payload: batch["payload"].as_list(),
        }
    }

    /// What a message speaks.
    pub fn protocol(&self, row: usize) -> &'a str {
        self.protocol.value(row)
    }

    /// Why a message does not decode; `None` for a good one.
    pub fn error(&self, row: usize) -> Option<&'a str> {
        let error = self.error;
        error.is_valid(row).then(|| error.value(row))
    }

    /// What a message is about, where that is known.
    pub fn topic(&self, row: usize) -> Option<&'a str> {
        let topic = self.topic;
        topic.is_valid(row).then(|| topic.value(row))
    }

    /// A message as it was on the wire: envelope, header and payload.
    pub fn frames(&self, row: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let header = self.header;
        let header = header.is_valid(row).then(|| header.value(row));
        frames(self.envelope, row).chain(header).chain(frames(self.payload, row))
    }
}

fn frames(lists: &ListArray, row: usize) -> impl Iterator<Item = &[u8]> {
    let frames: &BinaryArray = lists.values().as_binary();
    let ends = lists.value_offsets();
    let at = |end: i32| usize::try_from(end).unwrap_or_default();
    (at(ends[row])..at(ends[row + 1])).map(|frame| frames.value(frame))
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
