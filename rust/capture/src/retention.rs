//! Which segments of a capture are deleted, and which are protected.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use crate::files::{self, Listing, Span};
use crate::layout::{list_if_there, list_sealed_notes};
use crate::store::Store;
use crate::{CaptureError, Keep};

/// An open run keeps its segments for this much longer than [`Keep::age`].
const HELD_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The part of [`Keep::bytes`], one in this many, that an open run may keep in addition, and that notes on deleted
/// segments may take.
const SHARE: u64 = 10;

/// The current time, by the wall clock and by the monotonic one.
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

/// The age of files when they were first seen, and when that was.
///
/// The wall clock is used only then, and only for files of earlier writers, so that setting it makes none older.
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
    /// The number of the first segment that was not copied elsewhere.
    fn shipped(&self) -> Result<u64, CaptureError> {
        let names = list_if_there(&*self.disk, &self.directory.join(files::META))?;
        let number = |name: &String| name.strip_prefix(files::SHIPPED)?.parse().ok();
        Ok(names.iter().filter_map(number).max().unwrap_or_default())
    }

    /// Deletes what exceeds the limits of [`Keep`]: segments, the oldest first, and the notes on those deleted.
    pub(crate) fn trim(&mut self, keep: Keep, now: Now) -> Result<(), CaptureError> {
        if keep == Keep::default() {
            return Ok(());
        }
        let directory = self.directory.clone();
        let names = self.disk.list(&directory).map_err(|error| CaptureError::reading(&directory, error))?;
        let mut ages = mem::take(&mut self.ages);
        // Segments of this writer have been seen since they were published.
        let own = self.next_segment() - self.segments();
        let mut kept = |spans: Vec<Span>, name: fn(Span) -> String| -> Result<VecDeque<Kept>, CaptureError> {
            let mut look = |span: Span| {
                let path = directory.join(name(span));
                let (bytes, written) = match self.disk.size_and_time(&path) {
                    // The user may have removed it.
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
        let mut shipped = None;
        loop {
            let first = segments.front().map_or(u64::MAX, |segment| segment.span.first);
            // The latest notes hold the current state.
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
            // The latest segment holds the next numbers.
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
            let shipped = match shipped {
                Some(shipped) => shipped,
                None => *shipped.insert(self.shipped()?),
            };
            self.deleted_unshipped += u64::from(oldest.span.last >= shipped);
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
