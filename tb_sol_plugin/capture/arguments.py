"""Command-line options of SOL tracking."""

from __future__ import annotations

from argparse import ArgumentParser


def add_sol_arguments(parser: ArgumentParser) -> ArgumentParser:
    """Add the options to a parser, and answer it."""
    raise NotImplementedError
