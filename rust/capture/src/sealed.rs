//! Text in a file that readers of a whole directory read as an empty table.
//!
//! Spark and pyarrow skip names that start with a dot or an underscore; Polars and `DuckDB` read every file, and Polars
//! refuses a directory with files of two kinds, unless they are empty. So a capture's metadata lies between the magic
//! at the start of a Parquet file and the footer at its end, which names the columns of a capture and has no rows.

use std::path::Path;

use parquet::arrow::arrow_writer::{ArrowWriter, ArrowWriterOptions};

use crate::CaptureError;
use crate::schema::schema;

const MAGIC: &[u8] = b"PAR1";
/// The end of the file after the footer: its length, and the magic again.
const END: usize = 8;

/// The file with this text.
pub(crate) fn seal(path: &Path, text: &[u8]) -> Result<Vec<u8>, CaptureError> {
    let options = ArrowWriterOptions::new().with_skip_arrow_metadata(true);
    let table = ArrowWriter::try_new_with_options(Vec::new(), schema(), options)
        .and_then(ArrowWriter::into_inner)
        .map_err(|error| CaptureError::corrupt(path, error))?;
    let (magic, footer) = table.split_at(MAGIC.len());
    Ok([magic, text, footer].concat())
}

/// The text in a file.
pub(crate) fn unseal<'a>(path: &Path, file: &'a [u8]) -> Result<&'a [u8], CaptureError> {
    let text = (|| {
        let (body, end) = file.strip_prefix(MAGIC)?.split_last_chunk::<END>()?;
        let (length, magic) = end.split_first_chunk()?;
        let footer = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        (magic == MAGIC).then(|| body.get(..body.len().checked_sub(footer)?))?
    })();
    text.ok_or_else(|| CaptureError::corrupt(path, "is truncated, or not part of a capture"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;

    #[test]
    fn a_sealed_text_is_a_table_without_rows() {
        for text in ["", "{}", "PAR1", "a line\nanother\n"] {
            let file = seal(Path::new("s"), text.as_bytes()).unwrap();
            assert_eq!(unseal(Path::new("s"), &file).unwrap(), text.as_bytes());
            let table = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(file)).unwrap();
            let names = |schema: &arrow_schema::Schema| -> Vec<String> {
                schema.fields().iter().map(|field| field.name().clone()).collect()
            };
            assert_eq!(names(table.schema()), names(&schema()));
            assert_eq!(table.build().unwrap().count(), 0);
        }
    }

    #[test]
    fn what_is_cut_short_is_reported() {
        let file = seal(Path::new("s"), b"{}").unwrap();
        for end in 0..file.len() {
            assert!(unseal(Path::new("s"), &file[..end]).is_err(), "{end}");
        }
    }
}
