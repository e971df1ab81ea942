//! The brokering role.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use trunkline_engine::{Hold, Queued};
use trunkline_wire::Framing;
use trunkline_wire::dcp::{Broker, BrokerEvent, BrokerSettings, ClientAddress, Overflow};

use super::heartbeat;
use crate::counters::counters;
use crate::errors::{client, dropped};
use crate::frames;
use crate::role::{Role, RoleOptions, connection, notices, run, seconds};

/// A broker's engine.
#[pyclass(frozen, extends = Role, module = "trunkline._native.dcp", name = "Broker")]
pub(crate) struct PyBroker {
    handle: Arc<dyn Hold<Broker>>,
}

/// The settings of a broker beyond those of every role.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
#[allow(clippy::struct_excessive_bools)] // each a choice of its own
struct Arguments<'py> {
    max_queue: usize,
    max_queue_bytes: usize,
    queue_ttl_s: f64,
    overflow: String,
    heartbeat_interval_s: f64,
    liveness: u32,
    requeue: bool,
    busy_ping_grants: bool,
    client_address: String,
    compat_dagbox: bool,
    status: bool,
    services: Option<Bound<'py, PyAny>>,
}

impl Arguments<'_> {
    fn settings(self) -> PyResult<BrokerSettings> {
        let overflow = match self.overflow.as_str() {
            "reject-newest" => Overflow::RejectNewest,
            "drop-oldest" => Overflow::DropOldest,
            other => {
                let text = format!("overflow must be 'reject-newest' or 'drop-oldest', not {other:?}");
                return Err(PyValueError::new_err(text));
            }
        };
        let client_address = match self.client_address.as_str() {
            "any" => ClientAddress::Any,
            "workers-only" => ClientAddress::WorkersOnly,
            other => {
                let text = format!("client_address must be 'any' or 'workers-only', not {other:?}");
                return Err(PyValueError::new_err(text));
            }
        };
        let (heartbeat_interval, liveness) = heartbeat(self.heartbeat_interval_s, self.liveness)?;
        let services = self.services.map(|services| frames::frames("allowed_services", &services)).transpose()?;
        Ok(BrokerSettings {
            max_queue: self.max_queue,
            max_queue_bytes: self.max_queue_bytes,
            queue_ttl: seconds("queue_ttl_s", self.queue_ttl_s)?,
            overflow,
            heartbeat_interval,
            liveness,
            requeue: self.requeue,
            busy_ping_grants: self.busy_ping_grants,
            client_address,
            services: services.map(|services| services.into_iter().collect()),
            compat_dagbox: self.compat_dagbox,
            status: self.status,
            ..BrokerSettings::default()
        })
    }
}

#[pymethods]
impl PyBroker {
    #[new]
    fn new(py: Python<'_>, options: RoleOptions, settings: Arguments<'_>) -> PyResult<PyClassInitializer<Self>> {
        let (bind, socket) = (options.bind.clone(), options.socket.clone());
        let settings = BrokerSettings { bind, options: socket, ..settings.settings()? };
        let make = move |_, _| Broker::new(settings.clone());
        let (handle, role) = run(py, make, Queued, options, Framing::Dcp, "trunkline-dcp-broker")?;
        Ok(PyClassInitializer::from(role).add_subclass(Self { handle }))
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
        slf.as_super().get().add_listening_to(&stats, &snapshot)?;
        Ok(stats)
    }
}

fn notice(py: Python<'_>, event: BrokerEvent) -> PyResult<Bound<'_, PyTuple>> {
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
    match event {
        BrokerEvent::Registered { worker, service } => {
            ("registered", client(py, worker), bytes(&service)).into_pyobject(py)
        }
        BrokerEvent::Refused { worker, service } => ("refused", client(py, worker), bytes(&service)).into_pyobject(py),
        BrokerEvent::Gone { worker, service, lost } => {
            ("gone", client(py, worker), bytes(&service), lost).into_pyobject(py)
        }
        BrokerEvent::Dropped(dropped) => self::dropped(py, "dcp", &dropped),
        BrokerEvent::Connection(what) => connection(what).into_pyobject(py),
    }
}
