//! `trunkline._native.analysis`: folds over decoded rows.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::{Mutex, PoisonError};

use arrow_array::RecordBatch;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3_arrow::PyRecordBatch;
use trunkline_analysis::{FRAMES, Folding, Key, NAMES, Options, divide as divide_rows, folding, key as key_of};
use trunkline_columns::{ColumnError, ddl};
use trunkline_wire::cdtp::MAP_BYTES;

use crate::columns::schema;

/// Rows by the number of their part.
type Parts<'py> = Vec<(u64, Bound<'py, PyAny>)>;

/// Divides the rows of a batch into so many parts; gives those that are not empty, each with its number.
#[pyfunction]
pub(crate) fn divide<'py>(py: Python<'py>, protocol: &str, batch: PyRecordBatch, parts: u32) -> PyResult<Parts<'py>> {
    let (key, batch) = (key_named(protocol)?, batch.into_inner());
    divided(py, py.detach(|| divide_rows(key, &batch, parts)))
}

/// The values that related rows of a protocol have in common: each is that of the first of some columns that has one. A
/// column is of the rows in which others have these values, or any for `None`.
#[pyfunction]
#[allow(clippy::type_complexity)] // it is read once, in Python
pub(crate) fn key(
    protocol: &str,
) -> PyResult<Vec<Vec<(&'static str, &'static [(&'static str, Option<&'static str>)])>>> {
    let key = key_named(protocol)?;
    Ok(key.iter().map(|part| part.iter().map(|choice| (choice.column, choice.when)).collect()).collect())
}

fn key_named(protocol: &str) -> PyResult<Key> {
    key_of(protocol).ok_or_else(|| PyValueError::new_err(format!("no protocol {protocol}")))
}

fn divided(py: Python<'_>, parts: Result<Vec<(u64, RecordBatch)>, ColumnError>) -> PyResult<Parts<'_>> {
    let parts = parts.map_err(|error| PyValueError::new_err(error.to_string()))?;
    parts.into_iter().map(|(part, rows)| Ok((part, PyRecordBatch::new(rows).into_pyarrow(py)?))).collect()
}

/// A table of things that are each made of several rows, or a step of one.
#[pyclass(frozen, module = "trunkline._native.analysis", name = "Fold")]
pub(crate) struct PyFold(Mutex<Box<dyn Folding>>);

#[pymethods]
impl PyFold {
    /// The names of the folds.
    #[classattr]
    const NAMES: [&'static str; 6] = NAMES;

    /// The record of a row that holds the frames of a BOR or EOR.
    #[classattr]
    const FRAMES: i32 = FRAMES;

    /// The map of a BOR or EOR is kept unless its message is larger.
    #[classattr]
    const MAP_BYTES: u64 = MAP_BYTES;

    #[new]
    #[pyo3(signature = (name, *, window_us = 60_000_000, json = false, buckets = None, is_spread = false, max_bytes = None))]
    fn new(
        name: &str,
        window_us: i64,
        json: bool,
        buckets: Option<NonZeroU32>,
        is_spread: bool,
        max_bytes: Option<NonZeroU64>,
    ) -> PyResult<Self> {
        let fold = folding(name, Options { window_us, json, buckets, is_spread, bytes: max_bytes })
            .ok_or_else(|| PyValueError::new_err(format!("no table {name}")))?;
        Ok(Self(Mutex::new(fold)))
    }

    /// The protocol of its rows.
    #[getter]
    fn protocol(&self) -> &'static str {
        self.with(|fold| fold.protocol())
    }

    /// The columns it reads.
    #[getter]
    fn needs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.with(|fold| fold.needs()))
    }

    /// The columns that identify its rows.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.with(|fold| fold.key()))
    }

    /// The folds that make its table one after the other, each of the rows of the one before.
    #[getter]
    fn steps<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.with(|fold| fold.steps()))
    }

    /// Divides rows into so many parts, with related rows in one, and less to pass on; gives those that are not empty, each with its number.
    fn divide<'py>(&self, py: Python<'py>, batch: PyRecordBatch, parts: u32) -> PyResult<Parts<'py>> {
        let batch = batch.into_inner();
        divided(py, py.detach(|| self.with(|fold| fold.divide(&batch, parts))))
    }

    /// The columns of its table.
    fn schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        schema(py, self.with(|fold| fold.fields()))
    }

    /// The same in Spark's DDL.
    fn ddl(&self) -> String {
        ddl(&self.with(|fold| fold.fields()))
    }

    /// How many rows, or senders, were let go before they were complete.
    #[getter]
    fn evicted(&self) -> u64 {
        self.with(|fold| fold.evicted())
    }

    /// How many messages are in no row.
    #[getter]
    fn left_out(&self) -> u64 {
        self.with(|fold| fold.left_out())
    }

    /// Adds the next rows of messages, and emits complete rows.
    fn record<'py>(&self, py: Python<'py>, batch: PyRecordBatch) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let batch = batch.into_inner();
        given(py, py.detach(|| self.with(|fold| fold.record(&batch))))
    }

    /// Emits open rows as the end would, if they have changed since the last call.
    fn emit_open<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        given(py, py.detach(|| self.with(|fold| fold.emit_open())))
    }

    /// Completes rows that are older than this moment.
    fn forget(&self, py: Python<'_>, before_ns: i64) {
        py.detach(|| self.with(|fold| fold.forget(before_ns)));
    }

    /// It is this moment, and what has not ended may go on.
    fn at(&self, now_ns: i64) {
        self.with(|fold| fold.at(now_ns));
    }

    /// Emits the rest.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        given(py, py.detach(|| self.with(|fold| fold.finish())))
    }

    /// Its state, as bytes.
    fn state(&self, py: Python<'_>) -> Vec<u8> {
        py.detach(|| self.with(|fold| fold.state()))
    }

    /// Restores such a state.
    fn restore(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        py.detach(|| self.with(|fold| fold.restore(state))).map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

impl PyFold {
    fn with<T>(&self, use_it: impl FnOnce(&mut Box<dyn Folding>) -> T) -> T {
        use_it(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn given(py: Python<'_>, batches: Result<Vec<RecordBatch>, ColumnError>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    let batches = batches.map_err(|error| PyValueError::new_err(error.to_string()))?;
    batches.into_iter().map(|batch| PyRecordBatch::new(batch).into_pyarrow(py)).collect()
}
