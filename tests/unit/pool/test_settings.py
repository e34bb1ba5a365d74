"""Settings of a pool: an error names the setting, what is wrong and what would be right."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, fields

import pytest

from osrdyne_pool import settings
from osrdyne_pool.settings import ALIVE_INTERVAL_SECONDS, Delays, JobsSettings, PoolSettings, RedoSettings
from osrdyne_protocol.errors import SettingsError


def parse(**values: object) -> PoolSettings:
    return PoolSettings.from_mapping({"name": "core", **values})


def test_a_name_is_enough() -> None:
    assert parse() == PoolSettings("core")


def test_durations_are_kept_as_seconds() -> None:
    parsed = parse(unbind_delay="PT10M", stop_delay=2, message_ttl=0.5)

    assert (parsed.unbind_delay, parsed.stop_delay, parsed.message_ttl) == (600.0, 2.0, 0.5)


def test_every_setting_can_be_given() -> None:
    assert settings._PARSERS.keys() == {field.name for field in fields(PoolSettings)}
    assert settings._REDO_PARSERS.keys() == {field.name for field in fields(RedoSettings)}


def test_an_override_changes_the_delays_of_its_key_only() -> None:
    parsed = parse(unbind_delay=10, stop_delay=20, overrides={"42": {"stop_delay": "PT1H"}, "": {"unbind_delay": 1}})

    assert parsed.delays("42") == Delays(10.0, 3600.0)
    assert parsed.delays("") == Delays(1.0, 20.0)
    assert parsed.delays("43") == Delays(10.0, 20.0)


def test_every_key_may_be_woken_unless_a_pattern_or_a_list_says_which() -> None:
    pattern, some = parse(keys="[A-Z]{3}"), parse(keys=["LAX", ""])

    assert parse().may_wake("any")
    assert [pattern.may_wake(key) for key in ("LAX", "LAXX", "lax", "LAX\n")] == [True, False, False, False]
    assert [some.may_wake(key) for key in ("LAX", "", "SFO")] == [True, True, False]


def test_limits_and_keys_pass_through_json_as_they_are() -> None:
    parsed = parse(keys=["LAX"], limits={"groups": 50, "client_connections": 7})

    assert PoolSettings.from_mapping(json.loads(json.dumps(asdict(parsed)))) == parsed
    assert (parsed.limits.groups, parsed.limits.client_connections) == (50, 7)


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"keys": "(a"}, "pool.keys"),
        ({"keys": []}, "pool.keys"),
        ({"keys": ["a\0"]}, "pool.keys"),
        ({"keys": 3}, "pool.keys"),
        ({"keys": ["a"], "overrides": {"b": {"unbind_delay": 1}}}, "pool.overrides.'b'"),
        ({"limits": {"groups": 0}}, "pool.limits.groups"),
        ({"limits": {"queues": 1}}, "pool.limits.queues"),
        ({"limits": 5}, "pool.limits"),
    ],
)
def test_keys_and_limits_that_make_no_sense_are_refused_by_name(values: dict[str, object], path: str) -> None:
    with pytest.raises(SettingsError) as refused:
        parse(**values)

    assert refused.value.path == path


def test_an_override_can_have_windows_and_passes_through_json_as_it_is() -> None:
    windows = ("mon,fri 10:00-12:30", "sun 00:00-24:00")
    parsed = parse(overrides={"42": {"warm": list(windows)}, "43": {"stop_delay": 1, "warm": []}})

    assert parsed.delays("42") == Delays(600.0, 600.0, windows)
    assert parsed.delays("43") == Delays(600.0, 1.0)
    assert PoolSettings.from_mapping(json.loads(json.dumps(asdict(parsed)))) == parsed


def test_an_override_can_have_spans_after_its_last_activity_and_passes_through_json_as_it_is() -> None:
    parsed = parse(overrides={"42": {"unbind_delay": 60, "prewarm": [[3300, "PT1H5M"], [7000, 7300.5]]}})

    assert parsed.delays("42") == Delays(60.0, 600.0, prewarm=((3300.0, 3900.0), (7000.0, 7300.5)))
    assert PoolSettings.from_mapping(json.loads(json.dumps(asdict(parsed)))) == parsed


@pytest.mark.parametrize(
    ("spans", "where", "problem"),
    [
        ("3300-3900", "", "is not a list of at most 8 spans"),
        ([[60 * step, 60 * step + 30] for step in range(1, 10)], "", "is not a list of at most 8 spans"),
        ([3300, 3900], "[0]", "3300 is not a span; give its begin and end, as in [3300, 3900]"),
        ([[3300]], "[0]", "is not a span"),
        ([[3900, 3300]], "[0]", "must begin after 0 seconds, and end after its begin"),
        ([[60, 120], [100, 200]], "[1]", "[100, 200] must begin after 120 seconds"),
        ([[0, 120]], "[0]", "must be longer than 0 seconds"),
        ([[60, "x"]], "[0]", "'x' is not a duration"),
    ],
)
def test_what_is_not_a_list_of_spans_is_refused(spans: object, where: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(problem)) as refused:
        parse(overrides={"42": {"prewarm": spans}})

    assert refused.value.path == f"pool.overrides.'42'.prewarm{where}"


@pytest.mark.parametrize(
    ("values", "path", "problem"),
    [
        ({"unbind_dely": 1}, "pool.unbind_dely", "is not a setting; known are activity_max_length, "),
        ({"unbind_delay": -1}, "pool.unbind_delay", "-1 is not a duration of zero or more seconds; give seconds"),
        ({"unbind_delay": "10m"}, "pool.unbind_delay", "'10m' is not a duration; give seconds (90 or 1.5) or ISO 8601"),
        ({"stop_delay": 0}, "pool.stop_delay", "must be longer than 0 seconds"),
        ({"delivery_limit": 0}, "pool.delivery_limit", "0 is not an integer of 1 or more"),
        ({"delivery_limit": True}, "pool.delivery_limit", "True is not an integer of 1 or more"),
        ({"poison_max_length": 1.5}, "pool.poison_max_length", "1.5 is not an integer of 1 or more"),
        ({"instance": ""}, "pool.instance", "'' is not text of 1 to 255 bytes"),
        ({"name": "Core"}, "pool.name", "use lower-case letters, digits and inner hyphens"),
        ({"name": 5}, "pool.name", "5 is not text of 1 to 255 bytes"),
        ({"overrides": []}, "pool.overrides", "[] is not a table"),
        (
            {"overrides": {"42": 5}},
            "pool.overrides.'42'",
            "is not a table; give unbind_delay, stop_delay, warm or prewarm",
        ),
        (
            {"overrides": {"42": {"ttl": 5}}},
            "pool.overrides.'42'.ttl",
            "known are prewarm, stop_delay, unbind_delay, warm",
        ),
        ({"overrides": {"42": {"warm": "mon 10:00-12:00"}}}, "pool.overrides.'42'.warm", "is not a list of at most 42"),
        (
            {"overrides": {"42": {"warm": ["mon 10:00-12:00"] * 43}}},
            "pool.overrides.'42'.warm",
            "is not a list of at most",
        ),
        (
            {"overrides": {"42": {"warm": ["sun 10:00-12:00", "x"]}}},
            "pool.overrides.'42'.warm[1]",
            "'x' is not a window",
        ),
        ({"overrides": {"42": {"stop_delay": -5}}}, "pool.overrides.'42'.stop_delay", "-5 is not a duration"),
        ({"overrides": {"a\0b": {"stop_delay": 5}}}, "pool.overrides.'a\\x00b'", "NUL"),
        ({"jobs": 5}, "pool.jobs", "5 is not a table"),
        ({"jobs": {"undo": {}}}, "pool.jobs.undo", "is not a setting; known are redo"),
        ({"jobs": {"redo": 5}}, "pool.jobs.redo", "5 is not a table"),
        ({"jobs": {"redo": {"paus": 5}}}, "pool.jobs.redo.paus", "is not a setting; known are alive_interval, "),
        ({"jobs": {"redo": {"patience": 0}}}, "pool.jobs.redo.patience", "must be longer than 0 seconds"),
        ({"jobs": {"redo": {"batch": 0}}}, "pool.jobs.redo.batch", "0 is not an integer of 1 or more"),
        ({"jobs": {"redo": {"lease": 5}}}, "pool.jobs.redo.lease", "must be longer than the interval of 5 s"),
        (
            {"unbind_delay": 200, "jobs": {"redo": {"alive_interval": 100}}},
            "pool.jobs.redo.alive_interval",
            "must be less than 100, half of the shortest unbind_delay, not 100",
        ),
        (
            {"overrides": {"42": {"unbind_delay": 20}}, "jobs": {"redo": {"alive_interval": 60}}},
            "pool.jobs.redo.alive_interval",
            "must be less than 10, half of the shortest unbind_delay, not 60",
        ),
    ],
)
def test_an_error_names_the_setting_and_what_would_be_right(values: dict[str, object], path: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(**values)

    assert caught.value.path == path
    assert problem in caught.value.problem


def test_a_pool_without_a_name_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"pool\.name: is missing; give the pool a name"):
        PoolSettings.from_mapping({})


def test_the_path_can_be_that_of_another_file() -> None:
    with pytest.raises(SettingsError, match=r"^config\.core\.x: is not a setting"):
        PoolSettings.from_mapping({"name": "core", "x": 1}, path="config.core")


def test_a_pool_has_jobs_where_the_table_is_there_also_after_json() -> None:
    for pool, expected in ((parse(), None), (parse(jobs={}), JobsSettings())):
        assert pool.jobs == expected
        assert PoolSettings.from_mapping(json.loads(json.dumps(asdict(pool)))) == pool


def test_settings_of_redo_are_parsed_and_pass_through_json_as_they_are() -> None:
    parsed = parse(jobs={"redo": {"interval": 2, "keep": "P7D", "alive_interval": "PT1M"}})

    redo = RedoSettings(interval=2.0, keep=604_800.0, alive_interval=60.0)
    assert parsed.jobs == JobsSettings(redo=redo)
    assert parsed.redo() == redo
    assert PoolSettings.from_mapping(json.loads(json.dumps(asdict(parsed)))) == parsed


def test_where_keys_are_unbound_soon_casts_come_often_enough_to_keep_their_groups() -> None:
    assert parse().redo().alive_interval == ALIVE_INTERVAL_SECONDS
    assert parse(unbind_delay=60).redo().alive_interval == 20.0
    assert parse(overrides={"42": {"unbind_delay": 30}}).redo().alive_interval == 10.0
