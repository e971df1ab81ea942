//! `trunkline.cdtp.Message` and `Batch`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use pyo3::IntoPyObjectExt;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::slice::PySliceIndices;
use pyo3::types::{PyDict, PySlice, PySliceMethods, PyTuple};
use smallvec::SmallVec;
use trunkline_wire::cdtp::{
    Accept, Batch, Layout, MessageType, Record, Settings, Variant, decode as decode_layout, encode_batch,
    encode_header, is_map,
};
use trunkline_wire::msgpack::Timestamp;
use trunkline_wire::{ErrorKind, Frames, msgpack as wire_msgpack};

use crate::errors::{DecodeError, LocalProtocolError, decode_error, naming};
use crate::fields;
use crate::frames::{self, Frame, counted};
use crate::msgpack;

/// Python objects made of the tags of a message: an empty map is one byte encoded, and some ninety in memory.
const MAX_OBJECTS: u64 = 1_000_000;

/// A message of CDTP, of any header.
#[pyclass(frozen, module = "trunkline.cdtp", name = "Message")]
pub(crate) struct Message {
    /// Frame 0. A record of a CDTP2 message shares it with the other records.
    header: Frame,
    payload: SmallVec<[Frame; 2]>,
    variant: Variant,
    /// Set for a record among others: `header` is shared then.
    among_others: bool,
    kind: Option<MessageType>,
    sender: Range<usize>,
    timestamp: Option<Timestamp>,
    sequence: Option<u64>,
    tags: Range<usize>,
    tags_are_read: AtomicBool,
    tags_object: PyOnceLock<Py<PyAny>>,
    payload_object: PyOnceLock<Py<PyTuple>>,
}

/// The messages of one CDTP2 wire message.
#[pyclass(frozen, sequence, module = "trunkline.cdtp", name = "Batch")]
pub(crate) struct PyBatch {
    frame: Bytes,
    batch: Arc<Batch>,
}

/// One header or several, by slug.
#[derive(FromPyObject)]
pub(crate) enum Headers {
    One(String),
    Several(Vec<String>),
}

impl Headers {
    pub(crate) fn slugs(&self) -> &[String] {
        match self {
            Self::One(slug) => slice::from_ref(slug),
            Self::Several(slugs) => slugs,
        }
    }
}

/// The messages of a batch that are asked for.
#[derive(FromPyObject)]
pub(crate) enum Index<'py> {
    One(isize),
    Slice(Bound<'py, PySlice>),
}

/// The settings of headers, for `decode` and a receiver.
pub(crate) fn settings(accept: &[String], strict: bool) -> PyResult<Settings> {
    let accept = accept.iter().map(|slug| variant(slug)).collect::<PyResult<Vec<_>>>()?;
    Ok(Settings { accept: accept.into_iter().collect::<Accept>(), strict })
}

pub(crate) fn variant(slug: &str) -> PyResult<Variant> {
    Variant::ALL.into_iter().find(|variant| variant.slug() == slug).ok_or_else(|| {
        PyValueError::new_err(format!("unknown CDTP header {slug:?}: choose \"S\", \"A\", \"B\" or \"2\""))
    })
}

pub(crate) fn timestamp(timestamp_ns: &Bound<'_, PyAny>) -> PyResult<Timestamp> {
    let beyond =
        || PyValueError::new_err(format!("timestamp_ns is out of range for a MessagePack timestamp: {timestamp_ns}"));
    match timestamp_ns.extract() {
        Ok(nanoseconds) => Timestamp::from_nanos(nanoseconds).ok_or_else(beyond),
        Err(error) if error.is_instance_of::<PyOverflowError>(timestamp_ns.py()) => Err(beyond()),
        Err(_) => {
            let kind = timestamp_ns.get_type().qualname()?;
            let text =
                format!("timestamp_ns takes nanoseconds since 1970, an int such as time.time_ns() returns, not {kind}");
            Err(PyTypeError::new_err(text))
        }
    }
}

/// A MessagePack map from Python's mapping, whose keys are strings; `argument` is the name of the argument in Python.
pub(crate) fn encoded_map(argument: &str, map: Option<&Bound<'_, PyAny>>) -> PyResult<Bytes> {
    let Some(map) = map else { return Ok(Bytes::from_static(&[0x80])) };
    let owned;
    let map = if let Ok(dict) = map.cast::<PyDict>() {
        dict
    } else {
        let Ok(items) = map.call_method0("items") else {
            let kind = map.get_type().qualname()?;
            return Err(PyTypeError::new_err(format!("{argument} takes a mapping of names to values, not {kind}")));
        };
        owned = PyDict::from_sequence(&items)?;
        &owned
    };
    for key in map.keys() {
        if !key.is_instance_of::<pyo3::types::PyString>() {
            return Err(PyTypeError::new_err(format!("{argument} takes strings as keys, not {}", key.repr()?)));
        }
    }
    let mut encoded = Vec::with_capacity(64);
    msgpack::from_dict(argument, map, &mut encoded)?;
    Ok(encoded.into())
}

impl Message {
    /// The message in these frames, which hold a single one.
    pub(crate) fn single(frames: impl IntoIterator<Item = Frame>, head: trunkline_wire::cdtp::Head) -> Self {
        let mut frames = frames.into_iter();
        Self {
            header: frames.next().unwrap_or(Frame::Native(Bytes::new())),
            payload: frames.collect(),
            variant: head.variant,
            among_others: false,
            kind: head.message_type,
            sender: head.sender,
            timestamp: head.timestamp,
            sequence: head.sequence,
            tags: head.tags,
            tags_are_read: AtomicBool::new(false),
            tags_object: PyOnceLock::new(),
            payload_object: PyOnceLock::new(),
        }
    }

    /// The message of a record in this frame.
    pub(crate) fn record(frame: &Bytes, batch: &Batch, record: &Record) -> Self {
        Self {
            header: Frame::Native(frame.clone()),
            payload: record.blocks(frame).map(|block| Frame::Native(frame.slice(block))).collect(),
            variant: Variant::Two,
            among_others: batch.records.len() > 1,
            kind: Some(batch.message_type),
            sender: batch.sender.clone(),
            timestamp: None,
            sequence: Some(record.sequence),
            tags: record.tags.clone(),
            tags_are_read: AtomicBool::new(false),
            tags_object: PyOnceLock::new(),
            payload_object: PyOnceLock::new(),
        }
    }

    fn sender_name(&self) -> &str {
        // The decoder has checked it.
        std::str::from_utf8(&self.header[self.sender.clone()]).unwrap_or_default()
    }

    fn tags_bytes(&self) -> &[u8] {
        &self.header[self.tags.clone()]
    }

    /// The frames of a wire message that holds only this one.
    fn wire(&self, py: Python<'_>) -> PyResult<Frames> {
        if self.variant != Variant::Two {
            return Ok(std::iter::once(&self.header).chain(&self.payload).map(|frame| frame.share(py)).collect());
        }
        if !self.among_others {
            return Ok(smallvec::smallvec![self.header.share(py)]);
        }
        let record = (self.sequence.unwrap_or_default(), self.tags_bytes(), &self.payload[..]);
        let message_type = self.kind.unwrap_or(MessageType::Dat);
        let frame = encode_batch(self.sender_name(), message_type, &[record]).map_err(oversize)?;
        Ok(smallvec::smallvec![frame.into()])
    }

    /// All that two equal messages share except the tags, which may be encoded in different ways.
    fn key(&self) -> impl Hash + Eq {
        let numbers = (self.timestamp, self.kind, self.sequence);
        (self.variant, self.sender_name(), numbers, &self.payload[..])
    }

    /// Whether the tags map has too many objects for Python.
    fn has_too_many_tags(&self) -> bool {
        has_too_many_objects(self.tags_bytes())
    }

    /// The map of a message of this type: A and B have it as their payload, CDTP2 as the tags of the record numbered 1.
    fn map_of<'py>(&self, py: Python<'py>, message_type: MessageType) -> PyResult<Option<Bound<'py, PyAny>>> {
        let map = match (self.variant, &self.payload[..]) {
            _ if self.kind != Some(message_type) => None,
            (Variant::Two, _) => (self.sequence == Some(1)).then(|| self.tags_bytes()),
            (_, [map, ..]) => Some(&map[..]).filter(|map| is_map(map)),
            _ => None,
        };
        let Some(map) = map else { return Ok(None) };
        if has_too_many_objects(map) {
            let meaning = format!("the map has more than {MAX_OBJECTS} objects");
            return Err(DecodeError::new_err(("cdtp", "too_many_objects", 0, 0, meaning)));
        }
        Ok(Some(msgpack::to_python(py, map)?.into_bound(py)))
    }

    /// The tags map, made anew.
    fn new_tags(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if self.has_too_many_tags() {
            let meaning = format!("the tags have more than {MAX_OBJECTS} objects");
            return Err(DecodeError::new_err(("cdtp", "too_many_objects", 0, self.tags.start, meaning)));
        }
        msgpack::to_python(py, self.tags_bytes())
    }

    /// The tags map, decoded on first use.
    fn tags_once<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyAny>> {
        Ok(self.tags_object.get_or_try_init(py, || self.new_tags(py))?.bind(py))
    }

    fn equals(&self, py: Python<'_>, other: &Self) -> PyResult<bool> {
        if self.key() != other.key() {
            return Ok(false);
        }
        if self.tags_bytes() == other.tags_bytes() || self.has_too_many_tags() || other.has_too_many_tags() {
            return Ok(self.tags_bytes() == other.tags_bytes());
        }
        self.tags_once(py)?.eq(other.tags_once(py)?)
    }
}

/// Whether a map has too many objects for Python.
fn has_too_many_objects(map: &[u8]) -> bool {
    let count = || wire_msgpack::Reader::new(map, ErrorKind::BadHeader).count();
    // Each takes a byte at least.
    map.len() as u64 > MAX_OBJECTS && count().is_ok_and(|count| count > MAX_OBJECTS)
}

/// A receiver would refuse what is to be sent or encoded.
pub(crate) fn no_message(kind: ErrorKind) -> PyErr {
    LocalProtocolError::new_err(format!("this would not be a valid message: {}", kind.slug()))
}

pub(crate) fn no_timestamp(variant: Variant) -> PyErr {
    LocalProtocolError::new_err(format!("header {} has no timestamp", variant.slug()))
}

fn oversize(error: wire_msgpack::Oversize) -> PyErr {
    LocalProtocolError::new_err(error.to_string())
}

#[pymethods]
impl Message {
    /// The positional fields of a `match` pattern.
    #[classattr]
    #[allow(non_upper_case_globals)] // the name is Python's
    const __match_args__: (&'static str, &'static str) = ("sender", "payload");

    /// All attributes, by name.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        fields::to_dict(slf.as_any())
    }

    #[new]
    #[pyo3(signature = (sender, payload = None, *, variant = "S", tags = None, timestamp_ns = None, r#type = None, sequence = None))]
    #[allow(clippy::too_many_arguments)] // the fields of a header
    fn new(
        sender: &str,
        payload: Option<&Bound<'_, PyAny>>,
        variant: &str,
        tags: Option<&Bound<'_, PyAny>>,
        timestamp_ns: Option<&Bound<'_, PyAny>>,
        r#type: Option<&str>,
        sequence: Option<u64>,
    ) -> PyResult<Self> {
        let variant = self::variant(variant)?;
        let tags = encoded_map("tags", tags)?;
        let payload = payload.map_or_else(|| Ok(SmallVec::new()), |payload| frames::one_or_more("payload", payload))?;
        let stamp = match timestamp_ns {
            Some(nanoseconds) => timestamp(nanoseconds)?,
            None if matches!(variant, Variant::S | Variant::A) => {
                return Err(LocalProtocolError::new_err(format!("header {} needs timestamp_ns", variant.slug())));
            }
            None => Timestamp::default(),
        };
        let message_type = match r#type {
            None => MessageType::Dat,
            Some(slug) => {
                MessageType::ALL.into_iter().find(|message_type| message_type.slug() == slug).ok_or_else(|| {
                    PyValueError::new_err(format!("unknown message type {slug:?} (choose BOR, DAT or EOR)"))
                })?
            }
        };
        if variant == Variant::S && (r#type.is_some() || sequence.is_some()) {
            return Err(LocalProtocolError::new_err("header S has neither type nor sequence"));
        }
        if matches!(variant, Variant::B | Variant::Two) && timestamp_ns.is_some() {
            return Err(no_timestamp(variant));
        }
        let sequence = sequence.unwrap_or_default();
        let mut wire = Frames::new();
        if variant == Variant::Two {
            let records = [(sequence, &tags[..], &payload[..])];
            wire.push(encode_batch(sender, message_type, &records).map_err(oversize)?.into());
        } else {
            let mut header = vec![];
            encode_header(&mut header, variant, sender, stamp, message_type, sequence, &tags).map_err(oversize)?;
            wire.push(header.into());
            wire.extend(payload);
        }
        match decode_layout(&wire, &Settings::default()) {
            Ok(Layout::Single(head)) => Ok(Self::single(wire.into_iter().map(Frame::Native), head)),
            Ok(Layout::Batch(batch)) => Ok(Self::record(&wire[0], &batch, &batch.records[0])),
            Err(error) => Err(no_message(error.kind)),
        }
    }

    /// The sender's name (CDTP-04).
    #[getter]
    fn sender(&self) -> &str {
        self.sender_name()
    }

    /// Which header it has: "S", "A", "B" or "2".
    #[getter]
    fn variant(&self) -> &'static str {
        self.variant.slug()
    }

    /// "BOR", "DAT" or "EOR"; None for S, which does not say.
    #[getter]
    fn r#type(&self) -> Option<&'static str> {
        self.kind.map(MessageType::slug)
    }

    /// The number in the run; None for S.
    #[getter]
    fn sequence(&self) -> Option<u64> {
        self.sequence
    }

    /// Nanoseconds since 1970; None if the header has no timestamp (B, 2).
    #[getter]
    fn timestamp_ns(&self) -> Option<i128> {
        self.timestamp.map(|time| i128::from(time.seconds()) * 1_000_000_000 + i128::from(time.nanoseconds()))
    }

    /// The tags map; a new one for each caller, since a message does not change.
    #[getter]
    fn tags<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // Most callers read it once: only later calls get copies of one that is kept.
        if !self.tags_are_read.swap(true, Ordering::Relaxed) {
            return Ok(self.new_tags(py)?.into_bound(py));
        }
        Ok(self.tags_once(py)?.cast::<PyDict>()?.copy()?.into_any())
    }

    /// The configuration in a BOR.
    #[getter]
    fn config<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.map_of(py, MessageType::Bor)
    }

    /// The metadata in an EOR.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.map_of(py, MessageType::Eor)
    }

    /// The payload as numbers, in one array, or one of its frames.
    #[pyo3(signature = (dtype = None, *, frame = None))]
    fn array<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        frame: Option<isize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let dtype = match dtype {
            Some(dtype) => Some(dtype),
            None => self.tags_once(py)?.get_item("dtype").ok(),
        };
        frames::array(py, self.payload.iter().map(|frame| frame.object(py)).collect(), dtype, frame)
    }

    /// The payload frames.
    #[getter]
    fn payload(&self, py: Python<'_>) -> PyResult<Py<PyTuple>> {
        let make = || PyTuple::new(py, self.payload.iter().map(|frame| frame.object(py))).map(Bound::unbind);
        Ok(self.payload_object.get_or_try_init(py, make)?.clone_ref(py))
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let (Ok(other), CompareOp::Eq | CompareOp::Ne) = (other.cast::<Self>(), op) else {
            return Ok(py.NotImplemented());
        };
        let equal = self.equals(py, other.get())?;
        (equal == matches!(op, CompareOp::Eq)).into_py_any(py)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.key().hash(&mut hasher);
        hasher.finish()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyTuple>,))> {
        let frames = frames::tuple(py, self.wire(py)?.iter())?;
        Ok((py.import("trunkline.cdtp")?.getattr("_restore")?, (frames,)))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let message_type = self.r#type().map_or_else(String::new, |slug| format!(", type={slug:?}"));
        let sequence = self.sequence.map_or_else(String::new, |sequence| format!(", sequence={sequence}"));
        let timestamp = self.timestamp_ns().map_or_else(String::new, |time| format!(", timestamp_ns={time}"));
        let bytes: usize = self.payload.iter().map(|frame| frame.len()).sum();
        let tags = if self.has_too_many_tags() {
            format!("<{}>", counted(self.tags.len(), "byte"))
        } else {
            self.tags_once(py)?.to_string()
        };
        Ok(format!(
            "Message({:?}, variant={:?}{message_type}{sequence}{timestamp}, tags={tags}, payload=<{}, {}>)",
            self.sender_name(),
            self.variant.slug(),
            counted(self.payload.len(), "frame"),
            counted(bytes, "byte"),
        ))
    }
}

impl PyBatch {
    pub(crate) fn new(frame: Bytes, batch: Batch) -> Self {
        Self { frame, batch: Arc::new(batch) }
    }

    fn message(&self, at: usize) -> Option<Message> {
        self.batch.records.get(at).map(|record| Message::record(&self.frame, &self.batch, record))
    }

    fn messages(&self) -> impl Iterator<Item = Message> {
        self.batch.records.iter().map(|record| Message::record(&self.frame, &self.batch, record))
    }

    fn is_at(&self, py: Python<'_>, at: usize, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        match (self.message(at), value.cast::<Message>()) {
            (Some(message), Ok(value)) => message.equals(py, value.get()),
            _ => Ok(false),
        }
    }
}

#[pymethods]
impl PyBatch {
    /// The positional fields of a `match` pattern.
    #[classattr]
    #[allow(non_upper_case_globals)] // the name is Python's
    const __match_args__: (&'static str, &'static str) = ("sender", "type");

    /// All attributes, by name.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        fields::to_dict(slf.as_any())
    }

    /// The sender's name (CDTP-04).
    #[getter]
    fn sender(&self) -> &str {
        std::str::from_utf8(&self.frame[self.batch.sender.clone()]).unwrap_or_default()
    }

    /// The type of all its records: "BOR", "DAT" or "EOR".
    #[getter]
    fn r#type(&self) -> &'static str {
        self.batch.message_type.slug()
    }

    fn __len__(&self) -> usize {
        self.batch.records.len()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: Index<'py>) -> PyResult<Bound<'py, PyAny>> {
        match index {
            Index::One(index) => {
                let length = self.batch.records.len();
                let at = if index < 0 { length.checked_add_signed(index) } else { usize::try_from(index).ok() };
                let message = at.and_then(|at| self.message(at));
                message.ok_or_else(|| PyIndexError::new_err("batch index out of range"))?.into_bound_py_any(py)
            }
            Index::Slice(slice) => {
                let PySliceIndices { start, step, slicelength, .. } =
                    slice.indices(self.batch.records.len().cast_signed())?;
                let at = (0..slicelength.cast_signed()).map(|number| (start + number * step).cast_unsigned());
                PyTuple::new(py, at.filter_map(|at| self.message(at)).collect::<Vec<_>>())?.into_bound_py_any(py)
            }
        }
    }

    /// The position of a message, of the first one if several are equal.
    #[pyo3(signature = (value, start = 0, stop = isize::MAX))]
    fn index(&self, py: Python<'_>, value: &Bound<'_, PyAny>, start: isize, stop: isize) -> PyResult<usize> {
        let length = self.batch.records.len();
        let bound = |at: isize| if at < 0 { length.saturating_add_signed(at) } else { at.cast_unsigned().min(length) };
        for at in bound(start)..bound(stop) {
            if self.is_at(py, at, value)? {
                return Ok(at);
            }
        }
        Err(PyValueError::new_err("the message is not in the batch"))
    }

    /// The number of messages equal to this one.
    fn count(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<usize> {
        let equal = (0..self.batch.records.len()).map(|at| self.is_at(py, at, value));
        equal.filter(|equal| !matches!(equal, Ok(false))).try_fold(0, |count, equal| equal.map(|_| count + 1))
    }

    fn __richcmp__(&self, py: Python<'_>, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let (Ok(other), CompareOp::Eq | CompareOp::Ne) = (other.cast::<Self>(), op) else {
            return Ok(py.NotImplemented());
        };
        let other = other.get();
        let (ours, theirs) = (&self.batch, &other.batch);
        let mut equal = ours.message_type == theirs.message_type
            && ours.records.len() == theirs.records.len()
            && self.sender() == other.sender();
        for (one, another) in self.messages().zip(other.messages()) {
            equal = equal && one.equals(py, &another)?;
        }
        (equal == matches!(op, CompareOp::Eq)).into_py_any(py)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.messages().for_each(|message| message.key().hash(&mut hasher));
        hasher.finish()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyTuple>,))> {
        let frames = frames::tuple(py, std::iter::once(&self.frame))?;
        Ok((py.import("trunkline.cdtp")?.getattr("_restore_batch")?, (frames,)))
    }

    fn __repr__(&self) -> String {
        let (sender, slug) = (self.sender(), self.batch.message_type.slug());
        format!("Batch({sender:?}, type={slug:?}, <{}>)", counted(self.batch.records.len(), "message"))
    }
}

/// The message in these frames: a `Message`, or a `Batch` for CDTP2.
#[pyfunction]
#[pyo3(signature = (frames, *, accept = None, strict = true))]
pub(crate) fn decode<'py>(
    py: Python<'py>,
    frames: &Bound<'py, PyAny>,
    accept: Option<Headers>,
    strict: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let settings = match accept {
        Some(accept) => settings(accept.slugs(), strict).map_err(|error| naming("accept", py, error))?,
        None => Settings { strict, ..Settings::default() },
    };
    let frames = frames::held("frames", frames)?;
    match decode_layout(&frames, &settings).map_err(|error| decode_error("cdtp", error))? {
        Layout::Single(head) => Message::single(frames, head).into_bound_py_any(py),
        Layout::Batch(batch) => PyBatch::new(frames[0].share(py), batch).into_bound_py_any(py),
    }
}

/// The messages in recorded frames, one for each record.
pub(crate) fn recorded<'py>(frames: &Bound<'py, PyAny>, _topic: Option<&str>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = frames.py();
    let message = decode(py, frames, None, false)?;
    match message.cast::<PyBatch>() {
        Ok(batch) => batch.get().messages().map(|message| message.into_bound_py_any(py)).collect(),
        Err(_) => Ok(vec![message]),
    }
}

/// The frames of a message or batch; of a decoded one, bit for bit.
#[pyfunction]
pub(crate) fn encode<'py>(message: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let py = message.py();
    if let Ok(batch) = message.cast::<PyBatch>() {
        return frames::tuple(py, std::iter::once(&batch.get().frame));
    }
    let Ok(message) = message.cast::<Message>() else {
        let kind = message.get_type().qualname()?;
        return Err(PyTypeError::new_err(format!("message takes a Message or a Batch, not {kind}")));
    };
    let message = message.get();
    if message.variant == Variant::Two {
        return frames::tuple(py, message.wire(py)?.iter());
    }
    let header = message.header.object(py).into_any();
    let payload = message.payload(py)?.into_bound(py);
    PyTuple::new(py, std::iter::once(header).chain(payload).collect::<Vec<_>>())
}

/// A pickled message.
#[pyfunction]
#[pyo3(name = "_restore")]
pub(crate) fn restore(frames: &Bound<'_, PyAny>) -> PyResult<Message> {
    let frames = frames::frames("frames", frames)?;
    let settings = Settings { strict: false, ..Settings::default() };
    let layout = decode_layout(&frames, &settings).map_err(|error| decode_error("cdtp", error))?;
    match layout {
        Layout::Single(head) => Some(Message::single(frames.into_iter().map(Frame::Native), head)),
        Layout::Batch(batch) => batch.records.first().map(|record| Message::record(&frames[0], &batch, record)),
    }
    .ok_or_else(|| PyValueError::new_err("not a message"))
}

/// A pickled batch.
#[pyfunction]
#[pyo3(name = "_restore_batch")]
pub(crate) fn restore_batch(frames: &Bound<'_, PyAny>) -> PyResult<PyBatch> {
    let frames = frames::frames("frames", frames)?;
    let settings = Settings { strict: false, ..Settings::default() };
    match decode_layout(&frames, &settings).map_err(|error| decode_error("cdtp", error))? {
        Layout::Batch(batch) => Ok(PyBatch::new(frames[0].clone(), batch)),
        Layout::Single(_) => Err(PyValueError::new_err("not a batch")),
    }
}
