//! A capture that the engines of several roles may feed: it ends with the one that owns it.

use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use trunkline_capture::{CaptureError, LowSpace, Progress, RowClock, Settings, Writer};

use crate::signal::Waker;
use crate::trouble::Trouble;

/// A capture that is being written. Its rows have one order and one clock, whichever engine adds them.
#[derive(Clone)]
pub struct Recording {
    pen: Arc<Mutex<Pen>>,
    engines: Arc<Mutex<Engines>>,
}

impl Recording {
    /// Opens a capture for writing.
    ///
    /// # Errors
    /// When the directory cannot be written, or another process writes there.
    pub fn open(directory: &Path, settings: Settings) -> Result<Self, CaptureError> {
        let engines = Arc::new(Mutex::<Engines>::default());
        let woken = Arc::clone(&engines);
        let writer = Writer::open(directory, settings, move || {
            for (_, wake) in &woken.lock().wakers {
                wake();
            }
        })?;
        Ok(Self { pen: Arc::new(Mutex::new(Pen::new(writer))), engines })
    }

    pub(crate) fn pen(&self) -> MutexGuard<'_, Pen> {
        self.pen.lock()
    }

    /// Wakes an engine whenever the writer has progressed; gives the number for leaving.
    pub(crate) fn join(&self, wake: Waker) -> u64 {
        let mut engines = self.engines.lock();
        engines.last += 1;
        let number = engines.last;
        engines.wakers.push((number, wake));
        number
    }

    pub(crate) fn leave(&self, number: u64) {
        self.engines.lock().wakers.retain(|(other, _)| *other != number);
    }
}

#[derive(Default)]
struct Engines {
    last: u64,
    wakers: Vec<(u64, Waker)>,
}

/// How often deleted segments are reported at most.
const DELETED_NS: i64 = 60_000_000_000;

/// The writer and its state, which one engine at a time locks.
pub(crate) struct Pen {
    /// None once it has failed or is closed.
    pub(crate) writer: Option<Writer>,
    clock: RowClock,
    low_space: Option<LowSpace>,
    /// Whether the loss of rows was reported, by the first engine that noticed it.
    is_losing_told: bool,
    is_let_go_told: bool,
    is_unfollowed_told: bool,
    /// The deleted segments that were reported, those of them that had not been copied elsewhere, and when.
    deleted: (u64, u64),
    deleted_at_ns: Option<i64>,
}

impl Pen {
    fn new(writer: Writer) -> Self {
        Self {
            writer: Some(writer),
            clock: RowClock::start(),
            low_space: None,
            is_losing_told: false,
            is_let_go_told: false,
            is_unfollowed_told: false,
            deleted: (0, 0),
            deleted_at_ns: None,
        }
    }

    pub(crate) fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    /// Reports that rows are lost, unless that was reported or nothing is recorded any more.
    pub(crate) fn losing(&mut self) -> Option<Trouble> {
        let is_news = self.writer.is_some() && !std::mem::replace(&mut self.is_losing_told, true);
        is_news.then_some(Trouble::Losing)
    }

    /// The changes of a writer's progress that were not reported yet.
    pub(crate) fn news(&mut self, progress: &Progress) -> Vec<Trouble> {
        let level = |low_space: Option<LowSpace>| low_space.map(|low_space| low_space.is_critical);
        let mut troubles = vec![];
        if let Some(low_space) = progress.low_space
            && level(progress.low_space) > level(self.low_space)
        {
            troubles.push(Trouble::LowSpace(low_space));
        }
        self.low_space = progress.low_space;
        let deleted = (progress.deleted, progress.deleted_unshipped);
        let now_ns = self.now_ns();
        if deleted.0 > self.deleted.0 && self.deleted_at_ns.is_none_or(|at_ns| now_ns - at_ns >= DELETED_NS) {
            troubles.push(Trouble::Deleted(deleted.0 - self.deleted.0, deleted.1 - self.deleted.1));
            (self.deleted, self.deleted_at_ns) = (deleted, Some(now_ns));
        }
        if progress.let_go > 0 && !std::mem::replace(&mut self.is_let_go_told, true) {
            troubles.push(Trouble::RunsLetGo);
        }
        if progress.unfollowed > 0 && !std::mem::replace(&mut self.is_unfollowed_told, true) {
            troubles.push(Trouble::RunsUnfollowed);
        }
        troubles
    }
}
