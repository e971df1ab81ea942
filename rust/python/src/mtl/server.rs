//! The role that admits clients and passes contents on.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use trunkline_engine::{Aside, Handle, Notices, Queued, Sink};
use trunkline_store::{Committer, Outcome, Store, StoreError};
use trunkline_wire::Framing;
use trunkline_wire::mtl::Pings;
use trunkline_wire::mtl::server::{
    Access, Answer, Bounds, Login, Op, Profile, Question, Routing, Server, ServerEvent, ServerSettings, ServerVerb,
    User,
};
use trunkline_wire::question::Token;

use super::json;
use super::message::PyReply;
use crate::counters::counters;
use crate::errors::{client, dropped};
use crate::notices::PyNotices;
use crate::role::{Role, RoleOptions, connection, seconds, start};

/// A server's engine.
#[pyclass(frozen, extends = Role, module = "trunkline._native.mtl", name = "Server")]
pub(crate) struct PyServer {
    handle: Arc<Handle<Server>>,
    notices: Py<PyNotices>,
    questions: Py<PyNotices>,
}

/// A profile: its name, its routing, its resources, whether clients may make queues, and the user's own commands.
type GivenProfile = (String, String, Vec<String>, bool, Vec<String>);

/// The settings of a server beyond those of every role.
#[derive(Clone, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Given {
    data_bind: Vec<String>,
    /// Whether users have passwords, keys, or no name; None admits every client.
    access: Option<(bool, bool, bool)>,
    virtual_hosts: Vec<String>,
    profiles: Vec<GivenProfile>,
    max_queue: u64,
    max_queue_bytes: u64,
    queue_ttl_s: Option<f64>,
    max_queues: u64,
    max_user_queues: u64,
    max_recycle: u32,
    ping_interval_s: f64,
    liveness: u32,
    session_idle_s: f64,
    lease_idle_s: f64,
    durable: Option<PathBuf>,
    capture_secrets: bool,
}

impl Given {
    pub(crate) fn settings(self) -> PyResult<ServerSettings> {
        let profile = |(name, routing, resources, managed, commands): GivenProfile| {
            let routing = match routing.as_str() {
                "queue" => Routing::Queue,
                "fanout" => Routing::Fanout,
                other => {
                    return Err(PyValueError::new_err(format!("routing must be 'queue' or 'fanout', not {other:?}")));
                }
            };
            let commands = commands.into_iter().map(|name| name.to_ascii_lowercase()).collect();
            Ok(Profile { name, routing, resources, managed, commands })
        };
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(ServerSettings {
            bind: vec![],
            data_bind: self.data_bind,
            options: trunkline_wire::SocketOptions::default(),
            access: self.access.map(|(passwords, external, anonymous)| Access { passwords, external, anonymous }),
            virtual_hosts: self.virtual_hosts,
            profiles: self.profiles.into_iter().map(profile).collect::<PyResult<_>>()?,
            bounds: Bounds {
                max_messages: self.max_queue,
                max_bytes: self.max_queue_bytes,
                ttl: self.queue_ttl_s.map(|ttl| seconds("queue_ttl_s", ttl)).transpose()?,
                dead_letter: None,
            },
            max_queues: self.max_queues,
            max_user_queues: self.max_user_queues,
            max_recycle: self.max_recycle,
            pings: pings(self.ping_interval_s, self.liveness)?,
            session_idle: seconds("session_idle_s", self.session_idle_s)?,
            lease_idle: seconds("lease_idle_s", self.lease_idle_s)?,
            outbox_bytes: 256 << 20,
            durable: None,
            epoch_ms: u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX),
            shows_secrets: self.capture_secrets,
            entropy: Box::new(entropy),
        })
    }
}

pub(super) fn pings(interval_s: f64, liveness: u32) -> PyResult<Pings> {
    let interval = seconds("ping_interval_s", interval_s)?;
    if interval < Duration::from_millis(1) || liveness < 2 {
        return Err(PyValueError::new_err("ping_interval_s must be at least 0.001, and liveness at least 2"));
    }
    Ok(Pings { interval, liveness })
}

fn entropy() -> [u8; 16] {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes
}

/// Hands changes to the thread that stores them.
struct Storing {
    committer: Option<Committer>,
    rest: Queued,
}

impl Sink<Server> for Storing {
    fn take(&mut self, event: ServerEvent) -> Option<ServerEvent> {
        match (event, &self.committer) {
            (ServerEvent::Store(batch), Some(committer)) => {
                committer.submit(batch.number, batch.ops);
                None
            }
            (event, _) => Some(event),
        }
    }

    fn has_room(&self) -> bool {
        <Queued as Sink<Server>>::has_room(&self.rest)
    }
}

impl Drop for Storing {
    /// The server has ended: no more changes come.
    fn drop(&mut self) {
        if let Some(committer) = self.committer.take() {
            // Failures to store were reported.
            let _ = committer.close();
        }
    }
}

fn store_error(error: &StoreError) -> PyErr {
    PyOSError::new_err(error.to_string())
}

#[pymethods]
impl PyServer {
    #[new]
    fn new(py: Python<'_>, options: RoleOptions, given: Given) -> PyResult<PyClassInitializer<Self>> {
        let durable = given.durable.clone();
        let mut settings = ServerSettings {
            bind: options.bind.clone(),
            options: options.socket.clone(),
            outbox_bytes: options.outbox_bytes,
            ..given.settings()?
        };
        let handle: Arc<OnceLock<Weak<Handle<Server>>>> = Arc::new(OnceLock::new());
        let early: Arc<Mutex<Vec<ServerVerb>>> = Arc::default();
        let mut committer = None;
        if let Some(directory) = durable {
            let (store, found) = py.detach(|| Store::open(&directory)).map_err(|error| store_error(&error))?;
            settings.durable = Some(found);
            let (handle, early) = (Arc::clone(&handle), Arc::clone(&early));
            let tell = move |outcome| {
                let verb = match outcome {
                    Outcome::Done(number) => ServerVerb::Stored(number),
                    Outcome::Failed { number, reason } => ServerVerb::Unstored(number, reason.to_string()),
                };
                match handle.get().map(Weak::upgrade) {
                    Some(Some(handle)) => handle.ask(verb),
                    // The server has ended.
                    Some(None) => {}
                    // It has not begun.
                    None => early.lock().unwrap_or_else(PoisonError::into_inner).push(verb),
                }
            };
            committer = Some(Committer::start(store, tell).map_err(|error| PyOSError::new_err(error.to_string()))?);
        }
        let (notices, questions) = (Arc::new(Notices::new()?), Arc::new(Notices::new()?));
        let picks = |event: &ServerEvent| matches!(event, ServerEvent::Asked(..)).then(|| weight(event));
        let sink = Storing { committer, rest: Queued };
        let sink = Aside::new(Arc::clone(&notices), Aside::picking(Arc::clone(&questions), picks, sink));
        let machine = Server::new(settings);
        let (started, role) = start(py, machine, sink, options, Framing::MtlControl, "trunkline-mtl-server")?;
        let _ = handle.set(Arc::downgrade(&started));
        for verb in std::mem::take(&mut *early.lock().unwrap_or_else(PoisonError::into_inner)) {
            started.ask(verb);
        }
        let server = Self {
            notices: Py::new(py, PyNotices::new(started.clone(), notices, notice))?,
            questions: Py::new(py, PyNotices::new(started.clone(), questions, notice))?,
            handle: started,
        };
        Ok(PyClassInitializer::from(role).add_subclass(server))
    }

    /// The notices, to be logged.
    #[getter]
    fn told(&self, py: Python<'_>) -> Py<PyNotices> {
        self.notices.clone_ref(py)
    }

    /// The questions to be answered.
    #[getter]
    fn asked(&self, py: Python<'_>) -> Py<PyNotices> {
        self.questions.clone_ref(py)
    }

    /// Answers a question: the login continues with this challenge.
    fn challenge(&self, token: u64, challenge: Vec<u8>, state: Vec<u8>, proven: Option<String>) {
        self.answer(token, Answer::Challenge { challenge: challenge.into(), state: state.into(), proven });
    }

    /// Answers a question: the login has succeeded.
    fn welcome(&self, token: u64, name: String, read: Option<Vec<String>>, write: Option<Vec<String>>) {
        self.answer(token, Answer::Welcome(User { name, read, write }));
    }

    /// Answers a question: the login has failed.
    #[pyo3(signature = (token, name))]
    fn refuse(&self, token: u64, name: Option<String>) {
        self.answer(token, Answer::Refused(name));
    }

    /// Answers a question: the reply to a custom command.
    fn reply(&self, token: u64, reply: &PyReply) {
        self.answer(token, Answer::Reply(reply.reply().clone()));
    }

    /// Answers a question: it could not be decided, or the handler failed.
    fn fail(&self, token: u64) {
        self.answer(token, Answer::Failed);
    }

    /// Makes sessions of these users authenticate again; with `leases` their data connections end too.
    #[pyo3(signature = (users, *, leases))]
    fn revoke(&self, users: Vec<String>, leases: bool) {
        self.handle.ask(ServerVerb::Revoke { users, leases });
    }

    /// Replaces the set of names, proved by keys, that are no longer admitted.
    fn bar(&self, users: Vec<String>) {
        self.handle.ask(ServerVerb::Bar(users));
    }

    /// The endpoints for commands, and those for data.
    #[getter]
    fn listens(&self, py: Python<'_>) -> (Vec<String>, Vec<String>) {
        let stats = py.detach(|| self.handle.stats()).machine;
        (stats.endpoints, stats.data_endpoints)
    }

    /// Counters, by name.
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (this, py) = (slf.get(), slf.py());
        let snapshot = py.detach(|| this.handle.stats());
        let stats = counters(py, &snapshot.machine)?;
        let role = slf.as_super().get();
        role.add_listening_to(&stats, &snapshot)?;
        // Refused logins, besides refused keys.
        stats.set_item("refused", snapshot.machine.refused + role.refused(py))?;
        Ok(stats)
    }
}

impl PyServer {
    fn answer(&self, token: u64, answer: Answer) {
        self.handle.ask(ServerVerb::Answer(Token(token), answer));
    }
}

fn weight(event: &ServerEvent) -> usize {
    use trunkline_wire::{Event as _, Weight};
    let (Weight::Notice(bytes) | Weight::Lossless(bytes)) = event.weight();
    bytes
}

/// A change to store, `(kind, *details)`.
fn change<'py>(py: Python<'py>, op: &Op) -> PyResult<Bound<'py, PyTuple>> {
    match op {
        Op::Define { queue, description } => ("define", queue, PyBytes::new(py, description)).into_pyobject(py),
        Op::Delete { queue } => ("delete", queue).into_pyobject(py),
        Op::Put { queue, position, attempts, expires_at_ms, properties, body } => {
            let (properties, body) = (PyBytes::new(py, properties), PyBytes::new(py, body));
            ("put", queue, position, attempts, expires_at_ms, properties, body).into_pyobject(py)
        }
        Op::Attempts { queue, position, attempts } => ("attempts", queue, position, attempts).into_pyobject(py),
        Op::Remove { queue, position } => ("remove", queue, position).into_pyobject(py),
    }
}

pub(crate) fn notice(py: Python<'_>, event: ServerEvent) -> PyResult<Bound<'_, PyTuple>> {
    let bytes = |bytes: &Bytes| PyBytes::new(py, bytes);
    match event {
        ServerEvent::Asked(token, Question::Login(login)) => {
            let Login { mechanism, response, state, is_private, user_id } = login;
            let user_id = user_id.map(|user| String::from_utf8_lossy(&user).into_owned());
            ("login", token.0, mechanism, bytes(&response), bytes(&state), is_private, user_id).into_pyobject(py)
        }
        ServerEvent::Asked(token, Question::Command { profile, name, body, user, virtual_host }) => {
            let body = json::to_python(py, &body)?;
            ("command", token.0, profile, name, body, user, virtual_host).into_pyobject(py)
        }
        ServerEvent::Store(batch) => {
            let ops: Vec<_> = batch.ops.iter().map(|op| change(py, op)).collect::<PyResult<_>>()?;
            ("store", batch.number, ops).into_pyobject(py)
        }
        ServerEvent::StoreFailed(reason) => ("store_failed", reason).into_pyobject(py),
        ServerEvent::LoggedIn { client } => ("logged_in", self::client(py, client)).into_pyobject(py),
        ServerEvent::Refused { client, user } => ("login_refused", self::client(py, client), user).into_pyobject(py),
        ServerEvent::Leased { client, reads } => ("leased", self::client(py, client), reads).into_pyobject(py),
        ServerEvent::LeaseEnded { client, why } => {
            ("lease_ended", self::client(py, client), why.slug()).into_pyobject(py)
        }
        ServerEvent::GivenUp(resource) => ("given_up", resource).into_pyobject(py),
        ServerEvent::Dropped(dropped) => self::dropped(py, "mtl", &dropped),
        ServerEvent::Connection(what) => connection(what).into_pyobject(py),
    }
}
