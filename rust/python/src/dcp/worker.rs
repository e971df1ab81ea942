//! The working role.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trunkline_engine::{Calls, Handle, Outcomes, Trouble};
use trunkline_wire::dcp::{
    Client, ClientSettings, LEAVING, Worker, WorkerEvent, WorkerSettings, WorkerStats, Working, WorkingEvent,
    WorkingStats,
};
use trunkline_wire::{Framing, Nanos};

use super::{Caller, PyRequest, heartbeat, kinds, seed};
use crate::errors::{ClosedError, LocalProtocolError, decode_error};
use crate::frames;
use crate::role::{AnyRole, RoleOptions, connection, deadline, start, timed_out, trouble};

/// A worker's engine.
#[pyclass(frozen, extends = Caller, module = "trunkline._native.dcp", name = "Worker")]
pub(crate) struct PyWorker {
    handle: Arc<Handle<Working<Calls>>>,
    max_message_bytes: u64,
    inbox: Mutex<Inbox>,
    /// Called with `(kind, *details)` for everything that is no request.
    on_notice: Py<PyAny>,
}

/// What was taken from the engine and not handed out yet.
#[derive(Default)]
struct Inbox {
    events: VecDeque<WorkingEvent>,
    over: bool,
}

enum Next {
    Request(PyRequest),
    Notice(WorkerEvent),
    Trouble(Trouble),
    Nothing,
    Over,
}

impl PyWorker {
    fn next(&self) -> Next {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match inbox.events.pop_front() {
                Some(WorkingEvent::Work(WorkerEvent::Request { job, frames, body })) => {
                    let answers = self.handle.clone();
                    return Next::Request(PyRequest::new(answers, self.max_message_bytes, job, frames, body));
                }
                Some(WorkingEvent::Work(notice)) => return Next::Notice(notice),
                // Its connection is the worker's to tell of, and its outcomes never come this way.
                Some(WorkingEvent::Call(_)) => {}
                None => {
                    // Not only when there is nothing else: a reader that is never idle is to hear of it too.
                    if let Some(trouble) = self.handle.read_trouble() {
                        return Next::Trouble(trouble);
                    }
                    if inbox.over {
                        return Next::Over;
                    }
                    inbox.over = !self.handle.read(&mut inbox.events);
                    if inbox.events.is_empty() {
                        return if inbox.over { Next::Over } else { Next::Nothing };
                    }
                }
            }
        }
    }

    fn notify(&self, py: Python<'_>, notice: WorkerEvent) -> PyResult<()> {
        if let Some(notice) = told(py, notice)? {
            self.on_notice.bind(py).call1(notice)?;
        }
        Ok(())
    }

    fn warn(&self, py: Python<'_>, what: Trouble) -> PyResult<()> {
        self.on_notice.bind(py).call1(trouble(what)).map(drop)
    }

    /// The next request without a wait; notices on the way are told. `None` when there is none now.
    fn take(slf: &Bound<'_, Self>) -> PyResult<Option<PyRequest>> {
        loop {
            match slf.get().next() {
                Next::Request(request) => return Ok(Some(request)),
                Next::Notice(notice) => slf.get().notify(slf.py(), notice)?,
                Next::Trouble(what) => slf.get().warn(slf.py(), what)?,
                Next::Nothing => return Ok(None),
                Next::Over => return Err(slf.as_super().as_super().get().ended()),
            }
        }
    }

    /// Waits for events; false when the time is up.
    fn wait(slf: &Bound<'_, Self>, deadline: Option<std::time::Instant>) -> PyResult<bool> {
        let some = |role: &dyn AnyRole| role.has_events() || role.is_over();
        slf.as_super().as_super().get().wait_until(slf.py(), |role| role.events(), deadline, some)
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
        let given = settings(service, concurrency, heartbeat_interval_s, liveness)?;
        let (connect, socket) = (options.connect.clone(), options.socket.clone());
        let settings = WorkerSettings { connect, options: socket, ..given };
        let outcomes = Arc::new(Outcomes::new(options.bounds)?);
        // Who does not say waits for ever.
        let asks = ClientSettings { timeout: Duration::MAX, ..ClientSettings::default() };
        let calls = Calls::new(Client::new(asks, seed()?), Arc::clone(&outcomes));
        let machine = Working::new(Worker::new(Nanos::default(), settings, seed()?), calls);
        let (handle, role) = start(py, machine, options, Framing::Dcp, "trunkline-dcp-worker")?;
        let caller = Caller::new(handle.clone(), outcomes, max_message_bytes);
        let worker = Self { handle, max_message_bytes, inbox: Mutex::default(), on_notice };
        Ok(PyClassInitializer::from(role).add_subclass(caller).add_subclass(worker))
    }

    /// Waits for a request.
    #[pyo3(signature = (timeout_s = None))]
    fn receive(slf: &Bound<'_, Self>, timeout_s: Option<f64>) -> PyResult<PyRequest> {
        let deadline = deadline(timeout_s)?;
        slf.as_super().as_super().get().ours()?;
        loop {
            if let Some(request) = Self::take(slf)? {
                return Ok(request);
            }
            if !Self::wait(slf, deadline)? {
                return Err(timed_out("no request came", timeout_s));
            }
        }
    }

    /// The next request if there is one now; tells notices on the way.
    fn poll(slf: &Bound<'_, Self>) -> PyResult<Option<PyRequest>> {
        slf.as_super().as_super().get().ours()?;
        Self::take(slf)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// The next request; the iteration ends when the role is closed.
    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Option<PyRequest>> {
        match Self::receive(slf, None) {
            Ok(request) => Ok(Some(request)),
            Err(error) if error.is_instance_of::<ClosedError>(slf.py()) => {
                slf.as_super().as_super().get().failure()?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives back to the broker what has come in and nobody has begun.
    fn give_back(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.as_super().as_super().get().ours()?;
        loop {
            match slf.get().next() {
                Next::Request(request) => request.give_back(),
                Next::Notice(notice) => slf.get().notify(slf.py(), notice)?,
                Next::Trouble(what) => slf.get().warn(slf.py(), what)?,
                Next::Nothing | Next::Over => return Ok(()),
            }
        }
    }

    /// Ends, gives back what nobody has begun, and waits for the rest, for so long at most.
    fn finish(slf: &Bound<'_, Self>, grace_s: f64) -> PyResult<()> {
        let (role, grace) = (slf.as_super().as_super().get(), crate::role::seconds("grace_s", grace_s)?);
        // A child after fork has none to end.
        let Ok(engine) = role.ours() else { return Ok(()) };
        engine.close(grace);
        while !engine.is_over() {
            Self::give_back(slf)?;
            Self::wait(slf, None).inspect_err(|_| role.give_up(slf.py()))?;
        }
        let handle = &slf.get().handle;
        slf.py().detach(|| handle.join());
        Ok(())
    }

    /// Counters, by name.
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (this, py) = (slf.get(), slf.py());
        let snapshot = py.detach(|| this.handle.stats());
        let stats = stats_dict(py, &snapshot.machine)?;
        stats.set_item("capture_lost", snapshot.capture_lost)?;
        Ok(stats)
    }
}

pub(crate) fn settings(
    service: &Bound<'_, PyAny>,
    concurrency: usize,
    heartbeat_interval_s: f64,
    liveness: u32,
) -> PyResult<WorkerSettings> {
    if concurrency == 0 {
        return Err(LocalProtocolError::new_err("a worker has concurrency for one request at least"));
    }
    let (heartbeat_interval, liveness) = heartbeat(heartbeat_interval_s, liveness)?;
    let service = frames::frame("service", service)?;
    if service == LEAVING {
        return Err(LocalProtocolError::new_err("this is the service of workers that leave"));
    }
    Ok(WorkerSettings { service, concurrency, heartbeat_interval, liveness, ..WorkerSettings::default() })
}

/// What is told of an event, `(kind, *details)`; requests and replies are not told, but given.
pub(crate) fn told(py: Python<'_>, event: WorkerEvent) -> PyResult<Option<Bound<'_, PyTuple>>> {
    let told = match event {
        WorkerEvent::Request { .. } | WorkerEvent::Reply { .. } => return Ok(None),
        WorkerEvent::Dropped { error, frames } => {
            let error = decode_error("dcp", error).into_value(py);
            ("dropped", error, frames::tuple(py, frames.iter())?).into_pyobject(py)
        }
        WorkerEvent::Abandoned(_) => ("abandoned",).into_pyobject(py),
        WorkerEvent::Registered => ("registered",).into_pyobject(py),
        WorkerEvent::Lost => ("lost",).into_pyobject(py),
        WorkerEvent::Connection(what) => connection(what).into_pyobject(py),
    };
    told.map(Some)
}

pub(crate) fn stats_dict<'py>(py: Python<'py>, stats: &WorkingStats) -> PyResult<Bound<'py, PyDict>> {
    let WorkerStats { received, sent, dropped, requests, replies, forwards, failed, held } = &stats.worker;
    let dict = PyDict::new(py);
    dict.set_item("received", received)?;
    dict.set_item("sent", sent)?;
    dict.set_item("dropped", kinds(py, dropped)?)?;
    dict.set_item("requests", requests)?;
    dict.set_item("replies", replies)?;
    dict.set_item("forwards", forwards)?;
    dict.set_item("failed", failed)?;
    dict.set_item("held", held)?;
    dict.set_item("asked", stats.client.requests)?;
    dict.set_item("late", stats.client.late)?;
    Ok(dict)
}
