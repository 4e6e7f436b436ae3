"""Counts how large the sources are, and fails where one of them is too large to read.

    python tools/sizes.py            # the package; what is over a limit is listed and fails
    python tools/sizes.py --verbose  # also the files that only one file of their folder imports

The counts: files and lines by room, the median file, files with one importer in the same folder, circles of imports. The limits: a file of
600 lines, a function of 80 lines (its docstring counts), cyclomatic complexity 25, a signature of 12 parameters, no circle of imports, no
analysis that imports another one. `KNOWN` lists what is over a limit today, with its size: it may shrink and must not grow.

Complexity is McCabe's number: one, and one more for each `if`, conditional expression, loop, `except`, `case`, `assert`, comprehension,
condition of a comprehension, and each `and` or `or`. A nested function counts for itself. Imports inside functions count; those under
`TYPE_CHECKING` do not. Only the standard library is used.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from statistics import median

LIMITS = {"file": 600, "function": 80, "complexity": 25, "parameters": 12}
WHAT = {"file": "lines in one file", "function": "lines in one function", "complexity": "complexity", "parameters": "parameters"}

TABLES: frozenset[str] = frozenset()
"""Files that hold nothing but a table of data. They may be as long as the table is."""

ENTRY_POINTS = frozenset({
    "tb_sol_plugin/capture/context.py:capture",
    "tb_sol_plugin/capture/tracker.py:SOLTracker.__init__",
    "tb_sol_plugin/model/registry.py:analysis",
})  # fmt: skip
"""Documented entry points with many keyword arguments. Their signatures are part of the public interface."""

KNOWN: dict[str, dict[str, int]] = {
    "file": {},
    "function": {},
    "complexity": {
        "tb_sol_plugin/capture/work/ledger.py:LedgerMode._count": 38,
    },
    "parameters": {
    },
}
"""What is over a limit today, with its size."""

PARTS = ("_tables", "_figures", "_columns", "_counted", "_lists", "_query", "_reduction", "_roofs", "_selection")
"""What follows the name of an analysis in the files that belong to it."""


@dataclass(frozen=True)
class Function:
    """One function: where it is and how large it is."""

    name: str
    line: int
    lines: int
    complexity: int
    parameters: int


@dataclass(frozen=True)
class Source:
    """One file: its path below the root, its lines, its functions and the modules it imports."""

    path: str
    module: str
    lines: int
    functions: tuple[Function, ...]
    imports: frozenset[str]


@dataclass
class Sizes:
    """What was counted in a tree of sources."""

    sources: list[Source] = field(default_factory=list)
    circles: list[list[str]] = field(default_factory=list)
    single: list[tuple[str, str]] = field(default_factory=list)


def module_name(path: str) -> str:
    """Return the dotted name of the module at `path` (below the root, with forward slashes)."""
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case, ast.Assert, ast.comprehension)


def complexity(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return McCabe's cyclomatic complexity of one function, without the functions nested in it."""
    total, todo = 1, list(ast.iter_child_nodes(function))
    while todo:
        node = todo.pop()
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            continue
        if isinstance(node, _BRANCHES):
            total += 1
        if isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += len(node.ifs)
        todo.extend(ast.iter_child_nodes(node))
    return total


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return how many parameters a function has. `self` and `cls` do not count; `*args` and `**kwargs` count one each."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args]
    bound = bool(named) and named[0].arg in ("self", "cls")
    return len(named) - bound + len(arguments.kwonlyargs) + (arguments.vararg is not None) + (arguments.kwarg is not None)


def functions(tree: ast.AST, prefix: str = "") -> Iterator[Function]:
    """Yield every function below `tree`, named with the classes and functions around it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _FUNCTIONS):
            name = prefix + node.name
            yield Function(name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1, complexity(node), parameters(node))
            yield from functions(node, name + ".")
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, prefix + node.name + ".")
        else:
            yield from functions(node, prefix)


def _typing_only(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING")


def imports(tree: ast.AST, module: str, *, package: bool, modules: frozenset[str]) -> Iterator[str]:
    """Yield the modules of `modules` that a file imports, at its top or inside a function. `package`: the file is an `__init__`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and _typing_only(node.test):
            for other in node.orelse:
                yield from imports(ast.Module([other], []), module, package=package, modules=modules)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                around = module.split(".")
                above = around[: len(around) - node.level + package]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                target = f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base
                if target in modules:
                    yield target
        else:
            yield from imports(node, module, package=package, modules=modules)


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the strongly connected groups of more than one module, each sorted by name (Tarjan's algorithm, without recursion)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []
    for root in graph:
        if root in order:
            continue
        calls = [(root, iter(sorted(graph[root])))]
        while calls:
            node, targets = calls[-1]
            if node not in order:
                order[node] = low[node] = len(order)
                stack.append(node)
                on_stack.add(node)
            for target in targets:
                if target not in order:
                    calls.append((target, iter(sorted(graph[target]))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], order[target])
            else:
                calls.pop()
                if calls:
                    low[calls[-1][0]] = min(low[calls[-1][0]], low[node])
                if low[node] == order[node]:
                    at = stack.index(node)
                    group, stack[at:] = stack[at:], []
                    on_stack.difference_update(group)
                    if len(group) > 1:
                        found.append(sorted(group))
    return sorted(found)


def single_importers(graph: Mapping[str, Iterable[str]]) -> list[tuple[str, str]]:
    """Return (module, importer) of every module that exactly one module imports, where both are in the same folder."""
    importers: dict[str, list[str]] = {module: [] for module in graph}
    for module, targets in graph.items():
        for target in targets:
            if module != target.rpartition(".")[0]:
                importers[target].append(module)
    return sorted((m, i[0]) for m, i in importers.items() if len(i) == 1 and i[0].rpartition(".")[0] == m.rpartition(".")[0])


def measure(root: Path, folder: str) -> Sizes:
    """Count everything in the Python files of `folder` below `root`."""
    paths = sorted(p.relative_to(root).as_posix() for p in (root / folder).rglob("*.py") if "__pycache__" not in p.parts)
    modules = frozenset(map(module_name, paths))
    sizes = Sizes()
    for path in paths:
        text = (root / path).read_text(encoding="utf-8")
        tree, module = ast.parse(text, path), module_name(path)
        wanted = frozenset(imports(tree, module, package=path.endswith("__init__.py"), modules=modules)) - {module}
        sizes.sources.append(Source(path, module, len(text.splitlines()), tuple(functions(tree)), wanted))
    graph = {source.module: source.imports for source in sizes.sources}
    sizes.circles, sizes.single = circles(graph), single_importers(graph)
    return sizes


def _analysis_of(module: str, names: frozenset[str]) -> str:
    """Return the analysis that a module of `analyses/` belongs to: the longest analysis name that its own name starts with."""
    name = module
    for part in PARTS:
        name = name.removesuffix(part)
    owners = [other for other in names if name == other or name.startswith(other + "_")]
    return max(owners, key=len, default=name)


def foreign_analyses(sizes: Sizes) -> list[str]:
    """Return one sentence for each module of `analyses/` that imports a module of another analysis."""
    inside = {s.module: s for s in sizes.sources if "/analyses/" in s.path and not s.path.endswith("__init__.py")}
    names = frozenset(m for m in inside if not m.endswith(PARTS))
    return [
        f"{source.path} imports {target}, which belongs to another analysis"
        for module, source in inside.items()
        for target in sorted(source.imports)
        if target in inside and _analysis_of(target, names) != _analysis_of(module, names)
    ]


def _measured(sizes: Sizes) -> Iterator[tuple[str, str, int, int]]:
    """Yield (limit, where, size, line) of every file and function."""
    for source in sizes.sources:
        yield "file", source.path, source.lines, 1
        for function in source.functions:
            where = f"{source.path}:{function.name}"
            yield "function", where, function.lines, function.line
            yield "complexity", where, function.complexity, function.line
            yield "parameters", where, function.parameters, function.line


def over_limits(sizes: Sizes) -> dict[str, dict[str, tuple[int, int]]]:
    """Return what is over a limit: limit -> where -> (size, line)."""
    over: dict[str, dict[str, tuple[int, int]]] = {limit: {} for limit in LIMITS}
    for limit, where, size, line in _measured(sizes):
        free = where in TABLES if limit == "file" else limit == "parameters" and where in ENTRY_POINTS
        if size > LIMITS[limit] and not free:
            over[limit][where] = max((size, line), over[limit].get(where, (0, 0)))
    return over


def problems(sizes: Sizes, known: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return one sentence for each size over its limit (or over what is `known`), each circle and each foreign analysis."""
    found: list[str] = []
    for limit, places in over_limits(sizes).items():
        for where, (size, line) in places.items():
            allowed = known.get(limit, {}).get(where)
            if allowed is None or size > allowed:
                path, _, name = where.partition(":")
                most = LIMITS[limit] if allowed is None else allowed
                found.append(f"{path}:{line}: {name + ': ' if name else ''}{size} {WHAT[limit]}, at most {most}")
    found += [f"circle of imports: {' <-> '.join(group)}" for group in sizes.circles]
    return found + foreign_analyses(sizes)


def outdated(sizes: Sizes, known: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return one sentence for each entry of `known` that can be removed or lowered."""
    over = over_limits(sizes)
    return [
        f"{limit} {where}: {over[limit][where][0] if where in over[limit] else 'gone'} (was {size})"
        for limit, places in known.items()
        for where, size in places.items()
        if where not in over[limit] or over[limit][where][0] < size
    ]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _summary(sizes: Sizes) -> str:
    lines = [source.lines for source in sizes.sources]
    over = over_limits(sizes)
    large = ", ".join(f"{len(over[limit])} over {LIMITS[limit]} {WHAT[limit]}" for limit in LIMITS)
    return f"{_count(len(lines), 'file')}, {sum(lines)} lines, median {median(lines):g}; {large}; {_count(len(sizes.circles), 'circle')}"


def report(sizes: Sizes, *, verbose: bool) -> Iterator[str]:
    """Yield the lines of the report on the package: rooms, totals, files with one importer, what is known to be too large."""
    files, lines = Counter[str](), Counter[str]()
    for source in sizes.sources:
        room = "/".join(PurePosixPath(source.path).parent.parts[1:3]) or "."
        files[room] += 1
        lines[room] += source.lines
    for room in sorted(files):
        yield f"  {room:<24}{files[room]:>5} files {lines[room]:>7} lines"
    yield _summary(sizes)
    yield f"{_count(len(sizes.single), 'file')} with one importer in the same folder"
    if verbose:
        yield from (f"  {module} <- {importer}" for module, importer in sizes.single)


def main(argv: list[str] | None = None) -> int:
    """Print the counts; return 1 where a limit of the package is broken, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1], help="the folder that holds the package")
    parser.add_argument("--package", default="tb_sol_plugin", help="the folder that must keep the limits")
    parser.add_argument("--also", nargs="*", default=["tests", "benchmarks", "samples", "tools"], help="folders that are counted only")
    parser.add_argument("--verbose", action="store_true", help="list the files with one importer in the same folder")
    options = parser.parse_args(argv)
    sizes = measure(options.root, options.package)
    if not sizes.sources:
        print(f"no Python files in {options.root / options.package}", file=sys.stderr)
        return 1
    print(*report(sizes, verbose=options.verbose), sep="\n")
    for folder in options.also:
        if (options.root / folder).is_dir():
            print(f"{folder}: {_summary(measure(options.root, folder))}")
    if ready := outdated(sizes, KNOWN):
        print("KNOWN in tools/sizes.py can shrink:", *ready, sep="\n  ")
    if wrong := problems(sizes, KNOWN):
        print("\nToo large, or imported the wrong way:", *wrong, sep="\n  ", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
