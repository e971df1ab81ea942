//! The working role.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trunkline_engine::{Answering, Replies, Running, Trouble};
use trunkline_wire::dcp::{
    Body, Client, ClientSettings, JobId, LEAVING, Worker, WorkerEvent, WorkerSettings, Working, WorkingEvent,
    WorkingVerb,
};
use trunkline_wire::{Frames, Framing};

use super::{PyRequest, asking, heartbeat};
use crate::caller::{Caller, Outgoing};
use crate::counters::counters;
use crate::errors::{LocalProtocolError, dropped};
use crate::frames;
use crate::reader::{Look, Next, Reader};
use crate::role::{RoleOptions, connection, run, trouble};

/// A worker's engine.
#[pyclass(frozen, extends = Caller, module = "trunkline._native.dcp", name = "Worker")]
pub(crate) struct PyWorker {
    reader: Reader<Working>,
    max_message_bytes: u64,
    /// Called with `(kind, *details)` for everything that is no request.
    on_notice: Py<PyAny>,
}

impl PyWorker {
    fn request(&self, job: JobId, frames: Frames, body: Body) -> PyRequest {
        PyRequest::new(self.reader.handle.clone(), self.max_message_bytes, job, frames, body)
    }

    /// The worker reports the connection, not the client in it.
    fn notify(&self, py: Python<'_>, event: WorkingEvent) -> PyResult<()> {
        if let WorkingEvent::Work(event) = event
            && let Some(notice) = notice(py, event)?
        {
            self.on_notice.bind(py).call1(notice)?;
        }
        Ok(())
    }

    fn warn(&self, py: Python<'_>, what: Trouble) -> PyResult<()> {
        self.on_notice.bind(py).call1(trouble(what)).map(drop)
    }

    /// The next request without a wait; reports notices on the way. `None` when there is none now.
    fn take(slf: &Bound<'_, Self>) -> PyResult<Option<PyRequest>> {
        let (this, py) = (slf.get(), slf.py());
        let mut look = Look::default();
        loop {
            match this.reader.next(&mut look) {
                Next::Event(WorkingEvent::Work(WorkerEvent::Request { job, frames, body })) => {
                    return Ok(Some(this.request(job, frames, body)));
                }
                Next::Event(notice) => this.notify(py, notice)?,
                Next::Trouble(what) => this.warn(py, what)?,
                Next::Nothing => return Ok(None),
                Next::Over => return Err(slf.as_super().as_super().get().ended()),
            }
        }
    }
}

#[pymethods]
impl PyWorker {
    #[new]
    #[pyo3(signature = (
        options, on_notice, service, *, concurrency, heartbeat_interval_s, liveness, max_message_bytes
    ))]
    #[allow(clippy::too_many_arguments)] // the settings of a worker
    fn new(
        py: Python<'_>,
        options: RoleOptions,
        on_notice: Py<PyAny>,
        service: &Bound<'_, PyAny>,
        concurrency: usize,
        heartbeat_interval_s: f64,
        liveness: u32,
        max_message_bytes: u64,
    ) -> PyResult<PyClassInitializer<Self>> {
        if concurrency == 0 {
            return Err(LocalProtocolError::new_err("concurrency must be at least 1"));
        }
        let (heartbeat_interval, liveness) = heartbeat(heartbeat_interval_s, liveness)?;
        let service = frames::frame("service", service)?;
        if service == LEAVING {
            return Err(LocalProtocolError::new_err("this service name is reserved for workers that leave"));
        }
        let (connect, socket) = (options.connect.clone(), options.socket.clone());
        let settings = WorkerSettings {
            connect,
            options: socket,
            service,
            concurrency,
            heartbeat_interval,
            liveness,
            ..WorkerSettings::default()
        };
        let replies = Arc::new(Replies::new(options.bounds)?);
        // Without a timeout it waits forever.
        let asks = ClientSettings { timeout: Duration::MAX, ..ClientSettings::default() };
        let make =
            move |now, seed| Working::new(Worker::new(now, settings.clone(), seed), Client::new(asks.clone(), seed));
        let sink = Answering::new(Arc::clone(&replies));
        let (handle, role) = run(py, make, sink, options, Framing::Dcp, "trunkline-dcp-worker")?;
        let caller = Caller::new(handle.clone(), replies);
        let worker = Self { reader: Reader::new(handle), max_message_bytes, on_notice };
        Ok(PyClassInitializer::from(role).add_subclass(caller).add_subclass(worker))
    }

    /// A request that the worker sends itself.
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
        let (request, bytes) = asking::request((service, data, metadata), timeout_s, retries, limit)?;
        Ok(slf.as_super().get().outgoing(|call| WorkingVerb::Call(request(call)), bytes))
    }

    /// Waits for a request.
    #[pyo3(signature = (timeout_s = None))]
    fn receive(slf: &Bound<'_, Self>, timeout_s: Option<f64>) -> PyResult<PyRequest> {
        let role = slf.as_super().as_super().get();
        role.receive(slf.py(), timeout_s, "no request came", || Self::take(slf))
    }

    /// The next request if there is one now; reports notices on the way.
    fn poll(slf: &Bound<'_, Self>) -> PyResult<Option<PyRequest>> {
        slf.as_super().as_super().get().ours()?;
        Self::take(slf)
    }

    /// Reports the notices that need no reader of requests: those of a simulation.
    fn report(&self, py: Python<'_>) -> PyResult<()> {
        while self.reader.handle.has_notice() {
            if let Next::Event(notice) = self.reader.next(&mut Look::default()) {
                self.notify(py, notice)?;
            }
        }
        Ok(())
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// The next request; the iteration ends when the role is closed.
    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Option<PyRequest>> {
        slf.as_super().as_super().get().iterated(slf.py(), Self::receive(slf, None))
    }

    /// Gives requests back to the broker that have come in and are not begun.
    fn give_back(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.as_super().as_super().get().ours()?;
        let this = slf.get();
        let mut look = Look::default();
        loop {
            match this.reader.next(&mut look) {
                Next::Event(WorkingEvent::Work(WorkerEvent::Request { job, frames, body })) => {
                    this.request(job, frames, body).give_back();
                }
                Next::Event(notice) => this.notify(slf.py(), notice)?,
                Next::Trouble(what) => this.warn(slf.py(), what)?,
                Next::Nothing | Next::Over => return Ok(()),
            }
        }
    }

    /// Waits until the role has ended, and gives back requests that are not begun meanwhile.
    fn finish(slf: &Bound<'_, Self>) -> PyResult<()> {
        let role = slf.as_super().as_super().get();
        // A child after fork has no role to end.
        let Ok(engine) = role.ours() else { return Ok(()) };
        while !engine.is_over() {
            Self::give_back(slf)?;
            let some = |role: &dyn Running| role.has_events() || role.is_over();
            role.wait_until(slf.py(), engine.events(), None, some).inspect_err(|_| role.give_up(slf.py()))?;
        }
        let handle = &slf.get().reader.handle;
        slf.py().detach(|| handle.join());
        Ok(())
    }

    /// Counters, by name.
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (this, py) = (slf.get(), slf.py());
        let snapshot = py.detach(|| this.reader.handle.stats());
        let stats = counters(py, &snapshot.machine.worker)?;
        stats.set_item("asked", snapshot.machine.client.requests)?;
        stats.set_item("late", snapshot.machine.client.late)?;
        slf.as_super().as_super().get().add_to(&stats, &snapshot)?;
        Ok(stats)
    }
}

/// The notice of an event, `(kind, *details)`; requests and replies are handed out instead.
fn notice(py: Python<'_>, event: WorkerEvent) -> PyResult<Option<Bound<'_, PyTuple>>> {
    let notice = match event {
        WorkerEvent::Request { .. } | WorkerEvent::Reply { .. } => return Ok(None),
        WorkerEvent::Dropped(dropped) => self::dropped(py, "dcp", &dropped),
        WorkerEvent::Abandoned(_) => ("abandoned",).into_pyobject(py),
        WorkerEvent::Registered => ("registered",).into_pyobject(py),
        WorkerEvent::Lost => ("lost",).into_pyobject(py),
        WorkerEvent::Connection(what) => connection(what).into_pyobject(py),
    };
    notice.map(Some)
}
