//! The notices of a role whose messages a user reads, for the thread that reports them.

use std::ffi::c_int;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use trunkline_engine::{Hold, Notice, Notices, Running, Signal};
use trunkline_wire::Machine;

use crate::errors::ended;
use crate::role::{Role, trouble};
use crate::world::Clock;

/// Makes the notice of an event.
type ToNotice<E> = for<'py> fn(Python<'py>, E) -> PyResult<Bound<'py, PyTuple>>;

/// The notices of a role.
#[pyclass(frozen, module = "trunkline._native", name = "NoticeQueue")]
pub(crate) struct PyNotices {
    pending: Box<dyn Pending>,
    clock: Option<Arc<Clock>>,
}

trait Pending: Send + Sync {
    fn role(&self) -> &dyn Running;
    fn signal(&self) -> &Signal;
    fn is_empty(&self) -> bool;
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>>;
}

struct Of<M: Machine> {
    handle: Arc<dyn Hold<M>>,
    notices: Arc<Notices<M::Event>>,
    to_notice: ToNotice<M::Event>,
}

impl<M: Machine + Send + 'static> Pending for Of<M> {
    fn role(&self) -> &dyn Running {
        &*self.handle
    }

    fn signal(&self) -> &Signal {
        &self.notices.signal
    }

    fn is_empty(&self) -> bool {
        self.notices.is_empty()
    }

    fn take<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let shown = |notice| match notice {
            Notice::Event(event) => (self.to_notice)(py, event),
            Notice::Trouble(what) => trouble(what).into_pyobject(py),
        };
        let (all, is_relieved) = self.notices.take();
        if is_relieved {
            self.handle.wake();
        }
        all.into_iter().map(shown).collect()
    }
}

impl PyNotices {
    pub(crate) fn new<M: Machine + Send + 'static>(
        role: &Role,
        handle: Arc<dyn Hold<M>>,
        notices: Arc<Notices<M::Event>>,
        to_notice: ToNotice<M::Event>,
    ) -> Self {
        Self { pending: Box::new(Of { handle, notices, to_notice }), clock: role.clock.clone() }
    }

    /// The notices of the parent process are reported there.
    fn ours(&self) -> PyResult<&Signal> {
        if self.pending.role().is_ours() {
            Ok(self.pending.signal())
        } else {
            Err(ended(self.pending.role().name(), None))
        }
    }
}

#[pymethods]
impl PyNotices {
    /// The simulation's entry of a simulated role; None of a live one.
    #[getter]
    fn simulation<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.clock.as_ref()?.entry(py)
    }

    /// Whether the role is over.
    #[getter]
    fn closed(&self) -> bool {
        !self.pending.role().is_ours() || self.pending.role().is_over()
    }

    /// The descriptor that is readable when there are notices.
    fn fileno(&self) -> PyResult<c_int> {
        Ok(self.ours()?.raw_fd())
    }

    /// Announces a wait on `fileno`; true when there is no reason to wait.
    fn arm(&self) -> PyResult<bool> {
        self.ours()?.arm();
        Ok(!self.pending.is_empty() || self.pending.role().is_over())
    }

    /// Ends a wait on `fileno`.
    fn disarm(&self) -> PyResult<()> {
        self.ours()?.disarm(true);
        Ok(())
    }

    /// Notices since the last call, each `(kind, *details)`.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        self.pending.take(py)
    }
}
