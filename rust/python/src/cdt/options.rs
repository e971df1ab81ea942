//! The options of the roles of CDT, and how the roles are started.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use libc::EINVAL;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use trunkline_engine::nats::{MemoryTransport, NatsSettings, NatsTransport};
use trunkline_engine::tls::Tls;
use trunkline_engine::{Bounds, Capture, CaptureOverflow, Handle, Hold, Recording, Sink, Snapshot, StartError};
use trunkline_engine::{Settings as RunSettings, TransportError};
use trunkline_wire::cdt::subject::Subjects;
use trunkline_wire::cdt::{Part, RecorderEvent, Settings, SourceEvent, TargetEvent};
use trunkline_wire::nats::{Key, Login, ServerUrl};
use trunkline_wire::{Connection, Framing, Machine, Nanos, ServerNotice};
use zeroize::Zeroizing;

use super::message::{bytes_encoding, codec};
use crate::errors::{LocalProtocolError, capture_error, start_error};
use crate::role::{Role, capture_settings, seed};

/// What waits for the engine at most; what its transport has not written counts.
pub(super) const BOUNDS: Bounds = Bounds { messages: 10_000, bytes: 64 << 20 };

/// The bytes of events that may wait for the user.
const UNREAD: usize = 256 << 20;

/// How a role takes part, as Python gives it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct Taking {
    name: String,
    replica_id: String,
    prefix: String,
    protocol_token: String,
    codec: String,
    bytes_encoding: String,
    strict: bool,
    queue_events: bool,
    include_own: bool,
    clock_skew_ms: i64,
}

impl Taking {
    pub(super) fn part(self) -> PyResult<Part> {
        let part = Part {
            instance: self.name,
            replica: self.replica_id,
            subjects: Subjects { prefix: self.prefix, protocol: self.protocol_token },
            body: body(&self.codec, &self.bytes_encoding, self.strict)?,
            clock_skew_ms: self.clock_skew_ms,
            shares_events: self.queue_events,
            includes_own: self.include_own,
            ..Part::default()
        };
        match part.bad_name() {
            None => Ok(part),
            Some((which, name)) => {
                Err(LocalProtocolError::new_err(format!("{which}: {name:?} is no token of a subject")))
            }
        }
    }
}

/// The encoding of bodies, by the names of options.
pub(super) fn body(codec_name: &str, bytes_name: &str, strict: bool) -> PyResult<Settings> {
    Ok(Settings { codec: codec(codec_name)?, bytes_encoding: bytes_encoding(bytes_name)?, strict, kind: None })
}

/// The server and the queues of a role.
pub(crate) struct NatsOptions {
    server: Server,
    queue_messages: usize,
    capture: Option<(PathBuf, trunkline_capture::Settings)>,
    /// Python's entry of a simulated role.
    simulation: Option<Py<PyAny>>,
}

enum Server {
    /// In this process.
    Memory(String),
    Nats(Box<NatsSettings>),
}

/// The files of TLS, as Python gives them.
#[derive(FromPyObject)]
struct GivenTls {
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    verify: bool,
}

/// A login, as Python gives it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct GivenLogin {
    servers: Vec<String>,
    /// The name of the connection.
    name: String,
    /// A credentials file, and what is in it.
    credentials: Option<(PathBuf, String)>,
    nkey_seed: Option<String>,
    user: Option<String>,
    password: Option<String>,
    token: Option<String>,
    tls: Option<GivenTls>,
}

impl GivenLogin {
    fn settings(self) -> PyResult<NatsSettings> {
        let (mut servers, mut login) = (vec![], None);
        for text in &self.servers {
            let (url, found) = ServerUrl::read(text).map_err(|bad| {
                let scheme = if bad.text.contains("://") { "" } else { "nats://" };
                let text =
                    format!("servers: '{scheme}{}' is not a URL of a NATS server: use nats://HOST:PORT", bad.text);
                LocalProtocolError::new_err(text)
            })?;
            servers.push(url);
            login = login.or(found);
        }
        let mut login: Login = login.unwrap_or_default();
        // What is given goes before what a URL contains.
        let (user, password) = login.user.take().unzip();
        let password = self.password.map(Zeroizing::new).or(password).unwrap_or_default();
        login.user = self.user.or(user).map(|user| (user, password));
        login.token = self.token.map(Zeroizing::new).or(login.token);
        let unfit = |error| LocalProtocolError::new_err(format!("nkey_seed or credentials cannot be used: {error}"));
        login.key = self.nkey_seed.map(|seed| Key::from_seed(&Zeroizing::new(seed)).map_err(unfit)).transpose()?;
        let credentials = self.credentials.map(|(path, content)| {
            let shown = path.display();
            let bad = |_| LocalProtocolError::new_err(format!("credentials: {shown} is not a NATS credentials file"));
            Key::from_credentials(&Zeroizing::new(content)).map_err(bad)?;
            PyResult::Ok(path)
        });
        let mut settings = NatsSettings::new(servers);
        settings.login = login;
        settings.credentials = credentials.transpose()?;
        settings.connection.name = Some(self.name);
        settings.tls = self.tls.map(|GivenTls { ca, certificate, key, verify }| Tls { ca, certificate, key, verify });
        settings.outbox_bytes = BOUNDS.bytes;
        Ok(settings)
    }
}

impl<'py> FromPyObject<'_, 'py> for NatsOptions {
    type Error = PyErr;

    /// From the dictionary that `trunkline.cdt._roles` makes.
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let options: std::collections::HashMap<String, Bound<'py, PyAny>> = object.extract()?;
        let need = |name: &str| options.get(name).ok_or_else(|| PyTypeError::new_err(format!("{name} is missing")));
        let optional = |name: &str| options.get(name).filter(|value| !value.is_none());
        let servers: Vec<String> = need("servers")?.extract()?;
        let server = match &servers[..] {
            [name] if name.starts_with("memory://") => Server::Memory(name.clone()),
            _ => Server::Nats(Box::new(object.extract::<GivenLogin>()?.settings()?)),
        };
        let capture = match optional("capture") {
            None => None,
            Some(path) => Some((path.extract()?, capture_settings(&options)?)),
        };
        Ok(Self {
            server,
            queue_messages: need("queue_messages")?.extract()?,
            capture,
            simulation: optional("simulation").map(|entry| entry.clone().unbind()),
        })
    }
}

/// What a role has heard of its server.
#[derive(Debug)]
pub(super) struct Heard {
    /// The largest body.
    pub(super) max_payload: AtomicUsize,
}

impl Default for Heard {
    fn default() -> Self {
        Self { max_payload: AtomicUsize::new(Part::default().max_payload) }
    }
}

/// Takes what is for nobody but the role itself.
pub(super) struct Ear<S> {
    heard: Arc<Heard>,
    /// Whether the user takes events of others.
    takes_events: bool,
    rest: S,
}

impl<S> Ear<S> {
    pub(super) fn new(heard: Arc<Heard>, options: &NatsOptions, rest: S) -> Self {
        Self { heard, takes_events: options.queue_messages > 0, rest }
    }

    /// Whether a change of the connection is news to the user.
    fn is_news(&self, what: &Connection) -> bool {
        if let Connection::Server(ServerNotice::MaxPayload(bytes)) = what {
            self.heard.max_payload.store(*bytes, Ordering::Relaxed);
        }
        !matches!(what, Connection::Server(ServerNotice::MaxPayload(_) | ServerNotice::Used(_) | ServerNotice::Left))
    }
}

/// An event of a machine of CDT.
pub(super) trait CdtEvent {
    /// The change of the connection that it is, if any.
    fn connection(&self) -> Option<&Connection>;

    /// Whether it is an event of others.
    fn is_of_others(&self) -> bool;
}

impl CdtEvent for SourceEvent {
    fn connection(&self) -> Option<&Connection> {
        if let Self::Connection(what) = self { Some(what) } else { None }
    }

    fn is_of_others(&self) -> bool {
        matches!(self, Self::Event(_))
    }
}

impl CdtEvent for TargetEvent {
    fn connection(&self) -> Option<&Connection> {
        if let Self::Connection(what) = self { Some(what) } else { None }
    }

    fn is_of_others(&self) -> bool {
        matches!(self, Self::Event(_))
    }
}

impl CdtEvent for RecorderEvent {
    fn connection(&self) -> Option<&Connection> {
        Some(&self.0)
    }

    fn is_of_others(&self) -> bool {
        false
    }
}

impl<M: Machine<Event: CdtEvent>, S: Sink<M>> Sink<M> for Ear<S> {
    fn take(&mut self, event: M::Event) -> Option<M::Event> {
        if event.connection().is_some_and(|what| !self.is_news(what)) || (event.is_of_others() && !self.takes_events) {
            return None;
        }
        self.rest.take(event)
    }

    fn has_room(&self) -> bool {
        self.rest.has_room()
    }

    fn lose(&mut self) {
        self.rest.lose();
    }
}

/// Starts a role in a simulation, or at its server.
pub(super) fn run<M: Machine + Send + 'static>(
    py: Python<'_>,
    make: impl Fn(Nanos, [u8; 32]) -> M + Send + 'static,
    sink: impl Sink<M>,
    options: NatsOptions,
    name: &'static str,
) -> PyResult<(Arc<dyn Hold<M>>, Role)> {
    let NatsOptions { server, queue_messages, capture, simulation } = options;
    if let Some(entry) = simulation {
        return Role::simulated(entry.bind(py), make, sink, name, Bounds::UNLIMITED);
    }
    let recording = capture.map(|(directory, settings)| py.detach(|| Recording::open(&directory, settings)));
    let recording = recording.transpose().map_err(|error| capture_error(&error))?;
    let settings = RunSettings {
        bounds: BOUNDS,
        sheds: Some(Bounds { messages: queue_messages.max(1), bytes: UNREAD }),
        capture: recording.map(|recording| Capture {
            recording,
            is_owner: true,
            framing: Framing::Cdt,
            overflow: CaptureOverflow::Count,
        }),
        name: name.to_owned(),
        grace: Duration::ZERO,
        ..RunSettings::default()
    };
    let machine = make(Nanos::default(), seed()?);
    let handle = match server {
        Server::Memory(name) => {
            py.detach(|| Handle::start(machine, move || MemoryTransport::new(&name), sink, settings))
        }
        Server::Nats(nats) => py.detach(|| Handle::start(machine, move || NatsTransport::new(*nats), sink, settings)),
    };
    let handle = Arc::new(handle.map_err(|error| {
        if let StartError::Transport(TransportError::Failed { errno: EINVAL, reason }) = error {
            // A file of TLS.
            LocalProtocolError::new_err(reason)
        } else {
            start_error(error)
        }
    })?);
    Ok((handle.clone(), Role::running(handle)))
}

/// Counters of every role besides its machine's.
pub(super) fn add_to<S>(stats: &Bound<'_, PyDict>, snapshot: &Snapshot<S>) -> PyResult<()> {
    if snapshot.queue_full > 0
        && let Some(dropped) = stats.get_item("dropped")?
    {
        dropped.cast::<PyDict>()?.set_item("queue_full", snapshot.queue_full)?;
    }
    stats.set_item("capture_lost", snapshot.capture_lost)
}
