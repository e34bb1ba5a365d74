"""Keys to look at: which, why, and the commands and addresses that show more of them."""

from __future__ import annotations

import dataclasses
import shlex
from urllib.parse import unquote

import pytest
from typer.testing import CliRunner

from osrdyne_pipeline.commands import PIPELINE
from osrdyne_pipeline.report import content
from osrdyne_pipeline.report.causes import keys_to_look_at
from osrdyne_pipeline.report.page import page
from tests.pipeline.report import samples

EMPTY = content.ReportContent("core", 0, None, content.Totals())
LOG = content.EndCause("worker-ended", "exit", None, False, 4, 0, "no such file", "/var/log/osrdyne/w.log")


def row(found: content.ReportContent) -> list[str]:
    """The cells of the only row."""
    (only,) = keys_to_look_at(found).iter("tbody")
    ((*cells,),) = only
    return ["".join(cell.itertext()) for cell in cells]


def test_without_failures_and_waiting_there_is_no_key_to_look_at() -> None:
    assert "No key has failures" in "".join(keys_to_look_at(EMPTY).itertext())


@pytest.mark.parametrize("key", ["LAX", "a b", "x';rm -rf /", "<b>&amp;", "é/ü?q=1#2"])
def test_a_key_has_the_commands_for_its_state_and_its_poison_and_its_log(key: str) -> None:
    causes = [content.KeyCauses(key, 0, 4, 4, None, True, [LOG])]
    told = row(dataclasses.replace(EMPTY, key_causes=causes, slowest=[(key, 2, 1000)]))
    assert told[:2] == [key, "every start fails; callers waited 1 s in 2 cold starts"]
    assert shlex.split(told[2]) == ["osrdyne", "status", "--key", key]
    assert shlex.split(told[3]) == ["osrdyne", "poison", "list", "--pool", "core", "--key", key]
    assert told[4] == "/var/log/osrdyne/w.log"
    # And what a person has named, too
    links = (("logs", "https://logs.example/?q={key}&days=7"), ("board", "http://board.example/{key}"))
    found = dataclasses.replace(EMPTY, slowest=[(key, 2, 1000)], links=links)
    assert row(found)[4:] == ["not known", "logs, board"]
    places = [anchor.get("href", "") for anchor in keys_to_look_at(found).iter("a")]
    before, after = places[0].split("&days=7")[0], places[1]
    assert [unquote(place.rpartition(mark)[2]) for place, mark in ((before, "="), (after, "/"))] == [key, key]
    assert "javascript" not in page(found)


def test_each_key_of_the_full_sample_is_there_once_with_all_reasons() -> None:
    (body,) = keys_to_look_at(samples.full()).iter("tbody")
    names = ["".join(next(iter(each)).itertext()) for each in body]
    assert len(names) == len(set(names))
    assert "Keys to look at" in page(samples.full())


def test_the_page_of_a_key_has_the_commands_for_it_alone() -> None:
    causes = [content.KeyCauses("LAX", 0, 4, 4, None, True, [LOG])]
    assert row(dataclasses.replace(EMPTY, key="LAX", key_causes=causes))[:2] == ["LAX", "every start fails"]
    assert row(dataclasses.replace(EMPTY, key="SFO"))[:2] == ["SFO", "the key of this page"]


@pytest.mark.parametrize("link", ["logs", "logs=https://x.example", "=https://x/{key}", "logs=javascript:a({key})"])
def test_what_is_not_a_link_is_refused(link: str) -> None:
    done = CliRunner().invoke(PIPELINE, ["report", "--pool", "core", "--link", link])
    assert done.exit_code == 64
    assert "is not a link such as" in done.output
