"""Random events and damaged bytes: a Capture whose parts sum to their wholes, or one SolError; nothing else, and no waiting."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from tb_sol_plugin.errors import SolError
from tb_sol_plugin.ingest import read
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.registry import registry
from tests.support.check_capture import check_capture, is_contract_shaped
from tests.support.trace_builder import Json, Raw, TraceBuilder

CATEGORIES = ["cpu_op", "cpu_op", "cpu_op", "user_annotation", "python_function", "cuda_runtime", "cuda_runtime", "cuda_driver", "kernel", "kernel", "kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "gpu_user_annotation", "overhead", "Operator", "Runtime", "Kernel", "Memcpy", "hpu_op", "mtia_ccp_events", "weird", "Trace"]  # fmt: skip
NAMES = [
    "aten::mm", "aten::linear", "aten::convolution", "ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#99", "nccl:all_reduce",
    "record_param_comms", "nn.Module: Net_0", "nn.Module: Linear_1", "autograd::engine::evaluate_function: MmBackward0", "MmBackward0",
    "Optimizer.step#SGD.step", "enumerate(DataLoader)#_Single.__next__", "cudaLaunchKernel", "cudaGraphLaunch", "ncclDevKernel_AllReduce",
    "Memcpy HtoD (Pageable -> Device)", "Memset (Device)", "a/b", "///", "", "x" * 300, "__amd_rocclr_copyBuffer", "backward",
]  # fmt: skip
NUMBERS = ("correlation", "External id", "Sequence number", "Fwd thread id", "device", "stream", "bytes", "Python id", "Python parent id",
           "Python module id", "Group size", "In msg nelems", "Out msg nelems", "blocks per SM", "est. achieved occupancy %")  # fmt: skip
ODD: list[Json] = [-1, None, "3", "x", 1.5, Raw("NaN"), 2**40, Raw("1e3"), [], {}]
SHAPES: list[Json] = [[[4, 4], [4, 4]], [[2, 3, 8, 8], [4, 3, 3, 3], [4], [], [], [], [], [], []], [], [[]], [[[1, 2], [3]], [1]], "x",
                      [[-1]], [[10**30, 2], [2, 10**10]], [[0, 4], [4, 0]], [[4, 8], [8, 2], 5, None]]  # fmt: skip
TEXTS: list[Json] = [["", "", ""], ["__import__('os').abort()"] * 4, ["[1, 1]", "True"], "x", ["["] * 9]


def moment(r: random.Random) -> Json:
    if r.random() < 0.97:
        return r.choice([r.randint(0, 50), r.randint(0, 50) + r.choice([0.125, 0.25])])
    return r.choice([-5, -0.001, 1e15, Raw('"12.5"'), Raw("1e2"), None, "x", 9e15, -9e15])


def event(r: random.Random) -> dict[str, Json]:
    if r.random() < 0.12:
        own: Json = r.choice([1, 2, 3, "1", "abc", "0x4", None, 2**70])
        category = r.choice(["ac2g", "fwdbwd", "async", "forward_backward"])
        return {"ph": r.choice("stf"), "cat": category, "name": "x", "id": own, "pid": r.choice([1, 0]), "tid": r.choice([1, 2, 7]),
                "ts": moment(r)}  # fmt: skip
    if r.random() < 0.08:
        args: Json = {
            "Bytes": r.choice([5, -5]),
            "Addr": r.choice([1, 2]),
            "Device Type": r.choice([0, 1, 6, 99]),
            "Device Id": 0,
            "name": "n",
        }
        return {"ph": r.choice(["i", "C", "M", "B", "E", "Z", ""]), "cat": r.choice(CATEGORIES), "name": r.choice(["[memory]", "thread_name"]),
                "pid": r.choice([1, 0, "x"]), "tid": r.choice([1, 7, "stream 7"]), "ts": moment(r), "args": args}  # fmt: skip
    out: dict[str, Json] = {"ph": "X", "name": r.choice(NAMES), "cat": r.choice(CATEGORIES), "pid": r.choice([1, 1, 0, "2"]),
                            "tid": r.choice([1, 1, 2, 7, "stream 7", ""]), "ts": moment(r)}  # fmt: skip
    if r.random() < 0.95:
        out["dur"] = r.choice([0, 0, 1, 2, 5, 10, 30, 60, 0.5]) if r.random() < 0.97 else r.choice([-3, None, "x", 1e15, 9e15, 1e300])
    chosen: dict[str, Json] = {k: r.randint(0, 6) if r.random() < 0.93 else r.choice(ODD) for k in NUMBERS if r.random() < 0.5}
    for key, values in (("Input Dims", SHAPES), ("Concrete Inputs", TEXTS), ("Input type", [["float", "float"], ["c10::BFloat16"] * 3, "x", [1]]),
                        ("Collective name", ["allreduce", "", 5]), ("kind", ["HtoD", 5]), ("grid", [[1, 1, 1], [], "x"])):  # fmt: skip
        if r.random() < 0.4:
            chosen[key] = r.choice(values)  # type: ignore[arg-type]
    out["args"] = chosen if r.random() < 0.97 else r.choice([[], 5, None, "x"])
    return out


def refusal(c: Capture, name: str, field: str, choice: str) -> list[str]:
    """The field's name if its value was refused; else the answer must have the contract's shape."""
    try:
        is_contract_shaped(name, c.analyze(name, **{field: choice}))
    except SolError:
        return [field]
    return []


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.exhaustive) for n in range(4, 12))])
def test_random_events_give_a_capture_whose_parts_add_up(tmp_path: Path, seed: int) -> None:
    r = random.Random(seed)
    t = TraceBuilder(
        device=r.choice(["", "NVIDIA H100 80GB HBM3", "AMD Instinct MI300X"]), base_ns=r.choice([None, 1_700_000_000_000_000_000])
    )
    t.events = [event(r) for _ in range(r.choice([1, 2, 5, 20, 40, 60]))]
    c = check_capture(t.write(tmp_path / "w.1.pt.trace.json"), tmp_path / "cache")
    # the parts of every analysis sum to their wholes (checked above); each variant of its query answers in the contract's shape: a quarter
    # of them for each of the first four seeds, half of them for the others
    variants = [
        (name, field.name, choice)
        for name, item in registry().items()
        for field in item.fields
        for choice in (*field.choices, *(("1", "2") if field.name == "step" else ()))
    ]
    refused: list[str] = []
    for name, field, choice in variants[seed::4] if seed < 4 else variants[seed % 2 :: 2]:
        refused += refusal(c, name, field, choice)
    assert set(refused) <= {"step", "source"}, "only a step, or a source of memory, can be missing from a recording"


def whole() -> bytes:
    t = TraceBuilder(rank=0, world_size=2)
    t.metadata("thread_name", "stream 7", pid=0, tid=7)
    for s in range(2):
        at = 50_000 * s
        t.step(s, at, 40_000, gpu=(at + 5_000, 20_000))
        t.module("Net_0", at + 100, 9_000, module_id=0)
        t.op("aten::mm", at + 400, 3_000, shapes=[[8, 4], [4, 2]], types=["float", "float"], concrete=["", ""], sequence=s)
        t.launch("gemm", at=at + 500, start=at + 5_000, duration=700)
        t.op("MmBackward0", at + 15_000, 4_000, thread=99, sequence=s, forward_thread=1)
        t.forward_backward(at + 400, at + 15_000, backward_thread=99)
        t.copy("HtoD", at + 20_000, 500, bytes=4096, src="Pageable", call=(at + 19_900, 50))
        t.collective("allreduce", at + 22_000, 400, elements=100, correlation=t.call("cudaLaunchKernel", at + 21_000, 10))
        t.memory(at + 600, 512, allocated=512, reserved=1_024)
    return t.data()


PIECES = [b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\\ud800", b"\x00", b"\xff", b"-", b"1e999", b"NaN", b"null", b'"traceEvents": [',
          b'"ph": "X"', b'"args": {', b"9" * 30, b"\xed\xa0\x80", b"\n"]  # fmt: skip


def damaged(r: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(r.choice([1, 1, 2, 5, 20])):
        if not out:
            break
        at, how = r.randrange(len(out)), r.randrange(5)
        if how == 0:
            out[at] ^= 1 << r.randrange(8)
        elif how == 1:
            del out[at : at + r.choice([1, 2, 10, 100])]
        elif how == 2:
            out[at:at] = r.choice(PIECES)
        elif how == 3:
            del out[at:]
        else:
            again = r.randrange(len(out))
            out[at:at] = out[again : again + r.choice([10, 200, 2_000])]
    return bytes(out)


def test_damaged_bytes_give_a_capture_or_one_error(tmp_path: Path) -> None:
    # GIVEN a recording in which bits flip, pieces vanish, double or appear, before and after packing
    r, data, path, read_well = random.Random(7), whole(), tmp_path / "w.1.pt.trace.json", 0
    hints: list[str] = []
    for n in range(60):
        how = r.random()
        path.write_bytes(damaged(r, gzip.compress(data)) if how < 0.15 else damaged(r, data))
        # WHEN it is read THEN there is a Capture whose analyses answer, or one SolError with a hint
        try:
            c = read(str(path))
        except SolError as error:
            hints.append(error.hint)
        else:
            read_well += 1
            for name in registry() if n % 10 == 0 else ("health", "gpu_breakdown", "operators"):
                is_contract_shaped(name, c.analyze(name))
    assert read_well > 25 and all(hints)
