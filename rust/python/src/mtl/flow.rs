//! The data connections of a client.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyString, PyTuple};
use trunkline_engine::{Answering, Aside, Hold, Notices, Replies, Sink, Trouble};
use trunkline_wire::mtl::data::Layout;
use trunkline_wire::mtl::flow::{Asked, Denial, Flow, FlowEvent, FlowOutcome, FlowSettings, FlowVerb, Grant};
use trunkline_wire::question::Token;
use trunkline_wire::{CallId, FRAME_COST, Frames, Framing, SocketOptions};

use super::message::need_short;
use super::server::pings;
use super::table;
use crate::caller::{Called, Caller, Outgoing, Reply};
use crate::counters::counters;
use crate::errors::{ClosedError, LeaseRefusedError, LocalProtocolError, PeerLostError, RemoteProtocolError, dropped};
use crate::fields;
use crate::frames::{self, counted, within};
use crate::names::name;
use crate::notices::PyNotices;
use crate::reader::{Look, Next, Reader};
use crate::role::{Role, RoleOptions, connection, run, seconds};
use crate::waiting::Waiting;

/// The engine of a data connection.
#[pyclass(frozen, extends = Caller, module = "trunkline._native.mtl", name = "Flow")]
pub(crate) struct PyFlow {
    reader: Reader<Flow>,
    /// The connection and the sequence of the last content taken.
    seen: Mutex<Option<(u32, u64)>>,
    /// The notices, to be logged.
    #[pyo3(get)]
    notice_queue: Py<PyNotices>,
    /// The questions for a new lease, to be answered.
    #[pyo3(get)]
    asked: Py<PyNotices>,
    rejected: Arc<AtomicU64>,
    resources: Vec<String>,
    max_message_bytes: u64,
}

/// Counts rejected contents where a writer can look before each content, without a lock.
struct Counting<S> {
    rejected: Arc<AtomicU64>,
    rest: S,
}

impl<S: Sink<Flow>> Sink<Flow> for Counting<S> {
    fn take(&mut self, event: FlowEvent) -> Option<FlowEvent> {
        if let FlowEvent::Rejected(count) = event {
            self.rejected.fetch_add(count, Ordering::Relaxed);
            return None;
        }
        self.rest.take(event)
    }

    fn take_trouble(&mut self, trouble: Trouble) -> Option<Trouble> {
        self.rest.take_trouble(trouble)
    }

    fn has_room(&self) -> bool {
        self.rest.has_room()
    }

    fn lose(&mut self) {
        self.rest.lose();
    }
}

/// A content on its way to the engine.
#[pyclass(module = "trunkline._native.mtl", name = "Outbound")]
pub(crate) struct PyOutbound(Waiting<FlowVerb>);

impl Called for Flow {
    fn reply(py: Python<'_>, outcome: FlowOutcome) -> PyResult<Reply> {
        Ok(match outcome {
            FlowOutcome::Done => Reply::Value(py.None()),
            FlowOutcome::Refused(403) => {
                Reply::Failed(LeaseRefusedError::new_err(("the server refused the lease", 403)))
            }
            FlowOutcome::Refused(status) => {
                let text = format!("the server answered with {status}");
                let error = RemoteProtocolError::new_err(text);
                error.value(py).setattr(intern!(py, "status"), status)?;
                Reply::Failed(error)
            }
            FlowOutcome::Forbidden(reason) => Reply::Failed(LocalProtocolError::new_err(reason)),
            FlowOutcome::TimedOut => Reply::TimedOut,
            FlowOutcome::Lost(reason) => Reply::Failed(PeerLostError::new_err(reason)),
            FlowOutcome::Unanswered => Reply::Unanswered,
        })
    }

    fn cancel(call: CallId) -> FlowVerb {
        FlowVerb::Cancel(call)
    }
}

/// A content delivered to a reader.
#[pyclass(frozen, module = "trunkline.mtl", name = "Content")]
pub(crate) struct PyContent {
    reader: Arc<dyn Hold<Flow>>,
    /// The life of the reader that received it; see [`Hold::life`].
    life: u64,
    connection: u32,
    frames: Frames,
    layout: Layout,
    only: Option<Arc<str>>,
}

/// Hands over a verb, unless the reader is over or in another life; never waits.
fn settle(reader: &dyn Hold<Flow>, life: u64, verb: FlowVerb) -> bool {
    // A child after fork has no connection, and asking there would wait for locks that are never released.
    let is_open = reader.is_ours() && !reader.is_closing() && !reader.is_over() && reader.life() == life;
    if is_open {
        reader.ask(verb);
    }
    is_open
}

#[pymethods]
impl PyContent {
    /// The positional fields of a `match` pattern.
    #[classattr]
    #[allow(non_upper_case_globals)] // the name is Python's
    const __match_args__: (&'static str, &'static str) = ("resource", "body");

    /// All attributes, by name.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        fields::to_dict(slf.as_any())
    }

    /// The resource it was delivered from.
    #[getter]
    fn resource<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        name(py, self.source())
    }

    /// The properties (MTL-60), including `redelivered` if it may have been delivered before.
    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        table::to_python(py, &self.frames[0][self.layout.table.clone()])
    }

    /// The body.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.frames[1])
    }

    /// The body as numbers, in one array, or one of its frames.
    #[pyo3(signature = (dtype = None, *, frame = None))]
    fn array<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        frame: Option<isize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        frames::array(py, vec![self.body(py)], dtype, frame)
    }

    /// Its number on the connection that delivered it (MTL-47).
    #[getter]
    fn sequence(&self) -> u64 {
        self.layout.sequence
    }

    /// Whether it may have been delivered before (MTL-54).
    #[getter]
    fn redelivered(&self, py: Python<'_>) -> PyResult<bool> {
        let flag = self.properties(py)?.get_item(intern!(py, "redelivered"))?;
        // A number or a text of that name is the writer's own property.
        Ok(flag.is_some_and(|flag| flag.is(PyBool::new(py, true))))
    }

    /// Confirms it (MTL-51); has no effect once the connection that delivered it is lost.
    fn confirm(&self) -> PyResult<()> {
        self.settle(true, false, false)
    }

    /// Rejects it (MTL-53); with `recycle` it is delivered again, preferably to another reader.
    #[pyo3(signature = (*, recycle = false))]
    fn reject(&self, recycle: bool) -> PyResult<()> {
        self.settle(false, false, recycle)
    }

    fn __repr__(&self) -> String {
        let (source, sequence) = (self.source(), self.layout.sequence);
        let body = counted(self.frames[1].len(), "byte");
        format!("Content({source:?}, sequence={sequence}, body=<{body}>)")
    }
}

impl PyContent {
    /// Its resource: the only one of the connection if it names none.
    fn source(&self) -> &str {
        // The codec accepts no other text.
        let said = std::str::from_utf8(&self.frames[0][self.layout.name.clone()]).unwrap_or_default();
        self.only.as_deref().filter(|_| said.is_empty()).unwrap_or(said)
    }

    fn settle(&self, is_safe: bool, multiple: bool, recycle: bool) -> PyResult<()> {
        let (connection, sequence) = (self.connection, self.layout.sequence);
        let verb = if is_safe {
            FlowVerb::Confirm { connection, sequence, multiple }
        } else {
            FlowVerb::Reject { connection, sequence, multiple, recycle }
        };
        if settle(&*self.reader, self.life, verb) {
            Ok(())
        } else {
            Err(ClosedError::new_err("the reader is closed: its contents were returned to the server"))
        }
    }
}

impl PyFlow {
    fn mine<'a>(&self, content: &'a PyContent) -> PyResult<&'a PyContent> {
        if Arc::ptr_eq(&content.reader, &self.reader.handle) {
            Ok(content)
        } else {
            Err(LocalProtocolError::new_err("this content was received by another reader"))
        }
    }

    /// The next content without a wait. `None` when there is none now.
    fn take(slf: &Bound<'_, Self>) -> PyResult<Option<PyContent>> {
        let this = slf.get();
        let mut look = Look::default();
        loop {
            match this.reader.next(&mut look) {
                Next::Event(FlowEvent::Content { connection, frames, layout, only }) => {
                    let reader = this.reader.handle.clone();
                    *this.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some((connection, layout.sequence));
                    let life = reader.life();
                    return Ok(Some(PyContent { reader, life, connection, frames, layout, only }));
                }
                // Notices are read separately, and calls have their own outcomes.
                Next::Event(_) | Next::Trouble(_) => {}
                Next::Nothing => return Ok(None),
                Next::Over => return Err(slf.as_super().as_super().get().ended()),
            }
        }
    }
}

/// The settings of a data connection beyond those of every role.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Arguments {
    reads: bool,
    resources: Vec<String>,
    is_confirmed: bool,
    window: usize,
    endpoint: String,
    lease: String,
    timeout_s: f64,
    ping_interval_s: f64,
    liveness: u32,
    max_message_bytes: u64,
    capture_secrets: bool,
}

impl Arguments {
    fn settings(self, options: SocketOptions) -> PyResult<FlowSettings> {
        Ok(FlowSettings {
            reads: self.reads,
            resources: self.resources,
            is_confirmed: self.is_confirmed,
            window: self.window,
            grant: Grant { endpoint: self.endpoint, lease: self.lease },
            options,
            timeout: seconds("timeout_s", self.timeout_s)?,
            pings: pings(self.ping_interval_s, self.liveness)?,
            shows_secrets: self.capture_secrets,
        })
    }
}

#[pymethods]
impl PyFlow {
    #[new]
    fn new(
        py: Python<'_>,
        mut options: RoleOptions,
        given: Arguments,
        client: &Bound<'_, Role>,
    ) -> PyResult<PyClassInitializer<Self>> {
        options.capture = client.get().recorded();
        let (max_message_bytes, resources) = (given.max_message_bytes, given.resources.clone());
        let who = if given.reads { "trunkline-mtl-reader" } else { "trunkline-mtl-writer" };
        let settings = given.settings(options.socket.clone())?;
        let replies = Arc::new(Replies::new(options.bounds)?);
        let (notices, questions) = (Arc::new(Notices::new()?), Arc::new(Notices::new()?));
        let picks = |event: &FlowEvent| matches!(event, FlowEvent::Wanted(_)).then_some(0);
        let sink = Aside::picking(Arc::clone(&questions), picks, Answering::new(Arc::clone(&replies)));
        let rejected = Arc::default();
        let sink = Counting { rejected: Arc::clone(&rejected), rest: Aside::new(Arc::clone(&notices), sink) };
        let make = move |now, _| Flow::new(now, settings.clone());
        let (handle, role) = run(py, make, sink, options, Framing::MtlData, who)?;
        let caller = Caller::new(handle.clone(), replies);
        let flow = Self {
            notice_queue: Py::new(py, PyNotices::new(&role, handle.clone(), notices, notice))?,
            asked: Py::new(py, PyNotices::new(&role, handle.clone(), questions, notice))?,
            reader: Reader::new(handle),
            seen: Mutex::default(),
            rejected,
            resources,
            max_message_bytes,
        };
        Ok(PyClassInitializer::from(role).add_subclass(caller).add_subclass(flow))
    }

    /// A call that redeems the lease ("open"), or summons or dismisses a resource.
    fn call(slf: &Bound<'_, Self>, asked: &str, resource: String, timeout_s: Option<f64>) -> PyResult<Outgoing> {
        let asked = match asked {
            "open" => Asked::Open,
            "summon" => Asked::Summon,
            "dismiss" => Asked::Dismiss,
            other => return Err(PyValueError::new_err(format!("{other:?} cannot be asked"))),
        };
        need_short("resource", &resource)?;
        let timeout = timeout_s.map(|timeout| seconds("timeout_s", timeout)).transpose()?;
        Ok(slf.as_super().get().outgoing(|call| FlowVerb::Call { call, asked, resource, timeout }, 0))
    }

    /// A content to send.
    fn outbound(
        &self,
        body: &Bound<'_, PyAny>,
        properties: &Bound<'_, PyAny>,
        resource: Option<String>,
    ) -> PyResult<PyOutbound> {
        let resource = resource.unwrap_or_default();
        let is_leased = self.resources.is_empty() || self.resources.contains(&resource);
        if resource.is_empty() && self.resources.len() > 1 {
            return Err(LocalProtocolError::new_err("the lease is for several resources: choose one with resource="));
        }
        if !resource.is_empty() && !is_leased {
            return Err(LocalProtocolError::new_err(format!("the resource {resource:?} is not leased")));
        }
        need_short("resource", &resource)?;
        let (properties, body) = (table::from_python("properties", properties)?, frames::frame("body", body)?);
        within([&properties, &body].into_iter(), self.max_message_bytes)?;
        let bytes = properties.len() + body.len() + 2 * FRAME_COST;
        Ok(PyOutbound(Waiting::new(FlowVerb::Send { resource, properties, body }, bytes)))
    }

    /// Counts contents without confirmation as pending until they are known to have arrived; sent like a content.
    #[staticmethod]
    fn flushing() -> PyOutbound {
        PyOutbound(Waiting::new(FlowVerb::Flush, 0))
    }

    /// Hands a content to the engine; false when there is no room.
    fn offer_outbound(slf: &Bound<'_, Self>, outbound: &mut PyOutbound) -> PyResult<bool> {
        slf.as_super().as_super().get().offer(|| outbound.0.give(&*slf.get().reader.handle))
    }

    /// Hands a content to the engine, waiting for room.
    #[pyo3(signature = (outbound, timeout_s = None))]
    fn put_outbound(slf: &Bound<'_, Self>, outbound: &mut PyOutbound, timeout_s: Option<f64>) -> PyResult<()> {
        slf.as_super().as_super().get().put(slf.py(), timeout_s, || outbound.0.give(&*slf.get().reader.handle))
    }

    /// Waits for a content.
    #[pyo3(signature = (timeout_s = None))]
    fn receive(slf: &Bound<'_, Self>, timeout_s: Option<f64>) -> PyResult<PyContent> {
        let role = slf.as_super().as_super().get();
        role.receive(slf.py(), timeout_s, "no content came", || Self::take(slf))
    }

    /// The next content if there is one now.
    fn poll(slf: &Bound<'_, Self>) -> PyResult<Option<PyContent>> {
        slf.as_super().as_super().get().ours()?;
        Self::take(slf)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// The next content; the iteration ends when the role is closed.
    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Option<PyContent>> {
        slf.as_super().as_super().get().iterated(slf.py(), Self::receive(slf, None))
    }

    /// Confirms a content, or all up to it.
    #[pyo3(signature = (content, *, multiple))]
    fn confirm(&self, content: &PyContent, multiple: bool) -> PyResult<()> {
        self.mine(content)?.settle(true, multiple, false)
    }

    /// Rejects a content, or all up to it.
    #[pyo3(signature = (content, *, multiple, recycle))]
    fn reject(&self, content: &PyContent, multiple: bool, recycle: bool) -> PyResult<()> {
        self.mine(content)?.settle(false, multiple, recycle)
    }

    /// Asks it to end. A reader gives back what it has: only what was taken here counts as delivered.
    fn close(slf: &Bound<'_, Self>, grace_s: f64) -> PyResult<()> {
        let this = slf.get();
        let seen = this.seen.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((connection, sequence)) = seen {
            let reader = &*this.reader.handle;
            settle(reader, reader.life(), FlowVerb::Seen { connection, sequence });
        }
        slf.as_super().as_super().get().close(grace_s)
    }

    /// Answers a question: a new lease was granted.
    fn granted(&self, token: u64, endpoint: String, lease: String) {
        self.reader.handle.ask(FlowVerb::Granted(Token(token), Grant { endpoint, lease }));
    }

    /// Answers a question: no new lease was granted; with a reason, none will be.
    #[pyo3(signature = (token, reason))]
    fn denied(&self, token: u64, reason: Option<String>) {
        let denial = reason.map_or(Denial::Later, Denial::Never);
        self.reader.handle.ask(FlowVerb::Denied(Token(token), denial));
    }

    /// Counters, by name.
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (this, py) = (slf.get(), slf.py());
        let snapshot = py.detach(|| this.reader.handle.stats());
        let stats = counters(py, &snapshot.machine)?;
        slf.as_super().as_super().get().add_to(&stats, &snapshot)?;
        Ok(stats)
    }

    /// Seconds from sending a content until it was settled: those of the last ten thousand.
    fn times(&self, py: Python<'_>) -> Vec<f64> {
        py.detach(|| self.reader.handle.stats()).machine.times.iter().map(std::time::Duration::as_secs_f64).collect()
    }

    /// How many contents were rejected so far.
    #[getter]
    fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// How many contents were rejected, and the numbers of those beyond the first `known`, in the order they were sent: the
    /// last hundred thousand.
    fn rejects(&self, py: Python<'_>, known: u64) -> (u64, Vec<u64>) {
        let stats = py.detach(|| self.reader.handle.stats()).machine;
        let new = usize::try_from(stats.rejected.saturating_sub(known)).unwrap_or(usize::MAX);
        let skipped = stats.rejects.len().saturating_sub(new);
        (stats.rejected, stats.rejects.iter().skip(skipped).copied().collect())
    }
}

/// The notice of an event, `(kind, *details)`; others are handed out or counted instead.
fn notice(py: Python<'_>, event: FlowEvent) -> PyResult<Bound<'_, PyTuple>> {
    match event {
        FlowEvent::Wanted(token) => ("wanted", token.0).into_pyobject(py),
        FlowEvent::Refused { resource, status } => ("summon_refused", resource, status).into_pyobject(py),
        FlowEvent::Failed(reason) => ("lease_failed", reason).into_pyobject(py),
        FlowEvent::Lost => ("lost",).into_pyobject(py),
        FlowEvent::Found => ("found",).into_pyobject(py),
        FlowEvent::Dropped(dropped) => self::dropped(py, "mtl", &dropped),
        FlowEvent::Connection(what) => connection(what).into_pyobject(py),
        FlowEvent::Ended(..) | FlowEvent::Content { .. } | FlowEvent::Rejected(_) => Ok(PyTuple::empty(py)),
    }
}
