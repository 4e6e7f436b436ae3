"""Bytes of a recording, unpacked ahead of their use."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from tb_sol_plugin.ingest.source import AHEAD, BLOCK, HEAD, Source

TEXT = random.Random(1).randbytes(BLOCK) * (3 * AHEAD)


@pytest.mark.parametrize("blocks", [0, 1, AHEAD - 1, AHEAD, AHEAD + 1, 3 * AHEAD])
@pytest.mark.parametrize("cut", [0, 5000])
def test_blocks_that_are_unpacked_ahead_are_those_of_the_file(tmp_path: Path, blocks: int, cut: int) -> None:
    # GIVEN a packed file of few or many blocks, whole or with its end cut off
    packed = gzip.compress(TEXT[: blocks * BLOCK], 0)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed[: len(packed) - cut] if blocks else packed)
    # WHEN it is read ahead
    with Source(str(path)) as plain, Source(str(path)) as ahead:
        expected, got = list(plain.blocks()), []
        for block in ahead.ahead(BLOCK, 7):
            # THEN nothing is said about its end before the end
            assert not ahead.truncated
            # AND there is room before each block
            block[:7] = b"1234567"
            got.append(bytes(block[7:]))
        # AND the blocks and what is said at the end are the same
        assert b"".join(got) == b"".join(expected) and ahead.truncated == plain.truncated
        assert bool(ahead.truncated) == bool(cut and blocks)


def test_a_file_that_is_left_in_the_middle_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(TEXT)
    with Source(str(path)) as source:
        assert next(source.ahead(BLOCK, 0)) == TEXT[:HEAD]
    assert source._raw.closed
