"""What leads to a view: the same texts as the page writes, see frontend/test/ways.test.ts and codec.test.ts."""

from __future__ import annotations

import shlex

import pytest

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.web.links import command_of, live_address, python_of, view_hash

WHERE = {"run": "a b", "worker": "rank0", "step": "12-15"}


def test_a_view_in_every_form() -> None:
    query = {"group_by": "name", "empty": ""}
    assert command_of("kernels", WHERE, query) == (
        "tb-sol analyze kernels LOGDIR --run 'a b' --worker rank0 --step 12-15 --group-by name --format text"
    )
    assert python_of("kernels", WHERE, query) == (
        'next(c for c in sol.open("LOGDIR", run="a b").captures if c.worker == "rank0").analyze("kernels", step="12-15", group_by="name")'
    )
    assert python_of("overview", {}, {}) == 'sol.open("LOGDIR").analyze("overview")'
    hostile = "it's; rm -rf / #&x=1"
    assert shlex.split(command_of("overview", {"run": hostile}, {}))[5] == hostile
    assert view_hash("kernels", {**WHERE, "run": hostile}, query) == (
        "#sol&p.sol.v=1&p.sol.page=kernels&p.sol.run=it's;%20rm%20-rf%20/%20%23%26x%3D1&p.sol.worker=rank0&p.sol.step=12-15&p.sol.q.group_by=name"
    ).replace(";", "%3B")


def test_only_an_address_of_the_web_is_live() -> None:
    assert live_address(" https://host:6006/tb/#sol&p.sol.run=a ") == "https://host:6006/tb/#sol&p.sol.run=a" and live_address("") == ""
    for wrong in ("javascript:alert(1)", "file:///etc/passwd", "//host/x", "https://user:pass@host/", "https:///x"):
        with pytest.raises(BadQuery):
            live_address(wrong)
