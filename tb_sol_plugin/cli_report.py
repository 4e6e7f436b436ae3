"""`tb-sol report`: the whole story of one recording on one page of the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from tb_sol_plugin.analyses import registry, run_analysis
from tb_sol_plugin.cli_text import plain, print_section, prose, unavailable
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import FactsSection, FindingsSection, Report, TableSection, UnavailableReport
from tb_sol_plugin.units import human

IN_FULL = ("overview",)
"""Analyses told with all their sections; of the others the first table stands for the page."""
LEFT_OUT = ("links",)


def tell(out: Console, capture: Capture, *, rows: int = 8, device: str = "") -> None:
    """Print what every analysis says of a capture, the answer first; what has no answer comes last, with the reason."""
    facts = capture.facts
    names = [n for n in (capture.run, capture.worker, capture.span) if n]
    title = Text(plain(" · ".join(names) or facts.file), "bold")
    devices = ", ".join(dict.fromkeys(d.name for d in facts.devices if d.name)) or facts.vendor or "no device"
    world = f"rank {facts.rank} of {facts.world_size}" if facts.rank is not None and facts.world_size else ""
    versions = ", ".join(f"{k} {v}" for k, v in facts.versions.items())
    about = [devices, world, f"{facts.total_events:,} events", human(facts.extent_ns[1] - facts.extent_ns[0], "ns"), versions]
    out.print(title)
    out.print(Text(plain(" · ".join(a for a in about if a)), "dim"))
    lacking: list[UnavailableReport] = []
    for name, item in registry().items():
        if name in LEFT_OUT:
            continue
        raw = {"device_limits": device} if device and "device_limits" in item.query.__struct_fields__ else {}
        try:
            report = run_analysis(name, capture, raw)
        except BadQuery:
            raise
        except Exception as error:  # one broken analysis must not cost the rest of the story
            out.print(prose(f"{item.title} failed: {type(error).__name__}", "red"))
            continue
        if isinstance(report, UnavailableReport):
            lacking.append(report)
        else:
            out.print()
            _tell_one(out, report, rows)
    if lacking:
        out.print()
        out.print(Rule(Text("Not in this recording", "dim"), align="left", style="dim"))
        for missing in lacking:
            out.print(unavailable(missing))


def _tell_one(out: Console, report: Report, rows: int) -> None:
    out.print(Rule(Text(plain(report.title), "bold"), align="left", style="dim"))
    if report.analysis in IN_FULL:
        told = Report(analysis=report.analysis, title="", headline=report.headline, notices=report.notices, sections=_tellable(report))
        for notice in told.notices:
            out.print(prose(f"! {notice.text}", "yellow"))
        if told.headline:
            out.print(prose(told.headline, "bold"))
        for section in told.sections:
            out.print()
            print_section(out, section, rows)
        return
    if report.headline:
        out.print(prose(report.headline))
    tables = [s for s in report.sections if isinstance(s, TableSection)]
    first = tables[0] if tables else next((s for s in report.sections if isinstance(s, FactsSection)), None)
    if first is not None:
        print_section(out, first, rows)


def _tellable(report: Report) -> list:  # type: ignore[type-arg]
    return [s for s in report.sections if isinstance(s, FactsSection | FindingsSection | TableSection)]
