//! The asking role.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trunkline_capture::Protocol;
use trunkline_engine::{CallVerb, Calls, CaptureOverflow, Handle, Offered, Outcome, Outcomes, Slot};
use trunkline_wire::dcp::{CallId, Client, ClientEvent, ClientSettings, ClientStats, ClientVerb};

use super::{PyReply, heartbeat, kinds, metadata, parts, seed, within};
use crate::errors::decode_error;
use crate::frames;
use crate::names::name;
use crate::role::{AnyRole, Role, RoleOptions, SLICE, deadline, seconds, start, timed_out, words};

/// A client's engine.
#[pyclass(frozen, extends = Role, module = "trunkline._native.dcp", name = "Client")]
pub(crate) struct PyClient {
    handle: Arc<Handle<Calls>>,
    outcomes: Arc<Outcomes>,
    next: AtomicU64,
    max_message_bytes: u64,
}

/// A request on its way to the engine.
#[pyclass(module = "trunkline._native.dcp", name = "Outgoing")]
pub(crate) struct Outgoing {
    call: CallId,
    verb: Option<CallVerb>,
    bytes: usize,
}

#[pymethods]
impl Outgoing {
    /// The number of the call.
    #[getter]
    fn call(&self) -> u64 {
        self.call.0
    }
}

impl PyClient {
    fn give(&self, outgoing: &mut Outgoing) -> bool {
        let Some(verb) = outgoing.verb.take() else { return true };
        match self.handle.offer(verb, outgoing.bytes) {
            Offered::Taken => true,
            Offered::Full(verb) | Offered::Over(verb) => {
                outgoing.verb = Some(verb);
                false
            }
        }
    }

    fn wait(slf: &Bound<'_, Self>, slot: &Slot) -> PyResult<Outcome> {
        let role = slf.as_super().get();
        loop {
            // Looked at first: what is over fills no slot any more.
            let is_over = role.ours()?.is_over();
            let patience = if is_over { Duration::ZERO } else { SLICE };
            if let Some(outcome) = slf.py().detach(|| slot.wait(patience)) {
                return Ok(outcome);
            }
            if is_over {
                return Ok(Outcome::Unanswered);
            }
            slf.py().check_signals()?;
        }
    }
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
            // Who does not say waits for ever.
            timeout: Duration::MAX,
            heartbeat_interval,
            liveness,
        };
        let outcomes = Arc::new(Outcomes::new(options.bounds)?);
        let machine = Calls::new(Client::new(settings, seed()?), Arc::clone(&outcomes));
        let (handle, role) =
            start(py, machine, options, Protocol::Dcp, CaptureOverflow::Count, "trunkline-dcp-client")?;
        let client = Self { handle, outcomes, next: AtomicU64::new(0), max_message_bytes };
        Ok(PyClassInitializer::from(role).add_subclass(client))
    }

    /// A request.
    #[pyo3(signature = (service, data, *, metadata, timeout_s, retries))]
    fn outgoing(
        &self,
        service: &Bound<'_, PyAny>,
        data: &Bound<'_, PyAny>,
        metadata: &Bound<'_, PyAny>,
        timeout_s: Option<f64>,
        retries: u32,
    ) -> PyResult<Outgoing> {
        let service = frames::frame(service)?;
        let metadata = self::metadata(metadata)?;
        let data = parts(data, self.max_message_bytes)?;
        within(metadata.iter().chain([&service]), self.max_message_bytes)?;
        let bytes = metadata.iter().chain(&data).chain([&service]).map(Bytes::len).sum();
        let timeout = timeout_s.map(seconds).transpose()?;
        let call = CallId(self.next.fetch_add(1, Ordering::Relaxed));
        let request = ClientVerb::Request { call, service, metadata, data, timeout, retries };
        Ok(Outgoing { call, verb: Some(CallVerb::Call { call, request, slot: None }), bytes })
    }

    /// Hands a request to the engine; false when there is no room.
    fn offer(slf: &Bound<'_, Self>, outgoing: &mut Outgoing) -> PyResult<bool> {
        let role = slf.as_super().get();
        role.ours()?;
        if slf.get().give(outgoing) {
            return Ok(true);
        }
        if role.ours()?.is_over() { Err(role.ended()) } else { Ok(false) }
    }

    /// Hands a request to the engine, waiting for room.
    #[pyo3(signature = (outgoing, timeout_s = None))]
    fn put(slf: &Bound<'_, Self>, outgoing: &mut Outgoing, timeout_s: Option<f64>) -> PyResult<()> {
        let role = slf.as_super().get();
        if Self::offer(slf, outgoing)? {
            return Ok(());
        }
        let deadline = deadline(timeout_s)?;
        let room = |role: &dyn AnyRole| role.has_room() || role.is_over();
        while role.wait_until(slf.py(), |role| role.changes(), deadline, room)? {
            if Self::offer(slf, outgoing)? {
                return Ok(());
            }
        }
        Err(timed_out("the queue had no room", timeout_s))
    }

    /// Asks, and waits for the reply in this thread alone; `room_s` is how long to wait for room in the queue.
    #[pyo3(signature = (outgoing, *, room_s, timeout_s))]
    fn request(
        slf: &Bound<'_, Self>,
        outgoing: &mut Outgoing,
        room_s: Option<f64>,
        timeout_s: Option<f64>,
    ) -> PyResult<PyReply> {
        let waiting = Arc::new(Slot::default());
        if let Some(CallVerb::Call { slot, .. }) = &mut outgoing.verb {
            *slot = Some(Arc::clone(&waiting));
        }
        Self::put(slf, outgoing, room_s)?;
        match Self::wait(slf, &waiting) {
            Ok(Outcome::Reply { frames, body }) => Ok(PyReply::of(&frames, &body)),
            Ok(Outcome::TimedOut) => Err(timed_out("no reply came", timeout_s)),
            Ok(Outcome::Unanswered) => Err(slf.as_super().get().ended()),
            Err(error) => {
                slf.get().cancel(outgoing.call.0);
                Err(error)
            }
        }
    }

    /// Waits for a call no more.
    fn cancel(&self, call: u64) {
        if self.handle.is_ours() && !self.handle.is_over() {
            self.handle.ask(CallVerb::Cancel(CallId(call)));
        }
    }

    /// The calls that have ended since the last time: the number and the reply, or what there was instead.
    fn outcomes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let (all, relieved) = self.outcomes.take();
        if relieved && self.handle.is_ours() {
            self.handle.ask(CallVerb::Relieved);
        }
        let outcome = |outcome| match outcome {
            Outcome::Reply { frames, body } => PyReply::of(&frames, &body).into_bound_py_any(py),
            Outcome::TimedOut => name(py, "timed_out").into_bound_py_any(py),
            Outcome::Unanswered => name(py, "unanswered").into_bound_py_any(py),
        };
        all.into_iter().map(|(call, ended)| (call.0, outcome(ended)?).into_pyobject(py)).collect()
    }

    /// The descriptor that is readable when calls have ended.
    fn outcomes_fileno(&self) -> c_int {
        self.outcomes.signal.raw_fd()
    }

    /// Announces a wait on `outcomes_fileno`; true when there is no reason to wait.
    fn arm_outcomes(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let role = slf.as_super().get().ours()?;
        slf.get().outcomes.signal.arm();
        Ok(!slf.get().outcomes.is_empty() || role.is_over())
    }

    /// Ends a wait on `outcomes_fileno`.
    fn disarm_outcomes(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.as_super().get().ours()?;
        slf.get().outcomes.signal.disarm(true);
        Ok(())
    }

    /// Notices since the last call, each `(kind, *details)`.
    fn notices<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let mut events = VecDeque::new();
        self.handle.read(&mut events);
        let mut all = Vec::with_capacity(events.len());
        for event in events {
            all.push(told(py, event)?);
        }
        for trouble in self.handle.read_troubles() {
            all.push(("capture", words(trouble)).into_pyobject(py)?);
        }
        Ok(all)
    }

    /// Counters, by name.
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (this, py) = (slf.get(), slf.py());
        let snapshot = if this.handle.is_ours() { py.detach(|| this.handle.stats()) } else { this.handle.snapshot() };
        let stats = stats_dict(py, &snapshot.machine)?;
        stats.set_item("capture_lost", snapshot.capture_lost)?;
        Ok(stats)
    }
}

pub(crate) fn told(py: Python<'_>, event: ClientEvent) -> PyResult<Bound<'_, PyTuple>> {
    match event {
        ClientEvent::Reply { call, frames, body } => ("reply", call.0, PyReply::of(&frames, &body)).into_pyobject(py),
        ClientEvent::TimedOut(call) => ("timed_out", call.0).into_pyobject(py),
        ClientEvent::Unanswered(call) => ("unanswered", call.0).into_pyobject(py),
        ClientEvent::Dropped { error, frames } => {
            let error = decode_error("dcp", error).into_value(py);
            ("dropped", error, frames::tuple(py, frames.iter())?).into_pyobject(py)
        }
        ClientEvent::Connected(endpoint) => ("connected", endpoint).into_pyobject(py),
        ClientEvent::Disconnected(endpoint) => ("disconnected", endpoint).into_pyobject(py),
        ClientEvent::Failed { endpoint, reason } => ("failed", endpoint, reason).into_pyobject(py),
    }
}

pub(crate) fn stats_dict<'py>(py: Python<'py>, stats: &ClientStats) -> PyResult<Bound<'py, PyDict>> {
    let ClientStats { requests, replies, timeouts, retries, late, in_flight, dropped } = stats;
    let dict = PyDict::new(py);
    dict.set_item("requests", requests)?;
    dict.set_item("replies", replies)?;
    dict.set_item("timeouts", timeouts)?;
    dict.set_item("retries", retries)?;
    dict.set_item("late", late)?;
    dict.set_item("in_flight", in_flight)?;
    dict.set_item("dropped", kinds(py, dropped)?)?;
    Ok(dict)
}
