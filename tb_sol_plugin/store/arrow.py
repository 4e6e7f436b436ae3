"""One table <-> one Arrow IPC file: a single uncompressed record batch that memory-maps back without a copy.

Categories become Arrow dictionaries (code -1 becomes null), booleans are stored as bytes so that they map too.
The dtype of the categories stands in the field's metadata: what comes back equals what went in.
"""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pyarrow as pa

from tb_sol_plugin.tables.schema import Field, Schema


class Damaged(ValueError):
    """A cache file that is not what was written."""


def write(frame: pd.DataFrame, schema: Schema, path: str) -> int:
    """Write the columns that `schema` declares; returns the size of the file in bytes."""
    arrays, fields = [], []
    for name, declared in schema.fields.items():
        array, note = _to_arrow(frame[name], declared)
        arrays.append(array)
        fields.append(pa.field(name, array.type, metadata={b"sol": note.encode()}))
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return os.path.getsize(path)


def read(path: str, schema: Schema) -> pd.DataFrame:
    """The table of `path`, its numbers views of the mapped file (read-only). Damaged if it does not fit `schema`."""
    try:
        with pa.memory_map(path) as source:
            reader = pa.ipc.open_file(source)
            if reader.num_record_batches != 1:
                raise Damaged("not one record batch")
            batch = reader.get_batch(0)
    except (pa.ArrowException, OSError) as error:
        raise Damaged(str(error)) from None
    if list(batch.schema.names) != list(schema.fields):
        raise Damaged("other columns")
    columns: dict[str, object] = {}
    for (name, declared), arrow_field, array in zip(schema.fields.items(), batch.schema, batch.columns, strict=True):
        columns[name] = _from_arrow(array, declared, (arrow_field.metadata or {}).get(b"sol", b"").decode())
    return schema.frame(columns)


def _to_arrow(series: pd.Series, declared: Field) -> tuple[pa.Array, str]:
    if declared.dtype != "category":
        values = np.ascontiguousarray(series.to_numpy(dtype=declared.dtype))
        return pa.array(values.view(np.uint8) if values.dtype == np.bool_ else values), declared.dtype
    categorical = series.array
    if not isinstance(categorical, pd.Categorical):
        categorical = pd.Categorical(series)
    codes = np.ascontiguousarray(categorical.codes)
    categories = categorical.categories
    words = pa.array(list(categories), pa.large_string())
    mask = codes < 0
    indices = pa.array(np.where(mask, 0, codes).astype(codes.dtype), mask=mask) if mask.any() else pa.array(codes)
    return pa.DictionaryArray.from_arrays(indices, words), "object" if categories.dtype == object else "str"


def _from_arrow(array: pa.Array, declared: Field, note: str) -> object:
    if declared.dtype != "category":
        if array.null_count or pa.types.is_dictionary(array.type):
            raise Damaged("nulls in a number column")
        values = array.to_numpy(zero_copy_only=True)
        return values.view(np.bool_) if declared.dtype == "bool" else values
    if not pa.types.is_dictionary(array.type):
        raise Damaged("not a dictionary")
    words = array.dictionary.to_pylist()
    indices = array.indices.fill_null(-1) if array.null_count else array.indices
    codes = indices.to_numpy(zero_copy_only=True)
    if len(codes) and (int(codes.max()) >= len(words) or int(codes.min()) < -1):
        raise Damaged("a code without a word")
    categories = pd.Index(words, dtype=object) if note == "object" else pd.Index(words, dtype="str")
    dtype = pd.CategoricalDtype(categories, ordered=False)
    return pd.Categorical.from_codes(codes, dtype=dtype, validate=False)  # type: ignore[arg-type]
