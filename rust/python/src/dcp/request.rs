//! The requests that a worker has in progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use trunkline_engine::Hold;
use trunkline_wire::Frames;
use trunkline_wire::dcp::{Body, JobId, Layout, WorkerVerb, Working, WorkingVerb};

use crate::errors::{LocalProtocolError, ended};
use crate::fields;
use crate::frames;

/// A request for a worker to answer.
#[pyclass(frozen, weakref, module = "trunkline.dcp", name = "Request")]
pub(crate) struct PyRequest {
    worker: Arc<dyn Hold<Working>>,
    /// The life of the worker that received it; see [`Hold::life`].
    life: u64,
    max_message_bytes: u64,
    job: JobId,
    frames: Frames,
    layout: Layout,
    answered: AtomicBool,
}

impl PyRequest {
    pub(crate) fn new(
        worker: Arc<dyn Hold<Working>>,
        max_message_bytes: u64,
        job: JobId,
        frames: Frames,
        body: Body,
    ) -> Self {
        let layout = Layout::Request(body);
        let life = worker.life();
        Self { worker, life, max_message_bytes, job, frames, layout, answered: AtomicBool::new(false) }
    }

    /// Gives it back to the broker: another worker may do it.
    pub(crate) fn give_back(&self) {
        if let (Some(service), Some(body)) = (self.layout.service(), self.layout.body()) {
            let data = self.frames[body.data()].to_vec();
            self.answered.store(true, Ordering::SeqCst);
            self.ask(WorkerVerb::Forward { job: self.job, service: self.frames[service].clone(), data });
        }
    }

    /// Parts of an answer besides the metadata of the request.
    fn parts(&self, data: &Bound<'_, PyAny>) -> PyResult<Vec<Bytes>> {
        let metadata = self.layout.body().map_or(0, |body| body.metadata.len());
        super::parts(data, metadata, self.max_message_bytes)
    }

    fn ask(&self, verb: WorkerVerb) {
        self.worker.ask(WorkingVerb::Work(verb));
    }

    /// Why no answer to it can be sent any more, if so.
    fn ended(&self) -> Option<PyErr> {
        let worker = &self.worker;
        match worker.is_ours() && worker.life() == self.life {
            false => Some(ended(worker.name(), None)),
            true if worker.is_over() => Some(ended(worker.name(), worker.end().as_ref())),
            true => None,
        }
    }

    fn answer(&self, verb: WorkerVerb) -> PyResult<()> {
        if let Some(error) = self.ended() {
            return Err(error);
        }
        if self.answered.swap(true, Ordering::SeqCst) {
            return Err(LocalProtocolError::new_err("this request has already been answered"));
        }
        self.ask(verb);
        Ok(())
    }
}

#[pymethods]
impl PyRequest {
    /// The positional fields of a `match` pattern.
    #[classattr]
    #[allow(non_upper_case_globals)] // the name is Python's
    const __match_args__: (&'static str, &'static str) = ("service", "data");

    /// All attributes, by name.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        fields::to_dict(slf.as_any())
    }

    /// The requested service.
    #[getter]
    fn service<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.layout.service().map(|at| PyBytes::new(py, &self.frames[at]))
    }

    /// The address of the client that its reply goes to (DCP-20).
    #[getter]
    fn client<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.layout.body()?.client.map(|at| PyBytes::new(py, &self.frames[at]))
    }

    /// The parts that its reply will contain too (DCP-23).
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let parts = self.layout.body().map_or(&[][..], |body| &self.frames[body.metadata.clone()]);
        frames::tuple(py, parts.iter())
    }

    /// The parts of the request.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let parts = self.layout.body().map_or(&[][..], |body| &self.frames[body.data()]);
        frames::tuple(py, parts.iter())
    }

    /// The data as numbers, in one array, or one of its frames.
    #[pyo3(signature = (dtype = None, *, frame = None))]
    fn array<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        frame: Option<isize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        frames::array(py, frames::of_tuple(&self.data(py)?)?, dtype, frame)
    }

    /// Whether it has been answered or forwarded.
    #[getter]
    fn answered(&self) -> bool {
        self.answered.load(Ordering::SeqCst)
    }

    /// Answers it.
    fn reply(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = self.parts(data)?;
        self.answer(WorkerVerb::Reply { job: self.job, data })
    }

    /// Answers that the work failed.
    #[pyo3(signature = (data = None))]
    fn fail(&self, data: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let data = data.map_or_else(|| Ok(vec![]), |data| self.parts(data))?;
        self.answer(WorkerVerb::Fail { job: self.job, data })
    }

    /// Forwards it: the reply of the other service goes to the client (DCP-34).
    fn forward(&self, service: &Bound<'_, PyAny>, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let service = frames::frame("service", service)?;
        let data = self.parts(data)?;
        self.answer(WorkerVerb::Forward { job: self.job, service, data })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let state = if self.answered() { "answered" } else { "in hand" };
        let client = self.client(py).map(|client| client.repr()).transpose()?;
        let client = client.map_or_else(String::new, |client| client.to_string());
        Ok(format!("<trunkline.dcp.Request {state}, of {client}>"))
    }
}

impl Drop for PyRequest {
    /// Frees its slot if it was never answered.
    fn drop(&mut self) {
        if !*self.answered.get_mut() && self.ended().is_none() {
            self.ask(WorkerVerb::Abandon(self.job));
        }
    }
}
