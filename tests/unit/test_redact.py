"""Secrets stay out; what a reader needs stays in. All keys below are invented."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tb_sol_plugin import redact

SECRETS = [
    "hf_" + "aBcDeFgHiJkLmNoPqRsT",
    "ghp_" + "0123456789abcdefghij0123456789abcdef",
    "github_pat_" + "11AAAAAAA0aaaaaaaaaaaa",
    "sk-" + "proj-AbCdEfGh1234567890",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "xoxb-" + "123456789012-abcdef",
    "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "deadbeef" * 5,
    "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY99",
    "AIza" + "SyA1234567890abcdefghijklmnopqrstu",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_blanked_by_its_shape(secret: str) -> None:
    # GIVEN a line that holds a secret without a telling name WHEN it is shown THEN the secret is gone, the rest stays
    shown = redact.text(f"started with {secret} on node 7")
    assert secret not in shown
    assert shown.startswith("started with ") and shown.endswith(" on node 7")


@pytest.mark.parametrize(
    ("line", "gone"),
    [
        ("HF_TOKEN=abc", "abc"),
        ("password: hunter2", "hunter2"),
        ('{"api_key": "xyz123", "n": 1}', "xyz123"),
        ("WANDB_API_KEY='q w e'", "q w e"),
        ("Authorization: Bearer abcdefgh12345", "abcdefgh12345"),
        ("aws.secretAccessKey = zzz", "zzz"),
        ("https://joe:pa55@host.example/x", "pa55"),
        ("credential=/a/b", "/a/b"),
        ("url?token=abcd&x=1", "abcd"),
    ],
)
def test_a_secret_is_blanked_by_the_name_beside_it(line: str, gone: str) -> None:
    shown = redact.text(line)
    assert gone not in shown
    assert redact.HIDDEN in shown


@pytest.mark.parametrize(
    "line",
    [
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
        "ampere_sgemm_128x64_tn at step 12, 34.5 ms",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>(Params)",
        "/home/joe/some/long/path/to/a/directory/of/recordings/worker_0.pt.trace.json.gz",
        "trace ended at byte 12345678901234567890",
    ],
)
def test_kernel_names_and_paths_are_left_alone(line: str) -> None:
    assert redact.text(line) == line


def test_the_allowlist_keeps_versions_models_and_shapes_only() -> None:
    # GIVEN metadata with an environment dump and useful facts
    metadata = {
        "experiment": {"repo_id": "acme/model-7b", "torch_dtype": "bfloat16", "cache_dir": "/home/joe"},
        "current_task": {"shape": {"batch_size": 16, "image_size": [3, 224, 224], "session_token": "abc"}},
        "profiler": {"warmups": 5, "torch_profiler_kwargs": {"activities": ["CPU", "CUDA"]}},
        "started_by": "joe",
        "system": {
            "gpu": {"gpu_00": "NVIDIA H100 80GB HBM3"},
            "env": {"HF_TOKEN": "hf_aaaaaaaaaaaaaaaa", "CUDA_VERSION": "12.8", "batch_size": "1"},
            "torch_env_info": {"torch_version": "2.6.0+cu124", "hip_compiled_version": "N/A"},
            "pip_packages": ["torch==2.6.0", "secret-internal-lib==1", "transformers==4.50.1"],
            "uname": {"node": "host7"},
        },
    }
    # WHEN it is filtered THEN exactly these remain
    assert redact.allowlisted(metadata) == {
        "experiment.repo_id": "acme/model-7b",
        "experiment.torch_dtype": "bfloat16",
        "current_task.shape.batch_size": "16",
        "current_task.shape.image_size": "3, 224, 224",
        "profiler.warmups": "5",
        "profiler.torch_profiler_kwargs.activities": "CPU, CUDA",
        "system.gpu.gpu_00": "NVIDIA H100 80GB HBM3",
        "system.torch_env_info.torch_version": "2.6.0+cu124",
        "packages.torch": "2.6.0",
        "packages.transformers": "4.50.1",
    }


def test_an_allowed_name_with_a_secret_inside_is_blanked() -> None:
    assert redact.allowlisted({"model_name": "https://u:pw@host/m"}) == {"model_name": f"https://{redact.HIDDEN}@host/m"}


def test_odd_metadata_does_not_fail() -> None:
    assert redact.allowlisted({"model": {"a": {"b": object()}}, "dtype": None, "": [], "batch_size": float("1")}) == {"batch_size": "1.0"}


@pytest.mark.real
def test_real_environment_dumps_leave_nothing(traces: Path) -> None:
    # GIVEN recordings whose header holds a whole environment WHEN filtered THEN no value of it is left, the facts are
    found = 0
    for file in sorted(traces.glob("tracelens/*/*.json.gz")):
        header = json.loads(gzip.decompress(file.read_bytes()))
        metadata = header.get("metadata")
        if not metadata:
            continue
        found += 1
        kept = redact.allowlisted(metadata)
        assert kept["experiment.repo_id"] and kept["packages.torch"] and kept["current_task.shape.batch_size"]
        assert not any(name.startswith("system.env") or "uname" in name for name in kept)
        assert metadata["started_by"] not in kept.values()
        assert metadata["system"]["env"]["HOSTNAME"] not in " ".join(kept.values())
    assert found
