"""Keeps secrets out of every surface: page, command line, export, log and cache.

A recording's header often holds a dump of the job's environment, live access tokens included. Three defenses:

* `allowlisted` keeps only what is known to be harmless and useful, by name; everything else never leaves the reader.
* `text` and `value` blank what looks like a secret, by the name beside it or by its own shape, in whatever is shown
  although it is free form (log lines, error messages).
* `name` blanks what has the shape of a secret in names of program code; `ingest` asks once per name, before anything is kept.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from typing import Final

HIDDEN: Final = "[redacted]"
LONGEST: Final = 200
"""Characters kept of one metadata value."""
LONGEST_LINE: Final = 16_384
"""Characters of one text that are looked at and shown."""
MOST: Final = 120
"""Metadata values kept of one recording."""

_NAMES: Final = ("token", "secret", "password", "passwd", "passphrase", "pwd", "credential", "key", "authorization", "cookie", "signature")
_NAME: Final = re.compile("|".join(_NAMES), re.IGNORECASE)
_PREFIXES: Final = r"""(?: hf_ | gh[pousr]_ | github_pat_ | glpat- | (?:sk|pk|rk)- | [sr]k_(?:live|test)_ | AKIA | ASIA | AROA | AIDA | AIza
    | ya29\. | xox[abeprs]- | (?:npm|dop_v1|shpat|r8|nvapi|wandb_v\d)[_-] | pypi- | eyJ ) | -----BEGIN[ ]"""
_START: Final = re.compile(rf"\b{_PREFIXES}", re.VERBOSE)
_START_IN_NAMES: Final = re.compile(rf"(?<![A-Za-z0-9]){_PREFIXES}", re.VERBOSE)
_SHAPES: Final = re.compile(
    r"""
      hf_[A-Za-z0-9]{8,}                                    # Hugging Face
    | gh[pousr]_[A-Za-z0-9]{12,} | github_pat_\w{12,}       # GitHub
    | glpat-[\w-]{12,}                                      # GitLab
    | (?:sk|pk|rk)-[A-Za-z0-9_-]{12,}                       # OpenAI, Anthropic, LangSmith and the like
    | [sr]k_(?:live|test)_[A-Za-z0-9]{8,}                   # Stripe
    | (?:AKIA|ASIA|AROA|AIDA)[0-9A-Z]{12,}                  # AWS ids
    | AIza[\w-]{20,} | ya29\.[\w-]{12,}                    # Google
    | xox[abeprs]-[\w-]{8,}                                 # Slack
    | (?:npm|dop_v1|shpat|r8|nvapi|wandb_v\d)[_-][A-Za-z0-9_-]{16,} | pypi-[\w-]{16,}
    | eyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?                  # JSON web token
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----(?:[\s\S]*?-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|[\s\S]*)
    """,
    re.VERBOSE,
)
_WEB_TOKEN_PART: Final = re.compile(r"[\w-]*")
_BEARER: Final = re.compile(r"\b(bearer|basic)(\s+)[A-Za-z0-9+/=._~-]{8,}", re.IGNORECASE)
_SCHEME: Final = string.ascii_letters + string.digits + "+.-"
_SCHEME_START: Final = re.compile(r"\b[A-Za-z]")
_LOGIN: Final = re.compile(r"[^\s/@:]*:[^\s/@]+@|[^\s/@:]{16,}@")
_LABEL: Final = re.compile(r"""(?<![\w.-])([\w.-]+)["']?\s*[=:]\s*""")
_PLAIN_VALUE: Final = re.compile(r"(?:bearer\s+|basic\s+)?[^\s,;&}\])]+", re.IGNORECASE)
_QUOTED: Final = {quote: re.compile(rf"(?:[^{quote}\\]|\\.){{0,4096}}") for quote in "\"'"}
_LONG: Final = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_=-]{32,}(?![\w+/=-])")
_HEX: Final = re.compile(r"(?:0x)?[0-9a-fA-F]{32,}")
_PLAIN_WORD: Final = re.compile(r"[a-z_-]+")
_SYLLABLES: Final = re.compile(r"[a-z]{4,}")
_OPEN_END: Final = re.compile(r"""[^\s"',;&(){}\[\]<>]{0,512}""")


def secret_name(name: str) -> bool:
    """Tells whether a value of this name is a secret, whatever it looks like (`HF_TOKEN`, `aws.secretAccessKey`)."""
    low = name.lower()
    return any(word in low for word in _NAMES)


def text(line: str) -> str:
    """Replaces everything in `line` that has the shape of a secret, or is next to the name of one, by `[redacted]`.

    Of a longer line only the first `LONGEST_LINE` characters are looked at and returned, then an ellipsis, so that no text
    holds the interpreter. Each step visits a character a fixed number of times: the work is linear in the length.
    """
    return _redacted(_cut(line))


redact_text = text


def _cut(line: str) -> str:
    """Cuts a long line, and the word that the cut would split: half a secret has no shape by which it is known."""
    if len(line) <= LONGEST_LINE:
        return line
    split = _OPEN_END.match(line[LONGEST_LINE - 512 : LONGEST_LINE][::-1])
    return line[: LONGEST_LINE - (split.end() if split else 0)] + " …"


def _redacted(line: str) -> str:
    line = _without_labeled(_without_logins(_without_shapes(line)))
    line = _BEARER.sub(rf"\1\2{HIDDEN}", line)
    return _LONG.sub(lambda m: HIDDEN if _random(m.group()) else m.group(), line)


def _without_shapes(line: str, *, words: bool = False) -> str:
    """Hides secrets that begin with a known prefix. words: in a name from program code, where an
    underscore joins words, and a prefix with lower case letters alone is a word.

    A run of word characters that is no JSON web token from its first `eyJ` is none from a later one either: its end and
    what follows are the same. So each run is tried once.
    """
    out: list[str] = []
    kept = at = no_web_token = 0
    starts = _START_IN_NAMES if words else _START
    while start := starts.search(line, at):
        at = start.start() + 1
        web_token = line.startswith("eyJ", start.start())
        if web_token and at <= no_web_token:
            continue
        found = _SHAPES.match(line, start.start())
        if found:
            if not (words and _PLAIN_WORD.fullmatch(found.group())):
                out += (line[kept : found.start()], HIDDEN)
                kept = found.end()
            at = found.end()
        elif web_token and (run := _WEB_TOKEN_PART.match(line, start.start())):
            no_web_token = run.end()
    return "".join((*out, line[kept:]))


def _without_logins(line: str) -> str:
    """Hides `user:password` and long tokens before the `@` of a URL. Each `://` is looked at once, to its left and right."""
    out: list[str] = []
    kept = at = 0
    while (colon := line.find("://", at)) >= 0:
        found = _LOGIN.match(line, colon + 3)
        before, at = line[at:colon], colon + 3
        if found and _SCHEME_START.search(line, colon - len(before) + len(before.rstrip(_SCHEME)), colon):
            out += (line[kept:at], HIDDEN, "@")
            kept = at = found.end()
    return "".join((*out, line[kept:]))


def _without_labeled(line: str) -> str:
    """Hides values that follow the name of a secret and `=` or `:`; a label begins where the word it ends begins."""
    if not _NAME.search(line):
        return line
    out: list[str] = []
    kept = at = 0
    while label := _LABEL.search(line, at):
        at = label.end()
        if _NAME.search(label[1]) and (end := _value_end(line, at)) > at:
            out += (line[kept:at], HIDDEN)
            kept = at = end
    return "".join((*out, line[kept:]))


def _value_end(line: str, at: int) -> int:
    """Returns where the value that begins at `at` ends, `at` without one. A quoted value ends with its quote or the line."""
    quoted = _QUOTED.get(line[at : at + 1])
    if quoted is None:
        found = _PLAIN_VALUE.match(line, at)
        return found.end() if found else at
    end = at + 1
    while (piece := quoted.match(line, end)) and piece.end() > end:
        end = piece.end()
    return end + 1 if line.startswith(line[at], end) else end


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
    if sum(map(len, _SYLLABLES.findall(word))) > 0.3 * len(word):
        return False  # `ScaledDotProductFlashAttentionBackward0`: four lower case letters in a row are a twelfth of a random word
    mixed = any(c.isdigit() for c in word) and any(c.isupper() for c in word) and any(c.islower() for c in word)
    counts = Counter(word)
    entropy = -sum(n / len(word) * math.log2(n / len(word)) for n in counts.values())
    return mixed and entropy > 4.0


# -- names of kernels, operators, frames, threads, runs, workers -----------------------------------------------------
# Words of program code stand in them: what is named `key` or `token` there is no secret, only what has the shape of one.

MARKS: Final = (
    "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "sk-", "pk-", "rk-", "k_live_", "k_test_", "akia", "asia",
    "aroa", "aida", "aiza", "ya29.", "xox", "npm_", "npm-", "dop_v1", "shpat", "r8_", "r8-", "nvapi", "wandb_v", "pypi-", "eyj",
    "-----begin ", "://", "bearer",
)  # fmt: skip
"""Every text that `name` changes holds, in lower case, one of these, or `LONG_WORD` characters of `WORD` in a row."""
LONG_WORD: Final = 32
WORD: Final = string.ascii_letters + string.digits + "+/_=-"
LABELS: Final = _NAMES
_BEARER_OF_NAMES: Final = re.compile(r"\b(bearer\s+)(?=[A-Za-z+/=._~-]*[0-9])[A-Za-z0-9+/=._~-]{8,}", re.IGNORECASE)


def name(shown: str) -> str:
    """Replaces what has the shape of a secret in a name from program code by `[redacted]`.

    A known prefix with lower case letters alone is a word (`hf_argparser`). Linear in the length; nothing is cut.
    """
    line = _without_logins(_without_shapes(shown, words=True))
    line = _BEARER_OF_NAMES.sub(rf"\1{HIDDEN}", line)
    return _LONG.sub(lambda m: HIDDEN if _random(m.group()) else m.group(), line)


def free_name(name: str, taken: Container[str]) -> str:
    """Returns the name, with a number where another has it: names that differ in their secrets alone stay different."""
    number, free = 2, name
    while free in taken:
        free, number = f"{name} ({number})", number + 1
    return free


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
