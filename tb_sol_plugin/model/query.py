"""Defines the query of an analysis: every analysis has one, and all share these fields."""

from __future__ import annotations

import math
import types
import typing
from functools import cache
from typing import ClassVar, Literal

import msgspec

from tb_sol_plugin.errors import BadQuery

MOST_SHORT = 500
"""Characters of a field that every analysis has: a step, limits."""
MOST_LONG = 16_000
"""Characters of another one: it may name hundreds of runs."""


class Query(msgspec.Struct, kw_only=True, frozen=True):
    """Fields that every analysis understands.

    step: "" for the whole recording, one step ("12"), or a range ("12-15"), by the number in `ProfilerStep#N`, or the iteration's.
    device_limits: device limits to measure against, as KEY, KEY@1410MHz, KEY+sparse, @1410MHz or +sparse ("" = as recorded)
    """

    step: str = ""
    device_limits: str = ""

    PAGE: ClassVar[dict[str, str]] = {}
    """Fields the page opens with another value than scripts get, where a person is better served by it."""
    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Values to suggest for a text field; others are taken too."""
    LABELS: ClassVar[dict[str, str]] = {}
    """What the page calls a field where its name alone does not do."""
    SLIDERS: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Number fields that the page shows as a slider over these values; a report may name better ones (`Report.fields`)."""
    GROUPS: ClassVar[dict[str, tuple[str, ...]]] = {}
    """An analysis with many fields: its fields by heading, in order. The page shows them in a card of their own above its report."""
    SELDOM: ClassVar[tuple[str, ...]] = ()
    """Fields of a group that stand behind a button until they are changed."""
    LOCAL: ClassVar[tuple[str, ...]] = ()
    """Fields that name a file of the machine: for the command line and notebooks alone, no server takes them."""
    ONE_OFF: ClassVar[tuple[str, ...]] = ()
    """Fields of countless values, as the ends of a window: an answer with one of them is not kept on disk."""


class PairQuery(Query, kw_only=True, frozen=True):
    """Fields of every analysis that compares the recording that is shown with another one.

    other_run: run of the other recording ("" = another run with the same worker, else this run)
    other_worker: worker of the other recording, by its name or its rank ("" = the same one of another run, another one of this run)
    other_span: span of the other recording ("" = the one in the same place)
    """

    other_run: str = ""
    other_worker: str = ""
    other_span: str = ""

    LABELS: ClassVar[dict[str, str]] = {"other_run": "Beside run", "other_worker": "Worker", "other_span": "Span"}


class Field(msgspec.Struct, frozen=True):
    """One query field as the page, the CLI and OpenAPI show it. page: what the page opens with.

    choices: of a `choice` all values, of a `text` suggestions, else empty. slider: values to step through, empty where it is none.
    group: heading it stands under, "" for none. seldom: it stands behind a button. rows: of a list of rows, as JSON, the fields of each:
    fields of the query, too, of which they have the defaults.
    """

    name: str
    type: Literal["text", "choice", "number", "flag", "rows"]
    default: str
    choices: tuple[str, ...] = ()
    label: str = ""
    doc: str = ""
    page: str = ""
    slider: tuple[str, ...] = ()
    group: str = ""
    seldom: bool = False
    rows: tuple[str, ...] = ()


@cache
def fields(query: type[Query]) -> tuple[Field, ...]:
    """Returns the fields of a Query class, in order; docs come from `name: text` lines of the docstrings."""
    docs = _docs(query)
    groups = {name: group for group, names in query.GROUPS.items() for name in names}
    out = []
    for info in msgspec.structs.fields(query):
        hint = info.type
        default = "" if info.default is msgspec.NODEFAULT else str(info.default)
        kind: Literal["text", "choice", "number", "flag", "rows"] = "text"
        choices = query.CHOICES.get(info.name, ())
        if typing.get_origin(hint) is Literal:
            kind, choices = "choice", tuple(str(c) for c in typing.get_args(hint))
        elif hint is bool or (isinstance(hint, types.UnionType) and bool in typing.get_args(hint)):
            kind = "flag"
        elif hint in (int, float) or (isinstance(hint, types.UnionType) and set(typing.get_args(hint)) & {int, float}):
            kind = "number"
        row = typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else None
        rows: tuple[str, ...] = ()
        if row is not None:
            kind, default, rows = "rows", "", row.__struct_fields__
        name = info.name
        label = query.LABELS.get(name, name.replace("_", " ").capitalize())
        out.append(Field(
            name, kind, default, choices, label, docs.get(name, ""), query.PAGE.get(name, default), query.SLIDERS.get(name, ()),
            groups.get(name, ""), name in query.SELDOM, rows,
        ))  # fmt: skip
    order = list(groups)
    return tuple(sorted(out, key=lambda f: order.index(f.name) if f.name in groups else -1))


def as_text(value: object) -> str:
    """Returns the text of a value of a query field: of a list as JSON."""
    return msgspec.json.encode(value).decode() if isinstance(value, list | tuple) else str(value)


def _rows(field: Field, text: str) -> object:
    """Returns the rows of a field. BadQuery for what is no JSON."""
    try:
        return msgspec.json.decode(text) if text.strip() else []
    except msgspec.DecodeError as error:
        message = f"parameter {field.name!r} is no list as JSON: {str(error)[:80]}"
        raise BadQuery(message, hint=_hint(field), field=field.name) from None


def _hint(field: Field) -> str:
    """Returns how rows are given."""
    return f'give [{{"{field.rows[0]}": …}}, …], each of {", ".join(field.rows)}'


def _docs(query: type[Query]) -> dict[str, str]:
    names = set(query.__struct_fields__)
    docs: dict[str, str] = {}
    for base in reversed(query.__mro__):
        for line in (base.__doc__ or "").splitlines():
            name, colon, text = line.strip().partition(": ")
            if colon and name in names:
                docs[name] = text
    return docs


def parse(query: type[Query], raw: dict[str, str]) -> Query:
    """Returns a Query from strings. BadQuery names the field that is unknown or does not fit."""
    known = {f.name: f for f in fields(query)}
    for name in raw:
        if name not in known:
            raise BadQuery(f"unknown parameter {name[:40]!r}", hint=f"known: {', '.join(known)}", field=name[:40])
        most = MOST_SHORT if name in Query.__struct_fields__ else MOST_LONG
        if len(raw[name]) > most:
            raise BadQuery(f"parameter {name!r} is too long: {len(raw[name]):,} characters", hint=f"give at most {most:,}", field=name)
    try:
        given = {name: _rows(known[name], text) if known[name].rows else text for name, text in raw.items()}
        found = msgspec.convert(given, query, strict=False)
        for name in raw:
            if isinstance(value := getattr(found, name), float) and not math.isfinite(value):
                raise BadQuery(f"parameter {name!r} does not fit: {raw[name]!r}", hint="give a finite number", field=name)
        return found
    except msgspec.ValidationError as error:
        field = str(error).rpartition("$.")[2].rstrip("`") if "$." in str(error) else ""
        name, inside, _ = field.partition("[")
        if inside:
            text = str(error).replace(f"$.{name}", name)
            raise BadQuery(f"parameter {name!r} does not fit: {text}", hint=_hint(known[name]), field=name) from None
        choices = known[field].choices if field in known else ()
        limited = bool(choices) and known[field].type == "choice"
        hint = f"choose one of {', '.join(choices)}" if limited else "give a value of the right type"
        raise BadQuery(f"parameter {field!r} does not fit: {raw.get(field, '')!r}", hint=hint, field=field) from None
