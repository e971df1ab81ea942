//! The role that admits clients and passes contents on.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use trunkline_engine::{Aside, Hold, Notices, Queued, Sink};
use trunkline_store::{Committer, Outcome, Store, StoreError};
use trunkline_wire::Framing;
use trunkline_wire::mtl::Pings;
use trunkline_wire::mtl::server::{
    Access, Answer, Bounds, Entropy, Login, Op, Profile, Question, Routing, Server, ServerEvent, ServerSettings,
    ServerVerb, User,
};
use trunkline_wire::question::Token;

use super::json;
use super::message::PyReply;
use crate::counters::counters;
use crate::errors::{client, dropped};
use crate::notices::PyNotices;
use crate::role::{Role, RoleOptions, connection, run, seconds};

/// A server's engine.
#[pyclass(frozen, extends = Role, module = "trunkline._native.mtl", name = "Server")]
pub(crate) struct PyServer {
    handle: Arc<dyn Hold<Server>>,
    /// The notices, to be logged.
    #[pyo3(get)]
    notice_queue: Py<PyNotices>,
    /// The questions to be answered.
    #[pyo3(get)]
    asked: Py<PyNotices>,
}

/// A profile: its name, its routing, its resources, whether clients may make queues, and the user's own commands.
type GivenProfile = (String, String, Vec<String>, bool, Vec<String>);

/// The settings of a server beyond those of every role.
#[derive(Clone, FromPyObject)]
#[pyo3(from_item_all)]
struct Arguments {
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

impl Arguments {
    fn settings(self) -> PyResult<ServerSettings> {
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

/// Leases of a simulation, which the seed determines.
fn leases(seed: [u8; 32]) -> Entropy {
    let [mut first, mut second] = [0, 16].map(|at| {
        let mut half = [0; 16];
        half.copy_from_slice(&seed[at..at + 16]);
        u128::from_be_bytes(half) | 1
    });
    Box::new(move || {
        first = first.wrapping_mul(0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645).wrapping_add(second);
        second = second.rotate_left(49) ^ first;
        second.to_be_bytes()
    })
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

/// Adds queues to the store of a directory, which no server may use meanwhile.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // as Python gives it
pub(crate) fn define_queues(py: Python<'_>, directory: PathBuf, descriptions: Vec<Vec<u8>>) -> PyResult<()> {
    let added = py.detach(|| {
        let (mut store, restored) = Store::open(&directory)?;
        let next = restored.queues.iter().map(|(number, _)| number + 1).max().unwrap_or_default();
        let define = |(queue, description)| Op::Define { queue, description };
        let ops: Vec<_> = (next..).zip(descriptions).map(define).collect();
        store.commit(&ops)?;
        store.close()
    });
    added.map_err(|error| store_error(&error))
}

fn store_error(error: &StoreError) -> PyErr {
    PyOSError::new_err(error.to_string())
}

#[pymethods]
impl PyServer {
    #[new]
    fn new(py: Python<'_>, options: RoleOptions, given: Arguments) -> PyResult<PyClassInitializer<Self>> {
        // Refused here: a simulated server is made more than once.
        given.clone().settings()?;
        let handle: Arc<OnceLock<Weak<dyn Hold<Server>>>> = Arc::new(OnceLock::new());
        let early: Arc<Mutex<Vec<ServerVerb>>> = Arc::default();
        let (mut committer, mut restored) = (None, None);
        if let Some(directory) = given.durable.clone() {
            let (store, found) = py.detach(|| Store::open(&directory)).map_err(|error| store_error(&error))?;
            restored = Some(found);
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
        let (bind, socket, outbox_bytes) = (options.bind.clone(), options.socket.clone(), options.outbox_bytes);
        let (is_simulated, restored) = (options.simulation.is_some(), Mutex::new(restored));
        let make = move |_, seed| {
            Server::new(ServerSettings {
                bind: bind.clone(),
                options: socket.clone(),
                outbox_bytes,
                durable: restored.lock().unwrap_or_else(PoisonError::into_inner).take(),
                entropy: if is_simulated { leases(seed) } else { Box::new(entropy) },
                ..given.clone().settings().expect("they were accepted before")
            })
        };
        let (started, role) = run(py, make, sink, options, Framing::MtlControl, "trunkline-mtl-server")?;
        let _ = handle.set(Arc::downgrade(&started));
        for verb in std::mem::take(&mut *early.lock().unwrap_or_else(PoisonError::into_inner)) {
            started.ask(verb);
        }
        let server = Self {
            notice_queue: Py::new(py, PyNotices::new(&role, started.clone(), notices, notice))?,
            asked: Py::new(py, PyNotices::new(&role, started.clone(), questions, notice))?,
            handle: started,
        };
        Ok(PyClassInitializer::from(role).add_subclass(server))
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

/// The notice of an event, `(kind, *details)`; what is to be stored goes to the store instead.
fn notice(py: Python<'_>, event: ServerEvent) -> PyResult<Bound<'_, PyTuple>> {
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
        ServerEvent::StoreFailed(reason) => ("store_failed", reason).into_pyobject(py),
        ServerEvent::NotRestored { queues, contents } => ("not_restored", queues, contents).into_pyobject(py),
        ServerEvent::LoggedIn { client } => ("logged_in", self::client(py, client)).into_pyobject(py),
        ServerEvent::Refused { client, user } => ("login_refused", self::client(py, client), user).into_pyobject(py),
        ServerEvent::Leased { client, reads } => ("leased", self::client(py, client), reads).into_pyobject(py),
        ServerEvent::LeaseEnded { client, why } => {
            ("lease_ended", self::client(py, client), why.slug()).into_pyobject(py)
        }
        ServerEvent::GivenUp(resource) => ("given_up", resource).into_pyobject(py),
        ServerEvent::Dropped(dropped) => self::dropped(py, "mtl", &dropped),
        ServerEvent::Connection(what) => connection(what).into_pyobject(py),
        ServerEvent::Store(_) => Ok(PyTuple::empty(py)),
    }
}
