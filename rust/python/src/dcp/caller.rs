//! Requests, and who waits for their replies: what clients and workers have in common.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use trunkline_engine::{CallVerb, Calls, Handle, Offered, Outcome, Outcomes, Slot};
use trunkline_wire::cost;
use trunkline_wire::dcp::{CallId, ClientVerb, Working, WorkingVerb};

use super::{PyReply, metadata, parts, within};
use crate::frames;
use crate::names::name;
use crate::role::{Role, SLICE, seconds, timed_out};

/// An engine that makes calls.
pub(crate) trait Calling: Send + Sync {
    /// Hands a verb over; gives it back where there is no room or the role is over.
    fn offer(&self, verb: CallVerb, bytes: usize) -> Option<CallVerb>;
    /// Hands over a verb that is no request, if anybody still hears it.
    fn ask(&self, verb: CallVerb);
}

impl Calling for Handle<Calls> {
    fn offer(&self, verb: CallVerb, bytes: usize) -> Option<CallVerb> {
        match self.offer(verb, bytes) {
            Offered::Taken => None,
            Offered::Full(verb) | Offered::Over(verb) => Some(verb),
        }
    }

    fn ask(&self, verb: CallVerb) {
        if self.is_ours() && !self.is_over() {
            self.ask(verb);
        }
    }
}

impl Calling for Handle<Working<Calls>> {
    fn offer(&self, verb: CallVerb, bytes: usize) -> Option<CallVerb> {
        match self.offer(WorkingVerb::Call(verb), bytes) {
            Offered::Full(WorkingVerb::Call(verb)) | Offered::Over(WorkingVerb::Call(verb)) => Some(verb),
            Offered::Taken | Offered::Full(WorkingVerb::Work(_)) | Offered::Over(WorkingVerb::Work(_)) => None,
        }
    }

    fn ask(&self, verb: CallVerb) {
        if self.is_ours() && !self.is_over() {
            self.ask(WorkingVerb::Call(verb));
        }
    }
}

/// The part of a role that asks.
#[pyclass(frozen, subclass, extends = Role, module = "trunkline._native.dcp")]
pub(crate) struct Caller {
    engine: Arc<dyn Calling>,
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

/// A request, none of whose frames is larger than a peer takes, and its size. It has a number once nothing is wrong with it.
pub(super) fn request(
    number: impl FnOnce() -> CallId,
    (service, data, metadata): (&Bound<'_, PyAny>, &Bound<'_, PyAny>, &Bound<'_, PyAny>),
    timeout_s: Option<f64>,
    retries: u32,
    max_message_bytes: u64,
) -> PyResult<(CallId, ClientVerb, usize)> {
    let service = frames::frame("service", service)?;
    let metadata = self::metadata(metadata)?;
    let data = parts(data, metadata.len(), max_message_bytes)?;
    within(metadata.iter().chain([&service]), max_message_bytes)?;
    let bytes = cost(&metadata) + cost(&data) + cost(&[&service]);
    let timeout = timeout_s.map(|timeout| seconds("timeout_s", timeout)).transpose()?;
    let call = number();
    Ok((call, ClientVerb::Request { call, service, metadata, data, timeout, retries }, bytes))
}

impl Caller {
    pub(crate) fn new(engine: Arc<dyn Calling>, outcomes: Arc<Outcomes>, max_message_bytes: u64) -> Self {
        Self { engine, outcomes, next: AtomicU64::new(0), max_message_bytes }
    }

    fn give(&self, outgoing: &mut Outgoing) -> bool {
        let Some(verb) = outgoing.verb.take() else { return true };
        outgoing.verb = self.engine.offer(verb, outgoing.bytes);
        outgoing.verb.is_none()
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
impl Caller {
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
        let number = || CallId(self.next.fetch_add(1, Ordering::Relaxed));
        let asked = (service, data, metadata);
        let (call, request, bytes) = request(number, asked, timeout_s, retries, self.max_message_bytes)?;
        Ok(Outgoing { call, verb: Some(CallVerb::Call { call, request, slot: None }), bytes })
    }

    /// Hands a request to the engine; false when there is no room.
    fn offer(slf: &Bound<'_, Self>, outgoing: &mut Outgoing) -> PyResult<bool> {
        slf.as_super().get().offer(|| slf.get().give(outgoing))
    }

    /// Hands a request to the engine, waiting for room.
    #[pyo3(signature = (outgoing, timeout_s = None))]
    fn put(slf: &Bound<'_, Self>, outgoing: &mut Outgoing, timeout_s: Option<f64>) -> PyResult<()> {
        slf.as_super().get().put(slf.py(), timeout_s, || slf.get().give(outgoing))
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
        self.engine.ask(CallVerb::Cancel(CallId(call)));
    }

    /// The calls that have ended since the last time: the number and the reply, or what there was instead.
    fn outcomes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let (all, relieved) = self.outcomes.take();
        if relieved {
            self.engine.ask(CallVerb::Relieved);
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
}
