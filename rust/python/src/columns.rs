//! `trunkline._native.columns`: whole columns in and out, decoded without the GIL; and the protocols.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{Array as _, ArrayRef, StructArray, cast::AsArray as _, new_empty_array};
use arrow_schema::{ArrowError, Field, Fields, Schema};
use arrow_select::concat::concat;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyString, PyTuple};
use pyo3_arrow::input::AnyArray;
use pyo3_arrow::{PyArray, PyRecordBatch, PySchema};
use trunkline_columns::{
    ColumnError, ColumnKind, Decoder, Description, EVERY, Layout, Mismatches, Mode, Need, PROTOCOLS, Parts, Payload,
    PlanError, RestType, RowBatches, Shredding, Tags, Types, Value, ddl, frames_fields, unshredded as unshredded_of,
    variant_json as variants_as_json,
};

use crate::errors::{DecodeError, LocalProtocolError, decode_error};
use crate::layouts::{PyLayout, keep_as_text};

/// Why a valid message has an empty cell, by slug.
#[pyfunction]
pub(crate) fn column_kinds() -> Vec<&'static str> {
    ColumnKind::ALL.iter().map(|kind| kind.slug()).collect()
}

/// A column of VARIANTs as JSON text.
#[pyfunction]
pub(crate) fn variant_json(py: Python<'_>, column: AnyArray) -> PyResult<Bound<'_, PyAny>> {
    let text = variants_as_json(&variants(column)?).map_err(|error| damaged(&error))?;
    array(py, &PyArray::from_array_ref(Arc::new(text)))
}

fn variants(column: AnyArray) -> PyResult<StructArray> {
    let column = whole(column)?;
    column.as_struct_opt().cloned().ok_or_else(|| PyTypeError::new_err("not a column of VARIANTs"))
}

fn damaged(error: &ColumnError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A shredded column of VARIANTs, put together again.
#[pyfunction]
pub(crate) fn unshredded(py: Python<'_>, column: AnyArray) -> PyResult<Bound<'_, PyAny>> {
    let column = unshredded_of(&variants(column)?).map_err(|error| damaged(&error))?;
    array(py, &PyArray::from_array_ref(Arc::new(column)))
}

/// Which fields of a column of VARIANTs become columns of Parquet.
#[pyclass(frozen, module = "trunkline._native", name = "Shredding")]
pub(crate) struct PyShredding(Shredding);

#[pymethods]
impl PyShredding {
    #[staticmethod]
    fn of(column: AnyArray) -> PyResult<Option<Self>> {
        let found = Shredding::of(&variants(column)?).map_err(|error| damaged(&error))?;
        Ok(found.map(Self))
    }

    fn shredded<'py>(&self, py: Python<'py>, column: AnyArray) -> PyResult<Option<Bound<'py, PyAny>>> {
        let column = self.0.shredded(&variants(column)?).map_err(|error| damaged(&error))?;
        column.map(|column| array(py, &PyArray::from_array_ref(Arc::new(column)))).transpose()
    }
}

/// Every protocol whose messages can be decoded into columns.
#[pyfunction]
pub(crate) fn protocols() -> Vec<PyProtocol> {
    PROTOCOLS.iter().map(|description| PyProtocol(*description)).collect()
}

/// The description of a protocol's columns.
#[pyclass(frozen, module = "trunkline._native", name = "Protocol")]
pub(crate) struct PyProtocol(&'static dyn Description);

#[pymethods]
impl PyProtocol {
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    #[getter]
    fn one_way(&self) -> bool {
        self.0.is_one_way()
    }

    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let options = PyDict::new(py);
        for (name, default) in self.0.options() {
            options.set_item(name, shown(py, default)?)?;
        }
        Ok(options)
    }

    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let owned = |columns: &[&str]| columns.iter().map(|column| (*column).to_owned()).collect();
        let need = |need| match need {
            Need::Always => Need::Always,
            Need::For(columns) => Need::For(owned(columns)),
            Need::HeadUnless(columns) => Need::HeadUnless(owned(columns)),
        };
        inputs(py, self.0.inputs().iter().map(|input| (input.name, need(input.need))).collect())
    }

    #[getter]
    fn kept<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.kept())
    }

    #[getter]
    fn error_kinds<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.error_kinds().iter().map(|kind| kind.slug()))
    }

    #[getter]
    fn column_kinds<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.column_kinds().iter().map(|kind| kind.slug()))
    }

    #[getter]
    fn message_types<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.message_types())
    }

    #[getter]
    fn ddl(&self) -> PyResult<String> {
        Ok(ddl(&self.0.decoder(vec![]).map_err(plan_error)?.row_fields()))
    }

    fn __repr__(&self) -> String {
        format!("Protocol({:?})", self.0.name())
    }
}

/// A decoder of the messages of a protocol.
#[pyclass(frozen, module = "trunkline._native.columns", name = "Decoder")]
pub(crate) struct PyDecoder {
    description: &'static dyn Description,
    decoder: Box<dyn Decoder>,
    types: Types,
    /// As they were given.
    options: Py<PyDict>,
}

#[pymethods]
impl PyDecoder {
    #[new]
    #[pyo3(signature = (protocol, *, types="arrow", **options))]
    fn new(py: Python<'_>, protocol: &str, types: &str, options: Option<Bound<'_, PyDict>>) -> PyResult<Self> {
        let types = match types {
            "arrow" => Types::Arrow,
            "spark" => Types::Spark,
            _ => return Err(PyValueError::new_err(format!("types must be 'arrow' or 'spark', not '{types}'"))),
        };
        let mut known = PROTOCOLS.iter().chain([&EVERY]);
        let description = *known.find(|known| known.name() == protocol).ok_or_else(|| unknown(protocol))?;
        let options = options.unwrap_or_else(|| PyDict::new(py));
        let known = description.options();
        let mut given = Vec::with_capacity(options.len());
        for (name, value) in &options {
            let name: String = name.extract()?;
            if name == "payload" && description.name() == EVERY.name() && value.extract::<bool>().is_err() {
                return Err(plan_error(PlanError::LayoutOfEvery));
            }
            let (name, default) =
                known.iter().find(|(known, _)| *known == name).ok_or_else(|| refused(description, &name))?;
            let mut value = taken(name, default, &value)?;
            if let Value::Payload(Payload::Layout(layout)) = value {
                keep_as_text(&options, name, &layout)?;
                value = Value::Payload(Payload::Layout(layout.with_types(types)));
            }
            given.push((*name, value));
        }
        let decoder = description.decoder(given).map_err(plan_error)?;
        Ok(Self { description, decoder, types, options: options.unbind() })
    }

    /// The protocol it decodes.
    #[getter]
    fn protocol(&self) -> PyProtocol {
        PyProtocol(self.description)
    }

    /// The columns that it takes, and the purpose of each: those of the protocol, and those for the fields of a layout.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        inputs(py, self.decoder.inputs())
    }

    /// The columns of `decode_rows`.
    fn row_schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        schema(py, self.decoder.row_fields())
    }

    /// The same in Spark's DDL.
    fn row_ddl(&self) -> String {
        ddl(&self.decoder.row_fields())
    }

    /// The fields of `decode_structs`.
    fn struct_schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        schema(py, self.decoder.struct_fields().map_err(plan_error)?)
    }

    /// The same in Spark's DDL.
    fn struct_ddl(&self) -> PyResult<String> {
        Ok(ddl(&self.decoder.struct_fields().map_err(plan_error)?))
    }

    /// Rows, one for each message, or for each record of a CDTP2 message; and before them the row of the batch that
    /// each comes from.
    ///
    /// They come in batches of about 64 MiB, at least one. An error in a message is raised when its turn comes.
    #[pyo3(signature = (
        *, envelope=None, header=None, payload=None, n_frames=None, n_bytes=None, topic=None, protocol=None, only=None
    ))]
    #[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)] // a keyword each in Python
    fn decode_rows(
        &self,
        py: Python<'_>,
        envelope: Option<AnyArray>,
        header: Option<AnyArray>,
        payload: Option<AnyArray>,
        n_frames: Option<AnyArray>,
        n_bytes: Option<AnyArray>,
        topic: Option<AnyArray>,
        protocol: Option<AnyArray>,
        only: Option<Vec<String>>,
    ) -> PyResult<PyRowBatches> {
        let mut parts = parts(envelope, header, payload, n_frames, n_bytes, topic)?;
        parts.protocol = protocol.map(whole).transpose()?;
        let protocol = self.description.name();
        if let Some(names) = &only {
            self.need(names)?;
        }
        let batches = py
            .detach(|| self.decoder.decode_rows(parts, only.as_deref()))
            .map_err(|error| column_error(py, protocol, &error))?;
        Ok(PyRowBatches { protocol, batches: Mutex::new(batches), mismatches: Mutex::default() })
    }

    /// A struct for each message, null where the columns that are read are null.
    #[pyo3(signature = (*, envelope=None, header=None, payload=None, n_frames=None, n_bytes=None, topic=None))]
    #[allow(clippy::too_many_arguments)] // a keyword each in Python
    fn decode_structs<'py>(
        &self,
        py: Python<'py>,
        envelope: Option<AnyArray>,
        header: Option<AnyArray>,
        payload: Option<AnyArray>,
        n_frames: Option<AnyArray>,
        n_bytes: Option<AnyArray>,
        topic: Option<AnyArray>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let parts = parts(envelope, header, payload, n_frames, n_bytes, topic)?;
        let structs: StructArray = py
            .detach(|| self.decoder.decode_structs(&parts))
            .map_err(|error| column_error(py, self.description.name(), &error))?;
        let field = Field::new("", structs.data_type().clone(), true);
        array(py, &PyArray::new(Arc::new(structs), Arc::new(field)))
    }

    /// The frames of a struct for each message, as `decode_structs` gives them.
    fn encode_structs<'py>(&self, py: Python<'py>, structs: AnyArray) -> PyResult<Bound<'py, PyAny>> {
        let structs = whole(structs)?;
        let given = structs.as_struct_opt().ok_or_else(|| PyValueError::new_err("the column must be of structs"))?;
        let encoded = py.detach(|| self.decoder.encode_structs(given));
        let frames = encoded.map_err(|error| column_error(py, self.description.name(), &error))?;
        let field = Field::new("", frames.data_type().clone(), true);
        array(py, &PyArray::new(Arc::new(frames), Arc::new(field)))
    }

    /// The fields of `encode_structs`, in Spark's DDL.
    #[staticmethod]
    fn frames_ddl() -> String {
        ddl(&frames_fields())
    }

    /// Pickles: decoders are sent to Spark's workers.
    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((&'static str,), Bound<'py, PyDict>)> {
        let options = self.options.bind(py).copy()?;
        if self.types == Types::Spark {
            options.set_item("types", "spark")?;
        }
        Ok(((self.description.name(),), options))
    }
}

impl PyDecoder {
    /// Refuses names of columns that rows do not have.
    fn need(&self, names: &[String]) -> PyResult<()> {
        let fields = self.decoder.row_fields();
        let known: HashSet<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        match names.iter().find(|name| !known.contains(name.as_str())) {
            Some(name) => Err(PyValueError::new_err(format!("there is no column '{name}'"))),
            None => Ok(()),
        }
    }
}

/// The rows that a decoder makes of a batch.
#[pyclass(frozen, module = "trunkline._native.columns", name = "RowBatches")]
pub(crate) struct PyRowBatches {
    protocol: &'static str,
    batches: Mutex<RowBatches>,
    mismatches: Mutex<Mismatches>,
}

#[pymethods]
impl PyRowBatches {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let rows = py.detach(|| self.batches.lock().unwrap_or_else(PoisonError::into_inner).next());
        let Some(rows) = rows else { return Ok(None) };
        let rows = rows.map_err(|error| column_error(py, self.protocol, &error))?;
        let mut mismatches = self.mismatches.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, count) in rows.mismatches {
            *mismatches.entry(name).or_default() += count;
        }
        drop(mismatches);
        let source = PyArray::from_array_ref(Arc::new(rows.source));
        Ok(Some((array(py, &source)?, PyRecordBatch::new(rows.columns).into_pyarrow(py)?)))
    }

    /// How many values of each tag, property or field were null so far because their type differs from the requested
    /// one.
    #[getter]
    fn mismatches(&self) -> Mismatches {
        self.mismatches.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// FAILFAST raises a `DecodeError`, with a note of its row.
fn column_error(py: Python<'_>, protocol: &'static str, error: &ColumnError) -> PyErr {
    let text = error.to_string();
    let raised = match error {
        ColumnError::Decode { error, .. } => decode_error(protocol, *error),
        ColumnError::TagType { frame, offset, .. } => DecodeError::new_err((protocol, "tag_type", *frame, *offset)),
        ColumnError::Payload { fault, .. } => {
            let kind = fault.kind;
            DecodeError::new_err((protocol, kind.slug(), fault.frame, fault.offset, kind.meaning()))
        }
        ColumnError::MessageTooLarge { .. } => {
            DecodeError::new_err((protocol, ColumnKind::MessageTooLarge.slug(), 0, 0))
        }
        ColumnError::Input(_) | ColumnError::TooLarge | ColumnError::Arrow(_) => return PyValueError::new_err(text),
    };
    match raised.value(py).call_method1("add_note", (text,)) {
        Ok(_) => raised,
        Err(error) => error,
    }
}

fn unknown(protocol: &str) -> PyErr {
    let names: Vec<_> = PROTOCOLS.iter().map(|known| format!("'{}'", known.name())).collect();
    let names = names.join(", ");
    LocalProtocolError::new_err(format!("protocol '{protocol}' cannot be decoded (choose from {names})"))
}

/// An option that this protocol, or every protocol, lacks.
fn refused(description: &dyn Description, name: &str) -> PyErr {
    let is_known = PROTOCOLS.iter().any(|other| other.options().iter().any(|(known, _)| *known == name));
    if is_known {
        plan_error(PlanError::NotOf(description.name(), name.to_owned()))
    } else {
        let names: Vec<_> = description.options().into_iter().map(|(known, _)| known).collect();
        PyTypeError::new_err(format!(
            "unexpected keyword argument '{name}': the decoding options of {} are {}",
            description.name().to_uppercase(),
            names.join(", ")
        ))
    }
}

/// One name, or a sequence of them.
#[derive(FromPyObject)]
enum Names {
    One(String),
    Several(Vec<String>),
}

/// An option as a user gives it, of the same kind as its default.
fn taken(name: &str, default: &Value, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    Ok(match default {
        Value::Flag(_) => Value::Flag(value.extract()?),
        Value::Mode(_) => Value::Mode(value.extract::<String>()?.parse().map_err(plan_error)?),
        Value::Name(_) => Value::Name(value.extract()?),
        Value::Names(_) => Value::Names(match value.extract()? {
            Names::One(name) => vec![name],
            Names::Several(names) => names,
        }),
        Value::Tags(_) => Value::Tags(tags(name, value)?),
        Value::Payload(_) => Value::Payload(payload(value)?),
    })
}

fn payload(value: &Bound<'_, PyAny>) -> PyResult<Payload> {
    match value.extract::<bool>() {
        Ok(true) => Ok(Payload::Frames),
        Ok(false) => Ok(Payload::None),
        Err(_) => match value.cast::<PyString>() {
            Ok(text) => Layout::parse(text.to_str()?).map(Payload::Layout).map_err(|error| plan_error(error.into())),
            Err(_) => Ok(Payload::Layout(PyLayout::from(value, false)?.0)),
        },
    }
}

fn tags(option: &str, value: &Bound<'_, PyAny>) -> PyResult<Tags> {
    if value.is_none() {
        return Ok(Tags::NONE);
    }
    let wanted = || -> PyResult<PyErr> {
        let given = value.repr()?;
        Ok(LocalProtocolError::new_err(format!(
            "{option}={given}: must be \"variant\", \"json\", None or a type for each name, e.g. {{\"run\": \"bigint\"}}"
        )))
    };
    if let Ok(text) = value.cast::<PyString>() {
        let rest = text.to_str()?.parse::<RestType>();
        return match rest {
            Ok(rest) => Tags::new(vec![], Some(rest)).map_err(plan_error),
            Err(_) => Err(wanted()?),
        };
    }
    let Ok(mapping) = value.cast::<PyMapping>() else { return Err(wanted()?) };
    let (mut typed, mut rest) = (Vec::new(), None);
    for pair in mapping.items()? {
        let (name, tag_type): (String, Option<Bound<'_, PyAny>>) = pair.extract()?;
        if name == "*" {
            rest = tag_type.map(|rest_type| all_others(option, &rest_type)).transpose()?;
        } else {
            let tag_type = tag_type.map_or_else(|| Ok("None".to_owned()), |tag_type| type_name(&tag_type))?;
            typed.push((name, tag_type.parse().map_err(plan_error)?));
        }
    }
    Tags::new(typed, rest).map_err(plan_error)
}

/// The name of a type: as given, or that of one of Spark's own types.
fn type_name(given: &Bound<'_, PyAny>) -> PyResult<String> {
    let name = given.call_method0(intern!(given.py(), "simpleString"));
    name.as_ref().unwrap_or(given).extract()
}

/// The type of all other tags together.
fn all_others(option: &str, given: &Bound<'_, PyAny>) -> PyResult<RestType> {
    let rest = type_name(given).ok().and_then(|name| name.parse().ok());
    rest.ok_or_else(|| match given.repr() {
        Ok(given) => LocalProtocolError::new_err(format!(
            "{option}={{\"*\": {given}}}: the type of all other tags together must be \"variant\" or \"json\""
        )),
        Err(error) => error,
    })
}

/// The default of an option, as a user would give it.
fn shown(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyAny>> {
    Ok(match value {
        Value::Flag(flag) => flag.into_pyobject(py)?.to_owned().into_any(),
        Value::Mode(mode) => Mode::name(mode).into_pyobject(py)?.into_any(),
        Value::Name(name) => name.into_pyobject(py)?.into_any(),
        Value::Names(names) => PyTuple::new(py, names)?.into_any(),
        Value::Tags(tags) => tags.rest().map(RestType::name).into_pyobject(py)?,
        Value::Payload(payload) => (payload == Payload::Frames).into_pyobject(py)?.to_owned().into_any(),
    })
}

/// As pyarrow's own type.
pub(crate) fn array<'py>(py: Python<'py>, array: &PyArray) -> PyResult<Bound<'py, PyAny>> {
    Ok(array.to_pyarrow(py)?.unbind().into_bound(py))
}

pub(crate) fn schema(py: Python<'_>, fields: Fields) -> PyResult<Bound<'_, PyAny>> {
    PySchema::new(Arc::new(Schema::new(fields))).into_pyarrow(py)
}

fn parts(
    envelope: Option<AnyArray>,
    header: Option<AnyArray>,
    payload: Option<AnyArray>,
    n_frames: Option<AnyArray>,
    n_bytes: Option<AnyArray>,
    topic: Option<AnyArray>,
) -> PyResult<Parts> {
    Ok(Parts {
        envelope: envelope.map(whole).transpose()?,
        header: header.map(whole).transpose()?,
        payload: payload.map(whole).transpose()?,
        n_frames: n_frames.map(whole).transpose()?,
        n_bytes: n_bytes.map(whole).transpose()?,
        topic: topic.map(whole).transpose()?,
        protocol: None,
    })
}

/// The columns that decoding takes, as Python has them.
fn inputs<'py>(py: Python<'py>, inputs: Vec<(&'static str, Need<Vec<String>>)>) -> PyResult<Bound<'py, PyTuple>> {
    let inputs = inputs.into_iter().map(|(name, need)| {
        let (need, columns) = match need {
            Need::Always => ("always", vec![]),
            Need::For(columns) => ("columns", columns),
            Need::HeadUnless(columns) => ("head", columns),
        };
        Ok((name, need, PyTuple::new(py, columns)?))
    });
    PyTuple::new(py, inputs.collect::<PyResult<Vec<_>>>()?)
}

/// A column in one piece, whatever its chunks were.
fn whole(column: AnyArray) -> PyResult<ArrayRef> {
    let column = match column {
        AnyArray::Array(array) => return Ok(array.into_inner().0),
        AnyArray::Stream(stream) => stream.into_reader()?,
    };
    let data_type = column.field().data_type().clone();
    let chunks = column.collect::<Result<Vec<_>, _>>().map_err(|error| arrow_error(&error))?;
    let chunks: Vec<_> = chunks.iter().map(AsRef::as_ref).collect();
    if chunks.is_empty() {
        return Ok(new_empty_array(&data_type));
    }
    concat(&chunks).map_err(|error| arrow_error(&error))
}

#[allow(clippy::needless_pass_by_value)] // as `map_err` gives it
fn plan_error(error: PlanError) -> PyErr {
    match error {
        PlanError::UnknownName(..) => PyValueError::new_err(error.to_string()),
        PlanError::UnknownMode(_)
        | PlanError::UnknownType(_)
        | PlanError::UnknownRest(_)
        | PlanError::EqualNames(_)
        | PlanError::DropInFunction
        | PlanError::NotOf(..)
        | PlanError::Layout(_)
        | PlanError::NoTags(_)
        | PlanError::LayoutOfEvery
        | PlanError::OtherKind(_) => LocalProtocolError::new_err(error.to_string()),
    }
}

fn arrow_error(error: &ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
