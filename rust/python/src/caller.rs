//! Calls and the waits for their outcomes, shared by the roles that ask, for all protocols.

use std::any::Any;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use trunkline_engine::{Hold, Offered, Replies, Signal, Slot};
use trunkline_wire::{CallId, Calling};

use crate::names::name;
use crate::role::{Role, timed_out};

/// A machine whose calls are made from Python.
pub(crate) trait Called: Calling + Send + 'static {
    /// The outcome of a call.
    fn reply(py: Python<'_>, outcome: Self::Outcome) -> PyResult<Reply>;

    /// Gives up a call.
    fn cancel(call: CallId) -> Self::Verb;
}

/// How a call ended, for Python.
pub(crate) enum Reply {
    /// With this.
    Value(Py<PyAny>),
    /// With this error.
    Failed(PyErr),
    TimedOut,
    Unanswered,
}

/// The calling part of a role.
#[pyclass(frozen, subclass, extends = Role, module = "trunkline._native")]
pub(crate) struct Caller {
    calls: Box<dyn Asking>,
    next: AtomicU64,
}

/// A call on its way to the engine.
#[pyclass(frozen, module = "trunkline._native", name = "Outgoing")]
pub(crate) struct Outgoing {
    call: CallId,
    /// The verb of the machine that makes it, until the machine takes it.
    verb: Mutex<Option<Box<dyn Any + Send + Sync>>>,
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

/// The calls of one machine.
struct Calls<M: Called> {
    handle: Arc<dyn Hold<M>>,
    replies: Arc<Replies<M::Outcome>>,
}

/// Operations on the calls of any machine.
trait Asking: Send + Sync {
    /// Hands over a call whose outcome is taken later, without waking the engine. False when there is no room.
    fn post(&self, outgoing: &Outgoing) -> bool;
    fn wake(&self);
    /// Hands over a call, waiting for room, and waits for its outcome in this thread.
    fn request(&self, py: Python<'_>, role: &Role, outgoing: &Outgoing, room_s: Option<f64>) -> PyResult<Reply>;
    fn cancel(&self, call: CallId);
    /// Takes outcomes.
    fn take(&self, py: Python<'_>) -> PyResult<Vec<(CallId, Reply)>>;
    fn is_empty(&self) -> bool;
    fn is_over(&self) -> bool;
    fn signal(&self) -> &Signal;
}

impl<M: Called> Calls<M>
where
    M::Verb: Sync,
{
    fn post_for(&self, outgoing: &Outgoing, slot: Option<Arc<Slot<M::Outcome>>>) -> bool {
        let mut held = outgoing.verb.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(verb) = held.take().and_then(|verb| verb.downcast::<M::Verb>().ok()) else { return true };
        // Before it is handed over: it may end at once.
        if !self.replies.expect(outgoing.call, slot) {
            *held = Some(verb);
            return false;
        }
        match self.handle.post(*verb, outgoing.bytes) {
            Offered::Taken => true,
            Offered::Full(verb) | Offered::Over(verb) => {
                self.replies.forget(outgoing.call);
                *held = Some(Box::new(verb));
                false
            }
        }
    }
}

impl<M: Called> Asking for Calls<M>
where
    M::Verb: Sync,
{
    fn post(&self, outgoing: &Outgoing) -> bool {
        self.post_for(outgoing, None)
    }

    fn wake(&self) {
        self.handle.wake();
    }

    fn request(&self, py: Python<'_>, role: &Role, outgoing: &Outgoing, room_s: Option<f64>) -> PyResult<Reply> {
        let mut slot = Arc::new(Slot::default());
        role.put(py, room_s, || self.post_for(outgoing, Some(Arc::clone(&slot))))?;
        self.wake();
        loop {
            // Checked first: once the role is over or the call is given up, nothing fills the slot.
            let is_over = role.ours()?.is_over() || Arc::get_mut(&mut slot).is_some();
            if is_over {
                return slot.wait(Duration::ZERO).map_or(Ok(Reply::Unanswered), |outcome| M::reply(py, outcome));
            }
            if let Some(outcome) = role.pause(py, || self.cancel(outgoing.call), |patience| slot.wait(patience))? {
                return M::reply(py, outcome);
            }
        }
    }

    fn cancel(&self, call: CallId) {
        self.replies.forget(call);
        if self.handle.is_ours() && !self.handle.is_over() {
            self.handle.ask(M::cancel(call));
        }
    }

    fn take(&self, py: Python<'_>) -> PyResult<Vec<(CallId, Reply)>> {
        let (all, is_relieved) = self.replies.take();
        if is_relieved {
            self.handle.wake();
        }
        all.into_iter().map(|(call, outcome)| Ok((call, M::reply(py, outcome)?))).collect()
    }

    fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    fn is_over(&self) -> bool {
        self.handle.is_over()
    }

    fn signal(&self) -> &Signal {
        &self.replies.signal
    }
}

impl Caller {
    pub(crate) fn new<M: Called>(handle: Arc<dyn Hold<M>>, replies: Arc<Replies<M::Outcome>>) -> Self
    where
        M::Verb: Sync,
    {
        Self { calls: Box::new(Calls { handle, replies }), next: AtomicU64::new(0) }
    }

    /// A number for a call.
    pub(crate) fn number(&self) -> CallId {
        CallId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// A call of the machine that this was made for, with a number once its arguments are valid.
    pub(crate) fn outgoing<V: Send + Sync + 'static>(&self, verb: impl FnOnce(CallId) -> V, bytes: usize) -> Outgoing {
        // One of a role that is over is not handed over, and a simulated role may be started again.
        let next = u64::from(!self.calls.is_over());
        let call = CallId(self.next.fetch_add(next, Ordering::Relaxed));
        Outgoing { call, verb: Mutex::new(Some(Box::new(verb(call)))), bytes }
    }
}

#[pymethods]
impl Caller {
    /// Hands a call to the engine, which `wake` wakes; false when there is no room.
    fn post(slf: &Bound<'_, Self>, outgoing: &Outgoing) -> PyResult<bool> {
        slf.as_super().get().offer(|| slf.get().calls.post(outgoing))
    }

    /// Wakes the engine for the calls that it was handed.
    fn wake(&self) {
        self.calls.wake();
    }

    /// Hands a call to the engine, waiting for room.
    #[pyo3(signature = (outgoing, timeout_s = None))]
    fn put(slf: &Bound<'_, Self>, outgoing: &Outgoing, timeout_s: Option<f64>) -> PyResult<()> {
        let calls = &slf.get().calls;
        slf.as_super().get().put(slf.py(), timeout_s, || calls.post(outgoing))?;
        calls.wake();
        Ok(())
    }

    /// Makes a call, and waits for the reply in this thread; `room_s` is how long to wait for room in the queue.
    #[pyo3(signature = (outgoing, *, room_s, timeout_s))]
    fn request(
        slf: &Bound<'_, Self>,
        outgoing: &Outgoing,
        room_s: Option<f64>,
        timeout_s: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let role = slf.as_super().get();
        match slf.get().calls.request(slf.py(), role, outgoing, room_s)? {
            Reply::Value(reply) => Ok(reply),
            Reply::Failed(error) => Err(error),
            Reply::TimedOut => Err(timed_out("no reply came", timeout_s)),
            Reply::Unanswered => Err(role.ended()),
        }
    }

    /// Gives up a call; a thread that waits for it gets that it is unanswered.
    fn cancel(&self, call: u64) {
        self.calls.cancel(CallId(call));
    }

    /// The calls that have ended since the last time: the number and the reply, or the error.
    fn outcomes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let outcome = |reply| match reply {
            Reply::Value(reply) => Ok(reply.into_bound(py)),
            Reply::Failed(error) => Ok(error.into_value(py).into_bound(py).into_any()),
            Reply::TimedOut => name(py, "timed_out").into_bound_py_any(py),
            Reply::Unanswered => name(py, "unanswered").into_bound_py_any(py),
        };
        let all = self.calls.take(py)?.into_iter();
        all.map(|(call, reply)| (call.0, outcome(reply)?).into_pyobject(py)).collect()
    }

    /// The descriptor that is readable when calls have ended.
    fn outcomes_fileno(&self) -> c_int {
        self.calls.signal().raw_fd()
    }

    /// Announces a wait on `outcomes_fileno`; true when there is no reason to wait.
    fn arm_outcomes(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let role = slf.as_super().get().ours()?;
        let calls = &slf.get().calls;
        calls.signal().arm();
        Ok(!calls.is_empty() || role.is_over())
    }

    /// Ends a wait on `outcomes_fileno`.
    fn disarm_outcomes(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.as_super().get().ours()?;
        slf.get().calls.signal().disarm(true);
        Ok(())
    }
}
