"""The command-line options, and what is read from parsed arguments."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import pytest

from tb_sol_plugin.capture.loop.schedule import ScriptOptions, add_sol_arguments, read_arguments


def test_arguments_have_documented_defaults() -> None:
    parsed = add_sol_arguments(ArgumentParser()).parse_args([])
    assert (parsed.rl_sol_report_interval, parsed.rl_sol_device, parsed.sol_logdir, parsed.timing_log_level) == (100, "auto", None, 2)


def test_given_arguments_are_read() -> None:
    line = ["--rl-sol-report-interval", "7", "--rl-sol-device", "H100_SXM", "--sol-logdir", "runs/a", "--timing-log-level", "0"]
    parsed = add_sol_arguments(ArgumentParser()).parse_args(line)
    assert read_arguments(parsed) == ScriptOptions(7, "H100_SXM", "runs/a", 0, None)


def test_an_option_that_the_parser_has_stays_as_it_is() -> None:
    # GIVEN a parser with a level of its own (Megatron's default is 0) WHEN ours are added, twice THEN its own stays
    parser = ArgumentParser()
    parser.add_argument("--timing-log-level", type=int, default=0, choices=range(3))
    add_sol_arguments(add_sol_arguments(parser))
    assert parser.parse_args([]).timing_log_level == 0


def test_the_tensorboard_directory_is_the_logdir_where_none_is_given() -> None:
    assert read_arguments(Namespace(tensorboard_dir="tb", rank=3)) == ScriptOptions(logdir="tb", rank=3)
    assert read_arguments({"tensorboard_dir": "tb", "sol_logdir": "own"}).logdir == "own"


@pytest.mark.parametrize("args", [None, Namespace(), {}, object(), 7])
def test_arguments_that_say_nothing(args: object) -> None:
    assert read_arguments(args) == ScriptOptions()


def test_arguments_of_a_wrong_type_are_left_out() -> None:
    odd = Namespace(rl_sol_report_interval="often", rl_sol_device="", sol_logdir=None, timing_log_level=True, rank=float("inf"))
    assert read_arguments(odd) == ScriptOptions()


@pytest.mark.parametrize("text", ["-5", "0", "often", "1.5"])
def test_an_interval_that_is_none_is_refused_by_the_parser(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN an interval below 1, or no number WHEN the script's arguments are parsed THEN argparse says so, as for any wrong option
    with pytest.raises(SystemExit) as ended:
        add_sol_arguments(ArgumentParser()).parse_args(["--rl-sol-report-interval", text])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and "--rl-sol-report-interval" in said and text in said
