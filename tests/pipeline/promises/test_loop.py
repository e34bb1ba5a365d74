"""The loop in virtual time, through the commands: a change is promised, applied, compared, and taken back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from osrdyne_pipeline.commands import PIPELINE
from osrdyne_pool import settings_file
from osrdyne_pool.settings import PoolSettings
from osrdyne_runtime.settings_text import to_toml
from tests.pipeline.promises.demand import DAY, MONDAY, demand, events, moment, plain

#: What is learnt from, good days after the change, bad ones after these, and what follows going back.
DAYS, GOOD, BAD, AFTER = 14, 5, 2, 3


class Lake:
    """A lake of the pool `core`, and the settings file of its daemon."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "settings.toml"
        self.file.write_text(to_toml({"pool": plain(PoolSettings("core"))}))
        self._here = ["--pool", "core", "--lake", str(folder / "lake")]
        self._day = 0

    @property
    def settings(self) -> PoolSettings:
        return settings_file.read_pool(self.file)

    @property
    def now(self) -> str:
        return moment(MONDAY + self._day * DAY)

    def days(self, number: int, settings: PoolSettings, seed: int) -> None:
        """Let some days pass with these settings, and take their events in."""
        # The last day is whole when the next one has begun.
        calls = demand(seed, MONDAY + self._day * DAY, number)
        self._day += number
        calls.append((MONDAY + self._day * DAY + 1, "end"))
        self.run("ingest", str(events(self.folder / "events", calls, settings, seed)))
        self.run("tables")

    def recommend(self, *words: str) -> dict[str, Any]:
        return dict(json.loads(self.run("recommend", "--settings", str(self.file), "--json", *words)))

    def run(self, *words: str) -> str:
        done = CliRunner().invoke(PIPELINE, [*words, *self._here], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout


@pytest.mark.full
def test_a_change_is_kept_and_one_that_breaks_its_promise_is_taken_back(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.days(DAYS, lake.settings, 1)
    first = lake.recommend("--apply", "--from", lake.now)
    assert (first["recommended"], first["review"], [file["written"] for file in first["changes"]]) == (
        True,
        None,
        [True],
    )
    recommended = lake.settings
    assert recommended.overrides
    # When it is in force for some days
    lake.days(GOOD, recommended, 2)
    second = lake.recommend()
    # Then the next run says that it kept its promise
    review = second["review"]
    assert (review["verdict"], review["days"], second["goes_back"]) == ("kept", GOOD, False), review
    cold = review["total"]["cold"]
    assert abs(cold["came"] / cold["expected"] - 1) < 0.15
    assert cold["came"] < cold["before"]
    # When a person lets the daemon unbind each group after a minute
    lake.days(BAD, PoolSettings("core", unbind_delay=60.0, stop_delay=15.0), 3)
    # And the person who wrote that into the file is not overruled
    ours = lake.file.read_text()
    lake.file.write_text(to_toml({"pool": plain(PoolSettings("core", unbind_delay=60.0, stop_delay=15.0))}))
    by_hand = lake.recommend()
    assert (by_hand["review"]["verdict"], by_hand["goes_back"]) == ("broken", False)
    assert "nothing is taken back" in by_hand["review"]["notes"][0]
    lake.file.write_text(ours)
    third = lake.recommend("--apply", "--from", lake.now)
    # Then the promise is broken, and going back is written
    assert (third["review"]["verdict"], third["goes_back"]) == ("broken", True)
    assert [file["written"] for file in third["changes"]] == [True]
    assert lake.settings == PoolSettings("core")
    # And it is compared, too
    lake.days(AFTER, lake.settings, 4)
    last = lake.recommend()
    assert (last["review"]["verdict"], last["review"]["promised"]) == ("kept", False)
    # And what was taken back is not recommended again until as many days have passed as showed that it was wrong
    assert last["recommended"] is False
    assert last["reasons"][0].endswith("7 new whole days are needed, and there are 3")
    lake.days(DAYS, lake.settings, 5)
    assert lake.recommend()["recommended"] is True
    # And the report says what became of it
    lake.run("report", "--output", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "What was promised and what came" in page
    assert "The promise was kept." in page
    assert f"osrdyne pipeline recommend --pool core --settings {lake.file}" in page
