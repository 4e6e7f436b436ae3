"""Keeps the old name of `tb_sol_plugin.capture.integrations`: imports of `capture.callbacks.lightning` and the like work on."""

from __future__ import annotations

from tb_sol_plugin.capture import integrations

__path__ = integrations.__path__
