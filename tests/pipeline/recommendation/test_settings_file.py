"""The change of a daemon's settings file: the daemon takes what comes out, and all else in it stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from osrdyne.settings.daemon import load
from osrdyne_pipeline.recommendation.edit.settings_file import settings, settings_pool
from osrdyne_pipeline.recommendation.edit.wanted import NotChanged, WantedOverride, WantedSettings
from osrdyne_pool import settings_file
from osrdyne_pool.settings import Delays
from tests.hard_keys import KEYS

FILE = """\
# Of the night shift.
[pool]
name = "core"
unbind_delay = "PT10M" # since May
stop_delay = 600
delivery_limit = 3

# Their contract.
[pool.overrides.vip]
unbind_delay = "P1D"

[broker] # these files hold a password
amqp_uri_file = "broker.uri"
management_uri_file = "management.uri"

[driver]
kind = "noop"
"""
SPANS = Delays(60.0, 15.0, prewarm=((3300.0, 3900.0), (7140.0, 7500.5)))
WINDOWS = Delays(2640.0, 15.5, ("mon,tue 06:00-09:30", "sun 00:00-24:00"))


def wanted(**overrides: Delays) -> WantedSettings:
    named = tuple(WantedOverride(key, delays, "cold 100 -> 30") for key, delays in overrides.items())
    return WantedSettings("core", 1185.0, 15.0, ("before 600 + 600 s:", "cold starts 800 -> 400"), named)


def write(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_daemon_takes_what_is_written_and_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    path = write(tmp_path, FILE)
    change = settings(wanted(BOS=WINDOWS, LAX=SPANS), path)
    change.write()
    assert load(path).pool.overrides == {"vip": Delays(86_400.0, 15.0), "BOS": WINDOWS, "LAX": SPANS}
    assert (change.was.unbind_delay, change.becomes.unbind_delay, change.becomes.stop_delay) == (600.0, 1185.0, 15.0)
    removed = [line for line in change.diff().splitlines()[2:] if line.startswith("-")]
    assert removed == ['-unbind_delay = "PT10M" # since May', "-stop_delay = 600"]
    assert "# recommended: before 600 + 600 s: cold starts 800 -> 400\n" in change.after
    # When the next one comes, it replaces ours and leaves theirs
    second = settings(wanted(LAX=WINDOWS), path)
    assert second.becomes.overrides == {"vip": Delays(86_400.0, 15.0), "LAX": WINDOWS}
    assert "# Their contract.\n[pool.overrides.vip]\n" in second.after
    second.write()
    assert settings(wanted(LAX=WINDOWS), path).diff() == ""
    # And going back to none leaves no trace but the delays
    third = settings(wanted(), path)
    assert third.becomes.overrides == {"vip": Delays(86_400.0, 15.0)}


@pytest.mark.parametrize("text", ['[pool]\nname = "core"\n', 'pool.name = "core"\n'])
def test_a_file_with_the_least_settings_is_changed(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    change = settings(wanted(BOS=SPANS), path)
    change.write()
    assert settings_file.read_pool(path) == change.becomes
    assert change.becomes.overrides == {"BOS": SPANS}


@pytest.mark.parametrize("key", KEYS)
def test_any_key_comes_out_as_it_went_in(tmp_path: Path, key: str) -> None:
    path = write(tmp_path, FILE)
    settings(wanted(**{key: SPANS}), path).write()
    assert settings_pool("core", path).overrides[key] == SPANS


@pytest.mark.parametrize(
    "text, problem",
    [
        (FILE.replace('name = "core"', 'name = "other"'), "is of the pool 'other', not of 'core'"),
        (FILE.replace("delivery_limit = 3", "surprise = 3"), "is not a setting"),
        (FILE.replace("[pool]", "[pool"), "is not TOML"),
        ('[pool]\nname = "core"\noverrides = {a = {unbind_delay = 5}}\n', "within braces"),
        ('[pool]\nname = "core"\noverrides = {}\n', "within braces"),
        ('pool = {name = "core"}\n', "cannot be changed"),
        ('[pool]\nname = "core"\noverrides.a.unbind_delay = 5\n', "cannot be changed"),
        ('[pool]\nname = "core"\n[broker]\n[pool.limits]\ngroups = 5\n', "between other tables"),
    ],
)
def test_where_it_is_not_clear_what_to_change_nothing_is_written(tmp_path: Path, text: str, problem: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(NotChanged, match=problem):
        settings(wanted(BOS=SPANS), path)
    assert path.read_text(encoding="utf-8") == text
