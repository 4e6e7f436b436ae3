"""Makes Kineto traces whose every number is known, in Kineto's own text formatting.

    t = TraceBuilder(device="NVIDIA H100 80GB HBM3")
    t.step(1, 0, 10_000)
    t.op("aten::mm", 1_000, 2_000, shapes=[[8, 4], [4, 2]], types=["float", "float"])
    t.launch("gemm_kernel", at=1_500, start=3_000, duration=4_000, stream=7)      # a runtime call and the kernel it launches
    t.copy("HtoD", 8_000, 500, bytes=4096, src="Pageable", dst="Device", call=(7_900, 50))
    path = t.write(tmp_path / "run" / "worker0.1700000000000000000.pt.trace.json.gz")

All times are integer nanoseconds from the builder's own zero; they are written as microseconds with three decimals, relative to
`baseTimeNanoseconds`. Every `add`-like method returns what a later event needs to refer to it (a correlation, a Python id, the event).
`t.events` is the plain list of events: change it to make odd input; wrap a value in `Raw` to have its text written verbatim.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Event: TypeAlias = "dict[str, Json]"
BASE_NS = 1_700_000_000_000_000_000
ORIGIN_NS = 1_000_000_000_000
"""The builder's zero, in ns after the base time: large, as it is in real files, so that a float in between would show."""


class Raw(str):
    """Text that goes into the file exactly as it stands: `NaN`, `N/A`, a broken escape, a quoted number."""

    __slots__ = ()


DEVICES: dict[str, dict[str, Json]] = {
    "NVIDIA H100 80GB HBM3": {
        "totalGlobalMem": 85_018_279_936, "computeMajor": 9, "computeMinor": 0, "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 32, "sharedMemPerBlock": 49152, "numSms": 132,
        "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448, "sharedMemPerMultiprocessor": 233472,
    },
    "AMD Instinct MI300X": {
        "totalGlobalMem": 206_141_652_992, "computeMajor": 9, "computeMinor": 4, "maxThreadsPerBlock": 1024,
        "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": 64, "sharedMemPerBlock": 65536, "numSms": 304,
    },
}  # fmt: skip


class TraceBuilder:
    """Collects events and writes them.

    device: name in `deviceProperties` ("" for none: a CPU recording). base_ns: None leaves `baseTimeNanoseconds` out.
    rank and world_size put a `distributedInfo` into the header. header: more header keys; a value of None takes a key out.
    """

    def __init__(
        self,
        *,
        device: str = "NVIDIA H100 80GB HBM3",
        devices: int = 1,
        pid: int = 4242,
        base_ns: int | None = BASE_NS,
        origin_ns: int = ORIGIN_NS,
        rank: int | None = None,
        world_size: int = 1,
        header: Mapping[str, Json] | None = None,
    ) -> None:
        self.pid = pid
        self.thread = pid
        self.origin_ns = origin_ns
        self.events: list[Event] = []
        self._next = {"external": 1, "correlation": 100, "python": 1, "flow": 1, "index": 0}
        self.header = _header(device, devices, base_ns, rank, world_size)
        for key, value in (header or {}).items():
            self.header[key] = value
            if value is None:
                del self.header[key]

    # -- plumbing ---------------------------------------------------------------------------------------------

    def add(self, event: Mapping[str, Json]) -> Event:
        """Any event as it stands (`ts` and `dur` already in microseconds)."""
        own = dict(event)
        self.events.append(own)
        return own

    def ts(self, ns: int) -> Raw:
        """Text of a time for `add`: microseconds with three decimals."""
        return _us(self.origin_ns + ns)

    def number(self, kind: str) -> int:
        """The next free correlation, external, python or flow id."""
        self._next[kind] += 1
        return self._next[kind] - 1

    def _complete(self, category: str, name: str, pid: Json, tid: Json, start: int, duration: int, args: Mapping[str, Json]) -> Event:
        kept: dict[str, Json] = {k: v for k, v in args.items() if v is not None}
        return self.add({
            "ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": self.ts(start), "dur": _us(duration), "args": kept,
        })  # fmt: skip

    def _host(self, category: str, name: str, start: int, duration: int, thread: int | None, args: Mapping[str, Json]) -> Event:
        return self._complete(category, name, self.pid, self.thread if thread is None else thread, start, duration, args)

    # -- host -------------------------------------------------------------------------------------------------

    def op(
        self,
        name: str,
        start: int,
        duration: int,
        *,
        thread: int | None = None,
        shapes: list[Json] | None = None,
        types: list[Json] | None = None,
        strides: list[Json] | None = None,
        concrete: list[Json] | None = None,
        sequence: int | None = None,
        forward_thread: int | None = None,
        external_id: int | None = None,
        args: Mapping[str, Json] | None = None,
    ) -> int:
        """A cpu_op; returns its external id."""
        external = self.number("external") if external_id is None else external_id
        self._host("cpu_op", name, start, duration, thread, {
            "External id": external, "Record function id": 0, "Sequence number": sequence, "Fwd thread id": forward_thread,
            "Concrete Inputs": concrete, "Input type": types, "Input Strides": strides, "Input Dims": shapes,
            "Ev Idx": self.number("index"), **(args or {}),
        })  # fmt: skip
        return external

    def annotation(self, name: str, start: int, duration: int, *, thread: int | None = None, gpu: tuple[int, int] | None = None,
                   stream: int = 7) -> int:  # fmt: skip
        """A user annotation; `gpu=(start, duration)` adds the copy that the recorder puts on the stream."""
        external = self.number("external")
        self._host("user_annotation", name, start, duration, thread, {
            "External id": external, "Record function id": 0, "Ev Idx": self.number("index"),
        })  # fmt: skip
        if gpu is not None:
            self._complete("gpu_user_annotation", name, 0, stream, *gpu, {"External id": external})
        return external

    def step(self, number: int, start: int, duration: int, *, gpu: tuple[int, int] | None = None) -> int:
        """`ProfilerStep#number`."""
        return self.annotation(f"ProfilerStep#{number}", start, duration, gpu=gpu)

    def frame(self, name: str, start: int, duration: int, *, parent: int | None = None, thread: int | None = None,
              module_id: int | None = None, python_id: int | None = None) -> int:  # fmt: skip
        """A python frame; returns its Python id. Without `parent` the recorder's null is written."""
        own = self.number("python") if python_id is None else python_id
        event = self._host("python_function", name, start, duration, thread, {
            "Python id": own, "Python module id": module_id, "Ev Idx": self.number("index"),
        })  # fmt: skip
        args = event["args"]
        assert isinstance(args, dict)
        args["Python parent id"] = parent
        return own

    def module(self, name: str, start: int, duration: int, *, module_id: int, parent: int | None = None, thread: int | None = None) -> int:
        """A call of `nn.Module: name` (`Linear_0`); returns its Python id."""
        return self.frame(f"nn.Module: {name}", start, duration, parent=parent, thread=thread, module_id=module_id)

    def call(self, name: str, start: int, duration: int, *, correlation: int | None = None, thread: int | None = None,
             category: str = "cuda_runtime", external_id: int | None = None, flow: bool = False) -> int:  # fmt: skip
        """A runtime (or driver) call; returns its correlation. `flow` adds the launching half of an ac2g flow."""
        correlation = self.number("correlation") if correlation is None else correlation
        self._host(category, name, start, duration, thread, {"External id": external_id, "cbid": 211, "correlation": correlation})
        if flow:
            self._flow_half("s", "ac2g", correlation, self.pid, self.thread if thread is None else thread, start)
        return correlation

    # -- device -----------------------------------------------------------------------------------------------

    def kernel(self, name: str, start: int, duration: int, *, correlation: int | None = None, stream: int = 7, device: int = 0,
               grid: tuple[int, int, int] = (132, 1, 1), block: tuple[int, int, int] = (256, 1, 1), registers: int = 64,
               shared_memory: int = 0, blocks_per_sm: float | None = 1.0, warps_per_sm: float | None = 8.0, occupancy: int | None = 50,
               external_id: int | None = None, category: str = "kernel", args: Mapping[str, Json] | None = None,
               flow: bool = False) -> Event:  # fmt: skip
        """A kernel. Without `correlation` it has no launch record."""
        event = self._complete(category, name, device, stream, start, duration, {
            "External id": external_id, "queued": 0, "device": device, "context": 1, "stream": stream, "correlation": correlation,
            "registers per thread": registers, "shared memory": shared_memory, "blocks per SM": blocks_per_sm,
            "warps per SM": warps_per_sm, "grid": list(grid), "block": list(block), "est. achieved occupancy %": occupancy, **(args or {}),
        })  # fmt: skip
        if flow and correlation is not None:
            self._flow_half("f", "ac2g", correlation, device, stream, start)
        return event

    def launch(self, name: str, *, at: int, start: int, duration: int, call_duration: int = 100, thread: int | None = None,
               api: str = "cudaLaunchKernel", api_category: str = "cuda_runtime", **kernel: object) -> int:  # fmt: skip
        """A runtime call at `at` and the kernel it launches; returns their correlation."""
        flow = bool(kernel.pop("flow", True))
        correlation = self.call(api, at, call_duration, thread=thread, category=api_category, flow=flow)
        self.kernel(name, start, duration, correlation=correlation, flow=flow, **kernel)  # type: ignore[arg-type]
        return correlation

    def copy(self, direction: str, start: int, duration: int, *, src: str = "Device", dst: str = "Device", bytes: int | None = None,
             call: tuple[int, int] | None = None, correlation: int | None = None, stream: int = 7, device: int = 0,
             thread: int | None = None, api: str = "cudaMemcpyAsync") -> int | None:  # fmt: skip
        """`Memcpy HtoD (Pageable -> Device)`; `call=(start, duration)` adds the runtime call that launches it."""
        if call is not None:
            correlation = self.call(api, *call, thread=thread, correlation=correlation, flow=True)
        self._complete("gpu_memcpy", f"Memcpy {direction} ({src} -> {dst})", device, stream, start, duration, {
            "device": device, "context": 1, "stream": stream, "correlation": correlation, "bytes": bytes,
            "memory bandwidth (GB/s)": bytes / duration if bytes and duration else None,
        })  # fmt: skip
        return correlation

    def memset(self, start: int, duration: int, *, bytes: int | None = None, call: tuple[int, int] | None = None,
               correlation: int | None = None, stream: int = 7, device: int = 0, kind: str = "Device") -> int | None:  # fmt: skip
        """`Memset (Device)`."""
        if call is not None:
            correlation = self.call("cudaMemsetAsync", *call, correlation=correlation, flow=True)
        self._complete("gpu_memset", f"Memset ({kind})", device, stream, start, duration, {
            "device": device, "context": 1, "stream": stream, "correlation": correlation, "bytes": bytes,
        })  # fmt: skip
        return correlation

    def collective(self, name: str, start: int, duration: int, *, elements: int, dtype: str = "Float", group_size: int = 2,
                   out_elements: int | None = None, correlation: int | None = None, stream: int = 20, device: int = 0,
                   kernel: str = "", args: Mapping[str, Json] | None = None) -> Event:  # fmt: skip
        """An NCCL kernel with its recorded arguments; `name` is the collective's ("allreduce")."""
        title = name.title().replace("reduce", "Reduce").replace("gather", "Gather")
        spelled = kernel or f"ncclDevKernel_{title}_Sum_{dtype}_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        nccl: dict[str, Json] = {
            "Collective name": name, "In msg nelems": elements, "Out msg nelems": elements if out_elements is None else out_elements,
            "Group size": group_size, "dtype": dtype, "In split size": "[]", "Out split size": "[]", "Process Group Name": "0",
            "Process Group Description": "default_pg", "Process Group Ranks": json.dumps(list(range(group_size))),
        }  # fmt: skip
        return self.kernel(spelled, start, duration, correlation=correlation, stream=stream, device=device, grid=(24, 1, 1),
                           block=(544, 1, 1), registers=96, shared_memory=82240, blocks_per_sm=0.18, warps_per_sm=3.1, occupancy=0,
                           args={**nccl, **(args or {})}, flow=correlation is not None)  # fmt: skip

    def sync(self, name: str, start: int, duration: int, *, stream: int = 7, correlation: int | None = None, device: int = 0) -> Event:
        """A cuda_sync record: no GPU work."""
        return self._complete("cuda_sync", name, device, stream, start, duration, {
            "device": device, "context": 1, "stream": stream, "correlation": correlation, "cuda_sync_kind": name,
        })  # fmt: skip

    # -- points and flows -------------------------------------------------------------------------------------

    def memory(self, at: int, bytes: int, *, address: int | None = 0x7F0000000000, allocated: int | None = None,
               reserved: int | None = None, device_type: int = 1, device_id: int = 0, thread: int | None = None) -> Event:  # fmt: skip
        """A [memory] instant: an allocation of `bytes`, or a free when negative."""
        args: dict[str, Json] = {
            "Total Reserved": reserved, "Total Allocated": allocated, "Bytes": bytes, "Addr": address, "Device Id": device_id,
            "Device Type": device_type, "Ev Idx": self.number("index"),
        }  # fmt: skip
        return self.add({
            "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": self.pid,
            "tid": self.thread if thread is None else thread, "ts": self.ts(at), "args": {k: v for k, v in args.items() if v is not None},
        })  # fmt: skip

    def forward_backward(self, forward_at: int, backward_at: int, *, forward_thread: int | None = None, backward_thread: int) -> int:
        """A fwdbwd flow from a forward operator's start to a backward operator's start; returns its id."""
        own = self.number("flow")
        self._flow_half("s", "fwdbwd", own, self.pid, self.thread if forward_thread is None else forward_thread, forward_at)
        self._flow_half("f", "fwdbwd", own, self.pid, backward_thread, backward_at)
        return own

    def _flow_half(self, phase: str, category: str, own: int, pid: int, tid: int, at: int) -> None:
        end: dict[str, Json] = {"bp": "e"} if phase == "f" else {}
        self.add({"ph": phase, "id": own, "pid": pid, "tid": tid, "ts": self.ts(at), "cat": category, "name": category, **end})

    def metadata(self, name: str, value: Json, *, pid: Json = None, tid: Json = 0) -> Event:
        """An `M` event: `metadata("thread_name", "stream 7 ", pid=0, tid=7)`."""
        key = {"process_name": "name", "thread_name": "name", "process_labels": "labels"}.get(name, "sort_index")
        return self.add({
            "ph": "M", "name": name, "ts": self.ts(0), "pid": self.pid if pid is None else pid, "tid": tid, "args": {key: value},
        })  # fmt: skip

    # -- writing ----------------------------------------------------------------------------------------------

    def text(self, *, events_last: bool = True) -> str:
        """The file's text; `events_last=False` puts the header after the events, as some producers do."""
        head = [f'  "{key}": {_value(value)}' for key, value in self.header.items()]
        body = '  "traceEvents": [\n' + events_text(self.events) + "\n  ]"
        parts = [*head, body] if events_last else [body, *head]
        return "{\n" + ",\n".join(parts) + "\n}\n"

    def data(self) -> bytes:
        """The file's bytes, not compressed."""
        return self.text().encode()

    def write(self, path: str | Path) -> Path:
        """Write to `path`, gzipped where it ends in `.gz`; the same events give the same bytes."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        data = self.data()
        target.write_bytes(gzip.compress(data, 6, mtime=0) if target.suffix == ".gz" else data)
        return target


def events_text(events: Iterable[Mapping[str, Json]]) -> str:
    """Events the way Kineto writes them: one key a line, `args` on one line of its own."""
    out = []
    for event in events:
        lines = []
        for key, value in event.items():
            if key == "args" and isinstance(value, dict):
                inner = ", ".join(f"{_value(k)}: {_value(v)}" for k, v in value.items())
                lines.append(f'    "args": {{\n      {inner}\n    }}')
            else:
                lines.append(f"    {_value(key)}: {_value(value)}")
        out.append("  {\n" + ",\n".join(lines) + "\n  }")
    return ",\n".join(out)


_encoded = json.JSONEncoder(ensure_ascii=False).encode
_text = lru_cache(maxsize=4_096)(_encoded)


def _value(value: Json) -> str:
    if isinstance(value, Raw):
        return str(value)
    if type(value) is str:  # most of them are few names again and again
        return _text(value)
    if type(value) is int:
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_value(k)}: {_value(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    return _encoded(value)


def _us(ns: int) -> Raw:
    sign, magnitude = ("-", -ns) if ns < 0 else ("", ns)
    return Raw(f"{sign}{magnitude // 1000}.{magnitude % 1000:03d}")


def _header(device: str, devices: int, base_ns: int | None, rank: int | None, world_size: int) -> dict[str, Json]:
    header: dict[str, Json] = {"schemaVersion": 1}
    known = DEVICES.get(device, {})
    header["deviceProperties"] = [{"id": i, "name": device, **known} for i in range(devices)] if device else []
    if device.startswith("NVIDIA"):
        header |= {"cupti_version": 26, "cuda_runtime_version": 12060, "cuda_driver_version": 12080}
    elif device.startswith("AMD"):
        header |= {"roctracer_version": 401, "hip_runtime_version": 60_243, "hip_driver_version": 60_243}
    if rank is not None:
        header["distributedInfo"] = {
            "backend": "nccl", "rank": rank, "world_size": world_size, "pg_count": 1,
            "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": world_size,
                           "ranks": list(range(world_size))}], "nccl_version": "2.21.5",
        }  # fmt: skip
    header |= {"record_shapes": 1, "with_stack": 1, "profile_memory": 1, "displayTimeUnit": "ms"}
    if base_ns is not None:
        header["baseTimeNanoseconds"] = base_ns
    return header
