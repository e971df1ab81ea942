//! The data connections of a client.

use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyString, PyTuple};
use trunkline_engine::{Answering, Aside, Handle, Notices, Offered, Replies, Running, Snapshot};
use trunkline_wire::mtl::data::Layout;
use trunkline_wire::mtl::flow::{
    Asked, Denial, Flow, FlowEvent, FlowOutcome, FlowSettings, FlowStats, FlowVerb, Grant,
};
use trunkline_wire::question::Token;
use trunkline_wire::{CallId, FRAME_COST, Frames, Framing, Nanos, SocketOptions};

use super::message::need_short;
use super::server::pings;
use super::table;
use crate::caller::{Called, Caller, Outgoing, Reply};
use crate::counters::{add_connected, counters};
use crate::errors::{ClosedError, LeaseRefusedError, LocalProtocolError, PeerLostError, RemoteProtocolError, dropped};
use crate::fields;
use crate::frames::{self, counted, within};
use crate::machine::{Given as Said, Make, Spoken, VerbQueue, maker, no_verb};
use crate::names::name;
use crate::notices::PyNotices;
use crate::reader::{Look, Next, Reader};
use crate::role::{Role, RoleOptions, connection, seconds, start};

/// The engine of a data connection.
#[pyclass(frozen, extends = Caller, module = "trunkline._native.mtl", name = "Flow")]
pub(crate) struct PyFlow {
    reader: Reader<Flow>,
    /// The connection and the sequence of the last content taken.
    seen: Mutex<Option<(u32, u64)>>,
    notices: Py<PyNotices>,
    questions: Py<PyNotices>,
    resources: Vec<String>,
    max_message_bytes: u64,
}

/// A content on its way to the engine.
#[pyclass(module = "trunkline._native.mtl", name = "Outbound")]
pub(crate) struct PyOutbound {
    verb: Option<FlowVerb>,
    bytes: usize,
}

impl Called for Flow {
    fn reply(py: Python<'_>, outcome: FlowOutcome) -> PyResult<Reply> {
        Ok(match outcome {
            FlowOutcome::Done => Reply::Given(py.None()),
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
    reader: Arc<dyn Settles>,
    connection: u32,
    frames: Frames,
    layout: Layout,
    only: Option<Arc<str>>,
}

/// Where contents are confirmed and rejected.
pub(crate) trait Settles: Send + Sync {
    /// Takes it, unless the reader is closed; never waits.
    fn settle(&self, verb: FlowVerb) -> bool;
}

impl Settles for Handle<Flow> {
    fn settle(&self, verb: FlowVerb) -> bool {
        // A child after fork has no connection, and asking there would wait for locks that are never released.
        let is_open = self.is_ours() && !self.is_closing();
        if is_open {
            self.ask(verb);
        }
        is_open
    }
}

impl Settles for VerbQueue {
    fn settle(&self, verb: FlowVerb) -> bool {
        self.put(verb);
        true
    }
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
        let is_taken = self.reader.settle(if is_safe {
            FlowVerb::Confirm { connection, sequence, multiple }
        } else {
            FlowVerb::Reject { connection, sequence, multiple, recycle }
        });
        if is_taken {
            Ok(())
        } else {
            Err(ClosedError::new_err("the reader is closed: its contents were returned to the server"))
        }
    }
}

impl PyFlow {
    fn give(&self, outbound: &mut PyOutbound) -> bool {
        let Some(verb) = outbound.verb.take() else { return true };
        match self.reader.handle.offer(verb, outbound.bytes) {
            Offered::Taken => true,
            Offered::Full(verb) | Offered::Over(verb) => {
                outbound.verb = Some(verb);
                false
            }
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
                    return Ok(Some(PyContent { reader, connection, frames, layout, only }));
                }
                // Notices are read separately, and calls have their own outcomes.
                Next::Event(_) | Next::Trouble(_) => {}
                Next::Nothing => return Ok(None),
                Next::Over => return Err(slf.as_super().as_super().get().ended()),
            }
        }
    }
}

/// The request for a resource, by its name.
fn asked(name: &str) -> PyResult<Asked> {
    match name {
        "open" => Ok(Asked::Open),
        "summon" => Ok(Asked::Summon),
        "dismiss" => Ok(Asked::Dismiss),
        other => Err(PyValueError::new_err(format!("{other:?} cannot be asked"))),
    }
}

/// The settings of a data connection beyond those of every role.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Given {
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

#[pymethods]
impl PyFlow {
    #[new]
    fn new(
        py: Python<'_>,
        mut options: RoleOptions,
        given: Given,
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
        let sink = Aside::new(Arc::clone(&notices), sink);
        let machine = Flow::new(Nanos::default(), settings);
        let (handle, role) = start(py, machine, sink, options, Framing::MtlData, who)?;
        let caller = Caller::new(handle.clone(), replies);
        let flow = Self {
            notices: Py::new(py, PyNotices::new(handle.clone(), notices, notice))?,
            questions: Py::new(py, PyNotices::new(handle.clone(), questions, notice))?,
            reader: Reader::new(handle),
            seen: Mutex::default(),
            resources,
            max_message_bytes,
        };
        Ok(PyClassInitializer::from(role).add_subclass(caller).add_subclass(flow))
    }

    /// The notices, to be logged.
    #[getter]
    fn told(&self, py: Python<'_>) -> Py<PyNotices> {
        self.notices.clone_ref(py)
    }

    /// The questions for a new lease, to be answered.
    #[getter]
    fn asked(&self, py: Python<'_>) -> Py<PyNotices> {
        self.questions.clone_ref(py)
    }

    /// A call that redeems the lease ("open"), or summons or dismisses a resource.
    fn call(slf: &Bound<'_, Self>, asked: &str, resource: String, timeout_s: Option<f64>) -> PyResult<Outgoing> {
        let asked = self::asked(asked)?;
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
        let (verb, bytes) = sending(resource, properties, body)?;
        if let FlowVerb::Send { properties, body, .. } = &verb {
            within([properties, body].into_iter(), self.max_message_bytes)?;
        }
        Ok(PyOutbound { verb: Some(verb), bytes: bytes + 2 * FRAME_COST })
    }

    /// Counts contents without confirmation as pending until they are known to have arrived; sent like a content.
    #[staticmethod]
    fn flushing() -> PyOutbound {
        PyOutbound { verb: Some(FlowVerb::Flush), bytes: 0 }
    }

    /// Hands a content to the engine; false when there is no room.
    fn offer_outbound(slf: &Bound<'_, Self>, outbound: &mut PyOutbound) -> PyResult<bool> {
        slf.as_super().as_super().get().offer(|| slf.get().give(outbound))
    }

    /// Hands a content to the engine, waiting for room.
    #[pyo3(signature = (outbound, timeout_s = None))]
    fn put_outbound(slf: &Bound<'_, Self>, outbound: &mut PyOutbound, timeout_s: Option<f64>) -> PyResult<()> {
        slf.as_super().as_super().get().put(slf.py(), timeout_s, || slf.get().give(outbound))
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
            this.reader.handle.settle(FlowVerb::Seen { connection, sequence });
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

    /// The numbers of the rejected contents, in the order they were sent: the last hundred thousand.
    fn rejects(&self, py: Python<'_>) -> Vec<u64> {
        py.detach(|| self.reader.handle.stats()).machine.rejects.iter().copied().collect()
    }
}

impl Given {
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

impl PyFlow {
    fn mine<'a>(&self, content: &'a PyContent) -> PyResult<&'a PyContent> {
        if ptr::addr_eq(Arc::as_ptr(&content.reader), Arc::as_ptr(&self.reader.handle)) {
            Ok(content)
        } else {
            Err(LocalProtocolError::new_err("this content was received by another reader"))
        }
    }
}

/// The verb that sends a content, and its bytes.
fn sending(resource: String, properties: &Bound<'_, PyAny>, body: &Bound<'_, PyAny>) -> PyResult<(FlowVerb, usize)> {
    let properties = table::from_python("properties", properties)?;
    let body = frames::frame("body", body)?;
    let bytes = properties.len() + body.len();
    Ok((FlowVerb::Send { resource, properties, body }, bytes))
}

/// The notice of an event: calls have their own outcomes, and contents are handed out.
fn notice(py: Python<'_>, event: FlowEvent) -> PyResult<Bound<'_, PyTuple>> {
    match event {
        FlowEvent::Wanted(token) => ("wanted", token.0).into_pyobject(py),
        FlowEvent::Refused { resource, status } => ("summon_refused", resource, status).into_pyobject(py),
        FlowEvent::Failed(reason) => ("lease_failed", reason).into_pyobject(py),
        FlowEvent::Lost => ("lost",).into_pyobject(py),
        FlowEvent::Found => ("found",).into_pyobject(py),
        FlowEvent::Ended(call, _) => ("ended", call.0).into_pyobject(py),
        FlowEvent::Content { layout, .. } => ("content", layout.sequence).into_pyobject(py),
        FlowEvent::Dropped(dropped) => self::dropped(py, "mtl", &dropped),
        FlowEvent::Connection(what) => connection(what).into_pyobject(py),
    }
}

pub(crate) fn flow_machine(said: &Said<'_>) -> PyResult<Make> {
    let settings = said.whole::<Given>()?.settings(SocketOptions::default())?;
    Ok(maker(move |now, _| Flow::new(now, settings.clone())))
}

impl Spoken for Flow {
    fn verb(name: &str, said: &Said<'_>) -> PyResult<FlowVerb> {
        let token = || said.extract("token").map(Token);
        let call = || said.extract("call").map(CallId);
        let about = |multiple: bool| {
            let content = said.any("content")?;
            let content = content.cast::<PyContent>()?.get();
            PyResult::Ok((content.connection, content.layout.sequence, multiple))
        };
        match name {
            "call" => {
                let timeout_s: Option<f64> = said.optional("timeout_s")?.map(|time| time.extract()).transpose()?;
                Ok(FlowVerb::Call {
                    call: call()?,
                    asked: asked(&said.extract::<String>("asked")?)?,
                    resource: said.extract("resource")?,
                    timeout: timeout_s.map(|timeout| seconds("timeout_s", timeout)).transpose()?,
                })
            }
            "cancel" => call().map(FlowVerb::Cancel),
            "send" => {
                let resource: Option<String> = said.extract("resource")?;
                sending(resource.unwrap_or_default(), &said.any("properties")?, &said.any("body")?)
                    .map(|(verb, _)| verb)
            }
            "flush" => Ok(FlowVerb::Flush),
            "confirm" => {
                let (connection, sequence, multiple) = about(said.extract("multiple")?)?;
                Ok(FlowVerb::Confirm { connection, sequence, multiple })
            }
            "reject" => {
                let (connection, sequence, multiple) = about(said.extract("multiple")?)?;
                Ok(FlowVerb::Reject { connection, sequence, multiple, recycle: said.extract("recycle")? })
            }
            "granted" => {
                let grant = Grant { endpoint: said.extract("endpoint")?, lease: said.extract("lease")? };
                Ok(FlowVerb::Granted(token()?, grant))
            }
            "denied" => {
                let reason: Option<String> = said.extract("reason")?;
                Ok(FlowVerb::Denied(token()?, reason.map_or(Denial::Later, Denial::Never)))
            }
            other => no_verb(other),
        }
    }

    fn notice<'py>(py: Python<'py>, event: FlowEvent, verbs: &Arc<VerbQueue>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let notice = if let FlowEvent::Content { connection, frames, layout, only } = event {
            let reader = Arc::clone(verbs) as Arc<dyn Settles>;
            ("content", PyContent { reader, connection, frames, layout, only }).into_pyobject(py)
        } else if let FlowEvent::Ended(call, outcome) = event {
            match Self::reply(py, outcome)? {
                Reply::Given(_) => ("done", call.0).into_pyobject(py),
                Reply::Failed(error) => ("refused", call.0, error.into_value(py)).into_pyobject(py),
                Reply::TimedOut => ("timed_out", call.0).into_pyobject(py),
                Reply::Unanswered => ("unanswered", call.0).into_pyobject(py),
            }
        } else {
            notice(py, event)
        };
        notice.map(Some)
    }

    fn counters<'py>(py: Python<'py>, stats: &FlowStats) -> PyResult<Bound<'py, PyDict>> {
        let counted = counters(py, stats)?;
        add_connected(&counted, &Snapshot::<()>::default())?;
        counted.set_item("rejects", stats.rejects.iter().copied().collect::<Vec<_>>())?;
        Ok(counted)
    }
}
