//! Counters for Python, by the names that they have in Rust.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;

use crate::msgpack;

/// What is counted beside a machine that listens: rows its capture missed, connections it hung up on, keys it let not in.
pub(crate) fn add_listening(
    stats: &Bound<'_, PyDict>,
    capture_lost: u64,
    turned_away: u64,
    refused: u64,
) -> PyResult<()> {
    stats.set_item("capture_lost", capture_lost)?;
    stats.set_item("turned_away", turned_away)?;
    stats.set_item("refused", refused)
}

/// The fields of a struct of counters, as a dictionary.
pub(crate) fn counters<'py>(py: Python<'py>, stats: &impl Serialize) -> PyResult<Bound<'py, PyDict>> {
    // What there is in it, numbers, names and maps of them, is written in MessagePack without fail.
    let packed = rmp_serde::to_vec_named(stats).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    Ok(msgpack::to_python(py, &packed)?.into_bound(py).cast_into::<PyDict>()?)
}
