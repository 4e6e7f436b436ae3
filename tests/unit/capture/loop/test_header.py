"""The first record of a file: ranks, groups, versions, precision, device, model."""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tb_sol_plugin import __version__
from tb_sol_plugin.capture.device_specs import device_spec
from tb_sol_plugin.capture.loop.guard import Clock
from tb_sol_plugin.capture.loop.header import compiled, device_kind, groups_of, header, model_facts, precision_flags, rank_of

torch = pytest.importorskip("torch", reason="describes models")

LAUNCHER = ("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LAUNCHER:
        monkeypatch.delenv(name, raising=False)


def whole(models: list[Any], **options: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"mode": "dispatch", "every_n_steps": 100, "time_source": "cpu", "kind": "cpu", "spec": None, "ranks": (0, 1)}
    return header(Clock(), models, **{**given, **options})


def test_it_is_plain_json_with_all_that_the_format_lists() -> None:
    # GIVEN a small model WHEN the header is made THEN it is JSON, with no NaN, and has every field of the format
    made = whole([torch.nn.Linear(3, 5)], spec=device_spec("H100_SXM"))
    again = json.loads(json.dumps(made, allow_nan=False))
    listed = {
        "library", "torch", "cuda", "hip", "convention", "rank", "world_size", "groups", "host", "pid", "wall_ns", "monotonic_ns",
        "device", "precision", "mode", "every_n_steps", "time_source", "model",
    }  # fmt: skip
    assert listed <= set(again)
    assert again["library"] == __version__ and again["torch"] == torch.__version__ and again["pid"] == os.getpid()
    assert isinstance(again["wall_ns"], int) and isinstance(again["monotonic_ns"], int)
    assert {"type", "key", "name", "memory_bytes", "units", "limits", "provenance"} <= set(again["device"])
    # 989.4 TFLOP/s dense BF16 and 3.35 TB/s: NVIDIA's data sheet of the H100 SXM
    assert again["device"]["limits"]["peak_flops"]["bf16"] == pytest.approx(989.4e12, rel=1e-3)
    assert again["device"]["limits"]["memory_bandwidth_bytes_per_sec"] == pytest.approx(3.35e12, rel=1e-2)


def test_model_counts() -> None:
    # GIVEN Linear(3, 5) frozen and Linear(5, 2) in bfloat16, which share nothing, and the first one twice
    first, second = torch.nn.Linear(3, 5).requires_grad_(False), torch.nn.Linear(5, 2).bfloat16()
    model = torch.nn.Sequential(first, second, first)
    # THEN 20 + 12 parameters, 12 of them trained, 20 * 4 + 12 * 2 bytes; the container and two layers
    assert model_facts([model]) == {
        "class": "Sequential", "parameters": 32, "trainable": 12, "parameter_bytes": 104, "local_parameters": 32, "local_bytes": 104,
        "modules": 3,
    }  # fmt: skip


def test_several_models_and_one_that_is_not_materialized() -> None:
    with torch.device("meta"):
        large = torch.nn.Linear(1000, 1000, bias=False)
    lazy = torch.nn.LazyLinear(4)
    facts = model_facts([large, lazy])
    assert facts["parameters"] == 1_000_000 and facts["class"] == "Linear, LazyLinear"


def test_a_sharded_model_has_whole_and_local_counts() -> None:
    # GIVEN a parameter of which this rank holds a quarter, as sharded ones do
    class Sharded(torch.nn.Module):
        def parameters(self, recurse: bool = True) -> Any:
            yield SimpleNamespace(
                numel=lambda: 400, element_size=lambda: 2, requires_grad=True, _local_tensor=torch.empty(100), device=torch.device("cpu")
            )

    facts = model_facts([Sharded()])
    assert (facts["parameters"], facts["parameter_bytes"], facts["local_parameters"], facts["local_bytes"]) == (400, 800, 100, 200)


@pytest.mark.parametrize("original", [True, False])
def test_a_flattened_model_has_whole_and_local_counts(original: bool) -> None:
    # GIVEN Linear(30, 17) as FullyShardedDataParallel keeps it on the first of two ranks: the first half of its 527 elements, with
    # use_orig_params all of its bias and a part of its weight, else one flat parameter
    module = torch.nn.Linear(30, 17, bias=original)
    module.weight = torch.nn.Parameter(torch.zeros(247 if original else 264))
    flat = SimpleNamespace(_shapes=(torch.Size([17, 30]), torch.Size([17])), _params=[module.weight, module.bias] if original else None)
    if not original:
        flat = module.weight
        flat._shapes, flat._params = (torch.Size([17, 30]), torch.Size([17])), None  # type: ignore[attr-defined]
    module._handle = SimpleNamespace(flat_param=flat)  # type: ignore[assignment]
    # THEN the model has 527 parameters on every number of ranks, this rank 264 of them
    facts = model_facts([module])
    assert (facts["parameters"], facts["trainable"], facts["parameter_bytes"]) == (527, 527, 2108)
    assert (facts["local_parameters"], facts["local_bytes"]) == (264, 1056)


def test_no_model_and_odd_models() -> None:
    assert model_facts([])["parameters"] == 0
    assert model_facts([object(), lambda x: x])["parameters"] == 0
    assert whole([object()])["model"]["compiled"] is False


def test_compiled_models_are_recognized() -> None:
    inner = torch.nn.Linear(2, 2)
    assert not compiled([inner])
    assert compiled([torch.compile(inner)]) and compiled([torch.nn.Sequential(torch.compile(inner))])
    inner.compile()
    assert compiled([torch.nn.Sequential(inner)]) and model_facts([torch.compile(torch.nn.Linear(2, 2))])["class"] == "Linear"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6"}, (5, 6)),
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "5", "SLURM_NTASKS": "6"}, (1, 2)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 4)),
        ({"RANK": "nine", "WORLD_SIZE": "2"}, (0, 1)),
        ({"RANK": "7", "WORLD_SIZE": "4"}, (0, 1)),
    ],
)
def test_ranks_of_launchers(environment: dict[str, str], expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert rank_of() == expected


def test_groups_of_megatron_are_asked_where_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a module under Megatron's name that knows two groups, and fails for the others
    state = ModuleType("megatron.core.parallel_state")
    for name, value in (("tensor_model_parallel", (1, 4)), ("data_parallel", (2, 8))):
        setattr(state, f"get_{name}_rank", lambda value=value: value[0])
        setattr(state, f"get_{name}_world_size", lambda value=value: value[1])
    state.get_pipeline_model_parallel_rank = lambda: 1 / 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    assert groups_of([]) == {"tp": [1, 4], "dp": [2, 8]}


def test_groups_of_a_device_mesh() -> None:
    mesh = SimpleNamespace(mesh_dim_names=("dp_shard", "tp"), get_local_rank=lambda at: (3, 1)[at], size=lambda at: (4, 2)[at])
    model = SimpleNamespace(parameters=lambda: [SimpleNamespace(device_mesh=mesh)])
    assert groups_of([model]) == {"dp": [3, 4], "tp": [1, 2]}
    assert groups_of([torch.nn.Linear(2, 2)]) == {} and groups_of([]) == {}


def test_where_models_are() -> None:
    with torch.device("meta"):
        nowhere = torch.nn.Linear(2, 2)
    assert device_kind([torch.nn.Linear(2, 2)]) == "cpu" and device_kind([]) == "cpu" and device_kind([nowhere]) == "cpu"
    fake = SimpleNamespace(parameters=lambda: [SimpleNamespace(device=SimpleNamespace(type="cuda"))])
    assert device_kind([nowhere, fake]) == "cuda"


def test_precision_follows_torch() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        assert precision_flags()["matmul"] == "highest"
        torch.set_float32_matmul_precision("high")
        assert precision_flags()["matmul"] == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def test_it_does_not_need_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a process in which torch is not loaded WHEN the header is made THEN what torch would tell is unknown
    monkeypatch.delitem(sys.modules, "torch")
    made = whole([])
    assert made["torch"] is None and made["rank"] == 0 and made["precision"]["matmul"] is None
