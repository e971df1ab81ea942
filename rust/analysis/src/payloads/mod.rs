//! The fields of payloads in a report: their numbers by sender, topic, resource or service.
//!
//! Nothing here depends on the order of messages, so that parts of a capture are counted apart and merged.

mod exact;
mod histogram;
mod texts;

use std::{collections::BTreeMap, sync::Arc};

use arrow_array::{Array, ArrayRef, ListArray, RecordBatch, cast::AsArray, types::Float64Type};
use arrow_buffer::OffsetBuffer;
use arrow_cast::cast;
use arrow_schema::{DataType, FieldRef};
use serde::{Deserialize, Serialize};
use trunkline_columns::ColumnError;

use self::{exact::Moments, histogram::Histogram, texts::Texts};
use crate::{
    rows::{numbers, text, text_at},
    state::{StateError, load, save},
};

/// The most names that are counted separately, and what the others are together.
const NAMES: usize = 1000;
const OTHERS: &str = "(others)";

/// How many places of arrays have a mean of their own, and how many of their values a sample has.
const PLACES: usize = 4096;

/// How many samples are kept.
const SAMPLES: usize = 5;

const PREFIX: &str = "payload_";
const STATE: &str = "payloads";
const VERSION: u16 = 1;

/// The counts of the payloads of one protocol.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Payloads {
    /// By the name of a sender, topic, resource or service, and by field.
    names: BTreeMap<String, BTreeMap<String, Field>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Field {
    malformed: u64,
    min: Option<f64>,
    max: Option<f64>,
    values: Moments,
    histogram: Histogram,
    lengths: Option<Lengths>,
    places: Vec<Moments>,
    /// Arrays with the numbers they were drawn by, the smallest first.
    samples: BTreeMap<u64, Vec<f64>>,
    texts: Texts,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Lengths {
    min: u64,
    max: u64,
    values: Moments,
}

/// What a report shows of a field.
#[derive(Serialize)]
struct FieldSummary<'a> {
    name: &'a str,
    field: &'a str,
    count: u64,
    malformed: u64,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    std: Option<f64>,
    histogram: Bins,
    length: Option<Length>,
    profile: Option<Profile>,
    samples: Vec<&'a [f64]>,
    /// The most frequent texts.
    values: Vec<(&'a str, u64)>,
    /// How many different ones there are; none if they are too many to be counted.
    different: Option<usize>,
}

#[derive(Serialize)]
struct Bins {
    edges: Vec<f64>,
    counts: Vec<u64>,
}

#[derive(Serialize)]
struct Length {
    count: u64,
    min: u64,
    max: u64,
    mean: Option<f64>,
}

#[derive(Serialize)]
struct Profile {
    mean: Vec<Option<f64>>,
    std: Vec<Option<f64>>,
}

impl Payloads {
    /// Counts rows: `name` is the column of their names; `seq`, `error` and the columns of a layout are there too.
    pub fn record(&mut self, batch: &RecordBatch, name: &str) -> Result<(), ColumnError> {
        let (names, errors, seq) = (text(batch, name)?, text(batch, "error")?, numbers(batch, "seq")?);
        let mut columns = Vec::new();
        for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
            if let Some(field) = field.name().strip_prefix(PREFIX) {
                flat(field, column, &[], &mut columns)?;
            }
        }
        let is_malformed = |row: usize| text_at(&errors, row).is_some_and(|error| error.starts_with(PREFIX));
        for (field, column) in &columns {
            for row in 0..batch.num_rows() {
                let (is_there, is_malformed) = (column.is_valid(row), is_malformed(row));
                if !is_there && !is_malformed {
                    continue;
                }
                let counted = self.field(text_at(&names, row).unwrap_or_default(), field);
                counted.malformed += u64::from(is_malformed);
                if is_there {
                    counted.add(column, row, seq.value(row));
                }
            }
        }
        Ok(())
    }

    fn field(&mut self, name: &str, field: &str) -> &mut Field {
        let is_known = self.names.contains_key(name) || self.names.len() < NAMES;
        let fields = self.names.entry(if is_known { name } else { OTHERS }.to_owned()).or_default();
        fields.entry(field.to_owned()).or_default()
    }

    /// Adds the counts of another, as the bytes of its state.
    pub fn merge(&mut self, state: &[u8]) -> Result<(), StateError> {
        let other: Self = load(STATE, VERSION..=VERSION, state)?;
        for (name, fields) in other.names {
            for (field, counted) in fields {
                self.field(&name, &field).merge(&counted);
            }
        }
        Ok(())
    }

    /// Its state, as bytes.
    pub fn state(&self) -> Vec<u8> {
        save(STATE, VERSION, self)
    }

    /// The counts of each name and field, as MessagePack.
    pub fn evaluate(&self) -> Vec<u8> {
        let fields = self.names.iter().flat_map(|(name, fields)| fields.iter().map(move |field| (name, field)));
        let found: Vec<_> = fields.map(|(name, (field, counted))| counted.evaluate(name, field)).collect();
        // Numbers, text, lists and maps, which always fit MessagePack.
        rmp_serde::to_vec_named(&found).unwrap_or_default()
    }
}

/// A column whose values are counted.
struct Values {
    of: Of,
    column: ArrayRef,
    /// The structs it is in, null where they are.
    outer: Vec<ArrayRef>,
}

#[derive(Clone, Copy)]
enum Of {
    /// Numbers, whether or not they are whole.
    Numbers { are_whole: bool },
    /// Lists of such.
    Lists { are_whole: bool },
    /// Text, or what is shown as such.
    Texts,
    /// Lists of such.
    TextLists,
}

impl Values {
    fn is_valid(&self, row: usize) -> bool {
        self.column.is_valid(row) && self.outer.iter().all(|outer| outer.is_valid(row))
    }
}

/// Whether numbers of a type are whole: Spark has decimals for those without a sign in 64 bits.
fn is_whole(of: &DataType) -> bool {
    of.is_integer() || matches!(of, DataType::Boolean | DataType::Decimal128(_, 0))
}

/// The columns of a field that are counted: of structs their members, `field.member`.
#[allow(clippy::wildcard_enum_match_arm)] // bytes and VARIANTs are not counted
fn flat(
    field: &str,
    column: &ArrayRef,
    outer: &[ArrayRef],
    found: &mut Vec<(String, Values)>,
) -> Result<(), ColumnError> {
    let mut add = |of, column| found.push((field.to_owned(), Values { of, column, outer: outer.to_vec() }));
    match column.data_type() {
        DataType::Struct(fields) if fields.iter().all(|field| !field.metadata().contains_key("variant")) => {
            let outer = [outer, std::slice::from_ref(column)].concat();
            for (member, values) in fields.iter().zip(column.as_struct().columns()) {
                flat(&format!("{field}.{}", member.name()), values, &outer, found)?;
            }
        }
        DataType::List(item) | DataType::FixedSizeList(item, _) => {
            let lists = cast(column, &DataType::List(item.clone()))?;
            let list = lists.as_list::<i32>();
            if let DataType::Struct(fields) = item.data_type() {
                for (member, values) in fields.iter().zip(list.values().as_struct().columns()) {
                    let item = Arc::new(member.as_ref().clone());
                    let offsets = list.offsets().clone();
                    let of_member = ListArray::try_new(item, offsets, values.clone(), list.nulls().cloned())?;
                    let of_member: ArrayRef = Arc::new(of_member);
                    flat(&format!("{field}.{}", member.name()), &of_member, outer, found)?;
                }
            } else if let DataType::List(inner) | DataType::FixedSizeList(inner, _) = item.data_type() {
                flat(field, &joined(list, inner)?, outer, found)?;
            } else if *item.data_type() == DataType::Utf8 {
                add(Of::TextLists, lists);
            } else if item.data_type().is_numeric() || *item.data_type() == DataType::Boolean {
                let doubles = item.as_ref().clone().with_data_type(DataType::Float64);
                let doubles = cast(&lists, &DataType::List(doubles.into()))?;
                add(Of::Lists { are_whole: is_whole(item.data_type()) }, doubles);
            }
        }
        DataType::Utf8 => add(Of::Texts, column.clone()),
        DataType::Boolean => add(Of::Texts, cast(column, &DataType::Utf8)?),
        of if of.is_numeric() => {
            add(Of::Numbers { are_whole: is_whole(of) }, cast(column, &DataType::Float64)?);
        }
        _ => {}
    }
    Ok(())
}

/// Lists of lists as lists of what is in these, in their order.
fn joined(list: &ListArray, inner: &FieldRef) -> Result<ArrayRef, ColumnError> {
    let items = cast(list.values(), &DataType::List(inner.clone()))?;
    let items = items.as_list::<i32>();
    let offsets = list.offsets().iter().map(|at| items.offsets()[usize::try_from(*at).unwrap_or(0)]);
    let offsets = OffsetBuffer::new(offsets.collect());
    let joined = ListArray::try_new(inner.clone(), offsets, items.values().clone(), list.nulls().cloned())?;
    Ok(Arc::new(joined))
}

impl Field {
    fn add(&mut self, column: &Values, row: usize, seq: i64) {
        let Values { of, column, .. } = column;
        match *of {
            Of::Numbers { are_whole } => self.numbers(&[column.as_primitive::<Float64Type>().value(row)], are_whole),
            Of::Lists { are_whole } => {
                let values = column.as_list::<i32>().value(row);
                let values = values.as_primitive::<Float64Type>();
                let values: Vec<_> = values.iter().map(|value| value.unwrap_or(f64::NAN)).collect();
                self.list(&values, are_whole, seq);
            }
            Of::Texts => self.text(column.as_string::<i32>().value(row)),
            Of::TextLists => {
                let texts = column.as_list::<i32>().value(row);
                texts.as_string::<i32>().iter().flatten().for_each(|text| self.text(text));
            }
        }
    }

    fn text(&mut self, text: &str) {
        self.values.count += 1;
        self.texts.add(text);
    }

    /// Counts numbers; what is none, or is infinite, has no place among them.
    fn numbers(&mut self, values: &[f64], are_whole: bool) {
        if values.iter().all(|value| value.is_finite()) {
            self.finite(values, are_whole);
        } else {
            let finite: Vec<_> = values.iter().copied().filter(|value| value.is_finite()).collect();
            self.finite(&finite, are_whole);
        }
    }

    fn finite(&mut self, values: &[f64], are_whole: bool) {
        for value in values {
            self.min = Some(self.min.map_or(*value, |min| min.min(*value)));
            self.max = Some(self.max.map_or(*value, |max| max.max(*value)));
        }
        self.values.extend(values);
        self.histogram.extend(values, are_whole);
    }

    fn list(&mut self, values: &[f64], are_whole: bool, seq: i64) {
        self.numbers(values, are_whole);
        let length = values.len() as u64;
        let lengths = self.lengths.get_or_insert_with(|| Lengths { min: length, max: length, ..Lengths::default() });
        (lengths.min, lengths.max) = (lengths.min.min(length), lengths.max.max(length));
        #[allow(clippy::cast_precision_loss)] // no list has so many items
        lengths.values.extend(&[length as f64]);
        let shown = &values[..values.len().min(PLACES)];
        self.places.resize(self.places.len().max(shown.len()), Moments::default());
        for (place, value) in self.places.iter_mut().zip(shown) {
            if value.is_finite() {
                place.extend(&[*value]);
            }
        }
        let number = mixed(seq.cast_unsigned());
        if self.samples.len() < SAMPLES || self.samples.keys().next_back().is_some_and(|last| number < *last) {
            self.samples.insert(number, shown.to_vec());
            self.keep_samples();
        }
    }

    fn keep_samples(&mut self) {
        while self.samples.len() > SAMPLES {
            self.samples.pop_last();
        }
    }

    fn merge(&mut self, other: &Self) {
        let both = |one: Option<f64>, other: Option<f64>, of: fn(f64, f64) -> f64| match (one, other) {
            (Some(one), Some(other)) => Some(of(one, other)),
            (one, other) => one.or(other),
        };
        self.malformed += other.malformed;
        self.min = both(self.min, other.min, f64::min);
        self.max = both(self.max, other.max, f64::max);
        self.values.merge(&other.values);
        self.histogram.merge(&other.histogram);
        match (&mut self.lengths, &other.lengths) {
            (Some(one), Some(other)) => {
                (one.min, one.max) = (one.min.min(other.min), one.max.max(other.max));
                one.values.merge(&other.values);
            }
            (one @ None, other) => one.clone_from(other),
            (Some(_), None) => {}
        }
        self.places.resize(self.places.len().max(other.places.len()), Moments::default());
        for (place, more) in self.places.iter_mut().zip(&other.places) {
            place.merge(more);
        }
        self.samples.extend(other.samples.iter().map(|(number, values)| (*number, values.clone())));
        self.keep_samples();
        self.texts.merge(&other.texts);
    }

    fn evaluate<'a>(&'a self, name: &'a str, field: &'a str) -> FieldSummary<'a> {
        let has_numbers = self.texts.are_none();
        let (edges, counts) = self.histogram.evaluate();
        let profile = || Profile {
            mean: self.places.iter().map(Moments::mean).collect(),
            std: self.places.iter().map(Moments::deviation).collect(),
        };
        let length = |lengths: &Lengths| Length {
            count: lengths.values.count,
            min: lengths.min,
            max: lengths.max,
            mean: lengths.values.mean(),
        };
        FieldSummary {
            name,
            field,
            count: self.values.count,
            malformed: self.malformed,
            min: self.min,
            max: self.max,
            mean: self.values.mean().filter(|_| has_numbers),
            std: self.values.deviation().filter(|_| has_numbers),
            histogram: Bins { edges, counts },
            length: self.lengths.as_ref().map(length),
            profile: self.lengths.is_some().then(profile),
            samples: self.samples.values().map(Vec::as_slice).collect(),
            values: self.texts.most_frequent(),
            different: self.texts.different(),
        }
    }
}

/// A number by which rows are drawn that looks random and is the same each time.
fn mixed(seq: u64) -> u64 {
    let mut number = seq.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}
