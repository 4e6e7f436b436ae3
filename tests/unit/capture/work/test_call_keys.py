"""Calls are known again by a number, and torch's look-up of rules is passed by: neither may change what is counted."""

from __future__ import annotations

import sys

import pytest

from tests.support.forked import python

torch = pytest.importorskip("torch")

from tests.support import toy  # noqa: E402
from tests.support.ledger import Counting  # noqa: E402

aten = torch.ops.aten
X = torch.ones(4, 6)


def numbers(*calls):
    """What each call is known by, with one OpInfo per operator."""
    from tb_sol_plugin.capture.work.ledger import _full_key
    from tb_sol_plugin.capture.work.operators import OpInfo
    from tb_sol_plugin.capture.work.signatures import key_function

    infos = {}
    out = []
    for func, args, kwargs, *labels in calls:
        info = infos.setdefault(func, OpInfo(func))
        read = key_function(info, args, kwargs) or _full_key
        out.append(read(args, kwargs, info, *(labels or (0, 0, 0, 0, 0))))
    return out


SUM, ADD, COPY = aten.sum.dim_IntList, aten.add.Tensor, aten._to_copy.default
DIFFERENT = {
    "sizes": [(ADD, (X, X), None), (ADD, (X[:2], X[:2]), None), (ADD, (X[:2], X), None)],
    "strides": [(ADD, (X, X), None), (ADD, (torch.ones(6, 4).t(), X), None), (ADD, (torch.ones(4, 1).expand(4, 6), X), None)],
    "types": [(ADD, (X, X), None), (ADD, (X.double(), X), None), (ADD, (X, X.half()), None)],
    "one tensor twice": [(ADD, (X, X), None), (ADD, (X, torch.ones(4, 6)), None)],
    "a tensor and a number": [(ADD, (X, torch.ones(())), None), (ADD, (X, 1), None), (ADD, (X, 1.0), None), (ADD, (X, True), None)],
    "named": [(ADD, (X, X), None), (ADD, (X, X), {"alpha": 1}), (ADD, (X, X), {"alpha": 2}), (ADD, (X, X), {"alpha": 0.5})],
    # Python gives -1 and -2 the same hash, and 3 that of 2 ** 63 - 1, which stands for "to the end"
    "negative numbers": [(SUM, (X, [-1], False), None), (SUM, (X, [-2], False), None), (SUM, (X, [-2], True), None), (SUM, (X, [1]), None)],
    "the largest number": [(aten.slice.Tensor, (X, 0, 0, 3), None), (aten.slice.Tensor, (X, 0, 0, 2**63 - 1), None)],
    "a negative number": [(aten.select.int, (X, 0, -1), None), (aten.select.int, (X, 0, -2), None)],
    "named types": [(COPY, (X,), {"dtype": torch.half}), (COPY, (X,), {"dtype": torch.double}), (COPY, (X,), {"layout": torch.strided})],
    "lists": [(aten.cat.default, ([X, X],), None), (aten.cat.default, ([X],), None), (aten.cat.default, ([X, X], 1), None)],
    "operators": [(ADD, (X, X), None), (aten.mul.Tensor, (X, X), None)],
    "labels": [(ADD, (X, X), None, *(int(i == j) for j in range(5))) for i in range(6)],
    "devices": [(ADD, (X, X), None), (ADD, (X.to("meta"), X.to("meta")), None)],
    "numbers with a fraction that set a size": [(aten.arange.default, (n,), None) for n in (1.5, 2.5, 2)],
}  # fmt: skip


@pytest.mark.parametrize("what", DIFFERENT)
def test_different_calls_are_known_by_different_numbers(what):
    calls = DIFFERENT[what]
    known = numbers(*calls, *calls)
    assert len({*known}) == len(calls)
    assert known[: len(calls)] == known[len(calls) :]


def test_numbers_with_a_fraction_and_values_of_tensors_do_not_count():
    same = numbers((ADD, (X, 0.5), None), (ADD, (torch.zeros(4, 6), 0.25), None), (ADD, (torch.nn.Parameter(X), 1e9), None))
    assert len({*same}) == 1


def test_a_second_step_like_the_first_counts_the_same_and_reads_nothing_the_long_way(monkeypatch):
    from tb_sol_plugin.capture.work import ledger

    # GIVEN a training step that was counted once
    model, tokens = toy.fused_qkv(), toy.some_tokens()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step():
        logits = model(tokens)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()

    counting = Counting(model)
    step()
    counting.run(step)
    first = {key: row[0] for key, row in counting.ledger.rows.items()}
    long = []
    monkeypatch.setattr(ledger, "call_key", lambda info, *_: long.append(info.name) or (info, len(long)))
    # WHEN it is counted again by a mode that knows the calls THEN it counts the same rows, and none of them is read the long way
    counting.run(step)
    assert {key: row[0] for key, row in counting.ledger.rows.items()} == first
    assert long == []


def test_an_error_of_an_operator_is_the_only_one():
    # GIVEN a call that is new, so that something was looked for in vain before it ran
    counting = Counting()
    with counting.on(), pytest.raises(RuntimeError) as caught:
        torch.ones(2, 3) @ torch.ones(2, 3)
    # THEN its error stands alone
    assert caught.value.__context__ is None and caught.value.__cause__ is None


ALONE = """
from torch._library import simple_registry as registry
from tests.unit.capture.work.test_call_keys import ADD, Counting

find = registry.find_torch_dispatch_rule
code, defaults = find.__code__, find.__defaults__
with Counting().on() as mode:
    assert find.__code__ is not code
    assert find(ADD, type(mode)) is None
assert registry.find_torch_dispatch_rule is find
assert find.__code__ is code and find.__defaults__ is defaults is None
"""


def test_rules_are_looked_up_again_after_the_step():
    # GIVEN a process of its own, in which no step of another test is left WHEN a step was counted THEN torch's function is as it was
    pytest.importorskip("torch._library.simple_registry")
    process = python("-c", ALONE)
    text, _ = process.communicate(300)
    assert process.returncode == 0, text[-2000:]


def test_rules_of_other_modes_hold_while_a_step_is_counted():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Theirs(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with torch.library._scoped_library("sol_test_rules", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, "CPU")
        seen = []
        torch.library.register_torch_dispatch("sol_test_rules::twice", Theirs, lambda mode, func, types, args, kwargs: seen.append(1) or X)
        counting = Counting()
        with counting.on(), Theirs():
            torch.ops.sol_test_rules.twice(X)
    assert seen == [1]


def test_a_function_that_is_not_the_one_known_is_left_alone(monkeypatch):
    registry = pytest.importorskip("torch._library.simple_registry")

    def other(op, torch_dispatch_class):
        return None

    monkeypatch.setattr(registry, "find_torch_dispatch_rule", other)
    code = other.__code__
    with Counting().on():
        assert other.__code__ is code
    assert sys.modules["torch._library.simple_registry"].find_torch_dispatch_rule is other
