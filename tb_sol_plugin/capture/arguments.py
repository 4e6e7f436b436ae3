"""Command-line options of SOL tracking, and what is read from a script's parsed arguments."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from dataclasses import dataclass
from typing import Final

REPORT_INTERVAL: Final = 100
ALL_LEVELS: Final = 2
"""Level of detail of phases where a script has no option for it: every range that is made with level 1 or 2."""


@dataclass(frozen=True)
class Options:
    """What a script's arguments say; None where they say nothing."""

    report_interval: int | None = None
    device: str | None = None
    logdir: str | None = None
    timing_log_level: int | None = None
    rank: int | None = None


def add_sol_arguments(parser: ArgumentParser) -> ArgumentParser:
    """Add the options to a parser, and answer it. An option that the parser already has stays as it is."""
    group = parser.add_argument_group("speed of light")
    has = parser._option_string_actions  # argparse has no public way to ask
    if "--rl-sol-report-interval" not in has:
        group.add_argument(
            "--rl-sol-report-interval",
            type=_interval,
            default=REPORT_INTERVAL,
            metavar="N",
            help="iterations between detailed reports, and between iterations whose work is counted (default %(default)s)",
        )
    if "--rl-sol-device" not in has:
        group.add_argument(
            "--rl-sol-device",
            default="auto",
            metavar="DEVICE",
            help="whose limits to judge by: a key of the table of devices, the path of a device file, or auto (default)",
        )
    if "--sol-logdir" not in has:
        group.add_argument("--sol-logdir", metavar="PATH", help="where capture files go (default: the TensorBoard directory of the run)")
    if "--timing-log-level" not in has:
        group.add_argument(
            "--timing-log-level",
            type=int,
            default=ALL_LEVELS,
            metavar="LEVEL",
            help="detail of the phases: a range counts when its level is at most this; 0 switches all tracking off (default %(default)s)",
        )
    return parser


def read_arguments(args: object) -> Options:
    """The options in parsed arguments (a namespace, a dict or any object), under their argparse names. What is no use is left out."""

    def value(name: str) -> object:
        if isinstance(args, dict):
            return args.get(name)
        return getattr(args, name, None)

    return Options(
        report_interval=_whole(value("rl_sol_report_interval")),
        device=_text(value("rl_sol_device")),
        logdir=_text(value("sol_logdir")) or _text(value("tensorboard_dir")),
        timing_log_level=_whole(value("timing_log_level")),
        rank=_whole(value("rank")),
    )


def _interval(text: str) -> int:
    """A number of iterations, for argparse."""
    try:
        number = int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no whole number") from None
    if number < 1:
        raise ArgumentTypeError(f"{number} iterations are no interval: give 1 or more")
    return number


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None


def _text(value: object) -> str | None:
    return str(value) if value is not None and not isinstance(value, bool) and str(value) else None
