"""CDTP2 messages that say in few bytes what takes many: packed by hand."""

import msgpack


def repeating(name_bytes, records):
    """A name of so many bytes, which each of so many empty records repeats."""
    count = b"\xdd" + records.to_bytes(4)
    return b"\xa5CDTP\x02" + msgpack.packb("x" * name_bytes) + b"\x00" + count + b"\x93\x00\x80\x90" * records


# 312 kB of rows that repeat 2.24 GB of a name: more than a column can have.
TOO_LARGE = repeating(32_000, 70_000)

# 302 kB of rows that repeat 150 MB of a name.
RECORDS = 500
MANY_BATCHES = repeating(300_000, RECORDS)


def frames(header):
    """The message of a header: CDTP2 has it alone."""
    return [header] if header.startswith(b"\xa5CDTP\x02") else [header, b""]
