"""Recorded arguments for tests: sizes, types and values as a recorder writes them."""

from __future__ import annotations

import json

from tb_sol_plugin.cost import Cost, Inputs, estimate

NAMES = {"bf16": "c10::BFloat16", "fp16": "c10::Half", "fp32": "float", "fp64": "double", "int64": "long int", "int32": "int", "bool": "bool",
         "uint8": "unsigned char", "int8": "signed char", "fp8": "c10::Float8_e4m3fn", "fp8_e5m2": "c10::Float8_e5m2",
         "fp4": "c10::Float4_e2m1fn_x2"}  # fmt: skip


def call(*args: object, dtype: str = "fp32", strides: dict[int, list[int]] | None = None, values: bool = True) -> Inputs:
    """Arguments in order: a tuple is a tensor of `dtype`, a (tuple, dtype) pair one of its own type, a list of tuples a tensor list,
    a string a recorded value, None an absent one."""
    shapes: list[object] = []
    types: list[object] = []
    steps: list[object] = []
    concrete: list[str] = []
    for at, arg in enumerate(args):
        shape, kind, text = _one(arg, dtype)
        shapes.append(shape)
        types.append(kind)
        concrete.append(text)
        steps.append((strides or {}).get(at, _contiguous(shape)))
    return Inputs(json.dumps(shapes), json.dumps(types), json.dumps(steps), json.dumps(concrete) if values else "")


def cost(name: str, *args: object, dtype: str = "fp32", strides: dict[int, list[int]] | None = None, values: bool = True) -> Cost:
    """The cost of a call that has one."""
    found = estimate(name, call(*args, dtype=dtype, strides=strides, values=values))
    assert found is not None, name
    return found


def _one(arg: object, dtype: str) -> tuple[object, object, str]:
    if arg is None:
        return [], "", ""
    if isinstance(arg, str):
        return [], "ScalarList" if arg.startswith("[") else "Scalar", arg
    if isinstance(arg, list):
        return [list(a) for a in arg], "TensorList", ""
    assert isinstance(arg, tuple)
    if len(arg) == 2 and isinstance(arg[0], tuple):
        return list(arg[0]), NAMES.get(arg[1], arg[1]), ""
    return list(arg), NAMES[dtype], ""


def _contiguous(shape: object) -> list[int]:
    if not isinstance(shape, list) or any(isinstance(s, list) for s in shape):
        return []
    out, step = [], 1
    for size in reversed(shape):
        out.append(step)
        step *= size
    return out[::-1]
