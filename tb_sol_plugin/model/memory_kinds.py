"""Kinds of recordings that hold memory alone, and what to call them. Light: the scan of a logdir needs no more."""

from __future__ import annotations

from typing import Final

SNAPSHOT: Final = "memory_snapshot"
TIMELINE: Final = "memory_timeline"
WORDS: Final = {SNAPSHOT: "allocator snapshot", TIMELINE: "memory timeline"}
