"""Holds the command line `tb-sol`: `main` runs one command and returns its exit status, `run` ends the process with it."""

from tb_sol_plugin.cli.command import main, run

__all__ = ["main", "run"]
