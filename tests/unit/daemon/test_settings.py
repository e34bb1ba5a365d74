"""The daemon's settings: every mistake is an error that names the setting, and no secret is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from osrdyne.base import credentials
from osrdyne.base.credentials import secret
from osrdyne.commands.daemon import environment_names
from osrdyne.drivers.noop import NoopSettings
from osrdyne.settings.daemon import DaemonSettings, load
from osrdyne_protocol.errors import SettingsError

GOOD = """
[pool]
name = "core"
unbind_delay = "PT10M"
[broker]
amqp_uri = "amqp://daemon:verysecret@localhost:5672/pool"
management_uri = "http://daemon:verysecret@localhost:15672"
[driver]
kind = "noop"
"""


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment_names():
        monkeypatch.delenv(name)


def loaded(directory: Path, text: str) -> DaemonSettings:
    path = directory / "daemon.toml"
    path.write_text(text, encoding="utf-8")
    return load(path)


def problem(directory: Path, text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        loaded(directory, text)
    assert "daemon.toml" in str(caught.value)
    assert "verysecret" not in str(caught.value)
    return str(caught.value)


def test_durations_are_seconds_or_iso_8601_and_the_rest_has_defaults(tmp_path: Path) -> None:
    found = loaded(tmp_path, GOOD + "[intervals]\nrecheck = 1.5\n")
    assert found.pool.unbind_delay == 600.0
    assert found.intervals.recheck == 1.5
    assert found.status.host == "127.0.0.1"
    assert isinstance(found.driver, NoopSettings)


@pytest.mark.parametrize(
    ("addition", "setting"),
    [
        ("[limits]\norphan_prefetsh = 1\n", "limits.orphan_prefetsh"),
        ("[nonsense]\na = 1\n", "nonsense"),
        ("[status]\nhost = 'h'\nprot = 1\n", "status.prot"),
    ],
)
def test_an_unknown_field_is_an_error_that_names_it(tmp_path: Path, addition: str, setting: str) -> None:
    text = problem(tmp_path, GOOD + addition)
    assert f": {setting}: is not a setting" in text


def test_an_unknown_field_of_the_pool_is_an_error_too(tmp_path: Path) -> None:
    text = problem(tmp_path, GOOD.replace("[broker]", "unbind_dealy = 3\n[broker]"))
    assert "pool.unbind_dealy" in text
    assert "unbind_delay" in text.partition("known are")[2]


@pytest.mark.parametrize(
    ("addition", "setting"),
    [
        ("[intervals]\ndebounce = -1\n", "intervals.debounce"),
        ("[intervals]\ndebounce = 'soon'\n", "intervals.debounce"),
        ("[limits]\norphan_prefetch = 0\n", "limits.orphan_prefetch"),
        ("[limits]\nstart_hold = -0.5\n", "limits.start_hold"),
        ("[status]\nport = 70000\n", "status.port"),
    ],
)
def test_a_value_out_of_range_is_an_error_that_names_the_setting(tmp_path: Path, addition: str, setting: str) -> None:
    assert f": {setting}: " in problem(tmp_path, GOOD + addition)


@pytest.mark.parametrize("delay", ["-1", "0", "'never'", "true"])
def test_a_delay_of_the_pool_must_be_a_time(tmp_path: Path, delay: str) -> None:
    assert "pool.unbind_delay" in problem(tmp_path, GOOD.replace('"PT10M"', delay))


def test_a_missing_table_or_name_is_an_error_that_names_it(tmp_path: Path) -> None:
    assert "pool" in problem(tmp_path, GOOD.replace("[pool]", "[poll]"))
    assert "pool.name" in problem(tmp_path, GOOD.replace('name = "core"', ""))
    assert "driver" in problem(tmp_path, GOOD.partition("[driver]")[0])


def test_a_driver_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    assert "driver" in problem(tmp_path, GOOD.replace('"noop"', '"nomad"'))


def test_a_missing_file_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.toml: does not exist.*--settings"):
        load(tmp_path / "absent.toml")


def test_a_file_that_is_not_toml_or_not_text_is_an_error(tmp_path: Path) -> None:
    assert "is not TOML" in problem(tmp_path, "pool = [")
    (tmp_path / "daemon.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="cannot be read"):
        load(tmp_path / "daemon.toml")
    with pytest.raises(SettingsError, match="cannot be read"):
        load(tmp_path)


def test_the_environment_wins_over_the_file_one_setting_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        f"{credentials.ENVIRONMENT_PREFIX}BROKER__AMQP_URI", "amqp://other:verysecret@elsewhere:5672/pool"
    )
    monkeypatch.setenv("OSRDYNE_DAEMON_INTERVALS__DEBOUNCE", "PT3S")
    found = loaded(tmp_path, GOOD + "[intervals]\nrecheck = 7\n")
    assert found.broker.amqp_uri is not None
    assert "elsewhere" in found.broker.amqp_uri.get_secret_value()
    assert found.broker.management_uri is not None
    assert (found.intervals.debounce, found.intervals.recheck) == (3.0, 7.0)


def test_the_environment_alone_can_give_the_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        f"{credentials.ENVIRONMENT_PREFIX}BROKER__AMQP_URI", "amqp://other:verysecret@elsewhere:5672/pool"
    )
    found = loaded(tmp_path, "".join(line for line in GOOD.splitlines(True) if "amqp_uri" not in line))
    assert secret(found.broker.amqp_uri, None, "broker.amqp_uri").endswith("@elsewhere:5672/pool")


def test_no_secret_is_shown_when_settings_are_printed(tmp_path: Path) -> None:
    found = loaded(tmp_path, GOOD)
    for text in (repr(found), str(found), repr(found.broker), str(found.model_dump()), found.model_dump_json()):
        assert "verysecret" not in text


def test_a_wrong_value_of_a_secret_is_an_error_that_does_not_show_it(tmp_path: Path) -> None:
    uri = '"amqp://daemon:verysecret@localhost:5672/pool"'
    assert "broker.amqp_uri" in problem(tmp_path, GOOD.replace(uri, f"[{uri}]"))


def test_a_credential_comes_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "uri"
    path.write_text("amqp://a:b@c\n", encoding="utf-8")
    assert secret(None, path, "broker.amqp_uri") == "amqp://a:b@c"


def test_a_credential_that_is_missing_says_how_to_give_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"broker\.amqp_uri_file.*OSRDYNE_DAEMON_BROKER__AMQP_URI"):
        secret(None, None, "broker.amqp_uri")
    with pytest.raises(SettingsError, match=r"amqp_uri_file: cannot be read"):
        secret(None, tmp_path / "absent", "broker.amqp_uri")
    (tmp_path / "empty").write_text("\n", encoding="utf-8")
    with pytest.raises(SettingsError, match="is empty"):
        secret(None, tmp_path / "empty", "broker.amqp_uri")


def test_a_credential_in_the_environment_wins_over_a_file_that_the_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        f"{credentials.ENVIRONMENT_PREFIX}BROKER__AMQP_URI", "amqp://other:verysecret@elsewhere:5672/pool"
    )
    uri = 'amqp_uri = "amqp://daemon:verysecret@localhost:5672/pool"'
    found = loaded(tmp_path, GOOD.replace(uri, 'amqp_uri_file = "/absent"')).broker
    assert "elsewhere" in secret(found.amqp_uri, found.amqp_uri_file, "broker.amqp_uri")


def test_a_variable_may_hold_a_table_or_a_list_as_json_and_another_one_a_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSRDYNE_DAEMON_STATUS", '{"port": 1, "host": "::1"}')
    monkeypatch.setenv("OSRDYNE_DAEMON_STATUS__PORT", "2")
    monkeypatch.setenv("OSRDYNE_DAEMON_STATUS__NAMES", '["a.example"]')
    monkeypatch.setenv("osrdyne_daemon_pool__unbind_delay", "PT1M")
    monkeypatch.setenv("OSRDYNE_DAEMON_OTHER__PORT", "3")
    found = loaded(tmp_path, GOOD)
    assert (found.status.host, found.status.port, found.status.names) == ("::1", 2, ("a.example",))
    assert found.pool.unbind_delay == 60.0


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("STATUS", "[::1]:80", "status: is not a table of host, port, names"),
        ("STATUS__NAMES", "a.example", "status.names: is not a list"),
        ("INTERVALS", '{"debounse": 1}', "intervals.debounse: is not a setting"),
    ],
)
def test_a_variable_that_cannot_be_used_is_an_error_that_names_the_setting(
    name: str, text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"OSRDYNE_DAEMON_{name}", text)
    assert said in problem(tmp_path, GOOD)


def test_a_variable_within_one_that_is_not_a_table_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSRDYNE_DAEMON_STATUS", "none")
    monkeypatch.setenv("OSRDYNE_DAEMON_STATUS__PORT", "2")
    with pytest.raises(
        SettingsError, match=r"OSRDYNE_DAEMON_STATUS__PORT: is within a setting that another variable says"
    ):
        loaded(tmp_path, GOOD)
