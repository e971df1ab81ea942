//! A capture written without an engine, by the roles over NATS.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trunkline_capture::{Direction, Progress, Row, RowClock, Writer};
use trunkline_wire::Framing;

use crate::capture::named;
use crate::errors::{ClosedError, capture_error};
use crate::frames::frames;
use crate::role::capture_settings;

/// The longest wait for the disk before the writer is checked again.
const LOOK: Duration = Duration::from_millis(50);

/// Rows recorded, rows durable, segments, the free bytes of the disk if they are few, and what has gone wrong.
type Come = (Counts, Option<u64>, Option<String>);

/// Rows recorded, rows durable, segments, segments deleted, and those of them that were not copied elsewhere.
type Counts = (u64, u64, u64, u64, u64);

fn counts(progress: &Progress) -> Counts {
    (progress.recorded, progress.durable, progress.segments, progress.deleted, progress.deleted_unshipped)
}

/// A capture being written.
#[pyclass(frozen, module = "trunkline._native.capture", name = "Writer")]
pub(crate) struct PyWriter {
    writer: Mutex<Option<Writer>>,
    news: Arc<(Mutex<()>, Condvar)>,
    framing: Framing,
    clock: RowClock,
}

impl PyWriter {
    fn with<T>(&self, act: impl FnOnce(&mut Writer) -> T) -> PyResult<T> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.as_mut().map(act).ok_or_else(|| ClosedError::new_err("this capture is closed"))
    }
}

#[pymethods]
impl PyWriter {
    /// Opens a capture; the options are those of roles.
    #[new]
    fn new(py: Python<'_>, directory: PathBuf, protocol: &str, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let options: HashMap<String, Bound<'_, PyAny>> = options.extract()?;
        let settings = capture_settings(&options)?;
        let framing = named("protocol", protocol, Framing::ALL, Framing::name)?;
        let news = Arc::<(Mutex<()>, Condvar)>::default();
        let waker = Arc::clone(&news);
        let opened = py.detach(move || Writer::open(&directory, settings, move || waker.1.notify_all()));
        Ok(Self {
            writer: Mutex::new(Some(opened.map_err(|error| capture_error(&error))?)),
            news,
            framing,
            clock: RowClock::start(),
        })
    }

    /// Adds a message, with the current time; false if there is no room for it.
    fn append(
        &self,
        direction: &str,
        endpoint: Option<&str>,
        topic: Option<&str>,
        reply_to: Option<&str>,
        message: &Bound<'_, PyTuple>,
        error: Option<&str>,
    ) -> PyResult<bool> {
        let frames = frames("message", message)?;
        let direction = named("direction", direction, &Direction::ALL, Direction::name)?;
        let received_at_ns = self.clock.now_ns();
        let (framing, peer) = (self.framing, None);
        // The list of errors is static, so a reference to one lives long enough.
        let error = error.and_then(|slug| trunkline_wire::ErrorKind::ALL.iter().find(|kind| kind.slug() == slug));
        self.with(|writer| {
            let has_room = writer.has_room();
            if has_room {
                writer.append(&Row {
                    received_at_ns,
                    framing,
                    endpoint,
                    peer,
                    direction,
                    topic,
                    reply_to,
                    frames: &frames,
                    error: error.map(|kind| kind.slug()),
                });
            }
            has_room
        })
    }

    /// Does what is due; gives the seconds until the next call.
    fn idle(&self) -> PyResult<Option<f64>> {
        self.with(|writer| {
            writer.idle();
            writer.deadline().map(|at| at.saturating_duration_since(Instant::now()).as_secs_f64())
        })
    }

    /// Waits until all so far is durable, or also visible to readers of segments.
    #[pyo3(signature = (*, publish = false))]
    fn flush(&self, py: Python<'_>, publish: bool) -> PyResult<()> {
        let ticket = self.with(|writer| if publish { writer.publish() } else { writer.flush() })?;
        loop {
            let progress = self.with(|writer| writer.progress())?;
            if let Some(failure) = progress.failure {
                return Err(capture_error(&failure));
            }
            if progress.done >= ticket {
                return Ok(());
            }
            py.detach(|| {
                let news = self.news.0.lock().unwrap_or_else(PoisonError::into_inner);
                drop(self.news.1.wait_timeout(news, LOOK));
            });
            py.check_signals()?;
        }
    }

    /// The progress so far.
    fn progress(&self) -> PyResult<Come> {
        let progress = self.with(|writer| writer.progress())?;
        let failure = progress.failure.as_ref().map(ToString::to_string);
        Ok((counts(&progress), progress.low_space.map(|low| low.bytes), failure))
    }

    /// Makes all durable and visible, and ends it; gives the last counts.
    fn close(&self, py: Python<'_>) -> PyResult<Option<Counts>> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let closed = py.detach(|| writer.map(Writer::close).transpose()).map_err(|error| capture_error(&error))?;
        Ok(closed.map(|progress| counts(&progress)))
    }
}
