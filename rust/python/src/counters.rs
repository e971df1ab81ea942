//! Counters for Python, by the names that they have in Rust.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;

use crate::msgpack;

/// The fields of a struct of counters, as a dictionary.
pub(crate) fn counters<'py>(py: Python<'py>, stats: &impl Serialize) -> PyResult<Bound<'py, PyDict>> {
    // What there is in it, numbers, names and maps of them, is written in MessagePack without fail.
    let packed = rmp_serde::to_vec_named(stats).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    Ok(msgpack::to_python(py, &packed)?.into_bound(py).cast_into::<PyDict>()?)
}
