//! The Parquet annotation by which readers recognise a VARIANT, which some writers of Arrow tables leave out.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::LogicalType;
use parquet::errors::ParquetError;
use parquet::file::FOOTER_SIZE;
use parquet::file::metadata::{
    FileMetaData, FooterTail, PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter,
};
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};

use crate::CaptureError;

/// The version of the specification of VARIANT.
const VERSION: i8 = 1;

/// Marks columns at the top of a Parquet file, which are structs of `value` and `metadata`, as VARIANT.
pub fn mark_variants(path: &Path, columns: &[String]) -> Result<(), CaptureError> {
    let corrupt = |error: ParquetError| CaptureError::corrupt(path, error);
    let writing = |error| CaptureError::writing(path, error);
    let mut file = File::options().read(true).write(true).open(path).map_err(writing)?;
    let metadata = ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Skip)
        .parse_and_finish(&file)
        .map_err(corrupt)?;
    let mut footer = Vec::new();
    let marked = marked(&metadata, columns).map_err(corrupt)?;
    ParquetMetaDataWriter::new(&mut footer, &marked).finish().map_err(corrupt)?;
    // Everything else stays in place.
    let start = footer_start(&mut file).map_err(|error| CaptureError::reading(path, error))?;
    file.seek(SeekFrom::Start(start)).and_then(|_| file.write_all(&footer)).map_err(writing)?;
    file.set_len(start + footer.len() as u64).map_err(writing)
}

/// The metadata of a file, with some columns marked.
fn marked(metadata: &ParquetMetaData, columns: &[String]) -> Result<ParquetMetaData, ParquetError> {
    let file = metadata.file_metadata();
    let root = file.schema_descr().root_schema();
    let fields = root.get_fields().iter().map(|field| {
        if columns.iter().any(|name| name == field.name()) { variant(field).map(Arc::new) } else { Ok(field.clone()) }
    });
    let schema = Type::group_type_builder(root.name()).with_fields(fields.collect::<Result<_, _>>()?).build()?;
    let file = FileMetaData::new(
        file.version(),
        file.num_rows(),
        file.created_by().map(str::to_owned),
        file.key_value_metadata().cloned(),
        Arc::new(SchemaDescriptor::new(Arc::new(schema))),
        file.column_orders().cloned(),
    );
    Ok(ParquetMetaData::new(file, metadata.row_groups().to_vec()))
}

fn variant(field: &TypePtr) -> Result<Type, ParquetError> {
    let about = field.get_basic_info();
    Type::group_type_builder(field.name())
        .with_repetition(about.repetition())
        .with_id(about.has_id().then(|| about.id()))
        .with_fields(field.get_fields().to_vec())
        .with_logical_type(Some(LogicalType::variant(Some(VERSION))))
        .build()
}

fn footer_start(file: &mut File) -> io::Result<u64> {
    let end = file.metadata()?.len().saturating_sub(FOOTER_SIZE as u64);
    let mut tail = [0; FOOTER_SIZE];
    file.seek(SeekFrom::Start(end))?;
    file.read_exact(&mut tail)?;
    let length = FooterTail::try_new(&tail).map_err(io::Error::other)?.metadata_length();
    end.checked_sub(length as u64).ok_or_else(|| io::ErrorKind::InvalidData.into())
}
