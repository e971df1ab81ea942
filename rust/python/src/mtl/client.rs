//! The role that sends commands.

use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use trunkline_engine::{Answering, Aside, Hold, Notices, Replies};
use trunkline_wire::mtl::client::{Client, ClientAnswer, ClientEvent, ClientSettings, ClientVerb, LoginStep, Outcome};
use trunkline_wire::mtl::control::{COMMAND_BYTES, Command, Json};
use trunkline_wire::question::Token;
use trunkline_wire::{CallId, Framing};

use super::json;
use super::message::PyReply;
use crate::caller::{Called, Caller, Outgoing, Reply};
use crate::counters::counters;
use crate::errors::{AuthenticationError, LocalProtocolError, PeerLostError, decode_error, dropped};
use crate::notices::PyNotices;
use crate::role::{RoleOptions, connection, run, seconds};

/// A client's engine for commands.
#[pyclass(frozen, extends = Caller, module = "trunkline._native.mtl", name = "Client")]
pub(crate) struct PyClient {
    handle: Arc<dyn Hold<Client>>,
    /// The notices, to be logged.
    #[pyo3(get)]
    notice_queue: Py<PyNotices>,
    /// The questions to be answered.
    #[pyo3(get)]
    asked: Py<PyNotices>,
}

impl Called for Client {
    fn reply(py: Python<'_>, outcome: Outcome) -> PyResult<Reply> {
        Ok(match outcome {
            Outcome::Entered => Reply::Value(py.None()),
            Outcome::Reply(reply) => Reply::Value(PyReply::of(reply).into_py_any(py)?),
            Outcome::Unauthenticated(mechanisms) => {
                let text = "the server refused the login: unknown user, or wrong password or key";
                Reply::Failed(unauthenticated(py, text, mechanisms)?)
            }
            Outcome::NoLogin(reason, offered) => Reply::Failed(unauthenticated(py, &reason, offered)?),
            Outcome::Garbled(error) => Reply::Failed(decode_error("mtl", error)),
            Outcome::TimedOut => Reply::TimedOut,
            Outcome::Lost => Reply::Failed(PeerLostError::new_err("the connection was lost before the reply arrived")),
            Outcome::Unanswered => Reply::Unanswered,
        })
    }

    fn cancel(call: CallId) -> ClientVerb {
        ClientVerb::Cancel(call)
    }
}

fn unauthenticated(py: Python<'_>, text: &str, mechanisms: Vec<String>) -> PyResult<PyErr> {
    Ok(AuthenticationError::new_err((text.to_owned(), PyTuple::new(py, mechanisms)?.unbind())))
}

#[pymethods]
impl PyClient {
    #[new]
    #[pyo3(signature = (options, *, virtual_host, profile, timeout_s, capture_secrets))]
    fn new(
        py: Python<'_>,
        options: RoleOptions,
        virtual_host: String,
        profile: String,
        timeout_s: f64,
        capture_secrets: bool,
    ) -> PyResult<PyClassInitializer<Self>> {
        let settings = ClientSettings {
            connect: options.connect.clone(),
            options: options.socket.clone(),
            virtual_host,
            profile,
            timeout: seconds("timeout_s", timeout_s)?,
            shows_secrets: capture_secrets,
        };
        let replies = Arc::new(Replies::new(options.bounds)?);
        let (notices, questions) = (Arc::new(Notices::new()?), Arc::new(Notices::new()?));
        let picks = |event: &ClientEvent| matches!(event, ClientEvent::Asked { .. }).then_some(0);
        let sink = Aside::picking(Arc::clone(&questions), picks, Answering::new(Arc::clone(&replies)));
        let sink = Aside::new(Arc::clone(&notices), sink);
        let make = move |_, _| Client::new(settings.clone());
        let (handle, role) = run(py, make, sink, options, Framing::MtlControl, "trunkline-mtl-client")?;
        let caller = Caller::new(handle.clone(), replies);
        let client = Self {
            notice_queue: Py::new(py, PyNotices::new(&role, handle.clone(), notices, notice))?,
            asked: Py::new(py, PyNotices::new(&role, handle.clone(), questions, notice))?,
            handle,
        };
        Ok(PyClassInitializer::from(role).add_subclass(caller).add_subclass(client))
    }

    /// A call that sends a command; without a name, one that opens a session.
    #[pyo3(signature = (name, body, timeout_s))]
    fn call(
        slf: &Bound<'_, Self>,
        name: Option<String>,
        body: &Bound<'_, PyAny>,
        timeout_s: Option<f64>,
    ) -> PyResult<Outgoing> {
        let body = if body.is_none() { Json::default() } else { json::from_python("body", body)? };
        let command = name.map(|name| Command { name, body });
        if let Some(command) = &command
            && command.parts().is_none()
        {
            let text = format!("{:?} is not a command name: use Class.Method", command.name);
            return Err(LocalProtocolError::new_err(text));
        }
        if command.as_ref().is_some_and(|command| command.frames()[1].len() > COMMAND_BYTES) {
            let text = format!("body must be at most {COMMAND_BYTES} bytes of JSON");
            return Err(LocalProtocolError::new_err(text));
        }
        let timeout = timeout_s.map(|timeout| seconds("timeout_s", timeout)).transpose()?;
        Ok(slf.as_super().get().outgoing(|call| ClientVerb::Call { call, command, timeout }, 0))
    }

    /// Continues a login with this response; `is_done`: the server may end it now.
    #[pyo3(signature = (token, mechanism, response, *, is_done))]
    fn respond(&self, token: u64, mechanism: String, response: Vec<u8>, is_done: bool) {
        let answer = ClientAnswer::Respond { mechanism, response: response.into(), is_done };
        self.handle.ask(ClientVerb::Answer(Token(token), answer));
    }

    /// Gives up a login.
    fn give_up(&self, token: u64, reason: String) {
        self.handle.ask(ClientVerb::Answer(Token(token), ClientAnswer::GiveUp(reason)));
    }

    /// Which of the given endpoints it is connected to.
    #[getter]
    fn endpoint(&self, py: Python<'_>) -> String {
        py.detach(|| self.handle.stats()).machine.endpoint
    }

    /// Whether the current session has reached its login.
    #[getter]
    fn logs_in(&self, py: Python<'_>) -> bool {
        py.detach(|| self.handle.stats()).machine.logs_in
    }

    /// Counters, by name.
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (this, py) = (slf.get(), slf.py());
        let snapshot = py.detach(|| this.handle.stats());
        let stats = counters(py, &snapshot.machine)?;
        slf.as_super().as_super().get().add_to(&stats, &snapshot)?;
        Ok(stats)
    }
}

/// The notice of an event, `(kind, *details)`; calls have their own outcomes.
fn notice(py: Python<'_>, event: ClientEvent) -> PyResult<Bound<'_, PyTuple>> {
    match event {
        ClientEvent::Asked { token, step: LoginStep::Begin { mechanisms }, is_private } => {
            ("begin", token.0, mechanisms, is_private).into_pyobject(py)
        }
        ClientEvent::Asked { token, step: LoginStep::Challenge { mechanism, challenge }, .. } => {
            ("challenge", token.0, mechanism, PyBytes::new(py, &challenge)).into_pyobject(py)
        }
        ClientEvent::Dropped(dropped) => self::dropped(py, "mtl", &dropped),
        ClientEvent::Connection(what) => connection(what).into_pyobject(py),
        ClientEvent::Ended(..) => Ok(PyTuple::empty(py)),
    }
}
