"""Every number of the pages on copies against a second, slow reader of the same files, over every recording that is there."""

from __future__ import annotations

from tb_sol_plugin.model.capture import Capture
from tests.support import copies_reference as R
from tests.support.captures import capture
from tests.support.copies_check import KEYS, bins_agree, patterns_agree, rates_agree, rows_agree, says_why_not, sums_agree
from tests.support.recordings import SAMPLES, TRACES, over, path_of

each = over(TRACES, [s for s in SAMPLES if s.startswith("samples/simulated_") and s.count("/") == 2])


def both(name: str) -> tuple[Capture, R.Trace]:
    return capture(path_of(name)), R.read(path_of(name))


@each
def test_sums_of_every_group(name: str) -> None:
    # GIVEN a recording, read twice WHEN it has no copy THEN the pages say so
    c, raw = both(name)
    if not raw.copies:
        return says_why_not(c, "memcpy", "memcpy_copies", "memcpy_hist")
    # THEN however the copies are grouped, the groups are the same and every sum of each, to the nanosecond and the byte
    for by in KEYS:
        sums_agree(c, raw, by)
    rates_agree(c, raw)
    bins_agree(c, raw)
    return None


@each
def test_every_single_copy(name: str) -> None:
    # GIVEN a recording, read twice THEN every copy has the same call, owners, overlap, reason to block the host, and pattern
    c, raw = both(name)
    if raw.copies:
        rows_agree(c, raw)
        patterns_agree(c, raw)
