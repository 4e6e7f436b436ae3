"""Reports in pages, the rows of their tables, and what hostile parameters get."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from flask.testing import FlaskClient
from jsonschema import Draft202012Validator

from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import Column, FigureSection, Report, TableSection
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web import openapi, tables
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
from tests.support.trace_builder import TraceBuilder

KERNELS = 2_500
ROWS = "/api/v1/table/kernels"


def many_kernels(folder: Path) -> None:
    """Kernels of different names and lengths, each launched once."""
    t = TraceBuilder()
    t.step(1, 0, KERNELS * 10_000)
    for i in range(KERNELS):
        t.launch(
            f"{'gemm' if i % 3 else 'reduce'}_kernel_{i}",
            at=i * 10_000,
            start=i * 10_000 + 3_000,
            duration=1_000 + (i * 7919) % 5000,
            stream=7,
        )
    t.write(folder / "worker0.1700000000000000000.pt.trace.json.gz")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    folder = tmp_path_factory.mktemp("large")
    many_kernels(folder / "logs" / "big")
    with ThreadPoolExecutor(1) as pool:
        store = Store(single(str(folder / "logs")), StoreOptions(cache_dir=str(folder / "cache")), executor=pool)
        yield create_app(store, WebOptions()).test_client()
        store.close()


def table_in(client: FlaskClient, address: str = "/api/v1/analysis/kernels?wait=20") -> dict[str, Any]:
    sections = client.get(address).get_json()["sections"]
    return next(s for s in sections if s["kind"] == "table")


def test_a_report_in_pages_is_small_and_its_first_page_is_the_start_of_the_table(large: FlaskClient) -> None:
    # GIVEN a table of 2,500 rows WHEN the report is asked for in pages THEN its first rows come, as in the whole report, which stays whole
    whole = table_in(large)
    reply = large.get("/api/v1/analysis/kernels?tables=pages")
    paged = table_in(large, "/api/v1/analysis/kernels?tables=pages")
    assert len(reply.data) < 200_000 < tables.MOST_BYTES and "pages" not in whole
    assert paged["data"] == {} and paged["columns"] == whole["columns"] and paged["total"] == whole["total"]
    pages = paged["pages"]
    assert pages["rows"] == len(whole["data"]["name"]) == KERNELS and {"total_ns", "calls", "share"} <= set(pages["additive"])
    page = pages["page"]
    order = sorted(range(KERNELS), key=lambda r: -whole["data"]["total_ns"][r])
    assert page["rows"] == order[:100] and page["data"]["name"] == [whole["data"]["name"][r] for r in order[:100]]
    # AND everything else of the report is the same
    rest = [
        [s for s in large.get(f"/api/v1/analysis/kernels{how}").get_json()["sections"] if s["kind"] != "table"]
        for how in ("", "?tables=pages")
    ]
    assert rest[0] == rest[1]


def test_rows_are_sorted_filtered_and_summed_over_all_pages(large: FlaskClient) -> None:
    # GIVEN a text, a bound and an order WHEN pages are read one after the other THEN they are all rows that pass, once, with one sum
    whole = table_in(large)["data"]
    version = table_in(large, "/api/v1/analysis/kernels?tables=pages")["pages"]["version"]
    query = [("section", "kernels"), ("find", "REDUCE"), ("range", "total_ns:2000~4000"), ("sort", "-short_name"), ("version", version)]
    found: list[str] = []
    expected = [r for r in range(KERNELS) if "reduce" in whole["name"][r] and 2000 < whole["total_ns"][r] < 4000]
    while True:
        page = large.get(ROWS, query_string=[*query, ("offset", len(found)), ("limit", 150)]).get_json()
        assert page["count"] == len(expected) and page["sums"]["total_ns"] == sum(whole["total_ns"][r] for r in expected)
        assert page["of"] == KERNELS and page["offset"] == len(found)
        found += page["data"].get("short_name", [])
        if not page["length"]:
            break
    assert found == sorted((whole["short_name"][r] for r in expected), key=lambda n: -int(n.rpartition("_")[2]))
    # AND rows that are named, in the body of a POST
    page = large.post(ROWS, query_string=query, json={"picked": [found[3], found[1], "gone"]}).get_json()
    assert page["data"]["short_name"] == [found[1], found[3]]
    # AND one row by its key
    page = large.get(ROWS, query_string=[*query, ("key", found[7]), ("limit", 5)]).get_json()
    assert page["at"] == 7 and page["data"]["short_name"] == found[5:10]


def test_the_csv_has_all_rows_that_pass_in_order(large: FlaskClient) -> None:
    # GIVEN a filter and an order WHEN saved as CSV THEN every row that passes is there, in the columns asked for, not a page of them
    reply = large.get(
        ROWS,
        query_string={"section": "kernels", "wait": "20", "find": "gemm", "format": "csv", "sort": "total_ns", "columns": "total_ns,name"},
    )
    assert reply.mimetype == "text/csv" and 'filename="big_worker0_kernels_kernels.csv"' in reply.headers["Content-Disposition"]
    lines = list(csv.reader(io.StringIO(reply.get_data(as_text=True))))
    times = [int(line[0]) for line in lines[1:]]
    assert lines[0] == ["total_ns", "name"] and len(times) == sum(1 for i in range(KERNELS) if i % 3) and times == sorted(times)
    assert all("gemm" in line[1] for line in lines[1:])
    # AND without a choice the CSV of the table holds the rows of the report's own
    both = [
        large.get(a).get_data(as_text=True)
        for a in (f"{ROWS}?section=kernels&format=csv", "/api/v1/analysis/kernels?format=csv&section=kernels")
    ]
    assert sorted(both[0].splitlines()) == sorted(both[1].splitlines())


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "section"),
        ("section=nope", "section"),
        ("section=facts", "section"),
        ("section=kernels&offset=-1", "offset"),
        ("section=kernels&offset=9e9", "offset"),
        ("section=kernels&offset=99999999999999999999", "offset"),
        ("section=kernels&limit=0", "limit"),
        ("section=kernels&limit=1001", "limit"),
        ("section=kernels&limit=%D9%A1", "limit"),
        ("section=kernels&sort=nope", "sort"),
        ("section=kernels&sort=--total_ns", "sort"),
        ("section=kernels&keep=kind", "keep"),
        ("section=kernels&keep=nope:1", "keep"),
        ("section=kernels&" + "&".join(["keep=kind:a"] * 65), "keep"),
        ("section=kernels&keep=kind:" + ",".join(map(str, range(20_001))), "keep"),
        ("section=kernels&range=total_ns:", "range"),
        ("section=kernels&range=total_ns:~", "range"),
        ("section=kernels&range=total_ns:nan~", "range"),
        ("section=kernels&range=total_ns:1~inf", "range"),
        ("section=kernels&range=total_ns:x~1", "range"),
        ("section=kernels&range=nope:1~", "range"),
        ("section=kernels&find=" + "a" * 1001, "find"),
        ("section=kernels&find=" + "+".join(f"w{i}" for i in range(33)), "find"),
        ("section=kernels&format=xml", "format"),
        ("section=kernels&format=csv&columns=nope", "columns"),
        ("section=kernels&color=red", "color"),
    ],
)
def test_a_parameter_that_does_not_fit_is_400_and_named(large: FlaskClient, query: str, field: str) -> None:
    reply = large.get(f"{ROWS}?wait=20&{query}")
    assert reply.status_code == 400 and reply.get_json()["error"]["field"] == field, reply.get_json()


def test_hostile_texts_and_bodies_are_answered_or_refused(large: FlaskClient) -> None:
    # GIVEN texts of every sort as filters WHEN asked THEN nothing passes and nothing breaks
    for find in ("\U0001f600", "\x00\x01", "((((", "%_\\", "İ"):
        assert large.get(ROWS, query_string={"section": "kernels", "wait": "20", "find": find}).get_json()["count"] == 0
    page = large.get(ROWS, query_string={"section": "kernels", "keep": "total_ns:9999999999999999999999,1_0,٣,nan"}).get_json()
    assert page["count"] == 0
    assert large.get(ROWS, query_string={"section": "kernels", "offset": 10**9}).get_json()["length"] == 0
    # AND a body that is no list of keys, or too large, is 400
    for body in (b"[1]", b"{", b'{"picked": 1}', b'{"picked": [1]}', b'{"picked": [], "x": 1}', b"\xff", b"[" * 100_000):
        reply = large.post(ROWS, query_string={"section": "kernels"}, data=body)
        assert reply.status_code == 400 and reply.get_json()["error"]["field"] == "picked", body[:20]
    reply = large.post(ROWS, query_string={"section": "kernels"}, data=b" " * (tables.MOST_BODY + 1))
    assert reply.status_code == 400
    # AND another site's page may not post
    assert (
        large.post(ROWS, query_string={"section": "kernels"}, json={"picked": []}, headers={"Origin": "http://evil.invalid"}).status_code
        == 403
    )


def test_rows_of_an_older_report_say_that_it_has_changed(large: FlaskClient) -> None:
    reply = large.get(ROWS, query_string={"section": "kernels", "wait": "20", "version": "0123456789abcdef"})
    assert reply.status_code == 409 and reply.get_json()["error"]["code"] == "changed"
    # AND a table of an analysis that lacks its input, or of none, is not there
    assert large.get("/api/v1/table/memory?section=curve&wait=20").status_code == 404
    assert large.get("/api/v1/table/nope?section=x").status_code == 404
    for how in ("tables=some", "tables=pages&format=csv"):
        reply = large.get(f"/api/v1/analysis/kernels?wait=20&{how}")
        assert reply.status_code == 400 and reply.get_json()["error"]["field"] == "tables"


def made(rows: int, width: int, name: str = "t", **more: Any) -> TableSection:
    columns = [Column("id", "Id"), Column("text", "Text", show="code")]
    return TableSection(id=name, title="T", columns=columns, data={"id": list(range(rows)), "text": ["x" * width] * rows}, key="id", **more)


def test_a_report_stays_below_a_megabyte_however_its_tables_are() -> None:
    # GIVEN many rows, wide rows, several tables, none above the count of rows WHEN put in pages THEN the answer is below a megabyte
    for sections in ([made(100_000, 100)], [made(1_500, 2_000)], [made(1_900, 300, f"t{i}") for i in range(4)], [made(120, 20_000)]):
        body, paged = tables.in_pages(Report(analysis="a", title="A", sections=[*sections]), "v")
        assert len(body) <= tables.MOST_BYTES and paged
        for rows in paged.values():
            for limit in (1, 1000):
                page = tables.page_within(rows, tables.Choice(), limit=limit)
                assert 0 < page.length <= limit and len(msgspec.json.encode(page)) <= tables.MOST_BYTES
    # AND what is small stays whole, the largest tables go first
    small, big = made(1_000, 100, "small"), made(1_000, 1_000, "big")
    assert tables.in_pages(Report(analysis="a", title="A", sections=[small]), "v")[1] == {}
    assert set(tables.in_pages(Report(analysis="a", title="A", sections=[small, big]), "v")[1]) == {"big"}


def test_a_figure_of_a_table_hears_which_of_its_points_pass() -> None:
    # GIVEN points that carry keys in the three ways there are WHEN rows are filtered THEN the keys of those that pass are told
    figure = FigureSection(
        id="f", title="F", table="t", figure={"data": [{"customdata": ["a1", ["b2", 1], {"key": "c3"}, None, ""]}, {"x": []}]}
    )
    table = TableSection(id="t", title="T", key="id", columns=[Column("id", "Id", show="code")], data={"id": ["a1", "b2", "c3", "d4"]})
    rows = tables.rows_of(Report(analysis="a", title="A", sections=[figure, table]), table, "v")
    assert rows.points == {"f": ["a1", "b2", "c3"]}
    assert rows.page(tables.Choice(keep=(("id", ("b2", "c3", "d4")),))).passing == {"f": ["b2", "c3"]}


def test_no_query_field_is_called_as_a_parameter_of_tables() -> None:
    taken = {*tables.NAMES, "tables", "run", "worker", "span", "wait"}
    assert {f.name for item in registry().values() for f in item.fields} & taken == set()


def test_lists_are_read_as_addresses_write_them() -> None:
    expected = {"": [], "\\": [""], "a,b": ["a", "b"], "a\\,b": ["a,b"], "a\\\\,": ["a\\", ""], ",": ["", ""], "a\\": ["a\\"]}
    assert {text: tables.split_list(text) for text in expected} == expected


def test_pages_fit_their_description(large: FlaskClient) -> None:
    document = openapi.document()
    for address, schema in (
        (f"{ROWS}?section=kernels&wait=20&find=gemm", "TablePage"),
        ("/api/v1/analysis/kernels?tables=pages", "Report"),
    ):
        root = {"$ref": f"#/components/schemas/{schema}", "components": document["components"]}
        errors = [
            f"{list(e.path)[:6]}: {e.message[:200]}" for e in Draft202012Validator(root).iter_errors(json.loads(large.get(address).data))
        ]
        assert errors == []
    operation = document["paths"]["/api/v1/table/{name}"]
    assert {p["name"] for p in operation["get"]["parameters"]} >= {*tables.NAMES, "name", "run"} and "requestBody" in operation["post"]
