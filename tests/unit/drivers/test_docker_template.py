"""The docker driver's template: what is refused with which place, what is added for a group, what rolls one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from osrdyne.drivers.docker import facts
from osrdyne.drivers.docker.template import LOG_LIMIT, ContainerTemplate, load
from osrdyne_pool.settings import PoolSettings
from osrdyne_protocol.errors import SettingsError
from tests.hard_keys import KEYS

POOL = PoolSettings("core", "prod", consumer_timeout=90.0)
FILE = Path("/etc/osrdyne/core/worker/uri")


def body(declared: dict[str, Any], key: str = "42", pool: PoolSettings = POOL) -> dict[str, Any]:
    return ContainerTemplate(pool, {"Image": "core", **declared}, FILE).body(key, "worker-1")


def problem(directory: Path, declared: object, name: str = "template.json") -> str:
    (directory / name).write_text(declared if isinstance(declared, str) else json.dumps(declared))
    with pytest.raises(SettingsError) as caught:
        load(directory / name)
    return str(caught.value)


def test_json_and_toml_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"Image": "core", "HostConfig": {"Memory": 1000}}')
    (tmp_path / "a.toml").write_text('Image = "core"\n[HostConfig]\nMemory = 1000\n')

    assert load(tmp_path / "a.json") == load(tmp_path / "a.toml") == {"Image": "core", "HostConfig": {"Memory": 1000}}


@pytest.mark.parametrize(
    "declared, place",
    [
        ({}, "Image: is missing"),
        ({"Image": 3}, "Image: is missing"),
        ({"Image": "core", "Env": {"TZ": "UTC"}}, "Env: is not a list"),
        ({"Image": "core", "Env": ["WORKER_ID=1"]}, "Env.WORKER_ID: is set for each worker"),
        ({"Image": "core", "Env": ["WORKER_AMQP_URI=amqp://secret"]}, "Env.WORKER_AMQP_URI: is set"),
        ({"Image": "core", "Env": ["=UTC"]}, "Env: '': a variable is text"),
        ({"Image": "core", "Env": ["TZ=secret\0"]}, "Env: 'TZ': a variable is text"),
        ({"Image": "core", "Env": [3]}, "Env: '': a variable is text"),
        ({"Image": "core", "Labels": ["a"]}, "Labels: is not a table"),
        ({"Image": "core", "Labels": {"osrdyne.key": "1"}}, "Labels.osrdyne.key: begins with 'osrdyne.'"),
        ({"Image": "core", "Labels": {"team": 7}}, "Labels.team: is 7; a label is text"),
        ({"Image": "core", "StopTimeout": "PT1M"}, "StopTimeout: is not a whole number"),
        ({"Image": "core", "StopTimeout": 0}, "StopTimeout: is not a whole number"),
        ({"Image": "core", "StopTimeout": True}, "StopTimeout: is not a whole number"),
        ({"Image": "core", "HostConfig": []}, "HostConfig: is not a table"),
        ({"Image": "core", "HostConfig": {"Mounts": {}}}, "HostConfig.Mounts: is not a list"),
        ({"Image": "core", "HostConfig": {"Mounts": ["/a:/b"]}}, "HostConfig.Mounts: is not a list of tables"),
        (
            {"Image": "core", "HostConfig": {"Mounts": [{"Target": "/run/osrdyne"}]}},
            "HostConfig.Mounts: /run/osrdyne is",
        ),
        ([1], "holds no table"),
        ("{", "is not JSON"),
        ("[" * 100_000, "more than 64 objects and arrays are within each other"),
    ],
)
def test_what_cannot_be_right_is_refused_with_its_place(declared: object, place: str, tmp_path: Path) -> None:
    found = problem(tmp_path, declared)

    assert found.startswith(f"{tmp_path / 'template.json'}: ")
    assert place in found
    assert "secret" not in found


def test_a_file_that_cannot_be_read_is_refused_with_its_reason(tmp_path: Path) -> None:
    assert "is not TOML" in problem(tmp_path, "Image: core", "template.toml")
    assert "holds a date" in problem(tmp_path, "Image = 'a'\nsince = 2026-01-01\n", "template.toml")
    assert "neither .json nor .toml" in problem(tmp_path, "Image: core", "template.yaml")
    with pytest.raises(SettingsError, match=r"absent\.json: cannot be read: No such file"):
        load(tmp_path / "absent.json")


def test_what_was_declared_is_passed_on_untouched() -> None:
    declared = {
        "Image": "core",
        "Cmd": ["serve"],
        "Env": ["TZ=UTC", "UNSET"],
        "Labels": {"team": "a"},
        "StopSignal": "SIGINT",
        "StopTimeout": 7,
        "HostConfig": {
            "Memory": 1000,
            "Init": False,
            "RestartPolicy": {"Name": "on-failure"},
            "Mounts": [{"Type": "volume", "Target": "/data"}],
        },
        "NetworkingConfig": {"EndpointsConfig": {"back": {}}},
        "OfTomorrow": {"a": [1]},
    }
    before = json.dumps(declared)
    made = body(declared)

    assert json.dumps(declared) == before
    assert made["Env"][:2] == ["TZ=UTC", "UNSET"]
    assert made["Labels"]["team"] == "a"
    assert made["HostConfig"]["Mounts"][0] == {"Type": "volume", "Target": "/data"}
    added = {
        "Env": made["Env"][2:],
        "Labels": {name: text for name, text in made["Labels"].items() if name.startswith("osrdyne.")},
        "Mounts": made["HostConfig"]["Mounts"][1:],
    }
    assert all(added.values())
    kept = {**made, "Env": made["Env"][:2], "Labels": {"team": "a"}}
    kept["HostConfig"] = {**made["HostConfig"], "Mounts": made["HostConfig"]["Mounts"][:1]}
    assert kept == declared


@pytest.mark.parametrize("key", KEYS)
def test_a_group_gets_labels_and_environment_of_its_own(key: str) -> None:
    made = body({}, key)

    labels = made["Labels"]
    assert (labels["osrdyne.pool"], labels["osrdyne.instance"], labels["osrdyne.key"]) == ("core", "prod", key)
    variables = dict(variable.split("=", 1) for variable in made["Env"])
    assert variables["WORKER_KEY"] == key
    assert variables["WORKER_ID"] == "worker-1"
    assert variables["WORKER_CONSUMER_TIMEOUT"] == "90000"


def test_the_address_is_in_a_read_only_directory_and_nowhere_else() -> None:
    made = body({})

    assert "WORKER_AMQP_URI_FILE=/run/osrdyne/uri" in made["Env"]
    assert not [variable for variable in made["Env"] if variable.startswith("WORKER_AMQP_URI=")]
    [mount] = made["HostConfig"]["Mounts"]
    assert mount == {"Type": "bind", "Source": str(FILE.parent), "Target": "/run/osrdyne", "ReadOnly": True}


def test_where_the_template_is_silent_a_stop_is_heeded_and_lasts() -> None:
    made = body({})

    assert made["StopTimeout"] == 150
    assert made["HostConfig"]["Init"] is True
    assert made["HostConfig"]["RestartPolicy"] == {"Name": "unless-stopped"}


def test_a_container_that_is_removed_when_it_ends_is_not_restarted_too() -> None:
    assert "RestartPolicy" not in body({"HostConfig": {"AutoRemove": True}})["HostConfig"]


def test_tables_that_are_null_count_as_absent(tmp_path: Path) -> None:
    declared = {"Image": "core", "Env": None, "Labels": None, "HostConfig": None}
    (tmp_path / "a.json").write_text(json.dumps(declared))

    assert body(load(tmp_path / "a.json"))["HostConfig"]["Init"] is True


def test_what_a_worker_is_started_from_rolls_it_and_nothing_else_does() -> None:
    def hashed(declared: dict[str, Any], pool: PoolSettings = POOL, file: Path = FILE) -> str:
        return ContainerTemplate(pool, {"Image": "core", **declared}, file).hash

    base = hashed({})
    assert hashed({"Cmd": ["a"]}) != base
    assert hashed({}, PoolSettings("core", "prod", consumer_timeout=91.0)) != base
    assert hashed({}, file=Path("/elsewhere/uri")) != base
    assert hashed({}, PoolSettings("core", "prod", consumer_timeout=90.0, unbind_delay=5.0)) == base
    assert hashed({"A": 1, "B": 2}) == hashed({"B": 2, "A": 1})


@pytest.mark.parametrize(
    ("engine", "declared", "expected"),
    [
        ({"Type": "json-file", "Config": {}}, {}, {"Type": "json-file", "Config": LOG_LIMIT}),
        ({"Type": "json-file", "Config": {}}, {"LogConfig": {"Type": "syslog"}}, {"Type": "syslog"}),
        ({"Type": "json-file", "Config": {"max-size": "1m"}}, {}, None),
        ({"Type": "local", "Config": {}}, {}, None),
        ({"Type": "journald", "Config": None}, {}, None),
    ],
)
def test_a_log_has_a_limit_where_neither_the_engine_nor_the_template_gives_it_one(
    engine: dict[str, Any], declared: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    made = ContainerTemplate(POOL, {"Image": "core", "HostConfig": declared}, FILE)
    limit = facts.has_endless_log({"HostConfig": {"LogConfig": engine}})
    assert made.body("42", "worker-1", limit_log=limit)["HostConfig"].get("LogConfig") == expected
