//! What of a capture is deleted, and what keeps it from being.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use crate::files::{Listing, Span};
use crate::layout::list_sealed_notes;
use crate::store::Store;
use crate::{CaptureError, Keep};

/// A run that is open keeps its segments for so much longer than [`Keep::age`].
const HELD_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// One in so many of the bytes of [`Keep::bytes`] is what an open run may keep in addition, and what notes on segments
/// that are deleted may take of them.
const SHARE: u64 = 10;

/// What time it is, by the clock that is set and by the one that is not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) wall: SystemTime,
    pub(crate) monotonic: Instant,
}

impl Now {
    pub(crate) fn read() -> Self {
        Self { wall: SystemTime::now(), monotonic: Instant::now() }
    }
}

/// How old files were when they were seen first, and when that was.
///
/// The wall clock is asked only then, and only for files of earlier writers, so that setting it makes none older.
pub(crate) type Ages = HashMap<PathBuf, (Duration, Instant)>;

/// A file that may be deleted.
struct Kept {
    span: Span,
    path: PathBuf,
    bytes: u64,
    age: Duration,
}

impl Keep {
    fn is_too_much(&self, bytes: u64, is_held: bool) -> bool {
        self.bytes.is_some_and(|most| bytes > most.saturating_add(if is_held { most / SHARE } else { 0 }))
    }

    fn is_too_old(&self, age: Duration, is_held: bool) -> bool {
        let most = self.age.map(|age| age.saturating_add(if is_held { HELD_AGE } else { Duration::ZERO }));
        most.is_some_and(|most| age > most)
    }
}

impl Store {
    /// Deletes what is too much or too old, as [`Keep`] says: segments, the oldest first, and the notes on those deleted.
    pub(crate) fn trim(&mut self, keep: Keep, now: Now) -> Result<(), CaptureError> {
        if keep == Keep::default() {
            return Ok(());
        }
        let directory = self.directory.clone();
        let names = self.disk.list(&directory).map_err(|error| CaptureError::reading(&directory, error))?;
        let mut ages = mem::take(&mut self.ages);
        // What this writer has published has been seen since.
        let own = self.next_segment() - self.segments();
        let mut kept = |spans: Vec<Span>, name: fn(Span) -> String| -> Result<VecDeque<Kept>, CaptureError> {
            let mut look = |span: Span| {
                let path = directory.join(name(span));
                let (bytes, written) = match self.disk.size_and_time(&path) {
                    // Whoever keeps a copy of it may have removed it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                    found => found.map_err(|error| CaptureError::reading(&path, error))?,
                };
                let before = || now.wall.duration_since(written).unwrap_or_default();
                let first = || (if span.first < own { before() } else { Duration::ZERO }, now.monotonic);
                let (age, since) = ages.remove(&path).unwrap_or_else(first);
                self.ages.insert(path.clone(), (age, since));
                Ok(Some(Kept { span, path, bytes, age: age + (now.monotonic - since) }))
            };
            spans.into_iter().filter_map(|span| look(span).transpose()).collect()
        };
        let mut segments = kept(Listing::new(names).segments, Span::file)?;
        let numbers = list_sealed_notes(&*self.disk, &directory)?;
        let mut notes = kept(numbers.into_iter().map(Span::one).collect(), Span::notes)?;
        let mut bytes: u64 = segments.iter().chain(&notes).map(|file| file.bytes).sum();
        let (mut has_deleted_segment, mut has_deleted_notes) = (false, false);
        loop {
            let first = segments.front().map_or(u64::MAX, |segment| segment.span.first);
            // The latest notes say how things stand.
            while let [oldest, _, ..] = notes.make_contiguous()
                && oldest.span.first < first
            {
                let left: u64 = notes.iter().take_while(|note| note.span.first < first).map(|note| note.bytes).sum();
                let is_too_much = keep.bytes.is_some_and(|most| left > most / SHARE)
                    || segments.len() <= 1 && keep.is_too_much(bytes, false);
                let Some(oldest) = notes.front().filter(|oldest| is_too_much || keep.is_too_old(oldest.age, false))
                else {
                    break;
                };
                self.remove(&oldest.path)?;
                bytes -= oldest.bytes;
                has_deleted_notes = true;
                notes.pop_front();
            }
            // The latest segment tells the numbers that come next.
            let Some(oldest) = segments.front().filter(|_| segments.len() > 1) else { break };
            let open = self.account.open_segments(first);
            let begun = open.iter().filter(|segment| oldest.span.contains(**segment)).count() as u64;
            let is_held = begun > 0;
            if !keep.is_too_much(bytes, is_held) && !keep.is_too_old(oldest.age, is_held) {
                break;
            }
            self.remove_if_there(&oldest.path)?;
            if oldest.span.is_merged() {
                self.remove_if_there(&directory.join(oldest.span.notes()))?;
                has_deleted_notes = true;
            }
            bytes -= oldest.bytes;
            self.deleted += 1;
            self.let_go += begun;
            has_deleted_segment = true;
            segments.pop_front();
        }
        if has_deleted_segment {
            self.sync_directory()?;
        }
        if has_deleted_notes { self.sync_meta() } else { Ok(()) }
    }
}
