"""Files of decoded messages that lie, so that it shows who reads them."""

import pyarrow as pa
from pyarrow import parquet


def alter(file, column, value):
    """Gives a column of a file another value in all rows, and leaves what its footer says."""
    table = parquet.read_table(file)
    at = table.schema.get_field_index(column)
    other = table.set_column(at, table.schema.field(at), pa.array([value] * len(table), table.schema.field(at).type))
    marks = parquet.read_metadata(file).metadata[b"trunkline"]
    with parquet.ParquetWriter(file, table.schema) as writer:
        writer.write_table(other)
        writer.add_key_value_metadata({"trunkline": marks})
