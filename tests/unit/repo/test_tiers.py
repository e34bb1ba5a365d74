"""Which tests run, and how pytest is called for them."""

from __future__ import annotations

import re

import pytest

import steps
import tiers
from testbed import broker
from tiers import Choice


def test_every_tier_of_the_tree_is_found_and_the_planned_ones_come_first() -> None:
    found = tiers.names()

    assert {"unit", "broker", "drivers", "roles"} <= set(found)
    assert found[0] == "unit"


def test_the_fast_run_selects_in_every_tier_but_the_unit_tests() -> None:
    assert "fast and not full" not in tiers.command("unit", Choice(fast=True))
    assert "fast and not full" in tiers.command("broker", Choice(fast=True))
    assert tiers.command("broker", Choice(fast=True, extra=("-k", "x")))[-2:] == ["-k", "x"]


def test_make_test_leaves_slow_engines_out_and_make_test_all_leaves_out_nothing() -> None:
    small, whole = (tiers.command("broker", Choice(all=all_)) for all_ in (False, True))

    assert small[-4:] == ["-m", "not full", "--broker", broker.DEMO_VERSION]
    assert not {"-m", "--broker"} & {*whole[3:]}


@pytest.mark.parametrize("arguments", [["brokers"], ["--slow"], ["broker", "--faster"]])
def test_an_unknown_tier_or_option_is_reported_with_the_known_ones(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="there are unit, simulation, "):
        tiers.chosen(arguments)


def test_the_calls_that_the_page_on_tests_shows_are_taken() -> None:
    page = (steps.ROOT / "docs/howto/testing.md").read_text()
    calls = re.findall(r"^\S+ tools/run_tests.py (.*)$", page, re.MULTILINE)

    assert len(calls) == 3
    assert all(tiers.chosen(call.split())[0] for call in calls)


def test_tiers_run_in_their_order_however_they_are_named() -> None:
    assert tiers.chosen(["broker", "unit", "--all", "--", "-k", "x"]) == (
        ["unit", "broker"],
        Choice(all=True, extra=("-k", "x")),
    )


@pytest.mark.parametrize("number", [1, 2, 8])
def test_a_tier_has_no_more_processes_than_there_are_cores_and_one_more_where_tests_wait(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(number)))

    for tier, plan in tiers.PLANS.items():
        words = tiers.command(tier, Choice())
        processes = int(words[words.index("--numprocesses") + 1]) if "--numprocesses" in words else 1
        assert processes == min(plan.processes, max(2, number)) + plan.waits


def test_the_unit_tests_run_once_more_on_the_newest_python_where_this_one_is_older(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.version_info", (3, 11, 2, "final", 0))
    assert tiers.NEWEST_PYTHON in tiers.chosen([])[0]
    assert tiers.NEWEST_PYTHON not in tiers.chosen(["--fast"])[0]

    monkeypatch.setattr("sys.version_info", (*tiers.NEWEST, 5, "final", 0))
    assert tiers.NEWEST_PYTHON not in tiers.chosen([])[0]


@pytest.mark.parametrize("choice", [Choice(), Choice(all=True)], ids=["some", "all"])
def test_the_unit_tests_on_the_newest_python_are_those_of_the_unit_tier_but_of_the_tree(choice: Choice) -> None:
    usual, newest = (tiers.command(tier, choice) for tier in ("unit", tiers.NEWEST_PYTHON))
    programs = [] if choice.all else ["command/test_lost_output.py", "runtime/test_silent_peers.py"]
    left_out = [f"--ignore=tests/unit/{name}" for name in ("benchmarks", "release", "repo", "testbed", *programs)]
    own = [word for word in newest if word not in left_out]

    assert own[-len(usual) :] == usual
    assert {*left_out} <= {*newest}
    assert own[: -len(usual)][-2:] == ["-m", "testbed.newest_python"]
    assert all((steps.ROOT / "tests/unit" / name).exists() for name in choice.left_out(tiers.NEWEST_PYTHON))


def test_all_tests_run_seeds_by_chance_or_those_that_are_given_and_the_others_the_same_ones() -> None:
    assert tiers.first_seed(Choice(), "") == 1
    assert tiers.first_seed(Choice(all=True), "647292441") == 647292441
    assert len({tiers.first_seed(Choice(all=True), "") for _ in range(5)}) > 1
    with pytest.raises(SystemExit, match="FIRST="):
        tiers.first_seed(Choice(all=True), "many")
