//! Machines driven by Python: one by one, or many in a simulation.

mod driver;
mod messages;
mod simulation;
mod spoken;

pub(crate) use driver::PyDriver;
pub(crate) use messages::{Carried, PyMessages};
pub(crate) use simulation::{PySimulation, Simulated};
pub(crate) use spoken::{Make, maker, no_verb};

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trunkline_wire::erased::{AnyMachine, Numbered};
use trunkline_wire::{Machine, Nanos};

/// The verbs and events of machines of a type, in Python.
pub(crate) trait Spoken: Machine + Send + Sized + 'static {
    /// A verb by its name, with its arguments.
    fn verb(name: &str, given: &Given<'_>) -> PyResult<Self::Verb>;

    /// An event as `(kind, *details)`, unless it is internal; verbs about what is handed out go to the queue.
    fn notice<'py>(
        py: Python<'py>,
        event: Self::Event,
        verbs: &Arc<VerbQueue>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>>;

    /// Counters, by name, as the live role has them.
    fn counters<'py>(py: Python<'py>, stats: &Self::Stats) -> PyResult<Bound<'py, PyDict>>;
}

/// A machine of any type that Python can drive.
pub(crate) trait Driven: AnyMachine {
    /// Does the verb of [`Spoken::verb`].
    fn say(&mut self, now: Nanos, name: &str, given: &Given<'_>) -> PyResult<()>;

    /// Does a verb of the machine's own type.
    fn handle(&mut self, now: Nanos, verb: Box<dyn Any + Send>);

    /// The next event that was set aside and is to be reported.
    fn next_notice<'py>(&mut self, py: Python<'py>, verbs: &Arc<VerbQueue>) -> PyResult<Option<Bound<'py, PyTuple>>>;

    /// See [`Spoken::counters`].
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>>;
}

impl<M: Spoken> Driven for Numbered<M> {
    fn say(&mut self, now: Nanos, name: &str, given: &Given<'_>) -> PyResult<()> {
        self.machine.handle_verb(now, M::verb(name, given)?);
        Ok(())
    }

    fn handle(&mut self, now: Nanos, verb: Box<dyn Any + Send>) {
        if let Ok(verb) = verb.downcast::<M::Verb>() {
            self.machine.handle_verb(now, *verb);
        }
    }

    fn next_notice<'py>(&mut self, py: Python<'py>, verbs: &Arc<VerbQueue>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        while let Some(event) = self.take() {
            if let Some(notice) = M::notice(py, event, verbs)? {
                return Ok(Some(notice));
            }
        }
        Ok(None)
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        M::counters(py, &self.machine.stats())
    }
}

/// Verbs that wait for a machine that is handled now and then.
#[derive(Default)]
pub(crate) struct VerbQueue {
    verbs: Mutex<Vec<Box<dyn Any + Send>>>,
    is_over: AtomicBool,
}

impl VerbQueue {
    pub(crate) fn put(&self, verb: impl Any + Send) {
        self.verbs.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(verb));
    }

    /// Whether it will never be read again.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn close(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    fn take(&self) -> Vec<Box<dyn Any + Send>> {
        std::mem::take(&mut *self.verbs.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Arguments, by name.
pub(crate) struct Given<'py>(pub(crate) Bound<'py, PyDict>);

impl<'py> Given<'py> {
    pub(crate) fn any(&self, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.0.get_item(name)?.ok_or_else(|| PyTypeError::new_err(format!("{name} is missing")))
    }

    /// An argument that may be None or missing.
    pub(crate) fn optional(&self, name: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.0.get_item(name)?.filter(|value| !value.is_none()))
    }

    pub(crate) fn extract<T: FromPyObjectOwned<'py>>(&self, name: &str) -> PyResult<T> {
        self.any(name)?.extract().map_err(Into::into)
    }

    /// All arguments together, as this type.
    pub(crate) fn whole<T: FromPyObjectOwned<'py>>(&self) -> PyResult<T> {
        self.0.extract().map_err(Into::into)
    }
}
