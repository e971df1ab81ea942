"""What commands print: results, rows, tables, panels and progress."""
