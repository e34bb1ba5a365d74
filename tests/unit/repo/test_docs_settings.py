"""The pages of settings name every setting with its true default, and nothing else."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import steps
from osrdyne.drivers.docker.settings import DockerSettings
from osrdyne.drivers.kubernetes.settings import KubernetesSettings
from osrdyne.drivers.noop import NoopSettings
from osrdyne.drivers.subprocess.settings import SubprocessSettings
from osrdyne.drivers.subprocess.template import SubprocessTemplate
from osrdyne.drivers.systemd.settings import SystemdSettings
from osrdyne.settings import daemon as settings
from osrdyne_pool.settings import PoolLimits, PoolSettings, RedoSettings
from osrdyne_relay.driver.settings import RelayDriverSettings

PAGES = ("settings", "settings-pool", "drivers")
#: A heading between two of them ends the last section of the first.
PAGE = "\n## ".join(Path(steps.ROOT, f"docs/reference/{name}.md").read_text() for name in PAGES)

#: Heading of the page -> what it describes.
TABLES: dict[str, Any] = {
    "`[pool]`": PoolSettings,
    "`[pool.limits]`": PoolLimits,
    "`[pool.jobs.redo]`": RedoSettings,
    "`[broker]`": settings.BrokerSettings,
    '`kind = "noop"`': NoopSettings,
    '`kind = "subprocess"`': SubprocessSettings,
    "`[driver.template]`": SubprocessTemplate,
    '`kind = "docker"`': DockerSettings,
    '`kind = "systemd"`': SystemdSettings,
    '`kind = "kubernetes"`': KubernetesSettings,
    '`kind = "relay"`': RelayDriverSettings,
    "`[limits]`": settings.LimitSettings,
    "`[intervals]`": settings.IntervalSettings,
    "`[status]`": settings.StatusSettings,
}


def rows(heading: str) -> dict[str, str]:
    """The settings that the table under a heading names, with the default that it shows."""
    section = re.split(r"^##+ ", PAGE.split(f"# {heading}\n")[1], flags=re.MULTILINE)[0]
    return dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", section, re.MULTILINE))


def defaults(model: Any) -> Iterator[tuple[str, Any]]:
    """The settings of a model, with their defaults; PydanticUndefined for none."""
    if issubclass(model, BaseModel):
        yield from ((name, field.default) for name, field in model.model_fields.items())
        return
    for field in dataclasses.fields(model):
        if field.default_factory is not dataclasses.MISSING:
            yield field.name, field.default_factory()
        else:
            yield field.name, PydanticUndefined if field.default is dataclasses.MISSING else field.default


def as_written(value: Any) -> str:
    if value is PydanticUndefined:
        return "-"
    if value is None:
        return "*none*"
    if dataclasses.is_dataclass(value):
        return "`{}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        value = list(value)
    return f"`{value:.15g}`" if isinstance(value, float) else f"`{value}`"


@pytest.mark.parametrize("heading", TABLES)
def test_the_page_names_every_setting_with_its_true_default(heading: str) -> None:
    assert rows(heading) == {name: as_written(value) for name, value in defaults(TABLES[heading])}


def test_every_table_of_settings_has_its_section() -> None:
    known = {"pool", "broker", "driver", "limits", "intervals", "status"}

    assert settings.DaemonSettings.model_fields.keys() == known
    assert {name for name in known if f"## `[{name}]`\n" in PAGE} == known


def example() -> str:
    found = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def test_the_example_is_right(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(example())

    loaded = settings.load(tmp_path / "settings.toml")

    assert loaded.pool.delays("infra=42").unbind_delay == 7200
    assert loaded.driver.kind == "subprocess"


@pytest.mark.parametrize("name", ["broker.amqp_uri", "broker.management_uri"])
def test_a_credential_can_be_in_the_environment_as_the_page_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OSRDYNE_DAEMON_" + name.replace(".", "__").upper(), "amqp://from-the-environment")
    (tmp_path / "settings.toml").write_text(example())

    value: Mapping[str, Any] = settings.load(tmp_path / "settings.toml").broker.model_dump()

    assert value[name.partition(".")[2]].get_secret_value() == "amqp://from-the-environment"
    assert value["timeout"] == 10
