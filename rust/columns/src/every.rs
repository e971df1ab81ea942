//! Messages of all protocols in one table: shared columns, and everything else of each message in a VARIANT.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int32Array, RecordBatch, StringArray, StructArray, UInt32Array, cast::AsArray};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Fields, Schema};
use arrow_select::{concat::concat_batches, take::take};
use trunkline_wire::ErrorKind;

use crate::{
    ColumnError, ColumnKind, Mismatches, Mode, PROTOCOLS, Parts, PlanError, Rows, Setting, Value,
    input::{Input, Need},
    output::{Bytes, Variants},
    protocols::{Decoder, Description, RowBatches, projected},
    variant::{VariantWriter, variant_field},
};

/// All protocols together.
pub static EVERY: &dyn Description = &Every;

/// The decoded columns that are shared, by any of these names.
const RECORD: &str = "record";
const TYPE: [&str; 2] = ["type", "verb"];
const ERROR: &str = "error";

/// The VARIANT of everything else.
const REST: &str = "rest";

struct Every;

impl Description for Every {
    fn name(&self) -> &'static str {
        "*"
    }

    fn is_one_way(&self) -> bool {
        false
    }

    fn options(&self) -> Vec<(&'static str, Value)> {
        vec![("mode", Value::Mode(Mode::default()))]
    }

    fn inputs(&self) -> &'static [Input] {
        &[
            Input { name: "protocol", need: Need::Always },
            Input { name: "envelope", need: Need::Always },
            Input { name: "header", need: Need::Always },
            Input { name: "payload", need: Need::HeadUnless(&[]) },
            Input { name: "n_frames", need: Need::Always },
            Input { name: "n_bytes", need: Need::For(&[REST]) },
            Input { name: "topic", need: Need::Always },
        ]
    }

    fn kept(&self) -> &'static [&'static str] {
        &[
            "capture_id",
            "segment",
            "seq",
            "received_at_ns",
            "protocol",
            "endpoint",
            "peer",
            "direction",
            "topic",
            "reply_to",
        ]
    }

    fn error_kinds(&self) -> &'static [ErrorKind] {
        &[]
    }

    fn column_kinds(&self) -> &'static [ColumnKind] {
        &ColumnKind::ALL
    }

    fn message_types(&self) -> Vec<&'static str> {
        let mut types: Vec<_> = PROTOCOLS.iter().flat_map(|protocol| protocol.message_types()).collect();
        types.sort_unstable();
        types.dedup();
        types
    }

    fn decoder(&self, given: Vec<(&str, Value)>) -> Result<Box<dyn Decoder>, PlanError> {
        let mut mode = Mode::default();
        for (name, value) in given {
            if name != "mode" {
                return Err(PlanError::NotOf(self.name(), name.to_owned()));
            }
            Setting::<Mode>::Mode(|mode| mode).set(&mut mode, "mode", value)?;
        }
        let of_each = PROTOCOLS
            .iter()
            .map(|protocol| Ok((protocol.name(), protocol.decoder(vec![("mode", Value::Mode(mode))])?)));
        Ok(Box::new(Each(of_each.collect::<Result<_, PlanError>>()?)))
    }
}

/// A decoder of each protocol.
struct Each(Vec<(&'static str, Box<dyn Decoder>)>);

impl Decoder for Each {
    fn row_fields(&self) -> Fields {
        let text = |name| Field::new(name, DataType::Utf8, true);
        Fields::from(vec![Field::new(RECORD, DataType::Int32, true), text(TYPE[0]), variant_field(REST), text(ERROR)])
    }

    fn struct_fields(&self) -> Result<Fields, PlanError> {
        Err(PlanError::NotOf("*", "struct".to_owned()))
    }

    fn inputs(&self) -> Vec<(&'static str, Need<Vec<String>>)> {
        EVERY.inputs().iter().map(|input| (input.name, input.need.with([]))).collect()
    }

    fn decode_rows(&self, parts: Parts, only: Option<&[String]>) -> Result<RowBatches, ColumnError> {
        let protocol = parts.protocol.as_ref().ok_or_else(|| ColumnError::Input("no column protocol".into()))?;
        let protocol = cast(protocol, &DataType::Utf8)?.as_string::<i32>().clone();
        let schema = Arc::new(Schema::new(self.row_fields()));
        let (mut source, mut batches) = (Vec::new(), Vec::new());
        for (name, decoder) in &self.0 {
            let rows: UInt32Array = (0..)
                .zip(&protocol)
                .filter(|(_, of_row)| *of_row == Some(*name))
                .map(|(row, _): (u32, _)| row)
                .collect();
            if rows.is_empty() {
                continue;
            }
            for decoded in decoder.decode_rows(parts.taken(&rows)?, None)? {
                let Rows { source: from, columns, .. } = decoded?;
                source.extend(from.values().iter().map(|row| rows.value(*row as usize)));
                batches.push(shared(&schema, &columns)?);
            }
        }
        // Each decoder gets the rows of one protocol.
        let mut order: Vec<u32> = (0..).take(source.len()).collect();
        order.sort_by_key(|row| source[*row as usize]);
        let order = UInt32Array::from(order);
        let all = concat_batches(&schema, &batches)?;
        let columns = all.columns().iter().map(|column| take(column, &order, None)).collect::<Result<Vec<_>, _>>()?;
        let source: UInt32Array = order.values().iter().map(|row| source[*row as usize]).collect();
        let columns = RecordBatch::try_new(schema, columns)?;
        let rows = Rows { source, columns, mismatches: Mismatches::new() };
        Ok(projected(Box::new(std::iter::once(Ok(rows))), only))
    }

    fn decode_structs(&self, _parts: &Parts) -> Result<StructArray, ColumnError> {
        Err(ColumnError::Input("a struct is of one protocol: name it".into()))
    }

    fn encode_structs(&self, _structs: &StructArray) -> Result<StructArray, ColumnError> {
        Err(ColumnError::Input("a struct is of one protocol: name it".into()))
    }
}

/// The shared columns of one protocol's decoded rows.
fn shared(schema: &Arc<Schema>, decoded: &RecordBatch) -> Result<RecordBatch, ColumnError> {
    let named = |names: &[&str]| names.iter().find_map(|name| decoded.column_by_name(name)).cloned();
    let rows = decoded.num_rows();
    let record = named(&[RECORD]).unwrap_or_else(|| Arc::new(Int32Array::from(vec![0; rows])));
    let empty = || Arc::new(StringArray::new_null(rows)) as ArrayRef;
    let (kinds, errors) = (named(&TYPE).unwrap_or_else(empty), named(&[ERROR]).unwrap_or_else(empty));
    let errors = errors.as_string::<i32>();
    let schema_of = decoded.schema();
    let others: Vec<(&str, &ArrayRef)> = schema_of
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .zip(decoded.columns())
        .filter(|(name, _)| ![RECORD, ERROR].contains(name) && !TYPE.contains(name))
        .collect();
    let (mut writer, mut rest, mut said) = (VariantWriter::default(), Variants::default(), Bytes::default());
    for row in 0..rows {
        let mut error = errors.is_valid(row).then(|| errors.value(row));
        writer.clear();
        if writer.cells(&others, row).is_ok() && writer.is_taken() {
            rest.push(Some(&mut writer))?;
        } else {
            // It has grown larger than other messages need.
            writer = VariantWriter::default();
            rest.push(None)?;
            error = error.or(Some(ColumnKind::MessageTooLarge.slug()));
        }
        said.push(error.map(str::as_bytes))?;
    }
    let columns = vec![record, kinds, rest.finish()?, Arc::new(said.finish_text()?) as ArrayRef];
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}
