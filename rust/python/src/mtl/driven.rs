//! The machines of MTL, driven by Python.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trunkline_engine::Snapshot;
use trunkline_wire::mtl::client::{Client, ClientAnswer, ClientEvent, ClientSettings, ClientStats, ClientVerb};
use trunkline_wire::mtl::control::Command;
use trunkline_wire::mtl::server::{
    Answer, Restored, Server, ServerEvent, ServerSettings, ServerStats, ServerVerb, User,
};
use trunkline_wire::question::Token;
use trunkline_wire::{CallId, SocketOptions};

use super::message::PyReply;
use super::{client, json, server};
use crate::counters::{add_connected, add_listening, counters};
use crate::machine::{Given, Make, Spoken, VerbQueue, maker, no_verb};
use crate::role::seconds;

pub(crate) fn server_machine(given: &Given<'_>) -> PyResult<Make> {
    let whole = given.whole::<server::Given>()?;
    // Checked here: it is used later, and more than once.
    whole.clone().settings()?;
    let bind: Vec<String> = given.extract("bind")?;
    let is_durable: bool = given.extract("is_durable")?;
    Ok(maker(move |_, seed| {
        let settings = whole.clone().settings().expect("they were good before");
        let durable = is_durable.then(Restored::default);
        Server::new(ServerSettings { bind: bind.clone(), durable, entropy: leases(seed), ..settings })
    }))
}

/// Leases of a simulation, which can only be guessed with the seed.
fn leases(seed: [u8; 32]) -> Box<dyn FnMut() -> [u8; 16] + Send> {
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

pub(crate) fn client_machine(given: &Given<'_>) -> PyResult<Make> {
    let settings = ClientSettings {
        connect: given.extract("connect")?,
        options: SocketOptions::default(),
        virtual_host: given.extract("virtual_host")?,
        profile: given.extract("profile")?,
        timeout: seconds("timeout_s", given.extract("timeout_s")?)?,
        shows_secrets: given.extract("capture_secrets")?,
    };
    Ok(maker(move |_, _| Client::new(settings.clone())))
}

fn timeout(given: &Given<'_>) -> PyResult<Option<std::time::Duration>> {
    let timeout_s: Option<f64> = given.optional("timeout_s")?.map(|timeout| timeout.extract()).transpose()?;
    timeout_s.map(|timeout| seconds("timeout_s", timeout)).transpose()
}

fn token(given: &Given<'_>) -> PyResult<Token> {
    given.extract("token").map(Token)
}

fn call(given: &Given<'_>) -> PyResult<CallId> {
    given.extract("call").map(CallId)
}

impl Spoken for Server {
    fn verb(name: &str, given: &Given<'_>) -> PyResult<ServerVerb> {
        let answer = match name {
            "challenge" => Answer::Challenge {
                challenge: given.extract::<Vec<u8>>("challenge")?.into(),
                state: given.extract::<Vec<u8>>("state")?.into(),
                proven: given.optional("proven")?.map(|user| user.extract()).transpose()?,
            },
            "welcome" => Answer::Welcome(User {
                name: given.extract("name")?,
                read: given.extract("read")?,
                write: given.extract("write")?,
            }),
            "refuse" => Answer::Refused(given.extract("name")?),
            "reply" => Answer::Reply(given.any("reply")?.cast::<PyReply>()?.get().reply().clone()),
            "fail" => Answer::Failed,
            "stored" => return given.extract("through").map(ServerVerb::Stored),
            "unstored" => return Ok(ServerVerb::Unstored(given.extract("number")?, given.extract("reason")?)),
            "revoke" => {
                return Ok(ServerVerb::Revoke { users: given.extract("users")?, leases: given.extract("leases")? });
            }
            "bar" => return given.extract("users").map(ServerVerb::Bar),
            other => return no_verb(other),
        };
        Ok(ServerVerb::Answer(token(given)?, answer))
    }

    fn notice<'py>(py: Python<'py>, event: ServerEvent, _: &Arc<VerbQueue>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        server::notice(py, event).map(Some)
    }

    fn counters<'py>(py: Python<'py>, stats: &ServerStats) -> PyResult<Bound<'py, PyDict>> {
        let counted = counters(py, stats)?;
        add_listening(&counted, &Snapshot::<()>::default(), stats.refused)?;
        Ok(counted)
    }
}

impl Spoken for Client {
    fn verb(name: &str, given: &Given<'_>) -> PyResult<ClientVerb> {
        match name {
            "call" => {
                let command = given.optional("name")?.map(|name| {
                    let body = given.optional("body")?.map(|body| json::from_python("body", &body)).transpose()?;
                    PyResult::Ok(Command { name: name.extract()?, body: body.unwrap_or_default() })
                });
                Ok(ClientVerb::Call { call: call(given)?, command: command.transpose()?, timeout: timeout(given)? })
            }
            "cancel" => call(given).map(ClientVerb::Cancel),
            "respond" => {
                let answer = ClientAnswer::Respond {
                    mechanism: given.extract("mechanism")?,
                    response: given.extract::<Vec<u8>>("response")?.into(),
                    is_done: given.extract("is_done")?,
                };
                Ok(ClientVerb::Answer(token(given)?, answer))
            }
            "give_up" => Ok(ClientVerb::Answer(token(given)?, ClientAnswer::GiveUp(given.extract("reason")?))),
            other => no_verb(other),
        }
    }

    fn notice<'py>(py: Python<'py>, event: ClientEvent, _: &Arc<VerbQueue>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        client::notice(py, event).map(Some)
    }

    fn counters<'py>(py: Python<'py>, stats: &ClientStats) -> PyResult<Bound<'py, PyDict>> {
        let counted = counters(py, stats)?;
        add_connected(&counted, &Snapshot::<()>::default())?;
        Ok(counted)
    }
}
