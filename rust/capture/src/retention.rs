//! What of a capture is deleted, and what keeps it from being.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::files::{self, Listing};
use crate::store::{Store, list_sealed_notes};
use crate::{CaptureError, Keep};

/// A run that is open keeps its segments for so much longer than [`Keep::age`].
const HELD_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// One in so many of the bytes of [`Keep::bytes`] is what an open run may keep in addition, and what notes on segments
/// that are deleted may take of them.
const SHARE: u64 = 10;

/// A file that may be deleted.
struct Kept {
    number: u64,
    path: PathBuf,
    bytes: u64,
    written: SystemTime,
}

impl Keep {
    fn is_too_much(&self, bytes: u64, is_held: bool) -> bool {
        self.bytes.is_some_and(|most| bytes > most.saturating_add(if is_held { most / SHARE } else { 0 }))
    }

    fn is_too_old(&self, now: SystemTime, written: SystemTime, is_held: bool) -> bool {
        let most = self.age.map(|age| age.saturating_add(if is_held { HELD_AGE } else { Duration::ZERO }));
        most.is_some_and(|most| now.duration_since(written).is_ok_and(|age| age > most))
    }
}

impl Store {
    /// Deletes what is too much or too old, as [`Keep`] says: segments, the oldest first, and the notes on those deleted.
    pub(crate) fn trim(&mut self, keep: Keep, now: SystemTime) -> Result<(), CaptureError> {
        if keep == Keep::default() {
            return Ok(());
        }
        let directory = self.directory.clone();
        let names = self.disk.list(&directory).map_err(|error| CaptureError::reading(&directory, error))?;
        let mut segments = self.kept(&Listing::new(names).segments, files::segment)?;
        let mut notes = self.kept(&list_sealed_notes(&*self.disk, &directory)?, files::notes)?;
        let mut bytes: u64 = segments.iter().chain(&notes).map(|file| file.bytes).sum();
        let (mut has_deleted_segment, mut has_deleted_notes) = (false, false);
        loop {
            let first = segments.front().map_or(u64::MAX, |segment| segment.number);
            // The latest notes say how things stand.
            while let [oldest, _, ..] = notes.make_contiguous()
                && oldest.number < first
            {
                let left: u64 = notes.iter().take_while(|note| note.number < first).map(|note| note.bytes).sum();
                let is_too_much = keep.bytes.is_some_and(|most| left > most / SHARE)
                    || segments.len() <= 1 && keep.is_too_much(bytes, false);
                let Some(oldest) =
                    notes.front().filter(|oldest| is_too_much || keep.is_too_old(now, oldest.written, false))
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
            let begun = open.iter().filter(|segment| **segment == first).count() as u64;
            let is_held = begun > 0;
            if !keep.is_too_much(bytes, is_held) && !keep.is_too_old(now, oldest.written, is_held) {
                break;
            }
            self.remove(&oldest.path)?;
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

    fn kept(&self, numbers: &[u64], name: impl Fn(u64) -> String) -> Result<VecDeque<Kept>, CaptureError> {
        let kept = |number: &u64| {
            let path = self.directory.join(name(*number));
            let (bytes, written) = self.facts(&path)?;
            Ok(Kept { number: *number, path, bytes, written })
        };
        numbers.iter().map(kept).collect()
    }

    fn facts(&self, path: &Path) -> Result<(u64, SystemTime), CaptureError> {
        self.disk.size_and_time(path).map_err(|error| CaptureError::reading(path, error))
    }
}
