//! `trunkline.mtl.Command`, `Reply` and `Message`.

use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use pyo3::IntoPyObjectExt;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};
use trunkline_wire::mtl::control::{Command, Reply};
use trunkline_wire::mtl::data::{self, Kind, Layout};
use trunkline_wire::mtl::{Mtl, Spoken, decode as decode_spoken};
use trunkline_wire::{Frames, Protocol as _};

use super::{json, table};
use crate::errors::{LocalProtocolError, decode_error};
use crate::fields;
use crate::frames::{self, Frame, counted};
use crate::names::name;

/// A command of the control flow.
#[pyclass(frozen, module = "trunkline.mtl", name = "Command")]
pub(crate) struct PyCommand(Command, Json);

/// A reply of the control flow.
#[pyclass(frozen, module = "trunkline.mtl", name = "Reply")]
pub(crate) struct PyReply(Reply, Json);

/// The JSON of a message as it was written; for one that is made here, as its frames have it.
type Json = Option<Bytes>;

/// Frames with the JSON as it was written.
fn as_written(mut frames: Frames, json: &Json) -> Frames {
    if let Some(json) = json {
        frames[1] = json.clone();
    }
    frames
}

/// A message of the data flow.
#[pyclass(frozen, module = "trunkline.mtl", name = "Message")]
pub(crate) struct PyMessage {
    header: Bytes,
    body: Bytes,
    layout: Layout,
}

fn compared(py: Python<'_>, is_equal: Option<bool>, op: CompareOp) -> PyResult<Bound<'_, PyAny>> {
    match (is_equal, op) {
        (Some(is_equal), CompareOp::Eq) => is_equal.into_bound_py_any(py),
        (Some(is_equal), CompareOp::Ne) => (!is_equal).into_bound_py_any(py),
        _ => Ok(py.NotImplemented().into_bound(py)),
    }
}

/// How a message is pickled.
type Reduced<'py> = (Bound<'py, PyAny>, (Bound<'py, PyTuple>,));

fn reduced<'py>(py: Python<'py>, frames: &[Bytes]) -> PyResult<Reduced<'py>> {
    Ok((py.import("trunkline.mtl")?.getattr("_restore")?, (objects(py, frames)?,)))
}

fn objects<'py>(py: Python<'py>, frames: &[Bytes]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, frames.iter().map(|frame| PyBytes::new(py, frame)))
}

#[pymethods]
impl PyCommand {
    /// The positional fields of a `match` pattern.
    #[classattr]
    #[allow(non_upper_case_globals)] // the name is Python's
    const __match_args__: (&'static str, &'static str) = ("name", "body");

    /// All attributes, by name.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        fields::to_dict(slf.as_any())
    }

    #[new]
    #[pyo3(signature = (name, body = None), text_signature = "(name, body=None)")]
    fn new(name: &str, body: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let body = body.map(|body| json::from_python("body", body)).transpose()?.unwrap_or_default();
        let command = Command { name: name.to_owned(), body };
        if command.parts().is_none() || !name.bytes().all(|byte| byte >= b' ' && byte != 0x7f) {
            return Err(LocalProtocolError::new_err(format!("{name:?} is not a command name: use Class.Method")));
        }
        Ok(Self(command, None))
    }

    /// Class and method, as written (MTL-07).
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The arguments.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        json::to_python(py, &self.0.body)
    }

    fn __richcmp__<'py>(&self, other: &Bound<'py, PyAny>, op: CompareOp) -> PyResult<Bound<'py, PyAny>> {
        compared(other.py(), other.cast::<Self>().ok().map(|other| other.get().0 == self.0), op)
    }

    fn __hash__(&self) -> u64 {
        hash(&self.0.name)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduced(py, &as_written(self.0.frames(), &self.1))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Command({:?}, {})", self.0.name, self.body(py)?.repr()?))
    }
}

impl PyReply {
    pub(super) fn of(reply: Reply) -> Self {
        Self(reply, None)
    }

    pub(super) fn reply(&self) -> &Reply {
        &self.0
    }
}

#[pymethods]
impl PyReply {
    /// The positional fields of a `match` pattern.
    #[classattr]
    #[allow(non_upper_case_globals)] // the name is Python's
    const __match_args__: (&'static str, &'static str) = ("status", "body");

    /// All attributes, by name.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        fields::to_dict(slf.as_any())
    }

    #[new]
    #[pyo3(signature = (status, body = None), text_signature = "(status, body=None)")]
    fn new(status: u16, body: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        if !(200..=599).contains(&status) {
            return Err(LocalProtocolError::new_err(format!("status must be from 200 to 599, not {status}")));
        }
        let body = body.map(|body| json::from_python("body", body)).transpose()?.unwrap_or_default();
        Ok(Self(Reply { status, body }, None))
    }

    /// The status, from 200 to 599 (MTL-08).
    #[getter]
    fn status(&self) -> u16 {
        self.0.status
    }

    /// The results.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        json::to_python(py, &self.0.body)
    }

    fn __richcmp__<'py>(&self, other: &Bound<'py, PyAny>, op: CompareOp) -> PyResult<Bound<'py, PyAny>> {
        compared(other.py(), other.cast::<Self>().ok().map(|other| other.get().0 == self.0), op)
    }

    fn __hash__(&self) -> u64 {
        hash(&self.0.status)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduced(py, &as_written(self.0.frames(), &self.1))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Reply({}, {})", self.0.status, self.body(py)?.repr()?))
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl PyMessage {
    pub(super) fn of(frames: &Frames, layout: Layout) -> Self {
        Self { header: frames[0].clone(), body: frames[1].clone(), layout }
    }

    fn has(&self, kinds: &[Kind]) -> bool {
        kinds.contains(&self.layout.kind)
    }

    fn name<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        // The codec accepts no other text.
        name(py, std::str::from_utf8(&self.header[self.layout.name.clone()]).unwrap_or_default())
    }

    fn made(frames: &Frames) -> PyResult<Self> {
        let layout = data::decode(frames).map_err(|error| LocalProtocolError::new_err(error.kind.meaning()))?;
        Ok(Self::of(frames, layout))
    }
}

/// The kinds that have a sequence.
const NUMBERED: [Kind; 7] =
    [Kind::Lease, Kind::Response, Kind::Summon, Kind::Dismiss, Kind::Content, Kind::Confirm, Kind::Reject];

#[pymethods]
impl PyMessage {
    /// The positional fields of a `match` pattern.
    #[classattr]
    #[allow(non_upper_case_globals)] // the name is Python's
    const __match_args__: (&'static str,) = ("type",);

    /// All attributes, by name.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        fields::to_dict(slf.as_any())
    }

    #[new]
    #[pyo3(
        signature = (kind, *, sequence = None, lease = None, resource = None, properties = None, multiple = None, recycle = None, status = None, body = None),
        text_signature = "(type, *, sequence=None, lease=None, resource=None, properties=None, multiple=None, recycle=None, status=None, body=None)"
    )]
    #[allow(clippy::too_many_arguments)] // they are Python's, by name
    fn new(
        kind: &str,
        sequence: Option<u64>,
        lease: Option<&str>,
        resource: Option<&str>,
        properties: Option<&Bound<'_, PyAny>>,
        multiple: Option<bool>,
        recycle: Option<bool>,
        status: Option<u16>,
        body: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let found = Kind::ALL.iter().copied().find(|known| known.name() == kind);
        let found = found.ok_or_else(|| {
            let all: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            LocalProtocolError::new_err(format!("type must be one of {}, not {kind:?}", all.join(", ")))
        })?;
        let given: [(&str, bool, &[Kind]); 8] = [
            ("sequence", sequence.is_some(), &NUMBERED),
            ("lease", lease.is_some(), &[Kind::Lease]),
            ("resource", resource.is_some(), &[Kind::Summon, Kind::Dismiss, Kind::Content]),
            ("properties", properties.is_some(), &[Kind::Content]),
            ("multiple", multiple.is_some(), &[Kind::Confirm, Kind::Reject]),
            ("recycle", recycle.is_some(), &[Kind::Reject]),
            ("status", status.is_some(), &[Kind::Response]),
            ("body", body.is_some(), &[Kind::Content]),
        ];
        for (argument, is_given, kinds) in given {
            if is_given && !kinds.contains(&found) {
                return Err(LocalProtocolError::new_err(format!("a {kind} has no {argument}")));
            }
        }
        let need = |argument: &str| LocalProtocolError::new_err(format!("a {kind} needs {argument}="));
        let sequence = sequence.unwrap_or_default();
        for (argument, text) in [("lease", lease), ("resource", resource)] {
            text.map_or(Ok(()), |text| need_short(argument, text))?;
        }
        if let Some(status) = status.filter(|status| !(200..=599).contains(status)) {
            return Err(LocalProtocolError::new_err(format!("status must be from 200 to 599, not {status}")));
        }
        let frames = match found {
            Kind::Lease => data::lease(sequence, lease.ok_or_else(|| need("lease"))?),
            Kind::Response => data::response(sequence, status.ok_or_else(|| need("status"))?),
            Kind::Summon => data::summon(sequence, resource.ok_or_else(|| need("resource"))?),
            Kind::Dismiss => data::dismiss(sequence, resource.ok_or_else(|| need("resource"))?),
            Kind::Content => {
                let properties = match properties {
                    Some(properties) => table::from_python("properties", properties)?,
                    None => Bytes::from_static(&[0; 4]),
                };
                let body = body.map(|body| frames::frame("body", body)).transpose()?.unwrap_or_default();
                data::content(sequence, resource.unwrap_or_default(), &properties, body)
            }
            Kind::Confirm => data::confirm(sequence, multiple.unwrap_or_default()),
            Kind::Reject => data::reject(sequence, multiple.unwrap_or_default(), recycle.unwrap_or_default()),
            Kind::Ping => data::ping(),
            Kind::Pong => data::pong(),
        };
        Self::made(&frames)
    }

    /// The message type: "lease", "response", "summon", "dismiss", "content", "confirm", "reject", "ping" or "pong" (MTL-33).
    #[getter(r#type)]
    fn kind(&self) -> &'static str {
        self.layout.kind.name()
    }

    /// The number of the command or content; None for "ping" and "pong".
    #[getter]
    fn sequence(&self) -> Option<u64> {
        self.has(&NUMBERED).then_some(self.layout.sequence)
    }

    /// The lease that a "lease" redeems (MTL-34); None for the others.
    #[getter]
    fn lease<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyString>> {
        self.has(&[Kind::Lease]).then(|| self.name(py))
    }

    /// The resource of a "summon", a "dismiss" or a "content", where it may be empty; None for the others.
    #[getter]
    fn resource<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyString>> {
        self.has(&[Kind::Summon, Kind::Dismiss, Kind::Content]).then(|| self.name(py))
    }

    /// The field table of a "content" (MTL-60); None for the others.
    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.has(&[Kind::Content]).then(|| table::to_python(py, &self.header[self.layout.table.clone()])).transpose()
    }

    /// Whether a "confirm" or "reject" covers all contents up to its sequence (MTL-51); None for the others.
    #[getter]
    fn multiple(&self) -> Option<bool> {
        self.has(&[Kind::Confirm, Kind::Reject]).then_some(self.layout.multiple)
    }

    /// Whether the contents of a "reject" are to be delivered again (MTL-54); None for the others.
    #[getter]
    fn recycle(&self) -> Option<bool> {
        self.has(&[Kind::Reject]).then_some(self.layout.recycle)
    }

    /// The status of a "response", from 200 to 599 (MTL-35); None for the others.
    #[getter]
    fn status(&self) -> Option<u16> {
        self.has(&[Kind::Response]).then_some(self.layout.status)
    }

    /// The body of a "content"; None for the others.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.has(&[Kind::Content]).then(|| PyBytes::new(py, &self.body))
    }

    /// The body of a "content" as numbers, in one array, or one of its frames.
    #[pyo3(signature = (dtype = None, *, frame = None))]
    fn array<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        frame: Option<isize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        frames::array(py, self.body(py).into_iter().collect(), dtype, frame)
    }

    fn __richcmp__<'py>(&self, other: &Bound<'py, PyAny>, op: CompareOp) -> PyResult<Bound<'py, PyAny>> {
        let is_equal = other.cast::<Self>().ok().map(|other| {
            let other = other.get();
            other.header == self.header && other.body == self.body
        });
        compared(other.py(), is_equal, op)
    }

    fn __hash__(&self) -> u64 {
        hash(&(&self.header, &self.body))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py>> {
        reduced(py, &[self.header.clone(), self.body.clone()])
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut said = vec![format!("{:?}", self.kind())];
        if let Some(sequence) = self.sequence() {
            said.push(format!("sequence={sequence}"));
        }
        if self.has(&[Kind::Lease]) {
            said.push("lease=…".to_owned());
        }
        if let Some(resource) = self.resource(py) {
            said.push(format!("resource={}", resource.repr()?));
        }
        if let Some(properties) = self.properties(py)?.filter(|properties| !properties.is_empty()) {
            said.push(format!("properties={}", properties.repr()?));
        }
        let flags = [("multiple", self.multiple()), ("recycle", self.recycle())];
        said.extend(flags.iter().filter(|(_, is_set)| *is_set == Some(true)).map(|(name, _)| format!("{name}=True")));
        said.extend(self.status().map(|status| format!("status={status}")));
        if self.has(&[Kind::Content]) {
            said.push(format!("body=<{}>", counted(self.body.len(), "byte")));
        }
        Ok(format!("Message({})", said.join(", ")))
    }
}

/// Refuses a text that is too long or not printable (MTL-59).
pub(super) fn need_short(argument: &str, text: &str) -> PyResult<()> {
    if text.len() > 255 {
        let length = text.len();
        return Err(LocalProtocolError::new_err(format!("{argument} must be at most 255 bytes, not {length}")));
    }
    match text.chars().find(|letter| *letter < ' ' || *letter == '\x7f') {
        Some(letter) => {
            Err(LocalProtocolError::new_err(format!("{argument} must be printable, but contains {letter:?}")))
        }
        None => Ok(()),
    }
}

fn spoken<'py>(py: Python<'py>, frames: &[Frame], spoken: Spoken) -> PyResult<Bound<'py, PyAny>> {
    let json = || frames.last().map(|frame| frame.share(py));
    match spoken {
        Spoken::Command(command) => PyCommand(command, json()).into_bound_py_any(py),
        Spoken::Reply(reply) => PyReply(reply, json()).into_bound_py_any(py),
        Spoken::Data(layout) => {
            let frames: Frames = frames.iter().map(|frame| frame.share(py)).collect();
            PyMessage::of(&frames, layout).into_bound_py_any(py)
        }
    }
}

/// Decodes a message of either flow from its frames.
#[pyfunction]
pub(crate) fn decode<'py>(frames: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let held = frames::held("frames", frames)?;
    let read = decode_spoken(&held).map_err(|error| decode_error("mtl", error))?;
    spoken(frames.py(), &held, read)
}

/// Decodes a message from recorded frames, which may have an envelope.
pub(crate) fn recorded<'py>(frames: &Bound<'py, PyAny>, _topic: Option<&str>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let held = frames::held("frames", frames)?;
    let read = Mtl::decode(&held, &()).map_err(|error| decode_error(Mtl::NAME, error))?;
    Ok(vec![spoken(frames.py(), &held, read)?])
}

/// Encodes a message as frames, without an envelope; a decoded one of the data flow bit for bit.
#[pyfunction]
pub(crate) fn encode<'py>(message: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let py = message.py();
    if let Ok(command) = message.cast::<PyCommand>() {
        let PyCommand(command, json) = command.get();
        objects(py, &as_written(command.frames(), json))
    } else if let Ok(reply) = message.cast::<PyReply>() {
        let PyReply(reply, json) = reply.get();
        objects(py, &as_written(reply.frames(), json))
    } else {
        let message = message.cast::<PyMessage>()?.get();
        objects(py, &[message.header.clone(), message.body.clone()])
    }
}

/// Restores a pickled message.
#[pyfunction]
#[pyo3(name = "_restore")]
pub(crate) fn restore<'py>(frames: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    decode(frames)
}
