//! Watches of a source: of each, the latest configuration that its user has not read.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use trunkline_engine::{Hold, Running, Signal, Sink};
use trunkline_wire::CallId;
use trunkline_wire::cdt::{Received, Source, SourceEvent, SourceVerb};

use super::message::spoken;
use crate::errors::ClosedError;
use crate::role::{Role, timed_out};

/// The watches of a source.
pub(super) struct Watches {
    all: Mutex<HashMap<CallId, Watched>>,
    /// Wakes those that read one.
    pub(super) signal: Signal,
}

#[derive(Default)]
struct Watched {
    unread: Option<Box<Received>>,
    /// The id of the configuration that was read last.
    last: Option<String>,
}

impl Watches {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { all: Mutex::default(), signal: Signal::new()? })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<CallId, Watched>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slow reader gets only the latest, unless that is what it has.
    fn put(&self, watch: CallId, received: Box<Received>) {
        if let Some(watched) = self.all().get_mut(&watch) {
            let is_new = watched.last.as_deref() != Some(&*received.message.config_id);
            watched.unread = is_new.then_some(received);
        }
        self.signal.notify();
    }

    fn take(&self, watch: CallId) -> Option<Received> {
        let mut all = self.all();
        let watched = all.get_mut(&watch)?;
        let received = watched.unread.take()?;
        watched.last = Some(received.message.config_id.to_string());
        Some(*received)
    }

    /// Whether there is something to read, or never will be.
    fn is_ready(&self, watch: CallId) -> bool {
        self.all().get(&watch).is_none_or(|watched| watched.unread.is_some())
    }
}

/// Hands what watches find to their readers.
pub(super) struct Watching<S>(pub(super) Arc<Watches>, pub(super) S);

impl<S: Sink<Source>> Sink<Source> for Watching<S> {
    fn take(&mut self, event: SourceEvent) -> Option<SourceEvent> {
        if let SourceEvent::Changed(watch, received) = event {
            self.0.put(watch, received);
            return None;
        }
        self.1.take(event)
    }

    fn has_room(&self) -> bool {
        self.1.has_room()
    }

    fn lose(&mut self) {
        self.1.lose();
    }
}

impl<S> Drop for Watching<S> {
    /// However the engine ended, no reader waits forever.
    fn drop(&mut self) {
        self.0.signal.latch();
    }
}

/// A watch of a source, which ends with this.
#[pyclass(frozen, module = "trunkline._native.cdt", name = "Watch")]
pub(crate) struct PyWatch {
    role: Py<Role>,
    handle: Arc<dyn Hold<Source>>,
    watches: Arc<Watches>,
    call: CallId,
}

impl PyWatch {
    pub(super) fn new(
        role: Py<Role>,
        handle: Arc<dyn Hold<Source>>,
        watches: Arc<Watches>,
        call: CallId,
        (app_version_name, endpoint_id): (String, String),
    ) -> Self {
        watches.all().insert(call, Watched::default());
        handle.ask(SourceVerb::Watch(call, app_version_name, endpoint_id));
        Self { role, handle, watches, call }
    }

    /// The next configuration if there is one now.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let role = self.role.get().ours()?;
        // Checked first: once it is over, nothing more comes.
        let is_over = role.is_over() || !self.watches.all().contains_key(&self.call);
        match self.watches.take(self.call) {
            Some(received) => spoken(py, received).map(Some),
            None if is_over => Err(ClosedError::new_err("the watch has ended")),
            None => Ok(None),
        }
    }

    fn end(&self) {
        if self.watches.all().remove(&self.call).is_some() && self.handle.is_ours() && !self.handle.is_over() {
            self.handle.ask(SourceVerb::Cancel(self.call));
            self.watches.signal.notify();
        }
    }
}

#[pymethods]
impl PyWatch {
    /// Waits for a configuration other than the last one.
    #[pyo3(signature = (timeout_s = None))]
    fn receive<'py>(&self, py: Python<'py>, timeout_s: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let role = self.role.get();
        let deadline = role.deadline(timeout_s)?;
        loop {
            if let Some(taken) = self.take(py)? {
                return Ok(taken);
            }
            let ready = |role: &dyn Running| self.watches.is_ready(self.call) || role.is_over();
            if !role.wait_until(py, &self.watches.signal, deadline, ready)? {
                return Err(timed_out("no configuration came", timeout_s));
            }
        }
    }

    /// The next configuration if there is one now.
    fn poll<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.take(py)
    }

    /// Announces a wait on the source's `watches_fileno`; true when there is no reason to wait.
    fn arm(&self) -> PyResult<bool> {
        let role = self.role.get().ours()?;
        self.watches.signal.arm();
        Ok(self.watches.is_ready(self.call) || role.is_over())
    }

    /// Ends it.
    fn close(&self) {
        self.end();
    }
}

impl Drop for PyWatch {
    fn drop(&mut self) {
        self.end();
    }
}
