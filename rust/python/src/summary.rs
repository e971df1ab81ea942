//! `trunkline._native.analysis.Summary`: the counts of a protocol in a report.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3_arrow::PyRecordBatch;
use trunkline_analysis::{COLOURS, Clock, DECADE, NAMES_MAX, OTHERS, Payloads, Scope, StateError, Summary, summary};

use crate::msgpack::to_python;

/// The counts of one protocol in a report, of decoded rows in recorded order.
#[pyclass(frozen, module = "trunkline._native.analysis", name = "Summary")]
pub(crate) struct PySummary(Mutex<Box<dyn Summary>>);

#[pymethods]
impl PySummary {
    /// The most distinct names; the rest are counted together.
    #[classattr]
    const NAMES: usize = NAMES_MAX;

    /// How many plotted names have their own colour.
    #[classattr]
    const COLOURS: usize = COLOURS;

    /// The index of all others together.
    #[classattr]
    const OTHERS: i32 = OTHERS;

    /// How many classes of times a decade has.
    #[classattr]
    const DECADE: u8 = DECADE;

    #[new]
    #[allow(clippy::fn_params_excessive_bools)] // by name, in Python
    #[allow(clippy::too_many_arguments)] // likewise
    #[pyo3(signature = (
        protocol, *, first_ns, bucket_ns, has_own = false, is_cut = false, has_records = false, has_sequences = true
    ))]
    fn new(
        protocol: &str,
        first_ns: i64,
        bucket_ns: i64,
        has_own: bool,
        is_cut: bool,
        has_records: bool,
        has_sequences: bool,
    ) -> PyResult<Self> {
        let clock = Clock { first_ns, bucket_ns: bucket_ns.max(1) };
        let scope = Scope { clock, has_own, is_cut, has_records, has_sequences };
        let made = summary(protocol, scope);
        made.map(|made| Self(Mutex::new(made))).ok_or_else(|| PyValueError::new_err(format!("no protocol {protocol}")))
    }

    /// The columns it reads; one more, `chosen`, may say which rows are selected.
    #[getter]
    fn needs(&self) -> Vec<&'static str> {
        self.with(|summary| summary.needs())
    }

    /// Counts more rows.
    fn record(&self, py: Python<'_>, batch: PyRecordBatch) -> PyResult<()> {
        let batch = batch.into_inner();
        let done = py.detach(|| self.with(|summary| summary.record(&batch)));
        done.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Counts what is open: nothing more comes.
    fn finish(&self, py: Python<'_>) {
        py.detach(|| self.with(|summary| summary.finish()));
    }

    /// Adds the counts of another that has finished, as the bytes of its state.
    fn merge(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        py.detach(|| self.with(|summary| summary.merge(state))).map_err(|error| refused(&error))
    }

    /// Widens the buckets of time, until no more than so many lead up to a moment.
    fn widen(&self, py: Python<'_>, last_ns: i64, buckets: i32) {
        py.detach(|| self.with(|summary| summary.widen(last_ns, buckets)));
    }

    /// Its state, as bytes.
    fn state<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let state = py.detach(|| self.with(|summary| summary.state()));
        PyBytes::new(py, &state)
    }

    /// Restores such a state.
    fn restore(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        py.detach(|| self.with(|summary| summary.restore(state))).map_err(|error| refused(&error))
    }

    /// The counts, in so many buckets of time.
    fn evaluate(&self, py: Python<'_>, buckets: i32) -> PyResult<Py<PyAny>> {
        let found = py.detach(|| self.with(|summary| summary.evaluate(buckets)));
        to_python(py, &found)
    }
}

impl PySummary {
    fn with<T>(&self, use_it: impl FnOnce(&mut Box<dyn Summary>) -> T) -> T {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The counts of the payloads of one protocol in a report, of rows decoded by a layout in any order.
#[pyclass(frozen, module = "trunkline._native.analysis", name = "Payloads")]
pub(crate) struct PyPayloads {
    name: String,
    counts: Mutex<Payloads>,
}

#[pymethods]
impl PyPayloads {
    #[new]
    fn new(name: String) -> Self {
        Self { name, counts: Mutex::default() }
    }

    /// Counts more rows.
    fn record(&self, py: Python<'_>, batch: PyRecordBatch) -> PyResult<()> {
        let batch = batch.into_inner();
        let done = py.detach(|| self.with(|counts| counts.record(&batch, &self.name)));
        done.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Adds the counts of another, as the bytes of its state.
    fn merge(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        py.detach(|| self.with(|counts| counts.merge(state))).map_err(|error| refused(&error))
    }

    /// Its state, as bytes.
    fn state<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let state = py.detach(|| self.with(|counts| counts.state()));
        PyBytes::new(py, &state)
    }

    /// The counts of each name and field.
    fn evaluate(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let found = py.detach(|| self.with(|counts| counts.evaluate()));
        to_python(py, &found)
    }
}

impl PyPayloads {
    fn with<T>(&self, use_it: impl FnOnce(&mut Payloads) -> T) -> T {
        use_it(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn refused(error: &StateError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
