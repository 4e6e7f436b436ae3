"""Keeps secrets out of every surface: page, command line, export, log and cache.

A recording's header often holds a dump of the job's environment, live access tokens included. Two defenses:

* `allowlisted` keeps only what is known to be harmless and useful, by name; everything else never leaves the reader.
* `text` and `value` blank what looks like a secret, by the name beside it or by its own shape, in whatever is shown
  although it is free form (log lines, error messages).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

HIDDEN: Final = "[redacted]"
LONGEST: Final = 200
"""Characters kept of one metadata value."""
MOST: Final = 120
"""Metadata values kept of one recording."""

_NAMES: Final = ("token", "secret", "password", "passwd", "passphrase", "pwd", "credential", "key", "authorization", "cookie", "signature")
_SHAPES: Final = re.compile(
    r"""
      \bhf_[A-Za-z0-9]{8,}                                  # Hugging Face
    | \bgh[pousr]_[A-Za-z0-9]{12,} | \bgithub_pat_\w{12,}   # GitHub
    | \bglpat-[\w-]{12,}                                    # GitLab
    | \b(?:sk|pk|rk)-[A-Za-z0-9_-]{12,}                     # OpenAI, Anthropic, LangSmith and the like
    | \b[sr]k_(?:live|test)_[A-Za-z0-9]{8,}                 # Stripe
    | \b(?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{12,}                # AWS ids
    | \bAIza[\w-]{20,} | \bya29\.[\w-]{12,}                 # Google
    | \bxox[abeprs]-[\w-]{8,}                               # Slack
    | \b(?:npm|dop_v1|shpat|r8|nvapi|wandb_v\d)[_-][A-Za-z0-9_-]{16,} | \bpypi-[\w-]{16,}
    | \beyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?                # JSON web token
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----(?:[\s\S]*?-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|[\s\S]*)
    """,
    re.VERBOSE,
)
_BEARER: Final = re.compile(r"\b(bearer|basic)(\s+)[A-Za-z0-9+/=._~-]{8,}", re.IGNORECASE)
_LOGIN: Final = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*://)[^\s/@:]*:[^\s/@]+@")
_LOGIN_TOKEN: Final = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*://)[^\s/@:]{16,}@")
_NAMED: Final = re.compile(
    r"""(["']?[\w.-]*(?:"""
    + "|".join(_NAMES)
    + r""")[\w.-]*["']?\s*[=:]\s*)("(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|(?:bearer\s+|basic\s+)?[^\s,;&}\])]+)""",
    re.IGNORECASE,
)
_LONG: Final = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_=-]{32,}(?![\w+/=-])")
_HEX: Final = re.compile(r"(?:0x)?[0-9a-fA-F]{32,}")


def secret_name(name: str) -> bool:
    """Whether a value of this name is a secret, whatever it looks like (`HF_TOKEN`, `aws.secretAccessKey`)."""
    low = name.lower()
    return any(word in low for word in _NAMES)


def text(line: str) -> str:
    """Returns `line` with everything that has the shape of a secret, or stands beside the name of one, replaced by `[redacted]`."""
    line = _SHAPES.sub(HIDDEN, line)
    line = _LOGIN.sub(rf"\1{HIDDEN}@", line)
    line = _LOGIN_TOKEN.sub(rf"\1{HIDDEN}@", line)
    line = _NAMED.sub(rf"\1{HIDDEN}", line)
    line = _BEARER.sub(rf"\1\2{HIDDEN}", line)
    return _LONG.sub(lambda m: HIDDEN if _random(m.group()) else m.group(), line)


redact_text = text


def value(name: str, content: str) -> str:
    """Returns `content` as it may be shown under `name`."""
    return HIDDEN if secret_name(name) and content not in ("", "None") else text(content)


def _random(word: str) -> bool:
    """Whether a long run of characters reads like key material: long hex, or mixed case with digits and high entropy.

    A mangled C++ symbol (`_ZN2at6native...`) and a path are long too; they are told apart by prefix and by slashes
    between words.
    """
    if _HEX.fullmatch(word):
        return True
    if word.startswith("_Z") or word.count("/") > 2 or word.count("_") > len(word) // 12:
        return False
    mixed = any(c.isdigit() for c in word) and any(c.isupper() for c in word) and any(c.islower() for c in word)
    counts = Counter(word)
    entropy = -sum(n / len(word) * math.log2(n / len(word)) for n in counts.values())
    return mixed and entropy > 4.0


# -- metadata ------------------------------------------------------------------------------------------------------

_PACKAGES: Final = frozenset(
    """torch torchvision torchaudio torchtext triton pytorch-triton pytorch-triton-rocm transformers accelerate deepspeed
    vllm sglang megatron-core transformer-engine flash-attn xformers apex lightning pytorch-lightning torchtitan
    diffusers timm bitsandbytes peft numpy pandas jax flax tensorflow nvidia-nccl-cu12 nvidia-cudnn-cu12
    nvidia-cublas-cu12 aiter""".split()  # noqa: SIM905
)
_LEAVES: Final = frozenset(
    """repo_id model model_id model_name model_type architecture pipeline_tag torch_dtype dtype precision
    batch_size micro_batch_size global_batch_size mini_batch_size per_device_batch_size seq_len seq_length sequence_length
    max_seq_len text_input_length input_length output_length context_length hidden_size num_layers num_heads vocab_size
    image_size num_labels label_size gradient_accumulation_steps tensor_parallel_size pipeline_parallel_size
    data_parallel_size world_size torch_version pytorch_version cuda_version cuda_compiled_version cuda_runtime_version
    cuda_driver_version cudnn_version nccl_version nvidia_driver_version nvidia_gpu_models hip_version
    hip_compiled_version hip_runtime_version miopen_runtime_version rocm_version triton_version python_version gpu_name
    device_name is_cuda_available cuda_module_loading use_deepspeed pretrained libc_version framework framework_version
    vllm_version transformers_version num_errors""".split()  # noqa: SIM905
)
_BELOW: Final = (("profiler",), ("current_task", "shape"), ("system", "gpu"), ("experiment", "kind"))
"""Whole branches that are settings, shapes or device names."""
_NEVER: Final = frozenset(("env", "environ", "environment", "environment_variables", "argv", "args", "command", "cmdline", "uname"))
_UNKNOWN: Final = frozenset(("", "None", "N/A", "null"))


def allowlisted(metadata: Mapping[str, object]) -> dict[str, str]:
    """Returns what may be shown of a recording's free-form metadata: dotted name -> text.

    Kept: framework, driver and device versions, the model's name, shapes and sizes of the input, profiler settings,
    versions of known packages (`packages.torch`). Dropped: everything else, whole environments and user names first of
    all. What is kept still goes through `value`. Unknown values ("N/A", empty) are left out.
    """
    out: dict[str, str] = {}
    for path, content in _leaves(metadata, ()):
        if len(out) >= MOST:
            break
        if any(part.lower() in _NEVER for part in path[:-1]):
            continue
        name = ".".join(path)
        if path[-1] == "pip_packages" and isinstance(content, list):
            out |= _packages(content)
            continue
        if not _allowed(path) or secret_name(path[-1]):
            continue
        shown = _plain(content)
        if shown is not None and shown not in _UNKNOWN:
            out[name] = value(name, shown)[:LONGEST]
    return out


def _leaves(node: Mapping[str, object], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    for key, child in node.items():
        here = (*path, str(key))
        if isinstance(child, Mapping) and len(here) < 12:
            yield from _leaves(child, here)
        else:
            yield here, child


def _allowed(path: tuple[str, ...]) -> bool:
    if path[-1].lower() in _LEAVES:
        return True
    return any(path[i : i + len(branch)] == branch for branch in _BELOW for i in range(len(path)))


def _packages(lines: list[object]) -> dict[str, str]:
    out = {}
    for line in lines:
        name, _, version = str(line).partition("==")
        clean = name.strip().lower().replace("_", "-")
        if clean in _PACKAGES and re.fullmatch(r"[\w.+!-]{1,40}", version.strip()):
            out[f"packages.{clean}"] = version.strip()
    return out


def _plain(content: object) -> str | None:
    if isinstance(content, str | int | float) or content is None:
        return str(content)
    if isinstance(content, list) and len(content) <= 16 and all(isinstance(v, str | int | float) for v in content):
        return ", ".join(str(v) for v in content)
    return None
