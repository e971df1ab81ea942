//! `trunkline.dcp.Message` and `Reply`.

use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use pyo3::IntoPyObjectExt;
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use smallvec::SmallVec;
use trunkline_wire::Frames;
use trunkline_wire::dcp::{
    Body, Layout, MessageType, Role, Settings, Width, decode as decode_layout, encode_header, encode_register,
    encode_reply, encode_request,
};

use super::metadata;
use crate::errors::{LocalProtocolError, decode_error};
use crate::fields;
use crate::frames::{self, Frame, counted};

/// A message of any of the six types.
#[pyclass(frozen, module = "trunkline.dcp", name = "Message")]
pub(crate) struct Message {
    frames: SmallVec<[Frame; 3]>,
    layout: Layout,
}

impl Message {
    fn body(&self) -> Option<&Body> {
        self.layout.body()
    }

    /// What two equal messages share: the width of a type does not matter (DCP-11).
    fn key(&self) -> (MessageType, &[Frame]) {
        (self.layout.message_type(), self.frames.get(TYPE + 1..).unwrap_or_default())
    }
}

/// The position of the type.
const TYPE: usize = 2;

fn message_type(slug: &str) -> PyResult<MessageType> {
    let found = MessageType::ALL.into_iter().find(|message_type| message_type.slug() == slug);
    found.ok_or_else(|| {
        let all: Vec<_> = MessageType::ALL.iter().map(|message_type| message_type.slug()).collect();
        PyValueError::new_err(format!("unknown message type {slug:?} (choose from {})", all.join(", ")))
    })
}

fn role(name: Option<&str>) -> PyResult<Option<Role>> {
    match name {
        None => Ok(None),
        Some("broker") => Ok(Some(Role::Broker)),
        Some("worker") => Ok(Some(Role::Worker)),
        Some("client") => Ok(Some(Role::Client)),
        Some(other) => {
            Err(PyValueError::new_err(format!("unknown DCP role {other:?} (choose broker, worker or client)")))
        }
    }
}

#[pymethods]
impl Message {
    /// The positional fields of a `match` pattern.
    #[classattr]
    #[allow(non_upper_case_globals)] // the name is Python's
    const __match_args__: (&'static str,) = ("type",);

    /// All attributes, by name.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        fields::to_dict(slf.as_any())
    }

    #[new]
    #[pyo3(signature = (r#type, *, service = None, client = None, metadata = None, data = None))]
    fn new(
        r#type: &str,
        service: Option<&Bound<'_, PyAny>>,
        client: Option<&Bound<'_, PyAny>>,
        metadata: Option<&Bound<'_, PyAny>>,
        data: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let message_type = message_type(r#type)?;
        let has_service = matches!(message_type, MessageType::Register | MessageType::Request);
        let has_body = matches!(message_type, MessageType::Request | MessageType::Reply);
        let refused = |what: &str| LocalProtocolError::new_err(format!("a {type} message {what}"));
        if service.is_some() != has_service {
            return Err(refused(if has_service { "needs a service" } else { "takes no service" }));
        }
        if !has_body && (client.is_some() || metadata.is_some() || data.is_some()) {
            return Err(refused("takes neither client nor metadata nor data"));
        }
        let service = service.map(|service| frames::frame("service", service)).transpose()?.unwrap_or_default();
        let client = client.map(|client| frames::frame("client", client)).transpose()?;
        if client.as_ref().is_some_and(Bytes::is_empty) {
            return Err(LocalProtocolError::new_err("a client's address must not be empty"));
        }
        let metadata = metadata.map_or_else(|| Ok(vec![]), self::metadata)?;
        let data = data.map_or_else(|| Ok(SmallVec::new()), |data| frames::one_or_more("data", data))?;
        let frames = match message_type {
            MessageType::Register => encode_register(service),
            MessageType::Request => encode_request(service, client, &metadata, &data),
            MessageType::Reply => encode_reply(client.ok_or_else(|| refused("needs a client"))?, &metadata, &data),
            MessageType::Ping | MessageType::Pong | MessageType::Reconnect => encode_header(message_type, Width::One),
        };
        let frames: SmallVec<_> = frames.into_iter().map(Frame::Native).collect();
        let layout = decode_layout(&frames, Settings::default()).map_err(|error| decode_error("dcp", error))?;
        Ok(Self { frames, layout })
    }

    /// "register", "ping", "pong", "request", "reply" or "reconnect" (DCP-11).
    #[getter]
    fn r#type(&self) -> &'static str {
        self.layout.message_type().slug()
    }

    /// The service of a registration or request; None for the others.
    #[getter]
    fn service<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.layout.service().map(|at| self.frames[at].object(py))
    }

    /// The client's address in a reply or request; None if it has none (DCP-20).
    #[getter]
    fn client<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.body()?.client.map(|at| self.frames[at].object(py))
    }

    /// The parts that a reply copies from its request (DCP-22).
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let parts = self.body().map_or(&[][..], |body| &self.frames[body.metadata.clone()]);
        PyTuple::new(py, parts.iter().map(|frame| frame.object(py)))
    }

    /// The parts of the request or reply, empty ones included (DCP-25).
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let parts = self.body().map_or(&[][..], |body| &self.frames[body.data()]);
        PyTuple::new(py, parts.iter().map(|frame| frame.object(py)))
    }

    /// The data as numbers, in one array, or one of its frames.
    #[pyo3(signature = (dtype = None, *, frame = None))]
    fn array<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        frame: Option<isize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        frames::array(py, frames::of_tuple(&self.data(py)?)?, dtype, frame)
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let (Ok(other), CompareOp::Eq | CompareOp::Ne) = (other.cast::<Self>(), op) else {
            return Ok(py.NotImplemented());
        };
        let equal = self.key() == other.get().key();
        (equal == matches!(op, CompareOp::Eq)).into_py_any(py)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.key().hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyTuple>,))> {
        Ok((py.import("trunkline.dcp")?.getattr("_restore")?, (wire(py, self)?,)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut said = vec![format!("{:?}", self.r#type())];
        if let Some(service) = self.service(py) {
            said.push(format!("service={}", service.repr()?));
        }
        if let Some(client) = self.client(py) {
            said.push(format!("client={}", client.repr()?));
        }
        if let Some(body) = self.body() {
            let data = &self.frames[body.data()];
            let bytes: usize = data.iter().map(|frame| frame.len()).sum();
            said.push(format!("metadata={}", self.metadata(py)?.repr()?));
            said.push(format!("data=<{}, {}>", counted(data.len(), "part"), counted(bytes, "byte")));
        }
        Ok(format!("Message({})", said.join(", ")))
    }
}

fn wire<'py>(py: Python<'py>, message: &Message) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, message.frames.iter().map(|frame| frame.object(py)))
}

/// The message in these frames.
#[pyfunction]
#[pyo3(signature = (frames, *, role = None, compat_dagbox = false))]
pub(crate) fn decode(frames: &Bound<'_, PyAny>, role: Option<&str>, compat_dagbox: bool) -> PyResult<Message> {
    let settings = Settings { role: self::role(role)?, compat_dagbox };
    let frames = frames::held("frames", frames)?;
    let layout = decode_layout(&frames, settings).map_err(|error| decode_error("dcp", error))?;
    Ok(Message { frames, layout })
}

/// The message in recorded frames.
pub(crate) fn recorded<'py>(frames: &Bound<'py, PyAny>, _topic: Option<&str>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    Ok(vec![decode(frames, None, true)?.into_bound_py_any(frames.py())?])
}

/// The frames of a message; of a decoded one, bit for bit.
#[pyfunction]
pub(crate) fn encode<'py>(message: &Bound<'py, Message>) -> PyResult<Bound<'py, PyTuple>> {
    wire(message.py(), message.get())
}

/// A pickled message.
#[pyfunction]
#[pyo3(name = "_restore")]
pub(crate) fn restore(frames: &Bound<'_, PyAny>) -> PyResult<Message> {
    decode(frames, None, true)
}

/// The reply to a request.
#[pyclass(frozen, module = "trunkline.dcp", name = "Reply")]
pub(crate) struct PyReply {
    metadata: Vec<Bytes>,
    data: Vec<Bytes>,
}

impl PyReply {
    pub(crate) fn of(frames: &Frames, body: &Body) -> Self {
        Self { metadata: frames[body.metadata.clone()].to_vec(), data: frames[body.data()].to_vec() }
    }
}

#[pymethods]
impl PyReply {
    /// The positional fields of a `match` pattern.
    #[classattr]
    #[allow(non_upper_case_globals)] // the name is Python's
    const __match_args__: (&'static str, &'static str) = ("data", "metadata");

    /// All attributes, by name.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        fields::to_dict(slf.as_any())
    }

    #[new]
    #[pyo3(signature = (data, metadata = None))]
    fn new(data: &Bound<'_, PyAny>, metadata: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let metadata = metadata.map_or_else(|| Ok(vec![]), self::metadata)?;
        Ok(Self { metadata, data: frames::one_or_more("data", data)?.into_vec() })
    }

    /// The parts of the reply; none if the work failed.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        frames::tuple(py, self.data.iter())
    }

    /// The metadata parts of the request (DCP-23).
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        frames::tuple(py, self.metadata.iter())
    }

    /// The data as numbers, in one array, or one of its frames.
    #[pyo3(signature = (dtype = None, *, frame = None))]
    fn array<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        frame: Option<isize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        frames::array(py, frames::of_tuple(&self.data(py)?)?, dtype, frame)
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let (Ok(other), CompareOp::Eq | CompareOp::Ne) = (other.cast::<Self>(), op) else {
            return Ok(py.NotImplemented());
        };
        let equal = self.data == other.get().data && self.metadata == other.get().metadata;
        (equal == matches!(op, CompareOp::Eq)).into_py_any(py)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.data, &self.metadata).hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let (this, py) = (slf.get(), slf.py());
        Ok((slf.get_type().into_any(), PyTuple::new(py, [this.data(py)?, this.metadata(py)?])?))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let bytes: usize = self.data.iter().map(Bytes::len).sum();
        let metadata = self.metadata(py)?.repr()?.to_string();
        let data = counted(self.data.len(), "part");
        Ok(format!("Reply(data=<{data}, {}>, metadata={metadata})", counted(bytes, "byte")))
    }
}
