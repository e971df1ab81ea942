//! Captures that are written by many tasks, as Python's objects.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3_arrow::PyRecordBatch;
use trunkline_capture::{Key, QueryBatch, Staged, Stager, publish as publish_staged};

use crate::errors::{ClosedError, capture_error};

/// A staged file: its name, its rows, the bytes of their frames, its bytes and their CRC, and the captures and numbers of
/// its first and last row.
type StagedFile = (String, u64, u64, u64, u32, (String, i64), (String, i64));

/// Writes the rows of a task into a staging directory.
#[pyclass(frozen, module = "trunkline._native.capture", name = "Stager")]
pub(crate) struct PyStager(Mutex<Option<Stager>>);

#[pymethods]
impl PyStager {
    #[new]
    #[pyo3(signature = (directory, *, segment_bytes = None))]
    fn new(py: Python<'_>, directory: PathBuf, segment_bytes: Option<u64>) -> PyResult<Self> {
        let stager =
            py.detach(move || Stager::open(&directory, segment_bytes)).map_err(|error| capture_error(&error))?;
        Ok(Self(Mutex::new(Some(stager))))
    }

    /// Adds rows of captures, in any order.
    fn append(&self, py: Python<'_>, batch: PyRecordBatch) -> PyResult<()> {
        let batch = batch.into_inner();
        py.detach(|| {
            let mut stager = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(stager) = stager.as_mut() else { return Err(over()) };
            stager.append(&batch).map_err(|error| capture_error(&error))
        })
    }

    /// Writes what is left, and gives the staged files.
    fn finish(&self, py: Python<'_>) -> PyResult<Vec<StagedFile>> {
        let stager = self.0.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(over)?;
        let files = py.detach(|| stager.finish()).map_err(|error| capture_error(&error))?;
        let file = |Staged { name, rows, frame_bytes, bytes, crc, first, last }| {
            (name, rows, frame_bytes, bytes, crc, (first.capture_id, first.seq), (last.capture_id, last.seq))
        };
        Ok(files.into_iter().map(file).collect())
    }
}

fn over() -> PyErr {
    ClosedError::new_err("this task is over")
}

/// Publishes staged files as segments of a capture; false if they are those of a query's batch that was published before.
#[pyfunction]
#[pyo3(signature = (directory, staging, staged, *, batch = None))]
pub(crate) fn publish(
    py: Python<'_>,
    directory: PathBuf,
    staging: PathBuf,
    staged: Vec<StagedFile>,
    batch: Option<(String, u64)>,
) -> PyResult<bool> {
    let key = |(capture_id, seq)| Key { capture_id, seq };
    let file = |(name, rows, frame_bytes, bytes, crc, first, last)| {
        let (first, last) = (key(first), key(last));
        Staged { name, rows, frame_bytes, bytes, crc, first, last }
    };
    let staged = staged.into_iter().map(file).collect();
    let publish = move || {
        let batch = batch.as_ref().map(|(query, batch)| QueryBatch { query, batch: *batch });
        publish_staged(&directory, &staging, staged, batch)
    };
    py.detach(publish).map_err(|error| capture_error(&error))
}
