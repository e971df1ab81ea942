"""pyspark's `DataFrame`, as far as reports use it, on DuckDB in this process."""
