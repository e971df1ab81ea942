//! `trunkline._native.capture`: captures on disk, as Python's objects.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::MutexExt as _;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use pyo3_arrow::{PyRecordBatchReader, PySchema};
use trunkline_capture::{
    Access, Batches, Capture, CaptureError as CaptureFault, Direction, Import, Names, Position, Published, Row, Rows,
    RunRecord, Selection, compact as compact_capture, existing as existing_segments, groups as row_groups,
    is_capture as is_capture_there, mark_variants as mark, need_unlocked as need_capture_unlocked,
    published as published_segments, put_back as put_capture_back, read_file as read_capture_file,
    recover as recover_capture, replace as replace_capture, schema as capture_schema, segments as known_segments,
    sizes as segment_sizes, sums as segment_sums, verify as verify_capture,
};
use trunkline_wire::{ErrorKind, Framing};

use crate::errors::{ClosedError, capture_error};
use crate::frames::frames;
use crate::location::PyLocation;
use crate::msgpack::to_python;
use crate::names::name;

/// A capture as it was when it was opened.
#[pyclass(frozen, module = "trunkline._native.capture", name = "Capture")]
pub(crate) struct PyCapture(Capture);

#[pymethods]
impl PyCapture {
    /// All of it as it is now, or some of its published segments; if their bytes are known, without those that are gone,
    /// and with the rows of these numbers alone.
    #[new]
    #[pyo3(signature = (place, max_message_bytes, segments = None, sizes = None, within = None))]
    fn new(
        py: Python<'_>,
        place: PyLocation,
        max_message_bytes: u64,
        segments: Option<Vec<(u64, u64)>>,
        sizes: Option<Vec<u64>>,
        within: Option<(i64, i64)>,
    ) -> PyResult<Self> {
        let within = within.map(|(first, last)| first..=last);
        let open = move || match (segments, sizes) {
            (None, _) => Capture::open(&place.0),
            (Some(some), None) => Capture::of(&place.0, &some),
            (Some(some), Some(sizes)) => Capture::of_known(&place.0, &some, &sizes, within),
        };
        let opened = py.detach(open).map_err(|error| capture_error(&error))?;
        Ok(Self(opened.limited(max_message_bytes)))
    }

    /// The numbers of the segments published, oldest first: the first and the last of each file.
    #[getter]
    fn segments(&self) -> Vec<(u64, u64)> {
        self.0.segments()
    }

    /// Those that were gone when they were to be read.
    #[getter]
    fn gone(&self) -> Vec<(u64, u64)> {
        self.0.gone()
    }

    /// Whether its recorder is known to have ended.
    fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// The names of their files.
    #[getter]
    fn files(&self) -> Vec<String> {
        self.0.files()
    }

    /// The same in parts, oldest first: each segment, and the rows that are only in the journal.
    fn parts(&self) -> Vec<Self> {
        self.0.parts().into_iter().map(Self).collect()
    }

    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let info = py.detach(|| self.0.info()).map_err(|error| capture_error(&error))?;
        let counts = PyDict::new(py);
        counts.set_item("capture_id", info.capture_id)?;
        counts.set_item("segments", info.segments)?;
        counts.set_item("messages", info.messages)?;
        counts.set_item("bytes", info.bytes)?;
        counts.set_item("first_received_at_ns", info.first_received_at_ns)?;
        counts.set_item("last_received_at_ns", info.last_received_at_ns)?;
        counts.set_item("protocols", info.protocols)?;
        counts.set_item("errors", info.errors)?;
        counts.set_item("directions", info.directions)?;
        Ok(counts)
    }

    /// The runs, how many senders were dropped, and how many messages were not followed: as of now, or as the capture was
    /// when it was opened.
    #[pyo3(signature = (*, as_opened = false))]
    fn runs<'py>(&self, py: Python<'py>, as_opened: bool) -> PyResult<(Vec<Bound<'py, PyDict>>, u64, u64)> {
        let read = || if as_opened { self.0.runs_as_opened() } else { self.0.runs() };
        let found = py.detach(read).map_err(|error| capture_error(&error))?;
        let runs = found.runs.iter().map(|run| run_dict(py, run)).collect::<PyResult<_>>()?;
        Ok((runs, found.unfollowed.senders, found.unfollowed.messages))
    }

    /// A pyarrow reader of rows, or of some of their columns.
    #[pyo3(signature = (columns = None, selection = None))]
    fn reader<'py>(
        &self,
        py: Python<'py>,
        columns: Option<Vec<String>>,
        selection: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let selection = self::selection(selection)?;
        let batches = match columns {
            Some(names) => self.0.columns(&names, selection),
            None => self.0.select(selection),
        };
        PyRecordBatchReader::new(Box::new(Stream(batches.map_err(|error| capture_error(&error))?))).into_pyarrow(py)
    }

    /// Rows, each as a dict of its columns.
    #[pyo3(signature = (selection = None))]
    fn rows(&self, selection: Option<&Bound<'_, PyDict>>) -> PyResult<RowIterator> {
        Ok(RowIterator(Mutex::new(self.cursor(self::selection(selection)?)?)))
    }

    /// All rows, each as ``(protocol, error, frames, topic)``.
    fn messages(&self) -> PyResult<MessageIterator> {
        Ok(MessageIterator(Mutex::new(self.cursor(Selection::default())?)))
    }
}

impl PyCapture {
    fn cursor(&self, selection: Selection) -> PyResult<Cursor> {
        let batches = self.0.select(selection).map_err(|error| capture_error(&error))?;
        Ok(Cursor { batches, batch: None, row: 0 })
    }
}

/// The value of a dict under a name, if any.
fn get<'py, T: FromPyObjectOwned<'py>>(given: &Bound<'py, PyDict>, name: &str) -> PyResult<Option<T>> {
    match given.get_item(name)? {
        Some(value) => value.extract().map_err(Into::into),
        None => Ok(None),
    }
}

/// Some names, or all others.
type GivenNames = (Vec<Option<String>>, bool);

/// A selection from Python's dictionary.
fn selection(given: Option<&Bound<'_, PyDict>>) -> PyResult<Selection> {
    let Some(given) = given else { return Ok(Selection::default()) };
    let numbers: Option<Vec<(i64, i64)>> = get(given, "numbers")?;
    let names: Option<Vec<(String, GivenNames)>> = get(given, "names")?;
    let named_names = |(column, (names, is_others))| (column, Names { names, is_others });
    Ok(Selection {
        protocol: get(given, "protocol")?,
        direction: get(given, "direction")?,
        peer: get(given, "peer")?,
        topic: get(given, "topic")?,
        since_ns: get(given, "since_ns")?,
        until_ns: get(given, "until_ns")?,
        numbers: numbers.map(|spans| spans.into_iter().map(|(first, last)| first..=last).collect()),
        segments: None,
        names: names.unwrap_or_default().into_iter().map(named_names).collect(),
    })
}

fn run_dict<'py>(py: Python<'py>, record: &RunRecord) -> PyResult<Bound<'py, PyDict>> {
    let RunRecord { capture_id, sender, run, is_in_progress } = record;
    let map = |map: Option<&[u8]>| map.map(|map| to_python(py, map)).transpose();
    let (condition, code) = run.said(*is_in_progress);
    let fields = PyDict::new(py);
    fields.set_item("capture_id", capture_id)?;
    fields.set_item("sender", sender)?;
    fields.set_item("ordinal", run.ordinal)?;
    fields.set_item("run_id", run.run_id())?;
    fields.set_item("condition", condition)?;
    fields.set_item("condition_code", code)?;
    fields.set_item("messages", run.messages)?;
    fields.set_item("bytes", run.bytes)?;
    fields.set_item("missed", run.missed)?;
    fields.set_item("duplicates", run.duplicates)?;
    fields.set_item("out_of_order", run.out_of_order)?;
    fields.set_item("first_received_at_ns", run.first_received_at_ns)?;
    fields.set_item("last_received_at_ns", run.last_received_at_ns)?;
    fields.set_item("bor_seq", run.begin.as_ref().map(|begin| begin.seq))?;
    fields.set_item("eor_seq", run.end.as_ref().map(|end| end.seq))?;
    fields.set_item("config", map(run.config())?)?;
    fields.set_item("metadata", map(run.metadata())?)?;
    Ok(fields)
}

/// A place among the rows of a capture.
struct Cursor {
    batches: Batches,
    batch: Option<RecordBatch>,
    row: usize,
}

impl Cursor {
    fn is_at_end_of_batch(&self) -> bool {
        self.batch.as_ref().is_none_or(|batch| self.row == batch.num_rows())
    }

    fn read_batch(&mut self) -> Result<(), CaptureFault> {
        self.row = 0;
        self.batch = self.batches.next().transpose()?;
        Ok(())
    }
}

/// What `Capture.rows` gives.
#[pyclass(frozen, module = "trunkline._native.capture")]
pub(crate) struct RowIterator(Mutex<Cursor>);

#[pymethods]
impl RowIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        next(py, &self.0, |batch, row| {
            let columns = PyDict::new(py);
            for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
                columns.set_item(name(py, field.name()), value(py, column, row)?)?;
            }
            Ok(columns)
        })
    }
}

/// What `Capture.messages` gives.
#[pyclass(frozen, module = "trunkline._native.capture")]
pub(crate) struct MessageIterator(Mutex<Cursor>);

#[pymethods]
impl MessageIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        next(py, &self.0, |batch, row| {
            let rows = Rows::new(batch);
            let frames: Vec<_> = rows.frames(row).map(|frame| PyBytes::new(py, frame)).collect();
            let error = rows.error(row).map(|error| name(py, error));
            let topic = rows.topic(row).map(|topic| name(py, topic));
            (name(py, rows.protocol(row)), error, PyTuple::new(py, frames)?, topic).into_pyobject(py)
        })
    }
}

/// The next row as `convert` makes it, waiting for the disk without the GIL.
fn next<T>(
    py: Python<'_>,
    cursor: &Mutex<Cursor>,
    convert: impl FnOnce(&RecordBatch, usize) -> PyResult<T>,
) -> PyResult<Option<T>> {
    // A wait for another thread's row must not hold the GIL that thread needs.
    let mut cursor = cursor.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
    let cursor = &mut *cursor;
    while cursor.is_at_end_of_batch() {
        py.detach(|| cursor.read_batch()).map_err(|error| capture_error(&error))?;
        if cursor.batch.is_none() {
            return Ok(None);
        }
    }
    let row = cursor.row;
    cursor.row += 1;
    cursor.batch.as_ref().map(|batch| convert(batch, row)).transpose()
}

/// A cell of any column that a capture has.
fn value<'py>(py: Python<'py>, column: &dyn Array, row: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
    if column.is_null(row) {
        return Ok(None);
    }
    let value = if let Some(numbers) = column.as_primitive_opt::<Int64Type>() {
        numbers.value(row).into_pyobject(py)?.into_any()
    } else if let Some(numbers) = column.as_primitive_opt::<Int32Type>() {
        numbers.value(row).into_pyobject(py)?.into_any()
    } else if let Some(texts) = column.as_string_opt::<i32>() {
        name(py, texts.value(row)).into_any()
    } else if let Some(blobs) = column.as_binary_opt::<i32>() {
        PyBytes::new(py, blobs.value(row)).into_any()
    } else {
        let frames = column.as_list::<i32>().value(row);
        let frames: Vec<_> = frames.as_binary::<i32>().iter().flatten().map(|frame| PyBytes::new(py, frame)).collect();
        PyList::new(py, frames)?.into_any()
    };
    Ok(Some(value))
}

/// Batches for Arrow's stream interface.
struct Stream(Batches);

impl Iterator for Stream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.0.next()?;
        Some(batch.map_err(|error| ArrowError::ExternalError(Box::new(error))))
    }
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
}

/// Rows imported into a capture, all or none.
#[pyclass(frozen, module = "trunkline._native.capture", name = "Import")]
pub(crate) struct PyImport(Mutex<Option<Import>>);

#[pymethods]
impl PyImport {
    #[new]
    #[pyo3(signature = (directory, *, segment_bytes = None, private = false))]
    fn new(py: Python<'_>, directory: PathBuf, segment_bytes: Option<u64>, private: bool) -> PyResult<Self> {
        let mut settings = trunkline_capture::Settings::default();
        settings.access = if private { Access::Private } else { Access::Umask };
        settings.segment_bytes = segment_bytes.unwrap_or(settings.segment_bytes);
        let import = py.detach(move || Import::open(&directory, settings)).map_err(|error| capture_error(&error))?;
        Ok(Self(Mutex::new(Some(import))))
    }

    /// Adds a message. Its bytes are checked here; `error` is any other fault, for example that it was cut.
    #[pyo3(signature = (
        received_at_ns, message, *, protocol = "cdtp", direction = "in", endpoint = None, peer = None, topic = None,
        reply_to = None, error = None
    ))]
    #[allow(clippy::too_many_arguments)] // Python's
    fn append(
        &self,
        py: Python<'_>,
        received_at_ns: i64,
        message: &Bound<'_, PyAny>,
        protocol: &str,
        direction: &str,
        endpoint: Option<&str>,
        peer: Option<&[u8]>,
        topic: Option<&str>,
        reply_to: Option<&str>,
        error: Option<&str>,
    ) -> PyResult<()> {
        let frames = frames("message", message)?;
        let row = Row {
            received_at_ns,
            framing: named("protocol", protocol, Framing::ALL, Framing::name)?.of(&frames),
            endpoint,
            peer,
            direction: named("direction", direction, &Direction::ALL, Direction::name)?,
            topic,
            reply_to,
            frames: &frames,
            error: error
                .map(|slug| named("error", slug, ErrorKind::ALL, ErrorKind::slug))
                .transpose()?
                .map(ErrorKind::slug),
        };
        py.detach(|| {
            let mut import = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(import) = import.as_mut() else { return Err(closed()) };
            let found = row.framing.fault(row.frames).map(|error| error.kind.slug());
            import.append(&Row { error: found.or(row.error), ..row }).map_err(|error| capture_error(&error))
        })
    }

    /// Moves the rows in, durable and visible; gives their number.
    fn commit(&self, py: Python<'_>) -> PyResult<u64> {
        let import = self.take().ok_or_else(closed)?;
        let progress = py.detach(|| import.commit()).map_err(|error| capture_error(&error))?;
        Ok(progress.recorded)
    }

    /// Discards the rows, unless they are moved in.
    fn abort(&self, py: Python<'_>) {
        py.detach(|| drop(self.take()));
    }
}

impl PyImport {
    fn take(&self) -> Option<Import> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn closed() -> PyErr {
    ClosedError::new_err("this import is over")
}

pub(crate) fn named<T: Copy>(what: &str, given: &str, all: &[T], name: impl Fn(T) -> &'static str) -> PyResult<T> {
    all.iter()
        .copied()
        .find(|one| name(*one) == given)
        .ok_or_else(|| PyValueError::new_err(format!("unknown {what} {given:?}")))
}

/// Whether there is a capture.
#[pyfunction]
pub(crate) fn is_capture(py: Python<'_>, place: PyLocation) -> bool {
    py.detach(move || is_capture_there(place.0))
}

/// The id of a capture, `None` before its first row, and the number of the segment after the last published one.
#[pyfunction]
pub(crate) fn position(py: Python<'_>, place: PyLocation) -> PyResult<(Option<String>, u64)> {
    let found = py.detach(move || Position::of(place.0)).map_err(|error| capture_error(&error))?;
    Ok((found.capture_id, found.next_segment))
}

/// The published segments of a capture, in order: the numbers of the first and the last of each file.
#[pyfunction]
pub(crate) fn published(py: Python<'_>, place: PyLocation) -> PyResult<Vec<(u64, u64)>> {
    py.detach(move || published_segments(place.0)).map_err(|error| capture_error(&error))
}

/// The existing files of some segments, each given by the numbers of the first and the last.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // as Python gives it
pub(crate) fn existing(py: Python<'_>, place: PyLocation, segments: Vec<(u64, u64)>) -> PyResult<Vec<(u64, u64)>> {
    py.detach(move || existing_segments(place.0, &segments)).map_err(|error| capture_error(&error))
}

/// A published segment: the numbers of the first and the last in it, its bytes, its rows and the bytes of their frames.
type Known = (u64, u64, u64, Option<u64>, Option<u64>);

/// The existing files of some segments, or of all: `[(first, last, bytes, rows, frame_bytes)]`, the last two as far as up
/// to so many files of notes say.
#[pyfunction]
#[pyo3(signature = (place, wanted = None, *, notes = 0))]
pub(crate) fn segments(
    py: Python<'_>,
    place: PyLocation,
    wanted: Option<Vec<(u64, u64)>>,
    notes: usize,
) -> PyResult<Vec<Known>> {
    let found =
        py.detach(move || known_segments(place.0, wanted.as_deref(), notes)).map_err(|error| capture_error(&error))?;
    let known = |Published { first, last, bytes, counts }| {
        (first, last, bytes, counts.map(|(rows, _)| rows), counts.map(|(_, frame_bytes)| frame_bytes))
    };
    Ok(found.into_iter().map(known).collect())
}

/// The row groups of a segment: the numbers of the first and the last row of each, as far as it says them.
#[pyfunction]
pub(crate) fn groups(py: Python<'_>, place: PyLocation, segment: (u64, u64), size: u64) -> PyResult<Vec<(i64, i64)>> {
    py.detach(move || row_groups(place.0, segment, size)).map_err(|error| capture_error(&error))
}

/// The contents of a file of a capture, by its name below; `None` if there is none. Links are not followed.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // as Python gives it
pub(crate) fn read_file(py: Python<'_>, place: PyLocation, name: String) -> PyResult<Option<Bound<'_, PyBytes>>> {
    let read = py.detach(move || read_capture_file(place.0, &name)).map_err(|error| capture_error(&error))?;
    Ok(read.map(|content| PyBytes::new(py, &content)))
}

/// The bytes of the files of segments, those of a merged one shared among them; 0 for what does not exist.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // as Python gives it
pub(crate) fn sizes(py: Python<'_>, place: PyLocation, numbers: Vec<u64>) -> PyResult<Vec<u64>> {
    py.detach(move || segment_sizes(place.0, &numbers)).map_err(|error| capture_error(&error))
}

/// The recorded checksums of segments: ``[(first, last, bytes, crc)]``.
#[pyfunction]
pub(crate) fn sums(py: Python<'_>, place: PyLocation) -> PyResult<Vec<(u64, u64, u64, u32)>> {
    py.detach(move || segment_sums(place.0)).map_err(|error| capture_error(&error))
}

/// Merges segments up to so many bytes: ``(replaced, merged, bytes_before, bytes_after)``.
#[pyfunction]
pub(crate) fn compact(py: Python<'_>, directory: PathBuf, target_bytes: u64) -> PyResult<(u64, u64, u64, u64)> {
    let done = unless_interrupted(py, move |goes_on| compact_capture(&directory, target_bytes, goes_on))?;
    Ok((done.replaced, done.merged, done.bytes_before, done.bytes_after))
}

/// Refuses a capture that is being written.
#[pyfunction]
pub(crate) fn need_unlocked(py: Python<'_>, directory: PathBuf) -> PyResult<()> {
    py.detach(move || need_capture_unlocked(&directory)).map_err(|error| capture_error(&error))
}

/// Moves a capture to a target, which is removed if it exists.
#[pyfunction]
pub(crate) fn replace(py: Python<'_>, made: PathBuf, target: PathBuf) -> PyResult<()> {
    py.detach(move || replace_capture(&made, &target)).map_err(|error| capture_error(&error))
}

/// Restores the name of a capture that a killed `replace` left aside, if it did.
#[pyfunction]
pub(crate) fn put_back(py: Python<'_>, aside: PathBuf, target: PathBuf) -> PyResult<()> {
    py.detach(move || put_capture_back(&aside, &target)).map_err(|error| capture_error(&error))
}

/// Marks columns of a Parquet file as VARIANT, which are written as plain structs.
#[pyfunction]
pub(crate) fn mark_variants(py: Python<'_>, path: PathBuf, columns: Vec<String>) -> PyResult<()> {
    py.detach(move || mark(&path, &columns)).map_err(|error| capture_error(&error))
}

/// Runs what may take hours without the GIL, and ends it at a signal whose handler raises.
#[allow(clippy::redundant_closure_for_method_calls)] // the method is of one lifetime, the closure of any
fn unless_interrupted<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&dyn Fn() -> bool) -> Result<T, CaptureFault> + Send,
) -> PyResult<T> {
    let (done, raised) = py.detach(|| {
        let raised = OnceCell::new();
        let goes_on = || {
            if raised.get().is_none()
                && let Err(error) = Python::attach(|py| py.check_signals())
            {
                let _ = raised.set(error);
            }
            raised.get().is_none()
        };
        let done = work(&goes_on);
        (done, raised.into_inner())
    });
    raised.map_or_else(|| done.map_err(|error| capture_error(&error)), Err)
}

/// Publishes what a killed recorder left: ``(rows, cut_bytes, segment, damaged)``.
#[pyfunction]
pub(crate) fn recover(py: Python<'_>, directory: PathBuf) -> PyResult<(u64, u64, Option<u64>, Vec<u64>)> {
    let recovery = unless_interrupted(py, move |goes_on| recover_capture(&directory, goes_on))?;
    Ok((recovery.rows, recovery.cut_bytes, recovery.segment, recovery.damaged))
}

/// Segments, messages, those unchecked, and problems.
type Verified = (u64, u64, u64, Vec<(OsString, String)>);

/// Checks a capture against its own records: ``(segments, messages, unchecked, [(path, what)])``.
#[pyfunction]
pub(crate) fn verify(py: Python<'_>, place: PyLocation) -> PyResult<Verified> {
    let found = unless_interrupted(py, move |goes_on| verify_capture(place.0, goes_on))?;
    let problems = found.problems.into_iter().map(|problem| (problem.path.into(), problem.what)).collect();
    Ok((found.segments, found.messages, found.unchecked, problems))
}

/// The columns of a capture, as a pyarrow schema.
#[pyfunction]
pub(crate) fn schema(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    PySchema::new(capture_schema()).into_pyarrow(py)
}
