//! The machines of CDT, driven by Python.

use std::sync::Arc;
use std::time::Duration;

use pyo3::IntoPyObjectExt as _;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use trunkline_wire::CallId;
use trunkline_wire::cdt::subject::Subjects;
use trunkline_wire::cdt::{
    Answer, Config, Confirm, Ended, Part, Pull, Push, Settings, Source, SourceEvent, SourceSettings, SourceStats,
    SourceVerb, Target, TargetEvent, TargetSettings, TargetStats, TargetVerb,
};
use trunkline_wire::question::Token;

use super::message::{bytes_encoding, codec, spoken};
use crate::counters::counters;
use crate::errors::{LocalProtocolError, dropped};
use crate::frames;
use crate::machine::{Given, Make, Spoken, VerbQueue, maker, no_verb};
use crate::role::{connection, seconds};

fn part(given: &Given<'_>) -> PyResult<Part> {
    let (codec_name, bytes_name): (String, String) = (given.extract("codec")?, given.extract("bytes_encoding")?);
    let part = Part {
        instance: given.extract("name")?,
        replica: given.extract("replica_id")?,
        subjects: Subjects { prefix: given.extract("prefix")?, protocol: given.extract("protocol_token")? },
        body: Settings {
            codec: codec(&codec_name)?,
            bytes_encoding: bytes_encoding(&bytes_name)?,
            strict: given.extract("strict")?,
            kind: None,
        },
        clock_skew_ms: given.extract("clock_skew_ms")?,
        shares_events: given.extract("queue_events")?,
        includes_own: given.extract("include_own")?,
        max_payload: given.extract("max_payload")?,
        unix_ms: given.extract("unix_ms")?,
    };
    match part.bad_name() {
        None => Ok(part),
        Some((which, name)) => Err(LocalProtocolError::new_err(format!("{which}: {name:?} is no token of a subject"))),
    }
}

pub(crate) fn target_machine(given: &Given<'_>) -> PyResult<Make> {
    let settings = TargetSettings {
        part: part(given)?,
        shares_requests: given.extract("queue")?,
        includes_content: given.extract("include_content")?,
        patience: seconds("store_timeout_s", given.extract("store_timeout_s")?)?,
    };
    Ok(maker(move |_, _| Target::new(settings.clone())))
}

pub(crate) fn source_machine(given: &Given<'_>) -> PyResult<Make> {
    let settings = SourceSettings {
        part: part(given)?,
        target: given.extract("target")?,
        resync: seconds("resync_s", given.extract("resync_s")?)?,
        ..SourceSettings::default()
    };
    Ok(maker(move |_, seed| Source::new(settings.clone(), seed)))
}

fn config(given: &Given<'_>) -> PyResult<Config> {
    Ok(Config {
        config_id: given.extract("config_id")?,
        content_type: given.extract("content_type")?,
        content: frames::frame("content", &given.any("content")?)?,
    })
}

fn timeout(given: &Given<'_>) -> PyResult<Option<Duration>> {
    let timeout_s: Option<f64> = given.optional("timeout_s")?.map(|timeout| timeout.extract()).transpose()?;
    timeout_s.map(|timeout| seconds("timeout_s", timeout)).transpose()
}

fn text(given: &Given<'_>, name: &str) -> PyResult<Option<String>> {
    given.optional(name)?.map(|text| text.extract()).transpose()
}

/// The arguments of a pull; there are many of them.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Pulled {
    call: u64,
    app_version_name: String,
    endpoint_id: String,
    config_id: Option<String>,
    endpoint_message_id: Option<String>,
    timeout_s: Option<f64>,
    retries: u32,
}

impl Pulled {
    fn verb(self) -> PyResult<SourceVerb> {
        let Self { call, app_version_name, endpoint_id, config_id, endpoint_message_id, timeout_s, retries } = self;
        let timeout = timeout_s.map(|timeout| seconds("timeout_s", timeout)).transpose()?;
        let pull = Pull { app_version_name, endpoint_id, config_id, endpoint_message_id, timeout, retries };
        Ok(SourceVerb::Pull(CallId(call), pull))
    }
}

impl Spoken for Target {
    fn verb(name: &str, given: &Given<'_>) -> PyResult<TargetVerb> {
        let answer = match name {
            "found" => Answer::Found(config(given)?),
            "stored" => Answer::Stored { config: config(given)?, is_new: given.extract("is_new")? },
            "missing" => Answer::Missing,
            "conflict" => Answer::Conflict,
            "failed" => Answer::Failed { status: given.extract("status")?, reason: given.extract("reason")? },
            "announce" => {
                return Ok(TargetVerb::Announce {
                    app_version_name: given.extract("app_version_name")?,
                    endpoint_id: given.extract("endpoint_id")?,
                    config: config(given)?,
                });
            }
            "clock" => return given.extract("unix_ms").map(TargetVerb::Clock),
            "max_payload" => return given.extract("bytes").map(TargetVerb::MaxPayload),
            other => return no_verb(other),
        };
        Ok(TargetVerb::Answer(Token(given.extract("token")?), answer))
    }

    fn notice<'py>(py: Python<'py>, event: TargetEvent, _: &Arc<VerbQueue>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let notice = match event {
            TargetEvent::Get { token, correlation_id, app_version_name, endpoint_id, config_id } => {
                ("get", token.0, correlation_id, app_version_name, endpoint_id, config_id).into_pyobject(py)?
            }
            TargetEvent::Put {
                token,
                correlation_id,
                app_version_name,
                endpoint_id,
                config_id,
                content_type,
                content,
            } => {
                let content = content.map(|content| PyBytes::new(py, &content));
                ("put", token.0, correlation_id, app_version_name, endpoint_id, config_id, content_type, content)
                    .into_pyobject(py)?
            }
            TargetEvent::Announced { app_version_name, endpoint_id, config_id, is_sent } => {
                ("announced", app_version_name, endpoint_id, config_id, is_sent).into_pyobject(py)?
            }
            TargetEvent::Updated { app_version_name, endpoint_id, config_id, timestamp_ms } => {
                ("updated", app_version_name, endpoint_id, config_id, timestamp_ms).into_pyobject(py)?
            }
            TargetEvent::Event(read) => ("event", spoken(py, *read)?).into_pyobject(py)?,
            TargetEvent::Dropped(dropped_message) => dropped(py, "cdt", &dropped_message)?,
            TargetEvent::Connection(what) => connection(what).into_pyobject(py)?,
        };
        Ok(Some(notice))
    }

    fn counters<'py>(py: Python<'py>, stats: &TargetStats) -> PyResult<Bound<'py, PyDict>> {
        counters(py, stats)
    }
}

impl Spoken for Source {
    fn verb(name: &str, given: &Given<'_>) -> PyResult<SourceVerb> {
        let call = || given.extract("call").map(CallId);
        match name {
            "pull" => given.whole::<Pulled>()?.verb(),
            "push" => {
                let content = given.optional("content")?;
                let content = content.map(|content| frames::frame("content", &content)).transpose()?;
                let confirm = match text(given, "confirm")?.as_deref() {
                    None => Confirm::Sent,
                    Some("stored") => Confirm::Stored,
                    Some("applied") => Confirm::Applied,
                    Some(other) => {
                        let message = format!("confirm is 'stored', 'applied' or None, not {other:?}");
                        return Err(LocalProtocolError::new_err(message));
                    }
                };
                let push = Push {
                    app_version_name: given.extract("app_version_name")?,
                    endpoint_id: given.extract("endpoint_id")?,
                    config_id: text(given, "config_id")?,
                    content_type: given.extract("content_type")?,
                    content,
                    confirm,
                    timeout: timeout(given)?,
                };
                Ok(SourceVerb::Push(call()?, push))
            }
            "report" => Ok(SourceVerb::Report {
                call: call()?,
                app_version_name: given.extract("app_version_name")?,
                endpoint_id: given.extract("endpoint_id")?,
                config_id: given.extract("config_id")?,
            }),
            "watch" => {
                Ok(SourceVerb::Watch(call()?, given.extract("app_version_name")?, given.extract("endpoint_id")?))
            }
            "cancel" => call().map(SourceVerb::Cancel),
            "clock" => given.extract("unix_ms").map(SourceVerb::Clock),
            "max_payload" => given.extract("bytes").map(SourceVerb::MaxPayload),
            other => no_verb(other),
        }
    }

    fn notice<'py>(py: Python<'py>, event: SourceEvent, _: &Arc<VerbQueue>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let notice = match event {
            SourceEvent::Ended(call, ended) => {
                let (how, what) = match ended {
                    Ended::Answered(read) => ("answered", Some(spoken(py, *read)?)),
                    Ended::Sent => ("sent", None),
                    Ended::Applied(config_id) => ("applied", Some(config_id.into_bound_py_any(py)?)),
                    Ended::NoTarget => ("no_target", None),
                    Ended::TimedOut => ("timed_out", None),
                    Ended::TooLarge => ("too_large", None),
                    Ended::Unsent => ("unsent", None),
                    Ended::Unanswered => ("unanswered", None),
                };
                ("ended", call.0, how, what).into_pyobject(py)?
            }
            SourceEvent::Changed(watch, read) => ("changed", watch.0, spoken(py, *read)?).into_pyobject(py)?,
            SourceEvent::Event(read) => ("event", spoken(py, *read)?).into_pyobject(py)?,
            SourceEvent::Dropped(dropped_message) => dropped(py, "cdt", &dropped_message)?,
            SourceEvent::Connection(what) => connection(what).into_pyobject(py)?,
        };
        Ok(Some(notice))
    }

    fn counters<'py>(py: Python<'py>, stats: &SourceStats) -> PyResult<Bound<'py, PyDict>> {
        counters(py, stats)
    }
}
