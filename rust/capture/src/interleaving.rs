//! Staged files into ones of which none has rows between those of another.

use std::collections::VecDeque;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;

use crate::columns::MESSAGE_BYTES_MAX;
use crate::disk::Disk;
use crate::layout::open;
use crate::scan::SegmentReader;
use crate::schema::schema;
use crate::staged::{Key, Out, Recorded, Staged};
use crate::{CaptureError, Selection};

/// How many sequences are merged at a time, and the bytes of the rows of each in memory.
const SEQUENCES: usize = 16;
const SEQUENCE_BYTES: u64 = 8 << 20;

/// Files one after the other, each with rows after those of the one before.
type Sequence = VecDeque<Staged>;

/// Orders files by their rows. Those with rows between each other's are merged into new ones, in bounded memory; the
/// others are not read.
pub(crate) fn in_order(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    mut files: Vec<Staged>,
    segment_bytes: u64,
) -> Result<Vec<Staged>, CaptureError> {
    files.sort_by(|one, other| (&one.first, &one.last).cmp(&(&other.first, &other.last)));
    let mut ordered = Vec::with_capacity(files.len());
    let mut files = files.into_iter().peekable();
    while let Some(file) = files.next() {
        let mut end = file.last.clone();
        let mut sequences = vec![Sequence::from([file])];
        while let Some(next) = files.next_if(|next| next.first < end) {
            end = end.max(next.last.clone());
            let follows = |sequence: &&mut Sequence| sequence.back().is_some_and(|last| last.last <= next.first);
            match sequences.iter_mut().find(follows) {
                Some(sequence) => sequence.push_back(next),
                None => sequences.push(Sequence::from([next])),
            }
        }
        while sequences.len() > 1 {
            let rest = sequences.split_off(sequences.len().min(SEQUENCES));
            let merged = merge(disk, directory, mem::replace(&mut sequences, rest), segment_bytes)?;
            sequences.push(merged);
        }
        ordered.extend(sequences.into_iter().flatten());
    }
    Ok(ordered)
}

/// Merges sequences into one, and removes their files.
fn merge(
    disk: &Arc<dyn Disk>,
    directory: &Path,
    sequences: Vec<Sequence>,
    segment_bytes: u64,
) -> Result<Sequence, CaptureError> {
    let mut out = Out::new(Arc::clone(disk), directory, segment_bytes)?;
    let cursor = |files| Cursor::new(Arc::clone(disk), directory, files);
    let mut cursors = sequences.into_iter().map(cursor).collect::<Result<Vec<_>, _>>()?;
    loop {
        // The rows of one, up to the first row of any other.
        let mut firsts: Vec<(usize, (&str, i64))> =
            cursors.iter().enumerate().filter_map(|(of, cursor)| Some((of, cursor.key()?))).collect();
        firsts.sort_unstable_by_key(|(_, key)| *key);
        let Some((of, _)) = firsts.first().copied() else { break };
        let end = firsts.get(1).map(|(_, (id, seq))| Key { capture_id: (*id).to_owned(), seq: *seq });
        cursors[of].pass(end.as_ref(), &mut out)?;
    }
    Ok(out.finish()?.into())
}

/// A position in a sequence.
struct Cursor {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    files: Sequence,
    reader: Option<(SegmentReader, PathBuf)>,
    batch: RecordBatch,
    at: usize,
}

impl Cursor {
    fn new(disk: Arc<dyn Disk>, directory: &Path, files: Sequence) -> Result<Self, CaptureError> {
        let batch = RecordBatch::new_empty(schema());
        let mut cursor = Self { disk, directory: directory.to_owned(), files, reader: None, batch, at: 0 };
        cursor.read()?;
        Ok(cursor)
    }

    /// The key of its row; `None` at the end.
    fn key(&self) -> Option<(&str, i64)> {
        let is_over = self.at >= self.batch.num_rows();
        Recorded::new(&self.batch).filter(|_| !is_over).map(|rows| rows.key(self.at))
    }

    /// Hands on its rows, at most those of its batch, up to a key.
    fn pass(&mut self, end: Option<&Key>, out: &mut Out) -> Result<(), CaptureError> {
        if let Some(rows) = Recorded::new(&self.batch) {
            let mut frames = Vec::new();
            let end = end.map(|end| (&*end.capture_id, end.seq));
            while self.at < self.batch.num_rows() && end.is_none_or(|end| rows.key(self.at) <= end) {
                out.push(&rows, self.at, &mut frames)?;
                self.at += 1;
            }
        }
        if self.at < self.batch.num_rows() { Ok(()) } else { self.read() }
    }

    /// Reads the next batch, or none at the end.
    fn read(&mut self) -> Result<(), CaptureError> {
        self.at = 0;
        loop {
            if let Some((reader, path)) = &mut self.reader {
                if let Some(batch) = reader.batch()? {
                    self.batch = batch;
                    return Ok(());
                }
                // What cannot be removed is, with all that is staged.
                let _ = self.disk.remove(path);
            }
            let Some(file) = self.files.pop_front() else {
                self.batch = RecordBatch::new_empty(schema());
                return Ok(());
            };
            let path = self.directory.join(&file.name);
            let source = open(&*self.disk, &path)?;
            let reader = SegmentReader::new(path.clone(), source, schema(), &Selection::default(), MESSAGE_BYTES_MAX)?;
            self.reader = Some((reader.of_batches(SEQUENCE_BYTES), path));
        }
    }
}
