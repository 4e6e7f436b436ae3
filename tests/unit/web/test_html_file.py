"""One HTML file of the pages of a recording: its answers are those of the server, and it says nothing of the machine."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

import tb_sol_plugin as sol
from tb_sol_plugin.cli.command import main
from tb_sol_plugin.web import html_file as H
from tb_sol_plugin.web import timeline_file as T
from tests.conftest import ROOT
from tests.support.html_file import inside, packed, tiles_inside, tiles_of
from tests.support.tiny import EVENTS, trace


def test_the_server_gives_out_a_file_with_its_own_answers(shared: FlaskClient) -> None:
    # GIVEN a page with an option, and all others, of one of two workers WHEN saved as a file
    reply = shared.get("/api/v1/export?run=job&worker=rank2&form=html&wait=20&pages=kernels?group_by=name,all")
    assert reply.status_code == 200, reply.data[:300]
    assert reply.headers["Content-Disposition"].endswith('.html"')
    assert "text/html" in reply.headers["Content-Type"] and "Content-Security-Policy" in reply.headers
    answers, start = inside(reply.data)
    # THEN the page opens on that one, whose report is the server's
    assert start == {"page": "kernels"}
    live = shared.get("/api/v1/analysis/kernels?run=job&worker=rank2&group_by=name&wait=20").json
    saved = next(v for k, v in answers.items() if k.startswith("api/v1/analysis/kernels\n") and "group_by=name" in k)
    assert saved["sections"] == live["sections"] and saved["headline"] == live["headline"]
    # AND pages over all ranks are there, those that need a server are gray, and one worker is listed
    assert "api/v1/analysis/ranks" in {k.partition("\n")[0] for k in answers}
    infos = {a["name"]: a for a in answers["api/v1/analyses"]["analyses"]}
    assert infos["overview"]["available"] and infos["timeline"]["available"]
    assert not infos["links"]["available"] and infos["links"]["because"] == H.NOT_HERE
    (run,) = answers["api/v1/runs"]["runs"]
    assert run["name"] == "job" and len(run["workers"]) == 1
    # AND the timeline has its rows, its names and its tiles, which are those of the server
    shape, names = answers["api/v1/timeline"], answers["api/v1/timeline/names\nfp=file"]
    there = shared.get("/api/v1/timeline?run=job&worker=rank2&wait=20").json
    assert names["names"] and [t["path"].partition("/")[2] for t in shape["tracks"]] == [t["path"].partition("/")[2] for t in there["tracks"]]
    tiles = tiles_inside(reply.data)
    assert tiles and {t["track"] for t in shape["tracks"]} == {block["track"] for _, block, _ in tiles}
    for z, block, body in tiles[:: len(tiles) // 20 + 1]:
        ask = f"/api/v1/timeline/tiles?run=job&worker=rank2&z={z}&i={block['i']}&tracks={block['track']}"
        assert shared.get(ask).data.endswith(body) and body
    # AND the critical path in the window of the tiles is that of the server, without names, which the page draws nowhere
    own = answers["api/v1/timeline/flows\nkind=path"]
    span = f"start_ns=0&end_ns={shape['span_ns']}"
    path = shared.get(f"/api/v1/timeline/flows?run=job&worker=rank2&kind=path&{span}").json
    places = lambda flows: [[f[e][n] for e in ("source", "target") for n in ("event", "track", "start_ns", "end_ns")] for f in flows]
    assert own["flows"] and places(own["flows"]) == places(path["flows"]) and {f["source"]["name"] for f in own["flows"]} == {""}
    # AND what does not fit is refused, an address that is none of a page too
    assert shared.get("/api/v1/export?run=job&form=html&live=javascript:alert(1)").status_code == 400
    assert shared.get("/api/v1/export?run=job&form=html&pages=nothing").status_code == 404
    assert shared.get("/api/v1/export?run=job&form=html&pages=kernels?nothing=1").status_code == 400


def test_only_the_scripts_of_the_page_may_run_and_nothing_may_connect(tmp_path: Path) -> None:
    # GIVEN a file WHEN its policy is read THEN it names the scripts that are packed in it and the one that unpacks them, and no connection
    file = H.html_file(sol.open_capture(str(trace(tmp_path / "a.json"))), ["kernels"])
    policy = re.findall(rb'Content-Security-Policy" content="([^"]*)"', file)[0].decode()
    scripts = [packed(file, name) for name in ("plotly", "page")]
    (loader,) = re.findall(rb'<script type="module">(.*?)</script>', file, re.DOTALL)
    hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(code).digest()).decode()}'" for code in (*scripts, loader)}
    assert "default-src 'none'" in policy and hashes == set(re.findall(r"'sha256-[^']*'", policy)) and "connect-src" not in policy
    assert len(file) < 1_500_000


def test_a_notebook_shows_a_report_in_every_form(tmp_path: Path) -> None:
    # GIVEN a report as the last expression of a cell WHEN the notebook asks for its forms
    capture = sol.open_capture(str(trace(tmp_path / "a.json")))
    forms = capture.show("kernels", group_by="name")._repr_mimebundle_()
    # THEN there is a frame with the same page that needs no kernel afterwards, with the options that were chosen, Markdown and a sentence
    frame = re.fullmatch(r'<iframe srcdoc="([^"]*)" title="Kernels" style="[^"]*"></iframe>', forms["text/html"])
    assert frame is not None
    file = html.unescape(frame.group(1)).encode()
    answers, start = inside(file)
    assert start == {"page": "kernels", "q.group_by": "name"} and b'data-alone="true"' in file
    assert answers["api/v1/analysis/kernels"]["headline"] == capture.analyze("kernels", group_by="name").headline
    assert forms["text/markdown"].startswith("### Kernels\n\n**") and "| gemm |" in forms["text/markdown"]
    assert forms["text/plain"].startswith("Kernels: ") and "**" not in forms["text/plain"]
    # AND one that is not available says what is missing
    lacking = capture.show("serving")._repr_mimebundle_()
    assert all("no iteration of a serving engine" in lacking[kind] for kind in ("text/markdown", "text/plain"))
    # AND the overview is shown where nothing else is named, of a run too
    assert capture.show().analysis == sol.open(str(tmp_path)).show().analysis == "overview"


def test_the_python_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN the lines of Python in docs/sharing.md WHEN run beside the samples THEN the file is written and the reports show themselves
    page = (ROOT / "docs" / "sharing.md").read_text(encoding="utf-8")
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    for block in blocks:
        exec(block, found)
    assert len(blocks) == 2 and tiles_inside((tmp_path / "report.html").read_bytes()) == []
    assert found["capture"].show("modules", merge="on").selection["merge"] == "on"


SECRETS = ("ml-node-17", "ml-node-17.corp.example", "alicia", "/srv/projects", "hf_aBcDeFgHiJkLmNoPqRsT1")
HOSTILE = "</script><!--\u2028<b>"


def secret_recording(folder: Path) -> Path:
    """A recording whose file, header and names hold a host, a user, folders and a token; one kernel has a hostile name."""
    frame = {"ph": "X", "cat": "python_function", "pid": 1, "tid": 1, "ts": 5, "dur": 40, "args": {"Python id": 1}}
    names = ["/home/alicia/work/train.py(12): train_step", "/srv/projects/lib/python3.11/site-packages/torch/nn/linear.py(7): forward"]
    more: list[dict[str, object]] = [{**frame, "name": name, "ts": 5 + i, "args": {"Python id": i + 1}} for i, name in enumerate(names)]
    kernel = {**EVENTS[2], "name": HOSTILE, "ts": 60, "args": {"correlation": 8, "device": 0, "stream": 7}}
    token = {**EVENTS[0], "name": f"load {SECRETS[4]} from /srv/projects/data/imagenet", "ts": 70, "dur": 5}
    header = {"host_name": SECRETS[1], "distributedInfo": {"rank": 3, "world_size": 4}, "trace_id": "alicia"}
    return trace(folder / "exp" / "ml-node-17_4242.1700000000000000000.pt.trace.json.gz", [*EVENTS, *more, kernel, token], **header)


def test_a_file_says_nothing_of_machine_and_user_unless_asked_to(tmp_path: Path) -> None:
    # GIVEN a recording full of names of host, user and folders WHEN saved from its path THEN none of them is in the file
    path = secret_recording(tmp_path / "logs")
    sol.save_html(str(path), str(tmp_path / "page.html"))
    file = (tmp_path / "page.html").read_bytes()
    text = json.dumps(inside(file)[0], ensure_ascii=False)
    for secret in (*SECRETS, str(tmp_path)):
        assert secret not in text and secret.encode() not in file, secret
    assert "…/torch/nn/linear.py" in text and "…/train.py" in text  # what a reader needs of a path
    # AND a hostile name ends no script: the data is packed, and nothing else of the recording stands in the document
    assert HOSTILE in text and file.count(b"<script") == file.count(b"</script>") == 5 and b"<title>recording" in file
    # AND with them asked for, they are there, but no token
    sol.save_html(sol.open_capture(str(path)), str(tmp_path / "whole.html"), pages="health,modules", with_paths=True)
    whole = json.dumps(inside((tmp_path / "whole.html").read_bytes())[0], ensure_ascii=False)
    assert "ml-node-17" in whole and SECRETS[4] not in whole


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("in /home/alice/data now", "in …/data now"),
        ("at /srv/x/train.py(12): f", "at …/train.py(12): f"),
        ("/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", "…/torch/nn/modules/linear.py"),
        ("home/alice/code/x.py", "…/code/x.py"),
        (r"C:\\Users\\alice\\train.py(3)", "…/train.py(3)"),
        ("~/code/x.py", "…/x.py"),
        ("12 TFLOP/s and GB/s, aten::mm, model/layers/0, a / b, 3/4", None),
        ("https://pytorch.org/docs/stable", None),
        ("node-7_4242 on node-7", "recording_4242 on recording"),
        ("renode-71", None),
        ('{"saturn":"of saturn","x":["saturn.py","Saturnus"]}', '{"saturn":"of recording","x":["recording.py","Saturnus"]}'),
    ],
)  # fmt: skip
def test_texts_without_places(given: str, expected: str | None) -> None:
    assert H.without_places(given, ["node-7", "saturn"]) == (given if expected is None else expected)


@pytest.mark.parametrize(
    ("host", "file", "hidden"),
    [
        ("saturn", "saturn_4242.1700000000000000000.pt.trace.json", {"saturn"}),
        ("", "saturn_4242.1700000000000000000.pt.trace.json", {"saturn"}),
        ("kernel", "bert.1700000000000000000.pt.trace.json", set()),  # a word of the page, and a file that is called as a model
        ("owl.corp.example", "rank0_4000.1700000000000000000.pt.trace.json", {"owl"}),
    ],
)
def test_a_host_of_letters_alone_is_hidden_unless_the_page_has_that_word(tmp_path: Path, host: str, file: str, hidden: set[str]) -> None:
    capture = sol.open_capture(str(trace(tmp_path / file, host_name=host)))
    assert {name for name in H.names_of(capture) if name.isalpha()} == hidden


def test_the_tiles_of_a_window_have_at_most_so_many_bytes(tmp_path: Path) -> None:
    # GIVEN 4,000 events one after the other, in a timeline that opens with a tenth of them
    events: list[dict[str, object]] = [{**EVENTS[0], "name": f"op{i % 50}", "ts": 10 * i, "dur": 7, "args": {"External id": i}} for i in range(4_000)]
    capture = sol.open_capture(str(trace(tmp_path / "a.json", events)))
    window = (10_000_000, 14_000_000)
    whole, part, small = (T.saved_timeline(capture, *given) for given in ((None,), (window,), (None, 4_000)))
    assert whole is not None and part is not None and small is not None
    # WHEN saved THEN a window has as fine tiles as everything, and fewer; what is too much has the coarse ones alone
    finest = {name: min(z for z, _, _ in tiles_of(one.tiles)) for name, one in (("whole", whole), ("part", part), ("small", small))}
    assert finest["part"] <= finest["whole"] < finest["small"] and len(small.tiles) < len(part.tiles) < len(whole.tiles)
    for z, block, _ in tiles_of(part.tiles):
        wide = 1 << (z + 10)
        assert block["i"] == 0 or (block["i"] * wide < window[1] * 1.05 and (block["i"] + 1) * wide > window[0] * 0.95)
    # AND its last tiles are exact; without events there is no timeline
    fine = [b for z, b, _ in tiles_of(part.tiles) if z == finest["part"] and b["kind"] == "slices"]
    assert fine and all(b["complete"] for b in fine) and T.saved_timeline(sol.open_capture(str(trace(tmp_path / "b.json", []))), None) is None


def test_large_tables_and_broken_pages_do_not_cost_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a table of three kernels where a file has room for two rows, and an analysis that breaks
    monkeypatch.setattr(H, "MOST_ROWS", 2)
    kernels: list[dict[str, object]] = [
        {**EVENTS[2], "name": name, "ts": 60 + 40 * i, "args": {"correlation": 9 + i, "device": 0, "stream": 7}} for i, name in enumerate("ab")
    ]
    capture = sol.open_capture(str(trace(tmp_path / "a.json", [*EVENTS, *kernels])))
    real = H.answer_capture
    monkeypatch.setattr(H, "answer_capture", lambda name, c, raw: 1 / 0 if name == "steps" else real(name, c, raw))
    # WHEN both are saved THEN the rows that are left out are counted, with the command for all of them, and the reason stands on its page
    file = H.html_file(capture, ["kernels", "steps"], live="https://host/sol#sol&p.sol.run=a")
    answers, _ = inside(file)
    assert json.loads(packed(file, "data"))["live"] == "https://host/sol#sol&p.sol.run=a" and not tiles_inside(file)
    report = next(v for k, v in answers.items() if k.startswith("api/v1/analysis/kernels"))
    table = next(s for s in report["sections"] if s["id"] == "kernels")
    assert len(table["data"]["name"]) == 2 and table["truncated"] == 1
    assert any("first 2 of 3 rows" in n["text"] and "tb-sol analyze kernels PATH --format csv" in n["text"] for n in report["notices"])
    broken = next(v for k, v in answers.items() if k.startswith("api/v1/analysis/steps"))
    assert broken["available"] is False and "ZeroDivisionError" in broken["because"]


def test_the_command_line_writes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = trace(tmp_path / "logs" / "a.json"), tmp_path / "r.html"
    assert main(["report", str(path), "--no-cache", "--html", str(out), "--pages", "overview,roofline"]) == 0
    answers, start = inside(out.read_bytes())
    assert start == {"page": "overview"} and {k.partition("\n")[0].rpartition("/")[2] for k in answers} >= {"overview", "roofline", "runs"}
    capsys.readouterr()
    # AND what cannot be is said in a line
    assert main(["report", str(path), "--no-cache", "--html", str(tmp_path / "none" / "r.html")]) == 2
    assert "--html" in capsys.readouterr().err
    assert main(["report", str(path), "--pages", "overview"]) == 2 and "add --html" in capsys.readouterr().err
    assert main(["report", str(path), "--no-cache", "--html", str(out), "--pages", "nothing"]) == 1
