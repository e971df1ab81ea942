//! `trunkline.cdt.ConfigRequest` and the other messages.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use pyo3::IntoPyObjectExt;
use pyo3::basic::CompareOp;
use pyo3::exceptions::{PyOSError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use trunkline_wire::Fault;
use trunkline_wire::cdt::{self, BytesEncoding, Codec, Content, Kind, Message, Received, Settings};

use super::held::Held;
use crate::errors::{LocalProtocolError, decode_error};
use crate::frames::{self, Frame, counted};

/// A message from its fields.
fn built(kind: Kind, fields: Option<&Bound<'_, PyDict>>) -> PyResult<Held> {
    let mut message = Message { kind, timeout_ms: -1, ..Message::default() };
    message.correlation_id = Cow::Owned(random_id()?);
    message.timestamp_ms = now_ms();
    if matches!(kind, Kind::ConfigRequest | Kind::ConfigPush) {
        message.endpoint_message_id = Cow::Owned(random_id()?);
    }
    if kind.has_status() {
        message.status_code = 200;
    }
    for (name, value) in fields.into_iter().flatten() {
        let name: String = name.extract()?;
        let text = |held: &mut Cow<'static, str>| {
            if !value.is_none() {
                let text: String = value.extract().map_err(|_| wrong(&name, "a str", &value))?;
                *held = Cow::Owned(text);
            }
            PyResult::Ok(())
        };
        let number = || value.extract::<i64>().map_err(|_| wrong(&name, "a whole number", &value));
        let is_event = kind.is_event();
        match name.as_str() {
            "correlation_id" => text(&mut message.correlation_id)?,
            "timestamp_ms" if value.is_none() => {}
            "timestamp_ms" => message.timestamp_ms = number()?,
            "timeout_ms" => message.timeout_ms = number()?,
            "endpoint_message_id" if !is_event => text(&mut message.endpoint_message_id)?,
            "app_version_name" => text(&mut message.app_version_name)?,
            "endpoint_id" => text(&mut message.endpoint_id)?,
            "config_id" => text(&mut message.config_id)?,
            "content_type" if kind.has_content() => text(&mut message.content_type)?,
            "status_code" if kind.has_status() => {
                message.status_code = value.extract().map_err(|_| wrong(&name, "an HTTP status", &value))?;
            }
            "reason_phrase" if kind.has_status() => text(&mut message.reason_phrase)?,
            "originator_replica_id" if is_event => text(&mut message.originator_replica_id)?,
            "content" if kind.has_content() => {
                if !value.is_none() {
                    message.content = Some(frames::frame("content", &value)?.into());
                }
            }
            other => {
                let message = format!("{}() got an unexpected keyword argument {other:?}", kind.name());
                return Err(PyTypeError::new_err(message));
            }
        }
    }
    // The other side must accept what is sent; it takes any content.
    let content = message.content.take().map(Content::into_bytes);
    message.content = content.as_ref().map(|content| content.slice(..content.len().min(1)).into());
    let body = cdt::encode(&message, &Settings::default());
    if let Err(rejected) = cdt::decode(&body, kind, &Settings::default()) {
        let meaning = rejected.fault.kind.meaning();
        let field = rejected.field.map_or_else(|| kind.name().to_owned(), snake_case);
        return Err(LocalProtocolError::new_err(format!("{field}: {meaning}")));
    }
    message.content = content.map(Content::from);
    Ok(Held::built(message))
}

fn wrong(name: &str, expected: &str, value: &Bound<'_, PyAny>) -> PyErr {
    let given = value.get_type().name().map_or_else(|_| String::new(), |name| name.to_string());
    PyTypeError::new_err(format!("{name} must be {expected}, not {given}"))
}

/// A field as Python names it.
fn snake_case(field: &str) -> String {
    let name = field.chars().fold(String::new(), |mut name, char| {
        if char.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(char.to_ascii_lowercase());
        name
    });
    match name.as_str() {
        "timestamp" | "event_timestamp" => "timestamp_ms".to_owned(),
        "timeout" => "timeout_ms".to_owned(),
        _ => name,
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A UUID of version 4.
fn random_id() -> PyResult<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| PyOSError::new_err(error.to_string()))?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

fn optional(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn hash(held: &Held) -> u64 {
    let mut hasher = DefaultHasher::new();
    let message = held.message();
    (message.correlation_id.as_ref(), message.timestamp_ms, message.config_id.as_ref()).hash(&mut hasher);
    hasher.finish()
}

/// How a body was read: its codec, the encoding of bytes, and whether strictly; and the sender of an event.
type Read<'a> = (&'static str, &'static str, bool, Option<&'a str>);

/// How a message is pickled: its kind, its body, and how that was read; as JSON if it was built.
type Reduced<'py, 'a> = (Bound<'py, PyAny>, (&'static str, Bound<'py, PyBytes>, Option<Read<'a>>));

fn reduced<'py, 'a>(py: Python<'py>, held: &'a Held) -> PyResult<Reduced<'py, 'a>> {
    let read = held.settings().map(|settings| {
        let codec = match settings.codec {
            Codec::Json => "json",
            Codec::Avro => "avro",
        };
        let bytes_encoding = match settings.bytes_encoding {
            BytesEncoding::Base64 => "base64",
            BytesEncoding::Latin1 => "latin1",
        };
        (codec, bytes_encoding, settings.strict, held.originator())
    });
    let body = held.encoded(py, held.settings().unwrap_or_default())?;
    let restore = py.import("trunkline.cdt")?.getattr("_restore")?;
    Ok((restore, (held.message().kind.name(), body, read)))
}

macro_rules! messages {
    ($($class:ident $kind:ident $name:literal $signature:literal { $($(#[$doc:meta])* $getter:ident($message:ident) -> $type:ty = $get:expr;)* $(@ $(#[$more:meta])* $of_held:ident($held:ident) -> $kept:ty = $look:expr;)* $(+ $array:ident;)? })*) => {
        $(
            #[doc = concat!("A `", $name, "` of CDT.")]
            #[pyclass(frozen, module = "trunkline.cdt", name = $name)]
            pub(crate) struct $class(Held);

            #[pymethods]
            impl $class {
                #[new]
                #[pyo3(signature = (**fields), text_signature = $signature)]
                fn new(fields: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
                    built(Kind::$kind, fields).map(Self)
                }

                /// The positional fields of a `match` pattern.
                #[classattr]
                #[allow(non_upper_case_globals)] // the name is Python's
                const __match_args__: (&'static str, &'static str) = ("app_version_name", "endpoint_id");

                /// All attributes, by name.
                fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
                    crate::fields::to_dict(slf.as_any())
                }

                /// The id for tracing messages; an answer has that of its request (CDT-12, CDT-21).
                #[getter]
                fn correlation_id(&self) -> &str {
                    &self.0.message().correlation_id
                }

                /// When the message was made: Unix time in milliseconds (CDT-13).
                #[getter]
                fn timestamp_ms(&self) -> i64 {
                    self.0.message().timestamp_ms
                }

                /// How long it is valid from then on, in milliseconds; -1 means indefinitely (CDT-14, CDT-33).
                #[getter]
                fn timeout_ms(&self) -> i64 {
                    self.0.message().timeout_ms
                }

                /// The version of the application (CDT-16).
                #[getter]
                fn app_version_name(&self) -> &str {
                    &self.0.message().app_version_name
                }

                /// The id of the endpoint (CDT-17).
                #[getter]
                fn endpoint_id(&self) -> &str {
                    &self.0.message().endpoint_id
                }

                $(
                    $(#[$doc])*
                    #[getter]
                    fn $getter(&self) -> $type {
                        let $message = self.0.message();
                        $get
                    }
                )*

                $(
                    $(#[$more])*
                    #[getter]
                    fn $of_held(&self) -> $kept {
                        let $held = &self.0;
                        $look
                    }
                )*

                $(
                    /// The content as numbers, in one array.
                    #[pyo3(signature = (dtype = None, *, frame = None))]
                    fn $array<'py>(
                        &self,
                        py: Python<'py>,
                        dtype: Option<Bound<'py, PyAny>>,
                        frame: Option<isize>,
                    ) -> PyResult<Bound<'py, PyAny>> {
                        let content = self.0.message().content.as_deref();
                        frames::array(py, content.map(|content| PyBytes::new(py, content)).into_iter().collect(), dtype, frame)
                    }
                )?

                fn __richcmp__<'py>(&self, other: &Bound<'py, PyAny>, op: CompareOp) -> PyResult<Bound<'py, PyAny>> {
                    let py = other.py();
                    let is_equal = other.cast::<Self>().ok().map(|other| other.get().0.message() == self.0.message());
                    match (is_equal, op) {
                        (Some(is_equal), CompareOp::Eq) => is_equal.into_bound_py_any(py),
                        (Some(is_equal), CompareOp::Ne) => (!is_equal).into_bound_py_any(py),
                        _ => Ok(py.NotImplemented().into_bound(py)),
                    }
                }

                fn __hash__(&self) -> u64 {
                    hash(&self.0)
                }

                fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Reduced<'py, '_>> {
                    reduced(py, &self.0)
                }

                fn __repr__(&self) -> String {
                    shown(self.0.message())
                }
            }
        )*

        fn object(py: Python<'_>, held: Held) -> PyResult<Bound<'_, PyAny>> {
            match held.message().kind {
                $(Kind::$kind => $class(held).into_bound_py_any(py),)*
            }
        }

        fn encoded<'py>(message: &Bound<'py, PyAny>, settings: Settings) -> PyResult<Bound<'py, PyBytes>> {
            $(
                if let Ok(said) = message.cast::<$class>() {
                    return said.get().0.encoded(message.py(), settings);
                }
            )*
            Err(PyTypeError::new_err(format!("message must be a message of CDT, not {}", message.get_type().name()?)))
        }
    };
}

messages! {
    PyConfigRequest ConfigRequest "ConfigRequest" "(*, correlation_id=None, timestamp_ms=None, timeout_ms=-1, endpoint_message_id=None, app_version_name, endpoint_id, config_id=None)" {
        /// The id of the endpoint's own message (CDT-15).
        endpoint_message_id(message) -> &str = &message.endpoint_message_id;
        /// The id of the configuration; None for the current one (CDT-18).
        config_id(message) -> Option<&str> = optional(&message.config_id);
    }
    PyConfigResponse ConfigResponse "ConfigResponse" "(*, correlation_id=None, timestamp_ms=None, timeout_ms=-1, endpoint_message_id='', app_version_name='', endpoint_id='', config_id='', content_type='', status_code=200, reason_phrase=None, content=None)" {
        /// The id of the endpoint's own message (CDT-23).
        endpoint_message_id(message) -> &str = &message.endpoint_message_id;
        /// The id of the configuration; on failure that of the request, or empty (CDT-25).
        config_id(message) -> &str = &message.config_id;
        /// The type of the content (CDT-24).
        content_type(message) -> &str = &message.content_type;
        /// An HTTP status (CDT-26).
        status_code(message) -> i32 = message.status_code;
        /// The reason for the status; None if not given (CDT-27).
        reason_phrase(message) -> Option<&str> = optional(&message.reason_phrase);
        /// The configuration itself; None if absent (CDT-28).
        content(message) -> Option<Cow<'_, [u8]>> = message.content.as_deref().map(Cow::Borrowed);
        + array;
    }
    PyConfigPush ConfigPush "ConfigPush" "(*, correlation_id=None, timestamp_ms=None, timeout_ms=-1, endpoint_message_id=None, app_version_name, endpoint_id, config_id=None, content_type='', content=None)" {
        /// The id of the endpoint's own message.
        endpoint_message_id(message) -> &str = &message.endpoint_message_id;
        /// The id of the configuration; None: the target derives it from the content.
        config_id(message) -> Option<&str> = optional(&message.config_id);
        /// The type of the content.
        content_type(message) -> &str = &message.content_type;
        /// The configuration itself; None to return to an earlier one.
        content(message) -> Option<Cow<'_, [u8]>> = message.content.as_deref().map(Cow::Borrowed);
        + array;
    }
    PyConfigPushResponse ConfigPushResponse "ConfigPushResponse" "(*, correlation_id=None, timestamp_ms=None, timeout_ms=-1, endpoint_message_id='', app_version_name='', endpoint_id='', config_id='', status_code=200, reason_phrase=None)" {
        /// The id of the endpoint's own message.
        endpoint_message_id(message) -> &str = &message.endpoint_message_id;
        /// The id of the configuration at the target.
        config_id(message) -> &str = &message.config_id;
        /// An HTTP status.
        status_code(message) -> i32 = message.status_code;
        /// The reason for the status; None if not given.
        reason_phrase(message) -> Option<&str> = optional(&message.reason_phrase);
    }
    PyConfigNewAvailable ConfigNewAvailable "ConfigNewAvailable" "(*, correlation_id=None, timestamp_ms=None, timeout_ms=-1, app_version_name, endpoint_id, config_id, originator_replica_id=None, content_type=None, content=None)" {
        /// The id of the configuration (CDT-41).
        config_id(message) -> &str = &message.config_id;
        /// The replica that sent it; None if not given (CDT-44).
        originator_replica_id(message) -> Option<&str> = optional(&message.originator_replica_id);
        /// The type of the content; None if absent (CDT-45).
        content_type(message) -> Option<&str> = optional(&message.content_type);
        /// The configuration itself; None if it must be pulled (CDT-45).
        content(message) -> Option<Cow<'_, [u8]>> = message.content.as_deref().map(Cow::Borrowed);
        @ /// The service that sent it, from the subject it came by; None for one that was not received.
        originator(held) -> Option<&str> = held.originator();
        + array;
    }
    PyConfigUpdated ConfigUpdated "ConfigUpdated" "(*, correlation_id=None, timestamp_ms=None, timeout_ms=-1, app_version_name, endpoint_id, config_id, originator_replica_id=None)" {
        /// The id of the configuration (CDT-41).
        config_id(message) -> &str = &message.config_id;
        /// The replica that sent it; None if not given (CDT-44).
        originator_replica_id(message) -> Option<&str> = optional(&message.originator_replica_id);
        @ /// The service that sent it, from the subject it came by; None for one that was not received.
        originator(held) -> Option<&str> = held.originator();
    }
}

fn shown(message: &Message<'_>) -> String {
    let mut said = vec![
        format!("app_version_name={:?}", message.app_version_name),
        format!("endpoint_id={:?}", message.endpoint_id),
        format!("config_id={:?}", message.config_id),
    ];
    if message.kind.has_status() {
        said.push(format!("status_code={}", message.status_code));
    }
    said.extend(message.content.as_ref().map(|content| format!("content=<{}>", counted(content.len(), "byte"))));
    format!("{}({})", message.kind.name(), said.join(", "))
}

/// A received message, as Python's object.
pub(super) fn spoken(py: Python<'_>, received: Received) -> PyResult<Bound<'_, PyAny>> {
    object(py, Held::received(received))
}

pub(super) fn codec(name: &str) -> PyResult<Codec> {
    match name {
        "json" => Ok(Codec::Json),
        "avro" => Ok(Codec::Avro),
        other => Err(PyValueError::new_err(format!("codec must be 'json' or 'avro', not {other:?}"))),
    }
}

pub(super) fn bytes_encoding(name: &str) -> PyResult<BytesEncoding> {
    match name {
        "base64" => Ok(BytesEncoding::Base64),
        "latin1" => Ok(BytesEncoding::Latin1),
        other => Err(PyValueError::new_err(format!("bytes_encoding must be 'base64' or 'latin1', not {other:?}"))),
    }
}

fn kind_of(name: &str) -> PyResult<Kind> {
    Kind::named(name).ok_or_else(|| {
        let known: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        PyValueError::new_err(format!("message_type must be one of {}, not {name:?}", known.join(", ")))
    })
}

/// Decodes a message from a body.
#[pyfunction]
#[pyo3(signature = (body, message_type, *, codec = "json", bytes_encoding = "base64", strict = true))]
pub(crate) fn decode<'py>(
    body: &Bound<'py, PyAny>,
    message_type: &str,
    codec: &str,
    bytes_encoding: &str,
    strict: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let kind = kind_of(message_type)?;
    let (codec, bytes_encoding) = (self::codec(codec)?, self::bytes_encoding(bytes_encoding)?);
    let settings = Settings { codec, bytes_encoding, strict, kind: None };
    let held = Held::decoded(Frame::of("body", body)?, kind, settings);
    object(body.py(), held.map_err(|fault| decode_error("cdt", fault.in_frame(0)))?)
}

/// Encodes the body of a message; that of a decoded one bit for bit, in the codec it was decoded from.
#[pyfunction]
#[pyo3(signature = (message, *, codec = "json", bytes_encoding = "base64"))]
pub(crate) fn encode<'py>(
    message: &Bound<'py, PyAny>,
    codec: &str,
    bytes_encoding: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let (codec, bytes_encoding) = (self::codec(codec)?, self::bytes_encoding(bytes_encoding)?);
    let settings = Settings { codec, bytes_encoding, ..Settings::default() };
    encoded(message, settings)
}

/// Decodes a message from recorded frames, if its subject gives its type.
pub(crate) fn recorded<'py>(frames: &Bound<'py, PyAny>, topic: Option<&str>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let mut held = frames::held("frames", frames)?;
    let parsed = topic.map(cdt::subject::parse).unwrap_or_default();
    let body = held.pop().unwrap_or_else(|| Frame::Native(Bytes::new()));
    // An empty answer reports that the request had no responder.
    let kind = parsed.kind.filter(|_| !(body.is_empty() && parsed.replica.is_some()));
    let Some(kind) = kind else { return Ok(vec![]) };
    let at = held.len();
    // Whichever codec it was recorded with: JSON begins as no sensible Avro does.
    let mut settings = Settings { strict: false, ..Settings::default() };
    if !body.starts_with(b"{") {
        settings.codec = Codec::Avro;
    }
    let held = Held::decoded(body, kind, settings).map_err(|fault| decode_error("cdt", fault.in_frame(at)))?;
    Ok(vec![object(frames.py(), held)?])
}

/// Restores a pickled message.
#[pyfunction]
#[pyo3(name = "_restore", signature = (kind, body, read = None))]
pub(crate) fn restore<'py>(
    py: Python<'py>,
    kind: &str,
    body: &Bound<'py, PyBytes>,
    read: Option<(String, String, bool, Option<String>)>,
) -> PyResult<Bound<'py, PyAny>> {
    let kind = kind_of(kind)?;
    let invalid = |fault: Fault| decode_error("cdt", fault.in_frame(0));
    let Some((codec, bytes_encoding, strict, originator)) = read else {
        let message = cdt::decode(body.as_bytes(), kind, &Settings::default());
        return object(py, Held::built(message.map_err(|rejected| invalid(rejected.fault))?.into_owned()));
    };
    let (codec, bytes_encoding) = (self::codec(&codec)?, self::bytes_encoding(&bytes_encoding)?);
    let settings = Settings { codec, bytes_encoding, strict, kind: None };
    let held = Held::decoded(Frame::of("body", body.as_any())?, kind, settings).map_err(invalid)?;
    object(py, held.sent_by(originator.map(String::into_boxed_str)))
}
