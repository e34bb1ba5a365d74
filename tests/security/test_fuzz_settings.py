"""Settings, variables and keys from anyone: right, or an error that names them; never a traceback, never a secret."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from osrdyne.base import credentials
from osrdyne.commands.daemon import environment_names
from osrdyne.settings.daemon import DaemonSettings, load
from osrdyne_pool import settings_file
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol import keys
from osrdyne_protocol.errors import InvalidKey, MissingVariable, SettingsError
from osrdyne_protocol.worker_environment import WorkerEnvironment
from osrdyne_runtime.settings_text import to_toml
from testbed.hostile.chance import mutated
from tests.security.arbitrary import FUZZ, JSON

SECRET = "Sup3rSecret"
GOOD: dict[str, Any] = {
    "pool": {"name": "core", "unbind_delay": "PT10M", "overrides": {"a.b": {"stop_delay": 3}}},
    "broker": {"amqp_uri": f"amqp://d:{SECRET}@h/v", "management_uri_file": "/m.uri", "timeout": 3.5},
    "driver": {
        "kind": "subprocess",
        "worker_amqp_uri": f"amqp://w:{SECRET}@h/v",
        "template": {"command": ["/bin/true", "x"], "environment": {"A": "b"}},
    },
    "limits": {"orphan_prefetch": 5},
    "intervals": {"debounce": "PT1S"},
    "status": {"host": "127.0.0.1", "port": 1},
}
PATHS = [(table, name) for table, content in GOOD.items() for name in content] + [(table, "") for table in GOOD]


def attempt(path: Path) -> DaemonSettings | None:
    """What `load` makes of the file; None for a SettingsError, which is the only error there may be."""
    try:
        return load(path)
    except SettingsError as error:
        text = str(error)
    assert SECRET not in text
    return None


@pytest.fixture(autouse=True)
def no_settings_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environment_names():
        monkeypatch.delenv(name)


@FUZZ
@given(data=mutated(to_toml(GOOD).encode()) | st.binary(max_size=60))
def test_a_settings_file_of_any_bytes_is_read_or_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(data)

    attempt(path)


@FUZZ
@given(
    where=st.sampled_from(PATHS), value=JSON | st.text(max_size=20), extra=st.dictionaries(st.text(max_size=9), JSON)
)
def test_a_setting_of_any_kind_is_taken_or_refused(
    tmp_path: Path, where: tuple[str, str], value: object, extra: dict[str, Any]
) -> None:
    table, name = where
    values = GOOD | {table: GOOD[table] | {name: value} if name else value} | extra
    with mock.patch.object(settings_file, "read", return_value=values):
        attempt(tmp_path / "settings.toml")


@FUZZ
@given(
    name=st.sampled_from(
        [f"{table}__{name}" if name else table for table, name in PATHS] + ["X", "POOL__OVERRIDES__K"]
    ),
    text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
    | st.sampled_from(["{", "[]", "{}", "null", '{"name": 1}', "1e999"]),
)
def test_a_variable_of_any_text_is_taken_or_refused(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(to_toml(GOOD))
    with mock.patch.dict(os.environ, {credentials.ENVIRONMENT_PREFIX + name.upper(): text}):
        attempt(path)


@FUZZ
@given(JSON)
def test_a_pool_of_any_kind_is_taken_or_refused(value: object) -> None:
    with contextlib.suppress(SettingsError):
        PoolSettings.from_mapping(value if isinstance(value, dict) else {"name": value})


def test_a_settings_file_nested_thousands_deep_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("a = " + "[" * 100_000)

    assert attempt(path) is None


def test_a_variable_nested_thousands_deep_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(to_toml(GOOD))
    monkeypatch.setenv("OSRDYNE_DAEMON_DRIVER__TEMPLATE", "[" * 5000)

    assert attempt(path) is None


@pytest.mark.parametrize("name", ["_env_file", "_cli_parse_args", "_secrets_dir", "self", "__pydantic_self__"])
def test_no_setting_reaches_the_library_that_reads_them(tmp_path: Path, name: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f'{name} = "x"\n' + to_toml(GOOD))

    with pytest.raises(SettingsError, match=f"{name}: is not a setting"):
        load(path)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b" \n"])
def test_a_credential_file_of_anything_is_an_error_that_shows_nothing_of_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "uri"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"amqp_uri_file: is (not a file of UTF-8 text|empty)"):
        credentials.secret(None, path, "broker.amqp_uri")
    with pytest.raises(SettingsError, match="amqp_uri_file"):
        credentials.secret(None, Path("a\0b"), "broker.amqp_uri")


@FUZZ
@given(st.text(max_size=300) | st.binary(max_size=300))
def test_a_routing_key_is_a_key_or_refused(routing_key: str | bytes) -> None:
    with contextlib.suppress(InvalidKey):
        key = keys.decode(routing_key)
        assert len(key.encode()) <= 255
        assert "\0" not in key


@FUZZ
@given(st.dictionaries(st.sampled_from(["WORKER_ID", "WORKER_KEY", "WORKER_AMQP_URI", "X"]), st.text(max_size=9)))
def test_an_environment_without_all_variables_says_which(environ: dict[str, str]) -> None:
    with pytest.raises(MissingVariable, match="WORKER_POOL"):
        WorkerEnvironment.from_environ(environ)


# --- an address in two forms, in two places ---------------------------------------------------------------------------


@pytest.mark.parametrize(("table", "name"), [("broker", "amqp_uri"), ("driver", "worker_amqp_uri")])
@pytest.mark.parametrize("in_file", ["", "_file"])
@pytest.mark.parametrize("in_environment", ["", "_file"])
def test_an_address_in_the_environment_wins_over_the_files_in_whichever_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, name: str, in_file: str, in_environment: str
) -> None:
    (tmp_path / "old").write_text("amqp://old")
    (tmp_path / "new").write_text("amqp://new")
    content = {word: value for word, value in GOOD[table].items() if word != name}
    content[name + in_file] = str(tmp_path / "old") if in_file else "amqp://old"
    path = tmp_path / "settings.toml"
    path.write_text(to_toml(GOOD | {table: content}))
    variable = f"OSRDYNE_DAEMON_{table}__{name}{in_environment}".upper()
    monkeypatch.setenv(variable, str(tmp_path / "new") if in_environment else "amqp://new")

    chosen = getattr(load(path), table)

    found = credentials.secret(getattr(chosen, name), getattr(chosen, f"{name}_file"), f"{table}.{name}")
    assert found == "amqp://new"


def test_an_address_in_both_forms_in_one_place_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(to_toml(GOOD | {"broker": GOOD["broker"] | {"amqp_uri_file": "/f"}}))
    with pytest.raises(SettingsError, match=r"broker\.amqp_uri: is given twice in .*settings\.toml"):
        load(path)
    path.write_text(to_toml(GOOD))
    monkeypatch.setenv("OSRDYNE_DAEMON_BROKER__MANAGEMENT_URI", f"http://d:{SECRET}@h")
    monkeypatch.setenv("OSRDYNE_DAEMON_BROKER__MANAGEMENT_URI_FILE", "/f")
    with pytest.raises(SettingsError, match=r"broker\.management_uri: is given twice in the environment"):
        load(path)
