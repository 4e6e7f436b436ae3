"""Names of modules and phases as a person reads them."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"_\d+$")
_STEP = re.compile(r"#\d+$")


def module_instance(name: str) -> str:
    """`nn.Module: ViTModel_0` as `ViTModel_0`."""
    return name.removeprefix("nn.Module: ").strip()


def module_class_name(name: str) -> str:
    """`nn.Module: ViTModel_0` or `ViTModel_0` as `ViTModel`."""
    return _NUMBER.sub("", module_instance(name))


def phase_name(name: str) -> str:
    """A user range without its decoration: `ProfilerStep#12` is `ProfilerStep`, `## forward ##` is `forward`."""
    plain = name.strip()
    if plain.startswith("##") and plain.endswith("##") and len(plain) > 4:
        plain = plain[2:-2].strip()
    return _STEP.sub("", plain) or name


def phase_parts(name: str) -> list[str]:
    """The levels that a phase name asks for: `train/forward` is two. A name with empty levels (a path, a URL) stays one."""
    plain = phase_name(name)
    parts = [part.strip() for part in plain.split("/")]
    return parts if all(parts) else [plain]
