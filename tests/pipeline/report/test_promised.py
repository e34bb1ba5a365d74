"""What became of the last change, on the page and in its first step."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from osrdyne_pipeline.promises import text
from osrdyne_pipeline.promises.came import DaysSince
from osrdyne_pipeline.promises.changes import ReplayCorrection
from osrdyne_pipeline.promises.verdict import review
from osrdyne_pipeline.report import advice, content
from osrdyne_pipeline.report.evidence import review as reported
from osrdyne_pipeline.report.page import page
from tests.pipeline.promises.test_changes import CHANGE
from tests.pipeline.promises.test_verdict import AS_PROMISED, PROMISE
from tests.pipeline.report import samples


def shown(*after: DaysSince) -> content.ReportContent:
    """The full sample with this review, as it comes back from its file."""
    found = review(PROMISE, after, ReplayCorrection())
    document = {
        "review": {"at": text.moment(CHANGE.at), "promised": True, "notes": text.notes(CHANGE, found)}
        | dataclasses.asdict(found),
        "goes_back": found.back or bool(found.back_keys),
    }
    return dataclasses.replace(samples.full(), review=reported(json.loads(json.dumps(document))))


def test_a_promise_that_was_kept_is_on_the_page_with_its_numbers() -> None:
    found = shown(AS_PROMISED)
    words = page(found)
    assert "The last change is of 2025-11-28T00:00+00:00. Compared: the last 3 whole days since." in words
    assert "The promise was kept." in words
    assert "0.50 (0.45 to 0.55)" in words
    assert not any("2025-11-28" in step.what for step in advice.next_steps(found))


@pytest.mark.parametrize("cold, keys", [([290, 100], 0), ([100, 290], 1)])
def test_a_broken_promise_is_the_next_step_and_names_its_keys(cold: list[int], keys: int) -> None:
    found = shown(dataclasses.replace(AS_PROMISED, cold=np.array(cold)))
    assert "The promise was broken." in page(found)
    (step,) = [step for step in advice.next_steps(found) if step.what.startswith("Go back")]
    assert step.what == "Go back to the settings before 2025-11-28T00:00+00:00"
    assert ("for 1 key" in step.why) == bool(keys)
    assert ("Keys whose promise was broken" in page(found)) == bool(keys)
    # One thing after the other
    assert not any(each.what.startswith("Review and apply") for each in advice.next_steps(found))


@pytest.mark.parametrize(
    "files, words",
    [
        ((("--settings", "/etc/osrdyne/core/settings.toml"),), "--settings /etc/osrdyne/core/settings.toml"),
        ((("--ansible", "/srv/a b.yml"), ("--settings", "/x")), "--ansible '/srv/a b.yml' --settings /x"),
        ((), "--stack infra/stacks/Pulumi.STACK.yaml"),
    ],
)
def test_the_command_names_the_files_that_have_the_settings(files: tuple[tuple[str, str], ...], words: str) -> None:
    broken = shown(dataclasses.replace(AS_PROMISED, cold=np.array([290, 100])))
    for found, title in ((broken, "Go back"), (samples.full(), "Review and apply")):
        steps = advice.next_steps(dataclasses.replace(found, files=files))
        (step,) = [each for each in steps if each.what.startswith(title)]
        assert step.command == f"osrdyne pipeline recommend --pool {found.pool} {words}"


def test_a_change_that_is_not_in_force_is_to_be_looked_at() -> None:
    found = shown(dataclasses.replace(AS_PROMISED, cold=2 * AS_PROMISED.cold))
    assert "The change is not in force." in page(found)
    (step,) = [step for step in advice.next_steps(found) if step.what.startswith("Look at the change")]
    assert step.what == "Look at the change of 2025-11-28T00:00+00:00: not in force"
    assert "deploy the change" in step.why


def test_without_a_whole_day_there_are_no_numbers() -> None:
    words = page(shown())
    assert "Compared: no whole day since. Too few calls came since to say more." in words


def test_the_terminal_has_the_same_as_lines() -> None:
    found = review(PROMISE, [dataclasses.replace(AS_PROMISED, cold=np.array([100, 290]))], ReplayCorrection())
    lines = text.render(CHANGE, found).splitlines()
    assert lines[0] == "the change of 2025-11-28T00:00+00:00, the last 3 whole days since: broken"
    assert lines[1].split() == ["promised", "before", "expected", "from", "to", "came"]
    assert lines[2].split()[:6] == ["cold", "starts", "0.50", "(0.45", "to", "0.55)"]
    assert lines[4].startswith("  LAX: cold starts 290, expected 100 (at most ")
    assert lines[-1] == "going back to the settings before is proposed for 1 key"
