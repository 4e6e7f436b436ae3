"""The texts of signatures are those of a trace that torch's profiler records of the same calls."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tests.support import toy  # noqa: E402
from tests.support.ledger import Counting  # noqa: E402

FIELDS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")


def traced(function, path):
    """Calls of operators as torch's profiler records them: (name, start, end, thread, four lists), by start."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        function()
    profiler.export_chrome_trace(str(path))
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    events = [e for e in json.loads(text)["traceEvents"] if e.get("cat") == "cpu_op" and "Input Dims" in e["args"]]
    rows = [(e["name"], e["ts"], e["ts"] + e["dur"], e["tid"], [e["args"].get(f, []) for f in FIELDS]) for e in events]
    return sorted(rows, key=lambda row: (row[1], -row[2]))


def counted(counting):
    """(name, four lists) -> calls"""
    out = Counter()
    for key, row in counting.ledger.rows.items():
        s = counting.ledger.signatures[key[0]]
        out[as_traced(s.op), plain([json.loads(t) for t in (s.shapes, s.types, s.strides, s.concrete)])] += row[0]
    return out


def as_traced(name):
    """The engine of autograd adds gradients up in place, but not while a dispatch mode is on."""
    return {"aten::add_": "aten::add"}.get(name, name)


def plain(lists):
    """The four lists as one text, without what the two are allowed to differ in: types of lists, lists of more than 30 tensors (a trace
    has none of them), numbers with a fraction."""
    shapes, types, strides, concrete = lists
    shapes, strides = ([[] if len(one) > 30 else one for one in x] for x in (shapes, strides))
    types = ["TensorList" if isinstance(t, list) else t for t in types]
    concrete = [re.sub(r"-?[0-9.]*\.[0-9]*(e[-+]?\d+)?|-?[0-9.]+e[-+]?\d+|^-?inf$|^nan$", "", c) for c in concrete]
    concrete = [
        "" if re.fullmatch(r"\[[ ,]*\]", c) and t == "ScalarList" and c != "[]" else c for c, t in zip(concrete, types, strict=True)
    ]
    return json.dumps([shapes, types, strides, concrete])


def outermost(rows, names):
    """Of calls with these names those that lie in no other of them: leaves as the ledger sees them."""
    out, ends = [], {}
    for name, start, end, thread, lists in rows:
        if as_traced(name) in names and start >= ends.get(thread, -1):
            ends[thread] = end
            out.append((as_traced(name), lists))
    return out


def compare(function, tmp_path, counting=None):
    """Asserts that a function's ledger and its trace hold the same calls; returns the ledger and the rows of the trace."""
    counting = counting or Counting()
    function()  # what is done once
    counting.run(function)
    ours = counted(counting)
    names = {name for name, _ in ours}
    theirs = Counter((name, plain(lists)) for name, lists in outermost(traced(function, tmp_path / "t.json"), names))
    assert ours == theirs
    return counting


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, groups=2), nn.GroupNorm(2, 8), nn.SiLU(), nn.ConvTranspose2d(8, 4, 2, 2),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, 5),
        )  # fmt: skip

    def forward(self, x):
        return self.body(x)


class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.bag = nn.Embedding(20, 16), nn.EmbeddingBag(20, 16, mode="sum")
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.norm, self.head = nn.RMSNorm(16), nn.Linear(16, 20, bias=False)

    def forward(self, tokens):
        x = self.layer(self.embed(tokens)) + self.bag(tokens)[:, None]
        return self.head(self.norm(x))


def step_of(model, make, loss, **options):
    inputs = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)

    def step():
        optimizer.zero_grad()
        loss(model(inputs)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


TOKENS = torch.arange(12).view(2, 6)
WORDS = toy.some_tokens()


STEPS = {
    "transformer": lambda: step_of(toy.fused_qkv(), lambda: WORDS, lambda y: F.cross_entropy(y.flatten(0, 1), WORDS.flatten())),
    "convolutions": lambda: step_of(Convolutions(), lambda: torch.ones(2, 3, 16, 16), lambda y: y.pow(2).mean(), foreach=True),
    "sequences": lambda: step_of(Sequences(), lambda: TOKENS, lambda y: F.cross_entropy(y.flatten(0, 1), TOKENS.flatten()), fused=True),
    "bf16": lambda: step_of(nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)).bfloat16(),
                            lambda: torch.ones(4, 8, dtype=torch.bfloat16), lambda y: y.float().logsumexp(-1).mean()),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_a_training_step_has_the_calls_and_the_costs_of_its_trace(name, tmp_path):
    # GIVEN a training step
    torch.manual_seed(0)
    step = STEPS[name]()
    # WHEN it is counted, and recorded by the profiler THEN both hold the same calls
    counting = compare(step, tmp_path)
    # AND the cost models answer the same for both, per operator. A trace does not say that both factors of `addcmul_(g, g)` are one
    # tensor, nor of which type the elements of lists are, so that bytes of what works on lists are not known from it
    from tb_sol_plugin import cost

    ours: dict[str, list[int | None]] = {}
    for r in counting.records:
        add(ours, as_traced(r.name), r.flops, r.flops_vector, r.bytes)
    theirs: dict[str, list[int | None]] = {}
    for op, lists in outermost(traced(step, tmp_path / "t.json"), set(ours)):
        found = cost.estimate(op, cost.Inputs(*(json.dumps(one) for one in lists)))
        add(theirs, op, *((None,) * 3 if found is None else (found.flop, found.flop_vector, found.bytes)))
    for op, sums in theirs.items():
        assert [a for a, b in zip(ours[op], sums, strict=True) if b is not None and (a != b and op != "aten::addcmul_")] == [], op
    if "aten::addcmul_" in ours:
        assert ours["aten::addcmul_"][2] * 4 == theirs["aten::addcmul_"][2] * 3
    assert [op for op in ours if None in ours[op]] == [], "every call of these steps has a known cost"


def add(sums, name, *values):
    old = sums.setdefault(name, [0, 0, 0])
    sums[name] = [None if a is None or b is None else a + b for a, b in zip(old, values, strict=True)]


def odd_calls():
    x = torch.ones(4, 6)
    i = torch.tensor([0, 2])
    torch.add(x, x, alpha=2)
    torch.add(x, 3)
    torch.add(x, 1e20)
    torch.add(x, True)
    x * 2 + 1j
    x.expand(3, 4, 6).sum((0, 2), keepdim=True)
    x.sum(dtype=torch.float64)
    x.std(dim=[1], correction=0)
    x.to(torch.float16).to(torch.int16).to(torch.complex64)
    x.t().contiguous()
    x.to(memory_format=torch.contiguous_format)
    torch.ones(1, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    F.gelu(x, approximate="tanh")
    torch.div(x, x, rounding_mode="floor")
    torch.cat([x, x], 1)
    torch.stack([x, x])
    torch.bucketize(x, torch.ones(1), right=True)
    torch.cumsum(x, 0, dtype=torch.float64)
    torch.clamp(x, min=0)
    torch.arange(3, 9, 2)
    torch.zeros([0, 4], dtype=torch.bool)
    torch.full((2,), 7)
    torch.randn(3, generator=torch.Generator())
    torch.mm(x, x.t(), out=torch.ones(4, 4))
    torch.index_select(x, 0, i)
    torch.gather(x, 0, torch.zeros(1, 6, dtype=torch.int64))
    x.clone().index_add_(0, i, x[:2])
    x.clone().scatter_(0, torch.zeros(1, 6, dtype=torch.int64), 2.0)
    torch.masked_fill(x, x > 0, 1.5)
    x.topk(2)
    x.sort(descending=True)
    x.max(0)
    x.argmax()
    torch.linalg.vector_norm(x, 2, [0, 1])
    torch.baddbmm(torch.ones(1, 4, 4), x[None], x.t()[None], beta=2)
    torch._foreach_add_([x.clone(), x.clone()], 1.0)
    torch._foreach_mul([x, x], [1.0, 2.0])
    torch._foreach_norm([x])
    F.pad(x, (1, 1))
    torch.scalar_tensor(1.0)
    torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_unusual_arguments_are_written_as_in_a_trace(tmp_path):
    # GIVEN numbers, flags, words, types, layouts, lists, missing arguments, results given as arguments
    counting = compare(odd_calls, tmp_path)
    # THEN nothing was lost on the way
    assert not counting.ledger.lost
    assert counting.calls() > 50


@pytest.mark.parametrize(
    "dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "float16", "bfloat16", "float64", "complex32",
              "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"],
)  # fmt: skip
def test_every_element_type_has_the_name_of_a_trace(dtype, tmp_path):
    kind = getattr(torch, dtype, None)
    if kind is None:
        pytest.skip("this torch has no such type")
    x = torch.zeros(2, dtype=kind)
    counting = compare(lambda: torch.zeros(3, dtype=kind).copy_(x[:1].expand(3)), tmp_path)
    # AND the cost models know its size: 1 element read, 3 written
    (copy,) = counting.select(name="aten::copy_")
    assert copy.bytes == 4 * x.element_size()


def test_the_same_tensor_twice_is_read_once():
    x, y = torch.ones(1000), torch.ones(1000)
    counting = Counting()
    counting.run(lambda: (x * x, x * y))
    # THEN one array read and one written, against two read: 4 bytes each
    assert sorted(r.bytes for r in counting.select(name="aten::mul")) == [8000, 12000]
    # AND a result is never taken for something that is read a second time
    counting.run(lambda: (x.add_(y), torch.add(x, y, out=x)))
    assert {r.bytes for r in counting.records} == {12000}


def test_a_broadcast_dimension_is_read_once():
    x = torch.ones(1, 8).expand(1000, 8)
    counting = Counting()
    counting.run(lambda: (x + 1, torch.ones(1000, 8) + 1))
    rows = counting.select(name="aten::add")
    assert sorted(r.bytes for r in rows) == [4 * 8 + 4 * 8000 + 8, 2 * 4 * 8000 + 8]  # the number beside it is 8 bytes
    assert sorted(r.stride0_mask for r in rows) == [[(False, False)], [(True, False)]]


def test_numbers_with_a_fraction_make_no_new_signature():
    # GIVEN a step that scales by another number each time, as optimizers do
    x = torch.ones(10)
    counting = Counting()
    for step in range(1, 6):
        counting.run(lambda step=step: x.mul_(0.9**step).add_(x, alpha=1.0 / step))
    assert len(counting.ledger.signatures) == 2
    # AND whole numbers and flags are told apart
    counting.run(lambda: (x.sum(0), x.sum(0, keepdim=True), x + 1, x + True))
    assert len(counting.ledger.signatures) == 2 + 4


def test_sizes_that_follow_from_fractions_keep_them():
    counting = Counting()
    counting.run(lambda: (torch.arange(0, 1, 0.25), torch.arange(0, 1, 0.1)))
    assert sorted(r.bytes for r in counting.select(name="aten::arange")) == [4 * 4, 10 * 4]


def test_results_are_described():
    counting = Counting()
    counting.run(lambda: (torch.ones(2, 3).max(1), torch._foreach_add([torch.ones(2), torch.ones(3)], 1)))
    by_op = {s.op: s for s in counting.ledger.signatures}
    assert (by_op["aten::max"].out_shapes, by_op["aten::max"].out_types) == ("[[2], [2]]", '["float", "long int"]')
    assert by_op["aten::_foreach_add"].out_shapes == "[[[2], [3]]]" or by_op["aten::_foreach_add"].out_shapes == "[[2], [3]]"
    assert {tuple(map(tuple, r.output_shapes)) for r in counting.select(name="aten::_foreach_add")} == {((2,), (3,))}


def test_integers_that_change_every_time_do_not_grow_the_ledger_without_end():
    from tb_sol_plugin.capture.work.signatures import VARIANTS

    x = torch.ones(4)
    counting = Counting()
    counting.run(lambda: [x + n for n in range(VARIANTS + 500)])
    assert len(counting.ledger.signatures) <= VARIANTS + 2
    assert counting.calls("add") == VARIANTS + 500
    assert sum(r.bytes for r in counting.records) == (VARIANTS + 500) * (16 + 16 + 8)
