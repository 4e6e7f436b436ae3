"""Trees of two steps: what is which, against edits that are known, and the trees that recordings give."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.metrics.compare.alignment import Alignment, Nodes, aligned, common
from tb_sol_plugin.metrics.compare.step_tree import sizes_of
from tb_sol_plugin.model import schemas as S

Plain = tuple[str, "Sequence[Plain]"]
"""A node: its name, an operator's with `::`, and what is inside."""


def tree(*inside: Plain, shapes: dict[str, int] | None = None) -> Nodes:
    """The tree of a step; every node takes 1 us of its own."""
    name, parent, children = ["step"], [-1], [[]]

    def add(above: int, nodes: Sequence[Plain]) -> None:
        for text, below in nodes:
            name.append(text)
            parent.append(above)
            children.append([])
            children[above].append(len(name) - 1)
            add(len(name) - 1, below)

    add(0, inside)
    kind = [S.OPERATOR if "::" in n else S.MODULE for n in name]
    return Nodes(name, list(name), kind, parent, children, [(shapes or {}).get(n, 0) for n in name], np.full(len(name), 1_000), 0,
                 [()] * len(name))  # fmt: skip


def op(name: str) -> Plain:
    return f"aten::{name}", ()


def layer(place: int, *names: str) -> Plain:
    return f"Layer[{place}]", tuple(map(op, names))


def of(found: Alignment, name: str) -> list[tuple[str, str]]:
    """(how, name of the partner) of each node of B with a name."""
    rows = [i for i, n in enumerate(found.b.name) if n == name]
    return [(found.how_b[i], found.a.name[found.partner_b[i]] if found.partner_b[i] >= 0 else "") for i in rows]


def test_what_is_the_same_came_and_went() -> None:
    # GIVEN three layers, of which the last got a norm and lost an add
    a = tree(*(layer(i, "mm", "gelu", "add") for i in range(3)), op("loss"))
    b = tree(layer(0, "mm", "gelu", "add"), layer(1, "mm", "gelu", "add"), layer(2, "layer_norm", "mm", "gelu"), op("loss"))
    found = aligned(a, b)
    assert found.counts() == {"same": 12, "moved": 0, "renamed": 0, "fused": 0, "split": 0, "only_a": 1, "only_b": 1}
    assert of(found, "aten::layer_norm") == [("only", "")] and of(found, "Layer[2]") == [("same", "Layer[2]")]
    assert found.shares == (12 / 13, 12 / 13)
    # AND a tree against itself is the same in all
    assert set(aligned(a, a).how_a) == {"same"} and aligned(a, a).shares == (1.0, 1.0)


def test_what_moved_in_the_tree() -> None:
    # GIVEN an encoder inside of a new module, an operator that changed its place with another, and a module in another parent
    encoder, head = ("Encoder[0]", (layer(0, "mm", "gelu"), layer(1, "mm", "gelu"))), ("Head[0]", (op("mm"), op("softmax")))
    a = tree(encoder, head, op("sum"), op("mean"))
    b = tree(("Wrapper[0]", (encoder,)), ("Pool[0]", (op("max"), head)), op("mean"), op("sum"))
    found = aligned(a, b)
    assert of(found, "Encoder[0]") == [("moved", "Encoder[0]")] and of(found, "Head[0]") == [("moved", "Head[0]")]
    assert of(found, "Layer[1]") == [("same", "Layer[1]")]
    assert sorted(how for name in ("aten::mean", "aten::sum") for how, _ in of(found, name)) == ["moved", "same"]
    assert of(found, "Wrapper[0]") == of(found, "Pool[0]") == of(found, "aten::max") == [("only", "")] and "only" not in found.how_a


def test_guesses_in_a_gap() -> None:
    # GIVEN between the same neighbors one operator in place of three, and one of nearly the same name THEN these are guessed, and said so
    a = tree(op("mm"), op("add"), op("native_layer_norm"), op("dropout"), op("relu"), op("scaled_matmul"), op("sum"))
    b = tree(op("mm"), ("fused::add_norm", ()), op("relu"), op("scaled_matmul2"), op("sum"))
    found = aligned(a, b)
    assert of(found, "fused::add_norm") == [("fused", "aten::add")] and of(found, "aten::scaled_matmul2") == [("renamed", "aten::scaled_matmul")]
    assert found.counts()["fused"] == 1 and found.shares == (1.0, 1.0)
    back = aligned(b, a)
    assert back.counts()["split"] == 1 and of(back, "aten::dropout") == [("split", "fused::add_norm")]
    # AND where inputs were recorded only where what the one takes goes into one of the several: both tensors of the add, and the norm's weights
    a.inputs[2:5] = [(4096, 4096), (4096, 64, 64), (4096,)]
    for taken, fits in (((4096, 4096, 64, 64), 1), ((4096, 64), 1), ((4096, 4096, 4096, 4096, 4096), 0), ((4096, 128), 0)):
        b.inputs[2] = taken
        assert aligned(a, b).counts()["fused"] == fits and aligned(b, a).counts()["split"] == fits
    # AND another name of the same shapes in the same place is renamed
    found = aligned(tree(op("mm"), op("gelu"), shapes={"aten::gelu": 5}), tree(op("mm"), op("silu"), shapes={"aten::silu": 5}))
    assert of(found, "aten::silu") == [("renamed", "aten::gelu")]


@given(st.text("abc", max_size=14), st.text("abc", max_size=14))
def test_common_subsequences_are_the_longest(a: str, b: str) -> None:
    found = common(a, b)
    assert all(a[i] == b[j] for i, j in found) and found == sorted(found)
    assert len({i for i, _ in found}) == len({j for _, j in found}) == len(found)
    lengths = np.zeros((len(a) + 1, len(b) + 1), int)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            lengths[i + 1, j + 1] = lengths[i, j] + 1 if x == y else max(lengths[i, j + 1], lengths[i + 1, j])
    assert len(found) == lengths[-1, -1]


def test_known_edits_of_random_trees() -> None:
    # GIVEN random layers of which some operators were left out, added or moved to the end of their layer THEN 99 % are matched as they were
    draw = random.Random(4)
    right = total = 0
    for _ in range(30):
        layers = [[f"op{draw.randrange(12)}" for _ in range(draw.randrange(4, 12))] for _ in range(12)]
        changed, truth = [], []
        for at, names in enumerate(layers):
            marked = [(n, (at, i)) for i, n in enumerate(names)]
            for _ in range(draw.randrange(2)):
                edit, place = draw.randrange(3), draw.randrange(len(marked))
                if edit == 0:
                    marked.pop(place)
                elif edit == 1:
                    marked.insert(place, ("new", (-1, -1)))
                else:
                    marked.append(marked.pop(place))
            changed.append([n for n, _ in marked])
            truth.append([origin for _, origin in marked])
        a, b = (tree(*(layer(i, *names) for i, names in enumerate(every))) for every in (layers, changed))
        found = aligned(a, b)
        for i, top in enumerate(b.children[0]):
            for origin, node in zip(truth[i], b.children[top], strict=True):
                partner = found.partner_b[node]
                wanted = a.children[a.children[0][origin[0]]][origin[1]] if origin[0] >= 0 else -1
                right += partner == wanted or (partner >= 0 and wanted >= 0 and a.key[partner] == a.key[wanted])
                total += 1
    assert right >= 0.99 * total


def test_known_fusions_of_random_trees() -> None:
    # GIVEN random layers in which two or three operators beside each other gave way to one that takes what they took THEN 95 % of all operators are
    # matched as they were; of the fused ones 80 %: where a name stands at both ends of what went, the gap may as well lie one place further
    draw = random.Random(6)
    right, total, fused, of_fused = 0, 0, 0, 0
    for _ in range(30):
        layers = [[f"op{draw.randrange(12)}" for _ in range(draw.randrange(6, 12))] for _ in range(12)]
        changed, truth = [], []
        for names in layers:
            at, count = draw.randrange(1, len(names) - 4), draw.randrange(2, 4)
            changed.append([*names[:at], "fused_kernel", *names[at + count :]])
            truth.append([*range(at), at, *range(at + count, len(names))])
        a, b = (tree(*(layer(i, *names) for i, names in enumerate(every))) for every in (layers, changed))
        found = aligned(a, b)
        for i, top in enumerate(b.children[0]):
            for origin, node in zip(truth[i], b.children[top], strict=True):
                is_right = found.partner_b[node] >= 0 and a.key[found.partner_b[node]] == a.key[a.children[a.children[0][i]][origin]]
                if b.name[node] == "aten::fused_kernel":
                    fused, of_fused = fused + (is_right and found.how_b[node] == "fused"), of_fused + 1
                right, total = right + is_right, total + 1
    assert right >= 0.95 * total and fused >= 0.8 * of_fused


def test_very_different_sequences_stay_cheap(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    # GIVEN sequences with more differences than are looked at together THEN the search begins anew there, and the ends still match
    monkeypatch.setattr("tb_sol_plugin.metrics.compare.alignment.MOST_EDITS", 20)
    a, b = [f"a{i}" for i in range(60)], [f"b{i}" for i in range(60)]
    found = common(["x", *a, "y"], ["x", *b, "y"])
    assert found[0] == (0, 0) and all(i == j == 0 or (i, j) == (61, 61) for i, j in found)


def test_sizes_of_inputs() -> None:
    # GIVEN shapes as recorded: tensors, a list of them, numbers THEN elements of each tensor, those of a list one by one
    assert sizes_of("[[8,4,16,32],[[8],[2,3]],[],[1],[16,32]]") == (16384, 8, 6, 512)
    assert sizes_of("[[],[]]") == sizes_of("") == sizes_of("broken[") == sizes_of('["x"]') == sizes_of("[[0,4]]") == ()
