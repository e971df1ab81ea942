//! MessagePack between bytes and Python's own objects.

use pyo3::IntoPyObjectExt;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDateTime, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use trunkline_wire::msgpack::{self as wire, MAX_DEPTH, Reader, Value};
use trunkline_wire::{ErrorKind, Fault};

use crate::errors::{decode_error, naming};
use crate::frames;
use crate::names::name;
use crate::scalars::{Scalar, scalar};

/// Turns the bytes of one object into Python's.
pub(crate) fn to_python(py: Python<'_>, bytes: &[u8]) -> PyResult<Py<PyAny>> {
    let mut reader = Reader::new(bytes, ErrorKind::BadHeader);
    let object = read(py, &mut reader, 0)?;
    if reader.rest().is_empty() {
        Ok(object.unbind())
    } else {
        Err(fault(Fault { kind: ErrorKind::TrailingBytes, offset: reader.position() }))
    }
}

/// Appends a `dict` to `out`, in the fewest bytes; an error about a value names its key and `argument`, the name of the
/// argument in Python.
pub(crate) fn from_dict(argument: &str, dict: &Bound<'_, PyDict>, out: &mut Vec<u8>) -> PyResult<()> {
    let py = dict.py();
    wire::write_map(out, dict.len()).map_err(oversize)?;
    dict.iter().try_for_each(|(key, value)| {
        write(&key, out, 1)?;
        write(&value, out, 1).map_err(|error| match key.repr() {
            Ok(key) => naming(&format!("{argument}[{key}]"), py, error),
            Err(error) => error,
        })
    })
}

/// `trunkline.msgpack.decode`.
#[pyfunction]
pub(crate) fn decode(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    match data.cast::<PyBytes>() {
        Ok(bytes) => to_python(py, bytes.as_bytes()),
        Err(_) => to_python(py, &frames::frame("data", data)?),
    }
}

/// `trunkline.msgpack.encode`.
#[pyfunction]
pub(crate) fn encode<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = Vec::new();
    write(value, &mut out, 0)?;
    Ok(PyBytes::new(value.py(), &out))
}

fn fault(fault: Fault) -> PyErr {
    decode_error("msgpack", fault.in_frame(0))
}

fn read<'py>(py: Python<'py>, reader: &mut Reader<'_>, depth: usize) -> PyResult<Bound<'py, PyAny>> {
    let start = reader.position();
    let nested = |members: u32| {
        if depth < MAX_DEPTH { Ok(members) } else { Err(fault(Fault { kind: ErrorKind::TooDeep, offset: start })) }
    };
    match reader.value().map_err(fault)? {
        Value::Nil => Ok(py.None().into_bound(py)),
        Value::Boolean(value) => value.into_bound_py_any(py),
        Value::Signed(value) => value.into_bound_py_any(py),
        Value::Unsigned(value) => value.into_bound_py_any(py),
        Value::F32(value) => f64::from(value).into_bound_py_any(py),
        Value::F64(value) => value.into_bound_py_any(py),
        Value::String(value) => Ok(PyString::new(py, value).into_any()),
        Value::Binary(value) => Ok(PyBytes::new(py, value).into_any()),
        Value::Array(members) => {
            let list = PyList::empty(py);
            for _ in 0..nested(members)? {
                list.append(read(py, reader, depth + 1)?)?;
            }
            Ok(list.into_any())
        }
        Value::Map(pairs) => read_map(py, reader, nested(pairs)?, depth + 1),
        Value::Timestamp(value) => timestamp_class(py)?.call1((value.seconds(), value.nanoseconds())),
        Value::Ext(code, data) => ext_class(py)?.call1((code, PyBytes::new(py, data))),
    }
}

/// A `dict`, or a list of pairs from the first key on that a `dict` cannot hold.
fn read_map<'py>(py: Python<'py>, reader: &mut Reader<'_>, pairs: u32, depth: usize) -> PyResult<Bound<'py, PyAny>> {
    let dict = PyDict::new(py);
    let mut numbers = Numbers::default();
    for read_pairs in 0..pairs {
        let (key, is_foreign) = if let Some(wire::Head::String(_)) = reader.peek() {
            (name(py, reader.string(ErrorKind::BadMapKey).map_err(fault)?).into_any(), false)
        } else {
            let key = read(py, reader, depth)?;
            let is_unhashable = key.is_instance_of::<PyList>() || key.is_instance_of::<PyDict>();
            let is_foreign = is_unhashable || (numbers.add(&key) && dict.contains(&key)?);
            (key, is_foreign)
        };
        if is_foreign {
            let list = PyList::new(py, dict.items())?;
            list.append((key, read(py, reader, depth)?))?;
            for _ in read_pairs + 1..pairs {
                list.append((read(py, reader, depth)?, read(py, reader, depth)?))?;
            }
            return Ok(list.into_any());
        }
        dict.set_item(key, read(py, reader, depth)?)?;
    }
    Ok(dict.into_any())
}

/// The kinds of numbers among the keys of a map: Python treats 1, 1.0 and True as equal, and 0.0 and -0.0.
#[derive(Default)]
struct Numbers(u8);

impl Numbers {
    /// Whether there is more than one kind now, so that equal keys may be different ones.
    fn add(&mut self, key: &Bound<'_, PyAny>) -> bool {
        self.0 |= if key.is_instance_of::<PyBool>() {
            1
        } else if key.is_instance_of::<PyInt>() {
            2
        } else if let Ok(float) = key.cast::<PyFloat>() {
            if float.value().is_sign_negative() { 4 } else { 8 }
        } else {
            0
        };
        self.0.count_ones() > 1
    }
}

fn write(object: &Bound<'_, PyAny>, out: &mut Vec<u8>, depth: usize) -> PyResult<()> {
    let py = object.py();
    if let Ok(value) = object.cast::<PyString>() {
        wire::write_string(out, value.to_str()?).map_err(oversize)
    } else if let Ok(value) = object.cast::<PyBool>() {
        wire::write_bool(out, value.is_true());
        Ok(())
    } else if object.is_instance_of::<PyInt>() {
        write_integer(object, out)
    } else if let Ok(value) = object.cast::<PyFloat>() {
        wire::write_f64(out, value.value());
        Ok(())
    } else if object.is_none() {
        wire::write_nil(out);
        Ok(())
    } else if let Ok(value) = object.cast::<PyBytes>() {
        wire::write_binary(out, value.as_bytes()).map_err(oversize)
    } else if let Ok(dict) = object.cast::<PyDict>() {
        wire::write_map(out, dict.len()).map_err(oversize)?;
        let depth = deeper(depth)?;
        dict.iter().try_for_each(|(key, value)| {
            write(&key, out, depth)?;
            write(&value, out, depth)
        })
    } else if let Ok(list) = object.cast::<PyList>() {
        wire::write_array(out, list.len()).map_err(oversize)?;
        let depth = deeper(depth)?;
        list.iter().try_for_each(|member| write(&member, out, depth))
    } else if let Ok(tuple) = object.cast::<PyTuple>() {
        wire::write_array(out, tuple.len()).map_err(oversize)?;
        let depth = deeper(depth)?;
        tuple.iter().try_for_each(|member| write(&member, out, depth))
    } else if object.is_instance(timestamp_class(py)?)? {
        let seconds = object.getattr(intern!(py, "seconds"))?.extract()?;
        let nanoseconds = object.getattr(intern!(py, "nanoseconds"))?.extract()?;
        let timestamp = wire::Timestamp::new(seconds, nanoseconds)
            .ok_or_else(|| PyValueError::new_err("the nanoseconds of a timestamp must be less than a second"))?;
        wire::write_timestamp(out, timestamp);
        Ok(())
    } else if object.is_instance(ext_class(py)?)? {
        let data = PyBuffer::<u8>::get(&object.getattr(intern!(py, "data"))?)?.to_vec(py)?;
        wire::write_ext(out, object.getattr(intern!(py, "code"))?.extract()?, &data).map_err(oversize)
    } else {
        write_other(object, out)
    }
}

/// Python has integers of any size, MessagePack those of 64 bits.
fn write_integer(object: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    if let Ok(value) = object.extract::<i64>() {
        wire::write_signed(out, value);
    } else if let Ok(value) = object.extract::<u64>() {
        wire::write_unsigned(out, value);
    } else {
        return Err(PyOverflowError::new_err(format!("MessagePack integers have 64 bits, too few for {object}")));
    }
    Ok(())
}

/// An object that behaves like a number or like bytes: a scalar of `NumPy`, a bytearray.
fn write_other(object: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    let py = object.py();
    match scalar(object)? {
        Some(Scalar::Bool(value)) => wire::write_bool(out, value),
        Some(Scalar::Int(value)) => write_integer(&value, out)?,
        Some(Scalar::Float(value)) => wire::write_f64(out, value),
        // An array of bytes is still an array.
        None if object.hasattr(intern!(py, "__float__"))? => return Err(foreign(object)),
        None => match PyBuffer::<u8>::get(object) {
            Ok(buffer) => wire::write_binary(out, &buffer.to_vec(py)?).map_err(oversize)?,
            Err(_) => return Err(foreign(object)),
        },
    }
    Ok(())
}

/// The object has no MessagePack type; says what to do.
fn foreign(object: &Bound<'_, PyAny>) -> PyErr {
    let kind = object.get_type();
    let (Ok(name), Ok(module)) = (kind.qualname(), kind.module()) else {
        return PyTypeError::new_err("MessagePack has no such object");
    };
    let has = |method: &str| object.hasattr(method).unwrap_or(false);
    let (name, is_time) = (name.to_string(), module == "datetime" || object.is_instance_of::<PyDateTime>());
    let advice = if (is_time && name != "timedelta") || name == "datetime64" {
        "use trunkline.msgpack.Timestamp(seconds, nanoseconds)"
    } else if has("__array__") && has("__len__") {
        "use its tolist(), or its tobytes()"
    } else if has("__float__") {
        "use float() of it if that is exact enough, else str()"
    } else {
        "use None, bool, int, float, str, bytes, list, dict, trunkline.msgpack.Timestamp or Ext"
    };
    PyTypeError::new_err(format!("MessagePack has no {name}: {advice}"))
}

/// One level deeper, if readers still accept it.
fn deeper(depth: usize) -> PyResult<usize> {
    if depth < MAX_DEPTH {
        Ok(depth + 1)
    } else {
        Err(PyValueError::new_err(format!("more than {MAX_DEPTH} maps and arrays inside each other")))
    }
}

fn oversize(oversize: wire::Oversize) -> PyErr {
    PyValueError::new_err(oversize.to_string())
}

fn ext_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "trunkline.msgpack", "Ext")
}

fn timestamp_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.import(py, "trunkline.msgpack", "Timestamp")
}
