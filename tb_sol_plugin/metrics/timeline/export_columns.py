"""Writes columns of tables as arguments of events, under the names that PyTorch's profiler gives them."""

from __future__ import annotations

import json
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.tables.lines import Lines

OPERATOR: Final = (("shapes", "Input Dims"), ("types", "Input type"), ("strides", "Input Strides"), ("concrete", "Concrete Inputs"))
DEVICE_NUMBERS: Final = (
    ("device", "device"), ("stream", "stream"), ("correlation", "correlation"), ("external_id", "External id"), ("bytes", "bytes"),
    ("registers", "registers per thread"), ("shared_memory", "shared memory"), ("context", "context"), ("graph_node", "graph node id"),
)  # fmt: skip
DEVICE_RATES: Final = (
    ("bandwidth", "memory bandwidth (GB/s)"), ("blocks_per_sm", "blocks per SM"), ("warps_per_sm", "warps per SM"),
    ("occupancy_pct", "est. achieved occupancy %"),
)  # fmt: skip
COLLECTIVE: Final = (
    ("name", "Collective name"), ("dtype", "dtype"), ("process_group", "Process Group Name"),
    ("process_group_description", "Process Group Description"), ("ranks", "Process Group Ranks"), ("in_split", "In split size"),
    ("out_split", "Out split size"), ("communicator", "Comms Id"),
)  # fmt: skip
COLLECTIVE_NUMBERS: Final = (
    ("in_elements", "In msg nelems"), ("out_elements", "Out msg nelems"), ("group_size", "Group size"), ("sequence", "Seq"),
    ("source_rank", "Src Rank"), ("target_rank", "Dst Rank"), ("rank_start", "Global rank start"), ("rank_stride", "Global rank stride"),
)  # fmt: skip
SYNC_NUMBERS: Final = (
    ("device", "device"), ("stream", "stream"), ("correlation", "correlation"),
    ("event_record_correlation", "wait_on_cuda_event_record_corr_id"), ("wait_on_stream", "wait_on_stream"),
)  # fmt: skip
MEMORY: Final = (("device_type", "Device Type"), ("device_id", "Device Id"), ("address", "Addr"), ("bytes", "Bytes"))


def key_of(name: str) -> str:
    """Returns the JSON of a key with its colon."""
    return f"{json.dumps(name)}: "


def texts_of(frame: pd.DataFrame, column: str, rows: Ints, *, quoted: bool = False) -> tuple[Ints, list[str]]:
    """Returns the place of each row's text in a list of those that are used, -1 for none. quoted: as JSON, a row without text as ""."""
    coded = arrays.coded(frame[column])
    code = np.asarray(coded.codes)[rows].astype(np.int64)
    known = arrays.in_use(code, len(coded.categories))
    rank = np.full(len(coded.categories) + 1, len(known), np.int64)  # the last for no text
    rank[known] = np.arange(len(known))
    place, spelled = rank[code], [*map(str, coded.categories.take(known).tolist()), ""]
    if quoted:
        return place, [json.dumps(text) for text in spelled]
    return np.where([bool(text) for text in spelled], np.arange(len(spelled)), -1)[place], spelled


class Spread:
    """Columns of a table about some of the rows that are written, spread over all of these."""

    def __init__(self, lines: Lines, table: pd.DataFrame, place: Ints, count: int, column: str) -> None:
        self._lines, self._table, self._count = lines, table, count
        at = place[table[column].to_numpy()] if len(table) else np.zeros(0, np.int64)
        self.mine = np.flatnonzero(at >= 0)
        self._at = at[self.mine]

    def _over(self, values: npt.NDArray[np.integer]) -> Ints:
        out = np.full(self._count, -1, np.int64)
        out[self._at] = values
        return out

    def number(self, column: str, key: str) -> None:
        """Add a whole number; a negative one is none."""
        if len(self.mine):
            self._lines.number(self._over(self._table[column].to_numpy()[self.mine]), key_of(key))

    def constant(self, key: str, value: str) -> None:
        """Add the same JSON for each row."""
        if len(self.mine):
            self._lines.text(self._over(np.zeros(len(self.mine), np.int64)), [value], key_of(key), part=True)

    def text(self, column: str, key: str, *, quoted: bool = False, inside: bool = False) -> None:
        """Add a text that is JSON already, or quoted; "" is none. inside: what stands inside the braces of an object."""
        if not len(self.mine):
            return
        place, texts = texts_of(self._table, column, self.mine)
        if inside:
            some = np.array([len(one) > 2 for one in texts])
            place, texts = np.where(some[place] & (place >= 0), place, -1), [one[1:-1] for one in texts]
        spelled = [json.dumps(one) for one in texts] if quoted else texts
        self._lines.text(self._over(place), spelled, key_of(key) if key else "", part=True)


def write_messages(lines: Lines, table: pd.DataFrame, place: Ints, count: int) -> None:
    """Add the sends and receives that host operators recorded. place: of each host row among the `count` that are written, -1 none."""
    every = Spread(lines, table, place, count, "host")
    for receives, name, end in ((False, "send", "Dst Rank"), (True, "recv", "Src Rank")):
        some = Spread(lines, table[table["receives"].to_numpy() == receives], place, count, "host")
        some.constant("Collective name", json.dumps(name))
        some.number("peer", end)
    for column, key in COLLECTIVE:
        if column in table and column != "name":
            every.text(column, key, quoted=True)
    every.number("elements", "In msg nelems")
    for column, key in COLLECTIVE_NUMBERS:
        if column in table:
            every.number(column, key)
