//! `trunkline.mc0.Message`.

use std::hash::{DefaultHasher, Hash, Hasher};

use pyo3::IntoPyObjectExt;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use smallvec::SmallVec;
use trunkline_wire::Frames;
use trunkline_wire::mc0::{Layout, Settings, Verb, decode as decode_layout, encode as encode_frames};

use super::text::{headers, text};
use crate::errors::{LocalProtocolError, decode_error};
use crate::fields;
use crate::frames::{self, Frame, counted};

/// A message with any of the nine verbs.
#[pyclass(frozen, module = "trunkline.mc0", name = "Message")]
pub(crate) struct Message {
    frames: SmallVec<[Frame; 3]>,
    layout: Layout,
}

impl Message {
    /// A message from a socket.
    pub(crate) fn of(frames: Frames, layout: Layout) -> Self {
        Self { frames: frames.into_iter().map(Frame::Native).collect(), layout }
    }

    /// The frame at a position that a verb may lack, as text.
    fn text<'py>(&self, py: Python<'py>, at: Option<usize>) -> PyResult<Option<Bound<'py, PyString>>> {
        at.map(|at| text(py, &self.frames[at])).transpose()
    }

    /// A position that only these verbs have.
    fn only(&self, verbs: &[Verb], at: Option<usize>) -> Option<usize> {
        at.filter(|_| verbs.contains(&self.layout.verb))
    }

    /// The frames by position, for these verbs.
    fn positional_of(&self, verbs: &[Verb]) -> &[Frame] {
        if verbs.contains(&self.layout.verb) { &self.frames[self.layout.positional()] } else { &[] }
    }
}

#[pymethods]
impl Message {
    /// The positional fields of a `match` pattern.
    #[classattr]
    #[allow(non_upper_case_globals)] // the name is Python's
    const __match_args__: (&'static str, &'static str, &'static str) = ("verb", "headers", "positional");

    /// All attributes, by name.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        fields::to_dict(slf.as_any())
    }

    #[new]
    #[pyo3(
        signature = (verb, headers = None, positional = None, *, leading_delimiter = true),
        text_signature = "(verb, headers=(), positional=(), *, leading_delimiter=True)"
    )]
    fn new(
        verb: &str,
        headers: Option<&Bound<'_, PyAny>>,
        positional: Option<&Bound<'_, PyAny>>,
        leading_delimiter: bool,
    ) -> PyResult<Self> {
        let named = Verb::from_frame(verb.as_bytes()).ok_or_else(|| {
            let all: Vec<_> = Verb::ALL.iter().map(|verb| verb.name()).collect();
            LocalProtocolError::new_err(format!("unknown verb {verb:?} (choose from {})", all.join(", ")))
        })?;
        let headers = headers.map_or_else(|| Ok(vec![]), self::headers)?;
        if headers.iter().any(|(key, _)| key.is_empty()) {
            return Err(LocalProtocolError::new_err("a header needs a key: an empty one ends the headers"));
        }
        let positional = positional.map(|parts| frames::frames("positional", parts)).transpose()?;
        let mut frames = encode_frames(named, headers, &positional.unwrap_or_default());
        if !leading_delimiter {
            frames.remove(0);
        }
        let layout = decode_layout(&frames, Settings::default())
            .map_err(|error| LocalProtocolError::new_err(format!("{verb}: {}", error.kind.meaning())))?;
        Ok(Self::of(frames, layout))
    }

    /// "CONNECT", "DISCONNECT", "SUB", "UNSUB", "PUT", "NOOP", "MESSAGE", "OK" or "ERROR".
    #[getter]
    fn verb(&self) -> &'static str {
        self.layout.verb.name()
    }

    /// All headers, including reserved ones: keys and values in wire order.
    #[getter]
    fn headers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let pair = |key: usize| (text(py, &self.frames[key])?, text(py, &self.frames[key + 1])?).into_pyobject(py);
        let pairs: Vec<Bound<'py, PyTuple>> = self.layout.keys().map(pair).collect::<PyResult<_>>()?;
        PyTuple::new(py, pairs)
    }

    /// The frames after the headers.
    #[getter]
    fn positional<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        objects(py, &self.frames[self.layout.positional()])
    }

    /// Whether it begins with an empty frame (MC0-07).
    #[getter]
    fn leading_delimiter(&self) -> bool {
        self.layout.is_delimited()
    }

    /// The ID of the message, or of the one it answers; None if it has none (MC0-12).
    #[getter]
    fn id<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        self.text(py, self.layout.id)
    }

    /// The topic of a PUT or a MESSAGE; None for the others.
    #[getter]
    fn topic<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        self.text(py, self.only(&[Verb::Put, Verb::Message], self.layout.topic))
    }

    /// The topics of a SUB or an UNSUB; none for the others.
    #[getter]
    fn topics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let topics = self.positional_of(&[Verb::Sub, Verb::Unsub]).iter().map(|topic| text(py, topic));
        PyTuple::new(py, topics.collect::<PyResult<Vec<_>>>()?)
    }

    /// The body of a PUT or a MESSAGE; empty for the others.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        objects(py, self.positional_of(&[Verb::Put, Verb::Message]))
    }

    /// The body as numbers, in one array, or one of its frames.
    #[pyo3(signature = (dtype = None, *, frame = None))]
    fn array<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        frame: Option<isize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        frames::array(py, frames::of_tuple(&self.body(py)?)?, dtype, frame)
    }

    /// The version of a CONNECT; None if not given, and for the others (MC0-20).
    #[getter]
    fn version<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        self.text(py, self.only(&[Verb::Connect], self.layout.version))
    }

    /// How long the connector of a CONNECT may be silent; 0 means no limit, None not given (MC0-24).
    #[getter]
    fn ttl_ms(&self) -> Option<u64> {
        self.layout.ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
    }

    /// The text of an ERROR; None if it has none, and for the others (MC0-16).
    #[getter(text)]
    fn error_text<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyString>>> {
        self.text(py, self.only(&[Verb::Error], self.layout.text))
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let (Ok(other), CompareOp::Eq | CompareOp::Ne) = (other.cast::<Self>(), op) else {
            return Ok(py.NotImplemented());
        };
        let equal = self.frames == other.get().frames;
        (equal == matches!(op, CompareOp::Eq)).into_py_any(py)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.frames.hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyTuple>,))> {
        Ok((py.import("trunkline.mc0")?.getattr("_restore")?, (objects(py, &self.frames)?,)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut said = vec![format!("{:?}", self.verb())];
        if self.layout.pairs > 0 {
            said.push(format!("headers={}", self.headers(py)?.repr()?));
        }
        let positional = &self.frames[self.layout.positional()];
        if !self.positional_of(&[Verb::Sub, Verb::Unsub]).is_empty() {
            said.push(format!("topics={}", self.topics(py)?.repr()?));
        } else if !positional.is_empty() {
            let bytes: usize = positional.iter().map(|frame| frame.len()).sum();
            said.push(format!("positional=<{}, {}>", counted(positional.len(), "frame"), counted(bytes, "byte")));
        }
        Ok(format!("Message({})", said.join(", ")))
    }
}

fn objects<'py>(py: Python<'py>, frames: &[Frame]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, frames.iter().map(|frame| frame.object(py)))
}

/// Accepts messages of a middleware with another longest TTL.
const LENIENT: Settings = Settings { max_ttl_ms: u64::MAX };

/// The message in these frames.
#[pyfunction]
pub(crate) fn decode(frames: &Bound<'_, PyAny>) -> PyResult<Message> {
    decoded(frames, Settings::default())
}

fn decoded(frames: &Bound<'_, PyAny>, settings: Settings) -> PyResult<Message> {
    let frames = frames::held("frames", frames)?;
    let layout = decode_layout(&frames, settings).map_err(|error| decode_error("mc0", error))?;
    Ok(Message { frames, layout })
}

/// The message in recorded frames.
pub(crate) fn recorded<'py>(frames: &Bound<'py, PyAny>, _topic: Option<&str>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    Ok(vec![decoded(frames, LENIENT)?.into_bound_py_any(frames.py())?])
}

/// The frames of a message; of a decoded one, bit for bit.
#[pyfunction]
pub(crate) fn encode<'py>(message: &Bound<'py, Message>) -> PyResult<Bound<'py, PyTuple>> {
    objects(message.py(), &message.get().frames)
}

/// A pickled message.
#[pyfunction]
#[pyo3(name = "_restore")]
pub(crate) fn restore(frames: &Bound<'_, PyAny>) -> PyResult<Message> {
    decoded(frames, LENIENT)
}
