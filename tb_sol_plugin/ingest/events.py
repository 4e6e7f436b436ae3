"""The typed shape of an event and of its arguments, as msgspec decodes them.

Numbers that must stay exact (`ts`, `dur`) and arguments stay raw text until their bucket is known.
Integers that are missing are -1, floats None.
A chunk that does not fit these types goes through `repair`, which produces the same objects.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

EMPTY = Raw()
NO_ARGS = Raw(b"{}")
Number = int | float | str | None


class Event(Struct, gc=False):
    """One entry of `traceEvents`. ts and dur are the text as written; a missing one is empty."""

    ph: str = ""
    cat: str | None = None
    name: str = "(unnamed)"
    pid: Number = None
    tid: Number = None
    ts: Raw = EMPTY
    dur: Raw = EMPTY
    id: Number = None
    args: Raw = NO_ARGS


class OperatorArgs(
    Struct,
    gc=False,
    rename={
        "external_id": "External id",
        "old_external_id": "external id",
        "sequence": "Sequence number",
        "forward_thread": "Fwd thread id",
        "concrete": "Concrete Inputs",
        "types": "Input type",
        "strides": "Input Strides",
        "shapes": "Input Dims",
        "old_shapes": "Input dims",
        "call_stack": "Call stack",
        "module_hierarchy": "Module Hierarchy",
        "kernel_kwargs": "kernel_kwargs",
    },
):
    external_id: Number = -1
    old_external_id: Number = -1
    sequence: Number = -1
    forward_thread: Number = -1
    concrete: Raw = EMPTY
    types: Raw = EMPTY
    strides: Raw = EMPTY
    shapes: Raw = EMPTY
    old_shapes: Raw = EMPTY
    call_stack: Raw = EMPTY
    module_hierarchy: Raw = EMPTY
    kernel_backend: Raw = EMPTY
    kernel_name: Raw = EMPTY
    kernel_file: Raw = EMPTY
    kernel_hash: Raw = EMPTY
    kernel_kwargs: Raw = EMPTY
    num_warps: Raw = EMPTY
    num_stages: Raw = EMPTY


EXTRA_FIELDS = (
    ("call_stack", "Call stack"),
    ("module_hierarchy", "Module Hierarchy"),
    ("kernel_backend", "kernel_backend"),
    ("kernel_name", "kernel_name"),
    ("kernel_file", "kernel_file"),
    ("kernel_hash", "kernel_hash"),
    ("kernel_kwargs", "kernel_kwargs"),
    ("num_warps", "num_warps"),
    ("num_stages", "num_stages"),
)


class CallArgs(Struct, gc=False, rename={"external_id": "External id", "old_external_id": "external id"}):
    external_id: Number = -1
    old_external_id: Number = -1
    cbid: Number = -1
    correlation: Number = -1


class FrameArgs(Struct, gc=False, rename={"python_id": "Python id", "parent_id": "Python parent id", "module_id": "Python module id"}):
    parent_id: Number = -1
    python_id: Number = -1
    module_id: Number = -1


class DeviceArgs(
    Struct,
    gc=False,
    rename={
        "external_id": "External id",
        "old_external_id": "external id",
        "registers": "registers per thread",
        "shared_memory": "shared memory",
        "blocks_per_sm": "blocks per SM",
        "warps_per_sm": "warps per SM",
        "occupancy": "est. achieved occupancy %",
        "bandwidth": "memory bandwidth (GB/s)",
        "graph_node": "graph node id",
        "collective": "Collective name",
        "in_elements": "In msg nelems",
        "out_elements": "Out msg nelems",
        "group_size": "Group size",
        "in_split": "In split size",
        "out_split": "Out split size",
        "process_group": "Process Group Name",
        "process_group_description": "Process Group Description",
        "ranks": "Process Group Ranks",
    },
):
    external_id: Number = -1
    old_external_id: Number = -1
    queued: Number = -1
    device: Number = -1
    context: Number = -1
    stream: Number = -1
    correlation: Number = -1
    registers: Number = -1
    shared_memory: Number = -1
    blocks_per_sm: Number = None
    warps_per_sm: Number = None
    grid: Raw = EMPTY
    block: Raw = EMPTY
    occupancy: Number = None
    bytes: Number = -1
    bandwidth: Number = None
    kind: Raw = EMPTY
    direction: Raw = EMPTY
    size: Number = -1
    graph_node: Number = -1
    collective: Raw = EMPTY
    in_elements: Number = -1
    out_elements: Number = -1
    group_size: Number = -1
    dtype: Raw = EMPTY
    in_split: Raw = EMPTY
    out_split: Raw = EMPTY
    process_group: Raw = EMPTY
    process_group_description: Raw = EMPTY
    ranks: Raw = EMPTY


class SyncArgs(Struct, gc=False, rename={"event_record": "wait_on_cuda_event_record_corr_id"}):
    device: Number = -1
    stream: Number = -1
    correlation: Number = -1
    wait_on_stream: Number = -1
    event_record: Number = -1


class MemoryArgs(
    Struct,
    gc=False,
    rename={
        "device_type": "Device Type",
        "device_id": "Device Id",
        "address": "Addr",
        "bytes": "Bytes",
        "total_allocated": "Total Allocated",
        "total_reserved": "Total Reserved",
    },
):
    total_reserved: Number = -1
    total_allocated: Number = -1
    bytes: Number = -1
    address: Number = -1
    device_id: Number = -1
    device_type: Number = -1


class MetaArgs(Struct, gc=False):
    name: Number = None
    labels: Number = None


class AnnotationArgs(Struct, gc=False, rename={"external_id": "External id"}):
    external_id: Number = -1
    device: Number = -1
    stream: Number = -1


events_decoder = msgspec.json.Decoder(list[Event])
