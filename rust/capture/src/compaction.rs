//! Few large segments out of many small ones.
//!
//! The rows of consecutive segments are merged into one file, whose name has the numbers of the first and the last;
//! each row keeps the number of its segment. From the moment that it has its name it hides those it replaces, which are
//! then removed: a reader that had listed one of them finds its rows in the merged one.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;

use crate::columns::MESSAGE_BYTES_MAX;
use crate::files::{self, MERGED_MAX, Span};
use crate::journal::Header;
use crate::layout::{list, need_capture, open};
use crate::local::LocalDisk;
use crate::lock::Lock;
use crate::notes::{self, GoesOn, Sum};
use crate::scan::SegmentReader;
use crate::schema::schema;
use crate::segment::{SegmentSummary, SegmentWriter};
use crate::store::Store;
use crate::verify::{is_as_noted, need_sums, what_is_wrong};
use crate::{Access, CaptureError, Selection, import};

/// The result of [`compact`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// The files of segments that were replaced.
    pub replaced: u64,
    /// Those that replace them.
    pub merged: u64,
    /// The bytes of all segments before.
    pub bytes_before: u64,
    /// The same after.
    pub bytes_after: u64,
}

/// Merges consecutive segments of a capture that have no more than `target_bytes` together. Readers may be open, a
/// writer may not; what a killed writer left is published first. Ends early, keeping what is merged by then, once
/// `goes_on` returns false.
/// `goes_on` says no.
///
/// # Errors
/// When a segment cannot be read or is not as it was published: it stays, as all after it do.
pub fn compact(directory: &Path, target_bytes: u64, goes_on: &dyn Fn() -> bool) -> Result<Compaction, CaptureError> {
    let access = Access::of(directory);
    let disk = LocalDisk::open(directory, access).map_err(|error| CaptureError::reading(directory, error))?;
    need_capture(&disk, directory)?;
    let lock = Lock::acquire(directory, access)?;
    import::clear(directory)?;
    let (store, _) = Store::open(Arc::new(disk), directory, goes_on)?;
    let done = store.compact(target_bytes, goes_on)?;
    lock.release()?;
    Ok(done)
}

impl Store {
    pub(crate) fn compact(&self, target_bytes: u64, goes_on: GoesOn<'_>) -> Result<Compaction, CaptureError> {
        let segments = list(&*self.disk, &self.directory)?.segments;
        let mut sized = Vec::with_capacity(segments.len());
        for span in segments {
            let path = self.directory.join(span.file());
            let (bytes, _) = self.disk.size_and_time(&path).map_err(|error| CaptureError::reading(&path, error))?;
            sized.push((span, bytes));
        }
        let bytes_before = sized.iter().map(|(_, bytes)| bytes).sum();
        let mut done = Compaction { bytes_before, bytes_after: bytes_before, ..Compaction::default() };
        let sums = need_sums(&*self.disk, &self.directory)?;
        for group in groups(&sized, target_bytes) {
            let spans: Vec<Span> = group.iter().map(|(span, _)| *span).collect();
            let before: u64 = group.iter().map(|(_, bytes)| bytes).sum();
            let noted = |span: &Span| sums.get(span).copied();
            let ControlFlow::Continue(sum) = self.merge(&spans, &noted, goes_on)? else { break };
            done.replaced += spans.len() as u64;
            done.merged += 1;
            done.bytes_after = done.bytes_after - before + sum.bytes;
        }
        Ok(done)
    }

    /// Merges consecutive segments, unless it must end before that is done.
    fn merge(
        &self,
        spans: &[Span],
        noted: &dyn Fn(&Span) -> Option<Sum>,
        goes_on: GoesOn<'_>,
    ) -> Result<ControlFlow<(), Sum>, CaptureError> {
        let [first, .., last] = spans else { return Ok(ControlFlow::Break(())) };
        let merged = Span { first: first.first, last: last.last };
        self.create_meta()?;
        let partial = self.directory.join(files::NEXT_MERGED);
        let sum = match self.write_merged(&partial, spans, noted, goes_on) {
            Ok(ControlFlow::Continue(sum)) => sum,
            ended => {
                // A partial file left behind only takes room on the disk until the next start.
                let _ = self.disk.remove(&partial);
                return ended;
            }
        };
        let sum = Sum { span: merged, ..sum };
        self.replace(files::NEXT_NOTES, &merged.notes(), &notes::to_text(merged.last, &[sum], b""))?;
        self.sync_meta()?;
        self.rename(files::NEXT_MERGED, &merged.file())?;
        self.sync_directory()?;
        for span in spans {
            self.remove_if_there(&self.directory.join(span.file()))?;
        }
        self.sync_directory()?;
        for span in spans.iter().filter(|span| span.is_merged()) {
            self.remove_if_there(&self.directory.join(span.notes()))?;
        }
        self.sync_meta()?;
        Ok(ControlFlow::Continue(sum))
    }

    fn write_merged(
        &self,
        partial: &Path,
        spans: &[Span],
        noted: &dyn Fn(&Span) -> Option<Sum>,
        goes_on: GoesOn<'_>,
    ) -> Result<ControlFlow<(), Sum>, CaptureError> {
        let mut writer: Option<(SegmentWriter, String, u64)> = None;
        for span in spans {
            let path = self.directory.join(span.file());
            let file = open(&*self.disk, &path)?;
            if let Some(noted) = noted(span)
                && !is_as_noted(&*self.disk, &self.directory, &noted, goes_on)?
            {
                return Err(CaptureError::corrupt(&path, "is not as it was published: see capture verify"));
            }
            let SegmentSummary { capture_id, .. } = SegmentSummary::read(&path, &file)?;
            let mut rows = SegmentReader::new(path.clone(), file, schema(), &Selection::default(), MESSAGE_BYTES_MAX)?;
            while let Some(batch) = rows.batch()? {
                if !goes_on() {
                    return Ok(ControlFlow::Break(()));
                }
                let Some(seq) = batch["seq"].as_primitive::<Int64Type>().values().first().copied() else { continue };
                let (writer, expected_id, next) = match &mut writer {
                    Some(begun) => begun,
                    none => {
                        let first_seq = u64::try_from(seq).unwrap_or_default();
                        let header = Header { capture_id: capture_id.clone(), segment: span.first, first_seq };
                        let begun = SegmentWriter::create(&*self.disk, partial.to_owned(), header)?;
                        none.insert((begun, capture_id.clone(), first_seq))
                    }
                };
                if let Some(wrong) = what_is_wrong(&batch, *span, expected_id, Some(*next)).first() {
                    return Err(CaptureError::corrupt(&path, format!("cannot be merged: {wrong}")));
                }
                writer.append_rows(&batch)?;
                *next += batch.num_rows() as u64;
            }
        }
        match writer {
            Some((writer, ..)) => writer.finish().map(ControlFlow::Continue),
            None => Err(CaptureError::corrupt(&self.directory.join(spans[0].file()), "has no rows")),
        }
    }
}

/// The groups to merge: consecutive segments, each with at most the target bytes.
fn groups(sized: &[(Span, u64)], target_bytes: u64) -> Vec<&[(Span, u64)]> {
    let mut groups = Vec::new();
    let mut rest = sized;
    while let Some((first, bytes)) = rest.first() {
        let (mut held, mut end) = (*bytes, 1);
        while let Some((span, bytes)) = rest.get(end)
            && span.first == rest[end - 1].0.last + 1
            && held.saturating_add(*bytes) <= target_bytes
            && span.last - first.first < MERGED_MAX
        {
            held += bytes;
            end += 1;
        }
        let (group, others) = rest.split_at(end);
        if group.len() > 1 {
            groups.push(group);
        }
        rest = others;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capture, Import, Settings, Writer};

    fn recorded(directory: &Path) {
        let mut import = Import::open(directory, Settings { segment_bytes: 30, ..Settings::default() }).unwrap();
        for at in 0..60 {
            import.append(&import::row(at)).unwrap();
        }
        import.commit().unwrap();
    }

    fn seqs(capture: &Capture) -> Vec<i64> {
        let batches = capture.columns(&["seq"], Selection::default()).unwrap();
        batches.flat_map(|batch| batch.unwrap()["seq"].as_primitive::<Int64Type>().values().to_vec()).collect()
    }

    #[test]
    fn who_reads_meanwhile_sees_each_row_once() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path();
        recorded(directory);
        let all: Vec<i64> = (0..60).collect();
        let before = Capture::open(directory).unwrap();
        assert_eq!(before.segments().len(), 20);
        let mut begun = before.batches().unwrap();
        assert_eq!(begun.next().unwrap().unwrap().num_rows(), 3);
        let some = Capture::of(directory, &[(0, 0), (3, 3), (4, 4), (9, 9), (19, 19)]).unwrap();
        let small = std::fs::metadata(directory.join(files::segment(0))).unwrap().len();
        for target in [small * 4, u64::MAX] {
            let merged_before = Capture::open(directory).unwrap();
            let done = compact(directory, target, &|| true).unwrap();
            assert!(done.merged > 0, "{done:?}");
            for capture in [&before, &merged_before] {
                assert_eq!(seqs(capture), all);
            }
            assert_eq!(seqs(&some), [0, 1, 2, 9, 10, 11, 12, 13, 14, 27, 28, 29, 57, 58, 59]);
            let middle = Selection { numbers: Some(vec![10..=28]), ..Selection::default() };
            let rows: usize = some.select(middle).unwrap().map(|batch| batch.unwrap().num_rows()).sum();
            assert_eq!(rows, 7);
        }
        assert_eq!(begun.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 57);
        let after = Capture::open(directory).unwrap();
        assert_eq!((after.segments(), seqs(&after)), (vec![(0, 19)], all));
        let verified = crate::verify(directory, &|| true).unwrap();
        assert_eq!((verified.segments, verified.messages, verified.unchecked), (1, 60, 0));
        assert_eq!(verified.problems, []);
    }

    #[test]
    fn a_writer_keeps_a_merge_out() {
        let scratch = tempfile::tempdir().unwrap();
        recorded(scratch.path());
        let writer = Writer::open(scratch.path(), Settings::default(), || {}).unwrap();
        let refused = compact(scratch.path(), u64::MAX, &|| true).unwrap_err();
        assert_eq!(refused.kind(), crate::CaptureErrorKind::Locked);
        drop(writer);
    }

    fn sized(spans: &[(u64, u64, u64)]) -> Vec<(Span, u64)> {
        spans.iter().map(|(first, last, bytes)| (Span { first: *first, last: *last }, *bytes)).collect()
    }

    #[test]
    fn segments_that_follow_each_other_are_merged_up_to_the_bytes() {
        let numbers = |sized: &[(Span, u64)], target| -> Vec<(u64, u64)> {
            groups(sized, target).iter().map(|group| (group[0].0.first, group[group.len() - 1].0.last)).collect()
        };
        let small = sized(&[(3, 3, 10), (4, 4, 10), (5, 5, 10), (7, 7, 10), (8, 9, 10), (10, 10, 90), (11, 11, 20)]);
        assert_eq!(numbers(&small, 20), [(3, 4), (7, 9)]);
        assert_eq!(numbers(&small, 30), [(3, 5), (7, 9)]);
        assert_eq!(numbers(&small, 110), [(3, 5), (7, 10)]);
        assert_eq!(numbers(&small, 19), []);
        let many = sized(&[(0, MERGED_MAX - 1, 1), (MERGED_MAX, MERGED_MAX, 1)]);
        assert_eq!(numbers(&many, 100), []);
    }
}
