//! What all running roles share, seen from Python.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::c_int;
use std::iter;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyTuple};
use trunkline_capture::{Access, LowSpace};
use trunkline_engine::libzmq::{Connections, Context, ContextPtr, LibzmqTransport, SocketPtr};
use trunkline_engine::zeromq::ZeromqTransport;
use trunkline_engine::zmtp::{Admission, ZmtpSettings, ZmtpTransport};
use trunkline_engine::{
    Bounds, Capture, CaptureOverflow, End, Guard, Handle, Hold, Recording, Running, Settings, Signal, Sink, StartError,
    Trouble, join_orphans,
};
use trunkline_wire::question::Token;
use trunkline_wire::zap::{Allowed, Candidate, Rule, ZapEvent};
use trunkline_wire::{Connection, Curve, Framing, Machine, Nanos, OptionValue, Remote, ServerNotice, SocketOptions};
use zeroize::Zeroizing;

use crate::errors::{ClosedError, LocalProtocolError, TimeoutError, capture_error, ended, start_error};
use crate::frames::counted;
use crate::transport::{Chosen, Missing, libzmq, sodium};
use crate::world::{Clock, simulated};

/// Waits check for signals this often; else a signal handler that ran just before a wait would be missed.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// How long an engine that is to end at once may take.
const PARTING: Duration = Duration::from_secs(1);

static ROLES: Mutex<Vec<Weak<dyn Running>>> = Mutex::new(vec![]);

/// The part of a role that does not depend on its protocol.
#[pyclass(frozen, subclass, weakref, module = "trunkline._native")]
pub(crate) struct Role {
    inner: Arc<dyn Running>,
    guard: Option<Arc<Guard>>,
    recording: Option<Recording>,
    /// The implementation of ZeroMQ.
    transport: Option<&'static str>,
    /// What our own transport lacked for it.
    missing: Option<Missing>,
    /// The clock of a simulated role, which its waits advance.
    pub(crate) clock: Option<Arc<Clock>>,
}

/// CURVE servers in contexts that they share: whether each has an allow-list.
static ADMISSIONS: Mutex<BTreeMap<ContextPtr, Vec<bool>>> = Mutex::new(BTreeMap::new());

/// A CURVE server in a context that may be shared. A context has one authenticator, which does not know sockets: its
/// allow-list would apply to all servers there.
struct Admitted {
    context: ContextPtr,
    is_listed: bool,
}

impl Admitted {
    fn claim(context: ContextPtr, is_listed: bool) -> PyResult<Self> {
        let mut all = ADMISSIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let servers = all.entry(context).or_default();
        if !servers.is_empty() && (is_listed || servers.contains(&true)) {
            return Err(LocalProtocolError::new_err(
                "an allow-list would be in force for all CURVE servers in one context=: give each a context of its own, or leave context= out",
            ));
        }
        servers.push(is_listed);
        Ok(Self { context, is_listed })
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut all = ADMISSIONS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(servers) = all.get_mut(&self.context) {
            if let Some(at) = servers.iter().position(|is_listed| *is_listed == self.is_listed) {
                servers.swap_remove(at);
            }
            if servers.is_empty() {
                all.remove(&self.context);
            }
        }
    }
}

/// Ends a guard once the role it guarded has ended.
struct Guarding(Arc<Guard>);

impl Drop for Guarding {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Role {
    /// A role that was started, over a transport without ZeroMQ.
    pub(crate) fn running(inner: Arc<dyn Running>) -> Self {
        let mut roles = ROLES.lock().unwrap_or_else(PoisonError::into_inner);
        roles.retain(|role| role.strong_count() > 0);
        roles.push(Arc::downgrade(&inner));
        Self { inner, guard: None, recording: None, transport: None, missing: None, clock: None }
    }

    /// Adds a role to the simulation of an entry.
    pub(crate) fn simulated<M: Machine + Send + 'static>(
        entry: &Bound<'_, PyAny>,
        make: impl Fn(Nanos, [u8; 32]) -> M + Send + 'static,
        sink: impl Sink<M>,
        name: &'static str,
        bounds: Bounds,
    ) -> PyResult<(Arc<dyn Hold<M>>, Self)> {
        let (handle, clock) = simulated(entry, make, sink, name, bounds)?;
        let role = Self {
            inner: handle.clone(),
            guard: None,
            recording: None,
            transport: Some("simulation"),
            missing: None,
            clock: Some(Arc::new(clock)),
        };
        Ok((handle, role))
    }

    /// CURVE clients that were refused since the start.
    pub(crate) fn refused(&self, py: Python<'_>) -> u64 {
        self.guard.as_ref().map_or(0, |guard| py.detach(|| guard.refused()))
    }

    /// Its recording, for other roles that are part of it.
    pub(crate) fn recorded(&self) -> Option<Recorded> {
        self.recording.clone().map(Recorded::With)
    }

    /// Raises when the role belongs to the process this one was forked from.
    pub(crate) fn ours(&self) -> PyResult<&dyn Running> {
        if self.inner.is_ours() { Ok(&*self.inner) } else { Err(ended(self.inner.name(), None)) }
    }

    /// Why the role is over, as an exception.
    pub(crate) fn ended(&self) -> PyErr {
        ended(self.inner.name(), self.inner.end().as_ref())
    }

    /// Raises why the role is over, unless it was closed; never in a child after fork.
    pub(crate) fn failure(&self) -> PyResult<()> {
        if !self.inner.is_ours() {
            return Ok(());
        }
        match self.inner.end() {
            None | Some(End::Closed) => Ok(()),
            end => Err(ended(self.inner.name(), end.as_ref())),
        }
    }

    /// After an interrupt: a role that is closing stops waiting. Else the wait would be put off to the end of the
    /// process. A simulation has no such end.
    pub(crate) fn give_up(&self, py: Python<'_>) {
        if self.clock.is_none() && self.inner.is_closing() {
            self.inner.close(Duration::ZERO);
            py.detach(|| self.inner.changes().wait(|| self.inner.is_over(), Some(PARTING)));
        }
    }

    /// Offers something once; false when there is no room.
    pub(crate) fn offer(&self, offer: impl FnOnce() -> bool) -> PyResult<bool> {
        self.ours()?;
        if offer() {
            return Ok(true);
        }
        if self.ours()?.is_over() { Err(self.ended()) } else { Ok(false) }
    }

    /// Offers something until there is room.
    pub(crate) fn put(&self, py: Python<'_>, timeout_s: Option<f64>, mut offer: impl FnMut() -> bool) -> PyResult<()> {
        if self.offer(&mut offer)? {
            return Ok(());
        }
        let deadline = self.deadline(timeout_s)?;
        let room = |role: &dyn Running| role.has_room() || role.is_over();
        while self.wait_until(py, self.inner.changes(), deadline, room)? {
            if self.offer(&mut offer)? {
                return Ok(());
            }
        }
        Err(timed_out("the queue had no room", timeout_s))
    }

    /// Takes what the role has to give, once there is something; `what` names what did not come in time.
    #[inline]
    pub(crate) fn receive<T>(
        &self,
        py: Python<'_>,
        timeout_s: Option<f64>,
        what: &str,
        mut take: impl FnMut() -> PyResult<Option<T>>,
    ) -> PyResult<T> {
        let deadline = self.deadline(timeout_s)?;
        loop {
            self.ours()?;
            if let Some(taken) = take()? {
                return Ok(taken);
            }
            py.check_signals()?;
            // Even if more has come in meanwhile: it may be notices only. In a simulation time waits for what is due.
            let late = self.clock.is_none() && deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let some = |role: &dyn Running| role.has_events() || role.is_over();
            if late || !self.wait_until(py, self.inner.events(), deadline, some)? {
                return Err(timed_out(what, timeout_s));
            }
        }
    }

    /// The result of an iteration for something received: it ends when the role is closed.
    #[inline]
    pub(crate) fn iterated<T>(&self, py: Python<'_>, received: PyResult<T>) -> PyResult<Option<T>> {
        match received {
            Ok(received) => Ok(Some(received)),
            Err(error) if error.is_instance_of::<ClosedError>(py) => self.failure().map(|()| None),
            Err(error) => Err(error),
        }
    }

    /// When a wait ends.
    pub(crate) fn deadline(&self, timeout_s: Option<f64>) -> PyResult<Option<Instant>> {
        let now = || self.clock.as_ref().map_or_else(Instant::now, |clock| clock.now());
        // A wait too long to be a point in time has no end.
        timeout_s.map_or(Ok(None), |timeout| Ok(now().checked_add(seconds("timeout_s", timeout)?)))
    }

    /// Waits a little for what another thread gives, or advances the clock of a simulation meanwhile.
    pub(crate) fn pause<T: Send>(
        &self,
        py: Python<'_>,
        give_up: impl FnOnce(),
        wait: impl FnOnce(Duration) -> Option<T> + Send,
    ) -> PyResult<Option<T>> {
        if let Some(clock) = &self.clock {
            let given = wait(Duration::ZERO);
            if given.is_none() {
                clock.step(py, None)?;
            }
            return Ok(given);
        }
        let given = py.detach(|| wait(SLICE));
        if given.is_none() {
            py.check_signals().inspect_err(|_| give_up())?;
        }
        Ok(given)
    }

    /// Waits without the GIL, and checks signals. False when the time is up.
    pub(crate) fn wait_until(
        &self,
        py: Python<'_>,
        signal: &Signal,
        deadline: Option<Instant>,
        ready: impl Fn(&dyn Running) -> bool + Sync,
    ) -> PyResult<bool> {
        let role = self.ours()?;
        if let Some(clock) = &self.clock {
            while !ready(role) {
                if !clock.step(py, deadline)? {
                    return Ok(ready(role));
                }
            }
            return Ok(true);
        }
        loop {
            if ready(role) {
                return Ok(true);
            }
            let left = deadline.map_or(SLICE, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(false);
            }
            py.detach(|| signal.wait(|| ready(role), Some(left.min(SLICE))));
            py.check_signals()?;
        }
    }
}

#[pymethods]
impl Role {
    /// The endpoints the role listens on, ports filled in.
    #[getter]
    fn endpoints(&self) -> Vec<String> {
        self.inner.endpoints()
    }

    /// The implementation of ZeroMQ that it runs over; none of a role without.
    #[getter]
    pub(crate) fn transport(&self) -> Option<&'static str> {
        self.transport
    }

    /// What kept `auto` from taking our own transport: the number of a socket option, an endpoint, or libsodium.
    #[getter]
    fn missing(&self) -> Option<&Missing> {
        self.missing.as_ref()
    }

    /// The admission of clients, if there is an allow-list.
    #[getter]
    fn guard(&self, py: Python<'_>) -> PyResult<Option<Py<PyGuard>>> {
        let Some(guard) = self.guard.clone() else { return Ok(None) };
        let role = Self {
            inner: guard.handle().clone(),
            guard: None,
            recording: None,
            transport: self.transport,
            missing: None,
            clock: None,
        };
        Py::new(py, PyClassInitializer::from(role).add_subclass(PyGuard(guard))).map(Some)
    }

    /// The simulation's entry of a simulated role; None of a live one.
    #[getter]
    fn simulation<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.clock.as_ref()?.entry(py)
    }

    /// Whether it ended with messages that the transport had taken and could not send in time.
    #[getter]
    fn unsent(&self) -> bool {
        self.inner.is_unsent()
    }

    /// Whether the role is over.
    #[getter]
    fn closed(&self) -> bool {
        !self.inner.is_ours() || self.inner.is_over()
    }

    /// Whether the role was asked to end, or is over.
    #[getter]
    fn closing(&self) -> bool {
        self.closed() || self.inner.is_closing()
    }

    /// The descriptor that is readable when there are events; with `changes`, when there is any other change.
    #[pyo3(signature = (*, changes = false))]
    fn fileno(&self, changes: bool) -> PyResult<c_int> {
        let role = self.ours()?;
        Ok(if changes { role.changes() } else { role.events() }.raw_fd())
    }

    /// Announces a wait on `fileno`; true when there is no reason to wait.
    fn arm(&self) -> PyResult<bool> {
        let role = self.ours()?;
        role.events().arm();
        Ok(role.has_events() || role.is_over())
    }

    /// Ends a wait on `fileno`.
    fn disarm(&self) -> PyResult<()> {
        self.ours()?.events().disarm(true);
        Ok(())
    }

    /// Announces a wait on `fileno(changes=True)`.
    fn arm_changes(&self) -> PyResult<()> {
        self.ours()?.changes().arm();
        Ok(())
    }

    /// Ends a wait on `fileno(changes=True)`.
    fn disarm_changes(&self) -> PyResult<()> {
        self.ours()?.changes().disarm(true);
        Ok(())
    }

    /// Asks the role to end; it may take so many seconds to do so in an orderly way. A child after fork has no role to
    /// end.
    pub(crate) fn close(&self, grace_s: f64) -> PyResult<()> {
        self.inner.close(seconds("grace_s", grace_s)?);
        Ok(())
    }

    /// Waits until the role has ended; false when the time is up.
    #[pyo3(signature = (timeout_s = None))]
    fn join(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<bool> {
        let deadline = self.deadline(timeout_s)?;
        if self.inner.is_closing() && !self.inner.is_ours() {
            return Ok(true);
        }
        let over = self.wait_until(py, self.inner.changes(), deadline, |role| role.is_over());
        let over = over.inspect_err(|_| self.give_up(py))?;
        if over {
            py.detach(|| self.inner.join());
        }
        Ok(over)
    }

    /// Raises why the role ended, unless it was closed.
    fn raise_failure(&self) -> PyResult<()> {
        self.failure()
    }

    /// Raises `ClosedError`, or what ended the role, if it is over.
    pub(crate) fn check_open(&self) -> PyResult<()> {
        if self.ours()?.is_over() { Err(self.ended()) } else { Ok(()) }
    }

    /// Whether a message would find room.
    fn has_room(&self) -> PyResult<bool> {
        Ok(self.ours()?.has_room())
    }

    /// Whether nothing is pending to be sent.
    fn is_drained(&self) -> PyResult<bool> {
        Ok(self.ours()?.is_drained())
    }

    /// Waits until nothing is pending to be sent; false when the time is up.
    #[pyo3(signature = (timeout_s = None))]
    fn wait_drained(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<bool> {
        let drained = |role: &dyn Running| role.is_drained() || role.is_over();
        if !self.wait_until(py, self.inner.changes(), self.deadline(timeout_s)?, drained)? {
            return Ok(false);
        }
        if self.ours()?.is_drained() { Ok(true) } else { Err(self.ended()) }
    }

    /// Asks for the capture to be safe on disk, with `publish` also as Parquet; gives a ticket.
    fn ask_flush(&self, publish: bool) -> PyResult<u64> {
        Ok(self.ours()?.flush(publish))
    }

    /// Whether a flush is done.
    fn flushed(&self, ticket: u64) -> PyResult<bool> {
        Ok(self.ours()?.flushed(ticket))
    }

    /// Waits for a flush; false when the time is up.
    #[pyo3(signature = (ticket, timeout_s = None))]
    fn wait_flushed(&self, py: Python<'_>, ticket: u64, timeout_s: Option<f64>) -> PyResult<bool> {
        let flushed = |role: &dyn Running| role.flushed(ticket) || role.is_over();
        if !self.wait_until(py, self.inner.changes(), self.deadline(timeout_s)?, flushed)? {
            return Ok(false);
        }
        if self.ours()?.flushed(ticket) { Ok(true) } else { Err(self.ended()) }
    }

    /// Messages taken in since the start.
    #[getter]
    fn progress(&self) -> u64 {
        self.inner.progress()
    }

    /// Wakes waits for changes when so many messages have been taken in; call it before each wait.
    fn await_progress(&self, count: u64) -> PyResult<()> {
        self.ours()?.await_progress(count);
        Ok(())
    }

    /// Waits for so many messages, in all since the start; false when the time is up.
    #[pyo3(signature = (count, timeout_s = None))]
    fn wait_progress(&self, py: Python<'_>, count: u64, timeout_s: Option<f64>) -> PyResult<bool> {
        let reached = |role: &dyn Running| {
            role.await_progress(count);
            role.progress() >= count || role.is_over()
        };
        self.wait_until(py, self.inner.changes(), self.deadline(timeout_s)?, reached)?;
        Ok(self.ours()?.progress() >= count)
    }
}

/// The admission of CURVE clients.
#[pyclass(frozen, extends = Role, module = "trunkline._native", name = "Guard")]
pub(crate) struct PyGuard(Arc<Guard>);

#[pymethods]
impl PyGuard {
    /// Admits the holders of these keys from now on, each by its name.
    fn allow(&self, allowed: Allowed) {
        self.0.allow(allowed);
    }

    /// Asks about the connected clients again, and cuts off those that are refused.
    fn ask_again(&self) {
        self.0.ask_again();
    }

    /// Answers a question: with the client's name if it is admitted.
    #[pyo3(signature = (token, name))]
    fn answer(&self, token: u64, name: Option<String>) {
        self.0.answer(Token(token), name);
    }

    /// Clients refused, and clients asked about, since the last call: the question's token or None, the key in Z85, and
    /// the address.
    fn read(&self) -> Vec<(Option<u64>, String, String)> {
        let shown = |event| match event {
            ZapEvent::Refused(Candidate { address, key }) => (None, key, address),
            ZapEvent::Question(Token(token), Candidate { address, key }) => (Some(token), key, address),
        };
        self.0.read().into_iter().map(shown).collect()
    }
}

/// Starts a role in a simulation, or over a transport. A simulated one may be made again, from the time and a seed.
pub(crate) fn run<M: Machine + Send + 'static>(
    py: Python<'_>,
    make: impl Fn(Nanos, [u8; 32]) -> M + Send + 'static,
    sink: impl Sink<M>,
    options: RoleOptions,
    framing: Framing,
    name: &'static str,
) -> PyResult<(Arc<dyn Hold<M>>, Role)> {
    let Some(entry) = options.simulation else {
        let (handle, role) = start(py, make(Nanos::default(), seed()?), sink, options, framing, name)?;
        return Ok((handle, role));
    };
    Role::simulated(entry.bind(py), make, sink, name, options.bounds)
}

/// Starts a role over the given transport, or over the one that suits.
fn start<M: Machine + Send + 'static>(
    py: Python<'_>,
    machine: M,
    sink: impl Sink<M>,
    options: RoleOptions,
    framing: Framing,
    name: &str,
) -> PyResult<(Arc<Handle<M>>, Role)> {
    let (transport, missing) = Chosen::of(&options)?;
    let RoleOptions {
        bounds,
        capture,
        overflow,
        grace,
        outbox_bytes,
        socket: SocketOptions { curve, max_message_bytes: message_bytes, .. },
        ..
    } = options;
    let is_owner = matches!(capture, Some(Recorded::In(..)));
    let recording = match capture {
        None => None,
        Some(Recorded::With(recording)) => Some(recording),
        Some(Recorded::In(directory, settings)) => {
            let opened = py.detach(|| Recording::open(&directory, settings));
            Some(opened.map_err(|error| capture_error(&error))?)
        }
    };
    let mut settings = Settings {
        bounds,
        sheds: None,
        outbox_bytes,
        capture: recording.clone().map(|recording| Capture { recording, is_owner, framing, overflow }),
        keep_alive: None,
        name: name.to_owned(),
        grace,
    };
    let RoleOptions { context, adopted, rule, keep_alive, max_connections, max_connections_per_host, .. } = options;
    let (handle, guard) = match transport {
        Chosen::Zmtp => {
            let admission = rule.as_ref().map(|_| Admission::new().map(Arc::new)).transpose();
            let admission = admission.map_err(|error| start_error(StartError::Transport(error)))?;
            let guard = admission.clone().zip(rule).map(|(admission, rule)| Guard::asked_by(admission, rule));
            let guard = guard.transpose().map_err(start_error)?.map(Arc::new);
            settings.keep_alive = Some(Box::new((guard.clone().map(Guarding), keep_alive)));
            let crypto = curve.as_ref().and_then(|_| sodium());
            // One message of the largest size, and as many bytes of others as the queue may hold.
            let inbox_bytes =
                usize::try_from(message_bytes.unwrap_or(1 << 30)).unwrap_or(usize::MAX).saturating_add(bounds.bytes);
            let given = ZmtpSettings {
                max_connections,
                max_connections_per_host,
                outbox_bytes,
                inbox_bytes,
                crypto,
                admission,
            };
            (py.detach(|| Handle::start(machine, || ZmtpTransport::new(given), sink, settings)), guard)
        }
        Chosen::Libzmq => {
            let zmq = libzmq().map_err(|error| start_error(StartError::Transport(error)))?;
            let connections = Connections::new(max_connections, max_connections_per_host);
            let admission = match (context, &curve) {
                (Some(context), Some(Curve::Server { .. })) => Some(Admitted::claim(context, rule.is_some())?),
                _ => None,
            };
            let context = context.map_or_else(|| Context::new(zmq), |context| Ok(Context::Borrowed(context)));
            let context = context.map_err(|error| start_error(StartError::Transport(error)))?;
            let guard = rule.map(|rule| py.detach(|| Guard::start(zmq, context, rule)).map(Arc::new)).transpose();
            let guard = guard.map_err(start_error)?;
            settings.keep_alive = Some(Box::new((guard.clone().map(Guarding), admission, keep_alive)));
            let transport = move || Ok(LibzmqTransport::new(zmq, context, adopted, connections));
            (py.detach(|| Handle::start(machine, transport, sink, settings)), guard)
        }
        Chosen::Zeromq => {
            if rule.is_some() {
                return Err(LocalProtocolError::new_err(
                    "this transport has no ZAP and therefore no allow-list: use libzmq",
                ));
            }
            (py.detach(|| Handle::start(machine, ZeromqTransport::new, sink, settings)), None)
        }
    };
    let handle = Arc::new(handle.map_err(start_error)?);
    let role = Role::running(handle.clone());
    Ok((handle, Role { guard, recording, transport: Some(transport.name()), missing, ..role }))
}

/// The notices of a role since the last call, each as `notice` makes it, and the events of its capture.
pub(crate) fn notices<'py, M: Machine + Send + 'static>(
    py: Python<'py>,
    handle: &dyn Hold<M>,
    notice: impl Fn(Python<'py>, M::Event) -> PyResult<Bound<'py, PyTuple>>,
) -> PyResult<Vec<Bound<'py, PyTuple>>> {
    let mut events = VecDeque::new();
    handle.read(&mut events);
    let events = events.into_iter().map(|event| notice(py, event));
    let troubles = iter::from_fn(|| handle.read_trouble()).map(|what| trouble(what).into_pyobject(py));
    events.chain(troubles).collect()
}

/// A change of a connection: the kind of notice, the endpoint, and its peer if that differs, or why.
pub(crate) fn connection(connection: Connection) -> (&'static str, String, String) {
    match connection {
        Connection::Made(Remote { endpoint, address }) => ("connected", endpoint, address.unwrap_or_default()),
        Connection::Lost(Remote { endpoint, address }) => ("disconnected", endpoint, address.unwrap_or_default()),
        Connection::Failed { endpoint, reason } => ("failed", endpoint, reason),
        Connection::Unreachable { endpoint, reason } => ("unreachable", endpoint, reason),
        Connection::Server(notice) => match notice {
            ServerNotice::Used(endpoint) => ("used", endpoint, String::new()),
            ServerNotice::Left => ("left", String::new(), String::new()),
            ServerNotice::Denied { endpoint, reason } => ("denied", endpoint, reason),
            ServerNotice::Forbidden(words) => ("refused", words, String::new()),
            ServerNotice::MaxPayload(bytes) => ("max_payload", bytes.to_string(), String::new()),
            ServerNotice::Unsent(reason) => ("unsent", reason, String::new()),
        },
    }
}

/// An event of a capture: the kind of notice, and words.
pub(crate) fn trouble(trouble: Trouble) -> (&'static str, String) {
    match trouble {
        Trouble::LowSpace(LowSpace { bytes, is_critical, .. }) => {
            let tenths = bytes / ((1 << 30) / 10);
            let text = format!("the disk of the capture has only {}.{} GiB left", tenths / 10, tenths % 10);
            (if is_critical { "critical" } else { "low_space" }, text)
        }
        Trouble::Losing => ("losing", "the capture cannot keep up: rows are lost, see stats.capture_lost".to_owned()),
        Trouble::Deleted(segments, unshipped) => {
            let deleted = format!("keep_bytes and keep_days: {} deleted", counted(segments, "segment"));
            if unshipped == 0 {
                ("deleted", deleted)
            } else {
                ("unshipped", format!("{deleted}, {unshipped} of them not shipped"))
            }
        }
        Trouble::RunsLetGo => {
            let text = "a run has lasted so long that keep_bytes and keep_days delete its rows before it ends";
            ("runs_let_go", text.to_owned())
        }
        Trouble::RunsUnfollowed => {
            let text = "more senders than runs can be followed for: those silent longest are no longer followed";
            ("runs_unfollowed", text.to_owned())
        }
        Trouble::Failed(reason) => ("capture", format!("continuing without the capture: {reason}")),
    }
}

/// Ends every role of this process, within the time its lingering takes. A signal whose handler raises ends the lingering.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) {
    let roles: Arc<[_]> = {
        let mut roles = ROLES.lock().unwrap_or_else(PoisonError::into_inner);
        roles.drain(..).filter_map(|role| role.upgrade()).filter(|role| role.is_ours()).collect()
    };
    for role in roles.iter() {
        role.close(role.grace());
    }
    let (report, ended) = mpsc::channel();
    let ended = Mutex::new(ended);
    let wait = |time| py.detach(|| ended.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(time));
    let lingering = Arc::clone(&roles);
    // In another thread: the waits below the engines do not check signals.
    thread::spawn(move || {
        for role in lingering.iter() {
            role.join();
        }
        drop(lingering);
        join_orphans();
        // The waiting thread may have given up.
        let _ = report.send(());
    });
    while wait(SLICE) == Err(mpsc::RecvTimeoutError::Timeout) {
        if py.check_signals().is_err() {
            for role in roles.iter() {
                role.close(Duration::ZERO);
            }
            let _ = wait(PARTING);
            return;
        }
    }
}

/// Where a role is recorded.
pub(crate) enum Recorded {
    /// In a capture of its own.
    In(PathBuf, trunkline_capture::Settings),
    /// In another role's capture.
    With(Recording),
}

/// The settings of a role, for all protocols.
pub(crate) struct RoleOptions {
    pub(crate) bind: Vec<String>,
    pub(crate) connect: Vec<String>,
    pub(crate) socket: SocketOptions,
    pub(crate) bounds: Bounds,
    pub(crate) capture: Option<Recorded>,
    pub(crate) overflow: CaptureOverflow,
    pub(crate) grace: Duration,
    pub(crate) outbox_bytes: usize,
    pub(crate) transport: Option<Chosen>,
    max_connections: Option<usize>,
    max_connections_per_host: Option<usize>,
    /// Whether any limit on peers differs from its default.
    pub(crate) has_limits: bool,
    pub(crate) context: Option<ContextPtr>,
    pub(crate) adopted: Vec<SocketPtr>,
    /// Python's entry of a simulated role.
    pub(crate) simulation: Option<Py<PyAny>>,
    /// The admission rule, if not every client is admitted.
    rule: Option<Rule>,
    keep_alive: Vec<Py<PyAny>>,
}

impl RoleOptions {
    /// Whether it has a socket or a context of the user.
    pub(crate) fn is_of_libzmq(&self) -> bool {
        self.context.is_some() || !self.adopted.is_empty()
    }
}

impl<'py> FromPyObject<'_, 'py> for RoleOptions {
    type Error = PyErr;

    /// From the dictionary that `trunkline._roles.options.native_options` makes.
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let options: HashMap<String, Bound<'py, PyAny>> = object.extract()?;
        let need = |name: &str| options.get(name).ok_or_else(|| PyTypeError::new_err(format!("{name} is missing")));
        let optional = |name: &str| options.get(name).filter(|value| !value.is_none());
        let mut socket = SocketOptions {
            max_message_bytes: Some(need("max_message_bytes")?.extract()?),
            max_message_frames: Some(need("max_message_frames")?.extract()?),
            max_handshake_bytes: Some(need("max_handshake_bytes")?.extract()?),
            ..SocketOptions::default()
        };
        if let Some(timeout) = optional("handshake_timeout_s") {
            socket.handshake_timeout = Some(seconds("handshake_timeout_s", timeout.extract()?)?);
        }
        if let Some(extra) = optional("options") {
            let extra: HashMap<i32, Bound<'py, PyAny>> = extra.extract()?;
            for (number, value) in extra {
                socket.extra.push((number, option_value(&value)?));
            }
        }
        socket.curve = match (optional("curve_secret"), optional("curve_server")) {
            (None, _) => None,
            (Some(secret), None) => Some(Curve::Server { secret: Zeroizing::new(secret.extract()?) }),
            (Some(secret), Some(server)) => Some(Curve::Client {
                public: need("curve_public")?.extract()?,
                secret: Zeroizing::new(secret.extract()?),
                server: server.extract()?,
            }),
        };
        let rule = match optional("allow") {
            None => None,
            Some(allow) if allow.is_callable() => Some(Rule::Asked),
            Some(allow) if allow.is_instance_of::<PyBool>() => Some(Rule::AnyKey),
            Some(allow) => Some(Rule::Listed(allow.extract()?)),
        };
        let capture = match optional("capture") {
            None => None,
            Some(path) => Some(Recorded::In(path.extract()?, capture_settings(&options)?)),
        };
        let overflow: Option<String> = optional("capture_overflow").map(PyAnyMethods::extract).transpose()?;
        let overflow = match overflow.as_deref() {
            None | Some("count") => CaptureOverflow::Count,
            Some("block") => CaptureOverflow::Block,
            Some("end") => CaptureOverflow::End,
            Some(other) => {
                let text = format!("capture_overflow must be 'count' or 'block', not {other:?}");
                return Err(PyValueError::new_err(text));
            }
        };
        let transport: Option<String> = optional("transport").map(PyAnyMethods::extract).transpose()?;
        let transport = transport.map_or(Ok(None), |name| Chosen::named(&name))?;
        let mut keep_alive = vec![];
        let mut adopted = vec![];
        let mut context = None;
        if let Some(address) = optional("context") {
            // SAFETY: the address is that of a pyzmq Context, which is kept alive below.
            let given = unsafe { ContextPtr::from_address(address.extract()?) };
            context = Some(given.ok_or_else(|| LocalProtocolError::new_err("the ZeroMQ context is closed"))?);
        }
        if let Some(address) = optional("socket") {
            // SAFETY: the address is that of a pyzmq socket, which is kept alive below and is ours to use.
            let socket = unsafe { SocketPtr::from_address(address.extract()?) };
            adopted.push(socket.ok_or_else(|| LocalProtocolError::new_err("the ZeroMQ socket is closed"))?);
        }
        if let Some(owners) = optional("keep_alive") {
            keep_alive = owners.extract()?;
        }
        Ok(Self {
            bind: need("bind")?.extract()?,
            connect: need("connect")?.extract()?,
            socket,
            bounds: Bounds { messages: need("queue_messages")?.extract()?, bytes: need("queue_bytes")?.extract()? },
            capture,
            overflow,
            outbox_bytes: need("outbox_bytes")?.extract()?,
            transport,
            max_connections: optional("max_connections").map(PyAnyMethods::extract).transpose()?,
            max_connections_per_host: optional("max_connections_per_host").map(PyAnyMethods::extract).transpose()?,
            has_limits: need("has_limits")?.extract()?,
            // The only role with its own grace names it so.
            grace: seconds("linger_s", need("grace_s")?.extract()?)?,
            context,
            adopted,
            simulation: optional("simulation").map(|entry| entry.clone().unbind()),
            rule,
            keep_alive,
        })
    }
}

pub(crate) fn capture_settings(options: &HashMap<String, Bound<'_, PyAny>>) -> PyResult<trunkline_capture::Settings> {
    let mut settings = trunkline_capture::Settings::default();
    if let Some(bytes) = options.get("segment_bytes").filter(|value| !value.is_none()) {
        settings.segment_bytes = bytes.extract()?;
    }
    if let Some(age) = options.get("segment_s").filter(|value| !value.is_none()) {
        settings.segment_age = seconds("segment_s", age.extract()?)?;
    }
    let given = |name: &str| options.get(name).filter(|value| !value.is_none());
    settings.keep.bytes = given("keep_bytes").map(PyAnyMethods::extract).transpose()?;
    settings.keep.age = given("keep_s").map(|age| seconds("keep_s", age.extract()?)).transpose()?;
    if let Some(private) = given("capture_private") {
        settings.access = if private.extract()? { Access::Private } else { Access::Umask };
    }
    if let Some(bytes) = given("warn_free_bytes") {
        settings.low_space_bytes = bytes.extract()?;
    }
    if let Some(bytes) = given("critical_free_bytes") {
        settings.critical_space_bytes = bytes.extract()?;
    }
    Ok(settings)
}

fn option_value(value: &Bound<'_, PyAny>) -> PyResult<OptionValue> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(OptionValue::Bytes(Bytes::copy_from_slice(bytes.as_bytes())));
    }
    if let Ok(text) = value.extract::<&str>() {
        return Ok(OptionValue::Bytes(Bytes::copy_from_slice(text.as_bytes())));
    }
    Ok(OptionValue::Int(value.extract()?))
}

/// A seed for what must differ between any two roles.
pub(crate) fn seed() -> PyResult<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|error| PyOSError::new_err(error.to_string()))?;
    Ok(seed)
}

/// A duration to wait, from the seconds of Python's argument with this name.
pub(crate) fn seconds(name: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{name} must be a number of seconds, 0 or more, not {seconds:?}")))
}

pub(crate) fn timed_out(what: &str, timeout_s: Option<f64>) -> PyErr {
    TimeoutError::new_err(format!("{what} within {} s", timeout_s.unwrap_or_default()))
}
