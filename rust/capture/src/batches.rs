//! The rows of a capture, batch by batch.

use std::collections::VecDeque;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};

use crate::disk::Files;
use crate::files::{Listing, Span};
use crate::journal::JournalReader;
use crate::layout::{list, open};
use crate::scan::{SegmentReader, check_values, some_columns, with_schema};
use crate::selection::Selection;
use crate::source::{Source, SourceReader};
use crate::{CaptureError, CaptureErrorKind};

/// The batches of a capture, oldest first. Ends after the first error.
pub struct Batches {
    /// The columns wanted.
    wanted: SchemaRef,
    /// The columns read: those wanted, and those that the selection needs.
    read: SchemaRef,
    selection: Selection,
    directory: PathBuf,
    files: Arc<dyn Files>,
    segments: VecDeque<Ahead>,
    segment: Option<Segment>,
    /// Where to list segments that are gone, instead of ending with an error.
    gone: Option<Gone>,
    journal: Option<JournalReader<BufReader<SourceReader>>>,
    most: u64,
}

/// Segments that a reader has passed over, since they were deleted.
pub(crate) type Gone = Arc<Mutex<Vec<Span>>>;

/// How many segments of a store are opened at a time.
const AHEAD: usize = 8;

/// How often segments are looked for among merged ones: they may be merged again meanwhile.
const LOOKS: usize = 3;

/// A segment to come.
struct Ahead {
    span: Span,
    opening: Option<JoinHandle<io::Result<Source>>>,
    looks: usize,
}

impl From<Span> for Ahead {
    fn from(span: Span) -> Self {
        Self { span, opening: None, looks: 0 }
    }
}

impl Ahead {
    fn open(&mut self, files: &dyn Files, path: &Path) -> Result<Source, CaptureError> {
        let Some(opening) = self.opening.take() else { return open(files, path) };
        let opened = opening.join().unwrap_or_else(|_| Err(io::Error::other("the thread that opens it has ended")));
        opened.map_err(|error| CaptureError::reading(path, error))
    }
}

/// The current segment.
struct Segment {
    reader: SegmentReader,
    /// The selection of its own rows, if the file has those of other segments as well.
    part: Option<Selection>,
}

impl Batches {
    pub(crate) fn new(
        directory: PathBuf,
        files: Arc<dyn Files>,
        wanted: &SchemaRef,
        selection: Selection,
        segments: impl IntoIterator<Item = Span>,
        journal: Option<JournalReader<BufReader<SourceReader>>>,
        most: u64,
    ) -> Self {
        let mut names: Vec<&str> = wanted.fields().iter().map(|field| field.name().as_str()).collect();
        for name in selection.columns() {
            names.push(name);
        }
        Self {
            wanted: Arc::clone(wanted),
            read: some_columns(&names),
            selection,
            directory,
            files,
            segments: segments.into_iter().map(Ahead::from).collect(),
            segment: None,
            gone: None,
            journal,
            most,
        }
    }

    /// The same without segments that are gone, which are listed instead.
    pub(crate) fn without_gone(self, gone: Option<Gone>) -> Self {
        Self { gone, ..self }
    }

    /// The columns of every batch.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.wanted)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, CaptureError> {
        loop {
            if let Some(segment) = &mut self.segment {
                match segment.reader.batch()? {
                    Some(batch) => match &segment.part {
                        None => return Ok(Some(batch)),
                        Some(part) => {
                            let rows = rows_of(&batch, part, &self.read);
                            return rows.map(Some).map_err(|error| CaptureError::columns(&self.directory, &error));
                        }
                    },
                    None => self.segment = None,
                }
            }
            self.open_ahead();
            if let Some(next) = self.segments.pop_front() {
                self.segment = self.open_segment(next)?;
            } else {
                let Some(journal) = &mut self.journal else { return Ok(None) };
                let Some(batch) = journal.capture_batch()? else { return Ok(None) };
                let batch = with_schema(journal.path(), &batch, &self.read)?;
                check_values(journal.path(), &batch, self.most)?;
                return Ok(Some(batch));
            }
        }
    }

    /// Opens the next segments of a store, each in a thread of its own.
    fn open_ahead(&mut self) {
        if !self.files.is_far() {
            return;
        }
        for next in self.segments.iter_mut().take(AHEAD).filter(|next| next.opening.is_none()) {
            let (files, path) = (Arc::clone(&self.files), self.directory.join(next.span.file()));
            // Without a thread it is opened once it is needed.
            next.opening = thread::Builder::new().spawn(move || files.open(&path)).ok();
        }
    }

    /// Opens a segment, wherever its rows are; `None` if it is gone, and that is no error.
    fn open_segment(&mut self, mut next: Ahead) -> Result<Option<Segment>, CaptureError> {
        let path = self.directory.join(next.span.file());
        let error = match next.open(&*self.files, &path) {
            Ok(file) => {
                let reader = SegmentReader::new(path, file, Arc::clone(&self.read), &self.selection, self.most)?;
                return Ok(Some(Segment { reader, part: None }));
            }
            Err(error) if error.kind() == CaptureErrorKind::Missing => error,
            Err(error) => return Err(error),
        };
        let Ahead { span, looks, .. } = next;
        let listing = if looks < LOOKS { list(&*self.files, &self.directory)? } else { Listing::default() };
        if let Some(merged) = listing.covering(span).filter(|merged| *merged != span) {
            return match self.open_merged(span, merged) {
                Err(error) if error.kind() == CaptureErrorKind::Missing => {
                    self.segments.push_front(Ahead { span, opening: None, looks: looks + 1 });
                    Ok(None)
                }
                segment => segment.map(Some),
            };
        }
        let Some(gone) = &self.gone else { return Err(error) };
        // Some of its rows may be there.
        let parts = listing.parts(span);
        gone.lock().unwrap_or_else(PoisonError::into_inner).extend(span.without(&parts));
        for part in parts.into_iter().rev() {
            self.segments.push_front(Ahead { span: part, opening: None, looks: looks + 1 });
        }
        Ok(None)
    }

    /// Opens the file of merged segments, for the rows of this one and of the next that were merged into it.
    fn open_merged(&mut self, span: Span, merged: Span) -> Result<Segment, CaptureError> {
        let path = self.directory.join(merged.file());
        let file = open(&*self.files, &path)?;
        let mut spans = vec![span];
        while let Some(next) = self.segments.front().map(|next| next.span).filter(|next| merged.covers(*next)) {
            spans.push(next);
            self.segments.pop_front();
        }
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let segments = spans.into_iter().map(|span| number(span.first)..=number(span.last)).collect();
        let selection = Selection { segments: Some(segments), ..self.selection.clone() };
        let names = self.read.fields().iter().map(|field| field.name().as_str()).chain(["segment"]);
        let columns = some_columns(&names.collect::<Vec<_>>());
        let reader = SegmentReader::new(path, file, columns, &selection, self.most)?;
        let part = Selection { segments: selection.segments, ..Selection::default() };
        Ok(Segment { reader, part: Some(part) })
    }
}

/// The rows of a batch that are selected, with some of its columns.
fn rows_of(batch: &RecordBatch, selection: &Selection, wanted: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let rows = selection.rows(batch);
    let names = wanted.fields().iter().map(|field| batch.schema_ref().index_of(field.name()));
    let batch = batch.project(&names.collect::<Result<Vec<_>, _>>()?)?;
    rows.map_or(Ok(batch.clone()), |rows| arrow_select::filter::filter_record_batch(&batch, &rows))
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = loop {
            match self.next_batch().transpose()? {
                Ok(batch) => match rows_of(&batch, &self.selection, &self.wanted) {
                    Ok(wanted) if wanted.num_rows() == 0 && batch.num_rows() > 0 => {}
                    Ok(wanted) => break Some(Ok(wanted)),
                    Err(error) => break Some(Err(CaptureError::columns(&self.directory, &error))),
                },
                Err(error) => break Some(Err(error)),
            }
        };
        if matches!(batch, Some(Err(_))) {
            (self.segment, self.journal) = (None, None);
            self.segments.clear();
        }
        batch
    }
}
