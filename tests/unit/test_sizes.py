"""The script that counts sizes, on sources made up here: what it counts, and that each limit fails."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools import sizes


def tree_of(root: Path, files: dict[str, str]) -> sizes.Sizes:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return sizes.measure(root, "pkg")


def first_function(text: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    (node,) = ast.parse(text).body
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    return node


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("pass", 1),
        ("if a: pass\n    elif b: pass\n    else: pass", 3),
        ("return a and b and c or d", 4),  # two of `and`, one of `or`
        ("return 1 if a else 2", 2),
        ("return [x for x in a if x if not x]", 4),  # the loop and two conditions
        ("for x in a: pass\n    while b: pass", 3),
        ("try: pass\n    except A: pass\n    except B: pass\n    finally: pass", 3),
        ("match a:\n        case 1: pass\n        case _: pass", 3),
        ("assert a", 2),
        ("def inner():\n        if a: pass\n    return inner", 1),  # a nested function counts for itself
    ],
)
def test_complexity_counts_the_decisions_of_one_function(body: str, expected: int) -> None:
    assert sizes.complexity(first_function(f"def f():\n    {body}\n")) == expected


def test_parameters_do_not_count_self() -> None:
    assert sizes.parameters(first_function("def f(self, a, /, b, *c, d=1, **e): pass")) == 5
    assert sizes.parameters(first_function("def f(cls): pass")) == 0
    assert sizes.parameters(first_function("async def f(a): pass")) == 1


def test_imports_are_found_at_the_top_and_inside_functions_but_not_for_types(tmp_path: Path) -> None:
    found = tree_of(
        tmp_path,
        {
            "pkg/__init__.py": "",
            "pkg/a.py": "from typing import TYPE_CHECKING\nimport os\nimport pkg.b\nif TYPE_CHECKING:\n    from pkg import e\n",
            "pkg/b.py": "def f():\n    from pkg.c import name\n",
            "pkg/c.py": "try:\n    from . import d\nexcept ImportError:\n    pass\n",
            "pkg/d.py": "",
            "pkg/e.py": "from pkg import name\n",
            "pkg/sub/__init__.py": "from . import g\n",
            "pkg/sub/g.py": "from ..d import name\n",
        },
    )
    assert {s.module: sorted(s.imports) for s in found.sources} == {
        "pkg": [],
        "pkg.a": ["pkg.b"],
        "pkg.b": ["pkg.c"],
        "pkg.c": ["pkg.d"],
        "pkg.d": [],
        "pkg.e": ["pkg"],
        "pkg.sub": ["pkg.sub.g"],
        "pkg.sub.g": ["pkg.d"],
    }
    assert found.single == [("pkg.b", "pkg.a"), ("pkg.c", "pkg.b")]  # pkg.d has two importers; an __init__ does not count as one
    assert sizes.problems(found, {}) == []


def test_circles_are_groups_that_reach_each_other() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"f", "a"}, "f": {"e"}, "g": {"g"}}
    assert sizes.circles(graph) == [["a", "b", "c"], ["e", "f"]]
    assert sizes.circles({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}) == []


def test_a_circle_through_a_function_fails(tmp_path: Path) -> None:
    found = tree_of(tmp_path, {"pkg/a.py": "import pkg.b\n", "pkg/b.py": "def f():\n    import pkg.a\n"})
    assert sizes.problems(found, {}) == ["circle of imports: pkg.a <-> pkg.b"]


LONG_FILE = "x = 1\n" * 601
LONG_FUNCTION = "class C:\n    def f(self):\n" + "        x = 1\n" * 80
BRANCHES = "def f():\n" + "    if a: pass\n" * 25
MANY = "def f(" + ", ".join(f"a{i}" for i in range(13)) + "): pass\n"


@pytest.mark.parametrize(
    ("text", "limit", "where", "problem"),
    [
        (LONG_FILE, "file", "pkg/a.py", "pkg/a.py:1: 601 lines in one file, at most {most}"),
        (LONG_FUNCTION, "function", "pkg/a.py:C.f", "pkg/a.py:2: C.f: 81 lines in one function, at most {most}"),
        (BRANCHES, "complexity", "pkg/a.py:f", "pkg/a.py:1: f: 26 complexity, at most {most}"),
        (MANY, "parameters", "pkg/a.py:f", "pkg/a.py:1: f: 13 parameters, at most {most}"),
    ],
)
def test_what_is_over_a_limit_fails_and_what_is_known_must_not_grow(
    tmp_path: Path, text: str, limit: str, where: str, problem: str
) -> None:
    found = tree_of(tmp_path, {"pkg/a.py": text})
    size = sizes.LIMITS[limit] + 1
    assert sizes.problems(found, {}) == [problem.format(most=sizes.LIMITS[limit])]
    assert sizes.problems(found, {limit: {where: size}}) == []
    assert sizes.outdated(found, {limit: {where: size}}) == []
    assert sizes.problems(found, {limit: {where: size - 1}}) == [problem.format(most=size - 1)]
    assert sizes.outdated(found, {limit: {where: size + 1}}) == [f"{limit} {where}: {size} (was {size + 1})"]


def test_what_is_at_a_limit_passes(tmp_path: Path) -> None:
    parts = [LONG_FUNCTION.removesuffix("        x = 1\n"), BRANCHES.removesuffix("    if a: pass\n"), MANY.replace("a0, ", "")]
    text = "".join(parts)
    found = tree_of(tmp_path, {"pkg/a.py": text + "x = 1\n" * (600 - text.count("\n"))})
    assert sizes.problems(found, {}) == []
    assert sizes.outdated(found, {"file": {"pkg/a.py": 700, "pkg/gone.py": 700}}) == [
        "file pkg/a.py: gone (was 700)",
        "file pkg/gone.py: gone (was 700)",
    ]


def test_an_analysis_imports_only_its_own_tables_and_figures(tmp_path: Path) -> None:
    found = tree_of(
        tmp_path,
        {
            "pkg/analyses/__init__.py": "from pkg.analyses import copies\n",
            "pkg/analyses/copies.py": "from pkg.analyses import copies_tables, copies_figures, copies_links_tables\n",
            "pkg/analyses/copies_tables.py": "from pkg.analyses import copies_figures\n",
            "pkg/analyses/copies_figures.py": "",
            "pkg/analyses/copies_links_tables.py": "",  # no analysis copies_links: it belongs to copies
            "pkg/analyses/copies_ranks.py": "from pkg.analyses.copies_tables import x\n",
            "pkg/analyses/time.py": "def f():\n    from pkg.analyses import copies\n",
        },
    )
    assert sizes.problems(found, {}) == [
        "pkg/analyses/copies_ranks.py imports pkg.analyses.copies_tables, which belongs to another analysis",
        "pkg/analyses/time.py imports pkg.analyses.copies, which belongs to another analysis",
    ]


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree_of(tmp_path, {"pkg/a.py": "x = 1\n", "pkg/room/b.py": "x = 1\ny = 2\n", "tests/t.py": LONG_FILE})
    given = ["--root", str(tmp_path), "--package", "pkg"]
    assert sizes.main(given) == 0  # tests are counted, not judged
    out = capsys.readouterr().out
    assert "2 files, 3 lines, median 1.5;" in out
    assert "tests: 1 file, 601 lines, median 601; 1 over 600 lines in one file" in out
    (tmp_path / "pkg/a.py").write_text(MANY)
    assert sizes.main(given) == 1
    assert "pkg/a.py:1: f: 13 parameters, at most 12" in capsys.readouterr().err
    assert sizes.main(["--root", str(tmp_path), "--package", "none"]) == 1
