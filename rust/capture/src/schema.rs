use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType, Field, Schema, SchemaRef};

/// The columns of a capture, one row for each message.
///
/// Segments have exactly these columns in this order, and all readers of a capture return them so.
pub fn schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        let mut fields = vec![
            Field::new("capture_id", DataType::Utf8, false),
            Field::new("segment", DataType::Int64, false),
            Field::new("seq", DataType::Int64, false),
        ];
        fields.extend(row_fields(&DataType::Utf8, &DataType::Utf8));
        Arc::new(Schema::new(fields))
    });
    Arc::clone(&SCHEMA)
}

/// The columns of a batch in the journal, whose header holds the others: columns with few distinct names are
/// dictionaries.
pub(crate) fn journal_schema() -> SchemaRef {
    static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
        let name = |key| DataType::Dictionary(Box::new(key), Box::new(DataType::Utf8));
        Arc::new(Schema::new(row_fields(&name(DataType::Int8), &name(DataType::Int32))))
    });
    Arc::clone(&SCHEMA)
}

/// How many columns the journal keeps in its header.
pub(crate) const HEADER_COLUMNS: usize = 3;

/// How many frames of the payload precede its body. It is null in files from before this column.
pub(crate) const N_HEAD: &str = "n_head";

/// The item of a list of frames, named as the Parquet format requires.
pub(crate) fn frame_field() -> Arc<Field> {
    static FRAME: LazyLock<Arc<Field>> = LazyLock::new(|| Arc::new(Field::new("element", DataType::Binary, false)));
    Arc::clone(&FRAME)
}

fn row_fields(closed: &DataType, repeated: &DataType) -> Vec<Field> {
    let frames = DataType::List(frame_field());
    vec![
        Field::new("received_at_ns", DataType::Int64, false),
        Field::new("protocol", closed.clone(), false),
        Field::new("endpoint", repeated.clone(), true),
        Field::new("peer", DataType::Binary, true),
        Field::new("direction", closed.clone(), false),
        Field::new("topic", DataType::Utf8, true),
        Field::new("reply_to", DataType::Utf8, true),
        Field::new("envelope", frames.clone(), false),
        Field::new("header", DataType::Binary, true),
        Field::new("payload", frames, false),
        Field::new(N_HEAD, DataType::Int32, true),
        Field::new("n_frames", DataType::Int32, false),
        Field::new("n_bytes", DataType::Int64, false),
        Field::new("error", repeated.clone(), true),
    ]
}
