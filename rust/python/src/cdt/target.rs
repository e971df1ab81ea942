//! The role that stores configurations and answers requests for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use trunkline_engine::{Aside, Notices, Offered, Queued};
use trunkline_wire::cdt::{Answer, Config, Target, TargetEvent, TargetSettings, TargetVerb};
use trunkline_wire::question::Token;

use super::message::spoken;
use super::options::{Ear, Heard, NatsOptions, Taking, add_to, run};
use crate::counters::counters;
use crate::errors::dropped;
use crate::frames;
use crate::notices::PyNotices;
use crate::reader::{Look, Next, Reader};
use crate::role::{Role, connection, seconds};

/// A target's engine.
#[pyclass(frozen, extends = Role, module = "trunkline._native.cdt", name = "Target")]
pub(crate) struct PyTarget {
    reader: Reader<Target>,
    notices: Py<PyNotices>,
    questions: Py<PyNotices>,
    heard: Arc<Heard>,
}

/// What is for the store, and its bytes.
fn asks(event: &TargetEvent) -> Option<usize> {
    match event {
        TargetEvent::Put { content, .. } => Some(content.as_ref().map_or(0, Bytes::len)),
        TargetEvent::Get { .. } | TargetEvent::Announced { .. } | TargetEvent::Updated { .. } => Some(0),
        TargetEvent::Event(_) | TargetEvent::Dropped(_) | TargetEvent::Connection(_) => None,
    }
}

fn config(config_id: String, content_type: String, content: &Bound<'_, PyAny>) -> PyResult<Config> {
    Ok(Config { config_id, content_type, content: frames::frame("content", content)? })
}

impl PyTarget {
    /// Hands over a verb, waiting for room: what a server does not read is not held without end.
    fn put(slf: &Bound<'_, Self>, verb: TargetVerb, bytes: usize) -> PyResult<()> {
        let mut verb = Some(verb);
        slf.as_super().get().put(slf.py(), None, || {
            let Some(given) = verb.take() else { return true };
            match slf.get().reader.handle.offer(given, bytes) {
                Offered::Taken => true,
                Offered::Full(given) | Offered::Over(given) => {
                    verb = Some(given);
                    false
                }
            }
        })
    }

    fn answer(slf: &Bound<'_, Self>, token: u64, answer: Answer) -> PyResult<()> {
        let bytes = match &answer {
            Answer::Found(config) => config.content.len(),
            Answer::Stored { .. } | Answer::Missing | Answer::Conflict | Answer::Failed { .. } => 0,
        };
        Self::put(slf, TargetVerb::Answer(Token(token), answer), bytes)
    }

    /// The next event of others without a wait. `None` when there is none now.
    fn take<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut look = Look::default();
        loop {
            match slf.get().reader.next(&mut look) {
                Next::Event(TargetEvent::Event(read)) => return spoken(slf.py(), *read).map(Some),
                // Notices and questions are read separately.
                Next::Event(_) | Next::Trouble(_) => {}
                Next::Nothing => return Ok(None),
                Next::Over => return Err(slf.as_super().get().ended()),
            }
        }
    }
}

#[pymethods]
impl PyTarget {
    #[new]
    #[pyo3(signature = (options, taking, *, queue, include_content, store_timeout_s))]
    fn new(
        py: Python<'_>,
        options: NatsOptions,
        taking: Taking,
        queue: bool,
        include_content: bool,
        store_timeout_s: f64,
    ) -> PyResult<PyClassInitializer<Self>> {
        let settings = TargetSettings {
            part: taking.part()?,
            shares_requests: queue,
            includes_content: include_content,
            patience: seconds("store_timeout_s", store_timeout_s)?,
        };
        let (notices, questions) = (Arc::new(Notices::new()?), Arc::new(Notices::new()?));
        let heard = Arc::<Heard>::default();
        let sink = Ear::new(Arc::clone(&heard), &options, Queued);
        let sink = Aside::new(Arc::clone(&notices), Aside::pressing(Arc::clone(&questions), asks, sink));
        let make = move |_, _| Target::new(settings.clone());
        let (handle, role) = run(py, make, sink, options, "trunkline-cdt-target")?;
        let target = Self {
            notices: Py::new(py, PyNotices::new(&role, handle.clone(), notices, notice))?,
            questions: Py::new(py, PyNotices::new(&role, handle.clone(), questions, notice))?,
            reader: Reader::new(handle),
            heard,
        };
        Ok(PyClassInitializer::from(role).add_subclass(target))
    }

    /// The notices, to be reported.
    #[getter]
    fn notice_queue(&self, py: Python<'_>) -> Py<PyNotices> {
        self.notices.clone_ref(py)
    }

    /// What is for the store, to be answered or recorded.
    #[getter]
    fn asked(&self, py: Python<'_>) -> Py<PyNotices> {
        self.questions.clone_ref(py)
    }

    /// The largest body of a message.
    #[getter]
    fn max_payload(&self) -> usize {
        self.heard.max_payload.load(Ordering::Relaxed)
    }

    /// Answers a pull with this configuration.
    fn answer_found(
        slf: &Bound<'_, Self>,
        token: u64,
        config_id: String,
        content_type: String,
        content: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        Self::answer(slf, token, Answer::Found(config(config_id, content_type, content)?))
    }

    /// Answers a pull: there is no such configuration.
    fn answer_missing(slf: &Bound<'_, Self>, token: u64) -> PyResult<()> {
        Self::answer(slf, token, Answer::Missing)
    }

    /// Confirms a push of this configuration.
    fn answer_stored(
        slf: &Bound<'_, Self>,
        token: u64,
        config_id: String,
        content_type: String,
        content: &Bound<'_, PyAny>,
        is_new: bool,
    ) -> PyResult<()> {
        let config = config(config_id, content_type, content)?;
        Self::answer(slf, token, Answer::Stored { config, is_new })
    }

    /// Answers with an error.
    fn answer_failed(slf: &Bound<'_, Self>, token: u64, status: u16, reason: String) -> PyResult<()> {
        Self::answer(slf, token, Answer::Failed { status, reason })
    }

    /// Announces a configuration of an endpoint.
    fn announce(
        slf: &Bound<'_, Self>,
        app_version_name: String,
        endpoint_id: String,
        config_id: String,
        content_type: String,
        content: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let config = config(config_id, content_type, content)?;
        let bytes = config.content.len();
        Self::put(slf, TargetVerb::Announce { app_version_name, endpoint_id, config }, bytes)
    }

    /// Waits for an event of others.
    #[pyo3(signature = (timeout_s = None))]
    fn receive<'py>(slf: &Bound<'py, Self>, timeout_s: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        slf.as_super().get().receive(slf.py(), timeout_s, "no event came", || Self::take(slf))
    }

    /// The next event if there is one now.
    fn poll<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        slf.as_super().get().ours()?;
        Self::take(slf)
    }

    /// Counters, by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let snapshot = py.detach(|| self.reader.handle.stats());
        let stats = counters(py, &snapshot.machine)?;
        add_to(&stats, &snapshot)?;
        Ok(stats)
    }
}

/// The notice of an event, `(kind, *details)`; those of others are handed out instead.
fn notice(py: Python<'_>, event: TargetEvent) -> PyResult<Bound<'_, PyTuple>> {
    match event {
        TargetEvent::Get { token, correlation_id, app_version_name, endpoint_id, config_id } => {
            ("get", token.0, correlation_id, app_version_name, endpoint_id, config_id).into_pyobject(py)
        }
        TargetEvent::Put { token, correlation_id, app_version_name, endpoint_id, config_id, content_type, content } => {
            let content = content.map(|content| PyBytes::new(py, &content));
            ("put", token.0, correlation_id, app_version_name, endpoint_id, config_id, content_type, content)
                .into_pyobject(py)
        }
        TargetEvent::Announced { app_version_name, endpoint_id, config_id, is_sent } => {
            ("announced", app_version_name, endpoint_id, config_id, is_sent).into_pyobject(py)
        }
        TargetEvent::Updated { app_version_name, endpoint_id, config_id, timestamp_ms } => {
            ("updated", app_version_name, endpoint_id, config_id, timestamp_ms).into_pyobject(py)
        }
        TargetEvent::Dropped(dropped) => self::dropped(py, "cdt", &dropped),
        TargetEvent::Connection(what) => connection(what).into_pyobject(py),
        TargetEvent::Event(_) => Ok(PyTuple::empty(py)),
    }
}
