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


BELOW = """\
[pool] # here
name = "core"
delivery_limit = 3
# No more than that.

# Their contract.
[pool.overrides.vip]
unbind_delay = "P1D"

# The broker, which
# is near.
[broker]
amqp_uri_file = "broker.uri"
management_uri_file = "management.uri"

[driver]
kind = "noop"
"""


@pytest.mark.parametrize("text", [BELOW, BELOW.replace('[pool.overrides.vip]\nunbind_delay = "P1D"\n\n', "")])
def test_what_stands_above_another_table_stays_there_when_ours_come_and_go(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    for overrides in ({"BOS": WINDOWS, "LAX": SPANS}, {"BOS": SPANS, "JFK": WINDOWS}):
        settings(wanted(**overrides), path).write()
        now = path.read_text()
        assert "\n# No more than that.\n\n" in now
        assert "\n# The broker, which\n# is near.\n[broker]\n" in now
        assert settings(wanted(**overrides), path).diff() == ""
    settings(wanted(), path).write()
    delays = "unbind_delay = 1185 # recommended: before 600 + 600 s: cold starts 800 -> 400\nstop_delay = 15\n"
    assert path.read_text() == text.replace('name = "core"\n', f'name = "core"\n{delays}')


def test_comments_below_an_override_stay_when_it_is_written_and_when_it_goes(tmp_path: Path) -> None:
    path = write(tmp_path, FILE)
    settings(wanted(vip=WINDOWS, LAX=SPANS), path).write()
    text = path.read_text()
    assert text.endswith(FILE[FILE.index("\n[broker]") :])
    by_hand = text.replace("\n[pool.overrides.LAX]", "\n# Of a port.\n[pool.overrides.LAX]").replace(
        "\n[broker]", "\n# The broker.\n[broker]"
    )
    settings(wanted(), write(tmp_path, by_hand)).write()
    assert "\n\n# Of a port.\n\n# The broker.\n[broker] # these" in path.read_text()


def test_a_byte_order_mark_and_the_line_breaks_of_a_settings_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(f"\ufeff{FILE}".replace("\n", "\r\n").encode())
    settings(wanted(BOS=WINDOWS), path).write()
    written = path.read_bytes()
    assert written.startswith(b"\xef\xbb\xbf# Of the night shift.\r\n")
    assert written.count(b"\n") == written.count(b"\r\n")
    assert load(path).pool.overrides["BOS"] == WINDOWS
    # In a file of both kinds of line breaks, each line that stays keeps its own
    mixed = FILE.replace("shift.\n", "shift.\r\n").replace("noop", "noop\u2028")
    path.write_bytes(mixed.encode())
    after = settings(wanted(BOS=WINDOWS), path).after
    assert after.startswith(mixed[: mixed.index("unbind")])
    assert after.endswith(mixed[mixed.index("[broker]") :])


@pytest.mark.parametrize("text", ['[pool]\nname = "core"\n', 'pool.name = "core"\n', 'pool.name = "core"'])
def test_a_file_with_the_least_settings_is_changed(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    change = settings(wanted(BOS=SPANS), path)
    change.write()
    assert settings_file.read_pool(path) == change.becomes
    assert "\r" not in change.after
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
        ('[pool]\nname = "core"\n[broker]\n[pool.limits]\ngroups = 5\n', "in several places"),
        (FILE + "[pool.limits]\ngroups = 5\n\n[pool.overrides.b]\nunbind_delay = 5\n", "in several places"),
    ],
)
def test_where_it_is_not_clear_what_to_change_nothing_is_written(tmp_path: Path, text: str, problem: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(NotChanged, match=problem):
        settings(wanted(BOS=SPANS), path)
    assert path.read_text(encoding="utf-8") == text
