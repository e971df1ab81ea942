//! The role that pulls configurations, pushes them and watches them.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trunkline_engine::{Answering, Aside, Notices, Replies};
use trunkline_wire::CallId;
use trunkline_wire::cdt::{Confirm, Ended, Pull, Push, Source, SourceEvent, SourceSettings, SourceVerb};

use super::message::spoken;
use super::options::{BOUNDS, Ear, Heard, NatsOptions, Taking, add_to, run};
use super::watch::{PyWatch, Watches, Watching};
use crate::caller::{Called, Caller, Outgoing, Reply};
use crate::counters::counters;
use crate::errors::{LocalProtocolError, dropped};
use crate::frames;
use crate::names::name;
use crate::notices::PyNotices;
use crate::reader::{Look, Next, Reader};
use crate::role::{connection, seconds};

/// A source's engine.
#[pyclass(frozen, extends = Caller, module = "trunkline._native.cdt", name = "Source")]
pub(crate) struct PySource {
    reader: Reader<Source>,
    notices: Py<PyNotices>,
    heard: Arc<Heard>,
    watches: Arc<Watches>,
}

impl Called for Source {
    /// How it ended, and with what.
    fn reply(py: Python<'_>, outcome: Ended) -> PyResult<Reply> {
        let (how, what) = match outcome {
            Ended::Answered(read) => ("answered", spoken(py, *read)?.unbind()),
            Ended::Sent => ("sent", py.None()),
            Ended::Applied(config_id) => ("applied", config_id.into_py_any(py)?),
            Ended::NoTarget => ("no_target", py.None()),
            Ended::TimedOut => ("timed_out", py.None()),
            Ended::Unapplied { is_stored } => ("unapplied", is_stored.into_py_any(py)?),
            Ended::TooLarge => ("too_large", py.None()),
            Ended::Unsent => ("unsent", py.None()),
            Ended::Forbidden(words) => ("forbidden", words.into_py_any(py)?),
            Ended::Unanswered => ("unanswered", py.None()),
        };
        Ok(Reply::Value((name(py, how), what).into_py_any(py)?))
    }

    fn cancel(call: CallId) -> SourceVerb {
        SourceVerb::Cancel(call)
    }
}

impl PySource {
    /// The next event of others without a wait. `None` when there is none now.
    fn take<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut look = Look::default();
        loop {
            match slf.get().reader.next(&mut look) {
                Next::Event(SourceEvent::Event(read)) => return spoken(slf.py(), *read).map(Some),
                // Notices are read separately, and calls have their own outcomes.
                Next::Event(_) | Next::Trouble(_) => {}
                Next::Nothing => return Ok(None),
                Next::Over => return Err(slf.as_super().as_super().get().ended()),
            }
        }
    }
}

#[pymethods]
impl PySource {
    #[new]
    #[pyo3(signature = (options, taking, *, target, resync_s))]
    fn new(
        py: Python<'_>,
        options: NatsOptions,
        taking: Taking,
        target: String,
        resync_s: f64,
    ) -> PyResult<PyClassInitializer<Self>> {
        let resync = seconds("resync_s", resync_s)?;
        let settings = SourceSettings { part: taking.part()?, target, resync, ..SourceSettings::default() };
        let (replies, notices) = (Arc::new(Replies::new(BOUNDS)?), Arc::new(Notices::new()?));
        let (heard, watches) = (Arc::<Heard>::default(), Arc::new(Watches::new()?));
        let sink = Ear::new(Arc::clone(&heard), &options, Answering::new(Arc::clone(&replies)));
        let sink = Aside::new(Arc::clone(&notices), Watching(Arc::clone(&watches), sink));
        let make = move |_, seed| Source::new(settings.clone(), seed);
        let (handle, role) = run(py, make, sink, options, "trunkline-cdt-source")?;
        let caller = Caller::new(handle.clone(), replies);
        let notices = Py::new(py, PyNotices::new(&role, handle.clone(), notices, notice))?;
        let source = Self { reader: Reader::new(handle), notices, heard, watches };
        Ok(PyClassInitializer::from(role).add_subclass(caller).add_subclass(source))
    }

    /// The notices, to be reported.
    #[getter]
    fn notice_queue(&self, py: Python<'_>) -> Py<PyNotices> {
        self.notices.clone_ref(py)
    }

    /// The largest body of a message.
    #[getter]
    fn max_payload(&self) -> usize {
        self.heard.max_payload.load(Ordering::Relaxed)
    }

    /// A call that pulls a configuration.
    #[allow(clippy::too_many_arguments)] // as Python gives them
    fn pull(
        slf: &Bound<'_, Self>,
        app_version_name: String,
        endpoint_id: String,
        config_id: Option<String>,
        endpoint_message_id: Option<String>,
        timeout_s: Option<f64>,
        retries: u32,
    ) -> PyResult<Outgoing> {
        let timeout = timeout_s.map(|timeout| seconds("timeout_s", timeout)).transpose()?;
        let bytes = app_version_name.len() + endpoint_id.len();
        let pull = Pull { app_version_name, endpoint_id, config_id, endpoint_message_id, timeout, retries };
        Ok(slf.as_super().get().outgoing(|call| SourceVerb::Pull(call, pull), bytes))
    }

    /// A call that pushes one, or without content rolls back to one.
    #[allow(clippy::too_many_arguments)] // as Python gives them
    fn push(
        slf: &Bound<'_, Self>,
        app_version_name: String,
        endpoint_id: String,
        content: Option<Bound<'_, PyAny>>,
        content_type: String,
        config_id: Option<String>,
        confirm: Option<&str>,
        timeout_s: Option<f64>,
    ) -> PyResult<Outgoing> {
        let timeout = timeout_s.map(|timeout| seconds("timeout_s", timeout)).transpose()?;
        let confirm = match confirm {
            None => Confirm::Sent,
            Some("stored") => Confirm::Stored,
            Some("applied") => Confirm::Applied,
            Some(other) => {
                let message = format!("confirm is 'stored', 'applied' or None, not {other:?}");
                return Err(LocalProtocolError::new_err(message));
            }
        };
        let content = content.map(|content| frames::frame("content", &content)).transpose()?;
        let bytes = content.as_ref().map_or(0, bytes::Bytes::len);
        let push = Push { app_version_name, endpoint_id, config_id, content_type, content, confirm, timeout };
        Ok(slf.as_super().get().outgoing(|call| SourceVerb::Push(call, push), bytes))
    }

    /// A call that reports an applied configuration.
    fn report(slf: &Bound<'_, Self>, app_version_name: String, endpoint_id: String, config_id: String) -> Outgoing {
        let bytes = app_version_name.len() + endpoint_id.len() + config_id.len();
        let verb = |call| SourceVerb::Report { call, app_version_name, endpoint_id, config_id };
        slf.as_super().get().outgoing(verb, bytes)
    }

    /// Watches the configuration of an endpoint.
    fn watch(slf: &Bound<'_, Self>, app_version_name: String, endpoint_id: String) -> PyResult<PyWatch> {
        let (this, caller) = (slf.get(), slf.as_super());
        let role = caller.as_super().clone();
        role.get().check_open()?;
        let (handle, watches) = (this.reader.handle.clone(), Arc::clone(&this.watches));
        Ok(PyWatch::new(role.unbind(), handle, watches, caller.get().number(), (app_version_name, endpoint_id)))
    }

    /// The descriptor that is readable when there is something for a watch.
    fn watches_fileno(slf: &Bound<'_, Self>) -> PyResult<c_int> {
        slf.as_super().as_super().get().ours()?;
        Ok(slf.get().watches.signal.raw_fd())
    }

    /// Ends a wait on `watches_fileno`.
    fn disarm_watches(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.as_super().as_super().get().ours()?;
        slf.get().watches.signal.disarm(true);
        Ok(())
    }

    /// Waits for an event of others.
    #[pyo3(signature = (timeout_s = None))]
    fn receive<'py>(slf: &Bound<'py, Self>, timeout_s: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let role = slf.as_super().as_super().get();
        role.receive(slf.py(), timeout_s, "no event came", || Self::take(slf))
    }

    /// The next event if there is one now.
    fn poll<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyAny>>> {
        slf.as_super().as_super().get().ours()?;
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

/// The notice of an event, `(kind, *details)`; others are handed out instead.
fn notice(py: Python<'_>, event: SourceEvent) -> PyResult<Bound<'_, PyTuple>> {
    match event {
        SourceEvent::Dropped(dropped) => self::dropped(py, "cdt", &dropped),
        SourceEvent::Connection(what) => connection(what).into_pyobject(py),
        SourceEvent::Ended(..) | SourceEvent::Changed(..) | SourceEvent::Event(_) => Ok(PyTuple::empty(py)),
    }
}
