"""TensorBoard's way in: flags, and the plugin or a page that says why there is none.

TensorBoard imports this module at every start, so it imports nothing but TensorBoard's base class.
"""

from __future__ import annotations

import argparse
import math

from tensorboard.plugins import base_plugin


class Loader(base_plugin.TBLoader):  # type: ignore[misc]
    """Defines the `--sol_*` flags and makes the plugin; a missing or broken dependency gives a page that says so."""

    def define_flags(self, parser: argparse.ArgumentParser) -> None:
        """Add our flags; each is read with a default, because embedding programs may not define them."""
        group = parser.add_argument_group("tb_sol_plugin (SOL tab)")
        group.add_argument(
            "--sol_device",
            default="",
            metavar="KEY|PATH",
            help="Device limits to measure against: a key as H100_SXM or H100_SXM@1410MHz+sparse, or a device file (default: as recorded).",
        )
        group.add_argument("--sol_cache_dir", default=None, metavar="DIR", help='Where parsed recordings are kept; "" keeps none.')
        group.add_argument(
            "--sol_cache_gb", type=float, default=20.0, metavar="GB", help="Size at which old parsed recordings are removed."
        )
        group.add_argument(
            "--sol_workers", type=int, default=0, metavar="N", help="Processes that read recordings (default: 2, or 1 on one core)."
        )
        group.add_argument(
            "--sol_memory_gb", type=float, default=0.0, metavar="GB", help="Memory one of them may use (default: 40 %% of the machine's)."
        )
        group.add_argument("--sol_load_seconds", type=float, default=3600.0, metavar="S", help="Time one recording may take to read.")
        group.add_argument("--sol_scan_seconds", type=float, default=20.0, metavar="S", help="Time one scan of the logdir may take.")
        group.add_argument(
            "--sol_serve_original", choices=("auto", "on", "off"), default="auto",
            help="Give out the recordings' own bytes; auto: unless --bind_all or a public --host.",
        )  # fmt: skip

    def fix_flags(self, flags: argparse.Namespace) -> None:
        """Refuse values that cannot be meant."""
        for name in ("sol_cache_gb", "sol_memory_gb", "sol_load_seconds", "sol_scan_seconds", "sol_workers"):
            value = getattr(flags, name, 0)
            if value is not None and (value < 0 or not math.isfinite(value)):
                raise base_plugin.FlagsError(f"--{name} must not be negative, but is {value}")

    def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin:
        """The plugin; on failure a stand-in whose page shows the reason."""
        try:
            from tb_sol_plugin.plugin import SolPlugin

            return SolPlugin(context)
        except Exception as error:  # a broken dependency must not cost TensorBoard its start, nor the user the reason
            from tb_sol_plugin.stub import ErrorPlugin

            return ErrorPlugin(context, error)
