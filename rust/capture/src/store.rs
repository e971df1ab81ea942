//! The capture on disk, one step at a time: journal, segment, manifest and the order of their system calls.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::CaptureError;
use crate::account::{self, Account};
use crate::columns::Batch;
use crate::disk::Disk;
use crate::files::{self, Listing, Span};
use crate::journal::{Header, Journal, JournalReader};
use crate::layout::{
    NOTES_BYTES, list_merged_notes, list_notes, list_plain_notes, list_sealed_notes, list_sums, open, read,
    read_manifest,
};
use crate::manifest::{Manifest, random_id};
use crate::notes::{self, GoesOn, SUMS_MAX, Sum};
use crate::retention::Ages;
use crate::scan::record_segments;
use crate::sealed::{seal, unseal};
use crate::segment::{SegmentSummary, SegmentWriter};

/// A segment is published early when so much of its account is unwritten: until then that is in memory, and this bounds
/// what is written down beside a segment.
const UNWRITTEN_BYTES: usize = 32 << 20;

/// A segment is published early when its rows cost so many times the frame bytes it may have: nothing else limits empty
/// frames.
const COST_OF_BYTES: u64 = 4;

/// The least limit of frame bytes for computing the limit of cost.
const COST_OF_BYTES_MIN: u64 = 16 << 20;

/// What opening a capture for writing found and repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Rows of a journal that were published as a segment.
    pub rows: u64,
    /// Bytes at the end of a journal that were no complete record.
    pub cut_bytes: u64,
    /// The segment made of a journal.
    pub segment: Option<u64>,
    /// Segments whose bytes differ from the published ones; only [`recover`](crate::recover) checks them.
    pub damaged: Vec<u64>,
}

/// A capture open for writing, which holds the lock of its directory.
///
/// After an error it can only be dropped: the next start reads what a failed write or sync left behind.
pub(crate) struct Store {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) directory: PathBuf,
    pub(crate) manifest: Manifest,
    current: Option<Current>,
    durable_seq: u64,
    segments: u64,
    pub(crate) deleted: u64,
    pub(crate) deleted_unshipped: u64,
    pub(crate) let_go: u64,
    pub(crate) ages: Ages,
    unfollowed_before: u64,
    pub(crate) account: Box<dyn Account>,
    /// The last file of notes, if the next one repeats all of it: it may be removed once there is one.
    passing_notes: Option<u64>,
    /// The checksums in that file.
    passing_sums: Vec<Sum>,
}

/// The segment being written.
struct Current {
    header: Header,
    journal: Journal,
    segment: SegmentWriter,
    frame_bytes: u64,
    cost: u64,
    unsynced_bytes: u64,
    journal_is_listed: bool,
}

impl Current {
    /// Whether a batch would make it larger than a segment may be.
    fn is_full_for(&self, batch: &Batch, segment_bytes: u64) -> bool {
        let most = segment_bytes.max(COST_OF_BYTES_MIN).saturating_mul(COST_OF_BYTES);
        self.frame_bytes.saturating_add(batch.frame_bytes) > segment_bytes || self.cost + batch.cost() > most
    }
}

impl Store {
    /// Opens a capture, new or not, and publishes what a killed writer left in its journal.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        goes_on: GoesOn<'_>,
    ) -> Result<(Self, Recovery), CaptureError> {
        let names = disk.list(directory).map_err(|error| CaptureError::reading(directory, error))?;
        let mut listing = Listing::new(names);
        let (manifest, has_manifest) = match read_manifest(&*disk, directory)? {
            Some(manifest) => (manifest, true),
            None => (Manifest::new(random_id(directory)?), false),
        };
        let mut store = Self::of(disk, directory, manifest);
        match store.recover(&mut listing, has_manifest, goes_on) {
            Ok(recovery) => {
                store.durable_seq = store.manifest.next_seq;
                store.segments = 0;
                store.unfollowed_before = store.account.let_go();
                Ok((store, recovery))
            }
            Err(error) => {
                store.abandon();
                Err(error)
            }
        }
    }

    /// A capture whose manifest is as it should be.
    pub(crate) fn of(disk: Arc<dyn Disk>, directory: &Path, manifest: Manifest) -> Self {
        Self {
            disk,
            directory: directory.to_owned(),
            manifest,
            current: None,
            durable_seq: 0,
            segments: 0,
            deleted: 0,
            deleted_unshipped: 0,
            ages: Ages::new(),
            let_go: 0,
            unfollowed_before: 0,
            account: account::new(),
            passing_notes: None,
            passing_sums: Vec::new(),
        }
    }

    /// Appends a batch, publishing the segment first if the batch would take it past `segment_bytes`.
    pub(crate) fn append(&mut self, batch: &Batch, segment_bytes: u64) -> Result<(), CaptureError> {
        if self.current.as_ref().is_some_and(|current| current.is_full_for(batch, segment_bytes)) {
            self.publish()?;
        }
        let mut current = match self.current.take() {
            Some(current) => current,
            None => self.begin()?,
        };
        current.unsynced_bytes += current.journal.append(batch)?;
        current.segment.append(batch)?;
        current.frame_bytes += batch.frame_bytes;
        current.cost += batch.cost();
        self.account.record(current.header.segment, self.manifest.next_seq, &batch.columns);
        self.current = Some(current);
        self.manifest.next_seq += batch.rows();
        if self.account.unwritten_bytes() >= UNWRITTEN_BYTES { self.publish() } else { Ok(()) }
    }

    /// Makes every row appended so far durable.
    pub(crate) fn sync(&mut self) -> Result<(), CaptureError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        if current.unsynced_bytes > 0 {
            current.journal.sync()?;
            current.unsynced_bytes = 0;
        }
        if !current.journal_is_listed {
            current.journal_is_listed = true;
            self.sync_directory()?;
        }
        self.durable_seq = self.manifest.next_seq;
        Ok(())
    }

    /// Makes every row appended so far durable and visible as a segment.
    pub(crate) fn publish(&mut self) -> Result<(), CaptureError> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let number = current.header.segment;
        let sum = current.segment.finish()?;
        self.publish_partial(number, sum)?;
        self.remove(current.journal.path())
    }

    /// The rows that survive a power failure, as the `seq` after the last.
    pub(crate) fn durable_seq(&self) -> u64 {
        self.durable_seq
    }

    /// The `seq` of the next row.
    pub(crate) fn next_seq(&self) -> u64 {
        self.manifest.next_seq
    }

    /// The number of the next segment, or of the one being written.
    pub(crate) fn next_segment(&self) -> u64 {
        self.manifest.next_segment
    }

    /// The segments published since the store was opened.
    pub(crate) fn segments(&self) -> u64 {
        self.segments
    }

    /// The segments deleted since the store was opened.
    pub(crate) fn deleted(&self) -> u64 {
        self.deleted
    }

    /// Those of them that were not copied elsewhere.
    pub(crate) fn deleted_unshipped(&self) -> u64 {
        self.deleted_unshipped
    }

    /// The open runs whose BOR was deleted since the store was opened.
    pub(crate) fn let_go(&self) -> u64 {
        self.let_go
    }

    /// How often its account stopped following something since the store was opened.
    pub(crate) fn unfollowed(&self) -> u64 {
        self.account.let_go().saturating_sub(self.unfollowed_before)
    }

    pub(crate) fn has_segment_open(&self) -> bool {
        self.current.is_some()
    }

    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.unsynced_bytes)
    }

    pub(crate) fn free_bytes(&self) -> Option<u64> {
        self.disk.free_bytes(&self.directory)
    }

    /// Frees the room of an incomplete segment, which the disk may need: the journal has its rows.
    pub(crate) fn abandon(self) {
        let partial = self.directory.join(files::partial(self.manifest.next_segment));
        drop(self.current);
        // A partial file left behind only takes room on the disk until the next start.
        let _ = self.disk.remove(&partial);
    }

    /// Makes a capture in another directory, with numbers that continue this one's.
    pub(crate) fn begin_aside(&self, aside: &Path) -> Result<(), CaptureError> {
        self.disk.create_directory(aside).map_err(|error| CaptureError::writing(aside, error))?;
        let mut store = Self::of(Arc::clone(&self.disk), aside, self.manifest.clone());
        store.account = self.account.copy();
        if let Some(last) = self.manifest.next_segment.checked_sub(1) {
            store.write_notes(last, None)?;
        }
        store.write_manifest()
    }

    /// Moves the segments of such a capture in, in order.
    pub(crate) fn adopt(&mut self, aside: &Path) -> Result<(), CaptureError> {
        let names = self.disk.list(aside).map_err(|error| CaptureError::reading(aside, error))?;
        let manifest = read_manifest(&*self.disk, aside)?
            .ok_or_else(|| CaptureError::corrupt(aside, "the record of the import is missing"))?;
        let move_in = |name: String| {
            let to = self.directory.join(&name);
            self.disk.rename(&aside.join(&name), &to).map_err(|error| CaptureError::writing(&to, error))
        };
        self.create_meta()?;
        for number in list_notes(&*self.disk, aside)? {
            if number >= self.manifest.next_segment {
                move_in(files::notes(number))?;
            }
        }
        self.sync_meta()?;
        for span in Listing::new(names).segments {
            move_in(span.file())?;
        }
        self.sync_directory()?;
        self.manifest = manifest;
        self.write_manifest()
    }

    fn begin(&mut self) -> Result<Current, CaptureError> {
        let Manifest { capture_id, next_segment, next_seq, .. } = &self.manifest;
        let header = Header { capture_id: capture_id.clone(), segment: *next_segment, first_seq: *next_seq };
        let journal = Journal::create(&*self.disk, self.directory.join(files::journal(header.segment)), &header)?;
        let partial = self.directory.join(files::partial(header.segment));
        let segment = SegmentWriter::create(&*self.disk, partial, header.clone())?;
        Ok(Current { header, journal, segment, frame_bytes: 0, cost: 0, unsynced_bytes: 0, journal_is_listed: false })
    }

    /// Turns a finished partial segment into a published one. Its journal may be removed after this.
    fn publish_partial(&mut self, number: u64, sum: Sum) -> Result<(), CaptureError> {
        let passed = self.passing_notes.take();
        self.write_notes(number, Some(sum))?;
        self.rename(&files::partial(number), &files::segment(number))?;
        self.sync_directory()?;
        self.manifest.next_segment = number + 1;
        self.write_manifest()?;
        self.durable_seq = self.manifest.next_seq;
        self.segments += 1;
        self.remove_notes(passed)
    }

    /// Writes down the state after a segment.
    fn write_notes(&mut self, number: u64, sum: Option<Sum>) -> Result<(), CaptureError> {
        self.create_meta()?;
        let mut sums = std::mem::take(&mut self.passing_sums);
        sums.extend(sum);
        let is_passing = self.account.unwritten_bytes() == 0 && sums.len() < SUMS_MAX;
        self.replace(
            files::NEXT_NOTES,
            &files::notes(number),
            &notes::to_text(number, &sums, &self.account.to_lines()),
        )?;
        self.sync_meta()?;
        self.account.forget_written();
        if is_passing {
            (self.passing_notes, self.passing_sums) = (Some(number), sums);
        }
        Ok(())
    }

    /// Continues the runs of the last file, and counts what was published since.
    fn read_account(&mut self, segments: &[Span], goes_on: GoesOn<'_>) -> Result<(), CaptureError> {
        let (good, orphans): (Vec<_>, Vec<_>) =
            list_notes(&*self.disk, &self.directory)?.into_iter().partition(|at| *at < self.manifest.next_segment);
        // Their segment was never published, or not with the same rows.
        for number in orphans {
            self.remove(&self.directory.join(files::notes(number)))?;
        }
        let last = good.last().copied();
        if let Some(last) = last {
            let path = self.directory.join(files::notes(last));
            let file = read(&*self.disk, &path, NOTES_BYTES)?;
            let (sums, account) = notes::from_text(&path, unseal(&path, &file)?)?;
            if !self.account.go_on_from(&path, account)? && sums.len() < SUMS_MAX {
                (self.passing_notes, self.passing_sums) = (Some(last), sums);
            }
        }
        for span in segments.iter().copied().filter(|span| last.is_none_or(|last| span.last > last)) {
            let path = self.directory.join(span.file());
            let file = open(&*self.disk, &path)?;
            // The rows first: an invalid segment need not be summed, which takes long if it is large.
            record_segments(&mut *self.account, span, last, &path, &file)?;
            let sum = Sum::of(span, &file, goes_on).map_err(|error| CaptureError::reading(&path, error))?;
            let passed = self.passing_notes.take();
            self.write_notes(span.last, Some(sum))?;
            self.remove_notes(passed)?;
        }
        Ok(())
    }

    fn remove_notes(&self, passed: Option<u64>) -> Result<(), CaptureError> {
        match passed {
            Some(passed) => self.remove(&self.directory.join(files::notes(passed))),
            None => Ok(()),
        }
    }

    pub(crate) fn create_meta(&self) -> Result<(), CaptureError> {
        let path = self.directory.join(files::META);
        self.disk.create_directory(&path).map_err(|error| CaptureError::writing(&path, error))
    }

    pub(crate) fn sync_meta(&self) -> Result<(), CaptureError> {
        let path = self.directory.join(files::META);
        self.disk.sync_directory(&path).map_err(|error| CaptureError::writing(&path, error))
    }

    /// Converts the plain files of an earlier version. Each file stays until its replacement is safe.
    fn take_over(&self) -> Result<(), CaptureError> {
        let plain = list_plain_notes(&*self.disk, &self.directory)?;
        if !plain.is_empty() {
            self.create_meta()?;
            let sealed = list_sealed_notes(&*self.disk, &self.directory)?;
            for number in plain.iter().filter(|number| sealed.binary_search(number).is_err()) {
                let lines = read(&*self.disk, &self.directory.join(files::plain_notes(*number)), NOTES_BYTES)?;
                self.replace(files::NEXT_NOTES, &files::notes(*number), &lines)?;
            }
            self.sync_meta()?;
            self.sync_directory()?;
            for number in plain {
                self.remove(&self.directory.join(files::plain_notes(number)))?;
            }
        }
        let names = self.disk.list(&self.directory).map_err(|error| CaptureError::reading(&self.directory, error))?;
        if names.iter().any(|name| name == files::PLAIN_MANIFEST) {
            self.write_manifest()?;
            self.sync_directory()?;
            self.remove(&self.directory.join(files::PLAIN_MANIFEST))?;
        }
        if names.iter().any(|name| name == files::PLAIN_NOTES) {
            let path = self.directory.join(files::PLAIN_NOTES);
            // An incomplete file may be left there. Any other file is not ours, and stays.
            let _ = self.disk.remove(&path.join(".next"));
            let _ = self.disk.remove_directory(&path);
        }
        Ok(())
    }

    fn recover(
        &mut self,
        listing: &mut Listing,
        has_manifest: bool,
        goes_on: GoesOn<'_>,
    ) -> Result<Recovery, CaptureError> {
        self.take_over()?;
        if self.manifest.is_exact {
            self.forget_unpublished(listing)?;
            // What is published from here on is so by its name.
            self.manifest.is_exact = false;
            self.write_manifest()?;
        }
        for number in &listing.partials {
            self.remove(&self.directory.join(files::partial(*number)))?;
        }
        self.forget_merged(listing)?;
        let last = listing.segments.last().copied();
        if let Some(last) = last.filter(|last| !has_manifest || last.last >= self.manifest.next_segment) {
            let path = self.directory.join(last.file());
            let summary = SegmentSummary::read(&path, &open(&*self.disk, &path)?)?;
            let SegmentSummary { capture_id, next_seq } = summary;
            let batches = std::mem::take(&mut self.manifest.batches);
            self.manifest = Manifest { next_segment: last.last + 1, next_seq, batches, ..Manifest::new(capture_id) };
        }
        self.read_account(&listing.segments, goes_on)?;
        let mut recovery = Recovery::default();
        for number in &listing.journals {
            let path = self.directory.join(files::journal(*number));
            if !listing.has(*number) {
                if last.is_some_and(|last| last.last > *number) {
                    return Err(CaptureError::corrupt(&path, "is older than a segment of its capture"));
                }
                self.recover_journal(*number, &path, &mut recovery)?;
            }
            self.remove(&path)?;
        }
        if !has_manifest && recovery.segment.is_none() {
            self.write_manifest()?;
            self.sync_directory()?;
        }
        Ok(recovery)
    }

    /// Removes what a killed merge left: segments that are merged, and notes on a merge that never finished.
    fn forget_merged(&self, listing: &Listing) -> Result<(), CaptureError> {
        self.remove_if_there(&self.directory.join(files::NEXT_MERGED))?;
        for span in &listing.covered {
            self.remove(&self.directory.join(span.file()))?;
        }
        for span in list_merged_notes(&*self.disk, &self.directory)? {
            if listing.segments.binary_search(&span).is_err() {
                self.remove(&self.directory.join(span.notes()))?;
            }
        }
        Ok(())
    }

    /// Removes what a killed publication of a batch left.
    pub(crate) fn forget_unpublished(&self, listing: &mut Listing) -> Result<(), CaptureError> {
        let end = self.manifest.next_segment;
        for span in listing.segments.extract_if(.., |span| span.last >= end) {
            self.remove(&self.directory.join(span.file()))?;
        }
        for last in list_sums(&*self.disk, &self.directory)?.into_iter().filter(|last| *last >= end) {
            self.remove(&self.directory.join(files::sums(last)))?;
        }
        Ok(())
    }

    fn recover_journal(&mut self, number: u64, path: &Path, recovery: &mut Recovery) -> Result<(), CaptureError> {
        let file = open(&*self.disk, path)?;
        let mut journal = JournalReader::new(path.to_owned(), file.reader())?;
        let Some(header) = journal.header().cloned() else {
            recovery.cut_bytes += journal.cut_bytes();
            return Ok(());
        };
        if header.segment != number {
            return Err(CaptureError::corrupt(path, format!("is the journal of segment {}", header.segment)));
        }
        self.manifest.capture_id.clone_from(&header.capture_id);
        self.manifest.next_segment = number;
        self.manifest.next_seq = header.first_seq;
        let mut segment = None;
        let mut first_seq = header.first_seq;
        while let Some(batch) = journal.batch()? {
            let segment = if let Some(segment) = &mut segment {
                segment
            } else {
                let partial = self.directory.join(files::partial(number));
                segment.insert(SegmentWriter::create(&*self.disk, partial, header.clone())?)
            };
            self.account.record(number, first_seq, &batch.columns);
            segment.append(&batch)?;
            first_seq += batch.rows();
        }
        recovery.cut_bytes += journal.cut_bytes();
        if let Some(segment) = segment {
            let sum = segment.finish()?;
            self.manifest.next_seq = journal.next_seq();
            recovery.rows += journal.next_seq() - header.first_seq;
            recovery.segment = Some(number);
            self.publish_partial(number, sum)?;
        }
        Ok(())
    }

    pub(crate) fn write_manifest(&self) -> Result<(), CaptureError> {
        self.create_meta()?;
        self.replace(files::NEXT_MANIFEST, files::MANIFEST, &self.manifest.to_json())?;
        self.sync_meta()
    }

    /// Seals a text in a file that is never visible in part.
    pub(crate) fn replace(&self, next: &str, name: &str, text: &[u8]) -> Result<(), CaptureError> {
        let path = self.directory.join(next);
        let contents = seal(&path, text)?;
        let written = (|| {
            let mut file = self.disk.create(&path)?;
            file.write_all(&contents)?;
            file.sync()
        })();
        written.map_err(|error| CaptureError::writing(&path, error))?;
        self.rename(next, name)
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), CaptureError> {
        let [from, to] = [from, to].map(|name| self.directory.join(name));
        self.disk.rename(&from, &to).map_err(|error| CaptureError::writing(&to, error))
    }

    pub(crate) fn remove(&self, path: &Path) -> Result<(), CaptureError> {
        self.disk.remove(path).map_err(|error| CaptureError::writing(path, error))
    }

    pub(crate) fn remove_if_there(&self, path: &Path) -> Result<(), CaptureError> {
        match self.disk.remove(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CaptureError::writing(path, error)),
            _ => Ok(()),
        }
    }

    pub(crate) fn sync_directory(&self) -> Result<(), CaptureError> {
        self.disk.sync_directory(&self.directory).map_err(|error| CaptureError::writing(&self.directory, error))
    }
}

#[cfg(test)]
mod tests;
