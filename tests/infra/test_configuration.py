"""The stack's configuration is parsed once, strictly: what is wrong is named, with what would be right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

import steps
from osrdyne_infra.configuration import EXAMPLES, StackSettings, parse
from osrdyne_infra.errors import ConfigurationError

pytestmark = pytest.mark.fast
SECRETS = frozenset({"osrdyne:admin_password"})
BROKER = {"management": "http://broker:15672", "amqp": "amqp://broker:5672", "admin": "root"}
WHOLE: Mapping[str, Any] = {
    "broker": BROKER,
    "admin_password": "hidden-word",
    "vhost": "dev",
    "instance": "alice",
    "pools": [{"name": "core", "unbind_delay": "PT1M"}, {"name": "other"}],
}


def raw(**changes: Any) -> dict[str, str]:
    """What Pulumi hands over: texts, and JSON of everything else. None leaves a value out."""
    values = {name: value for name, value in {**WHOLE, **changes}.items() if value is not None}
    return {f"osrdyne:{name}": value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}


def read(**changes: Any) -> StackSettings:
    return parse(raw(**changes), SECRETS)


def test_several_pools_are_read_and_belong_to_the_instance() -> None:
    settings = read()

    assert [(pool.name, pool.instance, pool.unbind_delay) for pool in settings.pools] == [
        ("core", "alice", 60.0),
        ("other", "alice", 600.0),
    ]


def test_the_file_of_the_stack_dev_is_sound() -> None:
    given = yaml.safe_load(Path(steps.ROOT, "Pulumi.dev.yaml").read_text())["config"]
    values = {name.removeprefix("osrdyne:"): value for name, value in given.items()}

    settings = parse(raw(**{**dict.fromkeys(WHOLE), **values, "admin_password": "hidden-word"}), SECRETS)

    assert [pool.name for pool in settings.pools] == ["core"]


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"vhots": "dev"}, "osrdyne:vhots", "known are osrdyne:broker"),
    ({"vhost": None}, "osrdyne:vhost", "is missing"),
    ({"vhost": ""}, "osrdyne:vhost", "is no text of 1 to 255 bytes"),
    ({"instance": None}, "osrdyne:instance", "is missing"),
    ({"admin_password": None}, "osrdyne:admin_password", "is missing"),
    ({"broker": "http://broker"}, "osrdyne:broker", "is no table of management, amqp, admin"),
    ({"broker": {**BROKER, "amqp": "http://broker"}}, "osrdyne:broker.amqp", "give amqp://HOST:PORT or amqps://"),
    ({"broker": {**BROKER, "amqp": "amqp://a:b@broker"}}, "osrdyne:broker.amqp", "without user and path"),
    ({"broker": {**BROKER, "management": "http://broker/api"}}, "osrdyne:broker.management", "without user and path"),
    ({"broker": {**BROKER, "statistics_interval": "soon"}}, "osrdyne:broker.statistics_interval", "give seconds"),
    ({"broker": {**BROKER, "port": 1}}, "osrdyne:broker.port", "known are management, amqp, admin"),
    ({"broker": {"management": "http://broker:1"}}, "osrdyne:broker.amqp", "is missing"),
    ({"pools": []}, "osrdyne:pools", "is no list of one pool or more"),
    ({"pools": {"name": "core"}}, "osrdyne:pools", "is no list of one pool or more"),
    ({"pools": ["core"]}, "osrdyne:pools[0]", "is no table of name"),
    ({"pools": [{"name": "core"}, {"name": "core"}]}, "osrdyne:pools[1].name", "is the name of two pools"),
    ({"pools": [{"name": "Core"}]}, "osrdyne:pools[0].name", "use lower-case letters"),
    ({"pools": [{}]}, "osrdyne:pools[0].name", "give the pool a name"),
    ({"pools": [{"name": "core", "delivery_limit": "5"}]}, "osrdyne:pools[0].delivery_limit", "integer of 1 or more"),
    ({"pools": [{"name": "core", "message_ttl": "1h"}]}, "osrdyne:pools[0].message_ttl", "'PT1M30S'"),
    ({"pools": [{"name": "core", "instance": "x"}]}, "osrdyne:pools[0].instance", "known are name"),
    ({"pools": [{"name": "core", "unbnd": 1}]}, "osrdyne:pools[0].unbnd", "known are name"),
    ({"lose_messages_of": "core"}, "osrdyne:lose_messages_of", "is no list of pools"),
    ({"lose_messages_of": ["cores"]}, "osrdyne:lose_messages_of[0]", "its pools are core, other"),
    ({"rotate": {"cores": {}}}, "osrdyne:rotate.cores", "known are core, other"),
    ({"rotate": {"core": {"boss": 1}}}, "osrdyne:rotate.core.boss", "known are client, worker"),
    ({"rotate": {"core": {"worker": True}}}, "osrdyne:rotate.core.worker", "is no text or integer"),
]


@pytest.mark.parametrize(("changes", "path", "problem"), WRONG)
def test_a_wrong_value_is_named_with_what_is_allowed_and_an_example(
    changes: dict[str, Any], path: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(**changes)

    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert problem in said
    assert "\nExample:\n  " in said
    assert "hidden-word" not in said


def test_a_setting_of_another_namespace_is_refused_and_pulumis_own_are_not() -> None:
    parse({**raw(), "pulumi:tags": "{}"}, SECRETS)

    with pytest.raises(ConfigurationError, match="rabbitmq:endpoint"):
        parse({**raw(), "rabbitmq:endpoint": "x"}, SECRETS)


def test_a_password_in_the_clear_is_refused_without_being_said() -> None:
    with pytest.raises(ConfigurationError, match="in the clear") as caught:
        parse(raw(), frozenset())

    assert "hidden-word" not in str(caught.value)


def test_a_secret_that_would_come_out_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="osrdyne:vhost: is no secret"):
        parse(raw(), SECRETS | {"osrdyne:vhost"})


def test_what_is_read_does_not_show_the_password() -> None:
    assert "hidden-word" not in repr(read())


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"admin_password"}))
def test_every_example_is_one_that_is_accepted(name: str) -> None:
    ((path, value),) = yaml.safe_load(EXAMPLES[name].replace("osrdyne:", "", 1)).items()

    read(**{path: value})
