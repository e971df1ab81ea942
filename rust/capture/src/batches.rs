//! The rows of a capture, batch by batch.

use std::collections::VecDeque;
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};

use crate::disk::Files;
use crate::files::Span;
use crate::journal::JournalReader;
use crate::layout::{list, open};
use crate::scan::{SegmentReader, check_values, some_columns, with_schema};
use crate::selection::Selection;
use crate::source::SourceReader;
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
    segments: VecDeque<Span>,
    segment: Option<Segment>,
    journal: Option<JournalReader<BufReader<SourceReader>>>,
    most: u64,
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
            segments: segments.into_iter().collect(),
            segment: None,
            journal,
            most,
        }
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
            if let Some(span) = self.segments.pop_front() {
                self.segment = Some(self.open_segment(span)?);
            } else {
                let Some(journal) = &mut self.journal else { return Ok(None) };
                let Some(batch) = journal.capture_batch()? else { return Ok(None) };
                let batch = with_schema(journal.path(), &batch, &self.read)?;
                check_values(journal.path(), &batch, self.most)?;
                return Ok(Some(batch));
            }
        }
    }

    fn open_segment(&mut self, span: Span) -> Result<Segment, CaptureError> {
        let path = self.directory.join(span.file());
        match open(&*self.files, &path) {
            Ok(file) => {
                let reader = SegmentReader::new(path, file, Arc::clone(&self.read), &self.selection, self.most)?;
                Ok(Segment { reader, part: None })
            }
            Err(error) if error.kind() == CaptureErrorKind::Missing => {
                let merged = list(&*self.files, &self.directory)?.covering(span);
                self.open_merged(span, merged.filter(|merged| *merged != span).ok_or(error)?)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens the file of merged segments, for the rows of this one and of the next that were merged into it.
    fn open_merged(&mut self, span: Span, merged: Span) -> Result<Segment, CaptureError> {
        let path = self.directory.join(merged.file());
        let file = open(&*self.files, &path)?;
        let mut spans = vec![span];
        while let Some(next) = self.segments.front().copied().filter(|next| merged.covers(*next)) {
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
