//! Counters for Python, by their names in Rust.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;
use trunkline_capture::Progress;
use trunkline_engine::Snapshot;

use crate::msgpack;
use crate::role::Role;

impl Role {
    /// Adds the counters of every role besides its machine's: rows its capture missed, connections it gave up; and its
    /// transport.
    pub(crate) fn add_to<S>(&self, stats: &Bound<'_, PyDict>, snapshot: &Snapshot<S>) -> PyResult<()> {
        let failures = PyDict::new(stats.py());
        for (reason, count) in snapshot.failures.iter() {
            failures.set_item(reason.slug(), count)?;
        }
        stats.set_item("transport", self.transport())?;
        stats.set_item("connection_failures", failures)?;
        stats.set_item("capture_lost", snapshot.capture_lost)
    }

    /// Adds the counters of a role that peers connect to: also connections beyond its limit, and keys it refused.
    pub(crate) fn add_listening_to<S>(&self, stats: &Bound<'_, PyDict>, snapshot: &Snapshot<S>) -> PyResult<()> {
        self.add_to(stats, snapshot)?;
        stats.set_item("turned_away", snapshot.turned_away)?;
        stats.set_item("refused", self.refused(stats.py()))
    }
}

/// Counters of a role's capture.
pub(crate) fn add_recorded<S>(stats: &Bound<'_, PyDict>, snapshot: &Snapshot<S>) -> PyResult<()> {
    let Progress { recorded, durable, segments, deleted, deleted_unshipped, .. } =
        snapshot.capture.clone().unwrap_or_default();
    stats.set_item("recorded", recorded)?;
    stats.set_item("durable", durable)?;
    stats.set_item("segments", segments)?;
    stats.set_item("deleted", deleted)?;
    stats.set_item("deleted_unshipped", deleted_unshipped)
}

/// The fields of a struct of counters, as a dictionary.
pub(crate) fn counters<'py>(py: Python<'py>, stats: &impl Serialize) -> PyResult<Bound<'py, PyDict>> {
    // Its values, numbers, names and maps of them, always fit MessagePack.
    let packed = rmp_serde::to_vec_named(stats).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    Ok(msgpack::to_python(py, &packed)?.into_bound(py).cast_into::<PyDict>()?)
}
