"""The report for people: what stands in it at several widths, and where the plain one takes its place."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys

import pytest

from tb_sol_plugin.capture.report.analysis import analyze, carry
from tb_sol_plugin.capture.report.console import bar, console_report, print_rich
from tests.conftest import ROOT
from tests.support.sol_step import device, op, records, step

SHOW = """
from tb_sol_plugin.capture.report.analysis import analyze
from tb_sol_plugin.capture.report.console import print_rich
from tests.support.sol_step import device, records, step
print_rich(analyze(records(), step(), device()))
"""


def drawn(width: int, **given: object) -> list[str]:
    out = io.StringIO()
    print_rich(analyze(records(), step(), device()), file=out, width=width)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def words(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


@pytest.mark.parametrize("width", [70, 80, 100, 120, 160, 300])
def test_every_width_holds_the_figures_and_no_line_is_wider(width: int) -> None:
    lines = drawn(width)

    assert max(map(len, lines)) <= width
    linear = next(words(line) for line in lines if line.startswith("Linear"))
    shown = [cell for cell in linear if not set(cell) <= set("█▏▎▍▌▋▊▉")]
    assert shown[:6] == ["Linear", "7", "70.0 µs", "77.8 %", "110 µs", "63.6 %"]
    assert shown[6:] == ([] if width < 120 else ["7.00 GFLOP", "35.0 MB", "compute"])
    assert not any("…" in line for line in lines)
    text = " ".join(" ".join(lines).split())
    for fact in ("Limits of ROUND", "Least time 90.0 µs", "Measured 141 µs", "Efficiency 66.2 %", "MFU 30.0 %", "HFU 35.0 %", "Step 200 µs"):
        assert fact in text
    assert "(unattributed), (no phase): above the limit" in text


def test_operations_with_layers_and_sizes_where_there_is_room() -> None:
    def first(width: int) -> list[str]:
        return next(words(line) for line in drawn(width) if line.startswith("aten::mm ←"))

    assert first(80) == ["aten::mm ←", "bf16", "4", "40.0 µs", "80.0 %", "compute"]
    assert first(120) == ["aten::mm ←", "net.a", "bf16", "4", "40.0 µs", "50.0 µs", "80.0 %", "compute"]
    assert first(160) == ["aten::mm ←", "net.a", "[8, 4] [4, 8]", "bf16", "4", "40.0 µs", "50.0 µs", "80.0 %", "compute"]


def test_ratios_above_the_limit_are_marked() -> None:
    lines = drawn(80)
    assert sum(line.endswith("120.0 % !") for line in lines) == 2


def test_without_limits() -> None:
    out = io.StringIO()
    print_rich(analyze(records(), step(), None, reason="a CPU has no fixed peak"), file=out, width=80)
    text = out.getvalue()
    assert words(next(line for line in text.splitlines() if line.startswith("Linear"))) == ["Linear", "7", "—", "—", "110 µs", "—"]
    assert text.count("a CPU has no fixed peak") == 1
    assert "Least time  —" not in text and "MFU" not in text


def test_a_step_that_was_not_counted() -> None:
    out = io.StringIO()
    print_rich(carry(analyze(records(), step(), device()), step(9)), file=out, width=100)
    assert "Counted and timed in iteration 7, 2 iterations ago." in out.getvalue() and "Linear" in out.getvalue()


def test_markup_in_names_is_text() -> None:
    rows = [op(flops=10**9, bytes=1, phase="[bold]loss[/bold]", layer_type="[red]", layer_name="[/]", func_name="[link=x]")]
    out = io.StringIO()
    print_rich(analyze(rows, step(), device()), file=out, width=160)
    for name in ("[bold]loss[/bold]", "[red]", "[/]", "[link=x]"):
        assert name in out.getvalue()


@pytest.mark.parametrize(("share", "text"), [(1.0, "████"), (0.5, "██"), (0.03125, "▏"), (1e-9, "▏"), (0.0, ""), (None, ""), (7.0, "████")])
def test_a_share_is_drawn_as_a_bar(share: float | None, text: str) -> None:
    assert bar(share, 4) == text


@pytest.mark.parametrize(
    ("us", "text"), [(None, "—"), (0.0, "0.00 µs"), (4.834, "4.83 µs"), (999.4, "999 µs"), (999.6, "1.00 ms"), (12_345_678.0, "12,346 ms")]
)
def test_times_have_the_unit_that_suits_them(us: float | None, text: str) -> None:
    from tb_sol_plugin.capture.report.console import _time

    assert _time(us) == text


# -- where the plain report takes its place ----------------------------------------------------------------------------


def test_what_is_no_terminal_gets_the_plain_report() -> None:
    analysis = analyze(records(), step(), device())
    out = io.StringIO()
    print_rich(analysis, file=out)
    assert out.getvalue() == console_report(analysis) + "\n"


def test_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "rich" or name.startswith("rich.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    analysis = analyze(records(), step(), device())
    out = io.StringIO()
    print_rich(analysis, file=out, width=120)
    assert out.getvalue() == console_report(analysis) + "\n"


def test_a_stream_that_cannot_draw_lines_gets_the_plain_report() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii", errors="replace")
    print_rich(analyze(records(), step(), device()), file=out, width=120)
    out.flush()
    assert raw.getvalue().startswith(b"=" * 90)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a pseudo terminal")
@pytest.mark.parametrize(("width", "environment", "colors"), [(80, {}, True), (120, {"NO_COLOR": "1"}, False), (60, {}, False)])
def test_a_real_terminal(width: int, environment: dict[str, str], colors: bool) -> None:
    import fcntl
    import struct
    import termios

    main, side = os.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 60, width, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CI")}
    env |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **environment}
    with subprocess.Popen([sys.executable, "-c", SHOW], stdout=side, stdin=side, env=env) as process:
        os.close(side)
        text = b""
        while True:
            try:
                part = os.read(main, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            text += part
        os.close(main)
    assert process.returncode == 0
    shown = text.decode()
    if width < 70:
        assert shown.startswith("=" * 90)
        return
    assert "Speed of light" in shown and "77.8 %" in shown
    assert ("\x1b[3" in shown) == colors
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(len(line.rstrip("\r\n")) for line in plain.splitlines()) <= width
