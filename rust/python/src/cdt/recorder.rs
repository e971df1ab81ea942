//! The role that records a whole deployment.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trunkline_engine::{Aside, Hold, Notices, Queued};
use trunkline_wire::cdt::{Recorder, RecorderEvent, RecorderSettings};

use super::options::{Ear, Heard, NatsOptions, body, run};
use crate::counters::{add_recorded, counters};
use crate::notices::PyNotices;
use crate::role::{Role, connection};

/// A recorder's engine.
#[pyclass(frozen, extends = Role, module = "trunkline._native.cdt", name = "Recorder")]
pub(crate) struct PyRecorder {
    handle: Arc<dyn Hold<Recorder>>,
    notices: Py<PyNotices>,
}

#[pymethods]
impl PyRecorder {
    #[new]
    #[pyo3(signature = (options, *, prefix, codec, bytes_encoding, strict, limit))]
    fn new(
        py: Python<'_>,
        options: NatsOptions,
        prefix: String,
        codec: &str,
        bytes_encoding: &str,
        strict: bool,
        limit: Option<u64>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let settings = RecorderSettings { prefix, body: body(codec, bytes_encoding, strict)?, limit };
        let notices = Arc::new(Notices::new()?);
        let sink = Aside::new(Arc::clone(&notices), Ear::new(Arc::<Heard>::default(), &options, Queued));
        let make = move |_, _| Recorder::new(settings.clone());
        let (handle, role) = run(py, make, sink, options, "trunkline-cdt-recorder")?;
        let notices = Py::new(py, PyNotices::new(&role, handle.clone(), notices, notice))?;
        Ok(PyClassInitializer::from(role).add_subclass(Self { handle, notices }))
    }

    /// The notices, to be reported.
    #[getter]
    fn notice_queue(&self, py: Python<'_>) -> Py<PyNotices> {
        self.notices.clone_ref(py)
    }

    /// Waits for its end: a recorder takes no events.
    #[pyo3(signature = (timeout_s = None))]
    fn receive(slf: &Bound<'_, Self>, timeout_s: Option<f64>) -> PyResult<Py<PyAny>> {
        slf.as_super().get().receive(slf.py(), timeout_s, "no event came", || Self::poll(slf))
    }

    /// Raises what has ended it, once it is over.
    fn poll(slf: &Bound<'_, Self>) -> PyResult<Option<Py<PyAny>>> {
        let role = slf.as_super().get();
        if role.ours()?.is_over() { Err(role.ended()) } else { Ok(None) }
    }

    /// Counters, by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let snapshot = py.detach(|| self.handle.stats());
        let stats = counters(py, &snapshot.machine)?;
        add_recorded(&stats, &snapshot)?;
        stats.set_item("capture_lost", snapshot.capture_lost)?;
        Ok(stats)
    }
}

/// The notice of an event, `(kind, *details)`.
fn notice(py: Python<'_>, RecorderEvent(what): RecorderEvent) -> PyResult<Bound<'_, PyTuple>> {
    connection(what).into_pyobject(py)
}
