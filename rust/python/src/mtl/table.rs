//! Field tables between Python and Rust, converted directly.

use bytes::Bytes;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDateTime, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType, PyTzInfo,
};
use smallvec::SmallVec;
use trunkline_wire::Fault;
use trunkline_wire::mtl::table::{self, Array, Table, Unwritable, Value, Writer};

use crate::errors::{LocalProtocolError, decode_error};
use crate::frames;
use crate::names::name_of_bytes;
use crate::scalars::{Scalar, scalar};

fn decimal(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static DECIMAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    DECIMAL.import(py, "decimal", "Decimal")
}

/// The time that others are computed from.
fn epoch(py: Python<'_>) -> PyResult<&Bound<'_, PyDateTime>> {
    static EPOCH: PyOnceLock<Py<PyDateTime>> = PyOnceLock::new();
    let epoch = || PyDateTime::from_timestamp(py, 0.0, Some(&*PyTzInfo::utc(py)?)).map(Bound::unbind);
    Ok(EPOCH.get_or_try_init(py, epoch)?.bind(py))
}

/// A table without fields.
const EMPTY: &[u8] = &[0; 4];

/// The second after the last that Python has a date for.
const AFTER_TIME: u64 = 253_402_300_800;

/// Pickle's form of a time in UTC: the year in two bytes, then month, day, hour, minute, second, and no microseconds.
fn pickled(seconds: u64) -> [u8; 10] {
    let [second, minute, hour] = [seconds % 60, seconds / 60 % 60, seconds / 3600 % 24];
    // Years begin in March here, so that a leap day is their last; eras are of 400 years (Hinnant, days_from_civil).
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    let year = era * 400 + year_of_era + u64::from(month < 3);
    #[allow(clippy::cast_possible_truncation)] // none is above 255 up to the year 9999
    [year / 256, year % 256, month, day, hour, minute, second, 0, 0, 0].map(|part| part as u8)
}

/// Why there is no value.
enum Trouble {
    /// These bytes are not a table.
    Fault,
    Python(PyErr),
}

impl From<Fault> for Trouble {
    fn from(_: Fault) -> Self {
        Self::Fault
    }
}

impl From<PyErr> for Trouble {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

/// From text: the fastest way to make one.
fn decimal_to_python(py: Python<'_>, places: u8, digits: i32) -> PyResult<Bound<'_, PyAny>> {
    // Room for 256 digits, a point and a sign, written from the end.
    let (mut text, mut at) = ([0; 258], 258);
    let mut put = |byte| {
        at -= 1;
        text[at] = byte;
    };
    let (mut left, mut written) = (digits.unsigned_abs(), 0);
    while left > 0 || written <= places.into() {
        #[allow(clippy::cast_possible_truncation)] // it is below 10
        put(b'0' + (left % 10) as u8);
        (left, written) = (left / 10, written + 1);
        if written == u32::from(places) {
            put(b'.');
        }
    }
    if digits < 0 {
        put(b'-');
    }
    decimal(py)?.call1((PyString::from_bytes(py, &text[at..])?,))
}

#[allow(clippy::inline_always)] // else each value is moved between calls, which would cost more than reading it
#[inline(always)]
fn value_to_python<'py>(py: Python<'py>, value: Value<'_>) -> Result<Bound<'py, PyAny>, Trouble> {
    Ok(match value {
        Value::Bool(value) => value.into_bound_py_any(py)?,
        Value::Int(value) => value.into_bound_py_any(py)?,
        Value::Float(value) => value.into_bound_py_any(py)?,
        Value::Decimal(places, digits) => decimal_to_python(py, places, digits)?,
        Value::Text(text) => match PyString::from_bytes(py, text) {
            Ok(text) => text.into_any(),
            Err(_) => PyBytes::new(py, text).into_any(),
        },
        Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        // As pickle makes one, which is twice as fast as any other way.
        Value::Time(seconds) if seconds < AFTER_TIME => {
            py.get_type::<PyDateTime>().call1((PyBytes::new(py, &pickled(seconds)), PyTzInfo::utc(py)?))?
        }
        Value::Time(seconds) => seconds.into_bound_py_any(py)?,
        Value::Void => py.None().into_bound(py),
        Value::Table(table) => table_to_python(py, table)?.into_any(),
        Value::Array(array) => array_to_python(py, array)?.into_any(),
    })
}

fn table_to_python<'py>(py: Python<'py>, mut table: Table<'_>) -> Result<Bound<'py, PyDict>, Trouble> {
    let (dict, mut count) = (PyDict::new(py), 0);
    while let Some((name, value)) = table.next_raw_field()? {
        let name = name_of_bytes(py, name).map_err(|_| Trouble::Fault)?;
        dict.set_item(name, value_to_python(py, value)?)?;
        count += 1;
    }
    // As many as there were names, unless one is repeated.
    if dict.len() == count { Ok(dict) } else { Err(Trouble::Fault) }
}

fn array_to_python<'py>(py: Python<'py>, mut array: Array<'_>) -> Result<Bound<'py, PyList>, Trouble> {
    // Collected first: a list that grows moves its items.
    let mut values = SmallVec::<[_; 8]>::new();
    while let Some(value) = array.next_value()? {
        values.push(value_to_python(py, value)?);
    }
    Ok(PyList::new(py, values)?)
}

/// The dictionary encoded by these bytes, with their length.
pub(super) fn to_python<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    // Each value takes a byte at least.
    let bounded = if bytes.len() > table::VALUES { table::check(bytes) } else { Ok(()) };
    let read =
        bounded.and_then(|()| Table::new(bytes)).map_err(Trouble::from).and_then(|table| table_to_python(py, table));
    read.map_err(|trouble| match trouble {
        Trouble::Python(error) => error,
        // The codec reports where the first fault is.
        Trouble::Fault => {
            let fault = table::check(bytes).expect_err("what cannot be read is no table");
            decode_error("mtl", fault.in_frame(0))
        }
    })
}

/// Decodes a field table.
#[pyfunction]
pub(crate) fn decode_table<'py>(table: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    to_python(table.py(), &frames::Frame::of("table", table)?)
}

/// Encodes a field table.
#[pyfunction]
pub(crate) fn encode_table<'py>(fields: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let argument = "fields";
    if fields.is_none() {
        return Ok(PyBytes::new(fields.py(), EMPTY));
    }
    Ok(PyBytes::new(fields.py(), &written(argument, fields)?))
}

/// The field table of a dictionary, or one without fields; `argument` is the name of the argument in Python.
pub(super) fn from_python(argument: &str, fields: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if fields.is_none() {
        return Ok(Bytes::from_static(EMPTY));
    }
    written(argument, fields).map(Bytes::from)
}

fn written(argument: &str, fields: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let mut writer = Writer::new();
    write_fields(argument, &mut writer, fields)?;
    writer.finish().map_err(|error| unwritable(argument, error))
}

fn unwritable(argument: &str, error: Unwritable) -> PyErr {
    LocalProtocolError::new_err(match error {
        Unwritable::LongName => format!("{argument}: a name must be at most 128 bytes of UTF-8"),
        Unwritable::TooDeep => format!("{argument}: tables and arrays must not be nested more than 16 deep"),
        Unwritable::TooLong => format!("{argument}: a field table must be smaller than 4 GiB"),
        Unwritable::TooMany => format!("{argument}: a field table must not have more than 1,000,000 values"),
    })
}

fn write_fields(argument: &str, writer: &mut Writer, fields: &Bound<'_, PyAny>) -> PyResult<()> {
    let fields = fields.cast::<PyDict>();
    let fields = fields.map_err(|error| PyTypeError::new_err(format!("{argument} must be a dict: {error}")))?;
    for (name, value) in fields {
        let name = name.cast::<PyString>();
        let name =
            name.map_err(|error| PyTypeError::new_err(format!("the names in {argument} must be str: {error}")))?;
        writer.name(name.to_str()?).map_err(|error| unwritable(argument, error))?;
        write_value(argument, writer, &value)?;
    }
    Ok(())
}

fn write_value(argument: &str, writer: &mut Writer, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let refuse = |error| unwritable(argument, error);
    let py = value.py();
    if let Ok(value) = value.cast::<PyString>() {
        return writer.text(value.to_str()?).map_err(refuse);
    }
    if let Ok(value) = value.cast::<PyBool>() {
        writer.boolean(value.is_true());
    } else if value.is_instance_of::<PyInt>() {
        writer.int(integer(argument, value)?);
    } else if value.is_instance_of::<PyFloat>() {
        writer.float(value.extract()?);
    } else if value.is_none() {
        writer.void();
    } else if value.is_instance_of::<PyDict>() {
        writer.table().map_err(refuse)?;
        write_fields(argument, writer, value)?;
        writer.end().map_err(refuse)?;
    } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        writer.array().map_err(refuse)?;
        for value in value.try_iter()? {
            write_value(argument, writer, &value?)?;
        }
        writer.end().map_err(refuse)?;
    } else if let Ok(value) = value.cast::<PyBytes>() {
        writer.bytes(value.as_bytes()).map_err(refuse)?;
    } else if let Ok(value) = value.cast::<PyByteArray>() {
        writer.bytes(&value.to_vec()).map_err(refuse)?;
    } else if value.is_instance_of::<PyDateTime>() {
        if value.getattr(intern!(py, "tzinfo"))?.is_none() {
            return Err(PyValueError::new_err(format!("{argument}: the datetime {value} has no tzinfo: give it one")));
        }
        let since = value.sub(epoch(py)?)?;
        let days: i64 = since.getattr(intern!(py, "days"))?.extract()?;
        let seconds: i64 = since.getattr(intern!(py, "seconds"))?.extract()?;
        let seconds = u64::try_from(days * 86_400 + seconds)
            .map_err(|_| PyValueError::new_err(format!("{argument}: the time {value} is before 1970")))?;
        writer.time(seconds);
    } else if value.is_instance(decimal(py)?)? {
        let (places, digits) = scaled(argument, value)?;
        writer.decimal(places, digits);
    } else {
        match scalar(value)? {
            Some(Scalar::Bool(value)) => writer.boolean(value),
            Some(Scalar::Int(value)) => writer.int(integer(argument, &value)?),
            Some(Scalar::Float(value)) => writer.float(value),
            None => {
                let kind = value.get_type().qualname()?;
                return Err(PyTypeError::new_err(format!(
                    "{argument} takes bool, int, float, str, bytes, datetime, Decimal, None, list and dict, not {kind}"
                )));
            }
        }
    }
    Ok(())
}

fn integer(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<i64> {
    value.extract().map_err(|_| {
        PyOverflowError::new_err(format!("{argument}: the number {value} does not fit in 64 bits with its sign"))
    })
}

/// The decimal places and the digits of a number of type Decimal.
fn scaled(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<(u8, i32)> {
    let text = value.str()?;
    parsed(text.to_str()?).ok_or_else(|| {
        PyOverflowError::new_err(format!(
            "{argument}: a Decimal must fit in 32 bits with at most 255 decimal places, unlike {value}"
        ))
    })
}

/// The same from its text, as `-12.34` or `1E+3`; none if it is no number, or too large.
fn parsed(text: &str) -> Option<(u8, i32)> {
    let (number, exponent) = text.split_once(['E', 'e']).unwrap_or((text, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let places = i64::try_from(fraction.len()).ok()? - exponent.parse::<i64>().ok()?;
    let digits: i64 = format!("{whole}{fraction}").parse().ok()?;
    if let Ok(more) = u32::try_from(-places) {
        let digits = if digits == 0 { 0 } else { digits.checked_mul(10i64.checked_pow(more)?)? };
        return Some((0, i32::try_from(digits).ok()?));
    }
    Some((u8::try_from(places).ok()?, i32::try_from(digits).ok()?))
}
