//! Staged files into a capture, all or none.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use crate::disk::Disk;
use crate::files::{self, Listing};
use crate::interleaving::in_order;
use crate::journal::Header;
use crate::layout::{list_sums, need_room, read_manifest, read_sums};
use crate::local::{LocalDisk, make_directory};
use crate::lock::Lock;
use crate::manifest::Manifest;
use crate::notes::{self, SUMS_MAX, Sum};
use crate::numbering::number;
use crate::staged::Staged;
use crate::store::Store;
use crate::{Access, CaptureError, Settings, import};

/// How many files are numbered at a time, each of which waits for the disk.
const NUMBERED: usize = 8;

/// A batch of a streaming query, whose batches have ascending numbers.
#[derive(Clone, Copy, Debug)]
pub struct QueryBatch<'a> {
    pub query: &'a str,
    pub batch: u64,
}

/// Publishes staged files as segments of a capture, created if absent, by the order of their rows; false if they are those
/// of a batch that was published before, and are dropped.
///
/// The segments of a batch are seen by readers of captures together. After an error, or a kill, none is published; what
/// is left of them is removed by the next writer.
pub fn publish(
    directory: &Path,
    staging: &Path,
    staged: Vec<Staged>,
    batch: Option<QueryBatch<'_>>,
) -> Result<bool, CaptureError> {
    need_room(directory)?;
    let writing = |error| CaptureError::writing(directory, error);
    make_directory(directory, Access::Umask).map_err(writing)?;
    let access = Access::of(directory);
    let lock = Lock::acquire(directory, access)?;
    import::clear(directory)?;
    let disk: Arc<dyn Disk> = Arc::new(LocalDisk::open(directory, access).map_err(writing)?);
    let store = match read_manifest(&*disk, directory)? {
        // Opening it would read all rows that are not in its account.
        Some(manifest) if manifest.is_exact => Store::of(disk, directory, manifest),
        _ => Store::open(disk, directory, &|| true)?.0,
    };
    let is_new = store.publish_staged(staging, staged, batch)?;
    lock.release()?;
    Ok(is_new)
}

impl Store {
    fn publish_staged(
        mut self,
        staging: &Path,
        staged: Vec<Staged>,
        batch: Option<QueryBatch<'_>>,
    ) -> Result<bool, CaptureError> {
        let names = self.disk.list(&self.directory).map_err(|error| CaptureError::reading(&self.directory, error))?;
        self.forget_unpublished(&mut Listing::new(names))?;
        if let Some(QueryBatch { query, batch }) = batch {
            if self.manifest.batches.get(query).is_some_and(|latest| *latest >= batch) {
                return Ok(false);
            }
            self.hide_unpublished()?;
        }
        let sums = if staged.is_empty() { Vec::new() } else { self.take_in(staging, staged)? };
        let repeated = self.write_sums(&sums)?;
        if let Some(QueryBatch { query, batch }) = batch {
            self.manifest.batches.insert(query.to_owned(), batch);
        }
        self.manifest.next_segment += sums.len() as u64;
        self.manifest.next_seq += sums.iter().filter_map(|sum| sum.counts).map(|(rows, _)| rows).sum::<u64>();
        self.write_manifest()?;
        if let Some(last) = repeated {
            self.remove(&self.directory.join(files::sums(last)))?;
        }
        Ok(true)
    }

    /// Has readers see segments once the manifest has them.
    fn hide_unpublished(&mut self) -> Result<(), CaptureError> {
        if self.manifest.is_exact {
            return Ok(());
        }
        self.create_meta()?;
        self.replace(files::NEXT_BATCHES, &format!("{}/{}", files::META, files::BATCHES), b"")?;
        self.manifest.is_exact = true;
        self.write_manifest()
    }

    /// Gives staged files their numbers and names.
    fn take_in(&self, staging: &Path, staged: Vec<Staged>) -> Result<Vec<Sum>, CaptureError> {
        let reading = |error| CaptureError::reading(staging, error);
        let disk: Arc<dyn Disk> = Arc::new(LocalDisk::open(staging, Access::Umask).map_err(reading)?);
        let staged = in_order(&disk, staging, staged, Settings::default().segment_bytes)?;
        let Manifest { capture_id, next_segment, next_seq, .. } = &self.manifest;
        let mut first_seq = *next_seq;
        let header = |(file, segment): (&Staged, u64)| {
            let header = Header { capture_id: capture_id.clone(), segment, first_seq };
            first_seq += file.rows;
            header
        };
        let headers: Vec<Header> = staged.iter().zip(*next_segment..).map(header).collect();
        let each = staged.len().div_ceil(NUMBERED).max(1);
        let parts = staged.chunks(each).zip(headers.chunks(each));
        let sums = thread::scope(|scope| {
            let numbering: Vec<_> = parts
                .map(|(files, headers)| {
                    let number = |(file, header)| number(&*disk, staging, file, header);
                    scope.spawn(move || files.iter().zip(headers).map(number).collect::<Result<Vec<Sum>, _>>())
                })
                .collect();
            let ended = |_| Err(CaptureError::corrupt(staging, "the thread that numbers its files has panicked"));
            numbering.into_iter().map(|part| part.join().unwrap_or_else(ended)).collect::<Result<Vec<_>, _>>()
        })?;
        let sums = sums.concat();
        for (file, sum) in staged.iter().zip(&sums) {
            let to = self.directory.join(sum.span.file());
            fs::rename(staging.join(&file.name), &to).map_err(|error| CaptureError::writing(&to, error))?;
        }
        self.sync_directory()?;
        Ok(sums)
    }

    /// Writes down the checksums of segments, and those of the last file of them, which may then be removed.
    fn write_sums(&self, sums: &[Sum]) -> Result<Option<u64>, CaptureError> {
        if sums.is_empty() {
            return Ok(None);
        }
        self.create_meta()?;
        let (mut all, mut repeated) = (Vec::new(), None);
        if let Some(last) = list_sums(&*self.disk, &self.directory)?.last().copied() {
            let before = read_sums(&*self.disk, &self.directory, last)?;
            if last + 1 == self.manifest.next_segment && before.len() < SUMS_MAX {
                (all, repeated) = (before, Some(last));
            }
        }
        all.extend(sums);
        for part in all.chunks(SUMS_MAX) {
            let last = part.last().map_or(0, |sum| sum.span.last);
            self.replace(files::NEXT_NOTES, &files::sums(last), &notes::to_text(last, part, b""))?;
        }
        self.sync_meta()?;
        Ok(repeated)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use arrow_array::RecordBatch;
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::Int64Type;
    use arrow_select::take::take_record_batch;

    use super::*;
    use crate::import::row;
    use crate::published::{Position, published, segments};
    use crate::{Capture, Import, Stager, Writer, compact, recover, verify};

    /// The rows of a new capture of so many rows, in one batch.
    fn recorded(scratch: &Path, rows: i64) -> RecordBatch {
        let directory = scratch.join("recorded");
        let mut import = Import::open(&directory, Settings { segment_bytes: 300, ..Settings::default() }).unwrap();
        (0..rows).for_each(|at| import.append(&row(at)).unwrap());
        import.commit().unwrap();
        all(&directory)
    }

    fn all(directory: &Path) -> RecordBatch {
        let batches: Vec<RecordBatch> =
            Capture::open(directory).unwrap().batches().unwrap().map(Result::unwrap).collect();
        arrow_select::concat::concat_batches(&crate::schema(), &batches).unwrap()
    }

    fn some(rows: &RecordBatch, which: impl IntoIterator<Item = i64>) -> RecordBatch {
        take_record_batch(rows, &arrow_array::Int64Array::from_iter_values(which)).unwrap()
    }

    /// Has a task stage rows.
    fn staged(scratch: &Path, segment_bytes: u64, batches: &[RecordBatch]) -> Vec<Staged> {
        let mut stager = Stager::open(&scratch.join("staging"), Some(segment_bytes)).unwrap();
        for batch in batches {
            stager.append(batch).unwrap();
        }
        stager.finish().unwrap()
    }

    fn numbers(rows: &RecordBatch, name: &str) -> Vec<i64> {
        rows[name].as_primitive::<Int64Type>().values().to_vec()
    }

    fn names(scratch: &Path) -> (PathBuf, PathBuf) {
        let (capture, staging) = (scratch.join("capture"), scratch.join("staging"));
        fs::create_dir_all(&staging).unwrap();
        (capture, staging)
    }

    /// Publishes a batch, and undoes the last steps: as if it had been killed before the manifest was written.
    fn killed(capture: &Path, publish: impl FnOnce()) {
        let meta = capture.join(files::META);
        let read = |name: &String| (name.clone(), fs::read(meta.join(name)).unwrap());
        let before: Vec<_> = crate::layout::list_if_there(&LocalDisk::open(capture, Access::Umask).unwrap(), &meta)
            .unwrap()
            .iter()
            .map(read)
            .collect();
        publish();
        for (name, contents) in before {
            fs::write(meta.join(name), contents).unwrap();
        }
    }

    fn need_whole(directory: &Path, rows: u64) {
        let found = verify(directory, &|| true).unwrap();
        assert_eq!((found.problems, found.unchecked, found.messages), (vec![], 0, rows));
    }

    #[test]
    fn rows_of_tasks_in_any_order_are_numbered_in_the_order_of_the_old_ones() {
        for (segment_bytes, each) in [(1 << 20, 1), (70, 7)] {
            let scratch = tempfile::tempdir().unwrap();
            let (capture, staging) = names(scratch.path());
            let rows = recorded(scratch.path(), 1000);
            // Each task has every third row, backwards and a few at a time.
            let mut files = Vec::new();
            for task in 0..3 {
                let which: Vec<i64> = (0..1000).rev().filter(|at| at % 3 == task).collect();
                let batches: Vec<_> = which.chunks(each * 10).map(|which| some(&rows, which.iter().copied())).collect();
                files.extend(staged(scratch.path(), segment_bytes, &batches));
            }
            assert!(publish(&capture, &staging, files, None).unwrap());
            let found = all(&capture);
            assert_eq!(numbers(&found, "seq"), (0..1000).collect::<Vec<_>>());
            assert_eq!(numbers(&found, "received_at_ns"), (0..1000).collect::<Vec<_>>());
            for name in ["protocol", "header", "payload", "n_head", "n_frames", "n_bytes"] {
                assert_eq!(&found[name], &rows[name], "{name}");
            }
            let ids: BTreeSet<_> = found["capture_id"].as_string::<i32>().iter().flatten().collect();
            assert_eq!(ids, BTreeSet::from([Position::of(&*capture).unwrap().capture_id.unwrap().as_str()]));
            need_whole(&capture, 1000);
            let noted = segments(&*capture, None, 1000).unwrap();
            assert_eq!(noted.iter().filter_map(|segment| segment.counts).map(|(rows, _)| rows).sum::<u64>(), 1000);
        }
    }

    #[test]
    fn files_whose_rows_follow_are_not_read_again() {
        let scratch = tempfile::tempdir().unwrap();
        let (capture, staging) = names(scratch.path());
        let rows = recorded(scratch.path(), 100);
        let tasks = [some(&rows, 40..100), some(&rows, 0..40)];
        let files: Vec<Staged> =
            tasks.iter().flat_map(|rows| staged(scratch.path(), 1 << 20, std::slice::from_ref(rows))).collect();
        assert_eq!(files.len(), 2);
        // What is in the files does not matter but for the footers.
        let disk: Arc<dyn Disk> = Arc::new(LocalDisk::open(&staging, Access::Umask).unwrap());
        let expected = vec![files[1].clone(), files[0].clone()];
        assert_eq!(in_order(&disk, &staging, files.clone(), 1 << 20).unwrap(), expected);
        assert!(publish(&capture, &staging, files, None).unwrap());
        assert_eq!(published(&*capture).unwrap(), [(0, 0), (1, 1)]);
        need_whole(&capture, 100);
    }

    #[test]
    fn a_batch_is_published_once_and_seen_whole() {
        let scratch = tempfile::tempdir().unwrap();
        let (capture, staging) = names(scratch.path());
        let rows = recorded(scratch.path(), 90);
        let publish_batch = |batch, range: std::ops::Range<i64>| {
            let files = staged(scratch.path(), 100, &[some(&rows, range)]);
            publish(&capture, &staging, files, Some(QueryBatch { query: "q", batch })).unwrap()
        };
        assert!(publish_batch(0, 0..30));
        assert!(publish_batch(1, 30..60));
        assert!(!publish_batch(1, 30..60));
        assert!(!publish_batch(0, 0..30));
        assert_eq!(numbers(&all(&capture), "received_at_ns"), (0..60).collect::<Vec<_>>());
        let next = Position::of(&*capture).unwrap().next_segment;
        killed(&capture, || assert!(publish_batch(2, 60..90)));
        assert!(capture.join(files::segment(next)).exists());
        assert_eq!(all(&capture).num_rows(), 60);
        assert_eq!(Position::of(&*capture).unwrap().next_segment, next);
        need_whole(&capture, 60);
        // With fewer segments than before.
        assert!(publish_batch(2, 60..70));
        assert_eq!(numbers(&all(&capture), "received_at_ns"), (0..70).collect::<Vec<_>>());
        need_whole(&capture, 70);
        // Another query goes on with it, and what records as well.
        let files = staged(scratch.path(), 100, &[some(&rows, 70..80)]);
        assert!(publish(&capture, &staging, files, Some(QueryBatch { query: "other", batch: 0 })).unwrap());
        let mut writer = Writer::open(&capture, Settings::default(), || {}).unwrap();
        writer.append(&row(80));
        writer.close().unwrap();
        assert!(!publish_batch(2, 60..70));
        assert!(publish_batch(3, 81..90));
        assert_eq!(numbers(&all(&capture), "received_at_ns"), (0..90).collect::<Vec<_>>());
        assert_eq!(numbers(&all(&capture), "seq"), (0..90).collect::<Vec<_>>());
        need_whole(&capture, 90);
        recover(&capture, &|| true).unwrap();
        compact(&capture, 1 << 20, &|| true).unwrap();
        assert!(!publish_batch(3, 81..90));
        need_whole(&capture, 90);
    }

    #[test]
    fn what_a_killed_batch_left_is_removed_by_what_records() {
        let scratch = tempfile::tempdir().unwrap();
        let (capture, staging) = names(scratch.path());
        let rows = recorded(scratch.path(), 20);
        let publish_batch = |batch, range: std::ops::Range<i64>| {
            let files = staged(scratch.path(), 100, &[some(&rows, range)]);
            publish(&capture, &staging, files, Some(QueryBatch { query: "q", batch })).unwrap();
        };
        publish_batch(0, 0..10);
        killed(&capture, || publish_batch(1, 10..20));
        let mut writer = Writer::open(&capture, Settings::default(), || {}).unwrap();
        writer.append(&row(10));
        writer.close().unwrap();
        assert_eq!(numbers(&all(&capture), "received_at_ns"), (0..11).collect::<Vec<_>>());
        need_whole(&capture, 11);
    }
}
