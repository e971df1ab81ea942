//! The requesting role.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trunkline_engine::{Answering, Hold, Replies};
use trunkline_wire::Framing;
use trunkline_wire::dcp::{Client, ClientEvent, ClientSettings};

use super::asking::request;
use super::heartbeat;
use crate::caller::{Caller, Outgoing};
use crate::counters::counters;
use crate::errors::dropped;
use crate::role::{RoleOptions, connection, notices, run};

/// A client's engine.
#[pyclass(frozen, extends = Caller, module = "trunkline._native.dcp", name = "Client")]
pub(crate) struct PyClient {
    handle: Arc<dyn Hold<Client>>,
    max_message_bytes: u64,
}

#[pymethods]
impl PyClient {
    #[new]
    #[pyo3(signature = (options, *, heartbeat_interval_s, liveness, max_message_bytes))]
    fn new(
        py: Python<'_>,
        options: RoleOptions,
        heartbeat_interval_s: f64,
        liveness: u32,
        max_message_bytes: u64,
    ) -> PyResult<PyClassInitializer<Self>> {
        let (heartbeat_interval, liveness) = heartbeat(heartbeat_interval_s, liveness)?;
        let settings = ClientSettings {
            connect: options.connect.clone(),
            options: options.socket.clone(),
            // Without a timeout it waits forever.
            timeout: Duration::MAX,
            heartbeat_interval,
            liveness,
        };
        let replies = Arc::new(Replies::new(options.bounds)?);
        let make = move |_, seed| Client::new(settings.clone(), seed);
        let sink = Answering::new(Arc::clone(&replies));
        let (handle, role) = run(py, make, sink, options, Framing::Dcp, "trunkline-dcp-client")?;
        let caller = Caller::new(handle.clone(), replies);
        Ok(PyClassInitializer::from(role).add_subclass(caller).add_subclass(Self { handle, max_message_bytes }))
    }

    /// A request.
    #[pyo3(signature = (service, data, *, metadata, timeout_s, retries))]
    fn outgoing(
        slf: &Bound<'_, Self>,
        service: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
        metadata: &Bound<'_, PyAny>,
        timeout_s: Option<f64>,
        retries: u32,
    ) -> PyResult<Outgoing> {
        let limit = slf.get().max_message_bytes;
        let (request, bytes) = request((service, data, metadata), timeout_s, retries, limit)?;
        Ok(slf.as_super().get().outgoing(request, bytes))
    }

    /// Notices since the last call, each `(kind, *details)`.
    fn notices<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        notices(py, &*self.handle, notice)
    }

    /// Counters, by name.
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (this, py) = (slf.get(), slf.py());
        let snapshot = py.detach(|| this.handle.stats());
        let stats = counters(py, &snapshot.machine)?;
        slf.as_super().as_super().get().add_to(&stats, &snapshot)?;
        Ok(stats)
    }
}

/// The notice of an event, `(kind, *details)`; calls have their own outcomes.
fn notice(py: Python<'_>, event: ClientEvent) -> PyResult<Bound<'_, PyTuple>> {
    match event {
        ClientEvent::Dropped(dropped) => self::dropped(py, "dcp", &dropped),
        ClientEvent::Connection(what) => connection(what).into_pyobject(py),
        ClientEvent::Ended(..) => Ok(PyTuple::empty(py)),
    }
}
