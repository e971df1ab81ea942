"""Tables as the arrays that HDF5 and ROOT hold: one for each column, and for lists their items and where each ends."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from trunkline._extras import needs
from trunkline._text import as_text
from trunkline.capture.exporting import to_json
from trunkline.columns import FIELD
from trunkline.errors import LocalProtocolError

if TYPE_CHECKING:
    import os

    import numpy as np
    import pyarrow as pa

__all__ = ["Hdf5Table", "RootTable", "branches"]


@dataclass(frozen=True)
class Branch:
    """A column as arrays.

    Attributes:
        name: Its name.
        values: Its values, one for each row, or the items of all its lists; text as a list.
        counts: How many items each row has; None if each has one value.
    """

    name: str
    values: np.ndarray[Any, Any] | list[str]
    counts: np.ndarray[Any, Any] | None = None


def branches(batch: pa.RecordBatch) -> Iterator[Branch]:
    """The columns of a batch without VARIANTs; the members of structs are columns of their own, `NAME_MEMBER`.

    A field of payloads has its own name, or that of its column if another has the name already. Rows without a value have 0,
    NaN, empty text or no items. Bytes are lists of numbers; what is nested deeper than a list of structs is JSON.

    Raises:
        LocalProtocolError: Two columns would have one name.
    """
    for field, name in zip(sorted(batch.schema, key=_is_field), _names(batch.schema), strict=True):
        yield from _of(name, batch.column(field.name))


@functools.lru_cache(maxsize=8)
def _names(schema: pa.Schema) -> tuple[str, ...]:
    """The names of the columns of a schema, those of fields of payloads last; worked out once for all batches."""
    taken: dict[str, str] = {}
    names = []
    for field in sorted(schema, key=_is_field):
        plain = field.name.removeprefix(FIELD)
        name = next((name for name in (plain, field.name) if taken.keys().isdisjoint(_written(name, field))), None)
        if name is None:
            other = next(taken[each] for each in _written(field.name, field) if each in taken)
            message = f"{field.name} and {other} would have the same name in the file: rename a field of the layout"
            raise LocalProtocolError(message)
        taken |= dict.fromkeys(_written(name, field), field.name)
        names.append(name)
    return tuple(names)


def _is_field(field: pa.Field) -> bool:
    return bool(field.name.startswith(FIELD))


def _written(name: str, field: pa.Field) -> set[str]:
    """The names that a column of this name has in a file of either kind, with those of what counts its items."""
    import pyarrow as pa

    found = set()
    for branch in _of(name, pa.array([], field.type)):
        found.add(_identifier(branch.name))
        if branch.counts is not None or isinstance(branch.values, list):
            found |= {f"{_identifier(branch.name)}_offsets", f"n{_identifier(branch.name)}"}
    return found


def _of(name: str, column: pa.Array) -> Iterator[Branch]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_struct(kind):
        for at, field in enumerate(kind):
            yield from _of(f"{name}_{field.name}", pc.struct_field(column, at))
        return
    if pa.types.is_fixed_size_list(kind):
        column = column.cast(pa.list_(kind.value_type))
        kind = column.type
    if pa.types.is_list(kind) and (members := _members(kind.value_type)) is not None:
        counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        items = column.flatten()
        for suffix, member in members:
            values = items if member is None else pc.struct_field(items, member)
            yield Branch(f"{name}{suffix}", _numbers(values), counts)
        return
    if _is_number(kind):
        yield Branch(name, _numbers(column))
        return
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        counts = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        yield Branch(name, np.frombuffer(b"".join(column.drop_null().to_pylist()), "u1"), counts)
        return
    yield Branch(name, [_text(value) for value in column.to_pylist()])


def _is_number(kind: pa.DataType) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_timestamp(kind))


def _members(kind: pa.DataType) -> list[tuple[str, int | None]] | None:
    """The numbers in each item of a list, with what each adds to the name; None if there is something else."""
    import pyarrow as pa

    if _is_number(kind):
        return [("", None)]
    if pa.types.is_struct(kind) and all(_is_number(field.type) for field in kind):
        return [(f"_{field.name}", at) for at, field in enumerate(kind)]
    return None


def _numbers(column: pa.Array) -> np.ndarray[Any, Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    nothing = float("nan") if pa.types.is_floating(column.type) else pa.scalar(0).cast(column.type)
    found: np.ndarray[Any, Any] = pc.fill_null(column, nothing).to_numpy(zero_copy_only=False)
    return found


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else to_json(value)


class Hdf5Table:
    """A group with a dataset for each column; of lists `NAME` has the items, and `NAME_offsets` where each list begins and ends."""

    @needs("hdf5", "h5py", "numpy")
    def __init__(self, path: str | os.PathLike[str], name: str) -> None:
        import h5py

        self._file = h5py.File(path, "w")
        self._group = self._file.create_group(name)
        self._ends: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends rows."""
        import numpy as np

        for branch in branches(batch):
            name = _link(branch.name)
            self._append(name, _without_nul(branch.values))
            if branch.counts is not None:
                before = self._ends.get(name, 0)
                ends = before + np.cumsum(branch.counts, dtype="u8")
                is_first = f"{name}_offsets" not in self._group
                self._append(f"{name}_offsets", np.concatenate([[np.uint64(0)], ends]) if is_first else ends)
                self._ends[name] = int(ends[-1]) if len(ends) else before

    def _append(self, name: str, values: Any) -> None:
        import h5py

        is_text = isinstance(values, list)
        if name not in self._group:
            kind = h5py.string_dtype() if is_text else values.dtype
            self._group.create_dataset(name, (0,), maxshape=(None,), dtype=kind, chunks=True)
        dataset = self._group[name]
        before = len(dataset)
        dataset.resize(before + len(values), axis=0)
        if len(values):
            dataset[before:] = values


class RootTable:
    """A tree with a branch for each column: numbers, or lists of them; text is a list of its bytes."""

    @needs("root", "uproot", "awkward")
    def __init__(self, path: str | os.PathLike[str], name: str) -> None:
        import uproot

        self._file = uproot.recreate(path)
        self._name = name
        self._tree: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends rows."""
        arrays = {_identifier(branch.name): self._array(branch) for branch in branches(batch)}
        if self._tree is None:
            import awkward as ak

            # A list has its own branch of counts, which is named after it.
            kinds = {name: getattr(array, "dtype", None) or ak.type(array).content for name, array in arrays.items()}
            self._tree = self._file.mktree(self._name, kinds)
        if batch.num_rows:
            self._tree.extend(arrays)

    @staticmethod
    def _array(branch: Branch) -> Any:
        import awkward as ak
        import numpy as np

        values, counts = branch.values, branch.counts
        if isinstance(values, list):
            texts = [text.encode() for text in values]
            counts = np.array([len(text) for text in texts], "i8")
            values = np.frombuffer(b"".join(texts), "u1")
        return values if counts is None else ak.unflatten(values, counts)


def _without_nul(values: Any) -> Any:
    """Text of which none has a NUL, where HDF5 would end it."""
    if not isinstance(values, list):
        return values
    return [as_text(text.encode()) if "\0" in text else text for text in values]


def _link(name: str) -> str:
    """A name that HDF5 takes: `/` leads to other groups, and `.` is the group itself."""
    name = name.replace("/", "_")
    return name if name.strip(".") else _identifier(name)


def _identifier(name: str) -> str:
    """A name that ROOT takes."""
    return "".join(letter if letter.isalnum() or letter == "_" else "_" for letter in name)
