"""Holds the command line `tb-sol`: `main` runs one command and returns its exit status."""

from tb_sol_plugin.cli.command import main

__all__ = ["main"]
