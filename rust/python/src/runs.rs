//! `trunkline._native.columns.Runs`: the runs of CDTP, counted from tables of messages.

use std::sync::{Mutex, PoisonError};

use arrow_array::RecordBatch;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;
use trunkline_columns::cdtp::{FRAMES, Runs, run_fields};
use trunkline_columns::{ColumnError, RestType, ddl};
use trunkline_wire::cdtp::MAP_BYTES;

/// Counts the runs of senders.
#[pyclass(frozen, module = "trunkline._native.columns", name = "Runs")]
pub(crate) struct PyRuns(Mutex<Runs>);

#[pymethods]
impl PyRuns {
    /// The record of a row that holds the frames of a BOR or EOR.
    #[classattr]
    const FRAMES: i32 = FRAMES;

    /// The map of a BOR or EOR is kept unless its message is larger.
    #[classattr]
    const MAP_BYTES: u64 = MAP_BYTES;

    #[new]
    #[pyo3(signature = (*, json = false, sorted = true))]
    fn new(json: bool, sorted: bool) -> Self {
        Self(Mutex::new(Runs::new(maps(json), sorted)))
    }

    /// The columns of the table of runs, in the words of Spark.
    #[staticmethod]
    #[pyo3(signature = (*, json = false))]
    fn ddl(json: bool) -> String {
        ddl(&run_fields(maps(json)))
    }

    fn record(slf: Py<Self>, batch: PyRecordBatch) -> PyRunBatches {
        PyRunBatches { runs: slf, batch: batch.into_inner(), next: Mutex::new(Some(0)) }
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let over = py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).finish());
        PyRecordBatch::new(over.map_err(|error| failed(&error))?).into_pyarrow(py)
    }
}

/// What configurations and metadata become.
const fn maps(json: bool) -> RestType {
    if json { RestType::Json } else { RestType::Variant }
}

/// The runs that are over with a batch of messages.
#[pyclass(frozen, module = "trunkline._native.columns", name = "RunBatches")]
pub(crate) struct PyRunBatches {
    runs: Py<PyRuns>,
    batch: RecordBatch,
    /// The row that is next, unless all are taken in.
    next: Mutex<Option<usize>>,
}

#[pymethods]
impl PyRunBatches {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let over = py.detach(|| {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let from = next.take()?;
            let mut runs = self.runs.get().0.lock().unwrap_or_else(PoisonError::into_inner);
            Some(runs.record(&self.batch, from).map(|(over, row)| {
                *next = row;
                over
            }))
        });
        over.map(|over| PyRecordBatch::new(over.map_err(|error| failed(&error))?).into_pyarrow(py)).transpose()
    }
}

fn failed(error: &ColumnError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
