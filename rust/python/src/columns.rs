//! `trunkline._native.columns`: whole columns in and out, decoded without the GIL.

use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, StructArray, new_empty_array};
use arrow_schema::{ArrowError, Field, Fields, Schema};
use arrow_select::concat::concat;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3_arrow::input::AnyArray;
use pyo3_arrow::{PyArray, PyRecordBatch, PySchema};
use trunkline_columns::{ColumnError, ColumnKind, Headers, Parts, PlanError, Rows, Tags, cdtp, dcp, ddl};
use trunkline_wire::dcp::Settings;

use crate::cdtp::settings;
use crate::errors::{DecodeError, LocalProtocolError, decode_error};

/// Why a good message has an empty cell, by slug.
#[pyfunction]
pub(crate) fn column_kinds() -> Vec<&'static str> {
    ColumnKind::ALL.iter().map(|kind| kind.slug()).collect()
}

/// A decoder of CDTP headers.
#[pyclass(frozen, module = "trunkline._native.columns")]
pub(crate) struct Cdtp(cdtp::Options);

#[pymethods]
impl Cdtp {
    #[new]
    #[pyo3(signature = (*, tags=vec![], rest=true, mode="PERMISSIVE", accept=vec!["S".into(), "A".into(), "B".into(), "2".into()], strict=true, payload=false))]
    #[allow(clippy::needless_pass_by_value)] // Python's arguments
    fn new(
        tags: Vec<(String, String)>,
        rest: bool,
        mode: &str,
        accept: Vec<String>,
        strict: bool,
        payload: bool,
    ) -> PyResult<Self> {
        let tags = tags.into_iter().map(|(name, tag_type)| Ok((name, tag_type.parse()?)));
        let tags = tags.collect::<Result<_, PlanError>>().and_then(|tags| Tags::new(tags, rest)).map_err(plan_error)?;
        Ok(Self(cdtp::Options {
            settings: settings(&accept, strict)?,
            mode: mode.parse().map_err(plan_error)?,
            tags,
            payload,
        }))
    }

    fn row_schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        schema(py, cdtp::row_fields(&self.0))
    }

    fn row_ddl(&self) -> String {
        ddl(&cdtp::row_fields(&self.0))
    }

    fn struct_schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        schema(py, cdtp::struct_fields(&self.0).map_err(plan_error)?)
    }

    fn struct_ddl(&self) -> PyResult<String> {
        Ok(ddl(&cdtp::struct_fields(&self.0).map_err(plan_error)?))
    }

    #[pyo3(signature = (header, n_frames=None, n_bytes=None, payload=None))]
    fn decode_rows<'py>(
        &self,
        py: Python<'py>,
        header: AnyArray,
        n_frames: Option<AnyArray>,
        n_bytes: Option<AnyArray>,
        payload: Option<AnyArray>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let headers = headers(header, n_frames, n_bytes, payload)?;
        rows(py, "cdtp", py.detach(|| cdtp::decode_rows(&self.0, &headers)))
    }

    #[pyo3(signature = (header, n_frames=None, n_bytes=None, payload=None))]
    fn decode_structs<'py>(
        &self,
        py: Python<'py>,
        header: AnyArray,
        n_frames: Option<AnyArray>,
        n_bytes: Option<AnyArray>,
        payload: Option<AnyArray>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let headers = headers(header, n_frames, n_bytes, payload)?;
        structs(py, "cdtp", py.detach(|| cdtp::decode_structs(&self.0, &headers)))
    }
}

/// A decoder of DCP messages.
#[pyclass(frozen, module = "trunkline._native.columns")]
pub(crate) struct Dcp(dcp::Options);

#[pymethods]
impl Dcp {
    #[new]
    #[pyo3(signature = (*, mode="PERMISSIVE", compat_dagbox=false, data=false))]
    fn new(mode: &str, compat_dagbox: bool, data: bool) -> PyResult<Self> {
        let settings = Settings { role: None, compat_dagbox };
        Ok(Self(dcp::Options { settings, mode: mode.parse().map_err(plan_error)?, data }))
    }

    fn row_schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        schema(py, dcp::row_fields(&self.0))
    }

    fn row_ddl(&self) -> String {
        ddl(&dcp::row_fields(&self.0))
    }

    fn struct_schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        schema(py, dcp::struct_fields(&self.0).map_err(plan_error)?)
    }

    fn struct_ddl(&self) -> PyResult<String> {
        Ok(ddl(&dcp::struct_fields(&self.0).map_err(plan_error)?))
    }

    #[pyo3(signature = (envelope, header, payload, n_frames=None, n_bytes=None))]
    fn decode_rows<'py>(
        &self,
        py: Python<'py>,
        envelope: AnyArray,
        header: AnyArray,
        payload: AnyArray,
        n_frames: Option<AnyArray>,
        n_bytes: Option<AnyArray>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let parts = parts(envelope, header, payload, n_frames, n_bytes)?;
        rows(py, "dcp", py.detach(|| dcp::decode_rows(&self.0, &parts)))
    }

    #[pyo3(signature = (envelope, header, payload, n_frames=None, n_bytes=None))]
    fn decode_structs<'py>(
        &self,
        py: Python<'py>,
        envelope: AnyArray,
        header: AnyArray,
        payload: AnyArray,
        n_frames: Option<AnyArray>,
        n_bytes: Option<AnyArray>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let parts = parts(envelope, header, payload, n_frames, n_bytes)?;
        structs(py, "dcp", py.detach(|| dcp::decode_structs(&self.0, &parts)))
    }
}

fn rows<'py>(
    py: Python<'py>,
    protocol: &'static str,
    rows: Result<Rows, ColumnError>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let rows = rows.map_err(|error| column_error(py, protocol, &error))?;
    let source = PyArray::from_array_ref(Arc::new(rows.source));
    Ok((array(py, &source)?, PyRecordBatch::new(rows.columns).into_pyarrow(py)?))
}

fn structs<'py>(
    py: Python<'py>,
    protocol: &'static str,
    structs: Result<StructArray, ColumnError>,
) -> PyResult<Bound<'py, PyAny>> {
    let structs = structs.map_err(|error| column_error(py, protocol, &error))?;
    let field = Field::new("", structs.data_type().clone(), true);
    array(py, &PyArray::new(Arc::new(structs), Arc::new(field)))
}

/// As pyarrow's own.
fn array<'py>(py: Python<'py>, array: &PyArray) -> PyResult<Bound<'py, PyAny>> {
    Ok(array.to_pyarrow(py)?.unbind().into_bound(py))
}

fn schema(py: Python<'_>, fields: Fields) -> PyResult<Bound<'_, PyAny>> {
    PySchema::new(Arc::new(Schema::new(fields))).into_pyarrow(py)
}

fn headers(
    header: AnyArray,
    n_frames: Option<AnyArray>,
    n_bytes: Option<AnyArray>,
    payload: Option<AnyArray>,
) -> PyResult<Headers> {
    Ok(Headers {
        header: whole(header)?,
        n_frames: n_frames.map(whole).transpose()?,
        n_bytes: n_bytes.map(whole).transpose()?,
        payload: payload.map(whole).transpose()?,
    })
}

fn parts(
    envelope: AnyArray,
    header: AnyArray,
    payload: AnyArray,
    n_frames: Option<AnyArray>,
    n_bytes: Option<AnyArray>,
) -> PyResult<Parts> {
    Ok(Parts {
        envelope: whole(envelope)?,
        header: whole(header)?,
        payload: whole(payload)?,
        n_frames: n_frames.map(whole).transpose()?,
        n_bytes: n_bytes.map(whole).transpose()?,
    })
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
    LocalProtocolError::new_err(error.to_string())
}

/// What FAILFAST ends with is a `DecodeError`, which a note leads to its row.
fn column_error(py: Python<'_>, protocol: &'static str, error: &ColumnError) -> PyErr {
    let text = error.to_string();
    let raised = match error {
        ColumnError::Decode { error, .. } => decode_error(protocol, *error),
        ColumnError::TagType { offset, .. } => DecodeError::new_err((protocol, "tag_type", 0, *offset)),
        ColumnError::Input(_) | ColumnError::TooLarge | ColumnError::Arrow(_) => return PyValueError::new_err(text),
    };
    match raised.value(py).call_method1("add_note", (text,)) {
        Ok(_) => raised,
        Err(error) => error,
    }
}

fn arrow_error(error: &ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
